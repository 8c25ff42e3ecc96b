"""Steps that put parts of parameters where others belong, and others that only look like it. As in ``copies_scripts.py``."""

from __future__ import annotations

from copies_scripts import steps


def _parts(update: str, *, given: str = "(flat(params), rank)", count: int = 4) -> str:
    """ZeRO 1 by hand: ``update`` makes ``w`` of the part ``own`` that a rank updates; ``given``: of what it is a part, and which one."""
    return steps(
        f"""
model.zero_grad()
F.mse_loss(model(x), y).backward()
shard = torch.zeros(size)
dist.reduce_scatter_tensor(shard, flat([p.grad for p in params]))
of, which = {given}
own = of.chunk(world)[which] - 0.05 * shard
{update}
put(w)
""",
        before="""
count = sum(p.numel() for p in params)
size = -(-count // world)
def flat(of):
    return F.pad(torch.cat([t.detach().flatten() for t in of]), (0, size * world - count))
def put(w):
    for p, v in zip(params, w[:count].split([p.numel() for p in params])):
        p.data.copy_(v.view_as(p))
""",
        opt="None",
        count=count,
    )


_GATHER = "parts = [torch.zeros(size) for _ in range(world)]\ndist.all_gather(parts, own)\n"
_INTO = "w = torch.zeros(size * world)\ndist.all_gather_into_tensor(w, own)\n"
_PLAIN = "opt.zero_grad()\nF.mse_loss(ddp(x), y).backward()\nopt.step()\n"
_TWINS = "model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3, bias=False))\nddp = DDP(model)"
_ALL = "torch.optim.SGD(model.parameters(), lr=0.1)"

MISPLACED = {
    "reversed": _parts(_GATHER + "w = torch.cat(parts[::-1])"),
    "reversed, one step": _parts(_GATHER + "w = torch.cat(parts[::-1])", count=1),
    "the part of the neighbour is updated": _parts(_INTO, given="(flat(params), 1 - rank)"),
    "rolled": _parts(_INTO + "w = w.roll(size)"),
    "interleaved by halves of ranks": _parts(_INTO + "w = w.view(world, -1).flip(0).reshape(-1)"),
    "put together from behind": _parts(_GATHER + "w = torch.cat([parts[world - 1 - i] for i in range(world)])", count=2),
}
"""By what is wrong."""

PLACED = {
    "in order": _parts(_INTO),
    "in order, of parts": _parts(_GATHER + "w = torch.cat(parts)"),
    "cut and put together in reverse": _parts(_GATHER + "w = torch.cat(parts[::-1])", given="(flat(params), 1 - rank)").replace(
        "reduce_scatter_tensor(shard, flat([p.grad for p in params]))",
        "reduce_scatter_tensor(shard, torch.cat(flat([p.grad for p in params]).chunk(world)[::-1]))",
    ),
    "layers that are swapped": steps(
        _PLAIN + "for p, q in zip(model[0].parameters(), model[2].parameters()):\n    p.data, q.data = q.data.clone(), p.data.clone()",
        before=_TWINS,
        opt=_ALL,
    ),
    "halves of the model that are swapped": steps(
        _PLAIN + "for p, q in zip(model[0].parameters(), model[1].parameters()):\n    p.data, q.data = q.data.clone(), p.data.clone()",
        before="model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))\nhead = nn.Linear(6, 3).requires_grad_(False)\n"
        "ddp = DDP(nn.Sequential(model, nn.Tanh(), head))",
        opt=_ALL,
        count=1,
    ),
    "a rate for each layer": steps(
        _PLAIN,
        before="ddp = DDP(model)",
        opt="torch.optim.SGD([{'params': model[0].parameters(), 'lr': 0.1}, {'params': model[2].parameters(), 'lr': 0.01}], lr=0.1)",
    ),
    "units that are put in another order": steps(
        _PLAIN + "o = torch.randperm(8, generator=torch.Generator().manual_seed(step))\n"
        "params[0].data, params[1].data, params[2].data = params[0].data[o], params[1].data[o], params[2].data[:, o]",
        before="ddp = DDP(model)",
        opt="torch.optim.SGD(params, lr=0.1)",
    ),
    "Adam": steps(_PLAIN, before="ddp = DDP(model)", opt="torch.optim.Adam(params, lr=0.01)"),
}
