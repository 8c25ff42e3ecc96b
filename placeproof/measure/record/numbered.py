"""Runs a script with samples that are given to it, and notes the numbers that a step comes to: gradients before they are exchanged.

Samples are where a script draws, loads or picks them, outside of modules. What it computes of them is computed, of whatever it was given.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data.dataloader import _BaseDataLoaderIter

from placeproof.measure.record.digests import digest
from placeproof.measure.record.doubled import Doubled
from placeproof.measure.record.exchange import read_exchange
from placeproof.measure.record.frames import line_of
from placeproof.measure.record.loss import read_loss
from placeproof.measure.record.samples import Enough
from placeproof.measure.record.shadow import local, storage, strided_of, written
from placeproof.measure.record.together import SENT, Numbers, Origin, Samples, Trial
from placeproof.measure.recorder import NAMESPACES

#: Operations that draw samples; that pick, or put together, what is there; and that leave it as it is, somewhere else.
_DRAWS = (
    *("bernoulli", "exponential_", "log_normal_", "normal", "normal_", "poisson", "rand", "rand_like", "randint", "randint_like"),
    *("randn", "randn_like", "random_", "uniform_"),
)
#: What is of chance within a module.
_CHANCE = (*_DRAWS, "multinomial", "native_dropout")
_PICKS = ("cat", "index", "index_select", "select", "slice", "split", "split_with_sizes", "stack", "unbind")
_FRESH = ("_to_copy", "clone", "lift_fresh")
_HANDED = (*_DRAWS, *_PICKS, *_FRESH)
_MOVES = (*_FRESH, "copy_", "fill_", "zero_")
#: What moves a tensor towards another one.
_AVERAGES = ("add_", "lerp_", "_foreach_add_", "_foreach_lerp_")
#: What dropout draws, with a chance that is a number.
_DROPS = (torch.ops.aten.bernoulli_.float,)
#: What reads a number of a tensor: what Python makes of it is not seen.
_LOOKS = ("_local_scalar_dense", "equal", "is_nonzero", "item")
#: Of what a constant is made, whatever samples are.
_CONSTANT = ("arange", "empty", "eye", "full", "linspace", "new_", "ones", "randperm", "scalar_tensor", "zeros")
#: What makes an array of a tensor, and what Python is told of a tensor by.
_ARRAY, _TOLD = Tensor.numpy, ("numpy", "tolist")
#: Elements of a tensor that is no sample, and is compared with that of other ranks.
_FEW = 4096
#: What wrappers add to names.
_WRAPPED = re.compile(r"\b(_fsdp_wrapped_module|_checkpoint_wrapped_module|_orig_mod)\.|^module\.")
#: Elements of what is kept.
_LARGE = 1 << 22


@dataclass(slots=True)
class _Kind:
    """What is known of a storage: it is ``made`` of parameters that are trained, of samples that are ``read``, or ``computed`` of anything;
    and which samples it holds, if any, as a whole: their shape, strides and offset; ``python``: digests of what Python has made that it is
    made of, and ``sent`` where ranks have exchanged it; ``origins``: where what it is made of was drawn, picked, or computed with something
    else; ``early``: it was there before the first backward pass."""

    storage: StorageWeakRef
    made: bool = False
    read: bool = False
    computed: bool = False
    origin: Origin | None = None
    layout: tuple[tuple[int, ...], tuple[int, ...], int] = ((), (), 0)
    python: tuple[str, ...] = ()
    sent: bool = False
    origins: frozenset[Origin] = frozenset()
    early: bool = False

    def holds(self, origin: Origin) -> None:
        """It is these samples, which one process is given, wherever they came from."""
        self.origin, self.origins, self.python = origin, frozenset((origin,)), ()


class _Sampled(TorchDispatchMode):
    """Hands out given samples, and keeps what there is of them."""

    def __init__(self, numbers: Numbers, samples: Samples, script: str, trial: Trial) -> None:
        super().__init__()
        self.numbers, self.samples, self.script, self.trial = numbers, samples, script, trial
        self.kinds: dict[int, _Kind] = {}
        self.arrays: dict[str, NDArray[np.generic]] = {}
        self.counts = Counter[tuple[object, ...]]()
        self.off, self.looked, self.begun, self.inside = False, False, False, 0
        self.counted, self.loading, self.updating = False, False, False
        self.parameters, self.averages = dict[int, str](), dict[tuple[str, int], Tensor]()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, and hand out samples instead of what it makes of them."""
        if any(issubclass(t, (DTensor, AsyncCollectiveTensor)) for t in types):
            return NotImplemented
        if not (self.off or func.namespace in NAMESPACES):
            with _disable_current_modes(), torch.no_grad():  # before they are written to
                for tensor in (t for t in strided_of((args, kwargs)) if storage(t) not in self.kinds):
                    self._made_by_python(tensor)
        out = func(*args, **(kwargs or {}))
        if self.off:
            return out
        with _disable_current_modes(), torch.no_grad():
            if func.namespace in NAMESPACES:
                self._exchanges(func, args, kwargs or {}, out)
                return out
            return self._computes(func, args, kwargs or {}, out)

    def _exchanges(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        done = read_exchange(func, args, kwargs, out)
        if done is None:
            return
        kinds = [self._kind(local(t)) for t in done.reads]
        self._uses(kinds)
        made = any(k.made for k in kinds)
        self.numbers.exchanged |= made and self.begun
        for tensor in map(local, done.writes):
            kind = self._kind(tensor)
            kind.made, kind.read, kind.computed, kind.origin = kind.made or made, kind.read or any(k.read for k in kinds), True, None
            kind.origins, kind.sent = kind.origins.union(*(k.origins for k in kinds)), True

    def _computes(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> Any:
        name = func._schema.name.rpartition("::")[2]
        if self.trial.mean and self.inside and func in _DROPS:
            args[0].fill_(args[1] if len(args) > 1 else 0.5)
        else:
            self.numbers.drawn |= bool(self.inside) and name.startswith(_CHANCE)
        read, writes = strided_of((args, kwargs)), strided_of(written(func, args))
        kinds = [self._kind(t) for t in read]
        made, computed = any(k.made for k in kinds), any(k.computed for k in kinds)
        if name in _LOOKS:
            self._look(kinds)
        if name in _AVERAGES and not (self.inside or self.updating):
            self._averages(read, writes)
        picked = name in (*_DRAWS, *_PICKS, *_MOVES) or func.is_view
        if (made or self.inside) and name not in _MOVES:
            self._uses(kinds)
        shape = name.endswith("_like") or name.startswith("new_")
        if not (picked or shape):
            self._computed_of(kinds, read)
        told = frozenset[Origin]()
        if not picked and not (made or self.inside) and any(k.read for k in kinds):
            into = {storage(t) for t in writes}
            others = [t for t, k in zip(read, kinds, strict=True) if not (k.read or storage(t) in into)]
            beside = _beside(args, kwargs, others)
            out, told = self._told(name, out, beside) if beside else (out, told)
        self.numbers.chosen |= self.looked or (name in _PICKS and computed and not (made or self.inside))
        seen = not (self._decided and name in (*_PICKS, "lift_fresh", "fill_"))  # Python may have counted samples
        self.numbers.changed |= not seen and any(self._kind(t).origin is not None for t in writes)
        computed |= not picked and bool(read) and not name.startswith(_CONSTANT)
        if name in _MOVES and computed and not (made or self.inside):
            for tensor in (t for t in writes if (own := self._kind(t)).read and own.origin is None and own.layout[0]):
                told |= self._changed(name, tensor, _beside(args, kwargs))
        for tensor in (*strided_of(out), *writes):
            kind = self._kind(tensor)
            if not (func.is_view or kind.layout[0]):
                kind.layout = tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
            kind.made, kind.read, kind.computed = kind.made or made, kind.read or any(k.read for k in kinds), kind.computed or computed
            kind.origins = kind.origins.union(told, *(k.origins for k in kinds))
            if picked and not (shape or kind.made):
                kind.python = kind.python or tuple(d for k in kinds for d in k.python)
        return out if made or computed or self.inside or not picked else self._picked(func, name, args, out, writes, seen)

    def _picked(self, func: Any, name: str, args: tuple[Any, ...], out: Any, writes: Sequence[Tensor], seen: bool) -> Any:
        """What is handed out instead of samples that are drawn, picked or moved. ``seen``: not chosen by what Python was told."""
        if writes and not all(storage(t) in self.kinds and self._kind(t).origin is None for t in writes):
            for tensor in writes if seen else ():
                self._written(name, tensor)
            return out
        base = self._kind(args[0]).layout[0] or args[0].shape if func.is_view and name != "lift_fresh" else None
        part = base is not None and args[0].shape != base
        return tree_map(lambda value: self._handed(name, value, base), out) if seen and not part and name in _HANDED else out

    def telling(self, tell: Callable[..., Any]) -> Callable[..., Any]:
        """A method of tensors by which Python is told what is in one."""

        def told(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            with _disable_current_modes():
                if tensor.layout == torch.strided:
                    kind = self._kind(local(tensor))
                    self._look([kind])
                return tell(tensor, *args, **kwargs)

        return told

    def _made_by_python(self, tensor: Tensor) -> None:
        """A tensor is made of what is not seen. An optimizer counts steps so, of each piece that a rank has."""
        self._kind(tensor).computed = self._decided or (tensor.is_floating_point() and not self.trial.python)
        if _kept(tensor) and not self.updating:
            own = digest(tensor)
            self._kind(tensor).python, self.arrays[own] = (own,), _values(tensor)

    def _computed_of(self, kinds: Sequence[_Kind], read: Sequence[Tensor]) -> None:
        """Something is computed of tensors: what of these Python has made, or ranks have exchanged, is noted."""
        made_of = [(k, t) for k, t in zip(kinds, read, strict=True) if k.python]
        self.numbers.python += [(f"{SENT}{digest(t)}",) if k.sent and _kept(t) else k.python for k, t in made_of]
        self.numbers.arrays.update((d, self.arrays[d]) for k, _ in made_of for d in k.python)

    def _averages(self, read: Sequence[Tensor], writes: Sequence[Tensor]) -> None:
        """Something that is kept is moved towards parameters."""
        sources = [t for t in read if storage(t) in self.parameters]
        for source, tensor in zip(sources, writes, strict=False) if len(sources) == len(writes) else ():
            if self._kind(tensor).early and tensor.shape == source.shape and storage(tensor) not in self.parameters:
                self.averages[self.parameters[storage(source)], storage(tensor)] = tensor

    def _uses(self, kinds: Sequence[_Kind]) -> None:
        """Samples are used: what parameters are made of is none."""
        self.numbers.used.update(*(k.origins for k in kinds if not k.made))

    def _look(self, kinds: Sequence[_Kind]) -> None:
        """Python is told of tensors."""
        self._uses(kinds)
        self.looked |= any(k.read for k in kinds)
        self.counted |= any(k.read and not k.made for k in kinds)

    @property
    def _decided(self) -> bool:
        """Whether samples may be picked by what Python was told. A loader does not pick them by losses."""
        return self.counted if self.loading else self.looked

    def loads(self, load: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """How a loader picks the next samples."""

        def loaded(loader: Any) -> Any:
            self.loading = True
            try:
                return load(loader)
            finally:
                self.loading = False

        return loaded

    def _kind(self, tensor: Tensor) -> _Kind:
        place = storage(tensor)
        kind = self.kinds.get(place)
        if kind is None:
            kind = self.kinds[place] = _Kind(StorageWeakRef(tensor.untyped_storage()), early=not self.numbers.passes)
        kind.made |= tensor.requires_grad
        return kind

    def _handed(self, name: str, value: Any, base: Sequence[int] | None) -> Any:
        """What is handed out instead of a tensor of samples: a tensor of its own, also where these are some of those of a ``base``."""
        if _is_empty(value):
            self._next(name, value)
        if not _kept(value) or not value.dim() or (base is not None and value.shape[1:] != base[1:]):
            return value
        origin, before = self._next(name, value), self._kind(value).origins
        own = self._given(origin, value)
        self.numbers.samples[origin] = _values(value if own is None else own)
        tensor = value if own is None else own
        if own is not None or base is None:
            kind = self._kind(tensor)
            kind.read, kind.layout = True, (tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))
            kind.holds(origin)
            self.numbers.made[origin] = before
        else:
            self.numbers.within[origin] = before
        return tensor

    def _told(self, name: str, out: Any, beside: tuple[object, ...]) -> tuple[Any, frozenset[Origin]]:
        """What is computed of samples and of something else, which may be each rank's own: where it is so, one process is given it."""
        if _is_empty(out):
            self._next(name, out)
        if not _kept(out):
            return out, frozenset()
        origin = self._next(name, out)
        own = self._given(origin, out)
        self.numbers.beside[origin] = beside
        self.numbers.results[origin] = _values(out if own is None else own)
        return out if own is None else out.copy_(own) if own.shape == out.shape else own, frozenset((origin,))

    def _written(self, name: str, tensor: Tensor) -> None:
        """A part of what holds samples was written: all of it is what is given."""
        kind = self._kind(tensor)
        if kind.origin is None or not (_kept(tensor) or _is_empty(tensor)):
            return
        whole = tensor.as_strided(*kind.layout)
        origin = self._next(name, whole)
        own = self._given(origin, whole)
        if own is not None and own.shape == whole.shape:
            whole.copy_(own)
        self.numbers.samples[origin] = _values(whole)
        self.numbers.within[origin] = kind.origins

    def gives(self, values: Any) -> None:
        """Modules are given samples, or what is made of them."""
        with _disable_current_modes():
            for tensor in (t for t in strided_of(values) if _kept(t) and (kind := self._kind(t)).read and not kind.made):
                self.numbers.given.append(_values(tensor))
                self._uses([kind])

    def _changed(self, name: str, tensor: Tensor, beside: Sequence[object]) -> frozenset[Origin]:
        """A part was written of what is computed of samples, which may be each rank's own part."""
        shape, stride, offset = self._kind(tensor).layout
        part = (tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()) - offset)
        return self._told(name, tensor.as_strided(shape, stride, offset), (part, *beside))[1]

    def _next(self, name: str, tensor: Tensor) -> Origin:
        place = (line_of(self.script), name, str(tensor.dtype), tensor.dim())
        self.counts[place] += 1
        return (*place, self.counts[place])

    def _given(self, origin: Origin, like: Tensor) -> Tensor | None:
        given = self.samples.get(origin)
        return None if given is None else torch.from_numpy(given.copy()).to(like.dtype)


def _beside(args: tuple[Any, ...], kwargs: Mapping[str, Any], others: Sequence[Tensor] = ()) -> tuple[object, ...]:
    """Numbers that an operation is given, and what is in small tensors among ``others``."""
    plain = (_values(t).tobytes() for t in others if _kept(t) and t.numel() <= _FEW)
    return (*(repr(v) for v in tree_leaves((args, kwargs)) if isinstance(v, (int, float))), *plain)


def _values(tensor: Tensor) -> NDArray[np.generic]:
    values: NDArray[np.generic] = _ARRAY(tensor).copy()
    return values


def _kept(value: Any) -> bool:
    plain = type(value) is Tensor and value.layout == torch.strided and not value.requires_grad and not value.is_meta
    return plain and value.device.type == "cpu" and value.dtype != torch.bfloat16 and 0 < value.numel() <= _LARGE


def _is_empty(value: Any) -> bool:
    """Whether there is nothing in a tensor. It is counted, since that of another rank may have something."""
    return isinstance(value, Tensor) and not value.numel()


#: Settings of an optimizer that are handed on.
_PLAIN = (bool, int, float, tuple, list)


def _setting(value: object) -> object:
    one = isinstance(value, Tensor) and value.numel() == 1
    return float(value) if one else value if isinstance(value, _PLAIN) else str(value)  # type: ignore[arg-type]


class _Run:
    """One run, up to the forward pass that follows the recorded step; of parameters that are moved, up to the loss."""

    def __init__(self, mode: _Sampled, trial: Trial) -> None:
        self.mode, self.numbers, self.trial = mode, mode.numbers, trial
        self.known: dict[int, tuple[str, nn.Parameter]] = {}
        self.start, self.eps = dict[str, NDArray[np.float64]](), dict[int, list[object]]()
        self.moved, self.changed = set[int](), set[str]()

    def registered(self, _: nn.Module, __: str, parameter: nn.Parameter | None) -> None:
        """A module has a parameter."""
        if parameter is not None and parameter.requires_grad and parameter.layout == torch.strided:
            with _disable_current_modes():
                self.mode._kind(local(parameter))

    def register(self, module: nn.Module) -> None:
        """A module is run: gradients of its parameters are noted, and it is moved before the step."""
        for name, p in module.named_parameters():
            if p.requires_grad and id(p) not in self.known:
                own = f"{len(self.known)} {_WRAPPED.sub('', name)}"
                self.known[id(p)] = own, p
                self.mode.parameters[storage(local(p))] = own.partition(" ")[2]
                self.numbers.plain &= type(p) is nn.Parameter and p.layout == torch.strided and p.dtype == torch.float64
                self.numbers.begun[own] = _values(local(p).detach().double())
                self.numbers.double &= p.dtype == torch.float64
                if self.trial.aside:
                    local(p).detach().add_(self.trial.aside * torch.cos(40 * local(p).detach() + crc32(name.encode()) % 7))
                self.start[own] = _values(local(p).detach().double())
                p.register_hook(partial(self._made, own))
            if p.requires_grad and self.numbers.passes == self.trial.before and id(p) not in self.moved:
                self.moved.add(id(p))
                own = self.known[id(p)][0]
                chance = torch.Generator().manual_seed(len(self.numbers.directions))
                direction = torch.randn(p.shape, dtype=torch.float64, generator=chance)
                self.numbers.directions[own] = _values(direction)
                if self.trial.shift:
                    p.add_(direction.to(p.dtype) * self.trial.shift)

    def _made(self, name: str, gradient: Tensor) -> Tensor | None:
        with _disable_current_modes(), torch.no_grad():
            changed = (self.trial.times != 1 or self.trial.noise) and gradient.layout == torch.strided
            if changed:
                gradient = gradient.clone()
                self._change(name, gradient)
            own = gradient.detach().to_dense() if gradient.layout != torch.strided else local(gradient).detach()
            self.numbers.gradients[name] = self.numbers.gradients.get(name, 0.0) + _values(own.double())
        return gradient if changed else None

    def _change(self, name: str, gradient: Tensor) -> None:
        """Multiply a gradient, and each element of it by a little more or less."""
        own, chance = local(gradient), torch.Generator().manual_seed(crc32(name.encode()))
        own.mul_(self.trial.times * (1 + self.trial.noise * (2 * torch.randint(2, own.shape, generator=chance) - 1)))
        self.changed.add(name)

    def updates(self, optimizer: optimizers.Optimizer, *_: Any) -> None:
        """An optimizer begins an update."""
        self.mode.updating = True
        number, groups = len(self.numbers.settings), optimizer.param_groups
        given = self.trial.settings[number] if number < len(self.trial.settings) else []
        for group, own in zip(groups, given, strict=False):
            group.update({k: v for k, v in own.items() if isinstance(v, _PLAIN) and isinstance(group.get(k), _PLAIN)})
        self.numbers.settings.append([{k: _setting(v) for k, v in group.items() if k != "params"} for group in groups])
        if self.trial.eps is not None:
            self.eps[id(optimizer)] = [group.get("eps") for group in groups]
            for group in (g for g in groups if type(g.get("eps")) is float):
                group["eps"] = self.trial.eps
        with _disable_current_modes(), torch.no_grad():
            if self.trial.times != 1 or self.trial.noise:
                for name, p in self.known.values():  # a wrapper takes gradients of what it makes of parameters
                    if name not in self.changed and p.grad is not None and p.grad.layout == torch.strided:
                        self._change(name, p.grad)
                self.changed.clear()
            self._reads()

    def _reads(self) -> None:
        empty = {name: np.zeros(0) for name, p in self.known.values() if not local(p).numel()}
        made = {name: p.grad for name, p in self.known.values() if p.grad is not None and p.grad.layout == torch.strided}
        self.numbers.read = empty | {name: _values(local(gradient).detach().double()) for name, gradient in made.items()}

    def updated(self, optimizer: optimizers.Optimizer, *_: Any) -> None:
        """An optimizer ends an update."""
        self.mode.updating = False
        for group, eps in zip(optimizer.param_groups, self.eps.pop(id(optimizer), ()), strict=False):
            group.update({"eps": eps} if type(eps) is float else {})

    def end(self) -> None:
        """The step is over: what is left of parameters."""
        if not self.numbers.left:
            with _disable_current_modes(), torch.no_grad():
                self.numbers.left.update({name: _values(local(p).detach().double()) for name, p in self.known.values()})
                pairs = ((name, self.start[name], left) for name, left in self.numbers.left.items())
                self.numbers.moved = {n: left - start if start.shape == left.shape else np.zeros(0) for n, start, left in pairs}
                if not self.numbers.settings:  # updates are made by hand
                    self._reads()
                for name, tensor in ((name, tensor) for (name, _), tensor in self.mode.averages.items()):
                    self.numbers.averages.setdefault(name, []).append(_values(tensor.detach().double()))

    def called(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """How modules are called."""

        def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            mode = self.mode
            outer = not mode.inside and not mode.off and torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters())
            if outer and self.numbers.passes >= self.trial.before + self.trial.passes:
                raise Enough
            if outer:
                with _disable_current_modes(), torch.no_grad():
                    self.register(module)
                mode.begun = True
                mode.gives((args, kwargs))
                given = next((t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor) and t.dim()), None)
                self.numbers.rows = self.numbers.rows or (0 if given is None else int(given.shape[0]))
            mode.inside += 1
            try:
                return call(module, *args, **kwargs)
            finally:
                mode.inside -= 1

        return called

    def differentiated(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        """How losses are differentiated."""

        def differentiated(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if not self.mode.off:
                self._of(tensors if isinstance(tensors, Tensor) else next(iter(tensors)))
            was, self.mode.off = self.mode.off, True
            try:
                backward(tensors, *args, **kwargs)
            finally:
                self.mode.off = was
            with _disable_current_modes():
                for gradient in (p.grad for _, p in self.known.values() if p.grad is not None):
                    self.mode._kind(local(gradient)).made = True

        return differentiated

    def _of(self, loss: Tensor) -> None:
        numbers = self.numbers
        numbers.passes += 1
        numbers.gradients.clear()
        with _disable_current_modes():
            turn = read_loss(loss, 0)
            numbers.loss = float(loss.detach().sum())
            numbers.factors = turn.numbers
            numbers.mean = not (turn.text or turn.summed or turn.beside or turn.numbers) and turn.factor == 1
        if self.trial.shift and numbers.passes > self.trial.before:
            raise Enough


@contextmanager
def numbered(numbers: Numbers, samples: Samples, script: str, trial: Trial) -> Iterator[None]:
    """Watch a run of a script, and fill ``numbers``. ``samples``: what it is given instead of its own."""
    mode = _Sampled(numbers, samples, script, trial)
    run, default = _Run(mode, trial), torch.get_default_dtype()
    with ExitStack() as stack:
        torch.set_default_dtype(torch.float64)
        stack.callback(torch.set_default_dtype, default)
        stack.enter_context(mock.patch.object(torch.autograd, "backward", run.differentiated(torch.autograd.backward)))
        stack.enter_context(mock.patch.object(nn.Module, "__call__", run.called(nn.Module.__call__)))
        loads = mode.loads(_BaseDataLoaderIter.__next__)
        stack.enter_context(mock.patch.object(_BaseDataLoaderIter, "__next__", loads))
        for name in _TOLD:
            stack.enter_context(mock.patch.object(Tensor, name, mode.telling(getattr(Tensor, name))))
        stack.callback(run.end)
        stack.callback(optimizers.register_optimizer_step_pre_hook(run.updates).remove)
        stack.callback(optimizers.register_optimizer_step_post_hook(run.updated).remove)
        stack.callback(modules.register_module_parameter_registration_hook(run.registered).remove)
        stack.enter_context(Doubled())
        stack.enter_context(mode)
        yield
