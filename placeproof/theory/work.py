"""What the product counts beside schedules and collectives, as terms of theorems: operations of blocks, and rounding to whole parts.

Sizes of a block's dimensions are symbols by the names of the dimensions in its program: batch, tokens, hidden.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from placeproof.cost.blocks import flops
from placeproof.cost.blocks.recompute import made_in_forward, recompute
from placeproof.cost.exact.flat import up
from placeproof.programs import render
from placeproof.theory.blocks import named_block, symbols_of
from placeproof.theory.language import Number, Origin, Term, taken, term


class Operations:
    """The floating-point operations of a block on one device: of products of matrices, or of everything else.

    ``again``: the values of forward that backward computes again, or None for none.
    """

    def __init__(self, block: str, again: Iterable[str] | None, elements: bool) -> None:
        self._program = named_block(block)
        if again is not None:
            self._program = recompute(self._program, again)
        self._name = block + (" with recomputation" if again is not None else "")
        counted = flops.element_operations if elements else flops.flops
        self._what = "element operations" if elements else "operations"
        self._work = counted(self._program, *symbols_of(self._program))

    @property
    def forward(self) -> Term:
        """Of forward."""
        return self._term("forward")

    @property
    def again(self) -> Term:
        """Of what backward computes again."""
        return self._term("again")

    @property
    def inputs(self) -> Term:
        """Of gradients by inputs: B."""
        return self._term("inputs")

    @property
    def weights(self) -> Term:
        """Of gradients by weights: W."""
        return self._term("weights")

    @property
    def total(self) -> Term:
        """Of all that the device does."""
        return self._term("total")

    @property
    def of_matrices(self) -> Term:
        """Elements of the weights that forward multiplies as matrices."""
        import sympy

        own, (sizes, _) = flops.matrices(self._program), symbols_of(self._program)
        each = [sympy.Mul(*(sizes[d] for d in t.dims)) for t in self._program.tensors if t.name in own]
        return self._taken(sympy.Add(*each), "elements of matrices")

    def _term(self, what: str) -> Term:
        return self._taken(getattr(self._work, what), f"{self._what} of {what}")

    def _taken(self, expr: Any, what: str) -> Term:
        import sympy

        return taken(sympy.sympify(expr), f"{what}({self._name})", f"{what} of\n{render(self._program)}", f"form {what}")


def operations(block: str, *, again: Iterable[str] | None = None, elements: bool = False) -> Operations:
    """The operations of a block of models, or of one that a profile runs, ``torch/head_sp``: ``operations("swiglu").forward``.

    ``again``: names of values that backward computes again (:func:`values_of` gives all). ``elements``: of everything but products of
    matrices. Raises StatementError for another name, InputError for a value that forward does not make.
    """
    return Operations(block, again, elements)


def values_of(block: str) -> tuple[str, ...]:
    """The names of the values that a block's forward makes, in order. Raises StatementError for another name."""
    return made_in_forward(named_block(block))


def rounded(number: Number, divisor: Number) -> Term:
    """The number of elements to which profiles fill up: the product's own rule, ``placeproof.cost.exact.flat.up``."""
    made: Any = up(term(number), term(divisor))  # type: ignore[arg-type]
    about = "code placeproof.cost.exact.flat.up"
    made.origins |= {Origin("rounded", made.expr, about, about)}
    return made  # type: ignore[no-any-return]
