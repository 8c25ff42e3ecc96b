"""Shapes as transformers builds a model: from recorded answers, and from transformers itself where it is installed.

`tests/data/built_shapes.json` holds what `placeproof.measure.built` made of each case; `nightly/README.md` says how.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from placeproof.cli.main import run
from placeproof.core.diagnostics import InputError
from placeproof.importers import read_shapes
from placeproof.importers.imported import ImportedShapes, Role
from placeproof.measure import built, shapes
from placeproof.measure.shapes import built_shapes

TESTS = Path(__file__).parents[1]
CONFIGS = TESTS / "configs" / "huggingface"
CASES: dict[str, Any] = json.loads((TESTS / "data" / "built_shapes.json").read_text(encoding="utf-8"))["cases"]
REFUSED = [name for name, case in CASES.items() if "refused" in case["answer"]]
TABLED = [name for name, case in CASES.items() if "of" in case]
needs_transformers = pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")


def settings(name: str) -> dict[str, Any]:
    case = CASES[name]
    found: dict[str, Any] = case.get("settings") or json.loads((CONFIGS / case["of"]).read_text(encoding="utf-8"))
    return found


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes the file of a case, whose answer is the recorded one."""
    monkeypatch.chdir(tmp_path)

    def written(name: str) -> str:
        monkeypatch.setattr(shapes, "_asked", lambda _: CASES[name]["answer"])
        (tmp_path / "config.json").write_text(json.dumps(settings(name), indent=1), encoding="utf-8")
        return "config.json"

    return written


def jamba() -> int:
    """Four layers of 64: the third attends, the others have a state of 8; the second and the fourth have four experts."""
    inner, state, rank = 128, 8, 4
    mamba = 64 * 2 * inner + inner * 4 + inner + inner * (rank + 2 * state) + rank * inner + inner + inner * state + inner + inner * 64
    mamba += rank + 2 * state
    dense, attention = 3 * 64 * 128, 2 * 64 * 64 + 2 * 64 * 32
    return 2 * 96 * 64 + 64 + 4 * 2 * 64 + 3 * mamba + attention + 2 * dense + 2 * (4 * 64 + 4 * dense)


def t5() -> int:
    """An encoder and a decoder of two layers, whose table is that of the head."""
    attention, forward = 4 * 32 * 32 + 32, 2 * 32 * 64 + 32
    return 96 * 32 + 2 * (attention + forward) + 2 * (2 * attention + forward) + 2 * (8 * 4 + 32)


def bert() -> int:
    """Two layers; the head's matrix is the table of tokens, its bias is not."""
    layer = 4 * (32 * 32 + 32) + 2 * 2 * 32 + (32 * 64 + 64) + (64 * 32 + 32)
    return (96 + 16 + 2) * 32 + 2 * 32 + 2 * layer + 32 * 32 + 32 + 2 * 32 + 96


@pytest.mark.parametrize(("name", "elements"), [("jamba", jamba()), ("t5", t5()), ("bert", bert())])
def test_parameters_of_types_without_a_table_are_counted_to_the_element(name: str, elements: int, config: Any) -> None:
    with pytest.raises(InputError, match="are not known"):
        read_shapes(config(name))
    assert built_shapes(config(name)).shapes.elements == elements


@pytest.mark.parametrize("name", TABLED)
def test_a_type_with_a_table_has_the_same_shapes_by_it(name: str, config: Any) -> None:
    by_table, found = read_shapes(CONFIGS / CASES[name]["of"]), built_shapes(config(name)).shapes
    assert [[u.name, [(w.name, w.shape) for w in u.weights]] for u in found.units] == [
        [u.name, [(w.name, w.shape) for w in u.weights]] for u in by_table.units
    ]
    assert dict(found.buffers or ()) == dict(by_table.buffers or ())
    assert found.used == (None if CASES[name]["answer"]["idle"] else by_table.used)


def test_a_changed_answer_is_noticed_by_the_counts(config: Any) -> None:
    changed = json.loads(json.dumps(CASES["jamba"]["answer"]))
    changed["units"][2][1][0][1][0] += 1
    path = config("jamba")
    shapes._asked = lambda _: changed  # the fixture puts it back
    assert built_shapes(path).shapes.elements != jamba()


def notes(found: ImportedShapes) -> str:
    return "\n".join(found.shapes.notes)


def test_what_is_not_known_is_said(config: Any) -> None:
    assert "activations, operations and the programs of the model's blocks are not known" in notes(built_shapes(config("jamba")))
    assert "without a gradient in a step on text alone are counted as trained: `model.encoder.embed_positions" in notes(
        built_shapes(config("whisper"))
    )
    assert "lies in the unit around all of them: `bert.embeddings.word_embeddings.weight`" in notes(built_shapes(config("bert")))
    assert "gradient" not in notes(built_shapes(config("t5")))
    quantised = built_shapes(config("quantised"))
    assert [r.name for r in quantised.readings if r.role is Role.NOT_MODELLED] == ["quantization_config", "auto_map"]
    assert "`quantization_config`: saved weights are quantised" in notes(quantised)
    whole, kept = CASES["t5"]["answer"], {"kept": {"float32": 5}, "units": [["root", [["w", [5]], ["v", [9]]]]], "used": None}
    shapes._asked = lambda _: {**whole, **kept, "buffers": {"complex64": 3}}
    found = built_shapes("config.json")
    assert "keeps 5 parameters in float32" in notes(found)
    assert "all parameters are one unit" in notes(found)
    assert found.shapes.buffers is None


@pytest.mark.parametrize("name", REFUSED)
def test_what_transformers_does_not_build_is_refused_at_its_place(name: str, config: Any) -> None:
    message, _, setting = CASES[name]["answer"]["refused"]
    with pytest.raises(InputError) as caught:
        built_shapes(config(name))
    (problem,) = caught.value.diagnostics
    assert (problem.code, problem.message) == ("PP501", message)
    assert problem.help
    assert problem.place is not None
    assert setting in problem.place.text


def test_bytes_are_those_of_the_counts(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["derive", "zero3(8)", "--shapes", config("jamba"), "--shapes-from", "transformers"]
    assert run([*asked, "--shapes-to", "jamba.toml", "--option", "dtype=bfloat16", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"] == {"name": "jamba, JambaForCausalLM of transformers 5.23.0", "parameters": jamba(), "units": 5}
    gathered = {phase: sum(c["bytes"] * c["count"] for c in found["calls"] if c["phase"] == phase and c["kind"] == "all_gather")
                for phase in ("forward", "backward")}  # fmt: skip
    assert gathered == {"forward": 2 * jamba(), "backward": 2 * jamba()}
    assert abs(found["memory"]["parameters"] - 2 * jamba() / 8) < 2 * 8
    assert "activations" not in found["memory"]
    assert any("activations, operations" in text for text in found["assumes"])
    assert run(["derive", "zero3(8)", "--shapes", "jamba.toml", "--option", "dtype=bfloat16", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert read_shapes("jamba.toml") == built_shapes("config.json").shapes


def test_an_order_that_is_not_known_is_asked_for_where_it_matters(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--shapes", config("whisper"), "--shapes-from", "transformers", "--profile", "torch-2.13"]
    assert run(["derive", "fsdp(2)", *asked]) == 0
    capsys.readouterr()
    assert run(["derive", "ddp(2)", *asked, "--shapes-to", "w.toml"]) == 2
    assert "in which order whisper, WhisperForConditionalGeneration of transformers 5.23.0 uses its parameters is not known" in (
        capsys.readouterr().err
    )
    text = Path("w.toml").read_text(encoding="utf-8")
    assert 'used = "unknown"' in text
    units = ["root", "model.encoder.layers.0", "model.decoder.layers.0"]
    Path("w.toml").write_text(text.replace('used = "unknown"', f"used = {json.dumps(units)}"), encoding="utf-8")
    assert run(["derive", "ddp(2)", "--shapes", "w.toml", "--profile", "torch-2.13"]) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["derive", "fsdp(4)", "--shapes", "config.json", "--shapes-from", "vllm"], "shapes are not taken from `vllm`"),
        (["derive", "fsdp(4)", "--shapes-from", "transformers"], "`--shapes-from` is about exact bytes"),
        (["derive", "fsdp(4)", "--shapes-to", "a.toml"], "`--shapes-to` is about exact bytes"),
        (["compare", "zero1", "zero3", "--shapes-from", "transformers"], "`--shapes-from` is about exact bytes"),
        (["compare", "zero1", "zero3", "--rank", "1"], "`--rank` is about exact bytes"),
        (["measure", "fsdp(4)", "--shapes-from", "transformers"], "`--shapes-from` is about exact bytes"),
        (["derive", "fsdp(4)", "--shapes", "config.json", "--shapes-to", "nowhere/a.toml"], "no file can be written there"),
        (["derive", "fsdp(4)", "--shapes", "config.json", "--shapes-to", "a.json"], "shapes are written as TOML"),
        (["derive", "fsdp(4)", "--shapes", "none.json", "--shapes-from", "transformers"], "cannot read `none.json`"),
        (
            ["derive", "fsdp(4)", "--shapes", "list.json", "--shapes-from", "transformers"],
            "`list.json` lists the shapes itself",
        ),
        (
            ["derive", "fsdp(4)", "--shapes", "list.toml", "--shapes-from", "transformers"],
            "`list.toml` lists the shapes itself",
        ),
        (["derive", "fsdp(4)", "--shapes", "other.json", "--shapes-from", "transformers"], "`other.json` is no config.json of a model"),
        (["derive", "tp(2)", "--shapes", "config.json", "--shapes-from", "transformers"], "splits the blocks of the model"),
    ],
)
def test_options_that_do_not_fit(arguments: list[str], says: str, config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    config("made_mixtral")
    for name, text in {"list.json": '{"unit": []}', "list.toml": '[[unit]]\nname = "root"\n', "other.json": "{}"}.items():
        Path(name).write_text(text, encoding="utf-8")
    assert run(arguments) == 2
    assert says in capsys.readouterr().err


def test_the_remedy_of_an_unknown_type_names_the_option(config: Any) -> None:
    with pytest.raises(InputError) as caught:
        read_shapes(config("jamba"))
    assert "--shapes-from transformers`" in str(caught.value.diagnostics[0].help)


# The process.


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "jamba"}', encoding="utf-8")
    versions = {"torch": "2.13.0+cpu"}

    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    for found, says in ({}, "needs transformers, which is not"), ({"transformers": "4.57.1"}, "needs transformers 5 or later, not 4.57.1"):
        versions |= found
        with pytest.raises(InputError, match=says) as caught:
            built_shapes(path)
        (problem,) = caught.value.diagnostics
        assert problem.code == "PP601"
        assert 'pip install "placeproof[transformers]"' in str(problem.help)
    versions["transformers"] = "5.23.0"
    monkeypatch.setattr(built, "described", lambda _: os.abort())
    with pytest.raises(InputError, match="transformers built no model: rank 0 died by SIGABRT"):
        built_shapes(path)
    monkeypatch.setattr(built, "described", lambda found: {"refused": (f"{os.getppid()} {dict(found)}", "help", "model_type")})
    with pytest.raises(InputError, match=f"{os.getpid()} {{'model_type': 'jamba'}}"):
        built_shapes(path)


@needs_transformers
@pytest.mark.parametrize("name", CASES)
def test_transformers_answers_as_recorded(name: str) -> None:
    if importlib.metadata.version("transformers") != "5.23.0":
        pytest.skip("the record is of another version")
    assert json.loads(json.dumps(built.described(settings(name)))) == CASES[name]["answer"]


@needs_transformers
def test_code_of_a_models_own_is_not_run(tmp_path: Path) -> None:
    code = "from pathlib import Path\nPath('ran').touch()\nclass Mine: ...\n"
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    text = {"AutoModelForCausalLM": f"{tmp_path}--mine.Mine", "AutoModel": "mine.Mine", "AutoConfig": "mine.Mine"}
    own = {**settings("quantised"), "auto_map": text, "name_or_path": str(tmp_path)}
    assert built.described(own)["class"] == "LlamaForCausalLM"
    assert not list(tmp_path.rglob("ran"))
    assert "mine" not in sys.modules
