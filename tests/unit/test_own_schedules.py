"""Schedules of one's own in strategies: the same answers as the catalogue's file of the same order gives, and errors with their place."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

import placeproof
from placeproof import schedules
from placeproof.core.diagnostics import InputError
from placeproof.cost.model import ModelDerivation, derive_model
from placeproof.cost.model.derivation import derive_linked
from placeproof.models import load
from placeproof.semantics.linked import read_linked, render_linked
from placeproof.strategies import parse_strategy

FOLDER = Path(schedules.__file__).parent / "catalogue"
VALUES = {name: Fraction(n) for name, n in {"b_theta": 2, "b_g": 2, "b_omega": 12, "b_a": 2, "b": 1}.items()}
GOOD = """name = "mine"
layout = "loop"

[order]
phases = [
    { times = "m", run = "F" },
    { times = "m", run = "BW" },
]

[[closed]]
what = "peak"
form = "m * M_B"
"""


BLOCK = """name = "mine"
layout = "loop"

[order]
every = "3"
block = { F = "2 * d", B = "3 * p - 1 - d" }
"""


def copied(name: str, folder: Path, *, forms: bool = False) -> Path:
    """A schedule of the catalogue as a file of one's own, without theorems."""
    text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8").replace(f'name = "{name}"', f'name = "my-{name}"')
    text = re.sub(r"^(proved|computed) = \[[^\]]*\]\n", "", text, flags=re.M)
    path = folder / f"{name}.toml"
    path.write_text(text if forms else text.partition("[[closed]]")[0], encoding="utf-8")
    return path


def numbers(d: ModelDerivation) -> list[dict[str, Fraction | None]]:
    keys = ("model_states", "activations", "peak", "in_flight")
    each = ({**{key: getattr(c, key) for key in keys}, **c.traffic()} for c in d.costs)
    return [{key: d.value(amount, VALUES) for key, amount in amounts.items()} for amounts in each]


@pytest.mark.parametrize(("name", "more"), [("1f1b", ""), ("zb-v", ""), ("zb-h2", ""), ("interleaved", ", chunks=2"), ("dualpipe", "")])
def test_a_copy_of_the_catalogues_costs_the_same_by_its_order_alone(name: str, more: str, tmp_path: Path) -> None:
    written = (f'pp(4, microbatches=8, schedule="{schedule}"{more})' for schedule in (copied(name, tmp_path), name))
    mine, theirs = (derive_model(load("llama3-8b"), parse_strategy(text)) for text in written)
    assert numbers(mine) == numbers(theirs)
    assert None not in numbers(mine)[0].values()


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "dualpipe-v"])
def test_a_copy_with_its_forms_costs_the_same_in_symbols(name: str, tmp_path: Path) -> None:
    mine, theirs = (placeproof.derive(f'pp(schedule="{s}")') for s in (copied(name, tmp_path, forms=True), name))
    assert mine.memory == theirs.memory
    assert mine.by_axis == theirs.by_axis
    assert placeproof.judge(f'pp(schedule="{copied(name, tmp_path, forms=True)}")').word == "proved"


def test_times_are_those_of_its_order(tmp_path: Path) -> None:
    written = (f'pp(4, microbatches=8, schedule="{s}")' for s in (copied("zb-h1", tmp_path), "zb-h1"))
    mine, theirs = (placeproof.model(text, "llama3-8b", b=1).time("dgx-h100") for text in written)
    assert mine.seconds == theirs.seconds
    assert mine.document.data()["formula"] is None
    assert "zb-h1.toml" in str(mine)


def test_what_is_not_proved_of_an_order_is_told(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    (said,) = (text for text, _ in placeproof.judge(f'zero1 * pp(schedule="{path}")').warnings)
    assert "p <= 4 and m <= 9" in said
    assert not placeproof.judge(f'zero1 * pp(4, microbatches=8, schedule="{path}")').warnings
    assert not placeproof.judge("zero1 * pp(schedule=zb-v)").warnings


def test_strategies_and_programs_with_a_file_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a folder").mkdir()
    for path in ("mine.toml", "a folder/mine.toml", "./mine.toml"):
        (tmp_path / path).write_text(GOOD)
        strategy = parse_strategy(f'pp(4, microbatches=8, schedule="{path}")')
        assert parse_strategy(strategy.name) == strategy
        assert strategy.schedule.in_flight == path
        d = derive_model(load("llama3-8b"), strategy)
        assert derive_linked(read_linked(render_linked(d.linked))).forms == d.forms
        assert d.schedule == path


BAD = {
    "a false form": (GOOD.replace("m * M_B", "(m + p // 4) * M_B"), "PP112", 10, "which is 2 where a run gives 1: p = 4, m = 1"),
    "a form of nothing": (GOOD + 'when = ["m >= 99"]\n', "PP112", 10, "hold at no size"),
    "a pass too few": (GOOD.replace('{ times = "m", run = "F" }', '{ times = "m - 1", run = "F" }'), "PP112", 5, "m = 1"),
    "a pass too many": (GOOD.replace('{ times = "m", run = "F" }', '{ times = "m + 1", run = "F" }'), "PP112", 5, "no further F"),
    "backward first": (GOOD.replace('"BW"', '"X"').replace('"F"', '"BW"').replace('"X"', '"F"'), "PP112", 5, "too early"),
    "no order for one device": (GOOD.replace('"m", run = "F"', '"m - 1 // p", run = "F"'), "PP112", 5, "if it is not for p = 1, m = 1"),
    "a name that is taken": (GOOD.replace('"mine"', '"1f1b"'), "PP112", 1, "a schedule of the catalogue"),
    "no size": (GOOD + '\n[[needs]]\nrule = "p > 99"\nbecause = "large"\n', "PP112", 14, "cannot be tried"),
    "two passes at once": (BLOCK.replace('"3 * p - 1 - d"', '"3 * p - d"'), "PP112", 4, "begin in one unit of time"),
    "a block beside phases": (BLOCK + 'turn = "m"\n', "PP112", 7, "does not go with `block`"),
    "a block that is not repeated": (BLOCK.replace('every = "3"\n', ""), "PP113", 4, "`every` is missing"),
    "no pass": (BLOCK.replace("F =", "G ="), "PP112", 6, "`G` is no pass"),
    "waiting": (
        GOOD.replace('"loop"', '"loop"\nchunks = 2').replace('run = "F"', 'run = "F1 F0"').replace('run = "BW"', 'run = "BW1 BW0"'),
        "PP308", 6, "wait for one another",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_refused_where_it_is_wrong(what: str, tmp_path: Path) -> None:
    text, code, line, says = BAD[what]
    path = tmp_path / "mine.toml"
    path.write_text(text)
    for ask in (schedules.load, lambda p: placeproof.derive(f'pp(4, microbatches=8, schedule="{p}")')):
        with pytest.raises(InputError) as caught:
            ask(str(path))
        (fault,) = caught.value.diagnostics
        assert fault.code == code
        assert fault.place is not None
        assert (fault.place.source, fault.place.line) == (str(path), line)
        assert says in " ".join([fault.message, *fault.notes])


def test_a_building_block_is_run_unit_by_unit(tmp_path: Path) -> None:
    """Against units of time that are filled in here: a micro-batch three units after the one before, W where one is free."""
    path = tmp_path / "mine.toml"
    path.write_text(BLOCK)
    for p, m in ((1, 3), (3, 5), (4, 2)):
        for d, order in enumerate(schedules.orders(schedules.load(path), p, m)):
            units = {2 * d + 3 * i: f"F{i}" for i in range(m)} | {3 * p - 1 - d + 3 * i: f"B{i}" for i in range(m)}
            wanted, waiting = list[str](), list[str]()
            for unit in range(max(units) + 1 + m):
                if unit in units:
                    wanted.append(units[unit])
                    waiting += [units[unit].replace("B", "W")] if units[unit][0] == "B" else []
                elif waiting:
                    wanted.append(waiting.pop(0))
            assert [f"{one.kind.value}{one.microbatch}" for one in order] == wanted + waiting


LATE = GOOD.partition("[[closed]]")[0].replace('"m", run = "F"', '"m - p // 9", run = "F"')


def test_an_order_that_fails_beyond_small_sizes_is_refused_at_the_numbers_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(LATE)
    placeproof.derive(f'pp(8, microbatches=8, schedule="{path}")')
    with pytest.raises(InputError, match="is not run by any device"):
        placeproof.derive(f'pp(9, microbatches=8, schedule="{path}")')


def test_without_a_form_the_numbers_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.partition("[[closed]]")[0])
    for ask in (placeproof.derive, placeproof.judge, lambda text: placeproof.model(text, "llama3-8b")):
        with pytest.raises(InputError, match="closed form of its peak"):
            ask(f'pp(schedule="{path}")')


@pytest.mark.parametrize("model", [None, "llama3-8b"])
def test_a_form_that_fails_beyond_small_sizes_is_refused_at_numbers_that_are_set(model: str | None, tmp_path: Path) -> None:
    """Where stages or micro-batches are open in the strategy and set beside it, the order is run there; right forms are believed."""
    file = tmp_path / "mine.toml"

    def derived(form: str) -> None:
        file.write_text(GOOD.replace('"m * M_B"', f'"{form}"') + '\n[[closed]]\nwhat = "messages"\nform = "2 * m * (p - 1)"\n')
        text = f'pp(4, schedule="{file}")'
        if model is None:
            placeproof.derive(text, m=20)
        else:
            placeproof.model(text, model, b=1, m=20)

    derived("m * M_B")
    with pytest.raises(InputError, match="which is 12 where a run gives 20"):
        derived("min(m, 12) * M_B")
