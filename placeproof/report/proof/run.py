"""A counterexample's run as data that needs nothing of placeproof's: what it begins with, and what every device ends with.

Field ``run`` of the schema ``placeproof.prove/1``. Who replays it has to know what operations mean, and nothing of how the simulator
draws numbers or deals out elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from placeproof.measure.replay.file import number
from placeproof.measure.replay.model import Row, of_device, of_truth
from placeproof.programs import Resolved, render
from placeproof.programs.ir import returned as program_returns
from placeproof.semantics import tensors
from placeproof.semantics.meaning import Difference, Fault, Setup
from placeproof.semantics.meaning.layout import Element, Layout, in_words
from placeproof.semantics.meaning.problem import Problem, full_name, overflow_name
from placeproof.semantics.meaning.recorded import known
from placeproof.semantics.meaning.run import Run
from placeproof.semantics.meaning.script import shown_pair
from placeproof.semantics.tensors.arrays import Held
from placeproof.semantics.tensors.machine import Output, in_order
from placeproof.semantics.tensors.setup import FaultError
from placeproof.semantics.tensors.simulate import machine, spot


@dataclass(frozen=True)
class _Noted(Problem):
    """A problem that notes every number that it gives, under a name of its own."""

    noted: dict[str, Fraction] = field(default_factory=dict)

    def _drawn(self, choices: list[int], name: str, *key: object) -> Any:
        value = super()._drawn(choices, name, *key)
        self.noted[full_name(name, key)] = value
        return value

    def overflows(self, element: Element, step: int) -> bool:
        """Noted as 1 or 0."""
        overflow = super().overflows(element, step)
        self.noted[overflow_name(element, step)] = Fraction(overflow)
        return overflow


def of_step(program: Resolved, setup: Setup, what: Difference | Fault) -> dict[str, Any]:
    """The run of a training step's counterexample, up to the step that differs."""
    layout = Layout(program, setup)
    problem = _Noted(layout=layout, seed=setup.seed, without=setup.without, small=setup.small)
    both = Run(program, replace(setup, exact=True, record=False), problem)
    wanted = what.step + 1 if isinstance(what, Difference) else setup.steps
    steps, fault = _run(both, wanted)
    _draw_all(problem, _samples(layout, setup), steps, whole=fault is not None)
    return {
        "kind": "step",
        "program": render(program),
        "sizes": {"layers per stage": setup.layers_per_stage, "units per stage": setup.units_per_stage, "steps": steps},
        "seed": setup.seed,
        "small": setup.small,
        "without": sorted(setup.without),
        "elements": {in_words(e): layout.group_of(e) for e in layout.elements},
        "owners": list(_owners(program, layout)),
        "numbers": {name: number(value) for name, value in problem.noted.items()},
        "reference": _tables(of_truth(both.truth)),
        "shown": _shown(what) if isinstance(what, Difference) else None,
        "ends": [{"device": dict(p.here), **_tables(of_device(p))} for p in both.places] if fault is None else None,
        "stuck": [dict(device) for device in fault.devices] if fault is not None else None,
    }


def _run(both: Run, steps: int) -> tuple[int, Fault | None]:
    """Some steps: how many were begun, and what stopped them."""
    for step in range(steps):
        fault = both.step(step)
        if fault is not None:
            return step + 1, fault
    return steps, None


def _draw_all(problem: Problem, samples: Iterable[tuple[int, ...]], steps: int, *, whole: bool) -> None:
    """What the simulator did not come to draw: flags, of which it asks until one is set; with ``whole``, everything that devices draw
    which a fault kept from going on."""
    called = problem.layout.program.calls
    if any(c.op == "found_inf" for c in called):
        for element, step in itertools.product(problem.layout.elements, range(steps)):
            problem.overflows(element, step)
    if not whole:
        return
    for sample, step in itertools.product(samples, range(steps)):
        for what in ("input", "target"):
            problem.sample(sample, step, what)
        problem.tokens(sample, step)
        if problem.coupled:
            problem.statistic(sample, step)
    draws = dict.fromkeys([problem.layout.masked_by, *(c.choice("draw") for c in called if c.op == "random")])
    batches = [*range(problem.layout.setup.microbatches), None]
    sizes = problem.layout.sizes if any(c.op == "random" for c in called) else {}
    for draw, batch, step in itertools.product(draws, batches, range(steps)) if sizes else ():
        for place in itertools.product(*map(range, sizes.values())):
            problem.key(draw, batch, step, dict(zip(sizes, place, strict=True)))


def _shown(what: Difference) -> str:
    """The table that has the two numbers which are shown."""
    if what.actual is not None and shown_pair(what) != (what.expected, what.actual):
        return "gradients"
    return "optimizer, momentum" if what.state == "optimizer" else what.state


def _samples(layout: Layout, setup: Setup) -> tuple[tuple[int, ...], ...]:
    places = itertools.product(*(range(layout.sizes[f]) for f in layout.sample_factors))
    return tuple((*place, i) for place in places for i in range(setup.microbatches))


def _owners(program: Resolved, layout: Layout) -> Iterable[dict[str, Any]]:
    """For each factor of the mesh, each order of parts and, where weights are tied, each stage: the owner of every element."""
    orders = {c.choice("order") for c in program.calls if c.op in ("part", "all_to_all")}
    stages = range(layout.stage_count) if layout.tied_elements else range(1)
    for factor, order, stage in itertools.product(layout.sizes, sorted(orders | {"blocked"}), stages):
        owners = " ".join(map(str, layout.owners(factor, stage, order)))
        yield {"along": factor, "order": order, "stage": stage, "of": owners}


def _tables(rows: Iterable[Row]) -> dict[str, Any]:
    """Numbers by table and element; null for what was computed from what is not held."""
    tables: dict[str, Any] = {"parameters": {}, "optimizer": {}, "gradients": {}}
    for table, element, row in rows:
        shown = [_known(n) for n in row]
        tables[table][in_words(element)] = None if None in shown else shown if table == "optimizer" else shown[0]
    return tables


def _known(value: Any) -> str | None:
    return None if known(value) is None else number(value)


def of_block(program: Resolved, counterexample: tensors.RefutingBlockRun) -> dict[str, Any]:
    """The run of a block's counterexample."""
    setup, what = counterexample.setup, counterexample.what
    alone, mesh = (machine(program, setup, alone=one) for one in (True, False))
    one = dict.fromkeys(setup.degrees, 0).values()
    numbers = {f"{t.name}{name}": n for t in program.tensors for name, n in _returned(alone.read(t.name), tuple(one)).items()}
    truth, text = in_order(program, alone.run()), setup.reference
    try:
        many = [o.value for o in mesh.run()]
        devices = mesh.arrays.coordinates(True)
        ends = [{"device": device, "returns": [_returned(v, tuple(device.values())) for v in many]} for device in devices]
    except FaultError:
        ends = None
    lines = [(o.line, o.name) for o in (Output(call=c, value=t.value) for c, t in zip(program_returns(program), truth, strict=True))]
    which = lines.index((what.line, what.name)) if isinstance(what, tensors.Difference) and (what.line, what.name) in lines else None
    returned = [_returned(o.value, tuple(one)) for o in truth]
    return {
        "kind": "block",
        "program": render(program),
        **({} if text is None else {"one_device": render(text)}),
        "sizes": dict(setup.sizes),
        "seed": setup.seed,
        "fine": setup.fine,
        "numbers": numbers,
        "reference": {"returns": returned} | ({} if which is None else _derivative(what, returned[which])),
        "shown": None if which is None else f"result {which + 1}",
        "ends": ends,
        "stuck": [] if ends is None else None,
    }


def _derivative(what: tensors.Difference | Fault, returned: dict[str, str | None]) -> dict[str, Any]:
    """What was expected, where it is a derivative: on one device the program itself returns something else."""
    if isinstance(what, Fault) or what.expected is None:
        return {}
    where, expected = spot(what.index), number(what.expected)
    return {"derivative": {where: expected}} if returned.get(where, expected) != expected else {}


def _returned(value: Held, at: tuple[int, ...]) -> dict[str, str | None]:
    """What a device has, by place; null for what it computed from what it did not hold."""
    return {spot(place): _known(n) for place, n in value.by_place(at)}
