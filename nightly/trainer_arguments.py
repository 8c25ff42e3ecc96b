"""The arguments of transformers' Trainer, LLaMA-Factory, axolotl and peft's adapters, and their defaults, as their sources say them.

Nothing of the sources is run. `python nightly/trainer_arguments.py FOLDER` reads the packages unpacked in a folder, and writes
`tests/data/trainer_arguments.json`.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STORED = Path(__file__).parents[1] / "tests" / "data" / "trainer_arguments.json"
#: Files and the classes in them whose fields are arguments: of each package with its version.
SOURCES: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "transformers": ("5.24.0", {"transformers/training_args.py": ("TrainingArguments",)}),
    "llamafactory": (
        "0.9.5",
        {f"llamafactory/hparams/{name}_args.py": () for name in ("data", "finetuning", "generating", "model", "training")},
    ),
    "axolotl": (
        "0.19.0",
        {
            f"axolotl/utils/schemas/{name}.py": ()
            for name in ("config", "model", "training", "integrations", "multimodal", "peft", "deprecated")
        },
    ),
    "peft": ("0.21.2", {"peft/config.py": ("PeftConfigMixin", "PeftConfig"), "peft/tuners/lora/config.py": ("LoraConfig",)}),
}
#: Classes whose fields are no arguments of their own, but inside of one, or that a file does not say.
INSIDE = (
    *("EBFTConfig", "AxolotlConfigWCapabilities", "LoftQConfig", "PeftConfig", "LrGroup"),
    *("SelectiveCheckpointingConfig", "RoleBoundarySpec", "SpecialTokensConfig"),
)


def fields(text: str, classes: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """The fields of classes, all but those inside others if none is named, with their defaults; None where a default is no literal."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and (node.name in classes or (not classes and node.name not in INSIDE)):
            for one in node.body:
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and "init=False" not in ast.unparse(one):
                    yield one.target.id, _default(one.value)


def _default(value: ast.expr | None) -> Any:
    if isinstance(value, ast.Call):
        value = next((k.value for k in value.keywords if k.arg == "default"), None)
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, bool | int | float | str) else None


def main(folder: str) -> None:
    """Write down what the packages in a folder say."""
    said = {}
    for system, (version, files) in SOURCES.items():
        rows = [row for name, classes in files.items() for row in fields((Path(folder) / name).read_text(encoding="utf-8"), classes)]
        said[system] = {"version": version, "arguments": dict(sorted(rows))}
    STORED.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
