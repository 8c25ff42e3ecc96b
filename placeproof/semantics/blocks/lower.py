"""Lowering: a block's program on one device and a plan, to the program that every device of the mesh runs.

The plan says how the tensors of the header lie. Statement by statement, operands that do not fit are made to (:mod:`.align`), by
collectives; what is returned is left as the next block reads it, and a gradient as the tensor lies that it is by. Nothing is computed
otherwise than on one device: without its collectives and parts a lowered program is the block.

What moved is used again: a tensor is gathered once in forward, however many weights read it, and, with ``regather``, once more in backward.
A partial sum is reduced where it is made, for the first statement that needs it whole; sums that are only added up are reduced together.
The greatest value over a split dimension is reduced at once. `contract(hot(same), k, over=tokens)` is k under another name: it is gathered
(or moved) before that, and a partial sum stays one.

A lowered program need not be the one that sends least. Context parallelism gathers the keys and values of latent attention, and not what
they are made of, which is smaller. Tensor and sequence parallelism gather what was sent to experts, a row for each choice, and not the
tokens. A gradient that lies otherwise than its weight is laid out by one more collective. Proofs and costs are asked about a lowered
program like about any other.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NoReturn

from placeproof.core.diagnostics import Place, refuse
from placeproof.core.mesh import axis_order
from placeproof.core.remembered import remembered
from placeproof.programs import POSITIONS, Assign, Binary, Call, Do, Expr, Number, Program, Ref, Stmt, assigned, expressions, render
from placeproof.programs.ir import Tensor, adjoints, reads, references, rewritten, with_buffers, with_expressions
from placeproof.semantics.blocks.align import Together, aligned, reduced
from placeproof.semantics.blocks.buffers import Buffers, Made, free_name
from placeproof.semantics.blocks.moves import placed, stored
from placeproof.semantics.blocks.plan import Plan
from placeproof.semantics.blocks.wanted import ANYHOW, Want, backward, lasting, wanted
from placeproof.semantics.layouts.layout import PARTIAL, AxisState, Layout, declared, in_words
from placeproof.semantics.layouts.operations import MisfitError, arithmetic, result

#: What adds up over a dimension.
_REDUCES = ("contract", "total", "largest")


@remembered
def lower_block(program: Program, plan: Plan) -> Program:
    """A one-device program over tensors on the mesh of a plan. It is well-formed, and it reads back from its text.

    A buffer that has the name of an axis gets another one. Raises InputError where the program is none of one device (it has a mesh, a
    collective, a loop, a branch), where shapes do not fit, and where an axis has the name of a tensor of the header.
    """
    taken = {r.name for s in program.body for r in references(s)} | {t.name for t in program.tensors} | {a.name for a in plan.axes}
    _check(program, plan)
    clashing = {a.name for a in plan.axes} & {t.name for t in assigned(program.body)}
    program = with_buffers(program, {name: free_name(f"{name}_here", taken) for name in sorted(clashing)})
    walk = _Walk(program, plan, taken)
    for number, stmt in enumerate(program.body):
        walk.statement(number, stmt)
    axes = tuple(sorted((a.axis for a in plan.axes), key=axis_order))
    return _placed(replace(program, axes=axes, tensors=walk.tensors, body=tuple(walk.buffers.body)))


def _refuse(message: str, place: Place | None, help: str) -> NoReturn:
    refuse("PP122", message, place=place, help=help)


def _check(program: Program, plan: Plan) -> None:
    if not program.tensors:
        _refuse("this program declares no tensor, so it is no block of a model", None, "lower a program over tensors")
    if program.axes:
        _refuse(f"this program has a mesh already, with axis `{program.axes[0].name}`", None, "lower the block's program on one device")
    for axis in plan.axes:
        for tensor in program.tensors:
            if tensor.name == axis.name:
                _refuse(f"an axis of the plan has the name of tensor `{tensor.name}`", tensor.place, "call the axis otherwise")


def _placed(program: Program) -> Program:
    """The same program with the lines of its own text as places. It has no loops and no branches."""
    source, text = f"{program.name}.step", render(program).splitlines()
    body: list[Stmt] = []
    for number, stmt in enumerate(program.body, len(text) - len(program.body)):
        place = Place(source=source, line=number + 1, column=1, length=len(text[number]), text=text[number])
        at = partial(replace, place=place)
        body.append(at(with_expressions(stmt, partial(rewritten, change=at), tuple)))
    return replace(program, body=tuple(body))


class _Walk:
    """One walk over a program."""

    def __init__(self, program: Program, plan: Plan, taken: set[str]) -> None:
        self.rules, self.body = plan.ordered, program.body
        self.seeds = adjoints(program)
        header = {t.name: self._declared(t) for t in program.tensors}
        self.named = {*header, *(target.name for target in assigned(program.body))}
        self.tensors = tuple(_split(t, header[t.name]) for t in program.tensors)
        self.wanted = wanted(program, header)
        self.backward, incoming = backward(program)
        self.buffers = Buffers(rules=self.rules, regather=plan.regather, taken=taken, incoming=incoming)
        for name, layout in header.items():
            self.buffers.declare(name, layout)
        self.lasting = lasting(program) if plan.regather else frozenset()
        self.views: dict[str, Expr] = {}
        self.again: dict[str, str] = {}
        self.claimed: Layout | None = None

    def _declared(self, tensor: Tensor) -> Layout:
        """How a tensor of the header lies.

        Positions among what an axis splits (ids of tokens) are needed by every device of it, unless what they pick is sent to its device.
        """
        states: dict[str, AxisState] = {}
        for rule in self.rules:
            sent_to = {d for there in rule.moves.values() for d in there}
            if tensor.name in rule.whole or (tensor.picks in rule.weights and tensor.picks not in sent_to):
                continue
            inside = next((d for d in rule.weights if d in tensor.dims), None)
            home = rule.home(tensor.dims)
            states[rule.name] = inside or (rule.away(home, tensor.dims) if home is not None else None) or home
        return placed(declared(tensor, adjoint=tensor.name in self.seeds), states, self.rules)

    # Statements.

    def statement(self, number: int, stmt: Stmt) -> None:
        """The next one, after what moves for it."""
        self.buffers.backward = number >= self.backward
        match stmt:
            case Assign(targets=(Ref(name=name, group=None, index=None) as target,), value=value):
                whole = Binary(op="+", left=target, right=value, place=stmt.place) if stmt.accumulate else value
                self._assign(number, name, whole)
            case Do(call=Call(op="returns") as call):
                self._returns(call)
            case Do(call=Call(op="free", args=(Ref(name=name),))):
                self.buffers.drop(name)
            case _:
                message = "only assignments to plain names, `returns` and `free` are lowered"
                _refuse(message, stmt.place, "write the block without this statement")

    def _assign(self, number: int, name: str, value: Expr) -> None:
        want = self.wanted.get(name)
        made = self._made(value, Want.of(want))
        if want is not None and set(want.dims) == set(made.layout.dims):
            made = self._laid(made, want)
        elif self.buffers.backward:
            made = self._back(made, self._beside(number, name))
        kept = made.layout.states
        for rule in self.rules:
            if kept.get(rule.name) in rule.gathered and not made.layout.model:
                kept[rule.name] = None
        self.again.pop(name, None)
        read = {e.name for e in expressions(value) if isinstance(e, Ref)}
        if made.gathered and made.name is None and self.lasting >= {name, *read} and not self.buffers.backward:
            self.views[name] = value
        self.buffers.assign(name, self.buffers.fixed(made, placed(made.layout, kept, self.rules)))

    def _beside(self, number: int, name: str) -> set[str]:
        """The buffers that statements after this one read together with what it assigns."""
        beside: set[str] = set()
        for stmt in self.body[number + 1 :]:
            read = {r.name for r in reads(stmt)} & self.named  # without the names of functions
            beside |= read - {name} if name in read else set()
            if name in {t.name for t in assigned((stmt,))}:
                break
        return beside

    def _back(self, made: Made, beside: set[str]) -> Made:
        """What lies elsewhere for a while, back where it lies between blocks, if all that it is read with lies there, or is not split: it
        would be exchanged then in any case, or else all of that."""
        others = [self.buffers.read(name) for name in beside]
        states, dims = made.layout.states, made.layout.dims
        for rule in self.rules:
            home = rule.home(dims)
            there = {other.layout.states.get(rule.name) if other is not None else states.get(rule.name) for other in others}
            if home is not None and states.get(rule.name) == rule.away(home, dims) and home in there and there <= {home, None, PARTIAL}:
                states[rule.name] = home
        return self.buffers.fixed(made, placed(made.layout, states, self.rules)) if states != made.layout.states else made

    def _returns(self, call: Call) -> None:
        returned, by = call.args[0], call.option("by")
        source = self.buffers.read(by) if by is not None else None
        want = source.layout if source is not None else self.wanted.get(returned.name) if isinstance(returned, Ref) else None
        self.claimed = source.layout if source is not None and source.layout.model else None
        made = self._made(returned, Want.of(want) if by is not None else ANYHOW)
        self.claimed = None
        if source is not None:
            _alike(call, f"the gradient by `{by}`", made, f"`{by}`", source)
            of, at = (call.option(o) or "" for o in ("gradient_of", "at"))
            _alike(call, f"`{of}`", self.buffers.read(of), f"`{at}`", self.buffers.read(at))
        if want is None or set(want.dims) != set(made.layout.dims):
            want = placed(made.layout, {r.name: r.home(made.layout.dims) for r in self.rules}, self.rules)
        self.buffers.emit(Do(call=replace(call, args=(self._laid(made, want).expr,))))

    def _laid(self, made: Made, want: Layout) -> Made:
        """As another value of the same dimensions lies, and no partial sum."""
        states = {axis: state for axis, state in want.states.items() if state != PARTIAL}
        return self.buffers.fixed(made, placed(made.layout, states, self.rules))

    # Expressions.

    def _made(self, expr: Expr, want: Want) -> Made:
        match expr:
            case Number():
                return Made(expr, Layout())
            case Ref(name=name):
                if self.buffers.backward and name in self.views:
                    self.again[name] = self.buffers.again(name, self._made(self.views.pop(name), ANYHOW))
                tensor = self.buffers.read(self.again.get(name, name)) if expr.group is None and expr.index is None else None
                help = "read tensors that the header or a statement above names"
                return tensor or _refuse(f"`{name}` is no whole tensor here", expr.place, help)
            case Binary(op="**", left=left, right=right):
                base = self._whole(self._number(left))
                return Made(replace(expr, left=base.expr, right=self._number(right).expr), base.layout)
            case Binary(op=op, left=left, right=right):
                a, b = self._together((left, right), op, want)
                return Made(replace(expr, left=a.expr, right=b.expr), arithmetic(a.layout, b.layout))
            case Call():
                return self._call(expr, want)

    def _home(self, made: Made) -> Made:
        """What is summed to the gradient of a weight, back where it lies between blocks if it lies elsewhere for a while.

        So such a gradient is a sum over the devices of an axis that splits positions, unless the axis splits the weight.
        """
        if self.claimed is None:
            return made
        states, dims = made.layout.states, made.layout.dims
        for rule in self.rules:
            home = rule.home(dims)
            away = None if home is None else rule.away(home, dims)
            if away is not None and states.get(rule.name) == away and self.claimed.states.get(rule.name) is None:
                states[rule.name] = home
        return self.buffers.fixed(made, placed(made.layout, states, self.rules)) if states != made.layout.states else made

    def _number(self, expr: Expr, want: Want | None = None) -> Made:
        """An operand that is numbers, and no positions."""
        made = self._made(expr, want or ANYHOW)
        if made.layout.picks is not None:
            _refuse("positions are no numbers", expr.place, "`hot(...)` makes numbers of them")
        return made

    def _as_it_is(self, made: Made) -> Made:
        """For what is linear: a partial sum stays one."""
        return self.buffers.fixed(made, made.layout)

    def _whole(self, made: Made) -> Made:
        """For what needs the numbers themselves."""
        return self.buffers.fixed(made, reduced(self.rules, made.layout))

    def _fitting(self, a: Made, b: Made, both: Together) -> tuple[Made, Made]:
        """Two operands as they are read together. What was sent for it is stored, and may have to be cut as the other one is."""
        a, b = self.buffers.fresh(a), self.buffers.fresh(b)
        while True:
            first, second = aligned(self.rules, a.layout, b.layout, both)
            a, b = self.buffers.fixed(a, first), self.buffers.fixed(b, second)
            if (a.layout.loose, b.layout.loose) == (first.loose, second.loose):
                return a, b

    def _together(self, both: tuple[Expr, Expr], op: str, want: Want) -> tuple[Made, Made]:
        """Two operands, aligned."""
        a, b = (self._number(e, want) for e in both)
        return self._fitting(a, b, Together(op=op, want=want.split))

    def _call(self, call: Call, want: Want) -> Made:
        match call:
            case Call(op="contract", args=(_, _)):
                return self._contract(call, want)
            case Call(op="scale" | "max", args=(left, right)):
                return _given(call, *self._together((left, right), "*" if call.op == "scale" else "max", want))
            case Call(op="total", args=(x,)):
                return _given(call, self._home(self._as_it_is(self._number(x, want))))
            case Call(op="largest", args=(x,)):
                return _largest(call, self._whole(self._number(x)))
            case Call(op="hot", args=(x,)):
                return _hot(call, self._made(x, ANYHOW))
            case Call(op="random", axes=()):
                return _given(call)
            case Call(op="copy", args=(x,)) | Call(op="elementwise", args=(Ref(name="stop"), x)):
                return _given(call, self._as_it_is(self._number(x, want)))
            case Call(op="elementwise" | "slope", args=(_, x)):
                return _given(call, self._whole(self._number(x)))
            case Call(op="dropout", args=(x, key)):
                return _given(call, self._whole(self._number(x)), self._whole(self._number(key)))
        _refuse(f"`{call.op}` is nothing that one device does in a block", call.place, "write the block as one device computes it")

    def _contract(self, call: Call, want: Want) -> Made:
        dim = call.option("over") or ""
        a, b = (self._number(e) for e in call.args)
        renames = _renames(a.layout, dim, b.layout) or _renames(b.layout, dim, a.layout)
        if renames:
            a, b = self._all_of(a, dim), self._all_of(b, dim)
        else:
            stays = (want.weight and a.name is None, want.weight and b.name is None)  # it is reduced as the gradient of a weight
            a, b = self._fitting(a, b, Together(op="*", over=dim, want=want.split, stays=stays))
        return replace(_given(call, a, b), gathered=renames and (a.gathered or b.gathered))

    def _all_of(self, made: Made, dim: str) -> Made:
        """What is called otherwise: whole along the dimension, or split by another for a while; a partial sum stays one."""
        states = made.layout.states
        for rule in self.rules:
            if states.get(rule.name) == dim:
                states[rule.name] = rule.away(dim, filter(made.layout.stored, made.layout.dims))
        return self.buffers.fixed(made, placed(made.layout, states, self.rules))


def _alike(call: Call, what: str, made: Made | None, counterpart: str, other: Made | None) -> None:
    """A gradient has the dimensions of what it is by, and what comes in those of what it is the gradient of."""
    if made is not None and other is not None and set(made.layout.dims) != set(other.layout.dims):
        message = f"{what} has {in_words(made.layout.dims)}, and {counterpart} has {in_words(other.layout.dims)}"
        _refuse(message, call.place, "a gradient and what it is by have the same dimensions; `total(x, over=DIM)` sums over one")


def _given(call: Call, *operands: Made) -> Made:
    """What an operation gives of operands that lie as it reads them, the last of its arguments."""
    functions = call.args[: len(call.args) - len(operands)]
    try:
        layout = result(call, [o.layout for o in operands])
    except MisfitError as misfit:
        _refuse(str(misfit), call.place, misfit.help)
    return Made(replace(call, args=(*functions, *(o.expr for o in operands))), stored(layout) if call.op in _REDUCES else layout)


def _largest(call: Call, made: Made) -> Made:
    """Where the dimension is split, the greatest of all devices."""
    split, largest = made.layout.split.get(call.option("over") or "", ()), _given(call, made)
    if not split:
        return largest
    return _given(Call(op="all_reduce", args=(largest.expr,), axes=split, options=(("op", "max"),)), largest)


def _hot(call: Call, made: Made) -> Made:
    if made.layout.picks is None:
        help = "declare the tensor with `picks=`, the dimension along which its elements are positions"
        _refuse("`hot` takes positions", call.place, help)
    return _given(call, made)


def _renames(hot: Layout, dim: str, value: Layout) -> bool:
    """Whether `contract(hot(p), x, over=tokens)` calls the tokens of x otherwise, or `over=keys` back: one position for all samples."""
    whole = hot.hot is not None and not hot.split and len(hot.dims) == 2
    return whole and POSITIONS.issuperset(hot.dims) and set(hot.dims) & set(value.dims) == {dim}


def _split(tensor: Tensor, layout: Layout) -> Tensor:
    return replace(tensor, split=tuple((axis, dim) for dim in tensor.dims for axis in layout.split.get(dim, ())))
