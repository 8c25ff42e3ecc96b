"""Which parameters are trained for the sake of others: copies that each rank adapts by itself, as in first-order meta-learning.

A copy is adapted where it is updated, and in a later step what it is a copy of: by an optimizer, or with something that ranks have
exchanged of the copy. A parameter is, too, where forward reads next what it was before: its updates were taken back. Which of such updates
are to be those of all samples, no rule of one device says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import _disable_current_modes

from placeproof.measure.record.exchange import Exchanged
from placeproof.measure.record.recording import Recording
from placeproof.measure.record.shadow import flat, local, place_of, written

_Place = tuple[int, int, int]
#: Of what something is made: parameters, after how many of their updates.
_Made = dict[_Place, int]
#: What copies a whole tensor, and what writes no gradient.
_COPIES, _CLEARS = frozenset(("_to_copy", "clone", "copy_")), frozenset(("copy_", "fill_", "zero_", "_foreach_zero_"))


@dataclass(slots=True)
class _Copy:
    """A copy of what is at a place. ``steps`` in which it was updated, with lines; since then ranks have exchanged a gradient (``added``),
    or something of its values (``sent``). ``apart``: it is trained for its own sake. ``after``: the last update's step and passes."""

    of: _Place
    steps: dict[int, int] = field(default_factory=dict)
    added: bool = False
    sent: bool = False
    apart: bool = False
    after: tuple[int, int] = (0, 0)


class Adapting:
    """Follows copies of parameters, and what is made of them outside of forward and backward."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.step = recording, 1
        self._copies = dict[_Place, _Copy]()
        self._made = dict[_Place, _Made]()
        self._updates = dict[_Place, int]()
        self._steps = dict[_Place, dict[int, int]]()
        self._known, self._old, self._read = set[_Place](), set[_Place](), set[_Place]()
        self._held = dict[int, StorageWeakRef]()  # of a storage that ends, no other one takes the place

    def begins(self, step: int) -> None:
        """Another step begins."""
        self.step = step
        self._read.clear()
        self.recording.copied = self.recording.copies = False

    def knows(self, parameter: Tensor) -> None:
        """A tensor is a parameter."""
        self._hold(parameter)
        self._known.add(self._place(parameter))

    def reads(self, leaf: Tensor, line: int) -> None:
        """Forward reads a tensor of which a gradient will be made."""
        self.knows(leaf)
        self._read.add(place := self._place(leaf))
        before = self._made.get(place, {}) if place not in self._updates else {}
        for origin in (o for o, after in before.items() if o not in self._read and after < self._updates.get(o, 0)):
            self._say(self._steps.get(origin, {}), line)
        if place in self._old:
            self._say(self._steps.get(place, {}), line)
            self._old.discard(place)

    def has_read(self, leaf: Tensor) -> bool:
        """Whether forward has read a tensor in this step, as it is."""
        return self._place(leaf) in self._read

    def updates(self, parameters: Iterable[Tensor], line: int) -> None:
        """An optimizer, or the script by hand, updates parameters."""
        places = list(map(self._place, parameters))
        for copy in (c for c in self._copies.values() if c.of in places and not c.apart):
            self._say({step: at for step, at in copy.steps.items() if step != self.step}, line)
        for place in places:
            self._updates[place] = self._updates.get(place, 0) + 1
            if place in self._read:
                self._steps.setdefault(place, {}).setdefault(self.step, line)
                self.recording.copies |= any(place in of for of in self._made.values())
        now = self.step, len(self.recording.turns)
        own = [self._copies[p] for p in places if p in self._copies and p in self._read]
        for copy in (c for c in own if c.after != now):  # else it is averaged, or changed otherwise, without another gradient
            copy.apart |= copy.of in self._read or any(s in self.recording.adapted for s in copy.steps)
            for step in copy.steps if copy.apart else ():  # it goes on, whatever the original is trained for
                self.recording.adapted.pop(step, None)
            copy.added, copy.sent, copy.after = False, False, now
            copy.steps.setdefault(self.step, line)
            self.recording.copied |= not copy.apart

    def operation(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        out: Any,
        line: int,
        *,
        aside: bool,
    ) -> None:
        """Something was done, but by an optimizer, and in no backward pass; ``aside``: nor in forward."""
        name = func._schema.name.rpartition("::")[2]
        if func.is_view or not (aside or name in _COPIES):
            return
        with _disable_current_modes():
            if name in _COPIES:
                source, target = (args[1], args[0]) if name == "copy_" else (args[0], out)
                if isinstance(source, Tensor) and self.copies(source, target, line):
                    return
            if aside and self._copies:
                into = flat((*written(func, args), *(v for n, v in kwargs.items() if n == "out")))
                self._computes(flat((*args, *kwargs.values())), into, flat((out,)), line, clears=name in _CLEARS)

    def _computes(self, read: Sequence[Tensor], into: Sequence[Tensor], out: Sequence[Tensor], line: int, *, clears: bool) -> None:
        places, targets = list(map(self._place, read)), {self._place(t): t for t in into}
        made = self._of(places)
        self._uses(places, targets, line)
        for tensor in (t for t in out if made and self._place(t) not in targets):
            self._hold(tensor)
            self._made[self._place(tensor)] = dict(made)
        trained = [t for place, t in targets.items() if place in self._read]
        if trained and not clears and self.recording.turns:
            self.updates(trained, line)

    def copies(self, source: Tensor, target: Tensor, line: int) -> bool:
        """One tensor is copied to another one: whether it is a parameter, or made of some."""
        place, into = self._place(source), self._place(target)
        if source.numel() != target.numel() or not (place in self._known or place in self._made):
            return False
        origin = self._copies[place].of if place in self._copies else place
        of = self._made.get(place) or {origin: self._updates.get(origin, 0)}
        self._uses([place], [into], line)
        if into in of:
            (self._old.add if of[into] < self._updates.get(into, 0) else self._old.discard)(into)
            return True
        known = self._copies.get(into)
        if known is not None and known.steps and not known.apart:
            self._old.add(into)  # what it was trained to is dropped
        self._hold(source)
        self._hold(target)
        self._made[into] = dict(of)
        if len(of) == 1 and origin in of:
            self._copies[into] = _Copy(origin)
        return True

    def _of(self, places: Sequence[_Place]) -> _Made:
        """Of which parameters that there are copies of something is made that is made of what is at these places."""
        made, known = _Made(), {c.of for c in self._copies.values()}
        for place in places:
            of = self._made.get(place) or ({place: self._updates.get(place, 0)} if place in known else {})
            for origin, after in of.items():
                made[origin] = min(after, made.get(origin, after))
        return made

    def _uses(self, read: Iterable[_Place], into: Iterable[_Place], line: int) -> None:
        """Originals are read, or written, after something of copies was exchanged: for them these were adapted."""
        reads, writes = {*read}, {*into}
        for copy in (c for c in self._copies.values() if c.steps and not c.apart and c.of not in self._read):
            if (copy.sent and copy.of in reads) or ((copy.sent or copy.added) and copy.of in writes):
                self._say(copy.steps, line)

    def exchanges(self, done: Exchanged, *, gradient: bool, line: int) -> None:
        """Ranks exchange something, perhaps a ``gradient``."""
        if not self._copies:
            return
        places, size = list(map(self._place, done.reads)), sum(t.numel() for t in done.reads)
        made = self._of(places)
        for place, copy in ((p, c) for p, c in self._copies.items() if c.steps and size >= p[2]):
            copy.added |= gradient
            copy.sent |= copy.of in made or place in places
        self._uses([], map(self._place, done.writes), line)

    def _say(self, steps: Mapping[int, int], line: int) -> None:
        for step in steps:
            self.recording.adapted.setdefault(step, line)

    def _place(self, tensor: Tensor) -> _Place:
        with _disable_current_modes():
            own = local(tensor)
            return place_of(own) if own.layout == torch.strided else (0, 0, 0)

    def _hold(self, tensor: Tensor) -> None:
        own = local(tensor)
        if own.layout == torch.strided:
            storage = own.untyped_storage()
            self._held.setdefault(storage._cdata, StorageWeakRef(storage))
