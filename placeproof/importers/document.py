"""Files of settings with the place of every key: JSON, with comments or without, YAML, TOML, and command lines."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from placeproof.core.diagnostics import Place, Problems
from placeproof.core.places import KeyPath, toml_fault, toml_place
from placeproof.importers import hydra

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|#[^\n\r]*|//[^\n\r]*|/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')

#: What no list of arguments has, but a script that a shell runs: its first line, commands, values of variables other than arrays.
_SCRIPT = re.compile(
    r"\A#!|^[ \t]*((?:export|torchrun|srun|mpirun|deepspeed|accelerate|source|eval|bash|python3?|if|for|while|case|set)[ \t]+[^ \t\n]"
    r"|\w+=(?!\())",
    re.MULTILINE,
)

#: Files that a shell runs, by the ends of their names, and what begins one that holds arguments alone, or a list of them.
_RUN = (".sh", ".bash", ".slurm", ".sbatch")
_ARGUMENTS = re.compile(r"(?:\s|#[^\n]*\n|\\\n)*(?:--|\w+=\(\s*\n|\Z)")

#: The tag of YAML's key `<<`.
_MERGE = "tag:yaml.org,2002:merge"
#: So many values may a YAML file have, each alias counted as what it stands for.
MOST_VALUES = 100_000


@dataclass(frozen=True, kw_only=True)
class Document:
    """What a file says. ``spans``: of each key and list item, the line, the column and the length; empty for TOML.

    ``again``: names that are said more than once, of which the last counts. ``bare``: a name without a value is true, as on command lines.
    ``open``: names whose values the file leaves open, with what is to be said of that. ``added``: names that the file says are its own;
    None where it cannot say that. ``elsewhere``: keys that another document says, over which this one is laid. ``referred``: settings that
    values refer to, and the tables around them. ``typed``: its values are those of a program, in which a text is no number.
    """

    data: Mapping[str, Any]
    source: str
    text: str
    spans: Mapping[KeyPath, tuple[int, int, int]] = field(default_factory=dict)
    again: frozenset[str] = frozenset()
    bare: bool = False
    open: Mapping[str, str] = field(default_factory=dict)
    added: frozenset[str] | None = None
    elsewhere: Mapping[KeyPath, Document] = field(default_factory=dict)
    referred: frozenset[KeyPath] = frozenset()
    typed: bool = False

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the text."""
        return self.text.splitlines()

    def place(self, *path: str | int) -> Place | None:
        """Where a key stands; that of the nearest one around it for a key that is missing. The path of all of it is empty."""
        if not self.spans:
            return toml_place(self.text, self.source, path)
        while path and path not in self.spans:
            path = path[:-1]
        if path not in self.spans:  # all of it: where its first key stands
            path = min(self.spans, key=lambda key: (key in self.elsewhere, self.spans[key]))
        if path in self.elsewhere:
            return self.elsewhere[path].place(*path)
        line, column, length = self.spans[path]
        return Place(source=self.source, line=line, column=column, length=length, text=self.lines[line - 1])


def is_script(text: str, source: str) -> bool:
    """Whether a text is a script that a shell runs, and no list of arguments."""
    return _SCRIPT.search(text) is not None or (source.endswith(_RUN) and _ARGUMENTS.match(text) is None)


def as_arguments(document: Document, table: str, problems: Problems) -> Document:
    """The arguments that a table of a file has, ``--name: value``. Raises InputError where it is no such table."""
    rows = document.data[table]
    if not isinstance(rows, Mapping) or not all(str(name).startswith("--") for name in rows):
        place = document.place(table)
        problems.add("PP503", f"`{table}` is a table of arguments", place=place, help="`--num-layers: 12`, an argument a line")
        problems.raise_if_any()
    data: dict[str, Any] = {}
    spans: dict[KeyPath, tuple[int, int, int]] = {}
    unknown: dict[str, str] = {}
    for key, value in rows.items():
        name = str(key)[2:].replace("-", "_")
        if value is False or value is None:
            message = f"`{key}: {'false' if value is False else 'null'}` is handed over with that word as its value"
            problems.add("PP503", message, place=document.place(table, key), help="leave the line out where it is not wanted")
            continue
        if value == "":
            continue
        data[name] = _argument(value)
        spans[(name,)] = document.spans.get((table, str(key)), (1, 1, 1))
        if isinstance(value, str) and re.search(r"\$\{?\w", value):
            unknown[name] = "the file leaves it to the environment"
    problems.raise_if_any()
    again = frozenset(name.rpartition(".")[2][2:].replace("-", "_") for name in document.again)
    return replace(document, data=data, spans=spans, again=again, bare=True, open=unknown)


def _argument(value: Any) -> Any:
    """A value as Megatron's tests hand it over: a list joined by commas, and split at blanks."""
    if value is True:
        return True
    listed = re.fullmatch(r"\[([^\]]+)\]", str(value).strip()) if isinstance(value, str) else None
    if listed is None and not isinstance(value, list):
        return str(value).strip()
    words = (",".join(map(str, value)) if listed is None else listed[1]).split()
    return words if len(words) > 1 else words[0] if words else True


def read_document(text: str, source: str, kind: str, problems: Problems) -> Document:
    """Read a text of the given kind: ``json``, ``hjson``, ``yaml``, ``toml``, ``arguments`` or ``overrides``.

    Raises InputError where it is none.

    ``hjson``: JSON with comments and with commas before a closing bracket. What else Hjson has, such as texts without quotes, is refused.
    ``overrides``: as Hydra has them.
    """
    read = {"json": _json, "hjson": _hjson, "yaml": _yaml, "toml": _toml, "arguments": _arguments, "overrides": _overrides}[kind]
    document = read(text, source, problems)
    problems.raise_if_any()
    assert document is not None
    return document


def _unreadable(kind: str, message: str, text: str, source: str, line: int, column: int, problems: Problems) -> None:
    lines = text.splitlines() or [""]
    line = min(max(line, 1), len(lines))
    place = Place(source=source, line=line, column=max(column, 1), text=lines[line - 1])
    problems.add("PP501", f"this is not {kind}: {message}", place=place, help="is the file whole?")


def _table(value: object, text: str, source: str, problems: Problems) -> bool:
    if isinstance(value, dict):
        return True
    place = Place(source=source, line=1, column=1, text=(text.splitlines() or [""])[0])
    message = "there is nothing in it" if value is None else "a configuration maps names to values, and this does not"
    problems.add("PP501", message, place=place, help='it begins like `{"name": ...}`')
    return False


def _marked(kind: str, text: str, source: str, problems: Problems) -> bool:
    """Whether a text begins with a byte order mark, which readers of its kind do not take."""
    if text.startswith("\ufeff"):
        place = Place(source=source, line=1, column=1, text=text.splitlines()[0])
        message = f"it begins with a byte order mark, at which readers of {kind} stop"
        problems.add("PP501", message, place=place, help="save it as UTF-8 without a byte order mark")
    return text.startswith("\ufeff")


def _hjson(text: str, source: str, problems: Problems) -> Document | None:
    """JSON once comments and trailing commas are spaces, which leaves everything else in its place."""
    plain = _COMMENT.sub(lambda found: found[0] if found[0].startswith('"') else re.sub(r"[^\n\r]", " ", found[0]), text)
    tokens, kept = list(_TOKEN.finditer(plain)), list(plain)
    for before, comma, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if comma[0] == "," and after[0] in "}]" and before[0] not in "{[,:":
            kept[comma.start()] = " "
    return _json(text, source, problems, "".join(kept))


def _json(text: str, source: str, problems: Problems, plain: str | None = None) -> Document | None:
    """``plain``: what is parsed, of the same length as the text that is shown."""
    parsed = text if plain is None else plain
    if _marked("JSON", text, source, problems):
        return None
    if not parsed.strip():
        _table(None, text, source, problems)
        return None
    try:
        data = json.loads(parsed)
    except json.JSONDecodeError as error:
        _unreadable("JSON", error.msg, text, source, error.lineno, error.colno, problems)
        return None
    except (ValueError, RecursionError) as error:  # Python reads no number of thousands of digits
        message = "it is nested too deeply" if isinstance(error, RecursionError) else "a number in it is too long"
        _unreadable("JSON", message, text, source, 1, 1, problems)
        return None
    if not _table(data, text, source, problems):
        return None
    return Document(data=data, source=source, text=text, spans=_json_spans(parsed, text, source, problems))


def _json_spans(plain: str, text: str, source: str, problems: Problems) -> dict[KeyPath, tuple[int, int, int]]:
    """Where each key of a JSON text stands. ``plain`` is known to be JSON, ``text`` is what is shown; keys that come twice are problems."""
    spans: dict[KeyPath, tuple[int, int, int]] = {}
    starts = [0, *(m.end() for m in re.finditer("\n", plain))]
    path: list[str | int] = []
    line = 0
    tokens = list(_TOKEN.finditer(plain))
    for at, token in enumerate(tokens):
        while line + 1 < len(starts) and starts[line + 1] <= token.start():
            line += 1
        shown = token[0]
        if shown in "{[":
            path.append(0 if shown == "[" else "")
        elif shown in "}]":
            path.pop()
        elif shown == "," and path and isinstance(path[-1], int):
            path[-1] += 1
        elif shown.startswith('"') and path and isinstance(path[-1], str) and tokens[at + 1][0] == ":":
            path[-1] = json.loads(shown)
            span = (line + 1, token.start() - starts[line] + 1, len(shown))
            if tuple(path) in spans:
                place = Place(source=source, line=span[0], column=span[1], length=span[2], text=text.splitlines()[line])
                problems.add("PP502", f"`{path[-1]}` is said twice", place=place, help=f"the first is in line {spans[tuple(path)][0]}")
            spans[tuple(path)] = span
    return spans


def _yaml(text: str, source: str, problems: Problems) -> Document | None:
    import yaml

    loader: yaml.SafeLoader | None = None
    spans = _YamlSpans(text, source, problems)
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        spans.walk(node, (), frozenset())
        if problems.found:
            return None
        data: Any = loader.construct_document(node) if node is not None else None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        message = getattr(error, "problem", None) or str(error).partition("\n")[0] or "it is nested too deeply"
        if (fault := _no_value(error, spans)) is not None:
            mark, message = fault.start_mark, f"`{fault.value}` is no {fault.tag.rpartition(':')[2]}"
        before = text[: getattr(error, "position", 0) or 0]  # of a character that no text has
        line, column = (mark.line, mark.column) if mark else (before.count("\n"), len(before) - before.rfind("\n") - 1)
        _unreadable("YAML", message, text, source, line + 1, column + 1, problems)
        return None
    finally:
        if loader is not None:
            loader.dispose()
    if not _table(data, text, source, problems):
        return None
    return Document(data=data, source=source, text=text, spans={**spans.inherited, **spans.found}, again=frozenset(spans.again))


def _no_value(error: Exception, spans: _YamlSpans) -> Any:
    """The scalar that is none of its type, where that is what is wrong: PyYAML does not say which."""
    import yaml

    if isinstance(error, ValueError) and not isinstance(error, yaml.YAMLError):
        for scalar in spans.scalars:
            try:
                yaml.SafeLoader("").construct_document(scalar)
            except ValueError:
                return scalar
            except yaml.YAMLError:
                continue
    return None


class _YamlSpans:
    """Where each key of a YAML text stands. An alias is a node that is met again: it counts as what it stands for.

    Of a key that comes twice the last counts, as PyYAML takes it.
    """

    def __init__(self, text: str, source: str, problems: Problems) -> None:
        self.text, self.source, self.problems = text, source, problems
        self.found: dict[KeyPath, tuple[int, int, int]] = {}
        #: Keys that another table is merged in with (`<<`), where it says them.
        self.inherited: dict[KeyPath, tuple[int, int, int]] = {}
        self.scalars: list[Any] = []
        self.again: set[str] = set()
        self.values = 0
        self.faulty = False

    def walk(self, node: Any, path: KeyPath, around: frozenset[int]) -> None:
        """Note the keys below a node. ``around``: the nodes that it lies in."""
        self.values += 1
        if (id(node) in around or self.values > MOST_VALUES) and not self.faulty:
            self.faulty, mark = True, node.start_mark
            what = "an alias stands for something that it lies in" if id(node) in around else f"this has more than {MOST_VALUES} values"
            place = Place(source=self.source, line=mark.line + 1, column=mark.column + 1, text=self.text.splitlines()[mark.line])
            self.problems.add("PP501", what, place=place, help="write the settings out, without aliases")
        if self.faulty or node is None or isinstance(node.value, str):
            self.scalars += [] if node is None else [node]
            return
        inside = around | {id(node)}
        for number, item in enumerate(node.value):
            if isinstance(item, tuple) and item[0].tag == _MERGE:
                self._merged(item[1], path, inside)
            elif isinstance(item, tuple):
                self._key(item[0], (*path, str(item[0].value)))
                self.walk(item[0], path, inside)
                self.walk(item[1], (*path, str(item[0].value)), inside)
            else:
                self.walk(item, (*path, number), inside)

    def _merged(self, node: Any, path: KeyPath, inside: frozenset[int]) -> None:
        """The keys of tables that are merged in here."""
        other = _YamlSpans(self.text, self.source, self.problems)
        other.values, other.scalars = self.values, self.scalars
        for one in node.value if not isinstance(node.value, str) and node.value and not isinstance(node.value[0], tuple) else [node]:
            other.walk(one, path, inside)
        self.values, self.faulty = other.values, self.faulty or other.faulty
        self.inherited = {**other.inherited, **other.found, **self.inherited}

    def _key(self, key: Any, path: KeyPath) -> None:
        start, end = key.start_mark, key.end_mark
        span = (start.line + 1, start.column + 1, end.column - start.column)
        if path in self.found and self.found[path] != span:
            self.again.add(".".join(map(str, path)))
        self.found[path] = span


def _toml(text: str, source: str, problems: Problems) -> Document | None:
    if _marked("TOML", text, source, problems):
        return None
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # that of TOML is a ValueError; one of Python's own is a number that is too long
        message, place = toml_fault(error, text, source)
        if "overwrite" in message or "declare" in message:
            whole = replace(place, column=1, length=len(place.text))
            problems.add("PP502", "something is said twice", place=whole, help="keep one of the two")
        else:
            _unreadable("TOML", message, text, source, place.line, place.column, problems)
        return None
    return Document(data=data, source=source, text=text)


def _overrides(text: str, source: str, problems: Problems) -> Document | None:
    return overridden(hydra.read(text, source, problems))


def overridden(found: hydra.Overrides) -> Document:
    """What overrides say together."""
    return Document(
        data=found.data,
        source=found.source,
        text=found.text,
        spans={(): next(iter(found.spans.values()), (1, 1, 1)), **found.spans},
        again=frozenset(found.again),
        open=found.open,
        added=frozenset(found.added),
    )


def _arguments(text: str, source: str, problems: Problems) -> Document | None:
    """``--name value ...`` as a mapping of names (without dashes, with underscores) to True, a text, or a list of texts.

    Lines may end in a backslash; ``NAME=(`` and ``)`` of a shell's array, quotes and comments are passed over. Of what is given twice the
    last counts, as programs that parse arguments take it.
    """
    data: dict[str, Any] = {}
    spans: dict[KeyPath, tuple[int, int, int]] = {}
    name, again = "", set[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        body = re.sub(r"(^|\s)#.*$", lambda m: " " * len(m[0]), line)
        for token in re.finditer(r'"[^"]*"|\'[^\']*\'|[^\s"\']+', body):
            shown = token[0].strip("\"'")
            if token[0] in ("\\", ")") or re.fullmatch(r"\w+\+?=\(", token[0]):
                continue
            if shown.startswith("--"):
                option, _, value = shown[2:].partition("=")
                name = option.replace("-", "_")
                if name in data:
                    again.add(name)
                spans[(name,)] = (number, token.start() + 1, len(token[0]))
                data[name] = value or True
            elif not name:
                place = Place(source=source, line=number, column=token.start() + 1, length=len(token[0]), text=line)
                problems.add(
                    "PP501", f"`{shown}` stands before the first `--name`", place=place, help="give the arguments alone: `--name value`"
                )
            else:
                before = data[name]
                if isinstance(before, list):
                    before.append(shown)
                else:
                    data[name] = shown if before is True else [before, shown]
    if not data and not problems.found:
        _unreadable("a command line", "it is empty", text, source, 1, 1, problems)
    return Document(data=data, source=source, text=text, spans=spans, again=frozenset(again), bare=True)
