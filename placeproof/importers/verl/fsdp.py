"""The actor under FSDP 1 and 2 (verl==0.9.1:workers/engine/fsdp/transformer_impl.py and utils/fsdp_utils.py)."""

from __future__ import annotations

from typing import Any

from placeproof.core.diagnostics import Problems
from placeproof.importers.accelerate.reader import UNWRAPPED
from placeproof.importers.adapters import ELSEWHERE, lora, targets
from placeproof.importers.fields import Reader
from placeproof.importers.fsdp import ADAM, in_types, on_host
from placeproof.importers.imported import Imported, Role, expression, in_shards, over_axes
from placeproof.importers.transformers.training import TYPES
from placeproof.importers.verl.run import ACTOR, FSDP, MODEL, Run

_TOKENS = ACTOR + "ulysses_sequence_parallel_size"


def built(run: Reader, step: Run, m: int | None, problems: Problems) -> Imported:
    """The strategy. ``m``: micro-batches of a step, None where they are open."""
    second, tokens = run.get(ACTOR + "strategy") == "fsdp2", run.get(_TOKENS)
    rep, shard = _groups(run, step.size, tokens)
    options: dict[str, object] = {"prefetch": True}
    if not run.get(FSDP + "reshard_after_forward"):
        options = {"reshard_after_forward": False, **options}
    if run.get(FSDP + "wrap_policy.disable") and not second:
        options.update(reshard_after_forward=False, unit="model")
        run.note(FSDP + "wrap_policy.disable", UNWRAPPED[0], told=True)
    parts = in_shards(rep, shard, options, on_host=_on_host(run, second, rep, options), tokens=tokens) or {"ddp": {"dp": 1}}
    parts |= _recomputation(run)
    if m != 1:
        parts["accumulate"] = {"microbatches": m}
        _accumulation(run, rep)
    precision = _precision(run)
    if run.get(MODEL + "lora_rank"):
        parts |= _adapters(run)
        precision = None
    parts["clip"] = {}  # by a limit of 0, too: nothing is left then
    return Imported(
        system="verl",
        source=run.document.source,
        expression=expression(over_axes(parts, tokens=tokens, attention="ulysses")),
        readings=(),
        precision=precision,
    )


def _adapters(run: Reader) -> dict[str, dict[str, object]]:
    """Adapters of peft: all other parameters are frozen."""
    run.note(MODEL + "lora_rank", "the rank of adapters: r; the model's own parameters are frozen", told=True)
    said = run.get(MODEL + "target_modules")
    word = targets([said] if isinstance(said, str) else [*map(str, said or ())], "all-linear")
    others = [name for name in ("exclude_modules", "target_parameters") if run.get(MODEL + name)]
    for name in (*others, *(() if word else ("target_modules",))):
        run.note(MODEL + name, ELSEWHERE, Role.NOT_MODELLED)
    return lora(run.get(MODEL + "lora_rank"), None if others else word)


def _groups(run: Reader, size: int, tokens: int) -> tuple[int, int]:
    """Copies, and the devices with samples of their own that one copy is sharded over."""
    name, said = FSDP + "fsdp_size", run.get(FSDP + "fsdp_size")
    if said < 0 or said >= size:
        return 1, size // tokens
    if said == 0 or size % said:
        run.refuse(name, f"{size} devices are no multiple of {said}", "-1, or a divisor of the number of devices")
        return 1, size
    if said % tokens:
        message = f"a copy is sharded over {said} devices, and a sample is split over {tokens}: no strategy says such groups"
        run.refuse(name, message, f"take a multiple of {tokens}")
        return 1, size
    return size // said, said // tokens


def _on_host(run: Reader, second: bool, rep: int, options: dict[str, object]) -> bool:
    """Whether the strategy says that shards lie in host memory."""
    name = FSDP + "offload_policy"
    if not run.get(name):
        return False
    if not second:
        run.note(name, "FSDP 1 does not read it", Role.NO_MATTER, told=True)
        return False
    return on_host(run, name, modelled=rep == 1 and "reshard_after_forward" not in options)


def _recomputation(run: Reader) -> dict[str, dict[str, object]]:
    name = MODEL + "enable_activation_offload"
    if not run.get(MODEL + "enable_gradient_checkpointing"):
        if run.get(name):
            run.note(name, "activations lie in host memory; counted as if on the device", Role.NOT_MODELLED)
        return {}
    return {"checkpoint": {"checkpoints": "host"} if run.get(name) else {}}


def _accumulation(run: Reader, rep: int) -> None:
    """What FSDP exchanges after each micro-batch."""
    name = FSDP + "use_no_sync_for_gradient_accumulation"
    if run.get(name):
        note = "whole gradients are added up, and reduced after the last micro-batch: more memory, and less traffic"
        run.note(name, note, Role.NOT_MODELLED)
    elif rep > 1:
        note = "copies; they all-reduce gradients after each micro-batch, the formulas after the last"
        run.note(FSDP + "fsdp_size", note, Role.NOT_MODELLED)


def _precision(run: Reader) -> str | None:
    """The named precision, and what is kept, gathered and reduced in which types."""
    mixed = any(name.startswith(FSDP + "mixed_precision.") for name in run.found)
    kept = _type(run, "model_dtype")
    used = _type(run, "mixed_precision.param_dtype") if mixed else _type(run, "dtype")
    reduced = _type(run, "mixed_precision.reduce_dtype")
    adam = str(run.get(ACTOR + "optim.optimizer") or "AdamW") in ("Adam", "AdamW") and not _narrow(run)
    named = ADAM.get(kept) if adam else None
    if kept == used == reduced and adam:
        return named
    run.note(FSDP + "model_dtype", in_types(kept, used, reduced, named), told=True)
    return None


def _narrow(run: Reader) -> bool:
    return str(run.get(ACTOR + "optim.optimizer_impl")) != "torch.optim"


def _type(run: Reader, name: str) -> str:
    said: Any = run.get(FSDP + name)
    return TYPES[str(said)]
