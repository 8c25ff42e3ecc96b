"""The table of what operations make of layouts: a row or a reason for each, and for each the parts that terms and arrays have, too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from placeproof.collectives import CONVERSIONS, AxisLayout, Conversion
from placeproof.core.diagnostics import InputError
from placeproof.programs import Assign, Call, Program, Ref, read
from placeproof.programs.ops import COLLECTIVES, OPS
from placeproof.programs.wellformed import TENSOR_OPS
from placeproof.semantics.encode.context import NoMeaningError
from placeproof.semantics.layouts.layout import Layout
from placeproof.semantics.layouts.lines import lines
from placeproof.semantics.layouts.operations import LAYOUTS, NO_LAYOUT, MisfitError, result
from placeproof.semantics.results import RESULTS, result_of
from placeproof.semantics.tensors import NotComputedError, Setup
from placeproof.semantics.tensors.arrays import Held
from placeproof.semantics.tensors.execute import SymbolicRun
from placeproof.semantics.tensors.setup import FaultError
from placeproof.semantics.tensors.simulate import machine
from placeproof.semantics.tensors.values import Space, Value
from placeproof.semantics.values import Kind
from placeproof.semantics.values import Value as States

HEAD = """mesh(tp, cp)
tensor(x, tokens, hidden, cp=tokens)
tensor(w, hidden, ffn, tp=ffn)
tensor(b, hidden)
tensor(both, hidden, ffn, cp=ffn, tp=ffn)
tensor(same, keys, picks=tokens)
h = hot(same)
k = random(draw=0)
p = contract(w, w, over=ffn)
"""
#: A buffer of each way to lie: split by one axis, by another, by two, whole, positions, loose, a number, a partial sum, nothing at all.
OPERANDS = ("x", "w", "both", "b", "same", "h", "k", "p", "2")
DIMS = ("tokens", "hidden", "ffn", "keys")
#: What a resolved program always says.
OPTIONS = {"root": ("0",), "draw": ("1",)}
SETUP = Setup(degrees={"tp": 2, "cp": 2}, sizes=dict.fromkeys(DIMS, 4), exact=False)
#: Whose results differ between devices though they are neither split nor partial sums.
APART = ("random", "reduce", "shift", "largest")


def calls_of(name: str) -> Iterator[str]:
    """Calls of an operation: each kind of operand, each set of axes, each dimension."""
    op = OPS[name]
    functions = ("f", "stop") if name == "elementwise" else ("f",) if name == "slope" else (None,)
    names = [o for o, _ in op.options]
    valued = [(o, OPTIONS.get(o, DIMS)) for o in ("dim", "over", "root", "draw") if o in names]
    options: list[str | None] = [f"{o}={value}" for o, values in valued for value in values] or [None]
    options += ["op=max"] if "op" in names and name == "all_reduce" else []
    axes = ("tp", "cp", "tp, cp") if name in COLLECTIVES or name == "part" else (None,)
    operands = itertools.product(OPERANDS, repeat=len(op.operands) - (name in ("elementwise", "slope")))
    for function, some, along, option in itertools.product(functions, operands, axes, options):
        yield f"{name}({', '.join(part for part in (function, *some, along, option) if part is not None)})"


def program_of(call: str) -> Program | None:
    try:
        return read(f"{HEAD}y = {call}\nreturns(x)\n")
    except InputError:  # not well-formed, which is not for the table to say
        return None


def ours(program: Program) -> Layout | None:
    try:
        return lines(program)[3].result.layout
    except InputError:
        return None


def terms(program: Program) -> Value | None:
    run = SymbolicRun(Space.of(program))
    try:
        run.all()
    except NoMeaningError:
        return None
    value = run.env["y"]
    return value if isinstance(value, Value) else None


def arrays(program: Program) -> Held | None:
    run = machine(program, SETUP)
    try:
        run.run()
        return run.read("y")
    except (NotComputedError, FaultError, ZeroDivisionError):
        return None


def alike_along(held: Held, axis: str) -> bool:
    """Whether all devices along an axis hold the same numbers."""
    along = 1 + tuple(SETUP.degrees).index(axis)
    return bool((held.data == held.data.take([0], axis=along)).all())


@cache
def tried(name: str) -> tuple[int, int, int]:
    """How many calls have a layout, and of these a meaning as terms, and as arrays; each compared."""
    counted = [0, 0, 0]
    for call in calls_of(name):
        if (program := program_of(call)) is None:
            continue
        layout, term = ours(program), terms(program)
        if layout is None:
            assert term is None, call
            continue
        held = arrays(program)
        counted = [n + (v is not None) for n, v in zip(counted, (layout, term, held), strict=True)]
        if term is not None:
            assert (set(layout.dims), dict(layout.split), layout.loose) == (term.dims, dict(term.split), term.loose), call
        if held is not None:
            assert (set(layout.dims), layout.split, layout.loose) == (set(held.dims), held.split, held.loose), call
            for axis in SETUP.degrees:
                if name not in APART and axis not in layout.states:
                    assert alike_along(held, axis), (call, axis)
    return counted[0], counted[1], counted[2]


def test_every_operation_has_a_row_or_a_reason_why_not() -> None:
    assert set(LAYOUTS) | set(NO_LAYOUT) == set(OPS)
    assert not set(LAYOUTS) & set(NO_LAYOUT)
    assert {op for op in TENSOR_OPS if OPS[op].results != (0, 0)} <= set(LAYOUTS)
    assert all(NO_LAYOUT.values())


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_row_says_which_parts_terms_and_arrays_have(name: str) -> None:
    assert all(tried(name)), tried(name)


@pytest.mark.parametrize("name", NO_LAYOUT)
def test_what_has_no_row_has_no_meaning_over_tensors(name: str) -> None:
    """Of a program that reads like one over tensors, but for this call, nobody makes anything."""
    op = OPS[name]
    inner = Call(op="all_reduce", args=(Ref(name="x"),), axes=("tp",)) if name == "start" else Ref(name="x")
    call = Call(op=name, args=(inner,) * max(1, len(op.operands)), axes=("tp",) if name in COLLECTIVES else ())
    with pytest.raises(MisfitError, match=f"`{name}` means nothing in a program over tensors"):
        result(call, [Layout(dims=("tokens",))])
    program = read(f"{HEAD}y = copy(x)\nreturns(x)\n")
    body = tuple(replace(s, value=call) if isinstance(s, Assign) and s.targets[0].name == "y" else s for s in program.body)
    program = replace(program, body=body)
    assert (ours(program), terms(program), arrays(program)) == (None, None, None)


@pytest.mark.parametrize("conversion", CONVERSIONS, ids=lambda c: c.op)
def test_a_conversion_takes_a_tensor_from_one_layout_on_an_axis_to_the_other(conversion: Conversion) -> None:
    """What the table of collectives says of one axis, the rows here do to a tensor on that axis, whatever the other axis does."""
    dims = (("dim", "tokens"),) if "dim" in dict(OPS[conversion.op].options) else ()
    rest = Layout(dims=("tokens", "hidden"), split={"tokens": ("dp",)})
    on_axis = {
        AxisLayout.REPLICATE: rest,
        AxisLayout.SHARD: replace(rest, split={"tokens": ("dp", "tp")}),
        AxisLayout.PARTIAL: replace(rest, partial=frozenset({"tp"})),
    }
    call = Call(op=conversion.op, args=(Ref(name="x"),), axes=("tp",), options=dims)
    assert result(call, [on_axis[conversion.before]]) == on_axis[conversion.after]


# Over states.


def test_every_operation_says_what_it_makes_of_states() -> None:
    assert set(RESULTS) == set(OPS)


@pytest.mark.parametrize("conversion", CONVERSIONS, ids=lambda c: c.op)
@pytest.mark.parametrize("before", AxisLayout)
def test_a_conversion_leaves_a_state_as_the_table_of_collectives_says(conversion: Conversion, before: AxisLayout) -> None:
    """However the state lay on that axis; on the other axis it lies as it did."""
    program = read("mesh(dp, tp)\nplace(parameters, dp=S)\nG = backward(parameters)\n")
    value = States(kind=Kind.GRADIENTS).laid(("dp",), AxisLayout.SHARD).laid(("tp",), before)
    call = Call(op=conversion.op, args=(Ref(name="G"),), axes=("tp",))
    left = result_of(call, (value,), program)
    assert (left.on("tp"), left.on("dp"), left.kind) == ((conversion.after,), (AxisLayout.SHARD,), Kind.GRADIENTS)
