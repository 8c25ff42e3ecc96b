"""Inputs for `fuzz.py`: command lines with their files, drawn by grammar and by mutation of good ones. The same seed draws the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial

from fuzz_corpus import KINDS, THEOREM, Kind
from fuzz_mutate import NUMBERS, WORDS, Case, as_bytes, mutated
from fuzz_rules import RULES, good, ruled

from placeproof.importers import SYSTEMS

#: What an option usually takes.
VALUES: dict[str, tuple[str, ...]] = {
    "--set": ("P=70e9", "N=8", "b=1", "m=8", "U=1e9", "A=1e9", "N_dp=8", "N_tp=2", "s=4096", "L=32", "h=4096", "b_a=2"),
    "--precision": ("mixed-adam", "fp32-adam", "bf16"),
    "--world": ("1", "8", "64", "0", "-1"),
    "--env": ("TP=4", "1=8", "NNODES=2", "x"),
    "--profile": ("ideal", "torch-2.13", "deepspeed-0.19", "megatron-core"),
    "--model": ("llama3-8b", "mixtral-8x7b", "m.toml", "config.json"),
    "--cluster": ("dgx-h100", "dgx-a100", "c.toml"),
    "--recompute": ("none", "full", "full:2", "full:2,0", "full/3", "selective", "selective+norms"),
    "--stages": ("16,16", "8,8,8,8", "32"),
    "--shards": ("dp=2:1:1", "dp=0.5,0.5", "dp=0.3x2,0.1x4"),
    "--shapes": ("transformer(layers=2, hidden=32, heads=4, ffn=64, vocab=64, batch=4, tokens=16)", "s.toml", "config.json"),
    "--shapes-from": ("transformers", "vllm"),
    "--shapes-to": ("out.toml", "out.json"),
    "--of": ("fsdp(4)", "zero3", "ddp(2)"),
    "--from": tuple(SYSTEMS),
    "--as": ("megatron", "deepspeed", "accelerate", "torchtitan", "axolotl"),
    "--for-all": ("N_dp >= 2", "m == 4", "N >= 1"),
    "--without": ("separable-loss", "equal-token-counts"),
    "--against": ("ddp", "zero3", "a.step"),
    "--html": ("out.html", "x/out.html", "out.svg"),
    "--junit": ("out.xml", "/nowhere/out.xml"),
    "--sarif": ("out.sarif", "/nowhere/out.sarif"),
    "--plot": ("out.svg", "x/out.svg", "out.png"),
    "--smtlib": ("queries", "/dev/null"),
    "--replay-script": ("replay.py", "/nowhere/r.py"),
    "--certificate": ("c.json", "/nowhere/c.json"),
    "--backend": ("gloo", "simulator", "fake"),
    "--level": ("0", "1", "2", "3"),
    "--devices": ("4", "2,4", "8"),
    "--global-batch": ("4", "8", "512"),
    "--tokens": ("4M", "8192", "4k"),
    "--efficiency": ("half", "peak", "0.4", "40%"),
    "--order": ("tp,cp,ep,dp,pp", "dp,tp", "pp"),
    "--overlap": ("none", "data", "all"),
    "--reserve": ("6GB", "6", "6GiB"),
    "--width": ("mlp.x=2", "x=1"),
    "--vocab-padding": ("none", "8", "128"),
    "--implementation": ("megatron-2023.10", "i.toml"),
    "--option": ("dtype=bfloat16", "optimizer=sgd", "dtype=int3"),
    "--rank": ("0", "3", "99"),
    "--only": ("tp=1", "recompute=none", "schedule=1f1b", "gpt3-22b"),
    "--max": ("tp=8", "b=4", "tp=0"),
    "--forbid": ("cp", "data=ddp", "pp"),
    "--why": ("ddp(4)", "fsdp(2) * tp(2)"),
    "--objective": ("time", "memory", "tokens-per-device"),
    "--engine": ("processes", "dask"),
    "--jobs": ("1",),
    "-j": ("1",),
    "--seeds": ("1", "2", "0"),
    "--budget": ("100", "1", "0"),
    "--second-opinion": ("cutoff", "composition", "cvc5"),
    "--held-out": ("half", "groups", "1", "2-3"),
    "--constants": ("products", "memory", "kernel", "nvlink"),
    "--system": ("megatron", "deepspeed"),
    "--axis": ("dp=batch", "tp=hidden"),
    "--color": ("always", "never", "auto"),
}
#: What takes minutes when it is taken: all compositions, our own suite, a plan beside each run; what writes to our files; what has no end.
LONG = ("--catalogue", "--update", "--plans", "--uneven", "explore", "--address")


@cache
def commands() -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Each command that is registered, with its options that take a value, and those that take none."""
    from placeproof.cli.main import program

    known = {}
    for name, command in program.commands.items():
        said = [(option, param.is_flag) for param in command.params for option in param.opts if option.startswith("-")]
        valued, flags = (tuple(option for option, is_flag in said if is_flag is kind and option not in LONG) for kind in (False, True))
        known[name] = (valued, flags)
    return known


# Categories. Each draws a case.


@cache
def strategies() -> tuple[str, ...]:
    """The names of the catalogue."""
    from placeproof.strategies import names

    return tuple(names())


def strategy_text(rng: random.Random) -> str:
    """An expression of the language of strategies, most often a good one."""
    parts = []
    for name in rng.sample(strategies(), rng.choice((1, 1, 2, 3))):
        inside = rng.choice(("", "", f"({rng.choice((1, 2, 4, 8, 64))})", f"({rng.choice(NUMBERS)})", "(schedule=zb-h1)", "(dp=outer)"))
        parts.append(name + inside)
    return " * ".join(parts)


def _strategy(rng: random.Random) -> Case:
    text = strategy_text(rng)
    text = mutated(text, rng) if rng.random() < 0.5 else text
    return Case("strategy", [rng.choice(("derive", "derive", "prove")), text])


def _values(rng: random.Random) -> Case:
    from placeproof.core.symbols import SYMBOLS

    argv = ["derive", strategy_text(rng)]
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = rng.choice((*SYMBOLS, "N_dp", "N_tp", "nope", ""))
        argv += ["--set", f"{name}={rng.choice(NUMBERS)}"]
    return Case("set", [*argv, *rng.choice(([], ["--json"], ["--groups"], ["--shards", "dp=2:1:1"]))])


def _value(option: str, rng: random.Random) -> str:
    usual = rng.choice(VALUES.get(option, WORDS))
    return rng.choice((usual, usual, mutated(usual, rng), rng.choice(NUMBERS), rng.choice(WORDS)))


def _option(rng: random.Random) -> Case:
    """A command with some of its options, each with a value."""
    command = rng.choice(tuple(name for name, (valued, _) in commands().items() if valued and name not in (*LONG, "check")))
    subjects = {"compare": 2, "diff": 2, "plan": 0}.get(command, 1)
    argv = [command, *(strategy_text(rng) for _ in range(subjects))]
    if command == "plan":  # one that is not small takes long
        argv += [
            "--model",
            "gpt3-125m",
            "--cluster",
            "dgx-h100",
            "--devices",
            "2",
            "--global-batch",
            "4",
            "--only",
            "recompute=none",
            "--jobs",
            "1",
        ]
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = rng.choice(commands()[command][0])
        argv += [name, _value(name, rng)]
    return Case("option", argv)


def _argv(rng: random.Random) -> Case:
    """Options of every command, in any combination."""
    command = rng.choice(tuple(commands()))
    others = [*commands()[command][0], *rng.choice(tuple(commands().values()))[0], "--help", "--nonsense", "-V", "-h"]
    argv = [command, *rng.choices((*WORDS, "zero3", "record", "memory", "PP105", "strategies", "ddp"), k=rng.choice((0, 1, 1, 2)))]
    if command in LONG:
        argv = [command, "no strategy"]
    for _ in range(rng.randrange(5)):
        name = rng.choice((*commands()[command][1] * 2, *others))
        argv += [name] if name in commands()[command][1] or rng.random() < 0.2 else [name, _value(name, rng)]
    files = {"t.py": THEOREM.encode()}  # without it, our own suite is checked, for minutes
    return Case("argv", [*argv, "t.py", "--jobs", "1"], files) if command == "check" else Case("argv", argv)


def _of_kind(name: str, kind: Kind) -> Callable[[random.Random], Case]:
    """Cases that give a mutated file of a kind to one of its commands."""

    def draw(rng: random.Random) -> Case:
        files = {name: text.encode() for name, text in kind.others.items()}
        files[kind.file] = as_bytes(mutated(rng.choice(kind.texts()), rng), rng)
        return Case(name, list(rng.choice(kind.commands)), files)

    return draw


#: Variables of the environment with what may be in them.
_VARIABLES = {
    **dict.fromkeys(("COLUMNS", "LINES"), ("0", "-1", "1", "40", "abc", "", "9" * 12, "80")),
    **dict.fromkeys(("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "PLACEPROOF_TRACEBACK", "PYTHONUTF8"), ("", "1", "0", "x")),
    **dict.fromkeys(
        ("HOME", "XDG_CACHE_HOME", "TMPDIR", "PLACEPROOF_CACHE"),
        (None, "", "/nonexistent", "relative", "a.step", "/dev/null", "é\udcff", "x" * 5000),
    ),
    "TERM": ("dumb", "", "xterm-256color", "nonsense", None),
    "PAGER": ("", "/nonexistent", "false", "cat"),
    **dict.fromkeys(("LANG", "LC_ALL"), ("C", "POSIX", "xx_YY.UTF-8", "tr_TR.UTF-8", "")),
    "TZ": ("nowhere", ""),
}


def _environment(rng: random.Random) -> Case:
    """A good command in an environment that is otherwise; the answer does not depend on it."""
    _, case = good(rng)
    if rng.random() < 0.3:
        case = Case("", ["check", "t.py", "--jobs", "1", "--no-second-opinion"], {"t.py": THEOREM.encode()})
    names = rng.sample(tuple(_VARIABLES), rng.choice((1, 2, 4)))
    return replace(case, category="environment", env={name: rng.choice(_VARIABLES[name]) for name in names})


def _piped(rng: random.Random) -> Case:
    """Standard input where a file is expected."""
    name = rng.choice(("counterexample", "certificate", "counterexample-model", "certificate-model"))
    data = as_bytes(mutated(KINDS[name].texts()[0], rng), rng)
    data = rng.choice((data, data, b"", b"\0" * 100, rng.randbytes(50)))
    argv = [word.replace("c.json", "-") for word in KINDS[name].commands[0]]
    return Case("piped", rng.choice((argv, argv, ["derive", "-"], ["check", "-"], ["prove", "-"])), stdin=data)


def _special(rng: random.Random) -> Case:
    """What is no file where one is expected: a folder, a pipe, a link to itself or to nothing, a device, a file that cannot be read."""
    kind, case = good(rng)
    what = rng.choice(("folder", "pipe", kind.file, "nowhere", "/dev/null", "/proc/self/mem", "/dev/zero", "/dev/tty", "/root/x"))
    if what == "pipe":
        want = "refused" if kind.file in ("verdicts.lock.json", "t.py") else "same"  # the first is written, the second read twice
        return replace(case, category="special", special={kind.file: what}, want=want, base=case)
    return replace(case, category="special", special={kind.file: what})


def _cache(rng: random.Random) -> Case:
    """Theorems are checked again, after what is remembered of them was spoilt."""
    base = Case("cache", ["check", "t.py", "--jobs", "1", "--no-second-opinion"], {"t.py": THEOREM.encode()})
    return replace(
        base, spoil=rng.choice((b"", b"{}", b"\0" * 50, b"[" * 10_000, rng.randbytes(40), b"null", b"\xff\xfe")), want="same", base=base
    )


def _bytes(rng: random.Random) -> Case:
    name = rng.choice(("a.step", "a.toml", "a.json", "a.yaml", "a.args", "t.py", "c.json"))
    size = rng.choice((0, 1, 10, 100, 5000))
    raw = rng.choice((rng.randbytes(size), b"\0" * size, b"\xff\xfe" * size, b"[" * size, b"a=" * size, b"- " * size, b"\n" * size))
    argv = {"t.py": ["check", name, "--jobs", "1", "--no-cache"], "c.json": ["replay", name, "--backend", "simulator"]}
    return Case("bytes", argv.get(name, [rng.choice(("derive", "prove")), name]), {name: raw})


def _name(rng: random.Random) -> Case:
    name = rng.choice(WORDS) + rng.choice((".toml", ".step", ".json", ".py", ".yaml", "", "::x"))
    argv = rng.choice(
        (
            ["derive", name],
            ["prove", name],
            ["check", name],
            ["replay", name],
            ["verify", name],
            ["explain", name],
            ["derive", "zero3(8)", "--shapes", name, "--profile", "torch-2.13"],
            ["derive", "zero3(8)", "--model", name],
            ["derive", "zero3(8)", "--model", "llama3-8b", "--cluster", name],
            ["derive", "zero3(8)", "--model", "llama3-8b", "--plot", name],
            ["prove", "zero1", "--smtlib", name],
            ["shapes", name, "--output", name],
            ["trace", "record", name, "--output", name],
        )
    )
    return Case("name", argv)


def _shapes(rng: random.Random) -> Case:
    return Case("shapes", ["derive", "fsdp(4)", "--profile", "torch-2.13", "--shapes", mutated(VALUES["--shapes"][0], rng)])


CATEGORIES: dict[str, Callable[[random.Random], Case]] = {
    "strategy": _strategy,
    "set": _values,
    "option": _option,
    "argv": _argv,
    "bytes": _bytes,
    "name": _name,
    "shapes": _shapes,
    "environment": _environment,
    "piped": _piped,
    "special": _special,
    "cache": _cache,
    **{name: _of_kind(name, kind) for name, kind in KINDS.items()},
    **{f"rule: {name}": partial(ruled, name) for name in RULES},
}


def draw(seed: int, number: int, only: str | None = None) -> Case:
    """The case of a number: categories take turns, so that each gets its share."""
    names = tuple(CATEGORIES)
    category = only or names[number % len(names)]
    return CATEGORIES[category](random.Random(f"{seed} {number} {category}"))
