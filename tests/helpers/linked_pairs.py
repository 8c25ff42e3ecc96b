"""Each model under each of some fifty strategies: the linked program derived again, and walked, beside what is derived for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from linked_walk import Costs, Model

import placeproof.schedules
from placeproof.core.diagnostics import InputError
from placeproof.cost.model.derivation import ModelDerivation, derive_linked
from placeproof.cost.model.recomputation import chosen
from placeproof.models import load
from placeproof.semantics.linked import Linked, link, read_linked, render_linked
from placeproof.strategies import parse_strategy

#: A strategy and, behind a bar, what backward computes again. Every part of the catalogue is in one of them.
STRATEGIES = (
    "ddp(2) * tp(2) * sp * pp(4) * accumulate",
    "zero1(4) * accumulate",
    "zero1(2, reduce=all_reduce, back=broadcast)",
    "zero2(2, bucket=unit) * tp(2) * accumulate",
    "zero2(4, reduce=all_reduce) * tp(2)",
    "fsdp(4, prefetch=true) * accumulate",
    "fsdp(2, root=keep) * accumulate",
    "fsdp(4, reshard_after_forward=false) * tp(2) * sp",
    "fsdp(4, reshard_after_forward=2)",
    "fsdp(2, bucket=unit)",
    "fsdp(2, unit=model)",
    "fsdp(2) * tp(2) * sp(norms=each) * accumulate",
    "zero3(2) * checkpoint * tp(2) * sp",
    "zero3(2, prefetch=true, unit=1000)",
    "hsdp(2, 2, prefetch=true)",
    "hsdp(2, 2) * tp(2) * sp * pp(2)",
    "zeropp(4, node=2) * accumulate",
    "zeropp(4, node=true)",
    "zero_offload(2) * checkpoint(checkpoints=host)",
    "zero_infinity(2) * accumulate",
    "tp(2) * zero_r * checkpoint",
    "tp(2) * zero_r(checkpoints=host) * checkpoint",
    "cp(2)",
    "zero2(2) * cp(4) * tp(2) * sp",
    "cp(4, attention=gather) * tp(2)",
    "zero1(2) * cp(2, attention=ulysses) * tp(2) * sp * pp(2)",
    "pp(4, schedule=gpipe) * tp(2) * sp | selective",
    "zero1(2) * tp(2) * sp * pp(4) | selective+norms",
    "tp(2) * sp | norms+mlp",
    "fsdp(2) * pp(2) | full",
    "ddp(2) * pp(2, schedule=interleaved, chunks=2)",
    "fsdp(2) * tp(2) * sp * pp(2, schedule=zb-h1)",
    "zero1(2) * tp(2) * sp * pp(4, schedule=zb-h2) | selective+mlp",
    "zero1(2) * tp(2) * sp * checkpoint * pp(2, schedule=zb-v)",
    "zero1(2) * tp(2) * sp * pp(2, schedule=dualpipe)",
    "fsdp(2, unit=model) * pp(2, schedule=dualpipe) | norms",
    "pp(2, schedule=dualpipe-v) | full",
    "zero1(2) * ep(2) * tp(2) * sp",
    "fsdp(2) * fsdp(dp=ep) * ep(2) * pp(2)",
    "zero1(4) * ep(2, experts=whole) * tp(2) * sp * cp(2)",
    "zero1(2) * tp(2) * sp * ep(2) * ep(tp)",
    "zero1(2) * zero1(cp) * cp(2) * tp(2) * sp * ep(cp) * ep(tp) | full",
    "fsdp(2) * cp(2, attention=ulysses) * tp(2) * ep(cp) * pp(2)",
    "zero1(2) * muon(owned)",
    "fsdp(2, root=keep) * accumulate * muon",
    "zero_offload(2) * tp(2) * muon",
    "zero1(2) * tp(2) * sp * pp(2, schedule=dualpipe) * muon",
    "fsdp(2) * fsdp(dp=ep) * ep(2) * pp(2) * muon",
    "zero1(4) * ep(2, experts=whole) * tp(2) * sp * cp(2) * muon",
    "zero1(2) * ep(2) * tp(2) * sp * muon(owned)",
    "zero1(2) * ep(2) * ep(tp, experts=etp) * tp(2) * sp * tp(2, tp=etp) * sp(tp=etp) * tp(2, tp=dtp) * sp(tp=dtp) * accumulate",
    "fsdp(2) * fsdp(ep) * ep(2) * ep(tp) * tp(2) * sp * tp(2, tp=etp) * sp(tp=etp) * pp(2) | full",
)
#: Sizes for numbers of what stays open: no two widths are alike.
NUMBERS = {
    "b_theta": Fraction(2), "b_g": Fraction(3), "b_omega": Fraction(11), "b_a": Fraction(5), "b": Fraction(2), "m": Fraction(8),
    "c": Fraction(5, 4), "b_qw": Fraction(1), "b_qg": Fraction(1, 2),
}  # fmt: skip
#: What is compared to the byte.
MEMORY = ("parameters", "gradients", "optimizer", "activations", "working", "transient", "updating", "host")
SCHEDULES = Path(placeproof.schedules.__file__).parent / "catalogue"


@dataclass(frozen=True)
class Outcome:
    """What came of a pair: `refused`, `equal` or `different`, and why; and how much of a derived peak no statement holds."""

    word: str
    why: tuple[str, ...] = ()
    loose: float = 0


def linked_of(model: str, strategy: str, sizes: dict[str, int]) -> Linked:
    """The program; raises InputError."""
    text, _, recompute = (part.strip() for part in strategy.partition("|"))
    asked = parse_strategy(text)
    return link(load(model).resized(sizes), asked, recompute=chosen(asked, recompute or None))


def outcome(model: str, strategy: str, sizes: dict[str, int]) -> Outcome:
    """Of one pair, with some of the model's sizes changed. Layers that cannot be shared out evenly become eight."""
    try:
        linked = linked_of(model, strategy, sizes)
        derived = derive_linked(linked)
    except InputError as refused:
        said = tuple(d.message for d in refused.diagnostics)
        uneven = len(said) == 1 and "cannot be shared out evenly" in said[0] and "L" not in sizes
        return outcome(model, strategy, {**sizes, "L": 8}) if uneven else Outcome("refused", said)
    text = render_linked(linked)
    again = derive_linked(read_linked(text))
    why = [f"derived again: {key}" for key in derived.forms.keys() | again.forms.keys() if derived.forms.get(key) != again.forms.get(key)]
    why += ["derived again: exchanges"] if [c.sent for c in derived.costs] != [c.sent for c in again.costs] else []
    why += ["derived again: what is kept"] if [c.held for c in derived.costs] != [c.held for c in again.costs] else []
    walked = Model(text, NUMBERS, SCHEDULES)
    loose = 0.0
    for stage, cost in enumerate(derived.costs):
        costs = walked.costs(stage)
        why += differences(derived, stage, costs)
        loose = loose if costs.peak is None else max(loose, 1 - float(costs.peak / amount(derived, cost.peak)))
    return Outcome("different" if why else "equal", tuple(why), loose)


def amount(derived: ModelDerivation, form: Any) -> Fraction:
    """A formula in numbers: none of its symbols is open."""
    value = derived.value(form, NUMBERS)
    assert value is not None, form
    return value


def differences(derived: ModelDerivation, stage: int, costs: Costs) -> Iterator[str]:
    """Of one stage: each amount that is another one, what is derived before what is walked."""
    cost = derived.costs[stage]
    sent = {frozenset(axes.split("*")): amount(derived, form) for axes, form in cost.traffic().items()}
    for axes in sorted(sent.keys() | costs.sent.keys(), key=sorted):
        if (one := sent.get(axes, 0)) != (other := costs.sent.get(axes, 0)):
            yield f"{cost.stage.name}: sent over {'*'.join(sorted(axes))}: {one} and {other}"
    form = {kind: derived.forms.get(f"{cost.stage.name}.{kind}", 0) for kind in (*MEMORY, "peak")}
    held = {kind: amount(derived, own) for kind, own in form.items()}
    walked = costs.memory
    yield from (f"{cost.stage.name}: {kind}: {held[kind]} and {walked[kind]}" for kind in MEMORY if held[kind] != walked[kind])
    states, passes = (sum(held[kind] for kind in kinds) for kinds in (MEMORY[:3], ("activations", "transient")))
    passes += max(Fraction(0), held["working"] - costs.through)
    if held["peak"] != states + max(passes, held["updating"]):
        yield f"{cost.stage.name}: the peak is not that of the moment when it has most"
    if costs.peak is not None and costs.peak > held["peak"]:
        yield f"{cost.stage.name}: peak: {held['peak']}, and {costs.peak} are alive at a statement"
