"""What exact bytes need to know of a module: its tensors by the units that are wrapped, and what one step of it does with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from placeproof.core.diagnostics import Problems
from placeproof.core.shapes import BUFFER_TYPES, WEIGHT_TYPES, Shapes, Unit, Weight

_HELP = "list the parameters in a file of shapes"


def module_shapes(module: Any, step: Callable[[], object], *, units: Iterable[Any] = (), name: str = "") -> Shapes:
    """The shapes of a torch module that is not wrapped. ``step`` runs forward and backward on it, as a training step does, any number of
    times; ``units``: the modules that are wrapped by themselves, inside of it. Gradients that it leaves are taken away.

    Raises InputError for what exact bytes cannot speak of: a unit that runs several times in a pass, sparse gradients, element types that
    they do not know.
    """
    watched = Watched(module, units)
    with watched:
        step()
    return watched.shapes(name or type(module).__name__)


class Watched:
    """Hooks on a module that note what a step does. ``order``: parameters as their gradients become ready, in the last backward."""

    def __init__(self, module: Any, units: Iterable[Any] = ()) -> None:
        self.module = module
        wanted = {id(unit) for unit in units}
        self.wrapped = {name: one for name, one in module.named_modules(remove_duplicate=False) if name and id(one) in wanted}
        self.order: list[str] = []
        self.sparse: list[str] = []
        self.runs = Counter[str]()
        self.passes = 0
        self.reached: set[str] = set()
        self._handles: list[Any] = []

    def __enter__(self) -> Watched:
        add = self._handles.append
        add(self.module.register_forward_pre_hook(self._begun))
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad:
                add(parameter.register_post_accumulate_grad_hook(lambda p, name=name: self._ready(name, p)))
        for name, unit in self.wrapped.items():
            add(unit.register_forward_hook(lambda _, __, made, name=name: self._ran(name, made)))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _begun(self, *_: Any) -> None:
        self.passes += 1
        self.order.clear()

    def _ready(self, name: str, parameter: Any) -> None:
        self.order.append(name)
        if parameter.grad.is_sparse:
            self.sparse.append(name)

    def _ran(self, name: str, made: Any) -> None:
        from torch.utils._pytree import tree_leaves

        if in_backward():
            return  # which computes it again
        self.runs[name] += 1
        if any(getattr(one, "requires_grad", False) for one in tree_leaves(made)):
            self.reached.add(name)

    def shapes(self, name: str) -> Shapes:
        """What was seen. Raises InputError as :func:`module_shapes` does."""
        self._check()
        learn = set(self.order)

        def weight(name: str, parameter: Any) -> Weight:
            trained = bool(parameter.requires_grad)
            shape, idle = tuple(parameter.shape), trained and name not in learn
            return Weight(name=name, shape=shape, dtype=kind(parameter), trained=trained, idle=idle)

        found: dict[str, list[Weight]] = {name: [] for name in ("root", *self.runs)}
        for names, parameter in parameters(self.module):
            found[unit_of(names, self.runs)].append(weight(names[0], parameter))
        units = (Unit(name=n, weights=tuple(w), backward=n == "root" or n in self.reached) for n, w in found.items())
        buffers = tuple(counted(self.module.buffers()).items())
        registered = tuple(name for name, _ in self.module.named_parameters())
        return Shapes(name=name, units=tuple(units), used=tuple(self.order[::-1]), registered=registered, buffers=buffers)

    def _check(self) -> None:
        problems = Problems()
        if not self.passes or not self.order:
            problems.add("PP601", "no step was seen: nothing ran forward and backward through the module", help="run a step of it")
        for name in self.wrapped:
            if self.runs[name] != self.passes:
                message = f"`{name}` runs {self.runs[name]} times in {self.passes} passes: exact bytes are of units that run once in each"
                problems.add("PP601", message, help="closed forms of the strategy are those of any model")
        if len({id(one) for one in self.wrapped.values()}) < len(self.wrapped):
            problems.add("PP601", "a unit has several places in the module: exact bytes are of units that run once", help=_HELP)
        for name in dict.fromkeys(self.sparse):
            problems.add("PP601", f"`{name}` gets a sparse gradient, of which exact bytes do not speak", help="leave `sparse=True` out")
        for name, parameter in self.module.named_parameters():
            if kind(parameter) not in WEIGHT_TYPES:
                problems.add("PP601", f"`{name}` is of {kind(parameter)}, of which exact bytes do not speak", help=_HELP)
        for name, buffer in self.module.named_buffers():
            if kind(buffer) not in BUFFER_TYPES:
                problems.add("PP601", f"buffer `{name}` is of {kind(buffer)}, of which exact bytes do not speak", help=_HELP)
        problems.raise_if_any()


def in_backward() -> bool:
    """Whether this is called while autograd runs."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)


def kind(tensor: Any) -> str:
    """The name of a tensor's element type."""
    return str(tensor.dtype).removeprefix("torch.")


def parameters(module: Any) -> list[tuple[list[str], Any]]:
    """Each parameter once, with all of its names."""
    names: dict[int, tuple[list[str], Any]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), ([], parameter))[0].append(name)
    return list(names.values())


def unit_of(names: Sequence[str], wrapped: Collection[str]) -> str:
    """The innermost wrapped module around all of some parameters; "root" where there is none."""
    around = names[0]
    while around := around.rpartition(".")[0]:
        if around in wrapped and all(name.startswith(f"{around}.") for name in names):
            return around
    return "root"


def counted(tensors: Iterator[Any]) -> Counter[str]:
    """Elements by type."""
    found = Counter[str]()
    for tensor in tensors:
        found[kind(tensor)] += tensor.numel()
    return found
