"""A second argument for "for every number of devices": finitely many runs that prove a step for all of them.

Where devices differ only in who owns an element and in a few named ranks, what a device holds is a sum of what devices began with, whose
coefficients depend on nothing but which of these places are the same. Each coefficient is a rational function of the degrees, and of how
high a degree can be read off the program (:class:`Bound`). Such a function that is zero at more points than its degree is zero everywhere.
``docs/explanation/cut-off.md`` says this in full. Nothing here looks at the encoding, and the runs are those of
:mod:`placeproof.semantics.meaning`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod
from typing import TypeAlias

from placeproof.core.diagnostics import Place
from placeproof.programs import Assign, Binary, Call, Do, Expr, For, If, Number, Ref, Resolved, Stmt, evaluated, expressions, statements
from placeproof.programs.printer import contract
from placeproof.programs.ranks import least_degrees
from placeproof.semantics.encode.world import Range
from placeproof.semantics.judge.confirm import denied
from placeproof.semantics.judge.search import MOST_PASSES, RefutingRun, allowed, batches_of, degrees_by, describe, shapes_of
from placeproof.semantics.judge.verdict import Judged
from placeproof.semantics.meaning.layout import Layout
from placeproof.semantics.meaning.run import NoMeaningError, run
from placeproof.semantics.meaning.setup import Setup

#: How many places a coefficient may tell apart beside the named ranks: the device, the owner of the element, two samples' devices (the
#: optimizer squares a gradient), and the owners of two other elements that their passes have read.
PLACES = 6
#: The degree of the runs' optimizer in the gradient.
OPTIMIZER = 2
#: More devices, or more runs, than these are not tried.
MOST_DEVICES, MOST_RUNS = 1024, 600
#: Bits of all numbers in the text together, so that nothing that a step makes of them is a multiple of the runs' prime of 31 bits.
MOST_BITS = 20
SEEDS = (1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Coefficients of a buffer: polynomials of degree ``above`` over a power ``below`` of each degree. ``given``: a number that all devices
    know, with no coefficient; ``alone``: it is one product of powers. ``moved``: a state, or what a pass made, that has
    only been copied."""

    above: Counter[str] = field(default_factory=Counter)
    below: Counter[str] = field(default_factory=Counter)
    given: bool = False
    alone: bool = False
    moved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCovered:
    """Why the argument does not hold for a program."""

    why: str
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """Runs that prove a program for every number of devices. ``degree``: of the coefficients, by axis; ``values``: where it was run."""

    degree: dict[str, int]
    values: dict[str, tuple[int, ...]]
    microbatches: tuple[int, ...]
    units: tuple[int, ...]
    runs: int


Result: TypeAlias = Covered | NotCovered | RefutingRun
_Values: TypeAlias = dict[str, tuple[int, ...]]
#: Ranks that a program names, by axis factor; -1 is the last.
_Ranks: TypeAlias = dict[str, set[int]]


class _NotCoveredError(Exception):
    def __init__(self, why: str, place: Place | None = None) -> None:
        super().__init__(why)
        self.place = place


def cutoff(program: Resolved, without: frozenset[str] = frozenset(), ranges: tuple[Range, ...] = ()) -> Result:
    """Run a program whose states are placed where it has to be right to be right everywhere; or say why there is no such place."""
    try:
        _plain(program, without)
        _short(program)
        walk = _Walk(program)
        walk.body(program.body)
        degree = walk.degree()
        setups, values = _grid(program, degree, walk, ranges)
    except _NotCoveredError as why:
        return NotCovered(why=str(why), place=why.place)
    return _ran(program, setups, degree, values)


def cutoff_of(judged: Judged) -> Covered | NotCovered:
    """The argument about a program that was judged. Raises DisagreementError where a run denies a proof."""
    if judged.word != "proved":
        return NotCovered(why=f"the program is {judged.word}")
    result = cutoff(judged.program, judged.options.without, judged.options.ranges)
    if isinstance(result, RefutingRun):
        raise denied(judged.program, result)
    return result


def _plain(program: Resolved, without: frozenset[str]) -> None:
    """The argument is about plain data-parallel steps: each device has samples of its own and computes with all of the model."""
    if without:
        raise _NotCoveredError(f"it is not worked out without {', '.join(sorted(without))}")
    if program.tensors:
        raise _NotCoveredError("it is about steps, and the program is over tensors")
    for axis in program.axes:
        if not axis.splits.batch:
            raise _NotCoveredError(f"axis {axis.name} splits {axis.splits.name}, whose devices do not compute alike")
    for group in program.groups:
        if group.frozen:
            raise _NotCoveredError(f"it is not worked out for what is frozen, as {group.name} is", group.place)
        if group.update not in (None, "elementwise"):
            raise _NotCoveredError(f"it is not worked out for an update by {group.update}, as of group {group.name}", group.place)
        if group.tied or group.partial or group.experts:
            raise _NotCoveredError(f"group {group.name} is not computed by all devices alike", group.place)
    if program.loss:
        raise _NotCoveredError(f"it is not worked out for a loss that is {contract(program.loss)}")
    odd = [f"{name}={value}" for name, value in program.reference if (name, value) != ("optimizer", "elementwise")]
    if odd:
        raise _NotCoveredError(f"it is not worked out for a reference with {', '.join(odd)}")


def _short(program: Resolved) -> None:
    """Numbers in the text are no multiples of the prime that runs compute with, nor is what the step makes of them."""
    bits = 0
    for stmt in statements(program.body):
        for expr in evaluated(stmt):
            if isinstance(expr, Number):
                bits += (abs(expr.value.numerator).bit_length() + expr.value.denominator.bit_length() - 1) if abs(expr.value) != 1 else 0
            if isinstance(expr, Binary) and expr.op == "**" and isinstance(expr.right, Number):
                inside = [e.value for e in expressions(expr.left) if isinstance(e, Number)]
                bits += int(abs(expr.right.value)) * sum(abs(v.numerator).bit_length() + v.denominator.bit_length() for v in inside)
    if bits > MOST_BITS:
        raise _NotCoveredError(f"the numbers in the text have {bits} bits, and may come near the prime of the runs")


# How coefficients grow.


def _either(a: Bound, b: Bound) -> Bound:
    """Of what is one or the other, device by device or part by part."""
    return replace(_added(a, b), moved=a.moved and b.moved)


def _added(a: Bound, b: Bound) -> Bound:
    """Of a sum."""
    below = a.below | b.below
    above = (a.above + (below - a.below)) | (b.above + (below - b.below))
    return Bound(above=above, below=below, given=a.given and b.given)


def _times(a: Bound, b: Bound, place: Place | None) -> Bound:
    if not (a.given or b.given):
        raise _NotCoveredError("two values that depend on the model or its samples are multiplied", place)
    return Bound(above=a.above + b.above, below=a.below + b.below, given=a.given and b.given, alone=a.alone and b.alone)


def _inverse(a: Bound, place: Place | None) -> Bound:
    if not a.alone:
        raise _NotCoveredError("it is divided by a sum, or by what depends on the model or its samples", place)
    return Bound(above=a.below - a.above, below=a.above - a.below, given=True, alone=True)


#: Operations whose results have the coefficients of their first operand, on the same device or on another one.
_SAME = frozenset(("all_gather", "part", "broadcast", "copy", "cast", "to_host", "to_device", "start", "wait", "master"))
_SUMS = frozenset(("all_reduce", "reduce_scatter", "reduce"))


class _Walk:
    """A program walked once; a loop's body until nothing grows."""

    def __init__(self, program: Resolved) -> None:
        self.program = program
        self.env: dict[str, Bound] = {"parameters": Bound(moved=True), "optimizer": Bound(moved=True)}
        self.ranks: _Ranks = {f: set() for f in program.axis_factors}
        self.owned = {f for p in program.placed for axis, mode in p.modes if mode.split for f in program.factors(axis)}

    def degree(self) -> dict[str, int]:
        """The degree of what the states differ by from the reference's, in each axis factor."""
        degrees = {}
        for factor in self.program.axis_factors:
            above = []
            for state in ("parameters", "optimizer"):
                bound = self.env[state]
                below = max(bound.below[factor], OPTIMIZER)  # the reference divides by the number of samples
                above += [bound.above[factor] + below - bound.below[factor], below]
            degrees[factor] = max(above)
        return degrees

    def body(self, statements: Iterable[Stmt]) -> None:
        for stmt in statements:
            match stmt:
                case Assign():
                    self._assign(stmt)
                case Do(call=call) if call.op not in ("zero", "free"):
                    raise _NotCoveredError(f"devices exchange by `{call.op}`, along which they have an order", call.place)
                case For():
                    self._loop(stmt)
                case If():
                    self._branch(stmt)

    def _assign(self, stmt: Assign) -> None:
        value = self._value(stmt.value)
        for target in stmt.targets:
            whole = target.index is None and target.group is None and not stmt.accumulate
            join = _added if stmt.accumulate else _either
            self.env[target.name] = join(self.env[target.name], value) if not whole and target.name in self.env else value

    def _loop(self, loop: For) -> None:
        for _ in range(4):
            before = dict(self.env)
            self.body(loop.body)
            self.env = {name: _either(before[name], bound) if name in before else bound for name, bound in self.env.items()}
            if {n: (b.above, b.below) for n, b in before.items()} == {n: (b.above, b.below) for n, b in self.env.items()}:
                return
        raise _NotCoveredError("a buffer grows from one iteration to the next", loop.place)

    def _branch(self, branch: If) -> None:
        bound, factors = branch.bound, self.program.factors(branch.axis)
        last = isinstance(bound, Binary) and (bound.op, bound.right, bound.left) == ("-", Number(value=Fraction(1)), Ref(name=branch.axis))
        if len(factors) != 1 or not (isinstance(bound, Number) or (last and branch.op in ("==", "<"))):
            raise _NotCoveredError("a rank is compared with more than single ranks", branch.place)
        if isinstance(bound, Number):
            self.ranks[factors[0]] |= {int(bound.value)} if branch.op == "==" else set(range(int(bound.value) + 1))
        else:
            self.ranks[factors[0]].add(-1)
        before = dict(self.env)
        self.body(branch.then)
        then, self.env = self.env, before
        self.body(branch.orelse)
        self.env = {n: _either(then[n], self.env[n]) if n in then and n in self.env else (then | self.env)[n] for n in {*then, *self.env}}

    # Expressions.

    def _value(self, expr: Expr) -> Bound:
        """Of an expression; of an operation with two results, of both."""
        match expr:
            case Number():
                return Bound(given=True, alone=bool(expr.value))
            case Ref():
                return self._name(expr)
            case Binary():
                return self._binary(expr)
            case Call():
                return self._call(expr)

    def _name(self, ref: Ref) -> Bound:
        if ref.name in self.env:
            return self.env[ref.name]
        if ref.name == "microbatches":  # each number of them that is run is a number
            return Bound(given=True, alone=True)
        if self.program.axis(ref.name) is not None:
            return Bound(above=Counter(self.program.factors(ref.name)), given=True, alone=True)
        if ref.name == "gradients":  # garbage, before anything is written
            return Bound()
        raise _NotCoveredError(f"`{ref.name}` stands for any number", ref.place)

    def _binary(self, expr: Binary) -> Bound:
        left = self._value(expr.left)
        if expr.op == "**":
            if not isinstance(expr.right, Number) or expr.right.value.denominator != 1 or abs(expr.right.value) > 8:
                raise _NotCoveredError("an exponent is no small whole number", expr.place)
            base = left if expr.right.value >= 0 else _inverse(left, expr.place)
            bound = Bound(given=True, alone=True)
            for _ in range(abs(int(expr.right.value))):
                bound = _times(bound, base, expr.place)
            return bound
        right = self._value(expr.right)
        if expr.op in "+-":
            return _added(left, right)
        return _times(left, right if expr.op == "*" else _inverse(right, expr.place), expr.place)

    def _call(self, call: Call) -> Bound:
        if call.choice("order") != "blocked":
            raise _NotCoveredError("an element has another owner in another order", call.place)
        if call.op in ("all_gather", "part", "reduce_scatter"):
            self.owned |= {*self.program.factors(*call.axes)}  # along these it matters who owns an element
        if call.op in _SUMS:
            return self._reduced(call)
        if call.op in _SAME:
            if call.op == "broadcast":
                self._root(call)
            return self._value(call.args[0])
        if call.op == "scale":
            return _times(self._value(call.args[0]), self._value(call.args[1]), call.place)
        if call.op in ("data", "loss", "forward", "backward", "backward_input", "backward_weight", "output"):
            return self._pass(call)
        if call.op == "update" and len(call.args) == 3:
            *states, gradient = (self._value(a) for a in call.args)
            if not all(s.moved for s in states):
                raise _NotCoveredError("`update` reads states that were computed", call.place)
            squared = Bound(above=gradient.above + gradient.above, below=gradient.below + gradient.below)
            return _added(_added(*states), squared)
        raise _NotCoveredError(f"it is not worked out for `{call.op}`", call.place)

    def _reduced(self, call: Call) -> Bound:
        op = call.choice("op")
        if op not in ("sum", "mean"):
            raise _NotCoveredError(f"a reduction by {op} is no sum", call.place)
        if call.op == "reduce":
            self._root(call)
        factors = Counter(set(self.program.factors(*call.axes)))
        bound = self._value(call.args[0])
        count = Bound(above=factors, below=factors if op == "mean" else Counter(), given=True)
        return _times(replace(bound, given=False), count, call.place)

    def _root(self, call: Call) -> None:
        root, factors = call.choice("root"), self.program.factors(*call.axes)
        self.owned |= {*factors}  # parts come from their owners where no rank is named
        if root not in ("0", "owner") and len(factors) > 1:
            raise _NotCoveredError("a root along several axes", call.place)
        for factor in factors:
            self.ranks[factor] |= set() if root == "owner" else {int(root)}

    def _pass(self, call: Call) -> Bound:
        """A pass computes with parameters and streams that are the reference's or are not, which no degree changes. It is linear in the
        gradient that it is given."""
        scaled = call.op in ("backward", "backward_input", "backward_weight") and len(call.args) > 2
        for n, operand in enumerate(call.args):
            if isinstance(operand, Ref) and operand.name not in self.env:  # a micro-batch
                continue
            if not self._value(operand).moved and not (scaled and n == 2):
                raise _NotCoveredError(f"`{call.op}` reads what was computed", call.place)
        if not scaled:
            return Bound(moved=True)
        given = self._value(call.args[2])
        return given if call.op == "backward_input" else replace(given, moved=False)


# Where to run.


def _grid(program: Resolved, degree: dict[str, int], walk: _Walk, ranges: tuple[Range, ...]) -> tuple[list[Setup], _Values]:
    """Runs at one value more than the degree, for each factor, all of them so large that no place is missing."""
    least = least_degrees(program)
    choices: list[list[dict[str, int]]] = []
    values: _Values = {}
    for axis in program.axes:
        sizes: dict[str, list[int]] = {}
        for factor in axis.factors:
            fixed = axis.inner if isinstance(axis.inner, int) and factor == axis.inner_name else axis.degree if axis.inner is None else None
            first = max(PLACES + len(walk.ranks[factor]), *(n + 2 for n in walk.ranks[factor]), 0)
            # on few devices ranks that are named, other than the first, may be the same or not there
            start = first if walk.ranks[factor] <= {0} else least.get(axis.name, 1) if axis.inner is None else 1
            sizes[factor] = [fixed] if isinstance(fixed, int) else list(range(start, first + degree[factor] + 1))
        values |= {f: tuple(n) for f, n in sizes.items()}
        choices.append([degrees_by(axis, *at) for at in itertools.product(*sizes.values())])
        if axis.inner is not None and axis.degree is not None:
            raise _NotCoveredError(f"axis {axis.name} has a given degree and sub-groups")
    names = [a.inner for a in program.axes if isinstance(a.inner, str)]
    if len(names) > len(set(names)):
        raise _NotCoveredError("sub-groups of two axes have one size")
    meshes = [dict(itertools.chain.from_iterable(d.items() for d in at)) for at in itertools.product(*choices)]
    every = list(itertools.product(meshes, batches_of(program, ranges), shapes_of(program)))
    if len(every) > MOST_RUNS:
        raise _NotCoveredError(f"{len(every)} runs would be needed")
    if any(m > MOST_PASSES for _, m, _ in every):
        raise _NotCoveredError(f"the micro-batches that are given are too many to run: more than {MOST_PASSES}")
    setups = [_spread(program, Setup(degrees, m, *shape, exact=False), walk) for degrees, m, shape in every]
    if not setups or not all(allowed(program, s, ranges) for s in setups):
        raise _NotCoveredError("the ranges leave out where it would have to be run")
    return setups, values


def _spread(program: Resolved, setup: Setup, walk: _Walk) -> Setup:
    """A run in which each block has elements in all places that a coefficient may tell apart."""
    for entries in (2, 8, 32, 128):
        spread = replace(setup, entries=entries)
        layout = Layout(program, spread)
        if prod(layout.sizes.values()) > MOST_DEVICES or layout.network:
            break
        if _everywhere(layout, walk):
            return spread
    if _everywhere(layout, walk):
        return setup
    raise _NotCoveredError("no run is large enough for an element in each place that is told apart")


def _everywhere(layout: Layout, walk: _Walk) -> bool:
    """Whether along all factors together elements of each group in each block lie at each rank that is named, and at two others."""
    sizes = {f: n for f, n in layout.sizes.items() if f in walk.owned}
    named = {f: {n % size for n in walk.ranks[f] if n < size} for f, size in sizes.items()}
    others = {f: min(2, size - len(named[f])) for f, size in sizes.items()}
    wanted = set(itertools.product(*([*named[f], *(["other"] if others[f] else [])] for f in sizes)))
    places: dict[tuple[int, str], set[tuple[int, ...]]] = {}
    along = [layout.owners(f) for f in sizes]
    for at, element in enumerate(layout.elements):
        places.setdefault((element[0], layout.group_of(element)), set()).add(tuple(int(owners[at]) for owners in along))
    for owners in places.values():
        kinds = {tuple(n if n in named[f] else "other" for n, f in zip(at, sizes, strict=True)) for at in owners}
        several = all(len({at[k] for at in owners if at[k] not in named[f]}) >= others[f] for k, f in enumerate(sizes))
        if not several or not wanted <= kinds:
            return False
    return True


def _ran(program: Resolved, setups: list[Setup], degree: dict[str, int], values: _Values) -> Result:
    for setup, seed in itertools.product(setups, SEEDS):
        drawn = replace(setup, seed=seed)
        try:
            what = run(program, drawn)
        except ZeroDivisionError:
            return NotCovered(why=f"it is divided by zero with {describe(drawn)}")
        except NoMeaningError as why:
            return NotCovered(why=f"no run is possible: {why}")
        if what is not None:
            return RefutingRun(setup=drawn, what=what)
    batches = tuple(sorted({s.microbatches for s in setups}))
    units = tuple(sorted({s.units_per_stage for s in setups}))
    return Covered(degree=degree, values=values, microbatches=batches, units=units, runs=len(setups) * len(SEEDS))
