"""Whether a step trains what one device trains, as an answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from placeproof.answers.answer import Answer, Asked, answer, asked
from placeproof.core.strategy import Strategy
from placeproof.report.proof import text
from placeproof.semantics.judge.verdict import Judged, judge
from placeproof.semantics.lower import lower

if TYPE_CHECKING:
    from placeproof.report.document import Document


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Judgement(Answer, Judged):
    """A program's verdict. ``subject``: what it is called."""

    subject: str

    @property
    def document(self) -> Document:
        """What it says."""
        return text.document(self.subject, self)


def judgement(subject: Asked, *, without: Iterable[str] = ()) -> Judgement:
    """The verdict: :func:`placeproof.judge`."""
    of, imported = asked(subject)
    dropped = frozenset(without).union(*(one.without for one in imported))
    judged = judge(lower(of) if isinstance(of, Strategy) else of, without=dropped)
    return answer(Judgement, judged, subject=of.name)
