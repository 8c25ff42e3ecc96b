"""What is known of a file of torchtitan, by the names that rules of torchtitan and of PyTorch use, and how a broken rule is told."""

from __future__ import annotations

from collections.abc import Callable

from placeproof.importers.asked import Known, Says
from placeproof.importers.fields import Reader
from placeproof.importers.torchtitan.notes import Facts

_PARALLELISM, _BATCH, _LOCAL = "parallelism.", "training.global_batch_size", "training.local_batch_size"
_SCHEDULE = "parallelism.pipeline_parallel_schedule"
_SHARD, *_DEGREES = (
    f"{_PARALLELISM}{name}_degree"
    for name in ("data_parallel_shard", "tensor_parallel", "pipeline_parallel", "context_parallel", "data_parallel_replicate")
)
_STAGES = ("parallelism.module_fqns_per_model_part", "parallelism.pipeline_parallel_split_points")
_MESH = Says(
    "data_parallel {dp_replicate} * {dp_shard}, context {cp}, tensor {tp} and pipeline {pp} make not {world} devices",
    "the degrees multiply to the number of devices; -1 takes all that are left",
    (_SHARD, *_DEGREES),
)
_ROUNDS = Says(
    "{sched} takes its {nmb} micro-batches in equal rounds over {pp} devices", "choose micro-batches that make equal rounds", (_SCHEDULE,)
)
_TWICE = Says(
    "this schedule has two stages on each device, or more if it goes round and not forth and back: {nstages} stages, {pp} devices",
    "name twice as many as devices",
    _STAGES,
)

SAYS: dict[str, Says] = {
    "torchtitan-01": _MESH,
    "torchtitan-04": Says(
        "{tokens_mb} tokens cannot be split over {tp} devices of tensor parallelism, two pieces for each of {cp} of context parallelism",
        "take a multiple of tp, and of 2 * cp * tp where there is cp",
        ("training.seq_len",),
    ),
    "torchtitan-05": Says(
        "a step of {tokens_step} tokens is no multiple of {nmb} samples of {tokens_mb} tokens on each of {dp} data parallel devices",
        "each device takes whole local batches until the global one is done",
        (_BATCH,),
    ),
    "torchtitan-07": Says("this schedule has one stage on each device: {pp}, not {nstages}", "name as many stages as devices", _STAGES),
    "torchtitan-08": _TWICE,
    "torchtitan-10": _TWICE,
    "pytorch-02": _ROUNDS,
    "pytorch-03": _ROUNDS,
    "pytorch-05": Says(
        "DualPipeV has two stages on each of {pp} devices, and as many micro-batches as stages: {nstages} stages, {nmb} micro-batches",
        "name twice as many stages as devices, and make micro-batches smaller",
        (_SCHEDULE,),
    ),
}


def schedule(reader: Reader, facts: Facts, named: str, stages: tuple[str, int] | None, kinds: tuple[bool, bool]) -> Known:
    """Facts of a pipeline. ``named``: the schedule as torch does; ``stages``: the setting that names them and their number.

    ``kinds``: whether it has one stage on a device, and whether it goes forth and back.
    """
    found = Known(reader)
    found.put("pp", facts.pp, _PARALLELISM + "pipeline_parallel_degree")
    found.put("sched", named, _SCHEDULE)
    found.put("nmb", facts.microbatches, _LOCAL)
    found.put("single_stage_schedule", kinds[0], _SCHEDULE)
    found.put("v_schedule", kinds[1], _SCHEDULE)
    if stages is not None:
        found.put("nstages", stages[1], stages[0])
    elif named == "DualPipeV":
        found.put("nstages", 2 * facts.pp, _SCHEDULE)
    return found


def degrees(reader: Reader, facts: Facts, world: int | None, name: Callable[[str], str]) -> Known:
    """Facts of degrees, of tokens and of samples. ``name``: as the file writes a setting."""
    found = Known(reader)
    tp, pp, cp, replicate = map(name, _DEGREES)
    for fact, value, setting in (
        ("tp", facts.tp, tp),
        ("pp", facts.pp, pp),
        ("cp", facts.cp, cp),
        ("dp_replicate", facts.replicate, replicate),
    ):
        found.put(fact, value, setting)
    found.put("world", world)
    found.put("dp_shard", facts.shard, name(_SHARD))
    found.put("ep", facts.ep, _PARALLELISM + "expert_parallel_degree")
    found.put("sp", True)
    found.put("tokens_mb", reader.get("training.seq_len"), "training.seq_len")
    return found


def samples(found: Known, facts: Facts, name: Callable[[str], str]) -> None:
    """Facts of the step's batch, where the file says it: of micro-batches of one sample."""
    reader = found.reader
    total, local = reader.get(_BATCH), reader.get(name(_LOCAL))
    if total != -1:
        found.put("tokens_step", total * reader.get("training.seq_len"), _BATCH, "training.seq_len")
        found.put("nmb", local, name(_LOCAL))
        found.put("dp", facts.replicate * (facts.shard or 1), name(_SHARD), name(_DEGREES[3]))
