"""The grid for a question: what is tried unless something else is said, and what users pin, forbid and limit."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from placeproof.core.diagnostics import InputError, Problems, suggestion
from placeproof.cost.model.recomputation import RECOMPUTE, words
from placeproof.models import Model
from placeproof.planning.space import AGAIN, ATTENTION, AXES, DATA, ORDERS, PINNED_DATA, Flow, Mesh, Space, divisors, meshes
from placeproof.schedules import form, load, names

#: Schedules that are tried, and runs of layers of those that have several.
SCHEDULES = ("1f1b", "interleaved", "zb-h1")
CHUNKS = (2, 3, 4, 5, 6, 8, 10)
#: What can be pinned -> what it is.
CHOICES = {
    "tp": "devices of tensor parallelism",
    "cp": "devices of context parallelism",
    "ep": "devices of expert parallelism",
    "dp": "devices of data parallelism, copies of shards among them",
    "dp_shard": "those of data parallelism that states are sharded over",
    "dp_replicate": "copies that data parallelism has of these shards",
    "pp": "pipeline stages",
    "b": "sequences of a micro-batch on a device",
    "data": "what data parallelism does: " + ", ".join((*DATA, *PINNED_DATA)),
    "sp": "sequence parallelism beside tensor parallelism: yes, no",
    "attention": "how context parallelism attends: " + ", ".join(ATTENTION),
    "recompute": "what backward computes again: none, selective, full, ...",
    "fp8": "whether products with layers' matrices are in fp8: yes, no",
    "schedule": "of a pipeline: "
    + ", ".join(SCHEDULES)
    + ", ..., zb-v, v-half, dualpipe; `interleaved:4` has four runs of layers on each device",
    "order": "whether stages lie outside of data parallelism on the cluster, or inside: " + ", ".join(ORDERS),
}
_NUMBERS = (*AXES, "b")
_OPTIONS = {"only": "--only", "forbid": "--forbid", "most": "--max"}


@dataclass(frozen=True, kw_only=True)
class Pins:
    """What users say of choices: ``only`` and ``forbid`` are texts such as ``tp=1,8``, ``forbid`` also ``cp``; ``most`` is of ``tp=8``."""

    only: Sequence[str] = ()
    forbid: Sequence[str] = ()
    most: Sequence[str] = ()

    @cached_property
    def given(self) -> tuple[str, ...]:
        """All of them, as they are written on the command line."""
        return tuple(f"{option} {text}" for name, option in _OPTIONS.items() for text in getattr(self, name))

    def require_values(self) -> None:
        """Raise InputError with every pin of no choice, or of no value of one."""
        problems = Problems()
        for name, option in _OPTIONS.items():
            for text in getattr(self, name):
                _values(text, option, problems, alone=name == "forbid")
        problems.raise_if_any()

    def left(self, given: Collection[str]) -> Pins:
        """Those of them alone that are ``given`` so."""
        return Pins(**{name: [text for text in getattr(self, name) if f"{option} {text}" in given] for name, option in _OPTIONS.items()})


def _unless_pinned(model: Model, devices: Sequence[int], batch: int, *, fp8: bool) -> dict[str, tuple[object, ...]]:
    """What is tried of each choice that no pin is about."""
    degrees = tuple(sorted({degree for n in devices for degree in divisors(n)}))
    experts = "experts" in {dim for segment in model.segments for block in segment.blocks for t in block.program.tensors for dim in t.dims}
    return {
        **dict.fromkeys(AXES, degrees),
        "ep": degrees if experts else (1,),
        "b": divisors(batch),
        "data": DATA,
        "sp": (True, False),
        "attention": ATTENTION,
        "recompute": AGAIN,
        "fp8": (fp8,),
        "schedule": tuple(flow for name in SCHEDULES for flow in _flows(name)),
        "order": tuple(ORDERS)[:1],
    }


def space_of(model: Model, devices: Sequence[int], batch: int, pins: Pins, joined: Sequence[int] = (), *, fp8: bool = False) -> Space:
    """The grid for some numbers of devices. ``joined``: how many devices levels of links join: unless sizes of groups that share states are
    pinned, those that have copies fill one of these. ``fp8``: unless that is pinned.

    Raises InputError with everything that is wrong with the pins, and where they leave nothing.
    """
    problems = Problems()
    if fp8 and (pinned := [text for text in pins.given if re.search(r" fp8\b", text)]):
        problems.add("PP104", f"`--fp8` and `{pinned[0]}` say the same thing twice, or two things", help="the pin alone: `--only fp8=yes`")
    allowed = _allowed(_unless_pinned(model, devices, batch, fp8=fp8), pins, problems)
    problems.raise_if_any()
    sized = any(text.partition("=")[0].strip() in ("dp_shard", "dp_replicate") for text in pins.only)
    found: dict[int, tuple[Mesh, ...]] = {}
    for number in devices:
        own = meshes(number, {axis: allowed[axis] for axis in AXES})  # type: ignore[misc]
        fill = (mesh for mesh in own if mesh.dp_replicate == 1 or mesh.tp * mesh.cp * mesh.ep * mesh.dp_shard in joined)
        found[number] = tuple(own if sized else fill)
    for number, every in found.items():
        replicas = sorted({mesh.replicas for mesh in every})
        if not every:
            listed, help = ", ".join(pins.given) or "nothing is pinned", "degrees multiply to the number of devices"
            problems.add("PP202", f"no mesh has {number} devices with these degrees ({listed})", help=help)
        elif all(batch % (n * b) for n in replicas for b in allowed["b"]):  # type: ignore[operator]
            sizes, help = _listed(allowed["b"]), "another batch, another `b`, or fewer replicas"
            message = f"no micro-batch (b = {sizes}) shares out {batch:,} sequences over {_listed(replicas)} replicas (dp * ep)"
            problems.add("PP202", message, help=help)
    problems.raise_if_any()
    return Space(
        meshes=tuple(mesh for own in found.values() for mesh in own),
        b=allowed["b"],  # type: ignore[arg-type]
        data=allowed["data"],  # type: ignore[arg-type]
        sp=allowed["sp"],  # type: ignore[arg-type]
        attention=allowed["attention"],  # type: ignore[arg-type]
        recompute=allowed["recompute"],  # type: ignore[arg-type]
        fp8=allowed["fp8"],  # type: ignore[arg-type]
        flows=allowed["schedule"],  # type: ignore[arg-type]
        orders=allowed["order"],  # type: ignore[arg-type]
    )


def _allowed(tried: Mapping[str, tuple[object, ...]], pins: Pins, problems: Problems) -> dict[str, tuple[object, ...]]:
    """What the pins leave of each choice."""
    allowed = dict(tried)
    for text in pins.only:
        name, values = _values(text, "--only", problems)
        if name is not None:
            allowed[name] = tuple(v for v in values if v in allowed[name] or allowed[name] is tried[name])
    for text in pins.forbid:
        name, values = _values(text, "--forbid", problems, alone=True)
        if name is not None:
            out = values or ([True] if name == "sp" else [v for v in allowed[name] if v != 1])
            allowed[name] = tuple(v for v in allowed[name] if v not in out)
    for text in pins.most:
        name, values = _values(text, "--max", problems)
        if name is not None and (name not in _NUMBERS or len(values) != 1):
            problems.add("PP104", f"`--max {text}` is no limit", help="degrees and b have one: `--max tp=8`")
        elif name is not None:
            allowed[name] = tuple(v for v in allowed[name] if v <= values[0])  # type: ignore[operator]
    for name, left in allowed.items():
        if not left:
            listed = ", ".join(pins.given)
            problems.add("PP202", f"nothing is left of `{name}`: {listed}", help=f"it could be {_listed(tried[name])}")
    return allowed


def _listed(values: Iterable[object]) -> str:
    return ", ".join(shown(v) for v in values)


def shown(value: object) -> str:
    """A value of a choice, as it is pinned."""
    if isinstance(value, Flow):
        return value.text
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _flows(name: str) -> tuple[Flow, ...]:
    """A schedule with each number of runs of layers that is tried."""
    own = load(name).chunks
    return tuple(Flow(schedule=name, chunks=n) for n in (CHUNKS if own is None else (own,)))


def _values(text: str, option: str, problems: Problems, *, alone: bool = False) -> tuple[str | None, list[object]]:
    """What is pinned, and to what; None where that is no pin."""
    name, equals, listed = (part.strip() for part in text.partition("="))
    if name not in CHOICES:
        problems.add(
            "PP104", f"`{option} {text}`: there is no choice `{name}`", help=suggestion(name, CHOICES) or f"one of {', '.join(CHOICES)}"
        )
        return None, []
    if not equals and alone and name in (*AXES, "sp"):
        return name, []
    if not listed:
        problems.add("PP104", f"`{option} {text}` says no value", help=f"{CHOICES[name]}: `{option} {name}={_example(name)}`")
        return None, []
    values: list[object] = []
    for part in (part.strip() for part in listed.split(",")):
        found = _value(name, part)
        if found is None:
            problems.add("PP104", f"`{option} {text}`: `{part}` is no value of `{name}`", help=CHOICES[name])
            return None, []
        values += found
    return name, [*dict.fromkeys(values)]


def _example(name: str) -> str:
    words = {
        "data": "zero1",
        "sp": "yes",
        "attention": "ring",
        "recompute": "none,full",
        "fp8": "yes,no",
        "schedule": "1f1b",
        "order": "pp-dp",
    }
    return words.get(name, "1,8")


def _value(name: str, text: str) -> list[object] | None:
    if name in _NUMBERS:
        return [int(text)] if re.fullmatch(r"[1-9][0-9]{0,6}", text) else None
    if name in ("sp", "fp8"):
        return [text == "yes"] if text in ("yes", "no") else None
    if name == "recompute":
        return _words(text)
    if name == "schedule":
        return _schedule(text)
    known = {"data": (*DATA, *PINNED_DATA), "attention": ATTENTION, "order": ORDERS}[name]
    return [text] if text in known else None


def _words(text: str) -> list[object] | None:
    try:
        said = words(text)
    except InputError:
        return None
    return ["+".join(said)] if all(word in RECOMPUTE for word in said) else None


def _schedule(text: str) -> list[object] | None:
    name, colon, chunks = text.partition(":")
    if name not in names() or form(name, "peak") is None:
        return None
    if not colon:
        return [*_flows(name)]
    fixed = load(name).chunks
    if not re.fullmatch(r"[1-9][0-9]?", chunks) or (int(chunks) < 2 if fixed is None else int(chunks) != fixed):
        return None
    return [Flow(schedule=name, chunks=int(chunks))]
