"""What a framework keeps in memory otherwise than the blocks' programs say. Read from TOML files beside this module, or from a user's.

Each difference has a name, words, and a source: the file and the function that does so. Nothing here is a number of bytes but workspaces,
whose sizes are constants of the source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from pathlib import Path

from placeproof.core import files
from placeproof.core.diagnostics import Place, Problems, suggestion, unknown_name
from placeproof.core.tables import FileKind, Table
from placeproof.implementations.modules import Module, Operation, modules, operations

_FOLDER = Path(__file__).parent
_KIND = FileKind(noun="an implementation of blocks", manual="see docs/reference/implementations.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor that is kept for a value: its dimensions, and ``width``, the bytes of an element, 0 for as many as the value's has."""

    dims: tuple[str, ...]
    width: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is otherwise than in the blocks' programs. Values are ``block.value``, weights ``block.weight``.

    ``again``: values that a kernel makes again where it reads them, so that nobody keeps them. ``one_tensor``: values that are written one
    over the other. ``gradients``: weights whose gradient is a tensor of its own before it is added to what the step keeps. ``dummies``:
    blocks for whose matrices a gradient lies beside that nobody writes to, one for each distinct shape; matrices that multiply the same
    value are one. ``keeps_output``: whether a layer that is computed again whole has its output, and the gradient by it, until its backward
    is over. ``flat_gradients``: whether the gradients that a device updates are copied into one tensor, as wide; ``bucket``: elements
    of gradients that are copied into one tensor to be reduced. ``widened_gradients``: whether the update makes gradients in fp32 of its
    own. ``second_gradients``: whether the gradient of a weight that a stage has twice is a tensor of its own, the second time.
    ``runs``: blocks, each with the one that is run in its place: a program that gives the same of the same tensors.
    ``kept_as``: values, each with the tensors that are kept for it. ``held``: values that a name of forward has until the block's is over.
    ``lasting``: values of which a layer has that of its last forward, each as these tensors. ``in_place``: whether a gradient is added to
    one that waits, and both do not make a third one. ``workspace``: bytes that lie beside all the time, by the architecture of a device,
    ``other`` for any other one.
    """

    name: str
    text: str
    source: str
    runs: Mapping[str, str] = field(default_factory=dict, hash=False)
    again: tuple[str, ...] = ()
    one_tensor: tuple[str, ...] = ()
    kept_as: Mapping[str, tuple[Tensor, ...]] = field(default_factory=dict, hash=False)
    held: tuple[str, ...] = ()
    lasting: Mapping[str, tuple[Tensor, ...]] = field(default_factory=dict, hash=False)
    gradients: tuple[str, ...] = ()
    dummies: tuple[str, ...] = ()
    keeps_output: bool = False
    flat_gradients: bool = False
    bucket: int = 0
    widened_gradients: bool = False
    second_gradients: bool = False
    in_place: bool = False
    workspace: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """Where a file speaks of a block, or of a ``value`` of it; ``kind``: what that has to be, a key of what a block says of its names."""

    block: str
    value: str | None = None
    kind: str = "value"
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockImplementation:
    """How a framework runs blocks. ``describes``: the blocks that it says everything of; others are run as their programs say.
    ``architecture``: of the device that they run on, ``other`` for the newest. ``mentions``: what a user's file speaks
    of. ``operations``, ``modules``: where blocks are run as modules of an eager framework. ``known``: numbers that it is run with."""

    name: str
    title: str
    source: str
    describes: tuple[str, ...]
    assumes: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    architecture: str = "other"
    mentions: tuple[Mention, ...] = field(default=(), compare=False)
    operations: Mapping[str, Operation] = field(default_factory=dict, hash=False)
    modules: Mapping[str, Module] = field(default_factory=dict, hash=False)
    known: Mapping[str, Fraction] = field(default_factory=dict, hash=False)

    def require_known(self, blocks: Mapping[str, Callable[[], Mapping[str, Collection[str]]]]) -> None:
        """Raise InputError with everything that the file speaks of and that there is not.

        ``blocks``: the names of all blocks, each with what says the names of each ``value``, ``tensor`` of its header, and ``weight``.
        """
        problems = Problems()
        for one in self.mentions:
            if one.block not in blocks:
                help = suggestion(one.block, blocks) or "`placeproof list model-blocks` shows those of all models"
                problems.add("PP111", f"there is no block `{one.block}`", place=one.place, help=help)
            elif one.value == "":
                help = f"write `{one.block}.NAME`, a name of {', '.join(blocks[one.block]()[one.kind])}"
                problems.add("PP111", f"`{one.block}` is a block, and a value of it is meant", place=one.place, help=help)
            elif one.value is not None and one.value not in (known := blocks[one.block]()[one.kind]):
                help = suggestion(one.value, known) or f"it has {', '.join(known)}"
                problems.add("PP111", f"block `{one.block}` has no {one.kind} `{one.value}`", place=one.place, help=help)
        problems.raise_if_any()

    def on(self, architecture: str) -> BlockImplementation:
        """The same on a device of an architecture; empty for one that nobody names."""
        return replace(self, architecture=architecture or "other")

    def knowing(self, values: Mapping[str, Fraction]) -> BlockImplementation:
        """The same, run with these numbers."""
        return replace(self, known={**self.known, **values})

    @property
    def runs(self) -> dict[str, str]:
        """Blocks, each with the one that is run in its place."""
        return {block: other for one in self.differences for block, other in one.runs.items()}

    @property
    def again(self) -> tuple[str, ...]:
        """Values that nobody keeps."""
        return tuple(value for one in self.differences for value in one.again)

    @property
    def tensors(self) -> tuple[tuple[str, ...], ...]:
        """Values that share a tensor."""
        return tuple(one.one_tensor for one in self.differences if one.one_tensor)

    @property
    def kept_as(self) -> dict[str, tuple[Tensor, ...]]:
        """Values, each with the tensors that are kept for it."""
        return {value: tensors for one in self.differences for value, tensors in one.kept_as.items()}

    @property
    def held(self) -> frozenset[str]:
        """Values that a name of forward has until the block's is over."""
        return frozenset(value for one in self.differences for value in one.held)

    @property
    def lasting(self) -> dict[str, tuple[Tensor, ...]]:
        """Values of which a layer has that of its last forward, each as these tensors."""
        return {value: tensors for one in self.differences for value, tensors in one.lasting.items()}

    @property
    def gradients(self) -> frozenset[str]:
        """Weights whose gradient is made before it is added."""
        return frozenset(weight for one in self.differences for weight in one.gradients)

    @property
    def dummies(self) -> frozenset[str]:
        """Blocks for whose matrices a gradient lies beside."""
        return frozenset(block for one in self.differences for block in one.dummies)

    @property
    def keeps_output(self) -> bool:
        """Whether a layer that is computed again whole has its output, and the gradient by it, until its backward is over."""
        return any(one.keeps_output for one in self.differences)

    @property
    def flat_gradients(self) -> bool:
        """Whether the gradients that a device updates are copied into one tensor."""
        return any(one.flat_gradients for one in self.differences)

    @property
    def bucket(self) -> int:
        """Elements of gradients that are copied into one tensor to be reduced."""
        return sum(one.bucket for one in self.differences)

    @property
    def widened_gradients(self) -> bool:
        """Whether the update makes gradients in fp32 of its own."""
        return any(one.widened_gradients for one in self.differences)

    @property
    def second_gradients(self) -> bool:
        """Whether the gradient of a weight that a stage has twice is a tensor of its own, the second time."""
        return any(one.second_gradients for one in self.differences)

    @property
    def in_place(self) -> bool:
        """Whether a gradient is added to one that waits."""
        return any(one.in_place for one in self.differences)

    @property
    def workspace(self) -> int:
        """Bytes of workspaces."""
        return sum(one.workspace.get(self.architecture, one.workspace.get("other", 0)) for one in self.differences)


def names() -> tuple[str, ...]:
    """The names of all implementations that come with placeproof."""
    return files.stems(_FOLDER)


def find(name: str) -> BlockImplementation:
    """The implementation of that name, or of a file that ends in ``.toml``. Raises InputError with all names, or with all that is wrong."""
    if name.endswith(".toml"):
        table = Table.open(name, kind=_KIND)
        if table.data.get("name") in names():
            help = "another name: measured runs are not those of yours"
            table.refuse(f"`{table.data['name']}` is an implementation that comes with placeproof", "name", help=help)
        made = read(table)
        return replace(made, mentions=tuple(_mentions(table, made)))
    if name not in names():
        listed = f"they are {', '.join(names())}; a file of your own ends in .toml"
        raise unknown_name(f"there is no implementation of blocks `{name}`", name, names(), listed)
    return _shipped(name)


@cache
def _shipped(name: str) -> BlockImplementation:
    return read(Table.open(_FOLDER / f"{name}.toml", kind=_KIND))


def read(table: Table) -> BlockImplementation:
    """The implementation of a file. Raises InputError with all that is wrong."""
    said = table.fields(
        **dict.fromkeys(("name", "title", "source"), Table.required),
        **dict.fromkeys(("describes", "assumes"), Table.texts),
        difference=lambda table, key: tuple(_differences(table, key)),
        operation=operations,
        module=lambda table, key: modules(table, key, operations(replace(table, problems=Problems()), "operation")),
    )
    parts = {f"{key}s": said.pop(key) for key in ("difference", "operation", "module")}
    said["describes"] += tuple(name for name, one in parts["modules"].items() if not one.takes)
    return table.sound(BlockImplementation(**said, **parts))


def _differences(table: Table, key: str) -> Iterator[Difference]:
    for one in table.tables(key):
        yield one.record(Difference, {"name": one.name}, kept_as=_tensors, lasting=_tensors)


#: Dimensions, and bytes of an element.
_TENSOR = re.compile(r"(?P<dims>\w+(?: \w+)*)(?:: (?P<width>[1-9][0-9]{0,3}))?")


def _tensors(table: Table, key: str) -> dict[str, tuple[Tensor, ...]]:
    """Values, each with a list of tensors."""
    inner, found = table.table(key), {}
    for value in inner.data:
        told = [(text, _TENSOR.fullmatch(text)) for text in inner.texts(value)]
        for text, said in told:
            if said is None:
                help = 'dimensions, and how wide an element is where it is not as wide as the value: "batch tokens experts: 4"'
                inner.refuse(f"`{text}` is no tensor", value, help=help)
        found[value] = tuple(Tensor(dims=tuple(said["dims"].split()), width=int(said["width"] or 0)) for _, said in told if said)
    return found


def _mentions(table: Table, made: BlockImplementation) -> Iterator[Mention]:
    """Every block and every value that a file speaks of."""
    yield from (Mention(block=name, place=table.place("describes")) for name in made.describes)
    for one in made.differences:
        yield from (Mention(block=name, place=table.place("difference", one.name, "dummies")) for name in one.dummies)
        for block, other in one.runs.items():
            yield from (Mention(block=name, place=table.place("difference", one.name, "runs", block)) for name in (block, other))
        for key, tensors in (("kept_as", one.kept_as), ("lasting", one.lasting)):
            for value in tensors:
                (block, _, own), place = value.partition("."), table.place("difference", one.name, key, value)
                dims = [(dim, "dimension") for tensor in tensors[value] for dim in tensor.dims]
                yield from (Mention(block=block, value=name, kind=kind, place=place) for name, kind in ((own, "value"), *dims))
        for key in ("again", "one_tensor", "held", "gradients"):
            place = table.place("difference", one.name, key)
            for name in getattr(one, key):
                block, _, value = name.partition(".")
                yield Mention(block=block, value=value, kind="weight" if key == "gradients" else "value", place=place)
    for module in (one for one in made.modules.values() if not one.takes):
        yield Mention(block=module.name, place=table.place("module", module.name))
        place = table.place("module", module.name, "forward")
        yield from (Mention(block=module.name, value=name, kind="tensor", place=place) for name in module.given)
