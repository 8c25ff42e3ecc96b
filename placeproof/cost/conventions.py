"""The conventions behind a derivation's formulas, said in its output."""

from __future__ import annotations

from collections.abc import Iterator

from placeproof.core.symbols import symbol
from placeproof.cost.derive import Derivation
from placeproof.cost.step.host import TOLD
from placeproof.programs import For, render_expression, statements
from placeproof.semantics.lower.facts import Facts
from placeproof.semantics.scheduled import schedule_of


def conventions(d: Derivation) -> tuple[str, ...]:
    """What a reader must know to compare these figures with others."""
    return tuple(_conventions(d))


def _conventions(d: Derivation) -> Iterator[str]:
    yield "GB = 1e9 bytes, GiB = 2**30 bytes; papers that print 2P or 3P mean the limit N -> oo"
    ops = {m.collective for m in d.messages.messages}
    if ops & {"all_reduce", "reduce_scatter", "all_gather"}:
        yield "ring algorithms; bytes are those that one device sends"
    handed = [s.hops for s in statements(d.program.body) if isinstance(s, For) and s.hops is not None]
    if "send" in ops and handed:
        yield f"messages between stages: the mean over the axis, which hands each micro-batch on {render_expression(handed[0])} times"
    elif "send" in ops:
        yield "messages between stages: the mean over the axis, of whose n devices n-1 send; an interior stage sends n/(n-1) times as much"
    if d.memory["activations"].has(symbol("A")):
        yield "A counts the whole model's activations for one device's local batch, before any axis other than the batch divides it"
    if ops & {"broadcast", "reduce"}:
        yield "a broadcast or a reduce costs s, whatever the size of its group"
    if d.memory["host_asked"] != d.memory["host"]:
        yield TOLD
    if any(g.frozen for g in d.program.groups):
        yield "what is frozen has no gradient and no optimizer state; what a layer unpacks of weights of few bits to compute is not counted"
    yield from _about_units(d)
    yield from _about_blocks(d)
    if any(g.experts for g in d.program.groups):
        yield "what tokens send to experts, and get back, is not counted until a model is given"
    if any(a.splits.tokens for a in d.program.axes):
        yield "what attention exchanges of keys and values is not counted until a model is given"
    if any(isinstance(s, For) and s.in_flight is not None for s in statements(d.program.body)):
        yield "the first stage, which has the most micro-batches in flight; stages are taken as equal in size"
    if d.strategy is not None and any(a.splits.stages for a in d.strategy.axes):
        schedule = schedule_of(d.strategy)
        for need in schedule.needs:
            yield f"`{schedule.name}` needs {need.rule.text}, of p devices and m micro-batches: {need.because}"
    for text in d.program.approximates:
        yield f"an approximation, not the same step: {text}"


def _about_units(d: Derivation) -> Iterator[str]:
    strategy = d.strategy
    if strategy is not None and Facts(strategy).gather:
        yield "one unit's gathered parameters are alive at a time, unless kept or prefetched; units are equal where two are alive"
    if strategy is not None and strategy.schedule.bucket != "unit" and Facts(strategy).early:
        yield "gradients are reduced as they are produced and take no room before; producing a whole unit's first would add U*b_g"


#: How what is no matrix is updated, in words, by what its group says.
_APART = {"elementwise": "element by element", "tensor_norm": "by norms of its tensors"}


def _about_blocks(d: Derivation) -> Iterator[str]:
    hidden = [a for a in d.program.axes if a.splits.matrices]
    alone = next((_APART[g.update] for g in d.program.groups if g.update is not None), "")
    if dict(d.program.reference).get("optimizer") == "orthogonal":
        yield "Muon keeps a momentum and no variance: `--precision mixed-muon`; what is updated element by element is taken to be as wide"
        yield "buffers of directions (Newton-Schulz iterations), but for a matrix and its direction, are not counted"
        yield "the arithmetic of directions is not counted until a model is given"
        if any(c.op == "all_to_all" and c.option("order") for c in d.program.calls):
            yield "owners of whole matrices are taken to have equal parts of each unit"
    if dict(d.program.reference).get("optimizer") == "factored":
        yield (
            "Adafactor keeps b_master bytes of each element, and of a matrix b_nu bytes of each row and column, which every device has that"
            " has a part of it; what is no matrix has a second moment of its own. A first moment would add to b_master"
        )
        yield "of each tensor of which a device has a part two norms are reduced, of parameters and of the update; numbers take no room"
    if dict(d.program.reference).get("optimizer") == "preconditioned":
        yield (
            "Shampoo keeps b_omega bytes of each element, with the moments of the update that it is grafted onto, and b_pre bytes of each"
            " element of preconditioners, sigma for each of its own on average: 2 of a matrix in square blocks, and of a gain or a bias the"
            " length of its blocks"
        )
        yield "what preconditioners and their inverse roots compute is not counted until a model is given"
    if alone and not d.amounts.groups:
        yield f"all of P is counted as matrices; `--groups` counts as P_norm what is none, and is updated {alone}"
    if not hidden:
        return
    if not d.amounts.groups and not alone:
        yield "norms and biases, which tensor parallelism copies, are counted as 0 of P; `--groups` counts them as P_norm"
    yield "the collectives of embedding and output layer are not counted until a model is given"
    strategy = d.strategy
    if strategy is not None and Facts(strategy).sequence_parallel:
        yield "activations stay split by the sequence, so that backward gathers each block's input again: 5 passes a block, not 4"
