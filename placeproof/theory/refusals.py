"""What the product refuses, as terms of theorems: sizes, degrees and options of which it gives no figure."""

from __future__ import annotations

from collections.abc import Callable

from placeproof.core.diagnostics import InputError
from placeproof.theory.language import Term, taken, term


def refused(code: str, *makes: Callable[[], object]) -> Term:
    """How many of some calls end with an error of this code: ``refused("PP202", lambda: derived("pp(5)", model="llama3-8b"))``.

    The code ``any`` counts those that end with whatever error.
    """
    codes = [_codes(make) for make in makes]
    label = f"refused({code}, {len(makes)} calls)"
    return taken(term(sum(code in each for each in codes)).expr, label, f"{label}: {codes}", "program")


def _codes(make: Callable[[], object]) -> list[str]:
    """The codes of what is wrong with a call."""
    try:
        make()
    except InputError as error:
        return ["any", *(diagnostic.code for diagnostic in error.diagnostics)]
    except Exception as error:
        return ["any", type(error).__name__]
    return []
