"""Whether ranks come to the loss of all samples together, where it is no mean of samples: compared in numbers with one process.

What one device does, the script itself says: it is run as one process, given the samples of all ranks wherever it draws, loads or picks its
own; what it computes of them it computes itself. Gradients that ranks make are on average a multiple of those of one process, by a power of
their number: all elements, with several numbers of ranks, also after samples were dealt anew and one was replaced. What is done with
gradients is followed and proved as ever, and where that is proved, parameters after the step are those of one process, too. Where ranks
exchange what a model makes, gradients have to be those of the loss: an exchange that hands none back does so in one process, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from placeproof.core.diagnostics import InputError
from placeproof.measure.record.factor import written
from placeproof.measure.record.recording import Recording, Turn

#: Where samples are: a line of the script, the operation, element type, number of dimensions, and which one of several alike.
Origin = tuple[int, str, str, int, int]
#: With what a digest begins that is of what ranks have exchanged.
SENT = "sent "
#: By where they are, the samples of a rank, one after another.
Samples = Mapping[Origin, NDArray[np.generic]]
#: Numbers of ranks that are compared with one process.
_WORLDS = (2, 3, 4)
#: What differs by less is the same but for rounding, in double precision: of its own largest element, and of the largest of all.
_SAME, _NOTHING = 1e-9, 1e-13
#: By how much parameters are moved to see how a loss changes, and how far that may be from what gradients say.
_SHIFT, _SLOPE = 1e-6, 1e-4
#: Powers of the number of ranks that a multiple may be.
_POWERS = (0, -1, 1, -2, 2)


#: What each group of an optimizer updates with, as plain values or in words.
Settings = list[dict[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How a script is run to see its numbers. ``before``: how many backward passes come before the step, which has so many ``passes``;
    ``shift``: by how much parameters are moved before its forward pass, in directions of chance; ``aside``: by how much at most each
    element is moved when it is first read, as its value says; ``mean``: dropout within modules keeps a part of all elements instead of all
    of a part; ``settings``: with which updates are made, one after another; ``eps``: what optimizers add to roots of squares instead of
    their own, beside which updates show how large gradients are; ``times``: by how much gradients are multiplied; ``noise``: the part
    by which each element of these is more, or less; ``python``: samples are given that Python makes, whatever it makes them of."""

    before: int = 0
    shift: float = 0.0
    passes: int = 1
    aside: float = 0.0
    mean: bool = False
    settings: Sequence[Settings] = ()
    eps: float | None = None
    times: float = 1.0
    noise: float = 0.0
    python: bool = False


@dataclass(slots=True, kw_only=True)
class Numbers:
    """What a rank comes to in a step. ``rows``: of what a module is first given; ``samples`` that it reads; ``gradients``: what it makes by
    itself, by parameter, parameters that are ``left``, and by how much they ``moved``; ``directions`` in which they may be moved.
    ``exchanged``: something that is made of parameters, before backward; ``plain``: all parameters are whole, in double precision;
    ``mean``: the loss is a mean, of the value ``loss``, ``factors`` are numbers around it; ``passes``: backward passes up to the end of the
    run. ``begun``: this rank's elements of parameters, as they were first read, ``double``: in double precision; ``settings`` of each
    update, by group, and gradients ``read`` by the last one, or left of those by hand; ``drawn``: a module draws numbers of chance;
    ``used``: where samples are that losses, ranks or Python know of, ``within`` which others some are, of which others some are ``made``,
    and what is ``beside`` samples where something is computed of them, numbers and tensors of no samples, with ``results``. ``python``:
    digests of what Python made, of whatever, and something is computed of, with its values in ``arrays``; ``given``: samples, and what is
    made of them alone, as modules are given them; ``chosen``: some may be chosen by what is computed of them; ``changed``: parts of some
    were written where that may be so; ``averages``: what is moved towards parameters, by their names."""

    rows: int = 0
    samples: dict[Origin, NDArray[np.generic]] = field(default_factory=dict)
    gradients: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    left: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    moved: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    directions: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    exchanged: bool = False
    plain: bool = True
    mean: bool = False
    loss: float = 0.0
    factors: tuple[Fraction, ...] = ()
    passes: int = 0
    begun: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    settings: list[Settings] = field(default_factory=list)
    read: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    double: bool = True
    drawn: bool = False
    used: set[Origin] = field(default_factory=set)
    within: dict[Origin, frozenset[Origin]] = field(default_factory=dict)
    made: dict[Origin, frozenset[Origin]] = field(default_factory=dict)
    beside: dict[Origin, tuple[object, ...]] = field(default_factory=dict)
    results: dict[Origin, NDArray[np.generic]] = field(default_factory=dict)
    python: list[tuple[str, ...]] = field(default_factory=list)
    arrays: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    given: list[NDArray[np.generic]] = field(default_factory=list)
    chosen: bool = False
    changed: bool = False
    averages: dict[str, list[NDArray[np.float64]]] = field(default_factory=dict)


#: The script with so many ranks, each with the samples that it is given, and with parameters moved. It may raise InputError.
Running = Callable[[int, Mapping[int, Samples], float], Mapping[int, Numbers]]


class UnlikeError(Exception):
    """Ranks do not come to what one process comes to, or that is not seen: why."""


@dataclass(frozen=True, slots=True)
class Together:
    """Gradients of ``worlds`` of ranks are on average those of one process, times their number to a ``power``; ``far`` is the largest
    difference, relative to the largest element of a parameter. ``alike``: parameters after the step are those of one process, too;
    ``mean``: the loss of ranks and of one process is a mean; ``factors``: numbers around that of one process."""

    power: int
    worlds: tuple[int, ...]
    far: float
    alike: bool
    mean: bool
    factors: tuple[Fraction, ...]

    def shares(self, recordings: Mapping[int, Recording]) -> None:
        """Say of recorded ranks that each one's loss is its samples' share of that of all, times what was seen."""
        for recording in recordings.values():
            factor = Fraction(recording.world) ** self.power
            turn = Turn(factor=factor, summed=False, count=1, rows=1, line=recording.turns[0].line, scaled=self.power != 0)
            recording.turns[:] = [turn]
            recording.by_row.clear()
            recording.events[:] = [e for e in recording.events if e.kind not in ("send", "recv") or e.states]
            for seen in (recording.numbers, recording.beside):  # of the loss, which was compared
                for where in [where for where in seen if where[2] not in ("update", "after")]:
                    del seen[where]

    @property
    def text(self) -> str:
        """What was compared, and is not proved."""
        worlds = f"{', '.join(map(str, self.worlds[:-1]))} and {self.worlds[-1]}"
        times = {0: "", 1: " times the number of ranks", -1: " over the number of ranks"}
        multiple = times.get(self.power, f" times the number of ranks to the power {self.power}")
        within = f", with {' and '.join(map(written, self.factors))} in it" if self.factors else ""
        return (
            f"gradients of ranks are on average those of the loss of all samples together{within}{multiple}: "
            f"seen in numbers, at {worlds} ranks against one process (largest difference {self.far:.0e}), and not proved"
        )


def together(recordings: Mapping[int, Recording], world: int, run: Running) -> Together:
    """Compare a recorded step of several ranks with one process. Raises UnlikeError where it is another one, or cannot be compared."""
    _comparable(recordings)
    first = recordings[0]
    trained = {i for e in first.events if e.kind == "pass" for i in e.states}
    elements = sum(first.states[i].numel for i in trained)
    found, powers = list[_Compared](), [*_POWERS]
    for ranks in sorted({world, *_WORLDS}, key=lambda n: (n != world, n)):
        try:
            for pair in _runs(ranks, run, every=ranks == world):
                found.append(_Compared(ranks, elements, first.passed, *pair))
                powers = [p for p in powers if found[-1].off(p) <= _SAME]
                if not powers:
                    raise UnlikeError("gradients differ from those of one process with the samples of all ranks")
        except InputError:
            if ranks == world:
                raise UnlikeError("it does not run as one process with the samples of all ranks") from None
    worlds = tuple(sorted({one.world for one in found}))
    if len(worlds) < 2:
        raise UnlikeError("it runs with one number of ranks alone")
    dealt, replaced = (one.alone for one in found[1:3])
    if _off(replaced.gradients, dealt.gradients) <= _SAME:
        raise UnlikeError("gradients do not change with a sample")
    _derivative(found[0], run)
    far = max(one.off(powers[0]) for one in found)
    mean = all(n.mean for one in found for n in (one.alone, *one.ranks.values()))
    return Together(powers[0], worlds, far, all(one.alike for one in found), mean, tuple(n for n in found[0].alone.factors if n != 1))


def _comparable(recordings: Mapping[int, Recording]) -> None:
    every = recordings.values()
    if len(recordings) != recordings[0].world or any(len(r.turns) != 1 or r.passed != r.step - 1 or r.statistics or r.line for r in every):
        raise UnlikeError("not every step is one backward pass of each rank")


@dataclass(frozen=True, slots=True)
class _Compared:
    """What ranks came to, and one process with their samples."""

    world: int
    elements: int
    before: int
    ranks: Mapping[int, Numbers]
    alone: Numbers

    def __post_init__(self) -> None:
        every = (self.alone, *self.ranks.values())
        names = {tuple(sorted(n.gradients)) for n in every}
        whole = sum(g.size for g in self.alone.gradients.values()) == self.elements
        if len(names) > 1 or not whole or not all(n.plain and n.passes == self.before + 1 for n in every):
            raise UnlikeError("parameters are not whole on each rank, in double precision, or not seen")
        if not any(np.abs(g).max() > 0 for g in self.alone.gradients.values()):
            raise UnlikeError("gradients are zero")

    def off(self, power: int) -> float:
        """How far gradients are from those of one process times the number of ranks to this power."""
        mean = {n: sum(r.gradients[n] for r in self.ranks.values()) / self.world for n in self.alone.gradients}
        return _off(mean, {n: g * float(self.world) ** power for n, g in self.alone.gradients.items()})

    @property
    def alike(self) -> bool:
        """Whether all ranks end with the parameters of one process."""
        return all(_off(r.left, self.alone.left) <= _SAME for r in self.ranks.values())


def _off(one: Mapping[str, NDArray[np.float64]], other: Mapping[str, NDArray[np.float64]]) -> float:
    """The largest difference, relative to the largest element of its parameter, but for what is nothing beside the largest of all."""
    if one.keys() != other.keys() or not all(np.isfinite(v).all() for own in (one, other) for v in own.values()):
        return float("inf")
    most = max((float(np.abs(v).max()) for v in other.values()), default=0.0)
    gaps = ((float(np.abs(one[n] - v).max()), max(float(np.abs(v).max()), _NOTHING / _SAME * most)) for n, v in other.items())
    return max((gap / size if size else float(gap > 0) for gap, size in gaps), default=0.0)


# Which samples are given.


def _runs(world: int, run: Running, *, every: bool) -> Iterator[tuple[Mapping[int, Numbers], Numbers]]:
    """Ranks, and one process with the samples that they read; then with samples dealt anew, and with one replaced, if ``every``."""
    first = run(world, {}, 0.0)
    own = _own(first)
    yield first, _alone(first, own, run)
    sizes = [first[rank].rows for rank in range(world)]
    order = np.random.default_rng(sum(sizes)).permutation(sum(sizes))
    replaced = np.where(np.arange(len(order)) == 0, order[-1], order)
    for deal in (order, replaced) if every else ():
        dealt = run(world, {rank: {o: samples_of_all(first, o)[part] for o in own} for rank, part in enumerate(_parts(deal, sizes))}, 0.0)
        if any(
            not np.array_equal(dealt[rank].samples[o], samples_of_all(first, o)[part])
            for rank, part in enumerate(_parts(deal, sizes))
            for o in own
        ):
            raise UnlikeError("samples cannot be dealt to other ranks")
        yield dealt, _alone(dealt, own, run)


def _parts(deal: NDArray[np.int64], sizes: list[int]) -> list[NDArray[np.int64]]:
    return np.split(deal, np.cumsum(sizes)[:-1])


def samples_of_all(ranks: Mapping[int, Numbers], origin: Origin, axis: int = 0) -> NDArray[np.generic]:
    """The samples of all ranks, one after another along a dimension. Raises UnlikeError where the others do not have one size."""
    try:
        return np.concatenate([ranks[rank].samples[origin] for rank in sorted(ranks)], axis)
    except ValueError:
        raise UnlikeError("ranks have other numbers of samples") from None


def _alone(ranks: Mapping[int, Numbers], own: list[Origin], run: Running) -> Numbers:
    """One process with the samples of ranks."""
    found = run(1, {0: {origin: samples_of_all(ranks, origin) for origin in own}}, 0.0)[0]
    if any(o not in found.samples or not np.array_equal(found.samples[o], samples_of_all(ranks, o)) for o in own):
        raise UnlikeError("one process does not read the samples of all ranks")
    return found


def _own(ranks: Mapping[int, Numbers]) -> list[Origin]:
    """Where each rank has samples of its own, as many as a module is given. Raises UnlikeError where it has none, or those of others."""
    common = set.intersection(*({*n.samples} for n in ranks.values()))
    own = [
        origin
        for origin in sorted(common, key=str)
        if all(len(n.samples[origin]) == n.rows > 0 for n in ranks.values())
        and any(not np.array_equal(n.samples[origin], ranks[0].samples[origin]) for n in ranks.values())
    ]
    rows = [tuple(samples_of_all(ranks, o)[i].tobytes() for o in own) for i in range(sum(n.rows for n in ranks.values()))] if own else []
    several = [o for o in own if ranks[0].samples[o].size > len(ranks[0].samples[o]) and "float" in o[2]]
    if not own or len({*rows}) < len(rows) or any(len({row.tobytes() for row in samples_of_all(ranks, o)}) < len(rows) for o in several):
        raise UnlikeError("ranks have no samples of their own, or the same ones")
    return own


# Whether the loss of one process is what its gradients are of.


def _derivative(one: _Compared, run: Running) -> None:
    """Raise UnlikeError where ranks exchange what a model makes, and gradients of one process are not those of its loss."""
    if not any(n.exchanged for n in (one.alone, *one.ranks.values())):
        return
    given = {0: dict(one.alone.samples)}
    up, down = (run(1, given, shift)[0].loss for shift in (_SHIFT, -_SHIFT))
    slope = (up - down) / (2 * _SHIFT)
    said = sum(float((g * one.alone.directions[n]).sum()) for n, g in one.alone.gradients.items())
    if not abs(slope - said) <= _SLOPE * max(abs(slope), abs(said)):
        raise UnlikeError("what ranks exchange hands back no gradient, or another one: whether that is meant is not seen")
