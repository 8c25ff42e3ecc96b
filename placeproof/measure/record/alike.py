"""Whether ranks compute the same, but for their samples: what :mod:`placeproof.measure.record.computed` wrote down of each, compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import prod

from placeproof.measure.record.factor import rational
from placeproof.measure.record.recording import Recording

#: What looks at values: a number that is logged changes nothing.
_LOOKS = frozenset(
    (
        *("abs", "all", "any", "eq", "isfinite", "isinf", "isnan", "linalg_vector_norm", "max", "mean", "min", "ne", "norm", "sqrt"),
        *("square", "std", "sum", "var"),
    )
)


def differences(recordings: Mapping[int, Recording]) -> list[tuple[str, int]]:
    """What ranks compute otherwise than rank 0, with the lines of the script."""
    first, wrong = recordings[0], list[tuple[str, int]]()
    for rank, other in recordings.items():
        graphs = zip(first.graphs, other.graphs, first.joined, other.joined, first.turns, strict=False)
        for own, theirs, joined, there_joined, turn in graphs:
            if own != theirs:
                apart = sorted(dict(set(own) ^ set(theirs)))
                listed = ", ".join(dict.fromkeys(f"`{name.partition('Backward')[0]}`" for name in apart[:3]))
                wrong.append((f"the loss of rank {rank} is made by other operations than that of rank 0: {listed}", turn.line))
            elif joined[0] != there_joined[0] or not _one_to_one(first, other, joined[1], there_joined[1]):
                text = f"the loss of rank {rank} is made by the operations of rank 0, but of other parameters, or in another order"
                wrong.append((text, turn.line))
        for call, its in zip(first.calls, other.calls, strict=False):
            if len(call.given) != len(its.given) and call.line == its.line:
                wrong.append((f"rank {rank} gives a module {len(its.given)} tensors, and rank 0 {len(call.given)}", call.line))
        mine, there = _explained(first), _explained(other)
        for where in first.numbers.keys() & other.numbers.keys():
            alone = first.numbers[where] - other.numbers[where], other.numbers[where] - first.numbers[where]
            unlike = [{n for n in numbers if not _among(n, own)} for numbers, own in zip(alone, (mine, there), strict=True)]
            one, two = (", ".join(map(_shown, sorted(numbers, key=str)[:3])) for numbers in unlike)
            if all(unlike):
                wrong.append((f"rank {rank} computes `{where[1]}` with {two}, and rank 0 with {one}", where[0]))
            elif not all(alone) and any(isinstance(n, (int, float)) for numbers in unlike for n in numbers):
                having, lacking = (f"rank {rank}", "rank 0") if two else ("rank 0", f"rank {rank}")
                wrong.append((f"{having} computes `{where[1]}` with {one or two}, too, and {lacking} does not", where[0]))
        for where in first.ordered.keys() & other.ordered.keys():
            orders = [[n for n in r.ordered[where] if isinstance(n, tuple) or not _among(n, mine | there)] for r in (first, other)]
            if orders[0] != orders[1] and Counter(orders[0]) == Counter(orders[1]):
                moved = [n for n, other in zip(*orders, strict=True) if n != other]
                what = "tensors" if isinstance(moved[0], tuple) else "arguments" if isinstance(moved[0], str) else "numbers"
                wrong.append((f"rank {rank} computes `{where[1]}` with the {what} of rank 0 in another order", where[0]))
        for where in first.beside.keys() & other.beside.keys():
            if first.beside[where] != other.beside[where]:
                shape = min(first.beside[where] ^ other.beside[where])[0]
                text = f"rank {rank} computes `{where[1]}` with another tensor of shape {shape} than rank 0, which is of no samples"
                wrong.append((text, where[0]))
    return list(dict.fromkeys(wrong))


def _one_to_one(first: Recording, other: Recording, mine: Sequence[frozenset[int]], theirs: Sequence[frozenset[int]]) -> bool:
    """Whether ranks read the same parameters, one after another. Of one that a rank has no part of, it knows no name, or nothing."""
    nameless = [{i for i, state in enumerate(r.states) if state.name == f"parameter {i}" and not state.used} for r in (first, other)]
    pairs = {(a, b) for a, b in zip(mine, theirs, strict=False) if a != b and a and b}
    known = all(nameless[0] & a or nameless[1] & b for a, b in pairs)
    return len(mine) == len(theirs) and known and len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)


def doubts(recordings: Mapping[int, Recording]) -> list[tuple[str, int]]:
    """What ranks do otherwise than rank 0, and may come to the same, with the lines of the script: operations that one of them alone does
    in forward or in backward, and dimensions, or places in them, that operations are given."""
    first, found = recordings[0], list[tuple[str, int]]()
    for rank, other in recordings.items():
        text = f"operations of the loss of rank {rank} are given other dimensions, or places in them, than those of rank 0"
        found += [(text, t.line) for a, b, t in zip(first.dimensions, other.dimensions, first.turns, strict=False) if a != b]
        mine, theirs = _alone(first, other), _alone(other, first)
        for name, phase in mine.keys() | theirs.keys():
            own, its = mine.get((name, phase)), theirs.get((name, phase))
            place = f"`{name}` in backward" if phase else f"`{name}`"
            if own is None and its is not None:
                found.append((f"rank {rank} computes {place} where rank 0 does not", its[0]))
            elif own is not None and its is None:
                found.append((f"rank 0 computes {place} where rank {rank} does not", own[0]))
            elif own is not None and its is not None and own[1] != its[1]:
                found.append((f"rank {rank} computes {place} with something else than rank 0 does", its[0]))
    return list(dict.fromkeys(found))


def _alone(one: Recording, other: Recording) -> dict[tuple[str, str], tuple[int, frozenset[object]]]:
    """What a rank computes in forward and backward at lines at which another one does not do so: a line, numbers and tensors."""
    found: dict[tuple[str, str], tuple[int, frozenset[object]]] = {}
    for line, name, phase in one.numbers.keys() - other.numbers.keys():
        if phase in ("", "backward") and name not in _LOOKS:
            known = found.get((name, phase), (line, frozenset()))
            values = known[1] | one.numbers[line, name, phase] | one.beside.get((line, name, phase), set())
            found[name, phase] = min(line, known[0]), values
    return found


def _shown(value: float | str) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _explained(recording: Recording) -> set[Fraction]:
    """Numbers that are understood of the losses of a rank: around them, and of how many elements and samples they are."""
    found: set[Fraction] = set()
    for turn in recording.turns:
        every = [*turn.numbers, *(Fraction(n) for pair in turn.counts for n in pair if n)]
        found |= {prod(every[i:j], start=Fraction(1)) for i in range(len(every)) for j in range(i + 1, len(every) + 1)} | {*every}
    return found | {1 / n for n in found if n}


def _among(value: float | str, numbers: set[Fraction]) -> bool:
    """Whether a value is one of some numbers, or turned around, whatever rounding it has."""
    near = rational(float(value)) if isinstance(value, (int, float)) else None
    return near is not None and (near in numbers or -near in numbers)
