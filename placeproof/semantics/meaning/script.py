"""A counterexample as a Python file that needs nothing but the standard library: the arithmetic that leads to the two numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from placeproof.programs import Resolved
from placeproof.semantics.meaning.layout import in_words
from placeproof.semantics.meaning.recorded import Plain, Recorded, plain
from placeproof.semantics.meaning.run import run
from placeproof.semantics.meaning.setup import Difference, Setup


def script(program: Resolved, setup: Setup, title: str) -> str | None:
    """The file's text; None where no two numbers differ (devices that wait for one another, an element that is missing)."""
    difference = _recorded(program, setup)
    return None if difference is None else written(title, shown_pair(difference), what_differs(difference))


def written(title: str, pair: tuple[Plain, Plain], description: str) -> str:
    """The text of a file that computes two recorded numbers, which differ. ``description``: which numbers of which device they are."""
    order = list(_needed([v for v in pair if isinstance(v, Recorded)]))
    names = {id(one): f"v{number}" for number, one in enumerate(order)}
    lines = ['"""' + title, "", "Written by placeproof: exact rational arithmetic, nothing but the standard library.", '"""', ""]
    lines += ["from fractions import Fraction"]
    lines += ["from math import isqrt"] if any(o.made is not None and o.made[0] == "sqrt" for o in order) else []
    lines += ["", "# What the run begins with."]
    lines += [f"{names[id(one)]} = {_literal(one.value)}  # {one.name}" for one in order if one.made is None]
    at: tuple[object, ...] = ()
    for one in (o for o in order if o.made is not None):
        if one.at != at:
            at = device, line, text = one.at
            lines += ["", f"# {device}: {text}" if line is None else f"# {device}, line {line}: {text}"]
        lines.append(f"{names[id(one)]} = {_expression(one, names)}")
    expected, actual = (names[id(v)] if isinstance(v, Recorded) else _literal(plain(v)) for v in pair)
    lines += ["", f"# {description}", f"expected, actual = {expected}, {actual}"]
    lines += ['print(f"expected {expected}, actual {actual}")', "assert expected != actual"]
    lines.append(f"assert (expected, actual) == ({_literal(plain(pair[0]))}, {_literal(plain(pair[1]))})")
    return "\n".join(lines) + "\n"


def inputs(program: Resolved, setup: Setup) -> dict[str, Fraction]:
    """The numbers that a run begins with and that matter for what differs, by name."""
    difference = _recorded(program, setup)
    return {} if difference is None else begun(shown_pair(difference))


def begun(pair: tuple[Plain, Plain]) -> dict[str, Fraction]:
    """The numbers that two recorded ones were computed from, by name."""
    return {one.name: one.value for one in _needed([v for v in pair if isinstance(v, Recorded)]) if one.made is None}


def _recorded(program: Resolved, setup: Setup) -> Difference | None:
    difference = run(program, replace(setup, exact=True, record=True))
    return difference if isinstance(difference, Difference) and difference.actual is not None else None


def shown_pair(difference: Difference) -> tuple[Plain, Plain]:
    """The two numbers to show: those of the gradient that the update read, where they differ already; else the state's."""
    if difference.in_gradient:
        return difference.gradient
    assert difference.actual is not None
    return difference.expected, difference.actual


def what_differs(difference: Difference) -> str:
    """Which number of which device it is."""
    what = "gradient" if difference.in_gradient else difference.state
    return f"{what} of {in_words(difference.element)} on {device_name(difference)}, step {difference.step + 1}"


def missing(difference: Difference) -> str:
    """What is said of a number that is not there, or that was computed from what is not."""
    what, where = f"{difference.state} of {in_words(difference.element)}", f"on {device_name(difference)}, step {difference.step + 1}"
    if not difference.unheld:
        return f"{what} is not {where}"
    return f"{what} {where}: expected {plain(difference.expected)}, actual nothing: {difference.unheld}"


def device_name(difference: Difference) -> str:
    """A device in words."""
    return "device " + ", ".join(f"{axis} = {n}" for axis, n in difference.device.items()) if difference.device else "the device"


def _needed(roots: list[Recorded]) -> Iterator[Recorded]:
    """Every number that the roots come from, each after what it is made of."""
    seen: set[int] = set()
    stack: list[tuple[Recorded, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        one, ready = stack.pop()
        if ready:
            yield one
        elif id(one) not in seen:
            seen.add(id(one))
            stack.append((one, True))
            if one.made is not None:
                stack += [(o, False) for o in reversed(one.made[1:]) if isinstance(o, Recorded) and id(o) not in seen]


def _expression(number: Recorded, names: dict[int, str]) -> str:
    assert number.made is not None
    op, left, right = number.made
    if op == "sqrt":
        of = names[id(left)] if isinstance(left, Recorded) else _literal(plain(left))
        return f"Fraction(isqrt({of}.numerator), isqrt({of}.denominator))"
    shown = [names[id(o)] if isinstance(o, Recorded) else _literal(plain(o)) for o in (left, right)]
    return f"{shown[0]} {op} {shown[1] if op != '**' or isinstance(right, Recorded) else plain(right)}"


def _literal(value: Fraction) -> str:
    return f"Fraction({value})" if value.denominator == 1 else f"Fraction({value.numerator}, {value.denominator})"
