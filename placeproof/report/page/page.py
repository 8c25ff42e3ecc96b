"""The page as a whole."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from placeproof.report.document import Document, Section, Table
from placeproof.report.hypertext import prose, said, section
from placeproof.report.page.charts import Chart, charts
from placeproof.report.page.elements import element
from placeproof.report.page.sliders import panel, places, script
from placeproof.report.page.timeline import timeline
from placeproof.report.renderers import as_data

_HERE = Path(__file__).parent
#: What stands behind an answer is folded away on these levels.
_FOLDED = {"formulas": "closed forms", "full": "what stands behind them"}


def page(document: Document, form: str = "") -> str:
    """A result as a file of HTML: the answer, what is drawn of it, and all that the text says. It loads nothing.

    ``form``: HTML that stands before all, of a page that is served.
    """
    sections = list(document.sections())
    named = next((one.title for one in sections if one.title), document.name)
    shown = charts(as_data(document.data()), document.lines())
    live = document.live()
    code = "" if live is None else script(live, places(shown))
    moving = "" if live is None else panel(live, shown)
    body = "".join(_body(document, sections, named, shown, form + moving))
    style = (_HERE / "style.css").read_text(encoding="utf-8")
    sent = "'self'" if form else "'none'"
    rules = f"default-src 'none'; style-src 'unsafe-inline'; script-src {_digest(code)}; base-uri 'none'; form-action {sent}"
    running = f"<script>{code}</script>\n" if code else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{rules}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{said(named.replace('`', ''))}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n{running}</body>\n</html>\n"
    )


def _digest(code: str) -> str:
    """What the page allows to run: this alone."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'" if code else "'none'"


def _body(document: Document, sections: list[Section], named: str, shown: list[Chart], moving: str) -> Iterator[str]:
    first = next((one for one in sections if one.title), None)
    answer = "" if first is None else section(Section("", first.parts), "h2")
    yield f"<header><h1>{prose(named)}</h1>{answer}</header>\n<main>{moving}"
    yield from map(element, shown)
    if (table := document.timeline()) is not None:
        yield timeline(table)
    drawn = {chart.title for chart in shown}
    rest = [_undrawn(one) if one.title in drawn else one for one in sections if one is not first]
    yield from (f"<section>{text}</section>" for one in rest if one.detail not in _FOLDED and (text := section(one, "h2")))
    for detail, name in _FOLDED.items():
        if folded := "".join(f"<section>{section(one, 'h2')}</section>" for one in rest if one.detail == detail):
            yield f"<details><summary>{name}</summary>{folded}</details>"
    yield "</main>\n<footer>made by placeproof; every figure that is drawn is one of its JSON</footer>"


def _undrawn(one: Section) -> Section:
    """What a section says beside its table, where a chart of its title has the table."""
    return replace(one, title="", parts=tuple(part for part in one.parts if not isinstance(part, Table)))
