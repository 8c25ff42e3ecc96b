"""The lock file of a suite: what each theorem's verdict was when it was last accepted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from os.path import isfile, lexists
from pathlib import Path
from typing import Any

from placeproof.core.diagnostics import Place, refuse
from placeproof.core.files import read_text, write_text
from placeproof.prove.solvers.scripts import available, version
from placeproof.theory.suite.outcome import Outcome

NAME = "verdicts.lock.json"
SCHEMA = "placeproof.verdicts/1"
#: What is compared. Versions of solvers are written down, and a difference of versions alone is no difference.
COMPARED = ("verdict", "evidence", "hypotheses", "witness")
_RESTORE = "restore it from version control, or remove it and run `placeproof check --update`"


def entry(outcome: Outcome) -> dict[str, Any]:
    """What is locked of an outcome."""
    return {
        "verdict": outcome.verdict,
        "evidence": outcome.evidence,
        "hypotheses": list(outcome.used),
        "witness": dict(outcome.witness),
    }


def read(folder: Path) -> dict[str, dict[str, Any]] | None:
    """The locked verdicts by id; None where nothing is locked. Raises InputError for a file that is none of ours."""
    path = folder / NAME
    if not lexists(path):
        return None
    if not isfile(path):
        refuse("PP405", f"`{path}` is no file", help=_RESTORE)
    try:
        data = json.loads(read_text(path, code="PP405", help=_RESTORE))
        if data["schema"] != SCHEMA or not all(set(COMPARED) <= set(row) for row in data["verdicts"].values()):
            raise ValueError("it has another shape")
        verdicts: dict[str, dict[str, Any]] = data["verdicts"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        refuse(
            "PP405", f"the lock file cannot be read: {error}", place=Place(source=str(path), line=line, column=1),
            help=_RESTORE,
        )  # fmt: skip
    return verdicts


def write(folder: Path, outcomes: Iterable[Outcome], *, whole: bool) -> Path:
    """Write the verdicts of outcomes; where not the ``whole`` folder was checked, those of others stay."""
    kept = {} if whole else dict(read(folder) or {})
    for outcome in outcomes:
        kept[outcome.id] = entry(outcome)
    solvers = [version(name) for name in available()]
    data = {"schema": SCHEMA, "solvers": solvers, "verdicts": dict(sorted(kept.items()))}
    path = folder / NAME
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    write_text(path, text, help="give a folder that can be written")
    return path


def differences(locked: Mapping[str, Mapping[str, Any]], outcomes: Iterable[Outcome], *, whole: bool) -> list[str]:
    """What differs from the lock, in lines like those of ``diff``. ``whole``: all of a folder was checked, so nothing may be missing."""
    lines: list[str] = []
    seen = set()
    for outcome in outcomes:
        seen.add(outcome.id)
        new, old = entry(outcome), locked.get(outcome.id)
        if old is None:
            lines += [f"  {outcome.id}", f"    + {outcome.verdict} ({outcome.evidence or 'no evidence'}): it is not in the lock file"]
            continue
        changed = [key for key in COMPARED if old[key] != new[key]]
        if changed:
            lines.append(f"  {outcome.id}")
            for key in changed:
                lines += [f"    - {key}: {_shown(old[key])}", f"    + {key}: {_shown(new[key])}"]
    if whole:
        for name in locked.keys() - seen:
            lines += [f"  {name}", f"    - {locked[name]['verdict']}: there is no such theorem any more"]
    return lines


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} = {v}" for k, v in value.items()) or "none"
    return ", ".join(value) or "none" if isinstance(value, list) else str(value) or "none"
