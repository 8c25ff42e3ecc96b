"""Numbers of less than double precision, which a script asks for by name: in a comparison they are of double precision."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")
from placeproof.measure.record.doubled import Doubled  # noqa: E402


def test_less_than_double_precision_is_double() -> None:
    third = torch.tensor(1.0, dtype=torch.float64) / 3
    with Doubled():
        made = [third.float(), third.half(), third.bfloat16(), third.to(torch.float32)]
        assert all(t.dtype == torch.float64 and bool(t == third) for t in made)
        assert torch.ones(2, dtype=torch.float32).dtype == torch.float64
        assert torch.tensor(np.ones(2, np.float32)).dtype == torch.float64
        assert torch.arange(3).float().mean().dtype == torch.float64


def test_arrays_of_single_precision_meet_parameters_of_double_precision() -> None:
    rows = torch.from_numpy(np.ones((2, 3), np.float32))
    net = torch.nn.Linear(3, 1, dtype=torch.float64)
    with Doubled():
        loss = net(rows).sum()
        loss.backward()
    assert loss.dtype == torch.float64
    assert net.weight.grad is not None
    assert net.weight.grad.tolist() == [[2.0, 2.0, 2.0]]


def test_whole_numbers_and_places_stay_as_they_are() -> None:
    base = torch.zeros(4, dtype=torch.float64)
    with Doubled():
        part = base[1:3]
        part.add_(1)
        assert torch.arange(3).dtype == torch.int64
        assert (base > 0).dtype == torch.bool
    assert base.tolist() == [0.0, 1.0, 1.0, 0.0]


def test_what_does_not_run_at_all_is_an_error() -> None:
    with Doubled(), pytest.raises(RuntimeError):
        torch.mm(torch.ones(2, 3), torch.ones(2, 3))


def test_scaled_losses_are_unscaled() -> None:
    """What looks for gradients that are infinite takes its own numbers in single precision alone."""
    net = torch.nn.Linear(2, 1, dtype=torch.float64)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    before = net.weight.detach().clone()
    with Doubled():
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for rows in (torch.ones(1, 2, dtype=torch.float64), torch.full((1, 2), torch.inf, dtype=torch.float64)):
            optimizer.zero_grad()
            scaler.scale(net(rows).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            assert (before - net.weight.detach()).tolist() == pytest.approx(np.full((1, 2), 0.5))
    assert scaler.get_scale() == 512.0
