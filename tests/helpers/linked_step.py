"""The statements of a linked program's step, run for one device with amounts in the place of tensors.

A value is how many elements of each unit and group a device has, how wide each is, and whether it lies on the host. Collectives are rings,
as in docs/reference/collectives.md; lifetimes are in `linked_memory.py`.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Any

from linked_memory import Key, Memory
from linked_text import Header, NotWalkedError, number, options

#: Unit -> group -> elements on the device.
Elements = dict[int, dict[str, Fraction]]
WIDTHS = {"parameters": "b_theta", "gradients": "b_g", "optimizer": "b_omega"}
PASSES = ("forward", "backward", "backward_weight", "backward_input")


@dataclass(frozen=True)
class Value:
    """A buffer of parameters, gradients or optimizer state."""

    state: str
    units: Elements
    width: str
    host: bool = False

    @property
    def elements(self) -> Fraction:
        return sum((n for own in self.units.values() for n in own.values()), Fraction(0))

    def times(self, factor: Fraction) -> Value:
        return replace(self, units={u: {g: n * factor for g, n in own.items()} for u, own in self.units.items()})


@dataclass(frozen=True)
class Stream:
    """Activations between units: which part of them, where; and whether they were brought back for backward, and take room again."""

    part: Fraction = Fraction(1)
    host: bool = False
    fetched: bool = False


@dataclass
class Unit:
    """What a device has of one unit of the stack, in elements of its weights and in bytes."""

    repeated: bool  # a layer; what is no layer is not computed again
    elements: dict[str, Fraction]  # by group
    sent: dict[str, list[tuple[str, Fraction]]]  # phase -> axes, bytes
    input: Fraction  # what is kept of the stream as it comes in
    kept: Fraction  # whatever else is kept for backward
    again: Fraction  # what backward computes again of one layer
    deferred: Fraction  # what is kept from the gradient of inputs to that of weights, if that comes later

    def stays(self, checkpoint: Stream, host: bool) -> Fraction:
        """What is kept from forward to backward, on the device or on the host. What is no layer keeps its input as it is."""
        lies = checkpoint if self.repeated else Stream()
        return (self.input * lies.part if lies.host == host else Fraction(0)) + (Fraction(0) if host else self.kept)


@dataclass(frozen=True)
class Place:
    """Where a device is in the pipeline, and how often it runs the body of a loop over micro-batches."""

    d: int
    microbatches: int
    sends: bool  # whether the program's own `send` say what it sends
    tied: bool  # whether a table that it has is shared with another device of the pipeline
    through: Fraction  # what backward is through with before it comes to the layers


class Step:
    """A walk through the statements."""

    def __init__(self, head: Header, units: list[Unit], place: Place, stream: Fraction) -> None:
        self.head, self.units, self.place, self.stream = head, units, place, stream
        self.sent: dict[frozenset[str], Fraction] = defaultdict(Fraction)
        self.held: dict[tuple[str, bool], Fraction] = defaultdict(Fraction)  # (state, on the host) -> bytes
        self.memory = Memory()
        self.env: dict[str, Value] = {}
        self.streams: dict[Key, Stream] = {}
        self.checkpoint = Stream()  # where the input of a layer lies until backward
        self.passing = "transient"  # what buffers are counted as: "updating" from the update on
        for state, width in WIDTHS.items():
            host = any("O" in own.values() for (named, _), own in head.placed.items() if named == state)
            units_held = {u: {g: n / head.parts(state, g) for g, n in unit.elements.items()} for u, unit in enumerate(units)}
            self._bound(state, Value(state, units_held if state != "gradients" else {}, width, host))

    def send(self, axes: str, amount: Fraction) -> None:
        """Copies of a pipeline in both directions lie on the devices of that pipeline."""
        names = {self.head.pipeline or "" if axis.endswith("_copy") else axis for axis in axes.split("*")}
        self.sent[frozenset(names)] += amount

    def walk(self, body: list[ast.stmt]) -> None:
        """Walk the whole step."""
        self.run(body, {})

    # Statements.

    def run(self, body: list[ast.stmt], loops: dict[str, int]) -> None:
        """Walk statements; ``loops``: variables of loops, and `reversed` where one walks backwards."""
        for stmt in body:
            self.memory.now += 1
            match stmt:
                case ast.For(target=ast.Name(id=var), iter=walk):
                    back = {"reversed": 1} if ast.unparse(walk).startswith("reversed(") else {}
                    for part in self._parts(walk, loops):
                        self.memory.begin()
                        self.run(stmt.body, {**loops, **back, var: part})
                        self.memory.finish()
                case ast.If():
                    self.run(stmt.body if self._holds(stmt.test) else stmt.orelse, loops)
                case ast.Expr(value=ast.Call(func=ast.Name(id="send"), args=args)):
                    self.send(ast.unparse(args[1]), self.stream if self.place.sends else Fraction(0))
                case ast.Expr(value=ast.Call(func=ast.Name(id="free"), args=args)):
                    self.memory.free(key := self._key(args[0], loops))
                    if key[1] is None:
                        self.env.pop(key[0], None)
                case ast.Assign(value=value) if "tied_reduce(" in ast.unparse(value) and not self.place.tied:
                    pass  # no other device shares the table
                case ast.Assign(targets=[target], value=value) | ast.AugAssign(target=target, value=value):
                    self._assigned(target, value, loops)

    def _holds(self, test: ast.expr) -> bool:
        assert isinstance(test, ast.Compare)
        assert self.head.pipeline is not None
        bound = number(test.comparators[0], {self.head.pipeline: Fraction(self.head.degrees[self.head.pipeline])})
        return {ast.Eq: self.place.d == bound, ast.Lt: self.place.d < bound, ast.Gt: self.place.d > bound}[type(test.ops[0])]

    def _parts(self, walk: ast.expr, loops: Mapping[str, int]) -> Iterable[int]:
        """The numbers of the units that a loop walks over; each layer is a unit."""
        text = ast.unparse(walk)
        text, back = (text[len("reversed(") : -1], True) if text.startswith("reversed(") else (text, False)
        if text.startswith("microbatches"):
            return range(self.place.microbatches)
        if "[" in text and not text.endswith("[1:]"):  # the layers of a unit
            return [loops[text[text.index("[") + 1 : -1]]]
        every = range(1 if text.endswith("[1:]") else 0, len(self.units))
        return reversed(every) if back else every

    def _key(self, node: ast.expr, loops: Mapping[str, int]) -> Key:
        """A buffer, and of one that is written part by part the part; `-1` is the last."""
        name = ast.unparse(node).split("[")[0].partition(".")[0]
        if not isinstance(node, ast.Subscript):
            return name, None
        at = int(eval(ast.unparse(node.slice), {}, dict(loops)))
        return name, len(self.units) + at if isinstance(node.slice, ast.UnaryOp) else at

    def _assigned(self, target: ast.expr, source: ast.expr, loops: dict[str, int]) -> None:
        value = self._value(source, loops)
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        values = value[: len(targets)] if isinstance(value, tuple) else (value,) * len(targets)
        if isinstance(source, ast.Call) and ast.unparse(source.func) == "wait":
            self.memory.renamed(self._key(source.args[0], loops))
        for single, own in zip(targets, values, strict=True):
            key = self._key(single, loops)
            match own:
                case Value():
                    self._written(single, key, own)
                case Stream():
                    self._checkpointed(key, own)
                case (kind, size):
                    self.memory.write(kind, key, size)

    def _written(self, target: ast.expr, key: Key, value: Value) -> None:
        """A whole buffer, a part of it, or a group: of a state, what it holds at most; of any other, a life."""
        name, part = key
        before = self.env.get(name)
        if before is not None and (part is not None or _group(target)):
            units = {u: dict(own) for u, own in before.units.items()}
            for u, own in value.units.items():
                units.setdefault(u, {}).update(own)
            whole = replace(value, units=units)
        else:
            whole = value
        if name in WIDTHS:
            self._bound(name, whole)
            return
        self.env[name] = whole
        if not value.host:  # what passes on the host in an update is not counted
            grown = value
            if _group(target):  # the part with the groups that it had before
                self.memory.renamed(key)
                grown = replace(whole, units={u: own for u, own in whole.units.items() if part in (None, u)})
            self.memory.write(self.passing, key, self._gathered(grown))

    def _bound(self, state: str, value: Value) -> None:
        """A state is held all step, with the most that it ever holds."""
        self.env[state] = value
        at = (state, value.host)
        self.held[at] = max(self.held[at], value.elements * self.head.known[value.width])

    def _gathered(self, value: Value) -> Fraction:
        """Bytes of a buffer: of a unit, as many parameters as `unit` says."""
        elements = self.head.unit if self.head.unit and len(value.units) == 1 else value.elements
        return elements * self.head.known[value.width]

    def _checkpointed(self, key: Key, stream: Stream) -> None:
        """What a layer keeps: of its input this part, there, and what it was given beside it. What is no layer keeps everything."""
        self.streams[key] = stream
        if key[1] is None:
            return
        unit, self.checkpoint = self.units[key[1]], stream
        self.memory.write("host", key, unit.stays(stream, host=True))
        self.memory.beside("activations", key, unit.stays(stream, host=False))

    # Values.

    def _value(self, node: ast.expr, loops: dict[str, int]) -> Any:
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            return self._read(node, loops)
        assert isinstance(node, ast.Call), ast.unparse(node)
        op, args = ast.unparse(node.func), node.args
        if op in ("data", "recv", "loss"):
            return Stream()
        if op in PASSES:
            return self._passed(op, args, loops)
        self.passing = "updating" if op in ("momentum", "update") else self.passing
        first = self._value(args[0], loops)
        match op:
            case "momentum":  # of those elements whose optimizer state the device has, as wide as parameters
                self._value(args[1], loops)
                return replace(first, state="momentum", width=WIDTHS["parameters"])
            case "orthogonalize":
                return first
            case "scale" | "start" | "wait" | "copy":
                return first
            case "master":
                return replace(first, state="parameters", width=WIDTHS["parameters"])
            case "update" | "update_with":  # of those elements whose optimizer state the device has
                optimizer, *_ = [self._value(arg, loops) for arg in args[1:]]
                return replace(first, units=optimizer.units, host=optimizer.host), optimizer
            case "to_host" | "to_device":
                fetched = {"fetched": True} if op == "to_device" and isinstance(first, Stream) else {}
                return replace(first, host=op == "to_host", **fetched)
            case "quantize":
                return replace(first, width=ast.unparse(args[1]))
            case "dequantize":
                return replace(first, width=WIDTHS[first.state])
        axes = [ast.unparse(a) for a in args[1:]]
        if isinstance(first, Stream):
            return self._stream_exchanged(op, first, axes, self._key(_inner(args[0]), loops))
        return self._exchanged(op, first, axes, options(node))

    def _read(self, node: ast.expr, loops: Mapping[str, int]) -> Any:
        name, part = key = self._key(node, loops)
        self.memory.read(key if key in self.memory.alive else (name, None))
        if name not in self.env:
            return self.streams.get(key)
        group = _group(node)
        value = self.env[name]
        units = {u: own for u, own in value.units.items() if part in (None, u)}
        return replace(value, units={u: {g: n for g, n in own.items() if group in (None, g)} for u, own in units.items()})

    def _exchanged(self, op: str, x: Value, axes: list[str], said: Mapping[str, str]) -> Value:
        n = prod(self.head.degrees[a] for a in axes)
        size = x.elements * self.head.known[x.width]
        match op:
            case "all_gather":
                sent, made = (n - 1) * size, x.times(Fraction(n))
            case "reduce_scatter":
                sent, made = size * (n - 1) / n, x.times(Fraction(1, n))
            case "all_reduce":
                sent, made = 2 * size * (n - 1) / n, x
            case "broadcast" if said == {"root": "owner"}:  # each part from its owner: s is the whole
                sent, made = n * size, x.times(Fraction(n))
            case "tied_reduce":
                sent, made = size, x
            case "part":
                sent, made = Fraction(0), x.times(Fraction(1, n))
            case _:
                raise NotWalkedError(op)
        self.send("*".join(axes), sent)
        return made

    def _stream_exchanged(self, op: str, x: Stream, axes: list[str], key: Key) -> Stream:
        """A part of what is kept of a layer's input, and the whole again."""
        n = prod(self.head.degrees[a] for a in axes)
        if op == "part":
            return replace(x, part=x.part / n)
        if op != "all_gather":
            raise NotWalkedError(op)
        unit = self.units[key[1]] if key[1] is not None else None
        if unit is not None and unit.repeated:
            self.send("*".join(axes), unit.input * x.part * (n - 1))
        return replace(x, part=x.part * n, fetched=True)

    # Passes.

    def _passed(self, op: str, args: list[ast.expr], loops: dict[str, int]) -> Any:
        """Forward or backward of the units that the weights are of."""
        weights = self._value(args[0], loops)
        others = [self._value(a, loops) for a in args[1:]]
        numbers = sorted(weights.units)
        if op == "forward" and "reversed" in loops:
            return self._again(numbers, others[0])
        units = [self.units[u] for u in numbers]
        if op == "forward":
            self._blocks(units, "forward")
            return Stream(), ("activations", sum((unit.input + unit.kept for unit in units), Fraction(0)))
        if op != "backward_weight":  # the two halves of backward share what is sent
            self._blocks(units, "backward")
            if not self.streams.keys() & {("activations", u) for u in numbers}:
                self._blocks(units, "again")
                again = max(unit.again for unit in units)
                self.memory.write("working", ("again", None), again)
                self.memory.write("through", ("behind", None), -min(again, self.place.through))
        gradients = Value("gradients", {u: dict(own) for u, own in weights.units.items()}, WIDTHS["gradients"])
        return {"backward": gradients, "backward_weight": gradients, "backward_input": Stream()}[op]

    def _again(self, numbers: list[int], x: Stream) -> Any:
        """Forward within backward: layers alone, into room of its own."""
        layers = [self.units[u] for u in numbers if self.units[u].repeated]
        self._blocks(layers, "again")
        return Stream(), ("working", sum((unit.again + (unit.input if x.fetched else 0) for unit in layers), Fraction(0)))

    def _blocks(self, units: list[Unit], phase: str) -> None:
        for axes, amount in (own for unit in units for own in unit.sent[phase]):
            self.send(axes, amount)


def _group(node: ast.expr) -> str | None:
    """The group that `x.norm` or `x.norm[u]` is of."""
    node = node.value if isinstance(node, ast.Subscript) else node
    return node.attr if isinstance(node, ast.Attribute) else None


def _inner(node: ast.expr) -> ast.expr:
    """The buffer that nested operations read."""
    while isinstance(node, ast.Call):
        node = node.args[0]
    return node
