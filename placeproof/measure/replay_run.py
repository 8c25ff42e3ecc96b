"""What one process of a replay does: the program, and its numbers by table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from placeproof.core.program import Do
from placeproof.measure import replay_blocks as blocks
from placeproof.measure.replay import DERIVATIVE, Held, Plain, Table
from placeproof.measure.replay_arrays import Array, spots, value_of
from placeproof.measure.replay_file import Counterexample
from placeproof.measure.replay_mesh import Mesh
from placeproof.measure.replay_model import world_of
from placeproof.measure.replay_numbers import Arithmetic, stacked
from placeproof.measure.replay_reference import Reference
from placeproof.measure.replay_step import Process, groups_of
from placeproof.semantics.meaning.layout import Element, in_words
from placeproof.semantics.meaning.place import Place
from placeproof.semantics.meaning.recorded import known
from placeproof.semantics.meaning.run import Truth


def held(found: Counterexample, rank: int, arithmetics: Sequence[Arithmetic | Plain], timeout: float) -> Held:
    """Run the program as one rank, within a process group that is there. ``timeout``: seconds that a collective waits."""
    return (_steps if found.kind == "step" else _blocks)(found, rank, arithmetics, timeout)


# A block.


def _blocks(found: Counterexample, rank: int, arithmetics: Sequence[Any], timeout: float) -> Held:
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


def _steps(found: Counterexample, rank: int, arithmetics: Sequence[Any], timeout: float) -> Held:
    exact, *rounded = (of.name for of in arithmetics)
    world, steps = world_of(found), found.sizes["steps"]
    process = Process(world, Mesh(found.factors, rank, *groups_of(world), timeout), found.microbatches)
    process.run(steps)
    reference = {}
    if not rank:
        truth = Truth(world)
        for number in range(steps):
            truth.step(number)
        reference = {exact: _tables(_of_truth(truth))}
        reference |= {name: _tables(Reference(world, found.microbatches).run(steps)) for name in rounded}
    return Held(tables={exact: _tables(_of_device(process.place))}, reference=reference)


#: A table, an element, and what there is of it: of an optimizer's state, two numbers.
_Row = tuple[str, Element, Sequence[Any]]


def _of_device(place: Place) -> Iterator[_Row]:
    parts = {"parameters": place.state("parameters"), "optimizer": place.state("optimizer"), "gradients": place.read}
    yield from ((name, element, row) for name, part in parts.items() if part is not None for element, row in part.held())


def _of_truth(truth: Truth) -> Iterator[_Row]:
    tables = {"parameters": truth.theta, "optimizer": truth.omega, "gradients": truth.gradient[:, None]}
    yield from ((name, e, row) for name, table in tables.items() for e, row in zip(truth.world.elements, table, strict=True))


def _tables(rows: Iterable[_Row]) -> dict[str, Table]:
    """By table; what is computed from what is not held is no number, and of a state's two numbers a file says both or neither."""
    found: dict[str, dict[str, Fraction]] = {}
    for name, element, row in rows:
        names = ("optimizer, master copy", "optimizer, momentum") if name == "optimizer" else (name,)
        for table, number in zip(names, row, strict=True):
            found.setdefault(table, {})
            if all(known(n) is not None for n in row):
                found[table][in_words(element)] = number
    return {table: Table(list(numbers), list(numbers.values())) for table, numbers in found.items()}
