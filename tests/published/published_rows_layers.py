"""Published activations of layers and models, checked against what the blocks' backward reads of their forward."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

import sympy
from published import Check, Row, as_printed, shows
from published_rows import FIGURES, HALF, exact, floating, formula, kept, layers, model, most_kept, same

from placeproof.core.exchange import Exchange
from placeproof.core.symbols import symbol
from placeproof.cost.blocks.layer import layer
from placeproof.cost.blocks.recompute import made_in_forward
from placeproof.cost.model import derive_model
from placeproof.cost.model.derivation import WIDTHS
from placeproof.models import load
from placeproof.semantics.blocks import combined, lower_block, tensor_parallel
from placeproof.strategies import parse_strategy

B, S, H, A, L, V, N = (symbol(n) for n in ("b", "s", "h", "a", "L", "V", "N"))
NAMES = {"b": B, "s": S, "h": H, "a": A, "t": N, "L": L, "v": V, "bs": B, "seq": S, "n_heads": A, "bsz": B, "hd": H, "nl": L}
GIB = 2**30
#: Table 2 of korthikanti2022activations: the strategy, and what is computed again.
TABLE_2 = {
    "none": ("ddp", "none"),
    "tp": ("tp", "none"),
    "tp_sp": ("tp * sp", "none"),
    "tp_selective": ("tp", "selective"),
    "tp_sp_selective": ("tp * sp", "selective"),
    "full": ("tp", "full"),
}


def at(expr: sympy.Expr, inputs: Row) -> Fraction:
    """The number that a formula has for a row's inputs."""
    return exact(expr.subs({NAMES[key]: value for key, value in inputs.items() if key in NAMES and value is not None}))


@shows("derived")
def check_table_2(row: Row) -> bool:
    name, _, size = row["id"].removeprefix("korth-t2-").partition("-")
    found = kept(*TABLE_2[name])
    return floating(at(found, row["inputs"]), row["value"]) if size else same(found, formula(row["formula"], NAMES))


@shows("derived")
def check_figure_7(row: Row) -> bool:
    """Points of a plot, and the closed form that the row notes, to its digits."""
    kind = {"seq": "tp_sp", "sel": "tp_selective", "seqsel": "tp_sp_selective", "full": "full"}[row["id"].split("-")[2]]
    inputs = FIGURES[f"korth-t2-none-{row['inputs']['model']}"]["inputs"]
    share = 100 * at(kept(*TABLE_2[kind]), inputs) / at(kept("tp"), inputs)
    (noted,), (points,) = re.findall(r"form ([\d.]+)%", row["note"]), re.findall(r"within ([\d.]+) points", row["check"])
    return as_printed(share, Decimal(noted)) and as_printed(abs(share - Fraction(row["value"])), Decimal(points))


@shows("derived")
def check_figure_1(row: Row) -> bool:
    """A device of the first stage keeps more than the model's layers over the stages, by what the schedule has in flight."""
    inputs = {**row["inputs"], "a": FIGURES[f"korth-t2-none-{row['id'].rpartition('-')[2]}"]["inputs"]["a"]}
    found = kept(*TABLE_2["tp" if "baseline" in row["id"] else "tp_sp_selective"])
    stages, chunks = inputs["p"], inputs["interleave"] or 1
    flight = most_kept("interleaved" if chunks > 1 else "1f1b", stages, 8 * stages, chunks) / (stages * chunks)
    return at(found * L, inputs) * flight / GIB == Fraction(row["value"])


@shows("derived")
def check_scores(row: Row) -> bool:
    """What has an element for each query and key, in units of s b h."""
    return at((kept("ddp") - kept("ddp", "selective")) / (S * B * H), {"s": 1, "b": 1, **row["inputs"]}) == row["value"]


@shows("derived")
def check_saved(row: Row) -> bool:
    inputs = FIGURES[row["id"].replace("sel-save", "5as-h")]["inputs"]
    share = (kept("ddp") - kept("ddp", "selective")) / kept("ddp")
    return as_printed(100 * at(sympy.cancel(share), inputs), row["value"])


@shows("derived")
def check_full(row: Row) -> bool:
    return same(kept("tp", "full") * L, formula(row["formula"].partition(" (")[0], NAMES))


@shows("derived")
def check_ends(row: Row) -> bool:
    """The mask of dropout behind the embedding, for p micro-batches; with one stage, what the last norm and the head keep, logits in fp32.

    Indices of tokens, and single numbers, are left out as in the paper.
    """
    before, _, after = row["formula"].partition(" (embedding dropout) ; p=1 adds ")
    d = derive_model(load("gpt"), parse_strategy("tp * sp * pp"), widths={**WIDTHS, "head_tied.p": 4})
    first, last = d.costs[0], d.costs[-1]
    names = {**NAMES, "t": symbol("N_tp"), "p": symbol("N_pp")}
    masks = sum(held.bytes for held in first.held if held.part == "before" and held.row.stored.name == "mask")
    flight = first.in_flight.subs(symbol("m"), 8 * symbol("N_pp")).subs(sympy.Min(symbol("N_pp"), 8 * symbol("N_pp")), symbol("N_pp"))
    ends = sum(held.bytes for held in last.held if held.part == "after" and held.row.stored.picks is None and held.row.stored.dims)
    return same(masks * flight, formula(before, names)) and same(ends.xreplace(HALF), formula(after, names))


@lru_cache(maxsize=2)
def exchanged(*, sequence: bool) -> tuple[Exchange, ...]:
    """Collectives of the stream in a layer, what is gathered in forward being kept."""
    plan = combined(tensor_parallel("tp", sequence=sequence), regather=False)
    part = layers(model("ddp"))
    found = layer([lower_block(block.program, plan) for block in part.blocks])
    sent = found.exchanges(model("ddp").at.sizes, {"tp": N}, 1)
    return tuple(one for one in sent if sympy.sympify(one.bytes).has(S))


@shows("derived")
def check_collectives(row: Row) -> bool:
    """As many bytes with both, when all-reduces become as many gathers and scatters."""
    reduces, gathers, scatters = map(int, re.findall(r"(\d+) (?:all|reduce)-", row["formula"]))
    told = {"all_reduce": reduces}, {"all_gather": gathers, "reduce_scatter": scatters}
    found = [exchanged(sequence=sequence) for sequence in (False, True)]
    counts = [{kind: sum(one.kind == kind for one in each) for kind in dict.fromkeys(one.kind for one in each)} for each in found]
    amounts = [sum((2 if one.kind == "all_reduce" else 1) * one.bytes for one in each) for each in found]
    return counts == list(told) and same(amounts[0] - amounts[1], row["value"] * B * S * H)


@shows("derived")
def check_zero_bubble(row: Row) -> bool:
    if row["id"] == "zb-t1-B-mem":
        return same(kept("ddp"), formula(row["formula"], NAMES))
    d = model("ddp")
    part = layers(d)
    late = sum(one.bytes for one in part.bytes(part.layer.kept_for_weights(), d.at))
    return same(late.xreplace(HALF), formula(row["formula"], NAMES))


@shows("derived")
def check_playbook(row: Row) -> bool:
    return same(L * kept("ddp"), formula(row["formula"], NAMES))


@lru_cache(maxsize=4)
def several(number: int) -> tuple[sympy.Expr, sympy.Expr]:
    """Bytes that so many layers keep when all of them is computed again, masks drawn again from their key, and when nothing is."""
    d = model("ddp")
    chain = layer([block.program for block in layers(d).blocks] * number)
    drawn = sorted({f"{o.block}.{o.name}" for o in chain.origins.values() if o.name in ("mask", "drop")})
    return chain.full().kept_bytes(d.at.sizes, {}, 2, regenerated=drawn), chain.kept_bytes(d.at.sizes, {}, 2, WIDTHS)


@shows("derived")
def check_interval(row: Row) -> bool:
    """Where ci layers lie between checkpoints, what all of them keep is their input."""
    between = sympy.Symbol("ci")
    told = formula(row["formula"], {**NAMES, "ci": between})
    return all(same(several(number)[0] * L / number, told.subs(between, number)) for number in (1, 2, 3))


@shows("partly")
def check_checkpoints(row: Row) -> bool:
    """With c checkpoints, each of l/c layers, a device has their inputs and what one of these groups keeps: its input, which is one of
    them, is counted twice in print. The best c is the same."""
    c, number, inputs, inside = sympy.symbols("c l A_input A_intermediate", positive=True)
    one, whole = several(1)
    if not all(same(several(n)[0], one) and same(several(n)[1], n * whole) for n in (2, 3)):
        return False
    told, _, best = row["formula"].partition(" ; minimum at c=sqrt(")
    names = {"A_input": inputs, "A_intermediate": inside, "c": c, "l": number}
    found = (c - 1) * inputs + number / c * inside
    (least,) = sympy.solve(sympy.diff(found, c), c)
    return same(found + inputs, formula(told, names)) and same(least**2, formula(best.removesuffix(")"), names))


@shows("derived")
def check_largest(row: Row) -> bool:
    """The largest weight of a layer, and its gradient, both in 2 bytes."""
    d = model("ddp")
    part = layers(d)
    elements = [one.elements for one in part.bytes(tuple(weight for _, weight in part.weights), d.at)]
    most = max(elements, key=lambda one: sympy.sympify(one).subs({H: 64, A: 4}))
    told = [formula(side, NAMES) for side in row["formula"].split(" = ")]
    return all(same(most * (2 + 2), side) for side in told)


@shows("derived")
def check_llama(row: Row) -> bool:
    """What a layer that is computed again keeps, of one and of all layers; and of logits a number in fp32 for each."""
    values = {symbol(key): row["inputs"][key] for key in "sbhL"} | {V: row["inputs"]["v"]} | HALF
    name = row["id"].removeprefix("mleng-llama8b-")
    if name == "logits":
        logits = next(held.row.elements for held in model("ddp", "none", "llama3-8b").costs[0].held if held.row.stored.name == "p")
        return as_printed(exact(4 * sympy.sympify(logits).subs(values)) / GIB, row["value"])
    d = model("ddp", "full", "llama3-8b")
    stream = sum(one.bytes for one in layers(d).bytes(layers(d).kept, d.at)).subs(values)
    return exact(stream * (row["inputs"]["L"] if name == "ckpt" else 1)) / GIB == row["value"]


@shows("derived")
def check_products(row: Row) -> bool:
    """Of each layer its input and both products of its feed-forward block are kept, and everything else is computed again."""
    d = model("ddp", "none", "llama")
    part = layers(d)
    made = {f"{o.block}.{o.name}" for o in map(part.plain.origin, made_in_forward(part.plain.program))}
    again = part.plain.recomputed(*sorted(made - {"swiglu.g", "swiglu.u"}))
    dims = {**d.at.sizes, "ffn": symbol("f")}
    found = L * again.kept_bytes(dims, {}, 2)
    names = {"L": L, "B": B * S, "D": H, "F": symbol("f")}
    inputs = {key: sympy.Rational(str(value)) for key, value in row["inputs"].items()}
    put = {L: inputs["L"], B: inputs["B"], S: 1, symbol("f"): inputs["F_over_D"] * inputs["D"], H: inputs["D"]}
    return same(found, formula(row["formula"], names)) and as_printed(exact(found.subs(put)) / 10**12, row["value"])


CHECKS: dict[str, Check] = {
    "jax-13B-act": check_products,
    "korth-t2-": check_table_2,
    "korth-fig7-": check_figure_7,
    "korth-fig1-act-": check_figure_1,
    "korth-5as-h-": check_scores,
    "korth-sel-save-": check_saved,
    "korth-full-tp": check_full,
    "korth-embed": check_ends,
    "korth-tp-vs-sp-comm": check_collectives,
    "zb-t1-B-mem": check_zero_bubble,
    "zb-t1-W-mem": check_zero_bubble,
    "playbook-act": check_playbook,
    "zinf-actckpt": check_interval,
    "zinf-MSWM": check_largest,
    "nar-ckpt": check_checkpoints,
    "mleng-llama8b-hidden": check_llama,
    "mleng-llama8b-ckpt": check_llama,
    "mleng-llama8b-logits": check_llama,
}
#: Rows that hold with a difference or in a limit that their checks state.
WITH_A_DIFFERENCE = {
    "korth-embed": "indices of tokens, and single numbers, are left out",
    "korth-tp-vs-sp-comm": "where what forward gathers is kept; otherwise there is a gather more for each block, as the row notes",
    "nar-ckpt": "the input of the layers that are run is counted twice, as a checkpoint and as theirs",
}
