"""The experiment about training: its exact steps are those of fractions, mistakes and failures are noticed, and nothing stays behind."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leftovers import no_process_left

from placeproof.cli.main import run
from placeproof.measure.experiments import catalogue as experiments
from placeproof.measure.experiments.experiment import Experiment, Line
from placeproof.report import experiment as report
from placeproof.report import renderers
from placeproof.report import text as as_text

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "experiments.md"
SVG = "{http://www.w3.org/2000/svg}"


def need_torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed: experiments cannot be made")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    with no_process_left():
        yield


def read_line(data: dict[str, Any]) -> Line:
    """A line from its JSON."""
    numbers = {name: None if data[name] is None else Fraction(data[name]) for name in ("ideal", "predicted", "measured")}
    return Line(**{name: value for name, value in data.items() if name != "holds"} | numbers)


def test_training_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON and as a picture: ten steps on two and four devices end as on one."""
    need_torch()
    path = tmp_path / "picture.svg"
    assert run(["experiment", "training", "--json", "--plot", str(path)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "placeproof.experiment/1"
    assert data["holds"] is True
    (one,) = data["experiments"]
    lines = [read_line(each) for each in one["lines"]]
    again = Experiment(**{k: v for k, v in one.items() if k != "holds"} | {"lines": tuple(lines), "says": tuple(one["says"])})
    assert renderers.as_data(report.document([again], data["torch"]).data()) == data
    found = {each.what: each for each in again.lines}
    for way, n in (("ddp", 2), ("fsdp2", 2), ("tp", 2), ("ddp", 4), ("fsdp2", 4), ("tp", 4), ("hsdp", 4)):
        assert found[f"exact, {way}, N = {n}"].measured == 0
        rounded = found[f"rounded, {way}, N = {n}"].measured
        assert rounded is not None
        assert 0 < rounded <= Fraction(1, 10**12)  # another order of addition rounds otherwise
    shown = {each.text for each in ET.fromstring(path.read_text(encoding="utf-8")).iter(f"{SVG}text")}
    assert {report.figure(each, each.measured) for each in lines} <= shown
    assert {each.what for each in lines} <= shown


def matmul(a: list[list[Fraction]], b: list[list[Fraction]]) -> list[list[Fraction]]:
    columns = list(zip(*b, strict=True))
    return [[sum((x * y for x, y in zip(row, column, strict=True) if x and y), Fraction(0)) for column in columns] for row in a]


def turned(a: list[list[Fraction]]) -> list[list[Fraction]]:
    return [list(column) for column in zip(*a, strict=True)]


def step_in_fractions(w: dict[str, Any], x: list[list[Fraction]], y: list[list[Fraction]], rate: Fraction) -> dict[str, Any]:
    """One step of SGD, forward and backward written out."""
    names = sorted({name.rpartition(".")[0].rpartition(".")[0] for name in w} - {""})
    scale = w["scale"]
    inner = {b: matmul(x, turned(w[f"{b}.up.weight"])) for b in names}
    kept = {b: [[max(v, Fraction(0)) for v in row] for row in inner[b]] for b in names}
    out = [[v * s for v, s in zip(row, scale, strict=True)] for row in x]
    for b in names:
        out = [[u + v for u, v in zip(r, q, strict=True)] for r, q in zip(out, matmul(kept[b], turned(w[f"{b}.down.weight"])), strict=True)]
    count = len(x) * len(x[0])
    dy = [[Fraction((u > v) - (u < v), count) for u, v in zip(r, q, strict=True)] for r, q in zip(out, y, strict=True)]
    g: dict[str, Any] = {"scale": [sum(d[j] * r[j] for d, r in zip(dy, x, strict=True)) for j in range(len(scale))]}
    for b in names:
        g[f"{b}.down.weight"] = matmul(turned(dy), kept[b])
        dz = matmul(dy, w[f"{b}.down.weight"])
        dz = [[d * (v > 0) for d, v in zip(r, q, strict=True)] for r, q in zip(dz, inner[b], strict=True)]
        g[f"{b}.up.weight"] = matmul(turned(dz), x)
    return {
        name: [u - rate * v for u, v in zip(p, g[name], strict=True)]
        if name == "scale"
        else [[u - rate * v for u, v in zip(r, q, strict=True)] for r, q in zip(p, g[name], strict=True)]
        for name, p in w.items()
    }


def in_fractions(tensor: Any) -> Any:
    values = tensor.detach().tolist()
    return [[Fraction(v) for v in row] for row in values] if tensor.dim() == 2 else [Fraction(v) for v in values]


def test_the_ten_steps_are_exact() -> None:
    """One process ends with what fractions say, and every step adds a few bits to the longest sum."""
    need_torch()
    from placeproof.measure.experiments.nets import REGIMES
    from placeproof.measure.experiments.training import SEED, STEPS, _alone

    regime = REGIMES["exact"]
    model, (x, y) = regime.begin(SEED)
    w = {name: in_fractions(p) for name, p in model.named_parameters()}
    assert len(w) == 5
    for _ in range(STEPS):
        w = step_in_fractions(w, in_fractions(x), in_fractions(y), Fraction(regime.rate))
    alone = _alone()["exact"]
    assert {name: in_fractions(p) for name, p in alone.parameters.items()} == w
    assert alone.bits is not None
    assert len(alone.bits) == STEPS
    assert 30 < max(alone.bits) == alone.bits[-1] <= 53
    assert alone.moved == STEPS
    assert f"{max(alone.bits)}  holds" in PAGE.read_text(encoding="utf-8")


def only(monkeypatch: pytest.MonkeyPatch, wrap: Callable[..., Any]) -> Experiment:
    """The experiment with two devices, fsdp2 as it is, and another DistributedDataParallel."""
    from placeproof.measure.experiments import training

    monkeypatch.setattr(training, "WAYS", tuple(way for way in training.WAYS if way.world == 2 and way.name != "tp"))
    monkeypatch.setitem(training.WRAPS, "ddp", wrap)
    return training.training()


def test_gradients_that_are_not_averaged_are_noticed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    need_torch()
    found = only(monkeypatch, lambda model, job: model)
    assert {one.what for one in found.lines if not one.holds} == {"exact, ddp, N = 2", "rounded, ddp, N = 2"}
    assert all(one.measured is not None and one.measured > 0.001 for one in found.lines if not one.holds)
    monkeypatch.setattr(experiments, "experiments", lambda names: (found,))
    assert run(["experiment", "training"]) == 1
    assert "2 of 7 lines differ" in capsys.readouterr().out


def test_a_process_that_fails_is_a_line_that_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    need_torch()

    def fails(model: Any, job: Any) -> Any:
        raise ArithmeticError("no such gradient")

    found = only(monkeypatch, fails)
    wrong = [one for one in found.lines if not one.holds]
    assert {one.measured for one in wrong} == {None}
    assert "no such gradient" in as_text.text(report.document([found], "2.13.0"))
    json.dumps(renderers.as_data(report.document([found], "2.13.0").data()), allow_nan=False)


# Exactness.


@given(st.lists(st.integers(-(2**40), 2**40).map(lambda n: n * 2.0**-7), min_size=1, max_size=6))
def test_a_grain_divides_all_numbers_and_its_double_does_not(values: list[float]) -> None:
    torch = need_torch()
    from placeproof.measure.experiments.exact import grain

    found = grain(torch.tensor(values, dtype=torch.float64))
    if found is None:
        assert not any(values)
        return
    unit = Fraction(2) ** found
    assert all((Fraction(v) / unit).denominator == 1 for v in values)
    assert any((Fraction(v) / (2 * unit)).denominator == 2 for v in values)


@pytest.mark.parametrize(
    ("left", "right", "bits"),
    [([1.0, 1.0], [1.0, 1.0], 2), ([2.0**52, 1.0], [1.0, 1.0], 53), ([2.0**53, 1.0], [1.0, 1.0], 54), ([2.0**60, 2.0**58], [1.0, 0.5], 4)],
)
def test_bits_of_a_sum(left: list[float], right: list[float], bits: int) -> None:
    torch = need_torch()
    from placeproof.measure.experiments.exact import Exactness

    a, b = torch.tensor([left], dtype=torch.float64), torch.tensor([right], dtype=torch.float64)
    with Exactness() as found:
        torch.mm(a, b.t())
    assert found.bits == bits


@given(
    st.lists(st.tuples(st.integers(-9, 9), st.integers(-30, 30)).map(lambda p: p[0] * 2.0 ** p[1]), min_size=2, max_size=5), st.randoms()
)
def test_up_to_53_bits_no_order_rounds(values: list[float], random: Any) -> None:
    torch = need_torch()
    from placeproof.measure.experiments.exact import Exactness

    x = torch.tensor(values, dtype=torch.float64)
    with Exactness() as found:
        x.sum()
    if found.bits <= 53:
        random.shuffle(values)
        total = 0.0
        for value in values:  # not sum(), which may make up for what is rounded
            total += value
        assert Fraction(total) == sum(map(Fraction, values))


def test_what_is_not_known_to_be_exact_is_refused() -> None:
    torch = need_torch()
    from placeproof.measure.experiments.exact import Exactness

    x = torch.ones(3, dtype=torch.float64)
    for wrong in (x.exp, lambda: x / 3, x.mean, lambda: x * 2.0**-600):
        with Exactness(), pytest.raises(ValueError, match=r"exact|least"):
            wrong()
