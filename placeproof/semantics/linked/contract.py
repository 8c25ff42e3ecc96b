"""What a step takes for granted of the blocks that it calls, and what is left of a linked program once that is granted.

A block's contract says how its weights lie, and of which of their gradients each device finds a part; how the stream lies that it reads,
and the gradients that it is given. The block is proved to keep it, for itself. The step is proved for any blocks that keep theirs: it is a
step program like any other, in which axes that split blocks are said to do just that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial as partial_function
from typing import TYPE_CHECKING

from placeproof.core.diagnostics import Place, Problems, refuse
from placeproof.core.mesh import SPLITS
from placeproof.core.modes import SHARDED, Mode
from placeproof.core.states import MODEL_STATES, PARAMETERS
from placeproof.models import Block, holders, turns
from placeproof.models.family import apart
from placeproof.models.programs import WIRES, output, weights
from placeproof.programs import Assign, Call, Do, Expr, Placed, Program, Ref, Stmt
from placeproof.programs.ir import Group, Tensor, references, rewritten, with_expressions
from placeproof.semantics.linked.claims import partial
from placeproof.semantics.linked.data import Linked, splitting
from placeproof.semantics.tensors import Result

if TYPE_CHECKING:
    from placeproof.semantics.tensors.alone import Shown

#: Along which axes each dimension of a tensor lies in parts, the outermost first.
Split = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightContract:
    """Of a weight: the axes over which it lies in parts, a device having the gradient of its own; and those over which the gradient is the
    sum of what devices find. ``whole``: the axes along which its parts are whole matrices: an expert is one by itself."""

    split: tuple[str, ...]
    partial: tuple[str, ...]
    whole: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = [f"in parts over {_listed(self.split)}"] if self.split else []
        words += [f"the gradient is a sum over {_listed(self.partial)}"] if self.partial else []
        return ", ".join(words) or "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """Of a block. ``reads``: how what it reads of other blocks lies, by the names it has here. ``gives``: under which name others read
    what it gives; ``given``: how the gradient of that lies, which is given to it; None where it is a number, as a loss is."""

    weights: Mapping[str, WeightContract]
    reads: Mapping[str, Split]
    gives: str
    given: Split | None


def contract_of(block: Block) -> Contract:
    """What a block's text says of itself."""
    program, sums = block.program, partial(block.program)
    own = {
        w.name: WeightContract(
            split=tuple(a for a, _ in w.split),
            partial=sums.get(w.name, ()),
            whole=tuple(a for a, dim in w.split if dim in apart(block.groups[w.name])),
        )
        for w in weights(program)
    }
    tensors = {t.name: t for t in program.tensors}
    incoming = next((c for c in _returns(program) if c.option("at")), None)
    adjoint = tensors.get(incoming.option("at") or "") if incoming is not None else None
    return Contract(
        weights=own,
        reads={name: split_of(tensors[name]) for name in WIRES.values() if name in tensors},
        gives=WIRES[output(program) or "y"],
        given=split_of(adjoint) if adjoint is not None and adjoint.dims else None,
    )


def split_of(tensor: Tensor) -> Split:
    """How a tensor of a header lies."""
    return {dim: tuple(axis for axis, along in tensor.split if along == dim) for dim in sorted(tensor.dims)}


def _returns(program: Program) -> Iterator[Call]:
    yield from (s.call for s in program.body if isinstance(s, Do) and s.call.op == "returns")


def against_contracts(linked: Linked) -> Program:
    """The step of a linked program as a program of its own: its parameters lie as its blocks say, and their gradients are what the blocks
    leave. Groups of which the blocks say different things become several.

    Raises InputError where the step places parameters on an axis along which a block has them in parts.
    """
    step, stands = linked.step, stands_for(linked)
    optimizer = dict(step.reference).get("optimizer", "elementwise")
    parts = {
        group.name: [
            (_part(group, name, s.lies, (group.update or optimizer) == "elementwise"), s.lies)
            for name, s in stands.items()
            if s.group == group.name
        ]
        for group in step.groups
    }
    axes = tuple(replace(a, splits=SPLITS["blocks"]) if a in splitting(step) else a for a in step.axes)
    groups = tuple(g for own in parts.values() for g, _ in own)
    states = {True: (PARAMETERS,), False: MODEL_STATES}
    placed = tuple(
        _placed(linked, state.name, old, new, lies) for old, own in parts.items() for new, lies in own for state in states[new.frozen]
    )
    names = {old: tuple(g.name for g, _ in own) for old, own in parts.items()}
    return replace(step, axes=axes, groups=groups, placed=placed, body=_each(step.body, names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stands:
    """What a group of a step against contracts stands for: weights of a ``group`` of the program, of which blocks say the same."""

    group: str
    weights: tuple[tuple[str, str], ...]
    lies: WeightContract


def stands_for(linked: Linked) -> dict[str, Stands]:
    """The groups of the step against contracts: those of the program, each as several where blocks say different things of its weights."""
    contracts = {name: contract_of(block) for name, block in linked.blocks.items()}
    stands: dict[str, Stands] = {}
    for group in linked.step.groups:
        members: dict[WeightContract, list[tuple[str, str]]] = {}
        for block, weight in linked.weights():
            if linked.group(block, weight) == group.name:
                members.setdefault(contracts[block].weights[weight], []).append((block, weight))
        for lies, own in (members or {WeightContract(split=(), partial=()): []}).items():
            name = "_".join(own[0]) if len(members) > 1 else group.name
            stands[name] = Stands(group=group.name, weights=tuple(own), lies=lies)
    return stands


def require_experts(linked: Linked) -> None:
    """Raise InputError where a group says that experts lie over other axes than its blocks do."""
    contracts, problems = {name: contract_of(block) for name, block in linked.blocks.items()}, Problems()
    for group in linked.step.groups:
        for block, weight in linked.weights():
            lies = contracts[block].weights[weight].whole
            if linked.group(block, weight) == group.name and {*lies} != {*group.experts}:
                where = [f"over {_listed(axes)}" if axes else "whole on each device" for axes in (group.experts, lies)]
                message = f"group `{group.name}` has experts {where[0]}, and those of `{block}.{weight}` lie {where[1]}"
                said = f'`experts="{" ".join(lies)}"`' if lies else "leave `experts` out"
                problems.add("PP311", message, place=group.place, help=f"{said}, or another group")
                break
    problems.raise_if_any()


def _part(group: Group, name: str, lies: WeightContract, alone: bool) -> Group:
    """``alone``: the update reads no other element, so that nothing asks for whole matrices."""
    whole = () if alone else tuple(dict.fromkeys((*group.whole, *lies.whole)))
    return replace(group, name=name, partial=lies.partial, whole=whole, experts=())


def _placed(linked: Linked, state: str, old: str, new: Group, lies: WeightContract) -> Placed:
    """Where a state of a group lies: on axes that split its blocks as these say, on others as the step says."""
    said = [p for p in linked.step.placed if p.state == state and p.group in (None, old)]
    modes: dict[str, Mode] = dict(m for p in sorted(said, key=lambda p: p.group is not None) for m in p.modes)
    place = said[-1].place if said else None
    for axis in lies.split:
        if modes.get(axis) is not None and modes[axis].split:
            message = f"the step places {state} in parts over `{axis}`, and so do blocks with weights of group `{old}`"
            refuse("PP311", message, place=place, help=f"leave `{axis}` out of the step's placement")
        modes[axis] = SHARDED
    if linked.pipeline is not None:
        modes[linked.pipeline] = SHARDED
    return Placed(state=state, group=new.name, modes=tuple(sorted(modes.items())), place=place)


def _each(body: tuple[Stmt, ...], names: Mapping[str, tuple[str, ...]]) -> tuple[Stmt, ...]:
    """Statements about a group, said of each of those that it became."""
    stmts: list[Stmt] = []
    for stmt in body:
        several = {r.group for r in references(stmt) if r.group is not None and names.get(r.group, (r.group,)) != (r.group,)}
        inside = partial_function(_each, names=names)
        copies = names[several.pop()] if len(several) == 1 else (None,)
        for name in copies:
            stmts.append(with_expressions(stmt, partial_function(_renamed, names=names, name=name), inside))
    return tuple(stmts)


def _renamed(expr: Expr, names: Mapping[str, tuple[str, ...]], name: str | None) -> Expr:
    def one(part: Expr) -> Expr:
        if isinstance(part, Ref) and part.group is not None and name in names.get(part.group, ()):
            return replace(part, group=name)
        return part

    return rewritten(expr, one)


def _listed(axes: tuple[str, ...]) -> str:
    return " and ".join(f"`{a}`" for a in axes)


# Whether blocks keep their contracts, beyond computing what one device does.


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """What a block does otherwise than its contract, or that of the block beside it, says; None: what the program does otherwise than its
    model. ``shown``: the numbers that show it, where a run does."""

    block: str | None
    text: str
    place: Place | None = None
    shown: Shown | None = None


def breaches(block: Block, results: Sequence[Result], frozen: Collection[str] = ()) -> Iterator[Breach]:
    """What a block lacks of what a step takes for granted: one result, of which every gradient is, that each reader and each weight needs.

    ``results``: what its program returns; empty where it cannot be followed, so that its text alone is asked. ``frozen``: weights that are
    not trained, of which there is no gradient.
    """
    if not results:
        yield from _unlike_its_text(block)
        return
    contract, plain = contract_of(block), [r for r in results if not r.call.option("by")]
    gradients = [r for r in results if r.call.option("by")]
    given = gradients[0].at if gradients else None  # the name of the gradient that comes in
    bad = partial_function(Breach, block=block.name)
    if len(plain) != 1:
        yield bad(text=f"it gives {len(plain)} results, and a block gives one")
        return
    for result in gradients:
        by, place = result.call.option("by"), result.call.place
        if result.of != 0:
            yield bad(text=f"the gradient by `{by}` is of something else than what it gives", place=place)
        if result.at is None or result.at != given:
            yield bad(text=f"the gradient by `{by}` does not begin with the gradient that comes in", place=place)
        if result.by is None:
            yield bad(text=f"`{by}` is something else there than what the block is given", place=place)
    if given in plain[0].reads:
        yield bad(text=f"what it gives is computed from `{given}`, the gradient that comes in", place=plain[0].call.place)
    counted = Counter(r.by for r in gradients)
    through = bool(gradients) or not {*contract.weights} <= {*frozen}  # else nothing is trained, and `misfits` says of nothing before it
    for name in (*contract.weights, *contract.reads):
        if counted[name] != (name not in frozen and (through or name in contract.weights)):
            times = "no" if not counted[name] else f"{counted[name]} times a"
            yield bad(text=f"it gives {times} gradient by `{name}`, which it {'has' if name in contract.weights else 'reads'}")


def _unlike_its_text(block: Block) -> Iterator[Breach]:
    """Of a block whose results are not known: gradients of something else than what is given, which is no other name for it."""
    names = {s.targets[0].name for s in block.program.body if isinstance(s, Assign) and isinstance(s.value, Ref)} | {output(block.program)}
    gradients = [call for call in _returns(block.program) if call.option("by")]
    usual = Counter(call.option("at") for call in gradients).most_common(1)
    for call in gradients:
        by = call.option("by")
        if call.option("gradient_of") not in names:
            yield Breach(block=block.name, text=f"the gradient by `{by}` is of something else than what it gives", place=call.place)
        elif call.option("at") != usual[0][0]:
            yield Breach(block=block.name, text=f"the gradient by `{by}` does not begin with the gradient that comes in", place=call.place)


def misfits(linked: Linked, results: Mapping[str, Sequence[Result]]) -> Iterator[Breach]:
    """Where a block is given something that lies otherwise than it reads it: by the block before it, or, of gradients, behind it.

    ``results``: what the program of each block returns.
    """
    contracts = {name: contract_of(block) for name, block in linked.blocks.items()}
    for producer, consumer in dict.fromkeys(_neighbours(linked)):
        wire = contracts[producer].gives
        forward = next(r for r in results[producer] if not r.call.option("by"))
        backward = next((r for r in results[consumer] if r.by == wire), None)
        read, given = contracts[consumer].reads[wire], contracts[producer].given
        if not _fits(forward, read):
            text = f"it gives `{wire}` {in_words(_lies(forward))}, and `{consumer}` reads it {in_words(read)}{_counted(forward, read)}"
            yield Breach(block=producer, text=text, place=forward.call.place)
        if given is None and not any(r.call.option("by") for r in results[producer]):
            continue  # nothing in it or before it is trained
        if backward is None:
            yield Breach(block=consumer, text=f"it gives no gradient by `{wire}`, and `{producer}` has something to train, or before it")
        elif given is None or not _fits(backward, given):
            wanted = "takes no gradient" if given is None else f"takes it {in_words(given)}{_counted(backward, given)}"
            text = f"it gives the gradient by `{wire}` {in_words(_lies(backward))}, and `{producer}` {wanted}"
            yield Breach(block=consumer, text=text, place=backward.call.place)
    yield from _given_by_no_one(linked, contracts)
    yield from _norms_between(linked, contracts)
    last = linked.stack[-1].blocks[-1]
    if contracts[last.name].given is not None:
        yield Breach(block=last.name, text="it is the last one, and gives no loss: a number, whose gradient is given as a number")
    yield from _shared(linked, contracts)


def _given_by_no_one(linked: Linked, contracts: Mapping[str, Contract]) -> Iterator[Breach]:
    """What a block reads that no block before it gives."""
    given: set[str] = set()
    for block in (b for segment in linked.stack for b in segment.blocks):
        reads = contracts[block.name].reads
        for wire in (w for w in reads if w not in given):
            yield Breach(block=block.name, text=f"it reads `{wire}`, which no block gives before it")
        given |= {*reads, contracts[block.name].gives}


def _norms_between(linked: Linked, contracts: Mapping[str, Contract]) -> Iterator[Breach]:
    """From one stage to the next goes the stream alone."""
    for segment in linked.stack if linked.stages is not None and linked.stages.degree != 1 else ():
        given: set[str] = {"x"}
        for block in segment.blocks:
            for wire in (w for w in contracts[block.name].reads if w not in given):
                text = f"it reads `{wire}`, which no block of `{segment.name}` gives before it: between stages goes the stream alone"
                yield Breach(block=block.name, text=text)
            given.add(contracts[block.name].gives)


def _shared(linked: Linked, contracts: Mapping[str, Contract]) -> Iterator[Breach]:
    """One tensor lies in one way, wherever it is used; and what stages have in common is added up by the step."""
    stages = linked.stages
    for name in linked.shared if stages is not None and stages.degree != 1 else ():
        where = holders(name, linked.stack)
        tied = {m for g in linked.step.groups if g.tied for m in linked.members.get(g.name, ())}
        if any(str(s.times) != "1" for s in where):
            yield Breach(
                block=None, text=f"`{name}` is shared by layers of several stages, and the step adds up the gradients of no more than two"
            )
        elif len(where) > 1 and all((b.name, name) not in tied and name not in linked.frozen(b.name) for s in where for b in s.blocks):
            yield Breach(block=None, text=f"`{name}` is shared by the first and the last stage, and no group that is tied has it")
    for name in linked.shared:
        having = [block for block, contract in contracts.items() if name in contract.weights]
        for block in having[1:]:
            if contracts[block].weights[name] != contracts[having[0]].weights[name]:
                first, own = contracts[having[0]].weights[name], contracts[block].weights[name]
                yield Breach(block=block, text=f"`{name}` is {own} here, and {first} in `{having[0]}`, which shares it")


def in_words(split: Split) -> str:
    """How a tensor lies."""
    if not split:
        return "as a number"
    parts = [f"{dim} in parts over {_listed(axes)}" for dim, axes in split.items() if axes]
    return f"as [{', '.join(split)}], {' and '.join(parts) or 'all of it'}"


def _lies(result: Result) -> Split:
    return {dim: result.sharding.split.get(dim, ()) for dim in sorted(result.dims)}


def _counted(result: Result, wanted: Split) -> str:
    """How many places of a dimension a device has, and how many it needs, where each axis has two devices."""
    words = []
    for dim, own in _lies(result).items():
        needed = wanted.get(dim, own)
        if own != needed and dim not in result.sharding.loose:
            axes = ", ".join(f"{axis} = 2" for axis in dict.fromkeys((*own, *needed)))
            size = 2 ** max(len(own), len(needed))
            count = f"has {size >> len(own)} and needs {size >> len(needed)}" if len(own) != len(needed) else "has others than it needs"
            words.append(f"of {dim} = {size} with {axes} a device {count}")
    return "".join(f"; {text}" for text in words)


def _fits(result: Result, wanted: Split) -> bool:
    """Whether every device has what is read: of dimensions along which anything can be made on the spot, it has."""
    return result.dims == set(wanted) and all(
        axes == _lies(result)[dim] for dim, axes in wanted.items() if dim not in result.sharding.loose
    )


def _neighbours(linked: Linked) -> Iterator[tuple[str, str]]:
    """Blocks, each with one that reads what it gives: within a segment, in the next repetition of it and of those that come in turn with
    it, and in the segment behind."""
    last: dict[str, str] = {}
    for turn in turns(linked.stack):
        for block in [block for segment in turn for block in segment.blocks] * (1 if str(turn[0].times) == "1" else 2):
            contract = contract_of(block)
            yield from ((last[wire], block.name) for wire in contract.reads if wire in last)
            last[contract.gives] = block.name


__all__ = ["Breach", "Contract", "Stands", "WeightContract", "against_contracts", "breaches", "contract_of", "misfits", "stands_for"]
