"""The blocks of a decoder as PyTorch runs them: proved, refuted where they are wrong, and with the costs that were measured."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

import pytest
import sympy
from block_oracle import collectives_taken_away, swapped
from hypothesis import given, settings
from hypothesis import strategies as st

from placeproof.cost.blocks.tensors import Kept, exchanges, kept, kept_bytes
from placeproof.programs import POSITIONS, Assign, Program, read
from placeproof.programs.ir import calls
from placeproof.programs.ops import OPS
from placeproof.semantics.judge.verdict import judge_tensors
from placeproof.semantics.searched import Searched
from placeproof.semantics.tensors import NotComputedError, RefutingBlockRun, Setup, encode_tensors, search, simulate

FOLDER = files("placeproof") / "profiles" / "torch"
PARTS = ("norm", "attention", "feed_forward", "embedding", "head")
PLANS = ("naive", "megatron", "sp")
NAMES = tuple(f"{part}{suffix}" for part in PARTS for suffix in ("", *(f"_{p}" for p in PLANS)))


def text(name: str) -> str:
    return (FOLDER / f"{name}.step").read_text(encoding="utf-8")


@cache
def program(name: str) -> Program:
    return read(text(name), source=f"{name}.step")


def planned(part: str, plan: str) -> Program:
    """A block under a plan; "" is the block on one device."""
    return program(f"{part}_{plan}" if plan else part)


def test_every_program_of_the_folder_is_here() -> None:
    assert sorted(f.name for f in FOLDER.iterdir()) == sorted(f"{n}.step" for n in NAMES)


# Proofs.


@pytest.mark.parametrize("name", NAMES)
def test_every_block_is_proved(name: str) -> None:
    judged = judge_tensors(program(name))
    assert judged.word == "proved", (judged.about, judged.why)
    assert ("N >= 1" in judged.for_all) == ("_" in name.removeprefix("feed_forward"))
    found = search(program(name), most=2)
    assert isinstance(found, Searched)
    assert found.runs


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("attention")])
def test_every_gradient_of_a_block_is_claimed(name: str) -> None:
    """Of each tensor of numbers, adjoints apart: that it is the derivative."""
    claims = [o.name for o in encode_tensors(program(name))]
    for tensor in program(name).tensors:
        if tensor.picks is None and not tensor.name.startswith("d"):
            assert any(f"by `{tensor.name}`" in c and "is the derivative" in c for c in claims), tensor.name


TAKEN_AWAY = [(n, i, what) for n in NAMES for i, (what, _) in enumerate(collectives_taken_away(program(n)))]


@pytest.mark.parametrize(("name", "number", "what"), TAKEN_AWAY)
def test_taking_a_collective_away_refutes(name: str, number: int, what: str) -> None:
    mutant = collectives_taken_away(program(name))[number][1]
    assert isinstance(search(mutant, most=2), RefutingBlockRun)
    if not name.startswith("attention"):  # whose proofs take seconds: its wrong variants below have to do
        assert judge_tensors(mutant).word == "refuted"


#: A wrong dimension, a wrong split, a wrong derivative: of each block one.
WRONG = {
    "norm": ("mean = total(x, over=hidden) / size", "mean = total(x, over=hidden)"),
    "norm_naive": ("bend = total(dh * centred, over=hidden)", "bend = dh * centred"),
    "norm_megatron": ("back = dc - total(dc, over=hidden) / size", "back = dc"),
    "norm_sp": (
        "total(dn * centred * rstd, over=tokens), over=batch), tp)",
        "total(dn * centred * rstd, over=tokens), over=batch), tp, op=mean)",
    ),
    "attention": ("dq = contract(ds, kk, over=keys)", "dq = contract(ds, vv, over=keys)"),
    "attention_naive": ("all_reduce(byq, tp) + all_reduce(byk, tp)", "all_reduce(byq, tp) + all_reduce(byq, tp)"),
    "attention_megatron": ("lse = z * elementwise(exp, top)", "lse = z"),
    "attention_sp": ("over=kv_heads), tp, dim=tokens)", "over=kv_heads), tp, dim=hidden)"),
    "feed_forward": ("dg = da * u * slope(silu, g)", "dg = da * s * slope(silu, g)"),
    "feed_forward_naive": ("y = x + all_reduce(contract(a, w2, over=ffn), tp)", "y = all_reduce(x + contract(a, w2, over=ffn), tp)"),
    "feed_forward_megatron": ("contract(du, w3, over=ffn), tp)", "contract(du, w1, over=ffn), tp)"),
    "feed_forward_sp": ("over=ffn), tp, dim=tokens)\nreturns(y)", "over=ffn), tp, dim=batch)\nreturns(y)"),
    "embedding": ("total(contract(hot(ids), dy, over=tokens), over=batch)", "2 * total(contract(hot(ids), dy, over=tokens), over=batch)"),
    "embedding_naive": ("table, over=vocab), tp)", "table, over=vocab), tp, op=max)"),
    "embedding_megatron": ("table, over=vocab), tp)", "table, over=vocab), tp, op=mean)"),
    "embedding_sp": ("dfull = all_gather(dy, tp)", "dfull = part(all_gather(dy, tp), tp, dim=batch)"),
    "head": ("dlogits = (p - hot(target)) * dy / targets", "dlogits = (p - hot(target)) * dy"),
    "head_naive": ("dn = all_reduce(contract(dz, w, over=vocab), tp)", "dn = all_reduce(contract(dz, w, over=vocab), tp, op=mean)"),
    "head_megatron": ("dz = part(dlogits, tp, dim=vocab)", "dz = part(dlogits, tp, dim=batch)"),
    "head_sp": (
        "dn = reduce_scatter(contract(dz, w, over=vocab), tp, dim=tokens)",
        "dn = part(contract(dz, w, over=vocab), tp, dim=tokens)",
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_wrong_blocks_are_refuted(name: str) -> None:
    old, new = WRONG[name]
    assert text(name).count(old) == 1
    judged = judge_tensors(read(text(name).replace(old, new)))
    assert judged.word == "refuted", judged.why


# The plans speak of the same computation.


#: What a plan calls apart because it lies elsewhere.
OTHERWISE = {"full": "n", "dfull": "dy", "dz": "dlogits"}


def alone(part: str, plan: str) -> Program:
    """A plan without its axis: no split, no collective, no part, and one name for what is then one value."""
    bare = read(re.sub(r"\w+", lambda m: OTHERWISE.get(m[0], m[0]), text(f"{part}_{plan}" if plan else part)))
    bare = replace(bare, axes=(), tensors=tuple(replace(t, split=()) for t in bare.tensors))
    while found := [c for stmt in bare.body for c in calls(stmt) if OPS[c.op].collective or c.op == "part"]:
        bare = swapped(bare, found[0], found[0].args[0])
    return replace(bare, body=tuple(s for s in bare.body if not (isinstance(s, Assign) and s.value == s.targets[0])))


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("plan", PLANS)
def test_without_its_axis_a_plan_is_the_block_on_one_device(part: str, plan: str) -> None:
    assert alone(part, plan) == alone(part, "")
    assert exchanges(program(part)) == ()


@pytest.mark.parametrize("part", ["norm", "embedding", "head"])
def test_what_one_linear_layer_reads_is_the_same_in_both_plans(part: str) -> None:
    assert replace(planned(part, "naive"), name="") == replace(planned(part, "megatron"), name="")


# A norm and its block together.


def together(part: str, plan: str) -> str:
    """One program of a norm and the block behind it: what goes from one to the other has the same name in both."""
    norm, block = ([line for line in text(f"{p}_{plan}" if plan else p).splitlines() if not line.startswith("#")] for p in ("norm", part))
    passed = ("tensor(n,", "tensor(dn,", "tensor(dbeside,")
    head = dict.fromkeys(line for line in (*norm, *block) if line.startswith(("mesh", "tensor")) and not line.startswith(passed))
    norm, block = ([line for line in lines if not line.startswith(("mesh", "tensor"))] for lines in (norm, block))
    cut = norm.index("beside = copy(x)")
    block = [line for line in block if "by=n," not in line and "by=x," not in line]
    back = [line for line in norm[cut + 1 :] if line.startswith(("returns(total", "returns(all_reduce")) or not line.startswith("returns")]
    back = [line.replace("gradient_of=n", "gradient_of=y").replace("at=dn", "at=dy") for line in back]
    return "\n".join([*head, *norm[:cut], *block, *back, "returns(dy + back, gradient_of=y, by=x, at=dy)"]) + "\n"


def lives(*parts: Program) -> Counter[Kept]:
    return Counter(replace(k, line=0) for p in parts for k in kept(p))


@pytest.mark.parametrize("part", ["attention", "feed_forward"])
@pytest.mark.parametrize("plan", ["", *PLANS])
def test_a_norm_and_its_block_keep_and_send_what_both_do(part: str, plan: str) -> None:
    whole, apart = read(together(part, plan)), (planned("norm", plan), planned(part, plan))
    assert lives(whole) == lives(*apart)
    sent = Counter((e.kind, e.axes, frozenset(e.dims), e.phase) for p in apart for e in exchanges(p))
    assert Counter((e.kind, e.axes, frozenset(e.dims), e.phase) for e in exchanges(whole)) == sent


@pytest.mark.parametrize("plan", ["", "sp"])
def test_a_norm_and_its_feed_forward_block_are_proved_together(plan: str) -> None:
    judged = judge_tensors(read(together("feed_forward", plan)))
    assert judged.word == "proved", judged.why


def first_difference(part: Program, seeds: range) -> tuple[int, bool]:
    """How many runs of a small mesh could be computed, and whether one differs from one device."""
    sizes = {"batch": 1, "tokens": 2, "keys": 2, "hidden": 2, "kv_heads": 2, "group": 1, "width": 1}
    runs = 0
    for seed in seeds:
        try:
            found = simulate(part, Setup(degrees={a.name: 2 for a in part.axes}, sizes=sizes, seed=seed))
        except NotComputedError:
            continue
        runs += 1
        if found is not None:
            return runs, True
    return runs, False


@pytest.mark.parametrize("plan", ["", *PLANS])
def test_a_norm_and_its_attention_agree_with_derivatives_in_fractions(plan: str) -> None:
    """A proof of the two together takes minutes; runs in exact numbers take a moment."""
    whole = together("attention", plan)
    runs, differs = first_difference(read(whole), range(1, 60))
    assert runs >= 10
    assert not differs
    for old, new in (("returns(dy + back,", "returns(back,"), ("dh = dn * gain", "dh = dn")):
        assert whole.count(old) == 1
        assert first_difference(read(whole.replace(old, new)), range(1, 60))[1]


# What was measured: the formulas of saved activations and of traffic.

B, T, D, H, G, F, V, t, L = sympy.symbols("B T d h g f V t L", positive=True)
SYMBOLS = {"batch": B, "tokens": T, "hidden": D, "kv_heads": H / G, "group": G, "width": D / H, "ffn": F, "vocab": V}
LAYER, ROOT = ("norm", "attention", "norm", "feed_forward"), ("embedding", "norm", "head")
#: Elements that one layer keeps: numbers alone, with as many key-value heads as heads.
PER_LAYER = {
    "": 8 * B * T * D + 4 * B * T * F + 4 * B * T + B * H * T,
    "naive": 4 * B * T * D + 4 * B * T * D / t + 4 * B * T * F / t + 4 * B * T + B * H * T / t,
    "megatron": 4 * B * T * D + 4 * B * T * D / t + 4 * B * T * F / t + 4 * B * T + B * H * T / t,
    "sp": 2 * B * T * D / t + 2 * B * T * D + 4 * B * T * D / t + 4 * B * T * F / t + 4 * B * T / t + B * H * T / t,
}
#: The same of what is outside layers, the one number of targets apart.
OUTSIDE = {
    "": 2 * B * T * D + 2 * B * T + B * T * V,
    "naive": 2 * B * T * D + 2 * B * T + B * T * V,
    "megatron": 2 * B * T * D + 2 * B * T + B * T * V,
    "sp": B * T * D / t + B * T * D + 2 * B * T / t + B * T * V,
}


def numbers(parts: tuple[str, ...], plan: str) -> Any:
    """Elements of all that is kept and is no position."""
    every = [k for p in parts for k in kept(planned(p, plan)) if k.picks is None]
    return sum(k.elements(SYMBOLS, {"tp": t}) for k in every)


@pytest.mark.parametrize("plan", ["", *PLANS])
def test_kept_elements_are_the_formulas_that_were_measured(plan: str) -> None:
    assert sympy.expand(numbers(LAYER, plan).subs(G, 1) - PER_LAYER[plan]) == 0
    assert sympy.expand(numbers(ROOT, plan) - OUTSIDE[plan] - 1) == 0
    indices = sum(k.elements(SYMBOLS, {"tp": t}) for p in ROOT for k in kept(planned(p, plan)) if k.picks is not None)
    assert indices == 2 * B * T
    assert not [k for p in LAYER for k in kept(planned(p, plan)) if k.picks is not None]


@pytest.mark.parametrize("plan", ["", *PLANS])
def test_grouped_heads_keep_fewer_keys_and_values(plan: str) -> None:
    split = t if plan else 1
    saved = 2 * B * T * D / split * (1 - 1 / G)
    assert sympy.expand(PER_LAYER[plan] - saved - numbers(LAYER, plan)) == 0


def test_kept_bytes_in_all_are_the_formula() -> None:
    """With 8 bytes an element: what was measured in float64, with 16 bytes of indices a token and 8 bytes for the number of targets."""
    each = sum(kept_bytes(planned(p, ""), SYMBOLS, {}, 8) for p in LAYER).subs(G, 1)
    root = sum(kept_bytes(planned(p, ""), SYMBOLS, {}, 8) for p in ROOT)
    assert sympy.expand(L * each + root - 8 * (L * PER_LAYER[""] + OUTSIDE[""]) - (2 * B * T * 8 + 8)) == 0


def traffic(parts: tuple[str, ...], plan: str) -> Counter[tuple[str, str, Any]]:
    """How often each collective of the stream or of logits is entered: (kind, phase, elements); gradients of weights apart."""
    found = (e for p in parts for e in exchanges(planned(p, plan)))
    return Counter((e.kind, e.phase, e.elements(SYMBOLS, {"tp": t})) for e in found if POSITIONS & set(e.dims))


STREAM, LOGITS = B * T * D, B * T * V
#: Of a layer, and of what is outside. With L layers: 7 L + 2 and 4 L + 2 all-reduces; 2 (2 L + 1) gathers and as many scatters.
SENT: dict[str, tuple[dict[tuple[str, str, Any], int], dict[tuple[str, str, Any], int]]] = {
    "naive": (
        {("all_reduce", "forward", STREAM): 2, ("all_reduce", "backward", STREAM): 5},
        {("all_reduce", "forward", STREAM): 1, ("all_reduce", "backward", STREAM): 1, ("all_gather", "forward", LOGITS): 1},
    ),
    "megatron": (
        {("all_reduce", "forward", STREAM): 2, ("all_reduce", "backward", STREAM): 2},
        {("all_reduce", "forward", STREAM): 1, ("all_reduce", "backward", STREAM): 1, ("all_gather", "forward", LOGITS): 1},
    ),
    "sp": (
        {(kind, phase, STREAM): 2 for kind in ("all_gather", "reduce_scatter") for phase in ("forward", "backward")},
        {(kind, phase, STREAM): 1 for kind in ("all_gather", "reduce_scatter") for phase in ("forward", "backward")}
        | {("all_gather", "forward", LOGITS): 1},
    ),
}


@pytest.mark.parametrize("plan", PLANS)
def test_traffic_is_what_was_measured(plan: str) -> None:
    layer, root = SENT[plan]
    assert traffic(LAYER, plan) == layer
    assert traffic(ROOT, plan) == root


def test_gradients_of_norms_are_summed_where_tokens_are_split() -> None:
    """One all-reduce of a gain for each norm; DTensor makes it in the optimizer."""
    for plan in PLANS:
        gains = [e for p in PARTS for e in exchanges(planned(p, plan)) if not POSITIONS & set(e.dims)]
        assert [(e.kind, e.dims, e.phase) for e in gains] == ([("all_reduce", ("hidden",), "backward")] if plan == "sp" else [])


# In numbers.


@settings(max_examples=60)
@given(data=st.data())
def test_kept_bytes_against_a_count_by_hand(data: st.DataObject) -> None:
    plan = data.draw(st.sampled_from(["", *PLANS]))
    draw = st.integers(1, 5)
    n = data.draw(draw) if plan else 1
    batch, tokens, kv, group, width = data.draw(draw), n * data.draw(draw), n * data.draw(draw), data.draw(draw), data.draw(draw)
    ffn, vocab, own = n * data.draw(draw), n * data.draw(draw), data.draw(st.sampled_from([2, 4, 8]))
    hidden = kv * group * width
    sizes = {"batch": batch, "tokens": tokens, "hidden": hidden, "kv_heads": kv, "group": group, "width": width, "ffn": ffn, "vocab": vocab}
    rows = batch * tokens
    short = rows // n if plan == "sp" else rows  # tokens of the stream on this device
    tensors = [
        *[short * hidden, short, short] * 2,  # what the two norms keep
        *[rows * hidden] * 2,  # what they give, gathered
        rows * hidden // n, rows * kv * width // n, rows * kv * width // n, rows * hidden // n,  # queries, keys, values, output
        *[rows * ffn // n] * 4,
    ]  # fmt: skip
    lse = rows * kv * group // n
    each = sum(kept_bytes(planned(p, plan), sizes, {"tp": n}, own, {"lse": 4}) for p in LAYER)
    assert each == own * sum(tensors) + 4 * lse
    root = sum(kept_bytes(planned(p, plan), sizes, {"tp": n}, own) for p in ROOT)
    assert root == own * (short * hidden + 2 * short + rows * hidden + rows * vocab + 1) + 8 * 2 * rows


# Against a real decoder.


def decoder(torch: Any, *, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int) -> Any:
    """One layer, as `placeproof.core.shapes.transformer` describes it."""
    nn, functional = torch.nn, torch.nn.functional

    class Decoder(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            width = hidden // heads
            linear = {"wq": (hidden, hidden), "wk": (hidden, kv_heads * width), "wv": (hidden, kv_heads * width), "wo": (hidden, hidden)}
            linear |= {"w1": (hidden, ffn), "w3": (hidden, ffn), "w2": (ffn, hidden), "head": (hidden, vocab)}
            self.linear = nn.ModuleDict({name: nn.Linear(i, o, bias=False) for name, (i, o) in linear.items()})
            self.norms = nn.ModuleList(nn.LayerNorm(hidden, bias=False) for _ in range(3))
            self.embedding = nn.Embedding(vocab, hidden)

        def forward(self, ids: Any, target: Any) -> Any:
            x, lin = self.embedding(ids), self.linear
            n = self.norms[0](x)
            q, k, v = (lin[w](n).unflatten(-1, (-1, hidden // heads)).transpose(1, 2) for w in ("wq", "wk", "wv"))
            o = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv_heads < heads)
            x = x + lin["wo"](o.transpose(1, 2).flatten(2))
            n = self.norms[1](x)
            x = x + lin["w2"](functional.silu(lin["w1"](n)) * lin["w3"](n))
            return functional.cross_entropy(lin["head"](self.norms[2](x)).flatten(0, 1), target.flatten())

    return Decoder()


def saved(torch: Any, module: Any, ids: Any, target: Any) -> list[int]:
    """Bytes of each storage that autograd keeps, parameters apart."""
    weights = {p.untyped_storage().data_ptr() for p in module.parameters()}
    found: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            found.setdefault(storage.data_ptr(), storage)  # held, so that no address comes twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        module(ids, target).backward()
    return sorted(s.nbytes() for s in found.values())


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("group", [1, 3])
def test_kept_storages_are_those_of_a_real_decoder(kind: str, group: int) -> None:
    """One by one. On a CPU, PyTorch keeps attention's logsumexp in fp32 at least, and all else in the precision of the model."""
    torch = pytest.importorskip("torch", reason="torch is not installed: what autograd keeps is not compared")
    sizes = {"batch": 2, "tokens": 5, "kv_heads": 2, "group": group, "width": 4, "ffn": 20, "vocab": 33}
    heads = sizes["kv_heads"] * group
    sizes["hidden"] = heads * sizes["width"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of what is missing on this machine
        torch.manual_seed(0)
        module = decoder(torch, hidden=sizes["hidden"], heads=heads, kv_heads=sizes["kv_heads"], ffn=sizes["ffn"], vocab=sizes["vocab"])
        module = module.to(getattr(torch, kind))
        ids, target = (torch.randint(0, sizes["vocab"], (sizes["batch"], sizes["tokens"])) for _ in range(2))
        measured = saved(torch, module, ids, target)
    width = {"float32": 4, "bfloat16": 2, "float64": 8}[kind]
    parts = [program(p) for p in (*LAYER, *ROOT)]
    predicted = [k.bytes(sizes, {}, width, {"lse": max(width, 4)}) for p in parts for k in kept(p)]
    assert sorted(predicted) == measured
