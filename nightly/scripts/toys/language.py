"""A small language model over sequences of six tokens, of which some targets are padding."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from toys.one_process import alone as _alone
from toys.one_process import token_mean, whole


class Tiny(nn.Module):
    def __init__(self, tied=False):
        super().__init__()
        self.emb = nn.Embedding(11, 8)
        self.mid = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 11, bias=False)
        if tied:
            self.head.weight = self.emb.weight

    def forward(self, idx):
        h = self.emb(idx)
        h = h + torch.cumsum(F.gelu(self.mid(h)), 1)
        return self.head(self.norm(h))


def build(tied=False):
    torch.manual_seed(0)
    return Tiny(tied)


def _tokens(rank, step):
    g = torch.Generator().manual_seed(100 + 10 * step + rank)
    return torch.randint(0, 11, (4, 6), generator=g), torch.randint(0, 11, (4, 6), generator=g)


def batch(rank, step=0):
    """Padded targets are -100; ranks have different numbers of valid tokens."""
    x, y = _tokens(rank, step)
    for i in range(4):
        y[i, 6 - (i + rank * 2) % 5 :] = -100
    return x, y


def equal_batch(rank, step=0):
    """All ranks have the same number of valid tokens."""
    x, y = _tokens(rank, step)
    for i in range(4):
        y[i, 6 - i :] = -100
    return x, y


alone = partial(_alone, build, whole(batch), token_mean)
alone_equal = partial(_alone, build, whole(equal_batch), token_mean)
alone_tied = partial(_alone, partial(build, tied=True), whole(equal_batch), token_mean)
#: With another loss, of (model, x, y).
alone_with = partial(_alone, build, whole(batch))
alone_equal_with = partial(_alone, build, whole(equal_batch))
