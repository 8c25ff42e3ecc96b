"""Arguments of Megatron-LM, read as a strategy."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import prod

from placeproof.core.diagnostics import Place, Problems
from placeproof.importers.document import Document
from placeproof.importers.fields import Reader
from placeproof.importers.imported import Imported, Note, Reading, Role, expression, over_axes
from placeproof.importers.megatron.experts import check_split, expert_notes, experts_whole
from placeproof.importers.megatron.facts import PASSED_OVER, SAYS, known
from placeproof.importers.megatron.rules import Sizes, check, flag, full_recompute, own_fsdp
from placeproof.importers.settings import settings

_NUMBERS = {
    "b": "micro_batch_size", "s": "seq_length", "L": "num_layers", "h": "hidden_size", "a": "num_attention_heads", "V": "padded_vocab_size",
    "d": "kv_channels", "f": "ffn_hidden_size",
}  # fmt: skip
#: Those of heads of keys and values that are shared, of experts, and of latent attention: without the flag they say nothing.
_SHARED = {"a_kv": "num_query_groups"}
_EXPERTS = {"E": "num_experts", "k": "moe_router_topk", "f_e": "moe_ffn_hidden_size", "f_s": "moe_shared_expert_intermediate_size"}
_LATENT = {
    "r_q": "q_lora_rank", "r_kv": "kv_lora_rank", "d_nope": "qk_head_dim", "d_rope": "qk_pos_emb_head_dim", "d_v": "v_head_dim",
}  # fmt: skip
#: What a run divides the world by before data parallelism gets the rest.
_MODEL_AXES = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "generalized_tensor_parallel_remat_size",
)
_DEGREES = (*_MODEL_AXES, "tensor_parallel_num_weight_shards", "expert_model_parallel_size", "num_distributed_optimizer_instances")
_SHARDED = {"no_shard": "ddp", "optim": "zero1", "optim_grads": "zero2", "optim_grads_params": "zero3"}
#: What makes stages of different sizes.
_UNEVEN = (
    "pipeline_model_parallel_layout",
    "decoder_first_pipeline_num_layers",
    "decoder_last_pipeline_num_layers",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
    "standalone_embedding_stage",
)
_EXCHANGES = {"p2p": None, "all_gather": "gather", "a2a": "ulysses"}
_ELEMENTWISE = ("adam", "sgd", "lion")


def read(document: Document, world: int | None, problems: Problems) -> Imported:
    """Read arguments as they are passed to ``pretrain_gpt.py``. ``world``: the number of devices, or None to leave dp open."""
    reader = Reader(document, settings("megatron"), problems)
    if not document.data and not problems.found:
        place = Place(source=document.source, line=1, column=1, text=(document.text.splitlines() or [""])[0])
        problems.add("PP501", "no argument is given", place=place, help="write them as `--name value`")
    whole = all(name in reader.found for name in _DEGREES if name in document.data)
    sizes = _sizes(reader, world if whole else None)
    if whole:  # else what follows would be guessed from a default degree
        facts = known(reader, sizes)
        own = {"megatron-54"} if own_fsdp(reader) else set()  # its own FSDP shards over copies without the distributed optimizer
        check(reader, sizes, facts)
        facts.ask("megatron", reader.refuse, SAYS, {*PASSED_OVER, *own})
        check_split(reader, sizes, facts)
    precision, why = _precision(reader)
    notes = _notes(reader, sizes, why)
    return Imported(
        system="megatron",
        source=document.source,
        expression=expression(_parts(reader, sizes)),
        readings=tuple(_noted(reading, notes) for reading in reader.readings),
        precision=precision,
        numbers=_numbers(reader, sizes),
        without=_without(reader),
    )


def _numbers(reader: Reader, sizes: Sizes) -> dict[str, Fraction]:
    """The values of symbols that the arguments say."""
    names = dict(_NUMBERS)
    for said, more in (
        (flag(reader, "group_query_attention"), _SHARED),
        (bool(reader.get("num_experts")), _EXPERTS),
        (flag(reader, "multi_latent_attention"), _LATENT),
    ):
        names |= more if said else {}
    numbers = {symbol: Fraction(reader.get(name)) for symbol, name in names.items() if reader.said(name)}
    turned = flag(reader, "use_rotary_position_embeddings", "no_position_embedding")
    learned = (reader.get("position_embedding_type") or "learned_absolute") == "learned_absolute" and not turned
    if learned and reader.said("max_position_embeddings"):
        numbers["n_pos"] = Fraction(reader.get("max_position_embeddings"))
    return numbers if sizes.m is None else {**numbers, "m": Fraction(sizes.m)}


def _sizes(reader: Reader, world: int | None) -> Sizes:
    degrees = [reader.get(name) for name in _MODEL_AXES]
    degrees[-1] = _gathered(reader, degrees)
    dp, rest = divmod(world, prod(degrees)) if world is not None else (None, 0)
    if rest or not dp:  # a rule says so
        dp = None
    tp, pp, cp, gtp = degrees
    by_layers, by_stages = reader.get("num_layers_per_virtual_pipeline_stage"), reader.get("num_virtual_stages_per_pipeline_rank")
    layers = reader.get("num_layers")
    interleaved = by_stages is not None and by_stages > 1
    if by_layers is not None:
        interleaved = layers is None or layers // pp > by_layers or pp == 1
    m = _micro_batches(reader, dp)
    ep = reader.get("expert_model_parallel_size")
    chunks = _chunks(reader, pp, m) if interleaved and pp > 1 else 1
    return Sizes(tp=tp, pp=pp, cp=cp, ep=ep, dp=dp, m=m, world=world, interleaved=interleaved, chunks=chunks, gtp=gtp)


def _chunks(reader: Reader, pp: int, m: int | None) -> int:
    """Runs of layers on a device; 1 where stages are uneven, or where micro-batches do not go round in groups of pp."""
    group = reader.get("microbatch_group_size_per_virtual_pipeline_stage") or pp
    if group != pp or (m is not None and m % pp) or any(reader.said(name) or flag(reader, name) for name in _UNEVEN):
        return 1
    by_stages, by_layers = reader.get("num_virtual_stages_per_pipeline_rank"), reader.get("num_layers_per_virtual_pipeline_stage")
    if by_stages is not None:
        return int(by_stages)
    layers = reader.get("num_layers")
    return layers // (pp * by_layers) if layers is not None and layers % (pp * by_layers) == 0 else 1


def _attention(reader: Reader) -> tuple[str | None, str]:
    """How attention reaches the tokens of other devices, as an option of `cp`, and why it is not that of the arguments."""
    said = dict.fromkeys(reader.get("cp_comm_type") or ["p2p"])
    if len(said) > 1:
        return None, "layers exchange keys and values in several ways: all are counted as a ring"
    kind = next(iter(said))
    if kind not in _EXCHANGES:
        return None, "messages of two kinds, in two levels: counted as a ring of all devices"
    return _EXCHANGES[kind], ""


def _splits_tokens(reader: Reader, sizes: Sizes) -> bool:
    """Whether sequences are split over the same devices in all steps."""
    return sizes.cp > 1 and not flag(reader, "hybrid_context_parallel", "dynamic_context_parallel")


def _gathered(reader: Reader, degrees: list[int]) -> int:
    """By how much weights are split beyond tensor parallelism, and gathered when they are used."""
    tp, shards = degrees[0], reader.get("tensor_parallel_num_weight_shards")
    if shards is None:
        return degrees[-1]
    if shards % tp:
        message = f"{shards} shards of a weight are no multiple of {tp}, the degree of tensor parallelism"
        reader.refuse("tensor_parallel_num_weight_shards", message, "choose a multiple")
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
    if m and rest and dp is not None and flag(reader, "decrease_batch_size_if_needed"):
        return int(m)
    if rest:
        devices = f" on each of {dp} data-parallel devices" if dp is not None else ""
        message = f"a batch of {batch} is no whole number of micro-batches: {local} samples{devices} at once"
        reader.refuse("global_batch_size", message, f"a multiple of {at_once}, for example {max(m, 1) * at_once}")
        return None
    return int(m) if dp is not None else None


def _parts(reader: Reader, sizes: Sizes) -> list[tuple[str, Mapping[str, object]]]:
    """The strategies with their degrees. Axes of one device are left out."""
    parts: dict[str, Mapping[str, object]] = {}
    tokens = sizes.cp if _splits_tokens(reader, sizes) else 1
    if sizes.copies != 1 or sizes.tp == sizes.pp == 1 or tokens * sizes.ep > 1:
        parts.update(_data_part(reader, sizes.copies, tokens * sizes.ep))
    if sizes.tp > 1:
        parts["tp"] = {"tp": sizes.tp}
    if sizes.tp > 1 and flag(reader, "sequence_parallel"):
        parts["sp"] = {"tp": sizes.tp}
    if sizes.pp > 1:
        rounds = {"schedule": "interleaved", "chunks": sizes.chunks} if sizes.chunks > 1 else {}
        parts["pp"] = {"pp": sizes.pp, "microbatches": sizes.m, **rounds}
    elif (sizes.m or 1) > 1 or (sizes.m is None and _several(reader)):
        parts["accumulate"] = {"microbatches": sizes.m}
    if full_recompute(reader):
        parts["checkpoint"] = {}
    if flag(reader, "distribute_saved_activations", "distribute_checkpointed_activations") and sizes.tp > 1:
        parts["zero_r"] = {"tp": sizes.tp}
    return over_axes(parts, tokens=tokens, attention=_attention(reader)[0], experts=sizes.ep, whole=experts_whole(reader, sizes))


def _several(reader: Reader) -> bool:
    """Whether a step may have several micro-batches where their number is open."""
    batch = reader.get("global_batch_size")
    return reader.said("step_batch_size_schedule") or (batch is not None and batch != reader.get("micro_batch_size"))


def _data_part(reader: Reader, dp: int | None, others: int) -> Mapping[str, Mapping[str, object]]:
    """``others``: devices of sequences and of experts, over which is sharded, too."""
    if dp == 1 and others == 1:
        return {"ddp": {"dp": 1}}
    if flag(reader, "use_torch_fsdp2"):
        return {"fsdp": {"dp": dp, "reshard_after_forward": False if flag(reader, "torch_fsdp2_no_reshard_after_forward") else None}}
    if own_fsdp(reader):
        copies = reader.get("num_distributed_optimizer_instances")
        if copies > 1 and dp == copies and others == 1:
            return {"ddp": {"dp": dp}}
        if copies > 1 and _sharding(reader) == "optim_grads_params":
            return {"hsdp": {"rep": copies, "shard": dp // copies if dp is not None and dp % copies == 0 else None}}
        return {_SHARDED[_sharding(reader)]: {"dp": dp}}
    return {"zero1" if flag(reader, "use_distributed_optimizer") else "ddp": {"dp": dp}}


def _sharding(reader: Reader) -> str:
    """What Megatron's own FSDP shards. Unsaid: all of it since `use_megatron_fsdp`, nothing under the older name."""
    said = reader.get("data_parallel_sharding_strategy")
    return str(said) if said is not None else "optim_grads_params" if flag(reader, "use_megatron_fsdp") else "no_shard"


def _precision(reader: Reader) -> tuple[str | None, str]:
    """The named byte widths, and why there are none."""
    optimizer, bf16, fp16 = reader.get("optimizer"), flag(reader, "bf16"), flag(reader, "fp16")
    if any(reader.said(n) for n in ("fp8_format", "fp4_format", "fp8_e4m3", "fp8_hybrid", "kitchen_config_file", "kitchen_recipe_number")):
        return None, "with products in 8 or 4 bits: these widths have no name here"
    if not bf16 and not fp16:
        momentum = "sgd-momentum" if reader.get("sgd_momentum") else "sgd"
        return {"adam": "fp32-adam", "sgd": momentum}.get(optimizer), "this optimizer's state in fp32 has no name here"
    if optimizer != "adam":
        return None, f"the state of {optimizer} beside 16-bit weights has no name here"
    if flag(reader, "use_precision_aware_optimizer"):
        return None, "weights in 16 bits; the narrower optimizer state has no name here"
    if flag(reader, "use_torch_fsdp2"):
        return ("bf16-fp32copies" if bf16 else "megatron-fp16"), ""
    if own_fsdp(reader) and reader.get("megatron_fsdp_main_grads_dtype") != "fp32":
        return None, "weights in 16 bits; the width of the gradients differs between versions of Megatron's own FSDP"
    if own_fsdp(reader) and reader.get("megatron_fsdp_main_params_dtype") != "fp32":
        return None, "weights and the master copy in 16 bits: these widths have no name here"
    wide = flag(reader, "accumulate_allreduce_grads_in_fp32")
    if fp16:
        return "fp16-fp32sums" if wide else "megatron-fp16", ""
    if flag(reader, "grad_reduce_in_bf16") or (reader.get("main_grads_dtype") == "bf16" and not wide):
        return "bf16-fp32copies", ""
    return "megatron-bf16", ""


def _without(reader: Reader) -> tuple[str, ...]:
    """Assumptions that do not hold."""
    dropped = []
    kinds = reader.get("moe_router_load_balancing_type") or ["aux_loss"]
    balanced = {"aux_loss", "global_aux_loss"} & set(kinds if isinstance(kinds, list) else [kinds]) and _positive(
        reader.get("moe_aux_loss_coeff")
    )
    # the loss of a sample then depends on where the other samples of the batch go
    if reader.get("num_experts") and (
        balanced or "sinkhorn" in kinds or reader.said("moe_expert_capacity_factor") or reader.said("moe_expert_rank_capacity_factor")
    ):
        dropped.append("separable-loss")
    uneven = flag(reader, "eod_mask_loss", "sft") or bool(reader.get("mask_prob"))
    if uneven and not flag(reader, "calculate_per_token_loss"):
        dropped.append("equal-token-counts")
    if reader.get("optimizer") not in _ELEMENTWISE:
        dropped.append("elementwise-optimizer")
    return tuple(dropped)


def _positive(value: object) -> bool:
    """Whether one of the coefficients is more than 0. What is no number is: Megatron would not read it."""
    for one in value if isinstance(value, list) else [value]:
        try:
            if one is not None and float(str(one)) > 0:
                return True
        except ValueError:
            return True
    return False


def _noted(reading: Reading, notes: Mapping[str, Note]) -> Reading:
    if reading.name not in notes:
        return reading
    return reading.noted(*notes[reading.name])


def _notes(reader: Reader, sizes: Sizes, why: str) -> dict[str, Note]:
    """Roles and notes that depend on the value, or on other settings."""
    notes: dict[str, Note] = {}
    if sizes.tp == 1 and flag(reader, "sequence_parallel"):
        notes["sequence_parallel"] = Note(Role.READ, "switched off by Megatron, with a warning: there is no tensor parallelism", True)
    for name in ("attention_dropout", "hidden_dropout", "clip_grad"):
        if reader.get(name) == 0:
            notes[name] = Note(Role.NO_MATTER, "switched off")
    if own_fsdp(reader) and _sharding(reader) == "optim_grads_params" and reader.get("num_distributed_optimizer_instances") > 1:
        notes["num_distributed_optimizer_instances"] = Note(Role.READ, "copies of the sharded model: the axis rep")
    if reader.said("data_parallel_sharding_strategy") and not own_fsdp(reader):
        text = "read with `use_megatron_fsdp` alone: it shards nothing here"
        notes["data_parallel_sharding_strategy"] = Note(Role.NO_MATTER, text, True)
    if flag(reader, "use_precision_aware_optimizer") and not (flag(reader, "use_distributed_optimizer") or own_fsdp(reader)):
        text = "the master copy is kept as a remainder to the weights; Megatron-Core 0.16.1 refuses it without `use_distributed_optimizer`"
        notes["use_precision_aware_optimizer"] = Note(Role.READ, text, True)
    if "muon" in str(reader.get("optimizer")) and flag(reader, "use_distributed_optimizer"):
        text = "whole layers are dealt out and not parts of them: counted as parts; Megatron-Core 0.16.1 refuses it with Muon"
        notes["use_distributed_optimizer"] = Note(Role.NOT_MODELLED, text)
    if reader.get("optimizer") not in _ELEMENTWISE:
        notes["optimizer"] = Note(Role.NOT_MODELLED, "it updates whole matrices: its state and its messages are not those of the formulas")
    if reader.get("recompute_granularity") == "selective" or flag(reader, "recompute_activations"):
        notes["recompute_granularity"] = Note(Role.NOT_MODELLED, "parts of a layer are recomputed: less memory, more work")
    notes.update(_split_notes(reader, sizes))
    notes.update(expert_notes(reader, sizes))
    if full_recompute(reader):
        notes.update(_recompute_notes(reader, sizes))
    elif reader.get("recompute_granularity") == "full" and reader.get("recompute_num_layers") == 0:
        notes["recompute_num_layers"] = Note(Role.READ, "no layer is recomputed", True)
    if why:
        for name in ("bf16", "fp16"):
            if flag(reader, name):
                notes[name] = Note(Role.READ, why, True)
        if not flag(reader, "bf16", "fp16") and reader.get("optimizer") in _ELEMENTWISE and _precision(reader)[0] is None:
            notes["optimizer"] = Note(Role.READ, why, True)
    return notes


def _split_notes(reader: Reader, sizes: Sizes) -> dict[str, Note]:
    """What became of split sequences, and of several runs of layers on a device."""
    notes: dict[str, Note] = {}
    if _splits_tokens(reader, sizes):
        notes["context_parallel_size"] = Note(Role.READ, "sequences split over devices: the axis cp, over which is sharded what dp shards")
        why = _attention(reader)[1]
        notes["cp_comm_type"] = (
            Note(Role.NOT_MODELLED, why) if why else Note(Role.READ, "how attention reaches the tokens of other devices")
        )
    elif sizes.cp == 1:
        notes["cp_comm_type"] = Note(Role.NO_MATTER, "sequences are not split")
    if sizes.chunks > 1:
        for name in ("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank"):
            notes[name] = Note(Role.READ, f"{sizes.chunks} runs of layers on each device: the schedule `interleaved`")
        notes["microbatch_group_size_per_virtual_pipeline_stage"] = Note(Role.NO_MATTER, "as many as stages, as the schedule has them")
    elif not sizes.interleaved:
        notes["num_virtual_stages_per_pipeline_rank"] = Note(Role.NO_MATTER, "one run of layers on each device: 1F1B")
    return notes


def _recompute_notes(reader: Reader, sizes: Sizes) -> dict[str, Note]:
    """Full recomputation that does not keep the input of every layer."""
    notes: dict[str, Note] = {}
    for name, method in (
        ("recompute_num_layers", "recompute_method"),
        ("activations_checkpoint_num_layers", "activations_checkpoint_method"),
        ("checkpoint_num_layers", ""),
    ):
        layers, total = reader.get(name), reader.get("num_layers")
        if not reader.said(name):
            continue
        if not method or reader.get(method) == "uniform":
            if layers > 1:
                notes[name] = Note(Role.NOT_MODELLED, f"one input is kept for {layers} layers: less memory than one for each")
        elif reader.get(method) == "block" and (total is None or layers * sizes.pp * sizes.chunks < total):
            notes[name] = Note(Role.NOT_MODELLED, f"{layers} layers of each run of layers are recomputed: the rest keep all")
    return notes
