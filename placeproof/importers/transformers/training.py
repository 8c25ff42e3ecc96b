"""A step of transformers' Trainer, whichever launcher says what decides it, as a strategy (transformers==5.24.0:trainer.py)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fractions import Fraction
from os.path import isfile
from pathlib import Path
from types import MappingProxyType
from typing import Any

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.core.places import KeyPath
from placeproof.framework_rules.formula import Fact
from placeproof.importers.adapters import ELSEWHERE, lora, targets
from placeproof.importers.asked import Known
from placeproof.importers.document import Document
from placeproof.importers.fields import Field, Reader
from placeproof.importers.imported import Imported, Reading, Role, clips, expression
from placeproof.importers.meaning import Meaning
from placeproof.importers.transformers.updates import UPDATES, Directions, Update

Parts = dict[str, dict[str, object]]

#: What types of weights are called.
TYPES = {
    **dict.fromkeys(("float32", "fp32", "torch.float32"), "fp32"),
    **dict.fromkeys(("bfloat16", "bf16", "torch.bfloat16"), "bf16"),
    **dict.fromkeys(("float16", "fp16", "half", "torch.float16"), "fp16"),
}
#: Why no strategy is read where parameters are frozen.
FROZEN = "some of the model's own parameters seem to be frozen, and which ones is not read"
#: From this likeness on an argument that is not known is taken for a slip of the pen.
_NEAR = 0.85
#: What names of arguments have that may decide how a step is laid out: one that is not known is refused.
_DECIDING = (
    *("parallel", "shard", "mesh", "dist_", "distributed", "zero", "pipeline"),
    *("accumul", "micro", "fsdp", "expert", "offload", "batch"),
)
_FROZEN = ("lora", "adapter", "peft", "freeze", "frozen", "spectrum")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What decides a step. ``mixed``: bf16, fp16, or empty where operations compute in the type of the weights.

    ``weights``: fp32, bf16 or fp16, empty where the file does not say in which type they are held. ``norm``: gradients are clipped to it
    where it is above 0. ``on_host``: what is kept of layers that are computed again lies in host memory. ``directions``: of an update of
    whole matrices that is known. ``names``: under which names the launcher says what the Trainer calls otherwise. ``loaded``: in which type
    the launcher loads weights, where that is not the one in which they are held.
    """

    micro: int
    steps: int
    norm: float | None
    mixed: str
    weights: str
    update: Update
    recomputes: bool
    on_host: bool = False
    directions: Directions | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    loaded: str = ""

    @property
    def rowwise(self) -> bool:
        """Whether the update is known, and looks at whole rows or matrices."""
        return self.update.rowwise and self.update.role is Role.READ

    @property
    def shards(self) -> str:
        """What is told of the types that FSDP holds, with 16 bits."""
        if self.loaded:
            return f"weights are loaded in {self.loaded}, and in which type FSDP keeps them is not said"
        sent = "in fp32; gathered, computed and sent in 16 bits"
        if (named := in_one_type(self.update, "fp32")) is None:
            return f"shards and gradients {sent}; what the update keeps is not counted as it is"
        return f"shards, gradients and {self.update.deepspeed.removesuffix('W')}'s state {sent}: `--precision {named}` counts what is kept"

    @property
    def whole(self) -> str:
        """What is told of them where every device has all, and the file does not say them."""
        if self.loaded:
            return f"weights are loaded in {self.loaded}, and embeddings perhaps in fp32"
        counted = (
            "`--set b_theta=4 --set b_g=4 --set b_master=0`" if self.update.strategy == "adafactor" else in_one_type(self.update, "fp32")
        )
        held = f": with `dtype` or `torch_dtype` of float32 it is {counted}" if counted else ""
        return f"the program decides in which type the weights are held{held}"

    def name(self, argument: str) -> str:
        """The launcher's name of an argument of the Trainer."""
        return self.names.get(argument, argument)


class Arguments(Reader):
    """The arguments of a file. A null where the argument may be left out says nothing.

    ``own``: programs add arguments of their own, so that an unknown one that is near to none that matters is named, and not refused.
    ``loose``: tables of which transformers passes over what it does not know.
    """

    def __init__(
        self,
        document: Document,
        fields: Iterable[Field],
        problems: Problems,
        *,
        world: int | None,
        own: bool = False,
        loose: Collection[str] = (),
    ) -> None:
        rows = tuple(fields)
        empty = {name for row in rows if row.default is None for name in row.names if document.data.get(name, "") is None}
        self.own, self.loose = own, frozenset(loose)
        self.world = world
        #: What is to be told of arguments that the file leaves out.
        self.unsaid: dict[str, str] = {}
        #: Arguments that another file answers for.
        self.handed: set[str] = set()
        super().__init__(replace(document, data={k: v for k, v in document.data.items() if k not in empty}), rows, problems)
        self.readings += [
            Reading(name=name, value=None, role=Role.NO_MATTER, note="says nothing", place=document.place(name)) for name in sorted(empty)
        ]

    def say(self, name: str, note: str, role: Role | None = None) -> None:
        """Tell what a value does, be it said or the default."""
        if self.said(name):
            self.note(name, note, role, told=True)
        else:
            self.unsaid[name] = f"not said; {note}"

    def _unknown(self, key: str, value: Any, path: KeyPath, here: KeyPath) -> None:
        if ".".join(map(str, path)) in self.loose:
            note = suggestion(key, self._inside(path)) or "check its spelling against the system's reference"
            self._named(here, value, Role.UNKNOWN, note)
        elif not self.own or path or self._decides(key):
            super()._unknown(key, value, path, here)
        elif value not in (None, False, "full") and any(word in f"{key} {value}".lower() for word in _FROZEN):
            self.refuse(key, f"`{key}`: {FROZEN}", "ask about training in full, without it")
        elif isinstance(value, Mapping) and not self.fields.keys().isdisjoint(value):
            self.refuse(
                key, f"there are arguments of the Trainer in `{key}`, and outermost ones alone are read", "give a file of these alone"
            )
        else:
            self._named(here, value, Role.ANOTHER_STEP, "an argument of the program itself: what it does is not known")

    def _named(self, here: KeyPath, value: Any, role: Role, note: str) -> None:
        name = ".".join(map(str, here))
        self.readings.append(Reading(name=name, value=value, role=role, note=note, place=self.document.place(*here)))

    def _decides(self, key: str) -> bool:
        """Whether an argument that is not known may decide how a step is laid out, or is one that matters with a slip of the pen."""
        matter = [name for name, known in self.fields.items() if known.role is not Role.NO_MATTER]
        return bool(get_close_matches(key, matter, 1, _NEAR)) or any(word in key.lower() for word in _DECIDING)


def beside(named: str, source: str) -> Path | None:
    """Where a file lies that a program opens from the folder in which it runs: from here, beside the file that names it, or around that."""
    folders = [Path(), *Path(source).absolute().parents]
    return next((path for path in (folder / Path(named).expanduser() for folder in folders) if isfile(path)), None)


def update(run: Arguments, name: str, more: Mapping[str, Update] = MappingProxyType({})) -> Update:
    """The update that a setting names. A name that neither transformers nor the launcher (``more``) knows is a problem."""
    said = str(run.get(name) or run.fields[name].default)
    if "adafactor" in run.fields and run.get("adafactor"):
        said = "adafactor"
    known = {**UPDATES, **more}.get(said)
    if known is None:
        help = suggestion(said, [*UPDATES, *more]) or "`adamw_torch`, or another name of transformers' documentation"
        run.refuse(name, f"there is no update `{said}`", help, "PP503")
        return Update()
    if known.note:
        run.note(name, known.note, known.role, told=known.role is Role.READ)
    return known


def recomputation(run: Arguments, training: Training) -> Parts:
    """The strategy of layers that are computed again."""
    if not training.recomputes:
        return {}
    name = "activation_checkpointing_kwargs"
    said = run.get(name) if name in run.fields else None
    more = said if isinstance(said, dict) else {}
    if more.get("every_n_layers", 1) != 1:
        run.note(name, "some layers alone are computed again: more is kept than is counted", Role.NOT_MODELLED)
    elif more.get("offload"):
        run.note(name, "what layers keep lies in host memory", Role.READ)
    return {"checkpoint": {"checkpoints": "host"} if training.on_host or more.get("offload") else {}}


def plain(run: Arguments, training: Training) -> Imported:
    """DistributedDataParallel: neither DeepSpeed nor FSDP is said."""
    note = "not said, nor `fsdp`: DistributedDataParallel, unless a file of Accelerate that the program is started with decides otherwise"
    run.unsaid["deepspeed"] = note
    parts: Parts = {} if run.world == 1 else {"ddp": {"dp": run.world}}
    if training.update.strategy:
        parts |= {training.update.strategy: {}}
    if training.directions is not None:
        parts |= directed(run, training.directions.setting, training.directions.whole)
    return whole(run, training, {**parts, **recomputation(run, training)}, _held(run, training))


def directed(run: Arguments, setting: str, told: tuple[str, Role], **options: object) -> Parts:
    """The strategy of an update of whole matrices, as a setting says it, with options."""
    run.note(setting, *told)
    return {"muon": options}


def whole(run: Arguments, training: Training, parts: Parts, precision: str | None) -> Imported:
    """What the file says, with micro-batches and the update; ``parts`` without either."""
    if training.steps > 1:
        parts = {**parts, "accumulate": {"microbatches": training.steps}}
    if clips(training.norm):
        parts = {**parts, "clip": {}}
    if not set(parts) - {"accumulate", "checkpoint", "clip"}:
        parts = {"ddp": {"dp": 1}, **parts}
    return Imported(
        system="transformers",
        source=run.document.source,
        expression=expression(parts),
        readings=(),
        precision=precision,
        numbers={"b": Fraction(training.micro), "m": Fraction(training.steps)},
        without=("elementwise-optimizer",) if training.rowwise and training.update.strategy not in parts else (),
    )


def _held(run: Arguments, training: Training) -> str | None:
    """The named precision of weights that lie whole on each device."""
    name = training.name(training.mixed or "bf16")
    if not training.weights:
        run.say(
            name, f"operations compute in {training.mixed}; {training.whole}" if training.mixed else f"not in 16 bits; {training.whole}"
        )
        return None
    if training.mixed:
        run.note(name, f"operations compute in {training.mixed}; weights, gradients and the optimizer's state are {training.weights}")
    return in_one_type(training.update, training.weights)


def in_one_type(update: Update, weights: str) -> str | None:
    """The named precision in which everything has the type of the weights, None where none is."""
    named = {("AdamW", "fp32"): "fp32-adam", ("AdamW", "bf16"): "bf16-adam", ("SGD", "fp32"): "sgd"}
    return named.get((update.deepspeed, weights))


def adapted(
    run: Arguments, imported: Imported, name: str, rank: str, modules: str, *, every: str = "all-linear", linear: bool = False
) -> Imported:
    """The same step of adapters, as the setting ``name`` says: all other parameters are frozen. Adapters are held in other types.

    ``rank``, ``modules``: the settings of their inner dimension, and of what they stand beside. ``every``, ``linear``: as of
    :func:`placeproof.importers.adapters.targets`.
    """
    run.say(name, "adapters are trained, and the model's own parameters are frozen; in which types these lie is not said")
    if run.said(rank):
        run.note(rank, "the rank of adapters: r", Role.READ)
    elif run.get(rank) is not None:
        run.unsaid[rank] = "not said; the default"
    said = run.get(modules)
    named = said.replace(" ", "").split(",") if isinstance(said, str) else [*map(str, said or ())]
    if len(named) == 1 and named[0].lower() == "all-linear":  # peft reads a word of its own in any letters
        named = ["all-linear"]
    word = targets(named, every, linear=linear)
    told: tuple[Reading, ...] = ()
    if word is None and not run.said(modules):
        told = (Reading(name=modules, value=None, role=Role.NOT_MODELLED, note=f"not said; {ELSEWHERE}", told=True),)
    run.note(modules, "which matrices have adapters" if word else ELSEWHERE, Role.READ if word else Role.NOT_MODELLED)
    step = " * ".join(filter(None, (imported.expression, expression(lora(run.get(rank), word)))))
    return replace(imported, expression=step, readings=(*imported.readings, *told), precision=None)


def finished(run: Arguments, imported: Imported, meaning: Meaning, **facts: Fact) -> Imported:
    """With every setting in the order of the file, and what the table of meanings says of it, given further ``facts``."""
    known = Known(run, meaning)
    for name, value in {"world": run.world, "handed": "max_grad_norm" in run.handed, **facts}.items():
        known.put(name, value, unset=True)
    known.derive()
    known.check()
    unsaid = [_told(name, run.get(name) if name in run.fields else None, note) for name, note in run.unsaid.items()]
    clips = () if "max_grad_norm" in run.handed else known.unsaid("max_grad_norm")
    return replace(imported, readings=(*sorted(known.readings(), key=_order), *unsaid, *clips, *imported.readings))


def _told(name: str, value: object, note: str) -> Reading:
    return Reading(name=name, value=value, role=Role.READ, note=note, told=True)


def _order(reading: Reading) -> tuple[int, int]:
    return (reading.place.line, reading.place.column) if reading.place else (0, 0)
