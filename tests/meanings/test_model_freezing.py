"""Models of which some weights are not trained: what they have, keep, compute, hold and send, by hand; their steps are proved, and wrong
ones are not."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.cost.model.derivation import ModelDerivation, derive_linked
from placeproof.models import Model, load
from placeproof.models.freezing import frozen
from placeproof.models.programs import WIRES, without_gradients
from placeproof.programs import Program
from placeproof.semantics.judge.model import judge_linked
from placeproof.semantics.linked import Linked, read_linked, render_linked
from placeproof.semantics.linked.link import as_linked, link
from placeproof.strategies import parse_strategy

#: Llama 3 8B: layers, hidden size, inner width, width of keys and values, vocabulary; one sample of 512 tokens.
L, H, F, KV, V, S = 32, 4096, 14336, 1024, 128256, 512
PAIRS = 2 * H * H + 2 * H * KV + 3 * H * F
LAYER = PAIRS + 2 * H
WHOLE = L * LAYER + 2 * V * H + H
#: Bytes of an element, no two alike.
WIDTHS = {"b_theta": 2, "b_g": 3, "b_omega": 11, "b_frozen": Fraction(1, 2), "b_a": 1, "b": 1, "s": S, "b_s": 4}


def linked(text: str, model: str = "llama3-8b") -> Linked:
    return link(load(model), parse_strategy(text))


def number(d: ModelDerivation, expr: object) -> Fraction:
    value = d.value(expr, {k: Fraction(n) for k, n in WIDTHS.items()})
    assert value is not None
    return value


#: Of each way to freeze: parameters that are trained, layers that are, and the elements of matrices outside layers that are.
BY_HAND = {
    "layers=2, parts=ends": (2 * LAYER, 2, 0),
    "layers=3": (3 * LAYER + V * H + H, 3, V * H),
    "parts=ends": (L * LAYER, L, 0),
    "": (L * LAYER + V * H + H, L, V * H),
}


@pytest.mark.parametrize("said", BY_HAND)
def test_states_traffic_activations_and_operations(said: str) -> None:
    d = derive_linked(linked(f"fsdp(8) * freeze({said})" if said else "fsdp(8) * freeze"))
    (cost,), (trained, layers, outside) = d.costs, BY_HAND[said]
    weights = Fraction(WHOLE - trained, 2) + 2 * trained
    assert number(d, cost.states["parameters"]) == weights / 8
    assert number(d, cost.states["gradients"]) == Fraction(3 * trained, 8)
    assert number(d, cost.states["optimizer"]) == Fraction(11 * trained, 8)
    assert sum(number(d, t.total) for t in cost.sent) == Fraction(7, 8) * (2 * weights + 3 * trained)
    a_layer = 6 * H + 2 * KV + 4 * F  # x, both n, q, o, y; k, v; g, u, s, a
    head = V * S + 8 * S + 1 + S * H  # what softmax gives, targets, their number, x
    head += S * H if outside else 0  # n for the gradient by the head
    assert number(d, cost.kept) == layers * (S * a_layer + 4 * S * 32) + head
    scores = 2 * S * H  # products with keys and with values, of each token with S others
    assert number(d, cost.flops.forward) == 2 * S * (L * (PAIRS + scores) + V * H)
    assert number(d, cost.flops.inputs) == 2 * S * (layers * (PAIRS + 2 * scores) + V * H)
    assert number(d, cost.flops.weights) == 2 * S * (layers * PAIRS + outside)


def test_routers_alone_are_frozen() -> None:
    """Mixtral 8x7B: 32 routers from 4096 to 8 experts."""
    own, full = (derive_linked(linked(text, "mixtral-8x7b")) for text in ("ddp * freeze(parts=router)", "ddp"))
    routers = 32 * 4096 * 8
    assert number(full, full.costs[0].states["gradients"]) - number(own, own.costs[0].states["gradients"]) == 3 * routers
    assert number(full, full.costs[0].flops.weights) - number(own, own.costs[0].flops.weights) == 2 * S * routers
    assert own.costs[0].flops.inputs == full.costs[0].flops.inputs
    assert number(full, full.costs[0].kept) - number(own, own.costs[0].kept) == 32 * S * 4096  # what a router reads


def test_a_table_that_is_shared_is_frozen_at_both_ends() -> None:
    """GPT-3 125M: a tied table, and one of positions."""
    model = load("gpt3-125m")
    (before, *_, after) = frozen(model, "embedding").segments
    assert [set(b.frozen) for b in before.blocks] == [{w.name for w in b.weights} for b in before.blocks]
    assert [b.frozen for b in after.blocks if b.frozen] == [{"table"}]
    step = linked("zero1 * pp(2) * freeze(parts=embedding)", "gpt3-125m").step
    assert {g.name: g.frozen for g in step.groups} == {"dense": False, "frozen": True}


def test_layers_of_two_kinds_are_divided_where_the_last_ones_begin() -> None:
    """DeepSeek-V3: 58 layers with experts behind 3 without."""
    h, a, f, q, kv, nope, rope = 7168, 128, 18432, 1536, 512, 128, 64
    attention = h * q + q + q * a * (nope + rope) + h * (kv + rope) + kv + kv * a * 2 * nope + a * nope * h
    dense, sparse = attention + 2 * h + 3 * h * f, attention + 2 * h + h * 256 + 3 * h * 2048 * 257
    for layers, trained in ((58, 58 * sparse), (60, 58 * sparse + 2 * dense)):
        d = derive_linked(linked(f"fsdp(8) * freeze(layers={layers}, parts=ends)", "deepseek-v3"))
        assert number(d, d.costs[0].states["gradients"]) == Fraction(3 * trained, 8)


@pytest.mark.parametrize(("name", "there"), [("llama3-8b", 32), ("deepseek-v3", 61), ("llama4-scout-109b", 48)])
@pytest.mark.parametrize("more", [0, 1])
def test_of_more_layers_than_there_are_all_are_trained(name: str, there: int, more: int) -> None:
    """As LLaMA-Factory, and a slice of a list, have it; what was asked for is said."""
    some, every = (linked(f"fsdp * freeze({said}parts=ends)", name) for said in (f"layers={there + more}, ", ""))
    texts = [render_linked(replace(one, note="")).replace(one.step.name, "") for one in (some, every)]
    assert texts[0] == texts[1]
    assert (f"Of the last {there + more} layers that are trained, the model has {there}." in some.note) == (more > 0)


@pytest.mark.parametrize("layers", [0, 1, 2, 32])
def test_counts_of_parameters_stay(layers: int) -> None:
    model = load("llama3-8b")
    own = frozen(model, "ends", layers or None)
    assert own.parameters().groups == model.parameters().groups
    assert sum(n for n in own.times().values()) == 2 + L


#: Strategies and models: a frozen prefix, one of parts, a table at both ends of a pipeline, routers, whole matrices.
PROVED = (
    ("fsdp * freeze(layers=2, parts=ends)", "llama3-8b"),
    ("fsdp * tp * sp * clip * freeze(layers=4)", "llama3-8b"),
    ("zero1 * pp * freeze(parts=embedding)", "gpt3-125m"),
    ("zero1 * ep * freeze(parts=router)", "mixtral-8x7b"),
    ("zero1 * muon * freeze(parts=ends)", "llama3-8b"),
)


@pytest.mark.parametrize(("text", "name"), PROVED)
def test_steps_of_models_are_proved(text: str, name: str) -> None:
    program, model = linked(text, name), load(name)
    judged = judge_linked(program, model)
    assert judged.word == "proved", judged.breaches
    again = read_linked(render_linked(program))
    assert render_linked(again) == render_linked(program)
    assert _names(as_linked(model, again)) == [[b.name for b in s.blocks] for s in program.stack]


def _names(model: Model) -> list[list[str]]:
    return [[b.name for b in s.blocks] for s in model.segments]


def changed(program: Linked, block: str, to: Program) -> Linked:
    stack = tuple(replace(s, blocks=tuple(replace(b, program=to) if b.name == block else b for b in s.blocks)) for s in program.stack)
    return replace(program, stack=stack)


def passed_over(program: Linked, block: str) -> Linked:
    """With a block that has no backward."""
    own = program.blocks[block]
    return changed(program, block, without_gradients(own.program, {*WIRES.values(), *(w.name for w in own.weights)}))


@pytest.mark.parametrize(
    ("text", "block", "complaint"),
    [
        ("fsdp * freeze(parts=ends)", "rms_norm_frozen", "no gradient by `x`, and `swiglu` has something to train"),
        ("fsdp * freeze(parts=ends)", "swiglu", "no gradient by `w1`"),
        ("fsdp", "rms_norm", "no gradient by `gain`"),
    ],
)
def test_what_is_trained_needs_a_backward_behind_it(text: str, block: str, complaint: str) -> None:
    program = linked(text)
    assert judge_linked(program, load("llama3-8b")).word == "proved"
    judged = judge_linked(passed_over(program, block), load("llama3-8b"))
    assert judged.word == "refuted"
    assert any(complaint in breach.text for breach in judged.breaches), judged.breaches


def test_a_step_that_does_not_reduce_what_is_trained_is_refuted() -> None:
    text = render_linked(linked("fsdp * freeze(layers=2)"))
    right = "reduce_scatter(backward_weight(w, activations[u], dx), dp)"
    assert right in text
    assert judge_linked(read_linked(text.replace(right, right.replace("reduce_scatter", "part"))), load("llama3-8b")).word == "refuted"


@pytest.mark.parametrize(
    ("text", "model", "message"),
    [
        ("fsdp * freeze(parts=router)", "llama3-8b", "no parameters"),
        ("fsdp * freeze(layers=2)", "llama4", "layers of llama4 are of several kinds in turn"),
        ("fsdp * ep * freeze(layers=2)", "mixtral-8x7b", "experts of some layers are trained"),
        ("fsdp * freeze(parts=head)", "llama3-8b", "`parts` is"),
        ("fsdp * freeze * lora", "llama3-8b", "train"),
    ],
)
def test_what_is_not_derived_is_refused(text: str, model: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        linked(text, model)
