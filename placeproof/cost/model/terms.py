"""The terms of a step's time, which :mod:`placeproof.cost.model.time` has, by names: each can be left out, to see what it is worth."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from placeproof.core.diagnostics import Problems, suggestion


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A term. ``text``: what it says; ``left_out``: what is said in its place. ``kernels``: it is there where time is counted by kernels
    alone."""

    name: str
    text: str
    left_out: str
    kernels: bool = False


_ROWS = (
    Term(name="rate", text="products of matrices run at the rate that they reach", left_out="at the device's peak", kernels=True),
    Term(
        name="mask", text="attention that is one kernel skips what a causal mask leaves out", left_out="it computes all of it", kernels=True
    ),
    Term(name="moved", text="what is no product of matrices takes the bytes that it moves", left_out="it moves none", kernels=True),
    Term(name="memory", text="kernels reach a part of the memory's bandwidth", left_out="all that is printed", kernels=True),
    Term(
        name="kernels", text="each kernel that is no product, and each exchange, takes a fixed time besides", left_out="none", kernels=True
    ),
    Term(name="launches", text="a pass takes no less than the launches of its kernels", left_out="launches take no time", kernels=True),
    Term(name="links", text="exchanges reach a part of the links' bandwidth", left_out="all that is printed", kernels=True),
    Term(name="exchanges", text="exchanges of activations within a stage", left_out="they take no time"),
    Term(name="messages", text="messages between stages", left_out="they take no time"),
    Term(name="gradients", text="exchanges of parameters and gradients", left_out="they take no time"),
    Term(name="update", text="the update of the parameters", left_out="it takes no time"),
    Term(name="recomputation", text="backward computes again what was not kept", left_out="it takes no time"),
    Term(name="ends", text="embedding, head and loss compute on their stages", left_out="they compute nothing"),
    Term(name="bubble", text="stages wait for one another", left_out="the slowest one never waits"),
)
#: By name.
TERMS: Mapping[str, Term] = {row.name: row for row in _ROWS}


def require_terms(names: Collection[str], *, by_kernels: bool) -> None:
    """Raise InputError with every name that is no term's, and with every term that is not there where time is not counted by kernels."""
    problems = Problems()
    for name in names:
        if name not in TERMS:
            problems.add(
                "PP101", f"a step's time has no term `{name}`", help=suggestion(name, TERMS) or f"its terms are {', '.join(TERMS)}"
            )
        elif TERMS[name].kernels and not by_kernels:
            help = "leave the efficiency out, on a cluster that says what kernels reach"
            problems.add("PP104", f"term `{name}` is there where a step is timed by kernels, and here it is not", help=help)
    problems.raise_if_any()
