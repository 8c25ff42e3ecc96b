"""Runs a training script as one rank, with everything in place that lets its step be followed, and takes it away again."""

from __future__ import annotations

import ast
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from inspect import signature
from math import prod
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed.fsdp  # what a script imports while it is followed would be followed
import torch.distributed.optim
import torch.distributed.tensor.parallel
from torch import Tensor, nn
from torch.distributed import device_mesh
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp._flat_param import FlatParameter
from torch.distributed.fsdp._fully_shard import _fsdp_collectives as fsdp_collectives
from torch.nn.modules import module as modules
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optimizers
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from placeproof.measure.processes import launched
from placeproof.measure.record.arithmetic import number
from placeproof.measure.record.chain import refuse_lines
from placeproof.measure.record.copies import Copies
from placeproof.measure.record.derivative import Ran, disagrees, disagrees_in_parts, moving
from placeproof.measure.record.exchange import CHANGES, Underway, awaited
from placeproof.measure.record.follow import Follower, OverError
from placeproof.measure.record.frames import line_of
from placeproof.measure.record.functions import Checked, checking
from placeproof.measure.record.launch import Launch
from placeproof.measure.record.loss import gradients_of, read_loss, unread
from placeproof.measure.record.modes import Called, Dispatched
from placeproof.measure.record.nodes import Nodes
from placeproof.measure.record.numbered import numbered
from placeproof.measure.record.recording import Instead, Recording
from placeproof.measure.record.samples import Enough, Replaced, Replacing, dependent, of_others, watched, ways
from placeproof.measure.record.scalars import numbers
from placeproof.measure.record.shadow import local
from placeproof.measure.record.together import Numbers, Samples, Trial
from placeproof.measure.record.trail import Trail
from placeproof.measure.training.session import undisturbed

#: What every new process begins with (torch==2.13.0: c10::detail, default_rng_seed_val).
_SEED = 67280421310721
#: After so many steps a GradScaler's scale grows, unless it is said otherwise (torch==2.13.0).
_GROWTH = 2000
#: How often at most a step is run again to find which makers of tensors make single samples.
_AGAIN = 24


def alone(launch: Launch, rank: int, trail: Path) -> Recording:
    """Follow one rank without the others: collectives of the fake backend return at once, with whatever data."""
    from torch.testing._internal.distributed.fake_pg import FakeStore  # registers the backend

    with undisturbed(), environment(launch, rank):
        dist.init_process_group("fake", rank=rank, world_size=launch.world, store=FakeStore())
        try:
            return _followed(launch, rank, trail, fake=True)
        finally:
            dist.destroy_process_group()


def as_parameters_are(launch: Launch, rank: int, trail: Path) -> Recording:
    """Follow a rank without the others; FSDP1 shows parameters as the script has made them."""
    init = FullyShardedDataParallel.__init__

    def original(self: FullyShardedDataParallel, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **{**kwargs, "use_orig_params": True})

    with mock.patch.object(FullyShardedDataParallel, "__init__", original):
        return alone(launch, rank, trail)


def among_others(launch: Launch, rank: int, trail: Path) -> Recording:
    """Follow this rank of the process group that exists, while all others do the same."""
    with undisturbed(), environment(launch, rank):
        return _followed(launch, rank, trail, fake=False)


def beyond(launch: Launch, rank: int, trail: Path, scale: int = 1, instead: Instead | None = None, *, keep: bool = False) -> Recording:
    """Follow this rank of the process group that exists, and keep what it has of parameters until further steps are over. ``scale``: times
    what a GradScaler begins with that would grow by itself; ``instead``: what samples are to be; ``keep``: for backward, what was received
    as forward has read it."""
    init = torch.amp.GradScaler.__init__

    def scaling(self: torch.amp.GradScaler, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if self.is_enabled() and self.get_growth_interval() <= _GROWTH:
            self._init_scale *= scale

    with undisturbed(), environment(launch, rank), mock.patch.object(torch.amp.GradScaler, "__init__", scaling):
        recording = _followed(launch, rank, trail, fake=False, kind=partial(Copies, instead=instead or {}, keep=keep))
    dist.destroy_process_group()  # one that updates nothing does not know when the others have seen enough, and waits for them
    return recording


def with_others(launch: Launch, rank: int, recorded: Recording, way: int, *, apart: bool) -> list[tuple[str, int]]:
    """What is wrong with losses of a recorded step as sums over samples, with the lines of the script: seen by running it again with none,
    each half and both halves of a micro-batch's samples replaced. Other ranks do the same if they ran when it was recorded. ``way``: the
    number of one of the :func:`~placeproof.measure.record.samples.ways`. ``apart``: ranks have samples of their own, and those of rank 0
    are replaced once more, alone."""
    chosen = ways(rank, recorded.world)[way]
    known, first = Replaced(), _replaced(launch, rank, recorded, frozenset(), Replaced(), chosen)
    for _ in range(_AGAIN):  # what is made of a single sample may be one, too
        if first.single == known.single:
            break
        known = first
        first = _replaced(launch, rank, recorded, frozenset(), Replaced(single=known.single), chosen)
    halves = (frozenset((0,)), frozenset((1,)), frozenset((0, 1)))
    runs = [first, *(_replaced(launch, rank, recorded, half, first, chosen) for half in halves)]
    wrong = dependent(runs, recorded)
    theirs = _replaced(launch, rank, recorded, halves[2] if rank == 0 else frozenset(), first, chosen) if apart else first
    return wrong or (of_others(first, theirs, recorded) if apart and rank else [])


def as_numbers(launch: Launch, rank: int, samples: Samples, trial: Trial) -> Numbers:
    """What this rank of the process group that exists comes to in a step, in double precision, with given samples: see ``numbered``."""
    numbers, script = Numbers(), launch.script.resolve()
    blank = Recording(rank=rank, world=launch.world, script=script.name, source=(), nodes=Nodes(), real=True)
    _again(launch, rank, blank, numbered(numbers, samples, str(script), trial))
    return numbers


def as_functions(launch: Launch, rank: int, recorded: Recording) -> list[tuple[str, int]]:
    """What is wrong with modules as functions that all ranks share, and with their derivatives, with the lines of the script."""
    script = str(launch.script.resolve())
    found = Checked(lambda: line_of(script))
    _again(launch, rank, replace(recorded, real=True), checking(found, len(recorded.turns)))
    return list(dict.fromkeys(found.wrong))


def as_derivative(launch: Launch, rank: int, recorded: Recording) -> list[tuple[str, int]]:
    """What is wrong with gradients of a pipeline as derivatives of its losses, with the line of the last of these."""

    def run(moved: Sequence[Tensor]) -> Ran:
        ran = Ran(moved=moved)
        _again(launch, rank, replace(recorded, real=True), moving(ran, len(recorded.turns), len(recorded.stretches)))
        return ran

    text = disagrees(run, recorded.line)
    return [(text, recorded.turns[-1].line)] if text else []


def as_parts(launch: Launch, rank: int, recorded: Recording, own: frozenset[str], line: Sequence[int]) -> list[tuple[str, int]]:
    """What is wrong with gradients of layers that these ranks split, with a line. ``own``: names of parts."""

    def place(name: str) -> int:
        return 1 + line.index(rank) if name in own else 0

    def run(moved: Sequence[Tensor]) -> Ran:
        ran = Ran(moved=moved, place=place)
        _again(launch, rank, replace(recorded, real=True), moving(ran, len(recorded.turns), len(recorded.turns)))
        return ran

    text = disagrees_in_parts(run, place, line)
    return [(text, recorded.turns[-1].line)] if text else []


def _replaced(launch: Launch, rank: int, recorded: Recording, halves: frozenset[int], known: Replaced, way: tuple[int, int]) -> Replaced:
    found = Replaced()
    mode = Replacing({n for n in recorded.rows.values() if n > 1}, recorded.world * len(recorded.turns), halves, known, way)
    _again(launch, rank, recorded, watched(mode, found, len(recorded.turns), passed=recorded.passed, piped=bool(recorded.line)))
    return found


def _again(launch: Launch, rank: int, recorded: Recording, watching: AbstractContextManager[None]) -> None:
    """Run a script again that was recorded, up to where watching it ends."""
    world = recorded.world
    with undisturbed(), environment(launch, rank), ExitStack() as stack:
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        if not recorded.real:
            from torch.testing._internal.distributed.fake_pg import FakeStore  # registers the backend

            dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
            stack.callback(dist.destroy_process_group)
        torch.manual_seed(_SEED)
        for change in (
            _groups(Recording(rank=rank, world=world, script="", source=(), nodes=Nodes())),
            _parallel(Underway(), fake=not recorded.real),
            _of_one_rank() if world == 1 else nullcontext(),
        ):
            stack.enter_context(change)
        with suppress(Enough), watching:
            ran(launch.script.resolve())


def _followed(launch: Launch, rank: int, trail: Path, *, fake: bool, kind: Callable[..., Follower] = Follower) -> Recording:
    script = launch.script.resolve()
    source = tuple(script.read_text(encoding="utf-8").splitlines())
    recording = Recording(rank=rank, world=launch.world, script=script.name, source=source, nodes=Nodes(), real=not fake)
    follower = kind(recording, script, launch.step, Trail(trail))
    torch.manual_seed(_SEED)
    with ExitStack() as stack:
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        watching = (_hooks, _updates, _optimizers, _given, _copied, _freed, _applied, _backward, _communication)
        for change in (_groups(recording), _parallel(follower.underway, fake=fake), *(watch(follower) for watch in watching)):
            stack.enter_context(change)
        if isinstance(follower, Copies):
            stack.enter_context(follower.counting())
            stack.enter_context(follower.keeping())
        stack.enter_context(numbers(follower.arithmetic, follower.shadows))
        stack.enter_context(Called(follower))
        stack.enter_context(Dispatched(follower))
        try:
            if ran(script):
                follower.returned()
        except Exception:
            if not follower.seen:
                raise
        follower.end()
    return recording


def ran(script: Path) -> bool:
    """The script's ``train()`` if it has one, or all of it as the main program: whether it came to its end."""
    try:
        if _is_called(script.read_text(encoding="utf-8")):
            runpy.run_path(str(script), run_name="__placeproof__")["train"]()
        else:
            runpy.run_path(str(script), run_name="__main__")
    except OverError:
        return False
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise
    return True


def _is_called(text: str) -> bool:
    """Whether a script is run by its ``train()``, which needs no arguments. What Python cannot read is left for it to say."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return False
    found = [f.args for f in body if isinstance(f, ast.FunctionDef) and f.name == "train"]
    return any(len(a.posonlyargs) + len(a.args) <= len(a.defaults) and all(d is not None for d in a.kw_defaults) for a in found[-1:])


@contextmanager
def environment(launch: Launch, rank: int) -> Iterator[None]:
    """What a launcher would set, and a path on which the script finds its own modules; those are forgotten afterwards."""
    script = launch.script.resolve()
    settings = launched(rank, launch.world) | {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    before, path, arguments = dict(sys.modules), list(sys.path), sys.argv
    sys.path.insert(0, str(script.parent))
    sys.argv = [str(script), *launch.arguments]
    try:
        with mock.patch.dict(os.environ, settings):
            yield
    finally:
        sys.path[:], sys.argv = path, arguments
        for name in set(sys.modules) - set(before):
            where = getattr(sys.modules[name], "__file__", None)
            if where and Path(where).parent == script.parent:
                del sys.modules[name]


@contextmanager
def _groups(recording: Recording) -> Iterator[None]:
    """The process group is there already; the first mesh that covers all ranks names the axes."""
    original = DeviceMesh.__init__

    def init(self: DeviceMesh, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        names = getattr(self, "_mesh_dim_names", None) or tuple(f"g{i}" for i in range(self.ndim))
        sizes = tuple(self.shape)
        if not recording.mesh and prod(sizes) == recording.world and len(names) == len(sizes):
            recording.mesh.update(zip(names, sizes, strict=True))

    def nothing(*args: Any, **kwargs: Any) -> None:
        return None

    with (
        mock.patch.object(DeviceMesh, "__init__", init),
        mock.patch.object(dist, "init_process_group", nothing),
        mock.patch.object(dist, "destroy_process_group", nothing),
    ):
        yield


@contextmanager
def _of_one_rank() -> Iterator[None]:
    """Meshes whose sizes are written out have one rank on each axis, as those of a single process have."""
    make, init = device_mesh.init_device_mesh, DeviceMesh.__init__

    def made(device_type: str, mesh_shape: tuple[int, ...], *args: Any, **kwargs: Any) -> DeviceMesh:
        return make(device_type, (1,) * len(mesh_shape), *args, **kwargs)

    def of_one(self: DeviceMesh, device_type: str, mesh: Any = None, *args: Any, **kwargs: Any) -> None:
        init(self, device_type, mesh if mesh is None else torch.zeros([1] * torch.as_tensor(mesh).ndim, dtype=torch.int), *args, **kwargs)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(DeviceMesh, "__init__", of_one))
        for module in (device_mesh, dist, torch.distributed.tensor):
            stack.enter_context(mock.patch.object(module, "init_device_mesh", made))
        yield


@contextmanager
def _hooks(follower: Follower) -> Iterator[None]:
    """Parameters are known from when a module has them."""

    def registered(module: nn.Module, name: str, parameter: Tensor | None) -> None:
        if parameter is not None:
            follower.computed.registers(parameter)
        if parameter is not None and follower.phase == "setup":
            follower.parameter(parameter)

    def forward(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters()):
            follower.next_step()
        if follower.phase in ("setup", "between"):
            follower.phase = "forward"  # before what a wrapper gathers for the module
        if not follower.begun:
            follower.begin(module)
            for name, parameter in module.named_parameters():
                follower.rename(parameter, name.removeprefix("module."))

    handles = (
        modules.register_module_parameter_registration_hook(registered),
        modules.register_module_forward_pre_hook(forward),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _updates(follower: Follower) -> Iterator[None]:
    """Updates are known from when an optimizer begins one."""

    def updates(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        scale = getattr(optimizer, "grad_scale", None)  # set by a GradScaler for optimizers that unscale by themselves
        follower.optimizers.updates(optimizer)
        follower.settings(optimizer)
        follower.before_update([p for group in optimizer.param_groups for p in group["params"]], number(scale))

    def ended(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        follower.after_update()

    inner: dict[int, list[Any]] = {}

    def before(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Hooks that the script gave this optimizer run before its update and after it: they are no part of it."""
        first = optimizer.register_step_post_hook(ended)
        optimizer._optimizer_step_post_hooks.move_to_end(first.id, last=False)
        inner.setdefault(id(optimizer), []).extend((optimizer.register_step_pre_hook(updates), first))

    def after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for handle in inner.pop(id(optimizer), []):
            handle.remove()

    handles = optimizers.register_optimizer_step_pre_hook(before), optimizers.register_optimizer_step_post_hook(after)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _optimizers(follower: Follower) -> Iterator[None]:
    """Optimizers are known from when they have parameters."""
    added = torch.optim.Optimizer.add_param_group

    def made(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> None:
        added(optimizer, group)
        follower.optimizers.made(optimizer)
        follower.recording.grouped_at = follower.line()
        for tensor in optimizer.param_groups[-1]["params"] if follower.phase == "setup" else ():
            if tensor.requires_grad:
                follower.parameter(tensor)

    with mock.patch.object(torch.optim.Optimizer, "add_param_group", made):
        yield


@contextmanager
def _freed(follower: Follower) -> Iterator[None]:
    """Memory that is let go of, and taken again, without an operation: what was in it is gone, and nobody has written over it."""
    resize = torch.UntypedStorage.resize_

    def resized(self: torch.UntypedStorage, size: int) -> Any:
        follower.memory.freed(self)
        return resize(self, size)

    with mock.patch.object(torch.UntypedStorage, "resize_", resized):
        yield


@contextmanager
def _copied(follower: Follower) -> Iterator[None]:
    """Tensors that are copied with their storage, without an operation."""
    original = Tensor.__deepcopy__

    def deepcopy(self: Tensor, memo: Any) -> Tensor:
        copy: Tensor = original(self, memo)
        if not follower.frozen and not isinstance(self, nn.Parameter):
            follower.adapting.copies(self, copy, follower.line())
        return copy

    with mock.patch.object(Tensor, "__deepcopy__", deepcopy):
        yield


@contextmanager
def _given(follower: Follower) -> Iterator[None]:
    """What modules are given that no other one calls: hooks of all modules are not told what is given by keyword."""
    call = nn.Module.__call__

    def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        outer = not follower.inside and torch.is_grad_enabled() and follower.phase != "backward"  # where activations are computed again
        if outer:
            follower.given(tree_leaves((args, kwargs)))
        outer &= not follower.frozen
        made = follower.stretches.call(tree_leaves((args, kwargs)), follower.line()) if outer else None
        if not follower.inside:
            follower.runs(module)
        follower.inside += 1
        try:
            out = call(module, *args, **kwargs)
        finally:
            follower.inside -= 1
        if not follower.inside and not follower.frozen and follower.phase != "backward":
            with _disable_current_modes():
                follower.computed.reads(module, follower.changed, later=follower.phase in ("update", "after"))
        if made is not None:
            follower.stretches.result(made, tree_leaves(out))
            follower.computed.made(local(t) for t in tree_leaves(out) if isinstance(t, Tensor))
        return out

    with mock.patch.object(nn.Module, "__call__", called):
        yield


@contextmanager
def _applied(follower: Follower) -> Iterator[None]:
    """Functions with a backward of their own are shown to no mode of PyTorch."""
    original = torch.autograd.Function.apply.__func__

    def apply(cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
        out = original(cls, *args, **kwargs)
        if follower.begun:  # before, distributed tensors are made of parameters
            follower.function((*args, *kwargs.values()), out)
        return out

    with mock.patch.object(torch.autograd.Function, "apply", classmethod(apply)):
        yield


@contextmanager
def _backward(follower: Follower) -> Iterator[None]:
    """Backward passes are counted, and their losses read."""
    original, scale, engine = torch.autograd.backward, torch.amp.GradScaler.scale, torch.autograd._engine_run_backward

    def scaled(self: torch.amp.GradScaler, outputs: Any) -> Any:
        out = scale(self, outputs)
        with _disable_current_modes():
            follower.recording.scales |= {found} if (found := number(self.get_scale())) else set()
        return out

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        outer = not follower.frozen and follower.phase != "backward"
        if outer:
            follower.begin_pass()
            roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
            text = follower.stretches.begin(roots, gradients_of(args, kwargs))
            follower.recording.turns.append(unread(text, follower.line()) if text else read_loss(roots[0], follower.line()))
            known = follower.read  # of a flat parameter each rank reads pieces of its own
            states = {key: known[key] for key, leaf in follower.leaves.items() if key in known and not isinstance(leaf, FlatParameter)}
            follower.computed.loss(roots[0].grad_fn, lambda leaf: states.get(id(leaf), frozenset()))
            follower.phase, follower.passing = "backward", True
        original(tensors, *args, **kwargs)
        if outer:  # else activations are computed once more within a pass, and differentiated
            follower.passing = False
            follower.stretches.end()
            follower.computed.passed()
            follower.phase = "between" if follower.phase == "backward" else follower.phase

    def engaged(*args: Any, **kwargs: Any) -> Any:
        with ExitStack() as stack:  # `Tensor.backward` turns off what is shown functions
            if not any(isinstance(mode, Called) for mode in _get_current_function_mode_stack()):
                stack.enter_context(Called(follower))
            return engine(*args, **kwargs)

    with (
        mock.patch.object(torch.autograd, "backward", backward),
        mock.patch.object(torch.autograd, "_engine_run_backward", engaged),
        mock.patch.object(torch.amp.GradScaler, "scale", scaled),
    ):
        yield


@contextmanager
def _parallel(underway: Underway, *, fake: bool) -> Iterator[None]:
    """What PyTorch's wrappers do is done in ways that can be followed.

    DistributedDataParallel's reducer cannot wait for the fake backend: a hook does what it does by itself, unless there is one. What a
    hook does when an all-reduce has ended is done here, and not by a thread of the backend. What FSDP2 lets NCCL multiply before it adds
    up, it divides by itself.
    """
    forward, factors = DistributedDataParallel.forward, fsdp_collectives._get_gradient_divide_factors

    def hooked(self: DistributedDataParallel, *args: Any, **kwargs: Any) -> Any:
        if fake and not self._comm_hooks:
            self.register_comm_hook(self.process_group, _reducer())
        return forward(self, *args, **kwargs)

    def divided(*args: Any, **kwargs: Any) -> Any:
        found = factors(*args, **kwargs)
        if all(op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG) for op in found[2:]):
            return found
        given = signature(factors).bind(*args, **kwargs).arguments
        return factors(**{**given, "force_sum_reduction_for_comms": True})

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(DistributedDataParallel, "forward", hooked))
        stack.enter_context(mock.patch.object(fsdp_collectives, "_get_gradient_divide_factors", divided))
        for name in CHANGES:
            for module in (dist, dist.distributed_c10d):
                stack.enter_context(mock.patch.object(module, name, awaited(name, getattr(module, name), underway)))
        yield


#: Modules of hooks that send something else than gradients, or will after some steps.
_APPROXIMATE = ("powerSGD_hook", "quantization_hooks", "post_localSGD_hook")


@contextmanager
def _communication(follower: Follower) -> Iterator[None]:
    """Hooks of DistributedDataParallel that approximate gradients are refused."""
    register = DistributedDataParallel.register_comm_hook

    def registered(self: DistributedDataParallel, state: object, hook: Callable[..., Any]) -> None:
        inside = [hook, *(cell.cell_contents for cell in getattr(hook, "__closure__", None) or ())]
        names = {str(getattr(h, "__module__", "")).rpartition(".")[2]: getattr(h, "__name__", "") for h in inside}
        text = "`{}` trains what no one device trains: it sends approximations of gradients, or will after some steps"
        if name := next((names[m] for m in _APPROXIMATE if m in names), ""):
            refuse_lines(follower.recording.script, follower.recording.source, [(text.format(name), follower.line())])
        register(self, state, hook)

    with mock.patch.object(DistributedDataParallel, "register_comm_hook", registered):
        yield


def _reducer() -> Callable[[Any, Any], Any]:
    def reduce(group, bucket):  # type: ignore[no-untyped-def]  # annotations of a hook are compared with types
        dist.all_reduce(bucket.buffer().div_(group.size()), group=group)
        done: Any = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    return reduce
