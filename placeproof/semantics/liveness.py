"""Which buffers are alive at each statement: a backward pass over the structured program.

A buffer is alive while what was written into it may still be read. A write of the whole kills what was there; so does
entering a loop that writes every part before reading it; so does ``free``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from placeproof.core.program import Assign, Call, Do, For, If, Program, Ref, Stmt, assigned, reads, statements


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One statement that does something, the loops around it, and the buffers alive while it runs."""

    stmt: Stmt
    loops: tuple[For, ...]
    alive: frozenset[str]


@dataclass(slots=True)
class Liveness:
    """The points of a program in order, and what is alive before and after each loop (by the loop's identity)."""

    points: list[Point] = field(default_factory=list)
    entering: dict[int, frozenset[str]] = field(default_factory=dict)
    leaving: dict[int, frozenset[str]] = field(default_factory=dict)


def liveness(program: Program, buffers: frozenset[str]) -> Liveness:
    """Liveness of the named buffers at every point. The backward pass finds what may be read, the forward pass what
    was written; alive is what is in both, or touched by the statement itself."""
    analysis = _Analysis(buffers)
    analysis.body(program.body, frozenset())
    analysis.forward(program.body, (), set())
    return analysis.found


class _Analysis:
    def __init__(self, buffers: frozenset[str]) -> None:
        self.buffers = buffers
        self.after: dict[int, frozenset[str]] = {}
        self.found = Liveness()

    # Backward: what may be read later.

    def body(self, body: tuple[Stmt, ...], after: frozenset[str]) -> frozenset[str]:
        for stmt in reversed(body):
            after = self._before(stmt, after)
        return after

    def _before(self, stmt: Stmt, after: frozenset[str]) -> frozenset[str]:
        self.after[id(stmt)] = after
        match stmt:
            case For():
                inside = after
                for _ in range(3):  # the back edge: what an iteration reads of the one before it
                    inside = after | self.body(stmt.body, after | inside)
                return inside - frozenset(n for n in self.buffers if _overwrites(stmt, n))
            case If():
                return self.body(stmt.then, after) | self.body(stmt.orelse, after)
        read, kills = self._touched(stmt)
        return (after - kills) | read

    def _touched(self, stmt: Stmt) -> tuple[frozenset[str], frozenset[str]]:
        """What a plain statement reads, and what it ends the life of."""
        read, kills = _reads_of(stmt), set[str]()
        match stmt:
            case Assign(accumulate=True):
                read |= _written(stmt)
            case Assign():
                kills = {t.name for t in stmt.targets if t.index is None and t.group is None}
            case Do(call=Call(op="free" | "zero", args=(Ref() as ref,))):
                read, kills = set(), {ref.name}
        return self.buffers & read, self.buffers & kills

    # Forward: what was written.

    def forward(self, body: tuple[Stmt, ...], loops: tuple[For, ...], written: set[str]) -> None:
        for stmt in body:
            match stmt:
                case For():
                    self.found.entering[id(stmt)] = frozenset(written) & self._before(stmt, self.after[id(stmt)])
                    inside = written | _written(*stmt.body)
                    self.forward(stmt.body, (*loops, stmt), set(inside))
                    written |= inside
                    self.found.leaving[id(stmt)] = frozenset(written) & self.after[id(stmt)]
                case If():
                    self.forward(stmt.then, loops, set(written))
                    self.forward(stmt.orelse, loops, set(written))
                    written |= _written(stmt)
                case _:
                    self._point(stmt, loops, written)

    def _point(self, stmt: Stmt, loops: tuple[For, ...], written: set[str]) -> None:
        after = self.after[id(stmt)]
        read, kills = self._touched(stmt)
        own = _written(stmt) & self.buffers
        before = ((after - kills) | read) & written
        freed = kills & written if isinstance(stmt, Do) and stmt.call.op == "free" else frozenset()
        written |= own
        alive = before | (after & written) | own | freed
        self.found.points.append(Point(stmt=stmt, loops=loops, alive=frozenset(alive)))


def _written(*body: Stmt) -> set[str]:
    return {t.name for t in assigned(body)}


def _overwrites(loop: For, name: str) -> bool:
    """Whether the loop writes each part of a buffer before anything in it reads that part."""
    for stmt in loop.body:
        if isinstance(stmt, For) and (name in _written(stmt) | _reads_of(stmt)):
            return _overwrites(stmt, name)
        if name in _reads_of(stmt):
            return False
        if isinstance(stmt, Assign) and any(t.name == name for t in stmt.targets):
            return not stmt.accumulate
    return False


def _reads_of(stmt: Stmt) -> set[str]:
    return {r.name for s in statements((stmt,)) for r in reads(s)}
