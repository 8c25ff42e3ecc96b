"""The rules that training frameworks enforce: each is judged once, its evidence is run, and a judgement that is wrong is noticed."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from placeproof.cli.main import run
from placeproof.core.diagnostics import InputError
from placeproof.framework_rules import SYSTEMS, Rule, RuleKind, broken, of_system, rules
from placeproof.framework_rules.domains import grid
from placeproof.framework_rules.evidence import Agreement, Compared, Found, Verdict, complaints, examine
from placeproof.framework_rules.formula import Fact, read_formula
from placeproof.framework_rules.questions import asked, questions
from placeproof.framework_rules.subjects import read_subject
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.meaning.run import run as run_program

DATA = Path(__file__).parents[1] / "data"
COLLECTED = {r["id"]: r for r in json.loads((DATA / "wild_rules.json").read_text(encoding="utf-8"))}


@cache
def found(name: str) -> tuple[Found, ...]:
    """The evidence of a rule, run once."""
    return tuple(examine(rules()[name]))


# The collection.


def test_every_rule_of_the_collection_is_judged_once() -> None:
    assert len(COLLECTED) == 105
    assert set(COLLECTED) <= set(rules())
    counts = Counter(rule.kind.value for rule in rules().values())
    print(", ".join(f"{n} {kind}" for kind, n in counts.items()))
    assert set(counts) == {kind.value for kind in RuleKind}


@pytest.mark.parametrize("name", sorted(set(rules()) - set(COLLECTED)))
def test_a_rule_that_was_not_collected_cites_a_line_of_a_version(name: str) -> None:
    """Either a commit of a repository or a version of a package, then a file and a line."""
    assert re.fullmatch(r"([\w-]+/[\w.-]+@[0-9a-f]{12}|[\w-]+==[\d.]+):[\w/.-]+\.py#L\d+", rules()[name].citation)
    assert len(rules()[name].why.split()) > 8
    assert rules()[name].why.endswith(".")


@pytest.mark.parametrize("name", COLLECTED)
def test_a_rule_says_what_was_collected(name: str) -> None:
    rule, entry = rules()[name], COLLECTED[name]
    assert (rule.says, rule.formula.text, rule.citation, rule.title) == (
        entry["rule"],
        entry["formula"],
        entry["citation"],
        entry["system"],
    )
    assert len(rule.why.split()) > 8
    assert rule.why.endswith((".", ")"))


def test_systems_are_those_of_the_collection() -> None:
    assert set(SYSTEMS.values()) == {entry["system"] for entry in COLLECTED.values()}
    for key, title in SYSTEMS.items():
        assert of_system(title) == of_system(key)
        assert all(rule.id.startswith(key) for rule in of_system(key))


# The evidence.


@pytest.mark.parametrize("name", rules())
def test_the_evidence_bears_the_kind_out(name: str) -> None:
    assert list(complaints(rules()[name], found(name))) == []


#: Rules of which a part is of one kind and a part of another: the evidence of the whole would bear these out too.
MIXED = {"megatron-19": {RuleKind.COST}, "torchtitan-04": {RuleKind.COST}, "megatron-27": {RuleKind.SHAPE}}


@pytest.mark.parametrize("name", rules())
def test_another_kind_would_be_noticed(name: str) -> None:
    for kind in set(RuleKind) - {rules()[name].kind}:
        noticed = bool(list(complaints(replace(rules()[name], kind=kind), found(name))))
        assert noticed is (kind not in MIXED.get(name, set())), kind


def spoiled(rule: Rule) -> list[Rule]:
    """The rule with one piece of its evidence turned into its opposite."""
    wrong = [replace(rule, proved=(*rule.proved, "context_forgotten.step"))]
    if rule.refuted:
        wrong.append(replace(rule, refuted=("zero1",)))
    if rule.refused:
        wrong.append(replace(rule, refused=("zero1 * tp",)))
    if rule.template is not None:
        wrong.append(replace(rule, formula=read_formula(f"not ({rule.formula.text})")))
    if rule.line is not None:
        wrong.append(replace(rule, formula=read_formula("True")))
        wrong.append(replace(rule, line=replace(rule.line, looser_why="" if rule.line.looser_why else "there is none")))
        made_up = {"stricter": RuleKind.COST, "stricter_why": "there is none"}
        other = {"stricter": None, "stricter_why": ""} if rule.line.stricter else made_up
        wrong.append(replace(rule, line=replace(rule.line, **other)))  # type: ignore[arg-type]
    wrong += [replace(rule, saves_nothing=(replace(p, against="zero3 * accumulate"),)) for p in rule.saves_nothing]
    wrong += [replace(rule, dearer=(replace(p, of=p.against, against=p.of),)) for p in rule.dearer]
    wrong += [replace(rule, costs=(read_formula(f"not ({f.text})", f.functions),)) for f in rule.costs if f.sides({}) is None]
    return wrong


@pytest.mark.parametrize("name", rules())
def test_evidence_that_is_not_so_is_noticed(name: str) -> None:
    for wrong in spoiled(rules()[name]):
        assert list(complaints(wrong, tuple(examine(wrong)))), wrong


def test_refutations_are_replayed() -> None:
    """Every witness of a semantic rule differs from one device when it is run again."""
    refuted = [v for name in rules() for v in found(name) if isinstance(v, Verdict) and v.judged.word == "refuted"]
    assert len({v.subject for v in refuted}) >= 7
    for verdict in refuted:
        judged = verdict.judged
        assert judged.found is not None
        if not judged.program.tensors:
            assert run_program(judged.program, judged.found.setup) == judged.found.what


def test_no_step_that_breaks_a_rule_about_cost_is_refuted() -> None:
    for name, rule in rules().items():
        if rule.kind is RuleKind.COST:
            verdicts = [v for v in found(name) if isinstance(v, Verdict)]
            assert verdicts, name
            assert all(v.judged.word == "proved" for v in verdicts), name


def test_prices_are_positive_where_there_is_something_to_exchange() -> None:
    """The derived differences, at numbers: two stages, two replicas, four micro-batches."""
    import sympy

    values = {"P": 1000, "U": 10, "A": 100, "m": 4, "N": 4, "N_dp": 2, "N_pp": 2, "N_cp": 2}
    priced = [c for name in rules() for c in found(name) if isinstance(c, Compared) and c.pair.key]
    assert len(priced) >= 3
    for one in priced:
        difference = one.differences[one.pair.key]
        assert difference.subs({s: values.get(str(s), 2) for s in difference.free_symbols}) > sympy.Integer(0), one.pair


def test_grids_are_not_vacuous() -> None:
    """A line that is always on one side, or a fact that decides nothing, would agree with anything."""
    for name in rules():
        for one in found(name):
            if isinstance(one, Agreement):
                assert one.kept is not None
                assert one.broken is not None
                assert one.configs >= 4
                assert set(rules()[name].formula.names) <= set(one.line.domains), name


def grids() -> dict[str, Mapping[str, tuple[Fact, ...]]]:
    """The values of each fact, of every line and every question."""
    lines = {name: rule.line.domains for name, rule in rules().items() if rule.line is not None}
    return {**lines, **{name: question.domains for name, question in questions().items()}}


@pytest.mark.parametrize("name", grids())
def test_no_configuration_of_a_grid_is_counted_twice(name: str) -> None:
    for fact, values in grids()[name].items():
        assert len(set(values)) == len(values), fact


#: What makes a table or a cut, and which of its arguments say on how many devices it is, and what is dealt out to them.
ALIKE = {r"(?:one_f_one_b|interleaved|zero_bubble|v_shaped)\((\w+)": 1, r"(?:contiguous|zigzag)\((\w+, \w+)": 3}


@pytest.mark.parametrize(("pattern", "least"), ALIKE.items())
def test_relations_compare_orders_and_cuts_on_as_many_devices(pattern: str, least: int) -> None:
    compared = {f.text: re.findall(pattern, f.text) for rule in rules().values() for f in (*rule.costs, *rule.free)}
    pairs = {text: sides for text, sides in compared.items() if len(sides) > 1}
    assert len(pairs) >= least
    assert not {text: sides for text, sides in pairs.items() if len(set(sides)) > 1}


# Questions.


@pytest.mark.parametrize("name", questions())
def test_systems_disagree_on_a_question(name: str) -> None:
    question = questions()[name]
    assert len({answer.title for answer in question.answers}) >= 2
    parted = question.parted()
    assert parted
    for one in parted:
        assert one.allows.allows(one.facts)
        assert not one.refuses.allows(one.facts)
    for text in question.proved:
        assert judge(read_subject(text)).word == "proved", text


def test_a_rule_is_asked_for_by_its_questions() -> None:
    assert [q.name for q in asked("colossalai-13")] == ["key_value_heads"]
    assert not asked("megatron-22")
    answered = {rule for q in questions().values() for a in q.answers for rule in a.rules}
    assert answered - set(COLLECTED) == {"megatron-78"}


def test_a_layout_of_ours_is_never_stricter_than_what_all_systems_allow() -> None:
    """What every system takes has a layout, where the line is about layouts."""
    for name in ("key_value_heads", "pieces_of_a_sequence", "where_experts_lie", "parts_of_a_batch"):
        question = questions()[name]
        for facts in grid(question.domains):
            if all(answer.allows(facts) for answer in question.answers):
                assert question.line.holds(facts), (name, facts)


# A configuration's broken rules.


def test_broken_rules_are_listed_with_their_kind() -> None:
    facts: Mapping[str, object] = {"heads": 6, "tp": 4, "sp": True, "pp": 1, "vpp_set": True, "fsdp2": True}
    names = {b.rule.id: b.rule.kind for b in broken("megatron", facts)}  # type: ignore[arg-type]
    assert names == {"megatron-16": RuleKind.SHAPE, "megatron-09": RuleKind.COST}
    assert broken("Megatron-LM", {"heads": 8, "tp": 4}) == ()
    assert [dict(b.facts) for b in broken("nanotron", {"kv_heads": 1, "tp": 2})] == [{"kv_heads": 1, "tp": 2}]


@pytest.mark.parametrize(
    ("system", "facts", "shown"),
    [
        ("megatrn", {}, "did you mean `megatron`?"),
        ("vllm", {}, "one of megatron"),
        ("megatron", {"heads": "six", "tp": 2}, "degrees and sizes are at least 1"),
        ("megatron", {"heads": 6, "tp": 0}, "degrees and sizes are at least 1"),
    ],
)
def test_what_cannot_be_asked_is_said(system: str, facts: dict[str, int | str], shown: str) -> None:
    with pytest.raises(InputError) as error:
        broken(system, facts)
    assert shown in (error.value.diagnostics[0].help or "")


# The command line.


def test_a_rule_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "megatron-13"]) == 0
    out = capsys.readouterr().out
    for shown in ("rule megatron-13 of Megatron-LM: cost", "implies(sp, tp > 1)", "saves nothing: tp(tp=1) * sp", "source: NVIDIA"):
        assert shown in out
    assert "ColossalAI (colossalai-04)" in out


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((1, 2, 3, 4), "1 to 4"),
        ((1, 2), "1 or 2"),
        ((1, 2, 4), "1 or 2 or 4"),
        ((False, True), "False or True"),
        (("dp", "tp", "pp"), "dp or tp or pp"),
    ],
)
def test_only_whole_numbers_without_a_gap_are_a_range(values: tuple[object, ...], shown: str) -> None:
    """What a rule was tried on is said as it is."""
    from placeproof.report.framework_rules import _ranges

    agreement = next(one for rule in rules().values() for one in examine(rule) if isinstance(one, Agreement))
    assert _ranges(replace(agreement, line=replace(agreement.line, domains={"fact": values}))) == f"fact {shown}"


@pytest.mark.parametrize("name", rules())
def test_every_rule_can_be_explained(name: str) -> None:
    from placeproof.report.framework_rules import text

    lines = list(text(rules()[name]))
    assert lines[0] == f"rule {name} of {rules()[name].title}: {rules()[name].kind.value}"
    assert lines[-1] == f"source: {rules()[name].citation}"
    if rules()[name].kind is RuleKind.SEMANTIC:
        assert any("expected" in line and "actual" in line for line in lines)


def test_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "rules"]) == 0
    every = capsys.readouterr().out.splitlines()
    assert sum(line.split()[1] != "composition" for line in every) == len(rules())
    assert run(["list", "rules", "--system", "Megatron-LM"]) == 0
    megatron = capsys.readouterr().out.splitlines()
    assert len(megatron) == len(of_system("megatron"))
    assert all(line.startswith("megatron-") for line in megatron)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["explain", "megatron-333"], "did you mean `megatron-33`"),
        (["explain", "deepsped-02"], "did you mean"),
        (["list", "rules", "--system", "colosalai"], "did you mean `colossalai`?"),
        (["list", "modes", "--system", "megatron"], "placeproof list rules --system megatron"),
    ],
)
def test_unknown_names_suggest_near_ones(arguments: list[str], shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert shown in capsys.readouterr().err
