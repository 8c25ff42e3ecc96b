"""The settings of an Accelerate configuration, of version 1.15 and as older versions wrote them, and what is known while one is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from placeproof.importers.document import Document
from placeproof.importers.fields import Reader
from placeproof.importers.imported import Reading, Role
from placeproof.importers.settings import settings

#: What a file may say for FSDP 1, in the order of the numbers 1 to 5.
SHARDING = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
#: Kinds of device whose processes are joined by DistributedDataParallel.
MULTI = tuple(f"MULTI_{d}" for d in ("CPU", "GPU", "MLU", "SDAA", "MUSA", "NPU", "XPU", "HPU", "NEURON"))
#: Tables that are read for one kind of distribution alone.
OWNED = {"fsdp_config": "FSDP", "deepspeed_config": "DEEPSPEED", "megatron_lm_config": "MEGATRON_LM", "tp_config": "TP"}


def without_empty(document: Document) -> tuple[Document, list[Reading]]:
    """The document without null and empty tables, which say nothing, and readings of those."""
    names = [name for field in settings("accelerate") for name in field.names]
    tables = {name.partition(".")[0] for name in names if "." in name}
    known = {*names, *tables}
    empty: list[Reading] = []

    def keep(table: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
        for key, value in table.items():
            name = f"{before}{key}"
            if name in known and (value is None or (value == {} and name in tables)):
                place = document.place(*name.split("."))
                empty.append(Reading(name=name, value=value, role=Role.NO_MATTER, note="says nothing", place=place))
            else:
                yield key, dict(keep(value, f"{name}.")) if isinstance(value, dict) and name in tables else value

    return replace(document, data=dict(keep(document.data, ""))), empty


@dataclass(slots=True)
class Run:
    """What is known while a file is read. ``kind``: its `distributed_type`; ``world``: devices, None where open."""

    reader: Reader
    kind: str
    world: int | None = None
    machines: int = 1
    #: Whether the sizes of `parallelism_config` were found not to multiply to the world.
    uneven: bool = False
    marks: dict[str, tuple[Role, str, bool]] = field(default_factory=dict)
    numbers: dict[str, Fraction] = field(default_factory=dict)
    #: What is to be told of settings that the file leaves out.
    unsaid: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> Any:
        """What is said, or the default."""
        return self.reader.get(name)

    def said(self, name: str) -> bool:
        """Whether the file says it."""
        return self.reader.said(name)

    def mark(self, name: str, note: str, role: Role = Role.READ, *, told: bool = False) -> None:
        """What became of a setting, where the table cannot know it."""
        self.marks[self.reader.name(name)] = (role, note, told)

    def say(self, name: str, note: str) -> None:
        """Tell what a value does, be it said or the default."""
        if self.said(name):
            self.mark(name, note, told=True)
        else:
            self.unsaid[name] = note

    def refuse(self, name: str, message: str, help: str, code: str = "PP504", notes: tuple[str, ...] = ()) -> None:
        """A problem with a setting, at its place."""
        self.reader.refuse(name, message, help, code, notes)

    def over(self, degrees: Mapping[str, int]) -> int | None:
        """The world divided by other degrees; a problem where it does not divide."""
        product = 1
        for degree in degrees.values():
            product *= degree
        if self.world is None:
            return None
        if self.world % product and not self.uneven:
            name = [n for n, d in degrees.items() if d > 1][-1]
            shown = " * ".join(str(d) for d in degrees.values() if d > 1)
            self.refuse(name, f"{self.world} processes are no multiple of {shown}", "the number of processes is the product of all degrees")
        return max(self.world // product, 1)
