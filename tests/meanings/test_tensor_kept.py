"""What lives from forward to backward in small programs: storages once each, and not what is computed again."""

from __future__ import annotations

import pytest
from test_tensor_costs import HEAD, held

from placeproof.cost.blocks.tensors import exchanges, kept
from placeproof.programs import read
from placeproof.semantics.layouts.lines import lines

#: Lines of forward, lines of backward, and the names of what lives between them.
LIVES: dict[str, tuple[str, str, list[str]]] = {
    "what backward reads": ("a = x * x\nb = a * x\ny = a * b", "g = dy * a", ["a"]),
    "twice, once": ("a = x * x\ny = a * x", "g = dy * a\nh = dy * a * a", ["a"]),
    "what is computed again is not": ("a = x * x\ny = a * x", "g = dy * x\na = x * x\nh = a * g", ["x"]),
    "another name": ("a = x * x\nb = a\nc = elementwise(stop, b)\ny = c * x", "g = dy * a\nh = dy * c * b", ["a"]),
    "another name of an input": ("b = x\ny = b * x", "g = dy * b * x", ["x"]),
    "another name made in backward": ("a = x * x\ny = a", "b = a\ng = dy * b", ["a"]),
    "a copy is another tensor": ("a = x * x\nb = copy(a)\ny = b", "g = dy * a * b", ["a", "b"]),
    "an expression without a name of its own": ("a = elementwise(stop, x * x)\ny = a", "g = dy * a", ["a"]),
    "a dimension called otherwise": (
        "a = x * x\nb = contract(hot(same), a, over=tokens)\ny = x",
        "g = contract(b, dy, over=hidden) + contract(contract(a, hot(same), over=tokens), dy, over=hidden)",
        ["a"],
    ),
    "a dimension called otherwise, of no other value": (
        "b = contract(hot(same), x * x, over=tokens)\ny = x",
        "g = contract(b, dy, over=hidden)",
        ["b"],
    ),
    "the choice by a name": ("h = hot(same)\nb = contract(h, x, over=tokens)\ny = x", "g = contract(b, dy, over=hidden)", ["x"]),
    "rows that are looked up are another tensor": (
        "e = contract(hot(ids), table, over=vocab)\ny = e * x",
        "g = dy * e",
        ["e"],
    ),
    "what is looked up with": ("y = contract(hot(ids), table, over=vocab)", "g = contract(hot(ids), dy, over=tokens)", ["ids"]),
    "the choice of places is told by its places": (
        "h = hot(ids)\ny = contract(h, table, over=vocab)",
        "g = contract(h, dy, over=tokens)",
        ["ids"],
    ),
    "weights are not": ("y = contract(contract(x, w, over=hidden), v, over=ffn)", "g = contract(dy, v, over=hidden)", []),
    "nor what is made of weights alone": (
        "full = all_gather(w, tp)\nu = full * total(full, over=hidden)\n"
        "a = contract(x, u, over=hidden)\ny = contract(a, all_gather(v, tp), over=ffn)",
        "g = contract(contract(dy, all_gather(v, tp), over=hidden), u, over=ffn)",
        [],
    ),
    "a sum that starts again": ("a = x * x\na += x\ny = a", "g = dy * a", ["a"]),
    "a name that is written again": ("a = x * x\ny = a * x\na = y * y", "g = dy * a", ["a"]),
    "a sum that goes on in backward": ("a = x * x\ny = a", "a += dy\ng = a * dy", ["a"]),
    "what is returned": ("a = x * x\ny = a * x", "g = dy * x\nreturns(a)\nreturns(y)", ["x"]),
    "what is freed": ("a = x * x\ny = a * x", "g = dy * x\nfree(a)", ["x"]),
    "a mask's key is drawn again": ("k = random(dp)\ny = dropout(x, k)", "g = dropout(dy, k)", []),
    "a part and what is gathered are tensors of their own": (
        "a = part(x, tp, dim=tokens)\nb = all_gather(a, tp)\ny = b",
        "g = dy * b * x\nh = part(dy, tp, dim=tokens) * a",
        ["x", "a", "b"],
    ),
    "degrees are numbers, and not kept": ("y = x / tp", "g = dy / tp", []),
    "a number for all": ("n = total(total(x * x, over=tokens), over=hidden)\ny = x / n", "g = dy / n", ["n"]),
}


@pytest.mark.parametrize("name", LIVES)
def test_what_lives_from_forward_to_backward(name: str) -> None:
    forward, backward, names = LIVES[name]
    program = read(f"{HEAD}{forward}\nreturns(y)\n{backward}\nreturns(dy, gradient_of=y, by=x, at=dy)\n")
    assert [k.name for k in kept(program)] == names


def test_a_name_stands_for_its_last_value() -> None:
    program = read(f"{HEAD}a = x * x\na = total(a, over=hidden)\ny = x * a\ng = dy * a\nreturns(g, gradient_of=y, by=x, at=dy)\n")
    assert [held(k) for k in kept(program)] == ["a: tokens"]


def test_a_choice_for_each_sample_is_no_other_name() -> None:
    """One choice for all samples is a way to call positions; a choice for each moves numbers."""
    for own in ("batch, ", ""):
        head = f"mesh(tp)\ntensor(x, {own}tokens, hidden)\ntensor(at, batch, keys, picks=tokens)\ntensor(dy, batch, keys, hidden)\n"
        text = "y = contract(hot(at), x, over=tokens)\nreturns(dy * y, gradient_of=y, by=y, at=dy)\n"
        assert [k.name for k in kept(read(head + text))] == ["y"]


def test_a_choice_along_what_is_split_is_no_other_name() -> None:
    head = "mesh(tp)\ntensor(x, tokens, hidden, tp=tokens)\ntensor(same, keys, picks=tokens)\ntensor(dy, keys, hidden)\n"
    text = "y = contract(hot(same), x, over=tokens)\nreturns(dy * y, gradient_of=y, by=y, at=dy)\n"
    assert [k.name for k in kept(read(head + text))] == ["y"]


def test_backward_begins_with_the_first_gradient() -> None:
    program = read(
        f"{HEAD}a = all_reduce(x, tp)\ng = all_reduce(dy * a, tp)\ny = all_reduce(x, tp)\nreturns(g, gradient_of=y, by=x, at=dy)\n"
    )
    assert [e.phase for e in exchanges(program)] == ["forward", "backward", "backward"]


def test_a_gradient_may_begin_with_what_the_program_makes() -> None:
    program = read(f"{HEAD}y = x * x\none = x ** 0\nreturns(2 * one * x, gradient_of=y, by=x, at=one)\n")
    assert [line.backward for line in lines(program)] == [False, True, True]
    assert [k.name for k in kept(program)] == ["x"]


def test_without_a_gradient_nothing_is_kept() -> None:
    program = read(f"{HEAD}y = all_reduce(x * x, tp)\nreturns(y)\n")
    assert kept(program) == ()
    assert [e.phase for e in exchanges(program)] == ["forward"]
