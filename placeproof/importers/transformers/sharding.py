"""FSDP under transformers' Trainer (transformers==5.24.0:training_args.py, _process_fsdp_args; accelerate==1.15.0:utils/dataclasses.py)."""

from __future__ import annotations

from dataclasses import dataclass

from placeproof.importers.accelerate.reader import UNWRAPPED
from placeproof.importers.fsdp import on_host
from placeproof.importers.imported import Imported, Role, in_shards
from placeproof.importers.transformers.training import Arguments, Parts, Training, directed, in_one_type, recomputation, whole

_CONFIG = "fsdp_config."
_HYBRID = ("hybrid_shard", "hybrid_shard_zero2")
_STRATEGIES = ("full_shard", "shard_grad_op", "no_shard", *_HYBRID)


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Copies, the devices that one copy is sharded over, None where that is open, and those that matrices are split over."""

    rep: int = 1
    shard: int | None
    tp: int = 1


def sharded(run: Arguments, training: Training, *, version: int | None = None, groups: Groups | None = None) -> Imported:
    """FSDP over all devices, or in groups, as `fsdp` and `fsdp_config` say it. ``version``: where the launcher says it elsewhere."""
    version = _version(run) if version is None else version
    parts = _parts(run, training, version, groups or Groups(shard=run.world))
    if run.get(_CONFIG + "activation_checkpointing"):
        if training.recomputes:
            message = "FSDP's own checkpointing and the Trainer's cannot both be on: transformers refuses that"
            run.refuse(_CONFIG + "activation_checkpointing", message, "keep this one")
        parts["checkpoint"] = {}
    elif training.recomputes:
        name = training.name("gradient_checkpointing")
        run.say(name, "layers are computed again; transformers says that each is gathered once more for that, which is not counted")
        parts |= recomputation(run, training)
    _accumulation(run, training)
    if (known := training.directions) is not None and known.parts is not None and version == 2 and "tp" not in parts:
        parts |= directed(run, known.setting, known.parts, matrices="exchanged")
    if training.rowwise and version == 2:
        said = [name for name in (training.name("optim"), "adafactor") if run.said(name)]
        message = (
            "transformers' Adafactor adds parts of matrices, as FSDP 2 has them (DTensors), to sums that are none, and PyTorch stops there"
        )
        run.refuse(said[0], message, "`adamw_torch`, or DistributedDataParallel, where each device has whole matrices")
    return whole(run, training, parts, _precision(run, training))


def _accumulation(run: Arguments, training: Training) -> None:
    """When FSDP reduces gradients: after the last micro-batch, unless told otherwise (transformers==5.24.0:trainer.py, `no_sync`)."""
    each = "accelerator_config.gradient_accumulation_kwargs.sync_each_batch"
    if each in run.fields and run.get(each):
        run.note(each, "gradients are reduced after every micro-batch, as in the formulas", Role.READ)
    elif training.steps > 1:
        note = "the Trainer lets FSDP add up whole gradients, and reduces them after the last micro-batch: more memory, and less traffic"
        run.note("gradient_accumulation_steps", note, Role.NOT_MODELLED)


def _version(run: Arguments) -> int:
    name = _CONFIG + "version"
    if run.said(name):
        return int(run.get(name))
    run.unsaid[name] = "not said; fully_shard (2), as transformers 5.24 has it: FSDP 1 in earlier versions, which gathers no unit early"
    return 2


def _options(run: Arguments) -> list[str]:
    """The words of `fsdp`, which versions before 5 say everything with."""
    said = run.get("fsdp")
    words = said.split() if isinstance(said, str) else [str(word) for word in said] if isinstance(said, list) else []
    for word in words:
        if word.lower() not in (*_STRATEGIES, "offload", "auto_wrap"):
            run.refuse("fsdp", f"`{word}` is no option of FSDP", "one of " + ", ".join((*_STRATEGIES, "offload", "auto_wrap")), "PP503")
    return [word.lower() for word in words]


def _parts(run: Arguments, training: Training, version: int, groups: Groups) -> Parts:
    words, options = _options(run), dict[str, object]()
    if _kept(run, version, words):
        options["reshard_after_forward"] = False
    policy = run.get(_CONFIG + "auto_wrap_policy")
    if policy == "NO_WRAP" or (policy == "SIZE_BASED_WRAP" and version == 1 and not run.get(_CONFIG + "min_num_params")):
        options.update(reshard_after_forward=False, unit="model")
        run.say(_CONFIG + "auto_wrap_policy", UNWRAPPED[version - 1])
    if _early(run, version):
        options["prefetch"] = True
    tensor: Parts = {"tp": {"tp": groups.tp}} if groups.tp > 1 else {}
    return {**in_shards(groups.rep, groups.shard, options, on_host=_on_host(run, training, words, groups, options)), **tensor}


def _on_host(run: Arguments, training: Training, words: list[str], groups: Groups, options: dict[str, object]) -> bool:
    """Whether the strategy says that shards lie in host memory."""
    name = training.name(_CONFIG + "cpu_offload")
    if groups.shard == 1 or not ("offload" in words or run.get(name)):
        return False
    place = name if run.said(name) else "fsdp"
    return on_host(run, place, modelled=groups.rep == 1 and "unit" not in options and "reshard_after_forward" not in options)


def _early(run: Arguments, version: int) -> bool:
    """Whether the next unit is gathered while this one computes."""
    backward, forward = (name if (name := _CONFIG + f"{way}_prefetch") in run.fields else "" for way in ("backward", "forward"))
    if version == 2:
        for name in (backward, forward):
            if name and run.said(name):
                run.note(name, "FSDP 2 does not read it: it gathers the next unit of backward early", Role.NO_MATTER, told=True)
        return True
    return bool(backward and str(run.get(backward)).upper() == "BACKWARD_PRE") or bool(forward and run.get(forward))


def _kept(run: Arguments, version: int, words: list[str]) -> bool:
    """Whether gathered parameters stay until backward."""
    name = _CONFIG + "reshard_after_forward"
    said = run.get(name)
    if said is None or (isinstance(said, str) and said.lower() == "full_shard" and version == 1):
        said = next((word for word in words if word in _STRATEGIES), "full_shard") if said is None else "full_shard"
        place = "fsdp"
    else:
        place = name
    if version == 2 and isinstance(said, str):
        said = {"full_shard": True, "shard_grad_op": False, "true": True, "false": False}.get(said.lower(), said)
    if version == 2 and isinstance(said, bool):
        return not said
    if version == 1 and str(said).lower() == "full_shard":
        return False
    if version == 2:
        help = "true or false; `fsdp_config: {version: 1}` if an older version runs it"
        run.refuse(place, f"transformers has `{said}` with FSDP 1 alone, and takes FSDP 2 unless told otherwise", help)
        return False
    message = f"`{said}` with FSDP 1: versions before 5 run it, and 5.24 hands it to Accelerate where FULL_SHARD stands before it"
    run.refuse(place, message, "take version 2, or ask about the strategy itself, as `fsdp(8, reshard_after_forward=false)`")
    return False


def _precision(run: Arguments, training: Training) -> str | None:
    """The named precision, where what FSDP holds is one."""
    name = training.name(training.mixed or "bf16")
    if training.mixed:
        run.say(name, training.shards)
        return None
    if not training.weights:
        run.say(name, "not in 16 bits; everything has the type in which the program loads the weights, which is not said")
        return None
    return in_one_type(training.update, training.weights)
