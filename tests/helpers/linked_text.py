"""The text of a linked program, read with Python's own parser: what its header says, which blocks and segments it defines.

A part of the second opinion of `linked_walk.py`, which is written from the manual and shares nothing with what derives formulas.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod


class NotWalkedError(Exception):
    """The program has something that is not walked."""


def number(node: ast.expr, known: Mapping[str, Fraction]) -> Fraction:
    """An expression of symbols."""
    match node:
        case ast.Constant(value=int(value)):
            return Fraction(value)
        case ast.Name(id=name):
            return known[name]
        case ast.BinOp(left=left, op=op, right=right):
            a, b = number(left, known), number(right, known)
            return {ast.Add: a + b, ast.Sub: a - b, ast.Mult: a * b}[type(op)] if not isinstance(op, ast.Div) else a / b
    raise NotWalkedError(ast.unparse(node))


def options(call: ast.Call) -> dict[str, str]:
    """What is written ``name=value``, without quotes."""
    return {str(k.arg): ast.unparse(k.value).strip("'") for k in call.keywords}


@dataclass(frozen=True)
class Call:
    """A line of a segment: ``x = attention(x, n)``."""

    gives: str
    block: str


@dataclass
class Header:
    """What stands before the first statement, with numbers for symbols."""

    known: dict[str, Fraction]
    degrees: dict[str, int] = field(default_factory=dict)  # of axes, and of the factors of axes with sub-groups
    sizes: dict[str, Fraction] = field(default_factory=dict)  # of dimensions
    stack: list[tuple[str, int]] = field(default_factory=list)  # segments, each so many times over
    shared: set[str] = field(default_factory=set)
    rings: set[str] = field(default_factory=set)
    own_samples: set[str] = field(default_factory=set)  # axes whose devices have
    recompute: set[str] = field(default_factory=set)
    stages: list[int] = field(default_factory=list)
    unit: Fraction | None = None  # parameters in a unit
    one_unit: bool = False
    pipeline: str | None = None
    schedule: str = "1f1b"
    chunks: int = 1
    first_group: str = "all"
    members: dict[tuple[str, str], str] = field(default_factory=dict)  # (block, weight) -> group
    placed: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)  # (state, group) -> axis -> mode

    def mode(self, state: str, group: str) -> dict[str, str]:
        """How the group of a state lies: what is said of a group counts before what is said of all."""
        return self.placed.get((state, group)) or self.placed.get((state, "all"), {})

    def parts(self, state: str, group: str) -> int:
        """Into how many parts the axes divide the group of a state."""
        return prod(self.degrees[axis] for axis, mode in self.mode(state, group).items() if mode != "R")


class Text:
    """A linked program: its header, definitions and statements."""

    def __init__(self, text: str, known: Mapping[str, Fraction]) -> None:
        self.head = Header(dict(known))
        self.defs: dict[str, ast.FunctionDef] = {}
        self.body: list[ast.stmt] = []
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                self.defs[node.name] = node
            elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and self._header(node.value)):
                self.body.append(node)
        segments = {name for name, _ in self.head.stack}
        self.segments = {name: [_call(line) for line in self.defs[name].body] for name in segments}
        self.repeated = {name for name, times in self.head.stack if times > 1}
        self.root_apart = "units[1:]" in text

    def _header(self, call: ast.Call) -> bool:
        """Whether it is a line of the header; what it says is noted."""
        head, args, said = self.head, [ast.unparse(a) for a in call.args], options(call)
        match ast.unparse(call.func):
            case "program" | "model" | "approximate":
                pass  # nothing of amounts
            case "splits":
                head.own_samples |= {axis for axis, what in said.items() if what == "batch"}
            case "mesh":
                if args:
                    raise NotWalkedError("a degree is open")
                head.degrees |= {axis: int(n) for axis, n in said.items()}
            case "inner":
                for axis, n in said.items():
                    head.degrees |= {f"{axis}_inner": int(n), f"{axis}_outer": head.degrees[axis] // int(n)}
            case "values":
                head.known = {name: Fraction(n) for name, n in said.items()} | head.known
            case "size":
                head.sizes[args[0]] = number(call.args[1], head.known)
            case "stack":
                head.stack = [_times(part, head.known) for part in call.args]
            case "count":
                head.one_unit = said.get("units") == "1"
                head.known |= {"m": Fraction(said["microbatches"])} if "microbatches" in said else {}
            case "unit":
                head.unit = Fraction(args[0])
            case "place":
                state, _, group = args[0].partition(".")
                head.placed[state, group or "all"] = said
            case "group":
                self._group(args[0], args[1], said)
            case _ as name:
                return self._step(name, args, said)
        return True

    def _step(self, name: str, args: list[str], said: Mapping[str, str]) -> bool:
        """What linked programs say beside other step programs."""
        head = self.head
        match name:
            case "shared":
                head.shared = set(args)
            case "ring":
                head.rings = set(args)
            case "recompute":
                head.recompute = set(args)
            case "stages":
                head.stages = [int(n) for n in args]
            case "pipeline":
                head.pipeline, head.schedule, head.chunks = args[0], said["schedule"], int(said["chunks"])
            case _:
                return False
        return True

    def _group(self, name: str, members: str, said: Mapping[str, str]) -> None:
        for axis in said.get("experts", "").split():
            if axis in self.head.own_samples:  # its devices have samples of their own: the batch is that of one
                self.head.sizes["batch"] *= self.head.degrees[axis]
        if "." not in members:  # the first group has all that are in no other
            self.head.first_group = name
        for block, _, weight in (term.partition(".") for term in members.split(" + ") if "." in term):
            self.head.members[block, weight] = name


def _times(part: ast.expr, known: Mapping[str, Fraction]) -> tuple[str, int]:
    """A segment of the stack, and how often it is there."""
    if isinstance(part, ast.BinOp):
        return ast.unparse(part.left), int(number(part.right, known))
    return ast.unparse(part), 1


def _call(line: ast.stmt) -> Call:
    assert isinstance(line, ast.Assign)
    assert isinstance(line.value, ast.Call)
    return Call(ast.unparse(line.targets[0]), ast.unparse(line.value.func))
