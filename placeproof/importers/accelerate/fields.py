"""The settings of an Accelerate configuration, of version 1.15 and as older versions wrote them, and what is known while one is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as records
from fractions import Fraction
from typing import Any

from placeproof.importers.document import Document
from placeproof.importers.fields import AUTO, Field, Reader, alike, field
from placeproof.importers.imported import Reading, Role

READ, NOT, NONE = Role.READ, Role.NOT_MODELLED, Role.NO_MATTER

#: What a file may say for FSDP 1, in the order of the numbers 1 to 5.
SHARDING = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
#: Kinds of device whose processes are joined by DistributedDataParallel.
MULTI = tuple(f"MULTI_{d}" for d in ("CPU", "GPU", "MLU", "SDAA", "MUSA", "NPU", "XPU", "HPU", "NEURON"))
_TYPES = ("NO", *MULTI, "FSDP", "DEEPSPEED", "MEGATRON_LM", "XLA", "TPU", "TP", "DATA_PARALLEL", "MODEL_PARALLEL")
_DYNAMO = (
    "NO",
    "EAGER",
    "AOT_EAGER",
    "INDUCTOR",
    "AOT_TS_NVFUSER",
    "NVPRIMS_NVFUSER",
    "CUDAGRAPHS",
    "OFI",
    "FX2TRT",
    "ONNXRT",
    "TENSORRT",
    "AOT_TORCHXLA_TRACE_ONCE",
    "TORCHXLA_TRACE_ONCE",
    "TVM",
    "HPU_BACKEND",
    "NEURON",
    "IPEX",
    "NVFUSER",
    "AOT_NVFUSER",
    "AOT_CUDAGRAPHS",
)


def _cases(*names: str) -> tuple[str, ...]:
    """Names in capitals and in small letters: Accelerate takes either."""
    return tuple(dict.fromkeys([*names, *(n.lower() for n in names), *(n.upper() for n in names)]))


_BACKEND = field("dynamo_backend", "", NONE, "compiles the same operations", *_cases(*_DYNAMO), False)

_TOP = (
    field("compute_environment", "", READ, "where it runs", "LOCAL_MACHINE", "AMAZON_SAGEMAKER", default="LOCAL_MACHINE"),
    # YAML reads an unquoted NO as false, and Accelerate takes that for no distribution
    field("distributed_type", "", READ, "decides the strategy", *_TYPES, False),
    field("num_processes", "int", READ, "devices in all, over all machines; -1: given when it is launched"),
    field("num_machines", "count", READ, "machines: processes divide by it", default=1),
    field("mixed_precision", "", READ, "quote it: YAML takes a bare no for false", *_cases("no", "fp16", "bf16", "fp8")),
    field("fp16", "bool", READ, "an older way to say `mixed_precision: fp16`"),
    field("gpu_ids", "int text", NONE, "which devices of a machine"),
    field("machine_rank", "size", NONE, "which machine this is"),
    field("main_process_ip", "text", NONE, "where the first process is found"),
    field("main_process_port", "size", NONE, "where the first process is found"),
    field("rdzv_backend", "text", NONE, "how processes find one another"),
    field("same_network", "bool", NONE, "how processes find one another"),
    field("main_training_function", "text", NONE, "what is started"),
    field("enable_cpu_affinity", "bool", NONE, "which cores a process runs on"),
    field("use_cpu", "bool", NONE, "the processes compute on CPUs"),
    field("debug", "bool", NONE, "checks shapes before operations between devices"),
    field("downcast_bf16", "bool text", NOT, "on TPUs, doubles become single precision and floats bf16", False, default="no"),
    _BACKEND,
    field("command_file", "text", NONE, "commands before the start on a TPU pod"),
    field("commands", "list", NONE, "commands before the start on a TPU pod"),
    field("tpu_name", "text", NONE, "a name on the cloud"),
    *alike("tpu_zone region", "text", NONE, "a place of the cloud"),
    *alike("tpu_use_cluster tpu_use_sudo", "bool", NONE, "how a TPU pod is reached"),
    field("tpu_vm", "list", NONE, "names of virtual machines"),
    field("tpu_env", "list", NONE, "environment of a TPU pod"),
    field("ec2_instance_type", "text", NONE, "the kind of machine on SageMaker"),
    field("iam_role_name", "text", NONE, "rights on SageMaker"),
    field("image_uri", "text", NONE, "the container on SageMaker"),
    field("profile", "text", NONE, "an account's name"),
    field("base_job_name", "text", NONE, "a name"),
    *alike("pytorch_version transformers_version", "text number", NONE, "a version on SageMaker"),
    field("py_version", "text", NONE, "a version on SageMaker"),
    field("sagemaker_inputs_file", "text", NONE, "where data lie"),
    field("sagemaker_metrics_file", "text", NONE, "what is logged"),
    field("additional_args", "table", NOT, "arguments to SageMaker's launcher, which may say anything"),
)

_PREFETCH = _cases("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH")
_FSDP = (
    field("fsdp_version", "", READ, "which FSDP: 1, or fully_shard (2)", 1, 2, "1", "2", default=1),
    field("fsdp_sharding_strategy", "int text", READ, "what FSDP 1 shards, and over which devices"),
    field("fsdp_reshard_after_forward", "bool int text", READ, "whether gathered parameters are dropped after forward"),
    field("fsdp_offload_params", "bool", NOT, "keeps shards and their update in host memory", default=False),
    field("fsdp_min_num_params", "size", NONE, "how large a unit is: U"),
    field(
        "fsdp_auto_wrap_policy",
        "",
        READ,
        "what a unit is",
        *_cases("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"),
        default="NO_WRAP",
    ),
    field("fsdp_transformer_layer_cls_to_wrap", "text list", NONE, "which layers are units: U and n_u"),
    field(
        "fsdp_backward_prefetch",
        "",
        READ,
        "whether backward gathers the next unit early",
        *_PREFETCH,
        "1",
        "2",
        1,
        2,
    ),
    field("fsdp_backward_prefetch_policy", "", READ, "an older name of fsdp_backward_prefetch", *_PREFETCH),
    field("fsdp_forward_prefetch", "bool", READ, "whether forward gathers the next unit early", default=False),
    field(
        "fsdp_state_dict_type",
        "",
        NONE,
        "the form of saved files",
        *_cases("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"),
        *("1", "2", "3", 1, 2, 3),
    ),
    field("fsdp_use_orig_params", "bool", NONE, "what the optimizer sees: views, or one flat tensor"),
    field("fsdp_cpu_ram_efficient_loading", "bool", NONE, "only the first process loads the weights"),
    field("fsdp_sync_module_states", "bool", NONE, "the first process sends its weights at the start"),
    field("fsdp_activation_checkpointing", "bool", READ, "layers keep their inputs alone and are computed again", default=False),
    field("fsdp_activation_checkpointing_offload", "bool", READ, "kept inputs lie in host memory", default=False),
    field("fsdp_ignored_modules", "text list", NOT, "these modules are not sharded: each device holds them whole"),
)

_PLACES = _cases("none", "cpu", "nvme")
_DEEPSPEED = (
    field("deepspeed_config_file", "text", READ, "decides the strategy: its settings are read, too"),
    field("zero_stage", "", READ, "the ZeRO stage", 0, 1, 2, 3, "0", "1", "2", "3", default=2),
    field("gradient_accumulation_steps", "count", READ, "micro-batches between updates: m", AUTO),
    field("gradient_clipping", "amount", NOT, "scales gradients by their norm over all parameters", AUTO),
    field("offload_optimizer_device", "", READ, "where the optimizer state lies", *_PLACES, default="none"),
    field("offload_param_device", "", READ, "where parameters lie", *_PLACES, default="none"),
    *alike("offload_optimizer_nvme_path offload_param_nvme_path", "text", NONE, "a path"),
    field("zero3_init_flag", "bool", NONE, "parameters are sharded as they are made"),
    field("zero3_save_16bit_model", "bool", NONE, "the form of saved files"),
    field("deepspeed_moe_layer_cls_names", "text", NOT, "these layers are gathered whole: a larger unit"),
    *alike("deepspeed_hostfile deepspeed_exclusion_filter deepspeed_inclusion_filter", "text", NONE, "which machines"),
    field("deepspeed_multinode_launcher", "text", NONE, "how processes are started"),
    field("seq_parallel_communication_data_type", "text", NONE, "nothing reads it in this file"),
)

_MEGATRON = (
    field("tp_degree", "count", READ, "degree of tensor parallelism", default=1),
    field("pp_degree", "count", READ, "degree of pipeline parallelism", default=1),
    field("num_micro_batches", "count", READ, "micro-batches between updates: m"),
    field("sequence_parallelism", "bool", READ, "sequence parallelism over the tensor axis", default=False),
    field("use_distributed_optimizer", "bool", READ, "shards the optimizer state", default=False),
    field("recompute_activations", "bool", NOT, "computes the attention of each layer again in backward", default=False),
    field("recompute_granularity", "", READ, "what is computed again in backward", "full", "selective"),
    field("recompute_method", "", READ, "which layers are computed again", "uniform", "block"),
    field("recompute_num_layers", "count", READ, "how many layers share a kept input"),
    field("gradient_clipping", "amount", NOT, "scales gradients by their norm over all parameters"),
    field("context_parallel_size", "count", READ, "splits the sequence of each sample over devices: the axis cp", default=1),
    field("expert_model_parallel_size", "count", READ, "devices that share experts", default=1),
    field("expert_tensor_parallel_size", "count", READ, "devices that an expert is split over", default=1),
    field("use_custom_fsdp", "bool", NOT, "shards parameters too, in Megatron's own way", default=False),
    field("optimizer_cpu_offload", "bool", NOT, "keeps the optimizer state in host memory", default=False),
    field("overlap_cpu_optimizer_d2h_h2d", "bool", NONE, "when copies to the host happen"),
    field("use_precision_aware_optimizer", "bool", NOT, "keeps optimizer state in other widths", default=False),
    field("decoder_last_pipeline_num_layers", "count", NOT, "makes the last stage smaller or larger than the others"),
    *alike("attention_dropout hidden_dropout", "fraction", NOT, "zeroes random activations: other ones on each device", default=0),
    field("eod_mask_loss", "bool", NOT, "leaves tokens out of the loss: counts differ between devices", default=False),
    field("calculate_per_token_loss", "bool", NOT, "divides by the tokens of all devices instead of each one's own", default=False),
    *alike("no_load_optim no_save_optim", "bool", NONE, "what a checkpoint holds"),
    field("attention_backend", "bool text", NONE, "a kernel with the same result"),
    field("attention_softmax_in_fp32", "bool", NONE, "rounding inside a kernel"),
    field("use_rotary_position_embeddings", "bool", NONE, "part of the model"),
)

_PARALLELISM = (
    field("dp_replicate_size", "count", READ, "copies of the model's shards", default=1),
    field("dp_shard_size", "count", READ, "devices that FSDP shards over", default=1),
    field("tp_size", "count", READ, "degree of tensor parallelism", default=1),
    field("cp_size", "count", READ, "splits the sequence of each sample over devices: the axis cp", default=1),
    field("cp_backend", "", NONE, "how context parallelism is done", "torch"),
    field("cp_comm_strategy", "", READ, "how context parallelism exchanges keys and values", "allgather", "alltoall"),
    field("sp_size", "count", READ, "splits the sequence of each sample over devices (Ulysses): the axis cp", default=1),
    field("sp_backend", "", NONE, "how Ulysses is done", "deepspeed"),
    field("sp_seq_length", "count", NONE, "tokens of a sample where all are as long: s"),
    field("sp_seq_length_is_variable", "bool", NONE, "samples may differ in length"),
    field("sp_attn_implementation", "text", NONE, "a kernel with the same result"),
)

_BITS = "how numbers are rounded to 8 bits"
_FP8 = (
    *alike(
        "fp8_backend fp8_format fp8_amax_compute_algo fp8_amax_compute_algorithm fp8_opt_level fp8_optimization_level", "text", NOT, _BITS
    ),
    *alike("fp8_margin fp8_interval fp8_amax_history_len fp8_amax_history_length", "size", NOT, _BITS),
    *alike("fp8_use_autocast_during_eval fp8_use_during_eval fp8_pad_inner_dim fp8_enable_fsdp_float8_all_gather", "bool", NOT, _BITS),
    field("fp8_override_linear_precision", "list text bool", NOT, _BITS),
)

_DYNAMO_FIELDS = (
    _BACKEND,
    field("dynamo_mode", "text", NONE, "how long compiling may take"),
    field("dynamo_use_fullgraph", "bool", NONE, "how much is compiled at once"),
    field("dynamo_use_dynamic", "bool", NONE, "compiles for shapes that vary"),
    field("dynamo_use_regional_compilation", "bool", NONE, "compiles a repeated layer once"),
)

_OTHERS = (
    *alike("ipex_config.ipex ipex_config.use_xpu", "bool", NONE, "kernels of another library"),
    field("mpirun_config.mpirun_hostfile", "text", NONE, "which machines"),
    field("mpirun_config.mpirun_ccl", "size", NONE, "threads of the communication library"),
    field("tp_config.tp_size", "count", READ, "degree of tensor parallelism, as Accelerate 1.3 wrote it", default=1),
)


def _within(table: str, fields: Iterable[Field], before: str = "", *, short: bool = False) -> Iterator[Field]:
    """The fields inside a table; ``short``: the names may also stand without the prefix that they share with their table."""
    for known in fields:
        yield replace(known, name=f"{table}.{before}{known.name}")
        if short:
            yield replace(known, name=f"{table}.{known.name.partition('_')[2]}")


FIELDS: tuple[Field, ...] = (
    *_TOP,
    *_within("fsdp_config", _FSDP, short=True),
    *_within("deepspeed_config", _DEEPSPEED),
    *_within("megatron_lm_config", _MEGATRON, "megatron_lm_"),
    *_within("parallelism_config", _PARALLELISM, "parallelism_config_"),
    *_within("fp8_config", _FP8, short=True),
    *_within("dynamo_config", _DYNAMO_FIELDS, short=True),
    *_OTHERS,
)
#: Tables that are read for one kind of distribution alone.
OWNED = {"fsdp_config": "FSDP", "deepspeed_config": "DEEPSPEED", "megatron_lm_config": "MEGATRON_LM", "tp_config": "TP"}


def without_empty(document: Document) -> tuple[Document, list[Reading]]:
    """The document without null and empty tables, which say nothing, and readings of those."""
    tables = {f.name.partition(".")[0] for f in FIELDS if "." in f.name}
    known = {f.name for f in FIELDS} | tables
    empty: list[Reading] = []

    def keep(table: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
        for key, value in table.items():
            name = f"{before}{key}"
            if name in known and (value is None or (value == {} and name in tables)):
                place = document.place(*name.split("."))
                empty.append(Reading(name=name, value=value, role=Role.NO_MATTER, note="says nothing", place=place))
            else:
                yield key, dict(keep(value, f"{name}.")) if isinstance(value, dict) and name in tables else value

    return replace(document, data=dict(keep(document.data, ""))), empty


@dataclass(slots=True)
class Run:
    """What is known while a file is read. ``kind``: its `distributed_type`; ``world``: devices, None where open."""

    reader: Reader
    kind: str
    world: int | None = None
    machines: int = 1
    #: Whether the sizes of `parallelism_config` were found not to multiply to the world.
    uneven: bool = False
    marks: dict[str, tuple[Role, str, bool]] = records(default_factory=dict)
    numbers: dict[str, Fraction] = records(default_factory=dict)
    #: What is to be told of settings that the file leaves out.
    unsaid: dict[str, str] = records(default_factory=dict)

    def name(self, name: str) -> str:
        """The name as the file writes it: FSDP's settings may stand without their prefix."""
        short = name.replace(".fsdp_", ".", 1).replace(".fp8_", ".", 1)
        return short if short in self.reader.found and name not in self.reader.found else name

    def get(self, name: str) -> Any:
        """What is said, or the default."""
        return self.reader.get(self.name(name))

    def said(self, name: str) -> bool:
        """Whether the file says it."""
        return self.reader.said(self.name(name))

    def mark(self, name: str, note: str, role: Role = Role.READ, *, told: bool = False) -> None:
        """What became of a setting, where the table cannot know it."""
        self.marks[self.name(name)] = (role, note, told)

    def say(self, name: str, note: str) -> None:
        """Tell what a value does, be it said or the default."""
        if self.said(name):
            self.mark(name, note, told=True)
        else:
            self.unsaid[self.name(name)] = note

    def refuse(self, name: str, message: str, help: str, code: str = "PP504", notes: tuple[str, ...] = ()) -> None:
        """A problem with a setting, at its place."""
        self.reader.refuse(self.name(name), message, help, code, notes)

    def over(self, degrees: Mapping[str, int]) -> int | None:
        """The world divided by other degrees; a problem where it does not divide."""
        product = 1
        for degree in degrees.values():
            product *= degree
        if self.world is None:
            return None
        if self.world % product and not self.uneven:
            name = [n for n, d in degrees.items() if d > 1][-1]
            shown = " * ".join(str(d) for d in degrees.values() if d > 1)
            self.refuse(name, f"{self.world} processes are no multiple of {shown}", "the number of processes is the product of all degrees")
        return max(self.world // product, 1)
