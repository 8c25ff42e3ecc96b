"""Published model states and data-parallel volumes, checked against formulas that are derived from strategies."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

import sympy
from published import Check, Row, as_printed, shows

import placeproof
from placeproof.core.precision import PRECISIONS
from placeproof.core.symbols import symbol
from placeproof.cost.closed import limit
from placeproof.cost.derive import Derivation, evaluate

STAGES = {"baseline": "ddp", "Pos": "zero1", "Pos+g": "zero2", "Pos+g+p": "zero3"}
MEGATRON = {"fp16": "megatron-fp16", "bf16": "megatron-bf16", "fp32": "fp32-adam"}
GIGA = 10**9


@lru_cache(maxsize=64)
def derived(strategy: str) -> Derivation:
    return placeproof.derive(strategy)


def states(strategy: str, precision: str = "mixed-adam", **values: object) -> Fraction:
    """Model states in bytes."""
    known = {**PRECISIONS[precision].values(), **{k: Fraction(str(v)) for k, v in values.items()}}
    number = evaluate(derived(strategy).memory["model_states"], known)
    assert number is not None, f"{strategy} has open symbols"
    return number


def volume(strategy: str, width: int) -> sympy.Expr:
    """Bytes sent per parameter in the limit of many devices, all widths equal."""
    d = derived(strategy)
    put = {symbol("b_theta"): width, symbol("b_g"): width}
    return limit(d.sent.xreplace(put), "N") / symbol("P")


@shows("derived")
def check_table_1(row: Row) -> bool:
    inputs = row["inputs"]
    exact = states(STAGES[inputs["stage"]], P=inputs["params"], N=inputs["Nd"]) / GIGA
    return as_printed(exact, row["value"], may_truncate=True)


@shows("derived", but=("trivial", "zero-fig1-baseline"))
def check_figure_1(row: Row) -> bool:
    stage = row["id"].removeprefix("zero-fig1-")
    return as_printed(states(STAGES[stage], P=row["inputs"]["params"], N=row["inputs"]["Nd"]) / GIGA, row["value"])


@shows("derived")
def check_table_2(row: Row) -> bool:
    """The paper rounds the row of one model-parallel device, multiplies it, and prints thousands as whole trillions."""
    inputs = row["inputs"]
    capacity = Fraction(inputs["capacity_GB"] * GIGA)
    stage, degree = STAGES[inputs["stage"]], inputs["MP"]
    alone = capacity / states(f"{stage}({inputs['Nd']})", P=1)
    composed = capacity / states(f"{stage}({inputs['Nd']}) * tp({degree})", P=1)
    assert composed == alone * degree
    billions = round(alone / GIGA, 1) * degree
    if billions >= 1000:
        return as_printed(billions / 1000, Decimal(row["value"]) / 1000)
    return as_printed(billions, row["value"])


@shows("derived")
def check_volume(row: Row) -> bool:
    strategies = {"DP baseline": ("ddp",), "Pos+g (ZeRO-1/2)": ("zero1", "zero2"), "Pos+g+p (ZeRO-3)": ("zero3", "fsdp")}
    if row["id"] == "zero-comm-ratio":
        return bool(volume("zero3", 1) / volume("ddp", 1) == sympy.Rational(str(row["value"])))
    return all(volume(s, 1) == row["value"] for s in strategies[row["inputs"]["stage"]])


@shows("derived")
def check_limit(row: Row) -> bool:
    stage = STAGES[row["id"].removeprefix("zero-limit-")]
    put = {symbol(k): v.numerator for k, v in PRECISIONS["mixed-adam"].values().items()}
    one, other = (derived(s).memory["model_states"].xreplace(put) for s in ("ddp", stage))
    return bool(limit(sympy.cancel(one / other), "N") == row["value"])


@shows("trivial")
def check_gpt2(row: Row) -> bool:
    return states("ddp", P=row["inputs"]["params"]) == row["value"] * GIGA


@shows("derived")
def check_megatron(row: Row) -> bool:
    precision = MEGATRON[row["id"].split("-")[2]]
    if "value" in row:
        return states("zero1", precision, P=1, N=row["inputs"]["d"]) == Fraction(str(row["value"]))
    whole, base, part = (int(n) for n in re.findall(r"\d+", row["formula"]))
    n = symbol("N")
    put = {symbol(k): v.numerator for k, v in PRECISIONS[precision].values().items()} | {symbol("P"): 1}
    form = derived("zero1").memory["model_states"].xreplace(put)
    return states("ddp", precision, P=1) == whole and sympy.expand(form - (base + sympy.Integer(part) / n)) == 0


@shows("trivial")
def check_playbook(row: Row) -> bool:
    precision = "mixed-adam" if row["id"].endswith("-16") else "fp16-fp32grad"
    return states("ddp", precision, P=row["inputs"]["params"]) == row["value"] * GIGA


@shows("trivial", but=("derived", "acct-70B-div8"))
def check_70b(row: Row) -> bool:
    values = {**PRECISIONS["mixed-adam"].values(), "P": Fraction(row["inputs"]["P"])}
    key = {"params": "parameters", "optim": "optimizer", "grads": "gradients"}.get(row["id"].removeprefix("acct-70B-"), "model_states")
    strategy = f"zero3({row['inputs']['N']})" if "N" in row["inputs"] else "ddp"
    return evaluate(derived(strategy).memory[key], values) == row["value"] * GIGA


@shows("trivial")
def check_18_bytes(row: Row) -> bool:
    return states("ddp", "megatron-bf16", P=1) == row["value"]


@shows("derived")
def check_10b(row: Row) -> bool:
    strategy = row["id"].removeprefix("mleng-10B-")
    total = volume(strategy, row["inputs"]["dtype"]) * int(row["inputs"]["P"])
    return bool(total == row["value"] * GIGA)


@shows("derived")
def check_fsdp(row: Row) -> bool:
    strategy = {"fsdp-full-repl": "ddp", "fsdp-full-shard": "fsdp"}[row["id"]]
    width = sympy.Symbol("width")
    sent = derived(strategy).sent.xreplace({symbol("b_theta"): width, symbol("b_g"): width})
    model = symbol("P") * width
    printed = sympy.sympify(row["formula"], locals={"M": model, "W": symbol("N")})
    return bool(sympy.expand(sent - printed) == 0)


#: The id of a row, or what ids begin with, and the check of such rows.
CHECKS: dict[str, Check] = {
    "zero-t1-": check_table_1,
    "zero-fig1-": check_figure_1,
    "zero-t2-theory-": check_table_2,
    "zero-comm-": check_volume,
    "zero-limit-": check_limit,
    "zero-modelstates-": check_gpt2,
    "megatron-distopt-": check_megatron,
    **dict.fromkeys(("playbook-1B-", "playbook-7B-", "playbook-70B-", "playbook-405B-"), check_playbook),
    "acct-70B-": check_70b,
    "mleng-18": check_18_bytes,
    "mleng-10B-": check_10b,
    "fsdp-full-": check_fsdp,
}
#: Rows that hold with a difference or in a limit that their checks state.
WITH_A_DIFFERENCE = {
    "zero-comm-": "in the limit of many devices",
    "zero-limit-": "in the limit of many devices",
    "mleng-10B-": "in the limit of many devices",
}
