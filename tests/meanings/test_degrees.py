"""What one device more costs is claimed of every strategy of the catalogue."""

from __future__ import annotations

import re

from placeproof.strategies import names
from placeproof.theory.statements import Holds
from placeproof.theory.suite.load import load


def test_the_theorems_on_degrees_speak_of_the_whole_catalogue() -> None:
    statements = [theorem.statement() for theorem in load(["degrees"]).theorems]
    labels = {origin.label for s in statements if isinstance(s, Holds) for goal in s.goals for origin in goal.origins()}
    assert {word for label in labels for word in re.findall(r"\w+", label)} >= {*names()}
