"""Terms of the prover: real-valued expressions over index sorts, with sums, kept in a normal form.

Build terms with the functions of this package alone; they apply the rules for sums (:mod:`.sums`) as they build.
"""

from placeproof.prove.terms.algebra import ONE, ZERO, constant, rewritten, same, substitute_index, symbol
from placeproof.prove.terms.nodes import App, Fn, Greatest, Index, Lam, Mono, Paren, Poly, Sort, Sum, Sym, Var, fn, point
from placeproof.prove.terms.said import (
    app,
    by_cases,
    choose,
    greatest,
    inverse,
    lam,
    power,
    product,
    substitute,
    total,
    under,
)

__all__ = [
    "ONE",
    "ZERO",
    "App",
    "Fn",
    "Greatest",
    "Index",
    "Lam",
    "Mono",
    "Paren",
    "Poly",
    "Sort",
    "Sum",
    "Sym",
    "Var",
    "app",
    "by_cases",
    "choose",
    "constant",
    "fn",
    "greatest",
    "inverse",
    "lam",
    "point",
    "power",
    "product",
    "rewritten",
    "same",
    "substitute",
    "substitute_index",
    "symbol",
    "total",
    "under",
]
