"""What the rule of composition says of a step, in words and as JSON data."""

from __future__ import annotations

from collections import Counter
from typing import Any

from placeproof.prove import Proved
from placeproof.prove.composition import Derivation
from placeproof.report.document import Lines, Notes, Section, Table, section
from placeproof.semantics.composition import RULE, Composed


def data(opinion: Composed) -> dict[str, Any]:
    """What ``--second-opinion composition`` has to say, as data."""
    if not opinion.proved or opinion.base is None:
        return {"proved": False, "why": opinion.why, "line": opinion.place.line if opinion.place else None}
    proved = [s for s in opinion.base.settled if isinstance(s.verdict, Proved)]
    return {
        "proved": True,
        "begins_with": [a.name for a in opinion.base.program.axes],
        "obligations": len(proved),
        "factors": [{"axes": list(names), "clauses": _clauses(factor.derivations)} for names, factor in opinion.factors],
        "assumptions": list(opinion.assumed),
    }


def _clauses(derivations: tuple[Derivation, ...]) -> dict[str, int]:
    """How often each clause is used, in the order of the rule."""
    used = Counter(use.clause for d in derivations for use in d.uses)
    return {clause.name: used[clause.name] for clause in RULE if clause.name in used}


def shown(opinion: dict[str, Any]) -> Section:
    """The same in words."""
    if not opinion["proved"]:
        where = f" (line {opinion['line']})" if opinion["line"] else ""
        return section(f"second opinion: the rule of composition does not decide this: {opinion['why']}{where}")
    over = {clause.name: clause.op for clause in RULE if clause.role == "over"}
    begin = " and ".join(f"`{axis}`" for axis in opinion["begins_with"])
    lines = [f"{'On ' + begin + ' alone' if begin else 'On one device'} the step is proved: {opinion['obligations']} obligations."]
    lines.append("On each other axis it is well-typed, so that the axis may be put on:")
    rows = []
    for factor in opinion["factors"]:
        used = factor["clauses"]
        exchanges = ", ".join(dict.fromkeys(over[name] for name in used if name in over)) or "-"
        rows.append([", ".join(factor["axes"]), str(sum(used.values())), str(len(used)), exchanges])
    table = Table(rows, head=["axis", "uses", "clauses", "over it"], right=[1, 2])
    assumed = Notes([f"clauses that were used take for granted: {', '.join(opinion['assumptions'])}"] if opinion["assumptions"] else [])
    return section("second opinion: right by the rule of composition, too", Lines(lines), table, assumed)
