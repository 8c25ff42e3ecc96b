"""Frames of pandas: the numbers of JSON, by the names of rows and columns."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

import placeproof

pandas = pytest.importorskip("pandas", reason="pandas is not installed: `pip install placeproof[notebook]`")


def test_a_model_by_stage() -> None:
    answer = placeproof.model("fsdp(8) * tp(8) * sp * pp(4)", "llama3-8b", b=1, m=4)
    frame = answer.frame()
    assert [*answer.frames()] == ["memory of a device by stage", "what a device sends in a step, by axes", "closed forms"]
    for stage in answer.data["stages"]:
        assert frame.loc[stage["name"], "peak"] == stage["memory"]["peak"]["value"]
        assert frame.loc[stage["name"], "gathered"] == stage["memory"]["transient"]["value"]
    sent = answer.frame("what a device sends in a step, by axes")
    assert sent.loc["stage 1", "over tp"] == answer.data["stages"][1]["traffic"]["tp"]["value"]


def test_closed_forms() -> None:
    """Without numbers, these are all that there is."""
    answer = placeproof.derive("zero3")
    assert [*answer.frames()] == ["closed forms"]
    assert answer.frame().loc["memory.model_states", "formula"] == answer.memory["model_states"]


def test_seconds_and_shares() -> None:
    answer = placeproof.model("fsdp(8) * pp(2)", "llama3-8b", b=1, m=4).time("dgx-h100")
    links, whole, stages = answer.frames().values()
    assert links.loc["stage 0, dp", "nvlink"] == answer.data["stages"][0]["links"]["dp"]["nvlink"]
    assert whole.loc["a step", "in all"] == answer.data["seconds"]["step"]
    assert stages.loc["stage 1", "idle"] == answer.data["stages"][1]["idle"]


def test_without_pandas_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    own = builtins.__import__

    def refused(name: str, *arguments: Any, **more: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return own(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", refused)
    with pytest.raises(ImportError, match=r"pip install 'placeproof\[notebook\]'"):
        placeproof.derive("zero3").frame()


def test_what_a_prompt_shows_is_short() -> None:
    """It was 205,717 characters."""
    for answer in (placeproof.derive("zero3(8) * tp"), placeproof.judge("zero3"), placeproof.model("fsdp(64)", "llama3-8b", b=1)):
        assert len(repr(answer)) < 200
