"""Every model under every strategy of the catalogue, and under every pair, in every form of output: `python nightly/models.py`.

Each is to end with an answer, or with an error that says why there is none. Prints what ended otherwise, and how many were tried.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations

from placeproof.cli.main import run
from placeproof.models import presets
from placeproof.strategies import names

#: Small degrees.
DEGREES = {
    "ddp": "ddp(2)",
    "fsdp": "fsdp(2)",
    "hsdp": "hsdp(shard=2, rep=2)",
    "zero1": "zero1(2)",
    "zero2": "zero2(2)",
    "zero3": "zero3(2)",
    "zeropp": "zeropp(4, node=2)",
    "cp": "cp(2)",
    "ep": "ep(2)",
    "pp": "pp(2)",
    "sp": "sp",
    "tp": "tp(2)",
    "zero_infinity": "zero_infinity(2)",
    "zero_offload": "zero_offload(2)",
    "accumulate": "accumulate(microbatches=4)",
    "checkpoint": "checkpoint",
    "zero_r": "zero_r",
    "clip": "clip",
    "lora": "lora(rank=8)",
    "freeze": "freeze(parts=ends)",
    "muon": "muon",
    "adafactor": "adafactor",
    "shampoo": "shampoo",
}
#: Strategies that place states on the axis dp.
ON_DP = {"ddp", "fsdp", "zero1", "zero2", "zero3", "zeropp", "zero_infinity", "zero_offload"}
#: How it is asked: text, JSON, on a cluster, beside another strategy.
FORMS = ("text", "json", "cluster", "compare")


def strategies() -> list[str]:
    """Every strategy of the catalogue with small degrees, tensor parallelism beside those that need it."""
    return [f"tp(2) * {DEGREES[name]}" if name in ("sp", "zero_r") else DEGREES[name] for name in names()]


def pairs() -> list[str]:
    """Each pair of strategies. Of two that place on the axis dp, the second does on one of its own."""
    return [_beside(one, other) for one, other in combinations(names(), 2)]


def _beside(one: str, other: str) -> str:
    parts = [DEGREES[one], DEGREES[other]]
    if "tp" not in (one, other) and {one, other} & {"sp", "zero_r"}:
        parts.insert(0, DEGREES["tp"])
    if {one, other} <= ON_DP:
        parts[-1] = f"{other}(dp=dp2)"
    return " * ".join(parts)


def command(model: str, strategy: str, form: str) -> list[str]:
    """The command line. Stages that cannot be equal are told."""
    from placeproof.models import load

    layers = load(model).sizes["L"]
    stages = ["--stages", f"{layers - layers // 2},{layers // 2}"] if "pp(2)" in strategy and layers % 2 else []
    fixed = () if "accumulate" in strategy else ("--set", "m=4")
    degree = ["--set", "N_dp2=2"] if "dp2" in strategy else []
    asked = [strategy, "--model", model, "--set", "b=1", *stages, *degree]
    if form == "compare":
        return ["compare", "zero1(2) * pp(2)" if stages else "ddp(2)", *asked, *fixed]
    more = {"text": [], "json": ["--json"], "cluster": ["--cluster", "dgx-h100"]}[form]
    return ["derive", *asked, *fixed, *more]


def subjects() -> Iterator[tuple[str, str, str]]:
    """Every model, strategy or pair, and form."""
    for model in presets():
        for strategy in (*strategies(), *pairs()):
            yield from ((model, strategy, form) for form in FORMS)


def ended(subject: tuple[str, str, str]) -> tuple[int, str]:
    """The exit code, and what was said of an error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(command(*subject))
    silent = code == 0 and not out.getvalue()
    return (70 if silent else code), err.getvalue()


def main() -> int:
    """Try all, or every n-th."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th")
    every = list(subjects())[:: parser.parse_args().every]
    counts: dict[int, int] = {}
    with ProcessPoolExecutor() as pool:
        for subject, (code, said) in zip(every, pool.map(ended, every, chunksize=32), strict=True):
            counts[code] = counts.get(code, 0) + 1
            if code not in (0, 2) or (code == 2 and not said.startswith("error[")):
                print(code, " ".join(command(*subject)), said[:300], flush=True)
    print(f"{len(every)} tried: " + ", ".join(f"{n} ended with {code}" for code, n in sorted(counts.items())))
    return 0 if set(counts) <= {0, 2} else 1


if __name__ == "__main__":
    sys.exit(main())
