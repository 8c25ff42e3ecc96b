"""Pictures of what commands print, drawn when the documentation is built."""

from __future__ import annotations

import base64
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

from command_pages import printed

_RUN = ("--model", "llama3-70b", "--cluster", "dgx-h100")


def memory() -> str:
    """What stages hold, and their schedule."""
    return _plotted("fsdp(2) * tp(8) * sp * pp(4) * checkpoint", *_RUN, "--global-batch", "16")


def _plotted(strategy: str, *arguments: str) -> str:
    """What `derive --plot` draws. Its command stands below it."""
    with TemporaryDirectory() as folder, chdir(folder):
        printed("derive", strategy, *arguments, "--plot", "plan.svg")
        drawn = base64.b64encode(Path("plan.svg").read_bytes()).decode()
    command = " ".join(["placeproof derive", f'"{strategy}"', *arguments, "--plot plan.svg"])
    image = (
        f'<img alt="Memory of each stage, and the schedule of its passes" src="data:image/svg+xml;base64,{drawn}" style="max-width: 100%">'
    )
    return f"```{{raw}} html\n{image}\n```\n\n`{command}`\n"
