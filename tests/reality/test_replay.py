"""Counterexamples on real processes: the numbers that proofs predict come out, and wrong predictions are found."""

from __future__ import annotations

import ast
import copy
import importlib
import io
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from block_oracle import block, collectives_taken_away
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from replaying import Data, anything, assert_reproduced, replayed

from placeproof.cli import replay as cli
from placeproof.cli.main import run as command
from placeproof.core.diagnostics import InputError
from placeproof.measure.replay.file import number, parse
from placeproof.measure.replay.launch import BY_AUTOGRAD
from placeproof.measure.replay.model import world_of
from placeproof.measure.replay.simulator import simulated
from placeproof.models import load
from placeproof.programs import Program, read
from placeproof.report import renderers
from placeproof.report.proof.data import judgement
from placeproof.report.proof.model import document
from placeproof.semantics.catalogue import not_equivalent, read_not_equivalent
from placeproof.semantics.judge.model import judge_linked
from placeproof.semantics.judge.verdict import judge, judge_tensors
from placeproof.semantics.linked import link, read_linked, render_linked
from placeproof.semantics.lower import lower
from placeproof.semantics.meaning import Setup
from placeproof.semantics.meaning.run import Run
from placeproof.semantics.resolve import resolve
from placeproof.strategies import parse_strategy

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")
process = importlib.import_module("placeproof.measure.replay.process")
reference = importlib.import_module("placeproof.measure.replay.reference")

HERE = Path(__file__).parents[1]
SCHEMA = json.loads((HERE.parent / "docs" / "reference" / "prove.schema.json").read_text(encoding="utf-8"))
MUTANTS = sorted(p.name.removesuffix(".mutant.step") for p in (HERE / "bugs").glob("*.mutant.step"))
NIGHTLY = bool(os.environ.get("PLACEPROOF_PROFILE") == "nightly")


def refuted(name: str) -> Program:
    if name in MUTANTS:
        path = HERE / "bugs" / f"{name}.mutant.step"
        return read(path.read_text(encoding="utf-8"), source=path.name)
    return read_not_equivalent(name)


@cache
def text_of(name: str) -> str:
    """What `prove --json` prints of a bug, of a program that is not equivalent, or of a block without a collective: `BLOCK: OP of NAME`."""
    whole, _, taken = name.partition(": ")
    program = dict(collectives_taken_away(block(whole)))[taken] if taken else refuted(name)
    return json.dumps(judgement(name, judge(program)))


def data_of(name: str) -> Data:
    found: Data = json.loads(text_of(name))
    return found


# What proofs refute.

#: Of every kind: wrong divisors, missing reductions, tensor, pipeline, sequence and expert parallelism, tied weights, garbage that is
#: read, dropped assumptions, flags, norms, statistics, an element that is not there.
REPLAYED = (
    *("B02", "B04", "B06", "B10", "B102", "B110", "B112", "B114", "B116", "B117", "B123", "B124", "B13", "B16", "B18", "B30", "B37", "B40"),
    *("B48", "B50", "B55", "B58", "B60", "B77", "B90", "B95", "clip_by_local_norm", "lamb_on_shards", "local_batch_norm", "muon_on_shards"),
)
OTHERS = tuple(name for name in (*MUTANTS, *not_equivalent()) if name not in REPLAYED)


@pytest.mark.parametrize("name", [*REPLAYED, *(OTHERS if NIGHTLY else ())])
def test_counterexamples_come_out_bit_for_bit(name: str) -> None:
    one = replayed(data_of(name))
    assert_reproduced(one)
    assert len(one.outcomes) in ((2, 4) if name in REPLAYED else (1, 2))
    assert one.compared >= 8


def test_float64_is_exact_where_it_can_be() -> None:
    """Where it can hold the single device's numbers, autograd takes its gradients."""
    assert replayed(data_of("B30")).arithmetics == ("fractions", BY_AUTOGRAD)
    rounded = replayed(data_of("B02"))
    assert len(rounded.arithmetics) == 1
    assert rounded.rounds.startswith("float64 cannot hold")


BLOCKS = (
    "mlp: all_reduce of y",
    "attention: all_reduce of dxk",
    "gqa: all_reduce of dv",
    "embedding: all_reduce of y",
    "cross_entropy: all_reduce of z",
    "norm: reduce_scatter of y",
    "norm: all_gather of full",
)


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_come_out_bit_for_bit(name: str) -> None:
    assert_reproduced(replayed(data_of(name)))


OF_MODELS = {
    "a layer that is not the model's": ("zero1 * tp", "silu", "gelu"),
    "a sum that a block leaves out": ("zero1 * tp", "x + all_reduce(contract(a, w2, over=ffn), tp)", "x + contract(a, w2, over=ffn)"),
    "a sum that the step leaves out": ("fsdp * tp * sp", "gradients.norm = all_reduce(gradients.norm, tp)\n", ""),
}


@pytest.mark.parametrize("what", OF_MODELS)
def test_models_come_out_bit_for_bit(what: str) -> None:
    strategy, old, new = OF_MODELS[what]
    text = render_linked(link(load("llama3-8b"), parse_strategy(strategy)))
    found = judge_linked(read_linked(text.replace(old, new)), load("llama3-8b"))
    one = replayed(json.loads(renderers.json(document(found))))
    assert_reproduced(one)
    assert one.compared > 0


def test_a_gradient_is_compared_with_the_derivative_of_what_one_device_runs() -> None:
    """Two texts return the same gradient, which is none of what either computes."""
    head = "tensor(x, tokens, hidden)\ntensor(dy, tokens, hidden)\n"
    mesh = read(f"mesh(tp)\n{head}y = x * x\nreturns(dy * x, gradient_of=y, by=x, at=dy)\nreturns(y)\n")
    alone = read(f"mesh()\n{head}y = x ** 2\nreturns(y)\nreturns(x * dy, gradient_of=y, by=x, at=dy)\n")
    judged = judge_tensors(resolve(mesh), reference=resolve(alone))
    assert judged.word == "refuted"
    assert judged.about is not None
    assert "is the derivative of `y`" in judged.about.name
    data = judgement("two texts", judged)
    assert data["counterexample"]["run"]["shown"] == "result 1"
    assert_reproduced(replayed(data))


HEAD = "mesh(tp)\ntensor(x, tokens, hidden)\ntensor(w1, hidden, ffn, tp=ffn)\ntensor(w2, ffn, hidden, tp=ffn)\ntensor(dy, tokens, hidden)\n"
OF_TENSORS = {
    "a derivative": "y = x * x\nreturns(dy * x, gradient_of=y, by=x, at=dy)",
    "a derivative of what was computed": "a = x + x\nb = a * a / 2\nreturns(dy * x, gradient_of=b, by=a, at=dy)",
    "the slope of a logarithm": "y = elementwise(log, x)\nreturns(dy * x, gradient_of=y, by=x, at=dy)",
    "a derivative of the largest": "m = largest(x, over=hidden)\ny = x - m\nreturns(dy, gradient_of=y, by=x, at=dy)",
    "a power": "returns(contract(x ** 2, w1, over=hidden) ** -1 * tp)",
    "parts of different sizes": "h = contract(x, w1, over=hidden)\nreturns(all_gather(h, tp) / tp)",
    "scattered": "p = contract(contract(x, w1, over=hidden), w2, over=ffn)\nreturns(reduce_scatter(p, tp, op=mean, dim=hidden))",
    "the greatest of parts": "h = contract(x, w1, over=hidden)\nreturns(all_reduce(largest(h, over=ffn), tp, op=max) * tp)",
    "one device's": "p = contract(contract(x, w1, over=hidden), w2, over=ffn)\nreturns(broadcast(reduce(p, tp), tp) / tp)",
    "on one device alone": "p = contract(contract(x, w1, over=hidden), w2, over=ffn)\nreturns(reduce(p, tp))",
    "dropout": "p = contract(contract(x, w1, over=hidden), w2, over=ffn)\nreturns(dropout(all_reduce(p, tp), random(tp)))",
    "the larger of two": "returns(max(x, x * tp - 2))",
    "a derivative of the larger of two": "y = max(x, x * x - x)\nreturns(dy, gradient_of=y, by=x, at=dy)",
    "a part of a whole": "returns(part(x, tp, dim=tokens) * tp)",
    "a branch": "y = copy(x)\nif rank(tp) == 0:\n    y = y + y\nreturns(y)",
}


@pytest.mark.parametrize("what", OF_TENSORS)
def test_operations_on_tensors_come_out_bit_for_bit(what: str) -> None:
    judged = judge(read(HEAD + OF_TENSORS[what] + "\n"))
    assert judged.word == "refuted", judged.why
    one = replayed(judgement(what, judged))
    assert_reproduced(one)
    assert one.compared > 0


# Any program, on a mesh of our choice: what devices end with, right or wrong.


STRATEGIES = {
    "zero3 * tp": {"dp": 2, "tp": 2},
    "tp * sp * zero1": {"dp": 1, "tp": 3},
    "zero2 * pp": {"dp": 2, "pp": 2},
    "fsdp(reshard_after_forward=2)": {"dp": 4},
    "zeropp(node=2)": {"dp": 4},
    "hsdp * accumulate": {"rep": 2, "shard": 2},
    "tp * zero_r(checkpoints=host)": {"tp": 2},
    "zero3(prefetch=true)": {"dp": 3},
    "zero1 * ep": {"dp": 2, "ep": 2},
    "fsdp * fsdp(dp=ep) * ep": {"dp": 1, "ep": 3},
    "tp * sp * ep": {"ep": 2, "tp": 2},
    "tp * sp * ep(experts=whole)": {"ep": 2, "tp": 2},
    "fsdp * lora * clip": {"dp": 2},
    "zero1 * pp * lora": {"dp": 2, "pp": 2},
    "zero1 * tp * muon": {"dp": 2, "tp": 2},
    "zero2 * muon(owned)": {"dp": 3},
    "zero1 * tp * muon(exchanged)": {"dp": 2, "tp": 2},
    "zero1 * adafactor": {"dp": 2},
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_correct_strategies_train_on_real_processes(strategy: str) -> None:
    """Two steps end with the simulator's numbers on every device; and with the reference's, which the program never sees."""
    program = lower(parse_strategy(strategy))
    inner = {a.inner_name: 2 for a in program.axes if isinstance(a.inner, str)}
    batches = 2 if "accumulate" in strategy or "pp" in strategy.split(" ") else 1
    setup = Setup(degrees=STRATEGIES[strategy] | inner, microbatches=batches, small=True)
    assert_reproduced(replayed(anything(program, setup)))


LINES = {
    "max": "g = all_reduce(backward(parameters), dp, op=max)",
    "through parts": "g = all_gather(reduce_scatter(backward(parameters), dp, op=mean), dp)",
    "by messages": "g = all_gather(reduce_scatter(backward(parameters), dp, op=mean, via=all_to_all), dp)",
    "the greatest by messages": "g = all_gather(reduce_scatter(backward(parameters), dp, op=max, via=all_to_all), dp)",
    "to the second": "g = broadcast(reduce(backward(parameters), dp, root=1), dp, root=1)",
    "to owners without a name": "g = broadcast(reduce(backward(parameters), dp), dp)",
    "of what copies have": "g = broadcast(backward(parameters), dp)",
    "to the owners": "g = broadcast(reduce(backward(parameters), dp, op=mean), dp, root=owner)",
    "missing": "g = all_reduce(part(backward(parameters), dp), dp)",
    "interleaved": "g = all_gather(part(backward(parameters), dp, order=interleaved), dp)",
    "over two axes": "g = all_reduce(backward(parameters), dp, cp, op=mean)",
    "scattered over two axes": "g = all_gather(reduce_scatter(backward(parameters), dp, cp), dp, cp)",
    "numbers": "n = all_reduce(square_norm(parameters), dp, op=max)\ng = scale(backward(parameters), broadcast(n, cp, root=1) / dp)",
    "started": "h = start(all_reduce(backward(parameters), dp))\ng = scale(wait(h), 1 / dp)",
    "states": "g = backward(parameters)\noptimizer = all_reduce(optimizer, cp, op=mean)",
    "sent along": "g = backward(parameters)\nsend(g, cp, to=1)\nif rank(cp) > 0:\n    g = recv(cp, source=-1)",
    "clipped": "g = backward(parameters)\ng = scale(g, clip_factor(sqrt(all_reduce(square_norm(g), dp))))",
}


@pytest.mark.parametrize("what", LINES)
def test_collectives_come_out_bit_for_bit(what: str) -> None:
    text = f"mesh(dp, cp)\nplace(parameters)\nplace(optimizer)\n{LINES[what]}\nparameters, optimizer = update(parameters, optimizer, g)\n"
    one = replayed(anything(read(text), Setup(degrees={"dp": 2, "cp": 2}, seed=3)))
    assert_reproduced(one)
    assert one.compared >= (8 if what == "missing" else 3 * 8)  # of what is not held no number is said


@pytest.mark.parametrize("seed", range(4))
def test_what_is_not_finite_of_frozen_groups_skips_no_step(seed: int) -> None:
    text = (
        "mesh(dp)\ngroup(base, P - P_adapter, frozen=true)\ngroup(adapter, P_adapter)\nreference(skip=not_finite)\n"
        "g = all_reduce(backward(parameters), dp, op=mean)\nparameters, optimizer = update(parameters, optimizer, g, found_inf(g))\n"
    )
    assert_reproduced(replayed(anything(read(text), Setup(degrees={"dp": 2}, seed=seed))))


MICROBATCHES = {
    "kept for each": "for i in microbatches:\n    g[i] = backward(parameters, i)\nfor i in microbatches:\n    G += g[i]\n",
    "delayed by one": "for i in microbatches:\n    g[i] = backward(parameters, i)\n    G += all_reduce(g[i - 1], dp)\n"
    "G += all_reduce(g[-1], dp)\n",
    "the first alone": "for i in microbatches:\n    g[i] = backward(parameters, i)\nfor i in microbatches:\n    G += g[0]\n",
    "the last overwrites": "for i in microbatches:\n    G = backward(parameters, i)\n",
    "the first overwrites": "for i in reversed(microbatches):\n    G = backward(parameters, i)\n",
    "started one ahead": "for i in microbatches:\n    g[i] = backward(parameters, i)\nfor i in microbatches:\n"
    "    h = start(all_reduce(g[i], dp))\n    h = start(all_reduce(g[i + 1], dp))\n    G += wait(h)\n",
}


@pytest.mark.parametrize("what", MICROBATCHES)
def test_buffers_of_each_micro_batch_come_out_bit_for_bit(what: str) -> None:
    text = f"mesh(dp)\n{MICROBATCHES[what]}parameters, optimizer = update(parameters, optimizer, G)\n"
    one = replayed(anything(read(text), Setup(degrees={"dp": 2}, microbatches=3)))
    assert_reproduced(one)
    assert one.compared >= 16


CONTRACTS = {
    "several losses": "reference(loss=mean_over(tokens) + mean_over(sequences, loss=z) + mean_over(micro_batches, of=prompts, loss=kl))\n"
    "for i in microbatches:\n    G += backward(parameters, i) + backward(parameters, i, sum=sequences, loss=z)\n",
    "weights, and a constant": "reference(loss=mean_over(weights) + mean_over(8, of=samples, loss=z))\n"
    "for i in microbatches:\n    G += backward(parameters, i, mean=weights) + backward(parameters, i, sum=samples, loss=z)\n",
    "layer by layer": "reference(loss=mean_over(samples) + 0.5 * mean_over(prompts, of=sequences, loss=z))\n"
    "for i in microbatches:\n    x, kept = forward(parameters, data(i))\n"
    "    G += backward_weight(parameters, kept, loss(x, sum=weights) + loss(x, loss=z))\n",
}


@pytest.mark.parametrize("what", CONTRACTS)
def test_loss_contracts_come_out_bit_for_bit(what: str) -> None:
    """Autograd finds the gradient of what the losses of units make, each of those of its tokens; float64 holds few of these numbers."""
    text = f"mesh(dp, cp)\n{CONTRACTS[what]}parameters, optimizer = update(parameters, optimizer, G)\n"
    setup = Setup(degrees={"dp": 2, "cp": 2}, microbatches=2)
    assert_reproduced(replayed(anything(read(text), setup)))
    both = Run(resolve(read(text)), setup)
    both.step(0)
    found = {e: row[0] for name, e, row in reference.Reference(both.truth.world, 2).run(1) if name == "gradients"}
    for element, exact in zip(both.truth.columns.elements, both.truth.gradient, strict=True):
        assert float(found[element]) == pytest.approx(float(exact), rel=1e-9, abs=1e-9)


ROOTS = {
    "of a number that is a square": "n = sqrt(all_reduce(square_norm(g), dp) * all_reduce(square_norm(g), dp))\nG = scale(g, n)\n",
    "that is squared": "n = sqrt(all_reduce(square_norm(g), dp))\nG = scale(g, n * n)\n",
    "that another device takes": "n = broadcast(sqrt(square_norm(g)), dp, root=1)\nG = scale(g, n * n)\n",
    "clipped to a limit": "n = sqrt(all_reduce(square_norm(g), dp))\nG = scale(g, clip_factor(n, 3))\n",
}


@pytest.mark.parametrize("what", ROOTS)
def test_roots_come_out_bit_for_bit(what: str) -> None:
    text = f"mesh(dp)\ng = backward(parameters)\n{ROOTS[what]}parameters, optimizer = update(parameters, optimizer, G)\n"
    assert_reproduced(replayed(anything(read(text), Setup(degrees={"dp": 2}, seed=2))))


def test_a_number_that_is_too_long_for_one_digit_comes_out_bit_for_bit() -> None:
    """Sums of numbers of many digits, of either sign, over different denominators; and the greatest of them."""
    for how in ("sum", "max"):
        text = f"mesh(dp)\ng = backward(parameters)\nn = all_reduce(square_norm(g) ** 32 - 1 / (3 + square_norm(g)), dp, op={how})\n"
        text += "parameters, optimizer = update(parameters, optimizer, scale(g, n))\n"
        data = anything(read(text), Setup(degrees={"dp": 3}, seed=1))
        assert max(len(n) for n in data["counterexample"]["run"]["ends"][0]["gradients"].values()) > 40
        assert_reproduced(replayed(data))


# Wrong predictions are found.


def _change(numbers: dict[str, str]) -> None:
    name = next(iter(numbers))
    numbers[name] = number(Fraction(numbers[name]) + 1)


TAMPERED: dict[str, Callable[[Data], None]] = {
    "a parameter": lambda run: _change(run["ends"][1]["parameters"]),
    "a gradient": lambda run: _change(run["ends"][0]["gradients"]),
    "a momentum": lambda run: run["ends"][1]["optimizer"].update({next(iter(run["ends"][1]["optimizer"])): ["7", "7"]}),
    "one device's parameter": lambda run: _change(run["reference"]["parameters"]),
    "one device's gradient": lambda run: _change(run["reference"]["gradients"]),
    "an element too few": lambda run: run["ends"][0]["parameters"].popitem(),
    "an element too many": lambda run: run["ends"][0]["parameters"].update({"all[0, 9] of block 0": "1"}),
    "devices exchanged": lambda run: run["ends"][0].update(parameters=run["ends"][1]["parameters"]),
    "what it begins with": lambda run: _change(run["numbers"]),
    "the program": lambda run: run.update(program=run["program"].replace("all_reduce(backward(parameters), dp)", "backward(parameters)")),
    "the owners": lambda run: [o.update(of=" ".join(reversed(o["of"].split()))) for o in run["owners"]],
}
#: An optimizer's state in parts, a wrong sum: the copies of the parameters differ, and so do the gradients from one device's.
WRONG = """\
mesh(dp)
place(parameters, dp="R")
place(optimizer, dp="S")
place(gradients, dp="R")
g = all_reduce(backward(parameters), dp)
g = part(g, dp)
parameters, optimizer = update(parameters, optimizer, g)
"""


@cache
def wrong_sum() -> str:
    return json.dumps(judgement("wrong.step", judge(read(WRONG))))


def test_what_is_not_tampered_with_comes_out() -> None:
    assert_reproduced(replayed(json.loads(wrong_sum())))


@pytest.mark.parametrize("what", TAMPERED)
def test_wrong_predictions_are_found(what: str) -> None:
    data = json.loads(wrong_sum())
    TAMPERED[what](data["counterexample"]["run"])
    one = replayed(data)
    assert one.word == "differs"
    assert one.wrong


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("tensor(b2, hidden)", "tensor(b2, nothing)", "is not whole: no size of `nothing` is said"),
        ("total(dy, over=tokens)", "total(dy, over=nothing)", "cannot be run: a reduction of `nothing`"),
    ],
)
def test_a_block_that_no_run_is_of_is_refused(old: str, new: str, why: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = data_of(BLOCKS[0])
    run = data["counterexample"]["run"]
    assert old in run["program"]
    run["program"] = run["program"].replace(old, new, 1)
    (file := tmp_path / "c.json").write_text(json.dumps(data))
    assert command(["replay", str(file), "--backend", "simulator"]) == 2
    assert why in capsys.readouterr().err


def test_one_wrong_number_is_named_with_its_process(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = json.loads(wrong_sum())
    names = data["counterexample"]["run"]["ends"][1]["parameters"]
    name = next(iter(names))
    right, names[name] = names[name], "1/3"
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(data))
    assert command(["replay", str(path)]) == 1
    said = capsys.readouterr().out
    assert f"rank 1: parameters, {name}: predicted 1/3, got {right}" in said
    assert "differs on 2 processes: 1 of" in said
    assert "bug of placeproof" in said


def test_a_formula_of_the_gradient_that_autograd_denies_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes, the simulator and the file agree; a loss with another gradient does not."""
    reference = importlib.import_module("placeproof.measure.replay.reference").Reference
    honest = reference._of_flat
    monkeypatch.setattr(reference, "_of_flat", lambda self, theta, *rest: honest(self, theta, *rest) + theta[0] / 4)
    one = replayed(json.loads(wrong_sum()))
    assert (one.word, {(w.arithmetic, w.rank) for w in one.wrong}) == ("differs", {(BY_AUTOGRAD, None)})
    assert one.arithmetics == ("fractions",)


# Runs that do not end, and processes that do not.

STUCK = """\
mesh(dp)
place(parameters)
place(optimizer)
g = backward(parameters)
if rank(dp) == 0:
    g = all_reduce(g, dp)
else:
    g = {}
parameters, optimizer = update(parameters, optimizer, g)
"""


def in_other_places(line: str, why: str | None) -> Data:
    """A program in which the devices of one axis part ways; `prove` refuses it, so that the file is made from a harmless one."""
    data = anything(read(STUCK.replace("g, dp)", "g)").replace("all_reduce", "copy").format("copy(g)")), Setup(degrees={"dp": 2}))
    run = data["counterexample"]["run"]
    text = STUCK.format(line)
    run["program"] = 'program("program")\n' + text.replace("place(parameters)", 'place(parameters, dp="R")').replace(
        "place(optimizer)", 'place(optimizer, dp="R")'
    )
    if why is not None:
        run.update(ends=None, shown=None, stuck=[{"dp": 0}] if line == "copy(g)" else [{"dp": 0}, {"dp": 1}])
        data["counterexample"]["actual"] = why
    return data


def test_devices_that_meet_in_different_collectives_say_so() -> None:
    why = "devices of one group meet in different collectives"
    assert_reproduced(replayed(in_other_places("broadcast(g, dp, root=0)", why)))
    one = replayed(in_other_places("broadcast(g, dp, root=0)", None))
    assert one.word == "crashed"
    assert "different collectives: rank 0 at `all_reduce` in line 7, rank 1 at `broadcast` in line 9" in one.why


def test_a_device_that_never_comes_ends_in_a_time_out() -> None:
    why = "every device waits, and no exchange has all of its devices"
    assert_reproduced(replayed(in_other_places("copy(g)", why), waits=1))
    one = replayed(in_other_places("copy(g)", None), waits=1)
    assert one.word == "timed out"
    assert one.why.splitlines() == ["rank 0 waited 1 s for another rank, in vain", "rank 1 ended well"]


def test_a_run_that_ends_although_it_should_not_differs() -> None:
    data = json.loads(wrong_sum())
    data["counterexample"]["run"].update(ends=None, shown=None, stuck=[{"dp": 0}, {"dp": 1}])
    data["counterexample"]["actual"] = "every device waits, and no exchange has all of its devices"
    assert replayed(data).word == "differs"


def test_messages_to_nobody_and_from_nobody() -> None:
    text = "mesh(dp, pp)\nplace(parameters, pp=S)\nplace(optimizer, pp=S)\nsend(data(), pp, to=1)\nx = recv(pp, source=-1)\n"
    text = text.replace("=S", '="S"') + "parameters, optimizer = update(parameters, optimizer, gradients)\n"
    data = anything(read(text), Setup(degrees={"dp": 1, "pp": 2}))
    assert data["counterexample"]["run"]["stuck"] == [{"dp": 0, "pp": 0}]
    assert_reproduced(replayed(data, waits=1))


def test_a_message_that_nobody_takes() -> None:
    text = "mesh(pp)\nplace(parameters, pp=S)\nplace(optimizer, pp=S)\ng = backward(parameters)\nsend(g, pp, to=1)\n".replace("=S", '="S"')
    text += "if rank(pp) == 9:\n    g = recv(pp, source=-1)\nparameters, optimizer = update(parameters, optimizer, g)\n"
    data = anything(read(text), Setup(degrees={"pp": 2}))
    assert data["counterexample"]["actual"] == "a device sends what none receives"
    one = replayed(data, waits=1)
    assert_reproduced(one)
    assert "rank 0 waited 1 s" in one.why


def test_a_run_that_does_not_end_has_the_keys_that_are_drawn_where_it_goes_on() -> None:
    text = "mesh(dp, pp)\nplace(parameters, pp=S)\nplace(optimizer, pp=S)\nif rank(pp) == 0:\n    g = recv(pp, source=-1)\n".replace(
        "=S", '="S"'
    )
    text += "g = scale(backward(parameters), random(dp))\nif rank(pp) == 9:\n    send(g, pp, to=1)\n"
    data = anything(read(text + "parameters, optimizer = update(parameters, optimizer, g)\n"), Setup(degrees={"dp": 2, "pp": 2}))
    assert data["counterexample"]["run"]["ends"] is None
    data["counterexample"]["run"]["program"] = data["counterexample"]["run"]["program"].replace("g = scale", "k = random(dp)\ng = scale")
    assert_reproduced(replayed(data, waits=1))


def test_a_process_that_dies_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = process.ended

    def dies(found: Any, rank: int, *rest: Any) -> Any:
        if rank == 1:
            os.abort()
        return honest(found, rank, *rest)

    def fails(found: Any, rank: int, *rest: Any) -> Any:
        if rank == 1:
            raise ValueError("out of order")
        return honest(found, rank, *rest)

    monkeypatch.setattr(process, "ended", dies)
    dead = replayed(json.loads(wrong_sum()), waits=2)
    assert dead.word == "crashed"
    assert dead.why.splitlines()[0] == "rank 1 died by SIGABRT"
    monkeypatch.setattr(process, "ended", fails)
    failed = replayed(json.loads(wrong_sum()), waits=2)
    assert failed.word == "crashed"
    assert failed.why.splitlines()[0] == "rank 1 failed: ValueError: out of order"


def test_what_has_no_meaning_is_not_replayed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = json.loads(wrong_sum())
    run = data["counterexample"]["run"]
    run["program"] = run["program"].replace("all_reduce", "all_to_all")
    assert replayed(data).word == "not replayed"
    path = tmp_path / "it.json"
    path.write_text(json.dumps(data))
    assert command(["replay", str(path)]) == 3
    assert "`all_to_all` of parameters" in capsys.readouterr().out
    missing = json.loads(wrong_sum())
    missing["counterexample"]["run"]["numbers"].popitem()
    assert "the file has no number" in replayed(missing).why


# Files that are no counterexamples.


def refused(text: str) -> str:
    with pytest.raises(InputError) as raised:
        parse(text)
    assert all(d.help for d in raised.value.diagnostics if d.code == "PP602")
    return str(raised.value)


def test_files_that_cannot_be_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = wrong_sum()
    assert "not whole JSON" in refused(whole[: len(whole) // 2])
    assert "not whole JSON" in refused("")
    assert "it names no schema" in refused("[]")
    assert "`placeproof.prove/2`" in refused(whole.replace("placeproof.prove/1", "placeproof.prove/2"))
    assert "its verdict is `proved`" in refused(json.dumps(judgement("zero3", judge(lower(parse_strategy("zero3"))))))
    old = json.loads(whole)
    del old["counterexample"]["run"]
    assert "does not hold the run" in refused(json.dumps(old))
    for arguments in ([str(tmp_path / "none.json")], [str(tmp_path)], ["--backend", "nccl", str(tmp_path)]):
        assert command(["replay", *arguments]) == 2
        assert "Traceback" not in capsys.readouterr().err


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *itertools.chain.from_iterable(_paths(v, (*path, k)) for k, v in inner)]


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_damage_is_refused_or_harmless(data: st.DataObject) -> None:
    """A value taken away or replaced anywhere: an error that says so, or a file that still makes sense; never another exception."""
    whole = json.loads(wrong_sum())
    path = data.draw(st.sampled_from([p for p in _paths(whole) if p]))
    damaged = copy.deepcopy(whole)
    at = damaged
    for key in path[:-1]:
        at = at[key]
    other = data.draw(st.sampled_from([None, -1, 10**6, "x", "1/0", [], {}, {"a": "b"}, "nothing"]))
    if other == "nothing":
        del at[path[-1]]
    else:
        at[path[-1]] = other
    try:
        parse(json.dumps(damaged))
    except InputError as error:
        assert all(d.message for d in error.diagnostics)


def test_a_mesh_that_one_machine_cannot_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = json.loads(wrong_sum())
    data["counterexample"]["degrees"]["dp"] = 1000
    run = data["counterexample"]["run"]
    run["ends"] = [dict(run["ends"][0], device={"dp": n}) for n in range(1000)]
    path = tmp_path / "large.json"
    path.write_text(json.dumps(data))
    assert command(["replay", str(path)]) == 2
    assert "1000 processes" in capsys.readouterr().err


def test_without_torch_there_is_still_the_simulator(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    path = tmp_path / "it.json"
    path.write_text(wrong_sum())
    assert command(["replay", str(path)]) == 2
    assert "needs torch" in capsys.readouterr().err
    assert command(["replay", str(path), "--backend", "simulator"]) == 0
    assert "reproduced by the simulator" in capsys.readouterr().out


# The command, and the file.


def test_the_command_reads_what_prove_writes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(["prove", str(HERE / "bugs" / "B30.mutant.step"), "--json"]) == 1
    written = capsys.readouterr().out
    for arguments in (["-"], ["-", "--json"], ["-", "--backend", "simulator"], ["-", "--backend", "simulator", "--json"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(written.encode())))
        assert command(["replay", *arguments]) == 0
        said = capsys.readouterr().out
        if "--json" in arguments:
            found = json.loads(said)
            assert (found["schema"], found["verdict"]) == ("placeproof.replay/1", "reproduced")
        else:
            assert said.startswith("reproduced")


@pytest.mark.parametrize("name", ["B02", "B117", "B77", "mlp: all_reduce of y", "norm: all_gather of full"])
def test_the_run_is_as_the_schema_says(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    Draft202012Validator(SCHEMA).validate(data_of(name))
    damaged = data_of(name)
    del damaged["counterexample"]["run"]["numbers"]
    assert list(Draft202012Validator(SCHEMA).iter_errors(damaged))


def test_a_mesh_whose_devices_are_named_has_an_element_for_each() -> None:
    program = read(
        'mesh(dp)\nplace(parameters, dp="R")\nplace(optimizer, dp="S")\nplace(gradients, dp="S")\n'
        "gradients = reduce_scatter(backward(parameters), dp, op=mean)\nif rank(dp) == 3:\n    gradients = scale(gradients, 2)\n"
        "parameters, optimizer = update(parameters, optimizer, gradients)\nparameters = all_gather(parameters, dp)\n"
    )
    found = parse(json.dumps(judgement("doubled by the fourth", judge(program))))
    assert dict(found.degrees) == {"dp": 4}
    assert simulated(found).agrees(found)
    assert len(world_of(found).layout.elements) == len(found.elements)


@pytest.mark.parametrize("name", ["B02", "B117", "B77", "asynchronous_sgd", "attention: all_reduce of dxk", "norm: all_gather of full"])
def test_the_simulator_says_the_same_again(name: str) -> None:
    assert simulated(parse(text_of(name))).agrees(parse(text_of(name)))
    other = data_of(name)
    other["counterexample"]["actual"] = "5/7"
    if other["counterexample"]["run"]["ends"] is None:
        other["counterexample"]["actual"] = "another reason"
    assert not simulated(parse(json.dumps(other))).agrees(parse(json.dumps(other)))


def test_a_replay_shares_no_code_with_the_encoding_and_its_reference_none_with_the_simulator() -> None:
    """Processes run the simulator's local operations, with exchanges of their own; autograd knows where elements are, and no formula."""
    meaning = "placeproof.semantics.meaning."
    for path in (HERE.parent / "placeproof" / "measure" / "replay").glob("*.py"):
        if path.name in ("simulator.py", "text.py"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in getattr(node, "names", ())]
            if isinstance(node, ast.Import | ast.ImportFrom):
                allowed = ("placeproof.core.", "placeproof.programs", "placeproof.measure", meaning, "placeproof.semantics.resolve")
                allowed += ("placeproof.semantics.tensors.",) if path.name == "blocks.py" else ()
                assert all(n.startswith(allowed) for n in names if n.startswith("placeproof")), (path.name, names)
                assert f"{meaning}collectives" not in names, path.name
                if path.name == "reference.py":
                    known = {f"{meaning}layout", f"{meaning}world"}
                    assert known >= {n for n in names if n.startswith(meaning)}, names


def test_the_command_line_starts_without_torch() -> None:
    code = "import sys, placeproof.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_long_numbers_are_written_and_read_again() -> None:
    long = Fraction(-(3**20_000), 2**15_000)
    data = json.loads(wrong_sum())
    data["counterexample"]["run"]["numbers"]["long"] = number(long)
    assert number(long).startswith("-0x")
    assert parse(json.dumps(data)).numbers["long"] == long
