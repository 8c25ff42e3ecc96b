"""The rules that systems enforce are asked of every configuration: which facts importers give, and how a broken rule is told."""

from __future__ import annotations

import json
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
from test_rule_pairs import PAIRS, UNASKED

from placeproof.core.diagnostics import InputError, Problems
from placeproof.framework_rules import of_system, rules
from placeproof.importers import read_config
from placeproof.importers.asked import Known
from placeproof.importers.document import read_document
from placeproof.importers.fields import Reader
from placeproof.importers.meaning import Meaning, Refusal, Remark, meaning
from placeproof.importers.megatron.reader import PASSED_OVER
from placeproof.importers.settings import settings

CONFIGS = Path(__file__).parents[1] / "configs"
SAID: dict[str, Meaning] = {system: meaning(system) for system in ("accelerate", "deepspeed", "megatron", "torchtitan")}
#: Rules of other systems that Accelerate's files are asked for.
OF_ANOTHER = {("accelerate", "megatron-62"), ("accelerate", "megatron-68"), ("accelerate", "megatron-87"), ("accelerate", "deepspeed-27")}
#: Rules that are told where a model is given beside the file.
OF_MODELS = {rule for rule, pair in PAIRS.items() if "--model" in pair.options}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[frozenset[str]]]:
    """The facts that importers give of each configuration of the tests, good and bad, by the system whose rules are asked."""
    found: dict[str, set[frozenset[str]]] = {}
    ask = Known.ask

    def recorded(self: Known, *systems: str, **rest: Any) -> None:
        for system in systems:
            found.setdefault(system, set()).add(frozenset(self.facts))
        ask(self, *systems, **rest)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Known, "ask", recorded)
        for folder in SAID:
            for expected in (CONFIGS / folder / "expected.json", CONFIGS / folder / "bad" / "expected.json"):
                for name, entry in json.loads(expected.read_text(encoding="utf-8")).items():
                    try:
                        read_config(str(expected.parent / name), system=folder, world=entry["world"])
                    except InputError:
                        assert expected.parent.name == "bad"
        for pair in PAIRS.values():
            path = tmp_path_factory.mktemp(pair.rule) / pair.file
            path.write_text(pair.valid, encoding="utf-8")
            read_config(str(path), world=pair.world)
    return found


@pytest.mark.parametrize("system", SAID)
def test_every_rule_is_asked_or_is_none_of_a_file(system: str, given: dict[str, set[frozenset[str]]]) -> None:
    for rule in of_system(system):
        asked = any(facts >= set(rule.formula.names) for facts in given[system]) and rule.id not in PASSED_OVER
        assert asked is (rule.id not in {*UNASKED, *OF_MODELS}), rule.id
    assert {rule for rule in UNASKED if rule.startswith(system)} <= {rule.id for rule in of_system(system)}


def shown(*texts: str) -> set[str]:
    """What texts show in braces."""
    return {name for text in texts for _, name, _, _ in Formatter().parse(text) if name}


REFUSALS = [(system, one) for system, said in SAID.items() for one in said.refusals]
NOTES = [(system, one) for system, said in SAID.items() for one in said.notes]


@pytest.mark.parametrize(("system", "one"), REFUSALS)
def test_a_refusal_speaks_of_what_it_asks_for_and_of_settings_that_there_are(system: str, one: Refusal) -> None:
    asked = set(one.when.names) if one.when else set()
    for rule in one.rules:
        assert rules()[rule].system in (system, "pytorch") or (system, rule) in OF_ANOTHER
        asked |= set(rules()[rule].formula.names)
    derived = {name for fact in SAID[system].facts.values() for name in fact.formula.names} | set(SAID[system].facts)
    assert shown(one.message, one.help) <= asked | derived | ({"setting"} if one.each else set())
    assert {*one.at, *one.each} <= {name for known in settings(system) for name in known.names}
    assert bool(one.rules) != bool(one.when or one.each)
    assert not one.unless or one.unless in rules()


@pytest.mark.parametrize(("system", "one"), NOTES)
def test_a_note_is_about_settings_that_there_are(system: str, one: Remark) -> None:
    names = {known.name for known in settings(system)}
    assert all(any(name.startswith(of[:-1]) for name in names) if of.endswith("*") else of in names for of in one.of)
    assert not one.when or one.when.names


@pytest.mark.parametrize("system", SAID)
def test_every_formula_speaks_of_settings_and_of_facts(system: str, given: dict[str, set[frozenset[str]]]) -> None:
    """A name that is neither would leave what it stands in unsaid for ever."""
    known = {name for setting in settings(system) for name in setting.names} | set().union(*given[system]) | set(SAID[system].facts)
    formulas = [fact.formula for fact in SAID[system].facts.values()]
    formulas += [one.when for one in (*SAID[system].refusals, *SAID[system].notes) if one.when]
    assert {name for formula in formulas for name in formula.names} <= known | {"value", "setting"}


BROKEN = [
    ("megatron", "--num-attention-heads 6 --tensor-model-parallel-size 4", 8, "megatron-16", "--num-attention-heads"),
    ("megatron", "--bf16 --calculate-per-token-loss --ddp-average-in-collective", 8, "megatron-60", "--ddp-average-in-collective"),
    ("megatron", "--overlap-moe-expert-parallel-comm --moe-token-dispatcher-type alltoall", 8, "megatron-34", "--overlap-moe"),
    (
        "deepspeed",
        '{"bf16": {"enabled": true}, "pipeline": {"stages": 2}, "zero_optimization": {"stage": 2}}',
        8,
        "deepspeed-30",
        '"stages"',
    ),
    ("deepspeed", '{"data_types": {"grad_accum_dtype": "fp32"}, "fp16": {"enabled": true}}', 8, "deepspeed-31", '"grad_accum_dtype"'),
    ("torchtitan", "[training]\nseq_len = 9\n[parallelism]\ntensor_parallel_degree = 2\n", 8, "torchtitan-04", "seq_len"),
    ("torchtitan", "[training]\nlocal_batch_size = 3\nglobal_batch_size = 4\n", 1, "torchtitan-05", "global_batch_size"),
    (
        "accelerate",
        "distributed_type: MULTI_GPU\nparallelism_config:\n  parallelism_config_tp_size: 3\n",
        8,
        "accelerate-03",
        "parallelism",
    ),
    (
        "accelerate",
        "distributed_type: MEGATRON_LM\nmegatron_lm_config:\n  megatron_lm_tp_degree: 2\n  megatron_lm_sequence_parallelism: false\n"
        "  megatron_lm_expert_model_parallel_size: 2\n",
        8,
        "megatron-62",
        "megatron_lm_expert",
    ),
    (
        "accelerate",
        "distributed_type: MEGATRON_LM\nmegatron_lm_config:\n  megatron_lm_optimizer_cpu_offload: true\n",
        8,
        "megatron-87",
        "megatron_lm_optimizer",
    ),
]


@pytest.mark.parametrize(("system", "text", "world", "rule", "at"), BROKEN)
def test_a_broken_rule_is_an_error_with_its_name_and_place(system: str, text: str, world: int, rule: str, at: str) -> None:
    with pytest.raises(InputError) as refused:
        read_config(text, system=system, world=world)
    (problem,) = (d for d in refused.value.diagnostics if f"`placeproof explain {rule}`" in d.notes)
    assert problem.code == "PP504"
    assert problem.help
    assert problem.place is not None
    assert problem.place.text[problem.place.column - 1 :].startswith(at)


def test_there_are_as_many_rules_as_said() -> None:
    assert len(rules()) >= 140


def test_a_rule_is_not_asked_of_a_value_that_cannot_be() -> None:
    """Two problems, not a third that heads do not divide by a degree that stands in for a wrong one."""
    with pytest.raises(InputError) as refused:
        read_config("[training]\nseq_len = 9\n[parallelism]\ntensor_parallel_degree = 0\n", system="torchtitan", world=8)
    assert [d.code for d in refused.value.diagnostics] == ["PP503"]


def test_a_rule_is_broken_only_by_what_is_known() -> None:
    known = Known(Reader(read_document("--num-attention-heads 6", "mine", "arguments", Problems()), (), Problems()), Meaning(facts={}))
    known.put("heads", 6)
    assert not known.breaks("megatron-16")
    known.put("tp", 4)
    assert known.breaks("megatron-16")
    known.put("tp", 3)
    assert not known.breaks("megatron-16")
