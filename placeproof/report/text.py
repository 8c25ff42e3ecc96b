"""Derivations and comparisons as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from placeproof.core.precision import DEFAULT_PRECISION, OPEN, PRECISIONS
from placeproof.cost.closed import tidy
from placeproof.cost.conventions import conventions
from placeproof.cost.derive import Derivation, evaluate
from placeproof.cost.reason import Reason
from placeproof.cost.uneven import NOTES, Shards, is_fraction
from placeproof.cost.values import Numbers
from placeproof.report import uneven
from placeproof.report.units import bytes_text, figure

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


def derivation(d: Derivation, numbers: Numbers, shards: Shards | None = None) -> str:
    """Everything that was derived, formulas first and numbers second. ``shards``: the fractions that its formulas speak of, if any."""
    blocks = [_title(d), _mesh(d, shards), _memory(d), _traffic(d), _limits(d)]
    blocks += [_steps("how memory follows", d.memory_steps()), _steps("how traffic follows", d.traffic_steps())]
    blocks += [_symbols(d), _listed("conventions", (*conventions(d), *(NOTES if shards else ())))]
    if numbers.asked:
        blocks.append(_numbers(d, numbers))
    if numbers.asked and shards is not None:
        blocks.append(uneven.numbers_text(d, shards, numbers))
    return "\n\n".join("\n".join(b) for b in blocks if b) + "\n"


def _title(d: Derivation) -> list[str]:
    if d.strategy is None:
        return [f"{d.name}: a step program, as written"]
    lines = [f"{d.name}: {d.strategy.title}"]
    if len(d.strategy.parts) == 1:
        lines.append(d.strategy.summary)
        lines += [f"source: {d.strategy.source}"] if d.strategy.source else []
    return lines


def _mesh(d: Derivation, shards: Shards | None) -> list[str]:
    rows: list[tuple[str, ...]] = []
    for axis in d.program.axes:
        text = f"degree {d.amounts.degree(axis.name)}, splits the {axis.splits}"
        if axis.inner is not None:
            text += f"; sub-groups of {d.amounts.degree(axis.inner_name)} (`{axis.inner_name}`)"
        if shards is not None and axis.name in shards.axes:
            text += f"; uneven parts: {uneven.parts_text(shards.parts[axis.name])}"
        rows.append((axis.name, text))
    return _table("mesh", rows or [("one device",)])


def _told(d: Derivation) -> dict[str, sympy.Expr]:
    """Closed forms of memory that are told: host memory where some is used, and what is asked for where that is more."""
    hidden = {key: d.memory[key] == 0 for key in ("host", "host_transient")} | {"host_asked": d.memory["host_asked"] == d.memory["host"]}
    return {key: expr for key, expr in d.memory.items() if not hidden.get(key)}


def _memory(d: Derivation) -> list[str]:
    rows: list[tuple[str, ...]] = []
    told = _told(d)
    for key, label in LABELS.items():
        if key not in told:
            continue
        note = ""
        if key == "transient" and d.costs.moments and d.memory[key] != 0:
            note = "what the peak adds"
        rows.append((label, str(d.memory[key]), note))
    rows.append(("undivided", str(d.undivided), "model states if one device held everything"))
    lines = _table("memory per device, bytes", rows)
    places = dict.fromkeys(f"  the peak lies at line {m.line}, {m.phase}: {m.text()}" for m in d.costs.moments)
    return [*lines, *places]


def _traffic(d: Derivation) -> list[str]:
    rows = [
        (m.collective, m.state, "*".join(m.axes), m.phase, str(tidy(m.bytes)), f"x {tidy(m.count)}")
        for m in (*d.messages.messages, *d.messages.host)
    ]
    lines = _table("traffic per device and step, bytes sent", rows)
    totals: list[tuple[str, ...]] = [("total", str(d.sent), "")]
    if len(d.by_axis) > 1:
        totals += [(f"over {axis}", str(expr), "") for axis, expr in d.by_axis.items()]
    if d.host_link != 0:
        totals.append(("host link", str(d.host_link), "both ways added"))
    return lines + _table("", totals)[1:]


def _limits(d: Derivation) -> list[str]:
    words = {"memory.model_states": "model states", "traffic.sent_per_device": "sent"}
    rows = [(f"{n} -> oo", words[key], str(value)) for n, forms in d.limits().items() for key, value in forms.items()]
    return _table("in the limit", rows) if rows else []


def _steps(title: str, steps: Iterable[Reason]) -> list[str]:
    lines = []
    for number, step in enumerate(steps, start=1):
        lines.append(f"  {number:>2}. {step.rule}")
        lines.append(f"        = {step.expression}")
        lines.append(f"      because {step.why}")
    return [title, *lines] if lines else []


def _symbols(d: Derivation) -> list[str]:
    return _table("where", [(name, row.meaning) for name, row in d.symbols.items()])


def _listed(title: str, items: Iterable[str]) -> list[str]:
    return [title, *(f"  - {item}" for item in items)]


def _per_parameter(numbers: Numbers) -> str:
    """The bytes of states; widths that have no value stay symbols."""
    widths = [numbers.values.get(name) for name in _STATES]
    known = [w for w in widths if w is not None]
    told = " + ".join(name if w is None else figure(w) for name, w in zip(_STATES, widths, strict=True))
    total = f" = {figure(sum(known, Fraction(0)))}" if len(known) == len(widths) else ""
    return f"{'widths' if numbers.precision == OPEN else numbers.precision}: {told}{total} bytes per parameter"


def _numbers(d: Derivation, numbers: Numbers) -> list[str]:
    widths = PRECISIONS[DEFAULT_PRECISION].values()
    given = [f"{n} = {figure(v)}" for n, v in numbers.values.items() if n in d.symbols and n not in widths]
    lines = [f"numbers ({'; '.join([_per_parameter(numbers), *([', '.join(given)] if given else [])])})"]
    rows: list[tuple[str, ...]] = []
    missing: dict[str, list[str]] = {}
    wanted = {LABELS[key]: expr for key, expr in _told(d).items()}
    wanted = {label: wanted[label] for label in LABELS.values() if label in wanted}
    wanted |= {"undivided": d.undivided, "sent": d.sent}
    wanted |= {f"sent over {axis}": expr for axis, expr in d.by_axis.items()} if len(d.by_axis) > 1 else {}
    wanted |= {"host link": d.host_link} if d.host_link != 0 else {}
    for label, expr in wanted.items():
        value = evaluate(expr, numbers.values)
        if value is not None:
            rows.append((label, bytes_text(value)))
            continue
        rows.append((label, str(partly(expr, numbers))))
        for name in sorted(n for s in expr.free_symbols if (n := str(s)) not in numbers.values and not is_fraction(n)):
            missing.setdefault(name, []).append(label)
    lines += _table("", rows)[1:]
    lines += [f"  not set: {name} ({', '.join(labels)})" for name, labels in missing.items()]
    unused = [n for n in numbers.given if n not in d.symbols]
    lines += [f"  set, but in no formula: {', '.join(unused)}"] if unused else []
    return lines


def partly(expr: sympy.Expr, numbers: Numbers) -> sympy.Expr:
    """A formula with the known values put in."""
    import sympy

    known = {s: numbers.values[str(s)] for s in expr.free_symbols if str(s) in numbers.values}
    return tidy(expr.xreplace({s: sympy.Rational(v.numerator, v.denominator) for s, v in known.items()}))


def _table(title: str, rows: Iterable[tuple[str, ...]]) -> list[str]:
    """A title, and rows in columns as wide as their widest entry."""
    kept = list(rows)
    columns = max((len(r) for r in kept), default=0)
    widths = [max((len(r[i]) for r in kept if i < len(r) and i < len(r) - 1), default=0) for i in range(columns)]
    return [title, *(line for line in _lines(kept, widths))]


def _lines(rows: list[tuple[str, ...]], widths: list[int]) -> Iterator[str]:
    for row in rows:
        cells = [cell.ljust(widths[i]) if i < len(row) - 1 else cell for i, cell in enumerate(row)]
        yield ("  " + "  ".join(cells)).rstrip()


table = _table
