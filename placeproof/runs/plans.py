"""Tables of measured steps: text with commas, a step each row. Everything wrong with one is reported at once, with its line and column.

The first row names the columns: ``strategy``, and ``ms`` or ``seconds``, the measured time of a step; words of how it was run (``model``,
``precision``, ``implementation``, ``recompute``, ``overlap``, ``cluster``, ``fp8``), where they are not the same for all; ``name``;
``stages``, the layers of each, as ``--stages`` takes them; and symbols that are set, such as ``b`` and ``m``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from placeproof.core import files
from placeproof.core.diagnostics import Diagnostic, Place, Problems, suggestion
from placeproof.core.stages import stage_layers
from placeproof.core.symbols import info
from placeproof.runs.measured import MeasuredRun, RunAs

MANUAL = "docs/how-to/calibrate.md shows such a file"
#: Columns that hold the time of a step -> how many of them a second has.
UNITS_OF_TIME = {"ms": 1000, "seconds": 1}
#: Symbols of a device, which a cluster says.
_OF_A_CLUSTER = ("eta", "F_peak", "F_fp8", "B_mem", "t_k")
#: Columns of words.
_WORDS = ("model", "precision", "implementation", "recompute", "overlap", "cluster", "fp8")
_NUMBER = re.compile(r"(?:[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})(?:[eE][-+]?[0-9]{1,2})?")
_COUNT = re.compile(r"[1-9][0-9]{0,8}")
#: Steps of a table, at most: each is derived.
MOST = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """A row of a table. ``cells``: texts by the names of their columns; ``columns``: where each begins, from 1."""

    source: str
    line: int
    text: str
    cells: Mapping[str, str]
    columns: Mapping[str, int]

    def place(self, column: str = "") -> Place:
        """Where a cell stands, or the row."""
        length = max(1, len(self.cells[column])) if column else max(1, len(self.text))
        return Place(source=self.source, line=self.line, column=self.columns.get(column, 1), length=length, text=self.text)

    def placed(self, problem: Diagnostic) -> Diagnostic:
        """What is wrong with what a row says, at the cell that says it."""
        said = problem.place
        name = said.text.partition("=")[0] if said is not None and said.source == "--set" else ""
        return replace(problem, place=self.place(name if name in self.cells else self.blamed(problem.message)))

    def blamed(self, message: str) -> str:
        """The column whose text, or whose symbol, a message speaks of in quotes; else the strategy's."""
        named = re.findall(r"`([^`]*)`", message)
        return next((c for name in named for c, cell in self.cells.items() if name and name in (cell, c)), "strategy")


def read_plans(path: str | Path, run_as: RunAs, settings: Sequence[str] = (), source: str = "") -> tuple[tuple[MeasuredRun, PlanRow], ...]:
    """The steps of a table, each with its row. ``run_as``, ``settings``: what is the same for all of them; a model may be left open there.

    Raises InputError with all that is wrong with the table. What a strategy or a model is, is looked at when it is derived.
    """
    text = files.read_text(path, code="PP110", help="give the path of a readable table of steps")
    problems = Problems()
    rows = tuple(_rows(text, source or str(path), problems))
    if rows:
        _check_columns(rows[0], run_as, settings, problems)
    problems.raise_if_any()
    found = tuple((_run(row, run_as, settings, problems), row) for row in rows[1:])
    if not found:
        place = Place(source=source or str(path), line=1, column=1, text=text.partition("\n")[0])
        problems.add("PP113", "there is no measured step", place=place, help=f"add a row for each; {MANUAL}")
    problems.raise_if_any()
    return found


def _rows(text: str, source: str, problems: Problems) -> Iterator[PlanRow]:
    """The rows that are not empty; the first one's cells are the names of the columns."""
    names: list[str] | None = None
    lines = [(n, line) for n, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1) if line.strip()]
    if len(lines) > MOST + 1:
        place = Place(source=source, line=lines[MOST + 1][0], column=1)
        problems.add("PP112", f"a table has at most {MOST:,} steps", place=place, help="leave out the others")
        return
    for number, line in lines:
        place = Place(source=source, line=number, column=1, length=len(line), text=line)
        try:
            cells = next(csv.reader([line], strict=True))
        except csv.Error as error:
            problems.add("PP110", f"this is no row of a table: {error}", place=place, help=f"quote a cell that has a comma; {MANUAL}")
            cells = []
        starts = list(_starts(cells))
        cells = [cell.strip() for cell in cells]
        if names is None:
            names = cells
        if cells and len(cells) != len(names):
            message = f"this row has {len(cells)} cells, and there are {len(names)} columns"
            problems.add("PP112", message, place=place, help='quote a cell that has a comma: "cp(8, attention=ulysses)"')
        elif cells:
            columns = dict(zip(names, starts, strict=True))
            yield PlanRow(source=source, line=number, text=line, cells=dict(zip(names, cells, strict=True)), columns=columns)


def _starts(cells: Sequence[str]) -> Iterator[int]:
    """Where each cell begins; one that has a comma or a quote is quoted."""
    at = 1
    for cell in cells:
        yield at
        at += len(cell) + 1 + (2 + cell.count('"') if "," in cell or '"' in cell else 0)


def _check_columns(head: PlanRow, run_as: RunAs, settings: Sequence[str], problems: Problems) -> None:
    names = list(head.cells)
    known = ("strategy", "name", "stages", *_WORDS, *UNITS_OF_TIME)
    if len(names) != len(head.text.split(",")):
        problems.add("PP112", "two columns have the same name", place=head.place(), help="say each thing once")
    said = {text.partition("=")[0] for text in settings}
    for name in names:
        if name in said:
            problems.add("PP112", f"`{name}` is set for all of these steps", place=head.place(name), help="leave the column out")
        elif name in _OF_A_CLUSTER:
            problems.add("PP112", f"`{name}` is of a device", place=head.place(name), help="leave the column out: the cluster says it")
        elif name not in known and not _is_symbol(name):
            help = suggestion(name, known) or f"{', '.join(known)}, or a symbol: `placeproof list symbols`"
            problems.add("PP111", f"there is no column `{name}`", place=head.place(name), help=help)
    needed = ["strategy", *([] if run_as.model else ["model"]), "m"]
    for name in needed:
        if name not in names and name not in said:
            problems.add("PP113", f"there is no column `{name}`", place=head.place(), help=f"add it; {MANUAL}")
    if len({*names} & {*UNITS_OF_TIME}) != 1:
        problems.add("PP113", "the measured time stands in one column, `ms` or `seconds`", place=head.place(), help=MANUAL)


def _is_symbol(name: str) -> bool:
    try:
        info(name)
    except KeyError:
        return False
    return True


def _run(row: PlanRow, run_as: RunAs, settings: Sequence[str], problems: Problems) -> MeasuredRun:
    """The step of a row; something usable in place of what is wrong."""
    cells = row.cells
    unit = next(name for name in UNITS_OF_TIME if name in cells)
    took = Fraction(cells[unit]) if _NUMBER.fullmatch(cells[unit]) else Fraction(0)
    if took <= 0:
        problems.add("PP112", f"`{cells[unit]}` is no measured time", place=row.place(unit), help=f"a number of {unit} above 0")
    if not _COUNT.fullmatch(cells.get("m", "1")):
        help = "a whole number of at least 1: the micro-batches of a step on each pipeline"
        problems.add("PP112", f"`{cells['m']}` is no number of micro-batches", place=row.place("m"), help=help)
    for name in ("strategy", *(["model"] if not run_as.model else [])):
        if not cells[name]:
            problems.add("PP113", f"`{name}` is empty", place=row.place(name), help=f"say it; {MANUAL}")
    if cells.get("fp8", "") not in ("", "yes"):
        problems.add("PP112", f"`{cells['fp8']}` is not `yes`", place=row.place("fp8"), help="`yes`, or nothing")
    if (stages := stage_layers(cells["stages"]) if cells.get("stages") else ()) is None:
        help = "for example 7,8x14,7: 7, fourteen times 8, 7"
        problems.add("PP112", f"`{cells['stages']}` lists no numbers of layers", place=row.place("stages"), help=help)
    words = {name: cells[name] for name in _WORDS if cells.get(name)}
    symbols = [f"{n}={cell}" for n, cell in cells.items() if cell and n not in ("strategy", "name", "stages", "m", *_WORDS, *UNITS_OF_TIME)]
    m = int(cells["m"]) if _COUNT.fullmatch(cells.get("m", "")) else 1
    return MeasuredRun(
        name=cells.get("name") or f"line {row.line}",
        strategy=cells["strategy"],
        settings=(*settings, *symbols),
        run_as=replace(run_as, **words),
        stages=tuple(stages or ()),
        steps={m: took / UNITS_OF_TIME[unit]},
    )
