"""Every closed form equals what an unrolled run adds up, at random concrete degrees and sizes."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
import sympy
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from unrolling import Costs, Sizes, unroll

import placeproof
from placeproof.core.diagnostics import InputError
from placeproof.core.symbols import info, symbol
from placeproof.cost.derive import Derivation, derive, evaluate
from placeproof.programs import Assign, Call, For, Program, read, statements
from placeproof.strategies import parse_strategy

#: Base units that a scaling check multiplies independently.
UNITS = ("byte", "parameter", "element", "token", "sequence", "operation", "second")
DATA = [
    "ddp",
    "zero1",
    "zero2",
    "zero2(bucket=unit)",
    "zero3",
    "zero3(prefetch=true)",
    "zero3(bucket=unit)",
    "zero3(prefetch=true, bucket=unit)",
    "fsdp(reshard_after_forward=false)",
    "fsdp(reshard_after_forward=false, prefetch=true)",
    "fsdp(reshard_after_forward=2)",
    "fsdp(root=keep)",
    "fsdp(root=keep, reshard_after_forward=2)",
    "zero3(root=keep, bucket=unit)",
    "hsdp",
    "hsdp(root=keep)",
    "hsdp(prefetch=true)",
    "zero_offload",
    "zero_infinity",
    "zero_infinity(prefetch=true)",
    "zeropp",
    "zeropp(node=true)",
    "zeropp(node=2, qwz=b_theta)",
]
MODEL = ["tp", "tp * sp", "tp * zero_r", "tp * zero_r(checkpoints=host)", "tp * checkpoint", ""]
STAGES = ["pp", "pp(schedule=gpipe)", "accumulate", "pp * checkpoint", "checkpoint", ""]
#: Which parameters are trained, and how they are updated.
UPDATES = ["lora", "freeze", "muon", "muon(owned)", "muon(exchanged)", "adafactor", "adafactor(owned)", "shampoo", "", "", ""]

WIDTHS = ("b_theta", "b_g", "b_omega", "b_a", "b_qw", "b_qg", "b_s", "b_master", "b_nu", "b_pre")


@st.composite
def subjects(draw: st.DrawFn) -> str:
    parts = [draw(st.sampled_from(among)) for among in ([*DATA, ""], MODEL, STAGES, UPDATES)]
    text = " * ".join(p for p in parts if p)
    assume(text != "")
    return text


def sizes_for(program: Program, seed: int, *, groups: bool) -> Sizes:
    """Random concrete sizes; units hold whole layers, and all are equal."""
    draw = random.Random(seed)
    degrees = {}
    for axis in program.axes:
        if axis.inner is None:
            degrees[axis.name] = draw.randint(1, 3)
        else:
            inner = axis.inner if isinstance(axis.inner, int) else draw.randint(1, 2)
            degrees |= {axis.outer_name: draw.randint(1, 2), axis.inner_name: inner}
    ahead = any(isinstance(s, Assign) and isinstance(s.value, Call) and s.value.op == "start" for s in statements(program.body))
    apart = any(isinstance(s, For) and s.start for s in statements(program.body))
    layers = 2 if ahead or apart else draw.choice([1, 2])  # prefetching means something where there are two units
    stages = next((degrees[a.name] for a in program.axes if a.splits.name == "layers"), 1)
    units = program.count("units") or 2 if ahead or apart else program.count("units") or draw.choice([u for u in (1, 2) if layers % u == 0])
    repeated = any(isinstance(s, For) and s.domain == "microbatches" for s in statements(program.body))
    micro = draw.randint(1, 4) if repeated else 1
    values = {n: Fraction(draw.randint(1, 60), draw.choice([1, 2, 3])) for n in WIDTHS}
    values |= {n: Fraction(draw.randint(1, 9)) for n in ("b", "s", "h", "b_frozen")}
    values |= {
        "P": Fraction(draw.randint(50, 500)),
        "A": Fraction(draw.randint(50, 5000)),
        "P_norm": Fraction(draw.randint(0, 40) if groups else 0),
        "P_adapter": Fraction(draw.randint(0, 40)),
        "P_frozen": Fraction(draw.randint(0, 40)),
        **{name: Fraction(draw.randint(1, 9), draw.randint(1, 9)) for name in ("rho", "sigma", "tau")},
    }
    values |= {"A_seq": values["A"] * Fraction(draw.randint(0, 4), 4), "L": Fraction(layers * stages), "m": Fraction(micro)}
    values |= {"U": values["P"] / (stages * units), "U_root": values["P"] / (stages * units), "n_u": Fraction(units)}
    return Sizes(degrees=degrees, layers_per_stage=layers, units_per_stage=units, microbatches=micro, values=values)


def symbol_values(d: Derivation, sizes: Sizes) -> dict[str, Fraction]:
    values = dict(sizes.values)
    for axis in d.program.axes:
        size = sizes.degrees[axis.name] if axis.inner is None else sizes.degrees[axis.outer_name] * sizes.degrees[axis.inner_name]
        values["N" if len(d.program.axes) == 1 else f"N_{axis.name}"] = Fraction(size)
        if isinstance(axis.inner, str):
            values[axis.inner] = Fraction(sizes.degrees[axis.inner_name])
    return values


def agree(d: Derivation, sizes: Sizes) -> None:
    """Every closed form against the oracle."""
    values, costs = symbol_values(d, sizes), unroll(d.program, sizes)
    found = {key: evaluate(expr, values) for key, expr in d.forms.items()}
    expected: dict[str, Fraction] = {f"memory.{state}": amount for state, amount in costs.held.items()}
    expected |= {"memory.host": costs.host, "memory.activations": costs.activations, "memory.peak": costs.peak}
    expected |= {"traffic.host_link": costs.link, "traffic.sent_per_device": sum(costs.sent.values(), Fraction(0))}
    expected |= {f"traffic.by_axis.{axis}": costs.sent.get(axis, Fraction(0)) for axis in d.by_axis}
    for key, amount in expected.items():
        assert found[key] == amount, f"{d.name}: {key} = {d.forms[key]} is {found[key]}, and the run adds up to {amount} at {sizes}"


@settings(phases=[Phase.explicit, Phase.reuse, Phase.generate])  # shrinking a failure takes minutes and says little more
@given(subject=subjects(), seed=st.integers(0, 10**9), groups=st.booleans())
def test_closed_forms_equal_the_unrolled_run(subject: str, seed: int, groups: bool) -> None:
    try:
        d = derive(parse_strategy(subject), groups=groups)
    except InputError:
        assume(False)
        return
    agree(d, sizes_for(d.program, seed, groups=groups and any(a.splits.name == "hidden" for a in d.program.axes)))


PROGRAMS = {
    "zero redundancy optimizer": """\
mesh(dp)
place(parameters, dp="R")
place(optimizer, dp="S")
place(gradients, dp="R")
gradients = scale(all_reduce(backward(parameters), dp), 1 / dp)
parameters, optimizer = update(parameters, optimizer, gradients)
parameters = broadcast(parameters, dp, root=owner)
""",
    "gradient clipping": """\
mesh(dp)
place(parameters, dp="S*")
place(optimizer, dp="S")
place(gradients, dp="S")
for u in units:
    w = all_gather(parameters[u], dp)
    gradients[u] = reduce_scatter(backward(w), dp)
norm = sqrt(all_reduce(square_norm(gradients), dp))
gradients = scale(gradients, clip_factor(norm))
parameters, optimizer = update(parameters, optimizer, gradients)
""",
    "gradients that pass": """\
mesh(dp)
place(parameters, dp="S*")
place(optimizer, dp="S")
place(gradients, dp="M")
for u in units:
    w = all_gather(parameters[u], dp)
    x, activations[u] = forward(w, data())
dx = loss(x)
for u in reversed(units):
    w = all_gather(parameters[u], dp)
    gradients[u] = backward_weight(w, activations[u], dx)
gradients = reduce_scatter(gradients, dp)
parameters, optimizer = update(parameters, optimizer, gradients)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("seed", range(8))
def test_programs_as_written(name: str, seed: int) -> None:
    d = derive(read(PROGRAMS[name], source=name))
    agree(d, sizes_for(d.program, seed, groups=False))


def test_a_wrong_figure_is_noticed() -> None:
    d = derive(parse_strategy("zero3 * tp"))
    wrong = derive(parse_strategy("zero3(prefetch=true) * tp"))
    sizes = sizes_for(wrong.program, 3, groups=False)
    agree(d, sizes)
    agree(wrong, sizes)
    costs: Costs = unroll(wrong.program, sizes)
    assert evaluate(d.memory["peak"], symbol_values(d, sizes)) != costs.peak


@given(subject=subjects(), seed=st.integers(0, 10**6))
def test_every_expression_has_the_dimension_of_bytes(subject: str, seed: int) -> None:
    """Scaling each base unit by a random factor scales bytes by the factor of bytes alone."""
    try:
        d = placeproof.derive(subject, groups=bool(seed % 2))
    except InputError:
        assume(False)
        return
    draw = random.Random(seed)
    factors = {unit: Fraction(draw.randint(1, 50), draw.randint(1, 50)) for unit in UNITS}
    four = sympy.Rational(*(4 * factors["byte"] / factors["parameter"]).as_integer_ratio())
    widest = sympy.Max(4, symbol("b_g"))
    for key, expr in d.forms.items():
        values = {str(s): Fraction(draw.randint(1, 50)) for s in expr.free_symbols}
        scaled = {}
        for name, value in values.items():
            scale = Fraction(1)
            for unit, power in info(name).dimension.items():
                scale *= factors[unit] ** power
            scaled[name] = value * scale
        # four bytes a parameter are the gradients in fp32 of an offloading's host
        wide = expr.xreplace({widest: sympy.Max(four, symbol("b_g"))})
        before, after = evaluate(expr, values), evaluate(wide, scaled)
        assert before is not None
        assert after == before * factors["byte"], f"{subject}: {key} = {expr}"


@given(subject=subjects(), data=st.data())
def test_composition_does_not_depend_on_the_order(subject: str, data: st.DataObject) -> None:
    parts = subject.split(" * ")
    other = " * ".join(data.draw(st.permutations(parts)))
    try:
        one = parse_strategy(subject)
    except InputError as error:
        with pytest.raises(InputError) as caught:
            parse_strategy(other)
        assert {d.code for d in caught.value.diagnostics} == {d.code for d in error.diagnostics}
        return
    assert parse_strategy(other) == one
    assert parse_strategy(other).name == one.name


@given(subject=subjects())
def test_composition_multiplies_divisors(subject: str) -> None:
    """The model states of a composition are those of its data parallelism, of what is trained and how, divided by other degrees.
    Factors of Adafactor's are whole on every device."""
    assume("adafactor" not in subject)
    try:
        d = placeproof.derive(subject)
    except InputError:
        assume(False)
        return
    batch = [
        p
        for p, s in ((p, parse_strategy(p)) for p in subject.split(" * ") if p not in ("sp",) and "zero_r" not in p)
        if any(a.splits.samples for a in s.axes)
    ]
    trained = [p for p in subject.split(" * ") if p in ("lora", "freeze", "shampoo")]
    one = placeproof.derive(" * ".join([batch[0] if batch else "accumulate", *trained]))
    alone = one.memory["model_states"]
    divisor = sympy.Integer(1)
    for axis in d.program.axes:
        if axis.splits.compute:
            divisor *= d.amounts.degree(axis.name)
    if batch and len(one.program.axes) == 1:
        alone = alone.xreplace({sympy.Symbol("N"): d.amounts.degree(one.program.axes[0].name)})
    assert sympy.cancel(d.memory["model_states"] * divisor - alone) == 0
