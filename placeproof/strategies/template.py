"""A strategy with its degrees and options still open: what one data file says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from placeproof.core.bounds import A_COUNT, is_count
from placeproof.core.diagnostics import Place, Problems, suggestion
from placeproof.core.mesh import Axis, axis_order
from placeproof.core.states import STATES
from placeproof.core.strategy import NEUTRAL, Entry, Realisation, Strategy, compose
from placeproof.programs.ops import RESERVED

_WORD = re.compile(r"[a-z][a-z0-9_]*")
_PATH = re.compile(r"[A-Za-z0-9_./\\~-]*\.toml")

Value: TypeAlias = bool | int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of a strategy.

    ``sets`` is the field of the schedule that it sets; ``kinds`` are the values allowed: ``true``, ``false``, ``integer``,
    ``name`` (a symbol), ``file`` (the path of a TOML file), or the literal texts listed. ``inner_of``: an integer or a name is also the
    size of a sub-group of that axis.
    """

    name: str
    sets: str
    kinds: tuple[str, ...]
    default: Value | None
    doc: str
    inner_of: str | None = None

    def allows(self, value: Value) -> bool:
        """Whether the value is one of the option's kinds."""
        if isinstance(value, bool):
            return str(value).lower() in self.kinds
        if isinstance(value, int):
            return "integer" in self.kinds and is_count(value)
        return value in self.kinds or ("name" in self.kinds and value.isidentifier()) or ("file" in self.kinds and value.endswith(".toml"))

    def meant(self, value: Value) -> Value:
        """The value as one of the texts listed, which may be written with ``_`` for ``-``, as a Python name; or the value itself."""
        if isinstance(value, str) and value not in self.kinds and (text := value.replace("_", "-")) in self.kinds:
            return text
        return value

    def expects(self) -> str:
        """The kinds in words."""
        words = {"integer": A_COUNT, "name": "a name", "file": "a file whose name ends in .toml"}
        *others, last = [words.get(k, f"`{k}`") for k in self.kinds]
        return f"{', '.join(others)} or {last}" if others else last


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What a strategy file says. Call it with degrees and options to get a :class:`Strategy`. An axis takes a degree or another name; both,
    if the degree is given by place: ``tp(2, tp=etp)``.

    ``positional`` names what positional arguments set, in order: axes (their degrees) or options.
    """

    name: str
    title: str
    summary: str
    source: str
    axes: tuple[Axis, ...]
    entries: tuple[Entry, ...]
    schedule: Realisation
    options: tuple[Option, ...] = ()
    positional: tuple[str, ...] = ()
    needs: tuple[tuple[str, str], ...] = ()
    approximates: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    family: str = ""

    def __call__(self, *args: Value, **options: Value) -> Strategy:
        """The strategy with these degrees and options. Raises :class:`InputError` for what it does not take."""
        problems = Problems()
        strategy = self.instantiate(args, options, problems)
        problems.raise_if_any()
        return strategy

    def __mul__(self, other: object) -> Strategy:
        if isinstance(other, Template):
            return compose((self(), other()))
        if isinstance(other, Strategy):
            return compose((self(), other))
        return NotImplemented

    __rmul__ = __mul__

    def instantiate(
        self,
        args: tuple[Value, ...],
        options: Mapping[str, Value],
        problems: Problems,
        places: Mapping[str | int, Place] | None = None,
    ) -> Strategy:
        """As calling, but recording problems, with the places of the arguments (by position or name) where known."""
        where = places or {}
        given: dict[str, Value] = {}
        if len(args) > len(self.positional):
            problems.add(
                "PP104",
                f"`{self.name}` takes {len(self.positional)} positional argument(s), not {len(args)}",
                place=where.get(len(self.positional)),
                help=self.signature(),
            )
        spots: dict[str, Place | None] = {}
        for position, (name, value) in enumerate(zip(self.positional, args, strict=False)):
            given[name], spots[name] = value, where.get(position)
        called: dict[str, str] = {}
        for name, value in options.items():
            if is_count(given.get(name)) and isinstance(value, str) and self._option(name) is None:  # its degree by place, and its name
                if self._accepts(name, value, where.get(name), problems):
                    called[name] = value
                continue
            if name in given:
                problems.add("PP104", f"`{name}` is given twice", place=where.get(name))
            given[name], spots[name] = value, where.get(name)
        given = {n: value if (option := self._option(n)) is None else option.meant(value) for n, value in given.items()}
        checked = {n: v for n, v in given.items() if self._accepts(n, v, spots[n], problems)}
        return self._build(checked, given, called)

    def signature(self) -> str:
        """How the strategy is written, with everything it takes."""
        opened = list(self.positional) + [a.name for a in self.axes if a.name not in self.positional]
        named = [f"{o.name}={_shown(o.default)}" for o in self.options if o.name not in self.positional]
        inside = ", ".join(opened + named)
        return f"{self.name}({inside})" if inside else self.name

    def _takes(self) -> str:
        if self.options:
            return f"all that it takes: `{self.signature()}`"
        return f"it takes degrees alone, as in `{self.name}({', '.join('8' for _ in self.axes)})`"

    def _option(self, name: str) -> Option | None:
        return next((o for o in self.options if o.name == name), None)

    def _accepts(self, name: str, value: Value, place: Place | None, problems: Problems) -> bool:
        option = self._option(name)
        if option is not None:
            if not option.allows(value):
                problems.add("PP104", f"`{name}` is {option.expects()}, not {value!r}", place=place, help=option.doc)
                return False
            return True
        if any(a.name == name for a in self.axes):
            if names_an_axis(value) or is_count(value):
                return True
            message = f"the degree of axis `{name}` is {A_COUNT}, not {value!r}"
            if isinstance(value, str) and _WORD.fullmatch(value):
                message = f"no axis can be called `{value}`: that name means something else in step programs"
            problems.add(
                "PP103",
                message,
                place=place,
                help=f"leave it out to keep it symbolic: `{self.name}`; a name gives the axis another name: `{self.name}({name}=outer)`",
            )
            return False
        known = [o.name for o in self.options] + [a.name for a in self.axes]
        problems.add("PP104", f"`{self.name}` has no option `{name}`", place=place, help=suggestion(name, known) or self._takes())
        return False

    def _build(self, given: Mapping[str, Value], written: Mapping[str, Value], named: Mapping[str, str]) -> Strategy:
        settings: dict[str, Value] = {}
        inner: dict[str, int | str] = {}
        for option in self.options:
            value = given.get(option.name, option.default)
            if value is None or (option.name not in written and value == NEUTRAL.get(option.sets)):
                continue
            settings[option.sets] = value
            if option.inner_of and not isinstance(value, bool):
                inner[option.inner_of] = value
        schedule = replace(self.schedule, **settings)  # type: ignore[arg-type]
        axes = tuple(self._axis(a, given.get(a.name), inner.get(a.name), named.get(a.name)) for a in self.axes)
        called = {a.name: renamed.name for a, renamed in zip(self.axes, axes, strict=True)}
        expression = self._expression(written, named)
        return Strategy(
            parts=(expression,),
            axes=tuple(sorted(axes, key=axis_order)),
            entries=tuple(replace(e, owner=expression, axis=called.get(e.axis, e.axis)) for e in self.entries),
            schedule=schedule,
            needs=tuple((called.get(axis, axis), state) for axis, state in self.needs),
            approximates=self.approximates,
            title=self.title,
            summary=self.summary,
            source=self.source,
        )

    @staticmethod
    def _axis(axis: Axis, degree: Value | None, inner: int | str | None, named: str | None) -> Axis:
        fixed = degree if isinstance(degree, int) else axis.degree
        name = named or (degree if isinstance(degree, str) else axis.name)
        return replace(axis, name=name, degree=fixed, inner=inner if inner is not None else axis.inner)

    def _expression(self, written: Mapping[str, Value], named: Mapping[str, str]) -> str:
        leading = []
        for name in self.positional:
            if name not in written:
                break
            leading.append(name)
        parts = [_shown(written[n]) for n in leading]
        parts += [f"{n}={_shown(v)}" for n, v in sorted([*(w for w in written.items() if w[0] not in leading), *named.items()])]
        return f"{self.name}({', '.join(parts)})" if parts else self.name


def names_an_axis(value: Value) -> bool:
    """Whether a value can be the name of a mesh axis: no word of the language, no state."""
    if not isinstance(value, str) or _WORD.fullmatch(value) is None:
        return False
    return value not in RESERVED and value not in STATES and not value.endswith(("_outer", "_inner"))


def _shown(value: Value | None) -> str:
    """A value as an expression has it; what is neither word nor path there stands in quotes."""
    if isinstance(value, str) and value.endswith(".toml") and not _PATH.fullmatch(value):
        return f"'{value}'" if '"' in value else f'"{value}"'
    return str(value) if value is not None else "..."
