"""DeepSpeed under transformers' Trainer: its file, in which the arguments take the place of `auto`.

(transformers==5.24.0:integrations/deepspeed.py, accelerate==1.15.0:utils/dataclasses.py, DeepSpeedPlugin, and accelerator.py)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from placeproof.core.diagnostics import Problems
from placeproof.core.files import read_text
from placeproof.importers.accelerate.deepspeed import FILLED, replaced
from placeproof.importers.deepspeed import reader as deepspeed
from placeproof.importers.document import Document, read_document
from placeproof.importers.fields import AUTO
from placeproof.importers.imported import Imported, Role, clips, expression
from placeproof.importers.transformers.training import Arguments, Training, beside, recomputation

_NAME = "deepspeed"
_ABSENT = object()
#: Rates that DeepSpeed's file and the arguments both say.
_RATES = (
    ("optimizer.params.lr", "learning_rate"),
    ("optimizer.params.eps", "adam_epsilon"),
    ("optimizer.params.weight_decay", "weight_decay"),
    ("scheduler.params.warmup_max_lr", "learning_rate"),
)


def follow(run: Arguments, training: Training, problems: Problems) -> Imported:
    """What the file of DeepSpeed says, or the table that stands in its place."""
    nothing = Imported(system="transformers", source=run.document.source, expression="", readings=())
    document = _document(run, problems)
    if document is None:
        return nothing
    _compare(run, training, document)
    filled = _filled(run, training, document)
    imported = deepspeed.read(filled, run.world, problems)
    inline = isinstance(run.get(_NAME), dict)
    before = f"{_NAME}." if inline else f"{run.get(_NAME)}: "
    readings = tuple(replace(one, name=before + one.name) for one in imported.readings if _value(document.data, one.name) is not _ABSENT)
    text = imported.expression
    again = recomputation(run, training)
    if again and "checkpoint" not in text and "zero_r" not in text:
        text += f" * {expression(again)}"
    own = "optimizer" in document.data
    named = own or _type(run, training, filled.data)
    return replace(
        imported,
        system="transformers",
        source=run.document.source,
        expression=text,
        readings=readings,
        precision=imported.precision if named else None,
        without=("elementwise-optimizer",) if training.rowwise and not own else imported.without,
    )


def _document(run: Arguments, problems: Problems) -> Document | None:
    """The file, or the table in its place; None with a problem where there is none."""
    said = run.get(_NAME)
    if isinstance(said, dict):
        spans = {path[1:]: span for path, span in run.document.spans.items() if path[:1] == (_NAME,) and len(path) > 1}
        return replace(run.document, data=said, spans=spans)
    path = beside(str(said), run.document.source)
    if path is None:
        message = f"there is no file `{said}`: what is trained is not known without it"
        help = "it is looked for from the folder of this command, from that of the file that names it, and from those around that"
        run.refuse(_NAME, message, help, "PP501")
        return None
    with problems.collecting():
        return read_document(read_text(path, code="PP501", help="give a file that can be read"), str(path), "json", problems)
    return None


def _value(table: Mapping[str, Any], name: str) -> Any:
    """The value under a name with dots; :data:`_ABSENT` for none."""
    value: Any = table
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _ABSENT
        value = value[part]
    return value


def _same(run: Arguments, training: Training) -> Iterator[tuple[str, str, object]]:
    """What DeepSpeed and the Trainer both say: DeepSpeed's name, the argument, and its value."""
    yield "train_micro_batch_size_per_gpu", "per_device_train_batch_size", training.micro
    yield "gradient_accumulation_steps", "gradient_accumulation_steps", training.steps
    yield "gradient_clipping", "max_grad_norm", training.norm
    for width in ("fp16", "bf16"):
        evaluated = f"{width}_full_eval"
        yield f"{width}.enabled", width, training.mixed == width or (evaluated in run.fields and bool(run.get(evaluated)))


def _compare(run: Arguments, training: Training, document: Document) -> None:
    """Refuse what the file says otherwise than the arguments, as transformers does."""
    said = [(theirs, ours, run.get(training.name(ours))) for theirs, ours in _RATES if run.said(training.name(ours))]
    for theirs, ours, value in (*_same(run, training), *said):
        found = _number(_value(document.data, theirs))
        if found in (_ABSENT, None, AUTO) or found == _number(value):
            continue
        name = training.name(ours)
        message = f"`{theirs}` is {_shown(found)} in `{document.source}`, and `{name}` {_shown(value)}: transformers refuses that"
        run.refuse(name if name in run.found else _NAME, message, f'write `"auto"` there, or {_shown(found)} here')
    if "zero_optimization" not in document.data:
        message = f"`{document.source}` has no `zero_optimization`, and Accelerate asks for one"
        run.refuse(_NAME, message, "add it, with a stage of 0 for none")


def _number(value: object) -> Any:
    """A number that is written as a text, as one."""
    try:
        return float(value) if isinstance(value, str) and value != AUTO else value
    except ValueError:
        return value


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _filled(run: Arguments, training: Training, document: Document) -> Document:
    """The document with what transformers and Accelerate put into it."""
    data: dict[str, Any] = dict(document.data)
    for theirs, _, value in _same(run, training):
        data = replaced(data, tuple(theirs.split(".")), value)
    for path, value in FILLED.items():
        data = replaced(data, path, value)
    data.setdefault("train_micro_batch_size_per_gpu", training.micro)
    data.setdefault("gradient_accumulation_steps", training.steps)
    if data.get("train_batch_size") == AUTO:
        del data["train_batch_size"]
    if training.mixed:
        data.setdefault(training.mixed, {"enabled": True})
    _check_clipping(run, training, document, data.get("gradient_clipping", 0))
    name = training.name("optim")
    if "optimizer" in data:
        run.note(name, "DeepSpeed's file names the update", Role.NO_MATTER)
    elif named := _type(run, training, data):
        data |= {"optimizer": {"type": named}, "zero_allow_untested_optimizer": True}
    return replace(document, data=data)


def _check_clipping(run: Arguments, training: Training, document: Document, limit: Any) -> None:
    """What became of the Trainer's limit, where DeepSpeed has one: it clips, and the Trainer does not."""
    name, limit = training.name("max_grad_norm"), _number(limit)
    run.handed.add(name)
    if limit is None:
        message = f"`gradient_clipping` of `{document.source}` is filled in with null: DeepSpeed compares it with 0, and stops"
        run.refuse(name if name in run.found else _NAME, message, "0 for no clipping")
    elif isinstance(limit, int | float) and clips(limit):
        if run.said(name):
            run.note(name, "DeepSpeed clips, as its file says", Role.READ)
    elif clips(training.norm):
        run.say(name, "DeepSpeed clips, and its file does not say so: nothing is clipped", Role.NO_MATTER)


def _type(run: Arguments, training: Training, data: Mapping[str, Any]) -> str:
    """The update that runs: Accelerate puts one of DeepSpeed's for the host in its place where the state lies there."""
    named = training.update.deepspeed
    device = _value(data, "zero_optimization.offload_optimizer.device")
    if device in ("cpu", "nvme") and data.get("zero_force_ds_cpu_optimizer", True) and named not in ("AdamW", "Adagrad", "Lion"):
        run.say(training.name("optim"), "Accelerate puts DeepSpeed's Adam for the host in its place", Role.READ)
        return "AdamW"
    return named
