"""Steps with experts on ranks of their own are recorded as programs: what is proved ends as one process does, and nothing else is.

The oracle is the script itself, which trains the same model on one process besides and says whether all ranks end as that does.
"""

import os
import runpy
import warnings
from pathlib import Path

import pytest
from samples import NIGHTLY
from trace_experts import EXPERTS, MISTAKES, RIGHT, SHORT

from placeproof.core.diagnostics import InputError
from placeproof.programs import read
from placeproof.semantics.judge.verdict import judge

pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork processes")


def ended(script: Path, world: int) -> set[object]:
    """Whether ranks end as one process does."""
    from placeproof.measure.processes import run

    def trained(*_: object) -> object:
        warnings.simplefilter("ignore")
        return runpy.run_path(str(script))["train"]()

    return {o.value for o in run(world, trained)}


@pytest.mark.parametrize("name", [*RIGHT, *MISTAKES] if NIGHTLY else SHORT)
def test_experts(name: str, tmp_path: Path) -> None:
    from placeproof.measure.record.record import trace

    said, changes = (RIGHT | MISTAKES)[name]
    text = EXPERTS
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    script = tmp_path / "script.py"
    script.write_text(text)
    if said in ("proved", "refuted"):
        assert judge(read(trace(script).text, source="recorded.step")).word == said
    else:
        with pytest.raises(InputError) as refused:
            trace(script)
        assert said in str(refused.value)
    assert ended(script, 4 if "WORLD = 4" in text else 2) == {name in RIGHT}
