"""Outcomes of earlier runs, found by the content that they depend on: the theorem's file, placeproof itself, what is installed; and
believed only while everything that was read for them is as it was."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from placeproof.theory.suite.outcome import Outcome, Settings, from_data
from placeproof.theory.suite.reads import unchanged
from placeproof.theory.theorem import Theorem

_PACKAGE = Path(__file__).parents[2]
_SOURCES = (".py", ".toml", ".step")


def folder() -> Path | None:
    """Where outcomes are kept: ``$PLACEPROOF_CACHE``, or the user's cache folder; None for a user who has none."""
    given = os.environ.get("PLACEPROOF_CACHE")
    if given:
        return Path(given)
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return base / "placeproof" / "check" if base.is_absolute() else None


@lru_cache(maxsize=1)
def _product() -> str:
    """A digest of placeproof's own sources, of Python, and of the versions of all that is installed, solvers among it."""
    installed = sorted(f"{d.metadata['Name']} {d.version}" for d in distributions())
    return hashlib.sha256(f"{sys.version}{installed}{sources()}".encode()).hexdigest()


@lru_cache(maxsize=1)
def sources() -> str:
    """A digest of placeproof's own sources."""
    digest = hashlib.sha256()
    for path in sorted(p for p in _PACKAGE.rglob("*") if p.suffix in _SOURCES and "_theorems" not in p.parts):
        digest.update(str(path.relative_to(_PACKAGE)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _neighbours(path: Path) -> str:
    """A digest of a file; if it imports from its folder, of all files there."""
    text = path.read_bytes()
    digest = hashlib.sha256(text)
    if b"from ." in text:
        for other in sorted(path.parent.glob("*.py")):
            digest.update(other.name.encode())
            digest.update(other.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Cache:
    """Outcomes as files. A file that cannot be read, or is not as it was written, is as if it were not there."""

    root: Path
    _digests: dict[str, str] = field(default_factory=dict, compare=False)

    def _key(self, theorem: Theorem, settings: Settings) -> str:
        if theorem.path not in self._digests:
            self._digests[theorem.path] = _neighbours(Path(theorem.path))
        text = f"{_product()}{self._digests[theorem.path]}{theorem.path}{theorem.id}{settings}"
        return hashlib.sha256(text.encode()).hexdigest()

    def _file(self, key: str) -> Path:
        return self.root / key[:2] / f"{key}.json"

    def get(self, theorem: Theorem, settings: Settings) -> Outcome | None:
        """An earlier outcome."""
        key = self._key(theorem, settings)
        try:
            entry = json.loads(self._file(key).read_text(encoding="utf-8"))
            if entry["checksum"] != _checksum(key, entry["reads"], entry["outcome"]) or not unchanged(entry["reads"]):
                return None
            return replace(from_data(entry["outcome"]), cached=True)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def put(self, theorem: Theorem, settings: Settings, outcome: Outcome, reads: Mapping[str, str]) -> None:
        """Keep an outcome, and what was read for it; where that cannot be done, it is not kept."""
        key, data = self._key(theorem, settings), outcome.data()
        entry = {"checksum": _checksum(key, reads, data), "reads": dict(reads), "outcome": data}
        path = self._file(key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(f".{os.getpid()}")
            part.write_text(json.dumps(entry), encoding="utf-8")
            part.replace(path)


def _checksum(key: str, reads: Mapping[str, str], outcome: Mapping[str, Any]) -> str:
    """Of an entry under its name: one that was damaged, edited or moved has another."""
    return hashlib.sha256(json.dumps([key, reads, outcome], sort_keys=True).encode()).hexdigest()
