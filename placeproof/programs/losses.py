"""Loss contracts: of what the loss of a step is a mean, term by term, where counts differ from device to device.

Tokens that count make up sequences, sequences make up samples (rows of a batch) and, by another division, prompts. The loss of one of these
is the mean over its tokens, a weighted sample's as many times as its weight says.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fractions import Fraction
from typing import Protocol

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.programs.ir import Call, Expr, Program, Term, constant

#: What a loss can be a mean over: name -> what is counted.
UNITS: dict[str, str] = {
    "tokens": "tokens that count, on each device its own; the weight of a token is how many it counts for",
    "samples": "samples: rows of a batch",
    "sequences": "sequences, of which a sample has one or more",
    "prompts": "prompts, each with the sequences that answer it",
    "weights": "the weights of samples",
}
#: The mean over micro-batches of the mean of each.
MICRO_BATCHES = "micro_batches"
_EVERY = ", ".join((*UNITS, MICRO_BATCHES))


class Reader(Protocol):
    """What is needed of the reader of expressions."""

    def expression(self, node: ast.expr) -> Expr | None:
        """One expression, or None when it could not be read."""

    def refuse(self, node: ast.AST, message: str, help: str | None = None, code: str = "PP303") -> None:
        """Record a problem at a node."""


def reduction(call: Call) -> tuple[str, str, bool]:
    """Of which loss a whole pass gives the gradient, over which unit, and whether that is a sum; otherwise it is a mean."""
    summed = call.option("sum")
    return call.option("loss") or Term.MAIN, summed or call.choice("mean"), summed is not None


def target_of(loss: str) -> str:
    """What the targets of a loss are called: the main one has the name that all have alone."""
    return "target" if loss == Term.MAIN else f"target of {loss}"


def counted(call: Call) -> str:
    """The unit that a call of `tokens` or `count` counts."""
    return "tokens" if call.op == "tokens" else call.choice("of")


def read_terms(node: ast.expr, reader: Reader) -> tuple[Term, ...]:
    """The terms of `mean_over(tokens) + 0.01 * mean_over(tokens, loss=z)`; what cannot be read is refused."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        terms = (*read_terms(node.left, reader), *read_terms(node.right, reader))
        names = [t.loss for t in terms]
        if len(set(names)) < len(names):
            reader.refuse(node, "two terms are of one loss", "name the others: `0.01 * mean_over(tokens, loss=z)`")
        return terms
    factor: Fraction | None = Fraction(1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        read = reader.expression(node.left)
        factor, node = None if read is None else constant(read), node.right
    match node:
        case ast.Call(func=ast.Name(id="mean_over"), args=[over]) if factor:
            term = _term(over, {k.arg or "": k.value for k in node.keywords}, factor, reader)
            return () if term is None else (term,)
    reader.refuse(node, "a loss is a sum of means, each with a number before it", "`mean_over(tokens) + 0.01 * mean_over(tokens, loss=z)`")
    return ()


def _term(over: ast.expr, options: dict[str, ast.expr], factor: Fraction, reader: Reader) -> Term | None:
    words = {option: _word(value) for option, value in options.items()}
    for name, value in options.items():
        if name not in ("of", "loss") or words[name] is None or (name == "of" and words[name] not in UNITS):
            reader.refuse(value, f"`mean_over` has no `{name}={ast.unparse(value)}`", "`of=` names a unit: " + ", ".join(UNITS))
            return None
    unit = _word(over)
    if unit is None:
        number = reader.expression(over)
        fixed = None if number is None else constant(number)
        if fixed is None or fixed <= 0:
            reader.refuse(over, "a mean is over a unit, or what is summed is divided by a number above 0", _EVERY)
            return None
        return Term(factor=factor, over=fixed, of=words.get("of") or "tokens", loss=words.get("loss") or Term.MAIN)
    if unit not in (*UNITS, MICRO_BATCHES):
        reader.refuse(over, f"`{unit}` is nothing that a loss is a mean over", suggestion(unit, UNITS) or _EVERY)
        return None
    of = words.get("of") or ("tokens" if unit == MICRO_BATCHES else unit)
    return Term(factor=factor, over=unit, of=of, loss=words.get("loss") or Term.MAIN)


def _word(node: ast.expr) -> str | None:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Constant(value=str(name)):
            return name
    return None


def check_losses(program: Program, problems: Problems) -> None:
    """What a program says of losses goes with the reference's."""
    for call in program.calls:
        for message, help in _misused(call, program):
            problems.add("PP304", message, place=call.place, help=help)
    if program.loss and dict(program.reference).get("statistics") == "batch":
        message = "what a loss is a mean over is not worked out for layers with statistics of the batch"
        problems.add("PP304", message, help="leave one of the two out of `reference(...)`")


def _misused(call: Call, program: Program) -> Iterator[tuple[str, str]]:
    options, names = {"loss", "mean", "sum"} & set(dict(call.options)), sorted({t.loss for t in program.loss})
    if call.op == "count" and not program.loss:
        yield "`count` is of steps that say of what their loss is a mean", "`reference(loss=mean_over(sequences))`"
    if call.op not in ("backward", "loss") or not options:
        return
    if not program.loss:
        yield f"`{min(options)}=` is of steps that say of what their loss is a mean", "`reference(loss=mean_over(tokens))`"
    elif reduction(call)[0] not in names:
        yield f"the reference has no loss `{reduction(call)[0]}`", "it has " + ", ".join(f"`{n}`" for n in names)
    if {"mean", "sum"} <= options:
        yield "a pass gives a mean or a sum, and not both", "leave one of the two out"
    if len(call.args) > 2:
        yield f"`{min(options)}=` is of whole passes, and of `loss`", "`loss(x, sum=tokens)`"
