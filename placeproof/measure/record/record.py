"""Records one training step of a script and writes it as a step program.

The script runs as it is; what it computes with the gradients of its parameters, and what it exchanges, is followed value by value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from placeproof.core.diagnostics import InputError, Problems, refuse
from placeproof.core.files import read_text
from placeproof.core.mesh import SPLITS
from placeproof.measure.record.axes import Grid, grid
from placeproof.measure.record.chain import refuse_lines
from placeproof.measure.record.launch import TIMEOUT, Launch, faked, forked
from placeproof.measure.record.plan import read_plan
from placeproof.measure.record.recording import Recording, Seen
from placeproof.measure.record.write import write
from placeproof.programs import read
from placeproof.semantics.judge.verdict import judge

#: Up to how many ranks all are run under the fake backend; of more, rank 0 and its neighbour on each axis.
_ALL_RANKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A step program, and what to know about how it came about."""

    text: str
    ranks: tuple[int, ...]
    world: int
    notes: tuple[str, ...]


def trace(
    script: Path,
    *,
    world: int | None = None,
    backend: str = "fake",
    step: int = 1,
    splits: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
    timeout: float = TIMEOUT,
) -> Traced:
    """The step program of a script's step, from 1. ``arguments``: of the script; ``timeout``: seconds that ranks may take.

    Where layers are split, real processes run in any case. Raises InputError for a script that cannot be run, ranks that do not agree,
    and a step that no program can say.
    """
    own = read_text(script, code="PP110", help="give the path of a training script")
    count = _world(own) if world is None else world
    _check(count, splits or {})
    launch = Launch(script=script, world=count, step=step, arguments=tuple(arguments), timeout=timeout)
    recordings = forked(launch) if backend == "gloo" else _faked(launch)
    first = recordings[0]
    shape = _shape(first)
    _agree(recordings)
    unknown = sorted(set(splits or {}) - set(shape.sizes))
    problems = Problems()
    for axis in unknown:
        problems.add("PP603", f"the script has no mesh axis `{axis}`", help=f"its axes are {', '.join(shape.sizes)}")
    problems.raise_if_any()
    plan = read_plan(recordings, shape, splits or {})
    names = list(plan.grid.sizes)
    if shape.made:
        plan.notes.append(f"The script names no axes: {', '.join(names)} {'is' if len(names) == 1 else 'are'} ours.")
    text = write(plan, first)
    if plan.layers is not None and backend == "fake":
        _really(launch, shape, splits or {}, text)
    return Traced(text=text, ranks=tuple(sorted(recordings)), world=count, notes=tuple(plan.notes))


def _really(launch: Launch, shape: Grid, splits: Mapping[str, str], text: str) -> None:
    """Run a script whose layers are split by real processes: only numbers show that blocks exchange all that they have to.

    Raises InputError where they do not, unless the program of the step is wrong already, and says why.
    """
    try:
        recordings = forked(launch)
        _agree(recordings)
        read_plan(recordings, shape, splits)
    except InputError:
        if judge(read(text)).word != "refuted":
            raise


def _shape(recording: Recording) -> Grid:
    return grid(recording.mesh, {e.group for e in recording.events if e.group}, recording.world)


def _world(text: str) -> int:
    """The script's own ``WORLD``, or two. Raises InputError for one that has to be worked out."""
    match = re.search(r"^WORLD\s*=\s*(.*?)\s*(?:#.*)?$", text, re.MULTILINE)
    if match and not re.fullmatch(r"\d{1,9}", match[1]):
        refuse("PP603", f"the script's `WORLD` is `{match[1]}`: no number that can be read", help="say how many ranks it has: `--world N`")
    return int(match[1]) if match else 2


def _check(world: int, splits: Mapping[str, str]) -> None:
    problems = Problems()
    if world < 1:
        problems.add("PP603", f"{world} ranks cannot be recorded", help="give at least one")
    for axis, what in splits.items():
        if what not in ("batch", "sequence", "hidden"):
            known = ", ".join(n for n in SPLITS if n in ("batch", "sequence", "hidden"))
            problems.add("PP603", f"`{axis}` cannot be said to split `{what}` here", help=f"one of {known}")
    problems.raise_if_any()


def _faked(launch: Launch) -> dict[int, Recording]:
    recordings = {0: faked(launch, 0)}
    shape, world = _shape(recordings[0]), launch.world
    others = range(1, world) if world <= _ALL_RANKS else sorted({shape.neighbour(a) for a, n in shape.sizes.items() if n > 1})
    return recordings | {rank: faked(launch, rank) for rank in others}


def _agree(recordings: Mapping[int, Recording]) -> None:
    """Raise InputError at the first collective that the ranks of a group do not enter alike: the n-th of one rank meets the n-th of all."""
    first = recordings[0]
    for rank, other in recordings.items():
        own = _met(first, rank)
        for number, (a, b) in enumerate(zip(own, _met(other, 0), strict=False), start=1):
            about = first.about(a), other.about(b)
            if a.signature() != b.signature() or about[0] != about[1]:
                what = _differs(a, b, *about)
                refuse_lines(
                    first.script, first.source, [(f"ranks 0 and {rank} do not do the same in collective {number}: {what}", a.line)]
                )
        if len(own) != (count := len(_met(other, 0))):
            more, where = (0, own[count:]) if len(own) > count else (rank, _met(other, 0)[len(own) :])
            text = f"rank {more} enters {abs(len(own) - count)} collectives more than rank {rank - more}: first `{where[0].kind}`"
            refuse_lines(first.script, first.source, [(text, where[0].line)])


def _met(recording: Recording, rank: int) -> list[Seen]:
    """The collectives that two ranks enter together."""
    return [e for e in recording.events if e.group and rank in e.group and e.kind not in ("send", "recv")]


def _differs(a: Seen, b: Seen, mine: frozenset[str], there: frozenset[str]) -> str:
    if (a.kind, a.op) != (b.kind, b.op):
        return f"`{a.kind}`{' ' + a.op if a.op else ''} meets `{b.kind}`{' ' + b.op if b.op else ''}"
    if a.numel != b.numel or a.dtype != b.dtype:
        return f"`{a.kind}` of {a.numel} {a.dtype} meets one of {b.numel} {b.dtype}"
    own, others = (min(x - y, default="others") for x, y in ((mine, there), (there, mine)))
    return f"`{a.kind}` of `{own}` meets one of `{others}`" if mine != there else f"`{a.kind}` with another root"
