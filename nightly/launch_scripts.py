"""What is read of public launch scripts, beside what bash launches: `python nightly/launch_scripts.py FOLDER`.

FOLDER has `index.json`, a list of objects with `name`, `repo`, `path`, `commit`, `blob` (git's hash of the file) and `kind` (what it
starts); the files as `scripts/NAME.sh`; and as `truth/NAME.json` what bash launched: `run1` with nothing set, `staged` with the variables
in `set` and the arguments in `positional`. `commands` are the programs' words, `inner_commands` those that a shell within starts. Run such
files in a sandbox alone, with stand-ins for launchers that write their words down.
Prints how many scripts of each kind are read, and writes the record.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from shell_scripts import agrees, walked

from placeproof.core.diagnostics import InputError
from placeproof.importers import read_config
from placeproof.importers.shell.values import Open, UnreadError

RECORD = Path(__file__).parents[1] / "tests" / "data" / "launch_scripts.json"


def main() -> int:
    """Read all, and write the record down. The exit code is 1 where bash launches something else."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail where the record differs")
    asked = parser.parse_args()
    rows = [row(entry, asked.folder) for entry in json.loads((asked.folder / "index.json").read_text())]
    rows.sort(key=lambda row: (row["repo"], row["path"]))
    for count in sorted(Counter((row["kind"], row["outcome"], row["bash"]) for row in rows).items()):
        print(*count[0], count[1])
    text = json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
    if asked.check:
        return int(text != RECORD.read_text())
    RECORD.write_text(text)
    return int(any(row["bash"] == "different" for row in rows))


def row(entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What is recorded of one script."""
    path = folder / "scripts" / f"{entry['name']}.sh"
    data = path.read_bytes()
    assert hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest() == entry["blob"], path
    truth = json.loads((folder / "truth" / f"{entry['name']}.json").read_text())
    kept = {key: entry[key] for key in ("repo", "path", "commit", "blob", "kind")}
    outcome, says = imported(path)
    return {**kept, "outcome": outcome, "says": says, "bash": compared(path.read_text(), truth)}


def imported(path: Path) -> tuple[str, str]:
    """What becomes of a script, and the strategy or the first problem."""
    try:
        return "read", read_config(str(path)).expression
    except InputError as error:
        problems = error.diagnostics
    unknown = all(problem.code == "PP502" for problem in problems)
    return "unknown arguments" if unknown else "refused", problems[0].message.replace(str(path), "FILE")


def compared(script: str, truth: dict[str, Any]) -> str:
    """Whether bash launches what is read: `equal`, `equal but for what is open`, `different`, `not read`, or `nothing`."""
    first, staged = truth["run1"], truth.get("staged") or {}
    run = {**first, "commands": truth["commands"]}
    if not run["commands"] and not run.get("inner_commands"):
        run = staged
    inner = run.get("inner_commands") or []
    outer = [words for words in run.get("commands") or [] if not _starts_a_shell(words)]
    if not outer + inner:
        return "nothing"
    given = dict(text.split("=", 1) for text in run.get("set") or [])
    try:
        commands = walked(script, given, run.get("positional")).commands
    except UnreadError:
        return "not read"
    known = True
    for theirs in outer + inner:
        ours = [command.words[at:] for command in commands for at in range(len(command.words)) if agrees(command.words[at:], theirs)]
        if not ours:
            return "different"
        known &= any(not any(isinstance(part, Open) for word in words for part in word.text) for words in ours)
    return "equal" if known else "equal but for what is open"


def _starts_a_shell(words: list[str]) -> bool:
    return words[0] == "sbatch" or any(word.rpartition("/")[2] in ("bash", "sh") for word in words)


if __name__ == "__main__":
    sys.exit(main())
