"""Changes formulas of the product, and asks whether the suite of theorems alone notices: `python mutation/theorems.py --count 150`.

A formula of the product is what `derivations` prints, a fixed list that no theorem has a say in. Mutants are drawn from the packages
that formulas come from, without models' sizes and clusters' figures, which formulas are of. One counts if the list prints another
formula or number, by value; told apart are those that change none, those for which the list is refused as input, and those that crash.
Then the theorems that run the changed line are checked, the cheapest first, without the second solver, until one does not stand. What
leaves theorems that cannot be read or decided is not caught, nor is what takes too long.

Who runs which line is recorded in `--map`, once for each state of the product and of a file of theorems; this takes some minutes and
needs `coverage`. `--forms` takes each change of a closed form beside which `explain` shows a theorem, in place of a draw. `--log FILE`
keeps what became of each, and is not asked again but for what was not caught, with `--again`.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import io
import json
import math
import multiprocessing
import os
import re
import resource
import shlex
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import lru_cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from mutants import PACKAGE, ROOT, Mutant, every
from reach import of_statement

AREAS = ("schedules/", "collectives/", "cost/", "models/", "profiles/", "clusters/", "strategies/", "semantics/lower/", "core/")
#: What formulas are of, and programs that are known to be wrong.
NO_FORMULAS = ("models/presets/", "models/hub.toml", "clusters/presets/", "strategies/not_equivalent/")
#: Of a document, what is no formula; and in a text the lines of theorems.
_WORDS = frozenset(
    {
        "why", "rule", "statement", "program", "summary", "text", "says", "source", "symbols", "conventions", "assumes", "about",
        "verdict", "name", "axes", "phase", "state", "collective", "kind", "schema", "strategy", "schedule", "line", "variable",
        "splits",
    }
)  # fmt: skip
_THEOREM = re.compile(r"\s*(theorem |it is not what |not proved )")
_COPIED = ("placeproof", "theorems", "docs/references.bib")
_SHAPES = "--shapes 'transformer(layers=2, hidden=64, heads=4, ffn=128, vocab=256, batch=2, tokens=16)'"
_TIMED = "--cluster dgx-h100 --set b=1 --set m=8 --set c=1.25"
Printed = tuple[int, list[tuple[str, str]]]
Send = Callable[[Any], None]


# What the product prints.


def derivations() -> Iterator[str]:
    """Each as it is typed: the catalogue alone, with each option, and in pairs; uneven parts; models under recomputation, schedules and
    clusters; exact bytes of implementations; comparisons; schedules. `algorithms OF` are closed forms of a collective."""
    from placeproof.collectives import algorithms
    from placeproof.programs import Program
    from placeproof.schedules import names
    from placeproof.semantics.catalogue import compositions, variants

    pairs, options = ([text for text, program in made if isinstance(program, Program)] for made in (compositions(2), variants()))
    yield from (f"derive '{text}'" for text in (*pairs, *(text for text in options if text.count("*") < 2)))
    yield from (f"derive {name} --shards dp=0.4,0.3,0.3" for name in ("zero1", "zero2", "zero3", "fsdp"))
    yield from ("derive zero3 --groups", "derive 'zero3(8)' --set P=70e9", "derive 'hsdp(2, 4) * tp(2)' --set P=70e9 --precision fp32-adam")
    for model in ("llama3-8b", "gpt3-1.3b", "bloom-176b"):
        yield f"derive 'hsdp(2, 2) * tp(2) * sp * cp(2) * pp(2)' --model {model} {_TIMED}"
    yield f"derive 'zero1(4) * ep(4) * tp(2) * sp * pp(2)' --model mixtral-8x7b {_TIMED}"
    yield f"derive 'zero1(8) * ep(8) * tp(2) * sp' --model deepseek-v3 {_TIMED}"
    yield f"derive 'zero1(8) * ep(8, experts=whole) * tp(2) * sp' --model mixtral-8x7b {_TIMED}"
    yield "derive 'fsdp * tp * sp * cp * pp' --model llama"
    for name in names():
        chunks = ", chunks=2" if name == "interleaved" else ""
        yield f"derive 'zero1(2) * pp(4, schedule={name}{chunks})' --model llama3-8b {_TIMED}"
        yield f"explain {name}"
    yield from (
        f"derive 'tp(2) * sp' --model gpt3-1.3b --recompute {way}" for way in ("full", "selective", "norms", "mlp", "selective+norms")
    )
    yield from (f"derive 'cp(4, attention={way}) * fsdp(2)' --model llama3-8b {_TIMED}" for way in ("gather", "ulysses"))
    yield f"derive 'ddp(2) * tp(8)' --model gpt3-1.3b --overlap all --efficiency peak {_TIMED.replace('dgx-h100', 'dgx-a100-80')}"
    yield f"derive 'fsdp(8) * tp(4)' --model llama3-8b --overlap none {_TIMED.replace('dgx-h100', 'tpu-v5p')}"
    yield f"derive 'zero_offload(8) * checkpoint(checkpoints=host)' --model llama3-8b --width attention_flash.q=1 {_TIMED}"
    yield from ("derive 'fsdp(8)' --model llama3-8b --fp8", "derive 'zero3(4) * pp(4)' --model llama3-8b --stages 9,9,7,7")
    for profile, strategies in {
        "torch-2.13": ("ddp(4)", "zero1(4)", "fsdp(4)", "hsdp(2, 2)", "tp(2)", "tp(2) * sp", "fsdp(2) * tp(2) * sp"),
        "deepspeed-0.19": ("ddp(4)", "zero1(4)", "zero2(4)", "zero3(4)"),
        "megatron-core": ("ddp(4)", "zero1(4)"),
        "ideal": ("zero3(4)", "tp(2) * sp"),
    }.items():
        yield from (f"derive '{strategy}' --profile {profile} {_SHAPES}" for strategy in strategies)
    yield from ("derive 'zero1 * tp' --profile megatron-core", "derive 'fsdp * tp * sp' --profile torch-2.13")
    yield from ("compare ddp zero1 zero3 hsdp --set P=7e9 --set N=64", f"compare ideal torch-2.13 --of 'zero1(4)' {_SHAPES}")
    yield f"compare 'fsdp * tp(8) * accumulate(8)' 'zero1 * tp(8) * sp * pp(4, microbatches=8)' --model llama3-8b --set N=64 {_TIMED}"
    yield from (f"algorithms {kind}" for kind in algorithms.ALGORITHMS)


def printed(command: str) -> Printed:
    """The exit code of a derivation, and each formula and number with its name."""
    what, *rest = shlex.split(command)
    if what == "algorithms":
        return 0, list(_algorithms(rest[0]))
    from placeproof.cli.main import run

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run([what, *rest, *(() if what == "explain" else ("--json",))])
    if what == "explain" or not out.getvalue():
        return code, [("text", line.strip()) for line in out.getvalue().splitlines() if line and not _THEOREM.match(line)]
    return code, list(_leaves(json.loads(out.getvalue()), ""))


def _leaves(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """What a document says by name, without places in lists."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from () if name in _WORDS else _leaves(inner, f"{key}.{name}")
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, key)
    else:
        yield key, str(value)


def _algorithms(kind: str) -> Iterator[tuple[str, str]]:
    from sympy import symbols

    from placeproof.collectives import COLLECTIVES, algorithms

    n, k, s, n_0, n_1, k_0, k_1 = symbols("n k s n_0 n_1 k_0 k_1")
    if kind in COLLECTIVES:
        yield kind, str(COLLECTIVES[kind].sent(n, s))
    for name, row in algorithms.ALGORITHMS[kind].items():
        forms = [] if isinstance(row, algorithms.Levelled) else [row.terms(n, k, s)]
        for terms in (*forms, *(row.by_level([n_0, n_1], [k_0, k_1], s) or ())):
            yield from ((name, str(part)) for part in (terms.messages, terms.sent, terms.added))
        yield name, str([size for size in range(1, 18) if row.admits([size])])


def differs(before: Printed, after: Printed) -> bool:
    """Whether other formulas or numbers are printed, by their values at two points."""
    old, new = (Counter(map(tuple, leaves)) for _, leaves in (before, after))  # of JSON, where pairs are lists
    return any(_values(old - new, seed) != _values(new - old, seed) for seed in (1, 2))


def _values(leaves: Counter[tuple[str, str]], seed: int) -> Counter[tuple[str, str]]:
    valued = Counter({(key, _value(text, seed, key == "text")): count for (key, text), count in leaves.items()})
    return Counter({leaf: count for leaf, count in valued.items() if leaf[1]})


@lru_cache(maxsize=4096)
def _value(text: str, seed: int, whole: bool) -> str:
    """What a formula is at a point; nothing of a word, unless it is a line of a text."""
    from sympy import Integer
    from sympy.parsing.sympy_parser import parse_expr

    names = {
        name: Integer(int(hashlib.sha256(f"{seed} {name}".encode()).hexdigest(), 16) % 89 + 11)
        for name in re.findall(r"[A-Za-z_]\w*", text)
    }
    for function in ("Max", "Min", "floor", "ceiling", "max", "min", "log", "sqrt", "Piecewise", "True"):
        names.pop(function, None)
    word = text if whole else ""
    if text in ("True", "False") or (len(text) > 2 and text.isidentifier() and not re.match(r"[A-Za-z]_", text)):
        return text if text in ("True", "False") else word
    try:
        number = parse_expr(text, names, global_dict=_functions())
        return f"{float(number):.11g}" if not math.isnan(float(number)) else text
    except Exception:  # no formula
        return word


@lru_cache(maxsize=1)
def _functions() -> dict[str, Any]:
    import sympy

    known = {
        name: getattr(sympy, name)
        for name in ("Max", "Min", "floor", "ceiling", "log", "sqrt", "Piecewise", "Integer", "Float", "Rational")
    }
    return {**known, "max": sympy.Max, "min": sympy.Min}


# Who runs which line.


def forked(work: Callable[..., None], *given: Any, seconds: int = 3600) -> list[Any]:
    """What a process of its own sends, which may compute for so long; it may end before it has sent all."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def child() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        work(theirs.send, *given)
        os._exit(0)

    process = context.Process(target=child)
    process.start()
    theirs.close()
    sent = []
    with contextlib.suppress(EOFError):
        while True:
            sent.append(ours.recv())
    process.join()
    ours.close()
    return sent


def recorded(work: Callable[..., None], *given: Any) -> Any:
    """What a process of its own sends first. Raises RuntimeError with the traceback of what went wrong in it."""

    def child(send: Send, *given: Any) -> None:
        try:
            work(send, *given)
        except Exception:
            send(RuntimeError(traceback.format_exc()))

    sent = forked(child, *given)
    if not sent:
        raise RuntimeError(f"{work.__name__}: its process ended and sent nothing")
    if isinstance(sent[0], RuntimeError):
        raise sent[0]
    return sent[0]


class Ran:
    """Lines of Python that run meanwhile, by file, and other files of the package that are opened."""

    def __enter__(self) -> Ran:
        """Start."""
        import coverage

        self.opened: set[str] = set()
        sys.addaudithook(self._opens)
        self._measured = coverage.Coverage(data_file=None, config_file=False, source=[str(PACKAGE)], messages=False)
        self._measured.start()
        self._began = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._seconds = round(time.process_time() - self._began, 3)
        self._measured.stop()
        self._data = self._measured.get_data()

    def switch(self, name: str) -> None:
        """What follows is told under a name, too."""
        self._measured.switch_context(name)

    def of(self, name: str) -> dict[str, list[int]]:
        """Lines that ran under a name, or under any, by file."""
        self._data.set_query_context(name) if name else self._data.set_query_contexts(None)
        files = {os.path.relpath(path, PACKAGE): sorted(self._data.lines(path) or ()) for path in self._data.measured_files()}
        return {path: lines for path, lines in files.items() if lines}

    def row(self) -> dict[str, Any]:
        """As JSON data."""
        return {"seconds": self._seconds, "lines": self.of(""), "opened": sorted(self.opened)}

    def _opens(self, event: str, given: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(given[0], str) and given[0].startswith(f"{PACKAGE}/") and not given[0].endswith((".py", ".pyc")):
            self.opened.add(os.path.relpath(given[0], PACKAGE))


def _imported() -> Ran:
    """All that may be imported late; what runs for it runs for everything."""
    sys.path.insert(0, str(ROOT))
    with Ran() as ran:
        for path in sorted(PACKAGE.rglob("*.py")):
            if "measure" not in path.parts:
                importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    return ran


def _record_product(send: Send) -> None:
    """Derivations, each in a process of its own, in which nothing is left from an earlier one."""

    def one(tell: Send, command: str) -> None:
        with Ran() as ran:
            result = printed(command)
        tell({**ran.row(), "printed": result})

    def listed(tell: Send) -> None:
        tell(list(derivations()))

    imported = _imported().row()
    items = {command: recorded(one, command) for command in recorded(listed)}  # here, their files would have been opened before
    send({"imported": imported, "items": {command: row for command, row in items.items() if row["printed"][0] == 0}})


def _record_topic(send: Send, file: str) -> None:
    """Theorems of a file, one after the other: what an earlier one left behind runs for the later ones no more."""
    from placeproof.theory.suite.check import check
    from placeproof.theory.suite.load import Loaded, load_file

    _imported()
    items = {}
    with Ran() as ran:
        for theorem in load_file(Path(file), Loaded()):
            ran.switch(theorem.id)
            outcome = check(theorem, _settings())
            items[theorem.id] = {"seconds": round(outcome.seconds, 3), "standing": outcome.standing}
    for name, row in items.items():
        row["lines"] = ran.of(name)
    send({"topic": ran.row(), "items": items})


def _settings() -> Any:
    from placeproof.theory.suite.outcome import Settings

    return Settings(second_opinion=False)


def _digest(*paths: Path) -> str:
    files = sorted(file for path in paths for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
    text = b"".join(str(f.relative_to(ROOT)).encode() + f.read_bytes() for f in files if f.suffix != ".pyc")
    return hashlib.sha256(text).hexdigest()[:16]


class Map:
    """Derivations and topics of theorems, with their seconds and what they run."""

    def __init__(self, folder: Path, jobs: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        product, topics = _digest(PACKAGE), sorted(p for p in (ROOT / "theorems").glob("*.py") if not p.name.startswith("_"))
        text = Path(__file__).read_text(encoding="utf-8")
        listed = hashlib.sha256(text[text.index("# What the product prints") : text.index("# Who runs")].encode()).hexdigest()[:16]
        work: dict[str, tuple[str, Callable[..., None], Path | None]] = {"": (f"derivations-{listed}", _record_product, None)}
        work |= {topic.name: (f"{topic.stem}-{_digest(topic)}", _record_topic, topic) for topic in topics}
        kept = {name: folder / f"{stem}-{product}.json" for name, (stem, _, _) in work.items()}
        with ThreadPoolExecutor(jobs) as pool:  # what one raises is raised here, and those that have not begun never do
            list(pool.map(self._record, kept.values(), *list(zip(*work.values(), strict=True))[1:]))
        read = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in kept.items()}
        own = read.pop("")
        self.imported, self.derivations = own["imported"], own["items"]
        self.topics: dict[str, dict[str, Any]] = read
        unfit = [n for data in read.values() for n, row in data["items"].items() if row["standing"] in ("unexpected", "undecided")]
        assert not unfit, f"these do not stand: {unfit}"

    @staticmethod
    def _record(path: Path, record: Callable[..., None], given: Path | None) -> None:
        if not path.exists():
            path.write_text(json.dumps(recorded(record, *([str(given)] if given else []))), encoding="utf-8")
            print(f"recorded {path.stem}", flush=True)

    def derived(self, mutant: Mutant) -> list[str]:
        """Derivations that run a changed line, or open a changed file, the cheapest first."""
        everyone = self._runs(self.imported, mutant)
        names = [name for name, row in self.derivations.items() if everyone or self._runs(row, mutant)]
        return sorted(names, key=lambda name: self.derivations[name]["seconds"])

    def checked(self, mutant: Mutant) -> list[tuple[str, str]]:
        """Theorems of topics that do, with their files: first those that do themselves, those that run much of the file for their time."""
        everyone = self._runs(self.imported, mutant)
        order = []
        for file, data in self.topics.items():
            if everyone or self._runs(data["topic"], mutant):
                for name, row in data["items"].items():
                    share = row["seconds"] / (1 + len(row["lines"].get(mutant.path, ())))
                    order.append((not self._runs(row, mutant), share, file, name))
        return [(file, name) for *_, file, name in sorted(order)]

    @staticmethod
    def _runs(row: dict[str, Any], mutant: Mutant) -> bool:
        if not mutant.path.endswith(".py"):
            return mutant.path in row.get("opened", ())
        lines = of_statement(mutant.path, mutant.line)
        return lines is None or not set(lines).isdisjoint(row["lines"].get(mutant.path, ()))


# What becomes of a mutant.


def _tried(send: Send, copy: Path, derived: list[tuple[str, Printed]], theorems: list[tuple[str, str]]) -> None:
    """Send whether the package with a change prints other formulas, and the theorem that does not stand any more."""
    os.chdir(copy)
    sys.path.insert(0, str(copy))
    sys.dont_write_bytecode = True
    try:
        import placeproof.cli.main
        import placeproof.theory.suite.load
    except BaseException:
        return send(("import", ""))
    assert Path(placeproof.__file__).is_relative_to(copy)
    result = _changes(derived)
    send(result)
    if result[0] == "survived":
        send(_first_fallen(theorems))
    return None


def _changes(derived: list[tuple[str, Printed]]) -> tuple[str, str]:
    """The first derivation that prints something else, as what survived so far."""
    other = ("no formula", "")
    for command, before in derived:
        try:
            after = printed(command)
        except Exception:
            after = (70, [])
        if after[0] == before[0] and differs(before, after):
            return "survived", command
        if after[0] != before[0]:
            other = ("crash" if after[0] == 70 or other[0] == "crash" else "refused", command)
    return other


def _first_fallen(theorems: list[tuple[str, str]]) -> tuple[str, str]:
    from placeproof.theory.suite.load import Loaded, load_file
    from placeproof.theory.suite.outcome import Outcome
    from placeproof.theory.suite.runner import check_one

    unread, read = "", {}
    for file, name in theorems:
        try:
            if file not in read:
                read[file] = {theorem.id: theorem for theorem in load_file(Path("theorems", file), Loaded())}
            outcome = check_one(read[file][name], _settings())
        except Exception:
            unread = unread or name
            continue
        if isinstance(outcome, Outcome) and outcome.standing == "unexpected":
            return "caught", name
        if not isinstance(outcome, Outcome) or outcome.standing == "undecided":
            unread = unread or name
    return ("unread", unread) if unread else ("survived", "")


def tried(mutant: Mutant, known: Map, seconds: int) -> dict[str, Any]:
    """What becomes of a mutant, as a row of the log."""
    with TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in _COPIED:
            (copy / name).parent.mkdir(exist_ok=True)
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy2)(ROOT / name, copy / name)
        (copy / "placeproof" / mutant.path).write_text(mutant.source, encoding="utf-8")
        derived = [(name, known.derivations[name]["printed"]) for name in known.derived(mutant)]
        theorems = known.checked(mutant)
        began = _spent()
        sent = forked(_tried, copy, derived, theorems, seconds=seconds)
    result, by = sent[-1] if sent and (len(sent) > 1 or sent[0][0] != "survived") else ("time" if sent else "hangs", "")
    changes = sent[0][1] if sent else ""
    row = {"mutant": mutant.name, "line": mutant.line, "result": result, "by": by, "changes": changes, "form": shown(mutant)}
    return {**row, "seconds": round(_spent() - began, 1), "theorems": len(theorems)}


def _spent() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def shown(mutant: Mutant) -> bool:
    """Whether it lies in a closed form beside which `explain` shows a theorem."""
    if not mutant.path.startswith("schedules/catalogue/") or mutant.where != "closed" or not mutant.before.startswith(("form:", "when:")):
        return False
    text = (PACKAGE / mutant.path).read_text(encoding="utf-8")
    table = text[text.rfind("[[", 0, mutant.start) : text.find("\n[", mutant.start) % (len(text) + 1)]
    return "proved = [" in table or "computed = [" in table


def drawn(asked: argparse.Namespace, known: Map) -> Iterator[Mutant]:
    """Mutants of lines that derivations run, in an order of the seed; at most three of one function or table."""
    taken: Counter[tuple[str, str]] = Counter()
    for mutant in sorted(every().values(), key=lambda m: hashlib.sha256(f"{asked.seed} {m.name}".encode()).digest()):
        if asked.forms:
            yield from [mutant] if shown(mutant) else []
        elif mutant.path.startswith(tuple(asked.only)) and not mutant.path.startswith(NO_FORMULAS) and known.derived(mutant):
            taken[mutant.path, mutant.where] += 1
            yield from [mutant] if taken[mutant.path, mutant.where] <= 3 else []


COUNTED = ("caught", "survived", "unread", "time")


def main() -> int:
    """Try them, and say what each topic caught."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=150, metavar="N", help="mutants that change a formula")
    parser.add_argument("--seed", default="1", help="which ones")
    parser.add_argument("--only", nargs="+", default=AREAS, metavar="START", help="of the files that begin so: schedules/ cost/step/")
    parser.add_argument("--forms", action="store_true", help="all changes of closed forms that `explain` shows theorems of")
    parser.add_argument(
        "--map", type=Path, default=Path.home() / ".cache" / "placeproof" / "mutation", metavar="FOLDER", help="who runs what"
    )
    parser.add_argument("--log", type=Path, metavar="FILE", help="what was found before, one mutant a line")
    parser.add_argument("--again", action="store_true", help="try once more what was not caught")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="at once")
    parser.add_argument("--seconds", type=int, default=100, metavar="S", help="that one mutant may compute for")
    asked = parser.parse_args()
    known, log = Map(asked.map, asked.jobs), _read(asked.log)
    for name in ("sympy", "typer", "z3"):  # once for all processes
        importlib.import_module(name)
    waiting, rows = drawn(asked, known), []
    running: set[Future[dict[str, Any]]] = set()
    with ThreadPoolExecutor(asked.jobs) as pool:
        while (counted := sum(row["result"] in COUNTED for row in rows)) < asked.count:
            some = islice(waiting, min(asked.jobs, asked.count - counted) - len(running))
            running |= {pool.submit(_row, mutant, log, known, asked) for mutant in some}
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                rows.append(one.result())
                _keep(rows[-1], log, asked.log)
    return _summary(rows)


def _row(mutant: Mutant, log: dict[str, dict[str, Any]], known: Map, asked: argparse.Namespace) -> dict[str, Any]:
    earlier = log.get(mutant.name)
    if earlier is not None and not (asked.again and earlier["result"] in COUNTED[1:]):
        return earlier
    return tried(mutant, known, asked.seconds)


def _read(log: Path | None) -> dict[str, dict[str, Any]]:
    lines = log.read_text(encoding="utf-8").splitlines() if log is not None and log.exists() else []
    return {row["mutant"]: row for row in map(json.loads, lines)}


def _keep(row: dict[str, Any], log: dict[str, dict[str, Any]], path: Path | None) -> None:
    if log.get(row["mutant"]) is not row:
        log[row["mutant"]] = row
        print(f"{row['result']:<10} {row['seconds']:>5} s  {row['mutant']}  {row['by']}", flush=True)
        if path is not None:
            path.write_text("".join(json.dumps(one) + "\n" for one in log.values()), encoding="utf-8")


def _summary(rows: list[dict[str, Any]]) -> int:
    """How many of each, what each topic caught, and what lies in a form that `explain` shows a theorem of."""
    for topic, n in Counter(row["by"].partition(".")[0] for row in rows if row["result"] == "caught").most_common():
        print(f"{n:>4} caught by {topic}")
    counted, in_forms = ([row for row in rows if row["result"] in COUNTED and row["form"] >= form] for form in (False, True))
    for where, some in (("", counted), (" of those in a form that explain shows a theorem of", in_forms)):
        caught = sum(row["result"] == "caught" for row in some)
        print(f"{caught} of {len(some)} caught{where}: {caught / max(len(some), 1):.0%}")
    print(f"{len(rows)} drawn: " + ", ".join(f"{n} {word}" for word, n in Counter(row["result"] for row in rows).most_common()))
    print(f"{sum(row['seconds'] for row in rows) / max(len(counted), 1):.0f} seconds of computing for each that counts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
