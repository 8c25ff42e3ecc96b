"""What commands a script runs, and with which words: a walk over its syntax tree, in the order of a shell, that runs nothing.

A branch that the script does not decide is walked on both sides; what they do not agree on is open. A construct that is not understood
raises UnreadError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from placeproof.importers.shell.conditions import NO, UNCLEAR, YES, Brackets, Status, both, either, test
from placeproof.importers.shell.source import Source
from placeproof.importers.shell.values import (
    Array,
    Open,
    Span,
    State,
    Table,
    Text,
    UnreadError,
    Value,
    Word,
    joined,
    plain,
    shown,
    together,
    widened,
)  # fmt: skip
from placeproof.importers.shell.words import Expander, Piece

if TYPE_CHECKING:
    from tree_sitter import Node

#: So many statements are walked, a loop's body once for each turn.
MOST = 20_000
_DEEPEST = 40
_UNTOUCHED = re.compile(r"POSIXLY_CORRECT|BASH_COMPAT|BASHOPTS|SHELLOPTS|UID|EUID|PPID|BASH_VERSINFO")
_PROGRAM = re.compile(r"\.(py|sh|slurm|sbatch)$|(^|/)(torchrun|srun|deepspeed|accelerate|ray|mpirun|megatron|swift|python3?)$")
_NOTHING = ("comment", ";", "&", "\n", ";;")


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


_Walk = Callable[[Source, "Node"], Status]


class Script:
    """A script that is walked. ``known``: variables that are set before it begins; ``files``: gives a file that is sourced, or None;
    ``jobs``: it is run as a job of SLURM."""

    def __init__(self, known: dict[str, str], files: Callable[[Text], tuple[str, str] | None], *, jobs: bool = False) -> None:
        self.state = State(values={name: (text,) for name, text in known.items()}, exported=set(known), jobs=jobs)
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

    # Statements.

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
        _gapless(source, node)
        last = [self.apart(source, part) for part in parts][-1]
        if parts[0].type == "negated_command":  # it is the whole that is negated
            return UNCLEAR
        return last if "p" not in self.state.flags else UNCLEAR

    def _list(self, source: Source, node: Node) -> Status:
        _gapless(source, node)
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
        _gapless(source, node)
        self.tested += 1
        status = self.statement(source, next(child for child in node.children if child.type not in ("!", "comment")))
        self.tested -= 1
        return ~status

    # Branches.

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
        before, ends, cause = self.state, list[State](), _short(cause)
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
        _gapless(source, node)
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

    # Loops.

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
            value = Open(f"${name}", source.place(variable), f"it depends on `{_short(source.of(node))}`, which the script does not decide")
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
            self.state = together([*states, self.state], _short(source.of(node)), source.place(node))

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
        cause, span = _short(source.of(node)), source.place(node)
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

    # Assignments.

    def _assignments(self, source: Source, node: Node) -> Status:
        start, end = source.range(node)
        while source.text[start:end].endswith("\n") and not source.text[start:end].endswith("\\\n"):
            end -= 1
        expander = Expander(source, self.state, start, end, self.nested)
        while expander.blank():
            if not self.assign(expander):
                raise UnreadError("this is not understood", source.span(expander.at, end), source.name)
        return YES if not re.search(r"\$\(|`", source.text[start:end]) else UNCLEAR

    def assign(self, expander: Expander, put: Callable[[str, Value, Span], None] | None = None) -> bool:
        """One assignment, if that is what comes next."""
        source, begin = expander.source, expander.at
        match = re.compile(r"([A-Za-z_]\w*)(\[)?", re.ASCII).match(expander.text, begin, expander.end)
        if match is None:
            return False
        index = None
        if match[2]:
            close = expander.text.find("]", match.end(), expander.end)
            index = expander.text[match.end() : close] if close >= 0 else None
            if index is None or "[" in index or not re.match(r"\+?=", expander.text[close + 1 : expander.end]):
                return False
            expander.at = close + 1
        else:
            expander.at = match.end()
        sign = re.compile(r"\+?=").match(expander.text, expander.at, expander.end)
        if sign is None:
            expander.at = begin
            return False
        expander.at = sign.end()
        span = source.span(begin, expander.at)
        if expander.text[expander.at : expander.at + 1] == "(" and expander.at < expander.end:
            if index is not None:
                expander.refuse("a list is no field of a list", begin)
            value: Value = self._array(expander, match[1], begin)
        else:
            value = expander.value()
        self._store(match[1], index, value, sign[0] == "+=", expander, begin, put or (lambda n, v, s: self.put(n, v, source, s)), span)
        return True

    def _array(self, expander: Expander, name: str, begin: int) -> Value:
        """A list in parentheses."""
        close = self._closing(expander)
        inner = Expander(expander.source, self.state, expander.at + 1, close, self.nested)
        rows: dict[str, Text] = {}
        words: list[Word] = []
        keyed = re.compile(r"\[([^\]]*)\]=")
        while inner.blank(lines=True):
            if (key := keyed.match(inner.text, inner.at, close)) is not None:
                inner.at = key.end()
                index = key[1]
                text = index[1:-1] if re.fullmatch(r"'[^']*'", index) else plain(inner.within(index))
                if text is None or name not in self.state.tables:
                    inner.refuse("keys are read in tables alone, `declare -A`", begin)
                rows[text] = inner.value()
            else:
                words += inner.word()
        expander.at = close + 1
        if expander.at < expander.end and not re.match(r"\s|[;&|)\\]", expander.text[expander.at]):
            expander.refuse("something stands behind a list", begin)
        if name in self.state.tables:
            if words:
                expander.refuse("a table has keys", begin)
            return Table(rows)
        return Array(tuple(words))

    def _closing(self, expander: Expander) -> int:
        """Where the parenthesis is closed that is opened here."""
        copy = Expander(expander.source, self.state.copy(), expander.at + 1, expander.end)
        keyed = re.compile(r"\[([^\]]*)\]=")
        while copy.blank(lines=True) and copy.text[copy.at] != ")":
            if (key := keyed.match(copy.text, copy.at, copy.end)) is not None:
                copy.at = key.end()
                copy.value()
            else:
                copy.word()
        if copy.at >= copy.end:
            expander.refuse("a parenthesis is not closed", expander.at)
        return copy.at

    def _store(
        self, name: str, index: str | None, value: Value, added: bool, expander: Expander, begin: int,
        put: Callable[[str, Value, Span], None], span: Span,
    ) -> None:  # fmt: skip
        before = self.state.held(name, span)
        known = name in self.state.values
        if index is not None:
            put(name, self._field(name, index, value, added, expander, begin), span)
        elif not added:
            if isinstance(before, Array) and isinstance(value, tuple):  # the first of a list alone is assigned
                first = Array((Word(value), *before.words[1:]))
                loose = bool(before.words) and before.words[0].loose
                put(name, (Open(f"${name}", span, "a list is assigned to"),) if loose else first, span)
            elif isinstance(before, Table) and isinstance(value, tuple):
                expander.refuse("a table is assigned to", begin)
            else:
                put(name, value, span)
        elif isinstance(value, Table) or isinstance(before, Table):
            if not isinstance(value, Table) or not isinstance(before, Table | None):
                expander.refuse("a table is added to", begin)
            put(name, Table({**(before.rows if before is not None else {}), **value.rows}), span)
        elif isinstance(value, Array):
            first_words = before.words if isinstance(before, Array) else () if before is None else (Word(before, loose=not known),)
            put(name, Array((*first_words, *value.words)), span)
        elif isinstance(before, Array):
            if not before.words or before.words[0].loose:
                expander.refuse("the first of a list is added to, which is not known", begin)
            put(name, Array((Word(joined([*before.words[0].text, *(value or ())])), *before.words[1:])), span)
        elif name in self.state.integers:
            put(name, joined([*(before or ("0",)), "+(", *(value or ("0",)), ")"]), span)
        else:
            put(name, joined([*(before or ()), *(value or ())]), span)

    def _field(self, name: str, index: str, value: Value, added: bool, expander: Expander, begin: int) -> Value:
        """A list or a table of which one text is assigned."""
        assert isinstance(value, tuple)
        before = self.state.values.get(name)
        if name in self.state.tables:
            key = index[1:-1] if re.fullmatch(r"'[^']*'", index) else plain(expander.within(index))
            if key is None or not isinstance(before, Table | None):
                expander.refuse("the key of this table is open", begin)
            rows = dict(before.rows) if before is not None else {}
            rows[key] = joined([*rows.get(key, ()), *value]) if added else value
            return Table(rows)
        number = expander.number(index, begin)
        words = list(before.words) if isinstance(before, Array) else []
        if isinstance(before, tuple) or (before is None and name not in self.state.values):
            return self._fresh(name, number, value, added, before, expander, begin)
        if isinstance(number, Open) or any(word.loose for word in words) or not 0 <= number <= len(words):
            expander.refuse("which one of this list is assigned is not known, or it has gaps", begin)
        old = words[number].text if number < len(words) else ()
        words[number : number + 1] = [Word(joined([*old, *value]) if added else value)]
        return Array(tuple(words))

    def _fresh(self, name: str, number: int | Open, value: Text, added: bool, before: Value, expander: Expander, begin: int) -> Value:
        """A list that begins with one text that is assigned."""
        if number != 0 or before is not None or added:
            expander.refuse("which one of this list is assigned is not known, or it has gaps", begin)
        self.state.taken.setdefault(f"${name}", expander.source.span(begin, begin + 1))
        return Array((Word(value),))

    def put(self, name: str, value: Value, source: Source, span: Span) -> None:
        """Set a variable."""
        if name in self.state.readonly or _UNTOUCHED.fullmatch(name):
            raise UnreadError(f"`{name}` cannot be assigned", span, source.name)
        self.state.values[name] = self._worked_out(value, source, span) if name in self.state.integers else value
        if "a" in self.state.flags:
            self.state.exported.add(name)

    def _worked_out(self, value: Value, source: Source, span: Span) -> Value:
        """What a variable of numbers comes to hold."""
        if isinstance(value, Array | Table | None):
            raise UnreadError("a list of numbers is not understood", span, source.name)
        inner = Source("", source.name, span, parse=False)
        number = Expander(inner, self.state, 0, 0).number_of(value, 0)
        return (number if isinstance(number, Open) else str(number),)

    # Expansions.

    def _expander(self, source: Source, node: Node) -> Expander:
        return Expander(source, self.state, *source.range(node), self.nested)

    def _expanded(self, source: Source, start: int, end: int) -> list[Word]:
        return Expander(source, self.state, start, end, self.nested).words()

    def _whole(self, source: Source, node: Node) -> list[Piece]:
        """The parts of a node that is one word."""
        expander = self._expander(source, node)
        pieces = expander.pieces(assigned=True)
        if expander.at != expander.end:
            raise UnreadError("this is not understood", source.place(node), source.name)
        return pieces

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

    # Tests.

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


def _starts(command: Command) -> bool:
    """Whether a command may start a training."""
    return any(_PROGRAM.search(shown(word.text)) for word in command.words)


def _gapless(source: Source, node: Node) -> None:
    """Between the parts of a statement stand blanks alone."""
    end = None
    for child in node.children:
        start, stop = source.range(child)
        if end is not None and source.text[end:start].replace("\\\n", "").strip():
            raise UnreadError("this is not understood", source.span(end, start), source.name)
        end = stop


def _short(text: str) -> str:
    first, *rest = text.strip().split("\n")
    return f"{first[:57]}..." if len(first) > 60 else f"{first} ..." if rest else first


#: Kinds of statements, and what walks them.
_STATEMENTS = {
    "program": "_program", "compound_statement": "_braced", "subshell": "_subshell", "pipeline": "_pipeline", "list": "_list",
    "negated_command": "_negated", "if_statement": "_if", "case_statement": "_case", "for_statement": "_for", "while_statement": "_while",
    "c_style_for_statement": "_counted", "variable_assignment": "_assignments", "variable_assignments": "_assignments",
    "test_command": "_test", "command": "command", "declaration_command": "command", "unset_command": "command",
    "redirected_statement": "redirected", "function_definition": "function",
}  # fmt: skip
