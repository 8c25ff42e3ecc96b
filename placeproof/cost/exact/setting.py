"""What exact bytes are asked of: a strategy as an implementation realises it, a model's tensors, a mesh, and one device of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TypeAlias

from placeproof.core.diagnostics import Problems
from placeproof.core.program import For, Program, statements
from placeproof.core.shapes import Shapes, Unit, Weight
from placeproof.core.strategy import EXPERT, Strategy
from placeproof.profiles.profile import Implementation
from placeproof.semantics.lower import lower

Value: TypeAlias = bool | int | float | str | None

#: Bytes of an element by the name of its type.
BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """Bytes an element: of parameters as they are kept, of those that are gathered and of activations, and of gradients on the wire."""

    kept: int
    computed: int
    reduced: int


def widths(options: Mapping[str, Value]) -> Widths:
    """From the options ``dtype``, ``param_dtype`` and ``reduce_dtype``: gradients are reduced in the type of the computation unless
    another one is given."""
    kept = str(options.get("dtype") or "float32")
    computed = str(options.get("param_dtype") or kept)
    reduced = str(options.get("reduce_dtype") or computed)
    return Widths(kept=BYTES[kept], computed=BYTES[computed], reduced=BYTES[reduced])


@dataclass(frozen=True)
class Setting:
    """One device's view. ``mesh``: degrees by axis, the slowest first; ``rank`` counts along it.

    ``implementations``: of the strategy's parts, at most one that cuts states and at most one with a plan for blocks.
    """

    strategy: Strategy
    implementations: tuple[Implementation, ...]
    shapes: Shapes
    mesh: Mapping[str, int]
    rank: int = 0
    options: Mapping[str, Value] = field(default_factory=dict)

    @cached_property
    def program(self) -> Program:
        """The step program."""
        return lower(self.strategy)

    @cached_property
    def widths(self) -> Widths:
        """Bytes an element."""
        return widths(self.options)

    @cached_property
    def at(self) -> dict[str, int]:
        """The device's coordinates."""
        found: dict[str, int] = {}
        left = self.rank
        for axis in reversed(tuple(self.mesh)):
            left, found[axis] = divmod(left, self.mesh[axis])
        return found

    @cached_property
    def states(self) -> Implementation:
        """The implementation that says how states are cut and sent."""
        return next((i for i in self.implementations if not i.plan), self.implementations[0])

    @cached_property
    def blocks(self) -> Implementation | None:
        """The implementation that says how blocks are run on several devices."""
        return next((i for i in self.implementations if i.plan), None)

    def degree(self, axes: Iterable[str]) -> int:
        """Devices of a group that spans these axis factors."""
        return prod(self._degrees[a] for a in axes)

    @cached_property
    def _degrees(self) -> dict[str, int]:
        return degrees(self.strategy, self.mesh)

    @cached_property
    def sample_axes(self) -> tuple[str, ...]:
        """The axes whose devices see different samples."""
        return tuple(a.name for a in self.strategy.axes if a.splits.samples)

    @cached_property
    def hidden(self) -> str | None:
        """The axis that splits the hidden dimension."""
        return next((a.name for a in self.strategy.axes if a.splits.name == "hidden"), None)

    @cached_property
    def stage_axis(self) -> str | None:
        """The axis of pipeline stages."""
        return next((a.name for a in self.strategy.axes if a.splits.name == "layers"), None)

    @cached_property
    def cut_axes(self) -> tuple[str, ...]:
        """The axes of samples over which parameters, gradients or optimizer state are cut into parts."""
        from placeproof.core.states import MODEL_STATES

        return tuple(
            a.name for a in self.strategy.axes if a.splits.samples and any(self.strategy.mode(s, a.name).split for s in MODEL_STATES)
        )

    # Stages of a pipeline.

    @cached_property
    def stages(self) -> int:
        """Number of stages; several lie on one device where the implementation's schedule wants it."""
        return 1 if self.stage_axis is None else self.mesh[self.stage_axis] * int(self.options.get("virtual") or 1)

    @cached_property
    def own_stages(self) -> tuple[int, ...]:
        """The stages of this device, in order."""
        if self.stage_axis is None:
            return (0,)
        devices, here = self.mesh[self.stage_axis], self.at[self.stage_axis]
        if any(i.order == "fold" for i in self.implementations):
            return tuple(sorted({here, self.stages - 1 - here}))
        return tuple(range(here, self.stages, devices))

    def holder(self, stage: int) -> int:
        """The coordinate along the stage axis of the device that has a stage."""
        assert self.stage_axis is not None
        devices = self.mesh[self.stage_axis]
        if any(i.order == "fold" for i in self.implementations):
            return min(stage, self.stages - 1 - stage)
        return stage % devices

    @cached_property
    def _root_begins(self) -> int:
        """How many of the root's weights are used before the other units: the embedding, or all but the last."""
        root = self.shapes.units[0]
        return 1 if "embedding" in root.blocks else max(0, len(root.weights) - 1)

    def by_use(self, weights: list[Weight]) -> list[Weight]:
        """Weights in the order in which forward uses them."""
        end = [w for w in self.shapes.units[0].weights[self._root_begins :] if w in weights]
        return [w for w in weights if w not in end] + end

    def units_of(self, stage: int) -> tuple[Unit, ...]:
        """A stage's units. All stages have as many units as any other or one more; the root's beginning lies on the first, its end on the
        last."""
        root, others = self.shapes.units[0], self.shapes.units[1:]
        mine = others[stage * len(others) // self.stages : (stage + 1) * len(others) // self.stages]
        if self.stages == 1:
            return (root, *mine)
        begins = self._root_begins
        weights: tuple[Weight, ...] = ()
        if stage == 0:
            weights = root.weights[:begins]
        if stage == self.stages - 1:
            weights = (*weights, *root.weights[begins:])
        return (Unit(name=root.name, weights=weights, blocks=root.blocks), *mine)


def degrees(strategy: Strategy, mesh: Mapping[str, int]) -> dict[str, int]:
    """Degrees by axis, and by factor of each axis with sub-groups, whose size is 1 where it has no number."""
    found = dict(mesh)
    for axis in strategy.axes:
        if axis.inner is not None:
            inner = axis.inner if isinstance(axis.inner, int) else 1
            found |= {axis.inner_name: inner, axis.outer_name: mesh[axis.name] // inner}
    return found


def settled(system: str, defaults: Mapping[str, Value], options: Mapping[str, Value]) -> dict[str, Value]:
    """The options over a system's defaults. Raises InputError for names that the defaults do not have."""
    problems = Problems()
    for name in options:
        if name not in defaults:
            problems.add("PP104", f"`{name}` is no option that is predicted of {system}", help=f"its options are {', '.join(defaults)}")
    problems.raise_if_any()
    return {**defaults, **options}


def check_degrees(strategy: Strategy, mesh: Mapping[str, int]) -> None:
    """Raise InputError unless every axis of the strategy has a degree on the mesh, the same one where it says one itself; and for experts
    that lie otherwise than the rest of the model: exact bytes ask for one mode of a state on an axis."""
    problems = Problems()
    experts = next((e for e in strategy.entries if EXPERT in e.groups), None)
    if experts is not None:
        message = f"exact bytes of experts that `{experts.owner}` places apart over axis `{experts.axis}` were not measured"
        help_ = f"leave out `{experts.owner}`, or derive closed forms of a model: `--model mixtral-8x7b`"
        problems.add("PP101", message, help=help_)
    for axis in strategy.axes:
        if axis.name not in mesh:
            problems.add("PP203", f"exact bytes need the degree of axis `{axis.name}`", help=f"give it: `--set N_{axis.name}=8`")
        elif axis.degree not in (None, mesh[axis.name]):
            problems.add("PP103", f"axis `{axis.name}` has {axis.degree} devices, not {mesh[axis.name]}", help="say it once")
    problems.raise_if_any()


def check_shapes(setting: Setting) -> None:
    """Raise InputError where the model does not say what the strategy exchanges: blocks for a split hidden dimension, sizes for messages;
    or where nobody says how many micro-batches there are."""
    problems, dims = Problems(), dict(setting.shapes.dims)
    sized = "give `transformer(...)`, or a file of shapes with `blocks` and `[dims]`"
    if setting.hidden is not None and setting.mesh[setting.hidden] > 1 and not all(u.blocks for u in setting.shapes.units):
        message = f"axis `{setting.hidden}` splits the blocks of the model, and {setting.shapes.name} does not name them"
        problems.add("PP203", message, help=sized)
    missing = [d for d in _needed(setting) if d not in dims]
    if missing:
        problems.add("PP203", f"{setting.shapes.name} does not say its {', '.join(missing)}", help=sized)
    walks = any(isinstance(s, For) and s.domain == "microbatches" for s in statements(setting.program.body))
    if walks and setting.program.count("microbatches") is None and not setting.options.get("microbatches"):
        help_ = "say it in the strategy, `accumulate(4)` or `pp(4, microbatches=8)`, or `--option microbatches=8`"
        problems.add("PP203", "exact bytes need the number of micro-batches", help=help_)
    problems.raise_if_any()


def _needed(setting: Setting) -> tuple[str, ...]:
    """The dimensions whose sizes exchanges depend on."""
    if setting.hidden is not None and setting.mesh[setting.hidden] > 1:
        return ("batch", "tokens", "hidden", "heads", "kv_heads", "ffn", "vocab")
    return ("batch", "tokens", "hidden") if setting.stages > 1 else ()


def check_beside(implementations: tuple[Implementation, ...], parts: Iterable[str]) -> None:
    """Raise InputError where implementations were not measured together, or a part of the strategy was not measured with them."""
    problems = Problems()
    if not implementations:
        return
    first, *others = implementations
    apart = [one.name for one in others if one.name not in first.beside]
    known = {name for one in implementations for name in one.of} | ({"tp"} if any("sp" in one.of for one in implementations) else set())
    apart += [part for part in parts if part not in known]
    if apart:
        message = f"what `{first.name}` exchanges together with {' and '.join(f'`{n}`' for n in apart)} was not measured"
        problems.add("PP101", message, help="leave one out; `derive --profile` without `--shapes` has the closed forms of the composition")
    problems.raise_if_any()
