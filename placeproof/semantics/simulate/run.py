"""Running a program on every device of a small mesh, and comparing each step with the reference."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from placeproof.core.mesh import Axis
from placeproof.core.program import Program
from placeproof.semantics.simulate.device import Device, Message, Rendezvous
from placeproof.semantics.simulate.exchange import exchange
from placeproof.semantics.simulate.experts import MisfitError
from placeproof.semantics.simulate.layout import Element, Layout, Sizes
from placeproof.semantics.simulate.numbers import HERE
from placeproof.semantics.simulate.problem import Problem
from placeproof.semantics.simulate.reference import Reference, Step


@dataclass(frozen=True)
class Setup:
    """The small mesh: degrees by axis (sub-group sizes by the inner factor's name), micro-batches, layers and units a stage.

    ``exact``: compute in fractions; otherwise in residues, which are as good for a search and do not grow. ``small``: begin with
    numbers that stay small, for people. ``record``: remember how each number came to be.
    """

    degrees: dict[str, int]
    microbatches: int = 1
    layers_per_stage: int = 1
    units_per_stage: int = 1
    steps: int = 2
    seed: int = 1
    exact: bool = True
    without: frozenset[str] = frozenset()
    record: bool = False
    small: bool = False


@dataclass(frozen=True)
class Difference:
    """A device that does not hold what the reference holds. ``gradient``: the reference's for the element, and the one that the
    device's update read (None where it read none)."""

    step: int
    device: dict[str, int]
    state: str
    element: Element
    expected: Fraction
    actual: Fraction | None
    gradient: tuple[Any, Any] = (None, None)


@dataclass(frozen=True)
class Fault:
    """What a real run would end with: devices that wait for one another for ever, meet in different collectives, or
    compute with tensors whose shapes do not fit."""

    why: str
    devices: tuple[dict[str, int], ...] = field(default=())


def factors_of(axis: Axis, setup: Setup) -> dict[str, int]:
    """The factors of an axis with their sizes."""
    size = setup.degrees.get(axis.name, axis.degree or 1)
    if axis.inner is None:
        return {axis.name: size}
    inner = axis.inner if isinstance(axis.inner, int) else setup.degrees.get(axis.inner_name, 1)
    if size % inner:
        raise ValueError(f"sub-groups of {inner} do not divide axis {axis.name} of {size}")
    return {axis.outer_name: size // inner, axis.inner_name: inner}


def simulate(program: Program, setup: Setup) -> Difference | Fault | None:
    """Run the program for some steps; None when every device holds what the reference holds after each of them.

    All states must be placed by the program (``trace(program).program`` places those that it leaves out).
    """
    layout = layout_of(program, setup)
    problem = Problem(
        layout=layout, seed=setup.seed, exact=setup.exact, without=setup.without, recorded={} if setup.record else None, small=setup.small
    )
    factors = layout.sizes.factors
    devices = [
        Device(program, problem, dict(zip(factors, at, strict=True)), setup) for at in itertools.product(*map(range, factors.values()))
    ]
    places = itertools.product(*(range(factors[f]) for f in layout.sample_factors))
    samples = tuple((*at, i) for at in places for i in range(setup.microbatches))
    HERE.device, HERE.line, HERE.text = "one device", None, "the reference step"
    truth = Reference(problem, samples).run(setup.steps)
    for number in range(setup.steps):
        hang = run_step(devices, number)
        if hang is not None:
            return hang
        differences = [d for device in devices for d in _differences(device, number, truth[number])]
        if differences:
            return next((d for d in differences if _shows_in_gradient(d)), differences[0])
    return None


def _shows_in_gradient(found: Difference) -> bool:
    """Whether the update read another gradient already: the difference that is easiest to follow."""
    expected, read = found.gradient
    return read is not None and bool(expected != read)


def layout_of(program: Program, setup: Setup) -> Layout:
    """Where the elements of a run's model lie."""
    factors = {f: n for a in program.axes for f, n in factors_of(a, setup).items()}
    sizes = Sizes(
        factors=factors,
        layers_per_stage=setup.layers_per_stage,
        units_per_stage=setup.units_per_stage,
        microbatches=setup.microbatches,
    )
    return Layout(program=program, sizes=sizes)


def run_step(devices: list[Device], number: int) -> Fault | None:
    """All devices in turn, each until it has to wait; then the exchanges whose group is complete."""
    running: dict[int, Generator[Any, Any, None]] = {i: d.step(number) for i, d in enumerate(devices)}
    waiting: dict[int, Rendezvous | Message] = {}
    answers: dict[int, Any] = dict.fromkeys(running)
    mail: dict[tuple[object, ...], list[Any]] = {}
    while running:
        for index in [i for i in running if i not in waiting]:
            try:
                request = running[index].send(answers.pop(index, None))
            except StopIteration:
                del running[index]
                continue
            except KeyError as missing:
                return Fault(f"shapes do not fit: nothing is at {missing}", (devices[index].at,))
            if isinstance(request, Message) and request.sends:
                mail.setdefault(request.key, []).append(request.value)
                continue
            waiting[index] = request
        before = len(waiting)
        _deliver(waiting, mail, answers)
        problem = _meet(devices, waiting, answers)
        if problem is not None:
            return problem
        if running and len(waiting) == before and all(i in waiting for i in running):
            stuck = tuple(devices[i].at for i in waiting)
            return Fault("every device waits, and no exchange has all of its devices", stuck)
    return None


def _deliver(waiting: dict[int, Rendezvous | Message], mail: dict[tuple[object, ...], list[Any]], answers: dict[int, Any]) -> None:
    for index, request in list(waiting.items()):
        if isinstance(request, Message) and mail.get(request.key):
            answers[index] = mail[request.key].pop(0)
            del waiting[index]


def _meet(devices: list[Device], waiting: dict[int, Rendezvous | Message], answers: dict[int, Any]) -> Fault | None:
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, request in waiting.items():
        if isinstance(request, Rendezvous):
            groups.setdefault(request.group, []).append(index)
    for members in groups.values():
        requests = [waiting[i] for i in members]
        first = requests[0]
        assert isinstance(first, Rendezvous)
        if len(members) < first.size:
            continue
        if any(isinstance(r, Rendezvous) and r.what != first.what for r in requests):
            return Fault("devices of one group meet in different collectives", tuple(devices[i].at for i in members))
        HERE.device = "all devices of the group"
        try:
            results = exchange(first.call, [(devices[i], r.value) for i, r in zip(members, requests, strict=True)])
        except MisfitError as why:
            return Fault(str(why), tuple(devices[i].at for i in members))
        except KeyError as missing:
            return Fault(f"shapes do not fit: nothing is at {missing}", tuple(devices[i].at for i in members))
        for index, result in zip(members, results, strict=True):
            answers[index] = result
            del waiting[index]
    return None


def _differences(device: Device, number: int, truth: Step) -> Iterator[Difference]:
    """The elements that the placement gives the device, and that are not there or not the reference's."""
    states: tuple[tuple[str, dict[Element, Any]], ...] = (("parameters", truth.parameters), ("optimizer", truth.optimizer))
    for state, expected in states:
        held = device.state(state)
        for element in device.layout.placed(device.at, state):
            want, actual = expected[element], held.data.get(element)
            if actual == want:
                continue
            if state == "optimizer":
                want, actual = want[1], actual[1] if actual is not None else None
            read = device.read_gradients[-1].get(element) if device.read_gradients else None
            yield Difference(
                step=number,
                device=device.at,
                state=state,
                element=element,
                expected=want,
                actual=actual,
                gradient=(truth.gradient[element], read),
            )
