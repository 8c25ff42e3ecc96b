"""Recipes as functions of Python: of Megatron-Bridge, which return a `ConfigContainer`, and of NeMo 2, which return a `run.Partial`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from placeproof.core.diagnostics import Problems
from placeproof.importers.document import Document
from placeproof.importers.nemo.library import KNOWN, mixed, unsaid
from placeproof.importers.python import Made, Module, Settings, Unknown, plain, shown

#: Types as PyTorch names them, as Megatron's arguments do.
_TYPES = {
    "torch.float32": "fp32", "torch.float": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.half": "fp16",
    "torch.uint8": "fp8",
}  # fmt: skip
#: Tables of which every setting is one: of Megatron-Bridge, and of NeMo 2.
BRIDGE = ("model", "train", "ddp", "optimizer", "mixed_precision", "comm_overlap", "dist", "dataset", "peft")
NEMO = ("trainer", "trainer.strategy", "trainer.strategy.ddp", "trainer.plugins", "optim.config", "data", "model.config", "peft")
_MADE_BY = ("pretrain", "finetune", "train")


@dataclass(frozen=True, kw_only=True)
class Recipe(Document):
    """A recipe's settings. ``classes``: of which class each table is, by its path."""

    classes: dict[str, str] = field(default_factory=dict)
    bridge: bool = True


class _Recipe(Settings):
    """Settings with the classes of tables."""

    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self.classes: dict[str, str] = {}

    def tables(self, path: str, value: Any, node: Any, all_of: tuple[str, ...]) -> None:
        """What a value says, table by table; what is in none of them is one setting."""
        if isinstance(value, list) and path == "trainer.plugins" and len(value) == 1:
            value = value[0]
        if isinstance(value, str) and path == "mixed_precision":
            value = mixed(value, Made("", node)) or value
        inner = any(one == path or one.startswith(f"{path}.") for one in all_of)
        if not (inner and isinstance(value, Made)):
            self.put((*path.split("."),), _simple(value), node)
            return
        self.classes[path] = value.name
        if value.starred or (value.given and path in all_of and path not in ("model", "model.config")):
            self.refuse(f"`{value.name}` takes its settings by name", value.node, "write the names", "PP503")
        for name, one in value.said.items():
            self.tables(f"{path}.{name}", one, value.places[name], all_of)

    def put(self, path: tuple[str, ...], value: Any, node: Any) -> None:
        """Say a setting. None says nothing, and takes back what was said."""
        if value is None:
            table = self.data
            for part in path[:-1]:
                table = table.get(part, {})
            table.pop(path[-1], None)
        else:
            super().put(path, value, node)


def _simple(value: Any) -> Any:
    """Types by their names, objects by their classes, and lists of lists as one text."""
    if isinstance(value, Unknown):
        return _TYPES.get(value.text, value)
    if isinstance(value, list) and all(isinstance(one, Made) for one in value):
        return [one.name.rpartition(".")[2] for one in value]
    return repr(value) if isinstance(value, list) and plain(value) and any(isinstance(one, list) for one in value) else value


def document(text: str, source: str, name: str, problems: Problems) -> Recipe:
    """What a function returns that can be called without arguments. ``name``: of the function; empty for the one that there is."""
    module = Module(text, source, problems, known=KNOWN, unsaid=unsaid, decorators=("run.cli.factory", "factory", "cli.factory"))
    chosen = _chosen(module, name)
    made = module.result(chosen)
    bridge = isinstance(made, Made) and made.name.rpartition(".")[2] == "ConfigContainer"
    if not bridge and not (isinstance(made, Made) and made.name.rpartition(".")[2] in _MADE_BY):
        node = made.node if isinstance(made, Made) else module.functions[chosen]
        message = f"it returns `{shown(made)}`, and a `ConfigContainer` or a `run.Partial` of `pretrain` or `finetune` is read alone"
        problems.add("PP504", message, place=module.place(node), help="give the function that makes all of it, in one file")
        problems.raise_if_any()
    settings, all_of = _Recipe(module), BRIDGE if bridge else NEMO
    if made.starred:
        settings.refuse(f"`{made.name}` takes its settings by name", made.node, "write the names", "PP503")
    settings.put(("recipe",), chosen, made.node)
    for key, value in made.said.items():
        settings.tables(key, value, made.places[key], all_of)
    problems.raise_if_any()
    return Recipe(
        data=settings.data,
        source=source,
        text=text,
        spans=settings.spans,
        open=settings.open,
        classes=settings.classes,
        bridge=bridge,
        typed=True,
    )


def _chosen(module: Module, name: str) -> str:
    """The function that is asked for."""
    configs = [one for one, node in module.functions.items() if _free(node.args) and not one.startswith("_")]
    return name or module.only(configs, "recipes")


def _free(spec: Any) -> bool:
    """Whether a function can be called without arguments."""
    return len(spec.defaults) == len([*spec.posonlyargs, *spec.args]) and None not in spec.kw_defaults
