"""Configurations of transformers as models: as many parameters as their shapes have, in each layer, and what no block has is refused."""

from __future__ import annotations

import json
import re
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from input_problems import problems

from placeproof import models
from placeproof.core.symbols import symbol
from placeproof.cost.blocks.tensors import kept
from placeproof.importers import import_shapes, read_shapes
from placeproof.importers.huggingface.fields import families
from placeproof.importers.models import model_from_config, parse_model_config
from placeproof.importers.shapes import parse_shapes
from placeproof.models import Model, load, turns
from placeproof.models.family import family
from placeproof.models.model import build
from placeproof.models.programs import WIRES, output

CONFIGS = Path(__file__).parents[1] / "configs" / "huggingface"
s, k = symbol("s"), symbol("k")


# Configurations of transformers.

REFUSED = {
    "default_qwen3_moe.json": [("PP504", "norm_topk_prob")],
    "default_seed_oss.json": [("PP504", "attention_dropout"), ("PP504", "residual_dropout")],
    **{f"made_{kind}.json": [("PP504", "attention_bias")] for kind in ("olmo2", "olmo3")},
    "made_cohere.json": [("PP504", "use_qk_norm"), ("PP504", "attention_bias")],
    "made_cohere2.json": [("PP504", "attention_bias")],
    "made_falcon.json": [("PP504", "parallel_attn"), ("PP504", "bias")],
    "made_falcon_alibi.json": [("PP504", "parallel_attn"), ("PP504", "bias")],
    "made_falcon_new.json": [("PP504", "bias")],
    "made_llama4_text.json": [("PP504", n) for n in ("attention_bias", "num_hidden_layers", "moe_layers")],
    "made_llama4_steps.json": [("PP504", n) for n in ("attention_bias", "num_hidden_layers")],
    "made_nemotron.json": [("PP504", "attention_bias"), ("PP504", "mlp_bias")],
    "made_gpt_oss.json": [("PP504", "attention_bias")],
    "made_gemma2.json": [("PP504", "attention_bias")],
    "made_gemma3_text.json": [("PP504", "attention_bias")],
    "made_ernie4_5.json": [("PP504", "use_bias")],
    "made_glm.json": [("PP504", "attention_bias")],
    "made_granitemoe.json": [("PP504", "attention_bias")],
    "made_granite.json": [("PP504", "attention_bias"), ("PP504", "mlp_bias")],
    "made_qwen3.json": [("PP504", "attention_bias")],
    "made_qwen3_moe.json": [("PP504", n) for n in ("decoder_sparse_step", "mlp_only_layers", "attention_bias")],
    "made_seed_oss.json": [("PP504", n) for n in ("attention_bias", "attention_out_bias", "mlp_bias")],
    "made_smollm3.json": [("PP504", "attention_bias"), ("PP504", "mlp_bias")],
    "made_deepseek_v3.json": [("PP504", "attention_bias")],
    "made_deepseek_v3_no_q_lora.json": [("PP504", "q_lora_rank")],
    "made_gemma_untied.json": [("PP504", "attention_bias")],
    "made_gpt2_cross.json": [("PP504", "add_cross_attention")],
    "made_llama_biases.json": [("PP504", "attention_bias"), ("PP504", "mlp_bias")],
    "made_opt_bare.json": [("PP504", "word_embed_proj_dim"), ("PP504", "enable_bias"), ("PP504", "layer_norm_elementwise_affine")],
    "made_opt_no_last_norm.json": [("PP504", "_remove_final_layer_norm")],
    "opt_350m.json": [("PP504", "do_layer_norm_before"), ("PP504", "word_embed_proj_dim")],
}
KINDS = {name: one.model for name, one in families().items() if one.model}
FILES = sorted(p.name for p in CONFIGS.glob("*.json") if p.name not in ("expected.json", "recorded.json"))


def kind_of(name: str) -> str:
    data = json.loads((CONFIGS / name).read_text(encoding="utf-8"))
    return str(data.get("text_config", data)["model_type"])


def same_parameters(model: Model, shapes: Any) -> None:
    """As many, in each layer and outside all layers; whatever the tensors are called, and however many are one."""
    once, times = model.per_segment(once=True), model.times()
    layers = [[seg.name for seg in turn] for turn in turns(model.segments) if turn[0].name not in ("before", "after")]
    listed = [once[name].total for turn in layers for _ in range(times[turn[0]]) for name in turn]
    root, *units = shapes.units
    assert root.elements == sum(once[name].total for name in ("before", "after"))
    assert [unit.elements for unit in units] == listed
    assert model.parameters().total == shapes.elements


@pytest.mark.parametrize("name", [n for n in FILES if kind_of(n) in KINDS and n not in REFUSED])
def test_a_configuration_has_as_many_parameters_as_its_shapes(name: str) -> None:
    same_parameters(model_from_config(CONFIGS / name), read_shapes(CONFIGS / name))


@pytest.mark.parametrize("name", [n for n in FILES if kind_of(n) not in KINDS])
def test_kinds_without_blocks_are_refused(name: str) -> None:
    (problem,) = problems(lambda: model_from_config(CONFIGS / name))
    assert (problem.code, problem.place is not None) == ("PP501", True)
    assert f"the blocks of a model of type `{kind_of(name)}` are not written as programs" in problem.message
    assert families()[kind_of(name)].lacks in problem.message


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_block_has_is_refused_at_its_place(name: str) -> None:
    found = problems(lambda: model_from_config(CONFIGS / name))
    lines = [p.place.text if p.place else "" for p in found]
    assert [p.code for p in found] == [code for code, _ in REFUSED[name]]
    assert sorted(re.findall(r"`(\w+)` is", " ".join(p.message for p in found))) == sorted(key for _, key in REFUSED[name])
    assert all(p.place is not None and p.message.split("`")[1] in line for p, line in zip(found, lines, strict=True))


def test_every_kind_is_in_the_tables_of_transformers() -> None:
    assert set(KINDS) <= set(families())
    assert {kind_of(n) for n in FILES if n not in REFUSED} >= set(KINDS)
    assert {kind.family for kind in KINDS.values()} <= set(models.families())


def test_problems_of_a_file_are_those_of_its_shapes() -> None:
    for path in sorted((CONFIGS / "bad").glob("*.json")):
        if path.name != "expected.json":
            expected = problems(lambda p=path: import_shapes(p))  # type: ignore[misc]
            assert problems(lambda p=path: model_from_config(p)) == expected  # type: ignore[misc]
    (problem,) = problems(lambda: model_from_config("nowhere.json"))
    assert problem.code == "PP501"


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ('"num_experts_per_tok": 2', '"num_experts_per_tok": 4', "PP504", "a token is sent to 4 experts, and there are 3"),
        ('"num_experts_per_tok": 2', '"num_experts_per_tok": 0', "PP503", "`num_experts_per_tok` is a whole number of at least 1, not 0"),
        (
            '"num_experts_per_tok": 2',
            '"num_experts_per_tok": "2"',
            "PP503",
            "`num_experts_per_tok` is a whole number of at least 1, not '2'",
        ),
    ],
)
def test_experts_of_a_token(old: str, new: str, code: str, message: str) -> None:
    text = (CONFIGS / "made_mixtral.json").read_text(encoding="utf-8")
    assert text.count(old) == 1
    (problem,) = problems(lambda: parse_model_config(text.replace(old, new)))
    assert (problem.code, problem.message) == (code, message)
    assert problem.place is not None
    assert parse_model_config(text).parameters().active < parse_model_config(text).parameters().total
    left_out = parse_model_config(re.sub(r'"num_experts_per_tok": 2,?\s*', "", text))
    assert left_out.parameters().active.free_symbols == {k}


@pytest.mark.parametrize(("said", "option"), [("0.0", "no"), ("0", "no"), ("0.1", "yes"), (None, "yes")])
def test_masks_are_left_out_where_nothing_is_dropped(said: str | None, option: str) -> None:
    settings = {"model_type": "gpt2", "vocab_size": 9, "n_positions": 4, "n_embd": 6, "n_layer": 1, "n_head": 2}
    text = json.dumps(settings)
    if said is not None:
        dropped = ", ".join(f'"{name}": {said}' for name in ("attn_pdrop", "embd_pdrop", "resid_pdrop"))
        text = text.replace("{", "{" + dropped + ", ", 1)
    assert parse_model_config(text).options["dropout"] == option


@pytest.mark.parametrize("wrong", ["1", "-0.1", '"a"', "true", "null"])
def test_a_probability_is_one(wrong: str) -> None:
    text = (CONFIGS / "bloom_176b.json").read_text(encoding="utf-8").replace('"hidden_dropout": 0.0', f'"hidden_dropout": {wrong}')
    (problem,) = problems(lambda: parse_model_config(text))
    said = ("`hidden_dropout` is a probability below 1", "`hidden_dropout` is a number from 0 to 1")
    assert (problem.code, problem.message.startswith(said)) == ("PP503", True)


@pytest.mark.parametrize(
    ("name", "value", "refused"),
    [("clip_qkv", None, False), ("clip_qkv", 6, True), ("attn_pdrop", 0, False), ("attn_pdrop", 0.1, True), ("alibi", True, False)],
)
def test_a_setting_of_a_table_inside_is_refused_at_its_place(name: str, value: object, refused: bool) -> None:
    settings = json.loads((CONFIGS / "made_mpt.json").read_text(encoding="utf-8")) | {"attn_config": {"attn_impl": "torch", name: value}}
    text = json.dumps(settings, indent=1)
    if not refused:
        assert parse_model_config(text).family == "mpt"
        return
    (problem,) = problems(lambda: parse_model_config(text))
    assert (problem.code, problem.message.split(":")[0]) == ("PP504", f"`attn_config.{name}` is {value}")
    assert problem.place is not None
    assert f'"{name}"' in problem.place.text


def test_a_model_of_the_new_architecture_has_two_norms_unless_it_says_one() -> None:
    settings = json.loads((CONFIGS / "made_falcon_one_norm.json").read_text(encoding="utf-8"))
    new = parse_model_config(json.dumps(settings))
    assert (new.sizes["a_kv"], new.options["norms"]) == (settings["num_kv_heads"], "one")
    old = parse_model_config(json.dumps({**settings, "new_decoder_architecture": False}))
    assert (old.sizes["a_kv"], old.options["norms"]) == (1, "one")
    two = parse_model_config(json.dumps({**settings, "num_ln_in_parallel_attn": None}))
    assert (two.sizes["a_kv"], two.options["norms"]) == (settings["num_kv_heads"], "two")
    for number, changes in ((3, {}), (2, {"new_decoder_architecture": False})):
        text = json.dumps({**settings, "num_ln_in_parallel_attn": number, **changes}, indent=1)
        (problem,) = problems(lambda text=text: parse_model_config(text))  # type: ignore[misc]
        assert (problem.code, problem.message.split(":")[0]) == ("PP504", f"`num_ln_in_parallel_attn` is {number}")
        assert problem.place is not None
        assert "num_ln_in_parallel_attn" in problem.place.text


def test_what_a_configuration_leaves_open_stays_a_symbol() -> None:
    model = model_from_config(CONFIGS / "llama3_8b.json")
    assert (model.name, model.title, model.family) == ("llama3_8b", "llama, 32 layers of 4096", "llama")
    assert model.source.endswith("llama3_8b.json")
    assert model.dims()["tokens"] == model.sizes["s"] == 8192
    assert "it is the longest sequence that the file says, 8192" in model.note
    assert {n: model.sizes[n] for n in ("a_kv", "d", "f")} == {"a_kv": 8, "d": 128, "f": 14_336}
    assert {n: load("llama3-8b").sizes[n] for n in model.sizes} == dict(model.sizes)
    text = re.sub(r'"max_position_embeddings": \d+,', "", (CONFIGS / "llama3_8b.json").read_text(encoding="utf-8"))
    assert parse_model_config(text).dims()["tokens"] == s


@pytest.mark.parametrize(
    ("changes", "told"),
    [({}, True), ({"sliding_window": None}, False), ({"sliding_window": 8}, True), ({"model_type": "qwen2", "sliding_window": 8}, False)],
)
def test_a_window_of_tokens_is_named(changes: dict[str, Any], told: bool) -> None:
    settings = json.loads((CONFIGS / "mistral_7b.json").read_text(encoding="utf-8")) | changes
    assert (f"a window of {settings['sliding_window']} tokens" in parse_model_config(json.dumps(settings)).note) == told


def test_layers_of_llama_4_come_in_turn_as_the_file_says() -> None:
    """Which layers have experts, and which have norms, may be said in several ways; a way that no stack has is refused at its place."""
    whole = json.loads((CONFIGS / "llama_4_scout_17b_16e_instruct.json").read_text(encoding="utf-8"))
    told = whole["text_config"] | {"num_hidden_layers": 8}

    def blocks(**changes: object) -> list[str]:
        read = parse_model_config(json.dumps({**told, **changes}, indent=1))
        return [
            block.name for turn in turns(read.segments)[1:-1] for segment in turn for block in segment.blocks if block.name[-4:] != "norm"
        ]

    plain, normed, dense, sparse = "attention_flash", "attention_flash_gainless", "swiglu", "moe_scaled"
    assert blocks() == [normed, sparse] * 3 + [plain, sparse]
    assert blocks(no_rope_layers=[1, 1, 1, 0] * 2, moe_layers=[*range(8)]) == blocks()
    assert (
        blocks(interleave_moe_layer_step=2)
        == blocks(moe_layers=[1, 3, 5, 7])
        == [normed, dense, normed, sparse, normed, dense, plain, sparse]
    )
    assert blocks(interleave_moe_layer_step=2, use_qk_norm=False, no_rope_layer_interval=3) == [plain, dense, plain, sparse] * 2
    for name, value in (
        ("num_hidden_layers", 6),
        ("no_rope_layers", [1, 0] * 4),
        ("no_rope_layer_interval", 3),
        ("interleave_moe_layer_step", 3),
        ("moe_layers", [1, 2]),
        ("attention_bias", True),
    ):
        (problem,) = problems(lambda changes={name: value}: blocks(**changes))  # type: ignore[misc]
        assert (problem.code, problem.message.split("`")[1]) == ("PP504", name)
        assert problem.place is not None
        assert name in problem.place.text
    note = parse_model_config(json.dumps(told)).note
    assert "Some layers see chunks of 8192 tokens." in note
    assert "chunks" not in parse_model_config(json.dumps({**told, "attention_chunk_size": None})).note


SMALL = st.integers(1, 5)


def number(data: st.DataObject, times: int = 1) -> int:
    return times * data.draw(SMALL)


#: Types of which a width of heads has to be said, or may be.
WIDE = ("gemma", "gemma2", "gemma3_text", "ministral")
MAY_BE_WIDE = (
    "llama4_text",
    "mistral",
    "mixtral",
    "qwen3",
    "qwen3_moe",
    "glm",
    "glm4",
    "glm4_moe",
    "gpt_oss",
    "cohere2",
    "nemotron",
    "ministral3",
)
#: Settings that blocks have another value of than transformers by default.
SAID = {
    "qwen3_moe": {"norm_topk_prob": True},
    "seed_oss": {"attention_dropout": 0.0, "residual_dropout": 0},
}


def decoder(data: st.DataObject, kind: str) -> dict[str, Any]:
    keys, groups, width = number(data), number(data), number(data, 2)
    said: dict[str, Any] = {"num_hidden_layers": number(data), "num_attention_heads": keys * groups, "hidden_size": keys * groups * width}
    said |= {"num_key_value_heads": keys, "intermediate_size": number(data), "vocab_size": number(data)}
    if kind in WIDE or (kind in MAY_BE_WIDE and data.draw(st.booleans())):
        said["head_dim"] = number(data, 2)
    if "E" in KINDS[kind].sizes:
        said |= {"num_local_experts": number(data), "num_experts_per_tok": 1, "moe_intermediate_size": number(data)}
    if kind == "glm4_moe":
        said |= {
            "n_shared_experts": number(data),
            "first_k_dense_replace": data.draw(st.integers(0, 6)),
            "use_qk_norm": data.draw(st.booleans()),
        }
    if kind == "llama4_text":
        said |= {"num_hidden_layers": number(data, 4), "intermediate_size_mlp": number(data), "use_qk_norm": data.draw(st.booleans())}
        said |= {"interleave_moe_layer_step": data.draw(st.integers(1, 2))}
    if kind == "falcon":
        new, norms = data.draw(st.sampled_from([(False, 1), (True, 1), (True, 2)]))
        said |= {"new_decoder_architecture": new, "num_ln_in_parallel_attn": norms, "num_kv_heads": keys}
        said |= {"multi_query": data.draw(st.booleans()), "ffn_hidden_size": data.draw(st.none() | SMALL)}
    return said | SAID.get(kind.replace("_vl_moe_text", "_moe"), {})


def latent(data: st.DataObject) -> dict[str, Any]:
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size", "moe_intermediate_size")
    names += ("n_routed_experts", "n_shared_experts", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "v_head_dim")
    said = {name: number(data) for name in names}
    return said | {"qk_rope_head_dim": number(data, 2), "first_k_dense_replace": data.draw(st.integers(0, 6))}


def plain(data: st.DataObject, kind: str) -> dict[str, Any]:
    heads = number(data)
    names = {"gpt2": ("n_layer", "n_head", "n_embd"), "bloom": ("n_layer", "n_head", "hidden_size")}
    layers, said_heads, hidden = names.get(kind, ("num_hidden_layers", "num_attention_heads", "hidden_size"))
    said = {layers: number(data), said_heads: heads, hidden: number(data, heads), "vocab_size": number(data)}
    if kind == "gpt2":
        said |= {"n_positions": number(data), "n_inner": data.draw(st.none() | SMALL)}
    if kind == "opt":
        said |= {"ffn_dim": number(data), "max_position_embeddings": number(data)}
    return said


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(data=st.data())
def test_any_configuration_has_as_many_parameters_as_its_shapes(kind: str, data: st.DataObject) -> None:
    made = (
        latent(data)
        if kind in ("deepseek_v3", "kimi_k2")
        else plain(data, kind)
        if kind in ("gpt2", "bloom", "opt")
        else decoder(data, kind)
    )
    text = json.dumps({"model_type": kind, "tie_word_embeddings": data.draw(st.booleans()), **made})
    same_parameters(parse_model_config(text), parse_shapes(text, kind="json").shapes)


# What layers keep, against what autograd kept of the modules of transformers.

MEASURED: dict[str, Any] = json.loads((CONFIGS.parents[1] / "data" / "huggingface_kept.json").read_text(encoding="utf-8"))


def layer(kind: str, attention: str = "flash") -> tuple[int, int]:
    """Elements that a layer's blocks keep for backward beside statistics, and its FLOPs but for the scores of attention."""
    sizes = {**MEASURED["sizes"], "max_position_embeddings": MEASURED["tokens"], "num_hidden_layers": 4}
    sizes |= {"moe_intermediate_size": 8, "n_routed_experts": 4, "n_shared_experts": 1} | MEASURED["more"].get(kind, {})
    read = parse_model_config(json.dumps({"model_type": kind, **sizes}))
    options = read.options | {"attention": attention} if "attention" in read.options else read.options
    model = build(family(read.family), name=kind, sizes=read.given, options=options)
    dims = model.dims({"b": MEASURED["batch"]})
    blocks = next(segment for segment in model.segments if segment.name in ("layers", "dense", "second")).blocks
    rows, given = [], dict.fromkeys(WIRES.values(), 0)
    for number, block in enumerate(blocks, 1):
        rows += [(row.name, given.get(row.name, number), row.dims) for row in kept(block.program) if row.name != "lse"]
        given[WIRES[output(block.program) or "y"]] = number
    rows = [dims for _, _, dims in dict.fromkeys(rows)]  # what a norm gives, or a block, is kept once, whoever reads it
    elements = sum(prod(dims[d] for d in row if d != "experts" or "choices" not in row) for row in rows)  # one row for each choice
    products = 0
    for block in blocks:
        for weight in (w for w in block.weights if block.groups[w.name] != "norm" and not w.name.startswith(("b", "gain", "sink"))):
            reached = {"experts": dims["choices"]} if block.groups[weight.name] == "expert" else {}
            products += prod((dims | reached)[d] for d in weight.dims)
    return elements, 2 * MEASURED["batch"] * MEASURED["tokens"] * products


TYPES, SIZES = MEASURED["types"], MEASURED["sizes"]
ROWS, HIDDEN, WIDTH = MEASURED["batch"] * MEASURED["tokens"], SIZES["hidden_size"], SIZES["head_dim"]
#: Norms of PyTorch keep what they give before their gain, and a statistic for each row: a fused norm computes both again.
AGAIN = {"a norm behind a block": ROWS * (HIDDEN + 1), "the norms of heads": ROWS * 10 * (WIDTH + 1)}


def more(kind: str, than: str = "llama", attention: str = "flash") -> tuple[int, int]:
    """How many elements more a layer keeps than another one: as its blocks say, and as autograd did."""
    types = TYPES if attention == "flash" else MEASURED["written"]
    return layer(kind, attention)[0] - layer(than, attention)[0], types[kind]["elements"] - types[than]["elements"]


def test_biases_keep_nothing_and_norms_of_heads_what_they_read() -> None:
    assert SIZES["num_attention_heads"] + SIZES["num_key_value_heads"] == 10
    assert more("qwen2") == (0, 0)
    blocks, autograd = more("qwen3")
    assert blocks == ROWS * 10 * WIDTH
    assert autograd - blocks == AGAIN["the norms of heads"]


def test_biases_before_norms_of_heads_keep_nothing() -> None:
    """GLM-4.5 keeps as much as Qwen3, and a copy of what attention gives, as its queries lie otherwise."""
    blocks, autograd = more("glm4_moe", than="qwen3")
    assert (blocks, autograd) == (0, ROWS * HIDDEN)


def test_one_norm_before_both_blocks_is_kept_once() -> None:
    """Cohere's norm keeps what it centres twice, in place of what it reads; of the other norm there is one statistic less."""
    blocks, autograd = more("cohere")
    assert (blocks, autograd) == (-2 * ROWS * HIDDEN, -2 * ROWS * HIDDEN - ROWS)


def test_a_block_of_two_matrices_keeps_half_of_a_gated_one() -> None:
    """Nemotron's fused norms keep two statistics and nothing before their gain, which is counted from 1; of attention's output a copy."""
    blocks, autograd = more("nemotron")
    assert blocks == -2 * ROWS * SIZES["intermediate_size"]
    assert autograd - blocks == 2 * ROWS + 2 * HIDDEN + ROWS * HIDDEN - 2 * ROWS * HIDDEN


def test_a_norm_behind_a_block_of_the_stream_keeps_as_much_as_one_before_it() -> None:
    """A norm of all heads at once has one statistic for a row of the stream, and not one for each head."""
    blocks, autograd = more("olmo2", than="qwen3")
    assert (blocks, autograd) == (0, (2 - 10) * ROWS)


def test_a_norm_behind_a_block_keeps_what_it_reads() -> None:
    """GLM-4 keeps its tables of positions besides and a copy of what attention gives: its queries lie otherwise."""
    blocks, autograd = more("glm4")
    assert blocks == 2 * ROWS * HIDDEN
    assert autograd - blocks == 2 * AGAIN["a norm behind a block"] + 2 * MEASURED["tokens"] * WIDTH // 2 + ROWS * HIDDEN


def test_gains_that_are_counted_from_1_are_kept() -> None:
    """By transformers' Gemma, which adds the 1 in each layer."""
    blocks, autograd = more("gemma3_text")
    assert blocks == 2 * ROWS * HIDDEN + ROWS * 10 * WIDTH
    assert autograd - blocks == 2 * AGAIN["a norm behind a block"] + AGAIN["the norms of heads"] + 4 * HIDDEN + 2 * WIDTH


def test_capped_scores_are_kept_before_their_cap_where_nothing_is_fused() -> None:
    """PyTorch keeps what tanh gives instead, which is as much."""
    scores = MEASURED["batch"] * SIZES["num_attention_heads"] * MEASURED["tokens"] ** 2
    blocks, autograd = more("gemma2", attention="core")
    assert blocks == 2 * ROWS * HIDDEN + scores
    assert autograd - blocks == 2 * AGAIN["a norm behind a block"] + 4 * HIDDEN
    assert more("gemma2", attention="core")[0] - (layer("gemma2")[0] - layer("llama")[0]) == scores


def test_sinks_and_biased_experts_keep_what_they_are_multiplied_with() -> None:
    """gpt-oss keeps besides, of each choice, the gate as it is clamped and its sigmoid, and of each query where the greatest score is, in 8
    bytes; Mixtral a softmax over all experts, and its sum over the chosen ones."""
    queries, choices = ROWS * SIZES["num_attention_heads"], ROWS * SIZES["num_experts_per_tok"] * SIZES["intermediate_size"]
    blocks, autograd = more("gpt_oss", than="mixtral", attention="core")
    assert blocks == queries + choices
    assert autograd - blocks == 2 * choices + 2 * queries - ROWS * (SIZES["num_local_experts"] + 1)


def test_gates_that_are_sigmoids_keep_logits_and_sums() -> None:
    """MiniMax-M2 keeps sigmoids in place of logits; Mixtral a softmax over all experts and a sum besides, which its blocks do not count."""
    sizes = SIZES["num_attention_heads"] + SIZES["num_key_value_heads"]
    blocks, autograd = more("minimax_m2", than="mixtral", attention="core")
    assert blocks == ROWS * sizes * WIDTH + ROWS * (SIZES["num_local_experts"] + 1)
    assert autograd - blocks == ROWS * sizes * WIDTH + 2 * ROWS - ROWS * (SIZES["num_local_experts"] + 1)


def test_falcon_keeps_keys_and_values_of_all_heads() -> None:
    """And a mask for each layer, a norm's two statistics, attention's own, and two numbers of 8 bytes for a mask of dropout."""
    batch, tokens, heads = MEASURED["batch"], MEASURED["tokens"], SIZES["num_attention_heads"]
    copies = 2 * ROWS * (heads - MEASURED["more"]["falcon"]["num_kv_heads"]) * WIDTH
    besides = batch * tokens**2 + 2 * ROWS + ROWS * heads + 2 * 2
    assert TYPES["falcon"]["elements"] - layer("falcon")[0] == copies + besides


def test_a_second_norm_of_the_stream_keeps_what_it_gives() -> None:
    """And two statistics; what both norms read is kept once."""
    assert more("falcon_two_norms", than="falcon") == (ROWS * HIDDEN, ROWS * HIDDEN + 2 * ROWS)


def test_plain_layer_norms_keep_what_they_read_and_two_statistics() -> None:
    """All else that MPT keeps is what its blocks say."""
    assert MEASURED["written"]["mpt"]["elements"] - layer("mpt", "core")[0] == 2 * 2 * ROWS


#: In transformers every token goes through every expert of Llama 4, scaled by 0 but for those that it is sent to.
IDLE = SIZES["num_local_experts"] - 1


def test_scaled_experts_keep_what_is_scaled_and_not_what_experts_give() -> None:
    """transformers keeps it of every expert, and each token once more for each. Besides: a sigmoid and a copy of it for every expert, and a
    choice in 8 bytes, in place of logits, gates and choices; statistics of norms without gains, and of attention; what norms give."""
    experts, inner = SIZES["num_local_experts"], SIZES["intermediate_size"]
    idle = IDLE * (HIDDEN + 4 * inner) + experts * HIDDEN
    router = 2 * experts + 2 - (experts + 2)
    besides = 2 * (HIDDEN + 1) + (SIZES["num_attention_heads"] + SIZES["num_key_value_heads"]) + SIZES["num_attention_heads"]
    assert TYPES["llama4_text"]["elements"] - layer("llama4_text")[0] == ROWS * (idle + router + besides)


@pytest.mark.parametrize("kind", TYPES)
def test_a_layer_multiplies_as_many_numbers_as_its_module(kind: str) -> None:
    idle = 2 * ROWS * 3 * HIDDEN * SIZES["intermediate_size"] * IDLE if kind == "llama4_text" else 0
    assert layer(kind)[1] + idle == TYPES[kind]["flops"]


@pytest.mark.parametrize("kind", MEASURED["written"])
def test_a_layer_that_is_written_out_multiplies_scores_besides(kind: str) -> None:
    scores = MEASURED["batch"] * SIZES["num_attention_heads"] * MEASURED["tokens"] ** 2
    assert layer(kind, "core")[1] + 2 * 2 * scores * WIDTH == MEASURED["written"][kind]["flops"]
