"""Loops, by induction: over micro-batches a sum, over parts of the model an invariant.

What a loop carries from one iteration to the next is found first. A buffer to which each micro-batch adds something holds the sum
of what they add. A stream that begins a loop over parts as the reference's value at the start of the model is taken to be the
reference's value at the start of each part, and the body is checked to bring it to the part's end. Where all that is carried is after
two iterations what it is after one, whichever they are, it stays so. Everything else that is carried is taken to be unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from placeproof.programs import Assign, For, statements
from placeproof.programs.ir import calls, references
from placeproof.prove.terms import ONE, ZERO, Fn, Index, Poly, Var, app, fn, greatest, product, rewritten, same, substitute, total
from placeproof.semantics.encode.buffers import filled_before, own, targets
from placeproof.semantics.encode.compute import application, largest, on_holder
from placeproof.semantics.encode.context import Mark
from placeproof.semantics.encode.scope import Scope, domain_of, edge, loop_variable, shifted
from placeproof.semantics.encode.values import Batched, Handle, Parts, Region, Scalar, Stream, Tensor, Value, bodies
from placeproof.semantics.encode.world import POSITION, World

if TYPE_CHECKING:
    from placeproof.semantics.encode.execute import Walk


def loop(walk: Walk, stmt: For, scope: Scope) -> None:
    """Run a loop's body once, for any iteration, and leave the environment as the whole loop leaves it."""
    if stmt.domain == "microbatches":
        _over_batches(walk, stmt, scope)
    else:
        _over_parts(walk, stmt, scope)


def _written(loop: For) -> dict[str, bool]:
    """The buffers that a loop writes -> whether some write is of more than the iteration's own part."""
    whole_by_name: dict[str, bool] = {}
    for target in (t for stmt in statements(loop.body) for t in targets(stmt)):
        whole_by_name[target.name] = whole_by_name.get(target.name, False) or not own(loop, target)
    return whole_by_name


def _mixed(loop: For, known: Collection[str]) -> set[str]:
    """Buffers that a loop fills part by part while it also touches other parts of them: between two iterations they are neither
    what they were nor what they will be. A buffer that begins and ends inside an iteration (a bucket) is none of them."""
    refs = [r for s in statements(loop.body) for r in references(s)]
    filled = {t.name for s in statements(loop.body) for t in targets(s) if own(loop, t)}
    touched = {r.name for r in refs if not own(loop, r)}
    apart = {t.name for s in statements(loop.body) for t in targets(s) if t.index is not None and t.index.var == loop.var}
    return {n for n in filled & touched if n in known or n in apart}


# Over micro-batches.


def placeholder(walk: Walk, name: str, value: Value, loops: tuple[Var, ...]) -> Value | None:
    """What a buffer holds at the beginning of an iteration of these loops, as an unknown with a name of its own."""
    if not isinstance(value, Tensor | Stream | Scalar):
        return None
    return walk.ctx.termwise(value, lambda _, group, at: _carried(walk, name, group, (*loops, *at)))


def _carried(walk: Walk, name: str, group: str, at: tuple[Index, ...]) -> Poly:
    alike = walk.alike.get(name, ())
    devices = (walk.world.rank(f, 0) if f in alike else c for f, c in walk.world.here.items())
    return app(f"carried {name}.{group}" if group else f"carried {name}", *devices, *at)


def _over_batches(walk: Walk, stmt: For, scope: Scope) -> None:
    variable = loop_variable(walk.world, stmt)
    before, mark, outer = dict(walk.env), walk.ctx.mark(), walk.ctx.batch
    walk.ctx.batch = variable
    _any_iteration(walk, stmt, variable, scope)
    if _simple(stmt) and (alike := _equal_copies(walk, before)):  # taken to be equal on some devices when an iteration begins, too
        unequal = walk.alike
        walk.alike = {**unequal, **alike}
        lost, kept = walk.env, walk.ctx.rewound(mark)
        walk.env = dict(before)
        _any_iteration(walk, stmt, variable, scope)
        if any(any(f in _coordinates_of(walk, walk.env[n]) for f in factors) for n, factors in alike.items()):
            walk.env, walk.alike = lost, unequal
            walk.ctx.rewound(kept)
    through, ends = _Through(variable=variable, last=walk.world.batch_at(0 if stmt.reverse else -1)), dict(walk.env)
    for name, value in ends.items():
        if isinstance(value, Batched) and value.loop == stmt.var:
            walk.env[name] = replace(value, loop=None)
        elif value is not before.get(name):
            walk.env[name] = _after(walk, name, before.get(name), value, through)
    for name in set(ends) - set(before) - walk.ctx.from_zero:  # a copy of what is carried is what that is
        same_as = next((n for n in ends if n != name and n in before and ends[n] is not before[n] and ends[n] == ends[name]), None)
        walk.env[name] = walk.env[name] if same_as is None else walk.env[same_as]
    if through.lost:
        _fixed(walk, stmt, variable, scope, before, mark)
    walk.ctx.batch, walk.alike = outer, {n: f for n, f in walk.alike.items() if n not in _written(stmt)}


def _any_iteration(walk: Walk, stmt: For, variable: Var, scope: Scope) -> None:
    """An iteration over micro-batches that begins with what nobody knows of what the loop writes."""
    _forget(walk, [n for n in _written(stmt) if not isinstance(walk.env.get(n), Batched)], variable)
    _iteration(walk, stmt, variable, scope)


def _forget(walk: Walk, names: Iterable[str], variable: Var) -> None:
    """Of these buffers nobody knows what they hold when an iteration begins."""
    for name in names:
        held = placeholder(walk, name, walk.env.pop(name), (*walk.ctx.loops, variable)) if name in walk.env else None
        walk.env |= {} if held is None else {name: held}


def _equal_copies(walk: Walk, before: Mapping[str, Value]) -> dict[str, frozenset[str]]:
    """The factors along which what a loop carries is equal on all devices, before it and after an iteration; where that is of use."""
    factors_by_name = {}
    for name, value in walk.env.items():
        held = before.get(name)
        begins = name in walk.ctx.from_zero if held is None else held is not value and type(held) is type(value)
        if begins and any(f"carried {name}" in b.key and len(b.terms) > 1 for b in bodies(value)):
            varying = _coordinates_of(walk, value) | _coordinates_of(walk, held)
            factors_by_name[name] = frozenset(f for f, c in walk.world.here.items() if isinstance(c, Var) and f not in varying)
    return {n: factors for n, factors in factors_by_name.items() if factors}


def _coordinates_of(walk: Walk, value: Value | None) -> set[str]:
    """The factors whose coordinate a value tells."""
    free = frozenset[str]().union(*(b.free for b in bodies(value)))
    return {f for f, c in walk.world.here.items() if isinstance(c, Var) and c.name in free}


def _simple(stmt: For) -> bool:
    """Whether a loop's body may be walked again: nothing is sent, or started, in it."""
    return not any(c.op in ("send", "recv", "start") for s in statements(stmt.body) for c in calls(s))


def _iteration(walk: Walk, stmt: For, variable: Var, scope: Scope) -> None:
    walk.ctx.loops.append(variable)
    walk.body(stmt.body, scope.inside(stmt, variable))
    walk.ctx.loops.pop()


def _fixed(walk: Walk, stmt: For, variable: Var, scope: Scope, before: Mapping[str, Value], mark: Mark) -> None:
    """A loop of one iteration or more of which any two, one after the other, leave what one leaves: so do all. Else all stays as it is."""
    written = {t for s in statements(stmt.body) for t in targets(s)}
    if any(t.index is not None for t in written) or not _simple(stmt):
        return
    lost, kept = walk.env, walk.ctx.rewound(mark)
    walk.env = dict(before)
    _iteration(walk, stmt, variable, scope)
    once = dict(walk.env)
    _iteration(walk, stmt, variable, scope)
    another = Var(f"{variable.name}'", variable.sort)
    if walk.env != once or any(once[t.name].replaced({variable.name: another}) != once[t.name] for t in written if t.name in once):
        walk.env = lost
        walk.ctx.rewound(kept)


@dataclass
class _Through:
    """A loop that is through: its variable, and the part that its last iteration has walked, None where there may be no iteration. What it
    walks over: the parts for which ``among`` is 1, without the first where one is ``left`` out. ``lost``: whether something that it carries
    is neither a sum nor left by the last iteration."""

    variable: Var
    last: Index | None
    among: Poly = ONE
    left: Index | None = None
    lost: bool = False

    @property
    def everything(self) -> bool:
        """Whether it walks over all that its variable may be."""
        return self.among == ONE and self.left is None

    def sum(self, added: Poly) -> Poly:
        """The sum of what each iteration adds."""
        each = product(self.among, added)
        whole = total([self.variable], each)
        return whole if self.left is None else whole - substitute(each, {self.variable.name: self.left})


def _after(walk: Walk, name: str, before: Value | None, value: Value, through: _Through) -> Value:
    """A buffer after a loop: a sum if each iteration adds to it, else what the last one leaves."""
    zero = name in walk.ctx.from_zero and before is None

    def whole(body: Poly, group: str, at: tuple[Index, ...]) -> Poly:
        start = _start(walk, before, group)
        carried = _carried(walk, name, group, (*walk.ctx.loops, through.variable, *at))
        added = body - carried
        if "carried " not in added.key:
            return start + through.sum(added)
        among = application(body, "max")
        others = [p for p in among.args if isinstance(p, Poly) and p != carried] if among is not None else []
        if among is not None and len(others) < len(among.args) and through.everything and not any("carried " in p.key for p in others):
            return largest(start, *(greatest([through.variable], p) for p in others))
        if "carried " not in body.key and through.last is not None:
            return substitute(body, {through.variable.name: through.last})
        through.lost = True
        return walk.ctx.unknown(*at)

    if isinstance(value, Tensor | Stream | Scalar) and (zero or type(before) is type(value)):
        return walk.ctx.termwise(value, whole)
    if through.last is None:
        return value if isinstance(value, Handle) else walk.ctx.unknown_like(value)
    left = value.replaced({through.variable.name: through.last})
    return left.map(lambda body: _at_the_end(walk.world, body, through)) if isinstance(left, Stream) else left


def _at_the_end(world: World, body: Poly, through: _Through) -> Poly:
    """A body in which a stage's last part ends where the stage does, and its first part begins there."""
    if through.last is not None and through.variable.sort != world.batch:
        domain = domain_of(through.variable)
        for raw, at in (("start", world.start), ("end", world.end)):
            body = rewritten(body, Fn(f"{raw}.{domain}", (through.last,), POSITION), at(domain, through.last))
    return body


def _start(walk: Walk, before: Value | None, group: str) -> Poly:
    """What a sum begins with: zero, what the buffer held, or what nobody knows of a group that it did not hold."""
    match before:
        case Tensor():
            return before.pieces[group].body if group in before.pieces else walk.ctx.unknown_of(group)
        case Stream() | Scalar():
            return before.body
    return ZERO


# Over parts of the model.


@dataclass
class _Invariant:
    """What a carried buffer is taken to hold when an iteration begins, has to hold when it ends, and holds after the loop."""

    at_start: Value
    at_end: Value
    after: Value


def _over_parts(walk: Walk, stmt: For, scope: Scope) -> None:
    variable, around = loop_variable(walk.world, stmt), walk.around(stmt, scope)
    before, mark, written = dict(walk.env), walk.ctx.mark(), _written(stmt)
    outer = walk.mixed, walk.ahead
    walk.mixed, left = walk.mixed | _mixed(stmt, before), _left_for_next(stmt)
    own_values = {n: v for n, v in before.items() if n in written and (n in left or not isinstance(v, Tensor))}
    carried = {n: i for n, v in own_values.items() if (i := _invariant(walk, v, stmt, around, variable)) is not None}
    unknown = {n for n, whole in written.items() if whole and n not in carried}

    def any_part(ahead: Mapping[str, Tensor]) -> None:
        walk.ctx.rewound(mark)
        walk.env = {n: walk.ctx.unknown_tensor(v) if n in walk.mixed and isinstance(v, Tensor) else v for n, v in before.items()}
        _forget(walk, unknown, variable)
        walk.env |= {n: invariant.at_start for n, invariant in carried.items()} | dict(ahead)
        walk.ahead = left & set(carried)
        _iteration(walk, stmt, variable, scope)

    while True:
        _filled(walk, any_part, [n for n in written if n not in carried and filled_before(stmt, n)])
        broken = [n for n, i in carried.items() if n in walk.env and not _agrees(walk, walk.env[n], i.at_end)]
        if not broken:
            break
        carried = {n: i for n, i in carried.items() if n not in broken}
        unknown |= {n for n in broken if written[n]}
    walk.mixed, walk.ahead = outer
    through = _through(walk, stmt, around, variable)
    for name, value in list(walk.env.items()):
        if name in carried:
            walk.env[name] = carried[name].after
            continue
        if isinstance(value, Parts):
            walk.env[name] = _parts_after(value, stmt, through)
        elif name in unknown:
            walk.env[name] = _after(walk, name, before.get(name), value, through)
        after = walk.env[name]
        if isinstance(after, Tensor) and variable.name in after.region.index.free:  # one part alone, unless each iteration filled its own
            filled = after.region == Region(domain=stmt.domain, index=variable) and written.get(name) is False and not stmt.start
            walk.env[name] = replace(after, region=around) if filled and name not in walk.mixed else walk.ctx.unknown_tensor(after)
    if through.lost and through.last is not None and stmt.within is None:
        _fixed(walk, stmt, variable, scope, before, mark)


def _filled(walk: Walk, any_part: Callable[[Mapping[str, Tensor]], None], names: Iterable[str]) -> None:
    """An iteration that reads of these buffers what an earlier one wrote: found by one that does not know it, unless the second one writes
    something else."""
    any_part({})
    ahead = {n: v for n in names if isinstance(v := walk.env.get(n), Tensor)}
    unsure: set[str] = set()
    while ahead:
        any_part(ahead)
        other = {n for n in ahead.keys() - unsure if walk.env.get(n) != ahead[n]}
        ahead |= {n: walk.ctx.unknown_tensor(ahead[n]) for n in other}
        unsure |= other
        if not other:
            walk.env |= {n: ahead[n] for n in unsure}
            return


def _through(walk: Walk, stmt: For, around: Region, variable: Var) -> _Through:
    """A loop over parts of the model that is through: all of the stage's, or those of the part around, perhaps without the first."""
    first = edge(0, around, variable.sort)
    if stmt.start:
        return _Through(variable=variable, last=None, left=first)
    last = first if stmt.reverse else edge(-1, around, variable.sort)
    if stmt.within is None:
        return _Through(variable=variable, last=last)
    return _Through(variable=variable, last=last, among=same(fn(f"{around.domain} of", (variable,), around.index.sort), around.index))


def _parts_after(value: Parts, stmt: For, through: _Through) -> Parts:
    """Parts after a loop: of those that are not its own, what its last iteration leaves; that of a loop which may have none has no name."""
    variable = through.variable
    last = {variable.name: through.last or fn(f"some.{variable.sort.name}", (), variable.sort)}
    own = {k for k, (loop, _) in value.by_key.items() if loop is not None and (loop.var, loop.domain) == (stmt.var, stmt.domain)}
    return Parts(by_key={k: (loop, v if k in own else v.replaced(last)) for k, (loop, v) in value.by_key.items()})


def _invariant(walk: Walk, value: Value, stmt: For, around: Region, variable: Var) -> _Invariant | None:
    world = walk.world
    first, last = world.start(around.domain, around.index), world.end(around.domain, around.index)
    begin, end = world.start(stmt.domain, variable), world.end(stmt.domain, variable)
    if stmt.start:
        first = world.end(stmt.domain, edge(0, around, variable.sort))
    if stmt.reverse:
        first, last, begin, end = last, first, end, begin
    match value:
        case Stream() if first.key in value.body.key:
            return _Invariant(*(replace(value, body=rewritten(value.body, first, at)) for at in (begin, end, last)))
        case Handle(result=Tensor() as result) if not stmt.start:
            return _next_part(result, lambda r: replace(value, result=r), stmt, around, variable)
        case Tensor():
            return _next_part(value, lambda r: r, stmt, around, variable)
    return None


def _left_for_next(loop: For) -> set[str]:
    """The buffers that an iteration writes with the part of the next one, and then leaves alone."""
    names: set[str] = set()
    for stmt in loop.body if not loop.start and loop.domain == "units" and loop.within is None else ():
        names -= {r.name for s in statements((stmt,)) for r in references(s)}
        if isinstance(stmt, Assign) and not stmt.accumulate and all(t.index is None and t.group is None for t in stmt.targets):
            ahead = {r.index.offset for r in references(stmt) if r.index is not None and r.index.var == loop.var}
            names |= {t.name for t in stmt.targets if len(stmt.targets) == 1} if ahead == {-1 if loop.reverse else 1} else set()
    return names


def _next_part(result: Tensor, made: Callable[[Tensor], Value], stmt: For, around: Region, variable: Var) -> _Invariant | None:
    """What is gathered, or started, one part ahead: before the loop for the first part, in each iteration for the next. The last iteration
    has no next one, and leaves its own."""
    first, last = (Region(domain=stmt.domain, index=edge(n, around, variable.sort)) for n in ((-1, 0) if stmt.reverse else (0, -1)))
    if result.region != first:
        return None
    current, following = (Region(domain=stmt.domain, index=shifted(variable, n)) for n in (0, -1 if stmt.reverse else 1))
    return _Invariant(*(made(replace(result, region=r)) for r in (current, following, last)))


def _agrees(walk: Walk, value: Value, expected: Value) -> bool:
    """Whether a buffer holds what it has to: a stream on the tokens that the device holds, a block's output being written out."""
    match value, expected:
        case Stream(), Stream() if value.held == expected.held:
            left, right = on_holder(walk.ctx, value), on_holder(walk.ctx, expected)
            return left == right or walk.reference.unfolded(left) == walk.reference.unfolded(right)
        case Tensor(), Tensor():
            return value == expected
        case Handle(), Handle():
            same_region = isinstance(value.result, Tensor) and isinstance(expected.result, Tensor) and value.result == expected.result
            return same_region and value.raced == expected.raced
    return False
