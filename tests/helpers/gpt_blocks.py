"""The blocks of a GPT layer, on one device and lowered by hand onto tensor parallelism, without and with sequence parallelism.

The lowered texts are edits of the one-device texts, after Megatron's parallel linear layers (Korthikanti et al. 2022, figures 4 and 5).
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from placeproof.programs import Program, read
from placeproof.semantics.tensors import NotComputedError, Setup, simulate

FOLDER = files("placeproof") / "models" / "blocks"
LAYER = ("layer_norm", "attention_gpt", "layer_norm", "mlp_gpt")

_SPLIT = {
    "attention_gpt": dict.fromkeys(("wq", "bq", "wk", "bk", "wv", "bv", "wo", "drop"), "heads"),
    "mlp_gpt": dict.fromkeys(("w1", "b1", "w2"), "ffn"),
}
_ATTENTION = "total(contract(o, wo, over=width), over=heads)"
_MLP = "contract(a, w2, over=ffn)"
_TP = {
    "attention_gpt": [(_ATTENTION, f"all_reduce({_ATTENTION}, tp)"), ("dn = byq + byk + byv", "dn = all_reduce(byq + byk + byv, tp)")],
    "mlp_gpt": [(_MLP, f"all_reduce({_MLP}, tp)"), ("dn = contract(du, w1, over=ffn)", "dn = all_reduce(contract(du, w1, over=ffn), tp)")],
}
#: With sequence parallelism what the first linear layer reads is gathered twice: it is not kept whole.
_SP = {
    "layer_norm": [
        ("total(total(dn, over=tokens), over=batch)", "all_reduce(total(total(dn, over=tokens), over=batch), tp)"),
        (
            "total(total(dn * apart * rstd, over=tokens), over=batch)",
            "all_reduce(total(total(dn * apart * rstd, over=tokens), over=batch), tp)",
        ),
    ],
    "attention_gpt": [
        ("q = contract(n, wq, over=hidden)", "full = all_gather(n, tp)\nq = contract(full, wq, over=hidden)"),
        ("k = contract(n, wk, over=hidden)", "k = contract(full, wk, over=hidden)"),
        ("v = contract(n, wv, over=hidden)", "v = contract(full, wv, over=hidden)"),
        (_ATTENTION, f"reduce_scatter({_ATTENTION}, tp, dim=tokens)"),
        ("total(total(dout, over=tokens), over=batch)", "all_reduce(total(total(dout, over=tokens), over=batch), tp)"),
        ("returns(total(contract(o, dout,", "dfull = all_gather(dout, tp)\nreturns(total(contract(o, dfull,"),
        ("do = contract(dout, wo, over=hidden)", "do = contract(dfull, wo, over=hidden)"),
        ("returns(total(contract(n, dq,", "again = all_gather(n, tp)\nreturns(total(contract(again, dq,"),
        ("contract(n, dk,", "contract(again, dk,"),
        ("contract(n, dv,", "contract(again, dv,"),
        ("dn = byq + byk + byv", "dn = reduce_scatter(byq + byk + byv, tp, dim=tokens)"),
    ],
    "mlp_gpt": [
        ("u = contract(n, w1, over=hidden)", "full = all_gather(n, tp)\nu = contract(full, w1, over=hidden)"),
        (_MLP, f"reduce_scatter({_MLP}, tp, dim=tokens)"),
        ("total(total(dout, over=tokens), over=batch)", "all_reduce(total(total(dout, over=tokens), over=batch), tp)"),
        ("returns(total(contract(a, dout,", "dfull = all_gather(dout, tp)\nreturns(total(contract(a, dfull,"),
        ("contract(dout, w2, over=hidden)", "contract(dfull, w2, over=hidden)"),
        ("returns(total(contract(n, du,", "again = all_gather(n, tp)\nreturns(total(contract(again, du,"),
        ("dn = contract(du, w1, over=ffn)", "dn = reduce_scatter(contract(du, w1, over=ffn), tp, dim=tokens)"),
    ],
}


def text(name: str, plan: str = "") -> str:
    """The text of a block under a plan: "" on one device, "tp", or "sp" for both."""
    found = (FOLDER / f"{name}.step").read_text(encoding="utf-8")
    if not plan:
        return found
    split = dict(_SPLIT.get(name, {}))
    if plan == "sp":
        split |= dict.fromkeys(("x", "n", "dn", "dy", "mask"), "tokens")
    found = "\n".join(_declared(line, split) for line in found.splitlines() if not line.startswith("#")) + "\n"
    for old, new in {"tp": _TP, "sp": _SP}[plan].get(name, []):
        assert found.count(old) == 1, (name, plan, old)
        found = found.replace(old, new)
    return f"mesh(tp)\n{found}"


def _declared(line: str, split: dict[str, str]) -> str:
    name = line.removeprefix("tensor(").split(",")[0]
    return f"{line[:-1]}, tp={split[name]})" if line.startswith("tensor(") and name in split else line


@cache
def block(name: str, plan: str = "") -> Program:
    """A block under a plan."""
    return read(text(name, plan), source=f"{name}.step")


@cache
def of_torch(name: str) -> Program:
    """A block of a decoder on one device, as PyTorch runs it."""
    return read((files("placeproof") / "profiles" / "torch" / f"{name}.step").read_text(encoding="utf-8"), source=f"{name}.step")


def differs(program: Program, runs: int = 3) -> bool:
    """Whether a few runs in exact numbers on a small mesh differ from one device, or gradients from derivatives."""
    sizes = dict.fromkeys(("tokens", "keys", "hidden", "heads", "ffn"), 2) | {"batch": 1, "width": 1}
    for seed in range(1, 40):
        try:
            found = simulate(program, Setup(degrees={x.name: 2 for x in program.axes}, sizes=sizes, seed=seed))
        except NotComputedError:
            continue
        runs -= 1
        if found is not None or not runs:
            return found is not None
    raise AssertionError("too few runs could be computed")


def gpt_layer(torch: Any, x: Any, weights: dict[str, Any], heads: int, core: Any) -> Any:
    """A GPT layer of PyTorch, written out; ``core`` runs attention between queries, keys, values and its output.

    Dropout is what PyTorch runs on a GPU, whose mask has one byte an element.
    """
    functional = torch.nn.functional
    batch, tokens, hidden = x.shape
    apart = (batch, tokens, heads, hidden // heads)
    n = functional.layer_norm(x, (hidden,), weights["gain"], weights["bias"])
    q, k, v = (functional.linear(n, weights[w], weights[f"b{w}"]).view(apart).transpose(1, 2) for w in ("q", "k", "v"))
    o = core(q, k, v).transpose(1, 2).reshape(batch, tokens, hidden)
    x = x + torch.native_dropout(functional.linear(o, weights["o"], weights["bo"]), 0.1, True)[0]
    n = functional.layer_norm(x, (hidden,), weights["gain"], weights["bias"])
    u = functional.linear(n, weights["1"], weights["b1"])
    return x + torch.native_dropout(functional.linear(functional.gelu(u), weights["2"], weights["b2"]), 0.1, True)[0]


def gpt_weights(torch: Any, hidden: int, kind: Any) -> dict[str, Any]:
    """Random weights for it; both norms share theirs."""
    shapes = dict.fromkeys("qkvo", (hidden, hidden)) | {"1": (4 * hidden, hidden), "2": (hidden, 4 * hidden)}
    shapes |= {f"b{n}": shape[:1] for n, shape in shapes.items()} | {"gain": (hidden,), "bias": (hidden,)}
    return {n: torch.randn(shape, dtype=kind).requires_grad_() for n, shape in shapes.items()}
