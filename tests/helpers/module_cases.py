"""Random training steps of real modules, as PyTorch's documentation says that they can be configured; and what PyTorch does in them.

What is measured is read from PyTorch itself: operations of c10d as they are dispatched, and storages. Nothing of placeproof's is used but
what starts processes, so that its predictions can be held against it. The same seed gives the same case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any

WARM = 4
OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "adamw": ("AdamW", {}),
    "adam": ("Adam", {}),
    "adamw-amsgrad": ("AdamW", {"amsgrad": True}),
    "sgd": ("SGD", {}),
    "sgd-momentum": ("SGD", {"momentum": 0.9}),
    "adafactor": ("Adafactor", {}),
    "rmsprop": ("RMSprop", {}),
    "rmsprop-momentum": ("RMSprop", {"momentum": 0.9}),
    "adagrad": ("Adagrad", {}),
    "adadelta": ("Adadelta", {}),
    "adamax": ("Adamax", {}),
    "nadam": ("NAdam", {}),
    "radam": ("RAdam", {}),
}
MODELS = ("llama", "gpt2", "mixtral", "conv", "mlp", "lora")
WRAPS = ("ddp", "ddp", "ddp", "zero", "fsdp2", "fsdp2", "fsdp2", "hsdp", "fsdp1", "fsdp1")
HYBRID = 4


@dataclass(frozen=True, kw_only=True)
class Case:
    """One configuration. ``sizes``: of the model; ``wrap``: the class around it, with ``options`` by PyTorch's own names."""

    seed: int
    model: str
    sizes: dict[str, Any]
    frozen: str
    dtype: str
    world: int
    wrap: str
    options: dict[str, Any]
    optimizer: str
    given: str
    passes: int
    no_sync: bool


def random_case(seed: int, models: tuple[str, ...] = MODELS) -> Case:
    """A case on two to four processes."""
    draw = Random(seed)
    model, wrap = draw.choice(models), draw.choice(WRAPS)
    world = HYBRID if wrap == "hsdp" else draw.choice([2, 2, 3, 4])
    sizes = _sizes(draw, model, wrap)
    options = {"ddp": _ddp, "zero": _ddp, "fsdp2": _fsdp2, "hsdp": _fsdp2, "fsdp1": _fsdp1}[wrap](draw, world)
    if options.get("sharding_strategy") == "HYBRID_SHARD":
        world = HYBRID
    if wrap == "zero":
        options["parameters_as_bucket_view"] = draw.random() < 0.4
    if sizes.get("idle") and wrap in ("ddp", "zero"):  # without either of these PyTorch stops
        options[draw.choice(["find_unused_parameters", "static_graph"])] = True
    passes = draw.choice([1, 1, 2, 3])
    case = Case(
        seed=seed,
        model=model,
        sizes=sizes,
        frozen=draw.choice(["none", "none", "embedding", "first", "biases", "norms", "some"]),
        dtype=draw.choice(["float32", "float32", "float32", "bfloat16", "mixed", "frozen half"]),
        world=world,
        wrap=wrap,
        options=options,
        optimizer=draw.choice(["adamw", "sgd-momentum", "adafactor", *OPTIMIZERS]),
        given=draw.choice(["trained", "all"]),
        passes=passes,
        no_sync=passes > 1 and draw.random() < 0.5,
    )
    return case if draw.random() < 0.1 else _possible(case)


def _possible(case: Case) -> Case:
    """The case without what PyTorch is known to refuse."""
    options, dtype = dict(case.options), "float32" if (case.model, case.dtype) == ("conv", "mixed") else case.dtype
    if case.wrap in ("fsdp2", "hsdp") and dtype == "mixed":
        dtype = "float32"
    if case.wrap == "fsdp1":
        options["use_orig_params"] |= case.frozen != "none" or case.model == "lora"
        dtype = "bfloat16" if dtype == "bfloat16" else "float32"
    if case.wrap == "zero" and dtype == "mixed":
        dtype = "float32"
    if case.passes > 1 and case.no_sync:
        options.pop("static_graph", None)
        if case.sizes.get("idle") and case.wrap in ("ddp", "zero"):
            options["find_unused_parameters"] = True
    return replace(case, options=options, dtype=dtype)


def _sizes(draw: Random, model: str, wrap: str) -> dict[str, Any]:
    large = draw.random() < 0.4
    if model in ("llama", "gpt2", "mixtral"):
        heads = draw.choice([2, 4])
        unit = 8 if model == "mixtral" else 2  # its experts ask for that in half precision
        hidden = heads * (unit if model == "mixtral" and not large else 2 * draw.choice([16, 24] if large else [3, 5]))
        return {
            "layers": draw.randint(1, 4),
            "hidden": hidden,
            "heads": heads,
            "ffn": unit * draw.randint(hidden // unit, 3 * hidden // unit),
            "vocab": draw.randint(600, 1200) if large else draw.randint(30, 90),
            "tied": draw.random() < 0.5,
        }
    if model == "conv":
        norms = ["batch", "group", "mixed"] if wrap not in ("fsdp2", "hsdp") else ["group"]  # half a batch norm does not run here
        return {"width": draw.choice([5, 6, 32]), "blocks": draw.randint(1, 3), "norm": draw.choice(norms)}
    widths = [draw.randint(1, 300 if large else 31) for _ in range(draw.randint(2, 5))]
    return {"widths": widths, "idle": draw.choice(["", "", "module", "unit"]) if model == "mlp" else ""}


def _ddp(draw: Random, world: int) -> dict[str, Any]:
    every = {
        "bucket_cap_mb": draw.choice([0.0003, 0.01, 0.2, 1, 3]),
        "find_unused_parameters": True,
        "static_graph": True,
        "gradient_as_bucket_view": True,
        "broadcast_buffers": False,
    }
    return {name: value for name, value in every.items() if draw.random() < 0.25}


def _fsdp2(draw: Random, world: int) -> dict[str, Any]:
    options: dict[str, Any] = {"reshard_after_forward": draw.choice([None, None, True, False, 2 if world == HYBRID else None])}
    if draw.random() < 0.35:
        options["param_dtype"] = draw.choice(["bfloat16", None])
        options["reduce_dtype"] = draw.choice(["float32", "bfloat16", None])
    return options


def _fsdp1(draw: Random, world: int) -> dict[str, Any]:
    strategies = ["FULL_SHARD", "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"]
    options: dict[str, Any] = {"sharding_strategy": draw.choice(strategies), "use_orig_params": draw.random() < 0.6}
    if draw.random() < 0.3:
        options["param_dtype"] = "bfloat16"
        options["reduce_dtype"] = draw.choice(["float32", None])
    return options


# Modules.


@dataclass
class Built:
    """A module, the modules that are wrapped by themselves, and what makes a loss of it on a batch of a rank."""

    module: Any
    units: list[Any]
    loss: Callable[[Any, int], Any]


def build(case: Case) -> Built:
    """The module of a case with random parameters, some frozen, and of its types."""
    import torch

    torch.manual_seed(case.seed)
    built = {"llama": _language, "gpt2": _language, "mixtral": _language, "conv": _conv, "mlp": _mlp, "lora": _mlp}[case.model](case)
    _freeze(case, built)
    kinds = {"bfloat16": torch.bfloat16, "mixed": torch.bfloat16, "float32": torch.float32, "frozen half": torch.float32}
    built.module.to(kinds[case.dtype])
    for name, parameter in built.module.named_parameters():
        if case.dtype == "mixed" and (parameter.dim() == 1 or "norm" in name):
            parameter.data = parameter.data.float()
        if case.dtype == "frozen half" and not parameter.requires_grad:
            parameter.data = parameter.data.bfloat16()
    if case.dtype != "float32":
        plain = built.loss

        def loss(module: Any, rank: int) -> Any:
            with torch.autocast("cpu", torch.bfloat16):
                return plain(module, rank)

        built.loss = loss
    return built


def _freeze(case: Case, built: Built) -> None:
    named = list(dict(built.module.named_parameters()).items())
    draw = Random(case.seed + 1)
    first = {id(p) for p in built.units[0].parameters()} | {id(named[0][1])}
    tests: dict[str, Callable[[str, Any], bool]] = {
        "none": lambda *_: False,
        "embedding": lambda *_: False,
        "first": lambda _, p: id(p) in first,
        "biases": lambda name, _: not name.endswith("bias"),
        "norms": lambda _, p: p.dim() == 1,
        "some": lambda *_: draw.random() < 0.5,
    }
    frozen = [p for name, p in named if tests[case.frozen](name, p)] if case.model != "lora" else [p for n, p in named if "low" not in n]
    if case.frozen == "embedding":
        frozen.append(named[0][1])
    if len(frozen) < len(named):
        for parameter in frozen:
            parameter.requires_grad_(False)


def _language(case: Case) -> Built:
    import torch
    from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MixtralConfig

    s = case.sizes
    common: dict[str, Any] = {"vocab_size": s["vocab"], "tie_word_embeddings": s["tied"], "use_cache": False}
    llama = {
        "hidden_size": s["hidden"],
        "intermediate_size": s["ffn"],
        "num_hidden_layers": s["layers"],
        "num_attention_heads": s["heads"],
        "num_key_value_heads": s["heads"] // 2,
        "max_position_embeddings": 32,
    }
    config: Any
    if case.model == "gpt2":
        config = GPT2Config(**common, n_embd=s["hidden"], n_layer=s["layers"], n_head=s["heads"], n_positions=32, n_inner=s["ffn"])
    elif case.model == "mixtral":
        config = MixtralConfig(**common, **llama, num_local_experts=3, num_experts_per_tok=2)
    else:
        config = LlamaConfig(**common, **llama)
    module = AutoModelForCausalLM.from_config(config)

    def loss(model: Any, rank: int) -> Any:
        ids = torch.arange(2 * 6).reshape(2, 6).add(rank) % s["vocab"]
        return model(input_ids=ids, labels=ids).loss

    return Built(module, list(module.transformer.h if case.model == "gpt2" else module.model.layers), loss)


def _conv(case: Case) -> Built:
    import torch
    from torch import nn

    width, kind = case.sizes["width"], case.sizes["norm"]

    def norm(at: int) -> nn.Module:
        return nn.BatchNorm2d(width) if kind == "batch" or (kind == "mixed" and at % 2) else nn.GroupNorm(1, width)

    class Block(nn.Module):
        def __init__(self, at: int) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1, bias=bool(at % 2)), norm(at)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.relu(self.norm(self.conv(x)))

    blocks = [Block(at) for at in range(case.sizes["blocks"])]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 7))
    module = nn.Sequential(nn.Conv2d(3, width, 3), norm(1), *blocks, head)
    return Built(module, blocks, lambda m, rank: m(torch.full((2, 3, 8, 8), 0.25 + rank)).float().square().mean())


def _mlp(case: Case) -> Built:
    import torch
    from torch import nn

    lora = case.model == "lora"

    class Block(nn.Module):
        def __init__(self, first: int, last: int, idle: bool) -> None:
            super().__init__()
            if idle:
                self.unused = nn.Linear(3, 5)
            self.out = nn.Linear(first, last)
            self.norm = nn.LayerNorm(last)
            if lora:
                self.low_a, self.low_b = nn.Linear(first, 2, bias=False), nn.Linear(2, last, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.out(x)
            return torch.tanh(self.norm(y + self.low_b(self.low_a(x)) if lora else y))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = case.sizes["widths"]
            pairs = pairwise(widths)
            self.first = nn.Linear(9, widths[0])
            self.blocks = nn.ModuleList(Block(a, b, case.sizes["idle"] == "unit") for a, b in pairs)
            if case.sizes["idle"] == "module":
                self.spare = nn.Linear(11, 4)
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            for block in self.blocks:
                x = block(x)
            return x * self.scale

    module = Net()
    return Built(module, list(module.blocks), lambda m, rank: m(torch.full((4, 9), 0.5 + rank)).float().square().mean())


# What runs.


def wrap(case: Case, built: Built) -> Any:
    """The module as the case wraps it, around the default process group."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    options = dict(case.options)
    options.pop("parameters_as_bucket_view", None)
    if case.wrap in ("ddp", "zero"):
        return DistributedDataParallel(built.module, **options)
    param, reduce = (getattr(torch, options.pop(n, None) or "", None) for n in ("param_dtype", "reduce_dtype"))
    if case.wrap == "fsdp1":
        return _flat(case, built, options, param, reduce)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = (
        init_device_mesh("cpu", (case.world,)) if case.wrap == "fsdp2" else init_device_mesh("cpu", (2, 2), mesh_dim_names=("rep", "shard"))
    )
    for module in (*built.units, built.module):
        fully_shard(module, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=param, reduce_dtype=reduce), **options)
    return built.module


def _flat(case: Case, built: Built, options: dict[str, Any], param: Any, reduce: Any) -> Any:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import CustomPolicy

    units, strategy = {id(unit) for unit in built.units}, ShardingStrategy[options["sharding_strategy"]]
    hybrid = strategy is ShardingStrategy.HYBRID_SHARD
    return FullyShardedDataParallel(
        built.module,
        device_mesh=init_device_mesh("cpu", (2, 2)) if hybrid else None,
        sharding_strategy=strategy,
        use_orig_params=options["use_orig_params"],
        auto_wrap_policy=CustomPolicy(lambda module: id(module) in units),
        mixed_precision=MixedPrecision(param_dtype=param, reduce_dtype=reduce) if param or reduce else None,
        device_id=torch.device("cpu"),
    )


def optimizer(case: Case, module: Any) -> Any:
    """The optimizer of a case over what it is given."""
    import torch
    from torch.distributed.optim import ZeroRedundancyOptimizer

    kind, options = OPTIMIZERS[case.optimizer]
    given = [p for p in module.parameters() if case.given == "all" or p.requires_grad]
    made: Any = getattr(torch.optim, kind)
    if case.wrap == "zero":
        view = case.options["parameters_as_bucket_view"]
        return ZeroRedundancyOptimizer(given, optimizer_class=made, parameters_as_bucket_view=view, lr=1e-3, **options)
    return made(given, lr=1e-3, **options)


def step(case: Case, built: Built, module: Any, rank: int) -> None:
    """All forward and backward passes of a step."""
    for left in reversed(range(case.passes)):
        late = not case.no_sync or left == 0
        if hasattr(module, "set_requires_gradient_sync"):
            module.set_requires_gradient_sync(late)
        with nullcontext() if late or not hasattr(module, "no_sync") else module.no_sync():
            built.loss(module, rank).backward()


def measured(case: Case, rank: int) -> dict[str, Any]:
    """What one rank exchanged in a step that later ones repeat, and held: calls by kind, ranks and bytes; bytes by state."""
    built = build(case)
    module = wrap(case, built)
    every = list(module.parameters())  # between steps FSDP has views in the place of some that are frozen
    update = optimizer(case, module)
    for _ in range(WARM):
        step(case, built, module, rank)
        update.step()
        update.zero_grad()
    with _calls() as calls:
        step(case, built, module, rank)
        gradients = [p.grad for p in module.parameters() if p.grad is not None]
        memory = {"gradients": _stored(gradients), "gradients_held": _held(gradients)}
        update.step()
    inner = getattr(update, "optim", update)
    kept = [t for entry in inner.state.values() for t in entry.values() if hasattr(t, "untyped_storage")]
    memory |= {"parameters": _stored(every), "parameters_held": _held(every), "optimizer": _stored(kept)}
    return {"calls": calls.found, "memory": memory}


def _local(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _held(tensors: list[Any]) -> int:
    return sum(t.numel() * t.element_size() for t in map(_local, tensors))


def _stored(tensors: list[Any]) -> int:
    storages = [_local(t).detach().untyped_storage() for t in tensors]
    return sum({s.data_ptr() or id(s): s.nbytes() for s in storages}.values())


#: Which argument of an operation of c10d has the whole tensor that it is about, by the operation's name.
_ABOUT = {
    "allreduce_": ("all_reduce", 0),
    "allreduce_coalesced_": ("all_reduce", 0),
    "broadcast_": ("broadcast", 0),
    "_allgather_base_": ("all_gather", 0),
    "allgather_": ("all_gather", 0),
    "_reduce_scatter_base_": ("reduce_scatter", 1),
    "reduce_scatter_": ("reduce_scatter", 1),
}


def _calls() -> Any:
    from torch.distributed import ProcessGroup, get_process_group_ranks
    from torch.utils._python_dispatch import TorchDispatchMode

    class Calls(TorchDispatchMode):
        """Counts operations of c10d; one that is not known is an error."""

        def __init__(self) -> None:
            super().__init__()
            self.found = Counter[tuple[str, tuple[int, ...], int]]()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if any("DTensor" in str(t) for t in types):
                return NotImplemented
            if func.namespace in ("c10d", "_c10d_functional"):
                kind, at = _ABOUT[func._schema.name.partition("::")[2]]
                group = next(ProcessGroup.unbox(a) for a in args if "ProcessGroup" in str(getattr(a, "_type", lambda: "")()))
                size = sum(t.numel() * t.element_size() for t in _flattened(args[at]))
                self.found[kind, tuple(get_process_group_ranks(group)), size] += 1
            return func(*args, **(kwargs or {}))

    return Calls()


def _flattened(value: Any) -> Iterator[Any]:
    if hasattr(value, "numel"):
        yield value
    else:
        for part in value:
            yield from _flattened(part)


# What a user would ask of the tool, in its words or, where it has none, in PyTorch's.


def question(case: Case) -> tuple[str, str, dict[str, Any]]:
    """The strategy, its implementation, and options as texts."""
    o, world = case.options, case.world
    options: dict[str, Any] = {"optimizer": case.optimizer, "given": case.given}
    strategy, name = {"ddp": (f"ddp({world})", "ddp"), "zero": (f"zero1({world})", "zero_redundancy")}.get(case.wrap, ("", ""))
    if case.wrap in ("ddp", "zero"):
        said = {"bucket_cap_mb": "bucket_cap_mb", "find_unused_parameters": "find_unused", "static_graph": "static_graph"}
        said["gradient_as_bucket_view"] = "gradient_as_bucket_view"
        options |= {ours: o[theirs] for theirs, ours in said.items() if theirs in o}
        options |= {} if o.get("broadcast_buffers", True) else {"buffer": "0"}
        options |= {"bucket_view": True} if o.get("parameters_as_bucket_view") else {}
    else:
        options |= {n: o[n] for n in ("param_dtype", "reduce_dtype") if o.get(n)}
    after = o.get("reshard_after_forward")
    more = {False: ", reshard_after_forward=false"}.get(after, f", reshard_after_forward={after}" if type(after) is int else "")
    if case.wrap == "fsdp2":
        strategy = f"fsdp({world}{more})"
        name = {None: "fsdp2", True: "fsdp2_all", False: "fsdp2_keep"}.get(after, "fsdp2_sub")
    elif case.wrap == "hsdp":
        strategy, name = f"hsdp(2, shard=2{more})", {None: "hsdp", False: "hsdp_keep", True: "hsdp_all"}.get(after, "hsdp_sub")
    elif case.wrap == "fsdp1":
        kinds = {"FULL_SHARD": (f"fsdp({world})", "fsdp1"), "NO_SHARD": (f"ddp({world})", "fsdp1_no_shard")}
        kinds |= {"SHARD_GRAD_OP": (f"fsdp({world}, reshard_after_forward=false)", "fsdp1_grad_op")}
        strategy, name = kinds.get(o["sharding_strategy"], (f"hsdp({world // 2}, shard=2)", "fsdp1_hybrid"))
        options |= {"use_orig_params": True} if o["use_orig_params"] else {}
    if case.passes > 1:
        strategy += f" * accumulate({case.passes})"
        options["no_sync"] = case.no_sync
    return strategy, name, {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in options.items()}
