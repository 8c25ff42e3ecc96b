"""What exact bytes are asked of: a strategy as an implementation realises it, a model's tensors, a mesh, and one device of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from placeproof.core.diagnostics import Problems, refuse, suggestion
from placeproof.core.exchange import Exchange
from placeproof.core.mesh import Axis
from placeproof.core.shapes import BUFFER_TYPES, WEIGHT_TYPES, Shapes, Unit, Weight
from placeproof.core.strategy import EXPERT, Strategy
from placeproof.cost.exact.flat import up
from placeproof.cost.exact.optimizers import OPTIMIZERS, PLAIN, Optimizer
from placeproof.cost.exact.options import BROADCAST, OPTIONS, Value, amounts, taken
from placeproof.profiles.profile import Implementation
from placeproof.programs import For, Program, statements
from placeproof.schedules import StageLayout, load
from placeproof.semantics.lower import lower

#: Blocks of which there are programs for exact bytes.
BLOCKS = ("attention", "embedding", "feed_forward", "head", "norm")
#: The dimensions whose sizes their programs ask for.
DIMS = ("batch", "tokens", "hidden", "heads", "kv_heads", "width", "ffn", "vocab")


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """Bytes an element: of parameters as they are kept, of those that are gathered and of activations, and of gradients on the wire."""

    kept: int
    computed: int
    reduced: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemPrediction:
    """What one device does in a step by the rules of a whole system: ``exchanges``, ``memory`` in bytes by state, and the ``strategies``
    whose programs say so, each about its own weights, by the names of the implementations."""

    exchanges: tuple[Exchange, ...]
    memory: Mapping[str, int]
    strategies: Mapping[str, Strategy]


def widths(options: Mapping[str, Value]) -> Widths:
    """From the options ``dtype``, ``param_dtype`` and ``reduce_dtype``: gradients are reduced in the type of the computation unless
    another one is given."""
    kept = str(options.get("dtype") or "float32")
    computed = str(options.get("param_dtype") or kept)
    reduced = str(options.get("reduce_dtype") or computed)
    return Widths(kept=WEIGHT_TYPES[kept], computed=WEIGHT_TYPES[computed], reduced=WEIGHT_TYPES[reduced])


@dataclass(frozen=True)
class Setting:
    """One device's view. ``mesh``: degrees by axis, the slowest first; ``rank`` counts along it.

    ``implementations``: of the strategy's parts, at most one that cuts states and at most one with a plan for blocks.
    """

    strategy: Strategy
    implementations: tuple[Implementation, ...]
    shapes: Shapes
    mesh: Mapping[str, int]
    rank: int = 0
    options: Mapping[str, Value] = field(default_factory=dict)

    @cached_property
    def program(self) -> Program:
        """The step program; its layers are calls of blocks, which profiles say."""
        return lower(self.strategy, linked=True, sums={})

    @cached_property
    def widths(self) -> Widths:
        """Bytes an element."""
        return widths(self.options)

    def width(self, weight: Weight) -> int:
        """Bytes of an element of a weight as it is kept."""
        return WEIGHT_TYPES[self.kind(weight)]

    def kind(self, weight: Weight, option: str = "") -> str:
        """The element type of a weight as it is kept; with an ``option`` that names another type for what is sent, that one if set."""
        return str(self.options.get(option) or weight.dtype or self.options.get("dtype") or "float32")

    @cached_property
    def optimizer(self) -> Optimizer:
        """What the update keeps."""
        return OPTIMIZERS[str(self.options.get("optimizer") or "adamw")]

    def learns(self, weight: Weight) -> bool:
        """Whether a step leaves a gradient of a weight."""
        return weight.learns

    def given(self, weight: Weight) -> bool:
        """Whether the optimizer is given a weight."""
        return weight.trained or self.options.get("given") == "all"

    @cached_property
    def accumulates(self) -> bool:
        """Whether a step has several passes over the model, but for those of a pipeline."""
        return self.stage_axis is None and any(part.startswith("accumulate") for part in self.strategy.parts)

    @cached_property
    def passes(self) -> int:
        """Forward and backward passes of a step."""
        return int(self.program.count("microbatches") or self.options.get("microbatches") or 1)

    def begins(self, weights: Sequence[Weight]) -> list[tuple[Weight, int]]:
        """The weights of a unit, and at which element of its flat tensor each begins. With ``use_orig_params`` at multiples of 16 bytes of
        the type that computes (torch==2.13.0:torch/distributed/fsdp/_flat_param.py, ``_get_aligned_numel``)."""
        align = 16 // WEIGHT_TYPES[self.kind(weights[0], "param_dtype")] if self.options.get("use_orig_params") else 1
        found, at = [], 0
        for weight in weights:
            at = up(at, align)
            found.append((weight, at))
            at += weight.elements
        return found

    def flat(self, weights: Sequence[Weight]) -> int:
        """Elements of the flat tensor of a unit's weights, padded to equal parts; with ``use_orig_params`` also where it is not cut."""
        weight, begin = self.begins(weights)[-1]
        axes = self.cut_axes or (self.sample_axes if self.options.get("use_orig_params") else ())
        return up(begin + weight.elements, self.degree(axes))

    @cached_property
    def at(self) -> dict[str, int]:
        """The device's coordinates."""
        coordinates: dict[str, int] = {}
        left = self.rank
        for axis in reversed(tuple(self.mesh)):
            left, coordinates[axis] = divmod(left, self.mesh[axis])
        return coordinates

    @cached_property
    def states(self) -> Implementation:
        """The implementation that says how states are cut and sent."""
        return next((i for i in self.implementations if not i.plan), self.implementations[0])

    @cached_property
    def blocks(self) -> Implementation | None:
        """The implementation that says how blocks are run on several devices."""
        return next((i for i in self.implementations if i.plan), None)

    def degree(self, axes: Iterable[str]) -> int:
        """Devices of a group that spans these axis factors."""
        return prod(self._degrees[a] for a in axes)

    @cached_property
    def _degrees(self) -> dict[str, int]:
        return degrees(self.strategy, self.mesh)

    @cached_property
    def sample_axes(self) -> tuple[str, ...]:
        """The axes whose devices see different samples."""
        return tuple(a.name for a in self.strategy.axes if a.splits.samples)

    @cached_property
    def hidden(self) -> str | None:
        """The axis that splits the hidden dimension."""
        return next((a.name for a in self.strategy.axes if a.splits.matrices), None)

    @cached_property
    def stage_axis(self) -> str | None:
        """The axis of pipeline stages."""
        return next((a.name for a in self.strategy.axes if a.splits.stages), None)

    @cached_property
    def cut_axes(self) -> tuple[str, ...]:
        """The axes of samples over which parameters, gradients or optimizer state are cut into parts."""
        from placeproof.core.states import MODEL_STATES

        return tuple(
            a.name for a in self.strategy.axes if a.splits.samples and any(self.strategy.mode(s, a.name).split for s in MODEL_STATES)
        )

    @cached_property
    def knows_blocks(self) -> bool:
        """Whether the model says all blocks that it computes, and their sizes."""
        return all(u.blocks for u in self.shapes.units) and set(DIMS) <= set(dict(self.shapes.dims))

    @cached_property
    def buffers(self) -> tuple[int, ...]:
        """Bytes of the model's buffers, of each element type together."""
        option = self.options.get("buffer")
        sizes: dict[str, int] = {}
        for kind, count in (self.shapes.buffers or ()) if option is None else amounts(option) or ():
            of = str(self.options.get("dtype") or "float32") if kind == "dtype" else kind
            sizes[of] = sizes.get(of, 0) + count * BUFFER_TYPES[of]
        return tuple(size for size in sizes.values() if size)

    # Stages of a pipeline.

    @cached_property
    def folds(self) -> bool:
        """Whether the second half of the stages runs back, so that a device has one from either end."""
        schedule = self.strategy.schedule.in_flight
        return any(i.order == "fold" for i in self.implementations) or (schedule is not None and load(schedule).layout is StageLayout.VEE)

    @cached_property
    def stages(self) -> int:
        """Number of stages; several lie on one device where the schedule or its implementation wants it."""
        if self.stage_axis is None:
            return 1
        usual = OPTIONS["virtual"].default if "virtual" in taken(self.implementations) else 2 if self.folds else 1
        return self.mesh[self.stage_axis] * int(self.options.get("virtual") or self.strategy.schedule.chunks or usual or 1)

    @cached_property
    def own_stages(self) -> tuple[int, ...]:
        """The stages of this device, in order."""
        if self.stage_axis is None:
            return (0,)
        devices, device = self.mesh[self.stage_axis], self.at[self.stage_axis]
        if self.folds:
            return tuple(sorted({device, self.stages - 1 - device}))
        return tuple(range(device, self.stages, devices))

    def holder(self, stage: int) -> int:
        """The coordinate along the stage axis of the device that has a stage."""
        assert self.stage_axis is not None
        devices = self.mesh[self.stage_axis]
        if self.folds:
            return min(stage, self.stages - 1 - stage)
        return stage % devices

    def by_ready(self, weights: list[Weight]) -> list[Weight]:
        """Weights in the order in which their gradients are ready: against the order of forward; last those that are not used, in the order
        in which they are registered."""
        names = {w.name for w in weights}
        unused = [w for w in weights if not w.learns]
        if len(unused) > 1:
            unused = [w for w in self.shapes.by_registration if w in unused]
        return [*(w for w in self.shapes.by_use[::-1] if w.name in names and w.learns), *unused]

    def units_of(self, stage: int) -> tuple[Unit, ...]:
        """A stage's units. All stages have as many units as any other or one more; the root's beginning lies on the first, its end on the
        last."""
        root, others = self.shapes.units[0], self.shapes.units[1:]
        mine = others[stage * len(others) // self.stages : (stage + 1) * len(others) // self.stages]
        if self.stages == 1:
            return (root, *mine)
        begin, end = self.shapes.ends
        names = {*(begin if stage == 0 else ()), *(end if stage == self.stages - 1 else ())}
        weights = tuple(w for w in root.weights if w.name in names)
        return (Unit(name=root.name, weights=weights, blocks=root.blocks), *mine)


def degrees(strategy: Strategy, mesh: Mapping[str, int]) -> dict[str, int]:
    """Degrees by axis, and by factor of each axis with sub-groups, whose size is 1 where it has no number."""
    numbers = dict(mesh)
    for axis in strategy.axes:
        if axis.inner is not None:
            inner = axis.inner if isinstance(axis.inner, int) else 1
            numbers |= {axis.inner_name: inner, axis.outer_name: mesh[axis.name] // inner}
    return numbers


def settled(system: str, shapes: Shapes, defaults: Mapping[str, Value], options: Mapping[str, Value]) -> dict[str, Value]:
    """The options over a system's defaults. Raises InputError for names that the defaults do not have, and for what was not measured."""
    problems = Problems()
    if not shapes.plain:
        message = f"what {system} makes of parameters that are frozen, unused or of types of their own was not measured"
        problems.add("PP101", message, help="describe a model whose parameters are all trained, used and of one type")
    if (optimizer := options.get("optimizer") or PLAIN[0]) not in PLAIN:
        problems.add("PP104", f"{system} was not measured with `{optimizer}`", help=f"give {' or '.join(PLAIN)}")
    for name in options:
        if name not in defaults:
            problems.add("PP104", f"`{name}` is no option that is predicted of {system}", help=f"its options are {', '.join(defaults)}")
    problems.raise_if_any()
    return {**defaults, **options}


def check_degrees(strategy: Strategy, mesh: Mapping[str, int]) -> None:
    """Raise InputError unless every axis of the strategy has a degree on the mesh, the same one where it says one itself; and for experts
    that lie otherwise than the rest of the model: exact bytes ask for one mode of a state on an axis."""
    problems = Problems()
    experts = next((e for e in strategy.entries if EXPERT in e.groups), None)
    if experts is not None:
        message = f"exact bytes of experts that `{experts.owner}` places apart over axis `{experts.axis}` were not measured"
        help_ = f"leave out `{experts.owner}`, or derive closed forms of a model: `--model mixtral-8x7b`"
        problems.add("PP101", message, help=help_)
    for axis in strategy.axes:
        if axis.name not in mesh:
            problems.add("PP203", f"exact bytes need the degree of axis `{axis.name}`", help=f"give it: `--set N_{axis.name}=8`")
        elif axis.degree not in (None, mesh[axis.name]):
            problems.add("PP103", f"axis `{axis.name}` has {axis.degree} devices, not {mesh[axis.name]}", help="say it once")
    problems.raise_if_any()


def check_shapes(setting: Setting, problems: Problems) -> None:
    """Raise InputError with all problems: those there are, and where the model does not say what the strategy exchanges: blocks for a split
    hidden dimension, sizes for messages;
    or where nobody says how many micro-batches there are; or for tensors that the implementation does not take."""
    dims = dict(setting.shapes.dims)
    _check_blocks(setting, problems)
    _check_buffers(setting, problems)
    _check_schedule(setting, problems)
    sized = "give `transformer(...)`, or a file of shapes with `blocks` and `[dims]`"
    if setting.hidden is not None and setting.mesh[setting.hidden] > 1 and not all(u.blocks for u in setting.shapes.units):
        message = f"axis `{setting.hidden}` splits the blocks of the model, and {setting.shapes.name} does not name them"
        problems.add("PP203", message, help=sized)
    missing = [d for d in _needed(setting) if d not in dims]
    if missing:
        problems.add("PP203", f"{setting.shapes.name} does not say its {', '.join(missing)}", help=sized)
    _check_microbatches(setting, problems)
    problems.raise_if_any()


def _check_blocks(setting: Setting, problems: Problems) -> None:
    for name in dict.fromkeys(b for u in setting.shapes.units for b in u.blocks):
        if name not in BLOCKS:
            help_ = suggestion(name, BLOCKS) or f"blocks are {', '.join(BLOCKS)}"
            problems.add("PP203", f"{setting.shapes.name} names a block `{name}`, which is not known", help=help_)


def _check_buffers(setting: Setting, problems: Problems) -> None:
    if not setting.states.extras:
        return
    if setting.shapes.buffers is None and setting.options.get("buffer") is None:
        help_ = "say how many elements they have: `--option buffer=64`, `--option buffer=float32:64,int64:1`; 0 is broadcast_buffers=False"
        problems.add("PP203", f"`{setting.states.name}` broadcasts the buffers of {setting.shapes.name}, which are not known", help=help_)
    elif sum(setting.buffers) > BROADCAST:
        message = f"buffers of more than {BROADCAST:,} bytes are broadcast in several calls, which are not predicted"
        problems.add("PP203", message, help="`--option buffer=0` leaves them out")


def _check_schedule(setting: Setting, problems: Problems) -> None:
    """What of the strategy's schedule would change calls, and is not followed here."""
    schedule = setting.strategy.schedule
    if schedule.unit not in (None, "unit"):
        message = f"exact bytes are those of units that are wrapped, not of `unit={schedule.unit}`"
        problems.add("PP104", message, help="leave `unit` out, and list in `--shapes` what is gathered at once as a unit")
    if schedule.in_flight is not None and load(schedule.in_flight).layout is StageLayout.BOTH:
        problems.add("PP101", f"exact bytes of `{schedule.in_flight}` are not known", help="for example `schedule=dualpipe-v`")


def _check_microbatches(setting: Setting, problems: Problems) -> None:
    walks = any(isinstance(s, For) and s.domain == "microbatches" for s in statements(setting.program.body))
    count, given = setting.program.count("microbatches"), setting.options.get("microbatches")
    if walks and count is None and not given:
        help_ = "say it in the strategy, `accumulate(4)` or `pp(4, microbatches=8)`, or `--option microbatches=8`"
        problems.add("PP203", "exact bytes need the number of micro-batches", help=help_)
    elif given and not walks:
        message = f"`{setting.strategy.name}` has no micro-batches"
        problems.add("PP104", message, help=f"leave `microbatches` out, or `{setting.strategy.name} * accumulate({given})`")
    elif given and count not in (None, given):
        problems.add("PP104", f"the strategy has {count} micro-batches, and `microbatches` is {given}", help="say it once")


def _needed(setting: Setting) -> tuple[str, ...]:
    """The dimensions whose sizes exchanges depend on."""
    if setting.hidden is not None and setting.mesh[setting.hidden] > 1:
        return DIMS
    return ("batch", "tokens", "hidden") if setting.stages > 1 else ()


def check_beside(implementations: tuple[Implementation, ...], parts: Iterable[str]) -> None:
    """Raise InputError where implementations were not measured together, or a part of the strategy was not measured with them."""
    if not implementations:
        return
    first, *others = implementations
    apart = [i.name for i in others if i.name not in first.beside]
    known = {name for i in implementations for name in i.of} | ({"tp"} if any("sp" in i.of for i in implementations) else set())
    apart += [part for part in parts if part not in known]
    if "no_sync" in first.options:
        apart = [part for part in apart if part != "accumulate"]
    if apart:
        message = f"what `{first.name}` exchanges together with {' and '.join(f'`{n}`' for n in apart)} was not measured"
        refuse("PP101", message, help="leave one out; `derive --profile` without `--shapes` has the closed forms of the composition")


def unclipped(strategy: Strategy) -> Strategy:
    """The strategy without the norm of gradients, which no exact bytes count: profiles say in words what it adds."""
    parts = tuple(part for part in strategy.parts if part != "clip")
    return replace(strategy, parts=parts, schedule=replace(strategy.schedule, clip=None))


def with_degrees(strategy: Strategy, mesh: Mapping[str, int]) -> Strategy:
    """The strategy with the mesh's degrees on its axes."""

    def sized(axis: Axis) -> Axis:
        return replace(axis, degree=mesh[axis.name])

    return replace(strategy, axes=tuple(sized(a) for a in strategy.axes))
