"""What one process of a replay does: the program, and its numbers by table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from placeproof.measure import replay_blocks as blocks
from placeproof.measure.replay import Held, Plain, Table
from placeproof.measure.replay_file import Counterexample
from placeproof.measure.replay_mesh import Mesh
from placeproof.measure.replay_model import world_of
from placeproof.measure.replay_numbers import Residues
from placeproof.measure.replay_reference import Reference
from placeproof.measure.replay_step import Process, groups_of
from placeproof.semantics.meaning.layout import Element, in_words
from placeproof.semantics.meaning.place import Place
from placeproof.semantics.meaning.recorded import known
from placeproof.semantics.meaning.run import Truth


def held(found: Counterexample, rank: int, arithmetics: Sequence[Residues | Plain], timeout: float) -> Held:
    """Run the program as one rank, within a process group that is there. ``timeout``: seconds that a collective waits."""
    return (_steps if found.kind == "step" else _blocks)(found, rank, arithmetics, timeout)


# A block.


def _blocks(found: Counterexample, rank: int, arithmetics: Sequence[Any], timeout: float) -> Held:
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
