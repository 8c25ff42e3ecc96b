"""What lowering needs to know of a strategy, asked once of its placement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import product

from placeproof.collectives import CONVERSIONS, AxisLayout, Conversion
from placeproof.core.modes import Mode, Share
from placeproof.core.states import ACTIVATIONS, GRADIENTS, OPTIMIZER, PARAMETERS, State
from placeproof.core.strategy import (
    ADAPTER,
    ADAPTER_SUMS,
    BASE,
    COPIES,
    DENSE,
    ELEMENTWISE,
    EXPERT,
    EXPERT_COPIES,
    EXPERTS,
    FROZEN,
    MATRICES,
    MATRIX,
    MATRIX_COPIES,
    MATRIX_SUMS,
    NORM,
    OUTER,
    TIED,
    Strategy,
)


@dataclass(frozen=True)
class Facts:
    """Axes by what they ask of a step. ``linked``: of one whose layers are calls of blocks, which say themselves how axes split them.
    ``tied``: of a model with weights that the first and the last stage share; ``sums``: groups with gradients that its blocks leave as sums
    over axes which split the hidden dimension, with these. ``copies``: groups of which each device of such axes has all, as its blocks say,
    with these; ``vectors``: whether its blocks have weights of the group of what is no matrix to an update of whole matrices."""

    strategy: Strategy
    linked: bool = False
    tied: bool = False
    sums: Mapping[str, tuple[str, ...]] | None = None
    copies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    vectors: bool = True

    def modes(self, state: State, group: str | None = None) -> tuple[tuple[str, Mode], ...]:
        """The modes of a state (of a group) on all axes, by name."""
        group = EXPERT if group in EXPERTS else group
        return tuple(sorted((a.name, self.strategy.mode(state, a.name, group)) for a in self.strategy.axes))

    def on_host(self, state: State, group: str | None = None) -> bool:
        """Whether a state lies on the host; of optimizer state, the update is then computed there."""
        return any(mode.fetches for _, mode in self.modes(state, group))

    @cached_property
    def samples(self) -> tuple[str, ...]:
        """Axes whose devices see different samples: gradients are partial sums over them."""
        return tuple(a.name for a in self.strategy.axes if a.splits.samples)

    @cached_property
    def means(self) -> tuple[str, ...]:
        """Of these axes those over which a step takes the mean. Blocks that are split over one take the mean loss of all its tokens."""
        return tuple(a for a in self.samples if not (self.linked and (a in self.experts or self.strategy.axis(a).splits.tokens)))

    @cached_property
    def hidden(self) -> tuple[str, ...]:
        """The axes that split the hidden dimension: several where experts lie otherwise on each."""
        return tuple(a.name for a in self.strategy.axes if a.splits.matrices)

    @property
    def cut(self) -> str | None:
        """The axis that splits the hidden dimension of the layers that the step itself writes out."""
        return None if self.linked else next(iter(self.hidden), None)

    @cached_property
    def stages(self) -> str | None:
        """The axis that splits the layers."""
        return next((a.name for a in self.strategy.axes if a.splits.stages), None)

    @cached_property
    def experts(self) -> tuple[str, ...]:
        """The axes over which experts lie in parts, while everything else lies as other strategies say."""
        return self.strategy.experts

    def among(self, axes: tuple[str, ...], group: str | None) -> tuple[str, ...]:
        """Of some axes those that matter to a group: no device needs, or adds anything to, another one's experts."""
        return tuple(a for a in axes if a not in self.experts) if group in EXPERTS else axes

    def apart(self, *axes: tuple[str, ...], trained: bool = False) -> tuple[str | None, ...]:
        """The groups, or those that are trained, for which an operation over axes is written one by one; (None,) where one serves all."""
        groups = self.trained if trained else self.groups
        apart = any(e in a for e in self.experts for a in axes) and any(g in EXPERTS for g in groups)
        return groups if apart else (None,)

    @cached_property
    def whole_experts(self) -> bool:
        """Whether no expert is split over a hidden axis: it computes with the tokens that a device has, as norms do."""
        return bool(self.experts) and bool(self.hidden) and not self.split_experts

    @cached_property
    def split_experts(self) -> bool:
        """Whether what experts make is a partial sum over a hidden axis, as what other matrices make."""
        split = [a for a in self.hidden if a not in self.experts and self.strategy.mode(PARAMETERS, a, EXPERT).split]
        return bool(self.experts) and bool(split)

    @cached_property
    def summed_with_norms(self) -> tuple[str, ...]:
        """Groups of which each device of a hidden axis finds a part of the gradient: that of its own tokens."""
        if self.sums is not None:
            return tuple(self.sums)
        if not self.sequence_parallel:
            return ()
        return (NORM, EXPERT) if self.whole_experts and not {*self.hidden} & {*self.experts} else (NORM,)

    def summed_over(self, group: str) -> tuple[str, ...]:
        """The hidden axes of which each device finds a part of the gradient of such a group."""
        return self.hidden if self.sums is None else self.sums[group]

    @cached_property
    def gather(self) -> tuple[str, ...]:
        """Axes over which parameters are gathered for use."""
        return tuple(a.name for a in self.strategy.axes if self.strategy.mode(PARAMETERS, a.name, MATRIX).gathers)

    @cached_property
    def early(self) -> tuple[str, ...]:
        """Sample axes on which gradients are kept in parts: they are reduced as they are produced."""
        return tuple(a for a in self.samples if self.strategy.mode(GRADIENTS, a).split)

    @cached_property
    def optimizer_parts(self) -> tuple[str, ...]:
        """Sample axes on which each device owns a part of the optimizer state."""
        return tuple(a for a in self.samples if self.strategy.mode(OPTIMIZER, a).split)

    def read_in_parts(self, axis: str) -> bool:
        """Whether the update reads gradients in parts on an axis that splits samples."""
        whole = self.strategy.schedule.reduce == "all_reduce" and axis not in self.early
        return axis in self.optimizer_parts and not whole

    @cached_property
    def late(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The conversions of gradients that can wait for the last micro-batch: (operation, axes).

        On each axis the cheapest sequence; those that shrink a tensor come first, those that grow it last.
        """
        steps: dict[str, list[str]] = {"reduce_scatter": [], "part": [], "all_reduce": [], "all_gather": []}
        for axis in self.samples:
            before = AxisLayout.SHARD if axis in self.early else AxisLayout.PARTIAL
            after = AxisLayout.SHARD if self.read_in_parts(axis) else AxisLayout.REPLICATE
            for step in cheapest(before, after):
                steps[step.op].append(axis)
        return tuple((op, tuple(axes)) for op, axes in steps.items() if axes)

    @cached_property
    def gathered_late(self) -> tuple[str, ...]:
        """Axes on which gradients lie in parts, and the update reads them whole: what is gathered for it is a buffer of its own."""
        return dict(self.late).get("all_gather", ())

    @cached_property
    def whole_parts(self) -> tuple[str, ...]:
        """Sample axes along which a device's parts are whole matrices."""
        split = [a for a in self.samples if any(self.strategy.mode(s, a).split for s in (PARAMETERS, OPTIMIZER, GRADIENTS))]
        return tuple(split) if self.strategy.schedule.matrices == "owned" else ()

    @property
    def whole_update(self) -> bool:
        """Whether the update reads whole matrices."""
        return self.strategy.schedule.update is not None

    @property
    def matrices_apart(self) -> bool:
        """Whether the update reads whole matrices, and something else of what is none. Shampoo preconditions gains and biases, too."""
        return self.strategy.schedule.update not in (None, "preconditioned")

    def in_matrices(self, group: str | None) -> bool:
        """Whether what the update reads of a group is whole matrices, or all that a tensor has."""
        if not self.whole_update or group in self.frozen:
            return False
        return not self.matrices_apart or group in MATRICES or group == ADAPTER or (group == TIED and self.norms_of_vectors)

    @property
    def norms_of_vectors(self) -> bool:
        """Whether what is no matrix to the update is scaled by norms of its tensors, as by Adafactor, to which tables and heads are
        matrices; if not, it is updated by elements, as by Muon, to which only what layers multiply with is."""
        return self.strategy.schedule.update == "factored"

    def cut_tensors(self, group: str | None) -> tuple[str, ...]:
        """The axes along which a device has parts of each matrix, or vector, of which the update reads the whole."""
        if group in self.frozen or not (self.in_matrices(group) or self.norms_of_vectors):
            return ()
        parts = [a for a in self.among(self.optimizer_parts, group) if a not in self.whole_parts]
        cut = () if group in (MATRIX_COPIES, MATRIX_SUMS, NORM, COPIES) else self.among(self.hidden, group)
        return (*parts, *(axis for axis in cut if group == ELEMENTWISE or dict(self.modes(OPTIMIZER, group))[axis].split))

    def cut_axes(self, group: str | None) -> tuple[str, ...]:
        """The axes along which each device has other elements of the gradients that the update reads, of a group."""
        samples, axes = self.among(self.samples, group), []
        for axis in (a.name for a in self.strategy.axes):
            if axis in self.hidden:
                copied = axis in self.copies.get(group or "", ())
                split = not copied if self.linked else dict(self.modes(GRADIENTS, group))[axis].split
            else:
                split = (axis in samples and self.read_in_parts(axis)) or axis == self.stages or (axis in self.experts and group in EXPERTS)
            axes += [axis] if split else []
        return tuple(axes)

    @cached_property
    def copied_parameters(self) -> tuple[str, ...]:
        """Sample axes on which every device keeps all parameters."""
        return tuple(a for a in self.samples if self.strategy.mode(PARAMETERS, a).device is Share.WHOLE)

    @cached_property
    def _outer(self) -> Mode | None:
        """How activations outside parallel regions lie on the hidden axes, on all of them alike."""
        return self.strategy.mode(ACTIVATIONS, self.hidden[0], OUTER) if self.hidden else None

    @cached_property
    def sequence_parallel(self) -> bool:
        """Whether activations outside parallel regions are split over the hidden axes."""
        return self._outer is not None and self._outer.stays_split

    @cached_property
    def norms_each(self) -> bool:
        """Whether gradients of norms are summed over the hidden axes as they are produced."""
        return bool(self.summed_with_norms) and self.strategy.schedule.norms == "each"

    @cached_property
    def split_checkpoints(self) -> bool:
        """Whether activation checkpoints are split over the hidden axes and gathered when used."""
        return self._outer is not None and self._outer.gathers

    @cached_property
    def checkpoints_on_host(self) -> bool:
        """Whether activation checkpoints lie on the host."""
        return (self._outer is not None and self._outer.fetches) or self.strategy.schedule.checkpoints == "host"

    @cached_property
    def microbatches(self) -> bool:
        """Whether a step has more than one forward and backward pass."""
        return self.strategy.schedule.microbatches is not None

    @cached_property
    def bucketed(self) -> bool:
        """Whether a unit's gradients are produced before they are reduced."""
        return self.strategy.schedule.bucket == "unit" and bool(self.early)

    @cached_property
    def recompute(self) -> bool:
        """Whether each layer keeps its input alone."""
        return bool(self.strategy.schedule.recompute)

    @cached_property
    def loops(self) -> tuple[tuple[str, str], ...]:
        """The loops over parts of the model, outermost first: (variable, domain)."""
        nest = []
        if self.gather or self.bucketed:
            nest.append(("u", "units"))
        if self.recompute:
            nest.append(("l", "layers"))
        if self.cut is not None:
            nest.append(("k", "blocks"))
        return tuple(nest)

    @cached_property
    def groups(self) -> tuple[str | None, ...]:
        """Parameter groups that are placed differently; (None,) when all lie alike."""
        apart = (*([EXPERT] if self.experts else []), *([TIED] if self.tied else []))
        apart += tuple(group for group in (COPIES, EXPERT_COPIES) if group in self.copies)
        apart += (FROZEN,) if self.strategy.schedule.train == "part" else ()
        whole, adapters = self.matrices_apart, self.strategy.schedule.train == "adapters"
        if whole and self.linked and not adapters:
            named = (MATRIX_SUMS in self.summed_with_norms, MATRIX_COPIES in self.copies, self.vectors, NORM in self.summed_with_norms)
            own = zip((MATRIX_SUMS, MATRIX_COPIES, ELEMENTWISE, NORM), named, strict=True)
            return (MATRIX, *(group for group, there in own if there), *apart)
        beside = bool(self.hidden) or whole
        if beside and not adapters and (NORM in self.summed_with_norms or not self.linked):
            return (MATRIX, NORM, *apart)
        if adapters:
            return (BASE, *apart, ADAPTER, *([ADAPTER_SUMS] if ADAPTER_SUMS in self.summed_with_norms else []))
        return (DENSE, *apart) if apart else (None,)

    @cached_property
    def frozen(self) -> tuple[str | None, ...]:
        """The groups that are not trained."""
        adapters = self.strategy.schedule.train == "adapters"
        return tuple(g for g in self.groups if (g not in (ADAPTER, ADAPTER_SUMS) if adapters else g == FROZEN))

    @cached_property
    def trained(self) -> tuple[str | None, ...]:
        """The groups that have gradients and optimizer state."""
        return tuple(g for g in self.groups if g not in self.frozen)

    @cached_property
    def reshard(self) -> bool | int | str:
        """What happens to gathered parameters after forward."""
        reshard = self.strategy.schedule.reshard
        return True if reshard is None else reshard

    @cached_property
    def root_kept(self) -> bool:
        """Whether the root unit stays gathered from its forward to its backward, while the others are dropped."""
        return self.strategy.schedule.root == "keep" and bool(self.gather) and self.reshard is not False

    @cached_property
    def sub_group(self) -> str | None:
        """The axis factor over which a shard stays after forward, or None."""
        if isinstance(self.reshard, bool):
            return None
        axis = next((a for a in self.strategy.axes if a.inner is not None and a.name in self.gather), None)
        return axis.inner_name if axis is not None else None


@lru_cache(maxsize=16)
def cheapest(before: AxisLayout, after: AxisLayout) -> tuple[Conversion, ...]:
    """The conversions on one axis that send least in all.

    Each ring pass moves the same (n-1)/n s, so that the order of costs is the same for every degree n >= 2. Raises
    ValueError where no sequence exists (nothing makes a partial sum of a full copy).
    """
    chains = (steps for count in range(len(AxisLayout)) for steps in product(CONVERSIONS, repeat=count))
    fitting = [s for s in chains if [before, *(one.after for one in s)] == [*(one.before for one in s), after]]
    if not fitting:
        raise ValueError(f"no collectives lead from {before.value} to {after.value}")
    return min(fitting, key=lambda steps: sum(one.passes for one in steps))
