"""Published counts of floating-point operations, and times and ratios that follow from them, checked against the blocks' programs."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import sympy
from published import Check, Row, as_printed, shows
from published_rows import (
    FIGURES,
    HALF,
    exact,
    floating,
    formula,
    kept,
    layers,
    leading,
    linear,
    model,
    parameters_of_a_layer,
    same,
    work,
)
from published_rows_states import derived

from placeproof.core.precision import PRECISIONS
from placeproof.core.symbols import symbol
from placeproof.cost.blocks.flops import Work, operations
from placeproof.cost.blocks.recompute import between
from placeproof.cost.model import derive_model
from placeproof.cost.model.time import ModelTime, utilisation
from placeproof.models import load
from placeproof.strategies import parse_strategy

B, S, H, L, V, N = (symbol(n) for n in ("b", "s", "h", "L", "V", "N"))
NAMES = {"b": B, "B": B, "s": S, "h": H, "L": L, "l": L, "v": V, "V": V, "bsz": B, "seq": S, "hd": H, "nl": L}
PEAK, BANDWIDTH = sympy.symbols("peak bandwidth", positive=True)


def iteration(recompute: str = "none") -> Work:
    """Of all layers and the head."""
    return model("ddp", recompute).costs[0].flops


@shows("derived")
def check_pass(row: Row) -> bool:
    """Table 1 of qi2024zero: F, gradients by inputs (B), gradients by weights (W)."""
    kind = {"F": "forward", "B": "inputs", "W": "weights"}[row["id"].split("-")[2]]
    return same(getattr(work(), kind), formula(row["formula"], NAMES)) and same(work().backward, 2 * work().forward)


@shows("derived")
def check_layer(row: Row) -> bool:
    """A layer's forward and that of the logits; an iteration computes three times as much."""
    one, _, rest = row["formula"].partition(" per layer forward; ")
    logits, _, times = rest.partition(" logits; x")
    head = iteration().forward - L * work().forward
    told = formula(one, NAMES), formula(logits, NAMES)
    return same(work().forward, told[0]) and same(head, told[1]) and same(iteration().model, int(times[0]) * iteration().forward)


@shows("derived")
def check_iteration(row: Row) -> bool:
    """With all layers computed again; with a value, for the sizes of the row of parameters."""
    done = iteration("full").total
    if row.get("value") is None:
        return same(done, formula(row["formula"], NAMES))
    inputs = {**FIGURES[row["id"].replace("-flops", "-params")]["inputs"], **row["inputs"]}
    put = {B: inputs["batch"], S: inputs["seq"], H: inputs["hidden"], L: inputs["layers"], V: inputs["vocab"]}
    return floating(exact(done.subs(put)), row["value"])


@shows("derived")
def check_leading(row: Row) -> bool:
    """Without attention's products, which are quadratic in the sequence, and without the logits."""
    return same(L * linear(work("full").total, "s"), formula(row["formula"], NAMES))


@shows("derived")
def check_utilisation(row: Row) -> bool:
    """Of the model on its mesh, stage by stage."""
    inputs, at = row["inputs"], FIGURES[f"korth-t3-{row['inputs']['model']}"]["inputs"]
    strategy = f"tp({at['tp']}) * sp * pp({at['pp']})"
    d = derive_model(load(f"korthikanti-{inputs['model'].lower()}"), parse_strategy(strategy), recompute="selective")
    seconds, peak = (Fraction(str(inputs[key])) for key in ("iter_s", "peak"))
    values = {**PRECISIONS["mixed-adam"].values(), "b_a": Fraction(2), "b": Fraction(1), "m": Fraction(at["global_batch"])}
    share, _ = utilisation(d, values, seconds, peak)
    return as_printed(100 * share, row["value"])


@lru_cache(maxsize=1)
def selective() -> Work:
    """A layer whose attention is run to its end once more: from queries, keys and values to its output."""
    d = model("ddp")
    block = next(b.program for b in layers(d).blocks if b.name == "attention_gpt")
    again = [f"attention_gpt.{name}" for name in between(block, ("q", "k", "v"), ("o",))]
    return layers(d).plain.recomputed(*again, rerun=["attention_gpt.o"]).flops(d.at.sizes, {})


@shows("derived")
def check_again(row: Row) -> bool:
    share = sympy.cancel(selective().again / selective().forward).subs({S: row["inputs"]["s"], H: row["inputs"]["h"]})
    return as_printed(100 * exact(share), Decimal(row["value"]))


def for_a_token(recompute: str, name: str = "gpt") -> sympy.Expr:
    """Operations for each token and parameter in the leading term."""
    return sympy.cancel(linear(work(recompute, name).total, "s") / (B * S * leading(parameters_of_a_layer(name), "h")))


@shows("derived")
def check_days(row: Row) -> bool:
    """A step's seconds at X operations a second, over its tokens: of n devices that split the layers, when all is computed again."""
    names = {n: sympy.Symbol(n) for n in "TPnX"}
    stage = ModelTime(d=model("tp", "full"), overlap="none").stages[0]
    step = leading(linear(stage.forward + stage.inputs + stage.weights, "s"), "h") / (B * S)
    told = step.xreplace({symbol("F_peak"): names["X"] / symbol("eta"), N: names["n"]}) * names["T"]
    found = sympy.cancel(told / leading(L * parameters_of_a_layer(), "h")) * names["P"]
    if row.get("value") is None:
        return same(found, formula(row["formula"], names))
    at = {names[n]: sympy.Rational(str(value)) for n, value in row["inputs"].items()}
    return as_printed(exact(found.subs(at)) / (24 * 60 * 60), row["value"])


@shows("partly")
def check_tokens(row: Row) -> bool:
    inputs = {key: Fraction(str(value)) for key, value in row["inputs"].items()}
    return exact(for_a_token("none", "llama")) * inputs["P"] * inputs["T"] == Fraction(str(row["value"]))


# Arithmetic intensity, and ratios of times.


@lru_cache(maxsize=8)
def moved(what: str) -> sympy.Expr:
    """Bytes that ZeRO-Infinity moves of a layer in a step (rajbhandari2021infinity, section 4.1).

    Parameters and gradients in 16 bits as they cross the links of all hosts, and parameters once more: the paper fetches them for what is
    computed again and for backward, and the program once for both. The optimizer's state, of which fp32 gradients are a part there, there
    and back; checkpoints, there and back, of ci layers each.
    """
    count = leading(parameters_of_a_layer(), "h")
    if what == "params":
        host = derived("zero_infinity * checkpoint").host_link * N + symbol("P") * symbol("b_theta")
        return host.xreplace(HALF).subs(symbol("P"), count)
    if what == "optim":
        width = PRECISIONS["fp16-fp32grad"]
        return 2 * (width.total - 2 - 2) * count
    return 2 * kept("ddp", "full") / sympy.Symbol("ci")


def intensity(what: str) -> sympy.Expr:
    return linear(work("full").total, "s") / moved(what)


@shows("partly", but=("derived", "zinf-AIT-params"))
def check_intensity(row: Row) -> bool:
    return same(intensity(row["id"].rpartition("-")[2]), formula(row["formula"], {**NAMES, "ci": sympy.Symbol("ci")}))


@shows("partly")
def check_efficiency(row: Row) -> bool:
    """The share of computing where nothing overlaps."""
    computing, moving = linear(work("full").total, "s") / PEAK, moved("params") / BANDWIDTH
    names = {"ait": intensity("params"), "bw": BANDWIDTH, "peak_tp": PEAK}
    return same(computing / (computing + moving), formula(row["formula"], names))


RATIO = {"peak_flops": PEAK, "peak_bw": BANDWIDTH, "seq": S, "mbs": B, "h": H, "DP": N, "TP": N, "L_next": L}


@shows("derived")
def check_gather(row: Row) -> bool:
    """A gather of parameters over the forward that it is for, a byte an element."""
    gather = next(m for m in derived("fsdp").messages.messages if m.state == "parameters" and m.phase == "forward")
    sent = gather.total.xreplace({symbol("b_theta"): 1})
    forward = linear(work().forward, "s") / leading(parameters_of_a_layer(), "h") * symbol("P")
    return same(sent / BANDWIDTH / (forward / PEAK), formula(row["formula"], RATIO))


@shows("derived")
def check_linear(row: Row) -> bool:
    """A gather of the stream over one of the products of an h x h matrix that attention has, a byte an element."""
    d = model("tp * sp")
    part = layers(d)
    (sent,) = {s.bytes for s in d.costs[0].sent if s.kind == "all_gather" and s.phase == "forward" and s.about.endswith("`layers`")}
    products = [o.steps(d.at.sizes, d.at.degrees) for o in operations(part.layer.program) if o.product and o.during == "forward"]
    square = 2 * B * S * H**2 / N
    found = [one for one in products if same(one, square)]
    ratio: Any = sent.xreplace({**HALF, symbol("b_a"): 1}) / BANDWIDTH / (found[0] / PEAK)
    return len(found) == 4 and same(ratio, formula(row["formula"], RATIO))


@shows("derived")
def check_stage(row: Row) -> bool:
    """A message to a stage over the forward of its layers, a byte an element."""
    d = model("pp", "none", "llama")
    (sent,) = {s.bytes for s in d.costs[0].sent if s.kind == "send"}
    forward = linear(work("none", "llama").forward, "s") * L
    return same(sent.xreplace({symbol("b_a"): 1}) / BANDWIDTH / (forward / PEAK), formula(row["formula"], RATIO))


CHECKS: dict[str, Check] = {
    "zb-t1-F-flops": check_pass,
    "zb-t1-B-flops": check_pass,
    "zb-t1-W-flops": check_pass,
    "korth-layer-flops": check_layer,
    "nar-flops": check_iteration,
    **{f"nar-t1-{size}B-flops": check_iteration for size in ("1.7", "7.5", "39.1", "145.6", "529.6")},
    "zinf-flops": check_leading,
    "korth-t5-MFU-175B": check_utilisation,
    "korth-sel-flops-": check_again,
    "nar-time-est": check_days,
    "nar-days-": check_days,
    "jax-70B-flops": check_tokens,
    "zinf-AIT-": check_intensity,
    "zinf-efficiency": check_efficiency,
    "playbook-zero3-ratio": check_gather,
    "playbook-tp-ratio": check_linear,
    "playbook-pp-ratio": check_stage,
}
#: Rows that hold with a difference or in a limit that their checks state.
WITH_A_DIFFERENCE = {
    "zinf-flops": "attention's products and the logits are left out",
    "zinf-AIT-params": "attention's products and the logits are left out; parameters are fetched for what is computed again, too",
    "zinf-AIT-optim": "attention's products and the logits are left out",
    "zinf-AIT-act": "attention's products and the logits are left out",
    "zinf-efficiency": "attention's products and the logits are left out",
    "nar-time-est": "the leading term: attention's products and the logits are left out",
    "nar-days-gpt3": "the leading term: attention's products and the logits are left out",
    "nar-days-1T": "the leading term: attention's products and the logits are left out",
    "jax-70B-flops": "the leading term: attention's products are left out",
    "playbook-zero3-ratio": "attention's products are left out, and a byte is taken for an element",
    "playbook-tp-ratio": "a byte is taken for an element",
    "playbook-pp-ratio": "attention's products are left out, and a byte is taken for an element",
}
