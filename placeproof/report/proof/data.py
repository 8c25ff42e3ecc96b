"""A judgement as JSON data: the schema ``placeproof.prove/1`` (``docs/reference/prove.schema.json``)."""

from __future__ import annotations

from typing import Any

from placeproof.measure.replay.file import number
from placeproof.programs.assumptions import ASSUMPTIONS
from placeproof.report.proof.run import of_block, of_step
from placeproof.semantics import tensors
from placeproof.semantics.encode.causes import Cause
from placeproof.semantics.judge.explain import told
from placeproof.semantics.judge.verdict import Judged, Settled
from placeproof.semantics.meaning import Fault
from placeproof.semantics.meaning.layout import in_words
from placeproof.semantics.meaning.recorded import plain
from placeproof.semantics.meaning.script import inputs, shown_pair


def judgement(subject: str, judged: Judged) -> dict[str, Any]:
    """Everything that was found out about a program."""
    return {
        "schema": "placeproof.prove/1",
        "subject": subject,
        "verdict": judged.word,
        "for_all": list(judged.for_all),
        "assumptions": [n for n, a in ASSUMPTIONS.items() if n not in judged.options.without and a.concerns(judged.program)],
        "obligations": [_obligation(s) for s in judged.settled],
        "warnings": [text if place is None else f"line {place.line}: {text}" for text, place in judged.warnings],
        "counterexample": _counterexample(judged),
        "why": judged.why if judged.word == "unknown" else "",
        "confirmed": None if judged.confirmed is None else {"runs": list(judged.confirmed.runs), "smaller": judged.confirmed.smaller},
    }


def _obligation(settled: Settled) -> dict[str, Any]:
    place = settled.obligation.place
    return {
        "name": settled.obligation.name,
        "condition": settled.obligation.condition,
        "line": place.line if place is not None else None,
        "verdict": settled.word,
        "suspected": settled.suspected,
        "causes": [_cause(c) for c in settled.obligation.causes] if settled.word != "proved" else [],
        "solver": getattr(settled.verdict, "solver", None),
        "seconds": round(settled.seconds, 6),
    }


def _cause(cause: Cause) -> dict[str, Any]:
    return {"value": cause.value.strip("`"), "axes": list(cause.axes), "lies": cause.lies, "needed": cause.needed, "words": cause.words}


def _counterexample(judged: Judged) -> dict[str, Any] | None:
    if judged.word != "refuted" or judged.found is None:
        return None
    if isinstance(judged.found, tensors.RefutingBlockRun):
        return _of_tensors(judged, judged.found)
    setup, what = judged.found.setup, judged.found.what
    about = judged.about
    shared: dict[str, Any] = {
        "degrees": dict(setup.degrees),
        "microbatches": setup.microbatches,
        "step": judged.failing_step,
        "condition": about.condition if about is not None else None,
        "line": about.place.line if about is not None and about.place is not None else None,
    }
    run = of_step(judged.program, setup, what)
    shared |= {"explained": told(judged).explained, "repair": told(judged).repair}
    shared["lines"] = [{"line": one.line, "buffer": one.name, "holds": one.holds} for one in told(judged).lines]
    if isinstance(what, Fault):
        nothing: dict[str, Any] = {"device": None, "element": None, "expected": None, "actual": what.why, "unheld": None, "inputs": {}}
        return {**shared, **nothing, "line": shared["line"] or what.line, "replayed": True, "run": run}
    expected, actual = shown_pair(what) if what.actual is not None else (what.expected, None)
    return {
        **shared,
        "device": dict(what.device),
        "element": in_words(what.element),
        "expected": number(plain(expected)),
        "actual": None if actual is None else number(plain(actual)),
        "unheld": what.unheld or None,
        "inputs": {name: str(value) for name, value in inputs(judged.program, setup).items()},
        "replayed": True,
        "run": run,
    }


def _of_tensors(judged: Judged, counterexample: tensors.RefutingBlockRun) -> dict[str, Any]:
    what, about = counterexample.what, judged.about
    shared: dict[str, Any] = {
        "degrees": dict(counterexample.setup.degrees),
        "microbatches": 1,
        "step": None,
        "condition": about.condition if about is not None else None,
        "line": what.line,
        "explained": None,
        "repair": None,
        "lines": [],
        "replayed": True,
        "run": of_block(judged.program, counterexample),
    }
    if isinstance(what, Fault):
        return {**shared, "device": None, "element": None, "expected": None, "actual": what.why, "unheld": None, "inputs": {}}
    return {
        **shared,
        "device": dict(what.device),
        "element": what.element,
        "expected": None if what.expected is None else number(what.expected),
        "actual": None if what.actual is None else number(what.actual),
        "unheld": what.unheld or None,
        "inputs": {name: number(value) for name, value in tensors.inputs(judged.program, counterexample.setup).items()},
    }
