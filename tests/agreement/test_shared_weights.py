"""Weights that units of a step share: a root that has them is proved, what forgets a use or a sum is refuted, and nothing else is said."""

from __future__ import annotations

from functools import cache

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.models import load
from placeproof.semantics.judge.model import JudgedModel, judge_linked
from placeproof.semantics.linked import link, read_linked, render_linked
from placeproof.strategies import parse_strategy

#: All layers have the same feed-forward weights.
ALBERT = ("shared(table)", "shared(table, w1, w3, w2)")
TIED = ("gpt3-125m", "fsdp", ())
LAYERS = ("llama3-8b", "fsdp * tp * sp", (ALBERT,))


@cache
def text(model: str, strategy: str, edits: tuple[tuple[str, str], ...] = ()) -> str:
    found = render_linked(link(load(model), parse_strategy(strategy)))
    for old, new in edits:
        assert found.count(old) == 1
        found = found.replace(old, new)
    return found


PASSES = """\
x = data()
w = all_gather(parameters, dp)
x, activations = forward(w, x)
dx = loss(x)
gradients = reduce_scatter(backward(w, activations, dx), dp)
free(w)
"""


def in_the_root(model: str, strategy: str, edits: tuple[tuple[str, str], ...]) -> str:
    """The passes as one unit runs them that has all weights; the sums behind them stay."""
    found = text(model, strategy, edits)
    begin, end = found.index("x = data()"), found.index("gradients = scale")
    sums = "".join(f"{line}\n" for line in found[begin:end].splitlines() if line.startswith("gradients"))
    return found[:begin] + PASSES + sums + found[end:]


def judged(found: str, *edits: tuple[str, str]) -> JudgedModel:
    for old, new in edits:
        assert found.count(old) == 1
        found = found.replace(old, new)
    return judge_linked(read_linked(found))


@pytest.mark.parametrize("subject", [TIED, LAYERS])
def test_a_root_that_has_what_is_shared_is_proved(subject: tuple[str, str, tuple[tuple[str, str], ...]]) -> None:
    found = judged(in_the_root(*subject))
    assert found.word == "proved"
    assert found.undecided == found.not_asked == ()


@pytest.mark.parametrize("subject", [TIED, LAYERS])
@pytest.mark.parametrize(
    "edit",
    [
        ("reduce_scatter(backward(w, activations, dx), dp)", "part(backward(w, activations, dx), dp)"),
        ("reduce_scatter(backward(w, activations, dx), dp)", "reduce_scatter(backward(w, activations, dx), dp, op=mean)"),
        ("gradients = scale(gradients, 1 / dp)\n", ""),
        ("w = all_gather(parameters, dp)", "w = parameters"),
    ],
)
def test_what_it_forgets_is_refuted(subject: tuple[str, str, tuple[tuple[str, str], ...]], edit: tuple[str, str]) -> None:
    assert judged(in_the_root(*subject), edit).word == "refuted"


KEPT = text("gpt3-125m", "fsdp(root=keep)")


def test_a_root_that_is_kept_has_what_is_no_layer() -> None:
    found = judged(KEPT)
    assert found.word == "proved"
    assert found.not_asked == ()


@pytest.mark.parametrize(
    "edit",
    [
        (
            "gradients[0] = reduce_scatter(backward_weight(root, activations[0], dx), dp)",
            "gradients[0] = part(backward_weight(root, activations[0], dx), dp)",
        ),
        ("root = all_gather(parameters[0], dp)", "root = parameters[0]"),
    ],
)
def test_what_a_kept_root_forgets_is_refuted(edit: tuple[str, str]) -> None:
    assert judged(KEPT, edit).word == "refuted"


def test_a_root_that_is_freed_before_its_backward_is_refused() -> None:
    with pytest.raises(InputError, match="`root` is read after it was freed"):
        judged(KEPT, ("x, activations[0] = forward(root, x)\n", "x, activations[0] = forward(root, x)\nfree(root)\n"))


def test_of_units_of_which_one_has_a_table_it_is_said_what_is_not_asked() -> None:
    found = judged(text(*TIED))
    assert found.word == "proved"
    (said,) = found.not_asked
    assert said.startswith("which unit has `table`, that several share: one of them")
    assert "`fsdp(root=keep)`" in said


@pytest.mark.parametrize("strategy", ["fsdp", "fsdp(root=keep)", "fsdp * tp * sp"])
def test_of_layers_that_share_a_weight_nothing_is_proved_unit_by_unit(strategy: str) -> None:
    found = judged(text("llama3-8b", strategy, (ALBERT,)))
    assert found.word == "unknown"
    assert [t.split("`")[1] for t in found.undecided] == ["w1", "w3", "w2"]
    assert all("a step without units says who has it" in t for t in found.undecided)
