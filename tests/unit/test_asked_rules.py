"""The rules that systems enforce are asked of every configuration: which facts importers give, and how a broken rule is told."""

from __future__ import annotations

import json
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from placeproof.core.diagnostics import InputError, Problems
from placeproof.framework_rules import of_system, rules
from placeproof.importers import read_config
from placeproof.importers.accelerate.facts import MEGATRON_SAYS
from placeproof.importers.accelerate.facts import SAYS as ACCELERATE
from placeproof.importers.asked import Known, Says
from placeproof.importers.deepspeed.facts import SAYS as DEEPSPEED
from placeproof.importers.document import read_document
from placeproof.importers.fields import Reader
from placeproof.importers.megatron.facts import PASSED_OVER
from placeproof.importers.megatron.facts import SAYS as MEGATRON
from placeproof.importers.settings import settings
from placeproof.importers.torchtitan.facts import SAYS as TORCHTITAN

CONFIGS = Path(__file__).parents[1] / "configs"
SAID: dict[str, dict[str, Says]] = {
    "accelerate": {**ACCELERATE, **MEGATRON_SAYS},
    "deepspeed": DEEPSPEED,
    "megatron": MEGATRON,
    "torchtitan": TORCHTITAN,
}

_PROGRAM = "the program or the model decides it, and not the file"
#: Rules of the four systems that no file can be asked for, and why.
UNASKED = {
    "accelerate-08": _PROGRAM,
    "deepspeed-08": _PROGRAM,
    "deepspeed-09": "it is about tensor parallelism of a program's mpu, which no file has; AutoEP goes with that of the file",
    **dict.fromkeys(("deepspeed-23", "deepspeed-24", "deepspeed-26", "deepspeed-27"), _PROGRAM),
    **PASSED_OVER,
    "megatron-06": "the order of ranks is no argument",
    "megatron-15": "the arguments set the type of messages to that of the weights",
    "megatron-55": "Megatron pads its buffers, and asks whether it has done so",
    **dict.fromkeys(("torchtitan-11", "torchtitan-13", "torchtitan-14"), "the setting came after torchtitan's files moved into Python"),
}


@pytest.fixture(scope="module")
def given() -> dict[str, set[str]]:
    """The facts that importers give of the configurations of the tests, good and bad, by the system whose rules are asked."""
    found: dict[str, set[str]] = {}
    ask = Known.ask

    def recorded(self: Known, system: str, *rest: Any) -> None:
        found.setdefault(system, set()).update(self.facts)
        ask(self, system, *rest)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Known, "ask", recorded)
        for folder in SAID:
            for expected in (CONFIGS / folder / "expected.json", CONFIGS / folder / "bad" / "expected.json"):
                for name, entry in json.loads(expected.read_text(encoding="utf-8")).items():
                    try:
                        read_config(str(expected.parent / name), system=folder, world=entry["world"])
                    except InputError:
                        assert expected.parent.name == "bad"
    return found


@pytest.mark.parametrize("system", SAID)
def test_every_rule_is_asked_or_is_none_of_a_file(system: str, given: dict[str, set[str]]) -> None:
    for rule in of_system(system):
        asked = set(rule.formula.names) <= given[system] and rule.id not in PASSED_OVER
        assert asked is (rule.id not in UNASKED), rule.id
    assert {rule for rule in UNASKED if rule.startswith(system)} <= {rule.id for rule in of_system(system)}


@pytest.mark.parametrize(("system", "rule"), [(system, rule) for system, said in SAID.items() for rule in said])
def test_what_is_told_of_a_rule_speaks_of_its_facts_and_of_settings_that_there_are(system: str, rule: str) -> None:
    says, known = SAID[system][rule], rules()[rule]
    assert known.system in (system, "pytorch") or (system, rule) in {("accelerate", name) for name in MEGATRON_SAYS}
    speaks = {name for text in (says.message, says.help) for _, name, _, _ in Formatter().parse(text) if name}
    assert speaks <= set(known.formula.names)
    fields = {name for known in settings(system) for name in known.names}
    assert set(says.at) <= fields


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


def test_a_rule_is_not_asked_of_a_value_that_cannot_be() -> None:
    """Two problems, not a third that heads do not divide by a degree that stands in for a wrong one."""
    with pytest.raises(InputError) as refused:
        read_config("[training]\nseq_len = 9\n[parallelism]\ntensor_parallel_degree = 0\n", system="torchtitan", world=8)
    assert [d.code for d in refused.value.diagnostics] == ["PP503"]


def test_a_rule_is_broken_only_by_what_is_known() -> None:
    known = Known(Reader(read_document("--num-attention-heads 6", "mine", "arguments", Problems()), (), Problems()))
    known.put("heads", 6)
    assert not known.breaks("megatron-16")
    known.put("tp", 4)
    assert known.breaks("megatron-16")
    known.put("tp", 3)
    assert not known.breaks("megatron-16")
