"""Which whole system predicts a strategy: its own rules say which calls it makes of what its programs do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from placeproof.core.diagnostics import refuse
from placeproof.core.shapes import Shapes
from placeproof.core.strategy import Strategy
from placeproof.cost.exact import deepspeed, megatron
from placeproof.cost.exact.options import Value
from placeproof.cost.exact.setting import SystemPrediction
from placeproof.profiles.profile import Implementation


def predict_system(
    strategy: Strategy,
    implementations: tuple[Implementation, ...],
    shapes: Shapes,
    mesh: Mapping[str, int],
    options: Mapping[str, Value],
) -> SystemPrediction:
    """Exact bytes by the rules of the system that the implementations belong to. Raises InputError for a mesh, a composition or an option
    of which it is not known what the system does.
    """
    given = {name: value for name, value in options.items() if value is not None}
    names = tuple(implementation.name for implementation in implementations)
    if implementations[0].system == "deepspeed":
        return _deepspeed(strategy, names, shapes, mesh, given)
    return _megatron(strategy, names, shapes, mesh, given)


def _deepspeed(
    strategy: Strategy, names: tuple[str, ...], shapes: Shapes, mesh: Mapping[str, int], options: Mapping[str, Value]
) -> SystemPrediction:
    if len(names) > 1 or len(strategy.parts) > 1 or len(mesh) != 1:
        refuse(
            "PP104", f"exact bytes of DeepSpeed are known for one stage on one axis, not for `{strategy.name}`", "leave out the other parts"
        )
    (axis,) = mesh
    options = {**options, "stage": int(names[0].removeprefix("stage")[0])}
    if names[0].endswith("_owners"):
        options = {**options, "use_multi_rank_bucket_allreduce": False}
    prediction = deepspeed.predict_step(shapes, mesh[axis], options)
    return replace(prediction, exchanges=tuple(replace(e, axes=(axis,)) for e in prediction.exchanges))


def _megatron(
    strategy: Strategy, names: tuple[str, ...], shapes: Shapes, mesh: Mapping[str, int], options: Mapping[str, Value]
) -> SystemPrediction:
    if not {"dp"} <= set(mesh) <= {"dp", "tp"} or not {p.split("(")[0] for p in strategy.parts} <= {"ddp", "zero1", "tp", "sp"}:
        refuse(
            "PP104",
            f"exact bytes of Megatron-core are known for ddp or zero1 on `dp`, with tp and sp on `tp`, not for `{strategy.name}`",
            "leave out the other parts",
        )
    fixed = {"use_distributed_optimizer": "distributed_optimizer" in names, "sequence_parallel": "tp_sp" in names}
    return megatron.predict_step(shapes, {"dp": mesh["dp"], "tp": mesh.get("tp", 1)}, {**options, **fixed})
