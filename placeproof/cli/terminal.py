"""Where every command prints: how wide, in which colours, through a pager or not, and how much of a result.

Lines are fitted to a terminal, or to ``COLUMNS`` where that is set; what goes into a pipe or a file is as wide as it is. What programs read
(JSON, configurations, step programs) is never folded.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from placeproof.cli.process import ticker
from placeproof.core.diagnostics import refuse
from placeproof.core.files import write_text
from placeproof.core.spelling import heard

if TYPE_CHECKING:
    from placeproof.report.document import Detail, Document
    from placeproof.report.text import Line

#: By what is not shown: what shows it.
_MORE = {"formulas": "`--formulas` for closed forms", "full": "`--full` for what stands behind them"}
COLORS = ("auto", "always", "never")
#: Terminals are taken to be at least so wide.
_LEAST = 40

#: Of commands whose answer has no more than two levels.
Brief = Annotated[bool, typer.Option("--brief", help="Print the answer in one line.")]


@dataclass(slots=True)
class _Asked:
    """What is said of the output as a whole."""

    color: str = "auto"
    pager: bool = True


_asked = _Asked()


#: Commands in which scripts of users run, which print and have timers themselves, and what waits for a browser.
_LOUD = ("trace", "shapes", "explore")


class Command(TyperCommand):
    """A command, with what holds for all of them."""

    def __init__(self, *args: Any, **values: Any) -> None:
        super().__init__(*args, **values)
        when = TyperOption(
            param_decls=["--color"],
            metavar="|".join(COLORS),
            default="auto",
            help="Colours: `auto` on a terminal, but where NO_COLOR is set.",
            show_default=False,
            expose_value=False,
            callback=_colored,
        )
        paged = TyperOption(
            param_decls=["--no-pager"],
            is_flag=True,
            help="Print what is longer than the screen without PLACEPROOF_PAGER, PAGER or less.",
            show_default=False,
            expose_value=False,
            callback=_paged,
        )
        self.params += [when, paged]

    def invoke(self, ctx: Any) -> Any:
        """Run it. Raises InputError where the answer is asked for in a line and in whole."""
        if ctx.params.get("brief") and ctx.params.get("json_") and "formulas" not in ctx.params:
            refuse("PP104", "`--brief` does not go with `--json`", help="leave one of them out: JSON has everything")
        if self.name not in _LOUD:
            ticker.begin(f"placeproof {self.name}")
        return super().invoke(ctx)


def _colored(ctx: Any, param: Any, value: str) -> None:
    if value not in COLORS:
        refuse("PP104", f"`--color {value}`: there is no such choice", help=f"one of {', '.join(COLORS)}")
    _asked.color = value


def _paged(ctx: Any, param: Any, value: bool) -> None:
    _asked.pager = not value


# What is printed.


def show(
    document: Document, *, json_: bool, ascii: bool = True, detail: Detail = "full", brief: bool = False, page: Path | None = None
) -> None:
    """Print a result as text, as much of it as is asked for, or as JSON; ``ascii``: with other letters as escapes. ``page``: where it is
    written as a page, too."""
    from placeproof.report.text import Line, beyond, folded, lines

    if page is not None:
        from placeproof.report.page import page as made

        write_text(page, made(document), code="PP104")

    if json_:
        from placeproof.report import renderers

        say(renderers.json(document, ascii=ascii))
        return
    detail = "answer" if brief else detail
    sections = [*document.sections()]  # made once, for what is shown and for what is not
    document = replace(document, sections=lambda: sections)
    shown = [*lines(document, detail, width())]
    if not brief and (said := _spelled()):
        end = next((n for n, line in enumerate(shown) if not line.text), len(shown))
        shown[end:end] = [Line(line, "answer") for text in said for line in folded(text, width())]
    missing = beyond(document, detail) if detail != "answer" else ()
    if more := [shows for name, shows in _MORE.items() if name in missing]:
        shown += [Line(""), Line(f"more: {', '.join(more)}")]
    _print(shown)


def _spelled() -> list[str]:
    """What was read otherwise than it is written and was not told yet, in a sentence."""
    noted = heard()
    said = ", ".join(f"`{written}` as `{name}`" for written, name in noted.items())
    noted.clear()
    return [f"read {said}"] if said else []


def end() -> None:
    """Say what the answer had no place for."""
    for text in _spelled():
        note(text)


def tell(text: str) -> None:
    """Print lines that people read, the first of which is a title."""
    from placeproof.report.text import Line, folded

    title, newline, rest = text.removesuffix("\n").partition("\n")
    shown = [Line(line, "title") for line in folded(title, width())]
    _print([*shown, *(Line(line) for line in folded(rest, width()))] if newline else shown)


def say(text: str) -> None:
    """Print text as it stands; its last line has its end."""
    ticker.end()
    typer.echo(text, nl=False)


def note(text: str, kind: str = "note") -> None:
    """Say something beside the answer."""
    aside(f"{kind}: {text}\n")


def aside(text: str) -> None:
    """Say something on standard error; its last line has its end."""
    from placeproof.report.text import Line, fitted

    ticker.end()
    shown = [Line(line, "aside") for line in fitted(text.removesuffix("\n").split("\n"), width(sys.stderr))]
    typer.echo(_colors(shown) if _colorful(sys.stderr) else _plain(shown), nl=False, err=True, color=True)


def width(stream: Any = None) -> int | None:
    """The columns into which lines are fitted; None where they are as long as they are."""
    if (said := os.environ.get("COLUMNS", "")).isdecimal() and int(said):
        return max(int(said), _LEAST)
    stream = stream or sys.stdout
    return max(shutil.get_terminal_size().columns, _LEAST) if stream.isatty() else None


def _print(shown: Sequence[Line]) -> None:
    ticker.end()
    text = _colors(shown) if _colorful(sys.stdout) else _plain(shown)
    if not (_asked.pager and sys.stdout.isatty() and len(shown) >= shutil.get_terminal_size().lines and _through_pager(text)):
        typer.echo(text, nl=False, color=True)


def _plain(shown: Iterable[Line]) -> str:
    return "".join(f"{line.text}\n" for line in shown)


# Colours. They repeat what words say.


def _colorful(stream: Any) -> bool:
    if _asked.color != "auto":
        return _asked.color == "always"
    return bool(stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")


#: What is good, what is bad, and what is neither, in this order: later ones are laid over earlier ones.
_WORDS = (
    (r"\b(proved|holds?|yes|fits|equal|reproduced|refines|agrees?)\b", "green"),
    (r"\b(unknown|may not fit|undecided|suspected|proved except|warning|assumed|not set|interrupted)\b", "yellow"),
    (r"(?<!\b0 )\b(refuted|not fit|nothing fits|none fits|rejected|differs?|different|unexpected|broken|error|crashed)\b", "bold red"),
    (r"\brefuted as expected\b", "green"),
    (r"^(help|note)\b", "cyan"),
    (r"`[^`\n]+`", "cyan"),
)
#: Of lines in which such words may be anything.
_NAMES = ((r"^error\b", "bold red"), *_WORDS[-1:])
_STYLES = {"title": "bold", "head": "dim", "aside": "", "answer": "", "row": "", "prose": "", "code": ""}
#: Where words of verdicts are verdicts.
_JUDGING = ("title", "answer", "row", "aside")


def _colors(shown: Iterable[Line]) -> str:
    """The lines with the escapes of their colours."""
    from io import StringIO

    from rich.console import Console
    from rich.text import Text

    out = StringIO()
    system: Any = "truecolor" if os.environ.get("COLORTERM") in ("truecolor", "24bit") else "standard"
    console = Console(file=out, force_terminal=True, color_system=system, no_color=False, highlight=False, width=10_000)
    for line in shown:
        text = Text(line.text, style=_STYLES[line.role])
        for pattern, style in _WORDS if line.role in _JUDGING else _NAMES:
            text.highlight_regex(pattern, style)
        console.print(text, soft_wrap=True)
    return out.getvalue()


# A pager, as git has one.


def _through_pager(text: str) -> bool:
    """Show it in a pager; whether there is one."""
    said = next((os.environ[name] for name in ("PLACEPROOF_PAGER", "PAGER") if name in os.environ), "less")
    if said.strip() in ("", "cat") or os.environ.get("TERM") == "dumb":
        return False
    sys.stdout.flush()
    pager = subprocess.Popen(said, shell=True, stdin=subprocess.PIPE, env={"LESS": "FRX", **os.environ})
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the pager's
    try:
        pager.communicate(text.encode(sys.stdout.encoding or "utf-8", "replace"))
    finally:
        signal.signal(signal.SIGINT, before)
    return pager.returncode not in (126, 127)  # of a shell that finds no such program
