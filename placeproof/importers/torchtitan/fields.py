"""The settings of torchtitan's TOML files, with what each is to us.

Names and defaults: pytorch/torchtitan, torchtitan/config/job_config.py of 2025 and January 2026, and what stood in config_manager.py
before it; the last files before the settings moved into Python.
"""

from __future__ import annotations

from placeproof.importers.fields import Field, field
from placeproof.importers.imported import Role

READ, OPEN, PLAIN = Role.READ, Role.NOT_MODELLED, Role.NO_MATTER

#: Where older files say a setting. Both at once is a contradiction.
OLD_NAMES: dict[str, tuple[str, ...]] = {
    "training.local_batch_size": ("training.batch_size",),
    "parallelism.data_parallel_replicate_degree": ("training.data_parallel_replicate_degree",),
    "parallelism.data_parallel_shard_degree": ("training.data_parallel_shard_degree",),
    "parallelism.tensor_parallel_degree": ("training.tensor_parallel_degree",),
    "parallelism.pipeline_parallel_degree": ("experimental.pipeline_parallel_degree",),
    "parallelism.pipeline_parallel_schedule": ("experimental.pipeline_parallel_schedule",),
    "parallelism.pipeline_parallel_schedule_csv": ("experimental.pipeline_parallel_schedule_csv",),
    "parallelism.pipeline_parallel_split_points": ("experimental.pipeline_parallel_split_points",),
    "parallelism.pipeline_parallel_microbatches": ("experimental.pipeline_parallel_microbatches",),
    "parallelism.context_parallel_degree": ("experimental.context_parallel_degree",),
    "parallelism.context_parallel_rotate_method": ("experimental.context_parallel_rotate_method",),
    "parallelism.enable_async_tensor_parallel": ("experimental.enable_async_tensor_parallel",),
    "compile.enable": ("training.compile",),
}

_CONTEXT = "the sequence is split over these devices: the axis cp"
_EXPERTS = "devices with samples of their own that share the experts"
_STAGES = "which layers a stage has: the formulas take equal stages"
_EIGHT_BITS = "linear layers compute in 8 bits: precision is left open"
_FAULTS = "groups of replicas come and go during the run"
_LOCAL = "replicas exchange only once in a while: another step"
_ENCODERS = "a frozen encoder that runs before the model"
_LOADER = "how data is loaded"
_VALIDATION = "what is measured between steps"
_RATE = "a learning rate's course"


def _many(table: str, role: Role, note: str, *settings: str) -> list[Field]:
    """Rows with one note, each written ``name kinds``."""
    rows = []
    for setting in settings:
        name, _, kinds = setting.partition(" ")
        rows.append(field(f"{table}.{name}", kinds, role, note))
    return rows


def _degrees(table: str) -> list[Field]:
    shard = "copies of which each device keeps a part; -1: all devices that are left"
    return [
        field(f"{table}.data_parallel_replicate_degree", "count", READ, "whole copies of the model's shards", default=1),
        field(f"{table}.data_parallel_shard_degree", "count", READ, shard, -1, default=-1),
        field(f"{table}.tensor_parallel_degree", "count", READ, "matrices split, norms split by the sequence", default=1),
    ]


def _pipeline(table: str) -> list[Field]:
    return [
        field(f"{table}.pipeline_parallel_degree", "count", READ, "pipeline stages", default=1),
        field(f"{table}.pipeline_parallel_schedule", "text", READ, "the order of micro-batches", default="1F1B"),
        field(f"{table}.pipeline_parallel_schedule_csv", "text", OPEN, "a schedule from a file", default=""),
        field(f"{table}.pipeline_parallel_split_points", "list", OPEN, _STAGES, default=[]),
        field(f"{table}.pipeline_parallel_microbatches", "count", READ, "parts that a device's batch is cut into"),
        field(f"{table}.context_parallel_degree", "count", READ, _CONTEXT, default=1),
        field(f"{table}.context_parallel_rotate_method", "", READ, "how keys and values reach other devices", "allgather", "alltoall"),
        field(f"{table}.enable_async_tensor_parallel", "bool", PLAIN, "the same bytes, sent while matrices multiply"),
        field(f"{table}.enable_compiled_autograd", "bool", PLAIN, "compiles the backward pass, same result"),
    ]


def _float8(table: str) -> list[Field]:
    return [
        field(f"{table}.enable_fsdp_float8_all_gather", "bool", OPEN, "weights are gathered in 1 byte each", default=False),
        field(f"{table}.precompute_float8_dynamic_scale_for_fsdp", "bool", OPEN, "one all-reduce of all scales", default=False),
        field(f"{table}.force_recompute_fp8_weight_in_bwd", "bool", OPEN, "8-bit weights are made again in backward", default=False),
        field(f"{table}.recipe_name", "text", OPEN, _EIGHT_BITS),
        field(f"{table}.filter_fqns", "list", OPEN, "layers that stay in 16 bits"),
        field(f"{table}.emulate", "bool", PLAIN, "8 bits without the hardware for it"),
    ]


def _mx(table: str) -> list[Field]:
    return [
        field(f"{table}.mxfp8_dim1_cast_kernel_choice", "text", PLAIN, "a kernel"),
        field(f"{table}.use_fp8_dim1_cast_triton_kernel", "bool", PLAIN, "a kernel"),
        field(f"{table}.recipe_name", "text", OPEN, _EIGHT_BITS),
        field(f"{table}.filter_fqns", "list", OPEN, "layers that stay in 16 bits"),
    ]


def _grouped(table: str) -> list[Field]:
    return [
        field(f"{table}.fqns", "list", OPEN, "experts that compute in 8 bits"),
        field(f"{table}.recipe_name", "text", OPEN, _EIGHT_BITS),
    ]


_PARALLELISM = [
    *_degrees("parallelism"),
    *_pipeline("parallelism"),
    field(
        "parallelism.fsdp_reshard_after_forward", "", READ, "whether gathered parameters are dropped", "default", "always", "never",
        default="default",
    ),
    field("parallelism.disable_loss_parallel", "bool", OPEN, "each device gathers the logits whole", default=False),
    field("parallelism.module_fqns_per_model_part", "list", OPEN, _STAGES),
    field("parallelism.pipeline_parallel_layers_per_stage", "count", OPEN, _STAGES),
    field("parallelism.pipeline_parallel_first_stage_less_layers", "size", OPEN, _STAGES, default=1),
    field("parallelism.pipeline_parallel_last_stage_less_layers", "size", OPEN, _STAGES, default=1),
    field("parallelism.pipeline_parallel_microbatch_size", "count", READ, "samples of a micro-batch", default=1),
    field("parallelism.pipeline_parallel_expert_parallel_overlap", "bool", PLAIN, "the same bytes, sent while others compute"),
    field("parallelism.context_parallel_load_balancer", "text", OPEN, "which parts of a sequence a device gets"),
    field("parallelism.expert_parallel_degree", "count", READ, _EXPERTS, default=1),
    field("parallelism.expert_tensor_parallel_degree", "count", READ, "devices that an expert is split over", default=1),
    field("parallelism.expert_parallel_comm_backend", "", OPEN, "what sends tokens to experts", "standard", "deepep", default="standard"),
]  # fmt: skip

_TRAINING = [
    *_degrees("training"),
    field("training.local_batch_size", "count", READ, "samples of a device", default=8),
    field("training.batch_size", "count", READ, "samples of a device"),
    field("training.global_batch_size", "count", READ, "samples of a step; -1: one pass on each device", -1, default=-1),
    field("training.seq_len", "count", READ, "tokens of a sample", default=2048),
    field("training.max_norm", "amount", READ, "clips by the norm of the whole gradient: one more all-reduce", default=1.0),
    field("training.enable_cpu_offload", "bool", OPEN, "FSDP keeps its shards in host memory", default=False),
    field("training.dtype", "", READ, "what weights, gradients and optimizer state are kept in", "bfloat16", "float32", default="float32"),
    field(
        "training.mixed_precision_param", "", READ, "what weights are gathered and used in", "bfloat16", "float32", default="bfloat16"
    ),
    field("training.mixed_precision_reduce", "", READ, "what gradients are reduced in", "float32", default="float32"),
    *_many("training", PLAIN, "data", "dataset text", "dataset_path text", "classifer_free_guidance_prob number",
           "classifier_free_guidance_prob number", "img_size count", "test_mode bool"),
    *_many("training.dataloader", PLAIN, _LOADER, "num_workers size", "persistent_workers bool", "pin_memory bool", "prefetch_factor size"),
    *_many("training", PLAIN, "a run's length", "steps count"),
    *_many("training", PLAIN, _RATE, "warmup_steps size"),
    *_many("training", PLAIN, "when Python collects garbage", "gc_freq count", "gc_debug bool"),
    *_many("training", PLAIN, "the random seed, or kernels with a fixed order", "seed int", "deterministic bool"),
    field("training.compile", "bool", PLAIN, "compiled kernels, same result"),
]  # fmt: skip

_CHECKPOINTING = [
    field(
        "activation_checkpoint.mode", "", READ, "which activations are computed again", "selective", "full", "memory_budget", "none",
        default="selective",
    ),
    field("activation_checkpoint.selective_ac_option", "text count", OPEN, "each n-th layer, or the operations that are kept"),
    field("activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", "list", OPEN, "products that are computed again"),
    field("activation_checkpoint.memory_budget", "fraction", OPEN, "how much the compiler keeps"),
    *_many("activation_checkpoint", PLAIN, "the same values, kept or drawn again", "early_stop bool", "preserve_rng_state bool",
           "determinism_check text", "debug bool", "visualize_memory_budget_pareto bool"),
]  # fmt: skip

_OPTIMIZER = [
    field("optimizer.name", "text", READ, "the update's rule", default="AdamW"),
    field("optimizer.early_step_in_backward", "bool", OPEN, "updates during backward: gradients do not live together", default=False),
    *_many("optimizer", PLAIN, "the update's numbers", "lr amount", "beta1 fraction", "beta2 fraction", "eps amount",
           "weight_decay amount"),
    field("optimizer.implementation", "", PLAIN, "the update's kernel", "for-loop", "foreach", "fused"),
    *_many("optimizer", PLAIN, "the update's kernel", "fused bool"),
    field("lr_scheduler.decay_type", "", PLAIN, _RATE, "linear", "sqrt", "cosine"),
    *_many("lr_scheduler", PLAIN, _RATE, "warmup_steps size", "total_steps size", "decay_ratio fraction",
           "lr_min amount", "min_lr_factor amount"),
]  # fmt: skip

_EIGHT = [
    field("model.converters", "list", OPEN, _EIGHT_BITS, default=[]),
    *_float8("float8"),
    field("float8.enable_float8_linear", "bool", OPEN, _EIGHT_BITS, default=False),
    field("float8.scaling_type_input", "text", OPEN, _EIGHT_BITS),
    field("float8.scaling_type_weight", "text", OPEN, _EIGHT_BITS),
    field("float8.scaling_type_grad_output", "text", OPEN, _EIGHT_BITS),
    field("float8.moe_fqns", "list", OPEN, "experts that compute in 8 bits"),
    field("float8.moe_fqns_prototype", "list", OPEN, "experts that compute in 8 bits"),
    *_mx("mx"),
    field("mx.moe_fqns_prototype", "list", OPEN, "experts that compute in 8 bits"),
    *_float8("quantize.linear.float8"),
    *_float8("quantize.linear.fp8"),
    *_float8("quantize.dense.float8"),
    *_mx("quantize.linear.mx"),
    *_mx("quantize.dense.mx"),
    *(f for table in ("grouped_mm", "moe") for kind in ("float8", "fp8", "mx") for f in _grouped(f"quantize.{table}.{kind}")),
]

_FAULT_TOLERANCE = [
    field("fault_tolerance.enable", "bool", OPEN, _FAULTS, default=False),
    field("fault_tolerance.semi_sync_method", "text", OPEN, _LOCAL),
    *_many("fault_tolerance", OPEN, _FAULTS, "group_size size", "min_replica_size count"),
    *_many("fault_tolerance", OPEN, _LOCAL, "sync_steps count", "should_quantize bool", "fragment_sync_delay size",
           "fragment_update_alpha fraction", "num_fragments count", "module_fqns_per_model_fragment list"),
    *_many("fault_tolerance", PLAIN, "who talks to whom when a replica fails", "process_group text", "process_group_timeout_ms size",
           "replica_id size"),
]  # fmt: skip

_SAVING = [
    field("checkpoint.export_dtype", "", PLAIN, "what is saved and loaded", "float16", "bfloat16", "float32"),
    field("checkpoint.async_mode", "", PLAIN, "what is saved and loaded", "disabled", "async", "async_with_pinned_mem"),
    *_many("checkpoint", PLAIN, "what is saved and loaded", "enable bool", "enable_checkpoint bool", "folder text", "interval count",
           "interval_type text", "initial_load_path text", "initial_load_model_only bool", "initial_load_model_weights_only bool",
           "initial_load_in_hf bool", "initial_load_in_hf_quantized bool", "initial_load_dequantize bool", "last_save_model_only bool",
           "last_save_model_weights_only bool", "last_save_in_hf bool", "model_weights_only bool",
           "keep_latest_k size", "load_step int", "exclude_from_loading list", "enable_first_step_checkpoint bool",
           "create_seed_checkpoint bool", "load_only bool", "enable_ft_dataloader_checkpoints bool"),
]  # fmt: skip

_REST = [
    *_many("job", PLAIN, "names and files of the run", "config_file text", "dump_folder text", "description text", "print_args bool",
           "print_config bool", "save_config_file text", "use_for_integration_test bool", "custom_config_module text"),
    *_many("profiling", PLAIN, "traces", "enable_profiling bool", "save_traces_folder text", "profile_freq count", "profiler_active int",
           "profiler_warmup int", "enable_memory_snapshot bool", "save_memory_snapshot_folder text"),
    *_many("metrics", PLAIN, "logs", "log_freq count", "enable_tensorboard bool", "disable_color_printing bool",
           "enable_color_printing bool", "save_tb_folder text", "save_for_all_ranks bool", "rank_0_only bool", "enable_wandb bool"),
    *_many("model", PLAIN, "names the model; its sizes stand in torchtitan's code", "name text", "flavor text", "norm_type text"),
    *_many("model", PLAIN, "files of the model", "hf_assets_path text", "tokenizer_path text", "print_after_conversion bool"),
    *_many("hf_transformers", PLAIN, "names the model", "model text"),
    *_many("compile", PLAIN, "compiled kernels, same result", "enable bool", "components list", "backend text", "fullgraph bool"),
    *_many("compile", OPEN, "collectives are merged or moved by the compiler", "graph_passes text", "model_backend_override text"),
    *_many("comm", PLAIN, "time limits and traces", "init_timeout_seconds size", "train_timeout_seconds size", "trace_buf_size size",
           "save_traces_folder text", "save_traces_file_prefix text"),
    field("comm.mode", "", PLAIN, "how a run without devices stands in for one", "default", "fake_backend", "local_tensor"),
    *_many("memory_estimation", PLAIN, "an estimate before the run", "enable bool", "enabled bool", "disable_fake_mode bool"),
    *_many("experimental", PLAIN, "code of the user's own", "custom_import text", "custom_args_module text", "custom_model_path text"),
    *_many("validation", PLAIN, _VALIDATION, "enable bool", "enabled bool", "dataset text", "dataset_path text", "local_batch_size count",
           "seq_len count", "freq count", "steps int", "enable_classifier_free_guidance bool", "classifier_free_guidance_scale number",
           "denoising_steps int", "eval_freq int", "save_img_count int", "save_img_folder text", "all_timesteps bool"),
    *_many("validation.dataloader", PLAIN, _LOADER, "num_workers size", "persistent_workers bool", "pin_memory bool",
           "prefetch_factor size"),
    *_many("debug", PLAIN, "the random seed, or kernels with a fixed order", "seed int", "deterministic bool",
           "deterministic_warn_only bool"),
    field("debug.moe_force_load_balance", "bool", OPEN, "experts get tokens in turn, whatever the router says", default=False),
    *_many("encoder", OPEN, _ENCODERS, "t5_encoder text", "clip_encoder text", "autoencoder_path text", "auto_encoder_path text",
           "max_t5_encoding_len int"),
    *_many("encoder", PLAIN, "numbers of the frozen encoders", "autoencoder_shift number", "autoencoder_scale number",
           "context_in_dim int", "empty_encodings_path text"),
    *_many("eval", PLAIN, _VALIDATION, "enable_classifer_free_guidance bool", "classifer_free_guidance_scale number",
           "enable_classifier_free_guidance bool", "classifier_free_guidance_scale number", "denoising_steps int",
           "save_img_folder text", "eval_freq int", "dataset text", "dataset_path text", "batch_size count"),
    *_many("inference", PLAIN, "no part of training", "save_path text", "save_img_folder text", "prompts_path text", "batch_size count",
           "local_batch_size count", "img_size int", "sampling_steps int"),
]  # fmt: skip

FIELDS: tuple[Field, ...] = (
    *_PARALLELISM, *_pipeline("experimental"), *_TRAINING, *_CHECKPOINTING, *_OPTIMIZER, *_EIGHT, *_FAULT_TOLERANCE, *_SAVING, *_REST
)  # fmt: skip
