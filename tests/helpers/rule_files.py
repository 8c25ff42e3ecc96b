"""Files that keep a rule of a system, and what of them is changed for one that breaks it: `tests/data/rule_pairs`, read."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "data" / "rule_pairs"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A file that keeps a rule, and the same file with one place changed, which breaks it and the rules that the same facts break.

    ``devices``: of a script, and ``world``, of another file: how many there are. ``options``: what a command is given beside the file.
    """

    rule: str
    file: str
    valid: str
    broken: str
    devices: int
    world: int | None
    options: tuple[str, ...]
    also: tuple[str, ...]

    @property
    def digest(self) -> str:
        """What tells these two files from others."""
        return hashlib.sha256("\0".join((self.valid, self.broken)).encode()).hexdigest()[:16]


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
        devices, world = one.get("devices", 8), said.get("world")
        found.append(Pair(rule=one["rule"], file=said["file"], valid=valid, broken=broken, devices=devices, world=world, **lists))
    return found


def _filled(text: str, one: dict[str, Any], said: dict[str, Any]) -> str:
    """A file: the text itself, or a script with the arguments of a text and those of all scripts that it does not say."""
    if "arguments" not in said:
        return text
    own = {*text.split(), *one.get("without", ())}
    arguments = [argument for argument in said["arguments"] if argument.split()[0] not in own]
    return str(said["text"].format(devices=one.get("devices", 8), arguments=" ".join([*arguments, text])))
