"""Stages of pipelines: backward passes that go on in each other are found, and whatever does not fit together is refused.

What is recorded of pipelines as PyTorch makes them is among the traces; ``nightly/scripts`` has many more.
"""

import os
import textwrap
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.measure.record.axes import grid, with_stages
from placeproof.measure.record.chain import read_chain
from placeproof.measure.record.nodes import Node, Nodes
from placeproof.measure.record.pipeline import by_stages, joined
from placeproof.measure.record.recording import Call, Maker, Recording, Rows, Stretch, Turn
from placeproof.programs import read
from placeproof.semantics.judge.verdict import judge

LINES, LOSS = ("send", "receive", "backward"), Turn(factor=Fraction(1, 2), summed=False, count=4, rows=2, line=3)
MAKERS: tuple[Maker, Maker] = ((1, "randn", "float", (4, 3)), (2, "randn", "float", (4, 3)))


def rows(first: int, count: int = 2) -> Rows:
    return first, 1, count, 4


def pipeline() -> dict[int, Recording]:
    """Two stages and two micro-batches. The second stage takes them from the last to the first."""
    first, last = (Recording(rank=r, world=2, script="script.py", source=LINES, nodes=Nodes()) for r in (0, 1))
    first.turns = [replace(LOSS, text="begins with a gradient", line=1) for _ in range(2)]
    last.turns = [replace(LOSS, value=1.0), replace(LOSS, value=0.0)]
    for i in (0, 1):
        first.calls.append(
            Call(
                number=i,
                given=(f"x{i}",),
                rows=2,
                by_row=[(f"a{i}", f"b{i}")],
                line=1,
                results=(f"h{i}",),
                sources={(MAKERS[0], 0, rows(2 * i))},
            )
        )
        last.calls.append(Call(number=i, given=(), rows=2, by_row=[(f"c{i}", f"d{i}")], line=2, sources={(MAKERS[1], 0, rows(2 * i))}))
        first.stretches.append(Stretch(calls=frozenset((i,)), begins=((f"h{i}", f"g{i}"),)))
        last.stretches.append(Stretch(calls=frozenset((1 - i,)), ends=[(f"h{1 - i}", f"g{1 - i}")]))
        first.sent.add((f"h{i}", 1))
        last.sent.add((f"g{i}", 0))
    for recording in (first, last):
        recording.made = {MAKERS[0]: ["x"], MAKERS[1]: ["y"]}
    return {0: first, 1: last}


def test_micro_batches_are_those_of_the_last_stage_wherever_a_stage_has_them() -> None:
    made, lines = joined(pipeline())
    assert lines == [(0, 1)]
    for recording in made.values():
        assert [t.value for t in recording.turns] == [1.0, 0.0]
        assert recording.inputs == {0: ("x1",), 1: ("x0",)}
        assert recording.by_row[0] == [("a1", "b1"), ("c1", "d1")]
        assert recording.line == (0, 1)


def gradients_swapped(first: Recording, last: Recording) -> None:
    first.stretches[0].begins, first.stretches[1].begins = (("h0", "g1"),), (("h1", "g0"),)


def sent_twice(first: Recording, last: Recording) -> None:
    last.stretches[0].ends[:] = [("h0", "g1")]


def not_sent_back(first: Recording, last: Recording) -> None:
    first.stretches.pop()
    first.turns.pop()


def overwritten(first: Recording, last: Recording) -> None:
    last.stretches[1].overwritten = True


def made_up(first: Recording, last: Recording) -> None:
    first.stretches[0].begins = (("h9", "g0"),)


def loss_of_its_own(first: Recording, last: Recording) -> None:
    first.stretches[0].losses = True


def another_loss(first: Recording, last: Recording) -> None:
    first.stretches.append(Stretch(calls=frozenset()))
    first.turns.append(LOSS)


def differentiated_twice(first: Recording, last: Recording) -> None:
    first.stretches[0].calls = first.stretches[1].calls


def other_samples(first: Recording, last: Recording) -> None:
    first.made[MAKERS[1]] = ["z"]


def other_rows(first: Recording, last: Recording) -> None:
    last.calls[0].sources = {(MAKERS[1], 0, rows(2))}


WRONG: list[tuple[Callable[[Recording, Recording], None], str]] = [
    (gradients_swapped, "begins with another gradient than rank 1 has made of the same micro-batch"),
    (sent_twice, "is read in several backward passes"),
    (not_sent_back, "no stage goes on with a gradient"),
    (overwritten, "is overwritten before backward reads it"),
    (made_up, "begins with a gradient of what no other stage has read"),
    (loss_of_its_own, "adds a loss of its own"),
    (another_loss, "rank 0 computes for no micro-batch, or for those of several ranks"),
    (differentiated_twice, "two backward passes differentiate what one call of a module gives"),
    (other_samples, "are stages of one pipeline, and make other samples"),
    (other_rows, "read other rows of samples for one micro-batch"),
]


@pytest.mark.parametrize(("change", "text"), WRONG, ids=[change.__name__ for change, _ in WRONG])
def test_what_does_not_fit_together_is_refused(change: Callable[[Recording, Recording], None], text: str) -> None:
    recordings = pipeline()
    change(recordings[0], recordings[1])
    with pytest.raises(InputError, match=text):
        joined(recordings)


def test_ranks_with_losses_of_their_own_are_no_pipeline() -> None:
    recordings = pipeline()
    for recording in recordings.values():
        recording.stretches = [Stretch(calls=frozenset((0,)))]
    assert joined(recordings) == (recordings, [])


def test_stages_lie_along_an_axis_in_the_order_of_its_ranks() -> None:
    mesh = with_stages(grid({"stage": 2, "data": 2}, [], 4), [(0, 2), (1, 3)])
    assert (mesh.stages, mesh.alike) == ("stage", 2)
    made = with_stages(grid({}, [(0, 2), (0, 1)], 4), [(0, 1), (2, 3)])
    assert made.sizes == {"dp": 2, "pp": 2}
    three = with_stages(grid({}, [], 3), [(0, 1, 2)])
    assert (three.sizes, three.axes((0, 2))) == ({"pp": 3}, ("pp_ends",))
    for lines in ([(0, 3), (1, 2)], [(2, 0), (1, 3)], [(0, 2), (0, 1)]):
        with pytest.raises(InputError, match="no axis"):
            with_stages(grid({"stage": 2, "data": 2}, [], 4), lines)
    recordings = {rank: Recording(rank=rank, world=4, script="", source=(), nodes=Nodes()) for rank in range(4)}
    assert [{k: r.rank for k, r in stage.items()} for stage in by_stages(recordings, mesh)] == [{0: 0, 1: 1}, {0: 2, 1: 3}]


def test_a_mean_over_ranks_is_nothing_where_it_is_summed_over_these_again() -> None:
    nodes = Nodes()
    passes = [nodes.add(Node(kind="pass", index=0, turn=t)) for t in (0, 1)]

    def chain(factor: Fraction) -> tuple[object, ...]:
        mean = nodes.scaled(nodes.add(Node(kind="all_reduce", of=(passes[0],), axes=("0,1",), op="sum")), factor, 1)
        both = nodes.add(Node(kind="add", of=(mean, passes[1])))
        read = read_chain(nodes, nodes.add(Node(kind="all_reduce", of=(both,), axes=("0,1",), op="sum")), lambda k: ("dp",), {"dp": 2})
        return read.inner, read.turns

    assert chain(Fraction(1, 2)) == ((), 2)
    assert chain(Fraction(1, 3)) != ((), 2)


# With torch: recording.

TIED = """
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.functional import cross_entropy

    WORLD = 2


    def train():
        rank = dist.get_rank()
        torch.manual_seed(0)
        embed, layers, head = nn.Embedding(7, 4), [nn.Linear(4, 4) for _ in range(2)], nn.Linear(4, 7, bias=False)
        head.weight.data.copy_(embed.weight.data)
        model = nn.Sequential(embed, layers[0]) if rank == 0 else nn.Sequential(layers[1], head)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x, y = torch.randint(7, (8, 3)), torch.randint(7, (8, 3))
        kept = []
        for i in range(4):
            if rank == 0:
                kept.append(model(x[2 * i : 2 * i + 2]))
                dist.send(kept[i].detach(), 1)
                EXTRA = kept[i].detach().tanh()
                dist.send(EXTRA, 1)
            else:
                hidden, extra = torch.empty(2, 3, 4), torch.empty(2, 3, 4)
                dist.recv(hidden, 0)
                dist.recv(extra, 0)
                out = model(hidden.requires_grad_() READ)
                kept.append((hidden, cross_entropy(out.flatten(0, 1), y[2 * i : 2 * i + 2].flatten())))
        for i in range(4):
            if rank == 0:
                gradient = torch.empty_like(kept[i])
                dist.recv(gradient, 1)
                kept[i].backward(gradient)
            else:
                (kept[i][1] / 4).backward()
                dist.send(kept[i][0].grad, 0)
        dist.all_reduce((embed if rank == 0 else head).weight.grad)
        optimizer.step()
    """


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork processes")
def test_a_shared_weight_is_said_and_a_tensor_for_which_no_gradient_comes_back_is_seen(tmp_path: Path) -> None:
    """The second tensor is read without a gradient: no digest says that there should be one, but losses change otherwise than gradients
    say."""
    pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")
    from placeproof.measure.record.record import trace

    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(TIED).replace(" READ", ""))
    text = trace(script).text
    assert "gradients.tied = tied_reduce(gradients.tied, pp)" in text
    assert judge(read(text)).word == "proved"
    script.write_text(textwrap.dedent(TIED).replace(" READ", " + extra"))
    with pytest.raises(InputError, match="losses do not change with the parameters of all stages as gradients say"):
        trace(script)


@pytest.mark.parametrize("step", [1, 2])
def test_a_stage_that_is_through_with_its_step_does_not_leave_others_waiting(step: int) -> None:
    """The script makes two steps; in the second one, the last stage waits for the first."""
    pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")
    from placeproof.measure.record.record import trace

    script = Path(__file__).parents[2] / "nightly" / "scripts" / "pipeline_steps.py"
    assert judge(read(trace(script, step=step, timeout=60).text)).word == "proved"
