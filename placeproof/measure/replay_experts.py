"""Layers with experts on several devices, as real processes compute them together.

An expert is a column of a block's matrices, and every token goes to all of them: each device gives its tokens to every device of its group
and takes back what their experts make of them. In backward the gradients of the outputs go the way of the tokens (Lepikhin et al. 2021,
section 2.2). No weight leaves its device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from placeproof.core.program import Call
from placeproof.measure.replay_local import a
from placeproof.measure.replay_mesh import Group
from placeproof.measure.replay_network import Weights, only_there
from placeproof.measure.replay_numbers import Numbers, stacked, zeros
from placeproof.measure.replay_values import Here, NothingThereError, NotReplayedError, Part, Saved, Stream, Value

#: What runs a layer of the network.
LAYERS = ("forward", "backward", "backward_weight", "backward_input")
#: What :meth:`placeproof.measure.replay_mesh.Mesh.meet` is told of a layer.
LAYER = 7


def layer(here: Here, call: Call, operands: list[Value], results: int) -> Value | tuple[Value, Value]:
    """The value of a forward or a backward, or the values for ``results`` targets. Raises NothingThereError, NotReplayedError, or the
    errors of exchanges."""
    assert here.model.experts is not None
    group = here.mesh.group(here.model.factors((here.model.experts,)))
    here.mesh.meet(group, call, LAYER)
    do = _Layer(here, call, group, a(Part, operands[0], call))
    if call.op == "forward":
        out, saved = do.forward(a(Stream, operands[1], call))
        return (out, saved) if results > 1 else out
    if len(operands) not in (3, 4):
        raise NotReplayedError(f"`{call.op}` of a layer with experts, of other operands than parameters, what forward kept and a gradient")
    whole = a(Stream, operands[3], call) if len(operands) > 3 else None
    gradients, through = do.backward(a(Saved, operands[1], call), a(Stream, operands[2], call), whole)
    if call.op == "backward_input":
        return through
    return (gradients, through) if call.op == "backward" and results > 1 else gradients


@dataclass(frozen=True, slots=True, eq=False)
class _Through:
    """What a device's experts make of one sender's tokens and gradients: the gradients of the tokens, of ``W1`` and of ``W2``."""

    tokens: Numbers
    first: Numbers
    second: Numbers


class _Layer:
    """One call on one device: of whole blocks, or of experts ``alone``, where blocks are computed group by group."""

    def __init__(self, here: Here, call: Call, group: Group, part: Part) -> None:
        self.here, self.call, self.group, self.part = here, call, group, part
        self.weights = Weights.of(here, part)
        self.blocks = here.model.blocks_in(part.extent)
        self.alone = any(g.name == part.group and g.experts for g in here.model.program.groups)
        self._together()

    def _together(self) -> None:
        """The devices of the group have the experts of the same blocks, each its own, and all of them together."""
        model, axis = self.here.model, self.here.model.experts or ""
        extents = [m.to(torch.bool) for m in self.here.mesh.collect(self.group, self.part.extent.to(torch.int64), self.call)]
        experts = model.of_experts
        if any(bool((m & experts & ~model.owns(at, (axis,))).any()) for at, m in zip(self.group.at, extents, strict=True)):
            raise NothingThereError("shapes do not fit: a layer that sends tokens to their experts is given another device's experts")
        if any(model.blocks_in(m) != self.blocks for m in extents):
            raise NotReplayedError("a layer with experts whose devices compute with different blocks")
        beside = [x for g in model.program.groups if g.experts for x in model.slice_axes(g.name) if x != axis]
        wanted = self._in_blocks() & experts & model.owns(self.here.at, beside)
        if bool((wanted & ~torch.stack(extents).any(0)).any()):
            raise NotReplayedError("a layer without some of its experts")

    def _in_blocks(self) -> Tensor:
        return self.here.model.mask([e.block in self.blocks for e in self.here.model.elements])

    # There and back.

    def _given(self, mine: Numbers) -> list[Numbers]:
        """The tokens of every device of the group."""
        return self.here.mesh.collected(self.group, mine, self.call)

    def _back(self, found: Sequence[Numbers]) -> Numbers:
        """What experts made of each device's tokens goes back to that device, which adds up what comes from all."""
        return self.here.mesh.exchanged(self.group, stacked(found), self.call).sum()

    def forward(self, x: Stream) -> tuple[Stream, Saved]:
        """Through all blocks."""
        inputs, outputs = {}, {}
        for block in self.blocks:
            inputs[block] = x
            normed = only_there(x, x.there) * self._scale(block)
            added = self._back([self._out(block, y) for y in self._given(normed)])
            x = Stream(there=x.there, numbers=added if self.alone else x.numbers + added)
            outputs[block] = x
        return x, Saved(inputs=inputs, outputs=outputs)

    def _scale(self, block: int) -> Numbers | int:
        """What a block's input is multiplied with before experts see it: where they are computed alone it comes from the norm."""
        return 1 if self.alone else self.weights(block, "n")

    def _out(self, block: int, y: Numbers) -> Numbers:
        """The sum of the outputs of this device's experts."""
        inner = y @ self.weights(block, "W1")
        return (inner * inner) @ self.weights(block, "W2")

    def backward(self, saved: Saved, dx: Stream, whole: Stream | None) -> tuple[Part, Stream]:
        """The gradients of this device's parameters, and of the layer's input. ``whole``: read instead of what forward kept."""
        grads = zeros(self.here.of, len(self.here.model.elements))
        for block in reversed(self.blocks):
            if whole is None and block not in saved.inputs:
                raise NothingThereError(f"backward through block {block}, of which forward kept nothing on this device")
            x, n = whole if whole is not None else saved.inputs[block], self._scale(block)
            dx.needs(x.there, "the gradient of a block")
            if not self.alone:
                x.needs(dx.there, "the gradient of a block's input")
            mine, behind = only_there(x, x.there), only_there(dx, x.there)
            pairs = zip(self._given(mine * n), self._given(behind), strict=True)
            found = [self._through(block, y, d) for y, d in pairs]
            dy = self._back([f.tokens for f in found])
            counted = [f for f, counts in zip(found, self._counted(), strict=True) if counts]
            own = {} if self.alone else {"n": (mine * dy).sum()}
            own |= {"W1": stacked([f.first for f in counted]).sum(), "W2": stacked([f.second for f in counted]).sum()}
            for part, value in own.items():
                grads = grads.put(self.weights.index(block, part), value)
            dx = Stream(there=x.there, numbers=dy if self.alone else behind + dy * n)
        return self.part.with_numbers(grads, self.part.extent & self._in_blocks()), dx

    def _through(self, block: int, y: Numbers, d: Numbers) -> _Through:
        first, second = self.weights(block, "W1"), self.weights(block, "W2")
        inner = y @ first
        di = (d @ second.transposed) * inner * 2
        return _Through(di @ first.transposed, y.transposed @ di, (inner * inner).transposed @ d)

    def _counted(self) -> list[bool]:
        """Whose tokens an expert's gradient adds up: those of all devices that have samples of their own."""
        model = self.here.model
        same = [f for f in model.factors((model.experts or "",)) if f not in model.sample_factors]
        return [all(at[f] == self.here.at[f] for f in same) for at in self.group.at]
