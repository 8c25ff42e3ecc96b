"""Programs as their authors wrote them, line by line."""

from __future__ import annotations

from placeproof.programs import Program, Resolved
from placeproof.programs.ir import statements


def written(program: Program | Resolved) -> dict[int, str]:
    """The lines of statements by their numbers, which places of results name."""
    places = (stmt.place for stmt in statements(program.body))
    return {place.line: place.text.rstrip() for place in places if place is not None and place.text.strip()}
