"""Exact bytes of real modules: random configurations that really run on gloo, held against what is said of them on every rank.

Shapes are read off each module as `placeproof shapes` does, written to a file and read back. A figure that is said and is not measured, and
a configuration that is answered although PyTorch refuses it, are printed, and the exit code is 1. What is refused is counted by its reason.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from module_answers import differences, shapes_text, told  # noqa: E402
from module_cases import MODELS, Case, measured, question, random_case  # noqa: E402

from placeproof.core.diagnostics import InputError  # noqa: E402
from placeproof.cost.exact.predict import Predicted  # noqa: E402
from placeproof.importers.shapes import parse_shapes  # noqa: E402
from placeproof.measure.processes import message, run  # noqa: E402

PATIENCE = 120
#: What a case must not end as.
WRONG = ("different", "answered", "slandered")


def judged(case: Case) -> tuple[str, list[str], dict[str, Any]]:
    """What became of a case, with lines: "equal" or "different"; "refused", with the reasons; "impossible", where PyTorch refuses it, too;
    "answered", what PyTorch refuses; "slandered", where it is said to, and does not. And a row to record."""
    predictions: list[Predicted] = []
    reasons: list[str] = []
    (read,) = asked = run(1, lambda *_: _text(case), timeout=PATIENCE, init=False)
    text = read.value or f"?{message(asked)}"
    try:
        if text.startswith("?"):
            reasons = [text[1:]]
        else:
            predictions = told(question(case), parse_shapes(text, kind="toml").shapes)
    except InputError as error:
        reasons = [d.message for d in error.diagnostics]
    outcomes = run(case.world, lambda rank, *_: measured(case, rank), timeout=PATIENCE, collective_timeout=PATIENCE / 2)
    if any(outcome.value is None for outcome in outcomes):
        return ("impossible", reasons, {}) if reasons else ("answered", [message(outcomes)], {})
    if reasons:
        return "slandered" if any("PyTorch" in reason for reason in reasons) else "refused", reasons, {}
    found = [outcome.value or {} for outcome in outcomes]
    lines = [
        f"rank {rank}: {line}"
        for rank, (said, one) in enumerate(zip(predictions, found, strict=True))
        for line in differences(said, one["calls"], one["memory"], case.world, rank)
    ]
    ranks = [{"calls": [[*call, n] for call, n in one["calls"].items()], "memory": one["memory"]} for one in found]
    return ("different" if lines else "equal"), lines, {"question": question(case), "shapes": text, "ranks": ranks}


def _text(case: Case) -> str:
    """The shapes, or behind a question mark why there are none."""
    import torch

    torch.set_num_threads(1)
    try:
        return shapes_text(case)
    except InputError as error:
        return f"?{error.diagnostics[0].message}"


def main() -> int:
    """Try cases and say what became of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--show", action="store_true", help="print each case")
    parser.add_argument("--record", type=Path, help="write what was measured where it is equal")
    arguments = parser.parse_args()
    import torch  # before processes are forked
    import torch.distributed.fsdp
    import torch.distributed.optim
    from transformers import GPT2LMHeadModel, LlamaForCausalLM, MixtralForCausalLM  # noqa: F401

    torch.set_num_threads(1)
    words, reasons, began = Counter[str](), Counter[str](), time.time()
    rows = []
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        case = random_case(seed, tuple(arguments.model or MODELS))
        word, lines, row = judged(case)
        words[word] += 1
        reasons.update(f"{word}: {line}" for line in lines[:1] if word in ("refused", "impossible"))
        if arguments.show or word in WRONG:
            print(f"{seed}: {word}: {case}", *lines[:12], sep="\n    ", flush=True)
        rows += [{"seed": seed, "model": case.model, **row}] if word == "equal" else []
    for reason, count in reasons.most_common():
        print(f"{count:4} {reason[:200]}")
    counts = ", ".join(f"{count} {word}" for word, count in words.items())
    print(f"torch {torch.__version__}: {sum(words.values())} configurations: {counts}; {time.time() - began:.0f} s")
    if arguments.record:
        arguments.record.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", encoding="utf-8")
    return int(any(words[word] for word in WRONG))


if __name__ == "__main__":
    raise SystemExit(main())
