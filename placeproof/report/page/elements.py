"""Charts as HTML. What is drawn is hidden from screen readers: each chart is a table, a list or a text as well."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import assert_never

from placeproof.report.hypertext import head, said, wide
from placeproof.report.page.charts import Amount, Bars, Cell, Chart, Element, Grid, Listing, Look, Mark, Row
from placeproof.report.units import figure, giga, percent, seconds_text

#: Colours of series: as many as the style sheet has.
COLOURS = 6


def written(amount: Amount) -> str:
    """A figure as the command line writes it."""
    if amount.value is None:
        return "?"
    value = Fraction(amount.value)
    match amount.written:
        case "giga":
            return giga(value)
        case "seconds":
            return seconds_text(value)
        case "percent":
            return percent(value)
        case "number":
            return figure(value)
    assert_never(amount.written)


def element(chart: Chart) -> str:
    """A chart below its heading."""
    match chart:
        case Bars():
            body = _bars(chart)
        case Listing():
            body = _listing(chart)
        case Grid():
            body = _grid(chart)
        case _:
            assert_never(chart)
    return f"<section><h2>{said(chart.title)}</h2>{body}</section>"


def _cell(cell: Cell, column: str, looks: Mapping[str, Look]) -> str:
    if isinstance(cell, str):
        look = looks.get(cell)
        return f'<td class="{look}"><strong>{said(cell)}</strong></td>' if look else f"<td>{said(cell)}</td>"
    look = looks.get(column) if cell.value else None
    return f'<td class="figure{f" {look}" if look else ""}">{data(cell)}</td>'


def data(amount: Amount) -> str:
    """A figure with its exact number and its place in the data."""
    place = f'data-at="{said(amount.at)}" data-as="{amount.written}"'
    return f'<data value="{said(json.dumps(amount.value))}" {place}>{said(written(amount))}</data>'


def _bars(chart: Bars) -> str:
    rows = "".join(f'<tr><th scope="row">{said(row.label)}</th>{_cells(row, chart)}</tr>' for row in chart.rows)
    figures = {i for row in chart.rows for i, cell in enumerate(row.cells, start=1) if isinstance(cell, Amount)}
    table = wide(f"<table>{head(chart.head, figures)}<tbody>{rows}</tbody></table>", chart.title)
    limit = f"<p>{said(chart.limit[0])}: {data(chart.limit[1])} GB</p>" if chart.limit else ""
    note = f"<p>{said(chart.note)}</p>" if chart.note else ""
    return (_drawn(chart) if chart.series else "") + limit + table + note


def _cells(row: Row, chart: Bars) -> str:
    return "".join(_cell(cell, column, chart.looks) for cell, column in zip(row.cells, chart.head[1:], strict=True))


def _number(amount: Amount | None) -> float:
    return 0.0 if amount is None or amount.value is None else float(amount.value)


def _length(row: Row) -> float:
    parts = sum(map(_number, row.bar))
    return max(parts, _number(row.whole))


def _drawn(chart: Bars) -> str:
    most = max((max(_length(row), _number(_limit(row, chart))) for row in chart.rows), default=0.0) or 1.0
    keys = "".join(f'<li><i class="{_colour(i, chart)}"></i>{said(name)}</li>' for i, name in enumerate(chart.series))
    key = f'<ul class="key">{keys}</ul>' if len(chart.series) > 1 else ""
    end = f' data-limit="{said(chart.limit[1].at)}"' if chart.limit else ""
    rows = "".join(_drawn_row(row, most, chart) for row in chart.rows)
    return f'<div class="bars" aria-hidden="true"{end}>{key}{rows}</div>'


def _limit(row: Row, chart: Bars) -> Amount | None:
    return row.limit if chart.limit is None else chart.limit[1]


def _colour(i: int, chart: Bars) -> str:
    """The class of a series."""
    return (chart.looks.get(chart.series[i]) if i < len(chart.series) else None) or f"s{i % COLOURS}"


def _drawn_row(row: Row, most: float, chart: Bars) -> str:
    parts = [(_number(amount), amount) for amount in row.bar]
    rest = _number(row.whole) - sum(number for number, _ in parts)
    parts += [(max(rest, 0.0), None)] if row.whole is not None else []
    drawn = "".join(
        f'<i class="{_colour(i, chart)}" style="width:{100 * number / most:.3f}%"{_place(amount)}></i>'
        for i, (number, amount) in enumerate(parts)
    )
    limit = _limit(row, chart)
    line = "" if limit is None else f'<b style="left:{100 * _number(limit) / most:.3f}%"></b>'
    over = " over" if limit is not None and _length(row) > _number(limit) else ""
    whole = "" if row.whole is None else f' data-whole="{said(row.whole.at)}"'
    return f'<div class="row{over}"><span>{said(row.label)}</span><div class="track"{whole}>{drawn}{line}</div></div>'


def _place(amount: Amount | None) -> str:
    return "" if amount is None else f' data-part="{said(amount.at)}"'


def _listing(chart: Listing) -> str:
    each = sorted(chart.lines.items())
    lines = "".join(f'<li value="{number}">{_line(line, chart.marks.get(number, ()))}</li>' for number, line in each)
    return wide(f'<ol class="program">{lines}</ol>', chart.title)


def _line(line: str, marks: Sequence[Mark]) -> str:
    notes = "".join(f'<span class="{mark.look or "cost"}">{said(mark.text)}</span>' for mark in marks)
    return f"<code>{said(line) or ' '}</code>{notes}"


def _grid(chart: Grid) -> str:
    rows = "".join(f'<tr><th scope="row">{said(name)}</th>{"".join(map(_held, row))}</tr>' for name, row in chart.rows)
    table = f'<table class="grid">{head(("element", *chart.devices))}<tbody>{rows}</tbody></table>'
    none = any(one.text is None for _, row in chart.rows for one in row)
    return wide(table, chart.title) + (
        f"<p>{'–: the device has none of it. ' if none else ''}What is wrong has a frame, and says what one device has.</p>"
    )


def _held(one: Element) -> str:
    if one.text is None:
        return "<td>–</td>"
    if one.expected is None:
        return f"<td>{said(one.text)}</td>"
    return f'<td class="wrong"><strong>{said(one.text)}</strong> instead of {said(one.expected)}</td>'
