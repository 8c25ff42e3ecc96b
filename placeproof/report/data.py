"""A derivation as JSON data: the schema ``placeproof.derive/1`` (``docs/reference/derive.schema.json``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placeproof.cost.closed import tidy
from placeproof.cost.conventions import conventions
from placeproof.cost.derive import Derivation, evaluate
from placeproof.cost.reason import Reason
from placeproof.cost.step.traffic import Message
from placeproof.cost.uneven import NOTES, Shards
from placeproof.cost.values import Numbers
from placeproof.programs import render
from placeproof.report import uneven
from placeproof.report.units import plain

if TYPE_CHECKING:
    import sympy


def derivation(d: Derivation, numbers: Numbers, shards: Shards | None = None) -> dict[str, Any]:
    """Everything that was derived; expressions are strings that ``sympy.sympify`` reads with the symbols as names."""
    more = {} if shards is None else {"shards": uneven.data(d, shards, numbers)}
    return {
        "schema": "placeproof.derive/1",
        "strategy": d.name,
        "axes": [{"name": a.name, "degree": str(d.amounts.degree(a.name)), "splits": a.splits.name} for a in d.program.axes],
        "symbols": {name: row.meaning for name, row in d.symbols.items()},
        "memory": {key: str(expr) for key, expr in d.memory.items()},
        "traffic": {
            "sent_per_device": str(d.sent),
            "host_link": str(d.host_link),
            "by_axis": {axis: str(expr) for axis, expr in d.by_axis.items()},
            "events": [_event(m) for m in d.messages.messages],
            "host_events": [_event(m) for m in d.messages.host],
        },
        "undivided": str(d.undivided),
        "limits": {n: {k: str(e) for k, e in forms.items()} for n, forms in d.limits().items()},
        "peak_at": [
            {"line": m.line, "phase": m.phase, "statement": m.text(), "alive": {one.name: str(tidy(one.bytes)) for one in m.alive}}
            for m in d.costs.moments
        ],
        "derivation": {"memory": _steps(d.memory_steps()), "traffic": _steps(d.traffic_steps())},
        "conventions": [*conventions(d), *(NOTES if shards else ())],
        "program": render(d.program),
        "precision": numbers.precision,
        "values": _values(d, numbers) if numbers.asked else {},
        **more,
    }


def _event(m: Message) -> dict[str, Any]:
    return {
        "collective": m.collective,
        "state": m.state,
        "axes": list(m.axes),
        "phase": m.phase,
        "bytes": str(tidy(m.bytes)),
        "count": str(tidy(m.count)),
    }


def _steps(steps: tuple[Reason, ...]) -> list[dict[str, str]]:
    return [{"rule": s.rule, "expression": str(s.expression), "why": s.why} for s in steps]


def _values(d: Derivation, numbers: Numbers) -> dict[str, Any]:
    def known(forms: dict[str, sympy.Expr]) -> dict[str, int | float]:
        found = {key: evaluate(expr, numbers.values) for key, expr in forms.items()}
        return {key: plain(value) for key, value in found.items() if value is not None}

    traffic: dict[str, Any] = dict(known({"sent_per_device": d.sent, "host_link": d.host_link}))
    traffic["by_axis"] = known(d.by_axis)
    traffic["events"] = [
        {**_event(m), **known({"bytes": m.bytes, "count": m.count})}
        for m in d.messages.messages
        if len(known({"bytes": m.bytes, "count": m.count})) == 2
    ]
    return {"memory": known(d.memory), "traffic": traffic, **known({"undivided": d.undivided})}
