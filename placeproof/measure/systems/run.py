"""A step of DeepSpeed or Megatron-core, run on processes of this machine, and what is predicted of it."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Mapping
from math import prod

from placeproof.core.diagnostics import refuse
from placeproof.core.shapes import Shapes
from placeproof.core.strategy import Strategy
from placeproof.cost.exact import megatron
from placeproof.cost.exact.options import Value
from placeproof.cost.exact.predict import Predicted, of_system
from placeproof.measure.measured import Measured
from placeproof.measure.systems.cases import SystemCase, predicted

#: Profiles of whole systems: the name of the system here, the package that it needs, the extra that installs it.
SYSTEMS: Mapping[str, tuple[str, str, str]] = {
    "deepspeed-0.19": ("deepspeed", "deepspeed", "deepspeed"),
    "megatron-core": ("megatron", "megatron.core", "megatron"),
}
_STAGES = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}


def run_system(
    profile: str, strategy: Strategy, shapes: Shapes, mesh: Mapping[str, int], options: Mapping[str, Value]
) -> tuple[Predicted, Measured]:
    """Predict a step of a whole system, and measure it. Raises InputError where the system is not installed, or cannot run the strategy."""
    system, package, extra = SYSTEMS[profile]
    _require(package, extra)
    case = _deepspeed(strategy, shapes, mesh, options) if system == "deepspeed" else _megatron(strategy, shapes, mesh, options)
    prediction = of_system(predicted(case))
    began = time.monotonic()
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    if system == "deepspeed":
        from placeproof.measure.systems.deepspeed import measure
    else:
        from placeproof.measure.systems.megatron import measure
    (result,) = measure([case])
    measured = Measured(
        subject=profile,
        shapes=case.shapes,
        mesh=dict(case.mesh),
        rank=0,
        backend="gloo",
        options=dict(case.options),
        exchanges=result.exchanges,
        dtypes=("",) * len(result.exchanges),
        setup=(),
        memory=dict(result.memory),
        seconds=time.monotonic() - began,
        torch=f"{package} {result.version}",
    )
    return prediction, measured


def _require(package: str, extra: str) -> None:
    try:
        there = importlib.util.find_spec(package) is not None and importlib.util.find_spec("torch") is not None
    except ModuleNotFoundError:
        there = False
    if not there:
        refuse("PP601", f"{package} is not installed: it cannot be measured", help=f'pip install "placeproof[{extra}]"')


def _deepspeed(strategy: Strategy, shapes: Shapes, mesh: Mapping[str, int], options: Mapping[str, Value]) -> SystemCase:
    name = strategy.parts[0].split("(")[0]
    if len(strategy.parts) > 1 or name not in _STAGES or set(mesh) != {"dp"}:
        refuse("PP601", f"a step of DeepSpeed is one stage on `dp`, not `{strategy.name}`", f"one of {', '.join(_STAGES)}")
    return SystemCase(system="deepspeed", shapes=shapes, mesh=mesh, options={**options, "stage": _STAGES[name]})


def _megatron(strategy: Strategy, shapes: Shapes, mesh: Mapping[str, int], options: Mapping[str, Value]) -> SystemCase:
    names = {part.split("(")[0] for part in strategy.parts}
    dims = {name: size for name, size in shapes.dims if name != "width"}
    if not names <= {"ddp", "zero1", "tp", "sp"} or not set(mesh) <= {"dp", "tp"} or "heads" not in dims:
        refuse(
            "PP601",
            f"a step of Megatron-core here is ddp or zero1, with tp and sp, of `transformer(...)`, not `{strategy.name}` of {shapes.name}",
            "for example `zero1(2) * tp(2) * sp` without `--shapes`",
        )
    full = {"dp": mesh.get("dp", 1), "tp": mesh.get("tp", 1)}
    if prod(full.values()) < 2:
        refuse("PP601", "one device exchanges nothing", "give `dp` or `tp` at least 2 devices")
    settled = {**options, "use_distributed_optimizer": "zero1" in names, "sequence_parallel": "sp" in names}
    return SystemCase(system="megatron", shapes=megatron.decoder(**dims), mesh=full, options=settled)
