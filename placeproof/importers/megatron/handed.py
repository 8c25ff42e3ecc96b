"""Settings that another system hands over to Megatron-Core: read as Megatron-LM's arguments, and told by that system's names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.core.places import KeyPath
from placeproof.importers.document import Document
from placeproof.importers.fields import Reader
from placeproof.importers.imported import Imported, Reading, Role
from placeproof.importers.megatron import reader as megatron
from placeproof.importers.settings import settings

#: Settings of Megatron-Core that Megatron's arguments call otherwise.
OTHERWISE = {
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
}
#: Of kernels and of what runs beside what: nothing that a step computes, or that a formula counts.
_KERNELS = frozenset((
    "apply_rope_fusion", "masked_softmax_fusion", "bias_activation_fusion", "bias_dropout_fusion", "gradient_accumulation_fusion",
    "deallocate_pipeline_outputs", "persist_layer_norm", "attention_softmax_in_fp32", "variable_seq_lengths", "average_in_collective",
    "overlap_p2p_comm", "batch_p2p_comm", "use_flash_attn", "attention_backend",
))  # fmt: skip


@dataclass(slots=True)
class Arguments:
    """Megatron's arguments, with the path of the setting that says each, and the value of that where it is another one."""

    data: dict[str, Any] = field(default_factory=dict)
    paths: dict[str, KeyPath] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def put(self, name: str, value: Any, path: KeyPath = (), said: Any = None) -> None:
        """Hand an argument over, unless it says nothing. ``said``: the value of the setting, where that is another one."""
        if value is not None:
            self.data[name] = value
            if path:
                self.paths[name] = path
            if said is not None:
                self.values[name] = said


def read(arguments: Arguments, source: Document, world: int | None, problems: Problems, system: str) -> Imported:
    """The strategy that the arguments say, with readings of the settings of ``system`` that said them alone."""
    spans: dict[KeyPath, tuple[int, int, int]] = {
        (name,): source.spans[path] for name, path in arguments.paths.items() if path in source.spans
    }
    elsewhere: dict[KeyPath, Document] = {
        (name,): replace(source.elsewhere[path], spans={(name,): spans[(name,)]}, elsewhere={})
        for name, path in arguments.paths.items()
        if path in source.elsewhere
    }
    document = Document(data=arguments.data, source=source.source, text=source.text, spans=spans, bare=True, elsewhere=elsewhere)
    with problems.collecting():
        imported = megatron.read(document, world, problems, core=True)
        readings = tuple(_renamed(one, arguments) for one in imported.readings if one.name in arguments.paths)
        return replace(imported, system=system, readings=readings)
    return Imported(system=system, source=source.source, expression="", readings=())


def _renamed(reading: Reading, arguments: Arguments) -> Reading:
    """By the name of the setting that said it, with the value that it has."""
    value = arguments.values.get(reading.name, reading.value)
    return replace(reading, name=".".join(map(str, arguments.paths[reading.name])), value=value)


def path_of(reader: Reader, name: str) -> KeyPath:
    """Where a document says a setting; empty where it does not."""
    return tuple(reader.name(name).split(".")) if reader.name(name) in reader.found else ()


def hand(reader: Reader, arguments: Arguments, name: str, its: str, value: Any = None) -> None:
    """Hand a setting over by Megatron's name for it. What is false is left out. ``value``: in place of the setting's own."""
    own = reader.get(name)
    handed = own if value is None else value
    arguments.put(its, handed if handed is not False else None, path_of(reader, name), None if value is None else own)


def table(reader: Reader, arguments: Arguments, path: tuple[str, ...], *, apart: Collection[str] = ()) -> None:
    """Hand over what a table of Megatron-Core's own settings says, but those that are read ``apart``; another one in it is a problem."""
    rows: Any = reader.document.data
    for part in path:
        rows = rows.get(part) if isinstance(rows, Mapping) else None
    known = {name for row in settings("megatron") for name in row.names}
    for key, value in (rows or {}).items() if isinstance(rows, Mapping) else ():
        name, here = OTHERWISE.get(str(key), str(key)), (*path, str(key))
        if key in apart:
            continue
        if name == "grad_reduce_in_fp32":
            arguments.put("grad_reduce_in_bf16", True if value in (False, "False", "false") else None, here, said=False)
        elif name in known and not isinstance(value, Mapping):
            arguments.put(name, value if value is not False else None, here)
        elif name in _KERNELS:
            reader.note(".".join(here), "kernels, and what runs beside what: the same step", Role.NO_MATTER)
        else:
            help = suggestion(name, known) or "leave it out, or ask about the strategy itself"
            reader.refuse(".".join(here), f"`{key}` is no setting of Megatron-LM that is read here", help, "PP502")
