"""Lemmas of a block: what a weight makes of its input is proved to be one device's, and both sides then know no more of it.

A value that both programs compute under one name is, after it was assigned, an arbitrary function of the element's place. What follows
of every such function follows of the one that one device computes; and that a device has the values of that one is an obligation of its
own. So terms do not grow with the depth of a block. Nothing follows where a program needs to know what stands behind a name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from placeproof.core.diagnostics import Place
from placeproof.programs import Assign, Binary, Call, Do, Expr, Ref, Resolved, statements
from placeproof.prove.terms import app
from placeproof.semantics.encode.context import NoMeaningError
from placeproof.semantics.tensors.values import Value, dimension


@dataclass(frozen=True, slots=True)
class Lemma:
    """What stands behind a name, and where it was assigned."""

    value: Value
    place: Place | None


def projections(program: Resolved, reference: Resolved) -> frozenset[str]:
    """What the reference makes of its inputs by a weight before it returns anything, and the program assigns under the same name: each
    once, and in no loop or branch."""
    return _matrix_products(reference) & _assigned_once(reference) & _assigned_once(program)


def _matrix_products(program: Resolved) -> frozenset[str]:
    header = {t.name for t in program.tensors}

    def given(expr: Expr) -> bool:
        return isinstance(expr, Ref) and expr.name in header

    def product(expr: Expr) -> bool:
        if isinstance(expr, Binary) and expr.op == "+" and given(expr.right):  # a bias
            return product(expr.left)
        return isinstance(expr, Call) and expr.op == "contract" and given(expr.args[1])

    ends = next((n for n, s in enumerate(program.body) if isinstance(s, Do) and s.call.op == "returns"), 0)
    return frozenset(t.name for s in program.body[:ends] if isinstance(s, Assign) and product(s.value) for t in s.targets)


def _assigned_once(program: Resolved) -> frozenset[str]:
    often = Counter(t.name for s in statements(program.body) if isinstance(s, Assign) for t in s.targets)
    plain = {t.name for s in program.body if isinstance(s, Assign) and not s.accumulate for t in s.targets}
    return frozenset(name for name in plain if often[name] == 1)


def arbitrary(name: str, value: Value, stmt: Assign) -> Value:
    """The value of a name as any function of the element's place, computed from what it was computed from. Raises NoMeaningError for parts
    of other devices."""
    if value.turns:
        raise NoMeaningError(f"`{name}` holds parts of another device", stmt.place)
    return replace(value, body=app(f"value.{name}", *(dimension(d) for d in sorted(value.dims))))


def mentioned(key: str, lemmas: Mapping[str, Lemma]) -> frozenset[str]:
    """The tensors of the header that a term speaks of, by its key, and that lemmas do which it speaks of."""
    names, ahead = set[str](), {key}
    while ahead:
        text = ahead.pop()
        names |= set(re.findall(r"\bin\.(\w+)\(", text))
        ahead |= {lemmas[name].value.body.key for name in re.findall(r"\bvalue\.(\w+)\(", text)}
    return frozenset(names)
