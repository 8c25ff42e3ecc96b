"""Mutants of the product: one small change of its source each, made and chosen by a seed.

Only changes of behaviour are made: no text of messages, no annotations, no assertions. Data is changed too: a mode, a number or a truth
value in a TOML file, and step programs like any source. What imports PyTorch is left alone: the tests that reach it are skipped without it.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "placeproof"
PACKAGES = tuple(sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()))
#: Of each package so many at least; the rest are drawn from all together, so that each has a share by its size.
LEAST = 5
#: Tables of texts, where a change shows in a message and in nothing else.
TEXTS = ("core/codes.py", "core/diagnostics.py")
#: What needs PyTorch, by what its source says.
_TORCH = re.compile(r"^\s*(?:import|from) torch\b", re.MULTILINE)

_COMPARE = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.In: ast.NotIn,
    ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult}
_LAYOUTS = {"REPLICATE": "SHARD", "SHARD": "PARTIAL", "PARTIAL": "REPLICATE"}
_MODES = {"R": "S", "S": "R", "S*": "S", "M": "R", "O": "S"}

#: What TOML files consist of. A table's name and a key are remembered, and told with a change below them.
_TOKEN = re.compile(
    r"(?P<comment>#[^\n]*)|(?P<long>'''.*?'''|\"\"\".*?\"\"\")|(?P<text>\"[^\"\n]*\"|'[^'\n]*')|(?<![^\n])\[+(?P<table>[^\]\n]+)\]+"
    r"|(?P<key>[\w.-]+)(?= *=)|(?P<data>\btrue\b|\bfalse\b|\b\d+)",
    re.DOTALL,
)
_NUMBER = re.compile(r"(?<![\w.])\d+\b")
#: Keys, and tables, whose texts are for a reader.
_PROSE = {"name", "title", "source", "note", "doc", "summary", "says", "why", "rule", "citation", "id", "asks", "proved", "family"}
_PROSE_TABLES = ("differences", "assumed")


@dataclass(frozen=True)
class Mutant:
    """A file of the package with one change, of the text from ``start`` to ``end``. ``path`` is relative to the package.

    ``where``: the function or table; ``before`` and ``after`` are for a reader.
    """

    path: str
    where: str
    line: int
    kind: str
    before: str
    after: str
    start: int = 0
    end: int = 0
    put: str = ""

    @property
    def name(self) -> str:
        """What was changed, on one line: a key that stays the same while the function's name and the line do."""
        return f"{self.path} {self.where}: {self.kind}: {self.before} -> {self.after}"

    @property
    def source(self) -> str:
        """The file with the change."""
        text = (PACKAGE / self.path).read_text(encoding="utf-8")
        return text[: self.start] + self.put + text[self.end :]


def chosen(count: int, seed: int | str, reached: Callable[[Mutant], object], only: Sequence[str] = ("*",)) -> list[Mutant]:
    """So many mutants of all that can be made of files that match; at most three of one function or table. Of `measure`, only what tests
    reach: the rest needs PyTorch.

    Each is drawn by its own name, so that a change of the product elsewhere leaves most of the choice as it was.
    """
    drawn = sorted(every().values(), key=lambda m: hashlib.sha256(f"{seed} {m.name}".encode()).digest())
    taken: Counter[tuple[str, str]] = Counter()
    of: Counter[str] = Counter()
    first, rest = [], []
    for mutant in drawn:
        package = mutant.path.partition("/")[0]
        if not any(fnmatch(mutant.path, pattern) for pattern in only) or (package == "measure" and not reached(mutant)):
            continue
        taken[mutant.path, mutant.where] += 1
        if taken[mutant.path, mutant.where] <= 3:
            of[package] += 1
            (first if of[package] <= LEAST else rest).append(mutant)
        if len(first) == LEAST * len(PACKAGES) and len(first) + len(rest) >= count:
            break
    return (first + rest)[:count]


@lru_cache(maxsize=1)
def every() -> dict[str, Mutant]:
    """All that can be made, by name; of several of one name the first."""
    found: dict[str, Mutant] = {}
    for folder in PACKAGES:
        for path in sorted((PACKAGE / folder).rglob("*")):
            for mutant in _sites(path, str(path.relative_to(PACKAGE))):
                found.setdefault(mutant.name, mutant)
    return found


def _sites(path: Path, relative: str) -> Iterator[Mutant]:
    if path.suffix not in (".py", ".step", ".toml") or relative in TEXTS:
        return
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".toml":
        yield from _data(relative, text)
    elif path.suffix == ".step" and "{" in text:
        return  # a template, no program
    elif not _TORCH.search(text):
        maker = _Maker(relative, text)
        maker.visit(ast.parse(text))
        yield from maker.sites


def _data(path: str, text: str) -> Iterator[Mutant]:
    """Changes of a TOML file: a mode becomes another one, a number one more, a truth value the other."""
    table, key = "head", ""
    for found in _TOKEN.finditer(text):
        table, key = found["table"] or table, found["key"] or key
        for start, end, put, kind in _changes(found, key, table):
            begin, line = text.rfind("\n", 0, start) + 1, text.count("\n", 0, start) + 1
            stop = text.find("\n", end) % (len(text) + 1)
            before, after = (f"{key}: {t.strip()[:90]}" for t in (text[begin:stop], text[begin:start] + put + text[end:stop]))
            yield Mutant(path, table, line, kind, before, after, start, end, put)


def _changes(token: re.Match[str], key: str, table: str) -> Iterator[tuple[int, int, str, str]]:
    """Where a token can be changed, and into what."""
    if token["data"]:
        other = {"true": "false", "false": "true"}.get(token["data"])
        yield token.start(), token.end(), other or str(int(token["data"]) + 1), "data"
    elif token["text"] and token["text"][1:-1] in _MODES and key in ("parameters", "optimizer", "gradients", "activations"):
        yield token.start() + 1, token.end() - 1, _MODES[token["text"][1:-1]], "mode"
    elif token["text"] and key not in _PROSE and not table.endswith(_PROSE_TABLES):
        for number in _NUMBER.finditer(token["text"]):
            yield token.start() + number.start(), token.start() + number.end(), str(int(number[0]) + 1), "data"


def _told(node: ast.AST) -> bool:
    """Whether it is a text for a reader."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value)


def _tells(node: ast.Call) -> bool:
    """Whether it tells a user something."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in ("add", "suggestion", "symbol") or name.endswith("Error")


class _Maker(ast.NodeVisitor):
    """Lists all changes that can be made of a source, as changes of its text."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text
        self.sites: list[Mutant] = []
        self.where: list[str] = []
        lines = text.splitlines(keepends=True)
        self.begins = [0, *itertools.accumulate(map(len, lines))]
        self.lines = [line.encode() for line in lines]

    def _at(self, line: int, column: int) -> int:
        """Where it is in the text; a column counts bytes."""
        return self.begins[line - 1] + len(self.lines[line - 1][:column].decode())

    def _can(self, node: ast.AST, kind: str, new: ast.AST) -> None:
        """What the node can be changed into."""
        put, before = ast.unparse(ast.fix_missing_locations(new)), ast.unparse(node)
        told = (" ".join(text.split())[:90] for text in (before, put))
        where = ".".join(self.where) or "module"
        start, end = self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)
        self.sites.append(Mutant(self.path, where, node.lineno, kind, *told, start, end, f"({put})" if isinstance(new, ast.expr) else put))

    def _inside(self, node: ast.AST) -> None:
        """Neither decorators nor annotations are changed."""
        self.where.append(node.name)
        for one in node.body:
            self.visit(one)
        self.where.pop()

    visit_FunctionDef = visit_ClassDef = _inside  # noqa: N815

    def _as_it_is(self, node: ast.AST) -> None:
        pass

    visit_Assert = visit_Raise = visit_JoinedStr = visit_Import = visit_ImportFrom = _as_it_is  # noqa: N815

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """The value, not the annotation."""
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        """A table at the top of a module has a name of its own."""
        named = not self.where and isinstance(node.targets[0], ast.Name)
        self.where += [node.targets[0].id] if named else []
        self.generic_visit(node)
        del self.where[len(self.where) - named :]

    def visit_Call(self, node: ast.Call) -> None:
        """Nothing of what is told to a user."""
        if not _tells(node):
            self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        """Not `strict`, which asserts that lengths are equal."""
        if node.arg != "strict":
            self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        """The other branch."""
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self._can(node.test, "condition", ast.UnaryOp(ast.Not(), node.test))
            self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """The other value."""
        if not (_told(node.body) or _told(node.orelse)):
            self._can(node, "condition", ast.IfExp(node.test, node.orelse, node.body))
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Another relation."""
        if type(node.ops[0]) in _COMPARE:
            self._can(node, "relation", ast.Compare(node.left, [_COMPARE[type(node.ops[0])](), *node.ops[1:]], node.comparators))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Another operation; not of texts, and not of sets of types."""
        text = any(
            isinstance(n, ast.Constant | ast.JoinedStr) and isinstance(getattr(n, "value", ""), str) for n in (node.left, node.right)
        )
        if type(node.op) in _ARITHMETIC and not text:
            self._can(node, "arithmetic", ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """And for or."""
        if not any(_told(n) for n in node.values):
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            self._can(node, "and, or", ast.BoolOp(other, node.values))
            self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Without the not."""
        if isinstance(node.op, ast.Not):
            self._can(node, "not", node.operand)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Another number, another truth value."""
        if isinstance(node.value, bool):
            self._can(node, "constant", ast.Constant(not node.value))
        elif isinstance(node.value, int | float):
            self._can(node, "constant", ast.Constant(node.value + 1))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Another layout."""
        if isinstance(node.value, ast.Name) and node.value.id == "Layout" and node.attr in _LAYOUTS:
            self._can(node, "layout", ast.Attribute(node.value, _LAYOUTS[node.attr], node.ctx))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Overwritten instead of accumulated."""
        self._can(node, "overwrite", ast.Assign([node.target], node.value))
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """A call that is not made; not a docstring."""
        if isinstance(node.value, ast.Call) and not _tells(node.value):
            self._can(node, "left out", ast.Pass())
            self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        """Goes on."""
        self._can(node, "left out", ast.Pass())
