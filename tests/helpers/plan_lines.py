"""Random questions as users write them: each plan that is listed, held against what `derive --cluster` and `prove` say of its line."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from random import Random
from typing import Any

from placeproof.cli.main import run

MODELS: dict[str, dict[str, tuple[int, ...]]] = {
    "gpt": {"L": (2, 4, 6), "h": (64, 192), "a": (4, 6), "V": (1000, 1024), "s": (128, 96)},
    "llama": {"L": (2, 4), "h": (64, 128), "a": (4, 8), "a_kv": (2, 4), "d": (16, 32), "f": (128, 192), "V": (500, 512), "s": (64, 2048)},
    "mixtral": {
        "L": (2, 4), "h": (64, 128), "a": (4, 8), "a_kv": (2, 4), "d": (16,), "f_e": (96, 64), "E": (2, 4), "k": (1, 2), "V": (512,),
        "s": (64, 256), "c": (1, 2),
    },
    "deepseek_v3": {
        "L": (2, 4), "L_dense": (0, 1), "h": (64,), "a": (4,), "d_nope": (16,), "d_rope": (8,), "d_v": (16,), "r_q": (16,), "r_kv": (8,),
        "f": (128,), "f_e": (64,), "f_s": (64,), "E": (4,), "k": (2,), "V": (512,), "s": (64, 256), "c": (1,),
    },
}  # fmt: skip
OPTIONS: tuple[tuple[str, ...], ...] = (
    ("--overlap", "none"), ("--overlap", "all"), ("--efficiency", "0.4"), ("--reserve", "0"), ("--reserve", "3GB"),
    ("--precision", "bf16-bf16grad"), ("--vocab-padding", "none"), ("--vocab-padding", "48"), ("--fp8",),
    ("--implementation", "megatron-te-2.11"),
)  # fmt: skip


def question(seed: int) -> tuple[list[str], list[str]]:
    """What a question and what `derive` are told alike, and the rest of the question."""
    draw = Random(seed)
    name = draw.choice(tuple(MODELS))
    sizes = [part for symbol, values in MODELS[name].items() for part in ("--set", f"{symbol}={draw.choice(values)}")]
    alike = ["--model", name, *sizes, "--cluster", draw.choice(("dgx-h100", "h800", "dgx-b200"))]
    alike += [part for option in draw.sample(OPTIONS, 2) for part in option if option[0] not in alike]
    own = [
        "--devices",
        str(draw.choice((2, 4, 6))),
        "--global-batch",
        str(draw.choice((2, 4, 6, 12))),
        "--top",
        "3",
        "--jobs",
        "1",
        "--max",
        "b=2",
    ]
    own += ["--only", f"recompute={draw.choice(('none', 'full', 'selective'))}", "--only", f"data={draw.choice(('zero1', 'zero3'))}"]
    own += [
        "--only",
        f"schedule={draw.choice(('1f1b', 'zb-h1', 'interleaved:2'))}",
        "--only",
        f"attention={draw.choice(('ring', 'gather'))}",
    ]
    axis = draw.choice(("tp", "cp", "pp", "dp"))
    own += ["--only", f"order={draw.choice(('dp-pp', 'pp-dp', 'pp-dp,dp-pp'))}"] if draw.random() < 0.5 else []
    return alike, own + (["--forbid", axis] if draw.random() < 0.5 else ["--only", f"{axis}=2"])


def answer(command: str, *arguments: str) -> tuple[int, Any]:
    """The exit code, and what `--json` prints, None where that is nothing."""
    out = StringIO()
    with redirect_stdout(out):
        code = run([command, *arguments, "--json"])
    return code, json.loads(out.getvalue()) if out.getvalue() else None


def listed(seed: int) -> tuple[list[str], list[dict[str, Any]], list[str]]:
    """What `derive` is told as well, the plans of a question, and what is wrong with its exit code."""
    alike, own = question(seed)
    code, data = answer("plan", *alike, *own)
    plans = [] if data is None else data["plans"]
    expected = 2 if data is None else 0 if plans else 1
    return alike, plans, [] if code == expected else [f"exit code {code} for {len(plans)} plans: {' '.join([*alike, *own])}"]


def differences(alike: list[str], plans: list[dict[str, Any]], proofs: int = 1) -> list[str]:
    """What other commands say differently of plans that are listed; the first ``proofs`` are proved again."""
    found = []
    for number, plan in enumerate(plans):
        rest = ["--recompute", plan["recompute"], "--set", f"b={plan['b']}", "--set", f"m={plan['m']}"]
        rest += [] if plan["order"] is None else ["--order", ",".join(plan["order"])]
        _, derived = answer("derive", plan["strategy"], *alike, *rest)
        if derived is None:
            found.append(f"{plan['strategy']} is listed, and refused: {alike}")
            continue
        seconds, stages = derived["time"]["seconds"]["step"], derived["time"]["stages"]
        most, fits = max(stage["peak"] for stage in stages), [stage["fits"] for stage in stages]
        if (seconds, most) != (plan["seconds"], plan["most"]) or False in fits:
            found.append(f"{plan['strategy']}: {plan['seconds']} s, {plan['most']} bytes, and derived {seconds}, {most}, {fits}")
        if number < proofs and answer("prove", plan["strategy"], "--model", alike[1])[0]:
            found.append(f"{plan['strategy']} of {alike[1]} is listed, and not proved")
    return found
