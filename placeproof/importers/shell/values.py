"""What a shell's variables hold: text of which parts may be open, lists of words, and how what branches leave is put together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placeproof.importers.shell.source import Function

#: A line, a column and a length.
Span = tuple[int, int, int]
#: Why something is open that is said when a script is started: a variable, and an argument.
UNSET = "the script does not set it"
STARTED = "it is handed to the script when it is started"
#: So many parts may the sides of something open have together.
_MOST = 2_000


class UnreadError(Exception):
    """A construct that is not understood, or that is a mistake: nothing that follows it is known. ``span``: where."""

    def __init__(self, message: str, span: Span, source: str = "") -> None:
        super().__init__(message)
        self.message, self.span, self.source = message, span, source


@dataclass(frozen=True, slots=True)
class Open:
    """Text that a script does not say. ``name``: as it is written there; ``why``: what it depends on.

    ``unset``: it comes from outside, and is taken as not set where the script asks whether it is. ``sides``: what it is on each side
    of a branch, as words; empty where that is not known.
    """

    name: str
    span: Span
    why: str
    unset: bool = False
    #: What holds it may not be set at all.
    perhaps: bool = False
    sides: tuple[tuple[Text, ...], ...] = ()
    #: What is open in it, as it is written, where it is computed of several things.
    of: str = ""


Text = tuple[str | Open, ...]


@dataclass(frozen=True, slots=True)
class Word:
    """A word. ``loose``: it may be none, or several."""

    text: Text
    loose: bool = False


@dataclass(frozen=True, slots=True)
class Array:
    """A list of words."""

    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Texts by their keys."""

    rows: Mapping[str, Text]


#: What a variable holds; None where it is known to be unset.
Value = Text | Array | Table | None


def joined(parts: Iterable[str | Open]) -> Text:
    """Parts of a text as one, neighbouring strings put together."""
    result: list[str | Open] = []
    for part in parts:
        if isinstance(part, str) and result and isinstance(result[-1], str):
            result[-1] += part
        elif part != "":
            result.append(part)
    return tuple(result)


def plain(text: Text) -> str | None:
    """A text that is known as a whole, else None."""
    if len(text) > 1:
        return None
    return "" if not text else text[0] if isinstance(text[0], str) else None


def shown(text: Text) -> str:
    """A text as the script has it, with what is open by its name."""
    return "".join(part if isinstance(part, str) else part.name for part in text)


def opens(text: Text) -> tuple[Open, ...]:
    """What is open in a text."""
    return tuple(part for part in text if isinstance(part, Open))


def emptiness(text: Text) -> tuple[bool | None, bool]:
    """Whether a text is empty, None where that is open; and whether that takes what comes from outside as not set."""
    if any(isinstance(part, str) for part in text):
        return False, False
    if not text:
        return True, False
    return (True, True) if all(part.unset for part in opens(text)) else (None, False)


@dataclass(slots=True)
class State:
    """What a shell knows at one point of a script. ``arguments``: its positional ones, None for those of the script itself.

    ``values``: variables; a name that is missing comes from outside. ``frames``: what local variables hide, function by function.
    ``foreign``: a file that was read there and not here. ``taken``: what is taken as not set, with where that was asked first.
    """

    values: dict[str, Value] = field(default_factory=dict)
    functions: dict[str, Function | None] = field(default_factory=dict)
    arguments: tuple[Word, ...] | None = None
    frames: list[dict[str, tuple[bool, Value]]] = field(default_factory=list)
    exported: set[str] = field(default_factory=set)
    readonly: set[str] = field(default_factory=set)
    #: Variables of which what is assigned is a number that is worked out.
    integers: set[str] = field(default_factory=set)
    tables: set[str] = field(default_factory=set)
    flags: set[str] = field(default_factory=set)
    taken: dict[str, Span] = field(default_factory=dict)
    foreign: Open | None = None
    #: Variables of the environment that are said, and what the script asks for: of all states of one walk the same.
    given: Mapping[str, object] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    #: It is run as a job, for which SLURM sets variables.
    jobs: bool = False
    dead: bool = False
    #: It ends because another program takes its place.
    replaced: bool = False

    def copy(self) -> State:
        """The same, to be changed on its own."""
        return replace(
            self,
            values=dict(self.values),
            functions=dict(self.functions),
            frames=[dict(frame) for frame in self.frames],
            exported=set(self.exported),
            readonly=set(self.readonly),
            integers=set(self.integers),
            tables=set(self.tables),
            flags=set(self.flags),
            taken=dict(self.taken),
        )

    def held(self, name: str, span: Span) -> Value:
        """What a variable holds, or that it comes from outside."""
        if name in self.values:
            if name in self.given and self.values[name] is self.given[name]:
                self.used.add(name)
            return self.values[name]
        return (self.outside(name, span),)

    def positional(self) -> tuple[Word, ...] | None:
        """The positional arguments, None for those of the script itself where they are not said."""
        if self.arguments is not None and self.arguments is self.given.get("@"):
            self.used.add("@")
        return self.arguments

    def outside(self, name: str, span: Span) -> Open:
        """A variable that the script does not set."""
        self.asked.add(name)
        if self.foreign is not None:
            return Open(f"${name}", span, self.foreign.why)
        return Open(f"${name}", span, UNSET, unset=not _SET.fullmatch(name) and not (self.jobs and name.startswith("SLURM_")))


#: Variables that are set in every shell, or where jobs are run: no default of a script holds for them.
_SET = re.compile(
    r"HOME|USER|LOGNAME|PATH|SHELL|HOSTNAME|HOSTTYPE|OSTYPE|MACHTYPE|LANG|TERM|BASH\w*|SHLVL|PS4|OPTERR|OPTIND|PWD|OLDPWD|IFS|_"
    r"|UID|EUID|PPID|GROUPS|FUNCNAME|LINENO|RANDOM|SRANDOM|SECONDS|EPOCH\w+|PIPESTATUS|DIRSTACK|COLUMNS|LINES|SHELLOPTS"
)


def together(states: Sequence[State], cause: str, span: Span) -> State:
    """What is known after branches of which it is open which was taken: what they do not agree on is open. ``cause``: what decides."""
    alive = [state for state in states if not state.dead]
    if not alive:
        return states[0]
    if len(alive) == 1:
        return alive[0]
    first = alive[0].copy()
    depth = {len(state.frames) for state in alive}
    if len(depth) > 1 or any([set(f) for f in state.frames] != [set(f) for f in first.frames] for state in alive):
        raise UnreadError("a variable is local on one side of this alone", span)
    if any((state.flags, state.readonly, state.integers) != (first.flags, first.readonly, first.integers) for state in alive):
        raise UnreadError("options of the shell, or what cannot be assigned, depend on this", span)
    for names in ("values", "functions"):
        for name in dict.fromkeys(name for state in alive for name in getattr(state, names)):
            if names == "values":
                first.values[name] = _value(name, alive, cause, span)
            elif any(state.functions.get(name) != first.functions.get(name) for state in alive):
                first.functions[name] = None
    if any(state.arguments != first.arguments for state in alive):
        first.arguments = (Word((Open("$@", span, _depends(cause)),), loose=True),)
    for state in alive[1:]:
        first.taken |= state.taken
        first.exported &= state.exported
        first.tables |= state.tables
        first.foreign = first.foreign or state.foreign
    return first


def anything(value: Open, *, listed: bool) -> Value:
    """What a variable holds of which nothing is known. ``listed``: it is a list."""
    return Array((Word((value,), loose=True),)) if listed else (value,)


def widened(before: State, after: State, cause: str, span: Span) -> State:
    """What is known whether a loop's body was walked or not, however often: what it changes is open altogether."""
    if after.dead:
        return before
    result = together([before, after], cause, span)
    for name, value in result.values.items():
        if name not in before.values or before.values[name] != value:
            listed = isinstance(value, Array | Table) or isinstance(after.values.get(name), Array | Table)
            result.values[name] = anything(Open(f"${name}", span, _depends(cause), perhaps=True), listed=listed)
    return result


def _depends(cause: str) -> str:
    return f"it depends on `{cause}`, which the script does not decide"


def _value(name: str, states: Sequence[State], cause: str, span: Span) -> Value:
    values = [state.held(name, span) for state in states]
    first = values[0]
    if all(value == first for value in values):
        return first if name in states[0].values else (states[0].outside(name, span),)
    why = _depends(cause)
    if all(isinstance(value, Array | None) for value in values):
        lists = [list(value.words) if isinstance(value, Array) else [] for value in values]
        common = _common(lists, lambda _: True)
        sides = tuple(tuple(word.text for word in words[common:]) for words in lists)
        return Array((*lists[0][:common], Word((_open(name, span, why, sides),), loose=True)))
    if any(isinstance(value, Array | Table) for value in values):
        return anything(Open(f"${name}", span, why, perhaps=True), listed=True)
    tokens = [_tokens(value) for value in values if not isinstance(value, Array | Table)]
    common = _common(tokens, lambda at: all(_boundary(side, at) for side in tokens))
    begin = tokens[0][:common]
    gap = [" "] if begin and not str(begin[-1]).isspace() else []
    texts = tuple((joined(side[common:]),) for side in tokens)
    return joined([*begin, *gap, _open(name, span, why, texts)])


def _open(name: str, span: Span, why: str, sides: tuple[tuple[Text, ...], ...]) -> Open:
    size = sum(_size(text) for side in sides for text in side)
    return Open(f"${name}", span, why, perhaps=True, sides=sides if size < _MOST else ())


def _size(text: Text) -> int:
    return sum(1 + sum(_size(t) for side in part.sides for t in side) if isinstance(part, Open) else 1 for part in text)


def _tokens(value: Text | None) -> list[str | Open]:
    parts: list[str | Open] = []
    for part in value or ():
        parts += re.findall(r"\s+|\S+", part) if isinstance(part, str) else [part]
    return parts


def _boundary(side: Sequence[str | Open], at: int) -> bool:
    """Whether a word ends there."""
    around = (*side[max(at - 1, 0) : at], *side[at : at + 1])
    return at in (0, len(side)) or any(isinstance(part, str) and part.isspace() for part in around)


def _common(sides: Sequence[Sequence[object]], ends: Callable[[int], bool]) -> int:
    at = 0
    while all(at < len(side) and side[at] == sides[0][at] for side in sides):
        at += 1
    while at and not ends(at):
        at -= 1
    return at
