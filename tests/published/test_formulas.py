"""The closed forms that the papers give, matched symbolically against what is derived."""

from __future__ import annotations

import pytest
import sympy

import placeproof
from placeproof.cli.main import run
from placeproof.core.precision import PRECISIONS
from placeproof.core.symbols import symbol
from placeproof.cost.closed import largest, limit
from placeproof.cost.conventions import conventions
from placeproof.cost.values import read_numbers
from placeproof.programs import read
from placeproof.semantics.lower import lower
from placeproof.semantics.resolve import resolve
from placeproof.semantics.trace import trace
from placeproof.semantics.values import Kind
from placeproof.strategies import parse_strategy

P, U, N, A, m = (symbol(n) for n in ("P", "U", "N", "A", "m"))
b_theta, b_g, b_omega, b_a = (symbol(n) for n in ("b_theta", "b_g", "b_omega", "b_a"))
L, b, s, h = (symbol(n) for n in ("L", "b", "s", "h"))
N_shard, N_rep, N_dp, N_tp, N_pp = (symbol(f"N_{a}") for a in ("shard", "rep", "dp", "tp", "pp"))
ALL = b_theta + b_g + b_omega


def same(left: sympy.Expr, right: sympy.Expr) -> bool:
    return bool(sympy.simplify(left - right) == 0)


def equal_widths(expr: sympy.Expr) -> sympy.Expr:
    width = sympy.Symbol("width")
    return expr.xreplace({b_theta: width, b_g: width})


MODEL_STATES = {
    "ddp": ALL * P,
    "zero1": (b_theta + b_g) * P + b_omega * P / N,
    "zero2": b_theta * P + (b_g + b_omega) * P / N,
    "zero3": ALL * P / N,
    "fsdp": ALL * P / N,
    "fsdp(reshard_after_forward=false)": ALL * P / N,
    "hsdp": ALL * P / N_shard,
    "tp": ALL * P / N,
    "pp": ALL * P / N,
    "zero_offload": b_theta * P,
    "zero_infinity": sympy.Integer(0),
    "zero1 * tp * pp": ((b_theta + b_g) * P + b_omega * P / N_dp) / (N_tp * N_pp),
    "zero3 * tp * pp": ALL * P / (N_dp * N_tp * N_pp),
    "hsdp * tp": ALL * P / (N_shard * N_tp),
    "accumulate": ALL * P,
}


@pytest.mark.parametrize("strategy", MODEL_STATES)
def test_model_states(strategy: str) -> None:
    assert same(placeproof.derive(strategy).memory["model_states"], MODEL_STATES[strategy])


TRANSIENT = {
    "ddp": sympy.Integer(0),
    "zero1": sympy.Integer(0),
    "zero2": sympy.Integer(0),
    "zero3": U * b_theta,
    "fsdp": U * b_theta,
    "hsdp": U * b_theta,
    "zero_infinity": U * b_theta,
    "zero3(prefetch=true)": 2 * U * b_theta,
    "zero3(bucket=unit)": U * (b_theta + b_g),
    "zero3(unit=1000)": 1000 * b_theta,
    "zero3(unit=model)": P * b_theta,
    "fsdp(reshard_after_forward=false)": P * b_theta,
    "fsdp(reshard_after_forward=8)": U * b_theta + P * b_theta / 8,
    "zero3 * tp": U * b_theta / N_tp,
    "zero3 * pp": U * b_theta,
    "checkpoint": A * b_a / L,
}


@pytest.mark.parametrize("strategy", TRANSIENT)
def test_transient(strategy: str) -> None:
    d = placeproof.derive(strategy)
    assert same(d.memory["transient"], TRANSIENT[strategy])
    assert same(d.memory["peak"], d.memory["model_states"] + d.memory["activations"] + d.memory["transient"])


RING = (N - 1) / N
SENT = {
    "ddp": 2 * P * b_g * RING,
    "zero1": P * (b_g + b_theta) * RING,
    "zero2": P * (b_g + b_theta) * RING,
    "zero3": (2 * b_theta + b_g) * P * RING,
    "fsdp": (2 * b_theta + b_g) * P * RING,
    "fsdp(reshard_after_forward=false)": (b_theta + b_g) * P * RING,
    "fsdp(reshard_after_forward=4)": (b_theta + b_g) * P * RING + b_theta * P * sympy.Rational(3, 4),
    "zero3(prefetch=true)": (2 * b_theta + b_g) * P * RING,
    "hsdp": (2 * b_theta + b_g) * P * (N_shard - 1) / N_shard + 2 * (b_g * P / N_shard) * (N_rep - 1) / N_rep,
    "zero_offload": P * (b_g + b_theta) * RING,
    "zero_infinity": (2 * b_theta + b_g) * P * RING,
    "tp": 4 * L * 2 * b * s * h * b_a * RING,
    "tp * checkpoint": 6 * L * 2 * b * s * h * b_a * RING,
    "tp * zero_r": 13 * L * b * s * h * b_a * RING,
    "pp": 2 * m * b * s * h * b_a * RING,
    "ddp * accumulate": 2 * P * b_g * RING,
    "zero1 * accumulate": P * (b_g + b_theta) * RING,
    "zero2 * accumulate": P * (m * b_g + b_theta) * RING,
    "zero3 * accumulate": m * (2 * b_theta + b_g) * P * RING,
    "zero2(bucket=unit)": P * (b_g + b_theta) * RING,
    "zero3(bucket=unit) * checkpoint": (2 * b_theta + b_g) * P * RING,
    "hsdp * accumulate": m * (2 * b_theta + b_g) * P * (N_shard - 1) / N_shard + 2 * (b_g * P / N_shard) * (N_rep - 1) / N_rep,
}


@pytest.mark.parametrize("strategy", SENT)
def test_sent_per_device(strategy: str) -> None:
    d = placeproof.derive(strategy)
    assert same(d.sent, SENT[strategy])
    assert same(d.sent, sum(d.by_axis.values()))


@pytest.mark.parametrize("strategy", ["zero2", "zero3", "fsdp", "hsdp"])
@pytest.mark.parametrize("with_", ["", " * tp", " * tp * pp", " * checkpoint", " * tp * zero_r"])
def test_a_bucket_and_prefetching_move_no_other_bytes(strategy: str, with_: str) -> None:
    """However a unit's gradients are produced, and whenever its parameters are gathered, the same bytes are sent."""
    plain = placeproof.derive(strategy + with_)
    options = ["bucket=unit"] + (["prefetch=true", "bucket=unit, prefetch=true"] if strategy != "zero2" else [])
    for option in options:
        assert same(placeproof.derive(f"{strategy}({option}){with_}").sent, plain.sent), option


def test_equal_widths_give_two_and_three() -> None:
    width = sympy.Symbol("width")
    for strategy, passes in {"ddp": 2, "zero1": 2, "zero2": 2, "zero3": 3, "fsdp": 3}.items():
        sent = equal_widths(placeproof.derive(strategy).sent)
        assert same(sent, passes * P * width * RING)
        assert same(limit(sent, "N"), passes * P * width)


@pytest.mark.parametrize("strategy", ["zero2", "zero3", "fsdp"])
@pytest.mark.parametrize("repeats", ["accumulate", "pp"])
def test_sharded_gradients_are_reduced_for_each_micro_batch(strategy: str, repeats: str) -> None:
    """And the derivation says which collectives repeat."""
    d = placeproof.derive(f"{strategy} * {repeats}")
    reductions = [x for x in d.messages.messages if x.collective == "reduce_scatter"]
    assert [x.count for x in reductions] == [m]
    gathers = {x.phase: x.count for x in d.messages.messages if x.collective == "all_gather"}
    assert gathers == ({"update": 1} if strategy == "zero2" else {"forward": m, "backward": m})
    repeated = [step for step in d.traffic_steps() if step.rule == "repetition" and step.expression == m]
    assert repeated
    assert all("once for each micro-batch" in step.why for step in repeated)


@pytest.mark.parametrize("strategy", ["ddp", "zero1"])
def test_accumulated_gradients_are_reduced_once(strategy: str) -> None:
    for repeats in ("accumulate", "pp"):
        d = placeproof.derive(f"{strategy} * {repeats}")
        assert {x.count for x in d.messages.messages if x.state in ("gradients", "parameters")} == {1}


def test_sequence_parallelism_moves_what_tensor_parallelism_moves_and_one_more_gather() -> None:
    events = placeproof.derive("tp * sp").messages.messages
    passes = sum(x.count / (2 * L) for x in events)
    assert same(passes, sympy.Integer(5))
    assert {x.collective for x in events} == {"all_gather", "reduce_scatter"}
    grouped = placeproof.derive("tp * sp", groups=True).messages.messages
    norms = [x for x in grouped if x.state == "gradients"]
    assert [(x.collective, x.count) for x in norms] == [("all_reduce", 1)]
    assert same(norms[0].bytes, 2 * symbol("P_norm") * b_g * RING)


@pytest.mark.parametrize(("norms", "each"), [("", False), ("(norms=once)", False), ("(norms=each)", True)])
@pytest.mark.parametrize("subject", ["tp * sp{}", "fsdp * tp * sp{} * checkpoint", "tp * sp{} * ep(experts=whole)"])
def test_gradients_of_norms_are_summed_as_they_are_produced_or_once(subject: str, norms: str, each: bool) -> None:
    events = trace(resolve(lower(parse_strategy(subject.format(norms))))).events
    own = [e for e in events if e.call.op == "all_reduce" and e.call.axes == ("tp",) and e.operands[0].kind is Kind.GRADIENTS]
    assert own
    assert [bool(e.loops) for e in own] == [each] * len(own)


@pytest.mark.parametrize("experts", ["", " * ep", " * ep(experts=whole)"])
def test_parts_of_a_block_keep_together_what_the_model_keeps(experts: str) -> None:
    """Norms, matrices and experts, under sequence parallelism each over all devices."""
    d = placeproof.derive(f"tp * sp{experts}")
    assert same(d.memory["activations"], A * b_a / symbol("N_tp" if experts else "N"))


def test_norms_are_copied_by_tensor_parallelism() -> None:
    norm = symbol("P_norm")
    d = placeproof.derive("tp", groups=True)
    assert same(d.memory["model_states"], ALL * ((P - norm) / N + norm))


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("ddp", A * b_a),
        ("ddp * accumulate", A * b_a / m),
        ("tp", b_a * (symbol("A_seq") + (A - symbol("A_seq")) / N)),
        ("tp * sp", A * b_a / N),
        ("pp", A * b_a / (N * m) * sympy.Min(N, m)),
        ("pp(schedule=gpipe)", A * b_a / N),
        ("checkpoint", L * b * s * h * b_a),
        ("tp * zero_r", L * b * s * h * b_a / N),
    ],
)
def test_activations(strategy: str, expected: sympy.Expr) -> None:
    assert same(placeproof.derive(strategy).memory["activations"], expected)


def test_offload() -> None:
    offload = placeproof.derive("zero_offload")
    assert same(offload.memory["host"], (b_g + b_omega) * P / N)
    assert same(offload.host_link, (b_g + b_theta) * P / N)
    assert same(offload.costs.host_transient, b_theta * P / N)
    assert placeproof.derive("ddp").costs.host_transient == 0
    infinity = placeproof.derive("zero_infinity")
    assert same(infinity.memory["host"], ALL * P / N)
    assert same(infinity.host_link, (2 * b_theta + b_g) * P / N)
    checkpoints = placeproof.derive("tp * zero_r(checkpoints=host)")
    assert same(checkpoints.memory["host"], L * b * s * h * b_a / N)
    assert same(checkpoints.host_link, 2 * L * b * s * h * b_a / N)


def test_zero_plus_plus() -> None:
    node, qw, qg = symbol("N_node"), symbol("b_qw"), symbol("b_qg")
    d = placeproof.derive("zeropp")
    forward = next(x for x in d.messages.messages if x.phase == "forward")
    assert same(forward.bytes, qw * P * RING)
    inside = [x for x in d.messages.messages if x.axes == ("dp_inner",)]
    assert {(x.collective, x.phase) for x in inside} == {("all_gather", "backward"), ("reduce_scatter", "backward")}
    across = next(x for x in d.messages.messages if x.axes == ("dp_outer",))
    assert same(across.bytes, qg * (P / node) * (N / node - 1) / (N / node))
    assert len(d.program.approximates) == 2


def test_undivided_is_what_one_device_would_hold() -> None:
    for strategy in ("ddp", "zero3", "zero1 * tp * pp", "zero_infinity"):
        assert same(placeproof.derive(strategy).undivided, ALL * P)


def test_names_are_in_canonical_order() -> None:
    assert placeproof.strategy("accumulate * sp * pp * tp * zero3(8)").name == "zero3(8) * tp * sp * pp * accumulate"
    assert placeproof.strategy("checkpoint * hsdp").name == "hsdp * checkpoint"


@pytest.mark.parametrize(
    ("precision", "bytes_per_parameter"),
    [
        ("mixed-adam", 16),
        ("megatron-bf16", 18),
        ("fp16-fp32grad", 20),
        ("fp32-adam", 16),
        ("bf16-adam", 8),
        ("sgd-momentum", 12),
        ("sgd", 8),
    ],
)
def test_precisions_add_up(precision: str, bytes_per_parameter: int) -> None:
    widths = PRECISIONS[precision]
    assert widths.total == bytes_per_parameter
    assert widths.b_a == (4 if precision in ("fp32-adam", "sgd", "sgd-momentum") else 2)
    assert widths.b_master == (4 if precision in ("mixed-adam", "megatron-bf16", "fp16-fp32grad") else 0)  # of b_omega
    assert widths.values().keys() == {"b_theta", "b_g", "b_omega", "b_master", "b_a", "b_frozen"}


def test_limits() -> None:
    assert placeproof.derive("zero1").limits()["N"]["memory.model_states"] == P * (b_g + b_theta)
    assert placeproof.derive("zero3").limits()["N"] == {
        "memory.model_states": 0,
        "traffic.sent_per_device": P * (b_g + 2 * b_theta),
    }
    assert limit(sympy.Min(N, m) * A / (N * m), "N") == 0
    assert limit(sympy.Min(N, m) * A, "N") == A * m
    assert limit(P * N, "N") == sympy.oo


def test_the_peak_names_its_point() -> None:
    d = placeproof.derive("zero3")
    (moment,) = d.costs.moments
    assert moment.text() == "x, activations[u] = forward(w, x)"
    assert moment.line is not None
    assert placeproof.programs.render(d.program).splitlines()[moment.line - 1].strip() == moment.text()
    assert {one.name: str(one.bytes) for one in moment.alive} == {"w": "U*b_theta", "activations": "A*b_a"}


def test_a_device_has_the_gradients_of_its_own_experts() -> None:
    """Tokens come to the experts; so a device has a whole gradient, of the experts that it holds."""
    program = placeproof.program(
        "mesh(dp, ep)\nsplits(ep=\"batch\")\ngroup(dense, P - P_norm)\ngroup(expert, P_norm, experts=ep)\n"
        "place(parameters.expert, ep=\"S\")\nplace(optimizer.expert, ep=\"S\")\nplace(gradients.expert, ep=\"S\")\n"
        "G = backward(parameters)\nG.dense = all_reduce(G.dense, dp, ep)\nG.expert = all_reduce(G.expert, dp)\n"
        "G = scale(G, 1 / (dp * ep))\nparameters, optimizer = update(parameters, optimizer, G)\n"
    )  # fmt: skip
    assert placeproof.judge(program).word == "proved"
    d = placeproof.derive(program, groups=True)
    dense, expert, b_g = sympy.sympify("P - P_norm"), sympy.sympify("P_norm/N_ep"), sympy.Symbol("b_g")
    assert sympy.simplify(d.memory["gradients"] - b_g * (dense + expert)) == 0
    n, both = sympy.symbols("N_dp"), sympy.sympify("N_dp*N_ep")
    assert sympy.simplify(d.sent - 2 * b_g * (dense * (both - 1) / both + expert * (n - 1) / n)) == 0


PASS = """\
mesh(dp)
x = data()
for k in {domain}:
    x, activations[k] = forward(parameters[k], x)
dx = loss(x)
for k in reversed({domain}):
    gradients[k], dx = backward(parameters[k], activations[k], dx)
gradients = all_reduce(gradients, dp, op=mean)
parameters, optimizer = update(parameters, optimizer, gradients)
"""


@pytest.mark.parametrize("domain", ["units", "layers", "blocks"])
def test_what_a_pass_keeps_is_the_same_however_it_is_cut(domain: str) -> None:
    found = placeproof.derive(read(PASS.format(domain=domain)))
    assert {key: str(found.memory[key]) for key in ("parameters", "optimizer", "gradients", "activations", "transient")} == {
        "parameters": "P*b_theta", "optimizer": "P*b_omega", "gradients": "P*b_g", "activations": "A*b_a", "transient": "0",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1K", 10**3),
        ("2M", 2 * 10**6),
        ("7B", 7 * 10**9),
        ("1.5T", 15 * 10**11),
        ("3e4", 30_000),
        ("1_000", 1_000),
        ("9/3", 3),
        ("70b", 70 * 10**9),
    ],
)
def test_numbers_as_people_write_them(written: str, value: int) -> None:
    assert read_numbers([f"P={written}"], None).values["P"] == value


def said(text: str) -> str:
    return " / ".join(conventions(placeproof.derive(text)))


@pytest.mark.parametrize(
    ("convention", "with_it", "without"),
    [
        ("messages between stages", "pp", "ddp"),
        ("ring algorithms", "ddp", "pp"),
        ("the first stage, which has the most micro-batches in flight", "pp", "ddp"),
        ("A counts the whole model's activations", "tp", "tp * checkpoint"),
        ("gradients are reduced as they are produced", "zero2", "zero1"),
        ("one unit's gathered parameters", "zero3", "zero1"),
        ("an approximation, not the same step", "zeropp", "zero3"),
    ],
)
def test_conventions_are_said_where_they_matter(convention: str, with_it: str, without: str) -> None:
    assert convention in said(with_it)
    assert convention not in said(without)


def test_the_placement_of_each_group_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", "tp"]) == 0
    assert capsys.readouterr().out.count("because S on tp for matrix: s/n; R on tp for norm: s") == 3
    assert run(["derive", "ddp * tp"]) == 0
    assert capsys.readouterr().out.count("because R on dp: s; S on tp for matrix: s/n; R on tp for norm: s") == 3


TIED = """\
mesh(pp)
group(body, P - P_norm)
group(embedding, P_norm, tied=pp)
place(parameters, pp="S")
G = backward(parameters)
G.embedding = tied_reduce(G.embedding, pp)
parameters, optimizer = update(parameters, optimizer, G)
"""


@pytest.mark.parametrize(("stages", "share"), [(1, "0"), (2, "1"), (4, "1/2"), (8, "1/4")])
def test_the_two_ends_of_tied_weights_send_one_gradient_each(stages: int, share: str) -> None:
    """An all-reduce between two devices sends the whole once from each; the other stages send nothing: the mean over the axis."""
    found = placeproof.derive(read(TIED.replace("mesh(pp)", f"mesh(pp={stages})")), groups=True)
    sent = [m.total for m in found.messages.messages if m.collective == "tied_reduce"]
    assert sum(sent) == sympy.Rational(share) * symbol("P_norm") * symbol("b_g")


def test_groups_are_as_large_as_they_say() -> None:
    text = "mesh(dp)\ngroup(a, P / 2 ** 3)\ngroup(b, P - P / 8)\nplace(parameters.a, dp=S)\nplace(parameters.b, dp=R)\n"
    text += "place(optimizer, dp=R)\nplace(gradients, dp=R)\ngradients = all_reduce(gradients, dp)\n"
    p, n = symbol("P"), symbol("N")
    found = placeproof.derive(read(text)).memory["parameters"]
    assert sympy.simplify(found - symbol("b_theta") * (p / (8 * n) + 7 * p / 8)) == 0


def test_schedules_come_last_in_a_name() -> None:
    assert placeproof.derive("accumulate * zero1").name == "zero1 * accumulate"
    assert placeproof.derive("checkpoint * tp * ddp").name == "ddp * tp * checkpoint"


@pytest.mark.parametrize(
    ("then", "orelse", "share"),
    [("all_reduce(gradients, dp)", "copy(gradients)", "1/4"), ("copy(gradients)", "all_reduce(gradients, dp)", "3/4")],
)
def test_what_some_devices_send_counts_for_their_share(then: str, orelse: str, share: str) -> None:
    text = f"mesh(dp=2, tp=4)\nif rank(tp) == 0:\n    g = {then}\nelse:\n    g = {orelse}\n"
    text += "parameters, optimizer = update(parameters, optimizer, g)\n"
    found = placeproof.derive(read(text))
    assert sympy.simplify(found.sent - sympy.Rational(share) * symbol("P") * symbol("b_g")) == 0


NESTED = """\
mesh(dp=2)
count(layers=4)
x = data()
for k in layers:
    for j in blocks[k]:
        x, activations[j] = forward(parameters[j], x)
dx = loss(x)
for k in reversed(layers):
    for j in reversed(blocks[k]):
        {into}[j], dx = backward(parameters[j], activations[j], dx)
    {reduced}
parameters, optimizer = update(parameters, optimizer, gradients)
"""


@pytest.mark.parametrize(
    ("into", "reduced", "times"),
    [("gradients", "gradients = all_reduce(gradients, dp)", 4), ("bucket", "gradients[k] = all_reduce(bucket, dp)", 1)],
)
def test_a_state_is_whole_and_a_bucket_is_its_layers_part(into: str, reduced: str, times: int) -> None:
    found = placeproof.derive(read(NESTED.format(into=into, reduced=reduced)))
    assert found.sent == times * symbol("P") * symbol("b_g")


def test_the_largest_of_few() -> None:
    """Of nothing it is nothing; what another one is never less than is dropped."""
    a, b = symbol("A"), symbol("P")
    assert largest([]) == 0
    assert largest([a]) == a
    assert largest([a, a + b, b]) == a + b
    assert largest([a, b]) == sympy.Max(a, b)
