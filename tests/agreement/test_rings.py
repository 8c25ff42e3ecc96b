"""Loops over the rounds of a ring: what is proved for any number of devices is what runs in fractions give, and nothing else is."""

from __future__ import annotations

import itertools

import pytest
from block_oracle import block, edits, sensible
from hypothesis import given, settings
from hypothesis import strategies as st

from placeproof.blocks import text
from placeproof.core.diagnostics import InputError
from placeproof.cost.blocks.tensors import exchanges, kept
from placeproof.programs import Program, read, render
from placeproof.prove import Proved, settle
from placeproof.semantics.encode.context import NoMeaningError
from placeproof.semantics.judge.verdict import judge_tensors
from placeproof.semantics.tensors import RefutingBlockRun, Setup, search
from placeproof.semantics.tensors.encode import encode_tensors
from placeproof.semantics.tensors.simulate import ran

RING = block("ring_attention")

SUM = """\
mesh(cp)
tensor(x, tokens, hidden, cp=tokens)
tensor(w, tokens, hidden, cp=tokens)
visiting = copy(x)
s = total(x, over=tokens)
t = total(x * w, over=tokens)
{before}
for r in rounds[cp]:
    visiting = shift(visiting, cp)
{body}
{after}
returns(s)
"""


def summed(body: str, before: str = "", after: str = "") -> Program:
    return read(SUM.format(body="\n".join(f"    {line}" for line in body.split("; ")), before=before, after=after))


def differs(program: Program, most: int = 4) -> bool:
    """Whether any small run gives other numbers than one device. Of many dimensions, those that no axis cuts have one element."""
    dims = {d for t in program.tensors for d in t.dims}
    cut = {dim for t in program.tensors for _, dim in t.split}
    whole = dict.fromkeys(dims - cut, 2 if len(dims - cut) < 3 else 1)
    every = itertools.product(range(1, most + 1), (0, 1))
    setups = (Setup(degrees={"cp": n}, sizes=whole | dict.fromkeys(cut, max(n, 2) + extra)) for n, extra in every)
    return any(isinstance(ran(program, setup, slopes=True, runs=2), RefutingBlockRun) for setup in setups)


RIGHT = {
    "what visits is added up": "s += total(visiting, over=tokens)",
    "added up the other way round": "s = total(visiting, over=tokens) + s",
    "each term times a number of this device's own": "s += 2 * total(visiting, over=tokens) - total(visiting, over=tokens)",
    "through a buffer of the round": "theirs = total(visiting, over=tokens); s = s + theirs",
    "with something else carried that nobody returns": "t = t * t + s; s += total(visiting, over=tokens)",
}
WRONG = {
    "added twice": "s += 2 * total(visiting, over=tokens)",
    "the device's own part every time": "s += total(x, over=tokens)",
    "subtracted": "s = s - total(visiting, over=tokens)",
    "doubled on the way": "s = 2 * s + total(visiting, over=tokens)",
    "squared on the way": "s = s * s + total(visiting, over=tokens)",
    "overwritten": "s = s * 0 + total(visiting, over=tokens)",
    "multiplied by this device's weights": "s += total(visiting * w, over=tokens)",
    "made anew after it was added": "s += total(visiting, over=tokens); visiting = copy(x)",
    "passed on twice a round": "visiting = shift(visiting, cp); s += total(visiting, over=tokens)",
    "with what is carried": "s += total(visiting, over=tokens) * (1 + t - t) + t",
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_sums_are_proved(name: str) -> None:
    program = summed(RIGHT[name])
    assert not differs(program)
    judged = judge_tensors(program)
    assert judged.word == "proved", judged.why


@pytest.mark.parametrize("name", WRONG)
def test_wrong_sums_are_refuted(name: str) -> None:
    program = summed(WRONG[name])
    assert differs(program)
    assert judge_tensors(program).word == "refuted"
    assert isinstance(search(program), RefutingBlockRun)


def test_what_a_round_makes_anew_and_then_passes_on_is_no_visitor() -> None:
    """It is the neighbour's part in every round: right for two devices, and for no more."""
    text = SUM.format(before="", body="    s += total(visiting, over=tokens)", after="")
    made = "    visiting = copy(x)\n    visiting = shift"
    program = read(text.replace("    visiting = shift", made))
    assert not differs(program, most=2)
    assert differs(program, most=3)
    assert judge_tensors(program).word == "refuted"


def test_a_sum_that_travels_comes_home_by_one_more_step() -> None:
    """Every device adds its weights to what visits; the sum of all weights comes home with the part."""
    around = "carry = copy(x)\ncarry = carry + total(w, over=tokens)"
    body = "carry = shift(carry, cp); carry += total(w, over=tokens); s += total(visiting, over=tokens)"
    home = summed(body, around, "carry = shift(carry, cp)\nreturns(carry)")
    assert judge_tensors(home).word == "proved"
    assert not differs(home)
    away = summed(body, around, "returns(carry)")
    assert judge_tensors(away).word == "refuted"
    back = summed(body, around, "carry = shift(carry, cp, by=-1)\nreturns(carry)")
    assert judge_tensors(back).word == "refuted"


def test_a_shift_there_and_back_changes_nothing() -> None:
    there = "mesh(cp)\ntensor(x, tokens, cp=tokens)\nreturns(shift(shift(x, cp), cp, by=-1))"
    assert judge_tensors(read(there)).word == "proved"
    assert judge_tensors(read(there.replace(", by=-1", ""))).word == "refuted"
    assert judge_tensors(read("mesh(cp)\ntensor(x, tokens, cp=tokens)\nreturns(total(shift(x, cp), over=tokens))")).word == "refuted"


def test_one_device_has_no_rounds() -> None:
    alone = read(text("ring_attention").replace("mesh(cp)", "mesh(cp=1)"))
    assert judge_tensors(alone).word == "proved"
    assert judge_tensors(read(text("ring_attention").replace("mesh(cp)", "mesh(cp=3)"))).word == "proved"


EDITS = edits(RING)


def proved(program: Program) -> bool:
    """Whether every claim is proved; without the search for a counterexample, which takes long."""
    try:
        return all(isinstance(settle(o.claim), Proved) for o in encode_tensors(program))
    except NoMeaningError:
        return False


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(EDITS) - 1))
def test_no_edit_of_the_ring_is_proved_that_a_run_denies(number: int) -> None:
    _, make = EDITS[number]
    mutant = make()
    if sensible(mutant) and proved(mutant):
        assert not differs(mutant, most=3)


ANY = """\
mesh(cp)
tensor(x, tokens, hidden, cp=tokens)
tensor(w, tokens, hidden, cp=tokens)
k = copy(x)
g = {g}
p = total(x, over=tokens)
q = total(w, over=tokens)
z = {z}
for r in rounds[cp]:
{body}
{after}
returns({returned})
"""
BUFFERS = {"g": ("copy(x)", "x + total(w, over=tokens)", "copy(w)"), "z": ("total(x * x, over=tokens)", "q", "p * 0")}
LINES = """\
k = shift(k, cp)
k = shift(k, cp, by=-1)
g = shift(g, cp)
x = shift(x, cp)
p += total(k, over=tokens)
p += total(x, over=tokens)
p += total(k * w, over=tokens)
p = p + q
p = p * elementwise(exp, q - z) + total(k, over=tokens)
p += p
q = total(k, over=tokens)
q = z
z = z + total(k * k, over=tokens)
z = max(z, total(k, over=tokens))
g += total(w, over=tokens)
g += k
g = copy(w)
k = copy(x)
k = copy(g)
k = k * 1
k = k + q""".splitlines()

#: Bodies in which parts of different devices meet: no result where the parts are of different sizes, though nobody returns it.
UNEQUAL = {
    "a visitor plus the device's own": "k = shift(k, cp); g += k",
    "a visitor times the device's own": "k = shift(k, cp); p += total(k * w, over=tokens)",
    "what went round is made anew at the end of the round": "g = shift(g, cp); k = shift(k, cp); g += k; g = copy(w); k = k * 1",
    "the other one is made anew": "k = shift(k, cp); g = shift(g, cp); g += k; k = copy(x)",
    "what is carried holds a visitor from the second round on": "p += total(k * w, over=tokens); g = shift(g, cp); k = copy(g)",
}


def any_ring(lines: list[str], g: str, z: str, after: str, returned: str) -> Program:
    return read(ANY.format(body="\n".join(f"    {line}" for line in lines), g=g, z=z, after=after, returned=returned))


@pytest.mark.parametrize("name", UNEQUAL)
def test_parts_of_different_devices_do_not_fit(name: str) -> None:
    program = any_ring(UNEQUAL[name].split("; "), "copy(x)", "q", "", "z")
    assert differs(program)
    assert judge_tensors(program).word == "refuted"


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.sampled_from(LINES), min_size=1, max_size=6),
    st.sampled_from(BUFFERS["g"]),
    st.sampled_from(BUFFERS["z"]),
    st.sampled_from(("", "g = shift(g, cp)", "k = shift(k, cp)", "g = shift(g, cp, by=-1)")),
    st.sampled_from("pqzgk"),
)
def test_no_ring_is_proved_that_a_run_denies(lines: list[str], g: str, z: str, after: str, returned: str) -> None:
    program = any_ring([LINES[0], *lines], g, z, after, returned)
    if proved(program):
        assert not differs(program)


#: What travels unchanged: the way of the rounds, the way of the shift after them -> whether everybody has its own again.
HOMEWARD = {("1", "1"): True, ("-1", "-1"): True, ("1", "-1"): False, ("-1", "1"): False, ("1", None): False}


@pytest.mark.parametrize("ways", HOMEWARD)
def test_what_is_only_passed_on_is_one_step_from_home(ways: tuple[str, str | None]) -> None:
    rounds, last = ways
    after = f"k = shift(k, cp, by={last})" if last else ""
    program = any_ring([f"k = shift(k, cp, by={rounds})", "p += total(k, over=tokens)"], "copy(x)", "q", after, "k")
    assert judge_tensors(program).word == ("proved" if HOMEWARD[ways] else "refuted")


def test_a_ring_prints_and_reads_back() -> None:
    assert read(render(RING)).body == RING.body
    assert "for r in rounds[cp]:" in render(RING)


@pytest.mark.parametrize(
    "text",
    [
        "mesh(cp)\ntensor(x, tokens, cp=tokens)\nfor r in rounds:\n    x = shift(x, cp)\nreturns(x)",
        "mesh(cp)\ntensor(x, tokens, cp=tokens)\nfor r in rounds[dp]:\n    x = shift(x, cp)\nreturns(x)",
        "mesh(cp)\ntensor(x, tokens, cp=tokens)\nfor q in rounds[cp]:\n    for r in rounds[cp]:\n        x = shift(x, cp)\nreturns(x)",
        "mesh(cp)\nfor r in rounds[cp]:\n    gradients = backward(parameters)\ngradients = all_reduce(gradients, cp, op=mean)",
        "mesh(cp)\ntensor(x, tokens, cp=tokens)\nfor r in reversed(rounds[cp]):\n    x = shift(x, cp)\nreturns(x)",
        "mesh(cp)\ntensor(x, tokens, cp=tokens)\nfor r in rounds[cp]:\n    x = shift(x, cp, by=2)\nreturns(x)",
    ],
)
def test_what_is_no_ring_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(InputError) as refused:
        read(text)
    assert all(d.place is not None for d in refused.value.diagnostics)


def test_what_a_ring_sends_and_keeps() -> None:
    """Keys and values of all other devices in forward; in backward the same, and as much again for their gradients, which go home."""
    sizes = {"batch": 2, "tokens": 8, "keys": 8, "kv_heads": 2, "group": 3, "width": 5}
    degrees = {"cp": 4}
    part = 2 * 8 // 4 * 2 * 5  # batch, keys of one device, heads, width
    sent = {"forward": 0, "backward": 0}
    for one in exchanges(RING):
        sent[one.phase] += one.times(degrees) * one.elements(sizes, degrees)
    assert sent == {"forward": 3 * 2 * part, "backward": 3 * 4 * part + 2 * part}
    assert {k.name for k in kept(RING)} == {"q", "k", "v", "o", "lse"}
    assert all(dict(k.split) in ({"tokens": ("cp",)}, {"keys": ("cp",)}) for k in kept(RING))
