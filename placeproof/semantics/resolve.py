"""The pass that makes a resolved program of what was written, or lowered: the only place where something unsaid is given a meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import count

from placeproof.collectives import AxisLayout
from placeproof.core.mesh import Axis
from placeproof.core.modes import GATHERED, REPLICATED, SHARDED, Mode
from placeproof.core.states import MODEL_STATES
from placeproof.programs import Binary, Call, Expr, For, Placed, Program, Ref, Resolved, Stmt, statements
from placeproof.programs.ir import references, with_draws, with_expressions
from placeproof.programs.ops import OPS
from placeproof.semantics.kinds import require_kinds
from placeproof.semantics.trace import trace
from placeproof.semantics.values import Event, Kind, Trace

#: Whose parts have owners.
_OWNED = (Kind.PARAMETERS, Kind.OPTIMIZER, Kind.GRADIENTS)


def resolve(program: Program) -> Resolved:
    """The program with everything said (:class:`placeproof.programs.Resolved`).

    Raises :class:`InputError` for every operation that gets a value of a kind that it does not take.
    """
    if isinstance(program, Resolved):
        return program
    begun = Resolved(**{f.name: getattr(program, f.name) for f in fields(program)} | {"body": with_draws(program.body)})
    if program.tensors:
        return _named(begun, {id(c): "0" for c in program.calls})
    placed = _placed(_complete(_named(begun, {})))
    traced = trace(placed)
    require_kinds(traced)
    return _named(placed, {id(e.call): "owner" if e.operands and e.operands[0].kind in _OWNED else "0" for e in traced.events})


# Names: of loops, of the only group, of roots.


def _named(program: Resolved, roots: Mapping[int, str]) -> Resolved:
    """The program with a loop variable for one domain each, without the name of its only group, and with roots (by the call's ``id``)."""
    only = program.groups[0].name if len(program.groups) == 1 else None
    return replace(program, body=_Names(program, only, roots).body(program.body, {}))


class _Names:
    def __init__(self, program: Resolved, only: str | None, roots: Mapping[int, str]) -> None:
        self.only, self.roots = only, roots
        self.domains: dict[str, str] = {}
        every = list(statements(program.body))
        self.taken = {r.name for s in every for r in references(s)} | {s.var for s in every if isinstance(s, For)}

    def body(self, body: tuple[Stmt, ...], loops: Mapping[str, str]) -> tuple[Stmt, ...]:
        """Statements, within loops whose variables have other names."""
        return tuple(self._stmt(stmt, loops) for stmt in body)

    def _stmt(self, stmt: Stmt, loops: Mapping[str, str]) -> Stmt:
        inner = loops
        if isinstance(stmt, For):
            var, within = self._variable(stmt), stmt.within
            inner = {**loops, stmt.var: var}
            stmt = replace(stmt, var=var, within=None if within is None else loops.get(within, within))
        return with_expressions(stmt, lambda e: self._expr(e, loops), lambda body: self.body(body, inner))

    def _variable(self, loop: For) -> str:
        """A name that stands for this domain alone."""
        numbered = (f"{loop.var}{n}" for n in count(2))
        name = loop.var
        while self.domains.setdefault(name, loop.domain) != loop.domain:
            name = next(n for n in numbered if n not in self.taken or self.domains.get(n) == loop.domain)
        return name

    def _expr(self, expr: Expr, loops: Mapping[str, str]) -> Expr:
        match expr:
            case Ref():
                return self._ref(expr, loops)
            case Binary():
                return replace(expr, left=self._expr(expr.left, loops), right=self._expr(expr.right, loops))
            case Call():
                return self._call(expr, loops)
        return expr

    def _call(self, call: Call, loops: Mapping[str, str]) -> Call:
        first = 1 if call.op in ("elementwise", "slope") else 0  # the name of a function stands before its operand
        args = (*call.args[:first], *(self._expr(a, loops) for a in call.args[first:]))
        silent = "root" in dict(OPS[call.op].options) and call.option("root") is None and id(call) in self.roots
        options = (*call.options, ("root", self.roots[id(call)])) if silent else call.options
        return replace(call, args=args, options=options)

    def _ref(self, ref: Ref, loops: Mapping[str, str]) -> Ref:
        index = ref.index
        if index is not None and index.var is not None:
            index = replace(index, var=loops.get(index.var, index.var))
        return replace(ref, name=loops.get(ref.name, ref.name), group=None if ref.group == self.only else ref.group, index=index)


def _placed(program: Resolved) -> Resolved:
    """The program with every model state placed, and the name of the buffer that plays the gradients.

    A state that is not placed is inferred: parameters are owned in parts on the axes over which the step gathers them
    before the update; the optimizer state and the gradients, on the axes on which the update's gradient is sharded.
    Gradients are what is placed under that name, where the program writes it; else what the update reads.
    """
    traced = trace(program)
    update = _update_event(traced)
    read = update.call.args[2] if update is not None and len(update.call.args) > 2 else None
    buffer = read.name if isinstance(read, Ref) else "gradients"
    missing = {"parameters", "optimizer", "gradients"} - {p.state for p in program.placed}
    if "gradients" not in missing and any(a.write and a.name == "gradients" for a in traced.accesses):
        buffer = "gradients"
    if "parameters" in missing:
        gathered = dict.fromkeys(_gathered(traced), GATHERED)
        program = _with(program, "parameters", {g.name: gathered for g in program.groups})
    owned = _owned(trace(program)) if missing & {"optimizer", "gradients"} else {}
    for state in ("optimizer", "gradients"):
        if state in missing and (state != "gradients" or buffer == "gradients"):
            program = _with(program, state, {group: dict.fromkeys(axes, SHARDED) for group, axes in owned.items()})
    return replace(program, gradients=buffer)


def _complete(program: Resolved) -> Resolved:
    """The program with all axes named where a state is placed, and one line for each group of a state of which one is placed apart: axis by
    axis, what is said of the group counts, and for the rest what is said of all."""
    placed = []
    for state in dict.fromkeys(p.state for p in program.placed):
        lines = [p for p in program.placed if p.state == state]
        apart = len(program.groups) > 1 and any(p.group is not None for p in lines)
        for group in _having(program, state) if apart else (None,):
            modes = {axis: mode for own in (None, group) for p in lines if not apart or p.group == own for axis, mode in p.modes}
            own_line = next((p.place for p in lines if p.group == group), lines[0].place)
            whole = tuple((a.name, modes.pop(a.name, _unsaid(state, a))) for a in program.axes)
            placed.append(Placed(state=state, group=group, modes=(*whole, *modes.items()), place=own_line))
    return replace(program, placed=tuple(placed))


def _having(program: Program, state: str) -> tuple[str, ...]:
    """The groups that have a state: only parameters are there of what is frozen."""
    return program.trained if state in ("optimizer", "gradients") else tuple(g.name for g in program.groups)


def _with(program: Resolved, state: str, modes: Mapping[str, Mapping[str, Mode]]) -> Resolved:
    """The program with a state placed: by group, the axes on which it is no full copy; in one line where all groups are alike."""
    alike = all(of == next(iter(modes.values())) for of in modes.values())
    lines = {None: next(iter(modes.values()), {})} if alike else modes
    whole = {group: tuple(({a.name: _unsaid(state, a) for a in program.axes} | dict(of)).items()) for group, of in lines.items()}
    return replace(program, placed=(*program.placed, *(Placed(state=state, group=g, modes=of) for g, of in whole.items())))


def _unsaid(state: str, axis: Axis) -> Mode:
    """How a state lies on an axis of which nothing is said: a stage has its own layers of the model states, and all else is copied."""
    return SHARDED if axis.splits.stages and state in (s.name for s in MODEL_STATES) else REPLICATED


def _update_event(trace: Trace, group: str | None = None) -> Event | None:
    """The first update, or the first that reads the gradients of a group, if there is one."""
    events = [e for e in trace.events if e.call.op in ("update", "update_with")]
    own = (e for e in events if len(e.operands) > 2 and any(p.group == group for p in e.operands[2].pieces))
    return next(own, events[0] if events else None)


def _gathered(trace: Trace) -> tuple[str, ...]:
    axes: list[str] = []
    for event in trace.events:
        if event.phase == "update":
            break
        direct = bool(event.call.args) and isinstance(event.call.args[0], Ref) and event.call.args[0].name == "parameters"
        if event.call.op == "all_gather" and direct:
            axes += [a.name for a in trace.program.axes if set(a.factors) <= set(trace.program.factors(*event.call.axes))]
    return tuple(dict.fromkeys(axes))


def _owned(trace: Trace) -> dict[str, tuple[str, ...]]:
    """By group, the axes, or factors of one, along which the gradient lies in parts when the update reads it."""
    program, owned = trace.program, dict[str, tuple[str, ...]]()
    for group in program.trained:
        event = _update_event(trace, group)
        read = event.operands[2] if event is not None and len(event.operands) > 2 else None
        if read is None or read.kind is not Kind.GRADIENTS or not read.pieces:
            owned[group] = ()
            continue
        (piece, *_) = read.group(group).pieces
        on = {a.name: tuple(f for f in a.factors if piece.on(f) is AxisLayout.SHARD) for a in program.axes}
        owned[group] = tuple(n for a in program.axes for n in ((a.name,) if on[a.name] == a.factors else on[a.name]))
    return owned
