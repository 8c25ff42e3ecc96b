"""Terms of the prover: real-valued expressions over index sorts, with sums, kept in a normal form.

Build terms with the functions of this package alone; they apply the rules for sums (:mod:`.sums`) as they build.
"""

from placeproof.prove.terms.algebra import (
    ONE,
    ZERO,
    app,
    constant,
    inverse,
    lam,
    power,
    product,
    same,
    substitute,
    symbol,
    total,
)
from placeproof.prove.terms.cases import by_cases, choose, under
from placeproof.prove.terms.extrema import greatest
from placeproof.prove.terms.nodes import App, Fn, Greatest, Index, Lam, Mono, Paren, Poly, Sort, Sum, Sym, Var, fn, point

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
    "same",
    "substitute",
    "symbol",
    "total",
    "under",
]
