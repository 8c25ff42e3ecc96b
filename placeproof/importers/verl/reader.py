"""verl's overrides and files: the training step of the actor (verl==0.9.1:workers/engine_workers.py, workers/engine/*/transformer_impl.py).

What generates samples, rewards them, or says how likely they are runs between steps, and a critic has a step of its own.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from typing import Any

from placeproof.core.diagnostics import Problems
from placeproof.core.places import KeyPath
from placeproof.importers.asked import Known
from placeproof.importers.document import Document
from placeproof.importers.fields import Reader
from placeproof.importers.imported import Imported, Reading, Role
from placeproof.importers.meaning import meaning
from placeproof.importers.omegaconf import followed
from placeproof.importers.settings import settings
from placeproof.importers.verl import fsdp, megatron
from placeproof.importers.verl.run import ACTOR, FSDP, MEGATRON, MODEL, Run

#: Files of settings that come with verl, and what runs the model in them.
_FILES = {"ppo_trainer": "fsdp", "ppo_megatron_trainer": "megatron"}
_ENGINES = {"dp": "fsdp", "megatron": "megatron"}
#: Tables in which verl itself refuses a name that it does not know.
_STRICT = (ACTOR, MODEL)
#: What no file of verl's settings has under FSDP, and its workers read: an override has to add it.
_ABSENT = tuple(FSDP + name for name in ("mixed_precision", "wrap_policy.disable", "wrap_policy.transformer_layer_cls_to_wrap"))
_UNSAID = ("trainer.nnodes", "trainer.n_gpus_per_node")
_CRITICS = ("gae",)


class Settings(Reader):
    """Settings. One that an override adds is the program's own, where verl does not refuse it; one that is left open has its default."""

    def get(self, name: str) -> Any:
        """What was said, or the default of the table."""
        return self.fields[name].default if name in self.fields and self.name(name) in self.open else super().get(name)

    def _unknown(self, key: str, value: Any, path: KeyPath, here: KeyPath) -> None:
        name = ".".join(map(str, here))
        if name not in (self.document.added or ()) or name.startswith(_STRICT):
            super()._unknown(key, value, path, here)
            return
        note = "a setting that is added: what the program does with it is not known"
        self.readings.append(Reading(name=name, value=value, role=Role.ANOTHER_STEP, note=note, place=self.document.place(*here)))


def read(document: Document, world: int | None, problems: Problems) -> Imported:
    """Read settings of verl. ``world``: the number of devices, in place of what they say themselves."""
    run = Settings(followed(document), settings("verl"), problems)
    for name in sorted(run.open):
        row = run.fields.get(name)
        if row is not None and row.role is Role.READ:
            run.refuse(name, f"`{name}` is left open: {run.document.open[name]}", "write the value itself")
    _overrides(run)
    backend = _backend(run)
    known = Known(run, meaning("verl"))
    size = world or run.get("trainer.nnodes") * run.get("trainer.n_gpus_per_node")
    known.put("world", size)
    known.put("said_size", run.get("trainer.nnodes") * run.get("trainer.n_gpus_per_node"), *_UNSAID)
    known.put("backend", backend)
    known.put("critic", _critic(run))
    devices = _copies(run, backend, size)
    step = Run(
        size=size, samples=run.get(ACTOR + "ppo_mini_batch_size") * run.get("actor_rollout_ref.rollout.n"), micro=_micro(run, devices)
    )
    m = _steps(run, step, devices)
    known.put("m", m or 0)
    known.derive()
    known.check()
    if problems.found:
        return Imported(system="verl", source=document.source, expression="", readings=())
    if backend == "megatron":
        imported = megatron.built(run, step, m, problems, routed=not known.get("dense_model"))
    else:
        imported = fsdp.built(run, step, m, problems)
    numbers = {"b": step.micro, "m": m}
    return replace(
        imported,
        system="verl",
        source=document.source,
        readings=(*_readings(run, known, imported.readings), *known.unsaid(*_told(run, backend))),
        numbers={name: Fraction(value) for name, value in numbers.items() if value is not None},
    )


def _readings(run: Settings, known: Known, told: tuple[Reading, ...]) -> tuple[Reading, ...]:
    """Each setting once; those that another reader has read, as that says it."""
    others = {reading.name: reading for reading in told}
    own = [others.pop(one.name, one) for one in known.readings()]
    return (*own, *others.values())


def _told(run: Settings, backend: str) -> tuple[str, ...]:
    """Settings whose defaults matter."""
    own = (ACTOR + "optim.clip_grad",) if backend == "megatron" or not run.said(ACTOR + "grad_clip") else ()
    of_fsdp = () if backend == "megatron" else (FSDP + "model_dtype", MODEL + "enable_gradient_checkpointing")
    return ("algorithm.adv_estimator", *_UNSAID, ACTOR + "loss_agg_mode", *of_fsdp, *own)


def _overrides(run: Settings) -> None:
    """Refuse overrides of what there is not to override."""
    added = run.document.added
    for name in run.found:
        parents = {name, *accumulate(name.split("."), "{}.{}".format)}
        if added is not None and not parents.isdisjoint(_ABSENT) and parents.isdisjoint(added):
            message = f"verl's own settings have no `{name}`, and Hydra refuses to override what there is not"
            run.refuse(name, message, f"add it: `+{name}=...`")


def _backend(run: Settings) -> str:
    """What runs the model: fsdp, fsdp2 or megatron."""
    said = run.get(ACTOR + "strategy")
    engine = "fsdp"
    for item in run.get("defaults") or ():
        name = str(item).removesuffix(".yaml")
        if name in _FILES:
            engine = _FILES[name]
        elif name != "_self_":
            message = f"`{name}` is a file of settings of the program's own, or a choice of some, which is not read here"
            run.refuse("defaults", message, "give that file itself, with the settings of the command line in it")
    if run.said("model_engine"):
        engine = _ENGINES.get(run.get("model_engine"), run.get("model_engine"))
    backend = str(said or engine)
    if backend not in ("fsdp", "fsdp2", "megatron"):
        name = ACTOR + "strategy" if said else "model_engine"
        run.refuse(name, f"`{backend}` runs the model, which is not read from here", "ask about the strategy itself, as `fsdp(8)`")
    return backend


def _critic(run: Settings) -> bool:
    """Whether a critic is trained (verl==0.9.1:trainer/ppo/utils.py, need_critic)."""
    said = run.get("critic.enable")
    return bool(said) if said is not None else run.get("algorithm.adv_estimator") in _CRITICS


def _copies(run: Settings, backend: str, size: int) -> int:
    """Data-parallel devices, or groups of devices that share samples."""
    names: tuple[str, ...] = (ACTOR + "ulysses_sequence_parallel_size",)
    if backend == "megatron":
        names = tuple(MEGATRON + f"{name}_parallel_size" for name in ("tensor_model", "pipeline_model", "context"))
    degrees = [run.get(name) for name in names]
    product = 1
    for degree in degrees:
        product *= degree or 1
    if not run.sound(*names):
        return 1
    if size % product:
        name = next((name for name in names if run.said(name)), names[0])
        shown = " * ".join(map(str, degrees))
        run.refuse(name, f"{size} devices are no multiple of {shown}", "the degrees divide the number of devices")
        return 1
    return size // product


def _micro(run: Settings, devices: int) -> int | None:
    """Samples of one forward pass of a device."""
    own, older = run.get(ACTOR + "ppo_micro_batch_size_per_gpu"), run.get(ACTOR + "ppo_micro_batch_size")
    if run.get(ACTOR + "use_dynamic_bsz"):
        return None
    if own is not None and older is not None:
        run.refuse(ACTOR + "ppo_micro_batch_size", "micro-batches are said for each device and for all of them", "keep `..._per_gpu`")
    if own is not None:
        return int(own)
    if older is None:
        if run.sound(ACTOR + "ppo_micro_batch_size_per_gpu"):
            help = f"say `{ACTOR}ppo_micro_batch_size_per_gpu`, or `{ACTOR}use_dynamic_bsz=true`"
            run.refuse(ACTOR + "ppo_mini_batch_size", "verl asks for the size of a micro-batch, and it is not said", help)
        return None
    if older < devices:
        run.refuse(ACTOR + "ppo_micro_batch_size", f"{older} samples do not reach {devices} devices", f"at least {devices}")
        return None
    return int(older) // devices


def _steps(run: Settings, step: Run, devices: int) -> int | None:
    """Micro-batches of a step; None where they are open."""
    name = ACTOR + "ppo_mini_batch_size"
    if not run.sound(name, "actor_rollout_ref.rollout.n", ACTOR + "ppo_micro_batch_size_per_gpu", ACTOR + "ppo_micro_batch_size"):
        return None
    own, rest = divmod(step.samples, devices)
    if rest:
        message = f"{step.samples} samples of a step (prompts * samples of each) are no multiple of {devices} data-parallel devices"
        run.refuse(name, message, "take a multiple")
        return None
    if step.micro is None:
        return None
    if own % step.micro:
        place = ACTOR + ("ppo_micro_batch_size_per_gpu" if run.said(ACTOR + "ppo_micro_batch_size_per_gpu") else "ppo_micro_batch_size")
        run.refuse(place, f"{own} samples of a device cannot be cut into micro-batches of {step.micro}", f"choose a divisor of {own}")
        return None
    return own // step.micro
