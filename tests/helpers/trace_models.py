"""What scripts do with models and loaders, as users write it. Each also runs in one process, on all samples: that says what is right."""

from __future__ import annotations

_CHECKPOINTED = """
    from torch.utils.checkpoint import checkpoint

    class Again(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = model()

        def forward(self, x):
            h = self.net[0](x)
            for layer in self.net[1:]:
                h = checkpoint(layer, h, use_reentrant=True)
            return h

    net, (x, y) = {}, data()
    optimizer = sgd(net)
    for xs, ys in zip(x.chunk(2), y.chunk(2)):
        (mse(net(xs), ys) / 2).backward()
    {}
    optimizer.step()
    return result(net)
"""
#: There are samples for two micro-batches of two ranks, and for one of four: three have not equally many.
_LOADED = """
    net, rank = DDP(model()), dist.get_rank()
    torch.manual_seed(7)
    x, y = torch.randn(24, 4), torch.randn(24, 5)
    optimizer, count = sgd(net), 4 // world()
    for xs, ys in list(zip(x.split(6), y.split(6)))[rank :: world()]:
        (mse(net(xs), ys) / {}).backward()
    {}
    optimizer.step()
    return result(net)
"""
#: A discriminator, and a generator of which nobody may have reduced the gradients.
_TWO = """
    both, x, y = (model(), model()), *data()
    first, second = both
    optimizers = [sgd(net) for net in both]
    loss = nn.functional.binary_cross_entropy_with_logits

    def step(net):
        if {reduced}:
            for p in net.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world()
        optimizers[both.index(net)].step()

    {body}
    return [t for net in both for t in result(net)]
"""
#: What the second one makes is told from samples in a pass of its own, as the tutorial of DCGAN does it.
_ADVERSARIES = """
    loss(first(y[:, :4]), torch.ones(len(y), 5)).backward()
    made = second(x)
    loss(first(made[:, :4].detach()), torch.zeros(len(x), 5)).backward()
    step(first)
    {}
    optimizers[1].zero_grad()
    loss(first(made[:, :4]), torch.ones(len(x), 5)).backward()
    step(second)
"""
_OTHER_LOSSES = """
    made = first(x)
    (mse(made, y){}).backward(retain_graph=True)
    ({}made.square().mean()).backward()
    step(first)
"""
_SLICES = """
    outs, ys = [first(xs) for xs in x.chunk(2)], y.chunk(2)
    for out, own in zip(outs, ys):
        (mse(out, own){}).backward()
    step(first)
"""
_FROZEN = "[p.requires_grad_(False) for p in first.parameters()]"


def _two(body: str, reduced: str = "True") -> str:
    return _TWO.format(reduced=reduced, body="\n    ".join(body.strip().splitlines()).replace("\n        ", "\n    "))


#: Each micro-batch's layer is another one.
_UNUSED = """
    net, (x, y) = model(), data()
    net = nn.ModuleList([nn.Linear(4, 5), nn.Linear(4, 5)])
    optimizer = sgd(net)
    for i in range(2):
        which = torch.arange(len(x)) // 2 % 2 == i
        (mse(net[i](x[which]), y[which]) / 2).backward()
        {}
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world()
    optimizer.step()
    return result(net)
"""
#: Rank 0 loads weights, before or after they are sent to all.
_LOADED_ON_0 = """
    net, (x, y) = model(), data()
    torch.manual_seed(1)
    other = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5))
    {}
    optimizer = sgd(net)
    mse(net(x), y).backward()
    optimizer.step()
    return result(net)
"""
_LOAD = "if dist.get_rank() == {}:\n        (net.module if hasattr(net, 'module') else net).load_state_dict(other.state_dict())"
_PENALTY = """
    net, (x, y) = model(), data()
    optimizer = sgd(net)
    for xs, ys in zip(x.chunk(2), y.chunk(2)):
        out = net(xs)
        ({}).backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= {}
    optimizer.step()
    return result(net)
"""
_OF_WEIGHTS = "0.01 * sum((p**2).sum() for p in net.parameters())"
BODIES = {
    "activations computed again": _CHECKPOINTED.format("DDP(Again())", "pass"),
    "activations computed again, never reduced": _CHECKPOINTED.format("Again()", "pass"),
    "samples for two ranks": _LOADED.format("count", "pass"),
    "samples for two ranks, divided twice": _LOADED.format("count", "[p.grad.div_(world()) for p in net.parameters()]"),
    "adversaries": _two(_ADVERSARIES.format("")),
    "adversaries, the second never reduced": _two(_ADVERSARIES.format(""), "net is first"),
    "adversaries, the first never reduced": _two(_ADVERSARIES.format(""), "net is second"),
    "adversaries, the first frozen": _two(_ADVERSARIES.format(_FROZEN)),
    "adversaries, the first frozen, the second never reduced": _two(_ADVERSARIES.format(_FROZEN), "net is first"),
    "two losses of one run": _two(_OTHER_LOSSES.format("", "0.3 * ")),
    "two losses of one run, never reduced": _two(_OTHER_LOSSES.format("", "0.3 * "), "False"),
    "two losses of one run, of ranks": _two(_OTHER_LOSSES.format(" / world()", "")),
    "micro-batches that run before all backward passes": _two(_SLICES.format(" / 2")),
    "micro-batches that run before all backward passes, undivided": _two(_SLICES.format(" * (1 if world() > 1 else 0.5)")),
    "layers of some micro-batches": _UNUSED.format("pass"),
    "layers of some micro-batches, zeroed": _UNUSED.format("net.zero_grad(set_to_none=False) if world() > 1 and i == 0 else None"),
    "a penalty on weights": _PENALTY.format(f"(mse(out, ys) + {_OF_WEIGHTS}) / 2", "world()"),
    "a penalty on weights of each rank": _PENALTY.format(f"(mse(out, ys) / world() + {_OF_WEIGHTS}) / 2", "1"),
    "a term of each micro-batch": _PENALTY.format("mse(out, ys) / 2 + (0.1 if world() > 1 else 0.05) * out.square().mean()", "world()"),
    "weights of rank 0": _LOADED_ON_0.format(_LOAD.format(0) + "\n    net = DDP(net)"),
    "weights of rank 0, after they were sent": _LOADED_ON_0.format("net = DDP(net)\n    " + _LOAD.format(0)),
    "weights of rank 1, after they were sent": _LOADED_ON_0.format("net = DDP(net)\n    " + _LOAD.format("world() - 1")),
}
#: Those that run with every change; the rest at night.
FIRST = (
    "activations computed again",
    "adversaries, the first frozen",
    "adversaries, the first frozen, the second never reduced",
    "a penalty on weights",
    "a term of each micro-batch",
    "weights of rank 0",
)
REFUSED = {
    "a penalty on weights of each rank": "with another number of ranks the terms of this loss have other weights",
    "a term of each micro-batch": "some terms of this loss are multiplied by 1 / 2, and others not",
    "layers of some micro-batches, zeroed": "the update reads zeros",
    "two losses of one run, of ranks": "with another number of ranks the terms of this loss have other weights",
}
RIGHT: dict[str, str] = {}
