"""A strategy as a configuration of a system: by the table of the system, and only if it reads back as that strategy."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod
from typing import Any

from placeproof.core.diagnostics import InputError, Problems, refuse, suggestion
from placeproof.core.mesh import degree_symbol
from placeproof.core.precision import PRECISIONS
from placeproof.core.strategy import SYMBOLIC, Strategy
from placeproof.core.symbols import info
from placeproof.framework_rules.formula import Fact
from placeproof.importers.fields import Field
from placeproof.importers.imported import Imported, Role
from placeproof.importers.settings import settings
from placeproof.importers.systems import SYSTEMS, read_config
from placeproof.importers.writing.differences import differences
from placeproof.importers.writing.facts import facts, fixed, step, usual
from placeproof.importers.writing.table import WRITTEN, Remark, Way, writing
from placeproof.importers.writing.texts import commented, render_settings

#: Kinds of settings that are written with a point.
_WITH_A_POINT = {"number", "amount", "positive", "fraction"}
#: The code of what no configuration of a system says.
UNSAYABLE = "PP506"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What goes with a strategy. ``numbers``: symbols with their values; ``precision``: a name of byte widths; ``half``: fp16 or bf16 where
    these are of either. ``needed``: numbers and `precision`, by name, that a configuration must say; what it cannot say of the others is
    told.
    """

    numbers: Mapping[str, Fraction] = field(default_factory=dict)
    precision: str | None = None
    half: str | None = None
    needed: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A configuration. ``read``: what it reads back as. ``notes``: what is to be known of it that does not stand in it."""

    system: str
    text: str
    read: Imported
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """One way, tried. ``lines``: what is wrong with it; ``help``: a remedy. ``near``: what it reads back as where that is another strategy.
    ``filled``: as of :class:`Differences`.
    """

    text: str
    read: Imported | None
    lines: tuple[str, ...]
    help: str
    near: Strategy | None = None
    filled: tuple[str, ...] = ()

    def apart(self, asked: Asked) -> tuple[bool, bool]:
        """Whether it has other byte widths than what is asked for, and another type of 16 bits."""
        return self.read is None or self.read.precision != asked.precision, self.read is None or asked.half not in (None, self.read.half)


def write(strategy: Strategy, system: str, asked: Asked) -> Written:
    """The strategy as a configuration of a system, one of :data:`WRITTEN`.

    Raises InputError where degrees are open, where no configuration of the system reads back as the strategy, and where the strategy cannot
    be used.
    """
    if system not in WRITTEN:
        hint = None if system in SYSTEMS else suggestion(system, WRITTEN)
        refuse("PP501", f"configurations of `{system}` are not written", hint or "one of " + ", ".join(WRITTEN))
    wanted = fixed(strategy, asked.numbers)
    _require_numbers(strategy, wanted)
    step(wanted)  # what no device can use has its own error
    wanted, asked = usual(wanted), replace(asked, numbers=_of_no_degree(asked.numbers))
    attempts = _attempts(wanted, system, asked)
    good = min((one for one in attempts if not one.lines), key=lambda one: one.apart(asked), default=None)
    if good is None:
        nearest = min(attempts, key=lambda one: (one.read is None, len(one.lines)))
        help = _remedy(wanted, system, asked, nearest)
        refuse(UNSAYABLE, f"no configuration of {SYSTEMS[system].title} says `{strategy.name}`", help, notes=nearest.lines)
    assert good.read is not None
    _require_said(good.read, asked)
    return Written(system=system, text=good.text, read=good.read, notes=tuple(_notes(wanted, system, asked, good, good.read)))


def _remedy(wanted: Strategy, system: str, asked: Asked, nearest: _Attempt) -> str:
    """The nearest strategy that the system says, and the byte widths that it says of it where it has not those that are asked for."""
    if nearest.read is None:
        return nearest.help
    said = "" if nearest.near is None else f"what it can say reads as `{nearest.read.expression}`"
    first = [asked.precision, *(PRECISIONS if asked.precision is not None and "precision" in asked.needed else ())]
    known = [name for name in dict.fromkeys(first) if _says(nearest.near or wanted, system, replace(asked, precision=name))]
    if not known:
        return nearest.help
    if known[0] == asked.precision:
        return said
    *others, last = known
    names = f"{', '.join(others)} or {last}" if others else last
    return f"{f'{said},' if said else 'it can be said'} with the byte widths of {names}: `--precision {known[0]}`"


def _says(strategy: Strategy, system: str, asked: Asked) -> bool:
    return any(not one.lines for one in _attempts(strategy, system, asked))


def _require_numbers(strategy: Strategy, wanted: Strategy) -> None:
    """Degrees and micro-batches that are open: a configuration has numbers."""
    problems, only = Problems(), len(strategy.axes) == 1
    for axis in wanted.axes:
        symbol = degree_symbol(axis.name, only=only)
        if axis.degree is None:
            help = f"give it in the strategy, or `--set {symbol}=8`"
            problems.add("PP203", f"a configuration needs the degree of axis `{axis.name}`, which is open", help=help)
        if isinstance(axis.inner, str):
            help = f"give it in the strategy, or `--set {axis.inner}=8`"
            problems.add("PP203", f"a configuration needs the size of sub-groups of axis `{axis.name}`, `{axis.inner}`", help=help)
    if wanted.schedule.microbatches == SYMBOLIC:
        help = "give their number in the strategy, `microbatches=8`, or `--set m=8`"
        problems.add("PP203", "a configuration needs the number of micro-batches, which is open", help=help)
    problems.raise_if_any()


def _require_said(read: Imported, asked: Asked) -> None:
    """Numbers that a file of the system has to say, and that are open."""
    problems, title = Problems(), SYSTEMS[read.system].title
    for name in (n for n in read.numbers if n != "m" and n not in asked.numbers):
        message = f"{title} has to be told `{name}`, which is open ({info(name).meaning})"
        problems.add("PP203", message, help=f"`--set {name}={read.numbers[name]}`")
    problems.raise_if_any()


def _of_no_degree(numbers: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """The numbers but for those that a strategy has already."""
    return {name: value for name, value in numbers.items() if name not in ("N", "m") and not name.startswith("N_")}


def _known(wanted: Strategy, asked: Asked) -> dict[str, Fact]:
    return facts(wanted, asked.numbers, asked.precision, asked.half)


def _ways(system: str, wanted: Strategy, asked: Asked) -> Iterator[Way]:
    known = _known(wanted, asked)
    yield from (way for way in writing(system).ways if way.when.holds(known))


def _attempts(wanted: Strategy, system: str, asked: Asked) -> list[_Attempt]:
    return [_attempt(wanted, system, way, asked) for way in _ways(system, wanted, asked)]


def _attempt(wanted: Strategy, system: str, way: Way, asked: Asked) -> _Attempt:
    """What one way makes of it, read again."""
    world = prod(axis.degree or 1 for axis in wanted.axes)
    mesh = ", ".join(f"{axis.name}={axis.degree}" for axis in wanted.axes)
    comments = [wanted.name, f"{mesh}: it is read with `--world {world}`"]
    text = render_settings(_settings(wanted, system, way, asked), _kind(system), comments)
    try:
        read = read_config(text, system=system, world=world)
        there = usual(fixed(read.strategy(), read.numbers))
    except InputError as error:
        title = SYSTEMS[system].title
        lines = tuple(f"{title} refuses what would say it: {d.message}" for d in error.diagnostics)
        return _Attempt(text=text, read=None, lines=lines, help=error.diagnostics[0].help or "")
    apart = differences(wanted, there)
    lines = (*apart.lines, *_others(read, wanted, asked))
    help = "leave out what cannot be said, or take another system"
    return _Attempt(text=text, read=read, lines=lines, help=help, near=there if apart.lines else None, filled=apart.filled)


def _kind(system: str) -> str:
    return SYSTEMS[system].kinds[0]


def _settings(wanted: Strategy, system: str, way: Way, asked: Asked) -> dict[str, Any]:
    """The settings by name, without those that are at their defaults."""
    known, fields = _known(wanted, asked), {one.name: one for one in settings(system)}
    formulas = {**writing(system).settings, **way.settings}
    values = {name: _as(fields[name], formula.value(known)) for name, formula in formulas.items()}
    return {name: value for name, value in values.items() if value is not None and not _is_usual(value, fields[name])}


def _is_usual(value: Any, known: Field) -> bool:
    """Whether it is a degree of 1, or a switch that is off, and so where nothing is said."""
    off = value is False and known.kinds == ("bool",) and not known.default and known.role is Role.NO_MATTER
    return off or (type(value) in (bool, int) and value in (False, 1) and value == known.default)


def _as(known: Field, value: Any) -> Any:
    """A value as the setting has it: a number with a point where it may have one."""
    return float(value) if type(value) is int and _WITH_A_POINT.intersection(known.kinds) else value


def _others(read: Imported, wanted: Strategy, asked: Asked) -> Iterator[str]:
    """What else a file says otherwise: numbers, byte widths, and what makes another step."""
    title = SYSTEMS[read.system].title
    for name in (n for n in asked.numbers if n in asked.needed and read.numbers.get(n) != asked.numbers[n]):
        yield f"no setting of {title} says `{name} = {asked.numbers[name]}`"
    if asked.precision is not None and "precision" in asked.needed and read.precision != asked.precision:
        yield f"byte widths: {asked.precision} wanted, {read.precision or 'none with a name'} read back"
    if wanted.schedule.microbatches is None and read.numbers.get("m", 1) != 1:
        yield f"micro-batches: one wanted, {read.numbers['m']} read back"
    yield from (f"`{r.name} = {r.value}` makes another step: {r.note}" for r in read.of(Role.ANOTHER_STEP))


def _notes(wanted: Strategy, system: str, asked: Asked, made: _Attempt, read: Imported) -> Iterator[str]:
    """What is to be told of a configuration that was written."""
    title, known = SYSTEMS[system].title, _known(wanted, asked)
    if not commented(_kind(system)):
        yield f"it is for {known['world']} devices: `--world {known['world']}` reads it"
    if made.filled:
        yield f"{title} has {', '.join(made.filled)}, which the strategy leaves open: it reads back as `{read.expression}`"
    if left := [f"`{name} = {value}`" for name, value in asked.numbers.items() if read.numbers.get(name) != value]:
        yield f"left out: {', '.join(left)}, which no setting of {title} says"
    if asked.precision != read.precision:
        have = f"the byte widths of {read.precision}" if read.precision else "byte widths that have no name"
        yield f"it trains with {have}, " + (f"and not with {asked.precision}" if asked.precision else "as no `--precision` is given")
    if asked.half not in (None, read.half):
        yield f"weights are in {asked.half} no more, but in {read.half or 'fp32, or as the program has them'}"
    yield from Remark.of(writing(system).notes, known)
