"""What several commands are asked with: options as records, each declared once, and what reads them.

A command takes one record. Its fields are its arguments and options in the order of ``--help``; a field that is a record itself stands for
the fields of that.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_type_hints

import typer
from typer.models import OptionInfo

from placeproof.core import files
from placeproof.core.diagnostics import Problems, refuse, suggestion
from placeproof.core.stages import stage_layers

if TYPE_CHECKING:
    from placeproof.answers.models import Clock, ModelRun
    from placeproof.answers.numbers import Settings
    from placeproof.answers.subject import Subject
    from placeproof.core.shapes import Shapes
    from placeproof.cost.model.comparison import Member
    from placeproof.cost.model.time import StepTime
    from placeproof.implementations import BlockImplementation
    from placeproof.report.document import Detail, Document

Record = TypeVar("Record")
Result = TypeVar("Result")


def takes(record: type[Record]) -> Callable[[Callable[[Record], Result]], Callable[..., Result]]:
    """A command of Typer's from a function of one record: its parameters are the record's fields."""

    def of(run: Callable[[Record], Result]) -> Callable[..., Result]:
        def command(**values: Any) -> Result:
            return run(_built(record, values))

        parameters = list(_parameters(record))
        command.__doc__ = run.__doc__
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return command

    return of


def option(name: str, help: str, *, metavar: str | None = None, default: Any = None, min: int | None = None) -> Any:
    """A field of a record that is an option."""
    return field(default=default, metadata={"of": typer.Option(name, metavar=metavar, help=help, min=min)})


def _annotations(record: Any) -> Iterator[tuple[Field[Any], Any]]:
    """The fields of a record, each with its annotation: another record, or a type with what Typer is told of it."""
    hints = get_type_hints(record, include_extras=True)
    for one in fields(record):
        yield one, Annotated[hints[one.name], one.metadata["of"]] if "of" in one.metadata else hints[one.name]


def _parameters(record: Any) -> Iterator[inspect.Parameter]:
    for one, annotation in _annotations(record):
        if is_dataclass(annotation):
            yield from _parameters(annotation)
        else:
            default = inspect.Parameter.empty if one.default is MISSING else one.default
            yield inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _built(record: Any, values: Mapping[str, Any]) -> Any:
    return record(**{f.name: _built(kind, values) if is_dataclass(kind) else values[f.name] for f, kind in _annotations(record)})


def given(options: Any) -> list[str]:
    """The options of a record that were given, as they are written: ``--for-all``."""
    names: list[str] = []
    for one, annotation in _annotations(type(options)):
        value = getattr(options, one.name)
        if is_dataclass(annotation):
            names += given(value)
        elif value not in (None, [], one.default) and isinstance(declared := annotation.__metadata__[0], OptionInfo):
            names.append(str(declared.default))  # where an annotation has its first name
    return names


def named(record: Any) -> dict[str, tuple[str, str]]:
    """The options of a record by their names in a file, ``global_batch``: the field that each is, and its type without None."""
    found: dict[str, tuple[str, str]] = {}
    for one, annotation in _annotations(record):
        if is_dataclass(annotation):
            found |= named(annotation)
        elif isinstance(declared := annotation.__metadata__[0], OptionInfo):
            found[str(declared.default).removeprefix("--").replace("-", "_")] = one.name, str(one.type).removesuffix(" | None")
    return found


def built(record: type[Record], said: Mapping[str, Any]) -> Record:
    """A record of what a file says of its options, by their names there; the others are not given. A number may be said of what is a text
    on a command line."""
    values, names = {one.name: one.default for one in _fields(record)}, named(record)
    texts = {names[key][0]: str(value) if names[key][1] == "str" else value for key, value in said.items()}
    return cast("Record", _built(record, values | texts))


def said(options: Any) -> dict[str, Any]:
    """The options of a record that were given, by their names in a file: what :func:`built` makes it of."""
    values = {one.name: value for one, value in _values(options) if value not in (None, [], one.default)}
    return {key: values[field] for key, (field, _) in named(type(options)).items() if field in values}


def _values(options: Any) -> Iterator[tuple[Field[Any], Any]]:
    for one, annotation in _annotations(type(options)):
        value = getattr(options, one.name)
        if is_dataclass(annotation):
            yield from _values(value)
        else:
            yield one, value


def _fields(record: Any) -> Iterator[Field[Any]]:
    for one, annotation in _annotations(record):
        if is_dataclass(annotation):
            yield from _fields(annotation)
        else:
            yield one


def lacking(needed: Mapping[str, Any]) -> str:
    """The options of those needed that were not given, in words."""
    *others, last = [f"`{name}`" for name, value in needed.items() if value is None] or [""]
    return f"{', '.join(others)} and {last}" if others else last


#: Of a command whose answer has no more than two levels.
BRIEF = option("--brief", "Print the answer in one line.", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How much of a result is printed."""

    brief: bool = BRIEF
    formulas: bool = option("--formulas", "Print closed forms, too.", default=False)
    full: bool = option("--full", "Print all: formulas, how they follow, and what is taken for granted.", default=False)

    def detail(self, forms: Collection[str], problems: Problems) -> Detail:
        """The level that is asked for. ``forms``: options that choose another form of output, which has everything."""
        asked = given(self)
        if len(asked) > 1:
            problems.add(
                "PP104", f"{' and '.join(f'`{name}`' for name in asked)} exclude one another", help="each has what the one before has"
            )
        if asked and forms:
            help = "leave one of them out: other forms of output have everything"
            problems.add("PP104", f"`{asked[0]}` does not go with `{next(iter(forms))}`", help=help)
        return "full" if self.full else "formulas" if self.formulas else "answer" if self.brief else "usual"


def read_as(subjects: Sequence[Subject]) -> Document | None:
    """What the configurations among the subjects were read as; None where there is none."""
    from placeproof.answers.subject import imported

    if not (every := imported(subjects)):
        return None
    from placeproof.report.imported import document

    return document(every, alone=len(subjects) == 1)


def picture_path(plot: str | None) -> Path | None:
    """Where a picture goes, if it can: work is not to end in a wrong path. Raises InputError."""
    return None if plot is None else output("--plot", plot, "a picture is written as SVG", ".svg")


def page_path(html: str | None) -> Path | None:
    """Where a page goes, as :func:`picture_path`."""
    return None if html is None else output("--html", html, "a page is written as HTML", ".html")


def cluster_path(out: str | None) -> Path | None:
    """Where a cluster's file goes, as :func:`picture_path`."""
    return None if out is None else output("--out", out, "a cluster is written as TOML", ".toml")


def output(option: str, text: str, what: str, ending: str) -> Path:
    """The path of a file of one kind, if it can be written. Raises InputError."""
    path = Path(text)
    if path.suffix.lower() != ending:
        refuse("PP104", f"`{option} {text}`: {what}", help=f"give a file that ends in {ending}: {path.stem}{ending}")
    if not os.path.isdir(path.parent) or os.path.isdir(path):
        refuse("PP104", f"`{option} {text}`: no file can be written there", help="give a file in a folder that exists")
    return path


HtmlOption = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE.html", help="Write the result as a page to look at, too: one file that loads nothing."),
]
ProfileOption = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="As a system runs it: `placeproof list profiles`. [default: ideal]")
]
WithOption = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="NAME", help="Another implementation of the profile than the usual one; may be repeated."),
]
ShapesOption = Annotated[
    str | None,
    typer.Option(
        "--shapes", metavar="FILE", help="Exact bytes for a model: a file of shapes, a config.json, or `transformer(layers=2, ...)`."
    ),
]
ShapesFromOption = Annotated[
    str | None,
    typer.Option(
        "--shapes-from",
        metavar="transformers",
        help="`transformers`: the shapes of a config.json are those of the model that it builds, in a process of its own.",
    ),
]
ShapesToOption = Annotated[
    str | None, typer.Option("--shapes-to", metavar="FILE", help="Write the shapes to a file that `--shapes` reads.")
]
RankOption = Annotated[int, typer.Option("--rank", min=0, help="Of which device exact bytes are told.")]
OptionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="NAME=VALUE", help="For exact bytes: dtype=bfloat16, optimizer=sgd, ...: `how-to/exact-bytes` lists them."
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="SYSTEM", help="The subject is a configuration, a file or its text: deepspeed, megatron, torchtitan, verl, ..."
    ),
]
World = Annotated[
    int | None,
    typer.Option(
        "--world", metavar="N", min=1, help="The number of devices: of a configuration, or of a strategy of which one degree is open."
    ),
]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME=VALUE", help="A variable that a launch script gets from outside, or `1=VALUE`; may be repeated."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What is set, and how configurations are read."""

    set_: list[str] | None = option("--set", "Give a symbol a value; may be repeated.", metavar="NAME=VALUE")
    precision: str | None = option("--precision", "Byte widths for numbers: `placeproof list precisions`. [default: mixed-adam]")
    from_: From = None
    world: World = None
    env: Env = None

    def read(self, texts: Sequence[str]) -> list[Subject]:
        """What each argument is. Raises InputError."""
        from placeproof.answers.subject import Expression, read_all

        return read_all(texts, system=self.from_, world=self.world, env=self.env or (), placed=(Expression,))

    def on(self, subject: Subject) -> int | None:
        """The number of devices that a strategy is put on; a configuration has been read with it."""
        from placeproof.answers.subject import Configuration

        return None if isinstance(subject, Configuration) else self.world

    def settings(self, subjects: Sequence[Subject] = ()) -> Settings:
        """The numbers, and those of configurations among the subjects."""
        from placeproof.answers.numbers import Settings
        from placeproof.answers.subject import imported

        return Settings(given=self.set_ or [], precision=self.precision, imported=imported(subjects))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    """What exact bytes are of."""

    shapes: ShapesOption = None
    rank: RankOption = 0
    option: OptionOption = None
    shapes_from: ShapesFromOption = None
    shapes_to: ShapesToOption = None

    def check(self, problems: Problems, *, without: Collection[str] = ()) -> None:
        """Options that need shapes, but for those that go ``without``."""
        names = [name for name in given(self) if name not in without]
        if self.shapes is None and names:
            problems.add("PP104", f"`{names[0]}` is about exact bytes", help="add `--shapes FILE`")

    def read(self) -> Shapes:
        """The shapes, written down if that is asked for. Raises InputError."""
        from placeproof.answers.subject import shapes
        from placeproof.importers import render_shapes

        path = None if self.shapes_to is None else output("--shapes-to", self.shapes_to, "shapes are written as TOML", ".toml")
        found = shapes(str(self.shapes), self.shapes_from)
        if path is not None:
            files.write_text(path, render_shapes(found))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class OfModel:
    """What is said of a model."""

    model: str | None = option(
        "--model", "Of a model: `placeproof list models`, a file, or a config.json of transformers.", metavar="MODEL"
    )
    recompute: str | None = option(
        "--recompute",
        "What backward computes again; `selective+norms` says several, `full:3` the first 3 layers of each run, `full:3,1,0` so many of"
        " each stage, `full/3` all of them from the input of every third. [default: what the strategy says, else none]",
        metavar="none|full|selective|norms|mlp",
    )
    stages: str | None = option("--stages", "Layers of each pipeline stage, where they are not as many.", metavar="N,N,...")
    width: list[str] | None = option(
        "--width", "Bytes of an element of a value that is kept, block.value or value; may be repeated.", metavar="NAME=BYTES"
    )
    fp8: bool = option(
        "--fp8", "Keep in one byte what layers keep for products of matrices that give gradients by weights alone.", default=False
    )
    vocab_padding: str | None = option(
        "--vocab-padding",
        "Pad the vocabulary to a multiple of N tokens a part. [default: 128 where parts would be unequal, as Megatron-LM]",
        metavar="N|none",
    )
    implementation: str | None = option(
        "--implementation",
        "What a framework keeps in memory: `placeproof list implementations`, or a file. [default: what blocks say]",
        metavar="NAME|FILE",
    )
    cluster: str | None = option(
        "--cluster", "Time a step on a cluster: docs/reference/clusters.md; a file ends in .toml.", metavar="NAME|FILE"
    )
    efficiency: str | None = option(
        "--efficiency",
        "The share of the peak that computing reaches: eta. [default: what the cluster says of kernels, else half]",
        metavar="half|peak|NUMBER",
    )
    order: str | None = option(
        "--order",
        "Axes of the mesh on a cluster, from neighbouring devices outwards. [default: tp,cp,ep,dp,pp]",
        metavar="AXIS,AXIS,...",
    )
    overlap: str | None = option("--overlap", "Which exchanges hide behind computing. [default: data]", metavar="none|data|all")
    reserve: str | None = option(
        "--reserve", "What a device needs for all but tensors, 6GB. [default: the ranges that are known]", metavar="BYTES"
    )

    @property
    def given(self) -> list[str]:
        """The options that say something of the model, as they are written."""
        return [name for name in given(self) if name != "--model"]

    def check(self, problems: Problems) -> None:
        """Options without a model."""
        if self.model is None and self.given:
            listed = ", ".join(f"`{name}`" for name in self.given)
            problems.add("PP104", f"options that speak of a model need one: {listed}", help="for example `--model llama3-8b`")

    def run(self, problems: Problems) -> ModelRun:
        """How the model is run; what is wrong is added to the problems."""
        from placeproof.answers.models import ModelRun
        from placeproof.cost.model.recomputation import words

        with problems.collecting():
            words("none" if self.recompute is None else self.recompute)
        return ModelRun(
            recompute=self.recompute,
            layers=_layers(self.stages, problems),
            widths=_widths(self.width or (), problems),
            fp8=self.fp8,
            padding=_padding(self.vocab_padding, problems),
            run_by=self._run_by(problems),
        )

    def _run_by(self, problems: Problems) -> BlockImplementation | None:
        """The implementation that runs the model's blocks."""
        from placeproof.implementations import find

        if self.implementation is not None:
            with problems.collecting():
                return find(self.implementation)
        return None

    def clock(self, settings: Sequence[str], problems: Problems) -> Clock | None:
        """What the step is timed with, if it is; what is wrong is added to the problems."""
        from placeproof.answers.models import Clock
        from placeproof.answers.numbers import byte_count
        from placeproof.clusters import find
        from placeproof.cost.model.time import DEFAULT_OVERLAP, OVERLAP

        overlap = DEFAULT_OVERLAP if self.overlap is None else self.overlap
        if overlap not in OVERLAP:
            problems.add("PP104", f"there is no overlap `{overlap}`", help=suggestion(overlap, OVERLAP) or f"one of {', '.join(OVERLAP)}")
        alone = [name for name in self.given if name in ("--efficiency", "--order", "--overlap", "--reserve")]
        if self.cluster is None and alone:
            verb = "speaks" if len(alone) == 1 else "speak"
            problems.add(
                "PP104",
                f"{' and '.join(alone)} {verb} of a step on devices, which needs a cluster",
                help="for example `--cluster dgx-h100`",
            )
        eta = _efficiency(self.efficiency, settings, problems)
        reserve = None
        with problems.collecting():
            reserve = None if self.reserve is None else byte_count(self.reserve)
        order = None if self.order is None else tuple(name.strip() for name in self.order.split(","))
        if self.cluster is not None:
            with problems.collecting():
                return Clock(cluster=find(self.cluster), eta=eta, overlap=overlap, order=order, reserve=reserve)  # type: ignore[arg-type]
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfStep(OfModel):
    """What is said of a model's step."""

    global_batch: int | None = option(
        "--global-batch",
        "Sequences of a step, of which micro-batches follow. [default: b = 1, and a micro-batch for each stage]",
        metavar="N",
        min=1,
    )

    def accumulated(self, step: StepTime | None, clock: Clock | None, **asked: Any) -> Member | None:
        """Of a step that does not fit, one that accumulates gradients and does. ``asked``: the fields of
        :class:`placeproof.answers.fit.Question` besides."""
        from placeproof.answers.fit import Question, accumulated

        return None if step is None or clock is None else accumulated(Question(clock=clock, batch=self.global_batch, **asked), step)


def _widths(texts: Sequence[str], problems: Problems) -> dict[str, int]:
    """What ``--width`` says, as far as it is well formed."""
    widths: dict[str, int] = {}
    for text in texts:
        name, _, number = (part.strip() for part in text.partition("="))
        if not name or not re.fullmatch(r"[1-9][0-9]?", number):
            help = "a whole number from 1 to 99, for example `--width rms_norm.n=1`"
            problems.add("PP202", f"`--width {text}` is not NAME=BYTES", help=help)
        elif name in widths:
            problems.add("PP202", f"`--width` says twice how wide `{name}` is", help="say it once")
        else:
            widths[name] = int(number)
    return widths


def _padding(text: str | None, problems: Problems) -> int | None:
    if text is None or text == "none":
        return None if text is None else 0
    if re.fullmatch(r"[1-9][0-9]{0,5}", text):
        return int(text)
    problems.add("PP202", f"`--vocab-padding {text}` is no number of tokens", help="a whole number such as 128, or `none`")
    return None


def _layers(stages: str | None, problems: Problems) -> list[int] | None:
    if stages is None:
        return None
    if (layers := stage_layers(stages)) is not None:
        return [*layers]
    problems.add("PP202", f"`--stages {stages}` lists no numbers of layers", help="for example `--stages 7,8x14,7`: 7, fourteen times 8, 7")
    return None


def _efficiency(text: str | None, settings: Sequence[str], problems: Problems) -> Fraction | None:
    """The share of the peak; a problem where it is given twice, or is no share."""
    from placeproof.cost.model.time import EFFICIENCY

    if text is None:
        return None
    if any(setting.partition("=")[0].strip() == "eta" for setting in settings):
        problems.add("PP205", "`--efficiency` and `--set eta` say the same thing", help="say it once")
    value = EFFICIENCY[text][0] if text in EFFICIENCY else None
    if re.fullmatch(r"[0-9]{0,6}\.?[0-9]{1,9}|[0-9]{1,9}/[1-9][0-9]{0,8}", text):
        value = Fraction(text)
    if value is None or not 0 < value <= 1:
        help = suggestion(text, EFFICIENCY) or "half, peak, or a number above 0 and up to 1, such as 0.4"
        problems.add("PP104", f"`--efficiency {text}` is no share of the peak", help=help)
    return value
