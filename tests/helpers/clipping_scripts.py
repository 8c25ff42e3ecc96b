"""Steps that clip gradients, on two ranks: ``LIKE_NONE`` as no one device does, and ``LIKE_ONE`` by rules that one device may have, or that
are meant to be of each rank. Each is the body of a script's ``train``, as in ``copies_scripts``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from copies_scripts import script as _script

from placeproof.measure.record.clips import clipped
from placeproof.measure.record.launch import Launch, beyond_step, forked, scaled_twice
from placeproof.measure.record.norms import Recordings
from placeproof.measure.record.witness import Witness

_MORE = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


GROUP = [None]


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g, group=GROUP[0])
        return g


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x, group=GROUP[0])
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class Split(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.up, self.down, self.head = nn.LayerNorm(6), nn.Linear(6, 8), nn.Linear(8, 6, bias=False), nn.Linear(6, 3)
        rank, world = dist.get_rank(GROUP[0]), dist.get_world_size(GROUP[0])
        self.up.weight = nn.Parameter(self.up.weight.data.chunk(world, 0)[rank].clone())
        self.up.bias = nn.Parameter(self.up.bias.data.chunk(world, 0)[rank].clone())
        self.down.weight = nn.Parameter(self.down.weight.data.chunk(world, 1)[rank].clone())

    def forward(self, x):
        return self.head(x + Reduce.apply(self.down(torch.tanh(self.up(Copy.apply(self.norm(x)))))))


def by(params, squares, most=0.05):
    coef = (most / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    for p in params:
        p.grad.mul_(coef)


def squares(params):
    return sum((p.grad**2).sum() for p in params)


def train():
"""


def script(body: str) -> str:
    """All of a script;"""
    return _script(body).replace("\ndef train():\n", _MORE, 1)


_PLAIN = """
x, y = batch(rank)
F.mse_loss(model(x), y).backward()
"""
_OWNERS = f"{_PLAIN}average(params)\n"
_REDUCED = f"{_PLAIN}for i, p in enumerate(params):\n    dist.reduce(p.grad, dst=i % world)\n    p.grad /= world\n"
_SEND = """
opt = torch.optim.SGD(mine, lr=0.1, momentum=0.9)
opt.step()
for i, p in enumerate(params):
    dist.broadcast(p.data, i % world)
"""
_ALL = "\ntorch.optim.SGD(params, lr=0.1).step()\n"
_SHARDED = f"""
mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
fully_shard(model, mesh=mesh)
params = list(model.parameters())
opt = torch.optim.SGD(params, lr=0.1)
{_PLAIN}
"""
_SPLIT = """
model = Split()
params = list(model.parameters())
parts = [p for n, p in model.named_parameters() if "up" in n or "down" in n]
copies = [p for n, p in model.named_parameters() if "up" not in n and "down" not in n]
x, y = batch(0)
F.mse_loss(model(x), y).backward()
"""
_TWICE = """
model = DDP(model)
params = list(model.parameters())
(x, y), (x2, y2) = batch(rank), batch(rank, 1)
"""
_CLIP = "nn.utils.clip_grad_norm_"
_SCALED = """
model = DDP(model)
params = list(model.parameters())
opt = torch.optim.SGD(params, lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
x, y = batch(rank)
scaler.scale(F.mse_loss(model(x), y)).backward()
"""

LIKE_NONE = {
    "owners by their own norm": f"{_OWNERS}by(mine, squares(mine)){_SEND}",
    "owners by PyTorch's norm of their own": f"{_OWNERS}{_CLIP}(mine, 0.05){_SEND}",
    "owners by their own norm, in numbers": f"""
{_OWNERS}
norm = sum(p.grad.norm().item() ** 2 for p in mine) ** 0.5
if norm > 0.05:
    for p in mine:
        p.grad.mul_(0.05 / (norm + 1e-6))
{_SEND}""",
    "one owner clips": f"{_OWNERS}if rank == 1:\n    {_CLIP}(mine, 0.05){_SEND}",
    "what was reduced to others": f"{_REDUCED}sq = squares(params)\ndist.all_reduce(sq)\nby(mine, sq){_SEND}",
    "what was reduced to others, on one rank": f"{_REDUCED}{_CLIP}(params, 0.05){_SEND}",
    "what others have reduced in a buffer": f"""
{_PLAIN}
for i, p in enumerate(params):
    whole = p.grad / world
    dist.reduce(whole, dst=i % world)
    if i % world == rank:
        p.grad = whole
sq = squares(params)
dist.all_reduce(sq)
by(mine, sq){_SEND}""",
    "norms of shards added": f"""
{_SHARDED}
norm = sum((p.grad.to_local() ** 2).sum() for p in params).sqrt()
dist.all_reduce(norm)
for p in params:
    p.grad.to_local().mul_((0.05 / norm).clamp(max=1.0))
opt.step()""",
    "mean of norms of shards": f"""
{_SHARDED}
norm = torch.linalg.vector_norm(torch.cat([p.grad.to_local().flatten() for p in params]))
dist.all_reduce(norm, op=dist.ReduceOp.SUM)
norm /= world
for p in params:
    p.grad.to_local().mul_((0.05 / norm).clamp(max=1.0))
opt.step()""",
    "a part as if it were a copy": f"""
{_SPLIT}
sq = squares([p for n, p in model.named_parameters() if rank == 0 or ("weight" in n and ("up" in n or "down" in n))])
dist.all_reduce(sq)
by(params, sq){_ALL}""",
    "each micro-batch, the last after ranks add up": f"""
{_TWICE}
with model.no_sync():
    for a, b in ((x, y), (x2, y2)):
        model.require_backward_grad_sync = a is x2
        F.mse_loss(model(a), b).div(2).backward()
        {_CLIP}(params, 0.05){_ALL}""",
    "scaled": f"{_SCALED}{_CLIP}(params, 0.05)\nscaler.step(opt)\nscaler.update()",
    "scaled, by hand": f"{_SCALED}by(params, squares(params))\nscaler.step(opt)\nscaler.update()",
    "copies, on the first rank alone": f"{_SPLIT}sq = squares(parts)\ndist.all_reduce(sq)\nsq += squares(copies)\n"
    f"by(params if rank == 0 else parts, sq){_ALL}",
    "copies, that one rank does not add to its norm": f"{_SPLIT}sq = squares(parts)\ndist.all_reduce(sq)\n"
    f"by(params, sq + squares(copies) if rank else sq){_ALL}",
    "copies, by a bound of each rank's": f"{_SPLIT}{_CLIP}(copies, 0.05 * (1 + rank)){_ALL}",
    "copies, of which one rank clips the first alone": f"{_SPLIT}{_CLIP}(copies if rank else copies[:1], 0.01){_ALL}",
}

LIKE_ONE = {
    "owners, each parameter by its norm": f"{_OWNERS}for p in mine:\n    {_CLIP}([p], 0.05){_SEND}",
    "owners, each parameter that has to be": f"""
{_OWNERS}
for p in mine:
    norm = p.grad.norm().item()
    if norm > 0.5:
        p.grad.mul_(0.5 / norm)
{_SEND}""",
    "owners of layers, each by its norm": f"""
layers = [model[0], model[2]]
{_OWNERS}
for i, layer in enumerate(layers):
    if i % world == rank:
        {_CLIP}(layer.parameters(), 0.05)
        torch.optim.SGD(layer.parameters(), lr=0.1).step()
for i, layer in enumerate(layers):
    for p in layer.parameters():
        dist.broadcast(p.data, i % world)""",
    "owners, the norm of all": f"{_OWNERS}sq = squares(mine)\ndist.all_reduce(sq)\nby(mine, sq){_SEND}",
    "owners, PyTorch's norm of all": f"{_OWNERS}{_CLIP}(params, 0.05){_SEND}",
    "owners, weights alone": f"{_OWNERS}{_CLIP}([p for p in params if p.dim() > 1], 0.05){_SEND}",
    "owners, weights by one norm and biases by another": f"""
{_OWNERS}
for group in ([p for p in params if p.dim() > 1], [p for p in params if p.dim() == 1]):
    {_CLIP}(group, 0.05)
{_SEND}""",
    "owners, weights by one summed norm and biases by another": f"""
{_OWNERS}
for dim in (1, 2):
    group = [p for p in mine if p.dim() == dim]
    sq = squares(group) if group else torch.zeros(())
    dist.all_reduce(sq)
    by(group, sq)
{_SEND}""",
    "owners, the largest element": f"""
{_OWNERS}
most = max(p.grad.abs().max() for p in mine)
dist.all_reduce(most, op=dist.ReduceOp.MAX)
for p in mine:
    p.grad.mul_((0.05 / most).clamp(max=1.0))
{_SEND}""",
    "owners, absolute values": f"""
{_OWNERS}
total = sum(p.grad.abs().sum() for p in mine)
dist.all_reduce(total)
for p in mine:
    p.grad.mul_((0.05 / total).clamp(max=1.0))
{_SEND}""",
    "owners, layers at rates of their own": f"{_OWNERS}for p in mine:\n    p.grad.mul_(p.detach().norm() / p.grad.norm()){_SEND}",
    "owners, bounds": f"{_OWNERS}nn.utils.clip_grad_value_(mine, 0.01){_SEND}",
    "reduced to owners, others are zero": f"""
{_REDUCED}
for i, p in enumerate(params):
    if i % world != rank:
        p.grad.zero_()
sq = squares(params)
dist.all_reduce(sq)
by(mine, sq){_SEND}""",
    "reduced to owners, others are gone": f"""
{_REDUCED}
for i, p in enumerate(params):
    if i % world != rank:
        p.grad = None
sq = squares(mine)
dist.all_reduce(sq)
by(mine, sq){_SEND}""",
    "reduced to owners, who send it": f"""
{_REDUCED}
for i, p in enumerate(params):
    dist.broadcast(p.grad, i % world)
{_CLIP}(params, 0.05){_SEND}""",
    "shards by PyTorch": f"{_SHARDED}{_CLIP}(params, 0.05, foreach=True)\nopt.step()",
    "shards, absolute values": f"{_SHARDED}{_CLIP}(params, 0.05, norm_type=1)\nopt.step()",
    "shards, each by its norm": f"{_SHARDED}for p in params:\n    {_CLIP}([p], 0.05)\nopt.step()",
    "shards, a norm of all on each, averaged": f"""
{_SHARDED}
sq = sum((p.grad.to_local() ** 2).sum() for p in params)
dist.all_reduce(sq)
norm = sq.sqrt()
dist.all_reduce(norm)
norm /= world
for p in params:
    p.grad.to_local().mul_((0.05 / norm).clamp(max=1.0))
opt.step()""",
    "a norm of all on each, averaged": f"""
{_OWNERS}
norm = squares(params).sqrt()
dist.all_reduce(norm)
by(params, (norm / world) ** 2){_ALL}""",
    "each rank before ranks add up": f"{_PLAIN}{_CLIP}(params, 0.05)\naverage(params){_ALL}",
    "each sample": f"""
x, y = batch(rank)
total = [torch.zeros_like(p) for p in params]
for xs, ys in zip(x.split(1), y.split(1)):
    model.zero_grad()
    F.mse_loss(model(xs), ys).backward()
    {_CLIP}(params, 0.05)
    for t, p in zip(total, params):
        t += p.grad / len(x)
for t, p in zip(total, params):
    p.grad = t
average(params){_ALL}""",
    "each micro-batch, and then their sum": f"""
total = [torch.zeros_like(p) for p in params]
for step in range(2):
    x, y = batch(rank, step)
    model.zero_grad()
    F.mse_loss(model(x), y).backward()
    {_CLIP}(params, 0.05)
    for t, p in zip(total, params):
        t += p.grad / 2
for t, p in zip(total, params):
    p.grad = t
average(params)
{_CLIP}(params, 0.04){_ALL}""",
    "one of two losses": f"""
{_TWICE}
with model.no_sync():
    model(x).square().mean().backward()
{_CLIP}(params, 0.05)
F.mse_loss(model(x), y).backward(){_ALL}""",
    "the sum after each micro-batch": f"""
{_TWICE}
F.mse_loss(model(x), y).div(2).backward()
{_CLIP}(params, 0.05)
F.mse_loss(model(x2), y2).div(2).backward()
{_CLIP}(params, 0.05){_ALL}""",
    "by the norms that ranks have of their own": f"""
{_PLAIN}
sq = squares(params)
dist.all_reduce(sq)
average(params)
by(params, sq / world){_ALL}""",
    "four ranks, parts that two of them have": f"""
GROUP[0] = [dist.new_group([i, i + 1]) for i in (0, 2)][rank // 2]
{_SPLIT}
added = [["up.weight", "down.weight"], ["down.weight", "head.weight", "head.bias"], ["norm.weight", "norm.bias"], ["up.weight"]][rank]
sq = squares([p for n, p in model.named_parameters() if n in added or (n == "up.bias" and rank < 2)])
dist.all_reduce(sq)
by(params, sq){_ALL}""",
    "copies on the first rank": f"{_SPLIT}sq = squares(params if rank == 0 else parts)\ndist.all_reduce(sq)\nby(params, sq){_ALL}",
    "copies on each, beside the sum": f"{_SPLIT}sq = squares(parts)\ndist.all_reduce(sq)\nby(params, sq + squares(copies)){_ALL}",
    "parts alone": f"{_SPLIT}sq = squares(parts)\ndist.all_reduce(sq)\nby(params, sq){_ALL}",
    "parts without biases": f"{_SPLIT}sq = squares([p for p in parts if p.dim() > 1])\ndist.all_reduce(sq)\nby(params, sq){_ALL}",
    "copies, each by PyTorch's norm of all of them": f"{_SPLIT}{_CLIP}(copies, 0.05){_ALL}",
    "copies on the first rank alone, which sends them": f"{_SPLIT}if rank == 0:\n    {_CLIP}(copies, 0.05){_ALL}"
    "for p in copies:\n    dist.broadcast(p.data, 0)",
    "copies by a bound of each rank's, and averaged": f"{_SPLIT}{_CLIP}(copies, 0.05 * (1 + rank)){_ALL}"
    "for p in copies:\n    dist.all_reduce(p.data)\n    p.data /= world",
    "copies by an owner each": f"{_SPLIT}mine = [p for i, p in enumerate(copies) if i % world == rank]\n{_CLIP}(mine, 0.05)\n"
    "torch.optim.SGD(parts + mine, lr=0.1).step()\nfor i, p in enumerate(copies):\n    dist.broadcast(p.data, i % world)",
    "parts, each by itself": f"{_SPLIT}for p in parts:\n    {_CLIP}([p], 0.05){_ALL}",
    "scaled, and divided before": f"{_SCALED}scaler.unscale_(opt)\n{_CLIP}(params, 0.05)\nscaler.step(opt)\nscaler.update()",
    "scaled, to a bound that is": f"{_SCALED}{_CLIP}(params, 0.05 * scaler.get_scale())\nscaler.step(opt)\nscaler.update()",
    "the first of two micro-batches, on purpose": f"""
{_TWICE}
with model.no_sync():
    F.mse_loss(model(x), y).div(2).backward()
{_CLIP}(params, 0.05)
F.mse_loss(model(x2), y2).div(2).backward()
{_CLIP}(params, 0.04){_ALL}""",
    "each micro-batch by itself, on each rank": f"""
{_TWICE}
with model.no_sync():
    for a, b in ((x, y), (x2, y2)):
        F.mse_loss(model(a), b).div(2).backward()
        {_CLIP}(params, 0.05)
average(params)
{_ALL}""",
    "scaled by a constant, as the bound is": _SCALED.replace("init_scale", "growth_interval=10**9, init_scale")
    + f"{_CLIP}(params, 51.2)\nscaler.step(opt)\nscaler.update()",
    "two models, each by a rank": f"""
other = build()
both = [model, other]
x, y = batch(rank)
(F.mse_loss(model(x), y) + F.l1_loss(other(x), y)).backward()
for p in (*model.parameters(), *other.parameters()):
    dist.all_reduce(p.grad)
    p.grad /= world
if rank < 2:
    {_CLIP}(both[rank].parameters(), 0.05)
    torch.optim.SGD(both[rank].parameters(), lr=0.1).step()
for i, m in enumerate(both):
    for p in m.parameters():
        dist.broadcast(p.data, i % world)""",
}


def found(name: str, folder: Path) -> Witness | None:
    """What is said of a script, which runs in a folder: on four ranks where its name begins so, on two else."""
    path = folder / "train.py"
    path.write_text(script((LIKE_NONE | LIKE_ONE)[name]), encoding="utf-8")

    @cache
    def again(world: int, twice: bool) -> Recordings:
        return forked(Launch(script=path, world=world, timeout=60), scaled_twice if twice else beyond_step)

    return clipped(again(4 if name.startswith("four") else 2, False), 1, again)
