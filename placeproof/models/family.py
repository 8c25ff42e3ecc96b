"""Families of models: their sizes as expressions of symbols, the stack of their blocks, and their options. Read from TOML files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from placeproof.core import files
from placeproof.core.symbols import SYMBOLS
from placeproof.core.tables import FileKind, Table
from placeproof.models.expressions import Expression, expression
from placeproof.models.programs import block_file, block_program, blocks, branch, branch_of, weights
from placeproof.programs import Program

#: Groups of parameters that a weight may be in.
GROUPS = ("matrix", "norm", "embedding", "expert", "router", "adapter")
#: That of the weights that choose experts.
ROUTER = "router"
#: The dimension along which the weights of experts lie beside one another.
EXPERTS = "experts"
#: Dimensions that no axis splits for a weight that has one of them alone: gains and biases along them are a group of their own.
WHOLE = frozenset({"hidden", "q_rank", "kv_rank", "width"})
#: What a file of a model is: a family, or a preset of one.
KIND = FileKind(
    noun="a model's file",
    manual="compare it with the files in placeproof/models",
    unreadable="PP501",
    unknown="PP502",
    wrong="PP503",
    missing="PP503",
)
_FOLDER = Path(__file__).parent / "families"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPart:
    """One part of a stack: blocks in their order, ``times`` times over. ``in_turn``: its repetitions come in turn with those of the part
    before it, which are as many."""

    name: str
    times: Expression
    blocks: tuple[str, ...]
    in_turn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One value of an option. ``blocks``: a block of the stack, or one that an option before it put there, -> the one in its place, or
    several in their order. ``ones``: masks that are left out."""

    blocks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ones: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What may be chosen in a family, and what is usual."""

    name: str
    default: str
    choices: Mapping[str, Choice]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Models of one kind.

    ``defaults``: symbols with what they are if they are not given. ``dims``: the sizes of the dimensions that its blocks name.
    ``groups``: the group of a weight where it does not follow from its dimensions. ``shared``: names of weights that are one tensor
    wherever they stand (a tied table). ``buffers``: for a block, tensors that it has beside its weights and that no gradient trains, by
    name with their dimensions. ``programs``: every block that the stack or an option names.
    """

    name: str
    title: str
    source: str
    note: str = ""
    stack: tuple[StackPart, ...]
    dims: Mapping[str, Expression]
    defaults: Mapping[str, Expression] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    shared: tuple[str, ...] = ()
    buffers: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    options: Mapping[str, Option] = field(default_factory=dict)
    programs: Mapping[str, Program]

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols that its sizes are expressions of, defaults included, in the order of their first use."""
        every = [*self.dims.values(), *self.defaults.values(), *(p.times for p in self.stack)]
        return tuple(dict.fromkeys([*(n for e in every for n in e.names), *self.defaults]))

    def group(self, weight: str, dims: tuple[str, ...]) -> str:
        """The group of a weight: that which the family names, or what its dimensions say."""
        if weight in self.groups:
            return self.groups[weight]
        if EXPERTS in dims:
            return "expert"
        if "vocab" in dims or "positions" in dims:
            return "embedding"
        return "norm" if len(dims) == 1 and dims[0] in WHOLE else "matrix"


def apart(group: str) -> frozenset[str]:
    """The dimensions of a weight of a group along which several matrices lie beside one another."""
    return frozenset({EXPERTS} if group == "expert" else ())


def families() -> tuple[str, ...]:
    """The names of all families that come with this package."""
    return files.stems(_FOLDER)


@cache
def family(name: str) -> Family:
    """The family of that name. Raises KeyError where there is none."""
    if name not in families():
        raise KeyError(name)
    return read_family(Table.open(_FOLDER / f"{name}.toml", kind=KIND), folder=None)


def read_family(table: Table, *, folder: Path | None) -> Family:
    """The family of a TOML text; ``folder`` is where blocks of its own lie. Raises InputError with every problem of the text."""
    made = table.record(
        Family,
        {"programs": {}},
        stack=lambda table, key: _stack(table.table(key)),
        dims=_sizes,
        defaults=_sizes,
        buffers=lambda table, key: {block.name: {name: block.texts(name) for name in block.data} for block in table.tables(key)},
        options=lambda table, key: {option.name: _option(option) for option in table.tables(key)},
    )
    before = len(table.problems.found)
    made = replace(made, programs=_programs(table, made.stack, made.options, folder))
    if len(table.problems.found) == before and made.stack and all(part.blocks for part in made.stack):
        _Checks(table=table, family=made).all()  # without one of the blocks, all that speaks of it would seem wrong
    return table.sound(made)


def _sizes(table: Table, key: str) -> dict[str, Expression]:
    inner = table.table(key)
    return {name: _size(inner, name) for name in inner.data}


def _size(table: Table, key: str) -> Expression:
    return table.parsed(key, expression, "1", help='for example "h/a" or "L - 1"')


def _stack(table: Table) -> tuple[StackPart, ...]:
    if not table.data:
        table.refuse("a family has a stack of blocks", help='`[stack.layers]` with `times = "L"` and `blocks = [...]`')
    parts = tuple(part.record(StackPart, {"name": part.name}, times=_size, blocks=Table.texts) for part in table.tables())
    for part in parts:
        if not part.blocks:
            help = 'a list of names: `blocks = ["rms_norm", "attention"]`'
            table.refuse(f"`{part.name}` has no blocks", part.name, "blocks", help=help)
    for before, part in zip((None, *parts), parts, strict=False):
        if part.in_turn and (before is None or str(before.times) != str(part.times) or str(part.times) == "1"):
            message = f"`{part.name}` comes in turn with the part before it, which is not repeated as often"
            table.refuse(message, part.name, "in_turn", help='give both the same `times`, for example "L/2"')
    return parts


def _option(table: Table) -> Option:
    default = table.required("default")
    values = [table.table(key) for key in table.data if key != "default"]
    choices = {value.name: value.record(Choice, blocks=_replaced) for value in values}
    if default and default not in choices:
        listed = ", ".join(choices) or "none"
        table.refuse(f"`{default}` is no value of the option `{table.name}`", "default", help=f"its values: {listed}")
    return Option(name=table.name, default=default, choices=choices)


def _replaced(table: Table, key: str) -> dict[str, tuple[str, ...]]:
    """Blocks, each with a text, or a list of texts, of what stands in its place."""
    inner = table.table(key)
    return {name: inner.required_texts(name) if isinstance(inner.data[name], list) else (inner.required(name),) for name in inner.data}


def _programs(table: Table, stack: tuple[StackPart, ...], options: Mapping[str, Option], folder: Path | None) -> dict[str, Program]:
    """Every block that is named, read."""
    named: list[tuple[tuple[str, ...], str]] = [(("stack", part.name, "blocks"), block) for part in stack for block in part.blocks]
    for option in options.values():
        for value, choice in option.choices.items():
            named += [(("options", option.name, value, "blocks"), block) for blocks in choice.blocks.values() for block in blocks]
    programs: dict[str, Program] = {}
    for path, block in named:
        if block not in programs and (program := _program(table, block, path, folder)) is not None:
            programs[block] = program
    return programs


def _program(table: Table, named: str, path: tuple[str, ...], folder: Path | None) -> Program | None:
    """A block as a stack names it, read; None where there is none."""
    block, of = branch_of(named)
    program = None
    if block.endswith(".step") and folder is not None:
        with table.problems.collecting():
            program = block_file(folder / block)
    elif block in blocks():
        program = block_program(block)
    else:
        table.unknown(f"there is no block `{block}`", block, blocks(), *path)
    if program is None or of is None:
        return program
    try:
        return branch(program, of)
    except ValueError as error:
        table.refuse(str(error), *path, help=f"`{block}` alone gives the new stream")
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checks:
    """What the parts of a family have to agree on."""

    table: Table
    family: Family

    def all(self) -> None:
        """Every check."""
        self._weights()
        self._dims()
        self._options()
        self._symbols()

    def _weights(self) -> None:
        """Groups, shared tensors and buffers are of what is there."""
        made, table = self.family, self.table
        known = {w.name for p in made.programs.values() for w in weights(p)}
        for name, group in made.groups.items():
            if name not in known:
                table.unknown(f"no block has a weight `{name}`", name, known, "groups", name)
            if group not in GROUPS:
                table.unknown(f"`{group}` is no group of parameters", group, GROUPS, "groups", name)
        for name in made.shared:
            if name not in known:
                table.unknown(f"no block has a weight `{name}`", name, known, "shared")
        for block in made.buffers:
            if block not in made.programs:
                table.unknown(f"the stack has no block `{block}`", block, made.programs, "buffers", block)

    def _dims(self) -> None:
        """Every dimension of a block has a size, and nothing else has one."""
        made, table = self.family, self.table
        used = {d: n for n, p in made.programs.items() for t in p.tensors for d in (*t.dims, *([t.picks] if t.picks else []))}
        used |= {d: block for block, tensors in made.buffers.items() for dims in tensors.values() for d in dims}
        for dim, block in used.items():
            if dim not in made.dims:
                help = f'add `{dim} = "..."`, an expression of symbols'
                table.refuse(f"the size of dimension `{dim}`, which `{block}` has, is not said", "dims", help=help)
        for dim in made.dims:
            if dim not in used:
                table.unknown(f"no block has a dimension `{dim}`", dim, used, "dims", dim)

    def _options(self) -> None:
        """Options replace blocks of the stack, and leave out tensors that are there."""
        made, table = self.family, self.table
        stacked = {block for part in made.stack for block in part.blocks}
        choices = [choice for option in made.options.values() for choice in option.choices.values()]
        stacked |= {block for choice in choices for blocks in choice.blocks.values() for block in blocks}
        tensors = {t.name for p in made.programs.values() for t in p.tensors}
        for option in made.options.values():
            for value, choice in option.choices.items():
                path = ("options", option.name, value)
                for block in choice.blocks:
                    if block not in stacked:
                        table.unknown(f"the stack has no block `{block}`", block, stacked, *path, "blocks", block)
                for mask in choice.ones:
                    if mask not in tensors:
                        table.unknown(f"no block has a tensor `{mask}`", mask, tensors, *path, "ones")

    def _symbols(self) -> None:
        """Expressions use defined symbols, and no default rests on itself."""
        made, table = self.family, self.table
        places: dict[str, tuple[str, ...]] = {n: ("dims", d) for d, e in reversed([*made.dims.items()]) for n in e.names}
        places |= {n: ("defaults", s) for s, e in made.defaults.items() for n in e.names}
        places |= {n: ("stack", p.name, "times") for p in made.stack for n in p.times.names}
        for name, path in places.items():
            if name not in SYMBOLS and name not in made.defaults:
                table.unknown(f"there is no symbol `{name}`", name, {*SYMBOLS, *made.defaults}, *path, code="PP201")
        for name in made.defaults:
            if name not in places:
                table.unknown(f"no size is an expression of `{name}`", name, places, "defaults", name)
            if cycle := _cycle(name, made.defaults):
                shown = " -> ".join(f"`{n}`" for n in cycle)
                table.refuse(f"the default of `{name}` rests on itself: {shown}", "defaults", name, code="PP504", help="break the circle")


def _cycle(name: str, defaults: Mapping[str, Expression]) -> tuple[str, ...]:
    """The way from a symbol's default back to it, or nothing."""
    ways: list[tuple[str, ...]] = [(name,)]
    seen: set[str] = set()
    while ways:
        way = ways.pop()
        for after in defaults[way[-1]].names:
            if after == name:
                return (*way, name)
            if after in defaults and after not in seen:
                seen.add(after)
                ways.append((*way, after))
    return ()
