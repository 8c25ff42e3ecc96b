"""Reading a cluster from a TOML file. Everything wrong with the file is reported at once, with its line."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from placeproof.clusters.cluster import FORMATS, Cluster, Device, Host, Level
from placeproof.core.bounds import A_COUNT, is_count, too_long, within
from placeproof.core.diagnostics import InputError, Problems, suggestion
from placeproof.core.files import read_text as text_of
from placeproof.core.places import toml_fault, toml_place

_SAID = {"source", "assumed"}
_TABLES: dict[str, set[str]] = {
    "": {"name", "title", "device", "node", "levels", "host"},
    "device": {"name", "memory", "memory_bandwidth", "peak"} | _SAID,
    "node": {"devices"} | _SAID,
    "level": {"joins", "latency", "bandwidth", "ports", "ring"} | _SAID,
    "host": {"bandwidth", "latency"} | _SAID,
}


def names() -> tuple[str, ...]:
    """The names of the clusters that come with placeproof."""
    return tuple(sorted(f.name.removesuffix(".toml") for f in files("placeproof.clusters").joinpath("presets").iterdir()))


@cache
def cluster(name: str) -> Cluster:
    """The cluster of that name. Raises InputError that lists all of them."""
    if name not in names():
        hint, listed = suggestion(name, names()), f"the clusters are {', '.join(names())}; a file's name ends in .toml"
        problems = Problems()
        problems.add("PP101", f"there is no cluster `{name}`", help=f"{hint} {listed}" if hint else listed)
        raise InputError(problems.found)
    text = files("placeproof.clusters").joinpath("presets", f"{name}.toml").read_text(encoding="utf-8")
    return read_text(text, source=f"{name}.toml")


def load(path: str | Path) -> Cluster:
    """The cluster of a TOML file. Raises InputError, with all that is wrong, when it cannot be read or used."""
    return read_text(text_of(path, code="PP110", help="give the path of a readable TOML file"), source=str(path))


def find(text: str) -> Cluster:
    """The cluster of a name, or of a path that ends in .toml. Raises InputError."""
    return load(text) if text.endswith(".toml") else cluster(text)


def read_text(text: str, *, source: str) -> Cluster:
    """The cluster of a TOML text; ``source`` names it in messages. Raises InputError with all that is wrong."""
    problems = Problems()
    try:
        data = tomllib.loads(text, parse_float=_decimal)
    except (ValueError, RecursionError) as error:
        message, place = toml_fault(error, text, source)
        problems.add("PP110", f"this is not TOML: {message}", place=place, help="see docs/reference/clusters.md")
        raise InputError(problems.found) from error
    return _Reader(text=text, source=source, problems=problems).cluster(data)


@dataclass(slots=True)
class _Reader:
    text: str
    source: str
    problems: Problems

    def cluster(self, data: Mapping[str, Any]) -> Cluster:
        self.known(data, "")
        device, node = self.device(self.table(data, "device", needed=True)), self.node(self.table(data, "node", needed=True))
        levels = self.levels(self.table(data, "levels", needed=True), node)
        host = self.host(self.table(data, "host")) if "host" in data else None
        name = self.words(data, "name", needed=True)
        self.problems.raise_if_any()
        return Cluster(name=name, title=self.words(data, "title") or name, device=device, node=node, levels=levels, host=host)

    def device(self, said: Mapping[str, Any]) -> Device:
        self.known(said, "device", "device")
        rates = self.table(said, "peak", "device", needed=True)
        for key in rates:
            if key not in FORMATS:
                self.refuse(
                    "PP111", f"`{key}` is no number format", "device", "peak", key, help=suggestion(key, FORMATS) or _one_of(FORMATS)
                )
        return Device(
            name=self.words(said, "name", "device", needed=True),
            memory=self.amount(said, "memory", "device"),
            memory_bandwidth=self.amount(said, "memory_bandwidth", "device"),
            peak={key: self.amount(rates, key, "device", "peak") for key in rates},
            **self.said(said, {"memory", "memory_bandwidth", *rates}, "device"),
        )

    def node(self, said: Mapping[str, Any]) -> int:
        self.known(said, "node", "node")
        self.said(said, {"devices"}, "node")
        return self.count(said, "devices", "node") or 1

    def levels(self, said: Mapping[str, Any], node: int) -> tuple[Level, ...]:
        if not said:
            self.refuse("PP113", "there is no level of links", "levels", help="add `[levels.NAME]`, from the innermost to the outermost")
        found = [self.level(name, self.table(said, name, "levels"), last=name == list(said)[-1]) for name in said]
        within = 1
        for level in found:
            if level.joins is not None and (level.joins % within or level.joins <= within):
                told = f"level `{level.name}` joins {level.joins} devices, which are not several blocks of {within}"
                self.refuse("PP112", told, "levels", level.name, "joins", help="each level joins two or more blocks of the one before it")
            if level.joins is not None and level.joins % node and node % level.joins:
                told = f"level `{level.name}` joins {level.joins} devices, which {node} devices a node do not multiply up to"
                self.refuse("PP112", told, "levels", level.name, "joins", help="a level joins whole nodes, or an equal part of a node")
            within = level.joins or within
        return tuple(found)

    def level(self, name: str, said: Mapping[str, Any], *, last: bool) -> Level:
        at = ("levels", name)
        self.known(said, "level", *at)
        if "joins" not in said and not last:
            self.refuse(
                "PP113", f"level `{name}` does not say how many devices it joins", *at, help="only the last level joins all; add `joins`"
            )
        ring = said.get("ring", False)
        if not isinstance(ring, bool):
            self.refuse("PP112", f"`ring` is true or false, not {_shown(ring)}", *at, "ring")
        return Level(
            name=name,
            joins=self.count(said, "joins", *at) if "joins" in said else None,
            latency=self.amount(said, "latency", *at, zero=True),
            bandwidth=self.amount(said, "bandwidth", *at),
            ports=(self.count(said, "ports", *at) if "ports" in said else None) or 1,
            ring=bool(ring),
            **self.said(said, {"joins", "latency", "bandwidth", "ports", "ring"}, *at),
        )

    def host(self, said: Mapping[str, Any]) -> Host:
        self.known(said, "host", "host")
        return Host(
            bandwidth=self.amount(said, "bandwidth", "host"),
            latency=self.amount(said, "latency", "host", zero=True),
            **self.said(said, {"bandwidth", "latency"}, "host"),
        )

    # Values of keys.

    def refuse(self, code: str, message: str, *path: str, help: str | None = None) -> None:
        self.problems.add(code, message, place=toml_place(self.text, self.source, path), help=help)

    def known(self, said: Mapping[str, Any], table: str, *path: str) -> None:
        for key in said:
            if key not in _TABLES[table]:
                where = f"`[{'.'.join(path)}]`" if path else "a cluster's file"
                hint = suggestion(key, _TABLES[table]) or _one_of(_TABLES[table])
                self.refuse("PP111", f"`{key}` is no key of {where}", *path, key, help=hint)

    def table(self, data: Mapping[str, Any], key: str, *path: str, needed: bool = False) -> Mapping[str, Any]:
        value = data.get(key, {})
        header = ".".join((*path, key))
        if key not in data and needed:
            self.refuse("PP113", f"`[{header}]` is missing", *path, key, help=f"add `[{header}]` to {self.source}")
        if isinstance(value, dict):
            return value
        self.refuse("PP112", f"`{key}` is a table", *path, key, help=f"write `[{header}]` and its keys below")
        return {}

    def words(self, said: Mapping[str, Any], key: str, *path: str, needed: bool = False) -> str:
        value: object = said.get(key, "")
        if not isinstance(value, str):
            self.refuse("PP112", f"`{key}` is a text, not {_shown(value)}", *path, key)
            return ""
        if needed and not value:
            self.missing(key, *path)
        return value

    def amount(self, said: Mapping[str, Any], key: str, *path: str, zero: bool = False) -> Fraction:
        """A positive number, exactly as it is written; 1 in place of one that is refused."""
        value = said.get(key)
        if value is None:
            self.missing(key, *path)
        elif isinstance(value, bool) or not isinstance(value, int | Decimal) or not Decimal(value).is_finite():
            self.refuse("PP112", f"`{key}` is a number, not {_shown(value)}", *path, key)
        elif not within(Fraction(value)):
            self.refuse("PP112", f"`{key}` is of a magnitude that nothing has: {value}", *path, key, help="write less than 1e100")
        elif value < 0 or (value == 0 and not zero):
            self.refuse("PP112", f"`{key}` is {'not negative' if zero else 'positive'}, and not {value}", *path, key)
        else:
            return Fraction(value)
        return Fraction(1)

    def count(self, said: Mapping[str, Any], key: str, *path: str) -> int | None:
        value = said.get(key)
        if is_count(value):
            return value
        if value is None:
            self.missing(key, *path)
        else:
            self.refuse("PP112", f"`{key}` is {A_COUNT}, not {_shown(value)}", *path, key)
        return None

    def missing(self, key: str, *path: str) -> None:
        where = f" in `[{'.'.join(path)}]`" if path else ""
        self.refuse("PP113", f"`{key}` is missing{where}", *path, key, help=f"add `{key} = ...`{where}")

    def said(self, said: Mapping[str, Any], figures: set[str], *path: str) -> dict[str, Any]:
        """The table's source, and the reasons for those of its figures that are assumed."""
        reasons = self.table(said, "assumed", *path)
        for figure in reasons:
            if figure not in figures:
                self.refuse("PP111", f"`{figure}` is no figure of this table", *path, "assumed", figure, help=_one_of(figures))
            self.words(reasons, figure, *path, "assumed", needed=True)
        return {"source": self.words(said, "source", *path), "assumed": dict(reasons)}


def _decimal(text: str) -> Decimal:
    if too_long(text):
        raise ValueError(f"the number {text[:40]} has too many digits")
    return Decimal(text)


def _shown(value: object) -> str:
    return str(value) if isinstance(value, Decimal) else repr(value)


def _one_of(known: Any) -> str:
    return "one of " + ", ".join(f"`{k}`" for k in sorted(known))
