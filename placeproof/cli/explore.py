"""``placeproof explore``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import typer

from placeproof.cli import derive
from placeproof.cli.options import Exact, Given, OfStep, Shown, option, takes

#: What is asked in the page: names of fields, what they are called, and what stands in them as an example.
_FIELDS = {
    "strategy": ("strategy", "fsdp(8) * tp(8) * sp * pp(4)"),
    "model": ("model", "llama3-8b"),
    "cluster": ("cluster", "dgx-h100"),
    "set": ("settings, with spaces between them", "b=1 m=8 s=4096"),
    "recompute": ("recompute", "full"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line."""

    strategy: Annotated[str | None, typer.Argument(help="What is shown first, such as `fsdp(8) * tp(8)`.")] = None
    given: Given
    about: OfStep
    port: int = option("--port", "The port of this machine's own address. [default: one that is free]", metavar="N", default=0, min=0)


@takes(Options)
def command(options: Options) -> None:
    """Show what strategies cost in a browser of this machine: a page with sliders, in which any strategy and model can be asked for.

    Nothing but this machine reaches it, and nobody without the address that is printed. Ctrl-C ends it.
    """
    from placeproof.cli.served import Server

    first = _first(options)
    derive.document(_question(options, first))  # what cannot be derived is said here, and not in the browser alone
    with Server(options.port, lambda asked: derive.document(_question(options, asked)), _FIELDS, first) as server:
        typer.echo(server.address)
        server.serve_forever()


def _first(o: Options) -> dict[str, str]:
    """What is asked first, by its field; an example where nothing is said."""
    examples = {name: example for name, (_, example) in _FIELDS.items() if name in ("strategy", "model")}
    about = {"model": o.about.model, "cluster": o.about.cluster, "recompute": o.about.recompute}
    said = {"strategy": o.strategy, **about, "set": " ".join(o.given.set_ or []) or None}
    given = {name: value for name, value in said.items() if value is not None}
    return given if "strategy" in given else {**examples, **given}


def _question(o: Options, asked: dict[str, str]) -> derive.Options:
    """What ``placeproof derive`` is asked: what the fields say, and the rest as on the command line."""
    model, cluster, recompute = (asked.get(name) or None for name in ("model", "cluster", "recompute"))
    return derive.Options(
        strategy=asked.get("strategy", ""),
        given=derive.given_as(replace(o.given, set_=asked.get("set", "").split() or None)),
        about=derive.about_as(replace(o.about, model=model, cluster=cluster, recompute=recompute)),
        exact=Exact(),
        shown=Shown(),
    )
