"""Each collective with each of its options, on operands of every kind and layout: what gloo does is what its definition says.

The calls are generated from `placeproof/programs/ops.py`. The definitions are `placeproof/semantics/meaning/devices/collectives.py`: one
array over all devices of a group. On gloo there is a process for each device, which has its own numbers alone.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import sample

from placeproof.programs import Call, read
from placeproof.programs.ops import COLLECTIVES, OPS
from placeproof.semantics.meaning import Setup
from placeproof.semantics.meaning.devices.place import Meeting, Place
from placeproof.semantics.meaning.layout import Layout
from placeproof.semantics.meaning.numbers import Field
from placeproof.semantics.meaning.problem import Problem
from placeproof.semantics.meaning.recorded import IrrationalError, Nothing
from placeproof.semantics.meaning.run import met
from placeproof.semantics.meaning.values import MisfitError, NoMeaningError, Norms, Part, Saved, Stream
from placeproof.semantics.meaning.world import World
from placeproof.semantics.resolve import resolve

pytest.importorskip("torch", reason="torch is not installed: pip install torch")

FLAT = "gradients = all_reduce(backward(parameters), dp, op=mean)\nparameters, optimizer = update(parameters, optimizer, gradients)\n"
PASSES = "x, saved = forward(parameters, data())\ngradients = backward(parameters, saved, loss(x))\n"
PASSES += "gradients = all_reduce(gradients, dp, op=mean)\nparameters, optimizer = update(parameters, optimizer, gradients)\n"
TIED = "group(rest, P - P_norm)\ngroup(embedding, P_norm, tied=pp)\n"
EXPERTS = 'splits(ep="batch")\ngroup(norm, P_norm)\ngroup(matrix, P - P_norm - P_expert)\ngroup(expert, P_expert, experts=ep)\n'
EXPERTS += 'place(parameters.expert, ep="S")\nplace(optimizer.expert, ep="S")\nplace(gradients.expert, ep="S")\n'


@dataclass(frozen=True)
class Case:
    """A mesh, and the sets of axes along which its devices exchange."""

    header: str
    body: str
    degrees: dict[str, int]
    axes: tuple[tuple[str, ...], ...]
    kinds: tuple[str, ...]


MESHES = {
    "two axes": Case("mesh(dp, cp)\n", FLAT, {"dp": 2, "cp": 2}, (("dp",), ("cp", "dp")), ("part", "norms", "number")),
    "shares of different sizes": Case("mesh(dp)\n", FLAT, {"dp": 3}, (("dp",),), ("part", "pairs", "norms", "number")),
    "sub-groups": Case("mesh(dp)\ninner(dp=2)\n", FLAT, {"dp": 4}, (("dp_inner",), ("dp_outer",), ("dp",)), ("part", "number")),
    "stages": Case(f"mesh(dp, pp)\n{TIED}", FLAT, {"dp": 1, "pp": 3}, (("pp",),), ("part", "norms")),
    "slices and tokens": Case("mesh(dp, tp)\n", PASSES, {"dp": 2, "tp": 2}, (("tp",), ("dp", "tp")), ("part", "stream", "kept")),
    "experts": Case(f"mesh(dp, ep)\n{EXPERTS}", PASSES, {"dp": 1, "ep": 3}, (("ep",),), ("part", "stream")),
}
#: Values of options that the table leaves open. Those of programs over tensors say nothing here.
OPEN = {"root": ("1", "owner"), "dim": (), "by": ("1",)}
#: Messages have no group: they are between two devices, and `tests/reality/test_replay.py` sends them.
MESSAGES = ("send", "recv")
#: What a device has of a whole, and whether all have the same: copies, partial sums, shares, shares of partial sums, some of it, nothing.
LAYOUTS = {"copies": (True, "all"), "partial": (False, "all"), "shares": (True, "own"), "gaps": (False, "some"), "nothing": (False, "none")}
#: Kinds of which only some of these are told apart.
WHOLE = {"number": ("copies", "partial"), "kept": ("copies",), "norms": ("partial", "gaps"), "pairs": ("partial", "gaps")}
#: What has a meaning on states and activations; all others of the table are refused, in the same words.
MEANT = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "tied_reduce"}


def calls(axes: tuple[str, ...]) -> Iterator[Call]:
    """Every collective of the table with every choice of its options."""
    for op in (OPS[name] for name in COLLECTIVES if name not in MESSAGES):
        if op.name == "tied_reduce" and axes != ("pp",):
            continue
        choices = [[(name, value) for value in (values or OPEN[name])] or [None] for name, values in op.options]
        for picked in itertools.chain([()] if choices else [], itertools.product(*choices)):
            said = tuple(c for c in picked if c is not None)
            rooted = not said and "root" in dict(op.options)  # a resolved program always says it
            yield Call(op=op.name, axes=axes, options=(("root", "0"),) if rooted else said)


def world_of(case: Case) -> World:
    program = resolve(read(case.header + case.body))
    layout = Layout(program, Setup(degrees=case.degrees))
    return World(program, Problem(layout=layout, seed=1), Field(exact=True), 1)


def drawn(numbers: random.Random, shape: tuple[int, ...]) -> Any:
    """Fractions: small and long ones, of either sign, and zeros."""

    def one() -> Fraction:
        long = numbers.random() < 0.2
        return Fraction(
            numbers.randrange(-(10**40), 10**40) if long else numbers.randrange(-9, 9), numbers.choice([1, 1, 2, 3, 8, 10**20 + 39])
        )

    found = np.empty(int(np.prod(shape)), dtype=object)
    found[:] = [one() for _ in found]
    return found.reshape(shape)


def brought(place: Place, kind: str, layout: str, call: Call) -> Any:
    """What one device brings. Copies are the same on all devices."""
    same, which = LAYOUTS[layout]
    key = f"{kind} {layout} {call}"
    mine = random.Random(f"{key} {place.here}")
    columns, extent = place.mesh.extent("parameters")
    numbers = random.Random(key) if same else mine
    factors = place.layout.factors(call.axes)
    if kind == "number":
        return drawn(numbers, place.mesh.shape)
    if kind == "norms":
        tensors = tuple(sorted({place.layout.tensor_of(e) for e in columns.elements}))
        return Norms(tensors, drawn(numbers, (*place.mesh.shape, len(tensors))), chosen(mine, which, (*place.mesh.shape, len(tensors))))
    if kind in ("part", "pairs"):
        own = place.mesh.owns(columns, factors) if which == "own" else chosen(mine, which, extent.shape)
        whole = drawn(numbers, (len(place.world.elements), 1 + (kind == "pairs")))[columns.index]
        return Part(columns, np.broadcast_to(whole, (*extent.shape, whole.shape[-1])), extent, extent).with_(
            np.broadcast_to(whole, (*extent.shape, whole.shape[-1])), extent & own
        )
    tokens = place.mesh.tokens()
    have = tokens if which == "own" else chosen(mine, which, tokens.shape)
    stream = Stream(drawn(numbers, (*tokens.shape, 2)), have).kept(place.world, have)
    return Saved({0: stream}, {0: stream}, None) if kind == "kept" else stream


def chosen(numbers: random.Random, which: str, shape: tuple[int, ...]) -> Any:
    often = {"all": 1.0, "own": 1.0, "some": 0.6, "none": 0.0}[which]
    return np.array([numbers.random() < often for _ in range(int(np.prod(shape)))], dtype=bool).reshape(shape)


def told_apart(exchange: tuple[tuple[str, ...], str, Call, str]) -> set[tuple[Any, ...]]:
    """An operation with each kind and layout of operand; each choice of its options with each of them, and over each set of axes."""
    axes, kind, call, layout = exchange
    chosen = (call.op, call.options)
    return {(call.op, kind, layout), (chosen, kind), (chosen, layout), (chosen, axes), (axes, kind, layout)}


def requests_of(case: Case, world: World) -> Iterator[tuple[str, list[Place], list[Meeting]]]:
    """Exchanges, as all devices ask for them: every one at night, else a sample."""
    places = [Place(world, here, 1) for here in world.places()]
    over = itertools.product(case.axes, case.kinds)
    every = [(axes, kind, call, layout) for axes, kind in over for call in calls(axes) for layout in WHOLE.get(kind, LAYOUTS)]
    for axes, kind, call, layout in sample(every, told_apart):
        asked = [p._meeting(call, brought(p, kind, layout, call)) for p in places]
        yield f"{call.op} {dict(call.options)} over {axes} of {kind}, {layout}", places, asked


def plain(value: Any) -> Any:
    """A value as data that can be compared; nothing is nothing."""
    if isinstance(value, Part):
        return "part", value.columns.numbers, value.group, value.extent.tolist(), value.have.tolist(), plain(value.data)
    if isinstance(value, Stream):
        return "stream", value.have.tolist(), plain(value.data)
    if isinstance(value, Norms):  # of tensors that no device brings, gloo has zeros that nobody has
        rows = [(t, value.have[..., n].tolist(), plain(value.data[..., n])) for n, t in enumerate(value.tensors)]
        return "norms", [row for row in rows if np.any(row[1])]
    return np.shape(value), [None if isinstance(n, Nothing) else n for n in np.asarray(value, dtype=object).reshape(-1)]


def said(compute: Callable[[], Any]) -> Any:
    try:
        return plain(compute())
    except (NoMeaningError, MisfitError, IrrationalError) as error:
        return type(error).__name__, str(error)


def defined(places: list[Place], asked: list[Meeting], members: list[int], rank: int) -> Any:
    return met(places[rank], [places[n].here for n in members], [asked[n] for n in members])[members.index(rank)]


def differences(name: str, rank: int) -> tuple[Counter[str], list[str]]:
    """How many exchanges of each kind had a result, and which were not as they are defined: on one process."""
    from placeproof.measure.replay.exchange import Exchange
    from placeproof.measure.replay.mesh import Mesh

    world = world_of(MESHES[name])
    sets = [frozenset(world.layout.factors(axes)) for axes in MESHES[name].axes]
    mesh = Mesh(world.sizes, rank, sets, ["pp"] if "pp" in world.sizes else [], 60)
    results: Counter[str] = Counter()
    wrong = []
    for what, places, asked in requests_of(MESHES[name], world):
        members = [n for n, r in enumerate(asked) if r.group == asked[rank].group]
        if asked[rank].size == 1:
            continue
        expected = said(partial(defined, places, asked, members, rank))
        got = said(Exchange(mesh, places[rank], asked[rank]).exchanged)
        results[asked[rank].call.op] += not str(expected[0]).endswith("Error")
        if got != expected:
            wrong.append(f"{what}: expected {expected}, got {got}")
    return results, wrong


@pytest.mark.parametrize("name", MESHES)
def test_gloo_does_what_is_defined(name: str) -> None:
    from placeproof.measure.processes import message, run

    world = int(np.prod(list(MESHES[name].degrees.values())))

    def job(rank: int, _: int, folder: Path) -> tuple[Counter[str], list[str]]:
        return differences(name, rank)

    outcomes = run(world, job, timeout=300, collective_timeout=60)
    assert all(o.kind == "ok" for o in outcomes), (message(outcomes), [o.error for o in outcomes])
    for outcome in outcomes:
        assert outcome.value is not None
        results, wrong = outcome.value
        assert not wrong, (len(wrong), wrong[:3])
        if name != "stages" or outcome.rank != 1:  # the one in the middle is in no group of tied weights
            meant = MEANT - ({"tied_reduce"} if name != "stages" else set())
            assert {op for op, n in results.items() if n} == meant, "MEANT, or a meaning on gloo or in meaning/devices"


def test_messages_of_several_kinds_arrive_as_they_were() -> None:
    from placeproof.measure.replay.wire import packed, unpacked

    case = MESHES["slices and tokens"]
    world = world_of(case)
    place = Place(world, world.places()[0], 1)
    call = Call(op="all_gather", axes=("tp",))
    for kind, layout in itertools.product(("part", "pairs", "stream", "norms", "number", "kept"), LAYOUTS):
        value = brought(place, kind, layout, call)
        again = unpacked(world, packed(value))
        pairs = (
            zip((value.inputs[0], value.outputs[0]), (again.inputs[0], again.outputs[0]), strict=True)
            if kind == "kept"
            else [(value, again)]
        )
        assert all(plain(one) == plain(other) for one, other in pairs)
        assert kind not in ("part", "pairs") or again.columns is value.columns
