"""Asks Megatron-LM and DeepSpeed themselves about the pairs of `tests/data/rule_pairs`: do they take one file and refuse the other?

``python nightly/rule_pairs.py MEGATRON DEEPSPEED`` (checkouts) writes `tests/data/rule_pairs.json`; ``--check`` compares. See README.md.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import os
import shlex
import subprocess
import sys
import traceback
import types
import typing
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from rule_files import Pair, pairs  # noqa: E402

RECORD = ROOT / "tests" / "data" / "rule_pairs.json"


def main() -> int:
    """Ask, and write or compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("megatron", type=Path)
    parser.add_argument("deepspeed", type=Path)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {"megatron": _version(given.megatron, "NVIDIA/Megatron-LM")}
    found["deepspeed"] = _version(given.deepspeed, "deepspeedai/DeepSpeed")
    asks = {"pretrain.sh": megatron(given.megatron.resolve()), "ds_config.json": deepspeed(given.deepspeed.resolve())}
    found["pairs"] = {pair.rule: _asked(pair, *asks[pair.file]) for pair in pairs().values() if pair.file in asks}
    if not given.check:
        RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return 0
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    different = [rule for rule in {**found["pairs"], **recorded["pairs"]} if found["pairs"].get(rule) != recorded["pairs"].get(rule)]
    print(*different or ["as recorded"], sep="\n")
    return bool(different)


def _version(checkout: Path, name: str) -> str:
    commit = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    return f"{name}@{commit.strip()}"


def _asked(pair: Pair, checkout: Path, ask: Callable[[str, Pair], None]) -> dict[str, str]:
    """What a system says of both files: nothing where it takes one, or else the message, and of the second where it is raised."""
    valid, _ = _said(checkout, ask, pair.valid, pair)
    broken, at = _said(checkout, ask, pair.broken, pair)
    return {"digest": pair.digest, "valid": valid, "broken": broken, "at": at}


def _said(checkout: Path, ask: Callable[[str, Pair], None], text: str, pair: Pair) -> tuple[str, str]:
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            ask(text, pair)
    except SystemExit:
        return out.getvalue().strip().splitlines()[-1], ""
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(str(checkout))]
        where = f"{Path(frames[-1].filename).relative_to(checkout)}#L{frames[-1].lineno}" if frames else ""
        return (str(error).splitlines() or [""])[0][:120] or type(error).__name__, where
    return "", ""


def deepspeed(checkout: Path) -> tuple[Path, Callable[[str, Pair], None]]:
    """DeepSpeed reads its file. What only its engine asks is not asked."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    sys.path.insert(0, str(checkout))
    from deepspeed.runtime import config

    config.dist = types.SimpleNamespace(get_rank=lambda: 0)

    def ask(text: str, pair: Pair) -> None:
        said = json.loads(text)
        others = said.get("pipeline", {}).get("stages", 1) * said.get("sequence_parallel_size", 1)
        config.DeepSpeedConfig(said, mpu=types.SimpleNamespace(get_data_parallel_world_size=lambda: (pair.world or 1) // others))

    return checkout, ask


def megatron(checkout: Path) -> tuple[Path, Callable[[str, Pair], None]]:
    """Megatron-LM reads its arguments, checks them, makes its configurations, and its groups over processes of which one exists.

    Stand-ins: a GPU of the newest kind, and Transformer Engine of any version, which is asked for no more than its version and the
    arguments of its optimizer.
    """
    typing.override = getattr(typing, "override", lambda method: method)
    sys.path.insert(0, str(checkout))
    import torch
    from megatron.training import arguments, training  # noqa: F401

    torch.cuda.get_device_capability = lambda *_: (10, 0)
    for module in [one for name, one in sys.modules.items() if name.startswith("megatron")]:
        for name, value in (("is_te_min_version", True), ("get_device_arch_version", 10)):
            if hasattr(module, name):
                setattr(module, name, lambda *_, value=value, **__: value)
    os.environ["NVTE_CPU_OFFLOAD_V1"] = "1"

    def ask(text: str, pair: Pair) -> None:
        os.environ |= {"WORLD_SIZE": str(pair.devices), "RANK": "0"}
        sys.argv = shlex.split(text.replace("\\\n", " ").split("torchrun --nproc-per-node", 1)[1])[1:]
        args = arguments.parse_args()
        arguments.validate_args(args, {"tokenizer_type": "GPT2BPETokenizer"})
        _configure(args)
        _groups(args, pair.devices)

    return checkout, ask


def _configure(args: Any) -> None:
    """Everything that is made of the arguments before a model is."""
    from megatron.core.optimizer.optimizer_config import OptimizerConfig
    from megatron.training.argument_utils import core_transformer_config_from_args
    from megatron.training.training import get_megatron_ddp_config

    core_transformer_config_from_args(args)
    get_megatron_ddp_config(args)
    stands_in = types.ModuleType("transformer_engine.pytorch.optimizers")
    stands_in.FusedAdam = _fused_adam  # type: ignore[attr-defined]
    names = ("transformer_engine", "transformer_engine.pytorch", stands_in.__name__)
    sys.modules.update({names[0]: types.ModuleType(names[0]), names[1]: types.ModuleType(names[1]), names[2]: stands_in})
    try:
        OptimizerConfig(**{one.name: getattr(args, one.name) for one in dataclasses.fields(OptimizerConfig) if hasattr(args, one.name)})
    finally:
        for name in names:
            del sys.modules[name]


def _fused_adam(master_weight_dtype: Any, exp_avg_dtype: Any, exp_avg_sq_dtype: Any, use_decoupled_grad: Any) -> None:
    """Has the arguments that Megatron-LM looks for."""


def _groups(args: Any, devices: int) -> None:
    """The groups of all degrees."""
    import torch.distributed as dist
    from megatron.core import parallel_state
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=devices, store=FakeStore())
    try:
        parallel_state.initialize_model_parallel(
            args.tensor_model_parallel_size,
            args.pipeline_model_parallel_size,
            args.virtual_pipeline_model_parallel_size,
            gtp_remat_size=args.gtp_weight_remat_size,
            expert_gtp_remat_size=args.expert_gtp_weight_remat_size,
            context_parallel_size=args.context_parallel_size,
            hierarchical_context_parallel_sizes=args.hierarchical_context_parallel_sizes,
            hybrid_context_parallel=args.hybrid_context_parallel,
            expert_model_parallel_size=args.expert_model_parallel_size,
            num_distributed_optimizer_instances=args.num_distributed_optimizer_instances,
            expert_tensor_parallel_size=args.expert_tensor_parallel_size,
            order="tp-cp-ep-pp-dp" if args.use_tp_pp_dp_mapping else "tp-cp-ep-dp-pp",
            create_gloo_process_groups=False,
        )
    finally:
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()


if __name__ == "__main__":
    raise SystemExit(main())
