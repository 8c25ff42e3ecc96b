"""A regression by four layers, and a language model whose first and last weights are one, cut into stages. Each batch has eight samples."""

from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from toys.one_process import alone as _alone
from toys.one_process import mean_squares, parameters, token_mean

MICRO_BATCHES = 4
WIDTH, WORDS = 6, 11


class Part(nn.Module):
    """Layers by name, of which a stage has some."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleDict(layers)

    def forward(self, x):
        for layer in self.layers.values():
            x = layer(x)
        return x

    def whole(self):
        """The parameters of all stages, and of these of its own the copy that this rank has."""
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, parameters(self))
        return {name: p for part in [*parts, parameters(self)] for name, p in part.items()}


def build(seed=0):
    torch.manual_seed(seed)
    return Part({str(i): nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for i in range(4)})


def cut(model, index, count):
    """One of ``count`` stages."""
    names = list(model.layers)
    size = len(names) // count
    return Part({n: model.layers[n] for n in names[index * size : (index + 1) * size]})


def stage(index, count, seed=0):
    return cut(build(seed), index, count)


def batch(replica=0, step=0, size=8):
    g = torch.Generator().manual_seed(100 + 10 * step + replica)
    return torch.randn(size, WIDTH, generator=g), torch.randn(size, WIDTH, generator=g)


def build_tied(tied=True, deep=2):
    """The first layer and the last may share their weight."""
    torch.manual_seed(0)
    layers = {"embed": nn.Embedding(WORDS, WIDTH), **{str(i): nn.Linear(WIDTH, WIDTH) for i in range(deep)}}
    layers["head"] = nn.Linear(WIDTH, WORDS, bias=False)
    if tied:
        layers["head"].weight = layers["embed"].weight
    return Part(layers)


def stage_tied(index, count):
    """A stage with a copy of the shared weight at each end."""
    model = build_tied(deep=2 * count - 2)
    model.layers["head"].weight = nn.Parameter(model.layers["embed"].weight.detach().clone())
    return cut(model, index, count)


def tokens(replica=0, step=0, size=8):
    g = torch.Generator().manual_seed(100 + 10 * step + replica)
    return torch.randint(WORDS, (size, 5), generator=g), torch.randint(WORDS, (size, 5), generator=g)


def of_replicas(batch, degree):
    """The batches of the copies of a pipeline, one after another."""
    return lambda world, step: [torch.cat(parts) for parts in zip(*(batch(r, step) for r in range(degree)))]


def alone(replicas=1, **options):
    return _alone(build, of_replicas(batch, replicas), mean_squares, **options)


def alone_tied(deep=2, **options):
    """With the shared weight under both of its names."""
    reference = _alone(partial(build_tied, deep=deep), of_replicas(tokens, 1), token_mean, **options)

    def named(world):
        trained = reference(world)
        return {**trained, "layers.head.weight": trained["layers.embed.weight"]}

    return named


#: With another loss, of (model, x, y).
alone_with = partial(_alone, build, of_replicas(batch, 1))
alone_with_tokens = partial(_alone, partial(build_tied, False), of_replicas(tokens, 1))


def shares(index=None, count=4):
    """One of equal shares of a larger batch, or all of it."""
    x, y = batch(size=8 * count)
    return (x, y) if index is None else (x.chunk(count)[index], y.chunk(count)[index])


def alone_over_shares(count=4, **options):
    return _alone(build, lambda world, step: shares(count=count), mean_squares, **options)
