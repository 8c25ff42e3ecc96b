"""What was measured on one rank, and how it is written down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from placeproof.core.diagnostics import refuse
from placeproof.core.exchange import Exchange
from placeproof.core.shapes import Shapes, Unit, Weight

#: The version of the JSON that :meth:`Measured.to_json` writes.
FORMAT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One step as one rank lived it.

    ``exchanges``: of the recorded step, in order; ``dtypes``: the element type of each. ``setup``: exchanges while the model was wrapped,
    without a phase. ``options``: all that the subject takes, settled.

    ``memory``, in bytes on this rank: ``parameters`` between steps, ``gradients`` after backward and ``optimizer`` after the update, each
    the distinct storages that its tensors lie in, with padding; of the optimizer's, ``optimizer_steps`` count steps. ``parameters_held``
    and ``gradients_held``: elements times their width.

    ``activations``: the most that was saved for backward at once during the step, as distinct
    storages without parameters; ``activations_after``: what of it is still there when the step has ended.

    ``seconds``: for all of the measurement. ``peak_rss``: bytes, of the whole process so far; 0 where the system does not say.
    """

    subject: str
    shapes: Shapes
    mesh: Mapping[str, int]
    rank: int
    backend: str
    options: Mapping[str, bool | int | float | str | None]
    exchanges: tuple[Exchange, ...]
    dtypes: tuple[str, ...]
    setup: tuple[Exchange, ...]
    memory: Mapping[str, int]
    seconds: float
    peak_rss: int
    torch: str

    def to_json(self) -> str:
        """A text from which :meth:`from_json` makes an equal value. Exchanges are rows: kind, axes, bytes, op, phase."""
        data: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        data |= {
            "shapes": asdict(self.shapes),
            "exchanges": [_row(e) for e in self.exchanges],
            "setup": [_row(e) for e in self.setup],
        } | {name: dict(data[name]) for name in ("mesh", "options", "memory")}
        return json.dumps({"format": FORMAT} | data, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Measured:
        """What :meth:`to_json` wrote. Raises InputError for a text that it did not write."""
        try:
            data = json.loads(text)
            if data.pop("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT}")
            return cls(**_read(data))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            refuse("PP501", f"this is no recorded measurement: {error}", help="record it again")


def _row(exchange: Exchange) -> list[Any]:
    return [exchange.kind, list(exchange.axes), exchange.bytes, exchange.op, exchange.phase]


def _exchange(row: list[Any]) -> Exchange:
    kind, axes, size, op, phase = row
    return Exchange(kind=kind, axes=tuple(axes), bytes=size, op=op, phase=phase)


def _read(data: dict[str, Any]) -> dict[str, Any]:
    return data | {
        "shapes": _shapes(data["shapes"]),
        "exchanges": tuple(_exchange(row) for row in data["exchanges"]),
        "setup": tuple(_exchange(row) for row in data["setup"]),
        "dtypes": tuple(data["dtypes"]),
    }


def _shapes(data: Mapping[str, Any]) -> Shapes:
    units = tuple(
        Unit(
            name=unit["name"],
            weights=tuple(Weight(name=w["name"], shape=tuple(w["shape"]), split=w["split"]) for w in unit["weights"]),
            blocks=tuple(unit["blocks"]),
        )
        for unit in data["units"]
    )
    return Shapes(
        name=data["name"],
        units=units,
        dims=tuple((name, size) for name, size in data["dims"]),
        used=tuple(data["used"]),
        buffers=None if data["buffers"] is None else tuple((kind, count) for kind, count in data["buffers"]),
    )
