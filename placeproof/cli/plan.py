"""``placeproof plan``."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from placeproof.cli import sweep
from placeproof.cli.options import BRIEF, HtmlOption, OfModel, built, given, lacking, option, page_path, said, takes
from placeproof.cli.process import EXIT_INTERRUPTED, live_line, patient
from placeproof.cli.terminal import show
from placeproof.core.diagnostics import Problems, refuse
from placeproof.core.files import write_text

_SUFFIX = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfModel(OfModel):
    model: str | None = option("--model", "(required) A model: `placeproof list models`, a file, or a config.json.", metavar="MODEL")
    cluster: str | None = option(
        "--cluster", "(required) A cluster: docs/reference/clusters.md; a file ends in .toml.", metavar="NAME|FILE"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A question."""

    devices: str | None = option(
        "--devices", "(required) Devices of the cluster that are used, all of them; several numbers are tried: 8,16,32.", metavar="N,..."
    )
    global_batch: int | None = option("--global-batch", "(required, or `--tokens`) Sequences of a step.", metavar="N", min=1)
    tokens: str | None = option("--tokens", "Tokens of a step, in place of its sequences: 4M, 4194304.", metavar="N")
    about: _OfModel
    set_: list[str] | None = option("--set", "Give a symbol a value, s=4096; may be repeated.", metavar="NAME=VALUE")
    precision: str | None = option("--precision", "Byte widths: `placeproof list precisions`. [default: mixed-adam]")
    only: list[str] | None = option(
        "--only", "Try these values of a choice alone, tp=4,8 or schedule=1f1b; may be repeated.", metavar="CHOICE=VALUES"
    )
    forbid: list[str] | None = option(
        "--forbid", "Do not try an axis, or values of a choice: cp, data=ddp; may be repeated.", metavar="CHOICE"
    )
    most: list[str] | None = option("--max", "Try no larger degree or micro-batch: tp=8, b=4; may be repeated.", metavar="CHOICE=N")
    top: int = option("--top", "How many plans are listed.", metavar="N", default=10, min=1)
    why: list[str] | None = option(
        "--why", "Say where a strategy stands, `fsdp(64)`, and what it loses; may be repeated.", metavar="STRATEGY"
    )
    objective: str = option(
        "--objective",
        "What is best: `time`, the shortest step; `memory`, the least bytes of tensors on the fullest device, then the shortest step;"
        " `tokens-per-device`, the most tokens a second and device: not the order of time where `--devices` says several numbers.",
        metavar="time|memory|tokens-per-device",
        default="time",
    )
    surely: bool = option(
        "--surely-fit",
        "Only what fits with all that was ever seen reserved beside tensors, too, and not with what is usual.",
        default=False,
    )
    pareto: bool = option(
        "--pareto", "List also all plans that nothing beats in both the seconds of a step and the bytes of tensors.", default=False
    )
    uneven: bool = option(
        "--uneven", "Share out layers over the stages of each plan as is best, and what each stage computes again.", default=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """A question, or a file of many."""

    question: Options
    sweep: sweep.Sweep
    certificate: Path | None = option(
        "--certificate", "Write why nothing of the grid is faster, as `placeproof verify FILE` checks it.", metavar="FILE"
    )
    html: HtmlOption = None
    json_: bool = option("--json", "Print JSON (schema placeproof.plan/1, of a sweep placeproof.sweep/1).", default=False)
    brief: bool = BRIEF


@takes(CommandLine)
def command(line: CommandLine) -> int:
    """The best placements of a model on a cluster: each derived exactly, and proved; nothing of the grid is left out without a reason."""
    if line.sweep.sweep is not None:
        other = {"--certificate": line.certificate, "--html": line.html}
        if names := [*given(line.question), *(name for name, value in other.items() if value is not None)]:
            refuse("PP104", f"a sweep's file says what is asked, and not {', '.join(names)}", help=f"write it in {line.sweep.sweep}")
        return sweep.run(line.sweep, Options, check, planned, json_=line.json_, brief=line.brief)
    if names := given(replace(line.sweep, jobs=None)):
        refuse("PP104", f"{', '.join(names)}: that is said of a sweep", help="add `--sweep FILE`")
    if line.certificate is not None and line.question.objective != "time":
        refuse("PP104", "a certificate is about the seconds of a step", help="`--objective time`, or no `--certificate`")
    page = page_path(line.html)
    from placeproof.answers.plan import plan
    from placeproof.planning.crew import Running

    patient()
    with live_line() as tell:
        running = Running(jobs=line.sweep.jobs or os.cpu_count() or 1, tell=tell, partial=True)
        found = plan(**asked(line.question), running=running)
    show(found.document, json_=line.json_, ascii=False, brief=line.brief, page=page)
    if not found.outcome.complete:
        return EXIT_INTERRUPTED
    if line.certificate is not None:
        write_text(line.certificate, json.dumps(found.certificate(said(line.question))) + "\n")
    return 0 if found.plans or any(one.best is not None for one in found.uneven) else sweep.EXIT_NOTHING_FITS


def check(values: Mapping[str, Any]) -> None:
    """Raise InputError with everything that is wrong with a question of a file, as far as that shows without deriving anything."""
    from placeproof.answers.plan import grid

    question = asked(built(Options, values))
    del question["pareto"]  # it leaves the grid as it is
    grid(**question)


def planned(values: Mapping[str, Any]) -> dict[str, Any]:
    """What `--json` prints of a question of a file. Raises InputError."""
    from placeproof.answers.plan import plan

    return plan(**asked(built(Options, values))).data


def differences(document: Mapping[str, Any]) -> list[str]:
    """What of a plan's certificate is not so by what this version derives of its question. Raises InputError, and KeyError and alike for
    what is no certificate."""
    from placeproof.answers.plan import differences as found

    question = asked(built(Options, document["question"]))
    return [*found(document, question["task"], question["pins"], question["count"])]


def asked(o: Options) -> dict[str, Any]:
    """What :func:`placeproof.answers.plan.plan` takes. Raises InputError with everything that is wrong."""
    problems = Problems()
    sized = o.global_batch if o.tokens is None else o.tokens
    needed = {"--model": o.about.model, "--cluster": o.about.cluster, "--devices": o.devices, "--global-batch": sized}
    if missing := lacking(needed):
        example = "`placeproof plan --model llama3-8b --cluster dgx-h100 --devices 16 --global-batch 128`"
        problems.add("PP102", f"a plan needs {missing}", help=f"for example {example}")
    pinned = {"--recompute": f"pin it: `--only recompute={o.about.recompute}`", "--stages": None, "--order": "pin it: `--only order=pp-dp`"}
    for name in (name for name in pinned if name in o.about.given):
        problems.add("PP104", f"`{name}` is what a plan chooses", help=pinned[name])
    run, clock = o.about.run(problems), o.about.clock(o.set_ or [], problems)
    tokens, devices = _tokens(o.tokens, problems), _devices(str(o.devices or ""), problems)
    problems.raise_if_any()
    from placeproof.answers import subject
    from placeproof.answers.numbers import Settings
    from placeproof.answers.plan import question
    from placeproof.planning.choices import Pins

    assert clock is not None
    model = problems.attempt(lambda: subject.model(str(o.about.model)))
    numbers = problems.attempt(Settings(given=o.set_ or [], precision=o.precision).numbers)
    pins = Pins(only=tuple(o.only or ()), forbid=tuple(o.forbid or ()), most=tuple(o.most or ()))
    with problems.collecting():
        pins.require_values()
    task = problems.attempt(lambda: question(model(), run, numbers(), clock, devices, batch=o.global_batch, tokens=tokens, surely=o.surely))
    problems.raise_if_any()
    return {
        "task": task(),
        "pins": pins,
        "count": o.top,
        "why": o.why or (),
        "objective": o.objective,
        "pareto": o.pareto,
        "uneven": o.uneven,
    }


def _devices(text: str, problems: Problems) -> list[int]:
    """Numbers of devices, with commas between them; nothing where nothing is said."""
    each = [part.strip() for part in text.split(",")] if text else []
    if not all(re.fullmatch(r"[1-9][0-9]{0,8}", part) for part in each):
        problems.add("PP202", f"`--devices {text}` is no number of devices", help="for example 8, or 8,16,32 to try several")
        return []
    return [int(part) for part in each]


def _tokens(text: str | None, problems: Problems) -> int | None:
    """A number of tokens: thousands, millions and billions are decimal."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,12})([kKmMbB]?)", text.replace("_", "").replace(",", ""))
    if found is None or not int(found[1]):
        problems.add("PP202", f"`--tokens {text}` is no number of tokens", help="for example 4194304, or 4M for 4,000,000")
        return None
    return int(found[1]) * _SUFFIX[found[2].lower()]
