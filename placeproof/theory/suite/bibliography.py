"""The sources that theorems cite: entries of ``references.bib``, one field a line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from os.path import isfile  # ``Path.is_file`` raises where one may not look
from pathlib import Path

from placeproof.core.files import read_text

_PACKAGE = Path(__file__).parents[2]
_ENTRY = re.compile(r"^@\w+\{(?P<key>\w+),\n(?P<fields>.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^\s*(?P<name>\w+)\s*=\s*\{(?P<value>.*)\},?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One entry of a bibliography."""

    key: str
    fields: dict[str, str]

    def text(self) -> str:
        """Authors, title, where it appeared and when; Markdown."""
        people = [name.split(",")[0] for name in self.fields.get("author", self.key).split(" and ")]
        people = [*people[:-1], "others"] if people[-1] == "others" else people
        authors = ", ".join(people[:-1]) + (" and " if people[:-1] else "") + people[-1]
        where = [self.fields[name] for name in ("journal", "booktitle", "publisher", "howpublished") if name in self.fields]
        where += [f"arXiv {self.fields['eprint']}"] if "eprint" in self.fields else []
        return f"{authors}: *{self.fields.get('title', '')}*. {'; '.join(where)}, {self.fields.get('year', 'no year')}."


@lru_cache(maxsize=1)
def own() -> Path:
    """The bibliography that comes with placeproof."""
    packed = _PACKAGE / "_references.bib"
    return packed if isfile(packed) else _PACKAGE.parent / "docs" / "references.bib"


def known_to(folder: Path) -> dict[str, Source]:
    """What theorems in a folder may cite: the entries of ``references.bib`` there, beside it or in ``docs`` beside it, and our own."""
    near = [folder.parent / "docs" / "references.bib", folder.parent / "references.bib", folder / "references.bib"]
    return {key: source for path in (own(), *filter(isfile, near)) for key, source in entries(path).items()}


@lru_cache(maxsize=16)
def entries(path: Path) -> dict[str, Source]:
    """The entries of a bibliography by key."""
    return {s.key: s for s in _read(read_text(path, code="PP404", help="a bibliography is BibTeX in UTF-8"))}


def _read(text: str) -> list[Source]:
    matches = _ENTRY.finditer(text)
    return [Source(key=e["key"], fields={f["name"]: f["value"] for f in _FIELD.finditer(e["fields"])}) for e in matches]
