"""One construct, one meaning: for each way in which a proof once read a program otherwise than a run, the shortest program that shows
it."""

from __future__ import annotations

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.core.program import read
from placeproof.semantics import confirm
from placeproof.semantics.confirm import Confirmed, DisagreementError, NotRun, confirm_by_runs, meshes
from placeproof.semantics.explain import explain
from placeproof.semantics.lower import lower
from placeproof.semantics.search import Found
from placeproof.semantics.trace import trace
from placeproof.semantics.verdict import judge
from placeproof.strategies import parse_strategy

UPDATE = "parameters, optimizer = update(parameters, optimizer, G)\n"
MEAN = "G = scale(all_reduce(G, dp), 1 / (dp * microbatches))\n"
PLAIN = "G = scale(all_reduce(backward(parameters), dp), 1 / dp)\n"
CLIP = "G = scale(G, clip_factor(sqrt(n)))\n"
TIED = (
    "mesh(dp, pp)\ngroup(rest, P - P_norm)\ngroup(embedding, P_norm, tied=pp)\nG = backward(parameters)\n"
    "G.embedding = tied_reduce(G.embedding, pp{op})\nG = scale(all_reduce(G, dp), 1 / dp)\n"
)
GROUPS = 'mesh(dp)\ngroup(first, P - P_norm)\ngroup(norm, P_norm)\nplace(parameters, dp="S*")\n{norm}place(optimizer, dp="S")\n'
SHARDED = "gradients = reduce_scatter(backward(all_gather(parameters, dp)), dp, op=mean)\n" + UPDATE.replace("G)", "gradients)")
NORM = "mesh(dp)\nreference(clip=global_norm)\n" + PLAIN
FIRST = f"{NORM}{{start}}for u in {{walk}}:\n    n += square_norm(G[{{index}}])\n{CLIP}"
TWO = "mesh(dp)\nfor i in microbatches:\n    g[i] = backward(parameters, i)\nfor i in {walk}:\n    G += {read}\n{more}" + MEAN
DELAYED = "mesh(dp)\nfor i in microbatches:\n    g[i] = backward(parameters, i)\n    G += all_reduce(g[i - 1], dp)\n{tail}"
DELAYED += "G = scale(G, 1 / (dp * microbatches))\n"
RANK = f"mesh(dp{{degree}})\n{PLAIN}if rank(dp) {{test}}:\n    {{then}}\nelse:\n    {{other}}\n"
HANDLE = "mesh(dp)\ng = backward(parameters)\n{started}{between}G = wait(h)\n"

#: What a program does -> its text, and the verdict or the code of the error.
PROGRAMS = {
    "a sum of tied weights": (TIED.format(op=""), "proved"),
    "a mean of tied weights": (TIED.format(op=", op=mean"), "refuted"),
    "the greatest of tied weights": (TIED.format(op=", op=max"), "refuted"),
    "a result that a step cannot return": (f"mesh(dp)\n{PLAIN}returns(G)\n", "PP304"),
    "an operation of tensors": (f"mesh(dp)\n{PLAIN}G = shift(G, dp)\n", "PP304"),
    "a reduction that is late by one": (DELAYED.format(tail="G += all_reduce(g[-1], dp)\n"), "proved"),
    "a reduction that loses the last": (DELAYED.format(tail=""), "refuted"),
    "a reduction that is late, and the first again": (DELAYED.format(tail="G += all_reduce(g[0], dp)\n"), "refuted"),
    "a buffer for each micro-batch": (TWO.format(walk="microbatches", read="g[i]", more=""), "proved"),
    "a buffer for each micro-batch, backwards": (TWO.format(walk="reversed(microbatches)", read="g[i]", more=""), "proved"),
    "the first of the buffers each time": (TWO.format(walk="microbatches", read="g[0]", more=""), "refuted"),
    "all but the last, and the last": (TWO.format(walk="microbatches", read="g[i - 1]", more="G += g[-1]\n"), "proved"),
    "all but the first, and the first": (TWO.format(walk="microbatches", read="g[i + 1]", more="G += g[0]\n"), "proved"),
    "all but the first, and the last": (TWO.format(walk="microbatches", read="g[i + 1]", more="G += g[-1]\n"), "refuted"),
    "what reversed micro-batches leave": (
        "mesh(dp)\nfor i in reversed(microbatches):\n    g = backward(parameters, i)\nG = g - backward(parameters, 0)\n"
        f"for i in microbatches:\n    G += backward(parameters, i)\n{MEAN}",
        "proved",
    ),
    "a pass over no micro-batch in particular": ("mesh(dp)\nfor i in microbatches:\n    G += backward(parameters)\n" + MEAN, "PP307"),
    "micro-batches that nothing walks over": (f"mesh(dp)\nG = backward(parameters)\n{MEAN}", "PP307"),
    "a norm without its first unit": (FIRST.format(start="n = 0\n", walk="units[1:]", index="u"), "refuted"),
    "a norm whose first unit is apart": (FIRST.format(start="n = square_norm(G[0])\n", walk="units[1:]", index="u"), "proved"),
    "a norm of the first unit's blocks": (FIRST.format(start="n = 0\n", walk="blocks[0]", index="u"), "refuted"),
    "a buffer that one branch alone writes": (
        f"mesh(dp)\n{PLAIN.replace('G =', 'g =')}if rank(dp) == 0:\n    G = copy(g)\nG += scale(g, 0)\n",
        "refuted",
    ),
    "a rank below the first": (RANK.format(degree="", test="== -1", then="pass", other="zero(G)"), "PP305"),
    "a rank behind the last": (RANK.format(degree="=4", test="== 2 + 3", then="pass", other="zero(G)"), "PP305"),
    "a rank that is no whole number": (RANK.format(degree="", test="== 1 / 2", then="pass", other="zero(G)"), "PP305"),
    "the rank behind any last one": (RANK.format(degree="", test="== dp", then="zero(G)", other="pass"), "PP305"),
    "ranks of which there are none": (RANK.format(degree="", test=">= dp", then="zero(G)", other="pass"), "proved"),
    "ranks below two, and the others": (
        f"mesh(dp)\n{PLAIN}if rank(dp) < 2:\n    G = scale(G, 2)\nif rank(dp) > 1:\n    G = scale(G, 2)\nG = scale(G, 1 / 2)\n",
        "proved",
    ),
    "a group that is not gathered": (GROUPS.format(norm="") + SHARDED.replace("all_gather(parameters, dp)", "parameters"), "refuted"),
    "a group that is placed apart, and updated in part": (GROUPS.format(norm='place(parameters.norm, dp="R")\n') + SHARDED, "refuted"),
    "sub-groups that do not divide": (f"mesh(dp=4)\ninner(dp=3)\n{PLAIN}", "PP303"),
    "what is wrong from six devices on": (
        "mesh(dp)\nG = scale(all_reduce(backward(parameters), dp), (1 + (dp - 1) * (dp - 2) * (dp - 3) * (dp - 4) * (dp - 5)) / dp)\n",
        "refuted",
    ),
    "a root whose square is a degree": (f"mesh(dp)\n{PLAIN.replace('1 / dp', '1 / sqrt(dp * dp)')}", "unknown"),
    "a norm that is no root": (f"{NORM}n = square_norm(G)\n{CLIP.replace('sqrt(n)', 'n')}", "refuted"),
    "a collective that reads what is written meanwhile": (
        HANDLE.format(started="h = start(all_reduce(g, dp, op=mean))\n", between="g = scale(g, 2)\n"),
        "refuted",
    ),
    "a collective of what is computed when it starts": (
        HANDLE.format(started="h = start(all_reduce(scale(g, 1), dp, op=mean))\n", between="g = scale(g, 2)\n"),
        "proved",
    ),
    "a symbol of which nothing is said": (f"mesh(dp)\n{PLAIN.replace('1 / dp', 'P / (P * dp)')}", "unknown"),
}


def ending(text: str) -> str:
    """A program with its update."""
    return text if "update(" in text else text + UPDATE


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_construct_has_one_meaning(name: str) -> None:
    text, expected = PROGRAMS[name]
    if expected.startswith("PP"):
        with pytest.raises(InputError, match=expected):
            judge(read(ending(text)))
        return
    judged = judge(read(ending(text)))
    assert judged.word == expected, judged.why
    assert (judged.confirmed is not None) == (expected == "proved")


def test_a_branch_does_not_lose_a_derivative() -> None:
    text = "tensor(x, tokens)\ntensor(dy, tokens)\ny = slope(square, x)\nreturns(dy * 0, gradient_of=y, by=x, at=dy)\n"
    assert judge(read(text)).word == "unknown"
    branch = "mesh(cp)\ntensor(x, hidden)\ntensor(dy, hidden)\nif rank(cp) == 0:\n    y = x * 2\nelse:\n    y = 2 * x\n"
    assert judge(read(branch + "returns(dy * 0, gradient_of=y, by=x, at=dy)\n")).word != "proved"


# What is wrong is said.

ACCUMULATED = "mesh(dp, tp)\nfor i in microbatches:\n    G += backward(parameters, i)\n"
EXPLAINED = {
    "dp times what is expected": "mesh(dp)\nG = all_reduce(backward(parameters), dp)\n",
    "1/dp of what is expected": f"mesh(dp)\n{PLAIN.replace('1 / dp', '1 / dp ** 2')}",
    "microbatches times what is expected": f"{ACCUMULATED}G = scale(all_reduce(G, dp), 1 / dp)\n",
    "microbatches/dp times what is expected": f"{ACCUMULATED}G = scale(all_reduce(G, dp), 1 / dp ** 2)\n",
    "that of the device's own samples alone": "mesh(dp)\nG = backward(parameters)\n",
    "that of the last micro-batch alone": "mesh(dp)\nfor i in microbatches:\n    G = backward(parameters, i)\n"
    "G = all_reduce(G, dp, op=mean)\n",
    "without the last micro-batch": DELAYED.format(tail=""),
    "of `embedding` is 1/2 of what is expected": TIED.format(op=", op=mean"),
}


@pytest.mark.parametrize("said", EXPLAINED)
def test_what_is_wrong_with_a_gradient_is_said(said: str) -> None:
    assert explain(trace(read(EXPLAINED[said] + UPDATE)).program) == f"the gradient {said if said[:3] == 'of ' else f'is {said}'}"


@pytest.mark.parametrize("name", [name for name, (_, expected) in PROGRAMS.items() if expected == "proved"])
def test_nothing_is_said_of_what_is_right(name: str) -> None:
    assert explain(trace(read(ending(PROGRAMS[name][0]))).program) is None


# A proof is confirmed.


def test_a_proof_that_a_run_denies_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = trace(read(f"mesh(dp)\nG = all_reduce(backward(parameters), dp)\n{UPDATE}")).program
    denied = confirm_by_runs(wrong)
    assert isinstance(denied, Found)
    monkeypatch.setattr("placeproof.semantics.verdict.confirm_by_runs", lambda *_: denied)
    with pytest.raises(DisagreementError, match="a run with N_dp = 2, m = 1 denies it"):
        judge(read(f"mesh(dp)\n{PLAIN}{UPDATE}"))


def test_a_proof_that_nothing_could_confirm_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placeproof.semantics.verdict.confirm_by_runs", lambda *_: NotRun(why="there is no mesh"))
    judged = judge(read(f"mesh(dp)\n{PLAIN}{UPDATE}"))
    assert (judged.word, judged.why) == ("unknown", "every obligation is proved, and no run could confirm it: there is no mesh")


@pytest.mark.parametrize("text", ["ddp", "zero3", "tp * sp", "pp", "hsdp", "fsdp * ep", "zero1 * tp * pp"])
def test_runs_confirm_small_and_long_meshes(text: str) -> None:
    program = trace(lower(parse_strategy(text))).program
    found = confirm_by_runs(program)
    assert isinstance(found, Confirmed)
    assert not found.smaller
    every = list(meshes(program))
    for axis in (a for a in program.axes if a.inner is None and a.degree is None):
        degrees = {s.degrees[axis.name] for s in every}
        assert {1, 2, 3} <= degrees
        assert max(degrees) >= confirm.LONG


def test_a_mesh_that_is_too_large_is_confirmed_on_a_smaller_one() -> None:
    large = confirm_by_runs(trace(lower(parse_strategy("fsdp(100000)"))).program)
    assert isinstance(large, Confirmed)
    assert large.smaller
    whole = confirm_by_runs(trace(lower(parse_strategy("fsdp(4096)"))).program)
    assert isinstance(whole, Confirmed)
    assert whole.runs
    assert not whole.smaller


def test_what_depends_on_a_degree_that_is_too_large_is_not_confirmed() -> None:
    text = f"mesh(dp=100000)\n{PLAIN.replace('1 / dp', '1 / 100000')}{UPDATE}"
    assert isinstance(confirm_by_runs(trace(read(text)).program), NotRun)
    assert judge(read(text)).word == "unknown"


def test_confirming_runs_of_several_devices_take_two_steps() -> None:
    """What a step leaves wrong shows in the next: an optimizer's state begins as zero, so that one step forgives its loss."""
    step = "mesh(dp)\nG = all_reduce(backward(parameters), dp, op=mean)\n{}parameters, optimizer = update(parameters, optimizer, G)\n"
    several = [s for s in meshes(trace(read(step.format(""))).program) if s.degrees["dp"] in (2, 3)]
    assert several
    assert all(s.steps == 2 for s in several)
    assert judge(read(step.format("zero(optimizer)\n"))).word == "refuted"
