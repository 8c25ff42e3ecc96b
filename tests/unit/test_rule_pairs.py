"""Each rule of a system in the system's own format: a file that breaks it and no other, and the file beside it, which breaks none."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from placeproof.cli.main import run
from placeproof.framework_rules import of_system, rules
from placeproof.importers.megatron.reader import PASSED_OVER

FOLDER = Path(__file__).parents[1] / "data" / "rule_pairs"

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


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A file that keeps a rule, and the same file with one place changed, which breaks it and the rules that the same facts break."""

    rule: str
    file: str
    valid: str
    broken: str
    world: int | None
    options: tuple[str, ...]
    also: tuple[str, ...]


def pairs() -> dict[str, Pair]:
    """All pairs by their rules."""
    read = [pair for path in sorted(FOLDER.glob("*.toml")) for pair in _of_file(tomllib.loads(path.read_text(encoding="utf-8")))]
    assert len({pair.rule for pair in read}) == len(read)
    return {pair.rule: pair for pair in read}


def _of_file(said: dict[str, Any]) -> list[Pair]:
    found = []
    for one in said["pair"]:
        before, after = one["change"]
        assert one["valid"].count(before) == 1, one["rule"]
        valid, broken = (_filled(text, one, said) for text in (one["valid"], one["valid"].replace(before, after)))
        lists = {key: tuple(one.get(key, ())) for key in ("also", "options")}
        found.append(Pair(rule=one["rule"], file=said["file"], valid=valid, broken=broken, world=said.get("world"), **lists))
    return found


def _filled(text: str, one: dict[str, Any], said: dict[str, Any]) -> str:
    """A file: the text itself, or a script with the arguments of a text and those of all scripts that it does not say."""
    if "arguments" not in said:
        return text
    own = {*text.split(), *one.get("without", ())}
    arguments = [argument for argument in said["arguments"] if argument.split()[0] not in own]
    return str(said["text"].format(devices=one.get("devices", 8), arguments=" ".join([*arguments, text])))


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
