"""What eager modules keep for backward, and what lies in memory while they run: their forwards are run over dimensions, one operation after
another, and then the graph that autograd made of them.

A tensor lives as long as something has it: a name of a module that runs, an operation that saved it, a gradient that waits. Operations run
backward in the reverse order of forward (pytorch@v2.13.0:torch/csrc/autograd/engine.cpp, ReadyQueue); one frees what it saved when its
gradients are made, and only then are these added to others. Gradients of weights are not counted: they are what a step keeps; nor are
weights, and tables that the whole model has once.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from placeproof.cost.blocks.alive import uncovered
from placeproof.implementations.modules import Make, Module, Operation, Spec, options, returned
from placeproof.programs import POSITIONS, Do, Program

__all__ = ["Buffer", "Ran", "run"]

#: What blocks read of the ones before.
_WIRES = ("x", "n")
#: Whether in backward, and what lies there.
Moment: TypeAlias = "tuple[bool, tuple[Buffer, ...]]"
#: How wide an element of activations is: as nobody says otherwise.
ACTIVATIONS = "a"


@dataclass(eq=False, slots=True, kw_only=True)
class Buffer:
    """A storage. ``width``: bytes of an element, or :data:`ACTIVATIONS`; ``held``: how often something has it. Of which block's which
    ``name`` it is."""

    dims: tuple[str, ...]
    width: str
    counted: bool = True
    held: int = 0
    block: str = ""
    number: int = 0
    name: str = ""


@dataclass(eq=False, slots=True, kw_only=True)
class Value:
    """A tensor: its dimensions, and the ``order`` in which they lie in its buffer, the outermost first. ``weight``: of the header;
    ``pieces``: what an operation gives that gives several, itself among them."""

    buffer: Buffer
    dims: tuple[str, ...]
    order: tuple[str, ...]
    wanted: bool = False
    weight: bool = False
    pieces: tuple[Value, ...] = ()


@dataclass(eq=False, slots=True, kw_only=True)
class _Node:
    """What autograd has of an operation. ``names``: its operands and what it made; ``saved``: what it holds of them."""

    operation: Operation
    names: dict[str, Value]
    words: Mapping[str, str]
    block: tuple[str, int]
    saved: list[Buffer] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """``kept``: what lies there when forward is over and before backward begins; those ``moments`` that no other one covers;
    ``stays``: what lies there when backward is over: what whoever runs it has."""

    kept: tuple[Buffer, ...]
    stays: tuple[Buffer, ...]
    moments: tuple[Moment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """``width``: bytes of an element of activations; ``alone``: dimensions of size 1; ``in_place``: whether gradients are added in place;
    ``caller``: whether whoever runs the chain has its input until forward is over. Gradients of weights that are no part of what a step
    keeps: all if ``added``, those of ``second`` weights anyway; those that one ``waits`` for stay until another chain has made theirs."""

    width: Fraction | int
    alone: frozenset[str]
    in_place: bool
    caller: bool = False
    added: bool = False
    second: frozenset[str] = frozenset()
    waits: frozenset[str] = frozenset()


def run(blocks: Sequence[tuple[str, Program]], modules: Mapping[str, Module], operations: Mapping[str, Operation], setting: Setting) -> Ran:
    """Forward and backward of a chain of blocks once, each by the module of its name. Raises KeyError where a block has none."""
    return _Run(modules, operations, setting).chain(blocks)


class _Run:
    def __init__(self, modules: Mapping[str, Module], operations: Mapping[str, Operation], setting: Setting) -> None:
        self.modules, self.operations, self.setting = modules, operations, setting
        self.buffers: list[Buffer] = []
        self.nodes: list[_Node] = []
        self.moments: list[Moment] = []
        self.backward = False
        self.block, self.number = "", 0
        self.inputs: list[Buffer] = []

    def chain(self, blocks: Sequence[tuple[str, Program]]) -> Ran:
        """All of it. What a block reads of the ones before has its name as long as no other block gives it anew."""
        wires: dict[str, Value] = {}
        for number, (name, program) in enumerate(blocks, 1):
            self.block, self.number = name, number
            header = self._header(program, wires)
            result = self._module(self.modules[name], {**header, **wires})
            gives = _gives(program)
            self._let(wires, gives, result)
            if gives == "x" and "n" in wires:
                self._drop(wires.pop("n").buffer)
        (last,) = (wires.pop(name) for name in (gives,))
        self._drop(last.buffer)
        for buffer in (*(wire.buffer for wire in wires.values()), *(self.inputs if self.setting.caller else ())):
            self._drop(buffer)
        kept = self._lying()
        self._backward(last)
        return Ran(kept=kept, moments=tuple(uncovered(self.moments, _sizes)), stays=self._lying())

    def _header(self, program: Program, wires: dict[str, Value]) -> dict[str, Value]:
        """The tensors of a block's header; what comes in from outside is held as what blocks give is."""
        trained = {stmt.call.option("by") for stmt in program.body if isinstance(stmt, Do)}
        seeds = {stmt.call.option("at") for stmt in program.body if isinstance(stmt, Do)}
        names = {e.id for stmt in self.modules[self.block].body for e in ast.walk(stmt) if isinstance(e, ast.Name)}
        header: dict[str, Value] = {}
        for tensor in program.tensors:
            weight = tensor.picks is None and POSITIONS.isdisjoint(tensor.dims)
            if tensor.name in wires or tensor.name in seeds or tensor.name not in names:
                continue
            buffer = Buffer(
                dims=tensor.dims,
                width="8" if tensor.picks else ACTIVATIONS,
                counted=tensor.picks is not None or tensor.name in _WIRES,  # masks are drawn by operations
                held=1 if tensor.picks else 0,  # whoever runs the model has its batch
                block=self.block,
                number=self.number,
                name=tensor.name,
            )
            value = Value(buffer=buffer, dims=tensor.dims, order=tensor.dims, wanted=tensor.name in trained, weight=weight)
            if tensor.name in _WIRES:
                buffer.block, buffer.number = "input", 0
                self._let(wires, tensor.name, value, held=0)
                self.inputs.append(buffer)
                buffer.held += self.setting.caller
            header[tensor.name] = value
            self.buffers.append(buffer)
        return header

    # Holding.

    def _drop(self, buffer: Buffer) -> None:
        buffer.held -= 1

    def _let(self, names: dict[str, Value], name: str, value: Value, held: int = 1) -> None:
        """A name for a value that its maker held already, in place of what had the name."""
        if name in names:
            self._drop(names[name].buffer)
        value.buffer.held += 1 - held
        names[name] = value

    def _make(self, dims: tuple[str, ...], width: str, *, counted: bool = True, name: str = "") -> Buffer:
        """A new storage, held once."""
        buffer = Buffer(dims=dims, width=width, counted=counted, held=1, block=self.block, number=self.number, name=name)
        self.buffers = [b for b in self.buffers if b.held]
        self.buffers.append(buffer)
        return buffer

    def _moment(self) -> None:
        self.moments.append((self.backward, self._lying()))

    def _lying(self) -> tuple[Buffer, ...]:
        return tuple(b for b in self.buffers if b.held and b.counted)

    # Forward.

    def _module(self, module: Module, own: dict[str, Value]) -> Value:
        """What a module returns, held once; its names are dropped."""
        names = dict(own)
        for value in names.values():
            value.buffer.held += 1
        for name in module.tables:
            table = Buffer(dims=(), width=ACTIVATIONS, counted=False, held=1)
            names[name] = Value(buffer=table, dims=(), order=())
        for stmt in module.body[:-1]:
            match stmt:
                case ast.Assign(targets=[ast.Name(id=name)], value=told):
                    made = self._value(told, names)
                    made.buffer.name = name if made.buffer.name in self.operations else made.buffer.name
                    self._let(names, name, made)
                case ast.Assign(targets=[ast.Tuple(elts=targets)], value=told):
                    for target, piece in zip(targets, self._value(told, names).pieces, strict=True):
                        assert isinstance(target, ast.Name)
                        self._let(names, target.id, piece)
                case ast.Delete(targets=targets):
                    for target in targets:
                        assert isinstance(target, ast.Name)
                        self._drop(names.pop(target.id).buffer)
        result = self._value(returned(module), names)
        for value in names.values():
            self._drop(value.buffer)
        return result

    def _value(self, expr: ast.expr, names: Mapping[str, Value]) -> Value:
        """What an expression gives, held once."""
        match expr:
            case ast.Name(id=name):
                names[name].buffer.held += 1
                return names[name]
            case ast.BinOp(left=left, op=op, right=right):
                sign = "add" if isinstance(op, ast.Add) else "mul"
                return self._operation(self.operations[sign], [self._value(left, names), self._value(right, names)], {})
            case ast.Call(func=ast.Name(id=name), args=args):
                operands = [None if isinstance(a, ast.Name) and a.id not in names else self._value(a, names) for a in args]
                if name not in self.operations:
                    given = {n: v for n, v in zip(self.modules[name].takes, operands, strict=False) if v is not None}
                    result = self._module(self.modules[name], given)
                    for value in given.values():
                        self._drop(value.buffer)
                    return result
                return self._operation(self.operations[name], operands, options(expr))
        raise AssertionError(ast.unparse(expr))

    def _operation(self, operation: Operation, operands: Sequence[Value | None], words: Mapping[str, str]) -> Value:
        """What an operation gives, held once; its operands are dropped."""
        given = {n: v for n, v in zip(operation.takes, operands, strict=False) if v is not None}
        first = given[operation.takes[0]]
        if operation.only_with and operation.only_with not in given:
            return first
        if operation.gives.sign == "@":
            given = {n: self._folded(v, self._folds(operation.gives, given, words, n)) for n, v in given.items()}
        dims, order, width = self._told(operation.gives, given, words)
        if operation.unless and self._same(operation.unless, first, dims, order, width):
            for value in list(given.values())[1:]:
                self._drop(value.buffer)
            return first
        wanted = any(v.wanted for n, v in given.items() if n in operation.by)
        if operation.view:
            first.buffer.held += operation.pieces
            every = tuple(Value(buffer=first.buffer, dims=dims, order=order, wanted=wanted) for _ in range(operation.pieces))
            result = every[0]
            result.pieces = every
        else:
            result = Value(buffer=self._make(dims, width, name=operation.name), dims=dims, order=order, wanted=wanted)
        made = {"result": result}
        for name, told in operation.beside.items():
            dims, order, width = self._told(told, given, words)
            made[name] = Value(buffer=self._make(dims, width, name=name), dims=dims, order=order)
        if not operation.view:
            self._moment()
        if wanted:
            self._save(operation, {**given, **made}, words)
        for value in (*given.values(), *(made[n] for n in operation.beside)):
            self._drop(value.buffer)
        return result

    def _save(self, operation: Operation, names: dict[str, Value], words: Mapping[str, str]) -> None:
        node = _Node(operation=operation, names=names, words=words, block=(self.block, self.number))
        needed = [n for operand, g in operation.by.items() if operand in names and names[operand].wanted for n in g.needs]
        for buffer in dict.fromkeys(names[n].buffer for n in needed if n in names):
            buffer.held += 1
            node.saved.append(buffer)
        self.nodes.append(node)

    def _same(self, what: str, first: Value, dims: tuple[str, ...], order: tuple[str, ...], width: str) -> bool:
        if what == "width":
            return self._bytes(first.buffer.width) == self._bytes(width)
        old, new = (first.dims, dims) if what == "dims" else (first.order, order)
        return self._long(old) == self._long(new)

    def _bytes(self, width: str) -> Fraction | int:
        return self.setting.width if width == ACTIVATIONS else int(width)

    def _long(self, dims: Sequence[str]) -> tuple[str, ...]:
        """Without dimensions of size 1."""
        return tuple(d for d in dims if d not in self.setting.alone)

    # How tensors are told.

    def _told(self, told: Spec, names: Mapping[str, Value], words: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...], str]:
        """Dimensions, how they lie, and the width of an element."""
        base = names.get(told.base)
        dims, order, width = ((), (), ACTIVATIONS) if base is None else (base.dims, base.order, base.buffer.width)
        if told.sign:
            assert base is not None
            other = names[told.other]
            gone = _summed(base, other, words) if told.sign == "@" else set()
            dims = (*(d for d in base.dims if d not in gone), *(d for d in other.dims if d not in (*base.dims, *gone)))
            if told.sign == "|":
                dims = other.dims if set(base.dims) < set(other.dims) else dims
                order = other.order if set(base.dims) < set(other.dims) else order
                width = max(width, other.buffer.width, key=lambda w: (self._bytes(w), w != ACTIVATIONS))
            order = order if set(order) == set(dims) else dims
        gone = {words.get(d, d) for d in told.without}
        dims, order = (tuple(d for d in ds if d not in gone) for ds in (dims, order))
        if told.added:
            dims, order = (_after(ds, words[told.added], words[told.place]) for ds in (dims, order))
        if told.size:
            dims, order = (tuple(_sized(d, told.size, dims[-1]) for d in ds) for ds in (dims, order))
        if "gives" in words:
            dims, order = _renamed(dims, order, tuple(words["gives"].split()))
        if told.order == "plain":
            order = dims
        elif told.order:
            lead = tuple(d for d in told.order.split()[:-1] if d in dims)
            order = (*lead, *(d for d in dims if d not in lead))
        if told.width:
            width = told.width if told.width.isdecimal() else names[told.width].buffer.width
        return dims, order, width

    def _folds(self, told: Spec, names: Mapping[str, Value], words: Mapping[str, str], name: str) -> list[tuple[str, ...]]:
        """The dimensions of an operand, or of the ``result``, that a product of matrices has as one: first those that both have."""
        a, b = names[told.base], names[told.other]
        if name not in (told.base, told.other, "result"):
            return []
        gone = _summed(a, b, words)
        both = {d for d in a.dims if d in b.dims} - gone
        return [tuple(d for d in names[name].dims if d in part) for part in (both, {*a.dims} - both - gone, {*b.dims} - both - gone, gone)]

    def _lies(self, order: tuple[str, ...], folds: Sequence[tuple[str, ...]]) -> bool:
        """Whether dimensions that are taken as one follow one another."""
        text = f" {' '.join(self._long(order))} "
        return all(f" {' '.join(self._long(fold))} " in text for fold in folds if self._long(fold))

    def _folded(self, value: Value, folds: Sequence[tuple[str, ...]]) -> Value:
        """The same, copied where it does not lie as a product needs it; held once."""
        if value.weight or self._lies(value.order, folds):
            return value
        return self._operation(self.operations["copy"], [value], {})

    # Backward.

    def _backward(self, last: Value) -> None:
        self.backward = True
        if not last.dims:
            last.buffer.held += 1  # whoever asks for backward has the loss
        seed = self._make(last.dims, last.buffer.width)
        seed.held += not last.dims  # and what it begins with
        self._moment()
        gradients: dict[int, Value] = {id(last): Value(buffer=seed, dims=last.dims, order=last.order)}
        for node in reversed(self.nodes):
            self.block, self.number = node.block
            result = node.names["result"]
            own = [gradients.pop(id(piece), None) for piece in result.pieces or (result,)]
            told = [gradient for gradient in own if gradient is not None]
            made = self._gradients(node, told[0]) if told else []
            for buffer in (*node.saved, *(gradient.buffer for gradient in told)):
                self._drop(buffer)
            for value, one in made:
                self._add(gradients, value, one)
        for gradient in gradients.values():  # handed on
            self._drop(gradient.buffer)

    def _gradients(self, node: _Node, gradient: Value) -> list[tuple[Value, Value]]:
        """The gradients by the operands of an operation, each held once."""
        operation, result = node.operation, node.names["result"]
        if operation.gives.sign == "@" and not self._lies(gradient.order, self._folds(operation.gives, node.names, node.words, "result")):
            copied = Value(buffer=self._make(result.dims, gradient.buffer.width), dims=result.dims, order=result.dims)
            self._moment()
            self._drop(gradient.buffer)
            gradient.buffer, gradient.order = copied.buffer, copied.order
        found: list[tuple[Value, Value]] = []
        for operand, how in operation.by.items():
            value = node.names.get(operand)
            if value is not None and value.wanted:
                found.append((value, self._by(node, value, gradient, how.makes)))
        for value, one in found:
            if len(self._long(one.dims)) > len(self._long(value.dims)):
                summed = self._make(value.dims, one.buffer.width, counted=self._counted(value))
                self._moment()
                self._drop(one.buffer)
                one.buffer, one.order = summed, value.dims
            one.dims = value.dims
        return found

    def _counted(self, value: Value) -> bool:
        """Whether a gradient is a tensor beside what a step keeps."""
        return not value.weight or self.setting.added or value.buffer.name in self.setting.second

    def _by(self, node: _Node, value: Value, gradient: Value, makes: Sequence[Make]) -> Value:
        """The gradient by one operand, held once."""
        names = {**node.names, "grad": gradient}
        last: Value | None = None
        for make in makes:
            if make.spec is None:
                self._drop(names.pop(make.name).buffer)
                continue
            dims, order, width = self._told(make.spec, names, {k: w for k, w in node.words.items() if k != "gives"})
            last = names[make.name] = Value(buffer=self._make(dims, width, name=make.name), dims=dims, order=order)
            self._moment()
        if last is not None:
            for name in {m.name for m in makes} & set(names):
                if names[name] is not last:
                    self._drop(names[name].buffer)
            return last
        if value.weight and gradient.dims != value.dims:
            made = self._make(value.dims, value.buffer.width, counted=self._counted(value), name=value.buffer.name)
            self._moment()
            return Value(buffer=made, dims=value.dims, order=value.dims)
        gradient.buffer.held += 1
        result = node.names["result"]
        order = gradient.order
        if node.operation.view and len(result.dims) == len(value.dims):
            order = _back(order, result.dims, value.dims)
        return Value(buffer=gradient.buffer, dims=value.dims if node.operation.view else gradient.dims, order=order)

    def _add(self, gradients: dict[int, Value], value: Value, one: Value) -> None:
        """One more gradient of a value: added to what waits there. A step keeps that of a weight, unless another one has to come."""
        if value.weight:
            if value.buffer.name in self.setting.second and self.setting.added and not self.setting.in_place:
                both = self._make(value.dims, value.buffer.width)
                self._moment()
                self._drop(both)
            if value.buffer.name not in self.setting.waits:
                self._drop(one.buffer)
            return
        old = gradients.get(id(value))
        if old is None:
            gradients[id(value)] = one
            return
        alone = [v for v in (old, one) if v.buffer.held == 1]
        if self.setting.in_place and alone:
            kept = alone[0]
            self._drop((one if kept is old else old).buffer)
            gradients[id(value)] = kept
            return
        total = Value(buffer=self._make(value.dims, old.buffer.width), dims=value.dims, order=old.order)
        self._moment()
        for each in (old, one):
            self._drop(each.buffer)
        gradients[id(value)] = total


def _gives(program: Program) -> str:
    """What a block gives, as those behind it read it."""
    given = next(s.call.args[0] for s in program.body if isinstance(s, Do) and s.call.op == "returns")
    return {"y": "x"}.get(given.name, given.name)  # type: ignore[union-attr]


def _summed(a: Value, b: Value, words: Mapping[str, str]) -> set[str]:
    """The dimensions over which a product of matrices adds up."""
    return {words["over"]} if "over" in words else {*a.dims} & {*b.dims}


def _after(dims: tuple[str, ...], added: str, place: str) -> tuple[str, ...]:
    at = dims.index(place) + 1
    return (*dims[:at], added, *dims[at:])


def _sized(dim: str, size: str, last: str) -> str:
    if dim != last:
        return dim
    return f"{dim}/2" if size == "half" else dim.removesuffix("/2")


def _renamed(dims: tuple[str, ...], order: tuple[str, ...], given: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Dimensions in the order that is given; those that are called otherwise there, in their order."""
    called = dict(zip([d for d in dims if d not in given], [d for d in given if d not in dims], strict=True))
    return given, tuple(called.get(d, d) for d in order)


def _back(order: tuple[str, ...], called: tuple[str, ...], before: tuple[str, ...]) -> tuple[str, ...]:
    """An order of dimensions by the names that they had before."""
    names = dict(zip([d for d in called if d not in before], [d for d in before if d not in called], strict=True))
    return tuple(names.get(d, d) for d in order)


def _sizes(moment: Moment) -> tuple[bool, Counter[tuple[object, ...]]]:
    """Whether it is in backward, and how often it has each size."""
    backward, lying = moment
    return backward, Counter((*sorted(b.dims), b.width) for b in lying)
