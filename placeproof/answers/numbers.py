"""The numbers of an answer: those that are set, and behind them those that configurations say."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, NoReturn

from placeproof.core.diagnostics import Problems, refuse
from placeproof.core.mesh import Axis, degree_symbol
from placeproof.core.precision import OPEN
from placeproof.cost.values import Numbers, read_numbers, spelled

if TYPE_CHECKING:
    from placeproof.importers import Imported


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """``NAME=VALUE`` texts, the name of a precision, and what configurations say besides."""

    given: Sequence[str] = ()
    precision: str | None = None
    imported: Sequence[Imported] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "given", [spelled(text) for text in self.given])

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

    def on(self, world: int | None) -> Settings:
        """With the number of devices, where one is said."""
        return self if world is None else replace(self, given=[*self.given, f"N={world}"])

    def of_axes(self, axes: Sequence[Axis], microbatches: int | str | None) -> Numbers:
        """The numbers of one step among several: those of its own degrees; N is the world size, which decides one degree that is open.

        Raises InputError.
        """
        own = {f"N_{a.name}": degree_symbol(a.name, only=len(axes) == 1) for a in axes}
        mine, world = [], None
        for text in self.texts():
            name, _, value = (part.strip() for part in text.partition("="))
            if name == "N":
                world = value
            elif not name.startswith("N_"):
                mine.append(text)
            elif name in own:
                mine.append(f"{own[name]}={value}")
        numbers = read_numbers(mine, self._precision(), degrees=degrees(axes, microbatches))
        if world is None:
            return numbers
        open_ = {a.name: own[f"N_{a.name}"] for a in axes if a.degree is None}
        fixed = prod(a.degree for a in axes if a.degree is not None)
        return _of_world(open_, fixed, numbers, read_numbers([f"N={world}"], None).values["N"])

    def of_model(self, axes: Sequence[Axis], microbatches: int | str | None, world: int | None = None, batch: int | None = None) -> Numbers:
        """The numbers of a model's step. ``world``: the number of devices, which decides one degree that is open; ``batch``: sequences of a
        step, of which the micro-batches follow. What is still open of b and m is assumed once all degrees are known: one sequence, and
        as many micro-batches as there are stages. Raises InputError."""
        numbers = self.on(world).of_axes(axes, microbatches)
        sized = {a.name: a.degree or numbers.values.get(degree_symbol(a.name, only=len(axes) == 1)) for a in axes}
        if open_ := [name for name, degree in sized.items() if degree is None]:
            if batch is not None:
                listed = " and ".join(f"`{name}`" for name in open_)
                refuse("PP203", f"{batch} sequences are shared out over replicas, and the degree of {listed} is open", help="`--world 64`")
            return numbers
        replicas = prod(int(sized[a.name] or 1) for a in axes if a.splits.batch)
        stages = prod(int(sized[a.name] or 1) for a in axes if a.splits.stages)
        return _batched(numbers, microbatches, replicas, stages, batch)


def _batched(numbers: Numbers, said: int | str | None, replicas: int, stages: int, batch: int | None) -> Numbers:
    """With b and m. ``said``: how many micro-batches a strategy has; ``batch``: sequences of a step, where they are said."""
    known = {"b": numbers.values.get("b"), "m": numbers.values.get("m") if said == "symbolic" else Fraction(said or 1)}
    usual = {"b": Fraction(1), "m": Fraction(stages)}
    open_ = [name for name, value in known.items() if value is None]
    assumed = {name: usual[name] for name in (open_ if batch is None else open_[:-1])}
    found = {name: value for name, value in {**known, **assumed}.items() if value is not None}
    if batch is not None:
        found |= {open_[-1]: Fraction(batch) / (replicas * prod(found.values()))} if open_ else {}
        if prod(found.values()) * replicas != batch or any(n.denominator > 1 for n in found.values()):
            _refuse_batch(batch, replicas, known["b"], None if said == "symbolic" else int(said or 1), numbers.values.get("m"))
    sizes = {name: value for name, value in found.items() if name == "b" or said == "symbolic"}
    worked_out = tuple(name for name in open_ if name not in assumed)
    return replace(numbers, values={**numbers.values, **sizes}, given=(*numbers.given, *worked_out), assumed=(*assumed,), asked=True)


def _refuse_batch(batch: int, replicas: int, b: Fraction | None, count: int | None, m: Fraction | None) -> NoReturn:
    """Sequences that do not come out as whole micro-batches. ``count``: how many a strategy has; ``m``: what is set of an open number."""
    times = count if m is None else m
    what = " and ".join([f"b = {b}"] * (b is not None) + [f"{times} micro-batch{'es' if times != 1 else ''}"] * (times is not None))
    help = f"a multiple of {replicas * (b or 1) * (times or 1)}"
    if count == 1 and b is not None and batch % (replicas * b) == 0:
        help = f"`* accumulate` makes {batch / (replicas * b)} micro-batches of them"
    refuse("PP202", f"{batch} sequences cannot be shared out over {replicas} replicas" + (f" with {what}" if what else ""), help=help)


def check_degrees(steps: Iterable[Iterable[Axis]], numbers: Numbers, problems: Problems) -> None:
    """Add a problem for each degree that is set and that none of the steps with these axes has."""
    steps = [*steps]
    axes, what = {f"N_{a.name}" for step in steps for a in step}, "any of the strategies" if len(steps) > 1 else "this strategy"
    for name in numbers.given:
        if name.startswith("N_") and name not in axes:
            problems.add("PP201", f"`{name}` is no degree of {what}", help=f"degrees: N, {', '.join(sorted(axes))}")


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
