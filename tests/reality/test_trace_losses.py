"""Steps as users write them: a recorded step is proved where real processes train what one process trains, and not where not.

Of what scripts do to gradients this is a sample: `PLACEPROOF_PROFILE=nightly` has all.
"""

import os
import runpy
import textwrap
from pathlib import Path

import pytest
import trace_gradients
import trace_losses
import trace_models
from samples import NIGHTLY
from trace_gradients import HEAD

from placeproof.core.diagnostics import InputError
from placeproof.measure.processes import Outcome, message, run
from placeproof.programs import read
from placeproof.semantics.judge.verdict import judge

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork processes")
_Tensors = list[list[float]]
SOME = {name: body for of in (trace_gradients, trace_models) for name, body in of.BODIES.items() if NIGHTLY or name in of.FIRST}
BODIES = trace_losses.BODIES | SOME
RIGHT = trace_losses.RIGHT | trace_gradients.RIGHT | trace_models.RIGHT
REFUSED = trace_losses.REFUSED | trace_gradients.REFUSED | trace_models.REFUSED | RIGHT


def _trained(script: Path, world: int) -> list[Outcome[_Tensors]]:
    def train(rank: int, world: int, folder: Path) -> _Tensors:
        import torch

        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float64)
        return [p.flatten().tolist() for p in runpy.run_path(str(script), run_name="script")["train"]()]

    outcomes = run(world, train)
    assert all(o.kind == "ok" for o in outcomes), message(outcomes)
    return outcomes


def _trains_what_one_process_trains(script: Path) -> bool:
    (alone,), among = _trained(script, 1), _trained(script, 2)
    assert alone.value is not None
    return all(o.value == [pytest.approx(p, rel=1e-8, abs=1e-12) for p in alone.value] for o in among)


@pytest.mark.parametrize("name", BODIES)
def test_a_step_is_proved_where_it_trains_what_one_process_trains(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")
    from placeproof.measure.record.record import RefutedError, trace

    script = tmp_path / "script.py"
    script.write_text(HEAD + "\n\ndef train():\n" + textwrap.indent(textwrap.dedent(BODIES[name]), "    "))
    right = _trains_what_one_process_trains(script)
    if name in REFUSED:
        assert right == (name in RIGHT)
        with pytest.raises(InputError) as refused:
            trace(script)
        assert REFUSED[name] in str(refused.value)
        assert not (right and isinstance(refused.value, RefutedError))
    else:
        assert judge(read(trace(script).text)).word == ("proved" if right else "refuted")
