"""Linked programs: a model's step as one text, which is derived as the model is."""

from __future__ import annotations

import json
import os
import random
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import pytest
import sympy

from placeproof.cli.main import run
from placeproof.core.diagnostics import InputError
from placeproof.core.symbols import symbol
from placeproof.cost.model import derive_model
from placeproof.cost.model.derivation import derive_linked
from placeproof.models import load, presets
from placeproof.programs import calls, render, statements
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.linked import Linked, link, read_linked, render_linked
from placeproof.semantics.linked.claims import left_partial, partial, with_sums, without_sums
from placeproof.semantics.linked.link import unlike
from placeproof.strategies import parse_strategy

NIGHTLY = os.environ.get("PLACEPROOF_PROFILE") == "nightly"

#: Strategies that differ in what a step does: every part of the catalogue is in one of them.
STRATEGIES = (
    "ddp",
    "fsdp",
    "fsdp(prefetch=true) * accumulate",
    "fsdp(root=keep)",
    "fsdp(reshard_after_forward=false)",
    "hsdp * tp * sp * cp * pp",
    "zero1 * tp * sp * pp",
    "zero2 * cp(attention=ring)",
    "zero3(8) * tp(2) * sp(norms=each)",
    "zero3 * checkpoint",
    "zeropp",
    "zero_offload * checkpoint(checkpoints=host)",
    "zero_infinity * accumulate(4)",
    "tp * zero_r * checkpoint",
    "tp",
    "cp(attention=ulysses)",
    "ddp * pp(schedule=interleaved, chunks=2)",
    "zero1 * tp * sp * pp(schedule=dualpipe)",
    "pp(schedule=zb-h1) * accumulate(8)",
    "pp(schedule=zb-v)",
)
WITH_EXPERTS = ("ddp * ep", "zero1 * ep * tp * sp", "fsdp * fsdp(dp=ep) * ep * pp", "zero1(4) * ep(experts=whole) * tp(2) * sp")
#: A choice of what is run every night: each model, and each strategy, several times.
DRAWN = random.Random(15)


def fitting(model: str, strategy: str) -> Linked | None:
    """The linked program; None where the model cannot be run that way."""
    try:
        found = link(load(model), parse_strategy(strategy))
        derive_linked(found)
    except InputError:
        return None
    return found


def cases() -> list[tuple[str, str]]:
    every = [(model, strategy) for model in presets() for strategy in STRATEGIES]
    every += [(model, strategy) for model in ("mixtral-8x7b", "deepseek-v3") for strategy in WITH_EXPERTS]
    if NIGHTLY:
        return every
    drawn = [(model, strategy) for model, strategy in every if model in ("llama3-8b", "gpt3-125m", "deepseek-v3")]
    return sorted({*DRAWN.sample(drawn, 15), *every[-2 * len(WITH_EXPERTS) :]})


@pytest.mark.parametrize(("model", "strategy"), cases())
def test_the_printed_program_is_derived_as_the_model_is(model: str, strategy: str) -> None:
    linked = fitting(model, strategy)
    if linked is None:
        with pytest.raises(InputError, match=r"layers differ|has none|shared out evenly"):
            derive_model(load(model), parse_strategy(strategy))
        return
    again = read_linked(render_linked(linked))
    assert again == linked
    assert render_linked(again) == render_linked(linked)
    expected, found = derive_model(load(model), parse_strategy(strategy)), derive_linked(again)
    assert found.forms == expected.forms
    assert [c.sent for c in found.costs] == [c.sent for c in expected.costs]
    assert [c.held for c in found.costs] == [c.held for c in expected.costs]


#: Widths, no two alike.
NUMBERS = {"b_theta": 2, "b_g": 3, "b_omega": 11, "b_a": 5, "b": 2, "m": 3}


def test_a_tied_table_is_in_the_root_unit_once() -> None:
    """Where the root is gathered apart it has what is no layer: of an embedding and a head with one table, one table."""
    d = derive_model(load("gpt3-125m"), parse_strategy("fsdp(2, root=keep)"))
    sent = [d.value(s.total, {name: Fraction(n) for name, n in NUMBERS.items()}) for s in d.costs[0].sent]
    assert all(n is not None and n > 0 for n in sent)


@pytest.mark.parametrize("model", presets() if NIGHTLY else {load(name).family: name for name in presets()}.values())
@pytest.mark.parametrize("strategy", ["cp", "cp(attention=ulysses)", "tp * sp * cp"])
def test_a_gradient_that_a_step_sums_is_a_sum(model: str, strategy: str) -> None:
    """Over an axis whose devices have tokens of their own: the whole gradient on each of them would be added up once too often.

    By day of one model of each family, which has its blocks.
    """
    try:
        linked = link(load(model), parse_strategy(strategy))
    except InputError as refused:
        assert "whole gradient" not in str(refused)
        return
    for block in linked.blocks.values():
        assert all("cp" in axes for axes in partial(block.program).values()), block.name


@lru_cache(maxsize=8)
def text_of(model: str, strategy: str) -> str:
    return render_linked(link(load(model), parse_strategy(strategy)))


SUBJECT = ("llama3-8b", "fsdp * tp * sp * pp")


def test_what_is_typed_into_a_program_is_derived() -> None:
    """Numbers follow from the text, from nothing else: twice as wide a feed-forward block, a collective that is sent twice."""
    text = text_of(*SUBJECT)
    before = derive_linked(read_linked(text))
    wider = derive_linked(read_linked(text.replace("size(ffn, f)", "size(ffn, 2 * f)")))
    for key, form in before.forms.items():
        assert sympy.expand(wider.forms[key] - form.xreplace({symbol("f"): 2 * symbol("f")})) == 0, key
    norms = "gradients.norm = all_reduce(gradients.norm, tp)\n"
    twice = derive_linked(read_linked(text.replace(norms, 2 * norms)))
    once = [c.traffic()["tp"] for c in before.costs]
    sums = [next(s.total for s in c.sent if s.about == "gradients of norms") for c in before.costs]
    assert [sympy.expand(c.traffic()["tp"] - a - b) for c, a, b in zip(twice.costs, once, sums, strict=True)] == [0] * len(once)
    with pytest.raises(InputError, match=r"0 `send\(to=1\)` meet 1"):
        read_linked(text.replace("send(x, pp, to=1)", "pass"))
    none = derive_linked(read_linked(text.replace(norms, "")))
    assert not [s for c in none.costs for s in c.sent if s.about == "gradients of norms"]


def test_the_mean_is_taken_once() -> None:
    """A head that an axis splits takes the mean of all its tokens: the step takes it over the other axes alone."""
    linked = link(load("mixtral-8x7b"), parse_strategy("ddp * ep * cp * accumulate"))
    (scaled,) = (c for s in statements(linked.step.body) for c in calls(s) if c.op == "scale")
    text = render(linked.step)
    assert "gradients = scale(gradients, 1 / (dp * microbatches))" in text
    assert scaled.args
    over = partial(linked.blocks["head"].program)
    assert {w: set(axes) for w, axes in over.items()} == {"w": {"cp", "ep"}}
    assert "all_reduce(total(total(nll ** 0, over=tokens), over=batch)" in render(linked.blocks["head"].program)


@pytest.mark.parametrize(("model", "strategy"), [("gpt3-125m", "tp * sp * cp"), ("deepseek-v3", "ep * tp * sp"), ("llama3-8b", "cp")])
def test_claims_are_printed_and_read_back(model: str, strategy: str) -> None:
    for block in link(load(model), parse_strategy(strategy)).blocks.values():
        assert left_partial(block.program) == block.program
        assert with_sums(without_sums(block.program)) == block.program
        assert set(partial(block.program)) == {w.name for w in block.weights}
        assert ("partial=" in render(without_sums(block.program))) == any(partial(block.program).values())


@pytest.mark.parametrize("strategy", ["ddp * tp * sp * cp", "tp"])
def test_blocks_of_a_linked_program_are_proved(strategy: str) -> None:
    """With the sums that the step takes of their gradients: what they claim is what it relies on."""
    again = read_linked(text_of("gpt3-125m", strategy))
    for name in ("layer_norm", "mlp_gpt", "embedding_learned"):
        assert judge(again.blocks[name].program).word == "proved", name


def test_weights_with_partial_gradients_are_those_that_the_step_sums() -> None:
    linked = link(load("gpt3-125m"), parse_strategy("fsdp * tp * sp"))
    summed = {(b.name, w) for b in linked.blocks.values() for w, axes in partial(b.program).items() if "tp" in axes}
    assert set(linked.members["norm"]) == summed
    assert {linked.group(*weight) for weight in summed} == {"norm"}
    assert {linked.group(*weight) for weight in set(linked.weights()) - summed} == {"matrix"}


def test_segments_that_come_in_turn_are_read_back() -> None:
    """And another order is another model's program."""
    llama4 = load("llama4", experts="every")
    linked = link(llama4, parse_strategy("fsdp"))
    text = render_linked(linked)
    assert text.count("stack(before, [first, second, third, fourth] * (L / 4), after)\n") == 1
    assert read_linked(text) == linked
    assert not list(unlike(linked, llama4))
    for stack in ("first * (L / 4), [second, third, fourth] * (L / 4)", "[first, third, second, fourth] * (L / 4)"):
        assert list(unlike(read_linked(text.replace("[first, second, third, fourth] * (L / 4)", stack)), llama4)), stack


#: A line of the program, what stands there instead, and what is said of it.
WRONG = (
    ("stack(before, layers * L, after)", "stack(before, layer * L, after)", "the segment `layer` is not defined"),
    ("stack(before, layers * L, after)", "stack(before, layers * L)", "nothing calls `after`"),
    ("stack(before, layers * L, after)", "stack(before, L - layers, after)", "a stack has segments"),
    ("stack(before, layers * L, after)", "stack(before, [layers] * L, after)", "a stack has segments"),
    ("stack(before, layers * L, after)", "stack(before, [layers, 2] * L, after)", "a stack has segments"),
    ("stack(before, layers * L, after)", "stack(before, [layers, layer] * L, after)", "the segment `layer` is not defined"),
    ("stack(before, layers * L, after)\n", "", "nothing says which segments the model has"),
    ("size(ffn, f)", "size(ffn, feed)", "there is no symbol `feed`"),
    ("size(ffn, f)", "size(f)", "a size is that of one dimension"),
    ("size(ffn, f)\n", "", "nothing says the size of `ffn`"),
    ("h=4096", "h=0", "a symbol of a model has a whole number"),
    ('pipeline(pp, schedule="1f1b", chunks=1)', 'pipeline(dp, schedule="1f1b", chunks=1)', "a pipeline is along the axis of stages"),
    ('pipeline(pp, schedule="1f1b", chunks=1)', 'pipeline(pp, schedule="1f2b", chunks=1)', "there is no schedule `1f2b`"),
    ('pipeline(pp, schedule="1f1b", chunks=1)', 'pipeline(pp, schedule="1f1b", chunks=0)', "`chunks` is a whole number"),
    ('pipeline(pp, schedule="1f1b", chunks=1)\n', "", "in which order the stages of `pp` take micro-batches"),
    ("group(norm, rms_norm.gain)", "group(norm, rms_norm.gian)", "there is no weight `rms_norm.gian`"),
    ("    weights(norm, gain)\n", "", "does not say what its weight `gain` is"),
    ("    weights(norm, gain)", "    weights(norms, gain)", "weights are of one of"),
    ("    weights(norm, gain)", "    weights(norm, gain, x)", "has no weight `x`"),
    ("    x = swiglu(x, n)", "    x = swiglu(n, x)", "`swiglu` reads and gives something else"),
    ("    x = swiglu(x, n)", "    x = swish(x, n)", "there is no block `swish`"),
    ("    x = swiglu(x, n)", "    x = x + n", "a segment calls blocks, one a line"),
    ("def head():", "def head(n):", "`head` is defined with more than its name"),
    ("def head():", "def swiglu():", "`swiglu` is defined twice"),
    (
        "    y = x + reduce_scatter(contract(a, w2, over=ffn), tp, dim=tokens)",
        "    y = x + contract(a, w3, over=ffn)",
        "their shapes do not fit",
    ),
    ("        dx = loss(x)", "        x = all_reduce(x, tp)\n        dx = loss(x)", "the step exchanges activations over `tp`"),
    ("chunks=1)", "chunks=1, depth=4)", "`pipeline` says no `depth`"),
    ("stack(before, layers * L, after)", "stack(before, layers * L, after, tail=2)", "`stack` says no `tail`"),
    ("values(", "values(h=8192, ", "`h` is said twice"),
    ("values(", "values(4, ", "a symbol of a model has a whole number"),
    ("at=dy, by=n, gradient_of=y", "at=dy, by=nn, gradient_of=y", "nothing is called `nn`"),
    ("zero(gradients)", "recompute(selective)\nzero(gradients)\nrecompute(norms)", "`recompute(...)` is said twice"),
    ("zero(gradients)", "recompute(everything)\nzero(gradients)", "there is no recomputation `everything`"),
    ("zero(gradients)", "ring(qq)\nzero(gradients)", "`qq` is none of what `ring` lists"),
    ("zero(gradients)", "stages(a)\nzero(gradients)", "`stages` lists whole numbers"),
    ("    dx = backward_input", "    dx = backwards_input", "there is no operation `backwards_input`"),
)


@pytest.mark.parametrize(("old", "new", "said"), WRONG)
def test_what_is_wrong_in_a_program_is_told_with_its_line(old: str, new: str, said: str) -> None:
    text = text_of(*SUBJECT)
    assert old in text
    with pytest.raises(InputError) as refused:
        derive_linked(read_linked(text.replace(old, new, 1), source="mine.step"))
    problems = refused.value.diagnostics
    assert any(said in problem.message for problem in problems), [p.message for p in problems]
    lines = text.replace(old, new, 1).splitlines()
    for place in (p.place for p in problems if p.place is not None and p.place.source == "mine.step"):
        assert place.text in lines[place.line - 1]


def test_places_are_in_letters_and_not_in_bytes() -> None:
    line = 'pipeline(pp, schedule="1f1b", 日本="é", depth=444)'
    text = text_of(*SUBJECT).replace('pipeline(pp, schedule="1f1b", chunks=1)', line)
    with pytest.raises(InputError) as refused:
        read_linked(text)
    shown = [p.text[p.column - 1 :][: p.length] for p in (d.place for d in refused.value.diagnostics) if p is not None and p.text == line]
    assert shown == ['"é"', "444"]


@pytest.mark.parametrize("seed", range(200 if NIGHTLY else 40))
def test_no_text_is_too_odd(seed: int) -> None:
    """Lines left out, doubled, exchanged and cut: a program, or problems; never anything else."""
    draw, lines = random.Random(seed), text_of(*SUBJECT).splitlines()
    for _ in range(draw.randint(1, 3)):
        at, other = draw.randrange(len(lines)), draw.randrange(len(lines))
        match draw.randrange(4):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[other])
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case _:
                words = lines[at].split(" ")
                lines[at] = " ".join(w for w in words if draw.random() > 0.2)
    try:
        found = read_linked("\n".join(lines) + "\n")
        derive_linked(found)
    except InputError as refused:
        assert refused.diagnostics
        return
    assert read_linked(render_linked(found)) == found


# The command line.


def test_the_command_prints_what_it_derives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subject = ["derive", "fsdp(4) * tp(2) * sp * pp(4)", "--model", "llama3-8b", "--recompute", "selective+norms", "--stages", "7,9,9,7"]
    assert run([*subject, "--program"]) == 0
    text = capsys.readouterr().out
    path = tmp_path / "mine.step"
    path.write_text(text)
    assert run(["derive", str(path), "--program"]) == 0
    assert capsys.readouterr().out == text
    found = []
    for command in (subject, ["derive", str(path)]):
        assert run([*command, "--set", "b=1", "--set", "m=8", "--precision", "mixed-adam", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]
    assert run(["derive", str(path), "--set", "b=1"]) == 0
    assert "llama3-8b under fsdp(4) * tp(2) * sp * pp(4)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["derive", "FILE", "--stages", "8,8,8,8"], "`--stages` does not go with a model's program"),
        (["derive", "FILE", "--recompute", "full"], "`--recompute` does not go with a model's program"),
        (["derive", "FILE", "--groups"], "`--groups` does not go with a model's program"),
        (["derive", "FILE", "--groups", "--shards", "dp=1:1"], "`--shards` and `--groups` do not go with a model's program"),
        (["prove", "FILE", "--against", "ddp"], "`--against` does not go with a model"),
        (["compare", "FILE", "ddp"], "defines the blocks of a model beside its step"),
    ],
)
def test_what_does_not_go_together_is_said(options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.step"
    path.write_text(text_of(*SUBJECT))
    assert run([str(path) if o == "FILE" else o for o in options]) == 2
    assert said in capsys.readouterr().err
