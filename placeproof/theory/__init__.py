"""Theorems: statements about costs and programs, each with its expected verdict, its source and its controls.

A file of theorems imports what it needs from here. Importing it proves nothing; ``placeproof check`` does.
"""

from placeproof.theory.blocks import block, refuted, wrong
from placeproof.theory.clauses import clause
from placeproof.theory.comparisons import compared, compared_model, numbers
from placeproof.theory.contracts import under
from placeproof.theory.domains import Count, Degree, Integer, Natural, NonNegative, Positive, Real
from placeproof.theory.exact import exact
from placeproof.theory.forms import algorithm, collective, crossover, schedule
from placeproof.theory.language import (
    GB,
    GiB,
    StatementError,
    absolute,
    byte,
    ceiling,
    chain,
    data,
    floor,
    indicator,
    maximum,
    minimum,
    recursive,
    second,
    sign,
    term,
    units,
)
from placeproof.theory.models import counted, exchange
from placeproof.theory.refinement import apart, refines
from placeproof.theory.refusals import refused
from placeproof.theory.statements import by_induction, derived, edited, holds, keeps, trains, without_call
from placeproof.theory.theorem import Open, Proved, Refuted, theorem
from placeproof.theory.work import operations, rounded, values_of

__all__ = [
    "GB",
    "Count",
    "Degree",
    "GiB",
    "Integer",
    "Natural",
    "NonNegative",
    "Open",
    "Positive",
    "Proved",
    "Real",
    "Refuted",
    "StatementError",
    "absolute",
    "algorithm",
    "apart",
    "block",
    "by_induction",
    "byte",
    "ceiling",
    "chain",
    "clause",
    "collective",
    "compared",
    "compared_model",
    "counted",
    "crossover",
    "data",
    "derived",
    "edited",
    "exact",
    "exchange",
    "floor",
    "holds",
    "indicator",
    "keeps",
    "maximum",
    "minimum",
    "numbers",
    "operations",
    "recursive",
    "refines",
    "refused",
    "refuted",
    "rounded",
    "schedule",
    "second",
    "sign",
    "term",
    "theorem",
    "trains",
    "under",
    "units",
    "values_of",
    "without_call",
    "wrong",
]
