"""``@theorem``: a statement with what is expected of it, its source, and its controls. Nothing is proved when it is declared."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

from placeproof.core.bounds import brief, within
from placeproof.prove.arithmetic import outside
from placeproof.theory.clauses import Clauses
from placeproof.theory.domains import DOMAINS, Domain
from placeproof.theory.language import Goal, Number, StatementError, Term, integer_arguments, integral, term
from placeproof.theory.statements import OF_PROGRAMS, ByInduction, Holds, Keeps, Lemma, Statement, Trains, holds
from placeproof.theory.units import plain, usual

if TYPE_CHECKING:
    from placeproof.prove import Relation


@dataclass(frozen=True, slots=True)
class Proved:
    """The statement is expected to be proved."""

    word = "proved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuted:
    """The statement is expected to be refuted, for a reason.

    ``witness``: values of all parameters at which it fails, exact (``2``, ``"1/3"``). ``breaks``: of a step program, the condition
    that fails. ``because``: the reason in words.
    """

    because: str
    witness: Mapping[str, int | str | Fraction] = field(default_factory=dict)
    breaks: str | None = None
    word = "refuted"


@dataclass(frozen=True, slots=True)
class Open:
    """Nobody knows: the statement is expected to stay undecided. ``note`` says what was tried."""

    note: str
    word = "open"


Expectation: TypeAlias = Proved | Refuted | Open

#: Budgets of one solver query in milliseconds, by level.
LEVELS = {0: 1_000, 1: 5_000, 2: 30_000}
#: The most that a second solver has for a query: each that cvc5 answers at all, of our theorems, it answers in less than one second.
SECOND_OPINION = 2_000

#: The checks that a theorem can opt out of, with a reason.
OPTIONAL = ("needed", "not trivial", "second solver", "exact arithmetic", "dimensions", "controls")


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A changed statement, with what must become of it: refuted at a point or for a condition, or (``proved``) proved."""

    label: str
    make: Callable[..., Any] | Statement
    refuted_at: Mapping[str, int | str | Fraction] | None = None
    breaks: str | None = None
    proved: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class Theorem:
    """A declared theorem. ``problems``: what is wrong with the declaration; such a theorem is reported and not checked."""

    name: str
    topic: str
    function: Callable[..., Any]
    path: str
    line: int
    expect: Expectation
    cite: tuple[str, ...]
    level: int
    skip: Mapping[str, str]
    domains: dict[str, Domain]
    controls: list[Control] = field(default_factory=list)
    problems: list[tuple[str, str, str]] = field(default_factory=list)
    _statement: Statement | None = None

    @property
    def id(self) -> str:
        """``topic.name``."""
        return f"{self.topic}.{self.name}"

    @property
    def says(self) -> str:
        """The first paragraph of the docstring, in one line."""
        return " ".join((inspect.getdoc(self.function) or "").split("\n\n")[0].split())

    @property
    def remarks(self) -> str:
        """The rest of the docstring."""
        return "\n\n".join((inspect.getdoc(self.function) or "").split("\n\n")[1:])

    def statement(self) -> Statement:
        """The statement, elaborated once. Raises StatementError or InputError if it cannot be understood."""
        if self._statement is None:
            self._statement = self.elaborate(self.function)
        return self._statement

    def elaborate(self, make: Callable[..., Any] | Statement, values: Mapping[str, Term] | None = None) -> Statement:
        """A statement over this theorem's parameters. ``make`` names those that it uses."""
        if isinstance(make, Holds | ByInduction | Trains | Keeps | Clauses):
            return make
        import sympy

        wanted = inspect.signature(make).parameters
        unknown = [name for name in wanted if name not in self.domains]
        if unknown:
            raise StatementError(*(f"`{name}` is no parameter of {self.name}" for name in unknown))
        symbols = {name: (values or {}).get(name, Term(sympy.Symbol(name))) for name in wanted}
        made = make(**symbols)
        if isinstance(made, Goal) or (isinstance(made, tuple | list) and made and all(isinstance(g, Goal) for g in made)):
            made = holds(made)
        if not isinstance(made, Holds | ByInduction | Trains | Keeps | Clauses):
            raise StatementError(
                f"the statement of {self.name} is {made!r}; return a relation, or holds(), by_induction(), trains() or keeps()"
            )
        if values is None:
            self._closed(made)
        return made

    def _closed(self, statement: Statement) -> None:
        """Every symbol is a parameter, and what has to be an integer is one."""
        if isinstance(statement, OF_PROGRAMS):
            return
        if wrong := list(dict.fromkeys(self._open(statement))):
            raise StatementError(*wrong)

    def _open(self, statement: Holds | ByInduction) -> Iterator[str]:
        """What keeps a statement from being closed."""
        what = statement.what
        if not what.goals:
            yield f"{self.name} states nothing"
        relations = [r for g in (*what.goals, *what.given) for r in g.relations()]
        strange = [p for r in relations for e in (r.left, r.right, *r.divisors) if (p := outside(e)) is not None]
        if strange:
            yield f"{strange[0]} in {self.name} is outside arithmetic; a function of your own can be defined by recursion"
        for name in sorted({n for r in relations for n in r.names()} - set(self.domains)):
            yield f"`{name}` occurs in {self.name} and is no parameter of it; add `{name}: Positive`, or another domain"
        instances = [n for one in statement.at for n in one] if isinstance(statement, ByInduction) else []
        for name in (n for n in instances if n not in self.domains):
            yield f"`{name}` is no parameter of {self.name}"
        if isinstance(statement, ByInduction) and statement.on not in self.domains:
            yield f"an induction is over a parameter, not over {statement.on}"
        integers = {name for name, domain in self.domains.items() if domain.integer}
        needed = [e for lemma in what.lemmas for e in lemma.integers]
        needed += [e for r in relations for e in integer_arguments(r, what.functions())]
        needed += [statement.over.expr, statement.start.expr, *self._of_instances(statement)] if isinstance(statement, ByInduction) else []
        for expr in needed:
            if not integral(expr, integers):
                yield f"{expr} has to be an integer in {self.name}; its parameters are to be Degree, Natural or Integer"

    def _of_instances(self, statement: ByInduction) -> list[Any]:
        """What stands for integer parameters in the induction hypothesis."""
        return [value.expr for one in statement.at for n, value in one.items() if n in self.domains and self.domains[n].integer]

    def control(
        self,
        label: str,
        make: Callable[..., Any] | Statement,
        *,
        refuted_at: Mapping[str, int | str | Fraction] | None = None,
        breaks: str | None = None,
        proved: bool = False,
    ) -> Theorem:
        """Add a control: a statement that is nearly this one, and must be refuted where it says (or proved, beside a refuted one)."""
        given = {"label": label, "make": make, "refuted_at": refuted_at, "breaks": breaks, "proved": proved}
        self.problems += _misfits(f"a control of {self.name}", given)
        self.controls.append(Control(label=label, make=make, refuted_at=refuted_at, breaks=breaks, proved=proved))
        return self

    def at(self, **values: Number) -> Lemma:
        """This theorem with values in place of its parameters, for ``lemmas=[...]``. Raises StatementError for a wrong name."""
        import sympy

        from placeproof.prove import Implication, Relation

        unknown = [n for n in values if n not in self.domains]
        if unknown:
            raise StatementError(*(f"`{name}` is no parameter of {self.name}" for name in unknown))
        if not isinstance(self.expect, Proved):
            raise StatementError(f"{self.name} is not expected to be proved, and can be no lemma")
        statement = self.elaborate(self.function, {n: term(v) for n, v in values.items()})
        if isinstance(statement, OF_PROGRAMS):
            raise StatementError(f"{self.name} is about a program, and can be no lemma")
        what = statement.what
        bounds = tuple(b for n in self.domains if (b := self.bound(n, values.get(n))) is not None)
        begun = (statement.begun(),) if isinstance(statement, ByInduction) else ()
        given = (*bounds, *begun, *(g.relation() for g in what.given))
        integers = tuple(plain(term(values.get(n, sympy.Symbol(n))).expr) for n, d in self.domains.items() if d.integer)
        fact = Implication(given, tuple(r for g in what.goals if isinstance(r := g.fact(), Relation)))
        if len(fact.then) < len(what.goals):
            raise StatementError(f"{self.name} claims many cases at once, and can be no lemma")
        return Lemma(theorem=self, fact=fact, functions=what.functions(), integers=integers)

    def bound(self, name: str, value: Number | None = None) -> Relation | None:
        """The bound of a parameter's domain as a relation."""
        import sympy

        from placeproof.prove import Relation

        domain = self.domains[name]
        if domain.least is None:
            return None
        symbol = plain(term(value).expr) if value is not None else sympy.Symbol(name)
        return Relation(sympy.Integer(domain.least), "<" if domain.strict else "<=", symbol)


def theorem(
    function: Callable[..., Any] | None = None,
    *,
    expect: Expectation | None = None,
    cite: str | tuple[str, ...] = (),
    level: int = 0,
    skip: Mapping[str, str] | None = None,
) -> Any:
    """Declare a theorem. Its docstring says it in words; its parameters' annotations are their domains.

    ``expect``: :class:`Proved`, :class:`Refuted` or :class:`Open`. ``cite``: keys of ``references.bib``. ``level``: 0 to 2, how long
    one query may take (1, 5 or 30 seconds). ``skip``: checks that do not apply, each with a reason.
    """
    if function is not None:
        return _declare(function, None, (), 0, {})
    return lambda made: _declare(made, expect, (cite,) if isinstance(cite, str) else cite, level, skip or {})


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_point(value: object) -> bool:
    if not isinstance(value, Mapping):
        return value is None
    return all(map(_is_text, value)) and all(within(Fraction(v)) for v in value.values() if isinstance(v, int | Fraction))


#: What the parts of a declaration are, and how that is said.
_ARE: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "cite": (lambda keys: isinstance(keys, tuple | list) and all(map(_is_text, keys)), "a key of references.bib, or several"),
    "skip": (lambda of: isinstance(of, Mapping) and all(map(_is_text, (*of, *of.values()))), "reasons by check: {'needed': '...'}"),
    "because": (_is_text, "a reason in words"),
    "note": (_is_text, "words: what was tried"),
    "label": (_is_text, "a name"),
    "make": (
        lambda made: callable(made) or isinstance(made, Holds | ByInduction | Trains | Keeps | Clauses),
        "a function that makes a statement",
    ),
    "witness": (_is_point, "values by parameter, of at most 1e100: {'n': 2}"),
    "refuted_at": (_is_point, "values by parameter, of at most 1e100: {'n': 2}"),
    "breaks": (lambda name: name is None or _is_text(name), "the name of a condition"),
    "proved": (lambda told: isinstance(told, bool), "True or False"),
}


def _misfits(where: str, given: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """A problem for each part of a declaration that is something else."""
    return [
        ("PP403", f"`{name}` of {where} is {_ARE[name][1]}, not {brief(value)}", f"write {_ARE[name][1]}")
        for name, value in given.items()
        if not _ARE[name][0](value)
    ]


def _declare(function: Callable[..., Any], expect: Expectation | None, cite: Sequence[str], level: int, skip: Mapping[str, str]) -> Theorem:
    code, misfits = function.__code__, _misfits(function.__name__, {"cite": cite, "skip": skip})
    cite, skip = cite if _ARE["cite"][0](cite) else (), skip if _ARE["skip"][0](skip) else {}
    declared = Theorem(
        name=function.__name__, topic=function.__module__.rpartition(".")[2], function=function, path=code.co_filename,
        line=code.co_firstlineno, expect=expect or Open(""), cite=tuple(cite), level=level, skip=skip, domains={}, problems=[*misfits],
    )  # fmt: skip
    before = function.__globals__.get(declared.name)
    if isinstance(before, Theorem) and before.path == declared.path:
        declared.problems.append(("PP403", f"line {before.line} has another theorem of this name", "each has a name of its own"))
    if not isinstance(expect, Proved | Refuted | Open):
        declared.problems.append(("PP403", "no expectation", "write `@theorem(expect=Proved(), cite=...)`, or Refuted(...) or Open(...)"))
    else:
        declared.problems += _misfits(declared.name, {part.name: getattr(expect, part.name) for part in fields(expect)})
    if level not in LEVELS:
        declared.problems.append(("PP403", f"level {level} is none of 0, 1 and 2", "a level says how long a solver may take"))
    for name, reason in skip.items():
        if name not in OPTIONAL or not reason.strip():
            remedy = f"of {', '.join(OPTIONAL)}, with a reason"
            declared.problems.append(("PP403", f"the check `{name}` cannot be skipped like this", remedy))
    if not declared.says:
        declared.problems.append(("PP403", "no docstring", "say in a sentence what the theorem states"))
    if not cite and not any("`cite`" in message for _, message, _ in misfits):
        declared.problems.append(("PP404", "no source", "cite=... names an entry of references.bib"))
    for name in inspect.signature(function).parameters:
        domain = _domain(function, name)
        if isinstance(domain, str):
            shown = function.__annotations__.get(name, "missing")
            declared.problems.append(("PP402", f"the annotation of `{name}` is {shown!r}, and {domain}", f"one of {', '.join(DOMAINS)}"))
        else:
            declared.domains[name] = domain
    return declared


def _domain(function: Callable[..., Any], name: str) -> Domain | str:
    """The domain of a parameter, or why there is none."""
    annotation = function.__annotations__.get(name)
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, {**DOMAINS, **function.__globals__})  # the file itself was run, too
        except Exception as error:  # whatever the author's own code raises
            return f"cannot be read: {type(error).__name__}: {error}"
    if not isinstance(annotation, Domain):
        return "no domain"
    if not annotation.dimension:
        return _with_usual_dimension(annotation, name)
    return annotation


def _with_usual_dimension(domain: Domain, name: str) -> Domain:
    """The dimension that the table of symbols gives a name, such as ``b_theta``; not of counts, whose names mean many things."""
    return replace(domain, dimension=tuple(usual(name).items()))
