"""Documents as text: as wide as they are, or fitted to a width.

Fitted, sentences are folded between words, cells of tables inside of their columns; a table of too many columns of numbers goes on below
itself, each part with the first column; rows of texts that have no room beside one another stand below one another. No word is changed.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from placeproof.report.document import DETAILS, Code, Detail, Document, Lines, Notes, Reasons, Section, SectionPart, Table
from placeproof.report.grid import grid

#: What a line is, for who gives it a colour.
Role: TypeAlias = Literal["title", "answer", "head", "row", "prose", "code", "aside"]
#: Between columns.
_GAP = "  "
#: A column of words that is narrower than this is hard to read, and no column is made so if its cells are wider.
_NARROW = 12


@dataclass(frozen=True, slots=True)
class Line:
    """A line of output."""

    text: str
    role: Role = "prose"


def text(document: Document, detail: Detail = "full", width: int | None = None) -> str:
    """What :func:`lines` has, as one text."""
    return "".join(f"{line.text}\n" for line in lines(document, detail, width))


def lines(document: Document, detail: Detail = "full", width: int | None = None) -> Iterator[Line]:
    """Sections with a blank line between them, tables in columns as wide as their widest cell; of an answer alone, one line.

    ``width``: columns into which lines are fitted, 40 or more; None for lines as long as they are.
    """
    if detail == "answer":
        yield from (Line(line, "title") for line in folded(brief(document), width))
        return
    level = DETAILS.index(detail)
    for number, one in enumerate(one for one in document.sections() if DETAILS.index(one.detail) <= level):
        yield from [Line("")] if number else []
        yield from _section(one, width)


def brief(document: Document) -> str:
    """The answer in one line."""
    return next(one.brief or one.title for one in document.sections() if one.brief or one.title)


def beyond(document: Document, detail: Detail) -> set[Detail]:
    """The levels of what is not shown on this one."""
    return {one.detail for one in document.sections() if DETAILS.index(one.detail) > DETAILS.index(detail)}


def _section(section: Section, width: int | None) -> Iterator[Line]:
    if section.title:
        yield from (Line(line, "title") for line in folded(section.title, width))
    for part in section.parts:
        for line in _part(part, width):
            yield Line(line.text, "answer") if section.detail == "answer" and line.role == "prose" else line


def _part(part: SectionPart, width: int | None) -> Iterator[Line]:
    match part:
        case Lines(each):
            yield from (Line(line) for one in each for line in folded(one if width is None else one.replace("\n", " "), width))
        case Code(each):
            yield from (Line(line, "code") for line in fitted((line for one in each for line in one.split("\n")), width))
        case Notes(each, items):
            yield from (Line(line) for one in each for line in folded(f"  - {one}" if items else f"  {one}", width))
        case Table():
            headed = bool(part.head and part.rows)
            table = [part.head, *part.rows] if headed else part.rows
            yield from _table(grid(table, str), part.right, width, headed=headed, indent=part.indent)
        case Reasons(steps):
            for number, step in enumerate(steps, start=1):
                for one in (f"  {number:>2}. {step.rule}", f"        = {step.expression}", f"      because {step.why}"):
                    yield from (Line(line) for line in folded(one, width))


# Lines.


#: Spaces at which no line ends: within `b = 1` and `8 %`.
_TIED = re.compile(
    r"(?<=\b\w) (?== \S)|(?<=\b\w\w) (?== \S)|(?<=\w =) (?=\S{1,12}(?:[\s,;)]|$))|(?<=\d) (?=%|(?:[kMGTP]?i?B|[mu]?s)\b)|(?<=MFU) (?=\d)"
)
_TIE = "\x00"
#: In a narrower column there may be no room for what is tied.
_ROOM = 36


def folded(text: str, width: int | None) -> list[str]:
    """A text in lines of a width, folded between words; what goes on stands further in than its first line."""
    found = []
    for line in text.split("\n"):
        if width is None or len(line) <= width:
            found.append(line.rstrip() if width else line)
            continue
        lead = re.match(r"\s*(?:[-=|] +|\d+\. +)?", line)
        begin = lead[0] if lead else ""
        hang = " " * (len(begin) if begin.strip() else len(begin) + 2)
        found += _wrapped(line[len(begin) :], width, begin, hang[: width // 2])
    return found


def _wrapped(text: str, width: int, begin: str = "", hang: str = "") -> list[str]:
    tied = _TIED.sub(_TIE, text) if width >= _ROOM else text
    found = textwrap.wrap(tied, width, initial_indent=begin, subsequent_indent=hang, break_on_hyphens=False)
    return [line.replace(_TIE, " ") for line in found]


#: The marks below a place in a line of source, and that line.
_MARKS = re.compile(r"(?P<before>[ \d]* \| )(?P<marks> *\^+)")
_CUT = "..."


def fitted(lines: Iterable[str], width: int | None) -> Iterator[str]:
    """Lines folded to a width; where the next one has marks below a place, both are cut around it, so that they stay below it."""
    waiting: str | None = None
    for line in lines:
        marks = None if waiting is None or width is None else _MARKS.fullmatch(line)
        if waiting is not None and width is not None and marks is not None and waiting[len(marks["before"]) - 2 :][:1] == "|":
            begin = len(marks["before"])
            cut = around(waiting[begin:], marks["marks"], max(width - begin, 1))
            yield from (waiting[:begin] + cut[0], marks["before"] + cut[1])
            waiting = None
            continue
        yield from folded(waiting, width) if waiting is not None else ()
        waiting = line
    yield from folded(waiting, width) if waiting is not None else ()


def around(text: str, marks: str, room: int) -> tuple[str, str]:
    """As much of a line, and of the marks below it, as has room, with dots where more is: from its beginning if all marks are there, or
    else around them."""
    begin, end = marks.index("^"), len(marks)
    whole = max(cells(text), end)
    if whole <= room:
        return text, marks
    inner = max(room - 2 * len(_CUT), 1)
    left = 0 if end <= room - len(_CUT) else begin - max(0, inner - (end - begin)) // 2
    right = left + (room - len(_CUT) if left == 0 else inner)
    if right + len(_CUT) >= whole and left:
        left, right = whole - (room - len(_CUT)), whole
    dots = (_CUT if left else "", _CUT if right < whole else "")
    begin, end = max(begin, left), min(end, right)
    return f"{dots[0]}{_between(text, left, right)}{dots[1]}", " " * (len(dots[0]) + begin - left) + "^" * max(end - begin, 1)


def _between(text: str, left: int, right: int) -> str:
    """What stands in these columns of a line; of a wide character that is cut, a space."""
    found, at = "", 0
    for character in text:
        size = cells(character)
        if left <= at and at + size <= right:
            found += character
        elif at < right and left < at + size:
            found += " "
        at += size
    return found


def cells(text: str) -> int:
    """How many columns of a terminal a text takes: some letters of East Asia take two, and marks on letters none."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.category(c) in ("Mn", "Me", "Cf") else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


# Tables.


def columns(rows: Sequence[Sequence[str]], right: Container[int] = (), indent: str = "  ", width: int | None = None) -> Iterator[str]:
    """Cells in columns as wide as their widest cell; a row's last cell takes the room that it needs. ``right``: columns of numbers."""
    return (line.text for line in _table(rows, right, width, indent=indent))


def _table(
    rows: Sequence[Sequence[str]], right: Container[int], width: int | None, *, headed: bool = False, indent: str = "  "
) -> Iterator[Line]:
    """The lines of a table: beside one another, in parts, or below one another."""
    widths = _natural(rows, right)
    if width is not None and not all(len(line) <= width for row in rows for line in _row(row, widths, right, indent)):
        room = width - len(indent)
        if (narrow := _narrowed(rows, right, room)) is not None:
            widths = narrow
        elif sum(i in right for i in widths) > 1:
            yield from _parted(rows, right, width, headed=headed, indent=indent)
            return
        else:
            yield from _stacked(rows, width, indent)
            return
    for number, row in enumerate(rows):
        role: Role = "head" if headed and not number else "row"
        yield from (Line(line, role) for line in _row(row, widths, right, indent, width))


def _natural(rows: Sequence[Sequence[str]], right: Container[int]) -> dict[int, int]:
    """The width of each column; the last cell of a row has none where words follow."""
    widths: dict[int, int] = {}
    for row in rows:
        for i, cell in enumerate(row):
            if i in right or i < len(row) - 1:
                widths[i] = max(widths.get(i, 0), len(cell))
    return widths


def _row(row: Sequence[str], widths: dict[int, int], right: Container[int], indent: str, width: int | None = None) -> Iterator[str]:
    """The lines of a row: one, or as many as its longest cell takes."""
    cells: list[list[str]] = []
    begin = len(indent)
    for i, cell in enumerate(row):
        last = i == len(row) - 1 and i not in right
        room = None if width is None else max(width - begin, 1) if last else widths[i]
        cells.append([cell] if room is None or len(cell) <= room else _wrapped(cell, room))
        begin += widths.get(i, 0) + len(_GAP)
    for number in range(max(map(len, cells), default=1)):
        each = [cell[number] if number < len(cell) else "" for cell in cells]
        shown = (
            text.rjust(widths[i]) if i in right else text.ljust(widths[i]) if i < len(each) - 1 else text for i, text in enumerate(each)
        )
        yield (indent + _GAP.join(shown)).rstrip()


def _narrowed(rows: Sequence[Sequence[str]], right: Container[int], room: int) -> dict[int, int] | None:
    """Widths of columns that have room beside one another: numbers as wide as they are, words folded; None where there are none."""
    whole = _natural([[*row, ""] for row in rows], ())
    least = {i: n if i in right else min(n, max(_NARROW, _longest(rows, i))) for i, n in whole.items()}
    room -= len(_GAP) * (len(whole) - 1)
    if sum(least.values()) > room:
        return None
    while sum(whole.values()) > room:
        widest = max((i for i in whole if whole[i] > least[i]), key=lambda i: whole[i])
        whole[widest] -= 1
    return whole


def _longest(rows: Sequence[Sequence[str]], column: int) -> int:
    """The longest word of a column."""
    return max((len(word) for row in rows if column < len(row) for word in row[column].split()), default=0)


def _parted(rows: Sequence[Sequence[str]], right: Container[int], width: int, *, headed: bool, indent: str) -> Iterator[Line]:
    """A table of many columns, in parts below one another, each with the first column: its words take a third of the width."""
    count = max(map(len, rows))
    room = width - len(indent)
    whole = {i: max((len(row[i]) for row in rows if i < len(row)), default=0) for i in range(count)}
    first = min(whole[0], max(room // 3, 1))
    parts: list[list[int]] = [[]]
    left = room - first
    for i in range(1, count):
        need = len(_GAP) + min(whole[i], room - first - len(_GAP))
        if need > left and parts[-1]:
            parts.append([])
            left = room - first
        parts[-1].append(i)
        left -= need
    for number, part in enumerate(parts):
        yield from [Line("")] if number else []
        widths = {0: first, **{n: min(whole[i], room - first - len(_GAP)) for n, i in enumerate(part, 1)}}
        rights = {n for n, i in enumerate((0, *part)) if i in right}
        for at, row in enumerate(rows):
            cells = [row[i] if i < len(row) else "" for i in (0, *part)]
            role: Role = "head" if headed and not at else "row"
            yield from (Line(line, role) for line in _row(cells, widths, rights, indent, width))


def _stacked(rows: Sequence[Sequence[str]], width: int, indent: str) -> Iterator[Line]:
    """Rows of texts that have no room beside one another: the first cell, and below it what is said of it."""
    for first, *rest in rows:
        yield from (Line(line, "row") for line in folded(indent + first, width))
        for line in folded(f"{indent}    {_GAP.join(cell for cell in rest if cell)}", width) if any(rest) else []:
            yield Line(line, "row")
