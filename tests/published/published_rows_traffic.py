"""Published traffic of strategies and of layers, checked against step programs and lowered blocks."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

import sympy
from published import Check, Row, as_printed, shows
from published_rows import HALF, exact, floating, formula, model, same
from published_rows_states import GIGA, derived, states, volume

from placeproof.core.exchange import Exchange
from placeproof.core.symbols import symbol
from placeproof.cost.blocks.layer import layer
from placeproof.cost.closed import limit
from placeproof.cost.model import ModelDerivation
from placeproof.cost.model.traffic import Transfer
from placeproof.models import load
from placeproof.semantics.blocks import Plan, combined, context_parallel, lower_block, tensor_parallel

B, S, H, L, N, P = (symbol(n) for n in ("b", "s", "h", "L", "N", "P"))
ONE_BYTE = dict.fromkeys(HALF, 1)
STREAM = {"b": B, "s": S, "h": H, "t": N, "seq": S, "hidden": H, "N": S, "P": N}


def of_the_stream(d: ModelDerivation, stage: int = 0) -> list[Transfer]:
    """What a device sends of the activations of its layers."""
    return [sent for sent in d.costs[stage].sent if sent.about == "activations of `layers`"]


def elements(sent: list[Transfer], layers_of_a_stage: sympy.Expr) -> sympy.Expr:
    """Elements that are sent for a layer and a micro-batch."""
    return sum(one.total for one in sent).xreplace(ONE_BYTE) / layers_of_a_stage


# Step programs.


@shows("derived")
def check_recomputed(row: Row) -> bool:
    """Six all-reduces of b s h elements in a layer, in the limit of many devices."""
    found = limit(derived("tp * checkpoint").sent.xreplace(ONE_BYTE), "N") / (L * B)
    told = formula(row["formula"].partition(" (")[0], STREAM)
    return same(found, told) and same(found, row["value"] * S * H)


@shows("derived")
def check_partitioned(row: Row) -> bool:
    """What gathering the partitioned checkpoint adds, to what is sent without: to six digits."""
    without, with_it = (derived(name).sent for name in ("tp * checkpoint", "tp * zero_r"))
    return as_printed(exact(sympy.cancel((with_it - without) / without)), Decimal(str(row["value"])))


@shows("derived")
def check_to_the_host(row: Row) -> bool:
    """Each partition goes to the host and comes back."""
    d = derived("tp * zero_r(checkpoints=host)")
    return same(d.host_link / d.memory["host"], row["value"])


@shows("partly")
def check_after(row: Row) -> bool:
    """The checkpoints that a device keeps are divided by the degree; those before are as many as the note says."""
    whole, part = (derived(name).memory["activations"] for name in ("tp * checkpoint", "tp * zero_r"))
    (before,) = re.findall(r"(\d+)/", row["note"])
    return as_printed(exact(sympy.cancel(part / whole).subs(N, row["inputs"]["MP"])) * int(before), row["value"])


@shows("trivial")
def check_buffer(row: Row) -> bool:
    """All gradients in one buffer of fp32."""
    held = derived("ddp").memory["gradients"].subs({symbol("b_g"): 4, P: int(row["inputs"]["params"])})
    return exact(held) == row["value"] * GIGA


@shows("derived")
def check_zero_3(row: Row) -> bool:
    """Two gathers of the parameters and a reduce-scatter of the gradients, in the limit of many devices."""
    return len(row["inputs"]) == len(derived("zero3").messages.messages) and volume("zero3", 1) == Fraction(str(row["value"]))


@shows("derived")
def check_llama(row: Row) -> bool:
    """One gather and one reduce-scatter, as in ZeRO-2: parameters stay gathered after forward."""
    (told,) = re.findall(r"communication (\d)M", row["note"])
    return volume("fsdp(reshard_after_forward=false)", 1) == volume("zero2", 1) == int(told)


@shows("derived")
def check_two_matrices(row: Row) -> bool:
    """Bytes forward and backward of two matrices of D F elements in bf16, in the limit of many devices."""
    strategy = {"DP": "ddp", "FSDP": "fsdp"}[row["id"].rpartition("-")[2]]
    wide, inner = sympy.symbols("D F", positive=True)
    messages = derived(strategy).messages.messages
    forward = sum((m.total for m in messages if m.phase == "forward"), start=sympy.Integer(0))
    backward = derived(strategy).sent - forward
    told = [formula(side, {"D": wide, "F": inner}) for side in row["formula"].split(" + ")]
    found = [limit(expr.xreplace(HALF), "N").subs(P, 2 * wide * inner) for expr in (forward, backward)]
    return all(same(*pair) for pair in zip(found, told, strict=True))


@shows("derived")
def check_unit_test(row: Row) -> bool:
    """Experts' optimizer state lies in parts over the replicas of experts, all other over all replicas."""
    told = re.fullmatch(r"\((\d+)\+(\d+)\)\*\(6\+12/16\) \+ (\d+)\*\(6\+12/4\)", row["formula"])
    if told is None:
        return False
    dense, experts, inputs = int(told[1]) + int(told[2]), int(told[3]), row["inputs"]
    held = states("zero1", "megatron-bf16", P=dense, N=inputs["DP"]) + states("zero1", "megatron-bf16", P=experts, N=inputs["EDP"])
    return held == Fraction(str(row["value"]))


@shows("partly")
def check_time_of_replicas(row: Row) -> bool:
    """Twice as much is sent, so that time is proportional to the factor that is printed."""
    told = formula(row["formula"].rpartition(" ")[2], {"d": N})
    return same(sympy.cancel(derived("ddp").sent / told).diff(N), 0)


# Layers.


@shows("derived")
def check_messages(row: Row) -> bool:
    """Both ways between stages; with sequence parallelism a device sends its part of the tokens."""
    parts = row["id"].endswith("sg")
    d = model("tp * sp * pp" if parts else "pp")
    sent = [one for one in d.costs[1].sent if one.kind == "send"]
    told = formula(re.split(" per | with ", row["formula"])[0], {**STREAM, "t": symbol("N_tp")})
    return sorted(one.phase for one in sent) == ["backward", "forward"] and all(same(one.bytes.xreplace(ONE_BYTE), told) for one in sent)


@shows("derived")
def check_layer(row: Row) -> bool:
    """All-reduces of the stream; with a value, of the layers of a stage."""
    found = elements(of_the_stream(model("tp")), L)
    if row.get("value") is None:
        return same(found, formula(row["formula"].partition(" per ")[0], STREAM))
    inputs = row["inputs"]
    put = {STREAM[key]: inputs[key] for key in ("b", "s", "h", "t")}
    return floating(exact(found.subs(put)) * inputs["layers_per_stage"], row["value"])


@shows("derived")
def check_ulysses(row: Row) -> bool:
    """Elements forward, for a micro-batch of one sample, without the factor (P - 1) / P of an all-to-all."""
    sent = [one for one in of_the_stream(model("cp(attention=ulysses)")) if one.phase == "forward"]
    found = sum(one.size for one in sent).xreplace(ONE_BYTE).subs(B, 1)
    exchanged = elements(sent, L).subs(B, 1)
    if {one.kind for one in sent} != {"all_to_all"} or not same(exchanged, found * (N - 1) / N):
        return False
    if row.get("value") is None:
        return same(found, formula(row["formula"].partition(" per ")[0], STREAM))
    put = {STREAM[key]: value for key, value in row["inputs"].items()}
    noted = int(re.findall(r"= (\d+)", row["note"])[0])
    return floating(exact(found.subs(put)), row["value"]) and exact(exchanged.subs(put)) == noted


@shows("derived")
def check_gathers(row: Row) -> bool:
    """Elements forward, for a micro-batch of one sample: what a ring passes on in the limit of many devices."""
    sent = [one for one in of_the_stream(model("tp * sp")) if one.phase == "forward"]
    told = re.fullmatch(r"(.+) per link per layer \((\d) all-gather \+ (\d) reduce-scatter of Nh\)", row["formula"])
    kinds = [one.kind for one in sent]
    if told is None or [kinds.count("all_gather"), kinds.count("reduce_scatter")] != [int(told[2]), int(told[3])]:
        return False
    return same(sympy.limit(elements(sent, L).subs(B, 1), N, sympy.oo), formula(told[1], STREAM))


def exchanges_of(block: str, plan: Plan) -> tuple[Exchange, ...]:
    """What one block of a llama sends of activations, an element a byte."""
    blocks = {b.name: b.program for part in load("llama").segments for b in part.blocks}
    sizes = {"batch": B, "tokens": S, "keys": S, "hidden": H, "kv_heads": symbol("a_kv"), "group": symbol("a") / symbol("a_kv")}
    every = {**sizes, "width": symbol("d"), "ffn": symbol("f")}
    found = layer([lower_block(blocks[block], plan)]).exchanges(every, dict.fromkeys(("tp", "cp"), N), 1)
    return tuple(one for one in found if sympy.sympify(one.bytes).has(S))


@shows("derived")
def check_keys_and_values(row: Row) -> bool:
    """Keys and values are gathered, and their gradients scattered; with fewer heads of them it is less."""
    told = re.match(r"(\S+) of KV across the CP group in forward, (\S+) of dKV in backward", row["formula"])
    sent = exchanges_of("attention_flash", context_parallel("cp"))
    one = B * S * symbol("a_kv") * symbol("d")
    found = {(e.kind.replace("_", "-"), e.phase) for e in sent}
    gathered_again = {("all-gather", "backward")}  # of what is kept in parts
    if told is None or not all(same(e.bytes, one) for e in sent):
        return False
    return found - gathered_again == {(told[1], "forward"), (told[2], "backward")} and "GQA/MQA shrink it" in row["formula"]


@shows("derived")
def check_four(row: Row) -> bool:
    """A feed-forward block, whose input is gathered and whose output is scattered, forward and backward: bytes in bf16."""
    plan = combined(tensor_parallel("tp", sequence=True), regather=False)
    sent = exchanges_of("swiglu", plan)
    told = re.search(r"all-gather (\S+) \+ reduce-scatter (\S+); bwd same", row["formula"])
    if told is None:
        return False
    names = {"B": B * S, "D": H}
    amounts = {"all_gather": formula(told[1], names), "reduce_scatter": formula(told[2], names)}
    pairs = sorted((e.kind, e.phase) for e in sent)
    return pairs == sorted((k, ph) for k in amounts for ph in ("forward", "backward")) and all(
        same(2 * e.bytes, amounts[e.kind]) for e in sent
    )


CHECKS: dict[str, Check] = {
    "zero-megatron-comm-per-block": check_recomputed,
    "zero-Pa-comm-overhead": check_partitioned,
    "zero-Pa-cpu-extra": check_to_the_host,
    "zero-Pa-100B-after": check_after,
    "zero-CB-3B": check_buffer,
    "zeropp-ZeRO": check_zero_3,
    "llama3-fsdp": check_llama,
    "jax-train-comm-DP": check_two_matrices,
    "jax-train-comm-FSDP": check_two_matrices,
    "jax-train-comm-check-MP": check_four,
    "megatron-ut-ep": check_unit_test,
    "nar-dp": check_time_of_replicas,
    "nar-p2p": check_messages,
    "nar-p2p-sg": check_messages,
    "nar-tp": check_layer,
    "nar-tp-gpt3": check_layer,
    "ulysses": check_ulysses,
    "ulysses-P8": check_ulysses,
    "megatron-sp-link": check_gathers,
    "cp-megatron": check_keys_and_values,
}
#: Rows that hold with a difference or in a limit that their checks state.
WITH_A_DIFFERENCE = {
    "zero-Pa-100B-after": "33 GB before are the paper's; with 2 bytes an element they are twice as many",
    "zero-megatron-comm-per-block": "in the limit of many devices",
    "zeropp-ZeRO": "in the limit of many devices",
    "llama3-fsdp": "in the limit of many devices",
    "jax-train-comm-check-MP": "where what forward gathers is kept",
    "jax-train-comm-DP": "in the limit of many devices",
    "jax-train-comm-FSDP": "in the limit of many devices",
    "ulysses": "without the factor (P - 1) / P",
    "ulysses-P8": "without the factor (P - 1) / P; with it, what the row notes",
    "megatron-sp-link": "in the limit of many devices",
    "cp-megatron": "what is gathered is gathered once more in backward",
}
