"""Files of NeMo RL that say ``defaults``: the files they are laid over (NVIDIA-NeMo/RL@7ea279abfbeb:nemo_rl/utils/config.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os.path import normpath
from pathlib import Path
from typing import Any

from placeproof.core.diagnostics import Problems
from placeproof.core.files import is_file, read_text
from placeproof.importers.document import Document, read_document
from placeproof.importers.omegaconf import MISSING

_DEFAULTS, _ALONE = "defaults", "_override_"
_HELP = "give the file from where it lies in its repository, beside those that it names, or write their settings out in it"


def inherited(document: Document, problems: Problems, around: tuple[Path, ...] = ()) -> Document:
    """The document laid over the files that it names, each over those before it. ``around``: the files that lead here.

    Raises InputError where one cannot be read. A file that is not at hand is a problem: what it says is not guessed.
    """
    for name in sorted(document.again):
        place = document.place(*name.split("."))
        problems.add("PP502", f"`{name}` is said twice, at which NeMo RL stops", place=place, help="keep one of the two")
    if _DEFAULTS not in document.data:
        return document
    under, around = replace(document, data={}, spans={}), (*around, Path(document.source).resolve())
    for path in _named(document, problems):
        if not is_file(path):
            message = f"`{path}` says what holds where this file says nothing, and it is not at hand"
            problems.add("PP504", message, place=document.place(_DEFAULTS), help=_HELP)
        elif path.resolve() in around:
            problems.add("PP504", f"`{path}` is laid over itself", place=document.place(_DEFAULTS), help="leave one of the names out")
        else:
            read = read_document(read_text(path, code="PP501", help=_HELP), str(path), "yaml", problems)
            parent = inherited(read, problems, around)
            under = _over(under, replace(parent, data={key: value for key, value in parent.data.items() if key != _DEFAULTS}))
    return _over(under, document)


def _named(document: Document, problems: Problems) -> list[Path]:
    """The files that a document names, from its folder."""
    said = document.data[_DEFAULTS]
    names = [said] if isinstance(said, str) else said
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        message = f"`{_DEFAULTS}` is a path or a list of paths"
        problems.add("PP503", message, place=document.place(_DEFAULTS), help="`defaults: ../sft.yaml`")
        return []
    if document.source.startswith("<"):  # a text, which lies in no folder
        problems.add("PP504", f"{', '.join(names)}: this text lies in no folder", place=document.place(_DEFAULTS), help=_HELP)
        return []
    folder = Path(document.source).parent
    return [Path(normpath(folder / name)) for name in names]


def _over(under: Document, over: Document) -> Document:
    """A document laid over another one, which has the places of what only it says."""
    others = {path: under.elsewhere.get(path, under) for path in under.spans if path not in over.spans}
    return replace(over, data=_merged(under.data, over.data), spans={**under.spans, **over.spans}, elsewhere={**others, **over.elsewhere})


def _merged(under: Mapping[str, Any], over: Mapping[str, Any], *, outermost: bool = True) -> dict[str, Any]:
    """Tables laid over one another. An outermost one can say that it stands alone."""
    made = dict(under)
    for key, value in over.items():
        known = made.get(key)
        if outermost and isinstance(value, Mapping) and value.get(_ALONE):
            made[key] = {name: inner for name, inner in value.items() if name != _ALONE}
        elif isinstance(value, Mapping) and isinstance(known, Mapping):
            made[key] = _merged(known, value, outermost=False)
        elif value != MISSING or key not in made:
            made[key] = value
    return made
