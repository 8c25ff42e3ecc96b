"""The judgement of a linked program: of its blocks against their contracts, and of its step for all blocks that keep theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from placeproof.report.diagnostics import excerpt
from placeproof.report.proof import data as of_part
from placeproof.report.proof import text as part
from placeproof.semantics.judge.model import JudgedModel
from placeproof.semantics.judge.verdict import Judged
from placeproof.semantics.linked.contract import Contract, contract_of

_SAYS = (
    "Every block does on all devices what one device does with it, forward and backward, and lies as the next one",
    "reads it. The step leaves every device with what one device computes from the whole global batch, whatever",
    "such blocks compute: for all of these degrees, any sizes, and shards of any sizes.",
)


def judgement(judged: JudgedModel) -> str:
    """Everything that was found out, the verdict first."""
    title = title_of(judged)
    first = f"{title}: {judged.word}" + (f" for {part.for_all(judged.step)}" if judged.word == "proved" else "")
    blocks = [[first, *(_SAYS if judged.word == "proved" else ())], *_wrong(judged)]
    blocks += [_blocks(judged), ["the step, for blocks that keep their contracts", *part.obligations(judged.step.settled)[1:]]]
    blocks += [part.assumptions(judged.step)]
    blocks += [["not asked", *(f"  {text}" for text in judged.not_asked)]] if judged.not_asked else []
    blocks += [[_counts(judged)]]
    return "\n\n".join("\n".join(lines) for lines in blocks) + "\n"


def title_of(judged: JudgedModel) -> str:
    """The model and the strategy."""
    return f"{judged.linked.model} under {judged.linked.name}"


def _wrong(judged: JudgedModel) -> Iterator[list[str]]:
    """What is refuted or unknown, part by part."""
    for breach in judged.breaches:
        yield [
            f"error: block `{breach.block}` breaks its contract",
            *(excerpt(breach.place) if breach.place is not None else ()),
            f"   = {breach.text}",
        ]
    for name, verdict in judged.named:
        if verdict.word != "proved":
            yield part.opening(name, verdict)


def _blocks(judged: JudgedModel) -> list[str]:
    width = max(map(len, judged.blocks))
    lines = ["blocks"]
    for name, verdict in judged.blocks.items():
        lines.append(f"  {name.ljust(width)}  {verdict.word}: {_proofs(verdict)}")
        lines += [f"  {' ' * width}    {text}" for text in _weights(contract_of(judged.linked.blocks[name]))]
    return lines


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


def data(judged: JudgedModel) -> dict[str, Any]:
    """The same as JSON data: the schema ``placeproof.prove-model/1`` (``docs/reference/prove-model.schema.json``)."""
    return {
        "schema": "placeproof.prove-model/1",
        "model": judged.linked.model,
        "strategy": judged.linked.name,
        "verdict": judged.word,
        "blocks": {
            name: {"contract": _contract(contract_of(judged.linked.blocks[name])), **of_part.judgement(name, verdict)}
            for name, verdict in judged.blocks.items()
        },
        "breaches": [{"block": b.block, "line": None if b.place is None else b.place.line, "text": b.text} for b in judged.breaches],
        "step": of_part.judgement(judged.linked.name, judged.step),
        "not_asked": list(judged.not_asked),
    }


def _contract(contract: Contract) -> dict[str, Any]:
    return {
        "weights": {name: {"split": list(lies.split), "partial": list(lies.partial)} for name, lies in contract.weights.items()},
        "reads": {name: {dim: list(axes) for dim, axes in split.items()} for name, split in contract.reads.items()},
        "gives": contract.gives,
    }
