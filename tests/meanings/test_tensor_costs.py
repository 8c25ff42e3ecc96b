"""What blocks send and keep: against tables written by hand, the proof's own shapes, and arrays that the simulator really holds."""

from __future__ import annotations

import math
import os
from typing import Any

import pytest
import sympy
from block_oracle import block, edits
from hypothesis import given, settings
from hypothesis import strategies as st

from placeproof.blocks import BLOCKS
from placeproof.core.diagnostics import InputError
from placeproof.core.exchange import Exchange
from placeproof.cost.blocks.tensors import BlockExchange, Kept, SizeError, elements, exchanges, kept, kept_bytes
from placeproof.programs import Assign, Call, For, Program, read
from placeproof.semantics.encode.context import NoMeaningError
from placeproof.semantics.layouts.lines import lines
from placeproof.semantics.tensors import NotComputedError, Setup
from placeproof.semantics.tensors.arrays import Arrays, Held
from placeproof.semantics.tensors.execute import SymbolicRun
from placeproof.semantics.tensors.groups import Groups
from placeproof.semantics.tensors.machine import Machine
from placeproof.semantics.tensors.simulate import machine
from placeproof.semantics.tensors.values import Space, Value

#: How many random edits are tried.
MANY = 1_000 if os.environ.get("PLACEPROOF_PROFILE") == "nightly" else 60


#: A header to write small programs under.
HEAD = """\
mesh(dp, tp)
tensor(x, tokens, hidden)
tensor(ids, tokens, picks=vocab)
tensor(same, keys, picks=tokens)
tensor(w, hidden, ffn, tp=ffn)
tensor(v, ffn, hidden, tp=ffn)
tensor(table, vocab, hidden)
tensor(dy, tokens, hidden)
"""


def shown(e: BlockExchange) -> tuple[str, str, str]:
    """Kind (with a reduction other than a sum), dimensions (a split one with its axes), phase."""
    split = dict(e.split)
    dims = " ".join(d + "".join(f"/{a}" for a in split.get(d, ())) for d in e.dims)
    return e.kind + (f" {e.op}" if e.op not in ("", "sum") else ""), dims, e.phase


def held(k: Kept) -> str:
    split = dict(k.split)
    return f"{k.name}: " + " ".join(d + "".join(f"/{a}" for a in split.get(d, ())) for d in k.dims)


#: By hand, from the texts of the blocks: what each sends, and what each keeps.
SENT = {
    "ring_attention": [
        *[("shift", "batch kv_heads width keys/cp", "forward")] * 2,
        *[("shift", "batch kv_heads width keys/cp", "backward")] * 6,
    ],
    "mlp": [("all_reduce", "tokens hidden", "forward"), ("all_reduce", "tokens hidden", "backward")],
    "mlp_sharded_output": [("all_reduce", "tokens hidden", "backward")],
    "swiglu": [("all_reduce", "tokens hidden", "forward"), ("all_reduce", "tokens hidden", "backward")],
    "attention": [
        ("all_reduce", "queries hidden", "forward"),
        ("all_reduce", "queries hidden", "backward"),
        ("all_reduce", "hidden keys", "backward"),
    ],
    "gqa": [
        ("all_reduce", "queries hidden", "forward"),
        ("all_reduce", "keys width", "backward"),
        ("all_reduce", "keys width", "backward"),
        ("all_reduce", "queries hidden", "backward"),
    ],
    "embedding": [("all_reduce", "tokens hidden", "forward")],
    "cross_entropy": [("all_reduce max", "tokens", "forward"), ("all_reduce", "tokens", "forward"), ("all_reduce", "tokens", "forward")],
    "norm": [
        ("all_gather", "tokens hidden", "forward"),
        ("reduce_scatter", "tokens hidden", "forward"),
        ("all_gather", "tokens hidden", "backward"),
        ("reduce_scatter", "tokens hidden", "backward"),
        ("all_reduce", "hidden", "backward"),
    ],
}
PROBABLE = ["p: queries keys heads/tp", "o: queries heads/tp width"]
KEPT = {
    "ring_attention": [
        "q: batch tokens/cp kv_heads group width",
        "k: batch kv_heads width keys/cp",
        "v: batch kv_heads width keys/cp",
        "lse: batch tokens/cp kv_heads group",
        "o: batch tokens/cp kv_heads group width",
    ],
    "mlp": ["x: tokens hidden", "h: tokens ffn/tp", "a: tokens ffn/tp"],
    "mlp_sharded_output": ["x: tokens hidden", "h: tokens ffn/tp"],
    "swiglu": ["x: tokens hidden", "g: tokens ffn/tp", "u: tokens ffn/tp", "s: tokens ffn/tp", "a: tokens ffn/tp"],
    "attention": [
        "xq: queries hidden",
        "xk: hidden keys",
        "q: queries heads/tp width",
        "k: keys heads/tp width",
        "v: keys heads/tp width",
        *PROBABLE,
    ],
    "gqa": ["xq: queries hidden", "xk: hidden keys", "q: queries heads/tp width", "k: keys width", "v: keys width", *PROBABLE],
    "embedding": ["ids: tokens"],
    "cross_entropy": ["target: tokens", "e: tokens vocab/tp", "z: tokens"],
    "norm": [
        "x: tokens/tp hidden",
        "s: tokens/tp",
        "r: tokens/tp",
        "n: tokens/tp hidden",
        "full: tokens hidden",
        "h: tokens ffn/tp",
        "a: tokens ffn/tp",
    ],
}


@pytest.mark.parametrize("name", BLOCKS)
def test_what_our_blocks_send_and_keep(name: str) -> None:
    program = block(name)
    assert [shown(e) for e in exchanges(program)] == SENT[name]
    assert [held(k) for k in kept(program)] == KEPT[name]
    assert {e.axes for e in exchanges(program)} == {tuple(a.name for a in program.axes)}


def test_every_exchange_and_every_kept_value_has_its_line() -> None:
    program = block("norm")
    assert [e.line for e in exchanges(program)] == [12, 15, 17, 21, 22]
    assert [k.line for k in kept(program)] == [4, 9, 10, 11, 12, 13, 14]


# Against what devices really hold.


class Watched(Groups):
    """Collectives that note what they are about: how many numbers a device has, on all devices as many."""

    def __init__(self, arrays: Arrays) -> None:
        super().__init__(arrays)
        self.moved: list[tuple[str, int]] = []

    def __call__(self, call: Call, x: Held, active: Any) -> Held:
        result = super().__call__(call, x, active)
        if call.op != "part":
            self.moved.append((call.op, elements_of(result if call.op == "all_gather" else x)))
        return result


def elements_of(held: Held) -> int:
    assert all(p.full for p in held.places.values())
    return math.prod(p.longest for p in held.places.values())


def watched(program: Program, degrees: dict[str, int], sizes: dict[str, int]) -> tuple[Machine, Watched]:
    """A run, in fractions or in residues, whichever can be computed."""
    for setup in (Setup(degrees=degrees, sizes=sizes, seed=seed, exact=exact) for seed in range(1, 9) for exact in (True, False)):
        found = machine(program, setup)
        found.groups = watching = Watched(found.arrays)
        try:
            found.run()
        except NotComputedError:
            continue
        return found, watching
    raise AssertionError("no run could be computed")


def dimensions(program: Program) -> dict[str, bool]:
    """Every dimension, and whether an axis splits it somewhere."""
    found: dict[str, bool] = {}
    for tensor in program.tensors:
        for dim in (*tensor.dims, *([tensor.picks] if tensor.picks else [])):
            found[dim] = found.get(dim, False) or dim in dict(tensor.split).values()
    return found


@pytest.mark.parametrize("name", BLOCKS)
@settings(max_examples=4)
@given(data=st.data())
def test_amounts_are_those_of_the_arrays_that_a_run_holds(name: str, data: st.DataObject) -> None:
    program = block(name)
    (axis,) = (a.name for a in program.axes)
    degree = data.draw(st.integers(1, 3), label=axis)
    draw = {dim: data.draw(st.integers(1, 2), label=dim) * (degree if split else 1) for dim, split in dimensions(program).items()}
    ended, watching = watched(program, {axis: degree}, draw)
    degrees = {axis: degree}
    sent = [(e.kind, e.elements(draw, degrees)) for e in exchanges(program) for _ in range(e.times(degrees))]
    assert sorted(sent) == sorted(watching.moved)
    if not rings(program):
        assert sent == watching.moved
    for k in kept(program):
        assert {k.elements(draw, degrees)} == {elements_of(ended.read(k.name))}


# Against the proof's own shapes.


def rings(program: Program) -> bool:
    return any(isinstance(stmt, For) for stmt in program.body)


def same_shapes(program: Program) -> bool:
    """Whether the encoding has a meaning for the program; if it has one, every buffer's shape has to be ours."""
    run = SymbolicRun(Space.of(program))
    try:
        run.all()
    except NoMeaningError:
        return False
    ours = {line.stmt.targets[0].name: line.result.layout for line in lines(program) if isinstance(line.stmt, Assign)}
    assert ours
    for name, value in ours.items():
        theirs = run.env.get(name)
        if theirs is None and rings(program):  # what is left of the last round, and nobody may read
            continue
        assert theirs is not None
        assert set(value.dims) == theirs.dims, name
        assert dict(value.split) == dict(theirs.split), name
        assert not isinstance(theirs, Value) or value.loose == theirs.loose, name
    return True


@pytest.mark.parametrize("name", BLOCKS)
def test_shapes_are_those_of_the_proof(name: str) -> None:
    assert same_shapes(block(name))


@settings(max_examples=MANY)
@given(name=st.sampled_from([b for b in BLOCKS if b not in ("attention", "gqa")]), data=st.data())
def test_shapes_of_edited_blocks_are_those_of_the_proof(name: str, data: st.DataObject) -> None:
    _, make = data.draw(st.sampled_from(edits(block(name))), label="edit")
    same_shapes(make())


def test_shapes_of_parts_are_those_of_the_proof() -> None:
    written = (
        "a = part(part(x, dp, dim=tokens), tp, dim=tokens)\nb = all_gather(a, dp, tp)\nc = part(hot(ids), tp, dim=vocab)\nd = hot(ids)\n"
    )
    program = read(f"{HEAD}{written}returns(b)\n")
    assert same_shapes(program)
    assert dict(lines(program)[0].result.layout.split) == {"tokens": ("dp", "tp")}


def test_partial_sums() -> None:
    program = read(
        HEAD + "p = contract(x, w, over=hidden)\nq = contract(p, v, over=ffn)\nt = total(q * q, over=tokens)\n"
        "y = all_reduce(q + x, tp)\nm = largest(p, over=ffn)\nb = broadcast(q, tp)\nc = all_reduce(q, tp, op=max)\n"
        "z = reduce_scatter(q, tp, dim=tokens)\nreturns(y)\n"
    )
    partial = {line.result.name: line.result.layout.partial for line in lines(program) if line.result.name}
    assert {n for n, axes in partial.items() if axes} == {"q", "t", "b", "c"}
    assert set(partial) == {"p", "q", "t", "y", "m", "b", "c", "z"}
    assert {axes for axes in partial.values() if axes} == {frozenset({"tp"})}


# What is sent.


def test_collectives_and_what_they_are_about() -> None:
    program = read(
        "mesh(dp, tp)\ntensor(x, tokens, hidden, dp=tokens, tp=hidden)\ntensor(z, tokens, hidden, dp=tokens, tp=tokens)\n"
        "a = all_gather(x, tp)\nb = all_gather(x, dp)\nc = all_gather(z, dp, tp)\nd = reduce_scatter(a, tp, dim=hidden)\n"
        "e = all_reduce(total(a, over=tokens), dp, tp, op=max)\nf = broadcast(total(b, over=hidden), tp)\n"
        "g = reduce(a, tp, op=mean)\nh = reduce_scatter(c, tp, dp, dim=tokens)\nreturns(all_reduce(c, tp, dp))\n"
    )
    found, both = exchanges(program), ("dp", "tp")
    assert [shown(e)[:2] for e in found] == [
        ("all_gather", "tokens/dp hidden"),
        ("all_gather", "tokens hidden/tp"),
        ("all_gather", "tokens hidden"),
        ("reduce_scatter", "tokens/dp hidden"),
        ("all_reduce max", "hidden"),
        ("broadcast", "tokens"),
        ("reduce mean", "tokens/dp hidden"),
        ("reduce_scatter", "tokens hidden"),
        ("all_reduce", "tokens hidden"),
    ]
    assert [e.axes for e in found] == [("tp",), ("dp",), both, ("tp",), both, ("tp",), ("tp",), both, both]
    assert [e.op for e in found] == ["", "", "", "sum", "max", "", "mean", "sum", "sum"]
    assert dict(lines(program)[7].result.layout.split) == {"tokens": ("tp", "dp")}


def test_an_exchange_in_numbers() -> None:
    first, last = exchanges(block("swiglu"))
    sizes, degrees = {"tokens": 6, "hidden": 5, "ffn": 8}, {"tp": 4}
    assert first.exchange(sizes, degrees, 2) == Exchange(kind="all_reduce", axes=("tp",), bytes=60, op="sum", phase="forward")
    assert last.exchange(sizes, degrees, 4) == Exchange(kind="all_reduce", axes=("tp",), bytes=120, op="sum", phase="backward")


# Amounts.

NAMES = ("a", "b", "c", "d")
AXES = ("p", "q")


@st.composite
def tensors(draw: st.DrawFn) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]], dict[str, int], dict[str, int]]:
    """Dimensions, which of them are split, sizes that the degrees divide, and degrees."""
    dims = tuple(draw(st.lists(st.sampled_from(NAMES), unique=True)))
    degrees = {a: draw(st.integers(1, 6)) for a in AXES}
    split: dict[str, tuple[str, ...]] = {}
    for axis in AXES if dims else ():
        dim = draw(st.sampled_from([*dims, ""]))
        if dim:
            split[dim] = (*split.get(dim, ()), axis)
    sizes = {d: draw(st.integers(1, 9)) * math.prod(degrees[a] for a in split.get(d, ())) for d in dims}
    return dims, split, sizes, degrees


@given(tensors())
def test_elements_of_a_part(drawn: tuple[tuple[str, ...], dict[str, tuple[str, ...]], dict[str, int], dict[str, int]]) -> None:
    dims, split, sizes, degrees = drawn
    amount = elements(dims, tuple(split.items()), sizes, degrees)
    axes = [a for s in split.values() for a in s]
    assert amount * math.prod(degrees[a] for a in axes) == math.prod(sizes[d] for d in dims)
    assert isinstance(amount, int)
    names = {n: sympy.Symbol(n) for n in (*NAMES, *AXES)}
    formula = elements(dims, tuple(split.items()), names, names)
    assert sympy.sympify(formula).subs({names[n]: v for n, v in (sizes | degrees).items()}) == amount


def test_amounts_with_some_numbers_and_some_symbols() -> None:
    t = sympy.Symbol("t")
    assert elements(("tokens", "ffn"), (("ffn", ("tp",)),), {"tokens": 3, "ffn": 8}, {"tp": t}) == 24 / t
    assert elements(("tokens", "ffn"), (("ffn", ("tp",)),), {"tokens": 3, "ffn": t}, {"tp": 2}) == 3 * t / 2
    assert elements((), (), {}, {}) == 1


def test_bytes_by_width() -> None:
    program = block("cross_entropy")
    sizes, degrees = {"tokens": 5, "vocab": 12}, {"tp": 3}
    # target: 5 positions of 8 bytes; e: 5 * 12 / 3 numbers; z: 5.
    assert kept_bytes(program, sizes, degrees, 2) == 5 * 8 + 20 * 2 + 5 * 2
    assert kept_bytes(program, sizes, degrees, 2, {"z": 4, "nobody": 9}) == 5 * 8 + 20 * 2 + 5 * 4
    b = sympy.Symbol("b")
    assert sympy.expand(kept_bytes(program, sizes, degrees, b) - (40 + 25 * b)) == 0


def test_a_degree_that_the_program_fixes_need_not_be_given() -> None:
    tensors = "tensor(x, tokens, hidden, tp=tokens)\ntensor(dy, tokens, hidden, tp=tokens)\n"
    fixed = read(f"mesh(tp=4)\n{tensors}y = x * x\nreturns(2 * x * dy, gradient_of=y, by=x, at=dy)\n")
    assert kept_bytes(fixed, {"tokens": 8, "hidden": 3}, {}, 2) == 12
    assert kept_bytes(fixed, {"tokens": 8, "hidden": 3}, {"tp": 2}, 2) == 24


SIZES = {
    "a size that is missing": ({"tokens": 4}, {"tp": 2}, "the size of dimension `ffn` is not given", "PP203"),
    "a degree that is missing": ({"tokens": 4, "ffn": 8}, {}, "the degree of axis `tp` is not given", "PP203"),
    "a degree that does not divide": (
        {"tokens": 4, "ffn": 8},
        {"tp": 3},
        "axis `tp` of degree 3 splits dimension `ffn` of size 8, which it does not divide",
        "PP202",
    ),
    "no device": ({"tokens": 4, "ffn": 8}, {"tp": 0}, "axis `tp` of degree 0 splits", "PP202"),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_have_no_parts(name: str) -> None:
    sizes, degrees, message, code = SIZES[name]
    for kind in (SizeError, ValueError, InputError):
        with pytest.raises(kind) as caught:
            elements(("tokens", "ffn"), (("ffn", ("tp",)),), sizes, degrees)
        (problem,) = caught.value.diagnostics  # type: ignore[attr-defined]
        assert problem.message.startswith(message)
        assert problem.code == code
        assert problem.help


# Programs that are no blocks.

REFUSED = {
    "y = x\nif rank(tp) == 0:\n    y = x * x": "what a block costs is read off statements that every device runs once, in order",
    "for u in units:\n    y = x": "what a block costs is read off statements that every device runs once, in order",
    "y = x + contract(x, w, over=tokens)": "`contract` sums over a dimension of both operands, and `tokens` is not",
    "y = total(w, over=tokens)": "there is no dimension `tokens` to reduce",
    "y = x + part(x, tp, dim=tokens)": "one operand has all of `tokens` and the other a part of it",
    "y = all_gather(x, tp)": "`all_gather` over `tp` of what is not split over it (last)",
    "y = all_gather(part(part(x, dp, dim=tokens), tp, dim=tokens), dp)": "`all_gather` over `dp` of what is not split over it (last)",
    "y = all_reduce(contract(x, w, over=hidden), tp)": "`all_reduce` over `tp` of parts: each device has other elements along `ffn`",
    "y = broadcast(contract(x, w, over=hidden), tp)": "`broadcast` over `tp` of parts: each device has other elements along `ffn`",
    "y = reduce_scatter(x, tp)": "`reduce_scatter` needs `dim=`, a dimension of its operand that is not split over its axes",
    "y = part(part(x, tp, dim=tokens), tp, dim=tokens)": "`part` needs `dim=`, a dimension of its operand that is not split over its axes",
    "y = x + ids": "positions are no numbers; `hot(...)` makes numbers of them",
    "y = hot(x)": "`hot` takes positions: a tensor that is declared with `picks=`",
    "y = parameters * x": "`parameters` is no tensor here",
    "y = square_norm(x)": "`square_norm` means nothing in a program over tensors",
    "y = all_to_all(x, tp)": "`all_to_all` needs `dim=`",
    "zero(x)": "`zero` means nothing in a program over tensors",
    "x.part = x * x": "an assignment in a program over tensors has one plain target",
}


@pytest.mark.parametrize("written", REFUSED)
def test_what_is_no_block_is_refused_at_its_place(written: str) -> None:
    head = "group(part, 1)\n" if "x.part" in written else ""
    program = read(head + HEAD + written + "\nreturns(x)\n")
    for ask in (exchanges, kept):
        with pytest.raises(InputError) as caught:
            ask(program)
        (problem,) = caught.value.diagnostics
        assert problem.code == "PP309"
        assert problem.message.startswith(REFUSED[written])
        assert problem.place is not None
        assert problem.place.line >= HEAD.count("\n") + 1


WHOLE = {
    "a program about states": ("mesh(dp)\ng = all_reduce(backward(parameters), dp)\n", "this program declares no tensor"),
    "an axis with sub-groups": ("mesh(tp)\ninner(tp=2)\ntensor(x, tokens)\nreturns(x)\n", "axis `tp` has sub-groups"),
    "dimensions of other names": (
        "mesh(tp)\ntensor(x, seq, hidden)\ntensor(dy, seq, hidden)\ny = x * x\nreturns(2 * dy * x, gradient_of=y, by=x, at=dy)\n",
        "no tensor of this program is an activation",
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_no_block_at_all(name: str) -> None:
    text, message = WHOLE[name]
    with pytest.raises(InputError) as caught:
        kept(read(text))
    (problem,) = caught.value.diagnostics
    assert message in problem.message
    if name == "dimensions of other names":
        assert problem.help == "call these dimensions `batch`, `keys`, `queries`, `tokens`"
