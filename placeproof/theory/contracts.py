"""A strategy's step under a loss contract: each loss is summed, and divided by what is counted before the first pass.

A lowered strategy takes means over a device's own tokens, and over devices and micro-batches. Another contract needs other divisors.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from placeproof.programs.losses import MICRO_BATCHES
from placeproof.theory.language import StatementError
from placeproof.theory.statements import read_subject

if TYPE_CHECKING:
    from placeproof.core.strategy import Strategy
    from placeproof.programs import Program
    from placeproof.programs.ir import Term
    from placeproof.strategies import Template


def under(subject: str | Strategy | Template | Program, contract: str) -> Program:
    """A strategy's step that trains a contract: ``under("zero3 * cp", "mean_over(tokens)")``.

    Raises InputError for a contract that cannot be read, StatementError for a step that is not as strategies are lowered.
    """
    from placeproof.programs import For, read, render, statements

    name, program = read_subject(subject)
    terms = contract_of(contract)
    steps = any(isinstance(stmt, For) and stmt.domain == "microbatches" for stmt in statements(program.body))
    batch, sequence = [a.name for a in program.axes if a.splits.batch], [a.name for a in program.axes if a.splits.tokens]
    counts = _Counts(batch=batch, sequence=sequence, steps=steps)
    changed = _Changed(" + ".join(counts.loss(number, term) for number, term in enumerate(terms)))
    tree = changed.visit(ast.parse(render(program)))
    if changed.losses != 1 or changed.scales != bool(batch or sequence or steps):
        raise StatementError(f"`{name}` does not take its loss once and divide at the end, as strategies do")
    first = _begin(tree.body)
    tree.body[first:first] = ast.parse("\n".join(counts.before)).body
    _say(tree.body, contract)
    return replace(read(ast.unparse(tree), source="<statement>"), name=f"{name} under {contract}".replace('"', "'"))


def contract_of(contract: str) -> tuple[Term, ...]:
    """The terms of a contract. Raises InputError."""
    from placeproof.programs import read

    update = "parameters, optimizer = update(parameters, optimizer, backward(parameters))"
    return read(f"mesh()\nreference(loss={contract})\n{update}", source="<contract>").loss


@dataclass(slots=True, kw_only=True)
class _Counts:
    """What losses are divided by. ``batch``, ``sequence``: the axes that share out samples, and tokens; ``steps``: whether there are
    micro-batches; ``before``: lines that count before the first pass."""

    batch: list[str]
    sequence: list[str]
    steps: bool
    before: list[str] = field(default_factory=list)

    def loss(self, number: int, term: Term) -> str:
        """The gradient of a term of the contract, divided by its own count."""
        of = "" if term.loss == term.MAIN else f", loss={term.loss}"
        mean = f"loss(x, sum={term.of}{of}) / {self._divisor(number, term)}"
        return mean if term.factor == 1 else f"scale({mean}, {term.factor})"

    def _divisor(self, number: int, term: Term) -> str:
        if not isinstance(term.over, str):
            return str(term.over)
        if term.over == MICRO_BATCHES:
            own, along = self._count(term.of), ", ".join(self.sequence)
            of_all = f"all_reduce({own}, {along})" if along and term.of == "tokens" else own
            return f"({' * '.join([of_all, *self.batch, *(['microbatches'] if self.steps else [])])})"
        name, axes = f"n{number}", [*self.batch, *(self.sequence if term.over == "tokens" else [])]
        count = f"{name} += {self._count(term.over)}"
        self.before += [f"for i in microbatches:\n    {count}" if self.steps else count.replace("+=", "=")]
        self.before += [f"{name} = all_reduce({name}, {', '.join(axes)})"] if axes else []
        return name

    def _count(self, unit: str) -> str:
        of = ["i"] if self.steps else []
        return f"tokens({', '.join(of)})" if unit == "tokens" else f"count({', '.join([*of, f'of={unit}'])})"


class _Changed(ast.NodeTransformer):
    """Puts a sum of losses in the place of the mean, and takes the division of gradients away."""

    def __init__(self, losses: str) -> None:
        self._losses, self.losses, self.scales = losses, 0, 0

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if not (isinstance(node.func, ast.Name) and node.func.id == "loss"):
            return self.generic_visit(node)
        self.losses += 1
        return ast.parse(self._losses, mode="eval").body

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=left)],
                value=ast.Call(func=ast.Name(id="scale"), args=[ast.Name(id=right), ast.BinOp(left=ast.Constant(value=1), op=ast.Div())]),
            ) if left == right:
                self.scales += 1
                return None
        return self.generic_visit(node)


def _begin(body: list[ast.stmt]) -> int:
    """Where a program's header ends."""
    from placeproof.programs.ops import HEADER

    return next(n for n, stmt in enumerate(body) if (call := _call(stmt)) is None or call not in HEADER)


def _call(stmt: ast.stmt) -> str | None:
    match stmt:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return name
    return None


def _say(body: list[ast.stmt], contract: str) -> None:
    """Put the contract into what a program says of its reference."""
    said = next((stmt for stmt in body if _call(stmt) == "reference"), None)
    if said is None:
        said = ast.parse("reference()").body[0]
        body.insert(_begin(body), said)
    assert isinstance(said, ast.Expr)
    assert isinstance(said.value, ast.Call)
    said.value.keywords.append(ast.keyword(arg="loss", value=ast.parse(contract, mode="eval").body))
