"""Linking: the step of a strategy and the blocks of a model put together, each lowered onto the mesh by itself.

A block's plan says how axes split it; what it sends is in its program. The gradients of its weights it leaves as sums over each device's
own samples and tokens: the step adds them up, once. Axes that split only the batch are none of a block's: a device's micro-batch is what
it sees.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

from placeproof.core.diagnostics import InputError, refuse
from placeproof.core.states import PARAMETERS
from placeproof.core.strategy import (
    ADAPTER,
    ADAPTER_SUMS,
    COPIES,
    ELEMENTWISE,
    EXPERT,
    EXPERT_COPIES,
    FROZEN,
    MATRIX,
    MATRIX_COPIES,
    MATRIX_SUMS,
    NORM,
    TIED,
    Strategy,
)
from placeproof.core.symbols import symbol
from placeproof.models import Block, Model, Segment, shared_by_segments
from placeproof.models.adapters import SIZE, adapted, adapters, targets
from placeproof.models.expressions import Amount, Expression, expression
from placeproof.models.family import ROUTER
from placeproof.models.freezing import PARTS, TRAINED, frozen
from placeproof.models.programs import factors, rows_reached, weights
from placeproof.programs import Program
from placeproof.programs.ir import Tensor
from placeproof.semantics.blocks import Plan, combined, context_parallel, expert_parallel, lower_block, tensor_parallel
from placeproof.semantics.linked.claims import left_partial, partial
from placeproof.semantics.linked.contract import Breach
from placeproof.semantics.linked.data import Linked, dimensions, splitting
from placeproof.semantics.lower import lower
from placeproof.semantics.lower.facts import Facts
from placeproof.semantics.scheduled import chunks_of, name_of
from placeproof.semantics.usable import require_usable


def link(model: Model, strategy: Strategy, *, recompute: tuple[str, ...] | None = None, layers: Sequence[int] | None = None) -> Linked:
    """The program of a model's step under a strategy. ``layers``: as :class:`Linked` has them; so is ``recompute``, None for what the
    strategy says.

    Raises InputError for a strategy that no device could use, for a block that cannot be lowered onto its mesh, and for experts that the
    model does not have.
    """
    require_usable(strategy)
    _require_experts(model, strategy)
    _require_matrices(model, strategy)
    keeps = strategy.schedule
    if keeps.train == "adapters":
        model = adapted(model, targets(model, keeps.targets or "linear"), keeps.rank)
    elif keeps.train == "part":
        model = frozen(model, keeps.parts or "embedding", keeps.layers)
    pipeline = any(a.splits.stages for a in strategy.axes)
    untrained = {w for s in model.segments for b in s.blocks for w in b.frozen}
    tied = tuple(w for w in shared_by_segments(model.shared, model.segments) if pipeline and w not in untrained)
    facts, plan = Facts(strategy), plan_of(strategy)
    lowered = {b.name: _lowered(b, plan) for b in {b.name: b for s in model.segments for b in s.blocks}.values()}
    step = _step(strategy, lowered, facts, tied)
    made = {name: replace(block, program=replace(block.program, axes=splitting(step))) for name, block in lowered.items()}
    for block in made.values():
        _require_sums(block, facts)
    stack = tuple(replace(s, blocks=tuple(made[b.name] for b in s.blocks), times=_times(model, s)) for s in model.segments)
    return Linked(
        model=model.name,
        title=model.title,
        source=model.source,
        note=model.note,
        step=step,
        stack=stack,
        sizes={dim: said(size) for dim, size in _dims(model, stack).items()},
        values=dict(model.sizes),
        members={g.name: tuple(_members(g.name, made.values(), facts, tied)) for g in step.groups[1:]},
        shared=model.shared,
        recompute=recompute or (("full",) if strategy.schedule.recompute else ("none",)),
        schedule=name_of(strategy),
        chunks=chunks_of(strategy) if pipeline else 1,
        layers=None if layers is None else tuple(layers),
        ring=tuple(a.name for a in strategy.axes if a.splits.tokens and strategy.schedule.attention == "ring"),
    )


def _step(strategy: Strategy, lowered: Mapping[str, Block], facts: Facts, tied: Sequence[str]) -> Program:
    """The step beside blocks that lie on the mesh."""
    weights_of = {(_kind(b, w.name, facts, tied), _sums(b, w.name, facts), _copied(w, facts)) for b in lowered.values() for w in b.weights}
    found = (MATRIX_SUMS, NORM, EXPERT, EXPERT_COPIES, TIED, ADAPTER_SUMS)
    sums = _alike(found, ((group, axes) for group, axes, _ in weights_of))
    copies = _alike((*found, MATRIX_COPIES, COPIES), ((group, axes) for group, _, axes in weights_of))
    if EXPERT in sums and EXPERT_COPIES in sums:
        message = f"gradients of experts' biases are summed over other axes than those of their matrices over `{sums[EXPERT][0]}`"
        refuse("PP122", f"{message}: that is not lowered", help=f"let experts lie over it, too: `ep({sums[EXPERT][0]})`")
    vectors = any(kind == ELEMENTWISE for kind, _, _ in weights_of)
    if facts.hidden and strategy.schedule.clip and any(kind == ADAPTER and not summed and copied for kind, summed, copied in weights_of):
        refuse("PP122", f"the norm of adapters that every device of `{facts.hidden[0]}` has whole is not lowered", help="leave `clip` out")
    return lower(strategy, linked=True, tied=bool(tied), sums=sums, copies=copies, vectors=vectors)


def as_linked(model: Model, linked: Linked) -> Model:
    """The model whose step a linked program says: with adapters where the blocks of the program have some, and with that frozen for which
    it has other blocks."""
    if beside := adapters(tuple(linked.blocks.values())):
        return adapted(model, beside, linked.values.get(SIZE))
    names = {block.name for s in model.segments for block in s.blocks}
    if names >= linked.blocks.keys():
        return model
    for part in PARTS:
        try:
            found = frozen(model, part, linked.values.get(TRAINED))
        except InputError:
            continue  # it has nothing of that name, and its step is another one
        if {b.name for s in found.segments for b in s.blocks} == linked.blocks.keys():
            return found
    return model


def unlike(linked: Linked, model: Model) -> Iterator[Breach]:
    """Where a linked program is not that of a model: in which blocks it has, in what order and how often, how large they are, and what they
    share. What blocks compute is proved."""

    def differs(what: str, here: object, there: object) -> Iterator[Breach]:
        if here != there:
            yield Breach(block=None, text=f"{what}: {here} here, and {there} in `{model.name}`")

    names = [(s.name, [b.name for b in s.blocks]) for s in linked.stack]
    yield from differs("the blocks of the stack", names, [(s.name, [b.name for b in s.blocks]) for s in model.segments])
    if [name for name, _ in names] == [s.name for s in model.segments]:
        yield from differs("which segments come in turn", [s.in_turn for s in linked.stack], [s.in_turn for s in model.segments])
        for segment, own in zip(linked.stack, model.segments, strict=True):
            yield from differs(f"how often `{segment.name}` is repeated", str(segment.times), str(_times(model, own)))
    sizes = {dim: str(said(size)) for dim, size in _dims(model, linked.stack).items()}
    for dim, size in linked.sizes.items():
        if dim in sizes:
            yield from differs(f"the size of `{dim}`", str(size), sizes[dim])
    yield from differs("what is shared", sorted(linked.shared), sorted(model.shared))


def plan_of(strategy: Strategy) -> Plan:
    """What the strategy's axes split of a block."""
    plans = []
    facts = Facts(strategy)
    for axis in strategy.axes:
        if axis.splits.matrices:
            experts: Literal["split", "whole", "apart"] = "split" if _splits_experts(strategy, axis.name) else "whole"
            experts = "apart" if axis.name in facts.experts else experts
            plans.append(tensor_parallel(axis.name, axis.degree, sequence=facts.sequence_parallel, experts=experts))
        elif axis.splits.tokens:
            by: Literal["gather", "ulysses"] = "ulysses" if strategy.schedule.attention == "ulysses" else "gather"
            plans.append(context_parallel(axis.name, axis.degree, by=by, experts=axis.name in facts.experts))
        elif axis.name in facts.experts:
            plans.append(expert_parallel(axis.name, axis.degree))
    return combined(*plans) if plans else Plan(())


def _require_experts(model: Model, strategy: Strategy) -> None:
    facts = Facts(strategy)
    if facts.experts and strategy.schedule.layers is not None:
        message = f"experts of some layers are trained, those of others are not, and all lie over `{facts.experts[0]}`: that is not lowered"
        refuse("PP122", message, help="leave `ep` out, or `layers`")
    axes = facts.experts
    _require_tokens(strategy, facts)
    if not axes or any(group == EXPERT for s in model.segments for b in s.blocks for group in b.groups.values()):
        return
    message = f"axis `{axes[0]}` of `{strategy.name}` spreads experts over devices, and {model.name} has none"
    help = "leave `ep` out, or take a model with experts: mixtral-8x7b, deepseek-v3"
    note = "the same rule in frameworks: megatron-31 (`placeproof explain megatron-31`)"
    refuse("PP104", message, help=help, notes=(note,))


def _require_tokens(strategy: Strategy, facts: Facts) -> None:
    """Raise InputError where tokens would be sent to experts, or gathered for them, over an axis of which others split each part."""
    inside = [a.name for a in strategy.axes if a.splits.tokens or (a.name in facts.hidden and facts.sequence_parallel)]
    kinds = {a: 0 if a in facts.experts else 1 if a in facts.hidden and _splits_experts(strategy, a) else 2 for a in inside}
    pairs = [(outer, other) for number, outer in enumerate(inside) for other in inside[number + 1 :] if kinds[outer] < kinds[other]]
    if not facts.experts or not pairs:
        return
    (outer, other), *_ = pairs
    message = f"tokens that `{outer}` splits lie in parts over `{other}`, too"
    what = "send them to" if outer in facts.experts else "gather them for"
    help = f"let experts lie over `{other}`, too: `ep({other})`; or over devices that have other samples"
    if outer in facts.hidden:
        help = f"axes of tensor parallelism lie in the order of their names: call `{outer}` by one that comes behind `{other}`"
    refuse("PP122", f"{message}: to {what} experts over `{outer}` alone is not lowered for blocks", help=help)


def _splits_experts(strategy: Strategy, axis: str) -> bool:
    """Whether each expert is split over an axis that splits the hidden dimension."""
    return not strategy.experts or strategy.mode(PARAMETERS, axis, EXPERT).split


def _lowered(block: Block, plan: Plan) -> Block:
    program = left_partial(lower_block(block.program, plan))
    return replace(block, program=program, weights=weights(program), reached=rows_reached(program), buffers={})


def _require_sums(block: Block, facts: Facts) -> None:
    """Raise InputError where a step would sum, over an axis along which samples or tokens lie, a gradient that is no sum over it."""
    sums = partial(block.program)
    for weight in (w for w in block.weights if w.name not in block.frozen):
        for axis in (a.name for a in block.program.axes if a.name in facts.samples):
            split = any(axis == own for own, _ in weight.split)
            if axis not in sums.get(weight.name, ()) and not split:
                message = (
                    f"every device of `{axis}` computes the whole gradient of `{weight.name}` of block `{block.name}`, and steps sum it"
                )
                refuse("PP122", message, help=f"leave `{axis}` out")


def _dims(model: Model, stack: Sequence[Segment]) -> dict[str, object]:
    """The sizes of the dimensions that blocks have, in the symbols that the model says or leaves open."""
    known = {name: symbol(name) for name in (*model.given, "b")}
    used = {dim for s in stack for b in s.blocks for dim in dimensions(b.program)}
    return {dim: size for dim, size in model.dims(known).items() if dim in used}


def _times(model: Model, segment: Segment) -> Expression:
    known = {name: symbol(name) for name in model.given}
    return said(model.times(known)[segment.name])


@cache
def said(amount: Amount) -> Expression:
    """An amount as text has it, which begins with no sign."""
    import sympy

    terms = sorted(sympy.Add.make_args(sympy.sympify(amount)), key=lambda term: bool(term.could_extract_minus_sign()))
    text = str(amount) if len(terms) == 1 or not str(amount).startswith("-") else " + ".join(map(str, terms)).replace("+ -", "- ")
    return expression(ast.unparse(ast.parse(text)))


def _sums(block: Block, weight: str, facts: Facts) -> tuple[str, ...]:
    """The hidden axes of which each device finds a part of the gradient of a weight."""
    sums = partial(block.program).get(weight, ())
    return tuple(axis for axis in facts.hidden if axis in sums)


def _alike(groups: Iterable[str], said: Iterable[tuple[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    """Those of some groups of which weights are sums, or copies, over hidden axes, with these axes.

    Raises InputError where weights of one group differ in the axes.
    """
    every = sorted({one for one in said if one[1]})
    alike: dict[str, tuple[str, ...]] = {}
    for group in groups:
        ways = [axes for of, axes in every if of == group]
        if len(ways) > 1:
            first, other, *_ = (" and ".join(f"`{axis}`" for axis in axes) for axes in ways)
            message = f"weights of the group `{group}` lie, or are summed, alike over {first}, and others over {other}: that is not lowered"
            refuse("PP122", message, help="merge the axes of tensor parallelism into one")
        if ways:
            alike[group] = ways[0]
    return alike


def _kind(block: Block, weight: str, facts: Facts, tied: Sequence[str]) -> str:
    """The step's group of a weight: what the ends of a pipeline share, experts, or what each device of the hidden axis finds a part of the
    gradient of; where squares of all are added up, what each of these devices has; else that of all others. Where an update reads whole
    matrices, the last is that of matrices in parts."""
    if facts.strategy.schedule.train == "adapters":
        if block.groups[weight] == ADAPTER:
            return ADAPTER_SUMS if _sums(block, weight, facts) else ADAPTER
        return EXPERT if block.groups[weight] == EXPERT and facts.experts else ""
    if weight in block.frozen:
        return FROZEN
    expert = block.groups[weight] == EXPERT
    own = {a for a in facts.hidden if not expert or (a not in facts.experts and _splits_experts(facts.strategy, a))}
    copied = bool(own) and any(w.name == weight and own <= {*_copied(w, facts)} for w in block.weights)
    if weight in tied:
        return TIED
    summed, whole = bool(_sums(block, weight, facts)), facts.matrices_apart
    if block.groups[weight] == EXPERT and facts.experts:
        return EXPERT_COPIES if copied and facts.split_experts and (summed or facts.strategy.schedule.clip) else EXPERT
    if whole and _in_matrices(block, weight, facts):
        return MATRIX_SUMS if summed else MATRIX_COPIES if copied else ""
    if summed:
        return NORM
    apart = facts.strategy.schedule.clip or facts.norms_of_vectors  # numbers of tensors are summed over what lies in parts alone
    return COPIES if copied and apart else ELEMENTWISE if whole else ""


def _in_matrices(block: Block, weight: str, facts: Facts) -> bool:
    """Whether an update of whole matrices reads the whole of a weight: a factor of products; no table or head, unless it reads these."""
    return (facts.norms_of_vectors or block.groups[weight] in (MATRIX, ROUTER, EXPERT)) and weight in factors(block.program)


def _require_matrices(model: Model, strategy: Strategy) -> None:
    """Raise InputError where an update of whole matrices has adapters beside an axis that splits the hidden dimension, or experts over an
    axis of which something is no matrix."""
    keeps, facts = strategy.schedule, Facts(strategy)
    hidden = facts.hidden
    if facts.whole_update and len(hidden) > 1:
        shown = " and ".join(f"`{axis}`" for axis in hidden)
        message = f"which matrices lie in parts on {shown}, to be brought together for an update of whole ones, is not lowered"
        refuse("PP122", message, help="merge the axes of tensor parallelism into one, or update element by element")
    if facts.whole_update and keeps.train == "adapters" and hidden:
        message = f"which adapters lie in parts on `{hidden[0]}`, to be gathered for an update of whole matrices, is not lowered"
        refuse("PP122", message, help=f"leave `{hidden[0]}` out, or update element by element")
    if not facts.matrices_apart or keeps.train == "adapters" or not strategy.experts:
        return
    for block in (b for s in model.segments for b in s.blocks):
        for weight in (w for w, group in block.groups.items() if group == EXPERT and not _in_matrices(block, w, facts)):
            message = f"`{block.name}.{weight}` of {model.name} is of experts and no matrix, and they lie over `{strategy.experts[0]}`"
            refuse("PP122", f"{message}: to update it apart from matrices is not lowered", help="leave `ep` out")


def _copied(weight: Tensor, facts: Facts) -> tuple[str, ...]:
    """The hidden axes of which each device has all of a weight."""
    cut = {axis for axis, _ in weight.split}
    return tuple(axis for axis in facts.hidden if axis not in cut)


def _members(group: str, blocks: Iterable[Block], facts: Facts, tied: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The weights of one of the step's groups."""
    for block in blocks:
        yield from ((block.name, w.name) for w in block.weights if _kind(block, w.name, facts, tied) == group)
