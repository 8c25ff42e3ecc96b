"""Whether wheels and sdists hold all that lies in the checkout: ``contents.py FILE...`` prints what is missing, and exits with 1 then."""

from __future__ import annotations

import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: What tools write beside sources.
_MADE = ("__pycache__", ".venv", ".git", "dist", "build", "_build", "generated")


def files_under(path: Path) -> Iterable[Path]:
    """The files of a folder of the checkout, or the file that it is, as paths from the root."""
    every = path.rglob("*") if path.is_dir() else [path]
    return (found.relative_to(ROOT) for found in every if found.is_file() and not {*found.relative_to(ROOT).parts} & {*_MADE})


def of_wheel() -> set[str]:
    """What has to be in a wheel: the package, and what `pyproject.toml` puts into it besides."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    names = {str(file) for package in wheel["packages"] for file in files_under(ROOT / package)}
    for source, target in wheel["force-include"].items():
        names |= {str(Path(target) / file.relative_to(source)) if file != Path(source) else target for file in files_under(ROOT / source)}
    return names


def of_sdist() -> set[str]:
    """What has to be in an sdist: what the wheel is built of, and all that tests read."""
    folders = ("placeproof", "theorems", "docs", "tests", "nightly", "mutation", "benchmarks", ".ci", ".github")
    alone = (
        "pyproject.toml",
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "LICENSE",
        "NOTICE",
        "CITATION.cff",
        ".pre-commit-config.yaml",
    )
    return {str(file) for name in (*folders, *alone) for file in files_under(ROOT / name) if not name.startswith("docs/reference/theorems")}


def missing(path: Path) -> set[str]:
    """What a wheel or an sdist lacks."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return of_wheel() - {*wheel.namelist()}
    with tarfile.open(path) as sdist:
        return of_sdist() - {name.partition("/")[2] for name in sdist.getnames()}


if __name__ == "__main__":
    lacks = {f"{path}: {name} is missing" for path in sys.argv[1:] for name in missing(Path(path))}
    print("\n".join(sorted(lacks)) or f"{' '.join(sys.argv[1:])}: whole")
    sys.exit(1 if lacks else 0)
