"""DeepSpeed in Accelerate's files: what they say themselves, and the file of DeepSpeed that they may name.

Accelerate opens `deepspeed_config_file` from the folder in which the program runs, reads it as JSON, and fills some of its `auto` in
(accelerate==1.15.0:utils/dataclasses.py, DeepSpeedPlugin).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from os.path import isfile
from pathlib import Path
from typing import Any

from placeproof.core.diagnostics import Problems
from placeproof.core.files import read_text
from placeproof.importers.accelerate.run import AccelerateReader
from placeproof.importers.deepspeed import reader as deepspeed
from placeproof.importers.deepspeed.types import Types
from placeproof.importers.document import Document, read_document
from placeproof.importers.fields import AUTO
from placeproof.importers.imported import Imported, Role, clips

_DS, _PC = "deepspeed_config.", "parallelism_config.parallelism_config_"
_FILE = _DS + "deepspeed_config_file"
#: What Accelerate puts in the place of `auto` where the program does not say it: its own defaults.
FILLED: dict[tuple[str, ...], object] = {
    ("zero_optimization", "stage"): 2,
    ("zero_optimization", "offload_optimizer", "device"): "none",
    ("zero_optimization", "offload_param", "device"): "none",
}
_Parts = dict[str, dict[str, object]]


def parts(run: AccelerateReader, sizes: Mapping[str, int]) -> _Parts:
    """The strategies of what the file of Accelerate says itself."""
    kept = {n: d for n, d in sizes.items() if n not in (_PC + "dp_replicate_size", _PC + "dp_shard_size")}
    if sizes.get(_PC + "tp_size", 1) > 1:
        run.note(_PC + "tp_size", "DeepSpeed splits layers by its own file; left out here", Role.ANOTHER_STEP)
    strategies = _stage(run, run.over(kept))
    steps = run.get(_DS + "gradient_accumulation_steps")
    if steps == AUTO:
        run.note(_DS + "gradient_accumulation_steps", "filled in by the trainer: kept open")
    elif steps is not None and steps > 1:
        strategies["accumulate"] = {"microbatches": steps}
    if steps is not None and steps != AUTO:
        run.numbers["m"] = Fraction(steps)
    return strategies | _clipping(run)


def _clipping(run: AccelerateReader) -> _Parts:
    """Accelerate takes `auto` for a limit that is not said, and fills 1.0 in where no trainer has filled in its own."""
    limit = run.get(_DS + "gradient_clipping")
    if _DS + "gradient_clipping" not in run.found:
        run.tell_unsaid(_DS + "gradient_clipping", deepspeed.OPEN_LIMIT)
    elif limit in (None, AUTO):
        run.note(_DS + "gradient_clipping", deepspeed.OPEN_LIMIT, told=True)
    return {"clip": {}} if limit in (None, AUTO) or (limit != "none" and clips(limit)) else {}


def _stage(run: AccelerateReader, dp: int | None) -> _Parts:
    optimizer, params = _DS + "offload_optimizer_device", _DS + "offload_param_device"
    stage = int(run.get(_DS + "zero_stage"))
    state, weights = (str(run.get(n)).lower() != "none" for n in (optimizer, params))
    if weights and stage < 3:
        run.note(params, "DeepSpeed keeps parameters where they are below stage 3", Role.NO_MATTER, told=True)
    if stage == 3 and state and weights:
        return {"zero_infinity": {"dp": dp}}
    if stage == 2 and state:
        return {"zero_offload": {"dp": dp}}
    if state:
        note = "there is no ZeRO here to offload" if stage == 0 else "keeps the optimizer state and its update on the host"
        run.note(optimizer, note, Role.NO_MATTER if stage == 0 else Role.NOT_MODELLED)
    if stage == 3 and weights:
        run.note(params, "keeps shards of the parameters on the host", Role.NOT_MODELLED)
    if stage:
        run.note(_DS + "zero_stage", f"the ZeRO stage; {deepspeed.otherwise(stage)}", told=True)
    name, tokens = "zero" + str(stage) if stage else "ddp", run.get(_PC + "sp_size")
    return {} if dp == 1 and not (tokens > 1 and stage) else {name: {"dp": dp}}


def types(run: AccelerateReader, weights: str) -> Types:
    """What DeepSpeed holds of weights of a type, where no file of its own says it."""
    host = str(run.get(_DS + "offload_optimizer_device")).lower() != "none"
    return Types(weights=weights, sums=weights, stage=int(run.get(_DS + "zero_stage")), host=host)


def named_file(run: AccelerateReader) -> bool:
    """Whether a file of DeepSpeed decides the strategy."""
    return run.kind == "DEEPSPEED" and run.said(_FILE)


def follow(run: AccelerateReader, source: str, problems: Problems) -> Imported | None:
    """What the named file says; None with a problem where it cannot be read."""
    path = _found(str(run.get(_FILE)), source)
    if path is None:
        message = f"there is no file `{run.get(_FILE)}`: Accelerate would stop here, and what is trained is not known without it"
        help = "it is looked for from the folder of this command, as Accelerate does, and from that of the file that names it"
        run.refuse(_FILE, message, help, "PP501")
        return None
    with problems.collecting():
        document = read_document(read_text(path, code="PP501", help="give a file that can be read"), str(path), "json", problems)
        return deepspeed.read(_filled(run, document, problems), run.world, problems)
    return None


def _found(named: str, source: str) -> Path | None:
    """Where the file lies: from here, or beside the file that names it."""
    candidates = [Path(named).expanduser(), Path(source).parent / named]
    return next((path for path in candidates if isfile(path)), None)


def _filled(run: AccelerateReader, document: Document, problems: Problems) -> Document:
    """The document with what Accelerate puts into it."""
    if "zero_optimization" not in document.data:
        message = f"`{document.source}` has no `zero_optimization`, and Accelerate asks for one"
        problems.add("PP504", message, place=run.document.place(*_FILE.split(".")), help="add it, with a stage of 0 for none")
    data: dict[str, Any] = {"gradient_accumulation_steps": 1, **document.data}
    for path, value in FILLED.items():
        data = replaced(data, path, value)
    for width in ("fp16", "bf16"):  # no precision may be said beside the file, and none is the default
        data = replaced(data, (width, "enabled"), False)
    tokens = run.get(_PC + "sp_size")
    if tokens > 1:
        data = {**data, "sequence_parallel_size": tokens}
    return replace(document, data=data)


def replaced(table: Mapping[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    """The table with a value in the place of `auto`."""
    first, *rest = path
    inner = table.get(first)
    if rest and isinstance(inner, Mapping):
        return {**table, first: replaced(inner, tuple(rest), value)}
    return {**table, first: value} if not rest and inner == AUTO else dict(table)
