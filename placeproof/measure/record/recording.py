"""What one rank's step was seen to do: data, without torch, which can be sent between processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from placeproof.measure.record.nodes import Nodes

#: Where something is computed: the line of the script, the operation, and the phase.
Where: TypeAlias = tuple[int, str, str]
#: What is wrong with a loss of which replacing samples shows nothing.
UNSEEN = "whether this loss is a sum over samples cannot be seen"
#: What stands before the name of a parameter of a copied module among buffers.
COPIED = "of a copy: "
UNCHANGED = f"{UNSEEN}: it does not change with the samples that the script makes or reads"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One thing that happened. ``kind``: a collective, "pass" (a gradient was made) or "use" (forward read a parameter).

    ``phase``: "setup", "forward", "backward", "update" or "after". ``states``: the parameters that it is about, by number; none where it
    is about anything else. ``gradient``: one of theirs is sent. ``numel``: elements that a rank gives. ``root``: a rank of the world.
    ``group``: ranks of the process group. ``places``: of what is reduced, how many elements in a row are made of the gradients of which
    parameters.
    """

    kind: str
    phase: str
    states: frozenset[int] = frozenset()
    group: tuple[int, ...] = ()
    op: str = ""
    numel: int = 0
    dtype: str = ""
    root: int = -1
    line: int = 0
    turn: int = 0
    updated: bool = False
    gradient: bool = False
    places: tuple[tuple[frozenset[int], int], ...] = ()

    def signature(self) -> tuple[object, ...]:
        """What all ranks of a group have to agree on, but for the parameters that it is about."""
        numel = 0 if self.kind == "all_to_all" else self.numel  # ranks have other numbers of tokens for each other
        return self.kind, len(self.group), self.op, numel, self.dtype, self.root


@dataclass(frozen=True, slots=True)
class Piece:
    """What a rank gives of a parameter, by number, where ranks put together what each has updated: the bytes of its elements, and which
    ranks put theirs together in which gather."""

    index: int
    group: tuple[int, ...]
    gather: int
    values: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One backward pass. ``factor``: of its loss, relative to what is reduced; ``summed``: that is a sum and not a mean; ``count``: of how
    many elements, in ``rows`` samples. ``text``: why the loss could not be read, empty where it could. ``line``: of the script.
    ``beside``: further means or sums that are added to it, as factors relative to its own, elements and samples. ``value``: of the loss,
    with the ``rounding`` that it may have. ``scaled``: it is multiplied or divided by numbers; ``numbers``: by which, from the outside in,
    of which the ``common`` ones are around all that is added up, and those ``apart`` around some. ``fixed``: it is made of parameters
    alone; ``several``: more than one of what is added up is not.
    """

    factor: Fraction
    summed: bool
    count: int
    rows: int
    line: int
    text: str = ""
    beside: tuple[tuple[Fraction, int, int], ...] = ()
    value: float = 0.0
    rounding: float = 0.0
    scaled: bool = False
    numbers: tuple[Fraction, ...] = ()
    common: tuple[Fraction, ...] = ()
    apart: tuple[Fraction, ...] = ()
    fixed: bool = False
    several: bool = False

    @property
    def counts(self) -> tuple[tuple[int, int], ...]:
        """Elements and samples of the means and sums that the loss is made of."""
        return (self.count, self.rows), *((count, rows) for _, count, rows in self.beside)

    @property
    def scale(self) -> tuple[object, ...]:
        """What has to be the same of all losses of a step."""
        return self.factor, self.summed, tuple(factor for factor, _, _ in self.beside)


@dataclass(slots=True, kw_only=True)
class State:
    """One parameter, of ``numel`` elements in ``dim`` dimensions, of which forward read ``part``.

    ``digest``: of its values before the step; ``used``: of what forward read of it; ``left``: of its values after the step, where real
    processes ran, and ``flat``, without its shape. ``split``: the groups over which a distributed tensor is split where forward reads it,
    None for any other tensor. ``gathered``: forward read what was gathered. ``synced``: it was sent to all before the step, over these
    groups. ``overwritten``: an optimizer updated it, and after the step something else is there, which is not what was sent. ``astray``:
    what was gathered of it is updated, and not what it is gathered from. ``kept``: digests of what an optimizer has of it before the first
    step. ``piece``: its name is that of a piece of it, of which each rank may have another one. ``constant``: all elements that forward
    read are equal; ``run``: a module that has it was run. ``rates``: by what gradients are multiplied in updates by hand. ``unlike``: an
    optimizer has a copy of it, of other values. ``late``: it was made after an update, and begins with what nobody may have exchanged.
    """

    name: str
    numel: int
    dim: int = 1
    digest: str = ""
    used: str = ""
    part: int = 0
    split: tuple[str, ...] | None = None
    gathered: bool = False
    left: str = ""
    flat: str = ""
    overwritten: bool = False
    astray: bool = False
    kept: str = ""
    piece: bool = False
    constant: bool = False
    run: bool = False
    late: bool = False
    unlike: bool = False
    rates: frozenset[Fraction] = frozenset()
    synced: list[tuple[int, ...]] = field(default_factory=list)


#: Where tensors are made: a line of the script, an operation, and what is like them: an element type and a shape.
Maker = tuple[int, str, str, tuple[int, ...]]
#: Of the rows of what was made: the first one, how far apart they are, how many (0 for parts of rows), and how many there are.
Rows = tuple[int, int, int, int]
#: Where a tensor was made, which one it was of several, and which of its rows are read.
Source = tuple[Maker, int, Rows]
#: What some tensors are to hold instead: by where they are made, the bytes of some rows.
Instead = Mapping[tuple[Maker, int], Sequence[tuple[Rows, bytes]]]


def indices(rows: Rows) -> range:
    """The rows of what was made, by their numbers."""
    first, step, count, _ = rows
    return range(first, first + step * count, step or 1)


@dataclass(slots=True, kw_only=True)
class Call:
    """A module is run that no other one runs. ``given``: digests of what it is given that gets no gradient; ``rows``: of samples;
    ``by_row``: digests of each sample's part of that, and of what is read beside its results, of which ``results`` are digests.
    ``sources``: where all of that was made."""

    number: int
    given: tuple[str, ...]
    rows: int
    by_row: list[tuple[str, ...]]
    line: int
    results: tuple[str, ...] = ()
    sources: set[Source] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class Stretch:
    """One backward pass, as it may go on in those of other ranks. ``calls``: whose results it differentiates, by number; ``begins``:
    digests of the tensors and of the gradients with which it begins, none for a loss; ``losses``: it begins with such, too; ``ends``: of
    the tensors, no parameters, at which it ends, and of the gradients that it makes there; ``gradients``: some elements of each of these,
    in equal distances, by digest. ``overwritten``: something else is there than what was read; ``there``: what is, by what was."""

    calls: frozenset[int]
    begins: tuple[tuple[str, str], ...] = ()
    ends: list[tuple[str, str]] = field(default_factory=list)
    gradients: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    overwritten: bool = False
    losses: bool = False
    there: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """What a rank has of a parameter: a digest of all, and ``values`` of some elements, at these ``places`` of the flattened tensor.
    ``gradient``: that which this rank has made of these elements by itself; None at the end of a script. ``rounding``: of its type."""

    digest: str
    shape: tuple[int, ...]
    rounding: float
    places: NDArray[np.int64]
    values: NDArray[np.float64]
    gradient: NDArray[np.float64] | None

    def element(self, place: int) -> list[int]:
        """Where an element lies of which there is a value."""
        return [int(n) for n in np.unravel_index(int(self.places[place]), self.shape)]


@dataclass(slots=True, kw_only=True)
class Aside:
    """What optimizers did that step after a backward pass. ``lines`` of the script at which they do; ``read``: one of them read a gradient;
    ``own``: any one has a parameter of the model, or one that steps has not as many of each shape as the model. ``before``, ``after``:
    digests of the model's parameters when it is first run, and at last, "" for what is not there; ``gradient``: the largest that one of
    them has, with its name."""

    lines: list[int] = field(default_factory=list)
    read: bool = False
    own: bool = False
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    gradient: tuple[float, str] = (0.0, "")


@dataclass(slots=True, kw_only=True, eq=False)
class Added:
    """A tensor of a ``shape`` that ranks of a ``group`` add up in forward: what this rank has ``given``, what came of it, and the gradient
    that it has ``handed`` back, None where there was none; some elements of each, in equal distances. ``next``: the number of the event
    after that. ``declared``: a distributed tensor says that all ranks have the same. ``turn``: the backward pass; ``line``: of the script.
    """

    group: tuple[int, ...]
    line: int
    turn: int
    declared: bool
    shape: tuple[int, ...]
    rounding: float
    given: NDArray[np.float64]
    made: NDArray[np.float64]
    handed: NDArray[np.float64] | None = None
    next: int = 0


@dataclass(slots=True, kw_only=True)
class Kept:
    """What a rank has of whole parameters, by number, as its backward ``passes`` make gradients of them, and at the ``end`` of the script
    where it came to it. ``step``: how many passes the step has; ``lines`` of the script that update. ``early``: parameters that the script
    sends before a forward of the step, also in earlier steps; ``late``: after an update. ``made``: what the step's update has made of
    parameters; ``read``: those of which anything but an exchange reads that, and ``written``: those that anything but an update or an
    exchange writes. ``gives``: other ranks get something of this one after the set-up. ``stacks``: the lines of the script that each pass
    was begun by. ``heard``: passes of whose gradients something is computed but sums and products with numbers, or is left; ``looked``: a
    number was read of any tensor. ``fed``: parameters with the gradients that optimizers are given. ``aside``: what these did.
    ``numbers``: norms of gradients, and what is made of them, by term. ``added``: what layers add up over ranks, and
    ``added_back``: over which ranks backward adds up gradients of what forward does not exchange. ``contents``: the bytes of what may be
    samples, by where they were made."""

    passes: list[dict[int, Copy]] = field(default_factory=list)
    end: dict[int, Copy] = field(default_factory=dict)
    step: int = 0
    lines: dict[int, int] = field(default_factory=dict)
    early: set[int] = field(default_factory=set)
    late: set[int] = field(default_factory=set)
    made: dict[int, Copy] = field(default_factory=dict)
    read: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    gives: bool = False
    stacks: list[tuple[int, ...]] = field(default_factory=list)
    heard: set[int] = field(default_factory=set)
    looked: bool = False
    fed: dict[int, Copy] = field(default_factory=dict)
    aside: Aside = field(default_factory=Aside)
    numbers: dict[int, float] = field(default_factory=dict)
    added: list[Added] = field(default_factory=list)
    added_back: set[tuple[int, ...]] = field(default_factory=set)
    contents: dict[tuple[Maker, int], bytes] = field(default_factory=dict)
    later: set[str] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class Recording:
    """What one rank's step did.

    ``updates``: for each parameter, the terms of the gradients with which it was updated; ``final``: those of its values after the step.
    ``mesh``: axes with their sizes. ``statistics``: lines at which layers used statistics of the batch. ``inputs``: digests of what modules
    were given before each backward pass, by its number; nothing that gets a gradient; ``rows``: how many samples the first one of these
    has; ``by_row``: digests of each sample's part of tensors that have one of each, and of those that losses read besides. ``settings``: of
    optimizers that updated. ``real``: other ranks ran, too; ``pieces``: what this one gave then where updated parts were put together.
    ``exchanges``: ranks exchange something that is no parameter and no gradient before the last backward pass. ``gathered``: digests of
    rows of these that are gathered; ``scales``: those of a GradScaler; ``constants``: which of the numbers around a loss are taken for
    constants. ``calls`` of modules, ``stretches``: how each backward pass begins and ends; ``sent``: digests of what was sent, and to
    which rank of the world. ``line``: the ranks of which each computes a part of one pass, from the first stage to the last; ``made``:
    digests of what was made outside of modules. ``buffers``: digests of those of the model before the step, but for running statistics,
    and ``buffers_left`` of all after it. ``graphs``: how often a loss is made by which operations, for each backward pass; ``joined``: a
    digest of what each of these is given, and the parameters that they read; ``dimensions``: of those that they are given, and of places.
    ``numbers``: which numbers and words these operations, backward passes and updates by hand are given; ``beside``: the shapes and
    digests of tensors, but for parameters, gradients, samples, and what is made of these; ``ordered``: all of these, as they are given,
    after how many arguments an operation is given. ``step``: which step of the script this is, after so many backward ``passed`` in
    others; ``idle``: parameters of optimizers that did not update; ``generated``: the passes for which a module is given what another one
    has made. ``kept``: what it has of parameters, also after the step, where that was asked for. ``past``: parameters and gradients that
    something else than PyTorch wrote, with lines. ``whole``: a line at which an optimizer makes one number of several elements. ``own``:
    gradients were multiplied by a number of the script's own. ``relabelled``: what was received is read with other values before backward
    has ended there. ``by_others``: buffers, or copies of parameters, are what other ranks made of them. ``sums``: lines that added
    gradients to zeros that the next step does not have. ``goes_on``: another step begins. ``copied``: the step trains a copy of a
    parameter; ``copies``: it trains what there is a copy of; ``adapted``: steps that train copies for the sake of others, or are taken
    back, with the line at which that is seen. ``groups``: with which settings optimizers update parameters, by name; ``grouped``: how many
    unlike groups they have, none where there is one with what the optimizer has by itself; ``grouped_at``: the line that made the last
    one."""

    rank: int
    world: int
    script: str
    source: tuple[str, ...]
    nodes: Nodes
    states: list[State] = field(default_factory=list)
    events: list[Seen] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    updates: dict[int, tuple[int, ...]] = field(default_factory=dict)
    final: dict[int, tuple[int, ...]] = field(default_factory=dict)
    mesh: dict[str, int] = field(default_factory=dict)
    statistics: list[int] = field(default_factory=list)
    inputs: dict[int, tuple[str, ...]] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    by_row: dict[int, list[tuple[str, ...]]] = field(default_factory=dict)
    settings: set[str] = field(default_factory=set)
    real: bool = False
    pieces: list[Piece] = field(default_factory=list)
    exchanges: bool = False
    gathered: set[str] = field(default_factory=set)
    by_others: bool = False
    scales: set[Fraction] = field(default_factory=set)
    graphs: list[tuple[tuple[str, int], ...]] = field(default_factory=list)
    joined: list[tuple[str, tuple[frozenset[int], ...]]] = field(default_factory=list)
    dimensions: list[str] = field(default_factory=list)
    numbers: dict[Where, set[float | str]] = field(default_factory=dict)
    ordered: dict[Where, list[float | str | tuple[str, str]]] = field(default_factory=dict)
    beside: dict[Where, set[tuple[str, str]]] = field(default_factory=dict)
    kept: Kept | None = None
    past: list[tuple[str, int]] = field(default_factory=list)
    whole: int = 0
    sums: list[int] = field(default_factory=list)
    own: bool = False
    relabelled: bool = False
    goes_on: bool = False
    copied: bool = False
    copies: bool = False
    adapted: dict[int, int] = field(default_factory=dict)
    groups: dict[str, frozenset[str]] = field(default_factory=dict)
    grouped: int = 0
    grouped_at: int = 0
    step: int = 1
    passed: int = 0
    idle: frozenset[int] = frozenset()
    generated: set[int] = field(default_factory=set)
    constants: tuple[int, ...] = ()
    calls: list[Call] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    sent: set[tuple[str, int]] = field(default_factory=set)
    line: tuple[int, ...] = ()
    made: dict[Maker, list[str]] = field(default_factory=dict)
    buffers: dict[str, str] = field(default_factory=dict)
    buffers_left: dict[str, str] = field(default_factory=dict)

    @property
    def samples(self) -> tuple[tuple[str, ...], ...]:
        """What modules were given, by backward passes."""
        return tuple(self.inputs.get(turn, ()) for turn in range(len(self.turns)))

    def about(self, event: Seen) -> frozenset[str]:
        """The names of the parameters that all ranks have to reduce, or send, together, or of whose gradients; none of others."""
        together = event.kind in ("all_reduce", "broadcast", "reduce") or (event.kind == "all_gather" and event.gradient)
        return self._named(event.states) if together else frozenset()

    def places(self, event: Seen) -> tuple[tuple[frozenset[str], int], ...]:
        """How many elements in a row, of what ranks reduce, are made of which parameters, by name; nothing where forward reads what was
        gathered, which is taken to be laid out on each rank as its own part is, or a rank has no part."""
        gathered = any(self.states[i].gathered or not self.states[i].numel for i in event.states)
        return () if gathered else tuple((self._named(states), count) for states, count in event.places)

    def renumber(self, order: Sequence[int]) -> None:
        """Number parameters in another order: by their present numbers."""
        places = {before: now for now, before in enumerate(order)}

        def at(states: Iterable[int]) -> frozenset[int]:
            return frozenset(places[i] for i in states)

        self.states[:] = [self.states[i] for i in order]
        self.nodes.renumber(places)
        self.events[:] = [replace(e, states=at(e.states), places=tuple((at(s), n) for s, n in e.places)) for e in self.events]
        self.updates = {places[i]: terms for i, terms in self.updates.items()}
        self.final = {places[i]: terms for i, terms in self.final.items()}
        self.pieces[:] = [replace(p, index=places[p.index]) for p in self.pieces]
        self.joined[:] = [(graph, tuple(map(at, read))) for graph, read in self.joined]
        self.idle = at(self.idle)

    def _named(self, states: frozenset[int]) -> frozenset[str]:
        return frozenset(self.states[i].name for i in states)
