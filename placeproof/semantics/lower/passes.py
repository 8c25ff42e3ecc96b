"""The forward and the backward pass of one micro-batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from placeproof.core.states import GRADIENTS, PARAMETERS
from placeproof.core.strategy import EXPERT, INNER, MATRIX, NORM, OUTER
from placeproof.programs import FIRST_UNIT, Expr, Ref, Stmt
from placeproof.semantics.lower.facts import Facts
from placeproof.semantics.lower.write import branch, call, do, end, infix, let, loop, num, of, ref


@dataclass(frozen=True)
class Passes:
    """Writes the two passes of one micro-batch (``batch`` is its loop variable, or None). ``root``: those of the root unit alone."""

    facts: Facts
    batch: str | None
    root: bool = False

    def both(self) -> list[Stmt]:
        """Forward, then backward."""
        apart = [replace(self, root=True)] if self.facts.root_kept else []
        forward = [s for one in (*apart, self) for s in one._forward()]
        backward = [s for one in (self, *apart) for s in one._backward()]
        return [*self._begin(), *forward, *self._turn(), *backward, *self._finish()]

    # What stands around the passes: where samples come from, and what stages tell one another.

    def _data(self) -> Expr:
        f = self.facts
        samples = call("data", ref(self.batch)) if self.batch else call("data")
        return call("part", samples, axes=[f.cut]) if f.sequence_parallel and f.cut else samples

    def _begin(self) -> list[Stmt]:
        x, stages = ref("x"), self.facts.stages
        if stages is None:
            return [let(x, self._data())]
        received = let(x, call("recv", axes=[stages], source="-1"))
        return [branch(stages, "==", num(0), [let(x, self._data())], [received])]

    def _turn(self) -> list[Stmt]:
        x, dx, stages = ref("x"), ref("dx"), self.facts.stages
        begin = let(dx, call("loss", x))
        if stages is None:
            return [begin]
        last = infix("-", ref(stages), num(1))
        return [
            branch(stages, "<", last, [do("send", x, axes=[stages], to="1")]),
            branch(stages, "==", last, [begin], [let(dx, call("recv", axes=[stages], source="1"))]),
        ]

    def _finish(self) -> list[Stmt]:
        stages = self.facts.stages
        if stages is None:
            return []
        return [branch(stages, ">", num(0), [do("send", ref("dx"), axes=[stages], to="-1")])]

    # Loops over parts of the model.

    @cached_property
    def _loops(self) -> tuple[tuple[str, str], ...]:
        """The loops over parts of the model, outermost first: (variable, domain). The root unit is no loop."""
        return tuple(lp for lp in self.facts.loops if not (self.root and lp[1] == "units"))

    @property
    def _inner(self) -> str | None:
        if self._loops:
            return self._loops[-1][0]
        return FIRST_UNIT if self.root else None

    def _own(self, name: str) -> str:
        """A buffer that lives within one unit: the root's is another one than that of the units in the loop."""
        return f"root_{name}" if self.root else name

    def _nested(self, domains: tuple[str, ...], body: list[Stmt], *, reverse: bool) -> list[Stmt]:
        """The body inside the loops over these domains, as far as the strategy has them."""
        for var, domain in reversed(self._loops):
            if domain in domains:
                outer = [FIRST_UNIT] if self.root else []
                outer += [v for v, _ in self._loops[: self._loops.index((var, domain))]]
                body = [loop(var, domain, body, within=outer[-1] if outer else None, reverse=reverse)]
        return body

    @property
    def _units(self) -> bool:
        return any(domain == "units" for _, domain in self.facts.loops)

    def _weights(self, group: str | None) -> Ref:
        """The parameters that a computation reads."""
        below = [v for v, d in self._loops if d != "units"]
        if self.facts.gather:
            kept = self.facts.reshard is False
            name, part = "root" if self.root else "w", below[-1] if below else ("u" if kept else None)
        else:
            name, part = "parameters", self._inner
        return ref(name, group, part)

    # Gathering parameters for use.

    def _gathered(self, shard: Ref, group: str | None = None) -> Expr:
        f = self.facts
        source: Expr = call("to_device", of(shard, group)) if f.on_host(PARAMETERS, MATRIX) else of(shard, group)
        axes, width = f.among(f.gather, group), f.strategy.schedule.gather_width
        if width is None or width == "b_theta":
            return call("all_gather", source, axes=axes)
        return call("dequantize", call("all_gather", call("quantize", source, ref(width)), axes=axes))

    def _gathers(self, index: str | None) -> list[Stmt]:
        """The statements that gather a unit's parameters into ``w``: one, or one for each group that is gathered over other axes."""
        shard = ref("parameters", None, "u")
        return [let(ref("w", group, index), self._gathered(shard, group)) for group in self.facts.apart(self.facts.gather)]

    def _with_weights(self, body: list[Stmt], *, reverse: bool) -> list[Stmt]:
        """The loop over units, with parameters gathered before and dropped after each, or the body as it is."""
        f = self.facts
        if not self._units:
            return body
        if self.root:
            return [*body, do("free", ref("root"))] if reverse else [let(ref("root"), self._gathered(end("parameters", 0))), *body]
        if not f.gather:
            return [loop("u", "units", body, reverse=reverse)]
        # Where gathered parameters are kept, gathering ahead changes when bytes move, not how many, nor what is held.
        if f.strategy.schedule.prefetch and f.reshard is not False:
            return self._prefetched(body, reverse=reverse)
        start = 1 if f.root_kept else 0
        return [loop("u", "units", [*self._before(reverse), *body, *self._after(reverse)], reverse=reverse, start=start)]

    def _before(self, reverse: bool) -> list[Stmt]:
        f = self.facts
        if f.reshard is False:
            return [] if reverse else self._gathers("u")
        if reverse and f.sub_group is not None:
            return [let(ref("w"), call("all_gather", ref("secondary", None, "u"), axes=[f.sub_group]))]
        return self._gathers(None)

    def _after(self, reverse: bool) -> list[Stmt]:
        f = self.facts
        if f.reshard is False:
            return [do("free", ref("w", None, "u"))] if reverse else []
        keep: list[Stmt] = []
        if not reverse and f.sub_group is not None:
            keep = [let(ref("secondary", None, "u"), call("part", ref("w"), axes=[f.sub_group]))]
        return [*keep, do("free", ref("w"))]

    def _prefetched(self, body: list[Stmt], *, reverse: bool) -> list[Stmt]:
        first = call("start", self._gathered(end("parameters", -1 if reverse else 0)))
        following = call("start", self._gathered(ref("parameters", None, "u", -1 if reverse else 1)))
        head: list[Stmt] = [let(ref("w"), call("wait", ref("next"))), let(ref("next"), following)]
        return [let(ref("next"), first), loop("u", "units", [*head, *body, *self._after(reverse)], reverse=reverse)]

    # Forward.

    def _forward(self) -> list[Stmt]:
        f = self.facts
        if not f.recompute:
            return self._with_weights(self._nested(("layers", "blocks"), self._block("activations"), reverse=False), reverse=False)
        layer = [let(ref("activations", None, "l"), self._kept()), *self._nested(("blocks",), self._block(None), reverse=False)]
        return self._with_weights(self._nested(("layers",), layer, reverse=False), reverse=False)

    def _kept(self) -> Expr:
        f = self.facts
        kept: Expr = ref("x")
        if f.split_checkpoints and f.hidden:
            kept = call("part", kept, axes=f.hidden)
        return call("to_host", kept) if f.checkpoints_on_host else kept

    def _block(self, save: str | None) -> list[Stmt]:
        """One block's forward; what backward needs goes into the buffer ``save``, or nowhere."""
        f = self.facts
        if f.cut is None:
            return [self._run("x", None, ref("x"), save)]
        body = [self._run("y", NORM, ref("x"), save)]
        y: Expr = ref("y")
        if f.sequence_parallel:
            y = call("all_gather", y, axes=[f.cut])
            if f.split_experts:  # gathered once for both
                body.append(let(ref("whole"), y))
                y = ref("whole")
        body.append(self._run("z", MATRIX, y, save))
        if f.experts:
            body.append(self._run("e", EXPERT, y if f.split_experts else ref("y"), save))
        return [*body, let(ref("x"), infix("+", ref("x"), self._joined(ref("z"), ref("e"))))]

    def _joined(self, of_matrices: Expr, of_experts: Expr) -> Expr:
        """The sum over the hidden axis of what matrices make, and what experts make, where there are some."""
        f = self.facts
        assert f.cut is not None
        join = "reduce_scatter" if f.sequence_parallel else "all_reduce"
        if f.split_experts:
            return call(join, infix("+", of_matrices, of_experts), axes=[f.cut])
        joined = call(join, of_matrices, axes=[f.cut])
        return infix("+", joined, of_experts) if f.experts else joined

    def _run(self, out: str, group: str | None, x: Expr, save: str | None) -> Stmt:
        run = call("forward", self._weights(group), x)
        return let(ref(out), run) if save is None else let((ref(out), self._saved(save, group)), run)

    def _saved(self, name: str, group: str | None) -> Ref:
        kept = {MATRIX: INNER, NORM: OUTER}.get(group or "", group)
        recomputed = "k" if self.facts.cut is not None else None
        return ref(name, kept, recomputed if name == self._own("saved") else self._inner)

    # Backward.

    def _backward(self) -> list[Stmt]:
        f = self.facts
        if not f.recompute:
            body = self._nested(("layers", "blocks"), self._block_backward("activations"), reverse=True)
            return self._with_weights(self._bucketed(body), reverse=True)
        layer = [
            let(ref("x"), self._restored()),
            *self._nested(("blocks",), self._block(self._own("saved")), reverse=False),
            *self._nested(("blocks",), self._block_backward(self._own("saved")), reverse=True),
        ]
        return self._with_weights(self._bucketed(self._nested(("layers",), layer, reverse=True)), reverse=True)

    def _restored(self) -> Expr:
        f = self.facts
        kept: Expr = ref("activations", None, "l")
        if f.checkpoints_on_host:
            kept = call("to_device", kept)
        return call("all_gather", kept, axes=f.hidden) if f.split_checkpoints and f.hidden else kept

    def _block_backward(self, saved: str) -> list[Stmt]:
        f = self.facts
        if f.cut is None:
            return self._plain_backward(saved)
        dx, dy = ref("dx"), ref("dy")
        outer, inner = self._saved(saved, NORM), self._saved(saved, MATRIX)
        assert (outer.group, inner.group) == (OUTER, INNER)
        body: list[Stmt] = []
        dz = dx
        x: tuple[Expr, ...] = ()
        if f.sequence_parallel:
            dz = ref("dz")
            body.append(let(dz, call("all_gather", dx, axes=[f.cut])))
            x = (call("all_gather", call("output", outer), axes=[f.cut]),)
            if f.split_experts:
                body.append(let(ref("whole"), x[0]))
                x = (ref("whole"),)
        body += self._gradient(MATRIX, call("backward_weight", self._weights(MATRIX), inner, dz, *x))
        into = call("backward_input", self._weights(MATRIX), inner, dz)
        through: Expr = into
        if f.experts:
            kept = self._saved(saved, EXPERT)
            if f.whole_experts:  # of the device's own tokens
                dz, x = dx, ()
            body += self._gradient(EXPERT, call("backward_weight", self._weights(EXPERT), kept, dz, *x))
            through = call("backward_input", self._weights(EXPERT), kept, dz)
        body.append(let(dy, self._joined(into, through)))
        body += self._gradient(NORM, call("backward_weight", self._weights(NORM), outer, dy))
        body.append(let(dx, infix("+", dx, call("backward_input", self._weights(NORM), outer, dy))))
        return body

    def _plain_backward(self, saved: str) -> list[Stmt]:
        kept, dx, w = self._saved(saved, None), ref("dx"), self._weights(None)
        if self.facts.norms_each:  # of the blocks' gradients those that are sums over each device's own tokens are added up as they come
            made = ref(self._own("g"))
            each = [s for g in self.facts.trained for s in self._gradient(g, of(made, g))]
            produced = let(made, call("backward_weight", w, kept, dx))
            return [produced, *each, do("free", made), let(dx, call("backward_input", w, kept, dx))]
        if not self.facts.loops and self.facts.stages is None:
            return self._gradient(None, call("backward", w, kept, dx))
        return [*self._gradient(None, call("backward_weight", w, kept, dx)), let(dx, call("backward_input", w, kept, dx))]

    # Gradients.

    def _gradient(self, group: str | None, produced: Expr) -> list[Stmt]:
        """Where a gradient goes: reduced as it is produced, or into the unit's bucket."""
        if group in self.facts.summed_with_norms and self.facts.norms_each:
            produced = call("all_reduce", produced, axes=self.facts.summed_over(group or ""))
        if self.facts.bucketed:
            below = [v for v, d in self._loops if d != "units"]
            return [let(ref(self._own("bucket"), group, below[-1] if below else None), produced)]
        groups = self._reduced_apart
        if group is not None or groups == (None,):
            return [let(ref("gradients", group, self._inner), self._reduced(produced, group), add=self.facts.microbatches)]
        name = self._own("g")
        return [let(ref(name), produced), *self._reductions(ref(name), self._inner), do("free", ref(name))]

    @property
    def _reduced_apart(self) -> tuple[str | None, ...]:
        """The groups whose gradients are reduced apart as they are produced."""
        f = self.facts
        return f.apart(f.early, *(axes for op, axes in f.late if f.on_host(GRADIENTS) and op != "all_gather"), trained=True)

    def _reductions(self, produced: Ref, index: str | None) -> list[Stmt]:
        add = self.facts.microbatches
        return [let(ref("gradients", g, index), self._reduced(of(produced, g), g), add=add) for g in self._reduced_apart]

    def _bucketed(self, body: list[Stmt]) -> list[Stmt]:
        if not self.facts.bucketed:
            return body
        bucket = ref(self._own("bucket"))
        return [*body, *self._reductions(bucket, FIRST_UNIT if self.root else "u"), do("free", bucket)]

    def _reduced(self, produced: Expr, group: str | None = None) -> Expr:
        f = self.facts
        value, early = produced, f.among(f.early, group)
        if early:
            value = self._quantised(produced, early) or self._scattered(produced, early)
        if not f.on_host(GRADIENTS):
            return value
        for op, axes in f.late:  # on the host nothing reduces them later; what the update reads whole is gathered before it
            if op != "all_gather" and (over := f.among(axes, group)):
                value = call(op, value, axes=over)
        return call("to_host", value)

    def _scattered(self, produced: Expr, axes: tuple[str, ...]) -> Expr:
        if self.facts.strategy.schedule.reduce == "all_reduce":
            return call("part", call("all_reduce", produced, axes=axes), axes=axes)
        return call("reduce_scatter", produced, axes=axes)

    def _quantised(self, produced: Expr, axes: tuple[str, ...]) -> Expr | None:
        """qgZ: one all-to-all inside each node, then one between nodes, each with quantised gradients."""
        f = self.facts
        width = f.strategy.schedule.reduce_width
        if width is None or width == "b_g":
            return None
        value = produced
        for axis in reversed([factor for name in axes for factor in f.strategy.axis(name).factors]):
            sent = call("reduce_scatter", call("quantize", value, ref(width)), axes=[axis], via="all_to_all")
            value = call("dequantize", sent)
        return value
