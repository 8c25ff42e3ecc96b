"""What one device computes, as terms.

A computation that reads what the reference reads gives what the reference gives; that is how the model's layers, of which
nothing is known, are followed through loops. One that reads anything else gives numbers of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

from placeproof.core.strategy import NORM
from placeproof.programs.ir import Term
from placeproof.prove.terms import (
    ONE,
    ZERO,
    App,
    Fn,
    Index,
    Mono,
    Poly,
    Var,
    app,
    by_cases,
    greatest,
    product,
    same,
    substitute,
    substitute_index,
    total,
)
from placeproof.prove.terms.addition import of_atom
from placeproof.prove.terms.algebra import fresh
from placeproof.prove.terms.nodes import Atom, Greatest, Sum, Sym
from placeproof.semantics.encode.causes import split
from placeproof.semantics.encode.context import CONSISTENCY, Context
from placeproof.semantics.encode.values import Piece, Saved, Stream, Tensor
from placeproof.semantics.encode.world import CHANNEL, CHANNEL_AT, E_BLOCK, E_ENTRY, E_SLICE, TOKEN_AT, World


def reads_parameters(ctx: Context, w: Tensor, what: str, *, gathered: bool = False) -> bool:
    """Whether a computation reads the reference's parameters; recorded as a claim of state consistency.

    ``gathered``: a whole pass, which brings together the parts that the axes of the computation hold.
    """
    fine = all(_sends_tokens(ctx, group, piece, w, gathered=gathered) for group, piece in w.pieces.items())
    fine = fine and (gathered or _called_together(ctx, w))
    fine = fine and ((w.group is not None and not gathered) or set(w.pieces) == set(ctx.world.groups))  # with a group missing it is garbage
    for group, piece in w.pieces.items():
        for at in _parts_read(ctx, group, piece, w, gathered=gathered):
            name = f"{what} reads the parameters of this step" + ("" if len(w.pieces) == 1 and group == "all" else f" ({group})")
            causes = split(ctx.world, _read_whole(ctx, group, piece, w, gathered=gathered), ctx.call)
            ctx.require(name, CONSISTENCY, piece.body, ctx.world.theta(group), at, causes)
            fine = fine and substitute(ctx.here(piece.body), at) == ctx.world.theta(group)
    return fine


def _parts_read(ctx: Context, group: str, piece: Piece, w: Tensor, *, gathered: bool) -> list[dict[str, Index]]:
    """Which elements a device reads: those of its stage, and of its slices where the slices are computed apart."""
    whole = _read_whole(ctx, group, piece, w, gathered=gathered)
    return ctx.owner_of(group, [h for h in piece.held if h[0] not in whole])


def _read_whole(ctx: Context, group: str, piece: Piece, w: Tensor, *, gathered: bool) -> list[str]:
    """The axis factors along which a device has a part, and computes with all of them."""
    world = ctx.world

    def apart(factor: str) -> bool:
        if gathered or w.group is not None or factor in world.called:
            return world.computes_part(group, factor)
        return factor == world.stages or world.is_expert_axis(group, world.axis_of(factor).name)

    return [f for f, _ in sorted(piece.held) if not apart(f)]


def _sends_tokens(ctx: Context, group: str, piece: Piece, w: Tensor, *, gathered: bool) -> bool:
    """Whether a computation that reads a group can send tokens to its experts: all devices among which they lie take part, and in a
    layer each one has exactly its own."""
    world = ctx.world
    if group not in world.expert_groups:
        return True
    experts = [f for a in world.program.axes if world.is_expert_axis(group, a.name) for f in a.factors]
    along = {f: v.name for f, v in world.here.items() if isinstance(v, Var) and f in experts}
    names = set(along.values())
    if any(names & (left.free | right.free) for left, right, _ in ctx.conditions):
        return False
    held = {f for f, _ in piece.held}
    return gathered or (w.group in (None, group) and held.issuperset(along))


def _called_together(ctx: Context, w: Tensor) -> bool:
    """Whether all devices of the axes over which blocks exchange take part in a call, each with exactly the part it computes with."""
    world = ctx.world
    names = {v.name for f in world.called if isinstance(v := world.here[f], Var)}
    if any(names & (left.free | right.free) for left, right, _ in ctx.conditions):
        return False
    own = {g: {(f, "blocked") for f in world.called if world.calls_part(g, f)} for g in w.pieces}
    given = {g: {h for h in piece.held if h[0] in world.called} for g, piece in w.pieces.items()}
    return not world.called or (w.group is None and own == given)


def sample_read(ctx: Context, x: Stream, name: str, at: tuple[Index, ...]) -> tuple[Index, ...] | None:
    """Of which sample a stream is the reference's value called ``name``, on every token that the device holds; None if it
    is something else. ``at``: the arguments between the sample and the token."""
    atom = application(on_holder(ctx, x), name)
    want = [substitute_index(a, ctx.path).key for a in (*at, TOKEN_AT, CHANNEL_AT)]
    if atom is None or [a.key for a in atom.args[-len(want) :]] != want:
        return None
    sample = atom.args[: -len(want)]
    return tuple(s for s in sample if isinstance(s, Var | Fn))


def application(body: Poly, name: str) -> App | None:
    """The application of a function that a term is, and nothing else."""
    single = body.alone
    if single is None or single[1] != 1 or single[0].guards or len(single[0].factors) != 1:
        return None
    atom, exponent = single[0].factors[0]
    return atom if isinstance(atom, App) and atom.name == name and exponent == 1 else None


def on_holder(ctx: Context, x: Stream) -> Poly:
    """A stream on the devices that are on the path and that hold the token."""
    coordinate = ctx.world.here[x.held] if x.held is not None else None
    at = {coordinate.name: ctx.world.token_owner(x.held)} if isinstance(coordinate, Var) and x.held is not None else {}
    return substitute(ctx.here(x.body), at)


# Forward.


def forward(ctx: Context, w: Tensor, x: Stream) -> tuple[Stream, Saved]:
    """The output of a part of the model, and what backward needs of it."""
    fine = reads_parameters(ctx, w, "forward")
    world, region = ctx.world, w.region
    if w.group is None:  # tokens may attend to all others
        sample = sample_read(ctx, x, "x", (world.start(region.domain, region.index),)) if x.held is None else None
        body = world.x(sample, world.end(region.domain, region.index)) if fine and sample else None
    elif region.domain != "blocks":
        sample, body = None, None
    elif w.group == NORM:
        sample = sample_read(ctx, x, "x", (world.start(region.domain, region.index),))
        body = app("y", *sample, region.index, TOKEN_AT, CHANNEL_AT) if fine and sample else None
    else:
        fits = x.held is None or _token_by_token(ctx, w)
        sample = sample_read(ctx, x, "y", (region.index,)) if fits else None
        at = (region.index, E_SLICE, TOKEN_AT, CHANNEL_AT)
        body = _slices(ctx, w, app(f"q.{w.group}", *sample, *at)) if fine and sample else None
    held = x.held if _token_by_token(ctx, w) else None
    out = ctx.held_stream(body, held) if body is not None else ctx.unknown_stream(held)
    return out, Saved(group=w.group, region=region, sample=sample if fine else None, held=x.held, output=out)


def _token_by_token(ctx: Context, w: Tensor) -> bool:
    """Whether a computation needs no other tokens than those that it makes: a norm, and experts each of which is whole.

    A whole block lets tokens attend to others. Experts that are split over the axis that splits the tokens would each see a part of theirs.
    """
    if w.group == NORM:
        return True
    if w.group not in ctx.world.expert_groups:
        return False
    return _hidden_experts(ctx, w.group) or all(f != ctx.world.hidden for f, _ in w.pieces[w.group].held)


def _hidden_experts(ctx: Context, group: str) -> bool:
    """Whether devices of the axis that splits the hidden dimension have experts of their own, to which the others send tokens."""
    hidden = ctx.world.hidden
    return hidden is not None and ctx.world.is_expert_axis(group, hidden)


def _slices(ctx: Context, w: Tensor, body: Poly) -> Poly:
    """The sum over the slices whose weights the device holds, and of experts those to which it sends tokens: what it adds to the output."""
    ((group, piece),) = w.pieces.items()
    sliced = [h for h in piece.held if h[0] == ctx.world.hidden and not _hidden_experts(ctx, group)]
    held = substitute(ctx.where(group, sliced), {E_BLOCK.name: w.region.index})
    return total([E_SLICE], product(held, body))


# Backward: linear in the gradient of the output.


def coefficient(ctx: Context, dx: Stream, sample: tuple[Index, ...], at: Index) -> Poly | None:
    """The factor c, free of token and channel, for which ``dx`` is c times the reference's gradient of these samples."""
    return linear(ctx, dx, sample, at, lambda of: None if of else ONE)


def linear(ctx: Context, dx: Stream, sample: tuple[Index, ...], at: Index, make: Callable[[str], Poly | None]) -> Poly | None:
    """A stream with each of the reference's gradients of these samples, of whatever loss, replaced: by what ``make`` makes of the loss.

    None where it is no sum of such gradients, each times a factor free of token and channel.
    """
    body, made = on_holder(ctx, dx), list[Poly]()
    for mono, factor in body.terms:
        where: dict[str, Index] = {left.name: right for left, right in mono.guards if isinstance(left, Var)}
        names = {a.name.removeprefix("dx") for a, n in mono.factors if isinstance(a, App) and n == 1 and a.name.startswith("dx")}
        of = next(iter(names)) if len(names) == 1 else ""
        ((one, _),) = substitute(substitute(ctx.world.dx(sample, at, of), ctx.path), where).terms
        ((atom, _),) = one.factors
        instead = make(of)
        if dict(mono.factors).get(atom) != 1 or instead is None:
            return None
        rest = Mono({a: n for a, n in mono.factors if a != atom}, mono.guards)
        if rest.free & {TOKEN_AT.name, CHANNEL_AT.name}:
            return None
        made.append(product(Poly({rest: factor}), instead))
    return sum(made, ZERO)


def gradient_of(ctx: Context, w: Tensor, saved: Saved, dx: Stream, whole: Stream | None = None) -> Tensor:
    """The parameters' gradient, over the elements that the device has of the region."""
    world = ctx.world
    if (sample := _sample_of(ctx, w, saved, dx)) is None:
        return ctx.unknown_tensor(w)
    if w.group is None:
        end = world.end(w.region.domain, w.region.index)
        made = {g: linear(ctx, dx, sample, end, partial(_found, world, g, sample)) for g in w.pieces}
        bodies = {g: body for g, body in made.items() if body is not None}
        if len(bodies) < len(made) or whole is not None:
            return ctx.unknown_tensor(w)
    elif _tokens_fit(ctx, w, saved, dx, whole):
        tokens = ONE if dx.held is None else same(world.here[dx.held], world.token_owner(dx.held))
        bodies = {w.group: weight_gradient(world, w.group, sample, w.region.index, ctx.here(dx.body), tokens)}
    else:
        return ctx.unknown_tensor(w)
    held = {g: w.pieces[g].held for g in bodies}
    bodies = {g: _of_all_senders(world, g, body, dx.held) for g, body in bodies.items()}
    pieces = {g: Piece(body=ctx.owned(g, body, held[g]), held=held[g]) for g, body in bodies.items()}
    return Tensor(pieces=pieces, region=w.region, group=w.group)


def _found(world: World, group: str, sample: tuple[Index, ...], of: str) -> Poly:
    """What a call finds for an element of a group: its part where the gradient is shared out."""
    portion = (world.here[f] for f in world.partial(group))
    return app(f"g{of}.{group}", *sample, *portion, *world.element(group))


def _sample_of(ctx: Context, w: Tensor, saved: Saved, dx: Stream) -> tuple[Index, ...] | None:
    """Of which sample a backward is, where it computes with the reference's parameters of what forward computed with; that of a whole block
    reads the gradients of all tokens."""
    fine = reads_parameters(ctx, w, "backward") and (w.region, w.group) == (saved.region, saved.group)
    return saved.sample if fine and (w.group is not None or dx.held is None) else None


def _tokens_fit(ctx: Context, w: Tensor, saved: Saved, dz: Stream, whole: Stream | None) -> bool:
    """Whether backward has a block's input for the tokens of the gradient: for all of them, kept by forward or brought together again,
    or, where it works token by token, for the device's own."""
    if w.group == NORM:
        return dz.held == saved.held
    if dz.held is not None:
        return _token_by_token(ctx, w) and whole is None and dz.held == saved.held
    if whole is None:
        return saved.held is None
    return whole.held is None and sample_read(ctx, whole, "y", (w.region.index,)) == saved.sample


def weight_gradient(world: World, group: str, sample: tuple[Index, ...], block: Index, dz: Poly, tokens: Poly = ONE) -> Poly:
    """The gradient of an element of a block computed group by group: a sum over (some) tokens and all channels, each token by itself.
    That of a matrix, or an expert, depends on the slice's own weights alone."""
    element = (E_ENTRY,) if group == NORM else (E_SLICE, E_ENTRY)
    jacobian = app(f"jacobian {group}", *sample, block, *element, TOKEN_AT, CHANNEL_AT)
    return total([TOKEN_AT, CHANNEL_AT], product(tokens, jacobian, dz))


def input_gradient(ctx: Context, w: Tensor, saved: Saved, dx: Stream) -> Stream:
    """The gradient of a part's input."""
    world, region, held = ctx.world, w.region, dx.held if _token_by_token(ctx, w) else None
    if (sample := _sample_of(ctx, w, saved, dx)) is None:
        return ctx.unknown_stream(held)
    if w.group is None:
        start, end = (at(region.domain, region.index) for at in (world.start, world.end))
        body = linear(ctx, dx, sample, end, lambda of: world.dx(sample, start, of))
        return ctx.unknown_stream(held) if body is None else Stream(body=body)
    if dx.held is not None and held is None:
        return ctx.unknown_stream(held)
    body = input_part(world, w.group, sample, region.index, ctx.here(dx.body))
    return Stream(body=body if w.group == NORM else _slices(ctx, w, body), held=held)


def input_part(world: World, group: str, sample: tuple[Index, ...], block: Index, dz: Poly) -> Poly:
    """The gradient of a norm's input, or one slice's part of the gradient of a block's input: linear in the gradient of the output, over
    all channels; of matrices over all tokens, else token by token."""
    token, channel = Var("other.token", TOKEN_AT.sort), Var("other.channel", CHANNEL)
    mixes = group != NORM and group not in world.expert_groups  # tokens with one another, as attention does
    others, at = ([token, channel], (token, channel, TOKEN_AT)) if mixes else ([channel], (TOKEN_AT, channel))
    of = (*sample, block) if group == NORM else (*sample, block, E_SLICE)
    jacobian = app(f"jacobian {group} input", *of, *at, CHANNEL_AT)
    moved = substitute(dz, {TOKEN_AT.name: token, CHANNEL_AT.name: channel} if mixes else {CHANNEL_AT.name: channel})
    return total(others, product(jacobian, moved))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """Of which loss a pass is, over which unit, and whether it is a sum of its losses; otherwise it is their mean."""

    loss: str = Term.MAIN
    unit: str = "tokens"
    summed: bool = False

    @property
    def of(self) -> str:
        """What the name of its gradients ends with."""
        return "" if (self.loss, self.unit) == (Term.MAIN, "tokens") else f" of {self.loss} by {self.unit}"


def whole_pass(
    ctx: Context,
    w: Tensor,
    sample: tuple[Index, ...],
    like: Mapping[str, frozenset[tuple[str, str]]],
    statistic: Poly | None,
    reduced: Reduced | None = None,
) -> Tensor:
    """The gradient of a whole forward and backward pass over the device's samples, the axes that split the computation
    exchanging by themselves what it needs. ``like``: along which factors each group's gradient lies in parts. ``statistic``: the one of the
    batch that its layers use."""
    if not reads_parameters(ctx, w, "a pass", gathered=True):
        return ctx.unknown_tensor(w)
    bodies = {g: pass_gradient(ctx.world, g, sample, ctx.world.here, statistic, reduced) for g in w.pieces}
    pieces = {g: Piece(body=ctx.owned(g, body, like[g]), held=like[g]) for g, body in bodies.items()}
    return Tensor(pieces=pieces, region=w.region, group=w.group)


def pass_gradient(
    world: World,
    group: str,
    sample: tuple[Index, ...],
    at: Mapping[str, Index],
    statistic: Poly | None = None,
    reduced: Reduced | None = None,
) -> Poly:
    """What the device at some coordinates finds for an element of a group: a part of the reference's gradient where the group's
    computation is shared out."""
    of = reduced or Reduced()
    element: tuple[Index, ...] = world.element(group)
    more = () if statistic is None else (statistic,)
    extra = tuple(at[f] for f in world.partial(group))
    many = world.counted(of.unit, sample) if of.summed else ONE
    if (tied := world.tied(group)) is not None:
        stage = at[tied]
        ends = ((world.rank(tied, 0), "first"), (world.rank(tied, -1), "last"))
        parts = [product(same(stage, end), many, app(f"g{of.of}.{group}.{name}", *sample, *extra, *element, *more)) for end, name in ends]
        return parts[0] + parts[1]
    return _of_all_senders(world, group, product(many, app(f"g{of.of}.{group}", *sample, *extra, *element, *more)))


def _of_all_senders(world: World, group: str, body: Poly, held: str | None = None) -> Poly:
    """What the owner of an expert finds for it: the sum over the devices whose tokens were sent to it, each with samples of its own, or
    with its own tokens along the factor ``held``. What all devices have is sent once."""
    sent = [f for f in world.factors(world.group(group).experts) if f in (*world.sample_factors, held)]
    others = [Var(f"from.{f}", world.sorts[f]) for f in sent]
    owners = {v.name: o for v, o in zip((world.here[f] for f in sent), others, strict=True) if isinstance(v, Var)}
    return total(others, substitute(body, owners))


# Elementwise functions.


def not_finite(body: Poly) -> Poly:
    """Whether a number is not finite: a factor that is finite, and not zero, changes nothing of that."""
    return by_cases(lambda p: app("not finite", _without_scale(p)), body)


def _without_scale(body: Poly) -> Poly:
    """A term without what all of it is multiplied by: numbers, degrees, the factor of clipping."""
    terms = [(dict(m.factors), m.guards, c) for m, c in body.terms]
    least = {a: min(own.get(a, 0) for own, *_ in terms) for factors, *_ in terms for a in factors if _finite(a)}
    plain: dict[Mono, Fraction] = {}
    for own, guards, c in terms:
        plain[Mono({a: own.get(a, 0) - least.get(a, 0) for a in {**own, **least}}, guards)] = c
    _, first = Poly(plain).terms[0] if plain else (None, Fraction(1))
    return Poly({m: c / first for m, c in plain.items()})


def _finite(atom: Atom) -> bool:
    return (atom.name == "m" or atom.name.startswith("N")) if isinstance(atom, Sym) else isinstance(atom, App) and atom.name == "clip"


def largest(*polys: Poly) -> Poly:
    """The greatest of some numbers. Of flags, which are 0 or 1, that is one besides 0."""
    every: dict[Poly, None] = {}
    for one in polys:
        inner = application(one, "max")
        every |= dict.fromkeys(one_of for one_of in (inner.args if inner is not None else (one,)) if isinstance(one_of, Poly))
    if len(every) > 1 and all(p == ZERO or _is_flag(p) for p in every):
        every.pop(ZERO, None)
    return next(iter(every)) if len(every) == 1 else app("max", *sorted(every))


def raised(body: Poly) -> Poly:
    """Whether a number of flags is more than 0, where they are added up, or a mean: that is their greatest. Else the number itself."""
    flags_by_term = [_raised(mono) if c > 0 else None for mono, c in body.terms]
    flags = [flag for flag in flags_by_term if flag is not None]
    return largest(*flags) if flags and len(flags) == len(flags_by_term) else body


def _raised(mono: Mono) -> Poly | None:
    """The greatest of what a term adds up; None where it is no number of flags."""
    counted = [(a, n) for a, n in mono.factors if not (isinstance(a, Sym) and _finite(a))]
    if len(counted) != 1 or counted[0][1] != 1 or mono.guards:
        return None
    ((atom, _),) = counted
    if isinstance(atom, Sum):
        variables, names = fresh(atom.binders)
        inside = _raised(Mono(dict(atom.body.factors), frozenset()))
        guards = frozenset((substitute_index(a, names), substitute_index(b, names)) for a, b in atom.body.guards)
        return None if inside is None else greatest(variables, substitute(inside, names), guards)
    flag = of_atom(atom) if isinstance(atom, App | Greatest) else ZERO
    several = application(flag, "max")
    return flag if all(isinstance(p, Poly) and _is_flag(p) for p in (several.args if several is not None else (flag,))) else None


def _is_flag(body: Poly) -> bool:
    atom = body.alone[0].factors[0][0] if body.alone is not None and len(body.alone[0].factors) == 1 else None
    inside = atom.body if isinstance(atom, Greatest) else body
    return application(inside, "not finite") is not None


def elementwise(name: str, *polys: Poly) -> Poly:
    """A function of real numbers, applied element by element."""
    return by_cases(lambda *args: app(name, *args), *polys)
