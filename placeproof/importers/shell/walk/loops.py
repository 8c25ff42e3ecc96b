"""Loops: as often as the script decides, or until nothing more becomes open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from placeproof.importers.shell.conditions import UNCLEAR, YES, Status
from placeproof.importers.shell.source import Source
from placeproof.importers.shell.values import Open, State, Text, UnreadError, shown, together, widened
from placeproof.importers.shell.walk.branches import Branches
from placeproof.importers.shell.walk.frames import Frame, short

if TYPE_CHECKING:
    from tree_sitter import Node


class Loops(Branches):
    """Walks loops."""

    def _for(self, source: Source, node: Node) -> Status:
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        if variable is None or body is None or node.children[0].type != "for":
            raise UnreadError("this is not understood", source.place(node), source.name)
        name = source.of(variable)
        if any(child.type == "in" for child in node.children):
            start = next(source.range(child)[1] for child in node.children if child.type == "in")
            end = next(source.range(child)[0] for at, child in enumerate(node.children) if child.type == ";" or child == body)
            end = start + len(source.text[start:end].replace("\\\n", "  ").split("\n")[0])
            words = self._expanded(source, start, end)
        else:
            words = list(self._expander(source, node).every("@", source.range(node)[0]))
        if words and all(word.loose and shown(word.text) in ("$@", "$*") for word in words) and self.state.arguments is None:
            self.state.taken.setdefault("$@", source.place(node))
            return YES  # it is started without arguments
        if any(word.loose for word in words):
            value = Open(f"${name}", source.place(variable), f"it depends on `{short(source.of(node))}`, which the script does not decide")
            self.put(name, (value,), source, source.place(variable))
            return self._again(source, node, lambda: UNCLEAR, [body])
        return self._turns(source, node, [partial(self._set, name, word.text, source, variable) for word in words], body)

    def _set(self, name: str, text: Text, source: Source, node: Node) -> Status:
        self.put(name, text, source, source.place(node))
        return YES

    def _turns(self, source: Source, node: Node, turns: Iterable[Callable[[], Status]], body: Node) -> Status:
        """Walk a loop of which it is known how often its body is run."""
        frame = Frame("loop")
        self.frames.append(frame)
        for begin in turns:
            begin()
            self.run(source, body.children[1:-1])
            self._merge(list(frame.again), source, node)
            frame.again.clear()
            if self.state.dead:
                break
        self.frames.pop()
        self._merge([state for state, _ in frame.left], source, node)
        return UNCLEAR

    def _merge(self, states: Sequence[State], source: Source, node: Node) -> None:
        if states:
            self.state = together([*states, self.state], short(source.of(node)), source.place(node))

    def _while(self, source: Source, node: Node) -> Status:
        body = node.child_by_field_name("body")
        conditions = [c for at, c in enumerate(node.children) if node.field_name_for_child(at) == "condition"]
        if body is None or not conditions:
            raise UnreadError("this is not understood", source.place(node), source.name)
        until = node.children[0].type == "until"

        def holds() -> Status:
            self.tested += 1
            status = self.run(source, conditions)
            self.tested -= 1
            return ~status if until else status

        return self._looped(source, node, holds, [body], lambda: YES)

    def _counted(self, source: Source, node: Node) -> Status:
        """``for ((...))``."""
        body = node.child_by_field_name("body")
        text = source.text
        start = source.range(next(child for child in node.children if child.type == "(("))[1]
        end = source.range(next(child for child in node.children if child.type == "))"))[0]
        slots = text[start:end].split(";")
        if body is None or len(slots) != 3 or "$(" in text[start:end] or body.type != "do_group":
            raise UnreadError("this is not understood", source.place(node), source.name)
        places = [start, start + len(slots[0]) + 1, end - len(slots[2])]
        parts = [
            partial(self._calculated, source, at, at + len(slot)) if slot.strip() else lambda: YES
            for at, slot in zip(places, slots, strict=True)
        ]
        parts[0]()
        return self._looped(source, node, parts[1], [body], parts[2])

    def _looped(self, source: Source, node: Node, holds: Callable[[], Status], body: Sequence[Node], after: Callable[[], Status]) -> Status:
        """Walk a loop as long as its condition is decided, and then as one that is walked any number of times."""
        frame = Frame("loop")
        self.frames.append(frame)
        while True:
            kept, count = self.state.copy(), len(self.commands)
            status = holds()
            if self.state.dead or status.value is False:
                for part in status.outside:
                    self.state.taken.setdefault(part.name, part.span)
                break
            if status.value is None or status.assumed:
                self.state = kept
                del self.commands[count:]
                self._again(source, node, holds, body, after)
                break
            self.run(source, body[0].children[1:-1])
            self._merge(frame.again, source, node)
            frame.again.clear()
            if self.state.dead:
                break
            after()
        self.frames.pop()
        self._merge([state for state, _ in frame.left], source, node)
        return UNCLEAR

    def _again(
        self, source: Source, node: Node, holds: Callable[[], Status], body: Sequence[Node], after: Callable[[], Status] = lambda: YES
    ) -> Status:
        """Walk a loop of which it is open how often its body is run, until nothing more becomes open."""
        cause, span = short(source.of(node)), source.place(node)
        while True:
            before, count, frame = self.state.copy(), len(self.commands), Frame("loop")
            self.frames.append(frame)
            self.under.append(cause)
            holds()
            tested = self.state.copy()
            self.run(source, body[0].children[1:-1])
            self._merge(frame.again, source, node)
            if not self.state.dead:
                after()
            self.under.pop()
            self.frames.pop()
            ends = [state for state, _ in frame.left] + [tested]
            result = before
            for state in (*ends, self.state):
                result = widened(result, state, cause, span)
            self.state = result
            if result.values == before.values and result.functions == before.functions and result.arguments == before.arguments:
                return UNCLEAR
            del self.commands[count:]
