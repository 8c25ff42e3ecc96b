"""The passes of a recorded step unit by unit, and within these block by block where layers are split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placeproof.measure.record.treatment import ParameterSet
    from placeproof.measure.record.write import _Writer


@dataclass(frozen=True, slots=True)
class _Unit:
    """How a unit is called while it is computed with: its gathered parameters, and its index."""

    weights: str
    index: str
    walk: str


def body(out: _Writer, index: str) -> None:
    """Forward and backward of one micro-batch."""
    gathers = out.plan.gathers
    sequence = out.plan.layers is not None and out.plan.layers.sequence
    data = f"data({index})"
    out.add(f"x = part({data}, {out.plan.layers.axis})" if sequence and out.plan.layers else f"x = {data}")
    if not gathers.axes:
        _blocks(out, _Unit("parameters", "", "blocks"), forward=True)
        _turn(out)
        _blocks(out, _Unit("parameters", "", "blocks"), forward=False)
        return
    if gathers.root:
        out.add(f"root = {_gathered(out, 'parameters[0]')}", gathers.lines[0])
        _unit(out, _Unit("root", "0", "blocks[0]"), forward=True)
    units = "units[1:]" if gathers.root else "units"
    out.add(f"for u in {units}:")
    _inside(out, lambda: _forward_unit(out))
    _turn(out)
    out.add(f"for u in reversed({units}):")
    _inside(out, lambda: _backward_unit(out))
    if gathers.root:
        _unit(out, _Unit("root", "0", "blocks[0]"), forward=False)
        out.add("free(root)")


def _turn(out: _Writer) -> None:
    out.add("dx = loss(x)", out.plan.turn.line)


def _inside(out: _Writer, write: Callable[[], None]) -> None:
    out.depth += 1
    write()
    out.depth -= 1


def _gathered(out: _Writer, what: str) -> str:
    return f"all_gather({what}, {', '.join(out.plan.gathers.axes)})"


def _forward_unit(out: _Writer) -> None:
    gathers = out.plan.gathers
    kept = not gathers.again
    w = "w[u]" if kept else "w"
    out.add(f"{w} = {_gathered(out, 'parameters[u]')}", gathers.lines[0])
    _unit(out, _Unit(w, "u", "blocks[u]"), forward=True)
    if kept:
        return
    if gathers.again != gathers.axes:
        out.add(f"secondary[u] = part(w, {', '.join(gathers.again)})")
    out.add("free(w)")


def _backward_unit(out: _Writer) -> None:
    gathers = out.plan.gathers
    kept = not gathers.again
    w = "w[u]" if kept else "w"
    if not kept:
        source = "secondary[u]" if gathers.again != gathers.axes else "parameters[u]"
        out.add(f"w = all_gather({source}, {', '.join(gathers.again)})", gathers.lines[1])
    _unit(out, _Unit(w, "u", "blocks[u]"), forward=False)
    out.add(f"free({w})")


def _unit(out: _Writer, unit: _Unit, *, forward: bool) -> None:
    if out.plan.layers is not None:
        _blocks(out, unit, forward=forward)
    elif forward:
        out.add(f"x, activations[{unit.index}] = forward({unit.weights}, x)")
    else:
        saved = f"activations[{unit.index}]"
        for part in out.plan.parts:
            group = f".{part.name}" if part.name else ""
            weights = _group(unit.weights, group)
            _weight(out, part, f"[{unit.index}]", f"backward_weight({weights}, {saved}, dx)")
        out.add(f"dx = backward_input({unit.weights}, {saved}, dx)")


def _group(weights: str, group: str) -> str:
    """``w[u]`` of a group is ``w.norm[u]``."""
    name, bracket, rest = weights.partition("[")
    return f"{name}{group}{bracket}{rest}"


def _weight(out: _Writer, part: ParameterSet, index: str, expr: str) -> None:
    """The gradient of a part, with what is done to each micro-batch's."""
    group = f".{part.name}" if part.name else ""
    sign = "=" if out.plan.turns == 1 else "+="
    out.note(*(n for s in part.chain.inner for n in s.lines))
    out.add(f"{out.g}{group}{index} {sign} {out.applied(part.chain.inner, out.passed(expr), part.chain)}", out.plan.turn.line)


def _blocks(out: _Writer, unit: _Unit, *, forward: bool) -> None:
    out.add(f"for k in {unit.walk}:" if forward else f"for k in reversed({unit.walk}):")
    _inside(out, lambda: _forward_block(out, unit) if forward else _backward_block(out, unit))


def _of_block(unit: _Unit, group: str) -> str:
    return f"{unit.weights.partition('[')[0]}.{group}[k]"


def _forward_block(out: _Writer, unit: _Unit) -> None:
    layers = out.plan.layers
    assert layers is not None
    out.add(f"y, activations.outer[k] = forward({_of_block(unit, 'norm')}, x)")
    source = f"all_gather(y, {layers.axis})" if layers.sequence else "y"
    out.add(f"z, activations.inner[k] = forward({_of_block(unit, 'matrix')}, {source})")
    ends = "reduce_scatter" if layers.sequence else "all_reduce"
    out.add(f"x = x + {ends}(z, {layers.axis})" if layers.forward else "x = x + z", layers.lines[0])


def _backward_block(out: _Writer, unit: _Unit) -> None:
    layers, (matrix, norm) = out.plan.layers, out.plan.parts
    assert layers is not None
    w, saved, dx = _of_block(unit, "matrix"), "activations.inner[k]", "dx"
    weight = f"backward_weight({w}, {saved}, dx)"
    if layers.sequence:
        dx = "dz"
        out.add("# The script keeps the input of what is split; here it is gathered again.")
        out.add(f"dz = all_gather(dx, {layers.axis})")
        weight = f"backward_weight({w}, {saved}, dz, all_gather(output(activations.outer[k]), {layers.axis}))"
    _weight(out, matrix, "[k]", weight)
    back = f"backward_input({w}, {saved}, {dx})"
    begins = "reduce_scatter" if layers.sequence else "all_reduce"
    out.add(f"dy = {begins}({back}, {layers.axis})" if layers.backward else f"dy = {back}", layers.lines[1])
    own = _of_block(unit, "norm")
    _weight(out, norm, "[k]", f"backward_weight({own}, activations.outer[k], dy)")
    out.add(f"dx = dx + backward_input({own}, activations.outer[k], dy)")
