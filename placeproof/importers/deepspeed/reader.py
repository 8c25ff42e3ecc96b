"""DeepSpeed's JSON file as a strategy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.core.places import KeyPath
from placeproof.importers.asked import Known
from placeproof.importers.deepspeed.types import Types
from placeproof.importers.document import Document
from placeproof.importers.fields import Field, Reader
from placeproof.importers.imported import Imported, Note, Role, clips, expression, misplaced, over_axes
from placeproof.importers.meaning import meaning
from placeproof.importers.settings import settings

_ZERO = "zero_optimization"
_BATCH, _MICRO, _STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
_CLIPPING = "gradient_clipping"
_EXPERTS, _SEQUENCES = "expert_parallel.autoep_size", "sequence_parallel_size"
#: What a limit is that a trainer fills in.
OPEN_LIMIT = "the trainer says the limit: read as clipping; where it says none, nothing is exchanged for the norm"
_MASTERS = ("fp16.fp16_master_weights_and_grads", "bf16.bf16_master_weights_and_grads", "bf16.bf16_optimizer_states")
#: Tables in which DeepSpeed looks settings up by their names, and so passes over any other; those of its models refuse one.
_PASSED_OVER = ("", "optimizer", "scheduler", "pipeline", "activation_checkpointing", "checkpoint", "data_types", "aio", "torch_autocast")
#: Tables that DeepSpeed takes apart without asking whether they are null.
_UNPACKED = (_ZERO, "fp16", "optimizer", "compile", "hybrid_engine")
#: Tables that do nothing unless their ``enabled`` is true, and whether it is so where nothing is said.
_SWITCHES = {
    **dict.fromkeys(("fp16", "bf16", "bfloat16", "torch_autocast", "expert_parallel", "hybrid_engine"), False),
    **dict.fromkeys(("data_efficiency", "autotuning"), False),
    "weight_quantization": True,
}
#: What a type's name stands for.
_WIDTHS = {
    **dict.fromkeys(("fp16", "float16", "half", "torch.float16"), "fp16"),
    **dict.fromkeys(("bf16", "bfloat16", "torch.bfloat16"), "bf16"),
    **dict.fromkeys(("fp32", "float32", "float", "torch.float32"), "fp32"),
}
#: Updates of which a part is done before gradients reach the optimizer, and what becomes of it.
_ELSEWHERE = {
    **dict.fromkeys(("onebitadam", "zerooneadam", "onebitlamb"), "compresses what is exchanged"),
    # deepspeedai/DeepSpeed@edaa7221:deepspeed/runtime/zero/stage_1_and_2.py line 2155, muon/muon_optimizer.py line 32
    "muon": "ZeRO finds directions from whole gradients, before it cuts them into parts; without ZeRO nothing does",
}
#: Updates that read norms or rows of what they are given: with ZeRO, of parts.
_ROWWISE = ("lamb", "onebitlamb", "adafactor", "lbfgs")
_TWO_MOMENTS = ("", "adam", "adamw", "muadam", "muadamw", "lamb")
_SGD = ("sgd", "musgd")
_OTHERS = ("adagrad", "lion", "adadelta", "adamax", "asgd", "nadam", "radam", "rmsprop", "rprop", "sparseadam")
_OPTIMIZERS = (*_ELSEWHERE, *_ROWWISE, *_TWO_MOMENTS, *_SGD, *_OTHERS)


def read(document: Document, world: int | None, problems: Problems) -> Imported:
    """Read a configuration of DeepSpeed. Problems are collected; with any, what is returned must not be used."""
    fields = (*_fields(document.data), *_forms(document.data))
    config = _Config(Reader(document, fields, problems, auto=True, passed_over=_PASSED_OVER), world)
    parts, precision = config.parts(), config.precision()
    config.note_switches()
    known = config.known()
    known.check()
    known.ask("deepspeed")
    numbers = {
        "b": config.micro,
        "m": config.steps if any(config.reader.said(n) for n in (_BATCH, _MICRO, _STEPS)) else None,
        "V": config.get("vocabulary_size"),
    }
    return Imported(
        system="deepspeed",
        source=document.source,
        expression=expression(over_axes(parts, tokens=config.sp, attention="ulysses", experts=config.ep, whole=config.whole)),
        readings=known.readings(),
        precision=precision,
        half=config.weights if config.weights != "fp32" else None,
        numbers={name: Fraction(value) for name, value in numbers.items() if value is not None},
        without=("elementwise-optimizer",) if config.optimizer in _ROWWISE else (),
    )


def otherwise(stage: int) -> str:
    """In what DeepSpeed's stage differs from the one of the formulas, if no further setting tells it otherwise."""
    if stage == 3:
        text = "DeepSpeed keeps up to 1e9 parameters gathered, and the formulas none: more memory, and less traffic"
    else:
        text = "DeepSpeed all-reduces gradients where the formulas reduce-scatter them: twice the traffic of gradients"
    return f"unless told otherwise {text}"


def _fields(data: Mapping[str, Any]) -> Iterator[Field]:
    """The settings; those of `bfloat16` are read where there is no `bf16`."""
    twice = data.get("bf16") is not None and "bfloat16" in data
    for known in settings("deepspeed"):
        yield replace(known, also=()) if twice and known.also else known
    if twice:
        note = "`bf16` is read in its place"
        yield Field(name="bfloat16.*", kinds=("bool", "number", "text", "list", "table", "null"), role=Role.NO_MATTER, note=note)


def _forms(table: Mapping[str, Any], path: KeyPath = ()) -> Iterator[Field]:
    """Tables that a file may also write as true, false or null."""
    for key, value in table.items():
        name = ".".join(str(p) for p in (*path, key))
        if name == _ZERO and isinstance(value, bool):
            yield Field(name=_ZERO, kinds=("bool",), role=Role.READ, note="an older form: ZeRO stage 1, or none")
        elif value is None and name not in _UNPACKED and any(f.name.startswith(name + ".") for f in settings("deepspeed")):
            yield Field(name=name, kinds=("null",), role=Role.NO_MATTER, note="nothing is said")
        elif isinstance(value, dict):
            yield from _forms(value, (*path, key))


class _Config:
    """The values of a file that depend on each other."""

    def __init__(self, reader: Reader, world: int | None) -> None:
        self.reader, self.world, self.get, self.note = reader, world, reader.get, reader.note
        self.micro, self.steps, self.total = self.get(_MICRO), self.get(_STEPS), self.get(_BATCH)
        self.optimizer = self._optimizer()
        self.stage = self._stage()
        self.weights = self._type()
        self.tp, self.pp = self._tp(), self.get("pipeline.stages") or 1
        self.dp = self._dp()
        #: Devices that sequences are split over, where the strategy has them.
        self.sp: int = self.get(_SEQUENCES) or 1
        #: Devices that share experts, None where a trainer fills it in; and whether each is whole while other matrices are split.
        self.ep: int | None = self.get(_EXPERTS) if self.get("expert_parallel.enabled") else 1
        self.whole = self.ep != 1 and self.tp != 1
        self._batches()
        #: Whether an update has several micro-batches, or may have.
        self.split = self.pp > 1 or self.steps != 1

    def auto(self, name: str) -> bool:
        """Whether a trainer fills it in."""
        return self.reader.name(name) in self.reader.open

    # degrees and batch sizes

    def _stage(self) -> int:
        form, name = self.reader.found.get(_ZERO), self._stage_name()
        if isinstance(form, bool):
            self._note_stage(name, int(form))
            return int(form)
        if self.auto(name):
            self.reader.refuse(name, "`auto` leaves the ZeRO stage to the launcher, and no strategy follows", "write 0, 1, 2 or 3")
            return 0
        stage: int = self.get(name)
        if stage not in range(4):
            rule = ("`placeproof explain deepspeed-06`",) if stage > 3 else ()
            self.reader.refuse(name, f"there is no ZeRO stage {stage}", "the stages are 0, 1, 2 and 3", notes=rule)
            return 0
        self._note_stage(name, stage)
        return stage

    def _stage_name(self) -> str:
        """The setting that says the stage."""
        return _ZERO if isinstance(self.reader.found.get(_ZERO), bool) else f"{_ZERO}.stage"

    def _note_stage(self, name: str, stage: int) -> None:
        """In what DeepSpeed's stage differs from that of the formulas, unless the file says otherwise."""
        limits = [f"{_ZERO}.{prefix}{name}" for name in ("max_live_parameters", "max_reuse_distance") for prefix in ("", "stage3_")]
        owners = self.get(f"{_ZERO}.use_multi_rank_bucket_allreduce") is False
        alike = stage == 0 or (owners if stage < 3 else any(self.reader.found.get(limit) == 0 for limit in limits))
        self.note(name, "the ZeRO stage" if alike else f"the ZeRO stage; {otherwise(stage)}", told=not alike)

    def _tp(self) -> int | None:
        """The tensor-parallel degree; None where a trainer fills it in."""
        name = "tensor_parallel.autotp_size"
        if self.auto(name):
            return None
        said: int = self.get(name)
        for table in ("tp", "tensor_parallel"):
            again = f"tensor_parallel.{table}.tp_size"
            if said > 1 and self.get(again) not in (None, 1, said):
                self.reader.refuse(again, f"{self.get(again)} devices here, and {said} in `autotp_size`", "give both the same degree")
        if said > 1 and self.stage == 3:
            self.note(name, "tensor-parallel degree; DeepSpeed documents it for ZeRO stages 0 to 2")
        return max(said, 1)

    def _dp(self) -> int | None:
        """The data-parallel degree that the world or the file fixes."""
        said: int | None = self.get("data_parallel_size")
        others = {
            "tensor_parallel.autotp_size": self.tp,
            "pipeline.stages": self.pp,
            _SEQUENCES: self.get(_SEQUENCES),
        }
        known: list[int] = [v for v in others.values() if v is not None]
        if self.world is None or len(known) < len(others):
            return said
        dp, rest = divmod(self.world, prod(known))
        if rest:
            name = next(n for n, v in others.items() if v is not None and v > 1)
            written = " * ".join(str(v) for v in known if v > 1)
            self.reader.refuse(name, f"{written} does not divide {self.world} devices", "change a degree or the number of devices")
            return None
        if said is not None and said != dp:
            message = f"{said} data-parallel devices here, and {self.world} devices leave {dp}"
            self.reader.refuse("data_parallel_size", message, "leave it out, or change a degree")
        return dp

    def _batches(self) -> None:
        """Infer what the rule ``train_batch_size = micro-batch * steps * dp`` leaves open, and check it."""
        if self.total is not None and self.micro is not None and self.steps is not None:
            if self.dp is None and self.total % (self.micro * self.steps):
                message = f"{self.total} is no multiple of a micro-batch of {self.micro} times {self.steps} micro-batches"
                self.reader.refuse(_BATCH, message, "leave one of the three out: it follows from the others")
            elif self.dp is None and self.world is None:
                self.dp = self.total // (self.micro * self.steps)
            return
        open_steps = self.auto(_STEPS) or (self._given(_BATCH) and self._given(_MICRO))
        if self.steps is None and not open_steps:
            self.steps = 1
        if self.total is None or self.dp is None or (self.steps is None and self.micro is None):
            return
        by, rest = divmod(self.total, (self.micro or self.steps) * self.dp)
        if rest or not by:
            what = f"micro-batches of {self.micro}" if self.micro is not None else f"{self.steps} micro-batches an update"
            message = f"{self.total} samples cannot be dealt to {self.dp} data-parallel devices in {what}"
            self.reader.refuse(_BATCH, message, f"take a multiple of {(self.micro or self.steps) * self.dp}, or change the devices")
        elif self.micro is None:
            self.micro = None if self.auto(_MICRO) else by
        else:
            self.steps = by

    def _given(self, name: str) -> bool:
        return name in self.reader.found

    # the strategy

    def parts(self) -> dict[str, dict[str, object]]:
        """The strategies with their arguments."""
        strategies: dict[str, dict[str, object]] = {}
        name, arguments = self._data()
        if name == "zeropp" and self.sp > 1:
            note = "sequences are split too (Ulysses): dp is divided by it and the axis left out, since ZeRO++ has no axis beside its nodes"
            self.note(_SEQUENCES, note, Role.ANOTHER_STEP)
            self.sp = 1
        wrong = misplaced(self.ep, self.dp, tensor=self.tp, sequence=self.sp)
        if name == "zeropp" and self.ep != 1 and arguments["qgz"] == "b_g" and arguments["node"] is True:  # else a rule says so
            wrong = wrong or ("ZeRO++ beside experts that devices share: no strategy says that", "drop one of the two")
        if wrong is not None and self.ep != 1:
            self.reader.refuse(_EXPERTS, *wrong)
        sharded = self.sharded = name != "ddp"
        rest = self.tp != 1 or self.pp > 1 or (self.sp > 1 and not sharded)
        dp = None if self.dp is None or self.ep is None else max(self.dp // self.ep, 1)
        if dp != 1 or ((self.sp > 1 or self.ep != 1) and sharded) or name in ("zero_offload", "zero_infinity"):
            strategies[name] = {"dp": dp, **arguments}
        elif not rest and self.ep == 1:
            strategies["ddp"] = {"dp": 1}
        if self.tp != 1:
            strategies["tp"] = {"tp": self.tp}
        if self.pp > 1:
            strategies["pp"] = {"pp": self.pp, "microbatches": self.steps}
        elif self.auto("pipeline.stages"):
            self.note("pipeline.stages", "the program's PipelineModule decides: no pipeline is read here", Role.ANOTHER_STEP)
        strategies |= self._checkpoints()
        if self.split and self.pp == 1:
            strategies["accumulate"] = {"microbatches": self.steps}
        return strategies | self._clipping()

    def _clipping(self) -> dict[str, dict[str, object]]:
        if not self.auto(_CLIPPING) and not clips(self.get(_CLIPPING)):
            return {}
        if self.ep != 1:
            self.note(_CLIPPING, "the norms of experts are averaged over devices that have others: no norm of all", Role.ANOTHER_STEP)
            return {}
        if self.auto(_CLIPPING):
            self.note(_CLIPPING, f"{OPEN_LIMIT}; DeepSpeed itself stops at `auto`", told=True)
        return {"clip": {}}

    def _data(self) -> tuple[str, dict[str, object]]:
        optimizer, parameters = self._host("offload_optimizer", "cpu_offload"), self._host("offload_param", "cpu_offload_param")
        if parameters and self.stage < 3:
            self.note(parameters, "ignored by DeepSpeed below stage 3", Role.NO_MATTER, told=True)
            parameters = None
        plus = self._plus()
        if self.stage == 2 and optimizer:
            return "zero_offload", {}
        if self.stage == 3 and optimizer and parameters and plus is None:
            return "zero_infinity", {}
        for name, what in ((optimizer, "the optimizer state"), (parameters, "the parameters")):
            if name:
                message = f"{what} on the host: no strategy here offloads just this; computed as if on the device"
                self.note(name, message, Role.NOT_MODELLED)
        if self.types().bf16_optimizer:
            return "zero1", {"reduce": "all_reduce"}
        return ("zeropp", plus) if plus is not None else (("ddp", "zero1", "zero2", "zero3")[self.stage], {})

    def _host(self, table: str, older: str) -> str | None:
        """The setting that puts something on the host, if one does."""
        name = f"{_ZERO}.{table}.device"
        if self.auto(name):
            self.reader.refuse(name, "`auto` leaves to the launcher what lies on the host", "write `none`, `cpu` or `nvme`")
        old = next((n for n in (f"{_ZERO}.{older}", f"{_ZERO}.{older}s") if n in self.reader.fields and self.get(n)), None)
        if old is not None and self.reader.said(name):
            self.reader.refuse(old, f"DeepSpeed takes `{old.split('.')[-1]}` or `{table}`, not both", f"keep `{table}`")
        return name if self.get(name) in ("cpu", "nvme") else old

    def _plus(self) -> dict[str, object] | None:
        """The options of ZeRO++, None where it is not used."""
        names = [f"{_ZERO}.zero_{n}" for n in ("hpz_partition_size", "quantized_weights", "quantized_gradients")]
        group, weights, gradients = (self.get(n) for n in names)
        used = {n for n, v in zip(names, (group and group > 1, weights, gradients), strict=True) if v}
        if not used:
            return None
        if self.stage != 3:
            for name in used:
                self.note(name, "used by DeepSpeed at stage 3 alone", Role.NO_MATTER, told=True)
            return None
        node: object = True
        if names[0] in used:
            node = group if self.dp is None else min(group, self.dp)
            if self.dp is not None and self.dp % min(group, self.dp):
                message = f"groups of {group} devices do not divide {self.dp} data-parallel devices"
                self.reader.refuse(names[0], message, "take a divisor: the devices of one node")
        return {"node": node, "qwz": "b_qw" if weights else "b_theta", "qgz": "b_qg" if gradients else "b_g"}

    def _checkpoints(self) -> dict[str, dict[str, object]]:
        split, host = "activation_checkpointing.partition_activations", "activation_checkpointing.cpu_checkpointing"
        interval = "pipeline.activation_checkpoint_interval"
        arguments: dict[str, object] = {"checkpoints": "host"} if self.get(host) else {}
        if self.get(split) and self.tp != 1:
            return {"zero_r": arguments}
        if self.get(split):
            self.note(split, "checkpoints are split over a tensor axis, and this file has none", Role.NOT_MODELLED)
        if self.get(interval) == 1:
            return {"checkpoint": arguments}
        if self.get(interval):
            self.note(interval, "several layers to a checkpoint: less is kept and more recomputed", Role.NOT_MODELLED)
        if self.get(host):
            self.note(host, "checkpoints on the host; whether there are any stands in the program", Role.NOT_MODELLED)
        return {}

    # precision

    def _optimizer(self) -> str:
        name = "optimizer.type"
        said: str = (self.get(name) or "").lower()
        if said and said not in _OPTIMIZERS:
            hint = suggestion(self.get(name), ("Adam", "AdamW", "Lamb", "Lion", "Muon", "SGD", "Adagrad", "OneBitAdam"))
            message = f"`{self.get(name)}` is no optimizer of DeepSpeed or torch.optim"
            self.reader.refuse(name, message, hint or "name an optimizer that DeepSpeed builds, or leave the table out", code="PP503")
        elif said in _ELSEWHERE:
            self.note(name, _ELSEWHERE[said], Role.ANOTHER_STEP)
        elif said in _ROWWISE:
            self.note(name, "an update that looks at whole matrices: not elementwise", Role.NOT_MODELLED)
        return said

    def _type(self) -> str | None:
        """The type of the weights; None where a trainer fills it in."""
        width = next((width for width in ("fp16", "bf16") if self.get(f"{width}.enabled")), None)
        return width or (None if self.auto("fp16.enabled") or self.auto("bf16.enabled") else "fp32")

    def _sums(self) -> str | None:
        """The type in which gradients are added up; None where a trainer fills it in."""
        name = "data_types.grad_accum_dtype"
        return None if self.auto(name) else _WIDTHS[self.get(name)] if self.get(name) else self.weights

    def types(self) -> Types:
        """What is held in which types, where the file says it."""
        host = self._host("offload_optimizer", "cpu_offload") is not None
        return Types(
            weights=self.weights or "",
            sums=self._sums() or "",
            stage=self.stage,
            pipeline=self.pp > 1,
            host=host,
            immediate=bool(self.get("bf16.immediate_grad_update")),
        )

    def precision(self) -> str | None:
        """The named precision that this is, None where none is."""
        width, said, sums = self.weights, "data_types.param_dtype", self._sums()
        if width is not None and self.get(said) and _WIDTHS[self.get(said)] != width:
            self.reader.refuse(said, f"weights are {width}, as `fp16` and `bf16` have it, and not {self.get(said)}", "leave it out")
        casts = self.get("torch_autocast.enabled") or self.auto("torch_autocast.enabled")
        if width is None or sums is None or casts or any(self.get(n) and self._on(n.split(".")[0]) for n in _MASTERS):
            return None
        if sums not in (width, "fp32"):
            self.note("data_types.grad_accum_dtype", "type in which gradients are added up: no named precision has it", told=True)
            return None
        return self._plain(width) if self.optimizer not in _TWO_MOMENTS else self._adam(width)

    def _plain(self, width: str) -> str | None:
        """The precision of optimizers that keep other state than Adam."""
        if self.optimizer in _SGD and width == "fp32":
            return "sgd-momentum" if self.get("optimizer.params.momentum") else "sgd"
        if self.optimizer not in (*_ELSEWHERE, *_ROWWISE):
            self.note("optimizer.type", "the update; no named precision has its state", Role.NOT_MODELLED)
        return None

    def _adam(self, width: str) -> str | None:
        name, why = self.types().adam()
        if why and width == "fp32":
            self.note(self._stage_name(), f"{self.reader.notes[self._stage_name()].text}; {why}", told=True)
        elif why:
            self.note(f"{width}.enabled", f"weights and gradients in {width}; {why}", told=True)
        return name

    def known(self) -> Known:
        """The facts of the file."""
        facts, host = Known(self.reader, meaning("deepspeed")), self._host("offload_optimizer", "cpu_offload")
        if self.get(f"{_ZERO}.stage") in range(4):  # else 0 stands in for it
            facts.put("zero", self.stage, f"{_ZERO}.stage")
        facts.put("pp", self.pp, "pipeline.stages")
        facts.put("split", self.tp, "tensor_parallel.autotp_size")
        facts.put("dp", self.dp, "data_parallel_size")
        facts.put("single", self.dp == 1)
        facts.put("weight_type", self.weights, "fp16.enabled", "bf16.enabled")
        facts.put("grad_type", self._sums(), "data_types.grad_accum_dtype")
        facts.put("offloaded", host is not None, host or f"{_ZERO}.offload_optimizer.device")
        facts.put("opt", self.optimizer if self.optimizer in _OPTIMIZERS else None, "optimizer.type")
        facts.put("shares", self.ep != 1)
        facts.put("whole", self.whole)
        facts.put("sharded", self.sharded)
        facts.derive()
        return facts

    def note_switches(self) -> None:
        """Of tables that are off no setting is of any matter."""
        for reading in self.reader.readings:
            table, _, key = reading.name.partition(".")
            if key and table in _SWITCHES and key != "enabled" and not self._on(table):
                self.reader.notes[reading.name] = Note(Role.NO_MATTER, f"`{table}` is off")

    def _on(self, table: str) -> bool:
        return self.reader.found.get(f"{table}.enabled", _SWITCHES[table]) is not False
