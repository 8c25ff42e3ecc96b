"""The sources, read from ``references.bib``: entries of one field a line, as the file has them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_BIB = Path(__file__).parent.parent / "references.bib"
_ENTRY = re.compile(r"^@\w+\{(?P<key>[\w]+),\n(?P<fields>.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^\s*(?P<name>\w+)\s*=\s*\{(?P<value>.*)\},?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One entry of the bibliography."""

    key: str
    fields: dict[str, str]

    def text(self) -> str:
        """Authors, title, where it appeared and when."""
        people = [name.split(",")[0] for name in self.fields["author"].split(" and ")]
        people = [*people[:-1], "others"] if people[-1] == "others" else people
        authors = ", ".join(people[:-1]) + (" and " if people[:-1] else "") + people[-1]
        where = [self.fields[name] for name in ("journal", "booktitle") if name in self.fields]
        where += [f"arXiv {self.fields['eprint']}"] if "eprint" in self.fields else []
        return f"{authors}: *{self.fields['title']}*. {'; '.join(where)}, {self.fields['year']}."


def read(text: str) -> Iterator[Source]:
    """The entries of a bibliography."""
    for entry in _ENTRY.finditer(text):
        yield Source(key=entry["key"], fields={f["name"]: f["value"] for f in _FIELD.finditer(entry["fields"])})


@lru_cache(maxsize=1)
def bibliography() -> dict[str, Source]:
    """All sources by key."""
    return {source.key: source for source in read(_BIB.read_text(encoding="utf-8"))}


def sources() -> str:
    """The list of sources, each under its key."""
    return "\n".join(f"## {source.key}\n\n{source.text()}\n" for source in sorted(bibliography().values(), key=lambda s: s.key))


def cited(text: str) -> str:
    """A ``source`` field with its citation keys as links."""
    return re.sub(r"[A-Za-z]+\d{4}[a-z]*", lambda m: f"[{m[0]}](sources.md#{m[0]})" if m[0] in bibliography() else m[0], text)
