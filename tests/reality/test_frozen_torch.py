"""What PyTorch exchanges and holds where some parameters are frozen, against what is derived of steps with frozen groups.

A model of linear layers, each with an adapter beside it, is trained by one rank under the fake process group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction

import pytest

from placeproof.cost.derive import derive, evaluate
from placeproof.cost.model.parts import parts
from placeproof.models import load
from placeproof.semantics.linked.link import as_linked, link
from placeproof.strategies import parse_strategy

torch = pytest.importorskip("torch", reason="torch is not installed: real steps cannot be measured")

from torch import Tensor, nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from placeproof.core.exchange import Exchange  # noqa: E402
from placeproof.measure.recorder import Recorder, axes_of_groups  # noqa: E402
from placeproof.measure.training.wrap import _as_the_reducer  # noqa: E402

DEVICES, UNITS, WIDTH, RANK = 4, 3, 16, 8
#: Frozen weights in 16 bits, adapters and their gradients in 32, Adam's two moments.
WIDTHS = {"b_frozen": 2, "b_theta": 4, "b_g": 4, "b_omega": 8, "b_a": 4}
BASE, ADAPTER = UNITS * WIDTH * WIDTH, UNITS * 2 * WIDTH * RANK


class Adapted(nn.Module):
    """A matrix, and a product of two small ones beside it."""

    def __init__(self, *, frozen: bool) -> None:
        super().__init__()
        self.base = nn.Parameter(torch.randn(WIDTH, WIDTH, dtype=torch.bfloat16), requires_grad=not frozen)
        self.a, self.b = nn.Parameter(torch.randn(WIDTH, RANK)), nn.Parameter(torch.randn(RANK, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """(samples, WIDTH) to the same."""
        out: Tensor = x + (x.bfloat16() @ self.base).float() + x @ self.a @ self.b
        return out


@pytest.fixture(scope="module")
def group() -> Iterator[None]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=1, world_size=DEVICES, store=FakeStore())
    yield
    torch.distributed.destroy_process_group()


def ddp(model: nn.Module, mesh: torch.distributed.device_mesh.DeviceMesh) -> nn.Module:
    module = DistributedDataParallel(model)
    module.register_comm_hook(mesh.get_group(), lambda group, bucket: _as_the_reducer(group, bucket))  # noqa: PLW0108
    return module


def fsdp(reshard: bool) -> Callable[[nn.Module, torch.distributed.device_mesh.DeviceMesh], nn.Module]:
    def wrap(model: nn.Module, mesh: torch.distributed.device_mesh.DeviceMesh) -> nn.Module:
        for unit in model.children():
            fully_shard(unit, mesh=mesh, reshard_after_forward=reshard)
        return model

    return wrap


WRAPS = {"ddp": ddp, "fsdp": fsdp(True), "fsdp(reshard_after_forward=false)": fsdp(False)}


def step(wrap: str, *, frozen: bool = True) -> tuple[list[Exchange], dict[str, int]]:
    """The exchanges of a third step, and the bytes of each state that this rank holds after it."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Adapted(frozen=frozen) for _ in range(UNITS)))
    mesh = init_device_mesh("cpu", (DEVICES,), mesh_dim_names=("dp",))
    module = WRAPS[wrap](model, mesh)
    update = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], foreach=False)
    recorder = Recorder(axes_of_groups(mesh, ("dp",)))
    x = torch.randn(2, WIDTH, requires_grad=True)
    for _ in range(3):  # before the second, DistributedDataParallel makes its buckets anew
        update.zero_grad()
        with recorder:
            recorder.take()
            module(x).square().sum().backward()
        found = recorder.take()
        update.step()

    def size(tensors: Iterator[Tensor]) -> int:
        return sum((t.to_local() if hasattr(t, "to_local") else t).nbytes for t in tensors)

    kept = [t for state in update.state.values() for name, t in state.items() if name != "step"]
    held = {
        "parameters": size(iter(module.parameters())),
        "gradients": size(p.grad for p in module.parameters() if p.grad is not None),
        "optimizer": size(iter(kept)),
    }
    return [e for e in found if e.axes == ("dp",)], held


def derived(text: str) -> tuple[Counter[str], dict[str, Fraction]]:
    """Bytes of tensors by collective, and of states."""
    found = derive(parse_strategy(f"{text} * lora"))
    values = {name: Fraction(n) for name, n in {**WIDTHS, "P": BASE + ADAPTER, "P_adapter": ADAPTER, "N": DEVICES, "A": 0, "U": 1}.items()}
    sizes: Counter[str] = Counter()
    for message in found.messages.messages:
        passes = Fraction((2 if message.collective == "all_reduce" else 1) * (DEVICES - 1), DEVICES)
        sizes[message.collective] += int((evaluate(message.total, values) or 0) / passes)
    return sizes, {state: evaluate(found.memory[state], values) or Fraction(0) for state in ("parameters", "gradients", "optimizer")}


@pytest.mark.parametrize("text", WRAPS)
def test_what_is_sent_and_held_is_what_is_derived(group: None, text: str) -> None:
    exchanges, held = step(text)
    measured: Counter[str] = Counter()
    for e in exchanges:
        measured[e.kind] += e.bytes
    sizes, states = derived(text)
    assert measured == sizes
    assert held == states


def test_where_all_is_trained_more_is_sent(group: None) -> None:
    """The measurement sees what is frozen: without that the figures are others."""
    for text in WRAPS:
        if text == "ddp":
            assert sum(e.bytes for e in step(text, frozen=False)[0]) > sum(e.bytes for e in step(text)[0])


@pytest.mark.parametrize("passed", [0, 1, 2])
def test_units_before_the_first_that_is_trained_are_not_gathered_for_backward(group: None, passed: int) -> None:
    """A step with `freeze` gathers them, as its text says: that is more than FSDP sends, by what is frozen before all that is trained."""
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False).requires_grad_(n >= passed) for n in range(UNITS)))
    mesh = init_device_mesh("cpu", (DEVICES,), mesh_dim_names=("dp",))
    module = WRAPS["fsdp"](model, mesh)
    recorder = Recorder(axes_of_groups(mesh, ("dp",)))
    with recorder:
        recorder.take()
        module(torch.randn(2, WIDTH)).square().sum().backward()
    sent = Counter[str]()
    for e in recorder.take():
        sent[e.kind] += e.bytes
    unit = 4 * WIDTH * WIDTH
    assert sent == {"all_gather": unit * (2 * UNITS - passed), "reduce_scatter": unit * (UNITS - passed)}
    found = derive(parse_strategy("fsdp * freeze"))
    values = {"P": UNITS * WIDTH**2, "P_frozen": passed * WIDTH**2, "N": DEVICES, "A": 0, "U": 1, **WIDTHS, "b_frozen": 4}
    own = {m.collective: Fraction(0) for m in found.messages.messages}
    for m in found.messages.messages:
        own[m.collective] += (evaluate(m.total, {name: Fraction(n) for name, n in values.items()}) or 0) * Fraction(DEVICES, DEVICES - 1)
    assert own == {"all_gather": sent["all_gather"] + passed * unit, "reduce_scatter": sent["reduce_scatter"]}


# What layers keep for backward where their matrices are frozen.

SIZES = {"b": 2, "s": 5, "h": 12, "f": 20, "a": 3, "a_kv": 3, "d": 4, "r": 7}


class Product(nn.Module):
    """A frozen matrix, perhaps with an adapter beside it."""

    def __init__(self, inner: int, outer: int, *, adapter: bool, frozen: bool) -> None:
        super().__init__()
        self.w = nn.Linear(inner, outer, bias=False).requires_grad_(not frozen)
        rank = SIZES["r"]
        self.a, self.b = (nn.Linear(inner, rank, bias=False), nn.Linear(rank, outer, bias=False)) if adapter else (None, None)

    def forward(self, x: Tensor) -> Tensor:
        """(..., inner) to (..., outer)."""
        out: Tensor = self.w(x)
        return out if self.a is None or self.b is None else out + self.b(self.a(x))


def kept_by_torch(*, adapter: bool, frozen: bool) -> Counter[int]:
    """Elements of each tensor, weights apart, that autograd keeps of the gated feed-forward block."""
    hidden, ffn = SIZES["h"], SIZES["f"]
    w1, w3 = (Product(hidden, ffn, adapter=adapter, frozen=frozen) for _ in range(2))
    w2 = Product(ffn, hidden, adapter=adapter, frozen=frozen)
    weights = {p.untyped_storage().data_ptr() for m in (w1, w3, w2) for p in m.parameters()}
    found: dict[int, Tensor] = {}

    def pack(t: Tensor) -> Tensor:
        if (where := t.untyped_storage().data_ptr()) not in weights:
            found[where] = t  # held here, so that no other tensor comes to lie there
        return t

    x, n = (torch.randn(SIZES["b"], SIZES["s"], hidden, requires_grad=True) for _ in range(2))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = x + w2(nn.functional.silu(w1(n)) * w3(n))
    y.sum().backward()
    return Counter(t.numel() for t in found.values())


def kept_by_program(text: str) -> Counter[int]:
    """The same of the program of a Llama's block under a strategy; what the block before it gives is counted where it is read."""
    linked = link(load("llama"), parse_strategy(text))
    found = next(p for p in parts(linked) if p.repeats)
    model, values = as_linked(load("llama"), linked), {**SIZES, "L": 1, "V": 11}
    dims = model.dims({name: n for name, n in values.items() if name in model.symbols()})
    rows = found.layer.rows(found.kept, dims, {}, 1, {})
    number = next(n for n, block in enumerate(found.blocks, 1) if block.name == "swiglu")
    return Counter(int(r.elements) for r in rows if r.stored.number == number or (r.stored.number == number - 1 and r.stored.name == "n"))


@pytest.mark.parametrize(
    ("text", "adapter", "frozen"),
    [("ddp", False, False), ("ddp * lora", True, True), ("ddp * lora(targets=attention)", False, True)],
)
def test_what_a_block_keeps_is_what_autograd_keeps(text: str, adapter: bool, frozen: bool) -> None:
    """With adapters, what they read and what goes between their matrices; of a frozen block alone, what its functions are bent by."""
    assert kept_by_program(text) == kept_by_torch(adapter=adapter, frozen=frozen)


def test_the_three_keep_other_tensors() -> None:
    every = [tuple(sorted(kept_by_torch(adapter=a, frozen=f).elements())) for a, f in ((False, False), (True, True), (False, True))]
    assert len(set(every)) == 3
