"""How broken rules of DeepSpeed are told, and what DeepSpeed refuses beside its rules."""

from __future__ import annotations

from placeproof.importers.asked import Says

_ZERO = "zero_optimization"
_BATCH = "train_batch_size"
_BATCHES = Says(
    "{gbs} samples are not micro-batches of {mbs} on each of {dp} data-parallel devices, as many as an update has",
    "leave one of the three out: it follows from the others; DeepSpeed counts tensor-parallel devices too unless the program passes an mpu",
    (_BATCH,),
)
_HOST = (f"{_ZERO}.offload_optimizer.device", f"{_ZERO}.cpu_offload")
_HALVES = ("bf16.bf16_optimizer_states", "bfloat16.bf16_optimizer_states")

SAYS: dict[str, Says] = {
    "deepspeed-02": _BATCHES,
    "deepspeed-03": _BATCHES,
    "deepspeed-05": Says("fp16 and bf16 cannot both be enabled", "disable one of them", ("bf16.enabled", "bfloat16.enabled")),
    "deepspeed-11": Says(
        "DeepSpeed's experts at stage 3 exclude a secondary shard", "leave it at 1", (f"{_ZERO}.zero_hpz_partition_size",)
    ),
    "deepspeed-12": Says("a pipeline manages its own micro-batches", "leave it true", ("managed_gradient_accumulation",)),
    "deepspeed-14": Says(
        "DeepSpeed has not tried this optimizer with ZeRO", "set `zero_allow_untested_optimizer` to true", ("optimizer.type",)
    ),
    "deepspeed-15": Says("ZeRO stage 3 averages gradients", "take `mean`", ("gradient_allreduce_op",)),
    "deepspeed-17": Says("ZeRO stages 1 and 2 alone can leave the norm out", "leave it true", (f"{_ZERO}.compute_grad_norm",)),
    "deepspeed-18": Says("this needs ZeRO", "take stage 1, 2 or 3", _HALVES),
    "deepspeed-20": Says(
        "ZeRO stage 2 with `reduce_scatter` divides after the sum", "leave it false, or `reduce_scatter`", ("prescale_gradients",)
    ),
    "deepspeed-21": Says("the bucket must be even", "take an even size", (f"{_ZERO}.allgather_bucket_size",)),
    "deepspeed-30": Says(
        "DeepSpeed refuses a pipeline with ZeRO stage {zero}",
        "take stage 0 or 1; the rule is DeepSpeed's own, for what it would send: the step itself would be right",
        ("pipeline.stages",),
    ),
    "deepspeed-31": Says(
        "without ZeRO gradients are added up in the type of the weights, {weight_type}, and not in {grad_type}",
        "take stage 1, 2 or 3, or leave it out",
        ("data_types.grad_accum_dtype",),
    ),
    "deepspeed-35": Says("a part of the state is offloaded at stage 3 alone", "leave it at 1", (f"{_ZERO}.offload_optimizer.ratio",)),
    "deepspeed-36": Says("moments in bf16 need master weights in bf16", "set `bf16_master_weights_and_grads` to true too", _HALVES),
    "deepspeed-37": Says(
        "ZeRO stage 3 with `reduce_scatter` divides after the sum alone",
        "leave it out, or set `reduce_scatter` to false",
        ("prescale_gradients", "gradient_predivide_factor"),
    ),
    "deepspeed-38": Says(
        "ZeRO stage 2 with `reduce_scatter` divides after the sum alone",
        "leave it out, or set `reduce_scatter` to false",
        ("gradient_predivide_factor",),
    ),
    "deepspeed-39": Says(
        "master weights in 16 bits need the optimizer state on the host, and Adam",
        "add `offload_optimizer` with `device`, or leave it out",
        ("fp16.fp16_master_weights_and_grads", *(name.replace("optimizer_states", "master_weights_and_grads") for name in _HALVES)),
    ),
    "deepspeed-40": Says(
        "an optimizer for the host is built, and without ZeRO nothing lies there: its first update fails",
        "take stage 1, 2 or 3, or leave it out",
        _HOST,
    ),
}
