"""Configurations of grids as files of their systems, and the facts of which formulas speak."""

from __future__ import annotations

import json
from typing import Any

from validator_record import Config

#: Orders in which Megatron numbers devices; the first is the usual one.
ORDERS = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "tp-pp-cp-ep-dp")


def deepspeed(config: Config, **settings: Any) -> tuple[str, int | None]:
    return json.dumps(settings), config.get("dp", 1)


def batch(config: Config) -> tuple[str, int | None]:
    return deepspeed(
        config,
        train_batch_size=config["gbs"],
        train_micro_batch_size_per_gpu=config["mbs"],
        gradient_accumulation_steps=config["gas"],
    )


def deepspeed_switches(config: Config) -> dict[str, Any]:
    """The settings of a configuration of switches, as DeepSpeed's file has them."""
    states = config["bf16_opt_states"]
    return {
        "train_batch_size": 1,
        "fp16": {"enabled": config["fp16"]},
        "bf16": {"enabled": config["bf16"], "bf16_master_weights_and_grads": states, "bf16_optimizer_states": states},
        "gradient_allreduce_op": config["grad_op"],
        "zero_optimization": {"stage": config["zero"], "compute_grad_norm": config["compute_grad_norm"]},
    }


def megatron_groups(config: Config) -> dict[str, Any]:
    """Data-parallel degrees follow; where they do not, rounded down as the program does. Formulas that come later are not asked then."""
    tp, pp, cp, etp, ep = (config[n] for n in ("tp", "pp", "cp", "etp", "ep"))
    dp, edp = config["world"] // (tp * pp * cp), config["world"] // (etp * ep * pp)
    sizes = {"tp": tp, "cp": cp, "ep": 1, "dp": dp, "pp": pp}
    experts = {"tp": etp, "cp": 1, "ep": ep, "dp": edp, "pp": pp}
    order = config["order"].split("-")
    meshes = {"dense": tuple((a, sizes[a]) for a in order), "expert": tuple((a, experts[a]) for a in order)}
    return {**config, "gtp": 1, "dp": dp, "vpp_set": config["vpp"], **meshes}


def megatron_arguments(config: Config) -> str:
    """What every command line needs besides."""
    return "--num-layers 12 --hidden-size 48 --max-position-embeddings 64 --seq-length 64 --micro-batch-size 1 --bf16"


def groups_text(config: Config) -> tuple[str, int | None] | None:
    if config["order"] != ORDERS[0]:
        return None  # the usual one; no argument says another
    parts = [
        megatron_arguments(config),
        "--num-attention-heads 12 --num-experts 6 --global-batch-size 144",
        f"--tensor-model-parallel-size {config['tp']} --pipeline-model-parallel-size {config['pp']}",
        f"--context-parallel-size {config['cp']} --expert-model-parallel-size {config['ep']}",
        f"--expert-tensor-parallel-size {config['etp']} --num-distributed-optimizer-instances {config['instances']}",
        "--use-distributed-optimizer --sequence-parallel --disable-bias-linear",
    ]
    if config["vpp"]:
        parts.append("--num-virtual-stages-per-pipeline-rank 2")
    return " ".join(parts), config["world"]


def transformer_text(config: Config) -> tuple[str, int | None]:
    parts = [
        megatron_arguments(config),
        f"--num-attention-heads {config['heads']} --tensor-model-parallel-size {config['tp']}",
        f"--pipeline-model-parallel-size {config['pp']} --kv-channels 8",
    ]
    parts += ["--sequence-parallel"] if config["sp"] else []
    parts += ["--distribute-saved-activations"] if config["dist_saved_acts"] else []
    parts += ["--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"] if config["recompute"] else []
    parts += ["--defer-embedding-wgrad-compute"] if config["defer_emb_wgrad"] else []
    return " ".join(parts), None


def accelerate_text(config: Config) -> tuple[str, int | None]:
    sizes = "\n".join(f"  parallelism_config_{n}_size: {config[n]}" for n in ("dp_replicate", "dp_shard", "tp", "cp"))
    text = f"distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\nparallelism_config:\n{sizes}\nnum_processes: {config['world']}\n"
    return text, None


def accelerate(config: Config) -> dict[str, Any]:
    return {**config, "sp_size": 1}


def titan(config: Config) -> dict[str, Any]:
    """The degree that is left open follows, rounded down, as soon as the others can be degrees."""
    rest = config["dp_replicate"] * config["cp"] * config["tp"] * config["pp"]
    shard = config["world"] // rest if config["dp_shard"] == -1 and rest > 0 else config["dp_shard"]
    return {**config, "dp_shard": shard}


def titan_text(config: Config) -> tuple[str, int | None]:
    names = {
        "dp_replicate": "data_parallel_replicate_degree",
        "dp_shard": "data_parallel_shard_degree",
        "cp": "context_parallel_degree",
        "tp": "tensor_parallel_degree",
        "pp": "pipeline_parallel_degree",
        "ep": "expert_parallel_degree",
    }
    lines = [f"{names[n]} = {config[n]}" for n in names]
    return "\n".join(["[training]", "seq_len = 144", "[parallelism]", *lines]) + "\n", config["world"]
