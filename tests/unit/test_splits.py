"""What axes are asked of what they split."""

from __future__ import annotations

import pytest

from placeproof.core.mesh import SPLITS

YES = {
    "samples": {"batch", "sequence"},
    "batch": {"batch"},
    "tokens": {"sequence"},
    "partial": {"experts", "hidden"},
    "matrices": {"hidden"},
    "routes": {"experts"},
    "called": {"blocks"},
    "stages": {"layers"},
    "compute": {"experts", "hidden", "blocks", "layers"},
}


@pytest.mark.parametrize("question", YES)
def test_who_answers_yes(question: str) -> None:
    assert {name for name, splits in SPLITS.items() if getattr(splits, question)} == YES[question]


def test_in_words() -> None:
    assert [str(splits) for splits in SPLITS.values()] == ["batch", "sequence", "experts", "hidden dimension", "blocks", "layers"]
