"""Small training steps, written as users write them, and what has to come of recording each."""

from __future__ import annotations

import textwrap

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

class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = model()

    def forward(self, *, batch):
        return self.net(batch["x"])

mse = nn.functional.mse_loss
"""
#: Shards of one rank, over micro-batches with one all-reduce.
SHARDS = """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        net, (x, y) = model(), data()
        mesh = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard"))
        for block in (net[0], net):
            fully_shard(block, mesh=mesh)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for i, (xs, ys) in enumerate(zip(x.chunk(3), y.chunk(3))):
            net.set_requires_all_reduce(i == 2)
            {loss}.backward()
        optimizer.step()
"""
#: Activations are multiplied by numbers, one after another.
NUMBERS = """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        out = net(x)
        for k in ({numbers}):
            out = torch.tanh(out * k)
        mse(out, y).backward()
        average(net)
        optimizer.step()
"""
#: What is computed where samples need it; rank 1 has some that are far out.
BRANCH = """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        far = x.abs().amax(1, keepdim=True) > 2.4
        out = net(x)
        if {needed}:
            out = {out}
        mse(out, y).backward()
        average(net)
        optimizer.step()
"""
#: Gradients of all ranks are added up, and updates read something of them.
SIGNS = """
        net, (x, y) = model(), data()
        mse(net(x), y).backward()
        with torch.no_grad():
            for p in net.parameters():
                dist.all_reduce(p.grad)
                p -= 0.1 * {sign}
"""
#: Types of numbers are named, as where samples come from NumPy.
SINGLE = """
        net, (x, y) = model(), data()
        net.to(torch.float32)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        weights = torch.ones(4, dtype=torch.float32) / {size}
        out = net(torch.stack([torch.from_numpy(row) for row in x.float().numpy()]))
        ((out - y.float()) ** 2 @ weights).mean().backward()
        average(net)
        optimizer.step()
"""
#: Samples that come from NumPy, of which a rank makes others, and one update with ``{optimizer}``.
SCALED = """
        net, (x, y) = model(), data()
        optimizer = {optimizer}
        x = torch.from_numpy(x.numpy().astype("float32"))
        mse(net(x * (1 + {part} * {rank})), y).backward()
        average(net)
        optimizer.step()
"""
#: Samples that Python draws.
MADE = """
        import random
        drawn = random.Random(dist.get_rank())
        x, y = (torch.tensor([[drawn.random() for _ in range(4)] for _ in range(8)]) for _ in range(2))
"""
#: Gradients are added up.
SUMMED = """
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr={rate})
        mse(net(x), y).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
"""
#: What two losses of a step are.
TWO_LOSSES = """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        nn.functional.softplus(-net(x)).mean().backward()
        nn.functional.softplus(net(y)).mean().backward()
        {last}
        optimizer.step()
"""
#: A model that adds noise.
NOISY = """class Noisy(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = model()
            def forward(self, x):
                return self.net(x + 0.1 * torch.randn_like(x))
        net = Noisy()"""
#: Updates by signs.
BY_SIGNS = """
        class Signs(torch.optim.Optimizer):
            def __init__(self, params):
                super().__init__(params, {{}})
            @torch.no_grad()
            def step(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        p -= 0.01 * p.grad.sign()
"""
#: Two micro-batches.
HALVES = """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for xs, ys in zip(x.chunk(2), y.chunk(2)):
            ({loss}).backward()
        average(net)
        optimizer.step()
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
    "flat parameters that are filled up, clipped": (
        """
        from torch.distributed.fsdp import FullyShardedDataParallel
        model()
        torch.manual_seed(0)
        net = FullyShardedDataParallel(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4)), device_id=torch.device("cpu"))
        assert sum(p.numel() for p in net.parameters()) * 2 > 25
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        torch.manual_seed(5 + dist.get_rank())
        mse(net(torch.randn(6, 2)), torch.randn(6, 4)).backward()
        net.clip_grad_norm_(1.0)
        optimizer.step()
        """,
        "proved except process",
    ),
    "an optimizer that has a part of flat parameters": (
        """
        net, (x, y), rank = model(), data(), dist.get_rank()
        net[2].weight.requires_grad_(False)
        own = [net[0].weight, net[0].bias, net[2].bias]
        flat = torch.cat([p.data.flatten() for p in own])
        part = nn.Parameter(flat.chunk(2)[rank].clone())
        for p, whole in zip(own, flat.split([p.numel() for p in own])):
            p.data = whole.view_as(p)
        optimizer = torch.optim.SGD([part], lr=0.1)
        mse(net(x), y).backward()
        for p in own:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        part.grad = torch.cat([p.grad.flatten() for p in own]).chunk(2)[rank].clone()
        optimizer.step()
        dist.all_gather_into_tensor(flat, part.data)
        """,
        "proved except process",
    ),
    "an optimizer that has a part of flat parameters, which are swapped": (
        """
        net, (x, y), rank = model(), data(), dist.get_rank()
        net[2].weight.requires_grad_(False)
        own = [net[0].weight, net[0].bias, net[2].bias]
        flat = torch.cat([p.data.flatten() for p in own])
        part = nn.Parameter(flat.chunk(2)[rank].clone())
        for p, whole in zip(own, flat.split([p.numel() for p in own])):
            p.data = whole.view_as(p)
        optimizer = torch.optim.SGD([part], lr=0.1)
        mse(net(x), y).backward()
        for p in own:
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        part.grad = torch.cat([p.grad.flatten() for p in own]).chunk(2)[rank].clone()
        optimizer.step()
        dist.all_gather(list(reversed(flat.chunk(2))), part.data)
        """,
        "is not made of the parts that ranks have updated, in their order",
    ),
    "a count of samples before the model is run": (
        """
        net, (x, y) = DDP(model()), data()
        shift = torch.tensor(0.0)
        for p in net.parameters():
            (p * 0).sum()
        shift += (y > 0).sum()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x) + 0 * shift, y).backward()
        optimizer.step()
        """,
        "proved",
    ),
    "a number of each rank before the model is run": (
        """
        net, (x, y) = DDP(model()), data()
        shift = torch.tensor(0.0)
        for p in net.parameters():
            (p * 0).sum()
        shift += torch.randn(5).sum()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x) + 0 * shift, y).backward()
        optimizer.step()
        """,
        "than rank 0, which is of no samples",
    ),
    "exchanges of each rank with itself": (
        """
        net, (x, y), alone = model(), data(), [dist.new_group([rank]) for rank in range(2)]
        mse(net(x), y).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad, group=alone[dist.get_rank()])
        average(net)
        torch.optim.SGD(net.parameters(), lr=0.1).step()
        """,
        "proved except process",
    ),
    "exchanges of each rank with itself alone": (
        """
        net, (x, y), alone = model(), data(), [dist.new_group([rank]) for rank in range(2)]
        mse(net(x), y).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad, group=alone[dist.get_rank()])
        torch.optim.SGD(net.parameters(), lr=0.1).step()
        """,
        "refuted",
    ),
    "a wrapper that calls something else its buffers": (
        """
        class Wrapper(nn.Module):
            def __init__(self, module):
                super().__init__()
                self.module, self.buffers = module, []

            def forward(self, x):
                return self.module(x)

        net, (x, y) = Wrapper(model()), data()
        mse(net(x), y).backward()
        average(net)
        torch.optim.SGD(net.parameters(), lr=0.1).step()
        """,
        "proved",
    ),
    "backward that computes in a buffer": (
        """
        class Product(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(x, w)
                return x @ w

            @staticmethod
            def backward(ctx, g):
                x, w = ctx.saved_tensors
                torch.mm(g[:5], torch.ones(4, 3), out=buffer)
                return g @ w.t(), x.t() @ g

        net, (x, y), buffer = model(), data(), torch.randn(5, 3)
        mse(Product.apply(net[1](net[0](x)), net[2].weight), y).backward()
        for p in (*net[0].parameters(), net[2].weight):
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        torch.optim.SGD([*net[0].parameters(), net[2].weight], lr=0.1).step()
        """,
        "proved",
    ),
    "backward that adds what ranks have in a buffer": (
        """
        class Product(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(x, w)
                return x @ w

            @staticmethod
            def backward(ctx, g):
                x, w = ctx.saved_tensors
                buffer.add_(torch.mm(g[:5], torch.ones(4, 3)))
                return g @ w.t(), x.t() @ g

        net, (x, y), buffer = model(), data(), torch.randn(5, 3)
        mse(Product.apply(net[1](net[0](x)), net[2].weight), y).backward()
        for p in (*net[0].parameters(), net[2].weight):
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        torch.optim.SGD([*net[0].parameters(), net[2].weight], lr=0.1).step()
        """,
        "proved",
    ),
    "clipped in two steps": (
        """
        net = DDP(model())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.000123456789)
        for _ in range(2):
            x, y = data()
            optimizer.zero_grad()
            mse(net(x), y).backward()
            gradients = [p.grad for p in net.parameters()]
            total = sum(g.square().sum() for g in gradients).sqrt()
            for g in gradients:
                g *= (1 / (total + 1e-6)).clamp(max=1)
            optimizer.step()
        """,
        "proved",
    ),
    "updated by hand with bounded gradients": (
        """
        net, (x, y) = DDP(model()), data()
        mse(net(x), y).backward()
        for p in net.parameters():
            p.data.add_(p.grad.clamp(-1, 1), alpha=-0.000123456789)
        """,
        "proved",
    ),
    "updated by hand with what is bounded": (
        """
        net, (x, y) = DDP(model()), data()
        mse(net(x), y).backward()
        for p in net.parameters():
            p.data.sub_((0.1 * p.grad).clamp(-1, 1))
        """,
        "what is done element by element after the learning rate",
    ),
    "a hook that sends halves": (
        """
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
        net, (x, y) = DDP(model()), data()
        net.register_comm_hook(None, fp16_compress_hook)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        optimizer.step()
        """,
        "proved",
    ),
    "a hook that sends halves, and divides twice": (
        """
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
        net, (x, y) = DDP(model()), data()
        net.register_comm_hook(None, fp16_compress_hook)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        (mse(net(x), y) / dist.get_world_size()).backward()
        optimizer.step()
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
        "changed otherwise element by element, before they are reduced",
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
        "proved",
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
        "proved",
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
    "a constant, micro-batches not divided": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for xs, ys in zip(x.chunk(3), y.chunk(3)):
            (0.1 * mse(net(xs), ys)).backward()
        optimizer.step()
        """,
        "is a constant of its loss, which may be within",
    ),
    "a quarter, of six micro-batches": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for xs, ys in zip(x.chunk(6), y.chunk(6)):
            (mse(net(xs), ys) / 4).backward()
        optimizer.step()
        """,
        "refuted",
    ),
    "divided twice, or by a constant": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for xs, ys in zip(x.chunk(3), y.chunk(3)):
            (mse(net(xs), ys) / 3 / 3).backward()
        optimizer.step()
        """,
        "which may be a constant, or `1 / microbatches`",
    ),
    "gradients times a constant": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.AdamW(net.parameters())
        mse(net(x), y).backward()
        for p in net.parameters():
            p.grad *= 0.1
        optimizer.step()
        """,
        "refuted",
    ),
    "a scale that is not taken back": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.AdamW(net.parameters())
        (128 * mse(net(x), y)).backward()
        optimizer.step()
        """,
        "a scale by which gradients are to be divided",
    ),
    "half of the loss on the ranks that a script names": (
        """
        WORLD = 2
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.AdamW(net.parameters())
        (mse(net(x), y) / WORLD).backward()
        optimizer.step()
        """,
        "which may be a constant, or `1 / dp`",
    ),
    "a constant on two ranks alone": (
        """
        assert dist.get_world_size() == 2
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.AdamW(net.parameters())
        (0.1 * mse(net(x), y)).backward()
        optimizer.step()
        """,
        "which may be a constant, or a product of the number of ranks",
    ),
    "a number that depends on samples": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.AdamW(net.parameters())
        (mse(net(x), y) * x.abs().max()).backward()
        optimizer.step()
        """,
        "rank 1 scales its losses in another way than rank 0",
    ),
    "a sum by what is no count": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.AdamW(net.parameters())
        weights = torch.rand(6, 1)
        ((net(x) - y).square() * weights).sum().div(7.25).backward()
        optimizer.step()
        """,
        "this loss is a sum, multiplied by 4 / 29",
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
        "of the script failed: ValueError: no data",
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
        "this step trains a sum over samples",
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
    "samples by keyword, the same on all ranks": (
        """
        net = DDP(Named())
        torch.manual_seed(3)
        x, y = data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(batch={"x": x, "rows": [torch.arange(6)]}), y).backward()
        optimizer.step()
        """,
        "refuted",
    ),
    "samples by keyword": (
        """
        net = DDP(Named())
        x, y = data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(batch={"x": x, "rows": [torch.arange(6)]}), y).backward()
        optimizer.step()
        """,
        "proved",
    ),
    "one micro-batch that is the same on all ranks": (
        """
        net = DDP(model())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for i in range(3):
            if i == 1:
                torch.manual_seed(3)
            x, y = data()
            if i == 1:
                torch.manual_seed(50 + dist.get_rank())
            (mse(net(x), y) / 3).backward()
        optimizer.step()
        """,
        "rank 1 gets samples that rank 0 gets, too, and others besides: here",
    ),
    "micro-batches in another order": (
        """
        net = DDP(model())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        torch.manual_seed(3)
        batches = [data() for _ in range(3)]
        for i in range(3):
            x, y = batches[(i + dist.get_rank()) % 3]
            (mse(net(x), y) / 3).backward()
        optimizer.step()
        """,
        "gets samples that rank 0 gets, too",
    ),
    "samples that nobody sees": (
        """
        class Draws(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = model()
            def forward(self):
                return self.net.forward(torch.randn(6, 4))
        net = DDP(Draws())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net().square().mean().backward()
        optimizer.step()
        """,
        "is given a tensor without a gradient before this pass: samples of ranks cannot be compared",
    ),
    "a look at other samples between steps": (
        """
        net = DDP(model())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        same = torch.ones(2, 4)
        with torch.no_grad():
            net(same)
        x, y = data()
        mse(net(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            net(same)
        """,
        "proved",
    ),
    "layers that are split, of whose input nothing gets a gradient": (
        """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
        net = model()
        mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
        net = parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        torch.manual_seed(3)
        x, y = data()
        mse(net(x), y).backward()
        optimizer.step()
        """,
        "proved",
    ),
    "another temperature on one rank": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x) / (1.0 + 0.5 * dist.get_rank()), y).backward()
        average(net)
        optimizer.step()
        """,
        "rank 1 computes `div` with 1.5, and rank 0 with 1",
    ),
    "another number beside the one of all": (
        NUMBERS.format(numbers="(0.5, 0.25) if dist.get_rank() else (0.5, 0.5)"),
        "rank 1 computes `mul` with 0.25, too, and rank 0 does not",
    ),
    "the numbers of all in another order": (
        NUMBERS.format(numbers="(0.5, 0.25) if dist.get_rank() else (0.25, 0.5)"),
        "rank 1 computes `mul` with the numbers of rank 0 in another order",
    ),
    "the tensors of all in another order": (
        NUMBERS.format(numbers="map(torch.tensor, ([0.5] * 4, [0.25] * 4)[:: -1 if dist.get_rank() else 1])"),
        "rank 1 computes `mul` with the tensors of rank 0 in another order",
    ),
    "the arguments of all in another order": (
        NUMBERS.format(numbers="('tanh', 'none') if dist.get_rank() else ('none', 'tanh')").replace(
            "out * k", "nn.functional.gelu(out, approximate=k)"
        ),
        "rank 1 computes `gelu` with the arguments of rank 0 in another order",
    ),
    "the layers of all in another order, with dropout": (
        """
        net, (x, y) = model(), data()
        torch.manual_seed(1)
        net.append(nn.Linear(4, 4))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        order = (net[2], net[3])[:: -1 if dist.get_rank() else 1]
        mse(nn.functional.dropout(order[1](order[0](net[:2](x))), 0.1), y).backward()
        average(net)
        optimizer.step()
        """,
        "the loss of rank 1 is made by the operations of rank 0, but of other parameters, or in another order",
    ),
    "the same numbers on all ranks": (NUMBERS.format(numbers="0.5, 0.25"), "proved"),
    "what only samples of one rank need": (BRANCH.format(needed="far.any()", out="out.masked_fill(far, 0.0)"), "proved"),
    "an optimizer of the script, which reads gradients without a look whether there are any, in its third step": (
        """
        class Signs(torch.optim.Optimizer):
            def step(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        p.data.add_(p.grad, alpha=-group["lr"])
        net, (x, y) = model(), data()
        optimizer = Signs(net.parameters(), {"lr": 0.1})
        for xs, ys in zip(x.chunk(3), y.chunk(3)):
            net.zero_grad()
            mse(net(xs), ys).backward()
            average(net)
            optimizer.step()
        """,
        "proved",
    ),
    "labels of which rows are written, on one rank nothing": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        labels = y.argmax(1)
        for row in range(3):
            labels[row : row + dist.get_rank()] = -100
        counted = (labels != -100).sum().to(torch.get_default_dtype())
        dist.all_reduce(counted, op=dist.ReduceOp.AVG)
        (nn.functional.cross_entropy(net(x), labels, reduction="sum") / counted).backward()
        average(net)
        optimizer.step()
        """,
        "proved",
    ),
    "samples that a rank scales, and one update of AdamW": (
        SCALED.format(optimizer="torch.optim.AdamW(net.parameters(), lr=1e-3)", part=0.01, rank="dist.get_rank()"),
        "in numbers they end with other values than the script does as one process",
    ),
    "samples from NumPy, and one update of AdamW": (
        SCALED.format(optimizer="torch.optim.AdamW(net.parameters(), lr=1e-3)", part=0.01, rank="1"),
        "proved",
    ),
    "samples that a rank scales, and one update by signs": (
        BY_SIGNS.format() + SCALED.format(optimizer="Signs(net.parameters())", part=1e-4, rank="dist.get_rank()"),
        "proved except process",
    ),
    "samples from NumPy, and one update by signs": (
        BY_SIGNS.format() + SCALED.format(optimizer="Signs(net.parameters())", part=0.01, rank="1"),
        "proved",
    ),
    "updated by hand, by signs": (SIGNS.format(sign="(p.grad / dist.get_world_size()).sign()"), "proved except process"),
    "numbers of single precision, by name": (SINGLE.format(size="4"), "proved"),
    "numbers of single precision, of which one rank has others": (
        SINGLE.format(size="(4 + dist.get_rank())"),
        "rank 1 computes `mv` with another tensor of shape (4,) than rank 0",
    ),
    "a number that ranks were sent, and compare with theirs": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        sizes = torch.tensor(len(list(net.parameters())) if dist.get_rank() == 0 else -1)
        dist.broadcast(sizes, src=0)
        assert sizes.item() == len(list(net.parameters()))
        mse(net(x), y).backward()
        average(net)
        optimizer.step()
        """,
        "proved",
    ),
    "weights of samples by rank, made before forward": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        weights = torch.ones_like(y) * (1 + 0.5 * dist.get_rank())
        (weights * (net(x) - y) ** 2).mean().backward()
        average(net)
        optimizer.step()
        """,
        "proved except samples",
    ),
    "what only one rank does, and all need": (
        BRANCH.format(needed="dist.get_rank()", out="out.masked_fill(x.abs().amax(1, keepdim=True) > 0.5, 0.0)"),
        "rank 1 computes `gt` where rank 0 does not",
    ),
    "signs of gradients that are added up": (SIGNS.format(sign="torch.sign(p.grad)"), "the optimizer makes up for it"),
    "signs of gradients that are added up, and samples of Python": (
        MADE + SIGNS.format(sign="torch.sign(p.grad)").replace("net, (x, y) = model(), data()", "net = model()"),
        "the optimizer makes up for it",
    ),
    "signs of gradients that are added up, by two ranks alone": (
        "assert dist.get_world_size() == 2\n" + textwrap.dedent(SIGNS.format(sign="torch.sign(p.grad)")),
        "for an optimizer that does not see how large they are",
    ),
    "gradients that are added up, by two ranks alone": (
        "assert dist.get_world_size() == 2\n" + textwrap.dedent(SIGNS.format(sign="p.grad")),
        "refuted",
    ),
    "gradients that are added up, and a rate over ranks, of chance": (
        textwrap.dedent(MADE) + textwrap.dedent(SUMMED.format(rate="0.1 / dist.get_world_size()").replace("net = model()", NOISY)),
        "settings of updates that change with the number of ranks",
    ),
    "gradients that are added up, and a rate over ranks, and samples of Python": (
        MADE + SUMMED.format(rate="0.1 / dist.get_world_size()"),
        "the settings that they update with make up for it",
    ),
    "gradients that are added up, and a rate times ranks, and samples of Python": (
        MADE + SUMMED.format(rate="0.1 * dist.get_world_size()"),
        "refuted",
    ),
    "gradients that are added up, and samples of Python": (MADE + SUMMED.format(rate="0.1"), "refuted"),
    "gradients that are added up": (SIGNS.format(sign="p.grad"), "refuted"),
    "a loss over the samples of all ranks that is averaged, and a rate times ranks": (
        SUMMED.format(rate="0.1 * dist.get_world_size()")
        .replace("net = model()", "net, (x, y) = model(), data()")
        .replace("mse(net(x), y)", "(mse(net(x), y) / dist.get_world_size())")
        .replace("dist.all_reduce(p.grad)", "dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)"),
        "settings of updates that change with the number of ranks",
    ),
    "two losses in two lines": (
        TWO_LOSSES.format(last="average(net)"),
        "are added up: of several losses, or of micro-batches of one?",
    ),
    "two losses in two lines, and no average": (TWO_LOSSES.format(last=""), "refuted"),
    "half a loss, of two micro-batches": (HALVES.format(loss="0.5 * mse(net(xs), ys)"), "proved except factors"),
    "a loss divided by two micro-batches": (HALVES.format(loss="mse(net(xs), ys) / 2"), "proved"),
    "one tensor more on one rank": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = model()
            def forward(self, x, places=None):
                return self.net(x + (torch.arange(4) if places is None else places))
        net, (x, y) = Net(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x, *([] if dist.get_rank() else [x.abs().cumsum(1)])), y).backward()
        average(net)
        optimizer.step()
        """,
        "rank 1 gives a module 1 tensors, and rank 0 2",
    ),
    "a branch that is detached on one rank": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        h = net[0](x)
        mse(net[2](h) + (h.detach() if dist.get_rank() else h), y).backward()
        average(net)
        optimizer.step()
        """,
        "the loss of rank 1 is made by other operations than that of rank 0",
    ),
    "another fixed matrix on one rank": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        fixed = torch.eye(4) * (1 + dist.get_rank())
        mse(net(x) @ fixed, y).backward()
        average(net)
        optimizer.step()
        """,
        "rank 1 computes `mm` with another tensor of shape (4, 4) than rank 0",
    ),
    "another fixed matrix on one rank, written as an array of NumPy": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        fixed = torch.empty(4, 4)
        array = fixed.numpy()
        array[:] = 1 + dist.get_rank()
        mse(net(x) @ fixed, y).backward()
        average(net)
        optimizer.step()
        """,
        "rank 1 computes `mm` with another tensor of shape (4, 4) than rank 0",
    ),
    "gradients beside what nobody has written": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        before = torch.full((3,), float(dist.get_rank()))  # whose memory may be given out again
        del before
        flat = torch.cat([*(p.grad.reshape(-1) for p in net.parameters()), torch.empty(3)])
        dist.all_reduce(flat)
        at = 0
        for p in net.parameters():
            p.grad.copy_(flat[at : at + p.numel()].view_as(p) / dist.get_world_size())
            at += p.numel()
        optimizer.step()
        """,
        "proved",
    ),
    "gradients that are written as arrays of NumPy": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        average(net)
        half = net[0].weight.grad.numpy()
        half *= 0.5
        optimizer.step()
        """,
        "was written on rank 0 past PyTorch",
    ),
    "a number that passes for the number of ranks": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= 2
        optimizer.step()
        """,
        "the factor 1 / 2 is `1 / dp` as it is recorded, and not with another number of ranks",
    ),
    "the number of ranks": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optimizer.step()
        """,
        "proved",
    ),
    "copies that part while all are updated": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        average(net)
        net[2].bias.grad.copy_(net[2].bias.grad.roll(dist.get_rank()))
        optimizer.step()
        """,
        "after the step ranks have something else of `2.bias`, of which they have copies",
    ),
    "a wrapper that is let go of before backward": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(DDP(net)(x), y).backward()
        optimizer.step()
        """,
        "refuted",
    ),
    "each rank updates some, and sends them": (
        """
        net, (x, y) = model(), data()
        each = list(net.parameters())
        optimizer = torch.optim.SGD(each[dist.get_rank() :: dist.get_world_size()], lr=0.1)
        mse(net(x), y).backward()
        average(net)
        optimizer.step()
        for i, p in enumerate(each):
            dist.broadcast(p.data, src=i % dist.get_world_size())
        """,
        "proved",
    ),
    "each rank updates some, and others send them": (
        """
        net, (x, y) = model(), data()
        each = list(net.parameters())
        optimizer = torch.optim.SGD(each[dist.get_rank() :: dist.get_world_size()], lr=0.1)
        mse(net(x), y).backward()
        average(net)
        optimizer.step()
        for i, p in enumerate(each):
            dist.broadcast(p.data, src=(i + 1) % dist.get_world_size())
        """,
        "after the step rank 1 sends `0.weight`, which it has not updated",
    ),
    "what all have of a parameter, and the wrong one taken": (
        """
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(list(net.parameters())[dist.get_rank() :: dist.get_world_size()], lr=0.1)
        mse(net(x), y).backward()
        average(net)
        optimizer.step()
        for i, p in enumerate(net.parameters()):
            each = [torch.empty_like(p.data) for _ in range(dist.get_world_size())]
            dist.all_gather(each, p.data)
            p.data.copy_(each[(i + 1) % dist.get_world_size()])
        """,
        "is updated on rank 0, and after the step something else is there",
    ),
    "a part that each rank updates, put together": (
        """
        net, (x, y) = model(), data()
        mse(net(x), y).backward()
        n, rank, own = dist.get_world_size(), dist.get_rank(), [p.data for p in net.parameters()]
        gradient = torch.empty(40 // n)
        dist.reduce_scatter_tensor(gradient, torch.cat([p.grad.view(-1) for p in net.parameters()]))
        part = torch.cat([p.view(-1) for p in own]).chunk(n)[rank].clone()
        part -= 0.1 * (gradient / n)
        parts = [torch.empty_like(part) for _ in range(n)]
        dist.all_gather(parts, part)
        for p, new in zip(own, torch.cat(parts).split([p.numel() for p in own])):
            p.copy_(new.view_as(p))
        """,
        "proved",
    ),
    "a part that each rank updates, put together in another order": (
        """
        net, (x, y) = model(), data()
        mse(net(x), y).backward()
        n, rank, own = dist.get_world_size(), dist.get_rank(), [p.data for p in net.parameters()]
        gradient = torch.empty(40 // n)
        dist.reduce_scatter_tensor(gradient, torch.cat([p.grad.view(-1) for p in net.parameters()]))
        part = torch.cat([p.view(-1) for p in own]).chunk(n)[rank].clone()
        part -= 0.1 * (gradient / n)
        parts = [torch.empty_like(part) for _ in range(n)]
        dist.all_gather(parts, part)
        for p, new in zip(own, torch.cat(parts[::-1]).split([p.numel() for p in own])):
            p.copy_(new.view_as(p))
        """,
        "is not made of the parts that ranks have updated, in their order",
    ),
    "an update that is taken back": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer, before = torch.optim.SGD(net.parameters(), lr=0.1), [p.detach().clone() for p in net.parameters()]
        mse(net(x), y).backward()
        optimizer.step()
        with torch.no_grad():
            for p, old in zip(net.parameters(), before):
                p.copy_(old)
        """,
        "is updated on rank 0, and after the step it is what it was before",
    ),
    "windows of samples that overlap": (
        """
        net, at = DDP(model()), 4 * dist.get_rank()
        torch.manual_seed(3)
        x, y = torch.randn(20, 4), torch.randn(20, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x[at : at + 6]), y[at : at + 6]).backward()
        optimizer.step()
        """,
        "rank 1 gets samples that rank 0 gets, too, and others besides",
    ),
    "windows of samples that do not overlap": (
        """
        net, at = DDP(model()), 6 * dist.get_rank()
        torch.manual_seed(3)
        x, y = torch.randn(20, 4), torch.randn(20, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x[at : at + 6]), y[at : at + 6]).backward()
        optimizer.step()
        """,
        "proved",
    ),
    "targets of rank 0 on all ranks": (
        """
        net, (x, _) = DDP(model()), data()
        torch.manual_seed(5)
        y = torch.randn(6, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        optimizer.step()
        """,
        "get different samples, and one of the tensors that are read of these is the same",
    ),
    "targets that are the same for all": (
        """
        net, (x, _) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), torch.ones(6, 4)).backward()
        optimizer.step()
        """,
        "proved except process",
    ),
    "another rate on one rank": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1 + 0.1 * (dist.get_rank() == 0))
        mse(net(x), y).backward()
        optimizer.step()
        """,
        "rank 1 updates with lr 0.1, and rank 0 with lr 0.2",
    ),
    "momentum on one rank": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        if dist.get_rank() == 0:
            for p in net.parameters():
                optimizer.state[p]["momentum_buffer"] = torch.ones_like(p)
        mse(net(x), y).backward()
        optimizer.step()
        """,
        "the optimizer of rank 1 begins with something else of `0.weight` than that of rank 0",
    ),
    "a teacher of each rank's own": (
        """
        net, (x, _) = DDP(model()), data()
        teacher = nn.Linear(4, 4).requires_grad_(False)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), teacher(x)).backward()
        optimizer.step()
        """,
        "is not trained, and ranks 0 and 1 have other values of it",
    ),
    "parameters that one rank changes after they were sent": (
        """
        net, (x, y) = DDP(model()), data()
        if dist.get_rank() == 0:
            with torch.no_grad():
                for p in net.parameters():
                    p.mul_(0.5)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        optimizer.step()
        """,
        "refuted",
    ),
    "each rank updates some, and sends nothing": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.Adam(list(net.parameters())[dist.get_rank() :: dist.get_world_size()])
        mse(net(x), y).backward()
        optimizer.step()
        """,
        "gets a gradient on rank 0 and stays as it is there: it is neither updated nor sent",
    ),
    "each rank updates some, and sends it": (
        """
        net, (x, y) = DDP(model()), data()
        mine = list(net.parameters())
        optimizer = torch.optim.Adam(mine[dist.get_rank() :: dist.get_world_size()])
        mse(net(x), y).backward()
        optimizer.step()
        for i, p in enumerate(mine):
            dist.broadcast(p.data, i % dist.get_world_size())
        """,
        "proved",
    ),
    "targets that do not count, in other numbers on other ranks": (
        """
        net, (x, _) = DDP(model()), data()
        targets = torch.randint(4, (6,))
        targets[: 1 + dist.get_rank()] = -100
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        nn.functional.cross_entropy(net(x), targets).backward()
        optimizer.step()
        """,
        "refuted",
    ),
    "targets that do not count, in the same numbers": (
        """
        net, (x, _) = DDP(model()), data()
        targets = torch.randint(4, (6,))
        targets[:2] = -100
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        nn.functional.cross_entropy(net(x), targets).backward()
        optimizer.step()
        """,
        "proved",
    ),
    "a gradient that is written over by an operation with `out`": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        for p in net.parameters():
            torch.mul(torch.ones(p.shape), 2, out=p.grad)
        optimizer.step()
        """,
        "something that is not followed",
    ),
    "a sparse gradient": (
        """
        model()
        table, rows = nn.Embedding(8, 4, sparse=True), torch.randint(8, (6,))
        optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
        table(rows).square().mean().backward()
        optimizer.step()
        """,
        "the gradient of `weight` is sparse",
    ),
    "a norm that is looked at for overflow": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in net.parameters()]))
        wrong = norm.isnan().logical_or(norm.isinf())
        norm.masked_fill_(wrong, -1.0)
        norm = torch.where((~torch.isfinite(norm) | (norm < 0)).any(), torch.full_like(norm, float("inf")), norm)
        for p in net.parameters():
            p.grad.mul_((1.0 / (norm + 1e-6)).clamp(max=1.0))
        optimizer.step()
        """,
        "proved",
    ),
    "gradients that are left out where they are large": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in net.parameters()]))
        for p in net.parameters():
            p.grad.masked_fill_(p.grad > 1, 0.0)
        optimizer.step()
        """,
        "`gt`",
    ),
    "a norm that comes back as a number": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in net.parameters()]))
        for p in net.parameters():
            p.grad.mul_(0.7310585 / (norm.item() + 1e-6))
        optimizer.step()
        """,
        "proved",
    ),
    "norms added up as numbers, squared": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        total = sum(p.grad.norm(2).item() ** 2 for p in net.parameters()) ** 0.5
        factor = min(1.0, 5000 / (total + 1e-6))
        for p in net.parameters():
            p.grad *= factor
        optimizer.step()
        """,
        "proved",
    ),
    "shards of one rank, whose memory is freed after forward and taken again": (SHARDS.format(loss="(mse(net(xs), ys) / 3)"), "proved"),
    "shards of one rank over micro-batches that nobody counts": (SHARDS.format(loss="mse(net(xs), ys)"), "refuted"),
    "norms of parts as numbers, summed over ranks": (
        """
        import math
        from torch.distributed.fsdp import fully_shard
        net, (x, y) = model(), data()
        fully_shard(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        square = torch.tensor(sum(p.grad.to_local().norm().item() ** 2 for p in net.parameters()))
        dist.all_reduce(square)
        factor = 0.05 / (math.sqrt(square.item()) + 1e-6)
        if factor < 1:
            for p in net.parameters():
                p.grad.to_local().mul_(factor)
        optimizer.step()
        """,
        "proved",
    ),
    "norms of parts as numbers": (
        """
        from torch.distributed.fsdp import fully_shard
        net, (x, y) = model(), data()
        fully_shard(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        total = sum(p.grad.to_local().norm().item() ** 2 for p in net.parameters()) ** 0.5
        for p in net.parameters():
            p.grad.to_local().mul_(min(1.0, 0.05 / (total + 1e-6)))
        optimizer.step()
        """,
        "refuted",
    ),
    "norms added up as numbers": (
        """
        net, (x, y) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        total = sum(p.grad.norm(2).item() for p in net.parameters())
        for p in net.parameters():
            p.grad.mul_(0.05 / (total + 1e-6))
        optimizer.step()
        """,
        "`mul` by a number that may be made of a norm",
    ),
    "parts that are updated, with a norm over all ranks of what each has": (
        """
        net, (x, y) = model(), data()
        flat = torch.cat([p.data.view(-1) for p in net.parameters()])
        at, size = 0, flat.numel() // dist.get_world_size()
        for p in net.parameters():
            p.data = flat[at : at + p.numel()].view_as(p)
            at += p.numel()
        mine = nn.Parameter(flat.chunk(dist.get_world_size())[dist.get_rank()])
        optimizer = torch.optim.SGD([mine], lr=0.1)
        mse(net(x), y).backward()
        average(net)
        gradients = torch.cat([p.grad.view(-1) for p in net.parameters()])
        mine.grad = gradients.chunk(dist.get_world_size())[dist.get_rank()].clone()
        square = mine.grad.norm().square()
        dist.all_reduce(square)
        mine.grad.mul_((1.0 / (square.sqrt() + 1e-6)).clamp(max=1.0))
        optimizer.step()
        dist.all_gather_into_tensor(flat, mine.data)
        """,
        "of which elements each is the norm is not followed",
    ),
    "what was gathered is updated, and not what it was gathered from": (
        """
        class Hidden(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.save_for_backward(x)
                return x @ w.t()
            @staticmethod
            def backward(ctx, g):
                return None, g.t() @ ctx.saved_tensors[0]
        class Gathered(nn.Module):
            def __init__(self):
                super().__init__()
                self.w = nn.Parameter(torch.ones(4, 4))
                self.own = self.w.data.view(-1).chunk(dist.get_world_size())[dist.get_rank()].clone()
            def forward(self, x):
                whole = torch.empty(16)
                dist.all_gather_into_tensor(whole, self.own)
                self.w.data = whole.view(4, 4)
                return Hidden.apply(x, self.w)
        model()
        net, (x, y) = Gathered(), data()
        net.w.sum()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        average(net)
        optimizer.step()
        """,
        "`w` is updated as it was gathered: what it is gathered from stays as it is",
    ),
    "a mean with weights of classes": (
        """
        net, (x, _) = DDP(model()), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        nn.functional.cross_entropy(net(x), torch.randint(4, (6,)), weight=torch.tensor([1.0, 2.0, 3.0, 4.0])).backward()
        optimizer.step()
        """,
        "the loss is a mean with the weights of its classes",
    ),
}
#: Blocks of two pairs of split layers, each with exchanges of its own, along one axis; parameters are sharded along the other.
PAIRS = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Partial, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, parallelize_module

WORLD = 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.again = nn.Identity(), nn.Identity()
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16, bias=False), nn.Linear(16, 8, bias=False)
        self.second = nn.LayerNorm(8)
        self.wide, self.narrow = nn.Linear(8, 16, bias=False), nn.Linear(16, 8, bias=False)

    def forward(self, x):
        x = x + self.down(self.up(self.enter(self.norm(x))).relu())
        return x + self.narrow(self.wide(self.again(self.second(x))).relu())


def train():
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    net = nn.Sequential(Block(), Block())
    entry = PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Replicate())
    plan = {"enter": entry, "again": entry, "up": ColwiseParallel(), "down": RowwiseParallel()}
    plan |= {"wide": ColwiseParallel(), "narrow": RowwiseParallel()}
    for block in net:
        parallelize_module(block, mesh["tp"], plan)
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(net, mesh=mesh["dp"])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(5 + mesh.get_local_rank("dp"))
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    nn.functional.mse_loss(net(x), y).backward()
    optimizer.step()
"""
#: A model of which all layers are split along one axis, the embedding and the head, too, and parameters are sharded along the other.
#: ``train()`` returns whether it ends as one process does.
ALL_SPLIT = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module

WORLD = 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16, bias=False), nn.Linear(16, 8, bias=False)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.blocks = nn.Embedding(32, 8), nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 32, bias=False)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.embed(ids))))


def step(net, samples):
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    for seed in samples:
        torch.manual_seed(seed)
        ids, targets = torch.randint(32, (2, 8)), torch.randint(16, (2, 8))
        (nn.functional.cross_entropy(net(ids).flatten(0, 1), targets.flatten()) / len(samples)).backward()
    optimizer.step()
    return {name: p.detach() for name, p in net.named_parameters()}


def train():
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    net = Net()
    between = Shard(1)
    whole = {"embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=between)}
    whole |= {"norm": SequenceParallel()} if between == Shard(1) else {}
    whole |= {"head": ColwiseParallel(input_layouts=between, output_layouts=Replicate())}
    plan = {"up": ColwiseParallel(input_layouts=between), "down": RowwiseParallel(output_layouts=between)}
    plan |= {"norm": SequenceParallel()} if between == Shard(1) else {}
    parallelize_module(net, mesh["tp"], whole)
    for block in net.blocks:
        parallelize_module(block, mesh["tp"], plan)
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(net, mesh=mesh["dp"])
    ours = step(net, [5 + mesh.get_local_rank("dp")])
    torch.manual_seed(0)
    one = step(Net(), [5, 6])
    return all(torch.allclose(p.full_tensor(), one[name], atol=1e-5) for name, p in ours.items())
"""
