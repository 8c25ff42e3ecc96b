"""What one process of a replay does: the program in each arithmetic, and its numbers as fractions."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from placeproof.core.program import Do
from placeproof.measure import replay_blocks as blocks
from placeproof.measure.replay import DERIVATIVE, Held, Table, Tables
from placeproof.measure.replay_arrays import Array, spots, value_of
from placeproof.measure.replay_file import Counterexample
from placeproof.measure.replay_mesh import Mesh
from placeproof.measure.replay_model import Model
from placeproof.measure.replay_numbers import Arithmetic, Numbers, stacked
from placeproof.measure.replay_reference import Reference
from placeproof.measure.replay_step import Process, groups_of


def held(found: Counterexample, rank: int, arithmetics: Sequence[Arithmetic], timeout: float) -> Held:
    """Run the program as one rank, within a process group that is there. ``timeout``: seconds that a collective waits."""
    return (_steps if found.kind == "step" else _blocks)(found, rank, arithmetics, timeout)


def _steps(found: Counterexample, rank: int, arithmetics: Sequence[Arithmetic], timeout: float) -> Held:
    model = Model(found)
    mesh = Mesh(found.factors, rank, *groups_of(model), timeout)
    tables, reference = {}, {}
    for of in arithmetics:
        mesh.begin()
        tables[of.name] = _step(model, mesh, of)
        if not rank:
            reference[of.name] = _truth(model, of)
    return Held(tables=tables, reference=reference)


# A block.


def _blocks(found: Counterexample, rank: int, arithmetics: Sequence[Arithmetic], timeout: float) -> Held:
    sets = blocks.groups_of(found)
    mesh = Mesh(found.factors, rank, sets, [], timeout)
    tables, reference = {}, {}
    for of in arithmetics:
        mesh.begin()
        tables[of.name] = _results(blocks.BlockProcess(found, mesh, of).run())
        if not rank:
            alone = Mesh(dict.fromkeys(found.factors, 1), 0, sets, [], timeout)
            reference[of.name] = _results(blocks.BlockProcess(found, alone, of).run()) | _derivative(found, alone, of)
    return Held(tables=tables, reference=reference)


def _results(arrays: Sequence[Array]) -> dict[str, Table]:
    return {f"result {n + 1}": Table(spots(array), value_of(array.content).flat().data) for n, array in enumerate(arrays)}


def _derivative(found: Counterexample, alone: Mesh, of: Arithmetic) -> dict[str, Table]:
    """What a gradient should have been, where the counterexample says that of a block on one device."""
    if DERIVATIVE not in found.reference or found.shown.table is None:
        return {}
    number = int(found.shown.table.removeprefix("result ")) - 1
    call = [s.call for s in found.program.body if isinstance(s, Do) and s.call.op == "returns"][number]
    rows = []
    for name in found.reference[DERIVATIVE]:
        place = {dim: int(n) for dim, n in (part.split() for part in name.strip("[]").split(", ") if part)}
        one = blocks.BlockProcess(found, alone, of, blocks.Followed(result=number, buffer=call.option("by") or "", place=place))
        one.run()
        assert one.derivative is not None
        rows.append(one.derivative)
    return {DERIVATIVE: Table(list(found.reference[DERIVATIVE]), stacked(rows).data)}


# A training step.


def _step(model: Model, mesh: Mesh, of: Arithmetic) -> Tables:
    ended = Process(model, mesh, of).run(model.found.sizes["steps"])
    found = _states(model, ended.parameters.numbers, ended.parameters.held) | _momenta(model, ended.optimizer.numbers, ended.optimizer.held)
    read = ended.gradients
    return found | {"gradients": _table(model, read.numbers, read.held)} if read is not None else found


def _truth(model: Model, of: Arithmetic) -> Tables:
    truth = Reference(model, of).run(model.found.sizes["steps"])
    all_ = model.mask([True] * len(model.elements))
    found = _states(model, truth.states.theta, all_) | _momenta(model, truth.states.omega, all_)
    return found | {"gradients": _table(model, truth.gradient, all_)}


def _states(model: Model, parameters: Numbers, mask: Tensor) -> dict[str, Table]:
    return {"parameters": _table(model, parameters, mask)}


def _momenta(model: Model, states: Numbers, mask: Tensor) -> dict[str, Table]:
    names = ("optimizer, master copy", "optimizer, momentum")
    return {name: _table(model, states[:, n], mask) for n, name in enumerate(names)}


def _table(model: Model, numbers: Numbers, mask: Tensor) -> Table:
    """The numbers that are there, by element."""
    return Table([e.name for e, there in zip(model.elements, mask.tolist(), strict=True) if there], numbers[mask].data)
