"""What Megatron-LM refuses beside its rules: settings that exclude each other, and stages that cannot be cut."""

from __future__ import annotations

from dataclasses import dataclass

from placeproof.importers.asked import Known
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
    #: By how much weights are split beyond tensor parallelism, and gathered when they are used.
    gtp: int = 1

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
    if reader.get("recompute_method") == "block" and reader.get("recompute_num_layers") == 0:
        return False
    return said == "full" or (said is None and (flag(reader, "checkpoint_activations") or reader.said("activations_checkpoint_method")))


def check(reader: Reader, sizes: Sizes, facts: Known) -> None:
    """What Megatron would refuse that no rule of it says."""
    for one in (_check_old, _check_model, _check_pipeline, _check_data, _check_fsdp, _check_memory, _check_run):
        one(reader, sizes)
    if not facts.breaks("megatron-07"):
        _check_experts(reader, sizes)


def _check_old(reader: Reader, sizes: Sizes) -> None:
    for old, new in (
        ("batch_size", "micro-batch-size"),
        ("model_parallel_size", "tensor-model-parallel-size"),
        ("warmup", "lr-warmup-fraction"),
    ):
        _deny(reader, reader.said(old), old, f"`{old}` is no longer taken", f"write `--{new}`")


def _check_model(reader: Reader, sizes: Sizes) -> None:
    """Groups and widths."""
    heads, groups = reader.get("num_attention_heads"), reader.get("num_query_groups") or 1
    if flag(reader, "group_query_attention"):
        name = first(reader, "num_query_groups", "group_query_attention")
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
    _check_stages(reader, sizes)
    ways = ("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank", "pipeline_model_parallel_layout")
    alone = sizes.interleaved and sizes.pp == 2 and flag(reader, "no_overlap_p2p_communication")
    message = "interleaving over 2 stages needs overlapped messages: the same two devices send both ways"
    _deny(reader, alone, first(reader, *ways), message, "drop `no_overlap_p2p_communication`, or take 3 stages or more")


def _own_stages(reader: Reader) -> bool:
    """Whether the stages are said layer by layer."""
    return any(reader.said(n) for n in ("pipeline_model_parallel_layout", "hybrid_layer_pattern", "hybrid_override_pattern"))


def _dealt(reader: Reader, sizes: Sizes) -> tuple[int, int]:
    """Layers that are dealt out evenly, and the stages that get them."""
    ends = [reader.get(n) for n in ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers") if reader.said(n)]
    extra = sum(flag(reader, f"account_for_{what}_in_pipeline_split") for what in ("embedding", "loss"))
    layers = reader.get("num_layers") + extra - sum(ends)
    return layers, sizes.pp - len(ends) - flag(reader, "standalone_embedding_stage")


def chunked_layers(reader: Reader, sizes: Sizes) -> int | None:
    """Layers of all stages where each has equally many, to be cut into runs; None where they are not so."""
    if reader.get("num_layers") is None or _own_stages(reader):
        return None
    layers, stages = _dealt(reader, sizes)
    return layers if stages == sizes.pp and layers % stages == 0 else None


def _check_stages(reader: Reader, sizes: Sizes) -> None:
    if reader.get("num_layers") is None or _own_stages(reader):
        return
    layers, stages = _dealt(reader, sizes)
    if sizes.pp > 1 and stages >= 1 and layers % stages:
        message = f"{layers} layers are no multiple of {stages} pipeline stages"
        reader.refuse("num_layers", message, "change one of the two, or give the first or the last stage layers of its own")


def _check_experts(reader: Reader, sizes: Sizes) -> None:
    """Copies of a sharded optimizer also divide the devices that hold the same experts (megatron-core==0.16.1:parallel_state.py)."""
    copies, product = reader.get("num_distributed_optimizer_instances"), _expert_degrees(reader, sizes)
    if sizes.world is None or sizes.world % product or sizes.world // product % copies == 0:
        return
    message = f"{sizes.world // product} devices that share experts are no multiple of {copies} copies"
    help = f"choose a divisor: {sizes.world} devices hold the experts in {product} different parts"
    reader.refuse("num_distributed_optimizer_instances", message, help)


def _expert_degrees(reader: Reader, sizes: Sizes) -> int:
    """Devices that together hold each expert's weights once."""
    return int((reader.get("expert_tensor_parallel_size") or sizes.tp) * sizes.ep * sizes.pp)


def _check_data(reader: Reader, sizes: Sizes) -> None:
    """Widths of gradients, and an optimizer on the host."""
    wide = flag(reader, "accumulate_allreduce_grads_in_fp32") and reader.get("main_grads_dtype") == "bf16"
    _deny(reader, wide, "main_grads_dtype", "gradients cannot be summed in fp32 and held in bf16", "drop one of the two")
    aware = flag(reader, "use_precision_aware_optimizer")
    for name in ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"):
        narrow = reader.get(name) != "fp32" and not aware and not (wide and name == "main_grads_dtype")
        message = f"`{name}` is fp32 without the precision-aware optimizer"
        _deny(reader, narrow, name, message, "add `--use-precision-aware-optimizer`, or drop it")
    host = flag(reader, "optimizer_cpu_offload") and not aware
    message = "an optimizer on the host needs the precision-aware one"
    _deny(reader, host, "optimizer_cpu_offload", message, "add `--use-precision-aware-optimizer`")


def _check_fsdp(reader: Reader, sizes: Sizes) -> None:
    """PyTorch's FSDP."""
    optimizer, name = reader.get("optimizer"), "use_torch_fsdp2"
    for wrong, what, help in (
        (flag(reader, "use_distributed_optimizer"), "the distributed optimizer", "drop `use_distributed_optimizer`"),
        (own_fsdp(reader), "Megatron's own FSDP", "keep one of them"),
        (flag(reader, "fp16"), "fp16", "use `--bf16`"),
        (optimizer not in ("adam", "sgd"), f"the optimizer {optimizer}", "use adam or sgd"),
    ):
        _deny(reader, wrong and flag(reader, name), name, f"`{name}` excludes {what}", help)


def _check_run(reader: Reader, sizes: Sizes) -> None:
    """The length of a run, and the form of what is saved; one that is not said may be said by the rest of a command."""
    both = bool(reader.get("train_iters") and reader.get("train_samples")) and not flag(reader, "skip_train")
    message = "a run is as long as `train_iters` or `train_samples` says, not both"
    _deny(reader, both, "train_samples", message, "keep one of them")
    saved, name = reader.get("ckpt_format"), "ckpt_format"
    sharded = flag(reader, "use_megatron_fsdp") and saved not in (None, "fsdp_dtensor")
    _deny(reader, sharded, name, f"Megatron's own FSDP does not save as {saved}", "write `--ckpt-format fsdp_dtensor`")
    bare = saved == "fsdp_dtensor" and not own_fsdp(reader)
    _deny(reader, bare, name, "`fsdp_dtensor` is what Megatron's own FSDP saves", "add `--use-megatron-fsdp`, or take another form")


def _check_memory(reader: Reader, sizes: Sizes) -> None:
    """Recomputation."""
    name = first(reader, "distribute_saved_activations", "distribute_checkpointed_activations")
    if flag(reader, name):
        _deny(reader, sizes.tp == 1, name, "kept inputs are split over tensor parallelism, and there is none", "drop it")
        _deny(
            reader,
            reader.get("recompute_granularity") != "full" and not full_recompute(reader),
            name,
            "only the inputs of full recomputation are split",
            "add `--recompute-granularity full`",
        )
    said, method = reader.get("recompute_granularity"), reader.get("recompute_method")
    bare = said == "full" and method is None and not flag(reader, "recompute_activations")
    _deny(reader, bare, "recompute_granularity", "full recomputation needs a method", "add `--recompute-method uniform` or `block`")
    endless = said == "full" and method == "uniform" and reader.get("recompute_num_layers") == 0
    message = "runs of 0 layers never come to an end: Megatron adds 0 to the number of the layer for ever"
    _deny(reader, endless, "recompute_num_layers", message, "give 1 or more, or `--recompute-method block` to recompute none")
    partly = said == "selective" and method is not None
    _deny(reader, partly, "recompute_method", "selective recomputation has no method", "drop `recompute_method`")
