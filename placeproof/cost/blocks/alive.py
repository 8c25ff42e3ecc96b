"""What of a block lies in memory while its passes run, read off its program: the moments between which a device's peak is.

Kernels are taken to be fused: what only element-wise operations and sums read and make is nowhere in memory, as long as forward does not
keep it for backward. In memory are tensors that products of matrices or collectives read or make, what forward keeps, what comes in, and
what is handed on. Products that are added up, or summed, write to one tensor. Gradients by weights are added to where the step keeps them.
Where nothing is kept that has an element for each query and key, attention has none of these in memory (Dao et al. 2022, section 3.1):
what reads or makes them is one kernel, and all that it reads lives until it has made all of its results.

A value lives from the operation that makes it to the last one that reads it, or reads what is made of it within the same kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from placeproof.core.remembered import remembered
from placeproof.cost.blocks.flops import Operation, matrices, operations, storage, taken_apart, weights
from placeproof.cost.blocks.tensors import kept
from placeproof.programs import POSITIONS, Assign, Binary, Call, Do, Program
from placeproof.programs.ops import COLLECTIVES
from placeproof.semantics.layouts.lines import BlockValue, Line, inputs

__all__ = ["Alive", "alive", "products_of_one_value", "uncovered"]

M = TypeVar("M")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """A moment at which an operation runs: whether in ``backward``, and the activations and gradients by them that lie in memory then."""

    backward: bool
    values: tuple[BlockValue, ...]


@remembered
def alive(program: Program, in_place: tuple[frozenset[str], ...] = (), held: tuple[tuple[str, str], ...] = ()) -> tuple[Alive, ...]:
    """The moments of a block's passes, those left out at which another moment of the same pass has the same values and more.

    ``in_place``: names of values that are written one over the other, into one tensor. ``held``: names of values that lie there until
    another one is made. Raises InputError for a program that is no block.
    """
    return tuple(uncovered(_Walk(program, in_place, held).moments(), _sizes))


def uncovered(moments: Iterable[M], sizes: Callable[[M], tuple[bool, Counter[tuple[object, ...]]]]) -> list[M]:
    """Without moments that another one of the same pass covers. ``sizes``: whether one is in backward, and how often it has each size."""
    decisive: list[tuple[M, bool, Counter[tuple[object, ...]]]] = []
    for moment in moments:
        backward, own = sizes(moment)
        if any(late == backward and own <= other for _, late, other in decisive):
            continue
        decisive = [one for one in decisive if one[1] != backward or not one[2] <= own]
        decisive.append((moment, backward, own))
    return [moment for moment, *_ in decisive]


def _sizes(moment: Alive) -> tuple[bool, Counter[tuple[object, ...]]]:
    """By the dimensions of its values."""
    each = ((v.name, *v.layout.dims, *sorted(v.layout.split.items()), v.layout.picks) for v in moment.values)
    return moment.backward, Counter(each)


class _Walk:
    """One walk over a program in which every operation has a statement of its own. ``made``: the number of the one that makes a value,
    ``last`` of the last one that reads it; ``whole``: the values that lie in memory."""

    def __init__(self, program: Program, in_place: tuple[frozenset[str], ...], held: tuple[tuple[str, str], ...] = ()) -> None:
        self.program, self.in_place = program, in_place
        _, self.lines, self.backward = taken_apart(program)
        self.operations = {id(o.result): o for o in operations(program)}
        first = self.backward.index(True) if True in self.backward else len(self.lines)
        given = [v for v in _given(program, self.lines) if v.data or v.incoming]
        self.values = {id(v): v for v in given}
        self.made = {id(v): first if v.incoming else -1 for v in given}
        for i, line in enumerate(self.lines):
            if isinstance(line.stmt, Assign) and storage(line.result) is line.result and id(line.result) not in self.made:
                self.values[id(line.result)], self.made[id(line.result)] = line.result, i
        self.last = {id(v): i for i, line in enumerate(self.lines) for v in map(storage, line.reads)}
        self.scores = self._scores()
        self._put_weights_last()
        self.whole = self._in_memory()
        self._share_kernels()
        made = {value.name: self.made[key] for key, value in self.values.items() if not value.backward}
        until = {name: made[result] for name, result in held if result in made}
        self.last |= {key: max(self.last.get(key, -1), until[v.name]) for key, v in self.values.items() if v.name in until}

    def moments(self) -> Iterator[Alive]:
        """One for each operation that makes something that lies in memory."""
        order = sorted(self.whole, key=lambda key: self.made[key])
        for i in sorted({self.made[key] for key in order if self.made[key] >= 0}):
            now = [self.values[k] for k in order if self.made[k] <= i <= max(self.last.get(k, -1), self.made[k])]
            one_of = {self._tensor(v): v for v in now}
            yield Alive(backward=self.backward[i], values=tuple(one_of.values()))

    def _tensor(self, value: BlockValue) -> object:
        """What stands for the tensor that a value has, or shares with others."""
        return next((names for names in self.in_place if value.name in names), id(value))

    # What lies in memory.

    def _in_memory(self) -> set[int]:
        nowhere = {key for key, value in self.values.items() if not (value.data or value.incoming)} | self._gradients_by_weights()
        nowhere |= self.scores | self._summed() | self._looked_up_to_sum()
        whole = {id(v) for v in _given(self.program, self.lines)}
        for i, line in enumerate(self.lines):
            read = [id(storage(v)) for v in line.reads]
            kernel = self._kernel(line)
            for key in (k for k in read if k in self.made):
                if kernel or isinstance(line.stmt, Do) or (self.backward[i] and not self._of_backward(key)):
                    whole.add(key)
            if kernel and not (self._product(line) and nowhere.intersection(read)):  # of a kernel that goes on with it
                whole.add(id(line.result))
        return (whole & set(self.made)) - nowhere

    def _scores(self) -> set[int]:
        """What has an element for each query and key, if none of these is kept; and what backward contracts for these alone."""
        between = {"keys", "tokens"}
        if any(between <= set(k.dims) for k in kept(self.program)):
            return set()
        scores = {key for key, value in self.values.items() if between <= set(value.layout.dims)}
        others = {id(storage(v)) for line in self.lines if id(line.result) not in scores for v in line.reads}
        made = {
            id(line.result)
            for line, late in zip(self.lines, self.backward, strict=True)
            if late and (o := self._operation(line)) and o.op == "contract"
        }
        return scores | ((made & set(self.last)) - others)

    def _of_backward(self, key: int) -> bool:
        return self.values[key].incoming or (self.made[key] >= 0 and self.backward[self.made[key]])

    def _operation(self, line: Line) -> Operation | None:
        return self.operations.get(id(line.result))

    def _product(self, line: Line) -> bool:
        return (made := self._operation(line)) is not None and made.product

    def _kernel(self, line: Line) -> bool:
        """Whether it is a product of matrices, a look-up, a copy or a collective: kernels of their own, whose operands and results are
        tensors."""
        value = line.stmt.value if isinstance(line.stmt, Assign) else None
        return isinstance(value, Call) and (value.op in COLLECTIVES or value.op in ("contract", "copy"))

    def _gradients_by_weights(self) -> set[int]:
        """What is added up to gradients by weights, from the product that makes them."""
        own, found = set(weights(self.program)), set[int]()
        for line in reversed(self.lines):
            if isinstance(line.stmt, Do):
                found |= {id(storage(v)) for v in line.reads} if line.stmt.call.option("by") in own else set()
            elif id(line.result) in found and _hands_on(line.stmt):
                found |= {id(storage(v)) for v in line.reads if v.incoming}
        return found

    def _looks_up(self, line: Line) -> bool:
        return any(v.layout.hot is not None for v in line.reads)

    def _summed(self) -> set[int]:
        """Products that are only added up, and what only takes its positions from another one: one tensor has them all."""
        uses = Counter(id(storage(v)) for line in self.lines for v in line.reads)
        summed, parts = set[int](), set[int]()
        for line in self.lines:
            read = [storage(v) for v in line.reads if v.layout.hot is None]
            once = all(uses[id(v)] == 1 for v in read)
            if not isinstance(line.stmt, Assign) or not read or not once:
                summed |= {id(line.result)} if self._product(line) else set()
                continue
            adds = _adds(line.stmt) and all(id(v) in summed for v in read)
            moved = self._looks_up(line) and all(v.incoming and id(v) in summed for v in read)
            parts |= {id(v) for v in read} if adds or moved else set()
            summed |= {id(line.result)} if adds or moved or self._product(line) else set()
        return parts

    def _looked_up_to_sum(self) -> set[int]:
        """Rows that are looked up and only added up: nothing but their sum is written."""
        readers: dict[int, list[Line]] = {}
        for line in self.lines:
            for value in line.reads:
                readers.setdefault(id(storage(value)), []).append(line)
        looked_up = (line for line in self.lines if self._kernel(line) and self._looks_up(line) and not self._product(line))
        return {key for line in looked_up if (key := id(line.result)) in readers and all(_totals(r) for r in readers[key])}

    # How long.

    def _put_weights_last(self) -> None:
        """A layer's gradient by its weights is made after the one by its input, and while that is exchanged. What it gathers stays."""
        for i, line in enumerate(self.lines):
            made = self._operation(line)
            if made is None or not made.product or made.during != "weights":
                continue
            end = self._handed_on(i, [v for v in line.reads if v.incoming])
            own = [storage(v) for v in line.reads]
            again = [self.made[id(v)] for v in own if not v.incoming and self.backward[max(self.made.get(id(v), -1), 0)]]
            gathered = [self.lines[i] for i in again if self._kernel(self.lines[i])]
            for value in (*own, *(storage(v) for maker in gathered if maker.sent for v in maker.reads)):
                self.last[id(value)] = max(self.last[id(value)], end)

    def _handed_on(self, i: int, incoming: list[BlockValue]) -> int:
        """The statement that makes the gradient by the input of the layer that has this one by its weights, or that exchanges it."""
        for j in range(i, len(self.lines)):
            made = self._operation(self.lines[j])
            if made is not None and made.product and made.during == "inputs" and any(v in incoming for v in made.reads):
                break
        else:
            return i
        while True:
            reader = next((k for k in range(j + 1, len(self.lines)) if self.lines[j].result in self.lines[k].reads), None)
            stmt = None if reader is None else self.lines[reader].stmt
            if reader is None or not isinstance(stmt, Assign) or not (_adds(stmt) or self._kernel(self.lines[reader])):
                return j
            if not _adds(stmt):
                return reader if isinstance(stmt.value, Call) and stmt.value.op in _REDUCES else j
            j = reader

    def _share_kernels(self) -> None:
        """What a kernel reads lives until it has made all that it makes."""
        self._read_until_made()
        for kernel in self._attention():
            self.last |= dict.fromkeys(kernel, max(self.last[key] for key in kernel))
        self._read_until_made()

    def _read_until_made(self) -> None:
        for line in reversed(self.lines):
            own = id(line.result)
            if isinstance(line.stmt, Assign) and own not in self.whole and own in self.last:
                for key in (id(storage(v)) for v in line.reads):
                    self.last[key] = max(self.last.get(key, -1), self.last[own])

    def _attention(self) -> list[set[int]]:
        """The scores of each kernel: those that are made of one another, or read together."""
        kernels: list[set[int]] = []
        for line in self.lines:
            own = {id(storage(v)) for v in (line.result, *line.reads)} & self.scores & set(self.last)
            if own:
                others = [kernel for kernel in kernels if kernel.isdisjoint(own)]
                kernels = [*others, own.union(*(kernel for kernel in kernels if not kernel.isdisjoint(own)))]
        return kernels


#: Collectives that a layer runs while it makes its gradients by weights.
_REDUCES = ("all_reduce", "reduce_scatter")


def _totals(line: Line) -> bool:
    """Whether it adds up along a dimension."""
    return isinstance(line.stmt, Assign) and isinstance(line.stmt.value, Call) and line.stmt.value.op == "total"


def _adds(stmt: Assign) -> bool:
    match stmt.value:
        case Binary(op="+") | Call(op="total"):
            return True
    return False


def _hands_on(stmt: Assign) -> bool:
    """Whether it adds up, or exchanges, what it reads."""
    return _adds(stmt) or (isinstance(stmt.value, Call) and stmt.value.op in {"part", *COLLECTIVES})


def _given(program: Program, walked: Collection[Line]) -> tuple[BlockValue, ...]:
    """The tensors of the header that statements read, as they read them."""
    names = set(inputs(program))
    found = {v.name: v for line in walked for v in map(storage, line.reads) if v.name in names and not v.backward}
    return tuple(found.values())


def products_of_one_value(program: Program) -> tuple[tuple[str, ...], ...]:
    """The weights that forward multiplies as matrices; those that multiply the same value stand together: a system has them as one."""
    own, groups = set(matrices(program)), dict[int, list[str]]()
    for o in operations(program):
        if o.product and o.during == "forward" and len(o.reads) == 2:
            names = [v.name for v in o.reads if v.name in own]
            others = [v for v in o.reads if v.name not in own]
            if len(names) == 1 and len(others) == 1 and not POSITIONS.isdisjoint(others[0].layout.dims):
                groups.setdefault(id(storage(others[0])), []).append(names[0])
    return tuple(tuple(dict.fromkeys(names)) for names in groups.values())
