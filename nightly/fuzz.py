"""Gives placeproof thousands of bad and good inputs, each in a process of its own, and tells which of them it does not take as it should.

``python nightly/fuzz.py --seed 1 --count 20000``. See README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "nightly")]

from fuzz_inputs import CATEGORIES, draw  # noqa: E402
from fuzz_mutate import Case  # noqa: E402

#: Seconds of computing, and bytes beside those of a process that has done nothing yet, that one input may take.
SECONDS, BYTES = 20, 2 * 2**30
#: Seconds after which what does not compute waits for ever.
WAITING = 90
#: What ends well: as asked, a finding, bad input, undecided, proved but for settings.
GOOD = {0: "as asked", 1: "a finding", 2: "bad input", 3: "undecided", 4: "proved except"}
_NO_NUMBER = re.compile(r"(?<![\w.`-])(nan|inf|-inf|infinity|zoo)(?![\w.`-])")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended. ``code``: its exit code, negative for a signal."""

    code: int
    out: str
    err: str
    seconds: float


def run(case: Case) -> Ended:
    """One command line in a forked process and a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        for name, data in case.files.items():
            (folder / name).write_bytes(data)
        for name, what in case.special.items():
            _special(folder / name, what)
        (folder / "stdin").write_bytes(case.stdin or b"")
        if case.spoil is not None:
            _forked(case, folder)
            for path in (folder / "cache").rglob("*.json"):
                path.write_bytes(case.spoil)
        code, seconds = _forked(case, folder)
        out, err = ((folder / name).read_text(encoding="utf-8", errors="replace") for name in ("stdout", "stderr"))
        return Ended(code, out.replace(str(folder), "FOLDER"), err, seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _special(path: Path, what: str) -> None:
    """What is no file of its own."""
    if what == "folder":
        path.unlink(missing_ok=True)
        path.mkdir()
    elif what == "pipe":
        data = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        if not os.fork():  # whoever opens it gets this
            signal.alarm(WAITING)
            path.write_bytes(data)
            os._exit(0)
    else:
        path.unlink(missing_ok=True)
        path.symlink_to(what)


def _forked(case: Case, folder: Path) -> tuple[int, float]:
    """The exit code, and the seconds computed."""
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        _child(case, folder)
    return _waited(pid)


def _child(case: Case, folder: Path) -> None:
    """What the program does, with its streams in files and under limits."""
    os.setpgid(0, 0)
    os.chdir(folder)
    os.environ["PLACEPROOF_CACHE"] = str(folder / "cache")
    for name, value in case.env.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    for number, name in enumerate(("stdin" if case.stdin is not None else os.devnull, "stdout", "stderr")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | (os.O_TRUNC if number else 0), 0o600), number)
    base = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (base + BYTES, base + BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.argv = ["placeproof", *case.argv]
    from placeproof.cli.main import main

    main()
    os._exit(99)


def _waited(pid: int) -> tuple[int, float]:
    """The exit code, and the seconds computed; what only waits is ended, too."""
    until, pause = time.monotonic() + WAITING, 0.001
    while True:
        found, status, used = os.wait4(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
        if time.monotonic() > until:
            if _computed(pid) < SECONDS / 4:
                os.killpg(pid, signal.SIGTERM)
            until += WAITING
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


def _computed(group: int) -> float:
    """Seconds that the processes of a group have computed."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        ticks += sum(map(int, words[11:15])) if int(words[2]) == group else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def judged(case: Case, ended: Ended) -> str | None:
    """What is wrong with how a case ended; None where nothing is."""
    if ended.code < 0:
        if -ended.code == signal.SIGTERM:
            return "waits for ever"
        over = signal.Signals(-ended.code) in (signal.SIGXCPU, signal.SIGKILL)
        return f"over {SECONDS} s of computing" if over else f"died by {signal.Signals(-ended.code).name}"
    if ended.code not in GOOD and ("MemoryError" in ended.err or "std::bad_alloc" in ended.err):
        return f"over {BYTES >> 30} GB"
    if "Traceback (most recent call last)" in ended.err and not case.env.get("PLACEPROOF_TRACEBACK"):
        return "a traceback"
    if ended.code == 70:
        return "a bug: " + "".join(re.findall(r"has a bug: (\w+:.*)", ended.err))[:120]
    if ended.code not in GOOD:
        return f"exit code {ended.code}"
    if ended.code == 2 and not ended.err.strip():
        return "exit code 2 without a word"
    if ended.code == 0 and not ended.out.strip():
        return "exit code 0 without output"
    return (_nonsense(case, ended) if ended.code == 0 else None) or (_otherwise(case, ended) if case.want else None)


def _otherwise(case: Case, ended: Ended) -> str | None:
    """How a case should have ended that is a change of a good one, if it did not."""
    assert case.base is not None
    base = _known(case.base)
    if base.code not in GOOD or base.code == 2:
        return None
    want, _, word = case.want.partition(" ")
    if want == "same":
        return None if (ended.code, _timeless(ended.out)) == (base.code, _timeless(base.out)) else "another answer, and nothing was changed"
    if want == "not" or ended.code == 2:
        return "taken, and it is wrong" if ended.code == 0 else None
    if want in ("named", "told") and word in ended.out + ended.err:
        return None
    if want == "told" and _timeless(ended.out) == _timeless(base.out):
        return None
    return "taken in silence" if ended.code in GOOD else None


def _timeless(text: str) -> str:
    """An answer without the time that it took."""
    return re.sub(r"\d[\d.,]* m?s\b|\"seconds\": [\d.e-]+", "", text)


_KNOWN: dict[str, Ended] = {}


def _known(case: Case) -> Ended:
    """How a good case ends; it is asked once."""
    name = repr((case.argv, case.files))
    if name not in _KNOWN:
        _KNOWN[name] = run(case)
    return _KNOWN[name]


def _nonsense(case: Case, ended: Ended) -> str | None:
    """What a rule can tell to be nonsense in an answer that is given as a good one."""
    given = " ".join(case.argv) + "".join(data.decode(errors="replace") for data in case.files.values())
    if (found := _NO_NUMBER.search(ended.out)) and found[1] not in given:  # `inf` may name an axis
        return f"nonsense: {found[1]} in the output"
    if "--json" in case.argv and not {"--help", "-h"} & {*case.argv}:
        try:
            json.loads(ended.out, parse_constant=Fraction)
        except ValueError:  # NaN and Infinity are no fractions
            return "nonsense: --json prints no JSON"
    for option, value in zip(case.argv, case.argv[1:], strict=False):
        if option == "--set" and (why := _outside(value)):
            return f"nonsense: --set {value} is taken: {why}"
    if case.category == "shapes" and (wrong := re.search(r"=\s*(-|0\s*[,)]|\d+\.\d|['\"]|True|None)", case.argv[-1])):
        return f"nonsense: a size {wrong[0]} is taken"
    return None


def _outside(setting: str) -> str | None:
    """Why a setting that was taken lies outside of its symbol's domain."""
    from placeproof.core.symbols import Domain, info

    name, _, text = setting.partition("=")
    try:
        value, domain = Fraction(text.strip()), info(name.strip()).domain
    except (ValueError, KeyError, ZeroDivisionError):
        return "it is no number" if text.strip().lower().lstrip("+-") in ("nan", "inf", "true", "none") else None
    if domain is Domain.COUNT and (value.denominator != 1 or value < 1):
        return "it counts"
    return "it is negative" if value < 0 or (value == 0 and domain is Domain.POSITIVE) else None


def smaller(case: Case, wrong: str, tries: int = 60) -> Case:
    """A part of the case with which the same is wrong: options and halves of files are left out one after the other."""
    for candidate in _parts(case):
        if tries == 0:
            return case
        tries -= 1
        if judged(candidate, run(candidate)) == wrong:
            return smaller(candidate, wrong, tries)
    return case


def _parts(case: Case) -> Iterator[Case]:
    for at in range(1, len(case.argv)):
        yield replace(case, argv=case.argv[:at] + case.argv[at + 1 :])
    for name, data in case.files.items():
        lines = data.splitlines(keepends=True)
        size = len(lines) // 2
        while size:
            for at in range(0, len(lines), size):
                yield replace(case, files=case.files | {name: b"".join(lines[:at] + lines[at + size :])})
            size //= 2


def _changed(case: Case) -> list[str]:
    """What a change of a good case is: its lines that are in one of them alone."""
    if case.base is None:
        return []
    old, new = (b"\n".join(one.files.values()).decode(errors="replace").splitlines() for one in (case.base, case))
    return [f"-{line[:300]}" for line in old if line not in new][:5] + [f"+{line[:300]}" for line in new if line not in old][:5]


def _warm() -> None:
    """Import once what every process would import."""
    import cvc5  # noqa: F401
    import sympy  # noqa: F401
    import yaml  # noqa: F401
    import z3  # noqa: F401

    import placeproof.cli.main
    import placeproof.cost.derive
    import placeproof.cost.exact
    import placeproof.cost.model
    import placeproof.importers
    import placeproof.measure.replay.file
    import placeproof.report.derivation
    import placeproof.semantics.judge.refine
    import placeproof.semantics.judge.verdict
    import placeproof.theory.suite.load
    import placeproof.theory.suite.runner  # noqa: F401


def fuzz(seed: int, numbers: range, only: str | None = None, *, minimise: bool = False) -> Iterator[dict[str, Any]]:
    """Run cases, and yield what became of each."""
    _warm()
    for number in numbers:
        case = draw(seed, number, only)
        ended = run(case)
        wrong = judged(case, ended)
        row: dict[str, Any] = {"number": number, "category": case.category, "code": ended.code, "seconds": round(ended.seconds, 2)}
        if wrong is not None:
            shown = smaller(case, wrong) if minimise and not case.want and not wrong.startswith(("over", "waits")) else case
            files = {name: data.decode(errors="backslashreplace")[:4000] for name, data in shown.files.items()}
            row |= {"wrong": wrong, "argv": [a[:2000] for a in shown.argv], "files": files, "special": shown.special}
            row |= {"env": shown.env, "changed": _changed(case), "again": f"--seed {seed} --first {number} --count 1 --jobs 1"}
        yield row


def main() -> int:
    """The command line; ends with 1 if an input was not taken as it should be."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--count", type=int, default=20_000)
    asked.add_argument("--first", type=int, default=0, help="the number of the first case")
    asked.add_argument("--only", choices=CATEGORIES, help="one category alone")
    asked.add_argument("--log", type=Path, help="write a line of JSON for each failure, as it is found")
    asked.add_argument("--jobs", type=int, default=2)
    given = asked.parse_args()
    began, pipes = time.monotonic(), []
    for job in range(given.jobs):
        reading, writing = os.pipe()
        if not os.fork():
            os.close(reading)
            with os.fdopen(writing, "w", encoding="utf-8") as out:
                numbers = range(given.first + job, given.first + given.count, given.jobs)
                for row in fuzz(given.seed, numbers, given.only, minimise=True):
                    print(json.dumps(row), file=out, flush=True)
            os._exit(0)
        os.close(writing)
        pipes.append(os.fdopen(reading, encoding="utf-8"))
    rows = list(_told(pipes, given.log))
    return _summary(rows, given.seed, time.monotonic() - began)


def _told(pipes: list[Any], log: Path | None) -> Iterator[dict[str, Any]]:
    """The rows of all jobs as they come; failures are shown at once."""
    from multiprocessing.connection import wait

    while pipes:
        for pipe in wait(pipes):
            line = pipe.readline()  # type: ignore[union-attr]
            if not line:
                pipes.remove(pipe)
                continue
            row = json.loads(line)
            if row["number"] % 1000 == 0:
                print(f"number {row['number']}", file=sys.stderr, flush=True)
            if "wrong" in row:
                print(json.dumps(row, indent=1), flush=True)
                if log is not None:
                    with log.open("a", encoding="utf-8") as file:
                        file.write(line)
            yield row


def _summary(rows: list[dict[str, Any]], seed: int, seconds: float) -> int:
    wrong = Counter(row["wrong"] for row in rows if "wrong" in row)
    ends = Counter(GOOD.get(row["code"], "otherwise") for row in rows)
    print(f"seed {seed}: {len(rows)} inputs of {len({row['category'] for row in rows})} categories in {seconds:.0f} s")
    print(", ".join(f"{count} {end}" for end, count in ends.most_common()))
    slowest = max(rows, key=lambda row: row["seconds"], default=None)
    if slowest is not None:
        print(f"the slowest took {slowest['seconds']} s of computing: number {slowest['number']}, {slowest['category']}")
    for what, count in wrong.most_common():
        print(f"{count:5} {what}")
    print(f"{sum(wrong.values())} of {len(rows)} were not taken as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
