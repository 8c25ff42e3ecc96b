"""Layers that are shared out over the stages of plans, as a part of what is told of plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from placeproof.core.stages import stages_text
from placeproof.planning.exact import Placed, Plan
from placeproof.planning.task import Task
from placeproof.planning.uneven import Uneven
from placeproof.report.document import Notes, Section, Table, section
from placeproof.report.placed import FITS, fits, in_words, layers_of, placed_data, plan_data
from placeproof.report.units import giga, percent, seconds_text


class Told(Protocol):
    """What is told of plans."""

    @property
    def task(self) -> Task:
        """What was asked."""

    @property
    def plans(self) -> Sequence[Plan]:
        """The best ones."""

    @property
    def verdicts(self) -> Mapping[str, str]:
        """By the strategy of a plan, with open degrees."""

    @property
    def uneven(self) -> Sequence[Uneven]:
        """The best layers of stages."""


def sections(found: Told) -> Iterator[Section]:
    """The best layers of stages: a row for each plan that these make faster, and why there is none for others."""
    better = sorted(((one, one.best) for one in found.uneven if one.best is not None), key=lambda each: each[1].seconds)
    others: dict[str, list[str]] = {}
    for one in found.uneven:
        if why := one.because or ("" if one.best is not None else _not_better(one)):
            others.setdefault(why, []).append(str(_number(found, one) or in_words(one.of)))
    notes = [f"{', '.join(names)}: {why}" for why, names in others.items()]
    if better:
        rows: list[tuple[str, ...]] = [(str(number), *_row(found, *each)) for number, each in enumerate(better, 1)]
        told = [
            f"stages, recompute: the best of all ways to share out {sum(layers_of(better[0][1]))} layers over the stages of a plan; of that"
            " plan, not of the grid",
            "less: than that plan with as many layers in each stage, where it fits",
        ]
        head: tuple[str, ...] = ("", "plan", "step", "less", "gap", "GB", "fits", "stages", "recompute")
        if all(one.optimal for one, _ in better):
            rows, head = [(*row[:4], *row[5:]) for row in rows], (*head[:4], *head[5:])
        else:
            told.append("gap: how much less another way could take at most, where not all could be ruled out")
        numbers = [i for i, name in enumerate(head) if name not in ("fits", "stages", "recompute")]
        yield section("layers shared out over stages", Table(rows, head, numbers), Notes([*told, *notes]))
        texts = [(str(n), found.verdicts[one.of.point.structure], in_words(best)) for n, (one, best) in enumerate(better, 1)]
        yield section("strategies of these", Table(texts, ("", "verdict", "strategy"), (0,)))
    elif notes:
        yield section("layers shared out over stages: nothing is better", Notes(notes))


def _number(found: Told, one: Uneven) -> int | None:
    """Of a plan in the list."""
    return next((number for number, plan in enumerate(found.plans, 1) if plan is one.of), None)


def _row(found: Told, one: Uneven, best: Placed) -> tuple[str, ...]:
    return (
        str(_number(found, one) or ""),
        seconds_text(best.seconds),
        percent(1 - best.seconds / one.of.seconds) if one.of.fits else "",
        "" if one.optimal or one.least is None else percent(1 - one.least / best.seconds),
        giga(best.most),
        FITS[fits(best)],
        stages_text(layers_of(best)),
        best.recompute,
    )


def _not_better(one: Uneven) -> str:
    if one.least is None:
        return "no way to share out its layers fits"
    if one.optimal:
        return "no way to share out its layers is better"
    return f"no better way to share out its layers was found, and none takes less than {seconds_text(one.least)}"


def data(found: Told, one: Uneven) -> dict[str, Any]:
    """The best layers of one plan's stages in JSON."""
    best = one.best
    return {
        "plan": _number(found, one),
        "of": plan_data(found.task, one.of, found.verdicts),
        "because": one.because or None,
        "best": None if best is None else {**placed_data(found.task, best), "stages": layers_of(best)},
        "least": one.least,
        "optimal": one.optimal if not one.because else None,
        "tried": one.tried,
    }
