"""The answer about exact bytes: what one device exchanges and holds, and why that is otherwise than in the ideal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from placeproof.collectives import COLLECTIVES
from placeproof.core.diagnostics import refuse
from placeproof.core.shapes import Shapes
from placeproof.core.strategy import Strategy
from placeproof.cost.exact.choose import Change, explained, realised_text
from placeproof.cost.exact.options import Value
from placeproof.cost.exact.predict import Predicted
from placeproof.cost.exact.setting import degrees, unclipped
from placeproof.profiles.profile import Implementation
from placeproof.semantics.lower import lower

#: What a call is: its kind, axes, phase and bytes.
Call = tuple[str, tuple[str, ...], str, int]


#: What `no_sync` says: the sums are those of the step program.
_REDUCED: Mapping[Value, str] = {
    True: "gradients are reduced in the last pass of a step alone, which gives the sums that the step program has",
    False: "gradients are reduced in each pass of a step, which gives the sums that the step program has",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactBytes:
    """Exact bytes of one device. ``programs``: the strategies whose step programs are run; ``mesh``: degrees by axis, the slowest first.
    ``reduced``: in which passes gradients are, where the step program may say it otherwise."""

    strategy: Strategy
    implementations: tuple[Implementation, ...]
    shapes: Shapes
    mesh: Mapping[str, int]
    rank: int
    programs: tuple[str, ...]
    predicted: Predicted
    changes: tuple[Change, ...]
    reduced: str = ""

    @property
    def where(self) -> str:
        """The device in words."""
        return f"rank {self.rank} of {prod(self.mesh.values())}"

    @property
    def title(self) -> str:
        """Who runs the strategy."""
        return "; ".join(dict.fromkeys(implementation.title for implementation in self.implementations))

    @property
    def assumed(self) -> list[str]:
        """What is taken for granted, each once."""
        texts = [text for implementation in self.implementations for text in implementation.assumes]
        clips = [i.clips for i in self.implementations] if self.strategy.schedule.clip else []
        reduced = [self.reduced] if self.reduced else []
        return list(dict.fromkeys([*texts, *clips, *reduced, *self.shapes.notes]))

    @property
    def calls(self) -> Counter[Call]:
        """Equal calls of one phase together, in the order of their first."""
        return Counter((e.kind, e.axes, e.phase, e.bytes) for e in self.predicted.exchanges)

    @property
    def sent(self) -> Fraction:
        """Bytes that the device sends, by ring algorithms."""
        degree = degrees(self.strategy, self.mesh)
        total = Fraction(0)
        for exchange in self.predicted.exchanges:
            total += COLLECTIVES[exchange.kind].sent(Fraction(prod(degree.get(a, 1) for a in exchange.axes)), Fraction(exchange.bytes))
        return total


def exact_bytes(
    strategy: Strategy,
    implementations: tuple[Implementation, ...],
    shapes: Shapes,
    mesh: Mapping[str, int],
    *,
    rank: int = 0,
    options: Mapping[str, Value] | None = None,
) -> ExactBytes:
    """Exact bytes of one device, explained. Raises InputError as :func:`placeproof.cost.exact.predict.predict` does, and where the mesh has
    no such rank."""
    from placeproof.strategies import parse_strategy

    require_rank(mesh, rank)
    _, changes, predicted = explained(strategy, implementations, shapes, mesh, rank=rank, options=options)
    lowered = realised_text(strategy, implementations)
    programs = tuple(dict.fromkeys(s.name for s in predicted.strategies))  # a system's own rules say which programs it runs
    if [lower(s).body for s in predicted.strategies] == [lower(unclipped(parse_strategy(lowered))).body]:
        programs = (lowered,)
    return ExactBytes(
        strategy=strategy,
        implementations=implementations,
        shapes=shapes,
        mesh=mesh,
        rank=rank,
        programs=programs,
        predicted=predicted,
        changes=changes,
        reduced=_REDUCED.get((options or {}).get("no_sync"), ""),
    )


def require_rank(mesh: Mapping[str, int], rank: int) -> None:
    """Raise InputError where the mesh has no such rank."""
    devices = prod(mesh.values())
    if rank >= devices:
        refuse("PP103", f"there is no rank {rank} among {devices} devices", help="ranks count from 0")
