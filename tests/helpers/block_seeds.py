"""Programs over tensors that mutants are made of: every block that comes with placeproof, those of models on meshes, and small rings."""

from __future__ import annotations

import random
from functools import cache
from importlib.resources import files

from block_programs import random_block

from placeproof.core.diagnostics import InputError
from placeproof.programs import Program, read
from placeproof.semantics.blocks import Plan, combined, context_parallel, data_parallel, expert_parallel, lower_block, tensor_parallel

RING_SUM = """\
mesh(cp)
tensor(x, tokens, hidden, cp=tokens)
tensor(w, keys, hidden, cp=keys)
tensor(dy, tokens, hidden, cp=tokens)
k = copy(w)
s = contract(contract(x, w, over=hidden), w, over=keys)
for r in rounds[cp]:
    k = shift(k, cp)
    s += contract(contract(x, k, over=hidden), k, over=keys)
returns(s)
k = copy(w)
dx = contract(contract(dy, w, over=hidden), w, over=keys)
dw = contract(contract(x, w, over=hidden), dy, over=tokens) + contract(contract(dy, w, over=hidden), x, over=tokens)
for r in rounds[cp]:
    k = shift(k, cp)
    dw = shift(dw, cp)
    dx += contract(contract(dy, k, over=hidden), k, over=keys)
    dw += contract(contract(x, k, over=hidden), dy, over=tokens) + contract(contract(dy, k, over=hidden), x, over=tokens)
dw = shift(dw, cp)
returns(dx, gradient_of=s, by=x, at=dy)
returns(dw, gradient_of=s, by=w, at=dy)
"""
TWO_RINGS = """\
mesh(cp, tp)
tensor(q, tokens, heads, width, cp=tokens, tp=heads)
tensor(k, keys, heads, width, cp=keys, tp=heads)
tensor(bias, heads, tp=heads)
tensor(wo, heads, width, hidden, tp=heads)
v = copy(k)
carry = k * bias + total(q, over=tokens)
e = elementwise(gelu, contract(q, k, over=width))
o = contract(e, k, over=keys)
for r in rounds[cp]:
    v = shift(v, cp, by=-1)
    carry = shift(carry, cp, by=-1)
    e = elementwise(gelu, contract(q, v, over=width))
    o += contract(e, v, over=keys)
    carry += total(q, over=tokens)
carry = shift(carry, cp, by=-1)
y = reduce_scatter(total(contract(o + bias, wo, over=width), over=heads), tp, dim=hidden)
returns(y)
returns(carry)
"""
ULYSSES = """\
mesh(cp, tp)
tensor(q, tokens, heads, width, cp=tokens, tp=heads)
tensor(k, tokens, heads, width, cp=tokens, tp=heads)
tensor(wo, heads, width, hidden, tp=heads)
tensor(same, keys, picks=tokens)
tensor(dy, tokens, hidden, cp=tokens)
q2 = all_to_all(q, cp, dim=heads)
k2 = all_to_all(k, cp, dim=heads)
kk = contract(hot(same), k2, over=tokens)
e = elementwise(exp, contract(q2, kk, over=width))
p = e / total(e, over=keys)
o = all_to_all(contract(p, kk, over=keys), cp, dim=tokens)
y = all_reduce(total(contract(o, wo, over=width), over=heads), tp)
returns(y)
returns(all_reduce(contract(o, dy, over=tokens), cp), gradient_of=y, by=wo, at=dy)
do = all_to_all(contract(dy, wo, over=hidden), cp, dim=heads)
ds = p * (contract(do, kk, over=width) - contract(p, contract(do, kk, over=width), over=keys))
dq = all_to_all(contract(ds, kk, over=keys), cp, dim=tokens)
returns(dq, gradient_of=y, by=q, at=dy)
"""
CAPACITY = """\
mesh(ep)
tensor(n, batch, tokens, hidden, ep=batch)
tensor(route, batch, tokens, choices, ep=batch, picks=experts)
tensor(w, experts, hidden, expert_ffn, ep=experts)
load = all_reduce(total(total(total(hot(route), over=choices), over=tokens), over=batch), ep)
served = contract(hot(route), elementwise(served, load), over=experts)
sent = all_to_all(hot(route) * n, ep, dim=experts)
back = all_to_all(contract(sent, w, over=hidden), ep, dim=batch)
y = total(served * contract(hot(route), back, over=experts), over=choices)
returns(y)
"""
SPLIT_KEYS = """\
mesh(cp)
tensor(q, queries, width)
tensor(k, keys, width, cp=keys)
tensor(v, keys, channels, cp=keys)
scores = contract(q, k, over=width)
own = largest(scores, over=keys)
e = elementwise(exp, scores - own)
m = all_reduce(own, cp, op=max)
c = elementwise(exp, own - m)
z = all_reduce(c * total(e, over=keys), cp)
y = all_reduce(c * contract(e, v, over=keys), cp) / z
returns(y)
"""
MEANS = """\
mesh(dp, tp)
tensor(x, batch, hidden, dp=batch, tp=hidden)
tensor(gain, hidden, tp=hidden)
tensor(bias, hidden)
tensor(dy, batch, hidden, dp=batch, tp=hidden)
s = all_reduce(total(x * x, over=hidden), tp)
size = all_reduce(total(elementwise(stop, gain) ** 0, over=hidden), tp)
n = x * elementwise(rsqrt, scale(s, 1 / 2) / size) * gain
y = n + part(bias, tp, dim=hidden)
mean = scale(all_reduce(total(n, over=batch), dp), 1 / dp)
most = all_reduce(largest(y, over=hidden), tp, op=max)
returns(y)
returns(most)
returns(mean * dp)
returns(all_reduce(broadcast(total(bias, over=hidden), tp), tp, op=mean))
returns(all_reduce(total(dy, over=batch), dp) * 1, gradient_of=y, by=bias, at=dy)
"""
SMALL = {"ring sum": RING_SUM, "two rings": TWO_RINGS, "ulysses": ULYSSES, "capacity": CAPACITY, "split keys": SPLIT_KEYS, "means": MEANS}
FOLDERS = ("blocks", "models/blocks", "profiles/megatron", "profiles/torch", "framework_rules/programs")
TP, SP, CP, DP = tensor_parallel(), tensor_parallel(sequence=True), context_parallel(), data_parallel()
PLANS: dict[str, Plan] = {
    "tp": TP,
    "sp": SP,
    "cp": CP,
    "dp": DP,
    "ulysses": context_parallel(by="ulysses"),
    "ep": expert_parallel(),
    "sp * cp": combined(SP, CP),
    "tp * dp": combined(TP, DP),
}


@cache
def folder(path: str) -> dict[str, str]:
    """The programs over tensors of one folder of the package."""
    found = {
        f.name: f.read_text(encoding="utf-8") for f in files("placeproof").joinpath(*path.split("/")).iterdir() if f.name.endswith(".step")
    }
    return {f"{path}/{name}": text for name, text in sorted(found.items()) if "tensor(" in text}


@cache
def every() -> dict[str, Program]:
    """All of them by their names, the programs of models on each mesh that has a plan for them."""
    texts = {name: text for path in FOLDERS for name, text in folder(path).items()} | SMALL
    programs = {name: read(text, source=name) for name, text in texts.items()}
    for name in folder("models/blocks"):
        for plan in PLANS:
            lowered = on_mesh(programs[name], plan)
            if lowered is not None:
                programs[f"{name} * {plan}"] = lowered
    return programs


def on_mesh(program: Program, plan: str) -> Program | None:
    try:
        return lower_block(program, PLANS[plan])
    except InputError:
        return None


def drawn(rng: random.Random) -> Program:
    """A random program on one device, put onto a mesh where it can be."""
    program = read(random_block(rng))
    return on_mesh(program, rng.choice(list(PLANS))) or program
