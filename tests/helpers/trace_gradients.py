"""What scripts do to gradients between backward and the update. Each also runs in one process, on all samples: that says what is right."""

from __future__ import annotations

import trace_losses

HEAD = (
    trace_losses.HEAD
    + """

from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Counting(nn.Module):
    # adds up what it is given, and multiplies it by numbers

    def __init__(self, seed):
        super().__init__()
        self.net = model()
        torch.manual_seed(seed)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("scale", torch.rand(4))

    def forward(self, x):
        self.seen += x.detach().sum()
        return self.net(x * self.scale)


def hooked(hook, state=None):
    net = DDP(model())
    net.register_comm_hook(state, hook)
    return net


def summed(state, bucket):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])


def averaged(state, bucket):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0] / dist.get_world_size())


def average(net):
    for p in net.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad /= world()


def sharded():
    net = model()
    mesh = init_device_mesh("cpu", (world(),), mesh_dim_names=("dp",))
    fully_shard(net[0], mesh=mesh)
    fully_shard(net, mesh=mesh)
    return net


def shards(net):
    return [p.grad.to_local() for p in net.parameters()]


def whole(net):
    return [p.detach().full_tensor() for p in net.parameters()]


def clip(gradients, total):
    for g in gradients:
        g.mul_((0.03 / (total + 1e-6)).clamp(max=1.0))
"""
)

_DDP = """
    net, (x, y) = DDP(model()), data()
    optimizer = sgd(net)
    mse(net(x), y).backward()
    {}
    optimizer.step()
    return result(net)
"""
_HAND = """
    net, (x, y) = model(), data()
    optimizer = sgd(net)
    mse(net(x), y).backward()
    {}
    optimizer.step()
    return result(net)
"""
_SHARDED = """
    net, (x, y) = sharded(), data()
    optimizer = sgd(net)
    mse(net(x), y).backward()
    {}
    optimizer.step()
    return whole(net)
"""


def _steps(around: str, lines: dict[str, str]) -> dict[str, str]:
    return {name: around.format("\n    ".join(line for line in body.strip().splitlines())) for name, body in lines.items()}


_HOOKED = """
    net, (x, y) = {}, data()
    optimizer = sgd(net)
    mse(net(x), y).backward()
    optimizer.step()
    return result(net)
"""
_BUFFERS = """
    net, (x, y) = {}, data()
    optimizer = sgd(net)
    mse(net(x), y).backward()
    average(net)
    optimizer.step()
    return result(net)
"""
_PICKED = """
    net, rank = DDP(model()), dist.get_rank()
    torch.manual_seed(7)
    x, y = torch.randn(24, 4), torch.randn(24, 5)
    {}
    optimizer = sgd(net)
    mse(net(x), y).backward()
    optimizer.step()
    return result(net)
"""
_DIVIDED = """
    net, (x, y) = sharded(), data()
    optimizer, (count, factor) = sgd(net), ({})
    if factor is not None:
        net.set_gradient_divide_factor(factor)
        net[0].set_gradient_divide_factor(factor)
    n = torch.tensor(float(count))
    (mse(net(x), y, reduction="sum") / n).backward()
    optimizer.step()
    return whole(net)
"""


#: By name: the body of ``train``.
BODIES = (
    _steps(
        _HOOKED,
        {
            "a hook that averages": "hooked(averaged)",
            "a hook that adds up": "hooked(summed)",
            "PyTorch's hook": "hooked(default_hooks.allreduce_hook)",
            "PowerSGD": "hooked(powerSGD_hook.powerSGD_hook, powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2))",
        },
    )
    | _steps(
        _BUFFERS,
        {
            "buffers": "Counting(3)",
            "buffers of each rank": "Counting(dist.get_rank())",
            "buffers that DDP sends": "DDP(Counting(dist.get_rank()))",
            "buffers that DDP is told not to send": "DDP(Counting(dist.get_rank()), broadcast_buffers=False, init_sync=False)",
        },
    )
    | _steps(
        _PICKED,
        {
            "one of so many samples as there are ranks": "x, y = x[rank :: world()], y[rank :: world()]",
            "one of so many samples, of others' targets": "x, y = x[rank :: world()], y[(rank + 1) % world() :: world()]",
            "overlapping samples": "x, y = x[rank * 2 : rank * 2 + 12], y[rank * 2 : rank * 2 + 12]",
        },
    )
    | _steps(
        _DIVIDED,
        {
            "factors of FSDP2, of a sum over all": "5 * 24, 1.0",
            "factors of FSDP2, divided twice": "5 * 24, None",
            "factors of FSDP2, as by itself": "5 * len(x), float(world())",
            "factors of FSDP2, half": "5 * len(x), 2.0 * world()",
        },
    )
    | _steps(
        _DDP,
        {
            "squares, summed": """
gs = [p.grad for p in net.parameters()]
clip(gs, sum(g.pow(2).sum() for g in gs) ** 0.5)
""",
            "squares of norms": """
gs, total = [p.grad for p in net.parameters()], torch.tensor(0.0)
for g in gs:
    total += g.norm() ** 2
clip(gs, total.sqrt())
""",
            "products with itself": """
gs = [p.grad for p in net.parameters()]
clip(gs, torch.stack([(g * g).sum() + 0 for g in gs]).sum().sqrt())
""",
            "norm of norms": """
gs = [p.grad for p in net.parameters()]
clip(gs, torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gs))))
""",
            "one flat gradient": """
gs = [p.grad for p in net.parameters()]
flat = torch.cat([g.flatten() for g in gs])
clip(gs, torch.dot(flat, flat) ** 0.5)
""",
            "squares of all ranks, of whole gradients": """
gs = [p.grad for p in net.parameters()]
total = sum((g**2).sum() for g in gs)
dist.all_reduce(total)
clip(gs, total.sqrt())
""",
            "mean squares of all ranks, of whole gradients": """
gs = [p.grad for p in net.parameters()]
total = sum((g**2).sum() for g in gs)
dist.all_reduce(total)
clip(gs, (total / world()).sqrt())
""",
            "norm of a part of the rank": """
gs = [p.grad for p in net.parameters()]
clip(gs, torch.cat([g.flatten() for g in gs]).tensor_split(world())[dist.get_rank()].norm())
""",
            "norm of rows": """
gs = [p.grad for p in net.parameters()]
for g in gs[::2]:
    g.mul_(0.03 / (g.norm(dim=1, keepdim=True) + 1e-6))
""",
            "norms, not squared": """
gs = [p.grad for p in net.parameters()]
clip(gs, sum(g.norm() for g in gs))
""",
            "a norm of each": """
for p in net.parameters():
    clip([p.grad], p.grad.norm())
""",
            "the first layer's alone": "nn.utils.clip_grad_norm_(net.module[0].parameters(), 0.02)",
            "clipped to half": """
gs = [p.grad for p in net.parameters()]
total = sum((g**2).sum() for g in gs).sqrt()
for g in gs:
    g.mul_(0.5 / (total + 0.5))
""",
            "clipped to so many as there are ranks": """
gs = [p.grad for p in net.parameters()]
total = sum((g**2).sum() for g in gs).sqrt()
for g in gs:
    g.mul_(1.0 / (total + 0.5) * world())
""",
            "clipped to what is infinite": "nn.utils.clip_grad_norm_(net.parameters(), float('inf'))",
            "clipped to half, by PyTorch": "nn.utils.clip_grad_norm_(net.parameters(), 0.5)",
            "clipped with what ranks are": """
gs = [p.grad for p in net.parameters()]
clip(gs, sum((g**2).sum() for g in gs).sqrt() + 0.01 * world())
""",
            "clipped otherwise on one rank": "nn.utils.clip_grad_norm_(net.parameters(), 0.02 + 0.01 * dist.get_rank())",
            "the least of two": """
gs = [p.grad for p in net.parameters()]
total = torch.stack([g.norm() for g in gs]).norm()
for g in gs:
    g.mul_(torch.minimum(torch.tensor(0.9), 0.03 / (total + 1e-9)))
""",
            "the least of two, of which one is of samples": """
gs = [p.grad for p in net.parameters()]
total = torch.stack([g.norm() for g in gs]).norm()
for g in gs:
    g.mul_(torch.minimum(0.03 / (total + 1e-9), x.abs().mean() / 100))
""",
            "bounded": "nn.utils.clip_grad_value_(net.parameters(), 0.01)",
            "clipped, then bounded": """
nn.utils.clip_grad_norm_(net.parameters(), 0.05)
for p in net.parameters():
    p.grad.clamp_(-0.01, 0.01)
""",
            "bounded, then clipped": """
nn.utils.clip_grad_value_(net.parameters(), 0.01)
nn.utils.clip_grad_norm_(net.parameters(), 0.02)
""",
            "bounded by ranks": """
for p in net.parameters():
    p.grad.clamp_(-0.01 * world(), max=0.01 * world())
""",
            "bounded by half of what ranks are": """
for p in net.parameters():
    p.grad.clamp_(max=world() / 4 - 0.45)
""",
            "bounded by a half": """
for p in net.parameters():
    p.grad.clamp_(max=0.5)
""",
            "bounded on one rank": """
if dist.get_rank() == 1:
    nn.utils.clip_grad_value_(net.parameters(), 0.01)
""",
            "bounded, then divided": """
nn.utils.clip_grad_value_(net.parameters(), 0.01)
for p in net.parameters():
    p.grad /= world()
""",
            "weights that decay": """
for p in net.parameters():
    p.grad.add_(p.detach(), alpha=0.3)
""",
            "another parameter that is added": """
net.module[0].weight.grad.add_(net.module[2].weight.detach()[:4].T, alpha=0.3)
""",
        },
    )
    | _steps(
        _HAND,
        {
            "infinite, and never reduced": "nn.utils.clip_grad_norm_(net.parameters(), float('inf'))",
            "infinite, then reduced": """
nn.utils.clip_grad_norm_(net.parameters(), float('inf'))
average(net)
""",
            "norm of what is not reduced yet": """
total = sum((p.grad**2).sum() for p in net.parameters()).sqrt()
average(net)
clip([p.grad for p in net.parameters()], total)
""",
            "squares summed before the reduction": """
total = sum((p.grad**2).sum() for p in net.parameters())
dist.all_reduce(total)
average(net)
clip([p.grad for p in net.parameters()], total.sqrt())
""",
            "bounded before the reduction": """
nn.utils.clip_grad_value_(net.parameters(), 0.01)
average(net)
""",
            "weights that decay before the sum": """
for p in net.parameters():
    p.grad.add_(p.detach(), alpha=0.3)
    dist.all_reduce(p.grad)
""",
            "weights that decay, then the sum is divided": """
for p in net.parameters():
    dist.all_reduce(p.grad)
    p.grad.add_(p.detach(), alpha=0.3).div_(world())
""",
            "signs of gradients": """
average(net)
for p in net.parameters():
    p.grad.nan_to_num_().sign_()
""",
            "signs, averaged": """
for p in net.parameters():
    p.grad.sign_()
average(net)
""",
            "norm of what is divided later": """
for p in net.parameters():
    dist.all_reduce(p.grad)
clip([p.grad for p in net.parameters()], sum((p.grad**2).sum() for p in net.parameters()).sqrt())
for p in net.parameters():
    p.grad /= world()
""",
        },
    )
    | _steps(
        _SHARDED,
        {
            "squares of shards, of all ranks": """
total = sum((g**2).sum() for g in shards(net))
dist.all_reduce(total)
clip(shards(net), total.sqrt())
""",
            "squares of norms of shards, of all ranks": """
total = torch.stack([g.norm() for g in shards(net)]).norm() ** 2
dist.all_reduce(total)
clip(shards(net), total**0.5)
""",
            "shards, bounded": "nn.utils.clip_grad_value_(net.parameters(), 0.01)",
            "squares of shards": "clip(shards(net), sum((g**2).sum() for g in shards(net)).sqrt())",
            "norms of shards, of all ranks": """
total = sum((g**2).sum() for g in shards(net)).sqrt()
dist.all_reduce(total)
clip(shards(net), total)
""",
            "mean squares of shards": """
total = sum((g**2).sum() for g in shards(net))
dist.all_reduce(total)
clip(shards(net), (total / world()).sqrt())
""",
            "sums of norms of shards": """
total = sum(g.norm() for g in shards(net))
dist.all_reduce(total)
clip(shards(net), total)
""",
        },
    )
)

#: Steps that are refused, and what is said.
REFUSED = {
    "norm of a part of the rank": "it has to have each of them once",
    "bounded before the reduction": "changed otherwise element by element, before they are reduced",
    "bounded by ranks": "gradients are clipped, or bounded, with",
    "bounded on one rank": "rank 1 does something else with the gradient of",
    "bounded, then divided": "changed otherwise element by element, before they are reduced",
    "signs, averaged": "changed otherwise element by element, before they are reduced",
    "weights that decay before the sum": "changed otherwise element by element, before they are reduced",
    "weights that decay, then the sum is divided": "changed otherwise element by element, before they are reduced",
    "clipped with what ranks are": "gradients are clipped, or bounded, with 1 / 50, another number",
    "one of so many samples, of others' targets": "the losses",
    "overlapping samples": "gets samples that rank",
    "buffers of each rank": "ranks have other values of the buffer `scale` before the step",
    "buffers that DDP is told not to send": "ranks have other values of the buffer `scale` before the step",
    "clipped otherwise on one rank": "rank 1 does something else with the gradient",
    "the least of two, of which one is of samples": "rank 1 does something else with the gradient",
    "clipped to so many as there are ranks": "gradients are clipped, or bounded, with 2, another number with another number of ranks",
    "norm of what is not reduced yet": "gradients are clipped by a norm of what they are not",
    "squares summed before the reduction": "gradients are clipped by a norm of what they are not",
    "norm of what is divided later": "gradients are clipped before they are reduced",
    "norms of shards, of all ranks": "a norm that is not a root of a sum of squares",
    "mean squares of shards": "gradients are clipped, or bounded, with 1 / 2, another number",
    "sums of norms of shards": "a sum of gradients, or of norms, that are not squared",
}
#: Steps that are right, and refused all the same.
RIGHT = {
    "mean squares of all ranks, of whole gradients": "gradients are clipped, or bounded, with 1 / 2, another number",
    "bounded, then clipped": "changed otherwise element by element, before they are reduced",
    "another parameter that is added": "something that is not followed",
    "PowerSGD": "`powerSGD_hook` trains what no one device trains",  # its first steps send gradients as they are
    "norm of rows": "a sum or a norm of rows",
    "norms, not squared": "a sum of gradients, or of norms, that are not squared",
    "a norm of each": "several norms",
    "the first layer's alone": "one of all gradients can be said",
}
#: Those of which each kind has a right and a wrong one: the others are tried at night.
FIRST = (
    "a hook that averages",
    "a hook that adds up",
    "buffers of each rank",
    "buffers that DDP sends",
    "one of so many samples as there are ranks",
    "factors of FSDP2, of a sum over all",
    "factors of FSDP2, divided twice",
    "squares, summed",
    "mean squares of all ranks, of whole gradients",
    "norm of a part of the rank",
    "clipped to what is infinite",
    "clipped to so many as there are ranks",
    "infinite, and never reduced",
    "norm of what is not reduced yet",
    "squares of shards, of all ranks",
    "squares of shards",
    "norms of shards, of all ranks",
    "bounded",
    "bounded by ranks",
    "bounded before the reduction",
)
