"""The settings of DeepSpeed's JSON file (0.19.8, and those of older files that real repositories still carry)."""

from __future__ import annotations

from collections.abc import Iterator

from placeproof.importers.fields import Field, field
from placeproof.importers.imported import Role

_READ, _OPEN, _PLAIN = Role.READ, Role.NOT_MODELLED, Role.NO_MATTER
_ANY = "bool int number text list table"

#: What a type's name stands for.
WIDTHS = {
    **dict.fromkeys(("fp16", "float16", "half", "torch.float16"), "fp16"),
    **dict.fromkeys(("bf16", "bfloat16", "torch.bfloat16"), "bf16"),
    **dict.fromkeys(("fp32", "float32", "float", "torch.float32"), "fp32"),
}
_TYPES = tuple(WIDTHS)
#: The names of those in which something is sent: fewer are taken.
_SENT = ("fp16", "bf16", "fp32", "FP16", "BF16", "FP32")

#: Tables that do nothing unless their ``enabled`` is true, and whether it is so where nothing is said.
SWITCHES = {
    **dict.fromkeys(("fp16", "bf16", "bfloat16", "torch_autocast", "expert_parallel", "hybrid_engine"), False),
    **dict.fromkeys(("data_efficiency", "autotuning"), False),
    "weight_quantization": True,
}

#: Tables in which DeepSpeed looks settings up by their names, and so passes over any other; those of its models refuse one.
PASSED_OVER = ("", "optimizer", "scheduler", "pipeline", "activation_checkpointing", "checkpoint", "data_types", "aio", "torch_autocast")

#: What DeepSpeed refuses, whatever is said of it, and what to do: older files have it (deepspeed==0.19.8:runtime/config.py#L133 and,
#: of the norm, runtime/engine.py#L2481).
REMOVED: dict[str, str] = {
    **dict.fromkeys(
        (
            *("amp", "compression_training", "curriculum_learning", "eigenvalue", "elasticity", "graph_harvesting", "nebula"),
            *("progressive_layer_drop", "quantize_training", "sparse_attention", "sparse_gradients"),
            *(f"zero_optimization.{name}" for name in ("mics_shard_size", "mics_hierarchical_params_gather", "zeropp_loco_param")),
        ),
        "drop it: nothing stands in for it",
    ),
    "amp": "say `fp16`, `bf16` or `torch_autocast`",
    "elasticity": "say the batch sizes themselves",
    "curriculum_learning": "say `data_efficiency.data_sampling.curriculum_learning`",
    "optimizer.params.max_grad_norm": "say `gradient_clipping`",
}

#: Values with which a setting that is not modelled does just what the formulas say.
HARMLESS: dict[str, tuple[object, str]] = {
    "gradient_clipping": (0, "no clipping"),
    "zero_optimization.use_multi_rank_bucket_allreduce": (False, "gradients go to their owners alone, as in the formulas"),
    **{
        f"zero_optimization.{prefix}{name}": (0, note)
        for prefix in ("", "stage3_")
        for name, note in (
            ("max_live_parameters", "nothing stays gathered, as in the formulas"),
            ("max_reuse_distance", "nothing stays gathered, as in the formulas"),
            ("param_persistence_threshold", "every parameter is sharded, as in the formulas"),
            ("prefetch_bucket_size", "nothing is gathered ahead, as in the formulas"),
            ("module_granularity_threshold", "no modules are joined"),
        )
    },
}


def _plain(table: str, names: str, note: str) -> Iterator[Field]:
    """Settings that are of no matter, by their names with spaces between."""
    before = f"{table}." if table else ""
    return (field(before + name, _ANY, _PLAIN, note, None) for name in names.split())


def _flags(table: str, role: Role, *rows: tuple[str, str]) -> Iterator[Field]:
    """Settings that are true or false, and false where nothing is said."""
    before = f"{table}." if table else ""
    return (field(before + name, "bool", role, note, default=False) for name, note in rows)


_BATCH = (
    field("train_batch_size", "count", _READ, "samples in one update, over all devices"),
    field("train_micro_batch_size_per_gpu", "count", _READ, "samples in one forward pass of a device"),
    field("gradient_accumulation_steps", "count", _READ, "micro-batches in one update"),
    field("managed_gradient_accumulation", "bool", _OPEN, "the caller says when an update is due", default=True),
    field("vocabulary_size", "count", _READ, "the vocabulary"),
    field("data_parallel_size", "count", _READ, "data-parallel degree"),
    field(
        "sequence_parallel_size",
        "count",
        _READ,
        "sequences are split too (Ulysses): the axis cp, over which ZeRO shards, too",
        default=1,
    ),
)

_OPTIMIZER = (
    field("optimizer.type", "text", _READ, "the update"),
    field("optimizer.params.momentum", "fraction", _READ, "whether SGD keeps a momentum, or the momentum of another update", default=0),
    field("optimizer.params.fp32_optimizer_states", "bool", _OPEN, "in which type Adam on the host keeps its moments", default=True),
    field("optimizer.params.*", _ANY, _PLAIN, "hyperparameter of the update", None),
    field("optimizer.legacy_fusion", "bool", _PLAIN, "an older kernel"),
    *_plain("scheduler", "type params", "learning rates"),
    field("zero_allow_untested_optimizer", "bool", _PLAIN, "lets other optimizers run with ZeRO", default=False),
    field("zero_force_ds_cpu_optimizer", "bool", _PLAIN, "insists on DeepSpeed's own optimizer on the host", default=True),
)

_SENDING = (
    field("communication_data_type", "", _OPEN, "gradients are sent in this type", None, *_SENT),
    field("seq_parallel_communication_data_type", "", _OPEN, "type of what a sequence axis sends", None, *_SENT, default="fp32"),
    field("gradient_clipping", "amount", _OPEN, "clips by the norm of the whole gradient: one more scalar is exchanged"),
    field("gradient_allreduce_op", "", _OPEN, "sum: gradients are added and not averaged", "mean", "sum", default="mean"),
    field("prescale_gradients", "bool", _PLAIN, "divides before the sum and not after it", default=False),
    field("gradient_predivide_factor", "positive", _PLAIN, "a part of the division comes before the sum", default=1.0),
    *_flags("", _OPEN, ("fp32_allreduce", "gradients are sent in fp32")),
    *_flags("", _OPEN, ("disable_allgather", "updated parameters are broadcast and not gathered")),
    *_flags("", _OPEN, ("use_data_before_expert_parallelism", "another order of the ranks of experts")),
    field("allgather_size", "positive", _OPEN, "size of a gather's buffer: memory that the formulas leave out", default=5e8),
)


def _half(table: str) -> Iterator[Field]:
    yield field(f"{table}.enabled", "bool", _READ, "weights and gradients in bf16", default=False)
    yield from _flags(
        table,
        _OPEN,
        ("immediate_grad_update", "16-bit gradients are freed as soon as they are added up"),
        ("accumulate_grads_via_hooks", "16-bit gradients are freed as soon as they are added up"),
        ("bf16_master_weights_and_grads", "master weights in bf16: no named precision"),
        ("bf16_optimizer_states", "moments in bf16: no named precision"),
    )
    yield from _plain(table, "check_grad_overflow check_overflow auto_cast", "which steps are skipped, and casts of the inputs")


_PRECISION = (
    field("fp16.enabled", "bool", _READ, "weights and gradients in fp16", default=False),
    *_flags("fp16", _OPEN, ("fp16_master_weights_and_grads", "master weights in fp16: no named precision")),
    *_plain(
        "fp16",
        "auto_cast initial_scale_power loss_scale_window hysteresis consecutive_hysteresis min_loss_scale opt_level",
        "scale of the loss, and casts of the inputs",
    ),
    field("fp16.loss_scale", "amount", _PLAIN, "scale of the loss; 0: it is sought"),
    *_half("bf16"),
    *_half("bfloat16"),
    *_flags("torch_autocast", _OPEN, ("enabled", "PyTorch casts operations one by one: no named precision")),
    *_plain("torch_autocast", "dtype lower_precision_safe_modules", "what PyTorch casts"),
    field("data_types.grad_accum_dtype", "", _READ, "type in which gradients are added up", None, *_TYPES),
    field("data_types.param_dtype", "", _READ, "type of the weights, which fp16 and bf16 already say", None, *_TYPES),
    field("data_types.buffer_dtype", "", _PLAIN, "type of buffers, which are no parameters", None, *_TYPES),
    field("data_types.keep_in_fp32_modules", "list text", _PLAIN, "buffers kept in fp32", None),
)


def _stage_3() -> Iterator[Field]:
    """Settings of stage 3, which may be written with and without their prefix."""
    rows = (
        ("prefetch_bucket_size", "size", _OPEN, "parameters gathered ahead of their use: memory that the formulas leave out", 5e7),
        ("param_persistence_threshold", "size", _OPEN, "smaller parameters stay whole on every device", 1e5),
        ("model_persistence_threshold", "size", _OPEN, "how many parameters may stay whole on every device", 2**63 - 1),
        ("max_live_parameters", "size", _OPEN, "how many parameters may stay gathered", 1e9),
        ("max_reuse_distance", "size", _OPEN, "parameters used again soon stay gathered, and backward gathers less", 1e9),
        ("gather_16bit_weights_on_model_save", "bool", _PLAIN, "what is saved", None),
        ("gather_fp16_weights_on_model_save", "bool", _PLAIN, "what is saved", None),
        ("module_granularity_threshold", "size", _OPEN, "small modules are gathered as one", 0),
        ("use_all_reduce_for_fetch_params", "bool", _OPEN, "gathers by all-reduce: twice the volume", False),
        ("allgather_sequential", "bool", _PLAIN, "one gather for each parameter: the same volume", None),
    )
    for name, kinds, role, note, default in rows:
        for prefix in ("", "stage3_"):
            yield field(f"zero_optimization.{prefix}{name}", kinds, role, note, default=default)


_OFFLOAD = (
    field("zero_optimization.offload_optimizer.device", "", _READ, "where the optimizer state lies", "none", "cpu", "nvme", default="none"),
    *_plain(
        "zero_optimization.offload_optimizer",
        "nvme_path buffer_count buffer_size pin_memory pipeline_read pipeline_write pipeline fast_init cpuadam_cores_perc",
        "how the host is used",
    ),
    field("zero_optimization.offload_optimizer.ratio", "fraction", _OPEN, "a part of the state stays on the device", default=1.0),
    *_flags(
        "zero_optimization.offload_optimizer", _OPEN, ("super_offload", "the update on the host overlaps backward, and may be rolled back")
    ),
    field("zero_optimization.offload_param.device", "", _READ, "where the parameters lie", "none", "cpu", "nvme", default="none"),
    *_plain("zero_optimization.offload_param", "nvme_path buffer_count buffer_size max_in_cpu pin_memory", "how the host is used"),
    *_flags(
        "zero_optimization",
        _READ,
        ("cpu_offload", "optimizer state on the host, as older files say it"),
        ("cpu_offload_param", "parameters on the host, as older files say it"),
        ("cpu_offload_params", "parameters on the host, as older files say it"),
    ),
    *_plain("zero_optimization", "cpu_offload_use_pin_memory", "how the host is used"),
    *_plain("aio", "block_size queue_depth intra_op_parallelism single_submit overlap_events use_gds thread_count", "how disks are used"),
)

_ZERO = (
    field("zero_optimization.stage", "int", _READ, "the ZeRO stage", default=0),
    field("zero_optimization.zero_hpz_partition_size", "size", _READ, "devices of a secondary shard (hpZ)", default=1),
    *_flags(
        "zero_optimization",
        _READ,
        ("zero_quantized_weights", "gathers are quantised (qwZ)"),
        ("zero_quantized_gradients", "gradients are exchanged quantised (qgZ)"),
    ),
    *_stage_3(),
    *_OFFLOAD,
    field("zero_optimization.reduce_scatter", "bool", _OPEN, "false: gradients are all-reduced whole", default=True),
    field("zero_optimization.use_multi_rank_bucket_allreduce", "bool", _OPEN, "gradients are all-reduced, not reduce-scattered"),
    field("zero_optimization.allgather_partitions", "bool", _OPEN, "false: updated parameters are broadcast", default=True),
    field(
        "zero_optimization.reduce_bucket_size",
        "size",
        _OPEN,
        "size of a reduction's buffer: memory that the formulas leave out",
        default=5e8,
    ),
    field(
        "zero_optimization.allgather_bucket_size",
        "size",
        _OPEN,
        "size of a gather's buffer: memory that the formulas leave out",
        default=5e8,
    ),
    field("zero_optimization.sub_group_size", "size", _OPEN, "parameters updated at once: memory of the update", default=1e9),
    field("zero_optimization.compute_grad_norm", "bool", _PLAIN, "whether a norm is computed that nothing else needs", default=True),
    *_flags(
        "zero_optimization",
        _OPEN,
        ("zero_quantized_nontrainable_weights", "frozen weights are kept quantised"),
        ("parameter_alignment", "parameters are padded in their buffers"),
        ("legacy_stage1", "an older stage 1"),
        ("save_muon_momentum_buffer_in_memory", "Muon's momentum stays off the disk"),
    ),
    field("zero_optimization.zenflow", "table", _OPEN, "updates most parameters late, on the host: another step"),
    *(
        field(f"zero_optimization.leaf_module.{name}", "list", _OPEN, "these modules are gathered whole")
        for name in ("classes", "names", "name_suffixes")
    ),
    *_plain("zero_optimization", "overlap_comm contiguous_gradients round_robin_gradients", "order and place of the same sends"),
    *_plain("zero_optimization", "memory_efficient_linear sdma_allgather sdma_allgather_max_numel", "a kernel with the same result"),
    *_plain("zero_optimization", "load_from_fp32_weights elastic_checkpoint pipeline_loading_checkpoint", "what is saved and loaded"),
    *_plain("zero_optimization", "ignore_unused_parameters override_module_apply", "how strict the set-up is"),
    *_plain("zero_optimization", "log_trace_cache_warnings enable_sanity_checks", "logs and checks"),
)

_MODEL = (
    field("tensor_parallel.autotp_size", "size", _READ, "tensor-parallel degree", default=0),
    field("tensor_parallel.tp.tp_size", "count", _READ, "tensor-parallel degree, said again", default=1),
    field("tensor_parallel.tensor_parallel.tp_size", "count", _READ, "tensor-parallel degree, said again", default=1),
    *_plain("tensor_parallel.tp", "tp_grain_size mpu tp_group", "how matrices are cut"),
    *_plain("tensor_parallel.tensor_parallel", "tp_grain_size mpu tp_group", "how matrices are cut"),
    field("tensor_parallel.partition_config", "table", _OPEN, "the file's own rules of which matrices are split", None),
    field("tensor_parallel.injection_policy_tuple", "list", _OPEN, "own rules of which matrices are split", None),
    field("tensor_parallel.vocab_parallel_lm_head", "bool", _OPEN, "whether the last matrix is split by vocabulary", None),
    *_plain("tensor_parallel", "tp_overlap_comm vocab_parallel_ce_backend preset_model dtype", "kernels and presets with the same result"),
    *_plain("tensor_parallel", "keep_module_on_host replace_with_kernel_inject kernel_inject", "how the model is loaded"),
    field("pipeline.stages", "count", _READ, "pipeline stages"),
    field("pipeline.partition", "text", _OPEN, "how layers are dealt to stages", default="best"),
    field("pipeline.partition_method", "text", _OPEN, "how layers are dealt to stages", default="best"),
    field("pipeline.activation_checkpoint_interval", "size", _READ, "layers between two activation checkpoints", default=0),
    field("pipeline.pipe_partitioned", "bool", _OPEN, "whether what stages send is split over a tensor axis", default=True),
    field("pipeline.grad_partitioned", "bool", _OPEN, "whether gradients between stages are split over a tensor axis", default=True),
    *_plain("pipeline", "seed_layers use_reentrant", "seeds, and how checkpoints are written"),
    field("activation_checkpointing.partition_activations", "bool", _READ, "checkpoints are split over a tensor axis", default=False),
    field("activation_checkpointing.cpu_checkpointing", "bool", _READ, "checkpoints lie on the host", default=False),
    *_plain(
        "activation_checkpointing",
        "number_checkpoints contiguous_memory_optimization synchronize_checkpoint_boundary profile",
        "layout and timing of the same checkpoints",
    ),
    *_flags("expert_parallel", _READ, ("enabled", "experts lie on different devices")),
    field("expert_parallel.autoep_size", "count", _READ, "devices that share the experts", default=1),
    field("expert_parallel.expert_tensor_parallel_size", "count", _READ, "devices that an expert is split over", default=1),
    field("expert_parallel.*", _ANY, _PLAIN, "how tokens reach experts", None),
)

_COMPILE = (
    *_flags(
        "compile",
        _OPEN,
        ("deepcompile", "a compiler chooses when to gather, and what stays gathered"),
        ("free_activation", "the compiler frees activations early"),
        ("offload_activation", "activations move to the host"),
        ("offload_opt_states", "optimizer state moves to the host between updates"),
        ("offload_parameters", "parameters move to the host"),
    ),
    field("compile.passes", "list", _OPEN, "passes of the compiler", None),
    *_plain("compile", "autoep_non_moe free_activation_threshold offload_activation_pin_memory double_buffer", "how the compiler works"),
    *_plain("compile", "symmetric_memory debug_log keep_int_input_tensors keep_all_input_tensors", "how the compiler works"),
    *_plain("compile", "sync_before_reduce sync_after_reduce sync_before_allgather sync_after_allgather", "how the compiler waits"),
    *_plain("compile", "enabled disable backend kwargs", "the compiler of PyTorch"),
)

_DATA = (
    *_flags("data_efficiency", _OPEN, ("enabled", "chooses which samples or tokens a step sees")),
    *_plain("data_efficiency", "seed data_sampling data_routing", "how samples and tokens are chosen"),
    *_flags("autotuning", _OPEN, ("enabled", "tries other values of these settings")),
    field("autotuning.*", _ANY, _PLAIN, "how settings are tried", None),
    *_flags("hybrid_engine", _OPEN, ("enabled", "the same weights also generate text between updates")),
    *_plain("hybrid_engine", "max_out_tokens inference_tp_size release_inference_cache pin_parameters", "how text is generated"),
    *_plain("hybrid_engine", "tp_gather_partition_size enable_cuda_graph", "how text is generated"),
    field("weight_quantization.enabled", "bool", _OPEN, "weights are kept quantised"),
    *_plain("weight_quantization", "num_bits q_type q_groups quantized_initialization post_init_quant", "how weights are quantised"),
)

_LOGS = (
    *_plain("", "steps_per_print wall_clock_breakdown memory_breakdown dump_state log_level", "logs"),
    *_plain("", "disable_python_gc dataloader_drop_last deepspeed_multinode_launcher", "how the program runs"),
    *_plain("", "_comment comment datastates_ckpt", "comments and files"),
    *_plain("checkpoint", "tag_validation load_universal use_node_local_storage checkpoint_serialization", "what is saved and loaded"),
    *_plain("checkpoint", "parallel_write writer async_io", "how it is saved"),
    *_plain(
        "flops_profiler", "enabled recompute_fwd_factor profile_step module_depth top_modules detailed output_file", "counts operations"
    ),
    *_plain("comms_logger", "enabled prof_all prof_ops verbose debug", "logs what is sent"),
    *_plain("tensorboard", "enabled output_path job_name", "logs"),
    *_plain("csv_monitor", "enabled output_path job_name", "logs"),
    *_plain("wandb", "enabled group team project", "logs"),
    *_plain("comet", "enabled samples_log_interval project workspace api_key experiment_name experiment_key online mode", "logs"),
    *_plain("timers.throughput", "enabled synchronized", "measures time"),
)

#: Every setting.
FIELDS: tuple[Field, ...] = (
    *(*_BATCH, *_OPTIMIZER, *_SENDING, *_PRECISION, *_ZERO, *_MODEL),
    *(*_COMPILE, *_DATA, *_LOGS),
    *(field(name, _ANY, _OPEN, "gone from DeepSpeed", None) for name in REMOVED),
)
