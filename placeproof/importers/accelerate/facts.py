"""What is known of a configuration of Accelerate, by the names that its rules use."""

from __future__ import annotations

from collections.abc import Mapping

from placeproof.importers.accelerate.run import MULTI, AccelerateReader
from placeproof.importers.asked import Known
from placeproof.importers.meaning import meaning

_DS, _PC = "deepspeed_config.", "parallelism_config.parallelism_config_"
_MG = "megatron_lm_config.megatron_lm_"


def known(run: AccelerateReader, sizes: Mapping[str, int]) -> Known:
    """The facts of a file. ``sizes``: those of `parallelism_config`, empty where there are none."""
    facts = Known(run, meaning("accelerate"))

    for name in ("dp_replicate", "dp_shard", "cp", "sp", "tp"):
        said = f"{_PC}{name}_size"
        if sizes:
            facts.put("sp_size" if name == "sp" else name, sizes[said], said)
    if sizes and sizes[_PC + "sp_size"] == 1:  # DeepSpeed makes the groups of Ulysses itself
        facts.put("world", run.world, "num_processes")
        if all(size == 1 for size in sizes.values()):
            facts.put("dp_replicate", run.world, _PC + "dp_replicate_size")
    facts.put("processes", run.world)
    facts.put("kind", run.kind, "distributed_type")
    facts.put("multi", run.kind in MULTI, "distributed_type")
    msamp = run.kind == "DEEPSPEED" and str(run.get("fp8_config.fp8_backend")).lower() == "msamp"
    facts.put("msamp", msamp, "fp8_config.fp8_backend")
    if run.kind == "DEEPSPEED" and not run.said(_DS + "deepspeed_config_file"):
        facts.put("zero", int(run.get(_DS + "zero_stage")), _DS + "zero_stage")
    if run.kind == "DEEPSPEED" and run.get(_PC + "sp_seq_length_is_variable") is False:
        facts.put("seq", run.get(_PC + "sp_seq_length"), _PC + "sp_seq_length")
    facts.derive()
    return facts


def megatron_known(run: AccelerateReader) -> Known:
    """The facts of the table of Megatron-LM, which speaks of experts by their devices alone. The optimizer is the program's own."""
    facts = Known(run, meaning("accelerate"))
    tp, experts, split = (_MG + name for name in ("tp_degree", "expert_model_parallel_size", "sequence_parallelism"))
    facts.put("tp", run.get(tp), tp)
    facts.put("experts_set", run.get(experts) > 1, experts)
    facts.put("recompute", run.get(_MG + "recompute_granularity"), _MG + "recompute_granularity")
    facts.put("recompute_layers_set", True)  # one, where a file does not say it
    for fact, setting in (("optimizer_on_host", "optimizer_cpu_offload"), ("precision_aware", "use_precision_aware_optimizer")):
        facts.put(fact, run.get(_MG + setting), _MG + setting)
    facts.put("sp", bool(run.get(split)) and run.get(tp) > 1, split)
    return facts
