"""Functions of Python that make a configuration, read with ``ast`` and never run.

Followed are assignments, calls of functions of the same file, calls of classes by their names, attributes that are set afterwards, and
branches that known values decide. What else a function does is refused; what a value comes to that is not followed is open.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from placeproof.core.diagnostics import Place, Problems, suggestion
from placeproof.core.places import characters
from placeproof.importers.python.values import Known, Made, Unknown, compared, configurations, hashable, may_change, plain, truth

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
#: What is asked of an object whose class is as written: only these answers are known.
_TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (float,), "bool": (bool,), "list": (list,), "dict": (dict,)}


class _Inner(Unknown):
    """A function or a class inside a function: what it does to the names around it is not followed."""


class _ReturnedError(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class UnreadPythonError(Exception):
    """A statement that is not followed."""

    def __init__(self, message: str, node: ast.AST) -> None:
        super().__init__(message)
        self.message, self.node = message, node


def _imported(node: ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """The names that a statement imports, and where they come from, with the name that they have there if that is another one."""
    for alias in node.names:
        other = f":{alias.name}" if alias.asname not in (None, alias.name) else ""
        yield alias.asname or alias.name, "." * node.level + (node.module or "") + other


class Module:
    """A file of functions. Raises InputError where it is no Python.

    ``known``: functions of other files, by where they come from. ``unsaid``: an attribute that nothing said, None where it is open.
    ``makers``: names of functions that change nothing they are given. ``decorators``: those that leave a function as it is.
    """

    def __init__(
        self,
        text: str,
        source: str,
        problems: Problems,
        *,
        known: Mapping[str, Known] = MappingProxyType({}),
        unsaid: Callable[[Made, str], Any] = lambda *_: None,
        makers: Collection[str] = (),
        decorators: Collection[str] = (),
    ) -> None:
        text = text.removeprefix("\ufeff")  # Python reads a file that begins with this mark as UTF-8
        self.lines, self.source, self.problems = text.splitlines() or [""], source, problems
        self.unsaid = unsaid
        self.known, self.makers, self.decorators = known, frozenset(makers), frozenset(decorators)
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
        self._inner = [node for top in tree.body for node in ast.walk(top) if node is not top and isinstance(node, ast.ImportFrom)]

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

    def only(self, functions: Sequence[str], noun: str) -> str:
        """The one function of a kind that a file has. Problems where there are none or several."""
        if len(functions) != 1:
            listed = ", ".join(functions[:8]) + (", ..." if len(functions) > 8 else "")
            message = f"the file has {len(functions)} {noun}: {listed}" if functions else f"the file has no {noun}"
            help = f"say which: `{self.source}:{functions[0]}`" if functions else "is it the right file?"
            self.problems.add("PP501", message, place=self.begin, help=help)
            self.problems.raise_if_any()
        return functions[0]

    def sources(self, name: str) -> Iterator[tuple[str, ast.stmt]]:
        """Where a name comes from, for the file and inside of functions, and the statements that say so."""
        if name in self.origins:
            yield self.origins[name]
        yield from ((origin, node) for node in self._inner for one, origin in _imported(node) if one == name)

    @property
    def begin(self) -> Place:
        """Where the file begins."""
        return self._at(1, 1, 1)

    def place(self, node: ast.AST) -> Place:
        """Where something stands."""
        return self._at(*self.span(node))

    def span(self, node: ast.AST) -> tuple[int, int, int]:
        """Its line, its column, and its length in that line."""
        line = getattr(node, "lineno", 1)
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        column = characters(text, getattr(node, "col_offset", 0))
        name = node.arg if isinstance(node, ast.keyword) and node.arg else ""
        end = characters(text, getattr(node, "end_col_offset", 0)) if getattr(node, "end_lineno", line) == line else 0
        return line, column + 1, len(name) or max(end - column, 1)

    def _at(self, line: int, column: int, length: int) -> Place:
        line = min(max(line, 1), len(self.lines))
        return Place(source=self.source, line=line, column=column, length=length, text=self.lines[line - 1])

    def _top(self, node: ast.stmt) -> None:
        """A statement outside functions: an assignment is followed, and names that are bound in another way are not known."""
        try:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                self._assign(node, self.names, 0)
                return
        except (UnreadPythonError, RecursionError):
            pass
        if isinstance(node, ast.ImportFrom):
            self.origins |= {name: (origin, node) for name, origin in _imported(node)}
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
        others = {ast.unparse(one.func if isinstance(one, ast.Call) else one) for one in function.decorator_list} - self.decorators
        if spec.vararg or others:
            raise UnreadPythonError(f"`{function.name}`, which takes arguments of any name or is decorated", node)
        for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            if default is not None:
                names.setdefault(arg.arg, self._value(default, self.names, depth))
        positional = [*spec.posonlyargs, *spec.args]
        for arg, value in zip(positional[len(positional) - len(spec.defaults) :], spec.defaults, strict=True):
            names.setdefault(arg.arg, self._value(value, self.names, depth))
        taken = {arg.arg for arg in (*positional, *spec.kwonlyargs)}
        if spec.kwarg is not None:
            further = {name: names.pop(name) for name in [*names] if name not in taken}
            taken, names[spec.kwarg.arg] = {*taken, spec.kwarg.arg}, further
        if names.keys() != taken:
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
            imported = isinstance(node, ast.Import | ast.ImportFrom)
            bound = [alias.asname or alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else [node.name]
            names.update({name: Unknown(name) if imported else _Inner(name) for name in bound})
        elif isinstance(node, ast.If):
            for inner in node.body if self._decided(node.test, names, depth) else node.orelse:
                self._statement(inner, names, depth)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._called_alone(node.value, names, depth)
        elif not isinstance(node, ast.Assert | ast.Pass) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            raise UnreadPythonError(f"`{ast.unparse(node).splitlines()[0][:60]}`", node)

    def _assign(self, node: ast.Assign | ast.AnnAssign, names: dict[str, Any], depth: int) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is None:
            return
        value = self._value(node.value, names, depth)
        for target in targets:
            self._bind(target, value, node, names, depth)

    def _bind(self, target: ast.expr, value: Any, node: ast.stmt, names: dict[str, Any], depth: int) -> None:
        """Name a value, or set an attribute."""
        if isinstance(target, ast.Name):
            names[target.id] = value
        elif isinstance(target, ast.Attribute):
            made = self._attributes(target.value, names, depth, make=True)
            if not isinstance(made, Made):
                raise UnreadPythonError(f"`{ast.unparse(node)[:60]}`", node)
            made.said[target.attr], made.places[target.attr], made.changed = value, node, True
        elif isinstance(target, ast.Tuple):
            several = isinstance(value, list) and len(value) == len(target.elts)
            for at, one in enumerate(target.elts):
                self._bind(one, value[at] if several else Unknown(ast.unparse(one)), node, names, depth)
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
            base.said[node.attr], base.places[node.attr], base.changed = Made("", node), node, True
        return base.said.get(node.attr, self.unsaid(base, node.attr) or Unknown(ast.unparse(node)))

    def _value(self, node: ast.expr, names: dict[str, Any], depth: int) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return names.get(node.id, self.names.get(node.id, Unknown(node.id)))
            case ast.List() | ast.Tuple() | ast.Set():
                return [self._value(item, names, depth) for item in node.elts]
            case ast.Dict():
                return self._mapping(node, names, depth)
            case ast.UnaryOp(op=ast.USub()):
                value = self._value(node.operand, names, depth)
                return -value if isinstance(value, int | float) else Unknown(ast.unparse(node))
            case ast.BinOp():
                return self._computed(node, names, depth)
            case ast.Attribute():
                return self._attributes(node, names, depth)
            case ast.Subscript():
                return self._item(node, names, depth)
            case ast.IfExp() | ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return self._logical(node, names, depth)
            case ast.Call():
                return self._called(node, names, depth)
        return Unknown(ast.unparse(node)[:80])

    def _mapping(self, node: ast.Dict, names: dict[str, Any], depth: int) -> Any:
        """A dictionary; a part of it that is not followed makes all of it open."""
        made: dict[Any, Any] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            value = self._value(item, names, depth)
            if key is not None and plain(name := self._value(key, names, depth)) and not isinstance(name, dict):
                made[hashable(name)] = value
            elif key is None and isinstance(value, dict):
                made |= value
            else:
                return Unknown(ast.unparse(node)[:80])
        return made

    def _item(self, node: ast.Subscript, names: dict[str, Any], depth: int) -> Any:
        base, key = self._value(node.value, names, depth), self._value(node.slice, names, depth)
        if not plain(key) or not isinstance(base, dict | list | Unknown):
            return Unknown(ast.unparse(node)[:80])
        if isinstance(base, Unknown):
            return Unknown(f"{base.text}[{key!r}]"[:80])
        try:
            return base[hashable(key)]
        except (KeyError, IndexError, TypeError):
            return Unknown(ast.unparse(node)[:80])

    def _decided(self, node: ast.expr, names: dict[str, Any], depth: int) -> bool:
        """Whether a branch is taken. A test that known values do not decide is not followed."""
        true = truth(self._value(node, names, depth))
        if true is None:
            raise UnreadPythonError(f"`if {ast.unparse(node)[:60]}`, which known values do not decide", node)
        return true

    def _logical(self, node: ast.expr, names: dict[str, Any], depth: int) -> Any:
        """A test, or a value that a test chooses."""
        open_ = Unknown(ast.unparse(node)[:80])
        match node:
            case ast.UnaryOp():
                true = truth(self._value(node.operand, names, depth))
                return open_ if true is None else not true
            case ast.IfExp():
                true = truth(self._value(node.test, names, depth))
                return open_ if true is None else self._value(node.body if true else node.orelse, names, depth)
            case ast.BoolOp():
                for one in node.values:
                    value = self._value(one, names, depth)
                    true = truth(value)
                    if true is None or true is isinstance(node.op, ast.Or):
                        return open_ if true is None else value
                return value
            case ast.Compare(left=left, ops=[sign], comparators=[right]):
                answer = compared(sign, self._value(left, names, depth), self._value(right, names, depth))
                return open_ if answer is None else answer
        return open_

    def _computed(self, node: ast.BinOp, names: dict[str, Any], depth: int) -> Any:
        left, right = self._value(node.left, names, depth), self._value(node.right, names, depth)
        if isinstance(left, list) and isinstance(node.op, ast.Add) and isinstance(right, list):
            return [*left, *right]
        if isinstance(left, list) and isinstance(node.op, ast.Mult) and type(right) is int and len(left) * right <= MOST:
            return left * right
        numbers = all(isinstance(side, int | float) and not isinstance(side, bool) and abs(side) < _LARGEST for side in (left, right))
        sign = _SIGNS.get(type(node.op))
        if sign is None or not numbers or (right == 0 and isinstance(node.op, ast.Div | ast.FloorDiv)):
            return Unknown(ast.unparse(node)[:80])
        return sign(left, right)

    def _called_alone(self, node: ast.Call, names: dict[str, Any], depth: int) -> None:
        """A call whose value is not used: it may change what it is given."""
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in ("append", "extend") and len(node.args) == 1:
            many, more = self._value(function.value, names, depth), self._value(node.args[0], names, depth)
            if isinstance(many, list) and (function.attr == "append" or isinstance(more, list)):
                many.extend([more] if function.attr == "append" else more)
                return
        elif isinstance(function, ast.Name):
            if (function.id not in names and function.id in self.functions) or self._origin(function.id) in self.known:
                self._called(node, names, depth)
                return
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            if function.id not in names and all(plain(self._value(one, names, depth)) for one in given):
                return
        raise UnreadPythonError(f"`{ast.unparse(node)[:60]}`, which may change what it is given", node)

    def _origin(self, name: str) -> str:
        """Where a function of another file comes from, with its own name; as it is written where no import says it."""
        first, _, rest = name.partition(".")
        if first not in self.origins:
            return name
        module, own = self.origins[first][0], ""
        module, _, own = module.partition(":")
        return f"{module}.{own or first}" + (f".{rest}" if rest else "")

    def _asked(self, name: str, given: list[Any]) -> Any:
        """What is asked of a value, where that is known; a made object has the attributes that were said."""
        if name == "hasattr" and len(given) == 2 and isinstance(given[0], Made) and given[1] in given[0].said:
            return True
        if name == "isinstance" and len(given) == 2 and isinstance(given[1], Unknown) and given[1].text in _TYPES:
            value = given[0]
            if plain(value) or isinstance(value, list | dict):
                return isinstance(value, _TYPES[given[1].text])
        return None

    def _called(self, node: ast.Call, names: dict[str, Any], depth: int) -> Any:
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("lower", "upper", "strip") and not node.args and not node.keywords:
            base = self._value(node.func.value, names, depth)
            if isinstance(base, str):
                return getattr(base, node.func.attr)()
        name = ast.unparse(node.func)
        owner = self._value(node.func.value, names, depth) if isinstance(node.func, ast.Attribute) else names.get(name)
        if isinstance(owner, _Inner) or (may_change(name) and configurations(owner)):
            raise UnreadPythonError(f"`{ast.unparse(node)[:60]}`, which may change what is around it", node)
        given = [self._value(argument, names, depth) for argument in node.args]
        said = {keyword.arg: self._value(keyword.value, names, depth) for keyword in node.keywords if keyword.arg is not None}
        places: dict[str, ast.AST] = {keyword.arg: keyword for keyword in node.keywords if keyword.arg is not None}
        starred = any(isinstance(one, ast.Starred) for one in node.args)
        for keyword in node.keywords:
            more = None if keyword.arg is not None else self._value(keyword.value, names, depth)
            if isinstance(more, dict) and all(isinstance(key, str) for key in more):
                said, places = {**said, **more}, {**dict.fromkeys(more, node), **places}
            starred = starred or (keyword.arg is None and not isinstance(more, dict))
        function = None if name in names else self.functions.get(name)
        if function is not None:
            parameters = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
            if starred or len(given) > len(parameters):
                raise UnreadPythonError(f"`{ast.unparse(node)[:60]}`", node)
            return self._call(function, {**dict(zip(parameters, given, strict=False)), **said}, node, depth + 1)
        return self._made(Made(name, node, said, places, given, starred), names)

    def _made(self, made: Made, names: Mapping[str, Any]) -> Any:
        """What a call comes to that is of no function of this file."""
        name, given = made.name, made.given
        first = given[0] if given else None
        if name in ("dataclasses.replace", "replace") and isinstance(first, Made):
            return Made(
                first.name,
                first.node,
                {**first.said, **made.said},
                {**first.places, **made.places},
                first.given,
                made.starred or first.starred,
            )
        if name not in names and (known := self.known.get(self._origin(name))) is not None:
            return known(made)
        if name in ("hasattr", "isinstance"):
            answer = self._asked(name, given)
            return Unknown(ast.unparse(made.node)[:80]) if answer is None else answer
        if may_change(name) and name not in self.makers and configurations([*given, *made.said.values()]):
            raise UnreadPythonError(f"`{ast.unparse(made.node)[:60]}`, which may change what it is given", made.node)
        return made
