"""Recomputation: what is kept, computed and sent afterwards, and that it is proved; mutants of it are not."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from gpt_blocks import LAYER, block, differs
from hypothesis import given, settings
from hypothesis import strategies as st

from placeproof.core.diagnostics import InputError
from placeproof.cost.blocks.flops import Work, element_operations, flops, operations
from placeproof.cost.blocks.layer import layer
from placeproof.cost.blocks.recompute import between, computed_again, made_in_forward, recompute
from placeproof.cost.blocks.tensors import exchanges, kept
from placeproof.programs import Assign, Call, Program, Ref, check, expressions, parse, read, render
from placeproof.semantics.judge.verdict import judge_tensors
from placeproof.semantics.resolve import resolve

SIZES = {"batch": 2, "tokens": 6, "keys": 6, "hidden": 12, "heads": 4, "width": 3, "ffn": 20}
DEGREES = {"tp": 2}
HEAD = """\
mesh(tp)
tensor(x, tokens, hidden)
tensor(m, tokens, hidden)
tensor(same, keys, picks=tokens)
tensor(w, hidden, ffn)
tensor(dy, tokens, hidden)
"""


def written(forward: str, backward: str) -> Program:
    return read(f"{HEAD}{forward}\nreturns(y)\n{backward}\nreturns(dy, gradient_of=y, by=x, at=dy)\n")


def bare(program: Program) -> list[str]:
    """The statements of a program, `returns` apart."""
    return [line for line in render(program).splitlines() if not line.startswith(("program", "mesh", "tensor", "returns"))]


#: Forward, backward, what is named; then what is computed again, and what is kept.
CASES: dict[str, tuple[str, str, str, str, str]] = {
    "what is read": ("a = x * x\nb = a * x\ny = a * b", "g = dy * a * b", "a", "a", "x b"),
    "what is needed and not kept": ("a = x * x\nb = a * a\nc = b + a\ny = c", "g = dy * c", "c", "a b c", "x"),
    "what is needed and kept": ("a = x * x\nb = a * a\ny = b", "g = dy * b * a", "b", "b", "a"),
    "nothing": ("a = x * x\ny = a", "g = dy * a", "", "", "a"),
    "what nothing reads": ("a = x * x\nb = a * x\ny = b", "g = dy * a", "b", "b", "x a"),
    "all": ("a = x * x\nb = a * x\ny = b", "g = dy * a", "a b y", "a b y", "x"),
    "another name": ("a = x * x\nb = a\ny = b", "g = dy * a * b", "a", "a b", "x"),
    "by another name": ("a = x * x\nb = a\ny = b", "g = dy * a * b", "b", "a b", "x"),
    "a constant in derivatives": ("a = x * x\nb = elementwise(stop, a)\ny = b", "g = dy * b", "a", "a b", "x"),
    "a view": ("a = x * x\nb = contract(hot(same), a, over=tokens)\ny = a", "g = contract(b, dy, over=hidden)", "b", "b", "a"),
    "with its views": ("a = x * x\nb = contract(hot(same), a, over=tokens)\ny = a", "g = contract(b, dy, over=hidden)", "a", "a b", "x"),
    "a mask is kept": ("a = x * m\nb = a * a\ny = b", "g = dy * b", "b", "a b", "x m"),
    "a result for its own sake": ("a = x * x\nb = a * a\ny = b", "g = dy * b\nreturns(a)", "b", "a b", "x"),
    "weights are there": ("v = w * w\na = contract(x, v, over=hidden)\ny = x", "g = contract(dy, w, over=hidden) * a", "a", "a", "x"),
    "a gather": (
        "a = part(x, tp, dim=tokens)\nb = all_gather(a, tp)\ny = b",
        "g = dy * b\nh = part(dy, tp, dim=tokens) * a",
        "b",
        "b",
        "a",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_computed_again(name: str) -> None:
    forward, backward, named, again, keeps = CASES[name]
    program = written(forward, backward)
    assert computed_again(program, named.split()) == tuple(again.split())
    found = recompute(program, named.split())
    assert [k.name for k in kept(found)] == keeps.split()
    assert made_in_forward(found) == made_in_forward(program)
    assert read(render(found)) == found
    if not named:
        assert found == read(render(program))


def test_where_it_is_computed_again() -> None:
    """Right before it is read; freed after its last use, unless a `returns` speaks of it; names are new."""
    program = written(
        "a = x * x\nb = a * a\nc = b * b\ny = c * b", "g = dy * x\nh = g * b\ni = h * a * c\nreturns(i, gradient_of=a, by=a, at=dy)"
    )
    assert bare(recompute(program, ["a", "c", "b"])) == [
        "a = x * x",
        "b = a * a",
        "c = b * b",
        "y = c * b",
        "free(b)",
        "free(c)",
        "g = dy * x",
        "a_again = x * x",
        "b_again = a_again * a_again",
        "h = g * b_again",
        "c_again = b_again * b_again",
        "i = h * a_again * c_again",
    ]


def test_backward_begins_before_what_is_computed_again() -> None:
    program = written("a = x * x\na_again = a\ny = a", "g = dy * a_again")
    found = bare(recompute(program, ["a"]))
    assert found[-4:] == [
        "incoming = dy",
        "a_again_again = x * x",
        "a_again_again_again = a_again_again",
        "g = dy * a_again_again_again",
    ]


def test_new_names_are_no_axes() -> None:
    program = read(render(written("a = x * x\ny = a", "g = dy * a")).replace("mesh(tp)", 'mesh(a_again)\nsplits(a_again="hidden")'))
    assert [k.name for k in kept(recompute(program, ["a"]))] == ["x"]


def test_a_checkpoint_that_is_run_to_its_end() -> None:
    """Its result is kept and read, and computed again all the same."""
    program = written("a = x * x\nb = a * a\nc = b * b\ny = c", "g = dy * c\nh = dy * a")
    found = recompute(program, ["a"], rerun=["c"])
    assert computed_again(program, ["a"], rerun=["c"]) == ("a", "b", "c")
    assert [k.name for k in kept(found)] == ["x", "c"]
    back = ["g = dy * c", "a_again = x * x", "b_again = a_again * a_again", "c_again = b_again * b_again", "h = dy * a_again"]
    assert bare(found)[-5:] == back
    assert bare(recompute(program, [], rerun=["c"]))[-3:] == ["h = dy * a", "b_again = a * a", "c_again = b_again * b_again"]


def test_what_lies_between() -> None:
    assert between(block("attention_gpt"), ("q", "k", "v"), ("o",)) == ("kk", "vv", "scores", "e", "p", "pd")
    assert between(block("attention_gpt"), ("n",), ("o",)) == ("q", "k", "v", "kk", "vv", "scores", "e", "p", "pd")
    assert between(block("mlp_gpt"), ("a",), ("u",)) == ()
    with pytest.raises(InputError, match="forward makes no value `z`"):
        between(block("mlp_gpt"), ("z",), ("a",))


@pytest.mark.parametrize(
    ("program", "names", "says"),
    [
        (written("y = x * x", "g = dy"), ["z"], "forward makes no value `z`"),
        (written("y = x * x", "g = dy"), ["x"], "forward makes no value `x`"),
        (written("y = x * x", "g = dy"), ["g"], "forward makes no value `g`"),
        (written("a = x * x\na = a * x\ny = a", "g = dy * a"), ["a"], "`a` is written more than once"),
        (written("a = x * x\nb = a * a\ny = b", "a = dy\ng = dy * b"), ["b"], "`a` is written more than once"),
        (written("a = x * x\nx = a\ny = a", "g = dy * a"), ["a"], "`x` is written more than once"),
        (written("a = x * x\ny = a", "a += dy\ng = a"), ["a"], "`a` is written more than once"),
        (read(f"{HEAD}a = x * x\nreturns(a)\n"), ["a"], "has no backward"),
        (read(f"{HEAD}a = x * x\ny = a\none = a ** 0\nreturns(one, gradient_of=y, by=a, at=one)\n"), ["a"], "backward begins with"),
        (read(f"{HEAD}a = x * x\nfor r in rounds[tp]:\n    a = shift(a, tp)\ny = a\nreturns(y)\n"), ["a"], "rounds of a ring"),
    ],
)
def test_what_cannot_be_computed_again_is_refused(program: Program, names: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        recompute(program, names)


# Any names.


@cache
def subject(name: str) -> Program:
    if name == "layer":
        return layer([block(n) for n in LAYER]).program
    if name == "layer sp":
        return layer([block(n, "sp") for n in LAYER]).program
    return read(render(block(*name.split())))


SUBJECTS = ("layer_norm", "mlp_gpt", "mlp_gpt sp", "attention_gpt", "attention_gpt sp", "layer", "layer sp")


def steps(program: Program, names: set[str], products: bool) -> Any:
    """The work of the statements that make some values in forward."""
    lines = {s.place.line for s in program.body if isinstance(s, Assign) and s.place and s.targets[0].name in names}
    found = (o for o in operations(program) if o.line in lines and o.during == "forward" and o.product == products)
    return sum(o.steps(SIZES, DEGREES) for o in found)


@settings(max_examples=25)
@given(data=st.data())
def test_whatever_is_named(data: st.DataObject) -> None:
    """What is kept and computed afterwards, exactly; and no more is kept where what is read of the header was."""
    program = subject(data.draw(st.sampled_from(SUBJECTS)))
    named = data.draw(st.sets(st.sampled_from(made_in_forward(program)), min_size=1))
    again = set(computed_again(program, named))
    assert named <= again
    found = recompute(program, named)
    before, after = ({k.name: k.elements(SIZES, DEGREES) for k in kept(p)} for p in (program, found))
    makers = [s for s in program.body if isinstance(s, Assign) and s.targets[0].name in again]
    header = {t.name for t in program.tensors if "tokens" in t.dims}
    read_again = {n for s in makers for n in names_in(s) if n in header and n != "same" and not n.startswith("same_")}
    assert set(after) == (set(before) - again) | read_again
    if read_again <= set(before):
        assert sum(after.values()) <= sum(before.values())
    for count, products in ((flops, True), (element_operations, False)):
        old, new = count(program, SIZES, DEGREES), count(found, SIZES, DEGREES)
        assert new == Work(forward=old.forward, again=old.again + steps(program, again, products), inputs=old.inputs, weights=old.weights)
    more = [e for e in exchanges(program) if e.phase == "forward" and any(s.place and s.place.line == e.line for s in makers)]
    assert len(exchanges(found)) == len(exchanges(program)) + len(more)


def names_in(stmt: Assign) -> set[str]:
    functions = {id(e.args[0]) for e in expressions(stmt.value) if isinstance(e, Call) and e.op in ("elementwise", "slope")}
    return {e.name for e in expressions(stmt.value) if isinstance(e, Ref) and id(e) not in functions}


@settings(max_examples=15)
@given(data=st.data())
def test_small_blocks_are_proved_whatever_is_named(data: st.DataObject) -> None:
    program = subject(data.draw(st.sampled_from(["layer_norm", "mlp_gpt", "mlp_gpt sp"])))
    named = data.draw(st.sets(st.sampled_from(made_in_forward(program))))
    rerun = data.draw(st.sets(st.sampled_from(made_in_forward(program))))
    found = recompute(program, named, rerun)
    assert judge_tensors(found).word == "proved"
    twice = recompute(found, made_in_forward(found))
    assert judge_tensors(twice).word == "proved"


def test_selective_recomputation_is_proved() -> None:
    program = block("attention_gpt")
    found = recompute(program, between(program, ("q", "k", "v"), ("o",)), rerun=["o"])
    assert judge_tensors(found).word == "proved"
    assert [k.name for k in kept(found)] == ["n", "drop", "mask", "q", "k", "v", "o"]


# Mutants.


@cache
def mutated() -> str:
    """The feed-forward block with sequence parallelism and everything computed again, beside another mask and another token stream."""
    program = block("mlp_gpt", "sp")
    text = render(recompute(program, made_in_forward(program)))
    return text.replace("tensor(dy,", "tensor(other, batch, tokens, hidden, tp=tokens)\ntensor(dy,")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("full_again = all_gather(n, tp)", "full_again = all_gather(x, tp)"),
        ("full_again = all_gather(n, tp)", "full_again = all_gather(other, tp)"),
        ("u_again = contract(full_again, w1, over=hidden) + b1", "u_again = contract(full_again, w1, over=hidden)"),
        ("a_again = elementwise(gelu, u_again)", "a_again = elementwise(gelu, u_again * u_again)"),
        ("a_again = elementwise(gelu, u_again)", "a_again = u_again"),
        ("slope(gelu, u_again)", "slope(gelu, a_again)"),
        ("dout = dy * mask", "dout = dy * other"),
    ],
)
def test_what_is_computed_again_otherwise_is_refuted(old: str, new: str) -> None:
    assert mutated().count(old) == 1
    assert judge_tensors(read(mutated())).word == "proved"
    assert judge_tensors(read(mutated().replace(old, new))).word == "refuted"


def test_probabilities_masked_otherwise_are_others() -> None:
    program = block("attention_gpt")
    text = render(recompute(program, between(program, ("q", "k", "v"), ("o",))))
    text = text.replace("tensor(mask,", "tensor(drop2, batch, heads, tokens, keys)\ntensor(mask,")
    old = "pd_again = p_again * drop\n"
    assert text.count(old) == 1
    assert not differs(read(text))
    assert differs(read(text.replace(old, "pd_again = p_again * drop2\n")))


@pytest.mark.parametrize("name", ["full", "u", "a"])
def test_what_was_dropped_cannot_be_read(name: str) -> None:
    """The text is refused, and who does not ask gets no proof."""
    text = mutated().replace(f"{name}_again,", f"{name},").replace(f"{name}_again)", f"{name})")
    assert text != mutated()
    with pytest.raises(InputError, match=f"`{name}` is read after it was freed"):
        check(parse(text))
    assert judge_tensors(parse(text)).word == "unknown"


MASKED = """\
tensor(x, tokens, hidden)
tensor(dy, tokens, hidden)
k = random()
a = dropout(x, k)
y = a * a
returns(y)
h = dropout(2 * a * dy, k)
returns(h, gradient_of=y, by=x, at=dy)
"""


def test_a_key_that_is_computed_again_is_the_same_draw() -> None:
    found = recompute(read(MASKED), ["k", "a"])
    assert "k_again = random(draw=0)" in render(found)
    assert judge_tensors(resolve(found)).word == "proved"
    drawn_anew = read(render(found).replace("k_again = random(draw=0)", "k_again = random()"))
    assert judge_tensors(resolve(drawn_anew)).word == "refuted"
