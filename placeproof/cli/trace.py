"""``placeproof trace``."""

from __future__ import annotations

from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placeproof.cli.prove import EXIT_CODES
from placeproof.cli.terminal import Brief, say, show, tell
from placeproof.core.diagnostics import Problems
from placeproof.core.files import write_text

if TYPE_CHECKING:
    from placeproof.measure.record.later import Traced

_Action = Annotated[str, typer.Argument(metavar="record", help="What to do: `record`.")]
_Script = Annotated[Path, typer.Argument(help="A training script: its `train()` is called, or it is run as the main program.")]
_World = Annotated[int | None, typer.Option(metavar="N", help="The number of ranks; by default the script's `WORLD`, or 2.")]
_Backend = Annotated[str, typer.Option(help="`fake`: one rank after another, in this process; `gloo`: all ranks, as real processes.")]
_Step = Annotated[int, typer.Option("--steps", metavar="K", min=1, help="Record the K-th step of those that the script trains.")]
_Axis = Annotated[
    list[str] | None, typer.Option(metavar="AXIS=WHAT", help="What an axis splits: `dp=batch`, `tp=hidden`; may be repeated.")
]
_Constant = Annotated[
    str | None,
    typer.Option(metavar="C", help="The loss that is meant is C times a mean: `1`, `1/2`, `0.1`; by default C is read off the script."),
]
_Given = Annotated[list[str] | None, typer.Argument(metavar="-- ARGUMENT...", help="What the script is given, after `--`: `-- --lr 0.1`.")]
_Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="How long ranks may take: each by itself, or all as processes.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON (schema placeproof.trace/1).")]
_Out = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the program to a file; by default it is printed.")]


def command(
    action: _Action,
    script: _Script,
    arguments: _Given = None,
    world: _World = None,
    backend: _Backend = "fake",
    steps: _Step = 1,
    axis: _Axis = None,
    loss_constant: _Constant = None,
    timeout: _Timeout = 300.0,
    output: _Out = None,
    json_: _Json = False,
    brief: Brief = False,
) -> int:
    """Run a script, follow its gradients from backward to the update, and write the step as a program that can be proved.

    Ends with 1, and no program, where the run refutes the script: ranks hold copies of a parameter that part.
    """
    problems = Problems()
    if action != "record":
        problems.add("PP603", f"`trace` cannot `{action}`", help="`placeproof trace record script.py`")
    if find_spec("torch") is None:
        problems.add("PP603", "recording a script needs PyTorch, which is not installed", help="pip install torch")
    if backend not in ("fake", "gloo"):
        problems.add("PP603", f"there is no backend `{backend}` here", help="`fake` or `gloo`")
    splits = dict(_pair(one, problems) for one in axis or [])
    constant = None if loss_constant is None else _constant(loss_constant, problems)
    problems.raise_if_any()
    from placeproof.measure.record.record import RefutedError, trace
    from placeproof.report.recorded import recorded, refuted

    try:
        traced = trace(
            script,
            world=world,
            backend=backend,
            step=steps,
            splits=splits,
            constant=constant,
            arguments=arguments or [],
            timeout=timeout,
        )
    except RefutedError as found:
        show(refuted(str(script), found), json_=json_, brief=brief)
        return EXIT_CODES["refuted"]
    if output is not None:
        write_text(output, traced.text)
    if json_:
        show(recorded(str(script), traced), json_=True)
    elif output is None and not brief:
        say(traced.text)
    else:
        _written(output, script, traced, brief=brief)
    return 0


def _written(output: Path | None, script: Path, traced: Traced, *, brief: bool) -> None:
    ranks = f"all {traced.world} ranks" if len(traced.ranks) == traced.world else "ranks " + ", ".join(map(str, traced.ranks))
    written = "" if output is None else f"{output}: "
    notes = [] if brief else [f"note: {note}" for note in traced.notes]
    tell("\n".join([f"{written}one step of {script}, recorded on {ranks}", *notes]))


def _pair(text: str, problems: Problems) -> tuple[str, str]:
    name, sign, what = text.partition("=")
    if not sign:
        problems.add("PP603", f"`--axis {text}` says nothing", help="write AXIS=WHAT, such as `dp=batch`")
    return name, what


def _constant(text: str, problems: Problems) -> Fraction:
    try:
        value = Fraction(text.replace(" ", ""))
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    if not value:
        problems.add(
            "PP603", f"`--loss-constant {text}` is no number by which a loss can be multiplied", help="such as `1`, `1/2` or `0.1`"
        )
    return value
