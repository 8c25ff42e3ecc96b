"""A judgement as a document: proved with its obligations, refuted with numbers to check by hand, or unknown with what was tried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from placeproof.core.diagnostics import Place
from placeproof.programs import Resolved
from placeproof.programs.assumptions import ASSUMPTIONS
from placeproof.programs.printer import contract
from placeproof.report.diagnostics import excerpt
from placeproof.report.document import Code, Document, Lines, Notes, Section, SectionPart, Table, section
from placeproof.report.proof import composition, cutoff, mended
from placeproof.report.written import written
from placeproof.semantics import tensors
from placeproof.semantics.judge.explain import SOMETHING, ZERO, told
from placeproof.semantics.judge.search import RefutingRun
from placeproof.semantics.judge.verdict import Judged, Settled
from placeproof.semantics.meaning import Fault
from placeproof.semantics.meaning.script import inputs, missing, shown_pair, what_differs

_MOST_INPUTS = 12


def document(subject: str, judged: Judged, opinion: dict[str, Any] | None = None) -> Document:
    """Everything that was found out about a program. ``opinion``: what a second solver or argument says, by its field in data."""
    from placeproof.report.proof.data import judgement as data

    return Document(
        name=subject,
        sections=lambda: _sections(subject, judged, opinion or {}),
        data=lambda: data(subject, judged) | (opinion or {}),
        lines=lambda: {subject: written(judged.program)},
    )


def _sections(subject: str, judged: Judged, opinion: Mapping[str, Any]) -> Iterator[Section]:
    yield opening(subject, judged)
    yield from [obligations(judged.settled)] if judged.settled else []
    yield from [assumptions(judged)] if not judged.program.tensors else []
    for text, place in judged.warnings:
        yield section(f"warning: {text}{_line(place)}")
    yield section(_counts(judged))
    yield from [second_opinion(opinion["second_opinion"])] if "second_opinion" in opinion else []
    yield from [cutoff.shown(opinion["cutoff"])] if "cutoff" in opinion else []
    yield from [composition.shown(opinion["composition"])] if "composition" in opinion else []
    yield from [mended.shown(opinion["mended"])] if "mended" in opinion else []


def opening(subject: str, judged: Judged) -> Section:
    """The verdict: for what it is proved, the numbers that refute it, or why it is unknown."""
    return {"proved": _proved, "refuted": _refuted, "unknown": _unknown}[judged.word](subject, judged)


def _line(place: Place | None) -> str:
    return f" (line {place.line})" if place is not None else ""


def for_all(judged: Judged) -> str:
    """For which degrees something is proved."""
    fixed = [f"{a.name} = {a.degree}" for a in judged.program.axes if a.degree is not None]
    fixed += [f"{name} = {n}" for name, n in judged.program.counts if name == "microbatches"]
    return ", ".join([*judged.for_all, *fixed]) or "one device"


#: What a single device does beyond a plain step, by what the header line `reference(...)` says.
_BEYOND = {
    ("optimizer", "tensor_norm"): "updates each tensor by norms of it",
    ("optimizer", "matrix"): "updates whole matrices",
    ("optimizer", "orthogonal"): "updates matrices by a function of each whole matrix of momentum, as Muon does",
    ("optimizer", "factored"): "updates matrices by sums along their rows and columns, and by norms of what these make, as Adafactor does",
    ("optimizer", "preconditioned"): "updates whole tensors, as Shampoo does",
    ("clip", "global_norm"): "scales the gradient by a function of its norm over all parameters, as clipping does",
    ("dropout", "output"): "masks its output at random",
    ("skip", "not_finite"): "leaves its states alone where the gradient is not finite",
    ("statistics", "batch"): "has layers that use a statistic of the whole batch",
}


def beyond(program: Resolved) -> list[str]:
    """What one device does in the step beyond a plain one, a sentence each."""
    by_norms = [f"`{g.name}`" for g in program.groups if g.update == "tensor_norm"]
    apart = [f"One device updates each tensor of {', '.join(by_norms)} by norms of it."] if by_norms else []
    loss = [f"One device trains {contract(program.loss)}."] if program.loss else []
    return [*loss, *(f"One device {_BEYOND[option]}." for option in program.reference if option in _BEYOND), *apart]


def _proved(subject: str, judged: Judged) -> Section:
    title = f"{subject}: proved for {for_all(judged)}"
    if judged.program.tensors:
        lines = [
            "Every device returns what one device computes: for all of these degrees, any sizes of the dimensions (parts may be uneven),\n"
            "any numbers, and any elementwise functions. Gradients are derivatives.",
        ]
    else:
        lines = [
            "One step on the mesh leaves every device with what one device computes from the whole global batch: for all of these\n"
            "degrees, any model, any samples, and shards of any sizes (who owns an element is an arbitrary function).",
            *beyond(judged.program),
        ]
    return section(title, Lines(lines), detail="answer")


def _refuted(subject: str, judged: Judged) -> Section:
    assert judged.found is not None
    about, counterexample = judged.about, judged.found
    lines = []
    if about is not None:
        lines += ["", f"error: {about.condition} is broken"]
        lines += excerpt(about.place) if about.place is not None else []
        lines.append(f"   = it does not hold that {about.name}")
        lines += [f"   = {cause.words}" for cause in about.causes]
    if isinstance(counterexample, tensors.RefutingBlockRun):
        lines += _of_tensors(judged.program, counterexample)
    else:
        lines += _of_step(judged, counterexample)
    what = "" if about is None else f": {about.condition} is broken{_line(about.place)}"
    return section(f"{subject}: refuted", Code(lines), detail="answer", brief=f"{subject}: refuted{what}")


def _of_step(judged: Judged, counterexample: RefutingRun) -> list[str]:
    """A run of a training step."""
    setup, what = counterexample.setup, counterexample.what
    mesh = ", ".join([*(f"{axis} = {n}" for axis, n in setup.degrees.items()), f"micro-batches = {setup.microbatches}"])
    lines = [f"   = counterexample: {mesh} (replayed exactly)"]
    if isinstance(what, Fault):
        where = "; ".join(", ".join(f"{a} = {n}" for a, n in d.items()) for d in what.devices[:4])
        return [*lines, f"   = {what.words}: {where}", *_explained(judged)]
    if what.actual is None:
        return [*lines, f"   = {missing(what)}", *_explained(judged)]
    expected, actual = shown_pair(what)
    lines.append(f"   = {what_differs(what)}: expected {expected}, actual {actual}")
    return [*lines, *_explained(judged), *inputs_of(inputs(judged.program, setup))]


def _explained(judged: Judged) -> list[str]:
    what = told(judged)
    lines = [f"   =   line {one.line}: `{one.name}` is {one.holds}" for one in what.lines]
    shown = [f"   = {what.sentence}"] if what.sentence is not None else []
    telling = len(lines) > 1 and any(one.holds not in (ZERO, SOMETHING) for one in what.lines)
    return [*shown, *(["   = what lines leave of the gradient", *lines] if telling else [])]


def _of_tensors(program: Resolved, counterexample: tensors.RefutingBlockRun) -> list[str]:
    """A run of a program over tensors."""
    sizes = [f"{name} = {n}" for name, n in (*counterexample.setup.degrees.items(), *counterexample.setup.sizes.items())]
    lines = [f"   = counterexample: {', '.join(sizes)} (replayed exactly)", f"   = {counterexample.words}"]
    lines += ["   = one device runs the block of the model"] if counterexample.setup.reference is not None else []
    return lines + inputs_of(tensors.inputs(program, counterexample.setup))


def inputs_of(numbers: Mapping[str, Fraction]) -> list[str]:
    """The numbers that a run begins with: some of them."""
    shown = [f"   =   {name}: {value}" for name, value in list(numbers.items())[:_MOST_INPUTS]]
    left = len(numbers) - _MOST_INPUTS
    if left > 0:
        shown.append(f"   =   and {left} more; `--replay-script FILE` writes the whole computation")
    return ["   = it begins with", *shown] if shown else []


def _unknown(subject: str, judged: Judged) -> Section:
    parts: list[SectionPart] = [Lines([f"neither proved nor refuted: {judged.why}"])]
    if judged.about is not None and judged.about.place is not None:
        parts.append(
            Code(
                [
                    f"{judged.about.condition}: {judged.about.name}",
                    *excerpt(judged.about.place),
                    *(f"   = {cause.words}" for cause in judged.about.causes),
                ]
            )
        )
    return section(f"{subject}: unknown", *parts, detail="answer", brief=f"{subject}: unknown: {judged.why}")


def obligations(settled: Iterable[Settled], title: str = "obligations") -> Section:
    """A table of obligations."""
    rows = []
    for one in settled:
        place = one.obligation.place
        word = "suspected" if one.suspected else one.word
        rows.append((str(place.line) if place else "", one.obligation.condition, word, one.obligation.name))
    return section(title, Table(rows, ("line", "condition", "verdict", "obligation")))


def assumptions(judged: Judged) -> Section:
    """What a proof takes for granted."""
    made = (a for a in ASSUMPTIONS.values() if a.concerns(judged.program))
    lines = [f"{a.name}: not made; {a.without}" if a.name in judged.options.without else f"{a.name}: {a.says}" for a in made]
    return section("assumptions", Notes(lines))


def _counts(judged: Judged) -> str:
    proved = sum(1 for s in judged.settled if s.word == "proved")
    seconds = sum(s.seconds for s in judged.settled)
    solvers = {v.solver for s in judged.settled if (v := s.verdict) and hasattr(v, "solver") and s.word == "proved"}
    by = f" by {', '.join(sorted(solvers))}" if solvers else ""
    return f"{judged.word}: {proved} of {len(judged.settled)} obligations proved{by} in {1e3 * seconds:.0f} ms{_confirmed(judged)}"


def _confirmed(judged: Judged) -> str:
    """The runs that agree with a proof."""
    if judged.confirmed is None:
        return ""
    count = len(judged.confirmed.runs)
    fewer = f" with fewer {' and '.join(judged.confirmed.fewer)}" if judged.confirmed.fewer else ""
    return f", and {count} {'run agrees' if count == 1 else 'runs agree'}{fewer}"


def second_opinion(opinions: list[dict[str, str]]) -> Section:
    """What another solver says of the same queries."""
    lines = [f"silent: {o['query']}" for o in opinions if o["answer"] == "silent"]
    lines += [f"disagrees: {o['query']} ({o['answer']})" for o in opinions if o["answer"] not in ("unsat", "silent")]
    confirmed = sum(1 for o in opinions if o["answer"] == "unsat")
    return section(f"second opinion: cvc5 confirms {confirmed} of {len(opinions)} queries", Notes(lines))
