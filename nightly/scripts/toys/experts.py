"""A layer with one expert per rank, by hand: the first half of a batch goes to expert 0, the second to expert 1."""

from functools import partial

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as DF
from torch import nn

from toys.one_process import alone as _alone
from toys.one_process import mean_squares
from toys.one_process import whole as of_all_ranks
from toys.regression import batch


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(6, 6)
        self.experts = nn.ModuleList([nn.Linear(6, 6) for _ in range(2)])
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        h = self.inp(x)
        if len(self.experts) == 1:
            sent = DF.all_to_all_single(torch.empty_like(h), h)
            e = torch.tanh(self.experts[0](sent))
            h = h + DF.all_to_all_single(torch.empty_like(e), e)
        else:
            hs = h.view(-1, 2, 2, 6)
            h = h + torch.stack([torch.tanh(self.experts[i](hs[:, i])) for i in range(2)], 1).view_as(h)
        return self.out(h)

    def whole(self):
        """Parameters by name, of all experts."""
        whole = {}
        for name, p in self.named_parameters():
            t = p.detach().clone()
            if "experts" in name:
                of_ranks = [torch.empty_like(t) for _ in range(2)]
                dist.all_gather(of_ranks, t)
                whole.update({name.replace("experts.0", f"experts.{i}"): of_ranks[i] for i in range(2)})
            else:
                whole[name] = t
        return whole


def build():
    torch.manual_seed(0)
    return MoE()


def split(model):
    model.experts = nn.ModuleList([model.experts[dist.get_rank()]])
    return model


alone = partial(_alone, build, of_all_ranks(batch), mean_squares)
