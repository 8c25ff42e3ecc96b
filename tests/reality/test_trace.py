"""What scripts do is recorded as programs, and the programs say it: scripts that train what one process trains are proved, others refuted.

After a change that is meant to change what is recorded: ``placeproof trace record tests/scripts/NAME.py -o tests/traces/NAME.step``.
"""

import os
import re
import textwrap
import warnings
from fractions import Fraction
from pathlib import Path

import pytest
from trace_steps import ALL_SPLIT, HEAD, PAIRS, STEPS

from placeproof.cli.main import run
from placeproof.core.diagnostics import InputError
from placeproof.measure.record.axes import grid
from placeproof.measure.record.chain import Chain, UnreadableError, read_chain
from placeproof.measure.record.factor import SCALES, TOTAL, Asked, deciding, recognise, written
from placeproof.measure.record.nodes import Node, Nodes
from placeproof.measure.record.treatment import put_together
from placeproof.programs import read
from placeproof.semantics.judge.verdict import judge

SCRIPTS = Path(__file__).parents[1] / "scripts"
TRACES = Path(__file__).parents[1] / "traces"
RECORDED = sorted(p.stem for p in TRACES.glob("*.step"))
CORRECT = [n for n in RECORDED if not n.startswith("wrong_")]
WRONG = [n for n in RECORDED if n.startswith("wrong_")]

#: What cannot be recorded, and what is said instead.
REFUSED = {
    "wrong_order": "ranks 0 and 1 do not do the same in collective 1: `all_reduce` of `inlet.weight` meets one of `outlet.weight`",
    "wrong_reduce_op": "`all_reduce` mean meets `all_reduce` sum",
    "wrong_size": "`all_reduce` of 1696 float64 meets one of 1304 float64",
    "wrong_skip": "rank 0 enters 1 collectives more than rank 1: first `all_reduce`",
}


def verdict(text: str, name: str = "recorded.step") -> str:
    return judge(read(text, source=name)).word


# Without torch: the recorded programs.


def test_there_are_enough_of_both_kinds() -> None:
    assert len(CORRECT) >= 8
    assert len(WRONG) >= 10


@pytest.mark.parametrize("name", CORRECT)
def test_what_a_correct_script_does_is_proved(name: str) -> None:
    assert verdict((TRACES / f"{name}.step").read_text()) == "proved"


@pytest.mark.parametrize("name", WRONG)
def test_what_a_wrong_script_does_is_refuted(name: str) -> None:
    assert verdict((TRACES / f"{name}.step").read_text()) == "refuted"


def test_comments_name_lines_of_the_script_as_they_are() -> None:
    seen = 0
    for name in RECORDED:
        source = (SCRIPTS / f"{name}.py").read_text().splitlines()
        for line in (TRACES / f"{name}.step").read_text().splitlines():
            if line.strip().startswith(f"# {name}.py:"):
                where, _, text = line.strip().removeprefix(f"# {name}.py:").partition("  ")
                assert source[int(where) - 1].strip() == text
                seen += 1
    assert seen >= len(RECORDED)


# The parts that need no torch.


def test_factors_are_products_of_what_is_counted() -> None:
    counts = {"dp": 2, "tp": 4, "microbatches": 3}
    assert recognise(Fraction(1, 2), counts, ("dp",)) == "1 / dp"
    assert recognise(Fraction(1, 24), counts, ("dp",)) == "1 / (dp * tp * microbatches)"
    assert recognise(Fraction(4, 2), {"dp": 2, "tp": 4}, ("tp", "dp")) == "dp"
    assert recognise(Fraction(1, 7), counts, ()) is None
    assert written(Fraction(3, 7)) == "3 / 7"
    assert written(Fraction(5)) == "5"


def test_the_preferred_of_two_equal_counts_is_meant() -> None:
    counts = {"dp": 4, "microbatches": 4}
    assert recognise(Fraction(1, 4), counts, ("dp",)) == "1 / dp"
    assert recognise(Fraction(1, 4), counts, ("microbatches",)) == "1 / microbatches"
    assert recognise(Fraction(1, 16), counts, ("dp",)) == "1 / (dp * microbatches)"


def test_groups_are_axes_of_the_mesh_or_make_some() -> None:
    mesh = grid({"dp": 2, "tp": 4}, [], 8)
    assert mesh.axes((0, 4)) == ("dp",)
    assert mesh.axes((4, 5, 6, 7)) == ("tp",)
    assert mesh.axes(tuple(range(8))) == ("dp", "tp")
    assert mesh.axes((0, 1)) == ("tp_inner",)
    assert mesh.inner == {"tp": 2}
    with pytest.raises(InputError, match="spans no axis"):
        mesh.axes((0, 5))
    made = grid({}, [(0, 1), (0, 2), (0, 1, 2, 3)], 4)
    assert made.made
    assert made.sizes == {"g0": 2, "g1": 2}
    assert made.axes((0, 2)) == ("g0",)
    assert made.axes((0, 1)) == ("g1",)
    assert grid({}, [(0, 1, 2)], 3).sizes == {"dp": 3}


def test_an_axis_of_one_rank_is_one_if_something_is_exchanged_over_it() -> None:
    assert grid({"dp": 1, "tp": 2}, [(0, 1)], 2).sizes == {"tp": 2}
    assert grid({"dp": 1, "tp": 2}, [(0, 1), (0,)], 2).sizes == {"dp": 1, "tp": 2}
    assert grid({"dp": 1}, [], 1).sizes == {"dp": 1}


def test_terms_are_stored_once_and_norms_are_flat() -> None:
    nodes = Nodes()
    a, b = (nodes.add(Node(kind="pass", index=i, turn=0, line=i)) for i in (0, 1))
    assert nodes.add(Node(kind="pass", index=0, turn=0, line=9)) == a
    both = nodes.norm({nodes.norm({a: 3}, 1): 1, nodes.norm({b: 4}, 1): 1}, 2)
    assert [(nodes[n].of, nodes[n].count) for n in nodes[nodes[both].of[0]].of] == [((a,), 3), ((b,), 4)]
    assert nodes.states(both) == {0, 1}
    assert nodes.power(nodes.power(both, Fraction(2), 1), Fraction(1, 2), 1) == both


def _chain(*nodes: Node) -> Chain:
    """What is read of nodes that follow one another, from a pass to the last."""
    table = Nodes()
    number = table.add(Node(kind="pass", index=0, turn=0))
    for node in nodes:
        number = table.scaled(number, node.factor, 0) if node.kind == "scale" else table.exchanged(number, node)
    return read_chain(table, number, lambda key: ("dp",))


def test_what_a_root_does_before_it_sends_stays_before() -> None:
    """Scalings are taken together, but not over a broadcast, of which other ranks get the result alone."""
    half, third = (Node(kind="scale", factor=Fraction(1, n)) for n in (2, 3))
    reduced, sent, summed = (
        Node(kind=kind, axes=("0,1",), op=op, root=0) for kind, op in (("reduce", "sum"), ("broadcast", ""), ("all_reduce", "sum"))
    )
    seen = _chain(half, reduced, half, sent, third, third).inner
    assert [(s.kind, s.factor) for s in seen] == [
        ("reduce", 1),
        ("scale", Fraction(1, 4)),
        ("broadcast", 1),
        ("scale", Fraction(1, 9)),
    ]
    assert [(s.kind, s.factor) for s in _chain(half, summed, third).inner] == [("all_reduce", 1), ("scale", Fraction(1, 6))]


def test_a_reduce_that_its_root_sends_is_an_all_reduce() -> None:
    half = Node(kind="scale", factor=Fraction(1, 2))
    reduced, sent = (Node(kind=kind, axes=("0,1",), op=op, root=1) for kind, op in (("reduce", "sum"), ("broadcast", "")))
    assert [(s.kind, s.root) for s in put_together(_chain(reduced, half, sent).inner)] == [("all_reduce", ""), ("scale", "")]
    for steps in ((reduced, half), (half, sent), (reduced, half, Node(kind="broadcast", axes=("0,1",), root=0)), (sent, reduced)):
        kept = _chain(*steps).inner
        assert put_together(kept) == kept


def test_gathered_gradients_are_a_sum_over_ranks_with_each_rank_once() -> None:
    nodes = Nodes()
    own, other = (nodes.add(Node(kind="pass", index=i, turn=0)) for i in (0, 1))

    def gathered(number: int, rank: int) -> int:
        return nodes.exchanged(number, Node(kind="all_gather", axes=("0,1,2",), root=rank))

    whole = nodes.added(tuple(gathered(own, rank) for rank in (2, 0, 1)), 0)
    assert (nodes[whole].kind, nodes[whole].of, nodes[whole].op) == ("all_reduce", (own,), "sum")
    thirds = nodes.added(tuple(nodes.scaled(gathered(own, rank), Fraction(1, 3), 0) for rank in range(3)), 0)
    assert (nodes[thirds].kind, nodes[thirds].of) == ("scale", (whole,))
    for numbers in ([0, 1], [0, 1, 1], [0, 1, 2, 2]):
        assert nodes[nodes.added(tuple(gathered(own, rank) for rank in numbers), 0)].kind == "add"
    assert nodes[nodes.added((gathered(own, 0), gathered(own, 1), gathered(other, 2)), 0)].kind == "add"


# With torch: recording.


def recorded(tmp_path: Path, body: str, **options: object) -> str:
    """What is recorded of a script with this ``train``."""
    from placeproof.measure.record.record import trace

    script = tmp_path / "script.py"
    script.write_text(HEAD + "\ndef train():\n" + textwrap.indent(textwrap.dedent(body), "    "))
    return trace(script, **options).text  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def _torch() -> None:
    pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")


@pytest.mark.usefixtures("_torch")
@pytest.mark.parametrize("waits", ["for work in works: work.wait()", "works[0].wait()", "pass", "works.clear()"])
def test_what_an_all_reduce_works_on_is_waited_for(waits: str, tmp_path: Path) -> None:
    body = f"""
        net, (x, y) = model(), data()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        mse(net(x), y).backward()
        works = [dist.all_reduce(p.grad, async_op=True) for p in net.parameters()]
        {waits}
        for p in net.parameters():
            p.grad /= dist.get_world_size()
        optimizer.step()
    """
    if waits.startswith("for"):
        assert verdict(recorded(tmp_path, body)) == "proved"
    else:
        with pytest.raises(InputError, match="is given what `all_reduce` still works on"):
            recorded(tmp_path, body)


#: One waits for the parts of gradients that are summed, another one for the parameters that are gathered.
SHARDS = """
    net, (x, y) = model(), data()
    mse(net(x), y).backward()
    world, rank = dist.get_world_size(), dist.get_rank()
    own, works = {{}}, []
    for p in net.parameters():
        flat = torch.nn.functional.pad(p.grad.flatten(), (0, -p.numel() % world))
        own[p] = flat.new_empty(flat.numel() // world)
        works.append(dist.reduce_scatter_tensor(own[p], flat, async_op=True))
        {early}
    for work in works:
        work.wait()
    gathered, works = {{}}, []
    for p, part in own.items():
        whole = torch.nn.functional.pad(p.detach().flatten(), (0, -p.numel() % world))
        new = whole.chunk(world)[rank] - 0.1 * part / world
        gathered[p] = torch.empty_like(whole)
        works.append(dist.all_gather_into_tensor(gathered[p], new, async_op=True))
    {late}
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(gathered[p][: p.numel()].view_as(p))
"""


@pytest.mark.usefixtures("_torch")
@pytest.mark.parametrize(
    ("early", "late", "unfinished"),
    [
        ("pass", "for work in works: work.wait()", ""),
        ("own[p].div_(2)", "for work in works: work.wait()", "reduce_scatter_tensor"),
        ("flat.zero_()", "for work in works: work.wait()", "reduce_scatter_tensor"),
        ("flat.sum()", "for work in works: work.wait()", ""),
        ("pass", "works[0].wait()", "all_gather_into_tensor"),
    ],
)
def test_what_other_collectives_work_on_is_waited_for(early: str, late: str, unfinished: str, tmp_path: Path) -> None:
    body = SHARDS.format(early=early, late=late)
    if not unfinished:
        assert verdict(recorded(tmp_path, body)) == "proved"
    else:
        with pytest.raises(InputError, match=f"is given what `{unfinished}` still works on"):
            recorded(tmp_path, body)


@pytest.mark.usefixtures("_torch")
@pytest.mark.parametrize("name", RECORDED)
def test_recording_again_gives_the_same(name: str) -> None:
    from placeproof.measure.record.record import trace

    assert trace(SCRIPTS / f"{name}.py").text == (TRACES / f"{name}.step").read_text()


@pytest.mark.usefixtures("_torch")
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_said_is_refused(name: str) -> None:
    from placeproof.measure.record.record import trace

    with pytest.raises(InputError) as refused:
        trace(SCRIPTS / f"{name}.py")
    assert REFUSED[name] in str(refused.value)


@pytest.mark.usefixtures("_torch")
@pytest.mark.parametrize("name", STEPS)
def test_small_steps(name: str, tmp_path: Path) -> None:
    body, expected = STEPS[name]
    word, _, left = expected.partition(" except ")
    if word in ("proved", "refuted"):
        program = read(recorded(tmp_path, body))
        assert judge(program).word == word
        assert [name for name, _ in program.not_compared] == left.split()
    else:
        with pytest.raises(InputError) as refused:
            recorded(tmp_path, body)
        assert expected in str(refused.value)


@pytest.mark.usefixtures("_torch")
def test_blocks_that_do_not_all_exchange_are_refused(tmp_path: Path) -> None:
    from placeproof.measure.record.record import trace

    text = (SCRIPTS / "tp_by_hand.py").read_text()
    (tmp_path / "common.py").write_text((SCRIPTS / "common.py").read_text())
    some = text.replace("y = ToSplit.apply(self.norm(x))", "y = ToSplit.apply(self.norm(x)) if self.exchanges else self.norm(x)").replace(
        "        self.norm = block.norm", "        self.exchanges = not any(block.left.weight[0] == 0.5)\n        self.norm = block.norm"
    )
    assert some.count("self.exchanges") == 2
    (tmp_path / "some.py").write_text(some)
    with pytest.raises(InputError, match="some blocks exchange in backward and some do not"):
        trace(tmp_path / "some.py")


@pytest.mark.usefixtures("_torch")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork processes")
def test_a_sum_that_nobody_makes_is_seen_where_parameters_are_sharded_too(tmp_path: Path) -> None:
    """The fake process group shows nothing of it: so real processes run, also where they were not asked for."""
    from placeproof.measure.record.record import trace

    (tmp_path / "good.py").write_text(PAIRS)
    assert verdict(trace(tmp_path / "good.py").text) == "proved"
    partial = PAIRS.replace('"down": RowwiseParallel()', '"down": RowwiseParallel(output_layouts=Partial())')
    assert partial != PAIRS
    (tmp_path / "partial.py").write_text(partial)
    with pytest.raises(InputError, match="weight` ends differently on ranks that share a computation"):
        trace(tmp_path / "partial.py")


#: What is changed of the script, and what is said then.
SPLIT = {
    "as it is": ("", "", "proved"),
    "logits of each rank alone": (
        "input_layouts=between, output_layouts=Replicate()",
        "input_layouts=between",
        "`head.weight` is split over ranks, and not put together",
    ),
}


@pytest.mark.usefixtures("_torch")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork processes")
@pytest.mark.parametrize("name", SPLIT)
def test_an_embedding_and_a_head_may_be_split(name: str, tmp_path: Path) -> None:
    """What is proved ends as one process does, and what is not does not: real processes say so."""
    import runpy

    from placeproof.measure.processes import run as run_processes
    from placeproof.measure.record.record import trace

    old, new, said = SPLIT[name]
    script = tmp_path / "script.py"
    script.write_text(ALL_SPLIT.replace(old, new) if old else ALL_SPLIT)
    assert old in ALL_SPLIT

    def trained(*_: object) -> bool:
        warnings.simplefilter("ignore")
        ended: bool = runpy.run_path(str(script))["train"]()
        return ended

    if said == "proved":
        assert verdict(trace(script).text) == said
    else:
        with pytest.raises(InputError, match=said):
            trace(script)
    outcomes = run_processes(4, trained)
    assert {o.value for o in outcomes} == {said == "proved"}, outcomes


def test_a_gradient_that_is_still_a_sum_is_one_after_that_exchange_alone() -> None:
    nodes = Nodes()
    whole = nodes.add(Node(kind="pass", index=0, turn=0))
    partial = nodes.add(Node(kind="partial", of=(whole,), axes=("0,1",)))
    after = {
        (kind, axes, op): nodes.exchanged(partial, Node(kind=kind, axes=axes, op=op))
        for kind in ("all_reduce", "reduce_scatter")
        for axes in (("0,1",), ("0,2",))
        for op in ("sum", "mean")
    }
    assert [key for key, number in after.items() if number == whole] == [(k, ("0,1",), "sum") for k in ("all_reduce", "reduce_scatter")]
    for number in (partial, *(n for n in after.values() if n != whole)):
        with pytest.raises(UnreadableError, match="not summed over the ranks that split it"):
            read_chain(nodes, number, lambda key: ("tp",))


@pytest.mark.usefixtures("_torch")
def test_a_factor_with_two_readings_proposes_the_number_of_ranks_that_decides_it(tmp_path: Path) -> None:
    body = """
    assert dist.get_world_size() in (2, 5)
    net, (x, y) = DDP(model()), (torch.randn(8, 4), torch.randn(8, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for xs, ys in zip(x.chunk(4), y.chunk(4)):
        (mse(net(xs), ys) / 4).backward()
    optimizer.step()
    """
    (name, said), (other, why) = read(recorded(tmp_path, body)).not_compared
    assert (name, other) == ("factors", "process")
    assert why == "ranks beside the script as one process: it does not run as one process"
    assert "1 / 4 can be read in several ways, which no other number of ranks told apart (`--world 5` would)" in said
    assert "1 / microbatches" in (text := recorded(tmp_path, body, world=5))
    assert verdict(text) == "proved"


def test_ranks_that_decide_between_products_are_the_least_that_do() -> None:
    found = {(0, (("dp", -2),)), (0, (("microbatches", -1),))}
    assert deciding(found, {"dp": 2}, 4, ()) == 3
    assert deciding(found, {"dp": 3}, 9, ()) == 2
    assert deciding(found, {"dp": 2, "tp": 2}, 4, (6, 8)) == 10
    assert deciding({(0, (("dp", 1),)), (1, (("dp", 1),))}, {"dp": 2}, 1, ()) is None


def test_products_are_kept_that_are_what_another_number_of_ranks_says() -> None:
    """What scales and is not said with one rank is 1 there; a product that is said nowhere else is of another step."""
    by_ranks, by_batches = (0, (("dp", -1),)), (0, (("microbatches", -1),))
    both = frozenset((by_ranks, by_batches))
    alone = Asked({"dp": 1, "microbatches": 2})
    alone.read(f"{SCALES}loss", (Fraction(1, 2),))
    left = {f"{SCALES}loss": both, f"{SCALES}0 outer": both}
    assert alone.kept(left) == {f"{SCALES}loss": {by_batches}, f"{SCALES}0 outer": {by_ranks}}
    assert alone.kept({f"{SCALES}0 outer": both}) is None
    assert alone.kept({**left, "own": both}) is None
    alone.read(f"{TOTAL}0 outer", (Fraction(1),))
    assert alone.kept({**left, f"{TOTAL}0 outer": frozenset()}) is None
    cut = Asked({"dp": 4})
    cut.read(f"{SCALES}loss", (Fraction(1, 2),))
    assert cut.kept({f"{SCALES}loss": both}) == {f"{SCALES}loss": frozenset()}


@pytest.mark.usefixtures("_torch")
def test_buffers_in_which_ranks_end_are_no_part_of_what_is_proved(tmp_path: Path) -> None:
    """They change nothing of what is trained here."""
    body = """
    net, (x, y) = DDP(nn.Sequential(model(), Seen())), data()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    mse(net(x), y).backward()
    optimizer.step()
    """
    said = 'not_compared(buffers="ranks end with other values of 1.seen")'
    text = recorded(tmp_path, SEEN.format("self.seen += x.detach().sum()") + body)
    assert said in text.splitlines()
    assert verdict(text) == "proved"
    text = recorded(tmp_path, SEEN.format("self.seen += 1") + body)
    assert "not_compared" not in text
    text = recorded(tmp_path, SEEN.format("self.seen += 1") + body, world=9)
    ran = 'ranks="of 9 ranks these were run, each alone: 0, 1"'
    assert f'not_compared({ran}, process="ranks beside the script as one process: there are more than 8 ranks")' in text.splitlines()


#: A module that counts something.
SEEN = """
    class Seen(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            {}
            return x
"""


@pytest.mark.usefixtures("_torch")
def test_a_later_step_is_recorded_by_itself(tmp_path: Path) -> None:
    body = """
    net = DDP(model())
    optimizer = torch.optim.AdamW(net.parameters())
    for i in range(3):
        x, y = data()
        optimizer.zero_grad(set_to_none=False)
        mse(net(x), y).backward()
        if i == 1:
            for p in net.parameters():
                p.grad.mul_(2)
        optimizer.step()
    """
    texts = [recorded(tmp_path, body, step=k) for k in (1, 2, 3)]
    assert [verdict(text) for text in texts] == ["refuted", "refuted", "proved"]
    assert "This is step 2: step 1 is proved by itself." in texts[0]
    assert "step 1" not in texts[1]


@pytest.mark.usefixtures("_torch")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork processes")
def test_real_processes_do_the_same_as_the_fake_ones() -> None:
    from placeproof.measure.record.record import trace

    for name in ("all_reduce_by_hand", "zero1_by_hand"):
        assert trace(SCRIPTS / f"{name}.py", backend="gloo").text == (TRACES / f"{name}.step").read_text()


@pytest.mark.usefixtures("_torch")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork processes")
def test_real_processes_of_split_layers_run_to_record_with_other_samples_and_beside_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    from placeproof.measure.record import checked, record

    runs, forked = [], record.forked
    for module in (record, checked):
        monkeypatch.setattr(module, "forked", lambda launch, *follow: runs.append(len(follow)) or forked(launch, *follow))
    assert record.trace(SCRIPTS / "tp_by_hand.py", backend="gloo").text == (TRACES / "tp_by_hand.step").read_text()
    assert runs == [0, 1, 1, 1]


#: What was gathered of the first layer is freed when the step is over.
FREED = """
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

def train():
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))
    fully_shard(net[0], mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(5 + torch.distributed.get_rank())
    nn.functional.mse_loss(net(torch.randn(4, 6)), torch.randn(4, 3)).backward()
    optimizer.step()
"""


@pytest.mark.usefixtures("_torch")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork processes")
def test_what_was_gathered_may_be_freed_when_real_processes_end(tmp_path: Path) -> None:
    from placeproof.measure.record.record import trace

    (tmp_path / "freed.py").write_text("WORLD = 2\n" + FREED)
    texts = {backend: trace(tmp_path / "freed.py", backend=backend).text for backend in ("fake", "gloo")}
    assert texts["fake"] == texts["gloo"]
    assert "reduce_scatter" in texts["gloo"]


@pytest.mark.usefixtures("_torch")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork processes")
def test_an_exchange_that_is_not_whole_is_seen_on_real_processes(tmp_path: Path) -> None:
    from placeproof.measure.record.record import trace

    text = (SCRIPTS / "tp_by_hand.py").read_text()
    (tmp_path / "common.py").write_text((SCRIPTS / "common.py").read_text())
    half = text.replace("functional.relu(functional.linear(y, self.right))", "functional.relu(functional.linear(self.norm(x), self.right))")
    assert half != text
    (tmp_path / "half.py").write_text(half)
    with pytest.raises(InputError, match=r"`inlet\.weight` ends differently on ranks that share a computation"):
        trace(tmp_path / "half.py", backend="gloo")


@pytest.mark.usefixtures("_torch")
def test_nothing_is_left_behind(tmp_path: Path) -> None:
    import sys

    import torch
    import torch.distributed as dist

    before = (torch.autograd.backward, dist.init_process_group, list(sys.path), torch.get_num_threads(), torch.random.get_rng_state().sum())
    recorded(tmp_path, STEPS["update by hand"][0])
    after = (torch.autograd.backward, dist.init_process_group, list(sys.path), torch.get_num_threads(), torch.random.get_rng_state().sum())
    assert after == before
    assert not dist.is_initialized()
    assert "common" not in sys.modules


@pytest.mark.usefixtures("_torch")
def test_the_page_shows_what_is_recorded(tmp_path: Path) -> None:
    from placeproof.measure.record.record import trace

    page = (Path(__file__).parents[2] / "docs" / "how-to" / "traces.md").read_text()
    shown = dict(re.findall(r"<!-- file: (\S+) -->\n```python\n(.*?)```", page, re.DOTALL))
    for name in ("train", "fixed"):
        (tmp_path / f"{name}.py").write_text(shown[f"{name}.py"])
        assert trace(tmp_path / f"{name}.py").text == shown[f"{name}.step"]


#: What one of two ranks does instead of going on, what is said of it, and the line that is shown.
ENDED = {
    "os.kill(os.getpid(), 9)": ("rank 1 died by SIGKILL", "the last thing that it did: `detach`, in backward", "backward()"),
    "os.kill(os.getpid(), 11)": ("rank 1 died by SIGSEGV", "the last thing that it did: `detach`, in backward", "backward()"),
    "print('enough'); os._exit(0)": (
        "rank 1 failed: the process ended with exit status 0",
        "the last line that it wrote: enough",
        "backward()",
    ),
    "time.sleep(99)": ("rank 1 waited too long: still running", "the last thing that it did: `detach`, in backward", "time.sleep(99)"),
    "raise ValueError('no')": ("rank 1 of the script failed: ValueError: no", "", "raise ValueError"),
    "sys.exit(3)": ("rank 1 of the script failed: SystemExit: 3", "", "sys.exit(3)"),
}


@pytest.mark.usefixtures("_torch")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork processes")
@pytest.mark.parametrize("backend", ["fake", "gloo"])
@pytest.mark.parametrize("how", ENDED)
def test_a_rank_that_ends_otherwise_is_named_with_what_it_did_last(how: str, backend: str, tmp_path: Path) -> None:
    body = f"""
    import os, sys, time
    net, (x, y) = model(), data()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    mse(net(x), y).backward()
    if dist.get_rank() == 1:
        {how}
    average(net)
    optimizer.step()
    """
    said, note, line = ENDED[how]
    with pytest.raises(InputError) as refused:
        recorded(tmp_path, body, backend=backend, timeout=2.5)
    (problem,) = refused.value.diagnostics
    assert problem.message.startswith(said)
    assert problem.place is not None
    assert line in problem.place.text
    assert note in "\n".join(problem.notes)
    assert backend == "fake" or how.startswith(("raise", "sys")) or "rank 0" in problem.notes[-1]


@pytest.mark.usefixtures("_torch")
def test_what_a_script_does_after_the_step_is_not_waited_for(tmp_path: Path) -> None:
    body = """
    net = DDP(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    while True:
        x, y = data()
        optimizer.zero_grad()
        mse(net(x), y).backward()
        optimizer.step()
    """
    assert verdict(recorded(tmp_path, body)) == "proved"
    assert verdict(recorded(tmp_path, body, step=3)) == "proved"


@pytest.mark.usefixtures("_torch")
def test_a_script_is_given_its_arguments_and_may_end_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "main.py"
    script.write_text(
        HEAD
        + "import sys\nassert sys.argv == [__file__, '--scale', '3', '-x']\n"
        + "".join(
            f"{line}\n"
            for line in (
                "net, (x, y) = DDP(model()), data()",
                "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)",
                "(mse(net(x), y) / int(sys.argv[2])).backward()",
                "optimizer.step()",
                "sys.exit(0)",
            )
        )
    )
    assert run(["trace", "record", str(script), "--", "--scale", "3", "-x"]) == 0
    text = capsys.readouterr().out
    assert "loss=1 / 3 * mean_over(micro_batches)" in text
    assert verdict(text) == "proved"


def test_a_number_of_ranks_that_has_to_be_worked_out_is_asked_for(tmp_path: Path) -> None:
    from placeproof.measure.record.record import trace

    (tmp_path / "script.py").write_text("import os\nWORLD = int(os.environ.get('WS', 3))  # so many\n")
    with pytest.raises(InputError, match=r"the script's `WORLD` is `int\(os.environ.get\('WS', 3\)\)`: no number"):
        trace(tmp_path / "script.py")


@pytest.mark.usefixtures("_torch")
def test_axes_can_be_said_from_outside(tmp_path: Path) -> None:
    text = recorded(tmp_path, STEPS["every micro-batch reduced"][0], splits={"dp": "sequence"})
    assert 'splits(dp="sequence")' in text
    with pytest.raises(InputError, match="has no mesh axis `tp`"):
        recorded(tmp_path, STEPS["every micro-batch reduced"][0], splits={"tp": "hidden"})


@pytest.mark.usefixtures("_torch")
@pytest.mark.parametrize(("divided", "word"), [(" / 2", "proved"), ("", "refuted")])
def test_a_factor_that_no_number_of_ranks_decides_is_not_compared(tmp_path: Path, divided: str, word: str) -> None:
    """There are two micro-batches and two ranks, and the script takes no other number of these."""
    body = f"""
        net, (x, y), world = model(), data(), dist.get_world_size()
        assert world == 2
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for xs, ys in zip(x.chunk(2), y.chunk(2)):
            (mse(net(xs), ys){divided}).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        optimizer.step()
        """
    text = recorded(tmp_path, body)
    assert verdict(text) == word
    assert ("not_compared(factors=" in text) == (word == "proved")


@pytest.mark.usefixtures("_torch")
def test_the_command_writes_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "ddp.step"
    assert run(["trace", "record", str(SCRIPTS / "ddp.py"), "-o", str(out)]) == 0
    assert "recorded on all 2 ranks" in capsys.readouterr().out
    assert out.read_text() == (TRACES / "ddp.step").read_text()
    assert run(["trace", "record", str(SCRIPTS / "ddp.py")]) == 0
    assert capsys.readouterr().out == out.read_text()


def test_bad_options_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import placeproof.cli.trace as command

    assert run(["trace", "record", "x.py", "--backend", "nccl", "--axis", "dp"]) == 2
    said = capsys.readouterr().err
    assert "no backend `nccl`" in said
    assert "`--axis dp` says nothing" in said
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert run(["trace", "play", "x.py"]) == 2
    assert "`trace` cannot `play`" in (said := capsys.readouterr().err)
    assert "needs PyTorch" in said
    assert run(["trace", "record", "x.py"]) == 2
    assert "needs PyTorch" in capsys.readouterr().err
