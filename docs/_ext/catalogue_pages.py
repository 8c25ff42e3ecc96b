"""The catalogue's page: each strategy as its file says it, and what really deriving it gives."""

from __future__ import annotations

from functools import lru_cache

from pipe_tables import block, code, formula, plain, table, value
from sources_page import cited

from placeproof.core.states import STATES
from placeproof.cost.derive import Derivation, derive
from placeproof.programs import render
from placeproof.report.derivation import LABELS
from placeproof.strategies import Template, names, parse_strategy, template


@lru_cache(maxsize=1)
def catalogue() -> tuple[Template, ...]:
    """All strategies, by family."""
    found = [t for t in map(template, names()) if t is not None]
    return tuple(sorted(found, key=lambda t: (t.family, t.name)))


def derivable(found: Template) -> str:
    """An expression that can be derived: the strategy itself, after those that it builds on."""
    partners = [t.name for axis, state in found.needs for t in catalogue() if not t.needs and _places(t, axis, state)]
    return " * ".join([*dict.fromkeys(partners), found.name])


def _places(found: Template, axis: str, state: str) -> bool:
    return any(e.axis == axis and e.state == state for e in found.entries)


def strategies() -> str:
    """The whole catalogue."""
    parts = [table(["strategy", "title", "family"], [(f"[{t.name}](#{t.name})", t.title, t.family) for t in catalogue()])]
    return "\n".join([*parts, *(section(t) for t in catalogue())])


def section(found: Template) -> str:
    """One strategy."""
    expression = derivable(found)
    derived = derive(parse_strategy(expression))
    parts = [f"## {found.name}", f"{found.title[:1].upper()}{found.title[1:]}. {plain(found.summary)}", _facts(found)]
    parts += [_placement(found), _options(found)]
    parts += [f"Derived for `{expression}`, in bytes per device and step:", _forms(derived), "The step program:"]
    return "\n\n".join([*(p for p in parts if p), block(render(derived.program), "python")])


def _facts(found: Template) -> str:
    lines = [f"- written `{found.signature()}`", f"- source: {cited(found.source)}"]
    lines += [f"- also known as {', '.join(code(a) for a in found.aliases)}"] if found.aliases else []
    lines += [f"- works on axis `{axis}`, where another strategy places {state}" for axis, state in found.needs]
    lines += [f"- an approximation, not the same step: {plain(text)}" for text in found.approximates]
    return "\n".join(lines)


def _placement(found: Template) -> str:
    if not found.entries:
        return "It places no state: it is a schedule, and composes with strategies that do."
    rows = [
        (code(e.state), STATES[e.state].symbol, ", ".join(e.groups) or "all", code(e.axis), f"`{e.mode}`", e.mode.name.lower())
        for e in found.entries
    ]
    return table(["state", "symbol", "groups", "axis", "mode", "name"], rows)


def _options(found: Template) -> str:
    rows = [(code(o.name), plain(o.expects()), value(o.default), plain(o.doc)) for o in found.options]
    return table(["option", "values", "default", "meaning"], rows) if rows else ""


def _forms(derived: Derivation) -> str:
    rows = [(LABELS[key], formula(derived.memory[key])) for key in LABELS if key != "host" or derived.memory[key] != 0]
    rows.append(("sent", formula(derived.sent)))
    rows += [(f"sent over `{axis}`", formula(expr)) for axis, expr in derived.by_axis.items() if len(derived.by_axis) > 1]
    rows += [("over the host link, both ways", formula(derived.host_link))] if derived.host_link != 0 else []
    return table(["bytes", "closed form"], rows)
