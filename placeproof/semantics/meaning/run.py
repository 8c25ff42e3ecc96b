"""Running a program on all devices of a mesh, and comparing each step with what one device computes."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from placeproof.programs import Call, Resolved
from placeproof.programs.ir import Term
from placeproof.programs.losses import reduction, target_of
from placeproof.semantics.meaning import optimizer
from placeproof.semantics.meaning.devices.collectives import OnArrays
from placeproof.semantics.meaning.devices.layers import Called, Experts, Layers, flat_pass, own_gradients
from placeproof.semantics.meaning.devices.mesh import Mesh, at_place, stacked
from placeproof.semantics.meaning.devices.place import Meeting, Message, Place
from placeproof.semantics.meaning.layout import Layout
from placeproof.semantics.meaning.losses import by_token, sequences, weighted
from placeproof.semantics.meaning.numbers import Array, Field
from placeproof.semantics.meaning.problem import Problem
from placeproof.semantics.meaning.recorded import HERE, Recorded, known, unheld
from placeproof.semantics.meaning.setup import Difference, Fault, NoMeaningError, Setup
from placeproof.semantics.meaning.values import MisfitError, Part, Stream
from placeproof.semantics.meaning.world import World


def run(program: Resolved, setup: Setup) -> Difference | Fault | None:
    """Run the program for some steps: None when every device holds what one device would hold after each of them.

    In fractions every device runs by itself; among residues, one stands for all that do the same. Raises NoMeaningError for a collective
    that says nothing of what it is given, and ZeroDivisionError where something is undefined for the numbers drawn.
    """
    return Run(program, setup).compare(setup.steps)


class Run:
    """A program on all devices of a mesh, beside one device that sees the whole global batch. ``problem``: the numbers, unless the setup
    says which."""

    def __init__(self, program: Resolved, setup: Setup, problem: Problem | None = None) -> None:
        recorded: dict[str, Recorded] | None = {} if setup.record else None
        if program.not_spoken_of is not None:
            raise NoMeaningError(program.not_spoken_of[0])
        layout = Layout(program, setup)
        drawn = problem or Problem(layout=layout, seed=setup.seed, without=setup.without, recorded=recorded, small=setup.small)
        world = World(program, drawn, Field(setup.exact), setup.seed)
        self.places = [Place(world, here, setup.microbatches) for here in world.places()]
        self.truth = Truth(world)

    def watched(self) -> Run:
        """The same, which remembers what there is after each line that is in no loop."""
        for place in self.places:
            place.seen = []
        return self

    def compare(self, steps: int, began: int = 0) -> Difference | Fault | None:
        """Steps until a device holds something else than one device does. ``began``: how many it has gone already."""
        for number in range(began, steps):
            if (fault := self.step(number)) is not None:
                return fault
            differences = [d for place in self.places for d in self._differences(place, number)]
            if differences:
                return next((d for d in differences if d.in_gradient), differences[0])
        return None

    def step(self, number: int) -> Fault | None:
        """One step on all devices, and on the one."""
        try:
            fault = _step(self.places, number)
        except (TypeError, AttributeError) as error:  # the program does with a value what no device can: nothing is learnt from that
            raise NoMeaningError(f"an operation gets what it cannot compute with ({error})") from error
        HERE.device, HERE.line, HERE.text = "one device", None, "the reference step"
        self.truth.step(number)
        return fault

    def _differences(self, place: Place, number: int) -> Iterator[Difference]:
        """The elements that the placement gives a device, and that are not there or not the reference's; in residues, the first."""
        for state, expected in (("parameters", self.truth.theta), ("optimizer", self.truth.omega)):
            columns, placed = place.mesh.placed(state)
            held = place.state(state).on(columns)
            wrong = placed & (~held.have | (held.data != expected[..., columns.index, :]).any(axis=-1))
            for first in np.argwhere(wrong) if place.world.field.exact else np.argwhere(wrong)[:1]:
                *at, where = (int(n) for n in first)
                actual = held.data[(*at, where, -1)] if held.have[(*at, where)] else None
                yield Difference(
                    step=number,
                    device={f: place.here.get(f, n) for f, n in zip(place.world.factors, at, strict=True)},
                    state=state,
                    element=columns.elements[where],
                    expected=expected[columns.index[where], -1],
                    actual=known(actual),
                    gradient=(self.truth.gradient[columns.index[where]], place.gradient(columns.numbers[where], tuple(at))),
                    unheld=unheld(actual),
                )


class Truth:
    """One device that sees the whole global batch; the leading dimension of its arrays is that of the samples."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.columns = world.columns(tuple(range(len(world.elements))))
        self.theta = world.first[:, None]
        self.gradient = world.field.zeros(world.first.shape)
        self.by_sample = self.gradient[None, :]
        self.omega = np.concatenate([self.theta, world.field.zeros(self.theta.shape)], axis=-1)

    def step(self, number: int) -> None:
        """One step."""
        world, f = self.world, self.world.field
        self.gradient = gradient = self._mean(number)
        reference = dict(world.program.reference)
        if reference.get("clip") == "global_norm":
            once = np.where(world.layout.repeated(), f.of(0), gradient)  # what the ends of a pipeline share is one weight
            norm = f.total(f.mul(once, once), -1, keepdims=True)
            self.gradient = gradient = f.mul(gradient, optimizer.clip(f, f.sqrt(norm), f.of(world.program.clip_limit or 1)))
        if reference.get("skip") == "not_finite" and (world.overflows(number) & ~world.frozen).any():
            return
        every = np.ones(gradient.shape, dtype=bool)
        theta, omega = optimizer.step(world, self.columns, (self.theta[..., 0], self.omega, gradient), every, every, None)
        stays = world.frozen[:, None]
        self.theta, self.omega = np.where(stays, self.theta, theta[..., None]), np.where(stays, self.omega, omega)

    def _mean(self, number: int) -> Array:
        """The gradient of what is trained: of the mean over the tokens of the global batch, unless the program says otherwise."""
        world, f = self.world, self.world.field
        self.by_sample = self._gradients(number)
        if world.program.loss:
            mean = self._of_contract(number)
        else:
            tokens = world.scalars("tokens", number).reshape(-1)
            mean = f.div(f.total(f.mul(self.by_sample, tokens[:, None]), 0), f.total(tokens, 0, keepdims=True))
        for pair in world.layout.shared_elements:
            both = [world.elements.index(e) for e in pair]
            mean[both] = f.total(mean[both], 0, keepdims=True)
        return np.where(world.frozen, f.of(0), mean)

    def _of_contract(self, number: int) -> Array:
        """The gradient of all terms of what is trained."""
        gradient = self.world.field.zeros((len(self.world.elements),))
        for term in self.world.program.loss:
            weights = sequences(self.world, number).of_term(term)
            of_term = self._network if self.world.layout.network else self._flat
            gradient = self.world.field.add(gradient, self.world.field.total(of_term(number, term.loss, weights), 0))
        return gradient

    def _flat(self, number: int, loss: str, weights: Array) -> Array:
        """What each sample gives in the flat model, its tokens as often as ``weights`` says: ``[sample, element]``."""
        f = self.world.field
        own = f.total(weighted(self.world, weights, own_gradients(self.world, number, loss)), -1)
        many = np.broadcast_to(f.total(weights, -1), own.shape[:-1])
        return f.add(own.reshape(-1, own.shape[-1]), f.mul(many.reshape(-1, 1), f.total(self.theta, (0, 1))))

    def _gradients(self, number: int) -> Array:
        """Each sample's gradient: ``[sample, element]``."""
        world, f = self.world, self.world.field
        statistic = None
        if world.problem.coupled:
            drawn = world.scalars("statistic", number).reshape(-1)
            statistic = f.div(f.total(drawn, 0, keepdims=True), f.array([len(drawn)], (1,)))
        if world.program.loss:
            weights = sequences(world, number).of_pass("tokens", mean=True)
            return (self._network if world.layout.network else self._flat)(number, Term.MAIN, weights)
        if not world.layout.network:
            own = f.total(own_gradients(world, number), -1)
            own = own.reshape(-1, own.shape[-1])
            own = own if statistic is None else f.mul(own, statistic[:, None])
            return f.add(own, f.total(self.theta, (0, 1)))
        gradients = self._network(number, Term.MAIN, None)
        return gradients if statistic is None else f.mul(gradients, statistic[:, None])

    def _network(self, number: int, loss: str, weights: Array | None) -> Array:
        """What each sample gives in the network, its tokens as often as ``weights`` says: ``[sample, element]``."""
        world, f = self.world, self.world.field
        streams = (world.stream(what, number) for what in ("input", target_of(loss)))
        x, target = (stream.reshape(-1, *stream.shape[-2:]) for stream in streams)
        have = np.ones(x.shape[:-1], dtype=bool)
        data = np.broadcast_to(self.theta, (len(x), *self.theta.shape))
        every = np.ones(data.shape[:-1], dtype=bool)
        layers = Layers(world, Part(self.columns, data, every, every))
        out, saved = layers.forward(Stream(x, have))
        if dict(world.program.reference).get("dropout") == "output":
            mask = world.scalars("mask", number).reshape(-1)[:, None, None]
            dx = f.mul(f.sub(f.mul(out.data, mask), target), mask)
        else:
            dx = f.sub(out.data, target)
        if weights is not None:
            every_device = np.broadcast_to(weights, (*world.stream("input", number).shape[:-2], weights.shape[-1]))
            dx = f.mul(dx, by_token(world, every_device).reshape(*dx.shape[:-1], 1))
        gradients: Array = layers.backward(saved, Stream(dx, have))[0].data[..., 0]
        return gradients


def _step(places: list[Place], number: int) -> Fault | None:
    """All places in turn, each until it has to wait; then the exchanges whose group is complete."""
    running: dict[int, Generator[Any, Any, None]] = {i: p.step(number) for i, p in enumerate(places)}
    waiting: dict[int, Meeting | Message] = {}
    answers: dict[int, Any] = dict.fromkeys(running)
    mail: dict[tuple[object, ...], list[tuple[Any, Place]]] = {}
    while running:
        for index in [i for i in running if i not in waiting]:
            places[index].note()
            try:
                request = running[index].send(answers.pop(index, None))
                while isinstance(request, Meeting) and request.size == 1:
                    request = running[index].send(met(places[index], [places[index].here], [request])[0])
            except StopIteration:
                del running[index]
                continue
            except KeyError as missing:
                return Fault(unwritten(missing), (places[index].here,), places[index].line)
            except MisfitError as why:
                return Fault(f"shapes do not fit: {why}", (places[index].here,), places[index].line)
            if isinstance(request, Message) and request.sends:
                mail.setdefault(request.key, []).append((request.value, places[index]))
                continue
            waiting[index] = request
        before = len(waiting)
        for index, request in list(waiting.items()):
            if isinstance(request, Message) and mail.get(request.key):
                answers[index], _ = mail[request.key].pop(0)
                del waiting[index]
        fault = _meet(places, waiting, answers)
        if fault is not None:
            return fault
        if running and len(waiting) == before and all(i in waiting for i in running):
            return Fault("every device waits, and no exchange has all of its devices", tuple(places[i].here for i in waiting))
    if any(mail.values()):
        return Fault("a device sends what none receives", tuple(left[0][1].here for left in mail.values() if left))
    return None


def unwritten(missing: KeyError) -> str:
    """What happens where a buffer is read that is not there."""
    (key,) = missing.args
    name = f"{key[0]}[{key[1]}]" if isinstance(key, tuple) else key
    return f"`{name}` is read, but nothing has written it"


def _meet(places: list[Place], waiting: dict[int, Meeting | Message], answers: dict[int, Any]) -> Fault | None:
    groups: dict[tuple[object, ...], dict[int, Meeting]] = {}
    for index, request in waiting.items():
        if isinstance(request, Meeting):
            groups.setdefault(request.group, {})[index] = request
    for group in groups.values():
        members, requests = [places[i] for i in group], list(group.values())
        if len(members) < requests[0].size:
            continue
        coordinates = tuple(place.here for place in members)
        if any(r.what != requests[0].what for r in requests):
            return Fault("devices of one group meet in different collectives", coordinates)
        HERE.device = "all devices of the group"
        try:
            results = met(members[0], coordinates, requests)
        except MisfitError as why:
            return Fault(f"shapes do not fit: {why}", coordinates)
        for index, result in zip(group, results, strict=True):
            answers[index] = result
            del waiting[index]
    return None


def met(place: Place, members: Sequence[Mapping[str, int]], requests: Sequence[Meeting]) -> list[Any]:
    """The result of an exchange on each place of a group, by their coordinates; ``place``: one of them. Raises MisfitError."""
    first = requests[0]
    call, world = first.call, place.world
    factors = first.apart
    if call.op == "tied_reduce" and first.size == 1 and world.sizes[factors[0]] > 1:
        return [first.value]  # neither the first nor the last
    where = [tuple(here[f] for f in factors) for here in members]
    ordered = {at: r.value for at, r in sorted(zip(where, requests, strict=True), key=lambda one: one[0])}
    value, mesh = stacked(place.mesh, factors, ordered), place.mesh.joined(factors)
    result = _result(call, mesh, value, first.also, place)
    if call.op == "tied_reduce":
        ends = sorted(where)
        where = [(ends.index(at),) for at in where]
    return [_own(at_place(world, factors, at, result), r.value) for at, r in zip(where, requests, strict=True)]


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
        return OnArrays(call, mesh).result(value)
    if call.op in ("backward", "backward_with") and not world.layout.network:
        w, statistic = value
        return flat_pass(mesh, w, also, statistic, place.number, reduction(call) if world.program.loss else None)
    w, *rest = value
    along = world.layout.factors(call.axes)
    layer = Called(world, w, along, mesh) if world.layout.called else Experts(world, w, along, mesh.at, mesh.stage)
    return layer.results(call.op, *rest)


__all__ = ["NoMeaningError", "Run", "Truth", "met", "run"]
