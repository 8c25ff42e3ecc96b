"""The mistakes of ``tests/scripts/wrong_*.py``: how each shows, what the prover says of its step, and what undoes it there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mistake:
    """``real``: what happens on real processes; ``detail``: the same with TORCH_DISTRIBUTED_DEBUG=DETAIL, where that differs.
    ``proof``: the condition that the prover finds broken, or the code with which it refuses the step. ``mend``: what undoes the
    mistake in the step program, and only that: each text, and what stands there instead.
    """

    title: str
    real: str
    proof: str
    mend: Mapping[str, str]
    detail: str = ""


GRADIENT, STATE = "gradient integrity", "state consistency"
MEAN = "gradients = all_reduce(backward(parameters), dp, op=mean)"
UPDATE = "parameters, optimizer = update(parameters, optimizer, gradients)\n"
OWN_DY = "dy = backward_input(parameters.matrix[k], activations.inner[k], dx)"
WRONG = {
    "wrong_accumulate": Mistake(
        "accumulation without 1/k", "differs", GRADIENT, {"op=mean)": "op=mean)\ngradients = scale(gradients, 1 / microbatches)"}
    ),
    "wrong_batch_norm": Mistake(
        "local batch normalisation", "differs", GRADIENT, {"statistics(parameters)": "all_reduce(statistics(parameters), dp, op=mean)"}
    ),
    "wrong_clip_local": Mistake(
        "clipping by shard-local norms", "differs", GRADIENT, {"square_norm(gradients)": "all_reduce(square_norm(gradients), dp)"}
    ),
    "wrong_double_average": Mistake(
        "double averaging", "differs", GRADIENT, {"scale(backward(parameters), 1 / dp)": "backward(parameters)"}
    ),
    "wrong_init": Mistake(
        "different initial parameters", "ranks disagree", STATE, {MEAN: f"parameters = broadcast(parameters, dp, root=0)\n{MEAN}"}
    ),
    "wrong_init_fsdp2": Mistake(
        "different initial parameters, sharded", "differs", STATE, {"part(parameters, dp)": "part(broadcast(parameters, dp, root=0), dp)"}
    ),
    "wrong_mesh": Mistake(
        "no reduction over the copies", "ranks disagree", GRADIENT, {UPDATE: f"gradients = all_reduce(gradients, rep, op=mean)\n{UPDATE}"}
    ),
    "wrong_no_sync": Mistake(
        "forgotten synchronisation", "ranks disagree", GRADIENT, {UPDATE: f"gradients = all_reduce(gradients, dp, op=mean)\n{UPDATE}"}
    ),
    "wrong_order": Mistake(
        "reordered collectives of equal size",
        "ranks disagree",
        "",
        {
            "    sent = gradients.second": "    sent = gradients.first",
            "    gradients.second = sent": "    gradients.first = sent",
            "    rest = gradients.first": "    rest = gradients.second",
            "    gradients.first = rest": "    gradients.second = rest",
        },
    ),
    "wrong_pipeline_scale": Mistake(
        "sum over micro-batches in a pipeline", "differs", GRADIENT, {UPDATE: f"gradients = scale(gradients, 1 / microbatches)\n{UPDATE}"}
    ),
    "wrong_reduce_op": Mistake(
        "different reductions on the ranks", "ranks disagree", GRADIENT, {"if rank(dp) == 0:\n    gradients": "gradients"}
    ),
    "wrong_same_data": Mistake("the same samples on all ranks", "differs", GRADIENT, {"broadcast(data(), dp, root=0)": "data()"}),
    "wrong_size": Mistake(
        "buffers of different sizes", "crash", "PP308", {"if rank(dp) == 0:\n    gradients": "gradients"}, detail="exception"
    ),
    "wrong_skip": Mistake("a rank skips a collective", "time-out", "PP308", {"if rank(dp) == 0:\n    shown": "shown"}, detail="exception"),
    "wrong_sp_norm": Mistake(
        "norms not reduced under sequence parallelism",
        "ranks disagree",
        GRADIENT,
        {UPDATE: f"gradients.norm = all_reduce(gradients.norm, tp)\n{UPDATE}"},
    ),
    "wrong_sum": Mistake("sum instead of mean", "differs", GRADIENT, {"backward(parameters), dp)": "backward(parameters), dp, op=mean)"}),
    "wrong_tp_backward": Mistake(
        "tensor parallelism without the all-reduce in backward",
        "ranks disagree",
        GRADIENT,
        {OWN_DY: f"dy = all_reduce({OWN_DY.removeprefix('dy = ')}, tp)"},
    ),
    "wrong_tp_forward": Mistake(
        "tensor parallelism without the all-reduce in forward", "ranks disagree", GRADIENT, {"x = x + z": "x = x + all_reduce(z, tp)"}
    ),
    "wrong_uneven": Mistake(
        "uneven batches averaged per rank",
        "differs",
        GRADIENT,
        {MEAN: "gradients = scale(all_reduce(scale(backward(parameters), tokens()), dp), 1 / all_reduce(tokens(), dp))"},
    ),
    "wrong_zero1_gather": Mistake(
        "a sharded update that is not gathered", "ranks disagree", STATE, {UPDATE: f"{UPDATE}parameters = all_gather(parameters, dp)\n"}
    ),
}
