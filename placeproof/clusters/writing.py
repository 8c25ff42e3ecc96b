"""A cluster as the text of its file, which reads back as it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, localcontext
from fractions import Fraction

from placeproof.clusters.cluster import Cluster, Table


def text(cluster: Cluster) -> str:
    """The file of a cluster in TOML: :func:`placeproof.clusters.read_text` makes the same one of it."""
    return "\n".join(_lines(cluster)) + "\n"


def _lines(cluster: Cluster) -> Iterator[str]:
    device = cluster.device
    yield from _keys({"name": cluster.name, "title": cluster.title})
    yield from ("", "[device]")
    figures = {"memory": device.memory, "driver_memory": device.driver_memory, "memory_bandwidth": device.memory_bandwidth}
    yield from _keys({"name": device.name, "architecture": device.architecture, **figures}, device)
    yield "[device.peak]"
    yield from _keys(device.peak)
    if (reached := device.reached) is not None:
        yield "[device.reached]"
        yield from _keys({"memory_bandwidth": reached.memory_bandwidth, "kernel": reached.kernel}, reached)
        yield "[device.reached.products]"
        yield from _keys(reached.products)
    yield from ("", "[node]", f"devices = {cluster.node}")
    for level in cluster.levels:
        yield from ("", f"[levels.{_key(level.name)}]")
        own = {"joins": level.joins, "latency": level.latency, "bandwidth": level.bandwidth, "reached": level.reached}
        yield from _keys({**own, "ports": level.ports, **({"ring": True} if level.ring else {})}, level)
    if cluster.host is not None:
        yield from ("", "[host]")
        yield from _keys({"bandwidth": cluster.host.bandwidth, "latency": cluster.host.latency}, cluster.host)


def _keys(values: Mapping[str, object], table: Table | None = None) -> Iterator[str]:
    """Keys with their values, but for what is not said; and where the figures of a table are from."""
    for name, value in values.items():
        if value is not None and value != "":
            yield f"{_key(name)} = {_value(value)}"
    if table is not None and table.source:
        yield f"source = {_value(table.source)}"
    for name in ("assumed", "fitted") if table is not None else ():
        if origins := getattr(table, name):
            yield f"{name} = {{ " + ", ".join(f"{_key(figure)} = {_value(why)}" for figure, why in origins.items()) + " }"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Fraction):
        return _number(value)
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _number(value: Fraction) -> str:
    """A number of a file, exactly: it was written with as many digits."""
    if value.denominator == 1 and value < 10**15 and value % 10**6:
        return str(value.numerator)
    with localcontext() as context:
        context.prec = 200
        return f"{(Decimal(value.numerator) / value.denominator).normalize():e}".replace("e+", "e")
