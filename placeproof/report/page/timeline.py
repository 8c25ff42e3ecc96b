"""Who does what when in a step of a pipeline: drawn over the width of the page, and as a list."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from placeproof.report.hypertext import said
from placeproof.schedules import PassKind, TimedSlot, Timetable

#: Passes -> their names and the classes of their colours.
_PASSES = {
    PassKind.F: ("forward", "s0"),
    PassKind.B: ("backward, inputs", "s3"),
    PassKind.W: ("backward, weights", "s1"),
    PassKind.BW: ("backward", "s3"),
}
_ROW, _BAR = 26, 20
#: More passes than these are too narrow to be seen, and make the page large.
MOST_PASSES = 4_000


def timeline(table: Timetable) -> str:
    """A row for each stage, a box for each pass; grey where a device waits."""
    title = f"schedule {table.schedule.name}: {table.m} micro-batches on {table.p} stages"
    if sum(map(len, table.runs)) > MOST_PASSES:
        return f"<section><h2>{said(title)}</h2><p>its passes are too many to be drawn</p></section>"
    kinds = [kind for kind in _PASSES if any(one.kind is kind for runs in table.runs for run in runs for one in run.slot)]
    keys = "".join(f'<li><i class="{_PASSES[kind][1]}"></i>{said(_PASSES[kind][0])}</li>' for kind in kinds)
    key = f'<ul class="key">{keys}<li><i class="idle"></i>waiting</li></ul>'
    rows = "".join(_row(d, runs, table) for d, runs in enumerate(table.runs))
    listed = "".join(f"<li>{said(_in_words(runs))}</li>" for runs in table.runs)
    order = f'<details><summary>passes of each stage, in order</summary><ol start="0">{listed}</ol></details>'
    return f'<section><h2>{said(title)}</h2><div class="timeline" aria-hidden="true">{key}{rows}</div>{order}</section>'


def _row(d: int, runs: tuple[TimedSlot, ...], table: Timetable) -> str:
    passes = "".join(box for run in runs for box in _pass(run, float(table.step)))
    drawn = f'<svg width="100%" height="{_ROW}"><rect class="idle" width="100%" height="{_BAR}"/>{passes}</svg>'
    return f'<div class="row"><span>stage {d}</span>{drawn}</div>'


def _pass(run: TimedSlot, step: float) -> Iterator[str]:
    left, width = 100 * float(run.start) / step, 100 * float(run.end - run.start) / step
    high = _BAR / len(run.slot)
    for i, one in enumerate(run.slot):
        place = f'x="{left:.3f}%" y="{i * high:.1f}" width="{width:.3f}%" height="{high:.1f}"'
        yield f'<rect class="{_PASSES[one.kind][1]}" {place}/>'


def _in_words(runs: tuple[TimedSlot, ...]) -> str:
    """Neighbouring passes of a kind together: ``forward 0, 1; backward 0``."""
    passes = [(_PASSES[one.kind][0], one.microbatch) for run in runs for one in run.slot]
    each = groupby(passes, key=lambda pair: pair[0])
    return "; ".join(f"{name} {', '.join(str(n) for _, n in group)}" for name, group in each)
