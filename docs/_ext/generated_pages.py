"""Replaces each line ``<!-- generated: NAME -->`` of a page by Markdown that is made from the code at build time.

Nothing that the code knows is typed in the pages: tables, closed forms, help texts and error messages are all made here.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import catalogue_pages
import code_tables
import command_pages
import launcher_pages
import model_pages
import picture_pages
import profile_pages
import proof_pages
import public_files
import rule_pages
import settings_pages
import sources_page
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

_MARKER = re.compile(r"^<!-- generated: (?P<name>[a-z-]+) -->$", re.MULTILINE)

MAKERS: dict[str, Callable[[], str]] = {
    "symbols": code_tables.symbols,
    "bounds": code_tables.bounds,
    "states": code_tables.states,
    "splits": code_tables.splits,
    "precisions": code_tables.precisions,
    "modes": code_tables.modes,
    "usability": code_tables.usability,
    "schedule": code_tables.schedule,
    "collectives": code_tables.collectives,
    "conversions": code_tables.conversions,
    "operations": code_tables.operations,
    "domains": code_tables.domains,
    "reserved": code_tables.reserved,
    "rules": code_tables.rules,
    "strategies": catalogue_pages.strategies,
    "errors": command_pages.errors,
    "commands": command_pages.commands,
    "picture-memory": picture_pages.memory,
    "picture-wrong": picture_pages.wrong,
    "picture-change": picture_pages.change,
    "assumptions": proof_pages.assumptions,
    "reference-options": proof_pages.reference_options,
    "not-equivalent": proof_pages.refuted,
    "rule-kinds": rule_pages.kinds,
    "rule-counts": rule_pages.counts,
    "rule-list": rule_pages.listed,
    "rule-witnesses": rule_pages.witnesses,
    "rule-prices": rule_pages.prices,
    "rule-differences": rule_pages.differences,
    "rule-disagreements": rule_pages.disagreements,
    "rule-validators": rule_pages.validators,
    "profiles": profile_pages.listed,
    "implementations": profile_pages.of_blocks,
    "exact-options": profile_pages.options,
    "models": model_pages.models,
    "checkpoints": model_pages.of_the_hub,
    "model-types": model_pages.types,
    "schedule-proofs": model_pages.schedule_proofs,
    "cluster-figures": model_pages.cluster_figures,
    "settings": settings_pages.listed,
    "action-inputs": settings_pages.of_action,
    "launcher-counts": launcher_pages.counts,
    "launcher-agreement": launcher_pages.agreement,
    "launcher-list": launcher_pages.listed,
    "public-file-counts": public_files.counts,
    "public-file-list": public_files.listed,
    "sources": sources_page.sources,
}


def expand(text: str) -> str:
    """A page with its markers replaced. Raises ExtensionError for a name that nothing makes."""

    def made(found: re.Match[str]) -> str:
        maker = MAKERS.get(found["name"])
        if maker is None:
            raise ExtensionError(f"nothing generates {found['name']!r}; known: {', '.join(MAKERS)}")
        return maker()

    return _MARKER.sub(made, text)


def _on_source_read(app: Sphinx, docname: str, source: list[str]) -> None:
    expanded = expand(source[0])
    if expanded != source[0]:
        app.env.note_reread()  # the code may change while the page does not
    source[0] = expanded


def setup(app: Sphinx) -> dict[str, bool]:
    """Expand markers as pages are read."""
    app.connect("source-read", _on_source_read)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
