"""Whether a step trains what one device trains, as an answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from placeproof.answers import subject as subjects
from placeproof.answers.answer import Answer, Asked, answer, asked
from placeproof.core.strategy import Strategy
from placeproof.report.proof import model, text
from placeproof.report.proof.excepted import WORD, excepted, left_out
from placeproof.semantics.judge.model import JudgedModel, judge_linked
from placeproof.semantics.judge.verdict import Judged, Word, judge
from placeproof.semantics.linked import link
from placeproof.semantics.lower import lower
from placeproof.semantics.scheduled import not_proved

if TYPE_CHECKING:
    from placeproof.importers import Imported, Reading
    from placeproof.models import Model
    from placeproof.programs import Program
    from placeproof.report.document import Document


Verdict: TypeAlias = Word | Literal["proved except"]


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Judgement(Answer, Judged):
    """A program's verdict. ``subject``: what it is called; ``settings``: those of a configuration that it is not about, and
    what was not compared of a recorded step. A step that
    is proved but for them is `proved except`."""

    subject: str
    word: Verdict  # type: ignore[assignment]
    settings: tuple[Reading, ...] = ()

    @property
    def document(self) -> Document:
        """What it says."""
        proof = text.document(self.subject, replace(self, word="proved") if self.word == WORD else self)
        return excepted(proof, self.settings) if self.word == WORD else proof


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class ModelJudgement(Answer, JudgedModel):
    """The verdict on the step of a model. ``settings``: as of :class:`Judgement`."""

    settings: tuple[Reading, ...] = ()

    @property
    def word(self) -> Verdict:  # type: ignore[override]
        """The verdict in one word."""
        word = super().word
        return WORD if word == "proved" and self.settings else word

    @property
    def document(self) -> Document:
        """What it says."""
        proof = model.document(replace(self, settings=()))
        return excepted(proof, self.settings) if self.word == WORD else proof


def judgement_of_model(subject: Asked, of: str | Model, *, without: Iterable[str] = ()) -> ModelJudgement:
    """The verdict on a model's step under a strategy: :func:`placeproof.judge`."""
    judged = judgement_of(*asked(subject), subjects.model(of) if isinstance(of, str) else of, without=without)
    assert isinstance(judged, ModelJudgement)
    return judged


def judgement(subject: Asked, *, without: Iterable[str] = ()) -> Judgement:
    """The verdict: :func:`placeproof.judge`."""
    judged = judgement_of(*asked(subject), None, without=without)
    assert isinstance(judged, Judgement)
    return judged


def judgement_of(
    target: Strategy | Program, imported: Sequence[Imported], of: Model | None, *, without: Iterable[str] = ()
) -> Judgement | ModelJudgement:
    """The verdict on what was read, and on the step of a model under it, if there is one. Raises InputError."""
    dropped = frozenset(without).union(*(one.without for one in imported))
    if of is not None:
        if not isinstance(target, Strategy):
            subjects.refuse_program(target.name)
        return answer(ModelJudgement, judge_linked(link(of, target), of, without=dropped), settings=_another_step(imported))
    judged = judge(lower(target) if isinstance(target, Strategy) else target, without=dropped)
    if isinstance(target, Strategy):
        judged = beside_order(judged, target)
    settings = _another_step(imported) + (() if isinstance(target, Strategy) else left_out(target))
    word = WORD if judged.word == "proved" and settings else judged.word
    return answer(Judgement, judged, subject=target.name, settings=settings, word=word)


def beside_order(judged: Judged, strategy: Strategy) -> Judged:
    """The verdict with what no proof says of the order of a schedule of one's own, as a warning."""
    said = not_proved(strategy)
    return judged if said is None else replace(judged, warnings=(*judged.warnings, (said, None)))


def _another_step(imported: Iterable[Imported]) -> tuple[Reading, ...]:
    return tuple(setting for one in imported for setting in one.another_step)
