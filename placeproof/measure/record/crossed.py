"""Gradients that go back to another micro-batch: a witness, from real processes, that stages of a pipeline train with no derivative.

A gradient that a stage makes of a tensor that it has received is the derivative of losses by this tensor, whatever they are multiplied by;
where the tensor was computed, backward has to begin with it. Here each gradient that is made begins one pass, bit for bit, and some begin
that of another tensor: a permutation of what is right, which is no clipping, compression, noise or delay, and which no rate and no factor
makes right. The update reads all these passes. Each tensor is read once; or one is never sent, and another one is read twice instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placeproof.measure.record.recording import Recording, Stretch
from placeproof.measure.record.sides import kept, read_by_updates, stretches_of
from placeproof.measure.record.witness import Witness


@dataclass(frozen=True, slots=True)
class _Made:
    """A gradient that a stage has made of a tensor that it has received, in which pass, and which rank it is."""

    tensor: str
    gradient: str
    stretch: Stretch
    rank: int

    def largest(self) -> float:
        """Its element that is farthest from zero."""
        return float(max(self.stretch.gradients[self.gradient].tolist(), key=abs))


#: By gradient.
_All = Mapping[str, _Made]


def crossed(recordings: Mapping[int, Recording], step: int) -> Witness | None:
    """The first pass that begins with the gradient of another micro-batch; None where there is none, or nothing certain can be said."""
    made = [_Made(tensor, gradient, s, r.rank) for r in recordings.values() for s in stretches_of(r) for tensor, gradient in s.ends]
    begun = Counter(tensor for r in recordings.values() for stretch in stretches_of(r) for tensor, _ in stretch.begins)
    gradients = Counter(one.gradient for one in made)
    unclear = any(r.relabelled or any(s.overwritten or s.losses for s in stretches_of(r)) for r in recordings.values())
    if unclear or any(count > 1 for counts in (begun, gradients) for count in counts.values()):
        return None
    found = (_crossed(own, {one.gradient: one for one in made}, step) for own in recordings.values())
    return next((one for one in found if one is not None), None)


def _crossed(own: Recording, made: _All, step: int) -> Witness | None:
    """What shows that a rank's passes begin with the gradients of its tensors, each with one, and some with that of another one."""
    stretches = stretches_of(own)
    pairs = [s.begins[0] for s in stretches if len(s.begins) == 1]
    tensors, begun = ({*one} for one in zip(*pairs, strict=True)) if pairs else (set[str](), set[str]())
    of_own = {gradient: one.tensor for gradient, one in made.items() if one.tensor in tensors and one.rank != own.rank}
    if not len(stretches) == len(begun) == len(pairs) or of_own.keys() != begun or not read_by_updates(own) >= {*range(len(stretches))}:
        return None
    unread = tensors - {*of_own.values()}
    if unread and (_exchanges(own) or unread & ({value for value, _ in own.sent} | kept(own).later)):
        return None
    wrong = [n for n, (tensor, gradient) in enumerate(pairs) if of_own[gradient] != tensor and (tensor in unread or not unread)]
    return _witness(own, wrong[0], pairs, made, step) if wrong else None


def _exchanges(own: Recording) -> bool:
    """Whether a rank gives others something that is no gradient and no parameter otherwise than by sending it to one of them."""
    return any(e.group and e.kind not in ("send", "recv") and not e.states and e.phase != "setup" for e in own.events)


def _witness(own: Recording, turn: int, pairs: Sequence[tuple[str, str]], made: _All, step: int) -> Witness:
    tensor, gradient = pairs[turn]
    right = next((one for one in made.values() if one.tensor == tensor), None)
    source = next(n for n, (of, _) in enumerate(pairs) if made[gradient].tensor == of)
    begun = made[gradient].largest()
    wanted = 0.0 if right is None else right.largest()
    if right is None:
        seen = f"no rank is sent that tensor, so that no loss depends on it, and the largest element of what it begins with is {begun:.6g}"
    else:
        seen = f"the largest element of that one is {wanted:.6g}, and of the one with which the pass begins {begun:.6g}"
    other = "any other rank" if right is None else f"rank {right.rank}"
    return Witness.of(
        own,
        step,
        condition="gradient integrity",
        line=own.turns[turn].line,
        claim=f"backward pass {turn + 1} of rank {own.rank} begins with the gradient that {other} has made of the same tensor",
        seen=(
            seen,
            f"that is, bit for bit, the gradient of the tensor of pass {source + 1}: each one begins a pass, but not its own",
        ),
        numbers={"rank": own.rank, "pass": turn + 1, "of": source + 1, "largest": wanted, "largest_begun": begun},
        summary="a stage goes back through each micro-batch with the gradient of this one",
        remark="Send each micro-batch once, and receive gradients in the order in which the next stage sends them.",
    )
