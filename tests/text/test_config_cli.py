"""Configurations as subjects of the commands: what is printed, as text and as JSON, and what is refused."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import placeproof
from placeproof.cli.main import run
from placeproof.importers import read_config
from placeproof.models import load as load_model

DOCS = Path(__file__).parents[2] / "docs" / "reference"
CONFIG = """{
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 8,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 2, "reduce_bucket_size": 1000},
  "optimizer": {"type": "Adam", "params": {"lr": 0.1}},
  "gradient_clipping": 1.0,
  "managed_gradient_accumulation": false
}
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "ds_config.json"
    path.write_text(CONFIG)
    return str(path)


def out(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(list(arguments)) == code
    return capsys.readouterr().out


def data(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out(capsys, *arguments, "--json", code=code))
    return found


def test_text_says_what_was_read_and_what_was_not(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command, code in (("derive", 0), ("prove", 4)):
        shown = out(capsys, command, config, "--world", "64", code=code)
        _, head, rest = shown.split("\n\n", 2)  # after the answer
        assert head.startswith(f"{config}: DeepSpeed, read as `zero2(dp=64) * accumulate(microbatches=8) * clip`\n")
        assert "  precision  " in head
        assert "not modelled: nothing below speaks of these\n  zero_optimization.reduce_bucket_size = 1000: " in head
        assert "another step: what follows is about the step without these\n  managed_gradient_accumulation = false: " in head
        assert "of no matter here: " in head
        assert rest.strip()
    proved = out(capsys, "prove", config, "--world", "64", "--allow", "managed_gradient_accumulation")
    assert "proved for dp = 64, m = 8" in proved.replace("microbatches", "m")


TOLD = [
    ("deepspeed", '{"zero_optimization": {"stage": 2}}', "zero_optimization.stage", "twice the traffic of gradients"),
    ("deepspeed", '{"bf16": {"enabled": true}, "pipeline": {"stages": 2}}', "bf16.enabled", "lie in parts over dp"),
    ("megatron", "--bf16 --sequence-parallel", "sequence_parallel", "switched off by Megatron"),
    ("megatron", "--bf16 --bf16", "bf16", "given more than once, and the last counts"),
    ("torchtitan", "[training]\nlocal_batch_size = 1\n", "training.mixed_precision_param", "keeps weights, gradients"),
    (
        "accelerate",
        "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 0",
        "mixed_precision",
        "PipelineModule",
    ),
    ("accelerate", "distributed_type: FSDP\nnum_processes: 4", "fsdp_config.fsdp_auto_wrap_policy", "not said; the layers are no units"),
]


@pytest.mark.parametrize(("system", "text", "name", "note"), TOLD)
def test_what_changes_a_number_or_the_step_is_told_in_text(
    system: str, text: str, name: str, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["prove", "--from", system, text]) in (0, 4)
    shown = capsys.readouterr().out.splitlines()
    told = shown[shown.index("of what was read:") + 1 :]
    assert any(line.startswith(f"  {name} = ") and note in line for line in told)


def test_what_changes_nothing_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    """The text stays short where all is as the settings say."""
    plain = [
        ("megatron", "--bf16 --tensor-model-parallel-size 2 --sequence-parallel --use-distributed-optimizer --micro-batch-size 1"),
        ("deepspeed", '{"fp16": {"enabled": true}, "train_micro_batch_size_per_gpu": 1}'),
        ("deepspeed", '{"zero_optimization": {"stage": 1, "use_multi_rank_bucket_allreduce": false}, "fp16": {"enabled": true}}'),
        ("deepspeed", '{"zero_optimization": {"stage": 3, "stage3_max_reuse_distance": 0}, "fp16": {"enabled": true}}'),
        ("accelerate", "distributed_type: DEEPSPEED\nmixed_precision: fp16\ndeepspeed_config:\n  zero_stage: 0\n  gradient_clipping: 0\n"),
        ("accelerate", "distributed_type: MULTI_GPU\nmixed_precision: 'no'\n"),
    ]
    shown = [out(capsys, "derive", "--from", system, text).partition("\n\n")[0] for system, text in plain]
    assert ["of what was read:" in text for text in shown] == [False, False, False, False, False, False]


def test_what_a_system_passes_over_is_told_first(capsys: pytest.CaptureFixture[str]) -> None:
    many = ", ".join(f'"k{i}": 1' for i in range(25))
    text = f'{{"zero_optimisation": {{"stage": 3}}, {many}, "zero_optimization": {{"stage": 1}}}}'
    shown = out(capsys, "prove", "--from", "deepspeed", text)
    assert "unknown to DeepSpeed, which passes over them without a word" in shown
    assert "zero_optimisation = {'stage': 3}: did you mean `zero_optimization`?" in shown
    assert "  and 6 more\n" in shown
    assert shown.index("unknown to DeepSpeed") < shown.index("of what was read:")
    found = data(capsys, "prove", "--from", "deepspeed", text)
    jsonschema.validate(found, json.loads((DOCS / "prove.schema.json").read_text()))
    assert [s["role"] for s in found["imported"]["settings"]].count("unknown") == 26


#: Without what Megatron does unless told otherwise.
PLAIN = "--attention-dropout 0 --hidden-dropout 0 --clip-grad 0"
#: What changes the step and is not modelled, as a configuration has it, and the names of these settings.
EXCEPT = [
    ("deepspeed", '{"optimizer": {"type": "OneBitAdam"}, "zero_allow_untested_optimizer": true}', ["optimizer.type"]),
    *(
        ("deepspeed", f'{{"optimizer": {{"type": "Muon"}}, {more}"zero_optimization": {{"stage": {stage}}}}}', ["optimizer.type"])
        for stage, more in ((0, ""), (1, ""), (2, ""), (1, '"tensor_parallel": {"autotp_size": 2}, '))
    ),
    ("deepspeed", '{"gradient_clipping": "auto", "data_efficiency": {"enabled": true}}', ["data_efficiency.enabled"]),
    ("deepspeed", '{"managed_gradient_accumulation": false}', ["managed_gradient_accumulation"]),
    ("deepspeed", '{"zero_optimization": {"stage": 2, "zenflow": {"topk_ratio": 0.1}}}', ["zero_optimization.zenflow"]),
    ("megatron", f"--num-experts 8 --moe-aux-loss-coeff 1e-2 {PLAIN}", ["moe_aux_loss_coeff"]),
    ("megatron", f"--num-experts 8 --moe-router-load-balancing-type sinkhorn {PLAIN}", ["moe_router_load_balancing_type"]),
    ("megatron", f"--num-experts 8 --moe-expert-capacity-factor 1.5 {PLAIN}", ["moe_expert_capacity_factor"]),
    ("megatron", "--hidden-dropout 0.2", ["hidden_dropout", "attention_dropout"]),
    ("megatron", f"--use-checkpoint-args {PLAIN}", ["use_checkpoint_args"]),
    (
        "torchtitan",
        "[fault_tolerance]\nenable = true\nsemi_sync_method = 'diloco'\n[training]\nmax_norm = 0.0\n",
        ["fault_tolerance.enable", "fault_tolerance.semi_sync_method"],
    ),
    (
        "deepspeed",
        '{"gradient_clipping": 1.0, "expert_parallel": {"enabled": true, "autoep_size": 2}, "zero_optimization": {"stage": 1}}',
        ["gradient_clipping"],
    ),
    (
        "accelerate",
        "distributed_type: FSDP\nnum_processes: 4\nfsdp_config:\n  fsdp_ignored_modules: head\n",
        ["fsdp_config.fsdp_ignored_modules"],
    ),
]


@pytest.mark.parametrize(("system", "text", "names"), EXCEPT)
def test_a_proof_names_the_settings_that_it_is_not_about(
    system: str, text: str, names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = data(capsys, "prove", "--from", system, text, code=4)
    jsonschema.validate(found, json.loads((DOCS / "prove.schema.json").read_text()))
    assert (found["verdict"], found["except"]) == ("proved except", names)
    assert [s["name"] for s in found["imported"]["settings"] if s["role"] == "another step"] == names
    allowed = [word for name in names for word in ("--allow", name)]
    assert data(capsys, "prove", "--from", system, text, *allowed)["verdict"] == "proved"
    assert data(capsys, "prove", "--from", system, text, *allowed[2:], code=4)["except"] == names[:1]


def test_what_is_switched_off_is_no_exception(capsys: pytest.CaptureFixture[str]) -> None:
    for system, text in (
        ("deepspeed", '{"gradient_clipping": 0.0, "gradient_allreduce_op": "mean", "data_efficiency": {"enabled": false}}'),
        ("megatron", f"{PLAIN} --moe-aux-loss-coeff 1e-2 --moe-expert-capacity-factor 1.5"),
        ("megatron", f"{PLAIN} --num-experts 8 --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 0.0"),
    ):
        assert "clip" not in data(capsys, "prove", "--from", system, text)["imported"]["expression"]
        assert data(capsys, "prove", "--from", system, text)["verdict"] == "proved"


def test_clipping_is_part_of_the_strategy(capsys: pytest.CaptureFixture[str]) -> None:
    """Also where a system clips unless told otherwise, and where a trainer fills in the limit: what is proved is right for any."""
    for system, text in (
        ("deepspeed", '{"gradient_clipping": "auto", "zero_optimization": {"stage": 3}}'),
        ("megatron", "--attention-dropout 0 --hidden-dropout 0"),
        ("torchtitan", "[training]\nsteps = 10\n"),
        ("torchtitan", "[training]\nmax_norm = 0.0\n"),
        ("accelerate", "distributed_type: MEGATRON_LM\nmegatron_lm_config:\n  megatron_lm_calculate_per_token_loss: false\n"),
        ("accelerate", "distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n  gradient_clipping: auto\n"),
        ("transformers", '{"output_dir": "x", "max_grad_norm": 0.5, "per_device_train_batch_size": 1}'),
    ):
        assert data(capsys, "prove", "--from", system, text)["imported"]["expression"].endswith(" * clip"), system
        assert data(capsys, "prove", "--from", system, text)["verdict"] == "proved"


def test_an_exception_is_said_of_models_of_other_steps_and_in_python(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = out(capsys, "prove", config, "--world", "4", "--model", "gpt3-125m", code=4)
    assert ": proved except for a setting that changes the step\n  managed_gradient_accumulation = false: " in shown
    assert "\nthe step without it: proved for dp = 4" in shown
    assert shown.splitlines()[-1].startswith("proved except: ")
    assert data(capsys, "prove", config, "--world", "4", "--against", "zero2", code=4)["except"] == ["managed_gradient_accumulation"]
    for judged in (placeproof.judge(config), placeproof.judge(config, model="gpt3-125m")):
        assert (judged.word, judged.data["verdict"], judged.data["except"]) == (
            "proved except",
            "proved except",
            ["managed_gradient_accumulation"],
        )
        assert "proved except for a setting that changes the step" in str(judged)


def test_what_is_refuted_stays_so(capsys: pytest.CaptureFixture[str]) -> None:
    """A step that is wrong without a setting is a finding; what it is about stands before it."""
    shown = out(capsys, "prove", "--from", "megatron", "--eod-mask-loss --hidden-dropout 0.2", code=1)
    assert "another step: what follows is about the step without these\n  hidden_dropout = 0.2: " in shown
    assert ": refuted\n" in shown


def test_only_an_exception_can_be_allowed(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    for subject, name, help in (
        (config, "managed_gradients", "did you mean `managed_gradient_accumulation`?"),
        (config, "gradient_clipping", "`managed_gradient_accumulation`"),
        ("ddp", "x", "none"),
    ):
        assert run(["prove", subject, "--allow", name]) == 2
        said = capsys.readouterr().err
        assert f"error[PP207]: `--allow {name}` names no setting that changes the step and is not modelled" in said
        assert help in said


@pytest.mark.parametrize("command", ["derive", "prove"])
def test_json_lists_every_setting(command: str, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = data(capsys, command, config, "--world", "64", code=4 if command == "prove" else 0)
    jsonschema.validate(found, json.loads((DOCS / f"{command}.schema.json").read_text()))
    read = found["imported"]
    assert read["expression"] == "zero2(dp=64) * accumulate(microbatches=8) * clip"
    assert {s["name"]: s["line"] for s in read["settings"]} == {
        "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3, "bf16.enabled": 4, "zero_optimization.stage": 5,
        "zero_optimization.reduce_bucket_size": 5, "optimizer.type": 6, "optimizer.params.lr": 6, "gradient_clipping": 7,
        "managed_gradient_accumulation": 8,
    }  # fmt: skip
    assert "imported" not in data(capsys, command, "zero3")


def test_widths_and_numbers_are_those_of_the_configuration_unless_said_otherwise(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert data(capsys, "derive", config, "--world", "64")["precision"] == data(capsys, "derive", config)["imported"]["precision"]
    assert data(capsys, "derive", config, "--precision", "fp32-adam")["precision"] == "fp32-adam"
    with_numbers = data(capsys, "derive", config, "--world", "64", "--set", "P=7B")
    assert with_numbers["values"]["memory"]["parameters"] == 14 * 10**9


OWN = {  # of each system: a file, and the numbers that it says
    "ds.json": (
        '{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 3}}',
        ["--world", "8"],
        {"b": 2, "m": 4},
    ),
    "run.args": (
        "--num-layers 12 --hidden-size 8192 --num-attention-heads 64 --seq-length 4096 --max-position-embeddings 4096"
        " --micro-batch-size 2 --global-batch-size 8 --tensor-model-parallel-size 8 --bf16",
        ["--world", "8"],
        {"b": 2, "m": 4, "L": 12, "s": 4096},
    ),
    "train.toml": (
        "[training]\nlocal_batch_size = 2\nglobal_batch_size = 64\nseq_len = 1024\n[parallelism]\ndata_parallel_shard_degree = 8\n",
        ["--world", "8"],
        {"b": 2, "m": 4, "s": 1024},
    ),
    "accelerate.yaml": (
        "distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: bf16\ndeepspeed_config:\n"
        "  zero_stage: 2\n  gradient_accumulation_steps: 4\n",
        [],
        {"m": 4},
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_a_file_s_own_numbers_are_used(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By derive and compare, with a model or without, whether anything is set or not; what is set comes first."""
    text, world, own = OWN[name]
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    model = ["--model", "llama3-70b"]
    found = data(capsys, "derive", str(file), *world, *model)
    assert {key: Fraction(n) for key, n in found["imported"]["numbers"].items()}.items() >= own.items()
    expression = found["imported"]["expression"]
    same = [expression, *(f"--set={key}={n}" for key, n in own.items() if f"microbatches={n}" not in expression or key != "m")]
    precision = found["precision"]
    assert found["stages"] == data(capsys, "derive", *same, *model, "--precision", precision)["stages"]
    other = data(capsys, "derive", str(file), *world, *model, "--set", "s=512")
    assert other["sizes"]["s"] == 512
    one, two = data(capsys, "compare", str(file), expression, *world, *model, "--precision", precision)["strategies"]
    assert {k: v for k, v in one.items() if k != "name"} == {k: v for k, v in two.items() if k != "name"}
    assert one["figures"]["activations"]["value"] == found["stages"][0]["memory"]["activations"]["value"]


def test_numbers_in_which_configurations_differ_are_none_of_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / f"{i}.json" for i in (1, 2)]
    for micro, file in enumerate(files, start=1):
        file.write_text(json.dumps({"train_micro_batch_size_per_gpu": micro, "gradient_accumulation_steps": 4}), encoding="utf-8")
    both = [str(file) for file in files]
    told = data(capsys, "compare", *both, "fsdp(8)", "--world", "8", "--model", "llama3-8b")["strategies"]
    small, large, third = (one["figures"]["activations"]["value"] for one in told)
    assert large > small
    assert third == small  # of one sequence, as is assumed


def test_a_configuration_is_compared_with_a_strategy(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = out(capsys, "compare", config, "zero3(64) * accumulate(8)", "--world", "64")
    assert "read as `zero2(dp=64) * accumulate(microbatches=8) * clip`" in shown
    assert "zero2(64) * accumulate(8)" in shown
    found = data(capsys, "compare", config, "zero3(64) * accumulate(8)", "--world", "64")
    assert [one["system"] for one in found["imported"]] == ["deepspeed"]


def test_an_optimizer_that_reads_whole_tensors_is_no_elementwise_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lamb.json"
    path.write_text(
        CONFIG.replace('"Adam"', '"Lamb"').replace('"gradient_clipping"', '"zero_allow_untested_optimizer": true,\n"gradient_clipping"')
    )
    found = data(capsys, "prove", str(path), "--world", "4", code=1)
    assert "elementwise-optimizer" not in found["assumptions"]
    assert found["counterexample"]["replayed"]


def test_a_text_is_read_where_its_system_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = data(capsys, "derive", '{"zero_optimization": {"stage": 3}}', "--from", "deepspeed", "--world", "8")
    assert (found["imported"]["source"], found["strategy"]) == ("<deepspeed>", "zero3(8)")


def test_a_command_line_of_another_program_is_one_argument(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = f"--tensor-model-parallel-size=2 --use-distributed-optimizer --bf16 {PLAIN}"
    for before in (["prove", "--from", "megatron", arguments], ["prove", arguments, "--from=megatron", "--for-all=N_dp >= 2"]):
        found = data(capsys, *before)
        assert (found["imported"]["expression"], found["verdict"]) == ("zero1 * tp(tp=2)", "proved")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["derive", "zero3.step", "--world", "8"], "PP505"),
        (["prove", "zero3", "--world", "8"], "PP505"),
        (["derive", "zero3", "--from", "slurm"], "PP501"),
        (["derive", "zero3", "--from", "deepspeed"], "PP501"),
        (["prove", "nothing.yaml"], "PP501"),
    ],
)
def test_what_goes_with_a_configuration_alone(
    arguments: list[str], code: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["derive", "zero3", "--program"]) == 0
    (tmp_path / "zero3.step").write_text(capsys.readouterr().out, encoding="utf-8")
    assert run(arguments) == 2
    assert f"error[{code}]" in capsys.readouterr().err


def test_all_problems_of_a_file_are_printed_with_their_places(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ds_config.json"
    path.write_text(
        '{\n "fp16": {"enabled": true},\n "bf16": {"enabled": true},\n "zero_optimization": {"stages": 3, "reduce_scatter": 5}\n}\n'
    )
    assert run(["prove", str(path), "--world", "64"]) == 2
    err = capsys.readouterr().err
    for code, line in (("PP502", 4), ("PP503", 4), ("PP504", 2)):
        assert f"error[{code}]" in err
        assert f"{path}:{line}:" in err or code == "PP504"
    assert "did you mean `stage`?" in err


def test_widths_without_a_name_stay_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """FSDP in mixed precision keeps 4 bytes and sends 2: numbers in any named widths would be those of something else."""
    file = tmp_path / "accelerate.yaml"
    file.write_text(
        "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\n"
        "fsdp_config:\n  fsdp_version: 2\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n",
        encoding="utf-8",
    )
    assert run(["derive", str(file), "--set", "P=8e9"]) == 2
    err = capsys.readouterr().err
    assert all(f"`{name}` is not set" in err for name in ("b_theta", "b_g", "b_omega"))
    told = data(capsys, "derive", str(file), "--model", "llama3-8b", "--set", "b=1")
    assert told["precision"] == "open"
    assert told["stages"][0]["memory"]["parameters"]["value"] is None
    kept = data(capsys, "derive", str(file), "--set", "P=8e9", "--precision", "fp32-adam")["values"]["memory"]
    assert [kept[name] for name in ("parameters", "gradients", "optimizer")] == [4e9, 4e9, 8e9]
    one, two = data(capsys, "compare", str(file), "fsdp(8)", "--model", "llama3-8b", "--set", "b=1")["strategies"]
    assert one["figures"]["parameters"]["value"] == two["figures"]["parameters"]["value"] is not None
    assert one["figures"]["model_states"]["value"] is None


WRITTEN = {"torchtitan": "run.toml", "deepspeed": "ds.json", "megatron": "run.args", "accelerate": "run.yaml"}


@pytest.mark.parametrize("system", WRITTEN)
def test_a_configuration_is_printed_alone_and_reads_back(system: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strategy = {"torchtitan": "fsdp(4, prefetch=true) * clip", "accelerate": "fsdp(4, prefetch=true)"}.get(
        system, "zero1(4) * accumulate(2) * clip"
    )
    assert run(["derive", strategy, "--as", system, "--set", "b=2"][: None if system != "accelerate" else 4]) == 0
    captured = capsys.readouterr()
    assert all(line.startswith("note: ") for line in captured.err.splitlines())
    assert "note: " not in captured.out
    path = tmp_path / WRITTEN[system]
    path.write_text(captured.out)
    program = out(capsys, "derive", str(path), "--world", "4", "--program")
    assert program.partition("\n")[2] == out(capsys, "derive", strategy, "--program").partition("\n")[2]
    assert run(["prove", str(path), "--world", "4"]) == 0
    if system == "deepspeed":
        assert json.loads(captured.out)
        assert "`--world 4` reads it" in captured.err
    else:
        assert captured.out.startswith("# ")
        assert "`--world 4`" in captured.out.splitlines()[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--json"], "--json and --as exclude one another"),
        (["--program"], "--program and --as exclude one another"),
        (["--cluster", "dgx-h100"], "`--cluster` does not go with `--as`"),
        (["--profile", "torch-2.13", "--groups"], "`--profile` and `--groups` do not go with `--as`"),
        (["--shapes", "x.toml"], "`--shapes` does not go with `--as`"),
        (["--world", "8"], "`--world` goes with a configuration"),
        (["--set", "N=4"], "`N` is 8 in the strategy, and 4 here"),
        (["--set", "m=4"], "`m` is set, and the strategy has one micro-batch"),
        (["--set", "P=7e9"], "no configuration of DeepSpeed says"),
        (["--precision", "nothing"], "there is no precision `nothing`"),
    ],
)
def test_what_does_not_go_with_a_configuration_is_refused(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", "zero3(8)", "--as", "deepspeed", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert captured.err.endswith("1 problem; nothing was computed\n")


@pytest.mark.parametrize(
    ("system", "words"), [("nemo", "one of accelerate, "), ("megatrn", "did you mean `megatron`?"), ("axolotl", "one of ")]
)
def test_only_some_systems_are_written(system: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", "zero3(8)", "--as", system]) == 2
    shown = capsys.readouterr().err
    assert f"configurations of `{system}` are not written" in shown
    assert words in shown


def test_a_program_is_no_strategy_that_could_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.step"
    path.write_text(out(capsys, "derive", "zero3(8)", "--program"))
    assert run(["derive", str(path), "--as", "deepspeed"]) == 2
    assert "is a program, which no configuration says" in capsys.readouterr().err


def test_a_translation_names_what_it_leaves_out(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["derive", config, "--world", "64", "--as", "deepspeed"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["gradient_accumulation_steps"] == 8
    assert f"note: left out of {config}, not modelled: zero_optimization.reduce_bucket_size = 1000" in captured.err
    assert f"note: left out of {config}, another step: managed_gradient_accumulation = false" in captured.err
    assert f"note: left out of {config}, of no matter to the strategy: 1 setting (optimizer.params.lr)" in captured.err
    (kept,) = [line for line in captured.err.splitlines() if line.startswith("note: kept of ")]
    assert "optimizer.type = Adam" in kept
    for optimizer, role in (("Muon", "another step"), ("Lamb", "not modelled"), ("Lion", "not modelled")):
        text = f'{{"optimizer": {{"type": "{optimizer}"}}, "train_micro_batch_size_per_gpu": 1}}'
        assert run(["derive", "--from", "deepspeed", text, "--world", "8", "--as", "deepspeed"]) == 0
        captured = capsys.readouterr()
        assert "optimizer" not in json.loads(captured.out)
        assert f"note: left out of <deepspeed>, {role}: optimizer.type = {optimizer}: " in captured.err
        assert captured.err.count(f"optimizer.type = {optimizer}") == 1
    assert run(["derive", config, "--world", "64", "--as", "accelerate"]) == 0
    assert "note: left out: `b = 4`, which no setting of Accelerate says" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["llama3-8b", "mixtral-8x7b", "gpt3-1.3b"])
@pytest.mark.parametrize(("system", "strategy"), [("megatron", "zero1(4)"), ("deepspeed", "zero2(4)")])
def test_sizes_of_a_model_are_written_and_read_back(model: str, system: str, strategy: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What the system has settings for; the rest is told."""
    sizes = load_model(model).sizes
    assert run(["derive", strategy, "--as", system, "--model", model, "--set", "b=3"]) == 0
    captured = capsys.readouterr()
    numbers = read_config(captured.out, system=system, world=4).numbers
    left = {name: int(n) for name, n in re.findall(r"`(\w+) = (\d+)`", captured.err.partition("left out: ")[2].partition("\n")[0])}
    assert {name: int(n) for name, n in numbers.items() if name in sizes} | left == sizes
    assert numbers["b"] == 3
    assert ("L" in left) == (system == "deepspeed")
    assert placeproof.derive(strategy).configuration(system, model=model, b=3).text.strip() == captured.out.strip()


def test_what_a_translation_leaves_out_it_does_not_keep(capsys: pytest.CaptureFixture[str]) -> None:
    """Byte widths without a name, and numbers that the other system has no setting for."""
    text = '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}'
    for sums, widths in (("fp16", False), ("bf16", True)):
        said = text + f', "data_types": {{"grad_accum_dtype": "{sums}"}}}}'
        assert run(["derive", "--from", "deepspeed", said, "--world", "8", "--as", "accelerate"]) == 0
        captured = capsys.readouterr()
        (kept,) = [line for line in captured.err.splitlines() if line.startswith("note: kept of ")]
        assert ("the byte widths" in kept) is widths
        assert ("its byte widths, which have no name" in captured.err) is not widths
        assert "left out: `b = 4`" in captured.err
        assert "the numbers" not in kept


def test_a_file_with_nothing_in_it_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("a.toml", ""), ("a.toml", "# a comment\n\n"), ("a.yaml", ""), ("a.json", "\n")):
        (tmp_path / name).write_text(text)
        assert run(["derive", str(tmp_path / name), "--world", "8"]) == 2
        assert "there is nothing in it" in capsys.readouterr().err
    (tmp_path / "a.toml").write_text('title = "a strategy without a name"\n')
    assert run(["derive", str(tmp_path / "a.toml")]) == 2
    assert "`name` is missing" in capsys.readouterr().err


@pytest.mark.parametrize("half", ["fp16", "bf16"])
def test_a_translation_keeps_the_type_of_16_bits_or_says_so(half: str, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {
        "deepspeed": f'{{"{half}": {{"enabled": true}}, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {{"stage": 2}}}}',
        "accelerate": f"distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: {half}\n",
    }
    for system, text in texts.items():
        said = ["derive", "--from", system, text, "--world", "8", "--as"]
        assert run([*said, "deepspeed"]) == 0
        captured = capsys.readouterr()
        assert [name for name in ("fp16", "bf16") if name in json.loads(captured.out)] == [half]
        assert "no more" not in captured.err
        assert run([*said, "accelerate"]) == 0
        assert f"mixed_precision: {half}\n" in capsys.readouterr().out
    wide = '{"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 2}}'
    assert run(["derive", "--from", "deepspeed", wide, "--world", "8", "--as", "megatron"]) == 0
    assert "no more" not in capsys.readouterr().err
    adagrad = f'{{"{half}": {{"enabled": true}}, "train_micro_batch_size_per_gpu": 1, "optimizer": {{"type": "Adagrad"}}}}'
    assert run(["derive", "--from", "deepspeed", adagrad, "--world", "8", "--as", "deepspeed"]) == 0
    assert f"note: weights are in {half} no more, but in fp32" in capsys.readouterr().err


def test_python_writes_configurations(config: str) -> None:
    made = placeproof.derive("zero3", N=8, P=70e9).configuration("deepspeed", b=2, precision="mixed-adam")
    assert (made.read.expression, made.read.precision, made.read.numbers["b"]) == ("zero3(dp=8)", "mixed-adam", 2)
    assert str(made) == made.text.rstrip("\n")
    assert repr(made) == "<configuration of DeepSpeed, read as zero3(dp=8)>"
    with pytest.raises(placeproof.core.diagnostics.InputError, match="PP203"):
        placeproof.derive(config).configuration("megatron")
    with pytest.raises(placeproof.core.diagnostics.InputError, match="PP104"):
        placeproof.derive(placeproof.program("mesh(dp=2)\ngradients = all_reduce(backward(parameters), dp)\n")).configuration("megatron")
