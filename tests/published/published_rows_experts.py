"""Published figures on mixtures of experts: how costs scale with each kind of parallelism, and the tokens that experts get."""

from __future__ import annotations

import re
from functools import lru_cache

import sympy
from published import Check, Row, shows
from published_rows import formula, layers, model, most_kept, same

import placeproof
from placeproof.core.symbols import symbol
from placeproof.cost.blocks.layer import layer
from placeproof.cost.model import ModelDerivation, derive_model
from placeproof.models import load
from placeproof.semantics.blocks import Plan, PlanAxis, lower_block

B, S, H, N = (symbol(n) for n in ("b", "s", "h", "N"))
INNER = symbol("f_e")
SCALED = re.compile(
    r"act ~?(?P<act>\S+)(?: \((?P<how>.*?)\))?; weights (?P<weights>\S+)(?P<where> in MoE layer)?; optim (?P<optim>\S+?)(?: .*)?;"
)


@lru_cache(maxsize=8)
def under(kind: str) -> ModelDerivation:
    """Mixtral under one kind of parallelism; with data and context parallelism the optimizer's state lies in parts."""
    known = {"TP": "tp * sp", "EP": "ep", "PP": "pp", "DP": "zero1", "": "ddp"}
    if kind in known:
        return model(known[kind], "none", "mixtral")
    own = placeproof.define(
        "cp_zero1",
        title="context parallelism whose devices share the optimizer's state",
        summary="Tokens are split, and so is the optimizer's state.",
        axes={"cp": {"splits": "sequence"}},
        placement={"cp": {"activations": "S", "optimizer": "S"}},
        schedule={"attention": "ring"},
    )
    return derive_model(load("mixtral"), own())


def activations(d: ModelDerivation) -> sympy.Expr:
    """What a device keeps of its layers, of as many micro-batches as are in flight, each expert getting the same number of tokens."""
    part, times = layers(d), next(times for p, times in d.costs[0].stage.held if p.name == "layers")
    flight = d.costs[0].in_flight.subs(symbol("m"), 2 * N).subs(sympy.Min(N, 2 * N), N)
    return (flight * times * sum(row.bytes for row in part.bytes(part.kept, d.at))).subs(symbol("c"), 1)


def matrices(expr: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr]:
    """Of parameters, or of bytes of them: those of experts, and those of attention."""
    expanded = sympy.expand(expr)
    return expanded.coeff(INNER, 1), expanded.coeff(H, 2)


@shows("derived")
def check_scaling(row: Row) -> bool:
    """Shares of what one device has alone: of activations, of the weights of experts and attention, and of their optimizer state."""
    told = SCALED.match(row["formula"])
    if told is None:
        return False
    alone, d = under(""), under(row["inputs"]["strategy"])
    act, weights, optim = (formula(told[key], {"N": N}) for key in ("act", "weights", "optim"))
    chosen = slice(0, 1) if told["where"] else slice(0, 2)  # attention is copied to the devices of experts
    pairs = [(sum(c.costs[0].parameters.values()), c.costs[0].states["optimizer"]) for c in (d, alone)]
    for share, mine, whole in zip((weights, optim), *pairs, strict=True):
        if not all(same(x, share * y) for x, y in list(zip(matrices(mine), matrices(whole), strict=True))[chosen]):
            return False
    return same(activations(d), act * activations(alone)) and (told["how"] != ">1 with VPP" or more_in_chunks())


def more_in_chunks() -> bool:
    """Whether interleaving keeps more than the whole model's layers for a micro-batch."""
    return all(most_kept("interleaved", p, 4 * p, v) > p * v for p in (2, 4) for v in (2, 3))


@shows("derived")
def check_routed(row: Row) -> bool:
    """Rows that the experts of a device get. Of TP devices with parts of the tokens ETP share an expert, and TP/ETP have different ones;
    those of EP have other samples."""
    whole, apart, replicas = sympy.symbols("ETP apart EP", positive=True)
    shared = PlanAxis("tp", None, weights=("expert_ffn",), positions=("tokens",))
    others = PlanAxis("tx", None, weights=("experts",), positions=("tokens",), moves={"tokens": ("experts",)}, whole=("wr",))
    ranks = PlanAxis("ep", None, weights=("experts",), positions=("batch",), moves={"batch": ("experts",)}, whole=("wr",))
    block = next(b.program for part in load("mixtral").segments for b in part.blocks if b.name == "moe")
    found = layer([lower_block(block, Plan((ranks, others, shared)))])
    sizes = {"batch": B * replicas, "tokens": S, "hidden": H, "experts": symbol("E"), "choices": symbol("k"), "expert_ffn": INNER}
    degrees = {"tp": whole, "tx": apart, "ep": replicas}
    wide = next(one.elements for one in found.rows(found.kept(), sizes, degrees, 1) if one.stored.name == "g")
    told = row["formula"].partition(" = ")[2].partition(";")[0]
    names = {"topk": symbol("k"), "s": S, "b": B, "ETP": whole, "TP": whole * apart, "EP": replicas}
    return same(wide / (INNER / whole), formula(told, names))


CHECKS: dict[str, Check] = {"mcore-moe-table-": check_scaling, "moe-megatron-tokens": check_routed}
#: Rows that hold with a difference or in a limit that their checks state.
WITH_A_DIFFERENCE = {
    "mcore-moe-table-": "of the matrices of attention and of experts; how much is sent is said in words, which are not compared"
}
