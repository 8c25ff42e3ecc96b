"""The page of the rules that frameworks enforce: their kinds, what each came to, and where systems disagree."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from pipe_tables import code, formula, plain, table

from placeproof.framework_rules import MEANINGS, SYSTEMS, Rule, RuleKind, of_system, rules
from placeproof.framework_rules.evidence import Compared, Verdict, agreement, examine
from placeproof.framework_rules.questions import Question, questions
from placeproof.report.framework_rules import facts, witness

_RECORD = Path(__file__).parent.parent.parent / "tests" / "data" / "validator_grid.json"


def kinds() -> str:
    """What each kind means."""
    return table(["kind", "means"], [(kind.value, plain(meaning)) for kind, meaning in MEANINGS.items()])


def counts() -> str:
    """How many rules of each kind each system has."""
    found = Counter((rule.system, rule.kind) for rule in rules().values())
    rows = [[title, *(str(found[key, kind]) for kind in RuleKind), str(len(of_system(key)))] for key, title in SYSTEMS.items()]
    total = Counter(rule.kind for rule in rules().values())
    rows.append(["all", *(str(total[kind]) for kind in RuleKind), str(len(rules()))])
    return table(["system", *(kind.value for kind in RuleKind), "all"], rows)


def listed() -> str:
    """Every rule with its kind and our reason."""
    return "\n".join(f"### {title}\n\n{_of(key)}" for key, title in SYSTEMS.items())


def _of(system: str) -> str:
    rows = [(code(r.id), r.kind.value, f"{plain(r.says)}: {code(r.formula.text)}", plain(r.why)) for r in of_system(system)]
    return table(["rule", "kind", "says", "why it is of this kind"], rows)


def witnesses() -> str:
    """Of each semantic rule, the run that refutes a step which breaks it."""
    rows = [(code(rule.id), plain(v.subject), plain(witness(v.judged))) for rule in _kind(RuleKind.SEMANTIC) for v in _refuted(rule)]
    return table(["rule", "a step that breaks it", "refuted by"], rows)


def _kind(kind: RuleKind) -> list[Rule]:
    return [rule for rule in rules().values() if rule.kind is kind]


def _refuted(rule: Rule) -> list[Verdict]:
    return [v for v in examine(rule) if isinstance(v, Verdict) and v.judged.word == "refuted"]


def prices() -> str:
    """What a step that breaks a rule costs more than one that keeps it."""
    found = [(rule, one) for rule in _kind(RuleKind.COST) for one in examine(rule) if isinstance(one, Compared) and one.pair.key]
    rows = [
        (code(r.id), code(c.pair.of), code(c.pair.against), plain(c.pair.key.partition(".")[2]), formula(c.differences[c.pair.key]))
        for r, c in found
    ]
    return table(["rule", "costs more", "than", "in", "by, in bytes"], rows)


def differences() -> str:
    """Rules that refuse more than our line, or less."""
    rows = []
    for rule in rules().values():
        if rule.line is None:
            continue
        found = agreement(rule.formula, rule.line)
        if found.stricter and rule.line.stricter is not None:
            rows.append((code(rule.id), "more", rule.line.stricter.value, facts(found.stricter[0]), plain(rule.line.stricter_why)))
        if found.looser:
            rows.append((code(rule.id), "less", "", facts(found.looser[0]), plain(rule.line.looser_why)))
    return table(["rule", "refuses", "a matter of", "for example", "why"], rows)


def disagreements() -> str:
    """The questions on which systems disagree."""
    return "\n".join(map(_question, questions().values()))


def _question(question: Question) -> str:
    asked = question.asks[:1].upper() + question.asks[1:]
    rows = [(plain(a.title), plain(a.says)) for a in question.answers]
    parts = [f"### {asked}\n", f"{plain(question.says)}\n", table(["system", "answers"], rows)]
    parted = [(facts(p.facts), plain(p.allows.title), plain(p.refuses.title)) for p in question.parted()]
    return "\n".join([*parts, table(["where they differ", "allowed by", "refused by"], parted)])


def validators() -> str:
    """What was recorded of the systems' own validators."""
    grids = json.loads(_RECORD.read_text(encoding="utf-8"))["grids"]
    rows = [
        (name, f"{g['package']} {g['version']}", str(g["configurations"]), str(g["accepted"]), str(g["disagreements"]))
        for name, g in grids.items()
    ]
    rows.append(("all", "", *(str(sum(g[key] for g in grids.values())) for key in ("configurations", "accepted", "disagreements"))))
    return table(["grid", "validator", "configurations", "accepted", "disagreements"], rows)
