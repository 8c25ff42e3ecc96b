"""What Megatron-LM refuses: degrees that do not divide, and settings that exclude each other."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from placeproof.importers.fields import Reader


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Degrees and micro-batches. ``dp``, ``m``: None where the arguments leave them open. ``interleaved``: several stages on a device.

    ``chunks``: how many, where their number follows, and micro-batches go round as the schedule `interleaved` has them; else 1.
    """

    tp: int
    pp: int
    cp: int
    ep: int
    dp: int | None
    m: int | None
    world: int | None
    interleaved: bool
    chunks: int = 1

    @property
    def copies(self) -> int | None:
        """Data-parallel devices of which no two share experts: the axis dp beside the axis ep. None where dp is open."""
        return None if self.dp is None else max(self.dp // self.ep, 1)


def flag(reader: Reader, *names: str) -> bool:
    """Whether one of the flags is set."""
    return any(reader.get(name) is True for name in names)


def first(reader: Reader, *names: str) -> str:
    """The first of the names that the document says: where a problem between them is shown."""
    return next((name for name in names if reader.said(name)), names[0])


def _deny(reader: Reader, wrong: bool, name: str, message: str, help: str) -> None:
    if wrong:
        reader.refuse(name, message, help)


def own_fsdp(reader: Reader) -> bool:
    """Whether Megatron's own FSDP is used."""
    return flag(reader, "use_megatron_fsdp", "use_custom_fsdp")


def full_recompute(reader: Reader) -> bool:
    """Whether whole layers are recomputed."""
    if flag(reader, "recompute_activations"):  # which wins over the granularity
        return False
    said = reader.get("recompute_granularity")
    return said == "full" or (said is None and (flag(reader, "checkpoint_activations") or reader.said("activations_checkpoint_method")))


def check(reader: Reader, sizes: Sizes) -> None:
    """Everything that Megatron would refuse."""
    for one in (_check_old, _check_model, _check_pipeline, _check_context, _check_experts, _check_data, _check_fsdp, _check_memory):
        one(reader, sizes)


def _check_old(reader: Reader, sizes: Sizes) -> None:
    for old, new in (
        ("batch_size", "micro-batch-size"),
        ("model_parallel_size", "tensor-model-parallel-size"),
        ("warmup", "lr-warmup-fraction"),
    ):
        _deny(reader, reader.said(old), old, f"`{old}` is no longer taken", f"write `--{new}`")


def _check_model(reader: Reader, sizes: Sizes) -> None:
    """Heads, groups and widths."""
    heads, hidden, groups = reader.get("num_attention_heads"), reader.get("hidden_size"), reader.get("num_query_groups") or 1
    if heads is not None:
        message = f"{heads} attention heads are no multiple of {sizes.tp}, the degree of tensor parallelism"
        _deny(reader, heads % sizes.tp != 0, "num_attention_heads", message, "heads are split evenly: change one of the two")
        message = f"a hidden size of {hidden} is no multiple of {heads} attention heads"
        bare = hidden is not None and not reader.said("kv_channels")
        _deny(reader, bare and hidden % heads != 0, "hidden_size", message, "change one of the two, or give `kv_channels`")
    if flag(reader, "group_query_attention"):
        message = f"{groups} query groups and a degree of tensor parallelism of {sizes.tp}: neither divides the other"
        name = first(reader, "num_query_groups", "group_query_attention")
        _deny(reader, groups % sizes.tp != 0 and sizes.tp % groups != 0, name, message, "change one of the two")
        message = f"{heads} attention heads are no multiple of {groups} query groups"
        _deny(reader, heads is not None and heads % groups != 0, name, message, "every group serves equally many heads")
    message = "`bf16` and `fp16` exclude each other"
    _deny(reader, flag(reader, "bf16") and flag(reader, "fp16"), "fp16", message, "keep one of them")
    both = reader.said("fp8_format") and reader.said("fp4_format")
    _deny(reader, both, "fp4_format", "`fp4_format` and `fp8_format` exclude each other", "keep one of them")
    alone = flag(reader, "tp_comm_overlap") and not (flag(reader, "sequence_parallel") and sizes.tp > 1)
    _deny(reader, alone, "tp_comm_overlap", "`tp_comm_overlap` needs tensor and sequence parallelism", "add `--sequence-parallel`")
    latent = flag(reader, "multi_latent_attention") and flag(reader, "group_query_attention")
    _deny(reader, latent, "group_query_attention", "multi-latent attention has no query groups", "drop one of the two")


def _check_pipeline(reader: Reader, sizes: Sizes) -> None:
    """Layers of stages, and what interleaving needs."""
    pp, m = sizes.pp, sizes.m
    ways = [
        n
        for n in ("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank", "pipeline_model_parallel_layout")
        if reader.said(n)
    ]
    for name in ways[1:]:
        reader.refuse(name, f"`{name}` and `{ways[0]}` both cut the stages", "keep one of them")
    _check_stages(reader, sizes)
    if sizes.interleaved and ways:
        overlapped = not flag(reader, "no_overlap_p2p_communication")
        _deny(reader, pp == 1, ways[0], "interleaved stages need a pipeline, and there is one stage", "give `pipeline_model_parallel_size`")
        message = f"interleaving over {pp} stages needs overlapped messages: the same two devices send both ways"
        _deny(reader, pp == 2 and not overlapped, ways[0], message, "drop `no_overlap_p2p_communication`, or take 3 stages or more")
        group = reader.get("microbatch_group_size_per_virtual_pipeline_stage") or pp
        name = first(reader, "microbatch_group_size_per_virtual_pipeline_stage", *ways)
        if pp > 1 and m is not None and not pp <= group <= m:
            reader.refuse(name, f"a group of {group} micro-batches is not between {pp} stages and {m} micro-batches", "change the batch")
        elif pp > 1 and m is not None and 0 < m % group < pp:
            reader.refuse(
                name, f"{m} micro-batches in groups of {group} leave {m % group}, fewer than {pp} stages", "make the batch a multiple"
            )
    name = "defer_embedding_wgrad_compute"
    _deny(reader, flag(reader, name) and pp == 1, name, f"`{name}` needs a pipeline", "drop it, or give more than one stage")
    hyper = flag(reader, "enable_mhc_connections", "enable_hyper_connections")
    name = first(reader, "enable_mhc_connections", "enable_hyper_connections")
    _deny(reader, hyper and pp > 1, name, f"`{name}` excludes pipeline parallelism", "take one stage")


def _check_stages(reader: Reader, sizes: Sizes) -> None:
    layers, per_stage = reader.get("num_layers"), reader.get("num_layers_per_virtual_pipeline_stage")
    if (
        layers is None
        or reader.said("pipeline_model_parallel_layout")
        or reader.said("hybrid_layer_pattern")
        or reader.said("hybrid_override_pattern")
    ):
        return
    ends = [reader.get(n) for n in ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers") if reader.said(n)]
    extra = sum(flag(reader, f"account_for_{what}_in_pipeline_split") for what in ("embedding", "loss"))
    stages = sizes.pp - len(ends) - flag(reader, "standalone_embedding_stage")
    rest = layers + extra - sum(ends)
    if sizes.pp > 1 and stages >= 1 and rest % stages:
        message = f"{rest} layers are no multiple of {stages} pipeline stages"
        reader.refuse("num_layers", message, "change one of the two, or give the first or the last stage layers of its own")
    elif per_stage is not None and stages >= 1 and (rest // stages) % per_stage:
        message = f"{rest // stages} layers of a stage are no multiple of {per_stage}, the layers of a virtual stage"
        reader.refuse("num_layers_per_virtual_pipeline_stage", message, "choose a divisor")


def _check_context(reader: Reader, sizes: Sizes) -> None:
    """Sequences split over devices."""
    cp, tokens, levels = sizes.cp, reader.get("seq_length"), reader.get("hierarchical_context_parallel_sizes")
    message = f"a sequence of {tokens} tokens is no multiple of {2 * cp}: each of {cp} devices takes two pieces"
    _deny(reader, cp > 1 and tokens is not None and tokens % (2 * cp) != 0, "seq_length", message, f"a multiple of {2 * cp}")
    if levels is not None:
        whole = [int(level) if str(level).isdecimal() else 0 for level in levels]
        message = f"levels of {' * '.join(map(str, levels))} devices are not {cp}, the degree of context parallelism"
        _deny(reader, prod(whole) != cp, "hierarchical_context_parallel_sizes", message, "their product is the degree")
    levelled = "a2a+p2p" in (reader.get("cp_comm_type") or [])
    message = "messages of kind `a2a+p2p` go in two levels, and their sizes are not given"
    _deny(reader, levelled and levels is None, "cp_comm_type", message, "give `hierarchical_context_parallel_sizes`")
    if flag(reader, "hybrid_context_parallel"):
        name = "hybrid_context_parallel"
        _deny(reader, own_fsdp(reader), name, "hybrid context parallelism excludes Megatron's own FSDP", "drop one of the two")
        _deny(reader, sizes.pp > 1, name, "hybrid context parallelism excludes pipeline parallelism", "take one stage")
        uneven = not flag(reader, "calculate_per_token_loss")
        _deny(reader, uneven, name, "devices have unequal token counts", "add `--calculate-per-token-loss`")


def _check_experts(reader: Reader, sizes: Sizes) -> None:
    """Experts and their degrees."""
    experts, ep = reader.get("num_experts"), sizes.ep
    message = "expert parallelism needs experts, and none are given"
    _deny(reader, ep > 1 and not experts, "expert_model_parallel_size", message, "give `num_experts`")
    message = f"{experts} experts are no multiple of {ep}, the degree of expert parallelism"
    _deny(reader, bool(experts) and experts % ep != 0, "num_experts", message, "experts are split evenly: change one of the two")
    # megatron-core==0.16.1:transformer/moe/moe_layer.py
    alone = bool(experts) and sizes.tp > 1 and not flag(reader, "sequence_parallel")
    message = "experts beside tensor parallelism need sequence parallelism"
    _deny(reader, alone, "num_experts", message, "add `--sequence-parallel`")
    _check_experts_world(reader, sizes)
    name = "overlap_moe_expert_parallel_comm"
    if flag(reader, name):
        _deny(reader, ep == 1, name, f"`{name}` needs expert parallelism", "give `expert_model_parallel_size`")
        _deny(
            reader,
            sizes.pp > 1 and not sizes.interleaved,
            name,
            f"`{name}` over a pipeline needs interleaved stages",
            "interleave, or drop it",
        )


def _expert_degrees(reader: Reader, sizes: Sizes) -> int:
    """Devices that together hold each expert's weights once."""
    return (reader.get("expert_tensor_parallel_size") or sizes.tp) * sizes.ep * sizes.pp


def _check_experts_world(reader: Reader, sizes: Sizes) -> None:
    tensor, product = reader.get("expert_tensor_parallel_size") or sizes.tp, _expert_degrees(reader, sizes)
    if sizes.world is not None and reader.get("num_experts") and sizes.world % product:
        name = first(reader, "expert_model_parallel_size", "expert_tensor_parallel_size")
        message = f"{sizes.world} devices are no multiple of {product}: tp {tensor} of experts * ep {sizes.ep} * pp {sizes.pp}"
        reader.refuse(name, message, "change a degree, or the number of devices")


def _check_data(reader: Reader, sizes: Sizes) -> None:
    """The distributed optimizer and overlapped messages."""
    sharded = flag(reader, "use_distributed_optimizer") or own_fsdp(reader) or reader.get("optimizer") == "dist_muon"
    if flag(reader, "overlap_param_gather"):
        name = "overlap_param_gather"
        _deny(reader, not sharded, name, "nothing is gathered: the optimizer is not sharded", "add `--use-distributed-optimizer`")
        alone = not flag(reader, "overlap_grad_reduce")
        _deny(reader, alone, name, "gathering is overlapped only together with reducing", "add `--overlap-grad-reduce`")
    copies = reader.get("num_distributed_optimizer_instances")
    if copies > 1:
        name = "num_distributed_optimizer_instances"
        _deny(reader, not sharded, name, "copies of a sharded optimizer need one that is sharded", "add `--use-distributed-optimizer`")
        uneven = sizes.dp is not None and sizes.dp * sizes.cp % copies != 0
        message = f"{(sizes.dp or 1) * sizes.cp} data-parallel devices are no multiple of {copies} copies"
        _deny(reader, uneven, name, message, "choose a divisor")
        _check_expert_copies(reader, sizes, 1 if uneven else copies)
    gathers = sharded or flag(reader, "use_torch_fsdp2")
    message = "parameters are gathered in fp8 only where they are sharded"
    _deny(reader, flag(reader, "fp8_param_gather") and not gathers, "fp8_param_gather", message, "add `--use-distributed-optimizer`")
    wide = flag(reader, "accumulate_allreduce_grads_in_fp32") and reader.get("main_grads_dtype") == "bf16"
    _deny(reader, wide, "main_grads_dtype", "gradients cannot be summed in fp32 and held in bf16", "drop one of the two")
    host = flag(reader, "optimizer_cpu_offload") and not flag(reader, "use_precision_aware_optimizer")
    message = "an optimizer on the host needs the precision-aware one"
    _deny(reader, host, "optimizer_cpu_offload", message, "add `--use-precision-aware-optimizer`")


def _check_expert_copies(reader: Reader, sizes: Sizes, copies: int) -> None:
    """Copies of a sharded optimizer also divide the devices that hold the same experts (megatron-core==0.16.1:parallel_state.py)."""
    product = _expert_degrees(reader, sizes)
    if sizes.world is None or sizes.world % product or sizes.world // product % copies == 0:
        return
    message = f"{sizes.world // product} devices that share experts are no multiple of {copies} copies"
    help = f"choose a divisor: {sizes.world} devices hold the experts in {product} different parts"
    reader.refuse("num_distributed_optimizer_instances", message, help)


def _check_fsdp(reader: Reader, sizes: Sizes) -> None:
    """PyTorch's FSDP and Megatron's own."""
    optimizer = reader.get("optimizer")
    if flag(reader, "use_torch_fsdp2"):
        name = "use_torch_fsdp2"
        for wrong, what, help in (
            (sizes.pp > 1, "pipeline parallelism", "take one stage"),
            (sizes.ep > 1, "expert parallelism", "take `expert_model_parallel_size` 1"),
            (flag(reader, "use_distributed_optimizer"), "the distributed optimizer", "drop `use_distributed_optimizer`"),
            (own_fsdp(reader), "Megatron's own FSDP", "keep one of them"),
            (flag(reader, "fp16"), "fp16", "use `--bf16`"),
            (optimizer not in ("adam", "sgd"), f"the optimizer {optimizer}", "use adam or sgd"),
            (not flag(reader, "no_gradient_accumulation_fusion"), "fused gradient sums", "add `--no-gradient-accumulation-fusion`"),
            (not flag(reader, "untie_embeddings_and_output_weights"), "tied embeddings", "add `--untie-embeddings-and-output-weights`"),
        ):
            _deny(reader, wrong, name, f"`{name}` excludes {what}", help)
    if own_fsdp(reader):
        name = first(reader, "use_megatron_fsdp", "use_custom_fsdp")
        _deny(reader, optimizer not in ("adam", "sgd"), "optimizer", f"`{name}` has no {optimizer}", "use adam or sgd")
        second = reader.get("megatron_fsdp_version") == 2 and flag(reader, "use_distributed_optimizer")
        message = "version 2 of Megatron's own FSDP excludes the distributed optimizer"
        _deny(reader, second, "use_distributed_optimizer", message, "drop `use_distributed_optimizer`")


def _check_memory(reader: Reader, sizes: Sizes) -> None:
    """Recomputation."""
    name = first(reader, "distribute_saved_activations", "distribute_checkpointed_activations")
    if flag(reader, name):
        _deny(reader, sizes.tp == 1, name, "kept inputs are split over tensor parallelism, and there is none", "drop it")
        _deny(
            reader,
            not full_recompute(reader),
            name,
            "only the inputs of full recomputation are split",
            "add `--recompute-granularity full`",
        )
        _deny(
            reader,
            flag(reader, "sequence_parallel") and sizes.tp > 1,
            name,
            "sequence parallelism splits them already",
            "drop one of the two",
        )
    said, method = reader.get("recompute_granularity"), reader.get("recompute_method")
    bare = said == "full" and method is None and not flag(reader, "recompute_activations")
    _deny(reader, bare, "recompute_granularity", "full recomputation needs a method", "add `--recompute-method uniform` or `block`")
    partly = said == "selective" and method is not None
    _deny(reader, partly, "recompute_method", "selective recomputation has no method", "drop `recompute_method`")
