"""Accelerate: the file that `accelerate config` writes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from placeproof.core.diagnostics import Problems
from placeproof.importers.accelerate import deepspeed as accelerate_deepspeed
from placeproof.importers.accelerate.experts import check_experts, experts
from placeproof.importers.accelerate.facts import known, megatron_known
from placeproof.importers.accelerate.run import MULTI, SHARDING, AccelerateReader, without_empty
from placeproof.importers.asked import Known
from placeproof.importers.document import Document
from placeproof.importers.imported import Imported, Reading, Role, clips, expression, over_axes, unless_usual
from placeproof.importers.meaning import meaning

_DS, _FSDP, _MG, _PC = "deepspeed_config.", "fsdp_config.fsdp_", "megatron_lm_config.megatron_lm_", "parallelism_config.parallelism_config_"
#: What becomes of a model whose layers are no units, in each version of FSDP (accelerate==1.15.0:utils/fsdp_utils.py, fsdp2_prepare_model).
_WHOLE = "the layers are no units: all of them are gathered at once, and stay so between forward and backward"
UNWRAPPED = (
    _WHOLE,
    f"{_WHOLE}; Accelerate cuts off the embedding and the head of a model of transformers, which here are part of the unit",
)
#: What Megatron does where it is to divide by the tokens of all devices, and a loss does not say how many it has, as none of Accelerate's
#: own does (accelerate==1.15.0:utils/megatron_lm.py, megatron-core==0.16.1:pipeline_parallel/schedules.py).
_UNDIVIDED = "gradients are added up over dp and cp, and divided by nothing: the losses of Accelerate do not count tokens"
_HALVES = "16-bit weights and gradients, with an fp32 copy"
_Parts = dict[str, dict[str, object]]


def read(document: Document, world: int | None, problems: Problems) -> Imported:
    """Read a configuration of Accelerate. ``world`` is the number of processes where the file leaves it open."""
    document, empty = without_empty(document)
    run = AccelerateReader(document, problems)
    _refuse_null(run, empty)
    _count(run, world)
    sizes = _sizes(run)
    if accelerate_deepspeed.named_file(run):
        return _followed(run, known(run, sizes), empty, problems)
    build = {"FSDP": _fsdp, "DEEPSPEED": accelerate_deepspeed.parts, "MEGATRON_LM": _megatron, "TP": _tensor}.get(run.kind, _plain)
    parts = build(run, sizes)
    tokens, attention = _tokens(run, sizes)
    ep, whole = experts(run)
    if tokens * ep == 1 and not set(parts) - {"accumulate", "checkpoint", "clip"}:
        parts = {"ddp": {"dp": 1}, **parts}
    _check_others(run)
    facts = known(run, sizes)
    facts.check()
    facts.ask("accelerate", *(["deepspeed"] if run.kind == "DEEPSPEED" else []))
    if run.kind == "MEGATRON_LM":
        megatron_known(run).ask("megatron")
    precision = _precision(run)
    lies = run.experts
    spread = over_axes(parts, tokens=tokens, attention=attention, experts=lies, whole=whole)
    return Imported(
        system="accelerate",
        source=document.source,
        expression=expression(spread),
        readings=_readings(run, facts, empty),
        precision=precision,
        half=next((one for one in ("fp16", "bf16") if run.kind in ("DEEPSPEED", "MEGATRON_LM") and one == _width(run)), None),
        numbers=run.numbers,
        without=("equal-token-counts",) if run.kind == "MEGATRON_LM" and run.get(_MG + "eod_mask_loss") else (),
        recompute=_extent(run),
    )


def _followed(run: AccelerateReader, facts: Known, empty: list[Reading], problems: Problems) -> Imported:
    """What the file of DeepSpeed says that the configuration names, with the settings of both."""
    _check_others(run)
    facts.check()
    source = run.document.source
    imported = accelerate_deepspeed.follow(run, source, problems)
    if imported is None:
        return Imported(system="accelerate", source=source, expression="", readings=())
    name = run.get(_DS + "deepspeed_config_file")
    inner = tuple(replace(reading, name=f"{name}: {reading.name}") for reading in imported.readings)
    return replace(imported, system="accelerate", source=source, readings=(*_readings(run, facts, empty), *inner))


def _readings(run: AccelerateReader, facts: Known, empty: list[Reading]) -> tuple[Reading, ...]:
    """Every setting in the order of the file, with what was found out about it."""

    def order(reading: Reading) -> tuple[int, int]:
        return (reading.place.line, reading.place.column) if reading.place else (0, 0)

    unsaid = [
        Reading(name=name, value=run.get(name), role=role or Role.READ, note=f"not said; {note}", told=True)
        for name, (role, note, _) in run.unsaid.items()
    ]
    return (*sorted([*facts.readings(), *empty], key=order), *unsaid)


def _refuse_null(run: AccelerateReader, empty: list[Reading]) -> None:
    """Settings of Megatron-LM that Accelerate hands on as the text `None` where a file says null (accelerate==1.15.0:utils/launch.py)."""
    handed_on = [_MG + name for name in ("tp_degree", "pp_degree", "gradient_clipping", "use_custom_fsdp")]
    for name in (one.name for one in empty if one.name in handed_on and run.kind == "MEGATRON_LM"):
        run.refuse(name, "null is handed on as the text `None`, and Accelerate stops at it", "leave it out, or give it a value", "PP503")


def _count(run: AccelerateReader, world: int | None) -> None:
    """The processes in all, and the machines that share them."""
    said = run.get("num_processes")
    if said is not None and (said == 0 or said < -1):
        run.refuse("num_processes", f"{said} processes cannot run", "at least 1, or -1 where the launcher says it", "PP503")
        said = None
    if said == -1:
        run.note("num_processes", "left to the launcher")
        said = None
    if run.kind == "NO":
        said = _single(run, said, world)
    elif world is not None and said is not None and world != said:
        run.refuse("num_processes", f"the file starts {said} processes, and {world} devices were given", "leave one of the two out")
    run.world = said if said is not None else world


def _single(run: AccelerateReader, count: int | None, world: int | None) -> int:
    """Without distribution one process is started, whatever the number says."""
    if count is not None and count > 1:
        run.refuse("num_processes", f"{count} processes, and `distributed_type` is NO: one is started", "`distributed_type: MULTI_GPU`")
    elif world is not None and world > 1:
        run.refuse("distributed_type", f"NO is one process, and {world} devices were given", "`distributed_type: MULTI_GPU`")
    return 1


def _sizes(run: AccelerateReader) -> dict[str, int]:
    """The sizes of `parallelism_config`, checked against each other and against the world; none said: an empty table."""
    names = [f"{n}_size" for n in ("dp_replicate", "dp_shard", "cp", "sp", "tp")]
    if not isinstance(run.document.data.get("parallelism_config"), dict):
        return {}
    rep, shard, cp, sp, tp = (run.get(_PC + n) for n in names)
    two = run.kind == "FSDP" and int(run.get(_FSDP + "version")) == 2
    product = rep * shard * cp * sp * tp
    said = [_PC + n for n in names if run.said(_PC + n)]
    last = next((n for n in reversed(said) if run.get(n) > 1), said[-1] if said else "parallelism_config")
    sizes = dict(zip((_PC + n for n in names), (rep, shard, cp, sp, tp), strict=True))
    facts = known(run, sizes)
    told = facts.breaks("accelerate-06") and sp == 1
    if product > 1 and not two and run.kind not in (*MULTI, "DEEPSPEED", "") and not told:
        run.refuse(last, "sizes of parallelism_config need FSDP 2, DeepSpeed or plain processes", "`fsdp_version: 2`, or leave them out")
    if two and not facts.breaks("accelerate-02") and shard == 1 and cp == 1 and (run.world or product) != 1:
        run.refuse(last, "FSDP 2 has nothing to shard over: dp_shard_size and cp_size are 1", "raise `dp_shard_size`")
    run.uneven = facts.breaks("accelerate-03")
    if run.world is None and sp == 1 and product > 1:
        run.world = product
    if run.said(_PC + "sp_seq_length") and run.get(_PC + "sp_seq_length_is_variable") is False:
        run.numbers["s"] = Fraction(run.get(_PC + "sp_seq_length"))
        run.note(_PC + "sp_seq_length", "tokens of a sample: s", Role.READ)
    return sizes


def _tokens(run: AccelerateReader, sizes: dict[str, int]) -> tuple[int, str | None]:
    """Over how many devices each sample is split, and how attention reaches the tokens of the others."""
    if run.kind == "MEGATRON_LM":
        return run.get(_MG + "context_parallel_size"), None
    if (sp := sizes.get(_PC + "sp_size", 1)) > 1:
        return sp, "ulysses"
    attention = meaning("accelerate").words["exchanges"][run.get(_PC + "cp_comm_strategy") or "allgather"]
    return sizes.get(_PC + "cp_size", 1), unless_usual(attention)


def _axis(name: str, **degree: int | None) -> _Parts:
    """A strategy with one axis; nothing where its degree is 1."""
    return {} if 1 in degree.values() else {name: dict(degree)}


def _data(name: str, dp: int | None, tokens: int) -> _Parts:
    """Data parallelism; nothing over one device, unless it shards over those that samples are split over, too."""
    return {name: {"dp": dp}} if tokens > 1 and name != "ddp" else _axis(name, dp=dp)


def _plain(run: AccelerateReader, sizes: dict[str, int]) -> _Parts:
    """DistributedDataParallel over all processes, or tensor parallelism over all."""
    if sizes.get(_PC + "dp_shard_size", 1) > 1:
        run.note(_PC + "dp_shard_size", "shards nothing without FSDP 2: these devices hold copies")
    kept = {n: d for n, d in sizes.items() if n not in (_PC + "dp_replicate_size", _PC + "dp_shard_size")}
    return {**_axis("ddp", dp=run.over(kept)), **_axis("tp", tp=sizes.get(_PC + "tp_size", 1))}


def _tensor(run: AccelerateReader, sizes: dict[str, int]) -> _Parts:
    degree = run.get("tp_config.tp_size")
    return {**_axis("ddp", dp=run.over({"tp_config.tp_size": degree})), **_axis("tp", tp=degree)}


def _fsdp(run: AccelerateReader, sizes: dict[str, int]) -> _Parts:
    version = int(run.get(_FSDP + "version"))
    strategy = _strategy_one(run) if version == 1 else _strategy_two(run)
    options: dict[str, object] = {}
    if strategy in ("SHARD_GRAD_OP", "HYBRID_SHARD_ZERO2"):
        options["reshard_after_forward"] = False
    policy = str(run.get(_FSDP + "auto_wrap_policy")).upper()
    if policy == "NO_WRAP" or (policy == "SIZE_BASED_WRAP" and version == 1 and run.get(_FSDP + "min_num_params") == 0):
        # PyTorch keeps the outermost unit gathered until backward, in both versions
        options.update(reshard_after_forward=False, unit="model")
        run.say(_FSDP + "auto_wrap_policy", UNWRAPPED[version - 1])
    if _prefetches(run, version):
        options["prefetch"] = True
    rep, shard = _groups(run, sizes, strategy)
    offload = _FSDP + "offload_params"
    if strategy == "NO_SHARD" or (shard == 1 and sizes.get(_PC + "cp_size", 1) == 1):
        parts = _axis("ddp", dp=run.over({}) if strategy == "NO_SHARD" else rep)
    elif run.get(offload) and rep == 1 and options.get("reshard_after_forward", True):
        run.note(offload, "shards, their optimizer state and its update lie on the host", Role.READ)
        parts = {"zero_infinity": {"dp": shard}}
    elif rep != 1:
        parts = {"hsdp": {"rep": rep, "shard": shard, **options}}
    else:
        parts = {"fsdp": {"dp": shard, **options}}
    return {**parts, **_axis("tp", tp=sizes.get(_PC + "tp_size", 1)), **_checkpoint(run)}


def _groups(run: AccelerateReader, sizes: dict[str, int], strategy: str) -> tuple[int, int | None]:
    """Copies, and the devices that one copy is sharded over."""
    if sizes and int(run.get(_FSDP + "version")) == 2:
        return sizes[_PC + "dp_replicate_size"], sizes[_PC + "dp_shard_size"]
    if strategy.startswith("HYBRID") and run.machines > 1:
        run.note("num_machines", f"HYBRID_SHARD: {run.machines} copies, each sharded over one machine")
        return run.machines, None if run.world is None else max(run.world // run.machines, 1)
    return 1, run.world


def _strategy_one(run: AccelerateReader) -> str:
    """FSDP 1: `fsdp_sharding_strategy`, by name or number."""
    name, other = _FSDP + "sharding_strategy", _FSDP + "reshard_after_forward"
    said = str(run.get(name) if run.said(name) else SHARDING[0]).upper()
    if said.isdigit() and 1 <= int(said) <= len(SHARDING):
        said = SHARDING[int(said) - 1]
    if said not in SHARDING:
        run.refuse(name, f"`{run.get(name)}` is no sharding strategy", "one of " + ", ".join(SHARDING), "PP503")
        return SHARDING[0]
    if run.said(other):
        # `accelerate launch` always hands on fsdp_sharding_strategy, FULL_SHARD where a file does not say it, and that goes first
        run.note(other, f"FSDP 1 does not read it: fsdp_sharding_strategy decides, {said} here", Role.NO_MATTER, told=True)
    return said


def _strategy_two(run: AccelerateReader) -> str:
    """FSDP 2: `fsdp_reshard_after_forward`, true or false."""
    name = _FSDP + "reshard_after_forward"
    said = run.get(name) if run.said(name) else True
    if not isinstance(said, bool):
        run.refuse(name, f"FSDP 2 takes true or false, not {said!r}", "true: as FULL_SHARD; false: as SHARD_GRAD_OP")
    return "SHARD_GRAD_OP" if said is False else "FULL_SHARD"


def _prefetches(run: AccelerateReader, version: int) -> bool:
    """Whether two units are alive at once: the next one is gathered while this one computes."""
    if version == 2:
        return True
    backward = run.get(_FSDP + "backward_prefetch") or run.get(_FSDP + "backward_prefetch_policy")
    return str(backward).upper() in ("BACKWARD_PRE", "1") or run.get(_FSDP + "forward_prefetch") is True


def _checkpoint(run: AccelerateReader) -> _Parts:
    if not run.get(_FSDP + "activation_checkpointing"):
        return {}
    return {"checkpoint": {"checkpoints": "host"} if run.get(_FSDP + "activation_checkpointing_offload") else {}}


def _megatron(run: AccelerateReader, sizes: dict[str, int]) -> _Parts:
    degrees = {_MG + n: run.get(_MG + n) for n in ("tp_degree", "pp_degree", "context_parallel_size")}
    tp, pp, cp = degrees.values()
    devices, data = run.over(degrees), "zero1" if run.get(_MG + "use_distributed_optimizer") else "ddp"
    dp = check_experts(run, devices)
    parts = _data(data, dp, cp * run.experts.rest) | _axis("tp", tp=tp)
    if tp > 1 and run.get(_MG + "sequence_parallelism"):
        parts["sp"] = {"tp": tp}
    steps = run.get(_MG + "num_micro_batches")
    if pp > 1:
        parts["pp"] = {"pp": pp, "microbatches": steps}
    elif steps is not None and steps > 1:
        parts["accumulate"] = {"microbatches": steps}
    if steps is not None:
        run.numbers["m"] = Fraction(steps)
    run.tell_unsaid(_MG + "context_parallel_size", "Accelerate splits each sample over 2 devices: the axis cp")
    if run.get(_MG + "calculate_per_token_loss") and (devices, cp) != (1, 1):
        run.say(_MG + "calculate_per_token_loss", _UNDIVIDED, Role.ANOTHER_STEP)
    return {**parts, **_recompute(run), **_clipping(run)}


def _clipping(run: AccelerateReader) -> _Parts:
    name = _MG + "gradient_clipping"
    run.tell_unsaid(name, "gradients are scaled by the norm of all: the strategy clip")
    return {"clip": {}} if clips(run.get(name)) else {}


def _recompute(run: AccelerateReader) -> _Parts:
    """Megatron's full recomputation: our checkpoint, of which layers a model is told. No file turns it off."""
    whole, method, layers = (_MG + "recompute_" + n for n in ("granularity", "method", "num_layers"))
    if _extent(run) is not None:
        note = "it keeps the inputs of some layers alone: counted with a model, and as those of all layers without"
        run.note(layers if run.said(layers) else method, note, told=True)
    run.tell_unsaid(whole, "Accelerate has layers computed again: the strategy checkpoint")
    return {"checkpoint": {}}


def _extent(run: AccelerateReader) -> str | None:
    """Which layers Megatron recomputes, where that is not each of them from its own input."""
    block, number = run.get(_MG + "recompute_method") == "block", run.get(_MG + "recompute_num_layers") or 1
    if run.kind != "MEGATRON_LM" or (not block and number == 1):
        return None
    return f"full:{number}" if block else f"full/{number}"


def _check_others(run: AccelerateReader) -> None:
    ids = run.get("gpu_ids")
    if ids is not None and run.kind in MULTI and run.machines <= 1 and str(ids) not in ("all", "auto") and "," not in str(ids):
        run.refuse("gpu_ids", f"one device is named, and {run.kind} needs two", "`gpu_ids: all`, or several with commas")


def _width(run: AccelerateReader) -> str:
    """The word of the file, empty where it says none."""
    return str(run.get("mixed_precision") or ("fp16" if run.get("fp16") else "")).lower()


def _precision(run: AccelerateReader) -> str | None:
    """The named precision, where what the system holds is one; the notes say what it holds."""
    said = _width(run)
    name = "mixed_precision" if run.said("mixed_precision") else "fp16"
    if not said:
        return None
    precision, note = _widths(run, said)
    if run.said(name):
        other = run.kind == "DEEPSPEED" and note != _HALVES
        run.note(name, note, Role.NOT_MODELLED if said == "fp8" else Role.READ, told=precision is None or other)
    return precision


def _widths(run: AccelerateReader, word: str) -> tuple[str | None, str]:
    if word == "fp8":
        return None, "multiplies in 8 bits"
    if run.kind == "MEGATRON_LM":
        if run.get(_MG + "use_precision_aware_optimizer"):
            return None, "the widths of the optimizer state are not known"
        return {"no": "fp32-adam"}.get(word, f"megatron-{word}"), "as Megatron-LM trains"
    if run.kind == "DEEPSPEED":
        name, why = accelerate_deepspeed.types(run, {"no": "fp32"}.get(word, word)).adam()
        return name, why or ("all in fp32" if word == "no" else _HALVES)
    if word == "no":
        return "fp32-adam", "all in fp32, if the model is loaded so"
    if run.kind == "FSDP":
        held = "shards, gradients and Adam's state in fp32; gathered, computed and sent in 16 bits"
        return None, f"{held}: `--precision fp32-adam` counts what is kept"
    if run.kind in ("XLA", "TPU"):
        return None, "XLA computes in bf16; what it keeps is its own matter"
    return "fp32-adam", "weights, gradients and Adam's state stay fp32; layers compute in 16 bits, so activations take less"
