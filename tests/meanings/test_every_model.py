"""Every model under every strategy: an answer, or an error that says why there is none, and never a bug of ours.

Here, each family under each strategy, and every second pair of strategies on some model; ``nightly/models.py`` tries every model under
every pair.
"""

from __future__ import annotations

import sys
from itertools import cycle, islice
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "nightly"))
from models import FORMS, command, pairs, strategies, subjects

from placeproof.models import load, presets


def answered(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> int:
    from placeproof.cli.main import run

    code = run(arguments)
    out, err = capsys.readouterr()
    assert (code == 0 and out and not err) or (code == 2 and not out and err.startswith("error[")), (arguments, code, err[:500])
    return code


def families() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in presets():
        found.setdefault(load(name).family, []).append(name)
    return found


@pytest.mark.parametrize("family", families())
def test_each_family_under_each_strategy(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its models in turn."""
    found = [answered(capsys, command(*one)) for one in zip(cycle(families()[family]), strategies(), cycle(FORMS), strict=False)]
    assert found.count(0) > len(found) / 2


def test_every_second_pair_of_strategies(capsys: pytest.CaptureFixture[str]) -> None:
    found = [answered(capsys, command(*one)) for one in zip(cycle(presets()), islice(pairs(), 0, None, 2), cycle(FORMS), strict=False)]
    assert found.count(0) > len(found) / 3


def test_the_whole_is_every_model_under_every_pair_in_every_form() -> None:
    every = list(subjects())
    assert len(every) == len(presets()) * len(FORMS) * (len(strategies()) + len(pairs()))
