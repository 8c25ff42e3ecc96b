"""Uneven shards: along an axis, the device with index i holds the fraction f_i of whatever lies in parts there.

Formulas then speak of two devices: ``f_<axis>`` is the part of the device itself, ``fnext_<axis>`` that of the next one along the axis,
to which a ring sends. What is copied, gathered or a partial sum stays whole, and so does an all-reduce, which works on such tensors alone.
Samples are not split unevenly: a micro-batch is as large on every device.

A ring all-gather passes on every part once, except the one that the next device had from the start: s (1 - f_next). A ring
reduce-scatter passes on the partial sum of every part once, except of its own: s (1 - f); so does a direct exchange, in which a device
sends the part of each other one to it. Both follow from the rounds of :mod:`placeproof.collectives.patterns`, parts being of any size. A
broadcast costs s by convention: each device passes on all of it, whoever owns which part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby, product
from typing import TYPE_CHECKING

from placeproof.collectives import COLLECTIVES, Collective
from placeproof.core.diagnostics import Place, Problems
from placeproof.core.mesh import Axis
from placeproof.core.strategy import Strategy
from placeproof.core.symbols import PURE, SYMBOLS, Domain, SymbolInfo, info, symbol
from placeproof.programs import If, Program, statements
from placeproof.semantics.values import Event, Kind, Trace

if TYPE_CHECKING:
    import sympy

#: Kinds of values of which a device may hold an uneven part.
STATES = frozenset({Kind.PARAMETERS, Kind.OPTIMIZER, Kind.GRADIENTS, Kind.MOMENTUM})

_MOST_DEVICES = 65536
_NUMBER = r"-?(?:\d{1,18}(?:\.\d{0,18})?|\.\d{1,18})(?:/\d{1,18})?"
_ENTRY = re.compile(rf"({_NUMBER})(?:x(\d{{1,6}}))?")
#: What the symbol of a fraction begins with: the device's own (the second where the first is another symbol's name), the next one's.
_HEADS = ("f", "fown", "fnext")


# Symbols.


def fraction(axis: str) -> sympy.Symbol:
    """The part of a device along an axis: ``f_dp``."""
    import sympy

    return sympy.Symbol(f"{'fown' if f'f_{axis}' in SYMBOLS else 'f'}_{axis}")


def following(axis: str) -> sympy.Symbol:
    """The part of the next device along an axis, in a ring: ``fnext_dp``."""
    import sympy

    return sympy.Symbol(f"fnext_{axis}")


def is_fraction(name: str) -> bool:
    """Whether a symbol is a device's part along an axis."""
    return name not in SYMBOLS and name.partition("_")[0] in _HEADS


def described(name: str) -> SymbolInfo:
    """The definition of a symbol, fractions included; raises KeyError as :func:`placeproof.core.symbols.info` does."""
    if not is_fraction(name):
        return info(name)
    head, _, axis = name.partition("_")
    label = axis.replace("_", "\\_")
    if head == "fnext":
        latex, meaning = f"f^{{\\mathrm{{next}}}}_{{\\mathrm{{{label}}}}}", f"that of the next device along axis {axis}, to which it sends"
    else:
        latex, meaning = f"f_{{\\mathrm{{{label}}}}}", f"the device's part of what lies in parts along axis {axis}, from 0 to 1"
    return SymbolInfo(name=name, latex=latex, domain=Domain.NONNEGATIVE, dimension=PURE, meaning=meaning)


def named(name: str) -> sympy.Symbol:
    """The SymPy symbol of a name, fractions included; raises KeyError as :func:`placeproof.core.symbols.symbol` does."""
    import sympy

    return sympy.Symbol(name) if is_fraction(name) else symbol(name)


def unbounded(expr: sympy.Expr) -> sympy.Expr:
    """An expression with f/(1 + f) for each fraction f: what holds of it for all f >= 0 held for all fractions below 1, and by
    continuity for 1."""
    return expr.xreplace({f: f / (1 + f) for f in expr.free_symbols if is_fraction(str(f))})


# Traffic.


def _gathered(axis: str) -> sympy.Expr:
    return 1 - following(axis)


def _scattered(axis: str) -> sympy.Expr:
    return 1 - fraction(axis)


#: Collectives between parts and whole tensors -> the share of the whole that a device sends.
_RINGS: Mapping[str, Callable[[str], sympy.Expr]] = {"all_gather": _gathered, "reduce_scatter": _scattered}
#: Collectives between whole tensors: parts do not matter to them. A broadcast or a reduce costs s by convention, whatever the parts.
_WHOLE = frozenset({"all_reduce", "broadcast", "reduce"})


def sent(row: Collective, axes: tuple[str, ...], n: sympy.Expr, size: sympy.Expr, uneven: Iterable[str]) -> sympy.Expr:
    """Bytes that one device sends for a model state of ``size`` bytes over n devices. ``uneven``: axes whose parts have fractions."""
    if row.name in _RINGS and axes[0] in uneven:
        return size * _RINGS[row.name](axes[0])
    return row.sent(n, size)


def rule(row: Collective, axes: tuple[str, ...], uneven: Iterable[str]) -> str:
    """The rule of :func:`sent` in words."""
    if row.name in _RINGS and axes[0] in uneven:
        return f"{row.rule.partition(':')[0]} of uneven parts: s*({_RINGS[row.name](axes[0])})"
    return row.rule


# What the command line says.


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """Devices that hold as much and send as much: the first and the last index along each axis, and the values of fractions there."""

    at: Mapping[str, tuple[int, int]]
    values: Mapping[str, Fraction]

    def count(self) -> int:
        """How many indices these are, over the axes with fractions."""
        number = 1
        for first, last in self.at.values():
            number *= last - first + 1
        return number


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """The fractions of the devices along some axes: non-negative, and 1 in all along each."""

    parts: Mapping[str, tuple[Fraction, ...]]

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes."""
        return tuple(self.parts)

    def devices(self) -> Iterator[Devices]:
        """The devices in order; neighbours that have equal fractions, and so have those after them, are one entry."""
        for chosen in product(*(list(_runs(parts)) for parts in self.parts.values())):
            at: dict[str, tuple[int, int]] = {}
            values: dict[str, Fraction] = {}
            for axis, (first, last, own, after) in zip(self.parts, chosen, strict=True):
                at[axis] = (first, last)
                values |= {str(fraction(axis)): own, str(following(axis)): after}
            yield Devices(at=at, values=values)


def _runs(parts: tuple[Fraction, ...]) -> Iterator[tuple[int, int, Fraction, Fraction]]:
    """First and last index, part, and the next device's part."""
    pairs = [(part, parts[(i + 1) % len(parts)]) for i, part in enumerate(parts)]
    for (own, after), run in groupby(range(len(pairs)), key=pairs.__getitem__):
        indices = list(run)
        yield indices[0], indices[-1], own, after


def read_shards(settings: Iterable[str]) -> Shards:
    """Read ``AXIS=PARTS``: fractions such as 0.4,0.3,0.3 that add up to 1 exactly, or proportions such as 4:3:3; 0.3x2 is 0.3 twice.

    Raises InputError with every problem.
    """
    problems = Problems()
    parts: dict[str, tuple[Fraction, ...]] = {}
    for setting in settings:
        axis, equals, text = (part.strip() for part in setting.partition("="))
        place = Place(source="--shards", line=1, column=1, length=max(1, len(setting)), text=setting)
        if not (axis and equals and text):
            problems.add("PP202", f"`{setting}` is not AXIS=PARTS", place=place, help="for example `--shards dp=0.4,0.3,0.2,0.1`")
            continue
        if axis in parts:
            problems.add("PP205", f"the parts along `{axis}` are given twice", place=place, help="say it once")
        parts[axis] = _fractions(axis, text, place, problems)
    problems.raise_if_any()
    return Shards(parts=parts)


def _fractions(axis: str, text: str, place: Place, problems: Problems) -> tuple[Fraction, ...]:
    numbers = _numbers(text, place, problems)
    if not numbers:
        return ()
    total = sum(numbers, Fraction(0))
    if min(numbers) < 0:
        problems.add("PP202", f"a part along `{axis}` is negative", place=place, help="0 is a device that holds nothing")
    elif ":" in text and total > 0:
        return tuple(part / total for part in numbers)
    elif ":" in text:
        problems.add("PP202", f"all parts along `{axis}` are 0", place=place, help="some device holds something")
    elif total != 1:
        help = f"fractions such as 1/3 add up to 1 exactly; proportions need not: `{axis}=4:3:2:1`"
        problems.add("PP202", f"the parts along `{axis}` add up to {total}, not to 1", place=place, help=help)
    return tuple(numbers)


def _numbers(text: str, place: Place, problems: Problems) -> list[Fraction]:
    numbers: list[Fraction] = []
    for entry in text.split(":" if ":" in text else ","):
        match = _ENTRY.fullmatch(entry.strip())
        count = int(match[2] or 1) if match else 0
        if match is None or count == 0 or re.search(r"/0*$", match[1]):
            help = "write 0.4, 2/5, or 0.1x3 for three devices with 0.1 each; `:` between proportions"
            problems.add("PP202", f"`{entry.strip()}` is no part of a device", place=place, help=help)
            return []
        top, _, below = match[1].partition("/")
        if len(numbers) + count > _MOST_DEVICES:
            problems.add("PP202", f"parts of more than {_MOST_DEVICES} devices", place=place, help="list fewer devices")
            return []
        numbers += [Fraction(top) / int(below or 1)] * count
    return numbers


# Whether a subject can be split so.


def fitted(subject: Strategy | Program, shards: Shards, problems: Problems) -> tuple[Strategy | Program, tuple[str, ...]]:
    """The subject with the degrees that were open, and the axes whose parts can be uneven; a problem for each other axis."""
    axes = {a.name: a for a in subject.axes}
    fit = [name for name, parts in shards.parts.items() if _fits(axes, name, len(parts), problems)]
    known = tuple(replace(a, degree=len(shards.parts[a.name])) if a.name in fit else a for a in subject.axes)
    return (replace(subject, axes=known), tuple(fit))


def _fits(axes: Mapping[str, Axis], name: str, number: int, problems: Problems) -> bool:
    axis = axes.get(name)
    before = len(problems.found)
    if axis is None:
        listed = ", ".join(f"`{a}`" for a in axes) or "none"
        problems.add("PP201", f"`--shards` speaks of axis `{name}`, and there is none", help=f"axes here: {listed}")
        return False
    if axis.splits.compute:
        help = {"layers": "`--stages` says how many layers each stage of a model has", "experts": "experts are whole"}
        problems.add(
            "PP104",
            f"axis `{name}` splits the computation ({axis.splits}), whose slices are equal here",
            help=help.get(axis.splits.name, "uneven parts are those of states on an axis that splits samples"),
        )
    elif axis.inner is not None:
        message = f"axis `{name}` has sub-groups of {axis.inner}, over which a second set of parts lies"
        problems.add("PP104", message, help="uneven parts go with one set of parts alone: leave the sub-groups out")
    if axis.degree is not None and axis.degree != number:
        message = f"axis `{name}` has degree {axis.degree}, and `--shards` lists {number} devices"
        problems.add("PP205", message, help=f"list {axis.degree}; 0.1x3 stands for three devices")
    return len(problems.found) == before


def require_uneven(trace: Trace, uneven: tuple[str, ...]) -> None:
    """Raise InputError where the program does along one of these axes what is not known to work with uneven parts."""
    problems = Problems()
    for axis in uneven:
        _require_all_groups(trace.program, axis, problems)
    for stmt in statements(trace.program.body):
        if isinstance(stmt, If) and stmt.axis in uneven:
            message = f"devices of axis `{stmt.axis}` do different things, which makes two reasons for different costs"
            problems.add("PP104", message, place=stmt.place, help="uneven parts are for programs without a branch on their axis")
    for event in trace.events:
        _require_ring(event, uneven, problems)
    problems.raise_if_any()


def _require_all_groups(program: Program, axis: str, problems: Problems) -> None:
    """Where only some parameters lie in parts, these are experts, each of which is whole."""
    modes = [(p.state, p.group, dict(p.modes)[axis]) for p in program.placed if axis in dict(p.modes) and p.state != "activations"]
    for state in dict.fromkeys(state for state, _, _ in modes):
        split = {group: mode.split for s, group, mode in modes if s == state}
        if len(set(split.values())) > 1:
            listed = ", ".join(f"`{group}`" for group, axis_split in split.items() if axis_split)
            message = f"along axis `{axis}` only {listed} parameters lie in parts: whole experts, not fractions of them"
            problems.add("PP104", message, help="give fractions of another axis")


def _require_ring(event: Event, uneven: tuple[str, ...], problems: Problems) -> None:
    """What a collective sends of uneven parts is known of a ring over one axis."""
    call = event.call
    touched = [axis for axis in uneven if axis in call.axes]
    if not touched or call.op not in COLLECTIVES or call.op in _WHOLE or event.operands[0].kind not in STATES:
        return
    if len(call.axes) > 1:
        over = " and ".join(f"`{a}`" for a in call.axes)
        message = f"parts go round one ring over {over}, whose order of devices would decide who sends how much"
        problems.add("PP104", message, help="uneven parts are those of one axis that a collective is over alone")
    elif call.op not in _RINGS:
        message = f"what `{call.op}` over `{touched[0]}` sends of uneven parts is not derived"
        problems.add("PP104", message, place=event.stmt.place, help="known: all_gather and reduce_scatter")


def require_parts(forms: Iterable[sympy.Expr], uneven: Iterable[str], name: str) -> None:
    """Raise InputError for an axis along which nothing lies in parts, by the closed forms."""
    used = {s for expr in forms for s in expr.free_symbols}
    problems = Problems()
    for axis in uneven:
        if not used & {fraction(axis), following(axis)}:
            message = f"nothing of the model states lies in parts along axis `{axis}` under `{name}`: each of its devices holds as much"
            problems.add("PP104", message, help="zero1, zero2, zero3 and fsdp place some in parts")
    problems.raise_if_any()


NOTES = (
    "uneven parts: a device holds its fraction of what lies in parts along the axis; what is copied, gathered or summed is whole",
    "micro-batches are equal: samples are not split unevenly, so activations are those of equal parts",
    "a ring all-gather sends all but the next device's part, a reduce-scatter all but the device's own",
)

__all__ = [
    "NOTES",
    "STATES",
    "Devices",
    "Shards",
    "described",
    "fitted",
    "following",
    "fraction",
    "is_fraction",
    "named",
    "read_shards",
    "require_parts",
    "require_uneven",
    "rule",
    "sent",
    "unbounded",
]
