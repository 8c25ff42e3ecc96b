"""Checkpoints on the hub of Hugging Face that are known by their names. Nothing is fetched: ``hub.toml`` has what sources say of them.

A row of it has the ``names`` of checkpoints of one shape::

    [[dense]]             # or [[experts]]: their layers have experts
    type = "llama"        # as their config.json says it
    preset = "llama3-8b"  # left out where no preset has their sizes
    sources = ["litgpt"]  # names of [sources]
    names = "meta-llama/Meta-Llama-3-8B meta-llama/Meta-Llama-3-8B-Instruct"
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from placeproof.core.tables import FileKind, Table

_KIND = FileKind(noun="a table of checkpoints", manual="see the other rows, and placeproof/models/hub.py")


#: Types of models that read text alone: no part of them is for images or sounds.
_OF_TEXT = frozenset((
    "bloom", "cohere", "deepseek_v3", "falcon", "gemma", "gemma2", "gemma3_text", "glm4", "glm4_moe", "gpt_oss", "kimi_k2", "llama",
    "minimax_m2", "mistral", "mixtral", "nemotron_h", "olmo2", "phi", "phi3", "qwen2", "qwen3", "qwen3_moe",
))  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What is known of one. ``type``: that of its ``config.json``. ``preset``: that of its shape, empty where there is none.

    ``experts``: whether its layers have some, so that a router chooses among them. ``sources``: what says so.
    """

    type: str
    preset: str
    experts: bool
    sources: tuple[str, ...]

    @property
    def text(self) -> bool:
        """Whether it is of a type that reads text alone."""
        return self.type in _OF_TEXT


@cache
def checkpoints() -> dict[str, Checkpoint]:
    """Checkpoints by their names."""
    return read_checkpoints(Table.open(Path(__file__).parent / "hub.toml", kind=_KIND))


@cache
def _names() -> dict[str, str]:
    """Their names in small letters, with the names themselves."""
    return {name.lower(): name for name in checkpoints()}


def checkpoint(name: str) -> Checkpoint | None:
    """The checkpoint of a name, in whatever letters: the hub takes small ones for capitals (huggingface_hub, issue 2090)."""
    return checkpoints().get(_names().get(name.lower(), ""))


def read_checkpoints(file: Table) -> dict[str, Checkpoint]:
    """The checkpoints of a file. Raises InputError with all that is wrong with it."""
    file.known(("sources", "dense", "experts"))
    sources = file.mapping("sources")
    found: dict[str, Checkpoint] = {}
    seen: set[str] = set()
    for table in ("dense", "experts"):
        for row in file.rows(table):
            said = row.fields(**dict.fromkeys(("type", "names"), Table.required), preset=Table.text, sources=Table.required_texts)
            for source in said["sources"]:
                if source not in sources:
                    row.unknown(f"`{source}` is no source", source, sources, "sources")
            known = tuple(sources.get(source, "") for source in said["sources"])
            for name in said["names"].split():
                if name.lower() in seen:
                    row.refuse(f"`{name}` has two rows", "names")
                seen.add(name.lower())
                found[name] = Checkpoint(type=said["type"], preset=said["preset"], experts=table == "experts", sources=known)
    return file.sound(found)
