"""Plans: which dimensions of a block each mesh axis splits. Data; how a block comes to lie so is the business of :mod:`.lower`.

The usual plans are made by functions: tensor parallelism with and without sequence parallelism (Shoeybi et al. 2019, section 3;
Korthikanti et al. 2022, section 4.2), context parallelism that gathers keys and values, or that exchanges tokens for heads (Jacobs et al.
2023, section 3.1), expert parallelism (Lepikhin et al. 2020, section 3.2), data parallelism. :func:`combined` puts them on one mesh.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from placeproof.core.diagnostics import Problems, refuse
from placeproof.core.mesh import SPLITS, USUAL_SPLITS, Axis, axis_order
from placeproof.programs.ops import RESERVED

#: Dimensions of a transformer's weights that tensor parallelism splits: of a weight the first that it has.
HIDDEN = ("kv_heads", "heads", "ffn", "expert_ffn", "shared_ffn", "vocab")
#: Weights that every device has which splits experts: those that choose among all.
ROUTER = ("wr", "br")
#: Dimensions of heads, for which tokens are exchanged: of a value the first that it has.
HEADS = ("kv_heads", "heads")


@dataclass(frozen=True, slots=True)
class PlanAxis:
    """What one mesh axis splits. ``degree`` is None while symbolic.

    ``weights``: dimensions by which it splits what belongs to the model; a weight with none of them is replicated, and so are the
    tensors named in ``whole`` (a router). ``positions``: dimensions by which it splits what lies between blocks. Of several, a tensor is
    split by the first that it has. ``moves``: from a dimension of positions to those by which a value that it splits has to be split
    for a while (tokens to heads, tokens to experts). ``gathered``: dimensions along which what is computed is not left split.
    """

    name: str
    degree: int | None = None
    weights: tuple[str, ...] = ()
    positions: tuple[str, ...] = ()
    moves: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    gathered: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()

    @property
    def axis(self) -> Axis:
        """The mesh axis; what it splits is what its name usually says, or else what its dimensions are of."""
        what = "hidden"
        if "batch" in self.positions and not self.weights:
            what = "batch"
        elif self.positions and not self.weights:
            what = "sequence"
        elif {*self.weights} == {"experts"}:
            what = "experts"
        return Axis(name=self.name, splits=SPLITS[USUAL_SPLITS.get(self.name, what)], degree=self.degree)

    def home(self, dims: Iterable[str]) -> str | None:
        """The dimension by which it splits what has these dimensions and lies between blocks."""
        return _first(self.positions, dims)

    def away(self, home: str, dims: Iterable[str]) -> str | None:
        """The dimension by which it splits, for a while, what it usually splits by ``home``."""
        return _first(self.moves.get(home, ()), dims)

    def back(self, away: str, dims: Iterable[str]) -> str | None:
        """The dimension to which a value that it splits by ``away`` for a while comes back."""
        return _first((h for h, there in self.moves.items() if away in there), dims)

    def rank(self, dim: str) -> int:
        """Of axes that split one dimension, those come first that split weights by it, and those last that do so for a while."""
        return 0 if dim in self.weights else 1 if dim in self.positions else 2


def _first(wanted: Iterable[str], dims: Iterable[str]) -> str | None:
    there = set(dims)
    return next((d for d in wanted if d in there), None)


@dataclass(frozen=True, slots=True)
class Plan:
    """What all axes of a mesh split.

    ``regather``: what forward gathered is gathered once more where backward reads it, and only the part is kept, as Megatron does
    (megatron-core==0.16.1:megatron/core/tensor_parallel/layers.py); otherwise it is kept whole, as PyTorch's DTensor does. Raises
    InputError for axes of one name, names that are no names of axes, and degrees below 1.
    """

    axes: tuple[PlanAxis, ...]
    regather: bool = True

    def __post_init__(self) -> None:
        problems = Problems()
        for name, times in Counter(a.name for a in self.axes).items():
            if times > 1:
                help = "give each axis a name of its own, or name its dimensions in one axis"
                problems.add("PP106", f"this plan has {times} axes `{name}`", help=help)
            if not name.isidentifier() or name in RESERVED or name == "picks":
                problems.add("PP306", f"`{name}` cannot be the name of an axis", help="for example `tp`")
        for axis in self.axes:
            if axis.degree is not None and axis.degree < 1:
                problems.add("PP103", f"axis `{axis.name}` has degree {axis.degree}", help="a whole number of at least 1, or None")
        problems.raise_if_any()

    @property
    def ordered(self) -> tuple[PlanAxis, ...]:
        """The axes in the order of the mesh."""
        return tuple(sorted(self.axes, key=lambda a: axis_order(a.axis)))


def tensor_parallel(
    name: str = "tp",
    degree: int | None = None,
    *,
    sequence: bool = False,
    gathered: tuple[str, ...] = (),
    experts: Literal["split", "whole", "apart"] = "split",
) -> Plan:
    """Heads, the inside of the feed-forward block, and the vocabulary are split; with ``sequence`` the stream is, by tokens.

    ``gathered=("vocab",)`` makes each device compute the loss of every token from all logits. ``experts``: the inside of each expert is
    split as well, or each is whole, or (``apart``, beside ``sequence``) each device has experts of its own.
    """
    weights = tuple(d for d in HIDDEN if experts == "split" or d != "expert_ffn")
    axis = PlanAxis(name, degree, weights=weights, positions=("tokens",) if sequence else (), gathered=gathered)
    return Plan((_with_experts(axis, "tokens") if experts == "apart" else axis,))


def context_parallel(
    name: str = "cp", degree: int | None = None, *, by: Literal["gather", "ulysses"] = "gather", experts: bool = False
) -> Plan:
    """Tokens are split. Attention gathers keys and values, or (``ulysses``) exchanges tokens for heads and back; ``experts`` are, too."""
    axis = PlanAxis(name, degree, positions=("tokens",), moves={"tokens": HEADS} if by == "ulysses" else {})
    return Plan((_with_experts(axis, "tokens") if experts else axis,))


def expert_parallel(name: str = "ep", degree: int | None = None, *, along: str = "batch", whole: tuple[str, ...] = ROUTER) -> Plan:
    """Experts are split, and so is the stream, ``along`` the batch or tokens. ``whole`` names the router."""
    return Plan((_with_experts(PlanAxis(name, degree, positions=(along,)), along, whole),))


def _with_experts(axis: PlanAxis, along: str, whole: tuple[str, ...] = ROUTER) -> PlanAxis:
    """An axis that splits positions ``along`` a dimension, and experts, too."""
    moves = {**axis.moves, along: (*axis.moves.get(along, ()), "experts")}
    return replace(axis, weights=("experts", *axis.weights), moves=moves, whole=whole)


def data_parallel(name: str = "dp", degree: int | None = None) -> Plan:
    """The batch is split. The gradients of weights are summed over the axis, each where it is made."""
    return Plan((PlanAxis(name, degree, positions=("batch",)),))


def combined(*plans: Plan, regather: bool | None = None) -> Plan:
    """Several plans on one mesh. ``regather`` is that of the plans unless it is given; raises InputError where they differ in it."""
    said = {p.regather for p in plans}
    if regather is None and len(said) > 1:
        message = "one of these plans gathers again in backward, and another does not"
        refuse("PP106", message, help="say which: `regather=True`")
    return Plan(tuple(a for p in plans for a in p.axes), regather=regather if regather is not None else said != {False})
