"""Adapters beside the matrices of a model (Hu et al. 2022, section 4): blocks in which these, and nothing else, have gradients.

Beside a matrix w stand two small ones: what is computed with w has the product with ``w_a`` and then with ``w_b`` added to it. The factor
alpha / r is taken into ``w_b``. The gradients of both are products of what w reads and of the gradient of what it gives, as that of w is,
and these are in the block. What only the gradients of frozen weights needed is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import reduce

from placeproof.core.diagnostics import refuse
from placeproof.core.strategy import ADAPTER
from placeproof.models.expressions import expression
from placeproof.models.model import Block, Model
from placeproof.models.programs import factors, rows_reached, weights, without_gradients
from placeproof.programs import Assign, Binary, Call, Do, Expr, Program, Ref, Stmt, read, reads, render
from placeproof.programs.ir import Tensor, own_expressions

#: The inner dimension of adapters, and the symbol of its size.
RANK, SIZE = "rank", "r"
#: Beside which weights adapters stand, by the word of the strategy's option: all matrices of layers, or those of attention.
TARGETS = ("linear", "attention", "qv")


def targets(model: Model, word: str) -> frozenset[str]:
    """The weights beside which adapters stand. Raises InputError where the word says nothing of the model's blocks."""
    layers = [b for s in model.segments if str(s.times) != "1" for b in s.blocks]
    if word == "linear" and (apart := {g for b in layers for g in b.groups.values()} & {"expert", "router"}):
        message = f"adapters beside the {' and the '.join(sorted(apart))} weights of {model.name} are not derived"
        refuse("PP122", message, help="`lora(targets=attention)`")
    chosen = [b for b in layers if word == "linear" or b.name.startswith("attention")]
    named = {w for b in chosen for w in factors(b.program) if b.groups[w] == "matrix" and (word != "qv" or w in ("wq", "wv"))}
    if not named:
        refuse("PP122", f"{model.name} has no weights that `targets={word}` names", help="one of " + ", ".join(TARGETS))
    return frozenset(named)


def adapted(model: Model, beside: Collection[str], rank: int | None = None) -> Model:
    """The model with adapters beside some weights of its layers, and every other weight frozen. ``rank``: open where it is None.

    Raises InputError for a block that computes with such a weight otherwise than by a product.
    """
    made: dict[str, Block] = {}
    segments = []
    for segment in model.segments:
        layers = str(segment.times) != "1"
        for block in segment.blocks:
            own = [w for w in block.groups if layers and w in beside]
            made.setdefault(block.name, _adapted(block, own))
        segments.append(replace(segment, blocks=tuple(made[b.name] for b in segment.blocks)))
    dims = {**model.dimensions, RANK: expression(SIZE)}
    found = replace(model, segments=tuple(segments), dimensions=dims)
    return found if rank is None else found.resized({SIZE: rank})


def adapters(blocks: Collection[Block]) -> frozenset[str]:
    """The weights beside which adapters stand in these blocks."""
    return frozenset(w.removesuffix("_a") for b in blocks for w, group in b.groups.items() if group == ADAPTER and w.endswith("_a"))


def _adapted(block: Block, beside: Collection[str]) -> Block:
    program, groups = block.program, dict(block.groups)
    frozen = frozenset(w.name for w in block.weights)
    for name in beside:
        program = _Beside(program, next(w for w in block.weights if w.name == name)).program()
        groups |= {f"{name}_a": ADAPTER, f"{name}_b": ADAPTER}
    program = read(render(without_gradients(program, frozen)), source=f"{block.name}.step")
    return replace(block, program=program, weights=weights(program), groups=groups, reached=rows_reached(program), frozen=frozen)


@dataclass(frozen=True)
class _Beside:
    """A block with an adapter beside one of its weights. Raises InputError where it computes with that otherwise than by a product."""

    whole: Program
    weight: Tensor

    def program(self) -> Program:
        """The block."""
        name = self.weight.name
        claim = next(n for n, s in enumerate(self.whole.body) if isinstance(s, Do) and s.call.option("by") == name)
        x, dy = self._operands(self.whole.body[claim])
        inner = self._reduced_by(x)
        outer = tuple(d for d in self.weight.dims if d not in inner)
        a, b = Ref(name=f"{name}_a"), Ref(name=f"{name}_b")
        z, dz = Ref(name=f"{name}_z"), Ref(name=f"{name}_dz")
        body: list[Stmt] = []
        forward, backward = False, False
        added = Counter(self._added_at(n) for n, s in enumerate(self.whole.body) if any(self._use(e) == dy for e in self._uses(s)))
        for number, stmt in enumerate(self.whole.body):
            uses = [self._use(e) for e in self._uses(stmt)]
            if any(use == x for use in uses) and not forward:
                body.append(Assign(targets=(z,), value=_product(x, a, inner)))
                forward = True
            if (number == claim or any(use == dy for use in uses)) and not backward:
                body.append(Assign(targets=(dz,), value=_product(dy, b, outer)))
                backward = True
            if any(use not in (x, dy) for use in uses):
                self._refuse(stmt)
            body.append(self._changed(stmt, x, _product(z, b, (RANK,)), [_product(dz, a, (RANK,))] * added[number]))
            if number == claim:
                body += [self._claimed(stmt, a, x, dz), self._claimed(stmt, b, z, dy)]
        if not (forward and backward):
            self._refuse(self.whole.body[claim])
        at = next(n for n, t in enumerate(self.whole.tensors) if t.name == name) + 1
        new = (Tensor(name=a.name, dims=(*inner, RANK)), Tensor(name=b.name, dims=(RANK, *outer)))
        return replace(self.whole, tensors=(*self.whole.tensors[:at], *new, *self.whole.tensors[at:]), body=tuple(body))

    def _refuse(self, stmt: Stmt) -> None:
        message = f"`{self.whole.name}` computes with `{self.weight.name}` otherwise than by a product: no adapter is put beside it"
        refuse("PP122", message, place=stmt.place, help="leave it out of the targets")

    def _operands(self, claim: Stmt) -> tuple[Expr, Expr]:
        """What the weight meets in forward, and the gradient of what comes of it: the two sides of the product that its gradient is."""
        value = claim.call.args[0] if isinstance(claim, Do) else None
        while isinstance(value, Call) and value.op == "total":
            value = value.args[0]
        if not (isinstance(value, Call) and value.op == "contract"):
            self._refuse(claim)
            raise AssertionError
        return value.args[0], value.args[1]

    def _reduced_by(self, x: Expr) -> tuple[str, ...]:
        """The dimensions of the weight over which forward sums."""
        for stmt in self.whole.body:
            for use in self._uses(stmt):
                if self._use(use) == x:
                    return tuple(d for d in self.weight.dims if d in _summed(use))
        self._refuse(self.whole.body[0])
        raise AssertionError

    def _uses(self, stmt: Stmt) -> Iterator[Expr]:
        """The products with the weight, each with the sums over its dimensions that are taken of it."""
        for own in own_expressions(stmt):
            yield from self._within(own)

    def _within(self, expr: Expr) -> Iterator[Expr]:
        if self._is_product(expr) or (isinstance(expr, Ref) and expr.name == self.weight.name):
            yield expr
        elif isinstance(expr, Binary):
            yield from (*self._within(expr.left), *self._within(expr.right))
        elif isinstance(expr, Call):
            for arg in expr.args:
                yield from self._within(arg)

    def _is_product(self, expr: Expr) -> bool:
        match expr:
            case Call(op="total", args=(inner,)):
                return expr.option("over") in self.weight.dims and self._is_product(inner)
            case Call(op="contract", args=(_, Ref(name=name))):
                return name == self.weight.name
        return False

    def _use(self, use: Expr) -> Expr | None:
        """What the weight is multiplied with."""
        while isinstance(use, Call) and use.op == "total":
            use = use.args[0]
        return use.args[0] if isinstance(use, Call) and use.op == "contract" else None

    def _added_at(self, number: int) -> int:
        """Where a gradient that goes through the adapter is added to that which goes through the weight: behind the last of all that the
        latter is added to, so that sums over devices are taken once."""
        stmt = self.whole.body[number]
        if not (isinstance(stmt, Assign) and any(self._is_product(t) for t in _terms(stmt.value))):
            self._refuse(stmt)
        while isinstance(stmt, Assign):
            name = stmt.targets[0].name
            later = [n for n, s in enumerate(self.whole.body) if any(r.name == name for r in reads(s))]
            after = self.whole.body[later[0]] if len(later) == 1 else None
            if not (isinstance(after, Assign) and any(isinstance(t, Ref) and t.name == name for t in _terms(after.value))):
                break
            number, stmt = later[0], after
        return number

    def _changed(self, stmt: Stmt, x: Expr, more: Expr, behind: list[Expr]) -> Stmt:
        """With something added to the product of the weight and ``x``, and ``behind`` all of it."""

        def change(expr: Expr) -> Expr:
            if self._is_product(expr):
                return Binary(op="+", left=expr, right=more) if self._use(expr) == x else expr
            if isinstance(expr, Binary):
                return replace(expr, left=change(expr.left), right=change(expr.right))
            return replace(expr, args=tuple(map(change, expr.args))) if isinstance(expr, Call) else expr

        if isinstance(stmt, Assign):
            return replace(stmt, value=reduce(lambda left, right: Binary(op="+", left=left, right=right), behind, change(stmt.value)))
        if isinstance(stmt, Do):
            call = change(stmt.call)
            assert isinstance(call, Call)
            return replace(stmt, call=call)
        return stmt

    def _claimed(self, claim: Stmt, by: Ref, x: Expr, dy: Expr) -> Stmt:
        """The gradient of an adapter: as the weight's own, of other operands."""
        assert isinstance(claim, Do)

        def of(value: Expr) -> Expr:
            if isinstance(value, Call) and value.op == "total":
                return replace(value, args=(of(value.args[0]),))
            assert isinstance(value, Call)
            return replace(value, args=(x, dy))

        options = tuple((o, by.name if o == "by" else v) for o, v in claim.call.options)
        return Do(call=replace(claim.call, args=(of(claim.call.args[0]),), options=options))


def _product(x: Expr, weight: Ref, over: tuple[str, ...]) -> Expr:
    """The product with a weight, summed over some dimensions, the last of them first."""
    *others, first = over
    made: Expr = Call(op="contract", args=(x, weight), options=(("over", first),))
    for dim in reversed(others):
        made = Call(op="total", args=(made,), options=(("over", dim),))
    return made


def _terms(expr: Expr) -> Iterator[Expr]:
    """What is added up."""
    if isinstance(expr, Binary) and expr.op == "+":
        yield from (*_terms(expr.left), *_terms(expr.right))
    else:
        yield expr


def _summed(use: Expr) -> set[str]:
    dims = set[str]()
    while isinstance(use, Call) and use.op in ("total", "contract"):
        dims.add(use.option("over") or "")
        use = use.args[0] if use.op == "total" else Ref(name="")
    return dims
