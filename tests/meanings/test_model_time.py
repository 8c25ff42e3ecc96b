"""How long a step of a model takes: closed forms against exact numbers, what papers print, and what must not get faster."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from published import rows

from placeproof.cli.main import run
from placeproof.clusters import Cluster, cluster
from placeproof.clusters.cluster import Device, Level, Reached
from placeproof.core.diagnostics import InputError
from placeproof.core.symbols import symbol
from placeproof.cost.derive import evaluate
from placeproof.cost.model import ModelDerivation, derive_model
from placeproof.cost.model.derivation import narrow_flops
from placeproof.cost.model.prices import layout
from placeproof.cost.model.time import EFFICIENCY, OVERLAP, ModelTime, Overlap, StepTime, step_time, utilisation
from placeproof.models import load
from placeproof.report.units import seconds_text
from placeproof.strategies import parse_strategy

OVERLAPS: tuple[Overlap, ...] = ("none", "data", "all")
WIDTHS = {"b_theta": 2, "b_g": 2, "b_omega": 12, "b_a": 2}


@lru_cache(maxsize=64)
def derived(model: str, strategy: str, recompute: str = "none", *, ends: bool = True) -> ModelDerivation:
    """``ends`` False: without what is before the first layer and behind the last one, so that stages are alike."""
    shape = load(model)
    if not ends:
        shape = replace(shape, segments=tuple(s for s in shape.segments if str(s.times) != "1"))
    return derive_model(shape, parse_strategy(strategy), recompute=recompute)


def staged(strategy: str, depth: int, *, ends: bool = True) -> ModelDerivation:
    """With so many stages."""
    return derived("llama3-8b", re.sub(r"\bpp\b(\(?)", lambda x: f"pp({depth}, " if x[1] else f"pp({depth})", strategy), ends=ends)


def numbers(**values: int | Fraction) -> dict[str, Fraction]:
    return {name: Fraction(n) for name, n in {**WIDTHS, "eta": Fraction(1, 2), **values}.items()}


def flat(latency: Fraction = Fraction(1, 10**5), bandwidth: Fraction = Fraction(10**10), peak: int = 10**14) -> Cluster:
    """Devices that are all joined by one level of links."""
    device = Device(name="card", memory=Fraction(8 * 10**10), memory_bandwidth=Fraction(10**12), peak={"bf16": Fraction(peak)})
    return Cluster(
        name="flat", title="flat", device=device, node=8, levels=(Level(name="net", joins=None, latency=latency, bandwidth=bandwidth),)
    )


def measured(c: Cluster, products: int = 4 * 10**13, kernel: Fraction = Fraction(1, 10**5)) -> Cluster:
    """A cluster whose device is said to reach so much."""
    rate = c.device.memory_bandwidth  # sums of collectives are counted with what is printed
    reached = Reached(products={"bf16": Fraction(products)}, memory_bandwidth=rate, kernel=kernel)
    return replace(c, device=replace(c.device, reached=reached))


def on(c: Cluster, d: ModelDerivation) -> dict[str, Fraction]:
    """A cluster of one level of links, as values of symbols."""
    found = {"F_peak": c.device.peak["bf16"], "B_mem": c.device.memory_bandwidth}
    for axis in d.strategy.axes:
        for name in (axis.name, axis.inner_name, axis.outer_name):
            found |= {f"alpha_{name}": c.levels[0].latency, f"beta_{name}": 1 / c.levels[0].bandwidth}
    return found


# Closed forms and numbers.

SUBJECTS = (
    "ddp * tp * sp",
    "zero1 * tp * sp * cp * pp",
    "fsdp * tp * pp",
    "hsdp * cp * accumulate",
    "ddp * pp(schedule=gpipe)",
    "zero2 * tp * accumulate",
    "zero1 * tp * cp(attention=ulysses)",
)


@settings(max_examples=24, deadline=None)
@given(
    st.sampled_from(SUBJECTS),
    st.sampled_from(OVERLAPS),
    st.lists(st.sampled_from([1, 2, 4]), min_size=4, max_size=4),
    st.sampled_from([2, 4]),
    st.integers(1, 9),
    st.integers(0, 9),
    st.integers(8, 12),
)
def test_the_closed_form_is_the_number(
    subject: str, overlap: Overlap, degrees: list[int], cp: int, m: int, latency: int, rate: int
) -> None:
    """Where stages are alike and links too, both are equal, exactly."""
    d = derived("llama3-8b", subject, ends=False)
    names = ("N_dp", "N_tp", "N_pp", "N_shard")
    put = numbers(b=1, m=m, N_rep=2, N_cp=cp, **dict(zip(names, degrees, strict=True)))
    c = flat(Fraction(latency, 10**5), Fraction(10**rate))
    form = ModelTime(d=d, overlap=overlap).form
    exact = step_time(staged(subject, degrees[2], ends=False), put, c, overlap=overlap, flat=True)
    assert evaluate(form, {**d.values, **put, **on(c, d)}) == exact.seconds


@settings(max_examples=4, deadline=None)
@given(st.sampled_from(SUBJECTS), st.sampled_from(OVERLAPS), st.lists(st.sampled_from([1, 2]), min_size=4, max_size=4), st.integers(1, 9))
def test_the_closed_form_by_kernels_is_the_number(subject: str, overlap: Overlap, degrees: list[int], kernel: int) -> None:
    """The same, where the cluster says what kernels reach; with long kernels a pass is their launches."""
    d = derived("llama3-8b", subject, ends=False)
    names = ("N_dp", "N_tp", "N_pp", "N_shard")
    put = numbers(b=1, m=3, N_rep=2, N_cp=2, **dict(zip(names, degrees, strict=True)))
    del put["eta"]
    c = measured(flat(), kernel=Fraction(1, 10**kernel))
    form = ModelTime(d=d, overlap=overlap, by_kernels=True).form
    exact = step_time(staged(subject, degrees[2], ends=False), put, c, overlap=overlap, flat=True)
    said = {"eta": Fraction(2, 5), "t_k": Fraction(1, 10**kernel)}
    assert evaluate(form, {**d.values, **put, **on(c, d), **said}) == exact.seconds
    assert exact.form == ModelTime(d=exact.d, overlap=overlap, by_kernels=True)


#: Of a layer of GPT, forward and backward (tests/meanings/test_kernels.py): bytes of the stream's elements, and of scores', then those of
#: gains and biases; kernels without a product of matrices, and all.
STREAM, SCORES, VECTORS, MOVING, LAUNCHED = 38 + 64 + 10, 7 + 7, 8 + 20 + 10, 6 + 13, 14 + 29


def test_a_step_by_kernels_is_counted_by_hand() -> None:
    """One device, two micro-batches of layers alone. Where a kernel takes long, a pass is as long as launching all of them."""
    d = derived("gpt3-125m", "ddp * accumulate", ends=False)
    layers, s, h, a = 12, 2048, 768, 12
    put = numbers(b=3, m=2, N=1)
    del put["eta"]
    flops = layers * 3 * 3 * (24 * s * h**2 + 4 * s**2 * h)
    moved = layers * (STREAM * 3 * s * h + SCORES * 3 * a * s**2 + VECTORS * h)
    for kernel in (Fraction(1, 10**6), Fraction(1, 10)):
        found = step_time(d, put, measured(flat(), kernel=kernel))
        passes = Fraction(flops, 4 * 10**13) + Fraction(moved, 10**12) + layers * MOVING * kernel
        assert found.passes == 2 * max(passes, layers * LAUNCHED * kernel)
        assert found.stages[0].update == Fraction(30 * layers * (12 * h**2 + 13 * h), 10**12)
    assert passes < layers * LAUNCHED * kernel  # of the second
    assert found.utilisation[0] == flops * 2 / (found.seconds * 10**14)


def test_a_mask_is_skipped_where_attention_is_one_kernel() -> None:
    """Half of 4 b s^2 h a layer forward, and of 10 b s^2 h backward: the scores are computed again."""
    sizes = {"b": 3, "s": 10, "L": 2, "h": 16, "a": 4, "a_kv": 2, "d": 4, "f": 32, "V": 64, "F_peak": 1, "eta": 1, "t_k": 0}
    put = {1 / symbol("B_mem"): 0, **{symbol(name): n for name, n in sizes.items()}}
    each = sizes["L"] * 3 * 10**2 * 16
    for options, forward, backward in (({}, 2 * each, 5 * each), ({"attention": "core"}, 0, 0)):
        d = derive_model(load("llama3-8b", **options), parse_strategy("ddp"))
        stage, counted = ModelTime(d=d, overlap="none", by_kernels=True).stages[0], d.costs[0].flops
        assert (counted.forward - stage.forward).subs(put) == forward
        assert (counted.again + counted.inputs - stage.inputs).subs(put) == backward


def test_an_efficiency_that_is_set_is_all_that_counts() -> None:
    """Then what kernels reach is of no matter; and a cluster that does not say it needs one."""
    d, put = derived("llama3-8b", "zero1 * tp * sp"), numbers(b=1, N_dp=2, N_tp=2)
    assert step_time(d, put, measured(flat())).seconds == step_time(d, put, flat()).seconds
    del put["eta"]
    assert step_time(d, put, measured(flat())).price.values["eta"] == Fraction(2, 5)
    wide = {**put, "b_theta": Fraction(4)}
    for c, values in ((flat(), put), (measured(cluster("dgx-h100")), wide)):
        with pytest.raises(InputError, match="does not say what products of matrices"):
            step_time(d, values, c)


# Products in fp8.

#: Elements of the matrices of a layer, one device, as its vendor's configuration gives the sizes; of experts, those of a token.
MATRICES = {
    "llama3-8b": 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336),
    "gpt3-125m": 12 * 768**2,
    "mixtral-8x7b": 4096 * (2 * 4096 + 2 * 1024 + 2 * 3 * 14336),
}
CARD = {"bf16": Fraction(10**14), "fp8": Fraction(25 * 10**13)}


@pytest.mark.parametrize("model", MATRICES)
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_products_with_matrices_of_layers_are_in_fp8(model: str, recompute: str) -> None:
    """2 operations of each element and token, for forward, again, inputs and weights: of routers, attention and the head none is."""
    wide, narrow = (derive_model(load(model), parse_strategy("ddp"), recompute=recompute, fp8=fp8) for fp8 in (False, True))
    put = {"b": Fraction(3), "s": Fraction(64), "c": Fraction(1)}
    layers, tokens = load(model).sizes["L"], 3 * 64
    for d, times in ((wide, (0, 0, 0, 0)), (narrow, (1, recompute == "full", 1, 1))):
        work = narrow_flops(d.costs[0].stage, d.at)
        each = [d.value(sympy.sympify(n), {**put}) for n in (work.forward, work.again, work.inputs, work.weights)]
        assert each == [2 * tokens * layers * MATRICES[model] * n for n in times]


def test_products_in_fp8_run_at_a_rate_of_their_own() -> None:
    """By an efficiency at its share of fp8's peak, by kernels at what is reached; F_fp8 says it otherwise. Only these get faster."""
    d = derive_model(load("llama3-8b"), parse_strategy("ddp"), fp8=True)
    c = flat()
    c = replace(c, device=replace(c.device, peak=CARD))
    reached = Reached(
        products={"bf16": Fraction(4 * 10**13), "fp8": Fraction(6 * 10**13)}, memory_bandwidth=Fraction(10**12), kernel=Fraction(0)
    )
    put = numbers(b=1, m=1, N=1)
    narrow = 3 * 2 * 8192 * 32 * MATRICES["llama3-8b"]
    wide = step_time(derived("llama3-8b", "ddp"), put, c).passes

    def passes(**more: int) -> Fraction:
        return step_time(d, {**put, **{n: Fraction(v) for n, v in more.items()}}, c).passes

    assert wide - passes() == narrow * (1 / Fraction(5 * 10**13) - 1 / Fraction(125 * 10**12))
    assert wide == passes(F_fp8=5 * 10**13)
    del put["eta"]
    c = replace(c, device=replace(c.device, reached=reached))
    slow = step_time(derived("llama3-8b", "ddp"), put, c)
    fast = step_time(d, put, c)
    assert slow.passes - fast.passes == narrow * (1 / Fraction(4 * 10**13) - 1 / Fraction(6 * 10**13))
    whole = slow.utilisation[0] * slow.seconds
    assert fast.utilisation[0] * fast.seconds == whole - narrow * (1 / CARD["bf16"] - 1 / CARD["fp8"])
    put |= {"eta": Fraction(2, 5), "t_k": Fraction(0), "F_fp8": Fraction(6 * 10**13)}
    assert evaluate(fast.form.form, {**d.values, **put, "m": Fraction(1), **on(c, d)}) == fast.seconds


@pytest.mark.parametrize(
    ("peak", "reached", "eta", "said"),
    [
        ({"bf16": CARD["bf16"]}, CARD, None, "flat says no peak for fp8"),
        ({"bf16": CARD["bf16"]}, None, Fraction(1, 2), "flat says no peak for fp8"),
        (CARD, {"bf16": CARD["bf16"]}, None, "does not say what products of matrices in bf16 and fp8 reach"),
    ],
)
def test_a_device_without_fp8_is_refused(
    peak: dict[str, Fraction], reached: dict[str, Fraction] | None, eta: Fraction | None, said: str
) -> None:
    d, c = derive_model(load("llama3-8b"), parse_strategy("ddp"), fp8=True), flat()
    found = None if reached is None else Reached(products=reached, memory_bandwidth=Fraction(10**12), kernel=Fraction(0))
    c = replace(c, device=replace(c.device, peak=peak, reached=found))
    put = {n: v for n, v in numbers(b=1, m=1, N=1).items() if n != "eta" or eta is not None}
    with pytest.raises(InputError, match=said):
        step_time(d, put, c)
    assert step_time(derived("llama3-8b", "ddp"), put, c).seconds > 0


@settings(max_examples=8, deadline=None)
@given(st.sampled_from(OVERLAPS), st.sampled_from([2, 4, 8]), st.integers(1, 9))
def test_the_slowest_stage_bounds_the_step(overlap: Overlap, depth: int, m: int) -> None:
    """Where stages differ, the closed form is an upper bound: the last stage has the vocabulary, and waits for nobody less."""
    d = derived("llama3-8b", "zero1 * tp(2) * pp")
    put = numbers(b=1, m=m, N_dp=2, N_pp=depth)
    bound = evaluate(ModelTime(d=d, overlap=overlap).form, {**d.values, **put, **on(flat(), d)})
    found = step_time(d, put, flat(), overlap=overlap, flat=True)
    assert bound is not None
    assert found.seconds <= bound
    assert found.d.costs[found.slowest].stage.last


def test_a_compiled_form_is_the_formula() -> None:
    d = derived("llama3-405b", "hsdp * tp * sp * cp * pp")
    key = "each stage between.peak"
    names = ("N_rep", "N_shard", "N_tp", "N_cp", "N_pp", "b", "m", "b_theta", "b_g", "b_omega", "b_a")
    at = (2, 8, 8, 2, 4, 1, 16, 2, 2, 12, 2)
    exact = d.value(d.forms[key], dict(zip(names, map(Fraction, at), strict=True)))
    assert exact is not None
    assert d.compile(key, names)(*at) == pytest.approx(float(exact), rel=1e-12)
    with pytest.raises(ValueError, match="no value for"):
        d.compile(key, ("N_tp",))


# What papers print.


def published(name: str) -> dict[str, object]:
    (found,) = (r for r in rows() if r["id"] == name)
    return found


def test_a_step_is_what_narayanan_prints() -> None:
    """Equation 1: (b'/b + p - 1) (t_f + t_b), where messages and exchanges take no time (row nar-time); m is b'/b."""
    assert published("nar-time")["formula"] == "(b'/b + p - 1)*(t_f(b)+t_b(b))"
    time = ModelTime(d=derived("gpt3-175b", "tp * pp", "full", ends=False), overlap="none")
    nothing = {symbol(n): 0 for n in ("alpha_pp", "beta_pp", "alpha_tp", "beta_tp")} | {1 / symbol("B_mem"): 0}
    m, p = symbol("m"), symbol("N_pp")
    t_f, t_b, t_w = time.stages[1].forward, time.stages[1].inputs, time.stages[1].weights
    assert sympy.simplify(time.form.subs(nothing) - (m + p - 1) * (t_f + t_b + t_w)) == 0


def test_the_time_of_training_is_8tp_over_nx() -> None:
    """Equation 4 (row nar-time-est): with recomputation, if attention's scores and everything but the large matrices are left out."""
    assert published("nar-time-est")["formula"] == "8*T*P/(n*X)"
    d = derived("gpt3-175b", "tp * accumulate", "full", ends=False)
    stage = ModelTime(d=d, overlap="none").stages[0]
    tokens, n, rate = symbol("m") * symbol("b") * symbol("s"), symbol("N_tp"), symbol("F_peak") * symbol("eta")
    matrices = sum(d.costs[0].parameters.values()) * n
    computed = symbol("m") * (stage.forward + stage.inputs + stage.weights)
    ratio = computed / (8 * tokens * matrices / (n * rate))
    put = {symbol("f"): 4 * symbol("h"), symbol("d"): symbol("h") / symbol("a")}
    assert (
        sympy.limit(sympy.simplify(ratio.subs(put).subs({symbol(k): v for k, v in {"s": 2048, "a": 96}.items()})), symbol("h"), sympy.oo)
        == 1
    )


@pytest.mark.parametrize(("size", "tp", "pp", "batch"), [("22B", 8, 1, 4), ("175B", 8, 8, 64)])
def test_utilisation_is_what_korthikanti_prints(size: str, tp: int, pp: int, batch: int) -> None:
    """Table 5: the shares of the peak that the measured times are, to the 0.2 points to which the rows say they were recomputed.

    Equation 8 adds a forward and a backward of attention, 12 B L s^2 h, for what is computed again. That is three times what is: the two
    products of attention, 4 B L s^2 h.
    """
    found = published(f"korth-t5-MFU-{size}")
    seconds = Fraction(str(found["inputs"]["iter_s"]))  # type: ignore[index]
    d = derived(f"korthikanti-{size.lower()}", f"tp({tp}) * sp * pp({pp})", "selective")
    model, hardware = utilisation(d, numbers(b=1, m=batch), seconds, Fraction(312 * 10**12))
    assert float(100 * model) == pytest.approx(float(str(found["value"])), abs=0.2)
    printed = float(str(published(f"korth-t5-HFU-{size}")["value"]))
    assert float(100 * (model + 3 * (hardware - model))) == pytest.approx(printed, abs=0.2)
    work = d.costs[0].flops
    core = 4 * symbol("b") * symbol("s") ** 2 * symbol("h") * symbol("L") / pp
    assert d.value(work.again * tp, numbers(b=1)) == d.value(core, numbers(b=1))


def test_the_usual_efficiency_is_about_what_large_runs_reach() -> None:
    reached = Fraction(str(published("nar-days-1T")["inputs"]["X"])) / 10**12  # type: ignore[index]
    value, reason = EFFICIENCY["half"]
    assert f"{reached} of 312" in reason
    assert abs(value - reached / 312) < Fraction(1, 20)


# What must not get faster.


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(SUBJECTS), st.integers(1, 4), st.integers(0, 20), st.integers(0, 20), st.integers(1, 5), st.integers(8, 12))
def test_slower_links_and_wider_numbers_take_no_less(subject: str, m: int, a: int, more: int, factor: int, rate: int) -> None:
    d = staged(subject, 2)
    put = numbers(b=1, m=m, N_dp=4, N_tp=2, N_cp=2, N_shard=2, N_rep=2)
    for overlap in OVERLAPS:
        fast = step_time(d, put, flat(Fraction(a, 10**6), Fraction(10**rate)), overlap=overlap).seconds
        assert step_time(d, put, flat(Fraction(a + more, 10**6), Fraction(10**rate)), overlap=overlap).seconds >= fast
        assert step_time(d, put, flat(Fraction(a, 10**6), Fraction(10**rate, factor)), overlap=overlap).seconds >= fast
        assert (
            step_time(d, put | {"b_a": Fraction(2 * factor)}, flat(Fraction(a, 10**6), Fraction(10**rate)), overlap=overlap).seconds >= fast
        )


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(SUBJECTS), st.integers(1, 6), st.integers(8, 13))
def test_what_is_hidden_saves_time(subject: str, m: int, rate: int) -> None:
    d = staged(subject, 4)
    put = numbers(b=1, m=m, N_dp=4, N_tp=2, N_cp=2, N_shard=2, N_rep=2)
    none, data, every = (step_time(d, put, flat(bandwidth=Fraction(10**rate)), overlap=o).seconds for o in OVERLAPS)
    assert none >= data >= every


# Clusters of several levels.


def large(overlap: Overlap = "data", order: tuple[str, ...] | None = None, *, flat: bool = False) -> StepTime:
    d = derived("llama3-8b", "zero1(8) * tp(4) * sp * cp(2) * pp(4)")
    return step_time(d, numbers(b=1, m=8), cluster("dgx-h100"), overlap=overlap, order=order, flat=flat)


def test_axes_that_exchange_most_lie_inside() -> None:
    step = large()
    assert list(step.price.mesh) == ["tp", "cp", "dp", "pp"]
    assert [a.name for a in layout(parse_strategy("hsdp * tp * pp * cp").axes)] == ["tp", "cp", "shard", "rep", "pp"]
    over = step.by_level(step.d.costs[0])
    assert over["tp"][1] == over["cp"][1] == 0
    assert over["dp"][0] == over["pp"][0] == 0
    assert large(order=("dp", "cp", "tp", "pp")).seconds > step.seconds


def test_bytes_over_links_are_the_traffic() -> None:
    """Rings and messages send what the closed form counts."""
    step = large(flat=True)
    for cost in step.d.costs:
        sent = {axes: step.price.amount(n) for axes, n in cost.traffic().items()}
        assert {axes: sum(over) for axes, over in step.by_level(cost).items()} == sent


def test_a_device_never_computes_more_than_its_peak() -> None:
    for overlap in OVERLAPS:
        mfu, hfu = large(overlap).utilisation
        assert 0 < mfu <= hfu <= Fraction(1, 2)


def test_an_order_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="does not name each axis once"):
        large(order=("tp", "tp", "dp", "pp"))


# The command line.

COMMAND = ["derive", "zero1(8) * tp(4) * pp(4)", "--model", "llama3-8b", "--set", "b=1", "--set", "m=8", "--cluster", "dgx-h100"]


def test_data_say_what_text_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*COMMAND, "--json", "--overlap", "none", "--efficiency", "peak"]) == 0
    found = json.loads(capsys.readouterr().out)["time"]
    assert found["devices"] == 128
    d = derived("llama3-8b", "zero1(8) * tp(4) * pp(4)")
    exact = step_time(d, numbers(b=1, m=8) | {"eta": Fraction(1)}, cluster("dgx-h100"), overlap="none")
    assert found["seconds"]["step"] == float(exact.seconds)
    read = sympy.sympify(found["formula"], locals={str(s): s for s in ModelTime(d=d).form.free_symbols})
    assert read.free_symbols == ModelTime(d=d, overlap="none").form.free_symbols
    assert all(stage["fits"] for stage in found["stages"])
    assert run([*COMMAND, "--overlap", "none", "--efficiency", "1", "--full"]) == 0
    text = capsys.readouterr().out
    assert OVERLAP["none"] in text
    assert f"step         {seconds_text(exact.seconds)}" in text


def test_too_little_memory_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", "ddp(8)", "--model", "llama3-70b", "--set", "b=1", "--cluster", "dgx-h100"]) == 0
    assert re.search(r"^memory: does not fit$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--efficiency", "1.5"], "is no share of the peak"),
        (["--efficiency", "peek"], "did you mean `peak`?"),
        (["--efficiency", "half", "--set", "eta=0.3"], "say the same thing"),
        (["--set", "eta=2"], "a share of the peak: at most 1"),
        (["--overlap", "dat"], "did you mean `data`?"),
        (["--cluster", "dgx-h10"], "did you mean"),
        (["--plot", "picture.png"], "is written as SVG"),
        (["--plot", "nowhere/picture.svg"], "in a folder that exists"),
    ],
)
def test_bad_options_are_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = [*COMMAND[:-2], *arguments] if "--cluster" in arguments else [*COMMAND, *arguments]
    assert run(given) == 2
    assert said in capsys.readouterr().err


def test_symbols_that_are_open_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", "zero1 * tp", "--model", "llama3-8b", "--cluster", "dgx-h100"]) == 2
    told = capsys.readouterr().err
    assert all(f"`{name}` is not set" in told for name in ("N_dp", "N_tp", "b"))


@pytest.mark.parametrize("arguments", [["--cluster", "dgx-h100"], ["--plot", "x.svg"]])
def test_a_time_needs_a_model(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", "zero1(8)", *arguments]) == 2
    assert "speak of a model" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--overlap", "none"], ["--efficiency", "peak"]])
def test_time_needs_a_cluster(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*COMMAND[:-2], *arguments]) == 2
    assert "which needs a cluster" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("strategy", "model"),
    [
        ("zero3(8) * ep(8) * tp(2)", "mixtral-8x7b"),
        ("fsdp(16, reshard_after_forward=8) * tp(8)", "llama3-8b"),
        ("zeropp(16, node=8)", "llama3-8b"),
        ("zero_offload(8)", "llama3-8b"),
        ("zero1(4) * tp(2) * cp(2, attention=ulysses)", "llama3-8b"),
    ],
)
def test_what_can_be_derived_can_be_timed(strategy: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", strategy, "--model", model, "--set", "b=1", "--cluster", "dgx-v100-32", "--full"]) == 0, capsys.readouterr().err
    text = capsys.readouterr().out
    assert "peak of fp16" in text
    assert "bubble" not in text.partition("a step on")[2]
