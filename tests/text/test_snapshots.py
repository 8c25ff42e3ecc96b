"""What `--json` says is what it said, of the catalogue, models and configurations; by day of each kind. `snapshots.py` writes it anew."""

import json
from collections.abc import Collection, Hashable

import pytest
from samples import parts, sample
from snapshots import HERE, STORED, commands, digests, document

from placeproof.models import load

KEPT = json.loads(STORED.read_text(encoding="utf-8"))
COMMANDS = tuple(commands())


def kinds(command: tuple[str, ...]) -> Collection[Hashable]:
    """What is derived or proved: a strategy, alone or beside others; a family of models; a system's strategy."""
    what, subject, *more = command
    if "--model" in more:
        return {(what, load(more[-1]).family)}
    if "--from" not in more:
        return {(what, part) for part in parts(subject)}
    path = HERE / subject
    expected = json.loads((path.parent / "expected.json").read_text(encoding="utf-8"))[path.name]
    return {(path.parent.name, part) for part in parts(expected.get("expression", "refused"))}


@pytest.mark.every_case
@pytest.mark.parametrize("command", sample(COMMANDS, kinds), ids=" ".join)
def test_a_document_says_what_it_said(command: tuple[str, ...]) -> None:
    """If not, `python tests/helpers/snapshots.py FOLDER` at both commits and `diff -r` show where. List what is right in CHANGELOG."""
    said = document(command)
    assert " ".join(command) in KEPT, "nothing is kept of it: `python tests/helpers/snapshots.py`"
    assert digests(said) == KEPT[" ".join(command)], said["errors"]


def test_nothing_else_is_kept_and_what_is_refused_says_why() -> None:
    assert list(KEPT) == [" ".join(command) for command in COMMANDS], "`python tests/helpers/snapshots.py` writes it anew"
    refused = [document(command) for command in COMMANDS if command[0] == "derive" and KEPT[" ".join(command)].keys() == {"exit", "errors"}]
    assert all(said["exit"] == 2 and said["errors"].startswith("error[PP") for said in refused)
    assert len(refused) < len(COMMANDS) / 10
