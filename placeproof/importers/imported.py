"""What a configuration says, as a strategy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from math import prod
from typing import NamedTuple

from placeproof.core.diagnostics import Place
from placeproof.core.shapes import Shapes
from placeproof.core.strategy import Strategy


class Role(Enum):
    """What a setting is to us."""

    READ = "read"  # it decides the strategy, the precision or a number
    NOT_MODELLED = "not modelled"  # it changes what a step costs, or how it gets there, and no formula here says how
    ANOTHER_STEP = "another step"  # it changes what a step computes, or where, and no program here says how: no verdict is about it
    NO_MATTER = "no matter"  # it changes neither placement nor what is computed: logs, files, learning rates
    UNKNOWN = "unknown"  # the system has no such setting, and passes over it without a word: whatever it was to do is not done


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One setting and what became of it. ``name``: as the system writes it, with dots between tables.

    ``told``: a number or the step is not what the setting alone would say, so that the note is shown beside it.
    """

    name: str
    value: object
    role: Role
    note: str
    place: Place | None = None
    told: bool = False

    def noted(self, role: Role | None, note: str, told: bool) -> Reading:
        """The same setting with another note, and a role if one is given. Of one that is said twice it stays told that the last counts."""
        said = f"{self.note.partition('; ')[0]}; {note}" if self.told and note != self.note else note
        return replace(self, role=role or self.role, note=said, told=told or self.told)


class Note(NamedTuple):
    """What became of a setting once the others are known, in place of its table's role and note. ``told``: as of :class:`Reading`."""

    role: Role | None
    text: str
    told: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A configuration, read.

    ``expression``: the strategy as `placeproof` writes it. ``numbers``: values of symbols. ``precision``: the name of the byte widths
    that it trains with, None where it does not say; ``half``: fp16 or bf16, where it has weights in 16 bits. ``without``: assumptions that
    do not hold of it. ``recompute``: which layers of a model are computed again, in words of
    :mod:`placeproof.cost.model.recomputation`, where the strategy does not say it. ``stages``: the layers of each stage of a pipeline,
    where they are not as many.
    """

    system: str
    source: str
    expression: str
    readings: tuple[Reading, ...]
    precision: str | None = None
    half: str | None = None
    numbers: Mapping[str, Fraction] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    recompute: str | None = None
    stages: tuple[int, ...] | None = None

    @property
    def another_step(self) -> tuple[Reading, ...]:
        """What a verdict on the strategy is not about."""
        return self.of(Role.ANOTHER_STEP)

    def strategy(self) -> Strategy:
        """The strategy. Raises InputError where no such strategy can be used."""
        from placeproof.strategies import parse_strategy

        return parse_strategy(self.expression)

    def of(self, role: Role) -> tuple[Reading, ...]:
        """The settings with one role, in the order of the file."""
        return tuple(r for r in self.readings if r.role is role)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedShapes:
    """A file that says the parameters of a model, read.

    ``kind``: the type of model as transformers calls it; empty for a file that lists parameters.
    """

    kind: str
    source: str
    shapes: Shapes
    readings: tuple[Reading, ...] = ()

    def of(self, role: Role) -> tuple[Reading, ...]:
        """The settings with one role, in the order of the file."""
        return tuple(r for r in self.readings if r.role is role)


def not_modelled(readings: Iterable[Reading]) -> tuple[str, ...]:
    """The settings of a model that its shapes do not show, in words."""
    return tuple(f"`{r.name}`: {r.note}" for r in readings if r.role is Role.NOT_MODELLED)


#: Strategies that shard over data-parallel devices -> the same one over another axis alone.
_SHARDING = {name: name for name in ("zero1", "zero2", "zero3", "fsdp", "zero_offload", "zero_infinity")} | {"hsdp": "fsdp"}
#: Those that gather parameters: they are written over dp even where it is one device, over which the experts then lie.
_GATHERING = ("zero3", "fsdp", "zero_infinity")
#: Those over the axis of tensor parallelism, or over each of several.
_TENSOR = ("tp", "sp")


@dataclass(frozen=True, slots=True)
class Sharing:
    """Over which devices experts lie. ``axes``: of tensor and context parallelism, all of their devices; ``rest``: so many data-parallel
    ones, the axis ep. ``tensor``: the axes of tensor parallelism with their degrees, where experts lie otherwise on each; ``split``: that
    over which alone they are split, or `whole`, where it has to be said. ``elsewhere``: the system takes devices of another parallelism for
    them. ``complaint``: why no strategy says it, and a remedy.
    """

    axes: tuple[str, ...] = ()
    rest: int = 1
    tensor: tuple[tuple[str, int], ...] = ()
    split: str | None = None
    elsewhere: bool = False
    complaint: tuple[str, str] | None = None

    def note(self, data: str) -> str:
        """What becomes of the number of devices, of which those with samples of their own are taken out of ``data``."""
        own = f"the axis ep, taken out of {data}" if self.rest > 1 or not self.axes else ""
        others = f"those of {' and '.join(self.axes)}" if self.axes else ""
        whose = "tokens" if self.axes else "samples"
        return f"devices with {whose} of their own that share the experts: {', and '.join(filter(None, (others, own)))}"


def sharing(experts: int, devices: int | None, *, tensor: int = 1, context: int = 1, whole: bool = False, sequence: bool = True) -> Sharing:
    """Over whose devices experts lie where a system takes those of tensor parallelism first, if each expert is ``whole``, then those of
    context parallelism, then the data-parallel ``devices``. ``sequence``: whether tensor parallelism splits the tokens, too.

    Axes are taken as a whole. Where the experts have only a part of one, they are taken out of the data-parallel devices if these suffice;
    so they are where experts are split and so are the tokens that context parallelism splits, since blocks exchange these over both axes.
    """
    axes, rest = list[str](), experts
    first = {"tp": tensor if whole else 1, "cp": context} if sequence or not whole or tensor == 1 else {}
    for axis, degree in first.items():
        inner = axis == "cp" and tensor > 1 and sequence and not whole
        if degree > 1 and (rest % degree or (inner and (devices is None or devices % rest == 0))):
            break
        axes, rest = ([*axes, axis], rest // degree) if degree > 1 and rest > 1 else (axes, rest)
    others = {"tensor": tensor if whole else 1, "context": context}
    elsewhere = rest > 1 and prod(others.values()) > experts // rest
    complaint = misplaced(experts, devices, **others) if devices is not None and devices % rest else None
    if complaint is not None and first:
        complaint = (complaint[0], f"{complaint[1]}, or a multiple of {prod(first.values())} that divides all of them")
    return Sharing(axes=tuple(axes), rest=rest, elsewhere=elsewhere, complaint=complaint)


def sharing_beside_slices(
    experts: int, devices: int | None, *, tensor: int, split: int, context: int = 1, sequence: bool = True
) -> Sharing:
    """Over whose devices experts lie where each is split over ``split`` of the ``tensor`` devices of tensor parallelism, not all of them,
    and a system takes the others first; else as :func:`sharing` has it. With 1 each expert is whole.

    The axis `etp` has slices of an expert. Of the others those of `tp` have other experts, and those of `dtp` the same ones. Where the
    others are neither a part nor a multiple of what the experts lie over, these are taken out of the data-parallel devices. So they are
    where context parallelism splits tokens, since blocks exchange these over all axes that do.
    """
    others = tensor // split
    lies = sharing(experts, devices, tensor=others, whole=True, sequence=sequence)
    if sequence and experts > 1 and others % experts == 0:
        lies = Sharing(axes=("tp",))
    apart = others if lies.rest * others == experts else experts if lies.axes else 1
    degrees = {"dtp": others // apart, "etp": split, "tp": apart}
    return replace(
        lies,
        tensor=tuple((axis, degree) for axis, degree in degrees.items() if degree > 1),
        split=None if apart == others else "etp" if split > 1 else "whole",
        elsewhere=lies.rest > 1 and (context > 1 or apart < others),
    )


def over_axes(
    parts: Mapping[str, Mapping[str, object]],
    *,
    tokens: int = 1,
    attention: str | None = None,
    experts: Sharing | int | None = 1,
    whole: bool = False,
) -> list[tuple[str, Mapping[str, object]]]:
    """The strategies over further axes of samples: ep, whose devices share experts, and cp, over which sequences are split.

    What is sharded over dp is sharded over these, too. ``tokens``, ``experts``: how many devices, None where that is open; those of ep are
    not among dp's. ``attention``: as the option of the strategy `cp`, None for its default. ``whole``: beside tensor parallelism each
    expert is whole. ``experts`` may say as well over which further axes they lie, and on which of tensor parallelism otherwise.
    """
    lies = experts if isinstance(experts, Sharing) else Sharing()
    shared, split, experts = lies.axes, lies.split, lies.rest if isinstance(experts, Sharing) else experts
    axes = [axis for axis, degree in (("ep", experts), ("cp", tokens)) if degree != 1]
    strategies: list[tuple[str, Mapping[str, object]]] = []
    for name, arguments in parts.items():
        if name in _TENSOR and lies.tensor:
            strategies += [(name, {"tp": degree} if axis == "tp" else {"": degree, "tp": axis}) for axis, degree in lies.tensor]
            continue
        spread = axes if name in _SHARDING else []
        needed = name in _GATHERING and not {"ep", *shared}.isdisjoint(spread)
        if not axes or needed or arguments.get("dp") != 1 or name not in (*_SHARDING, "ddp"):
            strategies.append((name, arguments))
        options = {k: v for k, v in arguments.items() if k not in ("dp", "rep", "shard")}
        strategies += [(_SHARDING[name], {"dp": axis, **options}) for axis in spread]
    way = split or ("whole" if whole and "tp" not in shared else None)
    if experts != 1 or (way and not (split and shared)):
        strategies.append(("ep", {"ep": experts, "experts": way}))
    strategies += [("ep", {"ep": axis, "experts": split}) for axis in shared]
    if tokens > 1:
        strategies.append(("cp", {"cp": tokens, "attention": attention}))
    return strategies


def in_shards(
    rep: int, shard: int | None, options: Mapping[str, object], *, on_host: bool = False, tokens: int = 1
) -> dict[str, dict[str, object]]:
    """FSDP over ``shard`` devices, None where that is open, with ``rep`` copies; nothing over one device.

    ``on_host``: shards and their update lie in host memory. ``tokens``: devices that a sample is split over, over which is sharded, too.
    """
    if shard == 1 and tokens == 1:
        return {} if rep == 1 else {"ddp": {"dp": rep}}
    if on_host:
        return {"zero_infinity": {"dp": shard}}
    return {"hsdp": {"rep": rep, "shard": shard, **options}} if rep > 1 else {"fsdp": {"dp": shard, **options}}


def unless_usual(attention: str | None) -> str | None:
    """How tokens attend to one another, None for a ring: as :func:`over_axes` takes it."""
    return None if attention == "ring" else attention


def misplaced(experts: int | None, devices: int | None, **others: int | None) -> tuple[str, str] | None:
    """Why no strategy has experts over so many devices, which are neither all of some axes nor data-parallel ``devices``. With a remedy.

    ``others``: the degrees of further axes over whose devices the system lays them first, by the name of the parallelism.
    """
    if experts is None or devices is None or devices % experts == 0:
        return None
    over = " and ".join(name for name, degree in others.items() if degree != 1)
    beside = f" they are those of {over} parallelism too, and" if over else ""
    message = f"{experts} devices that share experts do not divide {devices} data-parallel ones:{beside} no strategy says that"
    return message, f"take a divisor of {devices}"


def balance_unsaid() -> Reading:
    """What a file does not say of experts, and their model does."""
    note = "not said; the model decides whether a loss, or a bias of the router, evens out what experts get over the whole batch"
    return Reading(name="experts", value="?", role=Role.ANOTHER_STEP, note=note)


def clips(limit: float | None) -> bool:
    """Whether a trainer scales gradients by their norm: the frameworks do where they are told a limit above 0, infinity too."""
    return limit is not None and limit > 0


def expression(parts: Mapping[str, Mapping[str, object]] | Iterable[tuple[str, Mapping[str, object]]]) -> str:
    """Strategies by name with their arguments, as one expression: ``zero1(dp=8) * tp(tp=2)``. Arguments that are None are left open; one
    without a name comes first, by its place: ``tp(2, tp=etp)``."""
    written = []
    for name, arguments in sorted(parts.items() if isinstance(parts, Mapping) else parts, key=lambda part: part[0] == "clip"):
        said = {k: str(v).lower() if isinstance(v, bool) else v for k, v in arguments.items() if v is not None}
        written.append(f"{name}({', '.join(f'{k}={v}' if k else str(v) for k, v in said.items())})" if said else name)
    return " * ".join(written)
