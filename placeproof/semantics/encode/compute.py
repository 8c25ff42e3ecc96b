"""What one device computes, as terms.

A computation that reads what the reference reads gives what the reference gives; that is how the model's layers, of which
nothing is known, are followed through loops. One that reads anything else gives numbers of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from placeproof.prove.terms import (
    ONE,
    App,
    Fn,
    Index,
    Mono,
    Poly,
    Var,
    app,
    by_cases,
    choose,
    product,
    same,
    substitute,
    substitute_index,
    total,
)
from placeproof.semantics.encode.context import CONSISTENCY, Context
from placeproof.semantics.encode.values import Piece, Saved, Stream, Tensor
from placeproof.semantics.encode.world import CHANNEL, CHANNEL_AT, E_BLOCK, E_ENTRY, E_SLICE, NORM, TOKEN_AT, World


def reads_parameters(ctx: Context, w: Tensor, what: str, *, gathered: bool = False) -> bool:
    """Whether a computation reads the reference's parameters; recorded as a claim of state consistency.

    ``gathered``: a whole pass, which brings together the parts that the axes of the computation hold.
    """
    fine = all(_sends_tokens(ctx, group, piece, w, gathered=gathered) for group, piece in w.pieces.items())
    for group, piece in w.pieces.items():
        for at in _parts_read(ctx, group, piece, w, gathered=gathered):
            name = f"{what} reads the parameters of this step" + ("" if len(w.pieces) == 1 and group == "all" else f" ({group})")
            ctx.require(name, CONSISTENCY, piece.body, ctx.world.theta(group), at)
            fine = fine and substitute(ctx.here(piece.body), at) == ctx.world.theta(group)
    return fine


def _parts_read(ctx: Context, group: str, piece: Piece, w: Tensor, *, gathered: bool) -> list[dict[str, Index]]:
    """Which elements a device reads: those of its stage, and of its slices where the slices are computed apart."""
    world = ctx.world
    apart = set() if world.stages is None else {world.stages}
    for factor, _ in piece.held:
        axis = world.program.axis(factor)
        assert axis is not None
        if axis.splits.compute and (gathered or w.group is not None):
            apart.add(factor)
        if world.is_expert_axis(group, axis.name):
            apart.add(factor)
    return ctx.owner_of(group, [h for h in piece.held if h[0] in apart])


def _sends_tokens(ctx: Context, group: str, piece: Piece, w: Tensor, *, gathered: bool) -> bool:
    """Whether a computation that reads a group can send tokens to its experts: all devices among which they lie take part, and in a
    layer each one has exactly its own."""
    world = ctx.world
    if group not in world.expert_groups:
        return True
    along = [(f, v) for f, v in world.here.items() if isinstance(v, Var) and _is_expert_factor(world, group, f)]
    names = {v.name for _, v in along}
    if any(names & (left.free | right.free) for left, right, _ in ctx.conditions):
        return False
    held = {f for f, _ in piece.held}
    return gathered or (w.group in (None, group) and all(f in held for f, _ in along))


def _is_expert_factor(world: World, group: str, factor: str) -> bool:
    axis = world.program.axis(factor)
    return axis is not None and world.is_expert_axis(group, axis.name)


def sample_read(ctx: Context, x: Stream, name: str, at: tuple[Index, ...]) -> tuple[Index, ...] | None:
    """Of which sample a stream is the reference's value called ``name``, on every token that the device holds; None if it
    is something else. ``at``: the arguments between the sample and the token."""
    body, at = ctx.here(x.body), tuple(substitute_index(a, ctx.path) for a in at)
    if x.held is not None:
        here = ctx.world.here[x.held]
        body = substitute(body, {here.name: ctx.world.token_owner(x.held)} if isinstance(here, Var) else {})
    single = body.alone
    if single is None or single[1] != 1 or single[0].guards or len(single[0].factors) != 1:
        return None
    atom, exponent = single[0].factors[0]
    if not isinstance(atom, App) or atom.name != name or exponent != 1:
        return None
    want = [a.key for a in (*at, TOKEN_AT, CHANNEL_AT)]
    sample = atom.args[: -len(want)]
    if [a.key for a in atom.args[-len(want) :]] != want:
        return None
    return tuple(s for s in sample if isinstance(s, Var | Fn))


def held_stream(ctx: Context, body: Poly, held: str | None) -> Stream:
    """A stream whose tokens are split over an axis factor: garbage where the device does not hold the token."""
    if held is None:
        return Stream(body=body)
    where = same(ctx.world.here[held], ctx.world.token_owner(held))
    return Stream(body=choose(where, body, ctx.unknown(TOKEN_AT, CHANNEL_AT)), held=held)


# Forward.


def forward(ctx: Context, w: Tensor, x: Stream) -> tuple[Stream, Saved]:
    """The output of a part of the model, and what backward needs of it."""
    fine = reads_parameters(ctx, w, "forward")
    world, region = ctx.world, w.region
    if w.group is None:
        sample = sample_read(ctx, x, "x", (world.start(region.domain, region.index),))
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
        body = _slices(ctx, w, app(world.slice_output(w.group), *sample, *at)) if fine and sample else None
    held = _tokens_of(ctx, w, x)
    out = held_stream(ctx, body, held) if body is not None else ctx.unknown_stream(held)
    return out, Saved(group=w.group, region=region, sample=sample if fine else None, held=x.held, output=out)


def _token_by_token(ctx: Context, w: Tensor) -> bool:
    """Whether a computation needs no other tokens than those that it makes: a norm, and experts that are whole.

    Experts that are split over the axis that splits the tokens would each see a part of their tokens.
    """
    if w.group is None or w.group == NORM:
        return True
    return w.group in ctx.world.expert_groups and all(f != ctx.world.hidden for f, _ in w.pieces[w.group].held)


def _tokens_of(ctx: Context, w: Tensor, x: Stream) -> str | None:
    """Along which axis factor the tokens of a computation's result lie in parts."""
    return x.held if _token_by_token(ctx, w) else None


def _slices(ctx: Context, w: Tensor, body: Poly) -> Poly:
    """The sum over the slices whose weights the device holds, and of experts those to which it sends tokens: what it adds to the output."""
    (piece,) = w.pieces.values()
    return total([E_SLICE], product(_slices_held(ctx, w, piece), body))


def _slices_held(ctx: Context, w: Tensor, piece: Piece) -> Poly:
    held = [h for h in piece.held if h[0] == ctx.world.hidden]
    assert w.group is not None
    return substitute(ctx.where(w.group, held), {E_BLOCK.name: w.region.index})


# Backward: linear in the gradient of the output.


def coefficient(ctx: Context, dx: Stream, sample: tuple[Index, ...], at: Index) -> Poly | None:
    """The factor c, free of token and channel, for which ``dx`` is c times the reference's gradient of these samples."""
    body = ctx.here(dx.body)
    if dx.held is not None:
        here = ctx.world.here[dx.held]
        body = substitute(body, {here.name: ctx.world.token_owner(dx.held)} if isinstance(here, Var) else {})
    wanted = substitute(ctx.world.dx(sample, at), ctx.path)
    terms: dict[Mono, Fraction] = {}
    for mono, factor in body.terms:
        where: dict[str, Index] = {left.name: right for left, right in mono.guards if isinstance(left, Var)}
        ((one, _),) = substitute(wanted, where).terms
        ((atom, _),) = one.factors
        if dict(mono.factors).get(atom) != 1:
            return None
        rest = Mono({a: n for a, n in mono.factors if a != atom}, mono.guards)
        if rest.free & {TOKEN_AT.name, CHANNEL_AT.name}:
            return None
        terms[rest] = terms.get(rest, Fraction(0)) + factor
    return Poly(terms)


def gradient_of(ctx: Context, w: Tensor, saved: Saved, dx: Stream, whole: Stream | None = None) -> Tensor:
    """The parameters' gradient, over the elements that the device has of the region."""
    fine = reads_parameters(ctx, w, "backward") and saved.sample is not None and _same_part(w, saved)
    if not fine:
        return ctx.unknown_tensor(w)
    assert saved.sample is not None
    if w.group is None:
        at = ctx.world.end(w.region.domain, w.region.index)
        factor = coefficient(ctx, dx, saved.sample, at)
        if factor is None:
            return ctx.unknown_tensor(w)
        bodies = {g: product(factor, app(f"g.{g}", *saved.sample, *ctx.world.element(g))) for g in w.pieces}
        return _gradients(ctx, w, {g: _of_all_senders(ctx.world, g, body) for g, body in bodies.items()})
    jacobian = _norm_jacobian if w.group == NORM else _expert_jacobian if w.group in ctx.world.expert_groups else _matrix_jacobian
    held = jacobian(ctx, w, saved, dx, whole)
    return ctx.unknown_tensor(w) if held is None else _gradients(ctx, w, {w.group: _of_all_senders(ctx.world, w.group, held)})


def _same_part(w: Tensor, saved: Saved) -> bool:
    return w.region == saved.region and w.group == saved.group


def _gradients(ctx: Context, w: Tensor, bodies: Mapping[str, Poly]) -> Tensor:
    pieces = {g: Piece(body=ctx.owned(g, body, w.pieces[g].held), held=w.pieces[g].held) for g, body in bodies.items()}
    return Tensor(pieces=pieces, region=w.region, group=w.group)


def _tokens_held(ctx: Context, held: str | None) -> Poly:
    return product() if held is None else same(ctx.world.here[held], ctx.world.token_owner(held))


def _over_tokens(jacobian: Poly, dz: Poly, tokens: Poly = ONE) -> Poly:
    """An element's gradient: a sum over (some) tokens and all channels, each token by itself."""
    return total([TOKEN_AT, CHANNEL_AT], product(tokens, jacobian, dz))


def norm_gradient(sample: tuple[Index, ...], block: Index, dy: Poly, tokens: Poly) -> Poly:
    """The gradient of a norm's element."""
    return _over_tokens(app("jacobian norm", *sample, block, E_ENTRY, TOKEN_AT, CHANNEL_AT), dy, tokens)


def _norm_jacobian(ctx: Context, w: Tensor, saved: Saved, dy: Stream, whole: Stream | None) -> Poly | None:
    assert saved.sample is not None
    if dy.held != saved.held:
        return None
    return norm_gradient(saved.sample, w.region.index, ctx.here(dy.body), _tokens_held(ctx, saved.held))


def _expert_jacobian(ctx: Context, w: Tensor, saved: Saved, dz: Stream, whole: Stream | None) -> Poly | None:
    """Of the device's own tokens, as far as it has them."""
    assert saved.sample is not None
    assert w.group is not None
    if dz.held is not None and not (_token_by_token(ctx, w) and whole is None and dz.held == saved.held):
        return None
    if dz.held is None and not _all_tokens(ctx, w, saved, whole):
        return None
    return expert_gradient(w.group, saved.sample, w.region.index, ctx.here(dz.body), _tokens_held(ctx, dz.held))


def _all_tokens(ctx: Context, w: Tensor, saved: Saved, whole: Stream | None) -> bool:
    """Whether backward has all tokens of a block's input: kept by forward, or brought together again."""
    if whole is None:
        return saved.held is None
    return whole.held is None and sample_read(ctx, whole, "y", (w.region.index,)) == saved.sample


def expert_gradient(group: str, sample: tuple[Index, ...], block: Index, dz: Poly, tokens: Poly) -> Poly:
    """The gradient of an element of a block's experts."""
    return _over_tokens(app(f"jacobian {group}", *sample, block, E_SLICE, E_ENTRY, TOKEN_AT, CHANNEL_AT), dz, tokens)


def _matrix_jacobian(ctx: Context, w: Tensor, saved: Saved, dz: Stream, whole: Stream | None) -> Poly | None:
    assert saved.sample is not None
    if dz.held is not None:
        return None
    if whole is not None and (whole.held is not None or sample_read(ctx, whole, "y", (w.region.index,)) != saved.sample):
        return None
    block = w.region.index
    return matrix_gradient(saved.sample, block, ctx.here(dz.body))


def matrix_gradient(sample: tuple[Index, ...], block: Index, dz: Poly) -> Poly:
    """The gradient of an element of a block's matrices: it depends on the slice's own weights alone."""
    return _over_tokens(app("jacobian matrix", *sample, block, E_SLICE, E_ENTRY, TOKEN_AT, CHANNEL_AT), dz)


def input_gradient(ctx: Context, w: Tensor, saved: Saved, dx: Stream) -> Stream:
    """The gradient of a part's input."""
    held = _tokens_of(ctx, w, dx)
    if not (reads_parameters(ctx, w, "backward") and saved.sample is not None and _same_part(w, saved)):
        return ctx.unknown_stream(held)
    world, region = ctx.world, w.region
    assert saved.sample is not None
    if w.group is None:
        factor = coefficient(ctx, dx, saved.sample, world.end(region.domain, region.index))
        if factor is None:
            return ctx.unknown_stream(held)
        return held_stream(ctx, product(factor, world.dx(saved.sample, world.start(region.domain, region.index))), held)
    if w.group == NORM:
        return Stream(body=norm_input(saved.sample, region.index, ctx.here(dx.body)), held=held)
    if dx.held is not None and held is None:
        return ctx.unknown_stream(held)
    if w.group in world.expert_groups:
        return Stream(body=_slices(ctx, w, expert_input(w.group, saved.sample, region.index, ctx.here(dx.body))), held=held)
    return Stream(body=_slices(ctx, w, matrix_input(saved.sample, region.index, ctx.here(dx.body))))


def norm_input(sample: tuple[Index, ...], block: Index, dy: Poly) -> Poly:
    """The gradient of a norm's input."""
    return _each_token("jacobian norm input", (*sample, block), dy)


def expert_input(group: str, sample: tuple[Index, ...], block: Index, dz: Poly) -> Poly:
    """One slice of an expert's part of the gradient of a block's input."""
    return _each_token(f"jacobian {group} input", (*sample, block, E_SLICE), dz)


def _each_token(jacobian: str, at: tuple[Index, ...], dz: Poly) -> Poly:
    """The gradient of an input, token by token: linear in that of the token's output, over all of its channels."""
    other = Var("other.channel", CHANNEL)
    return total([other], product(app(jacobian, *at, TOKEN_AT, other, CHANNEL_AT), substitute(dz, {CHANNEL_AT.name: other})))


def matrix_input(sample: tuple[Index, ...], block: Index, dz: Poly) -> Poly:
    """One slice's part of the gradient of a block's input: linear in the gradient of the output, over all tokens."""
    token, channel = Var("other.token", TOKEN_AT.sort), Var("other.channel", CHANNEL)
    moved = substitute(dz, {TOKEN_AT.name: token, CHANNEL_AT.name: channel})
    return total(
        [token, channel], product(app("jacobian matrix input", *sample, block, E_SLICE, token, channel, TOKEN_AT, CHANNEL_AT), moved)
    )


def whole_pass(
    ctx: Context, w: Tensor, sample: tuple[Index, ...], like: Mapping[str, frozenset[tuple[str, str]]], statistic: Poly | None
) -> Tensor:
    """The gradient of a whole forward and backward pass over the device's samples, the axes that split the computation
    exchanging by themselves what it needs. ``like``: along which factors each group's gradient lies in parts. ``statistic``: the one of the
    batch that its layers use."""
    if not reads_parameters(ctx, w, "a pass", gathered=True):
        return ctx.unknown_tensor(w)
    bodies = {g: pass_gradient(ctx.world, g, sample, ctx.world.here, statistic) for g in w.pieces}
    pieces = {g: Piece(body=ctx.owned(g, body, like[g]), held=like[g]) for g, body in bodies.items()}
    return Tensor(pieces=pieces, region=w.region, group=w.group)


def pass_gradient(world: World, group: str, sample: tuple[Index, ...], at: Mapping[str, Index], statistic: Poly | None = None) -> Poly:
    """What the device at some coordinates finds for an element of a group: a part of the reference's gradient where the group's
    computation is shared out."""
    declared = next(g for g in world.program.groups if g.name == group)
    element: tuple[Index, ...] = world.element(group)
    more = () if statistic is None else (statistic,)
    if declared.tied is not None:
        stage = at[declared.tied]
        ends = ((world.rank(declared.tied, 0), "first"), (world.rank(declared.tied, -1), "last"))
        parts = [product(same(stage, end), app(f"g.{group}.{name}", *sample, *element, *more)) for end, name in ends]
        return parts[0] + parts[1]
    extra = () if declared.partial is None else tuple(at[f] for f in world.factors((declared.partial,)))
    return _of_all_senders(world, group, app(f"g.{group}", *sample, *extra, *element, *more))


def _of_all_senders(world: World, group: str, body: Poly) -> Poly:
    """What the owner of an expert finds for it: the sum over the devices whose tokens were sent to it, each with samples of its own."""
    declared = next(g for g in world.program.groups if g.name == group)
    if declared.experts is None:
        return body
    sent = [f for f in world.factors((declared.experts,)) if f in world.sample_factors]
    others = [Var(f"from.{f}", world.sorts[f]) for f in sent]
    here = {v.name: o for v, o in zip((world.here[f] for f in sent), others, strict=True) if isinstance(v, Var)}
    return total(others, substitute(body, here))


# Elementwise functions.


def elementwise(name: str, *polys: Poly) -> Poly:
    """A function of real numbers, applied element by element."""
    return by_cases(lambda *args: app(name, *args), *polys)
