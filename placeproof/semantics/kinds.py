"""Whether operations get values of the kinds that they need: a table, checked on a traced program."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from placeproof.core.diagnostics import Place, Problems
from placeproof.programs import Program
from placeproof.programs.ops import OPS
from placeproof.semantics.values import Event, Kind, Trace

_P, _O, _G, _M, _S = Kind.PARAMETERS, Kind.OPTIMIZER, Kind.GRADIENTS, Kind.MOMENTUM, Kind.SCALAR
_LINES, _NORMS = Kind.SUMS, Kind.NORMS
_X, _KEPT = Kind.STREAM, Kind.SAVED
#: What lies in parts; what is made of numbers; what can lie elsewhere.
_STATES = (_P, _O, _G)
_STATE_NAMES = tuple(kind.value for kind in _STATES)
_PARTED = (*_STATES, _M, _X)
_NUMBERS = (*_PARTED, _S, _NORMS)
_REDUCED = (*_NUMBERS, _LINES)
_ANY = (*_REDUCED, _KEPT)

#: Operation -> the kinds that each operand may have (None: any, or no value).
NEEDS: dict[str, tuple[tuple[Kind, ...] | None, ...]] = {
    "all_reduce": (_REDUCED,),
    "reduce_scatter": (_PARTED,),
    "all_gather": (_PARTED,),
    "all_to_all": (_PARTED,),
    "broadcast": (_REDUCED,),
    "reduce": (_REDUCED,),
    "tied_reduce": (_STATES,),
    "part": (_PARTED,),
    "copy": (_ANY,),
    "cast": (_ANY,),
    "quantize": (_NUMBERS,),
    "dequantize": (_NUMBERS,),
    "to_host": (_ANY,),
    "to_device": (_ANY,),
    "forward": ((_P,), (_X,)),
    "loss": ((_X,),),
    "output": ((_KEPT,),),
    "backward": ((_P,), None, (_X,)),
    "backward_with": ((_P,), None, (_S,)),
    "backward_input": ((_P,), (_KEPT,), (_X,)),
    "backward_weight": ((_P,), (_KEPT,), (_X,), (_X,)),
    "update": ((_P,), (_O,), (_G,), (_S,)),
    "update_with": ((_P,), (_O,), (_G,), (_NORMS, _M, _LINES, _S), (_NORMS, _S)),
    "tensor_norms": ((_P,), (_O,), (_G,), (_LINES,)),
    "line_sums": ((_G,),),
    "momentum": ((_O,), (_G,)),
    "orthogonalize": ((_M,),),
    "statistics": ((_P,),),
    "master": ((_O,),),
    "elementwise": (None, _NUMBERS),
    "dropout": ((_X,), (_S,)),
    "scale": (_NUMBERS, (_S,)),
    "zero": (_NUMBERS,),
    "square_norm": (_NUMBERS,),
    "sqrt": ((_S,),),
    "clip_factor": ((_S,), (_S,)),
    "found_inf": (_STATES,),
    "rescale": ((_S,), (_S,)),
    "stale": (_STATES, (_S,)),
    "min": ((_S,), (_S,)),
    "max": ((_S,), (_S,)),
}


#: What is wrong, where, and what helps.
_Wrong = Iterator[tuple[str, Place | None, str]]


def require_kinds(trace: Trace) -> None:
    """Raise :class:`InputError` for every operand of the wrong kind."""
    problems = Problems()
    of_events = (wrong for e in trace.events for check in _CHECKS for wrong in check(e, trace.program))
    for message, place, help in chain(of_events, _arithmetic(trace), _states(trace, problems)):
        problems.add("PP309", message, place=place, help=help)
    problems.raise_if_any()


def _arithmetic(trace: Trace) -> _Wrong:
    for expr, left, right in trace.arithmetic:
        if _O in (left.kind, right.kind) and _S not in (left.kind, right.kind):
            message = f"`{expr.op}` of optimizer state: it has several numbers for each element"
            yield message, expr.place, "`master(optimizer)` is its copy of the parameters"


def _states(trace: Trace, problems: Problems) -> _Wrong:
    """A state is written with what has its elements; said only of lines of which nothing else was said before."""
    told = {p.place.line for p in problems.found if p.place is not None}
    frozen = {g.name for g in trace.program.groups if g.frozen}
    for access in trace.accesses:
        place = access.stmt.place
        if access.group in frozen and access.value.kind in (_G, _O):
            yield f"`{access.name}.{access.group}`: `{access.group}` is frozen, and has no {access.value.kind.value}", place, "leave it out"
        if access.write and access.name in _STATE_NAMES and access.value.kind not in _STATES and (place is None or place.line not in told):
            yield f"`{access.name}` is a state, and is given {access.value.kind.value}", place, "keep it in a buffer of another name"


def _operands(event: Event, _: Program) -> _Wrong:
    for position, (value, needed) in enumerate(zip(event.operands, NEEDS.get(event.call.op, ()), strict=False)):
        if needed is not None and value.kind not in needed:
            what = OPS[event.call.op].operands[position]
            *others, last = (kind.value for kind in needed)
            takes = f"{', '.join(others)} or {last}" if others else last
            message = f"`{event.call.op}` takes {takes} as `{what}`, and gets {value.kind.value}"
            yield message, event.call.args[position].place or event.call.place, OPS[event.call.op].signature()


def _owners_of_parts(event: Event, _: Program) -> _Wrong:
    if event.call.option("root") == "owner" and event.operands and event.operands[0].kind in (_S, _NORMS):
        message = f"`{event.call.op}` with `root=owner` moves the parts of a tensor, and a number has none"
        help = "of numbers, `all_reduce` gives the sum (or `op=mean`, `op=max`), `broadcast` the number of one device"
        yield message, event.call.place, help


def _tied(event: Event, program: Program) -> _Wrong:
    if event.call.op != "tied_reduce" or not event.operands:
        return
    axis = event.call.axes[0]
    others = [p.group for p in event.operands[0].pieces if p.group not in {g.name for g in program.groups if g.tied == axis}]
    if others:
        message = f"`tied_reduce` adds up the copies of a tied weight, and `{others[0]}` is not tied along `{axis}`"
        help = f"declare it, `group(embedding, P_norm, tied={axis})`, and reduce that group alone: `G.embedding`"
        yield message, event.call.place, help


def _frozen(event: Event, program: Program) -> _Wrong:
    """What is not trained has no gradient, and is not updated."""
    operation = event.call.op
    needs = {"backward_weight": 1, "backward": 1, "backward_with": 1, "update": 3, "update_with": 3, "tensor_norms": 3, "line_sums": 1}.get(
        operation, 0
    )
    frozen = {g.name for g in program.groups if g.frozen}
    for operand, arg in zip(event.operands[:needs], event.call.args, strict=False):
        if frozen and operand.pieces and all(p.group in frozen for p in operand.pieces):  # none: said of what made it
            message = f"`{operation}` is of what is trained, and `{operand.pieces[0].group}` is frozen"
            yield message, arg.place or event.call.place, "`backward_input` passes gradients through it"


def _stages(event: Event, program: Program) -> _Wrong:
    """A device computes with the layers of its own stage, whatever it has gathered."""
    if event.call.op not in ("all_gather", "broadcast") or not event.operands or event.operands[0].kind is not _P:
        return
    for axis in program.axes:
        if axis.splits.stages and set(axis.factors) & set(program.factors(*event.call.axes)):
            message = f"parameters are gathered over `{axis.name}`, which splits the layers: a device computes those of its own stage"
            help = f'if every device computes all layers, let the axis split the batch: `splits({axis.name}="batch")`'
            yield message, event.call.place, help


_CHECKS = (_operands, _owners_of_parts, _tied, _stages, _frozen)

__all__ = ["NEEDS", "require_kinds"]
