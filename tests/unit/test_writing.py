"""Strategies written as configurations: what is written reads back as the strategy, and what a system cannot say is refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placeproof.core.diagnostics import InputError, Problems
from placeproof.core.precision import PRECISIONS
from placeproof.core.strategy import SYMBOLIC, Strategy
from placeproof.importers import SYSTEMS, Imported, read_config
from placeproof.importers.document import read_document
from placeproof.importers.meaning import meaning
from placeproof.importers.settings import settings as known_settings
from placeproof.importers.writing import WRITTEN, Asked, Written, write
from placeproof.importers.writing.table import Writing, writing
from placeproof.models import load
from placeproof.programs import render
from placeproof.semantics.linked import link, render_linked
from placeproof.semantics.lower import lower
from placeproof.strategies import names, parse_strategy

CONFIGS = Path(__file__).parents[1] / "configs"
NUMBERS = {"b": Fraction(1)}
EXPERTS = {**NUMBERS, "E": Fraction(8)}

#: What each system says, by hand. Each strategy of the catalogue is in some expression of each list, or in `NEVER`.
SAYS: dict[str, tuple[str, ...]] = {
    "torchtitan": (
        "ddp(4) * clip", "zero3(4, prefetch=true) * clip", "fsdp(4, prefetch=true) * clip", "fsdp(4, reshard_after_forward=false) * clip",
        "hsdp(rep=2, shard=4, prefetch=true) * clip", "zero_infinity(4) * clip", "fsdp(4, prefetch=true) * tp(2) * sp * clip * checkpoint",
        "fsdp(2, prefetch=true) * fsdp(dp=cp, prefetch=true) * cp(2) * clip",
        "fsdp(2, prefetch=true) * fsdp(dp=cp, prefetch=true) * cp(2, attention=gather) * clip",
        "fsdp(2) * fsdp(dp=ep) * ep(2) * clip", "hsdp(rep=2, shard=2) * fsdp(dp=ep) * tp(4) * sp * ep(2, experts=whole) * clip",
        "hsdp(rep=2, shard=2) * fsdp(dp=ep) * tp(2) * sp * ep(2) * ep(tp) * clip", "fsdp(2) * fsdp(dp=cp) * cp(2) * ep(cp) * clip",
        "fsdp(2) * fsdp(dp=ep) * tp(2) * sp * ep(2) * clip", "fsdp(2) * fsdp(dp=ep) * ep(2) * accumulate(3) * clip",
        "hsdp(rep=2, shard=4, prefetch=true) * accumulate(3) * clip", "fsdp(4, prefetch=true) * accumulate(3) * clip",
        "fsdp(2, reshard_after_forward=false) * pp(4, microbatches=8) * clip", "fsdp(2, prefetch=true) * pp(4, microbatches=8) * clip",
        "fsdp(2, prefetch=true) * pp(4, microbatches=8, schedule=gpipe) * clip",
        "fsdp(2, prefetch=true) * pp(2, microbatches=8, schedule=zb-v) * clip",
        "fsdp(2, prefetch=true) * pp(2, microbatches=8, schedule=dualpipe-v) * clip",
        "fsdp(2, prefetch=true) * pp(2, microbatches=8, schedule=interleaved, chunks=2) * clip",
    ),
    "deepspeed": (
        "ddp(4)", "ddp(4) * clip", "zero1(4)", "zero2(4) * clip", "zero3(4)", "fsdp(4)", "zero_offload(4)",
        "zero_infinity(4) * accumulate(3)",
        "zeropp(8, node=2)", "zeropp(8, node=true, qwz=b_theta)", "zeropp(8, node=4, qwz=b_theta, qgz=b_g)",
        "zero1(4, reduce=all_reduce)",
        "zero2(4) * tp(2)", "tp(2) * zero_r", "ddp(2) * tp(2) * zero_r(checkpoints=host)",
        "zero3(2) * zero3(dp=cp) * cp(2, attention=ulysses)",
        "zero1(2) * zero1(dp=ep) * ep(2)", "zero2(4) * accumulate(3) * clip", "ddp(2) * pp(4, microbatches=8)",
        "zero1(2) * pp(4, microbatches=8) * checkpoint * clip", "zero1(2) * pp(4, microbatches=8) * checkpoint(checkpoints=host)",
        "ddp(2) * tp(2) * ep(2, experts=whole)",
    ),
    "megatron": (
        "ddp(4)", "zero1(4) * clip", "zero2(4)", "zero3(4)", "fsdp(4) * clip", "fsdp(4, reshard_after_forward=false)",
        "hsdp(rep=2, shard=4)", "ddp(2) * tp(2)", "zero1(2) * tp(2) * sp",
        "zero1(2) * tp(2) * sp * accumulate(4) * clip", "tp(2) * sp * pp(2, microbatches=4)",
        "zero1(2) * pp(2, microbatches=4) * checkpoint", "tp(2) * zero_r", "zero1(2) * zero1(dp=cp) * cp(2)",
        "zero1(2) * zero1(dp=cp) * cp(2, attention=gather)", "zero1(2) * zero1(dp=cp) * cp(2, attention=ulysses)",
        "zero1(2) * zero1(dp=ep) * ep(2) * accumulate(4)", "hsdp(rep=2, shard=4) * accumulate(3)",
        "zero1(2) * zero1(dp=ep) * ep(2)", "zero1(2) * zero1(dp=ep) * tp(2) * sp * ep(2)", "ddp(2) * tp(4) * sp * ep(2, experts=whole)",
        "zero1(2) * zero1(dp=ep) * tp(2) * sp * ep(2) * ep(tp) * clip", "ddp(2) * tp(2) * sp * cp(2) * ep(tp) * ep(cp)",
        "zero1(2) * zero1(dp=cp) * cp(2) * ep(cp)",
        "ddp(2) * tp(2) * sp * tp(2, tp=etp) * sp(tp=etp) * ep(tp)",
        "tp(2) * sp * tp(2, tp=etp) * sp(tp=etp) * ep(2) * ep(tp, experts=etp)",
        "zero1(2) * pp(2, microbatches=4, schedule=interleaved, chunks=3)", "zero3(2) * zero3(dp=cp) * cp(2) * clip",
        "ddp(4) * muon * clip", "ddp(2) * tp(2) * muon", "zero1(4) * muon(owned)", "zero1(4, reduce=all_reduce) * muon(owned) * clip",
    ),
    "accelerate": (
        "ddp(4)", "fsdp(4, prefetch=true)", "zero3(4, prefetch=true)", "fsdp(4, prefetch=true, reshard_after_forward=false)",
        "hsdp(rep=2, shard=4, prefetch=true)", "zero_infinity(4)", "fsdp(4, prefetch=true) * checkpoint(checkpoints=host)",
        "fsdp(4, prefetch=true, reshard_after_forward=false, unit=model)", "fsdp(4, prefetch=true) * tp(2)",
        "fsdp(2, prefetch=true) * fsdp(dp=cp, prefetch=true) * cp(2)",
        "fsdp(2, prefetch=true) * fsdp(dp=cp, prefetch=true) * cp(2, attention=gather) * checkpoint", "tp(2)",
        "zero1(4) * clip", "zero2(4) * accumulate(3)", "zero3(4, prefetch=false) * clip", "zero_offload(4)",
        "zero_infinity(4) * accumulate(2)",
        "zero2(2) * zero2(dp=cp) * cp(2, attention=ulysses)", "ddp(2) * tp(2) * sp * pp(2, microbatches=4) * checkpoint * clip",
        "zero1(2) * zero1(dp=cp) * cp(2) * pp(2, microbatches=4) * checkpoint",
        "zero1(2) * zero1(dp=ep) * tp(2) * sp * ep(2) * checkpoint", "ddp(2) * tp(4) * sp * ep(2, experts=whole) * checkpoint",
        "zero1(2) * tp(2) * sp * ep(tp) * checkpoint", "zero1(2) * tp(2) * sp * tp(2, tp=etp) * sp(tp=etp) * ep(tp) * checkpoint",
    ),
}  # fmt: skip
#: Strategies of the catalogue that no configuration of a system says: what its file leaves to the program, or the system does not do.
NEVER: dict[str, set[str]] = {
    "torchtitan": {"zero1", "zero2", "zero_offload", "zeropp", "zero_r", "muon", "lora", "freeze", "adafactor", "shampoo"},
    "deepspeed": {"hsdp", "sp", "muon", "lora", "freeze", "adafactor", "shampoo"},
    "megatron": {"zero_offload", "zero_infinity", "zeropp", "lora", "freeze", "adafactor", "shampoo"},
    "accelerate": {"zeropp", "zero_r", "muon", "lora", "freeze", "adafactor", "shampoo"},
}
#: What is refused, with words of the reasons that have to be among the lines, and of the remedy.
REFUSED: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("fsdp(4)", "torchtitan", ("clipping: none wanted, global_norm read back",), "clip"),
    ("fsdp(4, prefetch=false) * clip", "torchtitan", ("prefetch: false wanted, true",), "prefetch=true"),
    ("fsdp(4) * tp(2) * clip", "torchtitan", ("activations (outer) on axis `tp`: R wanted, S",), "sp(tp=2)"),
    ("zero1(4) * clip", "torchtitan", ("parameters on axis `dp`: R wanted, S*", "gradients on axis `dp`: R wanted"), "fsdp(dp=4"),
    ("fsdp(4) * cp(2) * clip", "torchtitan", ("parameters on axis `cp`: R wanted, S*",), "fsdp(dp=cp"),
    ("fsdp(2) * pp(2, microbatches=4, schedule=zb-h1) * clip", "torchtitan", ("schedule: zb-h1 wanted, 1f1b",), "pp(pp=2)"),
    ("fsdp(2) * pp(2, microbatches=4, schedule=interleaved, chunks=4) * clip", "torchtitan", ("chunks: 4 wanted, 2",), "chunks=2"),
    ("fsdp(8, reshard_after_forward=2) * clip", "torchtitan", ("axis `dp`: 8 devices in groups of 2", "reshard_after_forward: 2"), "fsdp("),
    ("hsdp(rep=2, shard=4)", "deepspeed", ("axis `rep`: 2 devices that split the batch wanted, none",), "zero3(dp=8)"),
    ("zero2(2) * pp(2, microbatches=4)", "deepspeed", ("DeepSpeed refuses a pipeline with ZeRO stage 2",), "stage 0 or 1"),
    ("zero3(4) * checkpoint", "deepspeed", ("recomputation: true wanted, false",), "zero3(dp=4)"),
    ("zero1(2) * tp(2) * pp(2, microbatches=4)", "deepspeed", ("AutoTP beside a pipeline",), "leave one of the two out"),
    ("zero1(2) * tp(2) * sp * pp(2, microbatches=4)", "deepspeed", ("AutoTP beside a pipeline",), "leave one of the two out"),
    ("zero2(4) * ep(2)", "deepspeed", ("gradients (dense, matrix, norm) on axis `ep`: R wanted, S",), "zero2(dp=ep)"),
    ("zero3(4) * cp(2, attention=ring) * zero3(dp=cp)", "deepspeed", ("attention: ring wanted, ulysses",), "ulysses"),
    ("zero_infinity(4)", "megatron", ("parameters on axis `dp`: O wanted, R",), "ddp(dp=4)"),
    ("fsdp(4, prefetch=true)", "megatron", ("prefetch: true wanted, false",), "fsdp(dp=4)"),
    ("zero1(4, back=broadcast)", "megatron", ("back: broadcast wanted, gather",), "zero1(dp=4)"),
    ("zero1(2) * tp(2) * sp(norms=each)", "megatron", ("norms: each wanted, once",), "sp(tp=2)"),
    ("zero1(4) * checkpoint(checkpoints=host)", "megatron", ("checkpoints: host wanted, device",), "checkpoint"),
    ("ddp(2) * (R, R, R, R, other=2)", "megatron", ("axis `other`: ",), "ddp(dp="),
    ("fsdp(4) * tp(2) * sp", "accelerate", ("activations (outer) on axis `tp`: S wanted, R",), "tp(tp=2)"),
    ("zeropp(8, node=2)", "accelerate", ("qwz: b_qw wanted, none",), "fsdp(dp=8"),
    ("ddp(2) * pp(2, microbatches=4)", "accelerate", ("recomputation: false wanted, true",), "checkpoint"),
    ("accumulate(4)", "accelerate", ("axis `dp`: none wanted, 1 devices",), "ddp(dp=1)"),
)  # fmt: skip


def with_numbers(text: str) -> dict[str, Fraction]:
    """What goes with a strategy: a batch, and experts where there are some."""
    return EXPERTS if "ep(" in text else NUMBERS


def written(text: str | Strategy, system: str, **more: Any) -> Written:
    strategy = parse_strategy(text) if isinstance(text, str) else text
    return write(strategy, system, Asked(**{"numbers": with_numbers(strategy.name), **more}))


def with_microbatches(strategy: Strategy, read: Imported) -> Strategy:
    m = read.numbers.get("m")
    open_ = strategy.schedule.microbatches == SYMBOLIC and m is not None
    return replace(strategy, schedule=replace(strategy.schedule, microbatches=int(m))) if open_ else strategy


def step(strategy: Strategy) -> str:
    several = sum(axis.splits.matrices for axis in strategy.axes) > 1
    return linked(strategy) if several else render(lower(strategy)).partition("\n")[2]


@lru_cache(maxsize=4)
def small(name: str) -> Any:
    return load(name)


def linked(strategy: Strategy) -> str:
    """The whole program of a small model: what its blocks exchange, too."""
    model = small("mixtral-8x7b" if strategy.experts else "llama3-8b")
    return render_linked(link(model, strategy)).partition("\n")[2]


def read_again(made: Written, strategy: Strategy) -> Strategy:
    """The strategy that the text says, by the reader alone."""
    world = 1
    for axis in strategy.axes:
        world *= axis.degree or 1
    read = read_config(made.text, system=made.system, world=world)
    assert read.expression == made.read.expression
    assert not read.another_step
    return with_microbatches(read.strategy(), read)


def prefetching(strategy: Strategy, like: Strategy) -> Strategy:
    """With what it leaves open to the system as another one has it."""
    said = strategy.schedule.prefetch
    return replace(strategy, schedule=replace(strategy.schedule, prefetch=like.schedule.prefetch if said is None else said))


EVERY = [(system, text) for system, texts in SAYS.items() for text in texts]


@pytest.mark.parametrize(("system", "text"), EVERY, ids=[f"{s}: {t}" for s, t in EVERY])
def test_what_a_system_says_reads_back_as_the_same_program(system: str, text: str) -> None:
    strategy = parse_strategy(text)
    made = written(text, system)
    again = read_again(made, strategy)
    assert step(again) == step(strategy)
    if strategy.schedule.matrices is None:  # beside a model it is refused
        assert linked(again) == linked(strategy)
    assert not [note for note in made.notes if "leaves open" in note]


def test_every_strategy_of_the_catalogue_is_said_by_a_system_or_never() -> None:
    assert set(SAYS) == set(NEVER) == set(WRITTEN) == {"accelerate", "deepspeed", "megatron", "torchtitan"}
    for system, texts in SAYS.items():
        said = {name for name in names() for text in texts if any(p.split("(")[0] == name for p in parse_strategy(text).parts)}
        assert said | NEVER[system] == set(names()), system
        assert not said & NEVER[system], system


@pytest.mark.parametrize("system", WRITTEN)
def test_what_a_system_never_says_is_refused_beside_anything(system: str) -> None:
    beside = {"sp": "tp(2) * ", "zero_r": "tp(2) * "}
    degrees = {
        "zeropp": "zeropp(4, node=2)",
        "hsdp": "hsdp(rep=2, shard=2)",
        "sp": "sp",
        "zero_r": "zero_r",
        "muon": "ddp(4) * muon",
        "adafactor": "ddp(4) * adafactor",
        "shampoo": "ddp(4) * shampoo",
        "lora": "ddp(4) * lora",
        "freeze": "ddp(4) * freeze",
    }
    for name in NEVER[system]:
        for more in ("", " * clip", " * accumulate(2)", " * accumulate(2) * clip"):
            with pytest.raises(InputError) as refused:
                written(beside.get(name, "") + degrees.get(name, f"{name}(4)") + more, system)
            assert [d.code for d in refused.value.diagnostics] == ["PP506"], name


@pytest.mark.parametrize(("text", "system", "lines", "remedy"), REFUSED, ids=[f"{s}: {t}" for t, s, *_ in REFUSED])
def test_what_a_system_does_not_say_is_refused_with_its_reasons(text: str, system: str, lines: tuple[str, ...], remedy: str) -> None:
    with pytest.raises(InputError) as refused:
        written(text, system)
    (problem,) = refused.value.diagnostics
    assert problem.code == "PP506"
    assert SYSTEMS[system].title in problem.message
    for line in lines:
        assert [note for note in problem.notes if line in note], problem.notes
    assert remedy in (problem.help or "")


def test_the_remedy_is_a_strategy_that_the_system_says() -> None:
    """Whoever follows it gets a file, so that nobody is sent from one refusal to the next."""
    followed = 0
    for text, system, *_ in REFUSED:
        with pytest.raises(InputError) as refused:
            written(text, system)
        (problem,) = refused.value.diagnostics
        if "reads as `" in (problem.help or ""):
            other = (problem.help or "").partition("reads as `")[2].rstrip("`")
            m = {"m": Fraction(parse_strategy(text).schedule.microbatches or 1)}
            assert written(other, system, numbers={**with_numbers(text), **m}).read.expression == other
            followed += 1
    assert followed > 15


def test_what_is_left_open_is_filled_and_told() -> None:
    made = written("fsdp(8) * tp(2) * sp * clip", "torchtitan")
    assert made.read.expression == "fsdp(dp=8, prefetch=true) * tp(tp=2) * sp(tp=2) * clip"
    (note,) = [note for note in made.notes if "leaves open" in note]
    assert "prefetch=true" in note
    assert made.read.expression in note


def test_open_degrees_are_named_together_with_their_remedies() -> None:
    with pytest.raises(InputError) as refused:
        written("zeropp * tp * pp", "deepspeed")
    told = {d.message: d.help for d in refused.value.diagnostics}
    assert {d.code for d in refused.value.diagnostics} == {"PP203"}
    for what, how in {
        "axis `dp`, which": "N_dp=8",
        "axis `tp`": "N_tp=8",
        "axis `pp`": "N_pp=8",
        "sub-groups": "N_node=8",
        "micro": "m=8",
    }.items():
        assert [help for message, help in told.items() if what in message and how in (help or "")], what


def test_numbers_fill_what_is_open() -> None:
    numbers = {"N_dp": 8, "N_pp": 4, "N_tp": 2, "m": 16, "b": 2}
    made = written("zero1 * tp * sp * pp * clip", "megatron", numbers={n: Fraction(v) for n, v in numbers.items()})
    assert made.read.expression == "zero1(dp=8) * tp(tp=2) * sp(tp=2) * pp(pp=4, microbatches=16) * clip"
    assert made.read.numbers == {"b": 2, "m": 16}
    made = written("zeropp", "deepspeed", numbers={"N": Fraction(8), "N_node": Fraction(4)})
    assert made.read.expression == "zeropp(dp=8, node=4, qwz=b_qw, qgz=b_qg)"


def test_axes_have_other_names_in_configurations() -> None:
    assert written("fsdp(dp=d) * tp(tp=t) * sp(tp=t) * clip", "torchtitan", numbers={"N_d": Fraction(4), "N_t": Fraction(2)})
    assert written(
        "ddp(dp=slow) * zero3(dp=zfast)", "megatron", numbers={"N_slow": Fraction(2), "N_zfast": Fraction(4)}
    ).read.expression == ("hsdp(rep=2, shard=4)")
    with pytest.raises(InputError):  # the copies are neighbours here, and the shards are there
        written("zero3(dp=afast) * ddp(dp=slow)", "megatron", numbers={"N_slow": Fraction(2), "N_afast": Fraction(4)})


def test_numbers_that_a_file_has_to_say_are_asked_for() -> None:
    with pytest.raises(InputError) as refused:
        written("zero1(4) * accumulate(2)", "megatron", numbers={})
    (problem,) = refused.value.diagnostics
    assert (problem.code, problem.help) == ("PP203", "`--set b=1`")
    assert "`b`" in problem.message


@pytest.mark.parametrize(
    ("name", "value", "system"), [("P", 70, "megatron"), ("V", 8, "torchtitan"), ("s", 8, "deepspeed"), ("b", 2, "accelerate")]
)
def test_numbers_that_are_asked_for_are_said_or_refused(name: str, value: int, system: str) -> None:
    text = "fsdp(4) * clip" if system in ("torchtitan", "megatron") else "zero1(4)"
    numbers = {name: Fraction(value)}
    with pytest.raises(InputError) as refused:
        written(text, system, numbers=numbers, needed={name})
    assert [d.notes for d in refused.value.diagnostics] == [(f"no setting of {SYSTEMS[system].title} says `{name} = {value}`",)]
    assert [note for note in written(text, system, numbers=numbers).notes if f"`{name} = {value}`" in note]


@pytest.mark.parametrize("value", [Fraction(1, 2), Fraction(7, 3)])
def test_a_number_that_is_not_whole_is_not_written(value: Fraction) -> None:
    with pytest.raises(InputError) as refused:
        written("zero1(4)", "deepspeed", numbers={"b": value}, needed={"b"})
    assert [d.code for d in refused.value.diagnostics] == ["PP506"]


#: The byte widths that each system has for a strategy of its own.
WIDTHS = {
    ("torchtitan", "ddp(4) * clip"): {"fp32-adam", "bf16-adam"},
    ("torchtitan", "fsdp(4, prefetch=true) * clip"): {"fp32-adam"},
    ("deepspeed", "ddp(4)"): {"mixed-adam", "fp32-adam", "sgd"},
    ("deepspeed", "zero2(4)"): {"mixed-adam", "megatron-bf16", "fp16-fp32sums", "fp32-twice"},
    ("deepspeed", "zero1(4, reduce=all_reduce)"): {"megatron-bf16", "fp16-fp32grad"},
    ("deepspeed", "zero1(2, reduce=all_reduce) * pp(2, microbatches=2)"): {"mixed-adam", "bf16-bf16grad", "megatron-bf16", "fp16-fp32grad"},
    ("megatron", "zero1(4)"): {"megatron-bf16", "megatron-fp16", "fp32-adam", "fp16-fp32sums", "bf16-fp32copies", "sgd", "sgd-momentum"},
    ("megatron", "zero2(4)"): {"megatron-bf16", "fp32-adam", "fp16-fp32sums", "sgd", "sgd-momentum"},
    ("megatron", "fsdp(4, reshard_after_forward=false)"): {"fp32-adam", "bf16-fp32copies", "sgd", "sgd-momentum"},
    ("accelerate", "fsdp(4, prefetch=true)"): {"fp32-adam"},
    ("accelerate", "ddp(4)"): {"mixed-adam", "fp32-adam"},
    ("accelerate", "zero2(4)"): {"mixed-adam", "fp32-twice"},
    ("accelerate", "ddp(2) * pp(2, microbatches=4) * checkpoint"): {"megatron-bf16", "megatron-fp16", "fp32-adam"},
}


@pytest.mark.parametrize(("system", "text"), WIDTHS, ids=map(str, WIDTHS))
def test_byte_widths_are_written_where_the_system_has_them(system: str, text: str) -> None:
    found = set()
    for name in PRECISIONS:
        try:
            made = written(text, system, precision=name, needed={"precision"})
        except InputError as refused:
            assert [d.code for d in refused.diagnostics] == ["PP506"]
        else:
            assert made.read.precision == name
            found.add(name)
    assert found == WIDTHS[system, text]


@pytest.mark.parametrize("refused", ["zero1(4)", "fsdp(4, prefetch=true)", "ddp(4) * clip"])
def test_where_byte_widths_cannot_be_said_those_are_named_that_can(refused: str) -> None:
    (system, widths) = next((system, each) for (system, text), each in WIDTHS.items() if text == refused and "mixed-adam" not in each)
    told = remedy(refused, system, precision="mixed-adam", needed={"precision"})
    said, _, listed = told.partition(" the byte widths of ")
    assert said == "it can be said with"
    assert {*re.findall(r"[\w-]+", listed.partition(":")[0])} - {"or"} == widths
    assert re.findall("`--precision (.*)`", told) == [next(name for name in PRECISIONS if name in widths)]


def test_where_neither_strategy_nor_byte_widths_can_be_said_both_are_named() -> None:
    """Whoever follows both gets a file; where no byte widths are asked for, none are named."""
    text, system = "zero1(2) * pp(4, schedule=zb-h1, microbatches=8)", "megatron"
    told = remedy(text, system, precision="mixed-adam", needed={"precision"})
    (near,), (precision,) = re.findall("reads as `(.*?)`", told), re.findall("`--precision (.*)`", told)
    made = written(near, system, precision=precision, needed={"precision"}, numbers={"m": Fraction(8), "b": Fraction(1)})
    assert (made.read.expression, made.read.precision) == (near, precision)
    assert remedy(text, system) == told.partition(", with")[0]


def remedy(text: str, system: str, **more: Any) -> str:
    """What is said to do where a strategy is refused."""
    with pytest.raises(InputError) as refused:
        written(text, system, **more)
    (problem,) = refused.value.diagnostics
    return problem.help or ""


def test_byte_widths_that_are_not_needed_are_told() -> None:
    made = written("fsdp(4) * clip", "torchtitan", precision="mixed-adam")
    assert [note for note in made.notes if "and not with mixed-adam" in note]


DATA = st.sampled_from(
    [
        *("", "ddp({n})", "zero1({n})", "zero2({n})", "zero3({n})", "fsdp({n})", "zero_offload({n})", "zero_infinity({n})"),
        *("fsdp({n}, prefetch=true)", "fsdp({n}, reshard_after_forward=false)", "fsdp({n}, reshard_after_forward=false, prefetch=true)"),
        *("hsdp(rep=2, shard={n})", "hsdp(rep=2, shard={n}, prefetch=true)", "zeropp({n}, node=2)", "zero3({n}, bucket=unit)"),
        *("zero1({n}, reduce=all_reduce)", "zero2({n}, back=broadcast)", "fsdp({n}, root=keep)", "fsdp({n}, unit=model)"),
        *("ddp(dp=a) * zero3(dp=b)", "(R, R, S, R, dp={n})", "(S*, S, S, R, dp={n})"),
    ]
)
MODEL = st.sampled_from(["", "tp({t})", "tp({t}) * sp", "tp({t}) * sp(norms=each)", "tp({t}) * zero_r"])
TOKENS = st.sampled_from(["", "cp(2)", "cp(2, attention=gather)", "cp(2, attention=ulysses)"])
PASSES = st.sampled_from(
    [
        *("", "accumulate({m})", "pp(2, microbatches={m})", "pp(4, microbatches={m}, schedule=gpipe)"),
        *("pp(2, microbatches={m}, schedule=zb-v)", "pp(2, microbatches={m}, schedule=interleaved, chunks=2)"),
        *("pp(2, microbatches={m}, schedule=dualpipe-v)", "pp(2, microbatches={m}, schedule=zb-h1)"),
    ]
)
KEPT = st.sampled_from(["", "checkpoint", "checkpoint(checkpoints=host)"])
SHARDS = {"zero1", "zero2", "zero3", "fsdp", "zero_offload", "zero_infinity"}


@st.composite
def products(draw: st.DrawFn) -> str:
    """A product of strategies with degrees; what is sharded over samples mostly over those of experts and tokens, too."""
    n, t, m = draw(st.sampled_from([1, 2, 4, 6])), draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 4, 8]))
    data, tokens = draw(DATA).format(n=n), draw(TOKENS)
    parts = [data, draw(MODEL).format(t=t), tokens, draw(PASSES).format(m=m), draw(KEPT)]
    experts = draw(st.sampled_from(["", "", "", "ep(2)", "ep(2, experts=whole)", "ep(2) * ep(tp)", "ep(2) * ep(cp)"]))
    name, _, options = data.partition("(")
    for axis in ("cp" if tokens else "", "ep" if experts else ""):
        if axis and name in SHARDS and draw(st.integers(0, 3)):
            kept = [o for o in options.rstrip(")").split(", ")[1:] if o]
            parts.append(f"{name}({', '.join([f'dp={axis}', *kept])})")
    parts += [experts, "clip" if draw(st.booleans()) else ""]
    return " * ".join(part for part in parts if part) or "ddp(2)"


def usable(text: str) -> Strategy | None:
    try:
        strategy = parse_strategy(text)
        lower(strategy)
    except InputError:
        return None
    return strategy


@settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(products())
def test_of_any_product_a_configuration_is_refused_or_reads_back_the_same(text: str) -> None:
    strategy = usable(text)
    if strategy is None:
        return
    for system in WRITTEN:
        try:
            made = written(strategy, system)
        except InputError as refused:
            assert {d.code for d in refused.diagnostics} <= {"PP203", "PP506"}, (text, system)
            assert all(d.help and (d.notes or d.code == "PP203") for d in refused.diagnostics), (text, system)
            continue
        again = read_again(made, strategy)
        if any(axis.degree is None for axis in strategy.axes):
            continue
        wanted = prefetching(strategy, again)
        if {a.name for a in wanted.axes} == {a.name for a in again.axes}:
            assert step(again) == step(wanted), (text, system)


def own_configurations() -> Iterator[tuple[str, Path, Imported]]:
    """The configurations of files, each for the first number of devices that it can be for."""
    for system in WRITTEN:
        for path in sorted(p for p in (CONFIGS / system).iterdir() if p.is_file() and p.name != "expected.json"):
            for world in (None, 64, 16, 8, 32, 128, 1, 2, 4, 256, 1024):
                try:
                    read = read_config(str(path), system=system, world=world)
                    if all(axis.degree for axis in read.strategy().axes):
                        yield system, path, read
                        break
                except InputError:
                    continue


def test_configurations_that_people_wrote_are_written_again() -> None:
    count: Counter[str] = Counter()
    for system, path, read in own_configurations():
        strategy = with_microbatches(read.strategy(), read)
        if strategy.schedule.microbatches == SYMBOLIC:
            continue
        asked = Asked(numbers=read.numbers, precision=read.precision, needed={*read.numbers})
        made = write(strategy, system, asked)
        assert step(with_microbatches(made.read.strategy(), made.read)) == step(prefetching(strategy, made.read.strategy())), path.name
        assert {n: v for n, v in made.read.numbers.items() if (n, v) != ("m", 1)} == {
            n: v for n, v in read.numbers.items() if (n, v) != ("m", 1)
        }, path.name
        count[system] += 1
    assert count == {"accelerate": 29, "deepspeed": 19, "megatron": 17, "torchtitan": 15}


#: Whole files, of which the kind is a choice, or whose settings are there for what the formulas count.
EXACTLY: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("accelerate", "ddp(4)", {"num_processes": 4, "distributed_type": "MULTI_GPU"}),
    (
        "accelerate",
        "tp(2)",
        {"num_processes": 2, "distributed_type": "MULTI_GPU", "parallelism_config.parallelism_config_tp_size": 2},
    ),
    (
        "accelerate",
        "zero_infinity(4)",
        {
            "num_processes": 4,
            "distributed_type": "FSDP",
            "fsdp_config.fsdp_version": 2,
            "fsdp_config.fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_config.fsdp_reshard_after_forward": True,
            "fsdp_config.fsdp_offload_params": True,
            "parallelism_config.parallelism_config_dp_shard_size": 4,
        },
    ),
    (
        "accelerate",
        "zero1(4)",
        {
            "num_processes": 4,
            "distributed_type": "DEEPSPEED",
            "deepspeed_config.zero_stage": 1,
            "deepspeed_config.gradient_clipping": 0.0,
        },
    ),
    ("deepspeed", "ddp(4)", {"train_micro_batch_size_per_gpu": 1}),
    (
        "deepspeed",
        "zero1(4)",
        {
            "train_micro_batch_size_per_gpu": 1,
            "zero_optimization.stage": 1,
            "zero_optimization.use_multi_rank_bucket_allreduce": False,
        },
    ),
    (
        "deepspeed",
        "zero_offload(4)",
        {
            "train_micro_batch_size_per_gpu": 1,
            "zero_optimization.stage": 2,
            "zero_optimization.use_multi_rank_bucket_allreduce": False,
            "zero_optimization.offload_optimizer.device": "cpu",
            "zero_force_ds_cpu_optimizer": False,
        },
    ),
    *(
        (
            "deepspeed",
            text,
            {
                "train_micro_batch_size_per_gpu": 1,
                "zero_optimization.stage": 3,
                **dict.fromkeys((f"zero_optimization.stage3_max_{n}" for n in ("live_parameters", "reuse_distance")), 0),
                "zero_optimization.stage3_param_persistence_threshold": 0,
                "zero_optimization.stage3_prefetch_bucket_size": 0,
                **more,
            },
        )
        for text, more in (
            ("zero3(4)", {}),
            (
                "zero_infinity(4)",
                {
                    "zero_force_ds_cpu_optimizer": False,
                    **{f"zero_optimization.offload_{n}.device": "cpu" for n in ("optimizer", "param")},
                },
            ),
        )
    ),
)


@pytest.mark.parametrize(("system", "text", "settings_"), EXACTLY, ids=[f"{s}: {t}" for s, t, _ in EXACTLY])
def test_a_file_has_just_these_settings(system: str, text: str, settings_: dict[str, Any]) -> None:
    usual = {"compute_environment": "LOCAL_MACHINE"} if system == "accelerate" else {}
    made = written(text, system)
    assert flat(made.text, system) == usual | settings_
    assert system == "accelerate" or not [r for r in made.read.readings if r.told and "formulas" in r.note]


@pytest.mark.parametrize(("precision", "kind"), [("mixed-adam", "bf16"), ("megatron-bf16", "bf16"), ("fp16-fp32sums", "fp16")])
def test_widths_in_16_bits_are_bf16_where_both_would_do(precision: str, kind: str) -> None:
    file = flat(written("zero2(4)", "deepspeed", precision=precision).text, "deepspeed") or {}
    assert {name for name in file if name.endswith(".enabled")} == {f"{kind}.enabled"}


def test_settings_and_words_of_the_tables_are_known() -> None:
    for system in WRITTEN:
        rows = {*writing(system).settings, *(name for way in writing(system).ways for name in way.settings)}
        assert rows <= {known.name for known in known_settings(system)}
        assert any(way.when.text == "True" for way in writing(system).ways)
        for name, words in meaning(system).words.items():
            assert len(set(words.values())) == len(words), f"{system}: {name}"


#: Rows without which all that is written still reads back the same, and why they are there.
BESIDE: dict[str, dict[str, str]] = {
    "torchtitan": {
        "parallelism.data_parallel_shard_degree": "-1 takes the devices that are left: with it the file says how many it is for"
    },
    "deepspeed": {
        "zero_force_ds_cpu_optimizer": "its default refuses an optimizer of the program's own on the host",
        "zero_optimization.use_multi_rank_bucket_allreduce": "its default sends twice as much, which the reader notes",
        "zero_optimization.stage3_max_live_parameters": "its default keeps parameters gathered, which the reader notes",
        "zero_optimization.stage3_max_reuse_distance": "its default keeps parameters gathered, which the reader notes",
        "zero_optimization.stage3_param_persistence_threshold": "its default keeps small parameters whole",
        "zero_optimization.stage3_prefetch_bucket_size": "its default gathers ahead",
    },
    "megatron": {
        "ckpt_format": "Megatron's own FSDP asks for it",
        "moe_token_dispatcher_type": "its default gathers all tokens, which the reader notes",
        "muon_num_ns_steps": "a number that none of these strategies is asked with",
    },
    "accelerate": {
        "compute_environment": "Accelerate asks for it",
        "num_processes": "the number is known to the test, and not to the launcher",
        "megatron_lm_config.megatron_lm_recompute_granularity": "the default of this version of Accelerate",
    },
}


SCHEDULED = "fsdp(2, prefetch=true) * pp(4, microbatches=8) * clip"


def cases(system: str) -> list[tuple[str, dict[str, Any], str]]:
    """Strategies with numbers and byte widths that together need every row of a table, and what is written of each."""
    sizes = {"s": 8, "L": 4, "h": 64, "a": 8, "V": 128, "d": 8, "f": 256, "a_kv": 4, "n_pos": 16}
    latent = dict.fromkeys(("r_q", "r_kv", "d_nope", "d_rope", "d_v"), 8)
    of_experts = {"E": 4, "k": 1, "f_e": 32, "f_s": 16}
    found: list[tuple[str, dict[str, Any]]] = [(text, {}) for text in SAYS[system]]
    widths = [(text, one) for (s, text), every in WIDTHS.items() if s == system for one in every]
    found += [(text, {"precision": one, "needed": {"precision"}}) for text, one in widths]
    for group in ({"b": 2}, *({name: value} for name, value in sizes.items()), latent, of_experts):
        numbers = {name: Fraction(value) for name, value in {"b": 1, **group}.items()}
        found += [(text, {"numbers": numbers, "needed": set(group)}) for text in ("zero1(4)", "fsdp(4, prefetch=true) * clip", SCHEDULED)]
    return [(text, more, made) for text, more in found if (made := said(text, system, more))]


def said(text: str, system: str, more: Mapping[str, Any]) -> str:
    """What is written; nothing where it is refused."""
    try:
        return written(text, system, **more).text
    except InputError:
        return ""


@pytest.mark.parametrize("system", WRITTEN)
def test_without_any_row_of_a_table_something_is_no_longer_said(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is wrong is noticed: each row is needed by a strategy, but for those that have another reason."""
    every, whole = cases(system), writing(system)
    idle = set()
    for way, name in [(None, n) for n in whole.settings] + [(i, n) for i, one in enumerate(whole.ways) for n in one.settings]:
        monkeypatch.setattr("placeproof.importers.writing.written.writing", lambda _, at=(way, name): without(whole, *at))
        shown = name.rpartition(".")[2]
        using = [(text, more, flat(made, system)) for text, more, made in every if shown in made.replace("-", "_")]
        if all(flat(said(text, system, more), system) in (old, {n: v for n, v in old.items() if n != name}) for text, more, old in using):
            idle.add(name)
    assert idle == set(BESIDE[system])


def flat(text: str, system: str) -> dict[str, Any] | None:
    """The settings of a file by their names; None of no file."""
    if not text:
        return None
    found, open_ = {}, [((), read_document(text, "mine", SYSTEMS[system].kinds[0], Problems()).data)]
    while open_:
        path, table = open_.pop()
        for key, value in table.items():
            if isinstance(value, dict):
                open_.append(((*path, key), value))
            else:
                found[".".join((*path, key))] = value
    return found


def without(table: Writing, way: int | None, name: str) -> Writing:
    """The table without a row: of all ways, or of one."""

    def rest(rows: Mapping[str, Any]) -> dict[str, Any]:
        return {n: formula for n, formula in rows.items() if n != name}

    if way is None:
        return replace(table, settings=rest(table.settings))
    return replace(table, ways=tuple(replace(w, settings=rest(w.settings)) if i == way else w for i, w in enumerate(table.ways)))
