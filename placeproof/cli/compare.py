"""``placeproof compare``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from placeproof.cli.options import Exact, Given, HtmlOption, OfStep, Shown, option, page_path, read_as, takes
from placeproof.cli.terminal import show
from placeproof.core.diagnostics import Diagnostic, InputError, Problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from placeproof.answers.subject import Subject
    from placeproof.core.strategy import Strategy
    from placeproof.cost.compare import Comparison
    from placeproof.cost.derive import Derivation
    from placeproof.cost.model.comparison import ModelComparison
    from placeproof.cost.values import Numbers
    from placeproof.profiles.profile import Implementation
    from placeproof.report.document import Document, Live


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line."""

    strategies: Annotated[
        list[str], typer.Argument(help="Two or more strategies, step programs or configurations; or profiles, with `--of`.")
    ]
    given: Given
    of: str | None = option("--of", "Compare profiles: how each runs this strategy.", metavar="STRATEGY")
    exact: Exact
    about: OfStep
    shown: Shown
    html: HtmlOption = None
    json_: bool = option("--json", "Print JSON (schema placeproof.compare/1; with --model, placeproof.compare-models/1).", default=False)


@takes(Options)
def command(options: Options) -> None:
    """Strategies side by side at the same world size: ratios, limits, and where one overtakes another; or for a model, in numbers."""
    problems = Problems()
    options.about.check(problems)
    options.exact.check(problems)
    detail = options.shown.detail(["--json"] if options.json_ else [], problems)
    path = problems.attempt(lambda: page_path(options.html))
    beside = [f"`{name}`" for name, text in (("--of", options.of), ("--shapes", options.exact.shapes)) if text is not None]
    if options.about.model is not None and beside:
        verb = "does" if len(beside) == 1 else "do"
        problems.add("PP104", f"{' and '.join(beside)} {verb} not go with `--model`", help="leave one of them out; `--json` goes with it")
    document = _strategies(options, problems) if options.of is None else _profiles(options, options.of, problems)
    show(document, json_=options.json_, ascii=False, detail=detail, page=path())


def _strategies(o: Options, problems: Problems) -> Document:
    from placeproof.profiles.profile import names
    from placeproof.report.document import joined

    if set(o.strategies) <= set(names()):
        problems.add("PP102", "profiles are compared on a strategy", help=f"`placeproof compare {' '.join(o.strategies)} --of fsdp`")
        problems.raise_if_any()
    if o.exact.shapes is not None and o.about.model is None:
        problems.add("PP104", "`--shapes` compares profiles", help="`placeproof compare ideal torch-2.13 --of fsdp --shapes FILE`")
    if len(o.strategies) < 2:
        problems.add("PP102", "a comparison needs two strategies", help="for example `placeproof compare ddp zero3`")
    subjects: list[Subject] = []
    with problems.collecting():
        subjects = o.given.read(o.strategies)
    document = _formulas(o, subjects, problems) if o.about.model is None else _models(o, subjects, problems)
    return joined({"": document}, read_as(subjects), "imported")


def _formulas(o: Options, subjects: Sequence[Subject], problems: Problems) -> Document:
    from placeproof.report.compare import document

    return document(*of_formulas(o, subjects, problems))


class Compared(Protocol):
    """What a command that compares is asked with."""

    @property
    def given(self) -> Given:
        """What is set."""

    @property
    def about(self) -> OfStep:
        """What is said of a model."""


def of_formulas(o: Compared, subjects: Sequence[Subject], problems: Problems) -> tuple[Comparison, Numbers]:
    """The closed forms of strategies, and what is set. Raises InputError."""
    from placeproof.cost.compare import Comparison, known
    from placeproof.semantics.scheduled import require_order

    members, settings = problems.attempt(lambda: derive_all(subjects)), o.given.settings(subjects).on(o.given.world)
    problems.attempt(settings.check)
    problems.raise_if_any()
    numbers = settings.numbers(symbols={name for d in members() for name in d.symbols})
    for strategy in (d.strategy for d in members() if d.strategy is not None):
        require_order(strategy, numbers.values)
    return Comparison(tuple(members()), known(numbers)), numbers


def derive_all(subjects: Sequence[Subject]) -> list[Derivation]:
    """The closed forms of each. What cannot be read is said of all, and then what cannot be derived. Raises InputError."""
    from placeproof.answers.subject import costed
    from placeproof.cost.derive import derive

    problems = Problems()
    read = [problems.attempt(partial(costed, subject)) for subject in subjects]
    problems.raise_if_any()
    members = [problems.attempt(partial(derive, costed_subject())) for costed_subject in read]
    problems.raise_if_any()
    return [member() for member in members]


def _models(o: Options, subjects: Sequence[Subject], problems: Problems) -> Document:
    from placeproof.answers import subject as read
    from placeproof.report.models.compare import document

    found, numbers = of_model(o, subjects, problems)

    def moving() -> Live | None:
        from placeproof.answers.opened import compared

        return compared(read.model(str(o.about.model)), found)

    return replace(document(found, numbers), live=moving)


def of_model(o: Compared, subjects: Sequence[Subject], problems: Problems) -> tuple[ModelComparison, Numbers]:
    """What a model costs under each strategy. Raises InputError with every problem, each with the strategy that it is of."""
    from placeproof.answers import subject as read
    from placeproof.answers.models import derived, timed
    from placeproof.answers.numbers import check_degrees
    from placeproof.cost.model.comparison import Member, ModelComparison

    numbers = problems.attempt(o.given.settings(subjects).numbers)
    run, clock = o.about.run(problems), o.about.clock(o.given.set_ or [], problems)
    model = problems.attempt(lambda: read.model(str(o.about.model)))
    strategies = [problems.attempt(partial(read.strategy, subject)) for subject in subjects]
    problems.raise_if_any()
    check_degrees((strategy().axes for strategy in strategies), numbers(), problems)
    members, assumed = [], dict[str, None]()
    for subject, strategy in zip(subjects, (strategy() for strategy in strategies), strict=True):
        sources = [subject] if isinstance(subject, read.Configuration) else subjects
        try:
            known = strategy.axes, strategy.schedule.microbatches
            settings, world, own = o.given.settings(sources), o.given.on(subject), read.imported([subject])
            settled = settings.of_model(*known, world, o.about.global_batch)
            d, rest = derived(model(), strategy, run, settled, own)
            rest, step = timed(d, rest, clock)
            less = o.about.accumulated(step, clock, model=model(), strategy=strategy, run=run, settings=settings, world=world, read=own)
            members.append(Member(d=d, values=rest.values if rest.asked else {}, step=step, accumulated=less))
            assumed |= dict.fromkeys(settled.assumed)
        except InputError as error:
            problems.found += [_of(strategy, problem) for problem in error.diagnostics]
    problems.raise_if_any()
    return ModelComparison(members=members), replace(numbers(), assumed=tuple(assumed))


def _of(strategy: Strategy, problem: Diagnostic) -> Diagnostic:
    """A problem of one strategy among several."""
    return replace(problem, message=f"{strategy.name}: {problem.message}")


def _profiles(o: Options, of: str, problems: Problems) -> Document:
    """How profiles run a strategy: exact bytes for a model, closed forms without one. Raises InputError."""
    from placeproof.answers import subject as read
    from placeproof.cost.exact.choose import realised_text

    problems.raise_if_any()
    if len(o.strategies) < 2:
        problems.add("PP102", "a comparison needs two profiles", help="for example `placeproof compare ideal torch-2.13 --of fsdp`")
    for name, value in (("--from", o.given.from_), ("--world", o.given.world), ("--env", o.given.env)):
        if value is not None:
            problems.add("PP505", f"`{name}` goes with a configuration", help="`--of` takes a strategy")
    if o.exact.shapes is not None and o.given.precision:
        problems.add("PP104", "exact bytes are no formulas: `--precision` does not go with `--shapes`", help="leave one of the two out")
    strategy = read.strategy(read.Expression(text=of))
    runs = {name: problems.attempt(partial(_implementations, name, strategy)) for name in dict.fromkeys(o.strategies)}
    problems.raise_if_any()
    every = {name: implementations() for name, implementations in runs.items()}
    programs = {name: realised_text(strategy, one) for name, one in every.items()}
    return _realised(o, programs, every) if o.exact.shapes is None else _exact(o, strategy, programs, every)


def _implementations(name: str, strategy: Strategy) -> tuple[Implementation, ...]:
    from placeproof.cost.exact.choose import chosen
    from placeproof.profiles.profile import profile

    return chosen(profile(name), strategy)


def _exact(o: Options, strategy: Strategy, programs: Mapping[str, str], every: Mapping[str, tuple[Implementation, ...]]) -> Document:
    from placeproof.answers.shapes import mesh_of, options_of
    from placeproof.cost.exact.bytes import exact_bytes, require_rank
    from placeproof.cost.exact.options import check_options, taken
    from placeproof.report.models.exact import comparison

    model, options, mesh = o.exact.read(), options_of(o.exact.option or []), mesh_of(strategy, o.given.set_ or [])
    require_rank(mesh, o.exact.rank)
    check_options(tuple(i for one in every.values() for i in one), options)
    theirs = {name: {k: v for k, v in options.items() if k in taken(one)} for name, one in every.items()}
    answers = {n: exact_bytes(strategy, one, model, mesh, rank=o.exact.rank, options=theirs[n]) for n, one in every.items()}
    return comparison(answers, programs)


def _realised(o: Options, programs: Mapping[str, str], every: Mapping[str, tuple[Implementation, ...]]) -> Document:
    """Closed forms of the strategy as each profile lowers it."""
    from placeproof.answers.subject import Expression
    from placeproof.cost.compare import Comparison, known
    from placeproof.report.compare import document
    from placeproof.report.document import Lines, section
    from placeproof.report.models.exact import named

    numbers = o.given.settings().numbers()
    members = derive_all([Expression(text=text) for text in dict.fromkeys(programs.values())])
    compared = document(Comparison(tuple(members), known(numbers)), numbers)
    who = section("", Lines([f"{name}: {text}" for name, text in programs.items()]))
    return replace(compared, sections=lambda: [who, *compared.sections(), *named(every)])
