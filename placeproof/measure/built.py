"""A model as transformers builds it on torch's meta device, where tensors have shapes and no memory, and what can be read off it.

No code of a model's own is run, nothing is downloaded, and no weights are read.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from placeproof.measure.module import counted, parameters, unit_of

#: Settings of code that is not transformers' own, and of another form of the weights than the one that is trained.
_LEFT_OUT = {"auto_map", "quantization_config", "dtype", "torch_dtype"}
#: How a model is told to compute: what needs no data, so that it can be run without.
_COMPUTED = {"attn_implementation": "eager", "experts_implementation": "batched_mm"}


class UnbuiltError(Exception):
    """Why transformers builds no model of a configuration; with a remedy, and the setting that says so."""


def described(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What transformers builds of the settings of a ``config.json``; where that is nothing, ``refused``: a message, a remedy, a setting.

    Shapes are in elements. ``idle``: parameters without a gradient; ``kept``: those of another type than the rest, elements by type.
    """
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "critical"}
    import transformers

    try:
        built = model(settings)
        order = used(built)
        every = [name for name, _ in built.named_parameters()]
        ran = order is not None and sorted(order) == sorted(every)
        return {
            "version": transformers.__version__,
            "class": type(built).__name__,
            "units": units(built),
            "shared": shared(built),
            "used": order if ran else None,
            "idle": [n for n, p in built.named_parameters() if not p.requires_grad or (order is not None and n not in order)],
            "buffers": buffers(built),
            "kept": {kind: count for kind, count in counted(built.parameters()).items() if kind != _type(built)},
        }
    except UnbuiltError as error:
        return {"refused": error.args}


def model(settings: Mapping[str, Any]) -> Any:
    """The model of the class that a configuration names under ``architectures``, or else of the causal language model of its type.

    In bfloat16, so that buffers of another type are known by it. Raises UnbuiltError.
    """
    import torch
    import transformers
    from transformers import AutoConfig

    version, kind, plain = transformers.__version__, settings["model_type"], _plain(settings)
    if kind not in transformers.CONFIG_MAPPING:
        own = "; the model's own code, which `auto_map` names, is not run" if settings.get("auto_map") else ""
        message = f"transformers {version} has no model of type `{kind}`{own}"
        raise UnbuiltError(message, "list the parameters in a file of shapes", "model_type")
    try:
        config = AutoConfig.for_model(**plain)
        made = _class(config, settings)
        with torch.device("meta"):
            return made._from_config(config, dtype=torch.bfloat16, **_COMPUTED)
    except UnbuiltError:
        raise
    except Exception as error:
        message = f"transformers {version} builds no model of this: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise UnbuiltError(message, "mend what it says; settings are those of transformers", "model_type") from error


def _plain(value: Any) -> Any:
    """Settings without those that are left out, in all tables."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if k not in _LEFT_OUT and not k.endswith("_implementation")}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _class(config: Any, settings: Mapping[str, Any]) -> Any:
    """The class that holds the weights. Raises UnbuiltError."""
    import transformers
    from transformers import AutoModelForCausalLM, PreTrainedModel

    named = settings.get("architectures")
    if not named:
        if type(config) in AutoModelForCausalLM._model_mapping:
            return AutoModelForCausalLM._model_mapping[type(config)]
        help_ = "name the class that holds the weights under `architectures`"
        raise UnbuiltError("this does not say which model it is, and its type has no causal language model", help_, "model_type")
    name = named[0] if isinstance(named, list) else named
    made: Any = getattr(transformers, name, None) if isinstance(name, str) else None
    if not (isinstance(made, type) and issubclass(made, PreTrainedModel)):
        message = f"transformers {transformers.__version__} has no model `{name}`; code from elsewhere is not run"
        raise UnbuiltError(message, "leave it out to have the causal language model of the type", "architectures")
    if not isinstance(config, getattr(made, "config_class", ())):
        raise UnbuiltError(f"`{name}` is no model of type `{config.model_type}`", "change one of the two", "architectures")
    return made


def units(built: Any) -> list[tuple[str, list[tuple[str, list[int]]]]]:
    """Parameters by the module that is wrapped with them, in the order of registration, those outside of all of these first.

    Wrapped are the modules of the classes that transformers does not split, as its Trainer and Accelerate wrap them. A tied parameter
    counts once, in the unit around all of its modules: PyTorch's FSDP asks for that.
    """
    found: dict[str, list[tuple[str, list[int]]]] = {"root": []}
    wrapped = _wrapped(built)
    for names, parameter in parameters(built):
        found.setdefault(unit_of(names, wrapped), []).append((names[0], list(parameter.shape)))
    return list(found.items())


def shared(built: Any) -> list[str]:
    """Parameters of several units, which the unit around all of them has."""
    wrapped = _wrapped(built)
    return [names[0] for names, _ in parameters(built) if len({unit_of([name], wrapped) for name in names}) > 1]


def _wrapped(built: Any) -> set[str]:
    kinds = built._no_split_modules or ()
    return {name for name, module in built.named_modules(remove_duplicate=False) if name and type(module).__name__ in kinds}


def used(built: Any) -> list[str] | None:
    """Parameters in the reverse of the order in which their gradients become ready, by hooks of autograd; those without one are left out.

    None where the model does not run on two tokens without data. Raises UnbuiltError where a unit runs several times.
    """
    import torch

    order, runs = list[str](), Counter[str]()
    for name, parameter in built.named_parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(lambda _, name=name: order.append(name))
    wrapped = _wrapped(built)
    for name, module in built.named_modules():
        if name in wrapped:
            module.register_forward_pre_hook(lambda *_, name=name: runs.update([name]))
    ids = torch.zeros(1, 2, dtype=torch.long, device="meta")
    given = {"input_ids": ids} | ({"decoder_input_ids": ids} if getattr(built.config, "is_encoder_decoder", False) else {})
    # A mask for each pair of tokens is taken as it is; others would be looked into, which has no data here.
    pairs = {"attention_mask": torch.zeros(1, 1, 2, 2, device="meta", dtype=built.dtype)}
    for inputs in ({"use_cache": False, **pairs}, {"use_cache": False}, {}):
        order.clear()
        runs.clear()
        built.zero_grad()
        with suppress(Exception):
            found = built(**given, **inputs)
            (found["logits"] if "logits" in found else found[0]).sum().backward()
            break
    else:
        return None
    if several := [name for name, count in runs.items() if count > 1]:
        message = f"`{several[0]}` runs {runs[several[0]]} times in a step: exact bytes are of units that run once"
        raise UnbuiltError(message, "closed forms of the strategy are those of any model", "model_type")
    return order[::-1]


def buffers(built: Any) -> dict[str, int]:
    """Elements of all buffers by their type; "dtype" is that of the parameters."""
    return {"dtype" if kind == _type(built) else kind: count for kind, count in counted(built.buffers()).items()}


def _type(built: Any) -> str:
    """The type of most parameters."""
    return counted(built.parameters()).most_common(1)[0][0]
