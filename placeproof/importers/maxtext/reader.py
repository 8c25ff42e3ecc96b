"""MaxText's files and overrides: axes within a slice (`ici`) and between slices (`dcn`), whose degrees are multiplied.

(AI-Hypercomputer/maxtext@e591f30cbbf2:src/maxtext/configs/base.yml and types.py, utils/max_utils.py)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

from placeproof.core.diagnostics import Problems
from placeproof.importers.asked import Known
from placeproof.importers.document import Document
from placeproof.importers.fields import Reader
from placeproof.importers.fsdp import ADAM
from placeproof.importers.imported import Imported, Reading, balance_unsaid, clips, expression, in_shards, over_axes, unless_usual
from placeproof.importers.meaning import meaning
from placeproof.importers.settings import settings
from placeproof.importers.transformers.training import TYPES

#: The axes that strategies have, as settings call them.
_AXES = ("data", "fsdp", "context", "tensor_sequence", "expert")
_ATTENTION = {"all_gather": "gather", "ring": "ring", "ulysses": "ulysses"}


@dataclass(frozen=True, kw_only=True)
class Degrees:
    """Devices along each axis."""

    data: int
    fsdp: int
    context: int
    tensor_sequence: int
    expert: int

    @property
    def batch(self) -> int:
        """Devices with samples of their own."""
        return self.data * self.fsdp * self.expert


def read(document: Document, world: int | None, problems: Problems) -> Imported:
    """Read a file of MaxText. ``world``: the number of devices, without which no axis has a degree that is left to it."""
    reader = Reader(document, settings("maxtext"), problems)
    precision = _precision(reader)
    known = Known(reader, meaning("maxtext"))
    known.put("cp", _degree(reader, "ici", "context") * _degree(reader, "dcn", "context"))
    known.put("precision", precision or "")
    known.put("ends", str(reader.get("base_config")).rpartition("/")[2] == "base.yml")
    known.check()
    degrees = None if problems.found else _degrees(reader, world)
    if degrees is None:
        return Imported(system="maxtext", source=document.source, expression="", readings=())
    _check(reader, degrees)
    return Imported(
        system="maxtext",
        source=document.source,
        expression=expression(
            over_axes(
                _parts(reader, degrees),
                tokens=degrees.context,
                attention=unless_usual(_ATTENTION.get(reader.get("context_parallel_strategy"))),
                experts=degrees.expert,
            )
        ),
        readings=(*known.readings(), *_unsaid(reader, degrees), *known.unsaid("gradient_clipping_threshold", "remat_policy")),
        precision=precision,
        numbers=_numbers(reader, degrees, world),
    )


def _degree(reader: Reader, where: str, axis: str) -> int:
    return int(reader.get(f"{where}_{axis}_parallelism"))


def _degrees(reader: Reader, world: int | None) -> Degrees | None:
    """The degrees of all axes. One may be left open of those within a slice, and one of those between slices: it gets what is left."""
    inner, outer = ({axis: _degree(reader, where, axis) for axis in _AXES} for where in ("ici", "dcn"))
    open_ = {where: [axis for axis, degree in said.items() if degree < 1] for where, said in (("ici", inner), ("dcn", outer))}
    if any(len(axes) > 1 for axes in open_.values()):
        where, axes = next((where, axes) for where, axes in open_.items() if len(axes) > 1)
        reader.refuse(f"{where}_{axes[1]}_parallelism", "two axes are left open, and MaxText fills one alone", "say one of the two")
        return None
    place = next((name for axis in _AXES for where in ("ici", "dcn") if reader.said(name := f"{where}_{axis}_parallelism")), _first(reader))
    both = [axis for axis in open_["ici"] if axis not in open_["dcn"]] and open_["dcn"]
    slices = max(reader.get("num_slices"), reader.get("compile_topology_num_slices"))
    if both and slices < 1:
        left = f"`ici_{open_['ici'][0]}_parallelism` and `dcn_{open_['dcn'][0]}_parallelism`"
        message = f"{left} get what is left within and between slices (nodes of GPUs), and how many slices there are is not said"
        reader.refuse(place, message, "`num_slices: 1`, or say one of the two")
        return None
    if (open_["ici"] or open_["dcn"]) and world is None:
        reader.refuse(place, "a degree is left open, and the number of devices is not said", "`--world 64`, or say the degree")
        return None
    total = {axis: max(inner[axis], 1) * max(outer[axis], 1) for axis in _AXES}
    world = world or prod(total.values())
    if both:
        _fill(total, open_["dcn"][0], slices, prod(max(degree, 1) for degree in outer.values()))
        _fill(total, open_["ici"][0], world // slices, prod(max(degree, 1) for degree in inner.values()))
    elif open_["ici"] or open_["dcn"]:
        _fill(total, (open_["ici"] or open_["dcn"])[0], world, prod(total.values()))
    if prod(total.values()) != world:
        shown = " * ".join(f"{axis} {degree}" for axis, degree in total.items() if degree != 1) or "1"
        reader.refuse(place, f"{shown} is not {world}, the number of devices", "the degrees multiply to it")
        return None
    return Degrees(**total)


def _fill(total: dict[str, int], axis: str, devices: int, said: int) -> None:
    total[axis] *= max(devices // said, 1)


def _first(reader: Reader) -> str:
    return next(iter(reader.document.data), "")


def _check(reader: Reader, degrees: Degrees) -> None:
    name = "dcn_expert_parallelism" if _degree(reader, "dcn", "expert") != 1 else "ici_expert_parallelism"
    if degrees.expert > 1 and degrees.data > 1:
        reader.refuse(name, "experts over devices beside copies of shards: no strategy says that", "leave one device on the axis `data`")
    elif degrees.expert > 1 and degrees.tensor_sequence > 1:
        reader.refuse(name, "experts over devices beside tensor parallelism are not read from here", "ask about the strategy itself")
    if reader.get("shard_optimizer_over_data") and degrees.data > 1 and degrees.batch * degrees.context != degrees.data:
        message = "the state of the update is sharded over `data` beside what other axes shard: no strategy says that"
        reader.refuse("shard_optimizer_over_data", message, "leave it out, or let `data` have all devices")


def _parts(reader: Reader, degrees: Degrees) -> dict[str, dict[str, object]]:
    if reader.get("shard_optimizer_over_data") and degrees.data > 1:
        parts: dict[str, dict[str, object]] = {"zero1": {"dp": degrees.data}}
    else:
        parts = in_shards(degrees.data, degrees.fsdp, {}, tokens=degrees.context * degrees.expert)
    if degrees.tensor_sequence > 1:
        parts |= {"tp": {"tp": degrees.tensor_sequence}, "sp": {"tp": degrees.tensor_sequence}}
    if not parts:
        parts["ddp"] = {"dp": 1}
    if reader.get("remat_policy") == "full":
        parts["checkpoint"] = {}
    if (steps := reader.get("gradient_accumulation_steps")) > 1:
        parts["accumulate"] = {"microbatches": steps}
    if clips(reader.get("gradient_clipping_threshold")):
        parts["clip"] = {}
    return parts


def _numbers(reader: Reader, degrees: Degrees, world: int | None) -> dict[str, Fraction]:
    """A pass has so many samples for each device, whatever the axes: those that split a sample add up to more of them."""
    devices = world or degrees.batch * degrees.context * degrees.tensor_sequence
    samples = Fraction(str(reader.get("per_device_batch_size"))) * devices / degrees.batch
    numbers = {"b": samples} if samples.denominator == 1 and reader.said("per_device_batch_size") else {}
    if reader.said("max_target_length"):
        numbers["s"] = Fraction(reader.get("max_target_length"))
    return numbers | {"m": Fraction(reader.get("gradient_accumulation_steps"))}


def _precision(reader: Reader) -> str | None:
    """The named widths, where weights, gradients and the whole state have one type."""
    kept = {TYPES.get(str(reader.get(name)), "") for name in ("weight_dtype", "grad_dtype")}
    kept |= {TYPES.get(str(reader.get("mu_dtype")), "")} if reader.get("mu_dtype") else set()
    named: Any = ADAM.get(next(iter(kept))) if len(kept) == 1 else None
    return named if reader.get("opt_type") in ("adamw", "adam_pax") and not reader.get("quantization") else None


def _unsaid(reader: Reader, degrees: Degrees) -> list[Reading]:
    """What the model's own file says."""
    if degrees.expert == 1 and not any(reader.said(name) for name in ("num_experts", "capacity_factor")):
        return []
    return [balance_unsaid()]
