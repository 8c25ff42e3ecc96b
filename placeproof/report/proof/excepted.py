"""A proof about a configuration that says more than the step that was proved, or of a recorded step of which something was not compared:
the answer begins with what the proof is not about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from placeproof.importers import Reading
from placeproof.importers.imported import Role
from placeproof.programs import Program
from placeproof.report.document import Document, Lines, Notes, Section, section
from placeproof.report.imported import rows

WORD: Final = "proved except"
_NOT_COMPARED: Final = "not compared"


def left_out(program: Program) -> tuple[Reading, ...]:
    """What was not compared of a recorded step, as settings that a proof is not about."""
    return tuple(Reading(name=n, value=_NOT_COMPARED, role=Role.ANOTHER_STEP, note=text) for n, text in program.not_compared)


def excepted(proof: Document, settings: Sequence[Reading]) -> Document:
    """The same, as a proof of the step without some settings. ``proof``: of a step that is proved."""
    names = [setting.name for setting in settings]
    return Document(
        name=proof.name,
        sections=lambda: _sections(proof, settings, names),
        data=lambda: _data(proof.data(), names),
    )


def _sections(proof: Document, settings: Sequence[Reading], names: Sequence[str]) -> Iterator[Section]:
    recorded = all(setting.value == _NOT_COMPARED for setting in settings)
    several = "a setting that changes" if len(names) == 1 else f"{len(names)} settings that change"
    without = "as it was recorded" if recorded else f"without {'it' if len(names) == 1 else 'them'}"
    remedy = (
        f"`--allow {names[0]}` takes it as of no matter." if len(names) == 1 else "`--allow SETTING` takes one of them as of no matter."
    )
    lines = Lines([f"What is proved is the step {without}. {remedy}"])
    title = f"{proof.name}: {WORD} for {'what was not compared' if recorded else f'{several} the step'}"
    yield section(title, Notes(rows(settings)), lines, detail="answer")
    first, *rest = proof.sections()
    yield replace(first, detail="usual", title=first.title.replace(f"{proof.name}:", f"the step {without}:", 1))
    for each in rest:
        yield replace(each, title=each.title.replace("proved: ", f"{WORD}: ", 1) if each.title.startswith("proved: ") else each.title)


def _data(proof: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {**proof, **({"verdict": WORD} if "verdict" in proof else {}), "except": list(names)}
