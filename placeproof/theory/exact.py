"""Exact bytes of one device as terms of theorems: what ``placeproof derive STRATEGY --profile P --shapes S`` says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from placeproof.core.shapes import Shapes, Unit, Weight, transformer
from placeproof.core.symbols import PURE, Dimension
from placeproof.strategies import parse_strategy
from placeproof.theory.language import StatementError, Term, taken
from placeproof.theory.units import measured

if TYPE_CHECKING:
    from placeproof.core.exchange import Exchange
    from placeproof.cost.exact.bytes import ExactBytes
    from placeproof.cost.exact.predict import Predicted

#: A model's tensors: themselves, the sizes of a transformer, or the shapes of each unit's, of the root's first.
Tensors: TypeAlias = Shapes | Mapping[str, int] | Sequence[Sequence[tuple[int, ...]]]


class DeviceBytes:
    """What one device allocates, holds and exchanges."""

    def __init__(
        self, subject: str, tensors: Tensors, profile: str, implementations: tuple[str, ...], rank: int, options: Mapping[str, Any]
    ) -> None:
        from placeproof.cost.exact.choose import chosen
        from placeproof.profiles.profile import profile as read_profile

        strategy, shapes = parse_strategy(subject), _shapes(tensors)
        axes = sorted(strategy.axes, key=lambda a: (not a.splits.stages, a.splits.order))
        if unsaid := [a.name for a in axes if a.degree is None]:
            raise StatementError(f"exact bytes need the degree of axis `{unsaid[0]}`: `fsdp(4)`")
        self._mesh = {a.name: a.degree or 1 for a in axes}
        self._asked = strategy, chosen(read_profile(profile), strategy, implementations), shapes, self._mesh
        self._more: dict[str, Any] = {"rank": rank, "options": options}
        by = " and ".join(one.name for one in self._asked[1])
        said = "".join(f", {name}={value}" for name, value in options.items())
        self._name = f"{subject} by {profile} {by}, {shapes.name}, rank {rank}{said}"
        self._text = f"{self._name}\n{shapes}"

    @property
    def devices(self) -> int:
        """All of the mesh."""
        return prod(self._mesh.values())

    def memory(self, state: str) -> Term:
        """Bytes that are allocated: ``parameters``, ``gradients``, ``optimizer``; ``activations`` where the model's blocks are known.
        Raises StatementError for another state."""
        return self._of_state(self._predicted.memory, state, "allocated")

    def held(self, state: str) -> Term:
        """The same of ``parameters`` and ``gradients`` without what storages have to spare. Raises StatementError for another state."""
        return self._of_state(self._predicted.held, state, "held")

    @property
    def sent(self) -> Term:
        """Bytes that the device sends in a step, by rings."""
        return self._term(self._told.sent, "sent")

    def sizes(self, kind: str = "", *, over: str = "", phase: str = "") -> tuple[Term, ...]:
        """Bytes of the tensor that each call is about, call by call: those of a kind, over an axis (or ``"a*b"``), in a phase."""
        calls = self._calls(kind, over, phase)
        where = " ".join(part for part in (kind, over, phase) if part)
        return tuple(self._term(call.bytes, f"call {number} {where}".rstrip()) for number, call in enumerate(calls, 1))

    def calls(self, kind: str = "", *, over: str = "", phase: str = "") -> Term:
        """How many calls there are, chosen as by :meth:`sizes`."""
        return self._term(len(self._calls(kind, over, phase)), f"calls {kind} {over} {phase}".rstrip(), PURE)

    def about(self, kind: str = "", *, over: str = "", phase: str = "") -> Term:
        """Bytes of the tensors of all calls together, chosen as by :meth:`sizes`."""
        return self._term(sum(c.bytes for c in self._calls(kind, over, phase)), f"bytes {kind} {over} {phase}".rstrip())

    def changed(self, key: str) -> Term:
        """What the differences from the ideal say that they make of a state's memory, or of the bytes of a kind of call, together."""
        total = sum(change.bytes.get(key, 0) + change.memory.get(key, 0) for change in self._told.changes)
        return self._term(total, f"changes of {key}")

    @cached_property
    def _predicted(self) -> Predicted:
        from placeproof.cost.exact.predict import predict

        return predict(*self._asked, **self._more)

    @cached_property
    def _told(self) -> ExactBytes:
        from placeproof.cost.exact.bytes import exact_bytes

        return exact_bytes(*self._asked, **self._more)

    def _calls(self, kind: str, over: str, phase: str) -> list[Exchange]:
        every = self._predicted.exchanges
        return [e for e in every if kind in ("", e.kind) and over in ("", "*".join(e.axes)) and phase in ("", e.phase)]

    def _of_state(self, amounts: Mapping[str, int], state: str, what: str) -> Term:
        if state not in amounts:
            raise StatementError(f"there are no bytes of `{state}`; there are those of {', '.join(amounts) or 'none'}")
        return self._term(amounts[state], f"{what} {state}")

    def _term(self, amount: Any, what: str, dimension: Dimension | None = None) -> Term:
        import sympy

        number = sympy.Rational(*amount.as_integer_ratio())
        label = f"{what}({self._name})"
        return taken(measured(number, {"byte": 1} if dimension is None else dimension), label, f"{what} of\n{self._text}", "program")


def exact(
    subject: str, tensors: Tensors, *, profile: str = "ideal", implementations: Iterable[str] = (), rank: int = 0, **options: Any
) -> DeviceBytes:
    """Exact bytes of one device under a strategy with all of its degrees: ``exact("fsdp(4)", [[(5, 3)], [(7, 7), (7,)]])``.

    ``tensors``: the sizes of a transformer, or the shapes of each unit's tensors, of the root's first. ``profile``, ``implementations``:
    who runs it; ``options``: those of exact bytes, such as ``dtype="bfloat16"``. Raises StatementError for a degree that is open,
    InputError as ``placeproof derive --shapes`` does.
    """
    return DeviceBytes(subject, tensors, profile, tuple(implementations), rank, options)


def _shapes(tensors: Tensors) -> Shapes:
    if isinstance(tensors, Shapes):
        return tensors
    if isinstance(tensors, Mapping):
        return transformer(**tensors)
    names = ["root", *(f"units.{i}" for i in range(len(tensors) - 1))]
    units = tuple(
        Unit(name=name, weights=tuple(Weight(name=f"{name}.w{j}" if i else f"w{j}", shape=shape) for j, shape in enumerate(some)))
        for i, (name, some) in enumerate(zip(names, tensors, strict=True))
    )
    return Shapes(name=f"{sum(u.elements for u in units)} parameters", units=units)
