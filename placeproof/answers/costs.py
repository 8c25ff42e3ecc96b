"""What a strategy costs, in symbols, for a model, in bytes of one device, in seconds: the records of the layers below, as answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from placeproof.answers import subject as subjects
from placeproof.answers.answer import Answer, Asked, Setting, answer, asked, texts
from placeproof.answers.models import ModelRun, clock_of, derived, timed
from placeproof.answers.numbers import Settings
from placeproof.answers.shapes import mesh_of, options_of
from placeproof.core.diagnostics import Problems
from placeproof.core.precision import OPEN
from placeproof.core.strategy import Strategy
from placeproof.cost.derive import Derivation, derive_shards
from placeproof.cost.exact.bytes import ExactBytes, exact_bytes, require_rank
from placeproof.cost.exact.choose import chosen
from placeproof.cost.model.derivation import ModelDerivation
from placeproof.cost.model.time import DEFAULT_OVERLAP, Overlap, StepTime
from placeproof.cost.uneven import Shards, read_shards
from placeproof.cost.values import Numbers
from placeproof.implementations import find
from placeproof.profiles.profile import profile as read_profile
from placeproof.report import derivation as closed_forms
from placeproof.report.models import derivation as model_costs
from placeproof.report.models import exact, time
from placeproof.report.models.answer import answer as model_answer
from placeproof.semantics.scheduled import require_order

if TYPE_CHECKING:
    from placeproof.answers.configuration import WrittenConfiguration
    from placeproof.answers.proof import Judgement
    from placeproof.clusters import Cluster
    from placeproof.core.shapes import Shapes
    from placeproof.importers import Imported
    from placeproof.models import Model
    from placeproof.report.document import Document


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class Formulas(Answer, Derivation):
    """Closed forms of a strategy or of a step program. ``numbers``: what is set; ``shards``: fractions of uneven parts; ``imported``: the
    configurations that it comes from."""

    numbers: Numbers
    shards: Shards | None = None
    imported: tuple[Imported, ...] = ()

    @property
    def document(self) -> Document:
        """What it says."""
        return closed_forms.document(self, self.numbers, self.shards)

    def model(self, model: str | Model, **options: Any) -> ModelFormulas:
        """What a model costs under the strategy: :func:`placeproof.model`."""
        return model_formulas(self._strategy(), model, **options)

    def bytes(
        self,
        shapes: str | Shapes,
        *,
        profile: str = "ideal",
        implementations: Sequence[str] = (),
        rank: int = 0,
        degrees: Mapping[str, int] | None = None,
        options: Mapping[str, Setting] | None = None,
        shapes_from: str | None = None,
    ) -> DeviceBytes:
        """Exact bytes of one device, as ``placeproof derive --shapes`` gives them.

        ``shapes``: a file of shapes, a config.json, or ``transformer(layers=2, ...)``; ``degrees``: those that the strategy leaves open, by
        symbol; ``options``, ``shapes_from``: as those of the command line. Raises InputError.
        """
        problems = Problems()
        model = (lambda: subjects.shapes(shapes, shapes_from)) if isinstance(shapes, str) else (lambda: shapes)
        run = AsRun(profile=profile, implementations=implementations, rank=rank, options=texts(options))
        made = device_bytes(self._strategy, model, run, texts(degrees), problems)
        problems.raise_if_any()
        return made()

    def prove(self, *, without: Iterable[str] = ()) -> Judgement:
        """Whether it trains what one device trains: :func:`placeproof.judge`."""
        from placeproof.answers.proof import judgement

        return judgement(self.program if self.strategy is None else self.strategy, without=without)

    def configuration(
        self, system: str, *, model: str | Model | None = None, precision: str | None = None, **numbers: Setting
    ) -> WrittenConfiguration:
        """The strategy as a configuration file, ``text`` with ``notes``, as ``placeproof derive --as`` prints them.

        ``system``: accelerate, deepspeed, megatron or torchtitan. ``model``: its sizes are written as far as the system has settings for
        them. ``precision``, ``numbers``: byte widths and symbols that the file says, as ``b=1``. Degrees that were set hold. Raises
        InputError where no configuration of the system reads back as the strategy.
        """
        from placeproof.answers.configuration import configuration

        held = {name: self.numbers.values[name] for name in self.numbers.given if name in self.degree_values}
        settings = Settings(given=texts({**held, **numbers}), precision=precision, imported=self.imported)
        return configuration(self._strategy(), system, settings, subjects.model(model) if isinstance(model, str) else model)

    def _strategy(self) -> Strategy:
        return self.strategy or subjects.refuse_program(self.name)


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class ModelFormulas(Answer, ModelDerivation):
    """What a model costs under a strategy. ``numbers``: what is set besides its sizes."""

    numbers: Numbers

    @property
    def document(self) -> Document:
        """What it says."""
        return model_costs.document(self, self.numbers)

    def time(
        self,
        cluster: str | Cluster,
        *,
        efficiency: Setting | None = None,
        overlap: Overlap = DEFAULT_OVERLAP,
        order: Sequence[str] | None = None,
        reserve: Setting | None = None,
    ) -> StepSeconds:
        """How long a step takes on a cluster: a name, or a file, and whether it fits there. ``efficiency``: the share of the peak that
        computing reaches; ``order``: axes from neighbouring devices outwards, where they do not lie as usual; ``reserve``: bytes that a
        device needs for all but tensors, ``"6GB"``.

        Raises InputError where a symbol that time depends on is not set, such as ``b``.
        """
        clock = clock_of(cluster, efficiency=efficiency, overlap=overlap, order=order, reserve=reserve)
        _, step = timed(self, self.numbers, clock)
        return answer(StepSeconds, step)


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class StepSeconds(Answer, StepTime):
    """How long a step of a model takes on a cluster."""

    @property
    def document(self) -> Document:
        """What it says."""
        base, numbers = time.document(self.form, self), Numbers(values=self.price.values, given=(), precision=OPEN, asked=True)
        return replace(base, sections=lambda: [*model_answer(self.d, numbers, self), *base.sections()])


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class DeviceBytes(Answer, ExactBytes):
    """Exact bytes of one device."""

    @property
    def document(self) -> Document:
        """What it says."""
        return exact.document(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class AsRun:
    """How a system runs a strategy, and of which device bytes are told; ``options``: NAME=VALUE texts."""

    profile: str | None = None
    implementations: Sequence[str] = ()
    rank: int = 0
    options: Sequence[str] = ()


def device_bytes(
    strategy: Callable[[], Strategy],
    shapes: Callable[[], Shapes],
    run: AsRun,
    settings: Sequence[str],
    problems: Problems,
    *,
    others: bool = False,
) -> Callable[[], DeviceBytes]:
    """Exact bytes of one device, to be had by a call once there are no problems. ``settings``: NAME=VALUE texts, degrees; ``others``:
    whether other symbols may be among them."""
    runs = problems.attempt(lambda: chosen(read_profile(run.profile or "ideal"), strategy(), tuple(run.implementations)))
    wanted = problems.attempt(shapes)
    options = problems.attempt(lambda: options_of(run.options))
    mesh = problems.attempt(lambda: mesh_of(strategy(), settings, others=others))
    problems.attempt(lambda: require_rank(mesh(), run.rank))
    return lambda: answer(DeviceBytes, exact_bytes(strategy(), runs(), wanted(), mesh(), rank=run.rank, options=options()))


def formulas(
    subject: Asked, *, groups: bool = False, shards: Iterable[str] = (), precision: str | None = None, **numbers: Setting
) -> Formulas:
    """Closed forms, with numbers where some are set: :func:`placeproof.derive`."""
    (target, imported), parts = asked(subject), list(shards)
    uneven = read_shards(parts) if parts else None
    d = derive_shards(target, uneven, groups=groups)
    settings = Settings(given=texts(numbers), precision=precision, imported=imported)
    numbered = settings.numbers(symbols=d.symbols, degrees=d.degree_values)
    if d.strategy is not None:
        require_order(d.strategy, numbered.values)
    return answer(Formulas, d, numbers=numbered, shards=uneven, imported=tuple(imported))


def model_formulas(
    subject: Asked,
    model: str | Model,
    *,
    recompute: str | None = None,
    stages: Sequence[int] | None = None,
    widths: Mapping[str, int] | None = None,
    fp8: bool = False,
    vocab_padding: int | None = None,
    implementation: str | None = None,
    world: int | None = None,
    global_batch: int | None = None,
    precision: str | None = None,
    **numbers: Setting,
) -> ModelFormulas:
    """What a model costs: :func:`placeproof.model`."""
    target, imported = asked(subject)
    strategy = target if isinstance(target, Strategy) else subjects.refuse_program(target.name)
    read = subjects.model(model) if isinstance(model, str) else model
    run_by = None if implementation is None else find(implementation)
    run = ModelRun(recompute=recompute, layers=stages, widths=widths or {}, fp8=fp8, padding=vocab_padding, run_by=run_by)
    settings = Settings(given=texts(numbers), precision=precision, imported=imported)
    d, rest = derived(read, strategy, run, settings.of_model(strategy.axes, strategy.schedule.microbatches, world, global_batch), imported)
    return answer(ModelFormulas, d, numbers=rest)
