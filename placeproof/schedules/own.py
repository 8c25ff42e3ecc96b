"""Schedules of one's own: read from a file, and run at small sizes before anything is said of them.

An order is given by expressions, so that no finite number of runs shows that it is one for all sizes. What is run is said
(:func:`checked_at`), and what is asked about at other sizes is run there, where there are numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from placeproof.core.diagnostics import Diagnostic, InputError
from placeproof.core.places import KeyPath
from placeproof.schedules.points import admitted, points
from placeproof.schedules.read import read_table
from placeproof.schedules.schedule import Form, Schedule
from placeproof.schedules.simulation import simulate

#: Devices and micro-batches at which a schedule is run: of the first ones that it admits any of.
_SIZES = ((range(1, 5), range(1, 10)), (range(1, 9), range(1, 33)))


def read_own(path: Path, taken: tuple[str, ...]) -> Schedule:
    """The schedule of a file, which has none of the names that are ``taken``.

    Raises InputError (PP110 to PP113, PP202, PP308) where the file cannot be read; where, at a small size that it admits, its phases do not
    give each pass once, or devices wait for one another for ever; and for a closed form that is not what a run gives.
    """
    table, schedule = read_table(path)
    if schedule.name in taken:
        table.refuse(
            f"`{schedule.name}` is a schedule of the catalogue", "name", help="another name: theorems about that one are not yours"
        )
    for keys, fault in _faults(schedule):
        table.problems.found.append(replace(fault, place=table.place(*keys)))
    return table.sound(schedule)


@lru_cache(maxsize=64)
def checked_at(schedule: Schedule) -> tuple[tuple[int, int, int], ...]:
    """The devices, micro-batches and chunks at which a schedule is run when it is read; none where it admits no small ones."""
    return next((found for devices, batches in _SIZES if (found := tuple(admitted(schedule, devices, batches)))), ())


@lru_cache(maxsize=64)
def _faults(schedule: Schedule) -> tuple[tuple[KeyPath, Diagnostic], ...]:
    """What is wrong with a schedule, each with the key that says it: the first size at which its order is none, or else wrong forms."""
    if not (sizes := checked_at(schedule)):
        message = f"`{schedule.name}` admits no number of devices up to 8 with up to 32 micro-batches, so that it cannot be tried"
        return ((("needs",), Diagnostic(code="PP112", message=message, help="loosen the rules of `needs`")),)
    for p, m, v in sizes:
        try:
            simulate(schedule, p=p, m=m, v=v)
        except InputError as error:
            first, note = error.diagnostics[0], f"if it is not for p = {p}, m = {m}, say so in `needs`"
            return ((("order", "phases" if schedule.search is None else "search"), replace(first, notes=(*first.notes, note))),)
    return tuple((("closed", i), fault) for i, form in enumerate(schedule.closed) for fault in _denied(schedule, form, sizes))


def require_at(schedule: Schedule, p: int, m: int, v: int) -> None:
    """Raise InputError where a schedule gives no order at some numbers, or one of its closed forms is not what a run gives there."""
    simulate(schedule, p=p, m=m, v=v)
    found = [fault for form in schedule.closed for fault in _denied(schedule, form, ((p, m, v),), speaks=False)]
    if found:
        raise InputError(found)


def _denied(schedule: Schedule, form: Form, sizes: tuple[tuple[int, int, int], ...], speaks: bool = True) -> Iterator[Diagnostic]:
    """Where a form is not what a run gives, at the first of some sizes; or that it speaks of none, where it has to."""
    said = f"`{schedule.name}` says of its {form.what} `{form.form.text}`"
    spoken = False
    for p, m, v in sizes:
        for values, exact in points(schedule, form.what, p, m, v):
            if not form.holds(values):
                continue
            spoken, value = True, form.form.value(values)
            if value != exact:
                shown = ", ".join(f"{name} = {n}" for name, n in values.items())
                message = f"{said}, which is {value} where a run gives {exact}: {shown}"
                yield Diagnostic(code="PP112", message=message, help="mend the form, say under `when` where it holds, or leave it out")
                return
    if speaks and not spoken:
        yield Diagnostic(code="PP112", message=f"{said}, under relations that hold at no size that is tried", help="loosen `when`")
