"""Which devices send what in an operation, and what share of all devices they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from placeproof.core.diagnostics import refuse
from placeproof.cost.step.amounts import Amounts
from placeproof.cost.step.devices import Condition, branches, condition
from placeproof.cost.step.unrolled import Sent, Unrolled
from placeproof.programs import Expr, If
from placeproof.semantics.values import Event

if TYPE_CHECKING:
    import sympy


def hops(event: Event) -> Expr | None:
    """How often, over all devices, something is handed on for each micro-batch; None where the branches around it say so."""
    return next((loop.hops for loop in event.loops if loop.hops is not None), None) if event.call.op == "send" else None


def shares(event: Event, amounts: Amounts, runs: tuple[Unrolled, ...]) -> Iterator[tuple[Sent, sympy.Expr]]:
    """What devices send in an operation, each with the share of devices that send it."""
    often = hops(event)
    around = {
        condition(b): (b, taken)
        for b, taken in event.branches
        if b.axis not in amounts.inside and (often is None or b.axis not in event.call.axes)
    }
    scale = amounts.one if often is None else amounts.scalar(often) / amounts.devices(event.call.axes)
    inside = [run for run in runs if all(run.taken[condition(b)] is taken for b, taken in event.branches)]
    by_kind = _together(event, inside, amounts)
    deciding = _deciding(by_kind, set(around))
    done = set()
    for outcome, sent in by_kind:
        chosen = tuple((c, outcome[c]) for c in deciding)
        if chosen in done or not sent:
            continue
        done.add(chosen)
        every = branches(amounts.program)
        taken: list[tuple[If, bool]] = [*around.values(), *((every[c], yes) for c, yes in chosen)]
        yield sent, scale * amounts.share(taken)


def _together(event: Event, runs: list[Unrolled], amounts: Amounts) -> list[tuple[dict[Condition, bool], Sent]]:
    """What each kind of device sends. All devices of a group enter a collective, also those that have nothing to give to it."""
    axes = set(amounts.program.factors(*event.call.axes)) if event.call.op != "send" else set()
    outcomes: dict[tuple[tuple[Condition, bool], ...], tuple[dict[Condition, bool], Sent]] = {}
    for run in runs:
        outcome = {c: yes for c, yes in run.taken.items() if not axes & set(amounts.program.factors(c[0]))}
        sent = run.sent.get(id(event.call), {})
        _, before = outcomes.get(tuple(outcome.items()), (outcome, {}))
        if before and sent and before != sent:
            message = f"the devices that meet in this `{event.call.op}` hold other widths or layouts: what it costs is not derived"
            help = "give all of them the same kind of value"
            refuse("PP310", message, place=event.call.place, help=help)
        outcomes[tuple(outcome.items())] = (outcome, sent or before)
    return list(outcomes.values())


def _deciding(by_kind: list[tuple[dict[Condition, bool], Sent]], around: set[Condition]) -> list[Condition]:
    """Conditions that are enough to tell what a device sends: as few as leaving out one after the other gives."""
    deciding = [c for c in (by_kind[0][0] if by_kind else ()) if c not in around]
    for left_out in tuple(deciding):
        fewer = [c for c in deciding if c != left_out]
        sent: dict[tuple[bool, ...], Sent] = {}
        if all(sent.setdefault(tuple(outcome[c] for c in fewer), own) == own for outcome, own in by_kind):
            deciding = fewer
    return deciding
