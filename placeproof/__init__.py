"""placeproof derives what a parallelism strategy costs, and proves that it trains what one device trains.

>>> import placeproof
>>> d = placeproof.derive("zero3")
>>> d.memory["model_states"]
P*(b_g + b_omega + b_theta)/N
>>> d.sent
P*(N - 1)*(b_g + 2*b_theta)/N

Catalogue strategies are attributes; they compose with ``*`` and take degrees and options:

>>> placeproof.derive(placeproof.zero1(64) * placeproof.tp(8)).memory["optimizer"]
P*b_omega/512

>>> placeproof.judge("zero3 * tp * pp").word
'proved'
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from placeproof.answers.answer import Setting
    from placeproof.answers.costs import Formulas, ModelFormulas
    from placeproof.answers.fit import FitAnswer
    from placeproof.answers.plan import Planned
    from placeproof.answers.proof import Judgement, ModelJudgement
    from placeproof.core.strategy import Strategy
    from placeproof.models import Model
    from placeproof.programs import Program
    from placeproof.strategies import Template

__version__ = "0.1.0"
__all__ = ["__version__", "define", "derive", "fit", "judge", "model", "plan", "program", "strategy"]


def strategy(text: str) -> Strategy:
    """The strategy of an expression such as ``zero1(64) * tp(8)`` or ``mine.toml``. Raises InputError."""
    from placeproof.strategies import parse_strategy

    return parse_strategy(text)


def define(name: str, **tables: Any) -> Template:
    """A strategy of your own, with the keys and tables of a strategy file.

    >>> mine = define("mine", axes={"dp": {}}, placement={"dp": {"parameters": "S*", "optimizer": "S", "gradients": "S"}})
    >>> derive(mine(8)).memory["model_states"]
    P*(b_g + b_omega + b_theta)/8

    Raises InputError with everything that is wrong with it.
    """
    from placeproof.strategies import read_data

    return read_data({"name": name, **tables})


def program(text: str, *, source: str = "<program>") -> Program:
    """The step program of a text. Raises InputError."""
    from placeproof.programs import read

    return read(text, source=source)


def derive(
    subject: str | Strategy | Template | Program,
    *,
    groups: bool = False,
    shards: Iterable[str] = (),
    precision: str | None = None,
    **numbers: Setting,
) -> Formulas:
    """Closed-form costs of a strategy (an expression, its file, a strategy or a catalogue entry) or of a step program.

    ``shards``: uneven parts of axes, as the command line takes them: ``["dp=2:1:1"]``; ``precision`` and ``numbers``: what is set, as with
    ``--set``: ``derive("zero3", P=70e9, N=64)``. The answer shows itself; its methods ``model``, ``bytes`` and ``prove`` ask on. Raises
    :class:`placeproof.core.diagnostics.InputError` when the input cannot be used.
    """
    from placeproof.answers.costs import formulas

    return formulas(subject, groups=groups, shards=shards, precision=precision, **numbers)


def model(subject: str | Strategy | Template | Program, model: str | Model, **options: Any) -> ModelFormulas:
    """What a model costs under a strategy: what ``placeproof derive --model`` says.

    ``model``: a preset, a family, a file, a config.json, or a model. ``options``: ``recompute``, ``stages`` (layers of each pipeline
    stage), ``widths`` (bytes of an element by ``block.value``), ``fp8``, ``vocab_padding`` (0 for none), ``implementation`` (of blocks:
    ``"megatron-te-2.11"``), ``world`` (devices, which decide one open degree), ``global_batch`` (sequences of a step), ``precision``, and
    symbols; what nobody says of b and m is one sequence, and a micro-batch for each stage:
    ``model("fsdp(64)", "llama3-8b", b=1, s=4096).time("dgx-h100")``.

    Raises :class:`placeproof.core.diagnostics.InputError` when the input cannot be used.
    """
    from placeproof.answers.costs import model_formulas

    return model_formulas(subject, model, **options)


def fit(subject: str | Strategy | Template | Program, model: str | Model, cluster: str, **options: Any) -> FitAnswer:
    """What of a model fits under a strategy on a cluster: what ``placeproof fit`` says.

    The answer's ``fits`` says whether the step does; ``microbatch``, ``sequence`` and ``devices`` how far each can go, ``changes`` what
    saves memory. ``options``: those of :func:`model`, and ``efficiency``, ``overlap``, ``order`` and ``reserve``:
    ``fit("fsdp(8)", "llama3-8b", "dgx-h100").microbatch.best``.

    Raises :class:`placeproof.core.diagnostics.InputError` when the input cannot be used.
    """
    from placeproof.answers.fit import fitted

    return fitted(subject, model, cluster, **options)


def plan(model: str | Model, cluster: str, devices: int | Sequence[int], **options: Any) -> Planned:
    """The best placements of a model on so many devices of a cluster, or on one of several numbers of them: what ``placeproof plan`` says.

    ``options``: ``batch`` (sequences of a step) or ``tokens``; ``only``, ``forbid`` and ``most`` (choices that are pinned, texts as on the
    command line: ``only=["tp=8"]``), ``count`` (how many plans), ``why`` (strategies that are asked about), ``objective`` (``time``,
    ``memory`` or ``tokens-per-device``), ``pareto`` (whether also those that nothing beats in both time and memory), ``uneven`` (whether
    layers are shared out over stages as is best), ``surely_fit`` (whether all that was ever seen reserved has to fit, too), ``efficiency``,
    ``overlap``, ``reserve``, ``implementation``, ``fp8``, ``vocab_padding``, ``precision``, and symbols:
    ``plan("llama3-8b", "dgx-h100", 16, batch=64, s=4096)``.

    Raises :class:`placeproof.core.diagnostics.InputError` when the input cannot be used.
    """
    from placeproof.answers.plan import planned

    return planned(model, cluster, devices, **options)


@overload
def judge(subject: str | Strategy | Template | Program, *, model: None = None, without: Iterable[str] = ()) -> Judgement: ...


@overload
def judge(subject: str | Strategy | Template | Program, *, model: str | Model, without: Iterable[str] = ()) -> ModelJudgement: ...


def judge(
    subject: str | Strategy | Template | Program, *, model: str | Model | None = None, without: Iterable[str] = ()
) -> Judgement | ModelJudgement:
    """Whether a strategy (an expression, its file, a strategy or a catalogue entry) or a step program trains what one device trains.

    ``without``: names of assumptions that are not made (:data:`placeproof.programs.assumptions.ASSUMPTIONS`). The answer's ``word`` is
    ``proved``, ``refuted`` or ``unknown``; ``settled`` are its obligations, ``found`` the run that refutes it. ``model``: that of which the
    step is, a preset, a family, a file, a config.json, or a model: then ``blocks`` are the judgements of its blocks, ``step`` that of the
    step.

    Raises :class:`placeproof.core.diagnostics.InputError` when the input cannot be used.
    """
    from placeproof.answers.proof import judgement, judgement_of_model

    return judgement(subject, without=without) if model is None else judgement_of_model(subject, model, without=without)


def __getattr__(name: str) -> Any:
    """A strategy of the catalogue, by name."""
    if not name.startswith("_"):
        from placeproof.strategies import template

        found = template(name)
        if found is not None:
            return found
    raise AttributeError(f"module 'placeproof' has no attribute {name!r}")
