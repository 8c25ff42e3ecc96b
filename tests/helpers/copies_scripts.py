"""Steps in which ranks hold copies of parameters: some let them part, others only look as if they did.

Each is the body of a script's ``train``, on two ranks. ``PARTED`` says what is wrong; ``KEPT`` are right, or train something that no copies
are meant to be of.
"""

from __future__ import annotations

HEAD = """
import copy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def batch(rank, step=0):
    g = torch.Generator().manual_seed(100 + 10 * step + rank)
    return torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)


def average(params):
    for p in params:
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def train():
    rank, world = dist.get_rank(), dist.get_world_size()
    model = build()
    params = list(model.parameters())
    mine = [p for i, p in enumerate(params) if i % world == rank]
"""


def script(body: str) -> str:
    """All of a script."""
    return HEAD + "".join(f"    {line}\n" if line else "\n" for line in body.strip("\n").splitlines())


def steps(body: str, *, before: str = "", after: str = "", opt: str = "torch.optim.SGD(params, lr=0.1)", count: int = 4) -> str:
    inside = "".join(f"\n    {line}" for line in body.strip("\n").splitlines())
    return f"{before}\nopt = {opt}\nfor step in range({count}):\n    x, y = batch(rank, step){inside}\n{after}"


_PLAIN = """
model.zero_grad()
F.mse_loss(model(x), y).backward()
average(params)
"""
_OWNERS = "torch.optim.SGD(mine, lr=0.1, momentum=0.9)"
_SEND = "for i, p in enumerate(params):\n    dist.broadcast(p.data, i % world)"

_OWN_PASS = "F.mse_loss(model(x), y).backward()\n"
_REDUCED = _PLAIN.replace("average(params)", "for p in params:\n    dist.reduce(p.grad, 0)")
_FROM_0 = "for p in params:\n    dist.broadcast(p.data, 0)\n"

PARTED = {
    "update on rank 0": steps(_PLAIN + "if rank == 0:\n    opt.step()"),
    "update on rank 0, one step": steps(_PLAIN + "if rank == 0:\n    opt.step()", count=1),
    "owners send nothing": steps(_PLAIN + "opt.step()", opt=_OWNERS),
    "owners send half": steps(
        _PLAIN + "opt.step()\nfor i, p in enumerate(params[:2]):\n    dist.broadcast(p.data, i % world)", opt=_OWNERS
    ),
    "rates by rank": steps(_PLAIN + "opt.step()", opt="torch.optim.Adam(params, lr=0.1 * (1 + rank))"),
    "rates by hand": steps(_PLAIN + "with torch.no_grad():\n    for p in params:\n        p -= 0.1 * (1 + rank) * p.grad"),
    "clipped by value on rank 1": steps(_PLAIN + "if rank:\n    nn.utils.clip_grad_value_(params, 0.01)\nopt.step()"),
    "another product on rank 1": steps(_PLAIN + "if rank == 1:\n    params[0].grad.mul_(torch.linspace(1, 2, 6))\nopt.step()"),
    "noise by rank": steps(
        _PLAIN + "opt.step()\nwith torch.no_grad():\n    for p in params:\n        p += 0.01 * torch.randn(p.shape, generator=g)",
        before="g = torch.Generator().manual_seed(rank)",
    ),
    "the last micro-batch is not reduced": steps(
        """
opt.zero_grad()
F.mse_loss(ddp(x), y).backward()
with ddp.no_sync():
    F.mse_loss(ddp(x + 1), y).backward()
opt.step()
""",
        before="ddp = DDP(model)",
    ),
    "a server sends, and then updates": steps(_REDUCED + _FROM_0 + "if rank == 0:\n    opt.step()", count=1),
    "a second update with a rank's own gradient, one step": steps(
        _OWN_PASS + "own = [p.grad.clone() for p in params]\naverage(params)\nopt.step()\n"
        "with torch.no_grad():\n    for p, g in zip(params, own):\n        p.add_(g, alpha=-0.05)",
        count=1,
    ),
    "a second step of an optimizer with a rank's own gradient": steps(
        "model.zero_grad()\n" + _OWN_PASS + "own = [p.grad.clone() for p in params]\naverage(params)\nopt.step()\n"
        "for p, g in zip(params, own):\n    p.grad = g\nopt.step()"
    ),
    "a schedule on rank 0, in the second step": steps(
        _PLAIN + "opt.step()\nif rank == 0:\n    opt.param_groups[0]['lr'] /= 2",
    ),
}
"""By what is wrong. Of the last one the first step is right."""

KEPT = {
    "two steps with the gradient of all": steps(_PLAIN + "opt.step()\nopt.step()"),
    "a second update with the gradient of all, by hand": steps(
        _PLAIN + "opt.step()\nwith torch.no_grad():\n    for p in params:\n        p.add_(p.grad, alpha=-0.05)"
    ),
    "an update with a rank's own gradient, and a second one with that of all": steps(
        "model.zero_grad()\n" + _OWN_PASS + "with torch.no_grad():\n    for p in params:\n        p.add_(p.grad, alpha=-0.05)\n"
        "average(params)\nopt.step()"
    ),
    "weights that are moved by a rank's own gradient, and moved back": steps(
        "model.zero_grad()\n"
        + _OWN_PASS
        + "moves = [0.125 * p.grad for p in params]\nwith torch.no_grad():\n    for p, m in zip(params, moves):\n        p.add_(m)\n"
        "model.zero_grad()\n"
        + _OWN_PASS
        + "with torch.no_grad():\n    for p, m in zip(params, moves):\n        p.sub_(m)\naverage(params)\nopt.step()"
    ),
    "a rank's own second update, which all average": steps(
        _OWN_PASS + "own = [p.grad.clone() for p in params]\naverage(params)\nopt.step()\n"
        "with torch.no_grad():\n    for p, g in zip(params, own):\n        p.add_(g, alpha=-0.05)\n        dist.all_reduce(p.data)\n"
        "        p.data /= world\n        g.zero_()\n    model.zero_grad()"
    ),
    "a second update of a part with a rank's own gradient": steps(
        "model.zero_grad()\n" + _OWN_PASS + "own = params[0].grad.clone()\naverage(params[1:])\ndist.all_reduce(params[0].grad[:4])\n"
        "params[0].grad[:4] /= world\nopt.step()\nwith torch.no_grad():\n    params[0][4:].add_(own[4:], alpha=-0.05)"
    ),
    "owners send before forward": steps(_SEND + _PLAIN + "opt.step()", opt=_OWNERS, after=_SEND),
    "owners send before forward, and never at the end": steps(_SEND + _PLAIN + "opt.step()", opt=_OWNERS, count=1),
    "owners send as layers are run": steps(
        _PLAIN + "opt.step()",
        opt=_OWNERS,
        before="""
def sent(module, *_):
    for p in module.parameters(recurse=False):
        dist.broadcast(p.data, next(i for i, q in enumerate(params) if q is p) % world)
for layer in model.modules():
    layer.register_forward_pre_hook(sent)
""",
    ),
    "owners send at once, and rank 0 looks before": steps(
        _PLAIN + "opt.step()\nif rank == 0:\n    F.mse_loss(model(x), y)\n" + _SEND, opt=_OWNERS
    ),
    "parts that are gathered in the next step": steps(
        """
if step:
    out = torch.empty(size * world)
    dist.all_gather_into_tensor(out, part.detach())
    nn.utils.vector_to_parameters(out[:count], params)
model.zero_grad()
F.mse_loss(model(x), y).backward()
gradient = torch.cat([p.grad.flatten() for p in params] + [torch.zeros(size * world - count)])
dist.all_reduce(gradient)
part.grad = gradient[rank * size : (rank + 1) * size] / world
opt.step()
""",
        before="""
count = sum(p.numel() for p in params)
size = -(-count // world)
flat = torch.cat([p.detach().flatten() for p in params] + [torch.zeros(size * world - count)])
part = flat[rank * size : (rank + 1) * size].clone().requires_grad_()
""",
        opt="torch.optim.Adam([part], lr=0.01)",
    ),
    "a server, from which ranks take parameters": steps(_FROM_0 + _REDUCED + "if rank == 0:\n    opt.step()"),
    "a server, from which ranks take parameters, also in between": steps(
        _FROM_0 + _REDUCED + _FROM_0 + "if rank == 0:\n    opt.step()", count=1
    ),
    "a server, from which ranks take parameters for each pass": steps(
        _FROM_0 + _OWN_PASS + _FROM_0 + _OWN_PASS.replace("(x)", "(x + 1)") + "for p in params:\n    dist.reduce(p.grad, 0)\n"
        "if rank == 0:\n    opt.step()",
        count=1,
    ),
    "a server that updates, and other numbers of micro-batches": steps(
        """
model.zero_grad()
for k in range(2 + rank):
    F.mse_loss(model(x + k), y, reduction="sum").backward()
average(params)
if rank == 0:
    opt.step()
for p in params:
    dist.broadcast(p.data, 0)
""",
        opt="torch.optim.SGD(params, lr=0.01)",
    ),
    "dropout by rank": steps(
        "opt.zero_grad()\nF.mse_loss(ddp(F.dropout(x, 0.5)), y).backward()\nopt.step()",
        before="ddp = DDP(model)\ntorch.manual_seed(rank)",
        opt="torch.optim.Adam(params, lr=0.01)",
    ),
    "an average of parameters on rank 0": steps(
        _PLAIN + "opt.step()\nif rank == 0:\n    for e, p in zip(mean.parameters(), params):\n        e.data.lerp_(p.data, 0.1)",
        before="mean = copy.deepcopy(model)",
    ),
    "two networks that play": steps(
        """
od.zero_grad()
F.softplus(-critic(y)).mean().backward()
F.softplus(critic(ddp(x).detach())).mean().backward()
od.step()
opt.zero_grad()
F.softplus(-critic(ddp(x))).mean().backward()
opt.step()
""",
        before="""
ddp = DDP(model)
critic = DDP(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)))
od = torch.optim.Adam(critic.parameters(), lr=0.01)
""",
        opt="torch.optim.Adam(params, lr=0.01)",
    ),
    "a teacher of its own on each rank": steps(
        "opt.zero_grad()\nF.mse_loss(ddp(x), teacher(x)).backward()\nopt.step()",
        before="ddp = DDP(model)\ntorch.manual_seed(rank)\nteacher = nn.Linear(6, 3).requires_grad_(False)",
    ),
    "layers in parts that begin alike": steps(
        """
torch.manual_seed(step)
x, y = torch.randn(4, 6), torch.randn(4, 3)
opt.zero_grad()
F.mse_loss(Reduce.apply(params[2] @ torch.tanh((1 + rank) * model[0](x)).T), y.T).backward()
own = sum(p.grad.pow(2).sum() for p in params[:3])
dist.all_reduce(own)
for p in params[:3]:
    p.grad.mul_((0.1 / own.sqrt()).clamp(max=1.0))
opt.step()
""",
        before="""
class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x
    @staticmethod
    def backward(ctx, gradient):
        return gradient
nn.init.zeros_(model[0].bias)
""",
        opt="torch.optim.SGD(params[:3], lr=0.1)",
    ),
    "a head for each rank, clipped by the norm of all": steps(
        """
opt.zero_grad()
F.mse_loss(model(x), y).backward()
average(params[:2])
own = sum(p.grad.pow(2).sum() for p in params[2:])
dist.all_reduce(own)
norm = (own + sum(p.grad.pow(2).sum() for p in params[:2])).sqrt()
for p in params:
    p.grad.mul_((0.1 / norm).clamp(max=1.0))
opt.step()
""",
        before="for p in params:\n    dist.broadcast(p.data, 0)",
    ),
    "an input of its own for each rank": steps(
        "opt.zero_grad()\nF.mse_loss(ddp(x + prompt), y).backward()\nopt.step()",
        before="ddp = DDP(model)\nprompt = nn.Parameter(torch.randn(6, generator=torch.Generator().manual_seed(3)))",
        opt="torch.optim.Adam([*params, prompt], lr=0.01)",
    ),
    "adapters of each rank": steps(
        """
opt.zero_grad()
loss = F.mse_loss(model(x) + b(a(x)), y)
loss.backward()
seen = loss.detach().clone()
dist.all_reduce(seen)
opt.step()
""",
        before="model.requires_grad_(False)\na, b = nn.Linear(6, 2, bias=False), nn.Linear(2, 3, bias=False)\nnn.init.zeros_(b.weight)",
        opt="torch.optim.AdamW([*a.parameters(), *b.parameters()], lr=0.01)",
    ),
    "weights that are moved for one pass": steps(
        """
model.zero_grad()
F.mse_loss(model(x), y).backward()
own = [p.grad.clone() for p in params]
average(params)
moves = [0.05 * (p.grad + g) for p, g in zip(params, own)]
with torch.no_grad():
    for p, move in zip(params, moves):
        p.add_(move)
model.zero_grad()
F.mse_loss(model(x), y).backward()
with torch.no_grad():
    for p, move in zip(params, moves):
        p.sub_(move)
average(params)
opt.step()
""",
    ),
    "noise in each pass": steps(
        """
noise = [0.01 * torch.randn(p.shape, generator=g) for p in params]
opt.zero_grad()
torch._foreach_add_([p.data for p in params], noise)
F.mse_loss(model(x), y).backward()
torch._foreach_sub_([p.data for p in params], noise)
average(params)
opt.step()
""",
        before="g = torch.Generator().manual_seed(rank)",
    ),
    "sums in an order of each rank's own": steps(
        """
opt.zero_grad()
h = model[0](x)
F.mse_loss(model[2](torch.tanh(h - h.mean(0))), y).backward()
for p in params:
    every = [torch.empty_like(p) for _ in range(world)]
    dist.all_gather(every, p.grad)
    p.grad = (every[rank] + every[1 - rank] + 1e-9 * rank * torch.randn_like(p)) / world
opt.step()
""",
        opt="torch.optim.Adam(params, lr=0.01)",
    ),
    "a probe that rank 0 trains": steps(
        _PLAIN + "if rank == 0:\n    probe(torch.randn(4, 3)).pow(2).mean().backward()\n    other.step()\nopt.step()",
        before="probe = nn.Linear(3, 2)\nother = torch.optim.SGD(probe.parameters(), lr=0.1)",
    ),
    "learners that are let go": steps(
        """
learner = copy.deepcopy(model)
inner = torch.optim.SGD(learner.parameters(), lr=0.05)
for k in range(3):
    inner.zero_grad()
    F.mse_loss(learner(x + k), y).backward()
    if k < 2:
        inner.step()
for p, q in zip(params, learner.parameters()):
    dist.all_reduce(q.grad)
    p.grad = q.grad / world
opt.step()
""",
    ),
    "other numbers of micro-batches": steps(
        """
opt.zero_grad()
for k in range(2 + rank):
    F.mse_loss(model(x + k), y, reduction="sum").backward()
average(params)
opt.step()
""",
        opt="torch.optim.SGD(params, lr=0.01)",
    ),
    "a table of which each rank reads its own rows": steps(
        """
opt.zero_grad()
table(torch.randint(8 * rank, 8 * rank + 8, (8,))).pow(2).mean().backward()
dist.all_reduce(table.weight.grad)
table.weight.grad[8 - 8 * rank : 16 - 8 * rank] = 0
opt.step()
""",
        before="table = nn.Embedding(16, 4)",
        opt="torch.optim.SGD(table.parameters(), lr=0.1)",
    ),
    "models that are trained with other rates beside one another": steps(
        """
opt.zero_grad()
F.mse_loss(model(x), y).backward()
seen = sum(p.grad.pow(2).sum() for p in params)
dist.all_reduce(seen)
opt.step()
""",
        opt="torch.optim.SGD(params, lr=0.1 * (1 + rank))",
    ),
    "parameters that are averaged after each step, but for those of each rank": steps(
        """
opt.zero_grad()
F.mse_loss(model(x), y).backward()
opt.step()
with torch.no_grad():
    for p in params[:2]:
        dist.all_reduce(p)
        p /= world
""",
    ),
    "gradients that are awaited in the next step": steps(
        """
gradients = torch.autograd.grad(F.mse_loss(model(x), y), params)
for work, g, p in pending:
    work.wait()
    p.grad = g / world
opt.step()
pending = [(dist.all_reduce(g, async_op=True), g, p) for g, p in zip(gradients, params)]
""",
        before="pending = []",
    ),
    "updates while backward runs": steps(
        "F.mse_loss(model(x), y).backward()",
        before="""
alone = {p: torch.optim.SGD([p], lr=0.1) for p in params}
def made(p):
    average([p])
    alone[p].step()
    alone[p].zero_grad()
for p in params:
    p.register_post_accumulate_grad_hook(made)
""",
    ),
}
"""By what they do."""
