"""What becomes of a torchtitan setting once the others are known: many have no effect alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from placeproof.importers.fields import Reader
from placeproof.importers.imported import SHARING, Note, Reading, Role


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What follows from the settings. ``shard``, ``steps`` and ``microbatches`` are None where the file leaves them open.

    ``split``: devices that an expert is split over. ``steps``: passes over the local batch before an update. ``microbatches``: parts of the
    local batch in a pipeline. ``order``: the schedule as the strategy `pp` names it, None where it has none of that kind; ``chunks``: runs
    of layers on a device, where the schedule leaves them open. ``offloaded``: whether the strategy says that FSDP's shards lie in host
    memory; ``ahead``: whether the next unit is gathered while one computes. ``widths``: what is kept in how many bytes.
    """

    replicate: int
    shard: int | None
    tp: int
    pp: int
    cp: int
    ep: int
    split: int
    steps: int | None
    microbatches: int | None
    schedule: str
    mode: str
    eight_bits: bool
    elementwise: bool
    max_norm: float
    order: str | None = None
    chunks: int | None = None
    offloaded: bool = False
    ahead: bool = False
    precision: str | None = None
    widths: str = ""

    @property
    def whole(self) -> bool:
        """Whether each of the experts that devices share is whole, while other matrices are split."""
        return self.ep > 1 and self.tp > 1 and self.split == 1

    @property
    def sharded(self) -> bool:
        """Whether torchtitan applies FSDP at all: it also shards over context parallel devices.

        Copies beside tensor or pipeline parallelism are wrapped in FSDP even where each keeps the whole (torchtitan==0.3.0:
        models/llama3/parallelize.py); earlier versions refuse them.
        """
        beside = self.replicate > 1 and (self.tp > 1 or self.pp > 1)
        return self.shard is None or self.shard > 1 or self.cp > 1 or beside


_EIGHT = ("float8.", "mx.", "quantize.")
_STAGED = "parallelism.pipeline_parallel_"
_ACCUMULATED = "the pipeline is run and emptied once for each of the step's passes; the formulas count one run"


def amendments(known: Facts, reader: Reader) -> Callable[[Reading], Reading]:
    """A function that gives a reading its last role and note."""

    def changed(reading: Reading) -> Reading:
        name = reader.fields[reading.name].name if reading.name in reader.fields else reading.name
        if reason := _unused(name, known):
            return dataclasses.replace(reading, role=Role.NO_MATTER, note=reason)
        found = _experts(name, known) or _changed(name, known)
        return reading if found is None else dataclasses.replace(reading, role=found.role, note=found.text, told=found.told)

    return changed


def _unused(name: str, known: Facts) -> str | None:
    """Why a setting has no effect here."""
    if name.startswith(_EIGHT) and not known.eight_bits:
        return "no converter uses it"
    staged = name.startswith(_STAGED) or name == "parallelism.module_fqns_per_model_part"
    if staged and name != "parallelism.pipeline_parallel_degree" and known.pp == 1:
        return "there is no pipeline"
    if name.startswith("parallelism.context_parallel_") and known.cp == 1:
        return "the sequence is not split between devices"
    if name.startswith("parallelism.expert_") and known.ep == 1:
        return "experts are not split between devices"
    if name == "parallelism.disable_loss_parallel" and known.tp == 1:
        return "matrices are not split"
    if name.startswith("activation_checkpoint.") and known.mode != "selective":
        option = name.removeprefix("activation_checkpoint.")
        if option.startswith(("selective_", "per_op_")):
            return "the mode is another"
    if name == "activation_checkpoint.memory_budget" and known.mode != "memory_budget":
        return "the mode is another"
    return None


def _changed(name: str, known: Facts) -> Note | None:
    """A role and a note that depend on other settings."""
    match name:
        case "activation_checkpoint.mode":
            return _mode(known.mode)
        case "training.max_norm" if known.max_norm > 0:
            return Note(
                Role.NOT_MODELLED, "clips by the norm of the whole gradient: one more all-reduce, and an update that depends on all of it"
            )
        case "training.max_norm":
            return Note(Role.NO_MATTER, "no clipping")
        case "training.mixed_precision_param" | "training.mixed_precision_reduce" | "training.dtype":
            return _widths(name, known)
        case "training.enable_cpu_offload":
            return _offload(known)
        case "training.local_batch_size" if known.microbatches is None:
            return Note(
                Role.READ, "samples of a device; files this old may cut it into as many parts as stages: b and m are left open", True
            )
        case "training.global_batch_size" if known.pp > 1 and known.steps != 1:
            return Note(Role.NOT_MODELLED, _ACCUMULATED)
        case "training.global_batch_size" if known.replicate > 1 and known.steps != 1:
            return Note(Role.NOT_MODELLED, "samples of a step; copies all-reduce gradients after each pass, the formulas after the last")
        case "optimizer.name" if not known.elementwise:
            return Note(Role.NOT_MODELLED, "not known to update each element from its own gradient and state")
        case "parallelism.pipeline_parallel_schedule" if known.schedule == "csv":
            return Note(Role.NO_MATTER, "the schedule comes from a file")
        case "parallelism.pipeline_parallel_schedule" if known.order is None:
            return Note(
                Role.NOT_MODELLED, "stages go round in an order of its own: the strategy has 1F1B in its place, messages and memory differ"
            )
        case "parallelism.pipeline_parallel_degree" if known.pp > 1 and known.sharded:
            note = "stages; torch reduces gradients once in a step and keeps them whole meanwhile, and weights too that are not dropped"
            return Note(Role.READ, f"{note}: the formulas gather and reduce for each micro-batch", True)
        case "parallelism.data_parallel_replicate_degree":
            return _copies(known)
        case "parallelism.context_parallel_degree" | "parallelism.data_parallel_shard_degree" if known.cp > 1:
            return _tokens(name, known)
        case _:
            return None


def _tokens(name: str, known: Facts) -> Note:
    """Of sequences that are split over devices."""
    if name == "parallelism.context_parallel_degree":
        return Note(Role.READ, f"the sequence is split over {known.cp} devices, the axis cp, over which parameters are sharded, too")
    return Note(Role.READ, f"parameters are sharded over {known.cp} times as many devices, those of the sequence too")


def _copies(known: Facts) -> Note | None:
    if known.replicate == 1 or known.shard != 1 or known.cp > 1 or not known.sharded:
        return None
    note = "copies, each of them whole on its device and wrapped in FSDP, which gathers nothing then and casts a unit at a time"
    return Note(Role.READ, f"{note}; older versions refuse this", True)


def _experts(name: str, known: Facts) -> Note | None:
    """Of degrees of experts, where devices share them."""
    if name == "parallelism.expert_tensor_parallel_degree":
        return Note(Role.READ, "each expert is whole" if known.split == 1 else "experts are split as other matrices are")
    if name != "parallelism.expert_parallel_degree":
        return None
    note = f"{SHARING} the shards"
    if known.whole:  # torchtitan==0.3.0:torchtitan/distributed/parallel_dims.py, efsdp
        note = f"{note}; FSDP shards whole experts over tensor parallelism too: a device has 1/{known.tp} of what is counted of them"
    elif known.cp > 1:
        note += "; those of one sequence first: the same bytes, between other devices"
    if known.ahead:
        note += "; one gathered unit is counted, and torch gathers the next one early"
    return Note(Role.NOT_MODELLED if known.whole else Role.READ, note, known.ahead)


def _mode(mode: str) -> Note:
    return {
        "full": Note(Role.READ, "each layer keeps its input alone"),
        "none": Note(Role.READ, "all activations are kept"),
        "selective": Note(Role.NOT_MODELLED, "some layers or operations are computed again: the strategy keeps all activations"),
        "memory_budget": Note(Role.NOT_MODELLED, "the compiler chooses what is computed again: the strategy keeps all activations"),
    }[mode]


def _widths(name: str, known: Facts) -> Note:
    if name == "training.mixed_precision_reduce" and not known.sharded:
        return Note(Role.NO_MATTER, "has no effect without FSDP")
    if name == "training.mixed_precision_param" and not known.sharded and (known.tp > 1 or known.pp > 1):
        return Note(Role.NO_MATTER, known.widths)
    return Note(Role.READ, known.widths + ("; linear layers in 1" if known.eight_bits else ""), known.precision is None)


def _offload(known: Facts) -> Note | None:
    if not known.sharded:
        return Note(Role.NO_MATTER, "has no effect without FSDP")
    if known.offloaded:
        return Note(Role.READ, "parameters, gradients and optimizer state lie in host memory, where the update is computed")
    return None
