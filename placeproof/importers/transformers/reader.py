"""Files of arguments of transformers' Trainer, as its HfArgumentParser takes them, TRL's among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from placeproof.core.diagnostics import Problems
from placeproof.core.files import read_text
from placeproof.importers.document import Document, read_document
from placeproof.importers.fields import Field
from placeproof.importers.imported import Imported, Reading, Role
from placeproof.importers.meaning import meaning
from placeproof.importers.settings import settings
from placeproof.importers.transformers.deepspeed import follow
from placeproof.importers.transformers.sharding import sharded
from placeproof.importers.transformers.training import TYPES, Arguments, Training, adapted, beside, finished, plain, update

#: Arguments that TRL's classes have beside those of transformers: where one is said, their defaults hold.
_TRL = (
    *("max_length", "max_seq_length", "packing", "dataset_text_field", "completion_only_loss", "assistant_only_loss", "eos_token"),
    *("beta", "loss_type", "max_prompt_length", "max_completion_length", "num_generations", "truncation_mode", "dataset_train_split"),
)


def read(document: Document, world: int | None, problems: Problems) -> Imported:
    """Read arguments of the Trainer. ``world`` is the number of processes, which the program that starts them says."""
    document = with_file(document, problems)
    run = Arguments(
        document, forms(document, "transformers", "transformers/programs"), problems, world=world, own=True, loose=("fsdp_config",)
    )
    if not any(name in run.found for field in settings("transformers") for name in field.names):
        place = document.place(next(iter(document.data), ""))
        problems.add(
            "PP501", "there is no argument of transformers' Trainer", place=place, help="for example `per_device_train_batch_size: 8`"
        )
    imported = built(run, _training(run), problems)
    if name := next((name for name in ("use_peft", "use_lora") if run.get(name)), None):
        imported = _with_dropout(run, adapted(run, imported, name, "lora_r", "lora_target_modules"))
    return finished(run, imported, meaning("transformers"))


def _with_dropout(run: Arguments, imported: Imported) -> Imported:
    """Where the file does not say whether what goes into adapters is masked, programs do it by default."""
    if run.said("lora_dropout"):
        return imported
    note = "not said; what goes into adapters is masked by default (TRL: 0.05)"
    unsaid = Reading(name="lora_dropout", value=None, role=Role.ANOTHER_STEP, note=note, told=True)
    return replace(imported, readings=(*imported.readings, unsaid))


def built(run: Arguments, training: Training, problems: Problems) -> Imported:
    """The strategy that `deepspeed` or `fsdp` says, or none of them."""
    if run.get("deepspeed"):
        if run.get("fsdp"):
            run.refuse("fsdp", "DeepSpeed and FSDP are both said, and one of them runs the model", "leave one of the two out")
        return follow(run, training, problems)
    if run.get("fsdp"):
        return sharded(run, training)
    for reading in run.readings:
        if reading.name.startswith("fsdp_config."):
            run.note(reading.name, "read with `fsdp` alone", Role.NO_MATTER, told=True)
    return plain(run, training)


def with_file(document: Document, problems: Problems) -> Document:
    """The document with the file that `fsdp_config` names in its place."""
    named = document.data.get("fsdp_config")
    if not (isinstance(named, str) and named and document.data.get("fsdp")):
        return document
    path = beside(named, document.source)
    if path is None:
        place = document.place("fsdp_config")
        problems.add(
            "PP501", f"there is no file `{named}`", place=place, help="it is looked for from here, and around the file that names it"
        )
        return document
    with problems.collecting():
        inner = read_document(read_text(path, code="PP501", help="give a file that can be read"), str(path), "json", problems)
        return replace(document, data={**document.data, "fsdp_config": inner.data})
    return document


def forms(document: Document, *systems: str) -> Iterator[Field]:
    """The settings of systems, and tables that a file may write as the path of another file."""
    for system in systems:
        yield from settings(system)
    for name in ("fsdp_config", "accelerator_config"):
        value: Any = document.data.get(name)
        if isinstance(value, str):
            note = "another file says it, which is not read here"
            yield Field(name=name, kinds=("text",), role=Role.ANOTHER_STEP, note=note)
        elif name in document.data and value is None:
            yield Field(name=name, kinds=("null",), role=Role.NO_MATTER, note="says nothing")


def _training(run: Arguments) -> Training:
    trl = next((name for name in _TRL if name in run.found), None)
    mixed = "fp16" if run.get("fp16") else "bf16" if run.get("bf16") else ""
    if trl and not mixed and run.get("bf16") is None:
        mixed = "bf16"
        run.unsaid["bf16"] = f"not said, and `{trl}` is TRL's: on, as TRL 1.16 has it"
    recomputes = run.get("gradient_checkpointing")
    if recomputes is None and trl:
        recomputes = True
        run.unsaid["gradient_checkpointing"] = f"not said, and `{trl}` is TRL's: on, as TRL 1.16 has it, and off in early versions"
    training = Training(
        micro=run.get("per_device_train_batch_size"),
        steps=run.get("gradient_accumulation_steps"),
        norm=run.get("max_grad_norm"),
        mixed=mixed,
        weights=TYPES.get(str(run.get("dtype")).lower(), ""),
        update=update(run, "optim"),
        recomputes=bool(recomputes),
    )
    if "per_device_train_batch_size" not in run.found:
        run.unsaid["per_device_train_batch_size"] = f"not said; the default, {training.micro} samples"
    return training
