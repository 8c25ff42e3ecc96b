"""A training step as one process runs it: the simulator's runner for its device alone, with real exchanges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from placeproof.core.program import calls, statements
from placeproof.core.program.ops import OPS
from placeproof.measure.replay_exchange import Exchange
from placeproof.measure.replay_mesh import Mesh
from placeproof.measure.replay_message import packed, unpacked
from placeproof.measure.replay_values import NothingThereError, NotReplayedError
from placeproof.semantics.meaning.place import COMPARE, Meeting, Message, Place, axes_together
from placeproof.semantics.meaning.values import MisfitError
from placeproof.semantics.meaning.world import World


def groups_of(world: World) -> tuple[list[frozenset[str]], list[str]]:
    """The sets of factors along which the program exchanges, and the axes between whose ends it does."""
    layout = world.layout
    sets, ends = [frozenset(layout.factors(axes_together(world.program)))], []
    if layout.experts is not None:
        sets.append(frozenset(layout.factors((layout.experts,))))
    for call in (c for s in statements(world.program.body) for c in calls(s)):
        if call.op == "tied_reduce":
            ends.append(call.axes[0])
        elif OPS[call.op].collective and call.op not in ("send", "recv"):
            sets.append(frozenset(layout.factors(call.axes)))
    return list(dict.fromkeys(sets)), list(dict.fromkeys(ends))


class Process:
    """The program on this process's device."""

    def __init__(self, world: World, mesh: Mesh, batches: int) -> None:
        self.mesh, self.place = mesh, Place(world, dict(mesh.at), batches)

    def run(self, steps: int) -> None:
        """All steps, until everything that was sent is received. Raises NothingThereError, NotReplayedError, NoMeaningError, or the errors
        of exchanges."""
        for number in range(steps):
            running, answer = self.place.step(number), None
            while (request := self._next(running, answer)) is not None:
                answer = self._answered(request)
        self.mesh.end()

    def _next(self, running: Any, answer: Any) -> Meeting | Message | None:
        """What the device waits for next; None at the end of the step."""
        try:
            with _understood():
                found: Meeting | Message = running.send(answer)
        except StopIteration:
            return None
        return found

    def _answered(self, request: Meeting | Message) -> Any:
        if isinstance(request, Meeting):
            with _understood():
                return Exchange(self.mesh, self.place, request).result()
        if request.sends:
            return self.mesh.send(request.other, packed(request.value), request.call)
        return unpacked(self.place.world, self.mesh.receive(request.other, request.call))


@contextmanager
def _understood() -> Iterator[None]:
    """What the simulator says of such a run, said of this process."""
    try:
        yield
    except KeyError as missing:
        raise NothingThereError(f"shapes do not fit: nothing is at {missing}") from missing
    except MisfitError as why:
        raise NothingThereError(f"shapes do not fit: {why}") from why
    except (TypeError, AttributeError) as error:
        raise NotReplayedError(f"an operation gets what it cannot compute with ({error})") from error


__all__ = ["COMPARE", "Process", "groups_of"]
