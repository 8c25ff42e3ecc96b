"""Checks the certificate of a plan, `placeproof plan --certificate FILE`: that no placement of a grid is better than those that it lists.

It needs Python's standard library alone, and runs by itself: `python plan.py FILE`. A certificate holds the grid; lower bounds of the
seconds of a step, and of the bytes that are missing on its fullest device, as formulas of degrees, b and m; points whose seconds and bytes
were derived exactly; and a tree, which takes the grid apart into boxes. Each leaf says why no
point of its box is better than the last plan:

    batch     the batch is no whole number of micro-batches
    uneven    degrees do not divide a size of the model
    order     the schedule is not for so many stages, runs of layers or micro-batches
    refused   no strategy has these options
    memory    more bytes are needed than there are, by the bound
    time      a step takes no less, by the bound
    exact     the point is among those that were derived

Formulas are evaluated with intervals: over all points of a box, what they are made of lies in between. The ends of intervals are
floating-point numbers, rounded outwards after each operation; where these decide nothing, exact rationals.

What is taken on trust: that formulas are bounds of what is derived, and what is said of points that were derived. `placeproof verify` works
both out again.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import wraps
from itertools import chain, product
from math import ceil, floor, inf, nextafter, prod
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

SCHEMA = "placeproof.plan-certificate/1"
#: The tables of formulas, each with the reason that its rules are; and reasons that are of points, and not of boxes.
TABLES = {"blocks": "uneven", "states": "order"}
POINTWISE = ("batch", *TABLES.values(), "refused", "exact")
#: The least and the greatest that something can be: whole numbers, floating-point numbers rounded outwards, or rationals.
Interval: TypeAlias = tuple[Any, Any]
#: What a point may be, by coordinate: numbers of meshes, sequences of a micro-batch, and options.
Box: TypeAlias = dict[str, tuple[Any, ...]]
#: Where bounds are nearer than this to what decides, relatively, they are worked out in rationals.
NEAR = Fraction(1, 10**9)


class RejectedPlanError(Exception):
    """Something in a certificate does not hold. The message says what, and where."""


def _outwards(low: Any, high: Any) -> Interval:
    """What came out of some numbers: exact, but for floating-point numbers, and whole numbers that these cannot hold."""
    if type(low) is float or (type(low) is int and low.bit_length() > 53):
        low = -inf if low != low else nextafter(low, -inf)  # noqa: PLR0124 - what is no number
    if type(high) is float or (type(high) is int and high.bit_length() > 53):
        high = inf if high != high else nextafter(high, inf)  # noqa: PLR0124
    return low, high


def _product(a: Interval, b: Interval) -> Interval:
    if a[0] >= 0 and b[0] >= 0:
        return _outwards(a[0] and b[0] and a[0] * b[0], a[1] and b[1] and a[1] * b[1])
    each = [x and y and x * y for x in a for y in b]
    return _outwards(min(each), max(each))


def _quotient(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0 or b[1] == inf:
        return -inf, inf
    ends = ((a[0], b[0 if a[0] < 0 else 1]), (a[1], b[0 if a[1] > 0 else 1]))
    low, high = (x // y if type(x) is type(y) is int and x % y == 0 else x / y for x, y in ends)
    return _outwards(low, high)


def _remainder(a: Interval, b: Interval) -> Interval:
    return (a[0] % b[0], a[0] % b[0]) if a[0] == a[1] and b[0] == b[1] > 0 and type(a[0]) is not float else (0, b[1])


def _said(yes: bool, no: bool) -> Interval:
    """Whether something holds, 1 or 0; in between where it may or may not."""
    return (1, 1) if yes else (0, 0) if no else (0, 1)


def _hull(each: Iterable[Interval]) -> Interval:
    low, high = zip(*each, strict=True)
    return min(low), max(high)


#: What formulas are made of.
OPERATIONS: Mapping[str, Callable[..., Interval]] = {
    "+": lambda a, b: _outwards(a[0] + b[0], a[1] + b[1]),
    "-": lambda a, b: _outwards(a[0] - b[1], a[1] - b[0]),
    "*": _product,
    "/": _quotient,
    "mod": _remainder,
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "ceil": lambda a: tuple(x if x in (inf, -inf) else ceil(x) for x in a),
    "floor": lambda a: tuple(x if x in (inf, -inf) else floor(x) for x in a),
    "<": lambda a, b: _said(a[1] < b[0], a[0] >= b[1]),
    "<=": lambda a, b: _said(a[1] <= b[0], a[0] > b[1]),
    "=": lambda a, b: _said(a[0] == a[1] == b[0] == b[1], a[1] < b[0] or b[1] < a[0]),
    "where": lambda c, a, b: a if c[0] else b if not c[1] else _hull((a, b)),
}


def _parts(op: str, of: Sequence[Any]) -> Sequence[Any]:
    return () if op in ("number", "variable") else of[op == "exchange" :]


#: What is raised of what is no certificate.
BROKEN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_Method = TypeVar("_Method", bound=Callable[..., Any])


def _remembered(method: _Method) -> _Method:
    """A method that works out the same only once; of much, the last."""

    @wraps(method)
    def asked(self: Plan, *given: Any) -> Any:
        known = self.known.setdefault(method.__name__, {})
        if given not in known:
            if len(known) > 1 << 18:
                known.clear()
            known[given] = method(self, *given)
        return known[given]

    return cast(_Method, asked)


class Plan:
    """What a certificate holds, and whether its leaves are so. Raises RejectedPlanError, or LookupError and alike for what is no
    certificate."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document, grid, self.known = document, document["grid"], dict[str, dict[Any, Any]]()
        self.batch, self.replicas, self.tables, self.lines = grid["batch"], grid["replicas"], document["tables"], document["formulas"]
        self.meshes = [dict(zip(grid["axes"], mesh, strict=True)) for mesh in grid["meshes"]]
        self.grid: Box = {"mesh": tuple(range(len(self.meshes)))} | {name: tuple(own) for name, own in grid["choices"].items()}
        if any(prod(mesh.values()) not in grid["devices"] for mesh in self.meshes):
            raise RejectedPlanError(f"a mesh has none of these numbers of devices: {grid['devices']}")
        for i, (op, *of) in enumerate(self.lines):
            if not all(0 <= one < i for one in _parts(op, of)):
                raise RejectedPlanError(f"formula {i} is not made of those before it")
        points = [{name: (value,) for name, value in row["point"].items()} for row in document["derived"]]
        self.rows = {self.place(point): (point, row) for point, row in zip(points, document["derived"], strict=True)}
        listed = [Fraction(row["seconds"]) for _, row in self.rows.values() if row["because"] == "listed"]
        self.most = max(listed) if len(listed) == document["count"] else None

    def check(self) -> Counter[str]:
        """How many points there are for each reason."""
        for point, row in self.rows.values():
            if not self.derived(point, row):
                raise RejectedPlanError(f"what was derived cannot be (`{row['because']}`): {self.shown(point)}")
        counts: Counter[str] = Counter()
        for box, reason in self._leaves(self.grid, self.document["tree"]):
            if not self.holds(box, reason):
                raise RejectedPlanError(f"`{reason}` does not hold: {self.shown(box)}")
            counts[reason] += prod(map(len, box.values()))
        return counts

    def _leaves(self, box: Box, tree: Any) -> Iterator[tuple[Box, str]]:
        if isinstance(tree, str):
            yield box, tree
            return
        name, parts = tree
        if sorted(str(value) for values, _ in parts for value in values) != sorted(map(str, box[name])):
            raise RejectedPlanError(f"the values of `{name}` are not there once each: {self.shown(box)}")
        for values, part in parts:
            yield from self._leaves({**box, name: tuple(values)}, part)

    def shown(self, box: Box) -> str:
        """A box, in words."""
        words = {**box, "mesh": [" x ".join(map(str, self.meshes[i].values())) for i in box["mesh"]]}
        return ", ".join(f"{name} {'|'.join(map(str, own[:4]))}{'|...' * (len(own) > 4)}" for name, own in words.items())

    def holds(self, box: Box, reason: str) -> bool:
        """Whether no point of a box is better than the last plan, for a reason."""
        if reason == "exact":
            points = ({name: (value,) for name, value in zip(box, own, strict=True)} for own in product(*box.values()))
            return all(any(rule for rule, _ in self._cells_of(point)) or self.place(point) in self.rows for point in points)
        if reason in POINTWISE:
            return any(all(self.cell(table, *at)[0] == reason for at in self._cells(table, box)) for table in TABLES)
        most: Any = {"memory": 0, "time": self.most}[reason]
        for exact in (False, True) if most is not None else ():
            least = min((one[reason] for one in self.bounds(box, exact)), default=inf)
            if least > most or (least == most and reason == "time"):
                return True
            if least < most - NEAR * (most or Fraction(self.document["rooms"][0])):
                return False
        return False

    def derived(self, point: Box, row: Mapping[str, Any]) -> bool:
        """Whether what was derived of a point can be: it is not better than the last plan, and no bound is above it."""
        if row["because"] in ("refused", "unproved"):
            return True
        seconds, missing, known = Fraction(row["seconds"]), Fraction(row["peak"]) - Fraction(row["room"]), self.bounds(point, True)
        if len(known) != 1 or known[0]["time"] > seconds or known[0]["memory"] > missing:
            return False
        slower = self.most is not None and seconds >= self.most
        return {"listed": missing <= 0, "memory": missing > 0, "slower": slower}[row["because"]]

    # Tables: of blocks by some choices, and of states by others. A cell is a mesh, b, and these choices.

    def _cells(self, table: str, box: Box) -> Iterator[tuple[int, int, tuple[Any, ...]]]:
        yield from product(box["mesh"], box["b"], [*product(*(box[name] for name in self.tables[table]["by"]))])

    def _cells_of(self, point: Box) -> list[tuple[str, int]]:
        return [self.cell(table, *next(self._cells(table, point))) for table in TABLES]

    def place(self, point: Box) -> tuple[int, ...]:
        """What makes it another point: options that change nothing do not."""
        return *point["mesh"], *point["b"], *(entry for _, entry in self._cells_of(point))

    @_remembered
    def cell(self, table: str, mesh: int, b: int, own: tuple[Any, ...]) -> tuple[str, int]:
        """Which rule of a table cuts a cell, "" if none does; and the number of what the table has for it."""
        m, rest = divmod(self.batch, b * prod(self.meshes[mesh][axis] for axis in self.replicas))
        if rest:
            return "batch", -1
        axes = tuple(axis for axis in self.tables[table]["axes"] if self.meshes[mesh][axis] > 1)
        i = self._entry(table, axes, self.meshes[mesh]["pp"], m > 1, own)
        one = self.tables[table]["entries"][i]
        broken = [] if "refused" in one else self.values(one["broken"], mesh, b, True)
        return "refused" if "refused" in one else TABLES[table] if any(low for low, _ in broken) else "", i

    @_remembered
    def _entry(self, table: str, axes: tuple[str, ...], pp: int, several: bool, own: tuple[Any, ...]) -> int:
        of, choices = {"axes": [*axes], "pp": pp, "several": several}, dict(zip(self.tables[table]["by"], own, strict=True))
        fit = [
            i
            for i, one in enumerate(self.tables[table]["entries"])
            if all(one[word] in (None, of[word]) for word in of) and all(value in one["of"][name] for name, value in choices.items())
        ]
        if len(fit) != 1:
            raise RejectedPlanError(f"{len(fit)} entries of {table} are for {of} and {choices}")
        return fit[0]

    # Formulas.

    @_remembered
    def variables(self, mesh: int, b: int, exact: bool) -> dict[str, Interval]:
        """The open numbers of formulas, on a mesh, with micro-batches of b sequences."""
        at = {**self.meshes[mesh], "b": b, "m": self.batch // (b * prod(self.meshes[mesh][axis] for axis in self.replicas))}
        return {name: (Fraction(n), Fraction(n)) if exact else (n, n) for name, n in at.items()}

    def values(self, wanted: Iterable[int], mesh: int, b: int, exact: bool) -> list[Interval]:
        """What formulas come to there."""
        at = self.known.setdefault("values", {})
        if (mesh, b, exact) not in at:
            if len(at) > 9:  # a tree goes from one to the next
                at.clear()
            at[mesh, b, exact] = {}
        return self._evaluated(tuple(wanted), self.variables(mesh, b, exact), mesh, at[mesh, b, exact], exact)

    def _evaluated(
        self, wanted: tuple[int, ...], variables: Mapping[str, Interval], mesh: int, found: dict[int, Interval], exact: bool
    ) -> list[Interval]:
        for i, op, of in self._made_of(wanted):
            if i in found:
                continue
            if op == "variable":
                found[i] = variables[of[0]]
            elif op == "number":
                found[i] = self._number(of[0], exact)
            elif op == "exchange":
                found[i] = self._exchange(self.document["exchanges"][of[0]][str(mesh)], found[of[1]], exact)
            else:
                found[i] = OPERATIONS[op](*[found[one] for one in of])
        return [found[i] for i in wanted]

    @_remembered
    def _made_of(self, wanted: tuple[int, ...]) -> list[tuple[int, str, list[Any]]]:
        every, left = set[int](), list(wanted)
        while left:
            if (i := left.pop()) not in every:
                every.add(i)
                left += _parts(self.lines[i][0], self.lines[i][1:])
        return [(i, self.lines[i][0], self.lines[i][1:]) for i in sorted(every)]

    @_remembered
    def _number(self, text: str, exact: bool) -> Interval:
        value: Any = float(text) if text.endswith("inf") else Fraction(text)
        if exact or abs(value) == inf:
            return value, value
        return _outwards(*(int(value),) * 2) if value.denominator == 1 else _outwards(*(float(value),) * 2)

    def _exchange(self, lines: int, size: Interval, exact: bool) -> Interval:
        """Seconds by the fastest algorithm in the slowest group: those of no bytes, and of each."""
        plus, each = OPERATIONS["+"], []
        for groups in self.document["lines"][lines]:
            own = [plus(self._number(a, exact), _product(self._number(b, exact), size)) for a, b in groups]
            each.append((max(low for low, _ in own), max(high for _, high in own)))
        return min(low for low, _ in each), min(high for _, high in each)

    # Bounds of boxes.

    def bounds(self, box: Box, exact: bool) -> list[dict[str, Any]]:
        """Of the points of a box that no rule cuts: the least seconds, and bytes beyond what there is, for each kind of formulas."""
        blocks, states = (self._ranges(t, *(box[name] for name in ("mesh", "b", *self.tables[t]["by"])), exact) for t in TABLES)
        found = []
        for (own, of_blocks), (kind, (others, of_states)) in product(blocks.values(), states.items()):
            rooms = self._rooms(of_blocks, of_states, exact)
            (time, _), (memory, _) = self._evaluated(kind, own | others | rooms, -1, {}, exact)
            found.append({"time": time, "memory": memory})
        return found

    @_remembered
    def _ranges(self, table: str, *given: Any) -> dict[Any, tuple[dict[str, Interval], frozenset[Any]]]:
        """What formulas lie between over the cells of a box, by the formulas that are made of them; and which entries that is of."""
        *values, exact = given
        found: dict[Any, dict[str, list[Interval]]] = {}
        entries: dict[Any, set[Any]] = {}
        for mesh, b, own in self._cells(table, dict(zip(("mesh", "b", *self.tables[table]["by"]), values, strict=True))):
            rule, i = self.cell(table, mesh, b, own)
            if rule:
                continue
            one = self.tables[table]["entries"][i]
            kind = (one["seconds"], one["beyond"]) if table == "states" else ()
            slots = dict(zip(one["slots"], self.values(one["slots"].values(), mesh, b, exact), strict=True))
            for name, value in (slots | self.variables(mesh, b, exact)).items():
                found.setdefault(kind, {}).setdefault(name, []).append(value)
            entries.setdefault(kind, set()).add((i, frozenset(axis for axis, n in self.meshes[mesh].items() if n > 1)))
        return {kind: ({name: _hull(each) for name, each in own.items()}, frozenset(entries[kind])) for kind, own in found.items()}

    @_remembered
    def _rooms(self, blocks: frozenset[Any], states: frozenset[Any], exact: bool) -> dict[str, Interval]:
        """Bytes for tensors on a device of each kind of stage: fewer with each communicator, of which there is one for each set of axes."""
        found: dict[str, list[Interval]] = {}
        for (i, several), (k, own) in product(blocks, states):
            parts, one = self.tables["blocks"]["entries"][i]["over"], self.tables["states"]["entries"][k]
            for stage, (names, over) in enumerate(zip(one["parts"], one["over"], strict=True)) if several == own else ():
                groups = {several & {*axes} for axes in chain(over, *(parts[name] for name in names))} - {frozenset()}
                found.setdefault(f"{stage}.room", []).append(self._number(self.document["rooms"][len(groups)], exact))
        return {name: _hull(each) for name, each in found.items()}


def main(path: str) -> int:
    """Look at one file; 0 if it holds, 1 if it does not."""
    try:
        counts = Plan(json.loads(Path(path).read_text(encoding="utf-8"))).check()
    except (RejectedPlanError, OSError, *BROKEN) as error:
        print(f"{path}: rejected: {error or type(error).__name__}")
        return 1
    print(f"{path}: holds for {sum(counts.values()):,} points: " + ", ".join(f"{n:,} {reason}" for reason, n in counts.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
