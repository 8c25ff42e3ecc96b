"""torchtitan's TOML files: FSDP2, tensor, sequence, context and pipeline parallelism by their degrees.

torchtitan takes the devices that share experts from those of tensor parallelism, if each expert is whole, of context parallelism, and of
shards, in this order (torchtitan==0.3.0:torchtitan/distributed/parallel_dims.py). What it refuses is refused, with its reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.importers.adapters import ELSEWHERE, FUSED, lora
from placeproof.importers.asked import Known
from placeproof.importers.document import Document
from placeproof.importers.fields import Reader
from placeproof.importers.imported import Imported, Reading, Role, Sharing, expression, over_axes, sharing, unless_usual
from placeproof.importers.meaning import meaning
from placeproof.importers.settings import settings
from placeproof.importers.torchtitan.registry import ADAPTERS, Registry, Tokens

_SINGLE = ("1f1b", "gpipe")
_LOOPED = ("Interleaved1F1B", "InterleavedZeroBubble", "LoopedBFS", "FlexibleInterleaved1F1B", "ZBVZeroBubble", "DualPipeV")
_V_SHAPED = ("zbvzerobubble", "dualpipev")
_WORDS = meaning("torchtitan").words
#: Schedules in small letters -> as the strategy `pp` names them. The others have orders of their own, which no data file here tells.
_ORDERS = {name.lower(): order for name, order in _WORDS["orders"].items()}
_NAMED = {s.lower(): s for s in ("1F1B", "GPipe", *_LOOPED, "PipelineScheduleSingle", "PipelineScheduleMulti")}
_DEGREES = {
    "dp_replicate": "data_parallel_replicate_degree",
    "dp_shard": "data_parallel_shard_degree",
    "tp": "tensor_parallel_degree",
    "pp": "pipeline_parallel_degree",
    "cp": "context_parallel_degree",
}
_ROTATE = "parallelism.context_parallel_rotate_method"
_CONVERTERS, _RANK, _BESIDE = "model.converters", "lora.rank", "lora.target_modules"
#: What names of converters to matrices that compute in few bits begin with, in small letters.
_FEW_BITS = ("float8", "mx", "nvfp4", "quantize.")
#: Modules beside which adapters stand, by the word of the strategy `lora`. No model calls the matrices of queries, keys and values one by
#: one as the strategy does: `wkv` are two in some, and none in those in which all three lie as one.
_MODULES = {"attention": {"wqkv", "wo"}, "linear": {"wqkv", "wo", "w1", "w2", "w3"}}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What follows from the settings. ``dp_shard``, ``steps`` and ``microbatches`` are None where the file leaves them open.

    ``split``: devices that an expert is split over. ``steps``: passes over the local batch before an update. ``microbatches``: parts of the
    local batch in a pipeline. ``order``: the schedule as the strategy `pp` names it, None where it has none of that kind; ``chunks``: runs
    of layers on a device, where the schedule leaves them open. ``offloaded``: whether the strategy says that FSDP's shards lie in host
    memory; ``ahead``: whether the next unit is gathered while one computes. ``widths``: what is kept in how many bytes.
    """

    dp_replicate: int
    dp_shard: int | None
    tp: int
    pp: int
    cp: int
    ep: int
    split: int
    steps: int | None
    microbatches: int | None
    schedule: str
    eight_bits: bool
    elementwise: bool
    adapters: bool = False
    order: str | None = None
    chunks: int | None = None
    offloaded: bool = False
    ahead: bool = False
    precision: str | None = None
    widths: str = ""
    wrapped: bool = False
    """Whether FSDP wraps the model however many devices there are."""
    sequence: bool = True
    """Whether tensor parallelism splits the tokens, too."""

    @property
    def copies(self) -> int:
        """Data-parallel devices."""
        return self.dp_replicate * (self.dp_shard or 1)

    @property
    def whole(self) -> bool:
        """Whether each of the experts that devices share is whole, while other matrices are split."""
        return self.ep > 1 and self.tp > 1 and self.split == 1

    @property
    def lies(self) -> Sharing:
        """Over which devices the experts lie."""
        return sharing(self.ep, self.dp_shard, tensor=self.tp, context=self.cp, whole=self.whole, sequence=self.sequence)

    @property
    def sharded(self) -> bool:
        """Whether torchtitan applies FSDP at all: it also shards over context parallel devices.

        Copies beside tensor or pipeline parallelism are wrapped in FSDP even where each keeps the whole (torchtitan==0.3.0:
        models/llama3/parallelize.py); earlier versions refuse them.
        """
        beside = self.dp_replicate > 1 and (self.tp > 1 or self.pp > 1)
        return self.wrapped or self.dp_shard is None or self.dp_shard > 1 or self.cp > 1 or beside


def read(document: Document, world: int | None, problems: Problems) -> Imported:
    """What a torchtitan file says, for ``world`` devices where that is known."""
    if not document.data:
        problems.add("PP501", f"`{document.source}` says nothing", help="is it the right file? torchtitan would train its debug model")
    python = isinstance(document, Registry)
    reader = Reader(document, [one for one in settings("torchtitan") if python or not one.name.startswith("lora.")], problems)
    for name in sorted(reader.open):
        if reader.fields[name].role is Role.READ:
            reader.refuse(name, f"`{name}` is left open: {document.open[name]}", "write the value itself")
    if problems.found and reader.open:
        return Imported(system="torchtitan", source=document.source, expression="", readings=())
    _check_converters(reader, (ADAPTERS,) if python else ())
    facts = _facts(reader, world)
    known = _known(reader, facts, world)
    _check_pipeline(known, facts)
    _check_experts(reader, facts)
    known.check()
    known.ask("torchtitan")
    step = _spread(reader, facts)
    if facts.adapters:
        step += lora(reader.get(_RANK), _beside(reader)).items()
    return Imported(
        system="torchtitan",
        source=document.source,
        expression=expression(step),
        readings=_readings(known, facts),
        precision=facts.precision,
        numbers=_numbers(reader, facts),
        without=() if facts.elementwise else ("elementwise-optimizer",),
    )


def _facts(reader: Reader, world: int | None) -> Facts:
    shard = _shard(reader, world)
    converters = _converters(reader)
    schedule = str(reader.get("parallelism.pipeline_parallel_schedule")).lower().replace("_", "")
    facts = Facts(
        dp_replicate=_degree(reader, "dp_replicate"),
        dp_shard=shard,
        tp=_degree(reader, "tp"),
        pp=_degree(reader, "pp"),
        cp=_degree(reader, "cp"),
        ep=reader.get("parallelism.expert_parallel_degree"),
        split=reader.get("parallelism.expert_tensor_parallel_degree"),
        steps=_steps(reader, shard),
        microbatches=_microbatches(reader),
        schedule="csv" if reader.get("parallelism.pipeline_parallel_schedule_csv") else schedule,
        adapters=ADAPTERS in converters,
        eight_bits=bool({*converters} - {ADAPTERS}) or reader.get("float8.enable_float8_linear"),
        elementwise=str(reader.get("optimizer.name")).lower() in ("adam", "adamw", "sgd", "lion"),
        sequence=bool(reader.get("parallelism.enable_sequence_parallel")),
        wrapped=isinstance(reader.document, Tokens),  # torchtitan/models/llama3/parallelize.py: "Always run"
    )
    order, chunks = _order(reader, facts)
    precision, widths = _precision(reader, facts)
    offloaded = (
        reader.get("training.enable_cpu_offload") and (shard != 1 or facts.wrapped) and facts.dp_replicate == 1 and _reshards(reader)
    )
    ahead = facts.sharded and not offloaded and _reshards(reader)
    return dataclasses.replace(facts, precision=precision, widths=widths, offloaded=offloaded, ahead=ahead, order=order, chunks=chunks)


def _converters(reader: Reader) -> list[str]:
    """What changes the model, by name."""
    return [str(one) for one in reader.get(_CONVERTERS) if str(one).strip()]


def _check_converters(reader: Reader, known: tuple[str, ...]) -> None:
    """What changes the model in a way that is not known, or that torchtitan refuses. ``known``: converters other than to few bits."""
    names = _converters(reader)
    strange = [one for one in names if not one.lower().startswith(_FEW_BITS) and one not in known]
    if strange:
        reader.refuse(_CONVERTERS, f"`{strange[0]}` changes the model in a way that is not known", "leave it out")
    elif ADAPTERS in names[:-1]:  # torchtitan/models/utils.py, and torchtitan/components/lora.py: adapters beside adapters
        message = f"`{names[names.index(ADAPTERS) + 1]}` follows adapters, which torchtitan puts last, and once"
        reader.refuse(_CONVERTERS, message, "write the converter of adapters last")
    elif ADAPTERS in names and reader.get(_BESIDE) == []:
        reader.refuse(_BESIDE, "adapters stand beside no matrix: nothing is trained", "leave it out, or name modules")


def _order(reader: Reader, facts: Facts) -> tuple[str | None, int | None]:
    """The schedule as the strategy `pp` names it, and runs of layers on a device where it leaves them open. None for what it has not."""
    order, stages = _ORDERS.get(facts.schedule), _stages(reader)
    if order != "interleaved":
        return order, None
    if facts.microbatches is not None and facts.microbatches % facts.pp:
        return None, None  # torch then takes other groups of micro-batches than as many as devices
    if stages is not None:
        number = stages[1]
        return (order, number // facts.pp) if number % facts.pp == 0 and number > facts.pp else (None, None)
    return (None, None) if reader.said("parallelism.pipeline_parallel_layers_per_stage") else (order, 2)


def _degree(reader: Reader, short: str) -> int:
    """A degree of parallelism."""
    return int(reader.get(f"parallelism.{_DEGREES[short]}"))


def _shard(reader: Reader, world: int | None) -> int | None:
    """The degree of sharding; the devices that are left where the file says -1. Problems where degrees do not make the world."""
    said = _degree(reader, "dp_shard")
    degrees = {short: _degree(reader, short) for short in _DEGREES if short != "dp_shard"}
    others = prod(degrees.values())
    if world is None or not reader.sound(*(f"parallelism.{name}" for name in _DEGREES.values())):
        return None if said == -1 else said
    return max(1, world // others) if said == -1 else said


def _steps(reader: Reader, shard: int | None) -> int | None:
    """Passes over the local batch before an update."""
    total, local = reader.get("training.global_batch_size"), reader.get("training.local_batch_size")
    if total == -1:
        return 1
    names = ("training.global_batch_size", "training.local_batch_size", *(f"parallelism.{n}" for n in _DEGREES.values()))
    copies = _degree(reader, "dp_replicate") * (shard or 1)
    if not reader.sound(*names):
        return None
    if total % (local * copies):
        return None  # a rule says so
    return total // (local * copies) if shard is not None else None


def _microbatches(reader: Reader) -> int | None:
    """Parts of the local batch in a pipeline: by their number in older versions, by their size in newer ones."""
    local, size = reader.get("training.local_batch_size"), "parallelism.pipeline_parallel_microbatch_size"
    number = "parallelism.pipeline_parallel_microbatches"
    if _degree(reader, "pp") == 1:
        return 1
    if not reader.sound("training.local_batch_size", size, number):
        return None
    if reader.said(number) and reader.said(size):
        reader.refuse(size, "micro-batches are given by their number and by their size", "say one of them")
        return None
    if reader.said(number):
        parts = int(reader.get(number))
        if local % parts:
            reader.refuse(number, f"a local batch of {local} cannot be cut into {parts} equal parts", "choose a divisor of it")
        return parts
    if reader.name("training.local_batch_size") == "training.batch_size" and not reader.said(size):
        return None  # files this old may mean as many parts as stages, or parts of one sample
    if local % reader.get(size):
        reader.refuse(size, f"a local batch of {local} cannot be cut into parts of {reader.get(size)} samples", "choose a divisor of it")
        return None
    return int(local // reader.get(size))


def _reshards(reader: Reader) -> bool:
    policy = reader.get("parallelism.fsdp_reshard_after_forward")
    return bool(policy == "always" or (policy == "default" and _degree(reader, "pp") == 1))


def _precision(reader: Reader, facts: Facts) -> tuple[str | None, str]:
    """A named precision and what is kept, gathered and reduced in how many bytes."""
    kept, used, reduced = (reader.get(f"training.{n}") for n in ("dtype", "mixed_precision_param", "mixed_precision_reduce"))
    adam = str(reader.get("optimizer.name")).lower() in ("adam", "adamw") and not facts.eight_bits
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


def _spread(reader: Reader, facts: Facts) -> list[tuple[str, Mapping[str, object]]]:
    """The strategies over all axes."""
    attention = _WORDS["exchanges"][reader.get(_ROTATE) or "allgather"]  # what torchtitan does unless it is told otherwise
    parts, lies = _strategy(reader, facts), facts.lies
    return over_axes(parts, tokens=facts.cp, attention=unless_usual(attention), experts=lies, whole=facts.whole)


def _strategy(reader: Reader, facts: Facts) -> dict[str, dict[str, object]]:
    """The strategies by name, with their arguments."""
    parts: dict[str, dict[str, object]] = {}
    kept = None if _reshards(reader) else False
    ahead = True if facts.ahead and facts.ep == 1 else None  # two units are alive, which no strategy says beside experts
    shard = facts.dp_shard if facts.dp_shard is None else max(facts.dp_shard // facts.lies.rest, 1)
    if facts.sharded and facts.dp_replicate > 1:
        parts["hsdp"] = {"rep": facts.dp_replicate, "shard": shard, "reshard_after_forward": kept, "prefetch": ahead}
    elif facts.offloaded:
        parts["zero_infinity"] = {"dp": shard}
    elif facts.dp_shard != 1 or facts.cp > 1:
        parts["fsdp"] = {"dp": shard, "reshard_after_forward": kept, "prefetch": ahead}
    elif facts.dp_replicate > 1:
        parts["ddp"] = {"dp": facts.dp_replicate}
    if facts.tp > 1:
        parts["tp"] = {"tp": facts.tp}
        if reader.get("parallelism.enable_sequence_parallel"):
            parts["sp"] = {"tp": facts.tp}
    if facts.pp > 1:
        parts["pp"] = {"pp": facts.pp, "schedule": facts.order if facts.order != "1f1b" else None, "chunks": facts.chunks}
    if not parts:
        parts["ddp"] = {"dp": 1}
    if reader.get("activation_checkpoint.mode") == "full":
        parts["checkpoint"] = {}
    parts["clip"] = {}  # by a limit of 0, too: nothing is left then
    if facts.steps != 1 and facts.pp == 1:
        parts["accumulate"] = {}
    return parts


def _beside(reader: Reader) -> str | None:
    """The strategy's word for the modules that have adapters, None where it has none."""
    said = set(map(str, reader.get(_BESIDE) or ()))
    return next((word for word, modules in _MODULES.items() if modules == said), None)


def _of_adapters(reader: Reader) -> Iterator[Reading]:
    """What is not said of them."""
    if reader.said(_BESIDE):
        reader.note(_BESIDE, FUSED if _beside(reader) else ELSEWHERE, Role.NOT_MODELLED)
    else:
        note = f"not said; beside every linear layer, that of the vocabulary and routers, too; {ELSEWHERE}"
        yield Reading(name=_BESIDE, value=None, role=Role.NOT_MODELLED, note=note)
    if not reader.said(_RANK):
        yield Reading(name=_RANK, value=reader.get(_RANK), role=Role.READ, note="not said; the default", told=True)


def _numbers(reader: Reader, facts: Facts) -> dict[str, Fraction]:
    """The values of symbols that the file says."""
    numbers: dict[str, Fraction] = {}
    if reader.said("training.local_batch_size") and facts.microbatches is not None:
        numbers["b"] = Fraction(reader.get("training.local_batch_size"), facts.microbatches)
    if reader.said("training.seq_len"):
        numbers["s"] = Fraction(reader.get("training.seq_len"))
    if facts.steps is not None and facts.microbatches is not None:
        numbers["m"] = Fraction(facts.steps * facts.microbatches)
    return numbers


def _known(reader: Reader, facts: Facts, world: int | None) -> Known:
    """The facts of the file."""
    known = Known(reader, meaning("torchtitan"))
    for name in ("dp_replicate", "dp_shard", "tp", "pp", "cp"):
        known.put(name, getattr(facts, name), f"parallelism.{_DEGREES[name]}")
    known.put("ep", facts.ep, "parallelism.expert_parallel_degree")
    known.put("split", facts.split, "parallelism.expert_tensor_parallel_degree")
    known.put("world", world)
    known.put("sp", reader.get("parallelism.enable_sequence_parallel"))
    for name in ("copies", "schedule", "eight_bits", "elementwise", "adapters", "wrapped", "offloaded", "widths", "sharded"):
        known.put(name, getattr(facts, name))
    if facts.wrapped:  # versions in which these have a meaning, and defaults
        backend = reader.get("parallelism.spmd_backend") or "spmd_types"
        known.put("backend", backend, "parallelism.spmd_backend")
        checked = reader.get("debug.spmd_typechecking") and backend == "spmd_types"
        known.put("spmd_typecheck", bool(checked), "debug.spmd_typechecking")
        known.put("cuda_graphs", not reader.get("training.disable_cuda_graphs"), "training.disable_cuda_graphs")
    known.put("steps", facts.steps or 0)
    known.put("microbatches", facts.microbatches or 0)
    known.put("order", facts.order or "")
    known.put("precision", facts.precision or "")
    known.derive()
    return known


def _check_pipeline(known: Known, facts: Facts) -> None:
    """Rules of schedules: which there are, how many stages and micro-batches they take."""
    reader, schedule = known.reader, "parallelism.pipeline_parallel_schedule"
    if facts.pp == 1 or facts.schedule == "csv":
        return
    shown = _NAMED.get(facts.schedule)
    if shown is None:
        hint = suggestion(str(reader.get(schedule)), _NAMED.values()) or "one of " + ", ".join(_NAMED.values())
        reader.refuse(schedule, f"`{reader.get(schedule)}` is no schedule of torch's pipelines", hint, "PP503")
        return
    stages = _stages(reader)
    if stages is not None and shown in _LOOPED and stages[1] > 2 * facts.pp and stages[1] % facts.pp:
        message = f"{shown} has as many stages on each device: {stages[1]} stages, {facts.pp} devices"
        reader.refuse(stages[0], message, f"name a multiple of {facts.pp}")
    pipeline = Known(reader, known.meaning)
    pipeline.put("pp", facts.pp, "parallelism.pipeline_parallel_degree")
    pipeline.put("sched", shown, schedule)
    pipeline.put("nmb", facts.microbatches, "training.local_batch_size")
    pipeline.put("single_stage_schedule", facts.schedule in _SINGLE, schedule)
    pipeline.put("v_schedule", facts.schedule in _V_SHAPED, schedule)
    if stages is not None:
        pipeline.put("nstages", stages[1], stages[0])
    elif shown == "DualPipeV":
        pipeline.put("nstages", 2 * facts.pp, schedule)
    pipeline.ask("pytorch", "torchtitan")


def _stages(reader: Reader) -> tuple[str, int] | None:
    """The setting that names stages, and how many it names."""
    modules, splits = "parallelism.module_fqns_per_model_part", "parallelism.pipeline_parallel_split_points"
    if reader.said(modules) and reader.get(modules):
        return modules, len(reader.get(modules))
    points = [p for text in reader.get(splits) for p in str(text).split(",") if p.strip()]
    return (splits, len(points) + 1) if points else None


def _check_experts(reader: Reader, facts: Facts) -> None:
    """What torchtitan refuses of experts that devices share, and what no strategy says."""
    name, devices, shard, split = "parallelism.expert_parallel_degree", facts.cp * facts.tp, facts.dp_shard, facts.split
    if facts.ep == 1 or split not in (1, facts.tp):
        return
    if shard is not None and shard * devices % (facts.ep * split):
        room = shard * devices // split
        message = f"experts cannot be split {facts.ep} ways over {room} devices (sharding * context * tensor, per expert split)"
        reader.refuse(name, message, f"choose a divisor of {room}")
    elif complaint := facts.lies.complaint:
        reader.refuse(name, *complaint)


def _note_experts(reader: Reader, facts: Facts) -> None:
    """Over which devices the experts lie."""
    lies = facts.lies
    uncounted = facts.whole and "tp" not in lies.axes
    note = lies.note("the shards")
    if "tp" in lies.axes:  # torchtitan==0.3.0:torchtitan/distributed/expert_parallel.py, ReordererSequenceParallel
        note += "; torchtitan gathers tokens over tp for the router, and scatters what comes back, which is not counted"
    elif uncounted:  # torchtitan==0.3.0:torchtitan/distributed/parallel_dims.py, efsdp
        note += f"; FSDP shards whole experts over tensor parallelism too: a device has 1/{facts.tp} of what is counted of them"
    elif lies.elsewhere:
        note += "; those of one sequence first: the same bytes, between other devices"
    if facts.ahead:
        note += "; one gathered unit is counted, and torch gathers the next one early"
    reader.note("parallelism.expert_parallel_degree", note, Role.NOT_MODELLED if facts.whole else Role.READ, told=facts.ahead)


def _readings(known: Known, facts: Facts) -> tuple[Reading, ...]:
    """Each setting once, and the defaults that a file leaves unsaid but that change the step."""
    _note_experts(known.reader, facts)
    adapters = [*_of_adapters(known.reader)] if facts.adapters else []
    return (
        *known.readings(),
        *adapters,
        *known.unsaid("activation_checkpoint.mode", "training.max_norm", "training.mixed_precision_param"),
    )
