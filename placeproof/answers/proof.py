"""Whether a step trains what one device trains, as an answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from placeproof.answers import subject as subjects
from placeproof.answers.answer import Answer, Asked, answer, asked
from placeproof.core.strategy import Strategy
from placeproof.report.proof import model, text
from placeproof.report.proof.excepted import WORD, excepted
from placeproof.semantics.judge.model import JudgedModel, judge_linked
from placeproof.semantics.judge.verdict import Judged, Word, judge
from placeproof.semantics.linked import link
from placeproof.semantics.lower import lower
from placeproof.semantics.scheduled import not_proved

if TYPE_CHECKING:
    from placeproof.importers import Imported, Reading
    from placeproof.models import Model
    from placeproof.report.document import Document


Verdict: TypeAlias = Word | Literal["proved except"]


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Judgement(Answer, Judged):
    """A program's verdict. ``subject``: what it is called; ``settings``: those of a configuration that it is not about. A step that
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
    strategy, imported = asked(subject)
    if not isinstance(strategy, Strategy):
        subjects.refuse_program(strategy.name)
    read = subjects.model(of) if isinstance(of, str) else of
    dropped = frozenset(without).union(*(one.without for one in imported))
    return answer(ModelJudgement, judge_linked(link(read, strategy), read, without=dropped), settings=_another_step(imported))


def judgement(subject: Asked, *, without: Iterable[str] = ()) -> Judgement:
    """The verdict: :func:`placeproof.judge`."""
    target, imported = asked(subject)
    dropped = frozenset(without).union(*(one.without for one in imported))
    judged = judge(lower(target) if isinstance(target, Strategy) else target, without=dropped)
    if isinstance(target, Strategy):
        judged = beside_order(judged, target)
    settings = _another_step(imported)
    word = WORD if judged.word == "proved" and settings else judged.word
    return answer(Judgement, judged, subject=target.name, settings=settings, word=word)


def beside_order(judged: Judged, strategy: Strategy) -> Judged:
    """The verdict with what no proof says of the order of a schedule of one's own, as a warning."""
    said = not_proved(strategy)
    return judged if said is None else replace(judged, warnings=(*judged.warnings, (said, None)))


def _another_step(imported: Iterable[Imported]) -> tuple[Reading, ...]:
    return tuple(setting for one in imported for setting in one.another_step)
