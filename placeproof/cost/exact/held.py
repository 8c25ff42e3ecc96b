"""What a device allocates and holds between steps, and keeps from forward to backward: bytes, exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

from placeproof.core.shapes import Unit, Weight
from placeproof.core.states import GRADIENTS, OPTIMIZER, PARAMETERS, State
from placeproof.cost.blocks.tensors import kept_bytes
from placeproof.cost.exact.cuts import Shape, dealt, local_shape, own, rows
from placeproof.cost.exact.setting import Setting
from placeproof.cost.exact.walk import Walk, block, sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tensor:
    """One tensor of a state on this device: its shape, bytes of an element, and bytes of its storage, 0 where it lies in that of another
    one. ``count``: the parameters that it stands for."""

    shape: Shape
    width: int
    storage: int
    count: int = 1

    @property
    def bytes(self) -> int:
        """Its elements times their width."""
        return self.width * prod(self.shape)


def allocated(setting: Setting) -> dict[str, int]:
    """Bytes of storages by state: ``parameters``, ``gradients``, ``optimizer``; ``activations`` where the model's blocks are known."""
    optimizer = setting.optimizer
    storages = {
        "parameters": sum(t.storage for t in _tensors(setting, PARAMETERS, _every)),
        "gradients": _gradients(setting),
        "optimizer": sum(t.width * optimizer.numbers(t.shape) + 4 * optimizer.scalars * t.count for t in _kept(setting)),
    }
    known = setting.knows_blocks and setting.shapes.plain and not setting.accumulates
    if setting.stage_axis is None and not setting.strategy.schedule.recompute and known:
        storages["activations"] = _activations(setting)
    return storages


def held(setting: Setting) -> dict[str, int]:
    """Bytes of ``parameters`` and ``gradients`` as elements times their width, without what their storages have to spare."""
    return {
        "parameters": sum(t.bytes for t in _tensors(setting, PARAMETERS, _every)),
        "gradients": sum(t.bytes for t in _tensors(setting, GRADIENTS, setting.learns)) + _whole(setting),
    }


def _gradients(setting: Setting) -> int:
    """Bytes of the storages of gradients: of their own, or of DistributedDataParallel's buckets, which unused weights have room in, too."""
    if not setting.options.get("gradient_as_bucket_view"):
        return sum(t.storage for t in _tensors(setting, GRADIENTS, setting.learns)) + _whole(setting)
    buckets = Walk(setting).buckets([w for w in setting.shapes.weights if w.trained])
    return sum(setting.width(w) * w.elements for bucket in buckets if any(map(setting.learns, bucket)) for w in bucket)


def _every(weight: Weight) -> bool:
    return True


def _kept(setting: Setting) -> Iterator[_Tensor]:
    """The parameters on this device of which the optimizer keeps something."""
    return _tensors(setting, OPTIMIZER, setting.given if setting.optimizer.eager else lambda w: setting.given(w) and setting.learns(w))


def _local(setting: Setting, weight: Weight) -> tuple[int, ...]:
    return local_shape(weight, 1 if setting.hidden is None else setting.mesh[setting.hidden])


def _cut(setting: Setting, state: State) -> tuple[int, int]:
    """Into how many parts the axes of samples cut a state, and which part is this device's."""
    parts, part = 1, 0
    for axis in setting.strategy.axes:
        if axis.splits.samples and setting.strategy.mode(state, axis.name).split:
            parts, part = parts * setting.mesh[axis.name], part * setting.mesh[axis.name] + setting.at[axis.name]
    return parts, part


def _tensors(setting: Setting, state: State, has: Callable[[Weight], bool]) -> Iterator[_Tensor]:
    """The tensors of a state on this device, of the weights that have it."""
    units = [u for stage in setting.own_stages for u in setting.units_of(stage)]
    (parts, part), cut = _cut(setting, state), setting.states.cut
    if cut == "weights" and parts > 1:
        mine = _dealt(setting, units, parts, part)
        yield from (_whole_tensor(setting, w) for w in mine if has(w))
        return
    for unit in units:
        weights = [w for w in unit.weights if has(w)]
        if cut == "flat":
            yield from _flat(setting, unit, weights, parts, part)
        elif parts == 1:
            yield from (_whole_tensor(setting, w) for w in weights)
        elif cut == "rows":
            yield from (_rows(setting, w, parts, part) for w in weights)
        else:
            yield from _elements(setting, weights, parts, part)


def _whole_tensor(setting: Setting, weight: Weight) -> _Tensor:
    shape, width = _local(setting, weight), setting.width(weight)
    return _Tensor(shape=shape, width=width, storage=width * prod(shape))


def _rows(setting: Setting, weight: Weight, parts: int, part: int) -> _Tensor:
    """A part of rows lies in a storage of as many rows as the first device has (torch==2.13.0:
    torch/distributed/fsdp/_fully_shard/_fsdp_param.py, ``_init_sharded_param``)."""
    shape, width = _local(setting, weight), setting.width(weight)
    rest = shape[1:]
    return _Tensor(shape=(rows(shape, parts, part), *rest), width=width, storage=width * rows(shape, parts, 0) * prod(rest))


def _elements(setting: Setting, weights: list[Weight], parts: int, part: int) -> Iterator[_Tensor]:
    for width in dict.fromkeys(map(setting.width, weights)):
        alike = [w for w in weights if setting.width(w) == width]
        elements = own("elements", [_local(setting, w) for w in alike], parts, part)
        yield _Tensor(shape=(elements,), width=width, storage=width * elements, count=len(alike))


def _flat(setting: Setting, unit: Unit, weights: list[Weight], parts: int, part: int) -> Iterator[_Tensor]:
    """The part of a unit's flat tensor, where some of its weights have the state: as one tensor, or with ``use_orig_params`` as one of each
    weight that lies in the part, in one storage."""
    if not weights:
        return
    width, size = setting.width(unit.weights[0]), setting.flat(unit.weights) // parts
    if not setting.options.get("use_orig_params"):
        yield _Tensor(shape=(size,), width=width, storage=width * size)
        return
    storage = width * size
    for weight, begin in setting.begins(unit.weights):
        shape = _local(setting, weight)
        elements = min(begin + prod(shape), size * (part + 1)) - max(begin, size * part)
        if weight not in weights or (elements <= 0 and not setting.optimizer.eager):
            continue
        yield _Tensor(shape=shape if parts == 1 else (max(0, elements),), width=width, storage=storage if elements > 0 else 0)
        storage = 0 if elements > 0 else storage


def _dealt(setting: Setting, units: list[Unit], parts: int, part: int) -> list[Weight]:
    weights = [w for u in units for w in u.weights if setting.given(w)]
    if not all(map(setting.learns, weights)):  # of several of one size it matters which comes first
        weights = [w for w in setting.shapes.by_registration if w in weights]
    owners = dealt([_local(setting, w) for w in weights], parts)
    return [w for w, owner in zip(weights, owners, strict=True) if owner == part]


def _whole(setting: Setting) -> int:
    """Bytes that gradients take beyond the device's part, where a split weight's gradient is kept whole."""
    if setting.blocks is None or setting.hidden is None or _cut(setting, GRADIENTS)[0] > 1:
        return 0
    units = [u for stage in setting.own_stages for u in setting.units_of(stage)]
    named = [w for u in units for w in u.weights if w.name in setting.blocks.whole_gradients and setting.learns(w)]
    return sum(setting.width(w) * (w.elements - prod(_local(setting, w))) for w in named)


def _activations(setting: Setting) -> int:
    plan = setting.blocks.plan if setting.blocks is not None else ""
    degrees = {} if setting.hidden is None else {"tp": setting.mesh[setting.hidden]}
    dims = sizes(dict(setting.shapes.dims))
    names = [name for u in setting.shapes.units for name in u.blocks]
    width = setting.widths.computed
    least = {name: max(width, least) for name, least in setting.states.kept.items()}
    return sum(int(kept_bytes(block(name, plan), dims, degrees, width, least)) for name in names)
