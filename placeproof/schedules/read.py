"""Reading a schedule from a TOML file. Everything wrong with the file is reported at once, with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.core.places import toml_fault, toml_place
from placeproof.schedules.expression import Expression, ExpressionError, read
from placeproof.schedules.schedule import COUNTS, QUANTITIES, SIZES, TIMES, Form, Kind, Layout, Need, Phase, Printed, Schedule, Token

_TOP = ("name", "title", "summary", "source", "layout", "chunks", "order", "needs", "closed", "printed")
_ORDER = ("let", "turn", "made_for", "phases")
_TOKEN = re.compile(r"(F|BW|B|W)(\d*)")
_FORMS = (*COUNTS, *TIMES, *SIZES)


def read_text(text: str, *, source: str) -> Schedule:
    """The schedule of a TOML text; ``source`` names it in messages. Raises InputError with everything that is wrong with it."""
    problems = Problems()
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        message, place = toml_fault(error, text, source)
        problems.add("PP110", f"this is not TOML: {message}", place=place, help="see docs/reference/schedules.md")
        problems.raise_if_any()
        raise AssertionError("unreachable") from error
    schedule = _Reader(text=text, source=source, problems=problems).schedule(data)
    problems.raise_if_any()
    return schedule


@dataclass(slots=True)
class _Reader:
    text: str
    source: str
    problems: Problems
    lets: list[str] = field(default_factory=list)

    def refuse(self, code: str, message: str, *path: str, help: str | None = None) -> None:
        self.problems.add(code, message, place=toml_place(self.text, self.source, path), help=help or "see docs/reference/schedules.md")

    def schedule(self, data: Mapping[str, Any]) -> Schedule:
        self._keys(data, _TOP)
        order = data.get("order", {})
        order = order if isinstance(order, dict) else {}
        if "phases" not in order:
            self.refuse("PP113", "`phases` is missing", "order", help='add `[order]` with `phases = [{ times = "m", run = "F" }, ...]`')
        self._keys(order, _ORDER, "order")
        layout = self._word(data, "layout", [one.value for one in Layout])
        let = self._let(order)
        return Schedule(
            name=self._text(data, "name", required=True),
            title=self._text(data, "title"),
            summary=self._text(data, "summary"),
            source=self._text(data, "source"),
            layout=Layout(layout or "loop"),
            chunks=self._chunks(data, layout),
            let=let,
            turn=self._optional(order, "turn", ("p", "m", "v")),
            made_for=self._optional(order, "made_for", ("p", "m", "v")),
            phases=tuple(self._phases(order)),
            needs=tuple(self._need(row) for row in self._rows(data, "needs")),
            closed=tuple(self._form(row, "closed", ("what", "form", "when", "proved")) for row in self._rows(data, "closed")),
            printed=tuple(self._printed(row) for row in self._rows(data, "printed")),
        )

    def _keys(self, data: Mapping[str, Any], known: tuple[str, ...], *path: str) -> None:
        for key in data:
            if key not in known:
                listed = f"keys that may stand here: {', '.join(known)}"
                self.refuse("PP111", f"`{key}` is no key of a schedule file here", *path, key, help=suggestion(key, known) or listed)

    def _text(self, data: Mapping[str, Any], key: str, *path: str, required: bool = False) -> str:
        value: object = data.get(key, "")
        if not isinstance(value, str):
            self.refuse("PP112", f"`{key}` is a text, not {value!r}", *path, key)
            return ""
        if required and not value:
            self.refuse("PP113", f"`{key}` is missing", *path, help=f'add `{key} = "..."`')
        return value

    def _word(self, data: Mapping[str, Any], key: str, known: list[str]) -> str:
        value = self._text(data, key, required=True)
        if value and value not in known:
            self.refuse("PP112", f"`{value}` is no {key}", key, help=f"write {' or '.join(known)}")
            return ""
        return value

    def _chunks(self, data: Mapping[str, Any], layout: str) -> int | None:
        value = data.get("chunks", 1 if layout == "loop" else 2)
        if value == "v" and layout == "loop":
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.refuse("PP112", f'`chunks` is a whole number, or "v" of layout loop, not {value!r}', "chunks")
            return 1
        if layout in ("vee", "both") and value != 2:
            self.refuse("PP112", f"layout {layout} has 2 chunks on a device, not {value}", "chunks", help="leave `chunks` out")
        return value

    def _rows(self, data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
        rows = data.get(key, [])
        if isinstance(rows, list) and all(isinstance(row, dict) for row in rows):
            return rows
        self.refuse("PP112", f"`{key}` is a list of tables", key, help=f"write `[[{key}]]` before each")
        return []

    def _let(self, order: Mapping[str, Any]) -> tuple[tuple[str, Expression], ...]:
        made = []
        table = order.get("let", {})
        if not isinstance(table, dict):
            self.refuse(
                "PP112", "`let` is a table", "order", "let", help="names, each with an expression of the counts and the names before it"
            )
            table = {}
        for name, text in table.items():
            made.append((name, self._expression(text, (*COUNTS, *self.lets), "order", "let", name)))
            self.lets.append(name)
        return tuple(made)

    def _optional(self, order: Mapping[str, Any], key: str, names: Iterable[str]) -> Expression | None:
        return self._expression(order[key], names, "order", key) if key in order else None

    def _expression(self, text: object, names: Iterable[str], *path: str) -> Expression:
        try:
            return read(text if isinstance(text, str) else repr(text), names)
        except ExpressionError as error:
            self.refuse("PP112", str(error), *path)
            return read("0", ())

    def _conditions(self, row: Mapping[str, Any], key: str, names: Iterable[str], *path: str) -> tuple[Expression, ...]:
        texts = row.get(key, [])
        if not isinstance(texts, list):
            self.refuse("PP112", f"`{key}` is a list of relations", *path, key)
            return ()
        return tuple(self._relation(text, names, *path, key) for text in texts)

    def _relation(self, text: object, names: Iterable[str], *path: str) -> Expression:
        found = self._expression(text, names, *path)
        if not found.relation:
            self.refuse("PP112", f"`{text}` is no relation", *path, help="compare two numbers with ==, !=, <, <=, > or >=")
        return found

    def _phases(self, order: Mapping[str, Any]) -> Iterable[Phase]:
        for row in self._rows(order, "phases"):
            self._keys(row, ("times", "run", "doc"), "order", "phases")
            times = self._expression(row.get("times", ""), (*COUNTS, *self.lets), "order", "phases")
            run = tuple(self._slot(word) for word in self._text(row, "run", "order", "phases", required=True).split())
            yield Phase(times=times, run=run, doc=self._text(row, "doc", "order", "phases"))

    def _slot(self, word: str) -> tuple[Token, ...]:
        tokens = []
        for part in word.split("&"):
            read_as = _TOKEN.fullmatch(part)
            if read_as is None:
                self.refuse(
                    "PP112", f"`{part}` is no pass", "order", "phases", help="write F, B, W or BW, and a chunk: `F0`; `F0&BW1` overlap"
                )
                continue
            tokens.append(Token(Kind(read_as[1]), int(read_as[2]) if read_as[2] else None))
        if len(tokens) > 1 and [t.kind for t in tokens] != [Kind.F, Kind.BW]:
            self.refuse("PP112", f"`{word}` cannot overlap", "order", "phases", help="a forward and a full backward can: `F0&BW1`")
        return tuple(tokens)

    def _need(self, row: Mapping[str, Any]) -> Need:
        self._keys(row, ("rule", "because", "source"), "needs")
        rule = self._relation(row.get("rule", ""), ("p", "m", "v"), "needs", "rule")
        return Need(rule=rule, because=self._text(row, "because", "needs"), source=self._text(row, "source", "needs"))

    def _form(self, row: Mapping[str, Any], table: str, keys: tuple[str, ...]) -> Form:
        self._keys(row, keys, table)
        what = self._text(row, "what", table, required=True)
        if what and what not in QUANTITIES:
            self.refuse("PP112", f"`{what}` is no quantity of a schedule", table, "what", help=f"write one of {', '.join(QUANTITIES)}")
        form = self._expression(row.get("form", ""), _FORMS, table, "form")
        return Form(what=what, form=form, when=self._conditions(row, "when", _FORMS, table), proved=self._texts(row, "proved", table))

    def _texts(self, row: Mapping[str, Any], key: str, *path: str) -> tuple[str, ...]:
        texts = row.get(key, [])
        if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            return tuple(texts)
        self.refuse("PP112", f"`{key}` is a list of texts", *path, key)
        return ()

    def _printed(self, row: Mapping[str, Any]) -> Printed:
        form = self._form(row, "printed", ("what", "form", "when", "source", "note"))
        return Printed(form=form, source=self._text(row, "source", "printed"), note=self._text(row, "note", "printed"))
