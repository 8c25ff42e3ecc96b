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


def _flat(between: str, *, count: int = 4) -> str:
    """SGD by hand on all parameters in a row, ``w``, with their gradients ``g``: what is done with both makes another ``w``."""
    return steps(
        f"""
model.zero_grad()
F.mse_loss(model(x), y).backward()
w, g = flat(params), flat([p.grad for p in params])
{between}
put(w)
""",
        before=_parts("").partition("\nopt = ")[0],
        opt="None",
        count=count,
    )


def _each(update: str, *, before: str = "", opt: str = "torch.optim.SGD(params, lr=0.1)") -> str:
    """What is done with each gradient, before SGD updates."""
    inside = "".join(f"\n    {line}" for line in update.splitlines())
    return steps(
        f"model.zero_grad()\nF.mse_loss(model(x), y).backward()\nfor i, p in enumerate(params):{inside}\nopt.step()", before=before, opt=opt
    )


_ROWS = "rows = torch.zeros(world, len(w))\nrows[rank] = g\n"
_OWN = "own = w.chunk(world)[rank] - 0.1 * {} / world\nw = torch.zeros(size * world)\ndist.all_gather_into_tensor(w, own)"
_GATHERED = "out = torch.empty(world * p.numel())\ndist.all_gather_into_tensor(out, p.grad.flatten())\np.grad.copy_({}.view_as(p))"
_WHOLE = "out = torch.empty(world * len(g))\ndist.all_gather_into_tensor(out, g)\nw = w - 0.1 * {}"

STRAYED = {
    "a row of each rank's own": _flat(
        f"{_ROWS}row = torch.empty(1, len(w))\ndist.reduce_scatter_tensor(row, rows)\n" + _OWN.format("row[0].chunk(world)[rank]")
    ),
    "a row of each rank's own, all-reduced": _flat(f"{_ROWS}dist.all_reduce(rows)\n" + _OWN.format("rows[rank].chunk(world)[rank]")),
    "what comes of a reduce-scatter is not read": _flat(
        "shard = torch.zeros(size)\ndist.reduce_scatter_tensor(shard, g.clone())\n" + _OWN.format("g.chunk(world)[rank]")
    ),
    "a row of each rank's own, one step": _flat(f"{_ROWS}dist.all_reduce(rows)\n" + _OWN.format("rows[rank].chunk(world)[rank]"), count=1),
    "columns": _each(_GATHERED.format("out.view(-1, world).mean(1)")),
    "columns, summed": _each(_GATHERED.format("out.reshape(p.numel(), world).sum(-1).div(world)")),
    "columns of all in a row": _flat(_WHOLE.format("out.view(-1, world).mean(1)")),
    "columns of all in a row, one step": _flat(_WHOLE.format("out.unflatten(0, (-1, world)).mean(1)"), count=1),
}
"""By what is wrong."""

_SENDS = "for i, p in enumerate(params):\n    dist.broadcast(p.data, i // 2)"
_SUM = "dist.all_reduce(p.grad)\np.grad /= world\n"
STRAIGHT_ON = {
    "rows": _each(_GATHERED.format("out.view(world, -1).mean(0)")),
    "rows of all in a row": _flat(_WHOLE.format("out.view(world, -1).mean(0)")),
    "columns of what was stacked so": _each(
        "parts = [torch.empty_like(p) for _ in range(world)]\ndist.all_gather(parts, p.grad)\np.grad.copy_(torch.stack(parts, -1).mean(-1))"
    ),
    "parts of sums": _flat("shard = torch.zeros(size)\ndist.reduce_scatter_tensor(shard, g)\n" + _OWN.format("shard")),
    "a part on each rank, with its own samples": _flat(_OWN.format("g.chunk(world)[rank]")),
    "a layer on each rank, with its own samples": steps(
        f"model.zero_grad()\nF.mse_loss(model(x), y).backward()\nopt.step()\n{_SENDS}",
        opt="torch.optim.SGD(params[2 * rank : 2 * rank + 2], lr=0.1)",
    ),
    "neighbours smoothed": _each(
        f"{_SUM}p.grad.copy_((2 * p.grad.flatten() + p.grad.flatten().roll(1) + p.grad.flatten().roll(-1)).div(4).view_as(p))"
    ),
    "signs of sums": _each(f"{_SUM}p.grad.sign_()"),
    "a mask that ranks share": _each(f"{_SUM}p.grad *= (torch.rand(p.shape, generator=torch.Generator().manual_seed(step)) < 0.5)"),
    "weights of ranks": _each("p.grad *= 0.25 + 0.5 * rank\ndist.all_reduce(p.grad)"),
    "of one rank's samples": _each("dist.broadcast(p.grad, step % world)"),
    "momentum, and weights that decay": _each(_SUM, opt="torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.1)"),
    "a rate for each rank's gradient of each layer": _each("p.grad *= 1 if i // 2 == rank else 0.001\ndist.all_reduce(p.grad)"),
    "a layer with each rank's samples": _each("p.grad *= i // 2 == rank\ndist.all_reduce(p.grad)"),
    "rows of one layer, each with a rank's samples": steps(
        "model.zero_grad()\n(model(x) - y.sum()).square().mean().backward()\nmodel.weight.grad.view(world, -1)[1 - rank] = 0\n"
        "dist.all_reduce(model.weight.grad)\nopt.step()",
        before="model = nn.Linear(6, 4, bias=False)",
        opt=_ALL,
    ),
    "the larger one": _each(
        "parts = [torch.empty_like(p) for _ in range(world)]\ndist.all_gather(parts, p.grad)\n"
        "p.grad.copy_(torch.stack(parts).gather(0, torch.stack(parts).abs().argmax(0, keepdim=True))[0])"
    ),
    "the largest elements of each, with what is left kept": _each(
        "k = p.numel() // 2 + 1\nleft[i] += p.grad\nkept = torch.zeros(p.numel())\ntop = left[i].flatten().abs().topk(k)[1]\n"
        "kept[top] = left[i].flatten()[top]\nleft[i] -= kept.view_as(p)\np.grad.copy_(kept.view_as(p))\ndist.all_reduce(p.grad)",
        before="left = [torch.zeros_like(p) for p in params]",
    ),
    "signs that ranks vote for": _each("p.grad.sign_()\ndist.all_reduce(p.grad)\np.grad.sign_()"),
}
"""Elements that are trained with their own gradients, or otherwise on purpose."""
