"""What commands print at 80 and at 120 columns, kept in `tests/data/golden`: `python tests/helpers/golden.py` writes it anew.

Look at what changed, as a user would.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from placeproof.cli.main import run

FOLDER = Path(__file__).parents[1] / "data" / "golden"
WIDTHS = (80, 120)
_TINY = "transformer(layers=2, hidden=32, heads=4, ffn=64, vocab=64, batch=4, tokens=16)"
_LLAMA = ("--model", "llama3-8b", "--cluster", "dgx-h100")

#: By the name of its file: a command.
COMMANDS: dict[str, tuple[str, ...]] = {
    "help": ("--help",),
    "derive-help": ("derive", "--help"),
    "derive": ("derive", "zero3(8)", "--set", "P=70e9"),
    "derive-composed": ("derive", "zero1 * tp * pp"),
    "derive-brief": ("derive", "zero3(8)", "--brief"),
    "derive-model": ("derive", "fsdp(8) * tp(8) * sp", *_LLAMA),
    "derive-model-full": ("derive", "zero1(2) * pp(2)", "--model", "llama3-8b", "--full"),
    "derive-bytes": ("derive", "fsdp(6)", "--profile", "torch-2.13", "--shapes", _TINY),
    "compare": ("compare", "ddp", "zero1", "zero3", "hsdp"),
    "compare-model": ("compare", "fsdp(64)", "fsdp(8) * tp(8) * sp", "zero1(16) * tp(4)", *_LLAMA),
    "compare-batch": ("compare", "fsdp(8)", "ddp(8)", *_LLAMA, "--global-batch", "64"),
    "compare-profiles": ("compare", "ideal", "torch-2.13", "--of", "fsdp(6)", "--shapes", _TINY),
    "fit": ("fit", "fsdp(8) * tp(2) * sp", *_LLAMA, "--set", "b=4"),
    "diff": ("diff", "zero1(8)", "zero3(8)", "--set", "P=7e9"),
    "diff-model": ("diff", "fsdp(8)", "fsdp(8) * checkpoint", *_LLAMA),
    "prove": ("prove", "zero3"),
    "prove-refuted": ("prove", "clip_by_local_norm"),
    "prove-against": ("prove", "zero3", "--against", "ddp"),
    "check": ("check", "paper.zero3_takes_an_eighth_of_data_parallelism", "--no-cache"),
    "accuracy": ("accuracy", "bloom", "--only", "20B-fp16"),
    "list-clusters": ("list", "clusters"),
    "list-symbols": ("list", "symbols"),
    "list-rules": ("list", "rules", "--system", "megatron"),
    "explain": ("explain", "zero3"),
    "explain-code": ("explain", "PP203"),
    "explain-theorem": ("explain", "paper.zero3_takes_an_eighth_of_data_parallelism"),
    "error": ("derive", "zero3(8) * zeroo", "--set", "Q=3", "--world", "4"),
}

#: What differs from run to run, and from installation to installation.
_VARIES = ((r"\bin \d+ ms\b", "in N ms"), (r"\b(z3|cvc5) [\d.]+", r"\1 N"))


def printed(command: tuple[str, ...], width: int) -> str:
    """What a command prints, results and messages."""
    out = io.StringIO()
    with patch.dict(os.environ, COLUMNS=str(width)), redirect_stdout(out), redirect_stderr(out):
        run([*command])
    text = out.getvalue()
    for pattern, name in _VARIES:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return text


def files() -> Iterator[tuple[Path, tuple[str, ...], int]]:
    """Each file with its command and its width."""
    for name, command in COMMANDS.items():
        for width in WIDTHS:
            yield FOLDER / f"{name}.{width}.txt", command, width


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, command, width in files():
        path.write_text(printed(command, width), encoding="utf-8")
