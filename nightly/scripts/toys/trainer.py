"""What transformers' Trainer is given: models that return their own loss, and sequences of which some targets are padding."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

from toys.one_process import alone as _alone


class Tiny(nn.Module):
    """Divides by the number of targets of the whole step, where it is told."""

    def __init__(self):
        super().__init__()
        self.emb, self.mid, self.head = nn.Embedding(11, 8), nn.Linear(8, 8), nn.Linear(8, 11, bias=False)

    def forward(self, input_ids, labels, num_items_in_batch=None, **kwargs):
        logits = self.head(torch.tanh(self.mid(self.emb(input_ids)))).flatten(0, 1)
        if num_items_in_batch is None:
            loss = F.cross_entropy(logits, labels.flatten(), ignore_index=-100)
        else:
            loss = F.cross_entropy(logits, labels.flatten(), ignore_index=-100, reduction="sum") / num_items_in_batch
        return {"loss": loss, "logits": logits}


class WithoutCount(Tiny):
    """Takes no number of targets."""

    def forward(self, input_ids, labels):
        return super().forward(input_ids, labels)


class IgnoringCount(Tiny):
    """Takes the number of targets among its options, and ignores it."""

    def forward(self, input_ids, labels, **kwargs):
        return super().forward(input_ids, labels)


def build(kind=Tiny):
    torch.manual_seed(0)
    return kind()


class Data(Dataset):
    """Sixteen sequences with ``valid(i)`` targets each."""

    def __init__(self, valid):
        self.valid = valid

    def __len__(self):
        return 16

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        x, y = torch.randint(0, 11, (6,), generator=g), torch.randint(0, 11, (6,), generator=g)
        y[self.valid(i) :] = -100
        return {"input_ids": x, "labels": y}


equal = Data(lambda i: 4)
unequal = Data(lambda i: 6 - (i * 3) % 5)


def _all(data):
    samples = [data[i] for i in range(len(data))]
    return [torch.stack([s[key] for s in samples]) for key in ("input_ids", "labels")]


def alone(data, **options):
    """What one process ends with: the mean over the targets of all sequences."""
    return partial(_alone, build, lambda world, step: _all(data), lambda model, x, y: model(x, y)["loss"])(**options)
