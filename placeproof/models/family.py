"""Families of models: their sizes as expressions of symbols, the stack of their blocks, and their options. Read from TOML files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

from placeproof.core.diagnostics import InputError
from placeproof.core.symbols import SYMBOLS
from placeproof.models.expressions import Expression
from placeproof.models.programs import block_file, block_program, blocks, weights
from placeproof.models.tables import Table
from placeproof.programs import Program

#: Groups of parameters that a weight may be in.
GROUPS = ("matrix", "norm", "embedding", "expert", "router")
#: Dimensions that no axis splits for a weight that has one of them alone: gains and biases along them are a group of their own.
WHOLE = frozenset({"hidden", "q_rank", "kv_rank"})
_KEYS = ("name", "title", "source", "note", "shared", "defaults", "dims", "groups", "buffers", "options", "stack")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a stack: blocks in their order, ``times`` times over."""

    name: str
    times: Expression
    blocks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One value of an option. ``blocks``: a block of the stack -> the one in its place. ``ones``: masks that are left out."""

    blocks: Mapping[str, str] = field(default_factory=dict)
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
    stack: tuple[Part, ...]
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
        if "experts" in dims:
            return "expert"
        if "vocab" in dims or "positions" in dims:
            return "embedding"
        return "norm" if len(dims) == 1 and dims[0] in WHOLE else "matrix"


def families() -> tuple[str, ...]:
    """The names of all families that come with this package."""
    return tuple(sorted(f.name.removesuffix(".toml") for f in (files(__package__) / "families").iterdir() if f.name.endswith(".toml")))


@cache
def family(name: str) -> Family:
    """The family of that name. Raises KeyError where there is none."""
    if name not in families():
        raise KeyError(name)
    text = (files(__package__) / "families" / f"{name}.toml").read_text(encoding="utf-8")
    return read_family(Table.read(text, source=f"{name}.toml"), folder=None)


def read_family(table: Table, *, folder: Path | None) -> Family:
    """The family of a TOML text; ``folder`` is where blocks of its own lie. Raises InputError with every problem of the text."""
    table.known(_KEYS)
    stack = tuple(_stack(table.table("stack")))
    options = {name: _option(name, table.table("options", name)) for name in table.table("options").data}
    before = len(table.problems.found)
    programs = _programs(table, stack, options, folder)
    complete = len(table.problems.found) == before
    made = Family(
        name=table.text("name", required=True),
        title=table.text("title", required=True),
        source=table.text("source", required=True),
        note=table.text("note"),
        stack=stack,
        dims=table.expressions("dims"),
        defaults=table.expressions("defaults"),
        groups=table.mapping("groups"),
        shared=table.texts("shared"),
        buffers=_buffers(table.table("buffers")),
        options=options,
        programs=programs,
    )
    complete = complete and all(part.blocks for part in stack)
    if complete and stack:  # without one of the blocks, all that speaks of it would seem wrong
        _Checks(table=table, family=made).all()
    table.problems.raise_if_any()
    return made


def _stack(table: Table) -> Iterator[Part]:
    if not table.data:
        table.refuse("PP503", "a family has a stack of blocks", help='`[stack.layers]` with `times = "L"` and `blocks = [...]`')
    for name in table.data:
        part = table.table(name)
        part.known(("times", "blocks"))
        times, named = part.expression("times", "1"), part.texts("blocks")
        if not named:
            part.refuse("PP503", f"`{name}` has no blocks", "blocks", help='a list of names: `blocks = ["rms_norm", "attention"]`')
        yield Part(name=name, times=times, blocks=named)


def _option(name: str, table: Table) -> Option:
    choices = {}
    for value in (key for key in table.data if key != "default"):
        choice = table.table(value)
        choice.known(("blocks", "ones"))
        choices[value] = Choice(blocks=choice.mapping("blocks"), ones=choice.texts("ones"))
    default = table.text("default", required=True)
    if default and default not in choices:
        listed = ", ".join(choices) or "none"
        table.refuse("PP503", f"`{default}` is no value of the option `{name}`", "default", help=f"its values: {listed}")
    return Option(name=name, default=default, choices=choices)


def _programs(table: Table, stack: tuple[Part, ...], options: Mapping[str, Option], folder: Path | None) -> dict[str, Program]:
    """Every block that is named, read."""
    named: list[tuple[tuple[str, ...], str]] = [(("stack", part.name, "blocks"), block) for part in stack for block in part.blocks]
    for option in options.values():
        for value, choice in option.choices.items():
            named += [(("options", option.name, value, "blocks"), block) for block in choice.blocks.values()]
    found: dict[str, Program] = {}
    for path, block in named:
        if block in found:
            continue
        if block.endswith(".step") and folder is not None:
            try:
                found[block] = block_file(folder / block)
            except InputError as error:
                table.problems.found.extend(d for d in error.diagnostics if d not in table.problems.found)
        elif block in blocks():
            found[block] = block_program(block)
        else:
            table.unknown(f"there is no block `{block}`", block, blocks(), *path)
    return found


def _buffers(table: Table) -> dict[str, dict[str, tuple[str, ...]]]:
    """For each block that is named, what it has beside its weights."""
    return {block: {name: table.table(block).texts(name) for name in table.table(block).data} for block in table.data}


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
                table.refuse("PP503", f"the size of dimension `{dim}`, which `{block}` has, is not said", "dims", help=help)
        for dim in made.dims:
            if dim not in used:
                table.unknown(f"no block has a dimension `{dim}`", dim, used, "dims", dim)

    def _options(self) -> None:
        """Options replace blocks of the stack, and leave out tensors that are there."""
        made, table = self.family, self.table
        stacked = {block for part in made.stack for block in part.blocks}
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
                table.refuse("PP504", f"the default of `{name}` rests on itself: {shown}", "defaults", name, help="break the circle")


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
