"""Reading a cluster from a TOML file. Everything wrong with the file is reported at once, with its line."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeGuard

from placeproof.clusters.cluster import FORMATS, Cluster, Device, Host, Level, Reached
from placeproof.core import files
from placeproof.core.bounds import within
from placeproof.core.diagnostics import unknown_name
from placeproof.core.spelling import respelled
from placeproof.core.tables import FileKind, Reader, Table, shown

_KIND = FileKind(noun="a cluster's file", manual="see docs/reference/clusters.md")
_PRESETS = Path(__file__).parent / "presets"


def names() -> tuple[str, ...]:
    """The names of the clusters that come with placeproof."""
    return files.stems(_PRESETS)


@cache
def cluster(name: str) -> Cluster:
    """The cluster of that name. Raises InputError that lists all of them."""
    if name not in names() and (meant := respelled(name, names())) is not None:
        name = meant
    if name not in names():
        listed = f"the clusters are {', '.join(names())}; a file's name ends in .toml"
        raise unknown_name(f"there is no cluster `{name}`", name, names(), listed)
    return _cluster(Table.open(_PRESETS / f"{name}.toml", kind=_KIND))


def load(path: str | Path) -> Cluster:
    """The cluster of a TOML file. Raises InputError, with all that is wrong, when it cannot be read or used."""
    return _cluster(Table.open(path, kind=_KIND))


def find(text: str) -> Cluster:
    """The cluster of a name, or of a path that ends in .toml. Raises InputError."""
    return load(text) if text.endswith(".toml") else cluster(text)


def read_text(text: str, *, source: str) -> Cluster:
    """The cluster of a TOML text; ``source`` names it in messages. Raises InputError with all that is wrong."""
    return _cluster(Table.read(text, kind=_KIND, source=source))


def _cluster(table: Table) -> Cluster:
    table.known(("name", "title", "device", "node", "levels", "host"))
    node, name = _node(table.needed("node")), table.required("name")
    made = Cluster(
        name=name,
        title=table.text("title") or name,
        device=_device(table.needed("device")),
        node=node,
        levels=_levels(table.needed("levels"), node),
        host=Host(**_sourced(table.table("host"), bandwidth=_amount, latency=_amount_or_none)) if "host" in table.data else None,
    )
    return table.sound(made)


def _device(table: Table) -> Device:
    figures = dict.fromkeys(("memory", "memory_bandwidth"), _amount)
    return Device(
        **_sourced(table, name=Table.required, **figures, driver_memory=_optional, architecture=Table.text, peak=_rates, reached=_reached)
    )


def _reached(table: Table, key: str) -> Reached | None:
    """What was measured; it is no more than what is printed."""
    if key not in table.data:
        return None
    inner = table.table(key)
    made = Reached(**_sourced(inner, products=_rates, memory_bandwidth=_amount, kernel=_amount))
    peak = table.table("peak").data
    for name, rate in made.products.items():
        most = peak.get(name, 0)
        if _is_number(most) and rate > most:
            inner.refuse(f"products of matrices in {name} reach more than the device has, or it has none", "products", name)
    if _is_number(most := table.data.get("memory_bandwidth")) and made.memory_bandwidth > most:
        inner.refuse("memory reaches more than the device has", "memory_bandwidth")
    return made


def _is_number(value: object) -> TypeGuard[int | Decimal]:
    """What is none is refused where it stands."""
    return isinstance(value, int | Decimal) and not isinstance(value, bool) and Decimal(value).is_finite()


def _rates(table: Table, key: str) -> dict[str, Fraction]:
    rates = table.needed(key)
    rates.known(FORMATS, "number format")
    return {name: _amount(rates, name) for name in rates.data}


def _node(table: Table) -> int:
    if "devices" not in table.data:
        table.missing("devices")
    devices: int | None = _sourced(table, devices=Table.count)["devices"]
    return devices or 1


def _levels(table: Table, node: int) -> tuple[Level, ...]:
    if not table.data:
        help = "add `[levels.NAME]`, from the innermost to the outermost"
        table.refuse("there is no level of links", code=table.kind.missing, help=help)
    levels = tuple(_level(inner, last=inner.name == list(table.data)[-1]) for inner in table.tables())
    inside = 1
    for level in levels:
        if level.joins is not None and (level.joins % inside or level.joins <= inside):
            message = f"level `{level.name}` joins {level.joins} devices, which are not several blocks of {inside}"
            table.refuse(message, level.name, "joins", help="each level joins two or more blocks of the one before it")
        if level.joins is not None and level.joins % node and node % level.joins:
            message = f"level `{level.name}` joins {level.joins} devices, which {node} devices a node do not multiply up to"
            table.refuse(message, level.name, "joins", help="a level joins whole nodes, or an equal part of a node")
        inside = level.joins or inside
    return levels


def _level(table: Table, *, last: bool) -> Level:
    if "joins" not in table.data and not last:
        message, help = f"level `{table.name}` does not say how many devices it joins", "only the last level joins all; add `joins`"
        table.refuse(message, code=table.kind.missing, help=help)
    read = _sourced(
        table, joins=Table.count, latency=_amount_or_none, bandwidth=_amount, ports=Table.count, ring=Table.flag, reached=_optional
    )
    if read["reached"] is not None and read["reached"] > read["bandwidth"]:
        table.refuse("exchanges reach more than the links have", "reached")
    return Level(name=table.name, **{**read, "ports": read["ports"] or 1})


def _amount(table: Table, key: str, *, zero: bool = False) -> Fraction:
    """A positive number, exactly as it is written; 1 in place of one that is refused."""
    value = table.data.get(key)
    if value is None:
        table.missing(key)
    elif not _is_number(value):
        table.refuse(f"`{key}` is a number, not {shown(value)}", key)
    elif not within(Fraction(value)):
        table.refuse(f"`{key}` is of a magnitude that nothing has: {value}", key, help="write less than 1e100")
    elif value < 0 or (value == 0 and not zero):
        table.refuse(f"`{key}` is {'not negative' if zero else 'positive'}, and not {value}", key)
    else:
        return Fraction(value)
    return Fraction(1)


def _optional(table: Table, key: str) -> Fraction | None:
    return _amount(table, key) if key in table.data else None


_amount_or_none = partial(_amount, zero=True)


def _sourced(table: Table, **readers: Reader) -> dict[str, Any]:
    """The figures of a table with their source, and the reasons for those that are assumed."""
    read = table.fields(**readers, source=Table.text, assumed=Table.mapping, fitted=Table.mapping)
    figures = {*readers, *read.get("peak", ())} - {"name", "architecture", "peak"}
    table.table("assumed").known(figures - {"reached"}, "figure of this table")
    table.table("fitted").known(figures | {*read.get("products", ())}, "figure of this table")
    return read
