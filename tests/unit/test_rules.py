"""The rules of composition, from both sides: what follows a rule is proved, what breaks it is refuted or refused."""

from __future__ import annotations

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.programs import Program, read
from placeproof.semantics.catalogue import Rule, rules
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.lower import lower
from placeproof.strategies import parse_strategy

HOLDS = [(rule, text) for rule in rules().values() for text in rule.holds]
FAILS = [(rule, text) for rule in rules().values() for text in rule.fails]


def subject(text: str, name: str) -> Program:
    """The program of a subject. Raises InputError for one that is refused."""
    for kind in ("strategy: ", "refused: "):
        if text.startswith(kind):
            return lower(parse_strategy(text.removeprefix(kind)))
    return read(text.lstrip("\n"), source=name)


def test_every_rule_has_both_sides() -> None:
    assert len(rules()) >= 9
    for rule in rules().values():
        assert rule.holds, rule.name
        assert rule.fails, rule.name
        assert len(rule.says.split()) > 10


@pytest.mark.parametrize(("rule", "text"), HOLDS)
def test_what_follows_a_rule_is_proved(rule: Rule, text: str) -> None:
    assert judge(subject(text, rule.name)).word == "proved"


@pytest.mark.parametrize(("rule", "text"), FAILS)
def test_what_breaks_a_rule_is_refuted(rule: Rule, text: str) -> None:
    if text.startswith("refused: "):
        with pytest.raises(InputError) as refused:
            subject(text, rule.name)
        assert refused.value.diagnostics[0].help
    else:
        assert judge(subject(text, rule.name), shortest=False).word == "refuted"
