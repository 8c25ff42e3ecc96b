"""Edits of linked programs that make them wrong, one place each: what people forget or mix up in a block, a contract, or the step."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "tied_reduce")
Edit = Callable[[ast.AST], "ast.AST | None"]


def _name(node: ast.AST) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def no_collective(node: ast.AST) -> ast.AST | None:
    return node.args[0] if isinstance(node, ast.Call) and _name(node) in COLLECTIVES else None


def a_mean(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Call) or _name(node) not in ("all_reduce", "reduce_scatter") or any(k.arg == "op" for k in node.keywords):
        return None
    return ast.Call(node.func, node.args, [*node.keywords, ast.keyword("op", ast.Name("mean"))])


def fewer_axes(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, ast.Call) or _name(node) not in COLLECTIVES or len(node.args) < 3:
        return None
    return ast.Call(node.func, node.args[:-1], node.keywords)


def no_partial(node: ast.AST) -> ast.AST | None:
    if _name(node) != "returns" or not isinstance(node, ast.Call) or not any(k.arg == "partial" for k in node.keywords):
        return None
    return ast.Call(node.func, node.args, [k for k in node.keywords if k.arg != "partial"])


def no_gradient(node: ast.AST) -> ast.AST | None:
    if isinstance(node, ast.Expr) and _name(node.value) == "returns" and len(node.value.keywords) > 1:  # type: ignore[attr-defined]
        return ast.Pass()
    return None


def of_another(node: ast.AST) -> ast.AST | None:
    """A gradient that is claimed to be by the other thing that the block reads."""
    by = next((k for k in getattr(node, "keywords", []) if k.arg == "by"), None) if _name(node) == "returns" else None
    swapped = {"x": "n", "n": "x"}.get(ast.unparse(by.value) if by is not None else "")
    if not isinstance(node, ast.Call) or swapped is None:
        return None
    return ast.Call(node.func, node.args, [ast.keyword("by", ast.Name(swapped)) if k.arg == "by" else k for k in node.keywords])


def other_sign(node: ast.AST) -> ast.AST | None:
    """But for sizes of groups, for the ranks that send, of which the last one may, and for softmaxes, which may be shifted either way: by
    their greatest value, and by a bias of the keys."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add | ast.Sub) or re.search(r"P_|stop|^pp|\bbk\b", ast.unparse(node)):
        return None
    return ast.BinOp(node.left, ast.Sub() if isinstance(node.op, ast.Add) else ast.Add(), node.right)


def no_scale(node: ast.AST) -> ast.AST | None:
    return node.args[0] if isinstance(node, ast.Call) and _name(node) == "scale" else None


def other_mean(node: ast.AST) -> ast.AST | None:
    """A mean over one more, or fewer, than there are."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and ast.unparse(node.left) == "1":
        return ast.BinOp(ast.Constant(1), ast.Div(), ast.BinOp(node.right, ast.Mult(), ast.Constant(2)))
    return None


def no_seed(node: ast.AST) -> ast.AST | None:
    """A factor that is forgotten: the gradient that comes in."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and ast.unparse(node.right).startswith("d"):
        return node.left
    return None


EDITS: tuple[Edit, ...] = (
    no_collective,
    a_mean,
    fewer_axes,
    no_partial,
    no_gradient,
    of_another,
    other_sign,
    no_scale,
    other_mean,
    no_seed,
)


class _At(ast.NodeTransformer):
    def __init__(self, edit: Edit, number: int) -> None:
        self.edit, self.left = edit, number

    def visit(self, node: ast.AST) -> ast.AST:
        changed = self.edit(node)
        if changed is not None:
            self.left -= 1
            if self.left == -1:
                return changed
        return self.generic_visit(node)


def places(text: str) -> list[tuple[Edit, int]]:
    """Each edit, with the number of each place that it can be made at."""
    nodes = list(ast.walk(ast.parse(text)))
    return [(edit, number) for edit in EDITS for number in range(sum(edit(node) is not None for node in nodes))]


def mutant(text: str, edit: Edit, number: int) -> tuple[str, str]:
    """What was done, and the text with an edit at one of its places."""
    before = ast.unparse(ast.parse(text)).splitlines()
    changed = ast.unparse(ast.fix_missing_locations(_At(edit, number).visit(ast.parse(text))))
    line = next((new for new in changed.splitlines() if new not in before), "a line is gone")
    return f"{edit.__name__} {number}: {line.strip()}", changed
