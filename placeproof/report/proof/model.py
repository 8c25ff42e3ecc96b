"""The judgement of a linked program: of its blocks against their contracts, and of its step for all blocks that keep theirs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from placeproof.measure.replay.file import number
from placeproof.report.diagnostics import excerpt
from placeproof.report.document import Code, Document, Lines, Notes, Section, section
from placeproof.report.proof import text as part
from placeproof.report.proof.data import judgement
from placeproof.report.written import written
from placeproof.semantics.judge.model import JudgedModel, repair_of
from placeproof.semantics.judge.search import RefutingRun
from placeproof.semantics.judge.verdict import Judged
from placeproof.semantics.linked.contract import Breach, Contract, Stands, contract_of, stands_for
from placeproof.semantics.meaning import Difference
from placeproof.semantics.meaning.layout import Layout, in_words
from placeproof.semantics.meaning.recorded import plain

_SAYS = (
    "Every block does on all devices what one device does with it, forward and backward, and lies as the next one\n"
    "reads it. The step leaves every device with what one device computes from the whole global batch, whatever\n"
    "such blocks compute: for all of these degrees, any sizes, and shards of any sizes."
)


def document(judged: JudgedModel, file: str | None = None, opinion: dict[str, Any] | None = None, *, asked: bool = True) -> Document:
    """Everything that was found out, the verdict first. ``file``: where the program is written down; ``opinion``: what a second solver
    says, by its field in data; ``asked``: whether the model was named beside the file, or the file alone names it."""
    named = f"{judged.linked.model} under {judged.linked.name}"
    name = named if file is None else f"{file} ({named})" if judged.model is not None else file
    return Document(
        name=name,
        sections=lambda: _sections(name, judged, opinion or {}, asked),
        data=lambda: _data(judged) | (opinion or {}),
        lines=lambda: {**{n: written(one.program) for n, one in judged.blocks.items()}, judged.linked.name: written(judged.step.program)},
    )


def _sections(name: str, judged: JudgedModel, opinion: dict[str, Any], asked: bool) -> Iterator[Section]:
    proved = judged.word == "proved"
    own = judged.linked.model
    whose = []
    if judged.model is None:
        whose = [f"One device runs the blocks of this file: there is no model `{own}` that it could be held against."]
    elif not asked:
        whose = [f"One device runs {own}, which the file says that it is; a model of one's own has a name of its own."]
    says = Lines([*((_SAYS, *part.beyond(judged.step.program)) if proved else ()), *whose, *judged.undecided])
    title = f"{name}: {judged.word}" + (f" for {part.for_all(judged.step)}" if proved else "")
    yield section(title, *([says] if says.lines else []), detail="answer", brief=title if proved else f"{title}: {_wrong(judged)}")
    for breach in judged.breaches:
        place = [] if breach.place is None else excerpt(breach.place)
        what = "this is not the model's program" if breach.block is None else f"block `{breach.block}` breaks its contract"
        yield section(f"error: {what}", Code([*place, f"   = {breach.text}", *_numbers(breach)]))
    for called, verdict in judged.named:
        if verdict.word != "proved":
            yield replace(part.opening(called, verdict), detail="usual", brief="")
    if judged.step.word != "proved":
        yield section("in the weights of the blocks", Code(list(_in_weights(judged))))
    yield section("blocks", Code(list(_blocks(judged))))
    yield part.obligations(judged.step.settled, "the step, for blocks that keep their contracts")
    yield part.assumptions(judged.step)
    if judged.not_asked:
        yield section("not asked", Notes(judged.not_asked))
    yield section(_counts(judged))
    if "second_opinion" in opinion:
        yield part.second_opinion(opinion["second_opinion"])


def _wrong(judged: JudgedModel) -> str:
    """What is not proved, in a line."""
    broken = [f"block `{one.block}` breaks its contract" for one in judged.breaches if one.block is not None]
    broken += ["this is not the model's program" for one in judged.breaches if one.block is None]
    open_ = [f"{called} is {verdict.word}" for called, verdict in judged.named if verdict.word != "proved"]
    return "; ".join(dict.fromkeys([*broken, *open_])) or "; ".join(judged.undecided)


def _in_weights(judged: JudgedModel) -> Iterator[str]:
    """What is said of the groups of the step: of which weights it is, and what would mend it."""
    step = judged.step
    open_ = [s.obligation.name for s in step.settled if s.word != "proved"]
    for name, stands in stands_for(judged.linked).items():
        if not open_ or any(text.endswith(f"({name})") for text in open_):
            of = "" if name == stands.group else f", of group `{stands.group}`"
            yield f"  `{name}`{of}: {', '.join('.'.join(w) for w in stands.weights) or 'no weights'}"
            yield f"    {stands.lies}"
    if isinstance(step.found, RefutingRun) and isinstance(what := step.found.what, Difference):
        group = Layout(step.program, step.found.setup).group_of(what.element)
        yield f"  the step is run with a small model: {in_words(what.element)} stands for a weight of `{group}`"
    repair = repair_of(judged)
    if repair is not None:
        yield f"  {repair.text} the step is proved"


def _numbers(breach: Breach) -> Iterator[str]:
    """The run that shows a breach."""
    shown = breach.shown
    if shown is not None:
        sizes = ", ".join(f"{dim} = {n}" for dim, n in shown.setup.sizes.items())
        yield f"   = counterexample: one device, {sizes} (replayed exactly)"
        yield f"   = {shown.words}"
        yield from part.inputs_of(shown.inputs)


def _blocks(judged: JudgedModel) -> Iterator[str]:
    width = max(map(len, judged.blocks))
    for name, verdict in judged.blocks.items():
        yield f"  {name.ljust(width)}  {verdict.word}: {_proofs(verdict)}"
        yield from (f"  {' ' * width}    {text}" for text in _weights(contract_of(judged.linked.blocks[name])))


def _proofs(verdict: Judged) -> str:
    proved = sum(s.word == "proved" for s in verdict.settled)
    runs = "" if verdict.confirmed is None else f", {len(verdict.confirmed.runs)} runs agree"
    return f"{proved} of {len(verdict.settled)} obligations{runs}"


def _weights(contract: Contract) -> Iterator[str]:
    """Weights of which a contract says the same, together."""
    for lies in dict.fromkeys(contract.weights.values()):
        yield f"{', '.join(name for name, own in contract.weights.items() if own == lies)}: {lies}"


def _counts(judged: JudgedModel) -> str:
    settled = [s for verdict in judged.parts for s in verdict.settled]
    proved, seconds = sum(s.word == "proved" for s in settled), sum(s.seconds for s in settled)
    runs = sum(len(verdict.confirmed.runs) for verdict in judged.parts if verdict.confirmed is not None)
    of = f"{len(judged.blocks)} {'block' if len(judged.blocks) == 1 else 'blocks'} and the step"
    return f"{judged.word}: {of}, {proved} of {len(settled)} obligations proved in {1e3 * seconds:.0f} ms; {runs} runs agree"


def _data(judged: JudgedModel) -> dict[str, Any]:
    """The same as data: the schema ``placeproof.prove-model/1`` (``docs/reference/prove-model.schema.json``)."""
    contracts = {name: _contract(contract_of(block)) for name, block in judged.linked.blocks.items()}
    return {
        "schema": "placeproof.prove-model/1",
        "model": judged.linked.model,
        "strategy": judged.linked.name,
        "verdict": judged.word,
        "blocks": {name: {"contract": contracts[name], **judgement(name, verdict)} for name, verdict in judged.blocks.items()},
        "breaches": list(map(_breach, judged.breaches)),
        "step": judgement(judged.linked.name, judged.step),
        "groups": {name: _group(stands) for name, stands in stands_for(judged.linked).items()},
        "repair": None if (repair := repair_of(judged)) is None else repair.text,
        "compared_with": "the model" if judged.model is not None else "the program's own blocks",
        "undecided": list(judged.undecided),
        "not_asked": list(judged.not_asked),
    }


def _group(stands: Stands) -> dict[str, Any]:
    lies = {"split": list(stands.lies.split), "partial": list(stands.lies.partial)}
    return {"group": stands.group, "weights": [".".join(w) for w in stands.weights], **lies}


def _breach(breach: Breach) -> dict[str, Any]:
    line, shown = None if breach.place is None else breach.place.line, breach.shown
    head = {"block": breach.block, "line": line, "text": breach.text}
    if shown is None or shown.pair is None:
        return {**head, "counterexample": None}
    expected, actual = (number(plain(n)) for n in shown.pair)
    inputs = {name: number(value) for name, value in shown.inputs.items()}
    run = {"sizes": dict(shown.setup.sizes), "at": shown.at, "expected": expected, "actual": actual, "inputs": inputs}
    return {**head, "counterexample": run}


def _contract(contract: Contract) -> dict[str, Any]:
    return {
        "weights": {name: {"split": list(lies.split), "partial": list(lies.partial)} for name, lies in contract.weights.items()},
        "reads": {name: {dim: list(axes) for dim, axes in split.items()} for name, split in contract.reads.items()},
        "gives": contract.gives,
    }
