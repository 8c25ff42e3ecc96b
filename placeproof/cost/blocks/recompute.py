"""Recomputation as a transformation of a block's program: some of forward's values are dropped, and computed again in backward.

What comes out is a program like any other. It is printed and read, it is proved by the same semantics, and what it keeps, sends and
computes is read off it. Selective recomputation (Korthikanti et al. 2022, section 5) names what lies between queries, keys, values and
the output of attention; checkpointing (Chen et al. 2016, section 4) names everything.

What a named value is computed from, and was not kept anyway, is computed again as well, and so is another name of it that is still
read. Kept is then what was kept before, without what is computed again, and with those tensors of the header that computing it again
reads. So no more is kept than before where these were kept anyway; else they are the checkpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NoReturn

from placeproof.core.diagnostics import Place, refuse
from placeproof.programs import Assign, Binary, Call, Do, Expr, For, Program, Ref, Stmt, read, render
from placeproof.programs.ir import adjoints, with_draws, with_names
from placeproof.semantics.layouts.lines import BlockValue, Line, lines

__all__ = ["AGAIN", "between", "computed_again", "made_in_forward", "read_again", "recompute", "renamed"]

#: What the names of values that are computed again end with.
AGAIN = "_again"


def recompute(program: Program, names: Iterable[str], rerun: Iterable[str] = ()) -> Program:
    """The program that computes the values of these names again in backward.

    Each is computed right before the first statement that reads it there, from what is still kept; collectives run again. In forward it
    is freed after its last use, unless a ``returns`` speaks of it. What nothing reads in backward is computed again all the same, as a
    checkpoint does that runs a whole forward.

    ``rerun``: values that are computed again though they are kept, and then not read: the result of a checkpoint that is run to its end,
    where the next operation keeps it. Raises InputError where forward makes no value of a name, where a name that takes part is written
    more than once, for rounds of a ring, and for a program that is no block.
    """
    return _Recomputation(replace(program, body=with_draws(program.body)), names, rerun).rewritten()


def computed_again(program: Program, names: Iterable[str], rerun: Iterable[str] = ()) -> tuple[str, ...]:
    """What :func:`recompute` computes again, in the order of forward: the names, and what they need that is not kept.

    Raises InputError as :func:`recompute` does.
    """
    return tuple(_Recomputation(program, names, rerun).again)


def made_in_forward(program: Program) -> tuple[str, ...]:
    """The names of what forward makes of activations, in order. Raises InputError for a program that is no block."""
    forward = (line for line in lines(program) if not line.backward and line.result.data)
    return tuple(dict.fromkeys(line.stmt.targets[0].name for line in forward if isinstance(line.stmt, Assign)))


def between(program: Program, after: Iterable[str], before: Iterable[str]) -> tuple[str, ...]:
    """What forward computes from some values, and others from it, in order: neither of both ends.

    Raises InputError for a name that the program does not have, and for a program that is no block.
    """
    first, last = tuple(after), tuple(before)
    known = {t.name for t in program.tensors} | set(made_in_forward(program))
    for name in (*first, *last):
        if name not in known:
            _refuse(f"forward makes no value `{name}`", None)
    forward = [line.stmt for line in lines(program) if not line.backward and isinstance(line.stmt, Assign)]
    behind, ahead = set(first), set(last)
    for stmt in forward:
        if behind & set(_read(stmt.value)):
            behind.add(stmt.targets[0].name)
    for stmt in reversed(forward):
        if stmt.targets[0].name in ahead:
            ahead |= set(_read(stmt.value))
    both = (behind & ahead) - set(first) - set(last)
    return tuple(dict.fromkeys(s.targets[0].name for s in forward if s.targets[0].name in both))


class _Recomputation:
    """One transformation: ``again`` is what is computed again, in the order of forward, and ``called`` its names then.

    ``dropped`` is the part of it that is not kept.
    """

    def __init__(self, program: Program, names: Iterable[str], rerun: Iterable[str]) -> None:
        self.program = program
        self.lines = lines(program)
        for stmt in program.body:
            if isinstance(stmt, For):
                _refuse("what rounds of a ring compute cannot be computed again", stmt.place)
        self.start = next((i for i, line in enumerate(self.lines) if line.backward), len(self.lines))
        forward = list(enumerate(self.lines[: self.start]))
        self.makers = {line.stmt.targets[0].name: (i, line) for i, line in forward if isinstance(line.stmt, Assign)}
        self.late = {n for line in self.lines[self.start :] if _computes(line) for n in _reads(line.stmt)}
        named, kept = tuple(names), tuple(rerun)
        for name in (*named, *kept):
            if name not in self.makers:
                _refuse(f"forward makes no value `{name}`", None)
        self.dropped = self._closed(frozenset(named), frozenset(kept))
        self.again = [n for n in self.makers if n in self.dropped or n in kept]
        self._written_once()
        self.taken = {t.name for t in program.tensors} | {a.name for a in program.axes} | {n for line in self.lines for n in _written(line)}
        self.called = {n: self._fresh(f"{n}{AGAIN}") for n in self.again}

    # What has to be computed again.

    def _closed(self, chosen: frozenset[str], rerun: frozenset[str]) -> frozenset[str]:
        """With what the values are computed from and is not kept, and with other names of them that are read later."""
        kept = {id(self._held(n).stored) for n in self.late if n in self.makers}
        while True:
            dropped = {id(self._held(n)) for n in chosen}
            read = self.late.union(*(self._sources(n) for n in chosen | rerun)) - chosen
            values = {n: self._held(n) for n in read if n in self.makers}
            more = {n for n, v in values.items() if v.data and (id(v.stored) not in kept - dropped or _through(v, dropped))}
            if not more:
                return chosen
            chosen = chosen | more

    def _fresh(self, name: str) -> str:
        """A name like this one that nothing has."""
        while name in self.taken:
            name += AGAIN
        self.taken.add(name)
        return name

    def _held(self, name: str) -> BlockValue:
        return self.makers[name][1].result

    def _sources(self, name: str) -> set[str]:
        return set(_reads(self.makers[name][1].stmt))

    def _written_once(self) -> None:
        writes = Counter(t.name for t in self.program.tensors)
        writes.update(n for line in self.lines for n in _written(line))
        for name in self.again:
            for each in (name, *_reads(self.makers[name][1].stmt)):
                if writes[each] > 1:
                    place = self.makers[name][1].stmt.place
                    _refuse(f"`{name}` cannot be computed again: `{each}` is written more than once", place, "give each value its own name")

    # The program.

    def rewritten(self) -> Program:
        """The transformed program."""
        if self.again and self.start == len(self.lines):
            _refuse("the program has no backward, in which something could be computed again", None)
        body = [*self._forward(), *self._backward()]
        return read_again(replace(self.program, body=tuple(body)))

    def _forward(self) -> Iterator[Stmt]:
        """Forward, in which what is computed again is freed after its last use."""
        last: dict[str, int] = {}
        for i, line in enumerate(self.lines[: self.start]):
            last |= {n: i for n in (*_written(line), *_reads(line.stmt)) if n in self.dropped}
        spoken = self._spoken_of()
        for i, line in enumerate(self.lines[: self.start]):
            yield line.stmt
            for name in self.again:
                if last.get(name) == i and name not in spoken:
                    yield Do(call=Call(op="free", args=(Ref(name=name),)))

    def _spoken_of(self) -> set[str]:
        """What a `returns` names or has as its result, and what is freed already."""
        names: set[str] = set()
        for i, line in enumerate(self.lines):
            if isinstance(line.stmt, Do):
                names |= {value for _, value in line.stmt.call.options}
                if line.stmt.call.op == "free" or (i >= self.start and not _computes(line)):
                    names |= set(_reads(line.stmt))
        return names

    def _backward(self) -> Iterator[Stmt]:
        """Backward, in which each value is computed again before it is first read; one that is not read, as soon as it can be."""
        missing = set(self.again)
        idle = self._idle()
        called = {n: c for n, c in self.called.items() if n in self.dropped}
        for number, line in enumerate(self.lines[self.start :]):
            stmt: Stmt = line.stmt
            if _computes(line):
                wanted = [n for n in _reads(line.stmt) if n in missing & self.dropped]
                if wanted and not number:
                    yield self._begin(line)
                for name in wanted:
                    yield from self._made(name, missing)
                for name in idle if wanted else ():
                    if not missing & self._sources(name):
                        yield from self._made(name, missing)
                stmt = renamed(line.stmt, called)
            yield stmt
        for name in idle:
            yield from self._made(name, missing)

    def _idle(self) -> list[str]:
        """What is computed again though nothing in backward needs it."""
        needed: set[str] = set()
        for name in reversed(self.again):
            if name in self.late & self.dropped or any(name in self._sources(n) for n in needed):
                needed.add(name)
        return [n for n in self.again if n not in needed]

    def _begin(self, line: Line) -> Stmt:
        """A statement that begins backward: what is computed again stands behind it."""
        seeds = adjoints(self.program)
        given = next((t.name for t in self.program.tensors if t.name in seeds), None)
        if given is None or (isinstance(line.stmt, Assign) and line.stmt.targets[0].name in seeds):
            _refuse("backward begins with what the program makes, so nothing can be computed again before it", line.stmt.place)
        return Assign(targets=(Ref(name=self._fresh("incoming")),), value=Ref(name=given))

    def _made(self, name: str, missing: set[str]) -> Iterator[Stmt]:
        """The statements that compute a value again, what it needs first."""
        if name not in missing:
            return
        missing.discard(name)
        stmt = self.makers[name][1].stmt
        for source in _reads(stmt):
            yield from self._made(source, missing)
        assert isinstance(stmt, Assign)
        yield Assign(targets=(Ref(name=self.called[name]),), value=with_names(stmt.value, self.called))


def _computes(line: Line) -> bool:
    """A `returns` that claims no gradient is no step of backward, and neither is `free`."""
    return isinstance(line.stmt, Assign) or line.stmt.call.option("gradient_of") is not None


def _through(value: BlockValue, dropped: set[int]) -> bool:
    """Whether a value is one of those, or only another name of one."""
    return id(value) in dropped or (value.view is not None and _through(value.view, dropped))


def _written(line: Line) -> tuple[str, ...]:
    return tuple(t.name for t in line.stmt.targets) if isinstance(line.stmt, Assign) else ()


def _reads(stmt: Assign | Do) -> list[str]:
    """The names that a statement reads, in order."""
    return list(_read(stmt.value if isinstance(stmt, Assign) else stmt.call))


def _read(expr: Expr) -> Iterator[str]:
    """The names in an expression, in order, those of functions apart."""
    match expr:
        case Ref(name=name):
            yield name
        case Binary(left=left, right=right):
            yield from (*_read(left), *_read(right))
        case Call(op="elementwise" | "slope", args=(_, x)):
            yield from _read(x)
        case Call(args=args):
            for arg in args:
                yield from _read(arg)


def read_again(program: Program) -> Program:
    """A program, printed and read, so that its places are its own. There is one for each text, so that what is worked out of it and kept
    with it is worked out once."""
    return _of_text(render(program), program.name)


@lru_cache(maxsize=256)
def _of_text(text: str, name: str) -> Program:
    return read(text, source=name)


def renamed(stmt: Assign | Do, called: Mapping[str, str]) -> Assign | Do:
    """The statement that reads values under other names; what it writes and its options stay."""
    if isinstance(stmt, Assign):
        return replace(stmt, value=with_names(stmt.value, called))
    return replace(stmt, call=replace(stmt.call, args=tuple(with_names(a, called) for a in stmt.call.args)))


def _refuse(message: str, place: Place | None, help: str | None = None) -> NoReturn:
    refuse("PP306", message, place=place, help=help)
