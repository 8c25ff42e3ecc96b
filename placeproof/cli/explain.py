"""``placeproof explain``."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Annotated

import typer

from placeproof.cli.terminal import Brief, tell
from placeproof.core.diagnostics import refuse, suggestion
from placeproof.core.spelling import respelled


def _code(name: str) -> list[str] | None:
    from placeproof.core.codes import CODES

    code = CODES.get(name.upper())
    if code is None:
        return None
    example = [f"    {line}" for line in code.example.splitlines()]
    return [f"{code.code}: {code.title}", "", code.meaning, "", f"for example ({code.kind}):", *example, "", f"remedy: {code.remedy}"]


def _strategy(name: str) -> list[str] | None:
    from placeproof.strategies import read_file, template

    if name.endswith(".toml") and (other := _kind_of_file(name)) is not None:
        return other(name)
    strategy = read_file(Path(name)) if name.endswith(".toml") else template(name)
    if strategy is None:
        return None
    lines = [f"{strategy.name}: {strategy.title}", "", *([strategy.summary] if strategy.summary else [])]
    lines += [f"source: {strategy.source}"] if strategy.source else []
    lines += ["", f"written: {strategy.signature()}"]
    if strategy.aliases:
        lines.append(f"also known as: {', '.join(strategy.aliases)}")
    lines += ["", "placement"] if strategy.entries else []
    for entry in strategy.entries:
        groups = f" ({', '.join(entry.groups)})" if entry.groups else ""
        lines.append(f"  {entry.state}{groups} on {entry.axis}: {entry.mode} ({entry.mode.name.lower()}: {entry.mode.meaning})")
    lines += ["", "options"] if strategy.options else []
    for option in strategy.options:
        lines += [f"  {option.name}: {option.expects()}; default `{str(option.default).lower()}`", f"    {option.doc}"]
    lines += [f"approximation: {text}" for text in strategy.approximates]
    return [*lines, "", f"`placeproof derive {name}` derives what it costs"]


def _assumption(name: str) -> list[str] | None:
    from placeproof.programs.assumptions import ASSUMPTIONS

    one = ASSUMPTIONS.get(name)
    if one is None:
        return None
    lines = [f"assumption {one.name}", "", one.says]
    if one.without is None:
        return [*lines, "every proof rests on it; it cannot be dropped"]
    return [*lines, f"without it: {one.without}", "", f"`placeproof prove SUBJECT --without {one.name}` drops it"]


def _not_equivalent(name: str) -> list[str] | None:
    from placeproof.semantics.catalogue import about, not_equivalent

    if name not in not_equivalent():
        return None
    return [f"{name}: does not train what one device trains", "", about(name), "", f"`placeproof prove {name}` shows where"]


def _block(name: str) -> list[str] | None:
    """A block on a mesh, and what models have under the same name."""
    from placeproof import blocks as on_mesh
    from placeproof.models import programs as of_models
    from placeproof.semantics.catalogue import comment

    texts = {f"block {name}": on_mesh.text(name)} if name in on_mesh.BLOCKS else {}
    texts |= {f"block {name} of models, on one device": of_models.block_text(name)} if name in of_models.blocks() else {}
    lines: list[str] = []
    for title, text in texts.items():
        code = [f"    {line}" for line in text.splitlines() if not line.startswith("#")]
        lines += [*([""] if lines else []), title, "", comment(text), "", *code]
    return lines or None


def _rule(name: str) -> list[str] | None:
    from placeproof.semantics.catalogue import rules

    rule = rules().get(name)
    if rule is None:
        return None
    lines = [f"rule {rule.name}", "", rule.says]
    for title, subjects in (("proved", rule.holds), ("refuted, or refused", rule.fails)):
        for text in subjects:
            lines += ["", f"{title}:", *(f"    {line}" for line in text.strip().splitlines())]
    return lines


def _framework_rule(name: str) -> list[str] | None:
    from placeproof.framework_rules import rules

    rule = rules().get(name.lower())
    if rule is None:
        return None
    from placeproof.report.framework_rules import text

    return list(text(rule))


def _theorem(name: str) -> list[str] | None:
    from placeproof.answers.subject import theorem
    from placeproof.report.theorems import text

    declared = theorem(name)
    return None if declared is None else list(text(declared))


def _mode(name: str) -> list[str] | None:
    from placeproof.core.modes import MODES
    from placeproof.core.symbols import SYMBOLS

    mode = MODES.get(name) or next((m for m in MODES.values() if m.name.lower() == name.lower()), None)
    if mode is None:
        return None
    return [
        f"mode {mode.symbol}: {mode.name.lower()}",
        "",
        f"{mode.meaning}. For a state of s bytes on an axis of n devices, with units of u <= s bytes:",
        f"  held all step, per device   {mode.device.value}",
        f"  held on the host            {mode.host.value}",
        f"  extra at the peak           {mode.peak}",
        f"  traffic it causes           {mode.traffic}",
        *_beside(mode.symbol.lower(), SYMBOLS, "symbol"),
    ]


def _state(name: str) -> list[str] | None:
    from placeproof.core.states import STATES

    state = STATES.get(name.lower())
    return None if state is None else [f"state {state.name} ({state.symbol})", "", f"{state.meaning}; {state.width} bytes an element"]


def _beside(name: str, there: Container[str], kind: str) -> list[str]:
    """Where to read of what differs in capitals alone: `m` and `M`."""
    return ["", f"`placeproof explain {name}`: a {kind}"] if name in there else []


def _symbol(name: str) -> list[str] | None:
    from placeproof.core.modes import MODES
    from placeproof.core.symbols import info

    try:
        row = info(name)
    except KeyError:
        return None
    unit = " ".join(f"{u}^{p}" if p != 1 else u for u, p in row.dimension.items()) or "a pure number"
    lines = [f"symbol {row.name}", "", row.meaning, f"values: {row.domain.value}; dimension: {unit}"]
    lines += [f"at most {row.at_most}"] if row.at_most else []
    lines += [f"default for numbers: {row.default}"] if row.default else []
    return lines + ([] if name.isupper() else _beside(name.upper(), MODES, "mode"))


def _mode_in_small(name: str) -> list[str] | None:
    return _mode(name.upper())


def _collective(name: str) -> list[str] | None:
    from placeproof.collectives import COLLECTIVES

    row = COLLECTIVES.get(name)
    return (
        None if row is None else [f"collective {row.name}", "", row.meaning, f"bytes that one device sends: {row.rule}, where s is {row.s}"]
    )


def _operation(name: str) -> list[str] | None:
    from placeproof.programs.ops import OPS

    op = OPS.get(name)
    return None if op is None else [f"operation {op.signature()}", "", op.doc]


def _precision(name: str) -> list[str] | None:
    from placeproof.core.precision import PRECISIONS

    p = PRECISIONS.get(name)
    if p is None:
        return None
    return [
        f"precision {p.name}",
        "",
        p.meaning,
        f"b_theta = {p.b_theta}, b_g = {p.b_g}, b_omega = {p.b_omega}, b_a = {p.b_a}",
        f"source: {p.source}",
    ]


def _profile(name: str) -> list[str] | None:
    from placeproof.profiles.profile import names, profile

    if name not in names():
        return None
    chosen = profile(name)
    lines = [f"profile {chosen.name}: {chosen.title}"]
    for one in chosen.implementations:
        lines += ["", f"{one.name}: {one.title}", f"  implements {', '.join(one.of)}"]
        lines += [f"  {key}: {text}" for key, text in one.differences.items()]
    return [*lines, "", f"`placeproof compare ideal {name} --of STRATEGY` shows what that makes"]


def _model(name: str) -> list[str] | None:
    from placeproof.models import load, presets
    from placeproof.models.family import families, family
    from placeproof.models.hub import checkpoint
    from placeproof.report import described

    if name in presets() or checkpoint(name) is not None:
        return list(described.model(load(name)))
    return list(described.family(family(name), load(name))) if name in families() else None


def _kind_of_file(name: str) -> Callable[[str], list[str] | None] | None:
    """What explains a file of TOML that is no strategy's: it has a table that no strategy has. What is piped can be read once, and is taken
    for a strategy."""
    from placeproof.core.files import is_file, read_text

    if not is_file(name):
        return None
    text = read_text(name, code="PP110", help="give the path of a readable file")
    tables = {line.split("#")[0].strip() for line in text.splitlines()}
    kinds = {"[order]": _schedule, "[order.search]": _schedule, "[device]": _cluster}
    return next((explains for table, explains in kinds.items() if table in tables), None)


def _schedule(name: str) -> list[str] | None:
    from placeproof.report import described
    from placeproof.schedules import is_own, load, names

    if is_own(name):
        return list(described.schedule(load(name), name))
    key = name if name in names() else name.replace("_", "-")
    return list(described.schedule(load(key))) if key in names() else None


def _cluster(name: str) -> list[str] | None:
    from placeproof.clusters import find, names
    from placeproof.report import described

    return list(described.cluster(find(name))) if name in names() or name.endswith(".toml") else None


def _term(name: str) -> list[str] | None:
    """A word that is no name here, in whatever letters."""
    from placeproof.report.glossary import explained, terms

    words = {word: term.name for term in terms() for word in (term.name, *term.words)}
    meant = respelled(name, words, words)
    return next((explained(term) for term in terms() if meant in (term.name, *term.words)), None)


def _in_other_letters(name: str) -> str | None:
    """The name that is meant; of theorems, which take long to read, none."""
    from placeproof.cli.listing import KINDS
    from placeproof.strategies.catalogue import aliases

    known = {row[0] for kind, rows in KINDS.items() if kind not in ("operations", "theorems", "symbols") for row in rows()}
    return respelled(name, {*known, *aliases()})


#: Where a name is looked up; the first that knows it explains it.
EXPLAINERS: tuple[Callable[[str], list[str] | None], ...] = (
    _code,
    _mode,
    _state,
    _symbol,
    _mode_in_small,
    _strategy,
    _collective,
    _operation,
    _precision,
    _block,
    _term,
    _assumption,
    _not_equivalent,
    _rule,
    _framework_rule,
    _profile,
    _model,
    _schedule,
    _cluster,
    _theorem,
)


def _explained(name: str) -> list[str] | None:
    return next((lines for explain in EXPLAINERS if (lines := explain(name)) is not None), None)


def _known(name: str) -> Iterator[str]:
    """What there is to be meant by a name; checkpoints of the hub, by one of theirs."""
    from placeproof.cli.listing import KINDS
    from placeproof.models.hub import checkpoints

    if "/" in name:
        yield from checkpoints()
    for kind, rows in KINDS.items():
        if kind != "operations":
            yield from (row[0] for row in rows())


def command(
    name: Annotated[
        str, typer.Argument(help="A strategy, mode, symbol, collective, assumption, model, schedule, cluster, error code, ...")
    ],
    brief: Brief = False,
) -> None:
    """A strategy, mode, symbol, collective, operation, assumption, model, schedule, cluster or error code in words."""
    lines = _explained(name.strip())
    if lines is None and (meant := _in_other_letters(name.strip())) is not None:
        lines = _explained(meant)
    if lines is not None:
        tell("\n".join(lines[:1] if brief else lines))
        return
    refuse("PP204", f"nothing here is called `{name}`", help=suggestion(name, _known(name)) or "`placeproof list strategies`")
