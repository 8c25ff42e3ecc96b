"""What a configuration says, as a strategy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction

from placeproof.core.diagnostics import Place
from placeproof.core.shapes import Shapes
from placeproof.core.strategy import Strategy


class Role(Enum):
    """What a setting is to us."""

    READ = "read"  # it decides the strategy, the precision or a number
    NOT_MODELLED = "not modelled"  # it changes what a step does or costs, and no formula here says how
    NO_MATTER = "no matter"  # it changes neither placement nor what is computed: logs, files, learning rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One setting and what became of it. ``name``: as the system writes it, with dots between tables."""

    name: str
    value: object
    role: Role
    note: str
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A configuration, read.

    ``expression``: the strategy as `placeproof` writes it. ``numbers``: values of symbols. ``precision``: the name of the byte widths
    that it trains with, None where it does not say. ``without``: assumptions that do not hold of it.
    """

    system: str
    source: str
    expression: str
    readings: tuple[Reading, ...]
    precision: str | None = None
    numbers: Mapping[str, Fraction] = field(default_factory=dict)
    without: tuple[str, ...] = ()

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


#: Strategies that shard over data-parallel devices -> the same one over another axis alone.
_SHARDING = {name: name for name in ("zero1", "zero2", "zero3", "fsdp", "zero_offload", "zero_infinity")} | {"hsdp": "fsdp"}


def over_tokens(parts: Mapping[str, Mapping[str, object]], degree: int, attention: str | None) -> list[tuple[str, Mapping[str, object]]]:
    """The strategies with sequences split over so many devices, the axis cp. What is sharded over dp is sharded over these devices, too.

    ``attention``: as the option of the strategy `cp`, None for its default.
    """
    found: list[tuple[str, Mapping[str, object]]] = []
    for name, arguments in parts.items():
        split = degree > 1 and name in _SHARDING
        if not split or arguments.get("dp") != 1:
            found.append((name, arguments))
        if split:
            found.append((_SHARDING[name], {"dp": "cp", **{k: v for k, v in arguments.items() if k not in ("dp", "rep", "shard")}}))
    if degree > 1:
        found.append(("cp", {"cp": degree, "attention": attention}))
    return found


def expression(parts: Mapping[str, Mapping[str, object]] | Iterable[tuple[str, Mapping[str, object]]]) -> str:
    """Strategies by name with their arguments, as one expression: ``zero1(dp=8) * tp(tp=2)``. Arguments that are None are left open."""
    written = []
    for name, arguments in parts.items() if isinstance(parts, Mapping) else parts:
        said = {k: str(v).lower() if isinstance(v, bool) else v for k, v in arguments.items() if v is not None}
        written.append(f"{name}({', '.join(f'{k}={v}' for k, v in said.items())})" if said else name)
    return " * ".join(written)
