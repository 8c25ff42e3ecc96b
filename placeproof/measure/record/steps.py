"""What a step trains of what a script's optimizers have, and what it reads of samples that were given in the step before."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from weakref import WeakSet

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import _disable_current_modes

from placeproof.measure.record.chain import refuse_lines
from placeproof.measure.record.digests import digest
from placeproof.measure.record.recording import Recording
from placeproof.measure.record.shadow import local

#: What wrappers add to names.
_WRAPPED = re.compile(r"\b(_fsdp_wrapped_module|_checkpoint_wrapped_module|_orig_mod)\.|^module\.")


class Optimizers:
    """Those that a script has made. What one has that does not update in a step, another step may train."""

    def __init__(self) -> None:
        self._made: WeakSet[Optimizer] = WeakSet()
        self._update: WeakSet[Optimizer] = WeakSet()
        self._loose = dict[int, tuple[Tensor, str]]()

    def made(self, optimizer: Optimizer) -> None:
        """An optimizer is given parameters."""
        self._made.add(optimizer)

    def updates(self, optimizer: Optimizer) -> None:
        """An optimizer begins an update."""
        self._update.add(optimizer)

    def again(self) -> None:
        """Another step begins."""
        self._update.clear()
        self._loose.clear()

    def trained(self, read: Iterable[Tensor]) -> Iterator[Tensor]:
        """The leaves among tensors that are trained: parameters, of modules or of optimizers."""
        for tensor in read:
            if tensor.requires_grad and tensor.is_leaf:
                if isinstance(tensor, nn.Parameter) or any(tensor is p for p in self.parameters()):
                    yield tensor
                elif id(tensor) not in self._loose:
                    with _disable_current_modes():
                        self._loose[id(tensor)] = tensor, digest(tensor.detach())

    def ends(self, recording: Recording) -> None:
        """A step is over. Raises InputError for a tensor that gets a gradient, and other values, and is no parameter."""
        with _disable_current_modes():
            own = any(t.grad is not None and digest(t.detach()) != before for t, before in self._loose.values())
        if own and not any(event.kind in ("send", "recv") for event in recording.events):  # a stage reuses what it receives into
            text = "a tensor that is no parameter gets a gradient, and other values afterwards: whether ranks do the same is not seen"
            refuse_lines(recording.script, recording.source, [(text, 0)], help="make it an `nn.Parameter`, or give it to an optimizer")

    def parameters(self) -> Iterator[Tensor]:
        """All that they have."""
        for optimizer in self._made:
            for group in optimizer.param_groups:
                yield from group["params"]

    def idle(self, updated: Iterable[int], states: Callable[[Tensor], frozenset[int]]) -> frozenset[int]:
        """The parameters of optimizers that have not updated any of theirs, where nothing else did. ``states``: of a tensor."""
        left, known = frozenset[int](), frozenset(updated)
        for optimizer in self._made - self._update:
            own = frozenset[int]().union(*(states(p) for group in optimizer.param_groups for p in group["params"]))
            left |= own if not own & known else frozenset()
        return left


def settings(recording: Recording, optimizer: Optimizer, states: Callable[[Tensor], frozenset[int]], *, later: bool) -> None:
    """Write down what an optimizer updates with: its settings, and what it keeps of parameters; of a ``later`` step without numbers, since
    the fake backend has exchanged no gradients before."""
    for group in optimizer.param_groups:
        said = {name: float(v) if isinstance(v, Tensor) else v for name, v in group.items() if name != "params"}
        recording.settings |= {f"{name} {value}" for name, value in said.items()}
        for p in group["params"]:
            own = [(name, v) for name, v in sorted(optimizer.state.get(p, {}).items()) if isinstance(v, Tensor)]
            for index in states(p):
                recording.states[index].kept = ", ".join(name if later else f"{name} {digest(local(v))}" for name, v in own)


def grouped(recording: Recording, optimizer: Optimizer, states: Callable[[Tensor], frozenset[int]], model: nn.Module | None) -> None:
    """Write down with which settings an optimizer updates parameters that the ``model`` has, or that its own are made of."""
    names = {id(p): _names(p, name) for name, p in (model.named_parameters() if model is not None else ())}
    unlike, own = set[str](), False
    for group in optimizer.param_groups:
        said = {name: float(v) if isinstance(v, Tensor) else v for name, v in group.items() if name not in ("params", "param_names")}
        text = f"{type(optimizer).__name__} {sorted(said.items())}"
        unlike.add(text)
        own |= any(said.get(name) != default for name, default in optimizer.defaults.items() if not isinstance(default, Tensor))
        for p in group["params"]:
            for name in names.get(id(p)) or [_WRAPPED.sub("", recording.states[i].name) for i in states(p)]:
                recording.groups[name] = recording.groups.get(name, frozenset()) | {text}
    recording.grouped = max(recording.grouped, len(unlike) if own or len(unlike) > 1 else 0)


def _names(parameter: Tensor, name: str) -> list[str]:
    """What a parameter is called without wrappers; of one that FSDP1 has made of several, what all of these are."""
    flat = getattr(parameter, "_fqns", None)
    before = name.rpartition("_flat_param")[0]
    return [_WRAPPED.sub("", before + own) for own in flat] if flat is not None else [_WRAPPED.sub("", name)]


class Given:
    """Samples of the passes before: what was computed of them may be differentiated in another one. ``more``: a module is given such."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.more = False
        self._inputs, self._rows, self._by_row = tuple[str, ...](), 0, list[tuple[str, ...]]()

    def keep(self) -> None:
        """A step is over."""
        own = self.recording
        self._inputs = tuple(one for given in own.inputs.values() for one in given)
        self._rows = next(iter(own.rows.values()), 0)
        self._by_row = [row for rows in own.by_row.values() for row in rows]

    def passes(self) -> None:
        """A backward pass begins: also of the samples of the one before, if modules were given what was made of these, or no others."""
        own, turn = self.recording, len(self.recording.turns)
        if own.inputs.get(turn) and not self.more:
            return
        self.more = False
        last = turn - 1
        inputs, rows, by_row = (
            (own.inputs.get(last, ()), own.rows.get(last, 0), own.by_row.get(last, []))
            if turn
            else (self._inputs, self._rows, self._by_row)
        )
        own.inputs[turn], own.rows[turn] = (*inputs, *own.inputs.get(turn, ())), own.rows.get(turn) or rows
        own.by_row[turn] = [*by_row, *own.by_row.get(turn, [])]
