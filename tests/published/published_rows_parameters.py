"""Published counts of parameters and configurations, checked against models that are counted from the headers of their blocks."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import prod

from published import Check, Row, as_printed, shows
from published_rows import FIGURES, exact, formula, leading, parameters_of_a_layer, same
from published_rows_states import GIGA, derived, states

from placeproof.core.precision import PRECISIONS
from placeproof.core.symbols import symbol
from placeproof.cost.derive import evaluate
from placeproof.models import Model, load
from placeproof.strategies import parse_strategy

H, L, V, S = (symbol(n) for n in ("h", "L", "V", "s"))
NAMES = {"l": L, "L": L, "nl": L, "h": H, "hd": H, "V": V, "v": V, "s": S}


def sizes(model: Model, said: Row) -> bool:
    """Whether a preset has the sizes of a row."""
    printed = {"L": "layers", "h": "hidden", "a": "heads", "V": "vocab", "s": "seq"}
    return all(model.sizes[name] == said[key] for name, key in printed.items())


def devices(strategy: str) -> int:
    """The devices of a strategy's mesh."""
    degrees = [axis.degree for axis in parse_strategy(strategy).axes]
    assert all(isinstance(degree, int) for degree in degrees)
    return prod(degree for degree in degrees if degree is not None)


@shows("derived")
def check_equation_2(row: Row) -> bool:
    """All parameters without the gain and the bias of the last norm. Of table 1, all of them, to the digits that are printed."""
    if row.get("value") is None:
        return same(load("gpt").parameters().total - 2 * H, formula(row["formula"], NAMES))
    model = load(row["id"].removesuffix("-params").replace("nar-t1-", "narayanan-").lower())
    return sizes(model, row["inputs"]) and as_printed(Fraction(int(model.parameters().total), GIGA), row["value"])


@shows("derived")
def check_playbook(row: Row) -> bool:
    """All parameters without those of the norm behind the embedding, which only this family has."""
    model = load("bloom")
    behind = model.per_segment()["before"].groups["norm"]
    return same(model.parameters().total - behind, formula(row["formula"], NAMES))


@shows("derived")
def check_leading(row: Row) -> bool:
    return same(L * leading(parameters_of_a_layer(), "h"), formula(row["formula"], NAMES))


@shows("derived")
def check_model_states(row: Row) -> bool:
    """Of 12 L h^2 parameters. What secondary sources print is another precision."""
    told = formula(row["formula"].partition(" bytes")[0], NAMES)
    return same(states("ddp", "fp16-fp32grad", P=1).numerator * L * leading(parameters_of_a_layer(), "h"), told)


@shows("derived")
def check_figure_1(row: Row) -> bool:
    """Of 12 L h^2 parameters, over stages and tensor parallelism."""
    inputs = row["inputs"]
    count = exact((L * leading(parameters_of_a_layer(), "h")).subs({L: inputs["L"], H: inputs["h"]}))
    held = states(f"tp({inputs['t']}) * pp({inputs['p']})", "megatron-bf16", P=count)
    return held / 2**30 == Fraction(row["value"])


@shows("trivial")
def check_table_3(row: Row) -> bool:
    """The preset has the sizes, and the degrees make the devices."""
    said = row["inputs"]
    model = load(f"korthikanti-{row['id'].rpartition('-')[2].lower()}")
    return sizes(model, said) and devices(f"tp({said['tp']}) * pp({said['pp']})") == said["gpus"]


@shows("trivial")
def check_table_4(row: Row) -> bool:
    said = row["inputs"]
    mesh = f"fsdp({said['DP']}) * tp({said['TP']}) * cp({said['CP']}) * pp({said['PP']})"
    tokens = said["seq"] * said["batch_per_dp"] * said["DP"]
    return devices(mesh) == row["value"] == said["gpus"] and f"tokens per batch {tokens} " in row["note"]


@shows("trivial")
def check_deepseek(row: Row) -> bool:
    """The degrees and the replicas of experts that the note says make the devices, and experts divide evenly."""
    said = row["inputs"]
    (replicas,) = re.findall(r"DP=(\d+) ", row["note"])
    mesh = f"zero1({replicas}) * ep({said['EP']}) * pp({said['PP']})"
    return devices(mesh) == said["gpus"] and load("deepseek-v3").sizes["E"] % said["EP"] == 0


@lru_cache(maxsize=1)
def llama_13b() -> tuple[int, int]:
    """Parameters of the feed-forward and of the attention blocks of Llama 2 13B, norms apart."""
    said = {**FIGURES["jax-13B-attn"]["inputs"], **FIGURES["jax-13B-ffw"]["inputs"]}
    model, values = load("llama"), {"L": said["L"], "h": said["D"], "f": said["F"], "a": said["N"], "d": said["H"]}
    dims = model.dims({**values, "V": 32_000, "s": 4096, "b": 1})
    blocks = next(part.blocks for part in model.segments if part.name == "layers")
    found = {b.name: said["L"] * sum(prod(int(dims[d]) for d in w.dims) for w in b.weights) for b in blocks}
    return found["swiglu"], found["attention_flash"]


@shows("derived")
def check_13b(row: Row) -> bool:
    return as_printed(Fraction(llama_13b()[0 if row["id"].endswith("ffw") else 1], GIGA), row["value"])


@shows("trivial")
def check_states_without_a_master_copy(row: Row) -> bool:
    """Parameters in 16 bits, momentum and variance in 32, and no gradients."""
    values = {"b_theta": Fraction(2), "b_omega": Fraction(PRECISIONS["fp32-adam"].b_omega), "P": Fraction(str(row["inputs"]["P"]))}
    held = {key: evaluate(derived("ddp").memory[key], values) or Fraction(0) for key in ("parameters", "optimizer")}
    chosen = {"params": ("parameters",), "optim": ("optimizer",)}.get(row["id"].rpartition("-")[2], ("parameters", "optimizer"))
    return sum(held[key] for key in chosen) == row["value"] * GIGA


CHECKS: dict[str, Check] = {
    "nar-params": check_equation_2,
    **{f"nar-t1-{size}B-params": check_equation_2 for size in ("1.7", "7.5", "39.1", "145.6", "529.6")},
    "playbook-N": check_playbook,
    "zinf-params": check_leading,
    "zinf-modelstates": check_model_states,
    "korth-fig1-paropt-": check_figure_1,
    "korth-t3-": check_table_3,
    "llama3-t4-": check_table_4,
    "dsv3-config": check_deepseek,
    "jax-13B-ffw": check_13b,
    "jax-13B-attn": check_13b,
    "jax-13B-states": check_states_without_a_master_copy,
    "jax-70B-states-": check_states_without_a_master_copy,
}
#: Rows that hold with a difference or in a limit that their checks state.
WITH_A_DIFFERENCE = {
    "nar-params": "without the gain and the bias of the last norm",
    "playbook-N": "without the norm behind the embedding",
    "zinf-params": "the leading term",
    "zinf-modelstates": "the leading term",
    "korth-fig1-paropt-22B": "the leading term",
    "korth-fig1-paropt-175B": "the leading term",
}
