"""Modules as they are written in an eager framework, and what its autograd does with each operation: data of an implementation.

A module is the text of a forward in a few words: names are assigned calls of operations, of other modules, sums and products, and the last
line returns. Names are local ones, as in Python: what has no name any more, and is not saved for backward, is freed.

An operation says what it gives, what its backward reads, and what that makes meanwhile. A tensor is told by another one:

    [half|double] NAME [@ NAME | '|' NAME] [without DIM ...] [with DIM after DIM] [: BYTES|NAME] [, plain | , DIM ... first]

As large as a name of an operand, of the ``result``, of ``grad``, the gradient by the result, or of something that was made; ``scalar`` is
one element. ``a @ b`` is a product of matrices, over the dimension ``over`` or all that both have; ``a | b`` has the dimensions of both.
Then dimensions that are gone or come in, where ``over``, ``added`` and ``place`` stand for what a call says; how wide an element is, or the
name whose elements are as wide; and how elements lie: in the order of its dimensions, or some dimensions first. As those of the name else.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from placeproof.core.tables import Table

_SPEC = re.compile(
    r"(?:(?P<size>half|double) )?(?P<base>\w+)(?: (?P<sign>[@|]) (?P<other>\w+))?(?: without (?P<without>\w+(?: \w+)*?))?"
    r"(?: with (?P<added>\w+) after (?P<place>\w+))?(?:: (?P<width>\w+))?(?:, (?P<order>plain|\w+(?: \w+)* first))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A tensor told by another one; what is not said is empty."""

    base: str
    size: str = ""
    sign: str = ""
    other: str = ""
    without: tuple[str, ...] = ()
    added: str = ""
    place: str = ""
    width: str = ""
    order: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors that it is told by."""
        return tuple(n for n in (self.base, self.other, "" if self.width.isdecimal() else self.width) if n and n != "scalar")


def spec(text: str) -> Spec:
    """Read one. Raises ValueError with what it has to be."""
    match = _SPEC.fullmatch(text)
    if match is None:
        raise ValueError(f"`{text}` tells no tensor: docs/reference/implementations.md")
    said = {name: value or "" for name, value in match.groupdict().items()}
    without = tuple(said.pop("without").split())
    return Spec(without=without, **said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Make:
    """A step of a backward: it makes a tensor of that name, or frees it where ``spec`` is None."""

    name: str
    spec: Spec | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradient:
    """The gradient by one operand: what it ``needs`` of forward, and what is made on the way, itself at last; nothing where it is a view of
    the gradient by the result."""

    needs: tuple[str, ...] = ()
    makes: tuple[Make, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """``takes``: operands by name. ``gives``: the result; ``beside``: what is made with it. ``view``: it makes no tensor, and
    gives so many ``pieces``. ``unless``: it
    gives its operand where their ``dims``, ``width`` or ``order`` are the same. ``only_with``: an operand without which it does nothing.
    ``by``: gradients in the order in which they are made."""

    name: str
    source: str
    takes: tuple[str, ...]
    gives: Spec
    beside: Mapping[str, Spec] = field(default_factory=dict, hash=False)
    view: bool = False
    pieces: int = 1
    unless: str = ""
    only_with: str = ""
    by: Mapping[str, Gradient] = field(default_factory=dict, hash=False)

    @property
    def needed(self) -> int:
        """How many operands it has at least: those without which nobody could tell what it gives or makes."""
        made = (m.spec for g in self.by.values() for m in g.makes if m.spec is not None)
        named = {*self.takes[:1], *(n for one in (self.gives, *self.beside.values(), *made) for n in one.names)}
        return max((i for i, name in enumerate(self.takes, 1) if name in named), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A forward: of the block of that name, or, with operands that it ``takes``, of what other modules call. ``tables``: names of what the
    whole model has once, which is not counted. ``body``: assignments, ``del``, and what it returns, as Python's trees."""

    name: str
    source: str
    body: tuple[ast.stmt, ...] = field(hash=False)
    takes: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()

    @property
    def given(self) -> tuple[str, ...]:
        """The names that it reads and does not have: of tensors of its block."""
        own, read = {*self.takes, *self.tables}, dict[str, None]()
        for stmt in self.body:
            names = [e for e in ast.walk(stmt) if isinstance(e, ast.Name)]
            functions = {id(e.func) for e in ast.walk(stmt) if isinstance(e, ast.Call)}
            read |= dict.fromkeys(
                e.id for e in names if isinstance(e.ctx, ast.Load | ast.Del) and id(e) not in functions and e.id not in own
            )
            own |= {e.id for e in names if isinstance(e.ctx, ast.Store)}
            own -= {e.id for e in names if isinstance(e.ctx, ast.Del)}
        return tuple(read)


def operations(table: Table, key: str) -> dict[str, Operation]:
    """The operations of a file, by name."""
    return {one.name: _operation(one) for one in table.tables(key)}


def _operation(table: Table) -> Operation:
    said = table.fields(
        source=Table.required,
        takes=Table.required_texts,
        gives=lambda t, key: t.parsed(key, spec, "scalar", required=True),
        beside=lambda t, key: {n: t.table(key).parsed(n, spec, "scalar") for n in t.table(key).data},
        view=Table.flag,
        pieces=lambda t, key: t.count(key) or 1,
        unless=lambda t, key: t.choice(key, ("dims", "width", "order"), " ").strip(),
        only_with=Table.text,
        by=lambda t, key: {one.name: _gradient(one) for one in t.tables(key)},
    )
    made = Operation(name=table.name, **said)
    _check_names(table, made)
    return made


def _gradient(table: Table) -> Gradient:
    said = table.fields(needs=Table.texts, makes=lambda t, key: t.each(key, _make))
    return Gradient(**said)


def _make(text: str) -> Make:
    if text.startswith("free "):
        return Make(name=text.removeprefix("free "), spec=None)
    name, _, told = text.partition(" = ")
    return Make(name=name, spec=spec(told))


def _check_names(table: Table, made: Operation) -> None:
    """Every name that an operation speaks of has to be one of its own."""
    own = {*made.takes, *made.beside, "result"}
    used = [("gives", n) for n in made.gives.names if n not in made.takes]
    used += [("beside", n) for one in made.beside.values() for n in one.names if n not in made.takes]
    used += [("only_with", made.only_with)] if made.only_with not in ("", *made.takes) else []
    for operand, gradient in made.by.items():
        used += [("by", operand)] if operand not in made.takes else []
        used += [("by", n) for n in gradient.needs if n not in own]
        known = {*own, "grad"}
        for make in gradient.makes:
            used += [("by", n) for n in ((make.name,) if make.spec is None else make.spec.names) if n not in known]
            known |= {make.name}
    for key, name in used:
        table.unknown(f"`{name}` is no tensor of operation `{made.name}`", name, sorted(own), key)


def modules(table: Table, key: str, known: Mapping[str, Operation]) -> dict[str, Module]:
    """The modules of a file, by name."""
    named = {one.name: one for one in table.tables(key)}
    every = {name: takes for name, one in named.items() if (takes := one.texts("takes"))}
    return {name: _module(one, known, every) for name, one in named.items()}


def _module(table: Table, known: Mapping[str, Operation], every: Mapping[str, tuple[str, ...]]) -> Module:
    said = table.fields(source=Table.required, forward=Table.required, takes=Table.texts, tables=Table.texts)
    body: tuple[ast.stmt, ...] = ()
    try:
        body = tuple(ast.parse(said["forward"]).body)
    except SyntaxError as error:
        table.refuse(f"`forward` cannot be read: {error.msg}, line {error.lineno}", "forward")
    else:
        for message in _misread(body, known, every):
            table.refuse(message, "forward")
    made = Module(name=table.name, source=said["source"], body=body, takes=said["takes"], tables=said["tables"])
    for name in made.given if made.takes else ():
        table.unknown(f"`{name}` is no tensor of module `{made.name}`", name, made.takes, "forward")
    return made


def returned(module: Module) -> ast.expr:
    """What a module returns: its last line."""
    last = module.body[-1]
    assert isinstance(last, ast.Expr)
    return last.value


def _misread(body: tuple[ast.stmt, ...], known: Mapping[str, Operation], every: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """What of a text is no statement of a module."""
    for number, stmt in enumerate(body, 1):
        last = number == len(body)
        match stmt:
            case ast.Assign(targets=[ast.Name()], value=value) if not last:
                yield from _misread_value(value, known, every)
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Call(func=ast.Name(id=name)) as value) if (
                not last and all(isinstance(t, ast.Name) for t in targets) and name in known and known[name].pieces == len(targets)
            ):
                yield from _misread_value(value, known, every)
            case ast.Delete(targets=targets) if not last and all(isinstance(t, ast.Name) for t in targets):
                pass
            case ast.Expr(value=value) if last:
                yield from _misread_value(value, known, every)
            case _:
                yield f"statement {number} is neither `name = ...` nor `del name`, nor, as the last one, a value: `{ast.unparse(stmt)}`"


def _misread_value(value: ast.expr, known: Mapping[str, Operation], every: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    match value:
        case ast.Name():
            pass
        case ast.BinOp(left=left, op=ast.Add() | ast.Mult(), right=right):
            yield from (*_misread_value(left, known, every), *_misread_value(right, known, every))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in known or name in every:
            takes = known[name].takes if name in known else every[name]
            needed = known[name].needed if name in known else len(takes)
            if not needed <= len(args) <= len(takes):
                yield f"`{name}` takes {' and '.join(f'`{n}`' for n in takes)}: `{ast.unparse(value)}`"
            if wrong := [k.arg for k in keywords if k.arg not in OPTIONS or not isinstance(k.value, ast.Constant)]:
                yield f"`{wrong[0]}` is no option of operations: they are {', '.join(OPTIONS)}, each a text"
            for arg in args:
                yield from _misread_value(arg, known, every)
        case _:
            yield f"no operation and no module of the file: `{ast.unparse(value)}`"


#: What a call says beside tensors: the dimension that it sums ``over``, the dimensions that it ``gives`` in their order, and the one that
#: it has ``added`` behind the ``place`` of another one.
OPTIONS = ("over", "gives", "added", "place")


def options(call: ast.Call) -> dict[str, Any]:
    """The options of a call."""
    return {k.arg: k.value.value for k in call.keywords if k.arg is not None and isinstance(k.value, ast.Constant)}


__all__ = ["OPTIONS", "Gradient", "Make", "Module", "Operation", "Spec", "modules", "operations", "options", "returned", "spec"]
