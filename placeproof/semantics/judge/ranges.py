"""Ranges of degrees and micro-batches that a claim is restricted to."""

from __future__ import annotations

import re
from collections.abc import Iterable

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.programs import Program
from placeproof.prove.kernel import ask
from placeproof.prove.smtlib import satisfiable
from placeproof.semantics.encode.world import Range, World
from placeproof.semantics.resolve import resolve


def names(program: Program) -> tuple[str, ...]:
    """The symbols that a range may speak of: degrees that are not fixed, and the number of micro-batches."""
    world = World(resolve(program))
    sizes = [s.size for s in (*world.sorts.values(), world.batch)]
    return tuple(dict.fromkeys(s for s in sizes if isinstance(s, str)))


def read_ranges(texts: Iterable[str], program: Program) -> tuple[Range, ...]:
    """Read ranges. Raises InputError for those that cannot be read, and for ranges that contradict one another."""
    problems = Problems()
    known, ranges = names(program), []
    for text in texts:
        match = re.fullmatch(r"\s*(\w+)\s*(>=|<=|==|>|<)\s*(\d+)\s*", text)
        if match is None:
            problems.add("PP208", f"`{text}` is no range", help="for example `N_dp >= 2`")
        elif match[1] not in known:
            shown = ", ".join(f"`{n}`" for n in known) or "nothing: all degrees are fixed"
            axis = World(resolve(program)).sorts.get(match[1])
            called = f"the degree of `{match[1]}` is called `{axis.size}`" if axis is not None and axis.size in known else None
            hint = called or suggestion(match[1], known) or f"a range may speak of {shown}"
            problems.add("PP208", f"`{match[1]}` is no degree of this program", help=hint)
        else:
            ranges.append(Range(name=match[1], relation=match[2], bound=int(match[3])))
    problems.raise_if_any()
    least = [Range(name=n, relation=">=", bound=1) for n in known]
    if ranges and ask(satisfiable(tuple(r.given for r in (*least, *ranges)))) == "unsat":
        shown = ", ".join(str(r) for r in ranges)
        problems.add("PP208", f"no degree satisfies {shown}: the ranges contradict one another", help="degrees are at least 1")
    problems.raise_if_any()
    return tuple(ranges)


__all__ = ["Range", "names", "read_ranges"]
