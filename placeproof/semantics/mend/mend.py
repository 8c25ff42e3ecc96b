"""The factor that a step lacks, and the step with it.

What an update reads and what it should read are sums of what devices compute, each part with a scale. Where the parts are the same, the
factor is the quotient of the scales (:mod:`.ratio`). It is put where what it is made of is known: at the pass where it differs from
micro-batch to micro-batch, behind the loop where it differs from device to device, else before what reads the gradient. Nothing of this is
trusted: the step is proved as any other. Where no factor is found, a run says whether there can be any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from placeproof.programs import Assign, Call, Expr, For, Number, Program, Ref, Stmt, calls, render_expression, statements
from placeproof.programs.ir import references, rewritten, with_expressions
from placeproof.programs.losses import reduction
from placeproof.prove import Equal
from placeproof.prove.terms import ONE, Poly, Var, inverse, product, substitute
from placeproof.prove.terms.addition import of_atom
from placeproof.semantics.encode import GRADIENT, Encoding, NoMeaningError, Obligation, Options, encode
from placeproof.semantics.encode.values import Tensor, Value
from placeproof.semantics.encode.world import World
from placeproof.semantics.judge.verdict import Judged, all_obligations_hold, judge
from placeproof.semantics.mend.expressions import NoWordsError, Words, in_words
from placeproof.semantics.mend.ratio import scaled
from placeproof.semantics.mend.unmendable import different_factors
from placeproof.semantics.resolve import resolve

#: What reads gradients for an update.
_READS = ("update", "update_with", "square_norm", "found_inf", "momentum", "tensor_norms", "line_sums")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One change: ``what`` is multiplied by ``factor``, ``where`` ("at", "before", "behind the loop of") a line stands. ``becomes``: what
    is written for it, where that is no product."""

    line: int
    where: str
    what: str
    factor: str
    becomes: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """Of a group's gradient of a loss, how often its parts count in what is read, and in what is wanted; and the factor between the two."""

    group: str
    loss: str
    read: str
    wanted: str
    factor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """A step with the factors that it lacked, how they come about, and its verdict, which is proved."""

    program: Program
    edits: tuple[Edit, ...]
    scales: tuple[Scales, ...]
    judged: Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFactor:
    """Why no factor makes a step right. ``shown``: numbers that want two factors in one place; without them, none was found."""

    why: str
    shown: str | None = None


class _NoneError(Exception):
    """No factor was found."""


def mend(program: Program, *, without: frozenset[str] = frozenset()) -> Mended | NoFactor:
    """The step with the factors that make it right, solved for and proved; or why there is none.

    Raises InputError for a program that is no well-formed training step.
    """
    try:
        return _mended(program, without)
    except _NoneError as why:
        return NoFactor(why=str(why), shown=different_factors(_plain(program), without | frozenset(program.without)))


def _plain(program: Program) -> Program:
    """The step for any degrees, without clipping: what factors are solved for."""

    def unclipped(expr: Expr) -> Expr:
        return Number(value=Fraction(1)) if isinstance(expr, Call) and expr.op == "clip_factor" else expr

    def body(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(with_expressions(s, lambda e: rewritten(e, unclipped), body) for s in stmts)

    axes = tuple(a if a.degree == 1 else replace(a, degree=None) for a in program.axes)
    counts = tuple((name, n) for name, n in program.counts if name != "microbatches")
    reference = tuple((k, v) for k, v in program.reference if k != "clip")
    return replace(program, axes=axes, counts=counts, reference=reference, body=body(program.body))


def _mended(program: Program, without: frozenset[str]) -> Mended:
    plain = resolve(_plain(program))
    options = Options(without=without | frozenset(program.without))
    try:
        encoding = encode(plain, options)
    except NoMeaningError as missing:
        raise _NoneError(f"the proof cannot speak of this step: {missing}") from None
    world = World(plain, options)
    factors = _factors(encoding, world)
    if all(factor.ratio == ONE for factor in factors):
        before = ", before it is clipped," if "clip" in dict(program.reference) else ""
        raise _NoneError(f"the gradient{before} is right, and what is broken is something else")
    lacking = tuple(_scales(f, world) for f in factors if f.ratio != ONE)
    for as_sums in (False, True):
        edits = _Edits(program, encoding, world, as_sums)
        changed = edits.made(factors)
        if all_obligations_hold(changed, Options(without=options.without)) or (as_sums or not edits.counts or not program.loss):
            judged = judge(changed, without=without, shortest=False)
            if judged.word == "proved":
                told = sorted(dict.fromkeys(edits.told), key=lambda e: (e.line, e.where))
                return Mended(program=changed, edits=tuple(told), scales=lacking, judged=judged)
            holds = "is not proved" if judged.word == "unknown" else "does not hold"
            about = "" if judged.about is None else f": it {holds} that {judged.about.name}"
            raise _NoneError(f"with the factors that it lacks the step is still {judged.word}{about}")
    raise AssertionError("unreachable")


def _scales(factor: _Factor, world: World) -> Scales:
    read, wanted, lacking = (in_words(one, world) for one in (factor.read, factor.wanted, factor.ratio))
    return Scales(group=factor.group, loss=factor.loss, read=read, wanted=wanted, factor=lacking)


@dataclass(frozen=True, slots=True)
class _Factor:
    """The scale of a group's gradient that is read and the one that is wanted, of one loss."""

    group: str
    loss: str
    read: Poly
    wanted: Poly

    @property
    def ratio(self) -> Poly:
        """By what it has to be multiplied."""
        return product(self.wanted, inverse(self.read))


def _factors(encoding: Encoding, world: World) -> list[_Factor]:
    """The factors of all groups and losses. Raises _NoneError where what is read is not what is wanted but for a factor."""
    factors: dict[tuple[str, str], _Factor] = {}
    obligations = [o for o in encoding.obligations if o.condition == GRADIENT]
    if not obligations:
        raise _NoneError("no update reads a gradient")
    for obligation in obligations:
        for one in _of(obligation, world):
            if factors.setdefault((one.group, one.loss), one).ratio != one.ratio:
                raise _NoneError(f"two updates, or the two ends of a pipeline, lack different factors{_whose(obligation)}")
    return list(factors.values())


def _of(obligation: Obligation, world: World) -> Iterable[_Factor]:
    meant = {g.left.name: g.right for g in obligation.claim.given if isinstance(g, Equal) and isinstance(g.left, Var)}
    try:
        read, wanted = (scaled(world, substitute(side, meant)) for side in (obligation.claim.left, obligation.claim.right))
    except ValueError as why:
        raise _NoneError(f"{why}{_whose(obligation)}") from None
    if set(read) != set(wanted):
        raise _NoneError(_what_is_missing(obligation, world, substitute(obligation.claim.left, meant), set(wanted)))
    group = next((g for g in world.groups if f"({g})" in obligation.name), world.groups[0])
    by_loss: dict[str, _Factor] = {}
    for key, one in read.items():
        factor = _Factor(group, one.loss, one.scale, wanted[key].scale)
        if by_loss.setdefault(one.loss, factor).ratio != factor.ratio:
            raise _NoneError(f"parts of the gradient lack different factors{_whose(obligation)}")
    return by_loss.values()


def _what_is_missing(obligation: Obligation, world: World, read: Poly, wanted: set[str]) -> str:
    """Why what is read is no multiple of what is wanted: where it is that of the device's own samples, over which axes nothing sums it."""
    whose = _whose(obligation)
    own = [f for f in world.sample_factors if isinstance(v := world.here[f], Var) and v.name in read.free]
    if own:
        axes = " and ".join(f"`{f}`" for f in own)
        return f"the update reads the gradient of the device's own samples along {axes}, and nothing brings in those of others{whose}"
    if "unknown" in read.key:
        what = "values that the device does not have, or that a loop changes otherwise than by adding"
        return f"the update reads what is computed from {what}{whose}"
    return f"what the update reads is no multiple of the gradient of the global batch{whose}"


def _whose(obligation: Obligation) -> str:
    """Of which group, and of which stage, where there are several."""
    return obligation.name.removeprefix("update reads the gradient of the global batch")


class _Edits:
    """Changes of a program, made and told. ``as_sums``: a pass that has to be multiplied by what it is a mean over takes the sum itself;
    ``counts``: whether there is such a pass."""

    def __init__(self, program: Program, encoding: Encoding, world: World, as_sums: bool) -> None:
        self.program, self.encoding, self.world, self.as_sums, self.counts = program, encoding, world, as_sums, False
        self.told: list[Edit] = []
        self.taken = frozenset(r.name for s in statements(program.body) for r in references(s)) | {a.name for a in program.axes}
        self.counted: dict[str, tuple[str, tuple[str, ...]]] = {}

    def made(self, factors: list[_Factor]) -> Program:
        """The program with all factors. Raises _NoneError where one cannot be said, or not for one group, or loss, alone."""
        at_pass, behind, before = self._by_place(factors)
        last = self._last_pass()
        first = next((n for n in range(last, len(self.program.body)) if self._reads(self.program.body[n])), None)
        if first is None:
            raise _NoneError("nothing reads the gradients behind the last pass")
        body = list(self.program.body)
        try:
            tail = self._update_lines(before, first)
            buffers = self._buffer_lines(behind, last)
            if at_pass:
                body = list(self._with_passes(tuple(body), at_pass, None))
        except NoWordsError as why:
            raise _NoneError(str(why)) from None
        sums = [_assign(name, _summed(name, axes)) for name, (_, axes) in self.counted.items() if axes]
        if self.counted:
            body[last] = self._counting(body[last])
        split = last + 1
        body = [*body[:split], *sums, *buffers, *body[split:first], *tail, *body[first:]] if first > last else body
        return replace(self.program, body=tuple(body))

    def _by_place(self, factors: list[_Factor]) -> tuple[dict[str, _Factor], dict[str, _Factor], dict[str, _Factor]]:
        """The parts of factors that differ by micro-batch, by loss; those that differ by device or loss, by loss; the others, by group."""
        losses = list(dict.fromkeys(f.loss for f in factors))
        at_pass, behind, before = dict[str, _Factor](), dict[str, _Factor](), dict[str, _Factor]()
        loop = any(isinstance(s, For) and s.domain == "microbatches" for s in self.program.body)
        for factor in factors:
            local, own, rest = self._split(factor)
            if not loop:
                local, own = product(local, own), ONE
            if len(losses) > 1:
                local, own, rest = (local, product(own, rest), ONE) if loop else (product(local, own, rest), ONE, ONE)
            for place, part, key in ((at_pass, local, factor.loss), (behind, own, factor.loss), (before, rest, factor.group)):
                one = replace(factor, read=ONE, wanted=part)
                if place.setdefault(key, one).wanted != part:
                    raise _NoneError("groups of parameters lack factors that differ by device or micro-batch, and a pass gives all of them")
        return tuple({k: f for k, f in place.items() if f.wanted != ONE} for place in (at_pass, behind, before))  # type: ignore[return-value]

    def _split(self, factor: _Factor) -> tuple[Poly, Poly, Poly]:
        """A ratio as a product: what differs by micro-batch, what differs by device, and what does not."""
        alone = factor.ratio.alone
        if alone is None:
            raise _NoneError("what is lacking is no product of degrees and counts")
        parts = [ONE, ONE, ONE]
        for atom, exponent in alone[0].factors:
            one = of_atom(atom, abs(exponent))
            free = [n for n in atom.free if n.startswith("s.")]
            at = 0 if f"s.{self.world.batch.name}" in free else 1 if free else 2
            parts[at] = product(parts[at], one if exponent > 0 else inverse(one))
        number = product(*(inverse(p) for p in parts), factor.ratio)
        return parts[0], parts[1], product(parts[2], number)

    # Where.

    def _last_pass(self) -> int:
        numbers = [
            n for n, s in enumerate(self.program.body) if any(c.op.startswith("backward") for i in statements((s,)) for c in calls(i))
        ]
        if not numbers:
            raise _NoneError("the step has no pass")
        return numbers[-1]

    def _reads(self, stmt: Stmt) -> bool:
        return _calls((stmt,), _READS.__contains__)

    def _held(self, number: int) -> Mapping[str, Value]:
        """What buffers hold before a statement."""
        return self.encoding.lines[number - 1].after if number else {}

    # Lines.

    def _update_lines(self, before: dict[str, _Factor], first: int) -> list[Stmt]:
        if not before:
            return []
        words = Words(self.world, self._held(first), None, self.counted, self.taken)
        buffer = self._buffer_read(first)
        alike = len({f.wanted for f in before.values()}) == 1 and len(before) == len(self.world.program.trained)
        lines = list[Stmt]()
        for factor in list(before.values())[: 1 if alike else None]:
            ref = Ref(name=buffer, group=None if alike else factor.group)
            lines.append(self._scaling(ref, words.quotient(factor.wanted), self.program.body[first], "before"))
        return lines

    def _buffer_read(self, first: int) -> str:
        """The buffer of gradients that a statement reads. Raises _NoneError where it reads none by name."""
        for stmt in statements((self.program.body[first],)):
            for call in calls(stmt):
                at = {"square_norm": 0, "found_inf": 0, "line_sums": 0, "momentum": 1}.get(call.op, 2)
                if call.op in _READS and isinstance(read := call.args[at], Ref):
                    return read.name
        raise _NoneError("the update reads a gradient that has no name: give it one, in a line of its own")

    def _buffer_lines(self, behind: dict[str, _Factor], last: int) -> list[Stmt]:
        words = Words(self.world, self.encoding.lines[last].after, None, self.counted, self.taken)
        return [
            self._scaling(Ref(name=self._added(last, loss)), words.quotient(f.wanted), self.program.body[last], "behind the loop of")
            for loss, f in behind.items()
        ]

    def _added(self, last: int, loss: str) -> str:
        """The buffer to which a loop adds the gradients of a loss. Raises _NoneError where there are several, or it has others', too."""
        after = self.encoding.lines[last].after
        added = {s.targets[0].name for s in statements((self.program.body[last],)) if isinstance(s, Assign) and s.accumulate}
        buffers = [n for n in sorted(added) if isinstance(v := after.get(n), Tensor) and loss in _losses(self.world, v)]
        if len(buffers) != 1 or (isinstance(held := after[buffers[0]], Tensor) and _losses(self.world, held) != {loss}):
            raise _NoneError("what is lacking differs by device, or by loss, and no buffer behind the loop has what it concerns alone")
        return buffers[0]

    def _with_passes(self, body: tuple[Stmt, ...], factors: dict[str, _Factor], loop: str | None) -> tuple[Stmt, ...]:
        """Statements in which passes are multiplied by what differs from micro-batch to micro-batch."""
        return tuple(self._with_pass(stmt, factors, loop) for stmt in body)

    def _with_pass(self, stmt: Stmt, factors: dict[str, _Factor], loop: str | None) -> Stmt:
        inner = stmt.var if isinstance(stmt, For) and stmt.domain == "microbatches" else loop
        words = Words(self.world, {}, loop, self.counted, self.taken)

        def one(expr: Expr) -> Expr:
            if not isinstance(expr, Call) or not (expr.op == "loss" or (expr.op == "backward" and len(expr.args) < 3)):
                return expr
            factor = factors.get(reduction(expr)[0])
            if factor is None:
                return expr
            by = words.quotient(factor.wanted)
            _, unit, summed = reduction(expr)
            self.counts |= (sums := not summed and by == words.counting(unit))
            options = (*(o for o in expr.options if o[0] != "mean"), ("sum", unit))
            changed = replace(expr, options=tuple(sorted(options))) if sums and self.as_sums else Call(op="scale", args=(expr, by))
            self._tell(stmt, "at", render_expression(expr), by, render_expression(changed) if changed.op != "scale" else None)
            return changed

        return with_expressions(stmt, lambda e: rewritten(e, one), lambda b: self._with_passes(b, factors, inner))

    def _scaling(self, ref: Ref, by: Expr, stmt: Stmt, where: str) -> Stmt:
        self._tell(stmt, where, render_expression(ref), by)
        return Assign(targets=(ref,), value=Call(op="scale", args=(ref, by)))

    def _tell(self, stmt: Stmt, where: str, what: str, by: Expr, becomes: str | None = None) -> None:
        line = stmt.place.line if stmt.place is not None else 0
        self.told.append(Edit(line=line, where=where, what=what, factor=render_expression(by), becomes=becomes))

    def _counting(self, stmt: Stmt) -> Stmt:
        """The loop over micro-batches, in which counts are added up."""
        if not isinstance(stmt, For) or stmt.domain != "microbatches":
            raise _NoneError("there is no loop over micro-batches in which to count")
        words = Words(self.world, {}, stmt.var)
        more = tuple(
            Assign(targets=(Ref(name=name),), value=words.counting(unit), accumulate=True) for name, (unit, _) in self.counted.items()
        )
        return replace(stmt, body=(*stmt.body, *more))


def _calls(body: tuple[Stmt, ...], of: Callable[[str], bool]) -> bool:
    """Whether statements, or those in them, perform some operation."""
    return any(of(call.op) for stmt in statements(body) for call in calls(stmt))


def _losses(world: World, value: Tensor) -> set[str]:
    try:
        return {one.loss for piece in value.pieces.values() for one in scaled(world, piece.body).values()}
    except ValueError:
        return set()


def _assign(name: str, value: Expr) -> Stmt:
    return Assign(targets=(Ref(name=name),), value=value)


def _summed(name: str, axes: Sequence[str]) -> Expr:
    return Call(op="all_reduce", args=(Ref(name=name),), axes=tuple(axes))
