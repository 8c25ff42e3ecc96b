"""The program ``placeproof``."""

from __future__ import annotations

import sys

import typer

from placeproof.cli import (
    accuracy,
    calibrate,
    check,
    compare,
    completion,
    derive,
    diff,
    experiment,
    explain,
    explore,
    fit,
    listing,
    measure,
    plan,
    prove,
    replay,
    shapes,
    trace,
    verify,
)
from placeproof.cli.process import EXIT_BAD_INPUT, EXIT_BUG, EXIT_INTERRUPTED, prepare, ticker
from placeproof.cli.terminal import Command, aside, end, say
from placeproof.core.diagnostics import InputError, refuse
from placeproof.core.spelling import hearing

app = typer.Typer(
    name="placeproof",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    pretty_exceptions_enable=False,
    help="Derive what a parallelism strategy costs, and prove that it trains what one device trains.",
)
app.command("derive", cls=Command, short_help="Memory and traffic of a strategy, or what a model costs.", no_args_is_help=True)(
    derive.command
)
app.command("compare", cls=Command, short_help="Strategies side by side, the best first.", no_args_is_help=True)(compare.command)
app.command("diff", cls=Command, short_help="What changed from one to another.", no_args_is_help=True)(diff.command)
app.command("fit", cls=Command, short_help="What fits, and what to change first.", no_args_is_help=True)(fit.command)
app.command("explore", cls=Command, short_help="The page of any strategy, in a browser of this machine.")(explore.command)
app.command("plan", cls=Command, short_help="The best placements of a model on a cluster.", no_args_is_help=True)(plan.command)
app.command("prove", cls=Command, short_help="Whether a step trains what one device trains.", no_args_is_help=True)(prove.command)
app.command("verify", cls=Command, short_help="Check a certificate without a solver.", no_args_is_help=True)(verify.command)
app.command("measure", cls=Command, short_help="A step of PyTorch beside its prediction.", no_args_is_help=True)(measure.command)
app.command("shapes", cls=Command, short_help="The shapes of a training script's module.", no_args_is_help=True)(shapes.command)
app.command("replay", cls=Command, short_help="A counterexample on real processes.", no_args_is_help=True)(replay.command)
app.command("accuracy", cls=Command, short_help="Predictions beside what others measured.", no_args_is_help=True)(accuracy.command)
app.command("calibrate", cls=Command, short_help="Fit a cluster to measured steps.", no_args_is_help=True)(calibrate.command)
app.command("experiment", cls=Command, short_help="Predictions of the theory, on PyTorch.", no_args_is_help=True)(experiment.command)
app.command("trace", cls=Command, short_help="A training script's step, as a program.", no_args_is_help=True)(trace.command)
app.command("check", cls=Command, short_help="Check theorems against what is expected.")(check.command)
app.command("list", cls=Command, short_help="What there is: strategies, models, clusters, ...", no_args_is_help=True)(listing.command)
app.command("explain", cls=Command, short_help="A name or an error code in words.", no_args_is_help=True)(explain.command)
app.command("completion", cls=Command, short_help="What a shell completes command lines with.", no_args_is_help=True)(completion.command)


def _version(value: bool) -> None:
    if value:
        from placeproof import __version__

        say(f"placeproof {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "-V", "--version", callback=_version, is_eager=True, help="Show the version and exit."),
) -> None:
    pass


def main() -> None:
    """Entry point. The process ends without tearing the interpreter down: freeing SymPy's objects one by one takes
    longer than all of the work."""
    import gc
    import os

    gc.disable()  # for the same reason
    prepare()
    code = run(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code: bad input is 2, a bug in placeproof 70, and neither shows a traceback."""
    try:
        if any("\0" in text for text in arguments):  # no shell passes one, and no system call takes one
            refuse("PP104", "an argument holds a zero byte", help="leave it out")
        with hearing():
            code = app(_with_texts(arguments), prog_name="placeproof", standalone_mode=False)
            end()
        sys.stdout.flush()
    except InputError as error:
        from placeproof.report.diagnostics import render

        aside(render(error.diagnostics, error.after))
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BaseException as error:  # one that is no Exception would end Python with 1, which means that something was found
        code = _other(error)
    finally:
        ticker.end()
    if code == EXIT_INTERRUPTED:
        sys.stderr.write("interrupted\n")
    return code if isinstance(code, int) else 0


def _with_texts(arguments: list[str]) -> list[str]:
    """With `--from`, a whole command line of another program may be an argument: a text with spaces is no option of ours."""
    if not any(a == "--from" or a.startswith("--from=") for a in arguments):
        return arguments
    commands = typer.main.get_command(app).commands.values()  # type: ignore[attr-defined]
    valued = tuple(f"{name}=" for command in commands for option in command.params for name in option.opts if name.startswith("--"))
    return [f" {a}" if a.startswith("--") and " " in a and not a.startswith(valued) else a for a in arguments]


def _other(error: BaseException) -> int:
    """Wrong usage of the command line shows itself; everything else is our bug."""
    if hasattr(error, "exit_code") and hasattr(error, "show"):
        error.show()
        return EXIT_BAD_INPUT
    if type(error).__name__ == "Abort":
        return EXIT_INTERRUPTED
    _report_bug(error)
    return EXIT_BUG


def _report_bug(error: BaseException) -> None:
    import os
    import traceback

    if os.environ.get("PLACEPROOF_TRACEBACK"):
        traceback.print_exc()
    last = traceback.extract_tb(error.__traceback__)[-1]
    sys.stderr.write(
        f"placeproof has a bug: {type(error).__name__}: {error} ({last.name}, line {last.lineno})\n"
        "help: please report it with the command you ran; PLACEPROOF_TRACEBACK=1 shows the traceback\n"
    )
