"""What lies in memory while a block's passes run: worked out by hand, and held against what is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import sympy

import placeproof
from placeproof.core.diagnostics import InputError
from placeproof.cost.blocks.alive import alive, products_of_one_value
from placeproof.cost.model.derivation import derive_model
from placeproof.cost.model.parts import DeviceSegment
from placeproof.implementations import find
from placeproof.models.presets import load
from placeproof.models.programs import block_program, blocks
from placeproof.programs import POSITIONS, read
from tests.helpers.samples import sample


def names(program: str, *, backward: bool) -> list[set[str]]:
    """The names of what lies there at each moment of a pass; what has none as its dimensions."""
    moments = [m for m in alive(read(program)) if m.backward == backward]
    return [{v.name if not v.name.startswith("#") else " ".join(v.layout.dims) for v in m.values} for m in moments]


SWIGLU = """
tensor(x, batch, tokens, hidden)
tensor(wg, hidden, ffn)
tensor(wu, hidden, ffn)
tensor(wd, ffn, hidden)
tensor(dy, batch, tokens, hidden)
g = contract(x, wg, over=hidden)
u = contract(x, wu, over=hidden)
s = elementwise(silu, g)
a = s * u
y = contract(a, wd, over=ffn)
returns(y)
returns(total(contract(a, dy, over=tokens), over=batch), gradient_of=y, by=wd, at=dy)
da = contract(dy, wd, over=hidden)
du = da * s
dg = da * u * slope(silu, g)
returns(total(contract(x, du, over=tokens), over=batch), gradient_of=y, by=wu, at=dy)
returns(total(contract(x, dg, over=tokens), over=batch), gradient_of=y, by=wg, at=dy)
dx = contract(dg, wg, over=ffn) + contract(du, wu, over=ffn)
returns(dx, gradient_of=y, by=x, at=dy)
"""


def test_a_gated_block_by_hand() -> None:
    """Forward ends with all that is kept and the result. In backward the gradient of the product meets what it is made with; both
    gradients of the gate are there with g and u; then with x, the sum of two products as one tensor, while gradients by weights wait."""
    assert names(SWIGLU, backward=False)[-1] == {"x", "g", "u", "s", "a", "y"}
    assert names(SWIGLU, backward=True) == [
        {"x", "g", "u", "s", "a", "dy", "da"},
        {"x", "g", "u", "s", "da", "du"},
        {"x", "g", "u", "da", "du", "dg"},
        {"x", "du", "dg", "dx"},
    ]


def test_what_a_kernel_makes_again_is_nowhere() -> None:
    again = SWIGLU.replace("du = da * s", "t = elementwise(silu, g)\ndu = da * t")
    assert all("s" not in moment and "t" not in moment for moment in names(again, backward=True))
    assert {"x", "g", "u", "da", "du", "dg"} in names(again, backward=True)  # g until dg is made


def test_gradients_by_weights_come_last_wherever_they_stand() -> None:
    """The text may claim them before or after the gradient by the input."""
    claims = [line for line in SWIGLU.splitlines() if "by=wu" in line or "by=wg" in line]
    rest = [line for line in SWIGLU.splitlines() if line not in claims]
    late = "\n".join([*rest[:-1], *claims, rest[-1]])
    most = {frozenset(m) for m in names(SWIGLU, backward=True)}
    assert frozenset({"x", "du", "dg", "dx"}) in most
    assert {frozenset(m) for m in names(late, backward=True)} >= most - {frozenset({"x", "g", "u", "s", "da", "du"})}


def test_one_tensor_for_what_is_written_over() -> None:
    head = block_program("head")
    shared = (frozenset({"logits", "shifted", "e", "p", "dlogits"}),)
    for moment in alive(head, shared):
        of_vocabulary = [v for v in moment.values if {"vocab", "tokens"} <= set(v.layout.dims)]
        assert len(of_vocabulary) <= 1
    apart = max(sum({"vocab", "tokens"} <= set(v.layout.dims) for v in moment.values) for moment in alive(head))
    assert apart > 1


@pytest.mark.parametrize("name", ["attention_flash", "attention"])
def test_attention_has_scores_in_memory_only_where_it_keeps_them(name: str) -> None:
    squares = [v for m in alive(block_program(name)) for v in m.values if {"keys", "tokens"} <= set(v.layout.dims)]
    assert bool(squares) == (name == "attention")


def test_the_backward_of_fused_attention_is_one_kernel() -> None:
    """By hand: what it reads lies there until the last of the three gradients is made, and with nothing between them."""
    moments = [{v.name for v in m.values} for m in alive(block_program("attention_flash")) if m.backward]
    assert {"n", "q", "k", "v", "lse", "o", "do", "dq", "dk", "dv"} in moments
    assert all({"q", "k", "v", "o"} <= m or "dv" in m for m in moments if "dq" in m)
    kept = [{v.name for v in m.values} for m in alive(block_program("attention")) if m.backward]
    assert not any({"q", "k", "v", "dq", "dk", "dv"} <= m for m in kept)  # scores that are kept are read by kernels of their own


@pytest.mark.parametrize("name", blocks())
def test_no_weight_is_an_activation(name: str) -> None:
    """Neither weights nor gradients by them: the step has these."""
    program = block_program(name)
    own = {t.name for t in program.tensors if POSITIONS.isdisjoint(t.dims)}
    for moment in alive(program):
        for value in moment.values:
            assert value.name not in own or not value.layout.dims  # `dy` of a loss is one number
            assert not value.layout.dims or not POSITIONS.isdisjoint(value.layout.dims), (name, value.name, value.layout.dims)


def test_matrices_that_multiply_one_value_are_one() -> None:
    assert products_of_one_value(block_program("swiglu")) == (("w1", "w3"), ("w2",))
    assert products_of_one_value(block_program("attention_flash")) == (("wq", "wk", "wv"), ("wo",))


STRATEGIES = ("ddp", "tp(2) * sp", "tp(2)", "cp(2)", "cp(2, attention=ulysses) * tp(2) * sp", "ep(2)", "lora * fsdp(2)")


def segments() -> Iterator[tuple[str, DeviceSegment]]:
    for model, strategy in sample([(m, s) for m in MODELS for s in STRATEGIES], lambda pair: pair):
        try:
            d = derive_model(load(model), placeproof.strategy(strategy))
        except InputError:
            continue
        yield from ((f"{model} under {strategy}", part) for part in d.parts)


MODELS = ("llama3-8b", "gpt3-175b", "mixtral-8x7b", "deepseek-v3", "gemma2-9b", "gpt-oss-20b", "bloom-176b", "command-r-35b")


def test_backward_begins_with_all_that_is_kept() -> None:
    """What is kept, by :mod:`placeproof.cost.blocks.tensors`, lies there as forward ends, and as backward begins."""
    seen = 0
    for what, part in segments():
        layer = part.layer
        kept = Counter((s.block, s.name) for s in layer.kept() if s.dims)
        passes = {
            late: [Counter((s.block, s.name) for s in lying if s.name) for b, lying in layer.alive() if b is late] for late in (False, True)
        }
        for late, moments in passes.items():
            assert any(kept <= moment for moment in moments) or (late and not layer.trained), (what, part.name, late, kept)
        seen += 1
    assert seen > 20


def test_a_moment_that_another_covers_is_left_out() -> None:
    for moment in (moments := alive(block_program("swiglu"))):
        others = [m for m in moments if m is not moment and m.backward == moment.backward]
        assert not any({v.name for v in moment.values} <= {v.name for v in other.values} for other in others)


def test_full_recomputation_has_a_whole_layer_beside_the_inputs() -> None:
    """A layer that is computed again is at its most what it is without recomputation, and its output; inputs of all layers are kept
    besides."""
    model, run_by = load("llama3-8b"), find("megatron-te-2.11")
    full = derive_model(model, placeproof.strategy("ddp(2)"), recompute="full", run_by=run_by).costs[0]
    plain = derive_model(model, placeproof.strategy("ddp(2)"), run_by=run_by).costs[0]

    def of_layers(cost: object) -> dict[tuple[bool, str], object]:
        return {(m.backward, m.at): m.bytes for m in cost.moments if m.part == "layers"}  # type: ignore[attr-defined]

    whole, part = of_layers(full), of_layers(plain)
    (first, *_), values = (
        [key for key in whole if key in part and key[0]],
        {"b": 1, "b_a": 2, "s": 4096, "h": 4096, "f": 14336, "a": 32, "a_kv": 8, "V": 128256, "d": 128},
    )
    more = (whole[first] - part[first]).subs(values)  # type: ignore[operator, attr-defined]
    kept_by_one = (plain.kept - full.kept).subs({**values, "L": 1})
    output = 4096 * 4096 * 2
    assert more == kept_by_one + output > output


@pytest.mark.parametrize("recompute", ["full:2", "full/2"])
def test_layers_that_are_computed_again_together(recompute: str) -> None:
    """By hand, of four layers on one device. `full:2`: the first two keep their input, and are computed again when the two behind them are
    free; `full/2`: two at a time from one input, so that the first of a pair lies there whole while backward of the second one runs."""
    run_by, strategy = find("megatron-te-2.11"), placeproof.strategy("ddp(2)")
    model = load("llama3-8b").resized({"L": 4, "s": 4096})
    plain, again = (derive_model(model, strategy, recompute=r, run_by=run_by) for r in (None, recompute))
    values = {"b": 1, "b_a": 2, "b_theta": 2}

    def number(amount: object) -> int:
        return int(sympy.sympify(amount).subs({**model.sizes, **values}))

    whole = number((plain.costs[0].kept).subs("L", 1)) - number(plain.costs[0].kept.subs("L", 0))
    most = max(number(m.bytes) for m in plain.costs[0].moments if m.part == "layers" and m.backward)
    replayed = max(number(m.bytes) for m in again.costs[0].moments if m.part.startswith("layers (") and m.backward)
    x = 4096 * 4096 * 2
    # beyond the inputs that are kept, and the output: one layer comes back, when two whole ones are free; or two layers do
    expected = most + x + (whole - x - 2 * whole if recompute == "full:2" else 2 * whole - x)
    assert replayed == expected


def test_an_operation_that_takes_nothing_is_refused(tmp_path: Path) -> None:
    text = (Path(placeproof.__file__).parent / "implementations" / "pytorch-2.13.toml").read_text(encoding="utf-8")
    at = text.index("takes = ", text.index("[operation."))
    (file := tmp_path / "own.toml").write_text(text[:at] + text[text.index("\n", at) + 1 :], encoding="utf-8")
    with pytest.raises(InputError, match="takes"):
        find(str(file))
