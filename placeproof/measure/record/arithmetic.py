"""What arithmetic makes of terms: scaling, adding up, norms, and the update of a parameter. What has no word here becomes "unknown"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from placeproof.measure.record.comparing import Comparing
from placeproof.measure.record.loss import rational
from placeproof.measure.record.nodes import NOTHING, ZERO, Node, Nodes
from placeproof.measure.record.runs import mapped
from placeproof.measure.record.shadow import Shadows

#: Operations that make zeros.
_ZEROS = frozenset(("zeros", "zeros_like", "new_zeros", "zero"))
#: Up to which a numerator or a denominator is no accident.
_SIMPLE = 1 << 10
#: What a GradScaler does to gradients: it multiplies them by a tensor of one number.
_UNSCALE = "_amp_foreach_non_finite_check_and_unscale"
_NORMS = frozenset(("linalg_vector_norm", "norm"))


@dataclass(slots=True)
class Arithmetic:
    """Follows one operation at a time. ``updated``: called with a parameter's number and the term that is added to it. ``counts``: what
    a gradient is usually divided by: numbers of ranks and of micro-batches. ``left``: a norm left PyTorch as a number, which may be in any
    number that comes back."""

    nodes: Nodes
    shadows: Shadows
    updated: Callable[[int, int, Fraction], None]
    line: int = 0
    counts: set[int] = field(default_factory=set)
    left: bool = False

    def follow(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> bool:
        """Give the result its terms; False for an operation that is not arithmetic as it is meant here."""
        name = name.rstrip("_")
        if name.startswith("_foreach_") and args and isinstance(args[0], (list, tuple)):
            return self._each(name.removeprefix("_foreach_"), args, kwargs, out)
        if name == _UNSCALE:
            for gradient in args[0]:
                self._one(gradient, gradient, lambda n: self._by(n, number(args[2]), "mul"))
        elif name in _ZEROS or (name in ("fill", "full", "full_like") and len(args) > 1 and args[1] == 0):
            self.shadows.write(out, ZERO)
        elif name in ("mul", "div", "add", "sub") and len(args) > 1:
            self._binary(name, args, kwargs, out)
        elif name in ("reciprocal", "clamp", "clamp_max", "clamp_min", "minimum", "maximum"):
            self._one(out, args[0], self._of_norm(name))
        elif name == "neg":
            self._one(out, args[0], lambda n: self._times(n, Fraction(-1)))
        elif name in ("pow", "sqrt", "square"):
            exponent = {"sqrt": Fraction(1, 2), "square": Fraction(2)}.get(name) or rational(float(args[1])) or Fraction(0)
            self._one(out, args[0], lambda n: self._power(n, exponent))
        elif name in _NORMS:
            order = args[1] if len(args) > 1 and args[1] is not None else 2
            self._all(out, args[0], lambda terms: self._norm(terms, order))
        elif name == "sum":
            self._all(out, args[0], self._sum)
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

    def _all(self, out: Tensor, x: Tensor, rule: Callable[[Sequence[int]], int]) -> None:
        self.shadows.write(out, rule([n for n in self.shadows.terms(x) if n > ZERO]))

    def _binary(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Tensor) -> None:
        left, right = args[0], args[1]
        alpha = rational(float(kwargs.get("alpha", 1))) or Fraction(0)
        factor = None if self._tracked(right) else number(right)
        if name in ("mul", "div") and (factor is not None or not isinstance(right, Tensor)):
            self._one(out, left, lambda n: self._by(n, factor, name))
            return
        if name == "mul" and not self._tracked(left) and (times := number(left)) is not None:
            self._one(out, right, lambda n: self._times(n, times))
            return
        if not isinstance(left, Tensor) or not isinstance(right, Tensor):
            kept, other = (left, right) if isinstance(left, Tensor) else (right, left)
            nothing = name == "add" and other == 0  # as the builtin `sum` begins
            self._one(out, kept, (lambda n: n) if nothing else self._of_norm(name))
            return
        rule = {"mul": self._product, "div": self._quotient, "add": self._sum_of(alpha), "sub": self._sum_of(-alpha)}[name]
        self.shadows.write(out, mapped(rule, *(self.shadows.read(t) for t in torch.broadcast_tensors(left, right))))

    def _tracked(self, value: Any) -> bool:
        return isinstance(value, Tensor) and bool(self.shadows.terms(value))

    def _by(self, number: int, factor: Fraction | None, name: str) -> int:
        if factor is None or factor == 0:
            return self._lost(number, f"`{name}` by a number that is no simple fraction")
        if self.left and max(abs(factor.numerator), factor.denominator) > _SIMPLE:
            return self._lost(number, f"`{name}` by a number that may be made of a norm, which was read before (`.item()`)")
        return self._times(number, factor if name == "mul" else 1 / factor)

    def _times(self, number: int, factor: Fraction) -> int:
        node = self.nodes[number]
        if self.nodes.is_norm(number) or node.kind == "clip":
            return self._clip(number)
        if self.nodes.is_parameter(number):
            return NOTHING
        return self.nodes.scaled(number, factor, self.line)

    def _product(self, a: int, b: int) -> int:
        if NOTHING in (a, b):
            return self._lost(max(a, b), "a product with something else")
        if ZERO in (a, b):
            return ZERO
        for one, other in ((a, b), (b, a)):
            if self.nodes[one].kind == "true":
                return other
        if a == b and not self.nodes.is_parameter(a):
            return self.nodes.power(a, Fraction(2), self.line)
        for g, c in ((a, b), (b, a)):
            if self.nodes[c].kind == "clip" and not self.nodes.is_norm(g) and self.nodes[g].kind != "clip":
                return self.nodes.add(Node(kind="clipped", of=(g, c), line=self.line))
        return self._unless_parameters((a, b), "a product")

    def _quotient(self, a: int, b: int) -> int:
        if b != NOTHING and (self.nodes.is_norm(b) or self.nodes[b].kind == "clip"):
            clip = self._clip(b)
            return clip if a == NOTHING else self._product(a, clip)
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
            if self.nodes.is_norm(a) and self.nodes.is_norm(b):
                return self.nodes.sum_squares((a, b), self.line)
            if self.nodes.is_parameter(a) or self.nodes.is_parameter(b):
                return NOTHING
            terms = (*self._terms(a), *self._terms(self.nodes.scaled(b, alpha, self.line)))
            return self.nodes.add(Node(kind="add", of=terms, line=self.line))

        return add

    def _terms(self, number: int) -> tuple[int, ...]:
        node = self.nodes[number]
        return node.of if node.kind == "add" else (number,)

    def _update(self, parameter: int, term: int, alpha: Fraction) -> int:
        """A parameter plus a multiple of a gradient: an update by hand, of which one factor is the learning rate."""
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

    def _norm(self, terms: Sequence[int], order: float) -> int:
        if not terms:
            return NOTHING
        if order != 2:
            return self._unless_parameters(tuple(terms), f"a norm of order {order}")
        if all(self.nodes.is_parameter(n) for n in terms):
            return NOTHING
        return self.nodes.norm(tuple(terms), self.line)

    def _power(self, number: int, exponent: Fraction) -> int:
        if number <= ZERO or self.nodes.is_parameter(number):
            return min(number, ZERO) if number <= ZERO else NOTHING
        return self.nodes.power(number, exponent, self.line)

    def _sum(self, terms: Sequence[int]) -> int:
        if terms and all(self.nodes.is_norm(n) or self.nodes[n].kind == "square" for n in terms):
            return self.nodes.sum_squares(tuple(terms), self.line)
        return self._unless_parameters(tuple(terms), "a sum over elements") if terms else NOTHING

    def _of_norm(self, name: str) -> Callable[[int], int]:
        return lambda n: self._clip(n) if self.nodes.is_norm(n) or self.nodes[n].kind == "clip" else self._lost(n, f"`{name}`")

    def _clip(self, number: int) -> int:
        return number if self.nodes[number].kind == "clip" else self.nodes.add(Node(kind="clip", of=(number,), line=self.line))

    def _lost(self, number: int, text: str) -> int:
        return self._unless_parameters((number,), text)

    def _unless_parameters(self, terms: tuple[int, ...], text: str) -> int:
        """What is computed with parameters is the model's; what is computed with gradients has to be known."""
        own = [n for n in terms if n > ZERO and not self.nodes.is_parameter(n)]
        return self.nodes.unknown(tuple(own), text, self.line) if own else NOTHING


def number(value: Any) -> Fraction | None:
    """A number, or a tensor of one, as the simple fraction that it stands for; None for anything else."""
    if isinstance(value, Tensor):
        return rational(float(value)) if value.numel() == 1 and not value.is_complex() else None
    return rational(float(value)) if isinstance(value, (int, float)) else None
