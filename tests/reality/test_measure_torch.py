"""Measurements of real PyTorch steps: what is recorded is what the implementations are known to do, and gloo says the same as fake.

Numbers written out here were measured by other means before: with counters of their own on gloo processes, or by hand on paper.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import prod

import pytest
from leftovers import children
from random_cases import random_case
from samples import NIGHTLY

from placeproof.core.diagnostics import InputError
from placeproof.core.exchange import Exchange, tally
from placeproof.core.shapes import Shapes, Unit, Weight, transformer
from placeproof.measure.measured import Measured
from placeproof.measure.training.subjects import SUBJECTS, find, settle
from placeproof.strategies import parse_strategy

torch = pytest.importorskip("torch", reason="torch is not installed: real steps cannot be measured")

from placeproof.measure.memory import Kept  # noqa: E402
from placeproof.measure.recorder import Recorder, axes_of_groups  # noqa: E402
from placeproof.measure.training import models, steps  # noqa: E402
from placeproof.measure.training.run import measure, measure_all  # noqa: E402
from placeproof.measure.training.wrap import WRAPS  # noqa: E402

#: 24,736 parameters: 20,608 in two layers, 4,128 in the root; a stream of B T d = 2,048 elements.
TINY = transformer(layers=2, hidden=32, heads=4, ffn=64, vocab=64, batch=4, tokens=16)
STREAM = 2048 * 8
IN_64 = {"dtype": "float64"}


def stack(*units: tuple[tuple[int, ...], ...], dims: tuple[tuple[str, int], ...] = ()) -> Shapes:
    """Shapes from shapes; the first unit is the root."""

    def unit(i: int, shapes: tuple[tuple[int, ...], ...]) -> Unit:
        prefix = f"units.{i - 1}." if i else ""
        weights = tuple(Weight(name=f"{prefix}w{j}", shape=shape) for j, shape in enumerate(shapes))
        return Unit(name=prefix.rstrip(".") or "root", weights=weights)

    return Shapes(name="stack", units=tuple(unit(i, shapes) for i, shapes in enumerate(units)), dims=dims)


SMALL = stack(((5, 3), (7,)), *[((7, 7), (3, 2, 5))] * 4, dims=(("batch", 2), ("tokens", 3), ("hidden", 4)))


def small_mesh(name: str) -> dict[str, int]:
    """Two devices, four where there are two axes or more."""
    return dict.fromkeys(SUBJECTS[name].axes, 2) | ({"rep": 1} if name.startswith("hsdp*") else {})


def shapes_for(name: str) -> Shapes:
    return replace(TINY, name="tiny") if SUBJECTS[name].decoder else SMALL


def totals(measured: Measured) -> Counter[tuple[str, tuple[str, ...], str]]:
    """Bytes by kind, axes and phase."""
    found: Counter[tuple[str, tuple[str, ...], str]] = Counter()
    for e in measured.exchanges:
        found[e.kind, e.axes, e.phase] += e.bytes
    return found


def seen(measured: Measured) -> tuple[object, ...]:
    """All that does not depend on the clock, the machine or the backend."""
    return measured.exchanges, measured.dtypes, measured.setup, dict(measured.memory), measured.rank


# Every implementation.


#: Of each kind of product one: it takes four processes seconds to lay out.
ON_GLOO = [name for name in SUBJECTS if "*" not in name or name.endswith("tp_sp")]


#: Compared on four devices, which say more than two.
ON_FOUR = ["ddp", "zero_redundancy", "fsdp1", "fsdp2", "fsdp2_sub", "1f1b", "zbv"]


@pytest.mark.parametrize("name", [name for name in ON_GLOO if NIGHTLY or name not in ON_FOUR])
def test_gloo_and_fake_say_the_same(name: str) -> None:
    mesh = small_mesh(name)
    before = children()
    real = measure_all(name, shapes_for(name), mesh)
    assert len(real) == prod(mesh.values())
    assert children() == before
    for rank, one in enumerate(real):
        assert one.exchanges
        assert one.backend == "gloo"
        assert seen(one) == seen(measure(name, shapes_for(name), mesh, rank=rank))


@pytest.mark.parametrize("name", ON_FOUR)
def test_gloo_and_fake_say_the_same_on_four_devices(name: str) -> None:
    mesh = {SUBJECTS[name].axes[0]: 4}
    shapes = stack(((5, 3), (7,)), *[((7, 7), (3, 2, 5))] * 8)
    options = {"bucket_cap_mb": 100 / 2**20} if "bucket_cap_mb" in SUBJECTS[name].options else {}
    for rank, one in enumerate(measure_all(name, shapes, mesh, options=options)):
        assert seen(one) == seen(measure(name, shapes, mesh, rank=rank, options=options))


@pytest.mark.parametrize("outer", ["fsdp2", "hsdp"])
@pytest.mark.parametrize("plan", ["tp_naive", "tp_megatron"])
def test_a_product_exchanges_along_tp_what_the_plan_alone_does(outer: str, plan: str) -> None:
    mesh = dict.fromkeys(SUBJECTS[outer].axes, 2)
    both = measure(f"{outer}*{plan}", TINY, mesh | {"tp": 2}, rank=3)
    assert tuple(e for e in both.exchanges if e.axes == ("tp",)) == measure(plan, TINY, {"tp": 2}).exchanges
    assert {e.axes for e in both.exchanges} == {(axis,) for axis in (*mesh, "tp")}


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_subject_says_which_strategy_it_implements(name: str) -> None:
    subject, mesh = SUBJECTS[name], small_mesh(name)
    strategy = parse_strategy(subject.expression(mesh))
    assert {axis.name: axis.degree for axis in strategy.axes} == mesh
    assert set(subject.wraps) <= set(WRAPS)


def test_every_wrap_is_of_some_subject() -> None:
    assert {wrap for subject in SUBJECTS.values() for wrap in subject.wraps} == set(WRAPS)


# What is known of them.


@pytest.mark.parametrize(
    ("name", "mesh", "options", "expected"),
    [
        ("ddp", {"dp": 2}, {}, {"all_reduce": 197_888}),
        ("fsdp1_no_shard", {"dp": 4}, {}, {"all_reduce": 197_888}),
        ("zero_redundancy", {"dp": 4}, {}, {"all_reduce": 197_888, "broadcast": 197_888}),
        ("fsdp2", {"dp": 4}, {}, {"all_gather": 197_888 + 164_864, "reduce_scatter": 197_888}),
        ("fsdp1", {"dp": 2}, {}, {"all_gather": 197_888 + 164_864, "reduce_scatter": 197_888}),
        ("fsdp2_all", {"dp": 2}, {}, {"all_gather": 395_776, "reduce_scatter": 197_888}),
        ("fsdp2_keep", {"dp": 2}, {}, {"all_gather": 197_888, "reduce_scatter": 197_888}),
        ("fsdp1_grad_op", {"dp": 2}, {}, {"all_gather": 197_888, "reduce_scatter": 197_888}),
        ("hsdp", {"rep": 2, "shard": 2}, {}, {"all_gather": 362_752, "reduce_scatter": 197_888, "all_reduce": 98_944}),
        # Half the width for gathers, and whole single precision for reductions.
        (
            "fsdp2",
            {"dp": 2},
            {"dtype": "float32", "param_dtype": "bfloat16", "reduce_dtype": "float32"},
            {"all_gather": 49_472 + 41_216, "reduce_scatter": 98_944},
        ),
        # Seven all-reduces of the stream a layer without PrepareModuleInput, four with it; two more for the embedding and the head.
        ("tp_naive", {"tp": 2}, {}, {"all_reduce": (7 * 2 + 2) * STREAM, "all_gather": 64 * 64 * 8}),
        ("tp_megatron", {"tp": 4}, {}, {"all_reduce": (4 * 2 + 2) * STREAM, "all_gather": 64 * 64 * 8}),
        # Three all-reduces of each of five norm weights, in the update.
        ("tp_sp", {"tp": 2}, {}, {"reduce_scatter": 163_840, "all_gather": 196_608, "all_reduce": 3_840}),
    ],
)
def test_bytes_of_a_step(name: str, mesh: dict[str, int], options: dict[str, str], expected: dict[str, int]) -> None:
    measured = measure(name, TINY, mesh, options=IN_64 | options)
    found: Counter[str] = Counter()
    for e in measured.exchanges:
        found[e.kind] += e.bytes
    assert found == expected


def test_a_sub_group_of_fsdp_has_an_axis_of_its_own() -> None:
    found = totals(measure("fsdp2_sub", TINY, {"dp": 4}, options=IN_64 | {"k": 2}))
    assert found == {
        ("all_gather", ("dp",), "forward"): 197_888,
        ("all_gather", ("dp_inner",), "backward"): 197_888,
        ("reduce_scatter", ("dp",), "backward"): 197_888,
    }


@pytest.mark.parametrize(
    ("name", "mesh", "sends"),
    [("gpipe", 4, 2 * 3 * 8), ("1f1b", 4, 2 * 3 * 8), ("interleaved", 4, 2 * 7 * 8), ("zbv", 4, 2 * 6 * 8), ("dualpipev", 4, 2 * 6 * 8)],
)
def test_messages_of_a_pipeline(name: str, mesh: int, sends: int) -> None:
    """Each boundary between devices is crossed by every micro-batch, once each way; the turn of a folded pipeline is on one device."""
    shapes = stack(((3,), (2,)), *[((2,),)] * 8, dims=(("batch", 1), ("tokens", 2), ("hidden", 5)))
    ranks = [measure(name, shapes, {"pp": mesh}, rank=rank, options={"microbatches": 8}) for rank in range(mesh)]
    count = Counter((e.kind, e.phase) for one in ranks for e in one.exchanges)
    assert count == {(kind, phase): sends // 2 for kind in ("send", "recv") for phase in ("forward", "backward")}
    assert {e.bytes for one in ranks for e in one.exchanges} == {2 * 5 * 4}


def test_micro_batches_in_flight() -> None:
    """GPipe keeps all; the device r of p in 1F1B keeps min(m, p - r)."""
    shapes = transformer(layers=4, hidden=32, heads=4, ffn=64, vocab=64, batch=4, tokens=16)
    layer = (8 * 2048 + 4 * 4 * 16 * 64 + 4 * 64 + 4 * 64) * 4
    for rank in (1, 2):  # those at the ends have indices and logits too
        kept = [
            measure(name, shapes, {"pp": 4}, rank=rank, options={"microbatches": 8}).memory["activations"] for name in ("gpipe", "1f1b")
        ]
        assert kept == [8 * layer, (4 - rank) * layer]


def test_zero_bubble_schedules_let_go_of_activations_late() -> None:
    shapes = transformer(layers=4, hidden=32, heads=4, ffn=64, vocab=64, batch=4, tokens=16)
    assert measure("1f1b", shapes, {"pp": 2}).memory["activations_after"] == 0
    assert measure("zbv", shapes, {"pp": 2}).memory["activations_after"] > 0


# Where PyTorch does other than one would think.


def test_the_root_is_not_gathered_again() -> None:
    found = totals(measure("fsdp2", TINY, {"dp": 2}, options=IN_64))
    assert found["all_gather", ("dp",), "forward"] - found["all_gather", ("dp",), "backward"] == 33_024


def test_fsdp_pads_each_parameter_and_the_older_one_each_unit() -> None:
    """Rows 5 and 7 become 6 and 9 on 3 devices; 15 + 7 elements become 24."""
    shapes = stack(((5, 3), (7,)))
    assert tally(measure("fsdp2", shapes, {"dp": 3}).exchanges)["all_gather", ("dp",), (6 * 3 + 9) * 4] == 1
    assert tally(measure("fsdp1", shapes, {"dp": 3}).exchanges)["all_gather", ("dp",), 24 * 4] == 1
    last = measure("fsdp2", shapes, {"dp": 3}, rank=2).memory
    assert last["parameters_held"] == last["gradients_held"] == (1 * 3 + 1) * 4
    assert last["parameters"] == last["gradients"] == (2 * 3 + 3) * 4
    assert last["optimizer"] == 2 * last["parameters_held"] + 2 * 4


def test_padding_of_seven_billion_parameters() -> None:
    """Gathers of half width on 4,096 devices: 5.07% more than the 13,476,831,232 bytes of the parameters."""

    def llama(layers: int) -> Shapes:
        return transformer(layers=layers, hidden=4096, heads=32, ffn=11008, vocab=32000, batch=1, tokens=64)

    options = {"param_dtype": "bfloat16", "reduce_dtype": "float32", "optimizer": "sgd"}
    measured = measure("fsdp2", llama(1), {"dp": 4096}, options=options)
    root, layer = (e.bytes for e in measured.exchanges if e.phase == "forward")
    assert 2 * llama(32).elements == 13_476_831_232
    assert root + 32 * layer == 14_160_502_784
    assert [e.bytes for e in measured.exchanges if e.kind == "reduce_scatter"] == [2 * layer, 2 * root]


def test_gradients_of_norms_stay_partial_until_the_update() -> None:
    by_optimizer = {o: measure("tp_sp", TINY, {"tp": 2}, options={"optimizer": o}) for o in ("adamw", "sgd")}
    counts = {o: sum(e.phase == "update" for e in m.exchanges) for o, m in by_optimizer.items()}
    assert counts == {"adamw": 3 * 5, "sgd": 5}
    both = measure("fsdp2*tp_sp", TINY, {"dp": 2, "tp": 2})
    assert Counter((e.phase, e.bytes) for e in both.exchanges if e.kind == "all_reduce") == {("backward", 32 * 4): 5}


def test_the_gradient_of_a_split_embedding_is_whole() -> None:
    memory = measure("tp_megatron", TINY, {"tp": 4}).memory
    assert memory["gradients"] - memory["parameters"] == 64 * 32 * 4 * 3 // 4


def test_extra_exchanges_of_distributed_data_parallel() -> None:
    options = {"find_unused": True, "buffer": 10}
    measured = measure("ddp", stack(((5, 3), (7,)), ((4,),)), {"dp": 2}, options=options)
    assert list(zip(measured.exchanges, measured.dtypes, strict=True)) == [
        (Exchange(kind="broadcast", axes=("dp",), bytes=40, phase="forward"), "float32"),
        (Exchange(kind="all_reduce", axes=("dp",), bytes=104, op="sum", phase="backward"), "float32"),
        (Exchange(kind="all_reduce", axes=("dp",), bytes=3 * 4, op="sum", phase="backward"), "int32"),
    ]
    assert Exchange(kind="broadcast", axes=("dp",), bytes=104 + 40) in measured.setup


def test_buckets_of_distributed_data_parallel() -> None:
    """One of all gradients at first; from the second step on, closed as soon as they hold the cap, in the order of arrival."""
    shapes = stack(((10,), (20,)), ((30,), (40,)), ((50,), (60,)))

    def buckets(step: int, **options: bool) -> list[int]:
        measured = measure("ddp", shapes, {"dp": 2}, options={"bucket_cap_mb": 161 / 2**20, "step": step} | options)
        return [e.bytes // 4 for e in measured.exchanges if e.kind == "all_reduce"]

    assert buckets(1) == [210]
    assert buckets(2) == buckets(3) == [20 + 60, 50, 40 + 30, 10]
    # Never arranged anew: filled in the order of registration, and reduced the other way round; then who used what.
    assert buckets(1, find_unused=True) == buckets(3, find_unused=True) == [60, 50 + 40, 30 + 20 + 10, 6]


@pytest.mark.parametrize(
    ("dtype", "options", "op"),
    [
        ("float32", {}, "mean"),
        ("bfloat16", {}, "mean"),
        ("float64", {}, "sum"),
        ("float32", {"reduce_dtype": "float16"}, "sum"),
    ],
)
def test_fsdp_divides_by_itself_in_widths_that_overflow(dtype: str, options: dict[str, str], op: str) -> None:
    measured = measure("hsdp", SMALL, {"rep": 2, "shard": 2}, options={"dtype": dtype} | options)
    assert {e.op for e in measured.exchanges if e.kind in ("reduce_scatter", "all_reduce")} == {op}
    reduced = {d for e, d in zip(measured.exchanges, measured.dtypes, strict=True) if e.op}
    assert reduced == {options.get("reduce_dtype", dtype)}


# What a device holds.


@pytest.mark.parametrize(
    ("name", "tp", "layer", "root"),
    [
        ("fsdp2", 1, 8 * 2048 + 4 * 4096 + 4 * 64 + 256, 2 * 2048 + 2 * 64 + 4096),
        ("tp_naive", 2, 4 * 2048 + 4 * 1024 + 4 * 2048 + 4 * 64 + 128, 2 * 2048 + 2 * 64 + 4096),
        ("tp_megatron", 4, 4 * 2048 + 4 * 512 + 4 * 1024 + 4 * 64 + 64, 2 * 2048 + 2 * 64 + 4096),
        ("tp_sp", 2, 2 * 1024 + 2 * 2048 + 4 * 1024 + 4 * 2048 + 4 * 32 + 128, 1024 + 2048 + 2 * 32 + 4096),
    ],
)
def test_saved_activations(name: str, tp: int, layer: int, root: int) -> None:
    """Of a layer, without tensor parallelism: 8 BTd + 4 BTf + 4 BT + BhT elements; besides, indices of inputs and of targets."""
    mesh = {"dp": 2} if name == "fsdp2" else {"tp": tp}
    memory = measure(name, TINY, mesh, options=IN_64).memory
    assert memory["activations"] == (2 * layer + root) * 8 + 2 * 64 * 8 + 8
    assert memory["activations_after"] == 0


@pytest.mark.parametrize("wrapped", ["ddp", "fsdp1", "fsdp1_grad_op", "fsdp2_all", "fsdp2_sub", "fsdp2_keep"])
def test_gathered_parameters_are_no_activations(wrapped: str) -> None:
    assert measure(wrapped, TINY, {"dp": 2}).memory["activations"] == measure("fsdp2", TINY, {"dp": 2}).memory["activations"]


def test_states_of_the_optimizer() -> None:
    """Two numbers an element, and a counter of 4 bytes for each of the 21 tensors; whole tensors in turn to who has the least."""
    assert measure("ddp", TINY, {"dp": 2}, options=IN_64).memory["optimizer_steps"] == 84
    parts = [measure("zero_redundancy", TINY, {"dp": 2}, rank=rank, options=IN_64).memory for rank in (0, 1)]
    assert [m["optimizer"] - m["optimizer_steps"] for m in parts] == [198_144, 197_632]
    shard = measure("fsdp2", TINY, {"dp": 4}, options=IN_64).memory
    assert shard["optimizer"] - shard["optimizer_steps"] == 2 * 197_888 // 4
    assert measure("fsdp2", TINY, {"dp": 4}, options={"optimizer": "sgd"}).memory["optimizer"] == 0


def test_a_storage_counts_once_whole_and_while_it_is_kept() -> None:
    module, kept, x = torch.nn.Linear(3, 3, bias=False), Kept(), torch.ones(5, 3)
    with kept.watching([module]):
        first, second = module(x[:2]), module(x[2:])
        assert (kept.now, kept.peak) == (5 * 3 * 4, 5 * 3 * 4)
        del first
        assert kept.now == 5 * 3 * 4
        second.sum().backward()
        assert (kept.now, kept.peak) == (0, 5 * 3 * 4)
        third = module(torch.ones(1, 3))
        assert (kept.now, kept.peak) == (3 * 4, 5 * 3 * 4)
        del third
    module(x)
    assert (kept.now, kept.peak) == (0, 5 * 3 * 4)


# The instrument.


def test_another_counter_sees_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.tensor.debug import CommDebugMode

    counted: list[Counter[str]] = []

    class Both(Recorder):
        def __enter__(self) -> object:
            self.other = CommDebugMode()
            self.other.__enter__()
            return super().__enter__()

        def __exit__(self, *args: object) -> None:
            super().__exit__(*args)
            self.other.__exit__(*args)
            counted.append(Counter({str(op): n for op, n in self.other.get_comm_counts().items()}))

    monkeypatch.setattr(steps, "Recorder", Both)
    for name in ("ddp", "fsdp1", "fsdp2*tp_sp"):
        measured = measure(name, TINY, dict.fromkeys(SUBJECTS[name].axes, 2))
        kinds = Counter(e.kind for e in measured.exchanges)
        of = {"all_gather": ("allgather", "all_gather"), "reduce_scatter": ("reduce_scatter",), "all_reduce": ("all_reduce", "allreduce")}
        other = {kind: sum(n for op, n in counted[-1].items() if any(word in op for word in words)) for kind, words in of.items()}
        assert other == {kind: kinds[kind] for kind in of}
        assert sum(counted[-1].values()) == len(measured.exchanges)


def _with_group(function: Callable[[], None]) -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=1, world_size=4, store=FakeStore())
    try:
        function()
    finally:
        torch.distributed.destroy_process_group()


def test_the_recorder_tells_axes_of_equal_size_apart_and_refuses_others() -> None:
    def body() -> None:
        dist = torch.distributed
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        recorder = Recorder(axes_of_groups(mesh, ("dp", "tp")))
        x = torch.ones(8)[:3]
        with recorder:
            recorder.phase = "forward"
            dist.all_reduce(x, group=mesh.get_group("b"), op=dist.ReduceOp.MAX)
            dist.all_gather([torch.empty(3), torch.empty(3)], x, group=mesh.get_group("a"))
            dist.broadcast(x, 0)
            dist.all_to_all_single(torch.empty(4), torch.ones(4), group=mesh.get_group("b"))
            dist.reduce(x, 0)
            dist.barrier()
        rows = [(e.kind, e.axes, e.bytes, e.op, e.phase) for e in recorder.take()]
        assert rows == [
            ("all_reduce", ("tp",), 12, "max", "forward"),
            ("all_gather", ("dp",), 24, "", "forward"),
            ("broadcast", ("dp", "tp"), 12, "", "forward"),
            ("all_to_all", ("tp",), 16, "", "forward"),
            ("reduce", ("dp", "tp"), 12, "sum", "forward"),
        ]
        other = dist.new_group([0, 1])
        with pytest.raises(LookupError, match=f"over the process group '{other.group_name}', which is none of the mesh"), recorder:
            dist.all_reduce(x, group=other)

    _with_group(body)


def test_ranks_in_turn_in_one_process() -> None:
    """What PyTorch remembers of one rank's layouts has the names of that rank's groups."""
    first = [measure("fsdp2*tp_sp", TINY, {"dp": 2, "tp": 2}, rank=rank) for rank in (0, 3)]
    again = measure("fsdp2*tp_sp", TINY, {"dp": 2, "tp": 2}, rank=0)
    assert seen(first[0]) == seen(again)
    assert first[0].exchanges == first[1].exchanges


def test_nothing_is_left_changed() -> None:
    from torch.distributed.tensor import debug

    state, hook, threads = torch.get_rng_state(), sys.excepthook, torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        measure("tp_sp", TINY, {"tp": 2})
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert not torch.distributed.is_initialized()
    assert torch.equal(state, torch.get_rng_state())
    assert sys.excepthook is hook
    assert logging.root.isEnabledFor(logging.WARNING)
    assert debug._get_fast_path_sharding_prop_cache_stats() == (0, 0)
    assert debug._get_python_sharding_prop_cache_info().currsize == 0


@pytest.mark.parametrize("name", ["fsdp2", "hsdp", "tp_sp", "fsdp2*tp_naive"])
def test_tensors_without_data_tell_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = dict.fromkeys(SUBJECTS[name].axes, 2)
    options = {"param_dtype": "bfloat16"} if "param_dtype" in SUBJECTS[name].options else {}
    real = measure(name, TINY, mesh, rank=1, options=options)
    monkeypatch.setattr(steps, "ALLOCATED", 0)
    assert seen(measure(name, TINY, mesh, rank=1, options=options)) == seen(real)


@pytest.mark.parametrize("seed", range(25))
def test_random_cases(seed: int) -> None:
    case = random_case(seed)
    assert case == random_case(seed)
    measured = measure(case.subject, case.shapes, case.mesh, rank=case.rank, options=case.options)
    assert 2 <= prod(case.mesh.values()) <= 64
    assert all(e.bytes >= 0 and e.phase and set(e.axes) <= {*case.mesh, "dp_inner"} for e in measured.exchanges)


def test_random_cases_reach_every_subject() -> None:
    cases = [random_case(seed) for seed in range(1500)]
    found = Counter(case.subject for case in cases)
    assert set(found) == set(SUBJECTS)
    assert max(found.values()) < 3 * min(found.values())
    assert sum(case.rank > 0 for case in cases) > len(cases) / 2


# Models.


def test_the_modules_have_the_weights_of_the_shapes() -> None:
    for shapes in (TINY, SMALL, transformer(layers=1, hidden=12, heads=6, kv_heads=2, ffn=5, vocab=7, batch=1, tokens=2)):
        module = models.build(shapes)
        models.check(shapes, module)
        assert [name for name, _ in module.named_parameters()] == [w.name for w in shapes.weights]
    with pytest.raises(InputError, match=r"weight `embedding.weight`: the shapes say nothing, the module has shape \(64, 32\)"):
        models.check(SMALL, models.build(TINY))


def test_any_shapes_can_be_a_stack() -> None:
    """Also those of a decoder, by their names; every weight gets a gradient, and one that depends on the weight."""
    module = models.stack(TINY)
    models.check(TINY, module)
    with torch.no_grad():
        for p in module.parameters():
            p.uniform_(1, 2)
    module(torch.zeros(4, 16, 32)).sum().backward()
    for p in module.parameters():
        torch.testing.assert_close(p.grad, 2 * p.detach() / p.numel() * 4 * 16 * 32)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (stack(((),)), r"weight `w0` has shape \(\)"),
        (stack(((2, 0),)), r"weight `w0` has shape \(2, 0\)"),
        (
            Shapes(name="x", units=(Unit(name="root", weights=()), Unit(name="a", weights=(Weight(name="b.w", shape=(1,)),)))),
            "not of unit `a`",
        ),
        (Shapes(name="x", units=(Unit(name="root", weights=(Weight(name="w", shape=(1,)),) * 2),)), "two weights are called `w`"),
    ],
)
def test_shapes_that_cannot_be_built(shapes: Shapes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        measure("fsdp2", shapes, {"dp": 2})


# Bad input.


def test_an_unknown_subject_is_told_all_names() -> None:
    with pytest.raises(InputError) as caught:
        find("fsdp3")
    (problem,) = caught.value.diagnostics
    assert problem.code == "PP101"
    assert all(name in (problem.help or "") for name in SUBJECTS)
    assert (problem.help or "").startswith("did you mean")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"subject": "fsdp2", "mesh": {"tp": 2}}, "runs on the mesh axes dp, in this order; given are tp"),
        ({"subject": "fsdp2", "mesh": {"dp": 0}}, "axis `dp` cannot have 0 devices"),
        ({"subject": "fsdp2", "mesh": {"dp": 5000}}, "5000 devices are too many"),
        ({"subject": "fsdp2", "mesh": {"dp": 2}, "rank": 2}, "there is no rank 2 among 2 devices"),
        ({"subject": "fsdp2", "mesh": {"dp": 2}, "backend": "nccl"}, "no backend `nccl`"),
        ({"subject": "fsdp2", "mesh": {"dp": 2}, "options": {"k": 2}}, "`fsdp2` has no option `k`"),
        ({"subject": "fsdp2", "mesh": {"dp": 2}, "options": {"dtype": "int8"}}, "option `dtype` of `fsdp2` cannot be 'int8'"),
        ({"subject": "fsdp2", "mesh": {"dp": 2}, "options": {"step": True}}, "option `step` of `fsdp2` cannot be True"),
        ({"subject": "fsdp2_sub", "mesh": {"dp": 4}, "options": {"k": 3}}, "a sub-group of 3 does not divide the axis `dp` of 4"),
        ({"subject": "tp_sp", "mesh": {"tp": 2}}, "`tp_sp` splits the layers of a decoder"),
        ({"subject": "tp_sp", "mesh": {"tp": 8}, "shapes": TINY}, "8 devices cannot split heads = 4 evenly"),
        ({"subject": "gpipe", "mesh": {"pp": 1}}, "a pipeline of one device exchanges nothing"),
        ({"subject": "zbv", "mesh": {"pp": 4}}, "4 units do not fill 8 stages"),
        ({"subject": "1f1b", "mesh": {"pp": 4}, "options": {"microbatches": 3}}, "needs a micro-batch for each of its 4 stages, not 3"),
        ({"subject": "interleaved", "mesh": {"pp": 2}, "options": {"microbatches": 5}}, "cannot divide 5 micro-batches into 2 rounds"),
        ({"subject": "ddp", "mesh": {"dp": 2}, "shapes": stack(((8192, 8192),))}, "67,108,864 are too many"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        measure(**{"shapes": SMALL} | arguments)


def test_without_torch_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="torch is not installed"):
        measure("fsdp2", SMALL, {"dp": 2})


def test_recorded_measurements_are_read_without_torch() -> None:
    modules = ", ".join(f"placeproof.measure.{name}" for name in ("measured", "training.run", "training.subjects"))
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_process_group_of_the_caller_is_left_alone() -> None:
    def body() -> None:
        with pytest.raises(InputError, match="already has a default process group"):
            measure("fsdp2", SMALL, {"dp": 2})
        assert torch.distributed.get_world_size() == 4

    _with_group(body)


def test_a_process_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: object, job: object) -> object:
        raise ArithmeticError("out of order")

    monkeypatch.setitem(WRAPS, "ddp", broken)
    with pytest.raises(RuntimeError, match=r"`ddp` could not be measured on gloo: .*out of order"):
        measure_all("ddp", SMALL, {"dp": 2})


def test_options_are_settled() -> None:
    settled = settle(find("gpipe"), {"pp": 4}, {"optimizer": "sgd"})
    assert settled == {"optimizer": "sgd", "dtype": "float32", "step": 2, "microbatches": 8}


@pytest.mark.parametrize("arguments", [["ddp(2)"], ["fsdp(2)", "--json"]])
def test_exit_codes(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """0 where what is measured is what was predicted, and 1 where a byte differs."""
    from placeproof.cli.main import run
    from placeproof.measure.training import run as runs

    assert run(["measure", *arguments]) == 0
    assert "differ" not in capsys.readouterr().out
    real = runs.measure

    def more(*of: object, **options: object) -> Measured:
        found: Measured = real(*of, **options)  # type: ignore[arg-type]
        return replace(found, memory={state: amount + 1 for state, amount in found.memory.items()})

    monkeypatch.setattr(runs, "measure", more)
    assert run(["measure", *arguments]) == 1
