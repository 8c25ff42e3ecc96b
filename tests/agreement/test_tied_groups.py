"""Tied groups that an axis splits, in whole passes: the right is proved, the wrong refuted, and terms speak of their own elements."""

from __future__ import annotations

from pathlib import Path

import pytest

from placeproof.programs import read
from placeproof.prove.terms import Var
from placeproof.semantics.encode.context import NoMeaningError
from placeproof.semantics.encode.program import encode
from placeproof.semantics.encode.values import Scalar, Stream, Tensor, Value
from placeproof.semantics.encode.world import CHANNEL_AT, TOKEN_AT, World
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.lower import lower
from placeproof.semantics.resolve import resolve
from placeproof.strategies import parse_strategy

HEADER = """
mesh(dp, tp, pp)
group(dense, P - P_tied)
group(tied, P_tied, tied=pp)
place(parameters, tp="S")
place(optimizer, tp="S")
place(gradients, tp="S")
place(parameters.dense, pp="S", tp="S")
place(optimizer.dense, pp="S", tp="S")
place(gradients.dense, pp="S", tp="S")
"""
REDUCED = """
gradients = backward(parameters)
gradients.tied = tied_reduce(gradients.tied, pp)
gradients = scale(all_reduce(gradients, dp), 1 / dp)
"""
UPDATED = "parameters, optimizer = update(parameters, optimizer, gradients)\n"
BY_NORMS = """
dense = all_reduce(tensor_norms(parameters.dense, optimizer.dense, gradients.dense), tp)
tied = {tied}
parameters.dense, optimizer.dense = update_with(parameters.dense, optimizer.dense, gradients.dense, dense)
parameters.tied, optimizer.tied = update_with(parameters.tied, optimizer.tied, gradients.tied, tied)
"""
TIED_NORMS = "tensor_norms(parameters.tied, optimizer.tied, gradients.tied)"


def clipped(squares: str) -> str:
    squares = f"squares = {squares}\n"
    return (
        f"reference(clip=global_norm){REDUCED}{squares}gradients = scale(gradients, clip_factor(sqrt(all_reduce(squares, pp))))\n{UPDATED}"
    )


#: A table of which each device of tp finds a part of the gradient, at either end of the pipeline.
SHARED_OUT = HEADER.replace("tied=pp", "tied=pp, partial=tp").replace(
    'place(parameters, tp="S")\nplace(optimizer, tp="S")\nplace(gradients, tp="S")\n', ""
)
EXPERTS = """
mesh(ep, tp)
splits(ep="batch")
group(dense, P - P_expert)
group(expert, P_expert, experts=ep, partial=tp)
place(parameters.expert, ep="S")
place(optimizer.expert, ep="S")
place(gradients.expert, ep="S")
place(parameters.dense, tp="S")
place(optimizer.dense, tp="S")
place(gradients.dense, tp="S")
gradients = backward(parameters)
gradients.dense = all_reduce(gradients.dense, ep)
{}
gradients = scale(gradients, 1 / ep)
"""


def skipped(flag: str) -> str:
    update = UPDATED.replace("gradients)", "gradients, flag)")
    return f"reference(skip=not_finite){REDUCED}flag = all_reduce({flag}, pp, op=max)\n{update}"


def gathered(how: str) -> str:
    return REDUCED.replace("gradients = scale", f"gradients.tied = {how}\ngradients = scale") + UPDATED


PROVED = {
    "squares": clipped("all_reduce(square_norm(gradients, shared=first), tp)"),
    "squares by groups": clipped(
        "all_reduce(square_norm(gradients.dense), tp) + all_reduce(square_norm(gradients.tied, shared=first), tp)"
    ),
    "norms of tensors": f"reference(optimizer=tensor_norm){REDUCED}{BY_NORMS.format(tied=f'all_reduce({TIED_NORMS}, tp)')}",
    "flags": skipped("all_reduce(found_inf(gradients), tp, op=max)"),
    "gathered over tp": gathered("part(all_gather(gradients.tied, tp), tp)"),
    "gathered over pp": gathered("all_gather(gradients.tied, pp)"),
}
REFUTED = {
    "squares": clipped("square_norm(gradients, shared=first)"),
    "squares of the tied": clipped("all_reduce(square_norm(gradients.dense), tp) + square_norm(gradients.tied, shared=first)"),
    "squares of both copies": clipped("all_reduce(square_norm(gradients), tp)"),
    "norms of tied tensors": f"reference(optimizer=tensor_norm){REDUCED}{BY_NORMS.format(tied=TIED_NORMS)}",
    "flags of the tied": skipped("max(all_reduce(found_inf(gradients.dense), tp, op=max), found_inf(gradients.tied))"),
    "other parts": gathered("part(all_gather(gradients.tied, tp), tp, order=interleaved)"),
    "matrices in parts": f"reference(optimizer=matrix){REDUCED}{UPDATED}",
}


@pytest.mark.parametrize("name", PROVED)
def test_what_sums_over_the_axis_is_proved(name: str) -> None:
    assert judge(resolve(read(HEADER + PROVED[name], source=name))).word == "proved"


@pytest.mark.parametrize("name", REFUTED)
def test_what_does_not_is_refuted(name: str) -> None:
    assert judge(resolve(read(HEADER + REFUTED[name], source=name)), shortest=False).word == "refuted"


@pytest.mark.parametrize("how", ["tied_reduce(all_reduce(gradients.tied, tp), pp)", "all_reduce(tied_reduce(gradients.tied, pp), tp)"])
def test_parts_of_a_tied_gradient_are_added_up(how: str) -> None:
    text = SHARED_OUT + REDUCED.replace("tied_reduce(gradients.tied, pp)", how) + UPDATED
    assert judge(resolve(read(text, source="right"))).word == "proved"


@pytest.mark.parametrize("how", ["tied_reduce(gradients.tied, pp)", "all_reduce(gradients.tied, tp)"])
def test_parts_of_a_tied_gradient_that_are_not_are_refuted(how: str) -> None:
    text = SHARED_OUT + REDUCED.replace("tied_reduce(gradients.tied, pp)", how) + UPDATED
    assert judge(resolve(read(text, source="wrong")), shortest=False).word == "refuted"


@pytest.mark.parametrize(("how", "word"), [("gradients.expert = all_reduce(gradients.expert, tp)", "proved"), ("", "refuted")])
def test_parts_of_experts_gradients_are_added_up(how: str, word: str) -> None:
    assert judge(resolve(read(EXPERTS.format(how) + UPDATED, source="experts")), shortest=False).word == word


@pytest.mark.parametrize(
    "squares", ["for u in units:\n    squares += square_norm(gradients[u])", "squares = square_norm(gradients.tied[0])"]
)
def test_nothing_is_said_of_parts_of_the_model_that_may_have_tied_weights(squares: str) -> None:
    program = read(HEADER + "reference(clip=global_norm)" + REDUCED + "squares = 0\n" + squares + "\n" + UPDATED, source="parts")
    judged = judge(resolve(program))
    assert judged.word == "unknown"
    assert "nothing says in which part of the model tied weights lie, as those of `tied`" in str(judged.why)


def test_parts_of_the_other_group_are_spoken_of() -> None:
    squares = "squares = square_norm(gradients.tied, shared=first)\nfor u in units:\n    squares += square_norm(gradients.dense[u])\n"
    text = clipped("0").replace("squares = 0\n", squares)
    right = text.replace("all_reduce(squares, pp)", "all_reduce(all_reduce(squares, tp), pp)")
    assert judge(resolve(read(HEADER + right, source="parts"))).word == "proved"
    assert judge(resolve(read(HEADER + text, source="parts")), shortest=False).word == "refuted"


FOLDER = Path(__file__).parents[1]
FILES = [*(FOLDER / "programs").glob("*.step"), *(FOLDER / "bugs").glob("*.step")]
STRATEGIES = ("zero1 * tp * sp * pp", "fsdp * tp * clip", "zero2 * ep * tp", "hsdp * cp", "zero1 * accumulate")


def strays(world: World, value: Value) -> set[str]:
    """Variables in a value's terms that are neither a device's coordinate nor name an element of what the term is about."""
    own = {v.name for v in world.coordinates if isinstance(v, Var)}
    match value:
        case Tensor():
            return {v for g, p in value.pieces.items() for v in p.body.free - own - {e.name for e in world.element(g)}}
        case Stream():
            return {*(value.body.free - own - {TOKEN_AT.name, CHANNEL_AT.name})}
        case Scalar(of_tensors=False):
            return {*(value.body.free - own)}
    return set()


def test_no_term_names_what_is_not_its_own() -> None:
    """A variable that nothing binds is one of another term as soon as the two meet."""
    every = {**{f"proved {n}": HEADER + t for n, t in PROVED.items()}, **{f"refuted {n}": HEADER + t for n, t in REFUTED.items()}}
    programs = [read(text, source=name) for name, text in every.items()]
    programs += [read(file.read_text(), source=file.name) for file in sorted(FILES)]
    programs += [lower(parse_strategy(text)) for text in STRATEGIES]
    lines = 0
    for program in programs:
        try:
            encoding = encode(resolve(program))
        except NoMeaningError:
            continue
        world = World(encoding.program, encoding.options)
        for line in encoding.lines:
            for name, value in line.after.items():
                assert not strays(world, value), (program.name, line.stmt, name)
                lines += 1
    assert lines > 1000
