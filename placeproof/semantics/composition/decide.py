"""Whether a step trains by the rule of composition: proved on some axes directly, and put on each of the others by a derivation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from placeproof.core.diagnostics import InputError, Place
from placeproof.core.mesh import Axis
from placeproof.programs import Program, read, render
from placeproof.prove import Proved, Unknown, compose
from placeproof.prove.composition import AxisType, Clause, Composition, Derivation
from placeproof.semantics.composition.axis import NotTypedError, Walk
from placeproof.semantics.composition.restrict import restricted
from placeproof.semantics.composition.rule import RULE, by_use
from placeproof.semantics.judge.verdict import Judged, judge


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """What the rule says of a step. ``why``: where it does not decide; ``base``: the step on the axes that it begins with, and its verdict;
    ``assumed``: what clauses take for granted."""

    program: Program
    verdict: Proved | Unknown | None
    base: Judged | None = None
    derivations: tuple[Derivation, ...] = ()
    assumed: tuple[str, ...] = ()
    why: str = ""
    place: Place | None = None

    @property
    def proved(self) -> bool:
        """Whether the step trains, for all degrees."""
        return isinstance(self.verdict, Proved)


def composed(program: Program, rule: tuple[Clause, ...] = RULE) -> Composed:
    """Decide a step by a rule. What the rule does not speak of is left open, with the reason; nothing is looked for."""
    if (unsaid := _outside(program)) is not None:
        return Composed(program=program, verdict=None, why=unsaid)
    clauses = by_use(rule)
    derivations: list[Derivation] = []
    assumed: set[str] = set()
    try:
        for axis in (a for a in program.axes if not a.splits.stages):
            for factor in axis.factors:
                derivation, more = _derived(program, axis, factor, clauses)
                derivations.append(derivation)
                assumed |= more
        base = _base(render(replace(restricted(program, [a.name for a in program.axes if a.splits.stages]), name="base")))
    except NotTypedError as missing:
        return Composed(program=program, verdict=None, why=str(missing), place=missing.place)
    except (ValueError, InputError) as wrong:
        return Composed(program=program, verdict=None, why=f"the step is none without its other axes: {wrong}")
    claim = Composition(
        name=program.name,
        base=tuple(s.verdict for s in base.settled) if base.word == "proved" else (),
        rule=rule,
        derivations=tuple(derivations),
    )
    verdict = compose(claim)
    why = verdict.why if isinstance(verdict, Unknown) else ""
    return Composed(program=program, verdict=verdict, base=base, derivations=claim.derivations, assumed=tuple(sorted(assumed)), why=why)


def _outside(program: Program) -> str | None:
    """Why the rule does not speak of a program at all."""
    if program.tensors:
        return "the rule speaks of steps, and this is a block"
    if program.reference or program.without:
        return "the rule speaks of plain steps: element-wise optimizers without clipping, under all assumptions"
    if any(g.tied for g in program.groups):
        return "tied weights have owners that differ from stage to stage"
    return None


def _derived(
    program: Program, axis: Axis, factor: str, clauses: Mapping[tuple[str, str], tuple[Clause, ...]]
) -> tuple[Derivation, set[str]]:
    """The derivation along one factor of an axis. How messages along other axes lie is what the walk before said."""
    received: dict[tuple[str, int], AxisType] = {}
    while True:
        walk = Walk(program=program, axis=axis, factor=factor, clauses=clauses, received=received)
        derivation = walk.derivation()
        if (sent := walk.messages()) == received:
            return derivation, walk.assumed
        if received:
            raise NotTypedError(f"a message lies otherwise on `{factor}` than what is sent in its place", None)
        received = sent


@lru_cache(maxsize=1024)
def _base(text: str) -> Judged:
    """The verdict on the step without the axes that are put on one by one; many steps share it."""
    return judge(read(text, source="base"))
