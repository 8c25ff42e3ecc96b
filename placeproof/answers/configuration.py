"""A strategy written as a configuration of a training framework, as an answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from placeproof.answers import subject as subjects
from placeproof.answers.answer import Answer, answer
from placeproof.answers.numbers import Settings, degrees
from placeproof.core.diagnostics import refuse
from placeproof.core.strategy import Strategy
from placeproof.cost.values import read_numbers
from placeproof.importers import SYSTEMS, Imported, Role
from placeproof.importers.writing import Asked, Written, write
from placeproof.report.document import Document, listing
from placeproof.report.imported import named, rows

if TYPE_CHECKING:
    from placeproof.answers.subject import Subject
    from placeproof.models import Model


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class WrittenConfiguration(Answer, Written):
    """The text of a configuration file, what it reads back as, and what is to be known of it."""

    @property
    def document(self) -> Document:
        """The file."""
        return listing(f"configuration of {self.system}", self.text)

    def __repr__(self) -> str:
        return f"<configuration of {SYSTEMS[self.system].title}, read as {self.read.expression}>"


def configuration(strategy: Strategy, system: str, settings: Settings, model: Model | None = None) -> WrittenConfiguration:
    """The strategy as a configuration of a system. ``settings``: degrees, numbers and byte widths; of a configuration that says the
    strategy, what is left out is told. ``model``: its sizes are written as far as the system has settings for them.

    Raises InputError where no configuration of the system reads back as the strategy.
    """
    known = degrees(strategy.axes, strategy.schedule.microbatches)
    imported = settings.imported[0] if settings.imported else None
    half = imported.half if imported is not None and settings.precision in (None, imported.precision) else None
    numbers = read_numbers(settings.texts(), settings.precision, degrees=known)
    precision = settings.precision or (imported.precision if imported is not None else None)
    needed = {text.partition("=")[0].strip() for text in settings.given} | ({"precision"} if settings.precision else set())
    sizes = {} if model is None else {name: Fraction(n) for name, n in model.sizes.items()}
    values = {**sizes, **{name: numbers.values[name] for name in numbers.given}}
    if strategy.schedule.microbatches is None and values.get("m", 1) != 1:
        refuse("PP205", "`m` is set, and the strategy has one micro-batch", help=f"`{strategy.name} * accumulate` has several")
    written = write(strategy, system, Asked(numbers=values, precision=precision, half=half, needed=needed))
    told = rows(r for r in written.read.readings if r.told or r.role is Role.NOT_MODELLED)
    left = _left_out(imported, written) if imported is not None else ()
    return answer(WrittenConfiguration, replace(written, notes=(*written.notes, *told, *left)))


def of_subject(subject: Subject, system: str, settings: Settings, model: Model | None = None) -> WrittenConfiguration:
    """What a command is asked about, as a configuration: :func:`configuration`. Raises InputError, also for a program."""
    if isinstance(subject, subjects.StepProgram | subjects.LinkedProgram):
        refuse("PP104", f"`{subject.path}` is a program, which no configuration says", help="give the strategy that it is of")
    return configuration(subjects.strategy(subject), system, settings, model)


def _left_out(imported: Imported, written: Written) -> Iterator[str]:
    """What a configuration says beside its strategy, and another one does not."""
    if imported.precision is None and imported.system != written.system:
        yield f"left out of {imported.source}: its byte widths, which have no name"
    for role in (Role.UNKNOWN, Role.ANOTHER_STEP, Role.NOT_MODELLED):
        yield from (f"left out of {imported.source}, {role.value}: {row}" for row in rows(imported.of(role)))
    yield from (f"of {imported.source}: {row}" for row in rows(r for r in imported.of(Role.READ) if r.told))
    read = ", ".join(f"{r.name} = {r.value}" for r in imported.of(Role.READ))
    numbers = [name for name, value in imported.numbers.items() if written.read.numbers.get(name) == value]
    widths = imported.precision is not None and imported.precision == written.read.precision
    kept = ["the strategy", *([f"the numbers {', '.join(numbers)}"] if numbers else []), *(["the byte widths"] if widths else [])]
    yield f"kept of {imported.source}: {', '.join(kept)}, as it says by {read}"
    if rest := imported.of(Role.NO_MATTER):
        yield f"left out of {imported.source}, of no matter to the strategy: {named(rest)}"
