"""Small training steps, written as users write them, and what has to come of recording each."""

from __future__ import annotations

HEAD = """
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

def model():
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    torch.manual_seed(5 + dist.get_rank())
    return net

def data():
    return torch.randn(6, 4), torch.randn(6, 4)

def average(net):
    for p in net.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)

mse = nn.functional.mse_loss
"""
#: By name: the body of ``train``, and the verdict, or what is said where the step is refused.
STEPS = {
    "update by hand": (
        """
        net, (x, y) = model(), data()
        mse(net(x), y).backward()
        with torch.no_grad():
            for p in net.parameters():
                dist.all_reduce(p.grad)
                p -= 0.1 * p.grad / dist.get_world_size()
        """,
        "proved",
    ),
    "update by hand without a mean": (
        """
        net, (x, y) = model(), data()
        mse(net(x), y).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.data.add_(p.grad, alpha=-0.1)
        """,
        "refuted",
    ),
    "hooks that divide": (
        """
        net, (x, y) = model(), data()
        for p in net.parameters():
            p.register_hook(lambda g: g / dist.get_world_size())
        optimizer = torch.optim.AdamW(net.parameters())
        mse(net(x), y).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        """,
        "proved",
    ),
    "hooks that divide a mean again": (
        """
        net, (x, y) = model(), data()
        for p in net.parameters():
            p.register_hook(lambda g: g / dist.get_world_size())
        optimizer = torch.optim.AdamW(net.parameters())
        mse(net(x), y).backward()
        average(net)
        optimizer.step()
        """,
        "refuted",
    ),
    "hooks that clamp": (
        """
        net, (x, y) = model(), data()
        for p in net.parameters():
            p.register_hook(lambda g: g.clamp(-1, 1))
        optimizer = torch.optim.AdamW(net.parameters())
        mse(net(x), y).backward()
        average(net)
        optimizer.step()
        """,
        "`clamp`",
    ),
    "clipping by value": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        average(net)
        torch.nn.utils.clip_grad_value_(net.parameters(), 0.1)
        optimizer.step()
        """,
        "`clamp",
    ),
    "clipping before the reduction": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        average(net)
        optimizer.step()
        """,
        "clipped before they are reduced",
    ),
    "clipping by the norm": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.AdamW(net.parameters())
        mse(net(x), y).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        """,
        "proved",
    ),
    "half of the parameters forgotten by the optimizer": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net[0].parameters(), lr=0.1)
        mse(net(x), y).backward()
        average(net)
        optimizer.step()
        """,
        "`2.weight` gets a gradient and is never updated",
    ),
    "half of the parameters forgotten by the reduction": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        average(net[0])
        optimizer.step()
        """,
        "refuted",
    ),
    "the gradient of another parameter": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        average(net)
        net[0].weight.grad.copy_(net[2].weight.grad)
        optimizer.step()
        """,
        "`0.weight` is updated with the gradient of another parameter",
    ),
    "a maximum of gradients": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.MAX)
        optimizer.step()
        """,
        "`all_reduce` of gradients with max",
    ),
    "weight decay by hand": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        for p in net.parameters():
            p.grad.add_(p.data, alpha=0.01)
        optimizer.step()
        """,
        "something that is not followed",
    ),
    "every micro-batch reduced": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for xs, ys in zip(x.chunk(3), y.chunk(3)):
            (mse(net(xs), ys) / 3).backward()
        optimizer.step()
        """,
        "proved",
    ),
    "every micro-batch summed again": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for xs, ys in zip(x.chunk(3), y.chunk(3)):
            (mse(net(xs), ys) / 3).backward()
            for p in net.parameters():
                dist.all_reduce(p.grad)
        for p in net.parameters():
            p.grad /= dist.get_world_size()
        optimizer.step()
        """,
        "refuted",
    ),
    "a loss that is logged": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
        loss = mse(net(x), y)
        loss.backward()
        optimizer.step()
        shown = loss.detach()
        dist.all_reduce(shown)
        """,
        "proved",
    ),
    "a loss that cannot be read": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).sqrt().backward()
        optimizer.step()
        """,
        "neither a mean nor a sum",
    ),
    "a script that fails": (
        """
        raise ValueError("no data")
        """,
        "rank 0 of the script failed: ValueError: no data",
    ),
    "a script that trains nothing": (
        """
        model()
        """,
        "nothing was trained",
    ),
    "one rank that counts for more": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        if dist.get_rank() == 1:
            net[2].bias.grad.mul_(2)
        average(net)
        optimizer.step()
        """,
        "rank 1 does something else with the gradient of `2.bias` than rank 0",
    ),
    "one rank whose loss counts for more": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        (mse(net(x), y) * (1 + dist.get_rank())).backward()
        optimizer.step()
        """,
        "rank 1 scales its losses in another way",
    ),
    "micro-batches divided by another number": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for xs, ys in zip(x.chunk(3), y.chunk(3)):
            (mse(net(xs), ys) / 5).backward()
        optimizer.step()
        """,
        "refuted",
    ),
    "a sum over the global batch": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        (mse(net(x), y, reduction="sum") / (len(x) * dist.get_world_size())).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        """,
        "proved",
    ),
    "a sum over the local batch, averaged": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y, reduction="sum").backward()
        optimizer.step()
        """,
        "refuted",
    ),
    "a reduction twice": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        """,
        "refuted",
    ),
    "an average of averages": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        average(net)
        optimizer.step()
        """,
        "proved",
    ),
    "gradients left from before the step": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for p in net.parameters():
            p.grad = torch.ones_like(p)
        mse(net(x), y).backward()
        optimizer.step()
        """,
        "a sum with something else",
    ),
    "parameters that are changed after the update": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            for p in net.parameters():
                p.mul_(0.99)
        """,
        "after the update",
    ),
    "parameters averaged after the update": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        optimizer.step()
        for p in net.parameters():
            dist.all_reduce(p.data, op=dist.ReduceOp.AVG)
        """,
        "after the update",
    ),
}
