"""The text of a script with its syntax tree, and where each part of it stands."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from placeproof.importers.shell.values import Open, Span, Text, UnreadError

if TYPE_CHECKING:
    from tree_sitter import Node

#: What is open in a text of commands stands there as a character from here on, which no script has.
FIRST_OPEN, LAST_OPEN = 0xE000, 0xF8FF
_RESERVED = (b"then", b"else", b"elif", b"fi", b"do", b"done", b"esac", b"in", b"{", b"}", b"!", b"case", b"if", b"for", b"while", b"until")
#: What stands in one line, and what stands within none of them.
_LINES = ("command", "file_redirect", "declaration_command", "unset_command", "variable_assignments", "test_command", "herestring_redirect")
_STATEMENTS = ("redirected_statement", "list", "command", "pipeline")
#: A part of a variable with arithmetic in it, which the grammar does not know. Words are read of the text itself.
_PART = re.compile(rb"\$\{\w+:[ \w$+*/-]*\}")
_SYNTAX = re.compile(r"[;&|<>()`$\"'\\#\n]")
_OPENING = re.compile(r"`|[$<>]\(")
_NESTED = ("command_substitution", "process_substitution")


class Source:
    """A text of commands. ``span``: where all of it stands, if it is a word of another text.

    Raises UnreadError where it cannot be parsed.
    """

    def __init__(self, text: str, name: str, span: Span | None = None, opens: tuple[Open, ...] = (), *, parse: bool = True) -> None:
        text = re.sub(r"\\\n\s*\Z", "\n", text)  # a backslash that ends the file joins nothing
        self.text, self.name, self.whole, self.opens = text, name, span, opens
        self.starts = list(accumulate((len(line) for line in text.splitlines(keepends=True)), initial=0))
        self.nested: dict[int, int] = {}
        self.substitutions: dict[int, Node] = {}
        if not parse:
            return
        data = _PART.sub(lambda found: b"${" + b"A" * (len(found[0]) - 3) + b"}", text.encode())
        self.chars: list[int] | None = None
        if len(data) != len(text):
            self.chars = [at for at, char in enumerate(text) for _ in range(len(char.encode()))] + [len(text)]
        self.root = _parsed(data)
        while ends := _taken_on(self.root, data):
            for at in ends:
                data = data[:at] + b";" + data[at + 1 :]
            self.root = _parsed(data)
        for node in _all(self.root):
            if node.type == "ERROR" or node.is_missing or _misread(node, data):
                raise UnreadError(self._fault(node), self.span(*self.range(node)), name)
            if node.type in _NESTED:
                start, end = self.range(node)
                begin = _OPENING.search(text, start, end)  # blanks before it are counted in
                start = begin.start() if begin is not None else start
                self.nested[start], self.substitutions[start] = end, node

    def _fault(self, node: Node) -> str:
        lines = self.text.splitlines()
        line = lines[node.start_point.row] if node.start_point.row < len(lines) else ""
        if re.search(r"=<[A-Za-z/][^<>]*>", line):
            return "`<...>` is to be filled in: a shell takes it as files for input and output"
        return "this is not understood as commands of a shell"

    def range(self, node: Node) -> tuple[int, int]:
        """Where a node begins and ends, in characters."""
        if self.chars is None:
            return node.start_byte, node.end_byte
        return self.chars[node.start_byte], self.chars[node.end_byte]

    def of(self, node: Node) -> str:
        """The text of a node."""
        start, end = self.range(node)
        return self.text[start:end]

    def span(self, start: int, end: int) -> Span:
        """The line, the column and the length of a range."""
        if self.whole is not None:
            return self.whole
        line = max(bisect_right(self.starts, start), 1)
        first = self.text[start:end].split("\n")[0]
        return line, start - self.starts[line - 1] + 1, max(1, len(first))

    def place(self, node: Node) -> Span:
        """Where a node stands."""
        return self.span(*self.range(node))


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a script."""

    source: Source
    body: Node


def commands(text: Text, name: str, span: Span) -> Source:
    """A text that is run as commands. What is open in it is a character."""
    found: list[Open] = []
    parts = []
    for part in text:
        if isinstance(part, Open):
            if any(_SYNTAX.search(piece) for side in part.sides for text in side for piece in text if isinstance(piece, str)):
                raise UnreadError(f"which commands are run depends on `{part.name}`, which is not known", span, name)
            found.append(part)
            parts.append(chr(FIRST_OPEN + len(found) - 1))
        else:
            parts.append(part)
    if len(found) > LAST_OPEN - FIRST_OPEN:
        raise UnreadError("too much of these commands is open", span, name)
    return Source("".join(parts), name, span, tuple(found))


def _parsed(data: bytes) -> Node:
    from tree_sitter import Language, Parser
    from tree_sitter_bash import language

    return Parser(Language(language())).parse(data).root_node


def _taken_on(root: Node, data: bytes) -> list[int]:
    """Ends of lines of several assignments, which the grammar takes as those of the command in the next line."""
    ends = []
    for node in _all(root):
        if node.type == "command" and node.children[0].type == "variable_assignment":
            for before, after in pairwise(node.children):
                gap = re.search(rb"(?<!\\)\n", data[before.end_byte : after.start_byte])
                if gap is not None:
                    ends.append(before.end_byte + gap.start())
    return ends


def _misread(node: Node, data: bytes) -> bool:
    """Whether the grammar takes several lines as one command, or a word of the language as a command: then it is wrong."""
    if node.type == "command_name":
        return data[node.start_byte : node.end_byte] in _RESERVED
    if node.type not in _LINES:
        return False
    gaps = [data[before.end_byte : after.start_byte] for before, after in pairwise(node.children)]
    inner = node.type == "test_command" and any(child.type in _STATEMENTS for child in node.children)
    return inner or any(re.search(rb"(?<!\\)(\\\\)*\n", gap) for gap in gaps if node.children[0].type != "[[")


def _all(root: Node) -> Iterator[Node]:
    rest = [root]
    while rest:
        node = rest.pop()
        yield node
        rest += reversed(node.children)
