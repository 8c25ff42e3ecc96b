"""Functions of Python that make a configuration, read with ``ast`` and never run.

Assignments, calls of functions of the same file, calls of classes by their names and attributes that are set afterwards are followed. What
else a function does is refused; what a value comes to that is not followed is open.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from placeproof.core.diagnostics import Place, Problems, suggestion

#: So many functions may call one another, and so many statements are followed.
DEEPEST, MOST = 20, 5_000
#: Numbers larger than this are not computed.
_LARGEST = 10**15
_SIGNS: dict[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
}
_NAMED = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


@dataclass(slots=True)
class Made:
    """What a call of a class or of a function makes that is not followed. ``name``: as it is written; ``said``: its arguments by name."""

    name: str
    node: ast.AST
    said: dict[str, Any] = field(default_factory=dict)
    places: dict[str, ast.AST] = field(default_factory=dict)
    given: list[Any] = field(default_factory=list)
    starred: bool = False
    """Whether it has arguments of `*` or `**`, which are not followed."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that is not followed, as it is written."""

    text: str


class _ReturnedError(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class UnreadPythonError(Exception):
    """A statement that is not followed."""

    def __init__(self, message: str, node: ast.AST) -> None:
        super().__init__(message)
        self.message, self.node = message, node


class Module:
    """A file of functions. Raises InputError where it is no Python."""

    def __init__(self, text: str, source: str, problems: Problems) -> None:
        self.text, self.source, self.problems = text, source, problems
        self.steps = 0
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None) or 1
            help = "is the file whole?"
            problems.add("PP501", f"this is no Python: {error}", place=self._at(line, 1, 1), help=help)
            problems.raise_if_any()
            raise
        self.functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.names: dict[str, Any] = {}
        #: Names of imports and of classes -> where they come from, and the statement.
        self.origins: dict[str, tuple[str, ast.stmt]] = {}
        for node in tree.body:
            self._top(node)

    def result(self, name: str) -> Any:
        """What a function returns that is called without arguments. Problems where that cannot be said."""
        if name not in self.functions:
            help = suggestion(name, self.functions) or "one of " + ", ".join(self.functions)
            self.problems.add("PP501", f"there is no function `{name}`", place=self._at(1, 1, 1), help=help)
            self.problems.raise_if_any()
        try:
            return self._call(self.functions[name], {}, self.functions[name], 0)
        except UnreadPythonError as error:
            help = "write the settings as they come out of it"
            self.problems.add("PP501", f"this is not followed: {error.message}", place=self.place(error.node), help=help)
            self.problems.raise_if_any()
            raise
        except RecursionError:
            self.problems.add("PP501", "expressions are nested too deep", place=self.place(self.functions[name]), help="write it plainly")
            self.problems.raise_if_any()
            raise

    @property
    def begin(self) -> Place:
        """Where the file begins."""
        return self._at(1, 1, 1)

    def place(self, node: ast.AST) -> Place:
        """Where something stands."""
        return self._at(*self.span(node))

    def span(self, node: ast.AST) -> tuple[int, int, int]:
        """Its line, its column, and its length in that line."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        name = node.arg if isinstance(node, ast.keyword) and node.arg else ""
        end = getattr(node, "end_col_offset", column + 1) if getattr(node, "end_lineno", line) == line else column + 1
        return line, column + 1, len(name) or max(end - column, 1)

    def _at(self, line: int, column: int, length: int) -> Place:
        lines = self.text.splitlines() or [""]
        line = min(max(line, 1), len(lines))
        return Place(source=self.source, line=line, column=column, length=length, text=lines[line - 1])

    def _top(self, node: ast.stmt) -> None:
        """A statement outside functions: an assignment is followed, and names that are bound in another way are not known."""
        try:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                self._assign(node, self.names, 0)
                return
        except (UnreadPythonError, RecursionError):
            pass
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                other = f":{alias.name}" if alias.asname not in (None, alias.name) else ""
                self.origins[alias.asname or alias.name] = ("." * node.level + (node.module or "") + other, node)
        elif isinstance(node, ast.ClassDef):
            self.origins[node.name] = ("this file", node)
        elif not isinstance(node, _NAMED):
            bound = [inner for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)]
            self.names.update({inner.id: Unknown(inner.id) for inner in bound})

    def _call(self, function: ast.FunctionDef, arguments: Mapping[str, Any], node: ast.AST, depth: int) -> Any:
        if depth > DEEPEST:
            raise UnreadPythonError("functions that call one another without end", node)
        names = dict(arguments)
        spec = function.args
        if spec.vararg or spec.kwarg or function.decorator_list:
            raise UnreadPythonError(f"`{function.name}`, which takes arguments of any name or is decorated", node)
        for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            if default is not None:
                names.setdefault(arg.arg, self._value(default, self.names, depth))
        positional = [*spec.posonlyargs, *spec.args]
        for arg, value in zip(positional[len(positional) - len(spec.defaults) :], spec.defaults, strict=True):
            names.setdefault(arg.arg, self._value(value, self.names, depth))
        if names.keys() != {arg.arg for arg in (*positional, *spec.kwonlyargs)}:
            raise UnreadPythonError(f"`{function.name}` does not take these arguments", node)
        try:
            for statement in function.body:
                self._statement(statement, names, depth)
        except _ReturnedError as returned:
            return returned.value
        return None

    def _statement(self, node: ast.stmt, names: dict[str, Any], depth: int) -> None:
        self.steps += 1
        if self.steps > MOST:
            raise UnreadPythonError(f"more than {MOST:,} statements", node)
        if isinstance(node, ast.Return):
            raise _ReturnedError(None if node.value is None else self._value(node.value, names, depth))
        if isinstance(node, ast.Assign | ast.AnnAssign):
            self._assign(node, names, depth)
        elif isinstance(node, _NAMED):
            bound = [alias.asname or alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else [node.name]
            names.update({name: Unknown(name) for name in bound})
        elif not isinstance(node, ast.Assert | ast.Pass) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            raise UnreadPythonError(f"`{ast.unparse(node).splitlines()[0][:60]}`", node)

    def _assign(self, node: ast.Assign | ast.AnnAssign, names: dict[str, Any], depth: int) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is None:
            return
        value = self._value(node.value, names, depth)
        for target in targets:
            if isinstance(target, ast.Name):
                names[target.id] = value
            elif isinstance(target, ast.Attribute):
                made = self._attributes(target.value, names, depth, make=True)
                if not isinstance(made, Made):
                    raise UnreadPythonError(f"`{ast.unparse(node)[:60]}`", node)
                made.said[target.attr], made.places[target.attr] = value, node
            else:
                raise UnreadPythonError(f"`{ast.unparse(node)[:60]}`", node)

    def _attributes(self, node: ast.expr, names: dict[str, Any], depth: int, *, make: bool = False) -> Any:
        """What attributes of a name come to. ``make``: one that was not said is made, to be set."""
        if not isinstance(node, ast.Attribute):
            return self._value(node, names, depth)
        base = self._attributes(node.value, names, depth, make=make)
        if not isinstance(base, Made):
            return Unknown(ast.unparse(node))
        if make and node.attr not in base.said:
            base.said[node.attr], base.places[node.attr] = Made("", node), node
        return base.said.get(node.attr, Unknown(ast.unparse(node)))

    def _value(self, node: ast.expr, names: dict[str, Any], depth: int) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return names.get(node.id, self.names.get(node.id, Unknown(node.id)))
            case ast.List() | ast.Tuple():
                return [self._value(item, names, depth) for item in node.elts]
            case ast.UnaryOp(op=ast.USub()):
                value = self._value(node.operand, names, depth)
                return -value if isinstance(value, int | float) else Unknown(ast.unparse(node))
            case ast.BinOp():
                return self._computed(node, names, depth)
            case ast.Attribute():
                return self._attributes(node, names, depth)
            case ast.Call():
                return self._called(node, names, depth)
        return Unknown(ast.unparse(node)[:80])

    def _computed(self, node: ast.BinOp, names: dict[str, Any], depth: int) -> Any:
        left, right = self._value(node.left, names, depth), self._value(node.right, names, depth)
        numbers = all(isinstance(side, int | float) and not isinstance(side, bool) and abs(side) < _LARGEST for side in (left, right))
        sign = _SIGNS.get(type(node.op))
        if sign is None or not numbers or (right == 0 and isinstance(node.op, ast.Div | ast.FloorDiv)):
            return Unknown(ast.unparse(node)[:80])
        return sign(left, right)

    def _called(self, node: ast.Call, names: dict[str, Any], depth: int) -> Any:
        name = ast.unparse(node.func)
        given = [self._value(argument, names, depth) for argument in node.args]
        said = {keyword.arg: self._value(keyword.value, names, depth) for keyword in node.keywords if keyword.arg is not None}
        starred = any(keyword.arg is None for keyword in node.keywords) or any(isinstance(one, ast.Starred) for one in node.args)
        function = None if name in names else self.functions.get(name)
        places: dict[str, ast.AST] = {keyword.arg: keyword for keyword in node.keywords if keyword.arg is not None}
        if function is not None:
            parameters = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
            if starred or len(given) > len(parameters):
                raise UnreadPythonError(f"`{ast.unparse(node)[:60]}`", node)
            return self._call(function, {**dict(zip(parameters, given, strict=False)), **said}, node, depth + 1)
        first = given[0] if given else None
        if name in ("dataclasses.replace", "replace") and isinstance(first, Made):
            return Made(first.name, first.node, {**first.said, **said}, {**first.places, **places}, first.given, starred or first.starred)
        changed = any(isinstance(value, Made) and value.name.endswith("Config") for value in (*given, *said.values()))
        if changed and name.rpartition(".")[2][:1].islower():
            raise UnreadPythonError(f"`{ast.unparse(node)[:60]}`, which may change what it is given", node)
        return Made(name, node, said, places, given, starred)
