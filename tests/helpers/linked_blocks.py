"""A block of a linked program, line by line for one device: what it sends, what of its values backward reads, how large its weights are.

A tensor has the shape that the device has. One that says which rows are picked (`hot`) has one row of the dimension for each pick, so that
its size does not grow with it. Experts that lie in parts get as many rows as the mean, times their load `c`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod

from linked_text import Header, NotWalkedError, options

#: Bytes of an element that is not as wide as activations: positions, masks, and a statistic of attention.
POSITION, BYTES = 8, {"mask": 1, "drop": 1, "lse": 4}


@dataclass(eq=False)
class Tensor:
    """What one device has of a tensor: dimensions, the axes that split each, and what it comes from."""

    dims: tuple[str, ...]
    split: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Dimensions of which one row is picked -> the dimensions that pick it.
    thin: Mapping[str, frozenset[str]] = field(default_factory=dict)
    picks: str | None = None
    #: Whether it differs from sample to sample: not so what follows from weights alone.
    samples: bool = False
    given: bool = False

    def over(self, dim: str) -> Tensor:
        """Summed over a dimension: what was picked along it is no longer thin."""
        thin = {d: by for d, by in self.thin.items() if d != dim and dim not in by}
        return Tensor(
            tuple(d for d in self.dims if d != dim), {d: a for d, a in self.split.items() if d != dim}, thin, samples=self.samples
        )

    def moved(self, joined: list[str], dim: str | None = None, axes: list[str] | None = None) -> Tensor:
        """With whole parts along the axes ``joined``, and ``dim`` split by ``axes``."""
        split = {d: tuple(a for a in own if a not in joined) for d, own in self.split.items()}
        dims = (dim or "").split()
        for axis, own in zip(axes or joined, dims if len(dims) > 1 else dims * len(axes or joined), strict=dim is not None):
            split[own] = (*split.get(own, ()), axis)
        return Tensor(self.dims, split, self.thin, samples=self.samples)


def joined(a: Tensor, b: Tensor, op: ast.operator | None) -> Tensor:
    """Element by element: a product has rows where both have, a sum where one has."""
    sparse = isinstance(op, ast.Mult | ast.Div) or op is None
    thin = {**a.thin, **b.thin} if sparse else {d: by for d, by in a.thin.items() if d in b.thin}
    split = {d: a.split.get(d) or b.split.get(d) or () for d in (*a.dims, *b.dims)}
    return Tensor(tuple(dict.fromkeys((*a.dims, *b.dims))), split, thin, samples=a.samples or b.samples)


def names(node: ast.expr) -> set[str]:
    """The values that an expression reads."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def called(node: ast.expr, op: str) -> list[ast.Call]:
    """The calls of an operation in an expression."""
    return [n for n in ast.walk(node) if isinstance(n, ast.Call) and ast.unparse(n.func) == op]


@dataclass
class Kept:
    """A value that backward reads: ``given`` to the block, or computed by it."""

    block: str
    name: str
    bytes: Fraction
    given: bool
    pairs: bool  # an element for each query and key


@dataclass
class Line:
    """A statement of forward: what it makes, from what, and what it sends for that."""

    name: str
    reads: set[str]
    sent: list[tuple[str, Fraction]]


@dataclass
class Block:
    """What is read off a block's program."""

    name: str
    sent: dict[str, list[tuple[str, Fraction]]]  # phase -> axes of the group, bytes
    lines: list[Line]  # of forward
    weights: dict[str, Fraction]  # elements
    kept: list[Kept]  # values of its own
    reads: set[str]  # of the stream `x` and of what a norm gives, `n`: what backward reads
    takes: dict[str, Fraction]  # bytes of `x` and `n` as it takes them
    result: Kept
    result_read: bool
    deferred: Fraction  # bytes that gradients of weights read, where they are computed later than those of inputs

    def sent_again(self, lost: set[str]) -> list[tuple[str, Fraction]]:
        """What is sent to compute values again, from what is still kept: to the end, what forward makes of them included."""
        needed = lost | {line.name for line in self.lines if line.reads & lost}
        staying = {own.name for own in self.kept} - needed
        sent = []
        for line in reversed(self.lines):
            if line.name in needed:
                needed |= line.reads - staying
                sent += line.sent
        return sent


class Walk:
    """One block."""

    def __init__(self, name: str, body: list[ast.stmt], head: Header) -> None:
        self.name, self.head = name, head
        self.env: dict[str, Tensor] = {}
        self.sent: dict[str, list[tuple[str, Fraction]]] = {"forward": [], "backward": []}
        self.phase = "forward"
        self.weights: list[str] = []
        self.gradients_in: set[str] = set()
        self.read: dict[str, None] = {}
        self.forward: list[str] = []
        self.lines: list[Line] = []
        self.made: list[tuple[str, set[str]]] = []  # what backward makes, and the names that it reads for it
        self.products: list[tuple[str, set[str]]] = []  # weights, and what their gradients read
        self.contracted: set[str] = set()  # what forward multiplies as matrices
        self.result = ""
        for stmt in body:
            self._line(stmt)

    def block(self) -> Block:
        """What was read."""
        own = list({id(self.env[n]): n for n in self.read if self._is_kept(n)}.values())  # of two names of one value, one
        stream: dict[str, Fraction] = {n: self.bytes(n) for n in ("x", "n") if n in self.env and self.env[n].given}
        inner = [self._kept(n) for n in own if n not in stream and n != self.result]
        result = self._kept(self.result)
        deferred = sum((self.bytes(n) for n in self._deferred()), Fraction(0))
        weights = {w: self.local(self.env[w]) for w in self.weights}
        return Block(
            self.name, self.sent, self.lines, weights, inner, {n for n in own if n in stream}, stream, result, self.result in own, deferred
        )

    def _deferred(self) -> set[str]:
        """What gradients of matrices read when those of inputs are done. Others are sums, and are taken before."""
        late: set[str] = set()
        matrices = self.contracted.intersection(self.weights)
        last = [read for by, read in self.products if by in matrices]
        sooner = [read for by, read in self.products if by not in matrices]
        for name, read in reversed(self.made):  # what is made for these gradients alone is made then
            if any(name in r for r in last) and not any(name in r for r in sooner):
                late.add(name)
                last.append(read)
            else:
                sooner.append(read)
        values = {id(self.env[n]): n for read in last for n in read if n in self.env and n not in late and n not in self.weights}
        return {n for n in values.values() if self.env[n].samples or n in self.gradients_in}

    def _is_kept(self, name: str) -> bool:
        return name in self.forward and name not in self.weights and name not in self.gradients_in and self.env[name].samples

    def _kept(self, name: str) -> Kept:
        own = self.env[name]
        return Kept(self.name, name, self.bytes(name), own.given, {"tokens", "keys"} <= set(own.dims))

    # Sizes.

    def local(self, tensor: Tensor) -> Fraction:
        """Elements on the device."""
        return prod((self._extent(tensor, d) for d in tensor.dims), start=Fraction(1))

    def _extent(self, tensor: Tensor, dim: str) -> Fraction:
        parts = prod(self.head.degrees[a] for a in tensor.split.get(dim, ()))
        if dim in tensor.thin:
            return self.head.known["c"] / parts if parts > 1 else Fraction(1)
        return self.head.sizes[dim] / parts

    def bytes(self, name: str) -> Fraction:
        """Bytes of a value by its name."""
        own = self.env[name]
        return self.local(own) * (POSITION if own.picks else BYTES.get(name, self.head.known["b_a"]))

    # Lines.

    def _line(self, stmt: ast.stmt) -> None:
        if isinstance(stmt, ast.Assign):
            name = ast.unparse(stmt.targets[0])
            before = len(self.sent[self.phase])
            made = self._made(stmt.value)
            self.env[name] = made if isinstance(stmt.value, ast.Name) else replace(made)
            if self.phase == "forward":
                self.forward.append(name)
                self.lines.append(Line(name, names(stmt.value), self.sent["forward"][before:]))
                products = [
                    call for call in called(stmt.value, "contract") if not called(call.args[0], "hot")
                ]  # rows are picked of a table
                self.contracted |= {name for call in products for name in names(call)}
            else:
                self.made.append((name, names(stmt.value)))
            return
        assert isinstance(stmt, ast.Expr)
        assert isinstance(stmt.value, ast.Call)
        call = stmt.value
        match ast.unparse(call.func):
            case "tensor":
                self._declared(call)
            case "weights":
                self.weights += [ast.unparse(a) for a in call.args[1:]]
            case "returns" if self.phase == "forward":
                self.result, self.phase = ast.unparse(call.args[0]), "backward"
            case "returns":
                self._made(call.args[0])
                self.products.append((options(call)["by"], names(call.args[0])))

    def _declared(self, call: ast.Call) -> None:
        name, *dims = map(ast.unparse, call.args)
        said = options(call)
        picks = said.pop("picks", None)
        split = {d: tuple(axis for axis, dim in said.items() if dim == d) for d in dims}
        samples = bool({"batch", "tokens"} & set(dims))
        self.env[name] = Tensor(tuple(dims), split, picks=picks, samples=samples, given=True)
        self.forward.append(name)
        if name in ("dy", "dn"):
            self.gradients_in.add(name)

    def _made(self, node: ast.expr) -> Tensor:
        match node:
            case ast.Constant():
                return Tensor(())
            case ast.Name(id=name):
                if self.phase == "backward":
                    self.read[name] = None
                return self.env[name]
            case ast.BinOp(left=left, op=op, right=right):
                return joined(self._made(left), self._made(right), op)
            case ast.Call(func=ast.Name(id=op), args=args):
                return self._called(op, args, options(node))
        raise NotWalkedError(ast.unparse(node))

    def _called(self, op: str, args: list[ast.expr], said: Mapping[str, str]) -> Tensor:
        if op in ("elementwise", "slope"):
            return self._made(args[1])
        first = self._made(args[0])
        match op:
            case "contract":
                return joined(first, self._made(args[1]), None).over(said["over"])
            case "total" | "largest":
                return first.over(said["over"])
            case "hot":
                assert first.picks is not None
                thin = {first.picks: frozenset(first.dims)}
                return Tensor((*first.dims, first.picks), first.split, thin, samples=first.samples)
        return self._exchanged(op, first, [ast.unparse(a) for a in args[1:]], said.get("dim"))

    def _exchanged(self, op: str, x: Tensor, axes: list[str], dim: str | None) -> Tensor:
        """A collective: a ring of n devices sends (n - 1) / n of what the whole is. A number alone is not counted."""
        n, local = prod(self.head.degrees[a] for a in axes), self.local(x)
        ring = self.head.rings.issuperset(axes)
        match op:
            case "all_gather":  # in a ring, keys and values visit each other device
                sent, made = (n - 1) * local, x.moved(axes)
            case "reduce_scatter" if ring:  # gradients of visitors go with them, and home
                sent, made = local, x.moved([], dim, axes)
            case "reduce_scatter":
                sent, made = local * (n - 1) / n, x.moved([], dim, axes)
            case "all_reduce":
                sent, made = 2 * local * (n - 1) / n, x
            case "part":
                sent, made = Fraction(0), x.moved([], dim, axes)
            case "all_to_all":
                sent, made = local * (n - 1) / n, x.moved(axes, dim)
            case _:
                raise NotWalkedError(op)
        if x.dims and sent:
            self.sent[self.phase].append(("*".join(axes), sent * self.head.known["b_a"]))
        return made
