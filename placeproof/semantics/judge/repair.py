"""What would make a step right: one line of a linked program more, less, or about one group alone; each is proved before it is said."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce

from placeproof.core.diagnostics import InputError
from placeproof.programs import Assign, Binary, Call, Expr, For, Number, Ref, Stmt, calls, render_head, statements
from placeproof.programs.ir import rewritten
from placeproof.semantics.linked import Linked
from placeproof.semantics.linked.contract import stands_for

#: The most programs that are tried.
MOST = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A step that is proved, and how it differs from one that is not, in words."""

    text: str
    linked: Linked


def repaired(linked: Linked, proved: Callable[[Linked], bool]) -> Repair | None:
    """The first of the programs one line away that is proved; None where none is, or where gradients are not summed line by line.

    ``proved``: whether the step of such a program is.
    """
    for repair in itertools.islice(_near(linked), MOST):
        try:
            if proved(repair.linked):
                return repair
        except InputError:  # a line that this step cannot have
            continue
    return None


def _near(linked: Linked) -> Iterator[Repair]:
    """Between the last pass and the update another line, one more, or one less; behind the update, parameters gathered."""
    body = linked.step.body
    span = _span(body)
    if span is None:
        return
    first, last, name = span

    def with_body(text: str, *parts: Sequence[Stmt]) -> Repair:
        changed = replace(linked.step, body=tuple(itertools.chain(*parts)))
        return Repair(text=text, linked=replace(linked, step=changed))

    for number in range(first, last):
        for stmt in (*_of_one_group(linked, body[number], name), *_with_other_axes(linked, body[number])):
            text = f"with `{render_head(stmt)}` instead of line {_line(body[number])}"
            yield with_body(text, body[:number], [stmt], body[number + 1 :])
    before = f" before line {_line(body[first])}"
    for stmt in _sums(linked, name):
        yield with_body(f"with `{render_head(stmt)}`{before}", body[:first], [stmt], body[first:])
    for number in range(first, last):
        yield with_body(f"without line {_line(body[number])}", body[:number], body[number + 1 :])
    for factor in _means(linked):
        stmt = _assigned(Ref(name=name), Call(op="scale", args=(Ref(name=name), factor)))
        yield with_body(f"with `{render_head(stmt)}`{before}", body[:first], [stmt], body[first:])
    for stmt in _whole(linked, "parameters", "all_gather"):
        yield with_body(f"with `{render_head(stmt)}` behind line {_line(body[last])}", body[: last + 1], [stmt], body[last + 1 :])


def _span(body: Sequence[Stmt]) -> tuple[int, int, str] | None:
    """The statements behind all passes and before the update, and the buffer whose gradients that reads."""
    passes = [n for n, s in enumerate(body) if any(c.op.startswith("backward") for i in statements((s,)) for c in calls(i))]
    updates = [(n, c) for n, s in enumerate(body) for c in calls(s) if c.op == "update"]
    if not passes or len(updates) != 1 or updates[0][0] <= passes[-1] or not isinstance(read := updates[0][1].args[2], Ref):
        return None
    return passes[-1] + 1, updates[0][0], read.name


def _line(stmt: Stmt) -> int:
    return stmt.place.line if stmt.place is not None else 0


def _data(linked: Linked) -> tuple[str, ...]:
    """The axes whose devices have samples of their own."""
    return tuple(a.name for a in linked.step.axes if a.splits.batch)


def _sums(linked: Linked, name: str) -> Iterator[Stmt]:
    """Sums that a step may lack: of a group's gradients over axes of which devices find parts; of all, over those of samples."""
    groups, stands = linked.step.groups, stands_for(linked).values()
    for group in groups:
        axes = dict.fromkeys(a for s in stands if s.group == group.name for a in s.lies.partial)
        own = Ref(name=name, group=group.name if len(groups) > 1 else None)
        if group.tied is not None:
            yield _assigned(own, Call(op="tied_reduce", args=(own,), axes=(group.tied,)))
        for some in _subsets(tuple(axes)):
            yield _assigned(own, Call(op="all_reduce", args=(own,), axes=some))
    yield from _whole(linked, name, "reduce_scatter")
    yield from _whole(linked, name, "all_reduce")


def _whole(linked: Linked, name: str, op: str) -> Iterator[Stmt]:
    """An exchange of all that a buffer has, along axes of samples."""
    for some in _subsets(_data(linked)):
        yield _assigned(Ref(name=name), Call(op=op, args=(Ref(name=name),), axes=some))


def _means(linked: Linked) -> Iterator[Expr]:
    """One over numbers of samples."""
    loops = any(isinstance(s, For) and s.domain == "microbatches" for s in linked.step.body)
    for some in _subsets((*_data(linked), *(("microbatches",) if loops else ()))):
        named: list[Expr] = [Ref(name=name) for name in some]
        product = reduce(lambda left, right: Binary(op="*", left=left, right=right), named)
        yield Binary(op="/", left=Number(value=Fraction(1)), right=product)


def _with_other_axes(linked: Linked, stmt: Stmt) -> Iterator[Stmt]:
    """The same line with an axis less, or with another mean."""
    match stmt:
        case Assign(value=Call(op="scale", args=(x, factor)) as call):
            yield from (replace(stmt, value=replace(call, args=(x, other))) for other in _means(linked) if other != factor)
        case Assign(value=Call(axes=(_, _, *_) as axes) as call):
            yield from (replace(stmt, value=replace(call, axes=tuple(a for a in axes if a != axis))) for axis in axes)


def _assigned(target: Ref, value: Expr) -> Stmt:
    return Assign(targets=(target,), value=value)


def _subsets(axes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Those with most axes last."""
    return itertools.chain.from_iterable(itertools.combinations(axes, n) for n in range(1, len(axes) + 1))


def _of_one_group(linked: Linked, stmt: Stmt, name: str) -> Iterator[Stmt]:
    """A line about all gradients, said of one group alone."""
    if not isinstance(stmt, Assign) or stmt.targets != (Ref(name=name),) or len(linked.step.groups) == 1:
        return
    for group in linked.step.groups:

        def renamed(expr: Expr, group: str = group.name) -> Expr:
            return replace(expr, group=group) if isinstance(expr, Ref) and expr.name == name and expr.group is None else expr

        yield replace(stmt, targets=(replace(stmt.targets[0], group=group.name),), value=rewritten(stmt.value, renamed))
