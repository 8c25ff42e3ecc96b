"""Subjects that are configurations of a training framework."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placeproof.core.diagnostics import Problems
from placeproof.core.files import config_kind

if TYPE_CHECKING:
    from placeproof.importers import Imported

From = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="SYSTEM", help="The subject is a configuration, a file or its text: deepspeed, megatron, torchtitan, accelerate."
    ),
]
World = Annotated[
    int | None, typer.Option("--world", metavar="N", min=1, help="The number of devices that a configuration is launched on.")
]


def read_subjects(texts: list[str], system: str | None, world: int | None) -> list[Imported | None]:
    """For each argument that is a configuration, what it says. Problems of all are raised together."""
    problems = Problems()
    found: list[Imported | None] = []
    for text in texts:
        with problems.collecting():
            found.append(_read(text, system, world))
    if world is not None and not problems.found and not any(found):
        problems.add("PP505", "`--world` goes with a configuration", help="a strategy says its degrees: `zero3(64)`")
    problems.raise_if_any()
    return found


def _read(text: str, system: str | None, world: int | None) -> Imported | None:
    if system is None and config_kind(text) is None:
        return None
    from placeproof.importers import read_config, recognised

    return read_config(text, system=system, world=world) if system is not None or recognised(text) else None


def expressions(texts: list[str], found: list[Imported | None]) -> list[str]:
    """The subjects with each configuration written as its strategy."""
    return [text if one is None else one.expression for text, one in zip(texts, found, strict=True)]


def settings(given: Sequence[str], found: Sequence[Imported | None], symbols: Collection[str] | None = None) -> list[str]:
    """The NAME=VALUE texts of the command line, and behind them what configurations say of other symbols: all that say it the same.

    ``symbols``: those that the formulas have, where that is known; what a configuration says of others is of no use.
    """
    said = {text.partition("=")[0].strip() for text in given}
    numbers: dict[str, set[Fraction]] = {}
    for one in filter(None, found):
        for name, value in one.numbers.items():
            numbers.setdefault(name, set()).add(value)
    return [
        *given,
        *(
            f"{name}={min(values)}"
            for name, values in numbers.items()
            if name not in said and len(values) == 1 and (symbols is None or name in symbols)
        ),
    ]


def precision_of(given: str | None, found: Sequence[Imported | None]) -> str | None:
    """The byte widths: those of the command line, or what all configurations agree on; open where they do not, or have none with a name."""
    from placeproof.core.precision import OPEN

    said = {one.precision for one in found if one is not None}
    if given is not None or not said:
        return given
    return (said.pop() or OPEN) if len(said) == 1 else OPEN


def shown(found: list[Imported | None]) -> str:
    """What was read, before a result in text."""
    from placeproof.report import imported as report

    return "".join(report.text(one) for one in found if one is not None)


def as_data(found: list[Imported | None]) -> dict[str, Any]:
    """The same, for JSON; nothing where no configuration was read."""
    if not any(found):
        return {}
    from placeproof.report import imported as report

    every = [report.data(one) for one in found if one is not None]
    return {"imported": every[0] if len(found) == 1 else every}
