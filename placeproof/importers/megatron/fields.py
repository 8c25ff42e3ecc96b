"""The settings of Megatron-LM that decide the strategy, the precision or a number, and those that no formula here covers."""

from __future__ import annotations

from placeproof.importers.fields import Field, field
from placeproof.importers.imported import Role
from placeproof.importers.megatron.harmless import NO_MATTER

_DTYPES = ("fp32", "fp16", "bf16", "fp8")
_OLD = "no version since 2020 takes it"

_READ: tuple[Field, ...] = (
    field("tensor_model_parallel_size", "count", Role.READ, "degree of tensor parallelism", default=1),
    field("pipeline_model_parallel_size", "count", Role.READ, "stages of the pipeline", default=1),
    field("sequence_parallel", "bool", Role.READ, "activations outside the blocks are split over the tensor-parallel axis", default=False),
    field("micro_batch_size", "count", Role.READ, "samples of a device in one pass: b"),
    field("global_batch_size", "count", Role.READ, "samples of all devices in one step: gives m"),
    field("num_layers", "count", Role.READ, "layers: L"),
    field("hidden_size", "count", Role.READ, "hidden size: h"),
    field("num_attention_heads", "count", Role.READ, "attention heads: a"),
    field("seq_length", "count", Role.READ, "tokens of a sample: s"),
    field("num_experts", "count", Role.READ, "experts of a layer: E"),
    field("moe_router_topk", "count", Role.READ, "experts that a token is sent to: k", default=2),
    field("expert_tensor_parallel_size", "count", Role.READ, "devices that an expert is split over"),
    field("expert_model_parallel_size", "count", Role.READ, "devices that share the experts", default=1),
    field("padded_vocab_size", "count", Role.READ, "vocabulary, padding counted: V"),
    field("use_distributed_optimizer", "bool", Role.READ, "optimizer state is sharded over the data-parallel axis", default=False),
    field("use_megatron_fsdp", "bool", Role.READ, "sharding as `data_parallel_sharding_strategy` says", default=False),
    field("use_custom_fsdp", "bool", Role.READ, "the older name of `use_megatron_fsdp`", default=False),
    field("use_torch_fsdp2", "bool", Role.READ, "PyTorch's fully sharded data parallelism", default=False),
    field(
        "data_parallel_sharding_strategy", "", Role.READ, "what Megatron's own FSDP shards",
        "no_shard", "optim", "optim_grads", "optim_grads_params",
    ),
    field("torch_fsdp2_no_reshard_after_forward", "bool", Role.READ, "gathered parameters are kept for backward", default=False),
    field("recompute_granularity", "", Role.READ, "each layer keeps its input alone", "full", "selective"),
    field("recompute_method", "", Role.READ, "which layers are recomputed", "uniform", "block"),
    field("recompute_num_layers", "size", Role.READ, "layers between two inputs that are kept"),
    field("distribute_saved_activations", "bool", Role.READ, "the kept inputs are split over tensor parallelism", default=False),
    field("checkpoint_activations", "bool", Role.READ, "full recomputation, as versions before 2022 wrote it", default=False),
    field("activations_checkpoint_method", "", Role.READ, "full recomputation, as versions before 2022 wrote it", "uniform", "block"),
    field("activations_checkpoint_num_layers", "count", Role.READ, "layers between two inputs that are kept", default=1),
    field("checkpoint_num_layers", "count", Role.READ, "layers between two inputs that are kept", default=1),
    field("distribute_checkpointed_activations", "bool", Role.READ, "the kept inputs are split over tensor parallelism", default=False),
    field("bf16", "bool", Role.READ, "weights in bf16", default=False),
    field("fp16", "bool", Role.READ, "weights in fp16", default=False),
    field("accumulate_allreduce_grads_in_fp32", "bool", Role.READ, "gradients are summed in fp32", default=False),
    field("grad_reduce_in_bf16", "bool", Role.READ, "gradients are summed in bf16", default=False),
    field("use_precision_aware_optimizer", "bool", Role.READ, "the master copy is kept as a remainder to the weights", default=False),
    field("main_grads_dtype", "", Role.READ, "width of the gradients", "fp32", "bf16", default="fp32"),
    field("main_params_dtype", "", Role.READ, "width of the master copy", "fp32", "fp16", default="fp32"),
    field("exp_avg_dtype", "", Role.READ, "width of the momentum", *_DTYPES, default="fp32"),
    field("exp_avg_sq_dtype", "", Role.READ, "width of the variance", *_DTYPES, default="fp32"),
    field("megatron_fsdp_main_params_dtype", "", Role.READ, "width of the master copy", "fp32", "fp16", "bf16", "auto", default="fp32"),
    field("megatron_fsdp_main_grads_dtype", "", Role.READ, "width of the gradients", "fp32", "fp16", "bf16", "auto", default="auto"),
    field("megatron_fsdp_grad_comm_dtype", "", Role.READ, "width of gradients on the wire", "fp32", "fp16", "bf16", "auto", default="auto"),
    field(
        "optimizer", "", Role.READ, "the state per parameter",
        "adam", "sgd", "lion", "muon", "dist_muon", "adaptive_muon", "soap", default="adam",
    ),
    field("sgd_momentum", "fraction", Role.READ, "whether SGD keeps a momentum", default=0.9),
    field("eod_mask_loss", "bool", Role.READ, "ends of documents do not count: devices have unequal token counts", default=False),
    field("mask_prob", "fraction", Role.READ, "tokens are masked at random: devices have unequal token counts"),
    field("DDP_impl", "", Role.READ, "data parallelism of versions before 2023", "local", "torch"),
    field("batch_size", "count", Role.READ, _OLD),
    field("model_parallel_size", "count", Role.READ, _OLD),
    field("warmup", "number", Role.READ, _OLD),
)  # fmt: skip

_INTERLEAVED = "interleaved stages: more messages, and other memory"
_UNEVEN = "stages of unequal size: the formulas count equal ones"
_EXPERTS = "of the weights and messages of experts no formula says this"
_FEWER = "a token's experts lie on few devices: less is sent than the formulas count"
_BALANCE = "the router or a further term of the loss evens out what experts get"
_BIAS = "a bias of the router follows what experts got: one more all-reduce, of counts"
_WAY = "how tokens reach experts: the formulas send each to its experts"
_PADDED = "what experts get is padded: more than the formulas count"
_CONTEXT = "sequences split over devices are not covered"
_ENCODER = "an encoder and a decoder: the formulas know one stack"
_HYBRID = "layers of other kinds than attention and MLP"
_FP8 = "matrix products in 8 or 4 bits: other widths of weights and activations"
_OFFLOAD = "what lies on the host is not covered"
_MUON = "Muon's update of whole matrices"
_LATER = "weight gradients are put off: inputs are held longer"
_FSDP = "buffers of Megatron's own FSDP"
_TEACHER = "a teacher's outputs are part of the loss"
_ELSEWHERE = "takes further settings from another file"

#: Settings of one kind and one note: kinds, note, names.
_NOT_MODELLED: tuple[tuple[str, str, str], ...] = (
    ("count", _INTERLEAVED, "num_layers_per_virtual_pipeline_stage num_virtual_stages_per_pipeline_rank"),
    ("count", _INTERLEAVED, "microbatch_group_size_per_virtual_pipeline_stage"),
    ("text", _UNEVEN, "pipeline_model_parallel_layout"),
    ("count", _UNEVEN, "decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers"),
    ("bool", _UNEVEN, "account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split standalone_embedding_stage"),
    ("size", _ENCODER, "pipeline_model_parallel_split_rank encoder_tensor_model_parallel_size encoder_pipeline_model_parallel_size"),
    ("count", _ENCODER, "encoder_num_layers decoder_num_layers encoder_seq_length decoder_seq_length"),
    ("bool", "whole activations are sent between stages", "no_scatter_gather_tensors_in_pipeline"),
    ("bool", _LATER, "defer_embedding_wgrad_compute delay_wgrad_compute"),
    ("list", "the batch grows: m is that of the full batch", "rampup_batch_size"),
    ("text list", "the batch grows: m stays open", "step_batch_size_schedule"),
    ("bool", "the batch is made smaller where it does not divide", "decrease_batch_size_if_needed"),
    ("list", _CONTEXT, "cp_comm_type hierarchical_context_parallel_sizes"),
    ("bool", _CONTEXT, "hybrid_context_parallel dynamic_context_parallel"),
    ("count", _CONTEXT, "max_seqlen_per_dp_cp_rank min_hybrid_context_parallel_size"),
    ("count", _EXPERTS, "moe_latent_size"),
    ("count", _FEWER, "moe_router_group_topk moe_router_topk_limited_devices"),
    ("text list", _BALANCE, "moe_router_load_balancing_type moe_aux_loss_coeff"),
    ("bool", _BIAS, "moe_router_enable_expert_bias"),
    ("amount", "random factors at the router: no device draws what one device would", "moe_input_jitter_eps"),
    (
        "number",
        "an expert takes at most this many times an even share, and drops the rest: the symbol c of a model",
        "moe_expert_capacity_factor",
    ),
    (
        "number",
        "a device takes at most this many times an even share, and drops the rest: the symbol c of a model",
        "moe_expert_rank_capacity_factor",
    ),
    ("bool", "experts get as many tokens as they may take: c, of a model, is exact", "moe_pad_expert_input_to_capacity"),
    ("text", _WAY, "moe_token_dispatcher_type moe_flex_dispatcher_backend"),
    ("bool", _WAY, "moe_enable_deepep"),
    ("bool", _PADDED, "moe_hybridep_pad_uneven_dispatch_inputs moe_ncclep_static_shape moe_ncclep_zero_copy"),
    ("bool", _PADDED, "moe_router_padding_for_quantization moe_router_padding_for_fp8"),
    ("bool", "a layer's experts are recomputed: less memory, more work", "moe_layer_recompute"),
    ("bool", "an older form: experts are split over tensor parallelism and over devices that share them", "moe_extended_tp"),
    ("bool", "experts start as copies of a dense layer, whose file has another shape", "moe_use_upcycling"),
    ("count", "experts start as copies of a dense layer, whose file has another shape", "moe_upcycling_granularity"),
    ("bool", "the choices of experts are kept and taken again", "moe_enable_routing_replay"),
    ("list", "parts of a layer are recomputed: less memory, more work", "recompute_modules"),
    ("bool", "a part of attention is recomputed: less memory, more work", "recompute_activations"),
    ("text", _FP8, "fp8_format fp4_format fp8_recipe fp4_recipe fp8_quantizer_factory fp4_quantizer_factory kitchen_config_file"),
    ("text", _FP8, "te_precision_config_file"),
    ("int", _FP8, "kitchen_recipe_number num_layers_at_start_in_bf16 num_layers_at_end_in_bf16"),
    ("bool", _FP8, "fp8_e4m3 fp8_hybrid fp8_param_gather fp4_param_gather first_last_layers_bf16 keep_fp8_transpose_cache"),
    ("bool", _FP8, "no_fp8_wgrad disable_fp8_wgrad fp8_output_proj"),
    ("bool", "one buffer serves gradients and gathered parameters", "reuse_grad_buf_for_mxfp8_param_ag"),
    ("bool", _OFFLOAD, "optimizer_cpu_offload fine_grained_activation_offloading"),
    ("fraction", _OFFLOAD, "optimizer_offload_fraction activation_offload_fraction"),
    ("amount", _OFFLOAD, "moe_paged_stash_buffer_size_factor_cuda"),
    ("amount", _OFFLOAD, "moe_paged_stash_buffer_size_factor_cpu"),
    ("bool", _OFFLOAD, "moe_paged_stash delay_offload_until_cuda_graph"),
    ("size", _OFFLOAD, "cpu_offloading_num_layers min_offloaded_tensor_size delta_offload_bytes_across_pp_ranks moe_paged_stash_page_size"),
    ("size", _OFFLOAD, "fine_grained_offloading_max_inflight_offloads"),
    ("list", _OFFLOAD, "offload_modules"),
    ("bool", "the loss is divided by the tokens of all devices, which are counted by an all-reduce", "calculate_per_token_loss"),
    ("amount", "gradients are scaled by the norm of all: one scalar more is all-reduced", "clip_grad"),
    ("fraction", "random masks: no device draws what one device would", "attention_dropout hidden_dropout"),
    ("bool", "sums in fp32 with an all-to-all in place of a reduce-scatter", "ddp_reduce_scatter_with_fp32_accumulation"),
    ("list", "some gradients are held in fp32 beside the buffer", "ddp_param_name_patterns_for_fp32_local_accumulation"),
    ("bool", _FSDP, "fsdp_double_buffer megatron_fsdp_enable_fine_grained_param_gather"),
    ("bool", _FSDP, "megatron_fsdp_max_pool_double_buffer fsdp_db_use_persist_buf_on_alloc_fail"),
    ("count", _FSDP, "suggested_communication_unit_size"),
    ("bool", "the optimizer state is sharded between the copies too", "enable_full_sharding_in_hsdp"),
    ("number", _MUON, "muon_momentum muon_extra_scale_factor"),
    ("text", _MUON, "muon_scale_mode muon_fp32_matmul_prec muon_coefficient_type muon_tp_mode muon_scalar_optimizer"),
    ("count", _MUON, "muon_num_ns_steps"),
    ("bool", _MUON, "muon_no_split_qkv muon_nesterov no_use_layer_wise_param_layout"),
    ("list", "another model, or other layers", "spec"),
    ("text", _HYBRID, "hybrid_layer_pattern hybrid_override_pattern mtp_hybrid_override_pattern"),
    ("fraction", _HYBRID, "hybrid_attention_ratio hybrid_mlp_ratio"),
    ("bool", _HYBRID, "is_hybrid_model enable_mhc_connections enable_hyper_connections"),
    ("text", "layers that differ from each other", "heterogeneous_layers_config_path heterogeneous_layers_config_encoded_json"),
    ("size", "further tokens are predicted by layers of their own", "mtp_num_layers"),
    ("amount", "further tokens are predicted by layers of their own", "mtp_loss_scaling_factor"),
    ("bool", "further tokens are predicted by layers of their own", "mtp_standalone mtp_use_repeated_layer mtp_detach_heads"),
    ("bool", "weights are scaled by the largest attention logit of all devices", "qk_clip"),
    ("bool", "the residual stream is held in fp32", "fp32_residual_connection"),
    ("bool", "training by reinforcement: samples come from the model", "perform_rl_step"),
    ("bool", "samples are packed: devices have unequal token counts", "sft rl_use_sequence_packing"),
    ("bool", "a retriever's layers are added", "retro_add_retriever"),
    ("bool", "no message is sent at all", "fake_process_group"),
    ("text", _ELSEWHERE, "yaml_cfg retro_project_dir"),
    ("bool", _ELSEWHERE, "use_checkpoint_args use_mp_args_from_checkpoint_args"),
    ("bool", "expert messages run beside computation: other memory", "overlap_moe_expert_parallel_comm"),
    ("bool", "expert messages run beside computation: other memory", "ep_overlap_early_attn_memory_release moe_shared_expert_overlap"),
    ("bool", "the step is not taken", "skip_train"),
    ("bool", "nothing is trained", "freeze_all_layers"),
    ("text", _TEACHER, "logits_load_dir"),
    ("number", _TEACHER, "logits_load_kd_loss_alpha"),
    ("int", _TEACHER, "logits_load_decode_threads logits_load_prefetch_factor logits_load_msc_prefetch_depth"),
    ("bool", _TEACHER, "logits_load_ignore_errors"),
)

_WITH_DEFAULTS: tuple[Field, ...] = (
    field(
        "context_parallel_size", "count", Role.NOT_MODELLED,
        "sequences split over devices: dp is divided by it, and what dp shards is sharded over it too", default=1,
    ),
    field(
        "generalized_tensor_parallel_remat_size", "count", Role.NOT_MODELLED,
        "weights split over devices and gathered when used: dp is divided by it", default=1,
    ),
    field(
        "tensor_parallel_num_weight_shards", "count", Role.NOT_MODELLED,
        "weights split further than tensor parallelism, and gathered when used: dp is divided by what is over",
    ),
    field("expert_tensor_parallel_num_weight_shards", "count", Role.NOT_MODELLED, _EXPERTS),
    field("expert_generalized_tensor_parallel_remat_size", "count", Role.NOT_MODELLED, _EXPERTS, default=1),
    field(
        "num_distributed_optimizer_instances", "count", Role.NOT_MODELLED,
        "copies of the sharded optimizer state: each device holds that many times more of it", default=1,
    ),
    field(
        "outer_dp_sharding_strategy", "", Role.NOT_MODELLED, "the optimizer state is sharded between the copies too",
        "no_shard", "optim", default="no_shard",
    ),
    field("wgrad_deferral_limit", "size", Role.NOT_MODELLED, _LATER, default=0),
)  # fmt: skip

FIELDS: tuple[Field, ...] = (
    *_READ,
    *_WITH_DEFAULTS,
    *(field(name, kinds, Role.NOT_MODELLED, note) for kinds, note, names in _NOT_MODELLED for name in names.split()),
    *NO_MATTER,
)
