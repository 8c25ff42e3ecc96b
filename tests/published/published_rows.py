"""What checks of published rows share: printed formulas, the models that they speak of, and wrong figures made of right ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import sympy
from published import Row, rows

from placeproof import schedules
from placeproof.core.symbols import symbol
from placeproof.cost.blocks.flops import Work
from placeproof.cost.model import ModelDerivation, derive_model
from placeproof.cost.model.parts import DeviceSegment
from placeproof.models import load
from placeproof.strategies import parse_strategy

FIGURES = {row["id"]: row for row in rows()}
#: The widths of 16-bit training, as symbols of formulas.
HALF = {symbol("b_a"): 2, symbol("b_theta"): 2, symbol("b_g"): 2}
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def formula(text: str, names: Mapping[str, Any]) -> sympy.Expr:
    """A printed formula, in which products may be written without a sign: ``sbh(24h+4s)``. Raises ValueError for an unknown name."""
    pieces, stand = [], dict[str, Any]()
    for kind, token in _tokens(text, sorted(names, key=len, reverse=True)):
        if pieces and pieces[-1][0] in ("value", ")") and kind in ("value", "("):
            pieces.append(("*", "*"))
        called = f"_{len(stand)}" if token in names else token
        if token in names:
            stand[called] = sympy.sympify(names[token])
        pieces.append((kind, called))
    return sympy.sympify("".join(piece for _, piece in pieces), locals=stand, rational=True)


def _tokens(text: str, names: list[str]) -> Iterator[tuple[str, str]]:
    rest = text.strip()
    while rest:
        number = _NUMBER.match(rest)
        name = next((n for n in names if rest.startswith(n)), None)
        if name is not None:
            token, kind = name, "value"
        elif number is not None:
            token, kind = number[0], "value"
        elif rest[0] in "+-*/^()":
            token = kind = "**" if rest[0] == "^" else rest[0]
        else:
            raise ValueError(f"what is `{rest}` of `{text}`?")
        length = 1 if token == "**" else len(token)
        yield kind, token
        rest = rest[length:].lstrip()


def same(one: Any, other: Any) -> bool:
    """Whether two rational functions are equal."""
    return bool(sympy.cancel(sympy.sympify(one) - sympy.sympify(other)) == 0)


def exact(expr: Any) -> Fraction:
    """The number that an expression without symbols is."""
    number = sympy.Rational(expr)
    return Fraction(int(number.p), int(number.q))


def floating(found: Fraction, printed: Decimal | float) -> bool:
    """Whether a number is what a row's author computed in double precision: to 12 digits."""
    told = Fraction(str(printed))
    return abs(found - told) * 10**12 <= told


def changed(row: Row) -> list[Row]:
    """The row with other figures: twice its value and one of 5 % more, or another formula, or another configuration."""
    if row.get("value") is not None:
        value = row["value"]
        return [{**row, "value": other} for other in ((value * 2, value + value / 20) if value else (1,))]
    if row["id"] in SAID_OTHERWISE:
        return [{**row, **{key: row[key].replace(*other) for key, other in SAID_OTHERWISE[row["id"]].items()}}]
    if row.get("formula"):
        return [{**row, "formula": _other(row["formula"])}]
    return [{**row, "inputs": {**row["inputs"], "gpus": row["inputs"]["gpus"] * 2}}]


def _other(text: str) -> str:
    """The formula with its first number, or where it has none its first product, changed."""
    number = re.search(r"(?<![\w.])\d+(?![\w.]*\^)", text)
    if number is None:
        return text.replace("*", "+", 1)
    return text[: number.start()] + str(int(number[0]) + 1) + text[number.end() :]


#: Rows in words: what to replace, and by what, so that they are wrong.
SAID_OTHERWISE: dict[str, dict[str, tuple[str, str]]] = {
    "gpipe-inflight": {"formula": ("keeps m", "keeps p")},
    "nar-bubble-dp": {"formula": ("(n-d)", "(n+d)")},
    "korth-embed": {"formula": ("adds 4sbh", "adds 5sbh")},
    "llama3-fsdp": {"note": ("2M", "3M")},
    "cp-megatron": {"formula": ("reduce-scatter", "all-reduce")},
    "moe-megatron-tokens": {"formula": ("ETP/TP", "ETP/TP/EP")},
}

# Models, whose formulas are in the symbols b, s, h, a, L, V, and N for the degree of a single axis.


@lru_cache(maxsize=64)
def model(strategy: str, recompute: str = "none", name: str = "gpt") -> ModelDerivation:
    """A model under a strategy."""
    return derive_model(load(name), parse_strategy(strategy), recompute=recompute)


def layers(d: ModelDerivation) -> DeviceSegment:
    """The layer that a model repeats."""
    return next(part for part in d.parts if part.name == "layers")


@lru_cache(maxsize=64)
def kept(strategy: str, recompute: str = "none") -> sympy.Expr:
    """Bytes that a layer of a GPT keeps of one micro-batch on one device, activations in 2 bytes."""
    d = model(strategy, recompute)
    part = layers(d)
    return sympy.expand(sum(row.bytes for row in part.bytes(part.kept, d.at)).xreplace(HALF))


@lru_cache(maxsize=64)
def work(recompute: str = "none", name: str = "gpt") -> Work:
    """Floating-point operations of a layer for one micro-batch."""
    d = model("ddp", recompute, name)
    return layers(d).flops(d.at)


@lru_cache(maxsize=64)
def parameters_of_a_layer(name: str = "gpt") -> sympy.Expr:
    """Parameters of one layer."""
    return sympy.sympify(load(name).per_segment(once=True)["layers"].total)


def most_kept(schedule: str, p: int, m: int, v: int | None = None, d: int = 0, **sizes: int) -> Fraction:
    """The most that a device keeps of its chunks' activations in a simulation, in the unit of ``sizes``, or in activations of a chunk."""
    table = schedules.simulate(schedules.load(schedule), p=p, m=m, v=v)
    return max(kept for _, kept in table.held(d, **sizes))


def leading(expr: Any, name: str) -> sympy.Expr:
    """The term of the highest power of a symbol."""
    polynomial = sympy.Poly(sympy.expand(expr), symbol(name))
    return polynomial.LC() * symbol(name) ** polynomial.degree()


def linear(expr: Any, name: str) -> sympy.Expr:
    """The part that is proportional to a symbol."""
    return sympy.expand(expr).coeff(symbol(name), 1) * symbol(name)
