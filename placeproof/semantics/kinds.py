"""Whether operations get values of the kinds that they need: a table, checked on a traced program."""

from __future__ import annotations

from placeproof.core.diagnostics import Problems
from placeproof.core.program.ops import OPS
from placeproof.semantics.values import Event, Kind, Trace

_P, _O, _G, _S = Kind.PARAMETERS, Kind.OPTIMIZER, Kind.GRADIENTS, Kind.SCALAR
_X, _KEPT = Kind.STREAM, Kind.SAVED

#: Operation -> the kind that each operand must have (None: any).
NEEDS: dict[str, tuple[Kind | None, ...]] = {
    "forward": (_P, _X),
    "loss": (_X,),
    "output": (_KEPT,),
    "backward": (_P, None, _X),
    "backward_input": (_P, _KEPT, _X),
    "backward_weight": (_P, _KEPT, _X, _X),
    "update": (_P, _O, _G, _S),
    "update_with": (_P, _O, _G, _S),
    "tensor_norms": (_P, _O, _G),
    "master": (_O,),
    "scale": (None, _S),
    "sqrt": (_S,),
    "clip_factor": (_S, _S),
    "min": (_S, _S),
    "max": (_S, _S),
}


def require_kinds(found: Trace) -> None:
    """Raise :class:`InputError` for every operand of the wrong kind."""
    problems = Problems()
    for event in found.events:
        _check(event, problems)
    problems.raise_if_any()


#: What moves parts, or leaves each device its own: a number has none.
PARTS = ("all_gather", "reduce_scatter", "all_to_all", "part")


def _check(event: Event, problems: Problems) -> None:
    in_parts = event.call.op in PARTS or event.call.option("root", None) == "owner"
    if in_parts and event.operands and event.operands[0].kind is _S:
        problems.add(
            "PP309",
            f"`{event.call.op}` moves the parts of a tensor, and a number has none",
            place=event.call.place,
            help="of numbers, `all_reduce` gives the sum (or `op=mean`, `op=max`), `broadcast` the number of one device",
        )
    for position, (value, needed) in enumerate(zip(event.operands, NEEDS.get(event.call.op, ()), strict=False)):
        if needed is not None and value.kind is not needed:
            what = OPS[event.call.op].operands[position]
            problems.add(
                "PP309",
                f"`{event.call.op}` takes {needed.value} as `{what}`, and gets {value.kind.value}",
                place=event.call.args[position].place or event.call.place,
                help=OPS[event.call.op].signature(),
            )
