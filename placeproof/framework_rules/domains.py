"""Small values of the facts that formulas speak of: all configurations of a grid are made of these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from placeproof.framework_rules.formula import Fact, Facts

_DEGREES = (
    "tp",
    "pp",
    "cp",
    "ep",
    "etp",
    "gtp",
    "dp",
    "dp_replicate",
    "dp_shard",
    "sp_size",
    "extra_dp",
    "zero_size",
    "num_distopt_instances",
)
_SIZES = ("heads", "kv_heads", "experts", "layers", "out_features", "in_features", "nmb", "batch", "nstages", "size", "buffer_numel")
_WIDE = ("world", "hidden", "seq", "tokens_mb", "tokens_step")


def domain(name: str) -> tuple[Fact, ...]:
    """The values of a fact in a grid: degrees to 4, sizes to 8, worlds and sequences to 16; what is no number of these is a switch."""
    most = 4 if name in _DEGREES else 8 if name in _SIZES else 16 if name in _WIDE else 0
    return tuple(range(1, most + 1)) if most else (False, True)


def grid(domains: Mapping[str, tuple[Fact, ...]]) -> Iterator[dict[str, Fact]]:
    """Every configuration, the first fact varying slowest."""
    for values in product(*domains.values()):
        yield dict(zip(domains, values, strict=True))


def size(facts: Facts) -> int:
    """How far a configuration is from one device and one of everything: a distance by which small ones come first."""
    return sum(_away(value) for value in facts.values())


def _away(value: Fact) -> int:
    if isinstance(value, tuple):
        return len(value) + sum(map(_away, value))
    return abs(value - 1) if isinstance(value, int) and not isinstance(value, bool) else 0


def apart(first: Facts, second: Facts) -> int:
    """How much two configurations differ: a switch or a word weighs more than a number."""
    changed = [name for name in first if first[name] != second[name]]
    return sum(3 if isinstance(first[name], bool | str) else 1 for name in changed)
