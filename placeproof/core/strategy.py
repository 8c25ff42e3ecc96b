"""Strategies: mesh axes, a placement, a schedule; and their composition.

A strategy is data. ``a * b`` composes two strategies on one mesh, and does not depend on the order: a conflict is an
error that names both and the rule that forbids it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace

from placeproof.core.diagnostics import Place, Problems
from placeproof.core.mesh import Axis, axis_order
from placeproof.core.modes import REPLICATED, SHARDED, Mode
from placeproof.core.states import ACTIVATIONS, STATES, State

SYMBOLIC = "symbolic"

#: Groups of activations where an axis splits the hidden dimension: inside the parallel regions, and outside them.
INNER, OUTER = "inner", "outer"
#: Groups of parameters there: split with the hidden dimension, and copied.
MATRIX, NORM = "matrix", "norm"
#: Groups of parameters where an axis splits the experts of a mixture: the experts, and everything else.
EXPERT, DENSE = "expert", "dense"
#: The group of weights that the first and the last stage of a pipeline share.
TIED = "tied"
#: Of a model's weights, those that every device of an axis has which splits the hidden dimension: of experts, and of all others.
EXPERT_COPIES, COPIES = "expert_copies", "copies"
#: Where adapters are trained: they, and the model's own parameters, which are frozen.
ADAPTER, BASE = "adapter", "base"
#: Of a model's adapters, those of which each device of an axis that splits the hidden dimension finds a part of the gradient.
ADAPTER_SUMS = "adapter_sums"
#: Where some of the model's own parameters are trained: those that are not.
FROZEN = "frozen"
#: Groups of experts.
EXPERTS = (EXPERT, EXPERT_COPIES)
#: Where an update reads whole matrices, of a model's weights: matrices that every device has of an axis which splits the hidden dimension,
#: those of them of which each finds a part of the gradient, and what is updated element by element.
MATRIX_COPIES, MATRIX_SUMS, ELEMENTWISE = "matrix_copies", "matrix_sums", "elementwise"
#: Groups of whole matrices.
MATRICES = (MATRIX, MATRIX_COPIES, MATRIX_SUMS, EXPERT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a placement: a state (of the groups named, or all), on an axis, in a mode; and who says so."""

    state: str
    axis: str
    mode: Mode
    owner: str
    groups: tuple[str, ...] = ()
    place: Place | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Realisation:
    """What a strategy says of time rather than of place. None: it says nothing, and another strategy may.

    ``microbatches``: passes per update, a number or "symbolic". ``in_flight``: the order of micro-batches in a pipeline, by the name of a
    schedule; "1f1b" keeps the activations of at most as many as there are stages, "gpipe" of all. ``chunks``: runs of layers on a device,
    where the schedule leaves their number open. ``unit``: what is gathered at
    once: "unit", "model", or a number of parameters. ``prefetch``: gather the next unit while this one computes.
    ``reshard``: after forward, drop gathered parameters (True), keep them (False), or keep a shard over a sub-group of
    that many devices. ``root``: what no other unit wraps is dropped after forward like every unit ("reshard"), or stays
    gathered ("keep"). ``bucket``: gradients stream into their reduction ("stream"), or are first produced for a whole
    unit ("unit"). ``recompute``: keep each layer's input alone and recompute the rest. ``checkpoints``: kept inputs stay
    on the "device" or go to the "host". ``reduce``: gradients of which a device needs its part alone are reduce-scattered
    ("scatter"), or all-reduced ("all_reduce"). ``back``: updated parts of parameters that every device holds are all-gathered
    ("gather"), or broadcast by their owners ("broadcast"). ``norms``: gradients of norms under sequence parallelism are summed
    "once" a step, or "each" time they are produced. ``attention``: how tokens that an axis splits attend to one another: keys and values
    go round a "ring", are all-gathered ("gather"), or heads and tokens change places ("ulysses"). ``experts``: where an axis splits the
    hidden dimension, experts are "split" like other matrices, or each is "whole"; or one such axis, over which alone they are split.
    ``clip``: gradients are scaled by a function of their
    "global_norm", on one device as well. ``update``: what the update reads of whole matrices, as a program's ``reference(optimizer=...)``
    says it; ``matrices``: what it reads is "gathered" for it, or "reduced", where sums are enough, or "exchanged" between parts and
    owners of whole matrices, or matrices are "owned" by one device each. ``train``: "adapters" are trained, and all other parameters are
    frozen; or "part" of the model's own. ``rank``: the inner dimension of a model's adapters; ``targets``: beside which matrices of its
    layers they stand. ``parts``: what of a model is frozen; ``layers``: so many of its last layers are trained, and nothing before
    them. ``gather_width``, ``reduce_width``: symbols of quantised
    bytes a parameter.
    """

    microbatches: int | str | None = None
    in_flight: str | None = None
    chunks: int | None = None
    unit: int | str | None = None
    prefetch: bool | None = None
    reshard: bool | int | str | None = None
    root: str | None = None
    bucket: str | None = None
    recompute: bool | None = None
    checkpoints: str | None = None
    reduce: str | None = None
    back: str | None = None
    norms: str | None = None
    attention: str | None = None
    experts: str | None = None
    clip: str | None = None
    update: str | None = None
    matrices: str | None = None
    train: str | None = None
    rank: int | None = None
    targets: str | None = None
    parts: str | None = None
    layers: int | None = None
    gather_width: str | None = None
    reduce_width: str | None = None


#: What a field means when nobody sets it; an option left at such a value leaves the field open to other strategies.
NEUTRAL: dict[str, object] = {
    "in_flight": "1f1b",
    "unit": "unit",
    "prefetch": False,
    "reshard": True,
    "root": "reshard",
    "bucket": "stream",
    "recompute": False,
    "checkpoints": "device",
    "reduce": "scatter",
    "back": "gather",
    "norms": "once",
    "experts": "split",
    "targets": "linear",
    "parts": "embedding",
}
SCHEDULE_FIELDS = tuple(f.name for f in fields(Realisation))
#: Fields that say how another one is done: of two strategies that differ in that one, it is no further mistake that they differ here.
_HOW = {"matrices": "update"}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Strategy:
    """Mesh axes + placement + schedule. ``parts`` are the expressions of the strategies that it is composed of."""

    parts: tuple[str, ...]
    axes: tuple[Axis, ...]
    entries: tuple[Entry, ...]
    schedule: Realisation
    needs: tuple[tuple[str, str], ...] = ()
    approximates: tuple[str, ...] = ()
    title: str = ""
    summary: str = ""
    source: str = ""

    @property
    def name(self) -> str:
        """The expression that makes this strategy, parts in canonical order."""
        return " * ".join(self.parts)

    def __repr__(self) -> str:
        return f"<strategy {self.name}>"

    def axis(self, name: str) -> Axis:
        """The axis of that name; raises KeyError."""
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise KeyError(name)

    @property
    def experts(self) -> tuple[str, ...]:
        """The axes over which experts lie in parts, in the order of the mesh."""
        return tuple(a.name for a in self.axes if any(EXPERT in e.groups and e.axis == a.name for e in self.entries))

    def mode(self, state: State, axis: str, group: str | None = None) -> Mode:
        """The placement, total: what no strategy places lies as the axis leaves it (see :func:`usual_mode`).

        Experts that nobody places on an axis which splits the hidden dimension lie there as other matrices, or each is whole.
        """
        if group == EXPERT and axis not in self.experts:
            split = self.schedule.experts in (None, "split", axis)
            group = (MATRIX if split else NORM) if self.axis(axis).splits.matrices else group
        fallback: Mode | None = None
        for entry in self.entries:
            if entry.state == state.name and entry.axis == axis:
                if group is not None and group in entry.groups:
                    return entry.mode
                if not entry.groups:
                    fallback = entry.mode
        return fallback or usual_mode(state, self.axis(axis), group)

    def places(self, state: State, axis: str) -> bool:
        """Whether some strategy places the state on the axis."""
        return any(e.state == state.name and e.axis == axis for e in self.entries)

    def __mul__(self, other: object) -> Strategy:
        if isinstance(other, Strategy):
            return compose((self, other))
        return NotImplemented


def usual_mode(state: State, axis: Axis, group: str | None = None) -> Mode:
    """How a state lies on an axis that no strategy places it on.

    Model states are copied. Activations are split with what the axis splits: with the samples, and with the computation,
    except for those outside the parallel regions of an axis that splits the hidden dimension (the group ``outer``).
    """
    if state is not ACTIVATIONS:
        return REPLICATED
    outside = axis.splits.matrices and group != INNER
    split = axis.splits.samples or (axis.splits.compute and not outside)
    return SHARDED if split else REPLICATED


def compose(strategies: Iterable[Strategy]) -> Strategy:
    """The strategies together on one mesh, whatever their order. Raises :class:`InputError` with every conflict."""
    members = sorted(strategies, key=_canonical)
    problems = Problems()
    axes = _axes(members, problems)
    entries = _entries(members, problems)
    schedule = _schedule(members, problems)
    problems.raise_if_any()
    return Strategy(
        parts=tuple(p for s in members for p in s.parts),
        axes=axes,
        entries=entries,
        schedule=schedule,
        needs=tuple(sorted({n for s in members for n in s.needs})),
        approximates=tuple(sorted({a for s in members for a in s.approximates})),
        title=" with ".join(s.title for s in members),
        summary=" ".join(s.summary for s in members),
        source="; ".join(dict.fromkeys(s.source for s in members if s.source)),
    )


def _canonical(strategy: Strategy) -> tuple[tuple[tuple[int, str], ...], float, str]:
    """Data parallelism first, then model parallelism and what builds on it, schedules without an axis last."""
    place = (0 if strategy.entries else 1) + (0.5 if strategy.needs else 0)
    return (tuple(axis_order(a) for a in strategy.axes) or ((99, ""),), place, strategy.name)


def _axes(members: list[Strategy], problems: Problems) -> tuple[Axis, ...]:
    seen: dict[str, tuple[Axis, str]] = {}
    own = {a.name: a.splits for m in members for a in m.axes if not _has_experts_alone(m, a)}
    for member in members:
        for axis in member.axes:
            if _has_experts_alone(member, axis):
                axis = replace(axis, splits=own.get(axis.name, axis.splits))  # noqa: PLW2901
            if axis.name not in seen:
                seen[axis.name] = (axis, member.name)
                continue
            first, owner = seen[axis.name]
            # Tokens are samples, too: whatever works on an axis that splits the batch works where it splits the sequence. Experts go to
            # devices that have tokens of their own, whatever gives them these.
            if first.splits.samples and axis.splits.samples:
                first, axis = (replace(a, splits=max(first.splits, axis.splits, key=lambda s: s.order)) for a in (first, axis))  # noqa: PLW2901
            if first.splits != axis.splits:
                problems.add(
                    "PP106",
                    f"`{owner}` splits {first.splits} over axis `{axis.name}`, and `{member.name}` splits {axis.splits}",
                    help="an axis divides one thing; give the strategies different axes",
                )
            seen[axis.name] = (_same_axis(first, axis, owner, member.name, problems), owner)
    return tuple(sorted((axis for axis, _ in seen.values()), key=axis_order))


def _has_experts_alone(member: Strategy, axis: Axis) -> bool:
    """Whether a strategy places nothing but experts on an axis."""
    entries = [e for e in member.entries if e.axis == axis.name]
    return bool(entries) and all(e.groups == (EXPERT,) for e in entries)


def _same_axis(a: Axis, b: Axis, a_owner: str, b_owner: str, problems: Problems) -> Axis:
    def agreed(what: str, x: object, y: object) -> object:
        if x is not None and y is not None and x != y:
            problems.add(
                "PP106",
                f"`{a_owner}` gives axis `{a.name}` {what} {x}, and `{b_owner}` gives it {y}",
                help="strategies that share an axis share its size; say it once",
            )
        return x if x is not None else y

    degree, inner = agreed("degree", a.degree, b.degree), agreed("a sub-group of", a.inner, b.inner)
    assert degree is None or isinstance(degree, int)
    assert inner is None or isinstance(inner, int | str)
    return Axis(name=a.name, splits=a.splits, degree=degree, inner=inner)


def _entries(members: list[Strategy], problems: Problems) -> tuple[Entry, ...]:
    placed: dict[tuple[str, str, bool], Entry] = {}
    clashes: dict[tuple[str, str, str], list[str]] = {}
    entries: list[Entry] = []
    for member in members:
        for entry in member.entries:
            key = (entry.state, entry.axis, entry.groups == (EXPERT,))  # experts may be placed apart from all the rest
            first = placed.get(key)
            if (first is not None and first.owner != entry.owner) or (first is not None and entry in entries):
                clashes.setdefault((first.owner, entry.owner, entry.axis), []).append(entry.state)
            placed.setdefault(key, entry)
            entries.append(entry)
    for (one, two, axis), states in clashes.items():
        listed = ", ".join(dict.fromkeys(states))
        problems.add(
            "PP105",
            f"`{one}` and `{two}` both place {listed} on axis `{axis}`",
            help=f"keep one of the two on `{axis}`, or give one of them an axis of its own: `{_moved(two, axis)}`",
            notes=("rule: one_placement_of_each_state_on_an_axis (on one axis each state is placed once)",),
        )
    return tuple(sorted(entries, key=lambda e: (list(STATES).index(e.state), e.axis, e.groups, e.mode.symbol, e.owner)))


def _moved(expression: str, axis: str) -> str:
    """The expression of a strategy, or of a placement as a tuple, on another axis."""
    name, *_ = expression.partition("(")
    return f"{name}({axis}={axis}2)" if name else on_axis(expression, f"{axis}2")


def on_axis(placement: str, axis: str) -> str:
    """A placement that is written as a tuple, on an axis: ``dp2``, or with its degree ``dp=8``."""
    modes = placement.strip("()").split(", ")[: len(STATES)]
    return f"({', '.join([*modes, axis])})"


def _schedule(members: list[Strategy], problems: Problems) -> Realisation:
    said: dict[str, tuple[object, str]] = {}
    apart: set[tuple[str, str, str | None]] = set()
    for member in members:
        for name in SCHEDULE_FIELDS:
            value = getattr(member.schedule, name)
            if value is None:
                continue
            first, owner = said.get(name, (None, ""))
            if first is None or first == SYMBOLIC:
                said[name] = (value, member.name)
            elif value not in (first, SYMBOLIC):
                apart.add((owner, member.name, name))
                if (owner, member.name, _HOW.get(name)) in apart:
                    continue
                problems.add(
                    "PP107",
                    f"`{owner}` sets {name} to {first}, and `{member.name}` sets it to {value}",
                    help="say it once, or the same in both",
                )
    return Realisation(**{name: value for name, (value, _) in said.items()})  # type: ignore[arg-type]
