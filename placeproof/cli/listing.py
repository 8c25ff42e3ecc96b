"""``placeproof list``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from placeproof.cli.terminal import say, show
from placeproof.core.diagnostics import refuse, suggestion

if TYPE_CHECKING:
    from placeproof.framework_rules import Rule
    from placeproof.report.document import Document

SCHEMA = "placeproof.list/1"
#: Texts, whole numbers, tuples of texts, None; the first is a name.
Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = list[Row]


def _strategies() -> Rows:
    from placeproof.strategies import names, template

    templates = [t for n in names() if (t := template(n)) is not None]
    return [(t.name, t.title, t.family) for t in sorted(templates, key=lambda t: (t.family, t.name))]


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

    return [(p.name, p.b_theta, p.b_g, p.b_omega, p.total, p.meaning) for p in PRECISIONS.values()]


def _added_up(row: Row) -> tuple[str, ...]:
    name, b_theta, b_g, b_omega, total, meaning = row
    return (name, f"{b_theta} + {b_g} + {b_omega} = {total} bytes", meaning)


def _operations() -> Rows:
    from placeproof.programs.ops import OPS

    return [(op.signature(), op.doc) for op in OPS.values()]


def _errors() -> Rows:
    from placeproof.core.codes import CODES

    return [(c.code, c.title) for c in CODES.values()]


def _assumptions() -> Rows:
    from placeproof.programs.assumptions import ASSUMPTIONS

    return [(a.name, a.without, a.says) for a in ASSUMPTIONS.values()]


def _or_always(row: Row) -> tuple[str, ...]:
    name, without, says = row
    return (name, "can be dropped" if without else "always made", says)


def _not_equivalent() -> Rows:
    from placeproof.semantics.catalogue import about, not_equivalent

    return [(name, about(name)) for name in not_equivalent()]


def _blocks() -> Rows:
    from placeproof.semantics.catalogue import BLOCKS, about

    return [(name, about(name)) for name in BLOCKS]


def _model_blocks() -> Rows:
    from placeproof.models.programs import block_text, blocks
    from placeproof.semantics.catalogue import comment

    return [(name, comment(block_text(name))) for name in blocks()]


def _rules() -> Rows:
    """Rules of composition, which are ours, and after them those that training frameworks enforce."""
    from placeproof.framework_rules import rules as enforced
    from placeproof.semantics.catalogue import rules

    return [*((r.name, "composition", r.says) for r in rules().values()), *map(_enforced, enforced().values())]


def _rules_of(system: str) -> Rows:
    from placeproof.framework_rules import of_system

    return [_enforced(r) for r in of_system(system)]


def _enforced(rule: Rule) -> Row:
    return (rule.id, rule.kind.value, rule.says)


def _profiles() -> Rows:
    from placeproof.profiles.profile import names, profile

    return [(name, one.name, one.of, one.title) for name in names() for one in profile(name).implementations]


def _implementations() -> Rows:
    from placeproof.implementations import find, names

    return [(one.name, one.title) for one in map(find, names())]


def _runs() -> Rows:
    from placeproof.runs import run_sets

    return [(one.name, len(one.runs), one.implementation, one.title) for one in run_sets()]


def _terms() -> Rows:
    from placeproof.cost.model.terms import TERMS

    return [(one.name, one.text, f"left out: {one.left_out}") for one in TERMS.values()]


def _models() -> Rows:
    from placeproof.models import load, presets

    models = [(model, model.parameters().total) for model in map(load, presets())]
    return [(m.name, total, m.family, m.title) for m, total in sorted(models, key=lambda row: (row[0].family, row[1], row[0].name))]


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
    from placeproof.theory.suite.load import load

    return [(t.id, t.expect.word, t.says) for t in load().theorems]


def _cells(row: Row) -> tuple[str, ...]:
    return tuple(f"{v:,}" if isinstance(v, int) else " ".join(v) if isinstance(v, tuple) else v for v in row)


@dataclass(frozen=True, slots=True)
class Listing:
    """A list. ``fields``: what the values of a row are, by name; ``cells``: a row as texts, of which there may be fewer."""

    fields: tuple[str, ...]
    rows: Callable[[], Rows]
    cells: Callable[[Row], tuple[str, ...]] = _cells

    def __call__(self) -> Rows:
        """Its rows."""
        return self.rows()


KINDS: dict[str, Listing] = {
    "strategies": Listing(("name", "title", "family"), _strategies),
    "collectives": Listing(("name", "rule", "meaning"), _collectives),
    "modes": Listing(("symbol", "name", "meaning"), _modes),
    "states": Listing(("name", "symbol", "meaning"), _states),
    "symbols": Listing(("name", "domain", "meaning"), _symbols),
    "precisions": Listing(("name", "b_theta", "b_g", "b_omega", "total", "meaning"), _precisions, _added_up),
    "operations": Listing(("signature", "meaning"), _operations),
    "errors": Listing(("code", "title"), _errors),
    "assumptions": Listing(("name", "without", "says"), _assumptions, _or_always),
    "not-equivalent": Listing(("name", "about"), _not_equivalent),
    "blocks": Listing(("name", "about"), _blocks),
    "model-blocks": Listing(("name", "about"), _model_blocks),
    "rules": Listing(("name", "class", "says"), _rules),
    "profiles": Listing(("profile", "name", "of", "title"), _profiles),
    "implementations": Listing(("name", "title"), _implementations),
    "runs": Listing(("name", "runs", "implementation", "title"), _runs),
    "terms": Listing(("name", "text", "left_out"), _terms),
    "models": Listing(("name", "parameters", "family", "title"), _models),
    "families": Listing(("name", "title"), _families),
    "schedules": Listing(("name", "title"), _schedules),
    "clusters": Listing(("name", "title"), _clusters),
    "theorems": Listing(("id", "expected", "says"), _theorems),
}


def command(
    kind: Annotated[str, typer.Argument(help="One of: " + ", ".join(KINDS) + ".")],
    system: Annotated[str | None, typer.Option(metavar="NAME", help="Of `rules`, those of one training framework: `megatron`.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON (schema placeproof.list/1).")] = False,
    brief: Annotated[bool, typer.Option("--brief", help="Print the names in one line.")] = False,
) -> None:
    """What there is: strategies, collectives, operations, assumptions, models, schedules, clusters, and more."""
    if kind not in KINDS:
        hint = suggestion(kind, KINDS) or "one of " + ", ".join(KINDS)
        refuse("PP204", f"there is no list of `{kind}`", help=hint)
    elif system is not None and kind != "rules":
        refuse("PP204", f"there is no list of `{kind}` of one system", help=f"`placeproof list rules --system {system}`")
    listing = KINDS[kind]
    rows = listing.rows() if system is None else _rules_of(system)
    if json_:
        say(_data(kind, listing, rows))
    else:
        show(_names(kind, rows) if brief else _table(kind, listing, rows), json_=False)


def _names(kind: str, rows: Rows) -> Document:
    from placeproof.report.document import Document, section

    return Document(name=kind, sections=lambda: [section(" ".join(str(row[0]) for row in rows))], data=dict)


def _table(kind: str, listing: Listing, rows: Rows) -> Document:
    from placeproof.report.document import Document, Table, section

    return Document(name=kind, sections=lambda: [section("", Table([listing.cells(row) for row in rows], indent=""))], data=dict)


def _data(kind: str, listing: Listing, rows: Rows) -> str:
    entries = [dict(zip(listing.fields, row, strict=True)) for row in rows]
    return json.dumps({"schema": SCHEMA, "kind": kind, "entries": entries}, indent=2, ensure_ascii=False) + "\n"
