"""Models of which some weights are not trained (Lee, Tang and Lin 2019): blocks that have no gradients of these.

What only the gradients of frozen weights needed is left out. A block before which nothing is trained, and that has nothing to train itself,
has no backward: it keeps nothing, and no gradient goes through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from placeproof.core.diagnostics import refuse
from placeproof.models.expressions import expression
from placeproof.models.family import ROUTER
from placeproof.models.model import Block, Model, Segment
from placeproof.models.programs import WIRES, rows_reached, weights, without_gradients
from placeproof.programs import read, render

#: What is frozen, by the word of the strategy's option: what is before the layers, what is before and behind them, or what chooses experts.
PARTS = ("embedding", "ends", "router")
#: The symbol of the number of layers that are trained, and what the name of those ends in that are frozen.
TRAINED, _FROZEN = "L_trained", "_frozen"


def frozen(model: Model, part: str = "embedding", layers: int | None = None) -> Model:
    """The model with one of :data:`PARTS` frozen, and all that is before its last ``layers`` layers; of a model that has no more, none is.

    A tensor that several parts share is frozen where one of them is. Raises InputError where that is nothing, or all of the model, and
    where layers are divided that are repeated in turn.
    """
    model = model if layers is None else _divided(model, layers)
    before = model.segments
    every = {(s.name, b.name, w) for s, b, w in _weights(before)}
    named = {(s.name, b.name, w) for s, b, w in _weights(before) if _names(part, s, b, w, before)}
    shared = {w for _, _, w in named if w in model.shared}
    named |= {one for one in every if one[2] in shared}
    if not named or named == every:
        what = "no parameters" if not named else "all parameters, so that nothing is trained,"
        refuse("PP122", f"{model.name} has {what} where `parts={part}` freezes", help="one of " + ", ".join(PARTS))
    return replace(model, segments=tuple(_changed(before, named)))


def _divided(model: Model, layers: int) -> Model:
    """The model with the layers in which the last ones begin as two segments: those that are frozen, and those that are trained. One that
    has no more layers is left as it is, which its note says."""
    times = model.times()
    repeated = [s for s in model.segments if _repeats(s)]
    there = sum(times[s.name] for s in repeated)
    if isinstance(there, int) and layers >= there:
        said = f"Of the last {layers} layers that are trained, the model has {there}."
        return replace(model, note=" ".join(filter(None, (model.note, said)))) if layers > there else model
    behind: list[Segment] = []
    while True:
        divided = repeated.pop()
        if divided.in_turn:
            message = f"layers of {model.name} are of several kinds in turn: that the last ones alone are trained is not derived"
            refuse("PP122", message, help="leave `layers` out: `freeze(parts=ends)`")
        number = times[divided.name]
        if not isinstance(number, int) or layers <= number + sum(times[s.name] for s in behind):
            break
        behind.append(divided)
    trained = " - ".join([TRAINED, *(f"({s.times})" for s in behind)])
    halves = (
        replace(divided, name=f"{divided.name}{_FROZEN}", times=expression(f"{divided.times} - ({trained})")),
        replace(divided, times=expression(trained)),
    )
    segments = tuple(one for s in model.segments for one in (halves if s is divided else (s,)))
    return replace(model, segments=segments).resized({TRAINED: layers})


def _repeats(segment: Segment) -> bool:
    return str(segment.times) != "1"


def _weights(segments: tuple[Segment, ...]) -> Iterator[tuple[Segment, Block, str]]:
    for segment in segments:
        yield from ((segment, block, w.name) for block in segment.blocks for w in block.weights)


def _names(part: str, segment: Segment, block: Block, weight: str, segments: tuple[Segment, ...]) -> bool:
    """Whether a weight is frozen: as it is of all parts up to the layers that were divided from others to be frozen."""
    repeated = [number for number, one in enumerate(segments) if _repeats(one)]
    number = segments.index(segment)
    if any(one.name.endswith(_FROZEN) for one in segments[number:]):
        return True
    match part:
        case "embedding":
            return number < repeated[0]
        case "ends":
            return not _repeats(segment)
        case "router":
            return block.groups[weight] == ROUTER
    return False


def _changed(segments: tuple[Segment, ...], named: set[tuple[str, str, str]]) -> Iterator[Segment]:
    passed = True  # whether nothing before is trained
    for segment in segments:
        own = {b.name: frozenset(w.name for w in b.weights if (segment.name, b.name, w.name) in named) for b in segment.blocks}
        passed = passed and all(own[b.name] == {w.name for w in b.weights} for b in segment.blocks)
        yield replace(segment, blocks=tuple(_block(b, own[b.name], passed) for b in segment.blocks))


def _block(block: Block, frozen: frozenset[str], passed: bool) -> Block:
    """A block without the gradients by what is frozen in it; ``passed``: without any."""
    if not (frozen or passed):
        return block
    program = without_gradients(block.program, frozen | {*WIRES.values()} if passed else frozen)
    name = f"{block.name}_{'forward' if passed else 'frozen'}"
    program = read(render(replace(program, name=name)), source=f"{name}.step")
    return replace(block, name=name, program=program, weights=weights(program), reached=rows_reached(program), frozen=frozen)
