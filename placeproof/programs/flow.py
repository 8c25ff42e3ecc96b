"""The flow rule of well-formedness: what is read was written, waited for, and not freed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from placeproof.core.diagnostics import Place, Problems, suggestion
from placeproof.core.states import STATES
from placeproof.core.symbols import info
from placeproof.programs.ir import (
    Assign,
    Binary,
    Call,
    Do,
    Expr,
    For,
    If,
    Program,
    Ref,
    Stmt,
    assigned,
    own_expressions,
    references,
    statements,
)
from placeproof.programs.ops import DOMAINS, OPS
from placeproof.programs.ranks import Path, covers

#: A name, and the group of it that is spoken of, if one is.
_Buffer = tuple[str, str | None]

#: What a loop walks over -> how many parts there have to be.
Least = Mapping[str, int]


@dataclass(slots=True)
class _Known:
    """What is known of buffers at one point of the program. ``written``: how many units or blocks there have to be for the write to happen:
    with one, ``for u in units[1:]`` has no iteration, and a statement about ``h[u + 1]`` does nothing. ``sides``: the same of what some
    sides of branches write. ``freed``: buffers, or one group of one."""

    written: dict[str, Least]
    sides: dict[str, dict[Path, Least]] = field(default_factory=dict)
    freed: dict[_Buffer, Place | None] = field(default_factory=dict)
    started: dict[str, Place | None] = field(default_factory=dict)

    def copy(self) -> _Known:
        return _Known(dict(self.written), {n: dict(sides) for n, sides in self.sides.items()}, dict(self.freed), dict(self.started))

    def freed_of(self, ref: Ref) -> list[_Buffer]:
        """What was freed of all that a reference speaks of."""
        return [(name, group) for name, group in self.freed if name == ref.name and (None in (group, ref.group) or group == ref.group)]


def check_flow(program: Program, problems: Problems) -> None:
    """Walk the program once in order, each loop body once, and record every read that cannot be answered."""
    flow = _Flow(program, problems)
    known = _Known(written={name: {} for name in (*STATES, *(t.name for t in program.tensors))})
    flow.body(program.body, known, ())
    for name, place in known.started.items():
        if name in flow.waited:
            continue
        problems.add("PP308", f"`{name}` is started and never waited for", place=place, help=f"read it as `wait({name})`")


class _Flow:
    def __init__(self, program: Program, problems: Problems) -> None:
        self.program, self.problems = program, problems
        self.path: Path = frozenset()
        self.waited: set[str] = set()
        passing = {p.state for p in program.placed for _, mode in p.modes if mode.transient}
        self.lasting = set(STATES) - passing - {"activations"}
        self.assigned = {t.name for t in assigned(program.body)}
        self.kept = program.kept_by_batch
        self.around: list[For] = []
        self.least: Least = {}  # for the statement at hand to do something
        self.constants = {name for a in program.axes for name in (a.name, a.outer_name, a.inner_name)} | set(DOMAINS)

    def body(self, body: tuple[Stmt, ...], known: _Known, loops: tuple[str, ...]) -> None:
        for stmt in body:
            self.statement(stmt, known, loops)

    def statement(self, stmt: Stmt, known: _Known, loops: tuple[str, ...]) -> None:
        self.least = self._least(stmt)
        match stmt:
            case Assign():
                self._assign(stmt, known, loops)
            case Do(call=call):
                self._effect(call, known, loops)
            case For():
                for own in own_expressions(stmt):
                    self.read(own, known, loops)
                self.around.append(stmt)
                self._loop(stmt, known, (*loops, stmt.var))
                self.around.pop()
            case If():
                self._branch(stmt, known, loops)

    def _least(self, stmt: Stmt) -> Least:
        """How many parts there are where a statement does something: each loop around has an iteration, and what it names is there."""
        named = list(references(stmt))
        numbers = [r.index.offset for r in named if r.index is not None and r.index.var is None and r.name not in self.kept]
        least_by_domain = {"units": n} if (n := max([1, *(k + 1 if k >= 0 else -k for k in numbers)])) > 1 else {}
        for loop in self.around:
            if loop.domain == "microbatches":
                continue
            offsets = [r.index.offset for r in named if r.index is not None and r.index.var == loop.var]
            least = max(1 + loop.start + max([0, *offsets]), 1 - min([0, *offsets]))
            if least > 1:
                least_by_domain[loop.domain] = max(least_by_domain.get(loop.domain, 1), least)
        return least_by_domain

    def _loop(self, stmt: For, known: _Known, loops: tuple[str, ...]) -> None:
        before = len(self.problems.found)
        self.body(stmt.body, known, loops)
        frees = [s.call.args[0] for s in statements(stmt.body) if isinstance(s, Do) and s.call.op == "free" and s.call.args]
        whole = {(r.name, r.group) for r in frees if isinstance(r, Ref) and r.index is None} & set(known.freed)
        if whole and len(self.problems.found) == before:  # what one iteration frees, the next one cannot read
            again = known.copy()
            again.freed = {n: place for n, place in known.freed.items() if n in whole}
            self.body(stmt.body, again, loops)

    def _assign(self, stmt: Assign, known: _Known, loops: tuple[str, ...]) -> None:
        started = isinstance(stmt.value, Call) and stmt.value.op == "start"
        self.read(stmt.value, known, loops, top=True)
        for target in stmt.targets:
            self._index(target, loops)
            freed = known.freed_of(target)
            if stmt.accumulate and freed:
                self._freed(target, known)
            before = known.written.get(target.name)
            if before is None or _within(self.least, before):
                known.written[target.name] = self.least
            for one in freed:
                del known.freed[one]
            if started:
                known.started[target.name] = stmt.place

    def _effect(self, call: Call, known: _Known, loops: tuple[str, ...]) -> None:
        self.read(call, known, loops)
        self._takes_buffer(call, known)
        if call.op == "free" and call.args and isinstance(call.args[0], Ref):
            known.freed[call.args[0].name, call.args[0].group] = call.place
            if call.args[0].name in self.lasting:
                self.problems.add(
                    "PP306",
                    f"`{call.args[0].name}` is a state: it is held all step and cannot be freed",
                    place=call.place,
                    help="place it `M` if it should exist for a while only",
                )

    def _takes_buffer(self, call: Call, known: _Known) -> None:
        if call.op not in ("zero", "free") or not call.args:
            return
        ref = call.args[0]
        given = isinstance(ref, Ref) and ref.name not in known.written and (ref.name in self.constants or _is_symbol(ref.name))
        if given or not isinstance(ref, Ref):
            message = f"`{call.op}` takes a buffer that was written"
            self.problems.add("PP306", message, place=ref.place or call.place, help="give the value a name first, or leave this line out")

    def _branch(self, stmt: If, known: _Known, loops: tuple[str, ...]) -> None:
        self.read(stmt.bound, known, loops)
        before, other, around = known.copy(), known.copy(), self.path
        ends = []
        for body, side, taken in ((stmt.then, known, True), (stmt.orelse, other, False)):
            self.path = around | {((stmt.axis, stmt.op, stmt.bound), taken)}
            self.body(body, side, loops)
            ends.append((self.path, side))
        self.path = around
        both = {n: _both(least, other.written[n]) for n, least in known.written.items() if n in other.written}
        for path, side in ends:
            for name in side.written.keys() - both.keys():
                known.sides.setdefault(name, {})[path] = side.written[name]
        for name, sides in other.sides.items():
            known.sides[name] = sides | known.sides.get(name, {})
        known.written = {**both, **before.written}
        known.freed.update(other.freed)
        known.started.update(other.started)

    def read(self, expr: Expr, known: _Known, loops: tuple[str, ...], *, top: bool = False) -> None:
        """Record the problems of everything that an expression reads."""
        match expr:
            case Ref():
                self._ref(expr, known, loops)
            case Binary():
                self.read(expr.left, known, loops)
                self.read(expr.right, known, loops)
            case Call(op="start"):
                if not top:
                    self.problems.add("PP308", "`start` gives a handle, which needs a name", place=expr.place)
                for arg in expr.args:
                    self._startable(arg)
                    self.read(arg, known, loops)
            case Call(op="wait", args=(Ref() as ref,)):
                self._wait(ref, known, loops)
            case Call(op="elementwise" | "slope", args=(_, x)):
                self.read(x, known, loops)
            case Call(op="cast" | "quantize", args=(x, width)):
                self.read(x, known, loops)
                self._width(width)
            case Call():
                for arg in expr.args:
                    self.read(arg, known, loops)

    def _startable(self, arg: Expr) -> None:
        if not (isinstance(arg, Call) and (OPS[arg.op].collective or arg.op in ("to_host", "to_device"))):
            place = arg.place
            self.problems.add("PP304", "only a collective or a host copy can be started", place=place)

    def _wait(self, ref: Ref, known: _Known, loops: tuple[str, ...]) -> None:
        self.waited.add(ref.name)
        if ref.name in known.started:
            known.started.pop(ref.name)
            self._index(ref, loops)
            self._there(ref, known)
        elif ref.name in known.written and ref.index is not None:
            self._index(ref, loops)
        else:
            self.problems.add("PP308", f"`{ref.name}` was not started", place=ref.place, help=f"`{ref.name} = start(all_gather(...))`")

    def _width(self, width: Expr) -> None:
        if not (isinstance(width, Ref) and width.name.startswith("b_")):
            self.problems.add("PP304", "a width is a symbol of bytes an element", place=width.place, help="for example `b_qw`, `b_g`")

    def _ref(self, ref: Ref, known: _Known, loops: tuple[str, ...]) -> None:
        self._index(ref, loops)
        if ref.name in self.constants or ref.name in loops:
            return
        if known.freed_of(ref):
            self._freed(ref, known)
        elif ref.name in known.started:
            self.problems.add(
                "PP308",
                f"`{ref.name}` is read before its collective has ended",
                place=ref.place,
                help=f"read it as `wait({ref.name})`",
            )
        elif self._is_written(ref, known) or (ref.name not in self.assigned and _is_symbol(ref.name)):
            self._there(ref, known)
        elif ref.name in known.sides:
            message = f"`{ref.name}` is read here by devices on which nothing wrote it"
            self.problems.add("PP306", message, place=ref.place, help="one side of a branch wrote it: assign it on the other devices, too")
        else:
            self.problems.add(
                "PP306",
                f"`{ref.name}` is read, but nothing wrote it",
                place=ref.place,
                help=suggestion(ref.name, known.written.keys() | self.constants | set(OPS)) or "assign it first on every path",
            )

    def _is_written(self, ref: Ref, known: _Known) -> bool:
        return ref.name in known.written or (ref.name in known.sides and covers(known.sides[ref.name], self.path, self.program))

    def _there(self, ref: Ref, known: _Known) -> None:
        """That what is read was written for as few parts as there may be where it is read."""
        least = known.written.get(ref.name)
        for one in known.sides.get(ref.name, {}).values() if least is None else ():
            least = _both(least or {}, one)
        if not _within(least := least or {}, self.least):
            domain, n = next((d, n) for d, n in least.items() if n > self.least.get(d, 1))
            self.problems.add(
                "PP306",
                f"`{ref.name}` is read, and nothing wrote it where there are fewer than {n} {domain}",
                place=ref.place,
                help="assign it before the loop that writes it",
            )

    def _freed(self, ref: Ref, known: _Known) -> None:
        (_, group), *_ = freed = known.freed_of(ref)
        place, what = known.freed[freed[0]], f"`{ref.name}.{group}`" if group else f"`{ref.name}`"
        where = f" in line {place.line}" if place else ""
        self.problems.add("PP306", f"{what} is read after it was freed{where}", place=ref.place)

    def _index(self, ref: Ref, loops: tuple[str, ...]) -> None:
        if ref.index is not None and ref.index.var is not None and ref.index.var not in loops:
            self.problems.add(
                "PP307",
                f"no loop around this line has the variable `{ref.index.var}`",
                place=ref.place,
                help="use the variable of a loop around it" if loops else "write it inside `for u in units:`",
            )


def _within(least: Least, there: Least) -> bool:
    """Whether there are as many parts as are needed."""
    return all(n <= there.get(domain, 1) for domain, n in least.items())


def _both(a: Least, b: Least) -> Least:
    return {domain: max(a.get(domain, 1), b.get(domain, 1)) for domain in {**a, **b}}


def _is_symbol(name: str) -> bool:
    try:
        info(name)
    except KeyError:
        return False
    return True
