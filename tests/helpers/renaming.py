"""The same program under other names: of loop variables, buffers, parameter groups and axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from placeproof.core.states import STATES
from placeproof.programs import Call, Expr, For, If, Program, Ref, Stmt, assigned, statements
from placeproof.programs.ir import rewritten, with_expressions


@dataclass(frozen=True)
class Renaming:
    """New names; ``loop`` names each loop anew."""

    loop: Callable[[For], str] = lambda stmt: stmt.var
    buffers: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)
    axes: Mapping[str, str] = field(default_factory=dict)

    def program(self, program: Program) -> Program:
        """The whole program."""
        axes = tuple(replace(a, name=self._axis(a.name)) for a in program.axes)
        groups = tuple(
            replace(g, name=self.groups.get(g.name, g.name), **{o: self._axis(v) for o in _OPTIONS if (v := getattr(g, o)) is not None})
            for g in program.groups
        )
        placed = tuple(
            replace(p, group=self._group(p.group), modes=tuple((self._axis(a), mode) for a, mode in p.modes)) for p in program.placed
        )
        return replace(program, axes=axes, groups=groups, placed=placed, body=self._body(program.body, {}))

    def _group(self, name: str | None) -> str | None:
        return None if name is None else self.groups.get(name, name)

    def _axis(self, name: str) -> str:
        for old, new in self.axes.items():
            for suffix in ("", "_outer", "_inner"):
                if name == old + suffix:
                    return new + suffix
        return name

    def _body(self, body: tuple[Stmt, ...], loops: Mapping[str, str]) -> tuple[Stmt, ...]:
        return tuple(self._stmt(stmt, loops) for stmt in body)

    def _stmt(self, stmt: Stmt, loops: Mapping[str, str]) -> Stmt:
        inner, own = loops, stmt
        if isinstance(stmt, For):
            inner = {**loops, stmt.var: self.loop(stmt)}
            own = replace(stmt, var=self.loop(stmt), within=None if stmt.within is None else loops.get(stmt.within, stmt.within))
        elif isinstance(stmt, If):
            own = replace(stmt, axis=self._axis(stmt.axis))
        return with_expressions(own, lambda e: self._expr(e, loops), lambda body: self._body(body, inner))

    def _expr(self, expr: Expr, loops: Mapping[str, str]) -> Expr:
        def change(part: Expr) -> Expr:
            if isinstance(part, Call):
                return replace(part, axes=tuple(self._axis(a) for a in part.axes))
            return self._ref(part, loops) if isinstance(part, Ref) else part

        return rewritten(expr, change)

    def _ref(self, ref: Ref, loops: Mapping[str, str]) -> Ref:
        name = loops.get(ref.name) or self.buffers.get(ref.name) or self._axis(ref.name)
        index = ref.index
        if index is not None and index.var in loops:
            index = replace(index, var=loops[index.var])
        return replace(ref, name=name, index=index, group=self._group(ref.group))


_OPTIONS = ("partial", "tied", "experts")
_ODD = (
    ("m", "P", "N", "b_a", "h", "theta", "unknown0", "e_block", "V", "q", "k", "dx"),
    ("i", "u", "x", "g", "G", "n", "w", "y", "last", "omega", "d", "s"),
)
_GROUPS = (("alpha", "beta", "gamma"), ("all", "second", "matrix"), ("inner", "theta", "units"))
_AXES = (("alpha", "beta", "gamma", "delta", "eps"), ("tp", "dp", "sp", "ep", "pp"), ("stage", "block", "rank0", "all", "norm"))


def renamings(program: Program) -> Iterator[tuple[str, Renaming]]:
    """Ways to rename everything of one kind, each with names that mean something elsewhere."""
    yield "one name for all loops of a depth", Renaming(loop=_by_depth(program))
    buffers = sorted({t.name for t in assigned(program.body)} - set(STATES))
    taken = {s.var for s in statements(program.body) if isinstance(s, For)} | set(program.axis_factors) | {a.name for a in program.axes}
    for odd in _ODD:
        new = [name for name in odd if name not in taken]
        if len(buffers) <= len(new):
            yield f"buffers {', '.join(new)}", Renaming(buffers=dict(zip(buffers, new, strict=False)))
    groups = [g.name for g in program.groups if g.name != "norm"]  # `norm` is a word of the language
    for odd in _GROUPS if groups not in ([], ["all"]) and len(groups) <= 3 else ():
        yield f"groups {', '.join(odd)}", Renaming(groups=dict(zip(groups, odd, strict=False)))
    names = [a.name for a in program.axes]
    for odd in _AXES if len(names) <= 5 else ():
        if not set(odd) & (set(buffers) | {s.var for s in statements(program.body) if isinstance(s, For)}):
            yield f"axes {', '.join(odd)}", Renaming(axes=dict(zip(names, odd, strict=False)))


def _by_depth(program: Program) -> Callable[[For], str]:
    names: dict[int, str] = {}

    def walk(body: tuple[Stmt, ...], depth: int) -> None:
        for stmt in body:
            if isinstance(stmt, For):
                names[id(stmt)] = "abco"[depth]
                walk(stmt.body, depth + 1)
            elif isinstance(stmt, If):
                walk(stmt.then, depth)
                walk(stmt.orelse, depth)

    walk(program.body, 0)
    return lambda stmt: names[id(stmt)]
