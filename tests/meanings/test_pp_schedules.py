"""Schedules in the strategy `pp`: what its program says, and what a model's stages get, against the simulation of each schedule."""

from __future__ import annotations

import ast
from fractions import Fraction

import pytest
import sympy
from samples import NIGHTLY

import placeproof
from placeproof import schedules
from placeproof.core.diagnostics import InputError
from placeproof.core.symbols import symbol
from placeproof.cost.model import derive_model
from placeproof.cost.model.derivation import ModelDerivation
from placeproof.cost.model.passes import by_stage
from placeproof.models import load
from placeproof.programs import read, render
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.lower import lower
from placeproof.semantics.lower.flight import said
from placeproof.semantics.meaning import Setup
from placeproof.semantics.meaning.run import run
from placeproof.strategies import parse_strategy

#: Every schedule, and chunks where it leaves them open.
EVERY = [(name, v) for name in schedules.names() for v in ((2, 3) if schedules.load(name).chunks is None else (None,))]
#: Those whose peak is rounded down, which a step program says of numbers alone.
ROUNDED = ("v-half", "v-min")
#: Those whose order is searched for, which has no closed form: all of it is said of numbers alone.
SEARCHED = tuple(name for name, _ in EVERY if schedules.load(name).search is not None)
SAID = [(name, v) for name, v in EVERY if name not in ROUNDED + SEARCHED]
ONE_COPY = [(name, v) for name, v in SAID if schedules.load(name).copies == 1]


def written(name: str, v: int | None, p: int | None = None, microbatches: int | None = None) -> str:
    options = {"schedule": name, "chunks": v, "microbatches": microbatches}
    listed = ", ".join(([] if p is None else [str(p)]) + [f"{k}={x}" for k, x in options.items() if x is not None])
    return f"pp({listed})"


def admitted(name: str, v: int | None) -> list[tuple[int, int]]:
    """Devices and micro-batches that a schedule admits."""
    found = []
    for p in range(1, 7):
        for m in range(1, 13):
            try:
                schedules.load(name).counts(p, m, v)
            except InputError:
                continue
            found.append((p, m))
    return found


def refused(text: str) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as caught:
        placeproof.derive(text)
    assert all(d.help for d in caught.value.diagnostics)
    return [(d.code, d.message) for d in caught.value.diagnostics]


@pytest.mark.parametrize(("name", "v"), SAID)
def test_the_program_is_that_of_1f1b_but_for_two_numbers(name: str, v: int | None) -> None:
    program = lower(parse_strategy(written(name, v)))
    other = "ddp(dp=pp_copy) * pp" if schedules.load(name).copies > 1 else "pp"
    text = render(lower(parse_strategy(other))).replace("mesh(pp_copy, pp)", "mesh(pp, pp_copy=2)")
    lines, usual = render(program).splitlines(), text.splitlines()
    differ = [one for one, other in zip(lines, usual, strict=True) if one != other and not one.startswith("program(")]
    assert all(one.startswith("for i in microbatches(in_flight=") for one in differ)
    assert len(differ) <= 1
    assert read(render(program)) == program


@pytest.mark.parametrize("name", ROUNDED)
def test_a_program_says_a_rounded_peak_in_numbers(name: str) -> None:
    """Activations of the first device and messages, also for fewer micro-batches than the form speaks of."""
    for p, m in ((1, 1), (2, 5), (3, 2), (4, 8), (5, 3), (5, 11)):
        program = lower(parse_strategy(written(name, None, p, m)))
        (loop,) = (line for line in render(program).splitlines() if "in_flight" in line)
        kept, sent = schedules.peak(name, p=p, m=m) / 2, Fraction(schedules.messages(name, p=p, m=m), 2 * m)
        assert f"in_flight={float(kept):g}, hops={sent})" in loop
    assert judge(lower(parse_strategy(f"zero1 * {written(name, None, 4, 8)}"))).word == "proved"
    for text in (f"pp(schedule={name})", f"pp(4, schedule={name})", f"pp(schedule={name}, microbatches=8)"):
        assert [code for code, _ in refused(text)] == ["PP122"]


@pytest.mark.parametrize("name", ROUNDED)
@pytest.mark.parametrize(("p", "m"), [(4, 8), (8, 2)])
def test_an_open_pipeline_keeps_what_its_form_says_or_all_micro_batches_of_few(name: str, p: int, m: int) -> None:
    """Of a device between the ends, whose runs of layers are alike; of few micro-batches no less than its order keeps, and at most all."""
    open_, told, values = of_llama(name, None, None), of_llama(name, None, p, m), numbers(p, m)
    between, run = open_.costs[1], open_.costs[1].runs[0]
    found, exact = open_.value(between.activations, values), told.value(told.costs[p - 2].activations, values)
    assert exact <= found <= m * max(open_.value(run.kept, values), open_.value(run.late, values))
    assert m < p or found == exact


@pytest.mark.parametrize(("name", "v"), SAID)
def test_it_is_proved_and_its_expression_is_read_again(name: str, v: int | None) -> None:
    strategy = parse_strategy(f"zero1 * {written(name, v)}")
    assert judge(lower(strategy)).word == "proved"
    assert parse_strategy(strategy.name) == strategy


@pytest.mark.parametrize(("name", "v"), ONE_COPY)
def test_activations_of_the_first_device_are_the_peak_of_its_order(name: str, v: int | None) -> None:
    derived = placeproof.derive(written(name, v))
    for p, m in admitted(name, v):
        found = derived.value("memory.activations", {"A": Fraction(1), "b_a": Fraction(1), "N": Fraction(p), "m": Fraction(m)})
        chunks = schedules.load(name).counts(p, m, v)
        assert found == schedules.peak(name, p=p, m=m, v=v) / chunks / p / m, (p, m)


@pytest.mark.parametrize(("name", "v"), ONE_COPY)
def test_devices_send_as_many_messages_as_in_the_simulation(name: str, v: int | None) -> None:
    derived = placeproof.derive(written(name, v))
    for p, m in admitted(name, v):
        values = {n: Fraction(1) for n in ("b", "s", "h", "b_a")} | {"N": Fraction(p), "m": Fraction(m)}
        table = schedules.simulate(schedules.load(name), p=p, m=m, v=v)
        assert derived.value("traffic.by_axis.pp", values) * p == sum(table.messages(d) for d in range(p)), (p, m)


def test_what_it_says_of_its_traffic() -> None:
    lines = "\n".join(str(step.why) for step in placeproof.derive(written("interleaved", 2)).traffic_steps())
    assert "(2 * pp - 1) * min(1, pp - 1) times over all devices" in lines


def test_a_loop_says_hops_beside_in_flight_alone() -> None:
    text = render(lower(parse_strategy(written("zb-v", None))))
    for wrong in ("hops=2 * (pp - 1), hops=1", "skips=1", "hops=1, more=2"):
        with pytest.raises(InputError):
            read(text.replace("hops=2 * (pp - 1)", wrong))
    with pytest.raises(InputError, match="stages"):
        read(text.replace("hops=2 * (pp - 1)", "hops=stages"))


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("pp(schedule=interleaved)", "PP104", "it is not said how many"),
        ("pp(chunks=2)", "PP104", "`1f1b` has 1 run of layers on each device, not 2"),
        ("pp(schedule=zb-v, chunks=3)", "PP104", "`zb-v` has 2 runs of layers on each device, not 3"),
        ("pp(schedule=zb-h9)", "PP104", "`schedule` is"),
        ("pp(4, schedule=interleaved, chunks=2, microbatches=6)", "PP202", "m % p == 0"),
        ("pp(4, schedule=dualpipe-v, microbatches=7)", "PP202", "m >= 2 * p"),
        ("pp(3, schedule=dualpipe)", "PP202", "p % 2 == 0"),
        ("pp(schedule=dualpipe)", "PP122", "holds 2 copies of each stage"),
    ],
)
def test_what_cannot_run_is_refused(text: str, code: str, message: str) -> None:
    ((found, shown),) = refused(text)
    assert found == code
    assert message in shown


@pytest.mark.parametrize(
    "text", ["pp(schedule=dualpipe)", "zero1 * pp(schedule=dualpipe)", "fsdp * pp(2, schedule=dualpipe, microbatches=4)"]
)
def test_two_copies_of_a_stage_are_two_devices_that_add_their_gradients_up(text: str) -> None:
    program = lower(parse_strategy(text))
    (copy,) = (a for a in program.axes if a.name == "pp_copy")
    assert (copy.degree, copy.splits.name) == (2, "batch")
    assert program.count("microbatches") == (2 if "microbatches" in text else None)
    assert judge(program).word == "proved"
    assert run(program, Setup(degrees={a.name: 2 for a in program.axes} | {"pp": 2})) is None
    apart = render(program).replace("gradients = all_reduce(gradients, pp_copy)\n", "")
    assert apart != render(program)
    assert judge(read(apart), shortest=False).word == "refuted"


def test_a_name_may_be_written_as_in_python() -> None:
    assert parse_strategy("pp(schedule=zb_h1)").schedule == parse_strategy('pp(schedule="zb-h1")').schedule
    assert parse_strategy("pp(schedule=zb_h1)").schedule.in_flight == "zb-h1"


def test_a_form_that_rounds_down_is_no_step_program() -> None:
    with pytest.raises(InputError, match=r"it has no `m // 2`"):
        said(ast.parse("m // 2", mode="eval").body, {}, schedules.load("1f1b"))


# For a model.


def numbers(p: int, m: int, **more: int) -> dict[str, Fraction]:
    return {k: Fraction(n) for k, n in {"N": p, "m": m, "b": 1, "b_a": 2, "b_g": 2, "b_theta": 2, "b_omega": 12, **more}.items()}


def of_llama(name: str, v: int | None, p: int | None = 4, microbatches: int | None = None) -> ModelDerivation:
    return derive_model(load("llama3-8b"), parse_strategy(written(name, v, p, microbatches)))


#: 32 layers have no 12 equal parts.
DIVIDES = [(name, v) for name, v in EVERY if v != 3]


@pytest.mark.parametrize(("name", "v"), DIVIDES)
def test_each_device_of_a_model_is_as_in_the_simulation(name: str, v: int | None) -> None:
    p, m = 4, 8
    found, values = of_llama(name, v, microbatches=m), numbers(4, 8)
    schedule = found.order
    table = schedules.simulate(schedule, p=p, m=m, v=v)
    for d, cost in enumerate(found.costs):
        sent = sum(found.value(s.times, values) for s in cost.sent if s.kind == "send")
        assert sent == table.messages(d)
        share = Fraction(schedule.copies, found.chunks)
        assert found.value(cost.in_flight, values) == schedules.peak(schedule, p=p, m=m, v=v, d=d, M_W=0) * share
    held = sum(found.value(n, values) for cost in found.costs for n in cost.parameters.values())
    assert held == load("llama3-8b").parameters().total * schedule.copies


def alone(model: str, sharing: str, depth: int) -> list[tuple[Fraction, Fraction]]:
    """What each of so many stages keeps of one micro-batch until B, and until W, when it has a device for itself."""
    found = derive_model(load(model), parse_strategy(f"pp({depth}, schedule=zb-h1){sharing}"))
    return [tuple(found.value(n, numbers(depth, 1, s=16)) for n in (run.kept, run.late)) for cost in found.costs for run in cost.runs]


def kept_by(order: schedules.order.Order, sizes: list[tuple[Fraction, Fraction]]) -> Fraction:
    """The most that a device keeps, pass by pass."""
    kept = most = Fraction(0)
    for slot in order:
        kept += sum(sizes[one.stage][0] for one in slot if one.kind.value == "F")
        most = max(most, kept)
        for one in slot:
            until_b, until_w = sizes[one.stage]
            kept += {"F": 0, "BW": -until_b, "B": until_w - until_b, "W": -until_w}[one.kind.value]
        most = max(most, kept)
    assert kept == 0
    return most


SHARING = [(name, v, more) for name, v in DIVIDES for more in ("", " * tp(2) * sp", " * checkpoint")]


@pytest.mark.parametrize(("name", "v", "sharing"), SHARING if NIGHTLY else SHARING[::2])
def test_what_a_device_keeps_is_what_the_order_of_its_passes_keeps(name: str, v: int | None, sharing: str) -> None:
    """The first run has the embedding, the last one the head; and what waits for W may be more than what waited for B."""
    p, m, schedule = 4, 8, schedules.load(name)
    depth = schedule.depth(p, schedule.chunks or v or 1)
    sizes, values = alone("llama3-8b", sharing, depth), numbers(4, 8, s=16)
    fixed = derive_model(load("llama3-8b"), parse_strategy(written(name, v, p, m) + sharing))
    few, many = (schedules.slots(fixed.order, p, n, v) for n in (m, 4 * p))
    for d in range(p):
        assert fixed.value(fixed.costs[d].activations, values) == kept_by(few[d], sizes)
    if name in SEARCHED:
        return
    open_ = derive_model(load("llama3-8b"), parse_strategy(written(name, v, p) + sharing))
    for d in range(p):
        assert open_.value(open_.costs[d].activations, {**values, "m": Fraction(4 * p)}) == kept_by(many[d], sizes)
        assert open_.value(open_.costs[d].activations, values) >= kept_by(few[d], sizes)


@pytest.mark.parametrize(("name", "v"), DIVIDES)
def test_more_micro_batches_than_four_for_each_device_are_kept_alike(name: str, v: int | None) -> None:
    schedule = schedules.load(name)
    for p in (2, 4, 6):
        at_once = [[schedules.kept_together(order) for order in schedules.slots(schedule, p, n * p, v)] for n in (4, 6)]
        assert at_once[0] == at_once[1] or name == "gpipe"


@pytest.mark.parametrize(("name", "v"), [(name, v) for name, v in DIVIDES if name not in SEARCHED])
def test_an_open_pipeline_has_the_ends_of_one_with_a_number(name: str, v: int | None) -> None:
    """But for what it keeps of runs that are not alike: of an open number of devices they count as alike."""
    open_, told, values = of_llama(name, v, None), of_llama(name, v), numbers(4, 8)
    for one, other in zip(open_.costs, (told.costs[0], told.costs[1], told.costs[-1]), strict=True):
        alike = () if other.stage.runs else ("in_flight", "peak")
        for key in ("model_states", "kept", *alike):
            assert open_.value(getattr(one, key), values) == told.value(getattr(other, key), values), key
        sent = [{axes: open_.value(n, values) for axes, n in cost.traffic().items()} for cost in (one, other)]
        assert sent[0] == sent[1]


def test_copies_that_also_take_the_sum_over_data_are_one_group() -> None:
    found = derive_model(load("llama3-8b"), parse_strategy("ddp(2) * pp(2, schedule=dualpipe)"))
    (one,) = (s for s in found.costs[0].sent if s.about == "gradients of the two copies")
    assert (one.kind, one.axes, one.pair) == ("all_reduce", ("dp", "pp"), "pp")
    assert found.value(one.bytes, numbers(2, 8)) == found.value(one.size, numbers(2, 8)) * Fraction(3, 2)  # a ring of four


def test_two_copies_add_their_gradients_up() -> None:
    found = of_llama("dualpipe", None)
    for cost in found.costs:
        ((bytes_, times),) = {(s.bytes, s.times) for s in cost.sent if s.about == "gradients of the two copies"}
        assert (bytes_, times) == (cost.states["gradients"], 1)
    single = of_llama("1f1b", None)
    assert not [s for c in single.costs for s in c.sent if s.about == "gradients of the two copies"]
    assert sympy.simplify(found.costs[1].states["parameters"] - 2 * single.costs[1].states["parameters"]) == 0


def test_the_first_device_of_a_folded_pipeline_has_both_ends_of_the_model() -> None:
    first, *others = of_llama("zb-v", None).costs
    assert first.stage.held[0][0].name == "before"
    assert {"before", "layers", "after"} == {h.name for h, _ in first.stage.held}
    assert all({h.name for h, _ in cost.stage.held} == {"layers"} for cost in others)


def test_layers_that_chunks_cannot_share_are_refused() -> None:
    with pytest.raises(InputError, match="over 12 stages"):
        of_llama("interleaved", 3)
    layers = [3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2]
    found = derive_model(load("llama3-8b"), parse_strategy(written("interleaved", 3, 4)), layers=layers)
    assert [{p.name: n for p, n in c.stage.held}["layers"] for c in found.costs] == [8, 8, 8, 8]


@pytest.mark.parametrize(("name", "v"), DIVIDES)
def test_passes_of_chunks_are_those_of_the_devices(name: str, v: int | None) -> None:
    """The time for which the simulation has a device compute is that of its own passes, whatever it takes."""
    found = of_llama(name, v, microbatches=8)
    devices = [(Fraction(3 + d % 2), Fraction(5), Fraction(2)) for d in range(4)]
    if found.strategy.schedule.in_flight == "dualpipe":  # its two ends have the same stages
        devices = [devices[min(d, 3 - d)] for d in range(4)]
    table = schedules.simulate(schedules.load(name), p=4, m=8, v=v, times=by_stage(found, devices, {}))
    assert [table.busy(d) for d in range(4)] == [8 * sum(times) for times in devices]


def test_a_model_without_a_pipeline_has_no_chunks() -> None:
    found = derive_model(load("llama3-8b"), parse_strategy("zero3(8)"))
    assert (found.chunks, found.costs[0].in_flight, found.costs[0].stage.copies) == (1, 1, 1)
    assert symbol("m") not in found.costs[0].peak.free_symbols


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ("pp", "in_flight=min(microbatches, pp)"),
        ("pp(schedule=interleaved, chunks=2)", "in_flight=min(2 * (pp - 1) + pp + 1, 2 * microbatches) / 2"),
        ("pp(schedule=interleaved, chunks=4)", "in_flight=min(2 * (pp - 1) + 3 * pp + 1, 4 * microbatches) / 4"),
        ("pp(schedule=interleaved, chunks=2)", "hops=(2 * pp - 1) * min(1, pp - 1)"),
        ("pp(schedule=interleaved, chunks=4)", "hops=(4 * pp - 1) * min(1, pp - 1)"),
    ],
)
def test_micro_batches_in_flight_and_their_hops_are_those_of_1f1b_and_of_the_paper_on_interleaved_schedules(
    strategy: str, said: str
) -> None:
    assert said in render(lower(parse_strategy(strategy)))
