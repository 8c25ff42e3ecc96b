"""The shapes of the module that a training script trains: the script runs up to its first update, as one rank of several, unwrapped."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed._composable.fsdp as composable
from torch import nn
from torch.distributed import fsdp
from torch.distributed.fsdp.wrap import _Policy, _recursive_wrap
from torch.optim import optimizer as optimizers

from placeproof.core.diagnostics import Diagnostic, InputError, refuse
from placeproof.core.shapes import Shapes
from placeproof.measure.module import Watched, in_backward
from placeproof.measure.record.follow import OverError
from placeproof.measure.record.launch import Launch
from placeproof.measure.record.session import environment, ran
from placeproof.measure.training.session import undisturbed

_HELP = "a script whose module is called, goes backward, and is updated by an optimizer of torch.optim can be read"
#: What wrapped modules can be asked for beside what modules can, by the names of PyTorch's methods.
_QUIET = [name for name in dir(fsdp.FSDPModule) if name.startswith("set_") or name in ("reshard", "unshard")]


def shapes_of(launch: Launch, kinds: Collection[str]) -> Shapes | tuple[Diagnostic, ...]:
    """The shapes, or what is wrong. ``kinds``: names of classes whose modules are wrapped by themselves, where the script wraps none."""
    from torch.testing._internal.distributed.fake_pg import FakeStore  # registers the backend

    with undisturbed(), environment(launch, 0):
        dist.init_process_group("fake", rank=0, world_size=launch.world, store=FakeStore())
        try:
            return _Script(kinds).run(launch)
        except InputError as error:
            return error.diagnostics
        finally:
            dist.destroy_process_group()


class _Script:
    """What is seen of a script. ``units``: modules that it wraps; ``watched``: the module that it calls first, with parameters to train."""

    def __init__(self, kinds: Collection[str]) -> None:
        self.kinds = kinds
        self.units: list[nn.Module] = []
        self.watched: Watched | None = None
        self._inside = 0

    def run(self, launch: Launch) -> Shapes:
        """Run the script. Raises InputError."""
        torch.manual_seed(0)
        with ExitStack() as stack:
            for change in (_no_groups(), self._unwrapped(), self._outermost()):
                stack.enter_context(change)
            handle = optimizers.register_optimizer_step_pre_hook(self._update)
            stack.callback(handle.remove)
            ran(launch.script.resolve())
        if self.watched is None or not self.watched.order:
            refuse("PP603", f"{launch.script.name} trains no module: none ran forward and backward before an update", help=_HELP)
        shapes = self.watched.shapes(f"{launch.script.stem}, {_class(self.watched.module).__name__}")
        self.watched.__exit__()
        return shapes

    def _update(self, *_: Any) -> None:
        if self.watched is not None and self.watched.order:
            raise OverError

    @contextmanager
    def _outermost(self) -> Iterator[None]:
        """Modules that no other one calls: the first that has parameters to train is watched."""
        call = nn.Module.__call__

        def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            own = not self._inside and torch.is_grad_enabled() and not in_backward()
            if own and any(p.requires_grad for p in module.parameters()):
                self._begin(module)
            self._inside += 1
            try:
                return call(module, *args, **kwargs)
            finally:
                self._inside -= 1

        with mock.patch.object(nn.Module, "__call__", called):
            yield

    def _begin(self, module: nn.Module) -> None:
        if self.watched is None:
            self.watched = Watched(module, self._units(module))
            self.watched.__enter__()
        elif module is not self.watched.module:
            names = " and ".join(_class(one).__name__ for one in (self.watched.module, module))
            refuse("PP603", f"the script trains two modules, {names}", help="exact bytes are of one module: call it as one")

    def _units(self, module: nn.Module) -> list[nn.Module]:
        """The modules that are wrapped by themselves: as the script says, as whoever asks does, or as transformers' own trainer does."""
        if self.units and not self.kinds:
            return self.units
        kinds = set(self.kinds or getattr(module, "_no_split_modules", None) or ())
        found = [one for one in module.modules() if _class(one).__name__ in kinds]
        if self.kinds and not found:
            refuse("PP603", f"the module has no {' and no '.join(sorted(kinds))}", help="name classes of its own modules")
        return found

    # What wraps modules does not: shapes are of the module as it is.

    @contextmanager
    def _unwrapped(self) -> Iterator[None]:
        script = self

        class Parallel:
            def __new__(cls, module: nn.Module, *_: Any, **__: Any) -> Any:
                return _plain(module)

        class Flat:
            def __new__(cls, module: nn.Module, *_: Any, auto_wrap_policy: Any = None, **__: Any) -> Any:
                script._by_policy(module, auto_wrap_policy)
                script.units.append(module)
                return _plain(module)

        def shard(module: Any, *_: Any, **__: Any) -> Any:
            if not isinstance(module, nn.Module):
                refuse(
                    "PP603", "`fully_shard` of a list of modules makes one unit of them", help="exact bytes are of units that are modules"
                )
            script.units.append(module)
            return _plain(module)

        wraps: list[tuple[str, Any, tuple[Any, ...]]] = [
            ("DistributedDataParallel", Parallel, (nn.parallel, nn.parallel.distributed)),
            ("FullyShardedDataParallel", Flat, (fsdp, fsdp.fully_sharded_data_parallel)),
            ("fully_shard", shard, (fsdp, fsdp._fully_shard, composable)),
        ]
        with ExitStack() as stack:
            for name, made, places in wraps:
                for where in places:
                    stack.enter_context(mock.patch.object(where, name, made))
            yield

    def _by_policy(self, module: nn.Module, policy: Any) -> None:
        """The modules that a policy of FullyShardedDataParallel wraps."""
        if policy is None:
            return
        if isinstance(policy, _Policy):
            self.units += [one for one in policy._run_policy(module, set(), {}) if one is not module]
            return

        script = self

        class Noted:
            def __new__(cls, module: nn.Module, **_: Any) -> Any:
                script.units.append(module)
                return module

        _recursive_wrap(module, policy, Noted, set(), set(), only_wrap_children=True)


def _class(module: nn.Module) -> type:
    """The class of a module before it was wrapped."""
    own: type = getattr(type(module), "_own_class", type(module))
    return own


def _plain(module: nn.Module) -> nn.Module:
    """The module itself, which can be asked for what its wrapper can: that does nothing."""
    of = _class(module)
    more: dict[str, Any] = {**dict.fromkeys(_QUIET, lambda *_, **__: None), "_own_class": of}
    more["no_sync"] = lambda *_: nullcontext()
    more["clip_grad_norm_"] = lambda self, *args, **kwargs: nn.utils.clip_grad_norm_(self.parameters(), *args, **kwargs)
    if "module" not in module._modules:
        more["module"] = property(lambda self: self)
    module.__class__ = type(of.__name__, (of,), {name: what for name, what in more.items() if not hasattr(of, name)})
    return module


@contextmanager
def _no_groups() -> Iterator[None]:
    """The process group is there already."""

    def nothing(*args: Any, **kwargs: Any) -> None:
        return None

    with mock.patch.object(dist, "init_process_group", nothing), mock.patch.object(dist, "destroy_process_group", nothing):
        yield
