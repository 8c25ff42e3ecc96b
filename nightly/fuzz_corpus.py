"""Files for `fuzz.py`: of each kind that placeproof reads, the good ones that lie in the repository, and the commands that read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placeproof.semantics.judge.model import JudgedModel

ROOT = Path(__file__).parent.parent
_WORLD = ("--world", "64")
_MODEL = ("derive", "fsdp(8)", "--set", "b=1", "--model")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file. ``patterns``: where good ones lie in the repository, or none, and then ``texts`` are good ones. ``file``: its name
    in a case, which is a part of ``commands``.

    ``ours``: the format is our own, so that whatever is not understood has to be refused; elsewhere it has to be named.
    ``chosen``: names of tables whose keys their author chooses. ``others``: further files that lie beside it.
    """

    file: str
    commands: tuple[tuple[str, ...], ...]
    patterns: tuple[str, ...] = ()
    made: str = ""
    ours: bool = False
    chosen: tuple[str, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)

    def texts(self) -> tuple[str, ...]:
        """Good files."""
        return texts(self.patterns) if self.patterns else (self.made if "\n" in self.made else _MADE[self.made](),)


@cache
def texts(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The files that match, in the order of their names."""
    return tuple(path.read_text(encoding="utf-8") for pattern in patterns for path in sorted(ROOT.glob(pattern)))


def _configuration(file: str, *patterns: str, commands: tuple[tuple[str, ...], ...] = ()) -> Kind:
    """A configuration of a training framework: derived and proved, also on another number of devices."""
    usual = (("derive", file), ("derive", file, *_WORLD), ("prove", file, "--world", "8"), ("derive", file, "--json", "--world", "16"))
    return Kind(file, commands or usual, patterns)


#: Measured steps of a small model.
_MEASURED = """strategy,model,overlap,L,s,b,m,ms
zero1(4) * pp(2),gpt3-1.3b,none,4,512,1,4,84
"zero1(cp) * cp(2, attention=ulysses) * accumulate",gpt3-1.3b,data,4,512,1,8,150.5
ddp(2) * accumulate,gpt3-1.3b,none,4,512,1,4,72
ddp(2) * accumulate,gpt3-1.3b,none,4,512,2,2,44
"""
#: Few questions, and one of no answer: a larger sweep takes long.
_QUESTIONS = """cluster = "dgx-h100"
global_batch = 4
only = ["tp=1", "recompute=none"]
efficiency = 0.4
[grid]
model = ["gpt3-125m"]
devices = [2]
why = [[], ["ddp(3)"]]
[[question]]
model = "gpt3-125m"
devices = 7
top = 3
"""
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
THEOREM = '''"""Sizes and counts."""
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
#: What theorems were locked as.
_LOCK = """{
  "schema": "placeproof.verdicts/1",
  "solvers": ["z3 5.4.1", "cvc5 1.4.2"],
  "verdicts": {
    "t.degree_is_at_most_eight": {"verdict": "refuted", "evidence": "witness", "hypotheses": [], "witness": {"n": "9"}},
    "t.shard_is_at_most_the_whole": {"verdict": "proved", "evidence": "certificate", "hypotheses": ["s > 0", "n >= 1"], "witness": {}}
  }
}
"""
_STEP = "mesh(dp)\ngradients = all_reduce(backward(parameters), dp)\nparameters, optimizer = update(parameters, optimizer, gradients)\n"


@cache
def _proved() -> str:
    from placeproof.programs import read
    from placeproof.semantics.encode import Options
    from placeproof.semantics.judge.certificate import certificate
    from placeproof.semantics.resolve import resolve

    return json.dumps(
        certificate(resolve(read(_STEP.replace("dp)\n", "dp, op=mean)\n").replace("mesh(dp, op=mean)", "mesh(dp)"))), Options())
    )


@cache
def _linked(old: str = "", new: str = "") -> JudgedModel:
    """A model without attention, whose proofs are short, with a line changed."""
    from placeproof.semantics.judge.model import judge_linked
    from placeproof.semantics.linked import read_linked

    return judge_linked(read_linked(_linked_text().replace(old, new)))


@cache
def _linked_text() -> str:
    from placeproof.models import load
    from placeproof.semantics.linked import link, render_linked
    from placeproof.strategies import parse_strategy

    text = render_linked(link(load("llama3-8b"), parse_strategy("tp")))
    text = "def ".join(part for part in text.split("def ") if not part.startswith("attention"))
    return text.replace("    n = rms_norm(x)\n    x = attention_flash(x, n)\n", "")


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

    return json.dumps(judgement("a.step", judge(read(_STEP))))


_MADE = {"proved": _proved, "proved model": _proved_model, "refuted": _refuted, "refuted model": _refuted_model, "linked": _linked_text}
_CHECK = ("check", "t.py", "--jobs", "1", "--no-second-opinion")
_PROGRAMS = ("tests/bugs/*.step", "tests/programs/*/*.step", "placeproof/strategies/not_equivalent/*.step")
_BLOCKS = ("placeproof/blocks/*.step", "placeproof/models/blocks/*.step", "placeproof/profiles/*/*.step")

KINDS: dict[str, Kind] = {
    "program": Kind("a.step", (("prove", "a.step"), ("derive", "a.step")), _PROGRAMS, ours=True),
    "block": Kind("a.step", (("prove", "a.step"), ("derive", "a.step")), _BLOCKS, ours=True),
    "linked": Kind("a.step", (("derive", "a.step"), ("prove", "a.step")), made="linked", ours=True),
    "strategy-file": Kind("a.toml", (("derive", "a.toml"), ("explain", "a.toml")), ("placeproof/strategies/catalogue/*.toml",), ours=True),
    "cluster": Kind("c.toml", ((*_MODEL, "llama3-8b", "--cluster", "c.toml"),), ("placeproof/clusters/presets/*.toml",), ours=True),
    "schedule": Kind(
        "s.toml", (("derive", 'pp(4, schedule="s.toml")'), ("explain", "s.toml")), ("placeproof/schedules/catalogue/*.toml",), ours=True
    ),
    "model": Kind("m.toml", ((*_MODEL, "m.toml"),), ("placeproof/models/presets/*.toml",), ours=True),
    "family": Kind("m.toml", ((*_MODEL, "m.toml"),), ("placeproof/models/families/*.toml",), ours=True),
    "implementation": Kind(
        "i.toml", ((*_MODEL, "gpt3-125m", "--implementation", "i.toml"),), ("placeproof/implementations/*.toml",), ours=True
    ),
    "shape-file": Kind(
        "s.toml",
        (("derive", "fsdp(4)", "--profile", "torch-2.13", "--shapes", "s.toml"),),
        made=_SHAPES,
        ours=True,
        chosen=("dims", "parameters", "split"),
    ),
    "sweep": Kind("q.toml", (("plan", "--sweep", "q.toml", "--jobs", "1"),), made=_QUESTIONS, ours=True),
    "steps": Kind(
        "s.csv",
        tuple(("calibrate", "dgx-a100-80", "--from", "s.csv", *more) for more in ((), ("--held-out", "groups"), ("--held-out", "1"))),
        made=_MEASURED,
        ours=True,
    ),
    "theorem": Kind("t.py", ((*_CHECK, "--no-cache"),), made=THEOREM, ours=True),
    "lock": Kind("verdicts.lock.json", (_CHECK,), made=_LOCK, ours=True, others={"t.py": THEOREM}),
    "counterexample": Kind("c.json", (("replay", "c.json", "--backend", "simulator"),), made="refuted", ours=True),
    "counterexample-model": Kind("c.json", (("replay", "c.json", "--backend", "simulator"),), made="refuted model", ours=True),
    "certificate": Kind("c.json", (("verify", "c.json"),), made="proved", ours=True),
    "certificate-model": Kind("c.json", (("verify", "c.json"),), made="proved model", ours=True),
    "deepspeed": _configuration("a.json", "tests/configs/deepspeed/*_*.json"),
    "accelerate": _configuration("a.yaml", "tests/configs/accelerate/*.yaml"),
    "transformers": _configuration("a.yaml", "tests/configs/transformers/*.yaml"),
    "llamafactory": _configuration("a.yaml", "tests/configs/llamafactory/*.yaml"),
    "axolotl": _configuration("a.yaml", "tests/configs/axolotl/*.y*ml"),
    "automodel": _configuration("a.yaml", "tests/configs/automodel/*.yaml"),
    "maxtext": _configuration("a.yml", "tests/configs/maxtext/*.yml"),
    "nemorl": _configuration("a.yaml", "tests/configs/nemorl/made_[gs]*.yaml"),
    "peft": _configuration("a.json", "tests/configs/peft/*.json"),
    "verl": _configuration("a.sh", "tests/configs/verl/*.*", commands=(("derive", "a.sh", "--from", "verl"), ("derive", "a.sh", *_WORLD))),
    "torchtitan": _configuration("a.toml", "tests/configs/torchtitan/*.toml", commands=(("derive", "a.toml", "--from", "torchtitan"),)),
    "registry": _configuration(
        "a.py",
        "tests/configs/torchtitan/registry/made.txt",
        commands=(("derive", "a.py:llama3_8b"), ("derive", "a.py:qwen3_14b", "--world", "8")),
    ),
    "recipe": _configuration(
        "a.py", "tests/configs/nemo/*.txt", commands=(("derive", "a.py:recipe"), ("derive", "a.py:recipe", "--world", "8"))
    ),
    "megatron": _configuration("a.args", "tests/configs/megatron/*.args"),
    "huggingface": _configuration(
        "config.json",
        "tests/configs/huggingface/[!er]*.json",
        commands=((*_MODEL, "config.json"), ("derive", "fsdp(8)", "--profile", "torch-2.13", "--shapes", "config.json")),
    ),
}
