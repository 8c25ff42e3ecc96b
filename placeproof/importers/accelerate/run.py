"""What is known while a configuration of Accelerate is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from placeproof.core.diagnostics import Problems
from placeproof.importers.document import Document
from placeproof.importers.fields import Reader
from placeproof.importers.imported import Note, Reading, Role, Sharing
from placeproof.importers.settings import settings

#: What a file may say for FSDP 1, in the order of the numbers 1 to 5.
SHARDING = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
#: Kinds of device whose processes are joined by DistributedDataParallel.
MULTI = tuple(f"MULTI_{d}" for d in ("CPU", "GPU", "MLU", "SDAA", "MUSA", "NPU", "XPU", "HPU", "NEURON"))


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


class AccelerateReader(Reader):
    """What is known while a file is read. ``kind``: its `distributed_type`; ``world``: devices, None where open."""

    def __init__(self, document: Document, problems: Problems) -> None:
        super().__init__(document, settings("accelerate"), problems)
        self.kind = self._kind()
        self.world: int | None = None
        self.machines: int = self.get("num_machines")
        #: Whether the sizes of `parallelism_config` were found not to multiply to the world.
        self.uneven = False
        self.numbers: dict[str, Fraction] = {}
        #: Over which devices experts lie.
        self.experts = Sharing()
        #: What is to be told of settings that the file leaves out.
        self.unsaid: dict[str, Note] = {}

    def _kind(self) -> str:
        data = self.document.data
        if "distributed_type" not in data:
            message = "no `distributed_type` is said, and Accelerate asks for one"
            place = self.document.place(next(iter(data), ""))
            self.problems.add("PP504", message, place=place, help="for example `distributed_type: FSDP`")
        kind = self.get("distributed_type")
        if kind == "MODEL_PARALLEL":
            self.refuse("distributed_type", "SageMaker's own library decides this split", "give the strategy itself, as `tp(tp=8)`")
        return "NO" if kind is False else str(kind or "")

    def say(self, name: str, note: str, role: Role = Role.READ) -> None:
        """Tell what a value does, be it said or the default."""
        if self.said(name):
            self.note(name, note, role, told=True)
        else:
            self.tell_unsaid(name, note, role)

    def tell_unsaid(self, name: str, note: str, role: Role = Role.READ) -> None:
        """Tell what the default does, where the file does not say it."""
        if not self.said(name):
            self.unsaid[name] = Note(role, note)

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
            help = "the number of processes is the product of all degrees"
            if not self.said(name):
                help = f"`{name.split('.')[-1]}: 1`: it is {degrees[name]} where a file does not say it"
            self.refuse(name, f"{self.world} processes are no multiple of {shown}", help)
        return max(self.world // product, 1)
