"""A training step with experts on ranks of their own, and the same step on one process: right, and with mistakes."""

from __future__ import annotations

EXPERTS = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

WORLD = 2
DEGREES = {"ep": 2}
TURNS = 3


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, sent, got, group):
        ctx.counts, ctx.group = (got, sent), group
        out = x.new_empty(sum(got), *x.shape[1:])
        dist.all_to_all_single(out, x.contiguous(), got, sent, group=group)
        return out

    @staticmethod
    def backward(ctx, dy):
        sent, got = ctx.counts
        dx = dy.new_empty(sum(got), *dy.shape[1:])
        dist.all_to_all_single(dx, dy.contiguous(), got, sent, group=ctx.group)
        return dx, None, None, None


def expert(number):
    torch.manual_seed(100 + number)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4))


class Layer(nn.Module):
    def __init__(self, own, group):
        super().__init__()
        self.router, self.group = nn.Linear(4, 2), group
        self.experts = nn.ModuleList(expert(i) for i in own)

    def sent(self, x, chosen):
        order, sent = chosen.argsort(stable=True), torch.bincount(chosen, minlength=2)
        got = torch.empty_like(sent)
        dist.all_to_all_single(got, sent, group=self.group)
        there, here = sent.tolist(), got.tolist()
        tokens = Exchange.apply(x[order], there, here, self.group)
        back = Exchange.apply(self.experts[0](tokens), here, there, self.group)
        return torch.zeros_like(x).index_copy(0, order, back)

    def forward(self, x):
        gate, chosen = self.router(x).softmax(-1).max(-1)
        if self.group is None:
            y = torch.stack([self.experts[i](x[n]) for n, i in enumerate(chosen.tolist())])
        else:
            y = self.sent(x, chosen)
        return x + gate[:, None] * y


def network(own, group):
    torch.manual_seed(0)
    inlet, outlet = nn.Linear(4, 4), nn.Linear(4, 3)
    return nn.Sequential(inlet, Layer(own, group), outlet)


def samples(seed):
    torch.manual_seed(seed)
    return torch.randn(36, 4), torch.randn(36, 3)


def passes(net, x, y):
    for xs, ys in zip(x.chunk(TURNS), y.chunk(TURNS)):
        (nn.functional.mse_loss(net(xs), ys) / TURNS).backward()


def train():
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", tuple(DEGREES.values()), mesh_dim_names=tuple(DEGREES))
    group, rank, world = mesh.get_group("ep"), dist.get_rank(), dist.get_world_size()
    place = mesh.get_local_rank("ep")
    net = network([place], group)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    passes(net, *samples(7 + rank))
    for name, p in net.named_parameters():
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        if "experts" not in name:
            dist.all_reduce(p.grad)
        elif "dp" in DEGREES:
            dist.all_reduce(p.grad, group=mesh.get_group("dp"))
        p.grad /= world
    optimizer.step()
    one = network([0, 1], None)
    by_rank = [samples(7 + r) for r in range(world)]
    for x, y in by_rank:
        passes(one, x, y)
    for p in one.parameters():
        p.data -= 0.1 * p.grad / world if p.grad is not None else 0
    there = {n.replace(f"experts.{place}", "experts.0"): p for n, p in one.named_parameters() if f"experts.{1 - place}" not in n}
    same = torch.tensor(float(all(torch.allclose(p, there[n], atol=1e-5) for n, p in net.named_parameters())))
    dist.all_reduce(same, dist.ReduceOp.MIN)
    return bool(same)
"""

#: What changes of a script are, and what comes of recording it: a verdict, or what is said where it is refused.
Changed = tuple[str, list[tuple[str, str]]]
_AGAIN = "backward does not give the derivative"
_OTHER = "ranks that are given the same samples do not compute the same"
#: Experts are called by their numbers among all ranks.
_NUMBERED = [
    ("nn.ModuleList(expert(i) for i in own)", "nn.ModuleDict({str(i): expert(i) for i in own})"),
    ("self.experts[0](tokens)", "next(iter(self.experts.values()))(tokens)"),
    ("self.experts[i](x[n])", "self.experts[str(i)](x[n])"),
    ('.replace(f"experts.{place}", "experts.0")', ""),
]
#: By name: those that train what one process trains.
RIGHT: dict[str, Changed] = {
    "as it is": ("proved", []),
    "copies of experts": ("proved", [('WORLD = 2\nDEGREES = {"ep": 2}', 'WORLD = 4\nDEGREES = {"dp": 2, "ep": 2}')]),
    "copies that are sent": (
        "proved",
        [
            (
                "    net = network([place], group)\n",
                (
                    "    net = network([place], group)\n"
                    "    for name, p in net.named_parameters():\n"
                    '        if "experts" not in name:\n'
                    "            p.data.mul_(1 + rank)\n"
                    "            dist.broadcast(p.data, 0)\n"
                ),
            )
        ],
    ),
    "numbered": ("proved", _NUMBERED),
    "numbered, of those that all ranks make": (
        "proved",
        [
            *_NUMBERED,
            ("str(i): expert(i) for i in own}", "str(i): made[i] for i in own}"),
            ("        self.experts =", "        made = [expert(i) for i in range(2)]\n        self.experts ="),
        ],
    ),
    "hooks that divide": (
        "proved",
        [
            ("        p.grad /= world\n", '        p.grad /= 1 if "experts" in name else world\n'),
            (
                "    passes(net, *samples(7 + rank))",
                (
                    "    for name, p in net.named_parameters():\n"
                    '        if "experts" in name:\n'
                    "            p.register_hook(lambda gradient: gradient / world)\n"
                    "    passes(net, *samples(7 + rank))"
                ),
            ),
        ],
    ),
    "torch's own exchange": (
        "proved",
        [
            ("Exchange.apply(x[order], there, here, self.group)", "all_to_all_single_autograd(x[order], here, there, self.group)"),
            (
                "Exchange.apply(self.experts[0](tokens), here, there, self.group)",
                "all_to_all_single_autograd(self.experts[0](tokens), there, here, self.group)",
            ),
            (
                "import torch\nimport torch.distributed as dist\n",
                (
                    "import torch\n"
                    "import torch.distributed as dist\n"
                    "from torch.distributed._functional_collectives import all_to_all_single_autograd\n"
                ),
            ),
        ],
    ),
}
#: Those that do not.
MISTAKES: dict[str, Changed] = {
    "copies of experts that are not reduced": (
        "refuted",
        [('WORLD = 2\nDEGREES = {"ep": 2}', 'WORLD = 4\nDEGREES = {"ep": 2, "copies": 2}')],
    ),
    "experts' gradients not divided": (
        "refuted",
        [("        p.grad /= world\n", '        p.grad /= world if "experts" not in name else 1\n')],
    ),
    "experts' gradients divided twice": (
        "refuted",
        [("        p.grad /= world\n", '        p.grad /= world if "experts" not in name else world * world\n')],
    ),
    "copies' gradients not divided": ("refuted", [("        p.grad /= world\n", '        p.grad /= world if "experts" in name else 1\n')]),
    "losses not divided": (
        "refuted",
        [
            (
                "(nn.functional.mse_loss(net(xs), ys) / TURNS)",
                "(nn.functional.mse_loss(net(xs), ys) / (TURNS if dist.is_initialized() and len(net[1].experts) > 1 else 1))",
            )
        ],
    ),
    "experts reduced like all others": ("refuted", [('if "experts" not in name:', "if name:")]),
    "numbered experts' gradients not divided": (
        "refuted",
        [*_NUMBERED, ("        p.grad /= world\n", '        p.grad /= world if "experts" not in name else 1\n')],
    ),
    "each rank's own gradient": (
        "they put gradients in other places",
        [
            (
                "            dist.all_reduce(p.grad)\n",
                (
                    "            places = torch.zeros(world, *p.shape)\n"
                    "            places[rank] = p.grad\n"
                    "            dist.all_reduce(places)\n"
                    "            p.grad = places[rank].clone()\n"
                ),
            )
        ],
    ),
    "another expert's gradient on one rank": (
        "rank 1 does something else with the gradient of `1.experts.0.0.weight`",
        [
            (
                "    optimizer.step()\n",
                (
                    "    one, _, other = net[1].experts[0]\n"
                    "    if rank == 1:\n"
                    "        one.weight.grad, other.weight.grad = (g.grad.t().clone() for g in (other.weight, one.weight))\n"
                    "    optimizer.step()\n"
                ),
            )
        ],
    ),
    "a copy that is not reduced": (
        "`2.bias` begins alike",
        [('if "experts" not in name:', 'if "experts" not in name and name != "2.bias":')],
    ),
    "nothing sent back in backward": (_AGAIN, [("dist.all_to_all_single(dx, dy.contiguous(), got, sent, group=ctx.group)", "dx.zero_()")]),
    "backward scaled": (_AGAIN, [("return dx, None", "return 2 * dx, None")]),
    "tokens to the wrong expert": (_OTHER, [("self.experts[0](tokens)", "self.experts[0](tokens.flip(0))")]),
    "tokens in the wrong order": (
        "the losses of samples depend on one another",
        [("index_copy(0, order, back)", "index_copy(0, order.flip(0), back)")],
    ),
    "another expert for each rank": (
        _OTHER,
        [("order, sent = chosen", "chosen = (chosen + dist.get_rank()) % 2\n        order, sent = chosen")],
    ),
    "room for some tokens only": (
        _OTHER,
        [
            (
                "        return torch.zeros_like(x).index_copy(0, order, back)",
                (
                    "        full = torch.arange(len(tokens)) < 3\n"
                    "        back = Exchange.apply(self.experts[0](tokens) * full[:, None], here, there, self.group)\n"
                    "        return torch.zeros_like(x).index_copy(0, order, back)"
                ),
            )
        ],
    ),
    "copies that differ": (
        "`0.weight` begins otherwise",
        [("    torch.manual_seed(0)\n    inlet", "    torch.manual_seed(dist.get_rank())\n    inlet")],
    ),
    "the same samples": ("refuted", [("*samples(7 + rank)", "*samples(7)")]),
    "an expert used once more, detached": (
        _AGAIN,
        [("self.experts[0](tokens)", "self.experts[0](tokens) + self.experts[0](tokens.detach())")],
    ),
    "another function in one micro-batch": (
        _OTHER,
        [
            (
                "y = self.sent(x, chosen)",
                'self.calls = getattr(self, "calls", 0) + 1\n            y = self.sent(x, chosen) * (2 if self.calls == 3 else 1)',
            )
        ],
    ),
}
#: The quick ones of each kind; all are recorded at night.
SHORT = (
    "as it is",
    "numbered, of those that all ranks make",
    "each rank's own gradient",
    "another expert's gradient on one rank",
    "experts' gradients not divided",
    "experts reduced like all others",
    "a copy that is not reduced",
    "nothing sent back in backward",
    "tokens to the wrong expert",
    "room for some tokens only",
)
