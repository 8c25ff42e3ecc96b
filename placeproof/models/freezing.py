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
#: The symbol of the number of layers that are trained.
TRAINED = "L_trained"


def frozen(model: Model, part: str = "embedding", layers: int | None = None) -> Model:
    """The model with one of :data:`PARTS` frozen, and all that is before the last ``layers`` repetitions of its last layers.

    A tensor that several parts share is frozen where one of them is. Raises InputError where that is nothing, or all of the model, for more
    layers than the last of its segments has, and where that one is repeated in turn with others.
    """
    before = tuple(model.segments if layers is None else _divided(model))
    if layers is not None:
        model = replace(model, segments=before).resized({TRAINED: layers})
        model.times()
    every = {(s.name, b.name, w) for s, b, w in _weights(before)}
    named = {(s.name, b.name, w) for s, b, w in _weights(before) if _names(part, layers is not None, s, b, w, before)}
    shared = {w for _, _, w in named if w in model.shared}
    named |= {one for one in every if one[2] in shared}
    if not named or named == every:
        what = "no parameters" if not named else "all parameters, so that nothing is trained,"
        refuse("PP122", f"{model.name} has {what} where `parts={part}` freezes", help="one of " + ", ".join(PARTS))
    return replace(model, segments=tuple(_changed(before, named)))


def _divided(model: Model) -> Iterator[Segment]:
    """Its segments, the last that is repeated as two: the layers that are frozen, and those that are trained."""
    last = next(s for s in reversed(model.segments) if _repeats(s))
    if last.in_turn:
        message = f"layers of {model.name} are of several kinds in turn: that the last ones alone are trained is not derived"
        refuse("PP122", message, help="leave `layers` out: `freeze(parts=ends)`")
    for segment in model.segments:
        if segment is last:
            yield replace(segment, name=f"{segment.name}_frozen", times=expression(f"{segment.times} - {TRAINED}"))
            yield replace(segment, times=expression(TRAINED))
        else:
            yield segment


def _repeats(segment: Segment) -> bool:
    return str(segment.times) != "1"


def _weights(segments: tuple[Segment, ...]) -> Iterator[tuple[Segment, Block, str]]:
    for segment in segments:
        yield from ((segment, block, w.name) for block in segment.blocks for w in block.weights)


def _names(part: str, above: bool, segment: Segment, block: Block, weight: str, segments: tuple[Segment, ...]) -> bool:
    """Whether a weight is frozen. ``above``: the layers that are trained stand by themselves, the last that are repeated."""
    repeated = [number for number, one in enumerate(segments) if _repeats(one)]
    number = segments.index(segment)
    if above and number < repeated[-1]:
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
