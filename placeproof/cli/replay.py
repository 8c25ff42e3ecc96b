"""``placeproof replay``."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placeproof.cli.terminal import Brief, show
from placeproof.core.diagnostics import refuse

if TYPE_CHECKING:
    from placeproof.measure.replay.file import Counterexample
    from placeproof.report.document import Document

BACKENDS = ("gloo", "simulator")
EXIT_CODES = {"reproduced": 0, "differs": 1, "crashed": 1, "timed out": 1, "not replayed": 3}


def command(
    file: Annotated[str, typer.Argument(help="The JSON of `placeproof prove SUBJECT --json`; `-` reads it from standard input.")],
    backend: Annotated[str, typer.Option(help="What runs the program: `gloo`, a process for each device; or `simulator`.")] = "gloo",
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.1, help="How long a process waits for the others. [default: 20; 5 for a hang]")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON (schema placeproof.replay/1).")] = False,
    brief: Brief = False,
) -> int:
    """Run a counterexample on real processes of PyTorch, one for each device, in exact arithmetic.

    Ends with 0 if every process got the numbers that the proof predicted, 1 if one did not, 3 if the program cannot be replayed.
    """
    if backend not in BACKENDS:
        refuse("PP601", f"there is no backend `{backend}`", help=f"one of {', '.join(BACKENDS)}")
    if backend == "gloo" and find_spec("torch") is None:
        help = "pip install torch, or `--backend simulator`"
        refuse("PP601", "a replay on real processes needs torch, which is not installed", help=help)
    if backend == "simulator" and timeout is not None:
        refuse("PP601", "`--timeout` does not go with the simulator, in which nobody waits", help="leave it out")
    counterexample = _read(file)
    return _simulated(counterexample, json_, brief) if backend == "simulator" else _on_processes(counterexample, timeout, json_, brief)


def _read(file: str) -> Counterexample:
    from placeproof.measure.replay.file import load, load_standard_input

    return load_standard_input() if file == "-" else load(Path(file))


def _on_processes(counterexample: Counterexample, timeout: float | None, json_: bool, brief: bool) -> int:
    from placeproof.measure.replay import text as shown
    from placeproof.measure.replay.launch import replay

    replayed = replay(counterexample, waits=timeout)
    show(_document(shown.text(replayed), lambda: shown.data(replayed)), json_=json_, brief=brief)
    return EXIT_CODES[replayed.word]


def _document(text: str, data: Callable[[], dict[str, Any]]) -> Document:
    """The verdict, and the lines below it."""
    from placeproof.report.document import Code, Document, section

    title, *lines = text.splitlines()
    return Document(name="replay", sections=lambda: [section(title, Code(lines), detail="answer")], data=data)


def _simulated(counterexample: Counterexample, json_: bool, brief: bool) -> int:
    from placeproof.measure.replay import text as shown
    from placeproof.measure.replay.simulator import simulated

    again = simulated(counterexample)
    text = shown.text_of_simulation(counterexample, again)
    show(_document(text, lambda: shown.data_of_simulation(counterexample, again)), json_=json_, brief=brief)
    return 0 if again.agrees(counterexample) else 1
