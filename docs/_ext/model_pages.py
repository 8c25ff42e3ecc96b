"""Tables of models, of what is proved of schedules, and of the figures of clusters, made from their files."""

from __future__ import annotations

from collections.abc import Iterator

from pipe_tables import code, formula, plain, table

from placeproof.clusters import cluster
from placeproof.clusters import names as clusters
from placeproof.importers.huggingface.fields import families as read_types
from placeproof.models import families, load, presets
from placeproof.models.family import GROUPS, family
from placeproof.models.hub import checkpoints
from placeproof.report.described import figures
from placeproof.schedules import load as load_schedule
from placeproof.schedules import names as schedules


def models() -> str:
    """Every family with its formulas of parameters, and the presets of it with their counts."""
    return "\n".join(_family(name) for name in families())


def _family(name: str) -> str:
    one, count = family(name), load(name).parameters()
    options = "".join(
        f" Option {code(o.name)}: {', '.join(code(v) for v in o.choices)}; {code(o.default)} if nothing is said."
        for o in one.options.values()
    )
    head = f"## {name}\n\n{plain(one.title)}. Source: {plain(one.source)}. {plain(one.note)}{options}\n"
    formulas = [(group, formula(count.groups[group])) for group in GROUPS if group in count.groups]
    rows = [_preset(preset) for preset in presets() if load(preset).family == name]
    listed = table(["preset", "title", "parameters", "one token meets", "sizes", "source"], rows) if rows else ""
    return f"{head}\n{table(['parameters', 'as a formula'], [*formulas, ('all', formula(count.total))])}\n{listed}"


def _preset(name: str) -> tuple[str, ...]:
    one = load(name)
    count = one.parameters()
    sizes = ", ".join(f"{symbol} = {size}" for symbol, size in one.given.items())
    return code(name), plain(one.title), f"{count.total:,}", f"{count.active:,}", code(sizes), plain(one.source)


def of_the_hub() -> str:
    """Every row of checkpoints: the type, whether there are experts, the preset, the names, and what says so."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, one in checkpoints().items():
        key = (code(one.type), "yes" if one.experts else "no", code(one.preset) if one.preset else "", plain(", ".join(one.sources)))
        rows.setdefault(key, []).append(code(name))
    return table(
        ["type", "experts", "preset", "names", "sources"], [(*key[:3], ", ".join(names), key[3]) for key, names in sorted(rows.items())]
    )


def types() -> str:
    """Every type of model that can be read from transformers' configurations: the parts of its layers, and the family of its blocks."""
    rows = []
    for name, one in sorted(read_types().items()):
        alone = "shapes alone" + (f": {plain(one.lacks)}" if one.lacks else "")
        parts = ", ".join(code(part) for part in [*one.layer, *one.sparse])
        rows.append((code(name), parts, code(one.model.family) if one.model else alone))
    return table(["type", "parts of its layers", "family of its blocks"], rows)


def schedule_proofs() -> str:
    """Of each closed form what is proved of it."""
    rows = [(code(n), what, f"[{theorem}](theorems/{theorem}.md)", which, plain(limits)) for n, what, theorem, which, limits in proofs()]
    return table(["schedule", "form of", "theorem", "says it", "what it leaves out, or which points"], rows)


def proofs() -> Iterator[tuple[str, ...]]:
    """What is proved of each closed form: its schedule, of what it is, the theorem, for which sizes, and what that leaves out."""
    for name in schedules():
        for form in load_schedule(name).closed:
            listed = [(text, "for all devices and micro-batches") for text in form.proved]
            listed += [(text, "at finitely many points") for text in form.computed]
            for text, which in listed:
                theorem, _, limits = text.partition(": ")
                yield name, form.what, theorem, which, limits


def cluster_figures() -> str:
    """Every figure of every cluster with where it is from."""
    rows = [(code(name), what, number, plain(origin)) for name in clusters() for what, number, origin in figures(cluster(name))]
    return table(["cluster", "figure", "value", "from"], rows)
