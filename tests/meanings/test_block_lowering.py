"""One-device blocks lowered onto meshes: proved, laid out as the next block reads them, and what Megatron and PyTorch send and keep."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from cProfile import Profile
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import product

import pytest
from block_oracle import swapped
from block_programs import random_block
from hypothesis import given, settings
from hypothesis import strategies as st

from placeproof.cost.blocks.tensors import exchanges, kept
from placeproof.programs import POSITIONS, Assign, Call, Do, Program, Ref, Stmt, read, render, render_head
from placeproof.programs.ir import calls, with_buffers
from placeproof.programs.ops import OPS
from placeproof.semantics.blocks import (
    Plan,
    combined,
    context_parallel,
    data_parallel,
    expert_parallel,
    lower_block,
    tensor_parallel,
)
from placeproof.semantics.judge.verdict import judge_tensors
from placeproof.semantics.layouts.layout import Layout
from placeproof.semantics.layouts.lines import lines
from placeproof.semantics.tensors import NotComputedError, Setup, simulate
from placeproof.semantics.tensors.simulate import setups

NIGHTLY = os.environ.get("PLACEPROOF_PROFILE") == "nightly"
ROOT = files("placeproof")

TP, SP = tensor_parallel(), tensor_parallel(sequence=True)
CP, ULYSSES, DP, EP = context_parallel(), context_parallel(by="ulysses"), data_parallel(), expert_parallel()
PLANS: dict[str, Plan] = {
    "tp": TP,
    "sp": SP,
    "cp": CP,
    "ulysses": ULYSSES,
    "dp": DP,
    "ep": EP,
    "tp * cp": combined(TP, CP),
    "sp * cp": combined(SP, CP),
    "sp * ulysses": combined(SP, ULYSSES),
    "dp * tp": combined(DP, TP),
    "ep * sp": combined(EP, SP),
    "dp * cp * ep * sp": combined(DP, CP, EP, SP),
}


@cache
def block(name: str) -> Program:
    """`FOLDER/NAME`: a block on one device, of PyTorch's profile or of the models."""
    folder, _, stem = name.partition("/")
    where = ROOT / {"torch": "profiles/torch", "models": "models/blocks", "megatron": "profiles/megatron"}[folder]
    return read((where / f"{stem}.step").read_text(encoding="utf-8"), source=f"{stem}.step")


def _blocks() -> Iterator[str]:
    for folder, where in (("torch", "profiles/torch"), ("models", "models/blocks")):
        names = sorted(f.name.removesuffix(".step") for f in (ROOT / where).iterdir() if f.name.endswith(".step"))
        yield from (f"{folder}/{name}" for name in names if not block(f"{folder}/{name}").axes)


BLOCKS = tuple(_blocks())
#: Their proofs take from half a second to minutes.
ATTENTION = tuple(name for name in BLOCKS if "attention" in name)
EXPERTS = tuple(name for name in BLOCKS if "moe" in name)


#: What differs most is proved, and run without each of its collectives, each time; everything is every night.
OFTEN = {"models/attention_flash": ("cp", "ulysses"), "models/moe": ("ep", "ep * sp")} | {
    name: ("tp", "sp", *(() if "tied_capped" in name else ("dp * cp * ep * sp",))) for name in BLOCKS if name not in (*ATTENTION, *EXPERTS)
}
#: Proofs of minutes, and runs of hours.
LONGEST = {"models/attention_latent": ("sp", "cp", "ulysses")}
CHOSEN = [(n, p) for n, p in product(BLOCKS, PLANS) if p in (LONGEST.get(n, tuple(PLANS)) if NIGHTLY else OFTEN.get(n, ()))]


@cache
def lowered(name: str, plan: str) -> Program:
    return lower_block(block(name), PLANS[plan])


# What comes out.


@pytest.mark.parametrize(("name", "plan"), CHOSEN)
def test_lowered_blocks_are_proved(name: str, plan: str) -> None:
    judged = judge_tensors(lowered(name, plan))
    assert judged.word == "proved", (judged.about, judged.why)
    degrees = {"N"} if len(PLANS[plan].axes) == 1 else {f"N_{a.name}" for a in PLANS[plan].axes}
    assert {f"{n} >= 1" for n in degrees} <= set(judged.for_all)


@pytest.mark.parametrize("name", BLOCKS)
def test_every_lowered_block_is_well_formed_text(name: str) -> None:
    """It reads back from its text, and every statement has the place that it has there."""
    for plan in PLANS:
        program = lowered(name, plan)
        again = read(render(program), source=f"{program.name}.step")
        assert again == program
        assert [s.place and (s.place.line, s.place.text) for s in again.body] == [
            s.place and (s.place.line, s.place.text) for s in program.body
        ]


@pytest.mark.parametrize("name", BLOCKS)
def test_what_is_returned_lies_as_it_is_read(name: str) -> None:
    """A result lies as its gradient comes in, a gradient as what it is by. Nothing that is returned is a partial sum."""
    for plan in PLANS:
        lies_as_it_is_read(lowered(name, plan))


def lies_as_it_is_read(program: Program) -> None:
    header = {t.name: t for t in program.tensors}
    gradients = {s.call.option("gradient_of"): s.call.option("at") for s in program.body if isinstance(s, Do)}
    for line in lines(program):
        if isinstance(line.stmt, Do) and line.stmt.call.op == "returns":
            (value,) = line.stmt.call.args
            like = line.stmt.call.option("by") or gradients.get(value.name if isinstance(value, Ref) else "")
            assert not line.result.layout.partial
            if like in header and set(header[like].dims) == set(line.result.layout.dims):
                assert _pairs(line.result.layout) == set(header[like].split), line.stmt


def _pairs(value: Layout) -> set[tuple[str, str]]:
    return {(axis, dim) for dim, axes in value.split.items() for axis in axes}


@pytest.mark.parametrize("name", BLOCKS)
def test_without_its_axes_a_lowered_block_is_the_block(name: str) -> None:
    """Lowering adds collectives, parts, and names for what moved. Nothing else is computed, and nothing in another order."""
    for plan in PLANS.values():
        assert alone(lower_block(block(name), replace(plan, regather=False))) == block(name)


def alone(program: Program) -> Program:
    """Without what lowering adds; buffers that it called otherwise because an axis has their name have it again."""
    bare = replace(program, axes=(), tensors=tuple(replace(t, split=()) for t in program.tensors))
    while found := [c for stmt in bare.body for c in calls(stmt) if OPS[c.op].collective or c.op == "part"]:
        bare = swapped(bare, found[0], found[0].args[0])
    moved = {s.targets[0].name: s.value.name for s in bare.body if isinstance(s, Assign) and isinstance(s.value, Ref)}
    while any(source in moved for source in moved.values()):
        moved = {name: moved.get(source, source) for name, source in moved.items()}
    bare = replace(bare, body=tuple(s for s in bare.body if not (isinstance(s, Assign) and isinstance(s.value, Ref))))
    return with_buffers(bare, moved | {f"{axis.name}_here": axis.name for axis in program.axes})


# Against programs written by hand.


def sent(program: Program) -> Counter[object]:
    return Counter((e.kind, e.axes, e.dims, e.split, e.op, e.phase) for e in exchanges(program))


def lives(program: Program) -> Counter[object]:
    return Counter((k.dims, k.split, k.picks) for k in kept(program))


@pytest.mark.parametrize("part", ["norm", "attention", "feed_forward", "embedding", "head"])
@pytest.mark.parametrize("sequence", [False, True])
def test_what_is_sent_and_kept_is_megatrons_and_pytorchs(part: str, sequence: bool) -> None:
    """With all logits gathered, which their heads do here: tensor parallelism, without and with sequence parallelism."""
    plan = tensor_parallel(sequence=sequence, gathered=("vocab",))
    for theirs, regather in (
        (f"megatron/{part}_{'sp' if sequence else 'tp'}", True),
        (f"torch/{part}_{'sp' if sequence else 'megatron'}", False),
    ):
        mine = lower_block(block(f"torch/{part}"), replace(plan, regather=regather))
        assert sent(mine) == sent(block(theirs))
        assert lives(mine) == lives(block(theirs))


@pytest.mark.parametrize("sequence", [False, True])
def test_a_head_with_its_vocabulary_split_sends_numbers_for_tokens_and_no_logits(sequence: bool) -> None:
    """Where the head gathers its logits, lowering reduces three numbers for each token, as Megatron's parallel cross-entropy does."""
    mine, theirs = lowered("torch/head", "sp" if sequence else "tp"), block(f"megatron/head_{'sp' if sequence else 'tp'}")
    less = sent(theirs) - sent(mine)
    assert [(kind, dims) for kind, _, dims, *_ in less] == [("all_gather", ("batch", "tokens", "vocab"))]
    more = [(kind, op, len(dims)) for kind, _, dims, _, op, _ in (sent(mine) - sent(theirs)).elements()]
    scalars = [("all_reduce", "sum", 0)] * 2 if sequence else []  # the loss, and the number of targets
    last = ("reduce_scatter" if sequence else "all_reduce", "sum", 2)
    assert sorted(more) == sorted([("all_reduce", "max", 2), ("all_reduce", "sum", 2), last, *scalars])


def collective_counts(name: str, plan: Plan) -> Counter[tuple[str, str]]:
    """Of values with positions, by kind and phase: gradients of weights apart."""
    found = exchanges(lower_block(block(name), plan))
    return Counter((e.kind, e.phase) for e in found if POSITIONS & set(e.dims))


@pytest.mark.parametrize("regather", [False, True])
@pytest.mark.parametrize("name", [n for n in ATTENTION if "latent" not in n])
def test_context_parallelism_sends_keys_and_values_or_exchanges_heads(name: str, regather: bool) -> None:
    gathers = {("all_gather", "forward"): 2, ("reduce_scatter", "backward"): 2} | ({("all_gather", "backward"): 2} if regather else {})
    assert collective_counts(name, replace(CP, regather=regather)) == gathers
    # Gradients of normed queries and keys go back to tokens before they meet what the norms read.
    # The sum with a sink, whose gradient is a sum over tokens, is made where tokens are split: one number for each query goes there.
    each = 6 if "sinks" in name else 4
    assert collective_counts(name, replace(ULYSSES, regather=regather)) == {
        ("all_to_all", "forward"): each,
        ("all_to_all", "backward"): each,
    }
    whole = [k for k in kept(lower_block(block(name), replace(CP, regather=regather))) if "tokens" in k.dims and not k.split]
    assert [k.name for k in whole] == ([] if regather else ["k_full", "v_full"])


@pytest.mark.parametrize("name", BLOCKS)
def test_with_sequence_parallelism_all_that_is_kept_is_split(name: str) -> None:
    """By every axis; but ids of tokens and the number of targets (Korthikanti et al. 2022, section 4.2.2)."""
    for plan in ("sp", "sp * cp", "sp * ulysses"):
        for value in kept(lowered(name, plan)):
            if value.picks is None and value.dims:
                assert {a for _, axes in value.split for a in axes} == {a.name for a in PLANS[plan].axes}, (plan, value)


@pytest.mark.parametrize("name", ["models/moe", "models/moe_scaled", "models/moe_shared", "models/moe_sigmoid"])
def test_expert_parallelism_sends_tokens_to_experts_and_back(name: str) -> None:
    assert collective_counts(name, EP) == {("all_to_all", "forward"): 2, ("all_to_all", "backward"): 2}
    program = lowered(name, "ep")
    split = {t.name: dict(t.split) for t in program.tensors}
    assert split["w1"] == {"ep": "experts"}
    assert split["wr"] == {}
    assert split["route"] == split["n"] == {"ep": "batch"}
    over = {e.axes for e in exchanges(program) if e.kind == "all_reduce" and "experts" in e.dims and "hidden" in e.dims}
    assert len([e for e in exchanges(program) if "expert_ffn" in e.dims and not POSITIONS & set(e.dims)]) == 0  # of one expert one gradient
    assert over == {("ep",)}  # the router's


@pytest.mark.parametrize("name", [n for n in BLOCKS if n not in ATTENTION])
def test_outside_attention_and_experts_only_gradients_of_weights_and_sums_over_all_tokens_are_sent(name: str) -> None:
    """Where the batch or tokens are split and nothing else is."""
    for plan in (DP, CP, ULYSSES, combined(DP, CP)):
        assert not collective_counts(name, plan)


# Without one of their collectives.


@pytest.mark.parametrize(("name", "plan"), [pair for pair in CHOSEN if pair[0] not in LONGEST])
def test_no_collective_can_be_left_out(name: str, plan: str) -> None:
    """A run differs then, or nothing is proved, or it is known why nobody sees it."""
    program = lowered(name, plan)
    for stmt in program.body:
        for call in calls(stmt):
            if OPS[call.op].collective and not harmless(stmt, call):
                mutant = swapped(program, call, call.args[0])
                assert differs(mutant) or judge_tensors(mutant).word == "unknown", render_head(stmt)


def harmless(stmt: Stmt, call: Call) -> bool:
    """What is returned may lie otherwise and is right all the same; a softmax does not depend on the bias of keys."""
    if not isinstance(stmt, Do):
        return False
    laid = stmt.call.args[0] is call and call.op == "all_gather"
    return laid or stmt.call.option("by") == "bk"


def differs(program: Program) -> bool:
    """Whether some run on two devices along each axis differs from one device."""
    meshes = (s for s in setups(program, 2) if set(s.degrees.values()) == {2})
    for setup, seed, fine in product(meshes, (1, 2, 3), (False, True)):
        try:
            if simulate(program, replace(setup, seed=seed, fine=fine)) is not None:
                return True
        except NotComputedError:
            continue
    return False


@pytest.mark.parametrize(("name", "plan"), [("models/attention_flash", "sp * ulysses"), ("models/moe_shared", "ep * sp")])
def test_lowering_takes_about_as_much_work_as_reading(name: str, plan: str) -> None:
    """In calls of functions, which no other process disturbs."""
    text = render(lowered(name, plan))
    assert work(lambda: lower_block(block(name), PLANS[plan])) < 1.5 * work(lambda: read(text))


def work(what: Callable[[], object]) -> int:
    profile = Profile()
    profile.runcall(what)
    return sum(entry.callcount for entry in profile.getstats())


# Programs that nobody wrote.


@settings(max_examples=2_000 if NIGHTLY else 120)
@given(seed=st.integers(0, 10**9))
def test_random_programs_compute_on_a_mesh_what_they_do_on_one_device(seed: int) -> None:
    rng = random.Random(seed)
    program = read(random_block(rng), source="random.step")
    chosen = [rng.choice(p) for p in rng.sample([(TP, SP), (CP, ULYSSES), (DP,), (EP, expert_parallel(along="tokens", whole=()))], 3)]
    plan = combined(*chosen[: rng.randint(1, 3)], regather=rng.random() < 0.5)
    mesh = lower_block(program, plan)
    assert read(render(mesh)) == mesh
    names = {d for t in program.tensors for d in (*t.dims, *([t.picks] if t.picks else []))}
    sizes = {d: rng.choice((2, 3)) if d in ("batch", "tokens", "heads") else 2 for d in sorted(names)}
    try:
        difference = simulate(mesh, Setup(degrees={a.name: 2 for a in mesh.axes}, sizes=sizes, seed=seed % 97))
    except NotComputedError:
        return
    assert difference is None, render(mesh)


def test_a_partial_sum_is_scaled_as_it_is_and_compared_only_as_a_whole() -> None:
    head = "tensor(x, batch, tokens, hidden)\ntensor(w1, hidden, ffn)\ntensor(w2, ffn, hidden)\n"
    head += "n = total(total(total(x, over=hidden), over=tokens), over=batch)\n"
    head += "y = contract(contract(x, w1, over=hidden), w2, over=ffn)\n"
    for op, line in (("scale", "z = all_reduce(scale(y, n), tp)"), ("max", "z = max(y, n)")):
        text = render(lower_block(read(head + f"z = {op}(y, n)\nreturns(z)\n"), TP))
        assert line in text
        assert text.count("all_reduce") == 1
