"""Adapters of low rank, as several systems say them: their rank, and beside which matrices of a model's layers they stand."""

from __future__ import annotations

from collections.abc import Collection

#: The modules beside which adapters stand, by the word of the strategy `lora`, as most models of transformers call them.
_MODULES = {
    "qv": frozenset({"q_proj", "v_proj"}),
    "attention": frozenset({"q_proj", "k_proj", "v_proj", "o_proj"}),
    "linear": frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}),
}
#: What is told of settings that say it otherwise.
ELSEWHERE = "which modules have adapters is not read: with a model they are counted beside all matrices of its layers"


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
