"""Lowering claims to SMT-LIB 2: the one text that every solver is asked, and that ``--smtlib`` writes.

Index sorts become uninterpreted sorts, so that nothing fixes how many points they have. Each distinct sum, maximum and function
of index variables becomes a constant: equal ones have been given equal normal forms before, by the rules of
:mod:`placeproof.prove.terms`. A comment says what each stands for. No quantifier remains.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from placeproof.prove.claims import Equal, Equation, Given, Order, Query
from placeproof.prove.terms import App, Greatest, Index, Lam, Mono, Paren, Poly, Sort, Sum, Sym, Var, substitute
from placeproof.prove.terms.limit import spend
from placeproof.prove.terms.nodes import Argument, Atom


def queries(claim: Equation) -> tuple[Query, ...]:
    """The questions that together decide a claim: hypotheses satisfiable, no division by zero, no counterexample."""
    claim = eliminated(claim)
    asked = [satisfiable(claim.given)]
    if claim.divisors:
        script = _Script(claim.given)
        asked.append(script.undefined(claim.name, [f"(= {script.poly(d)} 0.0)" for d in claim.divisors]))
    script = _Script(claim.given)
    negation = f"(not (= {script.poly(claim.left)} {script.poly(claim.right)}))"
    return (*asked, script.query(claim.name, "unsat", negation, "the negation of the claim"))


def eliminated(claim: Equation) -> Equation:
    """The claim with every index variable that a hypothesis gives a value replaced by it, inside sums too.

    The hypotheses stay: they define what they eliminate. Only when the claim speaks of sums or functions is anything done; a claim
    without them is left to the solver as it stands.
    """
    meant: dict[str, Index] = {}
    for hypothesis in claim.given:
        if isinstance(hypothesis, Equal) and isinstance(hypothesis.left, Var) and hypothesis.left.name not in hypothesis.right.free:
            meant[hypothesis.left.name] = hypothesis.right
    if not meant or not any("sum[" in side.key or "[%" in side.key for side in (claim.left, claim.right)):
        return claim
    return replace(claim, left=substitute(claim.left, meant), right=substitute(claim.right, meant))


def satisfiable(given: tuple[Given, ...]) -> Query:
    """Whether hypotheses can hold together."""
    return _Script(given).query("the hypotheses do not contradict each other", "sat")


def number(value: Fraction) -> str:
    """A rational number as an SMT-LIB real."""
    size = f"{abs(value.numerator)}.0" if value.denominator == 1 else f"(/ {abs(value.numerator)}.0 {value.denominator}.0)"
    return f"(- {size})" if value < 0 else size


def joined(op: str, formulas: Iterable[str]) -> str:
    """One formula of at least one, by ``and`` or ``or``."""
    first, *rest = formulas
    return f"({op} {' '.join((first, *rest))})" if rest else first


#: The highest power of a term that a solver is told as a product; of a higher one it is told nothing.
_HIGHEST = 32


class Script:
    """Declarations and assertions, collected while terms are written."""

    def __init__(self) -> None:
        self.sorts: dict[str, str] = {}
        self.declared: dict[str, str] = {}
        self.asserted: list[str] = []

    def claim_that(self, formula: str, comment: str) -> None:
        """Assert a formula."""
        self.asserted.append(f"; {comment}\n(assert {formula})")

    def declare(self, name: str, arguments: list[str], result: str = "Real") -> str:
        """What a function is called, or a constant; it is declared."""
        for number in itertools.count(1):  # one name may stand for functions of several sorts
            shown = quoted((f"{name}/{len(arguments)}" if arguments else name) + (f" {number}" if number > 1 else ""))
            text = f"(declare-fun {shown} ({' '.join(arguments)}) {result})"
            if self.declared.setdefault(shown, text) == text:
                return shown
        raise AssertionError

    def query(self, name: str, expected: str, asked: str | None = None, comment: str = "") -> Query:
        """A question: the script, with one more assertion that is asked about, and the answer that is needed."""
        last = [f"; {comment}\n(assert {asked})"] if asked is not None else []
        head = ["(set-logic ALL)", f"(set-info :status {expected})", *(f"(declare-sort {s} 0)" for s in self.sorts.values())]
        script = "\n".join([*head, *self.declared.values(), *self.asserted, *last, "(check-sat)", ""])
        return Query(name=name, script=script, expected=expected)

    def undefined(self, name: str, zeros: list[str]) -> Query:
        """Whether a division of a claim may be undefined: in one of some ways."""
        return self.query(f"{name}: every division is defined", "unsat", joined("or", zeros), "something that is divided by is zero")


class _Script(Script):
    def __init__(self, given: Iterable[Given]) -> None:
        super().__init__()
        self.constants: dict[str, str] = {}
        for hypothesis in given:
            match hypothesis:
                case Order(name=name, left=left, relation=relation, right=right):
                    self.claim_that(f"({relation} {self.poly(left)} {self.poly(right)})", name)
                case Equal(name=name, left=a, right=b):
                    self.claim_that(f"(= {self.index(a)} {self.index(b)})", name)

    # Names.

    def sort(self, sort: Sort) -> str:
        return self.sorts.setdefault(sort.name, quoted(f"sort {sort.name}"))

    def _constant(self, key: str, prefix: str, sort: str, comment: str) -> str:
        if key not in self.constants:
            name = f"{prefix}{sum(1 for c in self.constants.values() if c.startswith(prefix))}"
            shown = comment if len(comment) <= LONGEST else comment[:LONGEST] + " ..."
            self.constants[key] = name
            self.declared[name] = f"; {name} is {shown}\n(declare-const {name} {sort})"
        return self.constants[key]

    # Terms.

    def index(self, index: Index) -> str:
        sort = self.sort(index.sort)
        if isinstance(index, Var):
            return self.declare(index.name, [], sort)
        arguments = [self.index(a) for a in index.args]
        name = self.declare(index.name, [self.sort(a.sort) for a in index.args], sort)
        return f"({name} {' '.join(arguments)})" if arguments else name

    def poly(self, poly: Poly) -> str:
        parts = [self._monomial(m, c) for m, c in poly.terms]
        return "0.0" if not parts else parts[0] if len(parts) == 1 else f"(+ {' '.join(parts)})"

    def _monomial(self, mono: Mono, coefficient: Fraction) -> str:
        factors = [p for atom, n in mono.factors for p in self._power(atom, n)]
        if coefficient != 1 or not factors:
            factors.insert(0, number(coefficient))
        value = factors[0] if len(factors) == 1 else f"(* {' '.join(factors)})"
        guards = [f"(= {self.index(a)} {self.index(b)})" for a, b in sorted(mono.guards, key=lambda g: (g[0].key, g[1].key))]
        if not guards:
            return value
        return f"(ite {joined('and', guards)} {value} 0.0)"

    def _power(self, atom: Atom, exponent: int) -> list[str]:
        if abs(exponent) > _HIGHEST:  # a solver would write it out, whatever its budget
            return [self._constant(f"{atom.key}^{exponent}", "power", "Real", f"{atom.key}^{exponent}")]
        base = self._atom(atom)
        spend(100 * len(base) * abs(exponent))  # a solver reads more slowly than terms are written
        return [base] * exponent if exponent > 0 else [f"(/ 1.0 {base})"] * -exponent

    def _atom(self, atom: Atom) -> str:
        match atom:
            case Sym(name=name):
                return self.declare(name, [])
            case App(name=name, args=args):
                written = [self._argument(a) for a in args]
                function = self.declare(name, [s for _, s in written])
                return f"({function} {' '.join(w for w, _ in written)})" if written else function
            case Sum():
                return self._constant(atom.key, "sum", "Real", atom.key)
            case Greatest():
                return self._constant(atom.key, "max", "Real", atom.key)
            case Paren(inside=inside):
                return self.poly(inside)

    def _argument(self, arg: Argument) -> tuple[str, str]:
        if isinstance(arg, Lam):
            sort = "|functions of " + " ".join(b.sort.name for b in arg.binders) + "|"
            self.sorts.setdefault(sort, sort)
            return self._constant(arg.key, "view", sort, arg.key), sort
        if isinstance(arg, Poly):
            return self.poly(arg), "Real"
        return self.index(arg), self.sort(arg.sort)


#: Longer comments are cut.
LONGEST = 2000
#: Words that mean something in SMT-LIB; a name that is one of them is written with a space after it.
RESERVED = frozenset(
    ("let", "as", "par", "forall", "exists", "match", "assert", "check", "true", "false", "not", "and", "or", "xor", "ite", "distinct",
     "abs", "div", "mod", "to_real", "to_int", "is_int", "Real", "Int", "Bool")
)  # fmt: skip


def quoted(name: str) -> str:
    """A name as an SMT-LIB symbol: another one for each name."""
    if name.rstrip() in RESERVED:
        return f"|{name} |"
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name) else f"|{name}|"
