"""Training steps of losses as users write them. Each also runs in one process, on all samples: what that gives says whether it is right."""

from __future__ import annotations

HEAD = """
import contextlib
import copy
from random import Random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

mse, ce = nn.functional.mse_loss, nn.functional.cross_entropy


def world():
    return dist.get_world_size()


def model():
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5))


def mine(*tensors):
    return [t.tensor_split(dist.get_world_size())[dist.get_rank()] for t in tensors]


def data(n=24):
    torch.manual_seed(7)
    return mine(torch.randn(n, 4), torch.randn(n, 5))


def tokens(n=24):
    torch.manual_seed(7)
    x, y = torch.randn(n, 3, 4), torch.randint(5, (n, 3))
    y[: n // 3, 1:] = -100
    return mine(x, y)


def sequences():  # as many as the first one has tokens
    draw, sizes = Random(7), [4, 2, 5, 4, 3, 1, 4, 2]
    every = [draw.choices(range(5), k=size) for size in sizes]
    own = [torch.tensor(s) for s in every[dist.get_rank() :: dist.get_world_size()]]
    return nn.utils.rnn.pad_sequence(own, batch_first=True, padding_value=-100)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w, g.t() @ x


class Own(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        torch.manual_seed(3)
        self.w = nn.Parameter(torch.randn(outputs, inputs))

    def forward(self, x):
        return Product.apply(x, self.w)


def count(y):
    n = (y != -100).sum()
    dist.all_reduce(n)
    return n


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.5)


def result(net):
    return [p.detach().clone() for p in net.parameters()]
"""

#: By name: the body of ``train``.
BODIES = {
    "functions with a backward of their own": """
        net, (x, y) = DDP(nn.Sequential(Own(4, 6), model()[1:])), data()
        optimizer = sgd(net)
        mse(net(x), y).backward()
        optimizer.step()
        return result(net)
    """,
    "functions with a backward of their own, of which nobody reduces one": """
        net, (x, y) = nn.Sequential(Own(4, 6), model()[1:]), data()
        optimizer = sgd(net)
        mse(net(x), y).backward()
        for p in net[1].parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        optimizer.step()
        return result(net)
    """,
    "tokens that are filled in": """
        net, (x, y) = DDP(model()), tokens()
        optimizer, n = sgd(net), count(y)
        losses = ce(net(x).flatten(0, 1), y.flatten(), ignore_index=-100, reduction="none").view(y.shape)
        (losses.masked_fill(y == -100, 0.0).sum() * world() / n).backward()
        optimizer.step()
        return result(net)
    """,
    "tokens that are filled in, by those of a rank": """
        net, (x, y) = DDP(model()), tokens()
        optimizer = sgd(net)
        losses = ce(net(x).flatten(0, 1), y.flatten(), ignore_index=-100, reduction="none").view(y.shape)
        (losses.masked_fill(y == -100, 0.0).neg().sum() / -(y != -100).sum()).backward()
        optimizer.step()
        return result(net)
    """,
    "sequences that are padded": """
        net, ids = DDP(nn.Sequential(nn.Embedding(5, 4), model())), sequences()
        optimizer, n = sgd(net), count(ids)
        losses = ce(net(ids.clamp(min=0)).flatten(0, 1), ids.flatten(), ignore_index=-100, reduction="sum")
        (losses * world() / n).backward()
        optimizer.step()
        return result(net)
    """,
    "sequences that are padded, by those of a rank": """
        net, ids = DDP(nn.Sequential(nn.Embedding(5, 4), model())), sequences()
        optimizer = sgd(net)
        ce(net(ids.clamp(min=0)).flatten(0, 1), ids.flatten(), ignore_index=-100).backward()
        optimizer.step()
        return result(net)
    """,
    "ddp": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        mse(net(x), y).backward()
        optimizer.step()
        return result(net)
    """,
    "scaler": """
        net, (x, y) = DDP(model()), data()
        optimizer, scaler = sgd(net), torch.amp.GradScaler("cpu")
        scaler.scale(mse(net(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()
        return result(net)
    """,
    "scaler and clipping": """
        net, (x, y) = DDP(model()), data()
        optimizer, scaler = sgd(net), torch.amp.GradScaler("cpu")
        scaler.scale(mse(net(x), y)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1e-2)
        scaler.step(optimizer)
        scaler.update()
        return result(net)
    """,
    "scaler that is never asked": """
        net, (x, y) = DDP(model()), data()
        optimizer, scaler = sgd(net), torch.amp.GradScaler("cpu", init_scale=4.0)
        for xs, ys in zip(x.chunk(3), y.chunk(3)):
            scaler.scale(mse(net(xs), ys) / 3).backward()
        optimizer.step()
        return result(net) if dist.get_world_size() > 1 else [p + 1 for p in result(net)]
    """,
    "fused, scaler": """
        net, (x, y) = DDP(model()), data()
        optimizer, scaler = torch.optim.SGD(net.parameters(), lr=0.5, fused=True), torch.amp.GradScaler("cpu")
        for xs, ys in zip(x.chunk(3), y.chunk(3)):
            scaler.scale(mse(net(xs), ys) / 3).backward()
        scaler.step(optimizer)
        scaler.update()
        return result(net)
    """,
    "tokens of all": """
        net, (x, y) = DDP(model()), tokens()
        optimizer, n = sgd(net), count(y)
        (ce(net(x).flatten(0, 1), y.flatten(), reduction="sum") * world() / n).backward()
        optimizer.step()
        return result(net)
    """,
    "tokens of all, twice divided": """
        net, (x, y) = DDP(model()), tokens()
        optimizer, n = sgd(net), count(y)
        (ce(net(x).flatten(0, 1), y.flatten(), reduction="sum") / n).backward()
        optimizer.step()
        return result(net)
    """,
    "tokens of each": """
        net, (x, y) = DDP(model()), tokens()
        optimizer = sgd(net)
        ce(net(x).flatten(0, 1), y.flatten()).backward()
        optimizer.step()
        return result(net)
    """,
    "tokens of all micro-batches": """
        net, (x, y) = DDP(model()), tokens()
        optimizer, n = sgd(net), count(y)
        for xs, ys in zip(x.chunk(3), y.chunk(3)):
            (ce(net(xs).flatten(0, 1), ys.flatten(), reduction="sum") * world() / n.item()).backward()
        optimizer.step()
        return result(net)
    """,
    "tokens of each micro-batch": """
        net, (x, y) = DDP(model()), tokens()
        optimizer = sgd(net)
        for xs, ys in zip(x.chunk(3), y.chunk(3)):
            n = count(ys)
            (ce(net(xs).flatten(0, 1), ys.flatten(), reduction="sum") * world() / n / 3).backward()
        optimizer.step()
        return result(net)
    """,
    "tokens with a mask": """
        net, (x, y) = DDP(model()), tokens()
        optimizer, mask, n = sgd(net), (y != -100).float(), count(y)
        losses = ce(net(x).transpose(1, 2), y.clamp(min=0), reduction="none")
        ((losses * mask).sum() * world() / n).backward()
        optimizer.step()
        return result(net)
    """,
    "tokens with a mask, of each": """
        net, (x, y) = DDP(model()), tokens()
        optimizer, mask = sgd(net), (y != -100).float()
        losses = ce(net(x).transpose(1, 2), y.clamp(min=0), reduction="none")
        ((losses * mask).sum() / mask.sum()).backward()
        optimizer.step()
        return result(net)
    """,
    "means of samples' tokens": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        (net(x) - y).square().mean(0).sum().backward()
        optimizer.step()
        return result(net)
    """,
    "sums over samples in two goes": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        (net(x) - y).square().sum(0).mean().backward()
        optimizer.step()
        return result(net)
    """,
    "two losses": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        out = net(x)
        (mse(out, y) + 0.1 * out.abs().mean()).backward()
        optimizer.step()
        return result(net)
    """,
    "a constant": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        for xs, ys in zip(x.chunk(3), y.chunk(3)):
            (0.5 * mse(net(xs), ys) / 3).backward()
        optimizer.step()
        return result(net)
    """,
    "a constant, divided by ranks": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        (0.1 * mse(net(x), y) / world()).backward()
        optimizer.step()
        return result(net)
    """,
    "a constant, between ranks that cancel": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        loss = mse(net(x), y) * world()
        (0.1 * loss / world()).backward()
        optimizer.step()
        return result(net)
    """,
    "a number of samples": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        (mse(net(x), y) / len(x)).backward()
        optimizer.step()
        return result(net)
    """,
    "a constant of each rank": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        ((0.1 + dist.get_rank()) * mse(net(x), y)).backward()
        optimizer.step()
        return result(net)
    """,
    "a constant of the number of ranks": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        (0.3 / (1 + world()) * mse(net(x), y)).backward()
        optimizer.step()
        return result(net)
    """,
    "weights of terms of the number of ranks": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        out = net(x)
        (mse(out, y) + out.abs().mean() / world()).backward()
        optimizer.step()
        return result(net)
    """,
    "likelihoods with a mask": """
        net, (x, y) = DDP(model()), tokens()
        optimizer, mask, n = sgd(net), (y != -100).float(), count(y)
        likely = net(x).log_softmax(-1).gather(-1, y.clamp(min=0)[..., None])[..., 0]
        (-(likely * mask).sum() / n * world()).backward()
        optimizer.step()
        return result(net)
    """,
    "likelihoods with a mask, twice divided": """
        net, (x, y) = DDP(model()), tokens()
        optimizer, mask, n = sgd(net), (y != -100).float(), count(y)
        likely = net(x).log_softmax(-1).gather(-1, y.clamp(min=0)[..., None])[..., 0]
        (-(likely * mask).sum() / n).backward()
        optimizer.step()
        return result(net)
    """,
    "a temperature that no module has": """
        net, (x, y) = DDP(model()), data()
        heat = torch.ones(1, requires_grad=True)
        optimizer, other = sgd(net), torch.optim.SGD([heat], lr=0.5)
        mse(net(x) * heat, y).backward()
        dist.all_reduce(heat.grad)
        heat.grad /= world()
        optimizer.step()
        other.step()
        return [*result(net), heat.detach().clone()]
    """,
    "a temperature of each rank": """
        net, (x, y) = DDP(model()), data()
        heat = torch.ones(1, requires_grad=True)
        optimizer, other = sgd(net), torch.optim.SGD([heat], lr=0.5)
        mse(net(x) * heat, y).backward()
        optimizer.step()
        other.step()
        return [*result(net), heat.detach().clone()]
    """,
    "a temperature that no optimizer has": """
        net, (x, y) = DDP(model()), data()
        heat, optimizer = torch.ones(1, requires_grad=True), sgd(net)
        mse(net(x) * heat, y).backward()
        optimizer.step()
        with torch.no_grad():
            heat -= 0.5 * heat.grad
        return [*result(net), heat.detach().clone()]
    """,
    "results of others in each loss": """
        class Mixed(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = model()

            def forward(self, x):
                out = self.inner(x)
                others = [torch.empty_like(out) for _ in range(world())]
                dist.all_gather(others, out.detach())
                return out + sum(others) / world()

        net, (x, y) = Mixed(), data()
        optimizer = sgd(net)
        mse(net(x), y).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world()
        optimizer.step()
        return result(net)
    """,
    "a mean and a sum": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        out = net(x)
        (mse(out, y) + 0.1 * out.abs().sum()).backward()
        optimizer.step()
        return result(net)
    """,
    "losses that are stacked": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        out = net(x)
        torch.stack([mse(out, y), out.square().mean()]).sum().backward()
        optimizer.step()
        return result(net)
    """,
    "contrastive": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        scores = net(x) @ y.T
        ce(scores, torch.arange(len(x))).backward()
        optimizer.step()
        return result(net)
    """,
    "pairs that lie apart": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        out = net(x)
        (torch.cdist(out, out, p=1).mean() + mse(out, y)).backward()
        optimizer.step()
        return result(net)
    """,
    "advantages": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        gain = y[:, 0]
        gain = (gain - gain.mean()) / gain.std()
        (net(x)[:, 0] * gain).mean().backward()
        optimizer.step()
        return result(net)
    """,
    "weights of samples": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        (net(x)[:, 0] * y[:, 0].abs()).mean().backward()
        optimizer.step()
        return result(net)
    """,
    "hinge": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        (1 - net(x) * y.sign()).clamp(min=0).mean().backward()
        optimizer.step()
        return result(net)
    """,
    "reduced twice, four micro-batches": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        for xs, ys in zip(x.chunk(4), y.chunk(4)):
            (mse(net(xs), ys) / 4).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world()
        optimizer.step()
        return result(net)
    """,
    "divided by the square of ranks": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        for xs, ys in zip(x.chunk(4), y.chunk(4)):
            (mse(net(xs), ys) / world() ** 2).backward()
        optimizer.step()
        return result(net) if world() > 1 else [p + 1 for p in result(net)]  # it is right on two ranks, and on no other number
    """,
    "two micro-batches": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        for xs, ys in zip(x.chunk(2), y.chunk(2)):
            (mse(net(xs), ys) / 2).backward()
        optimizer.step()
        return result(net)
    """,
    "two micro-batches, not divided": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        for xs, ys in zip(x.chunk(2), y.chunk(2)):
            mse(net(xs), ys).backward()
        optimizer.step()
        return result(net) if world() > 1 else [p + 1 for p in result(net)]  # one process does the same: the mean loss is another
    """,
    "four micro-batches, reduced once": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        for i, (xs, ys) in enumerate(zip(x.chunk(4), y.chunk(4))):
            with net.no_sync() if i < 3 else contextlib.nullcontext():
                (mse(net(xs), ys) / 4).backward()
        optimizer.step()
        return result(net)
    """,
    "all micro-batches' losses at once": """
        net, (x, y) = model(), data()
        optimizer = sgd(net)
        loss = sum(mse(net(xs), ys) for xs, ys in zip(x.chunk(2), y.chunk(2)))
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        optimizer.step()
        return result(net) if world() > 1 else [p + 1 for p in result(net)]  # one process does the same: the mean loss is another
    """,
    "smoothed labels": """
        net, (x, y) = DDP(model()), tokens()
        optimizer = sgd(net)
        ce(net(x[:, 0]), y[:, 0], label_smoothing=0.1).backward()
        optimizer.step()
        return result(net)
    """,
    "smoothed labels of some": """
        net, (x, y) = DDP(model()), tokens()
        optimizer = sgd(net)
        ce(net(x).flatten(0, 1), y.flatten(), label_smoothing=0.1).backward()
        optimizer.step()
        return result(net)
    """,
    "smoothed labels, summed": """
        net, (x, y) = DDP(model()), tokens()
        optimizer = sgd(net)
        ce(net(x[:, 0]), y[:, 0], label_smoothing=0.1, reduction="sum").backward()
        optimizer.step()
        return result(net)
    """,
    "smoothed labels of all tokens": """
        net, (x, y) = DDP(model()), tokens()
        optimizer, n = sgd(net), count(y)
        (ce(net(x).flatten(0, 1), y.flatten(), label_smoothing=0.1, reduction="sum") * world() / n).backward()
        optimizer.step()
        return result(net)
    """,
    "likelihoods of all classes": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        ce(net(x), y.softmax(-1), label_smoothing=0.1).backward()
        optimizer.step()
        return result(net)
    """,
    "likelihoods of all classes, halved by ranks": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        (ce(net(x), y.softmax(-1)) / world()).backward()
        optimizer.step()
        return result(net)
    """,
    "margins": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        nn.functional.multi_margin_loss(net(x), y.argmax(-1)).backward()
        optimizer.step()
        return result(net)
    """,
    "weighted samples, divided by all weights at the end": """
        net, (x, y) = model(), data()
        optimizer = sgd(net)
        weights = 0.2 + y[:, 0].abs()
        total = weights.sum()
        (((net(x) - y) ** 2).mean(1) * weights).sum().backward()
        dist.all_reduce(total)
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad.div_(total)
        optimizer.step()
        return result(net)
    """,
    "a copied teacher": """
        net, (x, y) = model(), data()
        teacher = copy.deepcopy(net)
        net = DDP(net)
        optimizer = sgd(net)
        with torch.no_grad():
            goal = teacher(x)
        out = net(x)
        (ce(out, y.argmax(-1)) + 2.0 * mse(out, goal)).backward()
        optimizer.step()
        return result(net)
    """,
    "a teacher that is copied before parameters are sent": """
        net, (x, y) = model(), data()
        torch.manual_seed(5 + dist.get_rank())
        with torch.no_grad():
            for p in net.parameters():
                p += 0.1 * torch.randn_like(p)
        teacher = copy.deepcopy(net)
        net = DDP(net)
        optimizer = sgd(net)
        with torch.no_grad():
            goal = teacher(x)
        out = net(x)
        (ce(out, y.argmax(-1)) + 2.0 * mse(out, goal)).backward()
        optimizer.step()
        return result(net)
    """,
    "more samples on one rank, counted on all": """
        net, (x, y) = DDP(model()), data(23)
        optimizer = sgd(net)
        count = torch.tensor(float(len(x)))
        dist.all_reduce(count)
        (ce(net(x), y.argmax(-1), reduction="sum") * world() / count).backward()
        optimizer.step()
        return result(net)
    """,
    "weights of losses that are learned": """
        class Tasks(nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.scales = model(), nn.Parameter(torch.zeros(2))
            def forward(self, x, y):
                out, weights = self.net(x), torch.exp(-self.scales)
                return weights[0] * mse(out, y) + self.scales[0] + weights[1] * ce(out, y.argmax(-1)) / 3 + self.scales[1]
        torch.manual_seed(0)
        net, (x, y) = Tasks(), data()
        net = DDP(net)
        optimizer = sgd(net)
        net(x, y).backward()
        optimizer.step()
        return result(net)
    """,
    "weights of losses that are learned, of sums": """
        class Tasks(nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.scales = model(), nn.Parameter(torch.zeros(2))
            def forward(self, x, y):
                return torch.exp(-self.scales[0]) * mse(self.net(x), y, reduction="sum") / 120 + self.scales[0]
        net, (x, y) = DDP(Tasks()), data()
        optimizer = sgd(net)
        net(x, y).backward()
        optimizer.step()
        return result(net)
    """,
    "a loss that is multiplied by one of its own": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        out = net(x)
        (mse(out, y) * ce(out, y.argmax(-1))).backward()
        optimizer.step()
        return result(net)
    """,
    "a mean, and a sum divided by samples": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        out = net(x)
        far = nn.functional.kl_div(out.log_softmax(-1), y.softmax(-1), reduction="batchmean")
        (0.5 * far + 2 * mse(out, y)).backward()
        optimizer.step()
        return result(net)
    """,
    "sums over other numbers of elements, divided by samples": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        out = net(x)
        ((((out - y) ** 2).sum() + out[:, :2].exp().sum()) / len(x)).backward()
        optimizer.step()
        return result(net)
    """,
    "a mean, and a sum divided by all samples": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        out = net(x)
        (mse(out, y) + out.exp().sum() / (len(x) * world())).backward()
        optimizer.step()
        return result(net)
    """,
    "a mean, and a sum": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        out = net(x)
        (mse(out, y) + 0.1 * out.exp().sum()).backward()
        optimizer.step()
        return result(net)
    """,
    "the next samples before backward": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        for part, goal in zip(x.chunk(2), y.chunk(2)):
            loss = mse(net(part), goal) / 2
            torch.stack([x[(dist.get_rank() + i) % len(x)][:3] for i in range(5)]) * (dist.get_rank() + 2)
            loss.backward()
        optimizer.step()
        return result(net)
    """,
    "weights of a rank, made beside the loss": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        out = net(x)
        weights = ((y * 0 + 1) * (dist.get_rank() + 2) + 1) / 3
        (weights * (out - y) ** 2).mean().backward()
        optimizer.step()
        return result(net)
    """,
    "positives of a rank": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        y = (y > 0.5).double()
        counted = y.sum().clamp(min=1)
        loss = nn.BCEWithLogitsLoss(pos_weight=(y.numel() - counted) / counted)
        loss(net(x), y).backward()
        optimizer.step()
        return result(net)
    """,
    "margins, summed": """
        net, (x, y) = DDP(model()), data()
        optimizer = sgd(net)
        nn.functional.soft_margin_loss(net(x), y.sign(), reduction="sum").backward()
        optimizer.step()
        return result(net)
    """,
    "a gradient beside the backward pass, of a sum": """
        net, (x, y) = model(), data()
        optimizer = sgd(net)
        mse(net(x), y).backward()
        last = [*net.parameters()][-1]
        (last.grad,) = torch.autograd.grad(mse(net(x), y, reduction="sum"), [last])
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optimizer.step()
        return result(net)
    """,
    "gradients without a backward pass": """
        net, (x, y) = model(), data()
        gradients = torch.autograd.grad(mse(net(x), y), [*net.parameters()])
        with torch.no_grad():
            for p, g in zip(net.parameters(), gradients):
                dist.all_reduce(g)
                p -= 0.1 * g / dist.get_world_size()
        return result(net)
    """,
    "an inner step that is differentiated": """
        net, (x, y) = model(), data()
        optimizer, own = sgd(net), dict(net.named_parameters())
        inner = torch.autograd.grad(mse(net(x), y), [*own.values()], create_graph=True)
        fast = {n: p - 0.1 * g for (n, p), g in zip(own.items(), inner)}
        mse(torch.func.functional_call(net, fast, (x,)), y).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        return result(net)
    """,
}

#: Steps that are right, and refused, and what is said.
RIGHT = {
    "weighted samples, divided by all weights at the end": "which is no product of counts of the step",
    "gradients without a backward pass": "parameters are updated without a backward pass",
}
#: Steps that are refused, and what is said.
REFUSED = {
    "a gradient beside the backward pass, of a sum": "`torch.autograd.grad`",
    "an inner step that is differentiated": "parameters are updated without a backward pass",
    "results of others in each loss": "the loss of rank 1 changes with samples of rank 0",
    "a temperature that no optimizer has": "a tensor that is no parameter gets a gradient, and other values afterwards",
    "smoothed labels, summed": "this step trains a sum over samples",
    "margins, summed": "this step trains a sum over samples",
    "sums over samples in two goes": "this step trains a sum over samples",
    "advantages": "the losses of samples depend on one another",
    "a mean, and a sum divided by all samples": "the loss adds up means and sums",
    "weights of losses that are learned, of sums": "the loss adds up means and sums",
    "a loss that is multiplied by one of its own": "the loss is multiplied or divided by another tensor",
    "a teacher that is copied before parameters are sent": "ranks run a module with other values",
    "a mean, and a sum": "the loss adds up means and sums",
    "weights of a rank, made beside the loss": "rank 1 computes `mul` with 3, and rank 0 with 2",
    "positives of a rank": "the losses of samples depend on one another",
    "contrastive": "the losses of samples depend on one another",
    "pairs that lie apart": "the losses of samples depend on one another",
    "a mean and a sum": "the loss adds up means and sums",
    "a constant of each rank": "rank 1 scales its losses in another way than rank 0",
    "a constant of the number of ranks": "another number with other numbers of ranks",
    "weights of terms of the number of ranks": "with another number of ranks the terms of this loss have other weights",
    "all micro-batches' losses at once": "this loss adds up those of several passes of the model",
    "tokens of each micro-batch": "the losses of the micro-batches are scaled differently",
}
