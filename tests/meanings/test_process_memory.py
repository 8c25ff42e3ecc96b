"""What a device shows beside tensors, and whether something fits: three answers, and none without a reason."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

import placeproof
from placeproof.answers.accuracy import accuracy
from placeproof.answers.costs import StepSeconds
from placeproof.answers.numbers import byte_count
from placeproof.clusters import cluster, load
from placeproof.core.diagnostics import InputError
from placeproof.cost.model.derivation import ModelDerivation, derive_model
from placeproof.cost.model.process import AS_PROGRAMS_SAY, COMMUNICATOR, CONTEXT, ProcessMemory, error, process_memory
from placeproof.implementations import find
from placeproof.models import load as load_model
from placeproof.runs import reserved


def step(strategy: str, *, where: str = "dgx-h100", reserve: str | None = None, **numbers: int) -> StepSeconds:
    return placeproof.model(strategy, "llama3-8b", **{"b": 1, "s": 4096, **numbers}).time(where, reserve=reserve)


def derived(model: str, implementation: str | None) -> ModelDerivation:
    run_by = None if implementation is None else find(implementation)
    return derive_model(load_model(model), placeproof.strategy("fsdp(8)"), run_by=run_by)


def memory(of: StepSeconds) -> ProcessMemory:
    return process_memory(of, of.d.costs[0])


def test_the_parts_are_what_they_say() -> None:
    """Tensors, what an allocator had reserved on measured runs, a context, and the buffers of each communicator: along tp, and along dp."""
    found = memory(step("zero1(2) * tp(4)"))
    low, median, high, _ = reserved()
    assert found.allocator is not None
    assert found.libraries is not None
    assert (found.allocator.least, found.allocator.most) == (found.tensors * (1 + low), found.tensors * (1 + high))
    assert found.communicators == 2
    assert found.libraries.most == CONTEXT.most + 2 * COMMUNICATOR.most
    assert found.process.most == found.allocator.most * (1 + AS_PROGRAMS_SAY) + found.libraries.most
    assert found.process.least == found.tensors * (1 - AS_PROGRAMS_SAY)
    assert found.usual == found.tensors * (1 + median) + found.libraries.most
    assert found.capacity == 81559 * 2**20


def test_one_device_has_no_communicator() -> None:
    assert memory(step("ddp(1)")).communicators == 0


def test_three_answers() -> None:
    """The same tensors fit, or nobody can tell, or they do not, as the bounds of all of it lie below, around or above what there is."""
    found = memory(step("fsdp(8)"))

    def with_(capacity: Fraction) -> bool | None:
        return ProcessMemory(**{**{n: getattr(found, n) for n in found.__slots__}, "capacity": capacity}).fits

    assert with_(found.process.most) is True
    assert with_(found.process.most - 1) is None
    assert with_(found.process.least) is None
    assert with_(found.process.least - 1) is False


def test_what_is_set_for_all_else_takes_the_place_of_ranges() -> None:
    found = memory(step("fsdp(8)", reserve="6GB"))
    assert found.process.least == found.tensors * (1 - AS_PROGRAMS_SAY) + 6 * 10**9
    assert found.process.most == found.tensors * (1 + AS_PROGRAMS_SAY) + 6 * 10**9


def test_a_device_of_which_nothing_is_known_is_judged_by_tensors() -> None:
    found = memory(step("fsdp(8)", where="tpu-v5p"))
    assert found.allocator is found.libraries is None
    assert found.process.most == found.tensors * (1 + AS_PROGRAMS_SAY)
    assert found.capacity == cluster("tpu-v5p").device.memory


def error_of(d: ModelDerivation) -> Fraction:
    return error(d.run_by, {block.name for part in d.parts for block in part.blocks})


def test_the_error_is_that_of_measured_runs() -> None:
    """Of an implementation, what its runs were off at most; where blocks are run as their programs say, more than these were off."""
    errors = [abs(one.error) for one in accuracy("b200", ["all"]).predictions if one.error is not None]
    assert max(errors) < AS_PROGRAMS_SAY < 2 * max(errors)
    assert error_of(derived("llama3-8b", None)) == AS_PROGRAMS_SAY
    assert error_of(derived("llama3-8b", "megatron-te-2.11")) == Fraction(1, 1000)


@pytest.mark.parametrize(("model", "described"), [("gemma2-9b", False), ("gpt3-1.3b", False), ("mixtral-8x7b", True)])
def test_blocks_that_nobody_measured_are_not_within_what_was_measured(model: str, described: bool) -> None:
    """Of models whose blocks the implementation describes in part alone, or that are none of the models that were measured."""
    d = derived(model, "megatron-te-2.11")
    assert (d.undescribed == ()) is described
    assert error_of(d) == AS_PROGRAMS_SAY


@pytest.mark.parametrize(("where", "more"), [("dgx-h100", 67109888), ("dgx-a100-80", 12713984), ("dgx-b200", 67109888)])
def test_workspaces_are_those_of_the_device(where: str, more: int, tmp_path: Path) -> None:
    text = 'name = "mine"\ntitle = "t"\nsource = "s"\n[difference.w]\ntext = "t"\nsource = "s"\n'
    with_, without = tmp_path / "with.toml", tmp_path / "without.toml"
    with_.write_text(text + "workspace = { other = 67109888, ampere = 12713984 }\n", encoding="utf-8")
    without.write_text(text, encoding="utf-8")
    peaks = [
        memory(placeproof.model("fsdp(8)", "llama3-8b", implementation=str(file), b=1, s=4096).time(where)).tensors
        for file in (with_, without)
    ]
    assert peaks[0] - peaks[1] == more


@pytest.mark.parametrize(
    ("text", "number"), [("6GB", 6 * 10**9), ("5.5 GiB", 5.5 * 2**30), ("6e9", 6 * 10**9), ("0", 0), ("100MiB", 100 * 2**20), ("12 B", 12)]
)
def test_amounts_of_memory(text: str, number: float) -> None:
    assert byte_count(text) == number


@pytest.mark.parametrize("text", ["6", "5.5", "80"])
def test_few_bytes_without_a_unit_are_no_amount(text: str) -> None:
    with pytest.raises(InputError, match="bytes"):
        byte_count(text)


@pytest.mark.parametrize("text", ["", "6 gb", "GB", "-1GB", "6GB7", "1e999", "nan", "6 G B"])
def test_what_is_no_amount_of_memory(text: str) -> None:
    with pytest.raises(InputError, match="no amount of memory"):
        byte_count(text)


def test_a_cluster_file_may_say_what_a_driver_shows(tmp_path: Path) -> None:
    text = (Path(placeproof.__file__).parent / "clusters" / "presets" / "dgx-h100.toml").read_text(encoding="utf-8")
    file = tmp_path / "mine.toml"
    file.write_text(text.replace("driver_memory = 85520809984", "driver_memory = 90e9"), encoding="utf-8")
    assert load(file).device.capacity == 90 * 10**9
    file.write_text(text.replace("driver_memory = 85520809984\n", ""), encoding="utf-8")
    assert load(file).device.capacity == 80 * 10**9
    file.write_text(text.replace("driver_memory = 85520809984", "driver_memory = -1"), encoding="utf-8")
    with pytest.raises(InputError, match="positive"):
        load(file)
