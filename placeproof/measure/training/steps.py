"""Training steps of one rank: the module is built and wrapped, trained for some steps, and the last step is recorded."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn import functional

from placeproof.core.exchange import Exchange
from placeproof.core.shapes import Shapes
from placeproof.cost.exact.options import Value, amounts
from placeproof.measure import memory
from placeproof.measure.recorder import Recorder, axes_of_groups
from placeproof.measure.training import pipeline
from placeproof.measure.training.models import Piece, build, check, stream_shape
from placeproof.measure.training.subjects import Subject, is_decoder
from placeproof.measure.training.wrap import WRAPS, Job, optimizer

#: The most parameters that are allocated on the fake backend; larger models run on tensors that have shapes and no data.
ALLOCATED = 4_000_000
_SERIAL = itertools.count()


@dataclass(frozen=True, slots=True)
class Setting:
    """What is measured; ``options`` are settled."""

    subject: Subject
    shapes: Shapes
    mesh: Mapping[str, int]
    backend: str
    options: Mapping[str, Value]

    @property
    def hollow(self) -> bool:
        """Whether tensors have no data. Only where nothing is received that the step depends on, and nothing has to be there."""
        return self.backend == "fake" and not self.subject.allocates and self.shapes.elements > ALLOCATED

    @property
    def dtype(self) -> torch.dtype:
        """Of parameters, and of the stream between units."""
        dtype: torch.dtype = getattr(torch, str(self.options["dtype"]))
        return dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedStep:
    """What was seen of the last step, and, in ``setup``, before the first one: as in :class:`placeproof.measure.measured.Measured`."""

    exchanges: tuple[Exchange, ...]
    dtypes: tuple[str, ...]
    setup: tuple[Exchange, ...]
    memory: Mapping[str, int]


#: Forward and backward of one step.
_Pass: TypeAlias = Callable[[], None]


def train(setting: Setting) -> ObservedStep:
    """All steps of this rank in the default process group, which has as many ranks as the mesh has devices."""
    job = Job(mesh=_mesh(setting), axes=tuple(setting.mesh), backend=setting.backend, options=setting.options, buffers=_buffers(setting))
    recorder = Recorder(axes_of_groups(job.mesh, job.axes))
    with recorder:
        modules = _modules(setting, job)
    recorder.axes.update(job.groups)
    setup = recorder.take()
    # Meshes and layouts are made before: with fake tensors, that takes minutes where it takes seconds.
    mode: AbstractContextManager[Any] = FakeTensorMode(allow_non_fake_inputs=True) if setting.hollow else nullcontext()
    with mode:
        for module in modules.values():
            _fill(module)
        update = optimizer(modules.values(), job, sharded=setting.subject.name == "zero_redundancy")
        run = _pipelined(setting, job, modules, recorder) if setting.subject.schedule else _plain(setting, modules[0], recorder)
        for _ in range(int(setting.options["step"] or 1) - 1):
            run()
            update.step()
            update.zero_grad(set_to_none=True)
        sizes = _record(list(modules.values()), update, run, recorder)
    dtypes = tuple(recorder.dtypes)
    return ObservedStep(exchanges=recorder.take(), dtypes=dtypes, setup=setup, memory=sizes)


def _buffers(setting: Setting) -> tuple[tuple[str, int], ...]:
    """Elements of the buffers that are registered, by their type: those of the shapes, unless the option says others."""
    option = setting.options.get("buffer")
    return tuple((kind, count) for kind, count in (setting.shapes.buffers if option is None else amounts(option)) or () if count)


def _mesh(setting: Setting) -> DeviceMesh:
    """A mesh that is equal to no other one.

    PyTorch remembers how operations lay out tensors, with the mesh, and finds it again by an equal mesh. But the groups of two meshes
    that compare as equal are called otherwise where a process has been another rank before, as only measurements are.
    """
    serial = next(_SERIAL)
    return init_device_mesh("cpu", tuple(setting.mesh.values()), mesh_dim_names=tuple(f"{axis}_{serial}" for axis in setting.mesh))


def _modules(setting: Setting, job: Job) -> dict[int, nn.Module]:
    """The wrapped modules of this rank, by the index of their stage."""
    if not setting.subject.schedule:
        return {0: _module(setting, job, None)}
    virtual = int(setting.subject.virtual or setting.options["virtual"] or 1)
    group = job.group("pp")
    pieces = pipeline.pieces(setting.shapes, setting.subject.schedule, group.rank(), group.size(), virtual)
    return {index: _module(setting, job, piece) for index, piece in pieces.items()}


def _module(setting: Setting, job: Job, piece: Piece | None) -> nn.Module:
    # DTensor and FSDP lay out what lies nowhere yet; the others want parameters that are there.
    with torch.device("cpu" if setting.subject.allocates else "meta"):
        model = build(setting.shapes, piece).to(setting.dtype)
    if piece is None:
        check(setting.shapes, model)
    module: nn.Module = model
    for name in setting.subject.wraps:  # where there are several, each changes the model in place
        module = WRAPS[name](model, job)
    return module


def _fill(module: nn.Module) -> None:
    """Random parameters, allocated where they are not. Their values matter to nothing that is measured, if they are finite."""
    if any(p.is_meta for p in module.parameters()):
        module.to_empty(device="cpu")
    with torch.no_grad():
        for p in module.parameters():
            memory.local(p).uniform_(-0.25, 0.25)


def _loss(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of logits (batch, tokens, vocab) for targets (batch, tokens); the mean square of a stream."""
    if target.is_floating_point():
        return output.square().mean()
    return functional.cross_entropy(output.flatten(0, 1), target.flatten())


def _samples(setting: Setting, times: int = 1) -> tuple[Tensor, Tensor]:
    """Input and target of one forward pass on one device, ``times`` its batch."""
    batch, tokens, hidden = stream_shape(setting.shapes)
    if not is_decoder(setting.shapes):
        return torch.rand(times * batch, tokens, hidden, dtype=setting.dtype), torch.rand(times * batch)
    x, y = (torch.randint(setting.shapes.dim("vocab"), (times * batch, tokens)) for _ in range(2))
    return x, y


def _plain(setting: Setting, module: nn.Module, recorder: Recorder) -> _Pass:
    x, y = _samples(setting)

    def run() -> None:
        recorder.phase = "forward"
        loss = _loss(module(x), y)
        recorder.phase = "backward"
        torch.autograd.backward(loss)

    return run


def _pipelined(setting: Setting, job: Job, modules: Mapping[int, nn.Module], recorder: Recorder) -> _Pass:
    """One step of the schedule; messages know their phase themselves."""
    count, microbatches = setting.subject.stages(setting.mesh, setting.options), int(setting.options["microbatches"] or 1)
    stream = torch.empty(stream_shape(setting.shapes), dtype=setting.dtype, device="meta", requires_grad=True)
    sample, _ = _samples(setting)
    logits = (*stream.shape[:2], setting.shapes.dim("vocab")) if is_decoder(setting.shapes) else stream.shape
    stages = []
    for index, module in modules.items():
        last = torch.empty(logits, dtype=setting.dtype, device="meta", requires_grad=True)
        shapes = {"input_args": stream if index else sample, "output_args": stream if index < count - 1 else last}
        stages.append(pipeline.Stage(module, index, count, recorder, alone=setting.backend == "fake", group=job.group("pp"), **shapes))
    schedule = pipeline.schedule(setting.subject.schedule, stages, microbatches, _loss)
    x, y = _samples(setting, microbatches)

    def run() -> None:
        recorder.phase = ""
        schedule.step(*((x,) if 0 in modules else ()), target=y if count - 1 in modules else None)

    return run


def _record(modules: Sequence[nn.Module], update: torch.optim.Optimizer, run: _Pass, recorder: Recorder) -> dict[str, int]:
    """One step under observation: bytes by what they hold. What it exchanges is in the recorder afterwards."""
    kept = memory.Kept()
    parameters = [p for module in modules for p in module.parameters()]
    with recorder:
        with kept.watching(modules):
            run()
        gradients = [p.grad for module in modules for p in module.parameters() if p.grad is not None]
        sizes = {
            "activations": kept.peak,
            "activations_after": kept.now,
            "gradients": memory.allocated(gradients),
            "gradients_held": memory.held(gradients),
        }
        recorder.phase = "update"
        update.step()
    update.zero_grad(set_to_none=True)
    numbers, counters = memory.state(update)
    return {
        "parameters": memory.allocated(parameters),
        "parameters_held": memory.held(parameters),
        "optimizer": memory.allocated([*numbers, *counters]),
        "optimizer_steps": memory.held(counters),
        **sizes,
    }
