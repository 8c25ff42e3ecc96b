"""The shapes of a model's parameters as the installed transformers builds it, or as a script trains it, in a process of its own."""

from __future__ import annotations

import importlib
import importlib.metadata
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from placeproof.core import files
from placeproof.core.diagnostics import InputError, Problems, refuse
from placeproof.core.shapes import BUFFER_TYPES, Shapes, Unit, Weight
from placeproof.importers.document import Document, read_document
from placeproof.importers.huggingface.reader import OUTSIDE
from placeproof.importers.imported import ImportedShapes, Reading, Role, not_modelled
from placeproof.importers.systems import MODEL_TYPE
from placeproof.measure import built
from placeproof.measure.processes import message, run
from placeproof.measure.record.launch import TIMEOUT, Launch

#: How long transformers may take, in seconds: the first import of torch alone takes a minute on a slow disk.
_PATIENCE = 600
_EXTRA = 'pip install "placeproof[transformers]"; or write the shapes where it is installed: `--shapes-to FILE`'


def built_shapes(path: str | Path) -> ImportedShapes:
    """The shapes of a model that transformers has a class for, from its ``config.json``; activations and blocks are not known of it.

    Tied parameters count once, and buffers are counted apart. Raises InputError where transformers or torch is not installed, and where
    it builds no model of the file: code that is not its own is never run.
    """
    text = files.read_text(path, code="PP501", help="give the path of a model's config.json")
    problems = Problems()
    document = read_document(text, str(path), "toml" if Path(path).suffix.lower() == ".toml" else "json", problems)
    kind = document.data.get(MODEL_TYPE)
    if "unit" in document.data:
        message = f"`{path}` lists the shapes itself: transformers builds models of a config.json"
        problems.add("PP501", message, place=document.place("unit"), help="leave `--shapes-from` out")
    elif not isinstance(kind, str):
        place = document.place(MODEL_TYPE) if document.data else None
        message = f"`{path}` is no config.json of a model: it names no `{MODEL_TYPE}`"
        problems.add("PP501", message, place=place, help="give one that transformers can read")
    problems.raise_if_any()
    answer = _asked(document.data)
    if "refused" in answer:
        why, help_, setting = answer["refused"]
        problems.add("PP501", why, place=document.place(setting), help=help_)
        problems.raise_if_any()
    readings = tuple(_readings(document))
    return ImportedShapes(kind=str(kind), source=str(path), shapes=_shapes(str(kind), answer, readings), readings=readings)


def script_shapes(
    script: Path, *, world: int = 2, units: Collection[str] = (), arguments: Sequence[str] = (), timeout: float = TIMEOUT
) -> Shapes:
    """The shapes of the module that a training script trains, which runs up to its first update, as the first of ``world`` ranks.

    ``units``: classes of modules that are wrapped by themselves; by default those that the script wraps, or that transformers' own trainer
    does. ``arguments``: of the script; ``timeout``: seconds that it may take. Raises InputError for a script that fails or trains nothing,
    and for what exact bytes cannot speak of.
    """
    files.read_text(script, code="PP110", help="give the path of a training script")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parts of torch, when they are imported
        watched = importlib.import_module("placeproof.measure.watched")
    launch = Launch(script=script, world=world, arguments=tuple(arguments), timeout=timeout)
    (outcome,) = outcomes = run(1, lambda *_: watched.shapes_of(launch, units), timeout=timeout, init=False)
    if isinstance(outcome.value, tuple):
        raise InputError(outcome.value)
    if outcome.value is None:
        refuse("PP603", f"the script did not come to an update: {message(outcomes)}", help="run the script by itself to see why")
    shapes: Shapes = outcome.value
    if len(shapes.units) > 1:
        return shapes
    return replace(shapes, notes=("the script wraps no module by itself: all parameters are one unit",))


def _asked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What :func:`placeproof.measure.built.described` says, in a process of its own. Raises InputError."""
    for package, oldest in (("torch", 2), ("transformers", 5)):
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            refuse("PP601", f"`--shapes-from transformers` needs {package}, which is not installed", help=_EXTRA)
        if int(version.split(".")[0]) < oldest:
            refuse("PP601", f"`--shapes-from transformers` needs {package} {oldest} or later, not {version}", help=_EXTRA)
    (outcome,) = outcomes = run(1, lambda *_: built.described(settings), timeout=_PATIENCE, init=False)
    if outcome.value is None:
        refuse("PP601", f"transformers built no model: {message(outcomes)}", help="list the parameters in a file of shapes")
    return outcome.value


def _shapes(kind: str, answer: Mapping[str, Any], readings: Iterable[Reading]) -> Shapes:
    known = set(answer["buffers"]) <= set(BUFFER_TYPES)
    return Shapes(
        name=f"{kind}, {answer['class']} of transformers {answer['version']}",
        units=tuple(
            Unit(name=name, weights=tuple(Weight(name=w, shape=tuple(shape)) for w, shape in weights)) for name, weights in answer["units"]
        ),
        used=None if answer["used"] is None else tuple(answer["used"]),
        registered=None,
        buffers=tuple(answer["buffers"].items()) if known else None,
        notes=(*_notes(answer), *not_modelled(readings)),
    )


def _notes(answer: Mapping[str, Any]) -> Iterator[str]:
    """What an answer has to say besides numbers."""
    yield "parameters are those that transformers builds: activations, operations and the programs of the model's blocks are not known"
    if len(answer["units"]) == 1:
        yield "transformers names no layers that are wrapped: all parameters are one unit"
    if answer["shared"]:
        yield f"a parameter of several units lies in the unit around all of them: {_listed(answer['shared'])}"
    if answer["idle"]:
        yield f"parameters without a gradient in a step on text alone are counted as trained: {_listed(answer['idle'])}"
    for type_, count in answer["kept"].items():
        yield f"the model keeps {count:,} parameters in {type_}: they are counted in the type of the others"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:2]) + (f" and {len(names) - 2:,} more" if len(names) > 2 else "")


def _readings(document: Document) -> Iterator[Reading]:
    """Each setting of the file once: transformers reads it, or it is left out."""
    for name, value in document.data.items():
        role, note = (Role.NOT_MODELLED, OUTSIDE[name]) if value and name in OUTSIDE else (Role.READ, "read by transformers")
        yield Reading(name=name, value=value, role=role, note=note, place=document.place(name))
