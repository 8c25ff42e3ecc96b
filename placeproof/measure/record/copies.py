"""Follows a rank beyond its step, and keeps what it has of each parameter: where copies part, that is a witness, whatever made them part.

Kept are values as gradients are made of them: so what a script sends between an update and the next forward is there already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from placeproof.measure.record.adding import Adding
from placeproof.measure.record.digests import digest, places, some
from placeproof.measure.record.exchange import Exchanged, read_exchange
from placeproof.measure.record.follow import Follower, OverError
from placeproof.measure.record.frames import WRAPPERS, is_ours, lines_of, within
from placeproof.measure.record.moves import MOVES
from placeproof.measure.record.nodes import ZERO
from placeproof.measure.record.recording import Copy, Instead, Kept, Recording
from placeproof.measure.record.shadow import flat, local, storage, written
from placeproof.measure.record.trail import Trail
from placeproof.measure.recorder import NAMESPACES

#: For how many steps' backward passes parameters are kept.
_STEPS = 3
#: What functions make of a tensor that tells nothing of its elements, or is a tensor again.
_SHOWN = (Tensor, torch.Size, torch.dtype, torch.device, torch.layout, torch.ScriptObject, int, str, type(None))
#: What reads nothing of what it is given.
_WRITING = frozenset(("empty_like", "fill", "zero", "zeros_like"))
#: What a script may decide by.
_LOOKING = frozenset(("_local_scalar_dense", "equal", "is_nonzero", "nonzero"))


class Copies(Follower):
    """A follower that lets the script go on after the step, and writes down parameters until two more steps are over. ``keep``: for
    backward, what was received as forward has read it."""

    def __init__(self, recording: Recording, script: Path, step: int, trail: Trail, instead: Instead, *, keep: bool = False) -> None:
        super().__init__(recording, script, step, trail)
        self.stretches.makers.contents, self.stretches.makers.instead = {}, instead
        self.keep, self.received = keep, set[int]()
        self.kept = recording.kept = Kept()
        self.now: dict[int, Copy] = {}
        self.places: dict[int, tuple[Tensor, frozenset[int]]] = {}
        self.shared: frozenset[int] = frozenset()
        self.between: set[int] = set()  # parameters that are sent, and read by no forward of the step after that
        self.passes = self.depth = 0
        self.adding = Adding(recording, self.kept, lambda: self.begun and not self.frozen, self.line)

    @property
    def seen(self) -> bool:
        """Whether what was asked for was seen, so that the script may fail: another rank that has ended is missed."""
        return bool(self.recording.turns)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count backward passes, also after the step."""
        backward = torch.autograd.backward

        def counted(*args: Any, **kwargs: Any) -> None:
            self.kept.stacks += [] if self.depth else [lines_of(self.script)]
            self.depth += 1
            try:
                backward(*args, **kwargs)
            finally:
                self.depth -= 1
            if not self.depth:
                self._passed_one()

        with mock.patch.object(torch.autograd, "backward", counted), self.adding.watching():
            yield

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Save for backward what was received as it is now, if that was asked for."""

        def packed(tensor: Tensor) -> Tensor:
            with _disable_current_modes():
                return tensor.detach().clone() if storage(tensor) in self.received else tensor

        if not self.keep:
            yield
            return
        with torch.autograd.graph.saved_tensors_hooks(packed, lambda tensor: tensor):
            yield

    def _passed_one(self) -> None:
        self.kept.passes.append(self.now)
        self.now, self.passes = {}, self.passes + 1
        if self.frozen and self.passes > _STEPS * max(self.kept.step, 1):
            self.kept.aside.after = self._digests()
            raise OverError

    def returned(self) -> None:
        """The script has come to its end: what parameters are then."""
        self.kept.aside.after = self._digests()
        with _disable_current_modes():
            for tensor in self.leaves.values():
                if len(states := self.read[id(tensor)]) == 1 and _is_plain(tensor):
                    self.kept.end[min(states)] = _copy(tensor, None)

    def _made(self, tensor: Tensor, gradient: Tensor) -> None:
        if len(states := self.read[id(tensor)]) == 1 and _is_plain(tensor) and gradient.layout == torch.strided:
            with _disable_current_modes():
                self.now[min(states)] = _copy(tensor, gradient)
        super()._made(tensor, gradient)

    def leaf(self, tensor: Tensor) -> None:
        """Forward reads a tensor of which a gradient will be made."""
        super().leaf(tensor)
        if self.frozen:
            return
        self.kept.early |= self.between
        self.between.clear()
        with _disable_current_modes():
            if _is_plain(tensor):
                known, states = self.places.setdefault(storage(tensor), (tensor, self.read[id(tensor)]))
                self.shared |= frozenset() if known is tensor else states | self.read[id(tensor)]

    def begin(self, model: nn.Module) -> None:
        """The model is run for the first time."""
        super().begin(model)
        self.kept.aside.before = self._digests()

    def _trained(self) -> dict[str, Tensor]:
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad} if self.model is not None else {}

    def _digests(self) -> dict[str, str]:
        with _disable_current_modes():
            there = {name: local(p) for name, p in self._trained().items()}
            return {name: digest(p) if not p.is_meta and p.untyped_storage().nbytes() else "" for name, p in there.items()}

    def _steps(self, parameters: Sequence[Tensor]) -> None:
        """An optimizer begins its step: what it has, and what the model has."""
        aside, trained = self.kept.aside, self._trained()
        made = {name: local(p.grad) for name, p in trained.items() if p.grad is not None}
        shapes = Counter(tuple(p.shape) for p in trained.values()) - Counter(tuple(p.shape) for p in parameters)
        aside.own |= bool(shapes) or bool({*map(id, trained.values())} & {*map(id, self.optimizers.parameters())})
        aside.read |= any(p.grad is not None for p in parameters)
        aside.lines += [self.line()] if made else []
        aside.gradient = max(aside.gradient, *((float(g.abs().max()), name) for name, g in made.items() if g.numel()), (0.0, ""))

    def _feeds(self, parameters: Sequence[Tensor]) -> None:
        """An optimizer begins its step: the gradients that it is given."""
        for p in parameters:
            states = self.nodes.of_all(self.shadows.terms(local(p)))
            if p.grad is not None and len(states) == 1 and _is_plain(p) and _is_plain(p.grad):
                self.kept.fed[min(states)] = _copy(p, p.grad)

    def before_update(self, parameters: Sequence[Tensor], scale: Fraction | None = None) -> None:
        """An optimizer begins its step."""
        with _disable_current_modes():
            self._steps(parameters)
            self._feeds([] if self.frozen else parameters)
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
            alike = {(dtype, shape[1:]) for call in self.recording.calls for (_, _, dtype, shape), _, _ in call.sources if shape}
            contents = (self.stretches.makers.contents or {}).items()
            self.kept.contents = {place: held for place, held in contents if place[0][3] and (place[0][2], place[0][3][1:]) in alike}
            self.kept.heard.update(*map(self.nodes.turns, self.shadows.left()))
            moved = [states for place, (tensor, states) in self.places.items() if storage(tensor) != place]
            self.kept.read, self.kept.written = (one.union(self.shared, *moved) for one in (self.kept.read, self.kept.written))
            for number, term in self.arithmetic.numbers.items():  # those of Python, which are multiplied by what is more than 1 nowhere
                self.kept.numbers.setdefault(term, min(number, 1.0))
        super().end()

    def begins(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """An operation is about to be done."""
        super().begins(func, args, kwargs)
        if self.frozen or self.phase == "setup":
            return
        with _disable_current_modes():
            if func.namespace in NAMESPACES:
                self._keep_made()
            elif not self.optimizing:
                self._uses(func, args, kwargs)
                self._hears(func, args, kwargs)

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        """Follow one operation, after it was done, and keep the number that it makes of norms."""
        done = read_exchange(func, args, kwargs, out) if func.namespace in NAMESPACES else None
        if done is not None:
            self.kept.gives |= self.phase != "setup" and not (done.kind == "broadcast" and done.root != self.recording.rank)
            with _disable_current_modes():
                self.kept.later |= {digest(local(t)) for t in done.reads} if done.kind == "send" and self.frozen else set()
                self.received |= {storage(local(t)) for t in done.writes} if done.kind == "recv" else set()
        super().operation(func, args, kwargs, out)
        if not self.frozen and self.phase != "setup":
            with _disable_current_modes():
                for tensor in (local(t) for t in tree_leaves(out) if isinstance(t, Tensor) and t.numel() == 1):
                    for term in self.shadows.terms(tensor) if self.shadows.known(tensor) else ():
                        if self.arithmetic.of_norms(term):
                            self.kept.numbers[term] = float(tensor)

    def _keep_made(self) -> None:
        """Before something is sent, what updates have made of parameters."""
        for tensor in self.leaves.values():
            states = self.read.get(id(tensor), frozenset())
            if len(states) == 1 and min(states) in self.recording.updates and min(states) not in self.kept.made and _is_plain(tensor):
                self.kept.made[min(states)] = _copy(tensor, None)

    def _uses(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Something is computed: whether it reads what an update has made of a parameter, or writes one that is not updated."""
        name = func._schema.name.rpartition("::")[2]
        copies, shown = name == "copy_", func.is_view or name.endswith("_like") or name.startswith("new_")
        into = {storage(t) for t in flat((*written(func, args), *(v for n, v in kwargs.items() if n == "out")))}
        brings = copies and any(self.nodes.holds(n, "all_gather") for n in self.shadows.terms(args[1]))
        for place, new in self._used(flat((*args, *kwargs.values()))):
            if new and not (copies and place in into) and not shown:
                self.kept.read |= self.places[place][1]
            elif place in into and not new and not brings:
                self.kept.written |= self.places[place][1]

    def _hears(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Something is computed: whether of gradients, and more than their sums."""
        name = func._schema.name.rpartition("::")[2]
        self.kept.looked |= name in _LOOKING
        if name in MOVES or func.is_view:
            return
        tensors, plain = flat((*args, *kwargs.values())), name.removeprefix("_foreach_").rstrip("_")
        terms = [self.shadows.terms(t) for t in tensors]
        followed = plain in ("add", "sub") and (self.phase != "backward" or all(terms))
        followed |= plain in ("mul", "div") and not any(isinstance(a, (Tensor, list, tuple)) for a in args[1:])
        if not followed and plain not in _WRITING:
            self.kept.heard.update(*(self.nodes.turns(n) for own in terms for n in own))

    def _used(self, tensors: Sequence[Tensor]) -> Iterator[tuple[int, bool]]:
        """Where parameters are that are among some tensors, and whether an update has made what is there."""
        for place in {storage(t) for t in tensors} & self.places.keys():
            yield place, any(self.nodes[n].kind == "updated" for n in self.shadows.terms(self.places[place][0]))

    def function(self, given: Sequence[Any], out: Any) -> None:
        """A function was called: what it makes of a parameter that is no tensor, as where one is written to a file, no mode sees."""
        super().function(given, out)
        if self.frozen or self.phase == "setup" or is_ours(2):
            return
        if not all(isinstance(v, _SHOWN) for v in tree_leaves(out)):
            self.kept.looked |= bool(flat(given))
            with _disable_current_modes():
                for place, new in self._used(flat(given)):
                    self.kept.read |= self.places[place][1] if new else frozenset()

    def _by_hand(self, parameter: int, term: int, rate: Fraction | None = None) -> None:
        super()._by_hand(parameter, term, rate)
        for index in self.nodes.states(parameter):
            self.kept.lines[index] = self.line()

    def next_step(self) -> None:
        """Forward begins, perhaps of another step."""
        done = self.done
        try:
            super().next_step()
        except OverError:
            return
        if self.done > done and not self.frozen:
            self.kept.early |= self.kept.late | self.between
            self.kept.passes, self.passes = [], 0
            self.kept.stacks, self.kept.heard, self.kept.looked = self.kept.stacks[-1:] if self.depth else [], set(), False
            self.kept.made, self.kept.fed, self.kept.read, self.kept.written = {}, {}, set(), set()
            self.kept.numbers.clear()
            self.kept.added, self.kept.added_back = [], set()

    def _exchange(self, done: Exchanged) -> None:
        terms = {n for t in done.reads for n in self.shadows.terms(t) if n > ZERO and self.nodes.is_parameter(n)}
        if not within(WRAPPERS):
            early = self.between if self.phase == "between" else self.kept.early
            (self.kept.late if self.recording.updates else early).update(self.nodes.of_all(terms))
        super()._exchange(done)


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is whole, and there: what was gathered for one use may be freed."""
    there = local(tensor) is tensor and tensor.layout == torch.strided and tensor.untyped_storage().nbytes() > 0
    return there and tensor.is_floating_point()


def _copy(tensor: Tensor, gradient: Tensor | None) -> Copy:
    return Copy(
        digest=digest(tensor),
        shape=tuple(tensor.shape),
        rounding=float(torch.finfo(tensor.dtype).eps),
        places=places(tensor.numel()).numpy(),
        values=some(tensor),
        gradient=None if gradient is None else some(gradient),
    )
