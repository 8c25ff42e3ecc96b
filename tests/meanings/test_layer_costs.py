"""What a layer keeps, holds and sends, read off a chain of blocks: the tables of papers, and PyTorch's own storages."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
import sympy
from gpt_blocks import FOLDER, LAYER, block, gpt_layer, gpt_weights, of_torch
from hypothesis import given, settings
from hypothesis import strategies as st
from published import as_printed, rows

from placeproof.core.diagnostics import InputError
from placeproof.cost.blocks.layer import Layer, layer
from placeproof.cost.blocks.recompute import between
from placeproof.cost.blocks.tensors import kept
from placeproof.programs import Program, read
from placeproof.semantics.blocks import lower_block, tensor_parallel

b, s, h, a, t, L = sympy.symbols("b s h a t L")
SIZES = {"batch": b, "tokens": s, "keys": s, "hidden": h, "heads": a, "width": h / a, "ffn": 4 * h}
DEGREES = {"tp": t}
MASKS = {"drop": 1, "mask": 1}
DRAWN = ("attention_gpt.drop", "attention_gpt.mask", "mlp_gpt.mask")
FIGURES = {row["id"]: row for row in rows()}
PLANS = ("", "tp", "sp")


@cache
def gpt(plan: str = "") -> Layer:
    return layer([block(n, plan) for n in LAYER])


@cache
def core() -> tuple[str, ...]:
    """What lies between queries, keys, values and the output of attention."""
    return tuple(f"attention_gpt.{n}" for n in between(block("attention_gpt"), ("q", "k", "v"), ("o",)))


@cache
def found_of(name: str) -> tuple[Layer, tuple[str, ...]]:
    """A row of table 2 (Korthikanti et al. 2022): the layer, and which of its masks are drawn again."""
    found = gpt("sp" if "sp" in name else "tp" if "tp" in name else "")
    if "selective" in name:
        return found.recomputed(*core()), DRAWN[:1]
    return (found.full(), DRAWN) if name == "full" else (found, ())


@cache
def row_of(name: str) -> Any:
    """Its bytes in symbols."""
    found, drawn = found_of(name)
    return found.kept_bytes(SIZES, DEGREES, 2, MASKS, regenerated=drawn)


def same(found: Any, formula: str) -> bool:
    return bool(sympy.expand(found - sympy.sympify(formula, locals={"b": b, "s": s, "h": h, "a": a, "t": t, "L": L})) == 0)


# The table of activations.


@pytest.mark.parametrize("name", ["none", "tp", "tp_sp", "tp_selective", "tp_sp_selective", "full"])
def test_activations_of_a_layer(name: str) -> None:
    assert same(row_of(name), FIGURES[f"korth-t2-{name}"]["formula"])
    for model in ("22B", "175B"):
        row = FIGURES[f"korth-t2-{name}-{model}"]
        at = {b: row["inputs"]["b"], s: row["inputs"]["s"], h: row["inputs"]["h"], a: row["inputs"]["a"], t: row["inputs"]["t"]}
        assert int(row_of(name).subs(at)) == round(row["value"])


def test_the_breakdown_is_that_of_the_paper() -> None:
    """Section 4.1: what each tensor takes, in units of s b h bytes, and of a s^2 b."""
    found = gpt().rows(gpt().kept(), SIZES, {}, 2, MASKS)
    shown = [(r.stored.block, r.stored.number, r.stored.name, sympy.expand(r.bytes)) for r in found]
    square, line = a * s**2 * b, s * b * h
    attention = [("q", 2 * line), ("k", 2 * line), ("v", 2 * line), ("p", 2 * square), ("pd", 2 * square), ("o", 2 * line), ("y", 2 * line)]
    assert shown == [
        ("input", 0, "x", 2 * line),
        ("attention_gpt", 2, "drop", square),
        ("attention_gpt", 2, "mask", line),
        ("mlp_gpt", 4, "mask", line),
        ("layer_norm", 1, "n", 2 * line),
        *(("attention_gpt", 2, name, amount) for name, amount in attention),
        ("layer_norm", 3, "n", 2 * line),
        ("mlp_gpt", 4, "u", 8 * line),
        ("mlp_gpt", 4, "a", 8 * line),
    ]


def test_what_everything_computed_again_keeps_under_each_plan() -> None:
    """Section 5: the input, whole on every device; where the stream is split by tokens, a part of it, for one more gather."""
    every = {plan: gpt(plan).full() for plan in PLANS}
    kept_ = {plan: e.kept_bytes(SIZES, DEGREES, 2, MASKS, regenerated=DRAWN) for plan, e in every.items()}
    assert same(kept_["tp"] * L, FIGURES["korth-full-tp"]["formula"].split(" (")[0])
    assert same(kept_["sp"], "2*s*b*h/t")
    assert all(len(every[plan].exchanges(SIZES, DEGREES, 2)) > len(gpt(plan).exchanges(SIZES, DEGREES, 2)) for plan in ("tp", "sp"))
    one = layer([block(n) for n in LAYER * 3]).full()  # three layers between checkpoints
    per = sympy.expand(one.kept_bytes(SIZES, {}, 2, MASKS, regenerated=DRAWN) * L / 3)
    checkpoints = FIGURES["zinf-actckpt"]["formula"].replace("bsz*seq*hd*nl", "b*s*h*L").replace("ci", "3")
    assert same(per, checkpoints)


def test_a_norm_computed_again_in_its_reader() -> None:
    assert gpt().again("layer_norm.n") == ("layer_norm.centred", "layer_norm.n")
    saved = row_of("none") - gpt().recomputed("layer_norm.n").kept_bytes(SIZES, {}, 2, MASKS)
    assert sympy.expand(saved - 4 * s * b * h) == 0


def test_ratios_in_the_text() -> None:
    """Section 5: 5as/h is 80 and 64 where the rest is 34; figure 7, digitised: parts of the row of tensor parallelism alone."""
    none, selective = (row_of(n).subs(t, 1) for n in ("none", "tp_sp_selective"))
    for model in ("gpt3", "mtnlg"):
        at = {a: 0, s: 0, h: 0} | {sympy.Symbol(k): v for k, v in FIGURES[f"korth-5as-h-{model}"]["inputs"].items()}
        assert sympy.simplify((none - selective) / (s * b * h)).subs(at) == FIGURES[f"korth-5as-h-{model}"]["value"]
        share = sympy.cancel(100 * (none - selective) / none).subs(at)
        assert as_printed(Fraction(int(share.p), int(share.q)), FIGURES[f"korth-sel-save-{model}"]["value"])
    for model in ("22B", "175B"):
        at = {sympy.Symbol(k): v for k, v in FIGURES[f"korth-t2-none-{model}"]["inputs"].items()}
        for name, kind in (("seq", "tp_sp"), ("sel", "tp_selective"), ("seqsel", "tp_sp_selective"), ("full", "full")):
            row = FIGURES[f"korth-fig7-{name}-{model}"]
            (points,) = re.findall(r"within ([\d.]+) points", row["check"])
            share = sympy.cancel(100 * row_of(kind) / row_of("tp")).subs(at)
            assert as_printed(abs(Fraction(int(share.p), int(share.q)) - Fraction(row["value"])), Decimal(points))


def test_activations_of_a_model() -> None:
    """Without pipeline stages, what a model's layers keep is L times what one keeps."""
    assert same(L * row_of("none"), FIGURES["playbook-act"]["formula"].replace("seq", "s").replace("bs", "b").replace("n_heads", "a"))
    for name, kind in (("baseline", "tp"), ("sp-selective", "tp_sp_selective")):
        row = FIGURES[f"korth-fig1-act-{name}-22B"]
        at = {sympy.Symbol(k): v for k, v in ({"a": 64} | row["inputs"]).items() if v is not None}
        assert Fraction(int((L * row_of(kind)).subs(at)), 2**30) == Fraction(row["value"])


def test_the_working_memory_of_zero_infinity() -> None:
    """Rajbhandari et al. 2021, section 3: its activations are elements of what we keep without masks (fp16 takes twice as many bytes)."""
    elements = gpt().kept_bytes(SIZES, {}, 1, dict.fromkeys(MASKS, 0))
    formula = FIGURES["zinf-AWM"]["formula"].replace("bsz*seq*ci", "b*s").replace("attn_heads*seq", "a*s").replace("hd", "h")
    assert same(elements, formula)
    largest = max(gpt().rows(gpt().weights(), SIZES, {}, 2 + 2), key=lambda r: r.elements.subs({h: 8, a: 2}))
    assert same(largest.bytes, FIGURES["zinf-MSWM"]["formula"].split(" = ")[0].replace("hd", "h"))
    assert sympy.Poly(gpt().parameters(SIZES, {}), h).coeffs()[0] == 12
    assert FIGURES["zinf-params"]["formula"] == "12*nl*hd^2"


@pytest.mark.parametrize("plan", ["tp", "sp"])
def test_blocks_that_are_lowered_cost_what_those_by_hand_do(plan: str) -> None:
    lowered = layer([lower_block(block(n), tensor_parallel("tp", sequence=plan == "sp")) for n in LAYER])
    for found, by_hand in (
        (lowered, gpt(plan)),
        (lowered.recomputed(*core()), gpt(plan).recomputed(*core())),
        (lowered.full(), gpt(plan).full()),
    ):
        assert Counter((v.block, v.number, v.name, v.dims, v.split) for v in found.kept()) == Counter(
            (v.block, v.number, v.name, v.dims, v.split) for v in by_hand.kept()
        )
        sent = (Counter(e.exchanges(SIZES, DEGREES, 2)) for e in (found, by_hand))
        assert next(sent) == next(sent)


# Between the two kinds of gradients.


def test_memory_of_zero_bubble() -> None:
    """Qi et al. 2024, table 1. With the gradients of gains and biases left for later, norms' inputs and gradients are needed, too."""
    assert same(row_of("none"), FIGURES["zb-t1-B-mem"]["formula"].replace("sb(34h+5as)", "s*b*(34*h+5*a*s)"))
    late = gpt().rows(gpt().kept_for_weights(), SIZES, {}, 2, MASKS)
    assert same(sum(r.bytes for r in late), FIGURES["zb-t1-W-mem"]["formula"].replace("32sbh", "32*s*b*h"))
    shown = [(r.stored.block, r.stored.name, sympy.expand(r.bytes / (s * b * h))) for r in late]
    assert shown == [
        ("layer_norm", "n", 2),
        ("attention_gpt", "o", 2),
        ("layer_norm", "n", 2),
        ("mlp_gpt", "a", 8),
        ("mlp_gpt", "dout", 2),
        ("mlp_gpt", "du", 8),
        ("attention_gpt", "dout", 2),
        ("attention_gpt", "dq", 2),
        ("attention_gpt", "dk", 2),
        ("attention_gpt", "dv", 2),
    ]
    every = gpt().kept_for_weights([f"{w.block}.{w.name}" for w in gpt().weights()])
    assert same(sum(r.bytes for r in gpt().rows(every, SIZES, {}, 2)), "40*s*b*h + 4*s*b")  # and 1 / deviation of both norms
    assert gpt().kept_for_weights(()) == ()


def test_gradients_by_weights_need_no_masks_and_no_probabilities() -> None:
    for plan in PLANS:
        names = {(v.block, v.name) for v in gpt(plan).kept_for_weights()}
        assert not names & {("attention_gpt", n) for n in ("drop", "mask", "p", "pd", "q", "k", "v")}


def test_what_weights_need_of_what_is_computed_again() -> None:
    """What is computed again for gradients by inputs is needed itself, and what is computed again for those by weights alone is not."""
    again = gpt().recomputed("layer_norm.n", "mlp_gpt.u", "mlp_gpt.a")
    late = {(v.block, v.number, v.name) for v in again.kept_for_weights()}
    assert {("layer_norm", 3, "n"), ("mlp_gpt", 4, "u"), ("input", 0, "x")} <= late
    assert not {("attention_gpt", 2, "y"), ("mlp_gpt", 4, "a"), ("layer_norm", 1, "n")} & late


# Other layers.


def test_a_llama_layer() -> None:
    """20.5 tensors of the size of the stream, as fused kernels keep them, beside a statistic of attention; 1 when all is computed again."""
    llama = layer([block("layer_norm"), of_models("attention_flash"), block("layer_norm"), of_models("swiglu")])
    sizes = {"batch": 1, "tokens": 32768, "keys": 32768, "hidden": 4096, "kv_heads": 8, "group": 4, "width": 128, "ffn": 14336}
    stream = FIGURES["mleng-llama8b-hidden"]
    one = 2 * sizes["batch"] * sizes["tokens"] * sizes["hidden"]
    assert Fraction(one, 2**30) == Fraction(stream["value"])
    assert Fraction(llama.kept_bytes(sizes, {}, 2, {"lse": 0}), one) == Fraction(41, 2)
    assert llama.kept_bytes(sizes, {}, 2, {"lse": 4}) - llama.kept_bytes(sizes, {}, 2, {"lse": 0}) == 4 * 32768 * 32
    row = FIGURES["mleng-llama8b-ckpt"]
    assert Fraction(row["inputs"]["L"] * llama.full().kept_bytes(sizes, {}, 2), 2**30) == row["value"]
    row = FIGURES["mleng-llama8b-logits"]
    head = {k.name: k.bytes(sizes | {"vocab": row["inputs"]["v"]}, {}, 4) for k in kept(of_torch("head"))}
    assert as_printed(Fraction(head["p"], 2**30), row["value"])


def of_models(name: str) -> Program:
    return read((FOLDER / f"{name}.step").read_text(encoding="utf-8"), source=f"{name}.step")


EXPERTS = """\
mesh(ep)
tensor(x, batch, tokens, hidden, ep=batch)
tensor(n, batch, tokens, hidden, ep=batch)
tensor(route, batch, tokens, choices, picks=experts)
tensor(w, experts, hidden, ffn, ep=experts)
tensor(v, experts, ffn, hidden, ep=experts)
tensor(dy, batch, tokens, hidden, ep=batch)
sent = hot(route) * all_gather(n, ep)
u = contract(part(sent, ep, dim=experts), w, over=hidden)
z = elementwise(gelu, u)
back = contract(z, v, over=ffn)
out = total(contract(hot(route), all_gather(back, ep), over=experts), over=choices)
y = x + part(out, ep, dim=batch)
returns(y)
dz = contract(part(hot(route) * all_gather(dy, ep), ep, dim=experts), v, over=hidden)
du = dz * slope(gelu, u)
dsent = contract(hot(route), all_gather(contract(du, w, over=ffn), ep), over=experts)
returns(dy, gradient_of=y, by=x, at=dy)
returns(part(total(dsent, over=choices), ep, dim=batch), gradient_of=y, by=n, at=dy)
"""


def test_experts_keep_and_send_what_is_routed_to_them() -> None:
    experts = layer([read(EXPERTS, source="experts.step")])
    count, k, f, load = sympy.symbols("E k f load")
    sizes = SIZES | {"experts": count, "choices": k, "ffn": f}
    found = {r.stored.name: r.elements for r in experts.rows(experts.kept(), sizes, {"ep": t}, 2, load=load)}
    assert found == {"route": b * s * k, "u": b * s * k * f * load / t}
    sent = [(e.kind, sympy.expand(e.bytes)) for e in experts.exchanges(sizes, {"ep": t}, 2)]
    whole, routed = ("all_gather", 2 * b * s * h), ("all_gather", 2 * b * s * k * h)
    assert sent == [whole, routed, whole, routed]
    numbers = {"batch": 4, "tokens": 3, "hidden": 5, "experts": 8, "choices": 2, "ffn": 7}
    routed_products = 2 * (4 * 3 * 2 // 4) * 5 * 7
    assert experts.flops(numbers, {"ep": 4}).forward == 2 * routed_products
    assert experts.element_operations(numbers, {"ep": 4}).again == 4 * 3 * 2 * 7 // 4  # the slope
    assert {r.bytes for r in experts.rows(experts.kept(), numbers, {"ep": 4}, 2)} == {8 * 4 * 3 * 2, 2 * 4 * 3 * 2 * 7 // 4}


# What is sent.


@pytest.mark.parametrize("plan", PLANS)
def test_what_a_layer_sends(plan: str) -> None:
    """Korthikanti et al. 2022, section 4.2.2: gathers and scatters in the place of all-reduces, and one gather more for each pair."""
    stream = 2 * b * s * h
    count = Counter((e.kind, e.phase, sympy.expand(e.bytes)) for e in gpt(plan).exchanges(SIZES, DEGREES, 2))
    small = 2 * h if plan == "sp" else 0  # gradients of gains and of biases that are not split
    expected = {
        "": {},
        "tp": {("all_reduce", "forward", stream): 2, ("all_reduce", "backward", stream): 2},
        "sp": {
            ("all_gather", "forward", stream): 2,
            ("reduce_scatter", "forward", stream): 2,
            ("all_gather", "backward", stream): 2 + 2,
            ("reduce_scatter", "backward", stream): 2,
            ("all_reduce", "backward", small): 6,
        },
    }[plan]
    assert count == expected


def test_computing_again_sends_again() -> None:
    before, after = (Counter(e.exchanges(SIZES, DEGREES, 2)) for e in (gpt("tp"), gpt("tp").full()))
    assert {(e.kind, e.phase, e.bytes): n for e, n in (after - before).items()} == {("all_reduce", "backward", 2 * b * s * h): 2}
    assert Counter(gpt("tp").recomputed(*core()).exchanges(SIZES, DEGREES, 2)) == before


def test_degrees_that_the_program_fixes_need_not_be_given() -> None:
    fixed = layer([replace(block(n, "sp"), axes=(replace(block(n, "sp").axes[0], degree=2),)) for n in LAYER])
    assert sympy.expand(fixed.kept_bytes(SIZES, {}, 2, MASKS) - row_of("tp_sp").subs(t, 2)) == 0
    assert fixed.flops(SIZES, {}) == gpt("sp").flops(SIZES, {"tp": 2})
    assert fixed.exchanges(SIZES, {}, 2) == gpt("sp").exchanges(SIZES, {"tp": 2}, 2)
    assert same(fixed.parameters(SIZES, {}), "(12*h**2 + 7*h)/2 + 6*h")


# Names.


def test_each_block_of_a_chain_has_its_own_weights() -> None:
    shown = [(w.block, w.number, w.name) for w in gpt().weights()]
    assert len(shown) == len(set(shown)) == 2 + 8 + 2 + 4
    assert same(gpt().parameters(SIZES, {}), "12*h**2 + 13*h")
    split = {("attention_gpt", n) for n in ("wq", "bq", "wk", "bk", "wv", "bv", "wo")} | {("mlp_gpt", n) for n in ("w1", "b1", "w2")}
    assert {(w.block, w.name) for w in gpt("tp").weights() if w.split} == split
    assert same(gpt("tp").parameters(SIZES, DEGREES), "(12*h**2 + 7*h)/t + 6*h")


def test_values_are_named_by_their_blocks() -> None:
    with pytest.raises(InputError, match=r"no value `attention_gpt.pp`"):
        gpt().recomputed("attention_gpt.pp")
    with pytest.raises(InputError, match=r"`attention_gpt.p` cannot be drawn again"):
        gpt().kept(["attention_gpt.p"])
    with pytest.raises(InputError, match=r"`attention_gpt.same` cannot be drawn again"):
        gpt().kept(["attention_gpt.same"])
    with pytest.raises(InputError, match="forward makes no value `dq_2`"):
        gpt().recomputed("attention_gpt.dq")


def test_widths_go_by_value_and_by_block() -> None:
    found = gpt().rows(gpt().kept(), SIZES, {}, 2, MASKS | {"mlp_gpt.mask": 5, "n": 7})
    assert {(r.stored.block, r.stored.name): r.bytes / r.elements for r in found if r.stored.name in ("mask", "n", "q")} == {
        ("attention_gpt", "mask"): 1,
        ("mlp_gpt", "mask"): 5,
        ("layer_norm", "n"): 7,
        ("attention_gpt", "q"): 2,
    }


# In numbers.


@settings(max_examples=25)
@given(data=st.data())
def test_symbols_and_numbers_agree(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["none", "tp", "tp_sp", "tp_selective", "tp_sp_selective", "full"]))
    each = st.integers(1, 5)
    n = data.draw(each)
    batch, tokens, heads, width = data.draw(each), n * data.draw(each), n * data.draw(each), data.draw(each)
    numbers = {b: batch, s: tokens, h: heads * width, a: heads, t: n}
    sizes = {k: int(v.subs(numbers)) for k, v in SIZES.items()}
    found, drawn = found_of(name)
    exact = found.kept_bytes(sizes, {"tp": n}, 2, MASKS, regenerated=drawn)
    assert isinstance(exact, int)
    assert row_of(name).subs(numbers) == exact


# Against PyTorch.


@pytest.mark.parametrize("kind", ["bfloat16", "float64"])
def test_kept_storages_are_those_of_a_real_layer(kind: str) -> None:
    """One by one; autograd also keeps two statistics for each token of a norm."""
    torch = pytest.importorskip("torch", reason="torch is not installed: what autograd keeps is not compared")
    sizes = {"batch": 2, "tokens": 5, "keys": 5, "hidden": 12, "heads": 3, "width": 4, "ffn": 48}
    width = {"bfloat16": 2, "float64": 8}[kind]

    def attend(q: Any, k: Any, v: Any) -> Any:
        return torch.native_dropout(torch.softmax(q @ k.transpose(-1, -2), dim=-1), 0.1, True)[0] @ v

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of what is missing on this machine
        own = gpt_weights(torch, 12, getattr(torch, kind))
        x = torch.randn(2, 5, 12, dtype=getattr(torch, kind), requires_grad=True)
        measured = saved(torch, own, lambda: gpt_layer(torch, x, own, 3, attend).sum().backward())
    statistics = Counter(n for n in measured if n in (2 * 5 * width, 2 * 5 * 4))
    assert statistics.total() == 4
    predicted = [r.bytes for r in gpt().rows(gpt().kept(), sizes, {}, width, MASKS)]
    assert Counter(predicted) == Counter(measured) - statistics


def saved(torch: Any, own: dict[str, Any], run: Any) -> list[int]:
    """Bytes of each storage that autograd keeps, weights apart."""
    weights = {w.untyped_storage().data_ptr() for w in own.values()}
    found: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            found.setdefault(storage.data_ptr(), storage)  # held, so that no address comes twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return [storage.nbytes() for storage in found.values()]
