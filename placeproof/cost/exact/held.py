"""What a device allocates and holds between steps, and keeps from forward to backward: bytes, exactly."""

from __future__ import annotations

from math import prod

from placeproof.core.shapes import Unit, Weight
from placeproof.core.states import GRADIENTS, OPTIMIZER, PARAMETERS, State
from placeproof.cost.blocks.tensors import kept_bytes
from placeproof.cost.exact.cuts import dealt, local_shape, own
from placeproof.cost.exact.setting import Setting
from placeproof.cost.exact.walk import block, sizes

#: Numbers that an optimizer keeps for each element, and bytes that it keeps for each tensor (a count of steps).
OPTIMIZERS = {"adamw": (2, 4), "sgd": (0, 0)}


def allocated(setting: Setting) -> dict[str, int]:
    """Bytes of storages by state: ``parameters``, ``gradients``, ``optimizer``; ``activations`` where the model's blocks are known."""
    units = _units(setting)
    kinds, counts = OPTIMIZERS[str(setting.options.get("optimizer") or "adamw")]
    width = setting.widths.kept
    storages = {
        "parameters": width * _stored(setting, PARAMETERS, units),
        "gradients": width * (_stored(setting, GRADIENTS, units) + _whole(setting, units)),
        "optimizer": width * kinds * _elements(setting, OPTIMIZER, units) + counts * _tensors(setting, units),
    }
    if setting.stage_axis is None and not setting.strategy.schedule.recompute and setting.knows_blocks:
        storages["activations"] = _activations(setting)
    return storages


def held(setting: Setting) -> dict[str, int]:
    """Bytes of ``parameters`` and ``gradients`` as elements times their width, without what their storages have to spare."""
    units, width = _units(setting), setting.widths.kept
    return {
        "parameters": width * _elements(setting, PARAMETERS, units),
        "gradients": width * (_elements(setting, GRADIENTS, units) + _whole(setting, units)),
    }


def _units(setting: Setting) -> list[Unit]:
    return [u for stage in setting.own_stages for u in setting.units_of(stage)]


def _local(setting: Setting, weight: Weight) -> tuple[int, ...]:
    return local_shape(weight, 1 if setting.hidden is None else setting.mesh[setting.hidden])


def _cut(setting: Setting, state: State) -> tuple[int, int]:
    """Into how many parts the axes of samples cut a state, and which part is this device's."""
    parts, part = 1, 0
    for axis in setting.strategy.axes:
        if axis.splits.samples and setting.strategy.mode(state, axis.name).split:
            parts, part = parts * setting.mesh[axis.name], part * setting.mesh[axis.name] + setting.at[axis.name]
    return parts, part


def _stored(setting: Setting, state: State, units: list[Unit]) -> int:
    """Elements of the storages of parameters or gradients: a part of rows lies in one of as many rows as the first device has
    (torch==2.13.0:torch/distributed/fsdp/_fully_shard/_fsdp_param.py, ``_init_sharded_param``)."""
    parts, _ = _cut(setting, state)
    if parts == 1 or setting.states.cut != "rows":
        return _elements(setting, state, units)
    return sum(own("rows", [_local(setting, w) for w in u.weights], parts, 0) for u in units)


def _elements(setting: Setting, state: State, units: list[Unit]) -> int:
    (parts, part), how = _cut(setting, state), setting.states.cut
    if parts == 1:
        return sum(prod(_local(setting, w)) for u in units for w in u.weights)
    if how == "weights":
        return sum(prod(_local(setting, w)) for w in _dealt(setting, units, parts, part))
    return sum(own(how, [_local(setting, w) for w in u.weights], parts, part) for u in units)


def _dealt(setting: Setting, units: list[Unit], parts: int, part: int) -> list[Weight]:
    weights = [w for u in units for w in u.weights]
    owners = dealt([_local(setting, w) for w in weights], parts)
    return [w for w, owner in zip(weights, owners, strict=True) if owner == part]


def _tensors(setting: Setting, units: list[Unit]) -> int:
    """The tensors that the optimizer sees."""
    parts, part = _cut(setting, OPTIMIZER)
    if setting.states.cut == "weights" and parts > 1:
        return len(_dealt(setting, units, parts, part))
    if setting.states.cut == "flat":
        return sum(1 for u in units if u.weights)
    return sum(len(u.weights) for u in units)


def _whole(setting: Setting, units: list[Unit]) -> int:
    """Elements that gradients take beyond the device's part, where a split weight's gradient is kept whole."""
    if setting.blocks is None or setting.hidden is None or _cut(setting, GRADIENTS)[0] > 1:
        return 0
    named = [w for u in units for w in u.weights if w.name in setting.blocks.whole_gradients]
    return sum(w.elements - prod(_local(setting, w)) for w in named)


def _activations(setting: Setting) -> int:
    plan = setting.blocks.plan if setting.blocks is not None else ""
    degrees = {} if setting.hidden is None else {"tp": setting.mesh[setting.hidden]}
    dims = sizes(dict(setting.shapes.dims))
    names = [name for u in setting.shapes.units for name in u.blocks]
    width = setting.widths.computed
    least = {name: max(width, least) for name, least in setting.states.kept.items()}
    return sum(int(kept_bytes(block(name, plan), dims, degrees, width, least)) for name in names)
