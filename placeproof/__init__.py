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

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from placeproof.core.strategy import Strategy
    from placeproof.cost.derive import Derivation
    from placeproof.programs import Program
    from placeproof.semantics.judge.verdict import Judged
    from placeproof.strategies import Template

__version__ = "0.1.0"
__all__ = ["__version__", "define", "derive", "judge", "program", "strategy"]


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


def derive(subject: str | Strategy | Template | Program, *, groups: bool = False, shards: Iterable[str] = ()) -> Derivation:
    """Closed-form costs of a strategy (an expression, a strategy or a catalogue entry) or of a step program.

    ``shards``: uneven parts of axes, as the command line takes them: ``["dp=2:1:1"]``. Raises
    :class:`placeproof.core.diagnostics.InputError` when the input cannot be used.
    """
    from placeproof.cost.derive import derive as derive_subject
    from placeproof.cost.derive import derive_shards
    from placeproof.cost.uneven import read_shards
    from placeproof.strategies import Template, parse_strategy

    if isinstance(subject, str):
        subject = parse_strategy(subject)
    if isinstance(subject, Template):
        subject = subject()
    told = list(shards)
    return derive_shards(subject, read_shards(told), groups=groups) if told else derive_subject(subject, groups=groups)


def judge(subject: str | Strategy | Template | Program, *, without: Iterable[str] = ()) -> Judged:
    """Whether a strategy (an expression, a strategy or a catalogue entry) or a step program trains what one device trains.

    ``without``: names of assumptions that are not made (:data:`placeproof.programs.assumptions.ASSUMPTIONS`). The answer's ``word`` is
    ``proved``, ``refuted`` or ``unknown``; ``settled`` are its obligations, ``found`` the run that refutes it.

    Raises :class:`placeproof.core.diagnostics.InputError` when the input cannot be used.
    """
    from placeproof.programs import Program
    from placeproof.semantics.judge.verdict import judge as judge_program
    from placeproof.semantics.lower import lower
    from placeproof.strategies import Template, parse_strategy

    if isinstance(subject, str):
        subject = parse_strategy(subject)
    if isinstance(subject, Template):
        subject = subject()
    return judge_program(subject if isinstance(subject, Program) else lower(subject), without=frozenset(without))


def __getattr__(name: str) -> Any:
    """A strategy of the catalogue, by name."""
    if not name.startswith("_"):
        from placeproof.strategies import template

        found = template(name)
        if found is not None:
            return found
    raise AttributeError(f"module 'placeproof' has no attribute {name!r}")
