"""Gradients that go back to another micro-batch: a witness, from real processes, that stages of a pipeline train with no derivative.

A gradient that a stage makes of a tensor that it has received is the derivative of losses by this tensor, whatever they are multiplied by;
where the tensor was computed, backward has to begin with it. Here each gradient that is made begins one pass, bit for bit, but that of a
tensor that another one was made of: a permutation of what is right, which is no clipping, compression, noise or delay, and which no rate
and no factor makes right. Each tensor is received once and differentiated once, and the update reads the gradients of these passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from placeproof.measure.record.recording import Recording, Stretch
from placeproof.measure.record.sides import read_by_updates, stretches_of
from placeproof.measure.record.witness import Witness


def crossed(recordings: Mapping[int, Recording], step: int) -> Witness | None:
    """The first pass that begins with the gradient of another micro-batch; None where there is none, or nothing certain can be said."""
    ends = [(r, stretch, *end) for r in recordings.values() for stretch in stretches_of(r) for end in stretch.ends]
    tensors, gradients = (Counter(one[n] for one in ends) for n in (2, 3))
    unclear = any(r.relabelled or any(s.overwritten or s.losses for s in stretches_of(r)) for r in recordings.values())
    begun = Counter(tensor for r in recordings.values() for stretch in stretches_of(r) for tensor, _ in stretch.begins)
    if unclear or any(count > 1 for counts in (tensors, gradients, begun) for count in counts.values()):
        return None
    made = {tensor: (gradient, stretch, r) for r, stretch, tensor, gradient in ends}
    for own in recordings.values():
        found = _crossed(own, made)
        if found is not None:
            return _witness(own, found, made, step)
    return None


#: Of a tensor that a stage has received: the gradient that it has made of it, in which pass, and which rank it is.
_Made = Mapping[str, tuple[str, Stretch, Recording]]


def _crossed(own: Recording, made: _Made) -> int | None:
    """The first pass of a rank that begins with the gradient of another tensor, where its passes together begin with those of all."""
    stretches = stretches_of(own)
    pairs = [s.begins[0] for s in stretches if len(s.begins) == 1]
    if len(pairs) < len(stretches) or not pairs or any(tensor not in made or made[tensor][2] is own for tensor, _ in pairs):
        return None
    right = [made[tensor][0] for tensor, _ in pairs]
    wrong = [n for n, (gradient, (_, begun)) in enumerate(zip(right, pairs, strict=True)) if gradient != begun]
    permuted = {*right} == {begun for _, begun in pairs}
    return wrong[0] if wrong and permuted and read_by_updates(own) >= {*range(len(stretches))} else None


def _witness(own: Recording, turn: int, made: _Made, step: int) -> Witness:
    stretches = stretches_of(own)
    tensor, gradient = stretches[turn].begins[0]
    right, stretch, other = made[tensor]
    source = next(n for n, s in enumerate(stretches) if made[s.begins[0][0]][0] == gradient)
    values = [max(found.tolist(), key=abs) for found in (stretch.gradients[right], stretches[turn].gradients[gradient])]
    return Witness.of(
        own,
        step,
        condition="gradient integrity",
        line=own.turns[turn].line,
        claim=f"backward pass {turn + 1} of rank {own.rank} begins with the gradient that rank {other.rank} has made of the same tensor",
        seen=(
            f"the largest element of that one is {values[0]:.6g}, and of the one with which the pass begins {values[1]:.6g}",
            f"that is, bit for bit, the gradient of the tensor of pass {source + 1}: each one that was made begins a pass, but not its own",
        ),
        numbers={"rank": own.rank, "pass": turn + 1, "of": source + 1, "largest": values[0], "largest_begun": values[1]},
        summary="a stage goes back through each micro-batch with the gradient of this one",
        remark="Receive gradients in the order in which the next stage sends them.",
    )
