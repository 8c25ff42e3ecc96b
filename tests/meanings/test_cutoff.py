"""The cut-off: runs on finitely many meshes that prove a step for every number of devices."""

import json
from pathlib import Path

import pytest
from samples import sample, words

from placeproof.cli.main import run
from placeproof.core.diagnostics import InputError
from placeproof.programs import Resolved, read
from placeproof.semantics.judge.cutoff import Covered, NotCovered, cutoff
from placeproof.semantics.judge.search import RefutingRun
from placeproof.semantics.lower import lower
from placeproof.semantics.resolve import resolve
from placeproof.strategies import parse_strategy

PEOPLE = json.loads((Path(__file__).parents[1] / "data" / "people_programs.json").read_text())


def placed(text: str) -> Resolved:
    return resolve(read(text, source="mine.step"))


def scaled_by(factor: str) -> Resolved:
    step = f"G = scale(all_reduce(backward(parameters), dp), {factor})\nparameters, optimizer = update(parameters, optimizer, G)"
    return placed(f"mesh(dp)\n{step}\n")


DATA_PARALLEL = ["ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp", "zero_infinity", "zero_offload", "zero1(dp=a) * ddp(dp=b)"]


@pytest.mark.parametrize("strategy", DATA_PARALLEL)
def test_data_parallel_strategies_are_right_for_every_degree_by_runs(strategy: str) -> None:
    found = cutoff(resolve(lower(parse_strategy(strategy))))
    assert isinstance(found, Covered), found
    for factor, values in found.values.items():
        assert len(values) == found.degree[factor] + 1
        assert min(values) >= 6


@pytest.mark.parametrize("strategy", ["tp", "pp", "cp", "ep", "zero1 * tp", "fsdp * pp"])
def test_devices_with_an_order_are_not_covered(strategy: str) -> None:
    assert isinstance(cutoff(resolve(lower(parse_strategy(strategy)))), NotCovered)


def test_ranks_that_are_one_place_on_few_devices_are_looked_at_there() -> None:
    """What the first device adds the last one takes away, unless it is the same; and likewise the second."""
    for rank, least in ((0, 1), (1, 2)):
        ends = f"if rank(dp) == {rank}:\n    H = copy(G)\nelse:\n    if rank(dp) == dp - 1:\n        H = scale(G, -1)\n"
        text = f"G = all_reduce(backward(parameters), dp, op=mean)\nH = scale(G, 0)\n{ends}G = G + all_reduce(H, dp)\n"
        found = cutoff(placed(f"mesh(dp)\n{text}parameters, optimizer = update(parameters, optimizer, G)\n"))
        assert isinstance(found, RefutingRun)
        assert found.setup.degrees == {"dp": least}


ZEROS = [(), (7,), (5, 6), (5, 6, 7), (5, 6, 7, 8), (6, 8, 10, 12, 14), (1, 2, 3, 4, 5), tuple(range(5, 16)), tuple(range(1, 25))]


@pytest.mark.parametrize("zeros", ZEROS, ids=str)
def test_a_factor_that_is_right_at_finitely_many_degrees_is_found_wrong_at_another(zeros: tuple[int, ...]) -> None:
    """However many degrees a wrong factor is right at, its degree is higher, and so it is run at one where it is wrong."""
    wrong = " * ".join(f"(dp - {n})" for n in zeros) or "1"
    found = cutoff(scaled_by(f"(1 + {wrong}) / dp"))
    if len(zeros) <= 5:
        assert isinstance(found, RefutingRun)
    else:
        assert isinstance(found, NotCovered)
        assert "bits" in found.why


#: Steps that are wrong at some number of devices, each by another way round the argument.
WRONG = {
    **{
        f"ranks that are not there: {condition}": f"T = scale(parameters, 0)\nif rank(dp) {condition}:\n    T = copy(parameters)\n"
        f"G = all_reduce(backward(parameters), dp, op=mean) + all_reduce(T, dp) - scale(parameters, {count})\n"
        for condition, count in (("< 3", "3"), ("<= 1", "2"), (">= 2", "dp - 2"), ("> 3", "dp - 4"), ("< 7 - 1", "6"))
    },
    **{
        f"no last rank: {condition}": f"T = scale(parameters, 0)\nif rank(dp) {condition}:\n    T = copy(parameters)\n"
        f"G = all_reduce(backward(parameters), dp, op=mean) + all_reduce(T, dp) - scale(parameters, dp)\n"
        for condition in ("< 30 - dp - 1", "< dp ** 2 - 20 - 1")
    },
    "a multiple of the prime": "G = scale(all_reduce(backward(parameters), dp), 2147481312 / dp)\n",
    "the prime in parts": "G = scale(all_reduce(backward(parameters), dp), 32 * 67108791 / dp)\n",
    "passes that make up for one another": "T = scale(backward(scale(parameters, 2)), 2) - backward(scale(parameters, 3))\n"
    "G = all_reduce(T, dp, op=mean)\n",
    "updates that make up for one another": "G = all_reduce(backward(parameters), dp, op=mean)\n"
    "P, O = update(scale(parameters, 2), optimizer, G)\nQ, optimizer = update(parameters, optimizer, G)\nparameters = P - parameters\n",
}


@pytest.mark.parametrize("name", WRONG)
def test_ways_round_the_argument_are_closed(name: str) -> None:
    end = "" if "updates" in name else "parameters, optimizer = update(parameters, optimizer, G)\n"
    assert not isinstance(cutoff(placed(f"mesh(dp)\n{WRONG[name]}{end}")), Covered)


@pytest.mark.parametrize("power", [1, 2, 3])
def test_reductions_that_are_divided_out_again_are_covered(power: int) -> None:
    reduced = "backward(parameters)"
    for _ in range(power):
        reduced = f"all_reduce({reduced}, dp)"
    text = f"mesh(dp)\nG = scale({reduced}, 1 / dp ** {power})\nparameters, optimizer = update(parameters, optimizer, G)\n"
    found = cutoff(placed(text))
    assert isinstance(found, Covered)
    assert found.degree == {"dp": 2 * power}
    assert isinstance(cutoff(placed(text.replace(f"** {power}", f"** {power + 1}"))), RefutingRun)


MEAN, SUM = "M = all_reduce(backward(parameters), dp, op=mean)\n", "S = all_reduce(backward(parameters), dp)\n"
UPDATE = "parameters, optimizer = update(parameters, optimizer, G)\n"
#: Right steps on free or given devices, and the degree of their coefficients by hand. G is a sum of terms dp**a / dp**b, each device's
#: gradient is met up to dp times, the optimizer squares it, and one device divides by dp**2 at most. Over one denominator that is the
#: greatest of 2 * a - 2 * b + m and m, with m = max(2 * b, 2), of the greatest a of all terms brought to the greatest b.
DEGREES = {
    "a mean": ("dp", f"{MEAN}G = copy(M)\n{UPDATE}", 2),
    "nothing of a sum beside a mean": ("dp", f"{MEAN}{SUM}G = M + scale(S, 0)\n{UPDATE}", 4),
    "nothing of a sum taken from a mean": ("dp", f"{MEAN}{SUM}G = M - scale(S, 0)\n{UPDATE}", 4),
    "nothing of dp sums": ("dp", f"{MEAN}{SUM}G = M + scale(S, 0 / (1 / dp))\n{UPDATE}", 6),
    "nothing of dp sums, by a power": ("dp", f"{MEAN}{SUM}G = M + scale(S, 0 * dp ** 2)\n{UPDATE}", 8),
    "a sum over a power": ("dp", f"{SUM}G = scale(S, dp ** 2 / dp ** 3)\n{UPDATE}", 6),
    "one device": ("dp=1", f"G = backward(parameters)\n{UPDATE}", 2),
    "a sum over one device": ("dp=1", f"{SUM}G = copy(S)\n{UPDATE}", 4),
    "two updates": (
        "dp", f"{MEAN}{SUM}P, O = update(parameters, optimizer, M)\nG = M + scale(S, 0)\nQ, optimizer = update(parameters, optimizer, G)\n"
        "parameters = copy(P)\n", 4,
    ),
    "some units of another buffer": ("dp", f"{MEAN}{SUM}G = M + scale(S, 0)\nfor u in units:\n    G[u] = copy(M[u])\n{UPDATE}", 4),
    "the first unit of another buffer": ("dp", f"{MEAN}{SUM}G = M + scale(S, 0)\nG[0] = copy(M[0])\n{UPDATE}", 4),
    "a group of another buffer": (
        "dp", f"{MEAN}{SUM}G = M + scale(S, 0)\nG.a = copy(M.a)\n{UPDATE}", 4,
    ),
    "a pass from a gradient with degrees": (
        "dp", "x = data()\nx, activations = forward(parameters, x)\ndx = loss(x)\ndx = dx + scale(dx, 0 * dp ** 2)\n"
        f"G = all_reduce(backward_weight(parameters, activations, dx), dp, op=mean)\n{UPDATE}", 6,
    ),
    "what was added up": ("dp", f"{MEAN}{SUM}G = copy(M)\nG += scale(S, 0)\n{UPDATE}", 4),
    "what one device does otherwise": (
        "dp", f"{MEAN}{SUM}if rank(dp) == 0:\n    G = M + scale(S, 0)\nelse:\n    G = copy(M)\n{UPDATE}", 4,
    ),
    "what every other device does otherwise": (
        "dp", f"{MEAN}{SUM}if rank(dp) == 0:\n    G = copy(M)\nelse:\n    G = M + scale(S, 0)\n{UPDATE}", 4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DEGREES)
def test_degrees_are_those_worked_out_by_hand(name: str) -> None:
    axis, body, degree = DEGREES[name]
    groups = "group(a, 10)\ngroup(b, 5)\n" if "group" in name else ""
    found = cutoff(placed(f"mesh({axis})\n{groups}{body}"))
    assert isinstance(found, Covered), found
    assert found.degree == {"dp": degree}
    if axis == "dp":
        assert len(found.values["dp"]) > degree


#: Numbers of devices, first and last, of a step of degree 2 that tells k ranks apart: k + 6 to k + 8, and more than the last rank by
#: two; all from the fewest on if it names others than the first.
NAMED = {
    "G = copy(M)": (6, 8),
    "if rank(dp) == 0:\n    G = copy(M)\nelse:\n    G = copy(M)": (7, 9),
    "if rank(dp) < 3:\n    G = copy(M)\nelse:\n    G = copy(M)": (1, 12),
    "if rank(dp) == dp - 1:\n    G = copy(M)\nelse:\n    G = copy(M)": (1, 9),
    "if rank(dp) == 20:\n    G = copy(M)\nelse:\n    G = copy(M)": (21, 24),
    "G = broadcast(M, dp, root=0)": (7, 9),
    "G = broadcast(M, dp, root=3)": (4, 9),
    "H = reduce(backward(parameters), dp, op=mean, root=0)\nG = copy(M)": (7, 9),
}


@pytest.mark.parametrize("text", NAMED)
def test_ranks_that_are_named_ask_for_more_devices(text: str) -> None:
    found = cutoff(placed(f"mesh(dp)\n{MEAN}{text}\n{UPDATE}"))
    assert isinstance(found, Covered), found
    assert (found.degree["dp"], found.values["dp"]) == (2, tuple(range(NAMED[text][0], NAMED[text][1] + 1)))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            f"inner(dp=2)\n{MEAN}if rank(dp) == 0:\n    G = copy(M)\nelse:\n    G = copy(M)",
            "more than single ranks",
        ),
        (
            "x = data()\nx, activations = forward(parameters, x)\ndx = loss(x)\nP = scale(parameters, 1)\n"
            "G = all_reduce(backward_weight(P, activations, dx), dp, op=mean)",
            "reads what was computed",
        ),
        ("g = backward(parameters)\nG = all_reduce(g * g, dp, op=mean)", "two values that depend on the model"),
        ("g = backward(parameters)\nG = all_reduce(g * (g + 1), dp, op=mean)", "two values that depend on the model"),
        ("g = backward(parameters)\nG = all_reduce(g * (2 * g), dp, op=mean)", "two values that depend on the model"),
        ("g = all_reduce(backward(parameters), dp)\nG = g * g", "two values that depend on the model"),
        ("G = scale(all_reduce(backward(parameters), dp), 1 / (dp * (dp + 1)))", "divided by a sum"),
        ("G = scale(all_reduce(backward(parameters), dp), 1 / (0 * dp))", "divided by a sum"),
        ("G = scale(all_reduce(backward(parameters), dp), 1 / dp ** 9)", "no small whole number"),
        (
            "G = all_gather(part(all_reduce(backward(parameters), dp, op=mean), dp, order=interleaved), dp)",
            "another order",
        ),
        ("P = copy(parameters)\nP += parameters\nG = all_reduce(backward(P), dp, op=mean)", "reads what was computed"),
        (
            "P = copy(parameters)\nif rank(dp) == 0:\n    P = scale(parameters, 1)\nG = all_reduce(backward(P), dp, op=mean)",
            "reads what was computed",
        ),
        ("g = backward(parameters)\nsend(g, dp, to=1)\nh = recv(dp, source=-1)\nG = all_reduce(g, dp, op=mean)", "exchange by `send`"),
        ("P = scale(parameters, 1)\nG = all_reduce(backward(P), dp, op=mean)", "reads what was computed"),
        ("G = scale(all_reduce(backward(parameters), dp, op=mean), 1048583 / 1048583)", "bits"),
        ("G = scale(all_reduce(backward(parameters), dp, op=mean), (2 * dp) ** 8 / (2 * dp) ** 8 * 1024 / 1024)", "bits"),
        ("G = scale(all_reduce(backward(parameters), dp, op=mean), P / P)", "stands for any number"),
        ("G = scale(all_reduce(backward(parameters), dp), 1 / (dp - 3 + 3))", "divided by a sum"),
        ("G = all_reduce(backward(parameters), dp, op=max)", "max is no sum"),
        ("G = scale(all_reduce(backward(parameters), dp), square_norm(parameters))", "not worked out for `square_norm`"),
        ("w = scale(all_reduce(parameters, dp), 1 / dp)\nG = all_reduce(backward(w), dp, op=mean)", "reads what was computed"),
        (
            "H = copy(parameters)\nfor i in microbatches:\n    H = all_reduce(H, dp)\n    G += backward(parameters, i)\nG = G + H",
            "grows from one iteration",
        ),
    ],
)
def test_where_the_argument_fails_it_says_so(text: str, why: str) -> None:
    found = cutoff(placed(f"mesh(dp)\n{text}\nparameters, optimizer = update(parameters, optimizer, G)\n"))
    assert isinstance(found, NotCovered)
    assert why in found.why


@pytest.mark.parametrize(
    ("mesh", "why"),
    [
        ("mesh(dp=4)\ninner(dp=2)\n", "a given degree and sub-groups"),
        ("mesh(dp)\nreference(clip=global_norm)\n", "a reference with clip=global_norm"),
        ("mesh(tp)\n", "whose devices do not compute alike"),
    ],
)
def test_meshes_that_the_argument_is_not_about(mesh: str, why: str) -> None:
    found = cutoff(placed(f"{mesh}G = all_reduce(backward(parameters), {mesh[5:7]}, op=mean)\n{UPDATE}"))
    assert isinstance(found, NotCovered)
    assert why in found.why


def test_so_many_micro_batches_are_not_run() -> None:
    few, many = (cutoff(resolve(lower(parse_strategy(f"ddp * accumulate({m})")))) for m in (3, 1_000_000))
    assert isinstance(few, Covered)
    assert isinstance(many, NotCovered)
    assert "more than 4096" in many.why


def test_it_is_not_worked_out_without_an_assumption() -> None:
    found = cutoff(placed(f"mesh(dp)\n{MEAN}G = copy(M)\n{UPDATE}"), frozenset({"equal-tokens"}))
    assert isinstance(found, NotCovered)
    assert "without equal-tokens" in found.why


@pytest.mark.parametrize("name", sample(sorted(PEOPLE), lambda name: words(PEOPLE[name])))
def test_programs_of_people(name: str) -> None:
    """What is wrong is never covered, and what is right never found wrong; truths were worked out by hand.
    All at night, else some with each word of the language, right ones and wrong ones."""
    try:
        program = placed(PEOPLE[name]["text"])
    except InputError:
        pytest.skip("it is refused")
    if program.tensors:
        pytest.skip("it is over tensors")
    found = cutoff(program, frozenset(program.without))
    assert not (PEOPLE[name]["truth"] == "wrong" and isinstance(found, Covered))
    assert not (PEOPLE[name]["truth"] == "right" and isinstance(found, RefutingRun))


def test_the_command_says_where_it_ran(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prove", "zero3", "--second-opinion", "cutoff"]) == 0
    out = capsys.readouterr().out
    assert "right for every number of devices by" in out
    assert "dp = 6, 7, 8" in out
    assert run(["prove", "pp", "--second-opinion", "cutoff", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["cutoff"]
    assert found["covered"] is False
    assert "layers" in found["why"]
    assert run(["prove", "ddp", "--second-opinion", "both"]) == 2
