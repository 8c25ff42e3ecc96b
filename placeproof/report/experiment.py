"""Experiments as a document, the schema ``placeproof.experiment/1`` and its text, and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from placeproof.measure.experiments.experiment import UNITS, Experiment, Line
from placeproof.report.document import Code, Document, Notes, Section, section
from placeproof.report.pictures.bars import Bar, BarRow, Panel, svg
from placeproof.report.text import columns

SCHEMA = "placeproof.experiment/1"
_SERIES = ("closed form", "predicted", "measured")


def figure(line: Line, value: Fraction | None) -> str:
    """A number of the line, with as many digits as its unit deserves; a dash where there is none."""
    if value is None:
        return "-"
    if line.unit == "difference":
        return f"{float(value):.1e}" if value else "0"
    return f"{float(value):.7f}".rstrip("0").rstrip(".") if value.denominator > 1 else str(value)


def _expected(line: Line) -> str:
    return ("<= " if line.bound else "") + figure(line, line.predicted)


def document(made: Sequence[Experiment], torch: str) -> Document:
    """Every experiment as a table, each with what was asked and why predictions depart from closed forms; then the outcome in a line.

    In data, numbers are exact fractions, as texts.
    """
    return Document(name="experiments", sections=lambda: _sections(made, torch), data=lambda: _all_data(made, torch))


def _sections(made: Sequence[Experiment], torch: str) -> Iterator[Section]:
    yield section(_outcome(made, torch), detail="answer")
    for one in made:
        yield section(f"{one.name}: {one.title}", Notes(one.says))
        yield section("", Code([*_block(one)]))


def _outcome(made: Sequence[Experiment], torch: str) -> str:
    lines = [line for one in made for line in one.lines]
    wrong = sum(not line.holds for line in lines)
    verdict = f"{wrong} of {len(lines)} lines differ" if wrong else f"all {len(lines)} lines hold"
    return f"{verdict}, with torch {torch}, in {sum(one.seconds for one in made):.0f} s"


def _block(experiment: Experiment) -> Iterator[str]:
    notes = list(dict.fromkeys(line.note for line in experiment.lines if line.note and (line.departs or not line.holds)))
    head, *rows = columns([("", *_SERIES), *(_row(line, notes) for line in experiment.lines)], (1, 2, 3), "    ")
    yield head
    how = ""
    for line, row in zip(experiment.lines, rows, strict=True):
        if line.how != how:
            how = line.how
            yield f"  {how}"
        yield row
        yield from _in_full(line)
    yield from (f"  ({number}) {note}" for number, note in enumerate(notes, start=1))


def _row(line: Line, notes: list[str]) -> tuple[str, str, str, str, str]:
    mark = f" ({notes.index(line.note) + 1})" if line.note in notes and (line.departs or not line.holds) else ""
    verdict = ("holds" if line.holds else "differs") + mark
    return line.what, figure(line, line.ideal), _expected(line), figure(line, line.measured), verdict


def _in_full(line: Line) -> Iterator[str]:
    """The exact numbers where a line does not hold: rounded, they may look alike."""
    if not line.holds:
        yield f"      exactly: closed form {line.ideal}, predicted {line.predicted}, measured {line.measured}"


# As data.


def _all_data(made: Sequence[Experiment], torch: str) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "torch": torch,
        "holds": all(one.holds for one in made),
        "experiments": [
            {
                "name": one.name,
                "title": one.title,
                "says": list(one.says),
                "seconds": round(one.seconds, 3),
                "holds": one.holds,
                "lines": [_data(line) for line in one.lines],
            }
            for one in made
        ],
    }


def _data(line: Line) -> dict[str, Any]:
    return {
        "what": line.what,
        "unit": line.unit,
        "ideal": None if line.ideal is None else str(line.ideal),
        "predicted": str(line.predicted),
        "bound": line.bound,
        "measured": None if line.measured is None else str(line.measured),
        "how": line.how,
        "note": line.note,
        "holds": line.holds,
    }


# As a picture.


def picture(made: Sequence[Experiment], torch: str) -> str:
    """The experiments as bars, in SVG: a panel for each experiment and unit."""
    panels = [
        Panel(
            title=f"{one.name}: {one.title}",
            axis=UNITS[unit],
            rows=tuple(_bars(line) for line in one.lines if line.unit == unit),
            log=unit == "difference",
        )
        for one in made
        for unit in dict.fromkeys(line.unit for line in one.lines)
    ]
    return svg(_outcome(made, torch), _SERIES, panels)


def _bars(line: Line) -> BarRow:
    numbers = ((line.ideal, figure(line, line.ideal)), (line.predicted, _expected(line)), (line.measured, figure(line, line.measured)))
    shown = [Bar(series=i, value=None if n is None else float(n), text=label) for i, (n, label) in enumerate(numbers)]
    return BarRow(label=line.what, bars=tuple(bar for bar in shown if bar.series or line.ideal is not None))
