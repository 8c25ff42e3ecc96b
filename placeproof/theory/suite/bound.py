"""What of the product a theorem is about, by what its terms are made of; and which theorems stand behind a closed form.

A name in a file says nothing: a theorem stands behind a form if that very form is in what it states, and if it holds of the form as it is
now. The latter is tried at random exact points, which takes no solver; ``placeproof check`` proves it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from placeproof.theory.statements import OF_PROGRAMS, Statement
from placeproof.theory.suite.checks import arithmetic
from placeproof.theory.suite.load import load
from placeproof.theory.suite.outcome import SUBJECTS, Subject
from placeproof.theory.theorem import Proved

if TYPE_CHECKING:
    from placeproof.theory.theorem import Theorem

#: By which of the words a term is told that comes from something of the product.
_OF: dict[str, Subject] = {
    "program": "derivations", "form": "forms", "order": "forms", "rounds": "forms", "code": "forms", "table": "tables",
}  # fmt: skip


def about(statement: Statement) -> frozenset[str]:
    """What of the product a statement's relations are made of, as ``Origin.about`` says it; ``trains`` of programs."""
    if isinstance(statement, OF_PROGRAMS):
        return frozenset({"trains"})
    return frozenset(origin.about for goal in (*statement.what.goals, *statement.what.given) for origin in goal.origins())


def subject(statement: Statement) -> Subject:
    """What a statement is about, by that of its terms which says most of the product."""
    if isinstance(statement, OF_PROGRAMS):
        return "programs"
    words = {_OF[name.split()[0]] for name in about(statement)}
    return next((word for word in SUBJECTS if word in words), "mathematics")


def claimed(statement: Statement) -> frozenset[str]:
    """The closed forms that a statement's goals are made of; what only its hypotheses speak of is not among them."""
    if isinstance(statement, OF_PROGRAMS):
        return frozenset()
    return frozenset(o.about for goal in statement.what.goals for o in goal.origins() if o.about.startswith("form "))


def behind(form: str, ids: Iterable[str]) -> dict[str, bool]:
    """Of theorems of our suite those that are about a form, each with whether it holds of it at random points.

    ``form``: its name, as :func:`placeproof.theory.forms.shipped` has it. A theorem that does not exist, is not expected to be proved, or
    speaks of another form, is left out.
    """
    wanted = list(ids)
    known = {t.id: t for t in load(wanted).theorems} if wanted else {}
    fit = [known[name] for name in wanted if name in known and isinstance(known[name].expect, Proved)]
    return {theorem.id: _holds(theorem) for theorem in fit if form in claimed(theorem.statement())}


def _holds(theorem: Theorem) -> bool:
    statement = theorem.statement()
    assert not isinstance(statement, OF_PROGRAMS)
    skipped = "exact arithmetic" in theorem.skip
    return skipped or arithmetic.sampled(theorem, statement, wanted=20).standing == "passed"
