"""Whether a step trains by the rule of composition: proved on some axes directly, and put on each of the others by a derivation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from placeproof.core.diagnostics import InputError, Place
from placeproof.core.mesh import Axis
from placeproof.core.states import MODEL_STATES
from placeproof.programs import Program, Resolved, read, render
from placeproof.prove import Proved, Unknown, compose
from placeproof.prove.composition import Clause, Composition, Derivation
from placeproof.semantics.composition.axis import NotTypedError, Walk
from placeproof.semantics.composition.restrict import alike, restricted
from placeproof.semantics.composition.rule import RULE, by_use
from placeproof.semantics.judge.verdict import Judged, judge
from placeproof.semantics.resolve import resolve

#: What an axis is called in the program of a factor alone.
_ALONE = "axis"


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """What axes of a mesh that are used alike add to a step: the step on such an axis alone, beside those that it begins with, and how
    everything lies there. ``why``: why no clause serves; ``assumed``: what clauses take for granted."""

    program: Program
    derivations: tuple[Derivation, ...] = ()
    assumed: frozenset[str] = frozenset()
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """What the rule says of a step. ``why``: where it does not decide; ``base``: the verdict on the step on the axes that it begins with;
    ``factors``: what the other axes add, with their names."""

    program: Program
    verdict: Proved | Unknown | None
    base: Judged | None = None
    factors: tuple[tuple[tuple[str, ...], Factor], ...] = ()
    why: str = ""
    place: Place | None = None

    @property
    def proved(self) -> bool:
        """Whether the step trains, for all degrees."""
        return isinstance(self.verdict, Proved)

    @property
    def assumed(self) -> tuple[str, ...]:
        """What the clauses that were used take for granted."""
        return tuple(sorted(frozenset[str]().union(*(f.assumed for _, f in self.factors))))


def composed(program: Program, rule: tuple[Clause, ...] = RULE) -> Composed:
    """Decide a step by a rule. What the rule does not speak of is left open, with the reason; nothing is looked for."""
    if (unsaid := _outside(program)) is not None:
        return Composed(program=program, verdict=None, why=unsaid)
    program = _placed(program)
    begin = [a.name for a in program.axes if a.splits.stages]
    try:
        _require_no_race(program, begin, rule)
        factors = tuple((tuple(a.name for a in axes), _factor_of(program, axes[0], begin, rule)) for axes in alike(program, begin))
        base = _base(_text(restricted(program, begin)))
    except NotTypedError as missing:
        return Composed(program=program, verdict=None, why=str(missing), place=missing.place)
    except (ValueError, InputError) as wrong:
        return Composed(program=program, verdict=None, why=f"the step is none without some of its axes: {wrong}")
    blocked = next(((names, f) for names, f in factors if f.why), None)
    if blocked is not None:
        return Composed(program=program, verdict=None, why=blocked[1].why, place=_place(program, blocked[0][0], rule))
    claim = Composition(
        name=program.name,
        base=tuple(s.verdict for s in base.settled) if base.word == "proved" else (),
        rule=rule,
        derivations=tuple(d for names, f in factors for d in _named(f, names)),
    )
    verdict = compose(claim)
    why = verdict.why if isinstance(verdict, Unknown) else ""
    return Composed(program=program, verdict=verdict, base=base, factors=factors, why=why)


def _outside(program: Program) -> str | None:
    """Why the rule does not speak of a program at all."""
    if program.tensors:
        return "the rule speaks of steps, and this is a block"
    if set(dict(program.reference)) - {"optimizer"} or set(program.without) - {"elementwise-optimizer"}:
        return "the rule speaks of plain steps: no clipping, no statistics of the batch, under all assumptions but that of optimizers"
    if program.loss:
        return "the rule speaks of means over tokens of which every device has equally many"
    if any(g.tied for g in program.groups):
        return "tied weights have owners that differ from stage to stage"
    return None


def _placed(program: Program) -> Program:
    """The program with every state placed, as lowering writes it; what a user's own leaves out is worked out."""
    said = {p.state for p in program.placed}
    return program if isinstance(program, Resolved) or said >= {s.name for s in MODEL_STATES} else resolve(program)


def _require_no_race(program: Program, begin: list[str], rule: tuple[Clause, ...]) -> None:
    """Raise NotTypedError where a buffer changes while something that was started reads it. A step on some axes alone starts nothing, so
    that the whole step is walked."""
    if any(c.op == "start" for c in program.calls):
        axis = next((a for a in program.axes if a.name not in begin), None)
        if axis is None:
            raise NotTypedError("what is started on the axes that the rule begins with is left to a direct proof", None)
        Walk(program=program, axis=axis, factor=axis.factors[0], clauses=by_use(rule)).derivation()


def _text(program: Program) -> str:
    return render(replace(program, name="alone"))


def _factor_of(program: Program, axis: Axis, begin: list[str], rule: tuple[Clause, ...]) -> Factor:
    experts = [a for g in program.groups if axis.splits.matrices for a in g.experts]  # they work token by token
    return _factor(_text(restricted(program, [axis.name, *begin, *experts], {axis.name: _ALONE})), rule)


def _named(factor: Factor, names: tuple[str, ...]) -> Iterator[Derivation]:
    """The derivations with the axes, or their factors, that they are of."""
    for derivation in factor.derivations:
        yield replace(derivation, axes=tuple(d.replace(_ALONE, n, 1) for n in names for d in derivation.axes))


@lru_cache(maxsize=4096)
def _factor(text: str, rule: tuple[Clause, ...]) -> Factor:
    """What an axis adds; many steps share it."""
    program = read(text, source="alone")
    axis = program.axis(_ALONE)
    assert axis is not None
    clauses, derivations, assumed = by_use(rule), [], set[str]()
    try:
        for factor in axis.factors:
            walk = Walk(program=program, axis=axis, factor=factor, clauses=clauses)
            derivations.append(walk.derivation())
            assumed |= walk.assumed
    except NotTypedError as missing:
        return Factor(program=program, why=str(missing))
    return Factor(program=program, derivations=tuple(derivations), assumed=frozenset(assumed))


def _place(program: Program, name: str, rule: tuple[Clause, ...]) -> Place | None:
    """Where in the whole step no clause serves on an axis."""
    axis = program.axis(name)
    assert axis is not None
    try:
        for factor in axis.factors:
            Walk(program=program, axis=axis, factor=factor, clauses=by_use(rule)).derivation()
    except NotTypedError as missing:
        return missing.place
    return None


@lru_cache(maxsize=1024)
def _base(text: str) -> Judged:
    """The verdict on the step without the axes that are put on one by one; many steps share it."""
    return judge(read(text, source="alone"))
