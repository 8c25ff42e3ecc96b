"""What a step does, read off what its ranks were seen to do: placements, gathers, chains of gradients, exchanges within layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from hashlib import sha256
from itertools import combinations

from placeproof.core.mesh import USUAL_SPLITS
from placeproof.measure.record.alike import differences, doubts
from placeproof.measure.record.axes import Grid, ranks_of
from placeproof.measure.record.chain import Axes, refuse_lines, refuse_loss
from placeproof.measure.record.divided import read_divided
from placeproof.measure.record.experts import read_experts
from placeproof.measure.record.layers import Layers, averaged, read_layers
from placeproof.measure.record.nodes import ZERO
from placeproof.measure.record.recording import COPIED, Recording, Seen, Turn
from placeproof.measure.record.treatment import ParameterSet, compare, read_parts


@dataclass(frozen=True, slots=True)
class Gathers:
    """How parameters are gathered. ``axes``: for forward; ``again``: for backward, empty where they are kept; ``root``: one unit is kept;
    ``last``: the last one is, too; ``units``: there are several; ``once``: before the first micro-batch only. Lines of the script for
    forward and backward."""

    axes: Axes = ()
    again: Axes = ()
    root: bool = False
    last: bool = False
    units: bool = False
    once: bool = False
    lines: tuple[int, int] = (0, 0)


@dataclass(slots=True, kw_only=True)
class StepPlan:
    """The step. ``splits``: what each axis splits. ``experts``: the axis along which those of the first part lie.
    ``divided``: parameters of which each rank that splits layers has made its own part. ``unequal``: ranks begin
    with different parameters, ``sent``: and get those of a rank before the step, at this line. ``uneven``: they have different numbers of
    samples; ``same``: axes on which all have the same samples. ``total``: elements and samples of all ranks together. ``constant``:
    by which the loss is a multiple of a mean. ``stages``: the axis of the stages of a pipeline. ``one``: all backward passes are of one
    loss. ``unlike``: what is written alike is some parameters' gradient, and a multiple of that of others: both cannot be right.
    ``fixed``: it is of these degrees and micro-batches alone. ``not_compared``: by name, what nobody has compared;
    ``differences``: what ranks compute otherwise than rank 0, with lines; ``doubts``: what of that does not have to change any number."""

    grid: Grid
    splits: dict[str, str]
    parts: list[ParameterSet]
    gathers: Gathers
    turn: Turn
    turns: int
    layers: Layers | None = None
    experts: Axes = ()
    divided: frozenset[int] = frozenset()
    statistics: int = 0
    unequal: bool = False
    sent: tuple[Axes, int, int] | None = None
    uneven: bool = False
    same: Axes = ()
    total: tuple[int, int] = (0, 0)
    constant: Fraction = Fraction(1)
    stages: str = ""
    one: bool = False
    unlike: bool = False
    fixed: bool = False
    notes: list[str] = field(default_factory=list)
    differences: list[tuple[str, int]] = field(default_factory=list)
    doubts: list[tuple[str, int]] = field(default_factory=list)
    not_compared: dict[str, str] = field(default_factory=dict)

    @property
    def of(self) -> tuple[str, ...]:
        """Of which loss the step is, where that is no mean."""
        counted = "tokens" if self.uneven or self.turn.summed else "samples, of which micro-batches have equally many"
        return () if self.constant == 1 else (f"This is of the loss {self.constant} * the mean over {counted}.",)


def _readable(first: Recording) -> None:
    """Raise InputError for a loss, or an exchange, that no program says, and where nothing is trained."""
    refuse_loss(first.script, first.source, [(f"this loss is not understood: {t.text}", t.line) for t in first.turns if t.text][:8])
    sent = [e for e in first.events if e.kind in ("send", "recv") and not first.line]
    refuse = refuse_lines if any(e.states for e in sent) else refuse_loss
    refuse(first.script, first.source, [(f"the exchange `{e.kind}` cannot be said", e.line) for e in sent[:8]])
    refuse_lines(first.script, first.source, _unread(first)[:8])
    text = "nothing was trained: no optimizer read a gradient"
    if first.updates and not first.turns:
        text = "parameters are updated without a backward pass: of what `torch.autograd.grad` makes, the loss is not followed"
    if not first.updates or not first.turns:
        refuse_lines(first.script, first.source, [(text, 0)])


def read_plan(recordings: Mapping[int, Recording], grid: Grid, given: Mapping[str, str]) -> StepPlan:
    """The step that ranks were seen to do; rank 0 is followed, the others are compared with it. ``given``: what axes split, by name.

    Raises InputError for whatever cannot be said.
    """
    first = recordings[0]
    _means(recordings)
    _readable(first)
    divided = read_divided(recordings, grid)
    split = _split(recordings, grid) | divided
    splits = _splits(grid, split, given)
    if grid.made and list(splits.values()) == ["hidden"] and "dp" in grid.sizes:
        return read_plan(recordings, Grid({"tp": first.world}, made=True), given)
    experts = read_experts(recordings, grid)
    parts = read_parts(recordings, grid, split | experts)
    _all_updated(recordings, grid)
    uneven = len({t.counts for r in recordings.values() for t in r.turns}) > 1
    plan = StepPlan(
        grid=grid, splits=splits, parts=parts, gathers=_gathers(first, grid), turn=first.turns[0], turns=len(first.turns), uneven=uneven
    )
    plan.divided = frozenset(divided)
    text = "Each rank has made its own parts of layers, such as {}: one device is taken to have them side by side."
    plan.notes += [text.format(first.states[min(divided)].name)] if divided else []
    plan.statistics = first.statistics[0] if first.statistics else 0
    plan.notes += ["The script keeps the last unit from forward to backward; here it is gathered again."] if plan.gathers.last else []
    hidden = tuple(a for a, what in splits.items() if what == "hidden")
    plan.layers = read_layers(first, grid, hidden, split) if hidden else None
    if plan.layers and plan.layers.forward and plan.layers.backward:
        _copies(recordings, split, grid, own=bool(divided))
        _averaged(plan, first)
    settings_alike(first, recordings)
    compare(recordings, grid)
    for other in recordings.values():
        _once(other)
    plan.experts = next(iter(experts.values()), ())
    _experts_alone(plan, first, split)
    _beginning(plan, recordings, split | experts)
    _samples(plan, recordings)
    _buffers(plan, recordings)
    _complete(plan, first)
    _computed(plan, recordings)
    return plan


def _unread(recording: Recording) -> list[tuple[str, int]]:
    """Exchanges that no program says."""
    return [
        (f"the exchange `{e.kind}` cannot be said", e.line)
        for e in recording.events
        if e.kind == "gather" or (e.kind in ("send", "recv") and e.states) or (e.kind == "all_to_all" and e.states)
    ]


def _means(recordings: Mapping[int, Recording]) -> None:
    """Sums of which each is divided by its own number of elements, or of samples, are means, however many these are."""
    turns = [t for r in recordings.values() for t in r.turns]
    if len({t.scale for t in turns}) == 1 or not all(t.summed and not t.text and not t.beside for t in turns):
        return
    for mean in ({t.factor * t.count for t in turns}, {t.factor * t.rows for t in turns}):
        if len(mean) == 1:
            for recording in recordings.values():
                recording.turns[:] = [replace(t, factor=min(mean), summed=False) for t in recording.turns]
            return


def _copies(recordings: Mapping[int, Recording], split: Mapping[int, Axes], grid: Grid, *, own: bool) -> None:
    """Where real processes ran and blocks exchange, what several ranks have is the same on all of them; else an exchange is not whole.
    ``own``: or it is a part, as others are that each rank has made."""
    text = "`{}` ends differently on ranks that share a computation: not all that a block has to exchange is exchanged"
    text += ", or it is a part of the rank's own: of these, matrices are seen, and the `bias` beside a `weight`" if own else ""
    refuse_lines(recordings[0].script, recordings[0].source, [(text.format(name), 0) for name in unlike_ends(recordings, split, grid)[:8]])


def _averaged(plan: StepPlan, first: Recording) -> None:
    """Write gradients that all ranks have, of which nothing is exchanged, as others that are reduced, where that leaves two groups."""
    assert plan.layers is not None
    if len(plan.parts) == 3 and (found := averaged(plan.parts, plan.layers, plan.grid.sizes[plan.layers.axis])) is not None:
        bare, reduced, multiple = found
        reduced.states |= bare.states
        plan.parts.remove(bare)
        plan.unlike = multiple != 1
        names = ", ".join(sorted(first.states[i].name for i in bare.states)[:3])
        plan.notes.append(
            f"Of gradients that all ranks have, such as that of {names}, nothing is exchanged: they are written as the others."
        )


def unlike_ends(recordings: Mapping[int, Recording], split: Mapping[int, Axes], grid: Grid) -> list[str]:
    """Parameters of which ranks that have the same part have something else after the step, where real processes ran. ``split``: over which
    axes parameters lie in parts."""
    first = recordings[0]
    lost = []
    for i in sorted({i for r in recordings.values() for i in r.updates if i < len(first.states)}):
        gathers = [e for e in first.events if e.kind == "all_gather" and i in e.states and not e.updated]
        apart = {*split.get(i, ()), *(axis for e in gathers for axis in grid.axes(e.group))}
        if apart <= grid.sizes.keys():
            own = [
                (tuple(grid.place(rank, a) for a in sorted(apart)), r.states[i].left) for rank, r in recordings.items() if r.states[i].left
            ]
            lost += [first.states[i].name] if len({*own}) > len({place for place, _ in own}) else []
    return lost


def _complete(plan: StepPlan, recording: Recording) -> None:
    """Micro-batches of all chains are those that were seen."""
    wrong = [p for p in plan.parts if p.chain.turns != plan.turns]
    if wrong:
        text = f"the update reads the gradients of {wrong[0].chain.turns} of {plan.turns} backward passes"
        refuse_lines(recording.script, recording.source, [(text, recording.turns[-1].line)])


def _split(recordings: Mapping[int, Recording], grid: Grid) -> dict[int, Axes]:
    """Over which axes each parameter is split where forward reads it: as its layout says, or as its values differ."""
    first = recordings[0]
    axes_by_state: dict[int, Axes] = {}
    for index, state in enumerate(first.states):
        if state.split is not None:
            axes_by_state[index] = tuple(a for k in state.split for a in grid.axes(ranks_of(k)))
            continue
        if state.gathered or state.part >= state.numel:
            continue
        others = {a: recordings.get(grid.neighbour(a)) for a, n in grid.sizes.items() if n > 1}
        fewer = [r.rank for r in others.values() if r is not None and index >= len(r.states)]
        text = "rank {} makes fewer parameters than rank 0: which ones are the same is not seen"
        refuse_lines(first.script, first.source, [(text.format(rank), 0) for rank in fewer[:1]])
        axes_by_state[index] = tuple(a for a, r in others.items() if r is not None and r.states[index].used != state.used)
    return {i: axes for i, axes in axes_by_state.items() if axes}


def _splits(grid: Grid, split: Mapping[int, Axes], given: Mapping[str, str]) -> dict[str, str]:
    hidden = {a for axes in split.values() for a in axes}
    splits = {}
    for axis in grid.sizes:
        usual = USUAL_SPLITS.get(axis, "batch")
        known = "layers" if axis == grid.stages else given.get(axis)
        splits[axis] = known or ("hidden" if axis in hidden else "batch" if usual in ("hidden", "layers", "experts") else usual)
    return splits


def _computed(plan: StepPlan, recordings: Mapping[int, Recording]) -> None:
    """Raise InputError where ranks compute with something else than others, or with what PyTorch does not know of."""
    first = recordings[0]
    text = "`{}`, or its gradient, was written on rank {} past PyTorch, as an array of NumPy is: what that did is not seen"
    past = [(text.format(name, rank), line) for rank, r in recordings.items() for name, line in r.past]
    refuse_lines(first.script, first.source, list(dict.fromkeys(past))[:8])
    if plan.layers is None and not plan.experts:
        plan.differences += differences(recordings)
        if "sequence" in plan.splits.values():  # positions are those of a part, and no one process has parts
            refuse_lines(first.script, first.source, plan.differences[:8])
        else:
            plan.doubts += doubts(recordings)
    text = "this adds a gradient to what is zero in this step, and no more in the next: record that one, with `--steps`"
    refuse_lines(first.script, first.source, [(text, line) for r in recordings.values() for line in r.sums][:1])
    if first.whole and (plan.gathers.axes or any(p.final.kind == "all_gather" for p in plan.parts) or plan.layers is not None):
        text = "the optimizer makes one number of several elements of a tensor, and of tensors that are split a rank has a part alone"
        refuse_lines(first.script, first.source, [(text, first.whole)])


def settings_alike(first: Recording, recordings: Mapping[int, Recording]) -> None:
    """Raise InputError where optimizers of ranks are set differently, or have something else of parameters that begin alike."""
    wrong = [(text, 0) for other in recordings.values() for text in unlike_settings(first, other)]
    refuse_lines(first.script, first.source, wrong[:8])


def unlike_settings(first: Recording, other: Recording) -> Iterator[str]:
    """What optimizers of two ranks are set to differently, and have otherwise of parameters that begin alike."""
    alone = [", ".join(sorted(a.settings - b.settings)) for a, b in ((first, other), (other, first))]
    if all(alone):
        yield f"rank {other.rank} updates with {alone[1]}, and rank {first.rank} with {alone[0]}"
    pairs = [(a, b) for i, (a, b) in enumerate(zip(first.states, other.states, strict=False)) if {i} <= {*first.updates} & {*other.updates}]
    alike = [(a, b) for a, b in pairs if first.passed or a.digest == b.digest or (a.synced and b.synced)]
    for name in (a.name for a, b in alike if a.kept != b.kept):
        yield f"the optimizer of rank {other.rank} begins with something else of `{name}` than that of rank {first.rank}"


def _experts_alone(plan: StepPlan, first: Recording, split: Mapping[int, Axes]) -> None:
    if plan.experts and (plan.layers or plan.gathers.axes or split):
        text = "experts beside layers that are split, or parameters that are gathered, cannot be said"
        refuse_lines(first.script, first.source, [(text, first.turns[0].line)])


def _once(recording: Recording) -> None:
    """Raise InputError where a loss adds up losses of several passes of the model: of how many samples each is, a factor does not say."""
    for number, turn in enumerate(recording.turns):
        uses = [i for e in recording.events if e.kind == "use" and e.phase == "forward" and e.turn == number for i in e.states]
        if turn.several and min(map(uses.count, set(uses)), default=1) > 1:
            text = "this loss adds up those of several passes of the model: call `backward` on each"
            refuse_loss(recording.script, recording.source, [(text, turn.line)])


def _all_updated(recordings: Mapping[int, Recording], grid: Grid) -> None:
    first = recordings[0]
    trained = {i for e in first.events if e.kind == "pass" for i in e.states}
    updated = {i for r in recordings.values() for i in (*r.updates, *r.final)}
    if len(recordings) == grid.alike:
        lost = [first.states[i].name for i in sorted(trained - updated)]
        refuse_lines(first.script, first.source, [(f"`{name}` gets a gradient and is never updated", 0) for name in lost[:8]])
    whole = {i for r in recordings.values() for i, terms in r.updates.items() if not any(r.nodes.holds(n, "reduce_scatter") for n in terms)}
    refuse_lines(first.script, first.source, list(dict.fromkeys(_old(recordings)))[:8])
    kept = [(r, i) for r in recordings.values() for i in sorted(whole) if _stays(r, i) and not _sent(recordings, r, i)]
    text = "`{}` gets a gradient on rank {} and stays as it is there: it is neither updated nor sent"
    refuse_lines(first.script, first.source, [(text.format(r.states[i].name, r.rank), 0) for r, i in kept[:8]])


def _old(recordings: Mapping[int, Recording]) -> Iterator[tuple[str, int]]:
    """What is wrong with what is left after the update: a rank sends what it has not updated, or what one has updated is overwritten."""
    updated = {r.rank: {r.states[i].name for i in r.updates} for r in recordings.values()}
    trained = set[str]().union(*updated.values())
    for r in recordings.values():
        for index, node in ((i, r.nodes[n]) for i, terms in r.final.items() for n in terms if n > ZERO):
            name = r.states[index].name
            if node.kind == "broadcast" and name in trained and name not in updated.get(node.root, {name}):
                yield f"after the step rank {node.root} sends `{name}`, which it has not updated", node.line
            elif index in r.updates and node.kind == "param" and not r.states[index].gathered:
                yield f"`{name}` is updated on rank {r.rank}, and after the step it is what it was before", 0
            elif index in r.updates and not any(map(r.nodes.is_parameter, r.final[index])):
                yield f"what happens to `{name}` after the update on rank {r.rank} cannot be said", node.line
        for state in (state for state in r.states if state.overwritten):
            yield f"`{state.name}` is updated on rank {r.rank}, and after the step something else is there", 0
        for state in (state for state in r.states if state.unlike):
            yield f"the optimizer of rank {r.rank} has a copy of `{state.name}`, with other values than forward read", 0
        for state in (state for state in r.states if state.astray and state.gathered):
            yield f"`{state.name}` is updated as it was gathered: what it is gathered from stays as it is", 0
        if any(state.flat for state in r.states):  # real processes ran
            gathered = [i for i, terms in r.final.items() if any(r.nodes[n].kind == "all_gather" for n in terms)]
            for index in (i for i in gathered if not r.states[i].gathered and not _whole(r, i, recordings)):
                yield f"after the step `{r.states[index].name}` is not made of the parts that ranks have updated, in their order", 0


def _whole(recording: Recording, index: int, recordings: Mapping[int, Recording]) -> bool:
    """Whether a parameter is what ranks give of it after the update, one after the other: all of each, or gather by gather."""
    of_all = [p for _, r in sorted(recordings.items()) for p in r.pieces if p.index == index and recording.rank in p.group]
    group, by_rank = of_all[0].group if of_all else (), {r.rank: r for r in recordings.values()}
    every = [p for rank in group if rank in by_rank for p in by_rank[rank].pieces if p.index == index and p.group == group]
    orders = every, sorted(every, key=lambda p: p.gather)
    return any(sha256(b"".join(p.values for p in order)).hexdigest() == recording.states[index].flat for order in orders)


def _sent(recordings: Mapping[int, Recording], recording: Recording, index: int) -> bool:
    """Whether a rank gets a parameter from another one that has updated it: the n-th broadcast of one rank is the n-th of all."""

    def broadcasts(r: Recording, group: tuple[int, ...]) -> list[Seen]:
        return [e for e in r.events if (e.kind, e.group) == ("broadcast", group)]

    by_rank = {r.rank: r for r in recordings.values()}
    for group in {e.group for e in recording.events if e.kind == "broadcast" and index in e.states}:
        for number, event in enumerate(broadcasts(recording, group)):
            theirs = broadcasts(by_rank[event.root], group)[number:] if event.root in by_rank else []
            if index in event.states and theirs and theirs[0].updated:
                return True
    return False


def _stays(recording: Recording, index: int) -> bool:
    """Whether a rank makes a gradient of a parameter, and neither updates it nor gets it gathered."""
    own = [e for e in recording.events if index in e.states]
    sent = any(e.kind in ("all_gather", "scatter") and e.phase in ("update", "after") for e in own)
    sent |= any(recording.nodes.holds(n, "all_gather") for n in recording.final.get(index, ()))  # together with what this rank updates
    return index not in recording.updates and not sent and any(e.kind == "pass" for e in own)


def _gathers(recording: Recording, grid: Grid) -> Gathers:
    """What is gathered for forward and for backward of the first micro-batch, and whether the others do the same."""
    seen = [e for e in recording.events if e.kind == "all_gather" and e.states and not e.updated and e.phase in ("forward", "backward")]
    read = [e for e in seen if any(recording.states[i].gathered for i in e.states)]
    if seen and not read:
        text = "parameters are gathered here, and no operation was seen that reads what was gathered"
        refuse_lines(recording.script, recording.source, [(text, seen[-1].line)])
    seen = read
    if not seen:
        return Gathers()
    turns = [_of_turn(seen, i) for i in range(len(recording.turns))]
    first, later = turns[0], turns[1:]
    once = bool(later) and not any(f or b for f, b in later)
    if later and not once and any([e.states for e in f] != [e.states for e in first[0]] or len(b) != len(first[1]) for f, b in later):
        refuse_lines(recording.script, recording.source, [("micro-batches gather differently", seen[-1].line)])
    forward, backward = first
    sets, again = {e.states for e in forward}, {e.states for e in backward}
    kept = sets - again
    last = bool(again) and len(forward) > 2 and kept == {forward[0].states, forward[-1].states}
    if len(sets) != len(forward) or not again <= sets or (again and len(kept) > 1 and not last):
        refuse_lines(recording.script, recording.source, [("units are gathered in an order that no loop over units has", forward[-1].line)])
    return Gathers(
        axes=_same_axes(recording, grid, forward),
        again=_same_axes(recording, grid, backward),
        root=bool(again and kept),
        last=last,
        units=len(sets) > 1,
        once=once,
        lines=(forward[0].line, backward[0].line if backward else 0),
    )


def _of_turn(seen: list[Seen], turn: int) -> tuple[list[Seen], list[Seen]]:
    """The gathers for forward and for backward of a micro-batch. Passes are counted when backward begins."""
    return (
        [e for e in seen if e.phase == "forward" and e.turn == turn],
        [e for e in seen if e.phase == "backward" and e.turn == turn + 1],
    )


def _same_axes(recording: Recording, grid: Grid, events: list[Seen]) -> Axes:
    axes = {grid.axes(e.group) for e in events}
    if len(axes) > 1:
        refuse_lines(recording.script, recording.source, [("units are gathered over different axes", events[-1].line)])
    return axes.pop() if axes else ()


def _beginning(plan: StepPlan, recordings: Mapping[int, Recording], split: Mapping[int, Axes]) -> None:
    """Whether ranks begin with the same parameters, and what is done about it."""
    first = recordings[0]
    trained = [i for p in plan.parts for i in p.states]
    differ = [
        i
        for i in trained
        if len({r.states[i].digest for r in recordings.values()}) > 1
        and i not in plan.divided
        and not (i in split and not first.states[i].synced)
    ]
    plan.unequal = bool(differ)
    sent = [i for i in differ if all(r.states[i].synced for r in recordings.values())]
    if sent and len(sent) == len(differ):
        event = next(e for e in first.events if e.kind in ("broadcast", "scatter") and e.phase == "setup" and e.states & set(sent))
        axes = plan.grid.axes(event.group)
        root = plan.grid.place(event.root, axes[0]) if len(axes) == 1 and axes[0] in plan.grid.sizes else event.root
        plan.sent = (axes, root, event.line)
    elif sent:
        refuse_lines(first.script, first.source, [("some parameters that differ between ranks are sent to all, and others are not", 0)])
    elif differ and first.exchanges and plan.layers is None:
        text = "`{}` begins otherwise on each rank, and ranks exchange what they compute: parts of one tensor, or copies that are none?"
        refuse_lines(first.script, first.source, [(text.format(first.states[i].name), 0) for i in differ[:8]])


def unlike_buffers(recordings: Iterable[Recording], *, left: bool = False) -> list[str]:
    """The buffers in which ranks differ before the step, or after it."""
    own = [r.buffers_left if left else r.buffers for r in recordings]
    return [name for name, value in own[0].items() if any(other.get(name, value) != value for other in own)]


def _buffers(plan: StepPlan, recordings: Mapping[int, Recording]) -> None:
    """Raise InputError where ranks that have samples of their own compute with other values of buffers; say where they end with others."""
    first = recordings[0]
    alike: dict[tuple[int, ...], list[Recording]] = {}
    for rank, recording in recordings.items():  # ranks that split layers may have what is of their parts
        apart = tuple(plan.grid.place(rank, axis) for axis, what in plan.splits.items() if what != "batch")
        alike.setdefault(apart, []).append(recording)
    before, after = ([n for own in alike.values() for n in unlike_buffers(own, left=left)] for left in (False, True))
    texts = [_unlike_text(name) for name in dict.fromkeys(before)]
    refuse_lines(first.script, first.source, [(text, first.turns[0].line) for text in texts[:8]])
    names = list(dict.fromkeys(after))
    if names:
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        plan.not_compared["buffers"] = f"ranks end with other values of {shown}"


def _unlike_text(name: str) -> str:
    if name.startswith(COPIED):
        return f"ranks run a module with other values of `{name.removeprefix(COPIED)}`, which is not trained"
    return f"ranks have other values of the buffer `{name}` before the step"


def _unlike(plan: StepPlan, recordings: Mapping[int, Recording], apart: Sequence[str]) -> Iterator[tuple[str, int]]:
    """What is wrong with samples, of which ranks that are ``apart`` have others in each micro-batch, and all others the same."""
    line = recordings[0].turns[0].line
    blind = [(r.rank, r.turns[i].line) for r in recordings.values() for i, given in enumerate(r.samples) if not given]
    if blind and len(recordings) > 1:
        rank, where = blind[0]
        yield f"no module of rank {rank} is given a tensor without a gradient before this pass: samples of ranks cannot be compared", where
        return
    for (a, first), (b, second) in combinations(recordings.items(), 2):
        differ = [axis for axis in apart if plan.grid.place(a, axis) != plan.grid.place(b, axis)]
        common = {*first.samples} & {*second.samples}
        if not differ and first.samples != second.samples:
            yield f"ranks {a} and {b} share a computation, and get different samples", line
        elif differ and common:
            turn = next(i for i, given in enumerate(second.samples) if given in common)
            yield f"rank {b} gets samples that rank {a} gets, too, and others besides: here", second.turns[turn].line
        elif differ and (frozen := _frozen(first, second)):
            yield f"`{frozen}` is not trained, and ranks {a} and {b} have other values of it", line
        else:
            continue
        return


def _frozen(first: Recording, second: Recording) -> str | None:
    """A parameter that is not trained, and in which two ranks differ that have samples of their own."""
    trained = {i for r in (first, second) for e in r.events if e.kind == "pass" for i in e.states}
    for i, (a, b) in enumerate(zip(first.states, second.states, strict=False)):
        if i not in trained and a.run and b.run and a.digest != b.digest and not (a.synced and b.synced):
            return a.name
    return None


def _mixed(first: Recording, second: Recording) -> tuple[str, int] | None:
    """What is wrong with samples of two ranks that are not the same as a whole: some of them are, or one of the tensors that are read of
    them."""
    seen: set[tuple[str, ...]] = set()
    for turn in range(len(first.turns)):
        seen |= {*zip(*first.by_row.get(turn, ()), strict=False)}
    for turn, line in enumerate(t.line for t in second.turns):
        a, b = first.by_row.get(turn, []), second.by_row.get(turn, [])
        pairs = list(zip(a, b, strict=True)) if len(a) == len(b) else []
        if any(x != y for x, y in pairs) and any(x == y and len(set(x)) > 1 for x, y in pairs):
            return (
                f"ranks {first.rank} and {second.rank} get different samples, and one of the tensors that are read of these is the same",
                line,
            )
        if seen & {*zip(*b, strict=False)}:
            return f"rank {second.rank} gets samples that rank {first.rank} gets, too, and others besides: here", line
    return None


def _samples(plan: StepPlan, recordings: Mapping[int, Recording]) -> None:
    """Which axes see the same samples, and how many all see together."""
    first, sharing = recordings[0], [a for a, size in plan.grid.sizes.items() if size > 1 and plan.splits[a] in ("batch", "sequence")]
    plan.same = tuple(a for a in sharing if (r := recordings.get(plan.grid.neighbour(a))) is not None and r.samples == first.samples)
    apart = [a for a in sharing if a not in plan.same]
    if plan.same and first.gathered & {row for rows in first.by_row.get(0, ()) for row in rows}:
        text = "ranks have the same samples, and have gathered some of them: which ones are whose is not seen"
        refuse_lines(first.script, first.source, [(text, first.turns[0].line)])
    refuse_lines(first.script, first.source, list(_unlike(plan, recordings, apart)))
    pairs = [
        (r, s)
        for (a, r), (b, s) in combinations(recordings.items(), 2)
        if any(plan.grid.place(a, x) != plan.grid.place(b, x) for x in apart)
    ]
    refuse_loss(first.script, first.source, [found for r, s in pairs if (found := _mixed(r, s)) is not None][:1])
    shared = 1
    for axis, size in plan.grid.sizes.items():
        shared *= size if plan.splits[axis] not in ("batch", "sequence", "layers") else 1
    whole = [r.turns for r in recordings.values()]
    if len(recordings) == plan.grid.alike:
        plan.total = (sum(t.count for ts in whole for t in ts) // shared, sum(t.rows for ts in whole for t in ts) // shared)
    else:
        count, rows = sum(t.count for t in first.turns), sum(t.rows for t in first.turns)
        plan.total = (count * plan.grid.alike // shared, rows * plan.grid.alike // shared)
