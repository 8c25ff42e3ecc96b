"""What one process of a replay does: the program in each arithmetic, and its numbers as fractions."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from placeproof.measure import replay_blocks as blocks
from placeproof.measure.replay import Held, Table, Tables
from placeproof.measure.replay_file import Counterexample
from placeproof.measure.replay_mesh import Mesh
from placeproof.measure.replay_model import Model
from placeproof.measure.replay_numbers import Arithmetic, Numbers
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
        tables[of.name] = blocks.returned(found, mesh, of)
        if not rank:
            reference[of.name] = blocks.returned(found, None, of)
    return Held(tables=tables, reference=reference)


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
