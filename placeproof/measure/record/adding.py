"""Functions with a backward of their own that add up what ranks give, as layers that are split do: what is given, and handed back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.tensor import DTensor

from placeproof.measure.record.digests import some
from placeproof.measure.record.recording import Added, Kept, Recording, Seen
from placeproof.measure.record.shadow import local, partial_over


class Adding:
    """Watches such functions. ``follows``: whether what is done belongs to the step; ``line``: of the script that is being run."""

    def __init__(self, recording: Recording, kept: Kept, follows: Callable[[], bool], line: Callable[[], int]) -> None:
        self.recording, self.kept, self.follows, self.line = recording, kept, follows, line

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch calls of functions with a backward of their own."""
        original = torch.autograd.Function.apply.__func__

        def apply(cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
            if not self.follows():
                return original(cls, *args, **kwargs)
            before, given = len(self.recording.events), [t for t in args if isinstance(t, Tensor)]
            values = some(given[0]) if len(given) == 1 and given[0].requires_grad else None
            out = original(cls, *args, **kwargs)
            done = [e for e in self.recording.events[before:] if e.group]
            if isinstance(out, Tensor) and out.grad_fn is not None:
                if not done:
                    self._adds_back(out, [t for t in given if t.requires_grad and not t.is_leaf])
                elif values is not None and len(done) == 1:
                    self._adds(done[0], given[0], values, out)
            return out

        with mock.patch.object(torch.autograd.Function, "apply", classmethod(apply)):
            yield

    def _adds_back(self, out: Tensor, given: Sequence[Tensor]) -> None:
        """Nothing was exchanged in forward: see whether backward adds up the gradient of something that is no parameter."""
        sizes, begun = {local(t).numel() for t in given}, list[int]()

        def done(*_: Any) -> None:
            for event in self.recording.events[begun[-1] :] if begun and self.follows() else ():
                if (event.kind, event.op) == ("all_reduce", "sum") and not event.states and event.numel in sizes:
                    self.kept.added_back.add(event.group)

        if sizes and out.grad_fn is not None:
            out.grad_fn.register_prehook(lambda _: begun.append(len(self.recording.events)))
            out.grad_fn.register_hook(done)

    def _adds(self, event: Seen, given: Tensor, values: NDArray[np.float64], out: Tensor) -> None:
        """One tensor was made of another one, and of what ranks exchanged: see what backward hands back."""
        unlike = local(given).shape != local(out).shape or given.dtype != out.dtype or partial_over(out)
        if (event.kind, event.op) != ("all_reduce", "sum") or event.states or unlike or out.grad_fn is None:
            return
        added = Added(
            group=event.group,
            line=self.line(),
            turn=len(self.recording.turns),
            declared=isinstance(out, DTensor),
            shape=tuple(local(out).shape),
            rounding=float(torch.finfo(out.dtype).eps),
            given=values,
            made=some(out),
        )
        self.kept.added.append(added)
        passes = list[int]()

        def handed(gradients: tuple[Any, ...], _: Any) -> None:
            passes.append(len(self.recording.turns))
            own = [g for g in gradients if isinstance(g, Tensor)]
            whole = len(own) == 1 and not partial_over(own[0]) and local(own[0]).shape == added.shape
            once = self.follows() and passes == [added.turn + 1]  # in the pass after this forward, and in no other
            added.handed, added.next = (some(own[0]) if whole and once else None), len(self.recording.events)

        out.grad_fn.register_hook(handed)
