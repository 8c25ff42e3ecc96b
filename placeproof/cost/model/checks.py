"""Whether numbers fit together: every size that an axis divides, all of them at once.

What is divided is read off the blocks' programs on the mesh: each dimension of a weight, or of what is kept, that axes split. The rules
name the frameworks that ask the same (``placeproof explain RULE``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from math import prod

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.core.mesh import Axis
from placeproof.core.symbols import symbol
from placeproof.cost.model.derivation import ModelDerivation
from placeproof.semantics.blocks.plan import HEADS
from placeproof.semantics.scheduled import needed

#: A dimension and what the axis splits -> the frameworks' own rules.
_RULES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("heads", "hidden"): ("megatron-16", "colossalai-12", "nanotron-02"),
    ("kv_heads", "hidden"): ("colossalai-13", "megatron-78"),
    ("kv_heads", "sequence"): ("deepspeed-26",),
    ("heads", "sequence"): ("deepspeed-23",),
    ("tokens", "sequence"): ("deepspeed-27", "torchtitan-04"),
    ("tokens", "hidden"): ("torchtitan-04",),
    ("experts", "batch"): ("megatron-30",),
    ("ffn", "hidden"): ("nanotron-05", "nanotron-06"),
}
#: Those that also allow fewer heads than devices, each copied to equally many of them.
_COPIED = ("megatron-78", "deepspeed-26")
#: Frameworks deal out a causal sequence from both ends, so that every device has early and late tokens alike.
_BOTH_ENDS = ("megatron-19", "pytorch-15", "torchtitan-04")


def require_fit(d: ModelDerivation, values: Mapping[str, Fraction]) -> None:
    """Raise InputError with every size that a degree does not divide, as far as both are numbers."""
    problems = Problems()
    known = {**d.values, **values}
    degrees = {a.name: n for a in d.linked.axes if (n := _degree(d, a, known)) is not None}
    splits = tuple(_splits(d))
    for dim, axes in splits:
        _divided(d, dim, axes, degrees, known, problems)
    whole = {axis for dim, axes in splits if dim in HEADS for axis in axes}  # attention there has all tokens, and some heads
    for axis in d.linked.axes:
        size = _size(d, "tokens", known)
        dealt = axis.splits.tokens and axis.name in degrees and axis.name not in whole
        if dealt and size is not None and size % (2 * degrees[axis.name]):
            problems.add(
                "PP202",
                f"a sequence of {size} tokens has no {2 * degrees[axis.name]} equal parts, two for each device of `{axis.name}`",
                help="tokens are dealt out from both ends, so that devices have equally much to do under a causal mask",
                notes=(_rules(_BOTH_ENDS),),
            )
    _layers(d, degrees, known, problems)
    if d.linked.pipeline is not None:
        count = int(known["m"]) if "m" in known else None
        missing = needed(d.order, degrees.get(d.linked.pipeline), count, d.chunks)
        problems.found += [p for p in missing if p not in problems.found]
    problems.raise_if_any()


def require_names(d: ModelDerivation, names: Iterable[str]) -> None:
    """Raise InputError with every name, ``block.value`` or ``value``, that no value of numbers has which a device keeps of forward."""
    kept = {(s.block, s.name) for part in d.parts for s in (*part.plain.kept(), *part.layer.kept()) if s.picks is None}
    known = {name for block, value in kept for name in (value, f"{block}.{value}")}
    problems = Problems()
    run_by = d.run_by if d.run_by is not None and d.run_by.modules else None
    for name in names:
        if run_by is not None:
            problems.add("PP104", f"`{run_by.name}` says how wide `{name}` is", help="leave the width out, or write a file of your own")
        elif name not in known:
            help = suggestion(name, known) or f"`placeproof derive {d.linked.name!r} --model {d.linked.model}` lists what is kept"
            problems.add("PP104", f"{d.linked.model} keeps no value `{name}` whose width could be set", help=help)
    problems.raise_if_any()


def _splits(d: ModelDerivation) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every dimension that axes split, with them, once."""
    seen = set()
    for part in d.parts:
        for stored in (*(w for _, w in part.weights), *part.layer.kept(part.drawn)):
            for dim, axes in stored.split:
                if (dim, axes) not in seen:
                    seen.add((dim, axes))
                    yield dim, axes


def _degree(d: ModelDerivation, axis: Axis, known: Mapping[str, Fraction]) -> int | None:
    degree = d.at.degrees[axis.name]
    value = degree if isinstance(degree, int) else known.get(str(degree))
    return None if value is None else int(value)


def _size(d: ModelDerivation, dim: str, known: Mapping[str, Fraction]) -> int | None:
    value = d.value(d.at.sizes[dim], known) if dim in d.at.sizes else None
    return None if value is None or value.denominator != 1 else int(value)


def _divided(
    d: ModelDerivation, dim: str, axes: tuple[str, ...], degrees: Mapping[str, int], known: Mapping[str, Fraction], problems: Problems
) -> None:
    size = _size(d, dim, known)
    if size is None or any(a not in degrees for a in axes) or size % (devices := prod(degrees[a] for a in axes)) == 0:
        return
    copies = dim == "kv_heads" and devices % size == 0
    by = " and ".join(f"`{a}` of degree {degrees[a]}" for a in axes)
    splits = [a.splits.name for a in d.linked.axes if a.name in axes]
    rules = tuple(dict.fromkeys(r for s in splits for r in _RULES.get((dim, s), ()) if not (copies and r in _COPIED)))
    help = f"choose degrees that divide {size}"
    help += ", or a padded vocabulary: `--vocab-padding 128`" if dim == "vocab" else ""
    help += ": copies of heads on several devices are not known to the blocks" if copies else ""
    verb = "split" if len(axes) > 1 else "splits"
    problems.add(
        "PP202",
        f"{by} {verb} dimension `{dim}` of size {size} of {d.linked.model}, which {'they do' if len(axes) > 1 else 'it does'} not divide",
        help=help,
        notes=(_rules(rules),) if rules else (),
    )


def _layers(d: ModelDerivation, degrees: Mapping[str, int], known: Mapping[str, Fraction], problems: Problems) -> None:
    axis = d.linked.pipeline
    if axis is None or axis not in degrees or any(c.stage.index is not None and len(d.costs) != 3 for c in d.costs):
        return
    repeated = [p for p in d.parts if p.repeats]
    count = d.value(repeated[0].times.at({n: symbol(n) for n in repeated[0].times.names}), known) if repeated else None
    if count is not None and not isinstance(d.at.degrees[axis], int) and count % (degrees[axis] * d.chunks):
        parts = f"{degrees[axis]} stages" if d.chunks == 1 else f"{degrees[axis]} stages of {d.chunks} parts"
        problems.add(
            "PP202",
            f"{count} layers of {d.linked.model} cannot be shared out evenly over {parts}",
            help="give the degree in the strategy and say how many layers each stage has: `--stages 7,8x14,7`",
            notes=(_rules(("megatron-21",)),),
        )


def _rules(names: tuple[str, ...]) -> str:
    return "the same rule in frameworks: " + ", ".join(names) + " (`placeproof explain " + names[0] + "`)"
