"""Runs of programs over tensors: residues are those of the fractions, and what is refuted can be computed again by anybody."""

from __future__ import annotations

import itertools
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from block_oracle import block, collectives_taken_away
from replaying import anything_of_tensors

from placeproof.blocks import BLOCKS
from placeproof.cli.main import run as command
from placeproof.programs import Program, Resolved, parse, read
from placeproof.report.proof.data import judgement
from placeproof.semantics.judge.verdict import judge_tensors
from placeproof.semantics.meaning import Fault
from placeproof.semantics.resolve import resolve
from placeproof.semantics.tensors import Difference, RefutingBlockRun, Setup, script, search, simulate
from placeproof.semantics.tensors.arrays import Arrays
from placeproof.semantics.tensors.machine import Machine
from placeproof.semantics.tensors.numbers import PAIR, Fractions, Residues
from placeproof.semantics.tensors.setup import NotComputedError
from placeproof.semantics.tensors.simulate import machine, ran, setups

HEAD = "mesh(tp)\ntensor(x, tokens, hidden)\ntensor(w, hidden, ffn, tp=ffn)\ntensor(v, ffn, hidden, tp=ffn)\ntensor(dy, tokens, hidden)\n"


def program(text: str) -> Resolved:
    return resolve(read(f"{HEAD}{text}\n", source="it.step"))


def in_residues(found: Program, setup: Setup) -> list[Any]:
    """The run of a setup's fractions, in residues."""
    exact, f = machine(found, setup), Residues(fine=setup.fine)
    whole = {t.name: machine(found, setup, alone=True).read(t.name).data for t in found.tensors}

    def begin(tensor: Any) -> Any:
        data = whole[tensor.name]
        return f.array(list(data.reshape(-1)), data.shape[1 + len(setup.degrees) :])

    other = Machine(found, Arrays(f, setup.degrees, setup.seed), setup.sizes, begin, seed=setup.seed)
    return [(a.value, b.value) for a, b in zip(exact.run(), other.run(), strict=True)]


# Two primes.


def test_the_primes_are_what_the_exponential_needs() -> None:
    p, q = PAIR
    assert p == 2 * q + 1
    assert all(n % d for n in PAIR for d in range(2, 47_000))
    assert pow(2, q, p) == 1


@pytest.mark.parametrize("name", BLOCKS)
def test_residues_are_those_of_the_fractions(name: str) -> None:
    """Exponentials among them, whatever the mesh; so a difference in residues is one of fractions."""
    found, done, f = block(name), 0, Residues()
    for setup, fine, seed in itertools.product(setups(found, 3), (False, True), (1, 2)):
        chosen = Setup(degrees=setup.degrees, sizes=setup.sizes, seed=seed, fine=fine)
        try:
            both = in_residues(found, chosen)
        except (NotComputedError, ZeroDivisionError):
            continue
        done += 1
        orders = name in ("cross_entropy", "ring_attention")  # whose numbers are greater than residues know
        for exact, residues in both if not orders else ():
            for at in itertools.product(*map(range, setup.degrees.values())):
                pairs = list(zip(exact.by_place(at), residues.by_place(at), strict=True))
                assert pairs
                assert all(a == b and f.of(n)[0] == m[0] for (a, n), (b, m) in pairs)
    assert done >= 4


@pytest.mark.parametrize("x", [0, 1, -1, 7, -30, 1000, Fraction(1, 2), Fraction(-7, 60)])
def test_an_exponential_turns_sums_into_products(x: Fraction) -> None:
    f = Residues(fine=True)
    one, other = f.array([x], (1,)), f.array([Fraction(5, 3)], (1,))
    assert f.mul(f.exp(one), f.exp(other))[0, 0] == f.exp(f.add(one, other))[0, 0]
    if (x * 60) % 1 == 0:
        assert f.exp(one)[0, 0] == f.array([Fraction(2) ** int(x * 60)], (1,))[0, 0]


def test_exponentials_of_exponentials_are_computed_in_fractions() -> None:
    text = "e = elementwise(exp, elementwise(exp, x * x))\nreturns(e{})"
    setup = Setup(degrees={"tp": 2}, sizes={"tokens": 1, "hidden": 1, "ffn": 2}, seed=2, exact=False)
    with pytest.raises(NotComputedError):
        simulate(program(text.format("")), setup)
    wrong = search(program(text.format(" * tp")))
    assert isinstance(wrong, RefutingBlockRun)
    assert wrong.setup.exact


def test_what_differs_in_residues_alone_is_never_called_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong arithmetic of residues would deny a proof; it is not the reason of a refutation."""
    random = Random(1)
    monkeypatch.setattr(Residues, "exp", lambda self, x: self.garbage(random, x.shape[:-1]))
    found = program("returns(elementwise(exp, x))")
    setup = next(s for s in setups(found) if s.degrees == {"tp": 2})
    denied = ran(found, setup, slopes=True)
    assert isinstance(denied, RefutingBlockRun)
    assert not denied.setup.exact
    assert not isinstance(search(found, most=1), RefutingBlockRun)


# What devices do not hold.


def test_what_only_the_root_has_is_nothing_elsewhere() -> None:
    wrong = judge_tensors(program("p = reduce(contract(contract(x, w, over=hidden), v, over=ffn), tp)\nreturns(p)"))
    assert isinstance(wrong.found, RefutingBlockRun)
    assert isinstance(wrong.found.what, Difference)
    assert (wrong.word, wrong.found.what.actual, wrong.found.what.device) == ("refuted", None, {"tp": 1})
    data = judgement("it", wrong)["counterexample"]
    assert (data["actual"], data["line"], data["inputs"]) == (None, 7, {})
    assert data["unheld"].endswith("reads what is not held") or data["unheld"]
    assert script(wrong.program, wrong.found, "it") is None
    assert set(data["run"]["ends"][1]["returns"][0].values()) == {None}
    used = search(program("p = reduce(contract(contract(x, w, over=hidden), v, over=ffn), tp)\ny = p + x\nreturns(y)"))
    assert isinstance(used, RefutingBlockRun)
    assert isinstance(used.what, Difference)
    assert used.what.unheld == "line 7 (`y = p + x`) reads what is not held"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("if rank(tp) == 0:\n    y = copy(x)\nreturns(y)", "nothing is at 'y', which a device never wrote"),
        (
            "h = contract(x, w, over=hidden)\nreturns(h + all_gather(h, tp))",
            "shapes do not fit: a part of `ffn` meets all of it; `part` cuts, and `all_gather` makes whole",
        ),
        ("returns(all_gather(x, tp))", "nothing to gather over tp"),
        ("returns(broadcast(x, tp, root=1) + broadcast(x, tp, root=2))", "no device is number 2"),
    ],
)
def test_what_devices_cannot_compute_is_a_fault_at_its_line(text: str, why: str) -> None:
    written = parse(f"{HEAD}{text}\n", source="it.step")  # some of it is refused where programs are read
    what = simulate(written, Setup(degrees={"tp": 2}, sizes={"tokens": 2, "hidden": 2, "ffn": 3}))
    assert isinstance(what, Fault)
    assert (what.why, what.line) == (why, 6 + text.count("\n"))
    assert what.devices


def test_a_buffer_that_some_devices_free_is_still_there_on_the_others() -> None:
    text = "y = copy(x)\nif rank(tp) != 0:\n    free(y)\n    y = copy(x)\nreturns(y)"
    assert simulate(program(text), Setup(degrees={"tp": 3}, sizes={"tokens": 2, "hidden": 2, "ffn": 3})) is None


def test_devices_may_write_different_things_and_keep_their_own() -> None:
    text = "y = x + x\nif rank(tp) == 0:\n    y = y - x\nelse:\n    z = y * y\n    y = z / y - x\nreturns(y)"
    setup = Setup(degrees={"tp": 3}, sizes={"tokens": 2, "hidden": 2, "ffn": 3})
    assert simulate(program(text), setup) is None
    assert simulate(program(text.replace("- x\nreturns", "\nreturns")), setup) is not None


# What is refuted can be computed again.

REFUTED = {
    **{f"{name}: {what}": lambda name=name, what=what: dict(collectives_taken_away(block(name)))[what] for name, what in (
        ("mlp", "all_reduce of y"), ("attention", "all_reduce of dxk"), ("cross_entropy", "all_reduce of z"),
        ("ring_attention", "shift of vr"),
    )},
    "a derivative": lambda: program("y = elementwise(exp, x) / x\nreturns(dy * x, gradient_of=y, by=x, at=dy)"),
    "the greatest": lambda: program("h = contract(x, w, over=hidden)\nreturns(largest(h, over=ffn))"),
    "a power": lambda: program("returns(contract(x ** 3, w, over=hidden) ** -1 * tp)"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUTED)
def test_a_script_computes_both_numbers(name: str, tmp_path: Path) -> None:
    judged = judge_tensors(REFUTED[name]())
    assert isinstance(judged.found, RefutingBlockRun)
    assert isinstance(judged.found.what, Difference)
    text = script(judged.program, judged.found, name)
    assert text is not None
    path = tmp_path / "again.py"
    path.write_text(text)
    ran = subprocess.run([sys.executable, "-I", "-S", str(path)], capture_output=True, text=True, check=True)
    assert ran.stdout == f"expected {judged.found.what.expected}, actual {judged.found.what.actual}\n"
    data = judgement(name, judged)["counterexample"]
    assert data["inputs"]
    assert all(data["run"]["numbers"][at] == value for at, value in data["inputs"].items() if not at.startswith("log("))
    assert all(f"# {at}\n" in text for at in data["inputs"])


def test_the_command_writes_the_script_and_shows_what_the_run_begins_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, again = tmp_path / "it.step", tmp_path / "again.py"
    path.write_text(f"{HEAD}h = contract(x, w, over=hidden)\nreturns(contract(h, v, over=ffn))\n")
    assert command(["prove", str(path), "--replay-script", str(again)]) == 1
    shown = capsys.readouterr().out
    assert "   = it begins with\n   =   x[hidden 0, tokens 0]: " in shown
    assert again.exists()


def test_ends_are_those_of_every_device() -> None:
    """Also where devices hold parts of different lengths."""
    setup = Setup(degrees={"tp": 2}, sizes={"tokens": 1, "hidden": 1, "ffn": 3})
    run = anything_of_tensors(program("returns(contract(x, w, over=hidden))"), setup)["counterexample"]["run"]
    assert [list(end["returns"][0]) for end in run["ends"]] == [["[ffn 0, tokens 0]"], ["[ffn 1, tokens 0]", "[ffn 2, tokens 0]"]]
    assert run["reference"]["returns"][0] == {k: v for end in run["ends"] for k, v in end["returns"][0].items()}


def test_zero_is_computed_with_as_any_number() -> None:
    f = Fractions()
    x = f.array([0, Fraction(0), 2], (3,))
    assert (f.mul(x, x) == np.array([0, 0, 4])).all()
    assert f.total(f.add(x, x), 0) == 4
    assert (f.total(f.zeros((2, 0)), 1) == 0).all()


def test_logarithms_add_up_and_undo_exponentials() -> None:
    f = Fractions()

    def log(value: Fraction) -> Fraction:
        return f.log(np.array([value], dtype=object))[0]

    for a, b in ((Fraction(6), Fraction(35, 4)), (Fraction(1, 3), Fraction(99991)), (Fraction(100_003 * 3), Fraction(7))):
        assert log(a * b) == log(a) + log(b)
        assert log(a / b) == log(a) - log(b)
        assert (log(a) > log(b)) is (a > b)
    assert log(Fraction(2) ** 17) == 17
    assert log(Fraction(1)) == 0
    for none in (Fraction(-2), Fraction(100_003**2), Fraction(100_003 * 100_019), Fraction(2**89 - 1) ** 2):
        with pytest.raises(NotComputedError):
            log(none)
    with pytest.raises(ZeroDivisionError):
        log(Fraction(0))
    with pytest.raises(NotComputedError):  # no power of two
        f.exp(np.array([log(Fraction(3))], dtype=object))
