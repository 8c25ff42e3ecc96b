"""Programs of blocks put together: forward in order, then backward in reverse, with the gradients of what is passed on.

A block reads the stream as ``x`` and what the norm before it gives as ``n``. Its ``returns`` without a gradient gives ``y``, the new
stream, or ``n``. What no block before gives is an input of the chain, and so is the gradient that backward begins with. The gradient of
a tensor that several blocks read is the sum of what they give for it.

The gradients that the chain claims are those of its last block's result, so the whole program can be simulated, and proved where the
prover has the time: it is a check on the chain rule that is trusted when blocks are proved one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from placeproof.core.diagnostics import refuse
from placeproof.core.mesh import Axis
from placeproof.cost.blocks.recompute import read_again, renamed
from placeproof.models.programs import WIRES
from placeproof.programs import Assign, Binary, Call, Do, Expr, For, Program, Ref, Stmt
from placeproof.programs.ir import Tensor, adjoints
from placeproof.semantics.layouts.layout import Layout
from placeproof.semantics.layouts.lines import Line, inputs, lines

__all__ = ["INPUT", "Origin", "chained"]

#: The block that an input of the chain is said to be of.
INPUT = "input"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value of a chain is from: the name of the block, its number from 1, and the block's own name for the value.

    An input of the chain is of the block :data:`INPUT`, number 0.
    """

    block: str
    number: int
    name: str


def chained(blocks: Sequence[Program], name: str = "layer") -> tuple[Program, dict[str, Origin]]:
    """The program of a chain of blocks, and where each of its names is from.

    Raises InputError for no block, and for a program that is none or does not give exactly ``y`` or ``n``; where a result is not read;
    where a block reads a tensor in another layout than it is given in; and where meshes contradict one another.
    """
    if not blocks:
        refuse("PP309", "a chain has at least one block")
    chain = _Chain([_Part(block, number) for number, block in enumerate(blocks, 1)])
    program = replace(
        blocks[0],
        name=name,
        axes=_axes(blocks),
        body=(*chain.forward(), *chain.backward()),
        tensors=tuple(chain.header.values()),
        approximates=tuple(dict.fromkeys(a for b in blocks for a in b.approximates)),
        without=tuple(dict.fromkeys(w for b in blocks for w in b.without)),
    )
    return read_again(program), chain.origins


def _axes(blocks: Sequence[Program]) -> tuple[Axis, ...]:
    axes: dict[str, Axis] = {}
    for block in blocks:
        for axis in block.axes:
            if axes.setdefault(axis.name, axis) != axis:
                refuse("PP305", f"axis `{axis.name}` of `{block.name}` is not that of the blocks before")
    return tuple(axes.values())


class _Part:
    """One block of a chain. ``given``: what it gives; ``seed``: the gradient of it that comes in, None where it has no backward;
    ``called``: its names in the chain."""

    def __init__(self, program: Program, number: int) -> None:
        self.program, self.number = program, number
        self.lines = lines(program)
        for stmt in program.body:
            if isinstance(stmt, For):
                refuse("PP309", "a block with rounds of a ring cannot be put into a chain", place=stmt.place)
        self.tensors = {t.name: t for t in program.tensors}
        self.given, self.result = self._gives()
        self.seed = self._seed()
        written = [line.stmt.targets[0].name for line in self.lines if isinstance(line.stmt, Assign)]
        for wire in filter(self.read, WIRES.values()):
            if wire in written:
                place = self.tensors[wire].place
                refuse("PP309", f"`{program.name}` overwrites `{wire}`, which it reads", "give what it makes another name", place=place)
        self.called = {n: f"{n}_{number}" for n in (*self.tensors, *written)}

    def _gives(self) -> tuple[str, Layout]:
        """What the block gives, `y` or `n`."""
        results = [(call, line.result.layout) for line in self.lines if (call := _returned(line)) and not call.option("gradient_of")]
        if len(results) != 1:
            refuse("PP309", f"`{self.program.name}` gives {len(results)} results, and a block of a chain gives one", "`returns(y)`")
        (arg,) = results[0][0].args
        if not isinstance(arg, Ref) or arg.name not in WIRES:
            help = "call it `y` if it is the stream, and `n` if the next block reads it beside the stream"
            refuse("PP309", f"the result of `{self.program.name}` is neither `y` nor `n`", help, place=arg.place)
        return arg.name, results[0][1]

    def _seed(self) -> Tensor | None:
        """The tensor of the header that backward begins with. A block before which nothing is trained, and in which nothing is, has no
        backward."""
        seeds = adjoints(self.program)
        if not seeds:
            return None
        for call in filter(None, map(_returned, self.lines)):
            if call.option("gradient_of") not in (None, self.given):
                refuse("PP309", f"in a chain every gradient of `{self.program.name}` is one of `{self.given}`", place=call.place)
        if len(seeds) != 1 or not seeds <= set(self.tensors):
            help = f"declare it: `tensor(d{self.given}, ...)`"
            refuse("PP309", f"backward of `{self.program.name}` does not begin with one tensor of its header", help)
        return self.tensors[next(iter(seeds))]

    def read(self, wire: str) -> bool:
        """Whether the block reads the stream, or what a norm gives."""
        return wire in self.tensors and not self.begins(wire)

    def begins(self, name: str) -> bool:
        """Whether it is the gradient that backward begins with."""
        return self.seed is not None and name == self.seed.name

    def statements(self, *, backward: bool) -> Iterator[tuple[Line, Assign | Do]]:
        """The statements of one direction, results apart, and as they are called in the chain."""
        for line in self.lines:
            call = _returned(line)
            if line.backward == backward and (call is None or call.option("gradient_of")):
                stmt = renamed(line.stmt, self.called)
                if isinstance(stmt, Assign):
                    stmt = replace(stmt, targets=(Ref(name=self.called[stmt.targets[0].name]),))
                yield line, stmt


class _Chain:
    """The chain while it is put together. ``wires``: what is read now as `x` and as `n`, with how it lies."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self.parts = parts
        self.last = parts[-1]
        self.header: dict[str, Tensor] = {}
        self.origins: dict[str, Origin] = {}
        self.gradients: dict[str, list[Expr]] = {}
        self.makers: dict[str, _Part] = {}
        wires: dict[str, tuple[str, Layout]] = {}
        if self.last.seed is not None:
            self.last.called[self.last.seed.name] = self.last.seed.name
        for part in parts:
            self._declare(part, wires)
            wires[WIRES[part.given]] = (part.called[part.given], part.result)
            self.makers[part.called[part.given]] = part
        if self.last.seed is not None:
            self._input(self.last.seed, self.last.seed.name)

    def _declare(self, part: _Part, wires: dict[str, tuple[str, Layout]]) -> None:
        """What a block reads from blocks before it, and what is its own."""
        layouts = {name: value.layout for name, value in inputs(part.program).items()}
        for wire in filter(part.read, WIRES.values()):
            if wire not in wires:
                self._input(part.tensors[wire], wire)
                wires[wire] = (wire, layouts[wire])
            _same_layout(wires[wire][1], layouts[wire], f"`{wire}` of block {part.number}, `{part.program.name}`")
            part.called[wire] = wires[wire][0]
        for own, called in part.called.items():
            if not (own in WIRES.values() and part.read(own)):
                self.origins[called] = Origin(block=part.program.name, number=part.number, name=own)
                if own in part.tensors and not part.begins(own):
                    self.header[called] = replace(part.tensors[own], name=called)

    def _input(self, tensor: Tensor, name: str) -> None:
        self.header[name] = replace(tensor, name=name)
        self.origins[name] = Origin(block=INPUT, number=0, name=name)

    def forward(self) -> Iterator[Stmt]:
        """Forward of all blocks, and the chain's result."""
        for part in self.parts:
            yield from (stmt for _, stmt in part.statements(backward=False))
        yield Do(call=Call(op="returns", args=(Ref(name=self.last.called[self.last.given]),)))

    def backward(self) -> Iterator[Stmt]:
        """Backward of all blocks in reverse, and the gradients by the chain's inputs."""
        for part in reversed(self.parts):
            if part.seed is not None and part is not self.last:
                given = part.called[part.given]
                if given not in self.gradients:
                    refuse("PP309", f"no block of the chain reads what block {part.number}, `{part.program.name}`, gives")
                yield Assign(targets=(Ref(name=part.called[part.seed.name]),), value=_sum(self.gradients[given]))
            yield from self._backward_of(part)
        for wire in WIRES.values():
            if wire in self.gradients:
                yield self._claim(_sum(self.gradients[wire]), wire)

    def _backward_of(self, part: _Part) -> Iterator[Stmt]:
        begun = part is not self.last
        for line, stmt in part.statements(backward=True):
            stmts = self._claimed(part, line, stmt) if _returned(line) else (stmt,)
            for made in stmts:
                if not (begun or line.result.incoming) and part.seed is not None:
                    seed = part.seed.name
                    yield Assign(targets=(Ref(name=f"{seed}_0"),), value=Ref(name=seed))  # so that what follows is backward here, too
                begun = True
                yield made

    def _claimed(self, part: _Part, line: Line, stmt: Assign | Do) -> Iterator[Stmt]:
        """What a block claims to be a gradient: added up where it is by what is passed on, a claim of the chain elsewhere."""
        assert isinstance(stmt, Do)
        by, (value,) = stmt.call.option("by") or "", stmt.call.args
        if by not in part.called:
            refuse(
                "PP309",
                f"`{part.program.name}` claims a gradient by `{by}`, which it does not have",
                "name a tensor",
                place=line.stmt.place,
            )
        if not (by in WIRES.values() and part.read(by)):
            yield self._claim(value, part.called[by])
            return
        if (maker := self.makers.get(part.called[by])) and maker.seed is not None:
            what = f"the gradient by `{by}` of block {part.number}, `{part.program.name}`"
            _same_layout(line.result.layout, inputs(maker.program)[maker.seed.name].layout, what)
        if not isinstance(value, Ref):
            name = _fresh(f"by_{by}", part.called)
            called = part.called[name] = f"{name}_{part.number}"
            self.origins[called] = Origin(block=part.program.name, number=part.number, name=name)
            yield Assign(targets=(Ref(name=called),), value=value)
            value = Ref(name=called)
        self.gradients.setdefault(part.called[by], []).append(value)

    def _claim(self, value: Expr, by: str) -> Stmt:
        assert self.last.seed is not None
        names = {"gradient_of": self.last.called[self.last.given], "by": by, "at": self.last.seed.name}
        return Do(call=Call(op="returns", args=(value,), options=tuple(names.items())))


def _returned(line: Line) -> Call | None:
    stmt = line.stmt
    return stmt.call if isinstance(stmt, Do) and stmt.call.op == "returns" else None


def _sum(parts: Sequence[Expr]) -> Expr:
    result = parts[0]
    for part in parts[1:]:
        result = Binary(op="+", left=result, right=part)
    return result


def _fresh(name: str, taken: Collection[str]) -> str:
    return name if name not in taken else _fresh(f"{name}_", taken)


def _same_layout(given: Layout, read: Layout, what: str) -> None:
    if set(given.dims) != set(read.dims) or dict(given.split) != dict(read.split):
        refuse("PP309", f"{what} is given with {_laid(given)} and taken with {_laid(read)}", "let both blocks lay it out alike")


def _laid(layout: Layout) -> str:
    cut = [f"`{d}` split over {' and '.join(f'`{a}`' for a in axes)}" for d, axes in layout.split.items()]
    return ", ".join([*cut, *(f"`{d}`" for d in layout.dims if d not in layout.split)]) or "no dimension"
