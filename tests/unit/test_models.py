"""Models as data: what presets count to, formulas of families, groups, segments, sizes and options."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from input_problems import problems
from published import as_printed, rows

from placeproof import models
from placeproof.core.symbols import SYMBOLS, symbol
from placeproof.core.tables import FileKind, Table
from placeproof.importers.huggingface.fields import families
from placeproof.importers.models import model_from_config
from placeproof.models import load
from placeproof.models.family import GROUPS
from placeproof.models.hub import checkpoints, read_checkpoints

L, h, a, V, s, E, k = (symbol(n) for n in ("L", "h", "a", "V", "s", "E", "k"))
HERE = Path(__file__).parents[1]
ROWS = {row["id"]: row for row in rows()}


# Published counts.


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama3-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
        ("llama3-405b", 405_853_388_800),
        ("mixtral-8x7b", 46_702_792_704),
        ("bloom-176b", 176_247_271_424),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-32b", 32_762_123_264),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("qwen3-235b-a22b", 235_093_634_560),
    ],
)
def test_counts_are_the_published_ones(name: str, parameters: int) -> None:
    assert load(name).parameters().total == parameters


def test_deepseek_v3_counts_as_its_own_code_does_with_the_buffers_of_its_routers() -> None:
    """Its own code registers the correction biases of its 58 routers as parameters; transformers registers them as buffers."""
    count = load("deepseek-v3").parameters()
    assert (count.total, count.buffers) == (671_026_404_352, 58 * 256)
    assert count.total + count.buffers == 671_026_419_200


#: Millions of parameters in the tables of the embedding and elsewhere: Riviere et al. 2024, table 2; Kamath et al. 2025, table 1, of whose
#: tables the rows are not said.
GEMMAS = {
    "gemma2-2b": (590, 2024),
    "gemma2-9b": (918, 8324),
    "gemma2-27b": (1180, 26_047),
    "gemma3-4b": (None, 3209),
    "gemma3-12b": (None, 10_759),
    "gemma3-27b": (None, 25_600),
}


@pytest.mark.parametrize("name", GEMMAS)
def test_gemmas_count_as_their_reports_print(name: str) -> None:
    count, (table, rest) = load(name).parameters(), GEMMAS[name]
    embedding = count.groups["embedding"]
    assert abs(count.total - embedding - rest * 10**6) < 10**6
    assert table is None or round(embedding / 10**6) == table


@pytest.mark.parametrize(
    ("name", "printed"),
    [("gpt-oss-120b", ("114.71", "0.96", "1.16", "5.13", "116.83")), ("gpt-oss-20b", ("19.12", "0.64", "1.16", "3.61", "20.91"))],
)
def test_gpt_oss_counts_as_its_card_prints(name: str, printed: tuple[str, ...]) -> None:
    """Agarwal et al. 2025, table 1: experts and routers, attention, tables, active ones, all; in billions."""
    count = load(name).parameters()
    groups = count.groups
    own = (groups["expert"] + groups["router"], groups["matrix"], groups["embedding"], count.active, count.total)
    assert tuple(f"{number / 10**9:.2f}" for number in own) == printed


@pytest.mark.parametrize(("name", "said", "active"), [("glm4.5-355b", 355, 32), ("glm4.5-air-106b", 106, 12)])
def test_glm_4_5_counts_to_its_name(name: str, said: int, active: int) -> None:
    """Zeng et al. 2025, table 1, in billions: the larger one within a hundredth, as nothing says what its number counts."""
    count = load(name).parameters()
    assert abs(count.total / 10**9 - said) < said / 100
    assert int(count.active / 10**9) == active


def test_activated_parameters() -> None:
    """A token looks one row of the table up. With the whole table DeepSeek-V3 has 37.6 billion: its own 37 is met without it. Its list of
    weights says 36.7 with table and head, and neither count gives that."""
    assert as_printed(Fraction(load("deepseek-v3").parameters().active, 10**9), 37)
    table = 129_280 * 7168
    active = load("deepseek-v3").parameters().active
    assert [round(n / 1e9, 2) for n in (active, active - 7168 + table)] == [36.63, 37.55]
    assert as_printed(Fraction(load("mixtral-8x7b").parameters().active, 10**9), 13)
    dense = load("llama3-8b").parameters()
    assert dense.total - dense.active == (128_256 - 1) * 4096


#: Brown et al. 2020: the rows of table 2.1 (what the name says, layers, hidden size, heads, width of a head), and millions of table D.1.
GPT3 = {
    "gpt3-125m": ((125, 6), 12, 768, 12, 64, 125),
    "gpt3-350m": ((350, 6), 24, 1024, 16, 64, 356),
    "gpt3-760m": ((760, 6), 24, 1536, 16, 96, 760),
    "gpt3-1.3b": ((Fraction(13, 10), 9), 24, 2048, 24, 128, 1320),
    "gpt3-2.7b": ((Fraction(27, 10), 9), 32, 2560, 32, 80, 2650),
    "gpt3-6.7b": ((Fraction(67, 10), 9), 32, 4096, 32, 128, 6660),
    "gpt3-13b": ((13, 9), 40, 5140, 40, 128, 12_850),
    "gpt3-175b": ((175, 9), 96, 12_288, 96, 128, 174_600),
}
#: What a preset has in place of what table 2.1 prints.
OTHERWISE = {"gpt3-1.3b": {"a": 16}, "gpt3-13b": {"h": 5120}}


def to_digits(number: int, digits: int) -> int:
    """Rounded to so many leading digits."""
    step = 10 ** max(0, len(str(number)) - digits)
    return (number + step // 2) // step * step


@pytest.mark.parametrize("name", GPT3)
def test_gpt3_counts_to_the_digits_of_table_d1(name: str) -> None:
    _, _, _, _, _, millions = GPT3[name]
    digits = 4 if millions > 10_000 else 3
    assert to_digits(load(name).parameters().total, digits) == millions * 10**6


@pytest.mark.parametrize("name", GPT3)
def test_gpt3_sizes_are_those_of_table_2_1_where_these_agree(name: str) -> None:
    (said, power), layers, hidden, heads, width, _ = GPT3[name]
    sizes, instead = load(name).sizes, OTHERWISE.get(name, {})
    printed = {"L": layers, "h": hidden, "a": heads, "d": width, "f": 4 * hidden}
    expected = {**printed, **instead} | ({"f": 4 * 5120} if "h" in instead else {})
    assert {n: sizes[n] for n in printed} == expected
    assert (heads * width == hidden) == (not instead)
    total = Fraction(load(name).parameters().total, 10**power)
    rounded = {"gpt3-350m": 356}.get(name, said)
    assert round(total * 10) == rounded * 10 or round(total) == rounded


#: Configurations that their vendors publish. All other models have 2048 tokens: brown2020language, section 2.1; narayanan2021megatron,
#: table 1; korthikanti2022activations, table 3; smith2022megatron.
CONFIGURATIONS = {
    "bloom-176b": "bloom_176b",
    "deepseek-v3": "deepseek_v3",
    "llama3-8b": "llama3_8b",
    "llama3-70b": "llama3_70b",
    "llama3-405b": "llama31_405b",
    "mixtral-8x7b": "mixtral_8x7b",
    **{f"gemma2-{size}": f"gemma2_{size}" for size in ("2b", "9b", "27b")},
    **{f"gemma3-{size}": f"gemma3_{size}" for size in ("4b", "12b", "27b")},
    "glm4-9b": "glm4_9b",
    **{f"falcon-{size}": f"falcon_{size}" for size in ("7b", "40b", "180b")},
    "kimi-k2": "kimi_k2_instruct",
    "llama4-scout-109b": "llama_4_scout_17b_16e_instruct",
    "llama4-maverick-400b": "llama_4_maverick_17b_128e_instruct",
    "mistral-7b": "mistral_7b",
    "phi-4": "phi_4",
    "command-r-35b": "default_cohere",
    "olmo2-7b": "olmo2_7b",
    "olmo2-13b": "olmo2_13b",
    "glm4.5-355b": "glm_4_5",
    "glm4.5-air-106b": "glm_4_5_air",
    "gpt-oss-20b": "gpt_oss_20b",
    "gpt-oss-120b": "gpt_oss_120b",
    "qwen3-8b": "qwen3_8b",
    "qwen3-32b": "qwen3_32b",
    "qwen3-30b-a3b": "qwen3_30b_a3b",
    "qwen3-235b-a22b": "qwen3_235b_a22b",
    "qwen3-coder-480b-a35b": "qwen3_coder_480b_a35b_instruct",
    **{f"qwen3-{size}b": f"qwen3_{size.replace('.', '_')}b" for size in ("0.6", "1.7", "4", "14")},
    **{f"qwen2.5-{size}b": f"qwen25_{size.replace('.', '_')}b" for size in ("0.5", "1.5", "3", "7", "14", "32", "72")},
    "r1-distill-qwen-1.5b": "r1_distill_qwen_1_5b",
    **{f"llama2-{size}b": f"llama2_{size}b" for size in ("7", "13", "70")},
    **{f"llama3.2-{size}b": f"llama32_{size}b" for size in ("1", "3")},
    "mistral-7b-v0.3": "mistral_7b_v0_3",
    "gemma3-1b": "gemma3_1b",
    "minimax-m2.5": "minimax_m2_5",
}
FOLDER = HERE / "configs" / "huggingface"
RECORDED = json.loads((FOLDER / "recorded.json").read_text(encoding="utf-8"))["models"]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_presets_have_the_sizes_of_their_configurations_and_count_as_transformers_does(name: str) -> None:
    """Heads decide no count, so that sizes are compared, too; the sequence is a run's."""
    file, preset = f"{CONFIGURATIONS[name]}.json", load(name)
    read = model_from_config(FOLDER / file)
    assert preset.parameters().total == RECORDED[file]["elements"]
    assert (preset.family, dict(preset.options)) == (read.family, dict(read.options))
    assert {**preset.sizes, "s": 0} == {**read.sizes, "s": 0}


@pytest.mark.parametrize(
    ("hub", "name"),
    [
        ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("qwen/qwen3-30b-a3b", "qwen3-30b-a3b"),
        ("meta-llama/Meta-Llama-3-8B", "llama3-8b"),
        ("google/gemma-3-27b-it", "gemma3-27b"),
        ("google/gemma-3-27b-pt", "gemma3-27b"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3-70b"),
        ("Qwen/Qwen2.5-1.5B-Instruct", "qwen2.5-1.5b"),
    ],
)
def test_names_of_the_hub_are_those_of_presets(hub: str, name: str) -> None:
    assert load(hub) == load(name)
    assert load(hub, tied="yes").options["tied"] == "yes"


@pytest.mark.parametrize(
    ("name", "message", "help"),
    [
        ("Qwen/Qwen3-30B-A3", "there is no model", "did you mean `Qwen/Qwen3-30B-A3B`"),
        ("someone/else", "there is no model", "config.json as a file"),
        ("Qwen/Qwen3.5-9B", "is a model of type `qwen3_5`, and no preset has its sizes", "config.json as a file"),
    ],
)
def test_other_names_of_the_hub_are_refused_with_the_remedy(name: str, message: str, help: str) -> None:
    (problem,) = problems(lambda: load(name))
    assert (problem.code, message in problem.message, help in str(problem.help)) == ("PP101", True, True)


@pytest.mark.parametrize("experts", [True, False])
def test_checkpoints_of_the_hub_have_experts_where_their_types_and_presets_have(experts: bool) -> None:
    """What the table says is derived twice: from the blocks of the preset, and from what the type's layers have in transformers."""
    types = families() | {outer: families()[f"{outer}_text"] for outer in ("gemma3", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "llama4")}
    found = {name: one for name, one in checkpoints().items() if one.experts == experts}
    assert len(found) > 30
    for name, one in found.items():
        assert one.preset or one.type in (*types, *UNREAD), name
        if one.type in types and one.type not in EITHER:
            assert ("router" in (*types[one.type].layer, *types[one.type].sparse)) == experts, name
        if one.preset:
            model = load(name)
            assert ("experts" in model.dimensions) == experts, name
            assert model.family == types[one.type].model.family, name  # type: ignore[union-attr]


#: Types of which some models have experts, and others none.
EITHER = ("gemma4", "nemotron_h")
#: Types that are known by their names alone.
UNREAD = (*("deepseek_v4", "gemma4", "minimax_m3", "mistral3", "nemotron-nas", "nemotron_h", "qwen2_5_omni", "qwen3_5", "qwen3_5_moe"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('names = "a/b"\nsources = ["x"]', "`type` is missing"),
        ('type = "llama"\nnames = "a/b"\nsources = ["y"]', "`y` is no source"),
        ('type = "llama"\nnames = "a/b"\nsources = []', "`sources` is missing"),
        ('type = "llama"\nnames = "a/b A/b"\nsources = ["x"]', "`A/b` has two rows"),
    ],
)
def test_a_table_of_checkpoints_says_what_is_wrong_with_it(text: str, message: str) -> None:
    table = Table.read(f'[sources]\nx = "somewhere"\n[[dense]]\n{text}\n', kind=FileKind(noun="a table", manual="see"), source="hub")
    assert any(message in one.message for one in problems(lambda: read_checkpoints(table)))


@pytest.mark.parametrize("name", models.presets())
def test_sequences_are_as_long_as_in_the_first_training(name: str) -> None:
    """Rotary embeddings that were stretched later say for how many tokens they were trained; where attention sees chunks, one chunk."""
    tokens = 2048
    if name in CONFIGURATIONS:
        config = json.loads((FOLDER / f"{CONFIGURATIONS[name]}.json").read_text(encoding="utf-8"))
        told = config.get("text_config", config)
        told = told | (told.get("rope_scaling") or told.get("rope_parameters") or {})
        keys = ("attention_chunk_size", "original_max_position_embeddings", "max_position_embeddings", "seq_length")
        tokens = next(told[key] for key in keys if key in told)
    sizes = load(name).sizes
    other = "a vendor's configuration goes to tests/configs/huggingface, and its name to CONFIGURATIONS"
    assert (sizes["s"], sizes.get("n_pos", tokens)) == (tokens, tokens), other


def test_what_gpt3_would_have_with_the_contradictory_figures_of_table_2_1() -> None:
    """24 heads of 128 make the model of 1.3 billion one of 1.5. With a hidden size of 5140 that of 12,850 million has 12,940."""
    smaller = load("gpt3-1.3b")
    wide = smaller.parameters({"a": 24, "d": 128}).total
    assert (wide, wide - smaller.parameters().total) == (1_517_123_584, 201_400_320)
    larger = load("gpt3-13b")
    broad = larger.parameters({"h": 5140, "d": 128}).total
    assert (broad, to_digits(broad, 4), broad - larger.parameters().total) == (12_936_488_380, 12_940 * 10**6, 83_102_140)
    assert problems(lambda: larger.parameters({"h": 5140}))[0].message == "gpt3-13b: `h/a` is 257/2, no whole number, with h = 5140, a = 40"


@pytest.mark.parametrize("name", ["1.7", "7.5", "39.1", "145.6", "529.6"])
def test_narayanans_models_are_those_of_table_1(name: str) -> None:
    row = ROWS[f"nar-t1-{name}B-params"]
    model, said = load(f"narayanan-{name}b"), row["inputs"]
    sizes = {n: model.sizes[n] for n in ("L", "h", "a", "V", "s")}
    assert sizes == {"L": said["layers"], "h": said["hidden"], "a": said["heads"], "V": said["vocab"], "s": said["seq"]}
    total = model.parameters().total
    exact = int(re.findall(r"\d+", row["note"])[0])
    assert total - exact == 2 * said["hidden"]  # the last norm, which equation 2 leaves out
    assert as_printed(Fraction(total, 10**9), row["value"])


@pytest.mark.parametrize("name", ["22B", "175B"])
def test_korthikantis_models_are_those_of_table_3(name: str) -> None:
    said = ROWS[f"korth-t3-{name}"]["inputs"]
    sizes = load(f"korthikanti-{name.lower()}").sizes
    assert {n: sizes[n] for n in ("L", "h", "a", "V", "s")} == {
        "L": said["layers"], "h": said["hidden"], "a": said["heads"], "V": said["vocab"], "s": said["seq"],
    }  # fmt: skip


def test_large_gpts_count_to_their_names() -> None:
    million = 10**6
    assert {n: load(n).parameters().total // million for n in ("korthikanti-22b", "korthikanti-175b", "korthikanti-1t", "mt-nlg-530b")} == {
        "korthikanti-22b": 22_074, "korthikanti-175b": 174_615, "korthikanti-1t": 1_008_038, "mt-nlg-530b": 529_600,
    }  # fmt: skip
    assert as_printed(Fraction(load("korthikanti-1t").parameters().total, 10**9), int(ROWS["nar-days-1T"]["inputs"]["P"]) // 10**9)
    for same in ("narayanan-529.6b", "korthikanti-530b"):
        assert load(same).sizes == load("mt-nlg-530b").sizes


# Formulas.


def zero(expr: Any) -> bool:
    return bool(sympy.expand(expr) == 0)


def test_gpt_is_narayanans_equation_2_with_the_last_norm() -> None:
    """Of the last norm, a gain and a bias are not in the equation. Positions are as many as tokens, and the head is the table."""
    equation = 12 * L * h**2 * (1 + sympy.Rational(13, 12) / h + (V + s) / (12 * L * h))
    assert "12*l*h^2*(1 + 13/(12h) + (V+s)/(12lh))" in ROWS["nar-params"]["formula"]
    assert zero(load("gpt").parameters().total - (equation + 2 * h))


def test_bloom_is_the_playbooks_formula_with_the_norm_behind_the_embedding() -> None:
    assert ROWS["playbook-N"]["formula"] == "h*v + L*(12h^2+13h) + 2h"
    bloom = load("bloom")
    behind = bloom.per_segment()["before"].groups["norm"]
    assert zero(behind - 2 * h)
    assert zero(bloom.parameters().total - behind - (h * V + L * (12 * h**2 + 13 * h) + 2 * h))


@pytest.mark.parametrize("name", ["gpt", "bloom"])
def test_12_layers_hidden_squared_is_the_leading_term(name: str) -> None:
    """ZeRO-Infinity's count; with a vocabulary and positions of any fixed size."""
    assert ROWS["zinf-params"]["formula"] == "12*nl*hd^2"
    assert sympy.Poly(load(name).parameters().total, h).LC() == 12 * L
    assert sympy.limit(load(name).parameters().total / (12 * L * h**2), L, sympy.oo).subs(h, 10**9) < 1 + 2e-9


def test_llamas_formula() -> None:
    symbols = {n: symbol(n) for n in ("a_kv", "d", "f")}
    width = symbols["d"]
    attention = 2 * h * a * width + 2 * h * symbols["a_kv"] * width
    expected = 2 * V * h + h + L * (attention + 3 * h * symbols["f"] + 2 * h)
    assert zero(load("llama").parameters(symbols).total - expected)
    assert zero(load("llama", tied="yes").parameters(symbols).total - (expected - V * h))
    assert zero(load("llama").parameters().total - expected.subs({symbols["a_kv"]: a, width: h / a, symbols["f"]: 4 * h}))


def test_experts_are_active_by_the_number_of_choices() -> None:
    count = load("mixtral").parameters()
    experts = count.groups["expert"]
    rest = count.total - experts - V * h + h  # of the table one row
    assert zero(count.active - (experts * k / E + rest))


# Groups and segments.


@pytest.mark.parametrize("name", [*models.presets(), *models.families()])
def test_segments_add_up_to_the_model(name: str) -> None:
    model = load(name)
    whole, parts, times = model.parameters(), model.per_segment(), model.times()
    assert zero(sum(p.total for p in parts.values()) - whole.total)
    assert zero(sum(p.active for p in parts.values()) - whole.active)
    for group, number in whole.groups.items():
        assert zero(sum(p.groups.get(group, 0) for p in parts.values()) - number)
        assert group in GROUPS
    for segment, once in model.per_segment(once=True).items():
        assert zero(once.total * times[segment] - parts[segment].total)
        assert zero(once.buffers * times[segment] - parts[segment].buffers)
    assert list(parts) == [part.name for part in model.segments]


def test_groups_of_a_gpt() -> None:
    """Biases along the hidden dimension are copied by tensor parallelism as gains are; those along heads and ffn are split."""
    groups = load("gpt").parameters().groups
    assert list(groups) == ["matrix", "norm", "embedding"]
    assert zero(groups["norm"] - (L * 6 * h + 2 * h))
    assert zero(groups["embedding"] - (V + s) * h)
    assert zero(groups["matrix"] - L * (12 * h**2 + 7 * h))


def test_groups_of_a_deepseek_v3() -> None:
    model = load("deepseek-v3")
    assert dict(model.parameters().groups) == {
        "matrix": 61 * 187_105_280 + 3 * 3 * 7168 * 18_432 + 58 * 3 * 7168 * 2048,
        "norm": 7168 + 61 * (2 * 7168 + 1536 + 512),
        "embedding": 2 * 129_280 * 7168,
        "expert": 58 * 256 * 3 * 7168 * 2048,
        "router": 58 * 256 * 7168,
    }
    latent = model.segments[1].blocks[1]
    assert latent.name == "attention_latent"
    assert sum(math.prod(model.dims()[dim] for dim in w.dims) for w in latent.weights if len(w.dims) > 1) == 187_105_280
    assert {w for w, group in latent.groups.items() if group == "norm"} == {"gain_q", "gain_kv"}


def test_a_tied_table_counts_once_and_is_said_where_it_stands_again() -> None:
    tied, apart = load("gpt").per_segment(), load("gpt", tied="no").per_segment()
    assert [zero(p.tied - n) for p, n in zip(tied.values(), (0, 0, V * h), strict=True)] == [True] * 3
    assert [p.tied for p in apart.values()] == [0, 0, 0]
    assert zero(apart["after"].total - tied["after"].total - V * h)
    assert zero(load("gpt").parameters().active - load("gpt", tied="no").parameters().active - (-2 * h + h))


def test_a_segment_that_is_never_run_has_nothing() -> None:
    found = load("deepseek-v3").per_segment({"L_dense": 0})
    assert (found["dense"].total, found["dense"].active, dict(found["dense"].groups)) == (0, 0, {})
    assert found["sparse"].buffers == 61 * 256
    assert load("deepseek-v3").per_segment({"L_dense": 61}, once=True)["sparse"].total == 0


# Sizes.

POSITIVE = st.integers(1, 9)


def drawn(data: st.DataObject, name: str) -> dict[str, int]:
    """Sizes of a family that fit one another."""
    keys, group, width = (data.draw(POSITIVE) for _ in range(3))
    sizes = {n: data.draw(POSITIVE) for n in load(name).symbols()}
    fitting = {"a_kv": keys, "a": keys * group, "d": width, "h": keys * group * data.draw(POSITIVE)}
    fitting |= {"L": 8, "L_dense": data.draw(st.integers(0, 8)), "E": 9, "k": data.draw(POSITIVE)}
    return {n: fitting.get(n, number) for n, number in sizes.items()}


@pytest.mark.parametrize("name", models.families())
@settings(max_examples=25)
@given(data=st.data())
def test_formulas_give_the_numbers_at_any_sizes(name: str, data: st.DataObject) -> None:
    model, sizes = load(name), drawn(data, name)
    symbols = {symbol(n): number for n, number in sizes.items()}
    every = {n: symbol(n) for n in sizes}
    formulas, numbers = model.per_segment(every), model.per_segment(sizes)
    for segment, count in formulas.items():
        for what in ("total", "active", "tied", "buffers"):
            assert sympy.sympify(getattr(count, what)).subs(symbols) == getattr(numbers[segment], what)
            assert type(getattr(numbers[segment], what)) is int
    assert {d: sympy.sympify(n).subs(symbols) for d, n in model.dims(every).items()} == model.dims(sizes)


@pytest.mark.parametrize("name", models.families())
def test_a_family_is_all_symbols(name: str) -> None:
    model = load(name)
    assert (dict(model.sizes), dict(model.given), model.name, model.family) == ({}, {}, name, name)
    assert model.dims()["batch"] == symbol("b")
    assert set(model.symbols()) <= set(SYMBOLS)
    assert {str(x) for x in model.parameters().total.free_symbols} <= set(SYMBOLS) - {"b"}


@pytest.mark.parametrize("name", models.presets())
def test_a_preset_has_numbers_for_all_but_the_batch(name: str) -> None:
    model = load(name)
    dims = model.dims({"b": 3})
    assert (dims["batch"], dims["tokens"], dims["keys"]) == (3, model.sizes["s"], model.sizes["s"])
    assert all(type(size) is int for size in dims.values())
    assert set(model.symbols()) - set(model.sizes) == {"b"}
    assert model.name == name
    assert model.title
    assert model.source


def test_values_come_before_what_a_preset_says_and_defaults_follow() -> None:
    model = load("llama3-8b")
    assert model.dims({"a": 64})["width"] == 64
    assert model.dims({"a": 64})["group"] == 8
    assert model.dims({"s": 100})["keys"] == 100
    assert load("gpt3-175b").dims({"s": 100, "h": 96})["ffn"] == 384
    assert load("gpt3-175b").dims({"s": 100})["positions"] == 2048
    x = sympy.Symbol("x")
    assert zero(load("gpt3-175b").parameters({"L": x}).groups["matrix"] - x * (12 * 12_288**2 + 7 * 12_288))


@pytest.mark.parametrize(
    ("values", "code", "message"),
    [
        ({"q": 3}, "PP201", "`q` is no symbol of llama3-8b"),
        ({"f_e": 3}, "PP201", "`f_e` is no symbol of llama3-8b"),
        ({"L": 0}, "PP202", "`L` (transformer layers) is at least 1, not 0"),
        ({"L": 2.0}, "PP202", "`L` is a whole number or a SymPy expression, not 2.0"),
        ({"L": True}, "PP202", "`L` is a whole number or a SymPy expression, not True"),
        ({"a_kv": 5}, "PP205", "llama3-8b: `a/a_kv` is 32/5, no whole number, with a = 32, a_kv = 5"),
    ],
)
def test_values_that_cannot_be(values: dict[str, Any], code: str, message: str) -> None:
    (problem,) = problems(lambda: load("llama3-8b").dims(values))
    assert (problem.code, problem.message) == (code, message)


def test_all_wrong_values_are_named_at_once() -> None:
    found = problems(lambda: load("llama3-8b").parameters({"x": 1, "h": -1, "V": "many"}))
    assert [p.code for p in found] == ["PP201", "PP202", "PP202"]


def test_more_dense_layers_than_layers() -> None:
    (problem,) = problems(lambda: load("deepseek-v3").parameters({"L": 2}))
    assert (problem.code, problem.message) == ("PP205", "deepseek-v3: there would be -1 times `sparse`, `L - L_dense`")


# Options.


def test_options_choose_blocks() -> None:
    names = {key: [b.name for b in load("llama", attention=key).segments[1].blocks] for key in ("core", "flash")}
    assert names == {key: ["rms_norm", block, "rms_norm", "swiglu"] for key, block in (("core", "attention"), ("flash", "attention_flash"))}
    assert [b.name for b in load("mixtral-8x7b", tied="yes").segments[2].blocks] == ["rms_norm", "head_tied"]
    assert load("bloom").options == {"attention": "core", "dropout": "no", "tied": "yes"}


@pytest.mark.parametrize("name", ["gpt", "bloom"])
def test_without_dropout_there_is_no_mask_and_all_else_is_the_same(name: str) -> None:
    with_masks, without = load(name, dropout="yes"), load(name, dropout="no")
    masks = {t.name for seg in with_masks.segments for b in seg.blocks for t in b.program.tensors} & {"mask", "drop"}
    left = {t.name for seg in without.segments for b in seg.blocks for t in b.program.tensors}
    assert masks == {"mask", "drop"}
    assert not left & masks
    assert with_masks.parameters() == without.parameters()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "sparse"}, "`sparse` is no value of the option `attention`"),
        ({"tie": "yes"}, "family `llama` has no option `tie`"),
    ],
)
def test_options_that_are_not_there(options: dict[str, str], message: str) -> None:
    (problem,) = problems(lambda: load("llama3-8b", **options))
    assert (problem.code, problem.message) == ("PP104", message)
