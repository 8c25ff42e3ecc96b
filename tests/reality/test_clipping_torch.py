"""What PyTorch exchanges to clip gradients, which profile torch-2.13 says in words: its own code under its fake process group."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install torch")

SCRIPT = """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

class Calls(TorchDispatchMode):
    def __torch_dispatch__(self, call, types, args=(), kwargs=None):
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented
        if "c10d" in str(call) and "wrap" not in str(call) and "wait" not in str(call):
            print(str(call).split(".")[1], *(tensor.numel() * tensor.element_size() for tensor in args if isinstance(tensor, torch.Tensor)))
        return call(*args, **(kwargs or {}))

dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
mesh = init_device_mesh("cpu", (8,), mesh_dim_names=("dp",))
for count, sharded in CASES:
    print("layers:", count)
    layers = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(count)])
    for layer in layers if sharded else ():
        fully_shard(layer, mesh=mesh)
    layers(torch.randn(2, 16)).sum().backward()
    with Calls():
        torch.nn.utils.clip_grad_norm_(layers.parameters(), 1.0)
"""


def test_a_number_of_each_tensor_that_is_cut_is_all_reduced() -> None:
    """In one process, as importing PyTorch takes longer than all of it."""
    script = SCRIPT.replace("CASES", "[(3, True), (5, True), (3, False)]")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines() == ["layers: 3", "all_reduce 24", "layers: 5", "all_reduce 40", "layers: 3"]
