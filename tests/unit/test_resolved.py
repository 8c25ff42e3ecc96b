"""What a program leaves unsaid is filled in once, by one pass, and nothing else fills anything in."""

from __future__ import annotations

import ast
import json
import random
import re
from pathlib import Path

import pytest

import placeproof
from placeproof.blocks import BLOCKS
from placeproof.core.diagnostics import InputError
from placeproof.cost.derive import derive
from placeproof.programs import Call, For, Program, calls, read, render, statements
from placeproof.programs.ops import OPS
from placeproof.semantics.catalogue import compositions, read_block, variants
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.lower import lower
from placeproof.semantics.resolve import resolve
from placeproof.strategies import parse_strategy

PEOPLE = json.loads((Path(__file__).parents[1] / "data" / "people_programs.json").read_text())
STRATEGIES = {name: found for name, found in (*compositions(2), *variants()) if isinstance(found, Program)}
SOURCES = sorted(Path(placeproof.__file__).parent.rglob("*.py"))
UPDATE = "parameters, optimizer = update(parameters, optimizer, G)\n"


def _is_complete(program: Program) -> None:
    resolved = resolve(program)
    assert resolve(resolved) is resolved
    assert resolve(read(render(resolved))) == resolved  # its text says all that it is
    for call in (c for s in statements(resolved.body) for c in calls(s)):
        assert call.op not in ("broadcast", "reduce") or call.option("root") is not None
    domains = {(s.var, s.domain) for s in statements(resolved.body) if isinstance(s, For)}
    assert len(domains) == len({var for var, _ in domains})
    if not program.tensors:
        named = {p.state for p in resolved.placed}
        assert {"parameters", "optimizer"} <= named


@pytest.mark.parametrize("name", random.Random(1).sample(sorted(STRATEGIES), 60))
def test_strategies(name: str) -> None:
    _is_complete(STRATEGIES[name])


def test_programs_of_people_and_blocks() -> None:
    for name in BLOCKS:
        _is_complete(read_block(name))
    resolved = 0
    for row in PEOPLE.values():
        try:
            program = read(row["text"])
            resolve(program)
        except InputError:
            continue
        _is_complete(program)
        resolved += 1
    assert resolved > 600


ONE_NAME = """mesh(dp)
place(optimizer, dp=S)
for u in microbatches:
    G += backward(parameters, u)
G = scale(G, 1 / microbatches)
for u in units:
    h[u] = reduce_scatter(G[u], dp, op=mean)
    p[u], optimizer[u] = update(parameters[u], optimizer[u], h[u])
    parameters[u] = all_gather(p[u], dp)
"""


def test_a_variable_of_two_loops_is_two_variables() -> None:
    two = ONE_NAME.replace("for u in microbatches", "for i in microbatches").replace("(parameters, u)", "(parameters, i)")
    assert [judge(read(text)).word for text in (ONE_NAME, two)] == ["proved", "proved"]
    assert derive(read(ONE_NAME)).forms == derive(read(two)).forms
    assert judge(read(ONE_NAME.replace("1 / microbatches", "1")), shortest=False).word == "refuted"


def test_the_only_group_has_no_name() -> None:
    text = "mesh(dp)\ngroup(mine, P)\nG.mine = backward(parameters.mine)\nG = all_reduce(G.mine, dp, op=mean)\n" + UPDATE
    assert resolve(read(text)).body == resolve(read(text.replace(".mine", ""))).body
    assert judge(read(text)).word == "proved"


ROOTS = {
    "broadcast(parameters, dp)": "owner",
    "broadcast(optimizer, dp)": "owner",
    "reduce(backward(parameters), dp)": "owner",
    "reduce(square_norm(parameters), dp)": "0",
    "broadcast(tokens(), dp)": "0",
    "broadcast(data(), dp)": "0",
    "broadcast(parameters, dp, root=1)": "1",
    "reduce(tokens(), dp, root=2)": "2",
}


@pytest.mark.parametrize("call", ROOTS)
def test_a_root_is_always_said(call: str) -> None:
    resolved = resolve(read(f"mesh(dp)\nq = {call}\nG = all_reduce(backward(parameters), dp, op=mean)\n{UPDATE}"))
    (found,) = (c for s in statements(resolved.body) for c in calls(s) if c.op in ("broadcast", "reduce"))
    assert found.option("root") == ROOTS[call]


@pytest.mark.parametrize("line", ["send(x, pp)", "send(x, pp, to=0)", "send(x, pp, to=1.5)"])
def test_a_message_says_how_far_it_goes(line: str) -> None:
    with pytest.raises(InputError) as caught:
        read(f"mesh(pp)\nx = data()\n{line}\n")
    assert any("how many steps along the axis" in d.message for d in caught.value.diagnostics)


def test_nothing_but_the_pass_resolves() -> None:
    made = {path.name for path in SOURCES for node in ast.walk(ast.parse(path.read_text())) if _makes_one(node)}
    assert made == {"resolve.py"}


def _makes_one(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Resolved"


def test_no_reader_has_defaults_of_its_own() -> None:
    """An option is read with what the table says of it, and not beside an `or`, or a default, at the place that reads it."""
    beside = re.compile(r"""(?<!\btable)\.(?:option|choice)\(\s*["']\w+["']\s*(?:,|\)\s*or\s+["'][^"'])""")
    assert [str(path) for path in SOURCES if beside.search(path.read_text())] == []


@pytest.mark.parametrize("op", OPS)
def test_an_option_with_words_has_the_first_as_its_default(op: str) -> None:
    for option, words in OPS[op].options:
        if words:
            assert Call(op=op).choice(option) == words[0]
            assert Call(op=op, options=((option, words[-1]),)).choice(option) == words[-1]


PIPELINE = render(lower(parse_strategy("pp")))
UNPLACED = "".join(line for line in PIPELINE.splitlines(keepends=True) if not line.startswith("place("))


def test_a_stage_has_its_own_layers_unless_more_is_said() -> None:
    assert resolve(read(UNPLACED)).placed == resolve(read(PIPELINE)).placed
    assert derive(read(UNPLACED)).memory == derive(read(PIPELINE)).memory


@pytest.mark.parametrize("state", ["parameters", "optimizer", "gradients"])
def test_a_stage_has_no_copies_of_other_stages_layers(state: str) -> None:
    with pytest.raises(InputError) as caught:
        read(PIPELINE.replace(f'place({state}, pp="S")', f'place({state}, pp="R")'))
    (problem,) = caught.value.diagnostics
    assert problem.code == "PP303"
    assert problem.message.startswith(f"copies of {state} along `pp`")
