"""What the training experiment trains: one model whose steps are exact in float64, and a decoder whose steps are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

from placeproof.core.shapes import transformer
from placeproof.measure.training.models import Model, build
from placeproof.measure.training.wrap import WRAPS, Job, Wrap

#: Samples of the global batch, features, and features between the two layers of a branch.
BATCH, WIDTH, INNER, BRANCHES = 8, 8, 16, 2
#: A quarter of the BATCH * WIDTH that the mean divides by: a step changes weights by multiples of a quarter.
EXACT_RATE = 2.0**4
#: The decoder of the rounded steps.
DECODER = transformer(layers=2, hidden=16, heads=4, ffn=32, vocab=32, batch=8, tokens=8)
ROUNDED_RATE = 2.0**-8

#: Inputs and targets of a batch, samples first.
Batch: TypeAlias = tuple[Tensor, Tensor]


class Branch(nn.Module):
    """Two layers with a ReLU between them."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, INNER, bias=False, dtype=torch.float64)
        self.down = nn.Linear(INNER, WIDTH, bias=False, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        """(samples, features) to the same."""
        out: Tensor = self.down(functional.relu(self.up(x)))
        return out


class Branches(Model):
    """The sum of the input and of branches that all read it.

    No path has more than two layers: the gradient of either has the grain of the other, so that a step adds few bits to both. With a
    third layer on a path, the number of bits would grow by a factor in each step.
    """

    def __init__(self) -> None:
        super().__init__()
        self._units = tuple(f"branches.{i}" for i in range(BRANCHES))
        self.branches = nn.ModuleList(Branch() for _ in range(BRANCHES))
        self.scale = nn.Parameter(torch.ones(WIDTH, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """(samples, features) to the same."""
        y = x * self.scale
        for branch in self.branches:
            y = y + branch(x)
        return y


def _exact_model() -> Model:
    """Weights of -1, 0 and 1."""
    model = Branches()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randint(-1, 2, p.shape) if name != "scale" else torch.ones(p.shape))
    return model


def _exact_batch() -> Batch:
    """Inputs of -1, 0 and 1, most of them 0; targets are whole numbers up to 4."""
    some = torch.rand(BATCH, WIDTH) < 0.25
    return (torch.randint(-1, 2, (BATCH, WIDTH)) * some).double(), torch.randint(-4, 5, (BATCH, WIDTH)).double()


def _exact_split(model: Model, job: Job) -> nn.Module:
    """Tensor parallelism: ``up`` by its output features, ``down`` by its input features."""
    styles = {"up": ColwiseParallel, "down": RowwiseParallel}
    plan = {f"branches.*.{name}": style() for name, style in styles.items()}
    return parallelize_module(model, job.part("tp"), plan)


def _rounded_model() -> Model:
    model = build(DECODER)
    model.double()
    return model


def _rounded_batch() -> Batch:
    size = (DECODER.dim("batch"), DECODER.dim("tokens"))
    return torch.randint(DECODER.dim("vocab"), size), torch.randint(DECODER.dim("vocab"), size)


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """What is trained, and how. ``model`` and ``batch`` draw from torch's generator; ``split`` is tensor parallelism for this model."""

    model: Callable[[], Model]
    batch: Callable[[], Batch]
    loss: Callable[[Tensor, Tensor], Tensor]
    optimizer: type[torch.optim.Optimizer]
    rate: float
    split: Wrap

    def begin(self, seed: int) -> tuple[Model, Batch]:
        """The model before the first step, and the global batch: the same wherever the seed is."""
        torch.manual_seed(seed)
        return self.model(), self.batch()

    def updates(self, module: nn.Module) -> torch.optim.Optimizer:
        """The optimizer of a module that may be wrapped; one tensor at a time, since not all lie on one mesh."""
        kind: Any = self.optimizer
        made: torch.optim.Optimizer = kind(module.parameters(), lr=self.rate, foreach=False)
        return made


#: By the names of :data:`placeproof.measure.experiments.training.REGIMES`.
REGIMES = {
    "exact": Regime(
        model=_exact_model,
        batch=_exact_batch,
        loss=functional.l1_loss,
        optimizer=torch.optim.SGD,
        rate=EXACT_RATE,
        split=_exact_split,
    ),
    "rounded": Regime(
        model=_rounded_model,
        batch=_rounded_batch,
        loss=_cross_entropy,
        optimizer=torch.optim.AdamW,
        rate=ROUNDED_RATE,
        split=WRAPS["tp_megatron"],
    ),
}
