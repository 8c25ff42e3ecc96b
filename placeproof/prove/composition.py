"""A rule of composition as data, and derivations by it.

A program runs on a mesh, and once more on the mesh with one axis more. A clause of a rule says how the result of an operation lies on
that axis, of how its operands lie there. A derivation applies clauses, one for each operation, from how the states lie before a step to how
they have to lie after it. Nothing here knows programs, or any one rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: How a value lies on the axis, v being the value without it: each device has v; each has v of the elements that it owns; the sum over
#: them is v. Of zero all three hold.
REPLICATE, SHARD, PARTIAL, ZERO = "replicate", "shard", "partial", "zero"
LAYOUTS = (REPLICATE, SHARD, PARTIAL)
#: What an operand of a clause may be besides one of them: anything, what the first operand is, whatever each device can use where it owns.
ANY, LIKE, OWNED = "any", "like", "owned"
#: Clauses that every rule has: how a derivation begins, goes round a loop, and joins branches or the two ends of messages.
PLACED, CARRIED, JOINED, ZEROED = "placed", "carried", "joined", "zeroed"
#: The power that a clause takes from the program: that of the axis's degree in a scalar.
SAID = "said"


@dataclass(frozen=True, slots=True)
class AxisType:
    """How a value lies on the axis, and that it is n to a ``power`` times the value without the axis."""

    layout: str
    power: int = 0

    def __str__(self) -> str:
        return self.layout + (f" n^{self.power}" if self.power else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One operation. ``takes``: the layout of each operand; with ``*`` one of any power, which the result keeps. ``gives``: that of the
    result, with a ``power`` more. ``op`` and ``role`` say where a program uses it: an operation, and what the axis is to it; ``only``: of
    what alone."""

    name: str
    op: str
    role: str
    gives: str
    says: str
    takes: tuple[str, ...] = ()
    power: int | str = 0
    only: str = ""

    def result(self, operands: tuple[AxisType, ...], said: int = 0) -> AxisType | None:
        """How the result lies; None where the clause does not take the operands."""
        if len(operands) != len(self.takes):
            return None
        first = next((o for o in operands if o.layout != ZERO), AxisType(ZERO))
        powers = set()
        for operand, pattern in zip(operands, self.takes, strict=True):
            wanted = pattern.removesuffix("*")
            if operand.layout == ZERO:  # nothing, however it is looked at
                continue
            if not _fits(operand.layout, first.layout if wanted == LIKE else wanted):
                return None
            if pattern.endswith("*"):
                powers.add(operand.power)
            elif operand.power:
                return None
        layout = first.layout if self.gives == LIKE else self.gives
        if len(powers) > 1 or layout == ZERO:
            return None if len(powers) > 1 else AxisType(ZERO)
        return AxisType(layout, sum(powers) + (said if self.power == SAID else int(self.power)))


def _fits(layout: str, wanted: str) -> bool:
    return wanted in (ANY, layout) or (wanted == OWNED and layout in (REPLICATE, SHARD))


@dataclass(frozen=True, slots=True)
class Use:
    """A clause applied to earlier results, by their numbers; of a loop, also to a later one. ``said``: the power that the program says."""

    clause: str
    operands: tuple[int, ...]
    gives: AxisType
    said: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """How everything in a program lies on an axis; on each of these alike. ``ends``: results, and what each has to be."""

    axes: tuple[str, ...]
    uses: tuple[Use, ...]
    ends: tuple[tuple[int, AxisType], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """The claim that a step trains on a whole mesh: it does on some of its axes, and derivations put on the others, one by one.

    ``base``: the kernel's verdicts on the obligations of the step on those axes.
    """

    name: str
    base: tuple[object, ...]
    rule: tuple[Clause, ...]
    derivations: tuple[Derivation, ...]


def fault(derivation: Derivation, rule: Mapping[str, Clause]) -> str | None:
    """What is wrong with a derivation; None where every use is one that the rule allows, and it ends as it has to."""
    uses = derivation.uses
    for number, use in enumerate(uses):
        if not all(0 <= o < len(uses) for o in use.operands) or not _allowed(number, use, uses, rule):
            return f"{', '.join(derivation.axes)}: step {number}, `{use.clause}`, does not give {use.gives}"
    for number, wanted in derivation.ends:
        if not 0 <= number < len(uses) or not _within(uses[number].gives, wanted):
            return f"{', '.join(derivation.axes)}: step {number} does not end as {wanted}"
    return None


def _allowed(number: int, use: Use, uses: tuple[Use, ...], rule: Mapping[str, Clause]) -> bool:
    types = tuple(uses[o].gives for o in use.operands)
    match use.clause:
        case "placed":
            return not use.operands and use.gives in (AxisType(REPLICATE), AxisType(SHARD))
        case "zeroed":
            return not use.operands and use.gives == AxisType(ZERO)
        case "carried" | "joined":
            return bool(types) and all(t in (use.gives, AxisType(ZERO)) for t in types)
    clause = rule.get(use.clause)
    return clause is not None and all(o < number for o in use.operands) and clause.result(types, use.said) == use.gives


def _within(given: AxisType, wanted: AxisType) -> bool:
    """Whether what is given serves as what is wanted: a full copy serves as a part."""
    return given.layout == ZERO or (given.power == wanted.power and _fits(given.layout, OWNED if wanted.layout == SHARD else wanted.layout))


def by_name(rule: Iterable[Clause]) -> dict[str, Clause]:
    """The clauses by their names."""
    return {clause.name: clause for clause in rule}
