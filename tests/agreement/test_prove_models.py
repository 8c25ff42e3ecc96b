"""`prove --model`: blocks against their contracts, and the step for all blocks that keep theirs."""

from __future__ import annotations

import json
import random
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate
from linked_mutants import Edit, mutant, places
from samples import NIGHTLY, parts, sample

from placeproof.cli.main import run
from placeproof.core.diagnostics import InputError
from placeproof.models import load, presets
from placeproof.programs import Program, read
from placeproof.semantics.catalogue import compositions, variants
from placeproof.semantics.judge import model as judge_model
from placeproof.semantics.judge.model import JudgedModel, judge_linked
from placeproof.semantics.judge.ranges import read_ranges
from placeproof.semantics.judge.verdict import Judged, judge
from placeproof.semantics.linked import link, read_linked, render_linked
from placeproof.semantics.linked.contract import against_contracts, contract_of
from placeproof.semantics.resolve import resolve
from placeproof.semantics.tensors.alone import coupled
from placeproof.strategies import parse_strategy

SCHEMA = Path(__file__).parents[2] / "docs/reference/prove-model.schema.json"
DRAWN = random.Random(5)


@lru_cache(maxsize=8)
def text(model: str, strategy: str) -> str:
    return render_linked(link(load(model), parse_strategy(strategy)))


def judged(model: str, strategy: str, *edits: tuple[str, str]) -> JudgedModel:
    found = text(model, strategy)
    for old, new in edits:
        assert found.count(old) == 1, old
        found = found.replace(old, new)
    return judge_linked(read_linked(found))


# What is right is proved.


def subjects() -> list[tuple[str, str]]:
    """Models and all that the catalogue composes of one and two strategies, with their options: in each run three models, each under each
    strategy in some composition; all every night."""
    texts = [name for name, program in (*compositions(2), *variants()) if isinstance(program, Program)]
    models = presets() if NIGHTLY else ("llama3-8b", "gpt3-125m", "mixtral-8x7b")
    every = [(model, name) for model in models for name in texts]
    return sample(every, lambda case: {(case[0], part.partition("(")[0]) for part in parts(case[1])})


@pytest.mark.parametrize(("model", "strategy"), subjects())
def test_models_are_proved_under_the_catalogue(model: str, strategy: str) -> None:
    try:
        linked = link(load(model), parse_strategy(strategy))
    except InputError as refused:
        words = (
            "has none",
            "layers differ",
            "steps sum it",
            *(("adapter",) if "lora" in strategy else ()),
            *(("no matrix",) if "muon" in strategy else ()),
            *(("has no parameters",) if "router" in strategy else ()),
        )
        assert any(word in str(refused) for word in words), refused
        return
    found = judge_linked(linked, load(model))
    assert found.word == "proved", [(name, v.why) for name, v in found.named if v.word != "proved"]
    assert all(verdict.confirmed is not None for verdict in found.parts)


@pytest.mark.parametrize(
    ("model", "strategy"),
    [
        ("llama3-405b", "hsdp * tp * sp * cp * pp"),
        ("deepseek-v3", "fsdp * fsdp(dp=ep) * ep * tp * sp"),
        ("gpt3-175b", "zero3 * tp * sp * pp"),
        ("bloom-176b", "zero1(48) * tp(4) * pp(12)"),
        ("llama3-8b", "zero3(8) * tp(2) * sp(norms=each)"),
        ("gpt3-125m", "zero1 * tp * pp(schedule=dualpipe)"),
    ],
)
def test_what_systems_run_is_proved(model: str, strategy: str) -> None:
    found = judge_linked(link(load(model), parse_strategy(strategy)), load(model))
    assert found.word == "proved"
    assert not found.breaches


def test_a_step_says_of_each_group_what_all_of_its_weights_have_in_common() -> None:
    step = against_contracts(read_linked(text("llama3-8b", "zero1 * tp * pp")))
    assert [(g.name, g.partial) for g in step.groups] == [("embedding_table", ()), ("rms_norm_gain", ())]
    modes = {(p.state, p.group): dict(p.modes) for p in step.placed}
    assert str(modes["parameters", "embedding_table"]["tp"]) == "S"
    assert "tp" not in modes["parameters", "rms_norm_gain"]
    assert all(str(of["pp"]) == "S" for of in modes.values())


def test_what_no_proof_speaks_of_is_listed() -> None:
    found = judge_linked(link(load("llama3-8b"), parse_strategy("cp(attention=ring) * pp"), recompute=("selective",)))
    assert found.word == "proved"
    assert [text.split()[0] for text in found.not_asked] == ["keys", "backward", "the"]
    assert judge_linked(link(load("llama3-8b"), parse_strategy("fsdp * tp"))).not_asked == ()


def test_a_contract_is_what_a_block_says() -> None:
    contract = contract_of(read_linked(text("llama3-8b", "fsdp * tp * sp * cp")).blocks["rms_norm"])
    assert str(contract.weights["gain"]) == "the gradient is a sum over `cp` and `tp`"
    assert contract.reads == {"x": {"batch": (), "hidden": (), "tokens": ("cp", "tp")}}
    assert contract.gives == "n"


# What is wrong is not.

WRONG = {
    "a sum of the norm's gradients that is left out": ("gradients.norm = all_reduce(gradients.norm, tp)\n", ""),
    "the same for all weights": ("gradients.norm = all_reduce(gradients.norm, tp)", "gradients = all_reduce(gradients, tp)"),
    "a mean over tokens that blocks take already": ("1 / dp)", "1 / (dp * tp))"),
    "a claim without what is left to add up": (", by=gain, gradient_of=n, partial=tp)", ", by=gain, gradient_of=n)"),
    "a loss that is a sum over tokens": (
        "y = all_reduce(total(total(nll, over=tokens), over=batch), tp) / targets",
        "y = all_reduce(total(total(nll, over=tokens), over=batch), tp)",
    ),
    "a stream that is not scattered": (
        "y = x + reduce_scatter(contract(a, w2, over=ffn), tp, dim=tokens)",
        "y = all_gather(x, tp) + all_reduce(contract(a, w2, over=ffn), tp)",
    ),
    "a weight that gets no gradient": (
        "    returns(total(contract(n_full_2, dlogits, over=tokens), over=batch), at=dy, by=w, gradient_of=y)\n",
        "",
    ),
    "a gradient that misses a path": (
        "dn = reduce_scatter(contract(dg, w1, over=ffn) + contract(du, w3, over=ffn), tp, dim=tokens)",
        "dn = reduce_scatter(contract(dg, w1, over=ffn), tp, dim=tokens)",
    ),
    "a norm that is given to no one": ("    returns(dh * rms + 2 * bend * x / size, at=dn, by=x, gradient_of=n)\n", ""),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_people_forget_is_refuted(what: str) -> None:
    assert judged("llama3-8b", "fsdp * tp * sp", WRONG[what]).word == "refuted"


def test_the_edits_are_of_a_program_that_is_proved() -> None:
    assert judged("llama3-8b", "fsdp * tp * sp").word == "proved"


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ((", by=w1, gradient_of=y)", ", by=w1, gradient_of=a)"), "of something else than what it gives"),
        (
            ("over=tokens), over=batch), at=dy, by=w2, gradient_of=y)", "over=tokens), over=batch), at=dy, by=w1, gradient_of=y)"),
            "no gradient by `w2`",
        ),
    ],
)
def test_a_breach_says_what_a_block_lacks(edit: tuple[str, str], said: str) -> None:
    found = judged("llama3-8b", "fsdp * tp * sp", edit)
    assert found.word == "refuted"
    assert said in " ".join(b.text for b in found.breaches), found.breaches


MUTATED = ("llama3-8b: fsdp * tp * sp", "gpt3-125m: zero1 * tp * pp", "mixtral-8x7b: ddp * ep * tp * sp")


@lru_cache(maxsize=1)
def edits() -> list[tuple[str, Edit, int]]:
    """Programs with an edit of one place: a few in each run, all every night. None is made before it is judged."""
    places_of = [(subject, *place) for subject in MUTATED for place in places(text(*subject.split(": ")))]
    return places_of if NIGHTLY else DRAWN.sample(places_of, 14)


@pytest.mark.parametrize("number", range(len(edits()) if NIGHTLY else 14))
def test_edits_of_one_place_are_not_proved(number: int) -> None:
    subject, edit, place = edits()[number]
    what, changed = mutant(text(*subject.split(": ")), edit, place)
    try:
        word = judge_linked(read_linked(changed)).word
    except InputError:
        return
    assert word == "refuted" or what in UNDECIDED, (subject, what, word)


#: Edits after which dimensions no longer fit, so that a block cannot be followed.
UNDECIDED = ("no_seed 0: dout = hot(route) * gate",)


# Weights that the first and the last stage share.

TIED = """\
mesh(dp, pp)
group(matrix, P - P_norm)
group(table, P_norm, tied=pp)
place(parameters, dp="{}", pp="S")
place(optimizer, dp="S", pp="S")
place(gradients, dp="{}", pp="S")
zero(gradients)
for i in microbatches:
    if rank(pp) == 0:
        x = data(i)
    else:
        x = recv(pp, source=-1)
    x, kept = forward(parameters, x)
    if rank(pp) < pp - 1:
        send(x, pp, to=1)
    if rank(pp) == pp - 1:
        dx = loss(x)
    else:
        dx = recv(pp, source=1)
    gradients += backward_weight(parameters, kept, dx)
    dx = backward_input(parameters, kept, dx)
    if rank(pp) > 0:
        send(dx, pp, to=-1)
{}
gradients = scale(gradients, 1 / (dp * microbatches))
parameters, optimizer = update(parameters, optimizer, gradients)
parameters = all_gather(parameters, dp)
"""


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ("gradients.table = tied_reduce(gradients.table, pp)\ngradients = reduce_scatter(gradients, dp)", "proved"),
        ("gradients = reduce_scatter(gradients, dp)", "refuted"),
        ("gradients.table = tied_reduce(gradients.table, pp, op=mean)\ngradients = reduce_scatter(gradients, dp)", "refuted"),
        ("gradients = reduce_scatter(gradients, dp)\ngradients.table = tied_reduce(gradients.table, pp)", "refuted"),
        ("gradients.table = tied_reduce(tied_reduce(gradients.table, pp), pp)\ngradients = reduce_scatter(gradients, dp)", "refuted"),
        (
            "gradients = reduce_scatter(gradients, dp)\ngradients.table = part(tied_reduce(all_gather(gradients.table, dp), pp), dp)",
            "proved",
        ),
    ],
)
def test_shared_weights_are_added_up_once_and_whole(lines: str, word: str) -> None:
    assert judge(read(TIED.format("R", "R", lines)), shortest=False).word == word


def test_one_stage_has_nothing_to_add_up() -> None:
    lines = "gradients.table = tied_reduce(gradients.table, pp)\ngradients = reduce_scatter(gradients, dp)"
    assert judge(read(TIED.format("R", "R", lines).replace("mesh(dp, pp)", "mesh(dp, pp=1)"))).word == "proved"


# Calls of blocks.

CALLS = """\
mesh(dp, tp, cp)
splits(tp="blocks", cp="blocks")
group(matrix, P - P_norm, partial=cp)
group(norm, P_norm, partial="cp tp")
place(parameters.matrix, tp="S")
place(optimizer.matrix, tp="S")
place(gradients.matrix, tp="S")
x, kept = forward(parameters, data())
gradients = backward_weight(parameters, kept, loss(x))
{}
gradients = scale(all_reduce(gradients, dp), 1 / dp)
parameters, optimizer = update(parameters, optimizer, gradients)
"""
BOTH = "gradients.norm = all_reduce(gradients.norm, tp)\ngradients = all_reduce(gradients, cp)"


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        (BOTH, "proved"),
        ("gradients = all_reduce(gradients, cp)\ngradients.norm = all_reduce(gradients.norm, tp)", "proved"),
        ("gradients = all_reduce(gradients, cp)", "refuted"),
        ("gradients.norm = all_reduce(gradients.norm, tp)", "refuted"),
        ("gradients.norm = all_reduce(gradients.norm, cp, tp)", "refuted"),
        ("gradients.norm = all_reduce(gradients.norm, tp, op=mean)\ngradients = all_reduce(gradients, cp)", "refuted"),
        ("gradients = all_reduce(gradients, cp, tp)", "refuted"),
        (f"{BOTH}\ngradients = scale(gradients, 1 / cp)", "refuted"),
    ],
)
def test_calls_leave_gradients_as_groups_say(lines: str, word: str) -> None:
    assert judge(read(CALLS.format(lines)), shortest=False).word == word


def test_a_call_is_given_what_its_group_says() -> None:
    gathered = CALLS.replace("forward(parameters, data())", "forward(w, data())").replace(
        "backward_weight(parameters,", "backward_weight(w,"
    )
    gathered = gathered.replace("x, kept", "w = all_gather(parameters, tp)\nx, kept")
    assert judge(read(gathered.format(BOTH))).word != "proved"
    sharded = CALLS.replace('parameters.matrix, tp="S"', 'parameters.matrix, dp="S*", tp="S"').format(BOTH)
    assert judge(read(sharded)).word != "proved"


def test_a_whole_block_needs_all_tokens() -> None:
    """Tokens attend to one another: a part of them is not enough, though a run without attention would not notice."""
    program = CALLS.format(BOTH).replace("data()", "part(data(), tp)")
    assert judge(read(program)).word != "proved"
    hidden = "mesh(tp)\nx, kept = forward(parameters, part(data(), tp))\ng = backward_weight(parameters, kept, loss(x))\n{}\n"
    hidden += "parameters, optimizer = update(parameters, optimizer, g)\n"
    assert judge(read(hidden.format("")), shortest=False).word == "refuted"
    assert judge(read(hidden.format("g = all_reduce(g, tp)"))).word != "proved"


def test_devices_of_a_call_come_to_it_together() -> None:
    called = "x, kept = forward(parameters, {})"
    apart = f"x = data()\nif rank(tp) == 0:\n    {called.format('x')}\nelse:\n    {called.format('x')}"
    program = CALLS.replace(called.format("data()"), apart)
    assert judge(read(program.format(BOTH))).word != "proved"


# Files, and their models.


def test_a_file_that_names_a_model_is_held_against_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What one device runs is the model that the file names, or that is named beside it; of any other name, what is in the file."""
    file, found = tmp_path / "mine.step", text("llama3-8b", "zero1 * tp")
    edits = {
        "another activation": ("silu", "gelu", "one device runs the block of the model"),
        "another residual": (
            "y = x + all_reduce(contract(a, w2, over=ffn), tp)",
            "y = n + all_reduce(contract(a, w2, over=ffn), tp)",
            "`y`",
        ),
        "twice as many layers": ("layers * L,", "layers * (2 * L),", "how often `layers` is repeated"),
        "a wider block": ("size(ffn, f)", "size(ffn, 2 * f)", "the size of `ffn`"),
        "a norm less": ("    n = rms_norm(x)\n    x = swiglu(x, n)", "    x = swiglu(x, n)", "the blocks of the stack"),
    }
    file.write_text(found)
    assert run(["prove", str(file), "--model", "llama3-8b"]) == 0
    assert "not asked" not in capsys.readouterr().out
    assert run(["prove", str(file)]) == 0
    assert "One device runs llama3-8b, which the file says that it is" in capsys.readouterr().out
    for old, new, said in edits.values():
        assert old in found
        file.write_text(found.replace(old, new))
        assert run(["prove", str(file)]) == 1
        assert said in capsys.readouterr().out
    file.write_text(found.replace("silu", "gelu").replace('model("llama3-8b"', 'model("mine"'))
    assert run(["prove", str(file)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{file}: proved")
    assert "One device runs the blocks of this file: there is no model `mine`" in shown
    assert run(["prove", str(file), "--model", "llama3-8b"]) == 1
    assert "one device runs the block of the model" in capsys.readouterr().out


ALBERT = (("shared(table)", "shared(table, w1, w3, w2)"),)


def test_what_stages_share_is_added_up_by_the_step_or_the_program_is_refuted() -> None:
    assert judged("llama3-8b", "ddp * pp", *ALBERT).word == "refuted"
    assert judged("llama3-8b", "ddp * tp", *ALBERT).word == "proved"
    untied = text("gpt3-125m", "ddp * pp")
    assert judge_linked(read_linked(untied)).word == "proved"
    lines = [line for line in untied.splitlines() if "tied" not in line or ("head_tied" in line and "group" not in line)]
    found = judge_linked(read_linked("\n".join(lines).replace(".dense", "").replace("group(dense, P - P_tied)\n", "")))
    assert found.word == "refuted"
    assert "no group that is tied has it" in found.breaches[0].text


def test_of_units_that_share_a_weight_nothing_is_proved() -> None:
    found = judged("llama3-8b", "fsdp", *ALBERT)
    assert found.word == "unknown"
    assert found.undecided[0].startswith("every unit has `w1`, which is one tensor, and each writes its gradient (")
    assert "which unit has `table`" in judge_linked(link(load("gpt3-125m"), parse_strategy("fsdp"))).not_asked[0]


def test_between_stages_goes_the_stream_alone() -> None:
    edits = (
        ("    x = embedding()\n", "    x = embedding()\n    n = rms_norm(x)\n"),
        ("    n = rms_norm(x)\n    x = attention_flash(x, n)\n", "    x = attention_flash(x, n)\n"),
        ("    x = swiglu(x, n)\n", "    x = swiglu(x, n)\n    n = rms_norm(x)\n"),
        ("    n = rms_norm(x)\n    x = head(n)", "    x = head(n)"),
    )
    assert judged("llama3-8b", "ddp", *edits).word == "proved"
    assert judged("llama3-8b", "fsdp", *edits).word == "proved"
    found = judged("llama3-8b", "ddp * pp", *edits)
    assert found.word == "refuted"
    assert "between stages goes the stream alone" in found.breaches[0].text


def test_a_range_that_leaves_one_degree_is_one_of_the_blocks_too() -> None:
    found = read_linked(
        text("llama3-8b", "zero1 * tp").replace("y = x + all_reduce(contract(a, w2, over=ffn), tp)", "y = x + contract(a, w2, over=ffn)")
    )
    assert judge_linked(found).word == "refuted"
    assert judge_linked(found, ranges=read_ranges(["N_tp == 1"], found.step)).word == "proved"


def test_all_of_the_stages_that_share_a_weight_are_not_summed() -> None:
    lines = "gradients.table = all_reduce(gradients.table, pp)\ngradients = reduce_scatter(gradients, dp)"
    assert judge(read(TIED.format("R", "R", lines))).word == "unknown"


def test_a_weight_that_heads_share_is_summed_by_the_step(tmp_path: Path) -> None:
    """Without sequence parallelism, too: each device finds a part of its gradient, that of its own heads."""
    block = """tensor(x, batch, tokens, hidden)
tensor(n, batch, tokens, hidden)
tensor(w, hidden, heads, width)
tensor(gain, width)
tensor(wo, heads, width, hidden)
tensor(dy, batch, tokens, hidden)
q = contract(n, w, over=hidden)
s = q * gain
y = x + total(contract(s, wo, over=width), over=heads)
returns(y)
returns(dy, gradient_of=y, by=x, at=dy)
returns(total(contract(s, dy, over=tokens), over=batch), gradient_of=y, by=wo, at=dy)
ds = contract(dy, wo, over=hidden)
returns(total(total(total(ds * q, over=tokens), over=batch), over=heads), gradient_of=y, by=gain, at=dy)
dq = ds * gain
returns(total(contract(n, dq, over=tokens), over=batch), gradient_of=y, by=w, at=dy)
returns(total(contract(dq, w, over=width), over=heads), gradient_of=y, by=n, at=dy)
"""
    (tmp_path / "scaled.step").write_text(block)
    family = """name = "mine"
title = "t"
source = "s"
[dims]
batch = "b"
tokens = "s"
hidden = "h"
heads = "a"
width = "h/a"
vocab = "V"
[stack.before]
blocks = ["embedding"]
[stack.layers]
times = "L"
blocks = ["rms_norm", "scaled.step"]
[stack.after]
blocks = ["rms_norm", "head"]
"""
    path = tmp_path / "mine.toml"
    path.write_text(family)
    for strategy in ("zero1 * tp", "fsdp * tp * pp", "zero3 * tp * sp * cp", "ddp * tp * sp(norms=each)"):
        linked = link(load(path), parse_strategy(strategy))
        assert ("scaled", "gain") in linked.members["norm"]
        assert judge_linked(linked, load(path)).word == "proved", strategy


# Samples.


def test_blocks_treat_each_sample_by_itself_and_a_loss_is_their_mean() -> None:
    seen: dict[str, bool] = {}
    for name in ("llama3-8b", "gpt3-125m", "mixtral-8x7b", "deepseek-v3", "bloom-176b"):
        model = load(name)
        for block in (b for s in model.segments for b in s.blocks):
            seen[block.name] = coupled(resolve(block.program), loss=block is model.segments[-1].blocks[-1]) is None
    assert len(seen) > 10
    assert all(seen.values()), seen


SUM = "tensor(x, batch, hidden)\ntensor(dy)\ny = total(total(x ** 2, over=hidden), over=batch){}\nreturns(y)\n"


@pytest.mark.parametrize(("over", "fine"), [("", False), (" / total(total(x ** 0, over=hidden), over=batch)", True)])
def test_a_sum_is_no_mean(over: str, fine: bool) -> None:
    assert (coupled(resolve(read(SUM.format(over))), loss=True) is None) is fine


HEAD = """tensor(n, batch, hidden)
tensor(target, batch, picks=vocab)
tensor(w, hidden, vocab)
tensor(wt, batch)
tensor(dy)
logits = contract(n, w, over=hidden)
shifted = logits - elementwise(stop, {top})
z = total(elementwise(exp, shifted), over=vocab)
nll = elementwise(log, z) - contract(hot(target), shifted, over=vocab)
y = total(nll{weight}, over=batch) / total(nll ** 0, over=batch)
returns(y)
"""


@pytest.mark.parametrize(
    ("top", "weight", "fine"),
    [
        ("largest(logits, over=vocab)", "", True),
        ("largest(largest(logits, over=vocab), over=batch)", "", True),  # any shift leaves a softmax as it is
        ("largest(logits, over=vocab)", " * wt", True),
        ("largest(logits, over=vocab)", " * (wt / total(wt, over=batch))", False),
        ("largest(logits, over=vocab)", " * total(wt, over=batch)", False),
    ],
)
def test_logarithms_are_asked_in_fractions(top: str, weight: str, fine: bool) -> None:
    """Residues have none that is more than a name."""
    shown = coupled(resolve(read(HEAD.format(top=top, weight=weight))), loss=True)
    assert (shown is None) is fine
    assert shown is None or shown.sure


def test_samples_that_meet_are_noticed() -> None:
    block = "tensor(x, batch, hidden)\ny = x - total(x, over=batch)\nreturns(y)\n"
    shown = coupled(resolve(read(block)), loss=False)
    assert shown is not None
    assert shown.sure
    assert shown.text == "`y` of two samples is not what each sample gives by itself"


# The command.


def test_the_command_says_it_block_by_block(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prove", "fsdp * tp * sp", "--model", "llama3-8b"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("llama3-8b under fsdp * tp * sp: proved for N_dp >= 1, N_tp >= 1\n")
    assert "  rms_norm         proved: 5 of 5 obligations, 5 runs agree\n" in said
    assert "gain: the gradient is a sum over `tp`" in said


def test_json_has_its_schema(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "wrong.step"
    file.write_text(text("llama3-8b", "fsdp * tp * sp").replace("1 / dp)", "1 / (dp * tp))"))
    for arguments, code in ((["fsdp * tp", "--model", "llama3-8b"], 0), ([str(file)], 1)):
        assert run(["prove", *arguments, "--json"]) == code
        document = json.loads(capsys.readouterr().out)
        validate(document, json.loads(SCHEMA.read_text()))
        assert (document["verdict"] == "proved") is (code == 0)
    assert document["step"]["counterexample"]["degrees"]["tp"] > 1


@pytest.mark.parametrize("model", ["mixtral-8x7b", "llama3-8b"])
def test_lines_are_those_of_the_printed_program(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Also of a step that was proved of another model, in which it stands in other lines."""
    judged("llama3-8b" if model == "mixtral-8x7b" else "mixtral-8x7b", "zero1 * tp")
    assert run(["derive", "zero1 * tp", "--model", model, "--program"]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = judge_linked(read_linked(text(model, "zero1 * tp")))
    for part in (found.step, *found.blocks.values()):
        for settled in part.settled:
            assert settled.obligation.place is not None
            assert lines[settled.obligation.place.line - 1].strip() == settled.obligation.place.text.strip()


@pytest.mark.parametrize(
    "arguments",
    [
        ["fsdp", "--model", "llama3-8b", "--against", "ddp"],
        ["fsdp", "--model", "llama3-8b", "--second-opinion", "cutoff"],
        ["fsdp", "--model", "nonesuch"],
        ["ep", "--model", "llama3-8b"],
    ],
)
def test_what_does_not_go_with_a_model_is_said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prove", *arguments]) == 2
    assert "help:" in capsys.readouterr().err


def test_a_block_that_sums_what_is_the_steps_is_refused() -> None:
    with pytest.raises(InputError, match="sums of gradients of weights are the step's"):
        judged(
            "llama3-8b",
            "fsdp * tp * sp",
            (
                "returns(total(total(dn * x * rms, over=tokens), over=batch), at=dn, by=gain, gradient_of=n, partial=tp)",
                "returns(all_reduce(total(total(dn * x * rms, over=tokens), over=batch), tp), at=dn, by=gain, gradient_of=n)",
            ),
        )


def test_a_second_opinion_no_model_has_is_refused_before_anything_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queries = tmp_path / "queries"
    assert run(["prove", "tp", "--model", "llama3-8b", "--second-opinion", "cutoff", "--smtlib", str(queries)]) == 2
    assert "error[PP207]: `cutoff` speaks of steps, and not of models" in capsys.readouterr().err
    assert not queries.exists()


# A step that was proved once.


def test_a_step_is_proved_once_for_all_orders_of_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(program: Program, **given: Any) -> Judged:
        asked.append(program.name)
        return judge(program, **given)

    def said(text: str) -> tuple[JudgedModel, list[tuple[str, str]]]:
        judged = judge_linked(link(load("gpt3-125m"), parse_strategy(text)))
        assert judged.word == "proved"
        assert judged.step.program.name == judged.linked.name
        return judged, [(settled.obligation.name, settled.word) for settled in judged.step.settled]

    monkeypatch.setattr(judge_model, "judge", counted)
    orders = ("zero1 * pp", "zero1 * pp(schedule=zb-h1)", "zero1 * pp(schedule=interleaved, chunks=2)")
    monkeypatch.setattr(judge_model, "_PROVED_STEPS", {})
    first, *others = [said(text) for text in orders]
    assert len(asked) == 1
    for order, (judged, obligations) in zip(orders[1:], others, strict=True):
        judge_model._PROVED_STEPS.clear()
        alone, its = said(order)
        assert obligations == its == first[1]
        assert judged.step.program == alone.step.program
        assert judged.step.confirmed == alone.step.confirmed
    asked.clear()
    said("zero1")  # another step
    wrong = text("gpt3-125m", "zero1").replace("gradients = scale(gradients, 1 / dp)\n", "")
    assert [judge_linked(read_linked(wrong)).word for _ in range(2)] == ["refuted"] * 2
    assert len(asked) == 3
