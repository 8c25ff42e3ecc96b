"""A derivation as a document: the schema ``placeproof.derive/1`` (``docs/reference/derive.schema.json``), and its text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from placeproof.core.precision import DEFAULT_PRECISION, OPEN, PRECISIONS
from placeproof.cost.closed import tidy
from placeproof.cost.conventions import conventions
from placeproof.cost.derive import Derivation, evaluate
from placeproof.cost.reason import Reason
from placeproof.cost.step.traffic import Message
from placeproof.cost.uneven import NOTES, Shards, is_fraction
from placeproof.cost.values import Numbers
from placeproof.programs import render
from placeproof.report import uneven
from placeproof.report.document import Cell, Document, Form, Lines, Notes, Reasons, Section, Table, section
from placeproof.report.units import bytes_text, figure, unused
from placeproof.report.written import written

if TYPE_CHECKING:
    import sympy

LABELS = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "model_states": "model states",
    "activations": "activations",
    "transient": "transient",
    "peak": "peak",
    "host": "host memory",
    "host_asked": "host, asked for",
    "host_transient": "host, in passing",
}
_STATES = ("b_theta", "b_g", "b_omega")


def document(d: Derivation, numbers: Numbers, shards: Shards | None = None) -> Document:
    """Everything that was derived, formulas first and numbers second. ``shards``: the fractions that its formulas speak of, if any."""
    return Document(
        name=d.name,
        sections=lambda: _sections(d, numbers, shards),
        data=lambda: _data(d, numbers, shards),
        forms=lambda: _forms(d),
        lines=lambda: {d.name: written(d.program)},
    )


def _data(d: Derivation, numbers: Numbers, shards: Shards | None) -> dict[str, Any]:
    return {
        "schema": "placeproof.derive/1",
        "strategy": d.name,
        "axes": [{"name": a.name, "degree": d.amounts.degree(a.name), "splits": a.splits.name} for a in d.program.axes],
        "symbols": {name: row.meaning for name, row in d.symbols.items()},
        "memory": d.memory,
        "traffic": {
            "sent_per_device": d.sent,
            "host_link": d.host_link,
            "by_axis": d.by_axis,
            "events": [_event(m) for m in d.messages.messages],
            "host_events": [_event(m) for m in d.messages.host],
        },
        "undivided": d.undivided,
        "limits": d.limits(),
        "peak_at": [
            {"line": m.line, "phase": m.phase, "statement": m.text(), "alive": {one.name: tidy(one.bytes) for one in m.alive}}
            for m in d.costs.moments
        ],
        "derivation": {"memory": _steps(d.memory_steps()), "traffic": _steps(d.traffic_steps())},
        "conventions": _conventions(d, shards),
        "program": render(d.program),
        "precision": numbers.precision,
        "values": _values(d, numbers) if numbers.asked else {},
        **({} if shards is None else {"shards": uneven.data(d, shards, numbers)}),
    }


def _event(m: Message) -> dict[str, Any]:
    """What one message is; as data, and as a row."""
    return {
        "line": None if m.stmt.place is None else m.stmt.place.line,
        "collective": m.collective,
        "state": m.state,
        "axes": list(m.axes),
        "phase": m.phase,
        "bytes": tidy(m.bytes),
        "count": tidy(m.count),
    }


def _steps(steps: tuple[Reason, ...]) -> list[dict[str, Any]]:
    return [{"rule": s.rule, "expression": s.expression, "why": s.why} for s in steps]


def _values(d: Derivation, numbers: Numbers) -> dict[str, Any]:
    def known(forms: Mapping[str, sympy.Expr]) -> dict[str, Fraction]:
        values = {key: evaluate(expr, numbers.values) for key, expr in forms.items()}
        return {key: value for key, value in values.items() if value is not None}

    events = [(_event(m), known({"bytes": m.bytes, "count": m.count})) for m in d.messages.messages]
    traffic = {
        **known({"sent_per_device": d.sent, "host_link": d.host_link}),
        "by_axis": known(d.by_axis),
        "events": [event | values for event, values in events if len(values) == 2],
    }
    return {"memory": known(d.memory), "traffic": traffic, **known({"undivided": d.undivided})}


def _conventions(d: Derivation, shards: Shards | None) -> list[str]:
    return [*conventions(d), *(NOTES if shards else ())]


def _forms(d: Derivation) -> list[Form]:
    forms = [Form(key=f"memory.{key}", name=key, label=LABELS[key], formula=expr) for key, expr in d.memory.items()]
    forms.append(Form(key="traffic.sent_per_device", name="sent_per_device", label="sent per device", formula=d.sent))
    several = len(d.by_axis) > 1
    forms += [
        Form(key=f"traffic.by_axis.{axis}", name=f"by_axis.{axis}", label=f"over {axis}", formula=expr, part=True, shown=several)
        for axis, expr in d.by_axis.items()
    ]
    return [*forms, Form(key="traffic.host_link", name="host_link", label="host link", formula=d.host_link, shown=d.host_link != 0)]


def _sections(d: Derivation, numbers: Numbers, shards: Shards | None) -> Iterator[Section]:
    yield _answer(d, numbers)
    yield _mesh(d, shards)
    yield _memory(d)
    yield _traffic(d)
    words = {"memory.model_states": "model states", "traffic.sent_per_device": "sent"}
    limits = [(f"{n} -> oo", words[key], value) for n, forms in d.limits().items() for key, value in forms.items()]
    yield from [section("in the limit", Table(limits))] if limits else []
    for what, steps in (("memory", d.memory_steps()), ("traffic", d.traffic_steps())):
        yield from [section(f"how {what} follows", Reasons(steps))] if steps else []
    yield section("where", Table([(name, row.meaning) for name, row in d.symbols.items()]))
    yield section("conventions", Notes(_conventions(d, shards), items=True))
    if numbers.asked:
        yield _numbers(d, numbers)
        yield from [] if shards is None else [uneven.numbers(d, shards, numbers)]


def _answer(d: Derivation, numbers: Numbers) -> Section:
    """What a device holds and sends, in numbers as far as they are known."""
    rows = [*_told(d, numbers)]
    brief = f"{d.name}: " + ", ".join(f"{what} {amount}" for what, amount in rows[:2])
    told = [f"{what}: {amount}" for what, amount in rows if len(amount) <= _LONGEST]
    if d.strategy is None:
        return section(f"{d.name}: a step program, as written", Lines(told), detail="answer", brief=brief)
    more = [d.strategy.summary, *([f"source: {d.strategy.source}"] if d.strategy.source else [])]
    lines = Lines([*told, *(more if len(d.strategy.parts) == 1 else [])])
    return section(f"{d.name}: {d.strategy.title}", lines, detail="answer", brief=brief)


#: Longer formulas stand in their tables alone.
_LONGEST = 100


def _told(d: Derivation, numbers: Numbers) -> Iterator[tuple[str, str]]:
    """What the answer says: model states, what is sent, and the peak."""
    forms = {"model states": d.memory["model_states"], "sent in a step": d.sent, "peak": d.memory["peak"]}
    for what, form in forms.items():
        value = evaluate(form, numbers.values) if numbers.asked else None
        yield what, str(form) if value is None else bytes_text(value)


def _mesh(d: Derivation, shards: Shards | None) -> Section:
    rows: list[tuple[str, ...]] = []
    for axis in d.program.axes:
        text = f"degree {d.amounts.degree(axis.name)}, splits the {axis.splits}"
        if axis.inner is not None:
            text += f"; sub-groups of {d.amounts.degree(axis.inner_name)} (`{axis.inner_name}`)"
        if shards is not None and axis.name in shards.axes:
            text += f"; uneven parts: {uneven.parts_text(shards.parts[axis.name])}"
        rows.append((axis.name, text))
    return section("mesh", Table(rows or [("one device",)]))


def _used(d: Derivation) -> dict[str, sympy.Expr]:
    """Closed forms of memory that matter: host memory where some is used, and what is asked for where that is more."""
    hidden = {key: d.memory[key] == 0 for key in ("host", "host_transient")} | {"host_asked": d.memory["host_asked"] == d.memory["host"]}
    return {key: d.memory[key] for key in LABELS if not hidden.get(key)}


def _memory(d: Derivation) -> Section:
    adds = d.costs.moments and d.memory["transient"] != 0
    notes = {"transient": "only at the peak"} if adds else {}
    rows: list[tuple[Cell, ...]] = [(LABELS[key], expr, notes.get(key, "")) for key, expr in _used(d).items()]
    rows.append(("undivided", d.undivided, "model states if one device held everything"))
    places = dict.fromkeys(f"the peak lies at line {m.line}, {m.phase}: {m.text()}" for m in d.costs.moments)
    return section("memory per device, bytes", Table(rows), Notes(list(places)))


def _traffic(d: Derivation) -> Section:
    rows: list[tuple[Cell, ...]] = []
    for event in map(_event, (*d.messages.messages, *d.messages.host)):
        cells = (event["collective"], event["state"], "*".join(event["axes"]), event["phase"])
        rows.append((*cells, event["bytes"], f"x {event['count']}"))
    totals: list[tuple[Cell, ...]] = [("total", d.sent, "")]
    if len(d.by_axis) > 1:
        totals += [(f"over {axis}", expr, "") for axis, expr in d.by_axis.items()]
    if d.host_link != 0:
        totals.append(("host link", d.host_link, "both ways added"))
    return section("traffic per device and step, bytes sent", Table(rows), Table(totals))


def _per_parameter(numbers: Numbers, used: Iterable[str]) -> str:
    """The bytes of states; widths that have no value stay symbols. ``used``: the symbols of formulas."""
    names = [*_STATES[:-1], "b_master"] if "b_master" in used else _STATES
    widths = [numbers.values.get(name) for name in names]
    known = [w for w in widths if w is not None]
    terms = " + ".join(name if w is None else figure(w) for name, w in zip(names, widths, strict=True))
    total = f" = {figure(sum(known, Fraction(0)))}" if len(known) == len(widths) else ""
    return f"{'widths' if numbers.precision == OPEN else numbers.precision}: {terms}{total} bytes per parameter"


def _numbers(d: Derivation, numbers: Numbers) -> Section:
    widths = PRECISIONS[DEFAULT_PRECISION].values()
    given = [f"{n} = {figure(v)}" for n, v in numbers.values.items() if n in d.symbols and n not in widths]
    rows: list[tuple[Cell, ...]] = []
    missing: dict[str, list[str]] = {}
    for label, expr in _wanted(d).items():
        value = evaluate(expr, numbers.values)
        rows.append((label, partly(expr, numbers) if value is None else bytes_text(value)))
        for name in sorted(n for s in expr.free_symbols if (n := str(s)) not in numbers.values and not is_fraction(n)):
            missing.setdefault(name, []).append(label)
    notes = [f"not set: {name} ({', '.join(labels)})" for name, labels in missing.items()]
    notes += unused(numbers.given, d.symbols)
    title = f"numbers ({'; '.join([_per_parameter(numbers, d.symbols), *([', '.join(given)] if given else [])])})"
    return section(title, Table(rows), Notes(notes))


def _wanted(d: Derivation) -> dict[str, sympy.Expr]:
    """What has a number, by its label."""
    wanted = {LABELS[key]: expr for key, expr in _used(d).items()} | {"undivided": d.undivided, "sent": d.sent}
    wanted |= {f"sent over {axis}": expr for axis, expr in d.by_axis.items()} if len(d.by_axis) > 1 else {}
    return wanted | ({"host link": d.host_link} if d.host_link != 0 else {})


def partly(expr: sympy.Expr, numbers: Numbers) -> sympy.Expr:
    """A formula with the known values put in."""
    import sympy

    known = {s: numbers.values[str(s)] for s in expr.free_symbols if str(s) in numbers.values}
    return tidy(expr.xreplace({s: sympy.Rational(v.numerator, v.denominator) for s, v in known.items()}))
