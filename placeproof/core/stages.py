"""How layers of pipeline stages are written."""

from __future__ import annotations

import re

_RUN = re.compile(r"(0|[1-9][0-9]{0,5})(?:x([1-9][0-9]{0,5}))?")


def stage_layers(text: str) -> tuple[int, ...] | None:
    """The layers of each stage of a text such as ``7,8x14,7``: 7, fourteen times 8, 7; None where it is none."""
    runs = [_RUN.fullmatch(part.strip()) for part in text.split(",")]
    return tuple(int(run[1]) for run in runs if run for _ in range(int(run[2] or 1))) if all(runs) else None
