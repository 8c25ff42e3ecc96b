"""What stays gathered between two uses, and what is gathered ahead: DeepSpeed's third stage, as it decides once it has seen a step.

Source: deepspeed==0.19.8:deepspeed/runtime/zero/partitioned_param_coordinator.py, ``_fetch_sub_module_impl`` and ``__params_to_release``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: The names of the weights that a module holds itself.
Module = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Numbers of elements: ``prefetch`` at most are gathered ahead, while less than ``live`` are there; what is used again before
    ``reuse`` others is not dropped.
    """

    prefetch: int
    live: int
    reuse: int


@dataclass
class Coordinator:
    """Follows one step over the modules in the order in which they are used, forward and backward.

    ``sizes``: elements of every weight; ``whole``: weights that every device always has. ``calls``: what each gather is about, by phase.
    """

    order: Sequence[Module]
    sizes: Mapping[str, int]
    whole: frozenset[str]
    limits: Limits
    calls: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._there = set(self.whole)
        self._queue = deque((name, step) for step, module in enumerate(self.order) for name in module)
        self._noted = dict.fromkeys(self.sizes, -1)
        self._live = self._step = 0

    def fetch(self, module: Module, phase: str) -> None:
        """A module is about to be used: gather what is missing of it, then what comes next."""
        self._gather([name for name in module if name not in self._there], phase)
        missing = {name for name in module if self._noted[name] < self._step}
        passed: set[str] = set()
        while self._queue and len(passed) < len(missing):
            name, self._noted[name] = self._pop()
            passed.add(name)
        self._ahead(phase)
        self._step += 1

    def _pop(self) -> tuple[str, int]:
        return self._queue.popleft()

    def _ahead(self, phase: str) -> None:
        limit = min(self.limits.live - self._live, self.limits.prefetch)
        ahead: list[str] = []
        while self._queue and self.limits.prefetch > 0 and sum(self.sizes[name] for name in ahead) < limit:
            name, step = self._queue.popleft()
            self._noted[name] = max(self._noted[name], step)
            if name not in self._there and name not in ahead:
                ahead.append(name)
        self._gather(ahead, phase)

    def _gather(self, names: list[str], phase: str) -> None:
        if names:
            self.calls.append((phase, tuple(names)))
            self._there.update(names)
            self._live += sum(self.sizes[name] for name in names)

    def release(self, module: Module) -> None:
        """A module was used: drop what is not used again soon, and was not passed over as being there already."""
        drop = {name for name in module if name not in self.whole and self._noted[name] <= self._step}
        passed = 0
        for later in self.order[self._step :]:
            if passed >= self.limits.reuse:
                break
            drop.difference_update(later)
            passed += sum(self.sizes[name] for name in later)
        for name in drop & self._there:
            self._there.discard(name)
            self._live -= self.sizes[name]


def gathers(
    root: Module, forward: Sequence[Module], backward: Sequence[Module], sizes: Mapping[str, int], whole: frozenset[str], limits: Limits
) -> Coordinator:
    """One step over a root module that uses others: in the order of forward, and in that of backward. A module without weights counts: more
    may be gathered ahead when its turn comes. The root drops nothing after backward, because its input needs no gradient."""
    seen = Coordinator([root, *forward, root, *backward], sizes, whole, limits)
    seen.fetch(root, "forward")
    for module in forward:
        seen.fetch(module, "forward")
        seen.release(module)
    seen.release(root)
    seen.fetch(root, "backward")
    for module in backward:
        seen.fetch(module, "backward")
        seen.release(module)
    return seen
