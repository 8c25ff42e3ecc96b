"""Every lowered program trains what one device trains: run on small meshes with a small real network, in exact arithmetic.

The simulator knows nothing of how programs are lowered or costed. Two-sided: each program as lowered is accepted, and each
program with one of its collectives, or its scale, taken away is not.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from compositions import compositions, mutants, mutated
from hypothesis import given
from hypothesis import strategies as st
from samples import pairs, sample

from placeproof.programs import Do, For, If, Program, read, statements
from placeproof.semantics.lower import lower
from placeproof.semantics.meaning import Difference, Fault, Setup
from placeproof.semantics.meaning.run import run
from placeproof.semantics.resolve import resolve
from placeproof.strategies import parse_strategy


def setup_for(program: Program, *, degree: int = 2, microbatches: int = 2, units: int = 1, layers: int = 1, exact: bool = False) -> Setup:
    degrees = {a.name: degree * degree if a.inner is not None else degree for a in program.axes}
    degrees |= {a.inner_name: degree for a in program.axes if a.inner is not None}
    repeated = any(isinstance(s, For) and s.domain == "microbatches" for s in statements(program.body))
    return Setup(
        degrees=degrees,
        microbatches=microbatches if repeated else 1,
        layers_per_stage=layers,
        units_per_stage=units,
        exact=exact,
    )


#: At night each composition, else each two strategies and each option in one, and every fifth.
TRIED = sorted({*sample(compositions(), pairs), *compositions()[::5]})


@pytest.mark.parametrize("subject", TRIED)
def test_lowered_programs_train_what_one_device_trains(subject: str) -> None:
    program = lower(parse_strategy(subject))
    assert run(program, setup_for(program)) is None


@given(
    subject=st.sampled_from(compositions()),
    degree=st.integers(1, 3),
    microbatches=st.integers(1, 3),
    layers=st.integers(1, 2),
    data=st.data(),
)
def test_at_any_small_degrees(subject: str, degree: int, microbatches: int, layers: int, data: st.DataObject) -> None:
    program = lower(parse_strategy(subject))
    units = data.draw(st.sampled_from([1, layers]))
    if len(program.axes) > 2 and degree > 2:
        degree = 2
    if any(a.inner == 2 for a in program.axes):
        degree = 2
    setup = setup_for(program, degree=degree, microbatches=microbatches, units=units, layers=layers)
    assert run(program, setup) is None


@pytest.mark.parametrize(("subject", "mutation"), mutated())
def test_taking_any_collective_away_shows(subject: str, mutation: str) -> None:
    program = lower(parse_strategy(subject))
    mutant = next(p for name, p in mutants(program) if name == mutation)
    assert run(mutant, setup_for(program)) is not None


CORRECT_BUT_UNUSUAL = {
    "mean then sum": "gradients = all_reduce(all_reduce(gradients, dp, op=mean), tp)",
    "sum then mean": "gradients = scale(all_reduce(gradients, dp, tp), 1 / dp)",
    "either order": "gradients = scale(all_reduce(all_reduce(gradients, tp), dp), 1 / dp)",
    "a redundant broadcast": "gradients = scale(all_reduce(broadcast(all_reduce(gradients, tp), tp), dp), 1 / dp)",
}
WRONG = {
    "one axis missing": "gradients = scale(all_reduce(gradients, dp), 1 / dp)",
    "reduced twice": "gradients = scale(all_reduce(all_reduce(all_reduce(gradients, dp), tp), tp), 1 / dp)",
    "not divided": "gradients = all_reduce(gradients, dp, tp)",
    "divided twice": "gradients = scale(all_reduce(gradients, dp, tp, op=mean), 1 / dp)",
    "max for sum": "gradients = scale(all_reduce(all_reduce(gradients, dp, op=max), tp), 1 / dp)",
}


def two_batch_axes(reduction: str) -> Program:
    """Data parallelism over two axes, of which the second one's mean is taken by the loss."""
    text = f"""\
mesh(dp, tp)
splits(tp="batch")
place(parameters, dp="R")
place(optimizer, dp="R")
place(gradients, dp="R")
gradients = scale(backward(parameters), 1 / tp)
{reduction}
parameters, optimizer = update(parameters, optimizer, gradients)
"""
    return resolve(read(text))


@pytest.mark.parametrize("name", CORRECT_BUT_UNUSUAL)
def test_correct_but_unusual(name: str) -> None:
    program = two_batch_axes(CORRECT_BUT_UNUSUAL[name])
    assert run(program, setup_for(program)) is None


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    program = two_batch_axes(WRONG[name])
    found = run(program, setup_for(program, exact=True))
    assert isinstance(found, Difference)
    assert found.expected != found.actual


def test_devices_that_meet_in_different_collectives_hang() -> None:
    text = """\
mesh(dp)
place(parameters, dp="R")
place(optimizer, dp="R")
place(gradients, dp="R")
gradients = backward(parameters)
if rank(dp) == 0:
    gradients = scale(gradients, 1 / dp)
gradients = all_reduce(gradients, dp)
parameters, optimizer = update(parameters, optimizer, gradients)
"""
    assert isinstance(run(read(text), Setup(degrees={"dp": 2}, exact=False)), Difference)
    crossed = lower(parse_strategy("pp"))
    (loop,) = (s for s in crossed.body if isinstance(s, For))
    silent = tuple(s for s in loop.body if not (isinstance(s, If) and any(isinstance(x, Do) for x in s.then)))
    broken = replace(crossed, body=tuple(replace(s, body=silent) if s is loop else s for s in crossed.body))
    assert isinstance(run(broken, setup_for(broken)), Fault)


def test_residues_and_fractions_agree() -> None:
    for subject in ("zero1", "tp", "hsdp"):
        program = lower(parse_strategy(subject))
        assert run(program, setup_for(program, exact=True)) is None
        for _, mutant in mutants(program):
            exact, residues = (run(mutant, setup_for(program, exact=e)) for e in (True, False))
            assert isinstance(exact, Difference)
            assert isinstance(residues, Difference)
            assert (exact.step, exact.device, exact.state, exact.element) == (
                residues.step,
                residues.device,
                residues.state,
                residues.element,
            )
