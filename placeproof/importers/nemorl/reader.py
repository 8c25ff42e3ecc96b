"""NeMo RL's YAML: the training step of the policy, under FSDP 2 or Megatron-LM.

(NVIDIA-NeMo/RL@7ea279abfbeb:nemo_rl/models/policy/lm_policy.py and workers/*.py, distributed/batched_data_dict.py, algorithms/*.py)

What generates samples, rewards them, or says how likely they are runs between steps, and a critic has a step of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from math import prod
from operator import add, mul, truediv
from typing import Any

from placeproof.core.diagnostics import Problems
from placeproof.importers.asked import Known
from placeproof.importers.document import Document
from placeproof.importers.fields import Field, Reader
from placeproof.importers.imported import Imported, Reading, Role
from placeproof.importers.meaning import meaning
from placeproof.importers.nemorl import dtensor, megatron
from placeproof.importers.nemorl.inherited import inherited
from placeproof.importers.nemorl.run import CLUSTER, COLOCATED, DTENSOR, MEGATRON, POLICY, Run
from placeproof.importers.omegaconf import followed
from placeproof.importers.settings import settings

#: Functions that values may call (nemo_rl/utils/config.py).
_FUNCTIONS: dict[str, Callable[..., Any]] = {"add": add, "mul": mul, "div": truediv, "max": max}
#: The tables of programs; of pairs of samples, one that is preferred and one that is not, the last two.
_PROGRAMS = ("grpo", "ppo", "distillation", "sft", "dpo", "rm")
_OF_PAIRS = ("dpo", "rm")
#: Programs whose batches are cut into steps, and those whose samples the policy makes.
_CUT = ("grpo", "ppo")
_GENERATING = (*_CUT, "distillation")
_DEGREES = {
    "dtensor": ("tensor_parallel_size", "context_parallel_size"),
    "megatron": ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"),
}
#: Settings that NeMo RL looks up, and has no default for.
_ASKED = {
    "dtensor": (
        *(POLICY + name for name in ("max_grad_norm", "optimizer.name")),
        *(DTENSOR + name for name in (*_DEGREES["dtensor"], "sequence_parallel", "activation_checkpointing", "cpu_offload")),
    ),
    "megatron": tuple(
        MEGATRON + name
        for name in (
            *_DEGREES["megatron"], "expert_tensor_parallel_size", "expert_model_parallel_size", "sequence_parallel",
            "activation_checkpointing", "freeze_moe_router", "moe_router_load_balancing_type", "moe_token_dispatcher_type",
            "optimizer.use_distributed_optimizer", "distributed_data_parallel_config.grad_reduce_in_fp32",
        )
    ),
}  # fmt: skip
_ALWAYS = (
    *(CLUSTER + name for name in ("gpus_per_node", "num_nodes")),
    *(POLICY + name for name in ("model_name", "train_global_batch_size", "train_micro_batch_size", "precision")),
    *(POLICY + name for name in ("dynamic_batching.enabled", "sequence_packing.enabled")),
)
_TEACHERS = tuple("on_policy_distillation." + name for name in ("enabled", "non_colocated_teachers.enabled"))
_REWARDS = "env.reward_model.resources."
_OVER = "say it, or lay the file over one of NeMo RL's own with `defaults`"
#: So many settings that are missing are named.
_SHOWN = 6


def read(document: Document, world: int | None, problems: Problems) -> Imported:
    """Read settings of NeMo RL, and the files that they are laid over. ``world``: devices that train, in place of what they say."""
    whole = inherited(document, problems)
    problems.raise_if_any()
    reader = _reader(followed(whole, _FUNCTIONS, problems=problems), problems)
    program, backend = _program(reader), "megatron" if reader.get(MEGATRON + "enabled") else "dtensor"
    _ask(reader, program, backend)
    known = Known(reader, meaning("nemorl"))
    said = _size(reader, program, world)
    if said is None:
        return Imported(system="nemorl", source=document.source, expression="", readings=())
    step = _step(reader, program, backend, world or said)
    for name, value in _facts(reader, program, backend, step, said).items():
        known.put(name, value)
    types, precision = dtensor.precision(reader)
    known.put("types", types)
    known.derive()
    known.check()
    if problems.found:
        return Imported(system="nemorl", source=document.source, expression="", readings=())
    on_megatron = backend == "megatron"
    imported = megatron.built(reader, step, problems, routed=known["routed"]) if on_megatron else dtensor.built(reader, step)
    numbers = {"b": step.micro, "m": step.m}
    return replace(
        imported,
        source=document.source,
        precision=imported.precision if on_megatron else precision,
        readings=_readings(known, imported.readings),
        numbers={name: Fraction(value) for name, value in numbers.items() if value is not None},
    )


def _reader(document: Document, problems: Problems) -> Reader:
    """The settings. NeMo RL looks them up by their names: what it does not know it passes over.

    Raises InputError where something that matters is left open.
    """
    empty = [name for name in dict.fromkeys(name.partition(".")[0] for name in _ALWAYS) if document.data.get(name) is None]
    for name in empty:
        message = f"`{name}` says nothing, and NeMo RL stops without what it looks up there"
        problems.add("PP504", message, place=document.place(name), help=_OVER)
    if empty:
        problems.raise_if_any()
    tables = {name.rpartition(".")[0] for known in settings("nemorl") for name in known.names}
    around = {".".join(name.split(".")[:depth]) for name in tables for depth in range(len(name.split(".")))}
    reader = Reader(document, _fields(document), problems, passed_over=tables | around, as_written=False, unread=_unread(document))
    told = [problem.place for problem in problems.found]
    matters = [name for name in sorted(reader.open) if name in reader.fields and reader.fields[name].role is not Role.NO_MATTER]
    for name in matters:
        if document.place(*name.split(".")) not in told:
            reader.refuse(name, f"`{name}` is left open: {document.open[name]}", "write the value itself")
    if matters:
        problems.raise_if_any()
    return reader


def _unread(document: Document) -> dict[str, str]:
    """Tables of what does not run the model: NeMo RL looks at no more of them than whether it does."""
    policy = document.data.get("policy")
    tables = policy if isinstance(policy, Mapping) else {}
    others = {"megatron_cfg": "FSDP 2 runs the model", "dtensor_cfg": "Megatron-LM runs the model"}
    return {
        POLICY + name: why for name, why in others.items() if isinstance(table := tables.get(name), Mapping) and not table.get("enabled")
    }


def _fields(document: Document) -> Iterator[Field]:
    """The settings, and tables of which the document says nothing."""
    rows = settings("nemorl")
    yield from rows
    names = [name for known in rows for name in known.names]
    for name in _nothing(document.data):
        if any(one.startswith(f"{name}.") for one in names) and name not in names and name != "policy.dtensor_cfg":  # that has to be there
            yield Field(name=name, kinds=("null",), role=Role.NO_MATTER, note="says nothing")


def _nothing(table: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for key, value in table.items():
        if value is None:
            yield f"{before}{key}"
        elif isinstance(value, Mapping):
            yield from _nothing(value, f"{before}{key}.")


def _program(reader: Reader) -> str:
    """The program that reads the settings, by its table."""
    named = [name for name in _PROGRAMS if isinstance(reader.document.data.get(name), Mapping)]
    if len(named) != 1:
        shown = " and ".join(f"`{name}`" for name in named) or "none of " + ", ".join(f"`{name}`" for name in _PROGRAMS)
        place = named[-1] if named else next(iter(reader.document.data))
        reader.refuse(place, f"{shown}: which program reads this file is not clear", "one table of them says what is trained, and how")
    return named[0] if named else ""


def _ask(reader: Reader, program: str, backend: str) -> None:
    """Refuse what lacks a setting that NeMo RL looks up, and stops without."""
    asked = (*_ALWAYS, *_ASKED[backend], *((COLOCATED + "enabled",) if program in _GENERATING else ()))
    missing = [name for name in asked if name not in reader.found and reader.sound(name)]
    if missing and (reader.get(MEGATRON + "enabled") or reader.get(DTENSOR + "enabled")):
        rest = len(missing) - _SHOWN
        shown = ", ".join(f"`{name}`" for name in missing[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
        reader.refuse(missing[0], f"NeMo RL stops without {shown}: nothing of that is said", _OVER)


def _size(reader: Reader, program: str, world: int | None) -> int | None:
    """Devices that train, as the settings say; None where that is a problem. ``world``: so many train, whatever they say."""
    nodes, devices = reader.get(CLUSTER + "num_nodes"), reader.get(CLUSTER + "gpus_per_node")
    if program not in _GENERATING or world is not None:
        return int(nodes * devices)
    if all(map(reader.get, _TEACHERS)):
        message = "teachers have devices of their own, and how many are left to train is not read"
        reader.refuse(_TEACHERS[-1], message, "say it with `--world`")
        return None
    of_nodes, of_devices = (reader.get(_REWARDS + name) or 0 for name in ("num_nodes", "gpus_per_node"))
    if _rewarded(reader.document.data.get("data")):
        nodes, devices = (nodes, devices - of_devices) if nodes == 1 else (nodes - of_nodes, devices)
    if not reader.get(COLOCATED + "enabled"):
        nodes, devices = _apart(reader, nodes, devices)
    if nodes < 1 or devices < 1:
        reader.refuse(CLUSTER + "num_nodes", "no devices are left to train", "take more machines, or fewer for what runs beside")
        return None
    return int(nodes * devices)


def _rewarded(data: object) -> bool:
    """Whether a model of its own rewards samples (nemo_rl/data/datasets/utils.py, extract_necessary_env_names)."""
    tables = [data.get(name) for name in ("train", "validation", "default")] if isinstance(data, Mapping) else []
    rows = [row for table in tables for row in (table if isinstance(table, list) else [table])]
    return any(isinstance(row, Mapping) and row.get("env_name") == "reward_model" for row in rows)


def _apart(reader: Reader, nodes: int, devices: int) -> tuple[int, int]:
    """Machines and devices of each that are left where others generate samples."""
    nodes_name, devices_name = (COLOCATED + "resources." + name for name in ("num_nodes", "gpus_per_node"))
    of_nodes, of_devices = reader.get(nodes_name), reader.get(devices_name)
    if nodes == 1:
        if not of_devices or of_nodes not in (None, 1):
            reader.refuse(devices_name, "on one machine NeMo RL asks for the devices of it that generate samples", "`gpus_per_node: 4`")
        return nodes, devices - (of_devices or 0)
    if not of_nodes or of_devices != devices:
        message = f"NeMo RL asks for the machines that generate samples, each with all of its {devices} devices"
        reader.refuse(nodes_name, message, f"`num_nodes: 1` and `gpus_per_node: {devices}`")
    return nodes - (of_nodes or 0), devices


def _step(reader: Reader, program: str, backend: str, size: int) -> Run:
    """What a step is made of."""
    before = MEGATRON if backend == "megatron" else DTENSOR
    names = tuple(before + name for name in _DEGREES[backend])
    pairs = 2 if program in _OF_PAIRS else 1
    degrees = [reader.get(name) for name in names]
    copies, rest = divmod(size, prod(degrees))
    if rest or not copies:
        copies, name = 1, next((name for name in names if reader.get(name) > 1), names[0])
        if reader.sound(*names):
            shown = " * ".join(map(str, degrees))
            reader.refuse(name, f"{size} devices that train are no multiple of {shown}", "the degrees divide their number")
    samples, micro = (pairs * reader.get(POLICY + name) for name in ("train_global_batch_size", "train_micro_batch_size"))
    fitted = reader.get(POLICY + "dynamic_batching.enabled") or reader.get(POLICY + "sequence_packing.enabled")
    m = _parts(reader, samples, None if fitted else micro, copies) if not rest else None
    return Run(size=size, copies=copies, samples=samples, micro=None if fitted else micro, m=m)


def _parts(reader: Reader, samples: int, micro: int | None, copies: int) -> int | None:
    """Micro-batches of a step; None where they are open."""
    name = POLICY + "train_global_batch_size"
    own, rest = divmod(samples, copies)
    if rest:
        reader.refuse(name, f"{samples} samples of a step are no multiple of {copies} data-parallel devices", "take a multiple")
    elif micro is not None and own % micro:
        message = f"{own} samples of a device cannot be cut into micro-batches of {micro}"
        reader.refuse(POLICY + "train_micro_batch_size", message, f"choose a divisor of {own}")
    elif micro is not None:
        return own // micro
    return None


def _facts(reader: Reader, program: str, backend: str, step: Run, said: int) -> dict[str, Any]:
    """What no formula says."""
    on_megatron = backend == "megatron"
    tp, cp = (reader.get(name) for name in (MEGATRON + "tensor_model_parallel_size", MEGATRON + "context_parallel_size"))
    if not on_megatron:
        tp, cp = (reader.get(DTENSOR + name) for name in _DEGREES[backend])
    ep = reader.get(MEGATRON + "expert_model_parallel_size") if on_megatron else dtensor.sharers(reader)
    cut = program in _CUT
    return {
        "program": program,
        "backend": backend,
        "v2": not on_megatron and reader.get(DTENSOR + "_v2"),
        "world": step.size,
        "said_size": said,
        "tp": tp,
        "cp": cp,
        "pp": reader.get(MEGATRON + "pipeline_model_parallel_size") if on_megatron else 1,
        "ep": ep,
        "rep": 1 if on_megatron else dtensor.replicas(reader),
        "m": step.m or 0,
        "pairs": 2 if program in _OF_PAIRS else 1,
        "prompts": reader.get(f"{program}.num_prompts_per_step") if cut else 1,
        "answers": reader.get(f"{program}.num_generations_per_prompt") if cut else 1,
        "whole_batches": cut and not reader.get(f"{program}.async_{program}.enabled") and not reader.get("async_rl"),
        "update": str(reader.get(POLICY + "optimizer.name")).rpartition(".")[2],
        "frozen": any((reader.get(MEGATRON + "freeze_config") or {}).values()),
    }


def _readings(known: Known, told: tuple[Reading, ...]) -> tuple[Reading, ...]:
    """Each setting once; those that another reader has read, as that says it. And one that is not said, and whose default matters."""
    others = {reading.name: reading for reading in told}
    own = [others.pop(one.name, one) for one in known.readings()]
    unsaid = [MEGATRON + "optimizer.clip_grad"] if known["backend"] == "megatron" else []
    return (*own, *others.values(), *known.unsaid(*unsaid))
