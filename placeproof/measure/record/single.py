"""Whether ranks end with what the script itself ends with as one process, given the samples of all ranks: in numbers.

A program says what a step does to gradients, of a loss that each rank has of its own samples. That a script reads other samples, decides
something by what one rank has, or computes something else where its layers are split, is no part of that. So the script is run as one
process, too: elements of parameters are found by their values, wherever ranks have them, and compared after the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from placeproof.core.diagnostics import InputError
from placeproof.measure.record.together import SENT, Numbers, Origin, Samples, Settings, UnlikeError, samples_of_all

#: What differs by more than this part of the largest change of its parameter is another number.
_SAME = 1e-7
#: What is no larger is zero, and what differs by less is the same but for rounding.
_NOTHING, _EQUAL = 1e-12, 1e-10
#: By which part gradients of one process are changed to see whether parameters show it, and how much of what these change by shows it.
_NOISE, _SHOWN = 1e-2, 1e-5
#: By which part of the largest element parameters change at least, to be compared by that: below it is rounding.
_LEAST = 1e-7
#: What writes a part of what is computed of samples, which lies elsewhere in that of all ranks.
_WRITES = ("copy_", "fill_", "zero_")
#: What makes other samples of some, where it is given other numbers.
_CHANGES = ("add", "clamp", "clamp_max", "clamp_min", "div", "flip", "lerp", "mul", "pow", "remainder", "roll", "rsub", "sub")


#: The script with so many ranks, each with the samples that it is given, with given settings of updates, and with noise in its gradients.
#: It may raise InputError.
Running = Callable[[int, Mapping[int, Samples], Sequence[Settings], float], Mapping[int, Numbers]]


@dataclass(frozen=True, slots=True)
class Single:
    """Of each parameter by how much ranks are apart from one process, relative to the largest element: in what it changes by, and in the
    gradient that the update reads (infinite where that is not seen). ``updates``: those of a rank, and of one process; ``multiple``: all
    gradients of ranks are one multiple of those of one process, as where a loss is divided by what is given as a number; ``scaled``: so are
    all changes; ``decided``: later updates have other settings, which change with samples; ``lent``: the first update in which one process
    would have another setting than ranks, whose settings it is given, and which; ``kept``: of which parameter a rank keeps another average
    than one process; ``seen``: an optimizer reads gradients; ``blind``: a parameter that changes alike, and would of other gradients, which
    are others or not seen; ``made``: what one process was given that ranks make of their samples with other numbers, an operation with its
    line."""

    moved: Mapping[str, float]
    read: Mapping[str, float]
    updates: tuple[int, int] = (0, 0)
    multiple: bool = False
    scaled: bool = False
    decided: bool = False
    lent: tuple[int, str] | None = None
    kept: str = ""
    seen: bool = True
    blind: str = ""
    made: tuple[str, int] | None = None

    @property
    def apart(self) -> str:
        """A parameter that one process ends with other values of, and by how much."""
        if self.updates[0] != self.updates[1]:
            return f"it makes {self.updates[1]} updates, and a rank {self.updates[0]}"
        if self.decided:
            return "a later update has other settings, which change with samples"
        name = max(self.moved, key=lambda n: self.moved[n])
        of = "element" if name.startswith(_AVERAGE) else "change"
        return f"{_shown(name)}, by {self.moved[name]:.1e} of the largest {of}" if self.moved[name] > _SAME else ""

    @property
    def hidden(self) -> bool:
        """Whether parameters end with the same, but for rounding, of gradients that are others, or are not seen."""
        return not self.apart and max(self.moved.values()) <= _EQUAL and not (self.alike and self.seen)

    @property
    def alike(self) -> bool:
        """Whether all are the same, gradients too."""
        return self.updates[0] == self.updates[1] and not self.decided and max(*self.moved.values(), *self.read.values()) <= _SAME


def single(world: int, run: Running, *, split: bool = False, rates: bool = False, differ: bool = False) -> Single:
    """What ranks come to beside one process, which is given the samples of all ranks that have others. ``split``: all may have the same;
    ``rates``: it may update with other settings; ``differ``: what ranks compute by their numbers may be wrong. Raises UnlikeError where
    they cannot be compared."""
    try:
        ranks = run(world, {}, (), 0.0)
    except InputError:
        raise UnlikeError("it does not run with numbers of double precision") from None
    given = _readers(ranks, split=split)
    axes, used = _dealt(given), set[Origin]().union(*(n.used for n in ranks.values()))
    first, second = ({origin: own[min(way, len(own) - 1)] for origin, own in axes.items()} for way in range(2))
    ways = [first, second, {origin: axis for origin, axis in first.items() if origin in used}]
    failed = list[UnlikeError]()
    for number, dealt in enumerate(ways):
        if dealt not in ways[:number]:
            try:
                return _beside(ranks, given, dealt, run, split=split, rates=rates, differ=differ)
            except UnlikeError as error:
                failed.append(error)
    raise failed[0]


def _beside(
    ranks: Mapping[int, Numbers],
    given: Mapping[int, Numbers],
    dealt: Mapping[Origin, int],
    run: Running,
    *,
    split: bool,
    rates: bool,
    differ: bool,
) -> Single:
    """The same with the samples of all ranks one after another, each ``dealt`` along a dimension. ``given``: ranks that have others."""
    try:
        given_by_number = _by_number(given, differ=differ)
        own = {origin: samples_of_all(given, origin, axis) for origin, axis in dealt.items()} | given_by_number
        alone = run(1, {0: own}, (), 0.0)[0]
        every = [n for _, n in sorted(ranks.items())]
        if not rates and len(given) == len(ranks) and _decide(every, alone, run, [*dealt]):
            return Single({}, {}, decided=True)
        lent = None if rates else _lent(every, alone)
        settings = every[0].settings if lent else ()
        alone = run(1, {0: own}, settings, 0.0)[0] if lent else alone
    except InputError:
        raise UnlikeError("it does not run as one process") from None
    _comparable(every, alone, rates=rates)
    made = next(((o[1], o[0]) for o in given_by_number if o[1].rstrip("_") in _CHANGES), None)
    chosen = any(n.chosen for n in (alone, *every))
    if len(alone.settings) < len(every[0].settings) and not chosen:  # it has more micro-batches in each
        raise UnlikeError("one process makes other backward passes")
    _same_samples(given, alone, own)
    if not (split or chosen):
        _same_given([n for _, n in sorted(given.items())], alone)

    def noisy() -> Numbers:
        return run(1, {0: own}, settings, _NOISE)[0]

    found = _compared(every, alone, None if rates else noisy)
    first, *others = ({} if split else _averages(n, alone) for n in every)
    moved = {**found.moved, **{f"{_AVERAGE}`{name}`": gap for name, gap in first.items()}}
    kept = next((name for own in others for name, gap in own.items() if gap > _SAME), "")
    return replace(found, moved=moved, lent=lent, kept=kept, made=made)


def _compared(every: Sequence[Numbers], alone: Numbers, noisy: Callable[[], Numbers] | None) -> Single:
    """What parameters of ranks change by beside those of one process, and gradients that updates read. ``noisy``: one process once more,
    with other gradients."""
    tables = [_table(n) for n in (*every, alone)]
    common = sorted(set.intersection(*({*begun} for begun, _, _ in tables)))
    if len({len(begun) == len(common) for begun, _, _ in tables}) > 1:  # what is called alike may be another part on each rank
        common = []
    rows = [[_row(values, common) for values in table] for table in tables]
    size = {name: float(np.abs(values).max(initial=0.0)) for name, values in rows[-1][0].items()}
    places = {name: _places([begun[name] for begun, _, _ in rows[:-1]], rows[-1][0][name]) for name in rows[-1][0]}

    def far(k: int, times: float = 1.0) -> dict[str, float]:
        values = {name: rows[-1][k].get(name) for name in places}
        whole = {name: None if own is None else own * times for name, own in values.items()}
        least = {name: _LEAST * size[name] if k == 1 else _NOTHING for name in places}
        return {name: _far([row[k].get(name) for row in rows[:-1]], whole[name], at, least[name]) for name, at in places.items()}

    def multiplied(k: int) -> bool:
        times = _multiple(rows[0][k], rows[-1][k])
        return times is not None and abs(times - 1) > _SAME and max(far(k, times).values()) <= _SAME

    seen = bool(every[0].settings and alone.settings)
    moved, read, multiple = far(1), far(2), seen and multiplied(2)
    blind, unlike = "", [name for name, gap in read.items() if gap > _SAME or name not in rows[-1][2]]
    if unlike and noisy is not None and max(moved.values()) <= _SAME:
        other = _table(noisy())
        blind = next((_shown(n) for n in unlike if _is_blind(n, common, tables[-1], other)), "")
    updates = len(every[0].settings), len(alone.settings)
    return Single(moved, read, updates, multiple, multiplied(1), seen=seen, blind=blind)


def _is_blind(name: str, common: Sequence[str], alone: _Table, noisy: _Table) -> bool:
    """Whether a parameter of one process that has a gradient changes alike where elements of it are more or less."""
    (begun, moved, read), (_, other, _) = alone, noisy
    own = [name] if name in common else [n for n in begun if n not in common]
    trained = [n for n in own if read.get(n, moved[n]).any()]
    least = {n: max(float(np.abs(moved[n]).max(initial=0.0)), _LEAST * float(np.abs(begun[n]).max(initial=0.0)), _NOTHING) for n in trained}
    return any(other[n].shape != moved[n].shape or np.abs(other[n] - moved[n]).max(initial=0.0) <= _SHOWN * least[n] for n in trained)


def _averages(own: Numbers, alone: Numbers) -> dict[str, float]:
    """By how much averages of parameters are apart on a rank and in one process, where both keep as many of one size."""
    found = dict[str, float]()
    for name, values in own.averages.items():
        whole = alone.averages.get(name, [])
        if [v.shape for v in values] == [v.shape for v in whole]:
            gaps = (
                float(np.abs(a - b).max(initial=0.0)) / max(float(np.abs(b).max(initial=0.0)), _NOTHING)
                for a, b in zip(values, whole, strict=True)
            )
            found[name] = max(gaps)
    return found


def _lent(ranks: Sequence[Numbers], alone: Numbers) -> tuple[int, str] | None:
    """The first update in which one process has another setting than all ranks, and which."""
    own = ranks[0].settings
    if len(own) != len(alone.settings) or any(n.settings != own for n in ranks):
        return None
    pairs = [(n, *pair) for n, groups in enumerate(zip(own, alone.settings, strict=True), start=1) for pair in zip(*groups, strict=False)]
    unlike = ((n, k, mine, theirs.get(k)) for n, group, theirs in pairs for k, mine in group.items() if mine != theirs.get(k))
    return next(((n, f"{k} {theirs} for {mine} in update {n}") for n, k, mine, theirs in unlike), None)


def _decide(ranks: Sequence[Numbers], alone: Numbers, run: Running, dealt: Sequence[Origin]) -> bool:
    """Whether settings change from update to update, otherwise than those of one process, and otherwise where each rank has samples of the
    next."""
    own = ranks[0].settings
    if all(a == own[0] for a in own) or all(a == b for a, b in zip(own, alone.settings, strict=False)):
        return False
    others = run(len(ranks), {r: {o: ranks[(r + 1) % len(ranks)].samples[o] for o in dealt} for r in range(len(ranks))}, (), 0.0)
    return others[0].settings != own


def _multiple(own: _Values, whole: _Values) -> float | None:
    """By what numbers of copies on a rank are a multiple of those of one process, if they are one."""
    copies = [(own[name], v) for name, v in whole.items() if name in own and own[name].shape == v.shape]
    size = sum(float((v * v).sum()) for _, v in copies)
    return sum(float((o * v).sum()) for o, v in copies) / size if size else None


_Values = Mapping[str, NDArray[np.float64]]
_Table = tuple[_Values, _Values, _Values]
#: What parameters are together that not all ranks have.
_OTHERS = "parameters that ranks have by themselves"
#: What is said of what follows parameters.
_AVERAGE = "an average of "


def _shown(name: str) -> str:
    return name if name == _OTHERS or name.startswith(_AVERAGE) else f"`{name}`"


def _table(numbers: Numbers) -> _Table:
    """Values before the step, what they change by, and gradients, by names that tell parameters apart."""
    names = [key.partition(" ")[2] for key in numbers.begun]
    known = {key: key if names.count(name) > 1 else name for key, name in zip(numbers.begun, names, strict=True)}
    begun, moved, read = ({known[key]: v for key, v in values.items()} for values in (numbers.begun, numbers.moved, numbers.read))
    return begun, moved, read


def _row(values: _Values, common: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Values of parameters that all ranks have, and those of all others, one after another."""
    others = [own.reshape(-1) for name, own in values.items() if name not in common]
    return {name: values[name] for name in common if name in values} | ({_OTHERS: np.concatenate(others)} if others else {})


def _readers(ranks: Mapping[int, Numbers], *, split: bool) -> dict[int, Numbers]:
    """Of ranks that have the same samples, the first one. Modules of those that do not split layers are given the same, too."""
    found = list[Numbers]()
    for _, own in sorted(ranks.items()):
        if not any(_agree(own, other) and (split or _given_alike(own, other)) for other in found):
            found.append(own)
    return dict(enumerate(found))


def _agree(one: Numbers, other: Numbers) -> bool:
    both = {0: one, 1: other}
    return not any(_differ(both, origin) for origin in one.samples.keys() | other.samples.keys())


def _given_alike(one: Numbers, other: Numbers) -> bool:
    return len(one.given) == len(other.given) and all(map(np.array_equal, one.given, other.given))


def _dealt(ranks: Mapping[int, Numbers]) -> dict[Origin, list[int]]:
    """Where ranks have samples of their own, of which one process is given those of all, and along which dimensions these may lie."""
    common = sorted(set.intersection(*({*n.samples} for n in ranks.values())), key=str)
    along = {o: [a for a in range(2) if all(_of_rows(n, n.samples[o], a) for n in ranks.values())] for o in common}
    used = set[Origin]().union(*map(_used, ranks.values()))
    known = {o for o in common if used & {o, *(w for n in ranks.values() for w in n.within.get(o, ()))}}
    return {origin: axes for origin, axes in along.items() if axes and origin in known and _differ(ranks, origin)}


def _used(numbers: Numbers) -> set[Origin]:
    """Where samples are that are used, and those that these are made of."""
    found, left = set[Origin](), [*numbers.used]
    while left:
        origin = left.pop()
        if origin not in found:
            found.add(origin)
            left += numbers.made.get(origin, ())
    return found


def _of_rows(numbers: Numbers, values: NDArray[np.generic], axis: int = 0) -> bool:
    """Whether a tensor has as many rows as a module is given, or some times as many; along its second dimension as many."""
    size = values.shape[axis] if values.ndim > axis else 0
    return numbers.rows > 0 and size > 0 and (size % numbers.rows == 0 if axis == 0 else size == numbers.rows)


def _differ(ranks: Mapping[int, Numbers], origin: Origin) -> bool:
    first, *others = (n.samples.get(origin) for n in ranks.values())
    return any((own is None) != (first is None) or (own is not None and not np.array_equal(own, first)) for own in others)


def _by_number(ranks: Mapping[int, Numbers], *, differ: bool) -> dict[Origin, NDArray[np.generic]]:
    """What ranks compute of their samples, each with something of its own, as its number. Raises UnlikeError where it is of no samples,
    or may be wrong, where ranks ``differ``. Ranks that split layers, and have the same samples, compute their parts so."""
    every, found = [*ranks.values()], dict[Origin, NDArray[np.generic]]()
    used = set[Origin]().union(*map(_used, every))
    for origin in dict.fromkeys(o for n in every for o in n.beside if o in used):
        numbered = any(n.beside.get(origin) != every[0].beside.get(origin) for n in every)
        if numbered or origin[1] in _WRITES:
            results = [n.results[origin] for n in every if origin in n.results and _of_rows(n, n.results[origin])]
            if len(results) == len(every) and not (numbered and differ):
                found[origin] = np.concatenate(results)
            elif numbered:
                raise UnlikeError("ranks compute something else of their samples, each by its number")
    return found


def _same_samples(ranks: Mapping[int, Numbers], alone: Numbers, own: Mapping[Origin, NDArray[np.generic]]) -> None:
    """Raise UnlikeError where one process computes with other samples than all ranks do."""
    every = (alone, *ranks.values())
    used = set[Origin]().union(*(n.used for n in every)) & set[Origin]().union(*(n.samples for n in every))
    for origin in used:
        there = alone.samples.get(origin)
        if origin not in own and _differ(ranks, origin):
            raise UnlikeError("something is computed of samples that one process is not given")
        here = own.get(origin, ranks[0].samples.get(origin))
        alike = () if here is None or origin in own or not here.ndim else (np.concatenate([here] * len(ranks)),)
        if there is None or here is None or not any(np.array_equal(n, there) for n in (here, *alike)):
            raise UnlikeError("one process does not read the samples of all ranks")


def _same_given(ranks: Sequence[Numbers], alone: Numbers) -> None:
    """Raise UnlikeError where modules of one process are not given what those of all ranks are, one rank after another."""
    for whole, *parts in zip_longest(alone.given, *(n.given for n in ranks)):
        same = whole is not None and all(p is not None and p.shape[1:] == whole.shape[1:] and p.ndim for p in parts)
        if not (same and np.array_equal(np.concatenate(parts), whole)):
            raise UnlikeError("modules of one process are given other parts of samples")


def _comparable(ranks: Sequence[Numbers], alone: Numbers, *, rates: bool) -> None:
    every = (alone, *ranks)
    if len({n.passes for n in every}) > 1 or not (alone.passes and alone.begun):
        raise UnlikeError("one process makes other backward passes")
    if not rates and any(a != b for n in ranks for a, b in zip(n.settings, alone.settings, strict=False)):
        raise UnlikeError("one process updates with other settings")
    if any(n.changed for n in every):
        raise UnlikeError("parts of samples are written after Python was told of some")
    sent = [[digests for digests in n.python if any(d.startswith(SENT) for d in digests)] for n in (alone, ranks[0])]
    arrays = {digest: values for n in (alone, *ranks) for digest, values in n.arrays.items()}
    same = all(_is_of_all(made, whole, arrays) for *made, whole in zip_longest(*(n.python for n in ranks), alone.python))
    if not same or sent[0] != sent[1]:
        raise UnlikeError("samples are not made by PyTorch")
    if not all(n.double for n in every) or any(n.drawn for n in every):
        raise UnlikeError("numbers are not of double precision, or of chance")


def _is_of_all(ranks: Sequence[tuple[str, ...] | None], alone: tuple[str, ...] | None, arrays: Mapping[str, NDArray[np.generic]]) -> bool:
    """Whether all ranks have the same of Python, by digests, or one process has that of one rank after another."""
    if all(own == ranks[0] for own in ranks):
        return True
    if alone is None or any(own is None for own in ranks):
        return False
    every = [digest for own in ranks for digest in own or ()]
    if tuple(every) == alone:
        return True
    parts, whole = ([arrays[digest] for digest in own if digest in arrays] for own in (every, alone))
    if len(parts) != len(every) or len(whole) != len(alone):
        return False
    alike = all(p.ndim and p.shape[1:] == parts[0].shape[1:] for p in (*parts, *whole))
    return alike and np.array_equal(np.concatenate(parts), np.concatenate(whole))


#: For each rank, which of its elements are compared with which ones of one process; None where all have one value.
_Places = list[tuple[NDArray[np.int64], NDArray[np.int64]]] | None


def _places(begun: Sequence[NDArray[np.float64]], whole: NDArray[np.float64] | None) -> _Places:
    """Where elements that ranks have are in what one process has: they are found by their values, unless these are copies. Of several with
    one value nothing is said."""
    if whole is None:
        raise UnlikeError("ranks have other parameters than one process")
    if all(np.array_equal(own, whole) for own in begun):
        return [(np.arange(whole.size), np.arange(whole.size))] * len(begun)
    flat = whole.reshape(-1)
    values, counts = np.unique(flat, return_counts=True)
    order: NDArray[np.int64] = np.argsort(flat, kind="stable")
    first: NDArray[np.int64] = order[np.cumsum(counts) - counts]
    if not all(np.isin(own, values).all() for own in begun) or not np.isin(values, np.concatenate([o.reshape(-1) for o in begun])).all():
        raise UnlikeError("ranks begin with other parameters than one process")
    if len(values) == 1 < whole.size:
        return None
    places = list[tuple[NDArray[np.int64], NDArray[np.int64]]]()
    for own in (o.reshape(-1) for o in begun):
        at: NDArray[np.int64] = np.asarray(np.searchsorted(values, own))
        chosen = np.nonzero(counts[at] == 1)[0]
        places.append((chosen, np.take(first, at[chosen])))
    return places


def _far(ranks: Sequence[NDArray[np.float64] | None], alone: NDArray[np.float64] | None, places: _Places, least: float = _NOTHING) -> float:
    """How far elements are apart, relative to the largest, or what is ``least``."""
    if alone is None and all(own is None for own in ranks):
        return 0.0
    own = [one.reshape(-1) for one in ranks if one is not None]
    if alone is None or len(own) < len(ranks):
        return float("inf")
    last = alone.reshape(-1)
    if places is None:
        every = np.sort(np.concatenate(own))
        last, own, places = np.repeat(np.sort(last), len(every) // len(last)), [every], [(np.arange(len(every)), np.arange(len(every)))]
    if any(len(mine) > len(one) for one, (mine, _) in zip(own, places, strict=True)):
        return float("inf")
    gaps = (float(np.abs(one[mine] - last[there]).max(initial=0.0)) for one, (mine, there) in zip(own, places, strict=True))
    return max(gaps) / max(float(np.abs(last).max(initial=0.0)), least, _NOTHING)
