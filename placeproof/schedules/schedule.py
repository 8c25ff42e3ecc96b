"""A pipeline schedule as data: where stages lie, in which order a device runs its passes, and what is known about it in closed form.

A model of S stages is run by p devices, with v chunks (stages) on each, on m micro-batches. Devices, stages, chunks and micro-batches are
numbered from 0. A *pass* is what one stage computes for one micro-batch: F, a forward; B, the gradient of its input; W, the gradient
of its weights; BW, both gradients in one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from placeproof.core.diagnostics import Problems
from placeproof.schedules.expression import Expression, Number

#: What the expressions of a schedule file may speak of: in phases and rules the counts, in closed forms times and sizes, too.
COUNTS = ("p", "m", "v", "d")
TIMES = ("T_F", "T_B", "T_W", "T_FB", "T_send")
SIZES = ("M_B", "M_W")
#: What a closed form can be of.
QUANTITIES = {
    "busy": "the time for which the device that idles longest computes in a step",
    "idle": "the longest time for which a device computes nothing in a step",
    "wait": "the longest time for which a device computes nothing between its first pass and its last",
    "peak": "the most that device d keeps of its chunks' activations",
    "messages": "messages that all devices send in a step, activations and gradients together",
}


class PassKind(StrEnum):
    """What a pass computes. A full backward counts as B and as W."""

    F = "F"
    B = "B"
    W = "W"
    BW = "BW"


class StageLayout(StrEnum):
    """Which stages a device has.

    LOOP: chunk c of device d is stage c * p + d. VEE: two chunks, stages d and 2 * p - 1 - d, so that the first device has the last stage,
    too. BOTH: the pipeline twice, in opposite directions; device d has stage d of one copy of the model and stage p - 1 - d of the other.
    """

    LOOP = "loop"
    VEE = "vee"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Token:
    """One pass in the pattern of a phase. ``chunk``: of which chunk, or None for the next one in the device's turns."""

    kind: PassKind
    chunk: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A pattern that a device repeats. Each slot of ``run`` is one pass, or a forward and a backward that overlap."""

    times: Expression
    run: tuple[tuple[Token, ...], ...]
    doc: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What p, m and v have to satisfy, and who says so."""

    rule: Expression
    because: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """An expression for one of :data:`QUANTITIES`, and the relations under which it is one.

    ``proved``: theorems that say it for all p and m, each by its name, with a colon and what it leaves out where it says less;
    ``computed``: those that hold it against the simulation at finitely many points, with a colon and which.
    """

    what: str
    form: Expression
    when: tuple[Expression, ...] = ()
    proved: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()

    def holds(self, values: Mapping[str, Number]) -> bool:
        """Whether the form speaks of these values."""
        return all(condition.holds(values) for condition in self.when)


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """What a source prints. ``form.when``: where the simulation gives the same; ``note``: what it gives elsewhere."""

    form: Form
    source: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """What a search is told of passes: how long F, B, W and a message take, and M_B and M_W, what is kept until B and until W."""

    forward: Number = 1
    backward: Number = 1
    weight: Number = 1
    send: Number = 0
    kept: Number = 1
    late: Number = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What an order is searched for (:mod:`placeproof.schedules.search`). ``most``: the most that a device may keep of its activations.

    What an order takes and keeps in the end follows from the order, whatever its ``profile`` was. ``said``: whether the file says that.
    """

    most: Expression
    profile: Profile = Profile()
    said: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule. ``chunks``: stages on a device, or None where v is free.

    ``let``: names for numbers that phases use; each may use those before. ``turn``: how many micro-batches a chunk takes in a row before
    the next chunk has its turn. ``made_for``: the micro-batches that phases speak of; passes of those that a step does not have are left
    out. ``block``, in place of ``phases``: the unit of time in which a device runs each pass of the first micro-batch, that of the next one
    being ``every`` units later (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"); what it says no W of, fills units that
    are free. ``search``, in place of both: the order is searched for, for each p and m.
    """

    name: str
    title: str
    summary: str
    source: str
    layout: StageLayout
    chunks: int | None
    phases: tuple[Phase, ...] = ()
    block: tuple[tuple[Token, Expression], ...] = ()
    every: Expression | None = None
    search: Search | None = None
    let: tuple[tuple[str, Expression], ...] = ()
    turn: Expression | None = None
    made_for: Expression | None = None
    needs: tuple[Need, ...] = ()
    closed: tuple[Form, ...] = ()
    printed: tuple[Printed, ...] = ()

    @property
    def copies(self) -> int:
        """How often the model's parameters are held: each device holds ``copies / p`` of them."""
        return 2 if self.layout is StageLayout.BOTH else 1

    def searched_for(self, profile: Profile) -> Schedule:
        """The schedule with the profile that its order is searched for, where it is one that is searched for."""
        return self if self.search is None else replace(self, search=replace(self.search, profile=profile))

    @property
    def split(self) -> bool:
        """Whether some backward is run in two passes, B and W."""
        return PassKind.W in self.kinds

    @property
    def overlapped(self) -> bool:
        """Whether a forward and a backward of two micro-batches may run as one."""
        return any(len(slot) > 1 for phase in self.phases for slot in phase.run)

    @property
    def kinds(self) -> frozenset[PassKind]:
        """The kinds of passes that devices run."""
        if self.search is not None:
            return frozenset({PassKind.F, PassKind.B, PassKind.W})
        kinds = {token.kind for token in self.tokens} | {token.kind for token, _ in self.block}
        return frozenset(kinds | ({PassKind.W} if PassKind.B in kinds else set()))

    @property
    def tokens(self) -> tuple[Token, ...]:
        """Every pass that is written in a phase."""
        return tuple(token for phase in self.phases for slot in phase.run for token in slot)

    def counts(self, p: int, m: int, v: int | None = None) -> int:
        """The chunks on a device, after p, m and v were checked. Raises InputError (PP202) for what the schedule does not admit."""
        return self._checked({"p": p, "m": m}, v)

    def stages(self, p: int, v: int | None = None) -> tuple[tuple[int, ...], ...]:
        """The stages of each of p devices, chunk by chunk. Raises InputError (PP202) for a p or a v that the schedule does not admit."""
        chunks = self._checked({"p": p}, v)
        return tuple(tuple(self.stage(c, d, p) for c in range(chunks)) for d in range(p))

    def _checked(self, given: Mapping[str, int], v: int | None) -> int:
        chunks = self.chunks if v is None else v
        problems = Problems()
        if chunks is None:
            problems.add("PP202", f"`{self.name}` can have any number of chunks on a device", help="say how many: v=2")
        elif self.chunks not in (None, chunks):
            problems.add("PP202", f"`{self.name}` has {self.chunks} chunks on a device, not {chunks!r}", help="leave v out")
        counts = {**given, "v": 1 if chunks is None else chunks}
        for name, count in counts.items():
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                problems.add("PP202", f"`{self.name}`: {name} = {count!r} is no count", help="give a whole number of at least 1")
        problems.raise_if_any()
        for need in self.needs:
            if set(need.rule.names) <= set(counts) and not need.rule.holds(counts):
                shown = ", ".join(f"{name} = {counts[name]}" for name in need.rule.names)
                notes = [need.source] if need.source else []
                problems.add("PP202", f"`{self.name}` needs {need.rule.text}, and not {shown}", help=need.because or None, notes=notes)
        problems.raise_if_any()
        return counts["v"]

    def depth(self, p: int, v: int) -> int:
        """The stages that a micro-batch passes through: S, the stages of the model."""
        return p * v // self.copies

    def stage(self, chunk: int, d: int, p: int) -> int:
        """The stage that is a chunk of device d of p. Of BOTH, chunk 0 is that which a micro-batch reaches first."""
        if self.layout is StageLayout.LOOP:
            return chunk * p + d
        if self.layout is StageLayout.VEE:
            return d if chunk == 0 else 2 * p - 1 - d
        near = min(d, p - 1 - d)
        return near if chunk == 0 else p - 1 - near

    def device(self, stage: int, microbatch: int, p: int, m: int) -> int:
        """The device that runs a micro-batch's passes of a stage. Of BOTH, the second half of the micro-batches takes the second copy."""
        if self.layout is StageLayout.LOOP:
            return stage % p
        if self.layout is StageLayout.VEE:
            return min(stage, 2 * p - 1 - stage)
        return stage if microbatch < m // 2 else p - 1 - stage

    def first(self, chunk: int, d: int, p: int, m: int) -> int:
        """The first of the micro-batches that a chunk of a device takes: that of its copy's half."""
        if self.layout is not StageLayout.BOTH or (d < p - 1 - d) == (chunk == 0):
            return 0
        return m // 2
