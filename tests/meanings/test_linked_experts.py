"""What the header of a linked program says of experts is held against its blocks."""

from __future__ import annotations

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.models import load
from placeproof.semantics.linked import link, read_linked, render_linked
from placeproof.strategies import parse_strategy

#: Strategies, each with what its header says of experts, something else, and what is said of that.
HEADERS = [
    ("ep(4) * tp(2) * sp", "experts=ep", 'experts="ep tp"', "has experts over `ep` and `tp`, and those of `moe.w1` lie over `ep`"),
    (
        "zero1(dp=ep) * tp(2) * sp * ep(4) * ep(tp)", 'experts="ep tp"', "experts=ep",
        "has experts over `ep`, and those of `moe.w1` lie over `ep` and `tp`",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("strategy", "own", "other", "said"), HEADERS)
def test_experts_lie_as_the_header_says(strategy: str, own: str, other: str, said: str) -> None:
    text = render_linked(link(load("mixtral-8x7b"), parse_strategy(strategy)))
    assert text.count(own) == 1
    assert render_linked(read_linked(text)) == text
    with pytest.raises(InputError) as refused:
        read_linked(text.replace(own, other))
    assert [said in d.message for d in refused.value.diagnostics] == [True], refused.value
