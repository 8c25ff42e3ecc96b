"""LLaMA-Factory's files of arguments: those of transformers' Trainer, and its own."""

from __future__ import annotations

from dataclasses import replace

from placeproof.core.diagnostics import Problems
from placeproof.importers.adapters import frozen
from placeproof.importers.document import Document
from placeproof.importers.imported import Imported, Role
from placeproof.importers.meaning import together
from placeproof.importers.transformers.reader import built, forms, with_file
from placeproof.importers.transformers.training import Arguments, Training, adapted, finished, update
from placeproof.importers.transformers.updates import Directions

#: Muon of whole gradients; of tensors that are distributed it knows nothing (hiyouga/LLaMA-Factory: third_party/muon/muon.py).
_MUON = Directions(setting="use_muon", whole=("an update of whole matrices, of which every device makes the directions", Role.READ))


def read(document: Document, world: int | None, problems: Problems) -> Imported:
    """Read a file of LLaMA-Factory. ``world`` is the number of processes, which the program that starts them says."""
    if "dist_config" in document.data:
        message = "this is a file of LLaMA-Factory 1, which does not train with transformers' Trainer: it is not read"
        problems.add("PP504", message, place=document.place("dist_config"), help="give the strategy itself, as `fsdp(8)`")
        problems.raise_if_any()
    document = with_file(document, problems)
    run = Arguments(document, forms(document, "transformers", "llamafactory"), problems, world=world, loose=("fsdp_config",))
    imported = built(run, _training(run), problems)
    if run.get("finetuning_type") == "lora":
        imported = adapted(run, imported, "finetuning_type", "lora_rank", "lora_target", every="all")
    elif run.get("finetuning_type") == "freeze":
        imported = _frozen(run, imported)
    modules = _modules(run, "freeze_trainable_modules")
    facts = {
        "whole_layers": "all" in modules,
        "beside_all": {*modules} > {"all"},
        "further_modules": bool(_modules(run, "freeze_extra_modules")),
    }
    return replace(finished(run, imported, together("llamafactory", "transformers"), **facts), system="llamafactory")


def _modules(run: Arguments, name: str) -> list[str]:
    """The modules that a setting names, as a list or with commas between."""
    said = run.get(name)
    return [one.strip() for one in said.split(",") if one.strip()] if isinstance(said, str) else [*map(str, said or ())]


def _frozen(run: Arguments, imported: Imported) -> Imported:
    """Of the model's own parameters the last layers alone are trained (src/llamafactory/model/adapter.py, _setup_freeze_tuning)."""
    run.say("finetuning_type", "the last layers are trained, and all else is frozen; in which types these lie is not said")
    if run.said("freeze_trainable_layers"):
        run.note("freeze_trainable_layers", "so many of the last layers are trained", Role.READ)
    else:
        run.unsaid["freeze_trainable_layers"] = "not said; the default"
    return replace(frozen(imported, "ends", run.get("freeze_trainable_layers")), precision=None)


def _training(run: Arguments) -> Training:
    recomputes = not run.get("disable_gradient_checkpointing") or bool(run.get("gradient_checkpointing"))
    if "disable_gradient_checkpointing" not in run.found:
        run.unsaid["disable_gradient_checkpointing"] = "not said; LLaMA-Factory computes layers again in backward"
    if "per_device_train_batch_size" not in run.found:
        run.unsaid["per_device_train_batch_size"] = "not said; the default"
    if run.get("freeze_vision_tower") is None:
        run.unsaid["freeze_vision_tower"] = "not said; of a model with images the tower and the projector are frozen, which is not counted"
    if other := next((name for name in ("use_galore", "use_apollo", "use_muon", "use_adam_mini") if run.get(name)), None):
        run.note("optim", f"`{other}` stands in its place")
    return Training(
        directions=_MUON if other == "use_muon" and run.get("finetuning_type") == "full" else None,
        micro=run.get("per_device_train_batch_size"),
        steps=run.get("gradient_accumulation_steps"),
        norm=run.get("max_grad_norm"),
        mixed="" if run.get("pure_bf16") else "bf16" if run.get("bf16") else "fp16" if run.get("fp16") else "",
        weights="bf16" if run.get("pure_bf16") else "fp32",
        update=replace(update(run, "optim"), deepspeed="", strategy="") if other else update(run, "optim"),
        recomputes=recomputes,
        on_host=bool(run.get("use_unsloth_gc")),
        names={"gradient_checkpointing": "disable_gradient_checkpointing"},
    )
