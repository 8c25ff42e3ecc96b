"""Messages between pipeline stages, by induction over the stages.

A receive is taken to deliver what the reference has at the boundary of the stage; each send is then checked to send it. That is
an induction: the first stage (the last, for gradients) begins without a message, every other with what its neighbour has shown to
send. Where the check fails, the receive is taken to deliver numbers of which nothing is known, and the walk begins again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NoReturn

from placeproof.programs import Call
from placeproof.programs.losses import reduction
from placeproof.prove.terms import ONE, ZERO, App, Mono, Poly, Var, app, choose, product, same, substitute
from placeproof.semantics.encode.branches import Condition
from placeproof.semantics.encode.compute import Reduced, linear, sample_read
from placeproof.semantics.encode.context import Context
from placeproof.semantics.encode.values import Stream, Value, Whole
from placeproof.semantics.encode.world import CHANNEL_AT, TOKEN_AT

#: Stands for the reference's gradient in a multiple of it; of another loss, what its name ends with says which.
_GRADIENT = app("dx")


class AgainError(Exception):
    """What a receive was taken to deliver was wrong: the walk has to begin again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What receives from one direction are taken to deliver: a multiple of the reference's value, its tokens split or not; of gradients, a
    sum of multiples, each of one loss. Of what is not known yet, what the program's `loss` says is taken."""

    factor: Poly | None = None
    held: str | None = None
    known: bool = True
    tried: int = 0


@dataclass
class Messages:
    """What is taken of the receives, by direction: +1 for what comes from the stage before, -1 from the stage after. ``begun``: the
    multiple of the reference's gradient that the last stage begins with where the others receive."""

    taken: dict[int, Taken] = field(default_factory=lambda: defaultdict(Taken))
    inside: dict[int, set[tuple[str, ...]]] = field(default_factory=lambda: defaultdict(set))
    begun: Poly | None = None

    def _same_loops(self, ctx: Context, direction: int) -> bool:
        """Whether all sends and receives of one direction stand in the same loops, so that each meets its own."""
        met = self.inside[direction]
        met.add(tuple(v.name for v in ctx.loops))
        return len(met) == 1

    def receive(self, ctx: Context, call: Call) -> Stream:
        """The stream that a device receives."""
        direction = -call.steps
        taken = self.taken[direction]
        if not self._same_loops(ctx, direction) or not taken.known or not _between_stages(ctx, call, direction, 0 if direction > 0 else -1):
            return ctx.unknown_stream(taken.held)
        world, stage = ctx.world, ctx.world.stage
        sample = world.sample(ctx.batch)
        edge = world.rank(call.axes[0], 0 if direction > 0 else -1)
        if direction > 0:
            body = world.x(sample, world.start("stage", stage))
        else:
            end = world.end("stage", stage)
            body = _with_gradients(_factor(ctx, taken, direction), lambda of: world.dx(sample, end, of))
        stream = ctx.held_stream(body, taken.held)
        return stream.map(lambda b: choose(same(stage, edge), ctx.unknown(TOKEN_AT, CHANNEL_AT), b))

    def send(self, ctx: Context, call: Call, value: Whole) -> None:
        """Check that what is sent is what receives are taken to deliver."""
        direction = call.steps
        taken = self.taken[direction]
        together = self._same_loops(ctx, direction)
        if not taken.known:
            return
        sent = self._sent(ctx, value, direction)
        if not _between_stages(ctx, call, direction, -1 if direction > 0 else 0) or not together:
            self._again(direction, replace(taken, known=False))
        elif sent is None and direction < 0 and taken.factor is None and self.begun not in (None, _factor(ctx, taken, direction)):
            self._again(direction, replace(taken, factor=self.begun))
        elif sent is None:  # under sequence parallelism stages exchange their own tokens alone
            tried = ctx.world.hidden is None or taken.held is not None or taken.tried
            self._again(direction, replace(taken, known=False) if tried else replace(taken, held=ctx.world.hidden, tried=1))
        elif sent != (_factor(ctx, taken, direction), taken.held):
            factor, held = sent
            stage, at_last = ctx.world.stage, substitute(factor, ctx.world.at_rank(-1, call.axes))
            if taken.tried >= 2 or (isinstance(stage, Var) and stage.name in at_last.free):
                self._again(direction, replace(taken, known=False))
            self._again(direction, replace(taken, factor=at_last, held=held, tried=taken.tried + 1))

    def joined(self, ctx: Context, where: Condition, then: Value, other: Value) -> None:
        """A branch in which the last stage begins backward, and every other one receives: what is begun with is found."""
        world, (left, right, positive) = ctx.world, where
        last = then if positive else other
        if world.stages is None or (left, right) != (world.stage, world.rank(world.stages, -1)) or not isinstance(last, Stream):
            return
        there = world.at_rank(-1, (world.stages,))
        found = linear(ctx, last.map(lambda body: substitute(body, there)), world.sample(ctx.batch), world.output, _marker)
        self.begun = self.begun if found is None else found

    def _again(self, direction: int, taken: Taken) -> NoReturn:
        """Begin again, with something else taken of the receives."""
        self.taken[direction] = taken
        raise AgainError

    def _sent(self, ctx: Context, value: Whole, direction: int) -> tuple[Poly, str | None] | None:
        if not isinstance(value, Stream):
            return None
        world, stage = ctx.world, ctx.world.stage
        sample = world.sample(ctx.batch)
        if direction > 0:
            read = sample_read(ctx, value, "x", (world.end("stage", stage),))
            return (_GRADIENT, value.held) if read == sample else None
        factor = linear(ctx, value, sample, world.start("stage", stage), _marker)
        return None if factor is None else (factor, value.held)


def _marker(of: str) -> Poly:
    """What stands for the reference's gradient of a loss."""
    return app(f"dx{of}")


def _factor(ctx: Context, taken: Taken, direction: int) -> Poly:
    """The multiple that receives are taken to deliver."""
    losses = [call for call in ctx.world.program.calls if call.op == "loss"]
    if taken.factor is not None or direction > 0 or len(losses) != 1:
        return _GRADIENT if taken.factor is None else taken.factor
    loss, unit, summed = reduction(losses[0])
    of = Reduced(loss=loss, unit=unit, summed=summed)
    return product(ctx.world.counted(unit, ctx.world.sample(ctx.batch)) if summed else ONE, app(f"dx{of.of}"))


def _with_gradients(body: Poly, make: Callable[[str], Poly]) -> Poly:
    """A sum of factors of gradients, with these gradients."""
    parts = []
    for mono, number in body.terms:
        (marker,) = (a for a, _ in mono.factors if isinstance(a, App) and a.name.startswith("dx"))
        rest = Mono({a: n for a, n in mono.factors if a != marker}, mono.guards)
        parts.append(product(Poly({rest: number}), make(marker.name.removeprefix("dx"))))
    return sum(parts, ZERO)


def _between_stages(ctx: Context, call: Call, direction: int, edge: int) -> bool:
    """Whether a message goes from stage to stage, and every condition around only leaves out the stage without a neighbour there."""
    stage, known = ctx.world.stage, call.axes[0] == ctx.world.stages and direction in (1, -1)
    without = ctx.world.rank(call.axes[0], edge) if known else None
    return known and all(not positive and left == stage and right == without for left, right, positive in ctx.conditions)
