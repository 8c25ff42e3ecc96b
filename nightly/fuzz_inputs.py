"""Inputs for `fuzz.py`: command lines with their files, drawn by grammar and by mutation of good ones. The same seed draws the same."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from placeproof.importers import SYSTEMS

if TYPE_CHECKING:
    from placeproof.semantics.judge.model import JudgedModel

ROOT = Path(__file__).parent.parent
#: Numbers that a careless or a spiteful author writes.
NUMBERS = (
    *("0", "-1", "1", "2", "3", "7", "8", "64", "1000", "2.7", "0.5", "1/3", "1/0", "1e3", "1e9", "1e10", "1e30", "1e101", "1e400"),
    *("-1e400", "1e-400", "1e99999999999", "nan", "inf", "-inf", "10**9", "2**999999999", "9" * 30, "9" * 5000, "0x10", "1_000", "1__0"),
    *("True", "None", "''", "٣", "1e", "--1", "+5", "5k", "70B", "1.5T", ".5", "5."),
)
#: Texts that stand where a name or a path is expected.
WORDS = (
    *("", " ", "a", "zero3", "dp", "tp", "N", "P", "é", "💥", "a" * 300, "../../etc/passwd", "/dev/null", "/dev/zero", ".", "/", "~", "-"),
    *("~nobody/x.toml", "x\x00y", "a\nb", "%s%n", "{0}", "$HOME", "__import__('os')", "true", "null", "[]", "{}", "'", '"', "\\", "#", "="),
)
OPTIONS: dict[str, tuple[str, ...]] = {
    "derive": (
        *("--set", "--precision", "--world", "--profile", "--with", "--shapes", "--rank", "--option", "--model", "--recompute", "--stages"),
        *("--width", "--cluster", "--efficiency", "--overlap", "--plot", "--shards", "--from", "--as", "--shapes-from", "--shapes-to"),
        "--html",
    ),
    "compare": (
        "--set",
        "--precision",
        "--world",
        "--env",
        "--of",
        "--shapes",
        "--shapes-from",
        "--shapes-to",
        "--rank",
        "--option",
        "--model",
        "--recompute",
        "--stages",
        "--cluster",
        "--html",
    ),
    "prove": (
        "--without",
        "--for-all",
        "--world",
        "--env",
        "--profile",
        "--with",
        "--smtlib",
        "--certificate",
        "--replay-script",
        "--against",
        "--from",
        "--html",
    ),
    "check": ("--level", "--jobs", "--seeds", "--html", "--junit", "--sarif"),
    "fit": (
        "--model",
        "--cluster",
        "--set",
        "--world",
        "--global-batch",
        "--recompute",
        "--efficiency",
        "--overlap",
        "--order",
        "--reserve",
        "--html",
    ),
    "list": ("--system",),
    "explain": (),
    "replay": ("--backend", "--timeout"),
    "verify": (),
    "measure": ("--set", "--shapes", "--shapes-from", "--shapes-to", "--profile", "--with", "--rank", "--option", "--backend"),
    "shapes": ("--world", "--unit", "--timeout", "--output"),
    "trace": ("--world", "--backend", "--steps", "--axis", "--timeout", "--output"),
    "accuracy": ("--without", "--only"),
    "calibrate": ("--from", "--constants", "--held-out", "--out"),
    "experiment": ("--plot",),
}
FLAGS = {
    "derive": ("--groups", "--program", "--json", "--latex", "--markdown", "--python", "--fp8"),
    "compare": ("--json", "--fp8"),
    "prove": ("--json", "--github"),
    "check": ("--json", "--github", "--no-second-opinion", "--no-cache"),
    "list": ("--json",),
    "replay": ("--json",),
    "measure": ("--json",),
    "accuracy": ("--json", "--each", "--rows"),
    "calibrate": ("--json",),
    "experiment": ("--json",),
}
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
    "--plot": ("out.svg", "x/out.svg", "out.png"),
    "--smtlib": ("queries", "/dev/null"),
    "--replay-script": ("replay.py", "/nowhere/r.py"),
    "--certificate": ("c.json", "/nowhere/c.json"),
    "--backend": ("gloo", "simulator", "fake"),
    "--level": ("0", "1", "2", "3"),
}


@dataclass(slots=True)
class Case:
    """One command line, the files that lie in its folder, and the kind of input that it is about."""

    category: str
    argv: list[str]
    files: dict[str, bytes] = field(default_factory=dict)


@cache
def _texts(pattern: str) -> tuple[str, ...]:
    return tuple(p.read_text(encoding="utf-8") for p in sorted(ROOT.glob(pattern)))


def mutated(text: str, rng: random.Random) -> str:
    """A text with a few things wrong."""
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 6))):
        text = rng.choice(_MUTATIONS)(text, rng)
    return text


def _spot(text: str, rng: random.Random) -> int:
    return rng.randrange(len(text) + 1)


def _replaced(pattern: str, choices: Callable[[str], tuple[str, ...]]) -> Callable[[str, random.Random], str]:
    """A mutation that puts something else in the place of one match."""

    def mutate(text: str, rng: random.Random) -> str:
        found = list(re.finditer(pattern, text))
        if not found:
            return text
        one = rng.choice(found)
        return text[: one.start()] + rng.choice(choices(text)) + text[one.end() :]

    return mutate


def _lines(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True) or [""]
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, lines[other])
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case _:
            lines = lines[: at + 1]
    return "".join(lines)


def _nested(text: str, rng: random.Random) -> str:
    opened, closed = rng.choice(("()", "[]", "{}", "''"))
    depth, at = rng.choice((1, 5, 200, 2000)), _spot(text, rng)
    return text[:at] + opened * depth + closed * depth + text[at:]


def _inserted(text: str, rng: random.Random) -> str:
    at = _spot(text, rng)
    return text[:at] + rng.choice((*WORDS, *"()[]{}=,.:*#\"'\\\t\n\r\0\ufeff", "**", "dp**" * 100 + "dp")) + text[at:]


def _cut(text: str, rng: random.Random) -> str:
    start = _spot(text, rng)
    return text[:start] + text[start + rng.choice((1, 1, 3, 20, 200)) :]


_MUTATIONS: tuple[Callable[[str, random.Random], str], ...] = (
    _replaced(r"\d[\d.eE]*", lambda _: NUMBERS),
    _replaced(r"\b\d+\b", lambda _: ("2", "3", "4", "16", "128")),
    _replaced(r"[A-Za-z_]\w*", lambda text: tuple(re.findall(r"[A-Za-z_]\w*", text)) or ("x",)),
    _replaced(r"[A-Za-z_]\w*", lambda _: WORDS),
    _replaced(r"(?<=[=:])[^\n,}\])]+", lambda _: (*NUMBERS[:16], "true", "[]", "{}", '"x"', "[1, 2]", "{ a = 1 }", "null")),
    _lines,
    _lines,
    _nested,
    _inserted,
    _cut,
)


# Categories. Each draws a case.


@cache
def _strategies() -> tuple[str, ...]:
    from placeproof.strategies import names

    return tuple(names())


def strategy_text(rng: random.Random) -> str:
    """An expression of the language of strategies, most often a good one."""
    parts = []
    for name in rng.sample(_strategies(), rng.choice((1, 1, 2, 3))):
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


def _option(rng: random.Random) -> Case:
    command = rng.choice(tuple(c for c, options in OPTIONS.items() if options))
    argv = [command, strategy_text(rng)] + ([strategy_text(rng)] if command == "compare" else [])
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = rng.choice(OPTIONS[command])
        usual = rng.choice(VALUES.get(name, WORDS))
        argv += [name, rng.choice((usual, usual, mutated(usual, rng), rng.choice(NUMBERS), rng.choice(WORDS)))]
    return Case("option", argv)


def _argv(rng: random.Random) -> Case:
    """Options of every command, in any combination."""
    command = rng.choice(tuple(OPTIONS))
    argv = [command, *rng.choices((*WORDS, "zero3", "record", "all", "PP105", "strategies", "ddp"), k=rng.choice((0, 1, 1, 2)))]
    for _ in range(rng.randrange(5)):
        name = rng.choice((*FLAGS.get(command, ()), *OPTIONS[command], *rng.choice(tuple(OPTIONS.values())), "--help", "--nonsense"))
        argv += [name] if rng.random() < 0.3 else [name, rng.choice((*VALUES.get(name, ("x",)), *WORDS))]
    files = {"t.py": _THEOREM.encode()}  # without it, our own suite is checked, for minutes
    return Case("argv", [*argv, "t.py", "--jobs", "1"], files) if command == "check" else Case("argv", argv)


def _program(rng: random.Random) -> Case:
    text = mutated(rng.choice(_texts("tests/bugs/*.step")), rng)
    return Case("program", [rng.choice(("prove", "derive")), "a.step"], {"a.step": text.encode(errors="surrogateescape")})


def _block(rng: random.Random) -> Case:
    text = mutated(rng.choice(_texts("placeproof/blocks/*.step") + _texts("placeproof/models/blocks/*.step")), rng)
    return Case("block", [rng.choice(("prove", "derive")), "a.step"], {"a.step": text.encode(errors="surrogateescape")})


def _of_file(category: str, pattern: str, name: str, *commands: list[str]) -> Callable[[random.Random], Case]:
    """Cases that give a mutated file of a kind to one of some commands."""

    def draw(rng: random.Random) -> Case:
        text = mutated(rng.choice(_texts(pattern)), rng)
        return Case(category, list(rng.choice(commands)), {name: text.encode(errors="surrogateescape")})

    return draw


def _theorem(rng: random.Random) -> Case:
    text = mutated(_THEOREM, rng)
    return Case(
        "theorem", ["check", "t.py", "--jobs", "1", "--no-cache", "--no-second-opinion"], {"t.py": text.encode(errors="surrogateescape")}
    )


def _counterexample(rng: random.Random) -> Case:
    text = mutated(_refuted_model() if rng.random() < 0.2 else _refuted(), rng)
    return Case("counterexample", ["replay", "c.json", "--backend", "simulator"], {"c.json": text.encode(errors="surrogateescape")})


def _certificate(rng: random.Random) -> Case:
    text = mutated(_proved_model() if rng.random() < 0.2 else _proved(), rng)
    return Case("certificate", ["verify", "c.json"], {"c.json": text.encode(errors="surrogateescape")})


@cache
def _proved() -> str:
    from placeproof.programs import read
    from placeproof.semantics.encode import Options
    from placeproof.semantics.judge.certificate import certificate
    from placeproof.semantics.resolve import resolve

    text = "mesh(dp)\nG = all_reduce(backward(parameters), dp, op=mean)\nparameters, optimizer = update(parameters, optimizer, G)\n"
    return json.dumps(certificate(resolve(read(text)), Options()))


@cache
def _linked(old: str = "", new: str = "") -> JudgedModel:
    """A model without attention, whose proofs are short, with a line changed."""
    from placeproof.models import load
    from placeproof.semantics.judge.model import judge_linked
    from placeproof.semantics.linked import link, read_linked, render_linked
    from placeproof.strategies import parse_strategy

    text = render_linked(link(load("llama3-8b"), parse_strategy("tp")))
    text = "def ".join(part for part in text.split("def ") if not part.startswith("attention"))
    return judge_linked(read_linked(text.replace("    n = rms_norm(x)\n    x = attention_flash(x, n)\n", "").replace(old, new)))


@cache
def _proved_model() -> str:
    from placeproof.semantics.judge.envelope import envelope

    return json.dumps(envelope(_linked()))


@cache
def _refuted_model() -> str:
    from placeproof.report import renderers
    from placeproof.report.proof.model import document

    return renderers.json(document(_linked("x + all_reduce(contract(a, w2, over=ffn), tp)", "x + contract(a, w2, over=ffn)")))


@cache
def _refuted() -> str:
    from placeproof.programs import read
    from placeproof.report.proof.data import judgement
    from placeproof.semantics.judge.verdict import judge

    text = "mesh(dp)\ngradients = all_reduce(backward(parameters), dp)\nparameters, optimizer = update(parameters, optimizer, gradients)\n"
    return json.dumps(judgement("a.step", judge(read(text))))


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


_TRANSFORMER = "transformer(layers=2, hidden=32, heads=4, ffn=64, vocab=64, batch=4, tokens=16)"


def _shapes(rng: random.Random) -> Case:
    return Case("shapes", ["derive", "fsdp(4)", "--profile", "torch-2.13", "--shapes", mutated(_TRANSFORMER, rng)])


#: Measured steps of a small model.
_MEASURED = """strategy,model,overlap,L,s,b,m,ms
zero1(4) * pp(2),gpt3-1.3b,none,4,512,1,4,84
"zero1(cp) * cp(2, attention=ulysses) * accumulate",gpt3-1.3b,data,4,512,1,8,150.5
ddp(2) * accumulate,gpt3-1.3b,none,4,512,1,4,72
ddp(2) * accumulate,gpt3-1.3b,none,4,512,2,2,44
"""


def _steps(rng: random.Random) -> Case:
    text = mutated(_MEASURED, rng)
    argv = ["calibrate", "dgx-a100-80", "--from", "s.csv", *rng.choice(([], ["--held-out", "groups"], ["--held-out", "1"]))]
    return Case("steps", argv, {"s.csv": text.encode(errors="surrogateescape")})


#: Questions that cannot be asked: a sweep that can takes long.
_QUESTIONS = """cluster = "dgx-h100"
global_batch = 4
only = ["tp=1", "recompute=none"]
efficiency = 0.4
[grid]
model = ["gpt3-125m", "llama3-8b"]
devices = [2, 4]
why = [[], ["ddp(3)"]]
[[question]]
model = "gpt3-125m"
devices = 7
top = 3
"""


def _sweep(rng: random.Random) -> Case:
    text = mutated(_QUESTIONS, rng)
    return Case("sweep", ["plan", "--sweep", "q.toml", "--jobs", "1"], {"q.toml": text.encode(errors="surrogateescape")})


def _shape_file(rng: random.Random) -> Case:
    text = mutated(_SHAPES, rng)
    files = {"s.toml": text.encode(errors="surrogateescape")}
    return Case("shape-file", ["derive", "fsdp(4)", "--profile", "torch-2.13", "--shapes", "s.toml"], files)


_SHAPES = """name = "tiny"
[dims]
hidden = 8
[[unit]]
name = "root"
[unit.parameters]
"head.weight" = [16, 8]
[unit.split]
"head.weight" = 0
[[unit]]
name = "layers.0"
blocks = ["norm"]
[unit.parameters]
"w.weight" = [8, 8]
"""

_THEOREM = '''"""Sizes and counts."""
from placeproof.theory import Degree, Integer, Positive, Proved, Refuted, derived, holds, theorem, trains, without_call


@theorem(expect=Proved(), cite="rajbhandari2020zero")
def shard_is_at_most_the_whole(s: Positive["byte"], n: Degree):
    """A shard is no larger than what it is a part of."""
    return s / n <= s


shard_is_at_most_the_whole.control("strictly smaller", lambda s, n: s / n < s, refuted_at={"n": 1})


@theorem(expect=Refuted(witness={"n": 9}, because="there are more devices than eight"), cite="rajbhandari2020zero")
def degree_is_at_most_eight(n: Degree):
    """No degree exceeds eight."""
    return n**2 <= 64


degree_is_at_most_eight.control("given so", lambda n: holds(n * n <= 64, given=[n <= 8]), proved=True)
'''

CATEGORIES: dict[str, Callable[[random.Random], Case]] = {
    "strategy": _strategy,
    "set": _values,
    "option": _option,
    "argv": _argv,
    "program": _program,
    "block": _block,
    "strategy-file": _of_file(
        "strategy-file", "placeproof/strategies/catalogue/*.toml", "a.toml", ["derive", "a.toml"], ["explain", "a.toml"]
    ),
    "cluster": _of_file(
        "cluster",
        "placeproof/clusters/presets/*.toml",
        "c.toml",
        ["derive", "fsdp(8)", "--model", "llama3-8b", "--set", "b=1", "--cluster", "c.toml"],
    ),
    "schedule": _of_file(
        "schedule", "placeproof/schedules/catalogue/*.toml", "s.toml", ["derive", 'pp(4, schedule="s.toml")'], ["explain", "s.toml"]
    ),
    "model": _of_file("model", "placeproof/models/presets/*.toml", "m.toml", ["derive", "fsdp(8)", "--model", "m.toml", "--set", "b=1"]),
    "family": _of_file("family", "placeproof/models/families/*.toml", "m.toml", ["derive", "fsdp(8)", "--model", "m.toml"]),
    "deepspeed": _of_file(
        "deepspeed", "tests/configs/deepspeed/*_*.json", "a.json", ["derive", "a.json", "--world", "64"], ["prove", "a.json"]
    ),
    "accelerate": _of_file(
        "accelerate", "tests/configs/accelerate/*.yaml", "a.yaml", ["derive", "a.yaml"], ["prove", "a.yaml", "--world", "8"]
    ),
    "transformers": _of_file(
        "transformers", "tests/configs/transformers/*.yaml", "a.yaml", ["derive", "a.yaml"], ["prove", "a.yaml", "--world", "8"]
    ),
    "llamafactory": _of_file("llamafactory", "tests/configs/llamafactory/*.yaml", "a.yaml", ["derive", "a.yaml", "--world", "8"]),
    "axolotl": _of_file("axolotl", "tests/configs/axolotl/*.y*ml", "a.yaml", ["derive", "a.yaml", "--world", "16"]),
    "automodel": _of_file(
        "automodel", "tests/configs/automodel/*.yaml", "a.yaml", ["derive", "a.yaml"], ["derive", "a.yaml", "--world", "16"]
    ),
    "maxtext": _of_file("maxtext", "tests/configs/maxtext/*.yml", "a.yml", ["derive", "a.yml"], ["derive", "a.yml", "--world", "64"]),
    "nemorl": _of_file(
        "nemorl", "tests/configs/nemorl/made_[gs]*.yaml", "a.yaml", ["derive", "a.yaml"], ["prove", "a.yaml", "--world", "8"]
    ),
    "peft": _of_file("peft", "tests/configs/peft/*.json", "a.json", ["derive", "a.json"], ["prove", "a.json"]),
    "verl": _of_file("verl", "tests/configs/verl/*.*", "a.sh", ["derive", "a.sh", "--from", "verl"], ["derive", "a.sh", "--world", "16"]),
    "torchtitan": _of_file("torchtitan", "tests/configs/torchtitan/*.toml", "a.toml", ["derive", "a.toml", "--from", "torchtitan"]),
    "registry": _of_file(
        "registry",
        "tests/configs/torchtitan/registry/made.txt",
        "a.py",
        ["derive", "a.py:llama3_8b"],
        ["derive", "a.py:qwen3_14b", "--world", "8"],
    ),
    "recipe": _of_file("recipe", "tests/configs/nemo/*.txt", "a.py", ["derive", "a.py:recipe"], ["derive", "a.py:recipe", "--world", "8"]),
    "megatron": _of_file("megatron", "tests/configs/megatron/*.args", "a.args", ["derive", "a.args", "--world", "64"]),
    "huggingface": _of_file(
        "huggingface",
        "tests/configs/huggingface/[!er]*.json",
        "config.json",
        ["derive", "fsdp(8)", "--model", "config.json", "--set", "b=1"],
        ["derive", "fsdp(8)", "--profile", "torch-2.13", "--shapes", "config.json"],
    ),
    "theorem": _theorem,
    "counterexample": _counterexample,
    "certificate": _certificate,
    "bytes": _bytes,
    "name": _name,
    "shapes": _shapes,
    "shape-file": _shape_file,
    "steps": _steps,
    "sweep": _sweep,
}


def draw(seed: int, number: int, only: str | None = None) -> Case:
    """The case of a number: categories take turns, so that each gets its share."""
    names = tuple(CATEGORIES)
    category = only or names[number % len(names)]
    return CATEGORIES[category](random.Random(f"{seed} {number} {category}"))
