"""The scripts of ``nightly/scripts``: whether each trains what one process trains, and what placeproof says of it.

The first is seen by really running them: as processes on gloo, in float64, against the script's ``reference``, which knows of no ranks.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import runpy
import sys
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from placeproof.cli.main import run as command
from placeproof.measure.processes import Outcome, message, run

FOLDER = Path(__file__).parents[2] / "nightly" / "scripts"
#: What ``nightly/recorded_scripts.py`` found last.
RESULTS = FOLDER.parent / "recorded_scripts.json"
#: What is imported before processes are forked, by the package that a script imports: each of them would import it anew.
PRELOADED = {
    "torch": (
        "torch.distributed.fsdp",
        "torch.distributed.tensor.parallel",
        "torch.distributed.optim",
        "torch.distributed.nn.functional",
        "torch._dynamo",
    ),
    "transformers": ("transformers.trainer",),
    "accelerate": ("accelerate",),
}
OWN = ("z3", "placeproof.semantics.judge.verdict", "placeproof.measure.record.record")
#: Relative distances from what one process trains: below the first it is the same, above the second it is not.
SAME, OTHER = 1e-9, 1e-7
#: Seconds that one script may take to train, and to be recorded.
TRAINING, RECORDING = 60, 400
VERDICTS = {0: "proved", 1: "refuted", 3: "unknown", 4: "proved except"}


@dataclass(frozen=True)
class Script:
    """A file that has ``train``, ``reference``, ``WORLD`` and perhaps ``STEPS``. Its docstring begins with "Right:" or "Wrong:"."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @cached_property
    def _tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @property
    def claim(self) -> str:
        """What the docstring says: "right" or "wrong"."""
        said = (ast.get_docstring(self._tree) or "").partition(":")[0].lower()
        assert said in {"right", "wrong"}, f"{self.name} does not say whether it is right"
        return said

    @property
    def packages(self) -> list[str]:
        """Those of PRELOADED that it imports."""
        text = self.path.read_text(encoding="utf-8")
        return [p for p in PRELOADED if f"import {p}" in text or f"from {p}" in text]

    @property
    def missing(self) -> list[str]:
        return [p for p in self.packages if importlib.util.find_spec(p) is None]

    @property
    def constant(self) -> str | None:
        """By which its loss is a multiple of a mean, as its docstring says; None where it is something else."""
        said = re.search(r"^The loss: (?:([\d./]+) \* )?mean over", ast.get_docstring(self._tree) or "", re.MULTILINE)
        return None if said is None else said[1] or "1"

    def number(self, name: str, otherwise: int) -> int:
        """A constant of the script."""
        values = [n.value for n in self._tree.body if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == name]
        return int(ast.literal_eval(values[0])) if values else otherwise

    def preload(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for module in (*OWN, *(module for package in self.packages for module in PRELOADED[package])):
                importlib.import_module(module)


def scripts() -> list[Script]:
    return [Script(path) for path in sorted(FOLDER.glob("*.py"))]


def truth(script: Script) -> str:
    """ "right": all ranks end with what one process ends with; "wrong": one of them does not, or fails."""
    script.preload()
    outcomes: list[Outcome[float]] = run(
        script.number("WORLD", 2), lambda *rank: _distance(script, *rank), timeout=TRAINING, init=False, environment={}
    )
    if any(o.kind != "ok" for o in outcomes):
        return f"wrong: {message(outcomes).splitlines()[0]}"
    worst = max(o.value for o in outcomes if o.value is not None)
    assert worst < SAME or worst > OTHER, f"{script.name} ends {worst:.1e} from one process: neither the same nor another"
    return "right" if worst < SAME else f"wrong: {worst:.1e} from one process"


def _distance(script: Script, rank: int, world: int, directory: Path) -> float:
    import torch
    import torch.distributed as dist

    warnings.simplefilter("ignore")  # of PyTorch, as a script's own process would show them
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    sys.path.insert(0, str(FOLDER))
    sys.argv = [str(script.path)]
    module: dict[str, Any] = runpy.run_path(str(script.path), run_name="script")
    expected = module["reference"](world)
    dist.init_process_group("gloo", init_method=f"file://{directory}/group", rank=rank, world_size=world)
    model = module["train"]()
    trained = model.whole() if hasattr(model, "whole") else importlib.import_module("toys.one_process").parameters(model)
    assert trained.keys() == expected.keys(), f"{sorted(trained)} against {sorted(expected)}"
    return max(float((trained[n] - p).abs().max() / p.abs().max().clamp(min=1e-12)) for n, p in expected.items())


def verdict(script: Script) -> tuple[str, str]:
    """ "proved", "proved except", "refuted", "unknown" or "refused", and the line that says why; "broken" where it ends otherwise. Where a
    refusal asks for the constant of the loss, it is given what the script's docstring says."""
    script.preload()
    (outcome,) = run(1, lambda *rank: _answer(script, rank[2]), timeout=RECORDING, init=False)
    if outcome.value == "refused" and "--loss-constant" in outcome.output and script.constant is not None:
        given = "--loss-constant", script.constant
        (outcome,) = run(1, lambda *rank: _answer(script, rank[2], *given), timeout=RECORDING, init=False)
    said = [line for line in outcome.output.splitlines() if line.startswith("error")]
    return outcome.value or "broken", said[0] if said else "" if outcome.value else f"{outcome.error}\n{outcome.output}"


def _answer(script: Script, directory: Path, *options: str) -> str | None:
    warnings.simplefilter("ignore")
    os.chdir(directory)
    steps = script.number("STEPS", 1)
    code = command(["trace", "record", str(script.path), "-o", "recorded.step", *(["--steps", str(steps)] if steps > 1 else []), *options])
    if code:
        return {1: "refuted", 2: "refused"}.get(code)
    return VERDICTS.get(command(["prove", "recorded.step"]))
