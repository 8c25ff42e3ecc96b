"""What kernels move: against counts by hand, and what is so of any program."""

from __future__ import annotations

from fractions import Fraction

import pytest
import sympy
from gpt_blocks import LAYER, block

from placeproof.core.diagnostics import InputError
from placeproof.cost.blocks.flops import Work, operations
from placeproof.cost.blocks.kernels import kernels, moved
from placeproof.cost.blocks.layer import Layer, layer
from placeproof.cost.blocks.tensors import SizeError
from placeproof.models.programs import block_program, blocks
from placeproof.programs import Program, read
from placeproof.programs.ops import COLLECTIVES

HEAD = """\
mesh(ep)
tensor(x, batch, tokens, hidden)
tensor(ids, batch, tokens, picks=vocab)
tensor(same, keys, picks=tokens)
tensor(route, batch, tokens, choices, picks=experts)
tensor(table, vocab, hidden)
tensor(w, hidden, ffn)
tensor(bias, ffn)
tensor(gain, hidden)
tensor(dy, batch, tokens, hidden)
"""
#: Different primes, so that a product of some of them is no product of others.
SIZES = {"batch": 2, "tokens": 3, "keys": 3, "hidden": 5, "ffn": 7, "vocab": 11, "experts": 13, "choices": 17}
DEGREES = {"ep": 13}
bt, bth, btf = 2 * 3, 2 * 3 * 5, 2 * 3 * 7

#: A line of forward -> elements that it reads and writes, and positions, of 8 bytes each, that it reads.
MOVED: dict[str, tuple[int, int]] = {
    "x * gain": (2 * bth + 5, 0),
    "x * x + x": (2 * bth, 0),
    "1 / x": (2 * bth, 0),
    "x * 2 + 1": (2 * bth, 0),
    "elementwise(gelu, x)": (2 * bth, 0),
    "elementwise(stop, x)": (0, 0),
    "total(x, over=hidden)": (bth + bt, 0),
    "total(total(total(x, over=hidden), over=tokens), over=batch)": (bth, 0),
    "contract(x, gain, over=hidden)": (bth + 5 + bt, 0),
    "copy(x)": (2 * bth, 0),
    "gain * gain": (0, 0),
    # Products of matrices, and what is within and without them.
    "contract(x, w, over=hidden)": (0, 0),
    "contract(x, w, over=hidden) + bias": (0, 0),
    "total(contract(x, w, over=hidden), over=ffn)": (0, 0),
    "contract(x, w, over=hidden) * bias": (2 * btf + 7, 0),
    "elementwise(gelu, contract(x, w, over=hidden) + bias)": (2 * btf, 0),
    "contract(x, w, over=hidden) + total(x, over=hidden)": (2 * btf + bth, 0),
    "largest(contract(x, w, over=hidden), over=ffn)": (btf + bt, 0),
    "contract(x * x, w, over=hidden)": (2 * bth, 0),
    "x + contract(contract(x * x, w, over=hidden) * 2, w, over=ffn)": (2 * bth + 2 * btf + 3 * bth, 0),
    # Rows that are looked up, added up, and picked.
    "contract(hot(ids), table, over=vocab)": (2 * bth, bt),
    "contract(hot(ids), table, over=vocab) + x": (3 * bth, bt),
    "contract(hot(ids), x, over=tokens)": (bth + 2 * 11 * 5, bt),
    "contract(hot(same), x, over=tokens)": (0, 0),
    "contract(hot(same), contract(hot(same), x * 2, over=tokens), over=keys) + x": (2 * bth, 0),
    "elementwise(gelu, hot(route) * x)": (bth + 17 * bth, 17 * bt),
    # Collectives are between kernels.
    "all_reduce(x, ep)": (0, 0),
    "all_reduce(x * x, ep)": (2 * bth, 0),
    "elementwise(gelu, all_reduce(x * x, ep))": (4 * bth, 0),
    "x * x + all_reduce(x, ep)": (3 * bth, 0),
    "(x * x) * all_reduce(x * 3, ep)": (2 * bth + 3 * bth, 0),
    "(x * x) * all_reduce(x * x, ep)": (2 * bth + 3 * bth, 0),
}


def written(line: str) -> Program:
    return read(f"{HEAD}y = x\nz = {line}\nreturns(y)\nreturns(dy, gradient_of=y, by=x, at=dy)\n")


@pytest.mark.parametrize("line", MOVED)
def test_what_lines_move(line: str) -> None:
    elements, positions = MOVED[line]
    for width in (1, 3):
        found = moved(written(line), SIZES, DEGREES, width)
        assert found == Work(forward=width * elements + 8 * positions, again=0, inputs=0, weights=0)


def test_a_value_that_two_read_is_written_for_the_other() -> None:
    """`u` is read within the kernel that makes it, and by a product; `v` within alone; `n`, which is handed on, is written though nothing
    else reads it."""
    program = read(
        f"{HEAD}u = x * 2\nv = u + 1\nn = v * v\nz = contract(u, w, over=hidden)\nreturns(n)\n"
        "dx = dy * (4 * v)\nreturns(dx, gradient_of=n, by=x, at=dy)\n"
    )
    first, product, last = kernels(program)
    assert ([m.name for m in first.reads], [m.name for m in first.writes]) == (["x"], ["u", "v", "n"])  # backward reads v
    assert [m.name for m in product.reads] == ["u", "w"]
    assert product.product
    assert ([m.name for m in last.reads], [m.name for m in last.writes]) == (["v", "dy"], ["dx"])
    assert (first.kind, product.kind, last.kind) == ("forward", "forward", "inputs")


def test_widths_degrees_and_loads_count() -> None:
    program = written("elementwise(gelu, hot(route) * x)")
    assert moved(program, SIZES, DEGREES, 2, {"x": 5}).forward == 5 * bth + 2 * 17 * bth + 8 * 17 * bt
    experts = written("elementwise(gelu, part(hot(route) * x, ep, dim=experts))")
    for load in (1, Fraction(3, 2), 13):
        assert moved(experts, SIZES, DEGREES, 2, load=load).forward == 2 * bth + Fraction(2 * 17 * bth * load, 13) + 8 * 17 * bt
    with pytest.raises(SizeError, match="size of dimension `choices`"):
        moved(program, {k: v for k, v in SIZES.items() if k != "choices"}, DEGREES, 2)
    with pytest.raises(InputError):
        moved(read("mesh(dp)\ng = backward(parameters)\n"), {}, {}, 2)


def test_rounds_of_a_ring_are_done_once_for_each_other_device() -> None:
    text = (
        "mesh(ep)\ntensor(x, batch, tokens, hidden)\ntensor(dy, batch, tokens, hidden)\nv = copy(x)\nz = x * 0\n"
        "for r in rounds[ep]:\n    v = shift(v, ep)\n    z += v * v\n"
        "returns(z)\nreturns(dy, gradient_of=z, by=x, at=dy)\n"
    )
    assert moved(read(text), SIZES, {"ep": 4}, 1).forward == 2 * bth + 2 * bth + 3 * 3 * bth


# A layer of GPT, by hand.

b, s, h, a = sympy.symbols("b s h a")
GPT = {"batch": b, "tokens": s, "keys": s, "hidden": h, "heads": a, "width": h / a, "ffn": 4 * h}
MASKS = {"mask": 1, "drop": 1}
STREAM, SCORES = b * s * h, a * b * s**2


def gpt() -> Layer:
    return layer([block(name) for name in LAYER])


def of_gpt(one: Layer) -> Work:
    found = one.kernels(GPT, {}, 2, MASKS).moved
    return Work(**{k: sympy.expand(getattr(found, k)) for k in ("forward", "again", "inputs", "weights")})


#: Forward: two norms read the stream and write theirs, with a gain and a bias; dropout of the probabilities reads scores and a mask of
#: bytes, and writes them before and after; two residuals read a branch, a mask and the stream, and write it; GELU reads and writes four
#: times as much.
FORWARD = 2 * (4 * STREAM + 4 * h) + 7 * SCORES + 2 * 7 * STREAM + 16 * STREAM
#: Backward, in the order of the text: dropout of the MLP, with the sums for a bias; GELU, likewise; the second norm, with sums for a gain;
#: the stream's gradient with dropout of attention; that of the probabilities; the sum over q, k and v; the first norm; the stream's
#: gradient.
INPUTS = (
    (5 * STREAM + 2 * h)
    + (24 * STREAM + 8 * h)
    + (6 * STREAM + 4 * h)
    + (9 * STREAM + 2 * h)
    + 7 * SCORES
    + 8 * STREAM
    + (6 * STREAM + 4 * h)
    + 6 * STREAM
)
#: Sums for the biases of two norms, of q, k and v.
WEIGHTS = 5 * (2 * STREAM + 2 * h)


def test_a_layer_of_gpt_moves_what_is_counted_by_hand() -> None:
    assert of_gpt(gpt()) == Work(forward=sympy.expand(FORWARD), again=0, inputs=sympy.expand(INPUTS), weights=sympy.expand(WEIGHTS))


def test_what_is_computed_again_is_moved_again() -> None:
    """Forward does not write the probabilities before dropout then: only backward reads them."""
    assert of_gpt(gpt().full()) == Work(
        forward=sympy.expand(FORWARD - 2 * SCORES),
        again=sympy.expand(FORWARD),
        inputs=sympy.expand(INPUTS),
        weights=sympy.expand(WEIGHTS),
    )


def test_tensor_parallelism_splits_what_is_between_its_products() -> None:
    """Four devices: a quarter of what GELU reads and writes; the residual whole, and split with sequence parallelism."""
    whole = moved(block("mlp_gpt"), GPT, {}, 2, MASKS).forward
    assert sympy.expand(whole) == 16 * STREAM + 7 * STREAM
    parts = {plan: sympy.expand(moved(block("mlp_gpt", plan), GPT, {"tp": 4}, 2, MASKS).forward) for plan in ("tp", "sp")}
    assert parts["tp"] == 4 * STREAM + 7 * STREAM + 2 * h  # a bias is added behind the all-reduce
    assert parts["sp"] == 4 * STREAM + 7 * STREAM / 4 + 2 * h


def test_nothing_is_written_along_what_is_inside() -> None:
    """Attention is a kernel forward, and one backward with the sum of do * o before it."""
    program, inside = block_program("attention_flash"), frozenset({"tokens", "keys"})
    sizes = {"batch": 2, "tokens": 3, "keys": 3, "hidden": 5, "kv_heads": 7, "group": 11, "width": 13}
    apart, fused = kernels(program), kernels(program, inside)

    assert [sum(inside <= {*m.layout.dims} for k in every for m in k.writes) > 0 for every in (apart, fused)] == [True, False]
    attention = [k for k in fused if any(inside <= {*o.result.layout.dims} for o in k.operations)]
    assert [(k.kind, k.product) for k in attention] == [("forward", True), ("inputs", True)]
    assert [[m.name for m in tensors] for tensors in (attention[0].reads, attention[0].writes)] == [["q", "k", "v"], ["lse", "o"]]
    assert len(fused) < len(apart)
    residual, sums = 3 * 2 * 3 * 5, 2 * 2 * 3 * 7 * 11 * 13 + 2 * 3 * 7 * 11
    found = moved(program, sizes, {}, 1, inside=inside)
    assert (found.forward, found.inputs) == (residual, sums + 4 * 2 * 3 * 5)  # the sum over q, k and v


# What is so of any program.


@pytest.mark.parametrize("name", blocks())
def test_kernels_run_everything_once_and_in_order(name: str) -> None:
    program = block_program(name)
    for inside in (frozenset[str](), frozenset({"tokens", "keys"})):
        every = kernels(program, inside)
        run = [o for kernel in every for o in kernel.operations]
        assert len({id(o) for o in run}) == len(run)
        made: set[int] = set()
        later = {id(o.result.stored) for o in run}
        for kernel in every:
            own: set[int] = set()
            for o in kernel.operations:
                assert all(id(v.stored) in made | own or id(v.stored) not in later for v in o.reads), (name, o.op)
                own.add(id(o.result.stored))
            made |= own
        left_out = [o for o in operations(program) if o not in run and o.op not in COLLECTIVES]
        assert all(o.result.view is not None or o.op in ("part", "contract") or not (o.result.data or o.result.incoming) for o in left_out)
        assert sum(o.product for o in run) == sum(o.product for o in operations(program))
