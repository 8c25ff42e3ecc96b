"""How backward passes of several ranks are parts of one: which tensors, and which gradients, each begins and ends with, and of which calls
of modules it is. What a rank sends and another one receives has the same digest on both, however it was sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from placeproof.measure.record.digests import by_row, digest
from placeproof.measure.record.makers import Makers
from placeproof.measure.record.recording import Call, Recording, Stretch
from placeproof.measure.record.shadow import local

#: About how many elements of a gradient are kept.
_ELEMENTS = 1024
#: Of a backward pass that begins with gradients.
UNJOINED = "backward begins with a gradient that no other rank made, or with several tensors"


class Stretches:
    """Follows which calls of modules tensors are results of. A storage that ends is forgotten when another one takes its place."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.makers = recording, Makers(recording)
        self._calls: dict[int, frozenset[int]] = {}
        self._within: dict[int, frozenset[int]] = {}
        self._leaves: dict[int, tuple[Tensor, str]] = {}
        self._pending = set[int]()
        self._count, self._open = 0, False

    def again(self) -> None:
        """Another step has begun with the last call."""
        self.recording.calls[:] = self.recording.calls[-1:]
        self.recording.stretches.clear()
        self.recording.sent.clear()

    # Forward.

    def call(self, values: Sequence[Any], line: int) -> Call:
        """A module is run that no other one runs, with these values."""
        with _disable_current_modes():
            tensors = [local(v) for v in values if isinstance(v, Tensor) and v.numel()]
            self._within[self._count] = self._of(tensors)
            self._received(tensors)
            given = [t for t in tensors if not t.requires_grad]
            rows = next((t.shape[0] for t in tensors if t.dim()), 0)
            kept = by_row([t for t in given if t.dim() and t.shape[0] == rows], rows)
            call = Call(
                number=self._count, given=tuple(map(digest, given)), rows=rows, by_row=kept, line=line, sources=self.makers.of(given)
            )
        self._count += 1
        self.recording.calls.append(call)
        return call

    def result(self, call: Call, values: Sequence[Any]) -> None:
        """What the module has returned."""
        with _disable_current_modes():
            made = [local(v) for v in values if isinstance(v, Tensor) and v.requires_grad]
            call.results = tuple(map(digest, made))
            for tensor in made:
                self._calls[_storage(tensor)] = self._within[call.number] | {call.number}

    def beside(self, result: Tensor, read: Sequence[Tensor]) -> None:
        """Outside of all modules something is made of a result, and of other tensors."""
        last = max(self._of((result,)), default=-1)
        for call in (c for c in self.recording.calls if c.number == last and c.rows and result.dim() and result.shape[0] % c.rows == 0):
            call.sources |= self.makers.of(read)
            call.by_row += by_row([t for t in read if t.dim() and t.shape[0] == result.shape[0] and t.numel() % call.rows == 0], call.rows)

    def read(self, read: Sequence[Tensor], made: Sequence[Tensor], *, inside: bool) -> None:
        """A function has read tensors, and made others; ``inside`` of a module."""
        with _disable_current_modes():
            self._received(read)
            results = [] if inside else [t for t in made if is_result(t)]
            calls = self._of(read) if results else frozenset[int]()
            for tensor in results:
                self._calls[_storage(local(tensor))] = calls

    def _of(self, tensors: Iterable[Tensor]) -> frozenset[int]:
        with _disable_current_modes():
            return frozenset[int]().union(*(self._calls.get(_storage(local(t)), ()) for t in tensors if is_result(t)))

    def sent(self, tensors: Iterable[Tensor], to: int) -> None:
        """These go to another rank."""
        with _disable_current_modes():
            self.recording.sent |= {(digest(t), to) for t in tensors if t.is_floating_point()}

    # Backward.

    def begin(self, roots: Sequence[Tensor], given: Sequence[Tensor | None]) -> str:
        """A backward pass begins, with gradients unless it is of a loss: why it is of none, empty where it is of one."""
        pairs = list(zip(roots, given, strict=True)) if given else []
        with _disable_current_modes():
            begun = [(t, g) for t, g in pairs if g is not None and not (g.numel() == 1 and float(g) == 1)]
            begins = tuple((digest(local(t)), digest(local(g))) for t, g in begun)
            losses = bool(begins) and any(t.requires_grad for t, g in pairs if not any(t is known for known, _ in begun))
            gradients = {name: _some(g) for (_, name), (_, g) in zip(begins, begun, strict=True)}
        self.recording.stretches.append(Stretch(calls=self._of(roots), begins=begins, losses=losses, gradients=gradients))
        self._open = True
        return UNJOINED if begins or len(roots) > 1 else ""

    def end(self) -> None:
        """The backward pass is over."""
        self._open = False

    def _received(self, read: Iterable[Tensor]) -> None:
        """What is no parameter and gets a gradient may have come from another rank."""
        for tensor in (t for t in read if t.requires_grad and not isinstance(t, nn.Parameter) and not is_result(t)):
            if id(tensor) not in self._leaves:
                tensor.register_hook(lambda gradient, tensor=tensor: self._ended(tensor, gradient))
            now = digest(local(tensor))
            self.recording.relabelled |= id(tensor) in self._pending and self._leaves[id(tensor)][1] != now
            self._pending.add(id(tensor))
            self._leaves[id(tensor)] = tensor, now

    def _ended(self, tensor: Tensor, gradient: Tensor | None) -> None:
        if not self._open or gradient is None:  # a function with a backward of its own may make none
            return
        with _disable_current_modes():
            was, stretch = self._leaves[id(tensor)][1], self.recording.stretches[-1]
            made = digest(local(gradient))
            stretch.ends.append((was, made))
            stretch.gradients[made] = _some(gradient)
            self._pending.discard(id(tensor))
            stretch.there[was] = digest(local(tensor))
            stretch.overwritten |= stretch.there[was] != was


def _some(gradient: Tensor) -> NDArray[np.float64]:
    flat = local(gradient).detach().reshape(-1)
    return flat[:: max(1, flat.numel() // _ELEMENTS)].double().cpu().numpy()


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def is_result(tensor: Tensor) -> bool:
    """Whether differentiation goes on behind a tensor. Of a view whose base was written since, PyTorch does not say."""
    try:
        return tensor.grad_fn is not None
    except RuntimeError:
        return True
