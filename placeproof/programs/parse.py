"""Reading a step program from text: a documented subset of Python's syntax, read with ``ast`` and never executed."""

from __future__ import annotations

import ast
import math
import re
import warnings
from fractions import Fraction

from placeproof.core.bounds import too_long, within
from placeproof.core.diagnostics import Place, Problems, suggestion
from placeproof.core.formula import MOST_LEVELS, is_too_deep, repeated
from placeproof.core.places import characters
from placeproof.programs.header import Header, read_header
from placeproof.programs.ir import (
    FIRST_UNIT,
    Assign,
    Binary,
    Call,
    Do,
    Expr,
    For,
    If,
    Index,
    Number,
    Program,
    Ref,
    Stmt,
)
from placeproof.programs.ops import HEADER, LOOPS, OPS, Axes, Op
from placeproof.programs.wellformed import check_into

#: Longer inputs are refused: nobody wrote them by hand, and a recording has loops to fold.
MAX_LINES = 5_000
#: A number of so many bits is too large whatever it is.
_MOST_BITS = 4_000
_BINARY: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


def parse(text: str, *, source: str = "<program>") -> Program:
    """Read a step program.

    Raises :class:`InputError` with every problem of the text, each with its line, column and caret. The result is
    syntactically a program; :func:`read` also decides whether it makes sense.
    """
    problems = Problems()
    program = _parse(text, source, problems)
    problems.raise_if_any()
    return program


def read(text: str, *, source: str = "<program>", linked: bool = False) -> Program:
    """Read a step program and check that it is well formed; raises :class:`InputError` with all problems of both. ``linked``: the step of a
    linked program, whose layers are calls of blocks."""
    problems = Problems()
    program = _parse(text, source, problems)
    check_into(program, problems, partial=bool(problems.found), linked=linked)
    problems.raise_if_any()
    return program


def _parse(text: str, source: str, problems: Problems) -> Program:
    lines = text.splitlines()
    if len(lines) > MAX_LINES:
        problems.add(
            "PP301",
            f"the program has {len(lines)} lines; at most {MAX_LINES} are read",
            help="repeat with `for u in units:` instead of writing each unit out",
        )
        problems.raise_if_any()
    tree = _tree(text, source, problems)
    reader = _Reader(source, text.splitlines(), problems)
    for keyword in repeated(tree):
        reader.refuse(keyword.value, f"`{keyword.arg}` is said twice", "say it once", code="PP305")
    problems.raise_if_any()
    header = Header()
    body: list[Stmt] = []
    for node in tree.body:
        if (name := _header_name(node)) is None:
            body.extend(reader.statement(node))
        elif body:
            problems.add("PP302", f"`{name}(...)` belongs before the first statement", place=reader.place(node))
        else:
            assert isinstance(node, ast.Expr)
            assert isinstance(node.value, ast.Call)
            read_header(node.value, header, reader)
    return header.program(tuple(body), source, problems)


def _tree(text: str, source: str, problems: Problems) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python finds odd in a number is ours to judge
            tree = ast.parse(text)
            if is_too_deep(tree):
                raise ValueError(f"it has more than {MOST_LEVELS} levels")
            return tree
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 1
        shown = (text.splitlines() or [""])[min(line, max(1, len(text.splitlines()))) - 1 :][:1]
        problems.add(
            "PP301",
            f"this is not readable as a step program: {error.msg}",
            place=Place(source=source, line=line, column=max(1, column), text=shown[0] if shown else ""),
            help="a step program is written in a subset of Python's syntax; see docs/reference/step-programs.md",
        )
    except (ValueError, RecursionError, MemoryError) as error:
        problems.add("PP301", f"this is not readable as a step program: {error or 'nested too deeply'}")
    problems.raise_if_any()
    raise AssertionError("unreachable")


def _header_name(node: ast.stmt) -> str | None:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))) if name in HEADER:
            return name
    return None


def _flows(keywords: list[ast.keyword]) -> bool:
    """Whether a loop over micro-batches says how they flow: `in_flight`, and after it `hops` or nothing."""
    return [k.arg for k in keywords] in (["in_flight"], ["in_flight", "hops"])


class _Reader:
    """Turns nodes of Python's syntax tree into nodes of a program; what it cannot read becomes a problem."""

    def __init__(self, source: str, lines: list[str], problems: Problems) -> None:
        self.source = source
        self.lines = lines
        self.problems = problems

    def place(self, node: ast.AST) -> Place:
        """Where a node stands."""
        line = getattr(node, "lineno", 1)
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        start, end = getattr(node, "col_offset", 0), len(text)
        if getattr(node, "end_lineno", line) == line:
            end = characters(text, getattr(node, "end_col_offset", end))
        start = characters(text, start)
        return Place(source=self.source, line=line, column=start + 1, length=max(1, end - start), text=text)

    def refuse(self, node: ast.AST, message: str, help: str | None = None, code: str = "PP303") -> None:
        """Record a problem at a node."""
        self.problems.add(code, message, place=self.place(node), help=help)

    def statement(self, node: ast.stmt) -> list[Stmt]:
        """One statement, or none when it could not be read."""
        place = self.place(node)
        match node:
            case ast.Assign(targets=[target], value=value):
                return self._assign(target, value, accumulate=False, place=place)
            case ast.AugAssign(target=target, op=ast.Add(), value=value):
                return self._assign(target, value, accumulate=True, place=place)
            case ast.Expr(value=ast.Call() as call):
                read = self.expression(call)
                return [Do(call=read, place=place)] if isinstance(read, Call) else []
            case ast.For():
                return self._loop(node)
            case ast.If():
                return self._branch(node)
            case ast.Pass():
                return []
        shown = type(node).__name__.lower()
        self.refuse(
            node,
            f"a step program has no `{shown}` statement",
            "it has assignments, `+=`, operations, `for ... in units:` and `if rank(axis) == ...:`",
        )
        return []

    def _body(self, nodes: list[ast.stmt]) -> tuple[Stmt, ...]:
        return tuple(s for node in nodes for s in self.statement(node))

    def _assign(self, target: ast.expr, value: ast.expr, *, accumulate: bool, place: Place) -> list[Stmt]:
        nodes = target.elts if isinstance(target, ast.Tuple) else [target]
        targets = [self._ref(n) for n in nodes]
        read = self.expression(value)
        known = [t for t in targets if t is not None]
        if read is None or len(known) != len(targets):
            return []
        return [Assign(targets=tuple(known), value=read, accumulate=accumulate, place=place)]

    def _loop(self, node: ast.For) -> list[Stmt]:
        body = self._body(node.body)
        iterable, reverse = node.iter, False
        match iterable:
            case ast.Call(func=ast.Name(id="reversed"), args=[inner]):
                iterable, reverse = inner, True
        within, start = None, 0
        batches: dict[str, Expr | None] = {}
        match iterable:
            case ast.Call(func=ast.Name(id="microbatches") as name, args=[], keywords=keywords) if _flows(keywords):
                batches, iterable = {str(k.arg): self.expression(k.value) for k in keywords}, name
            case ast.Subscript(value=ast.Name() as name, slice=ast.Name(id=outer)):
                within, iterable = outer, name
            case ast.Subscript(value=ast.Name() as name, slice=ast.Constant(value=0)):
                within, iterable = FIRST_UNIT, name
            case ast.Subscript(value=ast.Name() as name, slice=ast.Slice(lower=ast.Constant(value=1), upper=None, step=None)):
                start, iterable = 1, name
        domain = iterable.id if isinstance(iterable, ast.Name) else None
        if domain is None or domain not in LOOPS or not isinstance(node.target, ast.Name) or node.orelse:
            self.refuse(
                node.iter,
                "a loop walks over " + ", ".join(f"`{d}`" for d in LOOPS) + " with one variable",
                suggestion(domain, LOOPS) if domain and domain not in LOOPS else "for example `for u in reversed(units):`",
            )
            return []
        var, place = node.target.id, self.place(node)
        return [For(var=var, domain=domain, body=body, within=within, start=start, reverse=reverse, place=place, **batches)]

    def _branch(self, node: ast.If) -> list[Stmt]:
        then, orelse = self._body(node.body), self._body(node.orelse)
        match node.test:
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="rank"), args=[ast.Name(id=axis)], keywords=[]), ops=[op], comparators=[right]
            ) if type(op) in _COMPARE:
                bound = self.expression(right)
                if bound is None:
                    return []
                return [If(axis=axis, op=_COMPARE[type(op)], bound=bound, then=then, orelse=orelse, place=self.place(node))]
        self.refuse(node.test, "a condition compares `rank(axis)` with a number", "for example `if rank(pp) == 0:`")
        return []

    def _ref(self, node: ast.expr) -> Ref | None:
        index: Index | None = None
        group: str | None = None
        place = self.place(node)
        if isinstance(node, ast.Subscript):
            if (index := self._index(node.slice)) is None:
                return None
            node = node.value
        if isinstance(node, ast.Attribute):
            group, node = node.attr, node.value
        if isinstance(node, ast.Name):
            return Ref(name=node.id, group=group, index=index, place=place)
        self.refuse(node, "expected a name such as `parameters`, `parameters.norm` or `parameters.norm[u]`")
        return None

    def _index(self, node: ast.expr) -> Index | None:
        match node:
            case ast.Name(id=var):
                return Index(var=var)
            case ast.Constant(value=int(k)) if not isinstance(k, bool):
                return Index(var=None, offset=k)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(k))):
                return Index(var=None, offset=-k)
            case ast.BinOp(left=ast.Name(id=var), op=ast.Add(), right=ast.Constant(value=int(k))):
                return Index(var=var, offset=k)
            case ast.BinOp(left=ast.Name(id=var), op=ast.Sub(), right=ast.Constant(value=int(k))):
                return Index(var=var, offset=-k)
        self.refuse(node, "an index is a loop variable, one plus or minus a number, or a number: `[u]`, `[u + 1]`, `[0]`")
        return None

    def expression(self, node: ast.expr) -> Expr | None:
        """One expression, or None when it could not be read."""
        match node:
            case ast.Constant(value=bool()):
                pass
            case ast.Constant(value=int(value)):
                return self._number(node, Fraction(value) if value.bit_length() < _MOST_BITS else None)
            case ast.Constant(value=float()):
                return self._number(node, self._decimal(node))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() as inner):
                number = self.expression(inner)
                return Number(value=-number.value, place=self.place(node)) if isinstance(number, Number) else None
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                a, b = self.expression(left), self.expression(right)
                if a is None or b is None:
                    return None
                return Binary(op=_BINARY[type(op)], left=a, right=b, place=self.place(node))
            case ast.Call(func=ast.Name(id=name)):
                return self._call(node, name)
            case ast.Name() | ast.Attribute() | ast.Subscript():
                return self._ref(node)
        self.refuse(node, "expected a name, a number, arithmetic or an operation")
        return None

    def _number(self, node: ast.expr, value: Fraction | None) -> Number | None:
        if value is None or not within(value):
            self.refuse(node, "no number of a step program is greater than 1e100, or less than 1e-100")
            return None
        return Number(value=value, place=self.place(node))

    def _decimal(self, node: ast.Constant) -> Fraction | None:
        shown = self.place(node)
        literal = shown.text[shown.column - 1 : shown.column - 1 + shown.length]
        exact = re.fullmatch(r"[0-9.]+(?:[eE][-+]?[0-9]+)?", literal)
        if too_long(literal) or math.isinf(node.value):  # type: ignore[arg-type]
            return None
        return Fraction(literal) if exact else Fraction(str(node.value))

    def _call(self, node: ast.Call, name: str) -> Call | None:
        if name not in OPS:
            self.refuse(node.func, f"there is no operation `{name}`", suggestion(name, OPS), code="PP304")
            return None
        op = OPS[name]
        cut = len(node.args) if op.axes is Axes.NONE else self._operand_count(op, node.args)
        operands = [self.expression(a) for a in node.args[:cut]]
        axes = [self._axis(arg, op) for arg in node.args[cut:]]
        options = [(k.arg, self._option(k.value)) for k in node.keywords if k.arg]
        known, named = [o for o in operands if o is not None], [a for a in axes if a is not None]
        if len(known) != len(operands) or len(named) != len(axes):
            return None
        return Call(op=name, args=tuple(known), axes=tuple(named), options=tuple(sorted(options)), place=self.place(node))

    def _axis(self, node: ast.expr, op: Op) -> str | None:
        if isinstance(node, ast.Name):
            return node.id
        each = node.elts if isinstance(node, ast.Tuple | ast.List) else []
        names = ", ".join(one.id for one in each if isinstance(one, ast.Name))
        help = f"without brackets: {op.name}(..., {names})" if names else op.signature()
        self.refuse(node, f"`{op.name}` takes names of mesh axes here", help, code="PP304")
        return None

    @staticmethod
    def _operand_count(op: Op, args: list[ast.expr]) -> int:
        return min(len(op.operands), len(args))

    def _option(self, node: ast.expr) -> str:
        match node:
            case ast.Name(id=name):
                return name
            case ast.Constant(value=str(value)):
                return value
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return str(value)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
                return str(-value)
        self.refuse(node, "an option is a name, a text or an integer", code="PP304")
        return ""
