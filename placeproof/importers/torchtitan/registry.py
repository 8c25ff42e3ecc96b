"""torchtitan's configurations as functions of Python (pytorch/torchtitan@b5bcd76c66d0:torchtitan/config/configs.py and trainer.py).

They say what its TOML files said, most of it by the same names, and are read as such a file. Since August 2026 (73aed7f6c) batches are
counted in tokens; before, in samples, and classes had other names.
"""

from __future__ import annotations

from typing import Any

from placeproof.core.diagnostics import Problems
from placeproof.importers.document import Document
from placeproof.importers.python import Made, Module, Settings, shown

#: Tables whose settings have the names of a TOML file, and classes that make them.
_TABLES = {
    "training": "TrainingConfig",
    "parallelism": "ParallelismConfig",
    "compile": "CompileConfig",
    "comm": "CommConfig",
    "debug": "DebugConfig",
    "lr_scheduler": "LRSchedulersContainer.Config",
    "activation_checkpoint": "ActivationCheckpointConfig",
}
_RECOMPUTED = {"FullAC": "full", "SelectiveAC": "selective", "MemoryBudgetAC": "memory_budget"}
#: Names that a setting has in a TOML file, where it is another one.
_NAMES = {
    ("compile", "enable_async_tensor_parallel"): ("parallelism", "enable_async_tensor_parallel"),
    ("parallelism", "num_pp_microbatches"): ("parallelism", "pipeline_parallel_microbatches"),
    ("training", "max_context_length"): ("training", "seq_len"),
}
_TRAINER = "Trainer.Config"
#: Parts of a run that decide nothing of a step.
_APART = ("hf_assets_path", "dump_folder", "profiler", "profiling", "metrics", "tokenizer", "dataloader", "checkpoint", "validator")
#: Parts that are made by one class, or by a function that makes it with one optimizer for all parameters.
_CONTAINER, _ADAMW, _GROUP = "OptimizersContainer.Config", "default_adamw", "ParamGroupConfig"
_EARLY = "OptimizersInBackwardContainer.Config"
_CONVERTED = "ModelConvertersContainer.Config"
#: What a model is made by, its arguments that decide nothing here, and the converter that puts adapters beside its matrices.
_REGISTRY = "model_registry"
_VARIANTS = ("flavor", "attn_backend", "moe_comm_backend", "non_blocking_capacity_factor", "num_mtp_layers", "tp_gemm_backend")
ADAPTERS = "LoRAConverter"
#: Classes and functions that have to be torchtitan's own.
_LOSSES = ("CrossEntropyLoss", "ChunkedLossWrapper", "ChunkedCELoss")
_OWN = {
    name.partition(".")[0] for name in (*_TABLES.values(), *_RECOMPUTED, _CONTAINER, _ADAMW, _GROUP, _EARLY, _CONVERTED, *_LOSSES, ADAPTERS)
}
_MICRO, _STEP, _CONTEXT = "num_tokens_per_microbatch_per_dp_rank", "num_tokens_per_train_step", "max_context_length"
_PARTS, _SIZE = "num_pp_microbatches", "pipeline_parallel_microbatch_size"
_SAMPLES = ("local_batch_size", "global_batch_size", "seq_len")
_TOKENS = {_MICRO: 16384, _STEP: -1, _CONTEXT: 2048}


class Registry(Document):
    """A configuration that is a function of Python."""


class Tokens(Registry):
    """A configuration of the versions that count batches in tokens. They wrap every model in FSDP, however many devices there are."""


def _is(value: Any, name: str) -> bool:
    """Whether a value was made by a class of this name."""
    return isinstance(value, Made) and (value.name == name or value.name.endswith(f".{name}"))


def document(text: str, source: str, name: str, problems: Problems) -> Document:
    """What a function of a registry returns, as a TOML file would say it. ``name``: of the function; empty for the one that there is."""
    module = Module(text, source, problems, makers=(_REGISTRY,))
    configs = [one for one, node in module.functions.items() if not node.args.args and not one.startswith("_")]
    name = name or module.only(configs, "configurations")
    made = module.result(name)
    if not _is(made, _TRAINER):
        node = made.node if isinstance(made, Made) else module.functions[name]
        message = f"it returns `{shown(made)}`, and what `{_TRAINER}(...)` says is read alone"
        problems.add("PP504", message, place=module.place(node), help="it trains in a way of its own, or is made in another file")
        problems.raise_if_any()
    settings = Settings(module)
    settings.put(("job", "description"), name, made.node)
    settings.whole(made)
    for own in sorted(_OWN | {"Trainer"}):
        for origin, node in module.sources(own):
            if origin.partition(".")[0] != "torchtitan" or ":" in origin:
                settings.refuse(f"`{own}` is not torchtitan's own: it is from `{origin}`", node, "what it does is not known")
    for key, value in made.said.items():
        _field(settings, key, value, made.places[key])
    tokens = _batches(settings, made)
    problems.raise_if_any()
    kind = Tokens if tokens else Registry
    return kind(data=settings.data, source=source, text=text, spans=settings.spans, open=settings.open, typed=True)


def _field(settings: Settings, key: str, value: Any, node: Any) -> None:
    """One argument of the trainer's."""
    classes = [short for short in _RECOMPUTED if _is(value, f"{short}.Config")]
    if key == "activation_checkpoint" and (classes or value is None):
        settings.put((key, "mode"), _RECOMPUTED[classes[0]] if classes else "none", node)
    elif key in _TABLES:
        _table(settings, key, value, node)
    elif key == "optimizer":
        _optimizer(settings, value, node)
    elif key == "model_spec":
        _model(settings, value, node)
    elif key == "model_converters":
        _converters(settings, value.said.get("converters") if _is(value, _CONVERTED) else value, node)
    elif key == "loss":
        _loss(settings, value, node)
    elif key not in _APART:
        settings.put((key,), shown(value) if isinstance(value, Made) else value, node)


def _table(settings: Settings, key: str, value: Any, node: Any) -> None:
    """A table of settings that have names of their own. One of which attributes alone were set has no name."""
    if not (_is(value, _TABLES[key]) or (isinstance(value, Made) and not value.name)):
        settings.refuse(f"`{key}` is `{shown(value)}`, which is not followed", node, f"write `{_TABLES[key]}(...)`")
        return
    settings.whole(value)
    for inner, said in value.said.items():
        if key != "training" or inner not in (_MICRO, _STEP):
            settings.put(_NAMES.get((key, inner), (key, inner)), said, value.places[inner])


def _optimizer(settings: Settings, value: Any, node: Any) -> None:
    """The optimizer: one for all parameters, or one for each group of them."""
    groups = value.said.get("param_groups") if isinstance(value, Made) else None
    names = {""}
    if isinstance(groups, list) and groups and _is(value, _CONTAINER):
        settings.whole(value)
        said = [group.said.get("optimizer_name") if _is(group, _GROUP) and not group.starred else None for group in groups]
        names = {one if isinstance(one, str) else "" for one in said}
    elif isinstance(value, Made) and groups is None and _is(value, _ADAMW):
        names = {"AdamW"}
    elif isinstance(value, Made) and groups is None and (not value.name or _is(value, _CONTAINER) or _is(value, _EARLY)):
        settings.whole(value)
        name = value.said.get("name", "AdamW")
        names = {name if isinstance(name, str) else ""}
    if "" in names:
        settings.refuse(f"the optimizer is `{shown(value)}`, which is not followed", node, f"write `{_ADAMW}(...)` or groups by name")
        return
    elementwise = names <= {"Adam", "AdamW"}
    settings.put(("optimizer", "name"), "AdamW" if elementwise and "AdamW" in names else " and ".join(sorted(names)), node)
    if _is(value, _EARLY):
        settings.put(("optimizer", "early_step_in_backward"), True, node)
    if "implementation" in value.said:
        settings.put(("optimizer", "implementation"), value.said["implementation"], value.places["implementation"])


def _model(settings: Settings, value: Any, node: Any) -> None:
    """The model: its converters."""
    others = [name for name in value.said if name not in (*_VARIANTS, "converters")] if isinstance(value, Made) else []
    if not _is(value, _REGISTRY) or value.starred or len(value.given) > 1 or others:
        what = f"`{others[0]}` of it" if others else f"`{shown(value)}`"
        settings.refuse(f"the model is not as `{_REGISTRY}` makes it: {what} is not followed", node, f"write `{_REGISTRY}(...)`, by name")
        return
    _converters(settings, value.said.get("converters"), node)


def _converters(settings: Settings, converters: Any, node: Any) -> None:
    """What is made of a model's matrices before it is trained."""
    if not isinstance(converters, list | None):
        settings.refuse(f"what changes the model is `{shown(converters)}`, which is not followed", node, "write the list of converters")
        return
    names = [one.name.removesuffix(".Config").rpartition(".")[2] if isinstance(one, Made) else shown(one) for one in converters or []]
    if names:
        settings.put(("model", "converters"), names, node)
    for one in converters or []:
        if _is(one, f"{ADAPTERS}.Config"):
            settings.whole(one)
            for inner, said in one.said.items():
                settings.put(("lora", inner), said, one.places[inner])


def _loss(settings: Settings, value: Any, node: Any) -> None:
    names = [value.name.removesuffix(".Config")] if isinstance(value, Made) else [shown(value)]
    inner = value.said.get("loss_fn") if isinstance(value, Made) else None
    names += [inner.name.removesuffix(".Config")] if isinstance(inner, Made) else []
    settings.put(("loss", "name"), " of ".join(names), node)


def _batches(settings: Settings, made: Made) -> bool:
    """How large batches are. Returns whether tokens of them are counted, which are said in samples of the longest context."""
    tables = [made.said.get(key) for key in ("training", "parallelism")]
    training, parallelism = (table if isinstance(table, Made) else Made("", made.node) for table in tables)
    samples, tokens = [name for name in _SAMPLES if name in training.said], [name for name in _TOKENS if name in training.said]
    piped, parts = parallelism.said.get("pipeline_parallel_degree", 1) != 1, parallelism.said.get(_PARTS, 1)
    if samples and (tokens or _PARTS in parallelism.said):
        other = tokens[0] if tokens else _PARTS
        settings.refuse(f"`{samples[0]}` and `{other}` are of different versions", training.places[samples[0]], "say one of them", "PP503")
    elif piped and not tokens and not samples and _PARTS not in parallelism.said and _SIZE not in parallelism.said:
        message = "versions of torchtitan cut a batch that is not said into different numbers of micro-batches"
        settings.refuse(message, parallelism.node, f"say `{_PARTS}`, or `{_SAMPLES[0]}`")
    if samples or _SIZE in parallelism.said:
        return False
    said, node = {name: training.said.get(name, value) for name, value in _TOKENS.items()}, training.node
    for name in tokens:
        node = training.places[name]
    if not all(isinstance(value, int) and not isinstance(value, bool) for value in (*said.values(), parts)):
        settings.refuse("how many tokens a batch has is not followed", node, "write the numbers themselves")
        return True
    parts = parts if piped else 1
    micro, step, context = said[_MICRO], said[_STEP], said[_CONTEXT]
    if min(micro, context, parts) < 1:
        settings.refuse("a batch has a whole number of tokens above 0", node, "write a number above 0", "PP503")
    elif micro % context:
        message = f"{micro} tokens of a micro-batch are no whole samples of {context}: they are packed, and `b` counts whole samples"
        settings.refuse(message, node, f"ask about a multiple of {context}")
    elif step != -1 and step % context:
        settings.refuse(f"{step} tokens of a step are no whole samples of {context}", node, f"ask about a multiple of {context}")
    else:
        settings.put(("training", "local_batch_size"), micro * parts // context, node)
        settings.put(("training", "seq_len"), context, node)
        settings.put(("training", "global_batch_size"), -1 if step == -1 else step // context, node)
        if piped and _PARTS not in parallelism.said:
            settings.put(("parallelism", "pipeline_parallel_microbatches"), parts, node)
    return True
