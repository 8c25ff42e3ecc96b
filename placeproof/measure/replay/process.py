"""What one process of a replay does: the simulator's runner for its device alone, with real exchanges, and its numbers by table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any

from placeproof.measure.replay import blocks
from placeproof.measure.replay.ended import Ended
from placeproof.measure.replay.exchange import Exchange
from placeproof.measure.replay.file import Counterexample
from placeproof.measure.replay.mesh import Mesh, NothingThereError, NotReplayedError
from placeproof.measure.replay.model import Row, of_device, of_truth, world_of
from placeproof.measure.replay.reference import Reference
from placeproof.measure.replay.wire import packed, unpacked
from placeproof.programs.ops import OPS
from placeproof.semantics.meaning.devices.place import Meeting, Message, Place, axes_together
from placeproof.semantics.meaning.layout import in_words
from placeproof.semantics.meaning.recorded import known
from placeproof.semantics.meaning.run import Truth, unwritten
from placeproof.semantics.meaning.values import MisfitError
from placeproof.semantics.meaning.world import World


def ended(counterexample: Counterexample, rank: int, by_autograd: bool, timeout: float) -> Ended:
    """Run the program as one rank, within a process group that is there. ``by_autograd``: whether one device is computed a second time;
    ``timeout``: seconds that a collective waits."""
    return _steps(counterexample, rank, by_autograd, timeout) if counterexample.kind == "step" else _blocks(counterexample, rank, timeout)


# A block.


def _blocks(counterexample: Counterexample, rank: int, timeout: float) -> Ended:
    mesh = Mesh(counterexample.factors, rank, blocks.groups_of(counterexample), [], timeout)
    tables = blocks.returned(counterexample, mesh)
    mesh.end()
    return Ended(tables=tables, reference={} if rank else blocks.returned(counterexample, None))


# A training step.


def groups_of(world: World) -> tuple[list[frozenset[str]], list[str]]:
    """The sets of factors along which the program exchanges, and the axes between whose ends it does."""
    layout = world.layout
    sets, ends = [frozenset(layout.factors(axes_together(world.program)))], []
    if layout.experts:
        sets.append(frozenset(layout.factors(layout.experts)))
    if layout.called:
        sets.append(frozenset(layout.called))
    for call in world.program.calls:
        if call.op == "tied_reduce":
            ends.append(call.axes[0])
        elif OPS[call.op].collective and call.op not in ("send", "recv"):
            sets.append(frozenset(layout.factors(call.axes)))
    return sets, ends


def _steps(counterexample: Counterexample, rank: int, by_autograd: bool, timeout: float) -> Ended:
    """Until everything that was sent is received. Raises NothingThereError, NotReplayedError, NoMeaningError, or the errors of
    exchanges."""
    world, steps = world_of(counterexample), counterexample.sizes["steps"]
    mesh = Mesh(counterexample.factors, rank, *groups_of(world), timeout)
    place = Place(world, dict(mesh.at), counterexample.microbatches)
    for number in range(steps):
        running, answer = place.step(number), None
        while (request := _next(running, answer)) is not None:
            answer = _answered(mesh, place, request)
    mesh.end()
    end = Ended(tables=_tables(of_device(place)))
    if rank:
        return end
    truth = Truth(world)
    for number in range(steps):
        truth.step(number)
    again = Reference(world, counterexample.microbatches).run(steps) if by_autograd else ()
    return replace(end, reference=_tables(of_truth(truth)), by_autograd=_tables(again))


def _next(running: Any, answer: Any) -> Meeting | Message | None:
    """What the device waits for next; None at the end of the step."""
    try:
        with _understood():
            request: Meeting | Message = running.send(answer)
    except StopIteration:
        return None
    return request


def _answered(mesh: Mesh, place: Place, request: Meeting | Message) -> Any:
    if isinstance(request, Meeting):
        with _understood():
            return Exchange(mesh, place, request).exchanged()
    if request.sends:
        return mesh.send(request.other, packed(request.value), request.call)
    return unpacked(place.world, mesh.receive(request.other, request.call))


@contextmanager
def _understood() -> Iterator[None]:
    """What the simulator says of such a run, said of this process."""
    try:
        yield
    except KeyError as missing:
        raise NothingThereError(unwritten(missing)) from missing
    except MisfitError as why:
        raise NothingThereError(f"shapes do not fit: {why}") from why
    except (TypeError, AttributeError) as error:
        raise NotReplayedError(f"an operation gets what it cannot compute with ({error})") from error


def _tables(rows: Iterable[Row]) -> dict[str, dict[str, Fraction]]:
    """By table; what is computed from what is not held is no number, and of a state's two numbers a file says both or neither."""
    tables: dict[str, dict[str, Fraction]] = {}
    for name, element, row in rows:
        names = ("optimizer, master copy", "optimizer, momentum") if name == "optimizer" else (name,)
        for table, number in zip(names, row, strict=True):
            tables.setdefault(table, {})
            if all(known(n) is not None for n in row):
                tables[table][in_words(element)] = number
    return tables
