"""What is known of a configuration of Accelerate, by the names that its rules use, and how a broken rule is told."""

from __future__ import annotations

from collections.abc import Mapping

from placeproof.importers.accelerate.fields import Run
from placeproof.importers.asked import Known, Says

_DS, _PC = "deepspeed_config.", "parallelism_config.parallelism_config_"
_MG = "megatron_lm_config.megatron_lm_"
_SIZES = tuple(f"{_PC}{name}_size" for name in ("tp", "sp", "cp", "dp_shard", "dp_replicate"))

SAYS: dict[str, Says] = {
    "accelerate-02": Says(
        "copies without shards go with neither tp_size nor cp_size", "`dp_shard_size` of at least 2", (_PC + "dp_replicate_size",)
    ),
    "accelerate-03": Says(
        "{dp_replicate} * {dp_shard} * {cp} * {tp} is not {world}, the number of processes",
        "the sizes multiply to the number of processes",
        _SIZES,
    ),
    "accelerate-06": Says(
        "context parallelism needs FSDP 2, which also shards over it", "`distributed_type: FSDP` and `fsdp_version: 2`", (_PC + "cp_size",)
    ),
    "accelerate-11": Says("MS-AMP does not work with ZeRO stage 3", "`zero_stage: 2`, or another backend", ("fp8_config.fp8_backend",)),
}
#: Rules of Megatron-LM, where Accelerate starts it.
MEGATRON_SAYS: dict[str, Says] = {
    "megatron-62": Says(
        "experts beside tensor parallelism need sequence parallelism",
        "`megatron_lm_sequence_parallelism: true`",
        (_MG + "expert_model_parallel_size",),
    ),
}
# told alike: context parallelism without FSDP, and with its first version
SAYS["accelerate-05"] = SAYS["accelerate-06"]


def known(run: Run, sizes: Mapping[str, int]) -> Known:
    """The facts of a file. ``sizes``: those of `parallelism_config`, empty where there are none."""
    found = Known(run.reader)

    def put(name: str, value: int | bool | str | None, *settings: str) -> None:
        found.put(name, value, *settings)

    for name in ("dp_replicate", "dp_shard", "cp", "sp", "tp"):
        said = f"{_PC}{name}_size"
        if sizes:
            put("sp_size" if name == "sp" else name, sizes[said], said)
    if sizes and sizes[_PC + "sp_size"] == 1:  # DeepSpeed makes the groups of Ulysses itself
        put("world", run.world, "num_processes")
        if all(size == 1 for size in sizes.values()):
            put("dp_replicate", run.world, _PC + "dp_replicate_size")
    version = int(run.get("fsdp_config.fsdp_version")) if run.kind == "FSDP" else 0
    put("fsdp_set", run.kind == "FSDP", "distributed_type")
    put("fsdp_version", version, "fsdp_config.fsdp_version")
    put("deepspeed", run.kind == "DEEPSPEED", "distributed_type")
    put("sp_backend", run.get(_PC + "sp_backend") or "deepspeed", _PC + "sp_backend")
    put("msamp", run.kind == "DEEPSPEED" and str(run.get("fp8_config.fp8_backend")).lower() == "msamp", "fp8_config.fp8_backend")
    if run.kind == "DEEPSPEED" and not run.said(_DS + "deepspeed_config_file"):
        put("zero", int(run.get(_DS + "zero_stage")), _DS + "zero_stage")
    return found


def megatron_known(run: Run) -> Known:
    """The facts of the table of Megatron-LM, which speaks of experts by their devices alone."""
    found = Known(run.reader)
    tp, experts, split = (_MG + name for name in ("tp_degree", "expert_model_parallel_size", "sequence_parallelism"))
    found.put("tp", run.get(tp), tp)
    found.put("experts_set", run.get(experts) > 1, experts)
    found.put("sp", bool(run.get(split)) and run.get(tp) > 1, split)
    return found
