"""Which implementations of PyTorch can be measured, what each wants, and which strategy each implements.

This module does without torch: the table is there for whoever reads recorded measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from placeproof.core.diagnostics import Problems, unknown_name
from placeproof.core.shapes import Shapes, transformer
from placeproof.cost.exact.options import OPTIONS, Value

_DECODER = frozenset(("layers", "hidden", "heads", "kv_heads", "width", "ffn", "vocab", "batch", "tokens"))
#: The most devices of the fake backend, which runs one of them.
MOST_DEVICES = 4096


_ANY = ("optimizer", "dtype", "step")
_MIXED = ("param_dtype", "reduce_dtype")
_DDP = ("bucket_cap_mb", "find_unused", "buffer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An implementation that can be measured.

    ``template``: the strategy that it implements, as an expression with the degrees of axes and options left open. ``axes``: of the
    mesh, in order. ``wraps``: what is done to the module, the innermost first, by names in :data:`placeproof.measure.training.wrap.WRAPS`.
    ``schedule``: of a pipeline, the class in torch.distributed.pipelining; ``virtual``: its stages on each device, None where it is an
    option. ``decoder``: only the shapes of ``transformer`` will do. ``allocates``: its parameters have to be there. ``steady``: the first
    step whose exchanges all later steps repeat.
    """

    name: str
    title: str
    template: str
    axes: tuple[str, ...]
    options: tuple[str, ...] = ()
    wraps: tuple[str, ...] = ()
    schedule: str = ""
    virtual: int | None = 1
    decoder: bool = False
    allocates: bool = False
    steady: int = 1
    defaults: Mapping[str, Value] = field(default_factory=dict)

    def takes(self) -> tuple[str, ...]:
        """The names of the options that it takes."""
        return _ANY + self.options

    def expression(self, mesh: Mapping[str, int], options: Mapping[str, Value] | None = None) -> str:
        """The strategy that it implements, on this mesh with these options."""
        return self.template.format(**mesh, **settle(self, mesh, options or {}))

    def stages(self, mesh: Mapping[str, int], options: Mapping[str, Value]) -> int:
        """Number of pipeline stages; ``options`` are settled."""
        return mesh["pp"] * int(self.virtual or options["virtual"] or 1)


def _ddp(name: str, title: str, template: str, options: tuple[str, ...] = ()) -> Subject:
    every = _DDP + options
    return Subject(name=name, title=title, template=template, axes=("dp",), options=every, wraps=("ddp",), allocates=True, steady=3)


def _fsdp(name: str, title: str, template: str, axes: tuple[str, ...] = ("dp",), options: tuple[str, ...] = _MIXED) -> Subject:
    old = name.startswith("fsdp1")
    return Subject(name=name, title=title, template=template, axes=axes, options=options, wraps=(name,), allocates=old)


def _tp(name: str, title: str, template: str) -> Subject:
    return Subject(name=name, title=title, template=template, axes=("tp",), wraps=(name,), decoder=True)


def _pipeline(name: str, title: str, schedule: str, *, fly: str = "1f1b", virtual: int | None = 1) -> Subject:
    return Subject(
        name=name,
        title=title,
        template=f"pp({{pp}}, microbatches={{microbatches}}, schedule={fly})",
        axes=("pp",),
        options=("microbatches", "virtual") if virtual is None else ("microbatches",),
        schedule=schedule,
        virtual=virtual,
        allocates=True,
        steady=2,
    )


def _product(outer: Subject, inner: Subject) -> Subject:
    """Batch parallelism of what tensor parallelism leaves on a device."""
    return Subject(
        name=f"{outer.name}*{inner.name}",
        title=f"{outer.title}; {inner.title}",
        template=f"{outer.template} * {inner.template}",
        axes=outer.axes + inner.axes,
        options=outer.options + inner.options,
        wraps=inner.wraps + outer.wraps,
        decoder=True,
    )


_FSDP2 = _fsdp("fsdp2", "fully_shard of each unit and of the root", "fsdp({dp})")
_HSDP = _fsdp("hsdp", "fully_shard on a mesh of two axes", "hsdp(rep={rep}, shard={shard})", axes=("rep", "shard"))
_PLANS = (
    _tp("tp_naive", "ColwiseParallel and RowwiseParallel by themselves", "tp({tp})"),
    _tp("tp_megatron", "as tp_naive, with PrepareModuleInput before linear layers that read the same", "tp({tp})"),
    _tp("tp_sp", "as tp_megatron, with SequenceParallel norms and a residual stream split by tokens", "tp({tp}) * sp({tp})"),
)
_ALL = (
    _ddp("ddp", "DistributedDataParallel", "ddp({dp})"),
    _ddp("zero_redundancy", "DistributedDataParallel with ZeroRedundancyOptimizer", "zero1({dp})", options=("bucket_view",)),
    _fsdp("fsdp1", "FullyShardedDataParallel, FULL_SHARD", "fsdp({dp})"),
    _fsdp("fsdp1_grad_op", "FullyShardedDataParallel, SHARD_GRAD_OP", "fsdp({dp}, reshard_after_forward=false)"),
    _fsdp("fsdp1_no_shard", "FullyShardedDataParallel, NO_SHARD", "ddp({dp})"),
    _FSDP2,
    _fsdp("fsdp2_all", "fully_shard with reshard_after_forward=True, on the root too", "fsdp({dp})"),
    _fsdp("fsdp2_keep", "fully_shard with reshard_after_forward=False", "fsdp({dp}, reshard_after_forward=false)"),
    _fsdp("fsdp2_sub", "fully_shard with reshard_after_forward=k", "fsdp({dp}, reshard_after_forward={k})", options=(*_MIXED, "k")),
    _HSDP,
    *_PLANS,
    *(_product(outer, plan) for outer in (_FSDP2, _HSDP) for plan in _PLANS),
    _pipeline("gpipe", "ScheduleGPipe", "ScheduleGPipe", fly="gpipe"),
    _pipeline("1f1b", "Schedule1F1B", "Schedule1F1B"),
    _pipeline(
        "interleaved",
        "ScheduleInterleaved1F1B",
        "ScheduleInterleaved1F1B",
        fly="interleaved, chunks={virtual}",
        virtual=None,
    ),
    _pipeline("looped_bfs", "ScheduleLoopedBFS", "ScheduleLoopedBFS", fly="gpipe", virtual=None),
    _pipeline("zb1p", "ScheduleInterleavedZeroBubble", "ScheduleInterleavedZeroBubble", virtual=None),
    _pipeline("zbv", "ScheduleZBVZeroBubble", "ScheduleZBVZeroBubble", fly="zb-v", virtual=2),
    _pipeline("dualpipev", "ScheduleDualPipeV", "ScheduleDualPipeV", fly="dualpipe-v", virtual=2),
)
SUBJECTS: Mapping[str, Subject] = {subject.name: subject for subject in _ALL}


def find(name: str) -> Subject:
    """The subject of this name. Raises InputError that lists all names."""
    if name not in SUBJECTS:
        listed = "what can be measured: " + ", ".join(SUBJECTS)
        raise unknown_name(f"no implementation `{name}` can be measured", name, SUBJECTS, listed)
    return SUBJECTS[name]


def is_decoder(shapes: Shapes) -> bool:
    """Whether these are the shapes that ``transformer`` makes of their own dimensions."""
    dims = dict(shapes.dims)
    if set(dims) != _DECODER or dims["width"] * dims["heads"] != dims["hidden"]:
        return False
    return transformer(**{name: size for name, size in dims.items() if name != "width"}).units == shapes.units


def settle(subject: Subject, mesh: Mapping[str, int], options: Mapping[str, Value]) -> dict[str, Value]:
    """All options that the subject takes, each with the given value or its default. Raises InputError for what it does not take."""
    problems = Problems()
    takes = subject.takes()
    for name, value in options.items():
        if name not in takes:
            problems.add("PP104", f"`{subject.name}` has no option `{name}`", help=f"its options are {', '.join(takes)}")
        elif not OPTIONS[name].allows(value):
            problems.add("PP104", f"option `{name}` of `{subject.name}` cannot be {value!r}", help=f"give {OPTIONS[name].expects()}")
    problems.raise_if_any()
    settled = {name: options.get(name, OPTIONS[name].default) for name in takes}
    if settled["step"] is None:
        settled["step"] = subject.steady
    if "microbatches" in takes and settled["microbatches"] is None:
        settled["microbatches"] = 2 * subject.stages(mesh, settled)
    return settled


def check_mesh(subject: Subject, mesh: Mapping[str, int]) -> None:
    """Raise InputError for a mesh with other axes than the subject wants, or more devices than can be measured."""
    problems = Problems()
    if tuple(mesh) != subject.axes:
        wants, given = ", ".join(subject.axes), ", ".join(mesh) or "none"
        problems.add("PP103", f"`{subject.name}` runs on the mesh axes {wants}, in this order; given are {given}", help="name these axes")
        problems.raise_if_any()
    for axis, size in mesh.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            problems.add("PP103", f"axis `{axis}` cannot have {size!r} devices", help="give a whole number of at least 1")
    problems.raise_if_any()
    if prod(mesh.values()) > MOST_DEVICES:
        problems.add("PP103", f"{prod(mesh.values())} devices are too many", help=f"measure at most {MOST_DEVICES}")
    problems.raise_if_any()


def check(subject: Subject, shapes: Shapes, mesh: Mapping[str, int], options: Mapping[str, Value]) -> None:
    """Raise InputError where the implementation cannot run these shapes on this mesh; ``options`` are settled."""
    problems = Problems()
    if not shapes.plain:
        message = "what is measured here is a model whose parameters are all trained, used and of one type"
        problems.add("PP205", message, help="`placeproof derive --shapes` says what others exchange and hold")
    if subject.decoder and not is_decoder(shapes):
        problems.add("PP205", f"`{subject.name}` splits the layers of a decoder", help="give shapes made by `transformer`")
    elif subject.decoder:
        _check_tensor(subject, shapes, mesh["tp"], problems)
    if subject.schedule:
        _check_pipeline(subject, shapes, mesh, options, problems)
    if "k" in options and mesh["dp"] % int(options["k"] or 1):
        problems.add("PP103", f"a sub-group of {options['k']} does not divide the axis `dp` of {mesh['dp']}", help="give a divisor")
    problems.raise_if_any()


def _check_tensor(subject: Subject, shapes: Shapes, degree: int, problems: Problems) -> None:
    """Uneven parts of these would need another module: heads are counted, and streams are split, in equal parts."""
    for name in ("heads", "kv_heads", "ffn", "vocab", *(("tokens",) if "tp_sp" in subject.wraps else ())):
        if shapes.dim(name) % degree:
            problems.add(
                "PP103", f"{degree} devices cannot split {name} = {shapes.dim(name)} evenly", help="choose a degree that divides it"
            )


def _check_pipeline(subject: Subject, shapes: Shapes, mesh: Mapping[str, int], options: Mapping[str, Value], problems: Problems) -> None:
    """What torch.distributed.pipelining demands of the numbers of stages and micro-batches (torch==2.13.0: pipelining/schedules.py)."""
    stages, count, units = subject.stages(mesh, options), int(options["microbatches"] or 1), len(shapes.units) - 1
    if mesh["pp"] < 2:
        problems.add("PP103", "a pipeline of one device exchanges nothing", help="give the axis `pp` at least 2 devices")
    if units < stages:
        help_ = f'`--shapes "transformer(layers={stages}, hidden=32, heads=4, ffn=64, vocab=64, batch=4, tokens=16)"` has enough'
        problems.add("PP103", f"{units} units do not fill {stages} stages", help=help_)
    if subject.name in ("1f1b", "dualpipev") and count < stages:
        message = f"`{subject.name}` needs a micro-batch for each of its {stages} stages, not {count}"
        problems.add("PP104", message, help=f"`microbatches={stages}`")
    rounds = max(1, count // mesh["pp"])
    if subject.name in ("interleaved", "zb1p") and count % rounds:
        problems.add(
            "PP104", f"`{subject.name}` cannot divide {count} micro-batches into {rounds} rounds", help=f"give a multiple of {mesh['pp']}"
        )
