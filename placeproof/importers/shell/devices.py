"""How many devices a launcher starts a program on: options of launchers, and what a script asks SLURM for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod

from placeproof.importers.shell.values import Word, plain

_SHORT = {"N": "nodes", "n": "ntasks", "G": "gpus"}
TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch")


def allocated(text: str) -> dict[str, str] | None:
    """What the ``#SBATCH`` lines of a script ask for: those before its first command. None where there are none."""
    asked: dict[str, str] = {}
    lines = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        lines += [line[len("#SBATCH") :]] if re.match(r"#SBATCH\s", line) else []
    for line in lines:
        words = re.sub(r"\s#.*", "", line).split()
        for at, word in enumerate(words):
            match = re.fullmatch(r"--([\w-]+)(?:=(.*))?|-(\w)(.*)", word)
            if match is not None:
                name = match[1] or _SHORT.get(match[3], match[3])
                asked[name] = (match[2] if match[1] else match[4]) or (words[at + 1] if at + 1 < len(words) else "")
    return asked if lines else None


def variables(asked: Mapping[str, str] | None) -> dict[str, str]:
    """Variables that SLURM sets for what is asked for, as far as that decides them."""
    if asked is None:
        return {}
    nodes, tasks, devices = asked.get("nodes"), asked.get("ntasks-per-node"), _per_node(asked)
    texts = {"SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes, "SLURM_NTASKS_PER_NODE": tasks, "SLURM_GPUS_ON_NODE": devices}
    total = _times(nodes, tasks) if "ntasks" not in asked else _times(asked["ntasks"])
    texts |= dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), None if total is None else str(total))
    return {name: text for name, text in texts.items() if text is not None and _number(text) is not None}


def _per_node(asked: Mapping[str, str]) -> str | None:
    """Devices of a node."""
    for name in ("gpus-per-node", "gres"):
        match = re.fullmatch(r"(?:gpu:)?(?:[\w.-]+:)?(\d+)", asked.get(name, ""))
        if match is not None and (name != "gres" or asked[name].startswith("gpu")):
            return match[1]
    return None


def world(before: Sequence[Word], asked: Mapping[str, str]) -> int | None:
    """The number of devices, by the words before a program. None where they do not say it."""
    texts = [plain(word.text) if not word.loose else None for word in before]
    names = [(text or "").rpartition("/")[2] for text in texts]
    at = next((at for at in range(len(names) - 1, -1, -1) if names[at] in TORCHRUN), None)
    if at is not None:
        own = _options(texts[at + 1 :])
        return None if own is None else _times(own.get("nproc_per_node", "1"), own.get("nnodes", "1"))
    if "deepspeed" in names:
        own = _options(texts[names.index("deepspeed") + 1 :])
        if own is None or {"hostfile", "include", "exclude", "H", "i", "e"} & set(own):
            return None
        return _times(own.get("num_gpus"), own.get("num_nodes", "1"))
    if "accelerate" in names:
        own = _options(texts[names.index("accelerate") + 1 :])
        return None if own is None else _times(own.get("num_processes"))
    if "srun" in names:
        own = _options(texts[names.index("srun") + 1 :])
        if own is None:
            return None
        options = {name.replace("-", "_"): value for name, value in asked.items()} | own
        return _times(options["ntasks"]) if "ntasks" in options else _times(options.get("ntasks_per_node"), options.get("nodes"))
    if launcher := next((at for at, name in enumerate(names) if name in ("mpirun", "mpiexec")), 0) or names[:1] in (
        ["mpirun"],
        ["mpiexec"],
    ):
        own = _options(texts[int(launcher) :])
        return None if own is None else _times(own.get("np") or own.get("ntasks"))
    return None


def _options(texts: Sequence[str | None]) -> dict[str, str] | None:
    """Options with their values. None where something that may be an option is open."""
    options: dict[str, str] = {}
    for at, text in enumerate(texts):
        if text is None:
            name = texts[at - 1] if at else None
            if name is None or not name.startswith("-") or "=" in name:
                return None
            continue
        match = re.fullmatch(r"-{1,2}([\w-]+)(?:=(.*))?", text)
        if match is None:
            continue
        after = texts[at + 1] if at + 1 < len(texts) else ""
        short = re.fullmatch(r"-([NnG])(\d+)", text)
        name = _SHORT[short[1]] if short else _SHORT.get(match[1], match[1]).replace("-", "_")
        value = short[2] if short else match[2] if match[2] is not None else after
        options[name] = "?" if value is None else value
    return options


def _times(*numbers: str | None) -> int | None:
    values = [_number(number) for number in numbers]
    return None if None in values else prod(value for value in values if value is not None) or None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,9}", text) else None
