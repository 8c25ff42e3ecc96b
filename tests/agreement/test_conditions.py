"""Two conditions against the third: of the catalogue's compositions, and of what breaks their programs."""

from __future__ import annotations

import pytest
from compositions import mutants
from samples import NIGHTLY, parts, sample

from placeproof.programs import Program
from placeproof.prove import Proved, settle
from placeproof.semantics.catalogue import compositions
from placeproof.semantics.encode import CONSISTENCY, GRADIENT, INVARIANT, encode
from placeproof.semantics.judge.conditions import answered
from placeproof.semantics.resolve import resolve

#: Of sums and norms that Adafactor reads beside gradients neither condition speaks.
PAIRS = {text: program for text, program in compositions(2) if isinstance(program, Program) and "adafactor" not in text}


def kept(program: Program) -> set[str]:
    """The conditions all of whose obligations are proved."""
    obligations = encode(resolve(program)).obligations
    broken = {o.condition for o in obligations if not isinstance(settle(o.claim), Proved)}
    return {GRADIENT, CONSISTENCY, INVARIANT} - broken


#: By day each strategy and option in one, and every third pair: theorems say it of all pairs (`theorems/catalogue.py`).
TRIED = [text for n, text in enumerate(PAIRS) if NIGHTLY or n % 3 == 0 or text in sample(list(PAIRS), parts)]


@pytest.mark.parametrize("text", TRIED)
def test_a_step_is_right_where_it_keeps_both_conditions_and_nowhere_else(text: str) -> None:
    program = PAIRS[text]
    assert kept(program) == {GRADIENT, CONSISTENCY, INVARIANT}
    for name, changed in mutants(program):
        conditions = kept(changed)
        assert (INVARIANT in conditions) is ({GRADIENT, CONSISTENCY} <= conditions), name
        assert INVARIANT not in conditions, name


@pytest.mark.parametrize("text", ["ddp", "zero1", "zero3", "pp", "ep", "accumulate"])
def test_all_that_is_proved_of_the_conditions_is_so_in_the_numbers_of_a_run(text: str) -> None:
    answers = answered(PAIRS[text])
    assert [a.obligation.name for a in answers if a.word != "proved" or not a.numbers] == []
