"""NeMo Automodel's YAML: FSDP 2, DistributedDataParallel and Megatron-FSDP, with tensor, context, pipeline and expert parallelism.

(NVIDIA-NeMo/Automodel@36044ad3d139:nemo_automodel/components/distributed/mesh_utils.py and parallelizer.py, recipes/llm/train_ft.py)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.importers.adapters import ELSEWHERE, lora, targets
from placeproof.importers.asked import Known
from placeproof.importers.document import Document
from placeproof.importers.fields import Field, Reader
from placeproof.importers.fsdp import ADAM, in_types, on_host
from placeproof.importers.imported import Imported, Reading, Role, Sharing, balance_unsaid, expression, in_shards, misplaced, over_axes
from placeproof.importers.meaning import meaning
from placeproof.importers.settings import ANY, settings
from placeproof.importers.transformers.training import TYPES

_DIST, _PIPE, _PEFT = "distributed.", "distributed.pipeline.", "peft."
#: The pattern of modules that have adapters where none is said.
_EVERY = "*_proj"
_NAMED = "with a model adapters are counted beside all matrices of its layers, which most models name so; experts have other names"
_RECIPES = ("TrainFinetuneRecipeForNextTokenPrediction", "BenchmarkingRecipeForNextTokenPrediction")
_KINDS = {"megatron-fsdp": "megatron_fsdp", "mfsdp": "megatron_fsdp"}
#: What Megatron-FSDP shards -> as a strategy.
_SHARDED = {0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}
#: Schedules -> as the strategy `pp` names them. The others have orders of their own, which no data file here tells.
_ORDERS = {"1f1b": "1f1b", "gpipe": "gpipe", "interleaved1f1b": "interleaved"}
_SCHEDULES = (*_ORDERS, "loopedbfs", "dfs", "vschedule", "zerobubble", "interleavedzerobubble", "zbvzerobubble", "dualpipev")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What follows from the settings. ``dp``: data-parallel devices, None where they are open. ``m``: micro-batches of a step, ``passes``:
    runs of a pipeline, or of the model without one, None where they are open; ``parts``: micro-batches of one run of a pipeline."""

    kind: str
    tp: int
    cp: int
    pp: int
    ep: int
    rep: int
    dp: int | None
    passes: int | None
    parts: int
    order: str | None
    kept: bool

    @property
    def m(self) -> int | None:
        """Micro-batches of a step."""
        return self.passes and self.passes * self.parts


def read(document: Document, world: int | None, problems: Problems) -> Imported:
    """Read a recipe's settings. ``world``: the number of processes, which the program that starts them says."""
    reader = Reader(document, _fields(document), problems)
    recipe = _check_recipe(reader)
    facts = _facts(reader, world)
    precision, types = _precision(reader, facts)
    known = Known(reader, meaning("automodel"))
    for name in ("kind", "tp", "cp", "pp", "ep", "rep", "kept"):
        known.put(name, getattr(facts, name))
    known.put("several", facts.passes != 1)
    known.put("of_text", recipe in _RECIPES)
    known.put("types", types)
    known.put("order", facts.order or "")
    known.put("update", _name(reader, "optimizer._target_"))
    known.put("loss", _name(reader, "loss_fn._target_"))
    known.put("adapters", _name(reader, "peft._target_") if _adapters(reader) else "")
    step = _spread(reader, facts)
    adapters = _with_adapters(reader) if _adapters(reader) else {}
    known.derive()
    known.check()
    _check_experts(reader, facts)
    return Imported(
        system="automodel",
        source=document.source,
        expression=expression([*step, *adapters.items()]),
        readings=(
            *known.readings(),
            *([balance_unsaid()] if facts.ep > 1 else ()),
            *(_of_adapters(reader) if adapters else ()),
            *known.unsaid("clip_grad_norm.max_norm", "model.torch_dtype"),
        ),
        precision=None if adapters else precision,
        numbers=_numbers(reader, facts),
    )


def _fields(document: Document) -> Iterator[Field]:
    """The settings, tables of which a file says nothing, and keys of its own: Automodel asks for none that begins with an underscore."""
    yield from settings("automodel")
    for name in (str(key) for key in document.data if str(key).startswith("_")):
        yield Field(name=name, kinds=tuple(ANY.split()), role=Role.NO_MATTER, note="no name that Automodel reads; values may refer to it")
    inner = document.data.get("distributed")
    tables = dict.fromkeys(("clip_grad_norm", "compile", "peft", "fp8", "qat", "quantization", "freeze_config"), document.data)
    for name, table in {**tables, **({"pipeline": inner, "moe": inner, "mp_policy": inner} if isinstance(inner, Mapping) else {})}.items():
        if name in table and table[name] is None:
            path = name if table is document.data else _DIST + name
            yield Field(name=path, kinds=("null",), role=Role.NO_MATTER, note="says nothing")


def _check_recipe(reader: Reader) -> str:
    """The recipe that reads the file, empty where that is not said. Refuses others than those for language models."""
    said = reader.get("recipe")
    name = str(said.get("_target_", "") if isinstance(said, Mapping) else said or "").rpartition(".")[2]
    if said is not None and name not in _RECIPES:
        help = "ask about the strategy itself, as `fsdp(8)`"
        reader.refuse("recipe", f"`{name}` is another program than those for language models that are read here", help)
    return name


def _facts(reader: Reader, world: int | None) -> Facts:
    kind = str(reader.get(_DIST + "strategy")).lower()
    kind = _KINDS.get(kind, kind)
    tp, cp, pp, ep = (_size(reader, name) or 1 for name in ("tp_size", "cp_size", "pp_size", "ep_size"))
    dp = _devices(reader, world, {"tp_size": tp, "cp_size": cp, "pp_size": pp})
    rep = _size(reader, "dp_replicate_size") or 1
    if dp is not None and rep > 1 and (dp % rep or rep >= dp):
        reader.refuse(_DIST + "dp_replicate_size", f"{rep} copies of shards over {dp} data-parallel devices", f"a divisor of {dp} below it")
        rep = 1
    if kind != "fsdp2":
        for name, degree in {"dp_replicate_size": rep, "pp_size": pp, "ep_size": ep}.items():
            _alone(reader, kind, name, degree)
    if kind == "ddp":
        for name, degree in {"tp_size": tp, "cp_size": cp}.items():
            _alone(reader, kind, name, degree)
    parts = _parts_of_a_run(reader, pp)
    passes = _passes(reader, dp)
    said = reader.get(_DIST + ("moe.reshard_after_forward" if ep > 1 else "reshard_after_forward"))
    kept = not said if said is not None else pp > 1
    order = _order(reader, pp, parts)
    return Facts(kind=kind, tp=tp, cp=cp, pp=pp, ep=ep, rep=rep, dp=dp, passes=passes, parts=parts, order=order, kept=kept)


def _size(reader: Reader, name: str) -> int | None:
    """A degree, None where none is said."""
    said: Any = reader.get(_DIST + name)
    return int(said) if said not in (None, 0, "none", "None") else None


def _alone(reader: Reader, kind: str, name: str, degree: int) -> None:
    if degree > 1:
        reader.refuse(_DIST + name, f"Automodel has no such degree beside `{kind}`", "leave it out, or take `fsdp2`")


def _devices(reader: Reader, world: int | None, degrees: Mapping[str, int]) -> int | None:
    """Data-parallel devices."""
    said, others = _size(reader, "dp_size"), prod(degrees.values())
    if world is None or not reader.sound(*(_DIST + name for name in (*degrees, "dp_size"))):
        return said
    if said is None and world % others == 0:
        return world // others
    if said is not None and said * others == world:
        return said
    shown = " * ".join(str(degree) for degree in ((said,) if said else ()) + tuple(degrees.values()))
    place = next((name for name in ("dp_size", *degrees) if reader.said(_DIST + name)), "strategy")
    reader.refuse(_DIST + place, f"{shown} is not {world}, the number of devices, nor a divisor", "the degrees multiply to it")
    return None


def _parts_of_a_run(reader: Reader, pp: int) -> int:
    """Micro-batches of one run of a pipeline."""
    if pp == 1:
        return 1
    local, size = reader.get("step_scheduler.local_batch_size") or 1, reader.get(_PIPE + "pp_microbatch_size")
    name = _PIPE + "pp_microbatch_size"
    table = reader.document.data.get("distributed")
    if not isinstance(table, Mapping) or table.get("pipeline") is None:
        message = "there is a pipeline, and no table `pipeline` says how it runs"
        reader.refuse(_DIST + "pp_size", message, "add `pipeline: {}`, or more")
    if local % size:
        reader.refuse(name, f"a batch of {local} samples cannot be cut into parts of {size}", "choose a divisor of it")
        return 1
    if local // size < pp:
        reader.refuse(
            name, f"{local // size} micro-batches are fewer than {pp} stages, which Automodel refuses", "make micro-batches smaller"
        )
    return int(local // size)


def _passes(reader: Reader, dp: int | None) -> int | None:
    """Passes over the local batch before an update; None where they are open."""
    total, local = reader.get("step_scheduler.global_batch_size"), reader.get("step_scheduler.local_batch_size")
    if total is None or local is None or dp is None:
        return None
    if total % (local * dp):
        message = f"a step of {total} samples is no multiple of {local} samples on each of {dp} data-parallel devices"
        reader.refuse("step_scheduler.global_batch_size", message, f"a multiple of {local * dp}")
        return None
    return int(total // (local * dp))


def _order(reader: Reader, pp: int, parts: int) -> str | None:
    """The schedule as the strategy `pp` names it; None for what it has not, or where it is open how many runs of layers a device has."""
    said = str(reader.get(_PIPE + "pp_schedule") or "1f1b").lower().replace("_", "")
    if pp > 1 and said not in _SCHEDULES:
        help = suggestion(said, _SCHEDULES) or "one of " + ", ".join(_SCHEDULES)
        reader.refuse(_PIPE + "pp_schedule", f"`{said}` is no schedule of torch's pipelines", help, "PP503")
    order = _ORDERS.get(said)
    uneven = reader.said(_PIPE + "layers_per_stage") or reader.said(_PIPE + "module_fqns_per_model_part")
    return None if order == "interleaved" and (uneven or parts % pp) else order


def _spread(reader: Reader, facts: Facts) -> list[tuple[str, Mapping[str, object]]]:
    """The strategies over all axes."""
    attention = None if _attention(reader, facts) == "te" else "gather"
    return over_axes(_parts(reader, facts), tokens=facts.cp, attention=attention, experts=facts.ep)


def _attention(reader: Reader, facts: Facts) -> object:
    """What attends. Where a file does not say it, models with experts over devices take Transformer Engine if they can."""
    said = reader.get("model.backend.attn")
    return "te" if said is None and facts.ep > 1 else said


def _parts(reader: Reader, facts: Facts) -> dict[str, dict[str, object]]:
    parts = _data(reader, facts)
    if facts.tp > 1:
        parts["tp"] = {"tp": facts.tp}
        if reader.get(_DIST + "sequence_parallel"):
            parts["sp"] = {"tp": facts.tp}
    if facts.pp > 1:
        rounds = {"schedule": facts.order, "chunks": 2 if facts.order == "interleaved" else None}
        parts["pp"] = {"pp": facts.pp, **(rounds if facts.order not in (None, "1f1b") else {})}
    if not parts:
        parts["ddp"] = {"dp": 1}
    if reader.get(_DIST + "activation_checkpointing") in (True, "full"):
        parts["checkpoint"] = {}
    if facts.passes != 1 and facts.pp == 1:
        parts["accumulate"] = {"microbatches": facts.passes}
    parts["clip"] = {}  # by a limit of 0, too: nothing is left then
    return parts


def _data(reader: Reader, facts: Facts) -> dict[str, dict[str, object]]:
    """What is sharded over data-parallel devices."""
    if facts.kind == "ddp":
        return {"ddp": {"dp": facts.dp}} if facts.dp != 1 else {}
    if facts.kind == "megatron_fsdp":
        name = _SHARDED[reader.get(_DIST + "zero_dp_strategy")]
        return {name: {"dp": facts.dp}} if facts.dp != 1 or facts.cp > 1 else {}
    options: dict[str, object] = {"reshard_after_forward": False} if facts.kept else {"prefetch": True} if facts.ep == 1 else {}
    shard = facts.dp and max(facts.dp // facts.rep // facts.ep, 1)
    return in_shards(facts.rep, shard, options, on_host=_on_host(reader, facts), tokens=facts.cp * facts.ep)


def _on_host(reader: Reader, facts: Facts) -> bool:
    """Whether the strategy says that shards lie in host memory."""
    name = _DIST + "offload_policy"
    if reader.get(name) is None:
        return False
    return on_host(reader, name, modelled=facts.rep == 1 and not facts.kept)


def _check_experts(reader: Reader, facts: Facts) -> None:
    """What no strategy says of experts: Automodel takes their devices from those of data, context and tensor parallelism."""
    name = _DIST + "ep_size"
    if facts.ep == 1 or facts.kind != "fsdp2":
        return
    if facts.rep > 1:
        reader.refuse(name, "experts over devices beside copies of shards: no strategy says that", "leave `dp_replicate_size` out")
    elif complaint := misplaced(facts.ep, facts.dp, context=facts.cp, tensor=facts.tp):
        reader.refuse(name, *complaint)
    elif facts.tp > 1:
        reader.refuse(name, "experts over devices beside tensor parallelism are not read from here", "ask about the strategy itself")
    else:
        reader.note(name, f"{Sharing(rest=facts.ep).note('the shards')}; one gathered unit is counted", told=True)


def _adapters(reader: Reader) -> bool:
    """Whether adapters are trained."""
    return isinstance(reader.document.data.get("peft"), Mapping)


def _with_adapters(reader: Reader) -> dict[str, dict[str, object]]:
    """The strategy of adapters. Of patterns those are known that name matrices by their last names."""
    word = None
    if not reader.get(_PEFT + "match_all_linear") and not reader.get(_PEFT + "exclude_modules"):
        said = reader.get(_PEFT + "target_modules") or _EVERY
        patterns = [said] if isinstance(said, str) else said
        word = targets([one if one == _EVERY else str(one).removeprefix("*").removeprefix(".") for one in patterns], _EVERY)
        if _EVERY in patterns and reader.said(_PEFT + "target_modules"):
            reader.note(_PEFT + "target_modules", _NAMED, told=True)
    if word is None:
        for name in ("target_modules", "exclude_modules", "match_all_linear"):
            if reader.get(_PEFT + name):
                reader.note(_PEFT + name, ELSEWHERE, Role.NOT_MODELLED)
    return lora(reader.get(_PEFT + "dim"), word)


def _of_adapters(reader: Reader) -> Iterator[Reading]:
    """What is not said of them."""
    if not any(reader.get(_PEFT + name) for name in ("target_modules", "exclude_modules", "match_all_linear")):
        yield Reading(name=_PEFT + "target_modules", value=_EVERY, role=Role.READ, note=f"not said; the default: {_NAMED}", told=True)
    if not reader.said(_PEFT + "dim"):
        yield Reading(name=_PEFT + "dim", value=reader.get(_PEFT + "dim"), role=Role.READ, note="not said; the default", told=True)
    if reader.get(_PEFT + "use_memory_efficient_lora") is not False:
        note = "MLPs with adapters compute their activation again in backward, where no dropout is between: less is kept than is counted"
        yield Reading(name=_PEFT + "use_memory_efficient_lora", value=True, role=Role.NOT_MODELLED, note=note)


def _numbers(reader: Reader, facts: Facts) -> dict[str, Fraction]:
    local = reader.get("step_scheduler.local_batch_size")
    numbers = {} if local is None else {"b": Fraction(local, facts.parts)}
    return numbers | ({"m": Fraction(facts.m)} if facts.m is not None else {})


def _name(reader: Reader, setting: str) -> str:
    """The last name of what Python is asked to call."""
    return str(reader.get(setting) or "").rpartition(".")[2]


def _precision(reader: Reader, facts: Facts) -> tuple[str | None, str]:
    """The named precision, and what is kept, gathered and reduced in which types."""
    said = str(reader.get("model.torch_dtype") or "auto")
    kept = TYPES.get(said, "")
    adam = _name(reader, "optimizer._target_") in ("Adam", "AdamW") and not reader.get("fp8.enabled")
    named = ADAM.get(kept) if adam else None
    held = kept or "the type that the checkpoint has"
    if facts.kind == "ddp":
        return named, f"weights, gradients and the state of the update in {held}"
    if facts.kind == "megatron_fsdp":
        return None, f"weights in {held}; what Megatron-FSDP keeps beside them is not said"
    used = TYPES.get(str(reader.get(_DIST + "mp_policy.param_dtype") or "bf16"), "")
    reduced = TYPES.get(str(reader.get(_DIST + "mp_policy.reduce_dtype") or "fp32"), "")
    if kept and kept == used == reduced:
        return named, f"weights, gradients and the state of the update in {held}"
    return None, in_types(held, used or "?", reduced or "?", named)
