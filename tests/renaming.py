"""The same program under other names: of loop variables, buffers, parameter groups and axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from placeproof.core.program import Assign, Binary, Call, Do, Expr, For, If, Program, Ref, Stmt, assigned, statements
from placeproof.core.states import STATES


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
        match stmt:
            case Assign():
                return replace(stmt, targets=tuple(self._ref(t, loops) for t in stmt.targets), value=self._expr(stmt.value, loops))
            case Do():
                return replace(stmt, call=self._expr(stmt.call, loops))
            case If():
                then, orelse = self._body(stmt.then, loops), self._body(stmt.orelse, loops)
                return replace(stmt, axis=self._axis(stmt.axis), bound=self._expr(stmt.bound, loops), then=then, orelse=orelse)
            case For():
                var, within = self.loop(stmt), stmt.within
                body = self._body(stmt.body, {**loops, stmt.var: var})
                own = {o: self._expr(v, loops) for o in ("in_flight", "hops") if (v := getattr(stmt, o)) is not None}
                return replace(stmt, var=var, within=None if within is None else loops.get(within, within), body=body, **own)

    def _expr(self, expr: Expr, loops: Mapping[str, str]) -> Expr:
        match expr:
            case Ref():
                return self._ref(expr, loops)
            case Binary():
                return replace(expr, left=self._expr(expr.left, loops), right=self._expr(expr.right, loops))
            case Call(op="elementwise" | "slope", args=(function, x)):
                return replace(expr, args=(function, self._expr(x, loops)))
            case Call():
                args = tuple(self._expr(a, loops) for a in expr.args)
                return replace(expr, args=args, axes=tuple(self._axis(a) for a in expr.axes))
        return expr

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
