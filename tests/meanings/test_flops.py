"""How much blocks compute: against tables by hand, counts of what PyTorch runs, and the figures of papers."""

from __future__ import annotations

import warnings
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
import sympy
from gpt_blocks import LAYER, block, gpt_layer, gpt_weights, of_torch
from hypothesis import given, settings
from hypothesis import strategies as st
from published import as_printed, rows

from placeproof.core.diagnostics import InputError
from placeproof.cost.blocks.flops import Work, amount, element_operations, flops, matrices, operations, weights
from placeproof.cost.blocks.layer import Layer, layer
from placeproof.cost.blocks.tensors import SizeError
from placeproof.programs import Program, read

b, s, h, a, L, V, B = sympy.symbols("b s h a L V B")
GPT = {"batch": b, "tokens": s, "keys": s, "hidden": h, "heads": a, "width": h / a, "ffn": 4 * h, "vocab": V}
FIGURES = {row["id"]: row for row in rows()}

HEAD = """\
mesh(ep)
tensor(x, batch, tokens, hidden)
tensor(ids, batch, tokens, picks=vocab)
tensor(route, batch, tokens, choices, picks=experts)
tensor(table, vocab, hidden)
tensor(w, hidden, ffn)
tensor(u, batch, tokens, ffn)
tensor(gain, hidden)
tensor(ws, experts, hidden, ffn, ep=experts)
tensor(dy, batch, tokens, hidden)
"""
#: Different primes, so that a product of some of them is no product of others.
SIZES = {"batch": 2, "tokens": 3, "hidden": 5, "ffn": 7, "vocab": 11, "experts": 13, "choices": 17}
DEGREES = {"ep": 13}
bt, bth = 2 * 3, 2 * 3 * 5

#: A line of forward -> products of matrices, and everything else.
COUNTS: dict[str, tuple[int, int]] = {
    "contract(x, w, over=hidden)": (2 * bth * 7, 0),
    "contract(w, x, over=hidden)": (2 * bth * 7, 0),
    "contract(x, table, over=hidden)": (2 * bth * 11, 0),
    "contract(x, x, over=hidden)": (0, 2 * bth),
    "contract(x, gain, over=hidden)": (0, 2 * bth),
    "contract(hot(ids), table, over=vocab)": (0, 0),
    "contract(hot(ids), x, over=tokens)": (0, bth),
    "total(contract(x, u, over=tokens), over=batch)": (2 * bth * 7, 0),
    "total(total(contract(x, w, over=hidden), over=ffn), over=batch)": (2 * bth * 7, 0),
    "total(contract(x, w, over=hidden) + 1, over=ffn)": (2 * bth * 7, 2 * bt * 7),
    "largest(contract(x, w, over=hidden), over=ffn)": (2 * bth * 7, bt * 7),
    "x * gain": (0, bth),
    "x * x + x": (0, 2 * bth),
    "1 / x": (0, bth),
    "x / ep": (0, bth),
    "total(x, over=hidden)": (0, bth),
    "largest(x, over=tokens)": (0, bth),
    "elementwise(gelu, x)": (0, bth),
    "slope(gelu, x)": (0, bth),
    "elementwise(stop, x)": (0, 0),
    "copy(x)": (0, 0),
    "scale(x, 2)": (0, bth),
    "all_reduce(x, ep)": (0, 0),
    "hot(route) * x": (0, 17 * bth),
    "contract(hot(route) * x, all_gather(ws, ep), over=hidden)": (2 * 17 * bth * 7, 17 * bth),
    "contract(hot(route), contract(x, all_gather(ws, ep), over=hidden), over=experts)": (2 * bth * 7 * 13, 0),
    "elementwise(gelu, hot(route) * x)": (0, 2 * 17 * bth),
    "(hot(route) * x) + (hot(route) * x)": (0, 3 * 17 * bth),
    "max(hot(route) * x, hot(route) * x)": (0, 3 * 17 * bth),
    "max(hot(route) * x, x)": (0, 17 * bth + 17 * 13 * bth),
    "(hot(route) * x) + x": (0, 17 * bth + 17 * 13 * bth),
    "total(hot(route) * x, over=choices) * x": (0, 2 * 17 * bth + 13 * bth),
    "(hot(route) * x) / 2 - 1": (0, 2 * 17 * bth + 17 * 13 * bth),
    "2 / (hot(route) * x)": (0, 17 * bth + 17 * 13 * bth),
    "total(contract(hot(route) * x, all_gather(ws, ep), over=hidden), over=experts)": (2 * 17 * bth * 7, 17 * bth),
}


def written(line: str) -> Program:
    return read(f"{HEAD}y = x\nz = {line}\nreturns(y)\nreturns(dy, gradient_of=y, by=x, at=dy)\n")


@pytest.mark.parametrize("line", COUNTS)
def test_what_operations_count(line: str) -> None:
    program = written(line)
    products, others = (f(program, SIZES, DEGREES) for f in (flops, element_operations))
    assert (products.forward, others.forward) == COUNTS[line]
    assert products.backward == others.backward == products.again == others.again == 0


def test_experts_of_a_device_get_their_share_of_tokens() -> None:
    """Of 13 experts on 13 devices each has one; a device that gets half as many tokens again works half as much again."""
    program = written("contract(part(hot(route) * x, ep, dim=experts), ws, over=hidden)")
    even = Fraction(2 * 17 * bth * 7, 13)
    assert flops(program, SIZES, DEGREES).forward == even
    assert flops(program, SIZES, DEGREES, load=Fraction(3, 2)).forward == even * Fraction(3, 2)
    assert flops(program, SIZES, DEGREES, load=13).forward == 2 * 17 * bth * 7
    assert sum(o.steps(SIZES, DEGREES) for o in operations(program) if o.product) == even
    load = sympy.Symbol("load")
    assert flops(program, SIZES, DEGREES, load=load).forward == sympy.Rational(even) * load


def test_amounts_stay_whole_where_they_are() -> None:
    assert amount(("a", "b"), (("b", ("ep",)),), {"b"}, {"a": 6, "b": 9}, {"ep": 3}) == 2
    assert isinstance(amount(("a", "b"), (("b", ("ep",)),), {"b"}, {"a": 6, "b": 9}, {"ep": 3}), int)
    assert amount(("a", "b"), (("b", ("ep",)),), {"b"}, {"a": 7, "b": 9}, {"ep": 3}) == Fraction(7, 3)


def test_split_dimensions_count_in_parts() -> None:
    for plan in ("tp", "sp"):
        one, four = (flops(block("mlp_gpt", plan), GPT, {"tp": n}) for n in (1, 4))
        assert sympy.expand(one.total - 4 * four.total) == 0
        assert one == flops(block("mlp_gpt"), GPT, {})


def test_missing_sizes_and_degrees_are_named() -> None:
    program = block("mlp_gpt", "tp")
    with pytest.raises(SizeError, match="size of dimension `ffn`"):
        flops(program, {k: v for k, v in GPT.items() if k != "ffn"}, {"tp": 2})
    with pytest.raises(SizeError, match="degree of axis `tp`"):
        flops(program, GPT, {})
    with pytest.raises(SizeError, match="does not divide"):
        flops(program, dict.fromkeys(GPT, 3), {"tp": 2})
    with pytest.raises(SizeError, match="degree of axis `ep`"):
        flops(read(f"{RING}"), SIZES, {})
    with pytest.raises(InputError):
        flops(read("mesh(dp)\ng = backward(parameters)\n"), {}, {})


RING = """\
mesh(ep)
tensor(x, batch, tokens, hidden)
tensor(w, hidden, ffn)
tensor(dy, batch, tokens, hidden)
v = copy(x)
for r in rounds[ep]:
    v = shift(v, ep)
    z = contract(v, w, over=hidden)
y = v * x
returns(y)
returns(dy * v, gradient_of=y, by=x, at=dy)
"""


def test_rounds_of_a_ring_are_done_once_for_each_other_device() -> None:
    assert flops(read(RING), SIZES, {"ep": 4}).forward == 3 * 2 * bth * 7
    assert element_operations(read(RING), SIZES, {"ep": 4}) == Work(forward=bth, again=0, inputs=bth, weights=0)


# Passes.


def passes(program: Program, **kinds: Any) -> dict[str, str]:
    """The pass of each value that has a name and is made in backward."""
    found = (o for o in operations(program, **kinds) if o.during != "forward")
    return {o.result.name: "again" if o.again else o.during for o in found if not o.result.name.startswith("#")}


def test_backward_is_taken_apart() -> None:
    program = read(
        f"{HEAD}u = x * gain\nc = contract(u, w, over=hidden)\ny = x * total(c, over=ffn)\nreturns(y)\n"
        "dc = total(dy * x, over=hidden)\nv = x * gain\ndead = dy * dy\nshared = dc * dc\nonly = shared * v\nalias = only\n"
        "returns(total(total(alias * w, over=tokens), over=batch), gradient_of=y, by=w, at=dy)\n"
        "dx = shared * x\nreturns(dx, gradient_of=y, by=x, at=dy)\n"
    )
    assert passes(program) == {"dc": "inputs", "v": "again", "dead": "inputs", "shared": "inputs", "only": "weights", "dx": "inputs"}
    assert passes(program, deferred=()) == {**passes(program), "only": "inputs"}
    assert passes(program, deferred=("gain",))["only"] == "inputs"
    assert weights(program) == ("table", "w", "gain", "ws")
    assert matrices(program) == ("w",)


def test_gathered_weights_are_matrices() -> None:
    assert matrices(written("contract(x, all_gather(ws, ep) * gain, over=hidden)")) == ("gain", "ws")
    assert matrices(written("contract(x, gain, over=hidden)")) == ()
    assert matrices(block("attention_gpt", "sp")) == ("wq", "wk", "wv", "wo")
    assert matrices(of_torch("embedding")) == ()


# Papers.


@pytest.fixture(scope="module")
def gpt() -> Layer:
    return layer([block(n) for n in LAYER])


def equal(found: Any, formula: str) -> bool:
    names = {"b": b, "s": s, "h": h, "a": a, "L": L, "l": L, "V": V, "v": V, "B": B, "S": s, "N": sympy.Symbol("N"), "E": sympy.Symbol("E")}
    return bool(sympy.expand(found - sympy.sympify(formula, locals=names)) == 0)


def test_passes_of_zero_bubble(gpt: Layer) -> None:
    """Qi et al. 2024, table 1."""
    work = gpt.flops(GPT, {})
    assert FIGURES["zb-t1-F-flops"]["formula"] == "sbh(24h+4s)"
    for found, name in ((work.forward, "F"), (work.inputs, "B"), (work.weights, "W")):
        assert equal(found, FIGURES[f"zb-t1-{name}-flops"]["formula"].replace("sbh(", "s*b*h*(").replace("4h", "4*h").replace("s)", "*s)"))
    assert work.again == 0
    assert sympy.expand(work.backward - 2 * work.forward) == 0


def test_a_layer_and_the_logits(gpt: Layer) -> None:
    """Korthikanti et al. 2022, appendix A."""
    layer_formula, rest = FIGURES["korth-layer-flops"]["formula"].replace("B", "b").split(" per layer forward; ")
    assert equal(gpt.flops(GPT, {}).forward, layer_formula)
    logits, times = rest.split(" logits; x")
    head = flops(of_torch("head"), GPT, {})
    assert equal(head.forward, logits)
    assert times.startswith("3 ")
    for work in (head, gpt.flops(GPT, {})):
        assert sympy.expand(work.model - 3 * work.forward) == 0


def iteration(found: Layer) -> tuple[Any, Any]:
    """What the model asks for in an iteration, and what is done: L layers, and the logits, which are not computed again."""
    work, head = found.flops(GPT, {}), flops(of_torch("head"), GPT, {})
    assert head.again == 0
    return L * work.model + head.total, L * work.total + head.total


def test_an_iteration_with_everything_computed_again(gpt: Layer) -> None:
    """Narayanan et al. 2021, equation 3: four forwards of the layers, and three of the logits."""
    _, done = iteration(gpt.full())
    formula = FIGURES["nar-flops"]["formula"].replace("6h", "6*h").replace("16lh", "16*l*h").replace("B", "b")
    assert equal(done, formula)
    for row in FIGURES.values():
        if row["id"].startswith("nar-t1-") and row["id"].endswith("-flops"):
            i = row["inputs"] | FIGURES[row["id"].replace("-flops", "-params")]["inputs"]
            number = done.subs({b: i["batch"], s: i["seq"], h: i["hidden"], L: i["layers"], V: i["vocab"]})
            assert abs(int(number) / float(row["value"]) - 1) < 1e-12


def test_the_leading_term_of_zero_infinity(gpt: Layer) -> None:
    """Rajbhandari et al. 2021, section 4.1, leaves out attention's products and the logits."""
    done = sympy.Poly(sympy.expand(gpt.full().flops(GPT, {}).total), s).coeff_monomial(s)
    formula = FIGURES["zinf-flops"]["formula"].replace("bsz", "b").replace("seq*nl*hd", "h")
    assert equal(done, formula)


# What PyTorch runs.


@pytest.mark.parametrize("again", ["nothing", "as far as needed", "to its end"])
def test_pytorch_runs_as_many(gpt: Layer, again: str) -> None:
    """Its own counter, with attention computed again by its checkpoints: up to the last tensor that is needed, or all of it."""
    torch = pytest.importorskip("torch", reason="torch is not installed: what it runs is not counted")
    counter = pytest.importorskip("torch.utils.flop_counter")
    from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

    def core(q: Any, k: Any, v: Any) -> Any:
        p = torch.softmax(q @ k.transpose(-1, -2), dim=-1)
        return torch.native_dropout(p, 0.1, True)[0] @ v

    def saving(*qkv: Any) -> Any:
        return checkpoint(core, *qkv, use_reentrant=False)

    sizes = {"batch": 2, "tokens": 6, "keys": 6, "hidden": 8, "heads": 2, "width": 4, "ffn": 32}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of what is missing on this machine
        own, x = gpt_weights(torch, 8, torch.float32), torch.randn(2, 6, 8, requires_grad=True)
        with counter.FlopCounterMode(display=False) as mode, set_checkpoint_early_stop(again == "as far as needed"):
            gpt_layer(torch, x, own, 2, core if again == "nothing" else saving).sum().backward()
    values = [f"attention_gpt.{n}" for n in ("kk", "vv", "scores", "e", "p", "pd")]
    found = gpt
    if again != "nothing":
        found = gpt.recomputed(*values, rerun=["attention_gpt.o"] if again == "to its end" else [])
    assert found.flops(sizes, {}).total == mode.get_total_flops()


# In numbers.


@pytest.fixture(scope="module")
def symbolic(gpt: Layer) -> tuple[Work, Work]:
    return gpt.flops(GPT, {}), gpt.element_operations(GPT, {})


@settings(max_examples=20)
@given(data=st.data())
def test_symbols_and_numbers_agree(gpt: Layer, symbolic: tuple[Work, Work], data: st.DataObject) -> None:
    each = st.integers(1, 6)
    batch, tokens, heads, width = (data.draw(each) for _ in range(4))
    numbers = {b: batch, s: tokens, h: heads * width, a: heads}
    sizes = {k: int(v.subs(numbers)) for k, v in GPT.items() if k != "vocab"}
    for expected, found in zip(symbolic, (gpt.flops(sizes, {}), gpt.element_operations(sizes, {})), strict=True):
        for kind in ("forward", "again", "inputs", "weights", "total"):
            number = getattr(found, kind)
            assert isinstance(number, int)
            assert sympy.sympify(getattr(expected, kind)).subs(numbers) == number


# What is printed.

#: Of an A100, as the papers take it.
PEAK = 312 * 10**12


def printed(row: str, config: str, steps: Any) -> Fraction:
    """Percent of the peak that a count of operations of an iteration makes, at the printed time."""
    i, at = FIGURES[row]["inputs"], FIGURES[config]["inputs"]
    sizes = {b: at["global_batch"], s: at["seq"], h: at["hidden"], L: at["layers"], V: at["vocab"]}
    return 100 * Fraction(int(steps.subs(sizes))) / (Fraction(str(i["iter_s"])) * at["gpus"] * PEAK)


def test_utilisation_as_printed(gpt: Layer) -> None:
    """Korthikanti et al. 2022, table 5. For 22B the printed time of an iteration has two digits."""
    model, _ = iteration(gpt)
    assert as_printed(printed("korth-t5-MFU-175B", "korth-t3-175B", model), FIGURES["korth-t5-MFU-175B"]["value"])
    row = FIGURES["korth-t5-MFU-22B"]
    assert as_printed(printed(row["id"], "korth-t3-22B", model), Decimal(row["check"].removeprefix("recomputed ")))


def test_what_attention_costs_again(gpt: Layer) -> None:
    """Korthikanti et al. 2022: 2.7 % and 1.6 % (section 5) are of a forward. Equation 8, of an iteration, has three times as much again."""
    values = [f"attention_gpt.{n}" for n in ("kk", "vv", "scores", "e", "p", "pd")]
    checkpointed = gpt.recomputed(*values, rerun=["attention_gpt.o"])
    work = checkpointed.flops(GPT, {})
    for name in ("gpt3", "mtnlg"):
        row = FIGURES[f"korth-sel-flops-{name}"]
        share = sympy.Rational(1) * (work.again / work.forward).subs({s: row["inputs"]["s"], h: row["inputs"]["h"]})
        assert as_printed(100 * Fraction(int(share.p), int(share.q)), row["value"])
    model, _ = iteration(checkpointed)
    equations = [
        FIGURES[f"korth-t5-{kind}-175B"]["formula"].split(" / (T")[0].replace("6h", "6*h").replace("3h", "3*h") for kind in ("MFU", "HFU")
    ]
    seventh, eighth = (e.replace("12hL", "12*h*L").replace("B", "b") for e in equations)
    assert equal(model, seventh)
    assert equal(model + 3 * L * work.again, eighth)
    assert as_printed(printed("korth-t5-HFU-175B", "korth-t3-175B", model + 3 * L * work.again), FIGURES["korth-t5-HFU-175B"]["value"])
