"""What a program means does not depend on what its loops, buffers, groups and axes are called."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from renaming import renamings

from placeproof.core.diagnostics import InputError
from placeproof.cost.derive import derive
from placeproof.programs import Program, read, render
from placeproof.semantics.catalogue import compositions, not_equivalent, read_not_equivalent, variants
from placeproof.semantics.judge.verdict import judge

NIGHTLY = os.environ.get("PLACEPROOF_PROFILE") == "nightly"
PEOPLE = json.loads((Path(__file__).parents[1] / "data" / "people_programs.json").read_text())
STRATEGIES = [(name, found) for name, found in (*compositions(2), *variants()) if isinstance(found, Program)]
#: These speak of an axis by a symbol of the notation.
BY_SYMBOL = {"sc_symbol_degree"}


def _word(program: Program) -> str:
    try:
        return judge(read(render(program), source="mine.step")).word
    except InputError as refused:
        return refused.diagnostics[0].code


def _same(program: Program, draw: random.Random, most: int) -> None:
    every = list(renamings(program))
    word = _word(program)
    for what, renaming in draw.sample(every, min(most, len(every))):
        assert _word(renaming.program(program)) == word, what


@pytest.mark.parametrize("name", random.Random(7).sample(sorted(set(PEOPLE) - BY_SYMBOL), 200 if NIGHTLY else 20))
def test_programs_of_people(name: str) -> None:
    try:
        program = read(PEOPLE[name]["text"], source="mine.step")
    except InputError:
        pytest.skip("it is refused")
    if program.tensors:
        pytest.skip("it is about tensors")
    _same(program, random.Random(name), 2)


@pytest.mark.parametrize(("name", "program"), random.Random(8).sample(STRATEGIES, 60 if NIGHTLY else 5))
def test_strategies(name: str, program: Program) -> None:
    _same(program, random.Random(name), 2)


@pytest.mark.parametrize("name", sorted(not_equivalent()))
def test_programs_that_are_not_equivalent(name: str) -> None:
    _same(read_not_equivalent(name), random.Random(name), 1)


@pytest.mark.parametrize(("name", "program"), random.Random(9).sample(STRATEGIES, 12))
def test_costs(name: str, program: Program) -> None:
    whole = derive(program).forms
    for what, renaming in renamings(program):
        if not what.startswith("axes"):  # whose names are in the formulas
            assert derive(read(render(renaming.program(program)), source="mine.step")).forms == whole, what


# Groups by other names than lowering gives them: two kinds of matrices in a block, and units of several groups.

TWO_MATRICES = """mesh(tp)
group(norm, P_norm)
group(attn, P / 2)
group(mlp, P / 2 - P_norm)
place(parameters.attn, tp="S")
place(parameters.mlp, tp="S")
place(optimizer.attn, tp="S")
place(optimizer.mlp, tp="S")
x = data()
for k in blocks:
    y, outer[k] = forward(parameters.norm[k], x)
    a, s.attn[k] = forward(parameters.attn[k], y)
    b, s.mlp[k] = forward(parameters.mlp[k], y)
    x = x + all_reduce(a + b, tp)
dx = loss(x)
for k in reversed(blocks):
    G.attn[k], da = backward(parameters.attn[k], s.attn[k], dx)
    G.mlp[k], db = backward(parameters.mlp[k], s.mlp[k], dx)
    G.norm[k], dn = backward(parameters.norm[k], outer[k], all_reduce(da + db, tp))
    dx = dx + dn
parameters, optimizer = update(parameters, optimizer, G)
"""
UNITS_OF_GROUPS = """mesh(dp)
group(attn, P / 2)
group(mlp, P / 2)
x = data()
for u in units:
    x, saved[u] = forward(parameters[u], x)
dx = loss(x)
for u in reversed(units):
    G[u], dx = backward(parameters[u], saved[u], dx)
G = all_reduce(G, dp, op=mean)
parameters, optimizer = update(parameters, optimizer, G)
"""
MISTAKES = {
    "one of the two is not added": (
        TWO_MATRICES,
        {"all_reduce(a + b, tp)": "all_reduce(a, tp)", "all_reduce(da + db, tp)": "all_reduce(da, tp)"},
    ),
    "one of the two is not reduced": (TWO_MATRICES, {"all_reduce(a + b, tp)": "all_reduce(a, tp) + b"}),
    "one gradient is lost": (TWO_MATRICES, {"all_reduce(da + db, tp)": "all_reduce(da, tp)"}),
    "one comes twice": (TWO_MATRICES, {"a + b": "a + a"}),
    "one group is not reduced": (UNITS_OF_GROUPS, {"G = all_reduce(G, dp, op=mean)": "G.attn = all_reduce(G.attn, dp, op=mean)"}),
    "the other is not": (UNITS_OF_GROUPS, {"G = all_reduce(G, dp, op=mean)": "G.mlp = all_reduce(G.mlp, dp, op=mean)"}),
}


@pytest.mark.parametrize("text", [TWO_MATRICES, UNITS_OF_GROUPS, UNITS_OF_GROUPS.replace("attn", "norm")])
def test_groups_of_any_name_are_proved(text: str) -> None:
    assert judge(read(text)).word == "proved"


@pytest.mark.parametrize("groups", [("attn", "mlp"), ("matrix", "mlp"), ("all", "matrix")])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_groups_of_any_name_are_refuted(mistake: str, groups: tuple[str, str]) -> None:
    text, changes = MISTAKES[mistake]
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    for old, new in zip(("attn", "mlp"), groups, strict=True):
        text = text.replace(old, new)
    assert judge(read(text), shortest=False).word == "refuted"


def test_a_block_computed_group_by_group_begins_with_norms() -> None:
    with pytest.raises(InputError) as caught:
        read(TWO_MATRICES.replace("(norm", "(ln").replace(".norm", ".ln"))
    (problem,) = caught.value.diagnostics
    assert (problem.code, "no group is the `norm`" in problem.message) == ("PP305", True)
