"""Running a program on all devices of a mesh, and comparing each step with what one device computes."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from placeproof.core.program import Call, Program
from placeproof.semantics.meaning import optimizer
from placeproof.semantics.meaning.collectives import exchange
from placeproof.semantics.meaning.layers import Experts, Layers, flat_pass, own_gradients
from placeproof.semantics.meaning.mesh import Mesh, at_place, stacked
from placeproof.semantics.meaning.numbers import Array, Field
from placeproof.semantics.meaning.place import Meeting, Place
from placeproof.semantics.meaning.values import Part, Stream
from placeproof.semantics.meaning.world import World
from placeproof.semantics.simulate.device import Message
from placeproof.semantics.simulate.experts import MisfitError
from placeproof.semantics.simulate.layout import in_words
from placeproof.semantics.simulate.problem import Problem
from placeproof.semantics.simulate.run import Setup, layout_of


def run(program: Program, setup: Setup) -> str | None:
    """Run the program for some steps: None when every device holds what one device would hold after each of them; otherwise what a device
    holds, or why the run does not end.

    All states must be placed by the program (``trace(program).program`` places those that it leaves out). Raises NoMeaningError for a
    collective that says nothing of what it is given, and ZeroDivisionError where something is undefined for the numbers drawn.
    """
    problem = Problem(layout=layout_of(program, setup), seed=setup.seed, without=setup.without, small=setup.small)
    world = World(program, problem, Field(setup.exact), setup.seed)
    places = [Place(world, here, setup.microbatches) for here in world.places()]
    truth = Truth(world)
    for number in range(setup.steps):
        if (fault := _step(places, number)) is not None:
            return fault
        truth.step(number)
        for place in places:
            for state, expected in (("parameters", truth.theta), ("optimizer", truth.omega)):
                if (found := _difference(place, state, expected)) is not None:
                    return f"after step {number + 1} {found}"
    return None


def _difference(place: Place, state: str, expected: Array) -> str | None:
    """Which device has another value, of those that the placement gives it."""
    columns, placed = place.mesh.placed(state)
    held = place.env[state].on(columns)
    wrong = placed & (~held.have | (held.data != expected[..., columns.index, :]).any(axis=-1))
    if not wrong.any():
        return None
    first = tuple(int(n) for n in np.argwhere(wrong)[0])
    at = {f: place.here.get(f, n) for f, n in zip(place.world.factors, first[:-1], strict=True)}
    what = "another value than one device has" if held.have[first] else "nothing"
    device = ", ".join(f"{f} = {n}" for f, n in at.items()) or "the device"
    return f"{device} holds {what} in {state}, {in_words(columns.elements[first[-1]])}"


class Truth:
    """One device that sees the whole global batch; the leading dimension of its arrays is that of the samples."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.columns = world.columns(tuple(range(len(world.elements))))
        first = [world.problem.initial(e) for e in world.elements]
        self.theta = world.field.array(first, (len(first), 1))
        self.omega = np.concatenate([self.theta, world.field.zeros(self.theta.shape)], axis=-1)

    def step(self, number: int) -> None:
        """One step."""
        world, f = self.world, self.world.field
        gradient = self._mean(number)
        said = dict(world.program.reference)
        if said.get("clip") == "global_norm":
            gradient = f.mul(gradient, optimizer.clip(f, np.asarray(f.total(f.mul(gradient, gradient), -1))))
        if said.get("skip") == "not_finite" and any(world.problem.overflows(e, number) for e in world.elements):
            return
        every = np.ones(gradient.shape, dtype=bool)
        theta, self.omega = optimizer.step(world, self.columns, (self.theta[..., 0], self.omega, gradient), every, every, None)
        self.theta = theta[..., None]

    def _mean(self, number: int) -> Array:
        """The gradient of the mean over the tokens of the global batch."""
        world, f = self.world, self.world.field
        tokens = world.scalars("tokens", number).reshape(-1)
        gradients = f.mul(self._gradients(number), tokens[:, None])
        return f.div(f.total(gradients, 0), f.total(tokens, 0, keepdims=True))

    def _gradients(self, number: int) -> Array:
        """Each sample's gradient: ``[sample, element]``."""
        world, f = self.world, self.world.field
        statistic = None
        if world.problem.coupled:
            drawn = world.scalars("statistic", number).reshape(-1)
            statistic = f.div(f.total(drawn, 0, keepdims=True), f.array([len(drawn)], (1,)))
        if not world.layout.network:
            own = f.total(own_gradients(world, number), -1)
            own = own.reshape(-1, own.shape[-1])
            own = own if statistic is None else f.mul(own, statistic[:, None])
            return f.add(own, f.total(self.theta, (0, 1)))
        x, target = (world.stream(what, number).reshape(-1, *world.stream(what, number).shape[-2:]) for what in ("input", "target"))
        have = np.ones(x.shape[:-1], dtype=bool)
        data = np.broadcast_to(self.theta, (len(x), *self.theta.shape))
        every = np.ones(data.shape[:-1], dtype=bool)
        layers = Layers(world, Part(self.columns, data, every, every))
        out, saved = layers.forward(Stream(x, have))
        dx = out.data
        dropped = dict(world.program.reference).get("dropout") == "output"
        if dropped:
            mask = world.scalars("mask", number).reshape(-1)[:, None, None]
            dx = f.mul(dx, mask)
        dx = f.sub(dx, target)
        dx = f.mul(dx, mask) if dropped else dx
        found = layers.backward(saved, Stream(dx, have))[0].data[..., 0]
        return found if statistic is None else f.mul(found, statistic[:, None])


def _step(places: list[Place], number: int) -> str | None:
    """All places in turn, each until it has to wait; then the exchanges whose group is complete."""
    running: dict[int, Generator[Any, Any, None]] = {i: p.step(number) for i, p in enumerate(places)}
    waiting: dict[int, Meeting | Message] = {}
    answers: dict[int, Any] = dict.fromkeys(running)
    mail: dict[tuple[object, ...], list[Any]] = {}
    while running:
        for index in [i for i in running if i not in waiting]:
            try:
                request = running[index].send(answers.pop(index, None))
                while isinstance(request, Meeting) and request.size == 1:
                    request = running[index].send(_met(places, [index], [request])[0])
            except StopIteration:
                del running[index]
                continue
            except KeyError as missing:
                return f"shapes do not fit: nothing is at {missing}"
            except MisfitError as why:
                return f"shapes do not fit: {why}"
            if isinstance(request, Message) and request.sends:
                mail.setdefault(request.key, []).append(request.value)
                continue
            waiting[index] = request
        before = len(waiting)
        for index, request in list(waiting.items()):
            if isinstance(request, Message) and mail.get(request.key):
                answers[index] = mail[request.key].pop(0)
                del waiting[index]
        fault = _meet(places, waiting, answers)
        if fault is not None:
            return fault
        if running and len(waiting) == before and all(i in waiting for i in running):
            return "every device waits, and no exchange has all of its devices"
    return None


def _meet(places: list[Place], waiting: dict[int, Meeting | Message], answers: dict[int, Any]) -> str | None:
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, request in waiting.items():
        if isinstance(request, Meeting):
            groups.setdefault(request.group, []).append(index)
    for members in groups.values():
        requests = [r for r in (waiting[i] for i in members) if isinstance(r, Meeting)]
        if len(members) < requests[0].size:
            continue
        if any(r.what != requests[0].what for r in requests):
            return "devices of one group meet in different collectives"
        try:
            results = _met(places, members, requests)
        except MisfitError as why:
            return f"shapes do not fit: {why}"
        for index, result in zip(members, results, strict=True):
            answers[index] = result
            del waiting[index]
    return None


def _met(places: list[Place], members: list[int], requests: list[Meeting]) -> list[Any]:
    """The result of an exchange on each place."""
    first, place = requests[0], places[members[0]]
    call, world = first.call, place.world
    factors = first.apart
    if call.op == "tied_reduce" and first.size == 1 and world.sizes[factors[0]] > 1:
        return [first.value]  # neither the first nor the last
    where = {i: tuple(places[i].here[f] for f in factors) for i in members}
    ordered = {where[i]: r.value for i, r in sorted(zip(members, requests, strict=True), key=lambda one: where[one[0]])}
    value, mesh = stacked(place.mesh, factors, ordered), place.mesh.joined(factors)
    result = _result(call, mesh, value, first.also, place)
    if call.op == "tied_reduce":
        ends = sorted(where.values())
        where = {i: (ends.index(at),) for i, at in where.items()}
    return [_own(at_place(world, factors, where[i], result), r.value) for i, r in zip(members, requests, strict=True)]


def _own(result: Any, brought: Any) -> Any:
    """Of the elements that a place has an array for."""
    part = brought[0] if isinstance(brought, list) else brought
    if not isinstance(part, Part):
        return result
    if isinstance(result, tuple):
        return tuple(_own(r, part) for r in result)
    return result.on(part.columns) if isinstance(result, Part) else result


def _result(call: Call, mesh: Mesh, value: Any, also: int, place: Place) -> Any:
    world = mesh.world
    if not isinstance(value, list):
        return exchange(call, mesh, value)
    if call.op in ("backward", "backward_with") and not world.layout.network:
        w, statistic = value
        return flat_pass(mesh, w, also, statistic, place.number)
    w, x, y, z = value
    experts = Experts(world, w, world.layout.factors(call.axes), mesh.at, mesh.stage)
    if call.op == "forward":
        return experts.forward(x)
    gradient, back = experts.backward(x, y, z)
    return {"backward": (gradient, back), "backward_weight": (gradient, back), "backward_input": (back, gradient)}[call.op]


__all__ = ["Truth", "run"]
