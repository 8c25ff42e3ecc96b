"""Blocks of a transformer: each is proved, each wrong variant is refuted, and no proof disagrees with a run in fractions."""

from __future__ import annotations

import os

import pytest
from block_oracle import block, collectives_taken_away, edits, sensible
from hypothesis import given, settings
from hypothesis import strategies as st
from verdict_counts import count

from placeproof.blocks import BLOCKS, text
from placeproof.programs import Program, read
from placeproof.prove import settle
from placeproof.semantics.judge.verdict import judge_tensors
from placeproof.semantics.resolve import resolve
from placeproof.semantics.searched import Searched
from placeproof.semantics.tensors import RefutingBlockRun, encode_tensors, search

#: How many random edits are tried.
MANY = 1_000 if os.environ.get("PLACEPROOF_PROFILE") == "nightly" else 40


@pytest.mark.parametrize("name", BLOCKS)
def test_every_block_is_proved(name: str) -> None:
    judged = judge_tensors(block(name))
    assert judged.word == "proved", (judged.about, judged.why)
    assert {s.obligation.condition for s in judged.settled} == {"gradient integrity", "state consistency"}
    assert all(s.obligation.place is not None for s in judged.settled)
    assert "N >= 1" in judged.for_all
    found = search(block(name))
    assert isinstance(found, Searched)
    assert found.runs == 12


@pytest.mark.parametrize("name", BLOCKS)
def test_every_gradient_of_a_block_is_claimed(name: str) -> None:
    """Of each tensor of numbers, the adjoint apart: that it is the derivative, and that every device has it."""
    program = block(name)
    claims = [o.name for o in encode_tensors(program)]
    for tensor in program.tensors:
        if tensor.picks is None and not tensor.name.startswith("d"):
            assert sum(f"by `{tensor.name}`" in c and "is the derivative" in c for c in claims) == 1


#: Taking any collective of any block away changes its meaning: there is none whose removal would be harmless.
HARMLESS: dict[tuple[str, str], str] = {}
TAKEN_AWAY = [(b, name) for b in BLOCKS for name, _ in collectives_taken_away(block(b))]


@pytest.mark.parametrize(("name", "what"), TAKEN_AWAY)
def test_taking_a_collective_away_refutes(name: str, what: str) -> None:
    mutant = dict(collectives_taken_away(block(name)))[what]
    judged = judge_tensors(mutant)
    assert judged.word == ("proved" if (name, what) in HARMLESS else "refuted")
    assert isinstance(search(mutant), RefutingBlockRun)


def edited(name: str, old: str, new: str) -> Program:
    """A block with one text replaced."""
    assert text(name).count(old) == 1, old
    return read(text(name).replace(old, new))


ROW = "all_reduce(contract(a, w2, over=ffn), tp)"
WRONG = {
    "the bias added before the sum": ("mlp", f"y = {ROW} + b2", "y = all_reduce(contract(a, w2, over=ffn) + b2, tp)"),
    "the bias divided by a wrong number": ("mlp", f"y = {ROW} + b2", "y = all_reduce(contract(a, w2, over=ffn) + b2 / (tp + 1), tp)"),
    "reduced twice": ("mlp", f"y = {ROW}", f"y = all_reduce({ROW}, tp)"),
    "the largest for the sum": ("mlp", "w2, over=ffn), tp)", "w2, over=ffn), tp, op=max)"),
    "the mean for the sum": ("mlp", "w2, over=ffn), tp)", "w2, over=ffn), tp, op=mean)"),
    "divided by the degree": ("mlp", f"y = {ROW}", f"y = {ROW} / tp"),
    "a function of a partial sum": ("mlp", f"y = {ROW}", "y = all_reduce(elementwise(gelu, contract(a, w2, over=ffn)), tp)"),
    "a product of partial sums": (
        "mlp",
        f"y = {ROW}",
        "p = contract(a, w2, over=ffn)\ny = all_reduce(p * p, tp)",
    ),
    "the first device's part alone": ("mlp", f"y = {ROW}", "y = broadcast(contract(a, w2, over=ffn), tp, root=0)"),
    "the gradient of the bias summed, though every device has it": (
        "mlp",
        "total(dy, over=tokens)",
        "all_reduce(total(dy, over=tokens), tp)",
    ),
    "the gradient of a split bias summed over parts": (
        "mlp",
        "returns(total(dh, over=tokens)",
        "returns(all_reduce(total(dh, over=tokens), tp)",
    ),
    "the slope of another place": ("mlp", "dh = da * slope(gelu, h)", "dh = da * slope(gelu, a)"),
    "the gradient through the function left out": ("mlp", "dh = da * slope(gelu, h)", "dh = da"),
    "one of two gradients not summed": (
        "swiglu",
        "contract(dg, wg, over=ffn) + contract(du, wu, over=ffn), tp)",
        "contract(dg, wg, over=ffn), tp)",
    ),
    "the gate on partial sums": ("swiglu", "a = s * u", "a = all_reduce(s, tp) * u"),
    "the norm's gain not summed": ("norm", "all_reduce(total(dn * n, over=tokens), tp)", "total(dn * n, over=tokens)"),
    "the norm's gain averaged": ("norm", "n, over=tokens), tp)", "n, over=tokens), tp, op=mean)"),
    "the norm's sum of squares over all devices": (
        "norm",
        "s = total(x * x, over=hidden)",
        "s = all_reduce(total(x * x, over=hidden), tp)",
    ),
    "a shared projection's gradient not summed": (
        "gqa",
        "dk = all_reduce(total(contract(ds, q, over=queries), over=heads), tp)",
        "dk = total(contract(ds, q, over=queries), over=heads)",
    ),
    "a shared projection's gradient averaged": (
        "gqa",
        "contract(p, do, over=queries), over=heads), tp)",
        "contract(p, do, over=queries), over=heads), tp, op=mean)",
    ),
    "a shared input's gradient summed twice": ("gqa", "returns(dxk", "dxk = all_reduce(dxk, tp)\nreturns(dxk"),
    "the softmax's sum left out of its gradient": ("attention", "ds = p * (dp - contract(p, dp, over=keys))", "ds = p * dp"),
    "normalised over what is here": ("cross_entropy", "z = all_reduce(total(e, over=vocab), tp)", "z = total(e, over=vocab)"),
    "a table's rows of other devices": ("embedding", "table, over=vocab), tp)", "table, over=vocab), tp, op=max)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_variants_are_refuted(name: str) -> None:
    subject, old, new = WRONG[name]
    program = edited(subject, old, new)
    judged = judge_tensors(program)
    assert judged.word == "refuted", judged.why
    assert isinstance(search(program), RefutingBlockRun)


ONE = """\
mesh(tp)
tensor(x, tokens, hidden)
tensor(w1, hidden, ffn, tp=ffn)
tensor(w2, ffn, hidden, tp=ffn)
tensor(v2, ffn, hidden, tp=ffn)
tensor(b, hidden)
tensor(dy, tokens, hidden)
h = contract(x, w1, over=hidden)
a = elementwise(gelu, h)
"""
UNUSUAL = {
    "a function between a split by columns and a split by rows": "y = all_reduce(contract(a, w2, over=ffn), tp)\nreturns(y)",
    "the output left split": "returns(a)",
    "gathered": "returns(all_gather(a, tp))",
    "two partial sums added, then reduced once": ("y = all_reduce(contract(a, w2, over=ffn) + contract(h, v2, over=ffn), tp)\nreturns(y)"),
    "two sums, each reduced": ("y = all_reduce(contract(a, w2, over=ffn), tp) + all_reduce(contract(h, v2, over=ffn), tp)\nreturns(y)"),
    "the bias divided, then summed": "y = all_reduce(contract(a, w2, over=ffn) + b / tp, tp)\nreturns(y)",
    "the mean, then the degree": "y = all_reduce(contract(a, w2, over=ffn), tp, op=mean) * tp\nreturns(y)",
    "the bias from one device": ("p = contract(a, w2, over=ffn)\nif rank(tp) == 0:\n    p = p + b\ny = all_reduce(p, tp)\nreturns(y)"),
    "twice the bias, once from either end": (
        "p = contract(a, w2, over=ffn)\nif rank(tp) == 0:\n    p = p + b\nif rank(tp) == tp - 1:\n    p = p + b\n"
        "y = all_reduce(p, tp)\nreturns(y)"
    ),
    "scattered and gathered": ("y = all_gather(reduce_scatter(contract(a, w2, over=ffn), tp, dim=tokens), tp)\nreturns(y)"),
    "gathered weights": (
        "y = contract(elementwise(gelu, contract(x, all_gather(w1, tp), over=hidden)), all_gather(w2, tp), over=ffn)\nreturns(y)"
    ),
    "parts of a whole input": "xs = part(x, tp, dim=tokens)\ny = contract(xs, all_gather(w1, tp), over=hidden)\nreturns(y)",
    "one mask for a copied tensor": "y = dropout(all_reduce(contract(a, w2, over=ffn), tp), random())\nreturns(y)",
    "the mask of a split tensor": "returns(dropout(a, random()))",
    "the mask before a sum": "y = all_reduce(dropout(contract(a, w2, over=ffn), random()), tp)\nreturns(y)",
    "a backward without a collective": (
        "y = all_reduce(contract(a, w2, over=ffn), tp)\nreturns(contract(dy, w2, over=hidden), gradient_of=y, by=a, at=dy)"
    ),
    "the largest of all": "returns(all_reduce(largest(h, over=ffn), tp, op=max))",
    "a softmax with each device's own largest": (
        "m = largest(h, over=ffn)\ne = elementwise(exp, h - m)\nz = all_reduce(total(e, over=ffn) * elementwise(exp, m), tp)\n"
        "returns(e * elementwise(exp, m) / z)"
    ),
    "a product, its derivative by itself twice": "y = x * x\nreturns(2 * dy * x, gradient_of=y, by=x, at=dy)",
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_correct_but_unusual_variants_are_proved(name: str) -> None:
    program = resolve(read(ONE + UNUSUAL[name] + "\n"))
    judged = judge_tensors(program)
    assert judged.word == "proved", judged.why
    found = search(program)
    assert isinstance(found, Searched)
    assert found.runs


NOT_PROVED = {
    "a mask of a copied tensor that differs": "y = dropout(all_reduce(contract(a, w2, over=ffn), tp), random(tp))\nreturns(y)",
    "a partial sum returned": "returns(contract(a, w2, over=ffn))",
    "a function before the sum": "returns(all_reduce(elementwise(gelu, contract(a, w2, over=ffn)), tp))",
    "a product of partial sums": "p = contract(a, w2, over=ffn)\nreturns(all_reduce(p * p, tp))",
    "a partial sum times a copied tensor's partial sum": (
        "p = contract(a, w2, over=ffn)\nq = contract(h, v2, over=ffn)\nreturns(all_reduce(p * q, tp))"
    ),
    "the residual before the sum": "returns(all_reduce(contract(a, w2, over=ffn) + x, tp))",
    "the residual from all devices but the first": (
        "p = contract(a, w2, over=ffn)\nif rank(tp) != 0:\n    p = p + x\nreturns(all_reduce(p, tp))"
    ),
    "a whole matrix against a split one": "returns(all_reduce(contract(a, all_gather(w2, tp), over=ffn), tp))",
    "parts of other elements added up": "returns(all_reduce(a, tp))",
    "an array that only the first device has": "y = reduce(contract(a, w2, over=ffn), tp, root=0)\nreturns(y)",
    "each device's own largest": "returns(largest(h, over=ffn))",
    "a softmax over each device's part": "e = elementwise(exp, h)\nreturns(e / total(e, over=ffn))",
    "another derivative": "y = x * x\nreturns(dy * x, gradient_of=y, by=x, at=dy)",
    "half of a derivative": "y = x * x + b * x\nreturns(2 * dy * x, gradient_of=y, by=x, at=dy)",
}


@pytest.mark.parametrize("name", NOT_PROVED)
def test_wrong_programs_are_refuted(name: str) -> None:
    program = resolve(read(ONE + NOT_PROVED[name] + "\n"))
    judged = judge_tensors(program)
    assert judged.word == "refuted", judged.why
    assert isinstance(judged.found, RefutingBlockRun)
    assert max(judged.found.setup.degrees.values()) <= 3


REFUSED = {
    "nothing is returned": "y = copy(x)",
    "a loop": "for u in units:\n    y = copy(x)\nreturns(x)",
    "a derivative of a maximum": "y = largest(x, over=hidden)\nreturns(x, gradient_of=y, by=x, at=y)",
    "a device that may not exist": "y = x\nif rank(tp) == 1:\n    y = y + b\nreturns(y)",
    "a gradient without its adjoint": "y = x * x\nreturns(x, gradient_of=y, by=x)",
    "a gradient of another shape": "y = x * x\nreturns(b, gradient_of=y, by=x, at=dy)",
    "an operation on states": "returns(square_norm(x))",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_is_never_proved(name: str) -> None:
    judged = judge_tensors(read(ONE + REFUSED[name] + "\n"))
    assert judged.word != "proved"
    assert judged.why.startswith("the proof cannot speak of this step")


def test_one_axis_per_split_and_two_axes_together() -> None:
    text_of = """\
mesh(dp, tp)
tensor(x, tokens, hidden, dp=tokens)
tensor(w1, hidden, ffn, tp=ffn)
tensor(w2, ffn, hidden, tp=ffn)
tensor(dy, tokens, hidden, dp=tokens)
h = contract(x, w1, over=hidden)
y = all_reduce(contract(elementwise(gelu, h), w2, over=ffn), tp)
returns(y)
dh = contract(dy, w2, over=hidden) * slope(gelu, h)
g = all_reduce(contract(x, dh, over=tokens), dp)
returns(g, gradient_of=y, by=w1, at=dy)
"""
    assert judge_tensors(read(text_of)).word == "proved"
    assert isinstance(search(read(text_of)), Searched)
    for old, new in (("tokens), dp)", "tokens), tp)"), ("tokens), dp)", "tokens), dp, tp)"), ("ffn), tp)", "ffn), dp)")):
        wrong = read(text_of.replace(old, new))
        assert judge_tensors(wrong).word == "refuted"


def test_a_result_may_be_split_otherwise_than_its_adjoint() -> None:
    """Every device has the right elements, though not those that the next block may want."""
    other = edited("norm", "a, w2, over=ffn), tp, dim=tokens)", "a, w2, over=ffn), tp, dim=hidden)")
    assert judge_tensors(other).word == "proved"
    assert isinstance(search(other), Searched)


def test_a_softmax_needs_no_stop() -> None:
    """That it does not depend on what is subtracted from its exponents is known of the exponential."""
    plain = edited(
        "cross_entropy",
        "elementwise(stop, all_reduce(largest(logits, over=vocab), tp, op=max))",
        "all_reduce(largest(logits, over=vocab), tp, op=max)",
    )
    assert judge_tensors(plain).word == "proved"
    assert isinstance(search(plain), Searched)


def test_a_fixed_degree_is_a_number() -> None:
    fixed = text("mlp").replace("mesh(tp)", "mesh(tp=4)")
    assert judge_tensors(read(fixed)).word == "proved"
    fours = fixed.replace("w2, over=ffn), tp)", "w2, over=ffn) * 4 / tp, tp)")
    assert judge_tensors(read(fours)).word == "refuted"


def test_obligations_settle_one_by_one() -> None:
    for obligation in encode_tensors(block("norm")):
        assert type(settle(obligation.claim)).__name__ == "Proved"


@pytest.mark.parametrize("most", [119, 120, 121, 300])
def test_a_hypothesis_shows_up_to_120_characters_of_what_is_divided_by(most: int) -> None:
    rest = "1*f.exp(1*in.(at.tokens, at.hidden))"
    name = "x" * (most - len(rest))
    program = read(f"mesh(tp)\ntensor({name}, tokens, hidden, tp=hidden)\nreturns(1 / elementwise(exp, {name}))\n")
    (said,) = {g.name for o in encode_tensors(program) for g in o.claim.given if g.name.endswith("is positive")}
    whole = rest.replace("in.", f"in.{name}")
    assert len(whole) == most
    assert said == f"{whole if most <= 120 else whole[:120] + ' ...'} is positive"


LARGE = ("attention", "gqa")
SMALL = tuple(b for b in BLOCKS if b not in LARGE)


def agree(mutant: Program) -> None:
    """Proved means that no run differs; a run that differs means not proved."""
    judged = judge_tensors(mutant)
    if not sensible(mutant):
        assert judged.word != "proved"
        return
    differs = isinstance(judged.found if judged.word == "refuted" else search(mutant), RefutingBlockRun)
    assert not (judged.word == "proved" and differs), "false accept"
    assert not (judged.word == "unknown" and differs), "a run differs, and the judgement did not find it"
    count("edited blocks against brute force", judged.word)


@settings(max_examples=MANY)
@given(name=st.sampled_from(SMALL), data=st.data())
def test_random_edits_agree_with_brute_force(name: str, data: st.DataObject) -> None:
    _, make = data.draw(st.sampled_from(edits(block(name))), label="edit")
    agree(make())


@pytest.mark.parametrize("name", LARGE)
def test_edits_of_attention_agree_with_brute_force(name: str) -> None:
    """The same for a sample of fixed places, because the proofs of attention take seconds."""
    found = edits(block(name))
    for _, make in found[:: len(found) // 8]:
        agree(make())
