"""What collectives do to the values of a group of simulated devices, in exact arithmetic."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from placeproof.core.program import Call
from placeproof.semantics.simulate.experts import LayerCall, layer
from placeproof.semantics.simulate.layout import Element
from placeproof.semantics.simulate.numbers import Recorded, Residue
from placeproof.semantics.simulate.values import Part, Saved, garbage

if TYPE_CHECKING:
    from placeproof.semantics.simulate.device import Device

Members = list[tuple["Device", Any]]

#: What goes from each part's owner, or to it, instead of from one root.
_BY_OWNERS = {"broadcast": "all_gather", "reduce": "reduce_scatter"}


def exchange(call: Call, members: Members) -> list[Any]:
    """The result of a collective on each member, in the order given."""
    first = members[0][1]
    if isinstance(first, LayerCall):
        return layer(call, members)
    if call.op in ("backward", "backward_with"):
        return [_pass_of(device, members) for device, _ in members]
    if call.op in _BY_OWNERS and call.option("root", "owner" if isinstance(first, Part) else "0") == "owner":
        call = replace(call, op=_BY_OWNERS[call.op])
    if isinstance(first, Part):
        return [_part(call, device, members) for device, _ in members]
    if isinstance(first, dict) and not (first and isinstance(next(iter(first))[1], str)):
        return [_stream(call, device, members) for device, _ in members]
    if isinstance(first, dict | Fraction | Residue | Recorded | int):
        return _numbers(call, members)
    if isinstance(first, Saved):
        raise TypeError(f"`{call.op}` of what a forward kept has no meaning in the simulator")
    raise TypeError(f"`{call.op}` of a {type(first).__name__}")


def _pass_of(device: Device, members: Members) -> Part:
    """The gradient that a device finds in a whole pass of the flat model: it sees its own copy of what it has, and for the rest
    that of the owner along the axes that split the computation."""
    own: Part
    own, batch, _ = next(value for other, value in members if other is device)
    data: dict[Element, Any] = {}
    for element in own.extent:
        data[element] = Fraction(0)
        for sender in _senders(element, device, members):
            seen, statistic = _sees(sender, members)
            for share in _own_shares(element, device):
                found = device.problem.flat_gradient(element, sender.sample(batch), device.number, share, seen, statistic)
                data[element] = data[element] + found
    return own.with_data(data)


def _sees(device: Device, members: Members) -> tuple[Any, Any]:
    """The sum of all parameters as a device's pass sees them, and the statistic that it uses."""
    own, _, statistic = next(value for other, value in members if other is device)
    return sum((_seen(e, device, own, members) for e in device.layout.elements), Fraction(0)), statistic


def _seen(element: Element, device: Device, own: Part, members: Members) -> Any:
    if element in own.extent:
        return own.data.get(element, garbage(device.at, element))
    for other, (value, *_) in members:
        if element in value.extent and _near(device, other, element):
            return value.data.get(element, garbage(other.at, element))
    return garbage(device.at, element)


def _near(device: Device, other: Device, element: Element) -> bool:
    """Whether the other device is the one whose part of an element a device's pass uses: alike but for the stage and the slices."""
    axes = device.layout.slice_axes(device.layout.group_of(element))
    apart = {*device.layout.factors(axes), *((device.layout.stages,) if device.layout.stages else ())}
    return all(other.at[f] == n for f, n in device.at.items() if f not in apart)


def _senders(element: Element, device: Device, members: Members) -> list[Device]:
    """The devices whose samples reach an element: its own, and for experts all that send tokens over the axis."""
    declared = next(g for g in device.program.groups if g.name == device.layout.group_of(element))
    if not declared.experts:
        return [device]
    along = device.layout.factors((declared.experts,))
    return [
        o for o, _ in members if all(o.at[f] == n for f, n in device.at.items() if f not in along or f not in device.layout.sample_factors)
    ]


def _own_shares(element: Element, device: Device) -> list[tuple[object, ...]]:
    """Which shares of an element's gradient a device computes."""
    declared = next(g for g in device.program.groups if g.name == device.layout.group_of(element))
    if declared.tied:
        stage, last = device.at[declared.tied], device.layout.sizes.factors[declared.tied] - 1
        return [share for share, at in ((("first",), 0), (("last",), last)) if stage == at]
    return [(device.place((declared.partial,)),)] if declared.partial else [()]


def combine(call: Call, values: list[Fraction]) -> Fraction:
    """A reduction of numbers."""
    op = call.option("op", "sum")
    if values and isinstance(values[0], tuple):
        return tuple(combine(call, list(column)) for column in zip(*values, strict=True))
    if op == "max":
        return max(values)
    total = sum(values, Fraction(0))
    return total / len(values) if op == "mean" else total


def _numbers(call: Call, members: Members) -> list[Any]:
    """Of one number of each device, or of one for each tensor."""
    values = [value for _, value in members]
    if call.op in ("all_reduce", "reduce"):
        whole: Any
        if isinstance(values[0], dict):
            whole = {key: combine(call, [v.get(key, Fraction(0)) for v in values]) for key in {key for v in values for key in v}}
        else:
            whole = combine(call, values)
        return [_reduced(call, device, members, whole) for device, _ in members]
    if call.op == "broadcast":
        return [_root(call, members)[1]] * len(values)
    if call.op == "all_gather":
        return values
    raise TypeError(f"`{call.op}` of a number has no meaning in the simulator")


def _root(call: Call, members: Members) -> tuple[Device, Any]:
    number = int(call.option("root", "0") or "0")
    ordered = sorted(members, key=lambda m: m[0].place(call.axes))
    return ordered[number % len(ordered)]


def _reduced(call: Call, device: Device, members: Members, whole: Any) -> Any:
    """What a reduction leaves on a device: its result everywhere, or on the root alone."""
    if call.op == "all_reduce" or device is _root(call, members)[0]:
        return whole
    return {key: garbage(device.at, key) for key in whole} if isinstance(whole, dict) else garbage(device.at)


def _part(call: Call, device: Device, members: Members) -> Part:
    own: Part = next(value for other, value in members if other is device)
    elements = own.extent
    if call.op == "all_gather":
        extent = _with_others_experts(call, own, device, members)
        return replace(own, extent=extent, data=_collected(call, extent, members))
    if call.op == "broadcast":
        root: Part = _root(call, members)[1]
        return own.with_data({e: root.data[e] for e in elements if e in root.data})
    if call.op == "tied_reduce":
        tied = [e for e in elements if device.layout.tied(device.layout.group_of(e)) == call.axes[0]]
        summed = {e: combine(call, [v.data.get(e, garbage(d.at, e)) for d, v in members]) for e in tied}
        return own.with_data({**own.data, **{e: v for e, v in summed.items() if e in own.data}})
    there = {e for _, v in members for e in v.data}
    reduced = {e: combine(call, [v.data.get(e, garbage(d.at, e)) for d, v in members]) for e in elements if e in there}
    if call.op == "all_reduce":
        return own.with_data(reduced)
    if call.op == "reduce_scatter":
        return own.with_data({e: v for e, v in reduced.items() if device.owns(e, call.axes)})
    if call.op == "reduce":
        return own.with_data(reduced if device is _root(call, members)[0] else {})
    raise TypeError(f"`{call.op}` of parameters has no meaning in the simulator")


def _with_others_experts(call: Call, own: Part, device: Device, members: Members) -> tuple[Element, ...]:
    """What a device has after a gather: in a network also the experts of the devices that it gathers from."""
    layout = device.layout
    if not layout.network or layout.experts is None or not set(layout.factors((layout.experts,))) & set(layout.factors(call.axes)):
        return own.extent
    blocks, groups = set(own.blocks), {layout.group_of(e) for e in own.extent}
    theirs = (e for _, value in members for e in value.extent if e[0] in blocks and layout.group_of(e) in groups)
    return tuple(dict.fromkeys((*own.extent, *theirs)))


def _collected(call: Call, elements: tuple[Element, ...], members: list[tuple[Device, Part]]) -> dict[Any, Any]:
    """Each element from its owner; nothing where the owner does not have it."""
    found = {}
    for element in elements:
        for device, value in members:
            if device.owns(element, call.axes) and element in value.data:
                found[element] = value.data[element]
    return found


def _stream(call: Call, device: Device, members: Members) -> Any:
    keys = sorted({key for _, value in members for key in value})
    if call.op == "all_gather":
        joined: dict[Any, Fraction] = {}
        for other, value in sorted(members, key=lambda m: m[0].place(call.axes)):
            joined |= {key: v for key, v in value.items() if other.has_token(key[0]) or key not in joined}
        return joined
    reduced = {key: combine(call, [value.get(key, garbage(d.at, key)) for d, value in members]) for key in keys}
    if call.op in ("all_reduce", "reduce"):
        return _reduced(call, device, members, reduced)
    if call.op == "reduce_scatter":
        return {key: v for key, v in reduced.items() if device.has_token(key[0])}
    if call.op == "broadcast":
        return _root(call, members)[1]
    raise TypeError(f"`{call.op}` of activations has no meaning in the simulator")
