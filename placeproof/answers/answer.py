"""Results that show themselves: at a prompt in a line, in a notebook as tables, printed as the command line prints them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from placeproof.report import hypertext, renderers, text

if TYPE_CHECKING:
    import pandas as pd

    from placeproof.core.strategy import Strategy
    from placeproof.importers import Imported
    from placeproof.programs import Program
    from placeproof.report.document import Document
    from placeproof.strategies import Template

A = TypeVar("A", bound="Answer")
#: What a symbol or an option is set to: a number, or a text such as "70B".
Setting: TypeAlias = str | int | float | Fraction
#: What Python asks about: an expression or the name of a file, a strategy, a catalogue entry, or a step program.
Asked: TypeAlias = "str | Strategy | Template | Program"


class Answer:
    """A result of the layers below that shows itself."""

    @property
    @abstractmethod
    def document(self) -> Document:
        """What it says, for any of :mod:`placeproof.report.renderers`."""

    @property
    def data(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        data: dict[str, Any] = renderers.as_data(self.document.data())
        return data

    def frame(self, title: str | None = None) -> pd.DataFrame:
        """A table as a frame of pandas: the first one, or that of a title of :meth:`frames`. Raises KeyError, and ImportError without
        pandas."""
        every = self.frames()
        return every[next(iter(every)) if title is None else title]

    def frames(self) -> dict[str, pd.DataFrame]:
        """All tables as frames, by their titles; numbers are bytes, seconds and shares. Raises ImportError without pandas."""
        from placeproof.report.frames import frames

        return frames(self.document)

    def __str__(self) -> str:
        return text.text(self.document, "usual").rstrip("\n")

    def __repr__(self) -> str:
        return f"<{next(one.title for one in self.document.sections() if one.title)}>"

    def _repr_html_(self) -> str:
        return hypertext.fragment(self.document)

    def _repr_markdown_(self) -> str:
        return renderers.markdown(self.document)

    def _repr_latex_(self) -> str | None:
        """The closed forms; None where there are none. The comment before them has no place in a notebook."""
        return renderers.latex(self.document).partition("\n")[2] if self.document.forms() else None


def answer(kind: type[A], result: Any, **more: Any) -> A:
    """A result as an answer of a kind that adds fields to its record, or has others in their place."""
    return kind(**{f.name: getattr(result, f.name) for f in fields(result)} | more)


def texts(settings: Mapping[str, Setting] | None) -> list[str]:
    """Settings as the command line has them."""
    return [f"{name}={value}" for name, value in (settings or {}).items()]


def asked(subject: Asked) -> tuple[Strategy | Program, list[Imported]]:
    """What costs and proofs are of, and what a configuration says besides. Raises InputError."""
    from placeproof.answers import subject as subjects
    from placeproof.strategies import Template

    if isinstance(subject, str):
        read = subjects.read(subject)
        return subjects.costed(read), subjects.imported([read])
    return (subject() if isinstance(subject, Template) else subject), []
