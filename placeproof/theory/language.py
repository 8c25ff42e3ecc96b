"""The language of statements: terms that remember what they were divided by, relations between them, and functions.

Terms look like numbers. ``a <= b``, ``a == b`` and so on are statements, not truth values.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from placeproof.core.bounds import MOST_EXPONENT, within
from placeproof.prove.relations import Cases, Definition, Relation, applied
from placeproof.theory.units import plain, powers, units_in, usual

if TYPE_CHECKING:
    import sympy

Number: TypeAlias = "Term | int | Fraction"


class StatementError(Exception):
    """A statement that cannot be understood. Each message says what to write instead."""

    def __str__(self) -> str:
        return "; ".join(map(str, self.args))


class Origin(NamedTuple):
    """What of the product a term is made of. ``source``: what it is derived from, whatever that is called: the text of a program.

    ``about``: which of the product's own it is: ``program``, ``table NAME``, ``order NAME`` of a schedule, ``rounds NAME`` of an algorithm,
    ``code NAME``, or ``form NAME`` of a closed form, as :mod:`placeproof.theory.forms` names it.
    """

    label: str
    expr: sympy.Expr
    source: str
    about: str = "program"


def _operator(compute: Callable[[Any, Any], Any]) -> tuple[Callable[[Term, Number], Term], Callable[[Term, Number], Term]]:
    """An operation of two terms, and the same with its operands exchanged."""
    return lambda a, b: _joined(compute, [a, term(b)]), lambda a, b: _joined(compute, [term(b), a])


class Term:
    """An expression. ``divisors``: everything it was divided by; ``origins``: the derived quantities that it is made of.

    ``shown`` is the expression with each derived quantity as a symbol of that name: what was written, and not what came out of it.
    """

    __slots__ = ("divisors", "expr", "functions", "origins", "shown")

    def __init__(
        self,
        expr: sympy.Expr,
        divisors: tuple[sympy.Expr, ...] = (),
        origins: frozenset[Origin] = frozenset(),
        functions: frozenset[Function] = frozenset(),
        shown: sympy.Expr | None = None,
    ) -> None:
        self.expr = expr
        self.divisors = divisors
        self.origins = origins
        self.functions = functions
        self.shown = expr if shown is None else shown

    def __truediv__(self, other: Number) -> Term:
        below = term(other)
        if below.expr == 0:
            raise StatementError(f"{self.expr} is divided by zero")
        quotient = _joined(operator.truediv, [self, below])
        quotient.divisors = tuple(dict.fromkeys((*quotient.divisors, below.expr)))
        return quotient

    __add__, __radd__ = _operator(operator.add)
    __sub__, __rsub__ = _operator(operator.sub)
    __mul__, __rmul__ = _operator(operator.mul)

    def __floordiv__(self, other: Number) -> Term:
        return floor(self / other)

    def __rtruediv__(self, other: Number) -> Term:
        return term(other) / self

    def __neg__(self) -> Term:
        return term(0) - self

    def __pow__(self, exponent: int) -> Term:
        if not isinstance(exponent, int):
            raise StatementError("an exponent is a whole number; define other powers by recursion")
        if abs(exponent) > MOST_EXPONENT:
            raise StatementError(f"an exponent is at most {MOST_EXPONENT}, not {exponent:.3g}; define other powers by recursion")
        if exponent < 0:
            return 1 / self**-exponent
        return _joined(lambda base: base**exponent, [self])

    def where(self, **values: Number) -> Term:
        """The term with symbols replaced, all at once: ``derived("zero3").sent.where(N=2 * N)``. A number has the symbol's usual units."""
        import sympy

        put = {sympy.Symbol(name): value if isinstance(value, Term) else _in_units(value, name) for name, value in values.items()}
        exprs = {symbol: value.expr for symbol, value in put.items()}
        inside = ", ".join(f"{name}={value.shown}" for name, value in zip(values, put.values(), strict=True))
        renamed = {sympy.Symbol(o.label): sympy.Symbol(f"{o.label} at {inside}") for o in self.origins}
        origins = frozenset(Origin(f"{o.label} at {inside}", o.expr.xreplace(exprs), f"{o.source} at {put}", o.about) for o in self.origins)
        shown = self.shown.xreplace({**renamed, **{symbol: value.shown for symbol, value in put.items()}})
        divisors = tuple(d.xreplace(exprs) for d in self.divisors)
        functions = self.functions.union(*(value.functions for value in put.values()))
        return Term(self.expr.xreplace(exprs), divisors, origins.union(*(v.origins for v in put.values())), functions, shown)

    def __le__(self, other: Number) -> Goal:
        return Goal(self, "<=", term(other))

    def __lt__(self, other: Number) -> Goal:
        return Goal(self, "<", term(other))

    def __ge__(self, other: Number) -> Goal:
        return Goal(term(other), "<=", self)

    def __gt__(self, other: Number) -> Goal:
        return Goal(term(other), "<", self)

    def __eq__(self, other: object) -> Goal:  # type: ignore[override]
        return Goal(self, "==", term(other))

    def __ne__(self, other: object) -> Goal:  # type: ignore[override]
        return Goal(self, "!=", term(other))

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise StatementError("a term has no truth value; state a relation, or write `maximum` and `minimum`")

    def __repr__(self) -> str:
        return str(self.shown)


class Goal:
    """A relation between two terms."""

    __slots__ = ("left", "op", "right")

    def __init__(self, left: Term, op: str, right: Term) -> None:
        self.left, self.op, self.right = left, op, right

    def relation(self) -> Relation:
        """What the prover is asked."""
        divisors = dict.fromkeys(map(plain, (*self.left.divisors, *self.right.divisors)))
        return Relation(plain(self.left.expr), self.op, plain(self.right.expr), tuple(divisors))

    def relations(self) -> tuple[Relation, ...]:
        """All relations that it speaks of."""
        return (self.relation(),)

    def fact(self) -> Relation | Cases:
        """What is claimed, for the prover."""
        return self.relation()

    def measured(self) -> Relation:
        """The relation with its units."""
        return Relation(self.left.expr, self.op, self.right.expr)

    def units(self) -> set[str]:
        """The units that it is written with."""
        return units_in((self.left.expr, self.right.expr))

    def functions(self) -> frozenset[Function]:
        """The functions that it speaks of."""
        return self.left.functions | self.right.functions

    def written(self) -> Relation:
        """The relation as it was written, with derived quantities by their names."""
        return Relation(self.left.shown, self.op, self.right.shown)

    def where(self) -> dict[str, sympy.Expr]:
        """The derived quantities that it speaks of, by the symbols that stand for them."""
        written = {str(s) for side in (self.left, self.right) for s in side.shown.free_symbols}
        origins = sorted(self.left.origins | self.right.origins, key=lambda origin: origin.label)
        return {origin.label: origin.expr for origin in origins if origin.label in written}

    def origins(self) -> frozenset[Origin]:
        """What of the product it is made of."""
        return self.left.origins | self.right.origins

    def trivial(self) -> bool:
        """Whether both sides are the same text, and are derived from the same texts, whatever these are called."""
        left, right = ({origin.source for origin in side.origins} for side in (self.left, self.right))
        return bool(self.left.expr == self.right.expr) and left == right

    def __bool__(self) -> bool:
        raise StatementError(
            "a relation is a statement, not a truth value: return several as a list, `[a == b, c <= d]`, in place of `and`; "
            "`a <= b <= c` is written chain('<=', a, b, c)"
        )

    def __repr__(self) -> str:
        return str(self.written())


def term(value: object) -> Term:
    """A number, a SymPy expression or a term as a term. Raises StatementError for floating point and anything else."""
    import sympy

    if isinstance(value, Term):
        return value
    if isinstance(value, bool | float):
        raise StatementError(f"{value!r} is no exact number; write a Fraction or a quotient of terms")
    if isinstance(value, int | Fraction):
        exact = Fraction(value)
        if not within(exact):
            raise StatementError("no number of a theorem is greater than 1e100, or less than 1e-100; define it by recursion")
        return Term(sympy.Rational(exact.numerator, exact.denominator))
    if isinstance(value, sympy.Expr):
        return Term(value)
    raise StatementError(f"{value!r} is no term")


def taken(expr: sympy.Expr, label: str, source: str, about: str) -> Term:
    """A quantity of the product as a term, which remembers what it is. Where it divides by zero it is not defined, whatever cancels."""
    import sympy

    divisors = Relation(expr, "==", expr).all_divisors()
    origin = Origin(label, expr, source, about)
    return Term(expr, divisors, origins=frozenset({origin}), shown=sympy.Symbol(label))


def units(text: str) -> Term:
    """One of some units, ``units("byte / parameter")``: a number to the prover, and what it says to the check of dimensions."""
    import sympy

    from placeproof.theory.domains import dimension_of

    return Term(powers(dimension_of(text)), shown=sympy.Symbol(text))


class Amount(Term):
    """A number of a unit that has a name, such as ``GB``: a term, of which nothing is made before somebody uses it."""

    __slots__ = ("_name", "_number", "_of")

    def __init__(self, name: str, number: int, of: str) -> None:
        self._name, self._number, self._of = name, number, of
        self.divisors, self.origins, self.functions = (), frozenset(), frozenset()

    @property
    def expr(self) -> sympy.Expr:
        """The number, in units."""
        return self._number * units(self._of).expr

    @property
    def shown(self) -> sympy.Expr:
        """The name."""
        import sympy

        return sympy.Symbol(self._name)


byte, GB, GiB, second = Amount("byte", 1, "byte"), Amount("GB", 10**9, "byte"), Amount("GiB", 2**30, "byte"), Amount("second", 1, "second")


def _in_units(value: object, name: str) -> Term:
    """A number that takes the place of a symbol, in the units that the symbol usually has."""
    number = term(value)
    return Term(number.expr * powers(usual(name)), shown=number.expr)


def maximum(*values: Number) -> Term:
    """The greatest of some terms."""
    return _of("Max", values)


def minimum(*values: Number) -> Term:
    """The least of some terms."""
    return _of("Min", values)


def sign(value: Number) -> Term:
    """-1, 0 or 1."""
    return _of("sign", (value,))


def absolute(value: Number) -> Term:
    """The absolute value."""
    return _of("Abs", (value,))


def floor(value: Number) -> Term:
    """The greatest integer that is not above."""
    return _of("floor", (value,))


def ceiling(value: Number) -> Term:
    """The least integer that is not below."""
    return _of("ceiling", (value,))


def indicator(left: Number, right: Number) -> Term:
    """1 where two terms are equal, 0 elsewhere."""
    return _of("KroneckerDelta", (left, right))


def _of(name: str, values: Iterable[Number]) -> Term:
    import sympy

    return _joined(getattr(sympy, name), [term(v) for v in values])


def _joined(make: Callable[..., Any], terms: list[Term]) -> Term:
    """A term made of others: what they were divided by, derived from, and speak of is what it is, too."""
    expr = make(*(t.expr for t in terms))
    shown = make(*(t.shown for t in terms)) if any(t.shown is not t.expr for t in terms) else expr
    divisors = tuple(dict.fromkeys(itertools.chain.from_iterable(t.divisors for t in terms)))
    origins: frozenset[Origin] = frozenset().union(*(t.origins for t in terms))
    functions: frozenset[Function] = frozenset().union(*(t.functions for t in terms))
    return Term(expr, divisors, origins, functions, shown)


def chain(op: str, *terms: Number) -> tuple[Goal, ...]:
    """``a <= b <= c`` as its links."""
    made = [term(t) for t in terms]
    if len(made) < 2 or op not in ("<=", "<", "==", ">=", ">"):
        raise StatementError("a chain needs one of <=, <, ==, >=, > and two terms or more")
    if op in (">=", ">"):
        made, op = made[::-1], "<=" if op == ">=" else "<"
    return tuple(Goal(a, op, b) for a, b in itertools.pairwise(made))


class Function:
    """A function of integers. Arbitrary, unless it is a :class:`Recursive` one."""

    def __init__(self, name: str, arity: int | None = None, period: str | None = None) -> None:
        if not name.isidentifier():
            raise StatementError(f"{name!r} is no name of a function")
        self.name = name
        self.arity = arity
        self.period = period

    def __call__(self, *args: Number) -> Term:
        """The function at some arguments. Raises StatementError for a wrong number of them."""
        import sympy

        if self.arity is not None and len(args) != self.arity:
            raise StatementError(f"{self.name} takes {self.arity} arguments, not {len(args)}")
        terms = [term(a) for a in args]
        made = _joined(sympy.Function(self.name), terms)
        made.functions |= {self}
        return made


class Recursive(Function):
    """A function defined by recursion on one of its parameters."""

    def __init__(
        self, rule: Callable[..., tuple[Number, Number]], on: str, start: Number | Callable[..., Number], reals: tuple[str, ...] = ()
    ) -> None:
        code = rule.__code__
        self.params = code.co_varnames[: code.co_argcount]
        super().__init__(rule.__name__, len(self.params))
        missing = [name for name in (on, *reals) if name not in self.params]
        if missing or on in reals:
            raise StatementError(f"{self.name} has no parameter `{(missing or [on])[0]}` of integers to recur on")
        self.integers = tuple(p for p in self.params if p not in reals)
        self.rule, self.on, self._start = rule, on, start
        self._made: tuple[Definition, frozenset[Function]] | None = None

    def definition(self) -> tuple[Definition, frozenset[Function]]:
        """The definition, and the functions that it speaks of. Raises StatementError if it is not well-founded."""
        if self._made is None:
            import sympy

            symbols = {p: Term(sympy.Symbol(p)) for p in self.params}
            start = self._start
            if callable(start) and not isinstance(start, Term):
                code = start.__code__
                start = start(*(symbols[p] for p in code.co_varnames[: code.co_argcount]))
            begin, (first, later) = term(start), self.rule(*symbols.values())
            base, step = term(first), term(later)
            try:
                made = Definition(
                    name=self.name, params=self.params, on=self.on, start=begin.expr, base=plain(base.expr), step=plain(step.expr),
                    divisors_of_base=tuple(map(plain, base.divisors)), divisors_of_step=tuple(map(plain, step.divisors)),
                )  # fmt: skip
            except ValueError as error:
                raise StatementError(str(error)) from error
            functions = begin.functions | base.functions | step.functions
            for expr in (begin.expr, *_integer_arguments((base.expr, step.expr), functions)):
                if not integral(expr, set(self.integers)):
                    raise StatementError(f"{self.name}: {expr} has to be an integer there")
            self._made = made, functions - {self}
        return self._made

    def integer_arguments(self, call: sympy.Expr) -> list[sympy.Expr]:
        """The arguments of an application that have to be integers."""
        return [a for p, a in zip(self.params, call.args, strict=True) if p in self.integers]


def data(name: str, arity: int = 1, *, period: str | None = None) -> Function:
    """An arbitrary function of integers: what devices hold at the beginning, say. A theorem about it holds for every such function.

    ``period``: the symbol after which its first argument repeats, as on a ring. It changes only how examples are drawn. That the
    function repeats has to be a hypothesis of the statement.
    """
    return Function(name, arity, period)


def recursive(
    *, on: str, start: Number | Callable[..., Number] = 0, reals: tuple[str, ...] = ()
) -> Callable[[Callable[..., tuple[Number, Number]]], Recursive]:
    """Define a function by recursion: the decorated rule returns its first value, at ``on == start``, and its later ones.

    A later one may speak of the function at ``on - 1``::

        @recursive(on="n")
        def triangle(n):
            return 0, triangle(n - 1) + n

    Parameters are integers, but for those named in ``reals``. ``start`` is a number, or a function of other parameters.
    """
    return lambda rule: Recursive(rule, on, start, reals)


def integral(expr: sympy.Expr, integers: set[str]) -> bool:
    """Whether an expression is an integer for its form wherever the symbols named are: a polynomial with integer coefficients in them, in
    what is rounded, and in the greatest, the least and the absolute value of such."""
    import sympy

    if expr.is_number:
        return bool(expr.is_Integer)
    named = {str(s) for s in expr.free_symbols}
    if expr.is_polynomial(*expr.free_symbols) and not expr.has(sympy.Function, sympy.Max, sympy.Min):
        return named <= integers and all(c.is_Integer for c in sympy.Poly(expr, *sorted(expr.free_symbols, key=str)).coeffs())
    if expr.func.__name__ in ("floor", "ceiling", "sign", "KroneckerDelta"):
        return True
    if expr.is_Pow and not (expr.exp.is_Integer and expr.exp.is_nonnegative):
        return False
    parts = expr.args[:1] if expr.is_Pow else expr.args
    composed = expr.is_Add or expr.is_Mul or expr.is_Pow or expr.func.__name__ in ("Max", "Min", "Abs")
    return bool(composed) and all(integral(part, integers) for part in parts)


def integer_arguments(relation: Relation, functions: Iterable[Function]) -> list[sympy.Expr]:
    """What has to be an integer in a relation: arguments of functions that are defined by recursion."""
    return _integer_arguments((relation.left, relation.right, *relation.divisors), functions)


def _integer_arguments(expressions: Iterable[sympy.Expr], functions: Iterable[Function]) -> list[sympy.Expr]:
    known = {f.name: f for f in functions if isinstance(f, Recursive)}
    calls = [c for e in expressions for c in applied(e) if c.func.__name__ in known]
    return [a for c in calls for a in known[c.func.__name__].integer_arguments(c)]


def definitions(functions: Iterable[Function]) -> tuple[Definition, ...]:
    """The definitions of functions and of all that these speak of, each after those that it speaks of.

    Raises StatementError for functions that are defined by one another, or two of one name.
    """
    ordered: dict[Function, Definition] = {}

    def visit(function: Function, path: tuple[Function, ...]) -> None:
        if function in path:
            raise StatementError(f"{function.name} is defined by way of itself: {' -> '.join(f.name for f in (*path, function))}")
        if function in ordered or not isinstance(function, Recursive):
            return
        made, uses = function.definition()
        for used in sorted(uses, key=lambda f: f.name):
            visit(used, (*path, function))
        ordered[function] = made

    for function in sorted(functions, key=lambda f: f.name):
        visit(function, ())
    names = [d.name for d in ordered.values()]
    if len(set(names)) != len(names):
        raise StatementError("two functions have one name")
    return tuple(ordered.values())


def periods(functions: Iterable[Function]) -> dict[str, str]:
    """The periods of arbitrary functions, those that definitions speak of too."""
    by_name: dict[str, str] = {}
    waiting, seen = list(functions), set()
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        if isinstance(function, Recursive):
            waiting += function.definition()[1]
        elif function.period is not None:
            by_name[function.name] = function.period
    return by_name
