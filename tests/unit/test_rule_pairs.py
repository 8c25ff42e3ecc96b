"""Each rule of a system in the system's own format: a file that breaks it and no other, and the file beside it, which breaks none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from rule_files import pairs

from placeproof.cli.main import run
from placeproof.framework_rules import of_system, rules
from placeproof.importers.megatron.reader import PASSED_OVER

_PROGRAM = "the program or the model decides it, and not the file"
_UNREAD = "no configuration of this system is read"
_INTERFACE = "it is about calls of PyTorch, and no file says which"
#: Rules that no file can be asked for, and why.
UNASKED = {
    "accelerate-08": _PROGRAM,
    "deepspeed-08": _PROGRAM,
    "deepspeed-09": "it is about tensor parallelism of a program's mpu, which no file has; AutoEP goes with that of the file",
    "deepspeed-24": _PROGRAM,
    **PASSED_OVER,
    "megatron-15": "the arguments set the type of messages to that of the weights",
    "megatron-55": "Megatron pads its buffers, and asks whether it has done so",
}
#: Rules that no file breaks, and why.
UNBROKEN = {
    **UNASKED,
    "megatron-13": "the arguments turn sequence parallelism off where nothing is split",
    **{rule: _UNREAD for rule in rules() if rules()[rule].system in ("colossalai", "nanotron")},
    **dict.fromkeys((rule.id for rule in of_system("pytorch") if rule.id not in ("pytorch-02", "pytorch-03", "pytorch-05")), _INTERFACE),
}


PAIRS = pairs()


@pytest.mark.parametrize("rule", PAIRS)
def test_a_file_that_breaks_a_rule_is_refused_for_it_and_its_neighbour_is_read(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pair = PAIRS[rule]
    command = ["derive", pair.file, *(["--world", str(pair.world)] if pair.world else []), *pair.options]
    monkeypatch.chdir(tmp_path)
    Path(pair.file).write_text(pair.broken, encoding="utf-8")
    assert run(command) == 2
    errors = capsys.readouterr().err.split("error[")[1:]
    named = [set(re.findall(r"`placeproof explain ([a-z]+-\d+)`", error)) for error in errors]
    assert set().union(*named) == {rule, *pair.also}, errors
    assert all(named), errors
    Path(pair.file).write_text(pair.valid, encoding="utf-8")
    assert run(command) == 0, capsys.readouterr().err


def test_every_rule_has_its_pair() -> None:
    assert set(PAIRS) | set(UNBROKEN) == set(rules())
    assert not set(PAIRS) & set(UNBROKEN)


#: What was recorded of the systems themselves: `nightly/rule_pairs.py`.
RECORD = json.loads((Path(__file__).parents[1] / "data" / "rule_pairs.json").read_text(encoding="utf-8"))
#: Files that the recorded version of a system cannot read, and why.
UNKNOWN = dict.fromkeys(("deepspeed-17", "deepspeed-34"), "`compute_grad_norm` came after the recorded commit")
#: Rules of Megatron-LM that are checked where a model is built or run, which is not recorded.
LATER = {"megatron-27", "megatron-28", "megatron-54", "megatron-60", "megatron-62", "megatron-75"}


@pytest.mark.parametrize("rule", sorted(rule for rule, pair in PAIRS.items() if pair.file in ("pretrain.sh", "ds_config.json")))
def test_the_system_itself_takes_the_neighbour(rule: str) -> None:
    recorded = RECORD["pairs"][rule]
    assert recorded["digest"] == PAIRS[rule].digest, "ask again: nightly/rule_pairs.py"
    assert bool(recorded["valid"]) is (rule in UNKNOWN), recorded["valid"]


@pytest.mark.parametrize("rule", sorted(rule for rule, pair in PAIRS.items() if pair.file == "pretrain.sh"))
def test_megatron_itself_refuses_what_breaks_a_rule_where_the_rule_says(rule: str) -> None:
    recorded = RECORD["pairs"][rule]
    assert bool(recorded["broken"]) is (rule not in LATER)
    cited = [rules()[one].citation for one in (rule, *PAIRS[rule].also)]
    lines = [one.partition(":")[2].split("#L") for one in cited if one.startswith(RECORD["megatron"][:40])]
    if rule not in LATER and lines:
        file, line = recorded["at"].split("#L")
        assert any(file == its and abs(int(line) - int(where)) <= 4 for its, where in lines), recorded
