"""The answers of a sweep as a document."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from placeproof.core.stages import stages_text
from placeproof.report.document import Document, Notes, Section, Table, section
from placeproof.report.units import seconds_text

#: Columns of a terminal.
WIDTH = 80
_HEAD = ("", "question, best plan", "step", "tokens/s", "fits", "verdict")
_BATCH = {"global_batch": "sequences", "tokens": "tokens"}


def document(rows: Sequence[Mapping[str, Any]], name: str, schema: str) -> Document:
    """All answers, in the order of their questions. ``name``: of the sweep."""
    return Document(name=name, sections=lambda: _sections(rows, name), data=lambda: {"schema": schema, "rows": [*rows]})


def _sections(rows: Sequence[Mapping[str, Any]], name: str) -> Iterator[Section]:
    failed = sum(row["failure"] is not None for row in rows)
    cannot = sum(row["cannot"] is not None for row in rows)
    nothing = sum(row["plan"] is not None and best(row) is None for row in rows)
    counts = (
        (len(rows) - failed - cannot - nothing, "with plans"), (nothing, "where nothing fits"), (cannot, "that cannot be"),
        (failed, "without an answer"),
    )  # fmt: skip
    title = f"{name}, {len(rows):,} question{'' if len(rows) == 1 else 's'}: "
    first, *others = [row["question"] for row in rows]
    common = {key: value for key, value in first.items() if others and all(one.get(key) == value for one in others)}
    figures = [_figures(row) for row in rows]
    rest = [max(map(len, column)) for column in zip(_HEAD[2:], *figures, strict=True)]
    width = max(30, WIDTH - len(f"  {len(rows)}") - sum(2 + n for n in rest) - 2)
    lines = [line for row, cells in zip(rows, figures, strict=True) for line in _lines(row, common, cells, width)]
    notes = ["tokens/s: a second and device"]
    if said := _options(common):
        notes += textwrap.wrap(f"of all questions: {', '.join(said)}", WIDTH - 2)
    yield section(title + ", ".join(f"{n:,} {what}" for n, what in counts if n), Table(lines, _HEAD, (0, 2, 3)), Notes(notes))


def _lines(row: Mapping[str, Any], common: Mapping[str, Any], cells: tuple[str, ...], width: int) -> Iterator[tuple[str, ...]]:
    """The lines of the table that a question has: its own, as many as it takes, and below them its plan, or why there is none."""
    question: Mapping[str, Any] = row["question"]
    said = f"{question.get('model')}, {question.get('devices')} of {question.get('cluster')}"
    batch = (f"{question[key]} {what}" for key, what in _BATCH.items() if key in question)
    own = {key: value for key, value in question.items() if key not in common}
    first, *more = textwrap.wrap(", ".join([said, *batch, *_options(own)]), width)
    yield str(row["number"]), first, *cells
    for line in [*more, *textwrap.wrap(answer_text(row), WIDTH - 8)]:
        yield "", line


def _options(values: Mapping[str, Any]) -> list[str]:
    """Options, but for those that every question says, as the sweep's file has them."""
    shown = {key: (" ".join(value) or "none") if isinstance(value, list) else value for key, value in values.items()}
    return [f"{key} {value}" for key, value in shown.items() if key not in ("model", "devices", "cluster", *_BATCH)]


def answer_text(row: Mapping[str, Any]) -> str:
    """The best plan; or why there is none."""
    if row["failure"] is not None:
        return f"no answer: {row['failure']}"
    if row["cannot"] is not None:
        return f"cannot be: {row['cannot']}"
    if (plan := best(row)) is not None:
        stages = f"stages {stages_text(plan['stages'])}, " if "stages" in plan else ""
        return f"{plan['strategy']}, b = {plan['b']}, m = {plan['m']}, {stages}recompute {plan['recompute']}"
    least, reasons = row["plan"]["least"], [one["reason"] for one in row["plan"]["reasons"]]
    why = f": {'; '.join(reasons)}" if reasons else "" if least else ": no point of the grid keeps all rules"
    return f"nothing fits{why}"


def _figures(row: Mapping[str, Any]) -> tuple[str, ...]:
    if (plan := best(row)) is None:
        return "", "", "" if row["plan"] is None else "no", ""
    speed = "" if plan["tokens"] is None else f"{plan['tokens']:,.0f}"
    return seconds_text(Fraction(plan["seconds"])), speed, {True: "yes", False: "no", None: "?"}[plan["fits"]], plan["verdict"]


def best(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The best plan of an answer, also one whose layers are shared out over its stages; None where there is none."""
    if (plan := row["plan"]) is None:
        return None
    shared = ({**one["best"], "verdict": one["of"]["verdict"]} for one in plan.get("uneven", ()) if one["best"] is not None)
    return min((*plan["plans"][:1], *shared), key=lambda one: Fraction(one["seconds"]), default=None)
