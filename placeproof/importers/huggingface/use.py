"""In which order a model of transformers uses its parameters, and the buffers that it registers beside them.

Both are those of transformers==5.23.0 under autograd: gradients become ready in the reverse of this order (of a norm that has a bias,
the weight's first; of any other layer, the bias's). `nightly/huggingface.py` records them from the modules themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from placeproof.core.shapes import Unit, Weight
from placeproof.importers.document import Document
from placeproof.importers.huggingface.fields import Family
from placeproof.importers.huggingface.models import Values

#: Ways of scaling rotary positions that leave the number of frequencies as it is.
_SCALED = (None, "default", "linear", "dynamic", "yarn", "longrope", "llama3")


def used(family: Family, values: Values, units: Sequence[Unit]) -> tuple[str, ...]:
    """The names of all weights in the order of their use. A matrix that is embedding and head is used as embedding first."""
    root, *layers = units
    order = family.order(values)
    end = [w for start in family.ends for w in root.weights if w.name.startswith(start)]
    weights = [w for w in root.weights if w not in end]
    for layer in layers:
        weights += sorted(layer.weights, key=lambda w: _first(order, w.name.removeprefix(f"{layer.name}.")))
    every = [*weights, *end]
    return tuple(w.name for w in every) if family.weight_first else tuple(_turned_norms(every))


def _first(order: Sequence[str], name: str) -> int:
    return next(at for at, start in enumerate(order) if name.startswith(start))


def _turned_norms(weights: Sequence[Weight]) -> Iterator[str]:
    """Names in this order, but of a norm that has a bias that of the bias first."""
    names = {w.name for w in weights}
    biases = {
        w.name: name
        for w in weights
        if w.name.endswith(".weight") and len(w.shape) == 1 and (name := w.name.removesuffix("weight") + "bias") in names
    }
    for name in (w.name for w in weights):
        if name in biases:
            yield biases[name]
        if name not in biases.values():
            yield name


def buffers(document: Document, family: Family, values: Values) -> tuple[tuple[str, int], ...] | None:
    """Elements of all buffers by their type. None where the file turns positions in a way whose frequencies are not counted here."""
    counts = dict(family.buffers(values))
    if family.turned:
        tables = [document.data, *(t for name in ("rope_parameters", "rope_scaling") if isinstance(t := document.data.get(name), dict))]
        kinds = [t for table in tables[1:] for t in table.values() if isinstance(t, dict)]
        parts = [table["partial_rotary_factor"] for table in tables if "partial_rotary_factor" in table]
        if any(
            _scaling(table) != "proportional" and (_scaling(table) not in _SCALED or "partial_rotary_factor" in table) for table in kinds
        ):
            return None
        if any(_scaling(table) not in _SCALED for table in tables) or (parts and not family.partial):
            return None
        if "rotary_dim" in document.data and family.partial:  # an older word for it
            parts.append(document.data["rotary_dim"] / values["head_dim"])
        part = parts[0] if parts else document.data.get("rotary_pct", family.turned) if family.turned < 1 else 1
        if not isinstance(part, int | float):
            return None
        width = values.get(family.rotary or "head_dim") or values[family.hidden] // values[family.heads]
        # For each kind of layers the frequencies in use, and those before they were scaled.
        counts["float32"] = counts.get("float32", 0) + 2 * -(-int(width * part) // 2) * _kinds_of_layers(family, values)
    return tuple((kind, count) for kind, count in counts.items() if count)


def _kinds_of_layers(family: Family, values: Values) -> int:
    """How many kinds of layers have tables of positions of their own: with a window of tokens, and without."""
    if "layer_types" not in values:
        return 1
    every = values.get("sliding_window_pattern", 4)
    default = {(number + 1) % every == 0 for number in range(values[family.layers])}
    return len(set(values["layer_types"] or default) - {"linear_attention"})


def _scaling(table: Mapping[str, Any]) -> Any:
    return table.get("rope_type", table.get("type"))
