"""A proof about a configuration that says more than the step that was proved: the answer begins with what the proof is not about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from placeproof.importers import Reading
from placeproof.report.document import Document, Lines, Notes, Section, section
from placeproof.report.imported import rows

WORD: Final = "proved except"


def excepted(proof: Document, settings: Sequence[Reading]) -> Document:
    """The same, as a proof of the step without some settings. ``proof``: of a step that is proved."""
    names = [setting.name for setting in settings]
    return Document(
        name=proof.name,
        sections=lambda: _sections(proof, settings, names),
        data=lambda: _data(proof.data(), names),
    )


def _sections(proof: Document, settings: Sequence[Reading], names: Sequence[str]) -> Iterator[Section]:
    several = "a setting that changes" if len(names) == 1 else f"{len(names)} settings that change"
    remedy = (
        f"`--allow {names[0]}` takes it as of no matter." if len(names) == 1 else "`--allow SETTING` takes one of them as of no matter."
    )
    lines = Lines([f"What is proved is the step without {'it' if len(names) == 1 else 'them'}. {remedy}"])
    yield section(f"{proof.name}: {WORD} for {several} the step", Notes(rows(settings)), lines, detail="answer")
    first, *rest = proof.sections()
    yield replace(
        first, detail="usual", title=first.title.replace(f"{proof.name}:", f"the step without {'it' if len(names) == 1 else 'them'}:", 1)
    )
    for each in rest:
        yield replace(each, title=each.title.replace("proved: ", f"{WORD}: ", 1) if each.title.startswith("proved: ") else each.title)


def _data(proof: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {**proof, **({"verdict": WORD} if "verdict" in proof else {}), "except": list(names)}
