"""Training scripts of frameworks: each case runs as processes, and is recorded; what is said of it is held against what it did.

Writes ``frameworks.json``: when, with which versions, and what came out. The exit code is 1 with a verdict that is false, and with a case
that is not recorded though it should be, or the other way round. ``README.md`` says how the environment is made.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import tempfile
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from placeproof.cli.main import run as command  # noqa: E402
from placeproof.measure.processes import Outcome, message, run  # noqa: E402

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
#: How far from what one process trains parameters may be, relative to how far the step moves them: float32 rounds.
SAME, OTHER = 1e-3, 1e-2
#: Seconds that a case may take to train, and to be recorded.
TRAINING, RECORDING = 300, 900
VERDICTS = {0: "proved", 1: "refuted", 3: "unknown", 4: "unknown"}
Edits = tuple[tuple[str, str], ...]
Parameters = dict[str, list[float]]


@dataclass(frozen=True)
class Case:
    """A script of FOLDER as it is set up, and a mistake in it, if any; ``said``: what placeproof has to say of it."""

    name: str
    script: str
    setup: Edits = ()
    mistake: Edits = ()
    said: str = "proved"

    def write(self, folder: Path, *, right: bool = False) -> Path:
        """The script as it is run. Raises ValueError for an edit of what is not there."""
        text = (FOLDER / f"{self.script}.py").read_text(encoding="utf-8")
        for old, new in (*self.setup, *(() if right else self.mistake)):
            if old not in text:
                raise ValueError(f"{self.name}: {self.script}.py has no `{old}`")
            text = text.replace(old, new)
        path = folder / f"{self.script}{'_right' if right else ''}.py"
        path.write_text(text, encoding="utf-8")
        return path


def _with(script: str, name: str, setup: Edits, **mistakes: tuple[str, str] | tuple[str, str, str]) -> list[Case]:
    """A right script, and others with one mistake each: an edit, and what is said of it, "refuted" unless it is told."""
    wrong = [Case(f"{name}: {k.replace('_', ' ')}", script, setup, ((m[0], m[1]),), (*m, "refuted")[2]) for k, m in mistakes.items()]
    return [Case(name, script, setup), *wrong]


_SAME_DATA = (".chunk(world)[rank]", ".chunk(world)[0]")
_LORA = (("LORA, MICRO = False, 1", "LORA, MICRO = True, 1"),)
_MEAN_OF_MEANS = ("average_tokens_across_devices=True", "average_tokens_across_devices=False")
_SAME_LOADER = (
    "    trainer.train()\n",
    "    loader = trainer.get_train_dataloader\n    trainer.accelerator.prepare = (lambda own: lambda *p, **o: p[0] if isinstance(p[0], "
    "torch.utils.data.DataLoader) else own(*p, **o))(trainer.accelerator.prepare)\n    trainer.train()\n",
)


def _zero(stage: int, micro: int = 1) -> Edits:
    return (("STAGE, CLIP, MICRO = 0, 0.0, 1", f"STAGE, CLIP, MICRO = {stage}, 0.0, {micro}"),)


_SUMMED = ("(engine(x), y)", "(engine(x), y) * WORLD")
_UNDIVIDED = (" / MICRO).backward()", ").backward()")
_TOKENS_OF_A_RANK = ("WORLD = 2\n", "from torchtitan.distributed import utils\n\nutils.dist_sum_tensor = lambda x, mesh: x\nWORLD = 2\n")


def _around(sharded: bool, compiled: bool, checkpoint: str | None) -> Edits:
    return (("CHECKPOINT = True, False, None", f"CHECKPOINT = {sharded}, {compiled}, {checkpoint!r}"),)


CASES = [
    *_with("sft", "TRL SFT", (), mean_of_means=_MEAN_OF_MEANS, same_samples=_SAME_LOADER),
    *_with("sft", "TRL SFT, accumulated", (("False, 1", "False, 2"),), mean_of_means=_MEAN_OF_MEANS),
    *_with("sft", "TRL SFT, LoRA", _LORA, mean_of_means=_MEAN_OF_MEANS),
    *_with("zero", "DeepSpeed, stage 0", _zero(0), same_samples=_SAME_DATA, summed=_SUMMED),
    *_with("zero", "DeepSpeed, stage 1", _zero(1, 2), same_samples=_SAME_DATA, divided_twice=("(engine(x), y)", "(engine(x), y) / MICRO")),
    *_with("zero", "DeepSpeed, stage 2", _zero(2), same_samples=_SAME_DATA, summed=_SUMMED),
    *_with("zero", "DeepSpeed, stage 3", _zero(3), same_samples=_SAME_DATA, summed=_SUMMED),
    *_with(
        "megatron",
        "Megatron-core",
        (),
        not_reduced=("finalize_model_grads([net])", "pass"),
        not_divided=_UNDIVIDED,
        same_samples=_SAME_DATA,
    ),
    *_with("megatron", "Megatron-core, split", (("TP, MICRO = 1, 2", "TP, MICRO = 2, 2"),), not_divided=_UNDIVIDED),
    *_with("titan", "torchtitan", (), tokens_of_a_rank=_TOKENS_OF_A_RANK, same_samples=_SAME_DATA),
    *_with("titan", "torchtitan, accumulated", (("MICRO = 1", "MICRO = 2"),)),
    *_with("sharded", "FSDP1", (), same_samples=_SAME_DATA, summed=("(net(x), y)", '(net(x), y, reduction="sum")')),
    *_with("sharded", "FSDP1, compiled", _around(True, True, None)),
    *_with("sharded", "FSDP1, checkpointed", _around(True, False, "not reentrant")),
    *_with("sharded", "DDP, compiled", _around(False, True, None), same_samples=_SAME_DATA),
    *_with("sharded", "DDP, checkpointed", _around(False, False, "not reentrant"), same_samples=_SAME_DATA),
    *_with("sharded", "DDP, checkpointed reentrantly", _around(False, False, "reentrant"), same_samples=_SAME_DATA),
]


def _trained(script: Path, world: int) -> list[Parameters]:
    """The parameters that each rank ends with; those before the step come first."""

    def train(rank: int, size: int, folder: Path) -> Parameters:
        import torch

        torch.set_num_threads(1)
        os.environ |= {"RANK": f"{rank}", "LOCAL_RANK": f"{rank}", "WORLD_SIZE": f"{size}", "LOCAL_WORLD_SIZE": f"{size}"}
        os.chdir(folder)
        torch.distributed.init_process_group = lambda *_, **__: None  # there is one
        module = runpy.run_path(str(script), run_name="script")
        model = module["train"]()
        named = module["whole"](model) if "whole" in module else dict(model.named_parameters())
        parts = {n: p.full_tensor() if hasattr(p, "full_tensor") else p for n, p in named.items()}
        return {n: p.detach().double().flatten().tolist() for n, p in parts.items()}

    outcomes: list[Outcome[Parameters]] = run(world, train, timeout=TRAINING)
    if any(o.kind != "ok" for o in outcomes):
        raise RuntimeError(f"{message(outcomes)}\n{outcomes[0].error}\n{outcomes[0].output[-3000:]}")
    return [o.value for o in outcomes if o.value is not None]


def truth(case: Case, folder: Path) -> str:
    """ "right": all ranks end with what the script without its mistake ends with as one process; "wrong": one of them does not."""
    (alone,) = _trained(case.write(folder, right=True), 1)
    ranks = _trained(case.write(folder), 2)
    size = max(abs(x) for values in alone.values() for x in values)
    worst = max(abs(x - y) / size for r in ranks for n, values in alone.items() for x, y in zip(values, r[n], strict=True))
    assert worst < SAME / 100 or worst > OTHER / 100, f"{case.name} ends {worst:.1e} from one process: neither the same nor another"
    return "right" if worst < SAME / 100 else "wrong"


def verdict(case: Case, folder: Path) -> tuple[str, str]:
    """ "proved", "refuted", "unknown" or "refused", and the line that says why; "broken" where placeproof ends in any other way."""
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


def _row(case: Case) -> tuple[str, str, str]:
    with tempfile.TemporaryDirectory(prefix="frameworks-") as name:
        folder = Path(name)
        return truth(case, folder), *verdict(case, folder)


def _fault(case: Case, ran: str, said: str) -> str:
    if (said, ran) in {("proved", "wrong"), ("refuted", "right")}:
        return f"WRONG {said.upper()}"
    return "" if said == case.said and ran == ("wrong" if case.mistake else "right") else "is not what was expected"


def main() -> int:
    """Run the cases; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    only = parser.parse_args().only
    versions = {package: version(package).partition("+")[0] for package in PACKAGES}
    print(", ".join(f"{package} {number}" for package, number in versions.items()))
    other = [f"{package} {number}" for package, number in PACKAGES.items() if versions[package] != number]
    if other:
        sys.exit(f"this is about other versions: {', '.join(other)}")
    rows, faults = {}, []
    for case in (c for c in CASES if only in c.name):
        ran, said, reason = rows[case.name] = _row(case)
        fault = _fault(case, ran, said)
        faults += [f"{case.name}: {fault}"] if fault else []
        print(f"{case.name:45} {ran:6} {said:8} {fault} {reason}".rstrip(), flush=True)
    print(f"{len(rows)} cases", *faults, sep="\n")
    if not only:
        head = json.dumps({"date": date.today().isoformat(), **versions})[:-1]
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row, ensure_ascii=False)}" for name, row in rows.items())
        RESULTS.write_text(f'{head}, "cases": {{\n{lines}\n}}}}\n', encoding="utf-8")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
