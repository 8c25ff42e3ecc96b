"""What is trained beside what is frozen, as several systems say it: adapters of low rank, with their rank and beside which matrices of a
model's layers they stand; or a part of the model's own parameters."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from placeproof.importers.imported import Imported, expression

#: The modules beside which adapters stand, by the word of the strategy `lora`, as most models of transformers call them.
_MODULES = {
    "qv": frozenset({"q_proj", "v_proj"}),
    "attention": frozenset({"q_proj", "k_proj", "v_proj", "o_proj"}),
    "linear": frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}),
}
#: What is told of settings that say it otherwise.
ELSEWHERE = "which modules have adapters is not read: with a model they are counted beside all matrices of its layers"
FUSED = "one adapter stands beside matrices that lie as one: with a model they are counted beside each matrix of its layers"


def targets(modules: Collection[str], every: str, *, linear: bool = False) -> str | None:
    """The strategy's word for the modules that a file names, None where it has none. ``every``: what the file calls all matrices of layers.
    ``linear``: adapters stand beside these, whatever else."""
    named = frozenset(modules)
    if named == {every} or (linear and named <= _MODULES["linear"]):
        return "linear"
    return next((word for word, names in _MODULES.items() if names == named), None)


def lora(rank: object, word: str | None) -> dict[str, dict[str, object]]:
    """The strategy of adapters. ``word``: as of :func:`targets`."""
    return {"lora": {"rank": rank, "targets": None if word == "linear" else word}}


def frozen(imported: Imported, parts: str | None = None, layers: int | None = None) -> Imported:
    """The step of which a part of the parameters is not trained. ``parts``, ``layers``: as the strategy `freeze` has them."""
    freeze = expression({"freeze": {"parts": parts, "layers": layers}})
    return replace(imported, expression=" * ".join(filter(None, (imported.expression, freeze))))
