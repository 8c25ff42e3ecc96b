"""What several systems that run FSDP say of it alike: shards in host memory, and the types that shards are held, used and reduced in."""

from __future__ import annotations

from placeproof.importers.fields import Reader
from placeproof.importers.imported import Role

#: By the type that all is held in, the byte widths of Adam that have a name.
ADAM = {"fp32": "fp32-adam", "bf16": "bf16-adam"}


def on_host(reader: Reader, name: str, *, modelled: bool) -> bool:
    """Whether the strategy says that shards lie in host memory, as a setting asks for; the setting tells it. ``modelled``: whether some
    strategy has such shards there."""
    if modelled:
        reader.note(name, "shards, their optimizer state and its update lie on the host")
    else:
        reader.note(name, "shards lie on the host; computed as if on the device", Role.NOT_MODELLED)
    return modelled


def in_types(kept: str, used: str, reduced: str, named: str | None) -> str:
    """What is said of types that differ. ``named``: the byte widths of what is kept, None where they have no name."""
    alone = f": `--precision {named}` counts what is kept" if named else ""
    return f"shards, gradients and the state of the update in {kept}; gathered and computed in {used}, reduced in {reduced}{alone}"
