"""Exact bytes of DeepSpeed 0.19: which calls its engine makes of what the proved program does with each state.

The program says which states are sent, in which phase, by which operation; a configuration says how much of them is in one call.
Sources, all below deepspeed==0.19.8:deepspeed/runtime: ``engine.py`` (stage 0), ``zero/stage_1_and_2.py``, ``zero/stage3.py``,
``zero/partition_parameters.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from placeproof.core.diagnostics import refuse
from placeproof.core.exchange import Exchange
from placeproof.core.shapes import WEIGHT_TYPES, Shapes, Unit, Weight
from placeproof.core.strategy import Strategy
from placeproof.cost.exact.flat import filled, passed, slices, up
from placeproof.cost.exact.modules import modules
from placeproof.cost.exact.optimizers import OPTIMIZERS
from placeproof.cost.exact.options import Value, defaults
from placeproof.cost.exact.reuse import Coordinator, Limits, gathers
from placeproof.cost.exact.setting import Setting, SystemPrediction, settled, with_degrees
from placeproof.cost.exact.uses import Use, once, walked
from placeproof.profiles.profile import Implementation, profile
from placeproof.strategies import parse_strategy

PROFILE = "deepspeed-0.19"
#: Options and their defaults, those of deepspeed==0.19.8:deepspeed/runtime/zero/config.py. ``overlap``: None is what the stage has.
DEFAULTS: Mapping[str, Value] = {
    "stage": 0,
    "use_multi_rank_bucket_allreduce": True,
    **defaults("dtype", "optimizer", "reduce_bucket_size", "reduce_scatter", "overlap_comm"),
    **defaults("stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"),
    **defaults("stage3_max_live_parameters", "stage3_max_reuse_distance"),
}
#: Elements at which a bucket of stage 0 is closed (``engine.py``, ``allreduce_no_retain``).
STAGE0_BUCKET = 500_000_000
#: Elements of a device's parts at which a sub-group of the third stage is closed, which the optimizer sees as one tensor
#: (``zero/config.py``, ``sub_group_size``; ``zero/stage3.py``, ``_create_fp16_sub_groups``).
SUB_GROUP = 1_000_000_000
#: A device's part of the flat parameters is a multiple of two elements (``zero/stage_1_and_2.py``, ``nccl_start_alignment_factor``).
ALIGNED = 2


def predict_step(shapes: Shapes, devices: int, options: Mapping[str, Value] | None = None) -> SystemPrediction:
    """Exact bytes of a device in a step that later ones repeat, on one axis ``dp``. ``options``: some of :data:`DEFAULTS`.

    Raises InputError for an option that is none of them, and for a stage that there is not.
    """
    job = _Job(shapes, devices, settled("DeepSpeed", shapes, DEFAULTS, options or {}))
    if job.options["stage"] not in (0, 1, 2, 3):
        refuse("PP104", f"DeepSpeed has no stage {job.options['stage']!r}", help="give 0, 1, 2 or 3")
    return _stage3(job) if job.options["stage"] == 3 else _flat(job)


@dataclass(frozen=True)
class _Job:
    shapes: Shapes
    devices: int
    options: Mapping[str, Value]

    @cached_property
    def width(self) -> int:
        """Bytes an element of parameters and gradients."""
        return WEIGHT_TYPES[str(self.options["dtype"])]

    def number(self, name: str) -> int:
        """An option that is a number."""
        return int(self.options[name] or 0)

    @cached_property
    def by_use(self) -> list[Weight]:
        """Weights in the order in which forward uses them."""
        return self.shapes.by_use

    @cached_property
    def by_readiness(self) -> list[Weight]:
        """Weights in the order in which their gradients become ready."""
        return self.by_use[::-1]

    def setting(self, name: str, shapes: Shapes | None = None) -> Setting:
        """The setting of an implementation of the profile, for all weights or those of some shapes."""
        implementation = profile(PROFILE).find(name)
        mesh = {"dp": self.devices}
        return Setting(realised(implementation, mesh), (implementation,), shapes or self.shapes, mesh, 0, self.options)

    def call(self, kind: str, elements: int, phase: str, *, op: str = "") -> Exchange:
        """One call about some elements."""
        return Exchange(kind=kind, axes=("dp",), bytes=self.width * elements, op=op, phase=phase)


def realised(implementation: Implementation, mesh: Mapping[str, int]) -> Strategy:
    """The strategy of an implementation on a mesh."""
    return with_degrees(implementation.realise(parse_strategy(expression(implementation))), mesh)


def expression(implementation: Implementation) -> str:
    """The strategy that an implementation of the profile runs: the first that it implements, as it implements it."""
    kept = implementation.when.get("reshard") == "false"
    return f"{implementation.of[0]}(reshard_after_forward=false)" if kept else implementation.of[0]


# Stages 0 to 2: parameters are whole, and a flat copy of them is cut into parts.


def _name(job: _Job) -> str:
    stage = job.number("stage")
    owners = stage and job.options["reduce_scatter"] and not job.options["use_multi_rank_bucket_allreduce"]
    return f"stage{stage}_owners" if owners else f"stage{stage}"


def _flat(job: _Job) -> SystemPrediction:
    name = _name(job)
    setting = job.setting(name)
    uses = walked(setting).uses
    reduced = "reduce_scatter" if name.endswith("owners") else "all_reduce"
    whole = once(uses, parameters=False, op=reduced)
    sent = list(_gradients(job, whole))
    sent += _flags(job)
    if gathered := once(uses, parameters=True, op="all_gather"):
        sent.append(job.call("all_gather", up(_elements(gathered), ALIGNED * job.devices), "update"))
    return SystemPrediction(exchanges=tuple(sent), memory=_flat_memory(job), strategies={name: setting.strategy})


def _elements(weights: Iterable[Weight]) -> int:
    return sum(w.elements for w in weights)


def _gradients(job: _Job, weights: tuple[Weight, ...]) -> Iterator[Exchange]:
    """Stage 0 reduces in the order of registration. So does stage 1 unless it overlaps, because it waits for the end of backward."""
    if job.number("stage") == 0:
        for size in passed((w.elements for w in weights), STAGE0_BUCKET):
            yield job.call("all_reduce", size, "backward", op="sum")
        return
    names = {w.name for w in weights}
    waits = job.number("stage") == 1 and not job.options["overlap_comm"]
    order = [w for w in (job.shapes.weights if waits else job.by_readiness) if w.name in names]
    for bucket in filled(order, job.number("reduce_bucket_size")):
        yield from _bucket(job, bucket)


def _bucket(job: _Job, bucket: list[Weight]) -> Iterator[Exchange]:
    """``average_tensor``: the slices of a bucket by owner go together, or to each owner by itself; a bucket that is too large, because a
    weight is, is closed again and again as soon as its slices pass the limit."""
    if not job.options["reduce_scatter"]:
        yield job.call("all_reduce", _elements(bucket), "backward", op="sum")
        return
    limit = job.number("reduce_bucket_size")
    every = [piece for weight in bucket for piece in _slices(job, weight)]
    if job.options["use_multi_rank_bucket_allreduce"]:
        for size in passed((size for _, size in every), limit):
            yield job.call("all_reduce", size, "backward", op="sum")
        return
    for owner in dict.fromkeys(owner for owner, _ in every):
        for size in passed((size for holder, size in every if holder == owner), limit):
            yield job.call("reduce", size, "backward", op="sum")


def _slices(job: _Job, weight: Weight) -> list[tuple[int, int]]:
    start = 0
    for one in job.shapes.weights:
        if one.name == weight.name:
            break
        start += one.elements
    return slices(start, weight.elements, up(job.shapes.elements, ALIGNED * job.devices) // job.devices)


def _flags(job: _Job) -> list[Exchange]:
    """What is reduced beside states in the update: whether a gradient overflowed, and the norm of all gradients."""
    stage, half = job.number("stage"), job.width == 2

    def flag(size: int, op: str) -> Exchange:
        return Exchange(kind="all_reduce", axes=("dp",), bytes=size, op=op, phase="update")

    if stage == 0:
        return [] if half else [flag(4, "sum")]
    if stage == 3:
        return [flag(8, "sum")]
    return [*([flag(1, "max")] if half else []), flag(4, "sum")]


def _kept(job: _Job) -> tuple[int, int]:
    """Numbers that the optimizer keeps for each element, and bytes for each tensor."""
    optimizer = OPTIMIZERS[str(job.options["optimizer"])]
    return optimizer.elements, 4 * optimizer.scalars


def _flat_memory(job: _Job) -> dict[str, int]:
    """Parameters; and what an update needs: single-precision copies (also of single-precision parameters, from stage 1 on), and what
    the optimizer keeps."""
    kinds, counts = _kept(job)
    every, tensors = job.shapes.elements, len(list(job.shapes.weights))
    copies = int(job.number("stage") > 0 or job.width == 2)
    if job.number("stage"):
        every, tensors = up(every, ALIGNED * job.devices) // job.devices, 1
    return {"parameters": job.width * job.shapes.elements, "optimizer": 4 * (copies + kinds) * every + counts * tensors}


# Stage 3: each weight is cut into parts by itself; small ones stay whole.


def _stage3(job: _Job) -> SystemPrediction:
    sizes = {w.name: w.elements for w in job.shapes.weights}
    threshold = job.number("stage3_param_persistence_threshold")
    whole = frozenset(name for name, size in sizes.items() if size <= threshold)
    limits = Limits(
        prefetch=job.number("stage3_prefetch_bucket_size"),
        live=job.number("stage3_max_live_parameters"),
        reuse=job.number("stage3_max_reuse_distance"),
    )
    seen = gathers(*modules(job.shapes, job.by_use), sizes, whole, limits)
    uses, strategies = _strategies(job, seen, whole)
    gathered = Counter(w.name for u in uses if u.parameters and u.phase != "update" for w in u.weights)
    if gathered != Counter(name for _, names in seen.calls for name in names):
        raise ValueError("the coordinator gathers other weights than the proved program")
    sent = [job.call("all_gather", _cut(job, (sizes[n] for n in names)), phase) for phase, names in seen.calls]
    scattered = {w.name for w in once(uses, parameters=False, op="reduce_scatter")}
    for bucket in filled((w for w in job.by_readiness if w.name in scattered), job.number("reduce_bucket_size")):
        sent.append(job.call("reduce_scatter", _cut(job, (w.elements for w in bucket)), "backward", op="sum"))
    sent += _flags(job)
    back = once([u for u in uses if u.phase == "update"], parameters=True, op="all_gather")
    sent += [job.call("all_gather", _cut(job, [w.elements]), "update") for w in back]
    return SystemPrediction(exchanges=tuple(sent), memory=_stage3_memory(job, whole), strategies=strategies)


def _cut(job: _Job, sizes: Iterable[int]) -> int:
    return sum(up(size, job.devices) for size in sizes)


def _strategies(job: _Job, seen: Coordinator, whole: frozenset[str]) -> tuple[list[Use], dict[str, Strategy]]:
    """What is done with all weights. Those that are dropped and gathered again are zero3's; those that stay gathered are zero3's root,
    which stays gathered, or all of it; those that stay whole are zero2's, whose optimizer state and gradients alone are cut."""
    times = Counter(name for _, names in seen.calls for name in names)
    kept = {name for name, count in times.items() if count == 1}
    again = {name for name, count in times.items() if count > 1}
    cut = {"stage3_part": kept | again} if kept and again else {"stage3_kept": kept} if kept else {"stage3": again}
    uses: list[Use] = []
    strategies = {}
    for name, weights in (*cut.items(), ("stage3_whole", set(whole))):
        if weights:
            first = kept if name == "stage3_part" else set()
            setting = job.setting(name, _of(job.shapes, weights, first))
            uses += walked(setting).uses
            strategies[name] = setting.strategy
    return uses, strategies


def _of(shapes: Shapes, weights: set[str], root: set[str]) -> Shapes:
    """Some weights alone: those of ``root`` are the root's, where it has any; the others stay in their units."""

    def unit(whole: Unit) -> Unit:
        names = root if root and whole is shapes.units[0] else weights - root
        choices = shapes.weights if names is root else whole.weights
        return replace(whole, weights=tuple(w for w in choices if w.name in names))

    units = [unit(each) for each in shapes.units]
    if root and (moved := tuple(w for w in shapes.units[0].weights if w.name in weights - root)):
        units.append(Unit(name="again", weights=moved))
    return replace(shapes, units=tuple(units))


def _stage3_memory(job: _Job, whole: frozenset[str]) -> dict[str, int]:
    kinds, counts = _kept(job)
    parts = [up(w.elements, job.devices) // job.devices for w in job.shapes.weights]
    part = sum(parts)
    there = sum(w.elements for w in job.shapes.weights if w.name in whole)
    return {"parameters": job.width * (part + there), "optimizer": 4 * (1 + kinds) * part + counts * len(passed(parts, SUB_GROUP - 1))}
