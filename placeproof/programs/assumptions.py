"""What a proof assumes: named, listed in every answer, and dropped one by one.

Dropping an assumption makes the reference step, or what devices begin with, more general. A program that needed it is then
refuted or undecided; one that takes care of it stays proved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placeproof.programs.ir import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """A named assumption. ``without`` says what holds instead when it is dropped; None where it cannot be.

    ``where``: made only of programs that have an axis which splits this; ``experts``: that have a group of experts; ``counts``: that say of
    what the loss is a mean; ``elements``: with a group that is trained and of which the optimizer is not said to read more than an element.
    """

    name: str
    says: str
    without: str | None
    where: str | None = None

    def concerns(self, program: Program) -> bool:
        """Whether it is made of a program, unless it is dropped."""
        if self.where == "counts":
            return bool(program.loss)
        if self.name == "equal-token-counts" and program.loss:
            return False
        if self.where == "experts":
            return any(g.experts for g in program.groups)
        if self.where == "elements":
            usual = dict(program.reference).get("optimizer", "elementwise")
            return any((g.update or usual) == "elementwise" for g in program.groups if not g.frozen)
        return self.where is None or any(a.splits.name == self.where for a in program.axes)


_ROWS = (
    Assumption(
        name="separable-loss",
        says="the loss is a mean over tokens or samples, and each sample's part depends on that sample alone",
        without="layers use statistics of the whole batch (batch normalisation, a router's balance loss)",
    ),
    Assumption(
        name="equal-token-counts",
        says="every device has equally many tokens that count, in every micro-batch",
        without="token counts differ, and the reference weights every token of the global batch alike",
    ),
    Assumption(
        name="something-counts",
        says="every device has something that counts in each micro-batch: tokens, samples, sequences, prompts, weights above zero; how "
        "many may differ",
        without=None,
        where="counts",
    ),
    Assumption(
        name="elementwise-optimizer",
        says="the optimizer updates each element from its own gradient and state (SGD, Adam, AdamW, Lion, signSGD)",
        without="the optimizer sees whole matrices (Muon, Shampoo, Adafactor)",
        where="elements",
    ),
    Assumption(
        name="equal-initial-states",
        says="all copies of a parameter are equal before the step",
        without="each device begins with its own parameters, and the reference with those of the first; optimizer state begins equal",
    ),
    Assumption(
        name="exact-quantizers",
        says="dequantising returns what was quantised",
        without="a quantised value loses something",
    ),
    Assumption(
        name="exchanged-context",
        says="where tokens of one sequence lie on several devices, attention itself exchanges what it needs of the others' keys and values "
        "and of their gradients (for a ring: theorem context_parallel.ring_attention_is_right)",
        without=None,
        where="sequence",
    ),
    Assumption(
        name="exchanged-tokens",
        says="where experts lie on several devices, a layer itself sends every token to its experts and brings the results back, and so "
        "with their gradients; how tokens are shared out over experts does not depend on how devices share the batch (for one layer: "
        "theorem experts.dispatch_and_combine_are_inverse)",
        without=None,
        where="experts",
    ),
    Assumption(
        name="synchronous-step",
        says="a value sent is the value received; a collective ends before its result is read",
        without=None,
    ),
    Assumption(
        name="deterministic-operations",
        says="the same operation on the same values gives the same result on every device",
        without=None,
    ),
    Assumption(
        name="real-arithmetic",
        says="numbers are real numbers: no rounding, no overflow",
        without=None,
    ),
)

ASSUMPTIONS: dict[str, Assumption] = {a.name: a for a in _ROWS}


def always_made(name: str) -> tuple[str, str]:
    """What is said to somebody who drops an assumption that cannot be dropped: the message and the remedy."""
    can = ", ".join(a.name for a in ASSUMPTIONS.values() if a.without is not None)
    return f"`{name}` cannot be dropped: nothing here could be said without it", f"these can: {can}"
