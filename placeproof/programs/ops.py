"""The operations of a step program, as a table.

A row says how an operation is written and what kind of thing it makes. The parser, the printer and the well-formedness
rules read the table; each interpretation gives the rows its own meaning. To add an operation is to add a row here and
its meaning in the interpretations that should know it.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from enum import Enum


class Axes(Enum):
    """Whether an operation names mesh axes after its operands."""

    NONE = "none"
    ONE = "exactly one"
    SOME = "one or more"
    ANY = "any number"


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation.

    ``operands`` are positional, the last ``optional`` of them may be left out; ``options`` are written ``name=value``
    and map to the values allowed, the first of which is the default (an empty tuple: an integer or a name, and no default); ``results`` is
    the least and greatest number of targets (0 for an effect).
    """

    name: str
    operands: tuple[str, ...]
    doc: str
    axes: Axes = Axes.NONE
    options: tuple[tuple[str, tuple[str, ...]], ...] = ()
    optional: int = 0
    results: tuple[int, int] = (1, 1)
    collective: bool = False
    variadic: bool = False

    def signature(self) -> str:
        """The operation as it is written."""
        required = len(self.operands) - self.optional
        parts = [o if i < required else f"[{o}]" for i, o in enumerate(self.operands)]
        if self.variadic:
            parts.append("...")
        parts += {Axes.NONE: [], Axes.ONE: ["axis"], Axes.SOME: ["axis", "..."], Axes.ANY: ["[axis", "...]"]}[self.axes]
        parts += [f"{name}={'|'.join(values) if values else '...'}" for name, values in self.options]
        return f"{self.name}({', '.join(parts)})"


_REDUCE = ("op", ("sum", "mean", "max"))
_VIA = ("via", ("ring", "all_to_all"))
_DIM: tuple[str, tuple[str, ...]] = ("dim", ())
_OVER: tuple[str, tuple[str, ...]] = ("over", ())
#: What losses are means over (placeproof.programs.losses.UNITS).
_UNITS = ("tokens", "samples", "sequences", "prompts", "weights")
_OPS = (
    # Collectives. A reduction needs every device of its group; the result of the others is data that moved.
    Op(name="all_reduce", operands=("x",), axes=Axes.SOME, options=(_REDUCE,), collective=True,
       doc="combine over the axes, everywhere; a partial sum becomes a full copy"),
    Op(name="reduce_scatter", operands=("x",), axes=Axes.SOME, options=(_REDUCE, _VIA, _DIM), collective=True,
       doc="combine over the axes, and leave each device its own part"),
    Op(name="all_gather", operands=("x",), axes=Axes.SOME, collective=True,
       doc="collect the parts of all devices, everywhere"),
    Op(name="all_to_all", operands=("x",), axes=Axes.SOME, options=(_DIM, ("order", ("blocked", "matrices"))), collective=True,
       doc='send part j to device j: exchange which dimension is split. Over several axes `dim` '
       'names one for all, or one each: `dim="batch tokens"`. Of states, `order=matrices` makes whole matrices of parts, one owner '
       "each, and `order=blocked` parts of these again"),
    Op(name="shift", operands=("x",), axes=Axes.ONE, options=(("by", ("1", "-1")),), collective=True,
       doc="what the device before it along the axis has; the first has what the last had (`by=-1`: the other way round)"),
    Op(name="broadcast", operands=("x",), axes=Axes.SOME, options=(("root", ()),), collective=True,
       doc="copy the value of the root (a rank, or `owner`: each part from its owner) to all; without one, of parameters, "
       "optimizer state and gradients the owners', of anything else the first device's"),
    Op(name="reduce", operands=("x",), axes=Axes.SOME, options=(_REDUCE, ("root", ())), collective=True,
       doc="combine over the axes on the root alone (a rank, or `owner`: each part at its owner); the default is that of `broadcast`"),
    Op(name="send", operands=("x",), axes=Axes.ONE, options=(("to", ()),), results=(0, 0), collective=True,
       doc="send to the device `to` steps along the axis (`to=1`: the next); how many is always said"),
    Op(name="recv", operands=(), axes=Axes.ONE, options=(("source", ()),), collective=True,
       doc="receive from the device `source` steps along the axis (`source=-1`: the one before); how many is always said"),
    Op(name="tied_reduce", operands=("x",), axes=Axes.ONE, options=(_REDUCE,), collective=True,
       doc="all-reduce between the first and the last device of the axis: the copies of a tied weight"),
    # Asynchrony.
    Op(name="start", operands=("collective",), doc="start a collective; its buffer lives, but may not be read, until `wait`"),
    Op(name="wait", operands=("handle",), doc="the result of a started collective"),
    # Local data movement.
    Op(name="part", operands=("x",), axes=Axes.SOME, options=(("order", ("blocked", "interleaved", "per_component")), _DIM),
       doc="the device's own part of a full copy"),
    Op(name="copy", operands=("x",), doc="a new buffer with the same content"),
    Op(name="cast", operands=("x", "width"), doc="the same values in another number of bytes an element (a width symbol)"),
    Op(name="quantize", operands=("x", "width"), doc="a lossy narrower form; a declared approximation"),
    Op(name="dequantize", operands=("x",), doc="back from a quantised form"),
    Op(name="to_host", operands=("x",), doc="copy to host memory over the host link"),
    Op(name="to_device", operands=("x",), doc="copy from host memory over the host link"),
    # Compute.
    Op(name="data", operands=("microbatch",), optional=1, doc="the device's own samples (of one micro-batch)"),
    Op(name="forward", operands=("w", "x"), results=(1, 2),
       doc="output and, as a second target, what backward needs of it"),
    Op(name="loss", operands=("x",), options=(("mean", _UNITS), ("sum", _UNITS), ("loss", ())),
       doc="gradient of the loss with respect to the model's output: backward begins; of the mean over the device's own tokens, unless "
       "`mean=`, `sum=` or `loss=` say otherwise"),
    Op(name="backward", operands=("w", "saved", "dx"), optional=2, results=(1, 2),
       options=(("mean", _UNITS), ("sum", _UNITS), ("loss", ())),
       doc="the parameters' gradient and, as a second target, the input's; `backward(w, i)` is a whole pass over micro-batch i: of the "
       "mean loss of the device's own tokens, unless `mean=`, `sum=` or `loss=` say otherwise"),
    Op(name="backward_input", operands=("w", "saved", "dx"), doc="the input's gradient alone"),
    Op(name="backward_weight", operands=("w", "saved", "dx", "x"), optional=1,
       doc="the parameters' gradient alone; `x` is the input where forward did not keep it whole"),
    Op(name="output", operands=("saved",), doc="the output of a forward, from what it kept"),
    Op(name="update", operands=("parameters", "optimizer", "gradients", "skip"), optional=1, results=(2, 2),
       doc="the optimizer's step: new parameters and optimizer state; nothing changes where the flag `skip` is set"),
    Op(name="update_with", operands=("parameters", "optimizer", "gradients", "given", "norms"), optional=1, results=(2, 2),
       doc="the step of an optimizer in two parts, with what the first one gives: norms of tensors (`tensor_norms`), the direction of each "
       "element (`orthogonalize`), or sums along lines (`line_sums`) and norms"),
    Op(name="tensor_norms", operands=("parameters", "optimizer", "gradients", "sums"), optional=1,
       doc="of each tensor, what a layer-wise optimizer sums over its elements, with sums along lines if it reads them: over those that "
       "this device has"),
    Op(name="line_sums", operands=("gradients",),
       doc="of each matrix, what an optimizer sums along each of its rows and columns (Adafactor's squares of gradients): over those "
       "elements that this device has"),
    Op(name="momentum", operands=("optimizer", "gradients"),
       doc="what an optimizer makes of each element's state and gradient before it reads whole matrices (Muon's momentum)"),
    Op(name="orthogonalize", operands=("x",),
       doc="of each matrix, what an optimizer makes of all of it (Muon's Newton-Schulz iterations): of what this device has of the matrix"),
    Op(name="statistics", operands=("w", "microbatch"), optional=1,
       doc="a statistic of the device's own samples that layers use (a mean of a batch normalisation, a router's load)"),
    Op(name="backward_with", operands=("w", "microbatch", "statistics"),
       doc="a whole pass whose layers use a statistic of the batch"),
    Op(name="master", operands=("optimizer",), doc="the parameters, from the full-precision copy that optimizer state holds"),
    Op(name="elementwise", operands=("f", "x"), doc="a function applied to each element (GELU, ...)"),
    Op(name="dropout", operands=("x", "key"), doc="mask by a random key"),
    Op(name="random", operands=(), axes=Axes.ANY, options=(("draw", ()),),
       doc="a random key or value, different along the axes named, equal along the others. Each `random` in the text draws another one, in "
       "each micro-batch; `draw=n` is that of the n-th, counted from 0, as where the state of the generator is restored"),
    # Tensors, in programs that declare some: dimensions have names, and tensors are aligned by them.
    Op(name="contract", operands=("a", "b"), options=(_OVER,), doc="sum of products over a dimension of both: over what this device holds"),
    Op(name="total", operands=("x",), options=(_OVER,), doc="sum over one dimension, over what this device holds of it"),
    Op(name="largest", operands=("x",), options=(_OVER,), doc="greatest value over one dimension, over what this device holds of it"),
    Op(name="hot", operands=("picks",), doc="1 at the position along the dimension that is picked, 0 elsewhere"),
    Op(name="slope", operands=("f", "x"), doc="the derivative of an elementwise function"),
    Op(name="returns", operands=("x",), results=(0, 0), options=(("gradient_of", ()), ("by", ()), ("at", ())),
       doc="what has to equal the program on one device; with options: and the derivative of one tensor by another"),
    # Scale, norm, clip.
    Op(name="scale", operands=("x", "factor"), doc="multiply by a scalar"),
    Op(name="zero", operands=("x",), results=(0, 0), doc="set to zero"),
    Op(name="tokens", operands=("microbatch",), optional=1, doc="the number of tokens that count in the device's own samples"),
    Op(name="count", operands=("microbatch",), optional=1, options=(("of", _UNITS[1:]),),
       doc="how many samples, sequences or prompts the device's own micro-batch has, or the sum of the weights of its samples; those "
       "whose tokens lie on several devices count on each"),
    Op(name="square_norm", operands=("x",), options=(("shared", ("all", "first")),),
       doc="sum of squares of what this device holds; of a weight that stages share, `shared=first` leaves out what the last stage has"),
    Op(name="min", operands=("a", "b"), doc="the smaller of two scalars"),
    Op(name="max", operands=("a", "b"), doc="the larger of two numbers, element by element"),
    Op(name="sqrt", operands=("scalar",), doc="square root"),
    Op(name="clip_factor", operands=("norm", "limit"), optional=1,
       doc="min(1, limit / norm); a proof takes it for a function of the two, and knows no more"),
    # Flags that must agree between devices.
    Op(name="found_inf", operands=("x",), doc="flag: something that this device holds is not finite"),
    Op(name="rescale", operands=("scaler", "flag"), doc="the loss scaler after a step: smaller when the flag is set"),
    # Versions and lifetimes.
    Op(name="stale", operands=("x", "steps"), doc="the value that x had so many steps ago"),
    Op(name="free", operands=("x",), results=(0, 0), doc="release the buffer"),
)  # fmt: skip

OPS: dict[str, Op] = {op.name: op for op in _OPS}
#: What an option that has words is where a program does not say: the first of them.
DEFAULTS = {option: words[0] for op in _OPS for option, words in op.options if words}
COLLECTIVES = tuple(op.name for op in _OPS if op.collective)

#: How a branch may compare a rank with a number.
COMPARE = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

#: What a loop may walk over: name -> meaning. Each part of an earlier one may be walked by a later one.
DOMAINS: dict[str, str] = {
    "microbatches": "the micro-batches of one step",
    "units": "what is gathered at once",
    "layers": "transformer layers",
    "blocks": "attention and MLP blocks, two a layer",
}

#: What a loop of a program over tensors may walk over: `for r in rounds[cp]:`.
ROUNDS = "rounds"
LOOPS: dict[str, str] = DOMAINS | {ROUNDS: "the rounds of a ring over an axis, one for each other device, in programs over tensors"}

#: Words of the language that no buffer may be called.
HEADER = (
    "program",
    "mesh",
    "splits",
    "inner",
    "group",
    "place",
    "count",
    "unit",
    "approximate",
    "reference",
    "without",
    "not_compared",
    "tensor",
)
RESERVED = frozenset(OPS) | frozenset(LOOPS) | frozenset(HEADER) | {"rank", "reversed"}
