"""In which order modules are used, forward and backward: those that hold weights themselves, and those around them."""

from __future__ import annotations

from collections.abc import Sequence

from placeproof.core.shapes import Shapes, Unit, Weight
from placeproof.cost.exact.reuse import Module

_NONE: Module = ()


def modules(shapes: Shapes, by_use: Sequence[Weight]) -> tuple[Module, list[Module], list[Module]]:
    """What the root holds itself, and the modules in the order of forward and in that of backward, each as the names of its own weights.

    A module's name is what stands before the last dot of its weights' names. A unit whose weights are below modules of its own is one
    more, without weights; so is what passes the output of a norm on to a block of the decoder that is measured. A unit without weights,
    before which no weight is used, has no backward. ``by_use``: the weights in the order in which forward uses them.
    """
    root, *units = shapes.units
    place = {w.name: at for at, w in enumerate(by_use)}
    first = min((place[w.name] for unit in units for w in unit.weights), default=len(by_use))
    own = tuple(w.name for w in root.weights if "." not in w.name)
    begins = _grouped([w for w in by_use[:first] if w in root.weights])
    ends = _grouped([w for w in by_use[first:] if w in root.weights])
    inside = [_of(unit, sorted(unit.weights, key=lambda w: place[w.name])) for unit in units]
    forward = [*begins, *(module for unit in inside for module in unit), *ends]
    used, backward = first > 0, list(begins[::-1])
    back: list[Module] = []
    for unit in inside:
        used = used or any(unit)
        around = [_NONE] if len(unit) > 1 and unit[0] == _NONE else []
        back = [*around, *reversed(unit[len(around) :]), *back] if used else back
    return own, forward, [*ends[::-1], *back, *backward]


def _grouped(weights: Sequence[Weight]) -> list[Module]:
    modules: dict[str, list[str]] = {}
    for weight in weights:
        modules.setdefault(weight.name.rpartition(".")[0], []).append(weight.name)
    return [tuple(names) for name, names in modules.items() if name]


def _of(unit: Unit, weights: Sequence[Weight]) -> list[Module]:
    """A unit's modules; itself first."""
    modules = _grouped(weights)
    if not modules or modules[0][0].rpartition(".")[0] == unit.name:
        return modules or [_NONE]
    passes = [[module, _NONE] if module[0].endswith("_norm.weight") else [module] for module in modules]
    return [_NONE, *(module for some in passes for module in some)]
