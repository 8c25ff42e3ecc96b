"""Mesh axes and what they split."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """What an axis divides. ``samples``: its devices see different data, so every gradient is a partial sum over it.

    ``compute``: the computation is split together with the parameters, so no device needs the others' part. ``partial``: what a part of
    a block makes is then a partial sum. ``called``: the step calls blocks whole, and what their devices exchange is the blocks' own.
    ``tokens``: samples are divided themselves. ``routes``: tokens go to the devices that have their experts. ``stages``: devices compute
    one after the other.
    """

    name: str
    order: int
    samples: bool
    compute: bool
    meaning: str
    partial: bool = False
    called: bool = False
    tokens: bool = False
    routes: bool = False
    stages: bool = False

    @property
    def batch(self) -> bool:
        """Whether its devices see different samples, each whole."""
        return self.samples and not self.tokens

    @property
    def matrices(self) -> bool:
        """Whether it cuts the matrices of each layer."""
        return self.partial and not self.routes

    def __str__(self) -> str:
        return "hidden dimension" if self.matrices else self.name


SPLITS: dict[str, Splits] = {
    s.name: s
    for s in (
        Splits(name="batch", order=0, samples=True, compute=False, meaning="the samples of the global batch"),
        Splits(name="sequence", order=1, samples=True, compute=False, tokens=True, meaning="the tokens of each sequence"),
        Splits(name="experts", order=2, samples=False, compute=True, partial=True, routes=True, meaning="the experts of a mixture"),
        Splits(name="hidden", order=3, samples=False, compute=True, partial=True, meaning="the hidden dimension of each layer"),
        Splits(
            name="blocks", order=3, samples=False, compute=True, called=True, meaning="what blocks compute, which exchange by themselves"
        ),
        Splits(name="layers", order=4, samples=False, compute=True, stages=True, meaning="the layers, into pipeline stages"),
    )
}

#: What an axis of a well-known name splits when nothing else is said.
USUAL_SPLITS: dict[str, str] = {
    "dp": "batch",
    "rep": "batch",
    "shard": "batch",
    "cp": "sequence",
    "sp": "sequence",
    "ep": "experts",
    "tp": "hidden",
    "pp": "layers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A named mesh axis. ``degree`` is None while symbolic.

    ``inner`` is the size of a sub-group of consecutive devices of the axis, when something uses one: the axis is then
    the product of ``<name>_outer`` (degree / inner) and ``<name>_inner`` (inner). An integer or a symbol's name.
    """

    name: str
    splits: Splits
    degree: int | None = None
    inner: int | str | None = None

    @property
    def outer_name(self) -> str:
        """Name of the slow factor of a split axis."""
        return f"{self.name}_outer"

    @property
    def inner_name(self) -> str:
        """Name of the fast factor of a split axis."""
        return f"{self.name}_inner"

    @property
    def factors(self) -> tuple[str, ...]:
        """The axis itself; its slow and its fast factor where it has sub-groups."""
        return (self.name,) if self.inner is None else (self.outer_name, self.inner_name)


def axis_order(axis: Axis) -> tuple[int, str]:
    """Canonical order of axes: what varies the batch first, pipeline stages last, then by name."""
    return (axis.splits.order, axis.name)


def degree_symbol(axis: str, *, only: bool) -> str:
    """Name of an axis's degree: N when it is the only axis, else N_<axis>."""
    return "N" if only else f"N_{axis}"
