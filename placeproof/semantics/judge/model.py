"""Whether a linked program trains what one device trains: its blocks are proved against their contracts, and its step for all blocks that
keep theirs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace

from placeproof.core.diagnostics import Place
from placeproof.core.mesh import degree_symbol
from placeproof.models import Block, Model, holders, shared_by_segments
from placeproof.programs import For, Program, Resolved, assigned, statements
from placeproof.programs.ir import adjoints, with_buffers
from placeproof.prove import Budget
from placeproof.schedules import is_own, load
from placeproof.semantics.judge.ranges import Range
from placeproof.semantics.judge.repair import Repair, repaired
from placeproof.semantics.judge.verdict import Judged, Word, judge, judge_tensors, provable
from placeproof.semantics.linked import Linked
from placeproof.semantics.linked.contract import Breach, against_contracts, breaches, misfits
from placeproof.semantics.linked.link import as_linked, unlike
from placeproof.semantics.resolve import resolve
from placeproof.semantics.tensors.alone import Shown, comparable, coupled

#: What to write instead, of weights that units share.
_ROOT = "as a root unit has it: `fsdp(root=keep)`"
_ALL = "a step without units says who has it: all are gathered before the first layer, and reduced behind the last"
#: Milliseconds that a query may take about a step which one line would make of another.
_EACH = 500
#: Blocks that were proved, by what was proved: a step calls the same ones under many strategies.
_PROVED: dict[tuple[Resolved, Resolved | None], Judged] = {}
#: Steps that were proved, by what was proved of them: many strategies have the same one, and differ in the order of micro-batches.
_PROVED_STEPS: dict[tuple[Program, frozenset[str], tuple[Range, ...]], Judged] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedModel:
    """The verdict on a linked program. ``blocks``: those on its blocks, by name; ``breaches``: what blocks do otherwise than contracts say;
    ``step``: that on the step against contracts. ``model``: whose blocks one device runs; None where these are the program's own."""

    linked: Linked
    model: Model | None
    blocks: Mapping[str, Judged]
    breaches: tuple[Breach, ...]
    step: Judged

    @property
    def named(self) -> tuple[tuple[str, Judged], ...]:
        """All that has a verdict of its own, by what it is called."""
        return (*((f"block `{name}`", judged) for name, judged in self.blocks.items()), ("the step", self.step))

    @property
    def parts(self) -> tuple[Judged, ...]:
        """All that has a verdict of its own."""
        return (*self.blocks.values(), self.step)

    @property
    def references(self) -> dict[str, Resolved]:
        """What one device runs of blocks that the model has, too."""
        own = _own(self.model)
        references = {name: _reference(block, own[name]) for name, block in self.linked.blocks.items() if name in own}
        return {name: reference for name, reference in references.items() if isinstance(reference, Resolved)}

    @property
    def not_asked(self) -> tuple[str, ...]:
        """What lines of the program say that no proof speaks of."""
        linked, texts = self.linked, []
        shared = shared_by_segments(linked.shared, linked.stack)
        units = _over_units(linked)
        if shared and units and not any(s.start for s in units):  # else what is no layer is one unit
            listed = " and ".join(f"`{name}`" for name in shared)
            texts.append(f"which unit has {listed}, that several share: one of them, and its gradient is that of all uses ({_ROOT})")
        if linked.ring:
            axes = " and ".join(f"`{a}`" for a in linked.ring)
            ring = "that a ring gives the same is what `ring_attention` proves"
            texts.append(f"keys and values go round {axes}, and the block gathers them: {ring}")
        if linked.recompute != ("none",):
            texts.append(f"backward computes again ({', '.join(linked.recompute)}): the same operations on the same values")
        if linked.pipeline is not None:
            texts.append(f"the order of micro-batches ({linked.schedule}){_tried(linked.schedule)}: the step takes one after the other")
        return tuple(texts)

    @property
    def undecided(self) -> tuple[str, ...]:
        """What the program does not say, so that nothing is proved of it."""
        layers = [s for s in self.linked.stack if str(s.times) != "1"] if _over_units(self.linked) else []
        shared = [name for name in self.linked.shared if holders(name, layers)]
        unsure = [
            f"block `{name}`: {shown.text} in residues, and fractions say nothing"
            for name, shown in _coupled(self.linked, self.blocks)
            if not shown.sure
        ]
        return (
            *_apart(self.linked, self.model),
            *(f"every unit has `{name}`, which is one tensor, and each writes its gradient ({_ALL})" for name in shared),
            *unsure,
        )

    @property
    def word(self) -> Word:
        """Refuted where a part is; proved where all are, and blocks fit together."""
        words = {judged.word for judged in self.parts}
        if "refuted" in words or self.breaches:
            return "refuted"
        return "unknown" if "unknown" in words or self.undecided else "proved"


def judge_linked(
    linked: Linked,
    model: Model | None = None,
    *,
    without: frozenset[str] = frozenset(),
    ranges: tuple[Range, ...] = (),
    budget: Budget | None = None,
) -> JudgedModel:
    """Prove a linked program, or refute one of its parts.

    ``model``: whose blocks one device runs, in its own order; without it, one device runs those of the program. Raises InputError, and
    DisagreementError as :func:`judge` does.
    """
    linked = linked.with_degrees(_fixed(linked, ranges))
    model = None if model is None else as_linked(model, linked)
    own = _own(model)
    blocks = {name: _block(block, own.get(name), budget) for name, block in linked.blocks.items()}
    step = _step(against_contracts(linked), without, ranges, budget)
    judged = JudgedModel(linked=linked, model=model, blocks=blocks, breaches=(), step=step)
    return replace(judged, breaches=breaches_of(judged))


def repair_of(judged: JudgedModel) -> Repair | None:
    """What would make a step right, where one line does; None also where blocks are wrong, so that nothing is known of what they leave."""
    if judged.step.word == "proved" or judged.breaches or any(block.word != "proved" for block in judged.blocks.values()):
        return None
    options, budget = judged.step.options, Budget(milliseconds=_EACH)

    def proved(other: Linked) -> bool:
        return provable(against_contracts(other), without=options.without, ranges=options.ranges, budget=budget)

    return repaired(judged.linked, proved)


def breaches_of(judged: JudgedModel) -> tuple[Breach, ...]:
    """What a program is otherwise than its model, and what blocks do otherwise than contracts say, by how what they return lies."""
    return (*(() if judged.model is None else unlike(judged.linked, judged.model)), *_breaches(judged.linked, judged.blocks))


def _tried(schedule: str) -> str:
    """How an order is known to be one, where that is not read off a schedule of the catalogue."""
    if is_own(schedule):
        return ", of which small sizes were tried"
    return ", which is searched for, and run where there are numbers" if load(schedule).search is not None else ""


def _over_units(linked: Linked) -> list[For]:
    """The step's loops over units."""
    return [s for s in statements(linked.step.body) if isinstance(s, For) and s.domain == "units"]


def _fixed(linked: Linked, ranges: tuple[Range, ...]) -> dict[str, int]:
    """Degrees that ranges leave no choice of: a block is then proved for these."""
    only = len(linked.step.axes) == 1
    names = {degree_symbol(a.name, only=only): a.name for a in linked.step.axes}
    return {names[r.name]: r.bound for r in ranges if r.relation == "==" and r.name in names}


def _own(model: Model | None) -> dict[str, Block]:
    """The blocks of a model by name."""
    return {} if model is None else {b.name: b for s in model.segments for b in s.blocks}


def _reference(block: Block, own: Block) -> Resolved | str:
    """What one device runs of a block that the model has, too; or why it may not. The gradient that comes in may have any name."""
    program, (mine, its) = own.program, (adjoints(b.program) for b in (block, own))
    taken = {t.name for t in program.tensors} | {t.name for t in assigned(program.body)}
    if len(mine) == len(its) == 1 and taken.isdisjoint(mine):
        new = dict(zip(its, mine, strict=True))
        program = replace(with_buffers(program, new), tensors=tuple(replace(t, name=new.get(t.name, t.name)) for t in program.tensors))
    return comparable(resolve(block.program), resolve(program))


def _block(block: Block, own: Block | None, budget: Budget | None) -> Judged:
    program, reference = resolve(block.program), None if own is None else _reference(block, own)
    key = program, reference if isinstance(reference, Resolved) else None
    if key not in _PROVED:
        judged = judge_tensors(program, budget, key[1], lemmas=True)
        if judged.word == "proved":
            _PROVED[key] = judged
        return judged
    return _standing(_PROVED[key], program)


def _step(step: Program, without: frozenset[str], ranges: tuple[Range, ...], budget: Budget | None) -> Judged:
    key = replace(step, name=""), without, ranges
    if key not in _PROVED_STEPS:
        judged = judge(step, without=without, ranges=ranges, budget=budget)
        if judged.word == "proved":
            _PROVED_STEPS[key] = judged
        return judged
    return _standing(_PROVED_STEPS[key], resolve(step))


def _standing(judged: Judged, program: Resolved) -> Judged:
    """What was proved of a program that is the same, and may stand in other lines."""
    new = dict(zip(_places(judged.program), _places(program), strict=True))
    settled = (replace(s, obligation=replace(s.obligation, place=new.get(s.obligation.place))) for s in judged.settled)
    return replace(judged, program=program, settled=tuple(settled))


def _places(part: object) -> Iterator[Place | None]:
    """Where a program and its parts stand, those of the same parts at the same positions."""
    if isinstance(part, tuple):
        for one in part:
            yield from _places(one)
    elif is_dataclass(part) and not isinstance(part, Place):
        yield getattr(part, "place", None)
        for field in fields(part):
            yield from _places(getattr(part, field.name))


def _apart(linked: Linked, model: Model | None) -> Iterator[str]:
    """Blocks that cannot be asked whether they are the model's, with the reason."""
    own = _own(model)
    for name, block in linked.blocks.items():
        why = _reference(block, own[name]) if name in own else None
        if isinstance(why, str):
            yield f"block `{name}` is not compared with the model's: {why}"


def _coupled(linked: Linked, blocks: Mapping[str, Judged]) -> Iterator[tuple[str, Shown]]:
    """Blocks in which samples meet, or whose loss is no mean over them."""
    last = linked.stack[-1].blocks[-1].name
    for name, judged in blocks.items():
        if (shown := coupled(judged.program, loss=name == last)) is not None:
            yield name, shown


def _breaches(linked: Linked, blocks: Mapping[str, Judged]) -> Iterator[Breach]:
    """Of blocks that return what can be followed; how they fit together, where each has what others ask for."""
    wrong = [b for name, judged in blocks.items() for b in breaches(linked.blocks[name], judged.results, linked.frozen(name))]
    wrong += [Breach(block=name, text=shown.text, shown=shown) for name, shown in _coupled(linked, blocks) if shown.sure]
    yield from wrong
    if not wrong and all(judged.results for judged in blocks.values()):
        yield from misfits(linked, {name: judged.results for name, judged in blocks.items()})
