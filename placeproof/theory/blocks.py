"""Blocks of models, and of how profiles run them, as terms of theorems: whether they are right, what they keep, what they exchange.

Sizes of a block's dimensions are symbols by the names of the dimensions in its program, and degrees of axes by their names.
"""

from __future__ import annotations

from functools import cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from placeproof.models.programs import block_program, blocks
from placeproof.programs import Program, read, render
from placeproof.theory.language import StatementError, Term, taken, term

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import sympy

    from placeproof.cost.blocks.tensors import BlockExchange

#: Seconds that small runs of a block may take.
RUNS = 2.0
#: Fewer programs than these are named where some are counted.
_NAMED = 10


def named_block(name: str) -> Program:
    """The program of a models' block, or of one that a profile runs: ``torch/attention_sp``. Raises StatementError for another name."""
    if name in blocks():
        return block_program(name)
    folder, _, file = name.rpartition("/")
    path = files("placeproof.profiles").joinpath(folder, f"{file}.step")
    if not folder or not path.is_file():
        raise StatementError(f"no model has a block `{name}`; there are {', '.join(blocks())}; those of profiles are called torch/norm")
    return read(path.read_text(encoding="utf-8"), source=f"{name}.step")


def symbols_of(program: Program) -> tuple[dict[str, sympy.Symbol], dict[str, sympy.Symbol]]:
    """Symbols for the sizes of a block's dimensions, and for the degrees of its axes."""
    import sympy

    return {d: sympy.Symbol(d) for t in program.tensors for d in t.dims}, {a.name: sympy.Symbol(a.name) for a in program.axes}


class BlockCosts:
    """What a block keeps from forward to backward on one device, and what it exchanges."""

    def __init__(self, name: str, widths: Mapping[str, int]) -> None:
        self._name, self._program, self._widths = name, named_block(name), widths
        self._sizes, self._degrees = symbols_of(self._program)

    @property
    def kept(self) -> Term:
        """Bytes that are kept: ``each`` for each number but those that have a width of their own, 8 for each position."""
        import sympy

        from placeproof.cost.blocks.tensors import kept_bytes

        return self._term(kept_bytes(self._program, self._sizes, self._degrees, sympy.Symbol("each"), self._widths), "kept")

    def calls(self, kind: str = "", *, phase: str = "") -> Term:
        """How many collectives there are, of a kind, and in ``"forward"`` or ``"backward"``."""
        return self._term(len(self._sent(kind, phase)), f"calls {kind} {phase}".rstrip())

    def about(self, kind: str = "", *, phase: str = "") -> Term:
        """Elements of the tensors that they are about, all together."""
        amounts = (one.elements(self._sizes, self._degrees) for one in self._sent(kind, phase))
        return self._term(sum(amounts), f"elements {kind} {phase}".rstrip())

    @cached_property
    def _exchanges(self) -> tuple[BlockExchange, ...]:
        from placeproof.cost.blocks.tensors import exchanges

        return exchanges(self._program)

    def _sent(self, kind: str, phase: str) -> list[BlockExchange]:
        return [one for one in self._exchanges if kind in ("", one.kind) and phase in ("", one.phase)]

    def _term(self, expr: Any, what: str) -> Term:
        import sympy

        return taken(sympy.sympify(expr), f"{what}({self._name})", f"{what} of\n{render(self._program)}", "program")


def block(name: str, **widths: int) -> BlockCosts:
    """What a models' block costs, or one that a profile runs: ``block("torch/attention_sp").kept``.

    ``widths``: bytes an element of values that are not as wide as the others. Raises StatementError for another name.
    """
    return BlockCosts(name, widths)


def wrong(*names: str | Program, runs: bool = False) -> Term:
    """How many of some blocks, by name or as programs, are not proved to compute the gradients of what they compute, on one device and on
    several alike; and of how many of some steps, as programs, an obligation is not proved. With ``runs``, in how many blocks a small run
    in exact arithmetic differs. Raises StatementError for another name."""
    programs = [one if isinstance(one, Program) else named_block(one) for one in names]
    return _number("wrong", programs, sum(_differs(one) if runs else not _proved(one) for one in programs), f", {runs=}")


def refuted(*programs: Program) -> Term:
    """How many of some steps are refuted, each by a run in exact arithmetic whose states are not those of one device."""
    from placeproof.semantics.judge.verdict import judge

    return _number("refuted", programs, sum(judge(one, shortest=False).word == "refuted" for one in programs))


def _number(what: str, programs: Sequence[Program], number: int, how: str = "") -> Term:
    names = [one.name for one in programs]
    contracts = {contract for _, _, contract in (name.rpartition(" under ") for name in names)}
    alike = f" under {contracts.pop()}" if len(contracts) == 1 else ""
    few = ", ".join(names) if len(names) < _NAMED else f"{len(names)} programs{alike}"
    text = "\n".join(map(render, programs))
    return taken(term(number).expr, f"{what}({few})", f"{what}({few}){how}, of\n{text}", "program")


def _proved(program: Program) -> bool:
    from placeproof.semantics.judge.verdict import all_obligations_hold, judge

    return judge(program).word == "proved" if program.tensors else all_obligations_hold(program)


def _differs(program: Program) -> bool:
    from placeproof.semantics import tensors
    from placeproof.semantics.resolve import resolve
    from placeproof.semantics.searched import Searched

    found = tensors.search(resolve(program), 2, RUNS)
    return not isinstance(found, Searched) or not found.runs
