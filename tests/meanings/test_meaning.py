"""The meaning of step programs as arrays over the mesh: right programs end as one device does, wrong ones do not, and devices that run one
by one, in fractions, agree about both with arrays of residues."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from placeproof.core.diagnostics import InputError
from placeproof.programs import Call, Program, read, render
from placeproof.semantics.catalogue import compositions
from placeproof.semantics.judge.search import setups
from placeproof.semantics.lower import lower
from placeproof.semantics.meaning import Difference, Fault, Setup
from placeproof.semantics.meaning.devices.collectives import OnArrays
from placeproof.semantics.meaning.devices.mesh import Mesh
from placeproof.semantics.meaning.layout import Layout
from placeproof.semantics.meaning.numbers import PRIME, Field
from placeproof.semantics.meaning.problem import Problem, full_name
from placeproof.semantics.meaning.recorded import PLAIN, Recorded, Root, plain, root
from placeproof.semantics.meaning.run import run
from placeproof.semantics.meaning.script import inputs, script
from placeproof.semantics.meaning.values import NoMeaningError, Part
from placeproof.semantics.meaning.world import World
from placeproof.semantics.resolve import resolve
from placeproof.strategies import parse_strategy

HEAD = "mesh(dp)\n"
TAIL = "parameters, optimizer = update(parameters, optimizer, G)\n"
MEAN = "G = scale(all_reduce(G, dp), 1 / (dp * microbatches))\n"
LOOP = "for i in microbatches:\n"
PASS = f"{LOOP}    g[i] = backward(parameters, i)\n"
NORM = "reference(clip=global_norm)\n"
CLIP = "G = scale(G, clip_factor(sqrt(n)))\n"
ALONE = "G = scale(all_reduce(backward(parameters), dp), 1 / dp)\n"
OTHER = ALONE.replace("G =", "g =")
REST = "for u in units[1:]:\n    n += square_norm(G[u])\n"

#: Programs by what they are about, right ones and wrong ones.
RIGHT = {
    "a gradient kept for each micro-batch": f"{HEAD}{PASS}{LOOP}    G += g[i]\n{MEAN}{TAIL}",
    "micro-batches added from the last to the first": f"{HEAD}{PASS}for i in reversed(microbatches):\n    G += g[i]\n{MEAN}{TAIL}",
    "a reduction that is delayed by one micro-batch": f"{HEAD}{PASS}    G += all_reduce(g[i - 1], dp)\nG += all_reduce(g[-1], dp)\n"
    f"G = scale(G, 1 / (dp * microbatches))\n{TAIL}",
    "a norm whose first unit is computed apart": f"{HEAD}{NORM}{ALONE}n = square_norm(G[0])\n{REST}{CLIP}{TAIL}",
    "a buffer that two branches write": f"{HEAD}{OTHER}if rank(dp) == 0:\n    G = copy(g)\nelse:\n    G = scale(g, 1)\n{TAIL}",
}
WRONG = {
    "the last micro-batch is lost": f"{HEAD}{PASS}    G += all_reduce(g[i - 1], dp)\nG = scale(G, 1 / (dp * microbatches))\n{TAIL}",
    "the first micro-batch alone": f"{HEAD}{PASS}{LOOP}    G += g[0]\n{MEAN}{TAIL}",
    "a norm without the first unit": f"{HEAD}{NORM}{ALONE}n = 0\n{REST}{CLIP}{TAIL}",
    "a buffer that one branch alone writes": f"{HEAD}{OTHER}if rank(dp) == 0:\n    G = copy(g)\nG += scale(g, 0)\n{TAIL}",
    "a whole buffer where parts were written": f"{HEAD}{PASS}G = scale(all_reduce(g, dp), 1 / (dp * microbatches))\n{TAIL}",
    "no mean": f"{HEAD}G = all_reduce(backward(parameters), dp)\n{TAIL}",
}


def outcomes(program: Program, most: int = 40) -> Iterator[object]:
    for setup in list(setups(program))[:most]:
        yield run(program, replace(setup, exact=False))


TIED = """
mesh(dp, pp)
group(rest, P - P_norm)
group(embedding, P_norm, tied=pp)
G = backward(parameters)
{tied}G = scale(all_reduce(G, dp), 1 / dp)
parameters, optimizer = update(parameters, optimizer, G)
"""


def test_copies_of_a_tied_weight_are_added_up() -> None:
    right, wrong = (resolve(read(TIED.format(tied=tied))) for tied in ("G.embedding = tied_reduce(G.embedding, pp)\n", ""))
    for stages in (1, 2, 3, 4):
        setup = Setup(degrees={"dp": 2, "pp": stages}, exact=False)
        assert run(right, setup) is None
        assert (run(wrong, setup) is None) == (stages == 1)


def test_what_is_not_there_is_not_started() -> None:
    """The handle stays that of the iteration before: the last micro-batch is added twice."""
    text = f"{HEAD}{PASS}{LOOP}    h = start(all_reduce(g[i], dp))\n    h = start(all_reduce(g[i + 1], dp))\n    G += wait(h)\n"
    twice = resolve(read(f"{text}G = scale(G, 1 / (dp * microbatches))\n{TAIL}"))
    assert [run(twice, Setup(degrees={"dp": 2}, microbatches=m, exact=False)) is None for m in (1, 2)] == [True, False]


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_ends_as_one_device(name: str) -> None:
    assert set(outcomes(resolve(read(RIGHT[name])))) == {None}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_program_does_not(name: str) -> None:
    found = list(outcomes(resolve(read(WRONG[name]))))
    assert any(one is not None for one in found)


def runs(program: Program, setup: Setup) -> object:
    """Whether a run differs, or the name of the error that it ends with."""
    try:
        return run(program, setup) is not None
    except (TypeError, AttributeError, ZeroDivisionError, NoMeaningError) as error:
        return type(error).__name__


def test_the_catalogue_ends_as_one_device() -> None:
    some = [(name, program) for name, program in compositions() if isinstance(program, Program)][::15]
    assert len(some) > 20
    for number, (name, program) in enumerate(some):
        every = list(setups(program))[:14]
        for setup in (every[number % len(every)], every[-1]):
            assert run(program, setup) is None, (name, setup)


@pytest.mark.parametrize("name", ["ddp", "zero3", "tp * sp", "zero1 * pp", "fsdp * ep"])
def test_fractions_say_what_residues_say(name: str) -> None:
    program = resolve(lower(parse_strategy(name)))
    setup = replace(next(s for s in setups(program) if all(n > 1 for n in s.degrees.values())), steps=1, exact=True)
    assert run(program, setup) is None
    wrong = resolve(read("\n".join(line for line in render(program).splitlines() if "scale(" not in line)))
    if wrong != program:
        for exact in (True, False):
            assert isinstance(run(wrong, replace(setup, exact=exact)), Difference)


#: What may stand instead of an operation.
INSTEAD = (
    ("all_gather", "all_reduce"),
    ("reduce_scatter", "all_reduce"),
    ("all_reduce", "reduce_scatter"),
    ("scale(", "max("),
    ("+=", "="),
)
_KEPT = ("program", "mesh", "place", "group", "inner", "splits", "reference", "count", "unit", "approx", "without", "for", "if", "else")


def edited(program: Program, draw: random.Random) -> Program | None:
    """A program with one statement left out, changed, or written twice; None where it is none."""
    lines = render(program).splitlines()
    chosen = draw.choice([n for n, line in enumerate(lines) if not line.strip().startswith(_KEPT)])
    line = lines[chosen]
    how = draw.choice(("left out", "twice", *((old, new) for old, new in INSTEAD if old in line)))
    if how == "left out":
        lines[chosen] = line[: len(line) - len(line.lstrip())] + "pass"
    elif how == "twice":
        lines.insert(chosen, line)
    else:
        lines[chosen] = line.replace(*how, 1)
    try:
        return resolve(read("\n".join(lines)))
    except InputError:
        return None


def test_devices_that_run_one_by_one_agree() -> None:
    draw = random.Random(3)
    every = [program for _, program in compositions() if isinstance(program, Program)]
    wrong, same = 0, 0
    for _ in range(50):
        program = edited(draw.choice(every), draw)
        if program is None:
            continue
        setup = replace(draw.choice(list(setups(program))[1:14]), exact=False, steps=1)
        seen = runs(program, setup)
        assert seen == runs(program, replace(setup, exact=True)), (render(program), setup)
        same, wrong = same + 1, wrong + (seen is True)
    assert same > 30
    assert wrong > 8


WAITS = """
mesh(pp)
place(parameters, pp="S")
place(optimizer, pp="S")
if rank(pp) == 0:
    x = data()
else:
    x = recv(pp, source=-1)
x, saved = forward(parameters, x)
{first}{second}gradients = backward_weight(parameters, saved, dx)
dx = backward_input(parameters, saved, dx)
if rank(pp) > 0:
    send(dx, pp, to=-1)
parameters, optimizer = update(parameters, optimizer, gradients)
"""
SENDS = "if rank(pp) < pp - 1:\n    send(x, pp, to=1)\n"
RECEIVES = "if rank(pp) == pp - 1:\n    dx = loss(x)\nelse:\n    dx = recv(pp, source=1)\n"


def test_a_program_that_waits_for_ever_does_not_end() -> None:
    setup = Setup(degrees={"pp": 3}, exact=False)
    assert run(resolve(read(WAITS.format(first=SENDS, second=RECEIVES))), setup) is None
    waits = run(resolve(read(WAITS.format(first=RECEIVES, second=SENDS))), setup)
    assert isinstance(waits, Fault)
    assert waits.why == "every device waits, and no exchange has all of its devices"
    assert {d["pp"] for d in waits.devices} == {0, 1, 2}


# Collectives, each element of each device by hand.

PROGRAM = f"mesh(dp, tp)\nplace(parameters, dp='S*')\n{ALONE.replace('backward(parameters)', 'backward(all_gather(parameters, dp))')}{TAIL}"


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    program = resolve(read(PROGRAM))
    setup = Setup(degrees={"dp": 3, "tp": 2}, exact=False, layers_per_stage=2)
    return Mesh(World(program, Problem(layout=Layout(program, setup), seed=1), Field(exact=False), 1), {})


@pytest.mark.parametrize("axes", [("dp",), ("tp",), ("dp", "tp")])
@pytest.mark.parametrize("op", ["sum", "mean", "max"])
@pytest.mark.parametrize("name", ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "broadcast 1", "reduce", "reduce 1"])
def test_a_collective_by_hand(name: str, op: str, axes: tuple[str, ...], mesh: Mesh) -> None:
    world = mesh.world
    columns = world.columns(tuple(range(len(world.elements))))
    drawn = np.random.default_rng(5)
    shape = (*mesh.shape, len(columns))
    have = drawn.random(shape) < 0.8
    part = Part(columns, drawn.integers(0, PRIME, (*shape, 1)), np.ones(shape, dtype=bool), have)
    kind, _, root = name.partition(" ")
    rooted = (("root", root or "owner"),) if kind in ("broadcast", "reduce") else ()
    options = ((("op", op),) if "reduce" in kind else ()) + rooted
    found = OnArrays(Call(op=kind, axes=axes, options=options), mesh).result(part)
    dims = [world.dim[a] for a in axes]
    owner = {a: world.layout.owners(a, 0) for a in axes}
    for at in np.ndindex(*mesh.shape):
        group = [d for d in np.ndindex(*mesh.shape) if all(d[n] == at[n] for n in range(2) if n not in dims)]
        number = {d: group.index(d) for d in group}
        for e in range(len(columns)):
            values = [int(part.data[(*d, e, 0)]) for d in group]
            of = next((d for d in group if all(d[world.dim[a]] == owner[a][e] for a in axes)), None)
            reduced = {"sum": sum(values), "max": max(values), "mean": sum(values) * pow(len(group), -1, PRIME)}[op] % PRIME
            some = any(part.have[(*d, e)] for d in group)
            by_root = group[int(root)] if root else of
            if kind in ("all_gather", "broadcast"):
                source = of if kind == "all_gather" else by_root
                wanted, there = int(part.data[(*source, e, 0)]), bool(part.have[(*source, e)])
            else:
                here = {"all_reduce": True, "reduce_scatter": at == of, "reduce": at == by_root}[kind]
                wanted, there = reduced, some and here
            assert bool(found.have[(*at, e)]) == there, (name, at, e, number)
            if there:
                assert int(found.data[(*at, e, 0)]) == wanted, (name, at, e)


def test_residues_are_the_fractions() -> None:
    draw = random.Random(1)
    exact, residues = Field(exact=True), Field(exact=False)
    for _ in range(50):
        a, b = (Fraction(draw.randint(-9, 9), draw.randint(1, 9)) for _ in range(2))
        x, y = (exact.array([n], (1,)) for n in (a, b))
        u, v = (residues.array([n], (1,)) for n in (a, b))
        for name in ("add", "sub", "mul", *(["div"] if b else [])):
            assert residues.of(getattr(exact, name)(x, y)[0]) == getattr(residues, name)(u, v)[0], (name, a, b)
        for power in (0, 1, 2, 5, *([-2] if a else [])):
            assert residues.of(exact.power(x, power)[0]) == residues.power(u, power)[0]
    for field in (exact, residues):
        with pytest.raises(ZeroDivisionError):
            field.div(field.array([1], (1,)), field.array([0], (1,)))


@pytest.mark.parametrize("op", ["+", "-", "*", "/"])
def test_recorded_numbers_compute_as_fractions_do(op: str) -> None:
    """Also with 0, 1 and 2, and with what is not recorded on either side."""
    numbers = [Fraction(n) for n in (-1, 0, 1, 2)] + [Fraction(3, 2)]
    for x, y in ((x, y) for x in numbers for y in numbers if op != "/" or y):
        for left, right in ((Recorded(x), Recorded(y)), (Recorded(x), y), (x, Recorded(y))):
            assert plain(PLAIN[op](left, right)) == PLAIN[op](x, y), (x, op, y)


def test_roots_are_multiplied_and_divided_as_what_they_square_to() -> None:
    two, eight = root(Fraction(2)), root(Fraction(8))
    assert isinstance(two, Root)
    assert two * two == 2
    assert eight / two == 2
    assert (eight / Fraction(2)).square == 2
    assert (Fraction(2) / eight).square == Fraction(1, 2)


def test_a_counterexample_is_written_of_what_differs_and_of_nothing_else() -> None:
    setup = Setup(degrees={"dp": 2})
    right, wrong = (resolve(read(HEAD + text + TAIL)) for text in (ALONE, ALONE.replace("1 / dp", "1")))
    assert script(right, setup, "nothing differs") is None
    assert inputs(right, setup) == {}
    names = [name for name in inputs(wrong, setup) if name.startswith("own gradient")]
    assert names == [f"own gradient of all[0, 0] of block 0, dp = {rank}, micro-batch 0, step 1" for rank in range(2)]


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ((), "gradient"),
        ((("dp", 1),), "gradient, on dp = 1"),
        (((("dp", 1), ("tp", 0)),), "gradient, on dp = 1, on tp = 0"),
        ((("first",),), "gradient, share first"),
        (((), 7), "gradient"),
    ],
)
def test_the_name_of_a_number_says_what_else_it_is_drawn_for(key: tuple[object, ...], said: str) -> None:
    assert full_name("gradient", key) == said


def test_elements_are_dealt_out_among_the_devices_of_all_axes() -> None:
    placed = 'mesh(dp, cp)\nplace(parameters, dp="S*", cp="S*")\nplace(optimizer, dp="S", cp="S")\n'
    step = "G = reduce_scatter(backward(all_gather(parameters, dp, cp)), dp, cp)\nG = scale(G, 1 / (dp * cp))\n"
    layout = Layout(resolve(read(placed + step + TAIL)), Setup(degrees={"dp": 3, "cp": 3}, layers_per_stage=9))
    owners = set(zip(layout.owners("dp").tolist(), layout.owners("cp").tolist(), strict=True))
    assert owners == {(dp, cp) for dp in range(3) for cp in range(3)}


def test_a_device_has_columns_of_a_matrix_that_stand_beside_one_another() -> None:
    layout = Layout(resolve(lower(parse_strategy("tp"))), Setup(degrees={"tp": 2}))
    every = zip(layout.elements, layout.owners("tp").tolist(), strict=True)
    owners = {e[3]: owner for e, owner in every if e[0] == 0 and e[1] == "W1"}
    assert [owners[column] for column in sorted(owners)] == sorted(owners.values())
    assert set(owners.values()) == {0, 1}
