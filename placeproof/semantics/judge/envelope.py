"""The certificate of a model's program: one for each block and one for the step, for :mod:`placeproof.verify`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from placeproof.core.mesh import degree_symbol
from placeproof.models import Model
from placeproof.programs import Resolved, render
from placeproof.semantics.encode import NoMeaningError, Options
from placeproof.semantics.judge.certificate import certificate
from placeproof.semantics.judge.model import JudgedModel, breaches_of
from placeproof.semantics.judge.ranges import read_ranges
from placeproof.semantics.judge.verdict import Judged
from placeproof.semantics.linked import Linked, read_linked, render_linked
from placeproof.semantics.linked.contract import against_contracts
from placeproof.semantics.linked.link import as_linked
from placeproof.semantics.resolve import resolve
from placeproof.semantics.tensors import encode_block
from placeproof.verify.model import SCHEMA_OF_MODEL, STEP, digest


def envelope(judged: JudgedModel, named: str | None = None) -> dict[str, Any]:
    """The certificate of a model's program that is proved, as JSON data. ``named``: what its model is called, if it has one. Parts that say
    too much have none, and a reason."""
    fixed = {degree_symbol(a.name, only=len(judged.linked.step.axes) == 1) for a in judged.linked.step.axes if a.degree is not None}
    options = replace(judged.step.options, ranges=tuple(r for r in judged.step.options.ranges if r.name not in fixed))
    return _written(render_linked(judged.linked), judged.references, options, named)


def again(document: dict[str, Any], model: Model | None = None) -> bool:
    """Whether it is what this version of placeproof writes for its program, whose blocks fit together and to its step.

    ``model``: that which it names, whose blocks one device runs.

    Raises InputError, or NoMeaningError, if the program cannot be read.
    """
    linked = read_linked(document["program"], source="the certificate's program")
    options = Options(without=frozenset(document["without"]), ranges=read_ranges(document["ranges"], linked.step))
    judged = _followed(linked, None if model is None else as_linked(model, linked), options)
    fits = not breaches_of(judged) and not judged.undecided
    return fits and _written(document["program"], judged.references, options, document["model"]) == document


def _called(block: str) -> str:
    return f"block `{block}`"


def _written(text: str, references: Mapping[str, Resolved], options: Options, model: str | None) -> dict[str, Any]:
    linked = read_linked(text, source="the certificate's program")
    parts = [_part(_called(n), resolve(b.program), Options(), references.get(n)) for n, b in linked.blocks.items()]
    parts.append(_part(STEP, resolve(against_contracts(linked)), options, None))
    assumed = {"without": sorted(options.without), "ranges": [str(r) for r in options.ranges]}
    return {"schema": SCHEMA_OF_MODEL, "program": text, "sha256": digest(text), "model": model, **assumed, "parts": parts}


def _part(name: str, program: Resolved, options: Options, reference: Resolved | None) -> dict[str, Any]:
    written: dict[str, Any] | None = None
    why = ""
    try:
        written = certificate(program, options, reference)
    except NoMeaningError as error:
        why = str(error)
    one_device = None if reference is None else render(reference)
    return {"part": name, "sha256": digest(render(program)), "one_device": one_device, "certificate": written, "why": why}


def _followed(linked: Linked, model: Model | None, options: Options) -> JudgedModel:
    """What is known of a program when nothing is proved anew: how what its blocks return lies."""
    step = Judged(program=resolve(against_contracts(linked)), options=options, word="proved")
    judged = JudgedModel(linked=linked, model=model, blocks={}, breaches=(), step=step)
    programs = {name: resolve(block.program) for name, block in linked.blocks.items()}
    results = {name: encode_block(program, judged.references.get(name)).results for name, program in programs.items()}
    blocks = {n: Judged(program=p, options=Options(), word="proved", results=results[n]) for n, p in programs.items()}
    return replace(judged, blocks=blocks)
