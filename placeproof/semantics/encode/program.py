"""The obligations of a whole program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from placeproof.core.diagnostics import Place
from placeproof.programs import Assign, Resolved, Stmt, statements
from placeproof.prove import Given
from placeproof.prove.terms import Poly, substitute
from placeproof.prove.terms.limit import limited
from placeproof.semantics.encode.causes import not_gathered
from placeproof.semantics.encode.context import CONSISTENCY, INVARIANT, Context, NoMeaningError, Obligation, written_out
from placeproof.semantics.encode.execute import Walk
from placeproof.semantics.encode.messages import AgainError, Messages
from placeproof.semantics.encode.scope import Scope
from placeproof.semantics.encode.values import Tensor, Value
from placeproof.semantics.encode.world import Options, World


@dataclass(frozen=True, slots=True)
class Line:
    """A statement in no loop, and what buffers hold after it."""

    stmt: Stmt
    after: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """A program's obligations, in the order in which a device comes to them, and what they assume of degrees; what each line leaves."""

    program: Resolved
    options: Options
    obligations: tuple[Obligation, ...]
    given: tuple[Given, ...]
    warnings: tuple[tuple[str, Place | None], ...]
    lines: tuple[Line, ...]


@limited()
def encode(program: Resolved, options: Options | None = None) -> Encoding:
    """The obligations of a program.

    Raises :class:`NoMeaningError` for operations that the encoding gives no meaning to.
    """
    chosen = options or Options(without=frozenset(program.without))
    if program.not_spoken_of is not None:
        raise NoMeaningError(*program.not_spoken_of)
    messages = Messages()
    while True:
        ctx = Context(World(program, chosen))
        with suppress(AgainError), written_out(ctx):
            walk, lines = Walk(ctx, messages), []
            for stmt in program.body:
                walk.statement(stmt, Scope())
                lines.append(Line(stmt, dict(walk.env)))
            _after_the_step(walk)
            _warn_of_clipping(ctx)
            break
    obligations, warnings = tuple(_distinct(ctx.obligations)), tuple(dict.fromkeys(ctx.warnings))
    return Encoding(program=program, options=chosen, obligations=obligations, given=ctx.given(), warnings=warnings, lines=tuple(lines))


def _distinct(obligations: list[Obligation]) -> Iterable[Obligation]:
    """Obligations without repetitions of the same claim about the same line."""
    distinct: dict[tuple[object, ...], Obligation] = {}
    for one in obligations:
        distinct.setdefault((one.name, one.place, one.claim.left, one.claim.right, one.claim.given), one)
    return distinct.values()


def _after_the_step(walk: Walk) -> None:
    """The states lie as placed, copies agree with what was written, and all equal the reference."""
    ctx, world = walk.ctx, walk.world
    for state in ("parameters", "optimizer"):
        value = walk.env[state]
        every = list(statements(walk.program.body))
        ctx.place = ([s for s in every if isinstance(s, Assign) and any(t.name == state for t in s.targets)] or every)[-1].place
        for group in world.groups if state == "parameters" else world.program.trained:
            piece = value.pieces.get(group) if isinstance(value, Tensor) else None
            body = piece.body if piece is not None else ctx.unknown_of(group)
            of = "" if world.groups == ("all",) else f" ({group})"
            for at in ctx.owner_of(group, walk.placed(state, group)):
                if state == "parameters" and group in ctx.written:
                    name = f"every copy of the parameters is what its update wrote{of}"
                    parts = not_gathered(world, ctx.written[group][1], walk.placed(state, group), substitute(body, at))
                    ctx.require(name, CONSISTENCY, body, _by_owner(walk, group), at, parts)
                ctx.require(f"{state} after the step are the reference's{of}", INVARIANT, body, walk.reference.updated(state, group), at)


def _warn_of_clipping(ctx: Context) -> None:
    """Say that the step does not clip as the reference does: that is a function of its own, whatever else comes to the same numbers."""
    program = ctx.world.program
    if "clip" in dict(program.reference) and not any(c.op == "clip_factor" for c in program.calls):
        own = "to a proof it is another function than `min(1, limit / norm)`"
        ctx.warnings.append((f"the reference clips by `clip_factor`, which this step does not call: {own}", None))


def _by_owner(walk: Walk, group: str) -> Poly:
    """What the owner of an element, or the first of its owners, wrote."""
    value, held = walk.ctx.written[group]
    (at, *_) = walk.ctx.owner_of(group, held)
    return substitute(substitute(value, at), walk.world.at_rank(0, walk.world.here))
