"""What a walk over a script knows: variables, commands that were met, what it is inside of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from placeproof.importers.shell.conditions import Status
from placeproof.importers.shell.source import Source
from placeproof.importers.shell.values import Span, State, Text, UnreadError, Value, Word

if TYPE_CHECKING:
    from tree_sitter import Node

#: How many functions, or files, call one another.
DEEPEST = 30


@dataclass(frozen=True, slots=True)
class Command:
    """A program that is run. ``under``: the conditions that it is run under, which the script does not decide; ``source``: the file."""

    words: tuple[Word, ...]
    span: Span
    source: str
    under: tuple[str, ...] = ()


@dataclass(slots=True)
class Frame:
    """What is being walked that can be left: a loop, a function or a file. ``left``: what is known where it is left."""

    kind: str
    left: list[tuple[State, Status]] = field(default_factory=list)
    again: list[State] = field(default_factory=list)


class Walk(ABC):
    """A script that is walked. ``known``: variables that are set before it begins, and, by their numbers, the arguments that it is
    started with; ``files``: gives a file that is sourced, or None; ``jobs``: it is run as a job of SLURM."""

    def __init__(self, known: Mapping[str, str], files: Callable[[Text], tuple[str, str] | None], *, jobs: bool = False) -> None:
        values: dict[str, Value] = {name: (text,) if text else () for name, text in known.items() if not name.isdigit()}
        arguments = tuple(Word((text,) if text else ()) for name, text in known.items() if name.isdigit()) or None
        given = {**values, "@": arguments}
        self.state = State(values=values, exported=set(values), jobs=jobs, arguments=arguments, given=given)
        self.files = files
        self.commands: list[Command] = []
        self.frames: list[Frame] = []
        self.under: list[str] = []
        self.reading: list[str] = []
        #: Files that it reads and that are not read here.
        self.unread: list[tuple[str, Span, str]] = []
        #: Where it ends before its last line.
        self.ended: Span | None = None
        self.steps = self.depth = self.tested = 0

    @abstractmethod
    def run(self, source: Source, nodes: Sequence[Node]) -> Status:
        """Walk statements in order."""

    @abstractmethod
    def statement(self, source: Source, node: Node) -> Status:
        """Walk one statement, and say whether it succeeds."""

    @abstractmethod
    def nested(self, source: Source, start: int) -> None:
        """Walk a command substitution, for the programs that it starts."""


def gapless(source: Source, node: Node) -> None:
    """Between the parts of a statement stand blanks alone."""
    end = None
    for child in node.children:
        start, stop = source.range(child)
        if end is not None and source.text[end:start].replace("\\\n", "").strip():
            raise UnreadError("this is not understood", source.span(end, start), source.name)
        end = stop


def short(text: str) -> str:
    """The beginning of a text, as a cause is called."""
    first, *rest = text.strip().split("\n")
    return f"{first[:57]}..." if len(first) > 60 else f"{first} ..." if rest else first
