"""What ranks end with, beside the script as one process that is given the samples of all."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from summed_scripts import HEAD as SUMS
from trace_steps import HEAD

from placeproof.core.diagnostics import InputError, refuse
from placeproof.measure.record.single import Single, single
from placeproof.measure.record.together import Numbers, Samples, Settings, UnlikeError
from placeproof.programs import read
from placeproof.semantics.judge.verdict import judge

WHOLE = np.arange(12.0).reshape(4, 3) + 0.25
#: Where samples are drawn.
DRAWN = (1, "randn", "torch.float64", 1, 1)


def _numbers(begun: np.ndarray, left: np.ndarray, read: np.ndarray | None = None, *, rates: Sequence[float] = (1.0,)) -> Numbers:
    made = {} if read is None else {"0 w": read}
    settings: list[Settings] = [[{"lr": rate}] for rate in rates]
    return Numbers(begun={"0 w": begun}, moved={"0 w": left - begun}, read=made, settings=settings, passes=1)


def _single(ranks: Sequence[Numbers], alone: Numbers, *, split: bool = True, noisy: Numbers | None = None) -> Single:
    """``noisy``: what one process comes to where its gradients are others; the same, if nothing is said."""
    for rank, own in enumerate(ranks if not split else ()):
        own.rows, own.samples[DRAWN] = 2, np.array([rank, 2.0])

    def running(world: int, _: Mapping[int, Samples], __: Sequence[Settings], noise: float) -> Mapping[int, Numbers]:
        return {0: noisy or alone} if noise else {0: alone} if world == 1 else dict(enumerate(ranks))

    return single(len(ranks), running, split=split)


@given(st.permutations(range(12)), st.sampled_from([(), (0,), (11,), (3, 7)]), st.integers(2, 3))
def test_elements_are_found_wherever_ranks_have_them(order: list[int], wrong: tuple[int, ...], parts: int) -> None:
    """Parts of a permutation are compared with what one process has there; an element that ends otherwise is seen, wherever it is."""
    flat, after = WHOLE.reshape(-1), WHOLE.reshape(-1) * 2
    there = after.copy()
    there[list(wrong)] += 1e-3
    ranks = [_numbers(flat[own], there[own], flat[own]) for own in np.split(np.array(order), parts)]
    found = _single(ranks, _numbers(WHOLE, after.reshape(4, 3), WHOLE))
    assert bool(found.apart) == bool(wrong)
    assert found.alike == (not wrong)


@pytest.mark.parametrize(("left", "apart"), [((1.0, 2.0, 3.0, 4.0), False), ((1.0, 2.0, 3.0, 5.0), True)])
def test_elements_that_begin_alike_are_compared_as_a_whole(left: tuple[float, ...], apart: bool) -> None:
    ranks = [_numbers(np.zeros(2), np.array(left[2:])), _numbers(np.zeros(2), np.array(left[:2]))]
    assert bool(_single(ranks, _numbers(np.zeros(4), np.array([1.0, 2.0, 3.0, 4.0]))).apart) == apart


def test_gradients_count_where_a_step_may_be_taken_for_the_same() -> None:
    """An optimizer that divides by the size of gradients hides a factor."""
    copies = [_numbers(WHOLE, WHOLE, WHOLE / 2)] * 2
    found = _single(copies, _numbers(WHOLE, WHOLE, WHOLE))
    assert not found.apart
    assert not found.alike
    assert found.hidden
    assert not _single([_numbers(WHOLE, WHOLE)] * 2, _numbers(WHOLE, WHOLE, WHOLE)).alike
    unseen = _numbers(WHOLE, WHOLE, rates=())
    assert _single([unseen] * 2, unseen).hidden  # by hand: no optimizer reads them
    assert not _single([_numbers(WHOLE, WHOLE, WHOLE)] * 2, _numbers(WHOLE, WHOLE, WHOLE)).hidden
    assert not _single(copies, _numbers(WHOLE, WHOLE + 1e-8, WHOLE)).hidden


def test_parameters_that_do_not_show_gradients_do_not_stand_for_them() -> None:
    """Of other gradients, what changes alike says something if it changes otherwise with noise in them."""
    moved = WHOLE + np.linspace(0.1, 0.2, WHOLE.size).reshape(WHOLE.shape)
    ranks, alone = [_numbers(WHOLE, moved, WHOLE * 2)] * 2, _numbers(WHOLE, moved, WHOLE)
    assert _single(ranks, alone).blind == "`w`"
    assert not _single(ranks, alone, noisy=_numbers(WHOLE, moved * 1.001, WHOLE)).blind
    assert not _single([alone] * 2, alone).blind
    unseen = _numbers(WHOLE, moved)  # as where no optimizer reads them
    assert _single([unseen] * 2, unseen).blind == "`w`"
    assert not _single([unseen] * 2, unseen, noisy=_numbers(WHOLE, moved * 1.001)).blind
    assert not _single([_numbers(WHOLE, WHOLE)] * 2, _numbers(WHOLE, WHOLE)).blind  # it is not trained


@pytest.mark.parametrize("part", [1e-3, 1e-5])
def test_what_changes_little_is_compared_by_that(part: float) -> None:
    """Also where a rate is small; what is lost in rounding is not."""
    step = part * np.linspace(0.5, 1.0, WHOLE.size).reshape(WHOLE.shape)
    alone = _numbers(WHOLE, WHOLE + step, WHOLE)
    assert _single([_numbers(WHOLE, WHOLE + 1.01 * step, WHOLE)] * 2, alone).apart == "`w`, by 1.0e-02 of the largest change"
    assert not _single([_numbers(WHOLE, np.nextafter(WHOLE + step, 99), WHOLE)] * 2, alone).apart


@pytest.mark.parametrize(
    ("made", "whole", "alike"),
    [
        (([1.0], [2.0]), [1.0, 2.0], True),
        (([1.0], [2.0]), [2.0, 1.0], False),
        (([1.0], [2.0]), [1.0], False),
        (([1.0], [1.0]), [5.0], True),
        (([1.0], 2.0), [1.0, 2.0], False),
    ],
)
def test_what_python_makes_is_of_all_ranks(made: tuple[object, object], whole: object, alike: bool) -> None:
    """One process has it of one rank after another, or all ranks have the same."""
    *ranks, alone = (_numbers(WHOLE, WHOLE + 1, WHOLE) for _ in range(3))
    for own, values in zip((*ranks, alone), (*made, whole), strict=True):
        own.python, own.arrays = [(str(values),)], {str(values): np.array(values)}
    if alike:
        assert not _single(ranks, alone).apart
    else:
        with pytest.raises(UnlikeError, match="not made by PyTorch"):
            _single(ranks, alone)


def test_one_process_makes_as_many_updates() -> None:
    """Of fewer, it has more micro-batches in each."""
    once, twice = _numbers(WHOLE, WHOLE), _numbers(WHOLE, WHOLE, rates=(1.0, 1.0))
    assert _single([once] * 2, twice).apart == "it makes 2 updates, and a rank 1"
    with pytest.raises(UnlikeError, match="other backward passes"):
        _single([twice] * 2, once)
    assert _single([twice] * 2, replace(once, chosen=True)).apart == "it makes 1 updates, and a rank 2"  # samples may decide


@pytest.mark.parametrize(
    ("alone", "why"),
    [
        (_numbers(WHOLE + 1, WHOLE), "begin with other parameters"),
        (_numbers(WHOLE, WHOLE, rates=(2.0,)), "other settings"),
        (Numbers(begun={"0 w": WHOLE}, moved={"0 w": WHOLE}, settings=[[{"lr": 1.0}]], passes=2), "other backward passes"),
        (Numbers(begun={"0 w": WHOLE}, moved={"0 w": WHOLE}, settings=[[{"lr": 1.0}]], passes=1, drawn=True), "of chance"),
        (Numbers(begun={"0 w": WHOLE}, moved={"0 w": WHOLE}, settings=[[{"lr": 1.0}]], passes=1, double=False), "double precision"),
    ],
)
def test_what_is_another_run_is_not_compared(alone: Numbers, why: str) -> None:
    with pytest.raises(UnlikeError, match=why):
        _single([_numbers(WHOLE, WHOLE)] * 2, alone)


@pytest.mark.parametrize(("wrong", "kept", "apart"), [((), "", ""), ((1,), "w", ""), ((0, 1), "w", "an average of `w`")])
def test_averages_of_parameters_are_compared(wrong: tuple[int, ...], kept: str, apart: str) -> None:
    """That of rank 0 has to be the one of one process; that another rank has another one is said."""
    ranks, alone = [_numbers(WHOLE, WHOLE) for _ in range(2)], _numbers(WHOLE, WHOLE)
    for rank, own in enumerate(ranks):
        own.averages["w"] = [WHOLE + (rank in wrong)]
    alone.averages["w"] = [WHOLE]
    found = _single(ranks, alone, split=False)
    assert found.kept == kept
    assert found.apart.startswith(apart)
    assert bool(found.apart) == bool(apart)


@pytest.mark.parametrize("results", [{}, {0: np.ones(3), 1: np.ones(2)}])
def test_what_ranks_compute_by_their_numbers_of_no_samples_is_not_compared(results: Mapping[int, np.ndarray]) -> None:
    ranks = [_numbers(WHOLE, WHOLE), _numbers(WHOLE, WHOLE)]
    computed = (3, "mul", "torch.float64", 1, 1)
    for rank, own in enumerate(ranks):
        own.rows, own.used, own.samples[DRAWN], own.beside[computed] = 2, {computed}, np.array([1.0, 2.0 + rank]), (str(rank),)
        if rank in results:
            own.results[computed] = results[rank]
    with pytest.raises(UnlikeError, match="each by its number"):
        _single(ranks, _numbers(WHOLE, WHOLE))


@pytest.mark.parametrize("differ", [False, True])
def test_what_ranks_compute_by_their_numbers_is_given_only_where_nothing_else_differs(differ: bool) -> None:
    """One process is given what ranks compute of samples, each by its number: that may be what is wrong where ranks differ."""
    computed, given = (3, "mul", "torch.float64", 1, 1), list[np.ndarray]()

    def running(world: int, samples: Mapping[int, Samples], _: Sequence[Settings], noise: float) -> Mapping[int, Numbers]:
        found = {r: _numbers(WHOLE, WHOLE) for r in range(world)}
        for rank, own in found.items():
            own.rows, own.used, own.beside[computed], own.results[computed] = 2, {computed}, (str(rank),), np.full(2, float(rank))
            own.samples[DRAWN] = np.array([1.0, 2.0 + rank])
        given.extend(own[computed] for own in samples.values() if computed in own)
        return found

    if differ:
        with pytest.raises(UnlikeError, match="each by its number"):
            single(2, running, differ=True)
    else:
        assert not single(2, running).apart
        assert [own.tolist() for own in given[:1]] == [[0.0, 0.0, 1.0, 1.0]]


def test_rows_that_ranks_write_are_given_to_one_process() -> None:
    """All write the same to the first row of theirs: of all samples, that is a row of each."""
    written, given = (3, "fill_", "torch.float64", 1, 1), list[np.ndarray]()

    def running(world: int, samples: Mapping[int, Samples], _: Sequence[Settings], noise: float) -> Mapping[int, Numbers]:
        found = {r: _numbers(WHOLE, WHOLE) for r in range(world)}
        for rank, own in found.items():
            own.rows, own.used, own.beside[written], own.results[written] = 2, {written}, ("0", "-100"), np.array([-100.0, rank])
            own.samples[DRAWN] = np.array([1.0, 2.0 + rank])
        given.extend(own[written] for own in samples.values() if written in own)
        return found

    assert not single(2, running, differ=True).apart
    assert [own.tolist() for own in given[:1]] == [[-100.0, 0.0, -100.0, 1.0]]


@pytest.mark.parametrize("uneven", [False, True])
def test_a_multiple_of_all_gradients_is_told(uneven: bool) -> None:
    """A loss that is divided by what is given as a number makes one process train a multiple."""
    read = WHOLE * 2
    read[0, 0] += uneven
    assert _single([_numbers(WHOLE, WHOLE + 1, read)] * 2, _numbers(WHOLE, WHOLE, WHOLE)).multiple == (not uneven)


def test_modules_of_one_process_are_given_what_those_of_ranks_are() -> None:
    ranks, alone = [_numbers(WHOLE, WHOLE) for _ in range(2)], _numbers(WHOLE, WHOLE)
    for rank, own in enumerate(ranks):
        own.given = [np.full((2, 3), rank)]
    alone.given = [np.repeat(np.arange(2), 2)[:, None].repeat(3, 1)]
    assert not _single(ranks, alone, split=False).apart
    alone.given[0] = alone.given[0][:, :2]
    with pytest.raises(UnlikeError, match="other parts of samples"):
        _single(ranks, alone, split=False)
    assert not _single(ranks, replace(alone, chosen=True), split=False).apart


def test_parts_that_are_called_alike_are_found_by_their_values() -> None:
    """Each of two ranks has one of two heads, by the name of the first."""
    ones: list[Settings] = [[{"lr": 1.0}]]
    ranks = [Numbers(begun={"0 h.0": WHOLE[i : i + 2]}, moved={"0 h.0": np.ones((2, 3))}, settings=ones, passes=1) for i in (0, 2)]
    begun = {"0 h.0": WHOLE[:2], "1 h.1": WHOLE[2:]}
    for last in (1.0, 2.0):
        moved = {"0 h.0": np.ones((2, 3)), "1 h.1": np.full((2, 3), last)}
        assert bool(_single(ranks, Numbers(begun=begun, moved=moved, settings=[[{"lr": 1.0}]], passes=1)).apart) == (last == 2.0)


@pytest.mark.parametrize("turned", [True, False])
def test_settings_that_samples_decide_are_told_from_those_of_a_schedule(turned: bool) -> None:
    """``turned``: where ranks have samples of each other, a later update has other settings."""

    def running(world: int, samples: Mapping[int, Samples], settings: Sequence[Settings], noise: float) -> Mapping[int, Numbers]:
        found = {r: _numbers(WHOLE, WHOLE, rates=(1.0, 2.0)) for r in range(world)}
        for rank, own in found.items():
            own.rows, own.used, own.samples[DRAWN] = 2, {DRAWN}, samples.get(rank, {}).get(DRAWN, np.array([1.0, 2.0 + rank]))
            if world == 1 or (turned and own.samples[DRAWN][1] != 2.0 + rank):
                own.settings[1] = [{"lr": 3.0}]
            own.settings = list(settings) or own.settings
        return found

    if turned:
        assert single(2, running).apart == "a later update has other settings, which change with samples"
    else:
        assert single(2, running).lent


@pytest.mark.parametrize("wrong", [0.0, 1e-3])
def test_one_process_is_compared_with_the_settings_of_ranks(wrong: float) -> None:
    """As where a rate is multiplied by the number of ranks; other groups cannot be lent."""

    def running(world: int, _: Mapping[int, Samples], settings: Sequence[Settings], noise: float) -> Mapping[int, Numbers]:
        rate = settings[0][0]["lr"] if settings else float(world)
        assert isinstance(rate, float)
        found = {r: _numbers(WHOLE, WHOLE * rate + (wrong if world == 2 else 0.0), rates=(rate,)) for r in range(world)}
        for rank, own in found.items():
            own.rows, own.samples[DRAWN] = 2, np.array([1.0, 2.0 + rank])
        return found

    assert bool(single(2, running).apart) == bool(wrong)
    assert single(2, running).lent

    def grouped(world: int, samples: Mapping[int, Samples], settings: Sequence[Settings], noise: float) -> Mapping[int, Numbers]:
        found = running(world, samples, settings, noise)
        for own in found.values() if world == 1 else ():
            own.settings[0] = [{"lr": 2.0}, {"lr": 1.0}]
        return found

    with pytest.raises(UnlikeError, match="other settings"):
        single(2, grouped)


@pytest.mark.parametrize("axis", [0, 1])
def test_samples_of_all_ranks_may_lie_one_after_another_in_either_dimension(axis: int) -> None:
    """A tensor has four micro-batches of two samples; or four samples of two numbers, of which a module is given two."""

    def running(world: int, samples: Mapping[int, Samples], _: Sequence[Settings], noise: float) -> Mapping[int, Numbers]:
        found = {r: _numbers(WHOLE, WHOLE) for r in range(world)}
        for rank, own in found.items():
            own.rows, own.used, own.samples[DRAWN] = 2, {DRAWN}, samples.get(rank, {}).get(DRAWN, np.arange(8.0).reshape(4, 2) + 10 * rank)
            own.given.append(own.samples[DRAWN][0] if axis else own.samples[DRAWN])
        return found

    assert not single(2, running).apart


def test_a_script_that_does_not_run_with_samples_of_the_next_rank_is_not_compared() -> None:
    """As where ranks have other numbers of them."""

    def running(world: int, samples: Mapping[int, Samples], settings: Sequence[Settings], noise: float) -> Mapping[int, Numbers]:
        if world == 2 and samples:
            refuse("PP603", "sizes do not match", help="none")
        found = {r: _numbers(WHOLE, WHOLE, rates=(1.0, float(world))) for r in range(world)}
        for rank, own in found.items():
            own.rows, own.used, own.samples[DRAWN] = 2, {DRAWN}, np.array([1.0, 2.0 + rank])
        return found

    with pytest.raises(UnlikeError, match="does not run as one process"):
        single(2, running)


def test_a_script_that_needs_its_ranks_is_not_compared() -> None:
    def running(world: int, _: Mapping[int, Samples], __: Sequence[Settings], ___: float) -> Mapping[int, Numbers]:
        if world == 1:
            refuse("PP603", "there is no rank 1", help="two")
        return {0: _numbers(WHOLE, WHOLE)}

    with pytest.raises(UnlikeError, match="does not run as one process"):
        single(2, running, split=True)


#: A layer of which each rank has a part of the rows, summed over ranks; ``{own}`` is added by each.
SPLIT = """
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
            self.shared = nn.Linear(8, 8)
            rank, world = dist.get_rank(), dist.get_world_size()
            self.up.weight = nn.Parameter(self.up.weight.detach().chunk(world, 0)[rank].clone())
            self.down.weight = nn.Parameter(self.down.weight.detach().chunk(world, 1)[rank].clone())

        def forward(self, x):
            y = self.norm(x)
            z = self.down(torch.relu(self.up(Copy.apply(y)))){inside}
            return x + Reduce.apply(z){outside}

    torch.manual_seed(0)
    net = nn.Sequential(Layer(), Layer(), nn.Linear(8, 8))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(5)
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    F.mse_loss(net(x), y).backward()
    optimizer.step()
"""

#: Of a head each rank has a part of the words; ``{summed}`` adds up over ranks.
WORDS = """
    from torch.distributed.nn.functional import all_reduce
    rank, world = dist.get_rank(), dist.get_world_size()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inlet, self.head, self.words = nn.Linear(8, 8), nn.Linear(8, 8, bias=False), 8 // world
            self.head.weight = nn.Parameter(self.head.weight.detach().chunk(world, 0)[rank].clone())

        def forward(self, x, y):
            logits = self.head(Copy.apply(torch.tanh(self.inlet(x))))
            here = y - rank * self.words
            picked = logits.gather(1, here.clamp(0, self.words - 1)[:, None])[:, 0]
            picked = picked.masked_fill((here < 0) | (here >= self.words), 0.0)
            return ({summed}(logits.exp().sum(-1)).log() - {summed}(picked)).mean()

    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(5)
    net(torch.randn(6, 8), torch.randint(8, (6,))).backward()
    optimizer.step()
"""
#: Each rank has samples of its own, ``{drawn}``, and decides with ``{decided}`` whether it updates.
SAMPLES = """
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), {layer}, nn.Linear(8, 8))
    optimizer = torch.optim.SGD(net.parameters(), lr={rate})
    for step in range(3):
        torch.manual_seed(10 * step + world - 1 - rank)
        x, y = torch.randn(4, 8), torch.randn(4, 8){drawn}
        optimizer.zero_grad()
        loss = mse(net(x), y)
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        seen = loss.detach().clone()
        {decided}
        if seen > {least}:
            optimizer.step()
"""
#: Ranks update with a rate of their own where ``{rate}`` says so; ``{inside}`` is what a module does, ``{made}`` what is made of samples.
INSIDE = """
    rank, world, seen = dist.get_rank(), dist.get_world_size(), []
    class Layer(nn.Module):
        def forward(self, h):
            {inside}
            return h
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), Layer(), nn.Linear(8, 8))
    optimizer = torch.optim.SGD(net.parameters(), lr={rate})
    torch.manual_seed(10 + rank)
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    {made}
    mse(net(x), y).backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= {divisor}
    optimizer.step()
"""
PLAIN = {"inside": "h = torch.tanh(h)", "rate": "0.1", "made": "", "divisor": "world"}
RIGHT = {"layer": "nn.ReLU()", "rate": "0.1", "drawn": "", "decided": "seen += 10", "least": "1.0"}


def _recorded(tmp_path: Path, body: str, constant: Fraction | None = None, **filled: str) -> str:
    from placeproof.measure.record.record import trace

    text = body
    for name, value in filled.items():
        text = text.replace(f"{{{name}}}", value)
    head = SUMS if body in (SPLIT, WORDS) else HEAD
    (tmp_path / "script.py").write_text(head + "\ndef train():\n" + textwrap.indent(textwrap.dedent(text), "    "))
    return judge(read(trace(tmp_path / "script.py", constant=constant).text)).word


@pytest.fixture(scope="module")
def _torch() -> None:
    pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to record scripts")


@pytest.mark.usefixtures("_torch")
def test_what_each_rank_adds_to_a_sum_counts_once_for_each(tmp_path: Path) -> None:
    """The gradients are those of what ranks compute, and a layer that all have is in it as often as there are ranks."""
    assert _recorded(tmp_path, SPLIT, inside="", outside=" + self.shared(y)") == "proved"
    with pytest.raises(InputError, match="other values than the script does as one process"):
        _recorded(tmp_path, SPLIT, inside=" + self.shared(y)", outside="")


@pytest.mark.usefixtures("_torch")
def test_a_multiple_that_no_number_makes_is_refused(tmp_path: Path) -> None:
    """PyTorch's sum over ranks is one in backward, too, and each rank has the loss of all: gradients are too large."""
    assert _recorded(tmp_path, WORDS, summed="Reduce.apply") == "proved"
    with pytest.raises(InputError, match="other values than the script does as one process"):
        _recorded(tmp_path, WORDS, summed="all_reduce")


@pytest.mark.usefixtures("_torch")
@pytest.mark.parametrize(
    "change",
    [{}, {"rate": "0.1 * world"}, {"layer": "nn.Dropout(0.5)"}, {"drawn": " + 3 * rank"}, {"decided": "dist.all_reduce(seen); seen *= 10"}],
)
def test_what_one_process_may_do_otherwise_stays_proved(change: Mapping[str, str], tmp_path: Path) -> None:
    assert _recorded(tmp_path, SAMPLES, **{**RIGHT, **change}) == "proved"


@pytest.mark.usefixtures("_torch")
def test_what_one_rank_decides_by_its_samples_is_seen(tmp_path: Path) -> None:
    """In the second step rank 0 has a loss below 0.9, and both together have a larger one; also where samples are computed by rank."""
    change = {"decided": "dist.broadcast(seen, src=0)", "least": "0.9", "drawn": " + 0.001 * rank"}
    with pytest.raises(InputError, match="one process"):
        _recorded(tmp_path, SAMPLES, **{**RIGHT, **change})


@pytest.mark.usefixtures("_torch")
@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ("h.data.mul_(0.5)", ""),
        ("h.data.mul_(0.5) if rank else None", "rank 1 computes `mul_` where rank 0 does not"),
        ("h.register_hook(lambda g: g * 0.5)", ""),
        ("None if rank else h.register_hook(lambda g: g * 0.5)", "rank 0 computes `mul` in backward where rank 1 does not"),
        ("None if rank else h.register_hook(lambda g: seen.append(g.norm()))", ""),
        ("h = h.roll(1, 1)", ""),
        ("h = h.roll(1 + rank, 1)", "are given other dimensions, or places in them"),
        ("h = torch.cat([h[:, 1:], h[:, :1]], 1) + h[:, 2:3]", ""),
        ("h = h + h[:, rank : 1 + rank]", "are given other dimensions, or places in them"),
    ],
)
def test_what_ranks_do_otherwise_is_refused_where_they_cannot_be_compared(inside: str, said: str, tmp_path: Path) -> None:
    filled = PLAIN | {"inside": inside, "made": "assert world > 1"}
    if not said:
        assert _recorded(tmp_path, INSIDE, **filled) == "proved"
        return
    with pytest.raises(InputError, match=re.escape(said)) as refused:
        _recorded(tmp_path, INSIDE, **filled)
    assert refused.value.diagnostics[0].help == "it cannot be compared with the script as one process: it does not run as one process"


@pytest.mark.usefixtures("_torch")
@pytest.mark.parametrize("rolled", ["1", "1 + rank"])
def test_a_rate_that_is_multiplied_by_the_number_of_ranks_is_lent(rolled: str, tmp_path: Path) -> None:
    filled = PLAIN | {"inside": f"h = h.roll({rolled}, 1)", "rate": "0.1 * world"}
    if rolled == "1":
        assert _recorded(tmp_path, INSIDE, **filled) == "proved"
        return
    with pytest.raises(InputError, match="other values than the script does as one process"):
        _recorded(tmp_path, INSIDE, **filled)


@pytest.mark.usefixtures("_torch")
@pytest.mark.parametrize("rolled", ["1", "1 + rank"])
def test_dropout_in_modules_is_compared_by_its_mean(rolled: str, tmp_path: Path) -> None:
    filled = PLAIN | {"inside": f"h = nn.functional.dropout(h.roll({rolled}, 1), 0.5)"}
    if rolled == "1":
        assert _recorded(tmp_path, INSIDE, **filled) == "proved"
        return
    with pytest.raises(InputError, match="other values than the script does as one process"):
        _recorded(tmp_path, INSIDE, **filled)


@pytest.mark.usefixtures("_torch")
@pytest.mark.parametrize(("rate", "word"), [("0.1 / world", ""), ("0.1", "refuted"), ("0.1 / world, weight_decay=0.1", "refuted")])
def test_a_rate_may_make_up_for_a_sum(rate: str, word: str, tmp_path: Path) -> None:
    """Gradients are added up; with weight decay a lower rate decays less."""
    filled = PLAIN | {"rate": rate, "divisor": "1"}
    if word:
        assert _recorded(tmp_path, INSIDE, **filled) == word
        return
    with pytest.raises(InputError, match="the settings that they update with make up for it"):
        _recorded(tmp_path, INSIDE, **filled)


@pytest.mark.usefixtures("_torch")
def test_a_part_of_samples_may_be_written_by_rank(tmp_path: Path) -> None:
    """What is computed of samples, and then written in a part that is each rank's own, is what one process is given."""
    assert _recorded(tmp_path, INSIDE, **PLAIN | {"made": "y = y.roll(1, 1); y[:, 2 + rank :] = 0.0"}) == "proved"


@pytest.mark.usefixtures("_torch")
@pytest.mark.parametrize("sent", ["dist.all_reduce(seen); seen /= world", "dist.broadcast(seen, src=0)"])
def test_a_rate_that_samples_of_one_rank_decide_is_seen(sent: str, tmp_path: Path) -> None:
    """In the second step rank 0 has a loss below 0.9, and both together have a larger one."""
    decided = "optimizer.step()\n        for group in optimizer.param_groups:\n            group['lr'] = 0.1 if seen > 0.9 else 0.05"
    body = SAMPLES.replace("if seen > {least}:\n            optimizer.step()", decided)
    assert decided in body
    if "all_reduce" in sent:
        assert _recorded(tmp_path, body, **RIGHT | {"decided": sent}) == "proved"
        return
    with pytest.raises(InputError, match="a later update has other settings, which change with samples"):
        _recorded(tmp_path, body, **RIGHT | {"decided": sent})


@pytest.mark.usefixtures("_torch")
@pytest.mark.parametrize(("divisor", "word"), [("world", ""), ("1", "refuted")])
def test_a_constant_may_be_that_of_one_term(divisor: str, word: str, tmp_path: Path) -> None:
    """The loss is a mean over samples of a sum of two terms: that it is once a mean says nothing of their weights."""
    body = INSIDE.replace("mse(net(x), y)", "(0.3 * mse(out, y) * 2.0**2 + 0.7 * nn.functional.l1_loss(out, y))")
    if word:
        assert _recorded(tmp_path, body, Fraction(1), **PLAIN | {"divisor": divisor, "made": "out = net(x)"}) == word
        return
    with pytest.raises(InputError, match="the loss adds up several terms"):
        _recorded(tmp_path, body, Fraction(1), **PLAIN | {"divisor": divisor, "made": "out = net(x)"})
