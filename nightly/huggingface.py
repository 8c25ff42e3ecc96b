"""Builds the models of the fixtures with transformers, without memory for them, and records the names and shapes of their parameters.

``python nightly/huggingface.py tests/configs/huggingface/recorded.json`` writes the record; ``--check`` compares with it. ``--random N``
draws so many small configurations of each type instead, and compares our reader with transformers on them. See README.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from placeproof.core.diagnostics import InputError  # noqa: E402
from placeproof.importers import read_shapes  # noqa: E402
from placeproof.importers.huggingface.fields import REQUIRED, Setting, families  # noqa: E402
from placeproof.measure.built import buffers, described, units, used  # noqa: E402

#: Types whose layers' activations are recorded, and the sizes of their small models.
KEPT_TYPES = (
    *("llama", "qwen2", "qwen3", "gemma3_text", "glm4", "glm4_moe", "olmo2", "cohere", "nemotron", "falcon", "falcon_two_norms"),
    "llama4_text",
)
BATCH, TOKENS = 2, 16
#: Types whose attention is recorded as it is written out: no fused function caps scores, or has sinks; MPT has no other.
WRITTEN = ("llama", "gemma2", "mixtral", "gpt_oss", "mpt", "minimax_m2")
KEPT_SIZES = {
    "vocab_size": 48,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}
_FALCON = {"new_decoder_architecture": True, "num_kv_heads": 2, "ffn_hidden_size": 96, "head_dim": None}
#: Settings of some types, or of one by another name: a layer without experts, with all norms and biases that it may have; groups of heads
#: behind one norm, or a norm each.
KEPT_MORE = {
    "glm4_moe": {"first_k_dense_replace": 9, "use_qk_norm": True, "attention_bias": True},
    "falcon": {**_FALCON, "num_ln_in_parallel_attn": 1},
    "falcon_two_norms": {**_FALCON, "num_ln_in_parallel_attn": 2, "model_type": "falcon"},
    "llama4_text": {"num_experts_per_tok": 1, "intermediate_size_mlp": 96},
}
#: Bytes of DistributedDataParallel's buckets for small models.
CAP = 1000
FOLDER = ROOT / "tests" / "configs" / "huggingface"
#: Types that transformers has no class for, whose files name the class of another.
_SAME = {"kimi_k2": "deepseek_v3"}
#: Types that transformers builds as a part of others alone.
_NOT_ALONE = ("_vl_text", "_vl_moe_text")
#: Settings that are small numbers.
_FEW = (
    *("decoder_sparse_step", "first_k_dense_replace", "interleave_moe_layer_step", "num_ln_in_parallel_attn", "index_topk_freq"),
    *("index_skip_topk_offset", "sliding_window_pattern"),
)
#: transformers' styles of tensor parallelism -> the dimension of a weight that each divides, counted from the last.
_STYLES = {"colwise": -2, "colwise_gather_output": -2, "packed_colwise": -2, "rowwise": -1}


def model(path: Path, device: str = "meta") -> Any:
    """The causal language model of a configuration, in one precision."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    whole = json.loads(path.read_text(encoding="utf-8"))
    settings = {**{name: whole[name] for name in ("tie_word_embeddings", "model_type") if name in whole}, **whole.get("text_config", whole)}
    settings.pop("quantization_config", None)  # a quantised model has scales besides: shapes are those of the model that is trained
    settings.pop("auto_map", None)
    kind = settings.pop("model_type")
    config = AutoConfig.for_model(_SAME.get(kind, kind), **settings)
    how = {"attn_implementation": "eager", "experts_implementation": "batched_mm"}
    with torch.device(device):
        if type(config) in AutoModelForCausalLM._model_mapping:
            return AutoModelForCausalLM.from_config(config, **how)
        outer = AutoConfig.for_model(whole.pop("model_type"), **whole)
        built = AutoModelForImageTextToText.from_config(outer, dtype=config.dtype, **how)
        built.model = built.model.language_model  # the text part by the names that it has alone
        return built


def splits(built: Any) -> dict[str, int]:
    """Weights that transformers' plan of tensor parallelism divides -> the dimension, counted from the first."""
    plan = {re.escape(pattern).replace(r"\*", r"\d+"): _STYLES[style] for pattern, style in built.tp_plan.items() if style in _STYLES}
    found = {}
    for name, parameter in built.named_parameters():
        owner = name.removesuffix(".weight")
        for pattern, dim in plan.items():
            if re.fullmatch(pattern, owner) and parameter.dim() > 1:
                found[name] = parameter.dim() + dim
    return found


def exchanged(path: Path) -> list[list[Any]]:
    """What DistributedDataParallel exchanges around the model in its third step, as kind, bytes and count, over one process of gloo.

    With its own buckets for models above one MiB; the others are given buckets of 1,000 bytes.
    """
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from placeproof.measure.recorder import Recorder

    built = model(path, "cpu")
    cap = None if sum(p.numel() for p in built.parameters()) * 4 > 2**20 else CAP / 2**20
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(built, bucket_cap_mb=cap)
        recorder = Recorder({str(wrapped.process_group.group_name): ("dp",)})
        ids = torch.zeros(1, 4, dtype=torch.long)
        for _ in range(3):
            recorder.take()
            with recorder:
                wrapped(input_ids=ids, labels=ids).loss.backward()
        calls = Counter((e.kind, e.bytes) for e in recorder.take())
    finally:
        torch.distributed.destroy_process_group()
    return [[*call, count] for call, count in sorted(calls.items())]


def recorded(path: Path) -> dict[str, Any]:
    """What is kept of a model: a hash of all names and shapes, one of the order of their use, its buffers; and for small ones the names
    and shapes themselves."""
    built = model(path)
    saved = built.state_dict()
    assert all(saved[name].shape == parameter.shape for name, parameter in built.named_parameters())
    found, divided, order = units(built), splits(built), used(built)
    kept = {
        "class": type(built).__name__,
        "tensors": sum(len(weights) for _, weights in found),
        "elements": sum(p.numel() for p in built.parameters()),
        "used": None if order is None else hashlib.sha256(json.dumps(order).encode()).hexdigest(),
        "buffers": buffers(built),
        "digest": hashlib.sha256(json.dumps(found).encode()).hexdigest(),
    }
    if not path.name.startswith("made_"):
        return kept
    runs = order is not None and len(order) == kept["tensors"]
    return {**kept, "ddp": exchanged(path) if runs else None, "units": found, "split": divided}


def saved(kind: str, layers: int, attention: str) -> tuple[int, int]:
    """Elements that autograd keeps of a small model's forward beside its parameters, and FLOPs of its products of matrices.
    ``attention``: transformers' word for how it is computed."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {name: size for name, size in {**KEPT_SIZES, **KEPT_MORE.get(kind, {})}.items() if size is not None}
    config = AutoConfig.for_model(sizes.pop("model_type", kind), num_hidden_layers=layers, pad_token_id=0, **sizes)
    built = AutoModelForCausalLM.from_config(config, attn_implementation=attention, experts_implementation="eager")
    parameters = {p.untyped_storage().data_ptr() for p in built.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            storages[storage.data_ptr()] = storage  # held, so that its address is not given away again
        return tensor

    counter = FlopCounterMode(display=False)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), counter:
        kept = built(input_ids=torch.zeros(BATCH, TOKENS, dtype=torch.long), use_cache=False).logits
    assert kept.dtype == torch.float32
    return sum(storage.nbytes() for storage in storages.values()) // 4, counter.get_total_flops()


def record_kept(file: Path) -> int:
    """Write what one layer of some types keeps, and what it computes but for the scores of fused attention, which the counter passes
    over."""
    import transformers

    def layer(kind: str, attention: str) -> dict[str, int]:
        one, two = saved(kind, 1, attention), saved(kind, 2, attention)
        return {"elements": two[0] - one[0], "flops": two[1] - one[1]}

    data = {"version": transformers.__version__, "batch": BATCH, "tokens": TOKENS, "sizes": KEPT_SIZES, "more": KEPT_MORE}
    data |= {"types": {kind: layer(kind, "sdpa") for kind in KEPT_TYPES}, "written": {kind: layer(kind, "eager") for kind in WRITTEN}}
    file.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 0


def record_built(file: Path) -> int:
    """Answer each case of a file anew: what transformers builds of settings, or of a fixture's."""
    import transformers

    cases: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["cases"]
    for case in cases.values():
        case["answer"] = described(case.get("settings") or json.loads((FOLDER / case["of"]).read_text(encoding="utf-8")))
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    file.write_text(f'{{"version": "{transformers.__version__}", "cases": {{\n{rows}\n}}}}\n', encoding="utf-8")
    return 0


def drawn(kind: str, rng: random.Random) -> dict[str, Any]:
    """A small configuration, mostly usable: each setting is left out, null, or of its kind, under one of its names."""
    heads, width = rng.choice((1, 2, 4, 6)), rng.choice((2, 4, 6))
    likely = {
        "layers": rng.choice((1, 2, 3)),
        "head": heads,
        "hidden": heads * width + (rng.random() < 0.1),
        "key": rng.choice([d for d in (1, 2, 3, 4, 6) if d <= heads]),
    }
    settings: dict[str, Any] = {"model_type": kind, "pad_token_id": 0}
    for setting in families()[kind].settings:
        name = rng.choice((setting.name, *setting.aliases))
        if setting.default is not REQUIRED and rng.random() < 0.4:
            continue
        settings[name] = None if setting.null and rng.random() < 0.2 else _value(setting, likely, rng)
    return settings


def _value(setting: Setting, likely: dict[str, int], rng: random.Random) -> Any:
    if setting.kind == "flag":
        return rng.random() < 0.5
    if setting.kind == "numbers":
        return [0] if rng.random() < 0.5 else []
    if setting.kind in ("texts", "letters"):
        words = [rng.choice(setting.words) for _ in range(likely["layers"])]
        return words if setting.kind == "texts" else "".join(words)
    if setting.name in _FEW:
        return rng.choice((1, 2, 3))
    part = dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers"), "layers")
    part |= dict.fromkeys(("num_attention_heads", "n_head", "n_heads"), "head")
    part |= dict.fromkeys(("hidden_size", "n_embd", "d_model"), "hidden") | dict.fromkeys(("num_key_value_heads", "num_kv_heads"), "key")
    return likely[part[setting.name]] if setting.name in part else 2 * rng.randrange(1, 9)


def compared(settings: dict[str, Any], path: Path) -> str:
    """What transformers and our reader make of a configuration, in words."""
    path.write_text(json.dumps(settings), encoding="utf-8")
    ours: Any
    try:
        shapes = read_shapes(path)
        ours = [(unit.name, [(w.name, list(w.shape)) for w in unit.weights]) for unit in shapes.units]
    except InputError as error:
        ours = error.diagnostics[0].message
    try:
        theirs = units(model(path))
    except Exception as error:
        return "both refuse" if isinstance(ours, str) else f"only transformers refuses: {error}"
    if isinstance(ours, str):
        return "only we refuse: " + re.sub(r"\d+", "N", ours)
    return "same" if ours == theirs else f"differs: {settings}"


def compare_random(number: int, seed: int) -> int:
    """Compare so many random configurations of each type."""
    rng, failed = random.Random(seed), False
    with tempfile.TemporaryDirectory() as folder:
        for kind in (name for name in families() if not name.endswith(_NOT_ALONE)):
            found = Counter(compared(drawn(kind, rng), Path(folder) / "config.json") for _ in range(number))
            failed |= any(words.startswith(("differs", "only transformers")) for words in found)
            print(f"{kind}: " + "; ".join(f"{times} {words}" for words, times in found.most_common()))
    return int(failed)


def main() -> int:
    """Record every fixture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=FOLDER / "recorded.json")
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    parser.add_argument("--random", type=int, metavar="N", help="compare so many random configurations of each type instead")
    parser.add_argument("--kept", action="store_true", help="write to the file what layers of some types keep for backward instead")
    parser.add_argument("--built", action="store_true", help="answer the cases of the file anew instead")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import transformers

    transformers.logging.set_verbosity_error()
    if options.random:
        return compare_random(options.random, options.seed)
    if options.built:
        return record_built(options.file)
    if options.kept:
        return record_kept(options.file)
    models: dict[str, Any] = {}
    for path in sorted(FOLDER.glob("*.json")):
        if "model_type" in json.loads(path.read_text(encoding="utf-8")):
            began = time.monotonic()
            models[path.name] = recorded(path)
            print(f"{path.name}: {models[path.name]['elements']:,} in {models[path.name]['tensors']}, {time.monotonic() - began:.1f} s")
    data = {"schema": "placeproof.shapes/1", "version": transformers.__version__, "models": models}
    if not options.check:
        options.file.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        return 0
    differ = json.loads(options.file.read_text(encoding="utf-8")) != json.loads(json.dumps(data))
    print(f"{len(models)} models" + ("; differs" if differ else ""))
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
