"""What real layers of PyTorch keep for backward, against what the programs of models say: storage by storage, every difference by name.

The programs are the ideal of the papers. PyTorch on the CPU keeps some storages besides, and some in another type. Each of these
differences has a name here and says which storages there are more and which fewer. Together they are the whole difference.

`python tests/reality/test_model_activations_torch.py` records the measurements for machines without PyTorch again.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from placeproof.cost.model.derivation import WIDTHS
from placeproof.cost.model.parts import DeviceSegment, parts
from placeproof.cost.model.recomputation import Recompute, words
from placeproof.models import load
from placeproof.semantics.linked import link
from placeproof.strategies import parse_strategy

PATH = Path(__file__).parents[1] / "data" / "model_activations.json"
SEEDS, RECORDED = range(48), range(10_100, 10_164)
DTYPES = {"float32": 4, "bfloat16": 2}
RANDOM_STATE = 5056  # torch==2.13.0:torch/random.py get_rng_state: the Mersenne twister of the CPU, as bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A layer to run.

    ``dropout``: of what blocks add to the stream; ``core_dropout``: of probabilities. ``fused``: attention is PyTorch's own function.
    ``limit``: the most tokens, for which tables are made. ``keep_random``: a checkpoint of the layer keeps the state of random numbers.
    """

    seed: int
    family: str
    dtype: str
    batch: int
    tokens: int
    limit: int
    heads: int
    kv_heads: int
    width: int
    ffn: int
    fused: bool
    recompute: Recompute
    dropout: bool
    core_dropout: bool
    written_norm: bool
    keep_random: bool

    @property
    def stream(self) -> int:
        """Elements of the stream."""
        return self.batch * self.tokens * self.heads * self.width

    @property
    def square(self) -> int:
        """Elements of the probabilities."""
        return self.batch * self.heads * self.tokens**2


def case_of(seed: int) -> Case:
    """A random case; the same seed gives the same."""
    draw = Random(seed)
    family = draw.choice(["gpt", "llama"])
    gpt, fused = family == "gpt", draw.random() < 0.5
    dropout = gpt and draw.random() < 0.6
    core_dropout = gpt and draw.random() < 0.5 if fused else dropout
    kv_heads, tokens, width = draw.randint(1, 3), draw.randint(1, 9), draw.randint(1, 5)
    recompute: Recompute = draw.choice(["none", "full"] if fused else ["none", "selective", "full"])
    return Case(
        seed=seed,
        family=family,
        dtype=draw.choice(list(DTYPES)),
        batch=draw.randint(1, 3),
        tokens=tokens,
        limit=tokens + draw.randint(0, 3),
        heads=kv_heads * (1 if gpt else draw.randint(1, 3)),
        kv_heads=kv_heads,
        width=width if gpt else 2 * width,
        ffn=draw.randint(1, 60),
        fused=fused,
        recompute=recompute,
        dropout=dropout,
        core_dropout=core_dropout,
        written_norm=not gpt and draw.random() < 0.5,
        keep_random=dropout or core_dropout or draw.random() < 0.2,
    )


# Predicted.


@cache
def part_of(family: str, attention: str, dropout: bool, recompute: Recompute) -> DeviceSegment:
    options = {"attention": attention} | ({} if family == "llama" else {"dropout": "yes" if dropout else "no"})
    linked = link(load(family, **options), parse_strategy("ddp"), recompute=words(recompute))
    return next(p for p in parts(linked) if p.name == "layers")


def part(case: Case) -> DeviceSegment:
    return part_of(case.family, "flash" if case.fused else "core", case.dropout, case.recompute)


def predicted(case: Case) -> tuple[Counter[int], Counter[int]]:
    """Bytes of each tensor that the layer keeps, and of each that it has besides once it is computed again."""
    values = {"L": 1, "b": case.batch, "s": case.tokens, "h": case.heads * case.width, "a": case.heads, "d": case.width, "f": case.ffn}
    sizes = load(case.family).dims(values | ({"a_kv": case.kv_heads} if case.family == "llama" else {}))
    found, width = part(case), DTYPES[case.dtype]
    kept, working = (found.layer.rows(stored, sizes, {}, width, WIDTHS) for stored in (found.kept, found.working))
    return Counter(row.bytes for row in kept), Counter(row.bytes for row in working)


# Differences.


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Bytes of the storages that PyTorch has and the program does not, and the other way round."""

    name: str
    more: tuple[int, ...] = ()
    fewer: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(self.more) - sum(self.fewer)


def of_kept(case: Case) -> list[Difference]:
    """What there is when forward is done."""
    found = [] if case.recompute == "full" else [*of_blocks(case, input_kept=False)]
    if case.recompute == "none":
        found += of_core(case)
    if case.recompute == "selective" or (case.recompute == "full" and case.keep_random):
        found.append(Difference(name="a checkpoint keeps the state of random numbers", more=(RANDOM_STATE,)))
    return found


def of_again(case: Case) -> list[Difference]:
    """What there is besides when it is computed again."""
    if case.recompute == "selective":
        return [*of_core(case), *of_copies(case)]
    return [*of_blocks(case, input_kept=True), *of_core(case)] if case.recompute == "full" else []


def of_blocks(case: Case, *, input_kept: bool) -> Iterator[Difference]:
    """Norms, dropout and positions. ``input_kept``: the layer's input is there in any case, as the input of a checkpoint."""
    width, rows = DTYPES[case.dtype], case.batch * case.tokens
    if case.family == "gpt":
        # torch==2.13.0:aten/src/ATen/native/layer_norm.cpp, layer_norm_cpu: statistics have the type of the parameters.
        yield Difference(name="a layer norm keeps mean and 1 / deviation", more=(rows * width,) * 4)
    else:
        yield from of_rms_norms(case, input_kept)
        table = case.limit * case.width * width
        yield Difference(name="rotations keep their tables, whole", more=(table, table))
    if case.dropout:
        more, fewer = (case.stream * width,) * 2, (case.stream,) * 2
        yield Difference(name="a mask of dropout has the type of what it drops", more=more, fewer=fewer)


def of_rms_norms(case: Case, input_kept: bool) -> Iterator[Difference]:
    """PyTorch's norm on the CPU is no kernel of its own: torch==2.13.0:aten/src/ATen/native/layer_norm.cpp, rms_norm_composite."""
    width, wide = DTYPES[case.dtype], 4
    yield Difference(name="an RMS norm keeps 1 / root in fp32", more=(case.batch * case.tokens * wide,) * 2)
    made = width if case.written_norm else wide
    yield Difference(name="an RMS norm keeps what it multiplies with the gain", more=(case.stream * made,) * 2)
    if width != wide:
        fewer = (case.stream * width,) * (1 if input_kept else 2)
        yield Difference(name="an RMS norm keeps its input in fp32 and not as it came", more=(case.stream * wide,) * 2, fewer=fewer)


def of_core(case: Case) -> Iterator[Difference]:
    """Between queries, keys, values and the output of attention."""
    width, wide = DTYPES[case.dtype], 4
    if not case.fused:
        yield Difference(name="attention keeps its causal mask, whole", more=(case.limit**2,))
        if case.core_dropout:
            yield Difference(name="a mask of dropout has the type of what it drops", more=(case.square * width,), fewer=(case.square,))
        if case.heads > case.kv_heads:
            narrow = (case.stream // case.heads * case.kv_heads * width,) * (2 if case.recompute != "selective" else 0)
            yield Difference(name="keys and values are repeated for each query head", more=(case.stream * width,) * 2, fewer=narrow)
    elif case.core_dropout:
        # torch==2.13.0:aten/src/ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math
        lse = case.batch * case.heads * case.tokens * WIDTHS["lse"]
        yield Difference(name="no fused kernel drops on the CPU: attention is written out", more=(case.square * wide,) * 3, fewer=(lse,))
        if width != wide:
            more, fewer = (case.stream * wide,) * 3, (case.stream * width,) * 3
            yield Difference(name="attention that PyTorch writes out is in fp32", more=more, fewer=fewer)


def of_copies(case: Case) -> Iterator[Difference]:
    """The core's inputs were kept as projections made them, tokens before heads; its products read copies with heads before tokens."""
    if min(case.batch, case.heads, case.tokens) > 1:
        copies = 1 if case.heads > case.kv_heads else 3  # what is repeated lies in order
        yield Difference(name="products copy what does not lie in order", more=(case.stream * DTYPES[case.dtype],) * copies)


def total(found: Counter[int]) -> int:
    return sum(size * number for size, number in found.items())


def with_differences(predicted: Counter[int], differences: list[Difference]) -> Counter[int]:
    """The storages that have to be there."""
    found = Counter(predicted)
    for one in differences:
        found.update(one.more)
        found.subtract(one.fewer)
    assert min(found.values(), default=0) >= 0, "a difference takes away what is not predicted"
    return +found


def compare(case: Case, saved: list[int], beside: list[int], again: list[int]) -> None:
    """Every byte after forward, and every byte of what is computed again, is predicted or of a difference with a name."""
    kept, working = predicted(case)
    for measured, said, differences in ((saved + beside, kept, of_kept(case)), (again, working, of_again(case))):
        assert sum(measured) - total(said) == sum(d.bytes for d in differences), (case, differences)
        assert Counter(measured) == with_differences(said, differences), (case, differences)


# Measured.


def measure(case: Case) -> dict[str, Any]:
    """Bytes of storages, in a new layer with random weights and a random input."""
    import torch
    from torch_layers import GptLayer, LayerSizes, LlamaLayer, measure_layer

    sizes = LayerSizes(heads=case.heads, kv_heads=case.kv_heads, width=case.width, ffn=case.ffn, limit=case.limit)
    dtype, selective = getattr(torch, case.dtype), case.recompute == "selective"
    rates = {"dropout": 0.1 * case.dropout, "core_dropout": 0.1 * case.core_dropout}
    layer: GptLayer | LlamaLayer
    if case.family == "gpt":
        layer = GptLayer(sizes, fused=case.fused, recompute=selective, **rates).to(dtype)
    else:
        layer = LlamaLayer(sizes, fused=case.fused, written_norm=case.written_norm, recompute=selective).to(dtype)
    x = torch.randn(case.batch, case.tokens, sizes.hidden, dtype=dtype, requires_grad=True)
    found = measure_layer(layer, x, full=case.recompute == "full", keep_random=case.keep_random)
    return {k: list(v) for k, v in asdict(found).items()}


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(PATH.read_text(encoding="utf-8"))
    return found


def case_in(row: dict[str, Any]) -> Case:
    return Case(**row["case"])


def names(cases: Iterable[Case]) -> set[str]:
    return {d.name for c in cases for d in (*of_kept(c), *of_again(c))}


def storages(row: dict[str, Any]) -> dict[str, list[int]]:
    return {k: row[k] for k in ("saved", "beside", "again")}


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_layer_keeps_is_predicted(seed: int) -> None:
    pytest.importorskip("torch", reason="torch is not installed: only recorded layers are compared")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of what is missing on this machine
        compare(case_of(seed), **measure(case_of(seed)))


@pytest.mark.parametrize("seed", range(100, 106))
def test_a_checkpoint_makes_again_what_is_kept_without_one(seed: int) -> None:
    """Hooks tell the one, and lifetimes of storages the other; the input is there both times."""
    pytest.importorskip("torch", reason="torch is not installed: only recorded layers are compared")
    case = replace(case_of(seed), keep_random=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain, full = (measure(replace(case, recompute=kind)) for kind in ("none", "full"))
    cast = case.family == "llama" and case.dtype == "bfloat16"  # norms keep their input in fp32 only
    assert full["again"] == sorted((Counter(plain["saved"]) - Counter([] if cast else full["saved"])).elements())


@pytest.mark.parametrize("row", rows(), ids=lambda r: str(r["case"]["seed"]))
def test_recorded_layers_are_predicted(row: dict[str, Any]) -> None:
    assert case_of(row["case"]["seed"]) == case_in(row), "another case than the one recorded: run this file with python"
    compare(case_in(row), **storages(row))


def test_every_kind_of_layer_was_recorded() -> None:
    """Each difference comes, and the bytes of many layers are predicted without any."""
    cases = [case_in(row) for row in rows()]
    assert [c.seed for c in cases] == list(RECORDED)
    assert {(c.family, c.dtype, c.fused, c.recompute) for c in cases} == {
        (family, dtype, fused, recompute)
        for family in ("gpt", "llama")
        for dtype in DTYPES
        for fused, recompute in ((True, "none"), (True, "full"), (False, "none"), (False, "selective"), (False, "full"))
    }
    assert names(cases) == names(map(case_of, range(2000)))
    exact = [row for row in rows() if Counter(row["saved"] + row["beside"]) == predicted(case_in(row))[0]]
    assert [case_in(row) for row in exact] == [c for c in cases if not of_kept(c)]
    assert {c.family for c in map(case_in, exact)} == {"gpt", "llama"}
    print(f"{len(exact)} of {len(cases)} layers keep what is predicted, without any difference")


def test_a_difference_that_is_left_out_is_noticed() -> None:
    for row in rows():
        case = case_in(row)
        (kept, working), every = predicted(case), (of_kept(case), of_again(case))
        for measured, said, differences in zip((row["saved"] + row["beside"], row["again"]), (kept, working), every, strict=True):
            for i in range(len(differences)):
                assert with_differences(said, differences[:i] + differences[i + 1 :]) != Counter(measured)


@pytest.mark.parametrize("change", [{"ffn": 61}, {"batch": 4}, {"tokens": 10}], ids=str)
def test_another_layer_is_noticed(change: dict[str, int]) -> None:
    for row in rows():
        with pytest.raises(AssertionError):
            compare(replace(case_in(row), **change), **storages(row))


def main() -> None:
    import torch

    warnings.simplefilter("ignore")  # torch warns of what is missing on this machine
    recorded = [{"case": asdict(case_of(seed)), "torch": torch.__version__.split("+")[0], **measure(case_of(seed))} for seed in RECORDED]
    PATH.write_text("[\n" + ",\n".join(json.dumps(r) for r in recorded) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
