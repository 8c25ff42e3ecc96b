"""The program ``placeproof``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from placeproof.cli.process import EXIT_BAD_INPUT, EXIT_BUG, EXIT_INTERRUPTED, prepare, ticker
from placeproof.cli.terminal import Command, aside, end, say
from placeproof.core.diagnostics import InputError, refuse, suggestion
from placeproof.core.spelling import hearing


@dataclass(frozen=True, slots=True)
class _About:
    """A command. ``module``: its own, where it has another name; ``bare``: whether it does something without any argument."""

    help: str
    module: str = ""
    bare: bool = False


_COMMANDS = {
    "derive": _About("Memory and traffic of a strategy, or what a model costs."),
    "compare": _About("Strategies side by side, the best first."),
    "diff": _About("What changed from one to another."),
    "fit": _About("What fits, and what to change first."),
    "explore": _About("The page of any strategy, in a browser of this machine.", bare=True),
    "plan": _About("The best placements of a model on a cluster."),
    "prove": _About("Whether a step trains what one device trains."),
    "verify": _About("Check a certificate without a solver."),
    "measure": _About("A step of PyTorch beside its prediction."),
    "shapes": _About("The shapes of a training script's module."),
    "replay": _About("A counterexample on real processes."),
    "accuracy": _About("Predictions beside what others measured."),
    "calibrate": _About("Fit a cluster to measured steps."),
    "experiment": _About("Predictions of the theory, on PyTorch."),
    "trace": _About("A training script's step, as a program."),
    "check": _About("Check theorems against what is expected.", bare=True),
    "list": _About("What there is: strategies, models, clusters, ...", module="listing"),
    "explain": _About("A name or an error code in words."),
    "completion": _About("What a shell completes command lines with."),
}


class _Commands(Mapping[str, TyperCommand]):
    """All commands, each imported when it is asked for: one that runs does not wait for what others import."""

    def __getitem__(self, name: str) -> TyperCommand:
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


@cache
def _command(name: str) -> TyperCommand:
    about = _COMMANDS[name]
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    register = alone.command(name, cls=Command, short_help=about.help, no_args_is_help=not about.bare)
    register(import_module(f"placeproof.cli.{about.module or name}").command)
    made = typer.main.get_command(alone)
    assert isinstance(made, TyperCommand)
    return made


class _Program(TyperGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, about.help) for name, about in _COMMANDS.items()])


def _version(value: bool) -> None:
    if value:
        from placeproof import __version__

        say(f"placeproof {__version__}\n")
        raise typer.Exit


def _options(
    version: bool = typer.Option(False, "-V", "--version", callback=_version, is_eager=True, help="Show the version and exit."),
) -> None:
    """Derive what a parallelism strategy costs, and prove that it trains what one device trains."""


def _made() -> TyperGroup:
    app = typer.Typer(
        name="placeproof",
        cls=_Program,
        add_completion=False,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
    app.callback()(_options)
    made = typer.main.get_command(app)
    assert isinstance(made, TyperGroup)
    made.commands = _Commands()  # type: ignore[assignment]  # which nobody adds to
    return made


#: All of the command line; its ``commands`` by name.
program = _made()


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
            code = program.main(_with_texts(arguments), prog_name="placeproof", standalone_mode=False)
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
    valued = tuple(
        f"{name}=" for command in program.commands.values() for option in command.params for name in option.opts if name.startswith("--")
    )
    return [f" {a}" if a.startswith("--") and " " in a and not a.startswith(valued) else a for a in arguments]


def _other(error: BaseException) -> int:
    """Wrong usage of the command line shows itself; everything else is our bug."""
    if hasattr(error, "exit_code") and hasattr(error, "show"):
        error.show()
        message = getattr(error, "message", "")
        if (usage := _usage(error, message)) is not None:
            sys.stderr.write(f"help: {usage}\n")
        elif (command := re.match("No such command '([^']*)'", message)) is not None and "Did you mean" not in message:
            near = suggestion(command[1], _COMMANDS) or "`placeproof -h` lists the commands"
            sys.stderr.write(f"help: {near}\n")
        return EXIT_BAD_INPUT
    if type(error).__name__ == "Abort":
        return EXIT_INTERRUPTED
    _report_bug(error)
    return EXIT_BUG


def _usage(error: Any, message: str) -> str | None:
    """What helps with an argument or an option that a command does not have, or an option without its value."""
    command = getattr(getattr(error, "ctx", None), "command", None)
    params = getattr(command, "params", [])
    if "extra argument" in message:
        if any(p.param_type_name == "argument" for p in params):  # a shell has put names of files in the place of `*`
            return 'write a strategy in quotes, as in `placeproof derive "fsdp * tp"`'
        why = "; `--why STRATEGY` asks it of one, and `placeproof fit STRATEGY` says what fits" if _has(command, "--why") else ""
        return f"`{command.name}` takes options alone{why}" if command is not None else None
    option = getattr(error, "option_name", None)
    if "No such option" in message and option:
        others = [f"`{name}`" for name, other in program.commands.items() if _has(other, option)]
        listed = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        return f"`{option}` is an option of {listed}" if others else None
    if "requires an argument" in message and option:
        every: list[Any] = [*params, *(p for one in program.commands.values() for p in one.params)]
        return next((f"`{option}`: {p.help}" for p in every if option in p.opts and p.help), None)
    return None


def _has(command: Any, option: str) -> bool:
    return any(option in p.opts for p in getattr(command, "params", []))


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
