"""How fast a device computes and moves bytes: by the peaks that a cluster states, or as its kernels were measured."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction

from placeproof.clusters import Cluster, Reached
from placeproof.core.diagnostics import refuse
from placeproof.cost.model.terms import require_terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a step is timed with: the cluster, whose links may be as fast as they were measured to be; values of all symbols, eta and t_k
    among them; floating-point operations a second in ``format`` at the peak, and bytes a second. ``by_kernels``: as of
    :class:`placeproof.cost.model.prices.Exact`."""

    cluster: Cluster
    values: Mapping[str, Fraction]
    format: str
    peak: Fraction
    bandwidth: Fraction
    by_kernels: bool


def rates_on(cluster: Cluster, values: Mapping[str, Fraction], *, fp8: bool = False, without: Collection[str] = ()) -> Rates:
    """What a step on a cluster is timed with: by kernels where eta is not among the values, for which the cluster says what these reach.
    ``without``: terms that are left out.

    Raises InputError where it does not, where its device has no peak for the format, and for terms that are not there.
    """
    formats = _formats(cluster, values, fp8=fp8)
    name, device, reached = formats[0], cluster.device, measured(cluster, values, fp8=fp8)
    known = dict(values)
    if "eta" not in known:
        if reached is None:
            refuse(
                "PP203",
                f"`eta` is not set, and {cluster.name} does not say what products of matrices in {' and '.join(formats)} reach",
                "`--efficiency half`",
            )
        rates = device.peak if "rate" in without else reached.products
        known |= {"eta": rates[name] / device.peak[name], "t_k": known.get("t_k", reached.kernel)}
        cluster = cluster if "links" in without else cluster.as_measured
    else:
        reached, rates = None, {one: known["eta"] * most for one, most in device.peak.items()}
    require_terms(without, by_kernels=reached is not None)
    if fp8 and "F_fp8" not in known:
        known["F_fp8"] = rates["fp8"]
    return Rates(
        cluster=cluster,
        values=known,
        format=name,
        peak=known.get("F_peak", device.peak[name]),
        bandwidth=known.get("B_mem", device.memory_bandwidth if reached is None or "memory" in without else reached.memory_bandwidth),
        by_kernels=reached is not None,
    )


def measured(cluster: Cluster, values: Mapping[str, Fraction], *, fp8: bool = False) -> Reached | None:
    """What kernels of a cluster's device reach in the number formats that are computed in; None where it does not say."""
    reached = cluster.device.reached
    return reached if reached is not None and {*_formats(cluster, values, fp8=fp8)} <= {*reached.products} else None


def _formats(cluster: Cluster, values: Mapping[str, Fraction], *, fp8: bool) -> tuple[str, ...]:
    """The number formats that products of matrices are computed in: by the bytes of parameters that are computed with; and fp8, where some
    are."""
    wide = values.get("b_theta", Fraction(2)) > 2
    every = [("fp32",) if wide else ("bf16", "fp16"), *([("fp8",)] if fp8 else [])]
    for wanted in every:
        if cluster.device.peak.keys().isdisjoint(wanted):
            formats = " nor ".join(wanted)
            refuse("PP203", f"{cluster.name} says no peak for {formats}", "add it to the cluster's file: `[device.peak]`")
    return tuple(next(name for name in wanted if name in cluster.device.peak) for wanted in every)
