"""Plans that NVIDIA publishes: how each is said, that it is not said not to fit, and how long its step is said to take."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from math import prod
from pathlib import Path
from statistics import median

import pytest

from placeproof.answers import subject as subjects
from placeproof.answers.accuracy import Accuracy, accuracy, terms_left_out
from placeproof.answers.runs import Derivations
from placeproof.clusters import cluster
from placeproof.core.diagnostics import InputError
from placeproof.core.stages import stage_layers
from placeproof.cost.accuracy import step_accuracy
from placeproof.cost.model import derive_model
from placeproof.cost.model.process import process_memory
from placeproof.cost.model.time import step_time
from placeproof.implementations import find
from placeproof.models import load
from placeproof.report.models.fit import FITS
from placeproof.runs import MeasuredRun, RunAs, named
from placeproof.runs.plans import read_plans
from placeproof.strategies import parse_strategy
from tests.helpers.samples import NIGHTLY

DATA = Path(__file__).parent.parent / "data/measured"
ROWS = list(csv.DictReader((DATA / "nvidia_plans.csv").read_text(encoding="utf-8").splitlines()))
MODELS = {
    "llama3-8b": "LLAMA3_8B",
    "llama3-70b": "LLAMA3_70B",
    "llama3-405b": "LLAMA3.1_405B",
    "deepseek-v3": "DeepSeekV3 (w/o MTP)",
    "gpt-oss-120b": "GPT OSS 120B",
    "qwen3-30b-a3b": "Qwen3_30B_a3B",
    "qwen3-235b-a22b": "Qwen3_235B_a22B",
    "kimi-k2": "Kimi_K2",
}
#: The release that names no systems has a table for each, in this order.
SYSTEMS = {"gb300-nvl72": range(118, 126), "gb200-nvl72": range(126, 134), "dgx-b200": range(134, 140), "dgx-h100": range(140, 146)}
#: The rows whose memory is said not to be enough. Its release's recipe has micro-batches of one sequence, the table of four.
TOO_LARGE = {"25.11 143"}


def number(text: str) -> int:
    return 1 if text in ("", "n/a", "0") else int(text)


def place(run: MeasuredRun) -> int:
    return int(run.name.split()[1])


def run_of(place_: int) -> MeasuredRun:
    return next(run for run in named("nvidia").runs if place(run) == place_)


def test_rows_are_those_that_were_published() -> None:
    """Degrees, sizes and times; layers of stages are all of the model's, and in flight is a whole number of micro-batches."""
    for run in named("nvidia").runs:
        row, sizes = ROWS[place(run)], dict(text.split("=") for text in run.settings)
        assert run.name.split()[0] == row["release"][:5]
        assert MODELS[run.run_as.model] == row["Model"]
        assert row["kind"].startswith("Pre-Training")
        assert bool(run.run_as.fp8) == ("FP8" in row["Precision"])
        told = row["System"].removeprefix("DGX-").lower()
        assert told in run.run_as.cluster if told else place(run) in SYSTEMS[run.run_as.cluster]
        degrees = {axis.name: axis.degree or 0 for axis in subjects.strategy(subjects.read(run.strategy)).axes}
        tp, pp, cp, vp, ep = (number(row[name]) for name in ("TP", "PP", "CP", "VP", "EP"))
        assert [degrees.get(name, 1) for name in ("tp", "pp", "cp")] == [tp, pp, cp]
        assert degrees.get("ep", 1) * (tp if "ep(tp)" in run.strategy else 1) == ep
        assert (f"chunks={vp}," in run.strategy) == (vp > 1)
        assert ("fsdp" in run.strategy) == (number(row["FSDP"]) > 1)
        devices = prod(degrees.values())
        assert devices == int(row["#-GPUs"])
        assert (int(sizes["b"]), int(sizes["s"])) == (int(row["MBS"]), int(row["Sequence Length"]))
        ((m, seconds),) = run.steps.items()
        batch = int(row["GBS"])
        assert m * int(sizes["b"]) * devices == batch * tp * pp * cp
        rate = float(row["Tokens / sec / GPU"].split()[0])
        assert float(seconds) == pytest.approx(batch * int(row["Sequence Length"]) / rate / devices, rel=1e-4)
        if run.stages:
            assert sum(run.stages) == {"llama3-405b": 126, "qwen3-235b-a22b": 94}.get(run.run_as.model, 61)
            assert len(run.stages) == pp * vp


def test_other_rows_are_counted_by_why_they_cannot_be_said() -> None:
    said = {place(run) for run in named("nvidia").runs}
    reasons: Counter[str] = Counter()
    for number_, row in enumerate(ROWS):
        if number_ in said:
            continue
        name, kind = row["Model"], row["kind"].split()[0]
        offloaded = name == "LLAMA3_70B" and number(row["FSDP"]) > 1
        words = {
            "state": name.startswith("Nemotron"),
            "packed": kind in ("SFT", "LoRA"),
            "4 bits": row["Precision"] == "NVFP4",
            "further token": name in ("DeepSeekV3", "DeepSeekV3 (w/ MTP)"),
            "on the host": offloaded,
        }
        reasons[next(word for word, holds in words.items() if holds)] += 1
    ours = named("nvidia").unsaid
    assert {next(w for w in reasons if w in text): count for text, count in ours.items()} == dict(reasons)
    assert len(said) + sum(ours.values()) == len(ROWS) == 146


#: By day: some plans, the one that is said not to fit, and those in which memory is nearest to its end.
SAMPLE = (12, 16, 17, 47, 140, 143)


@pytest.fixture(scope="module")
def predicted() -> Accuracy:
    of = named("nvidia")
    return accuracy(of if NIGHTLY else replace(of, runs=tuple(map(run_of, SAMPLE))))


def test_none_but_one_is_said_not_to_fit(predicted: Accuracy) -> None:
    said = {one.run.name: one.room.fits for one in predicted.predictions if one.room is not None}
    assert len(said) == len(predicted.of.runs)
    assert {name for name, fits in said.items() if fits is False} == TOO_LARGE
    assert {True, None} <= set(said.values())


def test_what_cannot_fit_is_said_not_to() -> None:
    """A plan that fills its devices with four times the micro-batch."""
    run = run_of(17)
    larger = replace(run, settings=tuple("b=4" if text == "b=1" else text for text in run.settings))
    (one,) = accuracy(replace(named("nvidia"), runs=(larger,))).predictions
    assert one.room is not None
    assert one.room.fits is False


def test_steps_are_near(predicted: Accuracy) -> None:
    """A quarter off in the middle, and models and devices in the order in which they were measured; in bf16 a step would take longer."""
    rates = [pair for one in predicted.predictions for pair in one.rates.values()]
    middle = median(abs(derived / measured - 1) for measured, derived in rates)
    assert middle < Fraction(1, 4)
    found = step_accuracy(predicted.predictions)
    assert found is not None
    assert found.rates[-1].model == ""
    assert found.rates[-1].rank_correlation > (0.95 if NIGHTLY else 0.9)
    assert found.rates[-1].error == middle
    (dense,) = (one for one in predicted.predictions if place(one.run) == 47)
    assert all(abs(error) < Fraction(1, 10) for error in dense.step_errors.values())
    wide = replace(dense.run, run_as=replace(dense.run.run_as, fp8=""))
    (one,) = accuracy(replace(predicted.of, runs=(wide,))).predictions
    assert all(error > Fraction(1, 4) for error in one.step_errors.values())


def test_the_page_shows_what_is_derived(predicted: Accuracy) -> None:
    """Of the table that is run at night, the rows that are derived by day."""
    page = Path(__file__).parents[2] / "docs/explanation/how-good.md"
    lines = [" ".join(line.split()) for line in page.read_text(encoding="utf-8").splitlines()]
    for one in predicted.predictions:
        ((m, error),) = one.step_errors.items()
        assert one.room is not None
        begin, end = f"{one.run.strategy} {one.run.run_as.model} ", f" {m} "
        told = f" {100 * float(error):.2f} % {FITS[one.room.fits]}"
        assert any(line.startswith(begin) and end in line and line.endswith(told) for line in lines), one.run.name


def test_rates_are_tokens_a_second_and_device(predicted: Accuracy) -> None:
    """As the table prints them."""
    (one,) = (one for one in predicted.predictions if place(one.run) == 47)
    ((measured, derived),) = one.rates.values()
    assert float(measured) == pytest.approx(1633, rel=1e-4)
    ((m, error),) = one.step_errors.items()
    assert m == 128
    assert measured / derived - 1 == error


def test_a_plan_with_degrees_left_open_takes_as_long() -> None:
    """What is derived once for plans of one shape is what is derived of each: with experts, fp8, stages and Muon."""
    import placeproof

    for number_, words in ((17, None), *([(20, "mla-up"), (3, None)] if NIGHTLY else [])):
        run = run_of(number_)
        ((m, _),) = run.steps.items()
        one = Derivations()(run).step(m, cluster(run.run_as.cluster))
        sizes = {name: Fraction(value) for name, _, value in (text.partition("=") for text in run.settings)}
        stages = list(run.stages) or None
        model = placeproof.model(
            run.strategy, run.run_as.model, recompute=words, stages=stages, fp8=True, precision=run.run_as.precision, **sizes
        )
        assert one.seconds == pytest.approx(float(model.time(run.run_as.cluster).seconds), rel=1e-12)


def test_plans_of_mlperf_fit() -> None:
    """GPT-3 on H100: 1F1B, as nobody tells the chunks; without tensor parallelism it does not fit. Those of Llama compute in 4 bits."""
    rows = list(csv.DictReader((DATA / "mlperf_plans.csv").read_text(encoding="utf-8").splitlines()))
    h100, run_by = cluster("dgx-h100"), find("megatron-te-2.11").on("hopper")
    model = load("gpt3-175b", attention="flash", dropout="no")
    sizes = {"b": 1, "b_theta": 2, "b_g": 2, "b_omega": 12, "b_a": 2}
    for text, fits in (("zero1 * tp(4) * sp * pp(8)", True), ("zero1 * pp(8)", False)):
        d = derive_model(model, parse_strategy(text), fp8=True, run_by=run_by)
        for row in (row for row in rows if row["model"] == "gpt3-175b"):
            assert (row["tp"], row["pp"], row["cp"], row["mbs"]) == ("4", "8", "1", "1")
            put = {**sizes, "N_dp": int(row["gpus"]) // 32, "m": int(row["minibs"])}
            step = step_time(d, {name: Fraction(n) for name, n in put.items()}, h100)
            fullest = max(d.costs, key=lambda cost: step.price.amount(cost.peak))
            assert process_memory(step, fullest).fits is fits
    assert all("fp4" in row["file"] for row in rows if row["model"] != "gpt3-175b")


def test_terms_of_its_steps_can_be_left_out() -> None:
    """At the device's peak of fp8 and bf16 a step is said to take less."""
    found = terms_left_out(replace(named("nvidia"), runs=(run_of(47),))).accuracies
    assert found["rate"].bias < found[""].bias - Fraction(1, 10)


TABLE = "strategy,model,cluster,fp8,stages,b,m,ms\n"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('pp(2),llama3-8b,dgx-h100,no,"16,16",1,4,100', "`no` is not `yes`"),
        ("pp(2),llama3-8b,dgx-h100,yes,half,1,4,100", "`half` lists no numbers of layers"),
    ],
)
def test_cells_of_plans_are_checked(tmp_path: Path, row: str, said: str) -> None:
    path = tmp_path / "steps.csv"
    path.write_text(TABLE + row + "\n", encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_plans(path, RunAs())
    assert [d.message for d in error.value.diagnostics] == [said]
    path.write_text(TABLE + 'pp(2),llama3-8b,dgx-h100,yes,"15,17",1,4,100\n', encoding="utf-8")
    ((run, _),) = read_plans(path, RunAs())
    assert (run.stages, run.run_as.fp8, run.run_as.cluster) == ((15, 17), "yes", "dgx-h100")


def test_layers_of_stages_are_read_as_they_are_written() -> None:
    assert stage_layers("7, 8x2,0") == (7, 8, 8, 0)
    assert stage_layers("7;8") is stage_layers("") is stage_layers("8x0") is None
