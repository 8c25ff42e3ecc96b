"""The numbers of an answer: those that are set, and behind them those that configurations say."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING

from placeproof.core.diagnostics import refuse
from placeproof.core.mesh import Axis, degree_symbol
from placeproof.core.precision import OPEN
from placeproof.cost.values import Numbers, read_numbers

if TYPE_CHECKING:
    from placeproof.core.strategy import Strategy
    from placeproof.importers import Imported


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """``NAME=VALUE`` texts, the name of a precision, and what configurations say besides."""

    given: Sequence[str] = ()
    precision: str | None = None
    imported: Sequence[Imported] = ()

    def check(self) -> None:
        """Raise InputError for what is wrong whatever it is for."""
        read_numbers(self.given, self.precision)

    def numbers(self, *, symbols: Collection[str] | None = None, degrees: Mapping[str, int | None] | None = None) -> Numbers:
        """The numbers. ``symbols``: those that the formulas have, where that is known: what a configuration says of others is of no use;
        ``degrees``: of the strategy, as :func:`placeproof.cost.values.read_numbers` takes them. Raises InputError."""
        return read_numbers(self.texts(symbols), self._precision(), degrees=degrees)

    def texts(self, symbols: Collection[str] | None = None) -> list[str]:
        """What is set, and what all configurations that say it say the same of other symbols."""
        names = {text.partition("=")[0].strip() for text in self.given}
        values: dict[str, set[Fraction]] = {}
        for one in self.imported:
            for name, value in one.numbers.items():
                values.setdefault(name, set()).add(value)
        agreed = {name: min(each) for name, each in values.items() if name not in names and len(each) == 1}
        return [*self.given, *(f"{name}={value}" for name, value in agreed.items() if symbols is None or name in symbols)]

    def _precision(self) -> str | None:
        """That which was given, or what all configurations agree on; open where they do not, or have none with a name."""
        names = {one.precision for one in self.imported}
        if self.precision is not None or not names:
            return self.precision
        return (names.pop() or OPEN) if len(names) == 1 else OPEN

    def of_strategy(self, strategy: Strategy) -> Numbers:
        """The numbers of one strategy among several: those of its own degrees; N is the world size, which decides one degree that is open.

        Raises InputError.
        """
        only = len(strategy.axes) == 1
        own = {f"N_{a.name}": degree_symbol(a.name, only=only) for a in strategy.axes}
        mine, world = [], None
        for text in self.texts():
            name, _, value = (part.strip() for part in text.partition("="))
            if name == "N":
                world = value
            elif not name.startswith("N_"):
                mine.append(text)
            elif name in own:
                mine.append(f"{own[name]}={value}")
        numbers = read_numbers(mine, self._precision(), degrees=degrees(strategy.axes, strategy.schedule.microbatches))
        if world is None:
            return numbers
        open_ = {a.name: own[f"N_{a.name}"] for a in strategy.axes if a.degree is None}
        fixed = prod(a.degree for a in strategy.axes if a.degree is not None)
        return _of_world(open_, fixed, numbers, read_numbers([f"N={world}"], None).values["N"])


def degrees(axes: Iterable[Axis], microbatches: object) -> dict[str, int | None]:
    """Every degree by its symbol, None where it is open; and m, where it is a number."""
    axes = tuple(axes)
    values: dict[str, int | None] = {degree_symbol(a.name, only=len(axes) == 1): a.degree for a in axes}
    return values | ({"m": microbatches} if isinstance(microbatches, int) else {})


def _of_world(open_: Mapping[str, str], fixed: int, numbers: Numbers, world: Fraction) -> Numbers:
    """With the one degree that a world size decides. ``open_``: symbols of open degrees by their axes; ``fixed``: the product of others.

    Raises InputError where several are left open, or the others do not divide it.
    """
    unset = [name for name, symbol in open_.items() if symbol not in numbers.values]
    rest = prod((numbers.values[symbol] for name, symbol in open_.items() if name not in unset), start=Fraction(fixed))
    asked = replace(numbers, given=(*numbers.given, "N"), asked=True)
    if len(unset) > 1:
        listed = " and ".join(f"`{name}`" for name in unset)
        refuse("PP203", f"{world} devices leave the degrees of {listed} open", help=f"set all but one of them: `--set {open_[unset[0]]}=8`")
    elif not unset and rest != world:
        refuse("PP205", f"its degrees make {rest} devices, and `N` is {world}", help="leave one degree open, or `N` out")
    elif unset and world % rest:
        refuse("PP202", f"{world} devices cannot be shared out over {rest} that its other degrees take", help=f"a multiple of {rest}")
    if not unset:
        return asked
    symbol = open_[unset[0]]
    return replace(asked, values={**numbers.values, symbol: world / rest}, given=(*asked.given, symbol))


_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def byte_count(text: str) -> Fraction:
    """Bytes of a text such as ``6GB``, ``5.5 GiB`` or ``6e9``. Raises InputError."""
    found = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?(?:e[0-9]{1,2})?)\s*([A-Za-z]*)\s*", text)
    if found is None or found[2] not in _UNITS:
        refuse(
            "PP202", f"`{text}` is no amount of memory", help="for example 6GB, 5.5GiB or 6e9; units are " + ", ".join(filter(None, _UNITS))
        )
    amount = Fraction(found[1]) * _UNITS[found[2]]
    if not found[2] and 0 < amount < 10**6:
        refuse(
            "PP202",
            f"`{text}` is an amount of {text.strip()} bytes",
            help=f"say the unit: `{text.strip()}GB`, or `{text.strip()}B` if that is meant",
        )
    return amount
