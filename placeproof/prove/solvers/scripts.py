"""Asking solvers about SMT-LIB 2 scripts."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import z3

Solve = Callable[[str, int, int], str]


#: How often a query is asked whose budget the clock took, and not the solver.
_TRIES = 3

#: How many times its budget a query may wait for.
_MOST_WAITING = 8

#: Milliseconds that Z3 has for a query where others were asked before. What takes longer is asked where none was: what earlier ones left
#: behind made the same query take from 0.1 to 18 seconds.
_QUICK = 100

#: Seconds in which Z3 lets go of a query that nobody wants any more.
_SECONDS_TO_LET_GO = 1


_Solver = TypeVar("_Solver")


def ask_z3(script: str, milliseconds: int, seed: int = 0) -> str:
    """``sat``, ``unsat`` or ``unknown`` from Z3 within the budget."""
    return _settled(lambda limit: _z3(script, limit, seed), milliseconds)[0]


def _settled(ask: Callable[[int], tuple[str, _Solver, float]], milliseconds: int) -> tuple[str, _Solver]:
    """A solver's answer, and the solver, which looks at a clock on the wall: where that ran out while the machine did something else, it is
    asked again, with as much more time as it was kept waiting. ``ask``: gives the seconds that it computed, too."""
    on_the_wall = milliseconds
    for _ in range(_TRIES):
        clock = time.perf_counter()
        answer, solver, seconds = ask(on_the_wall)
        waited, computed = 1e3 * (time.perf_counter() - clock), 1e3 * seconds
        if answer != "unknown" or waited < on_the_wall or computed > 0.8 * milliseconds:
            break
        on_the_wall = round(milliseconds * min(waited / max(computed, 1), _MOST_WAITING))
    return answer, solver


def _z3(script: str, milliseconds: int, seed: int) -> tuple[str, z3.Solver, float]:
    """Z3's answer, Z3, and the seconds that it computed. A context of its own takes ten times as long as an easy query."""
    import z3

    if milliseconds > _QUICK:
        quick = _z3_in(z3.main_ctx(), script, _QUICK, seed)
        if quick[0] != "unknown":
            return quick
    return _z3_in(z3.Context(), script, milliseconds, seed)


def _z3_in(context: z3.Context, script: str, milliseconds: int, seed: int) -> tuple[str, z3.Solver, float]:
    """One try.

    It computes on a thread of its own, deaf to Ctrl-C: Z3's own handler takes the signal, at times without a trace in its answer, while
    Python hears nothing until a call into C has ended."""
    import z3

    solver = z3.Solver(ctx=context)
    solver.set("timeout", milliseconds)
    solver.set("random_seed", seed)
    solver.set("ctrl_c", False)
    outcome: list[tuple[str, float] | Exception] = []
    done = threading.Event()

    def solve() -> None:
        try:
            solver.from_string(script)
            outcome.append((str(solver.check()), time.thread_time()))
        except Exception as error:
            outcome.append(error)
        finally:
            done.set()

    threading.Thread(target=solve, daemon=True).start()
    try:
        done.wait()
    except BaseException:
        solver.interrupt()
        done.wait(_SECONDS_TO_LET_GO)  # two threads may not use Z3 at once, and a notebook goes on
        raise
    (answer,) = outcome
    if isinstance(answer, Exception):
        raise answer
    return answer[0], solver, answer[1]


def model(script: str, milliseconds: int) -> dict[str, Fraction] | None:
    """The values of constants in a model that Z3 finds; None where it finds none, or one that is not rational."""
    import z3

    answer, solver = _settled(lambda limit: _z3(script, limit, 0), milliseconds)
    if answer != "sat":
        return None
    found, values = solver.model(), {}
    for declared in found.decls():
        if declared.arity() == 0:
            value = found[declared]
            if not (z3.is_rational_value(value) or z3.is_int_value(value)):
                return None
            values[declared.name().strip()] = Fraction(str(value.as_fraction() if z3.is_rational_value(value) else value.as_long()))
    return values


def ask_cvc5(script: str, milliseconds: int, seed: int = 0) -> str:
    """``sat``, ``unsat`` or ``unknown`` from cvc5 within the budget."""
    return _settled(lambda limit: _cvc5(script, limit, seed), milliseconds)[0]


def _cvc5(script: str, milliseconds: int, seed: int) -> tuple[str, None, float]:
    """cvc5's answer, and the seconds that it computed."""
    import cvc5

    began = time.thread_time()
    manager = cvc5.TermManager()
    solver = cvc5.Solver(manager)
    solver.setOption("tlimit-per", str(milliseconds))
    solver.setOption("seed", str(seed))
    parser = cvc5.InputParser(solver)
    question = re.sub(r"\(set-info :status \w+\)\n", "", script)  # cvc5 takes another answer than that for an error of its own
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, question, "query")
    symbols, answer = parser.getSymbolManager(), ""
    while not (command := parser.nextCommand()).isNull():
        answer = str(command.invoke(solver, symbols) or answer).strip()
    return answer if answer in ("sat", "unsat") else "unknown", None, time.thread_time() - began


SOLVERS: dict[str, Solve] = {"z3": ask_z3, "cvc5": ask_cvc5}


@lru_cache(maxsize=1)
def available() -> tuple[str, ...]:
    """The solvers that are installed, Z3 first."""
    from importlib.util import find_spec

    return tuple(name for name in SOLVERS if find_spec(name) is not None)


@lru_cache(maxsize=4)
def version(name: str) -> str:
    """A solver's name with its version."""
    import importlib

    module = importlib.import_module(name)
    return f"{name} {module.get_version_string() if name == 'z3' else module.__version__}"
