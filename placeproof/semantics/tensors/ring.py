"""The rounds of a ring: what a loop leaves behind that passes parts on from device to device.

Each device begins with its own part, and has after each round what the device before it had. In the rounds it meets the part of every
other device once. The loop's body is walked for one round, in which the device holds the part of some device, called the visitor:

- what is only passed on is the visitor's own (`k = shift(k, cp)`);
- what is passed on and added to (`dk = shift(dk, cp)`, then `dk += ...`) has, when all is done, what every device added to it;
- what grows by what does not depend on what is carried grows by the sum over all visitors. It may be scaled in each round by the ratio of
  two exponentials, exp(before) / exp(after), of a number that is carried, too: then exp(after) times it grows. This is the rule by which
  partial softmaxes are merged (Milakov and Gimelshein 2018, section 3; Liu et al. 2023, section 3);
- of anything else that is carried nothing is known. What has to be equal must not depend on it.

A round's addition is F(visitor). All rounds add up to the sum of F over all devices, less F(own part), which had no round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placeproof.programs import Assign, Call, For, Ref, Stmt, assigned, calls, reads, statements
from placeproof.prove.terms import ONE, Index, Poly, Var, app, by_cases, inverse, product, substitute, total
from placeproof.prove.terms.nodes import Mono
from placeproof.semantics.encode.context import NoMeaningError
from placeproof.semantics.tensors.compute import applied
from placeproof.semantics.tensors.exchange import neighbour
from placeproof.semantics.tensors.values import Picks, Turns, Value, dimension

if TYPE_CHECKING:
    from placeproof.semantics.tensors.execute import SymbolicRun

_CARRIED = "carried."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Carried:
    """A buffer that a round reads before it writes it. ``began``: before the first round. ``start``: at the start of a round, an atom."""

    name: str
    began: Value
    start: Poly
    travels: bool


class Ring:
    """One loop over the rounds of a ring, on a walk over its program."""

    def __init__(self, run: SymbolicRun, loop: For) -> None:
        self.run_, self.loop, self.axis = run, loop, loop.within or ""
        coordinate = run.space.world.here[self.axis]
        assert isinstance(coordinate, Var)
        self.here = coordinate
        self.visitor = Var(f"visitor.{self.axis}", coordinate.sort)
        self.other_way = Var(f"visitor.{self.axis}.other", coordinate.sort)
        self.by = self._direction()

    def run(self) -> None:
        """Walk the loop; the walk's buffers are then what they are after the last round."""
        env, written = self.run_.env, Counter(t.name for t in assigned(self.loop.body))
        travelling = {s.targets[0].name for s in self.loop.body if isinstance(s, Assign) and self._passes_on(s)}
        first = _read_first(self.loop.body)
        before = dict(env)
        computed = {n for n, times in written.items() if n not in travelling or times > 1}
        carried = [self._carried(n, n in travelling) for n in sorted(computed & first)]
        for buffer in carried:
            if not buffer.travels:
                env[buffer.name] = buffer.began.moved(buffer.start)
        for name in travelling:
            env.pop(name, None)  # what it was in the round before is nobody's business
        self._round(before, {c.name: c for c in carried})
        ended = {name: env[name] for name in written if name in env}
        for name in written:
            env.pop(name, None)
        env.update(self._passed(before, travelling - computed))
        env.update(self._after(carried, ended))

    # One round.

    def _direction(self) -> str:
        """Which way most goes round. What goes the other way meets other visitors, of which nothing is said."""
        ways = [c.choice("by") for s in statements(self.loop.body) for c in calls(s) if c.op == "shift" and self.axis in c.axes]
        return "-1" if ways.count("-1") > len(ways) / 2 else "1"

    def _passes_on(self, stmt: Stmt) -> bool:
        """Whether a statement is `x = shift(x, axis)`."""
        match stmt:
            case Assign(targets=(Ref(name=name),), value=Call(op="shift", args=(Ref(name=read),), axes=(axis,)), accumulate=False):
                return name == read and axis == self.axis
        return False

    def _carried(self, name: str, travels: bool) -> _Carried:
        began = self.run_.env.get(name)
        if not isinstance(began, Value) or began.turns:
            raise NoMeaningError(f"`{name}` is carried through the rounds of a ring, and was no number before them", self.loop.place)
        coordinates = [*self.run_.space.world.coordinates, self.visitor]
        start = app(f"{_CARRIED}{name}", *coordinates, *(dimension(d) for d in sorted(began.dims)))
        return _Carried(name=name, began=began, start=start, travels=travels)

    def _round(self, before: Mapping[str, Value | Picks], carried: Mapping[str, _Carried]) -> None:
        written: set[str] = set()
        for stmt in self.loop.body:
            if not isinstance(stmt, Assign):
                raise NoMeaningError("a round of a ring consists of assignments", stmt.place)
            name = stmt.targets[0].name
            # What is passed on is what the round before left: a visitor's part only if this round has not written it yet.
            anew = name in written
            written.add(name)
            if not self._passes_on(stmt):
                if any(c.op == "shift" and self.axis in c.axes for c in calls(stmt)):
                    raise NoMeaningError("in a ring's rounds a shift is a statement of its own: `k = shift(k, cp)`", stmt.place)
                self.run_.body((stmt,))
                continue
            value = before.get(name)
            if not isinstance(value, Value) or value.turns or anew:
                raise NoMeaningError(f"`{name}` is written before it is passed on in a round, or is no number", stmt.place)
            assert isinstance(stmt.value, Call)
            visitor = self.visitor if stmt.value.choice("by") == self.by else self.other_way
            body = substitute(value.body, {self.here.name: visitor})
            if name in carried:
                body = carried[name].start if visitor is self.visitor else self.run_.space.unknown(value.dims)
            self.run_.env[name] = value.moved(body, turns=self._turned(value, visitor))

    def _turned(self, value: Value, whose: Index) -> Turns:
        """Turns of what was a device's own and is another device's part."""
        return {**value.turns, **{(dim, self.axis): whose for dim in value.split_by(self.axis)}}

    # All rounds.

    def _passed(self, before: Mapping[str, Value | Picks], names: set[str]) -> dict[str, Value]:
        """What is only passed on, one step before it is home again."""
        values = {}
        for shift in (s.value for s in self.loop.body if isinstance(s, Assign) and s.targets[0].name in names):
            assert isinstance(shift, Call)
            (name,) = (a.name for a in shift.args if isinstance(a, Ref))
            value, there = before[name], neighbour(self.here, shift.choice("by"), other=True)
            assert isinstance(value, Value)
            values[name] = value.moved(substitute(value.body, {self.here.name: there}), turns=self._turned(value, there))
        return values

    def _after(self, carried: list[_Carried], ended: Mapping[str, Value | Picks]) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for buffer in carried:
            value = ended.get(buffer.name)
            if not isinstance(value, Value) or value.dims != buffer.began.dims or not value.cut_alike(buffer.began):
                raise NoMeaningError(f"`{buffer.name}` has another shape after a round of the ring than before it", self.loop.place)
            if value.turns != (self._turned(buffer.began, self.visitor) if buffer.travels else {}):
                raise NoMeaningError(
                    f"`{buffer.name}` holds another device's part after a round of the ring than before it", self.loop.place
                )
            kept, added = _linear(value.body, buffer.start)
            values[buffer.name] = self._home(buffer, kept, added) if buffer.travels else self._grown(buffer, kept, added, carried, ended)
        return values

    def _unknown(self, buffer: _Carried) -> Value:
        at = [*self.run_.space.world.coordinates, *(dimension(d) for d in sorted(buffer.began.dims))]
        return buffer.began.moved(app(f"{_CARRIED}last.{buffer.name}", *at))

    def _home(self, buffer: _Carried, kept: Poly | None, added: Poly) -> Value:
        """What travelled, one step before it is home again: everybody has added to it."""
        there = neighbour(self.here, self.by, other=True)
        turns = self._turned(buffer.began, there)
        if kept != ONE or self._depends(added):
            return replace(self._unknown(buffer), turns=turns)
        visitor = self.visitor.name
        summed = total([self.here], added) - substitute(added, {self.here.name: self.visitor})
        whole = substitute(buffer.began.body, {self.here.name: self.visitor}) + summed
        return buffer.began.moved(substitute(whole, {visitor: there}), turns=turns)

    def _grown(
        self, buffer: _Carried, kept: Poly | None, added: Poly, carried: list[_Carried], ended: Mapping[str, Value | Picks]
    ) -> Value:
        """What grew: by itself, or as a multiple of the exponential of something else that is carried."""
        if kept is None:
            return self._unknown(buffer)
        if kept == ONE and not self._depends(added):
            return buffer.began.moved(buffer.began.body + self._rounds(added))
        for other in carried:
            value = ended.get(other.name)
            if other is buffer or other.travels or not isinstance(value, Value) or not other.began.dims <= buffer.began.dims:
                continue
            before, after = _exp(other.start), _exp(value.body)
            grows = product(added, after)
            if product(kept, after) == before and not self._depends(grows):
                scaled = product(buffer.began.body, _exp(other.began.body)) + self._rounds(grows)
                return buffer.began.moved(product(scaled, by_cases(inverse, _exp(self._unknown(other).body))))
        return self._unknown(buffer)

    def _depends(self, added: Poly) -> bool:
        """Whether a round's addition depends on anything but its visitor."""
        return _CARRIED in added.key or self.other_way.name in added.free

    def _rounds(self, added: Poly) -> Poly:
        """What all rounds add."""
        return total([self.visitor], added) - substitute(added, {self.visitor.name: self.here})


def _exp(body: Poly) -> Poly:
    return by_cases(lambda p: applied("exp", p), body)


def _linear(body: Poly, start: Poly) -> tuple[Poly | None, Poly]:
    """A term as ``kept * start + added``, ``start`` being an atom; ``kept`` is None where it is not of that form."""
    ((atom, _),) = start.terms[0][0].factors
    kept, added, fine = Poly({}), Poly({}), True
    for mono, coefficient in body.terms:
        factors = dict(mono.factors)
        exponent = factors.pop(atom, 0)
        rest = Poly({Mono(factors, mono.guards): coefficient})
        if exponent == 0:
            added = added + rest
        else:
            kept = kept + rest
        fine = fine and exponent in (0, 1) and atom.key not in rest.key
    return (kept if fine else None), added


def _read_first(body: tuple[Stmt, ...]) -> frozenset[str]:
    """The buffers that a round reads before it writes them."""
    read: set[str] = set()
    written: set[str] = set()
    for stmt in body:
        added = stmt.targets if isinstance(stmt, Assign) and stmt.accumulate else ()
        read |= {r.name for r in (*reads(stmt), *added)} - written
        written |= {t.name for t in assigned((stmt,))}
    return frozenset(read)
