"""What a schedule costs, by closed form where one is known to hold, else by simulation; both are exact.

A closed form is text in the schedule's file, with the relations under which it speaks. Its names are p devices, m micro-batches, v chunks
on a device, device d; T_F, T_B and T_W, the times of F, B and W on one chunk; T_FB, that of a forward and a full backward that overlap;
T_send, that of a message; M_B and M_W, what a chunk keeps for one micro-batch until B and until W.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from placeproof.core.diagnostics import Problems, refuse
from placeproof.schedules.catalogue import load
from placeproof.schedules.expression import Expression, Number, read
from placeproof.schedules.order import slots
from placeproof.schedules.repeated import step_of_many
from placeproof.schedules.schedule import COUNTS, QUANTITIES, TIMES, Form, Schedule
from placeproof.schedules.simulation import UNIT, Times, simulate
from placeproof.schedules.timetable import Bubble, kept_at_most, shares

if TYPE_CHECKING:
    import sympy

#: Devices compute equally long where nothing overlaps; of two copies of the model a micro-batch passes through one.
_BUSY = {copies: Form(what="busy", form=read(f"m * v / {copies} * (T_F + T_B + T_W)", (*COUNTS, *TIMES))) for copies in (1, 2)}


#: Forward passes of all devices of which a step is not simulated as a whole, if devices repeat themselves in it.
MANY = 10_000


def form(schedule: Schedule | str, what: str) -> Form | None:
    """The closed form of a quantity, or None where none is known. Raises InputError for an unknown schedule or quantity."""
    if what not in QUANTITIES:
        refuse("PP201", f"a schedule has no quantity `{what}`", help=f"ask for one of {', '.join(QUANTITIES)}")
    known = _schedule(schedule)
    stated = next((row for row in known.closed if row.what == what), None)
    if stated is None and what == "busy" and not known.overlapped and known.search is None:
        return _BUSY[known.copies]
    return stated


def forms(schedule: Schedule | str, what: str) -> tuple[Form, ...]:
    """All closed forms of a quantity, each for values of its own. Raises InputError as :func:`form`."""
    known, first = _schedule(schedule), form(schedule, what)
    return tuple(row for row in known.closed if row.what == what) or (() if first is None else (first,))


def formula(schedule: Schedule | str, what: str) -> sympy.Expr | None:
    """A closed form as a SymPy expression; v is the schedule's own number of chunks where that is fixed. None where none is known."""
    closed_form = form(schedule, what)
    return None if closed_form is None else _of_chunks(_schedule(schedule), closed_form)


def formulas(schedule: Schedule | str, what: str) -> tuple[sympy.Expr, ...]:
    """All closed forms of a quantity as SymPy expressions."""
    return tuple(_of_chunks(_schedule(schedule), found) for found in forms(schedule, what))


def _of_chunks(schedule: Schedule, closed_form: Form) -> sympy.Expr:
    return _expression(closed_form.form, schedule.chunks)


@lru_cache(maxsize=256)
def _expression(form: Expression, chunks: int | None) -> sympy.Expr:
    import sympy

    made = form.sympy()
    return made if chunks is None else made.subs(sympy.Symbol("v"), chunks)


def evaluate(
    schedule: Schedule | str, what: str, *, p: int, m: int, v: int | None = None, d: int = 0, times: Times = UNIT,
    M_B: Number = 1, M_W: Number = 1,  # noqa: N803
) -> Fraction | None:  # fmt: skip
    """The value of a closed form, or None where none is known to hold. ``d``: the device, of a peak.

    Raises InputError: PP101 and PP201 for names, PP202 for counts or times that cannot be.
    """
    known = _schedule(schedule)
    values = _values(known, p, m, v, times) | {"d": _device(d, p)} | _sizes(M_B, M_W)
    applicable = next((row for row in forms(known, what) if row.holds(values)), None)
    return None if applicable is None else Fraction(applicable.form.value(values))


def bubble(schedule: Schedule | str, *, p: int, m: int, v: int | None = None, times: Times | Sequence[Times] = UNIT) -> Bubble:
    """The longest time for which a device computes nothing in a step, with its shares of the ideal and of the total time.

    ``times``: of all stages, or of each. Raises InputError as :func:`placeproof.schedules.simulate`.
    """
    spent = _idle_and_busy(_schedule(schedule), p, m, v, times)
    return shares(*spent) if spent else simulate(_schedule(schedule), p=p, m=m, v=v, times=times).bubble()


def step(schedule: Schedule | str, *, p: int, m: int, v: int | None = None, times: Times | Sequence[Times] = UNIT) -> Fraction:
    """How long a step takes, in the unit of the times: from the first pass to the end of the last one. Raises as :func:`bubble`."""
    known = _schedule(schedule)
    spent = _idle_and_busy(known, p, m, v, times)
    if spent:
        return spent[0] + spent[1]
    repeated = step_of_many(known, p=p, m=m, v=v, times=times) if p * m * known.counts(p, m, v) > MANY else None
    return simulate(known, p=p, m=m, v=v, times=times).step if repeated is None else repeated


def _idle_and_busy(schedule: Schedule, p: int, m: int, v: int | None, times: Times | Sequence[Times]) -> tuple[Fraction, Fraction] | None:
    """The time for which the device that idles longest waits and computes, by closed form; None where none is known to hold."""
    if not isinstance(times, Times):
        return None
    idle, busy = (evaluate(schedule, what, p=p, m=m, v=v, times=times) for what in ("idle", "busy"))
    return None if idle is None or busy is None else (idle, busy)


def peak(
    schedule: Schedule | str, *, p: int, m: int, v: int | None = None, d: int = 0, M_B: Number = 1, M_W: Number = 1  # noqa: N803
) -> Fraction:  # fmt: skip
    """The most that device d keeps of its chunks' activations, in the unit of M_B and M_W; it follows from the order, whatever times are.

    With both 1, in activations of one chunk for one micro-batch. Raises InputError (PP101, PP202, PP112).
    """
    known = _schedule(schedule)
    value = evaluate(known, "peak", p=p, m=m, v=v, d=d, M_B=M_B, M_W=M_W)
    return kept_at_most(slots(known, p, m, v)[d], M_B, M_W) if value is None else value


def messages(schedule: Schedule | str, *, p: int, m: int, v: int | None = None) -> int:
    """How many activations and gradients devices send to one another in a step, all together. Raises InputError (PP101, PP202)."""
    known = _schedule(schedule)
    value = evaluate(known, "messages", p=p, m=m, v=v)
    if value is None:
        table = simulate(known, p=p, m=m, v=v)
        return sum(table.messages(d) for d in range(p))
    return int(value)


def _schedule(named: Schedule | str) -> Schedule:
    return named if isinstance(named, Schedule) else load(named)


def _values(schedule: Schedule, p: int, m: int, v: int | None, times: Times) -> dict[str, Number]:
    """What the names of a closed form stand for. Raises InputError (PP202)."""
    chunks = schedule.counts(p, m, v)
    forward, backward, weight, send, overlapped = times.fractions()
    spent = {"T_F": forward, "T_B": backward, "T_W": weight, "T_FB": overlapped, "T_send": send}
    return {"p": p, "m": m, "v": chunks, **spent}


def _device(d: int, p: int) -> int:
    if isinstance(d, bool) or not isinstance(d, int) or not 0 <= d < p:
        refuse("PP202", f"there is no device d = {d!r} of {p}", help=f"devices are numbered from 0 to {p - 1}")
    return d


def _sizes(m_b: Number, m_w: Number) -> dict[str, Number]:
    problems = Problems()
    for name, size in (("M_B", m_b), ("M_W", m_w)):
        if isinstance(size, bool) or not isinstance(size, int | Fraction) or size < 0:
            problems.add("PP202", f"{name} = {size!r} is no size", help="give a whole number or a Fraction that is not negative")
    problems.raise_if_any()
    return {"M_B": m_b, "M_W": m_w}
