"""Finding and reading files of theorems. Whatever is wrong with one of them is reported with its place, and the others are read."""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.core.files import expanded, read_bytes
from placeproof.theory.suite.bibliography import known_to
from placeproof.theory.suite.faults import failing_place, place_at, undeclared
from placeproof.theory.suite.reads import aside
from placeproof.theory.theorem import Theorem

_PACKAGE = Path(__file__).parents[2]


@dataclass(slots=True)
class Loaded:
    """What was read: theorems in the order of files and lines, and the problems of those that could not be."""

    theorems: list[Theorem] = field(default_factory=list)
    problems: Problems = field(default_factory=Problems)
    topics: dict[str, str] = field(default_factory=dict)


def suite() -> Path:
    """The folder of the theorems that come with placeproof: in the wheel, or beside a checkout's package."""
    packed = _PACKAGE / "_theorems"
    return packed if packed.is_dir() else _PACKAGE.parent / "theorems"


def load(wanted: Iterable[str] = ()) -> Loaded:
    """The theorems asked for: paths of files or folders, one of a file (``claims.py::name``), ids (``memory.zero_chain``) or topics
    (``memory``); without any, the suite.

    Problems are collected, not raised: an unknown name is one of them.
    """
    loaded, names = Loaded(), []
    for text in wanted:
        file, _, one = text.partition("::")
        path = expanded(file)
        if one:
            theorems = [t for t in _load_path(path, loaded) if t.name == one]
            if not theorems and not loaded.problems.found:
                loaded.problems.add("PP401", f"`{file}` has no theorem `{one}`", help=f"`placeproof check {file}` checks those that it has")
            _add(loaded, theorems)
        elif path.suffix == ".py" or os.path.isdir(path):
            _add(loaded, _load_path(path, loaded))
        else:
            names.append(text)
    if names or not list(wanted):
        own = _load_path(suite(), loaded)
        for name in names or [""]:
            theorems = [t for t in own if not name or name in (t.id, t.topic)]
            if not theorems:
                hint = suggestion(name, {t.id for t in own} | {t.topic for t in own}) or "`placeproof list theorems` shows them"
                loaded.problems.add("PP401", f"there is no theorem or topic `{name}`, and no file or folder of that name", help=hint)
            _add(loaded, theorems)
    return loaded


def _add(loaded: Loaded, theorems: Iterable[Theorem]) -> None:
    known = {(t.path, t.name) for t in loaded.theorems}
    loaded.theorems += [t for t in theorems if (t.path, t.name) not in known]


def _load_path(path: Path, loaded: Loaded) -> list[Theorem]:
    """The theorems of a file, or of the files of a folder whose names do not begin with an underscore."""
    if os.path.isdir(path):
        with aside():
            files = sorted(p for p in path.glob("*.py") if not p.name.startswith("_"))
        if not files:
            loaded.problems.add("PP401", f"`{path}` holds no file of theorems", help="give a folder that holds Python files")
    else:
        files = [path]
    before = len(loaded.problems.found)
    theorems = [t for file in files for t in load_file(file, loaded)]
    if not theorems and len(loaded.problems.found) == before:
        loaded.problems.add("PP401", f"`{path}` declares no theorem", help="decorate a function with `@theorem(expect=..., cite=...)`")
    return theorems


def load_file(path: Path, loaded: Loaded) -> list[Theorem]:
    """The theorems that a file declares; problems of the file, and of single declarations, are added to ``loaded``."""
    module = _module(path, loaded)
    if module is None:
        return []
    declared = [t for t in vars(module).values() if isinstance(t, Theorem) and Path(t.path) == path.resolve()]
    loaded.topics[path.stem] = (module.__doc__ or path.stem).strip().splitlines()[0].rstrip(".")
    with aside():
        known = known_to(path.parent)
    good = []
    for theorem in sorted(dict.fromkeys(declared), key=lambda t: t.line):
        problems = undeclared(theorem, known)
        loaded.problems.extend(problems)
        if not problems:
            good.append(theorem)
    return good


def _module(path: Path, loaded: Loaded) -> ModuleType | None:
    """A file as a module of a package of its own folder, so that ``from .other import lemma`` works and no name clashes."""
    if os.path.exists(path) and not os.path.isfile(path):  # Python reads a file again to show a line of it
        loaded.problems.add("PP401", f"`{path}` is no regular file", help="give the path of a file of theorems, or an id")
        return None
    data: bytes | None = None
    with loaded.problems.collecting(), aside():
        data = read_bytes(path, code="PP401", help="give the path of a file of theorems, or an id")
    if data is None:
        return None
    file = path.resolve()
    package = "placeproof_theorems_" + hashlib.sha256(str(file.parent).encode()).hexdigest()[:12]
    if package not in sys.modules:
        spec = importlib.machinery.ModuleSpec(package, None, is_package=True)
        spec.submodule_search_locations = [str(file.parent)]
        sys.modules[package] = importlib.util.module_from_spec(spec)
    name = f"{package}.{file.stem}"
    if name in sys.modules and sys.modules[name].__dict__.get("_read_from") == data:
        return sys.modules[name]
    if name in sys.modules:  # it has changed: what took something from it is read again too
        for other in [other for other in sys.modules if other.startswith(f"{package}.")]:
            del sys.modules[other]
    file_spec = importlib.util.spec_from_file_location(name, file)
    assert file_spec is not None
    module = importlib.util.module_from_spec(file_spec)
    module.__dict__["_read_from"] = data  # a file that has changed since is read again
    sys.modules[name] = module
    try:
        exec(compile(data, file, "exec", dont_inherit=True), module.__dict__)  # compiled code kept beside it may be of before
        _remember_imported(package)
    except SyntaxError as error:
        where = place_at(Path(error.filename or path), error.lineno or 1, error.offset or 1)
        loaded.problems.add("PP401", f"this is no Python: {error.msg}", place=where, help="mend the line")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too: a file that ends the process would pass for one whose theorems hold
        where = failing_place(error, file)
        loaded.problems.add("PP401", f"the file cannot be run: {_of(error)}", place=where, help="mend the line; `python` shows it too")
    else:
        return module
    del sys.modules[name]
    return None


def _remember_imported(package: str) -> None:
    """What a file imported from its folder is that file, not another copy of it when its own turn comes: functions are told by identity."""
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{package}.") and "_read_from" not in module.__dict__ and module.__file__:
            module.__dict__["_read_from"] = Path(module.__file__).read_bytes()


def _of(error: BaseException) -> str:
    return re.sub(r"\s+", " ", f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
