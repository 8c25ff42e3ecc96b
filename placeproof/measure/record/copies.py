"""Follows a rank beyond its step, and keeps what it has of each parameter: where copies part, that is a witness, whatever made them part.

Kept are values as gradients are made of them: so what a script sends between an update and the next forward is there already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from placeproof.measure.record.digests import digest
from placeproof.measure.record.exchange import Exchanged
from placeproof.measure.record.follow import Follower, OverError
from placeproof.measure.record.frames import WRAPPERS, within
from placeproof.measure.record.nodes import ZERO
from placeproof.measure.record.recording import Copy, Kept, Recording
from placeproof.measure.record.shadow import local
from placeproof.measure.record.trail import Trail

#: Elements of a parameter that are kept, in equal distances; and for how many steps' backward passes.
_ELEMENTS = 1024
_STEPS = 3


class Copies(Follower):
    """A follower that lets the script go on after the step, and writes down parameters until two more steps are over."""

    def __init__(self, recording: Recording, script: Path, step: int, trail: Trail) -> None:
        super().__init__(recording, script, step, trail)
        self.kept = recording.kept = Kept()
        self.now: dict[int, Copy] = {}
        self.passes = self.depth = 0

    @property
    def seen(self) -> bool:
        """Whether what was asked for was seen, so that the script may fail: another rank that has ended is missed."""
        return bool(self.recording.turns)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count backward passes, also after the step."""
        backward = torch.autograd.backward

        def counted(*args: Any, **kwargs: Any) -> None:
            self.depth += 1
            try:
                backward(*args, **kwargs)
            finally:
                self.depth -= 1
            if not self.depth:
                self._passed_one()

        with mock.patch.object(torch.autograd, "backward", counted):
            yield

    def _passed_one(self) -> None:
        self.kept.passes.append(self.now)
        self.now, self.passes = {}, self.passes + 1
        if self.frozen and self.passes > _STEPS * max(self.kept.step, 1):
            raise OverError

    def returned(self) -> None:
        """The script has come to its end: what parameters are then."""
        with _disable_current_modes():
            for tensor in self.leaves.values():
                if len(states := self.read[id(tensor)]) == 1 and _is_plain(tensor):
                    self.kept.end[min(states)] = _copy(tensor, None)

    def _made(self, tensor: Tensor, gradient: Tensor) -> None:
        if len(states := self.read[id(tensor)]) == 1 and _is_plain(tensor) and gradient.layout == torch.strided:
            with _disable_current_modes():
                self.now[min(states)] = _copy(tensor, gradient)
        super()._made(tensor, gradient)

    def before_update(self, parameters: Sequence[Tensor], scale: Fraction | None = None) -> None:
        """An optimizer begins its step."""
        if not self.frozen:
            super().before_update(parameters, scale)

    def after_update(self) -> None:
        """An optimizer has ended its step."""
        if not self.frozen or self.optimizing:
            super().after_update()

    def end(self) -> None:
        """The step is over, and the script goes on."""
        if not self.frozen:
            self.kept.step = self.passes
        super().end()

    def _by_hand(self, parameter: int, term: int, rate: Fraction | None = None) -> None:
        super()._by_hand(parameter, term, rate)
        for index in self.nodes.states(parameter):
            self.kept.lines[index] = self.line()

    def _next_step(self) -> None:
        try:
            super()._next_step()
        except OverError:
            return
        if not self.frozen:
            self.kept.early |= self.kept.late
            self.kept.passes, self.passes = [], 0

    def _exchange(self, done: Exchanged) -> None:
        terms = {n for t in done.reads for n in self.shadows.terms(t) if n > ZERO and self.nodes.is_parameter(n)}
        if not within(WRAPPERS):
            (self.kept.late if self.recording.updates else self.kept.early).update(self.nodes.of_all(terms))
        super()._exchange(done)


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is whole, and there: what was gathered for one use may be freed."""
    there = local(tensor) is tensor and tensor.layout == torch.strided and tensor.untyped_storage().nbytes() > 0
    return there and tensor.is_floating_point()


def _copy(tensor: Tensor, gradient: Tensor | None) -> Copy:
    count = min(tensor.numel(), _ELEMENTS)
    places = torch.arange(count) * tensor.numel() // count

    def some(of: Tensor) -> np.ndarray:
        flat: np.ndarray = of.detach().reshape(-1)[places.to(of.device)].double().cpu().numpy().copy()
        return flat

    return Copy(
        digest=digest(tensor),
        shape=tuple(tensor.shape),
        rounding=float(torch.finfo(tensor.dtype).eps),
        places=places.numpy(),
        values=some(tensor),
        gradient=None if gradient is None else some(local(gradient)),
    )
