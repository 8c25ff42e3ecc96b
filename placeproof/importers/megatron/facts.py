"""What is known of arguments of Megatron-LM, by the names that the rules of Megatron-LM use, and how a broken rule is told."""

from __future__ import annotations

from placeproof.importers.asked import Known, Says
from placeproof.importers.fields import Reader
from placeproof.importers.megatron.rules import Sizes, chunked_layers, first, flag, own_fsdp

_TP, _PP, _CP, _EP = (f"{name}_model_parallel_size" for name in ("tensor", "pipeline", "context", "expert"))
_CP = "context_parallel_size"
_INSTANCES, _ETP = "num_distributed_optimizer_instances", "expert_tensor_parallel_size"
_BY_LAYERS, _BY_STAGES = "num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank"
_GROUP, _LAYOUT = "microbatch_group_size_per_virtual_pipeline_stage", "pipeline_model_parallel_layout"
_WAYS = (_BY_LAYERS, _BY_STAGES, _LAYOUT)
_GROUPS = ("num_query_groups", "group_query_attention")
_FSDP = ("use_megatron_fsdp", "use_custom_fsdp")

#: Rules that are not about arguments.
PASSED_OVER = {
    "megatron-04": "it is asked of one numbering of devices, and Megatron makes two: one without ep and one without cp",
    "megatron-25": "the arguments turn the overlap off where stages are not interleaved",
}


def known(reader: Reader, sizes: Sizes) -> Known:
    """The facts of a command line."""
    found = Known(reader)
    for one in (_degrees, _model, _pipeline, _experts, _data, _memory):
        one(found, reader, sizes)
    return found


def _degrees(found: Known, reader: Reader, sizes: Sizes) -> None:
    found.put("world", sizes.world, _TP, _PP, _CP)
    found.put("tp", sizes.tp, _TP)
    found.put("pp", sizes.pp, _PP)
    found.put("cp", sizes.cp, _CP)
    found.put("ep", sizes.ep, _EP)
    found.put("gtp", sizes.gtp, "generalized_tensor_parallel_remat_size", "tensor_parallel_num_weight_shards")
    if reader.get("num_experts") or reader.said(_ETP) or reader.said(_EP):  # else the experts' mesh is that of everything
        found.put("etp", reader.get(_ETP) or sizes.tp, _ETP, _TP)
    found.put("dp", sizes.dp, _TP, _PP, _CP)
    found.put("sp", flag(reader, "sequence_parallel") and sizes.tp > 1, "sequence_parallel")  # turned off where nothing is split
    levels = [str(level) for level in reader.get("hierarchical_context_parallel_sizes") or ()]
    if levels:
        found.put("hcp", tuple(int(n) if n.isdecimal() else 0 for n in levels), "hierarchical_context_parallel_sizes")
    kinds = reader.get("cp_comm_type") or ["p2p"]
    found.put("cp_comm", "a2a+p2p" if "a2a+p2p" in kinds else kinds[0], "cp_comm_type")
    found.put("hcp_set", bool(levels), "hierarchical_context_parallel_sizes")
    found.put("hybrid_cp", flag(reader, "hybrid_context_parallel"), "hybrid_context_parallel")
    found.put("per_token_loss", flag(reader, "calculate_per_token_loss"), "calculate_per_token_loss")


def _model(found: Known, reader: Reader, sizes: Sizes) -> None:
    found.put("heads", reader.get("num_attention_heads"), "num_attention_heads")
    if flag(reader, "group_query_attention"):
        found.put("kv_heads", reader.get("num_query_groups") or 1, *_GROUPS)
    if not reader.said("kv_channels"):
        found.put("hidden", reader.get("hidden_size"), "hidden_size")
    found.put("seq", reader.get("seq_length"), "seq_length")
    found.put("max_positions", reader.get("max_position_embeddings"), "max_position_embeddings")
    found.put("untied", flag(reader, "untie_embeddings_and_output_weights"), "untie_embeddings_and_output_weights")
    found.put("bias", not flag(reader, "disable_bias_linear"), "disable_bias_linear")
    hyper = first(reader, "enable_mhc_connections", "enable_hyper_connections")
    found.put("mhc", flag(reader, hyper), hyper)


def _pipeline(found: Known, reader: Reader, sizes: Sizes) -> None:
    for fact, name in zip(("vstage_layers", "vstages", "pp_layout"), _WAYS, strict=True):
        found.put(fact, reader.get(name), name, unset=True)
    found.put("vpp_set", sizes.interleaved, *_WAYS)
    found.put("overlap_p2p", sizes.interleaved and not flag(reader, "no_overlap_p2p_communication"), *_WAYS)
    layers = chunked_layers(reader, sizes)
    if layers is not None:
        found.put("layers", layers, "num_layers")
        found.put("layers_per_vstage", reader.get(_BY_LAYERS), _BY_LAYERS)
    if sizes.pp > 1:
        found.put("mb_group", reader.get(_GROUP) or sizes.pp, _GROUP, *_WAYS)
        found.put("nmb", sizes.m, "global_batch_size")
    defer = "defer_embedding_wgrad_compute"
    found.put("defer_emb_wgrad", flag(reader, defer), defer)


def _experts(found: Known, reader: Reader, sizes: Sizes) -> None:
    experts = reader.get("num_experts") or None
    found.put("experts", experts, "num_experts")
    found.put("experts_set", experts is not None, "num_experts")
    overlap, way = "overlap_moe_expert_parallel_comm", "moe_token_dispatcher_type"
    found.put("overlap_ep", flag(reader, overlap), overlap)
    found.put("dispatcher", str(reader.get(way) or "allgather"), way)
    backends = ("moe_enable_deepep", "moe_flex_dispatcher_backend")
    found.put("deepep", flag(reader, "moe_enable_deepep"), *backends)
    found.put("topk", reader.get("moe_router_topk"), "moe_router_topk")
    found.put("score", str(reader.get("moe_router_score_function") or "softmax"), "moe_router_score_function")
    found.put("pre_softmax", flag(reader, "moe_router_pre_softmax"), "moe_router_pre_softmax")
    found.put("expert_bias", flag(reader, "moe_router_enable_expert_bias"), "moe_router_enable_expert_bias")
    balance = reader.get("moe_router_load_balancing_type") or "aux_loss"
    found.put("balancing", tuple(balance) if isinstance(balance, list) else (balance,), "moe_router_load_balancing_type")
    capacity, padded = "moe_expert_capacity_factor", "moe_pad_expert_input_to_capacity"
    found.put("capacity_set", (reader.get(capacity) or -1) >= 0, capacity)
    found.put("pad_to_capacity", flag(reader, padded), padded)


def _data(found: Known, reader: Reader, sizes: Sizes) -> None:
    own = own_fsdp(reader)
    version = reader.get("megatron_fsdp_version") or 1
    found.put("megatron_fsdp", version if own else 0, "megatron_fsdp_version", *_FSDP)
    # the first version of Megatron's own FSDP turns the distributed optimizer on
    sharded = flag(reader, "use_distributed_optimizer") or (own and version != 2)
    found.put("distopt", sharded, "use_distributed_optimizer", *_FSDP)
    found.put("opt", reader.get("optimizer"), "optimizer")
    found.put("dist_muon", reader.get("optimizer") == "dist_muon", "optimizer")
    found.put("fsdp2", flag(reader, "use_torch_fsdp2"), "use_torch_fsdp2")
    found.put(_INSTANCES.replace("distributed_optimizer", "distopt"), reader.get(_INSTANCES), _INSTANCES)
    for fact, name in (
        ("overlap_param_gather", "overlap_param_gather"),
        ("overlap_grad_reduce", "overlap_grad_reduce"),
        ("early_gather", "overlap_param_gather_with_optimizer_step"),
        ("fp8_param_gather", "fp8_param_gather"),
        ("average_in_collective", "ddp_average_in_collective"),
    ):
        found.put(fact, flag(reader, name), name)
    found.put("fp8", any(reader.said(n) for n in ("fp8_format", "fp8_e4m3", "fp8_hybrid")), "fp8_format", "fp8_e4m3", "fp8_hybrid")
    fusion = "no_gradient_accumulation_fusion"
    found.put("grad_accum_fusion", not flag(reader, fusion), fusion)


def _memory(found: Known, reader: Reader, sizes: Sizes) -> None:
    split = first(reader, "distribute_saved_activations", "distribute_checkpointed_activations")
    found.put("dist_saved_acts", flag(reader, split), split)
    said = "selective" if flag(reader, "recompute_activations") else reader.get("recompute_granularity") or ""
    found.put("recompute", said, "recompute_granularity", "recompute_activations")
    found.put("recomputed", tuple(reader.get("recompute_modules") or ()), "recompute_modules")
    found.put("grouped_gemm", flag(reader, "moe_grouped_gemm"), "moe_grouped_gemm")
    offload = "cpu_offloading_num_layers"
    found.put("layers_on_host", (reader.get(offload) or 0) > 0, offload)
    found.put("recompute_layers_set", reader.said("recompute_num_layers"), "recompute_num_layers")


_ONE_STAGE = Says("interleaved stages need a pipeline, and there is one stage", "give `pipeline_model_parallel_size`", _WAYS)
_ROUNDS = Says(
    "{nmb} micro-batches go round {pp} stages in groups of {mb_group}: each group, the last one too, has as many as stages or more",
    "make the batch a multiple of the group, and the group at least as many as stages",
    (_GROUP, *_WAYS),
)
_TWO = "change one of the two"
_DEGREES = (_TP, _PP, _CP, "generalized_tensor_parallel_remat_size", "tensor_parallel_num_weight_shards", _EP, _INSTANCES)

#: In our own words, where they say more than the rule's.
SAYS: dict[str, Says] = {
    "megatron-01": Says(
        "{world} devices are no multiple of {tp} * {pp} * {cp} * {gtp}: tp * pp * cp, and weights that are gathered when used",
        "change a degree, or the number of devices",
        _DEGREES,
    ),
    "megatron-03": Says(
        "{world} devices are no multiple of {etp} * {ep} * {pp}: tp of experts * ep * pp",
        "change a degree, or the number of devices",
        (_EP, _ETP, *_DEGREES),
    ),
    "megatron-07": Says(
        "{dp} * {cp} data-parallel devices are no multiple of {num_distopt_instances} copies", "choose a divisor", (_INSTANCES,)
    ),
    "megatron-09": _ONE_STAGE,
    "megatron-24": _ONE_STAGE,
    "megatron-10": Says(
        "levels of {hcp} devices are not {cp}, the degree of context parallelism",
        "their product is the degree",
        ("hierarchical_context_parallel_sizes",),
    ),
    "megatron-12": Says(
        "messages of kind `a2a+p2p` go in two levels, and their sizes are not given",
        "give `hierarchical_context_parallel_sizes`",
        ("cp_comm_type",),
    ),
    "megatron-16": Says(
        "{heads} attention heads are no multiple of {tp}, the degree of tensor parallelism", f"heads are split evenly: {_TWO}"
    ),
    "megatron-18": Says("a hidden size of {hidden} is no multiple of {heads} attention heads", f"{_TWO}, or give `kv_channels`"),
    "megatron-19": Says(
        "a sequence of {seq} tokens is no multiple of 2 * {cp}: each of {cp} devices takes two pieces", "choose a multiple", ("seq_length",)
    ),
    "megatron-21": Says(
        "{layers} layers over {pp} stages: those of a stage are no multiple of {layers_per_vstage}, the layers of a virtual stage",
        "choose a divisor",
        (_BY_LAYERS,),
    ),
    "megatron-22": Says("several settings cut the stages, each in its own way", "keep one of them", (_LAYOUT, _BY_STAGES, _BY_LAYERS)),
    "megatron-27": _ROUNDS,
    "megatron-28": _ROUNDS,
    "megatron-30": Says(
        "{experts} experts are no multiple of {ep}, the degree of expert parallelism", f"experts are split evenly: {_TWO}", ("num_experts",)
    ),
    "megatron-31": Says("expert parallelism needs experts, and none are given", "give `num_experts`", (_EP,)),
    "megatron-36": Says(
        "nothing is gathered: the optimizer is not sharded", "add `--use-distributed-optimizer`", ("overlap_param_gather",)
    ),
    "megatron-37": Says("gathering is overlapped only together with reducing", "add `--overlap-grad-reduce`", ("overlap_param_gather",)),
    "megatron-42": Says("`use_torch_fsdp2` excludes fused gradient sums", "add `--no-gradient-accumulation-fusion`", ("use_torch_fsdp2",)),
    "megatron-43": Says("`use_torch_fsdp2` excludes tied embeddings", "add `--untie-embeddings-and-output-weights`", ("use_torch_fsdp2",)),
    "megatron-45": Says(
        "version 2 of Megatron's own FSDP excludes the distributed optimizer",
        "drop `use_distributed_optimizer`",
        ("use_distributed_optimizer",),
    ),
    "megatron-46": Says("Megatron's own FSDP has no {opt}", "use adam or sgd", ("optimizer",)),
    "megatron-49": Says("devices have unequal token counts", "add `--calculate-per-token-loss`", ("hybrid_context_parallel",)),
    "megatron-54": Says("copies of a sharded optimizer need one that is sharded", "add `--use-distributed-optimizer`", (_INSTANCES,)),
    "megatron-48": Says("hybrid context parallelism excludes Megatron's own FSDP", "drop one of the two", ("hybrid_context_parallel",)),
    "megatron-52": Says("`enable_mhc_connections` excludes pipeline parallelism", "take one stage"),
    "megatron-57": Says("`defer_embedding_wgrad_compute` needs a pipeline", "drop it, or give more than one stage"),
    "megatron-58": Says(
        "parameters are gathered in fp8 only where they are sharded", "add `--use-distributed-optimizer`", ("fp8_param_gather",)
    ),
    "megatron-60": Says(
        "gradients are divided by the number of devices in the collective, and by the tokens of all devices after it",
        "drop `ddp_average_in_collective`, or `calculate_per_token_loss`",
        ("ddp_average_in_collective",),
    ),
    "megatron-61": Says(
        "experts with a bias are not split, and these are split over {etp} devices",
        "add `--disable-bias-linear`, or `--expert-tensor-parallel-size 1`",
        ("num_experts",),
    ),
    "megatron-62": Says("experts beside tensor parallelism need sequence parallelism", "add `--sequence-parallel`", ("num_experts",)),
    "megatron-63": Says(
        "a sequence of {seq} tokens, and positions for {max_positions}", "give `max_position_embeddings` of at least `seq_length`"
    ),
    "megatron-75": Says(
        "a token goes to {topk} experts, and there are {experts}", "take as many as there are, or fewer", ("moe_router_topk",)
    ),
    "megatron-76": Says("layers on the host exclude a pipeline", "take one stage, or drop it", ("cpu_offloading_num_layers",)),
    "megatron-78": Says("{kv_heads} query groups and a degree of tensor parallelism of {tp}: neither divides the other", _TWO, _GROUPS),
    "megatron-77": Says("`moe_act` needs experts in one product", "add `--moe-grouped-gemm`, or drop `moe_act`", ("recompute_modules",)),
}
