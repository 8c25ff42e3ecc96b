"""The rules for sums that the kernel trusts, against brute force: a term in normal form has the value of what was written.

Expressions are drawn as trees, evaluated as they stand over small finite sorts, and evaluated again after the normal form was
built.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from placeproof.prove.terms import (
    App,
    Fn,
    Greatest,
    Index,
    Lam,
    Mono,
    Paren,
    Poly,
    Sort,
    Sum,
    Sym,
    Var,
    app,
    by_cases,
    choose,
    constant,
    fn,
    greatest,
    inverse,
    lam,
    product,
    same,
    substitute,
    symbol,
    total,
)

SORTS = {"a": Sort("a", "N_a"), "b": Sort("b", "N_b")}
FREE = {"x": Var("x", SORTS["a"]), "y": Var("y", SORTS["a"]), "z": Var("z", SORTS["b"])}


@dataclass(frozen=True)
class Model:
    """Sizes of the sorts, and everything else drawn from a seed."""

    sizes: Mapping[str, int]
    seed: int

    def number(self, *key: object) -> Fraction:
        return Fraction(zlib.crc32(repr((self.seed, *key)).encode()) % 7 - 2)

    def point(self, sort: str, *key: object) -> int:
        return zlib.crc32(repr((self.seed, "point", *key)).encode()) % self.sizes[sort]


# Trees: (kind, ...), drawn with the variables in scope.


def trees(scope: tuple[str, ...], depth: int) -> st.SearchStrategy[Any]:
    of_a = [v for v in scope if v[0] in "xyp"]
    of_b = [v for v in scope if v[0] in "zq"]
    index_a = st.sampled_from([("var", v) for v in of_a] + [("own", v) for v in of_b] + [("first",)])
    leaf = st.one_of(
        st.integers(-2, 3).map(lambda n: ("number", n)),
        st.just(("size",)),
        st.tuples(st.just("f"), index_a),
        st.tuples(st.just("g"), index_a, st.sampled_from([("var", v) for v in of_b])),
    )
    if depth == 0:
        return leaf
    inner = trees(scope, depth - 1)
    bound_a, bound_b = f"p{depth}", f"q{depth}"
    return st.one_of(
        leaf,
        st.tuples(st.just("+"), inner, inner),
        st.tuples(st.just("*"), inner, inner),
        st.tuples(st.just("if"), index_a, index_a, inner, inner),
        st.tuples(st.just("sum"), st.just(bound_a), trees((*scope, bound_a), depth - 1)),
        st.tuples(st.just("sum"), st.just(bound_b), trees((*scope, bound_b), depth - 1)),
        st.tuples(st.just("max"), st.just(bound_b), trees((*scope, bound_b), depth - 1)),
        st.tuples(st.just("h"), inner),
        st.tuples(st.just("view"), st.just(bound_a), trees((*scope, bound_a), depth - 1)),
    )


def sort_of(name: str) -> str:
    return "b" if name[0] in "zq" else "a"


def direct_index(index: Any, at: Mapping[str, int], model: Model) -> int:
    if index[0] == "var":
        return at[index[1]]
    return 0 if index[0] == "first" else model.point("a", "own", at[index[1]])


def direct(tree: Any, at: Mapping[str, int], model: Model) -> Fraction:
    """The tree's value as it stands."""
    match tree:
        case ("number", n):
            return Fraction(n)
        case ("size",):
            return Fraction(model.sizes["a"])
        case ("f", i):
            return model.number("f", direct_index(i, at, model))
        case ("g", i, j):
            return model.number("g", direct_index(i, at, model), direct_index(j, at, model))
        case ("+", a, b):
            return direct(a, at, model) + direct(b, at, model)
        case ("*", a, b):
            return direct(a, at, model) * direct(b, at, model)
        case ("if", i, j, a, b):
            return direct(a if direct_index(i, at, model) == direct_index(j, at, model) else b, at, model)
        case ("sum", v, body):
            return sum((direct(body, {**at, v: n}, model) for n in range(model.sizes[sort_of(v)])), Fraction(0))
        case ("max", v, body):
            return max(direct(body, {**at, v: n}, model) for n in range(model.sizes[sort_of(v)]))
        case ("h", a):
            return model.number("h", direct(a, at, model))
        case ("view", v, body):
            return model.number("view", tuple(direct(body, {**at, v: n}, model) for n in range(model.sizes[sort_of(v)])))
    raise AssertionError(tree)


def built_index(index: Any, names: Mapping[str, Var]) -> Index:
    if index[0] == "var":
        return names[index[1]]
    return Fn("first.a", (), SORTS["a"]) if index[0] == "first" else fn("own", (names[index[1]],), SORTS["a"])


def built(tree: Any, names: Mapping[str, Var]) -> Poly:
    """The tree as a term, by the functions that the encoding uses."""
    match tree:
        case ("number", n):
            return constant(n)
        case ("size",):
            return symbol("N_a")
        case ("f", i):
            return app("f", built_index(i, names))
        case ("g", i, j):
            return app("g", built_index(i, names), built_index(j, names))
        case ("+", a, b):
            return built(a, names) + built(b, names)
        case ("*", a, b):
            return product(built(a, names), built(b, names))
        case ("if", i, j, a, b):
            return choose(same(built_index(i, names), built_index(j, names)), built(a, names), built(b, names))
        case ("h", a):
            return by_cases(lambda one: app("h", one), built(a, names))
    kind, v, body = tree
    variable = Var(v, SORTS[sort_of(v)])
    inside = built(body, {**names, v: variable})
    if kind == "sum":
        return total([variable], inside)
    if kind == "max":
        return greatest([variable], inside)
    return app("view", lam([variable], inside))


def index_value(index: Index, at: Mapping[str, int], model: Model) -> int:
    if isinstance(index, Var):
        return at[index.name]
    return 0 if index.name.startswith("first") else model.point("a", "own", index_value(index.args[0], at, model))


def value(poly: Poly, at: Mapping[str, int], model: Model) -> Fraction:
    """The value of a term in normal form."""
    return sum((c * mono_value(m, at, model) for m, c in poly.terms), Fraction(0))


def hold(guards: Any, at: Mapping[str, int], model: Model) -> bool:
    return all(index_value(a, at, model) == index_value(b, at, model) for a, b in guards)


def mono_value(mono: Mono, at: Mapping[str, int], model: Model) -> Fraction:
    if not hold(mono.guards, at, model):
        return Fraction(0)
    result = Fraction(1)
    for atom, exponent in mono.factors:
        result *= atom_value(atom, at, model) ** exponent
    return result


def points(binders: tuple[Var, ...], at: Mapping[str, int], model: Model) -> list[dict[str, int]]:
    sizes = [range(model.sizes[b.sort.name]) for b in binders]
    return [{**at, **{b.name: n for b, n in zip(binders, chosen, strict=True)}} for chosen in itertools.product(*sizes)]


def atom_value(atom: Any, at: Mapping[str, int], model: Model) -> Fraction:
    match atom:
        case Sym():
            return Fraction(model.sizes[atom.name.removeprefix("N_")])
        case Sum():
            return sum((mono_value(atom.body, p, model) for p in points(atom.binders, at, model)), Fraction(0))
        case Greatest():
            held = [
                p
                for p in points(atom.binders, at, model)
                if all(index_value(a, p, model) == index_value(b, p, model) for a, b in atom.guards)
            ]
            return max(value(atom.body, p, model) for p in held)
        case Paren(inside=inside):
            return value(inside, at, model)
        case App(name=name, args=args):
            return model.number(name, *(argument_value(a, at, model) for a in args))
    raise AssertionError(atom)


def argument_value(arg: Any, at: Mapping[str, int], model: Model) -> Any:
    if isinstance(arg, Lam):
        return tuple(value(arg.body, p, model) for p in points(arg.binders, at, model))
    if isinstance(arg, Poly):
        return value(arg, at, model)
    return index_value(arg, at, model)


MODELS = st.builds(lambda a, b, seed: Model({"a": a, "b": b}, seed), st.integers(1, 3), st.integers(1, 3), st.integers(0, 10**6))


#: What a condition fixes stands inside a maximum.
INSIDE = ("if", ("own", "z"), ("first",), ("size",), ("sum", "p2", ("max", "q1", ("g", ("own", "z"), ("var", "q1")))))


@example(tree=INSIDE, model=Model({"a": 1, "b": 1}, 0), x=0, y=0, z=0)
@example(tree=INSIDE, model=Model({"a": 3, "b": 2}, 4), x=0, y=0, z=1)
@given(tree=trees(("x", "y", "z"), 3), model=MODELS, x=st.integers(0, 2), y=st.integers(0, 2), z=st.integers(0, 2))
def test_the_normal_form_has_the_value_of_what_was_written(tree: Any, model: Model, x: int, y: int, z: int) -> None:
    at = {"x": x % model.sizes["a"], "y": y % model.sizes["a"], "z": z % model.sizes["b"]}
    assert value(built(tree, FREE), at, model) == direct(tree, at, model)


@given(tree=trees(("x", "y", "z"), 2), model=MODELS, y=st.integers(0, 2), z=st.integers(0, 2))
def test_substitution_is_evaluation_elsewhere(tree: Any, model: Model, y: int, z: int) -> None:
    at = {"x": 0, "y": y % model.sizes["a"], "z": z % model.sizes["b"]}
    moved = substitute(built(tree, FREE), {"x": fn("own", (FREE["z"],), SORTS["a"])})
    assert value(moved, at, model) == direct(tree, {**at, "x": model.point("a", "own", at["z"])}, model)


@given(tree=trees(("x", "y", "z"), 2), other=trees(("x", "y", "z"), 2))
def test_equal_terms_are_written_alike(tree: Any, other: Any) -> None:
    """Commutativity, distributivity, exchange and the names of bound indices leave no trace."""
    a, b = built(tree, FREE), built(other, FREE)
    p, q = Var("p9", SORTS["a"]), Var("q9", SORTS["b"])
    assert product(a, b) == product(b, a)
    assert total([p], total([q], product(a, app("f", p), app("g", p, q)))) == product(
        a, total([q], total([p], product(app("g", p, q), app("f", p))))
    )
    assert total([p], a + b) == total([p], a) + total([p], b)
    renamed = Var("r9", SORTS["a"])
    assert total([p], product(b, app("f", p))) == total([renamed], product(app("f", renamed), b))


def test_a_sum_over_owners_is_the_whole_sum() -> None:
    """The partition rule: each device adds up what it owns, and all devices together have everything."""
    device, element = Var("p1", SORTS["a"]), Var("q1", SORTS["b"])
    owned = product(same(device, fn("own", (element,), SORTS["a"])), app("g", device, element))
    whole = total([element], app("g", fn("own", (element,), SORTS["a"]), element))
    assert total([device], total([element], owned)) == whole
    assert total([device], total([element], app("g", device, element))) != whole


def test_the_greatest_of_the_owners_is_the_whole_maximum() -> None:
    device, element = Var("p1", SORTS["a"]), Var("q1", SORTS["b"])
    guard = frozenset({(device, fn("own", (element,), SORTS["a"]))})
    assert greatest([device], greatest([element], app("f", device), guard)) == greatest(
        [element], app("f", fn("own", (element,), SORTS["a"]))
    )


def test_one_point_sorts_have_one_point() -> None:
    one = Sort("one", 1)
    here, there = Var("p1", one), fn("own", (FREE["z"],), one)
    assert total([here], app("f", here)) == app("f", there)
    assert "p1" not in greatest([here], app("f", here), frozenset({(Var("q1", one), here)})).free


def test_a_function_whose_name_ends_as_that_of_another_is_another() -> None:
    a = SORTS["a"]
    term = product(same(fn("f", (), a), fn("a", (), a)), app("q", fn("xf", (), a)))
    assert term.key == "1*[f()=a()]q(xf())"


def test_division_by_zero_is_refused() -> None:
    import pytest

    with pytest.raises(ZeroDivisionError):
        inverse(constant(0))
