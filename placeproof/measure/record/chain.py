"""What happened to a gradient between backward and the update: what each micro-batch's went through, then what their sum did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod

from placeproof.core.diagnostics import InputError, Problems
from placeproof.measure.record.axes import ranks_of
from placeproof.measure.record.nodes import COLLECTIVES, Node, Nodes

Axes = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChainStep:
    """A collective, or a scaling by ``factor``. ``root``: of a reduce or a broadcast, as a rank of the world, and as a program says it. The
    lines of the script do not take part in equality, nor do the ``ranks`` that exchange, and which of their broadcasts it is, ``turn``."""

    kind: str
    axes: Axes = ()
    op: str = ""
    factor: Fraction = Fraction(1)
    root: int | str = ""
    ranks: tuple[int, ...] = field(default=(), compare=False)
    turn: int = field(default=-1, compare=False)
    lines: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Clip:
    """Clipping by a norm. ``over``: for each parameter that is in the norm, the axes over which squares are summed, and ``sums``: which
    collectives do that; ``shares``: in how many parts its squares were cut before; ``of``: the gradients of which the norm is, as terms.
    ``numbers``: with which something is made of the norm, and whether PyTorch was given each."""

    over: tuple[tuple[int, Axes], ...]
    of: frozenset[int] = frozenset()
    numbers: tuple[tuple[Fraction, bool], ...] = ()
    line: int = field(default=0, compare=False)
    sums: tuple[tuple[int, tuple[int, ...]], ...] = field(default=(), compare=False)
    shares: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Elementwise:
    """What is done to gradients number by number: "min" or "max" bounds each, "the parameter" is added; with a number, that PyTorch may
    have been ``given``."""

    text: str
    number: Fraction
    given: bool = False
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Chain:
    """``inner``: steps of each of ``turns`` passes' gradient, or, if ``rolling``, of the sum after each pass; ``outer``: of the sum; then
    clipping; then what is done ``by_element``."""

    inner: tuple[ChainStep, ...]
    outer: tuple[ChainStep, ...]
    turns: int
    rolling: bool = False
    clip: Clip | None = None
    by_element: tuple[Elementwise, ...] = ()

    @property
    def numbers(self) -> frozenset[tuple[Fraction, bool]]:
        """With which a norm clips, and elements are changed, and whether a function of PyTorch was given each."""
        return frozenset((*(self.clip.numbers if self.clip else ()), *((e.number, e.given) for e in self.by_element)))

    @property
    def scalings(self) -> tuple[ChainStep, ...]:
        """All scalings, in their order."""
        return tuple(s for s in (*self.inner, *self.outer) if s.kind == "scale")

    def scaled_once(self, factor: Fraction) -> Chain:
        """The same with one scaling where the last one was."""
        last = self.scalings[-1]

        def once(steps: tuple[ChainStep, ...]) -> tuple[ChainStep, ...]:
            return tuple(replace(s, factor=factor) if s is last else s for s in steps if s.kind != "scale" or s is last)

        return replace(self, inner=once(self.inner), outer=once(self.outer))

    def axes(self, kind: str) -> Axes:
        """The axes of all collectives of a kind."""
        return tuple(dict.fromkeys(a for s in (*self.inner, *self.outer) if s.kind == kind for a in s.axes))


class UnreadableError(Exception):
    """A chain that cannot be said: what was done, and the line of the script."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.text, self.line = text, line


def read_chain(nodes: Nodes, number: int, axes: Callable[[str], Axes], sizes: Mapping[str, int] | None = None) -> Chain:
    """The chain that ends in a term; ``sizes`` of axes. Raises UnreadableError."""
    node = nodes[number]
    if node.kind == "elementwise":
        chain = read_chain(nodes, node.of[0], axes, sizes)
        return replace(chain, by_element=(*chain.by_element, Elementwise(node.text, node.factor, bool(node.op), node.line)))
    if node.kind == "clipped":
        chain = read_chain(nodes, node.of[0], axes, sizes)
        if chain.by_element:
            raise UnreadableError(_WORDS["elementwise"], chain.by_element[-1].line)
        return Chain(chain.inner, chain.outer, chain.turns, chain.rolling, _clip(nodes, number, axes))
    outer, node = _linear(nodes, nodes[number], axes)
    if node.kind == "pass":
        return Chain(outer, (), 1)
    if node.kind != "add":
        raise UnreadableError(_why(node), node.line)
    parts = [(_summed_again(steps, outer, sizes or {}), end) for steps, end in (_linear(nodes, nodes[n], axes) for n in node.of)]
    if all(end.kind == "pass" for _, end in parts) and len({steps for steps, _ in parts}) == 1:
        turns = [end.turn for _, end in parts]
        if len(set(turns)) != len(turns):
            raise UnreadableError("a gradient is added to itself", node.line)
        return Chain(parts[0][0], outer, len(turns))
    return _rolling(nodes, node, outer, axes)


def _summed_again(steps: tuple[ChainStep, ...], outer: tuple[ChainStep, ...], sizes: Mapping[str, int]) -> tuple[ChainStep, ...]:
    """What is done to a gradient before it is added up; a mean over ranks is nothing where the sum is reduced over these, too."""
    factor, exchanges, _ = _apart(steps)
    over = {axis for s in outer if s.kind in ("all_reduce", "reduce_scatter") for axis in s.axes}
    if len(exchanges) != 1 or exchanges[0].kind != "all_reduce" or not {*exchanges[0].axes} <= over & sizes.keys():
        return steps
    mean = factor * (1 if exchanges[0].op == "mean" else prod(sizes[axis] for axis in exchanges[0].axes))
    return () if mean == 1 else steps


#: What a chain may not end in, in words.
_WORDS = {
    "nothing": "the update reads something that is not followed",
    "partial": "the gradient of a layer that is split is not summed over the ranks that split it",
    "zero": "the update reads zeros",
    "clipped": "gradients are clipped before they are reduced or added up",
    "elementwise": "gradients are bounded, or changed otherwise element by element, before they are reduced, added up, scaled or clipped",
}


def _why(node: Node) -> str:
    """Why a chain may not end in a term."""
    return _WORDS.get(node.kind) or node.text or f"`{node.kind}`"


def _rolling(nodes: Nodes, node: Node, outer: tuple[ChainStep, ...], axes: Callable[[str], Axes]) -> Chain:
    """What was reduced already is reduced again with the next micro-batch's."""
    turns, inner = 1, None
    while node.kind == "add":
        steps, below = _linear(nodes, nodes[node.of[0]], axes)
        inner = steps if inner is None else inner
        if len(node.of) != 2 or nodes[node.of[1]].kind != "pass" or steps != inner or _rest(outer, steps) is None:
            raise UnreadableError("gradients of micro-batches go different ways and are added up", node.line)
        turns, node = turns + 1, below
    if node.kind != "pass":
        raise UnreadableError(_why(node), node.line)
    inner = inner or ()
    return Chain(inner, _rest(outer, inner) or (), turns, rolling=True)


def _rest(steps: tuple[ChainStep, ...], first: tuple[ChainStep, ...]) -> tuple[ChainStep, ...] | None:
    """What is done after the first steps, whatever the order of scalings and exchanges; None where others come first."""
    (factor, exchanges, lines), (own, before, known) = map(_apart, (steps, first))
    if exchanges[: len(before)] != before or any(s.kind == "broadcast" for s in exchanges):
        return None
    later = tuple(n for n in lines if n not in known)
    scaled = (ChainStep("scale", factor=factor / own, lines=later),) if later or factor != own else ()
    return exchanges[len(before) :] + scaled


def _apart(steps: tuple[ChainStep, ...]) -> tuple[Fraction, tuple[ChainStep, ...], tuple[int, ...]]:
    """The factor of all scalings, the exchanges, and the lines of the scalings."""
    scalings = [s for s in steps if s.kind == "scale"]
    factor, lines = prod((s.factor for s in scalings), start=Fraction(1)), tuple(n for s in scalings for n in s.lines)
    return factor, tuple(s for s in steps if s.kind != "scale"), lines


def flattened(chain: Chain, sizes: Mapping[str, int]) -> Chain:
    """A mean over ranks of what is equal on all of them is itself: then each micro-batch's gradient alone is averaged."""
    if not chain.rolling or any(s.kind not in ("scale", "all_reduce") or not sizes.keys() >= {*s.axes} for s in chain.inner):
        return chain
    mean = Fraction(1)
    for step in chain.inner:
        mean *= step.factor * (1 if step.op == "mean" else prod(sizes[axis] for axis in step.axes))
    return replace(chain, rolling=False) if mean == 1 else chain


def _linear(nodes: Nodes, node: Node, axes: Callable[[str], Axes]) -> tuple[tuple[ChainStep, ...], Node]:
    """The steps down to what is not linear any more, in the order in which they were done; scalings are taken together at the end."""
    steps: list[ChainStep] = []
    while node.kind == "scale" or node.kind in COLLECTIVES:
        if node.kind == "scale":
            steps.append(ChainStep("scale", factor=node.factor, lines=(node.line,) if node.line else ()))
        elif node.kind != "broadcast" and (node.op not in ("sum", "mean") or node.kind not in ("all_reduce", "reduce_scatter", "reduce")):
            raise UnreadableError(f"`{node.kind}` of gradients{f' with {node.op}' if node.op else ''}", node.line)
        else:
            spans, ranks = tuple(a for k in node.axes for a in axes(k)), tuple(r for k in node.axes for r in ranks_of(k))
            rooted = node.kind in ("reduce", "broadcast")
            op = "" if node.kind == "broadcast" else node.op
            root = node.root if rooted else ""
            steps.append(ChainStep(node.kind, spans, op, root=root, ranks=ranks, turn=node.turn, lines=(node.line,)))
        node = nodes[node.of[0]]
    return gathered(tuple(reversed(steps))), node


def gathered(steps: tuple[ChainStep, ...]) -> tuple[ChainStep, ...]:
    """The same with one scaling at the end; and one before each broadcast, as what other ranks than its root do before it is dropped."""
    done: list[ChainStep] = []
    scalings: list[ChainStep] = []

    def scaled() -> list[ChainStep]:
        factor = prod((s.factor for s in scalings), start=Fraction(1))
        lines = tuple(n for s in reversed(scalings) for n in s.lines)
        return [ChainStep("scale", factor=factor, lines=lines)] if scalings else []

    for step in steps:
        if step.kind == "scale":
            scalings.append(step)
            continue
        if step.kind == "broadcast":
            done += scaled()
            scalings.clear()
        done.append(step)
    return (*done, *scaled())


def _clip(nodes: Nodes, number: int, axes: Callable[[str], Axes]) -> Clip:
    gradient, factor = nodes[number].of
    numbers = list[tuple[Fraction, bool]]()
    while nodes[factor].kind == "clip":
        numbers.append((nodes[factor].factor, bool(nodes[factor].op)))
        factor = nodes[factor].of[0]
    over: dict[int, Axes] = {}
    sums: dict[int, tuple[int, ...]] = {}
    counts, shares = dict[int, int](), dict[int, int]()
    line = nodes[number].line
    for term, count, spans, within, share in _squares(nodes, factor, (), (), axes):
        counts[term] = counts.get(term, 0) + count
        for state in nodes.states(term):
            alike = over.setdefault(state, spans) == spans and sums.setdefault(state, within) == within
            if not alike or shares.setdefault(state, share) != share:
                raise UnreadableError("squares of parts of a gradient are summed over other ranks", line)
    if gradient not in counts and nodes.states(gradient) & set(over):
        text = "gradients are clipped by a norm of what they are not: of others, or of what was exchanged or scaled since"
        raise UnreadableError(text, line)
    if gradient in counts and counts[gradient] != nodes.clipped.get(number, 0):
        text = f"a norm of {counts[gradient]} elements clips {nodes.clipped.get(number, 0)}: it has to have each of them once"
        raise UnreadableError(text, line)
    known = tuple(n for n in numbers if n[0] != 1)
    cut = tuple(sorted((state, share) for state, share in shares.items() if share > 1))
    return Clip(tuple(sorted(over.items())), frozenset(counts), known, line, tuple(sorted(sums.items())), cut)


def _squares(
    nodes: Nodes, number: int, spans: Axes, sums: tuple[int, ...], axes: Callable[[str], Axes]
) -> list[tuple[int, int, Axes, tuple[int, ...], int]]:
    """The gradients of which a norm is, with how many elements of each it has, the axes over which their squares are summed, in which
    sums over ranks, and in how many parts they were cut before."""
    node = nodes[number]
    if node.kind == "norm" and not spans:
        return _squares(nodes, node.of[0], (), (), axes)
    if node.kind == "sum_squares" and node.count:
        return [(node.of[0], node.count, spans, sums, 1)]
    if node.kind == "sum_squares":
        return [square for n in node.of for square in _squares(nodes, n, spans, sums, axes)]
    if node.kind == "share":
        return [(*square[:4], square[4] * node.count) for square in _squares(nodes, node.of[0], spans, sums, axes)]
    if node.kind == "all_reduce" and node.op == "sum" and nodes.is_squared(number):
        return _squares(nodes, node.of[0], (*spans, *(a for k in node.axes for a in axes(k))), (*sums, node.turn), axes)
    raise UnreadableError(
        f"a norm that is not a root of a sum of squares (`{node.kind}`{' with ' + node.op if node.op else ''})", node.line
    )


#: What is to be done about a step that cannot be said.
BY_HAND = "what was seen is not dropped: write this step as a program by hand"


class LossError(InputError):
    """Of which loss of samples a step is, is not read off what its ranks do."""


def refuse_loss(script: str, source: tuple[str, ...], texts: list[tuple[str, int]], *, help: str = BY_HAND) -> None:
    """Raise LossError for what is wrong with losses, with the lines of the script."""
    try:
        refuse_lines(script, source, texts, help=help)
    except InputError as error:
        raise LossError(error.diagnostics) from None


def noted(error: LossError, note: str) -> LossError:
    """The same with a note to each of its problems."""
    return LossError([replace(d, notes=(*d.notes, note)) for d in error.diagnostics])


def refuse_lines(script: str, source: tuple[str, ...], texts: list[tuple[str, int]], *, help: str = BY_HAND) -> None:
    """Raise InputError for what a step program cannot say, with the lines of the script."""
    from placeproof.core.diagnostics import Place

    problems = Problems()
    for text, line in texts:
        place = (
            Place(source=script, line=line, column=1, text=source[line - 1], length=len(source[line - 1]))
            if 0 < line <= len(source)
            else None
        )
        problems.add("PP603", text, place=place, help=help)
    problems.raise_if_any()
