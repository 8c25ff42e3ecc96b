"""Runs that others measured on real devices, held against what is derived for them."""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from placeproof.answers import subject as subjects
from placeproof.answers.accuracy import accuracy
from placeproof.answers.models import Clock, ModelRun, derived, timed
from placeproof.answers.numbers import Settings, degrees
from placeproof.answers.runs import Derivations
from placeproof.clusters import cluster
from placeproof.core.diagnostics import InputError
from placeproof.cost.accuracy import Plans, Prediction, step_accuracy
from placeproof.cost.model import derive_model
from placeproof.implementations import find, names
from placeproof.models import load
from placeproof.runs import UNITS, MeasuredRun, like, named, reserved, run_sets, timed_on
from placeproof.strategies import parse_strategy
from tests.helpers.samples import NIGHTLY

DATA = Path(__file__).parent.parent / "data" / "measured" / "b200_steps.csv"


def test_rows_are_those_that_were_published() -> None:
    """Each row is one of the collection, with its figures, and none of the collection is missing."""
    rows = list(csv.DictReader(DATA.read_text(encoding="utf-8").splitlines()))
    published = {(Fraction(r["allocated_gib"]) * UNITS["GiB"], Fraction(r["reserved_gib"]) * UNITS["GiB"], int(r["seq"])) for r in rows}
    sizes = [dict(text.split("=") for text in run.settings) for run in named("b200").runs]
    ours = {(run.tensors, run.reserved, int(size["s"])) for run, size in zip(named("b200").runs, sizes, strict=True)}
    assert ours == published
    for run, size in zip(named("b200").runs, sizes, strict=True):
        row = next(r for r in rows if run.tensors == Fraction(r["allocated_gib"]) * UNITS["GiB"])
        degrees = {"tp": int(row["tp"]), "cp": int(row["cp"]), "pp": int(row["pp"]), "zero1": int(row["dp"])}
        for axis, degree in degrees.items():
            assert (f"{axis}({degree}" in run.strategy) == (degree > 1), (run.strategy, row)
        assert size["L"] == row["layers"]
        took = {int(r["micro_batches"]): Fraction(r["measured_ms"]) / 1000 for r in rows if r["allocated_gib"] == row["allocated_gib"]}
        assert run.steps == took
        assert size["b"] == row["micro_batch"]


def test_reserved_memory_is_that_of_the_collection() -> None:
    """Of Mist's plans, whose strategies nobody tells: allocated and reserved of each stage, in the order of the file."""
    plans = json.loads(DATA.with_name("mist_l4_gpt.json").read_text(encoding="utf-8")).values()
    pairs = [
        tuple(Fraction(text.split()[0].strip("[,")) / 1024 * UNITS["GiB"] for text in (allocated, reserved))
        for plan in plans
        for allocated, reserved in zip(
            plan["exec_stage_peak_allocated_memories"].split(", "), plan["exec_stage_peak_reserved_memories"].split(", "), strict=True
        )
    ]
    assert [(run.tensors, run.reserved) for run in named("mist-l4").runs] == pairs
    every = [run.reserved / run.tensors - 1 for one in run_sets() for run in one.runs if run.reserved and run.tensors]
    assert reserved() == (min(every), sorted(every)[12] / 2 + sorted(every)[13] / 2, max(every), len(every))
    assert len(every) == 26
    assert accuracy("mist-l4").predictions[0].error is None
    with pytest.raises(InputError):
        accuracy("mist-l4", ["swiglu"])


def test_steps_are_timed_by_what_kernels_reach() -> None:
    """16 steps of B200 that hide nothing, with figures that others measured of single kernels and exchanges: 8% off on average. With half
    of the peak, and no time for what is no product of matrices, it is more than twice as much."""
    of, halves = named("b200"), []
    by_kernels = [abs(error) for one in accuracy(of).predictions for error in one.step_errors.values()]
    for run in of.runs:
        strategy = subjects.strategy(subjects.read(run.strategy))
        numbers = Settings(given=run.settings, precision=run.run_as.precision).numbers(
            degrees=degrees(strategy.axes, strategy.schedule.microbatches)
        )
        d, rest = derived(subjects.model(run.run_as.model), strategy, ModelRun(), numbers)
        for m, seconds in run.steps.items():
            given = replace(rest, values={**rest.values, "m": Fraction(m)})
            _, step = timed(d, given, Clock(cluster=cluster(of.cluster), eta=Fraction(1, 2), overlap="none"))
            assert step is not None
            halves.append(abs(step.seconds / seconds - 1))
    assert len(by_kernels) == len(halves) == 16
    assert sum(by_kernels) / 16 < Fraction(8, 100) < Fraction(18, 100) < sum(halves) / 16
    assert max(by_kernels) < Fraction(14, 100) < Fraction(30, 100) < max(halves)


@pytest.mark.parametrize("name", ["large", "small"])
def test_rows_of_plans_are_those_that_were_published(name: str) -> None:
    """Each row of a table is one of the collection: its degrees, its sizes and its time."""
    rows = list(csv.DictReader(DATA.with_name(f"measured_{name}.csv").read_text(encoding="utf-8").splitlines()))
    for run, row in zip(named(f"a100-{name}").runs, rows, strict=True):
        sizes = dict(text.split("=") for text in run.settings)
        said = {what: int(row[f"{what} parallelism"]) for what in ("data", "tensor", "pipeline")}
        for axis, what in (("ddp", "data"), ("tp", "tensor"), ("pp", "pipeline")):
            assert (f"{axis}({said[what]})" in run.strategy) == (said[what] > 1), (run.strategy, row)
        assert ("accumulate" in run.strategy) == (said["pipeline"] == 1)
        columns = {"L": "# layers", "h": "hidden size", "a": "attention heads", "b": "micro batch", "s": "sequence length"}
        assert {symbol: sizes[symbol] for symbol in columns} == {symbol: row[column] for symbol, column in columns.items()}
        ((m, seconds),) = run.steps.items()
        assert m * int(sizes["b"]) * said["data"] == int(row["global batch"])
        assert seconds == Fraction(row["iteration time (ms)"]) / 1000


@cache
def plans_of_one_model(name: str) -> tuple[Prediction, ...]:
    """What is derived for some plans: one whole group, or two."""
    of = named(name)
    if name == "a100-small":
        of = replace(of, runs=tuple(run for run in of.runs if _is_small(run, devices=2, samples=(8, 16))))
    elif not NIGHTLY:
        of = replace(of, runs=tuple(run for run in of.runs if "h=3072" in run.settings))
    return accuracy(of).predictions


def _is_small(run: MeasuredRun, devices: int, samples: tuple[int, ...]) -> bool:
    degrees_said = [int(n) for n in re.findall(r"\((\d+)\)", run.strategy)]
    (m,) = run.steps
    b = next(int(text[2:]) for text in run.settings if text.startswith("b="))
    across = int(found[1]) if (found := re.search(r"ddp\((\d+)\)", run.strategy)) else 1
    return math.prod(degrees_said) == devices and m * b * across in samples and "L=24" in run.settings


def spearman(measured: Sequence[Fraction], said: Sequence[Fraction]) -> float:
    """By the sum of squared differences of ranks, of values that are all different."""
    n = len(measured)
    places = [{value: place for place, value in enumerate(sorted(values))} for values in (measured, said)]
    assert all(len(each) == n for each in places)
    return 1 - 6 * sum((places[0][a] - places[1][b]) ** 2 for a, b in zip(measured, said, strict=True)) / (n * (n * n - 1))


def test_plans_are_ranked_as_they_were_measured() -> None:
    """26 plans of a GPT of 3.6 billion parameters on 64 A100: by rank they agree with what was measured, and the one that is picked is the
    fastest. Without waiting of stages, or with half of the peak, they agree less."""
    every = [one for one in plans_of_one_model("a100-large") if "h=3072" in one.run.settings]
    found = step_accuracy(every)
    assert found is not None
    (plans,) = found.plans
    assert (len(plans.measured), plans.devices, plans.samples) == (26, 64, 512)
    assert plans.rank_correlation == pytest.approx(spearman(plans.measured, plans.derived))
    assert plans.rank_correlation > 0.96
    assert plans.regret == 0
    assert found.error < Fraction(26, 100)
    of = replace(named("a100-large"), runs=tuple(one.run for one in every))
    without = step_accuracy(accuracy(of, ["bubble"]).predictions)
    assert without is not None
    assert without.plans[0].rank_correlation < 0.9
    assert without.plans[0].regret > Fraction(1, 5)


def test_small_plans_are_ranked_as_they_were_measured() -> None:
    """Of one model on two devices of a node, two global batches."""
    found = step_accuracy(plans_of_one_model("a100-small"))
    assert found is not None
    assert [(plans.devices, plans.samples, len(plans.measured)) for plans in found.plans] == [(2, 8, 8), (2, 16, 11)]
    for plans in found.plans:
        assert plans.rank_correlation == pytest.approx(spearman(plans.measured, plans.derived))
    assert all(plans.rank_correlation > 0.9 for plans in found.plans)
    assert found.regrets == (0, 0, 0)


def test_the_page_shows_what_is_derived() -> None:
    """Of the tables that are run at night, those groups and rows that are derived by day."""
    page = {" ".join(line.split()) for line in (DATA.parents[3] / "docs/explanation/how-good.md").read_text(encoding="utf-8").splitlines()}
    for name in ("a100-large", "a100-small"):
        every = plans_of_one_model(name)
        found = step_accuracy(every)
        assert found is not None
        for plans in found.plans:
            figures = f"{100 * float(plans.error):.2f} % {plans.rank_correlation:.3f} {100 * float(plans.regret):.2f} %"
            sizes = dict(text.split("=") for text in plans.settings)
            assert f"{sizes['h']} {sizes['L']} {plans.devices} {plans.samples} {len(plans.measured)} {figures}" in page
    for one in plans_of_one_model("a100-large"):
        ((m, error),) = one.step_errors.items()
        b = next(text[2:] for text in one.run.settings if text.startswith("b="))
        assert any(line.startswith(f"{one.run.strategy} 3072 30 {b} {m} ") and f" {100 * float(error):.2f} %" in line for line in page)


def test_what_is_known_of_times_is_what_the_page_shows() -> None:
    """Of each set, cluster by cluster. That the page shows what is derived, is looked at by night, and of some rows above by day."""
    page = (DATA.parents[3] / "docs/explanation/how-good.md").read_text(encoding="utf-8")
    measured = {one.name: Counter(run.run_as.cluster or one.cluster for run in one.runs for _ in run.steps) for one in run_sets()}
    known = {one.name: {times.cluster: times for times in one.times} for one in run_sets()}
    assert {name: {where: times.steps for where, times in each.items()} for name, each in known.items()} == {
        name: {where: steps for where, steps in each.items() if where} for name, each in measured.items()
    }
    for name in (name for name, each in known.items() if each):
        shown = re.search(rf"\$ placeproof accuracy {name}(?: --each)?\n.*?```", page, re.DOTALL)
        assert shown is not None
        for where, times in known[name].items():
            rows = re.findall(rf" {where} .*? (-?[\d.]+) %", shown[0])
            if len(known[name]) > 1:
                assert len(rows) == times.steps
                assert times.error == round(sum(abs(Fraction(row)) for row in rows) / times.steps / 100, 3)
                continue
            error = re.search(r"errors: ([\d.]+) %|nothing +([\d.]+) %", shown[0])
            assert error is not None
            assert times.error == round(Fraction(error[1] or error[2]) / 100, 3)
            ranks = re.search(r"Spearman: ([\d.]+) on average[^:]*regret: ([\d.]+) %", shown[0])
            assert (ranks is not None) == bool(times.rank_correlation)
            if ranks is not None:
                assert (times.rank_correlation, times.regret) == (Fraction(ranks[1]), round(Fraction(ranks[2]) / 100, 3))


def test_times_are_known_of_the_same_devices_alone() -> None:
    assert [(one.name, times.cluster) for one, times in timed_on(cluster("dgx-a100-80").device)] == [
        ("a100-large", "vtrain-a100"),
        ("a100-small", "vtrain-a100"),
    ]
    assert [one.name for one, _ in timed_on(cluster("dgx-b200").device)] == ["b200", "nvidia"]
    assert timed_on(replace(cluster("dgx-b200").device, memory_bandwidth=Fraction(1))) == ()
    assert timed_on(cluster("tpu-v5e").device) == ()


def test_regret_is_that_of_the_pick() -> None:
    """Of plans that are predicted to be as fast the slowest counts, and what says nothing ranks nothing."""
    plans = Plans(model="", settings=(), devices=1, samples=1, measured=(*map(Fraction, (4, 5, 8)),), derived=(*map(Fraction, (2, 1, 1)),))
    assert plans.regret == 1
    assert replace(plans, derived=(*map(Fraction, (1, 2, 3)),)).regret == 0
    assert replace(plans, derived=(*map(Fraction, (3, 2, 1)),)).rank_correlation == pytest.approx(-1)
    assert replace(plans, derived=(Fraction(1),) * 3).rank_correlation == 0
    assert replace(plans, derived=(*map(Fraction, (2, 5, 16)),)).error == Fraction(1, 2)


def test_plans_of_one_shape_share_a_derivation() -> None:
    """With degrees left open, which are then set, a step takes what it takes with them in the strategy."""
    derive, small = Derivations(), named("a100-small").runs
    texts = ("ddp(2) * tp(2) * pp(2)", "ddp(4) * accumulate", "tp(4) * pp(2)")
    runs = [next(run for run in small if run.strategy == text) for text in texts]
    for run in runs:
        one = derive(run)
        strategy = subjects.strategy(subjects.read(run.strategy))
        given = degrees(strategy.axes, strategy.schedule.microbatches)
        numbers = Settings(given=run.settings, precision=run.run_as.precision).numbers(degrees=given)
        d, rest = derived(subjects.model(run.run_as.model), strategy, ModelRun(recompute="full"), numbers)
        ((m, _),) = run.steps.items()
        clock = Clock(cluster=cluster("vtrain-a100"), overlap="none")
        _, step = timed(d, replace(rest, values={**rest.values, "m": Fraction(m)}), clock)
        assert step is not None
        assert one.step(m, cluster("vtrain-a100")).seconds == step.seconds
        assert (one.devices, one.samples) == (step.devices, m and one.samples)


@pytest.mark.parametrize("name", [one.name for one in run_sets() if one.implementation and not one.fits])
def test_every_run_is_within_what_is_said(name: str) -> None:
    """And what is said is no looser than it has to be."""
    of = named(name)
    if of.process_within:  # by day the ones that are furthest off, and one of each kind
        of = of if NIGHTLY else replace(of, runs=tuple(of.runs[i] for i in (0, 5, 6, 12, 15)))
        errors = [abs(one.process_error) for one in accuracy(of).predictions if one.process_error is not None]
        assert of.process_within - Fraction(2, 1000) < max(errors) <= of.process_within
        assert sum(errors) / len(errors) < Fraction(5, 100)
    else:
        errors = [abs(one.error) for one in accuracy(of).predictions if one.error is not None]
        assert of.within / 2 < max(errors) <= of.within
        assert sum(errors) / len(errors) < of.within / 2
    assert len(errors) == len(of.runs)


def test_rows_of_bloom_are_those_that_were_published() -> None:
    rows = [r for r in json.loads(DATA.with_name("memory.json").read_text(encoding="utf-8")) if r["id"].startswith("bloom-mem-")]
    for run, row in zip(named("bloom").runs, rows, strict=True):
        said, sizes = row["inputs"], dict(text.split("=") for text in run.settings)
        assert run.process == row["value"] * UNITS["GiB"]
        assert (int(sizes["h"]), int(sizes["b"])) == (said["hidden"], said["MBS"])
        assert int(sizes["m"]) == said["GBS"] // said["DP"] // said["MBS"]
        for axis, degree in (("zero1", said["DP"]), ("tp", said["TP"]), ("pp", said["PP"])):
            assert (f"{axis}({degree})" in run.strategy) == (degree > 1)


def test_rows_of_zero_bubble_are_those_that_were_published() -> None:
    """A searched order is nearer than the one by hand with as much memory."""
    rows = [r for r in json.loads(DATA.with_name("memory.json").read_text(encoding="utf-8")) if r["id"].startswith("zb-t4-mem-")]
    names = {"ZB-2p": "zb-2p", "ZB-1p": "zb-1p", "1F1B": "1f1b", "1F1B-I": "interleaved"}
    of = named("zero-bubble")
    for run, row in zip(of.runs, rows, strict=True):
        said, sizes = row["inputs"], dict(text.split("=") for text in run.settings)
        assert run.tensors == row["value"] * UNITS["GB"]
        assert [int(sizes[n]) for n in ("L", "h", "a", "b", "s")] == [said[n] for n in ("layers", "hidden", "heads", "micro_batch", "seq")]
        assert run.strategy.startswith(f"pp({said['pipelines']}, schedule={names[said['schedule']]},")
        assert sum(run.stages) == said["layers"]
    by_hand = replace(of.runs[0], strategy=of.runs[0].strategy.replace("zb-2p", "zb-h2"))
    searched, other = (accuracy(replace(of, runs=(run,))).predictions[0].error for run in (of.runs[0], by_hand))
    assert searched is not None
    assert other is not None
    assert abs(searched) < Fraction(2, 100) < Fraction(7, 100) < -other


def test_gradients_that_an_update_widens_are_there_in_the_update() -> None:
    """Four bytes of each element that a device updates, beside what the step has there."""
    import placeproof

    with_, without = (
        placeproof.model("zero1(8)", "gpt3-1.3b", implementation=name, b=1, precision="mixed-adam").costs[0]
        for name in ("megatron-2023.10", None)
    )
    sizes = {"L": 24, "h": 2048, "V": 50304, "s": 2048, "a": 16, "f": 8192, "n_pos": 2048, "d": 128}
    more, elements = (with_.updating - without.updating).subs(sizes), sum(with_.parameters.values()).subs(sizes)
    assert more == 4 * elements / 8 > 0


def test_each_difference_of_bloom_is_needed() -> None:
    """Without it some run is further off; the table's gradient and the workspace are too small to decide here."""
    of = replace(named("bloom"), runs=named("bloom").runs[5:6])
    for difference in find(of.implementation).differences:
        (one,) = accuracy(of, [difference.name]).predictions
        assert one.process_error is not None
        assert (abs(one.process_error) > of.process_within) == (difference.name not in ("table", "workspaces")), difference.name


def test_each_difference_is_needed() -> None:
    """Without one of them some run is further off than what is said; none recomputes, and none has most at the embedding's gradient."""
    of = replace(named("b200"), runs=named("b200").runs[1:4:2])
    for difference in find(of.implementation).differences:
        errors = [abs(one.error) for one in accuracy(of, [difference.name]).predictions if one.error is not None]
        assert (max(errors) > of.within) == (difference.name not in ("table", "recomputed", *OF_EXPERTS)), difference.name


#: Differences that blocks with experts alone have.
OF_EXPERTS = ("gates", "router", "normalised", "dispatcher", "names")


@pytest.mark.parametrize("name", OF_EXPERTS)
def test_each_difference_of_experts_is_needed(name: str) -> None:
    """Without it a device has another most: less, but for what gates and their sums are."""
    run_by = find("megatron-te-2.11")
    other = replace(run_by, differences=tuple(one for one in run_by.differences if one.name != name))
    model = load({"normalised": "deepseek-v3", "names": "qwen3-30b-a3b"}.get(name, "mixtral-8x7b"))  # experts are narrow there
    sizes = {"s": 4096, "b": 1, "b_a": 2, "b_theta": 2, "b_g": 4, "b_omega": 12, "c": 1, "N_dp": 8, "m": 1, **model.sizes, "V": 1024}
    most = []
    for one in (run_by, other):
        d = derive_model(model, parse_strategy("ddp"), run_by=one)
        (cost,) = d.costs
        most.append(d.value(cost.activations + cost.working + cost.beside, sizes))
    assert (most[0] < most[1]) if name in ("gates", "normalised") else (most[0] > most[1])


def test_blocks_alone_are_further_off() -> None:
    errors = [abs(one.error) for one in accuracy("b200", ["all"]).predictions if one.error is not None]
    assert max(errors) > Fraction(6, 100)


def test_the_gradient_of_a_table_decides_where_little_else_is_kept() -> None:
    """Of a stage with an embedding and full recomputation: the table's gradient is there when backward ends."""
    import placeproof

    model = placeproof.model(
        "zero1(8) * pp(2)",
        "llama3-8b",
        recompute="full",
        implementation="megatron-te-2.11",
        b=1,
        s=512,
        L=4,
        m=8,
        precision="megatron-bf16",
    )
    first = model.costs[0]
    moment = model.peak_moment(first, model.numbers.values)
    assert moment is not None
    assert (moment.part, moment.backward) == ("before", True)
    assert model.value(moment.bytes, model.numbers.values) > 128256 * 4096 * 2 - 4 * 512 * 4096 * 2 * 4


@pytest.mark.parametrize("name", names())
def test_an_implementation_speaks_of_what_is_there(name: str) -> None:
    """Each difference, operation and module has a source with a file. Measured runs are of an implementation that there is, and of each
    but for eager modules, which are held against PyTorch itself."""
    one = find(name)
    for told in (*one.differences, *one.operations.values(), *one.modules.values()):
        assert "@" in told.source
        assert ":" in told.source
    assert all(of.implementation in ("", *names()) for of in run_sets())
    assert like(name) or one.modules


HEAD = 'name = "mine"\ntitle = "t"\nsource = "s"\n'
DIFFERENCE = HEAD + '[difference.x]\ntext = "t"\nsource = "s"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (DIFFERENCE + 'agian = ["swiglu.s"]\n', "`agian` is no key of `[difference.x]`"),
        (DIFFERENCE + "workspace = { other = -1 }\n", "a whole number of at least 0"),
        ('name = "mine"\ntitle = "t"\n', "`source` is missing"),
        (HEAD.replace("mine", "megatron-te-2.11"), "comes with placeproof"),
        ("name = \n", "this is not TOML"),
    ],
)
def test_a_file_of_ones_own_that_is_wrong(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        find(str(file))
    assert says in str(error.value)


def test_what_a_file_speaks_of_has_to_be_there(tmp_path: Path) -> None:
    """Blocks, values and weights that there are not would say nothing; all of them are refused, each with its place."""
    import placeproof

    text = DIFFERENCE + 'again = ["swiglu.s", "swiglu.z", "nothing.s", "swiglu"]\ngradients = ["embedding.y"]\ndummies = ["hed"]\n'
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        placeproof.model("ddp(2)", "llama3-8b", implementation=str(file))
    found = {one.message: one.place for one in error.value.diagnostics}
    assert set(found) == {
        "block `swiglu` has no value `z`",
        "there is no block `nothing`",
        "`swiglu` is a block, and a value of it is meant",
        "block `embedding` has no weight `y`",
        "there is no block `hed`",
    }
    assert all(place is not None and place.source == str(file) for place in found.values())


def _ours(name: str) -> str:
    """The text of a file that comes with placeproof, under another name."""
    from placeproof import implementations

    text = (Path(implementations.__file__).parent / f"{name}.toml").read_text(encoding="utf-8")
    return text.replace(f'name = "{name}"', 'name = "mine"', 1)


def _run_with(text: str, folder: Path) -> None:
    """Derive with an implementation of a file. Raises InputError."""
    import placeproof

    file = folder / "mine.toml"
    file.write_text(text, encoding="utf-8")
    assert find(str(file)).mentions
    placeproof.model("ddp(2)", "llama3-8b", implementation=str(file), b=2)


@pytest.mark.parametrize("name", names())
def test_what_our_own_files_speak_of_is_there(name: str, tmp_path: Path) -> None:
    _run_with(_ours(name), tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('needs = ["result"]', 'needs = ["results"]', "`results` is no tensor of operation `rsqrt`"),
        ('"cube = x"', '"cube"', "tells no tensor"),
        ('"cube = x"', '"free cube"', "`cube` is no tensor of operation `rsqrt`"),
        ('gives = "x without over"', 'gives = "x of y"', "`x of y` tells no tensor"),
        ('gives = "x | y"', 'gives = "x | z"', "`z` is no tensor of operation `add`"),
        ("pieces = 3", "piece = 3", "`piece` is no key"),
        ('unless = "order"', 'unless = "orders"', "`orders` is no unless"),
        ("square(wide)", "squared(wide)", "no operation and no module of the file: `squared(wide)`"),
        ("linear(o, wo)", "linear(o)", "`linear` takes `x` and `w` and `b`"),
        ('mean(square(wide), over="hidden")', 'mean(square(wide), ober="hidden")', "`ober` is no option of operations"),
        ("variance = mean", "variance -= mean", "statement 2 is neither"),
        ("variance = mean", "variance = = mean", "`forward` cannot be read"),
        ("q, k, v = chunk", "q, k = chunk", "statement 1 is neither"),
        ("cat(neg(x2), x1)", "cat(neg(x2), x3)", "`x3` is no tensor of module `rotate_half`"),
        ("rsqrt(shift(variance))", "rsqrt(shift(varianc))", "block `rms_norm` has no tensor `varianc`"),
        ("del q_turned, k_turned", "del q, k_turned", "block `attention_flash` has no tensor `q`"),
        ("[module.swiglu]", "[module.swiglus]", "there is no block `swiglus`"),
        ('gives="batch kv_heads tokens width"', 'gives="batch tokens width"', "modules of `mine` cannot be run"),
    ],
)
def test_modules_that_are_wrong(old: str, new: str, says: str, tmp_path: Path) -> None:
    """Nothing of operations and modules is passed over, and no module runs with tensors that do not fit."""
    text = _ours("pytorch-2.13")
    assert old in text
    with pytest.raises(InputError) as error:
        _run_with(text.replace(old, new, 1), tmp_path)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("strategy", "how", "says"),
    [
        ("tp(2) * sp", {}, "`tp` has a part of their tensors"),
        ("ddp(2)", {"recompute": "full"}, "what it computes again"),
        ("pp(2, schedule=zb-h1)", {}, "gradients by weights need that are put off"),
        ("ddp(2)", {"fp8": True}, "which tensors are in fp8"),
        ("ddp(2)", {"widths": {"swiglu.g": 1}}, "says how wide `swiglu.g` is"),
    ],
)
def test_modules_are_refused_for_what_they_do_not_know(strategy: str, how: dict[str, Any], says: str) -> None:
    import placeproof

    with pytest.raises(InputError) as error:
        placeproof.model(strategy, "llama3-8b", implementation="pytorch-2.13", b=1, **how)
    assert says in str(error.value)
    with pytest.raises(InputError, match="plans split their tensors"):
        placeproof.plan("llama3-8b", "dgx-h100", 16, batch=64, implementation="pytorch-2.13")
    with pytest.raises(InputError, match="has no module for block `moe`"):
        placeproof.model("ddp(2)", "mixtral-8x7b", implementation="pytorch-2.13", b=1)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    """One that says nothing has kernels that are fused, and what lies there while they run."""
    import placeproof

    file = tmp_path / "mine.toml"
    file.write_text(HEAD, encoding="utf-8")
    ideal, mine = (placeproof.model("ddp(2)", "llama3-8b", implementation=i, b=1).costs[0] for i in (None, str(file)))
    assert mine.kept == ideal.kept
    assert mine.beside == 0
    assert mine.working != 0


def test_workspaces_are_those_of_the_sources() -> None:
    """PyTorch: eight of 4 MiB from Hopper on, two of 4 MiB and eight of 16 KiB before; Transformer Engine: 32 MiB and 1 KiB, or 4 MiB.
    On the CPU there is none."""
    torch = {"hopper": 8 * 4096 * 1024, "ampere": (2 * 4096 + 8 * 16) * 1024, "volta": (2 * 4096 + 8 * 16) * 1024}
    engine = {"hopper": 32 * 2**20 + 1024, "ampere": 4 * 2**20, "volta": 4 * 2**20}
    assert find("pytorch-2.13").workspace == 0
    for name in (n for n in names() if n != "pytorch-2.13"):
        for architecture, bytes_ in torch.items():
            more = engine[architecture] if name == "megatron-te-2.11" else 0
            assert find(name).on(architecture).workspace == bytes_ + more, (name, architecture)


def test_a_layer_that_is_computed_again_keeps_its_output() -> None:
    """As Megatron-core's function does: its output and the gradient by it lie there until its backward is over."""
    import placeproof

    run_by = find("megatron-te-2.11")
    other = replace(run_by, differences=tuple(one for one in run_by.differences if one.name != "recomputed"))
    model, strategy = load("llama3-8b"), placeproof.strategy("ddp(2)")
    most = []
    for one in (run_by, other):
        (cost,) = derive_model(model, strategy, recompute="full", run_by=one).costs
        sizes = {**model.sizes, "b": 1, "b_a": 2, "b_theta": 2}
        most.append(max(int(m.bytes.subs(sizes)) for m in cost.moments if m.part == "layers" and m.backward))
    assert most[0] > most[1]
    assert (most[0] - most[1]) % (8192 * 4096 * 2) == 0  # streams


#: What PyTorch's MemTracker says of four blocks of GPT (hidden 1024, 16 heads, one sequence of 1024 tokens, bf16, Adam), with a tenth
#: dropped or nothing: bytes of activations when most lies there, and of all. torch==2.13.0: torch.distributed._tools.
MEMTRACKER = {"yes": (526413828, 887460036), "no": (245395460, 637898948)}


@pytest.mark.parametrize("dropout", MEMTRACKER)
def test_what_memtracker_measured(dropout: str) -> None:
    """To the byte: activations, and all tensors, at the moment at which most of them lie there, which is in backward of the last block.

    MemTracker is a mode of dispatch, under which gradients are added anew. What it ran has nothing but blocks and the sum of what the last
    one gives; 12 tensors a block have a step count of four bytes, so that queries, keys and values are one product.
    """
    from placeproof.cost.blocks.autograd import Buffer, Setting, run
    from placeproof.models.programs import weights

    run_by = find("pytorch-2.13")
    blocks = next(s for s in load("gpt", dropout=dropout).segments if s.name == "layers").blocks
    sizes = {"batch": 1, "tokens": 1024, "keys": 1024, "hidden": 1024, "heads": 16, "width": 64, "ffn": 4096, "3": 3}
    own = frozenset(w.name for block in blocks for w in weights(block.program))
    setting = Setting(width=2, alone=frozenset({"batch"}), in_place=False, added=True, waits=own)
    ran = run([(b.name, b.program) for b in blocks], run_by.modules, run_by.operations, setting)

    def bytes_(every: Iterable[Buffer]) -> int:
        return sum(math.prod(sizes[dim] for dim in b.dims) * (2 if b.width == "a" else int(b.width)) for b in every)

    parameters = 4 * sum(math.prod(sizes[dim] for dim in w.dims) for block in blocks for w in weights(block.program))
    assert parameters == 50384896
    beside = 2 * parameters + (2 * 2 * parameters + 4 * 12 * 4)
    before = 3 * bytes_(ran.kept) + 2 * 2  # of three other blocks, the sum, and the gradient that backward begins with
    most = max((lying for backward, lying in ran.moments if backward), key=bytes_)
    activations = before + bytes_(b for b in most if b in ran.kept)
    assert (activations, beside + before + bytes_(most)) == MEMTRACKER[dropout]
