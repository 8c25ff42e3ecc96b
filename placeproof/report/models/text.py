"""What a model costs under a strategy, as text and as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from placeproof.core.symbols import info
from placeproof.cost.blocks.tensors import Amount
from placeproof.cost.closed import tidy
from placeproof.cost.model import ModelDerivation, StageCost
from placeproof.cost.model.derivation import WIDTHS, Held
from placeproof.cost.model.recomputation import meaning
from placeproof.cost.model.sent import Sent
from placeproof.cost.model.vocabulary import PADDED
from placeproof.cost.step.host import TOLD
from placeproof.cost.values import Numbers
from placeproof.report.text import table
from placeproof.report.units import bytes_text, figure, plain

if TYPE_CHECKING:
    import sympy

_ROWS = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "activations": "activations",
    "working": "computed again",
    "transient": "gathered",
    "peak": "peak",
    "host": "on the host",
    "host_asked": "host, asked for",
}
#: Rows that are told only where there is something.
_SOMETIMES = ("working", "transient", "host", "host_asked")
#: Symbols of a device that only times speak of.
_OF_TIME = ("eta", "F_peak", "B_mem")


def model_text(d: ModelDerivation, numbers: Numbers) -> str:
    """Everything that was derived, formulas first and numbers second."""
    first = d.costs[0]
    blocks = [
        _title(d, numbers),
        _mesh(d),
        _counted(d),
        _states(d, first),
        _kept(d, first, numbers),
        _sent(d, first, numbers),
        _work(d, first),
    ]
    blocks += [_stages(d, numbers), _where(d), ["conventions", *(f"  - {line}" for line in conventions(d))]]
    return "\n\n".join("\n".join(b) for b in blocks if b) + "\n"


def _title(d: ModelDerivation, numbers: Numbers) -> list[str]:
    return [f"{d.linked.model} under {d.linked.name}", d.linked.title, *sizes_of(d), f"source: {d.linked.source}"]


def sizes_of(d: ModelDerivation) -> list[str]:
    """The model's sizes, and what those were that are set otherwise."""
    before = {name: f" ({how}; {n} in the model)" for name, (how, n) in (d.model.replaced if d.model else {}).items()}
    rows = [f"{name} = {n}{before.get(name, '')}" for name, n in d.linked.values.items()]
    return [f"sizes: {', '.join(rows)}"] if rows else []


def _mesh(d: ModelDerivation) -> list[str]:
    rows: list[tuple[str, ...]] = [(a.name, f"degree {d.at.degrees[a.name]}, splits the {a.splits}") for a in d.linked.axes]
    return table("mesh", rows or [("one device",)])


def _counted(d: ModelDerivation) -> list[str]:
    """Parameters of one device by group, and P, which the formulas of model states speak of; neighbours that have as many share rows."""
    runs: list[tuple[list[StageCost], Mapping[str, sympy.Expr]]] = []
    for cost in d.costs:
        if runs and runs[-1][1] == cost.parameters:
            runs[-1][0].append(cost)
        else:
            runs.append(([cost], cost.parameters))
    rows = []
    for costs, counted in runs:
        stage = costs[0].stage.name if len(costs) == 1 else f"{costs[0].stage.name} to {costs[-1].stage.index}"
        rows += [(stage, group, str(tidy(n))) for group, n in counted.items()]
    return table("parameters of one device, by group (P: all of them)", [r if len(d.costs) > 1 else r[1:] for r in rows])


def _states(d: ModelDerivation, cost: StageCost) -> list[str]:
    rows: list[tuple[str, ...]] = []
    for base in d.base.every:
        of = " of experts" if base is d.base.experts else ""
        rows += [(f"{state}{of}", str(base.memory[state])) for state in ("parameters", "gradients", "optimizer")]
        rows.append((f"gathered{of}", str(base.memory["transient"])))
        host = base.memory["host"]
        rows += [(f"on the host{of}", str(host))] if host != 0 else []
    return table("model states of one device, bytes, in its P parameters and the U of its largest unit", rows)


def _kept(d: ModelDerivation, cost: StageCost, numbers: Numbers) -> list[str]:
    rows: list[tuple[str, ...]] = []
    for held in cost.held:
        stored = held.row.stored
        split = ", ".join(f"{dim} by {' and '.join(axes)}" for dim, axes in stored.split)
        what = f"{stored.block}.{stored.name}" if stored.block != "input" else f"input {stored.name}"
        what += ", on the host" if held.host else ""
        rows.append((held.part, what, split, str(tidy(held.bytes)), *_number(d, held.bytes, numbers)))
    title = f"activations that {cost.stage.name} keeps of one micro-batch, bytes (recomputation: {d.recompute})"
    whole = [("in all", str(tidy(cost.kept)), *_number(d, cost.kept, numbers))]
    flight = [f"  micro-batches in flight: {cost.in_flight} ({d.schedule})"] if d.schedule and cost.in_flight != 1 else []
    late = [f"  and of {cost.deferred} more what gradients by weights need: {tidy(cost.late)}"] if cost.deferred != 0 else []
    again = [f"  computed again of one layer: {tidy(cost.working)}"] if cost.working != 0 else []
    if any(h.host for h in cost.held):
        whole[0] = ("on the device", *whole[0][1:])
    return [*table(title, rows), *table("", whole)[1:], *flight, *late, *again]


def _sent(d: ModelDerivation, cost: StageCost, numbers: Numbers) -> list[str]:
    merged: dict[tuple[str, str, str, str, sympy.Expr], sympy.Expr] = {}
    for one in cost.sent:
        key = (one.kind, one.about, "*".join(one.axes), one.phase, tidy(one.bytes))
        merged[key] = merged.get(key, 0) + one.times
    rows: list[tuple[str, ...]] = [
        (kind, about, axes, phase, str(size), f"x {tidy(times)}") for (kind, about, axes, phase, size), times in merged.items()
    ]
    lines = table(f"traffic of a device of {cost.stage.name} in a step, bytes sent", rows)
    totals = [(f"over {axes}", str(tidy(n)), *_number(d, n, numbers)) for axes, n in cost.traffic().items()]
    return lines + table("", totals)[1:]


def _work(d: ModelDerivation, cost: StageCost) -> list[str]:
    rows = [("forward", cost.flops.forward), ("computed again", cost.flops.again), ("backward, inputs", cost.flops.inputs)]
    rows.append(("backward, weights", cost.flops.weights))
    return table(f"floating-point operations of a device of {cost.stage.name}, one micro-batch", [(n, str(tidy(e))) for n, e in rows])


def _stages(d: ModelDerivation, numbers: Numbers) -> list[str]:
    """Every stage in numbers, as far as they are known."""
    if not numbers.asked:
        return []
    rows = []
    for cost in d.costs:
        cells = []
        for key in _ROWS:
            value = d.value(cost.states[key] if key in cost.states else getattr(cost, key), numbers.values)
            cells.append("?" if value is None else _giga(value))
        rows.append((cost.stage.name, *cells))
    used = [i for i, key in enumerate(_ROWS, start=1) if key not in _SOMETIMES or any(r[i] != "0" for r in rows)]
    head = ("", *_ROWS.values())
    shown = [tuple(r[i] for i in (0, *used)) for r in [head, *rows]]
    widths = [max(len(r[i]) for r in shown) for i in range(len(shown[0]))]
    lines = ["memory of a device by stage, GB"]
    lines += ["  " + "  ".join([r[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(r[1:], widths[1:], strict=True))]) for r in shown]
    missing = sorted({str(s) for c in d.costs for s in c.peak.free_symbols if str(s) not in {**d.values, **numbers.values}})
    unused = [n for n in numbers.given if n not in {*_used(d), *d.linked.values, *_OF_TIME}]
    said = [f"  set, but in no formula: {', '.join(unused)}"] if unused else []
    return [*lines, *(f"  not set: {n} ({info(n).meaning})" for n in missing), *said]


def _giga(value: Fraction) -> str:
    return "0" if value == 0 else f"{float(value / 10**9):.4g}" if value < 10**13 else figure(value / 10**9)


def _where(d: ModelDerivation) -> list[str]:
    used = {str(s) for e in d.forms.values() for s in e.free_symbols}
    used |= {"P"} | {str(s) for base in d.base.every for e in base.memory.values() for s in e.free_symbols}
    return table("where", [(n, info(n).meaning) for n in sorted(used)])


def conventions(d: ModelDerivation) -> list[str]:
    """What the formulas and numbers take for granted, a sentence each."""
    lines = [
        "GB = 1e9 bytes, GiB = 2**30 bytes",
        "ring algorithms; bytes are those that one device sends",
        "FLOPs are those of products of matrices, and no position is masked: a causal mask would halve what grows with s**2",
        "positions take 8 bytes, masks 1, a statistic of attention 4, whatever activations take",
        "statistics of norms are computed again in backward",
        f"recomputation, {d.recompute}: {meaning(d.recompute)}",
    ]
    if other := {n: w for n, w in d.at.widths.items() if WIDTHS.get(n) != w}:
        lines.append("bytes of an element that were set: " + ", ".join(f"{n} {w}" for n, w in other.items()))
    if d.at.fp8:
        lines.append(
            "fp8: what layers keep for gradients by weights alone takes 1 byte, without scales; what something else reads, too, what is"
            " computed again, the head, routers, exchanges and times are not in fp8"
        )
    if any(cost.host != 0 for cost in d.costs):
        lines.append("what lies on the host is no part of the peak, and neither is what passes there in an update")
    if any(cost.host_asked != cost.host for cost in d.costs):
        lines.append(TOLD)
    if len(d.costs) > 1:
        lines.append("the loss is computed on the last stage, the embedding on the first; a table that both use lies on both")
    if d.model is not None and d.model.replaced.get("V", ("",))[0] == PADDED:
        lines.append("the vocabulary is padded so that its parts are equal, as Megatron-LM does: `--vocab-padding none` leaves it")
    if d.linked.note:
        lines.append(d.linked.note)
    return lines


def _number(d: ModelDerivation, expr: sympy.Expr, numbers: Numbers) -> tuple[str, ...]:
    value = d.value(expr, numbers.values) if numbers.asked else None
    return () if value is None else (bytes_text(value),)


def model_data(d: ModelDerivation, numbers: Numbers) -> dict[str, Any]:
    """The same as data, schema ``placeproof.derive-model/1``; expressions as texts that ``sympy.sympify`` reads. Values are null where
    none were asked for, and while a symbol is not set."""

    from sympy import sympify

    def both(expr: Amount) -> dict[str, Any]:
        value = d.value(expr, numbers.values) if numbers.asked else None
        return {"formula": str(tidy(sympify(expr))), "value": None if value is None else plain(value)}

    return {
        "schema": "placeproof.derive-model/1",
        "model": d.linked.model,
        "source": d.linked.source,
        "strategy": d.linked.name,
        "axes": [{"name": a.name, "splits": a.splits.name, "degree": str(d.at.degrees[a.name])} for a in d.linked.axes],
        "recompute": d.recompute,
        "widths": dict(d.at.widths),
        "fp8": d.at.fp8,
        "schedule": d.schedule if d.linked.pipeline is not None else None,
        "sizes": {n: int(v) for n, v in d.linked.values.items()},
        "stages": [_stage_data(c, both) for c in d.costs],
        "symbols": {n: info(n).meaning for n in sorted(_used(d))},
        "conventions": conventions(d),
        "precision": numbers.precision,
    }


def _used(d: ModelDerivation) -> set[str]:
    """Every symbol of the data."""
    exprs: list[Amount] = [*d.forms.values(), *d.at.degrees.values()]
    for cost in d.costs:
        exprs += [cost.kept, cost.in_flight, *(amount for one in cost.sent for amount in (one.bytes, one.times))]
    return {str(s) for e in exprs for s in getattr(e, "free_symbols", ())}


def _stage_data(cost: StageCost, both: Callable[[Amount], dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": cost.stage.name,
        "index": cost.stage.index,
        "parameters": {g: both(n) for g, n in cost.parameters.items()},
        "memory": {key: both(cost.states[key] if key in cost.states else getattr(cost, key)) for key in _ROWS},
        "in_flight": both(cost.in_flight),
        "kept": [_kept_data(held, both) for held in cost.held],
        "sent": [_sent_data(one, both) for one in cost.sent],
        "traffic": {axes: both(n) for axes, n in cost.traffic().items()},
        "flops": {key: both(getattr(cost.flops, key)) for key in ("forward", "again", "inputs", "weights")},
    }


def _kept_data(held: Held, both: Callable[[Amount], dict[str, Any]]) -> dict[str, Any]:
    stored = held.row.stored
    return {
        "part": held.part,
        "block": stored.block,
        "value": stored.name,
        "dims": list(stored.dims),
        "split": {dim: list(axes) for dim, axes in stored.split},
        "bytes": both(held.bytes),
        "host": held.host,
    }


def _sent_data(one: Sent, both: Callable[[Amount], dict[str, Any]]) -> dict[str, Any]:
    return {
        "collective": one.kind,
        "about": one.about,
        "axes": list(one.axes),
        "phase": one.phase,
        "bytes": both(one.bytes),
        "times": both(one.times),
    }
