"""The buffers of a program that is being written, and what was made of each by moving it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from placeproof.programs import Assign, Call, Do, Expr, Ref, Stmt
from placeproof.semantics.blocks.moves import Move, moves, sums
from placeproof.semantics.blocks.plan import PlanAxis
from placeproof.semantics.layouts.layout import Layout

#: What moved is named after the buffer that it was made of.
_SUFFIX = {"all_gather": "full", "part": "part", "all_reduce": "sum", "reduce_scatter": "sum"}


def free_name(wished: str, taken: set[str]) -> str:
    """A name that is not in use; from now on it is."""
    name, number = wished, 1
    while name in taken:
        number += 1
        name = f"{wished}_{number}"
    taken.add(name)
    return name


@dataclass(frozen=True, slots=True)
class Made:
    """An expression and how its value lies. ``name``: the buffer that it is, or was made of, if it is one. ``gathered``: by moving it,
    something was gathered; or it is such a buffer under another name for its tokens.
    """

    expr: Expr
    layout: Layout
    name: str | None = None
    gathered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """A buffer, or what was made of it. ``gathered``: something was gathered for it; ``backward``: in backward."""

    name: str
    layout: Layout
    backward: bool
    gathered: bool = False


@dataclass(slots=True, kw_only=True)
class _Buffer:
    """``versions``: itself, then what was made of it. ``at``: where in the body it is written. ``summands``: its summands are read."""

    versions: list[_Version]
    at: int | None = None
    summands: bool = False


@dataclass(slots=True, kw_only=True)
class Buffers:
    """``taken``: names that are in use; ``incoming``: buffers that depend on a gradient that comes in; ``rules``: the axes in the order of
    the mesh; ``regather``: whether what forward gathered is gathered again in backward."""

    rules: Sequence[PlanAxis]
    regather: bool
    taken: set[str]
    incoming: frozenset[str]
    body: list[Stmt] = field(default_factory=list)
    backward: bool = False
    _of: dict[str, _Buffer] = field(default_factory=dict)
    _before: list[Assign] = field(default_factory=list)

    def declare(self, name: str, layout: Layout) -> None:
        """A tensor of the header."""
        self._of[name] = _Buffer(versions=[_Version(name=name, layout=layout, backward=False)])

    def read(self, name: str) -> Made | None:
        """A buffer as it was written, or None if there is none of that name."""
        return Made(Ref(name=name), self._of[name].versions[0].layout, name) if name in self._of else None

    def fresh(self, made: Made) -> Made:
        """A buffer as it lies now: it may have been reduced for something that was read beside it."""
        return self.read(made.name) or made if made.name is not None else made

    def fixed(self, made: Made, then: Layout) -> Made:
        """The same value in another layout. Of a buffer, what was made before is used; what is made now can be used again."""
        if then is made.layout and not then.partial:
            return made
        if made.name is None:
            expr, layout = made.expr, made.layout
            for move in moves(layout, then, self.rules):
                expr, layout = move.of(expr), move.after
            return Made(expr, layout)
        buffer = self._of[made.name]
        self._settle(buffer, then)
        kept = [v for v in buffer.versions if not (v.gathered and self.regather and v.backward != self.backward)]
        version = min((v for v in kept if then.partial <= v.layout.partial), key=lambda v: len(moves(v.layout, then, self.rules)))
        buffer.summands |= bool(version.layout.partial & then.partial)
        for move in moves(version.layout, then, self.rules):
            version = self._moved(buffer, made.name, version, move)
        return Made(Ref(name=version.name), version.layout, made.name, version.gathered)

    def _settle(self, buffer: _Buffer, then: Layout) -> None:
        """Reduce a partial sum where it is made, if nobody has read its summands since, and the phase is the same."""
        own = buffer.versions[0]
        if buffer.at is None or buffer.summands or own.backward != self.backward:
            return
        for move in sums(own.layout, then, self.rules):
            written = self.body[buffer.at]
            assert isinstance(written, Assign)
            self.body[buffer.at] = replace(written, value=move.of(written.value))
            own = replace(own, layout=move.after)
        buffer.versions[0] = own

    def _moved(self, buffer: _Buffer, name: str, version: _Version, move: Move) -> _Version:
        """One move as a statement of its own."""
        suffix = _SUFFIX.get(move.call.op) or "_".join(dict.fromkeys(("by", *(dim for _, dim in move.call.cuts))))
        new = free_name(f"{name}_{suffix}", self.taken)
        self._before.append(Assign(targets=(Ref(name=new),), value=move.of(Ref(name=version.name))))
        if name in self.incoming:
            self.incoming |= {new}
        gathered = version.gathered or move.call.op == "all_gather"
        version = _Version(name=new, layout=move.after, backward=self.backward, gathered=gathered)
        buffer.versions.append(version)
        return version

    def again(self, name: str, made: Made) -> str:
        """What a buffer of forward was, written once more; its name."""
        new = free_name(f"{name}_again", self.taken)
        self._before.append(Assign(targets=(Ref(name=new),), value=made.expr))
        self._of[new] = _Buffer(versions=[_Version(name=new, layout=made.layout, backward=self.backward)])
        return new

    # Statements.

    def assign(self, name: str, made: Made) -> None:
        """Write a buffer; what was made of its last value is of no use any more."""
        made = self.fixed(made, made.layout)
        self.emit(Assign(targets=(Ref(name=name),), value=made.expr))
        version = _Version(name=name, layout=made.layout, backward=self.backward)
        self._of[name] = _Buffer(versions=[version], at=len(self.body) - 1)

    def drop(self, name: str) -> None:
        """Free a buffer, and what was made of it."""
        buffer = self._of.pop(name, None)
        for version in buffer.versions if buffer is not None else ():
            self.emit(Do(call=Call(op="free", args=(Ref(name=version.name),))))

    def emit(self, stmt: Stmt) -> None:
        """The next statement, after what moves for it.

        Gradients that come in move first: so that backward has begun where something else moves for its first statement.
        """
        coming = {id(s) for s in self._before if s.targets[0].name in self.incoming}
        self.body += sorted(self._before, key=lambda s: id(s) not in coming)
        self._before.clear()
        self.body.append(stmt)
