"""What collectives do to the values of a group of simulated devices, in exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from placeproof.core.program import Call
from placeproof.semantics.simulate.numbers import Residue
from placeproof.semantics.simulate.values import Part, Saved, garbage

if TYPE_CHECKING:
    from placeproof.semantics.simulate.device import Device

Members = list[tuple["Device", Any]]


def exchange(call: Call, members: Members) -> list[Any]:
    """The result of a collective on each member, in the order given."""
    first = members[0][1]
    if isinstance(first, Part):
        return [_part(call, device, members) for device, _ in members]
    if isinstance(first, dict):
        return [_stream(call, device, members) for device, _ in members]
    if isinstance(first, Fraction | Residue):
        return _scalar(call, members)
    if isinstance(first, Saved):
        raise TypeError(f"`{call.op}` of what a forward kept has no meaning in the simulator")
    raise TypeError(f"`{call.op}` of a {type(first).__name__}")


def combine(call: Call, values: list[Fraction]) -> Fraction:
    """A reduction of numbers."""
    op = call.option("op", "sum")
    if op == "max":
        return max(values)
    total = sum(values, Fraction(0))
    return total / len(values) if op == "mean" else total


def _scalar(call: Call, members: Members) -> list[Any]:
    values = [value for _, value in members]
    if call.op in ("all_reduce", "reduce"):
        return [combine(call, values)] * len(values)
    if call.op == "broadcast":
        return [_from_root(call, members)] * len(values)
    return values


def _from_root(call: Call, members: Members) -> Any:
    root = int(call.option("root", "0") or "0")
    ordered = sorted(members, key=lambda m: m[0].place(call.axes))
    return ordered[root % len(ordered)][1]


def _part(call: Call, device: Device, members: Members) -> Part:
    own: Part = next(value for other, value in members if other is device)
    blocks = own.expected(device.layout.shape)
    values: list[tuple[Device, Part]] = members
    if call.op in ("all_gather", "broadcast") and call.option("root", "owner") == "owner":
        return own.with_data(_collected(call, blocks, values))
    if call.op == "broadcast":
        root = _from_root(call, members)
        return own.with_data({e: root.data[e] for e in blocks if e in root.data})
    reduced = {e: combine(call, [v.data.get(e, garbage(d.at, e)) for d, v in values]) for e in blocks}
    if call.op in ("all_reduce", "tied_reduce"):
        return own.with_data(reduced)
    if call.op in ("reduce_scatter", "reduce"):
        keep: Callable[[Any], bool] = lambda e: device.owns(e, call.axes)  # noqa: E731
        if call.op == "reduce" and call.option("root", "owner") != "owner":
            root_index = int(call.option("root", "0") or "0")
            keep = lambda e: device.place(call.axes) == root_index  # noqa: E731, ARG005
        return own.with_data({e: v for e, v in reduced.items() if keep(e)})
    raise TypeError(f"`{call.op}` of parameters has no meaning in the simulator")


def _collected(call: Call, elements: list[Any], members: list[tuple[Device, Part]]) -> dict[Any, Any]:
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
        return reduced
    if call.op == "reduce_scatter":
        return {key: v for key, v in reduced.items() if device.has_token(key[0])}
    if call.op == "broadcast":
        return _from_root(call, members)
    raise TypeError(f"`{call.op}` of activations has no meaning in the simulator")
