"""What a rank computes with besides its parameters and its samples: operations, numbers and tensors, which have to be those of all ranks.

A step program says one function for all ranks. Nothing of a gradient shows that a rank divides by another temperature, or has another
fixed matrix: so what its losses, its backward passes and its updates by hand are made with is written down, and compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from math import prod
from typing import Any

import torch
from torch import Tensor, UntypedStorage, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import _disable_current_modes

from placeproof.measure.record.recording import COPIED, Recording, Where
from placeproof.measure.record.shadow import local, storage

#: Operations of which a whole number is a number like any other, and neither a size nor a place.
_NUMBERS = frozenset(("add", "clamp", "clamp_max", "clamp_min", "div", "ge", "gt", "le", "lt", "mul", "pow", "rsub", "sub"))
#: What makes a tensor of which nobody has written an element: whatever it holds, it is no number of a rank.
_UNWRITTEN = frozenset(("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"))
#: What computes nothing: a tensor is shown, or read as another one.
_SHOWN = frozenset(("_local_scalar_dense", "_to_copy", "alias", "clone", "copy_", "detach", "lift_fresh"))

#: What nodes of a graph have of dimensions, and of places in them.
_PLACES = tuple(f"_saved_{name}" for name in ("dim", "dim0", "dim1", "dims", "end", "index", "shifts", "split_sizes", "start", "step"))

#: What puts tensors together.
_JOINS = ("Cat", "Stack")
#: How many arguments and tensors are kept in their order, of an operation on a line.
_MOST = 4096

#: What an operation computes with: where, numbers, and tensors by shapes and digests.
_Done = tuple[Where, tuple[float | str, ...], tuple[tuple[str, str], ...]]
#: The phase of what makes no loss by itself, while one is made.
ASIDE = "aside"


class Origins:
    """Of which first dimensions the tensors are that another one was made of, by their storages."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[StorageWeakRef, frozenset[int]]] = {}

    def __call__(self, tensor: Tensor) -> frozenset[int]:
        """Those of a tensor: its own where it was made of none."""
        known = self._of.get(storage(tensor))
        own = frozenset((tensor.shape[0],)) if tensor.dim() else frozenset()
        return own | known[1] if known is not None and not known[0].expired() else own

    def made(self, read: Iterable[Tensor], written: Iterable[Tensor]) -> None:
        """An operation has made tensors of others."""
        of = frozenset[int]().union(*map(self, read))
        for tensor in (t for t in written if t.layout == torch.strided):
            before = self._of.get(storage(tensor))
            known = before[1] if before is not None and not before[0].expired() else frozenset[int]()
            self._of[storage(tensor)] = StorageWeakRef(tensor.untyped_storage()), of | known


class Computed:
    """Writes down in a recording what a rank computes with. ``sizes``: first dimensions of tensors that have a part of each sample;
    ``buffers``: storages of a model's, which are compared by themselves."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.origins = recording, Origins()
        self.sizes: set[int] = set()
        self.buffers: set[int] = set()
        self.registered: dict[int, StorageWeakRef] = {}
        self._modules: dict[int, int] = {}
        self._next: dict[str, str] = {}
        self.results: dict[int, tuple[StorageWeakRef, int]] = {}
        self.unwritten = Memory()
        self._later: dict[int, tuple[StorageWeakRef, frozenset[_Done]]] = {}
        self._early: list[tuple[Where, tuple[str, str], frozenset[int]]] = []  # before anything was given to the model
        self._digests: dict[tuple[Any, ...], tuple[StorageWeakRef, str]] = {}

    def runs(self, model: nn.Module) -> None:
        """A model is run for the first time."""
        self.buffers = {storage(local(buffer)) for buffer in nn.Module.buffers(model)}  # Megatron has others

    def of_buffers(self, tensors: Iterable[Tensor]) -> bool:
        """Whether one of these is a buffer of the model."""
        return any(storage(local(t)) in self.buffers for t in tensors)

    def registers(self, parameter: Tensor) -> None:
        """A module has this as a parameter."""
        self.registered[storage(local(parameter))] = StorageWeakRef(local(parameter).untyped_storage())

    def reads(self, module: nn.Module, changed: Callable[[Tensor], bool | None], *, later: bool) -> None:
        """A module was run. What it has of parameters that no gradient is made of is compared like buffers: those that nobody has
        registered, as of a copy of a module; and of later steps all, since a teacher may follow what is trained: ``changed`` or not, of
        those. ``later``: it is read for the step that follows."""
        from placeproof.measure.record.digests import digest

        number = self._modules.setdefault(id(module), len(self._modules))
        buffers = self._next if later else self.recording.buffers
        for name, own in module.named_parameters():
            known = self.registered.get(storage(own)) if local(own) is own else None
            trained = torch.is_grad_enabled() and own.requires_grad
            place = f"{COPIED}{name}{f' (module {number})' if number else ''}"
            if local(own) is own and not trained and not own.is_meta and place not in buffers:
                another = known is None or known.expired() or changed(own)
                buffers |= {} if another is None else {place: digest(own) if another else "as it was"}

    def begins(self) -> dict[str, str]:
        """Another step begins: what was read for it already."""
        own = self.recording
        own.graphs, own.joined, own.dimensions, own.numbers, own.beside, own.ordered = [], [], [], {}, {}, {}
        read, self._next = self._next, {}
        return read

    def given(self, values: Iterable[Tensor]) -> None:
        """Samples that a model is given."""
        for value in values:
            self.sizes |= {prod(value.shape[:n]) for n in range(1, value.dim() + 1)}
        if self.sizes:
            for where, read, origins in self._early:
                self.recording.beside.setdefault(where, set()).update(() if self._of_samples(origins) else (read,))
            self._early.clear()

    @property
    def passes(self) -> int:
        """How many backward passes there were, in all steps."""
        return self.recording.passed + len(self.recording.turns)

    def made(self, values: Iterable[Tensor], passes: int | None = None) -> None:
        """A module has made these, after so many backward passes: as many as there were."""
        after = self.passes if passes is None else passes
        self.results |= {storage(v): (StorageWeakRef(v.untyped_storage()), after) for v in values if v.layout == torch.strided}

    def made_after(self, tensor: Tensor) -> int | None:
        """After how many backward passes a module has made that of which a tensor is made; None for one that is made of no such."""
        known = self.results.get(storage(tensor))
        return None if known is None or known[0].expired() else known[1]

    def operation(
        self, func: Any, read: Sequence[Tensor], written: Sequence[Tensor], beside: Sequence[Tensor], arguments: Any, where: Where | None
    ) -> None:
        """An operation was done; ``beside``: what it read of tensors that are not followed; ``where`` of the step, None where it makes no
        loss, no gradient and no update."""
        self._writes_down(func, read, written, beside, arguments, where)
        self._holds(func, written)
        self.origins.made(read, written)
        if after := [n for n in map(self.made_after, read) if n is not None]:
            self.made(written, min(after))

    def _writes_down(
        self, func: Any, read: Sequence[Tensor], written: Sequence[Tensor], beside: Sequence[Tensor], arguments: Any, where: Where | None
    ) -> None:
        """Write down what an operation computes with: at once, or when a loss is made of what it makes, which may be samples of the next
        pass."""
        found = frozenset[_Done]().union(*(known[1] for t in read if (known := self._later.get(storage(t))) and not known[0].expired()))
        if where is not None and where[1] not in _SHOWN and not func.is_view:
            values = tuple(_numbers(arguments, where[1].rstrip("_") in _NUMBERS))
            place = *where[:2], "" if where[2] == ASIDE else where[2]
            tensors = tuple(self._beside(place, beside))
            found |= {(place, values, tensors)}
            if where[2] != ASIDE:
                order = self.recording.ordered.setdefault(place, [])
                order += [str(len(arguments)), *values, *tensors][: _MOST - len(order)]  # defaults are not given
        if where is not None and where[2] != ASIDE:
            for place, values, others in found:
                self.recording.numbers.setdefault(place, set()).update(values)
                self.recording.beside.setdefault(place, set()).update(others)
        elif found:
            for tensor in (t for t in written if t.layout == torch.strided):
                known = self._later.get(storage(tensor))
                before = known[1] if known is not None and not known[0].expired() else frozenset[_Done]()
                self._later[storage(tensor)] = StorageWeakRef(tensor.untyped_storage()), found | before

    def passed(self) -> None:
        """A backward pass is over: what was made aside, and no loss was made of, are samples of the next one."""
        self._later.clear()

    def _holds(self, func: Any, written: Sequence[Tensor]) -> None:
        """Which tensors hold what nobody has written: those that an operation makes so, until another one writes to them."""
        if func.overloadpacket.__name__ in _UNWRITTEN:
            self.unwritten.keep(t for t in written if type(t) is Tensor)  # a fake one has no elements
        elif not func.is_view:
            self.unwritten.forget(written)

    def _beside(self, where: Where, read: Sequence[Tensor]) -> Iterable[tuple[str, str]]:
        """Tensors that are neither a result of differentiation nor of samples, whose sizes are not known before the model is run."""
        for tensor in read:
            if (
                type(tensor) is not Tensor
                or storage(tensor) in self.buffers
                or self.unwritten.is_as_kept(tensor)  # NumPy may have written to it, too
                or tensor.requires_grad
                or not tensor.numel()
                or tensor.layout != torch.strided
                or tensor.is_meta
                or (self.sizes and self._of_samples(self.origins(tensor)))
            ):
                continue
            seen = str(tuple(tensor.shape)), self._digest(tensor)
            if self.sizes:
                yield seen
            else:
                self._early.append((where, seen, self.origins(tensor)))

    def _of_samples(self, origins: frozenset[int]) -> bool:
        rows = max(self.recording.rows.values(), default=0) * self.recording.world
        return any(n in self.sizes or (rows and n and n % rows == 0) for n in origins)

    def _digest(self, tensor: Tensor) -> str:
        from placeproof.measure.record.digests import digest

        if tensor.is_inference():  # nothing counts what is written to it
            return digest(tensor)
        key = (storage(tensor), tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor._version)
        known = self._digests.get(key)
        if known is None or known[0].expired():
            self._digests[key] = known = StorageWeakRef(tensor.untyped_storage()), digest(tensor)
        return known[1]

    def loss(self, graph: Any, states: Callable[[Tensor], frozenset[int]]) -> None:
        """What a loss is made by: the operations of its graph, by their names and by what each is given. ``states``: those of a leaf."""
        numbers, found, read = dict[Any, int](), Counter[str](), list[frozenset[int]]()
        every, places, left = sha256(), sha256(), [] if graph is None else [(graph, False)]
        while left:
            node, below_known = left.pop()
            below = [one for one, _ in node.next_functions if one is not None]
            if not below_known and node not in numbers:
                left += [(node, True), *((one, False) for one in reversed(below) if one not in numbers)]
            elif node not in numbers:
                name, numbers[node] = type(node).__name__, len(numbers)
                found[f"{name} {len(below)}"] += 1
                read += [states(node.variable)] if hasattr(node, "variable") else []
                given = [(numbers.get(one), output) for one, output in node.next_functions]
                joins = name.startswith(_JOINS)  # ranks may put what is their own among what others have
                every.update(repr((name, [one for one in given if one[0] is not None] if joins else given)).encode())
                places.update(repr([getattr(node, place, None) for place in _PLACES]).encode())
        self.recording.graphs.append(tuple(sorted(found.items())))
        self.recording.joined.append((every.hexdigest(), tuple(read)))
        self.recording.dimensions.append(places.hexdigest())


def _numbers(arguments: Any, whole: bool) -> Iterable[float | str]:
    """The numbers and words that an operation is given; ``whole``: also whole numbers."""
    for value in arguments:
        if isinstance(value, (list, tuple)):
            yield from _numbers(value, whole)
        elif isinstance(value, (float, str)) or (whole and type(value) is int):
            yield value


class Memory:
    """Sums over what followed tensors hold, to see that nothing but PyTorch writes them: a script may have them as NumPy's arrays."""

    def __init__(self) -> None:
        self._sums: dict[int, tuple[StorageWeakRef, tuple[Any, ...], int]] = {}

    def keep(self, tensors: Iterable[Tensor]) -> None:
        """These were written."""
        for tensor in tensors:
            if (total := _sum(tensor)) is not None:
                self._sums[storage(tensor)] = StorageWeakRef(tensor.untyped_storage()), _form(tensor), total
            else:
                self._sums.pop(storage(tensor), None)

    def forget(self, tensors: Iterable[Tensor]) -> None:
        """What these hold is not looked at."""
        for tensor in tensors:
            self._sums.pop(storage(tensor), None)

    def freed(self, place: UntypedStorage) -> None:
        """What lies here is not looked at any more."""
        self._sums.pop(int(place._cdata), None)

    def changed(self, tensor: Tensor) -> bool:
        """Whether a tensor is not what was last written there."""
        return (known := self._known(tensor)) is not None and known != _sum(tensor)

    def is_as_kept(self, tensor: Tensor) -> bool:
        """Whether a tensor is kept, and what it was."""
        return (known := self._known(tensor)) is not None and known == _sum(tensor)

    def _known(self, tensor: Tensor) -> int | None:
        known = self._sums.get(storage(tensor))
        return known[2] if known is not None and not known[0].expired() and known[1] == _form(tensor) else None


def _form(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype


_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _sum(tensor: Tensor) -> int | None:
    """The sum of a tensor's elements as whole numbers of as many bits, None where it has none that lie in memory."""
    if tensor.layout != torch.strided or tensor.is_meta or not tensor.numel() or tensor.untyped_storage().nbytes() == 0:
        return None
    with _disable_current_modes(), torch.no_grad():
        flat = tensor.detach().reshape(-1)
        words = _WORDS.get(flat.element_size())
        return None if words is None else int((flat if flat.dtype == torch.bool else flat.view(words)).sum(dtype=torch.int64))
