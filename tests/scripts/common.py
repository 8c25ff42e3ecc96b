"""The model, the batch and the loss that all these scripts train, and what one process makes of them.

All numbers are whole or halves, in float64, and sums are divided by powers of two. One step of SGD is then exact: whatever the order in
which a strategy adds up, a correct one ends with the same bits as one process. ``tests/reality/test_equality_torch.py`` computes the step
in fractions too.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

BATCH, TOKENS, WIDTH, INNER, BLOCKS = 16, 2, 8, 16, 4
LEARNING_RATE = 2.0**-4


class Scale(nn.Module):
    """What is left of a norm without its statistics: a factor for each feature."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randint(1, 3, (WIDTH,)).double())

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) to the same."""
        return x * self.weight


class Linear(nn.Linear):
    """A linear layer whose weights are -1/2, 0 or 1/2."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False, dtype=torch.float64)
        with torch.no_grad():
            self.weight.copy_(torch.randint(-1, 2, self.weight.shape) / 2)


class Block(nn.Module):
    """Two layers that read the same, and one that ends the block. ``entry`` does nothing: there, layouts can be changed."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = Scale()
        self.entry = nn.Identity()
        self.left = Linear(WIDTH, INNER)
        self.right = Linear(WIDTH, INNER)
        self.down = Linear(INNER, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) to the same."""
        y = self.entry(self.norm(x))
        out: Tensor = x + self.down(functional.relu(self.left(y)) + functional.relu(self.right(y)))
        return out


class Net(nn.Module):
    """Residual blocks between two linear layers. Parameters are drawn from torch's global generator."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet: nn.Module | None = Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleDict({str(i): Block() for i in range(BLOCKS)})
        self.outlet: nn.Module | None = Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) to the same. What was cut off is another stage's."""
        if self.inlet is not None:
            x = self.inlet(x)
        for block in self.blocks.values():
            x = block(x)
        return x if self.outlet is None else self.outlet(x)


def model(seed: int = 0) -> Net:
    """The model as it is before the step."""
    torch.manual_seed(seed)
    return Net()


def stage(index: int, count: int) -> Net:
    """What a pipeline stage has of the model: some of the blocks, and the ends of the model at its ends."""
    net = model()
    for i in range(BLOCKS):
        if i * count // BLOCKS != index:
            del net.blocks[str(i)]
    if index > 0:
        net.inlet = None
    if index < count - 1:
        net.outlet = None
    return net


def batch() -> tuple[Tensor, Tensor]:
    """Samples and targets of the global batch, each (batch, tokens, width)."""
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randint(-2, 3, (BATCH, TOKENS, WIDTH), generator=generator).double() for _ in range(2))
    return x, y


def share(index: int, count: int) -> tuple[Tensor, Tensor]:
    """The samples and targets of one of ``count`` equal shares of the global batch."""
    x, y = batch()
    return x.chunk(count)[index], y.chunk(count)[index]


def sgd(net: nn.Module) -> torch.optim.SGD:
    """The optimizer; one tensor at a time, since not all lie on one mesh."""
    return torch.optim.SGD(net.parameters(), lr=LEARNING_RATE, foreach=False)


loss = functional.mse_loss


def parameters(net: nn.Module) -> dict[str, Tensor]:
    """The parameters by name, without their gradients."""
    return {name: p.detach().clone() for name, p in net.named_parameters()}


def full_parameters(net: nn.Module) -> dict[str, Tensor]:
    """The parameters by name; those that are distributed are gathered, by all ranks of their mesh."""
    from torch.distributed.tensor import DTensor

    with torch.no_grad():
        return {n: (p.full_tensor() if isinstance(p, DTensor) else p).detach().clone() for n, p in net.named_parameters()}


def reference() -> dict[str, Tensor]:
    """The parameters after one step in one process, which sees the whole batch."""
    net, (x, y) = model(), batch()
    optimizer = sgd(net)
    loss(net(x), y).backward()
    optimizer.step()
    return parameters(net)
