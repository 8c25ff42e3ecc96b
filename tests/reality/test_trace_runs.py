"""What is known of tensors moves as their numbers move: the numbers of these tensors are the terms themselves."""

import importlib
import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")

from placeproof.measure.record.moves import MOVES, copies  # noqa: E402
from placeproof.measure.record.nodes import NOTHING, ZERO, Node, Nodes  # noqa: E402
from placeproof.measure.record.runs import Runs, mapped  # noqa: E402
from placeproof.measure.record.shadow import Shadows  # noqa: E402

aten = torch.ops.aten


def shadows() -> Shadows:
    nodes = Nodes()
    for i in range(9):
        nodes.add(Node(kind="param", index=i))
    return Shadows(nodes)


class Twin:
    """Tensors whose numbers are their terms."""

    def __init__(self, seed: int) -> None:
        self.rng, self.shadows = random.Random(seed), shadows()

    def tensor(self, *size: int, dtype: Any = None) -> Any:
        flat = [n for _ in range(200) for n in [self.rng.randrange(2, 9)] * self.rng.randrange(1, 9)]
        tensor = torch.tensor(flat[: int(torch.Size(size).numel())], dtype=dtype or torch.float32).reshape(size)
        self.shadows.write(tensor, Runs.listed(tensor.reshape(-1).numpy()))
        return tensor

    def view(self, tensor: Any) -> Any:
        """Some view of it, perhaps one whose elements lie apart."""
        for _ in range(self.rng.randrange(3)):
            dim = self.rng.randrange(tensor.dim())
            way = self.rng.choice(("turned", "part", "every other", "row", "flat"))
            if way == "turned":
                tensor = tensor.transpose(0, dim)
            elif way == "part" and tensor.size(dim) > 1:
                tensor = tensor.narrow(dim, 1, tensor.size(dim) - 1)
            elif way == "every other":
                tensor = tensor[::2] if tensor.size(0) > 2 else tensor
            elif way == "row" and tensor.dim() > 1:
                tensor = tensor.select(dim, 0)
            elif way == "flat" and tensor.is_contiguous():
                tensor = tensor.view(-1)
        return tensor

    def done(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Do it, and follow it."""
        out = func(*args, **kwargs)
        self.shadows.moved(func, args, kwargs, out)
        return out

    def same(self, *tensors: Any) -> None:
        for tensor in tensors:
            assert [0 if n == ZERO else n for n in self.shadows.read(tensor).each().tolist()] == tensor.reshape(-1).tolist()


@pytest.mark.parametrize("seed", range(12))
def test_views_are_read_and_written(seed: int) -> None:
    twin = Twin(seed)
    for _ in range(40):
        tensor, source = twin.tensor(4, 6), twin.tensor(4, 6)
        into = twin.view(tensor)
        twin.same(into, tensor)
        given = twin.view(source)
        if given.numel() != into.numel() or given.shape != into.shape:
            given = twin.tensor(*into.shape)
        twin.done(aten.copy_.default, into, given)
        twin.same(tensor, into, source)
        twin.shadows.write(into, 7)
        into.fill_(7)
        twin.same(tensor, into)
        twin.done(aten.copy_.default, into, twin.tensor(1).squeeze(0))
        twin.done(aten.copy_.default, tensor, twin.tensor(6))
        twin.same(tensor)


MOVED = {
    "cat": lambda t: [t.done(aten.cat.default, [t.view(t.tensor(24)), t.tensor(3, 2).view(-1), torch.zeros(0)])],
    "cat of columns": lambda t: [t.done(aten.cat.default, [t.tensor(4, 6), t.tensor(4, 2)], 1)],
    "stack": lambda t: [t.done(aten.stack.default, [t.tensor(4, 6), t.tensor(4, 6)], -1)],
    "clone": lambda t: [t.done(aten.clone.default, t.tensor(4, 6).t())],
    "to another type": lambda t: [t.done(aten._to_copy.default, t.view(t.tensor(4, 6)), dtype=torch.float64)],
    "pad": lambda t: [t.done(aten.constant_pad_nd.default, t.view(t.tensor(4, 6)), [1, 2])],
    "pad and cut": lambda t: [t.done(aten.constant_pad_nd.default, t.tensor(4, 6), [-1, 2, 3, -2])],
    "narrow": lambda t: [t.done(aten.narrow_copy.default, t.tensor(4, 6).t(), 1, 1, 2)],
    "slice": lambda t: [t.done(aten.slice_scatter.default, t.tensor(4, 6), t.tensor(4, 2), 1, 1, 5, 2)],
    "roll": lambda t: [t.done(aten.roll.default, t.view(t.tensor(4, 6)), [5])],
    "index": lambda t: [t.done(aten.index_select.default, t.tensor(4, 6), 1, torch.tensor([5, 0, 0, 3]))],
    "split": lambda t: t.done(aten.split_with_sizes_copy.default, t.tensor(4, 6).t(), [1, 3, 2], 0),
    "copies of many": lambda t: t.done(aten._foreach_copy.default, [t.tensor(4), t.tensor(2, 2)], [t.tensor(4), t.tensor(2, 1)]),
    "rows of chunks": lambda t: [t.done(aten._chunk_cat.default, [t.tensor(4, 6), t.tensor(5), t.tensor(7, 2), t.tensor(1)], 0, 3)],
    "columns of chunks": lambda t: [t.done(aten._chunk_cat.default, [t.tensor(2, 6), t.tensor(2, 5, 3)], 1, 2)],
}


@pytest.mark.parametrize("name", MOVED)
def test_operations_move_terms_as_they_move_numbers(name: str) -> None:
    for seed in range(12):
        twin = Twin(seed)
        twin.same(*MOVED[name](twin))


def test_what_pads_is_zero_if_it_is() -> None:
    twin = Twin(4)
    tensor = twin.tensor(3)
    assert twin.shadows.read(twin.done(aten.constant_pad_nd.default, tensor, [1, 0])).each().tolist() == [ZERO, *tensor.tolist()]
    assert twin.shadows.read(twin.done(aten.constant_pad_nd.default, tensor, [1, 0], 5)).each().tolist() == [NOTHING, *tensor.tolist()]


def test_what_writes_to_given_tensors() -> None:
    twin = Twin(3)
    many = [twin.tensor(4), twin.tensor(2, 2)]
    twin.done(aten._foreach_copy_.default, many, [twin.tensor(4), twin.tensor(2, 1)])
    parts = [twin.tensor(4, 1), twin.tensor(4, 5)]
    twin.done(aten.split_with_sizes_copy.out, twin.tensor(4, 6), [1, 5], 1, out=parts)
    importlib.import_module("torch.distributed.fsdp")  # has operations of its own
    row = twin.tensor(24)
    twin.done(torch.ops.fsdp.all_gather_copy_in.default, [twin.tensor(3), twin.tensor(5)], row, [3, 5], 8, 2)
    rows = twin.tensor(2, 14)
    twin.done(torch.ops.fsdp.chunk_cat.default, [twin.tensor(3, 5), twin.tensor(8)], 0, 2, out=rows)
    twin.same(*many, *parts, row, rows)


def test_each_operation_that_moves_has_its_rule_tried() -> None:
    tried = {"all_gather_copy_in", "chunk_cat", "copy_", "_foreach_copy_"}  # beside those of MOVED
    source = Path(__file__).read_text()
    tried |= {n for n in MOVES if f"aten.{n}." in source}
    assert MOVES - tried == {"alias_copy", "lift_fresh_copy", "set_", "view_copy"}  # as `clone`, and nothing at all


def test_a_view_of_another_type_shares_what_is_known() -> None:
    twin = Twin(5)
    tensor = twin.tensor(6)
    read = twin.shadows.read(tensor.view(torch.uint8))
    assert read.each().tolist() == [n for n in tensor.int().tolist() for _ in range(4)]
    buffer = torch.zeros(6)
    twin.done(aten.copy_.default, buffer.view(torch.uint8)[8:], tensor[2:].view(torch.uint8))
    assert twin.shadows.read(buffer).each().tolist() == [NOTHING, NOTHING, *tensor[2:].tolist()]
    halves = twin.shadows.read(tensor.view(torch.float64)).each().tolist()
    pairs = tensor.view(-1, 2).tolist()
    assert halves == [a if a == b else NOTHING for a, b in pairs]


def test_one_number_in_many_places_is_one_term() -> None:
    known = shadows()
    many = torch.zeros(1).expand(5)
    known.write(many, 4)
    assert known.read(many).only == 4
    known.write(many, Runs.listed([4, 5, 5, 5, 5]))
    assert known.read(many).only == NOTHING
    with pytest.raises(ValueError, match="3 terms are no terms of 5 elements"):
        known.write(many, Runs.listed([4, 5, 6]))


def test_no_storage_takes_the_place_of_one_that_ended() -> None:
    known = shadows()
    for _ in range(200):
        tensor = torch.zeros(64)
        assert not known.known(tensor)
        known.write(tensor, 3)
    tensor = torch.zeros(64)
    known.write(tensor, 3)
    known.forget()
    assert known.read(tensor).only is not None
    assert sum(known.known(torch.zeros(64)) for _ in range(200)) == 0


def test_large_tensors_are_few_runs() -> None:
    known = shadows()
    parts = [torch.empty(3000, 1000) for _ in range(5)]
    for i, part in enumerate(parts):
        known.write(part, 2 + i)
    out = torch.cat([p.view(-1) for p in parts])
    known.moved(aten.cat.default, ([p.view(-1) for p in parts],), {}, out)
    assert known.read(out).values.tolist() == [2, 3, 4, 5, 6]
    assert known.read(out.view(5, -1)[:, 1:]).starts.tolist() == [i * 2999999 for i in range(5)]
    assert mapped(lambda n: n + 1, known.read(out)).distinct() == (3, 4, 5, 6, 7)
    assert copies("clone", (parts[0],), {}, out) == [(out, parts[0])]


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="this system does not say what a process took")
def test_five_million_parameters_take_less_than_a_gigabyte(tmp_path: Path) -> None:
    """An element of its own for each would take many; how long it takes is in ``benchmarks/recording.py``."""
    script = tmp_path / "large.py"
    script.write_text(textwrap.dedent(LARGE))
    command = [sys.executable, "-m", "placeproof", "trace", "record", str(script), "-o", str(tmp_path / "large.step")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = status
    assert status == 0
    assert "reduce_scatter" in (tmp_path / "large.step").read_text()
    assert used.ru_maxrss < 1e6 * (1 if sys.platform == "linux" else 1024)


#: Five million parameters.
LARGE = """
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    def train():
        mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
        net = nn.Sequential(*(nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.LayerNorm(256)) for _ in range(10)))
        assert sum(p.numel() for p in net.parameters()) > 5e6
        for block in net:
            fully_shard(block, mesh=mesh)
        fully_shard(net, mesh=mesh)
        optimizer = torch.optim.AdamW(net.parameters())
        torch.manual_seed(1 + dist.get_rank())
        x = torch.randn(8, 256)
        nn.functional.mse_loss(net(x), torch.randn(8, 256)).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
"""
