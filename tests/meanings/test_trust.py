"""One construct, one meaning: for each way in which a proof once read a program otherwise than a run, the shortest program that shows
it."""

from __future__ import annotations

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.programs import read, render
from placeproof.semantics.judge import confirm
from placeproof.semantics.judge.confirm import Confirmed, DisagreementError, NotRun, confirm_by_runs, meshes
from placeproof.semantics.judge.explain import explain
from placeproof.semantics.judge.forgotten import forgotten
from placeproof.semantics.judge.search import RefutingRun
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.lower import lower
from placeproof.semantics.resolve import resolve
from placeproof.semantics.tensors.encode import encode_tensors
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
AGAIN = "mesh(dp)\nfor i in microbatches:\n    G += scale(backward(parameters, i), 1 / microbatches)\n"
AGAIN += "for i in microbatches:\n    G = {change}\n"
PARTS = "mesh(dp)\nG = backward(parameters)\nG[{apart}] = all_reduce(G[{apart}], dp, op=mean)\n"
PARTS += "for u in units:\n    G[{index}] = all_reduce(G[{index}], dp, op=mean)\n"
STATISTIC = "mesh(dp)\nreference(statistics=batch)\ns = all_reduce(statistics(parameters, 0), dp, op=mean)\n{}"
STATISTIC += "G = scale(all_reduce(G, dp), 1 / dp)\n"
HANDLE = "mesh(dp)\ng = backward(parameters)\n{started}{between}G = wait(h)\n"

NORMS = (
    "mesh(dp)\nplace(parameters)\nplace(optimizer, dp='S')\nreference(optimizer=tensor_norm)\n"
    "G = reduce_scatter(backward(parameters), dp, op=mean)\nif rank(dp) == 0:\n    n = tensor_norms(parameters, optimizer, G)\nelse:\n"
    "    n = tensor_norms(parameters, optimizer, {other})\nn = all_reduce(n, dp)\n"
    "parameters, optimizer = update_with(parameters, optimizer, G, n)\nparameters = all_gather(parameters, dp)\n"
)

PIPELINE = """\
mesh(pp)
place(parameters, pp="S")
place(optimizer, pp="S")
for i in microbatches:
    if rank(pp) == 0:
        x = data(i)
    else:
        x = recv(pp, source=-1)
    x, s = forward(parameters, x)
    if rank(pp) < pp - 1:
        send({forth}, pp, to=1)
    if rank(pp) == pp - 1:
        dx = {loss}
    else:
        dx = recv(pp, source=1)
    g, dx = backward(parameters, s, dx)
    G += g
    if rank(pp) > 0:
        send({back}, pp, to=-1)
{end}"""

EXPERTS = """\
mesh(ep, tp)
splits(ep="batch")
group(expert, P - P_norm, experts=ep)
group(norm, P_norm)
place(parameters.expert, ep="S", tp="S")
place(optimizer.expert, ep="S", tp="S")
x = data()
for k in blocks:
    y, s.outer[k] = forward(parameters.norm[k], x)
    e, s.expert[k] = forward(parameters.expert[k], y)
    x = x + all_reduce(e, tp)
dx = loss(x)
for k in reversed(blocks):
    G.expert[k] = backward_weight(parameters.expert[k], s.expert[k], dx)
    dy = all_reduce(backward_input(parameters.expert[k], s.expert[k], dx), tp)
    G.norm[k] = backward_weight(parameters.norm[k], s.outer[k], dy)
    dx = dx + backward_input(parameters.norm[k], s.outer[k], dy)
G.norm = all_reduce(G.norm, ep)
G = scale(G, 1 / ep)
"""
LAYER = "    x, s = forward(parameters, data())\n    G = backward(parameters, s, loss(x))\n"
SENT = 'mesh(ep)\nsplits(ep="batch")\ngroup(dense, P - P_expert)\ngroup(expert, P_expert, experts=ep)\nplace(parameters.expert, ep="S")\n'
SENT += f'place(optimizer.expert, ep="S")\nif rank(ep) < 2:\n{LAYER}else:\n{LAYER}G.dense = all_reduce(G.dense, ep)\nG = scale(G, 1 / ep)\n'

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
    "all but the last, but by way of the last": (
        TWO.format(walk="microbatches", read="scale(g[i - 1], 2) - g[-1]", more="G += g[-1]\n"),
        "refuted",
    ),
    "all but the last, twice": (
        TWO.format(walk="microbatches", read="scale(g[i - 1], 2) - g[i - 1]", more="G += g[-1]\n"),
        "proved",
    ),
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
    "parameters of all stages": (
        f'mesh(dp, pp)\nplace(parameters, pp="S")\nplace(optimizer, pp="S")\nw = all_gather(parameters, pp)\n{PLAIN}',
        "PP309",
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
    "a part that is overwritten with one group of it": (
        "mesh(dp)\ngroup(first, P - P_norm)\ngroup(norm, P_norm)\ng = backward(parameters)\nfor u in units:\n    g[u] = g.norm[u]\n"
        "G = all_reduce(g, dp, op=mean)\n",
        "refuted",
    ),
    "a group of a part that is overwritten with itself": (
        "mesh(dp)\ngroup(first, P - P_norm)\ngroup(norm, P_norm)\ng = backward(parameters)\nfor u in units:\n    g.norm[u] = g.norm[u]\n"
        "G = all_reduce(g, dp, op=mean)\n",
        "proved",
    ),
    "a group that is not gathered": (GROUPS.format(norm="") + SHARDED.replace("all_gather(parameters, dp)", "parameters"), "refuted"),
    "a group that is placed apart, and updated in part": (GROUPS.format(norm='place(parameters.norm, dp="R")\n') + SHARDED, "refuted"),
    "sub-groups that do not divide": (f"mesh(dp=4)\ninner(dp=3)\n{PLAIN}", "PP303"),
    "a mean of the sum that is taken again for each micro-batch": (AGAIN.format(change="all_reduce(G, dp, op=mean)"), "proved"),
    "a mean that is taken again for each micro-batch, of what begins with a zero of another kind": (
        "mesh(dp)\nG = scale(parameters, 0)\nfor i in microbatches:\n    G += backward(parameters, i)\n    G = all_reduce(G, dp, op=mean)\n"
        "G = scale(G, 1 / microbatches)\n",
        "proved",
    ),
    "a sum that is taken again for each micro-batch": (AGAIN.format(change="all_reduce(G, dp)"), "refuted"),
    "a half for each micro-batch": (AGAIN.format(change="scale(all_reduce(G, dp, op=mean), 1 / 2)"), "refuted"),
    "each part by the one before": (PARTS.format(apart="0", index="u + 1"), "proved"),
    "each part by the one behind": (PARTS.format(apart="-1", index="u - 1"), "proved"),
    "the last part twice, the first not at all": (PARTS.format(apart="-1", index="u + 1"), "refuted"),
    "a sum over parts that begins with nothing": (
        f"mesh(dp)\n{PLAIN.replace('G =', 'g =')}for u in reversed(units):\n    G += g\n{UPDATE}",
        "refuted",
    ),
    "what one unit never writes": (f"mesh(dp)\n{PLAIN}for u in units:\n    h[u + 1] = G[u + 1]\nzero(h)\n", "PP306"),
    "what one unit never starts": (f"mesh(dp)\n{PLAIN}s = start(all_gather(G[1], dp))\nh = wait(s)\n", "PP306"),
    "what one unit never writes, by its number": (f"mesh(dp)\n{PLAIN}h[1] = G[1]\nzero(h)\n", "PP306"),
    "a second unit that one unit does not have, over what is there": (
        f"mesh(dp)\n{PLAIN}h = G\nfor u in units:\n    h[u] = G - G\nh = G[1]\n",
        "proved",
    ),
    "a second unit that one unit does not have, for the gradient": (
        f"mesh(dp)\n{PLAIN}h = scale(G, 1)\nG = scale(h, 2)\nG = h[1]\n",
        "refuted",
    ),
    "what one unit never writes, read where there are two": (
        f"mesh(dp)\n{PLAIN}for u in units[1:]:\n    h[u] = G[u]\nfor u in units[1:]:\n    G[u] = h[u]\n",
        "proved",
    ),
    "a part that is not there, of what was never written": (
        f"mesh(dp)\n{PLAIN}for u in units:\n    h[u + 1] = G[u + 1]\nfor u in units:\n    zero(h[u - 1])\n",
        "proved",
    ),
    "the size of sub-groups by its symbol": (
        "mesh(dp)\ninner(dp=N_node)\nG = scale(all_reduce(backward(parameters), dp), 1 / (N_node * dp_outer))\n",
        "proved",
    ),
    "a part of one device that there is not on fewer": (
        "mesh(dp)\nG = scale(reduce_scatter(backward(parameters), dp), 1 / dp)\nif rank(dp) == 3:\n    G = scale(G, 2)\n"
        f"{UPDATE}parameters = all_gather(parameters, dp)\n",
        "refuted",
    ),
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
    "what the next micro-batch waits for is something else": (
        'mesh(dp)\nplace(parameters, dp="S*")\nplace(optimizer, dp="S")\nh = start(all_gather(parameters, dp))\nfor i in microbatches:\n'
        "    w = wait(h)\n    G += reduce_scatter(backward(w, i), dp)\n    h = start(all_gather(scale(parameters, 2), dp))\n"
        "G = scale(G, 1 / (dp * microbatches))\n",
        "refuted",
    ),
    "what the next unit waits for is something else": (
        "mesh(dp)\ng = backward(parameters)\nh = start(all_reduce(g, dp))\nfor u in units:\n    w = wait(h)\n"
        "    h = start(all_reduce(scale(g, 2), dp))\nG = scale(w, 1 / dp)\n",
        "refuted",
    ),
    "tied weights that lie in parts along another axis": (
        TIED.format(op="")
        .replace(
            "G = backward(parameters)", 'place(parameters, dp="S*")\nplace(optimizer, dp="S")\nG = backward(all_gather(parameters, dp))'
        )
        .replace("all_reduce", "reduce_scatter"),
        "proved",
    ),
    "the first unit's blocks out of the last unit": (
        f"mesh(dp)\n{PLAIN}T = copy(G[-1])\nfor b in blocks[0]:\n    G[b] = copy(T[b])\n",
        "refuted",
    ),
    "a whole on one device, and its first unit on others": (
        f"mesh(dp)\n{PLAIN}if rank(dp) == 0:\n    T = copy(G)\nelse:\n    T = copy(G[0])\nfor u in units:\n    G[u] = copy(T[u])\n",
        "refuted",
    ),
    "a pass with a statistic": (STATISTIC.format("G = backward_with(parameters, 0, s)\n"), "proved"),
    "a pass of each unit with a statistic": (
        STATISTIC.format("for u in units:\n    G[u] = backward_with(parameters[u], 0, s)\n"),
        "refuted",
    ),
    "a buffer for each micro-batch that is added to": (
        TWO.format(walk="microbatches", read="g[i]", more="").replace(
            "    g[i] = backward(parameters, i)\n",
            "    g[i] = scale(backward(parameters, i), 1 / 2)\n    g[i] += scale(backward(parameters, i), 1 / 2)\n",
        ),
        "proved",
    ),
    "stages that pass on what they have": (
        PIPELINE.format(forth="x", back="dx", loss="loss(x)", end="G = scale(G, 1 / microbatches)\n"),
        "proved",
    ),
    "a loss that is divided before it passes through the stages": (
        PIPELINE.format(forth="x", back="dx", loss="scale(loss(x), 1 / microbatches)", end=""),
        "proved",
    ),
    "stages that pass on twice what they have": (
        PIPELINE.format(forth="scale(x, 2)", back="dx", loss="loss(x)", end="G = scale(G, 1 / microbatches)\n"),
        "refuted",
    ),
    "stages that pass back twice what they have": (
        PIPELINE.format(forth="x", back="scale(dx, 2)", loss="loss(x)", end="G = scale(G, 1 / microbatches)\n"),
        "refuted",
    ),
    "a pass that brings the parts of matrices together": (
        'mesh(tp)\nplace(parameters, tp="S")\nplace(optimizer, tp="S")\nG = backward(parameters)\n',
        "proved",
    ),
    "parameters that are stale by no step": (f"mesh(dp)\n{PLAIN.replace('parameters', 'stale(parameters, 0)')}", "proved"),
    "a gradient less the same, both stale": (f"mesh(dp)\n{PLAIN}G += stale(G, 1) - stale(copy(G), 1)\n", "proved"),
    "a gradient less the parameters, both stale": (f"mesh(dp)\n{PLAIN}G += stale(G, 1) - stale(parameters, 1)\n", "refuted"),
    "optimizer state that is stale": (f"mesh(dp)\n{PLAIN}{UPDATE.replace('optimizer, G', 'stale(optimizer, 1), G')}", "refuted"),
    "what another forward kept, on all devices but one": (
        "mesh(dp)\nx, s = forward(parameters, data())\ny, t = forward(scale(parameters, 2), data())\ndx = loss(x)\nif rank(dp) == 0:\n"
        "    r = s\nelse:\n    r = t\nG = all_reduce(backward(parameters, r, dx), dp, op=mean)\n",
        "refuted",
    ),
    "a buffer that one branch alone writes, from where it is": (
        f"mesh(dp)\n{PLAIN.replace('G =', 'g =')}if rank(dp) == 0:\n    G = copy(g)\nG += scale(g, 0)\nG = broadcast(G, dp, root=0)\n",
        "proved",
    ),
    "the last of three devices, by its number": (
        f"mesh(dp=3)\n{PLAIN}T = scale(G, 0)\nif rank(dp) == 2:\n    T = copy(G)\nG = broadcast(T, dp, root=2)\n",
        "proved",
    ),
    "what is divided by the degree less two, where there is a third device": (
        "mesh(dp)\nG = reduce(backward(parameters), dp, root=2)\nG = scale(broadcast(G, dp, root=2), (dp - 2) / ((dp - 2) * dp))\n",
        "proved",
    ),
    "norms of a whole on one device, and of its first unit on others": (
        f"mesh(dp)\n{PLAIN}if rank(dp) == 0:\n    T = copy(G)\nelse:\n    T = copy(G[0])\nn = tensor_norms(parameters, optimizer, T)\n",
        "unknown",
    ),
    "a layer of experts and no other matrices": (EXPERTS, "proved"),
    "experts to which some devices send apart from others": (SENT, "refuted"),
    "a second result of a pass over a micro-batch": (
        "mesh(dp)\ng, dx = backward(parameters, 0)\nG = all_reduce(g, dp, op=mean)\n",
        "PP304",
    ),
    "a collective whose operand is freed meanwhile": (
        HANDLE.format(started="h = start(all_reduce(g, dp, op=mean))\n", between="free(g)\n"),
        "refuted",
    ),
    "a norm of the blocks of each unit": (
        f"{NORM}n = 0\nfor u in units:\n    for b in blocks[u]:\n        n += square_norm(G[b])\n{CLIP}",
        "proved",
    ),
    "a whole that is read while its units are filled": (
        f"mesh(dp)\n{PLAIN}for u in units:\n    T[u] = copy(G[u])\n    G = copy(T)\n",
        "refuted",
    ),
    "a buffer that one branch frees": (
        f"mesh(dp)\n{PLAIN}T = copy(G)\nif rank(dp) == 0:\n    pass\nelse:\n    free(T)\nG = copy(T)\n",
        "PP306",
    ),
    "a device behind the last one of a sub-group": (
        f"mesh(dp=4)\ninner(dp=2)\n{PLAIN}if rank(dp_inner) == 3:\n    pass\n",
        "PP305",
    ),
    "two axes of one name": (f"mesh(dp, dp)\n{PLAIN}", "PP305"),
    "all but the last, and the second": (TWO.format(walk="microbatches", read="g[i - 1]", more="G += g[1]\n"), "refuted"),
    "all but the last two, and the first": (TWO.format(walk="microbatches", read="g[i - 2]", more="G += g[0]\n"), "refuted"),
    "norms of tensors that branches write": (NORMS.format(other="G"), "unknown"),
    "norms of tensors that branches write, of another gradient": (NORMS.format(other="scale(G, 2)"), "refuted"),
    "the last but one, and the last": (
        TWO.format(walk="microbatches", read="g[i - 1]", more="G += g[-1]\n").replace("    G +=", "    G ="),
        "refuted",
    ),
}


def ending(text: str) -> str:
    """A program with its update."""
    return text if "update(" in text or "update_with(" in text else text + UPDATE


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


@pytest.mark.parametrize("text", ["tp * sp", "ep", "tp * checkpoint"])
def test_what_exchanges_activations_is_proved(text: str) -> None:
    assert judge(lower(parse_strategy(text))).word == "proved"


def test_what_is_kept_whole_is_not_gathered() -> None:
    """Tensor parallelism copies a layer's input: each device keeps all of it."""
    assert "\n    x = activations[l]\n" in render(lower(parse_strategy("tp * checkpoint")))


def test_an_update_whose_result_is_not_kept_breaks_the_consistency_of_copies() -> None:
    judged = judge(read(f"mesh(dp)\n{PLAIN}P, optimizer = update(parameters, optimizer, G)\n"))
    assert judged.word == "refuted"
    assert "every copy of the parameters is what its update wrote" in judged.why


@pytest.mark.parametrize(
    "branch", ["if rank(cp) == 0:\n    y = x * 2\nelse:\n    y = 2 * x\n", "if rank(cp) >= 0:\n    z = x * 3\ny = x * 2\n"]
)
def test_branches_of_programs_over_tensors_are_encoded(branch: str) -> None:
    """For any number of devices: their runs are not asked."""
    assert encode_tensors(read(f"mesh(cp)\ntensor(x, hidden)\n{branch}returns(y)\n"))


def test_a_symbol_is_no_tensor() -> None:
    judged = judge(read("mesh(cp)\ntensor(x, hidden)\nreturns(x * P)\n"))
    assert judged.word == "unknown"
    assert "`P` is no tensor here" in judged.why


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
    assert explain(resolve(read(EXPLAINED[said] + UPDATE)))[0] == f"the gradient {said if said[:3] == 'of ' else f'is {said}'}"


FIXED = "mesh(dp=4)\ncount(microbatches=4)\nfor i in microbatches:\n    G += backward(parameters, i)\nG = all_reduce(G, dp, op=mean)\n"
#: A wrong program of a mesh of four, with four micro-batches -> what is said of its gradient: 1/4 may be of either.
SAID_OF_FIXED = {
    f"{FIXED}G = scale(G, 1 / (dp * microbatches))\n": "1/dp of what is expected",
    f"{FIXED}G = scale(G, 1 / microbatches ** 2)\n": "1/microbatches of what is expected",
    f"{FIXED}G = scale(G, 1 / 16)\n": "1/4 of what is expected",
    FIXED: "microbatches times what is expected",
}


@pytest.mark.parametrize("text", SAID_OF_FIXED)
def test_a_factor_is_of_the_axis_that_it_is_of_with_other_degrees(text: str) -> None:
    assert explain(resolve(read(text + UPDATE)))[0] == f"the gradient is {SAID_OF_FIXED[text]}"


@pytest.mark.parametrize("mesh", ["mesh(dp)", "mesh(dp=16)\ncount(microbatches=4)"])
def test_what_a_step_leaves_for_the_next_one_is_said(mesh: str) -> None:
    """The mesh of sixteen is larger than those that are tried where a program fixes none."""
    body = "for i in microbatches:\n    H += backward(parameters, i)\nG = scale(all_reduce(H, dp), 1 / (dp * microbatches))\n"
    refuted = judge(read(f'{mesh}\nplace(gradients, dp="R")\n{body}{UPDATE}'.replace("H", "gradients")))
    assert refuted.word == "refuted"
    said, lines = explain(refuted.program)
    assert str(said).endswith("it has what the first has left, too: nothing clears it")
    cleared = f'{mesh}\nplace(gradients, dp="R")\nzero(gradients)\n{body}{UPDATE}'.replace("H", "gradients")
    assert judge(read(cleared)).word == "proved"
    assert explain(resolve(read(cleared)))[0] is None
    assert explain(resolve(read(cleared)))[1][0].holds == "zero"
    assert lines[-1].holds == "what is expected"


BLOCKS = render(lower(parse_strategy("ddp * tp")))


@pytest.mark.parametrize(
    "line", ["    x = x + all_reduce(z, tp)", "    dy = all_reduce(backward_input(parameters.matrix[k], activations.inner[k], dx), tp)"]
)
def test_a_sum_that_split_layers_lack_is_named(line: str) -> None:
    assert judge(read(BLOCKS)).word == "proved"
    without = line.replace("all_reduce(", "").replace(", tp)", "")
    wrong = judge(read(BLOCKS.replace(line, without)))
    number = BLOCKS.splitlines().index(line) + 1
    assert (wrong.word, explain(wrong.program)[0]) == ("refuted", None)
    assert forgotten(wrong.program) == f"with `{line.strip()}` instead of line {number}"
    other = judge(read(BLOCKS.replace("dx = dx + backward_input", "dx = backward_input")))
    assert (other.word, forgotten(other.program)) == ("refuted", None)


#: A wrong program -> what its lines leave of the gradient: the line, the buffer, the words.
LINES = {
    "mesh(dp)\ng = backward(parameters)\nG = all_reduce(g, dp)\n": [
        (2, "g", "that of the device's own samples alone"),
        (3, "G", "dp times what is expected"),
    ],
    f"{ACCUMULATED}G = all_reduce(G, dp)\nG = scale(G, 1)\nG = scale(G, 1 / dp)\n": [
        (2, "G", "that of the device's own samples alone, microbatches times"),
        (4, "G", "dp * microbatches times what is expected"),
        (6, "G", "microbatches times what is expected"),
    ],
    "mesh(dp)\ngroup(rest, P - P_norm)\ngroup(norm, P_norm)\nG = all_reduce(backward(parameters), dp, op=mean)\nG[0] = G.norm[0]\n": [
        (4, "G", "what is expected"),
        (5, "G", "on no device for some elements"),
    ],
    "mesh(dp)\ng = backward(parameters)\nG = reduce(g, dp, op=mean, root=0)\n": [
        (2, "g", "that of the device's own samples alone"),
        (3, "G", "what is expected, on some devices alone"),
    ],
    f"mesh(dp)\n{PLAIN}if rank(dp) == 0:\n    G = scale(G, 2)\n": [(2, "G", "what is expected"), (3, "G", "something else")],
    "mesh(dp)\nG = backward(parameters)\nfor u in units[1:]:\n    G[u] = all_reduce(G[u], dp, op=mean)\n": [
        (2, "G", "that of the device's own samples alone"),
        (3, "G", "that of the device's own samples alone in the first unit, elsewhere what is expected"),
    ],
    "mesh(dp)\ngroup(norm, P_norm)\ngroup(rest, P - P_norm)\nw = copy(parameters)\nG = all_reduce(backward(w), dp, op=mean)\n"
    "G.norm = scale(G.norm, dp)\n": [
        (5, "G", "what is expected"),
        (6, "G", "dp times what is expected of `norm`, elsewhere what is expected"),
    ],
}


@pytest.mark.parametrize("text", LINES)
def test_what_lines_leave_of_a_gradient_is_said(text: str) -> None:
    assert [(left.line, left.name, left.holds) for left in explain(resolve(read(text + UPDATE)))[1]] == LINES[text]


@pytest.mark.parametrize("name", [name for name, (_, expected) in PROGRAMS.items() if expected == "proved"])
def test_nothing_is_said_of_what_is_right(name: str) -> None:
    assert explain(resolve(read(ending(PROGRAMS[name][0]))))[0] is None


# A proof is confirmed.


def test_a_proof_that_a_run_denies_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = resolve(read(f"mesh(dp)\nG = all_reduce(backward(parameters), dp)\n{UPDATE}"))
    denied = confirm_by_runs(wrong)
    assert isinstance(denied, RefutingRun)
    monkeypatch.setattr("placeproof.semantics.judge.verdict.confirm_by_runs", lambda *_: denied)
    with pytest.raises(DisagreementError, match="a run with N_dp = 2, m = 1 denies it"):
        judge(read(f"mesh(dp)\n{PLAIN}{UPDATE}"))


def test_a_proof_that_nothing_could_confirm_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placeproof.semantics.judge.verdict.confirm_by_runs", lambda *_: NotRun(why="there is no mesh"))
    judged = judge(read(f"mesh(dp)\n{PLAIN}{UPDATE}"))
    assert (judged.word, judged.why) == ("unknown", "every obligation is proved, and no run could confirm it: there is no mesh")


@pytest.mark.parametrize("text", ["ddp", "zero3", "tp * sp", "pp", "hsdp", "fsdp * ep", "zero1 * tp * pp"])
def test_runs_confirm_small_and_long_meshes(text: str) -> None:
    program = resolve(lower(parse_strategy(text)))
    found = confirm_by_runs(program)
    assert isinstance(found, Confirmed)
    assert not found.smaller
    every = list(meshes(program))
    for axis in (a for a in program.axes if a.inner is None and a.degree is None):
        degrees = {s.degrees[axis.name] for s in every}
        assert {1, 2, 3} <= degrees
        assert max(degrees) >= confirm.LONG


def test_a_mesh_that_is_too_large_is_confirmed_on_a_smaller_one() -> None:
    large = confirm_by_runs(resolve(lower(parse_strategy("fsdp(100000)"))))
    assert isinstance(large, Confirmed)
    assert large.smaller
    whole = confirm_by_runs(resolve(lower(parse_strategy("fsdp(4096)"))))
    assert isinstance(whole, Confirmed)
    assert whole.runs
    assert not whole.smaller


@pytest.mark.parametrize(
    ("strategy", "fewer"),
    [
        ("accumulate(1000000)", ("micro-batches",)),
        ("accumulate(1000000) * pp(4)", ("micro-batches",)),
        ("accumulate(1000000) * fsdp(100000)", ("devices", "micro-batches")),
        ("accumulate(5) * pp(4)", ()),
    ],
)
def test_micro_batches_that_are_too_many_are_confirmed_with_fewer(strategy: str, fewer: tuple[str, ...]) -> None:
    judged = judge(lower(parse_strategy(strategy)))
    assert judged.word == "proved"
    assert judged.confirmed is not None
    assert judged.confirmed.fewer == fewer


def test_a_mistake_among_too_many_micro_batches_is_not_proved() -> None:
    """Nothing refutes it: a run with fewer of them is one of another step."""
    text = render(lower(parse_strategy("accumulate(1000000) * pp(4)")))
    wrong = "\n".join(line for line in text.splitlines() if "scale(" not in line)
    assert wrong.count("\n") < text.count("\n")
    assert judge(read(wrong)).word == "unknown"
    assert judge(read(wrong.replace("1000000", "3"))).word == "refuted"


def test_a_step_that_names_too_many_micro_batches_is_not_confirmed() -> None:
    """With fewer of them it is another one."""
    text = render(lower(parse_strategy("accumulate(1000000)")))
    assert text.count("1 / microbatches") == 1
    assert judge(read(text)).word == "proved"
    assert judge(read(text.replace("1 / microbatches", "1 / 1000000"))).word == "unknown"


def test_what_depends_on_a_degree_that_is_too_large_is_not_confirmed() -> None:
    text = f"mesh(dp=100000)\n{PLAIN.replace('1 / dp', '1 / 100000')}{UPDATE}"
    assert isinstance(confirm_by_runs(resolve(read(text))), NotRun)
    assert judge(read(text)).word == "unknown"


def test_confirming_runs_of_several_devices_take_two_steps() -> None:
    """What a step leaves wrong shows in the next: an optimizer's state begins as zero, so that one step forgives its loss."""
    step = "mesh(dp)\nG = all_reduce(backward(parameters), dp, op=mean)\n{}parameters, optimizer = update(parameters, optimizer, G)\n"
    several = [s for s in meshes(resolve(read(step.format("")))) if s.degrees["dp"] in (2, 3)]
    assert several
    assert all(s.steps == 2 for s in several)
    assert judge(read(step.format("zero(optimizer)\n")), shortest=False).word == "refuted"


def test_sub_groups_are_run_with_several_devices_in_several_of_them_and_as_long_meshes() -> None:
    program = resolve(read(f"mesh(dp)\ninner(dp=N_node)\n{PLAIN}{UPDATE}"))
    found = {(s.degrees["dp"] // s.degrees["dp_inner"], s.degrees["dp_inner"]) for s in meshes(program)}
    assert {(1, 1), (2, 2), (2, 3), (confirm.LONG, 1), (1, confirm.LONG)} <= found
