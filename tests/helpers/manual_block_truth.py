"""Whether a program over tensors is right by `manual_block_interpreter.py`.

It is if small meshes return what one device does, and derivatives are such.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
from manual_block_interpreter import STEP, Run
from manual_tensors import Everywhere, Mesh, T, UndecidedError, WrongError, draw_mesh, spread

from placeproof.core.diagnostics import InputError
from placeproof.programs import Program, read
from placeproof.programs.ir import Call, Do, statements
from placeproof.semantics.judge.verdict import Judged, judge

RIGHT, WRONG, UNDECIDED = "right", "wrong", "undecided"
#: Degrees of the axes, in the order of the header, that are tried.
ONE_AXIS, TWO_AXES = ((2,), (3,), (1,), (4,)), ((2, 2), (1, 2), (3, 1), (2, 3))


def truth(program: Program, seeds: Iterable[int] = (0, 1)) -> tuple[str, str]:
    """Right, wrong or undecided, and why."""
    tried = _degrees(program)
    for seed in seeds:
        for n, degrees in enumerate(tried if len(tried) > 2 else tried * 3):
            try:
                check(program, degrees, seed * 100 + n)
            except WrongError as error:
                return WRONG, f"{degrees}: {error}"
            except UndecidedError as error:
                return UNDECIDED, f"{degrees}: {error}"
    return RIGHT, ""


def at_the_witness(judged: Judged) -> bool:
    """Whether the mesh of a counterexample gives something else here, too, with any of some numbers."""
    assert judged.found is not None
    setup = judged.found.setup
    for seed in range(20):
        try:
            check(judged.program, dict(setup.degrees), seed, dict(getattr(setup, "sizes", {})))
        except WrongError:
            return True
        except UndecidedError:
            continue
    return False


def compared(text: str) -> tuple[str, str, str]:
    """Of a program: its truth, its verdict, and what is wrong with the verdict."""
    try:
        program = read(text)
        said, why = truth(program)
        judged = judge(program)
    except InputError:
        return "", "refused", ""
    except Exception as error:
        return "", "crashed", f"{type(error).__name__}: {error}"
    if judged.word == "proved" and said == WRONG:
        return said, judged.word, f"false accept: {why}"
    if judged.word == "refuted" and said == RIGHT and not at_the_witness(judged):
        return said, judged.word, "false refusal"
    return said, judged.word, ""


def _degrees(program: Program) -> list[dict[str, int]]:
    tried = {1: ONE_AXIS, 2: TWO_AXES}.get(len(program.axes)) or tuple(itertools.product((1, 2), repeat=len(program.axes)))
    found = [{a.name: a.degree or n for a, n in zip(program.axes, one, strict=True)} for one in tried]
    return [d for n, d in enumerate(found) if d not in found[:n]]


def check(program: Program, degrees: dict[str, int], seed: int, sizes: dict[str, int] | None = None) -> None:
    """Compare a mesh with one device, and gradients there with derivatives. Raises WrongError, or UndecidedError."""
    with np.errstate(all="ignore"):
        _check(program, degrees, seed, sizes)


def _check(program: Program, degrees: dict[str, int], seed: int, sizes: dict[str, int] | None) -> None:
    mesh = draw_mesh(program, degrees, np.random.default_rng([seed, *degrees.values()]), sizes)
    one = Mesh(dict.fromkeys(degrees, 1), mesh.sizes, mesh.owners)
    alone, run = Run(program, one, seed), Run(program, mesh, seed)
    alone.run()
    problem: Exception | None = None
    try:
        run.run()
    except (WrongError, UndecidedError) as error:
        problem = error
    for number, returned in run.returned.items():
        for device, x in returned.items():
            assert x is not None
            same(mesh, device, x, only(alone.returned[number]))
    if problem is not None:
        raise problem
    for number, call in _returns(program):
        if call.option("gradient_of") is not None:
            derivative(alone, number, call)


def _returns(program: Program) -> list[tuple[int, Call]]:
    return [(n, s.call) for n, s in enumerate(statements(program.body)) if isinstance(s, Do) and s.call.op == "returns"]


def only(value: Everywhere) -> T:
    (x,) = value.values()
    if x is None:
        raise UndecidedError("one device has nothing")
    return x


def equal(a: np.ndarray, b: np.ndarray) -> bool:
    """Where one device's number is one."""
    number = np.isfinite(b)
    if not number.all():
        raise UndecidedError("one device divides by zero, or computes what is too large")
    scale = max(1e-3, float(np.abs(b).max(initial=0)))
    apart = np.abs(a - b)
    if (apart <= 1e-6 * np.abs(b) + 1e-9 * scale).all():
        return True
    if (apart < 1e-9).all():
        raise UndecidedError("too near to tell apart")
    return False


def same(mesh: Mesh, device: tuple[int, ...], x: T, alone: T) -> None:
    """What a device returns against its elements of what one device returns."""
    if set(x.dims) != set(alone.dims):
        raise UndecidedError("other dimensions than on one device")
    data = spread(alone, x.dims)
    for n, (dim, layout) in enumerate(x.dims.items()):
        data = np.take(data, mesh.held(device, dim, layout), n)
    if not equal(x.data, data):
        raise WrongError(f"device {device} returns something else")


def derivative(run: Run, number: int, call: Call) -> None:
    """What is returned, against the change of ``gradient_of`` with ``by`` along a direction, times ``at``."""
    y, by, at = (call.option(name) for name in ("gradient_of", "by", "at"))
    env, written = run.at_return[number]
    if y is None or by is None or at is None or any(name not in env for name in (y, by, at)):
        raise UndecidedError("no derivative of these")
    g, w, dy = only(run.returned[number]), only(env[by]), only(env[at])
    if w.picks or dy.picks or not set(dy.dims) <= set(only(env[y]).dims):
        raise UndecidedError("a derivative by positions, or at what has other dimensions")
    if set(g.dims) != set(w.dims):
        raise UndecidedError("a gradient with other dimensions than what it is by")
    for seed in (0, 1):
        direction = np.random.default_rng([run.seed, seed]).normal(size=w.data.shape)
        again = Run(run.program, run.mesh, run.seed, (written[by], by, direction))
        again.run()
        moved = only(again.at_return[number][0][y])
        expected = (spread(dy, moved.dims) * moved.data.imag / STEP).sum()
        if not equal(np.asarray((spread(g, w.dims) * direction).sum()), np.asarray(expected)):
            raise WrongError(f"what is returned is not the derivative of `{y}` by `{by}`")
