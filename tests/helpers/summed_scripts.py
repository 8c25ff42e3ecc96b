"""Layers that ranks split by hand and add up: with gradients of one sum that differ, or with right ones that only look so.

Each is the body of a script's ``train``, on two ranks. ``SUMMED`` says what is wrong; ``WHOLE`` are right, or train something of which
nobody can say that it is wrong.
"""

from __future__ import annotations

HEAD = """
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as DF
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous().clone()
        dist.all_reduce(g)
        return g


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g


class Up(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        dx = g @ w
        work = dist.all_reduce(dx, async_op=True)
        dw = g.flatten(0, -2).t() @ x.flatten(0, -2)
        work.wait()
        return dx, dw


copied, added = Copy.apply, Reduce.apply


class Block(nn.Module):
    def __init__(self, d, h, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, h), nn.Linear(h, d, bias=False)

    def forward(self, x):
        return x + added(self.down(torch.tanh(self.up(copied(self.norm(x))))))


def build(own=True):
    rank = dist.get_rank()
    blocks = [Block(6, 4, 10 * i + (1 + rank if own else 1)) for i in range(2)]
    torch.manual_seed(0)
    return nn.Sequential(*blocks, nn.Linear(6, 3))


def batch(rank, step=0):
    g = torch.Generator().manual_seed(100 + 10 * step + rank)
    return torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
"""


def script(body: str) -> str:
    """All of a script."""
    return HEAD + "".join(f"    {line}\n" if line else "\n" for line in body.strip("\n").splitlines())


def _step(loss: str, *, data: str = "batch(0)", own: str = "True", before: str = "", after: str = "") -> str:
    return f"""
model = build({own})
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = {data}
{before}
{loss}
{after}
opt.step()
"""


_PLAIN = "F.mse_loss(model(x), y).backward()"
_SEED = "torch.manual_seed(7 + rank)\n"
_TENSORS = """
mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = batch(DATA)
loss = F.mse_loss(model(x), y)
loss.backward()
opt.step()
"""
_INSIDE = f"""{_SEED}for b in model[:2]:
    b.forward = lambda x, b=b: x + added(b.down(F.dropout(torch.tanh(b.up(copied(b.norm(x)))), 0.5)))"""
_ASIDE = """
old = [p.detach().clone() for p in model.parameters()]
with torch.no_grad():
    for p in model.parameters():
        p += 0.01 * p.grad
model.zero_grad()
F.mse_loss(model(x), y).backward()
with torch.no_grad():
    for p, o in zip(model.parameters(), old):
        p.copy_(o)
"""

#: Each rank goes back with a gradient of its own.
SUMMED = {
    "samples by rank": _step(_PLAIN, data="batch(rank)"),
    "samples by rank, in distributed tensors": _TENSORS.replace("DATA", "rank"),
    "targets by rank": _step(_PLAIN, data="(batch(0)[0], batch(rank)[1])"),
    "dropout by rank after blocks": _step(f"h = model(x)\n{_SEED}F.mse_loss(F.dropout(h, 0.5), y).backward()"),
    "dropout by rank between blocks": _step(f"h = model[0](x)\n{_SEED}F.mse_loss(model[2](model[1](F.dropout(h, 0.3))), y).backward()"),
    "samples by rank, two micro-batches": _step(
        "for i in range(2):\n    x, y = batch(rank, i)\n    (F.mse_loss(model(x), y) / 2).backward()", data="(None, None)"
    ),
    "rows of the loss by rank, of which nobody adds up gradients": _step(
        "h = model[1](model[0](x)).chunk(world)[rank]\nF.mse_loss(model[2](h), y.chunk(world)[rank]).backward()",
        after="for p in model[2].parameters():\n    dist.all_reduce(p.grad)\n    p.grad /= world",
    ),
    "a task on each rank, of which nobody adds up gradients": _step(
        "h = model[1](model[0](x))\nF.mse_loss(model[2](h)[:, rank], y[:, rank]).backward()"
    ),
    "copies averaged, and samples by rank": _step(
        _PLAIN,
        data="batch(rank)",
        after="for b in model:\n    for p in getattr(b, 'norm', b).parameters():\n        dist.all_reduce(p.grad)\n        p.grad /= world",
    ),
    "what blocks are given is reduced while weights are trained, and samples are by rank": _step(
        _PLAIN,
        data="batch(rank)",
        before="for b in model[:2]:\n    b.forward = lambda x, b=b: x + added(b.down(torch.tanh(Up.apply(b.norm(x), b.up.weight))))",
    ),
    "noise by rank between blocks": _step(
        f"h = model[0](x)\n{_SEED}h = h + 3 * torch.randn(4, 6)\nF.mse_loss(model[2](model[1](h)), y).backward()"
    ),
}

_OWN_HEAD = "h = copied(model[1](model[0](x)))\n"
#: Of each sum all have one gradient; or what it is for cannot be said.
WHOLE = {
    "one batch": _step(_PLAIN),
    "one batch, in distributed tensors": _TENSORS.replace("DATA", "0"),
    "dropout alike": _step("h = model(x)\ntorch.manual_seed(7)\nF.mse_loss(F.dropout(h, 0.3), y).backward()"),
    "dropout by rank within blocks": _step(
        _PLAIN,
        before=_INSIDE,
    ),
    "parts that begin alike, and dropout by rank within blocks": _step(
        _PLAIN,
        own="False",
        before=_INSIDE,
    ),
    "rows of the loss by rank": _step(
        f"{_OWN_HEAD}F.mse_loss(model[2](h.chunk(world)[rank]), y.chunk(world)[rank]).div(world).backward()",
        after="for p in model[2].parameters():\n    dist.all_reduce(p.grad)",
    ),
    "a task on each rank": _step(f"{_OWN_HEAD}F.mse_loss(model[2](h)[:, rank], y[:, rank]).backward()"),
    "a task on each rank, gradients added up by a hook": _step(
        "h = model[1](model[0](x))\nh.register_hook(lambda g: (g := g.clone(), dist.all_reduce(g))[0])\n"
        "F.mse_loss(model[2](h)[:, rank], y[:, rank]).backward()"
    ),
    "sums that are added up in backward, a task on each rank": _step(
        "F.mse_loss(model[2](h := model[1](model[0](x)))[:, rank], y[:, rank]).backward()",
        before="for b in model[:2]:\n    b.forward = lambda x, b=b: x + Both.apply(b.down(torch.tanh(b.up(b.norm(x)))))",
    ),
    "sums by PyTorch's function, a task on each rank": _step(
        "F.mse_loss(model[2](model[1](model[0](x)))[:, rank], y[:, rank]).backward()",
        before="for b in model[:2]:\n    b.forward = lambda x, b=b: x + DF.all_reduce(b.down(torch.tanh(b.up(b.norm(x)))))",
    ),
    "a sum whose gradients are added up before it, a task on each rank": _step(
        "F.mse_loss(model[2](model[1](model[0](x)))[:, rank], y[:, rank]).backward()",
        before="for b in model[:2]:\n    b.forward = lambda x, b=b: x + added(copied(b.down(torch.tanh(b.up(b.norm(x))))))",
    ),
    "copies of a model, samples by rank, a mean over ranks in a normalisation": _step(
        "h = model[2](x)\nh = h - added(h.mean(0)) / world\nF.mse_loss(h, y).backward()",
        data="batch(rank)",
        after="for p in model[2].parameters():\n    dist.all_reduce(p.grad)\n    p.grad /= world",
        before="model = nn.Sequential(nn.Identity(), nn.Identity(), model[2])",
    ),
    "views of a sample on ranks, each with a tower, and one head": _step(
        "h = added(model[0].down(torch.tanh(model[0].up(x))))\nF.mse_loss(model[2](h), batch(0)[1]).backward()", data="batch(rank)"
    ),
    "players with costs of their own, who add up what they do": """
torch.manual_seed(rank)
player = nn.Linear(6, 3)
opt = torch.optim.SGD(player.parameters(), lr=0.1)
x, _ = batch(0)
a = player(x)
s = added(a)
(a * (s - 1 - rank)).mean().backward()
opt.step()
""",
    "a loss that is shown as a sum over ranks": _step(
        "loss = added(F.mse_loss(model[2](x), y)) / world\nloss.backward()",
        data="batch(rank)",
        after="for p in model[2].parameters():\n    dist.all_reduce(p.grad)\n    p.grad /= world",
    ),
    "activations that are computed again": _step(
        "from torch.utils.checkpoint import checkpoint\nh = x.clone().requires_grad_()\nfor b in model[:2]:\n"
        "    h = checkpoint(b, h, use_reentrant=False)\nF.mse_loss(model[2](h), y).backward()"
    ),
    "a penalty of the gradient": _step(
        "h = x.clone().requires_grad_()\nout = model(h)\ng, = torch.autograd.grad(out.sum(), h, create_graph=True)\n"
        "(F.mse_loss(out, y) + g.square().mean()).backward()"
    ),
    "gradients that are rounded at random on each rank": _step(
        "g = torch.Generator().manual_seed(rank)\nh = model[1](model[0](x))\n"
        "h.register_hook(lambda d: (d * 64 + torch.rand(d.shape, generator=g)).floor() / 64)\nF.mse_loss(model[2](h), y).backward()"
    ),
    "parts of the targets' logits": """
torch.manual_seed(1 + rank)
body = nn.Linear(6, 6)
head = nn.Linear(6, 2, bias=False)
torch.manual_seed(0)
norm = nn.LayerNorm(6)
model = nn.Sequential(norm, head)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, _ = batch(0)
t = torch.tensor([0, 1, 2, 3])
z = head(copied(norm(x)))
own = (t // 2 == rank)
total = added(z.exp().sum(1))
picked = added(torch.where(own, z.gather(1, (t % 2)[:, None])[:, 0], 0.0))
(total.log() - picked).mean().backward()
opt.step()
""",
    "blocks that are moved for one pass": _step(_PLAIN, after=_ASIDE),
}
