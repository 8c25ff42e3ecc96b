"""The constants of a cluster that steps of one's own can tell better than its source: what kernels and links reach."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from fractions import Fraction

from placeproof.clusters.cluster import Cluster, Level, Reached
from placeproof.core.diagnostics import Problems, suggestion

#: Constants of a device, and what they are; those of links are called as their levels are.
OF_A_DEVICE: Mapping[str, str] = {
    "products": "floating-point operations a second of products of matrices",
    "memory": "bytes a second of kernels that only read and write",
    "kernel": "seconds that each of these kernels takes besides, and a host at least to launch any kernel",
}
#: Seconds of a kernel, where a cluster does not say: the order of what is measured.
KERNEL = Fraction(1, 10**5)
#: What a constant may be fitted to, as shares of what is printed; a kernel takes so many seconds.
SHARES = Fraction(1, 20), Fraction(1)
SECONDS = Fraction(1, 10**6), Fraction(1, 10**3)


def constants(cluster: Cluster) -> dict[str, str]:
    """The names of a cluster's constants, and what they are."""
    links = {level.name: "bytes a second that exchanges reach over one of its links" for level in cluster.levels}
    return {**links, **OF_A_DEVICE}


def require_constants(cluster: Cluster, names: Collection[str]) -> None:
    """Raise InputError with every name that is no constant's of a cluster."""
    problems, known = Problems(), constants(cluster)
    for name in names:
        if name not in known:
            help = suggestion(name, known) or f"its constants are {', '.join(known)}"
            problems.add("PP101", f"{cluster.name} has no constant `{name}`", help=help)
    if not names:
        problems.add("PP104", "no constant is named", help="leave `--constants` out, or name one: `--constants products`")
    problems.raise_if_any()


def unsaid(cluster: Cluster, number_format: str) -> tuple[str, ...]:
    """Constants of its device that a cluster does not say, of products in a number format."""
    reached = cluster.device.reached
    if reached is None:
        return tuple(OF_A_DEVICE)
    return () if number_format in reached.products else ("products",)


def value(cluster: Cluster, name: str, number_format: str) -> Fraction:
    """A constant: what is reached; where that is not said all that is printed, half of the peak for products, and :data:`KERNEL`."""
    reached, level = cluster.device.reached, _level(cluster, name)
    if level is not None and name not in OF_A_DEVICE:
        return level.reached or level.bandwidth
    if name == "products":
        known = {} if reached is None else reached.products
        return known.get(number_format, cluster.device.peak[number_format] / 2)
    if name == "memory":
        return cluster.device.memory_bandwidth if reached is None else reached.memory_bandwidth
    return KERNEL if reached is None else reached.kernel


def bounds(cluster: Cluster, name: str, number_format: str) -> tuple[Fraction, Fraction]:
    """The least and the most that a constant can be: nothing reaches more than what is printed."""
    if name == "kernel":
        return SECONDS
    level = _level(cluster, name)
    printed = cluster.device.peak[number_format] if name == "products" else cluster.device.memory_bandwidth
    if level is not None and name not in OF_A_DEVICE:
        printed = level.bandwidth
    return printed * SHARES[0], printed * SHARES[1]


def with_values(cluster: Cluster, values: Mapping[str, Fraction], number_format: str, origin: str = "") -> Cluster:
    """The cluster with constants of these values. ``origin``: what they were fitted to."""
    said = {name: values.get(name, value(cluster, name, number_format)) for name in OF_A_DEVICE}
    keys = {"products": number_format, "memory": "memory_bandwidth", "kernel": "kernel"}
    reached = cluster.device.reached or Reached(products={}, memory_bandwidth=said["memory"], kernel=said["kernel"])
    made = replace(
        reached,
        products={**reached.products, number_format: said["products"]},
        memory_bandwidth=said["memory"],
        kernel=said["kernel"],
        fitted={**reached.fitted, **{keys[name]: origin for name in values if name in keys and origin}},
    )
    levels = tuple(
        replace(one, reached=values[one.name], fitted={**one.fitted, **({"reached": origin} if origin else {})})
        if one.name in values and one.name not in OF_A_DEVICE
        else one
        for one in cluster.levels
    )
    return replace(cluster, device=replace(cluster.device, reached=made), levels=levels)


def _level(cluster: Cluster, name: str) -> Level | None:
    return next((one for one in cluster.levels if one.name == name), None)
