"""Shapes of the modules that training scripts train, against what is written here by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from placeproof.cli.main import run
from placeproof.core.diagnostics import InputError
from placeproof.core.shapes import Shapes
from placeproof.importers import read_shapes

torch = pytest.importorskip("torch")

HEAD = "import torch, torch.distributed as dist\nfrom torch import nn\ndist.init_process_group('nccl')\n"
DDP = """
import sys
from torch.nn.parallel import DistributedDataParallel as DDP
width = int(sys.argv[2])
net = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Linear(width, 2))
net[0].weight.requires_grad_(False)
module = DDP(net)
optimizer = torch.optim.AdamW(module.parameters())
with module.no_sync():
    module(torch.rand(3, 4)).sum().backward()
module(torch.rand(3, 4)).sum().backward()
optimizer.step()
raise RuntimeError("the script goes on after its first update")
"""
FSDP2 = """
from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.checkpoint import checkpoint
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.spare = nn.Linear(8, 8, bias=False), nn.Linear(2, 3)
    def forward(self, x):
        return x + self.w(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(8, 10, bias=False)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.first = nn.Embedding(10, 8)
        self.first.weight = self.last.weight
        self.norm = nn.LayerNorm(8).bfloat16()
    def forward(self, x):
        x = self.first(x).detach()
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.last(self.norm(x.bfloat16()).float())
net = Net()
for parameter in net.blocks[0].parameters():
    parameter.requires_grad_(False)
for block in net.blocks:
    fully_shard(block, mesh=init_device_mesh("cpu", (2,)))
fully_shard(net)
net.set_requires_gradient_sync(True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.arange(6)).sum().backward()
optimizer.step()
"""
FSDP1 = """
import functools
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
policy = functools.partial(size_based_auto_wrap_policy, min_num_params=100)
net = FSDP(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 60), nn.Linear(60, 1)), auto_wrap_policy=policy, use_orig_params=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.rand(2, 4)).sum().backward()
net.clip_grad_norm_(1.0)
optimizer.step()
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def ask(text: str, *arguments: str) -> Shapes:
        Path("train.py").write_text(HEAD + text, encoding="utf-8")
        assert run(["shapes", "train.py", "-o", "found.toml", *arguments]) == 0
        return read_shapes("found.toml")

    return ask


def by_unit(shapes: Shapes) -> dict[str, list[str]]:
    return {unit.name: [w.name for w in unit.weights] for unit in shapes.units}


def test_a_script_with_ddp(asked: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shapes = asked(DDP, "--", "--width", "7")
    assert capsys.readouterr().out == "found.toml: 65 parameters of train.py in 1 unit\n"
    assert {w.name: w.shape for w in shapes.weights} == {
        "0.weight": (7, 4), "0.bias": (7,), "1.weight": (7,), "1.bias": (7,), "2.weight": (2, 7), "2.bias": (2,),
    }  # fmt: skip
    assert [w.name for w in shapes.weights if not w.trained] == ["0.weight"]
    assert not any(w.idle for w in shapes.weights)
    assert shapes.used is not None
    assert sorted(shapes.used) == ["0.bias", "1.bias", "1.weight", "2.bias", "2.weight"]
    assert shapes.used[0] == "0.bias"
    assert set(shapes.used[1:3]) == {"1.bias", "1.weight"}
    assert shapes.buffers == (("float32", 14), ("int64", 1))


def test_a_script_with_fully_shard(asked: Any) -> None:
    shapes = asked(FSDP2)
    spare = ["spare.weight", "spare.bias"]
    assert by_unit(shapes) == {
        "root": ["last.weight", "norm.weight", "norm.bias"],
        "blocks.0": [f"blocks.0.{n}" for n in ("w.weight", *spare)],
        "blocks.1": [f"blocks.1.{n}" for n in ("w.weight", *spare)],
    }
    assert [unit.backward for unit in shapes.units] == [True, False, True]
    assert [w.name for w in shapes.weights if w.idle] == [f"blocks.1.{n}" for n in spare]
    assert [w.name for w in shapes.weights if not w.trained] == [f"blocks.0.{n}" for n in ("w.weight", *spare)]
    assert {w.name for w in shapes.weights if w.dtype == "bfloat16"} == {"norm.weight", "norm.bias"}
    assert shapes.registered is not None
    assert shapes.registered[0] == "last.weight"
    assert shapes.registered[-1] == "norm.bias"


def test_a_script_with_a_policy_of_fsdp(asked: Any) -> None:
    assert by_unit(asked(FSDP1)) == {"root": ["0.weight", "0.bias", "2.weight", "2.bias"], "1": ["1.weight", "1.bias"]}


def test_classes_that_are_wrapped_can_be_named(asked: Any) -> None:
    assert by_unit(asked(DDP, "--unit", "BatchNorm1d", "--", "--width", "2"))["1"] == ["1.weight", "1.bias"]


TRAINS = "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("", [], "trains no module"),
        (
            "net = nn.Linear(2, 2)\n" + TRAINS + "net(torch.rand(1, 2)).sum().backward()\nraise ValueError('no')",
            [],
            "did not come to an update",
        ),
        ("net = nn.Linear(2, 2)\nhead = nn.Linear(2, 2)\nhead(net(torch.rand(1, 2))).sum().backward()", [], "trains two modules"),
        (FSDP1, ["--unit", "Linaer"], "the module has no Linaer"),
        (
            "net = nn.Sequential(nn.Embedding(3, 2, sparse=True))\n" + TRAINS + "net(torch.arange(3)).sum().backward()\noptimizer.step()",
            [],
            "gets a sparse gradient",
        ),
        (
            "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Linear(2, 2)\n"
            "    def forward(self, x):\n        return self.w(self.w(x))\n"
            "net = Net()\n" + TRAINS + "net(torch.rand(1, 2)).sum().backward()\noptimizer.step()",
            ["--unit", "Linear"],
            "`w` runs 2 times in 1 passes",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(
    text: str, arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text(HEAD + text, encoding="utf-8")
    assert run(["shapes", str(tmp_path / "train.py"), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_module_from_python() -> None:
    from placeproof.measure.module import module_shapes

    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 2))
    shapes = module_shapes(net, lambda: net(torch.rand(1, 3)).sum().backward(), units=[net[1]])
    assert by_unit(shapes) == {"root": ["0.weight", "0.bias"], "1": ["1.weight", "1.bias"]}
    with pytest.raises(InputError, match="no step was seen"):
        module_shapes(net, lambda: None)
