"""Reading a strategy from a TOML file. Everything wrong with the file is reported at once, with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from placeproof.core import files
from placeproof.core.bounds import A_COUNT, is_count
from placeproof.core.diagnostics import Place, Problems, suggestion
from placeproof.core.mesh import SPLITS, USUAL_SPLITS, Axis
from placeproof.core.modes import MODES
from placeproof.core.places import toml_fault, toml_place
from placeproof.core.states import STATES
from placeproof.core.strategy import EXPERT, INNER, MATRIX, NORM, OUTER, SCHEDULE_FIELDS, Entry, Schedule
from placeproof.programs.ops import RESERVED
from placeproof.strategies.template import Option, Template

_TOP = {"name", "title", "summary", "source", "family", "aliases", "approximates", "positional"}
_TABLES = {"axes", "placement", "schedule", "options", "needs"}
_OPTION_KEYS = {"sets", "kinds", "default", "doc", "inner_of"}
_AXIS_KEYS = {"splits", "degree", "inner"}
_GROUPS = {MATRIX, NORM, INNER, OUTER, EXPERT}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_file(path: Path) -> Template:
    """The strategy of a TOML file. Raises :class:`InputError` when it cannot be read or used."""
    text = files.read_text(path, code="PP110", help="give the path of a readable TOML file")
    return read_text(text, source=str(path))


def read_text(text: str, *, source: str) -> Template:
    """The strategy of a TOML text; ``source`` names it in messages."""
    problems = Problems()
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # that of TOML is a ValueError; one of Python's own is a number that is too long
        message, place = toml_fault(error, text, source)
        problems.add("PP110", f"this is not TOML: {message}", place=place, help="see docs/how-to/own-strategy.md")
        problems.raise_if_any()
        raise AssertionError("unreachable") from error
    reader = _Reader(text=text, source=source, problems=problems)
    template = reader.template(data)
    problems.raise_if_any()
    return template


def read_data(data: Mapping[str, Any], *, source: str = "<definition>") -> Template:
    """The strategy of the same keys and tables as a file has, given as a mapping."""
    problems = Problems()
    template = _Reader(text="", source=source, problems=problems).template(data)
    problems.raise_if_any()
    return template


@dataclass(slots=True)
class _Reader:
    text: str
    source: str
    problems: Problems

    def place(self, *path: str) -> Place | None:
        """Where a key stands: the line that defines it, in its table."""
        return toml_place(self.text, self.source, path)

    def refuse(self, code: str, message: str, *path: str, help: str | None = None) -> None:
        self.problems.add(code, message, place=self.place(*path), help=help)

    def template(self, data: Mapping[str, Any]) -> Template:
        for key in data:
            if key not in _TOP | _TABLES:
                self.refuse(
                    "PP111", f"`{key}` is no key of a strategy file", key, help=suggestion(key, _TOP | _TABLES) or _keys(_TOP | _TABLES)
                )
        name = self._text(data, "name", required=True)
        if name and not _NAME.fullmatch(name):
            self.refuse("PP112", f"`{name}` is no name: letters, digits and _ only", "name")
        axes = self._axes(self._table(data, "axes"))
        options = self._options(self._table(data, "options"), axes)
        return Template(
            name=name,
            title=self._text(data, "title") or name,
            summary=self._text(data, "summary"),
            source=self._text(data, "source"),
            family=self._text(data, "family"),
            aliases=self._texts(data, "aliases"),
            approximates=self._texts(data, "approximates"),
            axes=axes,
            entries=self._placement(self._table(data, "placement"), axes, name),
            schedule=self._schedule(self._table(data, "schedule")),
            options=options,
            positional=self._positional(data, axes, options),
            needs=self._needs(self._table(data, "needs")),
        )

    def _table(self, data: Mapping[str, Any], key: str, *path: str) -> Mapping[str, Any]:
        value = data.get(key, {})
        if isinstance(value, dict):
            return value
        self.refuse("PP112", f"`{key}` is a table", *path, key, help=f"write `[{'.'.join((*path, key))}]` and its keys below")
        return {}

    def _text(self, data: Mapping[str, Any], key: str, *path: str, required: bool = False) -> str:
        value: object = data.get(key, "")
        if not isinstance(value, str):
            self.refuse("PP112", f"`{key}` is a text, not {value!r}", *path, key)
            return ""
        if required and not value:
            self.refuse("PP113", f"`{key}` is missing", help=f'add `{key} = "..."` at the top of {self.source}')
        return value

    def _texts(self, data: Mapping[str, Any], key: str, *path: str) -> tuple[str, ...]:
        value = data.get(key, [])
        if isinstance(value, list) and all(isinstance(v, str) for v in value):
            return tuple(value)
        self.refuse("PP112", f"`{key}` is a list of texts", *path, key)
        return ()

    def _axes(self, table: Mapping[str, Any]) -> tuple[Axis, ...]:
        axes = []
        for name in table:
            said = self._table(table, name, "axes")
            self._unknown(said, _AXIS_KEYS, "axes", name)
            if not _NAME.fullmatch(name) or name in RESERVED | set(STATES):
                self.refuse("PP112", f"`{name}` cannot name an axis", "axes", name, help="letters, digits and _, no word of step programs")
            splits = said.get("splits", USUAL_SPLITS.get(name))
            if not isinstance(splits, str) or splits not in SPLITS:
                self.refuse("PP112", f"axis `{name}` splits nothing known: {splits!r}", "axes", name, "splits", help=_keys(SPLITS))
                splits = "batch"
            degree, inner = self._count(said, "degree", name), self._count(said, "inner", name)
            axes.append(Axis(name=name, splits=SPLITS[splits], degree=degree, inner=inner))
        return tuple(axes)

    def _count(self, said: Mapping[str, Any], key: str, axis: str) -> int | None:
        value = said.get(key)
        if value is None or is_count(value):
            return value
        self.refuse("PP103", f"`{key}` of axis `{axis}` is {A_COUNT}, not {value!r}", "axes", axis, key)
        return None

    def _unknown(self, said: Mapping[str, Any], known: set[str], *path: str) -> None:
        for key in said:
            if key not in known:
                self.refuse("PP111", f"`{key}` is no key of `[{'.'.join(path)}]`", *path, key, help=suggestion(key, known) or _keys(known))

    def _placement(self, table: Mapping[str, Any], axes: tuple[Axis, ...], owner: str) -> tuple[Entry, ...]:
        entries: list[Entry] = []
        for axis in table:
            if all(a.name != axis for a in axes):
                self.refuse("PP111", f"`{axis}` is no axis of this strategy", "placement", axis, help=f"declare `[axes.{axis}]`")
            for state, said in self._table(table, axis, "placement").items():
                if state not in STATES:
                    self.refuse(
                        "PP111", f"`{state}` is no state", "placement", axis, state, help=suggestion(state, STATES) or _keys(STATES)
                    )
                elif isinstance(said, dict):
                    self._unknown(said, _GROUPS, "placement", axis, state)
                    for group, mode in said.items():
                        self._entry(entries, axis, state, mode, owner, (group,))
                else:
                    self._entry(entries, axis, state, said, owner, ())
        return tuple(entries)

    def _entry(self, entries: list[Entry], axis: str, state: str, mode: Any, owner: str, groups: tuple[str, ...]) -> None:
        if isinstance(mode, str) and mode in MODES:
            entries.append(
                Entry(
                    state=state,
                    axis=axis,
                    mode=MODES[mode],
                    owner=owner,
                    groups=groups,
                    place=self.place("placement", axis, state, *groups),
                )
            )
        else:
            self.refuse("PP112", f"{mode!r} is no mode", "placement", axis, state, *groups, help='"R", "S", "S*", "M" or "O"')

    def _schedule(self, table: Mapping[str, Any]) -> Schedule:
        self._unknown(table, set(SCHEDULE_FIELDS), "schedule")
        for key, value in table.items():
            if key in SCHEDULE_FIELDS and not isinstance(value, bool | int | str):
                self.refuse("PP112", f"`{key}` is true, false, a number or a text", "schedule", key)
        return Schedule(**{k: v for k, v in table.items() if k in SCHEDULE_FIELDS})

    def _options(self, table: Mapping[str, Any], axes: tuple[Axis, ...]) -> tuple[Option, ...]:
        options = []
        for name in table:
            said = self._table(table, name, "options")
            self._unknown(said, _OPTION_KEYS, "options", name)
            sets = self._text(said, "sets", "options", name)
            if sets not in SCHEDULE_FIELDS:
                self.refuse("PP112", f"option `{name}` sets nothing known: {sets!r}", "options", name, "sets", help=_keys(SCHEDULE_FIELDS))
                continue
            inner_of = self._text(said, "inner_of", "options", name) or None
            if inner_of is not None and all(a.name != inner_of for a in axes):
                self.refuse("PP111", f"`{inner_of}` is no axis of this strategy", "options", name, "inner_of")
            kinds, default = self._texts(said, "kinds", "options", name), said.get("default")
            if not kinds:
                message = f"option `{name}` does not say which values it takes"
                self.refuse("PP113", message, "options", name, help='add `kinds`, such as ["true", "false"] or ["integer"]')
                continue
            if not isinstance(default, bool | int | str | None):
                self.refuse("PP112", f"`default` is true, false, a number or a text, not {default!r}", "options", name, "default")
                continue
            option = Option(
                name=name,
                sets=sets,
                kinds=kinds,
                default=default,
                doc=self._text(said, "doc", "options", name),
                inner_of=inner_of,
            )
            if option.default is not None and not option.allows(option.default):
                self.refuse("PP112", f"the default of `{name}` is {option.expects()}", "options", name, "default")
            options.append(option)
        return tuple(options)

    def _positional(self, data: Mapping[str, Any], axes: tuple[Axis, ...], options: tuple[Option, ...]) -> tuple[str, ...]:
        if "positional" not in data:
            return tuple(a.name for a in axes)
        names = self._texts(data, "positional")
        known = {a.name for a in axes} | {o.name for o in options}
        for name in names:
            if name not in known:
                self.refuse("PP111", f"`{name}` is neither an axis nor an option", "positional", help=suggestion(name, known))
        return names

    def _needs(self, table: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        for axis, state in table.items():
            if not isinstance(state, str) or state not in STATES:
                self.refuse("PP112", f"`needs` maps an axis to a state, not {state!r}", "needs", axis, help=_keys(STATES))
        return tuple(sorted((a, s) for a, s in table.items() if isinstance(s, str) and s in STATES))


def _keys(known: Any) -> str:
    return "one of " + ", ".join(f"`{k}`" for k in sorted(known))
