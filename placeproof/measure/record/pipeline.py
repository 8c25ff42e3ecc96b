"""Backward passes of several ranks that are parts of one: which of them belong to which micro-batch, and which ranks are stages of what.

What a stage receives is what another one has sent if the two have the same digest; then the gradient that goes back has to be the one
that was made of it. All that is read of a micro-batch by any of its stages is taken together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product

from placeproof.measure.record.axes import Grid
from placeproof.measure.record.chain import refuse_lines
from placeproof.measure.record.recording import Call, Recording, Source, Stretch

#: A backward pass: its rank, and which one it is there.
Pass = tuple[int, int]


@dataclass(slots=True)
class _Joined:
    """What is known so far. ``last``: of each pass, that of the loss in which it ends; ``wrong``: what cannot be said, with lines."""

    recordings: Mapping[int, Recording]
    after: dict[Pass, set[Pass]] = field(default_factory=dict)
    wrong: list[tuple[str, int]] = field(default_factory=list)

    def stretch(self, one: Pass) -> Stretch:
        return self.recordings[one[0]].stretches[one[1]]

    def line(self, one: Pass) -> int:
        return self.recordings[one[0]].turns[one[1]].line

    def passes(self) -> Iterator[Pass]:
        for rank, recording in self.recordings.items():
            yield from ((rank, turn) for turn in range(len(recording.stretches)))


def joined(recordings: Mapping[int, Recording]) -> tuple[dict[int, Recording], list[tuple[int, ...]]]:
    """Recordings in which each backward pass is that of a whole micro-batch, and the ranks of each pipeline, from the first stage to the
    last; as they are, and none, where each rank has losses of its own. Raises InputError for what does not fit together."""
    if not any(s.begins for r in recordings.values() for s in r.stretches):
        return dict(recordings), []
    join = _Joined(recordings)
    _link(join)
    _refuse(join)
    last = {one: _last(join, one, ()) for one in join.passes()}
    _refuse(join)
    stages = {rank: {last[one][0] for one in join.passes() if one[0] == rank} for rank in recordings}
    join.wrong += [
        (f"rank {rank} computes for no micro-batch, or for those of several ranks", 0) for rank, ends in stages.items() if len(ends) != 1
    ]
    _refuse(join)
    lines = [_in_order(join, [r for r in recordings if stages[r] == {end}]) for end in sorted({min(ends) for ends in stages.values()})]
    made = {rank: _whole(join, rank, line, last) for line in lines for rank in line}
    _refuse(join)
    return made, lines


def _refuse(join: _Joined) -> None:
    first = join.recordings[min(join.recordings)]
    refuse_lines(first.script, first.source, list(dict.fromkeys(join.wrong))[:8])


def _link(join: _Joined) -> None:
    """Find for each gradient with which a pass begins the pass that has made it."""
    ends: dict[str, list[tuple[Pass, str]]] = {}
    for one in join.passes():
        if join.stretch(one).losses:
            join.wrong.append((f"rank {one[0]} adds a loss of its own to what it goes back with", join.line(one)))
        if join.stretch(one).overwritten:
            join.wrong.append((f"what rank {one[0]} has received is overwritten before backward reads it", join.line(one)))
        for value, gradient in join.stretch(one).ends:
            ends.setdefault(value, []).append((one, gradient))
    begun = set()
    for one in join.passes():
        for value, gradient in join.stretch(one).begins:
            to = {rank for sent, rank in join.recordings[one[0]].sent if sent == value}
            found = [end for end in ends.get(value, []) if not to or end[0][0] in to]
            begun |= {(value, end) for end, _ in found}
            text = _unlike(one, gradient, found)
            join.wrong += [(text, join.line(one))] if text else []
            join.after.setdefault(one, set()).update(end for end, _ in found)
    sent = {pair for r in join.recordings.values() for pair in r.sent}
    for value, one in ((value, end) for value, found in ends.items() for end, _ in found):
        if (value, one[0]) in sent and (value, one) not in begun:
            join.wrong.append((f"no stage goes on with a gradient that rank {one[0]} makes of what it has received", join.line(one)))


def _unlike(one: Pass, gradient: str, ends: Sequence[tuple[Pass, str]]) -> str:
    """What is wrong with a gradient with which a pass begins."""
    if not ends:
        return f"backward of rank {one[0]} begins with a gradient of what no other stage has read"
    if len(ends) > 1:
        return f"what rank {one[0]} computes is read in several backward passes: which of them gives it which gradient cannot be seen"
    if ends[0][1] != gradient:
        return f"backward of rank {one[0]} begins with another gradient than rank {ends[0][0][0]} has made of the same micro-batch"
    return ""


def _last(join: _Joined, one: Pass, before: tuple[Pass, ...]) -> Pass:
    """The pass of the loss in which a pass ends."""
    after = join.after.get(one, set())
    found = {_last(join, other, (*before, one)) for other in after} if one not in before else set()
    if len(found) > 1 or (not found and after):
        join.wrong.append((f"a backward pass of rank {one[0]} is of several micro-batches", join.line(one)))
    return min(found, default=one)


def _in_order(join: _Joined, ranks: Sequence[int]) -> tuple[int, ...]:
    """The ranks of a pipeline from the first stage to the last, as far as these begin in the order of forward."""

    def deep(one: Pass) -> int:
        return max((1 + deep(other) for other in join.after.get(one, ())), default=0)

    depth = {rank: max(deep(one) for one in join.passes() if one[0] == rank) for rank in ranks}
    return tuple(sorted(ranks, key=lambda rank: -depth[rank]))


def _whole(join: _Joined, rank: int, line: Sequence[int], last: Mapping[Pass, Pass]) -> Recording:
    """A rank's recording, in which micro-batches are those of the last stage, with all that any stage reads of them."""
    recording, end = join.recordings[rank], join.recordings[last[rank, 0][0]]
    losses = sorted({one[1] for one in last.values() if one[0] == end.rank})
    own = [last[rank, turn][1] for turn in range(len(recording.stretches))]
    counts = {losses.index(n): own.count(n) for n in losses}
    if len(set(counts.values())) > 1 or 0 in counts.values():
        join.wrong.append((f"rank {rank} does not do the same for each micro-batch in backward", recording.turns[-1].line))
    join.wrong += [*_calls(recording), *_other_data(join, rank, line)]
    made = replace(
        recording, turns=[end.turns[n] for n in losses], events=[e for e in recording.events if e.kind != "use"], line=tuple(line)
    )
    made.inputs, made.rows, made.by_row = {}, {}, {}
    for turn, number in enumerate(losses):
        calls = [call for one in line for call in _of(join, one, number, last)]
        made.inputs[turn] = tuple(given for call in calls for given in call.given)
        made.rows[turn] = next((call.rows for call in calls), 0)
        made.by_row[turn] = [row for call in calls for row in call.by_row]
        join.wrong += list(_other_rows([[s for call in _of(join, one, number, last) for s in call.sources] for one in line], line))
    return made


def _of(join: _Joined, rank: int, number: int, last: Mapping[Pass, Pass]) -> list[Call]:
    """The calls of modules of a rank that a micro-batch has."""
    recording = join.recordings[rank]
    numbers = {n for turn, s in enumerate(recording.stretches) if last[rank, turn][1] == number for n in s.calls}
    return [call for call in recording.calls if call.number in numbers]


def _calls(recording: Recording) -> Iterator[tuple[str, int]]:
    """What is wrong with calls of modules: each has one backward pass if something of it is sent; so has each parameter that is read."""
    numbers = [n for s in recording.stretches for n in s.calls]
    linked = [call for call in recording.calls if call.number in numbers]
    known = {result for call in linked for result in call.results}  # of some the shape was asked before
    for call in recording.calls:
        if numbers.count(call.number) > 1:
            yield f"on rank {recording.rank} two backward passes differentiate what one call of a module gives", call.line
        if call.number not in numbers and ({value for value, _ in recording.sent} - known) & {*call.results}:
            yield f"rank {recording.rank} sends what it computes here, and does not differentiate it before the update", call.line
    passed = {i for e in recording.events if e.kind == "pass" for i in e.states}
    for index in sorted({i for e in recording.events if e.kind == "use" for i in e.states} - passed):
        yield f"`{recording.states[index].name}` is read on rank {recording.rank}, and gets no gradient", 0
    if any(t.beside for t in recording.turns) and any(len(s.calls) > 1 for s in recording.stretches):
        yield "a loss of several terms, of several modules of a stage, cannot be said", recording.turns[-1].line


def _other_data(join: _Joined, rank: int, line: Sequence[int]) -> Iterator[tuple[str, int]]:
    """What is wrong with samples that a stage reads where another stage of the pipeline makes others in the same place."""
    own = join.recordings[rank].made
    numbers = {n for s in join.recordings[rank].stretches for n in s.calls}
    sources = sorted(source for call in join.recordings[rank].calls if call.number in numbers for source in call.sources)
    for (maker, number, _), other in ((source, other) for source in sources for other in line):
        theirs = join.recordings[other].made.get(maker, [])[number : number + 1]
        if theirs and theirs != [own[maker][number]] and "" not in (*theirs, own[maker][number]):
            yield f"ranks {rank} and {other} are stages of one pipeline, and make other samples here, of which each reads a part", maker[0]
            return


def _other_rows(sources: Sequence[Sequence[Source]], line: Sequence[int]) -> Iterator[tuple[str, int]]:
    """What is wrong with samples of a micro-batch, of which stages read other rows of as many."""
    for (rank, own), (other, theirs) in combinations(zip(line, sources, strict=True), 2):
        for (maker, _, (*rows, count, total)), (_, _, (*others, number, of)) in product(own, theirs):
            if count and (count, total) == (number, of) and rows != others:
                text = f"ranks {rank} and {other} read other rows of samples for one micro-batch, from {rows[0]} and {others[0]} on"
                yield text, maker[0]
                return


def by_stages(recordings: Mapping[int, Recording], grid: Grid) -> list[dict[int, Recording]]:
    """The ranks of each stage, called by how far they are from its first one; of a step without stages, all."""
    if not grid.stages:
        return [dict(recordings)]
    step = grid.stride(grid.stages)
    return [
        {rank - place * step: r for rank, r in recordings.items() if grid.place(rank, grid.stages) == place}
        for place in range(grid.sizes[grid.stages])
    ]
