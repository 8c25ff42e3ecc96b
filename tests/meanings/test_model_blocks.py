"""The blocks of models: proved, each gradient claimed, refuted where they are wrong, and keeping what their comments say."""

from __future__ import annotations

import itertools
import re
from importlib.resources import files

import pytest
from samples import NIGHTLY, sample

from placeproof import implementations
from placeproof.cost.blocks.tensors import kept
from placeproof.models.family import families, family
from placeproof.models.programs import WIRES, block_program, blocks, branch, branch_of, output, rows_reached, weights, without
from placeproof.programs import Assign, Program, parse, read, render
from placeproof.programs.ir import calls
from placeproof.semantics.judge.verdict import judge_tensors
from placeproof.semantics.layouts.lines import inputs
from placeproof.semantics.tensors import Difference, NotComputedError, Setup, simulate

FOLDER = files("placeproof.models") / "blocks"
#: What is kept from forward to backward, beside weights.
KEPT = {
    "attention": "n q k v p o",
    "attention_biased": "n q k v p o",
    "attention_biased_normed": "n wide_q q wide_k k v p o",
    "attention_capped": "n q k v raw p o",
    "attention_flash": "n q k v lse o",
    "attention_flash_biased": "n q k v lse o",
    "attention_flash_biased_normed": "n wide_q q wide_k k v lse o",
    "attention_flash_capped": "n q k v lse o",
    "attention_flash_gainless": "n wide_q q wide_k k v lse o",
    "attention_flash_normed": "n wide_q q wide_k k v lse o",
    "attention_flash_sinks": "n q k v lse o",
    "attention_gpt": "n drop mask q k v p pd o",
    "attention_gpt_flash": "n mask q k v lse o",
    "attention_latent": "n cq nq ckv nkv q qr k v kr lse o",
    "attention_normed": "n wide_q q wide_k k v p o",
    "attention_sinks": "n q k v p ps o",
    "attention_flash_wholly_normed": "n wide_q q wide_k k v lse o",
    "attention_wholly_normed": "n wide_q q wide_k k v p o",
    "embedding": "ids",
    "embedding_learned": "ids where mask",
    "head": "n target p targets",
    "head_capped": "n target raw p targets",
    "head_tied": "n target p targets",
    "head_tied_capped": "n target raw p targets",
    "layer_norm": "x",
    "layer_norm_plain": "x",
    "layer_norm_stream": "x",
    "mlp": "n u a",
    "mlp_gpt": "n mask u a",
    "moe": "n route gate sent g u s a out",
    "moe_biased": "n route gate sent g u s t a out",
    "moe_scaled": "n route logits gate sent g u s a vg vu vs va",
    "moe_shared": "n route logits z gate sent g u s a out vg vu vs va",
    "moe_sigmoid": "n route logits z gate sent g u s a out",
    "moe_weighted": "n route gate sorted sorted_weight g u s a",
    "moe_weighted_biased": "n route gate sorted sorted_weight g u s t a",
    "moe_weighted_shared": "n route logits z gate vg vu vs va sorted sorted_weight g u s a",
    "moe_weighted_sigmoid": "n route logits z gate sorted sorted_weight g u s a",
    "residual": "",
    "rms_norm": "x",
    "rms_norm_after": "branch",
    "swiglu": "n g u s a",
}
#: Of each block, small mistakes in backward.
WRONG = {
    "attention": [("dp - contract(p, dp, over=keys)", "dp - contract(p, dp, over=keys) / 2"), ("(ds, kk,", "(ds, vv,")],
    "attention_flash": [("contract(do, o, over=width))", "contract(do, q, over=width))"), ("(p, do, over=tokens)", "(p, o, over=tokens)")],
    "attention_biased": [("total(dq, over=tokens)", "total(2 * dq, over=tokens)"), ("(ds, kk,", "(ds, vv,")],
    "attention_capped": [("over=keys)) * slope(cap, raw)", "over=keys))"), ("slope(cap, raw)", "slope(cap, p)")],
    "attention_flash_capped": [("over=width)) * slope(cap, raw)", "over=width))"), ("(exp, elementwise(cap, raw))", "(exp, raw)")],
    "attention_flash_biased": [("total(dv, over=tokens)", "total(dv / 2, over=tokens)"), ("byq + byk", "byk")],
    "attention_flash_gainless": [("* slope(rsqrt, square_k) * wide_k", "* wide_k"), ("dq = dnq * rms_q", "dq = copy(dnq)")],
    "attention_flash_normed": [("slope(rsqrt, square_k) * wide_k", "wide_k"), ("dhq = dnq * gain_q", "dhq = copy(dnq)")],
    "attention_wholly_normed": [("slope(rsqrt, square_k) * wide_k", "wide_k"), ("total(dnq *", "total(2 * dnq *")],
    "attention_flash_wholly_normed": [("2 * bend_q", "bend_q"), ("dhk = dnk * gain_k", "dhk = copy(dnk)")],
    "attention_sinks": [("(0 - ps * mean", "(ps * mean"), ("z = total(e, over=keys) + alone", "z = total(e, over=keys)")],
    "attention_flash_sinks": [("(do, o, over=width)\n", "(do, q, over=width)\n"), ("/ lse * mean", "* mean")],
    "attention_biased_normed": [("total(total(dk,", "total(total(dnk,"), ("dhq = dnq * gain_q", "dhq = copy(dnq)")],
    "attention_flash_biased_normed": [("total(total(dq, over=tokens)", "total(total(2 * dq, over=tokens)"), ("byq + byk", "byk")],
    "attention_normed": [("2 * total(dhk * wide_k,", "total(dhk * wide_k,"), ("total(total(dnq *", "total(total(2 * dnq *")],
    "attention_gpt": [("dout = dy * mask", "dout = copy(dy)"), ("contract(pd, do, over=tokens)", "contract(p, do, over=tokens)")],
    "attention_gpt_flash": [("dout = dy * mask", "dout = copy(dy)"), ("dn = byq + byk + byv", "dn = byq + byk")],
    "attention_latent": [("* slope(rsqrt, square_kv) *", "*"), ("(p, do, over=tokens)", "(p, 2 * do, over=tokens)")],
    "embedding": [("contract(hot(ids), dy, over=tokens)", "contract(hot(ids), 2 * dy, over=tokens)")],
    "embedding_learned": [("dsum = dy * mask", "dsum = copy(dy)"), ("total(dsum, over=batch)", "total(2 * dsum, over=batch)")],
    "head": [("(p - hot(target)) * dy / targets", "(p - hot(target)) * dy"), ("(p - hot(target))", "(p + hot(target))")],
    "head_tied": [("(p - hot(target)) * dy / targets", "(p - hot(target)) * dy"), ("(p - hot(target))", "p")],
    "head_capped": [("* slope(cap, raw)", ""), ("(p - hot(target))", "p")],
    "head_tied_capped": [("slope(cap, raw)", "slope(cap, logits)"), ("dy / targets * slope", "dy * slope")],
    "layer_norm": [("back = dc - total(dc, over=hidden) / size", "back = dc"), ("dh = dn * gain", "dh = copy(dn)")],
    "layer_norm_stream": [("returns(dc - total(dc, over=hidden) / size,", "returns(dc,"), ("dh = dy * gain", "dh = copy(dy)")],
    "layer_norm_plain": [("back = dc - total(dc, over=hidden) / size", "back = dc"), ("dh = dn * gain", "dh = copy(dn)")],
    "mlp": [("slope(gelu, u)", "slope(gelu, a)"), ("dn = contract(du, w1, over=ffn)", "dn = contract(2 * du, w1, over=ffn)")],
    "mlp_gpt": [("slope(gelu, u)", "slope(gelu, a)"), ("dout = dy * mask", "dout = copy(dy)")],
    "moe": [
        ("gate * (dgate - contract(gate, dgate, over=choices))", "gate * dgate"),
        ("dout = hot(route) * (gate * dy)", "dout = hot(route) * dy"),
        ("dn = total(contract(hot(route), dsent,", "dn = total(contract(hot(route), 2 * dsent,"),
    ],
    "moe_biased": [
        ("over=expert_ffn) + hot(route) * b2", "over=expert_ffn)"),
        ("du = da * s * slope(shift, u)", "du = da * s"),
        ("total(total(dlogits, over=tokens)", "total(total(2 * dlogits, over=tokens)"),
    ],
    "moe_scaled": [
        ("dgate = contract(back, n, over=hidden)", "dgate = contract(back, dy, over=hidden)"),
        ("* slope(sigmoid, logits)", "* elementwise(sigmoid, logits)"),
        ("routed = contract(gate, back, over=choices)", "routed = total(back, over=choices)"),
    ],
    "moe_shared": [
        ("dchosen = (dgate - contract(gate, dgate, over=choices)) / z", "dchosen = dgate / z"),
        ("* slope(sigmoid, logits)", "* elementwise(sigmoid, logits)"),
        ("dn = routed + contract(dvg, v1, over=shared_ffn)", "dn = routed"),
    ],
    "moe_sigmoid": [
        ("dchosen = (dgate - contract(gate, dgate, over=choices)) / z", "dchosen = dgate / z"),
        ("* slope(sigmoid, logits)", "* elementwise(sigmoid, logits)"),
        ("over=choices) + contract(dlogits, wr, over=experts)", "over=choices)"),
    ],
    "moe_weighted": [
        ("dweight = total(da * s * u, over=expert_ffn)", "dweight = total(da * a, over=expert_ffn)"),
        ("du = da * sorted_weight * s", "du = da * s"),
        ("gate * (dgate - contract(gate, dgate, over=choices))", "gate * dgate"),
    ],
    "moe_weighted_biased": [
        ("over=expert_ffn) + contract(dran, b2, over=hidden)", "over=expert_ffn)"),
        ("over=expert_ffn) + sorted_weight * b2", "over=expert_ffn) + hot(route) * b2"),
        ("total(sorted_weight * dran, over=tokens)", "total(dran, over=tokens)"),
    ],
    "moe_weighted_shared": [
        ("dweight = total(da * s * u, over=expert_ffn)", "dweight = total(da * s, over=expert_ffn)"),
        ("dg = da * sorted_weight * u", "dg = da * u"),
        ("dn = routed + contract(dvg, v1, over=shared_ffn)", "dn = routed"),
    ],
    "moe_weighted_sigmoid": [
        ("dgate = contract(hot(route), dweight, over=experts)", "dgate = contract(hot(route), 2 * dweight, over=experts)"),
        ("a = s * u * sorted_weight", "a = s * u"),
        ("* slope(sigmoid, logits)", "* elementwise(sigmoid, logits)"),
    ],
    "residual": [("dy, gradient_of=y, by=branch", "x, gradient_of=y, by=branch"), ("dy, gradient_of=y, by=x", "x, gradient_of=y, by=x")],
    "rms_norm": [("2 * bend * x / size", "bend * x / size"), ("dh = dn * gain", "dh = copy(dn)")],
    "rms_norm_after": [("2 * bend * branch / size", "bend * branch / size"), ("dh = dy * gain", "dh = copy(dy)")],
    "swiglu": [("dg = da * u * slope(silu, g)", "dg = da * s * slope(silu, g)"), ("dn = contract(dg, w1, over=ffn) +", "dn =")],
}  # fmt: skip


#: Blocks, each with the one that an implementation runs in its place.
INSTEAD = {block: other for name in implementations.names() for block, other in implementations.find(name).runs.items()}


def text(name: str) -> str:
    return (FOLDER / f"{name}.step").read_text(encoding="utf-8")


def test_every_block_is_in_these_tests_and_in_a_family() -> None:
    """A new block needs a row in each of the two tables above, and a family whose stack or option names it, or its branch, or an
    implementation that runs it in the place of another one."""
    assert set(KEPT) ^ set(blocks()) == set(), "KEPT: what is kept of it"
    assert set(WRONG) ^ set(blocks()) == set(), "WRONG: mistakes in its backward that have to be refuted"
    named = {branch_of(b)[0] for f in families() for b in family(f).programs} | set(INSTEAD.values())
    assert named ^ set(blocks()) == set(), "placeproof/models/families"


#: Proved at night; by day are fused attention with the same words, and plain attention with each of them.
LONGEST = () if NIGHTLY else ("attention_biased_normed",)


@pytest.mark.parametrize("name", [name for name in blocks() if name not in LONGEST])
def test_every_block_is_proved(name: str) -> None:
    assert read(text(name), source=name) == block_program(name)  # and it is well formed
    judged = judge_tensors(block_program(name))
    assert judged.word == "proved", (judged.about, judged.why)


@pytest.mark.parametrize(("block", "instead"), INSTEAD.items())
def test_a_block_that_is_run_instead_of_another_one_gives_the_same(block: str, instead: str) -> None:
    """The gradients that the other block claims are those of what this one gives, for all inputs: so the two differ by a constant. And
    where the last matrices are zero, both are the stream."""
    lines, others = (text(name).splitlines() for name in (block, instead))
    own = {line for line in lines if not line.startswith("out = ")}
    forward = [re.sub(r"\b(a|out)\b", r"\1_instead", line) for line in others[: others.index("returns(y)")] if line not in own]
    before = lines.index(next(line for line in lines if line.startswith("y = ")))
    mixed = [*lines[:before], *(line for line in forward if not line.startswith("#")), *lines[before + 1 :]]
    assert judge_tensors(read("\n".join(mixed))).word == "proved"


def gradients(program: Program) -> list[tuple[str, str, str]]:
    """What each gradient is of, by and at."""
    every = [c for s in program.body for c in calls(s) if c.op == "returns" and c.option("gradient_of") is not None]
    return [(c.option("gradient_of") or "", c.option("by") or "", c.option("at") or "") for c in every]


@pytest.mark.parametrize("name", blocks())
def test_a_block_gives_one_output_and_the_gradient_by_each_of_its_inputs(name: str) -> None:
    """By every weight, by what it reads of the stream, and by nothing else; the norm that it reads and its masks are inputs, too."""
    program = block_program(name)
    gives = output(program)
    assert gives is not None
    start = {f"d{gives}"} & {t.name for t in program.tensors}
    found = gradients(program)
    assert {(of, at) for of, _, at in found} == {(gives, f"d{gives}")}
    assert start == {f"d{gives}"}
    numbers = {t.name for t in program.tensors if t.picks is None} - start - {"mask", "drop"}
    assert sorted(by for _, by, _ in found) == sorted(numbers)
    assert {w.name for w in weights(program)} == numbers - {*WIRES.values()}


@pytest.mark.parametrize("name", blocks())
def test_what_a_block_keeps(name: str) -> None:
    assert [k.name for k in kept(block_program(name))] == KEPT.get(name, "").split()


def runs(program: Program) -> tuple[int, Difference | None]:
    """Small runs in exact numbers that could be computed, and the first difference. Some attention norms what its scores are made of, so
    that most runs need an exponential of too large a number: it is run more often, with one element wherever one will do."""
    dims = {d for t in program.tensors for d in (*t.dims, *([t.picks] if t.picks else []))}
    latent, normed = "kv_rank" in dims, any(isinstance(s, Assign) and s.targets[0].name == "wide_k" for s in program.body)
    more = normed and any(t.name == "bk" or (t.name == "gain_k" and len(t.dims) > 1) for t in program.tensors)
    sizes = {d: 2 if d in ("tokens", "keys", "hidden") or not (latent or normed) else 1 for d in dims}
    sizes |= {"hidden": 1} if latent else {"tokens": 3, "keys": 3, "hidden": 1} if more else {"tokens": 3} if normed else {}
    done = 0
    for fine, seed in itertools.product((False, True), range(1, 25)):
        try:
            what = simulate(program, Setup(degrees={}, sizes=sizes, seed=seed, fine=fine))
        except NotComputedError:
            continue
        done += 1
        if what is not None or done == (24 if more else 12 if normed else 8 if latent else 2):
            return done, what
    return done, None


@pytest.mark.parametrize(("name", "old", "new"), [(n, *edit) for n, edits in WRONG.items() for edit in edits])
def test_a_wrong_block_is_refuted_by_a_small_run(name: str, old: str, new: str) -> None:
    assert text(name).count(old) == 1
    assert runs(read(text(name).replace(old, new)))[1] is not None


@pytest.mark.parametrize("name", blocks())
def test_small_runs_agree_with_derivatives_in_fractions(name: str) -> None:
    done, difference = runs(block_program(name))
    assert done >= 2
    assert difference is None


# Blocks without their residual.

BRANCHES = {(name, of or "") for f in families() for name, of in map(branch_of, family(f).programs) if of}


@pytest.mark.parametrize(("name", "of"), sample(sorted(BRANCHES), lambda branch: {branch[1], *branch[0].split("_")}))
def test_a_branch_is_what_its_block_adds_to_the_stream(name: str, of: str) -> None:
    """Proved as a block, keeping what the block keeps; and the block's own text is it with the stream before it."""
    made = branch(block_program(name), of)
    assert read(render(made)) == made
    assert output(made) == "branch"
    judged = judge_tensors(made)
    assert judged.word == "proved", judged.why
    assert [k.name for k in kept(made)] == [of if value == "n" else value for value in KEPT[name].split()]
    back = render(made).replace("dbranch", "dy").replace("branch = ", "y = x + ").replace("branch", "y").splitlines()
    if of == "n":
        whole = [line for line in render(block_program(name)).splitlines() if not line.startswith("tensor(x") and "by=x" not in line]
        assert back == whole


def test_only_a_sum_with_the_stream_has_a_branch() -> None:
    for name in ("rms_norm", "layer_norm_stream", "head"):
        with pytest.raises(ValueError, match=f"`{name}` is no sum of the stream"):
            branch(block_program(name), "n")
    head = "tensor(x, tokens)\ntensor(n, tokens)\ntensor(dy, tokens)\n"
    text = head + "y = x + n * x\nreturns(y)\nreturns(dy + dy * n, gradient_of=y, by=x, at=dy)\n"
    with pytest.raises(ValueError, match="`twice` is no sum"):
        branch(parse(text, source="twice"), "n")


# Two programs of one function.


def both(first: str, second: str) -> Program:
    """Forward as the first block says it, and backward as the second does, from what its own forward keeps."""
    lines = [[line for line in text(name).splitlines() if not line.startswith(("#", "tensor"))] for name in (first, second)]
    head = [line for line in text(first).splitlines() if line.startswith("tensor")]
    cut = lines[0].index("returns(y)")
    return read("\n".join([*head, *lines[0][:cut], *(line for line in lines[1] if not line.startswith("y = "))]))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (first + kind, second + kind)
        for kind in ("", "_biased", "_capped", "_sinks", *(("_biased_normed", "_normed", "_wholly_normed") if NIGHTLY else ()))
        for first, second in (("attention", "attention_flash"), ("attention_flash", "attention"))
    ],
)
def test_backward_of_fused_attention_is_that_of_plain_attention(first: str, second: str) -> None:
    judged = judge_tensors(both(first, second))
    assert judged.word == "proved", judged.why


# Masks.

MASKED = ("embedding_learned", "attention_gpt", "attention_gpt_flash", "mlp_gpt")


@pytest.mark.parametrize("name", MASKED)
def test_a_block_without_dropout_is_proved_and_keeps_no_mask(name: str) -> None:
    plain = without(block_program(name), ("mask", "drop"))
    assert read(render(plain)) == plain
    judged = judge_tensors(plain)
    assert judged.word == "proved", judged.why
    gone = {"mask", "drop", "pd"}  # what dropout leaves of the probabilities is then the probabilities
    assert [k.name for k in kept(plain)] == [k for k in KEPT[name].split() if k not in gone]


def test_only_a_factor_can_be_left_out() -> None:
    program = parse("tensor(x, tokens)\ntensor(mask, tokens)\ny = x + mask\nreturns(y)\n", source="sum")
    with pytest.raises(ValueError, match="`mask` of `sum` is no mere factor"):
        without(program, ("mask",))
    assert without(program, ("drop",)) is program


def test_factors_are_left_out_wherever_they_stand() -> None:
    text = "tensor(x, tokens)\ntensor(m, tokens)\ny = 2 * (m * elementwise(f, x * m)) - x\nreturns(total(m * x, over=tokens))\nreturns(y)\n"
    assert render(without(read(text), ("m",))) == render(
        read("tensor(x, tokens)\ny = 2 * elementwise(f, x) - x\nreturns(total(x, over=tokens))\nreturns(y)\n")
    )


# What is a weight, and how much of it a token meets.


@pytest.mark.parametrize("name", blocks())
def test_weights_are_what_costs_take_for_weights(name: str) -> None:
    program = block_program(name)
    layouts = {name: value.layout for name, value in inputs(program).items()}
    assert {w.name for w in weights(program)} == {n for n, v in layouts.items() if v.model and v.picks is None}


REACHED: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "embedding": {"table": ("vocab", ())},
    "embedding_learned": {"table": ("vocab", ()), "learned": ("positions", ())},
    "moe": dict.fromkeys(("w1", "w2", "w3"), ("experts", ("choices",))),
    "moe_biased": dict.fromkeys(("w1", "b1", "w2", "b2", "w3", "b3"), ("experts", ("choices",))),
    "moe_scaled": dict.fromkeys(("w1", "w2", "w3"), ("experts", ("choices",))),
    "moe_shared": dict.fromkeys(("w1", "w2", "w3"), ("experts", ("choices",))),
    "moe_sigmoid": dict.fromkeys(("w1", "w2", "w3"), ("experts", ("choices",))),
    "moe_weighted": dict.fromkeys(("w1", "w2", "w3"), ("experts", ("choices",))),
    "moe_weighted_biased": dict.fromkeys(("w1", "b1", "w2", "b2", "w3", "b3"), ("experts", ("choices",))),
    "moe_weighted_shared": dict.fromkeys(("w1", "w2", "w3"), ("experts", ("choices",))),
    "moe_weighted_sigmoid": dict.fromkeys(("w1", "w2", "w3"), ("experts", ("choices",))),
}


@pytest.mark.parametrize("name", blocks())
def test_rows_that_a_token_reaches(name: str) -> None:
    assert rows_reached(block_program(name)) == REACHED.get(name, {})


def test_a_table_that_is_also_read_whole_is_reached_whole() -> None:
    lines = "tensor(ids, batch, tokens, picks=vocab)\ntensor(table, vocab, hidden)\nx = contract(hot(ids), table, over=vocab)\n"
    assert rows_reached(read(lines + "returns(x)\n")) == {"table": ("vocab", ())}
    assert rows_reached(read(lines + "y = contract(x, table, over=hidden)\nreturns(y)\n")) == {"table": ("vocab", ())}
    assert rows_reached(read(lines + "y = total(table, over=vocab)\nreturns(y)\n")) == {}


# Text.


@pytest.mark.parametrize("name", blocks())
def test_a_block_says_what_it_is_and_uses_no_name_twice_for_two_values(name: str) -> None:
    assert text(name).startswith("# ")
    assert all(len(line) <= 135 for line in text(name).splitlines())
    assigned = [re.match(r"(\w+) =", line) for line in text(name).splitlines()]
    names = [m[1] for m in assigned if m]
    assert len(names) == len(set(names))
    assert not set(names) & {t.name for t in block_program(name).tensors}
