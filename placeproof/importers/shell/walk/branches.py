"""Branches: which side a condition chooses; where it is open, both are walked, and what they do not agree on is open."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from placeproof.importers.shell.conditions import NO, UNCLEAR, YES, Status, either
from placeproof.importers.shell.source import Source
from placeproof.importers.shell.values import Open, Span, State, Text, UnreadError, plain, shown, together
from placeproof.importers.shell.walk.assignments import Assignments
from placeproof.importers.shell.walk.frames import Command, gapless, short
from placeproof.importers.shell.words.expander import Expander

if TYPE_CHECKING:
    from tree_sitter import Node

_PROGRAM = re.compile(r"\.(py|sh|slurm|sbatch)$|(^|/)(torchrun|srun|deepspeed|accelerate|ray|mpirun|megatron|swift|python3?)$")


class Branches(Assignments):
    """Walks branches."""

    def _chosen(
        self, source: Source, node: Node, cause: str, status: Status, yes: Callable[[], Status], no: Callable[[], Status] | None
    ) -> Status | None:
        """Walk the side that a condition chooses, or both. None where nothing was walked."""
        if status.value is None:
            return self._fork(source.place(node), cause, [yes, no])
        side, other = (yes, no) if status.value else (no, yes)
        if not status.assumed:
            return side() if side is not None else None
        kept, count = self.state.copy(), len(self.commands)
        frames = [(len(frame.left), len(frame.again)) for frame in self.frames]
        for part in status.outside:
            self.state.taken.setdefault(part.name, part.span)
        result = side() if side is not None else None
        idle = not self.state.replaced and not any(_starts(command) for command in self.commands[count:])
        if self.state.dead and idle and all((len(f.left), len(f.again)) == size for f, size in zip(self.frames, frames, strict=True)):
            self.state = kept  # the script ends there: it is to be started with what it asks for
            del self.commands[count:]
            return other() if other is not None else UNCLEAR
        return result

    def _fork(self, span: Span, cause: str, sides: Sequence[Callable[[], Status] | None]) -> Status:
        """Walk all sides, each from the same beginning; afterwards what they do not agree on is open."""
        before, ends, cause = self.state, list[State](), short(cause)
        self.under.append(cause)
        try:
            for side in sides:
                self.state = before.copy()
                if side is not None:
                    side()
                ends.append(self.state)
        finally:
            self.under.pop()
        self.state = together(ends, cause, span)
        return UNCLEAR

    def _if(self, source: Source, node: Node) -> Status:
        gapless(source, node)
        names = [node.field_name_for_child(at) for at in range(node.child_count)]
        then = next(at for at, child in enumerate(node.children) if child.type == "then")
        clauses = [child for child in node.children if child.type in ("elif_clause", "else_clause")]
        after = next((at for at, child in enumerate(node.children) if child in clauses), node.child_count - 1)
        body = node.children[then + 1 : after]
        conditions = [c for c, name in zip(node.children, names, strict=True) if name == "condition"]
        return self._branch(source, node, conditions, body, clauses)

    def _branch(self, source: Source, node: Node, conditions: Sequence[Node], body: Sequence[Node], clauses: Sequence[Node]) -> Status:
        self.tested += 1
        status = self.run(source, conditions)
        self.tested -= 1
        if self.state.dead:
            return status
        cause = " ".join(source.of(part) for part in conditions if part.type != ";")
        no = (lambda: self._otherwise(source, clauses)) if clauses else None
        return self._chosen(source, node, cause, status, lambda: self.run(source, body), no) or YES

    def _otherwise(self, source: Source, clauses: Sequence[Node]) -> Status:
        first, *rest = clauses
        if first.type == "else_clause":
            return self.run(source, first.children[1:])
        then = next(at for at, child in enumerate(first.children) if child.type == "then")
        return self._branch(source, first, first.children[1:then], first.children[then + 1 :], rest)

    def _case(self, source: Source, node: Node) -> Status:
        value = node.child_by_field_name("value")
        assert value is not None
        subject = self._expander(source, value).flat(self._whole(source, value))
        return self._items(source, node, subject, [child for child in node.children if child.type == "case_item"])

    def _items(self, source: Source, node: Node, subject: Text, items: Sequence[Node]) -> Status:
        if not items:
            return YES
        item = items[0]
        close = next(at for at, child in enumerate(item.children) if child.type == ")")
        body = item.children[close + 1 :]
        if any(child.type in (";&", ";;&") for child in body):
            raise UnreadError("this is not understood", source.place(item), source.name)
        status = NO
        for pattern in (child for child in item.children[:close] if child.type not in ("|", "(")):
            matcher = self._expander(source, pattern).matcher(self._whole(source, pattern), source.range(pattern)[0])
            known = plain(subject)
            one = UNCLEAR if matcher is None or known is None else YES if matcher.fullmatch(known) else NO
            status = either(status, YES if matcher is not None and matcher.pattern == ".*" else one)
        cause = f"case {shown(subject)} in {source.of(item).split(')')[0].strip()})"
        walk = self._chosen(
            source, item, cause, status, lambda: self.run(source, body), lambda: self._items(source, node, subject, items[1:])
        )
        return walk or YES

    def _calculated(self, source: Source, start: int, end: int) -> Status:
        """``((...))``: whether it is not 0."""
        number = Expander(source, self.state, start, end, self.nested).evaluated(start)
        if not isinstance(number, Open):
            return Status(number != 0)
        text = source.text[start:end].strip()
        match = re.fullmatch(r"(\$#)\s*([<>=!]=?)\s*(\d+)", text)
        if number.name == "$#" and match is not None:
            count = int(match[3])
            holds = {"<": count > 0, "<=": True, ">": False, ">=": count <= 0, "==": count == 0, "!=": count != 0}.get(match[2])
            return Status(holds, True, (number,)) if holds is not None else UNCLEAR
        return UNCLEAR


def _starts(command: Command) -> bool:
    """Whether a command may start a training."""
    return any(_PROGRAM.search(shown(word.text)) for word in command.words)
