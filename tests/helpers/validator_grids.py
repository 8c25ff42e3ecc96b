"""Grids of configurations on which the validators of real systems are compared with the formulas of rules, and with our importers.

Only definitions are here, and no system is imported: ``nightly/validators.py`` asks the installed systems and records what they say,
``tests/reality/test_rule_validators.py`` replays the record.
"""

from __future__ import annotations

import json

from validator_record import Explained, Grid
from validator_texts import (
    ORDERS,
    accelerate,
    accelerate_text,
    batch,
    deepspeed_switches,
    groups_text,
    megatron_groups,
    titan,
    titan_text,
    transformer_text,
)

_SCHEDULES = ("1F1B", "Interleaved1F1B", "InterleavedZeroBubble", "DualPipeV")
_BOTH = (False, True)

GRIDS: dict[str, Grid] = {
    g.name: g
    for g in (
        Grid(
            name="deepspeed-batch",
            package="deepspeed",
            facts={"gbs": tuple(range(1, 17)), "mbs": (1, 2, 3, 4), "gas": (1, 2, 3, 4), "dp": (1, 2, 3, 4)},
            reasons={"Check batch related parameters. train_batch_size is not equal": "deepspeed-02"},
            text=batch,
            reads="deepspeed",
        ),
        Grid(
            name="deepspeed-switches",
            package="deepspeed",
            facts={
                "fp16": _BOTH,
                "bf16": _BOTH,
                "zero": (0, 1, 2, 3, 4),
                "grad_op": ("mean", "sum"),
                "compute_grad_norm": _BOTH,
                "bf16_opt_states": _BOTH,
            },
            reasons={
                "cannot be simultaneously enabled": "deepspeed-05",
                "Input should be 0, 1, 2, 3": "deepspeed-06",
                "is not supported with ZeRO stage 3": "deepspeed-15",
                "compute_grad_norm=false is supported only with": "deepspeed-17",
                "bf16_optimizer_states is only supported with": "deepspeed-18",
                "Bf16_master_weights_and_grads is only supported with": "deepspeed-18",
            },
            text=lambda config: (json.dumps(deepspeed_switches(config)), 1),
            reads="deepspeed",
        ),
        Grid(
            name="megatron-groups",
            package="megatron-core",
            facts={
                "world": (1, 2, 4, 6, 8, 12),
                "tp": (1, 2, 3),
                "pp": (1, 2),
                "cp": (1, 2),
                "etp": (1, 2),
                "ep": (1, 2, 3),
                "instances": (1, 2),
                "vpp": _BOTH,
                "order": ORDERS,
            },
            reasons={
                "is not divisible by expert_tensor_model_pipeline_parallel size": "megatron-03",
                "is not divisible by": "megatron-01",
                "pipeline-model-parallel size should be greater than 1": "megatron-09",
                "the data parallel size of the attention and moe layers must be the same": "megatron-06",
                "Pipeline parallel groups are expected to be the same": "megatron-06",
                "Expert data parallel size should be divisible by": "",
                "Data parallel size should be divisible by partial DistOpt shard factor": "megatron-07",
            },
            derived=lambda config: {**megatron_groups(config), "num_distopt_instances": config["instances"]},
            text=groups_text,
            reads="megatron",
            imported=(
                Explained(
                    where=lambda c: c["etp"] not in (1, c["tp"]),
                    right="validator",
                    why="no strategy splits experts by another degree than other matrices",
                ),
                Explained(
                    where=lambda c: c["world"] // (c["tp"] * c["pp"] * c["cp"]) % c["ep"] != 0,
                    right="validator",
                    why="no strategy has experts over the devices of tensor or context parallelism",
                ),
            ),
            explained=(
                Explained(
                    where=lambda c: c["order"] == "tp-pp-cp-ep-dp" and c["pp"] > 1,
                    right="formula",
                    why="with stages numbered before cp and ep the groups coincide; the check that is made first thinks of the other order",
                ),
            ),
        ),
        Grid(
            name="megatron-generator",
            package="megatron-core",
            facts={"tp": (1, 2), "dp": (1, 2), "pp": (1, 2), "cp": (1, 2, 3, 4), "ep": (1, 2, 3, 4)},
            reasons={"Both EP and CP > 1": "megatron-04"},
        ),
        Grid(
            name="megatron-transformer",
            package="megatron-core",
            facts={
                "heads": (1, 2, 3, 4, 6),
                "tp": (1, 2, 3, 4),
                "pp": (1, 2),
                "sp": _BOTH,
                "pipeline_dtype_set": _BOTH,
                "recompute": _BOTH,
                "dist_saved_acts": _BOTH,
                "defer_emb_wgrad": _BOTH,
            },
            reasons={
                "Cannot use sequence parallelism without tensor parallelism": "megatron-13",
                "pipeline_dtype must be specified": "megatron-15",
                "must be a multiple of tensor_model_parallel_size": "megatron-16",
                "must be false when sequence parallel is enabled": "megatron-51",
                "Cannot defer embedding wgrad compute": "megatron-57",
            },
            text=transformer_text,
            reads="megatron",
            explained=(
                Explained(
                    where=lambda c: c["dist_saved_acts"] and c["sp"] and not c["recompute"],
                    right="validator",
                    why="without recomputation no inputs are kept that could be split: the flag does nothing, and is not looked at",
                ),
            ),
            imported=(
                Explained(
                    where=lambda c: c["pp"] > 1 and not c["pipeline_dtype_set"],
                    right="importer",
                    why="the command line sets the type of messages to that of the weights",
                ),
                Explained(
                    where=lambda c: c["sp"] and c["tp"] == 1,
                    right="importer",
                    why="the command line turns sequence parallelism off where there is no tensor parallelism",
                ),
                Explained(
                    where=lambda c: c["dist_saved_acts"] and (c["tp"] == 1 or not c["recompute"]),
                    right="importer",
                    why="the command line also asks for tensor parallelism and for full recomputation",
                ),
            ),
        ),
        Grid(
            name="megatron-experts",
            package="megatron-core",
            facts={"overlap_ep": _BOTH, "ep": (1, 2, 4), "pp": (1, 2), "vpp": _BOTH, "experts_set": _BOTH},
            reasons={
                "must be specified when pipeline_model_parallel_size > 1": "megatron-33",
                "is only supported with expert model parallelism": "megatron-34",
                "num_moe_experts must be non None": "megatron-31",
            },
            derived=lambda config: {**config, "vpp_set": config["vpp"]},
        ),
        Grid(
            name="accelerate-sizes",
            package="accelerate",
            facts={
                "dp_replicate": (1, 2, 3),
                "dp_shard": (1, 2, 3, 4),
                "tp": (1, 2, 3),
                "cp": (1, 2, 3),
                "world": (1, 2, 3, 4, 6, 8, 12),
            },
            reasons={
                "cannot be used with pure data parallelism": "accelerate-02",
                "does not match num_processes": "accelerate-03",
                "has no dimension for FSDP to shard across": "",
            },
            derived=accelerate,
            text=accelerate_text,
            reads="accelerate",
        ),
        Grid(
            name="torchtitan-degrees",
            package="torchtitan",
            facts={
                "dp_replicate": (0, 1, 2),
                "dp_shard": (-1, 0, 1, 2, 3),
                "cp": (0, 1, 2),
                "tp": (0, 1, 2),
                "pp": (0, 1, 2),
                "ep": (0, 1, 2),
                "world": (1, 2, 3, 4, 8, 12),
            },
            reasons={
                "Parallelism degree should be >= 1": "torchtitan-02",
                "dp_shard must -1 or >=1": "torchtitan-02",
                "Invalid parallel dims": "torchtitan-01",
                "": "torchtitan-02",
            },
            derived=titan,
            text=titan_text,
            reads="torchtitan",
            imported=(
                Explained(
                    where=lambda c: c["ep"] > 1 and titan(c)["dp_shard"] * c["cp"] * c["tp"] % c["ep"] != 0,
                    right="importer",
                    why="0.3.0 rounds the number of copies of an expert down, and fails when it makes the mesh",
                ),
            ),
        ),
        Grid(
            name="torch-schedules",
            package="torch",
            facts={"sched": _SCHEDULES, "pp": (1, 2, 3, 4, 5, 6), "nmb": tuple(range(1, 25))},
            reasons={
                "Interleaved 1F1B requires the number of microbatches": "pytorch-02",
                "Zero bubble requires the number of microbatches": "pytorch-03",
                "DualPipeV requires at least as many microbatches": "pytorch-05",
                "must be greater than": "",
            },
            derived=lambda config: {**config, "nstages": 2 * config["pp"]},
        ),
        Grid(
            name="torch-chunks",
            package="torch",
            facts={"batch": tuple(range(1, 17)), "nmb": tuple(range(1, 17))},
            reasons={"is smaller than num_chunks": "pytorch-08"},
        ),
        Grid(
            name="torch-balancer",
            package="torch",
            facts={"seq": tuple(range(1, 33)), "cp": (1, 2, 3, 4, 5, 6)},
            reasons={"": "pytorch-15"},
        ),
        Grid(
            name="torch-unflatten",
            package="torch",
            facts={"extent": (1, 2, 3, 4, 6, 8, 12), "first": (1, 2, 3, 4), "second": (1, 2, 3, 4)},
            reasons={"must be equal for unflatten": "pytorch-21"},
            derived=lambda config: {**config, "sizes": (config["first"], config["second"])},
        ),
        Grid(
            name="torch-loss",
            package="torch",
            facts={"n_vocab_shard_dims": (0, 1, 2, 3)},
            reasons={"requires exactly one mesh dim to shard": "pytorch-18"},
        ),
    )
}
