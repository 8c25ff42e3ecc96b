"""DeepSpeed's JSON file as a strategy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.importers.deepspeed_experts import check_experts, devices_note
from placeproof.importers.deepspeed_fields import FIELDS, HARMLESS, SWITCHES, WIDTHS
from placeproof.importers.document import Document, Path
from placeproof.importers.fields import Field, Reader, field
from placeproof.importers.imported import Imported, Reading, Role, expression, misplaced, over_axes

_ZERO = "zero_optimization"
_BATCH, _MICRO, _STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
_MASTERS = (
    "fp16.fp16_master_weights_and_grads",
    *(f"{table}.{name}" for table in ("bf16", "bfloat16") for name in ("bf16_master_weights_and_grads", "bf16_optimizer_states")),
)
_COMPRESSING = ("onebitadam", "zerooneadam", "onebitlamb")
_ROWWISE = ("lamb", "onebitlamb", "muon", "adafactor", "lbfgs")
_TWO_MOMENTS = ("", "adam", "adamw", "muadam", "muadamw", "lamb")
_SGD = ("sgd", "musgd")
_OTHERS = ("adagrad", "lion", "adadelta", "adamax", "asgd", "nadam", "radam", "rmsprop", "rprop", "sparseadam")
_OPTIMIZERS = (*_COMPRESSING, *_ROWWISE, *_TWO_MOMENTS[1:], *_SGD, *_OTHERS)
#: Those that DeepSpeed runs with ZeRO unasked.
_TESTED = ("", "adam", "adamw", "adagrad", "lion", "muon")


def read(document: Document, world: int | None, problems: Problems) -> Imported:
    """Read a configuration of DeepSpeed. Problems are collected; with any, what is returned must not be used."""
    config = _Config(Reader(document, (*FIELDS, *_forms(document.data)), problems, auto=True), world)
    parts, precision = config.parts(), config.precision()
    config.check()
    numbers = {"b": config.micro, "m": config.steps if config.split else None, "V": config.get("vocabulary_size")}
    return Imported(
        system="deepspeed",
        source=document.source,
        expression=expression(over_axes(parts, tokens=config.sp, attention="ulysses", experts=config.ep, whole=config.whole)),
        readings=tuple(config.readings()),
        precision=precision,
        numbers={name: Fraction(value) for name, value in numbers.items() if value is not None},
        without=("elementwise-optimizer",) if config.optimizer in _ROWWISE else (),
    )


def _forms(table: Mapping[str, Any], path: Path = ()) -> Iterator[Field]:
    """Tables that a file may also write as true, false or null."""
    for key, value in table.items():
        name = ".".join(str(p) for p in (*path, key))
        if name == _ZERO and isinstance(value, bool):
            yield field(_ZERO, "bool", Role.READ, "an older form: ZeRO stage 1, or none")
        elif value is None and any(f.name.startswith(name + ".") for f in FIELDS):
            yield field(name, "", Role.NO_MATTER, "nothing is said", None)
        elif isinstance(value, dict):
            yield from _forms(value, (*path, key))


class _Config:
    """The values of a file that depend on each other."""

    def __init__(self, reader: Reader, world: int | None) -> None:
        self.reader, self.world, self.get = reader, world, reader.get
        self.notes: dict[str, tuple[Role | None, str]] = {}
        self.micro, self.steps, self.total = self.get(_MICRO), self.get(_STEPS), self.get(_BATCH)
        self.optimizer = self._optimizer()
        self.stage = self._stage()
        self.tp, self.pp = self._tp(), self.get("pipeline.stages") or 1
        self.dp = self._dp()
        #: Devices that sequences are split over, where the strategy has them.
        self.sp: int = self.get("sequence_parallel_size")
        #: Devices that share experts, None where a trainer fills it in; and whether each is whole while other matrices are split.
        self.ep: int | None = self.get("expert_parallel.autoep_size") if self.get("expert_parallel.enabled") else 1
        self.whole = self.ep != 1 and self.tp != 1
        self._batches()
        #: Whether an update has several micro-batches, or may have.
        self.split = self.pp > 1 or self.steps != 1

    def note(self, name: str, text: str, role: Role | None = None) -> None:
        """Say what became of a setting, in place of the table's note."""
        self.notes[name] = (role, text)

    def auto(self, name: str) -> bool:
        """Whether a trainer fills it in."""
        return name in self.reader.found and self.reader.found[name] is None

    # degrees and batch sizes

    def _stage(self) -> int:
        form = self.reader.found.get(_ZERO)
        if isinstance(form, bool):
            return int(form)
        name = f"{_ZERO}.stage"
        if self.auto(name):
            self.reader.refuse(name, "`auto` leaves the ZeRO stage to the launcher, and no strategy follows", "write 0, 1, 2 or 3")
            return 0
        stage: int = self.get(name)
        if stage not in range(4):
            self.reader.refuse(name, f"there is no ZeRO stage {stage}", "the stages are 0, 1, 2 and 3")
            return 0
        if stage in (1, 2):
            self.note(name, "the ZeRO stage; unless told otherwise DeepSpeed all-reduces where the formulas reduce-scatter")
        elif stage == 3:
            self.note(name, "the ZeRO stage; DeepSpeed keeps up to 1e9 parameters gathered, and the formulas none, unless told otherwise")
        return stage

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
            "sequence_parallel_size": self.get("sequence_parallel_size"),
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
            self._check_batches()
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

    def _check_batches(self) -> None:
        each = self.micro * self.steps
        shown = f"a micro-batch of {self.micro} times {self.steps} micro-batches"
        if self.dp is not None and self.total != each * self.dp:
            message = f"{self.total} is not {shown} times {self.dp} data-parallel devices, which is {each * self.dp}"
            help = "leave one of the three out: it follows from the others"
            if self.tp != 1:
                help += "; DeepSpeed counts tensor-parallel devices here too unless the program passes an mpu"
            self.reader.refuse(_BATCH, message, help)
        elif self.dp is None and self.total % each:
            message = f"{self.total} is no multiple of {shown}, which is {each}"
            self.reader.refuse(_BATCH, message, "leave one of the three out: it follows from the others")
        elif self.dp is None and self.world is None:
            self.dp = self.total // each

    # the strategy

    def parts(self) -> dict[str, dict[str, object]]:
        """The strategies with their arguments."""
        found: dict[str, dict[str, object]] = {}
        name, arguments = self._data()
        if name == "zeropp" and self.sp > 1:
            note = "sequences are split too (Ulysses): dp is divided by it and the axis left out, since ZeRO++ has no axis beside its nodes"
            self.note("sequence_parallel_size", note, Role.NOT_MODELLED)
            self.sp = 1
        if self.ep != 1:
            check_experts(self.reader, name, found=misplaced(self.ep, self.dp, tensor=self.tp, sequence=self.sp))
            self.note("expert_parallel.autoep_size", *devices_note(whole=self.whole, sharded=self.stage > 0))
        rest = self.tp != 1 or self.pp > 1 or (self.sp > 1 and self.stage == 0)
        dp = None if self.dp is None or self.ep is None else max(self.dp // self.ep, 1)
        if dp != 1 or ((self.sp > 1 or self.ep != 1) and self.stage) or name in ("zero_offload", "zero_infinity"):
            found[name] = {"dp": dp, **arguments}
        elif not rest and self.ep == 1:
            found["ddp"] = {"dp": 1}
        if self.tp != 1:
            found["tp"] = {"tp": self.tp}
        if self.pp > 1:
            found["pp"] = {"pp": self.pp, "microbatches": self.steps}
        elif self.auto("pipeline.stages"):
            self.note("pipeline.stages", "the program's PipelineModule decides: no pipeline is read here", Role.NOT_MODELLED)
        found |= self._checkpoints()
        if self.split and self.pp == 1:
            found["accumulate"] = {"microbatches": self.steps}
        return found

    def _data(self) -> tuple[str, dict[str, object]]:
        optimizer, parameters = self._host("offload_optimizer", "cpu_offload"), self._host("offload_param", "cpu_offload_param")
        if parameters and self.stage < 3:
            self.note(parameters, "ignored by DeepSpeed below stage 3", Role.NO_MATTER)
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
                self.note(name, "used by DeepSpeed at stage 3 alone", Role.NO_MATTER)
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
        elif said in _COMPRESSING:
            self.note(name, "compresses what is exchanged: another step", Role.NOT_MODELLED)
        elif said in _ROWWISE:
            self.note(name, "an update that looks at whole matrices: not elementwise")
        return said

    def _type(self) -> str | None:
        """The type of the weights; None where a trainer fills it in."""
        bf16 = "bf16.enabled" if "bf16" in self.reader.document.data else "bfloat16.enabled"
        if self.get("fp16.enabled") and self.get(bf16):
            self.reader.refuse(bf16, "fp16 and bf16 cannot both be enabled", "disable one of them")
        for name, width in (("fp16.enabled", "fp16"), (bf16, "bf16")):
            if self.get(name):
                return width
        return None if self.auto("fp16.enabled") or self.auto(bf16) else "fp32"

    def precision(self) -> str | None:
        """The named precision that this is, None where none is."""
        width = self._type()
        said = "data_types.param_dtype"
        if width is not None and self.get(said) and WIDTHS[self.get(said)] != width:
            self.reader.refuse(said, f"weights in {self.get(said)} here, and in {width} by fp16 and bf16", "leave it out")
        casts = any(self.get(f"{t}.enabled") or self.auto(f"{t}.enabled") for t in ("amp", "torch_autocast"))
        if width is None or casts or any(self.get(n) and self._on(n.split(".")[0]) for n in _MASTERS):
            return None
        name = "data_types.grad_accum_dtype"
        sums = None if self.auto(name) else WIDTHS[self.get(name)] if self.get(name) else width
        if sums not in (width, "fp32"):
            self.note(name, "type in which gradients are added up: no named precision has it")
            return None
        if self.optimizer in _SGD and width == "fp32":
            return "sgd-momentum" if self.get("optimizer.params.momentum") else "sgd"
        if self.optimizer not in _TWO_MOMENTS:
            if self.optimizer not in (*_COMPRESSING, *_ROWWISE):
                self.note("optimizer.type", "the update; no named precision has its state")
            return None
        if width == "fp32" and self.stage:
            self.note(
                f"{_ZERO}.stage", "the ZeRO stage; of weights in fp32 DeepSpeed keeps a master copy too, which no named precision has"
            )
            return None
        if width == "fp32":
            return "fp32-adam"
        return "fp16-fp32grad" if sums == "fp32" else "mixed-adam"

    # what DeepSpeed refuses

    def check(self) -> None:
        """The rules of DeepSpeed about settings that exclude each other."""
        for broken, name, message, help in (*self._rules_of_zero(), *self._rules_of_types()):
            if broken and self._given(name):
                self.reader.refuse(name, message, help)

    def _rules_of_zero(self) -> Iterator[tuple[bool, str, str, str]]:
        stage, scatters = self.stage, self.stage == 2 and bool(self.get(f"{_ZERO}.reduce_scatter"))
        mean, hpz = self.get("gradient_allreduce_op") != "sum", self.get(f"{_ZERO}.zero_hpz_partition_size") or 1
        yield (
            self.pp > 1 and stage > 1, "pipeline.stages", f"DeepSpeed refuses a pipeline with ZeRO stage {stage}",
            "take stage 0 or 1; the rule is DeepSpeed's own, for what it would send: the step itself would be right",
        )  # fmt: skip
        yield (
            self.pp > 1 and self.get("managed_gradient_accumulation") is False, "managed_gradient_accumulation",
            "a pipeline manages its own micro-batches", "leave it true",
        )  # fmt: skip
        yield (not mean and stage == 3, "gradient_allreduce_op", "ZeRO stage 3 averages gradients", "take `mean`, or a lower stage")
        other = self.get("compile.deepcompile") or self._given(f"{_ZERO}.zenflow")
        yield (not mean and bool(other), "gradient_allreduce_op", "ZenFlow and DeepCompile average gradients", "take `mean`")
        yield (
            scatters and mean and self.get("prescale_gradients"), "prescale_gradients",
            "ZeRO stage 2 with `reduce_scatter` divides after the sum", "leave it false, or `reduce_scatter`",
        )  # fmt: skip
        yield (
            scatters and mean and self.get("gradient_predivide_factor") not in (None, 1), "gradient_predivide_factor",
            "ZeRO stage 2 with `reduce_scatter` divides after the sum alone", "leave it out, or set `reduce_scatter` to false",
        )  # fmt: skip
        norm, bucket, ratio = f"{_ZERO}.compute_grad_norm", f"{_ZERO}.allgather_bucket_size", f"{_ZERO}.offload_optimizer.ratio"
        yield (self.get(norm) is False and stage not in (1, 2), norm, "ZeRO stages 1 and 2 alone can leave it out", "leave it true")
        yield (stage in (1, 2) and (self.get(bucket) or 0) % 2 == 1, bucket, "the bucket must be even", "take an even size")
        yield ((self.get(ratio) or 1) < 1 and stage != 3, ratio, "a part of the state is offloaded at stage 3 alone", "leave it at 1")
        yield (
            bool(self.get("expert_parallel.enabled")) and stage == 3 and hpz > 1, f"{_ZERO}.zero_hpz_partition_size",
            "DeepSpeed's experts at stage 3 exclude a secondary shard", "leave it at 1",
        )  # fmt: skip

    def _rules_of_types(self) -> Iterator[tuple[bool, str, str, str]]:
        for name in _MASTERS:
            yield (bool(self.get(name)) and self.stage == 0, name, "this needs ZeRO", "take stage 1, 2 or 3")
        for states, masters in ((_MASTERS[2], _MASTERS[1]), (_MASTERS[4], _MASTERS[3])):
            yield (
                bool(self.get(states)) and not self.get(masters) and not self.auto(masters), states,
                "moments in bf16 need master weights in bf16", "set `bf16_master_weights_and_grads` to true too",
            )  # fmt: skip
        yield (
            self.stage > 0 and self.optimizer in _OPTIMIZERS and self.optimizer not in _TESTED
            and self.get("zero_allow_untested_optimizer") is False,
            "optimizer.type", f"DeepSpeed has not tried `{self.get('optimizer.type')}` with ZeRO",
            "set `zero_allow_untested_optimizer` to true",
        )  # fmt: skip

    # what became of each setting

    def readings(self) -> Iterator[Reading]:
        """The settings, with what the others made of them."""
        for reading in self.reader.readings:
            table, _, key = reading.name.partition(".")
            role, note = self.notes.get(reading.name, (None, reading.note))
            if key and table in SWITCHES and key != "enabled" and not self._on(table):
                role, note = Role.NO_MATTER, f"`{table}` is off"
            elif reading.value is not None and HARMLESS.get(reading.name, (None, ""))[0] == reading.value:
                role, note = Role.NO_MATTER, HARMLESS[reading.name][1]
            yield replace(reading, role=role or reading.role, note=note)

    def _on(self, table: str) -> bool:
        name = f"{table}.enabled"
        return bool(self.reader.found[name] is not False if self._given(name) else SWITCHES[table])
