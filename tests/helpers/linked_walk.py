"""A linked program walked line by line for one device, with numbers: what it sends, by the axes of the group, and what it holds.

A second opinion on what a model costs, that shares nothing with what derives formulas. The text is read in `linked_text.py`; a block is
walked with the shapes that one device has (`linked_blocks.py`), the step with elements of each unit and group of parameters
(`linked_step.py`). What a pipeline keeps of micro-batches in flight follows from each device's order of passes (`linked_orders.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from linked_blocks import BYTES, Block, Kept, Walk
from linked_orders import Order
from linked_step import WIDTHS, Place, Step, Stream, Unit
from linked_text import Text

#: What symbols are unless they are set.
USUAL = {"c": Fraction(1), "b_qw": Fraction(1), "b_qg": Fraction(1, 2), "m": Fraction(1)}


@dataclass
class Costs:
    """What the walk found for one device: bytes sent by the axes of the group, and bytes held by what they are for."""

    sent: dict[frozenset[str], Fraction]
    memory: dict[str, Fraction]
    #: The most that is alive at one statement; None in pipelines, whose micro-batches overlap.
    peak: Fraction | None
    #: What backward is through with before it comes to the layers.
    through: Fraction


class Model:
    """A program whose blocks have been walked; ``known``: numbers of symbols, `m`, `b` and widths among them."""

    def __init__(self, text: str, known: Mapping[str, Fraction], schedules: Path) -> None:
        self.text = Text(text, USUAL | dict(known))
        self.head = self.text.head
        called = {call.block for lines in self.text.segments.values() for call in lines}
        self.blocks: dict[str, Block] = {name: Walk(name, self.text.defs[name].body, self.head).block() for name in called}
        self.devices = self.head.degrees[self.head.pipeline] if self.head.pipeline else 1
        self.order = Order.read(schedules, self.head.schedule, self.devices, self.head.chunks)
        self.stream = next(block.takes["x"] for block in self.blocks.values() if "x" in block.takes)

    # Units.

    def stage(self, s: int) -> list[str]:
        """The segments of a stage, one for each repetition: layers are shared out evenly, or as `stages` says."""
        layers = [name for name, times in self.head.stack for _ in range(times) if name in self.text.repeated]
        where = [i for i, (name, _) in enumerate(self.head.stack) if name in self.text.repeated]
        count = self.order.stages
        shares = self.head.stages or [len(layers) // count] * count
        before = [name for name, _ in self.head.stack[: where[0]]] if s == 0 else []
        after = [name for name, _ in self.head.stack[where[-1] + 1 :]] if s == count - 1 else []
        return [*before, *layers[sum(shares[:s]) : sum(shares[: s + 1])], *after]

    def units(self, names: list[str], seen: set[str]) -> list[Unit]:
        """Each segment is a unit; where the first one is computed apart, it is what is no layer."""
        if self.head.one_unit:
            return [self.unit(names, seen)]
        if self.text.root_apart:
            root = [name for name in names if name not in self.text.repeated]
            return [self.unit(root, seen), *(self.unit([name], seen) for name in names if name in self.text.repeated)]
        return [self.unit([name], seen) for name in names]

    def unit(self, segments: list[str], seen: set[str]) -> Unit:
        """One unit. Of weights that are shared the first unit that has them has one: ``seen``."""
        blocks = [self.blocks[call.block] for name in segments for call in self.text.segments[name]]
        elements: dict[str, Fraction] = defaultdict(Fraction)
        for block in blocks:
            for weight, own in block.weights.items():
                if weight not in seen:
                    elements[self.head.members.get((block.name, weight), self.head.first_group)] += own
                seen |= {weight} & self.head.shared
        kept = [own for name in segments for own in self.kept(name)]
        lost = [[own for own in self.kept(name) if self.is_again(own)] for name in segments if name in self.text.repeated]
        layers = [self.blocks[call.block] for name in segments if name in self.text.repeated for call in self.text.segments[name]]
        sent = {phase: [own for block in blocks for own in block.sent[phase]] for phase in ("forward", "backward")}
        sent["again"] = [own for block in layers for own in self.sent_again(block)]
        return Unit(
            repeated=all(name in self.text.repeated for name in segments),
            elements=dict(elements),
            sent=sent,
            input=total(own for own in kept if own.block == "input"),
            kept=total(own for own in kept if own.block != "input") - sum(map(total, lost)),
            again=max(map(total, lost), default=Fraction(0)),
            deferred=sum((block.deferred for block in blocks), Fraction(0)),
        )

    # What is kept.

    def kept(self, segment: str) -> list[Kept]:
        """What backward of a segment reads; of the stream, and of what norms give, each value once."""
        stream: dict[str, Kept] = {}
        kept: list[Kept] = []
        for call in self.text.segments[segment]:
            block = self.blocks[call.block]
            for name, size in block.takes.items():
                stream.setdefault(name, Kept("input", name, size, given=True, pairs=False))
            kept += [stream[name] for name in sorted(block.reads) if not any(stream[name] is own for own in kept)]
            kept += block.kept
            stream[call.gives] = replace(block.result)
            kept += [stream[call.gives]] if block.result_read else []
        return kept

    def is_again(self, own: Kept) -> bool:
        """Whether backward of a layer computes a value again. What a block was given is there, but for masks where all is drawn again."""
        words, norm = self.head.recompute, "norm" in own.block
        if own.block == "input":
            return False
        if "full" in words:
            return not own.given or own.name in BYTES
        return (
            ("selective" in words and own.pairs)
            or ("norms" in words and norm and own.name == "n")
            or ("mlp" in words and is_feed_forward(own.block) and not own.given)
        )

    def sent_again(self, block: Block) -> list[tuple[str, Fraction]]:
        """What a block sends to compute again what is not kept. A feed-forward block is run as a whole, like a whole layer."""
        words = self.head.recompute
        if "full" in words or ("mlp" in words and is_feed_forward(block.name)):
            return block.sent["forward"]
        return block.sent_again({own.name for own in block.kept if own.pairs and not own.given}) if "selective" in words else []

    # One device.

    def costs(self, d: int = 0) -> Costs:
        """Of device ``d`` of the pipeline."""
        stages = [self.stage(s) for s in self.order.on(d)]
        units, seen = self.units([name for names in stages for name in names], set()), set[str]()
        runs = [self.units(names, seen) for names in stages]
        of_loop = int(self.head.known["m"]) // self.order.copies
        ends = {0, self.order.stages - 1} & set(self.order.on(d))
        through = self._through(d, stages)
        place = Place(d, of_loop, sends=self.head.chunks == 1, tied=len(ends) == 1 and self.devices > 1, through=through)
        step = Step(self.head, units, place, self.stream)
        step.walk(self.text.body)
        if self.head.pipeline and self.head.chunks > 1:  # how often a micro-batch is handed on follows from the schedule
            step.send(self.head.pipeline, of_loop * sum(self.order.messages(d)) * self.stream)
        memory = {state: step.held[state, False] for state in WIDTHS}
        memory["host"] = sum((n for (_, host), n in step.held.items() if host), step.memory.most({"host"}))
        memory["activations"] = step.memory.most({"activations"})
        if self.head.pipeline:
            memory["activations"] = self._in_flight(d, runs, step.checkpoint)
            memory["host"] += self._in_flight(d, runs, step.checkpoint, host=True) - step.memory.most({"host"})
        memory["working"] = step.memory.most({"working"})
        memory["transient"] = step.memory.rounded({"transient"})
        memory["updating"] = step.memory.most({"updating"})
        alive = step.memory.most({"activations", "working", "through", "transient", "updating"})
        peak = None if self.head.pipeline else sum((memory[state] for state in WIDTHS), alive)
        return Costs({axes: n for axes, n in step.sent.items() if n}, memory, peak, through)

    def _through(self, d: int, stages: list[list[str]]) -> Fraction:
        """What is behind a device's layers, without what gradients of weights that come later need; of several runs of layers any may be
        computed again, and nothing is."""
        if len(stages) > 1:
            return Fraction(0)
        (names,) = stages
        last = max((i for i, name in enumerate(names) if name in self.text.repeated), default=-1)
        behind = names[last + 1 :]
        later = any(kind == "W" for kind, _, _ in self.order.passes(d, int(self.head.known["m"])))
        blocks = [self.blocks[call.block] for name in behind for call in self.text.segments[name]]
        deferred = sum((block.deferred for block in blocks if later), Fraction(0))
        return sum((total(self.kept(name)) for name in behind), Fraction(0)) - deferred

    def _in_flight(self, d: int, runs: list[list[Unit]], checkpoint: Stream, host: bool = False) -> Fraction:
        """What a device keeps at most while it follows its order of passes."""
        until_b = [sum((unit.stays(checkpoint, host) for unit in run), Fraction(0)) for run in runs]
        until_w = [sum((Fraction(0) if host else unit.deferred for unit in run), Fraction(0)) for run in runs]
        return self.order.most(d, int(self.head.known["m"]), until_b, until_w)


def is_feed_forward(block: str) -> bool:
    """Whether a block of a layer is neither a norm nor attention."""
    return "norm" not in block and not block.startswith("attention")


def total(kept: Iterable[Kept]) -> Fraction:
    """Bytes of several values."""
    return sum((own.bytes for own in kept), Fraction(0))
