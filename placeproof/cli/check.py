"""``placeproof check``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placeproof.cli.options import HtmlOption, page_path
from placeproof.cli.process import EXIT_BAD_INPUT, progress
from placeproof.cli.reports import GithubOption, JunitOption, Reports, SarifOption
from placeproof.cli.terminal import Brief, aside, show
from placeproof.core.diagnostics import Problems

if TYPE_CHECKING:
    from placeproof.theory.suite.load import Loaded
    from placeproof.theory.suite.outcome import Outcome
    from placeproof.theory.theorem import Theorem

EXIT_FINDING = 1
EXIT_UNDECIDED = 3


def command(
    wanted: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID|PATH]...", help="Theorems by id or topic, files, folders; without any, our own suite."),
    ] = None,
    level: Annotated[int, typer.Option("--level", metavar="0|1|2", help="The highest level that is checked.")] = 2,
    jobs: Annotated[int, typer.Option("--jobs", "-j", metavar="N", help="Processes; 0 for as many as there are cores.")] = 0,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", help="Ask each solver with N random seeds: the verdict may not change.")
    ] = 1,
    no_second_opinion: Annotated[bool, typer.Option("--no-second-opinion", help="Do not ask the second solver.")] = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Check everything anew.")] = False,
    update: Annotated[bool, typer.Option("--update", help="Accept the verdicts: write them to the lock file.")] = False,
    html: HtmlOption = None,
    junit: JunitOption = None,
    sarif: SarifOption = None,
    github: GithubOption = False,
    json_: Annotated[bool, typer.Option("--json", help="As JSON data, schema placeproof.check/1.")] = False,
    brief: Brief = False,
) -> int:
    """Check theorems against what is expected of them, and against the lock file."""
    reports = Reports(junit=junit, sarif=sarif, github=github)

    def answer() -> int:
        _check_options(level, jobs, seeds)
        outcomes, problems, changed = _answer(
            wanted or [], level, jobs, seeds, not no_second_opinion, not no_cache, update=update, html=html, json_=json_, brief=brief
        )
        code = _end(outcomes, problems, changed)
        if reports.wanted:
            from placeproof.report.findings import of_theorems

            reports.write("check", of_theorems(outcomes, problems.found, changed), code)
        return code

    return reports.run("check", answer)


def _answer(
    wanted: list[str],
    level: int,
    jobs: int,
    seeds: int,
    second: bool,
    cached: bool,
    *,
    update: bool,
    html: str | None,
    json_: bool,
    brief: bool,
) -> tuple[list[Outcome], Problems, list[str] | None]:
    """Check, and print what is found. Raises InputError."""
    from placeproof.theory.suite.load import load
    from placeproof.theory.suite.reads import listening

    page = page_path(html)
    with listening():
        loaded = load(wanted)
        chosen = [t for t in loaded.theorems if t.level <= level]
        if not chosen and not loaded.problems.found:
            loaded.problems.add("PP401", f"there is no theorem to check up to level {level}", help="ask for more files, or a higher level")
        began = time.perf_counter()
        outcomes, problems = _run(chosen, loaded, seeds, second, jobs, cached)
    changed, whole = _locks(loaded, outcomes, level)
    if update:
        changed = _update(outcomes, whole, problems)
    if json_ or outcomes or not problems.found:
        from placeproof.report.checks import document

        unreadable = [f"{d.code}: {d.message}" for d in problems.found]
        single = bool(wanted) and len(chosen) == 1
        show(document(outcomes, unreadable, changed, time.perf_counter() - began, single=single), json_=json_, brief=brief, page=page)
    return outcomes, problems, changed


def _check_options(level: int, jobs: int, seeds: int) -> None:
    problems = Problems()
    if level not in (0, 1, 2):
        problems.add("PP202", f"there is no level {level}", help="0, 1 or 2")
    if jobs < 0:
        problems.add("PP202", f"{jobs} processes cannot be started", help="1 or more; 0 for as many as there are cores")
    if not 1 <= seeds <= 100:
        problems.add("PP202", f"{seeds} seeds cannot be tried", help="1 to 100")
    problems.raise_if_any()


def _run(chosen: list[Theorem], loaded: Loaded, seeds: int, second: bool, jobs: int, cached: bool) -> tuple[list[Outcome], Problems]:
    from placeproof.theory.suite.cache import Cache, folder
    from placeproof.theory.suite.outcome import Outcome, Settings
    from placeproof.theory.suite.runner import Malformed, run

    settings = Settings(second_opinion=second, seeds=seeds)
    kept = folder() if cached else None
    with progress("theorems") as tell:
        results = run(chosen, settings, jobs=jobs or None, cache=None if kept is None else Cache(kept), tell=tell)
    problems = loaded.problems
    for result in results:
        if isinstance(result, Malformed):
            problems.found += [p for p in result.problems if p not in problems.found]
    return [r for r in results if isinstance(r, Outcome)], problems


def _locks(loaded: Loaded, outcomes: list[Outcome], level: int) -> tuple[list[str] | None, dict[Path, bool]]:
    """Differences from the lock files of the folders that were checked, None where there is none; and which folders were checked as
    a whole."""
    from placeproof.theory.suite.lock import differences, read

    by_folder: dict[Path, list[Outcome]] = {}
    for outcome in outcomes:
        by_folder.setdefault(Path(outcome.path).parent, []).append(outcome)
    lines: list[str] | None = None
    whole: dict[Path, bool] = {}
    for folder, own in by_folder.items():
        files = {p for p in folder.glob("*.py") if not p.name.startswith("_")}
        whole[folder] = (
            level == 2 and not loaded.problems.found and files == {Path(t.path) for t in loaded.theorems if Path(t.path).parent == folder}
        )
        locked = read(folder)
        if locked is not None:
            lines = (lines or []) + differences(locked, own, whole=whole[folder] and _everything(loaded, folder))
    return lines, whole


def _everything(loaded: Loaded, folder: Path) -> bool:
    """Whether all theorems of a folder's files were asked for, and not some by their ids."""
    from placeproof.theory.suite.load import load

    return {(t.path, t.name) for t in load([str(folder)]).theorems} <= {(t.path, t.name) for t in loaded.theorems}


def _update(outcomes: list[Outcome], whole: dict[Path, bool], problems: Problems) -> list[str]:
    """Accept verdicts. What does not stand is not accepted."""
    from placeproof.theory.suite.lock import write

    good = [o for o in outcomes if o.standing not in ("unexpected", "undecided")]
    for folder, all_ in whole.items():
        own = [o for o in good if Path(o.path).parent == folder]
        with problems.collecting():
            aside(f"wrote {write(folder, own, whole=all_ and len(good) == len(outcomes))}\n")
    return []


def _end(outcomes: list[Outcome], problems: Problems, changed: list[str] | None) -> int:
    if problems.found:
        from placeproof.report.diagnostics import render

        after = "the others were checked" if outcomes else "nothing was checked"
        aside(render(problems.found, after))
        return EXIT_BAD_INPUT
    if changed or any(o.standing == "unexpected" for o in outcomes):
        return EXIT_FINDING
    return EXIT_UNDECIDED if any(o.standing == "undecided" for o in outcomes) else 0
