"""Writing a step program as text; ``parse(render(p)) == p``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import assert_never

from placeproof.core.mesh import USUAL_SPLITS
from placeproof.programs.ir import (
    DEFAULT_GROUP,
    Assign,
    Binary,
    Call,
    Do,
    Expr,
    For,
    Group,
    If,
    Index,
    Number,
    Placed,
    Program,
    Ref,
    Stmt,
    Term,
)
from placeproof.programs.losses import UNITS

_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2, "**": 4}
_UNARY = 3
_ATOM = 5


def render(program: Program) -> str:
    """The text form of a program, ending with a newline."""
    lines = list(_header(program))
    lines += _body(program.body, 0)
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _header(program: Program) -> Iterator[str]:
    yield f"program({_quote(program.name)})"
    plain = [a.name for a in program.axes if a.degree is None]
    fixed = [f"{a.name}={a.degree}" for a in program.axes if a.degree is not None]
    yield f"mesh({', '.join(plain + fixed)})"
    unusual = [f'{a.name}="{a.splits.name}"' for a in program.axes if USUAL_SPLITS.get(a.name) != a.splits.name]
    if unusual:
        yield f"splits({', '.join(unusual)})"
    inner = [f"{a.name}={a.inner}" for a in program.axes if a.inner is not None]
    if inner:
        yield f"inner({', '.join(inner)})"
    yield from _groups(program.groups)
    yield from (_placed(p) for p in program.placed)
    if program.counts:
        yield f"count({', '.join(f'{k}={v}' for k, v in program.counts)})"
    if program.unit is not None:
        yield f"unit({program.unit})"
    for text in program.approximates:
        yield f"approximate({_quote(text)})"
    for t in program.tensors:
        options = [*(f"{axis}={dim}" for axis, dim in t.split), *([f"picks={t.picks}"] if t.picks else [])]
        yield f"tensor({', '.join([t.name, *t.dims, *options])})"
    said = [f"{k}={v}" for k, v in program.reference]
    said += [f"loss={contract(program.loss)}"] if program.loss else []
    if said:
        yield f"reference({', '.join(said)})"
    if program.without:
        yield f"without({', '.join(_quote(name) for name in program.without)})"
    if program.not_compared:
        yield f"not_compared({', '.join(f'{name}={_quote(text)}' for name, text in program.not_compared)})"


def contract(terms: tuple[Term, ...]) -> str:
    """Of what a loss is a mean, as it is written."""
    return " + ".join(map(_term, terms))


def _term(term: Term) -> str:
    over = term.over if isinstance(term.over, str) else _quotient(term.over)
    usual = "tokens" if term.over not in UNITS else term.over
    options = [f"of={term.of}"] if term.of != usual else []
    options += [f"loss={term.loss}"] if term.loss != Term.MAIN else []
    factor = "" if term.factor == 1 else f"{_quotient(term.factor)} * "
    return f"{factor}mean_over({', '.join([over, *options])})"


def _quotient(value: Fraction) -> str:
    try:
        return _number(value)[0]
    except ValueError:  # no decimal
        return f"{value.numerator} / {value.denominator}"


def _groups(groups: tuple[Group, ...]) -> Iterator[str]:
    if groups != (Group(name=DEFAULT_GROUP, size=Ref(name="P")),):
        for g in groups:
            said = {"partial": _axes(g.partial), "tied": g.tied, "experts": _axes(g.experts), "whole": _axes(g.whole), "update": g.update}
            said |= {"frozen": "true" if g.frozen else ""}
            options = [f", {name}={value}" for name, value in said.items() if value]
            yield f"group({g.name}, {expression(g.size)}{''.join(options)})"


def _axes(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else _quote(" ".join(names)) if names else ""


def _placed(placed: Placed) -> str:
    state = placed.state if placed.group is None else f"{placed.state}.{placed.group}"
    return f"place({', '.join([state, *(f'{axis}={_quote(mode.symbol)}' for axis, mode in placed.modes)])})"


def _body(body: Iterable[Stmt], depth: int) -> list[str]:
    lines: list[str] = []
    pad = "    " * depth
    for stmt in body:
        lines.append(pad + head(stmt))
        if isinstance(stmt, For):
            lines += _body(stmt.body, depth + 1) or [pad + "    pass"]
        elif isinstance(stmt, If):
            lines += _body(stmt.then, depth + 1) or [pad + "    pass"]
            if stmt.orelse:
                lines.append(pad + "else:")
                lines += _body(stmt.orelse, depth + 1)
    return lines


def head(stmt: Stmt) -> str:
    """The first line of a statement."""
    match stmt:
        case Assign():
            targets = ", ".join(expression(t) for t in stmt.targets)
            return f"{targets} {'+=' if stmt.accumulate else '='} {expression(stmt.value)}"
        case Do():
            return expression(stmt.call)
        case For():
            return f"for {stmt.var} in {_domain(stmt)}:"
        case If():
            return f"if rank({stmt.axis}) {stmt.op} {expression(stmt.bound)}:"
        case _:
            assert_never(stmt)


def _domain(stmt: For) -> str:
    domain = stmt.domain
    if stmt.within is not None:
        domain = f"{domain}[{stmt.within}]"
    if stmt.start:
        domain = f"{domain}[{stmt.start}:]"
    if stmt.in_flight is not None:
        hops = "" if stmt.hops is None else f", hops={expression(stmt.hops)}"
        domain = f"{domain}(in_flight={expression(stmt.in_flight)}{hops})"
    return f"reversed({domain})" if stmt.reverse else domain


def expression(expr: Expr) -> str:
    """The text form of an expression."""
    return _expression(expr)[0]


def _expression(expr: Expr) -> tuple[str, int]:
    match expr:
        case Number():
            return _number(expr.value)
        case Ref():
            name = expr.name if expr.group is None else f"{expr.name}.{expr.group}"
            if expr.index is None:
                return name, _ATOM
            return f"{name}[{_index(expr.index)}]", _ATOM
        case Call():
            parts = [expression(a) for a in expr.args] + list(expr.axes)
            parts += [f"{name}={_option(value)}" for name, value in expr.options]
            return f"{expr.op}({', '.join(parts)})", _ATOM
        case Binary():
            return _binary(expr)
        case _:
            assert_never(expr)


def _index(index: Index) -> str:
    if index.var is None:
        return str(index.offset)
    if index.offset == 0:
        return index.var
    return f"{index.var} {'+' if index.offset > 0 else '-'} {abs(index.offset)}"


def _option(value: str) -> str:
    plain = value.isidentifier() or value.lstrip("-").isdigit()
    return value if plain else _quote(value)


def _number(value: Fraction) -> tuple[str, int]:
    if value.denominator == 1:
        return str(value.numerator), _ATOM if value >= 0 else _UNARY
    return _decimal(value), _ATOM if value >= 0 else _UNARY


def _decimal(value: Fraction) -> str:
    """A fraction that came from a decimal literal, written as one again; digits are exact."""
    power = 0
    while (value * 10**power).denominator != 1:
        power += 1
        if power > 400:
            raise ValueError(f"{value} has no finite decimal form; write it as a division of numbers")
    digits = str(abs((value * 10**power).numerator)).rjust(power + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-power]}.{digits[-power:]}"


def _binary(expr: Binary) -> tuple[str, int]:
    own = _STRENGTH[expr.op]
    left, left_strength = _expression(expr.left)
    right, right_strength = _expression(expr.right)
    if left_strength < own or (expr.op == "**" and left_strength <= own):
        left = f"({left})"
    if right_strength <= own and not (expr.op == "**" and right_strength >= _UNARY):
        right = f"({right})"
    return f"{left} {expr.op} {right}", own
