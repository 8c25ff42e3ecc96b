"""torchtitan's TOML files: FSDP2, tensor, sequence, context and pipeline parallelism by their degrees.

torchtitan takes the devices that share experts from those of data, context and tensor parallelism; the strategy `ep` takes them from the
first alone, and the rest is refused. So is what torchtitan refuses, with its reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from math import prod
from typing import Any

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.importers.document import Document
from placeproof.importers.fields import Reader
from placeproof.importers.imported import Imported, Reading, Role, expression, misplaced, over_axes
from placeproof.importers.torchtitan import facts as torchtitan_facts
from placeproof.importers.torchtitan.fields import FIELDS, OLD_NAMES
from placeproof.importers.torchtitan.notes import Facts, amendments

_SINGLE = ("1f1b", "gpipe")
_LOOPED = ("Interleaved1F1B", "InterleavedZeroBubble", "LoopedBFS", "FlexibleInterleaved1F1B", "ZBVZeroBubble", "DualPipeV")
_V_SHAPED = ("zbvzerobubble", "dualpipev")
#: Schedules -> as the strategy `pp` names them. The others have orders of their own, which no data file here tells.
_ORDERS = {"1f1b": "1f1b", "gpipe": "gpipe", "interleaved1f1b": "interleaved", "zbvzerobubble": "zb-v", "dualpipev": "dualpipe-v"}
#: How keys and values reach other devices -> as the strategy `cp` says it. torchtitan gathers them unless it is told otherwise.
_ROTATES = {None: "gather", "allgather": "gather", "alltoall": None}
_NAMED = {s.lower(): s for s in ("1F1B", "GPipe", *_LOOPED, "PipelineScheduleSingle", "PipelineScheduleMulti")}
_DEGREES = {
    "replicate": "data_parallel_replicate_degree",
    "shard": "data_parallel_shard_degree",
    "tp": "tensor_parallel_degree",
    "pp": "pipeline_parallel_degree",
    "cp": "context_parallel_degree",
}
_ROTATE = "parallelism.context_parallel_rotate_method"


class Settings:
    """The settings by their newest names, wherever a file says them."""

    def __init__(self, document: Document, problems: Problems) -> None:
        self.document = document
        self.reader = Reader(document, FIELDS, problems)
        for new, old in OLD_NAMES.items():
            said = [name for name in (new, *old) if self.reader.said(name)]
            for name in said[1:]:
                message = f"`{name}` and `{said[0]}` are one setting of two versions"
                self.reader.refuse(name, message, "say it once, under the name that your version knows")

    def name(self, name: str) -> str:
        """The name that the file uses."""
        return next((n for n in (name, *OLD_NAMES.get(name, ())) if self.reader.said(n)), name)

    def get(self, name: str) -> Any:
        """The value, or the default."""
        return self.reader.get(self.name(name))

    def said(self, name: str) -> bool:
        """Whether the file says it, under one of its names."""
        return self.reader.said(self.name(name))

    def refuse(self, name: str, message: str, help: str, code: str = "PP504", notes: tuple[str, ...] = ()) -> None:
        """A problem at the setting's place."""
        self.reader.refuse(self.name(name), message, help, code, notes)

    def sound(self, *names: str) -> bool:
        """Whether none of them was said with a value that it cannot have."""
        return all(self.reader.sound(n) for name in names for n in (name, *OLD_NAMES.get(name, ())))

    def degree(self, short: str) -> int:
        """A degree of parallelism."""
        return int(self.get(f"parallelism.{_DEGREES[short]}"))


def read(document: Document, world: int | None, problems: Problems) -> Imported:
    """What a torchtitan file says, for ``world`` devices where that is known."""
    if not document.data:
        problems.add("PP501", f"`{document.source}` says nothing", help="is it the right file? torchtitan would train its debug model")
    settings = Settings(document, problems)
    facts = _facts(settings, world)
    _check_pipeline(settings, facts)
    _check_others(settings, facts)
    known = torchtitan_facts.degrees(settings.reader, facts, world, settings.name)
    torchtitan_facts.samples(known, facts, settings.name)
    known.ask("torchtitan", settings.refuse, torchtitan_facts.SAYS)
    return Imported(
        system="torchtitan",
        source=document.source,
        expression=expression(_spread(settings, facts)),
        readings=_readings(settings, facts),
        precision=facts.precision,
        numbers=_numbers(settings, facts),
        without=() if facts.elementwise else ("elementwise-optimizer",),
    )


def _facts(settings: Settings, world: int | None) -> Facts:
    shard = _shard(settings, world)
    converters = [c for c in settings.get("model.converters") if str(c).strip()]
    schedule = str(settings.get("parallelism.pipeline_parallel_schedule")).lower().replace("_", "")
    facts = Facts(
        replicate=settings.degree("replicate"),
        shard=shard,
        tp=settings.degree("tp"),
        pp=settings.degree("pp"),
        cp=settings.degree("cp"),
        ep=settings.get("parallelism.expert_parallel_degree"),
        split=settings.get("parallelism.expert_tensor_parallel_degree"),
        steps=_steps(settings, shard),
        microbatches=_microbatches(settings),
        schedule="csv" if settings.get("parallelism.pipeline_parallel_schedule_csv") else schedule,
        mode=settings.get("activation_checkpoint.mode"),
        eight_bits=bool(converters) or settings.get("float8.enable_float8_linear"),
        elementwise=str(settings.get("optimizer.name")).lower() in ("adam", "adamw", "sgd", "lion"),
        max_norm=float(settings.get("training.max_norm")),
    )
    order, chunks = _order(settings, facts)
    precision, widths = _precision(settings, facts)
    offloaded = settings.get("training.enable_cpu_offload") and shard != 1 and facts.replicate == 1 and _reshards(settings)
    ahead = facts.sharded and not offloaded and _reshards(settings)
    return dataclasses.replace(facts, precision=precision, widths=widths, offloaded=offloaded, ahead=ahead, order=order, chunks=chunks)


def _order(settings: Settings, facts: Facts) -> tuple[str | None, int | None]:
    """The schedule as the strategy `pp` names it, and runs of layers on a device where it leaves them open. None for what it has not."""
    order, stages = _ORDERS.get(facts.schedule), _stages(settings)
    if order != "interleaved":
        return order, None
    if facts.microbatches is not None and facts.microbatches % facts.pp:
        return None, None  # torch then takes other groups of micro-batches than as many as devices
    if stages is not None:
        number = stages[1]
        return (order, number // facts.pp) if number % facts.pp == 0 and number > facts.pp else (None, None)
    return (None, None) if settings.said("parallelism.pipeline_parallel_layers_per_stage") else (order, 2)


def _shard(settings: Settings, world: int | None) -> int | None:
    """The degree of sharding; the devices that are left where the file says -1. Problems where degrees do not make the world."""
    said = settings.degree("shard")
    degrees = {short: settings.degree(short) for short in _DEGREES if short != "shard"}
    others = prod(degrees.values())
    if world is None or not settings.sound(*(f"parallelism.{name}" for name in _DEGREES.values())):
        return None if said == -1 else said
    return max(1, world // others) if said == -1 else said


def _steps(settings: Settings, shard: int | None) -> int | None:
    """Passes over the local batch before an update."""
    total, local = settings.get("training.global_batch_size"), settings.get("training.local_batch_size")
    if total == -1:
        return 1
    names = ("training.global_batch_size", "training.local_batch_size", *(f"parallelism.{n}" for n in _DEGREES.values()))
    copies = settings.degree("replicate") * (shard or 1)
    if not settings.sound(*names):
        return None
    if total % (local * copies):
        return None  # a rule says so
    return total // (local * copies) if shard is not None else None


def _microbatches(settings: Settings) -> int | None:
    """Parts of the local batch in a pipeline: by their number in older versions, by their size in newer ones."""
    local, size = settings.get("training.local_batch_size"), "parallelism.pipeline_parallel_microbatch_size"
    number = "parallelism.pipeline_parallel_microbatches"
    if settings.degree("pp") == 1:
        return 1
    if not settings.sound("training.local_batch_size", size, number):
        return None
    if settings.said(number) and settings.said(size):
        settings.refuse(size, "micro-batches are given by their number and by their size", "say one of them")
        return None
    if settings.said(number):
        parts = int(settings.get(number))
        if local % parts:
            settings.refuse(number, f"a local batch of {local} cannot be cut into {parts} equal parts", "choose a divisor of it")
        return parts
    if settings.name("training.local_batch_size") == "training.batch_size" and not settings.said(size):
        return None  # files this old may mean as many parts as stages, or parts of one sample
    if local % settings.get(size):
        settings.refuse(
            size, f"a local batch of {local} cannot be cut into parts of {settings.get(size)} samples", "choose a divisor of it"
        )
        return None
    return int(local // settings.get(size))


def _reshards(settings: Settings) -> bool:
    policy = settings.get("parallelism.fsdp_reshard_after_forward")
    return bool(policy == "always" or (policy == "default" and settings.degree("pp") == 1))


def _precision(settings: Settings, facts: Facts) -> tuple[str | None, str]:
    """A named precision and what is kept, gathered and reduced in how many bytes."""
    kept, used, reduced = (settings.get(f"training.{n}") for n in ("dtype", "mixed_precision_param", "mixed_precision_reduce"))
    adam = str(settings.get("optimizer.name")).lower() in ("adam", "adamw") and not facts.eight_bits
    width = {"float32": 4, "bfloat16": 2}
    name = {"float32": "fp32-adam", "bfloat16": "bf16-adam"}[kept]
    if facts.sharded:
        plain = kept == used == reduced
        widths = f"FSDP keeps weights, gradients and optimizer state in {width[kept]} bytes each, gathers weights in {width[used]} and "
        kept_alone = "" if plain or not adam else f": `--precision {name}` counts what is kept"
        return name if plain and adam else None, f"{widths}reduces gradients in {width[reduced]}{kept_alone}"
    if facts.tp > 1 or facts.pp > 1:
        return name if adam else None, f"has no effect without FSDP under tensor or pipeline parallelism: all in {width[kept]} bytes"
    widths = f"weights, gradients and optimizer state in {width[kept]} bytes each; autocast multiplies in {width[used]}"
    return name if kept == used and adam else None, widths


def _spread(settings: Settings, facts: Facts) -> list[tuple[str, Mapping[str, object]]]:
    """The strategies over all axes."""
    attention = _ROTATES[settings.get(_ROTATE)]
    return over_axes(_strategy(settings, facts), tokens=facts.cp, attention=attention, experts=facts.ep, whole=facts.whole)


def _strategy(settings: Settings, facts: Facts) -> dict[str, dict[str, object]]:
    """The strategies by name, with their arguments."""
    parts: dict[str, dict[str, object]] = {}
    kept = None if _reshards(settings) else False
    ahead = True if facts.ahead and facts.ep == 1 else None  # two units are alive, which no strategy says beside experts
    shard = facts.shard if facts.shard is None else max(facts.shard // facts.ep, 1)
    if facts.sharded and facts.replicate > 1:
        parts["hsdp"] = {"rep": facts.replicate, "shard": shard, "reshard_after_forward": kept, "prefetch": ahead}
    elif facts.offloaded:
        parts["zero_infinity"] = {"dp": shard}
    elif facts.shard != 1 or facts.cp > 1:
        parts["fsdp"] = {"dp": shard, "reshard_after_forward": kept, "prefetch": ahead}
    elif facts.replicate > 1:
        parts["ddp"] = {"dp": facts.replicate}
    if facts.tp > 1:
        parts["tp"] = parts["sp"] = {"tp": facts.tp}
    if facts.pp > 1:
        parts["pp"] = {"pp": facts.pp, "schedule": facts.order if facts.order != "1f1b" else None, "chunks": facts.chunks}
    if not parts:
        parts["ddp"] = {"dp": 1}
    if facts.mode == "full":
        parts["checkpoint"] = {}
    if facts.steps != 1 and facts.pp == 1:
        parts["accumulate"] = {}
    return parts


def _numbers(settings: Settings, facts: Facts) -> dict[str, Fraction]:
    """The values of symbols that the file says."""
    numbers: dict[str, Fraction] = {}
    if settings.said("training.local_batch_size") and facts.microbatches is not None:
        numbers["b"] = Fraction(settings.get("training.local_batch_size"), facts.microbatches)
    if settings.said("training.seq_len"):
        numbers["s"] = Fraction(settings.get("training.seq_len"))
    if facts.steps is not None and facts.microbatches is not None:
        numbers["m"] = Fraction(facts.steps * facts.microbatches)
    return numbers


def _check_pipeline(settings: Settings, facts: Facts) -> None:
    """Rules of schedules: which there are, how many stages and micro-batches they take."""
    schedule = "parallelism.pipeline_parallel_schedule"
    if facts.pp == 1 or facts.schedule == "csv":
        return
    shown = _NAMED.get(facts.schedule)
    if shown is None:
        hint = suggestion(str(settings.get(schedule)), _NAMED.values()) or "one of " + ", ".join(_NAMED.values())
        settings.refuse(schedule, f"`{settings.get(schedule)}` is no schedule of torch's pipelines", hint, "PP503")
        return
    stages = _stages(settings)
    if stages is not None and shown in _LOOPED and stages[1] > 2 * facts.pp and stages[1] % facts.pp:
        message = f"{shown} has as many stages on each device: {stages[1]} stages, {facts.pp} devices"
        settings.refuse(stages[0], message, f"name a multiple of {facts.pp}")
    kinds = (facts.schedule in _SINGLE, facts.schedule in _V_SHAPED)
    known = torchtitan_facts.schedule(settings.reader, facts, shown, stages, kinds)
    for system in ("pytorch", "torchtitan"):
        known.ask(system, settings.refuse, torchtitan_facts.SAYS)


def _stages(settings: Settings) -> tuple[str, int] | None:
    """The setting that names stages, and how many it names."""
    modules, splits = "parallelism.module_fqns_per_model_part", "parallelism.pipeline_parallel_split_points"
    if settings.said(modules) and settings.get(modules):
        return modules, len(settings.get(modules))
    points = [p for text in settings.get(splits) for p in str(text).split(",") if p.strip()]
    return (splits, len(points) + 1) if points else None


def _check_others(settings: Settings, facts: Facts) -> None:
    """Rules of degrees and of options that exclude each other."""
    _check_experts(settings, facts)
    early = "optimizer.early_step_in_backward"
    if settings.get(early) and (facts.pp > 1 or facts.ep > 1):
        other = "pipeline" if facts.pp > 1 else "expert"
        settings.refuse(early, f"torchtitan has no update during backward under {other} parallelism", "set it to false")
    overlap = "parallelism.enable_async_tensor_parallel"
    compiled = settings.get("compile.enable") and "model" in (settings.get("compile.components") or ["model"])
    if settings.get(overlap) and facts.tp > 1 and not compiled:
        settings.refuse(overlap, "torchtitan overlaps tensor parallelism only in a compiled model", "set `compile.enable` to true")


def _check_experts(settings: Settings, facts: Facts) -> None:
    name, split = "parallelism.expert_parallel_degree", settings.get("parallelism.expert_tensor_parallel_degree")
    if facts.ep == 1:
        return
    if split not in (1, facts.tp):
        message = f"experts are split {split} ways and the rest {facts.tp} ways"
        settings.refuse("parallelism.expert_tensor_parallel_degree", message, "torchtitan takes 1 or the tensor parallel degree")
    elif facts.shard is not None and facts.shard * facts.cp * facts.tp % (facts.ep * split):
        room = facts.shard * facts.cp * facts.tp // split
        message = f"experts cannot be split {facts.ep} ways over {room} devices (sharding * context * tensor, per expert split)"
        settings.refuse(name, message, f"choose a divisor of {room}")
    elif found := misplaced(facts.ep, facts.shard, context=facts.cp, tensor=facts.tp if facts.whole else 1):
        settings.refuse(name, *found)


def _readings(settings: Settings, facts: Facts) -> tuple[Reading, ...]:
    """Each setting once, and the defaults that a file leaves unsaid but that change the step."""
    changed = amendments(facts, {n: new for new, old in OLD_NAMES.items() for n in old})
    found = tuple(changed(reading) for reading in settings.reader.readings)
    said = {r.name for r in found}
    unsaid = []
    for name in ("activation_checkpoint.mode", "training.max_norm", "training.mixed_precision_param"):
        if name not in said:
            reading = changed(Reading(name=name, value=settings.get(name), role=Role.READ, note="decides the widths"))
            unsaid.append(dataclasses.replace(reading, note=f"not said; {reading.note}"))
    return (*found, *unsaid)
