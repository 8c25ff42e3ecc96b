"""Files of launchers: real ones are read as people read them, wrong ones refused at their lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from placeproof.core.diagnostics import InputError
from placeproof.core.precision import PRECISIONS
from placeproof.importers.imported import Imported, Role
from placeproof.importers.meaning import meaning
from placeproof.importers.settings import settings
from placeproof.importers.systems import read_config
from placeproof.programs.assumptions import ASSUMPTIONS
from placeproof.semantics.lower import lower

CONFIGS = Path(__file__).parents[1] / "configs"
#: Those of which the arguments are recorded, and others.
TRAINERS = ("transformers", "llamafactory", "axolotl", "peft")
SYSTEMS = (*TRAINERS, "verl", "automodel", "maxtext", "nemorl")


def expected(folder: str) -> dict[tuple[str, str], dict[str, Any]]:
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for system in SYSTEMS:
        said = json.loads((CONFIGS / system / folder / "expected.json").read_text(encoding="utf-8"))
        rows |= {(system, name): row for name, row in said.items()}
    return rows


GOOD, BAD = expected(""), expected("bad")


def imported(system: str, name: str) -> Imported:
    return read_config(str(CONFIGS / system / name), world=GOOD[system, name]["world"])


def written(text: str, world: int | None = None, system: str = "transformers") -> Imported:
    return read_config(text, system=system, world=world)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("folder", ["", "bad"])
def test_every_file_is_expected(system: str, folder: str) -> None:
    files = {path.name for path in (CONFIGS / system / folder).iterdir() if path.is_file()} - {"expected.json"}
    assert files == {name for of, name in (BAD if folder else GOOD) if of == system}


@pytest.mark.parametrize(("system", "name"), GOOD)
def test_a_good_file_is_read(system: str, name: str) -> None:
    """Without its system being named: its own keys give it away."""
    read, row = imported(system, name), GOOD[system, name]
    assert read.system == system
    assert read.expression == row["expression"]
    assert read.precision == row["precision"]
    assert {k: str(v) for k, v in read.numbers.items()} == row["numbers"]
    assert list(read.without) == row["without"]
    assert sorted(r.name for r in read.of(Role.NOT_MODELLED)) == sorted(row["not_modelled"])
    assert sorted(r.name for r in read.another_step) == sorted(row["another_step"])


@pytest.mark.parametrize(("system", "name"), GOOD)
def test_its_strategy_is_lowered(system: str, name: str) -> None:
    read = imported(system, name)
    lower(read.strategy())
    assert read.precision is None or read.precision in PRECISIONS
    assert set(read.without) <= set(ASSUMPTIONS)


def names(table: dict[str, Any], before: str = "") -> Iterator[str]:
    for key, value in table.items():
        yield f"{before}{key}"
        if isinstance(value, dict):
            yield from names(value, f"{before}{key}.")


@pytest.mark.parametrize(("system", "name"), [(system, name) for system, name in GOOD if not name.endswith(".sh")])
def test_each_setting_has_one_reading_in_its_line(system: str, name: str) -> None:
    path = CONFIGS / system / name
    text = path.read_text(encoding="utf-8")
    data = yaml.safe_load(text)
    readings = [r for r in imported(system, name).readings if r.place is not None and r.place.source == str(path)]
    seen = [r.name for r in readings]
    assert len(seen) == len(set(seen))
    for key in data:
        assert any(one == key or one.startswith(f"{key}.") for one in seen), key
    assert set(seen) <= set(names(data))
    for reading in readings:
        assert reading.note
        assert reading.place is not None
        assert reading.name.split(".")[-1] in text.splitlines()[reading.place.line - 1]


@pytest.mark.parametrize(("system", "name"), [(system, name) for system, name in GOOD if not name.endswith(".json")])
def test_a_file_names_its_source(system: str, name: str) -> None:
    assert (CONFIGS / system / name).read_text(encoding="utf-8").startswith("# " + GOOD[system, name]["source"])


def test_tensor_parallelism_over_all_devices_is_read() -> None:
    text = "base_model: a\nfsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\ntensor_parallel_size: 4\n"
    assert written(text, 4, "axolotl").expression == "tp(tp=4) * clip"
    assert written(text, 8, "axolotl").expression == "fsdp(dp=2, prefetch=true) * tp(tp=4) * clip"


@pytest.mark.parametrize(("system", "name"), BAD)
def test_a_bad_file_is_refused_at_its_lines(system: str, name: str) -> None:
    with pytest.raises(InputError) as refused:
        read_config(str(CONFIGS / system / "bad" / name), system=system, world=BAD[system, name]["world"])
    problems = [[d.code, d.place.line if d.place else None] for d in refused.value.diagnostics]
    assert sorted(problems) == sorted(BAD[system, name]["problems"])
    assert all(d.help for d in refused.value.diagnostics)


#: What the frameworks' sources say, as `nightly/trainer_arguments.py` wrote it down.
ARGUMENTS: dict[str, dict[str, Any]] = json.loads((CONFIGS.parent / "data" / "trainer_arguments.json").read_text(encoding="utf-8"))


#: Of models with images alone, so that what a file leaves out is told, and not taken for said.
_OPEN = {"freeze_vision_tower", "freeze_multi_modal_projector"}


#: Facts that a reader puts beside the table of its system.
OF_READERS = {
    "maxtext": ("cp", "precision", "ends"),
    "peft": ("few_bits", "names_nothing", "one_text", "is_lora"),
    "llamafactory": ("whole_layers", "beside_all", "further_modules"),
    "verl": ("backend", "critic", "m", "said_size"),
    "automodel": ("adapters", "of_text", "kind", "tp", "cp", "pp", "ep", "rep", "kept", "several", "types", "order", "update", "loss"),
    "nemorl": (
        *("program", "backend", "v2", "said_size", "tp", "cp", "pp", "ep", "rep", "m", "pairs", "prompts", "answers", "whole_batches"),
        *("update", "frozen", "types"),
    ),
}


def known(system: str) -> dict[str, Any]:
    tables = ("transformers", "llamafactory") if system == "llamafactory" else (system,)
    return {name: field for table in tables for field in settings(table) for name in field.names}


@pytest.mark.parametrize("system", TRAINERS)
def test_every_argument_of_a_system_is_known(system: str) -> None:
    tables = {name.partition(".")[0] for name in known(system)}
    assert set(ARGUMENTS[system]["arguments"]) - tables == set()


@pytest.mark.parametrize("system", TRAINERS)
def test_defaults_that_decide_are_those_of_the_system(system: str) -> None:
    """Of settings that are of no matter no default is written down, nor of switches that are off."""
    rows = known(system)
    for name, default in ARGUMENTS[system]["arguments"].items():
        ours = rows[name].default if name in rows else None
        if default not in (None, False) and name in rows.keys() - _OPEN and rows[name].role is not Role.NO_MATTER:
            assert ours == default, name
        assert default is not False or not ours, name


@pytest.mark.parametrize("system", SYSTEMS)
def test_meanings_speak_of_settings_that_there_are(system: str) -> None:
    more = {name for field in settings("transformers/programs") for name in field.names}
    names = set(known(system)) | set(more) | {field.name for field in settings("transformers")}
    said = meaning(system)
    asked = {name for one in (*said.refusals, *said.notes) if one.when for name in one.when.names}
    asked |= {name for fact in said.facts.values() for name in fact.formula.names}
    assert {name for one in said.refusals for name in (*one.at, *one.each)} <= names
    assert all(not names.isdisjoint((name, f"{name.rpartition('.')[0]}.*")) for name in said.models)
    assert {name for one in said.notes for name in one.of if not name.endswith("*")} <= names
    assert all(any(one.startswith(name[:-1]) for one in names) for each in said.notes for name in each.of if name.endswith("*"))
    assert asked <= names | set(said.facts) | {
        "value",
        "setting",
        "world",
        "handed",
        "sharded",
        "strange",
        *(("dense_model", "sparse_model", "text_model", "model_type") if said.models else ()),
        *OF_READERS.get(system, ()),
    }


TRL = "output_dir: out\nper_device_train_batch_size: 1\nmax_length: 64\n"
FACTORY = "model_name_or_path: m\nstage: sft\ndo_train: true\ntemplate: t\ndataset: d\noutput_dir: out\n"
AXOLOTL = "base_model: m\ndatasets: []\nmicro_batch_size: 1\ngradient_accumulation_steps: 1\n"
#: A file, and what is no part of the step that is read.
ADAPTED = (
    ("transformers", TRL + "use_peft: true\nlora_dropout: 0.0\n", []),
    ("transformers", TRL + "use_peft: true\n", ["lora_dropout"]),
    ("transformers", TRL + "use_peft: true\nlora_dropout: 0.1\nload_in_4bit: true\n", ["lora_dropout"]),
    ("llamafactory", FACTORY, []),
    ("llamafactory", FACTORY + "finetuning_type: lora\nlora_dropout: 0.1\nquantization_bit: 4\n", ["lora_dropout"]),
    ("axolotl", AXOLOTL + "adapter: lora\n", []),
    ("axolotl", AXOLOTL + "adapter: qlora\nload_in_4bit: true\nlora_dropout: 0.05\n", ["lora_dropout"]),
)


@pytest.mark.parametrize(
    ("system", "text", "name"),
    [
        ("llamafactory", FACTORY.replace(": m\n", ": {}\n", 1) + "moe_aux_loss_coef: 0.01\n", "moe_aux_loss_coef"),
        ("axolotl", AXOLOTL.replace(": m\n", ": {}\n", 1) + "router_aux_loss_coef: 0.01\n", "router_aux_loss_coef"),
    ],
)
@pytest.mark.parametrize("model", ["Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-30B-A3B", "someone/else", "/models/Qwen2.5-7B-Instruct"])
def test_routers_matter_unless_the_model_is_known_to_have_none(system: str, text: str, name: str, model: str) -> None:
    known = model.startswith("Qwen/Qwen2.5")
    assert [one.name for one in written(text.format(model), 8, system).another_step] == ([] if known else [name])


@pytest.mark.parametrize(("system", "text", "another"), ADAPTED)
def test_adapters_are_a_strategy(system: str, text: str, another: list[str]) -> None:
    read = written(text, 8, system)
    assert read.expression.endswith(" * lora(rank=8)" if system == "llamafactory" else " * lora")
    assert read.precision is None
    assert [r.name for r in read.another_step] == another
    few = {name for name in ("load_in_4bit", "quantization_bit") if name in text}
    assert {r.name for r in read.of(Role.NOT_MODELLED)} == few | (set() if system == "llamafactory" else {"lora_target_modules"})
    assert {p.state for p in lower(read.strategy()).placed if p.group == "base"} == {"parameters"}


PEFT, DROPPED = AXOLOTL + "adapter: lora\n", TRL + "use_peft: true\nlora_dropout: 0\n"
LAYERS = "[q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]"
#: A file, what the strategy says of adapters, and whether the file says of their place what that does not.
PLACED = (
    ("transformers", DROPPED + f"lora_r: 16\nlora_target_modules: {LAYERS}\n", "lora(rank=16)", ""),
    ("transformers", DROPPED + "lora_target_modules: [all-linear]\n", "lora", ""),
    ("transformers", DROPPED + "lora_target_modules: all-linear\nlora_task_type: CAUSAL_LM\n", "lora", ""),
    ("transformers", DROPPED + "lora_target_modules: [v_proj, q_proj]\n", "lora(targets=qv)", ""),
    ("transformers", DROPPED + "lora_target_modules: [q_proj]\n", "lora", "lora_target_modules"),
    ("transformers", DROPPED + "lora_target_modules: all-linear\nlora_target_parameters: [x]\n", "lora", "lora_target_parameters"),
    ("llamafactory", FACTORY + "lora_rank: 16\nlora_target: q_proj, v_proj\n", "lora(rank=16, targets=qv)", ""),
    ("llamafactory", FACTORY + "lora_target: q_proj,k_proj,v_proj,o_proj\n", "lora(rank=8, targets=attention)", ""),
    ("llamafactory", FACTORY + "lora_target: all\n", "lora(rank=8)", ""),
    ("llamafactory", FACTORY + "lora_target: qkv_proj\n", "lora(rank=8)", "lora_target"),
    ("axolotl", PEFT + "lora_r: 32\nlora_target_linear: true\n", "lora(rank=32)", ""),
    ("axolotl", PEFT + "lora_target_linear: true\nlora_target_modules: [q_proj]\n", "lora", ""),
    ("axolotl", PEFT + "lora_target_linear: true\nlora_target_modules: [embed_tokens]\n", "lora", "lora_target_modules"),
    ("axolotl", PEFT + "lora_target_modules: [q_proj, k_proj, v_proj, o_proj]\n", "lora(targets=attention)", ""),
    *(
        ("axolotl", PEFT + f"lora_target_linear: true\n{name}: {value}\n", "lora", name)
        for name, value in {
            "lora_target_parameters": "[x]",
            "lora_rank_pattern": "{q_proj: 4}",
            "peft_layers_to_transform": "[0]",
            "peft_layers_pattern": "[layers]",
        }.items()
    ),
)


@pytest.mark.parametrize(("system", "text", "factor", "elsewhere"), PLACED)
def test_where_adapters_stand_is_read_or_named(system: str, text: str, factor: str, elsewhere: str) -> None:
    read = written(text, 8, system)
    assert read.expression.split(" * ")[-1] == factor
    assert [r.name for r in read.of(Role.NOT_MODELLED)] == [elsewhere] * bool(elsewhere)
    assert not read.another_step
    lower(read.strategy())


#: What adapters that compute otherwise, or are loaded, are said by.
OTHERWISE = (
    ("transformers", DROPPED, "use_dora: true"),
    ("llamafactory", FACTORY, "use_dora: true"),
    ("llamafactory", FACTORY, "adapter_name_or_path: a"),
    ("axolotl", PEFT, "peft_use_dora: true"),
    ("axolotl", PEFT, "lora_model_dir: a"),
)


@pytest.mark.parametrize(("system", "text", "more"), OTHERWISE)
def test_other_adapters_are_another_step(system: str, text: str, more: str) -> None:
    name = more.partition(":")[0]
    assert [r.name for r in written(f"{text}{more}\n", 8, system).another_step] == [name]
    assert not written(f"{text}{name}: {'false' if 'true' in more else ''}\n", 8, system).another_step


@pytest.mark.parametrize(("world", "refused"), [(None, False), (1, False), (2, True)])
def test_adapters_alone_say_nothing_of_devices(world: int | None, refused: bool) -> None:
    text = '{"peft_type": "LORA", "r": 4, "target_modules": ["q_proj", "v_proj"]}'
    if refused:
        with pytest.raises(InputError, match="nothing of how devices train them") as caught:
            written(text, world, "peft")
        assert "fsdp(2) * lora(rank=4)" in caught.value.diagnostics[0].help
    else:
        assert written(text, world, "peft").expression == "lora(rank=4, targets=qv)"


@pytest.mark.parametrize(
    ("model", "few"),
    [
        ("unsloth/Qwen2.5-7B-Instruct-bnb-4bit", True),
        ("TheBloke/Llama-2-7B-GPTQ", True),
        ("model-int4", True),
        ("Qwen/Qwen3-4B", False),
        ("google/gemma-4-E4B-it", False),
        ("model-64bit", False),
    ],
)
def test_weights_of_few_bits_are_known_by_their_name(model: str, few: bool) -> None:
    read = written(json.dumps({"peft_type": "LORA", "base_model_name_or_path": model, "target_modules": "all-linear"}), None, "peft")
    assert [r.name for r in read.of(Role.NOT_MODELLED)] == ["base_model_name_or_path"] * few


ADAPTER = {"peft_type": "LORA", "r": 8, "target_modules": ["q_proj", "v_proj"]}


@pytest.mark.parametrize(
    ("said", "factor", "not_modelled", "another"),
    [
        ({}, "lora(rank=8, targets=qv)", [], []),
        ({"layers_to_transform": 0}, "lora(rank=8, targets=qv)", ["layers_to_transform"], []),
        ({"layers_to_transform": []}, "lora(rank=8, targets=qv)", [], []),
        ({"use_dora": True}, "lora(rank=8, targets=qv)", [], ["use_dora"]),
        ({"use_dora": False, "use_qalora": False, "lora_bias": False}, "lora(rank=8, targets=qv)", [], []),
        ({"lora_bias": True}, "lora(rank=8, targets=qv)", ["lora_bias"], []),
        ({"lora_bias": True, "init_lora_weights": False}, "lora(rank=8, targets=qv)", ["lora_bias"], []),
        ({"target_modules": "all-linear", "layers_to_transform": None}, "lora(rank=8)", [], []),
        (
            {"layers_pattern": "layers", "layers_to_transform": [0, 1]},
            "lora(rank=8, targets=qv)",
            ["layers_pattern", "layers_to_transform"],
            [],
        ),
        ({"init_lora_weights": "loftq", "loftq_config": {"loftq_bits": 4}}, "lora(rank=8, targets=qv)", [], []),
        ({"target_modules": "ALL-LINEAR"}, "lora(rank=8)", [], []),
        ({"target_modules": ["ALL", "q_proj"]}, "lora(rank=8)", ["target_modules"], []),
        ({"target_modules": [], "target_parameters": ["experts.gate"]}, "lora(rank=8)", ["target_parameters"], []),
        ({"init_lora_weights": "eva"}, "lora(rank=8, targets=qv)", ["init_lora_weights"], []),
        ({"init_lora_weights": "eva", "eva_config": {"rho": 2.0}}, "lora(rank=8, targets=qv)", ["eva_config"], []),
        ({"kasa_config": {}}, "lora(rank=8, targets=qv)", [], ["kasa_config"]),
        ({"velora_config": {}}, "lora(rank=8, targets=qv)", [], ["velora_config"]),
        ({"monteclora_config": {}}, "lora(rank=8, targets=qv)", [], ["monteclora_config"]),
        ({"kasa_config": None, "loftq_config": {}}, "lora(rank=8, targets=qv)", [], []),
        ({"init_lora_weights": "gaussian"}, "lora(rank=8, targets=qv)", [], []),
    ],
)
def test_what_peft_makes_of_a_value(said: dict[str, Any], factor: str, not_modelled: list[str], another: list[str]) -> None:
    read = written(json.dumps(ADAPTER | said), None, "peft")
    assert read.expression == factor
    assert sorted(r.name for r in read.of(Role.NOT_MODELLED)) == not_modelled
    assert [r.name for r in read.another_step] == another


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"use_dora": "False"}, "`use_dora` is"),
        ({"use_qalora": "false"}, "`use_qalora` is"),
        ({"lora_bias": "True"}, "`lora_bias` is"),
        ({"target_modules": []}, "peft stops"),
        ({"target_modules": ["all-linear"]}, "peft stops"),
        ({"lora_bias": True, "use_dora": True}, "adapters with biases go with neither"),
        ({"lora_bias": True, "init_lora_weights": "pissa"}, "adapters with biases go with neither"),
        ({"target_modules": "all-linear", "layers_to_transform": 0}, "`layers_to_transform` says of layers"),
        ({"layers_pattern": "layers"}, "nothing says which have adapters"),
        ({"init_lora_weights": "loftq"}, "`loftq` asks for"),
    ],
)
def test_what_peft_reads_otherwise_or_stops_at_is_refused(said: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        written(json.dumps(ADAPTER | said), None, "peft")
    assert len(refused.value.diagnostics) == 1


def test_a_type_in_small_letters_is_no_type_of_peft() -> None:
    for name, message in (("lora", "its types are in capitals"), ("ia3", "no adapter of low rank")):
        with pytest.raises(InputError, match=message) as refused:
            written(json.dumps(ADAPTER | {"peft_type": name}), None, "peft")
        assert len(refused.value.diagnostics) == 1
        assert ('"LORA"' in refused.value.diagnostics[0].help) == (name == "lora")


def test_an_adapter_that_is_merged_is_the_model_s() -> None:
    assert not written(FACTORY + "adapter_name_or_path: a\ncreate_new_adapter: true\n", 8, "llamafactory").another_step


#: What is trained whole beside adapters: refused there, and of no matter where all is trained.
WHOLE = (
    ("transformers", TRL + "use_peft: {}\nlora_modules_to_save: [lm_head]\n", "true", "false"),
    ("transformers", TRL + "use_peft: {}\nlora_task_type: SEQ_CLS\n", "true", "false"),
    *(
        ("llamafactory", FACTORY + f"finetuning_type: {{}}\n{more}\n", "lora", "full")
        for more in (
            "additional_target: embed_tokens",
            "resize_vocab: true",
            "add_tokens: a",
            "add_special_tokens: a",
            "new_special_tokens_config: a",
        )
    ),
    *(
        ("axolotl", AXOLOTL + f"adapter: {{}}\n{more}\n", "lora", "")
        for more in ("lora_modules_to_save: [lm_head]", "peft_trainable_token_indices: [1]", "peft_layer_replication: [[0, 4]]")
    ),
)


@pytest.mark.parametrize(("system", "text", "adapters", "full"), WHOLE)
def test_what_is_trained_beside_adapters_is_refused(system: str, text: str, adapters: str, full: str) -> None:
    with pytest.raises(InputError, match="beside adapters some of the model's own parameters are trained") as refused:
        written(text.format(adapters), 8, system)
    (problem,) = refused.value.diagnostics
    assert problem.place
    assert problem.place.line == text.count("\n")
    read = written(text.format(full), 8, system)
    assert "lora" not in read.expression
    assert not read.another_step


def test_a_limit_that_is_null_is_refused_as_the_trainer_does() -> None:
    for system, text in (("transformers", TRL), ("llamafactory", FACTORY)):
        with pytest.raises(InputError, match="stops there with a TypeError"):
            written(text + "max_grad_norm:\n", 8, system)


@pytest.mark.parametrize(
    ("system", "text"),
    [
        ("axolotl", AXOLOTL + "unfrozen_parameters: []\n"),
        ("transformers", TRL + "use_peft: false\nlora_r: 16\n"),
        ("llamafactory", FACTORY + "finetuning_type: full\nlora_rank: 8\nlora_dropout: 0.1\n"),
        ("axolotl", AXOLOTL + "adapter:\nlora_r: 8\nlora_dropout: 0.1\n"),
    ],
)  # fmt: skip
def test_without_adapters_all_is_trained(system: str, text: str) -> None:
    read = written(text, 8, system)
    assert "lora" not in read.expression
    assert not read.another_step


def test_a_model_of_text_has_no_tower_that_is_frozen() -> None:
    text = FACTORY + "finetuning_type: full\nfreeze_vision_tower: true\n"
    read = written(text.replace("path: m", "path: Qwen/Qwen3-8B"), 8, "llamafactory")
    assert [r.role for r in read.readings if r.name == "freeze_vision_tower"] == [Role.NO_MATTER]
    assert read.expression == written(FACTORY + "finetuning_type: full\n", 8, "llamafactory").expression
    for other in (text, text.replace("path: m", "path: Qwen/Qwen2.5-VL-7B-Instruct")):
        with pytest.raises(InputError, match="parts of a multimodal model are frozen"):
            written(other, 8, "llamafactory")


@pytest.mark.parametrize(
    ("said", "layers", "unsaid"),
    [
        ("", 2, ["freeze_trainable_layers"]),
        ("freeze_trainable_layers: 4\nfreeze_trainable_modules: all\nfreeze_extra_modules: \n", 4, []),
        ("freeze_trainable_layers: 1\nfreeze_trainable_modules: [all]\n", 1, []),
        ("freeze_trainable_layers: 100\nfreeze_trainable_modules: all,all\n", 100, []),
    ],
)  # fmt: skip
def test_layers_of_which_the_last_are_trained_alone(said: str, layers: int, unsaid: list[str]) -> None:
    read = written(FACTORY + f"finetuning_type: freeze\n{said}", 8, "llamafactory")
    assert read.expression.endswith(f" * freeze(parts=ends, layers={layers})")
    assert read.precision is None
    assert not read.another_step
    assert [r.name for r in read.readings if r.name == "freeze_trainable_layers" and r.place is None] == unsaid
    read.strategy()


def test_experts_with_numbers_of_layers_are_trained_with_these() -> None:
    """LLaMA-Factory looks for `.47.` in names, and finds `model.layers.0.mlp.experts.47.up_proj`, too."""
    text = FACTORY + "finetuning_type: freeze\n"
    for model, other in (("Qwen/Qwen3-30B-A3B", True), ("qwen/qwen3-30b-a3b", True), ("Qwen/Qwen3-8B", False)):
        read = written(text.replace("path: m", f"path: {model}"), 8, "llamafactory")
        assert bool(read.another_step) is other


def test_all_modules_and_another_one_are_refused_as_that() -> None:
    with pytest.raises(InputError, match="`all` has every module of a layer") as refused:
        written(FACTORY + "finetuning_type: freeze\nfreeze_trainable_modules: all,mlp\n", 8, "llamafactory")
    assert [d.place.line for d in refused.value.diagnostics if d.place] == [8]


@pytest.mark.parametrize(
    ("system", "text", "line"),
    [
        ("transformers", TRL + "load_in_4bit: true\n", 4),
        ("transformers", TRL + "lora_r: 16\n", 4),
        ("llamafactory", FACTORY + "finetuning_type: freeze\nfreeze_trainable_layers: -2\n", 8),
        ("llamafactory", FACTORY + "finetuning_type: freeze\nfreeze_trainable_layers: 0\n", 8),
        ("llamafactory", FACTORY + "finetuning_type: freeze\nfreeze_trainable_modules: mlp,self_attn\n", 8),
        ("llamafactory", FACTORY + "finetuning_type: freeze\nfreeze_extra_modules: lm_head\n", 8),
        ("llamafactory", FACTORY + "finetuning_type: freeze\nuse_dora: true\n", 8),
        ("llamafactory", FACTORY + "finetuning_type: freeze\nquantization_bit: 4\n", 8),
        ("llamafactory", FACTORY + "finetuning_type: freeze\nfreeze_language_model: true\n", 8),
        ("llamafactory", FACTORY + "finetuning_type: oft\n", 7),
        ("llamafactory", FACTORY + "use_llama_pro: true\n", 7),
        ("llamafactory", FACTORY + "finetuning_type: full\nuse_dora: true\n", 8),
        ("llamafactory", FACTORY + "finetuning_type: full\nadapter_name_or_path: a\n", 8),
        ("llamafactory", FACTORY + "use_galore: true\n", 7),
        ("axolotl", AXOLOTL + "unfrozen_parameters: [lm_head]\n", 5),
        ("axolotl", AXOLOTL + "load_in_8bit: true\n", 5),
        ("axolotl", AXOLOTL + "adapter: qlora\n", 5),
        ("axolotl", AXOLOTL + "adapter: qlora\nload_in_4bit: true\nload_in_8bit: true\n", 7),
        ("axolotl", AXOLOTL + "adapter: llama-adapter\n", 5),
        ("axolotl", AXOLOTL + "adapter: lora\nrelora: true\n", 6),
    ],
)
def test_what_else_is_frozen_is_refused(system: str, text: str, line: int) -> None:
    with pytest.raises(InputError) as refused:
        written(text, 8, system)
    assert [d.place.line for d in refused.value.diagnostics if d.place] == [line]


@pytest.mark.parametrize(
    ("text", "world", "expression"),
    [
        ("ici_fsdp_parallelism=4 dcn_data_parallelism=2", None, "hsdp(rep=2, shard=4) * checkpoint * clip"),
        ("ici_fsdp_parallelism=-1 dcn_data_parallelism=1", 16, "fsdp(dp=16) * checkpoint * clip"),
        ("num_slices=4", 16, "hsdp(rep=4, shard=4) * checkpoint * clip"),
        ("ici_fsdp_parallelism=2 dcn_fsdp_parallelism=4 dcn_data_parallelism=1", 8, "fsdp(dp=8) * checkpoint * clip"),
        ("ici_data_parallelism=-1 ici_fsdp_parallelism=1 dcn_data_parallelism=1 remat_policy=minimal", 4, "ddp(dp=4) * clip"),
        (
            "ici_fsdp_parallelism=1 ici_expert_parallelism=8 dcn_data_parallelism=1 gradient_clipping_threshold=0",
            None,
            "fsdp(dp=1) * fsdp(dp=ep) * checkpoint * ep(ep=8)",
        ),
    ],
)
def test_axes_of_maxtext_are_within_slices_and_between_them(text: str, world: int | None, expression: str) -> None:
    assert written(text, world, "maxtext").expression == expression


@pytest.mark.parametrize(
    ("text", "world", "about"),
    [
        ("run_name=a", 16, "how many slices"),
        ("ici_fsdp_parallelism=-1 ici_data_parallelism=-1 dcn_data_parallelism=1", 16, "two axes"),
        ("ici_fsdp_parallelism=-1 dcn_data_parallelism=1", None, "number of devices"),
        ("ici_fsdp_parallelism=3 dcn_data_parallelism=1", 16, "is not 16"),
        ("ici_fsdp_parallelism=-1 dcn_data_parallelism=3", 16, "is not 16"),
        ("ici_tensor_parallelism=2", 16, "`tensor`"),
        ("ici_pipeline_parallelism=2", 16, "`stage`"),
        ("ici_fsdp_parallelism=2 dcn_data_parallelism=2 ici_expert_parallelism=2", 8, "beside copies"),
    ],
)
def test_an_axis_of_maxtext_that_no_strategy_has_is_refused(text: str, world: int | None, about: str) -> None:
    with pytest.raises(InputError) as refused:
        written(text, world, "maxtext")
    (problem,) = refused.value.diagnostics
    assert about in problem.message


AUTOMODEL = """step_scheduler: {global_batch_size: 16, local_batch_size: 1}
distributed: {strategy: fsdp2}
model: {torch_dtype: bf16}
peft:
  _target_: nemo_automodel.components._peft.lora.PeftConfig
"""


@pytest.mark.parametrize(
    ("text", "adapters", "not_modelled", "another_step"),
    [
        ("  dim: 16\n  target_modules: '*_proj'\n", "lora(rank=16)", [], []),
        ("", "lora(rank=8)", [], []),
        ("  target_modules: ['*.q_proj', '*v_proj']\n  match_all_linear: false\n", "lora(rank=8, targets=qv)", [], []),
        ("  target_modules: [q_proj, k_proj, v_proj, o_proj]\n", "lora(rank=8, targets=attention)", [], []),
        ("  target_modules: ['*']\n", "lora(rank=8)", ["peft.target_modules"], []),
        ("  exclude_modules: ['*lm_head*']\n", "lora(rank=8)", ["peft.exclude_modules"], []),
        ("  match_all_linear: true\n", "lora(rank=8)", ["peft.match_all_linear"], []),
        ("  dropout: 0.1\n  use_dora: true\n", "lora(rank=8)", [], ["peft.dropout", "peft.use_dora"]),
        ("  moe_rank_scaling: true\n", "lora(rank=8)", ["peft.moe_rank_scaling"], []),
        ("quantization: {load_in_4bit: true}\n", "lora(rank=8)", ["quantization.load_in_4bit"], []),
    ],
)
def test_adapters_of_automodel(text: str, adapters: str, not_modelled: list[str], another_step: list[str]) -> None:
    read = written(AUTOMODEL + text, 16, "automodel")
    assert read.expression == f"fsdp(dp=16, prefetch=true) * {adapters} * clip"
    assert read.precision is None
    found = [r.name for r in read.of(Role.NOT_MODELLED)]
    assert found == [*not_modelled, "peft.use_memory_efficient_lora"]
    assert [r.name for r in read.another_step] == another_step


def test_no_adapters_of_automodel_are_said() -> None:
    read = written(AUTOMODEL.partition("peft:")[0] + "peft: null\n", 16, "automodel")
    assert read.expression == "fsdp(dp=16, prefetch=true) * clip"


def test_what_the_recipe_for_language_models_does_not_read_is_of_no_matter() -> None:
    recipe = "recipe: TrainFinetuneRecipeForNextTokenPrediction\n"
    read = written(AUTOMODEL + recipe + "freeze_config: {freeze_embeddings: true, freeze_vision_tower: true}\n", 16, "automodel")
    (one, other) = (r for r in read.readings if r.name.startswith("freeze_config"))
    assert (one.role, other.role) == (Role.NO_MATTER, Role.NO_MATTER)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (AUTOMODEL + "  target_modules: [q_proj]\n  exclude_modules: [v_proj]\n", [6]),
        (AUTOMODEL + "  target_modules: [q_proj]\n  match_all_linear: true\n", [6]),
        (AUTOMODEL.replace("lora.PeftConfig", "other.IA3Config"), [5]),
        (AUTOMODEL.replace("fsdp2", "fsdp2, tp_size: 2"), [2]),
        (AUTOMODEL.replace("fsdp2", "fsdp2, ep_size: 8"), [2]),
        (AUTOMODEL.replace("fsdp2", "megatron_fsdp"), [2]),
        (AUTOMODEL.partition("peft:")[0] + "quantization: {load_in_4bit: true}\n", [4]),
        (AUTOMODEL + "freeze_config: {freeze_embeddings: true}\n", [6]),
        (AUTOMODEL.partition("peft:")[0] + "peft: 3\n", [4]),
    ],
)
def test_what_of_automodel_is_not_read(text: str, lines: list[int]) -> None:
    with pytest.raises(InputError) as refused:
        written(text, 16, "automodel")
    assert [d.place.line for d in refused.value.diagnostics if d.place] == lines


FULL = "model_name_or_path: m\nstage: sft\ndo_train: true\nfinetuning_type: full\nuse_muon: true\n"
MUON = "base_model: m\noptimizer: muon\n"
FSDP2 = MUON + "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n"


@pytest.mark.parametrize(
    ("system", "text", "setting", "muon", "role"),
    [
        ("llamafactory", FULL, "use_muon", True, Role.READ),
        ("llamafactory", FULL + "fsdp: full_shard\n", "use_muon", False, Role.ANOTHER_STEP),
        ("llamafactory", FULL.replace("full", "lora"), "use_muon", False, Role.ANOTHER_STEP),
        ("llamafactory", FULL + "use_galore: true\n", "use_muon", False, Role.ANOTHER_STEP),
        ("axolotl", MUON, "optimizer", True, Role.NOT_MODELLED),
        ("axolotl", FSDP2, "optimizer", True, Role.READ),
        ("axolotl", FSDP2 + "tensor_parallel_size: 2\n", "optimizer", False, Role.ANOTHER_STEP),
        ("axolotl", MUON + "adapter: lora\nlora_r: 8\n", "optimizer", False, Role.ANOTHER_STEP),
        ("axolotl", MUON.replace("muon", "dion"), "optimizer", False, Role.ANOTHER_STEP),
    ],
)
def test_muon_is_read_where_directions_are_of_whole_matrices(system: str, text: str, setting: str, muon: bool, role: Role) -> None:
    read = written(text, 4, system)
    of_parts = "muon(matrices=exchanged)" if text is FSDP2 else "muon"
    assert (of_parts in read.expression.split(" * ")) is muon
    assert [r.role for r in read.readings if r.name == setting] == [role]


@pytest.mark.parametrize("more", ["deepspeed: ds.json\n", "fsdp_version: 1\nfsdp_config: {reshard_after_forward: true}\n"])
def test_axolotl_refuses_muon_beside_others(more: str) -> None:
    with pytest.raises(InputError, match="axolotl refuses Muon"):
        written(MUON + more, 4, "axolotl")


SFT = FULL.replace("use_muon: true\n", "optim: adafactor\n")


@pytest.mark.parametrize(
    ("system", "text", "adafactor", "without", "another"),
    [
        ("transformers", "output_dir: out\noptim: adafactor\n", True, False, False),
        ("transformers", "output_dir: out\nadafactor: true\n", True, False, False),
        ("transformers", "output_dir: out\noptim: adafactor\ndeepspeed: {zero_optimization: {stage: 1}}\n", False, True, False),
        ("transformers", "output_dir: out\noptim: adafactor\nfsdp: full_shard\nfsdp_config: {version: 1}\n", False, True, False),
        ("llamafactory", SFT, True, False, False),
        ("llamafactory", SFT + "use_galore: true\n", False, True, True),
        ("axolotl", MUON.replace("muon", "adafactor"), True, False, False),
    ],
)
def test_adafactor_is_read_where_every_device_has_whole_gradients(
    system: str, text: str, adafactor: bool, without: bool, another: bool
) -> None:
    """Flat parts, of ZeRO and FSDP 1, make another step of it."""
    read = written(text, 4, system)
    assert ("adafactor" in read.expression.split(" * ")) is adafactor
    assert read.without == (("elementwise-optimizer",) if without else ())
    assert any(r.role is Role.ANOTHER_STEP for r in read.readings) is another
    assert "adam" not in " ".join(r.note for r in read.readings if r.name != "use_galore").lower().replace("adafactor", "")


@pytest.mark.parametrize(
    ("system", "text", "line"),
    [
        ("transformers", "output_dir: out\noptim: adafactor\nfsdp: full_shard\n", 2),
        ("transformers", "output_dir: out\nadafactor: true\nfsdp: full_shard\n", 2),
        ("axolotl", MUON.replace("muon", "adafactor") + "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n", 0),
    ],
)
def test_adafactor_of_distributed_tensors_is_refused(system: str, text: str, line: int) -> None:
    """PyTorch 2.13 stops where `torch.zeros(...).to(gradient)`, which is no DTensor, is added to."""
    with pytest.raises(InputError, match="transformers' Adafactor") as refused:
        written(text, 4, system)
    (found,) = refused.value.diagnostics
    assert found.place is not None
    assert found.place.line == (line or text[: text.index("adafactor")].count("\n") + 1)


@pytest.mark.parametrize(
    ("optim", "told"), [("adamw_torch", "fp32-adam"), ("sgd", "--precision sgd"), ("adafactor", ""), ("lion_32bit", "")]
)
def test_bytes_are_advised_of_the_update_that_is_said(optim: str, told: str) -> None:
    for more in ("", "fsdp: full_shard\nfsdp_config: {version: 1}\n"):
        read = written(f"output_dir: out\nbf16: true\noptim: {optim}\n{more}", 4, "transformers")
        (note,) = (r.note for r in read.readings if r.name == "bf16")
        assert told.removeprefix("" if more else "--precision ") in note
        assert told or "adam" not in note.lower()
