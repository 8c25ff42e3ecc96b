"""``placeproof plan --sweep``: many questions at once, read from a file."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from placeproof.cli.options import named, option, output
from placeproof.cli.process import progress
from placeproof.cli.terminal import aside, show
from placeproof.core import files
from placeproof.core.bounds import A_COUNT, is_count
from placeproof.core.diagnostics import Diagnostic, InputError, Place, Problems
from placeproof.core.tables import FileKind, Table

if TYPE_CHECKING:
    from placeproof.answers.engines import Engine

_KIND = FileKind(noun="a sweep", manual="see docs/how-to/sweep.md")
_PACKAGE = Path(__file__).parents[1]
#: Questions of a sweep, at most.
MOST = 10_000
#: A worker of Dask may have several threads, and solvers are not made for these.
_ONE = threading.Lock()
EXIT_NOTHING_FITS = 1
EXIT_NO_ANSWER = 3
#: What is wrong with numbers that do not go together: of a combination it is the answer.
_NUMBERS = "PP202"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What is said of a sweep as a whole."""

    sweep: str | None = option("--sweep", "Ask every question of a file, in several processes: docs/how-to/sweep.md.", metavar="FILE")
    out: str | None = option(
        "--out", "Write the answers of a sweep to a file as they come; what is there already is not asked again.", metavar="FILE.jsonl"
    )
    jobs: int | None = option("--jobs", "Processes. [default: as many as there are cores]", metavar="N", min=1)
    engine: str | None = option(
        "--engine", "Who asks the questions of a sweep: `processes` of this machine, or workers of `dask`. [default: processes]"
    )
    address: str | None = option("--address", "Of the scheduler of Dask: tcp://HOST:8786.", metavar="ADDRESS")

    def asked_by(self) -> Engine:
        """Who asks the questions. Raises InputError."""
        from placeproof.answers.engines import Dask, Processes

        problems, engine = Problems(), self.engine or "processes"
        if engine not in ("processes", "dask"):
            problems.add("PP104", f"there is no engine `{engine}`", help="`processes` or `dask`")
        if engine == "dask" and self.address is None:
            problems.add("PP104", "`--engine dask` needs a scheduler", help="`--address tcp://HOST:8786`; `dask scheduler` prints it")
        if engine == "dask" and self.jobs is not None:
            problems.add("PP104", "`--jobs` says processes of this machine", help="Dask asks as many at once as it has workers")
        if engine == "processes" and self.address is not None:
            problems.add("PP104", "`--address` is that of a scheduler", help="`--engine dask`")
        problems.raise_if_any()
        return Processes(self.jobs or 0) if self.address is None else Dask(self.address)


#: The types of options -> what passes as a value, and what that is in words.
_VALUES: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "str": (lambda value: isinstance(value, str | int | Decimal) and not isinstance(value, bool), "a text or a number"),
    "int": (is_count, A_COUNT),
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "list[str]": (lambda value: isinstance(value, list) and all(isinstance(text, str) for text in value), "a list of texts"),
}


@dataclass(frozen=True, slots=True)
class Question:
    """A question: options by their keys; and where it is asked. ``combined``: whether it is a combination of a grid."""

    values: Mapping[str, Any]
    place: Place | None
    combined: bool


def read(path: str, types: Mapping[str, str]) -> tuple[Question, ...]:
    """The questions of a file. ``types``: of options by their keys. Raises InputError with all that is wrong with it."""
    table = Table.open(path, kind=_KIND)
    table.known((*types, "grid", "question"))
    common = _values(table, types)
    lists = _lists(table.table("grid"), types)
    number = prod(map(len, lists.values())) * ("grid" in table.data) + len(table.rows("question"))
    if not 1 <= number <= MOST:
        table.refuse(f"{number:,} questions are asked", "grid", help=f"`[grid]` or `[[question]]`, from 1 to {MOST:,}")
    combined = product(*lists.values()) if "grid" in table.data and number <= MOST else ()
    found = [(common | dict(zip(lists, each, strict=True)), table.place("grid"), True) for each in combined]
    for row in table.rows("question"):
        row.known(types)
        found.append((common | _values(row, types), row.place(), False))
    return table.sound(tuple(Question({key: said[key] for key in types if key in said}, place, grid) for said, place, grid in found))


def _values(table: Table, types: Mapping[str, str]) -> dict[str, Any]:
    """What a table says of options."""
    said = {key: table.value(key, *_VALUES[kind]) for key, kind in types.items() if key in table.data}
    return {key: _plain(value) for key, value in said.items()}


def _lists(grid: Table, types: Mapping[str, str]) -> dict[str, list[Any]]:
    """The values of options that are combined."""
    grid.known(types)
    found = {}
    for key in (key for key in grid.data if key in types):
        test, what = _VALUES[types[key]]
        each = grid.value(key, partial(_are, test), f"a list; each is {what}")
        if each is not None:
            found[key] = [_plain(value) for value in each]
    return found


def _are(test: Callable[[object], bool], values: object) -> bool:
    return isinstance(values, list) and values != [] and all(map(test, values))


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value


def checked(questions: Sequence[Question], check: Callable[[Mapping[str, Any]], object]) -> list[dict[str, Any]]:
    """Each question with digests of the user's files that it is about; and why a combination of a grid cannot be, if another one can.

    Raises InputError with all that is wrong with them.
    """
    asked_for = False  # something that is wrong in itself
    problems, found, before = Problems(), list[dict[str, Any]](), dict[str, int]()
    wrong: dict[tuple[str, str, Place | None], tuple[Diagnostic, int]] = {}
    for number, one in enumerate(questions, 1):
        other = before.setdefault(json.dumps(one.values), number)
        if other != number:
            problems.add(_KIND.wrong, f"question {number} is question {other} again", place=one.place, help="ask it once")
        with files.noting() as read:
            try:
                check(one.values)
                cannot = None
            except InputError as error:
                cannot = "; ".join(d.message for d in error.diagnostics)
                asked_for = asked_for or not one.combined or any(d.code != _NUMBERS for d in error.diagnostics)
                for d in error.diagnostics:
                    wrong.setdefault((d.code, d.message, d.place or one.place), (d, number))
        found.append({"question": one.values, "files": _own(read), "cannot": cannot})
    if asked_for or all(one["cannot"] is not None for one in found):
        for (code, message, place), (d, number) in wrong.items():
            problems.add(code, message, place=place, help=d.help, notes=(*d.notes, f"asked by question {number}"))
    problems.raise_if_any()
    return found


def _own(read: Mapping[str, str]) -> dict[str, str]:
    """Those that do not come with placeproof."""
    return {path: digest for path, digest in sorted(read.items()) if not Path(path).is_relative_to(_PACKAGE)}


def answer(plan: Callable[[Mapping[str, Any]], dict[str, Any]], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a question, in a process of its own: a plan as its JSON has it, or why there is none."""
    from placeproof.theory.suite.cache import sources

    row = {"number": asked["number"], "question": asked["question"], "plan": None, "cannot": None, "failure": None}
    if asked["sources"] != sources():
        return row | {"failure": "the process that was asked has another version of placeproof"}
    try:
        with _ONE, files.noting() as read:
            found = plan(asked["question"])
    except InputError as error:
        return row | {"failure": "; ".join(d.message for d in error.diagnostics)}
    except Exception as error:  # whatever it is, the other questions have answers
        return row | {"failure": f"placeproof has a bug: {type(error).__name__}: {error}"}
    changed = [path for path, digest in asked["files"].items() if read.get(path) != digest]
    return row | ({"failure": f"{changed[0]} is not what it was when the sweep began"} if changed else {"plan": found})


def run(
    o: Sweep,
    record: type,
    check: Callable[[Mapping[str, Any]], object],
    plan: Callable[[Mapping[str, Any]], dict[str, Any]],
    *,
    json_: bool,
    brief: bool = False,
) -> int:
    """Ask all questions of a file; returns the exit code. ``record``: of the options that questions have; ``check``: raises InputError for
    a question that cannot be asked; ``plan``: answers one, in another process."""
    from placeproof import __version__
    from placeproof.answers.results import SCHEMA, Results
    from placeproof.report.sweep import best, document
    from placeproof.theory.suite.cache import sources

    engine = o.asked_by()
    path = None if o.out is None else output("--out", o.out, "answers are lines of JSON", ".jsonl")
    questions = checked(read(str(o.sweep), {key: kind for key, (_, kind) in named(record).items()}), check)
    results = Results(path=path, questions=questions, version=(__version__, sources()))
    results.open()
    for n, one in enumerate(questions, 1):
        if one["cannot"] is not None and n not in results.rows:
            results.add({"number": n, "question": one["question"], "plan": None, "cannot": one["cannot"], "failure": None})
    open_ = [{**one, "number": n, "sources": sources()} for n, one in enumerate(questions, 1) if n not in results.rows]
    try:
        with progress("questions") as tell, closing(engine.run(partial(answer, plan), open_)) as answers:
            for number, row in answers:
                died = "the process that was asked has died each time; it may need too much memory"
                lost = {key: open_[number][key] for key in ("number", "question")} | {"plan": None, "cannot": None, "failure": died}
                results.add(lost if row is None else row)
                tell(len(results.rows), len(questions))
    except KeyboardInterrupt:
        kept = f"; they are in {path}, and the same command goes on from there" if path else ""
        aside(f"{len(results.rows)} of {len(questions)} questions were answered{kept}\n")
        raise
    results.close()
    rows = [row for _, row in sorted(results.rows.items())]
    show(document(rows, str(o.sweep), SCHEMA), json_=json_, brief=brief)
    if any(row["failure"] is not None for row in rows):
        return EXIT_NO_ANSWER
    return 0 if all(best(row) is not None for row in rows) else EXIT_NOTHING_FITS
