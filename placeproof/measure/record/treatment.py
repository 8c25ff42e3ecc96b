"""What is done to the gradients of each parameter, by the ranks that update it, and with which norm it is clipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import TypeAlias, TypeVar

from placeproof.measure.record.axes import Grid, ranks_of
from placeproof.measure.record.chain import Axes, Chain, ChainStep, Clip, UnreadableError, flattened, gathered, read_chain, refuse_lines
from placeproof.measure.record.recording import Recording


@dataclass(frozen=True, slots=True)
class Final:
    """What a parameter is after the step: its update, or that gathered, or sent by a rank (a number, or `owner`)."""

    kind: str = "updated"
    axes: Axes = ()
    root: str = ""


@dataclass(slots=True, kw_only=True)
class ParameterSet:
    """Parameters that are treated alike. ``split``: axes that split them while they are computed with. ``tied``: the first stage of a
    pipeline and the last each have a copy, and gradients of the two are added up. ``numbers``: with which norms clip, and elements of
    gradients are changed, and whether PyTorch was given each. ``norm``: over which axes squares of their gradients are summed in a norm
    that clips, and whether of the ranks along these one alone has each gradient in it; None without such a norm."""

    name: str
    states: frozenset[int]
    chain: Chain
    split: Axes = ()
    final: Final = Final()
    tied: bool = False
    numbers: frozenset[tuple[Fraction, bool]] = frozenset()
    norm: tuple[Axes, bool] | None = None

    @property
    def owned(self) -> Axes:
        """The axes over which gradients are reduced to the rank that updates."""
        return tuple(a for s in (*self.chain.inner, *self.chain.outer) if s.kind == "reduce" and s.root == "owner" for a in s.axes)


_T = TypeVar("_T")
#: Of each rank, something for each parameter, by its number on rank 0.
_Of: TypeAlias = Mapping[int, Mapping[int, _T]]


def read_parts(recordings: Mapping[int, Recording], grid: Grid, split: Mapping[int, Axes]) -> list[ParameterSet]:
    """Parameters by what is done to them, the largest part first. Raises InputError for what cannot be said."""
    return _Treatments(recordings, grid).parts(split)


def compare(recordings: Mapping[int, Recording], grid: Grid) -> None:
    """Raise InputError where ranks do something else with the same parameter's gradient, or with their losses."""
    _Treatments(recordings, grid).compare()


class _Treatments:
    def __init__(self, recordings: Mapping[int, Recording], grid: Grid) -> None:
        self.first, self.grid = recordings[0], grid
        self.by_rank = {r.rank: r for _, r in sorted(recordings.items())}
        self.every = len(recordings) == grid.alike
        self.names = {state.name: i for i, state in enumerate(self.first.states)}
        self.updaters = self._updaters()

    def _index(self, recording: Recording, own: int) -> int:
        """The number on rank 0 of a parameter of another rank: that of the same name; or the same number, where one of the two ranks has
        nothing of it that was named, or each names it after a piece that the other one does not have; -1 for none."""
        states = self.first.states
        if not 0 <= own < len(recording.states):
            return -1
        here, there = recording.states[own], states[own] if own < len(states) else None
        if there is None:
            return self.names.get(here.name, -1)
        if here.name == there.name:
            return own
        pieces = here.piece and there.piece and here.numel == there.numel
        return self.names.get(here.name, own if pieces or f"parameter {own}" in (here.name, there.name) else -1)

    def _updaters(self) -> dict[int, list[tuple[Recording, int]]]:
        found: dict[int, list[tuple[Recording, int]]] = {}
        for recording in self.by_rank.values():
            for own in recording.updates:
                found.setdefault(self._index(recording, own), []).append((recording, own))
        text = "rank {} updates `{}`, which rank {} does not have"
        lost = [(text.format(r.rank, r.states[own].name, self.first.rank), 0) for r, own in found.get(-1, ())]
        refuse_lines(self.first.script, self.first.source, lost[:8])
        return dict(sorted(found.items()))

    # What is done to each gradient.

    def chains(self, index: int, recording: Recording, own: int) -> set[Chain]:
        """What a rank does to the gradients with which it updates a parameter. Raises UnreadableError."""
        chains = {self._said(self._as_sent(index, recording, n), index) for n in recording.updates[own]}
        if any(recording.nodes.gradient_of(n) != {own} for n in recording.updates[own]):
            raise UnreadableError(f"`{recording.states[own].name}` is updated with the gradient of another parameter", 0)
        return chains

    def _read(self, recording: Recording, number: int) -> Chain:
        chain = read_chain(recording.nodes, number, lambda k: self.grid.axes(ranks_of(k)), self.grid.sizes)
        return flattened(chain, self.grid.sizes)

    def _as_sent(self, index: int, recording: Recording, number: int) -> Chain:
        """What happens to a gradient: up to the last broadcast, it is what its root does."""
        chain = self._read(recording, number)
        sent = [s for s in (*chain.inner, *chain.outer) if s.kind == "broadcast"]
        if not sent or sent[-1].root == recording.rank:
            return chain
        step, line = sent[-1], min(sent[-1].lines, default=0)
        theirs = {self._read(r, n) for r, own in self.updaters[index] if r.rank == step.root for n in r.updates[own]}
        if not self.every or len(theirs) != 1:
            name = self.first.states[index].name
            raise UnreadableError(f"rank {step.root} sends the gradient of `{name}`, and it is not seen to update with it", line)
        root = theirs.pop()
        if (at := _same(step, root.outer)) and step in chain.outer:
            after = chain.outer[len(chain.outer) - chain.outer[::-1].index(step) :]
            return replace(chain, inner=root.inner, outer=(*root.outer[:at], *after), turns=root.turns, rolling=root.rolling)
        if (at := _same(step, root.inner)) and step not in chain.outer:
            return replace(chain, inner=(*root.inner[:at], *chain.inner[len(chain.inner) - chain.inner[::-1].index(step) :]))
        raise UnreadableError(f"rank {step.root} sends gradients otherwise than rank {recording.rank} gets them", line)

    def _said(self, chain: Chain, index: int) -> Chain:
        """With roots as a program says them."""
        ranks = self._owners(index)

        def said(steps: tuple[ChainStep, ...]) -> tuple[ChainStep, ...]:
            return tuple(replace(s, root=_root(int(s.root), s.ranks, ranks)) if s.root != "" else s for s in put_together(steps))

        return replace(chain, inner=said(chain.inner), outer=said(chain.outer))

    def _owners(self, index: int) -> set[int]:
        """The ranks whose update of a parameter is left after the step, or was sent: an optimizer may be given more than it updates."""
        every = self.updaters.get(index, [])
        left = {r.rank for r, own in every if any(r.nodes.holds(n, "updated") for n in r.final.get(own, ()))}
        return left or {r.rank for r, _ in every}

    def parts(self, split: Mapping[int, Axes]) -> list[ParameterSet]:
        """Parameters by what is done to them."""
        first = self.first
        parts: dict[tuple[object, ...], ParameterSet] = {}
        unread = []
        for index, ((recording, own), *_) in self.updaters.items():
            if index >= len(first.states):
                unread.append((f"rank {recording.rank} updates a parameter that rank {first.rank} does not have", 0))
                continue
            name = first.states[index].name
            try:
                chains = self.chains(index, recording, own)
            except UnreadableError as error:
                unread.append((f"what happens to gradients before the update cannot be said: {error.text}", error.line))
                continue
            if len(chains) != 1:
                unread.append((f"parts of `{name}` are updated differently", 0))
                continue
            if not all(recording.nodes.is_parameter(n) for n in recording.final.get(own, ())):
                unread.append((f"what happens to `{name}` after the update cannot be said", 0))
                continue
            chain, final = _in_all(recording, own, chains.pop()), self._final(index, recording, own)
            key = (chain.inner, chain.outer, chain.turns, chain.rolling, chain.clip is None, split.get(index, ()), final)
            empty = ParameterSet(name="", states=frozenset(), chain=chain, split=split.get(index, ()), final=final)
            part = parts.setdefault(key, empty)
            part.states |= {index}
            part.numbers |= chain.numbers
        refuse_lines(first.script, first.source, list(dict.fromkeys(unread))[:8])
        self._norms(list(parts.values()))
        return sorted(parts.values(), key=lambda p: (-len(p.split), -len(p.states), min(p.states)))

    def _final(self, index: int, recording: Recording, own: int) -> Final:
        """What is left of a parameter where it is updated: the last thing that was done to it."""
        terms = [recording.nodes[n] for n in recording.final.get(own, ())]
        moved = [t for t in terms if t.kind in ("all_gather", "broadcast")]
        if recording.states[own].gathered or not moved:
            return Final()
        axes = tuple(a for k in moved[0].axes for a in self.grid.axes(ranks_of(k)))
        if moved[0].kind == "all_gather":
            return Final("all_gather", axes)
        ranks = tuple(r for k in moved[0].axes for r in ranks_of(k))
        return Final("broadcast", axes, _root(moved[0].root, ranks, self._owners(index)))

    # The same on all ranks.

    def compare(self) -> None:
        """Every rank that updates a parameter is compared with the first one that does."""
        first, texts = self.first, list[tuple[str, int]]()
        for index, ((one, own), *others) in self.updaters.items():
            mine = self._treatment(index, one, own)
            for other, there in others:
                if self._treatment(index, other, there) != mine:
                    name = first.states[index].name
                    texts.append((f"rank {other.rank} does something else with the gradient of `{name}` than rank {one.rank}", 0))
        for other in self.by_rank.values():
            if [t.scale for t in first.turns] != [t.scale for t in other.turns]:
                text = f"rank {other.rank} scales its losses in another way than rank 0, or has another number of them"
                texts.append((text, first.turns[-1].line))
        refuse_lines(first.script, first.source, texts[:8])

    def _treatment(self, index: int, recording: Recording, own: int) -> object:
        try:
            chains = self.chains(index, recording, own)
        except UnreadableError as error:
            return error.text
        clips = {chain.clip.numbers for chain in chains if chain.clip}
        return recording.states[own].rates, clips, {replace(chain, clip=None) for chain in chains}, {c.clip is None for c in chains}

    # The norm that clips.

    def _norms(self, parts: Sequence[ParameterSet]) -> None:
        """Say of each part how it is in the norm that clips. Raises InputError where gradients are clipped by several norms, or by one that
        is not of all gradients, each once, as parameters are updated with them."""
        clips = {rank: clip for rank, r in self.by_rank.items() if (clip := self._one_norm(r, parts)) is not None}
        if not clips:
            return
        line = next(iter(clips.values())).line
        without = [r.rank for r in self.by_rank.values() if r.updates and r.rank not in clips]
        texts = [(f"rank {without[0]} does not clip gradients, and rank {min(clips)} does", line)] if without else []
        over = {rank: {self._index(self.by_rank[rank], i): axes for i, axes in clip.over} for rank, clip in clips.items()}
        sums = {rank: {self._index(self.by_rank[rank], i): turns for i, turns in clip.sums} for rank, clip in clips.items()}
        cut = {rank: {self._index(self.by_rank[rank], i): share for i, share in clip.shares} for rank, clip in clips.items()}
        for part in parts if not texts else ():
            norms = {index: self._in_norm(index, part, self._each_once(index, part, over, cut), sums) for index in part.states}
            part.norm = next(iter(norms.values()))
            unlike = [index for index, norm in norms.items() if norm is None or norm != part.norm]
            text = "the norm that clips is not of the gradient with which `{}` is updated, once: one of all gradients can be said"
            texts += [(text.format(self.first.states[index].name), line) for index in unlike[:1]]
        refuse_lines(self.first.script, self.first.source, texts[:8])
        self._of_parts(parts, line)

    def _one_norm(self, recording: Recording, parts: Sequence[ParameterSet]) -> Clip | None:
        """The norm with which a rank clips; None if it does not."""
        terms = {n for own in recording.updates.values() for n in own}
        try:
            clips = {clip for n in terms if (clip := self._read(recording, n).clip) is not None}
        except UnreadableError as error:  # of another rank than those that are followed
            text = f"what happens to gradients of rank {recording.rank} before the update cannot be said: {error.text}"
            refuse_lines(self.first.script, self.first.source, [(text, error.line)])
        if not clips:
            return None
        nodes, clip, several = recording.nodes, clips.pop(), bool(clips)
        updated, inside = {nodes.unclipped(n) for n in terms}, nodes.of_all(clip.of)
        lost = [n for n in updated - clip.of if nodes.states(n) & inside]
        beside = clip.of - updated
        text = ""
        if several:
            text = "gradients are clipped by several norms: one of all gradients can be said"
        elif lost:
            name = recording.states[min(nodes.of_all(lost))].name
            text = f"the norm that clips is not of the gradient with which `{name}` is updated: one of all gradients can be said"
        elif any(nodes.states(n) & {*recording.updates} or not self._done(recording, n, parts) for n in beside):
            text = "the norm that clips is of gradients with which nothing is updated"
        refuse_lines(self.first.script, self.first.source, [(text, clip.line)] if text else [])
        return clip

    def _done(self, recording: Recording, number: int, parts: Sequence[ParameterSet]) -> bool:
        """Whether to a gradient was done what is done to those with which parameters are updated."""
        own = min(recording.nodes.states(number), default=-1)
        index = self._index(recording, own)
        try:
            chain = _in_all(recording, own, self._said(self._as_sent(index, recording, number), index))
        except UnreadableError:
            return False
        return chain in [replace(part.chain, clip=None, by_element=()) for part in parts]

    def _each_once(self, index: int, part: ParameterSet, over: _Of[Axes], cut: _Of[int]) -> _Of[Axes]:
        """Over which axes squares of a gradient are summed, but for those whose ranks all have it, each with a share of its squares; over
        none where shares are others."""
        parted = {*part.split, *part.chain.axes("reduce_scatter"), *part.owned}

        def once(axes: Axes, share: int) -> Axes | None:
            copies = tuple(a for a in axes if share > 1 and a not in parted)
            alike = prod(self.grid.sizes.get(a, 0) for a in copies) == share
            return tuple(a for a in axes if a not in copies) if alike else None

        ways = {rank: {index: once(own[index], cut[rank].get(index, 1))} if index in own else {} for rank, own in over.items()}
        unlike = any(axes is None for own in ways.values() for axes in own.values())
        return {} if unlike else ways  # type: ignore[return-value]

    def _in_norm(self, index: int, part: ParameterSet, over: _Of[Axes], sums: _Of[tuple[int, ...]]) -> tuple[Axes, bool] | None:
        """Over which axes squares of a gradient are summed, and whether one rank of each group along these alone has it in its norm; None
        where it is not in every norm once. ``over``: over which axes squares of which gradients are summed in each rank's norm, and
        ``sums``: by which collectives."""
        ways = {own[index] for own in over.values() if index in own}
        if len(ways) != 1:
            return None
        axes, alone, apart = ways.pop(), set[bool](), {*part.chain.axes("reduce_scatter"), *part.owned}
        updaters = {recording.rank for recording, _ in self.updaters[index]}
        for group in (self._along(rank, axes) for rank in over):
            having = [rank for rank in group if index in over.get(rank, {})]
            holders = [rank for rank in group if rank in updaters or not {*axes} & apart]
            if not having or any(sums[having[0]][index] not in sums.get(rank, {}).values() for rank in group):
                return None
            if having != holders and (len(having) > 1 or not self.every or {*axes} & {*part.split, *apart}):
                return None
            alone.add(having != holders)
        return (axes, alone.pop()) if len(alone) == 1 and {*part.owned} <= {*axes} else None

    def _along(self, rank: int, axes: Axes) -> list[int]:
        """The ranks that are where a rank is on all other axes; all of them for what is a part of an axis."""
        fixed = [a for a in self.grid.sizes if a not in axes] if {*axes} <= self.grid.sizes.keys() else []
        return [other for other in self.by_rank if all(self.grid.place(other, a) == self.grid.place(rank, a) for a in fixed)]

    def _of_parts(self, parts: Sequence[ParameterSet], line: int) -> None:
        """A norm is summed over ranks that have whole gradients, of which each updates a part: whether it adds that part alone is not
        seen."""
        summed = {axis for part in parts if part.norm for axis in part.norm[0]}
        text = "squares of gradients that all ranks have whole are summed over ranks: of which elements each is the norm is not followed"
        for part in parts:
            if part.final.kind == "all_gather" and summed & {*part.final.axes} - {*part.chain.axes("reduce_scatter")}:
                refuse_lines(self.first.script, self.first.source, [(text, line)])


def _in_all(recording: Recording, index: int, chain: Chain) -> Chain:
    """What happens to the gradients of a parameter in all passes: those that do not use it make none, which is zero."""
    made = {e.turn for e in recording.events if e.kind == "pass" and index in e.states}
    return replace(chain, turns=len(recording.turns)) if chain.turns == len(made) else chain


def _same(step: ChainStep, steps: tuple[ChainStep, ...]) -> int:
    """Up to where a broadcast is the same one that another rank sees; 0 for nowhere."""
    return next((i + 1 for i, s in enumerate(steps) if s == step and s.turn == step.turn), 0)


def put_together(steps: tuple[ChainStep, ...]) -> tuple[ChainStep, ...]:
    """A reduce whose result its root sends to the same ranks, perhaps scaled, is an all-reduce."""
    for i, first in enumerate(steps):
        rest = [j for j in range(i + 1, len(steps)) if steps[j].kind != "scale"]
        if first.kind == "reduce" and rest and replace(steps[rest[0]], kind="reduce", op=first.op) == first:
            made = replace(first, kind="all_reduce", root="", ranks=())
            return put_together(gathered((*steps[:i], made, *steps[i + 1 : rest[0]], *steps[rest[0] + 1 :])))
    return steps


def _root(rank: int, group: Sequence[int], updaters: set[int]) -> str:
    """The root of a collective in a program's words: the only rank of its group that updates is the owner."""
    return "owner" if updaters & {*group} == {rank} else str(sorted(group).index(rank))
