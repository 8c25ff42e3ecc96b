"""A linked program walked line by line for one device, with numbers: what it sends, by the axes of the group.

It is written from the reference of linked programs, reads their text with Python's own parser, and shares nothing with what derives
formulas: a block is walked with the shapes that one device has, the step with elements of each unit and group. Rings are as in the
reference of collectives. Not walked are experts (what a device gets depends on routers), rounds of a ring, and quantised values.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import Any

#: Unit -> group -> elements on the device.
Elements = dict[int, dict[str, Fraction]]
GIVES = {"y": "x", "n": "n"}


@dataclass
class Tensor:
    """What one device has of a tensor: its dimensions, and the axes over which each is split. ``thin``: of it rows are picked."""

    dims: tuple[str, ...]
    split: dict[str, tuple[str, ...]] = field(default_factory=dict)
    picks: str | None = None

    def without(self, dim: str) -> Tensor:
        return Tensor(tuple(d for d in self.dims if d != dim), {d: a for d, a in self.split.items() if d != dim})


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


class Walk:
    """One device: of stage ``stage``; ``known``: numbers of symbols, ``m`` and widths among them."""

    def __init__(self, text: str, known: Mapping[str, Fraction], stage: int = 0) -> None:
        self.tree = ast.parse(text)
        self.known = dict(known)
        self.stage = stage
        self.sent: dict[str, Fraction] = defaultdict(Fraction)
        self.gradients = {"gradients"}  # the buffers that hold some
        self.degrees: dict[str, int] = {}
        self.sizes: dict[str, Fraction] = {}
        self.members: dict[tuple[str, str], str] = {}
        self.first = "all"
        self.placed: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.defs = {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}
        self.pipeline: str | None = None
        self.shared: set[str] = set()
        stack: list[tuple[str, int]] = []
        for node in self.tree.body:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                self._header(node.value, stack)
        self.ends = [name for name, _ in stack]
        self.repeats = {name for name, times in stack if times > 1}
        self.units = [[name] for name in self._units(stack)]
        if "units[1:]" in text:  # the first unit is what is no layer
            root = [name for (name,) in self.units if name not in self.repeats]
            self.units = [root, *([name] for (name,) in self.units if name in self.repeats)]
        self.walked = {name: self._block(name) for name in self.defs if self._is_block(name)}
        self.env: dict[str, Elements] = {}
        for state in ("parameters", "optimizer", "gradients"):
            seen: set[str] = set()
            self.env[state] = {u: self._held(state, names, seen) for u, names in enumerate(self.units)}

    # What the header says.

    def _header(self, call: ast.Call, stack: list[tuple[str, int]]) -> None:
        name, args = ast.unparse(call.func), call.args
        if name == "mesh":
            self.degrees = {str(k.arg): int(ast.unparse(k.value)) for k in call.keywords}
            if args:
                raise NotWalkedError("a degree is open")
        elif name == "values":
            self.known = {str(k.arg): number(k.value, {}) for k in call.keywords} | self.known
        elif name == "size":
            self.sizes[ast.unparse(args[0])] = number(args[1], self.known)
        elif name == "shared":
            self.shared = {ast.unparse(a) for a in args}
        elif name == "pipeline":
            self.pipeline = ast.unparse(args[0])
            if 'schedule="1f1b"' not in ast.unparse(call).replace("'", '"'):
                raise NotWalkedError("another schedule")
        elif name == "ring":
            raise NotWalkedError("a ring")
        elif name == "group":
            self._group(ast.unparse(args[0]), ast.unparse(args[1]))
        elif name == "place":
            state, _, group = ast.unparse(args[0]).partition(".")
            self.placed[state, group or "all"] = [str(k.arg) for k in call.keywords if ast.literal_eval(k.value)[0] in "SO"]
        elif name == "stack":
            for part in args:
                times = 1 if isinstance(part, ast.Name) else int(number(part.right, self.known))  # type: ignore[attr-defined]
                stack.append((ast.unparse(part if isinstance(part, ast.Name) else part.left), times))  # type: ignore[attr-defined]

    def _group(self, name: str, size: str) -> None:
        if size.startswith("P"):
            self.first = name
        for term in size.split(" + ") if "." in size else ():
            block, _, weight = term.partition(".")
            self.members[block, weight] = name

    def _units(self, stack: list[tuple[str, int]]) -> list[str]:
        """The segments that the stage has, one for each repetition."""
        if self.pipeline is None:
            return [name for name, times in stack for _ in range(times)]
        p = self.degrees[self.pipeline]
        repeated = [name for name, times in stack for _ in range(times) if times > 1]
        where = [i for i, (_, times) in enumerate(stack) if times > 1]
        each = len(repeated) // p
        found = repeated[self.stage * each : (self.stage + 1) * each]
        before = [name for name, _ in stack[: where[0]]] if self.stage == 0 else []
        return [*before, *found, *([name for name, _ in stack[where[-1] + 1 :]] if self.stage == p - 1 else [])]

    # Blocks.

    def _is_block(self, name: str) -> bool:
        return "tensor" in {
            ast.unparse(s.value.func) for s in self.defs[name].body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)
        }

    def local(self, tensor: Tensor) -> Fraction:
        """Elements of a tensor on the device."""
        return prod((self.sizes[d] / prod(self.degrees[a] for a in tensor.split.get(d, ())) for d in tensor.dims), start=Fraction(1))

    def _block(self, name: str) -> tuple[dict[str, list[tuple[str, Fraction]]], dict[str, Fraction], Tensor | None]:
        """What forward and backward send, as axes with bytes; elements of weights; the stream that is read."""
        env: dict[str, Tensor] = {}
        sent: dict[str, list[tuple[str, Fraction]]] = {"forward": [], "backward": []}
        phase, weights = "forward", list[str]()
        for stmt in self.defs[name].body:
            if isinstance(stmt, ast.Assign):
                env[ast.unparse(stmt.targets[0])] = self._made(stmt.value, env, sent[phase])
                continue
            assert isinstance(stmt, ast.Expr)
            call = stmt.value
            assert isinstance(call, ast.Call)
            options = {str(k.arg): ast.unparse(k.value).strip("'") for k in call.keywords}
            match ast.unparse(call.func):
                case "tensor":
                    own, *dims = map(ast.unparse, call.args)
                    split: dict[str, tuple[str, ...]] = {}
                    for axis, dim in options.items():
                        if axis != "picks":
                            split[dim] = (*split.get(dim, ()), axis)
                    env[own] = Tensor(tuple(dims), split, options.get("picks"))
                case "weights":
                    weights += [ast.unparse(a) for a in call.args[1:]]
                case "returns":
                    self._made(call.args[0], env, sent[phase])
                    phase = "backward"
        return sent, {w: self.local(env[w]) for w in weights}, env.get("x")

    def _made(self, node: ast.expr, env: Mapping[str, Tensor], sent: list[tuple[str, Fraction]]) -> Tensor:
        match node:
            case ast.Constant():
                return Tensor(())
            case ast.Name(id=name):
                return env[name]
            case ast.BinOp(left=left, right=right):
                return self._joined(self._made(left, env, sent), self._made(right, env, sent))
            case ast.Call(func=ast.Name(id=op), args=args, keywords=keywords):
                options = {str(k.arg): ast.unparse(k.value) for k in keywords}
                return self._called(op, args, options, env, sent)
        raise NotWalkedError(ast.unparse(node))

    @staticmethod
    def _joined(a: Tensor, b: Tensor) -> Tensor:
        return Tensor(tuple(dict.fromkeys((*a.dims, *b.dims))), {**a.split, **b.split})

    def _called(
        self, op: str, args: list[ast.expr], options: Mapping[str, str], env: Mapping[str, Tensor], sent: list[tuple[str, Fraction]]
    ) -> Tensor:
        if op in ("elementwise", "slope"):
            return self._made(args[1], env, sent)
        first = self._made(args[0], env, sent)
        axes = [ast.unparse(a) for a in args[1:]]
        match op:
            case "contract":
                both = self._joined(first, self._made(args[1], env, sent))
                return both.without(options["over"])
            case "total" | "largest":
                return first.without(options["over"])
            case "hot":
                assert first.picks is not None
                split = dict(first.split)
                for weight in env.values():  # one row of what is split lies here
                    split |= {d: a for d, a in weight.split.items() if d == first.picks}
                return Tensor((*first.dims, first.picks), split)
        if not first.dims:
            return first  # a number alone is not counted
        n, width = prod(self.degrees[a] for a in axes), self.known["b_a"]
        name, local = "*".join(axes), self.local(first) * width
        match op:
            case "all_gather":
                sent.append((name, (n - 1) * local))
                return Tensor(first.dims, {d: tuple(a for a in own if a not in axes) for d, own in first.split.items()})
            case "reduce_scatter":
                sent.append((name, local * (n - 1) / n))
                dim = options["dim"]
                return Tensor(first.dims, {**first.split, dim: (*first.split.get(dim, ()), *axes)})
            case "all_reduce":
                sent.append((name, 2 * local * (n - 1) / n))
                return first
            case "part":
                dim = options["dim"]
                return Tensor(first.dims, {**first.split, dim: (*first.split.get(dim, ()), *axes)})
            case "all_to_all":
                sent.append((name, local * (n - 1) / n))
                split = {d: tuple(a for a in own if a not in axes) for d, own in first.split.items()}
                return Tensor(first.dims, {**split, options["dim"]: (*split.get(options["dim"], ()), *axes)})
        raise NotWalkedError(op)

    # The step.

    def _called_by(self, segment: str) -> list[str]:
        return [ast.unparse(s.value.func) for s in self.defs[segment].body if isinstance(s, ast.Assign) and isinstance(s.value, ast.Call)]

    def _held(self, state: str, segments: list[str], seen: set[str]) -> dict[str, Fraction]:
        found: dict[str, Fraction] = defaultdict(Fraction)
        for block in (b for segment in segments for b in self._called_by(segment)):
            for weight, elements in self.walked[block][1].items():
                if weight not in seen:
                    found[self.members.get((block, weight), self.first)] += elements
                seen |= {weight} & self.shared
        groups = {g for s, g in self.placed if s == state}
        return {g: n / prod(self.degrees[a] for a in self.placed[state, g if g in groups else "all"]) for g, n in found.items()}

    def stream(self) -> Fraction:
        """Bytes of what goes between stages."""
        stream = next(t for _, _, t in self.walked.values() if t is not None)
        return self.local(stream) * self.known["b_a"]

    def run(self) -> dict[str, Fraction]:
        """Bytes sent by the axes of the group."""
        body = [s for s in self.tree.body if not isinstance(s, ast.FunctionDef)]
        self._body([s for s in body if not (isinstance(s, ast.Expr) and ast.unparse(s).split("(")[0] not in ("send", "free", "zero"))], {})
        return {axes: n for axes, n in self.sent.items() if n}

    def _body(self, body: list[ast.stmt], loops: dict[str, int]) -> None:
        for stmt in body:
            match stmt:
                case ast.For(target=ast.Name(id=var), iter=walk):
                    for part in self._parts(walk, loops):
                        turned = {"reversed": 1} if ast.unparse(walk).startswith("reversed(") else {}
                        self._body(stmt.body, {**loops, **turned, var: part})
                case ast.If(test=ast.Compare(ops=[op], comparators=[right])):
                    assert self.pipeline is not None
                    bound = number(right, {self.pipeline: Fraction(self.degrees[self.pipeline])})
                    holds = {ast.Eq: self.stage == bound, ast.Lt: self.stage < bound, ast.Gt: self.stage > bound}[type(op)]
                    self._body(stmt.body if holds else stmt.orelse, loops)
                case ast.Expr(value=ast.Call(func=ast.Name(id=op), args=args)):
                    if op == "send":
                        self.sent[ast.unparse(args[1])] += self.stream()
                case ast.Assign(targets=[target], value=value) | ast.AugAssign(target=target, value=value):
                    if "backward_weight" in ast.unparse(value):
                        self.gradients.add(ast.unparse(target).split(".")[0].split("[")[0])
                    self._assigned(target, self._value(value, loops))

    def _parts(self, walk: ast.expr, loops: Mapping[str, int]) -> Iterator[int]:
        text = ast.unparse(walk).removeprefix("reversed(").rstrip(")") if ast.unparse(walk).startswith("reversed(") else ast.unparse(walk)
        if text.startswith("microbatches"):
            yield from range(int(self.known["m"]))
        elif "[" in text and not text.endswith("[1:]"):  # the layers of a unit: it is one
            inner = text[text.index("[") + 1 : -1]
            yield loops.get(inner, 0)
        else:
            every = range(1 if text.endswith("[1:]") else 0, len(self.units))
            yield from reversed(every) if ast.unparse(walk).startswith("reversed(") else every

    def _assigned(self, target: ast.expr, value: Any) -> None:
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        values = value if isinstance(value, tuple) else (value,) * len(targets)
        for one, own in zip(targets, values, strict=True):
            if not isinstance(own, dict):
                continue
            name, _, group = ast.unparse(one).split("[")[0].partition(".")
            kept = self.env.setdefault(name, {})
            for unit, groups in own.items():
                if group or isinstance(one, ast.Subscript):
                    kept.setdefault(unit, {}).update(groups)
            if not group and not isinstance(one, ast.Subscript):
                self.env[name] = {unit: dict(groups) for unit, groups in own.items()}

    def _read(self, node: ast.expr, loops: Mapping[str, int]) -> Elements | None:
        text = ast.unparse(node)
        name, _, group = text.split("[")[0].partition(".")
        if name not in self.env:
            return None
        units = dict(self.env[name])
        if isinstance(node, ast.Subscript):
            at = eval(ast.unparse(node.slice), {}, dict(loops))
            at = at if at >= 0 or "u" in ast.unparse(node.slice) else len(self.units) + at
            units = {at: units[at]} if at in units else {}
        return {u: {g: n for g, n in own.items() if not group or g == group} for u, own in units.items()}

    def _value(self, node: ast.expr, loops: dict[str, int]) -> Any:
        if not isinstance(node, ast.Call):
            return self._read(node, loops) if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) else None
        op, args = ast.unparse(node.func), node.args
        if op in ("data", "loss", "recv", "output"):
            return None
        if op in ("forward", "backward", "backward_weight", "backward_input"):
            return self._run(op, args, loops)
        first = self._value(args[0], loops)
        if op in ("scale", "start", "wait", "to_host", "to_device", "copy"):
            return first
        if op == "master":
            return {u: dict(g) for u, g in (first or {}).items()}
        if op == "update":
            gradients = self._value(args[2], loops)
            return gradients, self._value(args[1], loops)
        if op in ("quantize", "dequantize"):
            raise NotWalkedError(op)
        if first is None:
            return None  # what is kept of a layer: its blocks say where it lies
        axes = [ast.unparse(a) for a in args[1:]]
        if any(a not in self.degrees for a in axes):
            raise NotWalkedError("a sub-group")
        n, name = prod(self.degrees[a] for a in axes), "*".join(axes)
        local = sum((e for own in first.values() for e in own.values()), Fraction(0))
        read = {n.id for n in ast.walk(args[0]) if isinstance(n, ast.Name)}
        width = self.known["b_g" if read & self.gradients or "backward" in ast.unparse(args[0]) else "b_theta"]
        if op == "tied_reduce":  # each of the two ends sends what it has once
            (axis,) = axes
            self.sent[axis] += width * local if self.degrees[axis] > 1 and self.stage in (0, self.degrees[axis] - 1) else 0
            return first
        factor = {"all_gather": Fraction(n), "reduce_scatter": Fraction(1, n), "part": Fraction(1, n), "all_reduce": Fraction(1)}
        ring = {"all_gather": n - 1, "reduce_scatter": Fraction(n - 1, n), "part": 0, "all_reduce": Fraction(2 * (n - 1), n)}
        if op not in factor:
            raise NotWalkedError(op)
        self.sent[name] += width * local * ring[op]
        return {u: {g: e * factor[op] for g, e in own.items()} for u, own in first.items()}

    def _run(self, op: str, args: list[ast.expr], loops: dict[str, int]) -> Any:
        """Forward or backward of the units that the weights are of."""
        weights = self._value(args[0], loops)
        assert weights is not None, ast.unparse(args[0])
        phase = "forward" if op == "forward" else "backward"
        once = op != "backward_weight"  # the two halves of backward share what is sent
        for unit in weights:
            again = op == "forward" and "reversed" in loops
            segments = [name for name in self.units[unit] if once and not (again and name not in self.repeats)]
            for block in (b for segment in segments for b in self._called_by(segment)):
                for axes, amount in self.walked[block][0][phase]:
                    self.sent[axes] += amount
        if op in ("forward", "backward_input"):
            return None
        return {u: dict(g) for u, g in weights.items()}
