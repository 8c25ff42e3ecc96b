"""A model: a family with some or all of its sizes. What it has is counted from the headers of its blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import prod
from pathlib import Path
from typing import Protocol, TypeVar

from placeproof.core.diagnostics import Problems, refuse, suggestion
from placeproof.core.symbols import SYMBOLS, Domain, symbol
from placeproof.models.expressions import Amount, Expression
from placeproof.models.family import GROUPS, Choice, Family
from placeproof.models.programs import branch_of, rows_reached, weights, without
from placeproof.programs import Program
from placeproof.programs.ir import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block.

    ``weights``: the tensors of its header that belong to the model. ``groups``: the group of each. ``reached``: those of which a token
    meets only some rows, see :func:`placeproof.models.programs.rows_reached`. ``buffers``: see :class:`placeproof.models.family.Family`.
    ``frozen``: those that are not trained.
    """

    name: str
    program: Program
    weights: tuple[Tensor, ...]
    groups: Mapping[str, str]
    reached: Mapping[str, tuple[str, tuple[str, ...]]]
    buffers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    frozen: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Blocks in the order of forward, ``times`` times over: an expression of symbols. ``in_turn``: each time behind one time of the segment
    before it, which is there as often."""

    name: str
    times: Expression
    blocks: tuple[Block, ...]
    in_turn: bool = False


class InTurn(Protocol):
    """What may come in turn with what is before it."""

    @property
    def in_turn(self) -> bool:
        """Whether it does."""


T = TypeVar("T", bound=InTurn)


def turns(segments: Iterable[T]) -> tuple[tuple[T, ...], ...]:
    """Segments, those together that come in turn."""
    found: list[tuple[T, ...]] = []
    for segment in segments:
        if segment.in_turn and found:
            found[-1] = (*found[-1], segment)
        else:
            found.append((segment,))
    return tuple(found)


def holders(weight: str, segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """The segments that have a weight of this name."""
    return tuple(s for s in segments if any(w.name == weight for b in s.blocks for w in b.weights))


def shared_by_segments(weights: Iterable[str], segments: Sequence[Segment]) -> tuple[str, ...]:
    """Those of some names of weights that more than one segment has."""
    return tuple(name for name in weights if len(holders(name, segments)) > 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Numbers of elements. ``groups``: trained parameters by group, in the order of :data:`placeproof.models.family.GROUPS`.

    ``active``: those of them that one token meets; of a table that is looked up in, one row, and of experts, those that it is sent to.
    ``tied``: elements of tensors that an earlier segment has, too: they are not in ``groups`` again. ``buffers``: what is no parameter.
    """

    groups: Mapping[str, Amount]
    active: Amount
    tied: Amount = 0
    buffers: Amount = 0

    @property
    def total(self) -> Amount:
        """All trained parameters."""
        return sum(self.groups.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A stack of blocks with sizes.

    ``sizes``: the numbers that its symbols have, defaults that follow included; empty where all is open. ``given``: those of them that
    were said. ``dimensions``, ``defaults``, ``shared``: those of its family. ``options``: what was chosen. ``replaced``: sizes that
    :meth:`resized` made others, each with how, and what it was.
    """

    name: str
    title: str
    source: str
    family: str
    segments: tuple[Segment, ...]
    dimensions: Mapping[str, Expression]
    defaults: Mapping[str, Expression] = field(default_factory=dict)
    given: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    shared: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    replaced: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def resized(self, sizes: Mapping[str, Amount], how: str = "set") -> Model:
        """The model with some sizes set otherwise, or at all; what follows from them by default follows.

        Raises InputError for a symbol that it does not have, a value out of its domain, and sizes that contradict one another.
        """
        found = replace(self, given={**self.given, **sizes})
        found = replace(found, sizes=_numbers(found))
        changed = {name: (how, n) for name, n in self.sizes.items() if found.sizes.get(name) != n}
        return replace(found, replaced={**self.replaced, **changed})

    def symbols(self, values: Mapping[str, Amount] | None = None) -> Mapping[str, Amount]:
        """Every symbol of its sizes: what ``values`` or the model says, a default, or the SymPy symbol itself, worked out when asked for.

        ``values``: whole numbers or SymPy expressions. Raises InputError for a symbol that it does not have, and for a value out of the
        symbol's domain.
        """
        problems = Problems()
        known = (*self.defaults, *(n for e in self._expressions() for n in e.names))
        for name, value in (values or {}).items():
            _check_value(self.name, name, value, known, problems)
        problems.raise_if_any()
        return _Symbols(model=self.name, given={**self.given, **(values or {})}, defaults=self.defaults, names=tuple(dict.fromkeys(known)))

    def dims(self, values: Mapping[str, Amount] | None = None) -> dict[str, Amount]:
        """The sizes of all dimensions of its blocks, in elements. Raises InputError as :meth:`symbols` does, and for no whole number."""
        symbols = self.symbols(values)
        return {dim: _worked_out(self.name, expr, symbols) for dim, expr in self.dimensions.items()}

    def times(self, values: Mapping[str, Amount] | None = None) -> dict[str, Amount]:
        """How often each segment is repeated, by its name. Raises InputError as :meth:`dims` does, and for a negative number."""
        symbols = self.symbols(values)
        found = {s.name: _worked_out(self.name, s.times, symbols) for s in self.segments}
        for segment in self.segments:
            if isinstance(number := found[segment.name], int) and number < 0:
                message = f"{self.name}: there would be {number} times `{segment.name}`, `{segment.times}`"
                refuse("PP205", message, "change one of the sizes")
        return found

    def parameters(self, values: Mapping[str, Amount] | None = None) -> Count:
        """What the whole model has: exact whole numbers where every size is one, SymPy expressions otherwise.

        Sizes that no weight has (batch, tokens) need no value. Raises InputError as :meth:`times` does.
        """
        counts = self.per_segment(values).values()
        return Count(
            groups={g: sum(c.groups[g] for c in counts if g in c.groups) for g in GROUPS if any(g in c.groups for c in counts)},
            active=sum(c.active for c in counts),
            buffers=sum(c.buffers for c in counts),
        )

    def per_segment(self, values: Mapping[str, Amount] | None = None, *, once: bool = False) -> dict[str, Count]:
        """The same for each segment by its name, with all its repetitions, or ``once`` for one of them.

        A tensor that several segments share is counted in the first, and is ``tied`` in the others. Raises InputError as :meth:`times`.
        """
        symbols, times = self.symbols(values), self.times(values)
        sizes = _Sizes(model=self.name, dimensions=self.dimensions, symbols=symbols)
        seen: set[str] = set()
        found = {}
        for segment in self.segments:
            number = times[segment.name]
            found[segment.name] = self._count(segment, sizes, 1 if once and number != 0 else number, seen)
            seen |= {w.name for b in segment.blocks for w in b.weights if w.name in self.shared} if number != 0 else set()
        return found

    def _count(self, segment: Segment, sizes: _Sizes, times: Amount, seen: set[str]) -> Count:
        """``seen``: shared weights of earlier segments. They count once, however often a segment is repeated."""
        groups: dict[str, Amount] = {}
        active: Amount = 0
        tied: Amount = 0
        whole, here = self._read_whole(), set[str]()
        for block in segment.blocks if times != 0 else ():
            for weight in block.weights:
                shared, elements = weight.name in self.shared, sizes.elements(weight.dims)
                if shared and weight.name in here:
                    continue
                here |= {weight.name} if shared else set()
                if shared and weight.name in seen:
                    tied += elements
                    continue
                group, copies = block.groups[weight.name], 1 if shared else times
                rows = None if weight.name in whole else block.reached.get(weight.name)
                groups[group] = groups.get(group, 0) + copies * elements
                active += copies * (elements if rows is None else sizes.rows(weight.dims, *rows))
        buffers = times * sum(sizes.elements(dims) for block in segment.blocks for dims in block.buffers.values())
        return Count(groups={g: groups[g] for g in GROUPS if g in groups}, active=active, tied=tied, buffers=buffers)

    def _read_whole(self) -> set[str]:
        """Shared weights of which some block reads all: the table of embeddings that is the head's matrix, too."""
        every = [b for s in self.segments for b in s.blocks]
        return {w.name for b in every for w in b.weights if w.name in self.shared and w.name not in b.reached}

    def _expressions(self) -> Iterator[Expression]:
        yield from self.dimensions.values()
        yield from self.defaults.values()
        yield from (s.times for s in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Symbols(Mapping[str, Amount]):
    """Symbols with what they are, worked out when they are asked for."""

    model: str
    given: Mapping[str, Amount]
    defaults: Mapping[str, Expression]
    names: tuple[str, ...]
    known: dict[str, Amount] = field(default_factory=dict)
    #: Whether a symbol without a value is itself, rather than missing.
    open: bool = True

    def __getitem__(self, name: str) -> Amount:
        if name in self.given:
            return self.given[name]
        if name not in self.known:
            if name in self.defaults:
                self.known[name] = _worked_out(self.model, self.defaults[name], self)
            elif self.open and name in self.names:
                self.known[name] = symbol(name)
            else:
                raise KeyError(name)
        return self.known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Sizes of dimensions, each worked out when a tensor has it."""

    model: str
    dimensions: Mapping[str, Expression]
    symbols: Mapping[str, Amount]
    known: dict[str, Amount] = field(default_factory=dict)

    def size(self, dim: str) -> Amount:
        if dim not in self.known:
            self.known[dim] = _worked_out(self.model, self.dimensions[dim], self.symbols)
        return self.known[dim]

    def elements(self, dims: tuple[str, ...]) -> Amount:
        return prod(self.size(d) for d in dims)

    def rows(self, dims: tuple[str, ...], dim: str, counted: tuple[str, ...]) -> Amount:
        """Elements of a tensor along whose one dimension only some rows are reached."""
        return self.elements((*(d for d in dims if d != dim), *counted))


def _worked_out(model: str, expr: Expression, symbols: Mapping[str, Amount]) -> Amount:
    try:
        return expr.at(symbols)
    except ValueError as error:
        said = ", ".join(f"{n} = {symbols[n]}" for n in expr.names)
        refuse("PP205", f"{model}: {error}, with {said}", "change one of these sizes")


def _check_value(model: str, name: str, value: Amount, known: tuple[str, ...], problems: Problems) -> None:
    """A symbol that the model has, and a value that it may have: a whole number in its domain, or a SymPy expression."""
    if name not in known:
        help = suggestion(name, known) or "its symbols: " + ", ".join(sorted(set(known)))
        problems.add("PP201", f"`{name}` is no symbol of {model}", help=help)
        return
    row = SYMBOLS.get(name)
    least = 0 if row is not None and row.domain is Domain.NONNEGATIVE else 1
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not (whole or hasattr(value, "free_symbols")):
        problems.add("PP202", f"`{name}` is a whole number or a SymPy expression, not {value!r}", help="sizes are exact")
    elif whole and value < least:
        meaning = f" ({row.meaning})" if row is not None else ""
        problems.add("PP202", f"`{name}`{meaning} is at least {least}, not {value}", help="give a larger number")


def build(
    family: Family,
    *,
    name: str,
    title: str = "",
    source: str = "",
    note: str = "",
    sizes: Mapping[str, int] | None = None,
    options: Mapping[str, str] | None = None,
) -> Model:
    """A model of a family with these sizes and options; options that are not said are the usual ones.

    Raises InputError for an unknown symbol or option, for a value out of its domain, and for sizes that contradict one another.
    """
    given, chosen = dict(sizes or {}), {o.name: o.default for o in family.options.values()} | dict(options or {})
    model = Model(
        name=name,
        title=title or family.title,
        source=source or family.source,
        family=family.name,
        segments=tuple(_segments(family, _choices(family, chosen))),
        dimensions=family.dims,
        defaults=family.defaults,
        given=given,
        shared=family.shared,
        options=chosen,
        note=note or family.note,
    )
    return replace(model, sizes=_numbers(model))


def _choices(family: Family, chosen: Mapping[str, str]) -> list[Choice]:
    problems = Problems()
    for name, value in chosen.items():
        option = family.options.get(name)
        if option is None:
            help = suggestion(name, family.options) or "its options: " + (", ".join(family.options) or "none")
            problems.add("PP104", f"family `{family.name}` has no option `{name}`", help=help)
        elif value not in option.choices:
            problems.add("PP104", f"`{value}` is no value of the option `{name}`", help="its values: " + ", ".join(option.choices))
    problems.raise_if_any()
    return [family.options[name].choices[value] for name, value in chosen.items()]


def _segments(family: Family, choices: list[Choice]) -> Iterator[Segment]:
    masks = tuple(name for c in choices for name in c.ones)
    made: dict[str, Block] = {}
    for part in family.stack:
        chosen = list(part.blocks)
        for choice in choices:
            chosen = [new for name in chosen for new in choice.blocks.get(name, (name,))]
        made |= {name: _block(family, name, masks) for name in chosen if name not in made}
        for called, alike in groupby(sorted(made, key=lambda n: made[n].name), key=lambda n: made[n].name):
            if len(both := list(alike)) > 1:
                refuse(
                    "PP504", f"{family.name}: two blocks are called `{called}`: {' and '.join(both)}", "give one of the files another name"
                )
        yield Segment(name=part.name, times=part.times, blocks=tuple(made[name] for name in chosen), in_turn=part.in_turn)


def _block(family: Family, name: str, masks: tuple[str, ...]) -> Block:
    try:
        program = without(family.programs[name], masks)
    except ValueError as error:
        refuse("PP504", str(error), "only masks that are factors can be left out")
    held = weights(program)
    groups = {w.name: family.group(w.name, w.dims) for w in held}
    buffers = family.buffers.get(name, {})
    file, of = branch_of(name)
    called = re.sub(r"\W", "_", Path(file).stem if file.endswith(".step") else file) + "_branch" * (of is not None)  # as programs name it
    program = replace(program, name=called)
    return Block(name=called, program=program, weights=held, groups=groups, reached=rows_reached(program), buffers=buffers)


def _numbers(model: Model) -> dict[str, int]:
    """Every symbol that has a number, once the given ones are checked against one another."""
    names = tuple(model.symbols(model.given))
    symbols = _Symbols(model=model.name, given=model.given, defaults=model.defaults, names=names, open=False)
    found: dict[str, int] = {}
    for name in names:
        try:
            found[name] = symbols[name]
        except KeyError:
            continue
    for name, number in found.items():
        bound = SYMBOLS[name].at_most if name in SYMBOLS else None
        if bound is not None and number > found.get(bound, number):
            refuse("PP205", f"{model.name}: `{name}` = {number} exceeds `{bound}` = {found[bound]}, of which it is a part", "change one")
    for expr in (*model.dimensions.values(), *(s.times for s in model.segments)):
        if all(n in found for n in expr.names):
            _worked_out(model.name, expr, found)
    return found
