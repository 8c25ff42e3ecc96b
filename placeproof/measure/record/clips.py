"""Clipping that no one device does: a witness, from real processes.

A right script may multiply gradients by any numbers that one device could make of its own, such as norms of some parameters. So in a norm
all parts of a parameter count alike, on whichever ranks they lie, and reduced or not; norms of parts, which change with the cut, are not
added up; ranks that compute together clip the same gradient of the same values alike; which parameters share a norm does not change with
the number of ranks, nor the number with the scale of a GradScaler; and no line clips each rank's own gradients now and what all have added
up later. Ranks that clip what they then add up, or by a norm of what each has of its own, are left alone: some methods do so on purpose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from itertools import combinations

import numpy as np

from placeproof.core.diagnostics import InputError
from placeproof.measure.record.axes import ranks_of
from placeproof.measure.record.nodes import COLLECTIVES
from placeproof.measure.record.norms import Clipped, Recordings, Squares, UnknownError, clippings, exchanges, given, squares, value
from placeproof.measure.record.recording import Recording
from placeproof.measure.record.sides import apart, kept, sides_of
from placeproof.measure.record.witness import Witness

#: Numbers are the same up to this part of them, and sums of squares up to this one.
_SAME, _SUM = 1e-3, 1e-2
#: What all ranks do where there are so many; or if losses are scaled with twice what a GradScaler says. It may raise InputError.
Again = Callable[[int, bool], Recordings]
#: What shows that something does not hold: what should, what was seen, and numbers.
_Broken = tuple[str, tuple[str, ...], Mapping[str, object]]


def clipped(recordings: Recordings, step: int, again: Again) -> Witness | None:
    """The first clipping that no one device does; None where there is none, or where nothing certain can be said."""
    rules = [_left_over, _both, _unlike_parts, _unlike_copies, _norms_added, _one_pass]
    for rank, recording in sorted(recordings.items()):
        for index in sorted(recording.updates):
            for one in _active(recordings, rank, index):
                for rule in rules:
                    with suppress(UnknownError):
                        if (broken := rule(recordings, one, index)) is not None:
                            return _witness(recording, one, step, broken)
                with suppress(UnknownError, InputError):
                    if (broken := _scaled(recordings, one, index, again)) is not None:
                        return _witness(recording, one, step, broken)
    with suppress(UnknownError):
        if (by_ranks := _by_ranks(recordings, again)) is not None:
            one, broken = by_ranks
            return _witness(recordings[one.rank], one, step, broken)
    return None


def _active(recordings: Recordings, rank: int, index: int) -> list[Clipped]:
    """The clippings of a parameter's gradients that change them, the last first."""
    with suppress(UnknownError):
        found = list(clippings(recordings[rank], index))
        return [one for one in found if abs(value(one, recordings) - 1) > _SAME]
    return []


def _name(recordings: Recordings, one: Squares) -> str:
    own = recordings[one.rank]
    states = own.nodes.states(one.term)
    if len(states) != 1:
        raise UnknownError
    return own.states[min(states)].name


def _in_norm(recordings: Recordings, one: Clipped) -> list[Squares]:
    """The squares in the norm that clips: those whose sum, as far as all of them were numbers, is that norm's. Raises UnknownError."""
    found, own = squares(recordings, one.rank, one.norm), recordings[one.rank].kept
    sums = [_sum(recordings[s.rank], s) for s in found]
    norm = own.numbers.get(one.norm) if own is not None else None
    known = [n for n in sums if n is not None]
    if norm is not None and len(known) == len(sums) and abs(sum(known) - norm**2) > _SUM * norm**2:
        raise UnknownError
    return found


def _sum(recording: Recording, one: Squares) -> float | None:
    """The number that a rank has made of these squares."""
    nodes, numbers = recording.nodes, recording.kept.numbers if recording.kept is not None else {}
    for number, node in enumerate(nodes.table):
        if (node.kind, node.of, node.count) == ("sum_squares", (one.term,), one.count):
            root = next((n for n, k in enumerate(nodes.table) if (k.kind, k.of) == ("norm", (number,))), -1)
            return numbers.get(number, numbers[root] ** 2 if root in numbers else None)
    return None


def _left_over(recordings: Recordings, one: Clipped, _: int) -> _Broken | None:
    """A norm is of what is left of a gradient on a rank that has given it to another one."""
    for s in _in_norm(recordings, one):
        last = next(exchanges(recordings[s.rank], s.term), None)
        if last is not None and last.kind == "reduce" and last.root != s.rank:
            name = _name(recordings, s)
            seen = f"rank {s.rank} adds squares of `{name}` to it, whose gradient it has reduced to rank {last.root}: what is left is none"
            return "the norm that clips is of gradients of the step", (seen,), {"parameter": name, "rank": s.rank, "root": last.root}
    return None


def _both(recordings: Recordings, one: Clipped, _: int) -> _Broken | None:
    """A norm has a gradient in it before it was reduced, and after it."""
    ways: dict[str, dict[bool, Squares]] = {}
    for s in _in_norm(recordings, one) if not _sends(recordings) else ():
        ways.setdefault(_name(recordings, s), {}).setdefault(any(exchanges(recordings[s.rank], s.term)), s)
    for name, found in ways.items():
        if len(found) == 2:
            seen = f"the gradient of `{name}` is in it as rank {found[True].rank} has it reduced, and as rank {found[False].rank} made it"
            numbers = {"parameter": name, "reduced": found[True].rank, "own": found[False].rank}
            return "the norm that clips is of gradients that are reduced, or of such as are not", (seen,), numbers
    return None


def _sends(recordings: Recordings) -> bool:
    """Whether ranks may have other parameters by the same name."""
    return any(e.kind in ("send", "recv", "all_to_all") for r in recordings.values() for e in r.events)


def _parts(recordings: Recordings, a: int, b: int) -> Iterator[tuple[str, int, int]]:
    """Parameters of which two ranks have parts: they begin otherwise, in the same form, and nothing of their gradients is exchanged."""
    names = {state.name: i for i, state in enumerate(recordings[b].states)}
    for i in recordings[a].updates:
        mine = recordings[a].states[i]
        j = names.get(mine.name, -1)
        if j not in recordings[b].updates:
            continue
        theirs = recordings[b].states[j]
        unlike = mine.part == theirs.part and mine.used != theirs.used and not (mine.constant or theirs.constant)
        terms = [(recordings[a], n) for n in recordings[a].updates[i]] + [(recordings[b], n) for n in recordings[b].updates[j]]
        if unlike and mine.used and theirs.used and not any(any(exchanges(r, n)) for r, n in terms):
            yield mine.name, i, j


def _unlike_parts(recordings: Recordings, one: Clipped, index: int) -> _Broken | None:
    """Of two parts of a parameter a norm has one in it, and clips both."""
    if _sends(recordings):
        return None
    found = _in_norm(recordings, one)
    counts, begin = Counter[tuple[str, str]](), {r: {s.name: s.used for s in own.states} for r, own in recordings.items()}
    for s in found:
        name = _name(recordings, s)
        counts[name, begin[s.rank][name]] += s.count  # one of several ranks that have the same part may add its squares
    name = recordings[one.rank].states[index].name
    for other in (r for r in recordings if r != one.rank):
        parts = {n: j for n, _, j in _parts(recordings, one.rank, other)}
        theirs = _active(recordings, other, parts[name]) if name in parts else []
        if not theirs or Counter(_in_norm(recordings, theirs[0])) != Counter(found):
            continue
        both = {n: [counts[n, begin[rank][n]] for rank in (one.rank, other)] for n in parts}
        alike, (here, there) = any(a == b > 0 for a, b in both.values()), both[name]
        if alike and here != there:
            seen = f"of `{name}`, of which ranks {one.rank} and {other} have parts, it has {here} squares of rank {one.rank} and {there}"
            numbers = {"parameter": name, "squares": {str(one.rank): here, str(other): there}}
            return "the norm that clips has all elements of a parameter in it, or none", (f"{seen} of rank {other}",), numbers
    return None


def _unlike_copies(recordings: Recordings, one: Clipped, index: int) -> _Broken | None:
    """Ranks that compute together begin with the same values of a parameter, make the same gradient of it, clip it with other numbers, and
    go on with other values: if these are copies, they part, and if they are parts of a parameter, one is clipped otherwise."""
    own, by = recordings[one.rank], value(one, recordings)
    name = own.states[index].name
    for rank, other in sorted(recordings.items()):
        if rank == one.rank or not _same_gradient(own, other, index) or not _go_on_apart((own, other), index):
            continue
        theirs = [value(c, recordings) for c in clippings(other, index)]
        if len(theirs) < 2 and len(list(clippings(own, index))) == 1 and abs(by - (there := [*theirs, 1.0][0])) > _SAME * max(by, there):
            seen = f"ranks {one.rank} and {rank} have the same values of `{name}` before the step, and make the same gradient of it"
            end = f"rank {rank} multiplies it by {there:.6g}" if theirs else f"rank {rank} does not clip it"
            numbers = {"parameter": name, "factors": {str(one.rank): by, str(rank): there}}
            return f"ranks {one.rank} and {rank} clip `{name}` alike", (f"{seen}; {end}, and they go on with other values",), numbers
    return None


def _same_gradient(a: Recording, b: Recording, index: int) -> bool:
    """Whether two ranks, which are given the same samples and add up activations, begin with the same values of a parameter, and make the
    same gradients of it in a step, which they do not exchange."""
    together = any({a.rank, b.rank} <= {*added.group} and added.made.size > 1 for added in kept(a).added)
    if not together or index not in b.updates or a.states[index].name != b.states[index].name:
        return False
    passes = [[one.get(index) for one in kept(r).passes[: kept(r).step]] for r in (a, b)]
    pairs = list(zip(*passes, strict=False))
    alike = all(x and y and x.digest == y.digest and np.array_equal(x.gradient, y.gradient) for x, y in pairs)
    told = any(x is not None and x.gradient is not None and np.ptp(x.gradient) > 0 for x, _ in pairs)
    exchanged = any(any(exchanges(r, n)) for r in (a, b) for n in r.updates[index])
    return alike and told and len(passes[0]) == len(passes[1]) and a.samples == b.samples and all(a.samples) and not exchanged


def _go_on_apart(pair: tuple[Recording, Recording], index: int) -> bool:
    """Whether two ranks have other values of a parameter when the next forward reads them, and a step later, or at the end."""
    sides = sides_of(pair, [kept(r).step for r in pair], index)
    if sides is None or (sides.ends and any(index in kept(r).early for r in pair)):
        return False
    return bool((apart(*sides.after) & apart(*sides.last)).any())


def _norms_added(recordings: Recordings, one: Clipped, _: int) -> _Broken | None:
    """Norms of parts of a parameter are added up over ranks, without squares."""
    node = recordings[one.rank].nodes[one.norm]
    if node.kind != "all_reduce" or node.op not in ("sum", "mean") or recordings[one.rank].nodes[node.of[0]].kind != "norm":
        return None
    cut: dict[str, set[int]] = {}
    for rank, norm in given(recordings, node):
        found = squares(recordings, rank, norm)
        if any(s.rank != rank for s in found):  # of more than this rank's part
            return None
        for s in found:
            for made in exchanges(recordings[rank], s.term):
                if made.kind == "reduce_scatter" and rank in (group := {r for key in made.axes for r in ranks_of(key)}):
                    cut.setdefault(_name(recordings, s), set()).update({rank} & group)
    for name, ranks in cut.items():
        if len(ranks) > 1:
            first, second = sorted(ranks)[:2]
            seen = f"it adds up norms, and not their squares: of a part of `{name}` on rank {first}, and of another on rank {second}"
            return "the norm that clips does not depend on where tensors are cut", (seen,), {"parameter": name, "ranks": sorted(ranks)}
    return None


def _one_pass(recordings: Recordings, one: Clipped, index: int) -> _Broken | None:
    """One line of the script clips what this rank alone has made of a micro-batch, and then what ranks have added up, in which another
    micro-batch is that was not clipped before."""
    own, last = recordings[one.rank], _active(recordings, one.rank, index)[0]
    if last.line != one.line or not one.line or not any(exchanges(own, last.of)):
        return None
    kinds = [own.nodes[n].kind for n in one.above]
    if "add" not in kinds or not {*kinds[: kinds.index("add")]} & {*COLLECTIVES} or any(exchanges(own, one.of)):
        return None
    if any(s.rank != one.rank or any(exchanges(own, s.term)) for s in _in_norm(recordings, one)):
        return None
    turns = _turns(own, one.of)
    for below in own.nodes[one.above[kinds.index("add")]].of:
        theirs = _turns(own, below)
        if own.nodes.holds(below, "clipped") or theirs & turns:
            continue
        if all(_alike(own, a, b) for a in turns for b in theirs):
            a, b = min(turns), min(theirs)
            seen = (
                f"rank {one.rank} clips what it has made of micro-batch {a + 1} alone, by its norm, before ranks add up",
                f"the same line clips what they have added up, with micro-batch {b + 1}, which nothing has clipped before",
            )
            return "this line clips what each rank has made, or what all have", seen, {"clipped before": a, "after": b}
    return None


def _turns(recording: Recording, number: int) -> set[int]:
    """The passes that a gradient is of."""
    node = recording.nodes[number]
    if node.kind == "pass":
        return {node.turn}
    return set[int]().union(*(_turns(recording, n) for n in (node.of[:1] if node.kind in ("clipped", "elementwise") else node.of)))


def _alike(recording: Recording, a: int, b: int) -> bool:
    """Whether two passes are of one loss, and of other samples."""
    mine, theirs = (recording.inputs.get(turn) for turn in (a, b))
    graphs = recording.graphs
    return bool(mine and theirs) and mine != theirs and max(a, b) < len(graphs) and graphs[a] == graphs[b]


def _scaled(recordings: Recordings, one: Clipped, index: int, again: Again) -> _Broken | None:
    """A gradient is clipped as long as a GradScaler's scale is in it, to a bound that has none."""
    own = recordings[one.rank]
    scale = next((s for s in own.scales if s != 1 and any(_divides(own, n, s) for n in one.above)), None)
    if scale is None or len(own.scales) > 1:
        return None
    other = again(len(recordings), True)[one.rank]
    theirs = next((c for c in clippings(other, index) if c.line == one.line), None)
    if theirs is None or other.scales != {2 * scale} or not _twice(own, other, index):
        return None
    by = value(one, recordings), value(theirs, {one.rank: other})
    if abs(2 * by[1] - by[0]) > _SUM * by[0]:
        return None
    name = own.states[index].name
    seen = f"the gradient of `{name}` is multiplied by {by[0]:.6g} where the scale is {scale}, and by {by[1]:.6g} where it is {2 * scale}"
    numbers = {"parameter": name, "factors": [*by], "scales": [int(scale), int(2 * scale)]}
    return "how gradients are clipped does not depend on the scale of a GradScaler", (seen,), numbers


def _divides(recording: Recording, number: int, scale: Fraction) -> bool:
    node = recording.nodes[number]
    return node.kind == "scale" and node.factor == 1 / scale


def _twice(first: Recording, second: Recording, index: int) -> bool:
    """Whether a parameter's gradients of a step are twice those of another recording."""
    passes = [r.kept.passes[: r.kept.step] if r.kept is not None else [] for r in (first, second)]
    pairs = [(a.get(index), b.get(index)) for a, b in zip(*passes, strict=False)]
    both = [(a.gradient, b.gradient) for a, b in pairs if a and b and a.gradient is not None and b.gradient is not None]
    return bool(both) and all(np.allclose(2 * a, b, rtol=_SUM, atol=_SUM * float(np.abs(b).max())) for a, b in both)


# Which parameters share a norm.


def _by_ranks(recordings: Recordings, again: Again) -> tuple[Clipped, _Broken] | None:
    """Two parameters that ranks clip apart, each those that it updates; and with another number of ranks they do not."""
    world, pairs = len(recordings), list(_clipped_apart(recordings))
    for other in (world + 1, 2 * world, world - 1) if pairs else ():
        with suppress(InputError, UnknownError):
            rule = _rule(others := again(other, False))
            for one, names, by in pairs:
                p, q = names
                if not _begin_alike(recordings, others, names) or not {p, q} <= rule.keys():
                    continue
                if (q in rule[p] and p in rule[q]) or not (rule[p] or rule[q] or _normed(others, names)):
                    ranks = f"with {world} ranks `{p}` is multiplied by {by[0]:.6g} and `{q}` by {by[1]:.6g}"
                    there = f"with {other} {'both are clipped by one norm' if rule[p] else 'neither is clipped'}"
                    numbers = {"parameters": [p, q], "factors": [*by], "other world": other}
                    seen = f"{ranks}: each rank clips what it updates", there
                    return one, (f"`{p}` and `{q}` are clipped alike with any number of ranks", seen, numbers)
    return None


def _clipped_apart(recordings: Recordings) -> Iterator[tuple[Clipped, tuple[str, str], tuple[float, float]]]:
    """Parameters that two ranks clip, each by norms of what it updates, with other numbers: a clipping, their names, and the numbers."""
    if _sends(recordings):
        return
    rule, owners = _rule(recordings), _owners(recordings)
    for p, q in combinations(sorted(owners), 2):
        first, second = (_of(recordings, owners[name], name) for name in (p, q))
        one = first or second
        own = all(owners.get(other) == owners[name] for name in (p, q) for other in rule[name])
        if own and owners[p] != owners[q] and one is not None:
            by = (value(first, recordings) if first else 1.0, value(second, recordings) if second else 1.0)
            if abs(by[0] - by[1]) > _SAME * max(by):
                yield one, (p, q), by


def _normed(recordings: Recordings, names: Sequence[str]) -> bool:
    """Whether there are norms of some parameters' gradients, with which the script may not have had to clip."""
    return any(
        r.states[i].name in names
        for r in recordings.values()
        for n, node in enumerate(r.nodes.table)
        if node.kind in ("square", "sum_squares", "norm", "unknown")
        for i in r.nodes.states(n)
    )


def _begin_alike(recordings: Recordings, others: Recordings, names: Sequence[str]) -> bool:
    """Whether parameters begin with the same values in two recordings."""
    first, second = ({s.name: (s.numel, s.digest) for s in r[0].states} for r in (recordings, others))
    return all(name in first and first[name] == second.get(name) for name in names)


def _owners(recordings: Recordings) -> dict[str, int]:
    """Parameters that one rank updates, with a gradient that others have a share in: by which rank."""
    found: dict[str, set[int]] = {}
    for rank, r in recordings.items():
        for index, terms in r.updates.items():
            if all(any(exchanges(r, n)) for n in terms):
                found.setdefault(r.states[index].name, set()).add(rank)
    return {name: min(ranks) for name, ranks in found.items() if len(ranks) == 1}


def _of(recordings: Recordings, rank: int, name: str) -> Clipped | None:
    """The last clipping of a parameter. Raises UnknownError."""
    own = recordings[rank]
    return next((c for i in own.updates if own.states[i].name == name for c in clippings(own, i)), None)


def _rule(recordings: Recordings) -> dict[str, frozenset[str]]:
    """Which parameters are in the norm that clips each of them: none where nothing does. Raises UnknownError."""
    rule: dict[str, frozenset[str]] = {}
    for r in recordings.values():
        for index in r.updates:
            clips = list(clippings(r, index))
            if len(clips) > 1:
                raise UnknownError
            names = frozenset(_name(recordings, s) for c in clips for s in _in_norm(recordings, c))
            if rule.setdefault(r.states[index].name, names) != names:
                raise UnknownError
    return rule


def _witness(recording: Recording, one: Clipped, step: int, broken: _Broken) -> Witness:
    claim, seen, numbers = broken
    kept = recording.kept
    norm = None if kept is None else kept.numbers.get(one.norm)
    by = None if kept is None else kept.numbers.get(one.number)
    told = f"rank {recording.rank} multiplies gradients by {by:.6g}" + (f", made of the norm {norm:.6g}" if norm is not None else "")
    return Witness.of(
        recording,
        step,
        condition="gradient integrity",
        line=one.line,
        claim=claim,
        seen=(*seen, told),
        numbers={**numbers, "norm": norm, "factor": by},
        summary="no one device clips like that, whatever its rule is",
        remark="What may clip is any number that one device could make of its gradients: it knows of no ranks.",
    )
