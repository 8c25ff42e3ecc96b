"""The options of exact bytes: one table, from which the command line reads values, measurements take defaults, and the page is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.core.shapes import BUFFER_TYPES, WEIGHT_TYPES
from placeproof.cost.exact.optimizers import OPTIMIZERS
from placeproof.profiles.profile import Implementation

Value: TypeAlias = bool | int | float | str | None
#: The most bytes of buffers that are broadcast in one call (torch==2.13.0:torch/nn/parallel/distributed.py, ``broadcast_bucket_size``).
BROADCAST = 250 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What can be set. ``values``: those allowed; the type of any number of at least ``least``; or "elements", numbers by element type.

    None as default: not set. ``unit``: what a number counts.
    """

    values: tuple[Value, ...] | type | str
    default: Value
    doc: str
    least: float = 1
    unit: str = ""

    def allows(self, value: Value) -> bool:
        """Whether the option can have this value."""
        if value is None:
            return self.default is None
        if isinstance(self.values, tuple):
            return any(type(v) is type(value) and v == value for v in self.values)
        if self.values == "elements":
            return not isinstance(value, bool | float) and amounts(value) is not None
        if isinstance(value, bool | str) or (isinstance(value, float) and self.values is int):
            return False
        return value >= self.least

    def expects(self) -> str:
        """The values in words."""
        if isinstance(self.values, tuple):
            return " or ".join(str(v).lower() if isinstance(v, bool) else f"{v}" for v in self.values)
        if self.values == "elements":
            return "a number of float32 elements, or numbers by type such as float32:178,int64:7"
        return f"{'a number' if self.values is float else 'a whole number'} of at least {self.least:g}"

    def read(self, text: str) -> Value:
        """The value that a text says. Raises ValueError where the option cannot have it."""
        value: Value = text
        if isinstance(self.values, tuple) and isinstance(self.values[0], bool):
            value = {"true": True, "false": False}.get(text, text)
        elif isinstance(self.values, type):
            value = float(text) if self.values is float else int(text)
        if not self.allows(value):
            raise ValueError(text)
        return value


def amounts(value: Value) -> tuple[tuple[str, int], ...] | None:
    """Elements by their type, as `float32:178,int64:7` says them; a number by itself counts float32. None where it says none."""
    counts = []
    for text in str(value).split(","):
        kind, colon, number = text.strip().rpartition(":")
        if not (number.isdecimal() and number.isascii()) or (kind not in BUFFER_TYPES if colon else kind):
            return None
        counts.append((kind or "float32", int(number)))
    return tuple(counts)


_WIDTHS = ("float32", *(kind for kind in WEIGHT_TYPES if kind != "float32"))
_FLAG = (False, True)
OPTIONS: Mapping[str, Option] = {
    "optimizer": Option(
        values=tuple(OPTIMIZERS),
        default="adamw",
        doc="of torch.optim; AdamW without amsgrad, SGD and RMSprop without momentum unless it says so",
    ),
    "given": Option(
        values=("trained", "all"), default="trained", doc="which parameters the optimizer is given: those that are trained, or all"
    ),
    "dtype": Option(values=_WIDTHS, default="float32", doc="what parameters and the stream between units are made of"),
    "param_dtype": Option(values=_WIDTHS, default=None, doc="mixed precision: type of gathered parameters and of activations"),
    "reduce_dtype": Option(values=_WIDTHS, default=None, doc="mixed precision: what gradients are reduced in"),
    "microbatches": Option(values=int, default=None, doc="of one step, where the strategy does not say it"),
    "virtual": Option(values=int, default=2, doc="stages on each device"),
    "k": Option(values=int, default=2, doc="reshard_after_forward, where it is measured: devices of a sub-group"),
    "step": Option(
        values=int, default=None, doc="which step, from 1; by default the first that later ones repeat: DDP's first ones have other buckets"
    ),
    "bucket_cap_mb": Option(values=float, default=None, unit="MiB", least=0, doc="size of DDP's buckets; by default 1, then 25"),
    "find_unused": Option(values=_FLAG, default=False, doc="find_unused_parameters of DDP"),
    "static_graph": Option(values=_FLAG, default=False, doc="static_graph of DDP"),
    "gradient_as_bucket_view": Option(values=_FLAG, default=False, doc="of DDP: gradients lie in its buckets"),
    "no_sync": Option(
        values=_FLAG,
        default=None,
        doc="of several micro-batches: gradients are reduced in the last alone, or in each; by default as the step program says",
    ),
    "use_orig_params": Option(
        values=_FLAG, default=False, doc="of FullyShardedDataParallel: each parameter begins at a multiple of 16 bytes"
    ),
    "buffer": Option(
        values="elements",
        default=None,
        unit="elements",
        doc="the buffers that DDP broadcasts in each forward; by default those that `--shapes` says; 0 is broadcast_buffers=False",
    ),
    "bucket_view": Option(values=_FLAG, default=False, doc="parameters_as_bucket_view of ZeroRedundancyOptimizer"),
    "reduce_bucket_size": Option(values=int, default=500_000_000, unit="elements", doc="of a bucket of gradients, stages 1 to 3"),
    "reduce_scatter": Option(values=_FLAG, default=True, doc="stages 1 and 2"),
    "overlap_comm": Option(values=_FLAG, default=None, doc="of stage 1: gradients are reduced while backward runs; stage 2 does so always"),
    "stage3_prefetch_bucket_size": Option(values=int, default=50_000_000, least=0, unit="elements", doc="gathered ahead at most"),
    "stage3_param_persistence_threshold": Option(
        values=int, default=100_000, least=0, unit="elements", doc="a weight of at most so many stays whole"
    ),
    "stage3_max_live_parameters": Option(
        values=int, default=1_000_000_000, least=0, unit="elements", doc="nothing is gathered ahead while so many are there"
    ),
    "stage3_max_reuse_distance": Option(
        values=int, default=1_000_000_000, least=0, unit="elements", doc="what is used again before so many others stays gathered"
    ),
    "grad_reduce_in_fp32": Option(values=_FLAG, default=False, doc="gradients are kept and reduced in single precision"),
    "overlap_grad_reduce": Option(values=_FLAG, default=False, doc="gradients are reduced in buckets"),
    "bucket_size": Option(
        values=int, default=None, unit="elements", doc="of a bucket; by default the larger of forty million and a million for each device"
    ),
    "pad_buckets_for_high_nccl_busbw": Option(values=_FLAG, default=False, doc="buckets end at multiples of 65,536 elements, too"),
    "average_in_collective": Option(values=_FLAG, default=False, doc="collectives average instead of adding up"),
}


def defaults(*names: str) -> dict[str, Value]:
    """The defaults of some options."""
    return {name: OPTIONS[name].default for name in names}


def taken(implementations: Iterable[Implementation]) -> tuple[str, ...]:
    """The options that implementations take."""
    return tuple(dict.fromkeys(name for implementation in implementations for name in implementation.options))


def check_options(implementations: tuple[Implementation, ...], options: Mapping[str, Value]) -> None:
    """Raise InputError for options that none of the implementations takes: their figures would not depend on it."""
    problems, takes = Problems(), taken(implementations)
    names = " and ".join(f"`{implementation.name}`" for implementation in implementations)
    for name, value in options.items():
        if value is not None and name not in takes:
            help_ = suggestion(name, takes) or f"its options are {', '.join(takes)}"
            problems.add("PP104", f"{names} takes no option `{name}`", help=help_)
    problems.raise_if_any()
