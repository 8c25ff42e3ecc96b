"""Buffers that are kept for each micro-batch by itself: ``g[i]``, ``g[i - 1]``, ``g[0]`` and ``g[-1]``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from placeproof.programs import Assign, Expr, Ref, expressions, statements
from placeproof.programs.ir import references, rewritten
from placeproof.prove.terms import Var, product, same
from placeproof.semantics.encode.context import NoMeaningError
from placeproof.semantics.encode.scope import Scope
from placeproof.semantics.encode.values import Apart, Batched, Handle, Parts, Scalar, Stream, Tensor, Value, Whole
from placeproof.semantics.encode.world import World

if TYPE_CHECKING:
    from placeproof.semantics.encode.execute import Walk


def stored(target: Ref, value: Value, scope: Scope) -> Batched:
    """A buffer of which an iteration of the innermost loop wrote its own micro-batch."""
    around = scope.loops[-1] if scope.loops else None
    index = target.index
    if around is None or index is None or index.offset or index.var != around[0].var or target.group is not None:
        raise NoMeaningError(f"`{target.name}` is kept for each micro-batch, and written otherwise", target.place)
    if isinstance(value, Parts | Handle | Apart | Batched):
        raise NoMeaningError(f"`{target.name}` would keep parts, or a handle, for each micro-batch", target.place)
    variable = Var("i.each micro-batch", around[1].sort)
    return Batched(value=value.replaced({around[1].name: variable}), variable=variable, loop=around[0].var)


def known(walk: Walk, target: Ref, scope: Scope) -> bool:
    """Whether something was written before where a target adds to."""
    held = walk.env.get(target.name)
    return isinstance(held, Batched) and (held.loop is None or bool(scope.loops and held.loop == scope.loops[-1][0].var))


def read(world: World, value: Value, ref: Ref, scope: Scope) -> Whole:
    """What is kept for the micro-batch that a reference names."""
    index = ref.index
    if isinstance(value, Batched) and index is not None and ref.group is None:
        loop = scope.find(index.var) if index.var is not None else None
        if loop is not None and loop[0].domain == "microbatches" and index.offset == 0 and value.loop in (None, loop[0].var):
            return value.at(loop[1])
        if index.var is None and index.offset in (0, -1) and value.loop is None:
            return value.at(world.batch_at(index.offset))
    raise NoMeaningError(f"`{ref.name}` is kept for each micro-batch, and read otherwise", ref.place)


def _shifts(walk: Walk, expr: Expr) -> list[Ref]:
    refs = [e for e in expressions(expr) if isinstance(e, Ref)]
    return [r for r in refs if r.name in walk.kept and r.index is not None and r.index.var is not None and r.index.offset]


def shifted(walk: Walk, stmt: Assign) -> bool:
    """Whether a statement reads what is kept for the micro-batch before, or the next one."""
    return bool(walk.kept and _shifts(walk, stmt.value))


def all_but_one(walk: Walk, stmt: Assign, scope: Scope) -> Whole:
    """What an iteration adds that reads the micro-batch before its own, or the next one.

    Over all iterations that is the sum over all micro-batches but the last, or but the first: there the statement does nothing. So an
    iteration is taken to add what its own micro-batch gives, if that is not the one that is left out.
    """
    around, shifts = scope.loops[-1] if scope.loops else None, _shifts(walk, stmt.value)
    offsets = {r.index.offset for r in shifts if r.index is not None}
    if around is None or around[0].domain != "microbatches" or not stmt.accumulate or offsets not in ({1}, {-1}):
        raise NoMeaningError("another micro-batch is read than by a sum over one before, or one after", stmt.place)
    (offset,), (loop, variable), target = offsets, around, stmt.targets[0]
    if any(r.index is None or r.index.var != loop.var for r in shifts) or target.index is not None:
        raise NoMeaningError("another loop's micro-batch is read", stmt.place)
    if sum(r.name == target.name for s in statements(loop.body) for r in references(s)) > 1:
        raise NoMeaningError(f"`{target.name}` is used besides in the loop that adds to it", stmt.place)
    behind = (offset == -1) is not loop.reverse  # what an earlier iteration wrote
    each = Var("i.each micro-batch", walk.world.batch)
    before, names = dict(walk.env), {r.name: f"{r.name} of another micro-batch" for r in shifts}
    for ref in shifts:
        held = walk.env.get(ref.name)
        if not isinstance(held, Batched) or not (held.loop is None or (behind and held.loop == loop.var)):
            raise NoMeaningError(f"`{ref.name}` is read before it was written", ref.place)
        walk.env[names[ref.name]] = held.at(each)
    if any(isinstance(e, Ref) and e.name in names and (e.index is None or not e.index.offset) for e in expressions(stmt.value)):
        raise NoMeaningError("two micro-batches of one buffer are read at a time", stmt.value.place)
    value = walk.whole_of(rewritten(stmt.value, lambda e: Ref(name=names[e.name], place=e.place) if e in shifts else e), scope)
    walk.env = before
    if not isinstance(value, Tensor | Stream | Scalar) or value.replaced({variable.name: each}) != value:
        raise NoMeaningError("what is added depends on two micro-batches", stmt.place)
    missing = walk.world.batch_at(-1 if offset == -1 else 0)
    return value.replaced({each.name: variable}).map(lambda body: body - product(same(variable, missing), body))
