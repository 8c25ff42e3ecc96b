"""One process that sees the whole batch: what a right script ends with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Optimizer

#: Of (ranks): the parameters after training, by name.
Reference = Callable[[int], dict[str, Tensor]]
#: Of (ranks, step): what the model and the loss are given, of all samples of the step.
Samples = Callable[[int, int], Iterable[Tensor]]

sgd = partial(SGD, lr=0.1)


def whole(batch: Callable[[int, int], Iterable[Tensor]]) -> Samples:
    """The batches of all ranks, one after another."""
    return lambda world, step: [torch.cat(of_ranks) for of_ranks in zip(*(batch(r, step) for r in range(world)))]


def of_rank_0(batch: Callable[[int, int], Iterable[Tensor]]) -> Samples:
    """One batch, which all ranks share."""
    return lambda world, step: batch(0, step)


def mean_squares(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The mean of the squared errors."""
    return functional.mse_loss(model(x), y)


def token_mean(model: nn.Module, x: Tensor, y: Tensor, **options: object) -> Tensor:
    """The mean of the cross entropy over tokens whose target is not -100."""
    return functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=-100, **options)


def parameters(model: nn.Module) -> dict[str, Tensor]:
    """Parameters by name, without what wrappers add to names; those that are distributed are gathered."""
    named = {n.replace("module.", ""): p.detach() for n, p in model.named_parameters()}
    return {n: (p.full_tensor() if hasattr(p, "full_tensor") else p).clone() for n, p in named.items()}


def alone(
    build: Callable[[], nn.Module],
    samples: Samples,
    loss: Callable[..., Tensor],
    *,
    steps: int = 1,
    optimizer: Callable[[list[nn.Parameter]], Optimizer] = sgd,
    clip: float | None = None,
    rates: tuple[float, ...] = (),
) -> Reference:
    """What one process ends with. ``clip``: the most that the norm of all gradients may be; ``rates``: learning rates by step."""

    def reference(world: int) -> dict[str, Tensor]:
        model = build()
        trained = [p for p in model.parameters() if p.requires_grad]
        update = optimizer(trained)
        for step in range(steps):
            update.zero_grad()
            loss(model, *samples(world, step)).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(trained, clip)
            if rates:
                update.param_groups[0]["lr"] = rates[step]
            update.step()
        return parameters(model)

    return reference
