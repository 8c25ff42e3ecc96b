"""What arithmetic makes of terms: scaling, adding up, norms, and the update of a parameter. What has no word here becomes "unknown"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from math import inf, isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from placeproof.measure.record.comparing import Comparing, same_elements
from placeproof.measure.record.factor import rational
from placeproof.measure.record.nodes import NOTHING, ZERO, Node, Nodes
from placeproof.measure.record.runs import Runs, mapped
from placeproof.measure.record.shadow import Shadows, local

#: Operations that make zeros.
_ZEROS = frozenset(("zeros", "zeros_like", "new_zeros", "zero"))
_FILLED = frozenset(("fill", "full", "full_like"))
#: Up to which a numerator or a denominator is no accident.
_SIMPLE = 1 << 10
#: What a GradScaler does to gradients: it multiplies them by a tensor of one number.
_UNSCALE = "_amp_foreach_non_finite_check_and_unscale"
_NORMS = frozenset(("linalg_vector_norm", "norm"))
#: Up to how many rows of gradients are added up.
_ROWS = 64


@dataclass(slots=True)
class Arithmetic:
    """Follows one operation at a time. ``updated``: called with a parameter's number and the term that is added to it. ``counts``: what
    a gradient is usually divided by: numbers of ranks and of micro-batches. ``left``: a norm left PyTorch as a number, which may be in any
    number that comes back, and ``numbers`` of Python of which this is known, by their values. ``library``: whether PyTorch's own clipping
    is running, whose numbers are what it is told to clip to."""

    nodes: Nodes
    shadows: Shadows
    updated: Callable[[int, int, Fraction], None]
    library: Callable[[], bool] = lambda: False
    line: int = 0
    counts: set[int] = field(default_factory=set)
    left: bool = False
    numbers: dict[float, int] = field(default_factory=dict)
    onto_zeros: bool = False
    sums: list[tuple[StorageWeakRef, int]] = field(default_factory=list)

    def begins(self, name: str, args: tuple[Any, ...], line: int) -> None:
        """An operation is about to be done: whether it adds to what is zero, which is not to be seen afterwards."""
        onto = name == "add_" and not self._tracked(args[0]) and self._tracked(args[1])
        self.onto_zeros = onto and not bool(local(args[0]).any())
        if self.onto_zeros:
            self.sums.append((StorageWeakRef(args[0].untyped_storage()), line))

    def kept(self) -> list[int]:
        """Lines that added gradients to what was zero, and is there still as another step begins, and is not zero."""
        found = []
        for reference, line in self.sums:
            storage = None if reference.expired() else torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
            if storage is not None and bool(torch.empty(0, dtype=torch.uint8).set_(storage).any()):
                found.append(line)
        return found

    def again(self) -> None:
        """Another step begins."""
        self.left = False
        self.numbers.clear()
        self.sums.clear()

    def follow(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> bool:
        """Give the result its terms; False for an operation that is not arithmetic as it is meant here."""
        name = name.rstrip("_")
        if name.startswith("_foreach_") and args and isinstance(args[0], (list, tuple)):
            return self._each(name.removeprefix("_foreach_"), args, kwargs, out)
        if name == "lift_fresh" and (term := self._of_number(float(out) if out.numel() == 1 else None)):
            self.shadows.write(out, term)
        elif name == _UNSCALE:
            for gradient in args[0]:
                self._one(gradient, gradient, lambda n: self._by(n, number(args[2]), "mul"))
        elif name in _ZEROS or (name == "lift_fresh" and _is_zero(out)) or (name in _FILLED and args[1:2] == (0,)):
            self.shadows.write(out, ZERO)
        elif name in ("mul", "div", "add", "sub") and len(args) > 1:
            self._binary(name, args, kwargs, out)
        elif name in ("clamp", "clamp_max", "clamp_min"):
            self._one(out, args[0], self._clamped(name, _bounds(name, args, kwargs)))
        elif name in ("nan_to_num", "sign"):
            self._one(out, args[0], lambda n: self._elementwise(n, name, Fraction(1)))
        elif name == "reciprocal":
            self._one(out, args[0], self._of_norm(name))
        elif name in ("minimum", "maximum"):
            first, second = args if self._tracked(args[0]) else (args[1], args[0])
            self._one(out, first, self._of_norm(name, None if self._tracked(second) else _exact(second)))
        elif name == "neg":
            self._one(out, args[0], lambda n: self._times(n, Fraction(-1)))
        elif name in ("pow", "sqrt", "square"):
            exponent = {"sqrt": Fraction(1, 2), "square": Fraction(2)}.get(name) or rational(float(args[1])) or Fraction(0)
            self._one(out, args[0], lambda n: self._power(n, exponent))
        elif name in _NORMS:
            order = args[1] if len(args) > 1 and args[1] is not None else 2
            self._all(out, args[0], lambda terms: self._norm(terms, order))
        elif name in ("sum", "mean") and len(args) > 1 and out.numel() > 1 and self._rows(out, args[0], args[1], mean=name == "mean"):
            pass
        elif name == "sum":
            self._all(out, args[0], self._sum)
        elif name in ("dot", "vdot") and same_elements(args[0], args[1]):
            self._all(out, args[0], lambda terms: self._sum({self._power(n, Fraction(2)): count for n, count in terms.items()}))
        elif name.startswith("new_") or name.endswith("_like"):
            self.shadows.write(out, NOTHING)  # of the first tensor its form alone
        else:
            return Comparing(self.nodes, self.shadows).follow(name, args, out)
        return True

    def _each(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> bool:
        made = args[0] if out is None or not out else out
        known = True
        for i, target in enumerate(made):
            own = tuple(a[i] if isinstance(a, (list, tuple)) else a for a in args)
            known = self.follow(name, own, kwargs, target) and known
        return known

    def _one(self, out: Tensor, x: Tensor, rule: Callable[[int], int]) -> None:
        self.shadows.write(out, mapped(rule, self.shadows.read(x)))

    def _all(self, out: Tensor, x: Tensor, rule: Callable[[Mapping[int, int]], int]) -> None:
        """One number made of all elements of a tensor: of so many of each term, but for zeros."""
        if not x.numel():
            self.shadows.write(out, ZERO)
            return
        elements: dict[int, int] = {}
        for number, length in self.shadows.read(x).lengths():
            elements[number] = elements.get(number, 0) + length
        elements.pop(ZERO, 0)
        if out.numel() != 1 or (NOTHING in elements and len(elements) > 1):
            self.shadows.write(out, self._unless_parameters(tuple(elements), "a sum or a norm of rows, or with something else"))
        else:
            self.shadows.write(out, NOTHING if NOTHING in elements else rule(elements) if elements else ZERO)

    def _rows(self, out: Tensor, x: Tensor, dims: Sequence[int], *, mean: bool) -> bool:
        """Gradients added up along some dimensions; False for anything else, and for more rows than ranks are likely to be."""
        count = x.numel() // out.numel()
        if not 0 < count <= _ROWS or not all(n == ZERO or self.nodes.is_gradient(n) for n in self.shadows.read(x).distinct()):
            return False
        each = np.moveaxis(self.shadows.read(x).each().reshape(x.size()), list(dims), range(len(dims))).reshape(count, -1)
        made = reduce(lambda a, b: mapped(self._sum_of(Fraction(1)), a, b), map(Runs.listed, each))
        self.shadows.write(out, mapped(lambda n: self._times(n, Fraction(1, count)), made) if mean else made)
        return True

    def _binary(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Tensor) -> None:
        left, right = args[0], args[1]
        alpha = (_exact(kwargs.get("alpha", 1)) or Fraction(0)) * (-1 if name == "sub" else 1)
        if name in ("mul", "div") and (term := self._of_number(right)):
            product = self._product(squared=False) if name == "mul" else self._quotient
            self._multiplied(out, mapped(lambda n: product(n, term), self.shadows.read(left)))
            return
        factor = None if self._tracked(right) else number(right)
        if name in ("mul", "div") and (factor is not None or not isinstance(right, Tensor)):
            far = name == "mul" and not isinstance(right, Tensor) and right == inf
            exact = factor or (_exact(right) if self.library() else None)
            self._one(out, left, self._infinite if far else lambda n: self._by(n, exact if self.of_norms(n) else factor, name))
            return
        if name in ("add", "sub") and (not alpha or (right == 0 if not isinstance(right, Tensor) else factor is None and _is_zero(right))):
            self._one(out, left, lambda n: n)
            return
        if not self._tracked(left) and (times := number(left)) is not None and name == "mul":
            self._one(out, right, lambda n: self._times(n, times))
            return
        if not self._tracked(left) and isinstance(left, Tensor) and name == "add" and alpha == 1 and (self.onto_zeros or _is_zero(left)):
            self._one(out, right, lambda n: n)
            return
        if not isinstance(left, Tensor) or not isinstance(right, Tensor):
            kept = left if isinstance(left, Tensor) else right
            self._one(out, kept, self._of_norm(name, _exact(right if kept is left else left)))
            return
        rule = {"mul": self._product(squared=same_elements(left, right)), "div": self._quotient}.get(name) or self._sum_of(alpha)
        self._multiplied(out, mapped(rule, *(self.shadows.read(t) for t in torch.broadcast_tensors(left, right))))

    def _of_number(self, value: Any) -> int:
        """The term of a number of Python that is made of a norm; NOTHING for any other."""
        return self.numbers.get(value, NOTHING) if self.numbers and isinstance(value, (int, float)) else NOTHING

    def of_numbers(self, name: str, term: int, value: float, other: int) -> int:
        """What an operation makes of a number of Python that is made of a norm, and of another one, with or without a term."""
        exact = _exact(value)
        if other != NOTHING:
            return self._sum_of(Fraction(1))(term, other) if name == "add" else NOTHING
        if exact is None or (name == "add" and exact == 0):
            return NOTHING if exact is None else term
        if name == "pow":
            return self._power(term, exact) if exact in (2, Fraction(1, 2)) else NOTHING
        return self._clip(term, exact)

    def _multiplied(self, out: Tensor, made: Runs) -> None:
        """Write what was multiplied or added up, and count what is clipped by that."""
        for term, length in made.lengths():
            if self.nodes[term].kind == "clipped":
                self.nodes.clipped[term] = self.nodes.clipped.get(term, 0) + length
        self.shadows.write(out, made)

    def _tracked(self, value: Any) -> bool:
        return isinstance(value, Tensor) and bool(self.shadows.terms(value))

    def _by(self, number: int, factor: Fraction | None, name: str) -> int:
        if self.left and (not factor or max(abs(factor.numerator), factor.denominator) > _SIMPLE):
            return self._lost(number, f"`{name}` by a number that may be made of a norm, which was read before (`.item()`)")
        if not factor:
            return self._lost(number, f"`{name}` by a number that is no simple fraction")
        return self._times(number, factor if name == "mul" else 1 / factor)

    def _times(self, number: int, factor: Fraction) -> int:
        if self.of_norms(number):
            return self._clip(number, factor, "times")
        if self.nodes.is_parameter(number):
            return NOTHING
        return self.nodes.scaled(number, factor, self.line)

    def _product(self, *, squared: bool) -> Callable[[int, int], int]:
        """The product of two tensors, which may be ``squared``: the same one."""

        def product(a: int, b: int) -> int:
            if NOTHING in (a, b):
                return self._lost(max(a, b), "a product with something else")
            if ZERO in (a, b):
                return ZERO
            for one, other in ((a, b), (b, a)):
                if self.nodes[one].kind == "true":
                    return other
            if squared and self.nodes.is_gradient(a):
                return self.nodes.power(a, Fraction(2), self.line)
            for g, c in ((a, b), (b, a)):
                if self.nodes[c].kind == "clip" and self.nodes.is_gradient(g):
                    return self.nodes.add(Node(kind="clipped", of=(g, c), line=self.line))
            return self._unless_parameters((a, b), "a product")

        return product

    def _quotient(self, a: int, b: int) -> int:
        if b != NOTHING and self.of_norms(b):
            clip = self._clip(b)
            return clip if a == NOTHING else self._product(squared=False)(a, clip)
        return self._lost(max(a, b), "a quotient with something else")

    def _sum_of(self, alpha: Fraction) -> Callable[[int, int], int]:
        def add(a: int, b: int) -> int:
            if self.nodes.is_parameter(a) and b > ZERO and not self.nodes.is_parameter(b):
                return self._update(a, b, alpha)
            if a == ZERO or b in (ZERO, NOTHING):
                return (
                    self.nodes.scaled(b, alpha, self.line) if a == ZERO else a if b == ZERO else self._lost(a, "a sum with something else")
                )
            if a == NOTHING:
                return self._lost(b, "a sum with something else")
            if self.nodes.is_gradient(a) and self.nodes[b].kind == "param" and self.nodes.gradient_of(a) == self.nodes.states(b):
                return self._elementwise(a, "the parameter", alpha)
            if self.of_norms(a) or self.of_norms(b):
                made = self._sum({a: 1, b: 1} if a != b else {a: 2}) if alpha == 1 else NOTHING
                return made or self._unless_parameters((a, b), "a difference of norms")
            if self.nodes.is_parameter(a) or self.nodes.is_parameter(b):
                return NOTHING
            terms = (*self._terms(a), *self._terms(self.nodes.scaled(b, alpha, self.line)))
            return self.nodes.added(terms, self.line)

        return add

    def _terms(self, number: int) -> tuple[int, ...]:
        node = self.nodes[number]
        return node.of if node.kind == "add" else (number,)

    def _update(self, parameter: int, term: int, alpha: Fraction) -> int:
        """A parameter plus a multiple of a gradient: an update by hand, of which one factor is the learning rate."""
        if abs(alpha) == 1 and self.nodes[term].kind == "elementwise":
            term = self.nodes.unknown((term,), "what is done element by element after the learning rate", self.line)
        rate, node = alpha, self.nodes[term]
        while node.kind == "scale":
            rate, node = rate * node.factor, self.nodes[node.of[0]]
        self.updated(parameter, term if abs(alpha) != 1 else self._without_rate(term), rate)
        return self.nodes.add(Node(kind="updated", index=min(self.nodes.states(parameter)), line=self.line))

    def _without_rate(self, term: int) -> int:
        """The gradient without the learning rate: of the factors after the last exchange, the last that divides by no count of ranks or of
        micro-batches; or the last of all."""
        factors, node, number = [], self.nodes[term], term
        while node.kind == "scale":
            factors.append(node)
            number = node.of[0]
            node = self.nodes[number]
        rates = [f for f in factors if not (f.factor.numerator == 1 and f.factor.denominator in self.counts)] or factors
        for factor in reversed([f for f in factors if not rates or f is not rates[0]]):
            number = self.nodes.scaled(number, factor.factor, factor.line)
        return number

    def _norm(self, elements: Mapping[int, int], order: float) -> int:
        if all(self.nodes.is_parameter(n) for n in elements):
            return NOTHING
        if order != 2:
            return self._unless_parameters(tuple(elements), f"a norm of order {order}")
        return self.nodes.norm(elements, self.line)

    def _power(self, number: int, exponent: Fraction) -> int:
        if number <= ZERO or self.nodes.is_parameter(number):
            return min(number, ZERO) if number <= ZERO else NOTHING
        power = self.nodes.power(number, exponent, self.line)
        return self._clip(number) if self.nodes[number].kind == "clip" and self.nodes[power].kind != "share" else power

    def _sum(self, elements: Mapping[int, int]) -> int:
        if all(self.nodes.is_parameter(n) for n in elements):
            return NOTHING
        return self.nodes.sum_squares(elements, self.line)

    def _of_norm(self, name: str, *numbers: Fraction | None) -> Callable[[int], int]:
        """What an operation makes, with numbers, of a norm, which is a number like it."""

        def made(n: int) -> int:
            if not self.of_norms(n) or None in numbers:
                return self._lost(n, f"`{name}`")
            for number in () if self.library() else numbers:
                n = self._clip(n, number or Fraction(0))
            return self._clip(n)

        return made

    def _clamped(self, name: str, bounds: Mapping[str, float] | None) -> Callable[[int], int]:
        """What bounds make of a norm, of what is infinite, and of a gradient; None for bounds that are no numbers."""

        def made(n: int) -> int:
            if self.nodes[n].kind == "infinite" and bounds == {"max": 1.0}:
                return self.nodes.add(Node(kind="true"))
            numbers = {which: _exact(bound) for which, bound in (bounds or {}).items()}
            if self.of_norms(n) or bounds is None:
                return self._of_norm(name, *numbers.values())(n)
            for which, bound in numbers.items():
                n = self._elementwise(n, which, bound) if bound is not None else self._lost(n, f"`{name}`")
            return n

        return made

    def _elementwise(self, number: int, text: str, factor: Fraction) -> int:
        if not self.nodes.is_gradient(number):
            return self._lost(number, f"`{text}`")
        return self.nodes.add(Node(kind="elementwise", of=(number,), text=text, factor=factor, op=self._given(), line=self.line))

    def of_norms(self, number: int) -> bool:
        """Whether a term is a norm, or a number that is made of one."""
        return self.nodes.is_norm(number) or self.nodes[number].kind == "clip"

    def _clip(self, number: int, factor: Fraction = Fraction(1), text: str = "") -> int:
        if abs(factor) == 1 and self.nodes[number].kind == "clip" and self.nodes[number].text == text:
            return number
        return self.nodes.add(Node(kind="clip", of=(number,), factor=abs(factor), op=self._given(), text=text, line=self.line))

    def _given(self) -> str:
        """Whether a number is one that PyTorch's own clipping was given."""
        return "given" if self.library() else ""

    def _infinite(self, number: int) -> int:
        if not self.of_norms(number):
            return self._lost(number, "`mul` by a number that is infinite")
        return self.nodes.add(Node(kind="infinite", of=(number,), line=self.line))

    def _lost(self, number: int, text: str) -> int:
        return self._unless_parameters((number,), text)

    def _unless_parameters(self, terms: tuple[int, ...], text: str) -> int:
        """What is computed with parameters is the model's; what is computed with gradients has to be known."""
        own = [n for n in terms if n > ZERO and not self.nodes.is_parameter(n)]
        return self.nodes.unknown(tuple(own), text, self.line) if own else NOTHING


def of_nothing(name: str, args: tuple[Any, ...]) -> bool:
    """Whether an operation may make zeros of tensors of which nothing is known: new ones, or the norm of no element."""
    return name.startswith(("zero", "new_zero", "lift_fresh")) or (name in (*_NORMS, "sum") and not args[0].numel())


def number(value: Any) -> Fraction | None:
    """A number, or a tensor of one, as the simple fraction that it stands for; None for anything else."""
    if isinstance(value, Tensor):
        return rational(float(value)) if value.numel() == 1 and not value.is_complex() else None
    return rational(float(value)) if isinstance(value, (int, float)) else None


def _exact(value: Any) -> Fraction | None:
    """A number, or a tensor of one, as the simple fraction that it stands for, or else as what it is; None for anything else."""
    if isinstance(value, Tensor) and (value.numel() != 1 or value.is_complex()):
        return None
    return rational(float(value)) or Fraction(float(value)) if isfinite(value) else None


def _is_zero(tensor: Tensor) -> bool:
    """Whether a tensor of which nothing is known is one number, and that is zero."""
    return tensor.numel() == 1 and not tensor.is_complex() and float(tensor) == 0


def _bounds(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, float] | None:
    """The bounds of a clamp; None where they are tensors."""
    names = {"clamp": ("min", "max"), "clamp_min": ("min",), "clamp_max": ("max",)}[name]
    given = dict(zip(names, args[1:], strict=False)) | {k: v for k, v in kwargs.items() if k in names}
    bounds = {k: v for k, v in given.items() if v is not None}
    return None if any(isinstance(v, Tensor) for v in bounds.values()) else {k: float(v) for k, v in bounds.items() if abs(float(v)) != inf}
