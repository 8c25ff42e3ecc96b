"""A whole step: header, micro-batches, the reductions that could wait, the update."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from placeproof.core.diagnostics import refuse
from placeproof.core.modes import SHARDED, Mode, Share
from placeproof.core.states import ACTIVATIONS, GRADIENTS, MODEL_STATES, OPTIMIZER, PARAMETERS, State
from placeproof.core.strategy import (
    ADAPTER,
    ADAPTER_SUMS,
    BASE,
    COPIES,
    DENSE,
    ELEMENTWISE,
    EXPERT,
    EXPERT_COPIES,
    EXPERTS,
    FROZEN,
    MATRIX,
    MATRIX_COPIES,
    MATRIX_SUMS,
    NORM,
    TIED,
    Strategy,
)
from placeproof.programs import DEFAULT_GROUP, Expr, For, Group, Placed, Program, Ref, Stmt, read, render
from placeproof.semantics.lower.facts import Facts
from placeproof.semantics.lower.flight import flow, one_copy_each
from placeproof.semantics.lower.passes import Passes
from placeproof.semantics.lower.write import call, do, infix, let, loop, num, of, ref
from placeproof.semantics.usable import require_usable


def lower(
    strategy: Strategy,
    *,
    linked: bool = False,
    tied: bool = False,
    sums: Mapping[str, tuple[str, ...]] | None = None,
    copies: Mapping[str, tuple[str, ...]] | None = None,
    vectors: bool = True,
) -> Program:
    """The step program of a strategy: the cheapest correct sequence of collectives for its placement.

    ``linked``: one whose layers are calls of blocks (:mod:`placeproof.semantics.linked`). How blocks lie on axes that split them, and which
    stage has which, is not said here; nor are the numbers of micro-batches that a schedule keeps in flight.

    ``tied``: one of a model with weights that the first and the last stage share; ``sums``: the groups of which its blocks leave gradients
    that are sums over axes that split the hidden dimension, with these; None for what sequence parallelism makes of its own layers;
    ``copies``: the groups of which its blocks have copies along such axes, with these, apart from what they split; ``vectors``:
    whether they have weights of the group of what is no matrix.

    The program is the text that :func:`placeproof.programs.render` prints, read again, so that each statement knows
    its line. Raises :class:`InputError` when no device could use the placement.
    """
    require_usable(strategy)
    facts = Facts(one_copy_each(strategy), linked, tied, sums, copies or {}, vectors)
    if len(facts.hidden) > 1 and not linked:
        shown = " and ".join(f"`{axis}`" for axis in facts.hidden)
        message = f"{shown} both split the hidden dimension, and the step's own layers have one such axis"
        refuse("PP122", message, help="say of which model, `--model mixtral-8x7b`")
    if facts.whole_update and facts.split_experts and not linked:
        message = "an update of whole matrices needs to know which parts of experts make one, where the hidden dimension is split"
        help = "say of which model, `--model mixtral-8x7b`, or keep each expert whole: `ep(experts=whole)`"
        refuse("PP122", message, help=help)
    cut = next((axis for group in facts.trained for axis in facts.cut_tensors(group)), None)
    if strategy.schedule.update == "preconditioned" and cut is not None:
        message = f"Shampoo preconditions whole matrices, of which the devices of `{cut}` have parts: that they are gathered is not lowered"
        refuse("PP122", message, help=f"leave `{cut}` out, or `shampoo`")
    if facts.frozen and facts.cut is not None:
        what = "adapters" if facts.strategy.schedule.train == "adapters" else "frozen parameters"
        message = f"which of the {what} lie in parts on `{facts.cut}`, which splits the hidden dimension, depends on the layers"
        refuse("PP122", message, help=f"say of which model, `--model llama3-8b`, or leave `{facts.cut}` out")
    program = Program(
        name=strategy.name,
        axes=facts.strategy.axes,
        groups=_groups(facts),
        placed=_placed(facts),
        body=(*_passes(facts), *_late_reductions(facts), *_clipping(facts), *_update(facts)),
        counts=_counts(facts),
        unit=strategy.schedule.unit if isinstance(strategy.schedule.unit, int) and facts.gather else None,
        approximates=strategy.approximates,
        reference=_reference(strategy),
    )
    return read(render(program), source=strategy.name, linked=linked)


def _reference(strategy: Strategy) -> tuple[tuple[str, str], ...]:
    """What one device does in the step beyond a plain one."""
    optimizer = () if strategy.schedule.update is None else (("optimizer", strategy.schedule.update),)
    return optimizer if strategy.schedule.clip is None else (*optimizer, ("clip", strategy.schedule.clip))


def _groups(facts: Facts) -> tuple[Group, ...]:
    named = (NORM, EXPERT, EXPERT_COPIES, TIED, COPIES, ADAPTER, ADAPTER_SUMS, FROZEN, MATRIX_COPIES, MATRIX_SUMS, ELEMENTWISE)
    apart = tuple(
        Group(
            name=group,
            size=ref(f"P_{group}"),
            experts=facts.experts if group in EXPERTS else (),
            tied=facts.stages if group == TIED else None,
            frozen=group in facts.frozen,
        )
        for group in facts.groups
        if group in named
    )
    first = next((group for group in (MATRIX, BASE) if group in facts.groups), DENSE if apart else DEFAULT_GROUP)
    rest = infix("-", ref("P"), *(group.size for group in apart))
    every = (Group(name=first, size=rest, frozen=first in facts.frozen), *apart)
    return tuple(_updated(facts, group) for group in every) if facts.whole_update else every


def _updated(facts: Facts, group: Group) -> Group:
    """A group with what an update of whole matrices is to know of it. Adapters are matrices, all of them."""
    if group.frozen:
        return group
    matrices = facts.in_matrices(group.name)
    if not matrices and not facts.norms_of_vectors:
        return replace(group, update="elementwise")
    return replace(group, whole=facts.among(facts.whole_parts, group.name), update=None if matrices else "tensor_norm")


def _placed(facts: Facts) -> tuple[Placed, ...]:
    having = {s: facts.groups if s == PARAMETERS else facts.trained for s in MODEL_STATES}
    placed = [Placed(state=s.name, group=g, modes=_modes(facts, s, g)) for s, groups in having.items() for g in groups]
    if not facts.linked and any(facts.strategy.places(ACTIVATIONS, a.name) for a in facts.strategy.axes):
        placed.append(Placed(state=ACTIVATIONS.name, group=None, modes=facts.modes(ACTIVATIONS)))
    return tuple(placed)


def _modes(facts: Facts, state: State, group: str | None) -> tuple[tuple[str, Mode], ...]:
    """How a state lies; in a linked program, on the axes that its blocks do not speak of."""
    modes = facts.modes(state, group)
    if state == GRADIENTS and facts.on_host(GRADIENTS):  # nothing reduces them there: they come in the parts that the update reads
        parts = [a for a in facts.among(facts.samples, group) if facts.read_in_parts(a)]
        modes = tuple((a, SHARDED if a in parts and mode.device is Share.WHOLE else mode) for a, mode in modes)
    told = {*facts.hidden, facts.stages, *(facts.experts if group in EXPERTS else ())} if facts.linked else set()
    return tuple((axis, mode) for axis, mode in modes if axis not in told)


def _counts(facts: Facts) -> tuple[tuple[str, int], ...]:
    count = facts.strategy.schedule.microbatches
    counts = [("microbatches", count)] if isinstance(count, int) else []
    if facts.strategy.schedule.unit == "model" and facts.gather:
        counts.append(("units", 1))
    return tuple(counts)


def _passes(facts: Facts) -> list[Stmt]:
    if not facts.microbatches:
        return Passes(facts, None).both()
    kept, hops = (None, None) if facts.stages is None or facts.linked else flow(facts.strategy, facts.stages)
    body = tuple(Passes(facts, "i").both())
    return [do("zero", ref("gradients")), For(var="i", domain="microbatches", body=body, in_flight=kept, hops=hops)]


def _late_reductions(facts: Facts) -> list[Stmt]:
    """What can wait for the last micro-batch: reductions of gradients, their scale, and what the update needs whole."""
    gradients = ref("gradients")
    late = dict(() if facts.on_host(GRADIENTS) else facts.late)
    body: list[Stmt] = [let(ref("gradients", TIED), _summed_by_ends(facts, ref("gradients", TIED)))] if facts.tied else []
    for op in ("reduce_scatter", "part"):
        if op in late:
            body += _each(facts, op, gradients, gradients, late[op])
    if facts.hidden and not facts.norms_each:
        for group in facts.summed_with_norms:
            own = ref("gradients", group)
            body.append(let(own, call("all_reduce", own, axes=facts.summed_over(group))))
    if "all_reduce" in late:
        body += _each(facts, "all_reduce", gradients, gradients, late["all_reduce"])
    if means := [*facts.means, *(["microbatches"] if facts.microbatches else [])]:
        body.append(let(gradients, call("scale", gradients, infix("/", num(1), infix("*", *map(ref, means))))))
    if facts.gathered_late:
        body += _each(facts, "all_gather", ref("full"), gradients, facts.gathered_late, fetched=facts.on_host(GRADIENTS))
    return body


def _summed_by_ends(facts: Facts, gradients: Expr) -> Expr:
    """What the first and the last stage find for a weight that they share, added up: of the whole gradient, since parts of it may be others
    at either end."""
    assert facts.stages is not None
    host = facts.on_host(GRADIENTS)
    apart = (*facts.early, *(a for op, axes in facts.late if host and op in ("reduce_scatter", "part") for a in axes))
    whole = call("to_device", gradients) if host else gradients
    whole = call("all_gather", whole, axes=apart) if apart else whole
    summed = call("tied_reduce", whole, axes=[facts.stages])
    summed = call("part", summed, axes=apart) if apart else summed
    return call("to_host", summed) if host else summed


def _each(facts: Facts, op: str, target: Ref, source: Ref, axes: tuple[str, ...], *, fetched: bool = False) -> list[Stmt]:
    """A collective of a whole buffer, or of each group over the axes that matter to it; of one on the host once it is ``fetched``."""
    body: list[Stmt] = []
    for group in facts.apart(axes, trained=True):
        over = facts.among(axes, group)
        if over or target != source:
            taken = call("to_device", of(source, group)) if fetched else of(source, group)
            body.append(let(replace(target, group=group), call(op, taken, axes=over) if over else taken))
    return body


def _clipping(facts: Facts) -> list[Stmt]:
    """What the update reads, scaled by the norm of all gradients: of each element one square is added up, wherever copies lie."""
    if facts.strategy.schedule.clip is None:
        return []
    gradients = ref("full") if facts.gathered_late else ref("gradients")
    cuts = {group: facts.cut_axes(group) for group in facts.trained}
    every = [axis for axis in cuts[facts.trained[0]] if all(axis in own for own in cuts.values())]
    squares: Expr = call("square_norm", gradients)
    body: list[Stmt] = []
    if len(cuts) > 1:  # each group by a line of its own, since one may stand for several that lie alike
        squares = ref("squares")
        body = [let(squares, num(0)), *(let(squares, _squared(gradients, group, own, every), add=True) for group, own in cuts.items())]
    norm = call("sqrt", call("all_reduce", squares, axes=every) if every else squares)
    return [*body, let(gradients, call("scale", gradients, call("clip_factor", norm)))]


def _squared(gradients: Ref, group: str | None, cut: tuple[str, ...], every: list[str]) -> Expr:
    """The sum of squares of a group, over the axes that cut it and not ``every`` group."""
    squared = call("square_norm", of(gradients, group), **({"shared": "first"} if group == TIED else {}))
    apart = [axis for axis in cut if axis not in every]
    return call("all_reduce", squared, axes=apart) if apart else squared


def _update(facts: Facts) -> list[Stmt]:
    """The update, where the optimizer state lies, and what brings parameters back to where they lie."""
    gradients = ref("full") if facts.gathered_late else ref("gradients")
    host = facts.on_host(OPTIMIZER)
    crosses = "" if (facts.on_host(GRADIENTS) and not facts.gathered_late) == host else "to_host" if host else "to_device"
    regather = [a for a in facts.optimizer_parts if a in facts.copied_parameters]
    shrink = [a for a in facts.samples if a not in facts.copied_parameters and a not in facts.optimizer_parts]
    moved = facts.on_host(PARAMETERS, MATRIX) != host
    if not moved and not shrink:
        return [*_updates(facts, Operands(gradients, crosses)), *_brought_back(facts, ref("parameters"), regather)]
    # Beside the optimizer state lie all the parameters that it updates: its own full-precision copy.
    operands = Operands(gradients, crosses, "master" if host or shrink else "to_device", "updated")
    way = ("to_device" if host else "to_host") if moved else None
    return [*_updates(facts, operands), *_brought_back(facts, ref(operands.new), regather, shrink, way)]


@dataclass(frozen=True)
class Operands:
    """What an update reads and writes. ``crosses``: the operation that brings gradients to where the optimizer state lies, if there is one;
    ``old``: that which makes the parameters to update, "master" of the optimizer state and any other of the parameters; ``new``: the
    buffer of updated ones."""

    gradients: Ref
    crosses: str = ""
    old: str = ""
    new: str = "parameters"

    def read(self, group: str | None, part: str | None) -> tuple[Expr, Expr, Expr]:
        """Parameters, optimizer state and gradients, of a group or all, and of a loop's part or all."""
        gradients = ref(self.gradients.name, group, part)
        old = ref("optimizer" if self.old == "master" else "parameters", group, part)
        crossed = call(self.crosses, gradients) if self.crosses else gradients
        return call(self.old, old) if self.old else old, ref("optimizer", group, part), crossed

    def step(self, group: str | None = None) -> Stmt:
        """The update, of a group or all."""
        return let(self.written(group, None), call("update", *self.read(group, None)))

    def written(self, group: str | None, part: str | None) -> tuple[Ref, Ref]:
        """The buffers that an update writes."""
        return ref(self.new, group, part), ref("optimizer", group, part)


def _updates(facts: Facts, operands: Operands) -> list[Stmt]:
    """The update: one for all, or by groups where it reads whole matrices, or vectors, of which a device has parts."""
    cuts = {group: facts.cut_tensors(group) for group in facts.trained}
    if not any(cuts.values()):
        own = facts.trained if facts.frozen and operands.old == "to_device" else (None,)  # what is frozen stays where it is
        return [operands.step(group) for group in own]
    by = _by_norms if facts.norms_of_vectors else _by_matrices
    return [by(facts, operands, group, cut) if cut else operands.step(group) for group, cut in cuts.items()]


def _by_matrices(facts: Facts, operands: Operands, group: str | None, cut: tuple[str, ...]) -> Stmt:
    """The update of a unit's matrices after another: its momentum is gathered, and of the direction a device keeps its own part; or each
    matrix of momentum is sent to one owner, and parts of its direction come back."""
    host, (parameters, optimizer, gradients) = facts.on_host(OPTIMIZER), operands.read(group, "u")
    crossing, gradients = _crossing(operands, gradients)
    momentum: Expr = call("momentum", optimizer, gradients)
    momentum = call("to_device", momentum) if host else momentum
    matrices, directions = ref("matrices"), ref("directions")
    whole: Expr = call("all_gather", momentum, axes=cut)
    own: Expr = call("part", directions, axes=cut)
    if facts.strategy.schedule.matrices == "exchanged":
        whole = call("all_to_all", momentum, axes=cut, order="matrices")
        own = call("all_to_all", directions, axes=cut, order="blocked")
    body: list[Stmt] = [
        *crossing,
        let(matrices, whole),
        let(directions, call("orthogonalize", matrices)),
        do("free", matrices),
        let(operands.written(group, "u"), call("update_with", parameters, optimizer, gradients, call("to_host", own) if host else own)),
        do("free", directions),
    ]
    return loop("u", "units", body)


def _crossing(operands: Operands, gradients: Expr) -> tuple[list[Stmt], Expr]:
    """Gradients that cross the host link for the update of a unit: once, however often it reads them."""
    return ([let(ref("own"), gradients)], ref("own")) if operands.crosses else ([], gradients)


def _by_norms(facts: Facts, operands: Operands, group: str | None, cut: tuple[str, ...]) -> Stmt:
    """The update of a unit's matrices, or vectors, after another: of matrices sums along rows and columns, and then norms of what these
    make, are reduced over the devices that have parts of them; of vectors norms alone."""
    host, (parameters, optimizer, gradients) = facts.on_host(OPTIMIZER), operands.read(group, "u")
    body, gradients = _crossing(operands, gradients)
    if operands.old == "to_device":
        body.append(let(ref("old"), parameters))
        parameters = ref("old")
    over = [axis for axis in cut if axis in facts.hidden or facts.read_in_parts(axis)]
    norms, sums = ref("norms"), (ref("sums"),) if facts.in_matrices(group) else ()
    summed: Expr = call("line_sums", gradients)
    if over:
        summed = call("all_reduce", call("to_device", summed) if host else summed, axes=over)
        summed = call("to_host", summed) if host else summed
    body += [let(name, summed) for name in sums]
    body.append(let(norms, call("all_reduce", call("tensor_norms", parameters, optimizer, gradients, *sums), axes=cut)))
    body.append(let(operands.written(group, "u"), call("update_with", parameters, optimizer, gradients, *sums, norms)))
    return loop("u", "units", [*body, *(do("free", name) for name in sums)])


def _brought_back(facts: Facts, new: Ref, regather: list[str], shrink: Iterable[str] = (), way: str | None = None) -> list[Stmt]:
    """Updated parts brought to where parameters lie: cut down to a part, over the host link, to every device that holds all."""
    body: list[Stmt] = []
    for group in facts.trained if facts.frozen else facts.apart(tuple(regather), tuple(shrink)):
        back = of(new, group)
        if cut := facts.among(tuple(shrink), group):
            back = call("part", back, axes=cut)
        if way is not None:
            back = call(way, back)
        if over := facts.among(tuple(regather), group):
            broadcast = facts.strategy.schedule.back == "broadcast"
            back = call("broadcast", back, axes=over, root="owner") if broadcast else call("all_gather", back, axes=over)
        if back != of(ref("parameters"), group):
            body.append(let(ref("parameters", group), back))
    return body
