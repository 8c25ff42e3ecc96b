"""The settings of DeepSpeed's JSON file (0.19.8, and those of older files that real repositories still carry)."""

from __future__ import annotations

#: What a type's name stands for.
WIDTHS = {
    **dict.fromkeys(("fp16", "float16", "half", "torch.float16"), "fp16"),
    **dict.fromkeys(("bf16", "bfloat16", "torch.bfloat16"), "bf16"),
    **dict.fromkeys(("fp32", "float32", "float", "torch.float32"), "fp32"),
}

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
