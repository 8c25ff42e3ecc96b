"""What a buffer holds after a part of it was written: a function of the element."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from placeproof.programs import Assign, Do, For, Ref, Stmt, reads, statements, walked
from placeproof.programs.ir import references
from placeproof.prove.terms import Poly, Var, choose, fn, same, substitute, under
from placeproof.semantics.encode.context import NoMeaningError
from placeproof.semantics.encode.scope import Scope
from placeproof.semantics.encode.values import Piece, Region, Tensor, Value
from placeproof.semantics.encode.world import E_BLOCK, part_of_element

if TYPE_CHECKING:
    from placeproof.semantics.encode.execute import Walk


def targets(stmt: Stmt) -> tuple[Ref, ...]:
    """What a statement itself writes."""
    if isinstance(stmt, Do) and stmt.call.op == "zero" and isinstance(stmt.call.args[0], Ref):
        return (stmt.call.args[0],)
    return stmt.targets if isinstance(stmt, Assign) else ()


def own(loop: For, ref: Ref) -> bool:
    """Whether a reference names the part of a loop's iteration, or a part of that part: what no other iteration names so.

    The part of another iteration (``g[u + 1]``) is this one's own where the loop touches the buffer nowhere else, or only reads
    parts that were filled before (:func:`filled_before`).
    """
    if ref.index is None:
        return False
    if ref.index.offset:
        plain = loop.domain == "units" and loop.within is None and not loop.start and ref.index.var == loop.var
        alone = {r.index for s in statements(loop.body) for r in references(s) if r.name == ref.name} == {ref.index}
        return plain and abs(ref.index.offset) == 1 and (alone or filled_before(loop, ref.name))
    return ref.index.var in {loop.var, *(s.var for s in statements(loop.body) if isinstance(s, For))}


def filled_before(loop: For, name: str) -> bool:
    """Whether each iteration writes one part of a buffer once, its own or the next one's, and what it reads of it was written before: by an
    earlier iteration, or by its own first statement about the buffer."""
    if loop.domain != "units" or loop.within is not None or loop.start:
        return False
    about = [s for s in loop.body if any(r.name == name for inner in statements((s,)) for r in references(inner))]
    parts = [(r.index.var, r.index.offset) if r.index else None for s in statements(loop.body) for r in references(s) if r.name == name]
    written = [(t.index.var, t.index.offset) if t.index else None for s in statements(loop.body) for t in targets(s) if t.name == name]
    step = -1 if loop.reverse else 1
    if written == [(loop.var, step)]:
        return set(parts) == {(loop.var, step), (loop.var, 0)}
    first = about[0] if about else None
    alone = isinstance(first, Assign) and not first.accumulate and all(r.name != name for r in reads(first))
    return written == [(loop.var, 0)] and set(parts) <= {(loop.var, 0), (loop.var, -step)} and alone and parts.count((loop.var, -step)) > 0


def merged(walk: Walk, target: Ref, value: Tensor, before: Value | None, scope: Scope) -> Tensor:
    """A tensor written to a buffer: as a whole, or the pieces and the part that the target names."""
    indexed = target.index is not None
    if target.group is not None and target.group in value.pieces:  # of what is about more, that group
        value = replace(value, pieces={target.group: value.pieces[target.group]})
    if target.name in walk.mixed or (indexed and walk.region(walk.whole, replace(target, group=None), scope) != value.region):
        value = walk.ctx.unknown_tensor(value)
    pieces = dict(value.pieces)
    if indexed:
        old = before.pieces if isinstance(before, Tensor) else {}
        if target.group is None:  # of the groups that the value lacks, nothing is there any more
            pieces |= {g: Piece(body=walk.ctx.unknown_of(g), held=p.held) for g, p in old.items() if g not in pieces}
        pieces = {g: replace(p, body=_stored(walk, target, g, p.body, old.get(g), scope)) for g, p in pieces.items()}
    if target.group is not None and list(value.pieces) != [target.group]:
        raise NoMeaningError(f"`{target.name}.{target.group}` is given another group's values", target.place)
    kept = dict(before.pieces) if isinstance(before, Tensor) and (target.group is not None or indexed) else {}
    if not indexed and isinstance(before, Tensor) and before.region != value.region:  # of another part of the model than this group now is
        kept = {g: Piece(body=walk.ctx.unknown_of(g), held=p.held) for g, p in kept.items()}
    if indexed and isinstance(before, Tensor) and before.region.domain == "stage":
        region = before.region
    else:
        region = _filled(walk, value.region, scope) if indexed else value.region
    return Tensor(pieces={**kept, **pieces}, region=region, group=None if target.group is not None else value.group)


def _stored(walk: Walk, target: Ref, group: str, body: Poly, old: Piece | None, scope: Scope) -> Poly:
    """A buffer after a part of it was written, as a function of the element: the new value in that part, the old one elsewhere.

    A loop's variable is the part that the element lies in, so that a loop over all parts leaves nothing of the old value.
    """
    assert target.index is not None
    before = old.body if old is not None else walk.ctx.unknown_of(group)
    if target.index.offset and target.index.var is not None:
        loop, variable = scope.loops[[lp.var for lp, _ in scope.loops].index(target.index.var)]
        if not own(loop, target) or variable.name in body.free:
            return walk.ctx.unknown_of(group)
        left = walk.named(walk.whole, 0 if target.index.offset > 0 else -1)  # the first or the last part keeps the old value
        return choose(same(part_of_element("units", variable.sort), left.index), before, body)
    new, over = _by_element(target, body, scope), units_of(walk, target, scope)
    if target.index.var is None:
        return choose(_unit_holds(walk, target.index.offset), new, before)
    if over == "all":
        return new
    return choose(_unit_holds(walk, 0), new, before) if over == "first" else choose(_unit_holds(walk, 0), before, new)


def units_of(walk: Walk, ref: Ref, scope: Scope) -> str:
    """Of which units a reference names a part: all, the first, or the rest."""
    if ref.index is None or ref.index.offset:
        return "all"
    return "first" if ref.index.var is None else walked(tuple(lp for lp, _ in scope.to(ref.index.var)))


def _unit_holds(walk: Walk, number: int) -> Poly:
    """1 for the elements of a unit of the stage that is named by a number."""
    return same(part_of_element("units", walk.world.loop_sort("units")), walk.named(walk.whole, number).index)


def restricted(walk: Walk, body: Poly, over: str) -> Poly:
    """A body where the element lies in the first unit of the device's stage, or in another unit of that stage.

    That the stage is the element's own may already be written into the condition.
    """
    own = _unit_holds(walk, 0)
    at = {walk.world.stage.name: fn("stage", (E_BLOCK,), walk.world.stage.sort)} if isinstance(walk.world.stage, Var) else {}
    for guard in dict.fromkeys((own, substitute(own, at))):
        body = under(body, guard, holds=over == "first")
    return body


def _by_element(target: Ref, body: Poly, scope: Scope) -> Poly:
    around = scope.to(target.index.var if target.index is not None else None)
    return substitute(body, {v.name: part_of_element(lp.domain, v.sort) for lp, v in around if lp.domain != "microbatches"})


def _filled(walk: Walk, region: Region, scope: Scope) -> Region:
    """The region that a buffer written part by part covers when its loop is through: that of the loop around."""
    loop = next((lp for lp, v in scope.loops if v == region.index), None)
    return walk.whole if loop is None else walk.around(loop, scope)
