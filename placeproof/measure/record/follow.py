"""Follows what happens to gradients and parameters through every operation that PyTorch dispatches, from backward to the update."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import _disable_current_modes

from placeproof.measure.record.adapting import Adapting
from placeproof.measure.record.arithmetic import Arithmetic, of_nothing
from placeproof.measure.record.axes import key
from placeproof.measure.record.chain import refuse_lines
from placeproof.measure.record.computed import ASIDE, Computed, Memory
from placeproof.measure.record.digests import by_row, bytes_of, digest, of_buffers
from placeproof.measure.record.exchange import Exchanged, Underway, carry, places, read_exchange
from placeproof.measure.record.frames import CLIPPING, DISTRIBUTED, FLAT, TORCH, WRAPPERS, begun_by, line_of, within
from placeproof.measure.record.masters import copied, read_whole
from placeproof.measure.record.moves import MOVES
from placeproof.measure.record.nodes import AGAIN, COLLECTIVES, NOTHING, ZERO, Node
from placeproof.measure.record.recording import Piece, Recording, Seen, State, Where
from placeproof.measure.record.runs import Runs, combined, mapped
from placeproof.measure.record.shadow import Shadows, flat, local, partial_over, place_of, split_over, written
from placeproof.measure.record.steps import Given, Optimizers, grouped, settings
from placeproof.measure.record.stretches import Stretches, is_result
from placeproof.measure.record.trail import Trail
from placeproof.measure.recorder import NAMESPACES

_STATISTICS = frozenset(("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "cudnn_batch_norm", "batch_norm"))

#: What makes one number of several elements.
_OF_SEVERAL = frozenset(
    ("_foreach_norm", "amax", "amin", "dot", "linalg_vector_norm", "max", "mean", "min", "mm", "norm", "std", "sum", "var", "vdot")
)

#: Up to how many elements of what is gathered are kept, row by row.
_ROWS = 1 << 18
#: What leaves a tensor's numbers where they are.
_SAME = frozenset(("detach", "_unsafe_view", "_reshape_alias", "resize", "resize_", "_local_scalar_dense"))


class OverError(BaseException):
    """The step that was asked for is over, or cannot go on alone: nothing of what the script would do after it is looked at."""


class Follower:
    """What is known of a run so far, and what is done at each of its events. An axis is called by its ranks until all are known."""

    def __init__(self, recording: Recording, script: Path, step: int, trail: Trail) -> None:
        self.recording, self.nodes = recording, recording.nodes
        self.shadows = Shadows(self.nodes)
        self.script, self.step, self.trail = str(script), step, trail
        self.arithmetic = Arithmetic(self.nodes, self.shadows, self._by_hand, lambda: within(CLIPPING))
        self.stretches = Stretches(recording)
        self.phase, self.optimizing, self.done, self.frozen = "setup", 0, 0, False
        self.watching = dist.get_backend() == "fake"  # where others send, they write a tensor at any time
        self.leaves: dict[int, Tensor] = {}
        self.owned: dict[int, Tensor] = {}
        self.read: dict[int, frozenset[int]] = {}
        self.awaited: set[tuple[int, int, int]] = set()
        self.before: dict[int, Tensor] = {}
        self.after: dict[int, tuple[Tensor, float]] = {}
        self.model: nn.Module | None = None
        self.begun, self._next_given, self._next_rows = False, list[str](), dict[int, int]()
        self.inside, self.passing, self._next_by_row = 0, False, list[tuple[str, ...]]()
        self.computed, self.memory, self.underway = Computed(recording), Memory(), Underway()
        self.optimizers, self.before_step, self.adapting = Optimizers(), Given(recording), Adapting(recording)

    @property
    def seen(self) -> bool:
        """Whether what was asked for was seen, so that the script may fail: another rank that has ended is missed."""
        return self.frozen

    def returned(self) -> None:
        """The script has come to its end."""

    def line(self) -> int:
        """The line of the script that is being run; 0 for none."""
        return line_of(self.script)

    # Parameters.

    def parameter(self, tensor: Tensor) -> None:
        """From now on, this tensor is a parameter, unless it is made of some already."""
        with _disable_current_modes():
            part = local(tensor)
            self.adapting.knows(part)
            if self.frozen or part.is_meta or (self.shadows.known(part) and self.shadows.terms(part)):
                return
            index = len(self.recording.states)
            state = State(name=f"parameter {index}", numel=part.numel(), dim=part.dim(), digest=digest(part), late=self.done > 0)
            self.recording.states.append(state)
            self.shadows.write(part, self.nodes.add(Node(kind="param", index=index)))
            self._keep_sums([part])

    def rename(self, tensor: Tensor, name: str) -> None:
        """Give a parameter the name that the whole model has for it."""
        part = local(tensor)
        terms = self.shadows.terms(part)
        for n in terms:
            if len(terms) == 1 and self.nodes[n].kind == "param":
                state = self.recording.states[self.nodes[n].index]
                state.name, state.piece = name, part.numel() < state.numel

    def changed(self, parameter: Tensor) -> bool | None:
        """Whether a parameter that is not trained is not what it was in the set-up; None in the first step, where that is compared."""
        own = {self.recording.states[i].digest for i in self.states_of(parameter)}
        return digest(local(parameter)) not in own if self.done or self.phase in ("update", "after") else None

    def runs(self, module: nn.Module) -> None:
        """A module is run that no other one runs."""
        for index in (i for p in module.parameters() for i in self.states_of(p)):
            self.recording.states[index].run = True

    def leaf(self, tensor: Tensor) -> None:
        """Forward reads a tensor of which a gradient will be made."""
        self.next_step()
        if self.frozen:
            return
        first = id(tensor) not in self.leaves
        if first:
            self.parameter(tensor)
            self.leaves[id(tensor)] = tensor
            tensor.register_hook(lambda gradient: self._made(tensor, gradient))
            _first(tensor._backward_hooks)
        self.phase = "forward" if self.phase != "backward" else self.phase
        with _disable_current_modes():
            terms = self.shadows.terms(local(tensor))
        states = self.nodes.of_all(terms)
        self._use(tensor, terms, states)
        self.read[id(tensor)] = states
        self.adapting.reads(tensor, self.line())
        self.recording.events.append(Seen(kind="use", phase=self.phase, states=states, turn=len(self.recording.turns), line=self.line()))

    def function(self, given: Sequence[Any], out: Any) -> None:
        """A function was called: what it read, and the leaves among this, if autograd will differentiate its result."""
        read, made = flat(given), flat((out,))
        if torch.is_grad_enabled() and any(map(is_result, made)):
            for tensor in self.optimizers.trained(read):
                self.leaf(tensor)
            result = next(filter(is_result, read), None)
            if result is not None and not self.inside and self.phase != "backward":
                self.beside(result, [t for t in read if not t.requires_grad])
                self.stretches.beside(result, [t for t in read if not t.requires_grad])
        if not self.frozen and self.phase != "backward":
            self.stretches.read(read, made, inside=bool(self.inside))

    def given(self, values: Sequence[Any]) -> None:
        """A module is run that no other one runs: the samples that it is given."""
        if self.frozen:
            return
        with _disable_current_modes():
            own = [digest(local(v)) for v in values if isinstance(v, Tensor) and not v.requires_grad and v.numel()]
            self.computed.given(local(v) for v in values if isinstance(v, Tensor))
            first = next((v for v in values if isinstance(v, Tensor)), None)
            generated = first is not None and not first.requires_grad and self.computed.made_after(local(first)) is not None
            results = [self.computed.made_after(local(v)) for v in values if isinstance(v, Tensor) and v.requires_grad]
            self.before_step.more |= any(n is not None and n < self.computed.passes for n in results)
        sizes = [v.shape[0] for v in values if isinstance(v, Tensor) and v.dim() and not v.requires_grad]
        rows, turn = (self._next_rows, 0) if self.phase in ("update", "after") else (self.recording.rows, len(self.recording.turns))
        rows[turn] = rows.get(turn) or (sizes[0] if sizes else 0)
        self.recording.generated |= {turn if rows is self.recording.rows else -1} if generated else set()
        self._row_by_row([v for v in values if isinstance(v, Tensor) and v.dim() and v.shape[0] == rows[turn] and not v.requires_grad])
        if self.phase in ("update", "after"):
            self._next_given += own  # another step begins, if a parameter is read
            return
        self.recording.inputs[turn] = (*self.recording.inputs.get(turn, ()), *own)

    def beside(self, result: Tensor, read: Sequence[Tensor]) -> None:
        """Outside of all modules something is made of a ``result`` of a model, and of other tensors."""
        rows = self.recording.rows.get(len(self.recording.turns), 0)
        if self.frozen or self.phase not in ("forward", "between") or not rows or not result.dim() or result.shape[0] % rows:
            return
        self._row_by_row([t for t in read if t.dim() and t.shape[0] == result.shape[0] and t.numel() % rows == 0])

    def _row_by_row(self, tensors: Sequence[Tensor]) -> None:
        """Keep what there is of each sample."""
        later = self.phase in ("update", "after")
        rows = (self._next_rows if later else self.recording.rows).get(0 if later else len(self.recording.turns), 0)
        kept = self._next_by_row if later else self.recording.by_row.setdefault(len(self.recording.turns), [])
        kept += by_row(tensors, rows)

    def begin(self, model: nn.Module) -> None:
        """The model is run for the first time: what was read of parameters before, and exchanged, built it."""
        self.begun = True
        self.model = model.module if isinstance(model, DistributedDataParallel) else model  # one that is dropped takes its hooks with it
        self.computed.runs(model)
        self.recording.buffers = of_buffers(self.model, read=True)
        self.recording.events[:] = [replace(e, phase="setup") for e in self.recording.events if e.kind != "use"]
        for state in self.recording.states:
            state.used, state.gathered = "", False

    def _use(self, tensor: Tensor, terms: tuple[int, ...], states: frozenset[int]) -> None:
        part = local(tensor)
        gathered = any(self.nodes.holds(n, "all_gather") for n in terms)
        split = split_over(tensor)
        for index in states:
            state = self.recording.states[index]
            state.gathered |= gathered
            state.part = part.numel() if len(states) == 1 else state.numel
            if split is not None:
                state.split = split
            if not state.used and not gathered:
                with _disable_current_modes():
                    state.used, state.constant = digest(part), bool((part == part.reshape(-1)[:1]).all())

    def _made(self, tensor: Tensor, gradient: Tensor) -> None:
        """A gradient of a parameter was made."""
        if self.frozen:
            return
        if gradient.layout != torch.strided:
            name = ", ".join(self.recording.states[i].name for i in sorted(self.read[id(tensor)]))
            text = f"the gradient of `{name}` is sparse: which of its elements are there differs between ranks"
            refuse_lines(self.recording.script, self.recording.source, [(text, self.line())])
        with _disable_current_modes():
            turn = len(self.recording.turns) - 1
            terms = self.shadows.read(local(tensor))
            partial = tuple(k for k in partial_over(gradient) if k in (split_over(tensor) or ()))
            numbers = mapped(lambda n: self._passed(n, turn, partial), terms)
            self.shadows.write(local(gradient), numbers if numbers.only is None else numbers.only)
            self._keep_sums([local(gradient)])
            states = self.nodes.of_all(terms.distinct())
            self.recording.events.append(Seen(kind="pass", phase="backward", states=states, turn=turn, line=self.line()))

    def _passed(self, number: int, turn: int, partial: tuple[str, ...]) -> int:
        """The gradient of a parameter; or of all parts of one that is split, of which ranks still have to add up what they have."""
        states = self.nodes.states(number)
        if not states:
            return NOTHING
        made = self.nodes.add(Node(kind="pass", index=min(states), turn=turn))
        made = made if self.passing else self.nodes.unknown((made,), "`torch.autograd.grad`", self.line())  # of any loss
        return self.nodes.add(Node(kind="partial", of=(made,), axes=partial)) if partial else made

    def begin_pass(self) -> None:
        """A backward pass begins: after an update, of another step."""
        self.next_step()
        if not self.frozen:
            self.before_step.passes()

    # The update.

    def states_of(self, tensor: Tensor) -> frozenset[int]:
        """The parameters that a tensor is, or is made of, by their numbers."""
        with _disable_current_modes():
            return self.nodes.of_all(self.shadows.terms(local(tensor)))

    def settings(self, optimizer: torch.optim.Optimizer) -> None:
        """What an optimizer begins its update with."""
        if not self.frozen and self.recording.turns:
            with _disable_current_modes():
                settings(self.recording, optimizer, self.states_of, later=bool(self.done))
                grouped(self.recording, optimizer, self.states_of, self.model)

    def before_update(self, parameters: Sequence[Tensor], scale: Fraction | None = None) -> None:
        """An optimizer begins its step: what gradients are now is what the update reads, divided by a loss's scale if it has one."""
        if self.frozen:
            raise OverError
        self.optimizing += 1
        if not self.recording.turns:
            return
        self.phase = "update"
        self.adapting.updates((p for p in parameters if p.grad is not None), self.line())
        with _disable_current_modes():
            leaves = [t for t in self.leaves.values() if self.adapting.has_read(t)]  # others were read to build the model
            forward = dict(read_whole(leaves, self.shadows, self.nodes))
            for p in parameters:
                self.owned[id(p)] = p
                if p.grad is not None:
                    self._copied(p, forward)
                    self._reads(p, p.grad, scale or Fraction(1))
                    self.before.setdefault(id(p), local(p).detach().clone())

    def _copied(self, p: Tensor, forward: Mapping[int, tuple[int, Tensor]]) -> None:
        """An optimizer has a copy of what forward read."""
        for index, unlike in copied(p, forward, self.shadows, self.nodes, values=not self.watching):
            state = self.recording.states[index]
            self.recording.by_others |= bool(state.synced)
            state.unlike |= unlike

    def _reads(self, p: Tensor, gradient: Tensor, scale: Fraction) -> None:
        terms, read = self.shadows.read(local(p)), self.shadows.read(local(gradient))
        partial = partial_over(gradient)
        if terms.length != read.length and isinstance(gradient, DTensor) and terms.only and read.only:
            read = Runs.same(read.only, terms.length)  # of a whole gradient the part that this rank updates
        if terms.length != read.length or not terms.length:
            return
        for of, made in combined(terms, read)[0]:
            term = self.nodes.scaled(made, 1 / scale, self.line())
            if of > ZERO:
                self._by_hand(of, self.nodes.exchanged(term, Node(kind="all_reduce", axes=partial, op="sum")) if partial else term)

    def _by_hand(self, parameter: int, term: int, rate: Fraction | None = None) -> None:
        """A parameter is updated with a gradient, times a rate that is the script's own."""
        if self.nodes.holds(parameter, "updated"):
            term = self.nodes.unknown((term,), AGAIN, self.line())
        for index in self.nodes.states(parameter):
            before = self.recording.updates.get(index, ())
            self.recording.states[index].astray |= self.nodes.holds(parameter, "all_gather")
            if term not in before:
                self.recording.updates[index] = (*before, term)
            if rate is not None:
                self.recording.states[index].rates |= {rate}
        self.phase = "update" if self.optimizing else "after"

    def after_update(self) -> None:
        """An optimizer has ended its step."""
        self.optimizing -= 1
        if self.optimizing:
            return
        if self.recording.updates:
            self.phase = "after"
        with _disable_current_modes(), torch.no_grad():
            for name, before in self.before.items():
                now = local(self.owned[name]).detach()
                self.after[name] = now.clone(), _apart(now, before)
        self.before.clear()

    def next_step(self) -> None:
        """Forward begins: after an update, another step does. Raises OverError where the one that was asked for is over, unless a stage of
        a pipeline waits for what this one sends in the next step: then it goes on up to its next update, unfollowed."""
        if self.phase not in ("update", "after") or self.optimizing or self.frozen:
            return
        self.done += 1
        if self.done >= self.step:
            self.recording.sums = self.arithmetic.kept()
            self.end()
            if any(e.kind in ("send", "recv") for e in self.recording.events):
                return
            raise OverError
        with _disable_current_modes():
            self.shadows.forget()
        self.optimizers.again()
        self.adapting.begins(self.done + 1)
        self.before_step.keep()
        self.recording.passed += len(self.recording.turns)
        self.nodes.clipped.clear()
        self.arithmetic.again()
        self.recording.events = [e for e in self.recording.events if e.phase == "setup"]
        self.recording.turns, self.recording.statistics = [], []
        self.stretches.again()
        self.recording.inputs, self._next_given = {0: tuple(self._next_given)}, []
        self.recording.rows, self._next_rows = self._next_rows, {}
        self.recording.generated = {0} if -1 in self.recording.generated else set()
        self.recording.by_row, self._next_by_row = {0: self._next_by_row}, []
        self.recording.updates, self.recording.settings, self.phase = {}, set(), "forward"
        self.recording.groups = {}
        self.after.clear()
        self.recording.buffers = of_buffers(self.model, read=True) | self.computed.begins()

    def end(self) -> None:
        """The step is over: what parameters are now is what it leaves."""
        if self.frozen:
            return
        self.optimizers.ends(self.recording)
        self.frozen = True
        self.recording.buffers_left = of_buffers(self.model, read=False)
        self.recording.step, self.recording.goes_on = self.done + (self.done < self.step), self.done >= self.step
        with _disable_current_modes():
            self.recording.idle = self.optimizers.idle(self.recording.updates, self.states_of)
            self._keep()

    def _keep(self) -> None:
        for tensor in self.owned.values():
            self._unchanged(local(tensor))
        late = [e for e in self.recording.events if e.kind in COLLECTIVES and e.phase in ("update", "after")]
        sent = frozenset(i for e in late for i in e.states) if dist.get_backend() == "fake" else ()
        for name, (updated, change) in self.after.items():
            now = local(self.owned[name]).detach()
            rounding = 16 * torch.finfo(now.dtype).eps * float(updated.abs().max()) if now.numel() else 0.0
            if _apart(now, updated) > change / 100 + rounding:
                for index in self.nodes.of_all(self.shadows.terms(now)) or self.read.get(name, frozenset()):
                    self.recording.states[index].overwritten = index not in sent
        kept = [t for t in self.leaves.values() if not self._gathers(t)] + list(self.owned.values())
        for tensor in kept:
            read = self.shadows.read(local(tensor))
            states = self.read.get(id(tensor), frozenset())
            own = states or self.nodes.of_all(n for n in read.distinct() if n > ZERO)
            there = local(tensor).untyped_storage().nbytes() or not tensor.numel()  # what was gathered for one use may be freed
            state = self.recording.states[min(own)] if len(own) == 1 and dist.get_backend() != "fake" and there else None
            if state is not None and not state.flat:  # what forward reads, rather than the part of it that an optimizer has
                state.left, state.flat = digest(local(tensor)), hashlib.sha256(bytes_of(local(tensor))).hexdigest()
            if len(states) == 1 and any(n <= ZERO for n in read.distinct()):
                self.recording.final[min(states)] = (NOTHING,)
            for number in (n for n in read.distinct() if n > ZERO):
                for index in self.nodes.states(number):
                    self._ends(index, number, tensor)

    def _ends(self, index: int, number: int, tensor: Tensor) -> None:
        before = self.recording.final.get(index, ())
        if not before or (id(tensor) in self.leaves and number not in before):
            self.recording.final[index] = (*before, number)

    def _gathers(self, tensor: Tensor) -> bool:
        """Whether a leaf is what was gathered for one use: its parameter is kept elsewhere."""
        return id(tensor) not in self.owned and all(self.nodes.holds(n, "param") for n in self.shadows.terms(local(tensor)))

    # Operations.

    def begins(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """An operation is about to be done."""
        if self.frozen:
            return
        self.trail.say(name := func._schema.name.rpartition("::")[2], self.phase, line := self.line())
        self.arithmetic.begins(name, args, line)
        for tensor in flat((*args, *kwargs.values())):
            self._unchanged(tensor)

    def _unchanged(self, tensor: Tensor) -> None:
        """Note a parameter or a gradient that is not what PyTorch last wrote there."""
        if self.watching and (self.begun or self.recording.turns) and self.shadows.known(tensor) and self.memory.changed(tensor):
            names = [self.recording.states[i].name for i in sorted(self.nodes.of_all(self.shadows.terms(tensor)))]
            self.recording.past.append((", ".join(names[:1]), self.line()))
            self.memory.keep([tensor])

    def _keep_sums(self, tensors: Sequence[Tensor]) -> None:
        if self.watching:
            self.memory.keep(t for t in tensors if self.shadows.known(t))

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        """Follow one operation, after it was done."""
        if self.frozen:
            return
        self._follow(func, args, kwargs, out)
        made = flat((out, *written(func, args), *(v for name, v in kwargs.items() if name.startswith("out"))))
        if not func.is_view:
            self._keep_sums(made)
        read = flat((*args, *(v for name, v in kwargs.items() if not name.startswith("out"))))
        if not self.optimizing and func.namespace not in NAMESPACES and self.phase != "backward":
            aside = self.phase != "forward"
            self.adapting.operation(func, args, kwargs, out, self.line(), aside=aside)
        beside = [t for t in read if not self.shadows.known(t)]
        values = (*args, *kwargs.values())
        own = [v for v in values if not (isinstance(v, float) and v in self.arithmetic.numbers)]  # ranks may have norms of their own
        self.computed.operation(func, read, made, beside, own, self._where(func, args))

    def _where(self, func: Any, args: tuple[Any, ...]) -> Where | None:
        """Where of a step something is computed, if it is of a loss, of a backward pass, or of an update by hand."""
        name = func._schema.name.rpartition("::")[2]
        if func.namespace in NAMESPACES or name in _STATISTICS or self.optimizing or self.phase == "setup":
            return None
        if self.phase != "backward" and (begun_by(DISTRIBUTED) or (name == "constant_pad_nd" and within(FLAT))):
            return None
        run = self.phase == "forward" and len(self.recording.turns) in self.recording.rows  # what is made of samples before, is data
        aside = not any(t.requires_grad or self.shadows.known(t) for t in flat(args))
        phase = ASIDE if aside and self.phase != "backward" else "" if self.phase == "forward" else self.phase
        return (self.line(), name, phase) if run or phase != ASIDE else None

    def _follow(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        if func.namespace in NAMESPACES:
            done = read_exchange(func, args, kwargs, out)
            if done is not None and len(done.ranks) == 1 < self.recording.world and 1 not in self.recording.mesh.values():
                for read, into in zip(done.reads, done.writes, strict=True):  # a rank by itself exchanges nothing
                    self.shadows.write(into, self.shadows.read(read))
            elif done is not None:
                self._exchange(done)
                self.adapting.exchanges(done, gradient=self.recording.events[-1].gradient, line=self.line())
            return
        name = func._schema.name.rpartition("::")[2]
        if not self.inside and not func.is_view and self.phase in ("setup", "forward", "between") and dist.get_backend() != "fake":
            self.stretches.makers.made(name, (t for t in flat((out,)) if not self.shadows.known(t)), self.line())
        if name in _STATISTICS and any(a is True for a in args):
            self.recording.statistics.append(self.line())
        if name in MOVES:
            if self._any(args) or self._any(tuple(kwargs.values())):
                self._move(func, args, kwargs, out)
        elif self.optimizing:
            if name in _OF_SEVERAL and self._any(args):
                self.recording.whole = self.recording.whole or self.line()
            self._rewritten(func, args, "update")
        elif self._any((*args, *kwargs.values())) or (isinstance(out, Tensor) and of_nothing(name, args)):
            self._arithmetic(name, func, args, kwargs, out)

    def _arithmetic(self, name: str, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        if self.phase == "setup":
            self._rewritten(func, args, "setup")
            return
        if name == "_local_scalar_dense":
            self.arithmetic.left |= any(self.nodes.is_norm(n) or self.nodes[n].kind == "clip" for n in self.shadows.terms(args[0]))
        if (func.is_view and name != "lift_fresh") or name in _SAME:
            return
        self.arithmetic.line, self.arithmetic.counts = self.line(), {self.recording.world, len(self.recording.turns)}
        if self.arithmetic.follow(name, args, kwargs, out):
            self.recording.own |= name.strip("_").removeprefix("foreach_") in ("mul", "div") and not begun_by(TORCH)
            return
        own = tuple(n for t in flat(args) for n in self.shadows.terms(t) if n > ZERO and not self.nodes.is_parameter(n))
        made = self.nodes.unknown(own, f"`{name}`", self.line()) if own and self.phase != "backward" else NOTHING
        for tensor in flat((out, written(func, args))) if own or self._any((out,)) else ():
            if not self._parameters_only(tensor):
                self.shadows.write(tensor, made)

    def _parameters_only(self, tensor: Tensor) -> bool:
        terms = self.shadows.terms(tensor)
        return bool(terms) and all(self.nodes.is_parameter(n) for n in terms)

    def _of_others(self, source: Tensor, into: Tensor) -> bool:
        """Whether what is copied into a parameter is none, or another one: one whose values are loaded stays what it is."""
        return not self.nodes.of_all(self.shadows.terms(source)) & self.nodes.of_all(self.shadows.terms(into))

    def _any(self, values: tuple[Any, ...]) -> bool:
        return any(self.shadows.known(t) for t in flat(values))

    def _move(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        into = args[0] if func._schema.name.endswith("::copy_") else None
        if into is not None and self.phase == "setup" and self._parameters_only(into) and self._of_others(args[1], into):
            self._rehash(into)
            return
        if into is not None and self.awaited and place_of(into) in self.awaited and not self.shadows.terms(args[1]):
            self.awaited.discard(place_of(into))  # gloo sums all in a buffer of its own, and copies a part of it when it is waited for
            return
        self.shadows.moved(func, args, kwargs, out)

    def _rewritten(self, func: Any, args: tuple[Any, ...], phase: str) -> None:
        """A parameter was written: initialised in the set-up, or updated by an optimizer."""
        for tensor in flat(written(func, args)):
            if self._parameters_only(tensor) and phase == "setup":
                self._rehash(tensor)
            elif self._parameters_only(tensor):
                self.shadows.write(tensor, mapped(self._new, self.shadows.read(tensor)))

    def _new(self, number: int) -> int:
        return self.nodes.add(Node(kind="updated", index=min(self.nodes.states(number)))) if number > ZERO else number

    def _rehash(self, tensor: Tensor) -> None:
        for n in self.shadows.terms(tensor):
            state = self.recording.states[min(self.nodes.states(n))]
            state.digest = digest(tensor)
            state.synced.clear()  # what was sent before is not what is there now

    def _exchange(self, done: Exchanged) -> None:
        terms = {n for t in done.reads for n in self.shadows.terms(t) if n > ZERO}
        states = self.nodes.of_all(n for n in terms if not self.nodes.is_norm(n))  # each adds a norm of its own
        line, counted = self.line(), done.writes if done.kind == "scatter" else done.reads
        setup = self.phase == "setup"
        if setup and done.kind in ("broadcast", "scatter"):
            for index in states:
                self.recording.states[index].synced.append(done.ranks)
        if not terms and self.phase not in ("backward", "after") and not within(WRAPPERS):
            self.recording.exchanges = True
            whole = [local(t).detach() for t in done.reads if done.kind == "all_gather" and t.dim() and t.numel() <= _ROWS]
            self.recording.gathered |= {row for t in whole for rows in by_row([t], len(t)) for row in rows}
        self.recording.events.append(
            Seen(
                kind=done.kind,
                phase=self.phase,
                states=states,
                group=done.ranks,
                op=done.op,
                numel=sum(t.numel() for t in counted),
                dtype=str(counted[0].dtype).removeprefix("torch.") if counted else "",
                root=done.root,
                line=line,
                turn=len(self.recording.turns),
                updated=any(self.nodes.holds(n, "updated") for n in terms),
                gradient=any(map(self.nodes.is_gradient, terms)),
                places=places(done, self.shadows) if states else (),
            )
        )
        if self.watching and (done.kind == "recv" or (done.kind == "all_to_all" and not terms)):
            raise OverError  # what comes from other ranks, real processes alone know
        self.recording.by_others |= self.computed.of_buffers(done.writes) and not within(WRAPPERS)
        self.stretches.makers.received(done.writes)
        if done.kind == "send":
            self.stretches.sent(done.reads, done.root)
        if done.kind == "all_gather" and self.recording.events[-1].updated and dist.get_backend() != "fake":
            self._pieces(done)
        if done.kind == "reduce_scatter" and dist.get_backend() == "gloo":
            self.awaited |= {place_of(t) for t in done.writes}
        turn = sum((e.kind, e.group) == (done.kind, done.ranks) for e in self.recording.events)
        carry(done, self.shadows, (key(done.ranks),), setup=setup, line=line, turn=turn)

    def _pieces(self, done: Exchanged) -> None:
        """What this rank gives of parameters that it has updated."""
        gather = len(self.recording.events)
        for tensor in done.reads:
            row, at = local(tensor).detach().reshape(-1), 0
            for number, length in self.shadows.read(tensor).lengths():
                for index in self.nodes.states(number) if number > ZERO else ():
                    self.recording.pieces.append(Piece(index, done.ranks, gather, bytes_of(row[at : at + length])))
                at += length


def _apart(a: Tensor, b: Tensor) -> float:
    """How far elements of two tensors are apart, at most."""
    return float((a.double() - b.double()).abs().max()) if a.numel() else 0.0


def _first(hooks: Any) -> None:
    """Let the hook that was registered last run before all others: theirs change gradients, which is followed like anything else."""
    *others, own = list(hooks.items())
    hooks.clear()  # autograd runs hooks in the order in which they were put in, whatever an OrderedDict is told
    hooks.update([own, *others])
