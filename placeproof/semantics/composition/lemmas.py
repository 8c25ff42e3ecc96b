"""That clauses keep what they say: equations between terms, of the meaning that the encoding gives to each operation.

A program has one axis ``a`` and, beside it, another one that stands for all others. An operand lies on ``a`` as a clause takes it, and is
an arbitrary function of the other coordinate and of an element otherwise. What the operation makes of it has to lie on ``a`` as the clause
gives it, of what the operation makes of the value without ``a``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce

from placeproof.programs import Call, read
from placeproof.prove import Equation
from placeproof.prove.composition import LAYOUTS, AxisType, Clause
from placeproof.prove.terms import ONE, Poly, Var, app, inverse, power, product, substitute, symbol, total
from placeproof.semantics.encode.context import Context
from placeproof.semantics.encode.exchange import exchange, own_part
from placeproof.semantics.encode.reference import update_value
from placeproof.semantics.encode.values import Piece, Region, Tensor
from placeproof.semantics.encode.world import World
from placeproof.semantics.resolve import resolve

AXIS, BESIDE, GROUP = "a", "beside", "all"
_STEP = f"""
mesh({AXIS}, {BESIDE})
splits({AXIS}="batch", {BESIDE}="batch")
place(parameters)
place(optimizer)
place(gradients)
g = all_reduce(backward(parameters), {AXIS}, {BESIDE}, op=mean)
parameters, optimizer = update(parameters, optimizer, g)
"""
#: What happens over other axes: collectives, and what a device does by itself.
_OTHERS = (
    Call(op="all_reduce", axes=(BESIDE,)),
    Call(op="all_reduce", axes=(BESIDE,), options=(("op", "mean"),)),
    Call(op="reduce_scatter", axes=(BESIDE,)),
    Call(op="all_gather", axes=(BESIDE,)),
    Call(op="part", axes=(BESIDE,)),
    Call(op="broadcast", axes=(BESIDE,), options=(("root", "owner"),)),
)
_Tensors = tuple[Tensor, ...]


@lru_cache(maxsize=1)
def _world() -> World:
    return World(resolve(read(_STEP, source="lemma")))


@dataclass(frozen=True, slots=True)
class _Case:
    """One way to apply a clause: how each operand lies, and the operation, on values with the axis and without it."""

    name: str
    lying: tuple[AxisType, ...]
    gives: AxisType
    with_axis: Callable[[Context, _Tensors], Tensor]
    without: Callable[[Context, _Tensors], Tensor]
    parts: bool = False


def lemmas(clause: Clause) -> tuple[Equation, ...]:
    """The equations that a clause about tensors stands for; none of one that is about streams, or a computation of the model."""
    return tuple(_equation(clause, case) for case in _cases(clause))


def _cases(clause: Clause) -> Iterator[_Case]:
    for lying in _layings(clause):
        gives = clause.result(lying, _SAID)
        if gives is None:
            continue
        shown = ", ".join(map(str, lying))
        match clause.op, clause.role:
            case _, "over":
                op, *option = clause.op.split()
                options = (("op" if op != "broadcast" else "root", option[0]),) if option else ()
                call = Call(op=op, axes=(AXIS,), options=options)
                yield _Case(f"{clause.op} of {shown}", lying, gives, _exchanged(call), _first)
            case "linear", _:
                for call in _OTHERS:
                    cut = call.op in ("reduce_scatter", "part")
                    yield _Case(f"{call.op} beside, of {shown}", lying, gives, _exchanged(call), _exchanged(call), cut)
            case "scale", _:
                yield _Case(f"a scale of {shown}", lying, gives, _scaled(product(symbol("c"), _degree(_SAID))), _scaled(symbol("c")))
            case "+", _:
                yield _Case(f"a sum of {shown}", lying, gives, _added, _added)
            case "update", _:
                yield _Case(f"an update of {shown}", lying, gives, _updated, _updated)


#: The power of the degree that a scale of these equations has.
_SAID = -1


def _layings(clause: Clause) -> Iterator[tuple[AxisType, ...]]:
    """Every way in which operands may lie, each of one power."""

    def ways(rest: tuple[str, ...]) -> Iterator[tuple[AxisType, ...]]:
        if not rest:
            yield ()
            return
        for layout in LAYOUTS:
            for others in ways(rest[1:]):
                yield (AxisType(layout, 2 if rest[0].endswith("*") else 0), *others)

    yield from (w for w in ways(clause.takes) if w)


def _degree(exponent: int) -> Poly:
    size = _world().size(AXIS)
    return ONE if not exponent else power(size, exponent) if exponent > 0 else reduce(product, [inverse(size)] * -exponent)


def _equation(clause: Clause, case: _Case) -> Equation:
    world = _world()
    ctx = Context(world)
    own = [_operand(ctx, number, lying) for number, lying in enumerate(case.lying)]
    made = case.with_axis(ctx, tuple(o for o, _ in own)).pieces[GROUP].body
    meant = product(_degree(case.gives.power), case.without(ctx, tuple(o for _, o in own)).pieces[GROUP].body)
    here = world.here[AXIS]
    assert isinstance(here, Var)
    where = {}
    if case.parts:  # elsewhere both are garbage
        beside = world.here[BESIDE]
        assert isinstance(beside, Var)
        where[beside.name] = world.owner(GROUP, BESIDE)
    match case.gives.layout:
        case "shard":
            where[here.name] = world.owner(GROUP, AXIS)
        case "partial":
            made = total([here], substitute(made, where))
    return Equation(name=f"{clause.name}: {case.name}", left=substitute(made, where), right=substitute(meant, where), given=ctx.given())


def _tensor(body: Poly) -> Tensor:
    world = _world()
    return Tensor(pieces={GROUP: Piece(body=body)}, region=Region(domain="stage", index=world.stage))


def _operand(ctx: Context, number: int, lying: AxisType) -> tuple[Tensor, Tensor]:
    """A value that lies on the axis as is said, and the value without it: arbitrary functions of the other coordinate and an element."""
    world = ctx.world
    beside, here = world.here[BESIDE], world.here[AXIS]
    assert isinstance(here, Var)
    element = world.element(GROUP)
    value = app(f"v{number}", beside, *element)
    match lying.layout:
        case "replicate":
            return _tensor(product(_degree(lying.power), value)), _tensor(value)
        case "shard":
            held = frozenset({(AXIS, "blocked")})
            return _tensor(ctx.owned(GROUP, product(_degree(lying.power), value), held)), _tensor(value)
    each = app(f"v{number}", here, beside, *element)
    return _tensor(product(_degree(lying.power), each)), _tensor(total([here], each))


def _first(_: Context, operands: _Tensors) -> Tensor:
    return operands[0]


def _exchanged(call: Call) -> Callable[[Context, _Tensors], Tensor]:
    def made(ctx: Context, operands: _Tensors) -> Tensor:
        result = own_part(ctx, call, operands[0]) if call.op == "part" else exchange(ctx, call, operands[0])
        assert isinstance(result, Tensor)
        return result

    return made


def _scaled(factor: Poly) -> Callable[[Context, _Tensors], Tensor]:
    return lambda _, operands: operands[0].map(lambda body: product(factor, body))


def _added(_: Context, operands: _Tensors) -> Tensor:
    left, right = (o.pieces[GROUP].body for o in operands)
    return _tensor(left + right)


def _updated(ctx: Context, operands: _Tensors) -> Tensor:
    theta, omega, gradient = (o.pieces[GROUP].body for o in operands)
    return _tensor(update_value(ctx.world, "parameters", GROUP, (theta, omega, gradient), ONE))
