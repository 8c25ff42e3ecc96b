"""How much a block of a model computes, read off its program over tensors.

The program is taken apart into operations, one after another. Each does work for every element of some dimensions:

- ``contract(a, b, over=d)`` is a product of matrices where each operand has a dimension that the other lacks. It takes 2 floating-point
  operations, a multiplication and an addition, for each element of all dimensions involved: d and those of the result. Sums of what it
  gives over more dimensions, ``total(contract(a, b, over=d), over=e)``, are among these additions. Where one operand has all
  dimensions of the other, it multiplies element by element and adds up: the same as ``total(a * b, over=d)``, and not a product of
  matrices.
- ``contract(hot(p), x, over=d)`` looks up or adds up rows of x. It multiplies nothing.
- Everything else works element by element: arithmetic, functions, sums.

Papers count products of matrices alone (Narayanan et al. 2021, appendix; Korthikanti et al. 2022, appendix A): :func:`flops`. The others
are counted by :func:`element_operations`.

What is picked. ``hot(p)`` is 1 at one position along the dimension that p picks, for each element of p. Where a product has it as a
factor, only one of its rows along that dimension is there, and work on the others is left out, as a system leaves it out that sends each
token to its experts. So that dimension counts as ``load`` instead of its size, divided by the degrees of axes that split it: with
load 1, the expected one, tokens are shared out evenly over devices. This holds as long as the row can be told: sums of several rows,
along a dimension of p, have all positions. A function of what is picked is worked out where it is picked, whatever its value at 0 is:
what is not picked has to be dropped later by the same choice, as a sum over experts does that is weighted with it.

Backward has three kinds of work: what is computed again from what forward kept; the gradients by the inputs (B in Qi et al. 2024,
Zero Bubble); and those by the weights (W). An operation belongs to W if its result is used for gradients by weights alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, TypeAlias

from placeproof.core.diagnostics import Diagnostic
from placeproof.core.remembered import remembered
from placeproof.cost.blocks.tensors import Amount, SizeError, Splits, elements, every_degree
from placeproof.programs import POSITIONS, Assign, Binary, Call, Do, Expr, For, Number, Program, Ref, Stmt
from placeproof.programs.ir import adjoints
from placeproof.programs.ops import COLLECTIVES
from placeproof.semantics.layouts.layout import Layout
from placeproof.semantics.layouts.lines import BlockValue, Line, lines

__all__ = [
    "Operation",
    "Work",
    "amount",
    "element_operations",
    "flops",
    "flops_by_weights",
    "matrices",
    "operations",
    "products",
    "storage",
    "weights",
    "weights_read",
]

#: "forward"; "inputs": gradients by inputs (B); "weights": gradients by weights (W).
Pass: TypeAlias = Literal["forward", "inputs", "weights"]

#: Dimensions along which one row is there: the positions that pick it, and the dimensions along which these differ.
_Picked: TypeAlias = Mapping[str, tuple[int, frozenset[str]]]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Operation:
    """One operation on one device.

    ``op``: its name in a program, or the sign of arithmetic. ``dims`` and ``split``: for each of whose elements it does ``each`` steps.
    ``picked``: those of them along which one row is there, and ``thin`` those of its result. ``product``: it is a product of matrices.
    ``again``: it stands in backward and depends on no gradient: it computes something of forward again, or the slope of a function.
    ``rounds``: the axis in whose ring it stands: it is done once for each other device. ``statement``: the number, from 0, of the one that
    it is from; ``given``: a `returns` hands its result on.
    """

    op: str
    reads: tuple[BlockValue, ...]
    result: BlockValue
    dims: tuple[str, ...]
    split: Splits
    each: int
    picked: frozenset[str] = frozenset()
    thin: frozenset[str] = frozenset()
    product: bool = False
    again: bool = False
    during: Pass = "forward"
    rounds: str | None = None
    line: int = 0
    statement: int = 0
    given: bool = False

    @property
    def elementwise(self) -> bool:
        """Each element of the result is computed of the same element of what it reads."""
        return self.op in _ELEMENTWISE

    def steps(self, sizes: Mapping[str, Amount], degrees: Mapping[str, Amount], load: Amount = 1) -> Amount:
        """Floating-point operations on one device. Raises SizeError where a size or a degree is missing, or does not divide."""
        if not self.each:
            return 0
        once = self.each * amount(self.dims, self.split, self.picked, sizes, degrees, load)
        return once if self.rounds is None else once * (_degree(self.rounds, degrees) - 1)


def _degree(axis: str, degrees: Mapping[str, Amount]) -> Amount:
    if axis not in degrees:
        help = f"`degrees` needs an entry `{axis}`"
        raise SizeError([Diagnostic(code="PP203", message=f"the degree of axis `{axis}` is not given", help=help)])
    return degrees[axis]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Floating-point operations, or bytes, on one device: of forward, what is computed ``again``, gradients by inputs and by weights."""

    forward: Amount
    again: Amount
    inputs: Amount
    weights: Amount

    @property
    def backward(self) -> Amount:
        """Of both kinds of gradients, without what is computed again."""
        return self.inputs + self.weights

    @property
    def model(self) -> Amount:
        """What the model asks for, however it is computed: forward and backward once (Korthikanti et al. 2022, section 6.3)."""
        return self.forward + self.backward

    @property
    def total(self) -> Amount:
        """What the device does."""
        return self.model + self.again


def flops(
    program: Program,
    sizes: Mapping[str, Amount],
    degrees: Mapping[str, Amount],
    *,
    load: Amount = 1,
) -> Work:
    """The floating-point operations of products of matrices, on one device.

    ``sizes`` of whole dimensions, and ``degrees`` of axes that the program does not fix: numbers or SymPy expressions. ``load``: how many
    rows a device has of what is picked, over the mean of all devices. Raises InputError for a program that is no block, SizeError as
    :func:`placeproof.cost.blocks.tensors.elements` does.
    """
    return _sum(program, sizes, degrees, load, lambda o: o.product)


def element_operations(
    program: Program,
    sizes: Mapping[str, Amount],
    degrees: Mapping[str, Amount],
    *,
    load: Amount = 1,
) -> Work:
    """The operations of everything that is no product of matrices; arguments and errors are those of :func:`flops`."""
    return _sum(program, sizes, degrees, load, lambda o: not o.product)


def flops_by_weights(
    program: Program,
    wanted: Collection[str],
    sizes: Mapping[str, Amount],
    degrees: Mapping[str, Amount],
    *,
    load: Amount = 1,
) -> Work:
    """Those of products with some of the weights, gathered ones among them, and of products for their gradients.

    ``wanted``: names of weights; other arguments and errors are those of :func:`flops`.
    """
    late = {id(o.result) for o in operations(program, wanted) if o.during == "weights" and not o.again}
    reading = {id(o.result) for o, read in weights_read(program) if not read.keys().isdisjoint(wanted)}
    return _sum(program, sizes, degrees, load, lambda o: o.product and id(o.result) in late | reading)


def _sum(
    program: Program,
    sizes: Mapping[str, Amount],
    degrees: Mapping[str, Amount],
    load: Amount,
    counts: Callable[[Operation], bool],
) -> Work:
    every = every_degree(program, degrees)
    counts_by_pass: dict[str, Amount] = dict.fromkeys(("forward", "again", "inputs", "weights"), 0)
    for operation in filter(counts, operations(program)):
        kind = "again" if operation.again else operation.during
        counts_by_pass[kind] = counts_by_pass[kind] + operation.steps(sizes, every, load)
    return Work(**counts_by_pass)


def amount(
    dims: Iterable[str],
    split: Splits,
    picked: Collection[str],
    sizes: Mapping[str, Amount],
    degrees: Mapping[str, Amount],
    load: Amount = 1,
) -> Amount:
    """Elements that one device has of a tensor of which one row is there along the dimensions ``picked``.

    Raises SizeError as :func:`placeproof.cost.blocks.tensors.elements` does.
    """
    share = Fraction(load) if isinstance(load, int) else load
    count = elements(dims, split, {**sizes, **dict.fromkeys(picked, share)}, degrees)
    return count.numerator if isinstance(count, Fraction) and count.denominator == 1 else count


def weights(program: Program) -> tuple[str, ...]:
    """The tensors of the header that belong to the model: numbers without a dimension of positions, adjoints apart."""
    seeds = adjoints(program)
    return tuple(t.name for t in program.tensors if t.picks is None and t.name not in seeds and POSITIONS.isdisjoint(t.dims))


def matrices(program: Program) -> tuple[str, ...]:
    """The weights that forward multiplies as matrices. Gains and biases, which are not among them, only ever meet single elements."""
    return tuple(products(program))


@remembered
def products(program: Program) -> dict[str, frozenset[str]]:
    """The same weights, each with those of its dimensions that it has in common with what it multiplies."""
    dims = {t.name: t.dims for t in program.tensors}
    shared: dict[str, frozenset[str]] = {}
    for operation, reading in weights_read(program):
        for name, read in reading.items() if operation.product and operation.during == "forward" else ():
            others = frozenset(dim for r in operation.reads if r is not read for dim in r.layout.dims)
            shared.setdefault(name, others & {*dims[name]})
    return {n: shared[n] for n in weights(program) if n in shared}


def weights_read(program: Program) -> Iterator[tuple[Operation, dict[str, BlockValue]]]:
    """Each operation whose result is none of weights alone, with the weights that it reads and what it reads of them: a gathered one,
    perhaps."""
    own = frozenset(weights(program))
    sources: dict[int, frozenset[str]] = {}
    for operation in operations(program):
        known = [(sources.get(id(r), own & {r.name}), r) for r in operation.reads if not (r.data or r.incoming)]
        if operation.result.data or operation.result.incoming:
            yield operation, {name: read for names, read in known for name in names}
        else:
            sources[id(operation.result)] = frozenset().union(*(names for names, _ in known))


# Taking a program apart.


def operations(program: Program, deferred: Collection[str] | None = None) -> tuple[Operation, ...]:
    """Every operation in the order in which a device carries it out; moving data and calling it otherwise are operations of no steps.

    ``deferred``: weights whose gradients are W; all if not given. Raises InputError for a program that is no block.
    """
    return _operations(program, frozenset(weights(program) if deferred is None else deferred))


@remembered
def _operations(program: Program, deferred: frozenset[str]) -> tuple[Operation, ...]:
    steps, walked, backward = taken_apart(program)
    late = _passes(walked, backward, deferred)
    return tuple(replace(o, during=late[id(o.result)]) if id(o.result) in late else o for o in steps)


@remembered
def taken_apart(program: Program) -> tuple[tuple[Operation, ...], tuple[Line, ...], tuple[bool, ...]]:
    """The operations, whatever their pass; the statements that they stand in alone, and which of these are of backward."""
    flat = _Flat(program)
    walked = lines(replace(program, body=tuple(flat.body)))
    whole = lines(program)
    given = {id(line.result.stored) for line in walked if isinstance(line.stmt, Do) and line.stmt.call.op == "returns"}
    reader, steps = _Reader(program), []
    for line, source in zip(walked, flat.source, strict=True):
        if isinstance(line.stmt, Assign) and (made := reader.operation(line)) is not None:
            again = whole[source].backward and not made.result.incoming
            handed_on = id(made.result.stored) in given
            steps.append(replace(made, again=again, rounds=line.rounds, statement=source, given=handed_on))
    return tuple(steps), walked, tuple(whole[s].backward for s in flat.source)


class _Flat:
    """A program in which every operation has a statement of its own; ``source`` is the number of the statement that it is from."""

    def __init__(self, program: Program) -> None:
        self.source: list[int] = []
        self.made: list[Stmt] = []
        self.number = 0
        self.body = self._each(program.body)

    def _each(self, body: Iterable[Stmt]) -> list[Stmt]:
        outer, self.made = self.made, []
        for stmt in body:
            if isinstance(stmt, For):
                self.made.append(replace(stmt, body=tuple(self._each(stmt.body))))
            else:
                self._statement(stmt)
                self.number += 1
        inner, self.made = self.made, outer
        return inner

    def _statement(self, stmt: Stmt) -> None:
        match stmt:
            case Assign(accumulate=True):
                self._put(replace(stmt, value=self._atom(stmt, stmt.value)))
            case Assign():
                self._put(replace(stmt, value=self._simple(stmt, stmt.value)))
            case Do():
                self._put(replace(stmt, call=replace(stmt.call, args=tuple(self._atom(stmt, a) for a in stmt.call.args))))
            case _:
                self._put(stmt)  # which is refused when shapes are worked out

    def _put(self, stmt: Stmt) -> None:
        self.made.append(stmt)
        self.source.append(self.number)

    def _atom(self, stmt: Assign | Do, expr: Expr) -> Expr:
        """A name for what an expression gives."""
        if isinstance(expr, Number | Ref):
            return expr
        simple = self._simple(stmt, expr)
        name = Ref(name=f"{_UNNAMED}{len(self.source)}", place=expr.place)
        self._put(Assign(targets=(name,), value=simple, place=stmt.place))
        return name

    def _simple(self, stmt: Assign | Do, expr: Expr) -> Expr:
        """One operation on names."""
        match expr:
            case Binary(left=left, right=right):
                return replace(expr, left=self._atom(stmt, left), right=self._atom(stmt, right))
            case Call(op="elementwise" | "slope", args=(function, x)):
                return replace(expr, args=(function, self._atom(stmt, x)))
            case Call():
                return replace(expr, args=tuple(self._atom(stmt, a) for a in expr.args))
        return expr


_ELEMENTWISE = frozenset({"+", "-", "*", "/", "**", "max", "min", "scale", "elementwise", "slope"})

#: What moves data, and computes nothing with them on the device; a reduction is the collective's.
_MOVES = frozenset({"hot", "copy", "part", "random", *COLLECTIVES})

#: What begins the names of unnamed values: no letter, so that no program has such a name.
_UNNAMED = "#"


def storage(value: BlockValue) -> BlockValue:
    """The value whose storage another one reads: the one that has a name in the program."""
    while value.view is not None and not value.view.name.startswith(_UNNAMED):
        value = value.view
    return value


def _passes(walked: Iterable[Line], backward: Iterable[bool], deferred: frozenset[str]) -> dict[int, Pass]:
    """The pass of every value that is made in backward, by identity. What nothing uses is counted with the gradients by inputs."""
    passes: dict[int, Pass] = {}
    wanted: dict[int, Pass] = {}
    for line, late in reversed(list(zip(walked, backward, strict=True))):
        if not late:
            break
        if isinstance(line.stmt, Do):
            own: Pass = "weights" if line.stmt.call.option("by") in deferred else "inputs"
        elif any(line.result is r for r in line.reads):
            continue  # a second name of the same value
        else:
            own = passes[id(line.result)] = wanted.get(id(line.result), "inputs")
        for value in line.reads:
            if wanted.get(id(value)) != "inputs":
                wanted[id(value)] = own
    return passes


class _Reader:
    """Reads operations off a program in which each has a statement of its own, in order; knows of every value what is picked."""

    def __init__(self, program: Program) -> None:
        self.axes = {a.name for a in program.axes}
        self.picked: dict[int, _Picked] = {}
        self.products: set[int] = set()

    def operation(self, line: Line) -> Operation | None:
        """The operation of a statement, or None where it only gives a second name."""
        assert isinstance(line.stmt, Assign)
        value = line.stmt.value
        match value:
            case Binary(op=op):
                operands = self._operands((value.left, value.right), line.reads)
            case Call(op="elementwise", args=(Ref(name="stop"), _)):
                return None
            case Call(op=op):
                operands = line.reads
            case _ if line.stmt.accumulate:
                op, operands = "+", (*self._operands((value,), line.reads), line.reads[-1])
            case _:
                return None
        over = value.option("over") if isinstance(value, Call) else None
        picked = self._joined(op, operands)
        thin = {d: p for d, p in picked.items() if d in line.result.layout.dims and over not in p[1]}
        self.picked[id(line.result)] = thin
        made = _work(op, line, over, frozenset(picked), frozenset(thin))
        of_product = op == "total" and id(line.reads[0]) in self.products
        if made.product or of_product:
            self.products.add(id(line.result))
        return replace(made, each=0) if of_product else made

    def _operands(self, exprs: Iterable[Expr], reads: Iterable[BlockValue]) -> tuple[BlockValue | None, ...]:
        """The tensors among operands, and None for numbers and degrees."""
        rest = iter(reads)
        return tuple(next(rest) if isinstance(e, Ref) and e.name not in self.axes else None for e in exprs)

    def _joined(self, op: str, operands: Sequence[BlockValue | None]) -> _Picked:
        """Along which dimensions one row of what an operation works on is there."""
        if op == "hot" and operands[0] is not None:
            positions = operands[0].layout
            return {positions.picks or "": (id(operands[0]), frozenset(positions.dims))}
        each = [self.picked.get(id(o), {}) for o in operands]
        if op in ("+", "-", "max", "min"):  # where it is there of both
            return {d: p for d, p in each[0].items() if each[1].get(d) == p}
        if op in ("*", "contract", "scale"):  # nothing times anything is nothing
            return {d: p for e in each for d, p in e.items()}
        return each[0] if each else {}


def _work(op: str, line: Line, over: str | None, picked: frozenset[str], thin: frozenset[str]) -> Operation:
    """An operation with the elements for which it does something, and how many steps for each of them."""
    about, each, product = _about(op, line, over)
    split: dict[str, tuple[str, ...]] = {}
    for layout in about:
        split |= {d: layout.split.get(d, ()) for d in layout.dims if d not in layout.loose}
    dims = tuple(dict.fromkeys(d for v in about for d in v.dims))
    laid = tuple((d, split[d]) for d in dims if split.get(d))
    return Operation(
        op=op,
        reads=line.reads,
        result=line.result,
        dims=dims,
        split=laid,
        each=each,
        picked=picked & set(dims),
        thin=thin,
        product=product,
        line=line.result.line,
    )


def _about(op: str, line: Line, over: str | None) -> tuple[tuple[Layout, ...], int, bool]:
    """The layouts of the tensors over whose elements an operation runs, its steps for each, and whether it is a product of matrices."""
    layouts = tuple(v.layout for v in line.reads)
    if op in ("total", "largest"):
        return layouts, 1, False
    if op != "contract":
        return (line.result.layout,), 0 if op in _MOVES else 1, False
    a, b = layouts
    for choice, rows in ((a, b), (b, a)):
        if choice.loose and choice.hot is not None:
            return (rows,), 0 if over in choice.loose else 1, False
    product = not set(a.dims) <= set(b.dims) and not set(b.dims) <= set(a.dims)
    return (a, b), 2, product
