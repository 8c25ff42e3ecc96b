"""The header of a step program: its mesh, groups, placements and counts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from placeproof.core.bounds import LARGEST, MOST_COUNT, a_count
from placeproof.core.diagnostics import Place, Problems, suggestion
from placeproof.core.mesh import SPLITS, USUAL_SPLITS, Axis, axis_order
from placeproof.core.modes import MODES, Mode
from placeproof.core.states import STATES
from placeproof.programs.assumptions import ASSUMPTIONS, always_made
from placeproof.programs.ir import DEFAULT_GROUP, Expr, Group, Placed, Program, Ref, Stmt, Tensor, Term
from placeproof.programs.losses import read_terms
from placeproof.programs.ops import DOMAINS

#: What a single device's step may do beyond a plain one: option -> allowed values, the first being what is usual.
REFERENCE: dict[str, tuple[str, ...]] = {
    "optimizer": ("elementwise", "tensor_norm", "matrix", "orthogonal", "factored", "preconditioned"),
    "clip": ("none", "global_norm"),
    "dropout": ("none", "output"),
    "skip": ("never", "not_finite"),
    "statistics": ("none", "batch"),
}

#: What a group may say of itself: where it names an axis, one or several; where it does not, words.
_GROUP_AXIS, _GROUP_AXES = ("tied",), ("partial", "experts", "whole")
_GROUP_WORDS = {"update": ("elementwise", "tensor_norm"), "frozen": ("true",)}
_GROUP_OPTIONS = (*_GROUP_AXES, *_GROUP_AXIS, *_GROUP_WORDS)


class Reader(Protocol):
    """What the header needs of the reader of expressions."""

    def place(self, node: ast.AST) -> Place:
        """Where a node stands."""

    def expression(self, node: ast.expr) -> Expr | None:
        """One expression, or None when it could not be read."""

    def refuse(self, node: ast.AST, message: str, help: str | None = None, code: str = "PP303") -> None:
        """Record a problem at a node."""


@dataclass(slots=True)
class Header:
    """What the header lines have said so far."""

    name: str | None = None
    degrees: dict[str, int | None] = field(default_factory=dict)
    splits: dict[str, str] = field(default_factory=dict)
    inner: dict[str, int | str] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)
    placed: list[Placed] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    unit: int | None = None
    approximates: list[str] = field(default_factory=list)
    reference: dict[str, str] = field(default_factory=dict)
    loss: tuple[Term, ...] | None = None
    without: list[str] = field(default_factory=list)
    not_compared: dict[str, str] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)

    def program(self, body: tuple[Stmt, ...], source: str, problems: Problems) -> Program:
        """The program that the header and a body make."""
        for said, what in ((self.splits, "splits"), (self.inner, "inner")):
            for axis in said:
                if axis not in self.degrees:
                    problems.add("PP305", f"`{what}` names `{axis}`, which is no axis of the mesh", help=_axes_help(self.degrees))
        axes = sorted((self._axis(name, degree, problems) for name, degree in self.degrees.items()), key=axis_order)
        groups = self.groups or [Group(name=DEFAULT_GROUP, size=Ref(name="P"))]
        return Program(
            name=self.name or stem(source),
            axes=tuple(axes),
            groups=tuple(groups),
            placed=tuple(self.placed),
            body=body,
            counts=tuple(sorted(self.counts.items())),
            unit=self.unit,
            approximates=tuple(self.approximates),
            reference=tuple(sorted(self.reference.items())),
            loss=self.loss or (),
            without=tuple(dict.fromkeys(self.without)),
            not_compared=tuple(self.not_compared.items()),
            tensors=tuple(self.tensors),
        )

    def _axis(self, name: str, degree: int | None, problems: Problems) -> Axis:
        split = self.splits.get(name) or USUAL_SPLITS.get(name)
        if split is None:
            problems.add(
                "PP305",
                f"what does axis `{name}` split?",
                help=f'say it in the header: `splits({name}="batch")`; one of ' + ", ".join(SPLITS),
            )
            split = "batch"
        return Axis(name=name, splits=SPLITS[split], degree=degree, inner=self.inner.get(name))


def stem(source: str) -> str:
    """The name of a program that does not say its name: the last part of where it was read from."""
    base = re.split(r"[\\/]", source)[-1]
    return re.sub(r"\.[A-Za-z]+$", "", base).strip("<>") or "program"


def read_header(node: ast.Call, header: Header, reader: Reader) -> None:
    """Read one header line into ``header``."""
    assert isinstance(node.func, ast.Name)
    readers = {
        "program": _program,
        "mesh": _mesh,
        "splits": _splits,
        "inner": _inner,
        "group": _group,
        "place": _place,
        "count": _count,
        "unit": _unit,
        "approximate": _approximate,
        "reference": _reference,
        "without": _without,
        "not_compared": _not_compared,
        "tensor": _tensor,
    }
    readers[node.func.id](node, header, reader)


def _text(node: ast.expr) -> str | None:
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.Name(id=name):
            return name
    return None


def _shown(node: ast.expr) -> str:
    """What stands there, for a message."""
    return _text(node) or ast.unparse(node)


def _positive(node: ast.expr, what: str, reader: Reader, most: int = MOST_COUNT) -> int | None:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool) and 1 <= value <= most:
            return value
    reader.refuse(node, f"{what} is {a_count(most)}", code="PP103")
    return None


def _keywords(node: ast.Call, reader: Reader) -> Iterable[tuple[str, ast.expr]]:
    for keyword in node.keywords:
        if keyword.arg is None:
            reader.refuse(keyword.value, "`**` cannot be used here")
        else:
            yield keyword.arg, keyword.value


def _only_keywords(node: ast.Call, reader: Reader) -> bool:
    for arg in node.args:
        reader.refuse(arg, "this line takes `name=value` only")
    return not node.args


def _program(node: ast.Call, header: Header, reader: Reader) -> None:
    match node:
        case ast.Call(args=[ast.Constant(value=str(name))], keywords=[]):
            header.name = name
        case _:
            reader.refuse(node, 'expected `program("name")`')


def _mesh(node: ast.Call, header: Header, reader: Reader) -> None:
    for arg in node.args:
        if isinstance(arg, ast.Name):
            _new_axis(arg.id, None, arg, header, reader)
        else:
            reader.refuse(arg, "expected the name of a mesh axis")
    for name, value in _keywords(node, reader):
        if (degree := _positive(value, f"the degree of `{name}`", reader)) is not None:
            _new_axis(name, degree, value, header, reader)


def _once(values: dict[str, Any], name: str, value: object, node: ast.AST, reader: Reader) -> None:
    """Note what a header says of a name; a header that says it twice may contradict itself."""
    if name in values:
        reader.refuse(node, f"`{name}` is said twice", "say it once", code="PP305")
    values[name] = value


def _new_axis(name: str, degree: int | None, node: ast.AST, header: Header, reader: Reader) -> None:
    if name in header.degrees:
        reader.refuse(node, f"axis `{name}` is named twice", code="PP305")
    header.degrees[name] = degree


def _splits(node: ast.Call, header: Header, reader: Reader) -> None:
    if not _only_keywords(node, reader):
        return
    for name, value in _keywords(node, reader):
        text = _text(value)
        if text in SPLITS:
            assert text is not None
            _once(header.splits, name, text, value, reader)
        else:
            reader.refuse(value, f"`{_shown(value)}` is nothing that an axis can split", "one of " + ", ".join(SPLITS))


def _inner(node: ast.Call, header: Header, reader: Reader) -> None:
    if not _only_keywords(node, reader):
        return
    for name, value in _keywords(node, reader):
        if isinstance(value, ast.Name):
            _once(header.inner, name, value.id, value, reader)
        elif (size := _positive(value, f"the sub-group size of `{name}`", reader)) is not None:
            _once(header.inner, name, size, value, reader)


def _group(node: ast.Call, header: Header, reader: Reader) -> None:
    match node:
        case ast.Call(args=[ast.Name(id=name), size]):
            read = reader.expression(size)
            options = _group_options(node, reader)
            if any(g.name == name for g in header.groups):
                reader.refuse(node, f"group `{name}` is named twice", code="PP305")
            elif read is not None:
                header.groups.append(Group(name=name, size=read, place=reader.place(node), **options))
        case _:
            reader.refuse(node, "expected `group(name, size)`, for example `group(matrix, P - P_norm)`")


def _group_options(node: ast.Call, reader: Reader) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in _keywords(node, reader):
        axis = _text(value)
        if name not in _GROUP_OPTIONS:
            reader.refuse(value, f"a group has no option `{name}`", suggestion(name, _GROUP_OPTIONS) or ", ".join(_GROUP_OPTIONS))
        elif name in _GROUP_WORDS:
            if axis in _GROUP_WORDS[name]:
                _once(options, name, True if name == "frozen" else axis, value, reader)
            else:
                reader.refuse(value, f"`{_shown(value)}` is no value of `{name}`", "one of " + ", ".join(_GROUP_WORDS[name]))
        elif axis is None or not axis.split():
            reader.refuse(value, f"`{name}` names an axis of the mesh", f"for example `{name}=tp`")
        else:
            _once(options, name, tuple(axis.split()) if name in _GROUP_AXES else axis, value, reader)
    return options


def _place(node: ast.Call, header: Header, reader: Reader) -> None:
    state: str | None = None
    group: str | None = None
    match node.args:
        case [ast.Name(id=name)]:
            state = name
        case [ast.Attribute(value=ast.Name(id=name), attr=attr)]:
            state, group = name, attr
    if state not in STATES:
        reader.refuse(node, f"`place` takes a state: {', '.join(STATES)}", suggestion(state or "", STATES), code="PP305")
        return
    assert state is not None
    modes: dict[str, Mode] = {}
    for axis, value in _keywords(node, reader):
        text = _text(value)
        if text in MODES:
            assert text is not None
            _once(modes, axis, MODES[text], value, reader)
        else:
            reader.refuse(value, f"`{_shown(value)}` is not a mode", 'one of "R", "S", "S*", "M", "O"', code="PP305")
    if any(p.state == state and p.group == group for p in header.placed):
        reader.refuse(node, f"`{state}` is placed twice", code="PP305")
    header.placed.append(Placed(state=state, group=group, modes=tuple(sorted(modes.items())), place=reader.place(node)))


def _count(node: ast.Call, header: Header, reader: Reader) -> None:
    if not _only_keywords(node, reader):
        return
    for name, value in _keywords(node, reader):
        if name not in DOMAINS:
            reader.refuse(node, f"`{name}` is nothing that a loop walks over", suggestion(name, DOMAINS))
        elif (number := _positive(value, f"the number of {name}", reader)) is not None:
            _once(header.counts, name, number, value, reader)


def _unit(node: ast.Call, header: Header, reader: Reader) -> None:
    match node:
        case ast.Call(args=[size], keywords=[]):
            if header.unit is not None:
                reader.refuse(node, "the size of a unit is said twice", "say it once", code="PP305")
            header.unit = _positive(size, "the number of parameters in a unit", reader, most=LARGEST)
        case _:
            reader.refuse(node, "expected `unit(parameters)`")


def _approximate(node: ast.Call, header: Header, reader: Reader) -> None:
    match node:
        case ast.Call(args=[ast.Constant(value=str(text))], keywords=[]):
            header.approximates.append(text)
        case _:
            reader.refuse(node, 'expected `approximate("what is not exact")`')


def _axes_help(axes: Iterable[str]) -> str:
    return "the mesh has " + (", ".join(f"`{a}`" for a in axes) or "no axis")


def _reference(node: ast.Call, header: Header, reader: Reader) -> None:
    if not _only_keywords(node, reader):
        return
    for name, value in _keywords(node, reader):
        text = _text(value)
        if name == "loss":
            if header.loss is not None:
                reader.refuse(value, "`loss` is said twice", "say it once", code="PP305")
            header.loss = read_terms(value, reader)
        elif name not in REFERENCE:
            hint = suggestion(name, REFERENCE) or "one of " + ", ".join(("loss", *REFERENCE))
            reader.refuse(value, f"the reference step has no option `{name}`", hint)
        elif text not in REFERENCE[name]:
            reader.refuse(value, f"`{_shown(value)}` is no value of `{name}`", "one of " + ", ".join(REFERENCE[name]))
        else:
            assert text is not None
            _once(header.reference, name, text, value, reader)


def _without(node: ast.Call, header: Header, reader: Reader) -> None:
    for keyword in node.keywords:
        reader.refuse(keyword.value, "this line takes names of assumptions only")
    for arg in node.args:
        match arg:
            case ast.Constant(value=str(text)) if text in ASSUMPTIONS:
                if ASSUMPTIONS[text].without is None:
                    reader.refuse(arg, *always_made(text), code="PP206")
                header.without.append(text)
            case ast.Constant(value=str(text)):
                hint = suggestion(text, ASSUMPTIONS) or "`placeproof list assumptions` names them"
                reader.refuse(arg, f"there is no assumption `{text}`", hint)
            case _:
                reader.refuse(arg, 'expected `without("an assumption")`')


def _not_compared(node: ast.Call, header: Header, reader: Reader) -> None:
    if not _only_keywords(node, reader):
        return
    for name, value in _keywords(node, reader):
        match value:
            case ast.Constant(value=str(text)):
                _once(header.not_compared, name, text, value, reader)
            case _:
                reader.refuse(value, 'expected `not_compared(name="what was not compared")`')


def _tensor(node: ast.Call, header: Header, reader: Reader) -> None:
    names = [a.id for a in node.args if isinstance(a, ast.Name)]
    if len(names) != len(node.args) or not names:
        reader.refuse(node, "expected `tensor(name, dimension, ...)`", "for example `tensor(w1, hidden, ffn, tp=ffn)`")
        return
    name, *dims = names
    split: list[tuple[str, str]] = []
    picks: str | None = None
    for option, value in _keywords(node, reader):
        text = _text(value)
        if option == "picks" and text is not None:
            picks = text
        elif text not in dims:
            hint = "an option names an axis and the dimension that it splits: `tp=ffn`"
            reader.refuse(value, f"`{_shown(value)}` is no dimension of `{name}`", hint)
        else:
            assert text is not None
            split.append((option, text))
    if any(t.name == name for t in header.tensors) or len(set(dims)) < len(dims):
        reader.refuse(node, f"`{name}` is declared twice, or has a dimension twice", code="PP305")
        return
    header.tensors.append(Tensor(name=name, dims=tuple(dims), split=tuple(split), picks=picks, place=reader.place(node)))
