"""The experiments about amounts: how much memory sharding saves, and how much traffic it costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from placeproof.collectives import COLLECTIVES
from placeproof.core.exchange import Exchange
from placeproof.core.shapes import Shapes, transformer
from placeproof.cost.closed import tidy
from placeproof.cost.derive import derive, evaluate
from placeproof.measure.experiments.experiment import Experiment, Line, Unit, timed
from placeproof.measure.measured import Measured
from placeproof.measure.training.predicted import predicted
from placeproof.measure.training.run import measure, measure_all
from placeproof.measure.training.subjects import Subject
from placeproof.strategies import parse_strategy

if TYPE_CHECKING:
    import sympy

#: 1.1 billion parameters; every first dimension is a multiple of 8, and of 256.
LARGE = transformer(layers=22, hidden=2048, heads=32, kv_heads=4, ffn=5632, vocab=32000, batch=1, tokens=128)
#: As many parameters as DistributedDataParallel can be given with data, in seconds.
MIDDLE = transformer(layers=4, hidden=384, heads=6, ffn=1024, vocab=4096, batch=1, tokens=16)
#: For real processes, with no first dimension that four devices could divide.
SMALL = transformer(layers=2, hidden=42, heads=3, ffn=111, vocab=97, batch=2, tokens=8)
#: The module that DistributedDataParallel would be given, by itself: its parameters need no data.
UNWRAPPED = Subject(name="unwrapped", title="the module alone", template="ddp({dp})", axes=("dp",))

#: float32 parameters and gradients, and the two numbers that AdamW keeps for each parameter: bytes.
WIDTHS = {"b_theta": Fraction(4), "b_g": Fraction(4), "b_omega": Fraction(8)}
STATES = ("parameters", "gradients", "optimizer")
FAKE = "tensors without data, one of {n} devices"
ALLOCATED = "real tensors, one of {n} devices"
MIXED = "ddp with real tensors, fsdp2 without data, one of {n} devices"
GLOO = "real tensors, {n} processes on gloo"

_COUNTERS = "every device counts the steps of each tensor, in 4 bytes that are not divided"
_PADDED = "rows are dealt out in equal parts, the last devices get fewer and allocate as much, but for the optimizer state; " + _COUNTERS
_WIRE_PADDED = "what is gathered and scattered is padded to equal parts"


@dataclass(slots=True)
class Bench:
    """The models and device counts of the experiments, and what was measured already. ``odd``: devices that divide no dimension."""

    large: Shapes = LARGE
    middle: Shapes = MIDDLE
    small: Shapes = SMALL
    devices: int = 8
    odd: int = 24
    processes: int = 4
    _seen: dict[tuple[str, str, int, int], Measured] = field(default_factory=dict)

    def fake(self, subject: str, shapes: Shapes, devices: int, rank: int = 0) -> Measured:
        """One rank on the fake process group."""
        key = (subject, shapes.name, devices, rank)
        if key not in self._seen:
            job = UNWRAPPED if subject == UNWRAPPED.name else subject
            self._seen[key] = measure(job, shapes, {"dp": devices}, rank=rank)
        return self._seen[key]

    def real(self, subject: str) -> list[Measured]:
        """All ranks of the small model, as processes on gloo."""
        keys = [(subject, "gloo", self.processes, rank) for rank in range(self.processes)]
        if keys[0] not in self._seen:
            self._seen.update(zip(keys, measure_all(subject, self.small, {"dp": self.processes}), strict=True))
        return [self._seen[key] for key in keys]


def _told(shapes: Shapes) -> str:
    return f"{shapes.name}, {shapes.elements:,} parameters"


def _closed(form: sympy.Expr, **values: int) -> Fraction:
    """The value of a closed form with float32 and AdamW."""
    value = evaluate(form, WIDTHS | {name: Fraction(number) for name, number in values.items()})
    assert value is not None, form
    return value


# Memory.


def memory(bench: Bench) -> Experiment:
    """Model states of data parallelism over those of ZeRO-3, per device: N in the ideal (Rajbhandari et al. 2020, section 5)."""
    return timed(
        "memory", "model states of data parallelism over those of ZeRO-3, per device", lambda: (_says_memory(bench), _memory(bench))
    )


def _ratio() -> sympy.Expr:
    return tidy(derive(parse_strategy("ddp")).memory["model_states"] / derive(parse_strategy("zero3")).memory["model_states"])


def _says_memory(bench: Bench) -> Iterator[str]:
    ddp, zero3 = (derive(parse_strategy(name)).memory["model_states"] for name in ("ddp", "zero3"))
    yield f"closed forms: ddp {ddp}; zero3 {zero3}; their ratio {_ratio()}"
    yield f"large: {_told(bench.large)}; middle: {_told(bench.middle)}; small: {_told(bench.small)}; float32 and AdamW"
    yield "DistributedDataParallel allocates what it is given: the large model is measured as the module alone, which has the same states"


def _memory(bench: Bench) -> Iterator[Line]:
    n, even = bench.devices, _closed(_ratio(), N=bench.devices)
    yield _held(
        "the module alone : ddp, middle",
        predicted("ddp", bench.middle, {"dp": 1}).memory,
        predicted("ddp", bench.middle, {"dp": n}).memory,
        (bench.fake("unwrapped", bench.middle, 1).memory, bench.fake("ddp", bench.middle, n).memory),
        ALLOCATED.format(n=n),
        ideal=_closed(_ratio(), N=1),
    )
    whole = predicted("ddp", bench.large, {"dp": n}).memory
    alone = bench.fake("unwrapped", bench.large, 1).memory
    part, shards = predicted("fsdp2", bench.large, {"dp": n}).memory, bench.fake("fsdp2", bench.large, n).memory
    for state in (*STATES, ""):
        yield _held(f"ddp : fsdp2, large, N = {n}", whole, part, (alone, shards), FAKE.format(n=n), ideal=even, state=state, note=_COUNTERS)
    odd, ideal = bench.odd, _closed(_ratio(), N=bench.odd)
    for rank in (0, odd - 1):
        yield _held(
            f"ddp : fsdp2, large, N = {odd}, device {rank}",
            whole,
            predicted("fsdp2", bench.large, {"dp": odd}, rank=rank).memory,
            (alone, bench.fake("fsdp2", bench.large, odd, rank).memory),
            FAKE.format(n=odd),
            ideal=ideal,
            note=_PADDED,
        )
    yield from _memory_on_processes(bench)


def _memory_on_processes(bench: Bench) -> Iterator[Line]:
    n = bench.processes
    ddp, fsdp = bench.real("ddp"), bench.real("fsdp2")
    for rank in range(n):
        yield _held(
            f"ddp : fsdp2, small, N = {n}, device {rank}",
            predicted("ddp", bench.small, {"dp": n}, rank=rank).memory,
            predicted("fsdp2", bench.small, {"dp": n}, rank=rank).memory,
            (ddp[rank].memory, fsdp[rank].memory),
            GLOO.format(n=n),
            ideal=_closed(_ratio(), N=n),
            note=_PADDED,
        )


def _held(
    what: str,
    whole: Mapping[str, int],
    part: Mapping[str, int],
    measured: tuple[Mapping[str, int], Mapping[str, int]],
    how: str,
    *,
    ideal: Fraction,
    state: str = "",
    note: str = "",
) -> Line:
    """The ratio of two devices' memory: of one state, or of all three."""

    def ratio(amounts: Mapping[str, int], other: Mapping[str, int]) -> Fraction:
        states = (state,) if state else STATES
        return Fraction(sum(amounts[s] for s in states), sum(other[s] for s in states))

    return Line(
        what=f"{what}: {state or 'model states'}",
        unit="ratio",
        ideal=ideal,
        predicted=ratio(whole, part),
        measured=ratio(*measured),
        how=how,
        note=note,
    )


# Traffic.


def traffic(bench: Bench) -> Experiment:
    """Bytes that a device sends in a step under ZeRO-3 over those under data parallelism: 1.5 in the ideal (Rajbhandari et al. 2020,
    section 7)."""
    title = "bytes that a device sends in a step under ZeRO-3 over those under data parallelism"
    return timed("traffic", title, lambda: (_says_traffic(), _traffic(bench)))


#: The strategy whose closed form an implementation has.
FORMS = {"ddp": "ddp", "fsdp2_all": "fsdp", "fsdp2": "fsdp(root=keep)"}


def _sent(subject: str) -> sympy.Expr:
    return derive(parse_strategy(FORMS[subject])).sent


def _says_traffic() -> Iterator[str]:
    for subject, strategy in FORMS.items():
        yield f"{subject}: {strategy} sends {_sent(subject)}"
    yield "with equal widths, fsdp over ddp is 3/2; fsdp2_all gathers the root again in backward, fsdp2, as it is by default, does not"
    yield "measured are the tensors that collectives were called with; what they send follows by the factors of a ring"


def wire(exchanges: Iterable[Exchange], mesh: Mapping[str, int]) -> Fraction:
    """Bytes that a device sends for these exchanges, if every collective is a ring."""
    sent = Fraction(0)
    for e in exchanges:
        n = 1
        for axis in e.axes:
            n *= mesh[axis]
        sent += COLLECTIVES[e.kind].sent(Fraction(n), Fraction(e.bytes))
    return sent


def _traffic(bench: Bench) -> Iterator[Line]:
    n = bench.devices
    for subject in ("fsdp2_all", "fsdp2"):
        yield _volume(f"{subject}, large, N = {n}", subject, bench.large, n, bench.fake(subject, bench.large, n), FAKE)
    ddp = bench.fake("ddp", bench.middle, n)
    yield _volume(f"ddp, middle, N = {n}", "ddp", bench.middle, n, ddp, ALLOCATED)
    for subject in ("fsdp2_all", "fsdp2"):
        yield _over(f"{subject} : ddp, middle, N = {n}", subject, bench.middle, n, (bench.fake(subject, bench.middle, n), ddp), MIXED)
    n, ddp = bench.processes, bench.real("ddp")[0]
    for subject in ("fsdp2_all", "fsdp2"):
        yield _over(f"{subject} : ddp, small, N = {n}", subject, bench.small, n, (bench.real(subject)[0], ddp), GLOO, _WIRE_PADDED)


def _volume(what: str, subject: str, shapes: Shapes, n: int, measured: Measured, how: str) -> Line:
    """What a device sends, in passes: one would move all parameters but its own part of N."""
    mesh = {"dp": n}
    once = Fraction(4 * shapes.elements * (n - 1), n)
    return _sent_line(
        what,
        "passes",
        _closed(_sent(subject), **_sizes(shapes, n)) / once,
        wire(predicted(subject, shapes, mesh).exchanges, mesh) / once,
        wire(measured.exchanges, mesh) / once,
        how.format(n=n),
    )


def _over(what: str, subject: str, shapes: Shapes, n: int, measured: tuple[Measured, Measured], how: str, note: str = "") -> Line:
    """What a device sends under an implementation, over what it sends under data parallelism."""
    mesh = {"dp": n}
    return _sent_line(
        what,
        "ratio",
        _closed(tidy(_sent(subject) / _sent("ddp")), **_sizes(shapes, n)),
        wire(predicted(subject, shapes, mesh).exchanges, mesh) / wire(predicted("ddp", shapes, mesh).exchanges, mesh),
        wire(measured[0].exchanges, mesh) / wire(measured[1].exchanges, mesh),
        how.format(n=n),
        note,
    )


def _sizes(shapes: Shapes, n: int) -> dict[str, int]:
    return {"P": shapes.elements, "U_root": shapes.units[0].elements, "N": n}


def _sent_line(what: str, unit: Unit, ideal: Fraction, prediction: Fraction, measured: Fraction, how: str, note: str = "") -> Line:
    return Line(what=what, unit=unit, ideal=ideal, predicted=prediction, measured=measured, how=how, note=note)
