"""Layers with experts on several devices, as the devices among which they lie compute them together.

Every token goes to all devices that own one of its experts, and the results come back; in backward the gradients go the same way. What a
device sends is taken from that device, and what an expert computes is computed with its owner's weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placeproof.core.program import Call
from placeproof.semantics.simulate import model
from placeproof.semantics.simulate.layout import Element
from placeproof.semantics.simulate.model import Kept, Stream
from placeproof.semantics.simulate.values import Part, Reads, Saved, garbage

if TYPE_CHECKING:
    from placeproof.semantics.simulate.device import Device

#: Operations of a layer.
LAYERS = ("forward", "backward", "backward_weight", "backward_input")


@dataclass(frozen=True)
class LayerCall:
    """What one device brings to a layer: its operands, and how many results it takes."""

    operands: list[Any]
    results: int


class MisfitError(Exception):
    """Weights have another shape than the layer has on this device."""


Members = list[tuple["Device", LayerCall]]


def layer(call: Call, members: Members) -> list[Any]:
    """The result of a layer on each device of a group among which its experts lie."""
    if call.op == "forward":
        return [_forward(device, one, members) for device, one in members]
    if any(len(one.operands) < 3 for _, one in members):
        raise TypeError("a whole pass of a network with experts has no meaning in the simulator")
    found = {id(device): _backward(device, one, members) for device, one in members}
    return [_result(call, device, one, members, found) for device, one in members]


def _result(call: Call, device: Device, one: LayerCall, members: Members, found: dict[int, tuple[dict[Element, Any], Stream]]) -> Any:
    through = found[id(device)][1]
    if call.op == "backward_input":
        return through
    weights = _gathered_gradients(device, one.operands[0], members, found)
    return (weights, through) if call.op == "backward" and one.results > 1 else weights


def _weights(device: Device, w: Part, members: Members) -> Reads:
    """The parameters that a device's tokens meet: its own, and of experts those of their owners."""
    data = {e: v for e, v in w.data.items() if not device.layout.is_expert(e)}
    for other, one in members:
        theirs: Part = one.operands[0]
        for element in theirs.extent:
            if not device.layout.is_expert(element):
                continue
            if not other.owns(element, (device.layout.experts or "",)):
                raise MisfitError("shapes do not fit: a layer that sends tokens to their experts is given another device's experts as well")
            data[element] = theirs.data.get(element, garbage(other.at, element))
    return Reads(Part(extent=w.extent, data=data), device.at)


def _forward(device: Device, one: LayerCall, members: Members) -> Any:
    w, x = one.operands
    reads, kept = _weights(device, w, members), Kept()
    for block in w.blocks:
        kept.inputs[block] = x
        forward = model.matrix_forward if _alone(device, w) else model.block_forward
        x = forward(reads, block, x, _columns(device, w, members))
        kept.outputs[block] = x
    return (x, Saved(kept, w.group)) if one.results > 1 else x


def _alone(device: Device, w: Part) -> bool:
    """Whether experts are computed alone, where blocks are computed group by group."""
    return w.group in device.layout.expert_groups


def _columns(device: Device, w: Part, members: Members) -> range | list[int]:
    """The inner columns of a layer: all; of a block's experts those that the devices among which they lie have together."""
    if not _alone(device, w):
        return range(device.layout.width)
    return sorted({j for _, one in members for j in one.operands[0].columns})


def _backward(device: Device, one: LayerCall, members: Members) -> tuple[dict[Element, Any], Stream]:
    """What the tokens of one device add to the gradient of every parameter that they met, and the gradient of the layer's input."""
    w, saved, dx, *whole = one.operands
    reads = _weights(device, w, members)
    grads: dict[Element, Any] = {}
    for block in reversed(w.blocks):
        x = whole[0] if whole else saved.kept.inputs[block]
        backward = model.matrix_backward if _alone(device, w) else model.block_backward
        dx, own = backward(reads, block, x, dx, _columns(device, w, members))
        grads |= own
    return grads, dx


def _gathered_gradients(device: Device, w: Part, members: Members, found: dict[int, tuple[dict[Element, Any], Stream]]) -> Part:
    """A device's gradient: of its own tokens; for its experts, of all tokens that were sent to them."""
    layout = device.layout
    along = set(layout.factors((layout.experts or "",)))
    apart = along & set(layout.sample_factors)
    data: dict[Element, Any] = {}
    for element in w.extent:
        senders = [device]
        if layout.is_expert(element):
            senders = [o for o, _ in members if all(o.at[f] == n for f, n in device.at.items() if f in along - apart)]
        data[element] = sum((found[id(o)][0][element] for o in senders), 0)
    return w.with_data(data)
