"""``placeproof list``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from placeproof.core.diagnostics import Problems, suggestion

if TYPE_CHECKING:
    from placeproof.rules import Rule

Rows = list[tuple[str, ...]]


def _strategies() -> Rows:
    from placeproof.strategies import names, template

    found = [t for n in names() if (t := template(n)) is not None]
    return [(t.name, t.title, t.family) for t in sorted(found, key=lambda t: (t.family, t.name))]


def _collectives() -> Rows:
    from placeproof.collectives import COLLECTIVES

    return [(c.name, c.rule, c.meaning) for c in COLLECTIVES.values()]


def _modes() -> Rows:
    from placeproof.core.modes import MODES

    return [(m.symbol, m.name.lower(), m.meaning) for m in MODES.values()]


def _states() -> Rows:
    from placeproof.core.states import STATES

    return [(s.name, s.symbol, s.meaning) for s in STATES.values()]


def _symbols() -> Rows:
    from placeproof.core.symbols import SYMBOLS

    rows = [(s.name, s.domain.value, s.meaning) for s in SYMBOLS.values()]
    return [*rows, ("N_<axis>", "integer >= 1", "degree of one of several axes")]


def _precisions() -> Rows:
    from placeproof.core.precision import PRECISIONS

    return [(p.name, f"{p.b_theta} + {p.b_g} + {p.b_omega} = {p.total} bytes", p.meaning) for p in PRECISIONS.values()]


def _operations() -> Rows:
    from placeproof.core.program.ops import OPS

    return [(op.signature(), op.doc) for op in OPS.values()]


def _errors() -> Rows:
    from placeproof.core.codes import CODES

    return [(c.code, c.title) for c in CODES.values()]


def _assumptions() -> Rows:
    from placeproof.core.assumptions import ASSUMPTIONS

    return [(a.name, "can be dropped" if a.without else "always made", a.says) for a in ASSUMPTIONS.values()]


def _not_equivalent() -> Rows:
    from placeproof.semantics.catalogue import about, not_equivalent

    return [(name, about(name)) for name in not_equivalent()]


def _blocks() -> Rows:
    from placeproof.semantics.catalogue import BLOCKS, about

    return [(name, about(name)) for name in BLOCKS]


def _rules() -> Rows:
    """Rules of composition, which are ours, and after them those that training frameworks enforce."""
    from placeproof.rules import rules as enforced
    from placeproof.semantics.rules import rules

    return [*((r.name, "composition", r.says) for r in rules().values()), *map(_enforced, enforced().values())]


def _rules_of(system: str) -> Rows:
    from placeproof.rules import of_system

    return [_enforced(r) for r in of_system(system)]


def _enforced(rule: Rule) -> tuple[str, ...]:
    return (rule.id, rule.kind.value, rule.says)


def _profiles() -> Rows:
    from placeproof.profiles.profile import names, profile

    return [(name, one.name, " ".join(one.of), one.title) for name in names() for one in profile(name).implementations]


def _models() -> Rows:
    from placeproof.models import load, presets

    found = [load(name) for name in presets()]
    return [(m.name, f"{m.parameters().total:,}", m.family, m.title) for m in sorted(found, key=lambda m: (m.family, m.name))]


def _families() -> Rows:
    from placeproof.models.family import families, family

    return [(name, family(name).title) for name in families()]


def _schedules() -> Rows:
    from placeproof.schedules import load, names

    return [(one.name, one.title) for one in map(load, names())]


def _clusters() -> Rows:
    from placeproof.clusters import cluster, names

    return [(one.name, one.title) for one in map(cluster, names())]


def _theorems() -> Rows:
    from placeproof.theory.load import load

    return [(t.id, t.expect.word, t.says) for t in load().theorems]


KINDS: dict[str, Callable[[], Rows]] = {
    "strategies": _strategies,
    "collectives": _collectives,
    "modes": _modes,
    "states": _states,
    "symbols": _symbols,
    "precisions": _precisions,
    "operations": _operations,
    "errors": _errors,
    "assumptions": _assumptions,
    "not-equivalent": _not_equivalent,
    "blocks": _blocks,
    "rules": _rules,
    "profiles": _profiles,
    "models": _models,
    "families": _families,
    "schedules": _schedules,
    "clusters": _clusters,
    "theorems": _theorems,
}


def command(
    kind: Annotated[str, typer.Argument(help="One of: " + ", ".join(KINDS) + ".")],
    system: Annotated[str | None, typer.Option(metavar="NAME", help="Of `rules`, those of one training framework: `megatron`.")] = None,
) -> None:
    """What there is: strategies, collectives, operations, assumptions, models, schedules, clusters, and more."""
    problems = Problems()
    if kind not in KINDS:
        hint = suggestion(kind, KINDS) or "one of " + ", ".join(KINDS)
        problems.add("PP204", f"there is no list of `{kind}`", help=hint)
    elif system is not None and kind != "rules":
        problems.add("PP204", f"there is no list of `{kind}` of one system", help=f"`placeproof list rules --system {system}`")
    problems.raise_if_any()
    rows = KINDS[kind]() if system is None else _rules_of(system)
    if not rows:
        return
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]) - 1)]
    for row in rows:
        cells = [c.ljust(w) for c, w in zip(row, widths, strict=False)]
        typer.echo("  ".join([*cells, row[-1]]).rstrip())
