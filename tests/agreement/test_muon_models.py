"""Updates of whole matrices of a model: which weights are matrices, whether the step trains, and what it computes, sends and holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.cost.model.derivation import ModelDerivation, derive_linked, derive_model
from placeproof.models import load
from placeproof.models.family import family
from placeproof.models.model import build
from placeproof.models.programs import update_program
from placeproof.programs import read, render
from placeproof.semantics.judge.verdict import judge, judge_tensors, provable
from placeproof.semantics.linked import link, read_linked, render_linked
from placeproof.semantics.linked.contract import against_contracts
from placeproof.semantics.resolve import resolve
from placeproof.strategies import parse_strategy

#: Sizes of which no two are alike, and small enough to compute with.
LLAMA = {"h": 8, "a": 4, "a_kv": 2, "f": 12, "V": 16, "L": 4, "s": 4}
GPT = {"h": 8, "a": 2, "V": 16, "L": 4, "s": 4, "n_pos": 4}
MIXTRAL = {**{n: v for n, v in LLAMA.items() if n != "f"}, "E": 6, "k": 2, "f_e": 10}
SIZES = {"llama3-8b": LLAMA, "gpt3-125m": GPT, "mixtral-8x7b": MIXTRAL}


# An oracle: matrices by hand, and iterations that are carried out and counted.


@dataclass
class Counter:
    operations: int = 0

    def product(self, a: list[list[float]], b: list[list[float]]) -> list[list[float]]:
        """Of matrices: a multiplication and an addition for each of the elements that meet."""
        result = [[0.0] * len(b[0]) for _ in a]
        for i, row in enumerate(a):
            for k, x in enumerate(row):
                for j, y in enumerate(b[k]):
                    result[i][j] += x * y
                    self.operations += 2
        return result


@cache
def iterations(rows: int, columns: int) -> int:
    """Operations of five iterations; a matrix with more rows than columns is transposed first."""
    counter, short, long = Counter(), min(rows, columns), max(rows, columns)
    x = [[1 / (1 + i + 2 * j) for j in range(long)] for i in range(short)]
    for _ in range(5):
        gram = counter.product(x, [list(column) for column in zip(*x, strict=True)])
        square = counter.product(gram, gram)
        polynomial = [[-4.775 * g + 2.0315 * s for g, s in zip(*both, strict=True)] for both in zip(gram, square, strict=True)]
        moved = counter.product(polynomial, x)
        x = [[3.4445 * a + b for a, b in zip(*both, strict=True)] for both in zip(x, moved, strict=True)]
    return counter.operations


def of_a_layer(model: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The matrices of a layer that are no experts', and those of one expert."""
    own = SIZES[model]
    h, heads = own["h"], own["h"] // own["a"]
    if model == "gpt3-125m":
        return [(h, h)] * 4 + [(h, 4 * h), (4 * h, h)], []
    attention = [(h, h), (h, own["a_kv"] * heads), (h, own["a_kv"] * heads), (h, h)]
    if model == "llama3-8b":
        return [*attention, (h, own["f"]), (h, own["f"]), (own["f"], h)], []
    return [*attention, (h, own["E"])], [(h, own["f_e"]), (h, own["f_e"]), (own["f_e"], h)]


@dataclass
class Shares:
    """What a device makes directions of: of all layers, of matrices that are no experts', and of experts."""

    layers: Fraction = Fraction(1)
    matrices: Fraction = Fraction(1)
    experts: Fraction = Fraction(1)


def half(*of: str) -> Shares:
    return Shares(**{name: Fraction(1, 2) for name in of})


#: Strategies, and what a device makes directions of.
STRATEGIES = {
    "llama3-8b": {
        "muon": Shares(),
        "zero1(2) * muon": Shares(),
        "ddp(2) * muon(owned)": Shares(),
        "fsdp(2) * tp(2) * sp * muon": Shares(),
        "zero1(2) * muon(owned)": half("matrices"),
        "zero1(2) * muon(exchanged)": half("matrices"),
        "fsdp(2) * tp(2) * sp * muon(exchanged)": Shares(matrices=Fraction(1, 4)),
        "fsdp(2) * tp(2) * muon(owned)": half("matrices"),
        "hsdp(2, 2) * muon(owned)": half("matrices"),
        "zero1(2) * pp(2) * muon": half("layers"),
        "zero1(2) * pp(2, schedule=dualpipe) * muon": Shares(),
    },
    "gpt3-125m": {"zero1(2) * tp(2) * pp(2) * muon(owned)": half("layers", "matrices")},
    "mixtral-8x7b": {
        "zero1(2) * zero1(dp=ep) * ep(2) * muon": half("experts"),
        "zero1(2) * zero1(dp=ep) * ep(2) * tp(2) * muon": half("experts"),
        "zero1(2) * ep(2) * muon(owned)": Shares(matrices=Fraction(1, 2), experts=Fraction(1, 4)),
        "ep(2) * tp(2) * sp * ep(tp) * muon": Shares(experts=Fraction(1, 4)),
    },
}


def derived(model: str, strategy: str) -> ModelDerivation:
    return derive_model(load(model).resized(SIZES[model]), parse_strategy(strategy))


NUMBERS = {name: Fraction(value) for name, value in {"b_theta": 2, "b_g": 3, "b_omega": 11, "b": 1, "n_ns": 5, "m": 4, "c": 1}.items()}


@pytest.mark.parametrize(("model", "strategy"), [(model, strategy) for model, own in STRATEGIES.items() for strategy in own])
def test_directions_take_what_their_iterations_do(model: str, strategy: str) -> None:
    found, share = derived(model, strategy), STRATEGIES[model][strategy]
    rest, expert = (sum(iterations(*sides) for sides in own) for own in of_a_layer(model))
    each = share.matrices * rest + share.experts * SIZES[model].get("E", 0) * expert
    wanted = share.layers * SIZES[model]["L"] * each
    assert [found.value(cost.iterated, NUMBERS) for cost in found.costs] == [wanted] * len(found.costs)


def test_an_update_by_elements_makes_no_directions() -> None:
    (cost,) = derived("llama3-8b", "zero1(2) * tp(2)").costs
    assert (cost.iterated, cost.updating) == (0, 0)


def test_adapters_are_matrices_and_what_is_frozen_makes_no_directions() -> None:
    """A small one of what each matrix reads, and one of what it gives; momentum of these alone is gathered."""
    rank, sides = 2, of_a_layer("llama3-8b")[0]
    (cost,) = (found := derived("llama3-8b", f"zero1(2) * muon * lora(rank={rank})")).costs
    each = [(side, rank) for both in sides for side in both]
    assert found.value(cost.iterated, NUMBERS) == LLAMA["L"] * sum(iterations(*own) for own in each)
    (sent,) = (found.value(t.total, NUMBERS) for t in cost.sent if t.about == "momentum")
    assert sent == LLAMA["L"] * sum(rows * columns for rows, columns in each)
    assert found.value(cost.updating, NUMBERS) == 2 * 2 * sum(rows * columns for rows, columns in each)


def test_a_longer_side_that_is_not_known_is_left_open() -> None:
    found = derive_model(build(family("mixtral"), name="mine", sizes={"a_kv": 2}), parse_strategy("muon"))
    assert "Min(f_e, h)" in str(found.costs[0].iterated)
    rest, expert = of_a_layer("mixtral-8x7b")
    each = sum(iterations(*sides) for sides in (*rest, *MIXTRAL["E"] * expert))
    assert found.value(found.costs[0].iterated, {**NUMBERS, **{n: Fraction(v) for n, v in MIXTRAL.items()}}) == MIXTRAL["L"] * each


@pytest.mark.parametrize(
    ("strategy", "devices", "parts"), [("zero1(2)", 2, 2), ("zero1(2) * tp(2)", 4, 4), ("tp(2)", 2, 2), ("ddp(2)", 2, 1)]
)
def test_momentum_is_gathered_of_matrices_alone(strategy: str, devices: int, parts: int) -> None:
    """All of a layer, as it is and as the direction that is made of it, is there at once."""
    found = derived("llama3-8b", f"{strategy} * muon")
    (cost,) = found.costs
    elements = sum(rows * columns for rows, columns in of_a_layer("llama3-8b")[0])
    sent = [found.value(t.total, NUMBERS) for t in cost.sent if t.about == "momentum"]
    assert sent == ([] if parts == 1 else [Fraction(2 * LLAMA["L"] * elements * (devices - 1), devices)])
    assert found.value(cost.updating, NUMBERS) == (0 if parts == 1 else 2 * 2 * elements)


# Proofs, of the step: blocks are proved as they are without Muon.


def proved(text: str) -> bool:
    return provable(against_contracts(read_linked(text)))


def program(model: str, strategy: str) -> str:
    return render_linked(link(load(model), parse_strategy(strategy)))


def edits(text: str) -> Iterator[tuple[str, str]]:
    """The text without one of what makes matrices whole, and with other weights among them."""
    for line in (line for line in text.splitlines() if "= all_gather(momentum(" in line):
        inner, axes = re.findall(r"all_gather\((momentum\(.*\)), ((?:\w+, )*\w+)\)$", line)[0]
        for axis in axes.split(", "):
            others = ", ".join(a for a in axes.split(", ") if a != axis)
            gathered = f"all_gather({inner}, {others})" if others else inner
            yield f"{line} without {axis}", text.replace(line, f"    matrices = {gathered}")
    yield "an update by elements", text.replace("optimizer=orthogonal", "optimizer=elementwise")
    if ", update=elementwise" in text:
        yield "elements of tables are taken for matrices", text.replace(", update=elementwise", "", 1)


@pytest.mark.parametrize(
    ("model", "strategy"),
    [
        ("llama3-8b", "zero1 * tp * muon * clip"),
        ("llama3-8b", "zero1 * muon * lora"),
        ("mixtral-8x7b", "zero1 * ep * tp * sp * muon(owned)"),
    ],
)
def test_a_step_with_whole_matrices_trains_and_none_that_lacks_one_does(model: str, strategy: str) -> None:
    text = program(model, strategy)
    assert proved(text)
    wrong = {what: proved(other) for what, other in edits(text)}
    assert not any(wrong.values()), wrong


def test_a_step_without_a_gather_is_refuted() -> None:
    text = program("llama3-8b", "zero1 * muon").replace(
        "all_gather(momentum(optimizer.matrix[u], gradients.matrix[u]), dp)", "momentum(optimizer.matrix[u], gradients.matrix[u])"
    )
    assert judge(against_contracts(read_linked(text)), shortest=False).word == "refuted"


def test_an_expert_is_a_matrix_by_itself() -> None:
    """Where blocks split the experts, nothing is gathered; where they split an expert, its parts are."""
    text = program("mixtral-8x7b", "ep * tp * muon")
    assert "momentum(optimizer.expert[u], gradients.expert[u]), tp)" in text
    whole = program("mixtral-8x7b", "ep(experts=whole) * tp * muon")
    assert "momentum(optimizer.expert" not in whole


REFUSED = [
    ("gpt-oss-20b", "ep * muon", "of experts and no matrix"),
    ("llama3-8b", "ep * muon", "has none"),
    ("llama3-8b", "zero1 * tp * muon * lora", "which adapters lie in parts on `tp`"),
]


@pytest.mark.parametrize(("model", "strategy", "message"), REFUSED)
def test_what_is_not_lowered_is_refused(model: str, strategy: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        link(load(model), parse_strategy(strategy))
    link(load(model), parse_strategy("tp * muon"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (r"matrices = all_gather\((.*), dp\)\n", r"matrices = \1\n", "parts of matrices over `dp`"),
        (
            r"(    matrices = all_gather.*\n)",
            r"    if rank(dp) == 0:\n        directions = orthogonalize(momentum(optimizer.matrix[u], gradients.matrix[u]))\n\1",
            "in a branch",
        ),
    ],
)
def test_directions_of_parts_have_no_count(old: str, new: str, message: str) -> None:
    text = program("llama3-8b", "zero1 * muon")
    derive_linked(read_linked(text))
    with pytest.raises(InputError, match=message):
        derive_linked(read_linked(re.sub(old, new, text)))


def test_an_iteration_is_proved_where_columns_lie_in_parts() -> None:
    iteration = update_program("newton_schulz")
    assert judge_tensors(resolve(iteration)).word == "proved"
    without = render(iteration).replace("all_reduce(contract(x, xt, over=columns), tp)", "contract(x, xt, over=columns)")
    assert judge_tensors(resolve(read(without, source="without"))).word == "refuted"
