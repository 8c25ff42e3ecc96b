"""How layers of pipeline stages are written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

_RUN = re.compile(r"(0|[1-9][0-9]{0,5})(?:x([1-9][0-9]{0,5}))?")


def stages_text(layers: Sequence[int]) -> str:
    """The numbers as :func:`stage_layers` reads them."""
    runs = [(number, len([*own])) for number, own in groupby(layers)]
    return ",".join(str(number) if often == 1 else f"{number}x{often}" for number, often in runs)


def stage_layers(text: str) -> tuple[int, ...] | None:
    """The layers of each stage of a text such as ``7,8x14,7``: 7, fourteen times 8, 7; None where it is none."""
    runs = [_RUN.fullmatch(part.strip()) for part in text.split(",")]
    return tuple(int(run[1]) for run in runs if run for _ in range(int(run[2] or 1))) if all(runs) else None
