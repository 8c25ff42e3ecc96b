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
BODIES = {
    "activations computed again": _CHECKPOINTED.format("DDP(Again())", "pass"),
    "activations computed again, never reduced": _CHECKPOINTED.format("Again()", "pass"),
    "samples for two ranks": _LOADED.format("count", "pass"),
    "samples for two ranks, divided twice": _LOADED.format("count", "[p.grad.div_(world()) for p in net.parameters()]"),
}
#: Those that run with every change; the rest at night.
FIRST = ("activations computed again", "activations computed again, never reduced", "samples for two ranks")
REFUSED: dict[str, str] = {}
RIGHT: dict[str, str] = {}
