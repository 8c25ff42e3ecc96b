"""Buffers that are read and written part by part: which part a statement names is what the verdict must see.

Each named case was once proved though it trains something else, or is a near relative of one that was.
"""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_prove_against_brute_force import LONG, agree, differs

from placeproof.core.diagnostics import InputError
from placeproof.programs import read, render
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.lower import lower
from placeproof.strategies import parse_strategy

HEAD = 'mesh(dp)\nplace(parameters, dp="S*")\nplace(optimizer, dp="S")\nplace(gradients, dp="S")\n'
FORWARD = (
    "x = data()\nfor u in units:\n    w = all_gather(parameters[u], dp)\n    x, activations[u] = forward(w, x)\n    free(w)\ndx = loss(x)\n"
)
BACKWARD = """for u in reversed(units):
    w = all_gather(parameters[u], dp)
    gradients[u] = reduce_scatter(backward_weight(w, activations[u], dx), dp)
    dx = backward_input(w, activations[u], dx)
    free(w)
"""
SCALE = "gradients = scale(gradients, 1 / dp)\n"
UPDATE = "parameters, optimizer = update(parameters, optimizer, gradients)\n"
GOOD = HEAD + FORWARD + BACKWARD + SCALE + UPDATE
ROOT = (
    HEAD
    + """x = data()
root = all_gather(parameters[0], dp)
x, activations[0] = forward(root, x)
for u in units[1:]:
    w = all_gather(parameters[u], dp)
    x, activations[u] = forward(w, x)
    free(w)
dx = loss(x)
for u in reversed(units[1:]):
    w = all_gather(parameters[u], dp)
    gradients[u] = reduce_scatter(backward_weight(w, activations[u], dx), dp)
    dx = backward_input(w, activations[u], dx)
    free(w)
gradients[0] = reduce_scatter(backward_weight(root, activations[0], dx), dp)
free(root)
"""
    + SCALE
    + UPDATE
)
#: What is edited (old, new), and where a part is touched that is not this iteration's.
WRONG = {
    "only the first unit is scaled": (SCALE, "gradients[0] = scale(gradients[0], 1 / dp)\n"),
    "only the last unit is scaled": (SCALE, "gradients[-1] = scale(gradients[-1], 1 / dp)\n"),
    "all units but the first are scaled": (SCALE, "for u in units[1:]:\n    gradients[u] = scale(gradients[u], 1 / dp)\n"),
    "all units but the first are scaled, a unit ahead": (
        SCALE,
        "for u in units:\n    gradients[u + 1] = scale(gradients[u + 1], 1 / dp)\n",
    ),
    "what is there is halved in each iteration": (
        "for u in reversed(units):\n",
        "for u in reversed(units):\n    gradients = scale(gradients, 1 / 2)\n",
    ),
    "forward leaves the last unit's activations alone": ("x, activations[u] =", "x, activations ="),
    "each unit's activations go to the next": ("x, activations[u] =", "x, activations[u + 1] ="),
    "the first unit's gradient is doubled": (SCALE, SCALE + "gradients[0] = scale(gradients[0], 2)\n"),
    "the first unit's parameters are doubled": (UPDATE, UPDATE + "parameters[0] = scale(parameters[0], 2)\n"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_part_is_not_the_whole(name: str) -> None:
    old, new = WRONG[name]
    text = GOOD.replace(old, new)
    assert text != GOOD
    judged = judge(read(text))
    assert judged.word != "proved"
    if name != "each unit's activations go to the next":  # the last one's go nowhere: no device can run it to the end
        assert judged.word == "refuted"


def test_a_layer_loop_that_touches_its_whole_unit() -> None:
    text = render(lower(parse_strategy("zero3 * checkpoint")))
    line = "        x, saved = forward(w[l], x)\n"
    assert line in text
    assert judge(read(text)).word == "proved"
    assert judge(read(text.replace(line, line + "        gradients[u] = scale(gradients[u], 2)\n"))).word != "proved"


def test_activations_of_a_unit_are_not_those_of_its_layers() -> None:
    text = render(lower(parse_strategy("zero3 * tp")))
    kept = text.replace("activations.inner[k]", "activations.inner[u]", 1)
    assert kept != text
    assert judge(read(text)).word == "proved"
    assert judge(read(kept)).word != "proved"


def test_what_an_iteration_frees_the_next_one_cannot_read() -> None:
    text = render(lower(parse_strategy("fsdp(reshard_after_forward=false)")))
    assert judge(read(text)).word == "proved"
    with pytest.raises(InputError, match="read after it was freed"):
        read(text.replace("free(w[u])", "free(w)"))


GROUPS = """\
mesh(dp)
group(a, P - P_norm)
group(b, P_norm)
g = backward(parameters)
G.a = all_reduce(g.a, dp, op=mean)
free(g.a)
G.b = all_reduce(g.b, dp, op=mean)
parameters, optimizer = update(parameters, optimizer, G)
"""


def test_a_group_is_freed_by_itself() -> None:
    assert judge(read(GROUPS)).word == "proved"
    for wrong in ("g.a", "g"):
        with pytest.raises(InputError, match=r"`g\.a` is read after it was freed in line 6"):
            read(GROUPS.replace("all_reduce(g.b, dp", f"all_reduce({wrong}, dp"))
    with pytest.raises(InputError, match="`g` is read after it was freed in line 6"):
        read(GROUPS.replace("free(g.a)", "free(g)"))


def test_units_that_are_counted_are_as_many_in_every_run() -> None:
    text = render(lower(parse_strategy("zero3(unit=model)")))
    kept_whole = text.replace("x, activations[u] =", "x, activations =")
    assert kept_whole != text
    assert agree(read(kept_whole)) != "refuted"  # one unit: its activations are all of them


# A root unit that is computed apart.

KEPT = [
    "fsdp(root=keep)",
    "hsdp(root=keep)",
    "zero3(root=keep, bucket=unit)",
    "fsdp(root=keep, reshard_after_forward=2)",
    "fsdp(root=keep) * accumulate",
    "fsdp(root=keep) * checkpoint",
    "fsdp(root=keep) * pp",
    "fsdp(root=keep) * tp",
    "hsdp(root=keep) * tp * sp",
    "fsdp(root=keep, bucket=unit) * tp",
    "fsdp(root=keep) * tp * checkpoint",
    "fsdp(root=keep) * tp * sp * pp * checkpoint",
]


@pytest.mark.parametrize("expression", KEPT)
def test_a_root_that_stays_gathered_is_right(expression: str) -> None:
    program = lower(parse_strategy(expression))
    assert judge(program).word == "proved"
    assert read(render(program), source=program.name) == program


ROOT_WRONG = {
    "the root's gradient is left out": (r"gradients\[0\] = .*\n", ""),
    "the root's gradient is not reduced": (r"gradients\[0\] = reduce_scatter\((.*), dp\)", r"gradients[0] = part(\1, dp)"),
    "the loops walk over the root too": (r"units\[1:\]", "units"),
    "backward walks over the root too": (r"reversed\(units\[1:\]\)", "reversed(units)"),
    "the root is used before it is gathered": (r"root = all_gather\(parameters\[0\], dp\)", "root = parameters[0]"),
    "the last unit plays the root": (r"parameters\[0\]", "parameters[-1]"),
    "the root's gradient is scaled twice": (r"free\(root\)\n", "free(root)\ngradients[0] = scale(gradients[0], 1 / dp)\n"),
}


@pytest.mark.parametrize("name", ROOT_WRONG)
def test_a_root_that_is_mistreated_is_refuted(name: str) -> None:
    assert judge(read(ROOT)).word == "proved"
    text = re.sub(*ROOT_WRONG[name], ROOT)
    assert text != ROOT
    judged = judge(read(text))
    assert judged.word == "refuted"


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("for l in layers[1:]:", r"units\[1:\]"),
        ("for u in units[0]:", r"blocks\[0\]"),
        ("for u in units[2:]:", "a loop walks over"),
    ],
)
def test_only_the_first_unit_can_be_computed_apart(line: str, remedy: str) -> None:
    with pytest.raises(InputError) as caught:
        read(HEAD + f"{line}\n    zero(gradients)\n" + UPDATE)
    assert re.search(remedy, str([(d.message, d.help) for d in caught.value.diagnostics]))


# Random edits of which part is named, and of where a statement stands.

SUBJECTS = [
    "zero3",
    "zero3(prefetch=true)",
    "fsdp(reshard_after_forward=false)",
    "fsdp(root=keep)",
    "zero3 * accumulate",
    "fsdp(root=keep) * accumulate",
    "fsdp * pp",
    "zero3(bucket=unit)",
    "zero3 * checkpoint",
]
PARTS = ["[0]", "[-1]", "[u]", "[u + 1]", "[u - 1]", ""]
EXTRA = [
    "gradients[0] = scale(gradients[0], 1 / 2)",
    "gradients = scale(gradients, 1 / 2)",
    "parameters[0] = scale(parameters[0], 2)",
    "gradients[u] = scale(gradients[u], 2)",
    "gradients[u + 1] = scale(gradients[u + 1], 2)",
]
NAMED = re.compile(r"\b(parameters|gradients|activations|w)(\[(?:u|0|-1)(?: [+-] 1)?\])?(?![\w.\[])")


def edited(text: str, draw: random.Random) -> str:
    """The program with another part named, a statement moved, a loop's range changed, or a statement added."""
    lines = text.rstrip().split("\n")
    body = [i for i, line in enumerate(lines) if not re.match(r"(program|mesh|place|group|count|unit|inner)\(", line)]
    at, kind = draw.choice(body), draw.choice(["part", "part", "part", "move", "range", "add"])
    indent = " " * (len(lines[at]) - len(lines[at].lstrip()))
    if kind == "part":
        places = [(i, m) for i in body for m in NAMED.finditer(lines[i])]
        at, match = draw.choice(places)
        lines[at] = lines[at][: match.end(1)] + draw.choice(PARTS) + lines[at][match.end() :]
    elif kind == "move":
        lines.insert(draw.choice(body), indent + lines.pop(at).lstrip())
    elif kind == "range":
        lines[at] = lines[at].replace("units[1:]", "units") if "[1:]" in lines[at] else lines[at].replace("in units", "in units[1:]")
    else:
        lines.insert(at, indent + draw.choice(EXTRA))
    return "\n".join(lines) + "\n"


@settings(max_examples=LONG or 12)
@given(subject=st.sampled_from(SUBJECTS), seed=st.integers(0, 10**9))
def test_random_edits_of_parts(subject: str, seed: int) -> None:
    text = edited(render(lower(parse_strategy(subject))), random.Random(seed))
    try:
        program = read(text)
        judged = judge(program)
    except InputError:
        return
    if judged.word == "proved":
        assert not differs(program), text


# A step that does not end is not proved, whatever it would leave.

HANGS = """mesh(pp)
place(parameters, pp="S")
place(optimizer, pp="S")
place(gradients, pp="S")
if rank(pp) == 0:
    x = data()
else:
    x = recv(pp, source=-1)
x, activations = forward(parameters, x)
if rank(pp) == pp - 1:
    dx = loss(x)
else:
    dx = recv(pp, source=1)
if rank(pp) < pp - 1:
    send(x, pp, to=1)
gradients = backward_weight(parameters, activations, dx)
dx = backward_input(parameters, activations, dx)
if rank(pp) > 0:
    send(dx, pp, to=-1)
parameters, optimizer = update(parameters, optimizer, gradients)
"""
SENT_LATE = "if rank(pp) < pp - 1:\n    send(x, pp, to=1)\n"


def test_a_step_that_waits_for_what_it_has_not_sent_is_refuted() -> None:
    judged = judge(read(HANGS))
    assert judged.word == "refuted"
    before = HANGS.replace(SENT_LATE, "").replace("if rank(pp) == pp - 1:\n", SENT_LATE + "if rank(pp) == pp - 1:\n")
    assert judge(read(before)).word == "proved"
