"""Arguments of Megatron-LM, read as a strategy."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import prod

from placeproof.core.diagnostics import Problems
from placeproof.importers.asked import Known
from placeproof.importers.document import Document
from placeproof.importers.fields import Reader
from placeproof.importers.imported import Imported, Role, clips, expression, over_axes, unless_usual
from placeproof.importers.meaning import meaning
from placeproof.importers.megatron.experts import check_split, note_devices, shared
from placeproof.importers.megatron.stages import LAYOUT, UNEVEN, runs_of_layout, uneven
from placeproof.importers.settings import settings

#: What Megatron does unless told otherwise, and what changes a step.
_DEFAULTS = ("attention_dropout", "hidden_dropout", "clip_grad")
#: Tables of words that say nothing without the argument of their name.
_WITH = ("group_query_attention", "num_experts", "multi_latent_attention")
#: What a run divides the world by before data parallelism gets the rest, by the names of facts.
_MODEL_AXES = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "gtp": "generalized_tensor_parallel_remat_size",
}
_SHARDS = "tensor_parallel_num_weight_shards"
_DEGREES = (*_MODEL_AXES.values(), _SHARDS, "expert_model_parallel_size", "num_distributed_optimizer_instances")
_SHARDED = {"no_shard": "ddp", "optim": "zero1", "optim_grads": "zero2", "optim_grads_params": "zero3"}
#: What cuts the layers of a device into runs.
_WAYS = ("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank", LAYOUT)
#: Numbers the devices of a stage one after the other.
_STAGES_FIRST = "use_tp_pp_dp_mapping"
#: Rules that are not about arguments.
PASSED_OVER = {
    "megatron-04": "it is asked of one numbering of devices, and Megatron makes two: one without ep and one without cp",
    "megatron-25": "the arguments turn the overlap off where stages are not interleaved",
}


def read(document: Document, world: int | None, problems: Problems, *, core: bool = False) -> Imported:
    """Read arguments as they are passed to ``pretrain_gpt.py``. ``world``: the number of devices, or None to leave dp open. ``core``: they
    are handed over to Megatron-Core as they are, and not made ready for it by Megatron-LM."""
    reader = Reader(document, settings("megatron"), problems)
    known, guessed = Known(reader, meaning("megatron")), any(name in document.data and name not in reader.found for name in _DEGREES)
    known.put("core", core)
    _size(known, None if guessed else world)
    if guessed:  # what follows would come from a default degree
        return Imported(system="megatron", source=document.source, expression="", readings=())
    precision, why = _precision(known)
    known.put("precision", precision or "")
    known.put("widths", why)
    known.check()
    own = {"megatron-54"} if known.get("own_fsdp") else set()  # its own FSDP shards over copies without the distributed optimizer
    known.ask("megatron", passed_over={*PASSED_OVER, *own})
    lies = shared(known)
    check_split(known, lies)
    note_devices(known, lies)
    numbers = _numbers(known)
    return Imported(
        system="megatron",
        source=document.source,
        expression=expression(_parts(known)),
        readings=(*known.readings(), *known.unsaid(*_DEFAULTS)),
        precision=precision,
        half=next((one for one in ("fp16", "bf16") if known.reader.get(one)), None),
        numbers=numbers,
        without=_without(known),
        recompute=_recompute(known),
        stages=known.get("stages"),
    )


def _recompute(known: Known) -> str | None:
    """Which layers are recomputed, where that is not each of them from its own input."""
    grouped, first = known.get("grouped_layers"), known.get("first_layers")
    if not known.get("full_recompute") or known.get("splits_checkpoints"):
        return None
    if grouped is not None and grouped > 1:
        return f"full/{grouped}"
    return f"full:{first}" if first is not None and known.get("some_layers") else None


def _size(known: Known, world: int | None) -> None:
    """Add the degrees and the micro-batches, and what the table makes of them. What the arguments leave open is not known."""
    reader, by_layers, by_stages, _ = known.reader, *map(known.reader.get, _WAYS)
    degrees = {fact: reader.get(name) for fact, name in _MODEL_AXES.items()}
    degrees["gtp"] = _gathered(reader, degrees["tp"])
    dp, rest = divmod(world, prod(degrees.values())) if world is not None else (None, 0)
    dp = None if rest else dp or None  # a rule says so
    pp, layers, ep = degrees["pp"], reader.get("num_layers"), reader.get("expert_model_parallel_size")
    interleaved = by_stages is not None and by_stages > 1
    if by_layers is not None:
        interleaved = layers is None or layers // pp > by_layers or pp == 1
    interleaved = interleaved or runs_of_layout(reader, pp) > 1
    m, axes = _micro_batches(reader, dp), tuple(_MODEL_AXES.values())[:3]
    for fact, name in _MODEL_AXES.items():
        known.put(fact, degrees[fact], name, *((_SHARDS,) if fact == "gtp" else ()))
    known.put("ep", ep, "expert_model_parallel_size")
    known.put("world", world, *axes)
    known.put("dp", dp, *axes)
    known.put("m", m)
    known.put("nmb", m if pp > 1 else None, "global_batch_size")
    known.put("vpp_set", interleaved, *_WAYS)
    layout = reader.get(LAYOUT) is not None
    known.put("chunks", _chunks(reader, pp, m) if (interleaved or layout) and pp > 1 else 1)
    known.put("stages", _stages(known, pp))
    levels = [str(level) for level in reader.get("hierarchical_context_parallel_sizes") or ()]
    known.put("hcp", tuple(int(n) if n.isdecimal() else 0 for n in levels) or None, "hierarchical_context_parallel_sizes")
    exchanges = reader.get("cp_comm_type") or ["p2p"]
    known.put("ways", len(set(exchanges)))
    known.put("exchange", exchanges[0])
    if dp is not None and reader.get(_STAGES_FIRST):
        _put_numberings(known, world, dp)
    known.derive()
    #: Data-parallel devices of which no two share experts: the axis dp beside the axis ep. And whether devices of tp have other experts.
    lies = shared(known)
    known.put("copies", dp and max(dp // lies.rest, 1))
    known.put("apart", "tp" in lies.axes)
    known.put("in_slices", "etp" in dict(lies.tensor))
    known.put("alike", dict(lies.tensor).get("dtp", 1))
    kinds = known["balancing"]
    evened = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind != "none"]
    known.put("balanced", "sinkhorn" in evened or (bool(evened) and _positive(reader.get("moe_aux_loss_coeff"))))


def _put_numberings(known: Known, world: int | None, dp: int) -> None:
    """Add how the devices are numbered, once without and once with the axis of experts, where stages come before data parallelism."""
    tp, pp, cp, ep, gtp = (known[name] for name in ("tp", "pp", "cp", "ep", "gtp"))
    split = known.reader.get("expert_tensor_parallel_size") or tp
    copies, rest = divmod(world or 0, split * ep * pp)
    if not rest and gtp == 1:
        known.put("dense", (("tp", tp), ("cp", cp), ("pp", pp), ("dp", dp)), _STAGES_FIRST)
        known.put("expert", (("tp", split), ("ep", ep), ("pp", pp), ("dp", copies)), _STAGES_FIRST)


def _numbers(known: Known) -> dict[str, Fraction]:
    """The values of symbols that the arguments say."""
    reader, words = known.reader, known.meaning.words
    names = {name: symbol for table in ("symbols", *filter(reader.get, _WITH)) for name, symbol in words[table].items()}
    if known.get("learned"):
        names["max_position_embeddings"] = "n_pos"
    numbers = {symbol: Fraction(reader.get(name)) for name, symbol in names.items() if reader.said(name)}
    if "V" not in numbers and (vocabulary := _vocabulary(reader)) is not None:
        numbers["V"] = Fraction(vocabulary)
    return numbers | ({"m": Fraction(known["m"])} if "m" in known else {})


def _vocabulary(reader: Reader) -> int | None:
    """The vocabulary with what fills it up, where arguments decide it: of other tokenizers their files do.

    Versions differ in whether that of no text counts the end of documents.
    """
    size, kind = reader.get("vocab_size"), reader.get("tokenizer_type")
    ends = {"TikTokenizer": (0,), "NullTokenizer": (0, 1), "NullMultimodalTokenizer": (0, 1)}.get(str(kind), ())
    if size is None or not ends or any(reader.get(name) for name in ("no_pad_vocab_size", "disable_pad_vocab_size")):
        return None
    at_once = (reader.get("make_vocab_size_divisible_by") or 128) * reader.get("tensor_model_parallel_size")
    sizes = {-(-(size + end) // at_once) * at_once for end in ends}
    if len(sizes) > 1:
        return None
    reader.note("vocab_size", f"filled up to {min(sizes)}, a multiple of {at_once}: V", Role.READ)
    return int(min(sizes))


def _stages(known: Known, pp: int) -> tuple[int, ...] | None:
    """The layers of each stage, where they are not as many and the strategy has as many stages."""
    reader = known.reader
    found = uneven(reader, pp)
    if found is None or len(found) != pp * known["chunks"]:
        return None
    for name in (name for name in UNEVEN if reader.said(name)):
        each = ", ".join(map(str, found))
        reader.note(name, f"layers of the stages: {each}; counted with a model, and as equally many without", Role.READ, told=True)
    return found


def _chunks(reader: Reader, pp: int, m: int | None) -> int:
    """Runs of layers on a device; 1 where stages are uneven and not known, or where micro-batches do not go round in groups of pp."""
    group = reader.get("microbatch_group_size_per_virtual_pipeline_stage") or pp
    if group != pp or (m is not None and m % pp):
        return 1
    if any(reader.get(name) for name in UNEVEN):
        return len(uneven(reader, pp) or (0,) * pp) // pp
    by_layers, by_stages, _ = map(reader.get, _WAYS)
    if by_stages is not None:
        return int(by_stages)
    layers = reader.get("num_layers")
    return layers // (pp * by_layers) if layers is not None and layers % (pp * by_layers) == 0 else 1


def _gathered(reader: Reader, tp: int) -> int:
    """By how much weights are split beyond tensor parallelism, and gathered when they are used."""
    shards = reader.get(_SHARDS)
    if shards is None:
        return int(reader.get(_MODEL_AXES["gtp"]))
    if shards % tp:
        message = f"{shards} shards of a weight are no multiple of {tp}, the degree of tensor parallelism"
        reader.refuse(_SHARDS, message, "choose a multiple")
    return max(int(shards) // tp, 1)


def _micro_batches(reader: Reader, dp: int | None) -> int | None:
    """Micro-batches of a step, None where they are open. Megatron takes one where no global batch is said."""
    local, batch = reader.get("micro_batch_size"), reader.get("global_batch_size")
    if reader.said("step_batch_size_schedule"):
        if batch is not None:
            message = "`step_batch_size_schedule` and `global_batch_size` both set the batch"
            reader.refuse("step_batch_size_schedule", message, "keep one of them")
        return None
    if local is None or batch is None:
        return 1 if local is not None else None
    at_once = local * (dp or 1)
    m, rest = divmod(batch, at_once)
    if m and rest and dp is not None and reader.get("decrease_batch_size_if_needed"):
        return int(m)
    if rest:
        devices = f" on each of {dp} data-parallel devices" if dp is not None else ""
        message = f"a batch of {batch} is no whole number of micro-batches: {local} samples{devices} at once"
        reader.refuse("global_batch_size", message, f"a multiple of {at_once}, for example {max(m, 1) * at_once}")
        return None
    return int(m) if dp is not None else None


def _parts(known: Known) -> list[tuple[str, Mapping[str, object]]]:
    """The strategies with their degrees. Axes of one device are left out."""
    parts: dict[str, Mapping[str, object]] = {}
    tp, pp, chunks = (known[name] for name in ("tp", "pp", "chunks"))
    m, copies, lies = known.get("m"), known.get("copies"), shared(known)
    tokens = known["cp"] if known.get("splits_tokens") else 1
    if copies != 1 or tp == pp == 1 or tokens * lies.rest > 1:
        parts.update(_data_part(known, copies, tokens * lies.rest))
    if tp > 1:
        parts["tp"] = {"tp": tp}
    if known.get("sp"):
        parts["sp"] = {"tp": tp}
    if pp > 1:
        rounds = {"schedule": "interleaved", "chunks": chunks} if chunks > 1 else {}
        parts["pp"] = {"pp": pp, "microbatches": m, **rounds}
    elif (m or 1) > 1 or (m is None and _several(known.reader)):
        parts["accumulate"] = {"microbatches": m}
    if known.get("full_recompute"):
        parts["checkpoint"] = {}
    if clips(known.reader.get("clip_grad")):
        parts["clip"] = {}
    if known.get("whole_matrices"):
        parts["muon"] = {"matrices": "owned" if known.get("dealt_out") else None}
    if known.get("dist_saved_acts") and tp > 1:
        parts["zero_r"] = {"tp": tp}
    attention = unless_usual(known.meaning.words["exchanges"].get(known["exchange"])) if known["ways"] == 1 else None
    return over_axes(parts, tokens=tokens, attention=attention, experts=lies, whole=known.get("whole", False))


def _several(reader: Reader) -> bool:
    """Whether a step may have several micro-batches where their number is open."""
    batch = reader.get("global_batch_size")
    return reader.said("step_batch_size_schedule") or (batch is not None and batch != reader.get("micro_batch_size"))


def _data_part(known: Known, dp: int | None, others: int) -> Mapping[str, Mapping[str, object]]:
    """``others``: devices of sequences and of experts, over which is sharded, too."""
    get = known.reader.get
    if dp == 1 and others == 1:
        return {"ddp": {"dp": 1}}
    if get("use_torch_fsdp2"):
        return {"fsdp": {"dp": dp, "reshard_after_forward": False if get("torch_fsdp2_no_reshard_after_forward") else None}}
    if known.get("own_fsdp"):
        copies, sharding = get("num_distributed_optimizer_instances"), known.get("sharding", "no_shard")
        if copies > 1 and dp == copies and others == 1:
            return {"ddp": {"dp": dp}}
        if copies > 1 and sharding == "optim_grads_params":
            return {"hsdp": {"rep": copies, "shard": dp // copies if dp is not None and dp % copies == 0 else None}}
        return {_SHARDED[sharding]: {"dp": dp}}
    if get("use_distributed_optimizer"):
        return {"zero1": {"dp": dp}}
    return {"zero1": {"dp": dp, "reduce": "all_reduce"}} if known.get("dealt_out") else {"ddp": {"dp": dp}}


def _precision(known: Known) -> tuple[str | None, str]:
    """The named byte widths, and why there are none."""
    get = known.reader.get
    optimizer, bf16, fp16 = get("optimizer"), get("bf16"), get("fp16")
    if any(
        get(n) is not None for n in ("fp8_format", "fp4_format", "fp8_e4m3", "fp8_hybrid", "kitchen_config_file", "kitchen_recipe_number")
    ):
        return None, "with products in 8 or 4 bits: these widths have no name here"
    if not bf16 and not fp16:
        momentum = "sgd-momentum" if get("sgd_momentum") else "sgd"
        return {"adam": "fp32-adam", "sgd": momentum}.get(optimizer), "this optimizer's state in fp32 has no name here"
    if optimizer != "adam":
        return None, f"the state of {optimizer} beside 16-bit weights has no name here"
    if get("use_precision_aware_optimizer"):
        return None, "weights in 16 bits; the narrower optimizer state has no name here"
    if get("use_torch_fsdp2"):
        return ("bf16-fp32copies" if bf16 else "megatron-fp16"), ""
    if known.get("own_fsdp") and get("megatron_fsdp_main_grads_dtype") != "fp32":
        return None, "weights in 16 bits; the width of the gradients differs between versions of Megatron's own FSDP"
    if known.get("own_fsdp") and get("megatron_fsdp_main_params_dtype") != "fp32":
        return None, "weights and the master copy in 16 bits: these widths have no name here"
    wide = get("accumulate_allreduce_grads_in_fp32")
    if fp16:
        return "fp16-fp32sums" if wide else "megatron-fp16", ""
    if get("grad_reduce_in_bf16") or (get("main_grads_dtype") == "bf16" and not wide):
        return "bf16-fp32copies", ""
    return "megatron-bf16", ""


def _without(known: Known) -> tuple[str, ...]:
    """Assumptions that do not hold."""
    get = known.reader.get
    uneven = get("eod_mask_loss") or get("sft") or get("mask_prob")
    dropped = {
        "equal-token-counts": uneven and not get("calculate_per_token_loss"),
        "elementwise-optimizer": not any(map(known.get, ("elementwise", "whole_matrices", "undecided_matrices"))),
    }
    return tuple(name for name, wrong in dropped.items() if wrong)


def _positive(value: object) -> bool:
    """Whether one of the coefficients is more than 0. What is no number is: Megatron would not read it."""
    for one in value if isinstance(value, list) else [value]:
        try:
            if one is not None and float(str(one)) > 0:
                return True
        except ValueError:
            return True
    return False
