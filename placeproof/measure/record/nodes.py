"""What a traced number is made of, as terms that are stored once each: a gradient of a pass, scaled, added up, reduced over axes.

Without torch. A term is named by its number, so that a whole tensor of numbers can say what each of its elements is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

#: Of what nothing is known, and of what is zero.
NOTHING, ZERO = 0, 1
#: What is said of an update of what has been updated in this step.
AGAIN = "a second update in one step"
#: How far the square of a root is from the number, at most.
_ROUNDED = Fraction(1, 10**12)
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One term.

    ``kind``: "param" and "updated" (parameter ``index`` before and after its update), "pass" (its gradient, of backward pass ``turn``),
    "partial" (that of a split parameter, still to be summed over ``axes``), "scale" (by ``factor``), "add", one of :data:`COLLECTIVES`,
    "square", "sum_squares" (of ``count`` elements of one gradient, or of several such sums), "share" (one of ``count`` equal parts of
    such a sum), "norm" (the root of one), "clip" (a number made of a norm with a number, ``factor``; ``op``: "given" where a function of
    PyTorch was given that; ``text``: "times" where that is the norm times the number), "infinite" (that times what is infinite),
    "clipped" (a gradient times such a number), "elementwise" (of a gradient, number by number: ``text`` says what, with the number
    ``factor``), "true" (of a comparison, or 1; what is false is zero), "unknown" (``text`` says what was done). ``of``: the terms that it
    is made of. ``root``: of a broadcast or a reduce, as a rank of the world, and of a gradient that was gathered, the
    place in its group of the rank that gave it. ``turn``: of a norm that is exchanged, and of a gradient that is sent, the how many-th
    exchange of its kind and its ranks that is. ``line``: of the script.
    """

    kind: str
    of: tuple[int, ...] = ()
    index: int = -1
    turn: int = -1
    factor: Fraction = Fraction(1)
    axes: tuple[str, ...] = ()
    op: str = ""
    root: int = -1
    count: int = 0
    text: str = ""
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class Nodes:
    """All terms of a recording; the number of a term is its place. ``clipped``: how many elements were clipped to each such term."""

    table: list[Node] = field(default_factory=lambda: [Node(kind="nothing"), Node(kind="zero")])
    numbers: dict[Node, int] = field(default_factory=dict)
    clipped: dict[int, int] = field(default_factory=dict)

    def add(self, node: Node) -> int:
        """The number of a term."""
        if node not in self.numbers:
            self.numbers[node] = len(self.table)
            self.table.append(node)
        return self.numbers[node]

    def __getitem__(self, number: int) -> Node:
        return self.table[number]

    def renumber(self, places: Mapping[int, int]) -> None:
        """Give parameters other numbers: by the present ones."""
        self.table[:] = [replace(n, index=places.get(n.index, n.index)) for n in self.table]
        self.numbers = {node: number for number, node in enumerate(self.table) if number > ZERO}

    def states(self, number: int) -> frozenset[int]:
        """The parameters that a term speaks of."""
        node = self.table[number]
        own = frozenset((node.index,)) if node.index >= 0 else frozenset()
        return own.union(*(self.states(n) for n in node.of))

    def of_all(self, numbers: Iterable[int]) -> frozenset[int]:
        """The parameters that any of some terms speaks of."""
        return frozenset[int]().union(*map(self.states, numbers))

    def turns(self, number: int) -> frozenset[int]:
        """The backward passes whose gradients a term is made of."""
        node = self.table[number]
        return frozenset((node.turn,)) if node.kind == "pass" else frozenset[int]().union(*map(self.turns, node.of))

    def gradient_of(self, number: int) -> frozenset[int]:
        """The parameters whose gradients a term is made of, but for the norms that clip it."""
        node = self.table[number]
        return self.gradient_of(node.of[0]) if node.kind in ("clipped", "elementwise") else self.states(number)

    def unclipped(self, number: int) -> int:
        """What a gradient was before it was clipped, and changed element by element."""
        while self.table[number].kind == "elementwise":
            number = self.table[number].of[0]
        return self.table[number].of[0] if self.table[number].kind == "clipped" else number

    def is_parameter(self, number: int) -> bool:
        """Whether a term is a parameter, before or after its update, moved or not."""
        node = self.table[number]
        return node.kind in ("param", "updated") or (
            node.kind in ("all_gather", "broadcast") and any(self.is_parameter(n) for n in node.of)
        )

    def is_norm(self, number: int) -> bool:
        """Whether a term is a norm, or something of the kind that a norm is made of."""
        node = self.table[number]
        return node.kind in ("sum_squares", "share", "norm") or (node.kind in COLLECTIVES and any(self.is_norm(n) for n in node.of))

    def is_squared(self, number: int) -> bool:
        """Whether a term is a sum of squares, perhaps of all ranks, and not its root."""
        node = self.table[number]
        return node.kind in ("sum_squares", "share") or (node.kind == "all_reduce" and node.op == "sum" and self.is_squared(node.of[0]))

    def is_gradient(self, number: int) -> bool:
        """Whether a term is a gradient, whatever was done to it."""
        node = self.table[number]
        return node.kind in ("pass", "partial", "scale", "add", "clipped", "elementwise") or (
            node.kind in COLLECTIVES and all(self.is_gradient(n) for n in node.of)
        )

    def holds(self, number: int, kind: str) -> bool:
        """Whether a term, or something that it is made of, is of a kind."""
        node = self.table[number]
        return node.kind == kind or any(self.holds(n, kind) for n in node.of)

    def scaled(self, number: int, factor: Fraction, line: int) -> int:
        """A term times a rational number."""
        if factor == 0:
            return ZERO
        if number in (NOTHING, ZERO) or factor == 1 or self.table[number].kind == "unknown":
            return number
        return self.add(Node(kind="scale", of=(number,), factor=factor, line=line))

    def added(self, terms: tuple[int, ...], line: int) -> int:
        """Gradients added up. What was gathered of all ranks, and is added up, is what an all-reduce makes of it."""
        nodes = [self.table[n] for n in terms]
        first = nodes[0]
        if not all((n.kind, n.factor, n.axes) == (first.kind, first.factor, first.axes) for n in nodes):
            return self.add(Node(kind="add", of=terms, line=line))
        if first.kind == "scale" and all(self.table[n.of[0]].kind == "all_gather" for n in nodes):
            made = self.added(tuple(n.of[0] for n in nodes), line)
            return (
                self.scaled(made, first.factor, first.line)
                if self.table[made].kind == "all_reduce"
                else self.add(Node(kind="add", of=terms))
            )
        of_all = first.kind == "all_gather" and sorted(n.root for n in nodes) == list(range(first.axes[0].count(",") + 1))
        if of_all and {n.of for n in nodes} == {first.of}:
            return self.exchanged(first.of[0], Node(kind="all_reduce", axes=first.axes, op="sum", line=first.line))
        return self.add(Node(kind="add", of=terms, line=line))

    def exchanged(self, number: int, like: Node) -> int:
        """A term after a collective. What was partial over its axes is that no more."""
        if self.table[number].kind == "partial" and like.op == "sum" and like.axes == self.table[number].axes:
            return self.table[number].of[0]
        lost = number in (NOTHING, ZERO) or self.table[number].kind == "unknown"
        return number if lost else self.add(replace(like, of=(number,)))

    def unknown(self, numbers: tuple[int, ...], text: str, line: int) -> int:
        """What an operation that has no word here makes of terms. The first such operation is told."""
        for first in (self.table[n] for n in numbers if self.table[n].kind == "unknown"):
            text, line = first.text, first.line
        return self.add(Node(kind="unknown", of=tuple(dict.fromkeys(n for n in numbers if n > ZERO)), text=text, line=line))

    def power(self, number: int, exponent: Fraction, line: int) -> int:
        """The square of a gradient or of a norm, and the root of a sum of squares."""
        if exponent == 2 and self.table[number].kind == "norm":
            return self.table[number].of[0]
        if exponent == 2 and (share := self._share(number)) is not None:
            return self.add(share)
        if exponent == 2 and self.is_gradient(number):
            return self.add(Node(kind="square", of=(number,), line=line))
        if exponent == Fraction(1, 2) and self.is_squared(number):
            return self.add(Node(kind="norm", of=(number,), line=line))
        return self.unknown((number,), f"a power of {float(exponent):g}", line)

    def _share(self, number: int) -> Node | None:
        """The square of a norm times numbers, if these make one of several equal parts of it."""
        node, times = self.table[number], Fraction(1)
        while (node.kind, node.text) == ("clip", "times"):
            node, times = self.table[node.of[0]], times * node.factor
        count = round(1 / times**2)
        if node.kind != "norm" or count < 2 or abs(count * times**2 - 1) > _ROUNDED:
            return None
        return Node(kind="share", of=node.of, count=count)

    def norm(self, elements: Mapping[int, int], line: int) -> int:
        """The 2-norm of so many elements of each term: of gradients, or of norms."""
        squares = {self.power(number, Fraction(2), line): count for number, count in elements.items()}
        total = self.sum_squares(squares, line)
        return total if self.table[total].kind == "unknown" else self.power(total, Fraction(1, 2), line)

    def sum_squares(self, elements: Mapping[int, int], line: int) -> int:
        """The sum of so many elements of each term: of squares, or of sums of squares."""
        terms: list[int] = []
        for number, count in elements.items():
            node = self.table[number]
            if node.kind == "square":
                terms.append(self.add(Node(kind="sum_squares", of=node.of, count=count, line=line)))
            elif not self.is_squared(number):
                return self.unknown(tuple(elements), "a sum of gradients, or of norms, that are not squared", line)
            else:
                terms += (node.of if node.kind == "sum_squares" and not node.count else (number,)) * count
        return terms[0] if len(terms) == 1 else self.add(Node(kind="sum_squares", of=tuple(sorted(terms)), line=line))
