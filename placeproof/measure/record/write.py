"""A recorded step as a step program, whose comments say which lines of the script did what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from math import prod

from placeproof.core.mesh import USUAL_SPLITS
from placeproof.measure.record.chain import Chain, ChainStep, Clip, refuse_lines
from placeproof.measure.record.factor import SCALES, TOTAL, Asked, Reading, readings, shown, written
from placeproof.measure.record.plan import StepPlan
from placeproof.measure.record.recording import Recording
from placeproof.measure.record.treatment import ParameterSet


def write(plan: StepPlan, recording: Recording, settled: Mapping[str, frozenset[Reading]] | None = None) -> tuple[str, Asked]:
    """The program as text, and how its factors were read. ``settled``: how each of them is to be read."""
    sizes = plan.grid.sizes if plan.turns == 1 else {**plan.grid.sizes, "microbatches": plan.turns}
    asked = Asked(sizes, settled or {})
    return _Writer(_merged(plan, sizes), recording, asked).text(), asked


def _merged(plan: StepPlan, sizes: Mapping[str, int]) -> StepPlan:
    """A step whose factors are no products one by one, and are one all together: what scales a loss is taken from its gradients again."""
    turn = plan.turn
    counts = (1, *((turn.count, turn.rows, *plan.total) if turn.summed else ()))

    def product(value: Fraction) -> bool:
        return any(readings(value * n, sizes) for n in counts)

    def last(part: ParameterSet) -> Fraction:
        return turn.factor * prod((s.factor for s in part.chain.scalings), start=Fraction(1))

    single = [turn.factor, *(s.factor for part in plan.parts for s in part.chain.scalings)]
    if all(map(product, single)) or not all(part.chain.scalings and product(last(part)) for part in plan.parts):
        return plan
    parts = [replace(part, chain=part.chain.scaled_once(last(part))) for part in plan.parts]
    return replace(plan, turn=replace(turn, factor=Fraction(1), scaled=False), parts=parts)


class _Writer:
    def __init__(self, plan: StepPlan, recording: Recording, asked: Asked) -> None:
        self.plan, self.one, self.asked = plan, recording, asked
        self.own = self._own()
        #: Whether a pass gives the gradient of a sum, and not of a mean.
        self.summed = plan.turn.summed and self.own is None
        self.lines: list[str] = []
        self.depth = 0
        self.said = ""
        #: Gradients are computed whole, or unit by unit, or block by block.
        self.whole = plan.layers is None and (plan.gathers.once or not plan.gathers.units)
        self.g = "gradients"
        names = ("matrix", "norm") if plan.layers else ("expert", "dense") if plan.experts else ("most", "rest")
        if len(plan.parts) > 2:
            refuse_lines(
                recording.script, recording.source, [(f"parameters are treated in {len(plan.parts)} ways: two groups can be said", 0)]
            )
        if plan.experts and [bool(p.split) for p in plan.parts] != [True, False]:
            refuse_lines(
                recording.script, recording.source, [("experts alone, or some of them treated otherwise than others, cannot be said", 0)]
            )
        if any(p.tied for p in plan.parts) and len(plan.parts) != 2:
            refuse_lines(recording.script, recording.source, [("parameters that are copies on two stages alone cannot be said", 0)])
        for part, name in zip(plan.parts, names, strict=False):
            part.name = "tied" if part.tied else name if len(plan.parts) > 1 or plan.layers else ""
        if plan.layers and len(plan.parts) == 1:
            refuse_lines(
                recording.script, recording.source, [("all parameters are split over the same axis: blocks with norms can be said", 0)]
            )

    # Small things.

    def add(self, text: str, line: int = 0) -> None:
        """A statement, after a comment that says where in the script it comes from."""
        self.note(line)
        self.lines.append("    " * self.depth + text)

    def note(self, *lines: int) -> None:
        """Comments that say where in the script something comes from."""
        for line in sorted(set(lines)):
            if 0 < line <= len(self.one.source):
                comment = f"# {self.one.script}:{line}  {self.one.source[line - 1].strip()}"
                if comment != self.said:
                    self.lines.append("    " * self.depth + comment)
                self.said = comment

    def factor(self, where: str, value: Fraction, prefer: tuple[str, ...], line: int = 0) -> str:
        """A scaling in the program's words: as a product of what the step counts, or as the number that it is."""
        read = self.asked.read(SCALES + where, (value,), prefer, line=line)
        return written(value) if read is None else shown(read[1])

    def applied(self, steps: tuple[ChainStep, ...], expr: str, chain: Chain) -> str:
        """The steps of a chain around an expression."""
        for step in steps:
            if step.kind == "scale":
                axes = (*chain.axes("all_reduce"), *chain.axes("reduce_scatter"), *chain.axes("reduce"))
                number = next(i for i, part in enumerate(self.plan.parts) if part.chain is chain)
                which, own = ("inner", chain.inner) if any(s is step for s in chain.inner) else ("outer", chain.outer)
                first = next(s for s in own if s.kind == "scale")
                where = f"{number} {which}{'' if first is step else ' again'}"  # after what a rank sends to others
                text = self._scale(where, step.factor, (*axes, "microbatches", *self.plan.grid.sizes), min(step.lines, default=0))
                expr = expr if text == "1" else f"scale({expr}, {text})"
            else:
                options = f"{', op=mean' if step.op == 'mean' else ''}{f', root={step.root}' if step.root else ''}"
                expr = f"{step.kind}({expr}, {', '.join(step.axes)}{options})"
        return expr

    def _scale(self, where: str, value: Fraction, prefer: tuple[str, ...], line: int) -> str:
        """A factor, which of sums may divide by the elements, or the samples, of all ranks and micro-batches."""
        if self.summed:
            most = Fraction(prod(self.plan.grid.sizes.values()))
            read = self.asked.read(TOTAL + where, [value * n for n in self.plan.total], prefer, most=most, line=line)
            if read is not None:
                above = shown(read[1])
                return f"{above if above == '1' else f'({above})'} / n"
        return self.factor(where, value, prefer, line)

    @property
    def constant(self) -> Fraction:
        """The constant of the loss that a contract says. Of equal parts of the tokens of a sample none speaks: there it is in the loss that
        passes are of, as the head says."""
        counted = self.plan.uneven or self.summed or "sequence" not in self.plan.splits.values()
        return self.plan.constant if counted else Fraction(1)

    def _own(self) -> str | None:
        """The factor between a sum that is divided by its own number of elements, or of samples, and a mean; None if it is not."""
        turn = self.plan.turn
        if not turn.summed or turn.factor == 1 or self.plan.uneven:
            return None
        prefer = ("microbatches", *self.plan.grid.sizes)
        read = self.asked.read("own", [turn.factor * n for n in (turn.count, turn.rows)], prefer, most=Fraction(1), line=turn.line)
        return None if read is None else shown(read[1])

    def passed(self, expr: str) -> str:
        """A pass's gradient as autograd gives it, from that of the mean loss."""
        turn = self.plan.turn
        expr = f"scale({expr}, tokens({'i' if self.plan.turns > 1 else ''}))" if self.summed else expr
        expr = f"scale({expr}, {written(self.constant)})" if self.constant != 1 else expr
        scaled = self.own is None and (turn.scaled or turn.factor != 1)
        text = self._scale("loss", turn.factor, ("microbatches", *self.plan.grid.sizes), turn.line) if scaled else self.own or "1"
        return expr if text == "1" else f"scale({expr}, {text})"

    # The program.

    def text(self) -> str:
        """Head, body and end."""
        self._head()
        self._begin()
        if self.whole:
            self._whole()
        else:
            self._by_units()
        self._end()
        return "\n".join(self.lines) + "\n"

    def _head(self) -> None:
        plan, recording = self.plan, self.one
        ranks = " * ".join(f"{n}={s}" for n, s in plan.grid.sizes.items())
        loops = f", {plan.turns} micro-batches" if plan.turns > 1 else ""
        self.add(f"# Recorded from {recording.script}: one step of rank 0 of {recording.world} ({ranks}{loops}).")
        for note in (*plan.notes, *plan.of):
            self.add(f"# {note}")
        self.add(f"mesh({', '.join(f'{n}={s}' if plan.fixed else n for n, s in plan.grid.sizes.items())})")
        if plan.fixed and plan.turns > 1:
            self.add(f"count(microbatches={plan.turns})")
        usual = {a: w for a, w in plan.splits.items() if USUAL_SPLITS.get(a) != w}
        if usual:
            self.add(f"splits({', '.join(f'{a}={chr(34)}{w}{chr(34)}' for a, w in usual.items())})")
        for axis, size in plan.grid.inner.items():
            self.add(f"inner({axis}={size})")
        options = {"statistics": "batch"} if plan.statistics else {}
        options |= {"clip": "global_norm"} if any(p.chain.clip for p in plan.parts) else {}
        if self.constant != 1:
            options["loss"] = f"{written(self.constant)} * mean_over({'tokens' if plan.uneven or self.summed else 'micro_batches'})"
        if options:
            self.add(f"reference({', '.join(f'{k}={v}' for k, v in options.items())})")
        without = [n for n, said in (("equal-initial-states", plan.unequal), ("equal-token-counts", plan.uneven or self.summed)) if said]
        if without:
            self.add(f"without({', '.join(f'{chr(34)}{n}{chr(34)}' for n in without)})")
        if plan.not_compared:
            self.add(f"not_compared({', '.join(f'{name}={chr(34)}{text}{chr(34)}' for name, text in plan.not_compared.items())})")
        if len(plan.parts) > 1:
            options_ = f", experts={plan.experts[0]}" if plan.experts else ""
            self.add(f"group({plan.parts[0].name}, P - P_norm{options_})")
            self.add(f"group({plan.parts[1].name}, P_norm{f', tied={plan.stages}' if plan.parts[1].tied else ''})")
        self._places()

    def _places(self) -> None:
        for state in ("parameters", "optimizer", "gradients"):
            for part in self.plan.parts:
                modes = ", ".join(f'{a}="{self._mode(state, part, a)}"' for a in self.plan.grid.sizes)
                self.add(f"place({state}{'.' + part.name if part.name else ''}, {modes})")
        if self.plan.layers and self.plan.layers.sequence:
            self.add(f'place(activations, {self.plan.layers.axis}="S")')

    def _mode(self, state: str, part: ParameterSet, axis: str) -> str:
        mixed = self.plan.unequal and not self.plan.sent
        if axis in part.split or axis == self.plan.stages:
            return "S"
        gathered = axis in self.plan.gathers.axes
        if state == "parameters":
            return "S*" if gathered and not mixed else "R"
        owned = part.final.root == "owner" and state == "optimizer" and axis in part.final.axes
        scattered = axis in (*part.chain.axes("reduce_scatter"), *part.owned)
        return "S" if (gathered and state == "optimizer") or scattered or owned else "R"

    def _begin(self) -> None:
        plan = self.plan
        if plan.sent:
            axes, root, line = plan.sent
            target = "parameters.dense" if plan.experts else "parameters"
            self.add(f"{target} = broadcast({target}, {', '.join(axes)}, root={root})", line)
        elif plan.unequal and plan.gathers.axes:
            axes_ = ", ".join(plan.gathers.axes)
            self.add("# Each rank draws parameters of its own and keeps its shard of these.")
            self.add(f"parameters = all_gather(part(parameters, {axes_}), {axes_})")
        if self.summed:
            batch = [a for a, w in plan.splits.items() if w in ("batch", "sequence")]
            if plan.turns > 1:
                self.add("for i in microbatches:")
                self.add("    n += tokens(i)")
            own = "n" if plan.turns > 1 else "tokens()"
            self.add(f"n = all_reduce({own}, {', '.join(batch)})" if batch else f"n = {own}" if own != "n" else "")

    def _whole(self) -> None:
        """Whole passes, of parameters that are gathered at once."""
        plan, gathers = self.plan, self.plan.gathers
        mixed = plan.unequal and not plan.sent
        w = "parameters"
        if gathers.axes and not mixed and (plan.turns == 1 or gathers.once):
            w = "w"
            self.add(f"w = all_gather(parameters, {', '.join(gathers.axes)})", gathers.lines[0])
        if plan.turns == 1:
            self._one_pass(w)
            return
        self.add(f"zero({self.g})")
        self.add("for i in microbatches:")
        self.depth += 1
        if gathers.axes and not mixed and not gathers.once:
            w = "w"
            self.add(f"w = all_gather(parameters, {', '.join(gathers.axes)})", gathers.lines[0])
        self._each_part("+=", self._gradient(w, "i"))
        if plan.parts[0].chain.rolling:
            self._steps("inner")
        self.depth -= 1

    def _one_pass(self, w: str) -> None:
        self._each_part("=", self._gradient(w, ""))

    def _gradient(self, w: str, index: str) -> str:
        """The gradient of a whole pass, perhaps of samples that are all the same, or with statistics of the batch."""
        plan = self.plan
        if plan.stages:
            return self._of_stage(index)
        if plan.same:
            self.add("# These ranks were given the same samples.")
            self.add(f"x = broadcast(data({index}), {', '.join(plan.same)}, root=0)", plan.turn.line)
            self.add(f"x, activations = forward({w}, x)")
            self.add("dx = loss(x)")
            return self.passed(f"backward({w}, activations, dx)")
        if plan.statistics:
            self.add(f"s = statistics({w}{', ' + index if index else ''})", plan.statistics)
            return self.passed(f"backward_with({w}, {index or 0}, s)")
        return self.passed(f"backward({w}{', ' + index if index else ''})")

    def _of_stage(self, index: str) -> str:
        """The gradient of a stage, which gets activations and gradients from its neighbours, and gives them to these."""
        plan, pp = self.plan, self.plan.stages
        data = f"broadcast(data({index}), {', '.join(plan.same)}, root=0)" if plan.same else f"data({index})"
        self._either(f"rank({pp}) == 0", f"x = {data}", f"x = recv({pp}, source=-1)")
        self.add("x, activations = forward(parameters, x)")
        self._either(f"rank({pp}) < {pp} - 1", f"send(x, {pp}, to=1)")
        self._either(f"rank({pp}) == {pp} - 1", "dx = loss(x)", f"dx = recv({pp}, source=1)", plan.turn.line)
        self.add("dy = backward_input(parameters, activations, dx)")
        self._either(f"rank({pp}) > 0", f"send(dy, {pp}, to=-1)")
        return self.passed("backward_weight(parameters, activations, dx)")

    def _either(self, which: str, then: str, other: str = "", line: int = 0) -> None:
        """One statement on some ranks of an axis, and another one on all others."""
        self.note(line)
        for head, text in ((f"if {which}:", then), ("else:", other)):
            if text:
                self.lines += ["    " * self.depth + head, "    " * (self.depth + 1) + text]

    def _each_part(self, sign: str, expr: str) -> None:
        parts = self.plan.parts
        if len(parts) == 1:
            self._produced(parts[0], f"{self.g} {sign} ", expr)
            return
        self.add(f"passed = {expr}", self.plan.turn.line)
        for part in parts:
            self._produced(part, f"{self.g}.{part.name} {sign} ", f"passed.{part.name}")

    def _produced(self, part: ParameterSet, head: str, expr: str) -> None:
        """A micro-batch's gradient, with what is done to it."""
        chain = part.chain
        self.note(*(n for s in chain.inner for n in s.lines if not chain.rolling))
        self.add(head + (expr if chain.rolling else self.applied(chain.inner, expr, chain)), self.plan.turn.line)

    # Unit by unit.

    def _by_units(self) -> None:
        if self.plan.same or self.plan.statistics:
            refuse_lines(
                self.one.script,
                self.one.source,
                [("statistics, or equal samples, of a step unit by unit are not said here", self.plan.turn.line)],
            )
        from placeproof.measure.record.units import body

        if self.plan.turns == 1:
            body(self, "")
            return
        self.add(f"zero({self.g})")
        self.add("for i in microbatches:")
        self.depth += 1
        body(self, "i")
        self.depth -= 1

    # After the passes.

    def _steps(self, which: str) -> None:
        """What is done to the gradients of all micro-batches so far."""
        for part in self.plan.parts:
            target = self.g + (f".{part.name}" if part.name else "")
            for step in part.chain.outer if which == "outer" else part.chain.inner:
                self.add(f"{target} = {self.applied((step,), target, part.chain)}", min(step.lines, default=0))

    def _end(self) -> None:
        plan = self.plan
        self._steps("outer")
        clips = [p for p in plan.parts if p.chain.clip]
        if clips:
            self._clip([(p, p.chain.clip) for p in clips if p.chain.clip is not None])
        by_element = [e.line for part in plan.parts for e in part.chain.by_element]
        if by_element:
            self.add("# What is done to finished gradients element by element is taken for a part of the update.")
            self.note(*by_element)
        self.add(f"parameters, optimizer = update(parameters, optimizer, {self.g})")
        mixed = plan.unequal and not plan.sent
        for part in plan.parts:
            target = "parameters" + (f".{part.name}" if part.name else "")
            if mixed and plan.gathers.axes:
                self.add(f"{target} = all_gather({target}, {', '.join(plan.gathers.axes)})")
            elif part.final.kind == "all_gather":
                self.add(f"{target} = all_gather({target}, {', '.join(part.final.axes)})", self._line("all_gather"))
            elif part.final.kind == "broadcast":
                self.add(f"{target} = broadcast({target}, {', '.join(part.final.axes)}, root={part.final.root})", self._line("broadcast"))

    def _line(self, kind: str) -> int:
        return next((e.line for e in self.one.events if e.kind == kind and e.phase in ("update", "after")), 0)

    def _clip(self, clips: list[tuple[ParameterSet, Clip]]) -> None:
        """The norm of all gradients, and the factor by which those are scaled that were clipped."""
        terms = []
        for part in self.plan.parts:
            assert part.norm is not None
            (axes, alone), gradient = part.norm, f"{self.g}{'.' + part.name if part.name else ''}"
            own = f"part({gradient}, {', '.join(axes)})" if alone else gradient
            terms.append(f"all_reduce(square_norm({own}), {', '.join(axes)})" if axes else f"square_norm({own})")
        self.add(f"factor = clip_factor(sqrt({' + '.join(terms)}))", clips[0][1].line)
        for part, _ in clips:
            target = self.g + (f".{part.name}" if part.name else "")
            self.add(f"{target} = scale({target}, factor)")
