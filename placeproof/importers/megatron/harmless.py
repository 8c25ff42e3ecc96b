"""The settings of Megatron-LM that change neither what lies where nor what a step computes: logs, files, kernels, schedules, shapes."""

from __future__ import annotations

from placeproof.importers.fields import Field, field
from placeproof.importers.imported import Role

_SHAPE = "the model's shape: it is in P and A"
_START = "how parameters start: every copy starts alike"
_DATA = "which samples are read"
_WORDS = "how text becomes tokens"
_RATE = "learning rate and decay over time"
_RULE = "constants of the optimizer's update"
_LOG = "logs"
_SAVE = "checkpoint files"
_RUN = "when a run ends, and what it checks"
_KERNEL = "kernels of the same result"
_WIRE = "how and when messages go: the same messages"
_SCALE = "scaling of the loss: the same update"
_FP8 = "how scales of 8 and 4 bits are found"
_EXPERTS = "kernels and logs of expert layers"
_CHOICE = "which experts a token is sent to, and how their outputs are weighed: any choice costs as much"
_SERVE = "generation after training"
_REWARD = "sampling of training by reinforcement"
_VISION = "models of images"
_RETRIEVE = "models of retrieval"
_WATCH = "restarts and faults"

_GROUPS: tuple[tuple[str, str, str], ...] = (
    (_SHAPE, "count", """yarn_original_max_position_embeddings dsa_indexer_topk_freq ffn_hidden_size kv_channels num_query_groups
        max_position_embeddings make_vocab_size_divisible_by vocab_size relative_attention_num_buckets relative_attention_max_distance
        q_lora_rank kv_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim mamba_state_dim mamba_head_dim mamba_num_groups
        mamba_num_heads dsa_indexer_n_heads dsa_indexer_head_dim dsa_indexer_topk linear_conv_kernel_dim linear_key_head_dim
        linear_value_head_dim linear_num_key_heads linear_num_value_heads moe_ffn_hidden_size
        moe_shared_expert_intermediate_size"""),
    (_SHAPE, "bool", """yarn_correction_range_round_to_int no_yarn_correction_range_round_to_int dsa_indexer_rope_interleaved
        dsa_indexer_k_norm_fp32 no_dsa_indexer_rotate_activation disable_dsa_indexer_rotate_activation no_dsa_indexer_scoring_relu
        disable_dsa_indexer_scoring_relu group_query_attention use_rotary_position_embeddings rotary_interleaved use_rope_scaling
        no_position_embedding apply_layernorm_1p apply_residual_connection_post_layernorm openai_gelu squared_relu swiglu quick_geglu
        bert_no_binary_head untie_embeddings_and_output_weights disable_bias_linear add_qkv_bias qk_layernorm qk_l2_norm
        multi_latent_attention attention_output_gate no_pad_vocab_size disable_pad_vocab_size dsa_indexer_use_sparse_loss
        mla_down_proj_fusion use_mup"""),
    (_SHAPE, "number", """yarn_beta_fast yarn_beta_slow dsa_indexer_k_norm_epsilon rotary_base rotary_percent
        rotary_seq_len_interpolation_factor rope_scaling_factor norm_epsilon layernorm_epsilon rotary_scaling_factor mscale
        mscale_all_dim qk_clip_alpha qk_clip_threshold glu_linear_offset activation_func_clamp_value mup_width_mult mup_base_head_dim
        mup_embedding_mult mup_output_mult mup_attn_scale_power mup_base_hidden_size dsa_indexer_loss_coeff"""),
    (_SHAPE, "text", """position_embedding_type normalization rope_type softmax_type experimental_attention_variant no_rope_freq
        linear_attention_freq window_size window_attn_skip_freq"""),
    (_SHAPE, "int", "dsa_indexer_skip_topk_offset moe_shared_expert_glu_interleave_size moe_mlp_glu_interleave_size"),
    (_SHAPE, "list", "mrope_section"),
    (_START, "amount", "init_method_std embedding_init_method_std"),
    (_START, "size", "seed"),
    (_START, "bool", """init_method_xavier_uniform data_parallel_random_init use_cpu_initialization no_initialization
        init_model_with_meta_device te_rng_tracker inference_rng_tracker"""),
    (_DATA, "list", "data_path train_data_path valid_data_path test_data_path validation_set_names"),
    (_DATA, "text", """split data_args_path per_split_data_args_path per_dataset_sequences_path data_cache_path dataloader_type
        data_impl object_storage_cache_path phase_transition_iterations fim_split_sample fim_no_prefix fim_prefix_token fim_middle_token
        fim_suffix_token fim_pad_token fim_eod_token"""),
    (_DATA, "amount", "sample_rate short_seq_prob fim_rate fim_spm_rate fim_fragment_rate mid_level_dataset_surplus"),
    (_DATA, "size", "num_workers num_dataset_builder_threads retriever_seq_length"),
    (_DATA, "bool", """dataloader_inter_document_masking mock_data no_mmap_bin_files reset_position_ids reset_attention_mask
        no_create_attention_mask_in_dataloader dataloader_fast_cache_load dataloader_defer_npy_index_mmap allow_ambiguous_pad_tokens
        fim_data no_data_sharding mmap_warmup full_validation multiple_validation_sets"""),
    (_WORDS, "text", """vocab_file merge_file tokenizer_type tokenizer_model tokenizer_metadata tiktoken_pattern chat_template
        tokenizer_library sft_tokenizer_prompt_format tokenizer_prompt_format"""),
    (_WORDS, "list", "tokenizer_special_tokens tiktoken_special_tokens"),
    (_WORDS, "int", "vocab_extra_ids tiktoken_num_special_tokens null_tokenizer_eod_id null_tokenizer_pad_id"),
    (_WORDS, "bool", """tokenizer_sentencepiece_legacy tokenizer_hf_no_use_fast tokenizer_hf_no_include_special_tokens
        trust_remote_code no_tokenizer_sentencepiece_ignore_extra_whitespaces disable_tokenizer_sentencepiece_ignore_extra_whitespaces"""),
    (_RATE, "amount", """lr min_lr decoupled_lr decoupled_min_lr lr_warmup_fraction lr_warmup_init weight_decay start_weight_decay
        end_weight_decay head_lr_mult"""),
    (_RATE, "text", "lr_decay_style lr_wsd_decay_style weight_decay_incr_style no_weight_decay_cond_type"),
    (_RATE, "size", "lr_decay_iters lr_decay_samples lr_wsd_decay_iters lr_wsd_decay_samples lr_warmup_iters lr_warmup_samples"),
    (_RATE, "bool", """override_opt_param_scheduler use_checkpoint_opt_param_scheduler override_lr_scheduler
        use_checkpoint_lr_scheduler apply_wd_to_qk_layernorm"""),
    (_RULE, "fraction", "adam_beta1 adam_beta2 adam_eps lion_beta1 lion_beta2"),
    (_RULE, "text", "dump_param_to_param_group_map"),
    (_LOG, "int", """log_interval timing_log_level tensorboard_log_interval tensorboard_queue_size logging_level log_memory_interval
        log_per_layer_resource_usage_interval profile_step_start profile_step_end straggler_ctrlr_port straggler_minmax_count
        moe_routing_trace_max_training_iters flight_recorder_trace_buffer_size"""),
    (_LOG, "text", """timing_log_option tensorboard_dir wandb_project wandb_exp_name wandb_save_dir wandb_entity memory_snapshot_path
        one_logger_project one_logger_run_name one_logger_entity app_tag_run_name app_tag_run_version moe_routing_trace_path
        config_logger_dir flight_recorder_dump_path"""),
    (_LOG, "list", "profile_ranks"),
    (_LOG, "bool", """disable_flight_recorder_dump_on_timeout disable_flight_recorder_include_only_active
        disable_flight_recorder_extra_dump_on_exec log_params_norm log_num_zeros_in_grad log_throughput log_progress log_energy
        log_timers_to_tensorboard log_batch_size_to_tensorboard no_log_learnig_rate_to_tensorboard no_log_loss_scale_to_tensorboard
        disable_log_loss_scale_to_tensorboard log_validation_ppl_to_tensorboard log_memory_to_tensorboard log_world_size_to_tensorboard
        log_device_memory_used log_max_attention_logit log_straggler log_per_layer_resource_usage disable_straggler_on_startup
        no_enable_straggler_on_startup disable_enable_straggler_on_startup no_barrier_with_level_1_timing profile use_pytorch_profiler
        pytorch_profiler_collect_shapes pytorch_profiler_collect_callstack pytorch_profiler_collect_chakra record_memory_history
        record_shapes nvtx_ranges enable_one_logger no_one_logger one_logger_async run_workload_inspector_server
        moe_routing_trace_capture_logits moe_routing_trace_capture_hidden_states moe_routing_trace_dump_weights moe_per_layer_logging
        no_flight_recorder_dump_on_timeout flight_recorder_include_stack_trace no_flight_recorder_include_only_active
        no_flight_recorder_extra_dump_on_exec"""),
    (_SAVE, "text", """logits_save_dir logits_save_dtype save load pretrained_checkpoint ckpt_format ckpt_convert_format
        ckpt_convert_save non_persistent_ckpt_type non_persistent_global_ckpt_dir non_persistent_local_ckpt_dir
        non_persistent_local_ckpt_algo async_strategy dist_ckpt_format ckpt_fully_parallel_load_exchange_algo
        ckpt_fully_parallel_save_process_group ckpt_fully_parallel_load_process_group dist_ckpt_strictness"""),
    (_SAVE, "int", """override_ckpt_iteration logits_save_top_k logits_save_top_p_min_k save_interval persistent_save_interval
        save_retain_interval save_params_interval save_activations_interval save_tokens_per_expert_interval save_wgrads_interval
        save_dgrads_interval non_persistent_save_interval ckpt_step async_ckpt_cpu_priority async_ckpt_io_priority replication_jump
        replication_factor dist_ckpt_workers"""),
    (_SAVE, "number", "logits_save_top_p"),
    (_SAVE, "bool", """disable_save_optim disable_save_rng disable_load_optim disable_load_rng
        disable_ckpt_load_validate_sharding_integrity disable_strict_fsdp_dtensor_load disable_save_tokenizer_assets
        no_stream_ckpt_dequant disable_stream_ckpt_dequant no_save_optim no_save_rng no_load_optim no_load_rng finetune
        exit_on_missing_checkpoint use_dist_ckpt auto_detect_ckpt_format ckpt_fully_parallel_save no_ckpt_fully_parallel_save
        ckpt_fully_parallel_load async_save ckpt_assume_constant_structure use_persistent_ckpt_worker async_ckpt_use_cpu_shm
        load_main_params_from_ckpt no_use_tokenizer_model_from_checkpoint_args disable_use_tokenizer_model_from_checkpoint_args
        ckpt_convert_update_legacy_dist_opt_format ckpt_fully_parallel_save_replicate_local ckpt_fully_parallel_load_replicate_local
        no_ckpt_load_validate_sharding_integrity no_strict_fsdp_dtensor_load strict_fsdp_dtensor_load dist_ckpt_save_pre_mcore_014
        dist_ckpt_optim_fully_reshardable distrib_optim_fully_reshardable_mem_efficient no_save_tokenizer_assets replication
        verify_integrity enable_msc disable_msc"""),
    (_RUN, "size", """train_iters train_samples exit_interval exit_duration_in_mins eval_iters eval_interval start_eval_at_iter
        eval_global_batch_size eval_micro_batch_size train_sync_interval manual_gc_interval empty_unused_memory_level
        check_weight_hash_across_dp_replicas_interval gpu_sniff_test_interval adlr_autoresume_interval error_injection_rate"""),
    (_RUN, "list", "iterations_to_skip"),
    (_RUN, "text", "error_injection_type rerun_mode result_rejected_tracker_filename exit_signal"),
    (_RUN, "bool", """no_check_for_nan_in_loss disable_check_for_nan_in_loss exit_signal_handler exit_signal_handler_for_dataloader
        exit_signal_handler_for_training manual_gc no_manual_gc_eval disable_manual_gc_eval no_check_for_nan_in_loss_and_grad
        check_for_nan_in_loss_and_grad check_for_spiky_loss check_for_large_grads adlr_autoresume test_mode deterministic_mode"""),
    (_RUN, "number", "spiky_loss_factor"),
    (_KERNEL, "bool", """fused_residual_rmsnorm use_grouped_gemm_for_dense_mlp cpu_offloading_retain_pinned_cpu_buffers use_flash_attn
        no_masked_softmax_fusion no_bias_gelu_fusion no_bias_swiglu_fusion no_bias_dropout_fusion no_rope_fusion no_persist_layer_norm
        no_gradient_accumulation_fusion use_mcore_models use_legacy_models attention_softmax_in_fp32 apply_query_key_layer_scaling
        fp16_lm_cross_entropy cross_entropy_loss_fusion disable_jit_fuser no_clone_scatter_output_in_embedding
        disable_clone_scatter_output_in_embedding disable_bf16_reduced_precision_matmul use_te_activation_func
        use_fused_weighted_squared_relu disable_mamba_mem_eff_path enable_cuda_graph external_cuda_graph optimizer_cuda_graph
        flash_decode batch_invariant_mode use_kitchen_attention use_transformer_engine_op_fuser enable_experimental
        use_torch_optimizer_for_cpu_offload overlap_cpu_optimizer_d2h_h2d no_pin_cpu_grads no_pin_cpu_params onnx_safe
        no_query_key_layer_scaling no_contiguous_buffers_in_local_ddp use_contiguous_buffers_in_local_ddp"""),
    (_KERNEL, "text", """dsa_kernel_backend mamba_training_ssm_states_dtype attention_backend transformer_impl cuda_graph_impl
        inference_cuda_graph_scope cross_entropy_fusion_impl kitchen_attention_backend"""),
    (_KERNEL, "list", "cuda_graph_scope cuda_graph_modules"),
    (_KERNEL, "int", """flash_attention_version mlp_chunks_for_training cuda_graph_warmup_steps mlp_chunks_for_prefill
        megatron_fsdp_version"""),
    (_WIRE, "bool", """high_priority_a2a_comm_stream overlap_dispatch_backward_with_experts_wgrad overlap_grad_reduce
        overlap_param_gather overlap_param_gather_with_optimizer_step no_align_param_gather align_param_gather no_align_grad_reduce
        disable_align_grad_reduce no_delay_grad_reduce delay_grad_reduce delay_param_gather no_overlap_p2p_communication
        overlap_p2p_communication overlap_p2p_communication_warmup_flush ddp_average_in_collective ddp_pad_buckets_for_high_nccl_busbw
        no_gradient_reduce_div_fusion use_ring_exchange_p2p no_async_tensor_model_parallel_allreduce tp_comm_overlap
        tp_comm_overlap_rs_dgrad disable_tp_comm_overlap_ag disable_tp_comm_overlap_rs disable_tp_comm_bulk_dgrad
        disable_tp_comm_bulk_wgrad no_tp_comm_overlap_ag no_tp_comm_overlap_rs no_tp_comm_bulk_dgrad no_tp_comm_bulk_wgrad
        no_tp_comm_split_ag no_tp_comm_split_rs disable_tp_comm_split_ag disable_tp_comm_split_rs use_nccl_ub
        disable_symmetric_registration fsdp_manual_registration create_all_gather_group use_tp_pp_dp_mapping enable_gloo_process_groups
        disable_gloo_process_groups use_sharp lazy_mpu_init inference_fuse_tp_communication"""),
    (_WIRE, "int", """moe_flex_dispatcher_num_sms moe_hybridep_num_blocks_permute moe_hybridep_num_blocks_unpermute
        moe_hybridep_num_sms_preprocessing ddp_bucket_size ddp_num_buckets distributed_timeout_minutes
        distributed_timeout_seconds_after_init local_rank moe_deepep_num_sms moe_hybridep_num_sms"""),
    (_WIRE, "text", """distributed_backend nccl_communicator_config_path sharp_enabled_group tp_comm_overlap_cfg
        tp_comm_bootstrap_backend pipeline_model_parallel_comm_backend symmetric_ar_type"""),
    (_WIRE, "list", "high_priority_stream_groups"),
    (_SCALE, "amount", "loss_scale initial_loss_scale min_loss_scale loss_scale_window hysteresis"),
    (_FP8, "size", "fp8_margin fp8_interval fp8_amax_history_len"),
    (_FP8, "text", "fp8_amax_compute_algo"),
    (_SHAPE, "text list", "moe_layer_freq"),
    (_SHAPE, "bool", "moe_shared_expert_gate"),
    (_CHOICE, "int", "moe_router_num_groups"),
    (_CHOICE, "text", "moe_router_score_function moe_router_dtype moe_token_drop_policy"),
    (_CHOICE, "number", """moe_router_topk_scaling_factor moe_router_bias_update_rate moe_router_quantile_balancing_ema
        moe_router_force_biased"""),
    (_CHOICE, "bool", "moe_router_pre_softmax moe_router_force_load_balancing moe_apply_probs_on_input"),
    ("a further term of each token's loss: the same step", "number", "moe_z_loss_coeff"),
    (_EXPERTS, "bool", """use_grouped_gemm_for_shared_expert moe_single_grouped_weight moe_single_grouped_bias
        moe_permute_fusion_into_hybridep moe_grouped_gemm moe_use_legacy_grouped_gemm moe_permute_fusion moe_router_fusion"""),
    (_SERVE, "int", """inference_cuda_graph_max_tokens inference_batch_times_seqlen_threshold max_tokens_to_oom inference_max_requests
        inference_max_seq_length inference_max_batch_size inference_dynamic_batching_block_size inference_dynamic_batching_max_requests
        inference_dynamic_batching_max_tokens inference_dynamic_batching_num_cuda_graphs num_speculative_tokens
        inference_dynamic_batching_unified_memory_level inference_dynamic_batching_cuda_graph_mixed_prefill_count
        inference_logging_step_interval inference_coordinator_port inference_dynamic_batching_chunk_size"""),
    (_SERVE, "number", """inference_dynamic_batching_buffer_size_gb inference_dynamic_batching_paused_buffer_size_gb
        inference_dynamic_batching_mamba_memory_ratio inference_dynamic_batching_prefix_caching_routing_alpha
        inference_dynamic_batching_prefix_caching_mamba_gb inference_dynamic_batching_buffer_guaranteed_fraction
        inference_dynamic_batching_buffer_overflow_factor"""),
    (_SERVE, "text", """inference_dynamic_batching_cuda_graph_sizing_distribution inference_dynamic_batching_async_sched_mode
        inference_shards inference_dynamic_batching_logprobs_mode inference_grouped_gemm_backend inference_moe_token_dispatcher_type
        bert_embedder_type inference_dynamic_batching_prefix_caching_eviction_policy mamba_inference_conv_states_dtype
        inference_dynamic_batching_prefix_caching_coordinator_policy inference_dynamic_batching_sampling_backend
        mamba_inference_ssm_states_dtype"""),
    (_SERVE, "bool", """use_same_sampling_seed_across_dp_ranks disable_use_same_sampling_seed_across_dp_ranks
        nccl_all_reduce_for_prefill inference_disable_triton_nvls_kernels inference_moe_disable_fused_quant_kernels
        moe_pad_experts_for_cuda_graph_inference output_bert_embeddings use_legacy_static_engine inference_dynamic_batching
        decode_only_cuda_graphs inference_dynamic_batching_track_paused_request_events
        inference_dynamic_batching_track_generated_token_events inference_cuda_graph_all_prefills enable_chunked_prefill
        inference_dynamic_batching_prefix_caching inference_text_gen_server_logging inference_wandb_logging
        inference_use_synchronous_zmq_collectives inference_disable_ep_consensus cache_mla_latents"""),
    (_REWARD, "int", """rl_generation_lag rl_prompts_per_eval grpo_prompts_per_step grpo_group_size rl_num_parallel_generations
        rl_default_top_k rl_num_parallel_generation_batches rl_generation_batch_size grpo_iterations
        rl_sequence_packing_max_sequences_per_bin rl_inference_tensor_model_parallel_size rl_inference_pipeline_model_parallel_size
        rl_inference_expert_model_parallel_size rl_inference_expert_tensor_model_parallel_size rl_inference_model_unified_memory_level
        rl_parallel_generation_tasks"""),
    (_REWARD, "number", """grpo_clamp_eps_lower grpo_clamp_eps_upper grpo_kl_beta grpo_entropy_term_weight rl_default_temperature
        rl_default_top_p rl_importance_sampling_truncation_coef"""),
    (_REWARD, "text", """rl_submission_granularity rl_consumption_granularity rl_profile_dir langrl_env_config
        rl_kv_cache_management_mode rl_sequence_packing_algo refit_method"""),
    (_REWARD, "list", "rl_inference_parsers"),
    (_REWARD, "bool", """rl_profile grpo_filter_groups_with_same_reward rl_offload_optimizer_during_inference rl_persist_cuda_graphs
        rl_partial_rollouts rl_inference_logprobs_is_correction rl_training_cuda_graphs rl_offload_inference_model_weights_when_idle
        rl_verify_model_weights_swap rl_skip_bos_token"""),
    (_VISION, "int", """num_classes img_h img_w num_channels patch_dim iter_per_epoch dino_local_img_size dino_local_crops_number
        dino_head_hidden_size dino_bottleneck_size dino_warmup_teacher_temp_epochs"""),
    (_VISION, "number", """classes_fraction data_per_class_fraction mask_factor dino_freeze_last_layer dino_warmup_teacher_temp
        dino_teacher_temp"""),
    (_VISION, "text", "vision_pretraining_type vision_backbone_type swin_backbone_type mask_type"),
    (_VISION, "bool", "vision_pretraining dino_norm_last_layer"),
    (_RETRIEVE, "int", """ict_head_size biencoder_projection_dim indexer_batch_size indexer_log_interval retro_cyclic_train_iters
        retro_encoder_layers retro_num_neighbors retro_num_retrieved_chunks"""),
    (_RETRIEVE, "number", "query_in_block_prob retro_encoder_hidden_dropout retro_encoder_attention_dropout retro_attention_gate"),
    (_RETRIEVE, "text", "ict_load bert_load titles_data_path evidence_data_path block_data_path embedding_path"),
    (_RETRIEVE, "list", "retriever_report_topk_accuracies"),
    (_RETRIEVE, "bool", "biencoder_shared_query_context_model use_one_sent_docs retriever_score_scaling retro_no_verify_neighbor_count"),
    (_WATCH, "int", "inprocess_max_iterations inprocess_active_world_size ft_num_warmup_iters"),
    (_WATCH, "number", """inprocess_monitor_thread_interval inprocess_monitor_process_interval inprocess_progress_watchdog_interval
        inprocess_heartbeat_interval inprocess_soft_timeout inprocess_hard_timeout inprocess_heartbeat_timeout inprocess_barrier_timeout
        inprocess_completion_timeout inprocess_last_call_wait inprocess_termination_grace_time"""),
    (_WATCH, "text", "inprocess_granularity"),
    (_WATCH, "bool", "inprocess_restart inprocess_empty_cuda_cache enable_ft_package calc_ft_timeouts"),
)  # fmt: skip

NO_MATTER: tuple[Field, ...] = tuple(field(name, kinds, Role.NO_MATTER, note) for note, kinds, names in _GROUPS for name in names.split())
