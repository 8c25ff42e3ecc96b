"""An independent reference interpreter of step programs, written from the manual alone.

Every device is simulated by itself, element by element, with numbers modulo a large prime. One device trains the same model.
Whatever a device reads without having it is a mark that spreads (`BAD`), so that it shows in the end.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from typing import Any, NamedTuple

from placeproof.core.mesh import Axis
from placeproof.programs import Assign, Binary, Call, Do, Expr, For, If, Number, Program, Ref, Stmt, read
from placeproof.semantics.resolve import resolve

#: A prime that is 7 modulo 8 and of which 2, 3, 5, 7, 11, 13 are squares: so square roots of products are products of square roots.
PRIME = 2305843009213682039
STATES = ("parameters", "optimizer", "gradients")
UNIT_DOMAINS = ("units", "layers", "blocks")
LAYERED = ("forward", "loss", "backward_input", "backward_weight", "output")
FOREIGN = ("contract", "total", "largest", "hot", "slope", "returns", "all_to_all")


class UnsupportedError(Exception):
    """The program uses what this interpreter does not speak about."""


class DifferenceError(Exception):
    """The devices do not do what one device does."""


class NoPartError(Exception):
    """A part beyond either end."""


class BadRootError(Exception):
    """The reference takes the root of a number that has none: another salt is tried."""


# ---------------------------------------------------------------- numbers


class Mark(Enum):
    """What is not a number: not held here, garbage, not finite."""

    HOLE = "not held"
    BAD = "garbage"
    INF = "not finite"


HOLE, BAD, INF = Mark.HOLE, Mark.BAD, Mark.INF
Num = Any  # an int modulo PRIME, a Mark, or a pair of these (optimizer state: its moment and the master copy)


class Missing:
    """What a device reads that has nothing under a name."""


MISSING = Missing()


@functools.lru_cache(maxsize=1 << 18)
def digest(key: Hashable) -> int:
    """A number that is random as far as anybody can tell, but always the same for the same key."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=16).digest()) % PRIME


def inverse(value: int) -> Num:
    """One over a number. One over zero is not finite."""
    return pow(value, -1, PRIME) if value % PRIME else INF


def lift(function: Callable[..., int | Mark], *values: Num) -> Num:
    """A function of numbers, on marks and pairs as well: not held only if all are not held, garbage if any is."""
    if any(isinstance(v, tuple) for v in values):
        pairs = [v if isinstance(v, tuple) else (v, v) for v in values]
        return tuple(lift(function, *(p[i] for p in pairs)) for i in range(2))
    if all(v is HOLE for v in values):
        return HOLE
    if any(v is HOLE or v is BAD for v in values):
        return BAD
    if any(v is INF for v in values):
        return INF
    result = function(*values)
    return result if isinstance(result, Mark) else result % PRIME


def order(value: int) -> tuple[int, int]:
    """A total order for `max`: small whole numbers as usual (flags!), all others in some order."""
    return (0, value) if value < 2**20 else (1, digest(("order", value)))


def smaller(a: int, b: int) -> int:
    """`min`: nothing is known of it but that it is symmetric, and as usual on small whole numbers."""
    if max(a, b) < 2**20 or a == b:
        return min(a, b)
    return digest(("min", *sorted((a, b))))


def greater(a: int, b: int) -> int:
    """`max`: associative and idempotent, as usual on small whole numbers."""
    return max(a, b, key=order)


def root_of(value: int) -> int:
    """A square root that is multiplicative. (Of a number without a root: the root of its negative.)"""
    return pow(value, (PRIME + 1) // 4, PRIME)


def arithmetic(op: str, a: int, b: int) -> Num:
    """One of the four operations."""
    if op == "/":
        inv = inverse(b)
        return INF if inv is INF else a * inv
    return {"+": a + b, "-": a - b, "*": a * b}[op]


# ---------------------------------------------------------------- values


class Elem(NamedTuple):
    """One parameter: its group, where it lies, and its number there. Layers and blocks are counted over the whole model."""

    group: str
    unit: int
    layer: int
    block: int
    number: int


class Sample(NamedTuple):
    """The samples of one device of the axes that split samples, in one micro-batch: taken as one sample."""

    where: tuple[tuple[str, int], ...]
    microbatch: int


@dataclass
class Vec:
    """Numbers by element (or tensor, or sample). What is not in `cells` was never spoken of; HOLE: spoken of, but not held here."""

    cells: dict[Any, Num]
    kind: str = "gradients"

    def get(self, key: Hashable) -> Num:
        """The number at a key."""
        return self.cells.get(key, HOLE)


@dataclass
class Saved:
    """What a forward kept: the input of each block, and the output."""

    inputs: dict[int, Vec]
    output: Vec


@dataclass
class Request:
    """What one device gave to a collective or a message, and what it gets."""

    signature: tuple[Any, ...]
    value: Any
    done: bool = False
    result: Any = MISSING


@dataclass
class Handle:
    """A started collective."""

    request: Request


@dataclass
class Cell:
    """A buffer: one value, or values by part."""

    value: Any = MISSING
    parts: dict[Any, Any] = field(default_factory=dict)


def at(value: Any, key: Hashable) -> Num:
    """A value at a key: a scalar is the same everywhere."""
    if isinstance(value, Vec):
        return value.get(key)
    return HOLE if not isinstance(value, (int, Mark)) else value


def pointwise(function: Callable[..., int | Mark], *values: Any) -> Any:
    """A function of numbers on scalars or, element by element, on vectors."""
    vecs = [v for v in values if isinstance(v, Vec)]
    if not vecs:
        return lift(function, *(v if isinstance(v, (int, Mark)) else BAD for v in values))
    keys = dict.fromkeys(k for v in vecs for k in v.cells)
    cells = {}
    for key in keys:
        nums = [v.get(key) for v in vecs]
        if all(n is HOLE for n in nums):
            cells[key] = HOLE
        else:
            cells[key] = lift(function, *(at(v, key) for v in values))
    return Vec(cells, vecs[0].kind)


# ---------------------------------------------------------------- syntax


def walk(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """All statements."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, For):
            yield from walk(stmt.body)
        elif isinstance(stmt, If):
            yield from walk(stmt.then + stmt.orelse)


def inside(expr: Expr) -> Iterator[Expr]:
    """An expression and all inside it."""
    yield expr
    if isinstance(expr, Call):
        for arg in expr.args:
            yield from inside(arg)
    elif isinstance(expr, Binary):
        yield from inside(expr.left)
        yield from inside(expr.right)


def tops(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions of a statement, without those of statements inside it. Targets are among them."""
    if isinstance(stmt, Assign):
        return (*stmt.targets, stmt.value)
    if isinstance(stmt, Do):
        return (stmt.call,)
    return (stmt.bound,) if isinstance(stmt, If) else ()


def all_calls(program: Program) -> list[Call]:
    """All operations of a program."""
    return [e for s in walk(program.body) for top in tops(s) for e in inside(top) if isinstance(e, Call)]


def kept_by_microbatch(body: Iterable[Stmt], micro: frozenset[str] = frozenset()) -> Iterator[str]:
    """The buffers that are written with a micro-batch as their index."""
    for stmt in body:
        if isinstance(stmt, For):
            more = {stmt.var} if stmt.domain == "microbatches" else set()
            yield from kept_by_microbatch(stmt.body, (micro - {stmt.var}) | more)
        elif isinstance(stmt, If):
            yield from kept_by_microbatch(stmt.then + stmt.orelse, micro)
        elif isinstance(stmt, Assign):
            yield from (t.name for t in stmt.targets if t.index is not None and t.index.var in micro)


def kept_by_layer(body: Iterable[Stmt], fine: frozenset[str] = frozenset()) -> Iterator[str]:
    """The buffers that are written with a layer or a block as their index."""
    for stmt in body:
        if isinstance(stmt, For):
            more = {stmt.var} if stmt.domain in ("layers", "blocks") else set()
            yield from kept_by_layer(stmt.body, (fine - {stmt.var}) | more)
        elif isinstance(stmt, If):
            yield from kept_by_layer(stmt.then + stmt.orelse, fine)
        elif isinstance(stmt, Assign):
            yield from (t.name for t in stmt.targets if t.index is not None and t.index.var in fine)


# ---------------------------------------------------------------- the model, the mesh and one device


class Model:
    """What is trained: elements, samples, and every random number. The devices and the reference ask it."""

    def __init__(self, program: Program, degrees: dict[str, int], microbatches: int, units: int, seed: int, salt: int) -> None:
        self.program, self.seed, self.salt = program, seed, salt
        self.m = program.count("microbatches") or microbatches
        self.degrees = {a.name: a.degree or degrees[a.name] for a in program.axes}
        self.symbols = {k: v for k, v in degrees.items() if k not in self.degrees}
        self.atoms: dict[str, tuple[str, ...]] = {}
        self.sizes: dict[str, int] = {}
        for axis in program.axes:
            self._factor(axis)
        self._lay_out(program.count("units") or units)
        self.options = self._options()
        self.layered = any(self._is_layered(c) for c in all_calls(program))
        if self.layered and any(c.op in ("backward", "backward_with") and not self._is_layered(c) for c in all_calls(program)):
            raise UnsupportedError("whole passes beside passes layer by layer")
        self.sample_axes = [a.name for a in program.axes if a.splits.samples]
        spaces = [range(self.degrees[a]) for a in self.sample_axes]
        places = [tuple(zip(self.sample_axes, c, strict=True)) for c in itertools.product(*spaces)]
        self.samples = [Sample(w, i) for w in places for i in range(self.m)]

    @staticmethod
    def _is_layered(call: Call) -> bool:
        """Whether an operation is of a pass layer by layer."""
        return call.op in LAYERED or (call.op == "backward" and len(call.args) == 3)

    def _options(self) -> dict[str, str]:
        """What the reference does beyond a plain step: header lines `reference` and `without`."""
        options = dict(self.program.reference)
        if "separable-loss" in self.program.without:
            options["statistics"] = "batch"
        return options

    def _factor(self, axis: Axis) -> None:
        """The factors of an axis, and the degrees of all."""
        degree = self.degrees[axis.name]
        if axis.inner is None:
            self.atoms[axis.name] = (axis.name,)
            self.sizes[axis.name] = degree
            return
        inner = axis.inner if isinstance(axis.inner, int) else self.symbols.get(axis.inner)
        if inner is None:
            inner = next(k for k in range(2, degree + 2) if degree % k == 0 or k > degree) if degree > 1 else 1
            self.symbols[str(axis.inner)] = inner
        if degree % inner:
            raise UnsupportedError(f"{axis.name} = {degree} has no sub-groups of {inner}")
        self.sizes |= {axis.name: degree, axis.outer_name: degree // inner, axis.inner_name: inner}
        self.atoms |= {axis.name: (axis.outer_name, axis.inner_name)}
        self.atoms |= {axis.outer_name: (axis.outer_name,), axis.inner_name: (axis.inner_name,)}

    def _lay_out(self, units: int) -> None:
        """Layers in each unit, blocks in each layer, elements in each block: irregular, and finer only where the program asks."""
        loops = {s.domain for s in walk(self.program.body) if isinstance(s, For)}
        names = {e.name for s in walk(self.program.body) for t in tops(s) for e in inside(t) if isinstance(e, Ref)}
        fine, finest = bool((loops | names) & {"layers", "blocks"}), "blocks" in loops | names
        blocks = self.program.count("blocks")
        layers = self.program.count("layers") or (blocks // 2 if blocks else None)
        counts = [1 + (self.h("layers", u) % 2 if fine else 0) for u in range(units)]
        if layers is not None:
            if layers < units:
                raise UnsupportedError(f"{layers} layers in {units} units")
            counts = [1] * units
            for extra in range(layers - units):
                counts[self.h("extra", extra) % units] += 1
        self.parts: dict[str, list[tuple[int, int, int]]] = {"units": [(u, -1, -1) for u in range(units)], "layers": [], "blocks": []}
        for unit, count in enumerate(counts):
            for _ in range(count):
                layer = len(self.parts["layers"])
                self.parts["layers"].append((unit, layer, -1))
                for _ in range(2 if finest else 1):
                    self.parts["blocks"].append((unit, layer, len(self.parts["blocks"])))
        each = 3 if not fine else 2
        self.elements = [Elem(g.name, *where, j) for g in self.program.groups for where in self.parts["blocks"] for j in range(each)]

    def h(self, *key: Hashable) -> int:
        """A random number of a key."""
        return digest((self.seed, self.salt, *key))

    def small(self, *key: Hashable) -> int:
        """A random number of a key, from 1 to 1000."""
        return 1 + self.h("small", *key) % 1000

    def owner(self, axis: str, element: Hashable, how: str = "blocked") -> int:
        """Which device of an axis owns an element: an arbitrary map, so that some may own nothing."""
        rank = 0
        for atom in self.atoms[axis]:
            matrix = isinstance(element, Elem) and (how == "matrices" or atom in self._whole(element.group))
            key = self.tensor(element) if matrix and isinstance(element, Elem) else element
            rank = rank * self.sizes[atom] + self.h("owner", atom, key, how) % self.sizes[atom]
        return rank

    def _whole(self, group: str) -> set[str]:
        """The axis factors along which parts of a group are whole matrices."""
        return {atom for g in self.program.groups if g.name == group for axis in g.whole for atom in self.atoms[axis]}

    def tensor(self, element: Elem) -> tuple[str, int, int]:
        """The tensor that an element is part of: its group's in its block; an expert, which here is one element, is its own."""
        expert = any(g.experts for g in self.program.groups if g.name == element.group)
        return (element.group, element.block, element.number if expert else -1)

    def optimizer_of(self, group: str) -> str:
        """What the reference's optimizer reads for an element of a group."""
        says = {g.name: g.update for g in self.program.groups}.get(group)
        kind = says if says in ("tensor_norm", "elementwise") else self.options.get("optimizer", "elementwise")
        dropped = "elementwise-optimizer" in self.program.without  # which is assumed of what is said to read no more than an element
        return "matrix" if dropped and kind == "elementwise" else kind

    def tokens(self, sample: Sample, step: int) -> int:
        """How many tokens of a sample count."""
        if "equal-token-counts" in self.program.without:
            return self.small("tokens", sample, step)
        return self.small("tokens")

    def weights(self, samples: list[Sample], step: int) -> dict[Sample, int]:
        """The weights of a mean over samples: by their tokens."""
        total = sum(self.tokens(s, step) for s in samples)
        return {s: self.tokens(s, step) * pow(total, -1, PRIME) % PRIME for s in samples}

    # ---- what a whole pass computes

    def reading(self, parameters: Vec) -> Num:
        """What a pass makes of all parameters that it reads."""
        total: Num = 0
        for e in self.elements:
            value = parameters.get(e)
            total = lift(lambda t, v, e=e: t + self.h("reads", e) * v, total, BAD if value is HOLE else value)
        return total

    def statistic(self, samples: list[Sample], read_: Num, step: int) -> Num:
        """A statistic of some samples: the mean of a number of each, which depends on the parameters too."""
        weights = self.weights(samples, step)
        return lift(lambda r: sum(w * (self.h("stat", s, step) + self.h("stat*", s) * r) for s, w in weights.items()), read_)

    def infinite(self, element: Elem, sample: Sample, step: int) -> bool:
        """Whether the gradient of a sample at an element is not finite: in odd steps, at one place, if the reference skips such steps."""
        if self.options.get("skip") != "not_finite" or step % 2 == 0:
            return False
        chosen = self.samples[self.h("inf sample", step) % len(self.samples)]
        return sample == chosen and element == self.elements[self.h("inf element", step) % len(self.elements)]

    def sample_gradient(self, element: Elem, sample: Sample, step: int, read_: Num, stat: Num) -> Num:
        """The gradient of one sample at one element."""
        if self.infinite(element, sample, step):
            return INF
        noise = self.h("noise", element, sample, step)
        value = lift(lambda r: noise + self.h("r", element, sample) * r, read_)
        if self.options.get("statistics") == "batch":
            value = lift(lambda v, s: v + self.h("s", element, sample, step) * s, value, stat)
        return value

    def mean_gradient(self, element: Elem, samples: list[Sample], step: int, read_: Num, stat: Num) -> Num:
        """The gradient of the mean loss of some samples."""
        total: Num = 0
        for s, w in self.weights(samples, step).items():
            total = lift(lambda t, g, w=w: t + w * g, total, self.sample_gradient(element, s, step, read_, stat))
        return total

    # ---- what a pass layer by layer computes

    def block_of(self, w: Vec, block: int) -> tuple[Num, Num]:
        """The two numbers that a block makes of its parameters: it maps x to q*x*x + r*x + const."""
        q: Num = 1
        r: Num = 1
        for e in self.elements:
            if e.block == block:
                value = BAD if w.get(e) is HOLE else w.get(e)
                q = lift(lambda t, v, e=e: t + self.h("q", e) * v, q, value)
                r = lift(lambda t, v, e=e: t + self.h("r", e) * v * v, r, value)
        return q, r

    def run_block(self, w: Vec, block: int, x: Vec) -> Vec:
        """The forward of one block."""
        q, r = self.block_of(w, block)
        return Vec({s: lift(lambda x, q, r: q * x * x + r * x + self.h("b", block), v, q, r) for s, v in x.cells.items()}, "samples")

    def input_gradient(self, w: Vec, block: int, x: Vec, dy: Vec) -> Vec:
        """The backward of one block, to its input."""
        q, r = self.block_of(w, block)
        return Vec({s: lift(lambda d, x, q, r: (2 * q * x + r) * d, d, x.get(s), q, r) for s, d in dy.cells.items()}, "samples")

    def weight_gradient(self, w: Vec, block: int, x: Vec, dy: Vec) -> Vec:
        """The backward of one block, to its parameters: summed over the samples."""
        cells: dict[Any, Num] = {}
        for e in self.elements:
            if e.block == block:
                v = BAD if w.get(e) is HOLE else w.get(e)
                one = lambda t, d, x, v, e=e: t + (self.h("q", e) * x * x + 2 * self.h("r", e) * v * x) * d  # noqa: E731
                cells[e] = functools.reduce(lambda t, s: lift(one, t, dy.get(s), x.get(s), v), dy.cells, 0)
        return Vec(cells)

    def first_input(self, samples: list[Sample], step: int) -> Vec:
        """The samples themselves."""
        return Vec({s: self.h("x", s, step) for s in samples}, "samples")

    def loss_gradient(self, x: Vec, step: int) -> Vec:
        """The gradient of the mean loss of the samples with respect to the model's output."""
        weights = self.weights(list(x.cells), step)
        bad = {s for s in x.cells if any(self.infinite(e, s, step) for e in self.elements)}
        one = {s: lift(lambda v, s=s: weights[s] * (v * v + self.h("target", s, step)), v) for s, v in x.cells.items()}
        return Vec({s: INF if s in bad else v for s, v in one.items()}, "samples")

    # ---- the optimizer

    def tensor_sums(self, p: Vec, o: Vec, g: Vec, sums: Vec | None = None) -> Vec:
        """What a layer-wise optimizer sums over the elements of each tensor that are held here; `sums`: along lines, if it reads any."""
        cells: dict[Any, Num] = {self.tensor(e): 0 for e in self.elements}
        for e in self.elements:
            values = (p.get(e), o.get(e), g.get(e))
            if HOLE not in values:
                moment = values[1][0] if isinstance(values[1], tuple) else values[1]
                lines = 0 if sums is None else self.of_lines(sums, e)
                one = lambda t, p, m, g, s: t + p * p + p * g + m * g * g + 59 * s * g + s * s  # noqa: E731
                cells[self.tensor(e)] = lift(one, cells[self.tensor(e)], values[0], moment, values[2], lines)
        return Vec(cells, "norms")

    def lines(self, e: Elem) -> list[tuple[Any, str, int]]:
        """The row and the column of its matrix in which an element lies."""
        return [(self.tensor(e), "row", e.number % 2), (self.tensor(e), "column", e.number // 2)]

    def line_sums(self, g: Vec) -> Vec:
        """What is summed along each row and column, over the elements that are held here."""
        cells: dict[Any, Num] = {line: 0 for e in self.elements for line in self.lines(e)}
        for e in self.elements:
            for line in self.lines(e) if g.get(e) is not HOLE else ():
                cells[line] = lift(lambda t, g: t + 61 * g * g + g, cells[line], g.get(e))
        return Vec(cells, "norms")

    def of_lines(self, sums: Vec, e: Elem) -> Num:
        """What an element reads of sums along lines: of its own, and of all of its matrix."""
        own = [sums.get(line) for line in self.lines(e)]
        every = [
            sums.get(line) for line in dict.fromkeys(k for other in self.elements for k in self.lines(other)) if line[0] == self.tensor(e)
        ]
        return lift(lambda row, column, *others: 67 * row + 71 * column + 73 * row * column + sum(others), *own, *every)

    def matrix_sums(self, p: Vec, o: Vec, g: Vec) -> Vec:
        """What a matrix optimizer makes of a whole matrix; not held where any of the matrix is missing."""
        cells = dict(self.tensor_sums(p, o, g).cells)
        for e in self.elements:
            if HOLE in (p.get(e), o.get(e), g.get(e)):
                cells[self.tensor(e)] = HOLE
        return Vec(cells, "norms")

    def momentum(self, o: Vec, g: Vec) -> Vec:
        """What is made of each element's state and gradient."""
        cells: dict[Any, Num] = {}
        for e in dict.fromkeys((*o.cells, *g.cells)):
            state, gradient = o.get(e), g.get(e)
            moment, master = state if isinstance(state, tuple) else (BAD, BAD)
            held = HOLE not in (state, gradient)
            cells[e] = lift(lambda m, a, g: 41 * m + 43 * g + 47 * m * g + 53 * a, moment, master, gradient) if held else HOLE
        return Vec(cells, "momentum")

    def orthogonalized(self, x: Vec) -> Vec:
        """What is made of each whole matrix: each element by all of them. Not held where any of the matrix is missing."""
        sums: dict[Any, Num] = {}
        for e in self.elements:
            total, value = sums.get(self.tensor(e), 0), x.get(e)
            missing = HOLE in (total, value)
            sums[self.tensor(e)] = HOLE if missing else lift(lambda t, v, e=e: t + self.h("whole", e) * v * v, total, value)
        cells = {
            e: HOLE if HOLE in (v, sums[self.tensor(e)]) else lift(lambda v, t: v * t + v, v, sums[self.tensor(e)])
            for e, v in x.cells.items()
        }
        return Vec(cells, "momentum")

    def updated(self, p: Vec, o: Vec, g: Vec, beside: dict[Elem, Num]) -> tuple[Vec, Vec]:
        """The optimizer's step: an element is there afterwards if all that it needs is. `beside`: what it needs beside its own numbers."""
        new_p: dict[Any, Num] = {}
        new_o: dict[Any, Num] = {}
        for e in dict.fromkeys((*p.cells, *o.cells, *g.cells)):
            values = (p.get(e), o.get(e), g.get(e), beside.get(e, HOLE))
            if HOLE in values:
                new_p[e] = new_o[e] = HOLE
                continue
            moment, master = values[1] if isinstance(values[1], tuple) else (BAD, BAD)
            new_moment = lift(lambda m, g, n: 3 * m + 5 * g + 7 * g * g + 11 * m * g + 13 * n * g, moment, values[2], values[3])
            step = lambda p, a, m, g: 17 * p + 19 * m * m + 23 * m * p + 29 * a * m + 31 * g  # noqa: E731
            new_p[e] = lift(step, values[0], master, new_moment, values[2])
            new_o[e] = (new_moment, new_p[e])
        return Vec(new_p, "parameters"), Vec(new_o, "optimizer")

    def by_lines(self, sums: Vec, norms: Vec, e: Elem) -> Num:
        """What the update of an element reads of sums along lines, and of norms."""
        return lift(lambda s, n: 79 * s + 83 * n + s * n, self.of_lines(sums, e), norms.get(self.tensor(e)))

    def update(self, p: Vec, o: Vec, g: Vec) -> tuple[Vec, Vec]:
        """`update`, by the kind of the reference's optimizer, from what is held."""
        directions = self.orthogonalized(self.momentum(o, g))
        sums = {"tensor_norm": self.tensor_sums(p, o, g), **dict.fromkeys(("matrix", "preconditioned"), self.matrix_sums(p, o, g))}
        beside: dict[Elem, Num] = {}
        along = self.line_sums(g)
        norms = self.tensor_sums(p, o, g, along)
        for e in self.elements:
            kind = self.optimizer_of(e.group)
            if kind == "factored":
                beside[e] = self.by_lines(along, norms, e)
                continue
            beside[e] = directions.get(e) if kind == "orthogonal" else sums[kind].get(self.tensor(e)) if kind in sums else 0
        return self.updated(p, o, g, beside)


# ---------------------------------------------------------------- the reference


def constants(model: Model, expr: Expr) -> Num:
    """A scalar that every device knows before it starts, as a number modulo the prime."""
    if isinstance(expr, Number):
        return expr.value.numerator * pow(expr.value.denominator, -1, PRIME) % PRIME
    if isinstance(expr, Binary) and expr.op in "+-*/":
        return pointwise(functools.partial(arithmetic, expr.op), constants(model, expr.left), constants(model, expr.right))
    if isinstance(expr, Ref) and expr.group is None and expr.index is None:
        return known(model, expr.name)
    raise UnsupportedError("an expression that is no constant")


def whole(model: Model, name: str) -> int | None:
    """The value of a name that stands for a whole number, or None."""
    if name in model.sizes:
        return model.sizes[name]
    if name in model.parts or name == "microbatches":
        return model.m if name == "microbatches" else len(model.parts[name])
    if name.startswith("N_") and name[2:] in model.sizes:
        return model.sizes[name[2:]]
    world = functools.reduce(lambda a, b: a * b, model.degrees.values(), 1)
    usual = {"N": world, "m": model.m, "n_u": len(model.parts["units"]), "L": len(model.parts["layers"])}
    return usual.get(name, model.symbols.get(name))


def known(model: Model, name: str) -> int:
    """The value of a name that is no buffer."""
    value = whole(model, name)
    return model.h("symbol", name) if value is None else value


def clip_limit(model: Model) -> Num:
    """The norm above which gradients are clipped: what the program's own `clip_factor` says, if it says it."""
    for call in all_calls(model.program):
        if call.op == "clip_factor" and len(call.args) == 2:
            return constants(model, call.args[1])
    return model.h("limit")


def reference(model: Model, steps: int) -> list[tuple[Vec, Vec]]:
    """What one device holds before each step, and at last."""
    p = Vec({e: model.h("p", e) for e in model.elements}, "parameters")
    o = Vec({e: (model.h("moment", e), model.h("p", e)) for e in model.elements}, "optimizer")
    held = [(p, o)]
    for step in range(steps):
        g = network_gradient(model, p, step) if model.layered else flat_gradient(model, p, step)
        if INF in g.cells.values():
            held.append((p, o))
            continue
        if model.options.get("clip") == "global_norm":
            square = sum(v * v for v in g.cells.values()) % PRIME
            norm = root_of(square)
            if norm * norm % PRIME != square:
                raise BadRootError
            factor = smaller(1, clip_limit(model) * pow(norm, -1, PRIME) % PRIME)
            g = Vec({e: v * factor % PRIME for e, v in g.cells.items()})
        p, o = model.update(p, o, g)
        held.append((p, o))
    return held


def flat_gradient(model: Model, p: Vec, step: int) -> Vec:
    """The mean gradient of all samples by a whole pass of one device."""
    read_ = model.reading(p)
    stat = model.statistic(model.samples, read_, step)
    return Vec({e: model.mean_gradient(e, model.samples, step, read_, stat) for e in model.elements})


def network_gradient(model: Model, p: Vec, step: int) -> Vec:
    """The mean gradient of all samples, layer by layer."""
    xs = [model.first_input(model.samples, step)]
    blocks = range(len(model.parts["blocks"]))
    for block in blocks:
        xs.append(model.run_block(p, block, xs[-1]))
    masks: dict[Sample, int] | None = None
    if model.options.get("dropout") == "output":
        masks = {s: key_mask(model, own_key(model, s, step), s.microbatch) for s in model.samples}
        xs[-1] = Vec({s: v * masks[s] % PRIME for s, v in xs[-1].cells.items()}, "samples")
    dx = model.loss_gradient(xs[-1], step)
    if masks is not None:
        dx = Vec({s: lift(lambda v, s=s: v * masks[s], v) for s, v in dx.cells.items()}, "samples")
    cells: dict[Any, Num] = {}
    for block in reversed(blocks):
        cells |= model.weight_gradient(p, block, xs[block], dx).cells
        dx = model.input_gradient(p, block, xs[block], dx)
    return Vec(cells)


Key = tuple[Any, ...]


def own_key(model: Model, sample: Sample, step: int) -> Key:
    """The key of a sample: of its device along the axes that split samples, as `random` writes it."""
    return (step, 0, tuple(sorted((a, c) for a, c in sample.where if model.sizes[a] > 1)))


def key_mask(model: Model, key: Key, position: int) -> int:
    """The mask that a key makes for the sample at a position of the batch."""
    return model.h("mask", key, position)


# ---------------------------------------------------------------- many devices


class World:
    """All devices, and what is under way between them."""

    def __init__(self, model: Model, carry_gradients: bool) -> None:
        self.model, self.carry = model, carry_gradients
        self.step = 0
        self.events = 0
        self.truth: list[tuple[Vec, Vec]] = []
        self.kept = frozenset(kept_by_microbatch(model.program.body))
        self.fine = frozenset(kept_by_layer(model.program.body))
        self.buffers = {t.name for s in walk(model.program.body) if isinstance(s, Assign) for t in s.targets} | {*STATES, "activations"}
        self.queues: dict[Any, dict[int, list[Request]]] = {}
        self.mail: dict[Any, tuple[list[Request], list[Request]]] = {}
        self.keys: dict[int, Key] = {}
        atoms = [a for axis in model.program.axes for a in model.atoms[axis.name]]
        spaces = itertools.product(*(range(model.sizes[a]) for a in atoms))
        self.devices = [Device(self, i, dict(zip(atoms, c, strict=True))) for i, c in enumerate(spaces)]

    # ---- placement

    def mode(self, state: str, group: str, axis: str) -> Any:
        """The mode of a state's group on an axis or a factor of one: what is said of the group goes first."""
        for wanted in (group, None):
            for placed in self.model.program.placed:
                if placed.state == state and placed.group == wanted and axis in dict(placed.modes):
                    return dict(placed.modes)[axis]
        return None

    def modes(self, state: str, group: str) -> list[tuple[str, Any]]:
        """The modes of a state's group on all axes and factors for which something is said."""
        found = [(name, self.mode(state, group, name)) for name in self.model.atoms]
        return [(name, mode) for name, mode in found if mode is not None]

    def places(self, device: Device, state: str, element: Elem) -> bool:
        """Whether a device holds an element of a state between steps."""
        for axis, mode in self.modes(state, element.group):
            if mode.transient or (mode.split and self.model.owner(axis, element) != device.rank(axis)):
                return False
        return not self.between_tied(device, element)

    def between_tied(self, device: Device, element: Elem) -> bool:
        """Whether an element is tied between the ends of a pipeline, and the device is at neither."""
        tied = next(g.tied for g in self.model.program.groups if g.name == element.group)
        return tied is not None and 0 < device.rank(tied) < self.model.sizes[tied] - 1

    def computes(self, device: Device, element: Elem) -> bool:
        """Whether a device computes an element in a whole pass: it need not own it where nothing is split between owners."""
        experts = next(g.experts for g in self.model.program.groups if g.name == element.group)
        if any(self.model.owner(axis, element) != device.rank(axis) for axis in experts):
            return False
        for name, mode in self.modes("parameters", element.group):
            axis = self.model.program.axis(name)
            split = axis is not None and axis.splits.compute and mode.split and not mode.gathers
            if split and self.model.owner(name, element) != device.rank(name):
                return False
        return not self.between_tied(device, element)

    # ---- meeting

    def group(self, device: Device, axes: Iterable[str]) -> tuple[Device, ...]:
        """The devices that differ from one only along some axes, in the order of their ranks."""
        atoms = {a for axis in axes for a in self.model.atoms[axis]}
        rest = {a: c for a, c in device.coords.items() if a not in atoms}
        return tuple(d for d in self.devices if all(d.coords[a] == c for a, c in rest.items()))

    def post(self, members: tuple[Device, ...], device: Device, signature: tuple[Any, ...], value: Any) -> Request:
        """A device enters the next collective of its group; the last one to enter completes it."""
        key = tuple(d.number for d in members)
        queues = self.queues.setdefault(key, {n: [] for n in key})
        request = Request(signature, value)
        queues[device.number].append(request)
        self.events += 1
        place = len(queues[device.number]) - 1
        if all(len(q) > place for q in queues.values()):
            requests = [queues[n][place] for n in key]
            if any(r.signature != requests[0].signature for r in requests):
                raise DifferenceError(f"devices of one group enter different collectives: {requests[0].signature} and others")
            results = combine(self, members, signature, [r.value for r in requests])
            for r, result in zip(requests, results, strict=True):
                r.result, r.done = result, True
        return request

    def message(self, axis: str, source: Device, target: Device, value: Any, sends: bool) -> Request:
        """A message is sent, or asked for. The first that is sent is the first that is received."""
        sent, asked = self.mail.setdefault((axis, source.number, target.number), ([], []))
        request = Request(("message",), value)
        (sent if sends else asked).append(request)
        self.events += 1
        for a, b in zip(sent, asked, strict=False):
            b.result, a.done, b.done = a.value, True, True
        return request

    # ---- steps

    def start(self) -> None:
        """The states before the first step."""
        p, o = self.truth[0]
        for device in self.devices:
            for state, truth in (("parameters", p), ("optimizer", o)):
                cells = {e: self.first_value(device, state, e, truth) for e in self.model.elements}
                device.cells[state, None] = Cell(Vec(cells, state))
            zeros = {e: 0 for e in self.model.elements if self.places(device, "gradients", e) and self.carry}
            device.cells["gradients", None] = Cell(Vec(zeros))

    def first_value(self, device: Device, state: str, element: Elem, truth: Vec) -> Num:
        """What a device has of an element at first."""
        if not self.places(device, state, element):
            return HOLE
        split = {a for name, mode in self.modes(state, element.group) if mode.split for a in self.model.atoms[name]}
        copy = any(c for a, c in device.coords.items() if a not in split)
        if copy and "equal-initial-states" in self.model.program.without:
            own = self.model.h("own", state, element, device.number)
            return own if state == "parameters" else (own, self.model.h("own master", element, device.number))
        return truth.get(element)

    def run_step(self) -> None:
        """All devices run one step. If none can go on, they wait for ever."""
        self.queues, self.mail, self.keys = {}, {}, {}
        running = {d.number: d.run() for d in self.devices}
        while running:
            before = self.events
            for number, generator in list(running.items()):
                try:
                    next(generator)
                except StopIteration:
                    del running[number]
                    self.events += 1
            if before == self.events:
                raise DifferenceError(f"devices {sorted(running)} wait for ever")
        if any(not r.done for queues in self.queues.values() for q in queues.values() for r in q):
            raise DifferenceError("a collective was started that not every device of its group enters")
        if any(not r.done for pair in self.mail.values() for side in pair for r in side):
            raise DifferenceError("a message is sent that nobody receives, or is waited for in vain")

    def compare(self) -> None:
        """Each device against one device, after a step; then what the placement does not hold is dropped."""
        for device in self.devices:
            for state, truth in zip(("parameters", "optimizer"), self.truth[self.step + 1], strict=True):
                value = device.cells[state, None].value
                for e in self.model.elements:
                    if self.places(device, state, e) and at(value, e) != truth.get(e):
                        what = at(value, e).value if isinstance(at(value, e), Mark) else "wrong"
                        raise DifferenceError(f"after step {self.step + 1}, {state} at {tuple(e)} is {what} on device {device.coords}")
            device.settle()


def combine(world: World, members: tuple[Device, ...], signature: tuple[Any, ...], values: list[Any]) -> list[Any]:
    """What a collective gives each member."""
    op, axes, how = signature
    if any(isinstance(v, Vec) and v.kind == "samples" for v in values):
        raise UnsupportedError("a collective on activations")
    if op == "shift":
        return [values[(i - how) % len(values)] for i in range(len(values))]
    vecs = [v for v in values if isinstance(v, Vec)]
    if not vecs:
        return combine_scalars(op, how, [v if isinstance(v, (int, Mark)) else BAD for v in values])
    results = [Vec({}, vecs[0].kind) for _ in members]
    for key in dict.fromkeys(k for v in vecs for k in v.cells):
        numbers = [at(v, key) for v in values]
        for result, number in zip(results, combine_at(world, members, op, axes, how, key, numbers, vecs[0].kind), strict=True):
            result.cells[key] = number
    return list(results)


def reduced(numbers: list[Num], how: str) -> Num:
    """Numbers combined by sum, mean or max."""
    if how == "max":
        return functools.reduce(lambda a, b: lift(greater, a, b), numbers)
    total = functools.reduce(lambda a, b: lift(lambda x, y: x + y, a, b), numbers)
    return lift(lambda t: t * pow(len(numbers), -1, PRIME), total) if how == "mean" else total


def combine_scalars(op: str, how: Any, numbers: list[Num]) -> list[Num]:
    """A collective on scalars."""
    count = len(numbers)
    if op in ("all_reduce", "tied_reduce"):
        return [reduced(numbers, how)] * count
    if op in ("broadcast", "reduce"):
        kind, root = how
        root = 0 if root in (None, "owner") else root
        if op == "broadcast":
            return [numbers[root]] * count
        return [reduced(numbers, kind) if i == root else BAD for i in range(count)]
    raise UnsupportedError(f"{op} of a scalar")


def combine_at(world: World, members: tuple[Device, ...], op: str, axes: tuple[str, ...], how: Any, key: Any, numbers: list[Num], kind: str
               ) -> list[Num]:  # fmt: skip
    """A collective at one element: what each member gets."""
    everywhere = len(numbers)
    if op in ("all_reduce", "tied_reduce"):
        return [reduced(numbers, how)] * everywhere
    owner = next(i for i, d in enumerate(members) if all(world.model.owner(a, key) == d.rank(a) for a in axes))
    if op == "reduce_scatter":
        return [reduced(numbers, how) if i == owner else HOLE for i in range(everywhere)]
    if op == "all_gather":
        return [gathered(numbers, owner)] * everywhere
    if op == "all_to_all":  # between parts and whole matrices: to the owner in the one order, of the owner in the other
        before, after = (
            next(i for i, d in enumerate(members) if all(world.model.owner(a, key, order) == d.rank(a) for a in axes))
            for order in (("blocked", "matrices") if how == "matrices" else ("matrices", "blocked"))
        )
        return [gathered(numbers, before) if i == after else HOLE for i in range(everywhere)]
    reduction, root = how
    if root is None:
        root = "owner" if kind in STATES else 0
    root = owner if root == "owner" else root
    if op == "broadcast":
        return [gathered(numbers, root)] * everywhere
    return [reduced(numbers, reduction) if i == root else HOLE for i in range(everywhere)]


def gathered(numbers: list[Num], owner: int) -> Num:
    """What its owner has; garbage if others have something and it has not."""
    if numbers[owner] is HOLE and any(n is not HOLE for n in numbers):
        return BAD
    return numbers[owner]


# ---------------------------------------------------------------- one of many devices

Wait = Generator[None, None, Any]


class Device:
    """One device: where it is, what it holds, and how it runs the program."""

    def __init__(self, world: World, number: int, coords: dict[str, int]) -> None:
        self.world, self.model, self.number, self.coords = world, world.model, number, coords
        self.cells: dict[tuple[str, int | None], Cell] = {}
        self.env: dict[str, tuple[str, int]] = {}
        self.log: dict[Any, dict[int, Any]] = {}
        self.drawn: dict[Any, int] = {}

    def rank(self, axis: str) -> int:
        """The number of this device along an axis or a factor of one."""
        rank = 0
        for atom in self.model.atoms[axis]:
            rank = rank * self.model.sizes[atom] + self.coords[atom]
        return rank

    def settle(self) -> None:
        """After a step: states are cut to what is placed here, all else is forgotten."""
        kept: dict[tuple[str, int | None], Cell] = {}
        for state in STATES:
            value = self.cells[state, None].value
            spoken = value.cells if isinstance(value, Vec) else {}
            cells = {e: at(value, e) for e in self.model.elements if self.world.places(self, state, e) and e in spoken}
            if state == "gradients":
                kept[state, None] = Cell(Vec(cells if self.world.carry else {}))
            else:
                kept[state, None] = Cell(Vec({e: cells.get(e, HOLE) for e in self.model.elements}, state))
        self.cells, self.env, self.drawn = kept, {}, {}

    # ---- statements

    def run(self) -> Wait:
        """One step."""
        yield from self.block(self.model.program.body)

    def block(self, body: Iterable[Stmt]) -> Wait:
        """Some statements, one after the other."""
        for stmt in body:
            if isinstance(stmt, For):
                yield from self.loop(stmt)
            elif isinstance(stmt, If):
                yield from self.block(stmt.then if self.holds(stmt) else stmt.orelse)
            elif self.exists(stmt):
                yield from self.do(stmt)

    def holds(self, stmt: If) -> bool:
        """Whether a device takes the first branch."""
        rank, bound = self.rank(stmt.axis), self.exact(stmt.bound)
        tests = {"==": rank == bound, "!=": rank != bound, "<": rank < bound, "<=": rank <= bound, ">": rank > bound, ">=": rank >= bound}
        return tests[stmt.op]

    def loop(self, stmt: For) -> Wait:
        """A loop over the parts of a domain, or over those within a part of a coarser one."""
        if stmt.domain == "microbatches":
            walked = list(range(self.model.m))
        elif stmt.domain in UNIT_DOMAINS:
            parts = self.model.parts[stmt.domain]
            walked = list(range(stmt.start, len(parts)))
            if stmt.within is not None:
                domain, index = ("units", 0) if stmt.within == "0" else self.env[stmt.within]
                walked = [i for i in walked if parts[i][UNIT_DOMAINS.index(domain)] == index]
        else:
            raise UnsupportedError(f"a loop over {stmt.domain}")
        saved = self.env.get(stmt.var)
        for i in reversed(walked) if stmt.reverse else walked:
            self.env[stmt.var] = (stmt.domain, i)
            self.env[f"walk {stmt.var}"] = (stmt.within or "", 0)
            yield from self.block(stmt.body)
        self.env.pop(stmt.var, None)
        if saved is not None:
            self.env[stmt.var] = saved

    def exists(self, stmt: Assign | Do) -> bool:
        """Whether all parts that a statement speaks of exist."""
        try:
            for top in tops(stmt):
                for expr in inside(top):
                    if isinstance(expr, Ref) and expr.index is not None:
                        self.part(expr)
                    if isinstance(expr, Call):
                        self.microbatch(expr)
        except NoPartError:
            return False
        return True

    def do(self, stmt: Assign | Do) -> Wait:
        """An assignment, or an operation for its effect."""
        if isinstance(stmt, Do):
            yield from self.effect(stmt.call)
            return
        value = yield from self.eval(stmt.value)
        values = value if len(stmt.targets) > 1 and isinstance(value, tuple) else (value,)
        if len(values) < len(stmt.targets):
            values = (value[0] if isinstance(value, tuple) else value,)
        if len(stmt.targets) == 1 and isinstance(value, tuple):
            values = (value[0],)
        for target, one in zip(stmt.targets, values, strict=False):
            self.write(target, one, stmt.accumulate)

    def effect(self, call: Call) -> Wait:
        """`free`, `zero`, `send`."""
        if call.op == "send":
            value = yield from self.eval(call.args[0])
            self.send(call, value)
        elif call.op in ("free", "zero"):
            if not isinstance(call.args[0], Ref):
                raise UnsupportedError(f"{call.op} of an expression")
            (self.free if call.op == "free" else self.zero)(call.args[0])
        else:
            yield from self.eval(call)

    # ---- buffers

    def part(self, ref: Ref) -> tuple[str, int]:
        """The domain and the number of the part that an index names."""
        assert ref.index is not None
        index, kept = ref.index, ref.name in self.world.kept
        if index.var is None:
            domain, i = "microbatches" if kept else "units", index.offset
            if not kept and ref.name in self.world.fine:
                raise UnsupportedError(f"the first or last part of {ref.name}, whose parts are layers or blocks")
            count = self.model.m if kept else len(self.model.parts["units"])
            i = i if i >= 0 else count + i
        else:
            if index.var not in self.env:
                raise UnsupportedError(f"the index {index.var} outside of its loop")
            domain, now = self.env[index.var]
            i = now + index.offset
            if (domain == "microbatches") != kept:
                raise UnsupportedError(f"{ref.name} with an index over {domain}, which is not how it is written")
            count = self.model.m if kept else len(self.model.parts[domain])
            within = self.env[f"walk {index.var}"][0]
            if index.offset and within and 0 <= i < count and self.coarse(within, domain, i) != self.coarse(within, domain, now):
                raise UnsupportedError("a part of the next unit, by an index of a loop within this one")
        if not 0 <= i < count:
            raise NoPartError
        return domain, i

    def coarse(self, within: str, domain: str, i: int) -> int:
        """The unit (or layer) in which a part lies, for a loop within one."""
        level = "units" if within == "0" else self.env[within][0]
        return self.model.parts[domain][i][UNIT_DOMAINS.index(level)]

    def place(self, ref: Ref) -> tuple[Cell, tuple[str, int] | None]:
        """The buffer of a reference, and which part of it is meant."""
        part = self.part(ref) if ref.index is not None else None
        if ref.name in self.world.kept:
            if part is None:
                raise UnsupportedError(f"{ref.name} as a whole, which is kept for each micro-batch")
            return self.cells.setdefault((ref.name, part[1]), Cell()), None
        return self.cells.setdefault((ref.name, None), Cell()), part

    def selects(self, ref: Ref, part: tuple[str, int] | None) -> Callable[[Any], bool]:
        """Whether an element belongs to the group and the part that a reference names."""

        def selected(key: Any) -> bool:
            """Whether one key does."""
            if not isinstance(key, Elem):
                if ref.group is not None or part is not None:
                    raise UnsupportedError(f"a group or part of {ref.name}, which is about no parameters")
                return True
            if ref.group is not None and key.group != ref.group:
                return False
            return part is None or key[1 + UNIT_DOMAINS.index(part[0])] == part[1]

        return selected

    def read(self, ref: Ref) -> Any:
        """What a device has under a name."""
        cell, part = self.place(ref)
        if (ref.group, part) in cell.parts:
            return cell.parts[ref.group, part]
        value = cell.value
        if isinstance(value, Vec):
            if value.kind == "samples" and (ref.group or part):
                raise UnsupportedError(f"a part of {ref.name}, which is written as a whole")
            selected = self.selects(ref, part)
            return Vec({k: v for k, v in value.cells.items() if selected(k)}, value.kind)
        if (ref.group, part) == (None, None):
            return value
        if value is not MISSING:
            raise UnsupportedError(f"a part of {ref.name}, which is written as a whole")
        return MISSING

    def write(self, ref: Ref, value: Any, accumulate: bool) -> None:
        """A value goes under a name: all of it, a group, or a part. `+=` on what was never written is `=`."""
        cell, part = self.place(ref)
        selected = self.selects(ref, part)
        if accumulate:
            value = self.added(self.read(ref), value, selected, whole_=part is None and ref.group is None)
        everything = part is None and ref.group is None
        if everything:
            cell.value, cell.parts = value, {}
        elif isinstance(value, Vec) and value.kind not in ("samples", "norms"):
            old = cell.value.cells if isinstance(cell.value, Vec) else {}
            kept = {k: v for k, v in old.items() if not selected(k)}
            cell.value = Vec(kept | {k: v for k, v in value.cells.items() if selected(k)}, value.kind)
            cell.parts.pop((ref.group, part), None)
        else:
            if isinstance(cell.value, Vec):
                cell.value = Vec({k: v for k, v in cell.value.cells.items() if not selected(k)}, cell.value.kind)
            cell.parts[ref.group, part] = value

    @staticmethod
    def added(old: Any, value: Any, selected: Callable[[Any], bool], *, whole_: bool) -> Any:
        """What `+=` makes of an old value and a new one."""
        if old is MISSING:
            return value
        if not isinstance(old, Vec) or not isinstance(value, Vec):
            return pointwise(lambda a, b: a + b, old, value)
        cells = {k: v for k, v in value.cells.items() if selected(k)}
        for key, number in old.cells.items():
            if key in cells or whole_:
                cells[key] = lift(lambda a, b: a + b, number, value.get(key))
            else:
                cells[key] = BAD
        return Vec(cells, old.kind)

    def free(self, ref: Ref) -> None:
        """Nothing is left of a buffer, or of a part of it."""
        if ref.name in self.world.kept and ref.index is None:
            for i in range(self.model.m):
                self.cells.pop((ref.name, i), None)
            return
        cell, part = self.place(ref)
        selected = self.selects(ref, part)
        cell.parts = {} if (ref.group, part) == (None, None) else {k: v for k, v in cell.parts.items() if k != (ref.group, part)}
        if (ref.group, part) == (None, None):
            cell.value = MISSING
        elif isinstance(cell.value, Vec):
            cell.value = Vec({k: v for k, v in cell.value.cells.items() if not selected(k)}, cell.value.kind)

    def zero(self, ref: Ref) -> None:
        """What a device holds of a buffer becomes zero; what was never written is zero everywhere."""
        if ref.name in self.world.kept and ref.index is None:
            for i in range(self.model.m):
                cell = self.cells.setdefault((ref.name, i), Cell())
                cell.value = pointwise(lambda v: 0, cell.value) if cell.value is not MISSING else MISSING
            return
        value = self.read(ref)
        if isinstance(value, Vec) and value.cells:
            zeros: Any = Vec({k: v if v is HOLE else 0 for k, v in value.cells.items()}, value.kind)
        elif isinstance(value, (int, Mark)):
            zeros = 0
        elif value is MISSING or isinstance(value, Vec):
            selected = self.selects(ref, self.part(ref) if ref.index is not None and ref.name not in self.world.kept else None)
            held = [e for e in self.model.elements if ref.name != "gradients" or self.world.places(self, "gradients", e)]
            zeros = Vec({e: 0 for e in held if selected(e)})
        else:
            raise UnsupportedError("zero of what is no number")
        self.write(ref, zeros, accumulate=False)

    # ---- expressions

    def exact(self, expr: Expr) -> Fraction:
        """A whole-number expression, exactly."""
        if isinstance(expr, Number):
            return expr.value
        if isinstance(expr, Ref) and expr.group is None and expr.index is None:
            value = self.env[expr.name][1] if expr.name in self.env else whole(self.model, expr.name)
            if value is not None and (expr.name in self.env or expr.name not in self.world.buffers):
                return Fraction(value)
        if isinstance(expr, Binary):
            a, b = self.exact(expr.left), self.exact(expr.right)
            if expr.op == "**" and b.denominator == 1:
                return a ** int(b)
            if expr.op in "+-*" or (expr.op == "/" and b):
                return {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else a}[expr.op]
        raise UnsupportedError("an expression that should be a whole number known beforehand")

    def microbatch(self, call: Call) -> list[Sample]:
        """The own samples that an operation is about: of the micro-batch that it names, or of all."""
        places = {"data": 0, "tokens": 0, "statistics": 1, "backward_with": 1, "backward": 1}
        if call.op not in places or (call.op == "backward" and len(call.args) == 3):
            return []
        own = [s for s in self.model.samples if all(self.rank(a) == c for a, c in s.where)]
        if len(call.args) <= places[call.op]:
            return own
        i = self.exact(call.args[places[call.op]])
        if i.denominator != 1 or not 0 <= i < self.model.m:
            raise NoPartError
        return [own[int(i)]]

    def eval(self, expr: Expr) -> Wait:
        """The value of an expression; waits where a collective waits."""
        if isinstance(expr, Number):
            return constants(self.model, expr)
        if isinstance(expr, Ref):
            return self.name(expr)
        if isinstance(expr, Binary):
            if expr.op == "**":
                base = yield from self.eval(expr.left)
                return self.power(base, self.exact(expr.right))
            left = yield from self.eval(expr.left)
            right = yield from self.eval(expr.right)
            return pointwise(functools.partial(arithmetic, expr.op), left, right)
        between = expr.op == "all_to_all" and "order" in dict(expr.options)
        if expr.op in FOREIGN and not between:
            raise UnsupportedError(f"the operation {expr.op}")
        if expr.op == "start":
            return Handle((yield from self.enter(expr.args[0])))
        if expr.op == "wait":
            return (yield from self.wait(expr))
        if expr.op in ("broadcast", "reduce", "all_reduce", "reduce_scatter", "all_gather", "tied_reduce", "shift", "recv") or between:
            request = yield from self.enter(expr)
            while not request.done:
                yield
            return request.result
        return (yield from self.local(expr))

    def name(self, ref: Ref) -> Any:
        """The value of a name."""
        if ref.group is None and ref.index is None:
            if ref.name in self.env:
                return self.env[ref.name][1]
            if ref.name not in self.world.buffers:
                return known(self.model, ref.name)
        return self.read(ref)

    @staticmethod
    def power(base: Any, exponent: Fraction) -> Any:
        """A power with a whole exponent, or a square root."""
        if exponent == Fraction(1, 2):
            return pointwise(root_of, base)
        if exponent.denominator != 1:
            raise UnsupportedError(f"a power with the exponent {exponent}")
        power = int(exponent)
        if power >= 0:
            return pointwise(lambda v: pow(v, power, PRIME), base)
        return pointwise(lambda v: INF if not v else pow(v, power, PRIME), base)

    # ---- meeting others

    def wait(self, call: Call) -> Wait:
        """The result of a started collective."""
        handle = yield from self.eval(call.args[0])
        if not isinstance(handle, Handle):
            return MISSING
        while not handle.request.done:
            yield
        return handle.request.result

    def enter(self, call: Expr) -> Wait:
        """A collective begins: others may now go on."""
        if not isinstance(call, Call):
            raise UnsupportedError("start of what is no collective")
        if call.op == "recv":
            return self.receive(call)
        value = yield from self.eval(call.args[0])
        if call.op == "send":
            self.send(call, value)
            return Request(("send",), value, done=True)
        if isinstance(value, (Handle, Saved)):
            value = MISSING
        members = self.world.group(self, call.axes)
        if call.op == "tied_reduce":
            members = tuple(dict.fromkeys((members[0], members[-1])))
            if self not in members:
                return Request((), value, done=True, result=value)
        return self.world.post(members, self, self.signature(call, len(members)), value)

    def signature(self, call: Call, count: int) -> tuple[Any, ...]:
        """What all members of a group have to agree on."""
        how: Any = dict(call.options).get("op", "sum")
        if call.op in ("broadcast", "reduce"):
            root: Any = dict(call.options).get("root")
            if root not in (None, "owner"):
                value = int(root) if root.lstrip("-").isdigit() else whole(self.model, root)
                if value is None or not 0 <= value < count:
                    raise DifferenceError(f"there is no device {root} to be the root, among {count}")
                if value and len(call.axes) > 1:
                    raise UnsupportedError("a root by its number on several axes")
                root = value
            how = (how, root)
        elif call.op == "shift":
            how = int(dict(call.options).get("by", "1") or 1)
        elif call.op == "all_gather":
            how = None
        elif call.op == "all_to_all":
            how = dict(call.options)["order"]
        atoms = sorted(a for axis in call.axes for a in self.model.atoms[axis])
        return call.op, tuple(atoms), how

    def neighbour(self, axis: str, steps: int) -> Device | None:
        """The device so many steps along an axis, if there is one."""
        line = self.world.group(self, (axis,))
        place = line.index(self) + steps
        return line[place] if 0 <= place < len(line) else None

    def steps(self, call: Call, option: str, usual: int) -> int:
        """How far along the axis a message goes."""
        text = dict(call.options).get(option)
        if text is None:
            return usual
        if not text.lstrip("-").isdigit():
            raise UnsupportedError(f"{option}={text}")
        return int(text)

    def send(self, call: Call, value: Any) -> None:
        """A message goes out, and nobody waits; beyond the end there is nobody."""
        target = self.neighbour(call.axes[0], self.steps(call, "to", 1))
        if self.model.layered:
            raise UnsupportedError("messages in passes layer by layer")
        if target is not None:
            self.world.message(call.axes[0], self, target, value, sends=True)

    def receive(self, call: Call) -> Request:
        """A message is asked for; from beyond the end nothing comes."""
        source = self.neighbour(call.axes[0], self.steps(call, "source", -1))
        if source is None:
            return Request((), MISSING, done=True)
        return self.world.message(call.axes[0], source, self, None, sends=False)

    # ---- operations of one device

    def local(self, call: Call) -> Wait:
        """An operation that needs no other device."""
        skip = {"elementwise": 0, "cast": 1, "quantize": 1, "stale": 1, "data": 0, "tokens": 0}.get(call.op)
        args: list[Any] = []
        for i, arg in enumerate(call.args):
            args.append(MISSING if i == skip else (yield from self.eval(arg)))
        if call.op not in LOCAL:
            raise UnsupportedError(f"the operation {call.op}")
        return LOCAL[call.op](self, call, args)

    def vec(self, value: Any, what: str) -> Vec:
        """A value as a vector over parameters; nothing of it if it is something else."""
        if isinstance(value, Vec):
            return value
        return Vec(dict.fromkeys(self.model.elements, value) if isinstance(value, (int, Mark)) else {}, what)


# ---------------------------------------------------------------- the table of local operations


def whole_pass(device: Device, call: Call, samples: list[Sample], w: Any, stat: Num | None) -> Vec:
    """A whole forward and backward pass over some own samples, as the chapter on whole passes says."""
    world, model, step = device.world, device.model, device.world.step
    if model.options.get("dropout", "none") == "output":
        raise UnsupportedError("dropout in a whole pass")
    parameters = device.vec(w, "parameters")
    elsewhere = {e: world.truth[step][0].get(e) for e in model.elements if not world.computes(device, e)}
    read_ = model.reading(Vec(parameters.cells | elsewhere, "parameters"))
    groups = {g.name: g for g in model.program.groups}
    cells: dict[Any, Num] = {}
    for e in model.elements:
        if e in elsewhere:
            cells[e] = HOLE
            continue
        total: Num = 0
        for batch in batches(device, samples, groups[e.group].experts):
            own = model.statistic(batch, read_, step) if stat is None else stat
            total = lift(lambda a, b: a + b, total, model.mean_gradient(e, batch, step, read_, own))
        if len(groups[e.group].partial) > 1:
            raise UnsupportedError("a group that is partial over several axes")
        cells[e] = shared_out(device, e, samples, total, next(iter(groups[e.group].partial), None), groups[e.group].tied)
    return Vec(cells)


def batches(device: Device, samples: list[Sample], experts: tuple[str, ...]) -> list[list[Sample]]:
    """The batches whose gradients a pass gives: the own one; of experts, those of all devices of the axes that send tokens."""
    sending = [axis for axis in experts if axis in device.model.sample_axes]
    found = []
    for ranks in itertools.product(*(range(device.model.sizes[axis]) for axis in sending)):
        there = dict(zip(sending, ranks, strict=True))
        found.append([Sample(tuple((a, there.get(a, c)) for a, c in s.where), s.microbatch) for s in samples])
    return found


def shared_out(device: Device, element: Elem, samples: list[Sample], total: Num, partial: str | None, tied: str | None) -> Num:
    """The part of a gradient that a device gets where groups share it out: random parts with the right sum."""
    if partial is not None and tied is not None:
        raise UnsupportedError("a group that is both partial and tied")
    axis = partial or tied
    if axis is None or device.model.sizes[axis] == 1:
        return total
    if axis in device.model.sample_axes:
        raise UnsupportedError("a partial group over an axis that splits samples")
    last, rank = device.model.sizes[axis] - 1, device.rank(axis)
    shares = {r: device.model.h("share", element, tuple(samples), device.world.step, r) for r in ((0,) if tied else range(last))}
    if rank < last:
        return total if total is BAD else shares[rank]
    return lift(lambda t: t - sum(shares.values()), total)


def backward(device: Device, call: Call, args: list[Any]) -> Any:
    """`backward(w)`, `backward(w, i)`: a whole pass; `backward(w, saved, dx)`: of some blocks."""
    if len(args) == 3:
        return layer_backward(device, args[0], args[1], args[2])
    return whole_pass(device, call, device.microbatch(call), args[0], None)


def plain(device: Device) -> None:
    """Passes layer by layer are spoken of only where no axis splits the computation, and no group is special."""
    model = device.model
    if any(a.splits.compute and model.degrees[a.name] > 1 for a in model.program.axes):
        raise UnsupportedError("passes layer by layer on an axis that splits the computation")
    if any(axis and model.sizes[axis] > 1 for g in model.program.groups for axis in (*g.partial, g.tied, *g.experts)):
        raise UnsupportedError("passes layer by layer with partial, tied or expert groups")
    if model.options.get("statistics") == "batch":
        raise UnsupportedError("passes layer by layer with statistics of the batch")


def blocks_of(device: Device, w: Any) -> tuple[Vec, list[int]]:
    """The blocks that some parameters belong to."""
    plain(device)
    vec = device.vec(w, "parameters")
    blocks = sorted({e.block for e in vec.cells if isinstance(e, Elem)})
    if any(e.block in blocks and e not in vec.cells for e in device.model.elements):
        raise UnsupportedError("a pass of one group of a block's parameters")
    return vec, blocks


def as_samples(value: Any) -> Vec:
    """A value as activations."""
    return value if isinstance(value, Vec) else Vec({}, "samples")


def forward(device: Device, call: Call, args: list[Any]) -> Any:
    """The forward of some blocks."""
    w, blocks = blocks_of(device, args[0])
    if len(args) < 2:
        raise UnsupportedError("forward without an input")
    x, inputs = as_samples(args[1]), {}
    for block in blocks:
        inputs[block] = x
        x = device.model.run_block(w, block, x)
    return x, Saved(inputs, x)


def layer_backward(device: Device, w_: Any, saved: Any, dx_: Any) -> tuple[Vec, Vec]:
    """The backward of some blocks: the gradient of their parameters, and of the input."""
    w, blocks = blocks_of(device, w_)
    dx = as_samples(dx_)
    inputs = saved.inputs if isinstance(saved, Saved) else {}
    cells: dict[Any, Num] = {}
    for block in reversed(blocks):
        x = inputs.get(block, Vec({}, "samples"))
        cells |= device.model.weight_gradient(w, block, x, dx).cells
        dx = device.model.input_gradient(w, block, x, dx)
    return Vec(cells), dx


def loss(device: Device, call: Call, args: list[Any]) -> Vec:
    """The gradient of the mean loss of the own samples."""
    plain(device)
    x = as_samples(args[0])
    return device.model.loss_gradient(x, device.world.step) if x.cells else x


def tokens(device: Device, call: Call, args: list[Any]) -> int:
    """The number of own tokens that count."""
    return sum(device.model.tokens(s, device.world.step) for s in device.microbatch(call)) % PRIME


def square_norm(device: Device, call: Call, args: list[Any]) -> Num:
    """The sum of squares of what this device holds."""
    value = args[0]
    if not isinstance(value, Vec):
        return lift(lambda v: v * v, value) if isinstance(value, (int, Mark)) else BAD
    held = [v for v in value.cells.values() if v is not HOLE]
    return functools.reduce(lambda t, v: lift(lambda a, b: a + b * b, t, v), held, 0)


def clip_factor(device: Device, call: Call, args: list[Any]) -> Num:
    """`min(1, limit / norm)`."""
    limit = args[1] if len(args) > 1 else clip_limit(device.model)
    return pointwise(smaller, 1, pointwise(functools.partial(arithmetic, "/"), limit, args[0]))


def found_inf(device: Device, call: Call, args: list[Any]) -> Num:
    """Whether something here is not finite."""
    values = args[0].cells.values() if isinstance(args[0], Vec) else [args[0]]
    if any(v is BAD or isinstance(v, Missing) for v in values):
        return BAD
    return int(any(v is INF for v in values))


def update(device: Device, call: Call, args: list[Any]) -> tuple[Any, Any]:
    """The optimizer's step, unless the flag is set."""
    p, o, g = (device.vec(v, what) for v, what in zip(args, STATES, strict=False))
    if len(args) > 3:
        flag = args[3]
        if not isinstance(flag, int):
            bad = dict.fromkeys(device.model.elements, BAD)
            return Vec(dict(bad), "parameters"), Vec(dict(bad), "optimizer")
        if flag:
            return p, o
    return device.model.update(p, o, g)


def update_with(device: Device, call: Call, args: list[Any]) -> tuple[Any, Any]:
    """The step of an optimizer that scales each tensor by norms that are given, or moves along directions that are given."""
    p, o, g = (device.vec(v, what) for v, what in zip(args[:3], STATES, strict=True))
    given, model = args[3] if isinstance(args[3], Vec) else Vec({}, "norms"), device.model
    if len(args) > 4:
        norms = args[4] if isinstance(args[4], Vec) else Vec({}, "norms")
        return model.updated(p, o, g, {e: model.by_lines(given, norms, e) for e in model.elements})
    return model.updated(p, o, g, {e: given.get(e if given.kind == "momentum" else model.tensor(e)) for e in model.elements})


def momentum(device: Device, call: Call, args: list[Any]) -> Vec:
    """What is made of state and gradient."""
    return device.model.momentum(device.vec(args[0], "optimizer"), device.vec(args[1], "gradients"))


def tensor_norms(device: Device, call: Call, args: list[Any]) -> Vec:
    """What a layer-wise optimizer sums, over what this device has."""
    p, o, g = (device.vec(v, what) for v, what in zip(args[:3], STATES, strict=True))
    return device.model.tensor_sums(p, o, g, *(v if isinstance(v, Vec) else Vec({}, "norms") for v in args[3:]))


def line_sums(device: Device, call: Call, args: list[Any]) -> Vec:
    """What is summed along rows and columns, over what this device has."""
    return device.model.line_sums(device.vec(args[0], "gradients"))


def statistics(device: Device, call: Call, args: list[Any]) -> Num:
    """A statistic of the device's own samples."""
    parameters = device.vec(args[0], "parameters")
    truth = device.world.truth[device.world.step][0]
    elsewhere = {e: truth.get(e) for e in device.model.elements if not device.world.computes(device, e)}
    read_ = device.model.reading(Vec(parameters.cells | elsewhere, "parameters"))
    return device.model.statistic(device.microbatch(call), read_, device.world.step)


def backward_with(device: Device, call: Call, args: list[Any]) -> Vec:
    """A whole pass whose layers use a statistic that is given."""
    stat = args[2] if isinstance(args[2], (int, Mark)) else BAD
    return whole_pass(device, call, device.microbatch(call), args[0], stat)


def part(device: Device, call: Call, args: list[Any]) -> Vec:
    """The device's own part of a full copy."""
    if not isinstance(args[0], Vec) or args[0].kind == "samples":
        raise UnsupportedError("a part of what is no state")
    how = dict(call.options).get("order", "blocked") or "blocked"
    own = {k: all(device.model.owner(a, k, how) == device.rank(a) for a in call.axes) for k in args[0].cells}
    return Vec({k: v if own[k] else HOLE for k, v in args[0].cells.items()}, args[0].kind)


def random(device: Device, call: Call, args: list[Any]) -> int:
    """A random key: different along the axes named, and for each draw within a micro-batch, or that of the draw which is named."""
    now = next((i for domain, i in device.env.values() if domain == "microbatches"), None)
    if device.model.m == 1:
        now = None
    count = device.drawn[now] = device.drawn.get(now, -1) + 1
    count = int(dict(call.options).get("draw", count))
    atoms = {x for n in call.axes for x in device.model.atoms[n]}
    names = [a.name for a in device.model.program.axes if set(device.model.atoms[a.name]) <= atoms]
    loose = [n for n in call.axes if not any(n in device.model.atoms[a] for a in names) and n not in names]
    where = tuple(sorted((n, device.rank(n)) for n in names + loose if device.model.sizes[n] > 1))
    key = (device.world.step, count, where)
    value = device.model.h("key", key, now)
    device.world.keys[value] = (key, now)
    return value


def dropout(device: Device, call: Call, args: list[Any]) -> Any:
    """A mask by a key: of a whole batch, each micro-batch's samples get their own."""
    x, number = args
    if not isinstance(x, Vec) or x.kind != "samples":
        raise UnsupportedError("dropout of what is no activation")
    key, now = device.world.keys.get(number, (number, 0)) if isinstance(number, int) else (None, 0)
    if key is None:
        return Vec(dict.fromkeys(x.cells, BAD), "samples")
    many = len({s.microbatch for s in x.cells}) == device.model.m
    place = {s: now if now is not None else (s.microbatch if many else 0) for s in x.cells}
    return Vec({s: lift(lambda v, s=s: v * key_mask(device.model, key, place[s]), v) for s, v in x.cells.items()}, "samples")


def stale(device: Device, call: Call, args: list[Any]) -> Any:
    """The value that something had at this point so many steps ago."""
    ago = device.exact(call.args[1])
    place = (id(call), tuple(sorted(device.env.items())))
    past = device.log.setdefault(place, {})
    past[device.world.step] = args[0]
    if ago < 0 or ago.denominator != 1:
        raise UnsupportedError("a value from the future")
    return past.get(device.world.step - int(ago), MISSING)


def lossy(device: Device, value: int) -> int:
    """What is left of a number that was quantised."""
    exact = "exact-quantizers" not in device.model.program.without
    return value if exact else value + 1 + device.model.h("loss", value)


def master(device: Device, call: Call, args: list[Any]) -> Any:
    """The parameters, from the copy in the optimizer state."""
    if not isinstance(args[0], Vec):
        return MISSING
    return Vec({e: v[1] if isinstance(v, tuple) else v for e, v in args[0].cells.items()}, "parameters")


def elementwise(device: Device, call: Call, args: list[Any]) -> Any:
    """A function of which nothing is known."""
    name = call.args[0].name if isinstance(call.args[0], Ref) else "f"
    return pointwise(lambda v: device.model.h("function", name, v), args[1])


def same(device: Device, call: Call, args: list[Any]) -> Any:
    """The same values elsewhere, or in another width."""
    return args[0]


SHIFT = 123456789
LOCAL: dict[str, Callable[[Device, Call, list[Any]], Any]] = {
    "copy": same,
    "cast": same,
    "to_host": same,
    "to_device": same,
    "part": part,
    "quantize": lambda d, c, a: pointwise(lambda v: lossy(d, v) * 7 + SHIFT, a[0]),
    "dequantize": lambda d, c, a: pointwise(lambda v: (v - SHIFT) * pow(7, -1, PRIME), a[0]),
    "data": lambda d, c, a: d.model.first_input(d.microbatch(c), d.world.step),
    "tokens": tokens,
    "forward": forward,
    "loss": loss,
    "backward": backward,
    "backward_input": lambda d, c, a: layer_backward(d, a[0], a[1], a[2])[1],
    "backward_weight": lambda d, c, a: layer_backward(d, a[0], a[1], a[2])[0],
    "output": lambda d, c, a: a[0].output if isinstance(a[0], Saved) else MISSING,
    "update": update,
    "update_with": update_with,
    "tensor_norms": tensor_norms,
    "line_sums": line_sums,
    "momentum": momentum,
    "orthogonalize": lambda d, c, a: d.model.orthogonalized(d.vec(a[0], "momentum")),
    "statistics": statistics,
    "backward_with": backward_with,
    "master": master,
    "elementwise": elementwise,
    "dropout": dropout,
    "random": random,
    "scale": lambda d, c, a: pointwise(lambda v, f: v * f, *a),
    "square_norm": square_norm,
    "min": lambda d, c, a: pointwise(smaller, *a),
    "max": lambda d, c, a: pointwise(greater, *a),
    "sqrt": lambda d, c, a: pointwise(root_of, a[0]),
    "clip_factor": clip_factor,
    "found_inf": found_inf,
    "rescale": lambda d, c, a: pointwise(lambda s, f: digest(("rescale", s, bool(f))), *a),
    "stale": stale,
}


# ---------------------------------------------------------------- the interface


def prepared(program: Program, degrees: dict[str, int], microbatches: int, units: int, seed: int, steps: int) -> tuple[Model, list[Any]]:
    """A model whose reference takes no root of a number that has none, and what the reference holds."""
    for salt in range(200):
        model = Model(program, degrees, microbatches, units, seed, salt)
        try:
            return model, reference(model, steps)
        except BadRootError:
            continue
    raise AssertionError("no salt gives roots")


def differs(program: Any, degrees: dict[str, int], *, microbatches: int, units: int, seed: int = 1, steps: int = 2,
            carry_gradients: bool = True) -> str | None:  # fmt: skip
    """None if every device holds, after each step, what one device holds; otherwise a sentence that says what differs.

    `program`: a syntax tree, or a text. `degrees`: of each axis without a degree of its own (and, if wanted, of symbols, such as the one
    that `inner` names). `carry_gradients`: whether the state `gradients` keeps its content from one step to the next.
    """
    program = read(program) if isinstance(program, str) else program
    tree = replace(program, placed=resolve(program).placed)  # of what is resolved, placements alone: the rest is read here as it stands
    if tree.tensors:
        raise UnsupportedError("programs over tensors")
    if dict(tree.reference).get("skip") == "not_finite":
        steps += 1
    model, truth = prepared(tree, degrees, microbatches, units, seed, steps)
    world = World(model, carry_gradients)
    world.truth = truth
    world.start()
    try:
        for step in range(steps):
            world.step = step
            world.run_step()
            world.compare()
    except DifferenceError as difference:
        return str(difference)
    return None
