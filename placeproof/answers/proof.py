"""Whether a step trains what one device trains, as an answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placeproof.answers import subject as subjects
from placeproof.answers.answer import Answer, Asked, answer, asked
from placeproof.core.strategy import Strategy
from placeproof.report.proof import model, text
from placeproof.semantics.judge.model import JudgedModel, judge_linked
from placeproof.semantics.judge.verdict import Judged, judge
from placeproof.semantics.linked import link
from placeproof.semantics.lower import lower

if TYPE_CHECKING:
    from placeproof.models import Model
    from placeproof.report.document import Document


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Judgement(Answer, Judged):
    """A program's verdict. ``subject``: what it is called."""

    subject: str

    @property
    def document(self) -> Document:
        """What it says."""
        return text.document(self.subject, self)


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class ModelJudgement(Answer, JudgedModel):
    """The verdict on the step of a model."""

    @property
    def document(self) -> Document:
        """What it says."""
        return model.document(self)


def judgement_of_model(subject: Asked, of: str | Model, *, without: Iterable[str] = ()) -> ModelJudgement:
    """The verdict on a model's step under a strategy: :func:`placeproof.judge`."""
    strategy, imported = asked(subject)
    if not isinstance(strategy, Strategy):
        subjects.refuse_program(strategy.name)
    read = subjects.model(of) if isinstance(of, str) else of
    dropped = frozenset(without).union(*(one.without for one in imported))
    return answer(ModelJudgement, judge_linked(link(read, strategy), read, without=dropped))


def judgement(subject: Asked, *, without: Iterable[str] = ()) -> Judgement:
    """The verdict: :func:`placeproof.judge`."""
    target, imported = asked(subject)
    dropped = frozenset(without).union(*(one.without for one in imported))
    judged = judge(lower(target) if isinstance(target, Strategy) else target, without=dropped)
    return answer(Judgement, judged, subject=target.name)
