"""A judgement as text: proved with its obligations, refuted with numbers to check by hand, or unknown with what was tried."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from placeproof.core.diagnostics import Place
from placeproof.programs import Resolved
from placeproof.programs.assumptions import ASSUMPTIONS
from placeproof.prove import Unknown
from placeproof.report.diagnostics import excerpt
from placeproof.semantics import tensors
from placeproof.semantics.judge.explain import explain
from placeproof.semantics.judge.verdict import Judged, Settled
from placeproof.semantics.meaning import Fault
from placeproof.semantics.meaning.script import inputs, missing, shown_pair, what_differs

_MOST_INPUTS = 12


def judgement(subject: str, judged: Judged) -> str:
    """Everything that was found out about a program."""
    blocks = [opening(subject, judged)]
    blocks += [obligations(judged.settled)] if judged.settled else []
    blocks += [assumptions(judged)] if not judged.program.tensors else []
    blocks += [[f"warning: {text}{_line(place)}"] for text, place in judged.warnings]
    return "\n\n".join("\n".join(b) for b in [*blocks, [_counts(judged)]]) + "\n"


def opening(subject: str, judged: Judged) -> list[str]:
    """The verdict: for what it is proved, the numbers that refute it, or why it is unknown."""
    return {"proved": _proved, "refuted": _refuted, "unknown": _unknown}[judged.word](subject, judged)


def _line(place: Place | None) -> str:
    return f" (line {place.line})" if place is not None else ""


def for_all(judged: Judged) -> str:
    """For which degrees something is proved."""
    fixed = [f"{a.name} = {a.degree}" for a in judged.program.axes if a.degree is not None]
    fixed += [f"{name} = {n}" for name, n in judged.program.counts if name == "microbatches"]
    return ", ".join([*judged.for_all, *fixed]) or "one device"


def _proved(subject: str, judged: Judged) -> list[str]:
    if judged.program.tensors:
        return [
            f"{subject}: proved for {for_all(judged)}",
            "Every device returns what one device computes: for all of these degrees, any sizes of the dimensions (parts may be uneven),",
            "any numbers, and any elementwise functions. Gradients are derivatives.",
        ]
    return [
        f"{subject}: proved for {for_all(judged)}",
        "One step on the mesh leaves every device with what one device computes from the whole global batch: for all of these",
        "degrees, any model, any samples, and shards of any sizes (who owns an element is an arbitrary function).",
    ]


def _refuted(subject: str, judged: Judged) -> list[str]:
    assert judged.found is not None
    about = judged.about
    lines = [f"{subject}: refuted"]
    if about is not None:
        lines += ["", f"error: {about.condition} is broken"]
        lines += excerpt(about.place) if about.place is not None else []
        lines.append(f"   = it does not hold that {about.name}")
    if isinstance(judged.found, tensors.Found):
        return lines + _of_tensors(judged.program, judged.found)
    setup, what = judged.found.setup, judged.found.what
    mesh = ", ".join([*(f"{axis} = {n}" for axis, n in setup.degrees.items()), f"micro-batches = {setup.microbatches}"])
    if isinstance(what, Fault):
        where = "; ".join(", ".join(f"{a} = {n}" for a, n in d.items()) for d in what.devices[:4])
        return [*lines, f"   = counterexample: {mesh} (replayed exactly)", f"   = {what.words}: {where}", *_explained(judged)]
    lines.append(f"   = counterexample: {mesh} (replayed exactly)")
    if what.actual is None:
        return [*lines, f"   = {missing(what)}", *_explained(judged)]
    expected, actual = shown_pair(what)
    lines.append(f"   = {what_differs(what)}: expected {expected}, actual {actual}")
    lines += _explained(judged)
    return lines + _inputs(inputs(judged.program, setup))


def _explained(judged: Judged) -> list[str]:
    said, left = explain(judged.program, judged.options.without)
    lines = [f"   =   line {one.line}: `{one.name}` is {one.holds}" for one in left]
    return [*([f"   = {said}"] if said is not None else []), *(["   = what lines leave of the gradient", *lines] if len(lines) > 1 else [])]


def _of_tensors(program: Resolved, found: tensors.Found) -> list[str]:
    """A run of a program over tensors."""
    sizes = [f"{name} = {n}" for name, n in (*found.setup.degrees.items(), *found.setup.sizes.items())]
    lines = [f"   = counterexample: {', '.join(sizes)} (replayed exactly)", f"   = {found.words}"]
    return lines + _inputs(tensors.inputs(program, found.setup))


def _inputs(found: dict[str, Fraction]) -> list[str]:
    shown = [f"   =   {name}: {value}" for name, value in list(found.items())[:_MOST_INPUTS]]
    left = len(found) - _MOST_INPUTS
    if left > 0:
        shown.append(f"   =   and {left} more; `--replay-script FILE` writes the whole computation")
    return ["   = it begins with", *shown] if shown else []


def _unknown(subject: str, judged: Judged) -> list[str]:
    lines = [f"{subject}: unknown", f"neither proved nor refuted: {judged.why}"]
    if judged.about is not None and judged.about.place is not None:
        lines += [f"{judged.about.condition}: {judged.about.name}", *excerpt(judged.about.place)]
    return lines


def obligations(settled: Iterable[Settled]) -> list[str]:
    """A table of obligations."""
    rows = [("line", "condition", "verdict", "obligation")]
    for one in settled:
        place = one.obligation.place
        word = "suspected" if isinstance(one.verdict, Unknown) and one.verdict.suspected else one.word
        rows.append((str(place.line) if place else "", one.obligation.condition, word, one.obligation.name))
    widths = [max(len(r[i]) for r in rows) for i in range(3)]
    return ["obligations", *("  " + "  ".join([*(c.ljust(w) for c, w in zip(r, widths, strict=False)), r[3]]).rstrip() for r in rows)]


def assumptions(judged: Judged) -> list[str]:
    """What a proof takes for granted."""
    lines = ["assumptions"]
    for one in (a for a in ASSUMPTIONS.values() if a.concerns(judged.program)):
        if one.name in judged.options.without:
            lines.append(f"  {one.name}: not made; {one.without}")
        else:
            lines.append(f"  {one.name}: {one.says}")
    return lines


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
    fewer = " on fewer devices" if judged.confirmed.smaller else ""
    return f", and {count} {'run agrees' if count == 1 else 'runs agree'}{fewer}"


def second_opinion(opinions: list[dict[str, str]]) -> str:
    """What another solver says of the same queries."""
    silent = [o["query"] for o in opinions if o["answer"] == "silent"]
    lines = [f"second opinion: cvc5 confirms {sum(1 for o in opinions if o['answer'] == 'unsat')} of {len(opinions)} queries"]
    lines += [f"  silent: {name}" for name in silent]
    lines += [f"  disagrees: {o['query']} ({o['answer']})" for o in opinions if o["answer"] not in ("unsat", "silent")]
    return "\n" + "\n".join(lines) + "\n"
