"""What an argument is: the one place that decides it, for every command and for Python.

:func:`read` makes a *subject* of a text: a strategy, a step program, a linked program of a model, a configuration of a training framework,
or a program of the library. Of a subject, :func:`strategy`, :func:`costed` and :func:`program` make what costs and proofs are of, and
refuse in one way what has none. What else a text may name has one reader each: :func:`model`, :func:`shapes`, :func:`theorem`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeAlias, assert_never

from placeproof.core.diagnostics import Problems, refuse
from placeproof.core.files import config_kind, read_text

if TYPE_CHECKING:
    from placeproof.core.shapes import Shapes
    from placeproof.core.strategy import Strategy
    from placeproof.importers import Imported
    from placeproof.models import Model
    from placeproof.programs import Program
    from placeproof.semantics.linked import Linked
    from placeproof.theory.theorem import Theorem


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A strategy, by an expression or by its file."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A configuration of a training framework, which says a strategy and more."""

    imported: Imported


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgram:
    """The file of a step program, and what is in it."""

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedProgram:
    """The file of a model's program: a step with the blocks that it calls."""

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryProgram:
    """A program by its name in the library: a block, or a step that does not train what one device trains."""

    name: str


Subject: TypeAlias = Expression | Configuration | StepProgram | LinkedProgram | LibraryProgram


def is_program(text: str) -> bool:
    """Whether a text is the name of a program's file."""
    return re.fullmatch(r"[^*()]*\.step", text.strip()) is not None


def read(text: str, *, system: str | None = None, world: int | None = None, env: Sequence[str] = (), library: bool = False) -> Subject:
    """What a text is. ``system``: it is a configuration of that framework, a file or the configuration itself; ``world``: the number of
    devices of a configuration; ``env``: what a launch script gets from outside; ``library``: names of programs of the library count.

    Raises InputError for a file that cannot be read, and with every problem of a configuration.
    """
    if system is not None or _is_configuration(text):
        from placeproof.importers import read_config

        return Configuration(imported=read_config(text, system=system, world=world, env=env))
    if is_program(text):
        path = text.strip()
        body = read_text(path, code="PP110", help="give the path of a readable step program")
        linked = any(line.startswith(("def ", "stack(")) for line in body.splitlines())
        return LinkedProgram(path=path, text=body) if linked else StepProgram(path=path, text=body)
    if library and _in_library(text.strip()):
        return LibraryProgram(name=text.strip())
    return Expression(text=text)


def _is_configuration(text: str) -> bool:
    if config_kind(text) is None:
        return False
    from placeproof.importers import recognised

    return recognised(text)


def _in_library(name: str) -> bool:
    from placeproof.semantics.catalogue import BLOCKS, not_equivalent

    return name in BLOCKS or name in not_equivalent()


def read_all(
    texts: Sequence[str],
    *,
    system: str | None,
    world: int | None,
    env: Sequence[str] = (),
    library: bool = False,
    placed: tuple[type, ...] = (),
) -> list[Subject]:
    """What each of several texts is. ``placed``: what beside a configuration may be put on so many devices. Problems of all are raised
    together."""
    problems = Problems()
    subjects: list[Subject] = []
    for text in texts:
        with problems.collecting():
            subjects.append(read(text, system=system, world=world, env=env, library=library))
    if world is not None and not problems.found and not any(isinstance(s, (Configuration, *placed)) for s in subjects):
        what = "a strategy or a configuration" if placed else "a configuration"
        problems.add("PP505", f"`--world` goes with {what}", help="a strategy says its degrees: `zero3(64)`")
    if env and not problems.found and not any(isinstance(s, Configuration) for s in subjects):
        problems.add("PP505", "`--env` goes with a launch script", help="a strategy has no variables")
    problems.raise_if_any()
    return subjects


def imported(subjects: Sequence[Subject]) -> list[Imported]:
    """What configurations among them say."""
    return [s.imported for s in subjects if isinstance(s, Configuration)]


def strategy(subject: Subject, profile: str | None = None, implementations: Sequence[str] = ()) -> Strategy:
    """The strategy that it is; with a profile, as that lowers it. Raises InputError, also where it is none."""
    from placeproof.strategies import parse_strategy

    match subject:
        case Expression(text=text):
            pass
        case Configuration(imported=read):
            text = read.expression
        case StepProgram(path=path) | LinkedProgram(path=path):
            refuse_program(path, profile)
        case LibraryProgram(name=name):
            _refuse(f"`{name}` is a program of the library, and no strategy", "give a strategy")
        case _:
            assert_never(subject)
    parsed = parse_strategy(text)
    if profile is None:
        return parsed
    from placeproof.cost.exact.choose import chosen, realised_text
    from placeproof.profiles.profile import profile as read_profile

    return parse_strategy(realised_text(parsed, chosen(read_profile(profile), parsed, tuple(implementations))))


def costed(subject: Subject, profile: str | None = None, implementations: Sequence[str] = ()) -> Strategy | Program:
    """What closed forms are derived of: a strategy, or a step program. Raises InputError."""
    if profile is None and isinstance(subject, StepProgram | LinkedProgram | LibraryProgram):
        return program(subject)
    return strategy(subject, profile, implementations)


def program(subject: Subject, profile: str | None = None, implementations: Sequence[str] = ()) -> Program:
    """The program that is proved: of a strategy, what it is lowered to. Raises InputError."""
    from placeproof.programs import read as read_program
    from placeproof.semantics.catalogue import BLOCKS, read_block, read_not_equivalent
    from placeproof.semantics.lower import lower

    match subject:
        case StepProgram(path=path, text=text) if profile is None:
            return read_program(text, source=path)
        case LinkedProgram(path=path) if profile is None:
            message = f"{path} defines the blocks of a model beside its step, and is asked for as a step"
            _refuse(message, f"`placeproof derive {path}` derives it")
        case LibraryProgram(name=name) if profile is None:
            return read_block(name) if name in BLOCKS else read_not_equivalent(name)
        case _:
            pass
    return lower(strategy(subject, profile, implementations))


def linked(subject: Subject) -> Linked:
    """The linked program that it is. Raises InputError, also where it is none."""
    from placeproof.semantics.linked import read_linked

    match subject:
        case LinkedProgram(path=path, text=text):
            pass
        case _:
            _refuse("this is no program of a model", "`placeproof derive STRATEGY --model MODEL --program` writes one")
    return read_linked(text, source=path)


def judged_program(subject: Subject, of: str | None) -> tuple[Linked, Model | None]:
    """The program of a model's step that is proved, with the model whose blocks one device runs: the one that is named, or that the program
    says that it is of, if there is such a model. Of a strategy, it is the program of which ``derive --program`` prints the lines. Raises
    InputError."""
    from placeproof.models import presets
    from placeproof.semantics.linked import link, read_linked, render_linked

    if of is None or isinstance(subject, LinkedProgram):
        program = linked(subject)
        name = of or (program.model if program.model in presets() else None)
        return program, None if name is None else model(name)
    read = model(of)
    under = strategy(subject)
    return read_linked(render_linked(link(read, under)), source=f"{under.name} --model {of}"), read


def refuse_program(name: str, profile: str | None = None) -> NoReturn:
    """Raise InputError for a step program where a strategy is needed: by a profile, or by a model."""
    why, option = ("no profile realises", "--profile") if profile else ("says nothing of a model's blocks", "--model")
    _refuse(f"`{name}` is a step program, which {why}", f"give a strategy, or leave out `{option}`")


def _refuse(message: str, help: str) -> NoReturn:
    """The one way in which a subject is not what is asked for."""
    refuse("PP104", message, help=help)


def model(text: str) -> Model:
    """A preset, a family, a model's file, or a config.json. Raises InputError."""
    if Path(text).suffix == ".json":
        from placeproof.importers.models import model_from_config

        return model_from_config(text)
    from placeproof.models import load

    return load(text)


def shapes(text: str, source: str | None = None) -> Shapes:
    """A file of shapes, a config.json, or ``transformer(...)`` with its sizes. Raises InputError.

    ``source``: "transformers" where that is to build the model of a config.json.
    """
    if source is not None:
        if source != "transformers":
            refuse("PP104", f"shapes are not taken from `{source}`", help="`--shapes-from transformers`")
        from placeproof.measure.shapes import built_shapes

        return built_shapes(text).shapes
    if re.match(r"\s*transformer\s*\(", text) is None:
        from placeproof.importers.shapes import read_shapes

        return read_shapes(text)
    from placeproof.answers.shapes import transformer_of

    return transformer_of(text)


def theorem(name: str) -> Theorem | None:
    """A theorem by its identifier, which has a dot in it; None where there is none of that name."""
    if "." not in name:
        return None
    from placeproof.theory.suite.load import load

    return next((t for t in load().theorems if t.id == name), None)
