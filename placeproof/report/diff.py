"""What became of a strategy, a program or a configuration, as a document: the schema ``placeproof.diff/1``, and its text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from fractions import Fraction
from typing import Any

from placeproof.cost.closed import tidy
from placeproof.cost.compare import Comparison
from placeproof.cost.derive import evaluate
from placeproof.cost.model.comparison import ModelComparison
from placeproof.cost.values import Numbers
from placeproof.report.compare import LABELS
from placeproof.report.document import Code, Document, Lines, Notes, Section, Table, section
from placeproof.report.models.answer import FITS, assumed
from placeproof.report.models.compare import label
from placeproof.report.models.fit import fits_all
from placeproof.report.units import figure, giga, seconds_text

#: Verdicts, from the best to the worst.
VERDICTS = ("proved", "proved except", "unknown", "refuted")
_FITS = {True: 0, None: 1, False: 2}
_COUNTS = ("devices", "sequences", "parameters", "flops")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A side: as it was named, its verdict, what is broken, and the lines of its program."""

    name: str
    word: str
    broken: str
    program: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Two sides, the old one first, with the closed forms of both, or what a model costs under both."""

    sides: tuple[Judged, Judged]
    costs: Comparison | ModelComparison
    numbers: Numbers

    @property
    def worse(self) -> bool:
        """Whether a verdict became worse: of the proof, or of whether it fits."""
        old, new = (VERDICTS.index(side.word) for side in self.sides)
        fits = self.fits
        return new > old or (fits is not None and _FITS[fits[1]] > _FITS[fits[0]])

    @property
    def fits(self) -> tuple[bool | None, bool | None] | None:
        """Whether each fits; None where no cluster was named."""
        if isinstance(self.costs, Comparison):
            return None
        steps = [member.step for member in self.costs.members]
        return None if steps[0] is None or steps[1] is None else (fits_all(steps[0]), fits_all(steps[1]))


def document(d: Difference) -> Document:
    """The verdicts, what changed of the costs, and of the program."""
    return Document(name=f"{d.sides[0].name} to {d.sides[1].name}", sections=lambda: _sections(d), data=lambda: _data(d))


def _sections(d: Difference) -> Iterator[Section]:
    old, new = d.sides
    verdict = f"still {new.word}" if old.word == new.word else f"{old.word} before, {new.word} now"
    lines = [f"old: {old.name}", f"new: {new.name}", *([f"broken: {new.broken}"] if new.broken else [])]
    if d.fits is not None:
        before, now = (FITS[fits] for fits in d.fits)
        lines.append(f"memory: {now}, as before" if before == now else f"memory: {before} before, {now} now")
    lines += assumed(d.numbers)
    yield section(("worse: " if d.worse else "") + verdict, Lines(lines), detail="answer")
    yield from _formulas(d.costs, d.numbers) if isinstance(d.costs, Comparison) else _numbers(d.costs)
    changed = list(unified_diff(old.program, new.program, old.name, new.name, lineterm="", n=2))
    yield section("the program", Code(changed) if changed else Lines(["as before"]))


def _formulas(c: Comparison, numbers: Numbers) -> Iterator[Section]:
    """A section for each closed form that changed."""
    same = []
    for key, old, new in _forms(c):
        if tidy(old - new) == 0:
            same.append(LABELS[key])
            continue
        values = [evaluate(form, numbers.values) if numbers.asked else None for form in (old, new)]
        shown = ["" if n is None else f"{giga(n)} GB" for n in values]
        rows = list(zip(("old", "new"), (old, new), shown, strict=True))
        yield section(f"{LABELS[key]}{_times(*values)}", Table(rows))
    if same:
        yield section("as before", Notes(same))


def _forms(c: Comparison) -> list[tuple[str, Any, Any]]:
    first, second = c.forms
    return [(key, first[key], second[key]) for key in c.keys]


def _times(old: Fraction | None, new: Fraction | None) -> str:
    return f": {figure(new / old, 4)} times as much" if old and new is not None else ""


def _numbers(c: ModelComparison) -> Iterator[Section]:
    """A row for each number that changed."""
    rows, same = [], []
    for name, old, new, shown in _amounts(c):
        if old == new:
            same.append(name)
        else:
            rows.append((name, shown(old), shown(new), figure(new / old, 4) if old and new is not None else ""))
    if rows:
        yield section("what changed, bytes in GB", Table(rows, ("", "old", "new", "ratio"), (1, 2, 3)))
    if same:
        yield section("as before", Notes([", ".join(same)]))


def _amounts(c: ModelComparison) -> Iterator[tuple[str, Fraction | None, Fraction | None, Any]]:
    """Each figure by its name, old and new, and how it is shown."""
    old, new = c.members
    for key in c.keys:
        yield label(key), old.value(key), new.value(key), _count if key in _COUNTS else giga
    if old.step is not None and new.step is not None:
        yield "seconds of a step", old.step.seconds, new.step.seconds, seconds_text
        yield "tokens a second and device", old.tokens, new.tokens, _count


def _count(value: Fraction | None) -> str:
    return "?" if value is None else figure(value, 4) if value < 10**9 else f"{float(value):.4g}"


def _data(d: Difference) -> dict[str, Any]:
    if isinstance(d.costs, Comparison):
        at = d.numbers.values if d.numbers.asked else None
        rows = [(key, old, new, *(None if at is None else evaluate(form, at) for form in (old, new))) for key, old, new in _forms(d.costs)]
        costs = [{"figure": k, "formulas": [str(o), str(n)], "changed": tidy(o - n) != 0, "values": [a, b]} for k, o, n, a, b in rows]
    else:
        costs = [{"figure": name, "changed": old != new, "values": [old, new]} for name, old, new, _ in _amounts(d.costs)]
    return {
        "schema": "placeproof.diff/1",
        "worse": d.worse,
        "old": {"subject": d.sides[0].name, "verdict": d.sides[0].word, "broken": d.sides[0].broken},
        "new": {"subject": d.sides[1].name, "verdict": d.sides[1].word, "broken": d.sides[1].broken},
        "fits": None if d.fits is None else [*d.fits],
        "costs": costs,
    }
