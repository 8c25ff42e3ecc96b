"""What `--json` says of the catalogue, of every model and of configurations as people have them: a digest of each part of each document.

`python tests/helpers/snapshots.py` writes `data/snapshots.json` anew; `python tests/helpers/snapshots.py FOLDER` writes the documents
themselves, so that two commits can be compared with `diff -r`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from placeproof.cli.main import run
from placeproof.importers import SYSTEMS
from placeproof.models import load, presets
from placeproof.programs import Program
from placeproof.semantics.catalogue import compositions, variants

HERE = Path(__file__).parents[1]
STORED = HERE / "data" / "snapshots.json"
#: How each kind of model is laid out: one with experts on an axis of theirs, too.
DENSE, EXPERTS = "hsdp(2, 2) * tp(2) * sp * cp(2) * pp(2)", "zero1(4) * ep(4) * tp(2) * sp * pp(2)"
#: What a document says of the machine and the clock.
_PASSING = frozenset({"milliseconds", "seconds", "version"})


def commands() -> Iterator[tuple[str, ...]]:
    """Each as its arguments, paths from this folder."""
    allowed = [text for text, program in compositions(2) if isinstance(program, Program)]
    yield from (("derive", text) for text in allowed)
    yield from (("prove", text) for text in allowed if "*" not in text)
    yield from (("derive", text) for text, program in variants() if isinstance(program, Program) and "*" not in text)
    for name in presets():
        yield "derive", EXPERTS if "experts" in load(name).dimensions else DENSE, "--model", name
    for folder in (HERE / "configs" / system for system in SYSTEMS if (HERE / "configs" / system / "expected.json").exists()):
        for name, expected in json.loads((folder / "expected.json").read_text(encoding="utf-8")).items():
            world = expected.get("world")
            more = ("--world", str(world)) if world else ()
            yield "derive", f"configs/{folder.name}/{name}", "--from", folder.name, *more


def document(command: tuple[str, ...]) -> dict[str, Any]:
    """What is printed, without what passes; of what is refused, the words."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.chdir(HERE), contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = run([*command, "--json"])
    said = json.loads(output.getvalue()) if output.getvalue() else {}
    return {"exit": code, "errors": errors.getvalue(), **_lasting(said)}


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(v) for key, v in value.items() if key not in _PASSING}
    return [_lasting(v) for v in value] if isinstance(value, list) else value


def digests(said: dict[str, Any]) -> dict[str, str]:
    """Of each part of a document eight digits."""
    return {key: hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8] for key, value in said.items()}


def main(arguments: list[str]) -> None:
    """Write the digests, or the documents."""
    if any(argument.startswith("-") for argument in arguments) or len(arguments) > 1:
        sys.exit(__doc__)
    stored = {}
    for command in commands():
        said, name = document(command), " ".join(command)
        stored[name] = digests(said)
        if arguments:
            folder = Path(arguments[0])
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name.replace('/', '_')}.json").write_text(json.dumps(said, indent=1), encoding="utf-8")
    if not arguments:
        rows = (f"{json.dumps(name)}: {json.dumps(parts)}" for name, parts in stored.items())
        STORED.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
