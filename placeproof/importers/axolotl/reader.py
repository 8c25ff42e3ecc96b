"""axolotl's files: what they hand to transformers' Trainer.

(axolotl==0.19.0:core/builders/base.py, utils/trainer.py, utils/distributed.py)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from placeproof.core.diagnostics import Problems
from placeproof.importers.document import Document
from placeproof.importers.fields import Field
from placeproof.importers.imported import Imported, Reading, Role
from placeproof.importers.meaning import meaning
from placeproof.importers.settings import settings
from placeproof.importers.transformers.deepspeed import follow
from placeproof.importers.transformers.sharding import Groups, sharded
from placeproof.importers.transformers.training import Arguments, Training, adapted, finished, plain, update
from placeproof.importers.transformers.updates import Directions, Update

_STATE = Update(note="the update; no named precision has its state")
_WHOLE = Update(note="an update that looks at whole matrices", role=Role.ANOTHER_STEP, rowwise=True)
#: Muon of whole gradients, and of parts that FSDP has (axolotl-contribs-mit: muon/dist_muon.py).
_MUON = Directions(
    setting="optimizer",
    whole=(
        "an update of whole matrices; each device makes directions of some and gathers the others, which is not counted",
        Role.NOT_MODELLED,
    ),
    parts=(
        "an update of whole matrices: momentum goes to one owner of each, and parts of its direction come back; matrices are padded to"
        " equally many for each, which is not counted",
        Role.READ,
    ),
)
_BITS = Update(note="keeps its state in few bits, scaled by blocks, which are others once a tensor is sharded", role=Role.ANOTHER_STEP)
#: Updates of axolotl's own (utils/schemas/enums.py).
_UPDATES = {
    **dict.fromkeys(("optimi_adamw", "adopt_adamw", "adamc", "flash_adamw", "flash_adam", "flash_sgd", "flash_sgdw", "flash_lion"), _STATE),
    **dict.fromkeys(("muon", "dion", "sinkgd", "polora", "came_pytorch", "q_galore_adamw8bit"), _WHOLE),
    **dict.fromkeys(("ao_adamw_4bit", "ao_adamw_8bit", "ao_adamw_fp8"), _BITS),
}
#: Plugins that change how much is kept, and nothing that is computed.
_KERNELS = ("CutCrossEntropyPlugin", "LigerPlugin", "KernelsPlugin", "SwanLabPlugin")
_NAMES = {
    "per_device_train_batch_size": "micro_batch_size",
    "optim": "optimizer",
    "fsdp_config.cpu_offload": "fsdp_config.offload_params",
}
_MEANS = "axolotl averages the means of devices, each over its own tokens: right where all have equally many"


def read(document: Document, world: int | None, problems: Problems) -> Imported:
    """Read a file of axolotl. ``world`` is the number of processes, which the program that starts them says."""
    run = Arguments(document, _fields(document), problems, world=world, loose=("", "fsdp_config"))
    if "base_model" not in run.found:
        place = document.place(next(iter(document.data), ""))
        problems.add(
            "PP504",
            "no `base_model` is said, and axolotl asks for one",
            place=place,
            help="for example `base_model: meta-llama/Llama-3.1-8B`",
        )
    on = bool(run.get("fsdp")) or any(name.startswith("fsdp_config.") for name in run.found)
    imported = _built(run, _training(run), on, problems)
    if run.get("adapter") in ("lora", "qlora"):
        linear = bool(run.get("lora_target_linear"))
        if linear:
            run.note("lora_target_linear", "which matrices have adapters", Role.READ)
        imported = adapted(run, imported, "adapter", "lora_r", "lora_target_modules", linear=linear)
    run.unsaid["average_tokens_across_devices"] = f"not said; {_MEANS}"
    strange = any(str(one).rpartition(".")[2] not in _KERNELS for one in run.get("plugins") or ())
    if strange:
        run.readings = [_of_a_plugin(reading) for reading in run.readings]
    return replace(finished(run, imported, meaning("axolotl"), sharded=on, strange=strange), system="axolotl")


def _fields(document: Document) -> Iterator[Field]:
    yield from settings("axolotl")
    if document.data.get("fsdp_config", {}) is None:
        yield Field(name="fsdp_config", kinds=("null",), role=Role.NO_MATTER, note="says nothing")


def _of_a_plugin(reading: Reading) -> Reading:
    """What axolotl does not know beside plugins may be a setting of theirs."""
    if reading.role is not Role.UNKNOWN or "." in reading.name:
        return reading
    return replace(reading, role=Role.ANOTHER_STEP, note="perhaps a setting of a plugin: what it does is not known")


def _built(run: Arguments, training: Training, on: bool, problems: Problems) -> Imported:
    if run.get("deepspeed"):
        if run.get("optimizer") == "muon":
            run.refuse("optimizer", "axolotl refuses Muon beside DeepSpeed", "take FSDP 2 for it, or another update")
        if on:
            run.refuse("deepspeed", "DeepSpeed and FSDP are both said, and one of them runs the model", "leave one of the two out")
        return follow(run, training, problems)
    if not on:
        return plain(run, training)
    configured = any(name.startswith("fsdp_config.") for name in run.found)  # without a table transformers' own default holds
    version = int(run.get("fsdp_version") or run.get("fsdp_config.version") or 1) if configured else 2
    if not run.said("fsdp_version") and not run.said("fsdp_config.version"):
        run.unsaid["fsdp_version"] = f"not said; FSDP {version}"
    if version == 1 and run.get("optimizer") == "muon":
        run.refuse("optimizer", "axolotl refuses Muon beside FSDP 1", "`fsdp_version: 2`")
    return sharded(run, training, version=version, groups=_groups(run))


def _groups(run: Arguments) -> Groups:
    """Copies, devices of one copy, and devices that matrices are split over: what is not said is filled up to the number of devices."""
    tp, rep, shard = (run.get(name) for name in ("tensor_parallel_size", "dp_replicate_size", "dp_shard_size"))
    tp, rep = tp or 1, rep or 1
    if run.world is None:
        return Groups(rep=rep, shard=shard, tp=tp)
    rest = run.world // tp
    if shard and rep == 1:
        rep = max(rest // shard, 1)
    shard = shard or max(rest // rep, 1)
    if rep * shard * tp != run.world:
        name = next((n for n in ("dp_shard_size", "dp_replicate_size", "tensor_parallel_size") if run.said(n)), "fsdp")
        run.refuse(name, f"{rep} * {shard} * {tp} is not {run.world}, the number of devices", "the sizes multiply to the number of devices")
    return Groups(rep=rep, shard=shard, tp=tp)


def _types(run: Arguments) -> tuple[str, str]:
    """In what operations compute where that is another type than that of the weights, and the type in which weights are loaded."""
    said = run.get("bf16")
    if said == "full":
        return "", "bf16"
    if said is True or run.get("bfloat16"):
        return "bf16", "bf16"
    if said == "auto" and not run.get("fp16"):
        run.say("bf16", "on, where a device has it; weights are loaded in bf16")
        return "bf16", "bf16"
    return ("fp16", "fp16") if run.get("fp16") else ("", "fp16" if run.get("float16") else "fp32")


def _training(run: Arguments) -> Training:
    mixed, loaded = _types(run)
    kernel = str(run.get("attn_implementation") or "")
    cast = bool(run.get("flash_attention")) or "flash" in kernel or bool(run.get("cut_cross_entropy"))
    norm = run.get("max_grad_norm")
    return Training(
        micro=run.get("micro_batch_size") or 1,
        steps=run.get("gradient_accumulation_steps") or 1,
        norm=1.0 if norm is None else norm,
        mixed=mixed,
        weights=loaded if cast or loaded == "fp32" else "",
        update=update(run, "optimizer", _UPDATES),
        recomputes=bool(run.get("gradient_checkpointing")),
        directions=_MUON if run.get("optimizer") == "muon" and not run.get("adapter") else None,
        names=_NAMES,
        loaded=loaded,
    )
