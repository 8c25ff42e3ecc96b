"""Every model under every strategy: an answer, or an error that says why there is none, and never a bug of ours.

By day each family under every sixth strategy, so that each strategy is tried with several families, and every twelfth pair of strategies
on some model; at night each family under each strategy, and ``nightly/models.py`` tries every model under every pair. Of proofs, each
strategy and each family once; at night each family under every strategy and every pair.
"""

from __future__ import annotations

import sys
from itertools import cycle, islice
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "nightly"))
from models import FORMS, command, pairs, strategies, subjects
from samples import NIGHTLY, sample

from placeproof.models import families as kinds_of_models
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
def test_each_family_under_strategies(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its models in turn."""
    asked = strategies() if NIGHTLY else strategies()[list(families()).index(family) % 6 :: 6]
    found = [answered(capsys, command(*one)) for one in zip(cycle(families()[family]), asked, cycle(FORMS), strict=False)]
    assert found.count(0) > len(found) / 2


def test_pairs_of_strategies(capsys: pytest.CaptureFixture[str]) -> None:
    every = islice(pairs(), 0, None, 1 if NIGHTLY else 12)
    found = [answered(capsys, command(*one)) for one in zip(cycle(presets()), every, cycle(FORMS), strict=False)]
    assert found.count(0) > len(found) / 3


def proofs() -> list[tuple[str, str]]:
    """Strategies, each with a family of models; by day few of them."""
    every = [(family, strategy) for strategy in (*strategies(), *pairs()) for family in kinds_of_models()]
    if NIGHTLY:
        return every
    quick = [(family, strategy) for family, strategy in every if strategy in strategies() and "lora" not in strategy]
    return sample(quick, set)


@pytest.mark.parametrize(("family", "strategy"), proofs())
def test_no_proof_beside_a_model_breaks_or_refutes(family: str, strategy: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Proved, refused, or unknown with a reason: what the catalogue's strategies make of any model is right."""
    from placeproof.cli.main import run

    code = run(["prove", strategy, "--model", family])
    out, err = capsys.readouterr()
    assert (code in (0, 3) and out and not err) or (code == 2 and not out and err.startswith("error[")), (code, out[:500], err[:500])


def test_proofs_by_day_are_of_every_family_and_every_strategy() -> None:
    found = proofs()
    assert {family for family, _ in found} == set(kinds_of_models())
    assert {strategy for _, strategy in found} >= {one for one in strategies() if "lora" not in one}


def test_the_whole_is_every_model_under_every_pair_in_every_form() -> None:
    every = list(subjects())
    assert len(every) == len(presets()) * len(FORMS) * (len(strategies()) + len(pairs()))
