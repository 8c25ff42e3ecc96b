"""Settings that another system hands over to Megatron-Core: read as Megatron-LM's arguments, and told by that system's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from placeproof.core.diagnostics import Problems
from placeproof.core.places import KeyPath
from placeproof.importers.document import Document
from placeproof.importers.imported import Imported, Reading
from placeproof.importers.megatron import reader as megatron


@dataclass(slots=True)
class Arguments:
    """Megatron's arguments, with the path of the setting that says each."""

    data: dict[str, Any] = field(default_factory=dict)
    paths: dict[str, KeyPath] = field(default_factory=dict)

    def put(self, name: str, value: Any, path: KeyPath = ()) -> None:
        """Hand an argument over, unless it says nothing."""
        if value is not None:
            self.data[name] = value
            if path:
                self.paths[name] = path


def read(arguments: Arguments, source: Document, world: int | None, problems: Problems, system: str) -> Imported:
    """The strategy that the arguments say, with readings of the settings of ``system`` that said them alone."""
    spans: dict[KeyPath, tuple[int, int, int]] = {
        (name,): source.spans[path] for name, path in arguments.paths.items() if path in source.spans
    }
    document = Document(data=arguments.data, source=source.source, text=source.text, spans=spans, bare=True)
    with problems.collecting():
        imported = megatron.read(document, world, problems)
        readings = tuple(_renamed(one, arguments.paths) for one in imported.readings if one.name in arguments.paths)
        return replace(imported, system=system, readings=readings)
    return Imported(system=system, source=source.source, expression="", readings=())


def _renamed(reading: Reading, paths: Mapping[str, KeyPath]) -> Reading:
    return replace(reading, name=".".join(map(str, paths[reading.name])))
