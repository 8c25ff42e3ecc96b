"""A sample of the scripts of ``nightly/scripts``, modelled on public ones: what is said of each is what it does on real processes.

``nightly/recorded_scripts.py`` runs all, and writes what it found.
"""

from __future__ import annotations

import json
import os

import pytest
from training_scripts import FOLDER, RESULTS, Script, scripts, truth, verdict

FOUND: dict[str, tuple[str, str, str]] = json.loads(RESULTS.read_text(encoding="utf-8"))["scripts"]
#: Of each kind some, right and wrong: what ``tests/traces`` has is not here again.
SAMPLE = (
    "accelerate_tokens",
    "checkpointed",
    "fsdp2_token_sums_scaled",
    "masked_mean_global",
    "tp_clip_owners",
    "tp_own_parts",
    "trainer_one_batch",
    "wrong_fsdp2_tokens_averaged",
    "wrong_clipped_by_value_on_rank_1",
    "wrong_inner_module",
    "wrong_megatron_finalize_grads_local",
    "wrong_parameters_scaled_on_rank_1",
    "wrong_reduce_sent_by_rank_1",
    "wrong_second_update",
    "wrong_zero1_clip_own",
    "wrong_zero1_clipped_on_rank_1",
    "zero2_accumulate",
    "zero2_clip",
)
#: Of these no program can be written.
REFUSED = ("wrong_momentum_reduced_again", "wrong_tp_own_parts_bias_on_each")


@pytest.mark.parametrize("name", [*SAMPLE, *REFUSED])
def test_what_is_said_of_a_script_is_what_it_does(name: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")
    if not hasattr(os, "fork"):
        pytest.skip("this system cannot fork processes")
    script = Script(FOLDER / f"{name}.py")
    for package in script.missing:
        pytest.skip(f"{package} is not installed: `pip install {package}` to run this script")
    does = truth(script)
    assert does.partition(":")[0] == script.claim, does
    said, reason = verdict(script)
    assert said == ("refused" if name in REFUSED else {"right": "proved", "wrong": "refuted"}[script.claim]), reason


def test_the_last_run_was_of_all_scripts_and_nothing_false_was_said() -> None:
    assert list(FOUND) == [script.name for script in scripts()]
    assert {(does, said) for does, said, _ in FOUND.values()} <= {
        ("right", "proved"),
        ("right", "proved except"),
        ("right", "refused"),
        ("wrong", "refuted"),
        ("wrong", "refused"),
    }
    assert all(reason for _, said, reason in FOUND.values() if said == "refused")


def test_scripts_are_as_many_right_as_wrong_and_say_which_and_whose_they_are() -> None:
    claims = [script.claim for script in scripts()]
    assert min(claims.count("right"), claims.count("wrong")) >= 80
    for script in scripts():
        assert FOUND[script.name][0] == script.claim
        assert (script.claim == "wrong") == script.name.startswith("wrong_")
        assert "\nModelled on: " in script.path.read_text(encoding="utf-8")
