"""Models' configurations as the shapes of their parameters, against what transformers builds; and files that list shapes.

`tests/configs/huggingface/recorded.json` holds what transformers made of each configuration; `nightly/README.md` says how.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placeproof.core.diagnostics import InputError
from placeproof.core.shapes import BUFFER_TYPES, Shapes, Unit, Weight, transformer
from placeproof.importers import import_shapes, read_config, read_shapes, render_shapes
from placeproof.importers.huggingface.fields import families
from placeproof.importers.imported import Role
from placeproof.importers.shapes import parse_shapes

HERE = Path(__file__).parents[1] / "configs" / "huggingface"
GOOD: dict[str, Any] = json.loads((HERE / "expected.json").read_text(encoding="utf-8"))
BAD: dict[str, Any] = json.loads((HERE / "bad" / "expected.json").read_text(encoding="utf-8"))
RECORD: dict[str, Any] = json.loads((HERE / "recorded.json").read_text(encoding="utf-8"))
#: Published counts that are not those of the parameters that transformers trains -> what they count besides.
BESIDES = {"deepseek_v3.json": 58 * 256}  # the correction biases of its routers, which are buffers


def listed(shapes: Shapes) -> list[list[Any]]:
    """Names and shapes, unit by unit, as they are recorded."""
    return [[unit.name, [[w.name, list(w.shape)] for w in unit.weights]] for unit in shapes.units]


def described(name: str) -> dict[str, Any]:
    """What a file says of its model, or of the text part of it."""
    data: dict[str, Any] = json.loads((HERE / name).read_text(encoding="utf-8"))
    return dict(data.get("text_config", data))


def refused(text: str, kind: str) -> list[tuple[str, int | None, str]]:
    with pytest.raises(InputError) as caught:
        parse_shapes(text, kind=kind)
    assert all(d.help for d in caught.value.diagnostics)
    return [(d.code, d.place.line if d.place else None, d.message) for d in caught.value.diagnostics]


# Configurations of transformers.


NONSENSE = {
    "max_position_embeddings": (-5, 0, 1.5, "8192", float("nan")),
    "rope_theta": (0, -1.0, float("inf")),
    "rms_norm_eps": (0, -1e-5, float("nan")),
    "attention_dropout": (-0.1, 1.1, float("nan")),
    "initializer_range": (-0.02, float("inf")),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_numbers_that_decide_no_shape_have_domains_too(name: str) -> None:
    good = json.loads((Path(__file__).parents[1] / "configs" / "huggingface" / "llama3_8b.json").read_text(encoding="utf-8"))
    parse_shapes(json.dumps({**good, name: None}), kind="json")
    for value in NONSENSE[name]:
        with pytest.raises(InputError) as refused:
            parse_shapes(json.dumps({**good, name: value}), kind="json")
        assert [(d.code, d.place is not None) for d in refused.value.diagnostics] == [("PP503", True)], value


def test_how_many_tokens_a_model_was_made_for_is_a_limit() -> None:
    path = Path(__file__).parents[1] / "configs" / "huggingface" / "llama3_8b.json"
    (note,) = (r.note for r in import_shapes(path).readings if r.name == "max_position_embeddings")
    assert "a limit, and not s" in note


@pytest.mark.parametrize("name", GOOD)
def test_shapes_are_those_that_transformers_registers(name: str) -> None:
    recorded, shapes = RECORD["models"][name], read_shapes(HERE / name)
    if "units" in recorded:
        assert listed(shapes) == recorded["units"]
    assert sum(1 for _ in shapes.weights) == recorded["tensors"]
    assert shapes.elements == recorded["elements"]
    assert hashlib.sha256(json.dumps(listed(shapes)).encode()).hexdigest() == recorded["digest"]


#: Models that transformers builds and cannot run.
NOT_RUN = {"made_llama_partial_rotary.json", "made_deepseek_v3_no_q_lora.json"}
#: Parts of names of weights that have no gradient from the loss: cross-attention without an encoder, and what chooses keys.
NO_GRADIENT = ("crossattention", "ln_cross_attn", ".indexer.")


@pytest.mark.parametrize("name", GOOD)
def test_gradients_become_ready_in_the_reverse_order_of_use(name: str) -> None:
    recorded, shapes = RECORD["models"][name], read_shapes(HERE / name)
    assert sorted(shapes.used) == sorted(w.name for w in shapes.weights)
    used = [n for n in shapes.used if not any(part in n for part in NO_GRADIENT)]
    assert (recorded["used"] is None) == (name in NOT_RUN)
    if recorded["used"] is not None:
        assert hashlib.sha256(json.dumps(used).encode()).hexdigest() == recorded["used"]


@pytest.mark.parametrize("name", GOOD)
def test_buffers_are_those_that_transformers_registers(name: str) -> None:
    recorded, shapes = RECORD["models"][name]["buffers"], read_shapes(HERE / name)
    if name == "made_llama_partial_rotary.json":
        assert shapes.buffers is None
        return
    ours = dict(shapes.buffers or ())
    whole_types = {described(name).get(key) for key in ("torch_dtype", "dtype")} & {
        "bfloat16",
        "float16",
    }
    if not whole_types and "float32" in ours:  # one type for both
        ours = {"dtype": ours.pop("float32") + ours.get("dtype", 0)}
    assert ours == recorded


@pytest.mark.parametrize("name", [name for name in GOOD if GOOD[name]["published"] is not None])
def test_parameter_counts_are_the_published_ones(name: str) -> None:
    assert read_shapes(HERE / name).elements + BESIDES.get(name, 0) == GOOD[name]["published"]


@pytest.mark.parametrize("name", [name for name in GOOD if RECORD["models"][name].get("split")])
def test_split_dimensions_are_those_of_transformers_own_plan(name: str) -> None:
    ours = {w.name: w.split for w in read_shapes(HERE / name).weights}
    theirs: dict[str, int] = RECORD["models"][name]["split"]
    assert {weight: ours[weight] for weight in theirs} == theirs


def test_every_type_of_model_and_every_file_is_compared() -> None:
    assert {described(name)["model_type"] for name in RECORD["models"]} == set(families())
    assert set(RECORD["models"]) == set(GOOD)
    assert {p.name for p in HERE.glob("*.json")} == {*GOOD, "expected.json", "recorded.json"}
    assert {p.name for p in (HERE / "bad").glob("*.json")} == {*BAD, "expected.json"}


def test_every_setting_is_said_with_another_value_than_its_default_somewhere() -> None:
    files = [described(name) for name in GOOD]
    for kind, family in families().items():
        alike = {name for name, other in families().items() if other.settings == family.settings}
        for setting in family.settings:
            said = [file[n] for file in files if file["model_type"] in alike for n in (setting.name, *setting.aliases) if n in file]
            assert any(value != setting.default for value in said), (kind, setting.name)


@pytest.mark.parametrize("name", GOOD)
def test_every_setting_has_one_reading(name: str) -> None:
    found = import_shapes(HERE / name)
    data = json.loads((HERE / name).read_text(encoding="utf-8"))
    inner = [f"text_config.{key}" for key in data.get("text_config", ())]
    assert [r.name for r in found.readings] == [n for key in data for n in (inner if key == "text_config" else [key])]
    assert [r.name for r in found.of(Role.NOT_MODELLED)] == GOOD[name]["not_modelled"]
    assert found.kind == described(name)["model_type"]
    for reading in found.readings:
        assert reading.place is not None
        assert reading.note


def test_a_setting_of_no_known_name_is_listed() -> None:
    text = (HERE / "made_llama_null.json").read_text(encoding="utf-8").replace("{", '{"tied_by_a_ribbon": true,', 1)
    (reading,) = [r for r in parse_shapes(text, kind="json").readings if r.name == "tied_by_a_ribbon"]
    assert (reading.role, reading.note) == (Role.NO_MATTER, "not used for shapes")


@pytest.mark.parametrize(
    ("file", "name", "wrong"),
    [
        ("made_llama_null.json", "tie_word_embeddings", "tie_word_embedding"),
        ("default_glm.json", "attention_bias", "atention_bias"),
        ("default_glm.json", "head_dim", "head_dimm"),
        ("default_glm.json", "max_position_embeddings", "max_psition_embeddings"),
        ("deepseek_v3.json", "routed_scaling_factor", None),
    ],
)
def test_a_misspelt_setting_whose_default_would_be_taken_is_refused(file: str, name: str, wrong: str | None) -> None:
    data = json.loads((HERE / file).read_text(encoding="utf-8"))
    value = data.pop(name, True)
    parse_shapes(json.dumps(data), kind="json")  # not said at all it is the default
    if wrong is None:  # decides nothing here, so that whatever is like it is let be
        parse_shapes(json.dumps(data | {f"{name}s": value}), kind="json")
        return
    with pytest.raises(InputError, match=f"`{wrong}` is no setting") as caught:
        parse_shapes(json.dumps(data | {wrong: value}), kind="json")
    assert f"did you mean `{name}`?" in str(caught.value.diagnostics[0].help)
    parse_shapes(json.dumps(data | {wrong: value, name: value}), kind="json")  # said, too


@pytest.mark.parametrize("name", BAD)
def test_every_problem_of_a_bad_file_is_named(name: str) -> None:
    with pytest.raises(InputError) as caught:
        read_shapes(HERE / "bad" / name)
    problems = caught.value.diagnostics
    assert [[p.code, p.place.line if p.place else None] for p in problems] == BAD[name]
    assert all(p.help for p in problems)


def test_what_is_near_is_named() -> None:
    with pytest.raises(InputError) as caught:
        read_shapes(HERE / "bad" / "missing.json")
    assert ["`hiden_size`" in str(p.help) for p in caught.value.diagnostics] == [False, True]
    with pytest.raises(InputError) as caught:
        read_shapes(HERE / "bad" / "unknown_type.json")
    assert str(caught.value.diagnostics[0].help).startswith("did you mean `llama`?; `--shapes FILE --shapes-from transformers` has")
    for kind in ("mamba", "llava", "qwen4"):  # other types, and no slips of the hand
        with pytest.raises(InputError) as caught:
            parse_shapes(f'{{"model_type": "{kind}"}}', kind="json")
        assert "did you mean" not in str(caught.value.diagnostics[0].help)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.integers(1, 6), st.integers(1, 90), st.booleans(), st.booleans())
def test_a_llama_has_as_many_parameters_as_the_formula_says(
    layers: int, keys: int, groups: int, width: int, inner: int, tied: bool, bias: bool
) -> None:
    heads, vocab = keys * groups, 50
    hidden = heads * 2 * width
    settings = {"model_type": "llama", "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers}
    settings |= {"num_attention_heads": heads, "num_key_value_heads": keys, "tie_word_embeddings": tied, "attention_bias": bias}
    shapes = parse_shapes(json.dumps(settings), kind="json").shapes
    narrow = keys * 2 * width
    layer = 2 * hidden + 2 * hidden * hidden + 2 * hidden * narrow + 3 * hidden * inner + (2 * hidden + 2 * narrow if bias else 0)
    assert shapes.elements == layers * layer + hidden + vocab * hidden * (1 if tied else 2)
    plain = transformer(layers=layers, hidden=hidden, heads=heads, kv_heads=keys, ffn=inner, vocab=vocab, batch=1, tokens=1)
    if not tied and not bias:
        assert sorted((w.shape, str(w.split)) for w in shapes.weights) == sorted((w.shape, str(w.split)) for w in plain.weights)
        assert set(shapes.dims) == set(plain.dims) - {("batch", 1), ("tokens", 1)}


def test_a_model_is_no_strategy() -> None:
    with pytest.raises(InputError, match="it says shapes and no strategy") as caught:
        read_config(str(HERE / "gpt2.json"))
    assert "read_shapes" in str(caught.value.diagnostics[0].help)


# Files that list shapes.

TOML = """
name = "two"
[dims]
tokens = 4

[[unit]]
name = "root"
blocks = ["embedding"]
parameters = { "a.weight" = [4, 3], "b" = [4], "scale" = [] }
split = { "a.weight" = 1, b = 0 }

[[unit]]
name = "layer"
[unit.parameters]
"layer.w" = [2, 2, 2]
"""
TWO = Shapes(
    name="two",
    units=(
        Unit(
            name="root",
            weights=(Weight(name="a.weight", shape=(4, 3), split=1), Weight(name="b", shape=(4,), split=0), Weight(name="scale", shape=())),
            blocks=("embedding",),
        ),
        Unit(name="layer", weights=(Weight(name="layer.w", shape=(2, 2, 2)),)),
    ),
    dims=(("tokens", 4),),
)


def test_shapes_are_read_from_toml_and_from_json(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(TOML, encoding="utf-8")
    assert read_shapes(tmp_path / "two.toml") == TWO
    unit = {
        "name": "root",
        "blocks": ["embedding"],
        "parameters": {"a.weight": [4, 3], "b": [4], "scale": []},
        "split": {"a.weight": 1, "b": 0},
    }
    data = {"dims": {"tokens": 4}, "unit": [unit, {"name": "layer", "parameters": {"layer.w": [2, 2, 2]}}]}
    (tmp_path / "two.json").write_text(json.dumps(data), encoding="utf-8")
    assert read_shapes(str(tmp_path / "two.json")) == TWO  # without a name, that of the file


NAMES = st.text(min_size=1, max_size=8)
SIZES = st.integers(1, 10**12)


@st.composite
def any_shapes(draw: st.DrawFn) -> Shapes:
    """Shapes of all sorts, with names of all sorts that come once."""
    names = draw(st.lists(NAMES, unique=True, min_size=1, max_size=8))
    units, rest = [], list(names)
    for name in draw(st.lists(NAMES, unique=True, min_size=1, max_size=3)):
        count = draw(st.integers(0, len(rest)))
        taken, rest = rest[:count], rest[count:]
        weights = []
        for weight in taken:
            shape = tuple(draw(st.lists(SIZES, max_size=3)))
            split = draw(st.none() | st.integers(0, len(shape) - 1)) if shape else None
            weights.append(Weight(name=weight, shape=shape, split=split))
        units.append(Unit(name=name, weights=tuple(weights), blocks=tuple(draw(st.lists(NAMES, max_size=2)))))
    dims = draw(st.dictionaries(NAMES, SIZES, max_size=3))
    used = draw(st.just([]) | st.permutations([w.name for unit in units for w in unit.weights]))
    if {w.name for unit in units for w in unit.weights} & {unit.name for unit in units}:
        used = []  # a name of both would be that of the parameter
    buffers = draw(st.none() | st.dictionaries(st.sampled_from(sorted(BUFFER_TYPES)), SIZES).map(lambda d: tuple(d.items())))
    return Shapes(name=draw(NAMES), units=tuple(units), dims=tuple(dims.items()), used=tuple(used), buffers=buffers)


@given(any_shapes())
def test_what_is_written_is_read_back(shapes: Shapes) -> None:
    assert parse_shapes(render_shapes(shapes), kind="toml").shapes == shapes


@pytest.mark.parametrize("name", ["made_deepseek_v3.json", "gpt2.json"])
def test_a_models_shapes_are_written_as_a_list(name: str) -> None:
    shapes = read_shapes(HERE / name)
    assert parse_shapes(render_shapes(shapes), kind="toml").shapes == shapes


def test_every_problem_of_a_list_is_named_at_its_place() -> None:
    text = (
        'nam = "x"\n[dims]\nbatch = 0\n[[unit]]\nname = "root"\n'
        'parameters = { "w.a" = [4, -3], "w.b" = 3, "w.c" = [2] }\nsplit = { "w.c" = 1, "w.d" = 0 }\n'
        '[[unit]]\nname = "root"\nblock = ["x"]\nblocks = 3\n[unit.parameters]\n"w.c" = [2]\n"v.weight" = [true]\n'
        '[[unit]]\nparameters = { "z" = [1] }\n[[unit]]\nname = 3\n'
    )
    found = refused(text, "toml")
    assert [(code, line) for code, line, _ in found] == [
        ("PP502", 1), ("PP503", 3), ("PP503", 6), ("PP503", 6), ("PP504", 7), ("PP502", 7), ("PP502", 9), ("PP502", 10), ("PP503", 11),
        ("PP502", 13), ("PP503", 14), ("PP503", 15), ("PP503", 17), ("PP503", 18),
    ]  # fmt: skip
    assert "the shape of `w.a` is a list" in found[2][2]
    assert "`w.c` has 1 dimensions, and is split along 1" in found[4][2]


def test_the_order_of_use_is_that_of_the_file_unless_it_says_another() -> None:
    units = '[[unit]]\nname = "root"\nparameters = { "e" = [1], "n" = [2], "h" = [3] }\n'
    units += '[[unit]]\nname = "u"\nparameters = { "w" = [4], "b" = [5] }\n'
    assert [w.name for w in parse_shapes(units, kind="toml").shapes.by_use] == ["e", "n", "w", "b", "h"]
    said = parse_shapes('used = ["e", "u", "n", "h"]\n' + units, kind="toml").shapes
    assert [w.name for w in said.by_use] == list(said.used) == ["e", "w", "b", "n", "h"]


def test_columns_are_those_of_the_names() -> None:
    text = '[[unit]]\nname = "root"\nparameters = { "a.w" = [1], "b.w" = [0] }\n'
    with pytest.raises(InputError) as caught:
        parse_shapes(text, kind="toml")
    (problem,) = caught.value.diagnostics
    assert problem.place is not None
    assert problem.place.text[problem.place.column - 1 :][: problem.place.length] == "b.w"


@pytest.mark.parametrize(
    ("text", "kind", "code", "line"),
    [
        ('{"unit": []}', "json", "PP503", 1),
        ('{"unit": [3]}', "json", "PP503", 1),
        ("unit = 3", "toml", "PP503", 1),
        ('{\n"unit": [{"name": "r",\n"parameters": [1]}]}', "json", "PP503", 3),
        ('{\n"unit": [{"name": "r",\n"parameters": {"": [1]}}]}', "json", "PP503", 3),
        ('{"dims": 3,\n"unit": [{"name": "r", "parameters": {}}]}', "json", "PP503", 1),
        ('[[unit]]\nname = "r"\nparameters = { "a" = [1]', "toml", "PP501", 3),
        ('[[unit]]\nname = "r"\nname = "s"', "toml", "PP502", 3),
        ('used = ["v"]\n[[unit]]\nname = "r"\nparameters = { "w" = [1] }', "toml", "PP502", 1),
        ('used = ["w", "r"]\n[[unit]]\nname = "r"\nparameters = { "w" = [1] }', "toml", "PP504", 1),
        ('used = ["w"]\n[[unit]]\nname = "r"\nparameters = { "w" = [1], "b" = [1] }', "toml", "PP504", 1),
        ('used = "w"\n[[unit]]\nname = "r"\nparameters = { "w" = [1] }', "toml", "PP503", 1),
        ('[buffers]\nfloat31 = 1\n[[unit]]\nname = "r"\nparameters = { "w" = [1] }', "toml", "PP502", 2),
        ('[buffers]\nint64 = 0\n[[unit]]\nname = "r"\nparameters = { "w" = [1] }', "toml", "PP503", 2),
        ("a = 1", "toml", "PP501", 1),
        ("{}", "json", "PP501", 1),
        ('model_type = "llama"', "toml", "PP501", 1),
        ("", "toml", "PP501", 1),
    ],
)
def test_lists_that_cannot_be_used(text: str, kind: str, code: str, line: int) -> None:
    assert [(c, at) for c, at, _ in refused(text, kind)] == [(code, line)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing.json", "cannot read"),
        ("model.yaml", "ends in .json or .toml"),
        ("~nobody-has-this-name/x.json", "cannot read"),
        ("a\0.json", "cannot read"),
    ],
)
def test_files_that_are_not_there(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_shapes(name)
    assert [d.code for d in caught.value.diagnostics] == ["PP501"]


def test_there_are_no_models_of_so_many_layers() -> None:
    good = json.loads((HERE / next(iter(GOOD))).read_text(encoding="utf-8"))
    layers = families()[good["model_type"]].layers
    (problem,) = refused(json.dumps({**good, layers: 10_001}), "json")
    assert problem[2] == f"`{layers}` is at most 10000"


def test_a_parameter_has_a_name_of_its_own_and_a_file_its_ending() -> None:
    unit = '[[unit]]\nname = "{}"\nparameters = {{ "w" = [4, 3] }}\n'
    assert refused(unit.format("root") + unit.format("other"), "toml") == [("PP502", 6, "the parameter `w` is there twice")]
    with pytest.raises(InputError, match="is no file of shapes: its name ends in"):
        import_shapes("mine.yaml")
