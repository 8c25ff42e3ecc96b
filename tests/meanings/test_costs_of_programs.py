"""Costs of step programs as people write them: against numbers that were added up device by device, and against formulas made by hand.

The numbers of ``data/costed_programs.json`` come from a script that unrolls a program over all devices of a small mesh. It was written from
the manual alone, by somebody who had not seen how costs are derived.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import sympy

from placeproof.core.diagnostics import InputError
from placeproof.core.symbols import symbol
from placeproof.cost.derive import Derivation, derive, evaluate
from placeproof.programs import read

COSTED: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "costed_programs.json").read_text())
UPDATE = "parameters, optimizer = update(parameters, optimizer, G)\n"
ZERO3 = 'mesh(dp)\nplace(parameters, dp="S*")\nplace(optimizer, dp="S")\n'


def values_of(d: Derivation, sizes: dict[str, Any]) -> dict[str, Fraction]:
    values = {name: Fraction(width) for name, width in COSTED["widths"].items()}
    values |= {"P": Fraction(3600), "A": Fraction(7200), "b": Fraction(1), "s": Fraction(10), "h": Fraction(12)}
    values |= {name: Fraction(sizes[name]) for name in ("m", "n_u", "L", "P_norm")}
    degrees = {a.name: sizes.get(a.name, a.degree or 1) for a in d.program.axes}
    values |= {f"N_{name}": Fraction(degree) for name, degree in degrees.items()} | {"N": Fraction(math.prod(degrees.values()))}
    return values | dict.fromkeys(("U", "U_root"), values["P"] / values["n_u"])


@pytest.mark.parametrize("name", COSTED["programs"])
def test_costs_are_those_of_the_devices_one_by_one(name: str) -> None:
    entry = COSTED["programs"][name]
    d = derive(read("\n".join(entry["program"]) + "\n", source=name), groups=True)
    for run in entry["runs"]:
        values = values_of(d, run["sizes"])
        found = {"sent": evaluate(d.sent, values), "peak": evaluate(d.memory["peak"], values)}
        assert found == {key: Fraction(run[key]) for key in found}, run["sizes"]


BY_HAND = {
    "a buffer has the size of what was written last": (
        f"mesh(dp)\nG = reduce_scatter(backward(parameters), dp, op=mean)\nG = all_gather(G, dp)\n{UPDATE}",
        {"gradients": "P*b_g", "transient": "0"},
    ),
    "a buffer has the width of what was written last": (
        f"mesh(dp)\nG = quantize(backward(parameters), b_qg)\nG = dequantize(all_reduce(G, dp, op=mean))\n{UPDATE}",
        {"gradients": "Max(P*b_g, P*b_qg)"},
    ),
    "what is freed in one loop and gathered in another": (
        f"{ZERO3}for u in units:\n    w[u] = all_gather(parameters[u], dp)\n    free(w[u])\nfor u in reversed(units):\n"
        f"    w[u] = all_gather(parameters[u], dp)\n    free(w[u])\nG = part(backward(parameters), dp)\n{UPDATE}",
        {"transient": "U*b_theta"},
    ),
    "what is freed lives until then": (
        f"mesh(dp)\nG = backward(parameters)\nt = copy(G)\nz = copy(G)\nfree(t)\n{UPDATE}",
        {"transient": "2*P*b_g"},
    ),
    "what a collective in flight sends lives until the wait": (
        "mesh(dp)\ng = backward(parameters)\nh = start(all_reduce(g, dp, op=mean))\nt = copy(parameters)\nz = copy(t)\n"
        f"G = wait(h)\n{UPDATE}",
        {"transient": "2*P*b_g + 2*P*b_theta"},
    ),
    "what many collectives in flight send": (
        "mesh(dp)\nfor u in reversed(units):\n    g[u] = backward(parameters[u])\n    h[u] = start(all_reduce(g[u], dp, op=mean))\n"
        f"for u in units:\n    G[u] = wait(h[u])\n{UPDATE}",
        {"transient": "2*P*b_g"},
    ),
    "what is waited for and read in one line lives in it": (
        f"mesh(dp)\nG = backward(parameters)\nh = start(all_reduce(parameters, dp, op=mean))\nz = copy(copy(wait(h)))\n{UPDATE}",
        {"transient": "2*P*b_theta"},
    ),
    "what is waited for and named is one buffer": (
        f"mesh(dp)\nG = backward(parameters)\nh = start(all_reduce(parameters, dp, op=mean))\nz = wait(h)\n{UPDATE}",
        {"transient": "P*b_theta"},
    ),
    "what is waited for and added lives in that line": (
        "mesh(dp)\nG = backward(parameters)\nz = copy(parameters)\nh = start(all_reduce(parameters, dp, op=mean))\nz += wait(h)\n"
        f"y = copy(z)\n{UPDATE}",
        {"transient": "2*P*b_theta"},
    ),
    "a group of another kind has that kind's width": (
        "mesh()\ngroup(matrix, P - P_norm)\ngroup(norm, P_norm)\nG = backward(parameters)\nt = copy(parameters)\nt.norm = copy(G.norm)\n"
        f"z = copy(t)\n{UPDATE}",
        {"transient": "P*b_theta + (P - P_norm)*b_theta + P_norm*b_g"},
    ),
    "what passes through host memory": (
        f"mesh()\ng = backward(parameters)\nh = to_host(g)\nG = to_device(h)\n{UPDATE}",
        {"host": "0", "host_transient": "P*b_g"},
    ),
    "micro-batches that are kept": (
        f"mesh(dp)\nfor i in microbatches:\n    g[i] = backward(parameters, i)\nfor i in microbatches:\n    G += g[i]\n{UPDATE}",
        {"transient": "P*b_g*m", "sent": "0"},
    ),
    "one of the micro-batches that are kept": (
        f"mesh(dp)\nfor i in microbatches:\n    g[i] = backward(parameters, i)\nG = all_reduce(g[0], dp)\n{UPDATE}",
        {"gradients": "P*b_g", "sent": "2*P*b_g*(N - 1)/N"},
    ),
    "the micro-batch before": (
        f"mesh(dp)\nfor i in microbatches:\n    g[i] = backward(parameters, i)\n    G += all_reduce(g[i - 1], dp)\n{UPDATE}",
        {"transient": "P*b_g*Min(2, m)", "sent": "2*P*b_g*(m - 1)*(N - 1)/N"},
    ),
    "sides of a branch with other widths": (
        "mesh(dp, tp)\nG = backward(parameters)\nif rank(tp) == 0:\n    H = quantize(G, b_qg)\nelse:\n    H = copy(G)\n"
        f"K = all_reduce(H, dp)\n{UPDATE}",
        {"sent": "2*P*(N_dp - 1)/N_dp*(b_qg + (N_tp - 1)*b_g)/N_tp", "transient": "Max(2*P*b_g, 2*P*b_qg)"},
    ),
    "devices that do other things do not add up": (
        "mesh(dp=4)\nG = backward(parameters)\nif rank(dp) == 0:\n    y = copy(G)\n    z = copy(y)\n    y = copy(z)\n"
        f"else:\n    H = copy(G)\n    K = copy(H)\n    H = copy(K)\n{UPDATE}",
        {"transient": "2*P*b_g"},
    ),
    "a branch that no device takes": (
        f"mesh(dp=2)\nG = backward(parameters)\nif rank(dp) > 1:\n    H = copy(G)\n{UPDATE}",
        {"transient": "0"},
    ),
    "groups with other widths": (
        "mesh(dp)\ngroup(a, P - P_norm)\ngroup(c, P_norm)\nG = backward(parameters)\nh.a = quantize(parameters.a, b_qw)\n"
        f"h.c = copy(parameters.c)\nz = all_reduce(h.c, dp)\n{UPDATE}",
        {"sent": "2*P_norm*b_theta*(N - 1)/N", "transient": "b_qw*(P - P_norm) + 2*P_norm*b_theta"},
    ),
    "parts further on": (
        f"mesh(dp)\nG = backward(parameters)\nfor u in units:\n    H = all_reduce(G[u + 2], dp)\n{UPDATE}",
        {"sent": "2*b_g*(P - 2*U)*(N - 1)/N"},
    ),
    "the part before in all units but the first": (
        f"mesh(dp)\nG = backward(parameters)\nfor u in units[1:]:\n    H = all_reduce(G[u - 1], dp)\n{UPDATE}",
        {"sent": "2*b_g*(P - U)*(N - 1)/N"},
    ),
    "a part and the part before it": (
        f"mesh()\nG = backward(parameters)\nfor u in units:\n    g[u] = copy(parameters[u])\n    r = copy(g[u - 1])\n{UPDATE}",
        {"transient": "3*U*b_theta"},
    ),
    "a tied group is whole on the first stage": (
        'mesh(dp, pp)\ngroup(rest, P - P_norm)\ngroup(emb, P_norm, tied=pp)\nplace(parameters, pp="S")\nplace(optimizer, pp="S")\n'
        f"G = backward(parameters)\nG.emb = tied_reduce(G.emb, pp)\nG = all_reduce(G, dp, op=mean)\n{UPDATE}",
        {
            "parameters": "b_theta*(P_norm + (P - P_norm)/N_pp)",
            "gradients": "b_g*(P_norm + (P - P_norm)/N_pp)",
            "sent": "2*P_norm*b_g*Min(1, N_pp - 1)/N_pp + 2*b_g*(P_norm*Min(2, N_pp)/N_pp + (P - P_norm)/N_pp)*(N_dp - 1)/N_dp",
        },
    ),
    "inputs of layers that are kept, by any name": (
        "mesh()\nx = data()\nfor l in layers:\n    c[l] = x\n    x = forward(parameters[l], x)\ndx = loss(x)\nfor l in reversed(layers):\n"
        "    y, s = forward(parameters[l], c[l])\n    G[l] = backward_weight(parameters[l], s, dx)\n"
        "    dx = backward_input(parameters[l], s, dx)\n"
        f"{UPDATE}",
        {"transient": "L*b*s*h*b_a + A*b_a/L"},
    ),
}


@pytest.mark.parametrize("what", BY_HAND)
def test_costs_by_hand(what: str) -> None:
    text, expected = BY_HAND[what]
    d = derive(read(text), groups=True)
    for key, formula in expected.items():
        found = d.sent if key == "sent" else d.memory[key]
        wanted = sympy.sympify(formula, locals={str(s): s for s in found.free_symbols} | {"N": symbol("N")})
        assert sympy.simplify(found - wanted.xreplace({s: symbol(str(s)) for s in wanted.free_symbols})) == 0, (key, found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "t = copy(G)\nfor u in units:\n    t[u] = quantize(parameters[u], b_qw)\n    y = all_reduce(t, dp)\n",
            "parts of `t` that are read here",
        ),
        (
            "if rank(dp) == 0:\n    H = quantize(G, b_qg)\nelse:\n    H = copy(G)\nK = all_reduce(H, dp)\n",
            "the devices that meet in this `all_reduce`",
        ),
        ("".join(f"if rank(dp) == {n}:\n    H = copy(G)\nif rank(tp) == {n}:\n    H = copy(G)\n" for n in range(17)), "kinds of devices"),
    ],
)
def test_what_is_not_derived_is_refused(text: str, said: str) -> None:
    program = read(f"mesh(dp=20, tp=20)\nG = backward(parameters)\n{text}{UPDATE}")
    with pytest.raises(InputError, match=said) as caught:
        derive(program)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "PP310"
    assert diagnostic.place is not None
    assert diagnostic.help


@pytest.mark.parametrize("said", ["0", "1 - 2", "1 / 2"])
def test_less_than_one_micro_batch_in_flight_is_refused(said: str) -> None:
    with pytest.raises(InputError, match="in flight"):
        read(f"mesh(dp)\nfor i in microbatches(in_flight={said}):\n    G += backward(parameters, i)\n{UPDATE}")
