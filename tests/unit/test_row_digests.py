"""Which tensors have something of each sample, and which only number samples."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")


@pytest.mark.parametrize("values", [[0, 1, 2, 3], [0, 3, 6, 9], [0, 1]])
def test_what_numbers_samples_has_nothing_of_them(values: list[int]) -> None:
    from placeproof.measure.record.digests import by_row

    assert by_row([torch.tensor(values)], len(values)) == []


@pytest.mark.parametrize("values", [[0, 3, 6, 8], [1, 2, 3, 4], [0, 2], [0, 2, 4], [0, 0, 0, 0], [3, 2, 1, 0], [0.0, 1.0, 2.0, 3.0]])
def test_labels_and_numbers_have(values: list[float]) -> None:
    from placeproof.measure.record.digests import by_row

    assert len(by_row([torch.tensor(values)], len(values))) == 1
