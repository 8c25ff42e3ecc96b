"""Tables of what a proof assumes, and the programs that are refuted, each with the condition that really breaks."""

from __future__ import annotations

from pipe_tables import block, code, plain, table

from placeproof.programs.assumptions import ASSUMPTIONS
from placeproof.programs.header import REFERENCE
from placeproof.semantics.catalogue import about, not_equivalent, read_not_equivalent
from placeproof.semantics.judge.verdict import judge


def assumptions() -> str:
    """The assumptions, and what holds instead of those that can be dropped."""
    rows = [(code(a.name), plain(a.says), "yes" if a.without is not None else "no", plain(a.without or "")) for a in ASSUMPTIONS.values()]
    return table(["assumption", "says", "can be dropped", "if it is dropped"], rows)


def reference_options() -> str:
    """The options of the header line ``reference``, the first value of each being the usual one."""
    rows = [(code(name), code(values[0]), ", ".join(code(v) for v in values[1:])) for name, values in REFERENCE.items()]
    return table(["option", "if it is not given", "other values"], rows)


def refuted() -> str:
    """The programs that are not equivalent."""
    return "\n".join(_program(name) for name in not_equivalent())


def _program(name: str) -> str:
    judged = judge(read_not_equivalent(name))
    parts = [f"## {name}\n", f"{plain(about(name))}\n"]
    if judged.about is not None:
        line = f", line {judged.about.place.line}" if judged.about.place is not None else ""
        parts.append(f"{judged.word.capitalize()}: {judged.about.condition} is broken{line}. {_claim(judged.about.name)}\n")
    text = not_equivalent()[name].read_text(encoding="utf-8")
    return "\n".join([*parts, block(text, "python")])


def _claim(name: str) -> str:
    return f"It does not hold that {plain(name)}."
