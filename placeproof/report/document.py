"""Results as documents, which text, JSON, Markdown, HTML, LaTeX and Python are read from (``placeproof.report.renderers``).

A *document* is one result, made once. It has

- ``data``: its values by name, as its JSON Schema has them: mappings and sequences with text, numbers, formulas (SymPy expressions, which
  JSON has as text) and :class:`Figure` at their ends. A figure is named and fetched there;
- ``sections``: what people read of it, a view of the same values: a title and parts, each of them :class:`Lines`, :class:`Notes`,
  :class:`Table`, :class:`Reasons` or :class:`Code`, on a level of :data:`Detail`;
- ``forms``: its closed forms, by their key in data and by their name in words: what is LaTeX and what is Python.

Each is made when it is asked for: who prints text pays for no JSON. A result that has several parts, such as a model's costs and the time
of its step, is several documents; :func:`joined` makes one of them.

Builders decide nothing about layout and renderers nothing about content. A builder yields a section, or does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    import sympy

    from placeproof.cost.reason import Reason
    from placeproof.schedules import Timetable


@dataclass(frozen=True, slots=True)
class Figure:
    """A formula and, where it is known, its value in bytes. In a table two cells; in JSON ``formula`` and ``value``."""

    formula: sympy.Expr
    value: Fraction | None = None


#: Text as it stands; a formula; or both a formula and a number.
Cell: TypeAlias = "str | sympy.Expr | Figure"


@dataclass(frozen=True, slots=True)
class Lines:
    """Sentences, a line each, on the level of the title. Where one has line ends, it ends there unless it is fitted to a width."""

    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class Notes:
    """Sentences that belong to what stands above them; a list where they are ``items`` of equal rank."""

    lines: Sequence[str]
    items: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, which may be of different lengths. ``right``: the columns that hold numbers; ``indent``: of a line of text."""

    rows: Sequence[Sequence[Cell]]
    head: Sequence[str] = ()
    right: Sequence[int] = ()
    indent: str = "  "


@dataclass(frozen=True, slots=True)
class Reasons:
    """Steps of a derivation: a rule, the formula that it gives, and why."""

    steps: Sequence[Reason]


@dataclass(frozen=True, slots=True)
class Code:
    """Lines whose columns matter: an excerpt of a program, and what is said below it."""

    lines: Sequence[str]


SectionPart: TypeAlias = Lines | Notes | Table | Reasons | Code


#: How much of a result is shown: its answer, at most six lines, of which one is brief; tables of numbers; closed forms; and all that stands
#: behind them. Each has what those before it have.
Detail: TypeAlias = Literal["answer", "usual", "formulas", "full"]
DETAILS: tuple[Detail, ...] = get_args(Detail)


@dataclass(frozen=True, slots=True)
class Section:
    """A title, which may be empty, and what stands below it. ``detail``: from which level on it is shown; ``answer`` comes first.

    ``brief``: the answer in one line, where the title is not all of it.
    """

    title: str
    parts: tuple[SectionPart, ...] = ()
    detail: Detail = "usual"
    brief: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A closed form: its key, its name as a function, what it is called, and the formula. ``part``: whether it is a part of one before;
    ``shown``: whether who reads the formulas misses it."""

    key: str
    name: str
    label: str
    formula: sympy.Expr
    part: bool = False
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Slider:
    """A symbol that is moved: what it means, and its values in rising order, that of the result among them."""

    symbol: str
    meaning: str
    positions: tuple[Fraction, ...]


def pointer(*path: object) -> str:
    """A place in data: a JSON pointer (RFC 6901)."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """``formulas``: by the place of their number; ``values``: of their symbols in the result. ``refused``: pairs of settings that the
    command line refuses together, each a symbol and its value."""

    formulas: Mapping[str, sympy.Expr]
    values: Mapping[str, Fraction]
    sliders: Sequence[Slider]
    refused: Sequence[tuple[tuple[str, Fraction], tuple[str, Fraction]]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One result, by name. ``data``, ``sections`` and ``forms`` are made at each call.

    ``measure``: what the forms are in. ``timeline``: who does what when in a step, where that is known; ``live``: what a page can work
    out anew; ``lines``: the programs that data speak of, by the subject, each line by its number as it was written.
    """

    name: str
    sections: Callable[[], Iterable[Section]]
    data: Callable[[], Any]
    forms: Callable[[], Sequence[Form]] = tuple
    measure: str = "bytes per device"
    timeline: Callable[[], Timetable | None] = lambda: None
    live: Callable[[], Live | None] = lambda: None
    lines: Callable[[], Mapping[str, Mapping[int, str]]] = dict


def section(title: str, *parts: SectionPart, detail: Detail = "usual", brief: str = "") -> Section:
    """A section of these parts."""
    return Section(title, parts, detail, brief)


def listing(name: str, text: str) -> Document:
    """A program as a document; in data, its text."""
    return Document(name=name, sections=lambda: [section("", Code(text.rstrip("\n").split("\n")))], data=lambda: text)


def joined(parts: Mapping[str, Document], before: Document | None = None, field: str = "") -> Document:
    """Several results of one subject as one. ``parts``: each by the field that its data stand in, empty for the others' base.

    ``before``: what people read before all of them, and what stands behind them in data, in its ``field``.
    """
    documents = list(parts.values())

    def data() -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, document in {**parts, **({field: before} if before and field else {})}.items():
            values |= {name: document.data()} if name else document.data()
        return values

    def sections() -> list[Section]:
        every = [one for document in [*([before] if before else []), *documents] for one in document.sections()]
        return sorted(every, key=lambda one: one.detail != "answer")

    def forms() -> list[Form]:
        return [form for document in documents for form in document.forms()]

    return replace(documents[0], sections=sections, data=data, forms=forms)
