"""`placeproof trace record` as a whole process: a step of five million parameters under FSDP2 on two ranks; with `--large`, of 100 million
(needs torch). Seconds of all processors and of the clock, and memory of the largest process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def train():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    blocks = (nn.Sequential(nn.Linear({n}, 4 * {n}), nn.ReLU(), nn.Linear(4 * {n}, {n}), nn.LayerNorm({n})) for _ in range({blocks}))
    net = nn.Sequential(*blocks)
    assert sum(p.numel() for p in net.parameters()) > {least}
    for block in net:
        fully_shard(block, mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters())
    torch.manual_seed(1 + dist.get_rank())
    x = torch.randn(8, {n})
    nn.functional.mse_loss(net(x), torch.randn(8, {n})).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
"""
#: What the script has: a width, blocks, and more parameters than this; seconds of processors and gigabytes that it may take.
SIZES = ((256, 10, 5_000_000, 15, 1), (1024, 12, 100_000_000, 300, None))


def main() -> int:
    missed = False
    for n, blocks, least, seconds, held in SIZES[: 2 if "--large" in sys.argv else 1]:
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder, "train.py")
            script.write_text(SCRIPT.format(n=n, blocks=blocks, least=least))
            program, began = Path(sys.executable).parent / "placeproof", time.monotonic()
            with subprocess.Popen(
                (program, "trace", "record", script, "-o", Path(folder, "train.step")), stdout=subprocess.DEVNULL
            ) as process:
                _, status, used = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            passed, taken = time.monotonic() - began, used.ru_utime + used.ru_stime
            assert process.returncode == 0, script.read_text()
        memory = used.ru_maxrss / 1e6
        bounds = f"{seconds} s" if held is None else f"{seconds} s, {held} GB"
        print(f"{least / 1e6:.0f} million parameters: {passed:.1f} s, {taken:.1f} s of processors, {memory:.2f} GB (bounds {bounds})")
        missed |= passed > seconds or (held is not None and memory > held)
    return int("--check" in sys.argv and missed)


if __name__ == "__main__":
    sys.exit(main())
