"""Certificates: every proof of a step or a block has one,
what is changed in one is noticed, and what the checker makes of terms is what they mean."""

import ast
import copy
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from block_seeds import CAPACITY, MEANS, RING_SUM, SPLIT_KEYS, TWO_RINGS, ULYSSES

from placeproof.cli.main import run
from placeproof.programs import read
from placeproof.semantics.catalogue import BLOCKS
from placeproof.semantics.encode import Options
from placeproof.semantics.judge import certificate as semantics_certificate
from placeproof.semantics.judge.certificate import again, certificate
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.lower import lower
from placeproof.semantics.resolve import resolve
from placeproof.strategies import names, parse_strategy
from placeproof.verify import RejectedError, left_open, verify
from placeproof.verify.read import Reader
from placeproof.verify.terms import Terms

#: How many times as much is tried as in a run that decides whether a change lands.
MANY = 10 if os.environ.get("PLACEPROOF_PROFILE") == "nightly" else 1
PEOPLE = json.loads((Path(__file__).parents[1] / "data" / "people_programs.json").read_text())


def written(strategy: str) -> dict[str, Any]:
    program = resolve(lower(parse_strategy(strategy)))
    return certificate(program, Options(without=frozenset(program.without)))


TOGETHER = ("tp * sp", "fsdp * tp", "zero1 * pp", "zero1 * adafactor", "zero1 * muon(exchanged)")


@pytest.mark.parametrize("strategy", [*(n for n in names() if n not in ("sp", "zero_r")), *TOGETHER])
def test_every_strategy_has_a_certificate_without_a_solver(strategy: str) -> None:
    document = json.loads(json.dumps(written(strategy)))
    assert document["unshown"] == []
    assert any(c["condition"] == "step invariant" for c in document["claims"])
    verify(document)


RINGS = {"ring": RING_SUM, "rings": TWO_RINGS, "ulysses": ULYSSES, "capacity": CAPACITY, "keys": SPLIT_KEYS, "means": MEANS}


def of_block(name: str, right: str = "", wrong: str = "") -> dict[str, Any]:
    text = RINGS[name] if name in RINGS else (files("placeproof.blocks") / f"{name}.step").read_text()
    assert right in text
    return certificate(resolve(read(text.replace(right, wrong))), Options())


@pytest.mark.parametrize("name", [*BLOCKS, *RINGS])
def test_every_block_has_a_certificate_that_shows_all(name: str) -> None:
    document = json.loads(json.dumps(of_block(name)))
    assert document["unshown"] == []
    assert document["claims"]
    verify(document)
    assert not left_open(document)
    assert name in ("attention", "gqa") or again(document)


WRONG_BLOCKS = {
    "a bias that each device adds": ("mlp", "over=ffn), tp) + b2", "over=ffn) + b2, tp)"),
    "a gradient of one device": ("mlp", "dx = all_reduce(contract(dh, w1, over=ffn), tp)", "dx = contract(dh, w1, over=ffn)"),
    "a softmax that is not divided by its sum": ("cross_entropy", "(e / z -", "(e -"),
    "a maximum of one device": ("cross_entropy", "all_reduce(largest(logits, over=vocab), tp, op=max)", "largest(logits, over=vocab)"),
    "a round that counts twice": ("ring", "s += contract", "s += 2 * contract"),
    "a ring that nothing goes round": ("ring", "    k = shift(k, cp)\n    s", "    s"),
    "a mean for a sum": ("means", "over=hidden), tp)\nsize", "over=hidden), tp, op=mean)\nsize"),
}


@pytest.mark.parametrize("name", WRONG_BLOCKS)
def test_a_wrong_block_has_no_certificate_that_shows_all(name: str) -> None:
    document = of_block(*WRONG_BLOCKS[name])
    verify(document)
    assert left_open(document)


def _people(count: int) -> list[str]:
    """Some of the programs that people wrote, always the same."""
    return sorted(PEOPLE, key=lambda name: zlib.crc32(name.encode()))[:count]


@pytest.mark.parametrize("name", _people(60))
def test_certificates_agree_with_verdicts(name: str) -> None:
    """What is proved has a certificate for all states; what is wrong has none for some state."""
    from placeproof.core.diagnostics import InputError
    from placeproof.semantics.encode import NoMeaningError

    try:
        program = resolve(read(PEOPLE[name]["text"], source="mine.step"))
        document = certificate(program, Options(without=frozenset(program.without)))
    except (InputError, NoMeaningError):
        pytest.skip("it is refused, or the encoding cannot speak of it")
    verify(document)
    shown = all(c["condition"] != "step invariant" for c in document["unshown"])
    if shown:
        assert PEOPLE[name]["truth"] != "wrong"
    if judge(program).word == "proved":
        assert shown, document["unshown"]


def test_the_checker_needs_the_standard_library_alone() -> None:
    for path in (Path(__file__).parents[2] / "placeproof" / "verify").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            found = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            found += [str(node.module)] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            for module in found:
                assert module.split(".")[0] in sys.stdlib_module_names, (path, module)


def test_a_copy_of_the_checker_runs_by_itself(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parents[2] / "placeproof" / "verify", tmp_path / "verify")
    document = written("zero1")
    for name, changed, code in (("good.json", document, 0), ("bad.json", {**document, "point": {}}, 1)):
        (tmp_path / name).write_text(json.dumps(changed))
        done = subprocess.run([sys.executable, "-S", "-m", "verify", name], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code, done
        assert ("hold" if code == 0 else "rejected") in done.stdout


# What is changed is noticed.


def _spots(x: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key in x if isinstance(x, dict) else range(len(x)) if isinstance(x, list) else ():
        yield from _spots(x[key], (*path, key))


def _corrupted(document: dict[str, Any], part: str, rng: random.Random) -> dict[str, Any]:
    """A certificate with one thing changed in a part of it: a number, a name, an item left out, doubled, or swapped with another."""
    found = copy.deepcopy(document)
    spots = [p for p in _spots(found[part], (part,)) if len(p) > 1]
    *above, last = rng.choice(spots)
    holder = found
    for key in above:
        holder = holder[key]
    value = holder[last]
    if isinstance(value, list) and value and rng.random() < 0.7:
        at, other = rng.randrange(len(value)), rng.randrange(len(value))
        how = rng.choice(["drop", "double", "swap"])
        if how == "swap":
            value[at], value[other] = value[other], value[at]
        else:
            value[at : at + 1] = [] if how == "drop" else [value[at], value[at]]
    elif isinstance(value, bool) or value is None:
        holder[last] = not value
    elif isinstance(value, int):
        holder[last] = value + rng.choice([-2, -1, 1, 2])
    elif isinstance(value, str):
        texts = [t for p in _spots(document[part], (part,)) if isinstance(t := _at(document, p), str) and t != value]
        holder[last] = rng.choice([*texts, value + "x"])
    else:
        holder[last] = None
    return found


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def _rejected(document: dict[str, Any]) -> str | None:
    """By what a certificate is rejected: by its steps and claims, or because they are not those of its program."""
    try:
        verify(document)
    except RejectedError:
        return "checker"
    try:
        return None if again(document) else "program"
    except Exception:
        return "program"


@pytest.mark.parametrize(
    ("make", "of", "count"),
    [
        (written, ("zero1", "fsdp", "hsdp", "ep", "ddp * pp"), 100 * MANY),
        (of_block, ("cross_entropy", "ring", "mlp_sharded_output", "keys"), 70 * MANY),
    ],
)
def test_each_of_so_many_corrupted_certificates_is_rejected(make: Callable[[str], dict[str, Any]], of: tuple[str, ...], count: int) -> None:
    rng = random.Random(20261123)
    documents = [make(s) for s in of]
    counts = {"checker": 0, "program": 0}
    while sum(counts.values()) < count:
        document = rng.choice(documents)
        changed = _corrupted(document, rng.choice(["terms", "terms", "steps", "claims", "sorts", "point"]), rng)
        if changed != document:
            by = _rejected(changed)
            assert by is not None, changed
            counts[by] += 1
    assert counts["checker"] > count * 0.6  # the others claim something else that is true


@pytest.mark.parametrize("strategy", ["zero1", "hsdp", "ep", "zero1 * pp", "cross_entropy", "ring"])
def test_a_step_with_another_rule_place_or_result_is_rejected_by_the_checker_alone(strategy: str) -> None:
    document = of_block(strategy) if strategy in (*BLOCKS, *RINGS) else written(strategy)
    assert document["steps"]
    for number, step in enumerate(document["steps"]):
        others = [s for s in document["steps"] if s["is"] != step["is"]]
        for key, value in (
            ("rule", "one point" if step["rule"] != "one point" else "constant"),
            ("at", []),
            ("over", []),
            *(("is", s["is"]) for s in others),
        ):
            changed = copy.deepcopy(document)
            changed["steps"][number][key] = value
            with pytest.raises(RejectedError):
                verify(changed)


# Certificates of what is false.

D, E = "d", "e"
X, Y, Z, W = ["var", "x", D], ["var", "y", D], ["var", "z", D], ["var", "w", E]


def _forged(
    terms: list[Any], steps: list[Any], left: int, right: int, given: tuple[Any, ...] = (), divisors: tuple[int, ...] = ()
) -> dict[str, Any]:
    claim = {
        "name": "false",
        "condition": "step invariant",
        "line": 1,
        "given": list(given),
        "left": left,
        "right": right,
        "divisors": list(divisors),
    }
    return {
        "schema": "placeproof.certificate/1",
        "sorts": {D: "n", E: "k"},
        "point": {"n": "2", "k": "2"},
        "terms": terms,
        "steps": steps,
        "claims": [claim],
    }


P, Q, R, S = (["of", name, [], D] for name in "pqrs")
O_P, O_Q = ["of", "o", [P], D], ["of", "o", [Q], D]
F_X, F_Y, N = ["apply", "f", [["index", X]]], ["apply", "f", [["index", Y]]], ["symbol", "n"]
G_XY, G_XX = ["apply", "g", [["index", X], ["index", Y]]], ["apply", "g", [["index", X], ["index", X]]]
FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "a sum that depends on the index is counted": (
        _forged([F_X, ["sum", [X], 0], N, ["times", 0, 2]], [{"rule": "constant", "over": [X], "of": 0, "at": [X], "is": 3}], 1, 3),
        "depends on the index",
    ),
    "a factor that depends on the index stands before the sum": (
        _forged(
            [F_X, ["apply", "g", [["index", X]]], ["times", 0, 1], ["the sum", [X], 1], ["times", 0, 3], ["sum", [X], 2]],
            [{"rule": "homogeneity", "over": [X], "of": 2, "at": [0, 1], "is": 4}],
            5,
            4,
        ),
        "independent",
    ),
    "factors that share an index part": (
        _forged(
            [F_X, G_XY, ["times", 0, 1], ["the sum", [X], 0], ["the sum", [Y], 1], ["times", 3, 4], ["sum", [X, Y], 2]],
            [{"rule": "exchange", "over": [X, Y], "of": 2, "at": [[[X], 0], [[Y], 1]], "is": 5}],
            6,
            5,
        ),
        "share an index",
    ),
    "one point at a term that speaks of the index": (
        _forged(
            [F_X, ["equal", X, ["of", "o", [X], D]], ["times", 0, 1], ["apply", "f", [["index", ["of", "o", [X], D]]]], ["sum", [X], 2]],
            [{"rule": "one point", "over": [X], "of": 2, "at": [X, ["of", "o", [X], D]], "is": 3}],
            4,
            3,
        ),
        "no guard fixes",
    ),
    "one point without the guard": (
        _forged([F_X, F_Y, ["sum", [X], 0]], [{"rule": "one point", "over": [X], "of": 0, "at": [X, Y], "is": 1}], 2, 1),
        "no guard fixes",
    ),
    "a variable is caught": (  # the sum over x of f(y), where y is x: not the sum of f(x)
        _forged([F_Y, ["the sum", [X], 0], ["let", [[Y, X]], 1], F_X, ["sum", [X], 3]], [], 2, 4),
        "differ",
    ),
    "a guard that is dropped": (_forged([["equal", X, Y], F_X, ["times", 0, 1]], [], 2, 1), "differ"),
    "a guard between different sorts": (_forged([["equal", X, W], ["number", "1"]], [], 0, 1), "two sorts"),
    "an index of another sort": (_forged([F_X, ["let", [[X, W]], 0]], [], 0, 1), "another sort"),
    "hypotheses that contradict each other": (
        _forged([F_X, F_Y, N, ["number", "0"], ["number", "1"]], [], 0, 1, (("order", "", 2, ">=", 4), ("order", "", 2, "<", 4))),
        "do not hold at the point",
    ),
    "hypotheses that define in a circle": (
        _forged([F_X, F_Y], [], 0, 1, (("equal", "", X, ["of", "o", [Y], D]), ("equal", "", Y, ["of", "p", [X], D]))),
        "contradict",
    ),
    "one coordinate with two values": (
        _forged([F_X, F_Y], [], 0, 1, (("equal", "", X, Y), ("equal", "", X, Z))),
        "contradict",
    ),
    "a function with two values at a point": (
        _forged([F_X, F_Y], [], 0, 1, (("equal", "", O_P, P), ("equal", "", O_P, Q))),
        "contradict",
    ),
    "a value at any point": (_forged([F_X, F_Y], [], 0, 1, (("equal", "", ["of", "o", [X], D], P),)), "contradict"),
    "a point that is another one": (_forged([F_X, F_Y], [], 0, 1, (("equal", "", P, Q),)), "contradict"),
    "a function that says where it is known": (
        _forged([F_X, F_Y], [], 0, 1, (("equal", "", O_P, P), ("equal", "", ["of", "o", [O_P], D], Q))),
        "contradict",
    ),
    "values at two points, which need not be one": (
        _forged([["equal", P, Q], ["equal", R, S]], [], 0, 1, (("equal", "", O_P, R), ("equal", "", O_Q, S))),
        "differ",
    ),
    "values that are one, at points that need not be": (
        _forged([["equal", R, S], ["equal", P, Q], ["times", 0, 1]], [], 0, 2, (("equal", "", O_P, R), ("equal", "", O_Q, S))),
        "differ",
    ),
    "a division by what may be zero": (_forged([["symbol", "k"], ["symbol", "c"]], [], 0, 0, (), (1,)), "not seen to be positive"),
    "a division by zero": (_forged([["number", "0"], ["power", 0, -1]], [], 1, 1), "zero"),
    "a difference as a divisor": (
        _forged(
            [N, ["symbol", "k"], ["number", "-1"], ["times", 2, 1], ["plus", 0, 3], ["number", "1"]],
            [],
            0,
            0,
            (("order", "", 0, ">=", 5), ("order", "", 1, ">=", 5)),
            (4,),
        ),
        "not seen to be positive",
    ),
    "a term that speaks of itself": (_forged([["times", 0, 0]], [], 0, 0), "cannot be read"),
    "an unknown rule": (_forged([F_X], [{"rule": "surely", "over": [X], "of": 0, "at": [], "is": 0}], 0, 0), "cannot be read"),
    "another schema": ({"schema": "placeproof.prove/1"}, "schema"),
}  # fmt: skip


def test_a_function_has_one_value_at_a_point() -> None:
    """Where two points are one, what hypotheses say of a function there is one value."""
    given = (("equal", "", O_P, R), ("equal", "", O_Q, S))
    verify(_forged([["equal", P, Q], ["equal", R, S], ["times", 0, 1]], [], 0, 2, given))
    verify(_forged([["apply", "f", [["index", O_P]]], ["apply", "f", [["index", R]]]], [], 0, 1, given))


@pytest.mark.parametrize("name", FORGED)
def test_certificates_of_what_is_false_are_rejected(name: str) -> None:
    document, why = FORGED[name]
    with pytest.raises(RejectedError, match=why):
        verify(document)


@pytest.mark.parametrize("name", ["rename", "height"])
def test_honest_steps_do_not_add_up_to_a_false_claim(name: str) -> None:
    """Each used to make of two variables one: names given one after the other, and names that depended on what was still to change."""
    forged = json.loads((Path(__file__).parents[1] / "data" / "forged_certificates.json").read_text())[name]
    with pytest.raises(RejectedError, match="differ"):
        verify(forged)


EXP_X, EXP_Y = ["apply", "f.exp", [0]], ["apply", "f.exp", [1]]
#: What is divided by, with a hypothesis, and whether it is seen not to be zero.
DIVISORS: dict[str, tuple[list[Any], tuple[Any, ...], int, bool]] = {
    "an exponential": ([F_X, EXP_X], (), 1, True),
    "a sum of exponentials": ([F_X, EXP_X, ["sum", [X], 1]], (), 2, True),
    "an exponential beside another": ([F_X, F_Y, EXP_X, EXP_Y, ["plus", 2, 3]], (), 4, True),
    "one over an exponential": ([F_X, F_Y, EXP_X, EXP_Y, ["plus", 2, 3], ["power", 4, -1], ["times", 2, 5]], (), 6, True),
    "a difference of exponentials": ([F_X, F_Y, EXP_X, EXP_Y, ["number", "-1"], ["times", 4, 3], ["plus", 2, 5]], (), 6, False),
    "a sum of exponentials over some points": ([F_X, EXP_X, ["equal", X, Y], ["times", 1, 2], ["sum", [Y], 3]], (), 3, False),
    "another function": ([F_X, ["apply", "f.gelu", [0]]], (), 1, False),
    "an exponent": ([F_X, EXP_X], (), 0, False),
    "what is positive, of another point": ([F_X, ["number", "0"], F_Y], (0, ">", 1), 2, True),
    "what is not negative": ([F_X, ["number", "0"], F_Y], (0, ">=", 1), 2, False),
    "a sum of what is positive": ([F_X, ["number", "0"], ["sum", [X], 0]], (0, ">", 1), 2, True),
    "what is no sum of what is positive": ([F_X, ["number", "0"], ["sum", [X], 0]], (2, ">", 1), 0, False),
    "a function of two points, where it is positive of one": ([G_XX, ["number", "0"], G_XY], (0, ">", 1), 2, False),
    "and of one, where it is positive of two": ([G_XX, ["number", "0"], G_XY], (2, ">", 1), 0, False),
    "what has a positive square": ([F_X, ["number", "0"], ["power", 0, 2]], (2, ">", 1), 0, True),
    "a sum that has one": ([F_X, F_Y, ["plus", 0, 1], ["power", 2, 2], ["number", "0"]], (3, ">", 4), 2, True),
    "a factor of a positive product": ([F_X, F_Y, ["times", 0, 1], ["number", "0"]], (2, ">", 3), 0, True),
    "a part of a positive sum": ([F_X, F_Y, ["plus", 0, 1], ["number", "0"]], (2, ">", 3), 0, False),
    "a sum of factors of a positive product": ([F_X, F_Y, ["times", 0, 1], ["number", "0"], ["plus", 0, 1]], (2, ">", 3), 4, False),
}


@pytest.mark.parametrize("name", DIVISORS)
def test_what_is_divided_by_is_seen_not_to_be_zero_or_nothing_follows(name: str) -> None:
    terms, order, divisor, seen = DIVISORS[name]
    given = (("order", "", *order),) if order else ()
    with nullcontext() if seen else pytest.raises(RejectedError, match="positive"):
        verify(_forged(terms, [], 0, 0, given, (divisor,)))


A_1, A_2, C_X = ["var", "a1", D], ["var", "a2", D], ["symbol", "c"]
ODD: dict[str, tuple[list[Any], int, int]] = {
    "a quotient that may be undefined": ([C_X, ["power", 0, -1], ["times", 0, 1], ["number", "1"]], 2, 3),
    "and one under a sum": ([F_X, ["power", 0, -1], ["times", 0, 1], ["sum", [X], 2], ["number", "1"], ["sum", [X], 4]], 3, 5),
    "one variable replaced twice": ([F_X, ["let", [[X, Y], [X, Z]], 0]], 1, 1),
    "functions without a name": ([["equal", ["of", 1, [], D], ["of", True, [], D]], ["number", "1"]], 0, 1),
    "a term that is data": ([["plus", {}], ["number", "0"]], 0, 1),
    "an exponent that is a truth": ([F_X, ["power", 0, True]], 1, 0),
    "a normal form that is changed": ([["equal", X, Y], F_X, ["times", 0, 1], ["given", [X, Y], True, 2]], 3, 1),
    "an index that is no variable": ([["apply", "f", [["index", ["of", "o", [X], D]]]], ["move", ["of", "o", [X], D], Y, 0], F_Y], 1, 2),
}


@pytest.mark.parametrize("name", ODD)
def test_what_has_no_value_or_two_is_rejected(name: str) -> None:
    terms, left, right = ODD[name]
    with pytest.raises(RejectedError):
        verify(_forged(terms, [], left, right))


def test_the_sum_of_a_term_is_never_a_step_for_itself() -> None:
    """[a2 = a1], summed over nothing, squared and summed: not the number of points."""
    terms = [
        ["equal", A_2, A_1],
        ["the sum", [["var", "c1", "c"]], 0],
        ["times", 1, 1],
        ["the sum", [X], 0],
        ["sum", [X], 2],
        ["number", "1"],
        ["sum", [X], 5],
    ]
    forged = _forged(terms, [{"rule": "nested", "over": [X], "of": 2, "at": 1, "is": 3}], 4, 6)
    with pytest.raises(RejectedError):
        verify(forged | {"sorts": {D: "n", E: "k", "c": 1}})


@pytest.mark.parametrize("point", [{"n": "1/2", "k": "2"}, {"n": "-1", "k": "2"}, {"n": "0", "k": "2"}])
def test_there_are_so_many_points_as_can_be_counted(point: dict[str, str]) -> None:
    with pytest.raises(RejectedError, match="whole number"):
        verify(_forged([F_X], [], 0, 0) | {"point": point})


G_Y = ["apply", "g", [["index", Y]]]
#: Each rule, where it may be used: terms, the step, and the two sides that are equal by it.
TRUE: dict[str, tuple[list[Any], dict[str, Any], int, int]] = {
    "constant": ([F_Y, ["sum", [X], 0], N, ["times", 0, 2]], {"over": [X], "of": 0, "at": [X], "is": 3}, 1, 3),
    "homogeneity": (
        [F_X, G_Y, ["times", 0, 1], ["the sum", [X], 0], ["times", 1, 3], ["sum", [X], 2]],
        {"over": [X], "of": 2, "at": [1, 0], "is": 4},
        5,
        4,
    ),
    "exchange": (
        [F_X, G_Y, ["times", 0, 1], ["the sum", [X], 0], ["the sum", [Y], 1], ["times", 3, 4], ["sum", [X, Y], 2]],
        {"over": [X, Y], "of": 2, "at": [[[X], 0], [[Y], 1]], "is": 5},
        6,
        5,
    ),
    "nested": (
        [G_XY, ["the sum", [Y], 0], ["the sum", [X, Y], 0], ["sum", [X], 1]],
        {"over": [X], "of": 1, "at": 1, "is": 2},
        3,
        2,
    ),
    "one point": (
        [G_XY, ["equal", X, Z], ["times", 0, 1], ["apply", "g", [["index", Z], ["index", Y]]], ["sum", [X], 2]],
        {"over": [X], "of": 2, "at": [X, Z], "is": 3},
        4,
        3,
    ),
}


@pytest.mark.parametrize("rule", TRUE)
def test_each_rule_is_used_where_it_holds_and_nowhere_else(rule: str) -> None:
    terms, step, left, right = TRUE[rule]
    good = _forged(terms, [{"rule": rule, **step}], left, right)
    assert verify(good) == {rule: 1}
    with pytest.raises(RejectedError, match="differ"):  # without the step nothing is known
        verify({**good, "steps": []})
    for other in set(TRUE) - {rule}:
        with pytest.raises(RejectedError):
            verify({**good, "steps": [{"rule": other, **step}]})
    for wrong in range(len(terms)):
        if wrong != step["is"]:
            with pytest.raises(RejectedError):
                verify({**good, "steps": [{"rule": rule, **step, "is": wrong}]})


@pytest.mark.parametrize(
    "line",
    [
        ["sum", [X, X], 0],
        ["sum", [["of", "o", [], D]], 0],
        ["sum", [["var", "x", "no sort"]], 0],
        ["equal", X, ["of", "o", []]],
        ["equal", X, ["of", "o", [X], "no sort"]],
        ["equal", X, ["so", "o", [X], D]],
        ["equal", X, ["var", "#0.d.0", D]],
        ["equal", X, ["var", "?d.0", D]],
        ["equal", X, ["var", "~~0", D]],
        ["apply", "f", [["indices", X]]],
        ["power", 0, "2"],
        ["number", "one"],
        ["tensor", 0],
        ["plus", True],
        ["times", -1],
        [],
    ],
    ids=str,
)
def test_lines_that_mean_nothing_are_rejected(line: list[Any]) -> None:
    with pytest.raises(RejectedError):
        verify(_forged([F_X, line], [], 1, 1))


# What the checker makes of a term is what the term means.

SIZES = {"a": 2, "b": 3, "c": 1}


class Meaning:
    """Terms worked out by counting: each sort has its points, each function a table drawn from its name."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def drawn(self, *key: Any) -> int:
        return zlib.crc32(repr((self.seed, key)).encode())

    def index(self, x: Any, env: dict[Any, int]) -> int:
        if x[0] == "var":
            return env[tuple(x)]
        size = SIZES[x[3]]
        return self.drawn(x[1], [self.index(a, env) for a in x[2]]) % size

    def over(self, variables: Any, env: dict[Any, int]) -> Iterator[dict[Any, int]]:
        for values in itertools.product(*(range(SIZES[v[2]]) for v in variables)):
            yield env | {tuple(v): n for v, n in zip(variables, values, strict=True)}

    def app(self, name: str, args: list[Any]) -> Fraction:
        return Fraction(self.drawn(name, args) % 19 - 9, 1 + self.drawn("below", name, args) % 4)

    def term(self, lines: list[Any], n: int, env: dict[Any, int]) -> Fraction:
        kind, *parts = lines[n]
        at = lambda k, e=env: self.term(lines, k, e)  # noqa: E731
        match kind:
            case "number":
                return Fraction(parts[0])
            case "symbol":
                return self.app(parts[0], [])
            case "plus":
                return sum(map(at, parts), Fraction(0))
            case "times":
                product = Fraction(1)
                for p in parts:
                    product *= at(p)
                return product
            case "power":
                return at(parts[0]) ** parts[1]
            case "equal":
                return Fraction(self.index(parts[0], env) == self.index(parts[1], env))
            case "sum" | "the sum":
                return sum((at(parts[1], e) for e in self.over(parts[0], env)), Fraction(0))
            case "let":
                return at(parts[1], env | {tuple(v): self.index(i, env) for v, i in parts[0]})
            case "apply":
                return self.app(parts[0], [self.argument(lines, a, env) for a in parts[1]])
        raise AssertionError(kind)

    def argument(self, lines: list[Any], a: Any, env: dict[Any, int]) -> Any:
        if isinstance(a, int):
            return self.term(lines, a, env)
        if a[0] == "index":
            return self.index(a[1], env)
        return [self.term(lines, a[2], e) for e in self.over(a[1], env)]

    def poly(self, poly: Any, env: dict[Any, int]) -> Fraction:
        total = Fraction(0)
        for (guards, factors), c in dict(poly).items():
            if all(self.index(a, env) == self.index(b, env) for a, b in guards):
                value = c
                for one, n in factors:
                    value *= self.atom(one, env) ** n
                total += value
        return total

    def atom(self, one: Any, env: dict[Any, int]) -> Fraction:
        match one[0]:
            case "symbol":
                return self.app(one[1], [])
            case "one over":
                return 1 / self.poly(one[1], env)
            case "sum":
                return sum((self.poly({one[2]: Fraction(1)}, e) for e in self.over(one[1], env)), Fraction(0))
            case "apply":
                return self.app(one[1], [self.seen(a, env) for a in one[2]])
        raise AssertionError(one[0])

    def seen(self, a: Any, env: dict[Any, int]) -> Any:
        if a[0] == "index":
            return self.index(a[1], env)
        if a[0] == "term":
            return self.poly(a[1], env)
        return [self.poly(a[2], e) for e in self.over(a[1], env)]


VARIABLES = [["var", name, sort] for sort in SIZES for name in (f"{sort}1", f"{sort}2", f"{sort}3")]


def _index(rng: random.Random, sort: str, deep: int = 1) -> Any:
    if deep and rng.random() < 0.35:
        return ["of", f"o{sort}", [_index(rng, rng.choice("ab"), deep - 1)], sort]
    return rng.choice([v for v in VARIABLES if v[2] == sort])


def _drawn(rng: random.Random, count: int = 14) -> list[Any]:
    """Lines of a term: functions of indices, guards, products, sums over one or two variables, replacements, functions of terms."""
    lines: list[Any] = []
    for n in range(count):
        below = lambda: rng.randrange(max(0, n - 4), n)  # noqa: E731, B023
        kind = (
            "apply"
            if n < 2
            else rng.choice(["apply", "equal", "times", "times", "plus", "sum", "sum", "let", "of terms", "function", "power", "number"])
        )
        sort = rng.choice("aabbc")
        match kind:
            case "apply":
                lines.append(["apply", f"f{rng.randrange(3)}", [["index", _index(rng, rng.choice("ab"))] for _ in range(2)]])
            case "equal":
                lines.append(["equal", _index(rng, sort), _index(rng, sort)])
            case "times" | "plus":
                lines.append([kind, below(), below()])
            case "sum":
                lines.append(["sum", rng.sample(VARIABLES, rng.choice([1, 1, 2])), below()])
            case "let":
                lines.append(["let", [[v, _index(rng, v[2])] for v in rng.sample(VARIABLES, 2)], below()])
            case "of terms":
                lines.append(["apply", "h", [below(), ["index", _index(rng, sort)]]])
            case "function":
                lines.append(["apply", "k", [["function", [rng.choice(VARIABLES)], below()]]])
            case "power":
                lines.append(["power", below(), rng.choice([2, -1])])
            case "number":
                lines.append(["number", rng.choice(["2", "-1/3"])])
    return lines


@pytest.mark.parametrize("seed", range(30))
def test_what_the_checker_makes_of_a_term_is_what_it_means(seed: int) -> None:
    rng = random.Random(seed)
    compared = 0
    while compared < 5:
        lines, meaning = _drawn(rng), Meaning(rng.randrange(10**6))
        terms = Terms(dict(SIZES))
        env = {tuple(v): rng.randrange(SIZES[v[2]]) for v in VARIABLES}
        try:
            want = meaning.term(lines, len(lines) - 1, env)
            found = Reader(lines, terms).term(len(lines) - 1)
            value = meaning.poly(found, env)
        except (ZeroDivisionError, RejectedError):
            continue
        assert value == want, lines
        compared += 1


# The commands.


def test_prove_writes_what_verify_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "zero3.json"
    assert run(["prove", "zero3", "--certificate", str(path)]) == 0
    capsys.readouterr()
    assert run(["verify", str(path)]) == 0
    out = capsys.readouterr().out
    assert "9 claims" in out
    assert "not shown" not in out
    document = json.loads(path.read_text())
    document["claims"][0]["left"] = document["claims"][-1]["left"]
    path.write_text(json.dumps(document))
    assert run(["verify", str(path)]) == 1
    assert "rejected" in capsys.readouterr().out


def test_what_was_not_compared_of_a_recorded_step_is_said_of_its_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step, path = tmp_path / "r.step", tmp_path / "r.json"
    head, rest = written("ddp")["program"].split("\n", 1)
    step.write_text(f'{head}\nnot_compared(buffers="they end otherwise")\n{rest}', encoding="utf-8")
    assert run(["prove", str(step), "--certificate", str(path)]) == 4
    capsys.readouterr()
    assert run(["verify", str(path)]) == 4
    title, what, *_ = capsys.readouterr().out.splitlines()
    assert title.endswith(": holds, but for what was not compared")
    assert what == "not compared: buffers: they end otherwise"


def test_a_certificate_of_another_program_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, mlp = tmp_path / "c.json", of_block("mlp")
    for document in (
        written("zero1") | {"program": written("ddp")["program"]},
        mlp | {"program": of_block("swiglu")["program"]},
        mlp | {"program": written("ddp")["program"]},
        mlp | {"without": ["equal-tokens"]},
        mlp | {"ranges": ["N_tp >= 2"]},
    ):
        path.write_text(json.dumps(document))
        assert run(["verify", str(path)]) == 1
        assert "for the program in it" in capsys.readouterr().out


def test_what_is_not_proved_gets_no_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = tmp_path / "wrong.step"
    step.write_text("mesh(dp)\nG = all_reduce(backward(parameters), dp)\nparameters, optimizer = update(parameters, optimizer, G)\n")
    block = tmp_path / "block.step"
    block.write_text("mesh(tp)\ntensor(x, hidden, tp=hidden)\nreturns(total(x, over=hidden))\n")
    for subject, why in ((str(step), "the step is refuted"), (str(block), "the block is refuted"), ("mlp", "at most 100")):
        monkeypatch.setattr(semantics_certificate, "MOST", 100)
        run(["prove", subject, "--certificate", str(tmp_path / "c.json")])
        assert why in capsys.readouterr().err
        assert not (tmp_path / "c.json").exists()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": "other"}', "[" * 100_000])
def test_what_is_no_certificate_is_bad_input(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    assert run(["verify", str(path)]) == 2
    assert "PP209" in capsys.readouterr().err


def test_verify_says_what_of_a_block_is_left_to_a_solver(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A logarithm is of what is positive on one device; that the devices' is, is not seen."""
    block, path = tmp_path / "log.step", tmp_path / "c.json"
    for text, code, words in (
        ("returns(elementwise(log, all_reduce(total(x, over=hidden), tp)))", 3, "left to a solver"),
        ("returns(all_reduce(total(x, over=hidden), tp))", 0, "log.json: holds"),
    ):
        block.write_text(f"mesh(tp)\ntensor(x, hidden, tp=hidden)\n{text}\n")
        assert run(["prove", str(block), "--certificate", str(path)]) == 0
        assert run(["verify", str(path)]) == code
        assert words.replace("log.json", "c.json") in capsys.readouterr().out


def test_a_file_with_lines_of_its_own_has_a_certificate_that_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step, path = tmp_path / "mine.step", tmp_path / "c.json"
    head = "# mine\n\nmesh(dp)\n\nG = backward(parameters)\n# all\nG = all_reduce(G, dp, op=mean)\n\n"
    step.write_text(head + "parameters, optimizer = update(parameters, optimizer, G)\n")
    assert run(["prove", str(step), "--certificate", str(path)]) == 0
    assert run(["verify", str(path)]) == 0
    assert "holds" in capsys.readouterr().out
