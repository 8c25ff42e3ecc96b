"""The rule of composition: it proves what is proved directly, each clause keeps what it says, and none of its conditions is idle."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from blind import conditions, dropped
from random_compositions import random_programs, random_strategy

from placeproof.core.diagnostics import InputError
from placeproof.programs import Program, read, render
from placeproof.prove import Proved, Unknown, compose, settle
from placeproof.prove.composition import AxisType, Clause, Composition, Derivation, by_name, fault
from placeproof.semantics import catalogue
from placeproof.semantics.composition import RULE, composed
from placeproof.semantics.composition.lemmas import lemmas
from placeproof.semantics.composition.restrict import alike, restricted
from placeproof.semantics.judge.verdict import judge, provable
from placeproof.semantics.lower import lower
from placeproof.strategies import parse_strategy

NIGHTLY = os.environ.get("PLACEPROOF_PROFILE") == "nightly"
NEEDS = json.loads((Path(__file__).parents[1] / "data" / "composition_needs.json").read_text(encoding="utf-8"))
CLAUSES = by_name(RULE)
COMPUTED = {"data", "loss", "forward", "keep", "output", "backward_weight", "backward_weight of", "backward_input", "pass", "master"}
TWELVE = (
    "ddp(dp=da) * zero1(dp=db) * zero2(dp=dc) * fsdp(dp=dd) * zero3(dp=de) * hsdp(rep=df, shard=dg) * zero1(dp=dh) * ep * cp * tp * sp * pp"
)
#: Right steps that are written by hand: what is already whole is reduced once more, and a whole pass with experts.
TWICE = """
mesh(dp)
place(optimizer, dp="S")
g = {reduced}
parameters, optimizer = update(parameters, optimizer, g)
parameters = all_gather(parameters, dp)
"""
BY_HAND = [
    TWICE.format(reduced="scale(part(all_reduce(all_reduce(backward(parameters), dp), dp), dp), 1 / (dp * dp))"),
    TWICE.format(reduced="scale(part(all_reduce(all_reduce(backward(parameters), dp), dp, op=mean), dp), 1 / dp)"),
    TWICE.format(reduced="scale(reduce_scatter(all_reduce(backward(parameters), dp), dp), 1 / (dp * dp))"),
    TWICE.format(reduced="scale(reduce_scatter(all_reduce(backward(parameters), dp), dp, op=mean), 1 / dp)"),
    TWICE.format(reduced="reduce_scatter(backward(parameters), dp, op=mean)"),
    """
mesh(tp)
place(parameters, tp="S")
place(optimizer, tp="S")
place(gradients, tp="S")
g = backward(parameters)
parameters, optimizer = update(parameters, optimizer, g)
""",
    """
mesh(ep)
splits(ep="batch")
group(dense, P - P_expert)
group(expert, P_expert, experts=ep)
place(parameters.expert, ep="S")
place(optimizer.expert, ep="S")
place(gradients.expert, ep="S")
g = backward(parameters)
g.dense = all_reduce(g.dense, ep)
g = scale(g, 1 / ep)
parameters, optimizer = update(parameters, optimizer, g)
""",
]
#: On one device the scale of every part so far is by 1.
IN_PARTS = """
mesh(dp)
g = all_reduce(backward(parameters), dp)
for u in reversed(units):
    t[u] = g[u]
    t = scale(t, 1 / dp)
parameters, optimizer = update(parameters, optimizer, t)
"""
#: What the rule does not speak of, though it is right: a root unit that is computed apart, a norm that is added up over an axis.
TOO_WEAK = ("root=keep", "clip")


def in_parts(program: Program) -> bool:
    """Whether an update of whole matrices is of some that lie in parts over an axis: they are gathered for it, or are experts."""
    matrices = dict(program.reference).get("optimizer", "elementwise") != "elementwise"
    modes = (mode for p in program.placed if p.state == "optimizer" for axis, mode in p.modes if axis != "pp")
    return matrices and any(mode.split for mode in modes)


# What the rule proves.


def test_every_composition_of_the_catalogue_is_proved_but_for_what_is_computed_over_an_axis() -> None:
    found = [(text, p) for text, p in (*catalogue.compositions(2), *catalogue.variants()) if isinstance(p, Program)]
    assert len(found) > 150
    weak = {text for text, p in found if any(word in text for word in TOO_WEAK) or in_parts(p)}
    assert {text for text, p in found if not composed(p).proved} == weak


@pytest.mark.parametrize("seed", range(3))
def test_random_compositions_are_proved_as_they_are_directly(seed: int) -> None:
    """Right ones and changed ones, a few: `nightly/composition.py` draws ten thousand. Of gradients that are placed on the host in parts,
    and are kept whole, the rule proves more."""
    alone = 0
    for name, made in random_programs(seed, 15):
        try:
            program = read(render(made), source="random")
            direct = provable(program)
        except InputError:
            continue
        proved = composed(program).proved
        assert proved or not direct, f"{name}: {composed(program).why}"
        if proved and not direct:
            alone += 1
            assert judge(program).word != "refuted", render(program)
    assert alone <= 3


@pytest.mark.parametrize("seed", range(10, 14))
def test_right_compositions_of_many_axes_are_proved(seed: int) -> None:
    programs = [p for _, p in random_programs(seed, 20, most=9, changed=0.0)]
    assert max(len(p.axes) for p in programs) >= 6
    assert all(composed(p).proved for p in programs)


def test_twelve_axes_are_six_factors() -> None:
    found = composed(lower(parse_strategy(TWELVE)))
    assert found.proved
    assert sorted(names for names, _ in found.factors) == [
        ("cp",), ("da", "df"), ("db", "dh"), ("dc",), ("dd", "de", "dg"), ("ep",), ("tp",)
    ]  # fmt: skip
    assert found.base is not None
    assert [a.name for a in found.base.program.axes] == ["pp"]


@pytest.mark.parametrize("name", sorted(catalogue.not_equivalent()))
def test_what_is_known_to_be_wrong_is_not_proved(name: str) -> None:
    assert not composed(catalogue.read_not_equivalent(name)).proved


WRONG = [p for f in ("bugs/*.mutant.step", "programs/wrong/*.step") for p in sorted(Path(__file__).parents[1].glob(f))]


@pytest.mark.parametrize("path", WRONG, ids=lambda p: p.stem)
def test_wrong_programs_are_not_proved(path: Path) -> None:
    assert not composed(read(path.read_text(encoding="utf-8"), source=path.name)).proved


def test_factors_that_interact_are_not_taken_apart() -> None:
    """A scale that is right on each axis alone, and wrong on both; tied copies that are scattered before they are added; and what is
    right on one device, and counts for each part on several: a scale in a loop, or a part that is read before it is scaled."""
    sum_of_degrees = """
mesh(dp, rep)
splits(rep="batch")
g = scale(all_reduce(backward(parameters), dp, rep), 1 / (dp + rep - 1))
parameters, optimizer = update(parameters, optimizer, g)
"""
    rule = catalogue.rules()["tied_copies_are_added_before_they_are_scattered"]
    for text in (sum_of_degrees, IN_PARTS, IN_PARTS.replace("reversed(units)", "units"), *rule.holds, *rule.fails):
        assert not composed(read(text.lstrip(), source="own")).proved
    assert composed(read(sum_of_degrees.replace("dp + rep - 1", "dp * rep").lstrip(), source="own")).proved


# What its clauses say.


TENSORS = [c for c in RULE if lemmas(c)]


@pytest.mark.parametrize("clause", TENSORS, ids=lambda c: c.name)
def test_a_clause_about_tensors_keeps_what_it_says(clause: Clause) -> None:
    assert all(isinstance(settle(equation), Proved) for equation in lemmas(clause))


@pytest.mark.parametrize("clause", TENSORS, ids=lambda c: c.name)
def test_a_clause_with_another_power_does_not(clause: Clause) -> None:
    power = 0 if clause.power == "said" else int(clause.power) + 1
    assert not all(isinstance(settle(equation), Proved) for equation in lemmas(replace(clause, power=power)))


@pytest.mark.parametrize("clause", [c for c in TENSORS if "any*" not in c.takes], ids=lambda c: c.name)
def test_a_clause_that_takes_anything_does_not(clause: Clause) -> None:
    changed = replace(clause, takes=tuple("any*" for _ in clause.takes))
    assert not all(isinstance(settle(equation), Proved) for equation in lemmas(changed))


def test_the_clauses_about_tensors_are_those_of_no_computation() -> None:
    assert {c.op for c in RULE} - {c.op for c in TENSORS} == COMPUTED


def test_each_clause_is_used_by_a_step_that_is_proved_directly() -> None:
    texts = [*BY_HAND, *(text for rule in catalogue.rules().values() for text in rule.holds if "\n" in text)]
    programs = [read(text.lstrip(), source="rule") for text in texts]
    programs += [p for _, p in (*catalogue.compositions(2), *catalogue.variants()) if isinstance(p, Program)]
    used: set[str] = set()
    for program in programs:
        found = composed(program)
        more = {use.clause for _, factor in found.factors for d in factor.derivations for use in d.uses} & set(CLAUSES)
        if found.proved and more - used:
            assert judge(program).word == "proved"
            used |= more
    assert used == set(CLAUSES)


@pytest.mark.parametrize("row", NEEDS, ids=lambda row: f"{row['clause']}-{row['operand']}")
def test_without_a_condition_the_rule_proves_what_a_run_refutes(row: dict[str, str]) -> None:
    program = read(row["program"], source="needs")
    assert not composed(program).proved
    assert composed(program, dropped(RULE, row["clause"], row["operand"])).proved
    assert judge(program, shortest=False).word == "refuted"


def test_conditions_without_a_witness_follow_from_the_others() -> None:
    """No operation makes of a stream, or of what forward kept, anything but what the clauses before it give; what is taken as anything
    has no condition; and runs compute token by token, so that none shows what a proof does not grant."""
    shown = {(row["clause"], row["operand"]) for row in NEEDS}
    left = set(conditions(RULE)) - shown
    of_streams = {(c.name, str(n)) for c in RULE if c.op in COMPUTED for n in range(1, len(c.takes))}
    anything = {(c.name, str(n)) for c in RULE for n, t in enumerate(c.takes) if t == "any*"}
    moved = {("broadcast_by_owners", "0"), ("cut_to_a_part", "0"), ("reduce_scatter_of_copies", "0"), ("mean_scattered_of_copies", "0")}
    passes = {("pass_of_experts", "0"), ("pass_of_slices", "0"), ("pass_of_shares", "0")}
    kept = {("kept_as_made", "0"), ("kept_of_slices", "0"), ("output_again", "0")}
    assert left <= of_streams | anything | moved | passes | kept | {("token by token", "only")}


# What the kernel checks.


def _derivations() -> list[Derivation]:
    found = composed(lower(parse_strategy("zero2 * tp * sp * cp * ep * pp")))
    return [d for _, factor in found.factors for d in factor.derivations]


def test_a_derivation_with_a_changed_step_is_refused() -> None:
    random, refused = Random(1), 0
    for derivation in _derivations():
        assert fault(derivation, CLAUSES) is None
        for _ in range(40):
            number = random.randrange(len(derivation.uses))
            use = derivation.uses[number]
            change = random.choice(("clause", "power", "layout", "operands"))
            if change == "clause":
                changed = replace(use, clause="no clause")
            elif change == "power":
                changed = replace(use, gives=AxisType(use.gives.layout, use.gives.power + 1))
            elif change == "layout" and use.gives.layout != "partial":
                changed = replace(use, gives=AxisType("partial", use.gives.power))
            else:
                changed = replace(use, operands=(*use.operands, len(derivation.uses)))
            uses = (*derivation.uses[:number], changed, *derivation.uses[number + 1 :])
            refused += fault(replace(derivation, uses=uses), CLAUSES) is not None
    assert refused == 40 * len(_derivations())


def test_a_derivation_that_ends_otherwise_is_refused() -> None:
    derivation = _derivations()[0]
    number, wanted = derivation.ends[0]
    for ends in (((number, AxisType("partial")),), ((number, AxisType(wanted.layout, 1)),), ((len(derivation.uses), wanted),)):
        assert fault(replace(derivation, ends=ends), CLAUSES) is not None


def test_the_kernel_proves_nothing_of_a_step_that_is_not_proved_to_begin_with() -> None:
    derivations = tuple(_derivations())
    proved = settle(lemmas(RULE[0])[0])
    assert isinstance(compose(Composition(name="x", base=(proved,), rule=RULE, derivations=derivations)), Proved)
    assert isinstance(compose(Composition(name="x", base=(), rule=RULE, derivations=derivations)), Unknown)
    assert isinstance(compose(Composition(name="x", base=(proved, "proved"), rule=RULE, derivations=derivations)), Unknown)
    assert isinstance(compose(Composition(name="x", base=(proved,), rule=RULE[:3], derivations=derivations)), Unknown)


# A step on some axes alone.


@pytest.mark.parametrize("seed", range(3))
def test_a_step_on_some_axes_is_what_it_is_with_one_device_on_the_others(seed: int) -> None:
    """Where an axis stands in a program that cannot be spoken of, as one that cuts what is added up, it may be unknown with it alone."""
    random, words = Random(seed), set()
    for name, made in random_programs(40 + seed, 50 if NIGHTLY else 12, most=3, changed=0.6):
        if any(a.inner is not None for a in made.axes):
            continue
        kept = {a.name for a in made.axes if random.random() < 0.5}
        single = tuple(a if a.name in kept else replace(a, degree=1) for a in made.axes)
        try:
            texts = [render(replace(made, axes=single)), render(restricted(made, kept))]
            one, few = (provable(read(text, source="some axes")) for text in texts)
        except (InputError, ValueError):
            continue
        if one != few:
            assert few, f"{name}: {kept}\n{render(made)}"
            assert judge(read(texts[0], source="some axes")).word == "unknown", f"{name}: {kept}\n{render(made)}"
        words.add(one)
    assert words == {True, False}


def test_axes_that_are_used_alike_give_the_same_step_but_for_their_names() -> None:
    program = lower(parse_strategy(TWELVE))
    for group in alike(program, ["pp"]):
        texts = {render(restricted(program, [a.name, "pp"], {a.name: "axis"})) for a in group}
        assert len(texts) == 1


def test_random_strategies_have_as_many_axes_as_are_asked_for() -> None:
    made = [s for s in (random_strategy(Random(n), 12) for n in range(200)) if s is not None]
    assert {len(s.axes) for s in made} >= set(range(1, 9))
