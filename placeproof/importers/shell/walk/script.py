"""What commands a script runs, and with which words: a walk over its syntax tree, in the order of a shell, that runs nothing.

A branch that the script does not decide is walked on both sides; what they do not agree on is open. A construct that is not understood
raises UnreadError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from placeproof.importers.shell.conditions import NO, UNCLEAR, YES, Brackets, Status, both, either, test
from placeproof.importers.shell.source import Source
from placeproof.importers.shell.values import UnreadError
from placeproof.importers.shell.walk.frames import Frame, gapless
from placeproof.importers.shell.walk.loops import Loops
from placeproof.importers.shell.words.expander import Expander

if TYPE_CHECKING:
    from tree_sitter import Node

#: So many statements are walked, a loop's body once for each turn.
MOST = 20_000
_DEEPEST = 40
_NOTHING = ("comment", ";", "&", "\n", ";;")
_Walk = Callable[[Source, "Node"], Status]


class Script(Loops):
    """A script that is walked, but for its simple commands."""

    def run(self, source: Source, nodes: Sequence[Node]) -> Status:
        """Walk statements in order."""
        status, end = YES, None
        for at, node in enumerate(nodes):
            start, stop = source.range(node)
            if end is not None and source.text[end:start].replace("\\\n", "").strip():
                raise UnreadError("this is not understood", source.span(end, start), source.name)
            separated = end is None or "\n" in source.text[end:start].replace("\\\n", "")
            end = stop
            if node.type in _NOTHING or not node.is_named:
                if node.type not in _NOTHING:
                    raise UnreadError(f"`{node.type}` is not understood here", source.place(node), source.name)
                continue
            before = nodes[at - 1].type if at else ""
            if not (separated or before in (";", "&", ";;", "comment")):
                raise UnreadError("this is not understood", source.place(node), source.name)
            if self.state.dead:
                return NO
            after = nodes[at + 1].type if at + 1 < len(nodes) else ""
            status = self.apart(source, node) if after == "&" else self.statement(source, node)
            if "e" in self.state.flags and not self.tested and status.value is False and _fails(node):
                self.state.dead = True
        return status

    def statement(self, source: Source, node: Node) -> Status:
        """Walk one statement, and say whether it succeeds."""
        self.steps += 1
        if self.steps > MOST:
            raise UnreadError(f"more than {MOST:,} commands are run", source.place(node), source.name)
        walk: _Walk | None = getattr(self, _STATEMENTS.get(node.type, ""), None)
        if walk is None:
            raise UnreadError("this is not understood", source.place(node), source.name)
        self.depth += 1
        if self.depth > _DEEPEST * 4:
            raise UnreadError("this is nested too deeply", source.place(node), source.name)
        try:
            return walk(source, node)
        finally:
            self.depth -= 1

    def apart(self, source: Source, node: Node, *, nodes: Sequence[Node] | None = None, inner: Source | None = None) -> Status:
        """Walk a statement in a shell of its own: what it assigns is lost."""
        kept, frames = self.state, self.frames
        self.state, self.frames = kept.copy(), [Frame("shell")]
        try:
            status = self.statement(source, node) if nodes is None else self.run(inner or source, nodes)
            if self.state.dead:
                if "e" in kept.flags:
                    raise UnreadError("whether this ends the script is not known", source.place(node), source.name)
                status = UNCLEAR
            kept.taken |= self.state.taken
        finally:
            self.state, self.frames = kept, frames
        return status

    def nested(self, source: Source, start: int) -> None:
        """Walk a command substitution, for the programs that it starts."""
        node = source.substitutions[start]
        self.apart(source, node, nodes=[c for c in node.children if c.type not in ("$(", "`", ")", "<(", ">(")])

    def _program(self, source: Source, node: Node) -> Status:
        return self.run(source, node.children)

    def _braced(self, source: Source, node: Node) -> Status:
        if node.children[0].type == "((":
            start, end = source.range(node)
            return self._calculated(source, start + 2, end - 2)
        return self.run(source, node.children[1:-1])

    def _subshell(self, source: Source, node: Node) -> Status:
        return self.apart(source, node, nodes=node.children[1:-1])

    def _pipeline(self, source: Source, node: Node) -> Status:
        parts = [child for child in node.children if child.type not in ("|", "|&", "comment")]
        gapless(source, node)
        last = [self.apart(source, part) for part in parts][-1]
        if parts[0].type == "negated_command":  # it is the whole that is negated
            return UNCLEAR
        return last if "p" not in self.state.flags else UNCLEAR

    def _list(self, source: Source, node: Node) -> Status:
        gapless(source, node)
        left, sign, right = (child for child in node.children if child.type != "comment")
        self.tested += 1
        status = self.statement(source, left)
        self.tested -= 1
        if self.state.dead:
            return status
        if sign.type not in ("&&", "||"):
            raise UnreadError("this is not understood", source.place(sign), source.name)
        cause = f"{source.of(left).strip()} {sign.type}"
        other = self._chosen(source, left, cause, status if sign.type == "&&" else ~status, lambda: self.statement(source, right), None)
        if other is None:
            return status
        return both(status, other) if sign.type == "&&" else either(status, other)

    def _negated(self, source: Source, node: Node) -> Status:
        gapless(source, node)
        self.tested += 1
        status = self.statement(source, next(child for child in node.children if child.type not in ("!", "comment")))
        self.tested -= 1
        return ~status

    def _test(self, source: Source, node: Node) -> Status:
        start, end = source.range(node)
        text = source.text
        if text.startswith("((", start):
            return self._calculated(source, start + 2, end - 2)
        if text.startswith("[[", start) and text.endswith("]]", start, end):
            return Brackets(Expander(source, self.state, start + 2, end - 2, self.nested)).status()
        if text[start] == "[" and text[end - 1] == "]" and text[start + 1 : start + 2].isspace():
            expander = Expander(source, self.state, start + 1, end - 1, self.nested)
            return test(expander.words(), expander)
        raise UnreadError("this is not understood", source.place(node), source.name)


def _fails(node: Node) -> bool:
    """Whether a script with `set -e` ends where this fails."""
    if node.type == "redirected_statement":
        return _fails(node.children[0])
    plain_ = node.type in ("command", "test_command", "subshell", "pipeline")
    return plain_ or (node.type == "compound_statement" and node.children[0].type == "((")


#: Kinds of statements, and what walks them.
_STATEMENTS = {
    "program": "_program", "compound_statement": "_braced", "subshell": "_subshell", "pipeline": "_pipeline", "list": "_list",
    "negated_command": "_negated", "if_statement": "_if", "case_statement": "_case", "for_statement": "_for", "while_statement": "_while",
    "c_style_for_statement": "_counted", "variable_assignment": "_assignments", "variable_assignments": "_assignments",
    "test_command": "_test", "command": "command", "declaration_command": "command", "unset_command": "command",
    "redirected_statement": "redirected", "function_definition": "function",
}  # fmt: skip
