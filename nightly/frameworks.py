"""Training scripts of frameworks: each case runs as processes, and is recorded; what is said of it is held against what it did.

Writes ``frameworks.json``: when, with which versions, and what came out; what it says already of the same case and the same code is not run
again. The exit code is 1 with a verdict that is false, and with one that is not what the table says. ``README.md`` says how the environment
is made.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import tempfile
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from placeproof.cli.main import run as command  # noqa: E402
from placeproof.measure.processes import Outcome, launched, message, run  # noqa: E402

FOLDER = Path(__file__).parent / "framework_scripts"
RESULTS = Path(__file__).parent / "frameworks.json"
PACKAGES = {
    "torch": "2.13.0",
    "transformers": "5.23.0",
    "accelerate": "1.15.0",
    "trl": "1.16.0",
    "peft": "0.21.2",
    "deepspeed": "0.19.8",
    "megatron-core": "0.16.1",
    "torchtitan": "0.3.0",
}
#: How far from what one process trains parameters may be, and how far they have to be else, relative to how far the step moves them:
#: float32 rounds.
SAME, OTHER = 1e-3, 1e-2
#: Seconds that a case may take to train, and to be recorded.
TRAINING, RECORDING = 300, 900
VERDICTS = {0: "proved", 1: "refuted", 3: "unknown", 4: "proved except"}
Edits = tuple[tuple[str, str], ...]
Parameters = dict[str, list[float]]
#: What a case does, what is said of it, why, and of what that is.
Row = list[str]


@dataclass(frozen=True)
class Case:
    """A script of FOLDER as it is set up, and a mistake in it, if any; ``said``: what placeproof has to say of it."""

    name: str
    script: str
    setup: Edits = ()
    mistake: Edits = ()
    said: str = "proved"

    def write(self, folder: Path) -> Path:
        """The script as it is run. Raises ValueError for an edit of what is not there."""
        text = (FOLDER / f"{self.script}.py").read_text(encoding="utf-8")
        for old, new in (*self.setup, *self.mistake):
            if old not in text:
                raise ValueError(f"{self.name}: {self.script}.py has no `{old}`")
            text = text.replace(old, new)
        path = folder / f"{self.script}.py"
        path.write_text(text, encoding="utf-8")
        return path


def _with(script: str, name: str, setup: Edits, said: str = "proved", **mistakes: tuple[str, str] | tuple[str, str, str]) -> list[Case]:
    """A right script, with what is ``said`` of it, and others with one mistake each: an edit, and what is said of that, unless it is told:
    "refuted", or what is said of the right one, where that is not proved."""
    usual = "refuted" if said == "proved" else said
    wrong = [Case(f"{name}: {k.replace('_', ' ')}", script, setup, ((m[0], m[1]),), (*m, usual)[2]) for k, m in mistakes.items()]
    return [Case(name, script, setup, said=said), *wrong]


_SAME_DATA = (".chunk(world)[rank]", ".chunk(world)[0]")
_SAME_IN_UNITS = (*_SAME_DATA, "refused")


def _set(line: str, **values: object) -> Edits:
    """A line that sets names, with other values of some of them."""
    names, _, before = line.partition(" = ")
    every = dict(zip(names.split(", "), before.split(", "), strict=True)) | {name: repr(v) for name, v in values.items()}
    return ((line, f"{names} = {', '.join(every.values())}"),)


def _around(sharded: bool, compiled: bool, checkpoint: str | None) -> Edits:
    return _set("SHARDED, COMPILED, CHECKPOINT = True, False, None", SHARDED=sharded, COMPILED=compiled, CHECKPOINT=checkpoint)


def _sft(**values: object) -> Edits:
    return _set("LORA, MICRO = False, 1", **values)


_MEAN_OF_MEANS = ("average_tokens_across_devices=True", "average_tokens_across_devices=False")
_SAME_LOADER = (
    "    trainer.train()\n",
    "    loader = trainer.get_train_dataloader\n    trainer.accelerator.prepare = (lambda own: lambda *p, **o: p[0] if isinstance(p[0], "
    "torch.utils.data.DataLoader) else own(*p, **o))(trainer.accelerator.prepare)\n    trainer.train()\n",
)


def _zero(stage: int, **values: object) -> Edits:
    return _set("STAGE, CLIP, MICRO = 0, 0.0, 1", STAGE=stage, **values)


_SUMMED = ("(engine(x), y)", "(engine(x), y) * dist.get_world_size()")
_TWICE = ("(engine(x), y)", "(engine(x), y) / MICRO", "refused")  # it may be a constant of the loss
_NORM_OF_A_RANK = (
    "    dist.init_process_group",
    "    own = deepspeed.comm.all_reduce\n    deepspeed.comm.all_reduce = lambda x, *p, **o: own(x, *p, **o) if x.numel() > 1 else None\n"
    "    dist.init_process_group",
)
_CLIP = 0.125


def _megatron(**values: object) -> Edits:
    how = _set("TP, MICRO, SHARDED, CLIP = 1, 3, False, 0.0", **{k: v for k, v in values.items() if k not in ("PER_TOKEN", "UNEQUAL")})
    what = _set("PER_TOKEN, UNEQUAL = False, False", **{k: v for k, v in values.items() if k in ("PER_TOKEN", "UNEQUAL")})
    return (*how, *what)


_NOT_FINISHED = ("finalize_model_grads_func=finalize_model_grads", "finalize_model_grads_func=lambda *_, **__: None")
_TOKENS_UNTOLD = (
    "finalize_model_grads_func=finalize_model_grads",
    "finalize_model_grads_func=lambda m, n, **o: finalize_model_grads(m, **o)",
)
_DIVIDED_BY_HAND = (
    "return total, mask.sum().int(),",
    "return total / mask.sum(), mask.sum().int(),",
    "refused",
)  # it may be made of samples
_TOKENS_OF_A_RANK = ("WORLD = 2\n", "from torchtitan.distributed import utils\n\nutils.dist_sum_tensor = lambda x, mesh: x\nWORLD = 2\n")

CASES = [
    *_with(
        "sharded", "FSDP1", (), same_samples=_SAME_IN_UNITS, summed=("(net(x), y)", '(net(x), y, reduction="sum")', "refused")
    ),  # may be meant
    *_with("sharded", "FSDP1, compiled", _around(True, True, None)),
    *_with("sharded", "FSDP1, checkpointed", _around(True, False, "not reentrant")),
    *_with("sharded", "DDP, compiled", _around(False, True, None), same_samples=_SAME_DATA),
    *_with("sharded", "DDP, checkpointed", _around(False, False, "not reentrant")),
    *_with("sharded", "DDP, checkpointed reentrantly", _around(False, False, "reentrant"), same_samples=_SAME_DATA),
    *_with("sft", "TRL SFT", (), mean_of_means=_MEAN_OF_MEANS, same_samples=_SAME_LOADER),
    *_with("sft", "TRL SFT, accumulated", _sft(MICRO=2), "proved except", mean_of_means=(*_MEAN_OF_MEANS, "refused")),
    *_with("sft", "TRL SFT, LoRA", _sft(LORA=True), mean_of_means=_MEAN_OF_MEANS),
    *_with("zero", "DeepSpeed, stage 0", _zero(0), "proved except", same_samples=(*_SAME_DATA, "refuted"), summed=(*_SUMMED, "refuted")),
    *_with("zero", "DeepSpeed, stage 1", _zero(1), same_samples=_SAME_DATA, summed=_SUMMED),
    *_with("zero", "DeepSpeed, stage 1, accumulated, clipped", _zero(1, MICRO=3, CLIP=_CLIP), "refused", norm_of_a_rank=_NORM_OF_A_RANK),
    *_with("zero", "DeepSpeed, stage 2", _zero(2), same_samples=_SAME_DATA, summed=_SUMMED),
    *_with("zero", "DeepSpeed, stage 2, accumulated", _zero(2, MICRO=3), divided_twice=_TWICE),
    *_with("zero", "DeepSpeed, stage 2, clipped", _zero(2, CLIP=_CLIP), "refused", norm_of_a_rank=_NORM_OF_A_RANK),
    *_with("zero", "DeepSpeed, stage 3", _zero(3), same_samples=_SAME_IN_UNITS, summed=_SUMMED),
    *_with("zero", "DeepSpeed, stage 3, accumulated", _zero(3, MICRO=3), "refused", divided_twice=_TWICE),
    *_with("zero", "DeepSpeed, stage 3, clipped", _zero(3, CLIP=_CLIP), norm_of_a_rank=_NORM_OF_A_RANK),
    *_with("megatron", "Megatron-core", _megatron(), not_reduced=_NOT_FINISHED, divided_twice=_DIVIDED_BY_HAND, same_samples=_SAME_DATA),
    *_with("megatron", "Megatron-core, clipped", _megatron(CLIP=_CLIP), "refused"),
    *_with("megatron", "Megatron-core, split", _megatron(TP=2), "proved except", divided_twice=_DIVIDED_BY_HAND),
    *_with(
        "megatron",
        "Megatron-core, distributed optimizer",
        _megatron(SHARDED=True),
        "proved except",
        not_reduced=(*_NOT_FINISHED, "refused"),
    ),
    *_with(
        "megatron",
        "Megatron-core, per token",
        _megatron(PER_TOKEN=True, UNEQUAL=True),
        tokens_untold=(*_TOKENS_UNTOLD, "refused"),  # a sum over samples may be meant
        mean_of_means=("PER_TOKEN, UNEQUAL = True", "PER_TOKEN, UNEQUAL = False"),
    ),
    *_with(
        "moe",
        "DeepSpeed, experts",
        (),
        "refused",
        same_samples=_SAME_DATA,
        summed=_SUMMED,
        clipped=("STAGE, CLIP = 0, 0.0", "STAGE, CLIP = 0, 0.01"),
    ),
    *_with("titan", "torchtitan", (), tokens_of_a_rank=_TOKENS_OF_A_RANK, same_samples=_SAME_IN_UNITS),
    *_with("titan", "torchtitan, accumulated", (("MICRO = 1", "MICRO = 2"),), tokens_of_a_rank=_TOKENS_OF_A_RANK),
]


def _trained(script: Path, world: int) -> list[Parameters]:
    """The parameters that each rank ends with."""

    def train(rank: int, size: int, folder: Path) -> Parameters:
        import torch

        torch.set_num_threads(1)
        os.environ |= launched(rank, size)
        os.chdir(folder)
        torch.distributed.init_process_group = lambda *_, **__: None  # there is one
        module = runpy.run_path(str(script), run_name="script")
        model = module["train"]()
        named = module["whole"](model) if "whole" in module else dict(model.named_parameters())
        parts = {n: p.full_tensor() if hasattr(p, "full_tensor") else p for n, p in named.items()}
        return {n: p.detach().double().flatten().tolist() for n, p in parts.items()}

    outcomes: list[Outcome[Parameters]] = run(world, train, timeout=TRAINING, collective_timeout=TRAINING / 5)
    if any(o.kind != "ok" for o in outcomes):
        raise RuntimeError(f"{message(outcomes)}\n{outcomes[0].error}\n{outcomes[0].output[-3000:]}")
    return [o.value for o in outcomes if o.value is not None]


@cache
def _alone(script: str, setup: Edits) -> tuple[Parameters, float]:
    """What a right script ends with as one process, and how far its step moves parameters at most."""
    case, ends = Case("one process", script, setup), list[Parameters]()
    with tempfile.TemporaryDirectory(prefix="frameworks-") as name:
        rate = next(line for line in (FOLDER / f"{script}.py").read_text(encoding="utf-8").splitlines() if line.startswith("RATE = "))
        for edits in (setup, (*setup, (rate, "RATE = 0.0"))):
            ends += _trained(replace(case, setup=edits).write(Path(name)), 1)
    return ends[0], _apart(*ends)


def _apart(first: Parameters, second: Parameters) -> float:
    return max(abs(x - y) for n, values in first.items() for x, y in zip(values, second[n], strict=True))


def truth(case: Case, folder: Path) -> str:
    """ "right": all ranks end with what the script without its mistake ends with as one process; "wrong": one of them does not."""
    alone, step = _alone(case.script, _of_one(case.setup))
    worst = max(_apart(alone, ended) for ended in _trained(case.write(folder), 2)) / step
    assert worst < SAME or worst > OTHER, f"{case.name} ends {worst:.1e} of a step from one process: neither the same nor another"
    return "right" if worst < SAME else "wrong"


def _of_one(setup: Edits) -> Edits:
    """A setup for one process: nothing is split."""
    return tuple((old, new.replace("TP, MICRO, SHARDED, CLIP = 2", "TP, MICRO, SHARDED, CLIP = 1")) for old, new in setup)


def verdict(case: Case, folder: Path) -> tuple[str, str]:
    """ "proved", "proved except", "refuted", "unknown" or "refused", and the line that says why; "broken" where it ends otherwise."""
    script = case.write(folder)

    def answer(rank: int, size: int, own: Path) -> str:
        os.chdir(folder)
        given = ["trace", "record", str(script), "-o", "recorded.step", "--backend", "gloo", "--timeout", f"{RECORDING // 3}"]
        if code := command(given):
            return "refused" if code == 2 else "broken"
        return VERDICTS.get(command(["prove", "recorded.step"]), "broken")

    (outcome,) = run(1, answer, timeout=RECORDING, init=False)
    reasons = [line for line in outcome.output.splitlines() if line.startswith("error")]
    return outcome.value or "broken", reasons[0] if reasons else "" if outcome.value else f"{outcome.error}\n{outcome.output[-3000:]}"


def _row(case: Case) -> Row:
    runpy.run_path(str(FOLDER / f"{case.script}.py"))  # what it imports, processes need not import once more
    with tempfile.TemporaryDirectory(prefix="frameworks-") as name:
        folder = Path(name)
        return [truth(case, folder), *verdict(case, folder), _digest(case)]


def _fault(case: Case, ran: str, said: str) -> str:
    if (said, ran) in {("proved", "wrong"), ("proved except", "wrong"), ("refuted", "right")}:
        return f"WRONG {said.upper()}"
    return "" if said == case.said and ran == ("wrong" if case.mistake else "right") else "is not what was expected"


def _digest(case: Case) -> str:
    """Of a case as it is run, and of placeproof: what a row of the record is about."""
    with tempfile.TemporaryDirectory(prefix="frameworks-") as name:
        return sha256(_own() + case.write(Path(name)).read_bytes()).hexdigest()[:16]


@cache
def _own() -> bytes:
    return b"".join(path.read_bytes() for path in sorted((ROOT / "placeproof").rglob("*.py")))


def _written(versions: dict[str, str], rows: dict[str, Row]) -> str:
    """The record: when, with which versions, and a line for each case."""
    head = json.dumps({"date": date.today().isoformat(), **versions})[:-1]
    lines = [f"  {json.dumps(case.name)}: {json.dumps(rows[case.name], ensure_ascii=False)}" for case in CASES if case.name in rows]
    return head + ', "cases": {\n' + ",\n".join(lines) + "\n}}\n"


def main() -> int:
    """Run the cases that the record does not have as they are now; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    only = parser.parse_args().only
    versions = {package: version(package).partition("+")[0] for package in PACKAGES}
    print(", ".join(f"{package} {number}" for package, number in versions.items()))
    other = [f"{package} {number}" for package, number in PACKAGES.items() if versions[package] != number]
    if other:
        sys.exit(f"this is about other versions: {', '.join(other)}")
    before: dict[str, Row] = json.loads(RESULTS.read_text(encoding="utf-8"))["cases"] if RESULTS.exists() else {}
    rows = {case.name: row for case in CASES if (row := before.get(case.name)) is not None and row[3] == _digest(case)}
    faults = list[str]()
    for case in (c for c in CASES if only in c.name):
        if case.name not in rows:
            rows[case.name] = _row(case)
            RESULTS.write_text(_written(versions, rows), encoding="utf-8")
        ran, said, reason, _ = rows[case.name]
        fault = _fault(case, ran, said)
        faults += [f"{case.name}: {fault}"] if fault else []
        print(f"{case.name:45} {ran:6} {said:8} {fault} {reason}".rstrip(), flush=True)
    print(f"{len(rows)} of {len(CASES)} cases, {sum(os.times()[:4]):.0f} s of computing", *faults, sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
