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
from placeproof.core.diagnostics import Diagnostic, Place, Problems, refuse, suggestion
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
        """What is wrong with what a row says, at the cell that says it, or at the strategy's."""
        said = problem.place
        if said is not None and said.text == self.cells["strategy"]:
            own = self.place("strategy")
            quoted = self.text[own.column - 1 : own.column] == '"'
            return replace(problem, place=replace(own, column=own.column + quoted + said.column - 1, length=said.length))
        name = said.text.partition("=")[0].strip() if said is not None and said.source == "--set" else ""
        column = name if name in self.cells else self._blamed(problem.message)
        unset = re.match(r"`--set (\w+)=", problem.help or "")
        help = f"say it in a column `{unset[1]}`" if unset else problem.help or f"change `{column}` of this row"
        return replace(problem, place=self.place(column), help=help)

    def _blamed(self, message: str) -> str:
        """The column whose cell, or whose name, a message speaks of in quotes."""
        quoted = re.findall(r"`([^`]*)`", message)
        return next((column for name in quoted for column, cell in self.cells.items() if name and name in (cell, column)), "strategy")


def read_plans(
    path: str | Path, run_as: RunAs, settings: Sequence[str] = (), *, problems: Problems | None = None
) -> tuple[tuple[MeasuredRun, PlanRow], ...]:
    """The sound steps of a table, each with its row. ``run_as``, ``settings``: what is the same for all of them; a model may be left open
    there.

    What is wrong with rows is added to the ``problems``, where these are collected, and raised elsewhere. Raises InputError where nothing
    can be read. What a strategy or a model is, is looked at when it is derived.
    """
    text, found = files.read_text(path, code="PP110", help="give the path of a readable table of steps"), problems or Problems()
    rows = tuple(_rows(text, str(path), found))
    if rows:
        unsound = Problems()
        _check_columns(rows[0], run_as, settings, unsound)
        unsound.raise_if_any()
    if len(rows) < 2 and not found.found:
        place = Place(source=str(path), line=1, column=1, text=text.partition("\n")[0])
        refuse("PP113", "there is no measured step", f"add a row for each; {MANUAL}", place=place)
    each = [(_run(row, run_as, settings, found), row) for row in rows[1:]]
    if problems is None:
        found.raise_if_any()
    return tuple((run, row) for run, row in each if run is not None)


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


def _run(row: PlanRow, run_as: RunAs, settings: Sequence[str], problems: Problems) -> MeasuredRun | None:
    """The step of a row; None where it is not sound."""
    cells, sound = row.cells, True
    unit = next(name for name in UNITS_OF_TIME if name in cells)

    def require(condition: object, code: str, column: str, message: str, help: str) -> None:
        nonlocal sound
        if not condition:
            problems.add(code, message, place=row.place(column), help=help)
            sound = False

    took = Fraction(cells[unit]) if _NUMBER.fullmatch(cells[unit]) else Fraction(0)
    require(took, "PP112", unit, f"`{cells[unit]}` is no measured time", f"a number of {unit} above 0")
    help = "a whole number of at least 1: the micro-batches of a step on each pipeline"
    require(_COUNT.fullmatch(cells["m"]), "PP112", "m", f"`{cells['m']}` is no number of micro-batches", help)
    for name in ("strategy", *([] if run_as.model else ["model"])):
        require(cells[name], "PP113", name, f"`{name}` is empty", f"say it; {MANUAL}")
    fp8, listed = cells.get("fp8", ""), cells.get("stages", "")
    require(fp8 in ("", "yes"), "PP112", "fp8", f"`{fp8}` is not `yes`", "`yes`, or nothing")
    stages: Sequence[int] | None = stage_layers(listed) if listed else ()
    help = "for example 7,8x14,7: 7, fourteen times 8, 7"
    require(stages is not None, "PP112", "stages", f"`{listed}` lists no numbers of layers", help)
    if not sound:
        return None
    words = {name: cells[name] for name in _WORDS if cells.get(name)}
    symbols = [f"{n}={cell}" for n, cell in cells.items() if cell and n not in ("strategy", "name", "stages", "m", *_WORDS, *UNITS_OF_TIME)]
    return MeasuredRun(
        name=cells.get("name") or f"line {row.line}",
        strategy=cells["strategy"],
        settings=(*settings, *symbols),
        run_as=replace(run_as, **words),
        stages=tuple(stages or ()),
        steps={int(cells["m"]): took / UNITS_OF_TIME[unit]},
    )
