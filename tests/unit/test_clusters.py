"""Clusters as data: the files that come with placeproof, files of a user, and which link joins two devices, against ranks laid out."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placeproof.clusters import Group, cluster, find, load, names, read_text
from placeproof.clusters.cluster import FORMATS, Cluster
from placeproof.core.diagnostics import Diagnostic, InputError
from placeproof.theory.suite.bibliography import entries, own

GOOD = """name = "mine"
title = "My machines"

[device]
name = "x"
memory = 80e9
memory_bandwidth = 2e12
source = "its data sheet"
peak = { bf16 = 300e12 }

[node]
devices = 4

[levels.bus]
joins = 4
latency = 1e-6
bandwidth = 64e9
assumed = { latency = "a guess" }

[levels.rack]
joins = 16
latency = 5e-6
bandwidth = 25e9
ports = 2
ring = true

[levels.ethernet]
latency = 20e-6
bandwidth = 12.5e9

[host]
bandwidth = 32e9
latency = 0
"""


def problems(text: str) -> list[Diagnostic]:
    with pytest.raises(InputError) as error:
        read_text(text, source="mine.toml")
    return list(error.value.diagnostics)


# The clusters that come with placeproof.


@pytest.mark.parametrize("name", names())
def test_every_figure_has_a_source_or_a_reason(name: str) -> None:
    one = cluster(name)
    assert one.name == name
    assert one.title != name
    tables = {"device": (one.device, ["memory", "memory_bandwidth", *one.device.peak])}
    tables |= {level.name: (level, ["latency", "bandwidth"]) for level in one.levels}
    tables |= {"host": (one.host, ["latency", "bandwidth"])} if one.host else {}
    for where, (table, figures) in tables.items():
        for figure in figures:
            assert table.origin(figure), f"{name}: {where}: {figure}"
    assert one.device.peak.keys() <= set(FORMATS)


def test_sources_name_entries_of_the_bibliography() -> None:
    """Beside test_docs, which reads lines with `source =`: also those that are named in reasons."""
    known = entries(own())
    for name in names():
        one = cluster(name)
        told = [table.source + " ".join(table.assumed.values()) for table in (one.device, *one.levels, *([one.host] if one.host else []))]
        assert set(re.findall(r"\b[a-z]+(?:19|20)\d\d[a-z]*\b", " ".join(told))) <= set(known)


def test_rates_go_down_outwards() -> None:
    """In what comes with placeproof, memory is faster than any link, and no level is faster than the one within."""
    for name in names():
        one = cluster(name)
        rates = [one.device.memory_bandwidth, *(level.bandwidth * level.ports for level in one.levels)]
        assert rates == sorted(rates, reverse=True), name
        waits = [level.latency for level in one.levels]
        assert waits == sorted(waits), name
        assert one.reduction == 3 / one.device.memory_bandwidth


#: What the sources print of devices: memory in GB and GB/s, then TFLOP/s by number format, dense (nvidia2024blackwell, nvidia2025gb200,
#: nvidia2025gb300, nvidia2025b300, nvidia2022hopper, nvidia2021ampere, nvidia2020volta; austin2025scale, part 2). Of the
#: Xeon (intel2021xeon): cores, clock, units, lanes and 2; eight channels of 25.6 GB/s.
GRACE = {"fp32": "80", "tf32": "1250", "bf16": "2500", "fp16": "2500", "fp8": "5000"}
HOPPER = {"bf16": "989.4", "fp16": "989.4", "fp8": "1978.9"}
DEVICES: dict[str, tuple[str, str, dict[str, str]]] = {
    "dgx-b200": (
        str(1440 // 8),
        str(64_000 // 8),
        {"fp64": "40", "fp32": "80", "tf32": "1100", "bf16": "2250", "fp16": "2250", "fp8": "4500", "int8": "4500"},
    ),
    "dgx-b300": ("288", "8000", {"fp32": "80", "tf32": "1125", "bf16": "2250", "fp16": "2250", "fp8": "4500"}),
    "gb200-nvl72": ("186", "8000", {"fp64": "40", **GRACE, "int8": "5000"}),
    "gb300-nvl72": ("288", "8000", GRACE),
    "dgx-h100": ("80", "3350", {"fp64": "66.9", "fp32": "66.9", "tf32": "494.7", **HOPPER, "int8": "1978.9"}),
    "h800": ("80", "3350", HOPPER),
    "dgx-a100-80": ("80", "2039", {"fp64": "19.5", "fp32": "19.5", "tf32": "156", "bf16": "312", "fp16": "312", "int8": "624"}),
    "vtrain-a100": ("80", "2039", {"fp64": "19.5", "fp32": "19.5", "tf32": "156", "bf16": "312", "fp16": "312", "int8": "624"}),
    "dgx-v100-32": ("32", "900", {"fp64": "7.8", "fp32": "15.7", "fp16": "125"}),
    "tpu-v5e": ("16", "810", {"bf16": "197", "int8": "394"}),
    "tpu-v5p": ("96", "2800", {"bf16": "459", "int8": "918"}),
    "cpu-xeon-8380": (str(8 * 32), "204.8", {"fp64": "2.944", "fp32": "5.888"}),
}
#: Devices that share a host. Of each level: GB/s one way (half of what is printed for both directions, an eighth of Gb/s, a device's share
#: of a node's adapters), how many devices it joins, ports. GB/s to the host.
LINKS: dict[str, tuple[int, list[tuple[str, Fraction, int | None, int]], Fraction | None]] = {
    "dgx-b200": (8, [("nvlink", Fraction(14_400, 2 * 8), 8, 1), ("infiniband", Fraction(8 * 400, 8 * 8), None, 1)], Fraction(128, 2)),
    "dgx-b300": (8, [("nvlink", Fraction(14_400, 2 * 8), 8, 1), ("infiniband", Fraction(8 * 800, 8 * 8), None, 1)], Fraction(128, 2)),
    "gb200-nvl72": (4, [("nvlink", Fraction(1800, 2), 4 * 16, 1), ("infiniband", Fraction(400, 8), None, 1)], Fraction(900, 2 * 2)),
    "gb300-nvl72": (4, [("nvlink", Fraction(1800, 2), 4 * 16, 1), ("infiniband", Fraction(800, 8), None, 1)], Fraction(900, 2 * 2)),
    "dgx-h100": (8, [("nvlink", Fraction(900, 2), 8, 1), ("infiniband", Fraction(8 * 400, 8 * 8), None, 1)], Fraction(128, 2)),
    "h800": (8, [("nvlink", Fraction(160), 8, 1), ("infiniband", Fraction(50), None, 1)], Fraction(128, 2)),
    "dgx-a100-80": (8, [("nvlink", Fraction(600, 2), 8, 1), ("infiniband", Fraction(8 * 200, 8 * 8), None, 1)], Fraction(64, 2)),
    "vtrain-a100": (8, [("nvlink", Fraction(600, 2), 8, 1), ("infiniband", Fraction("12.5"), None, 1)], Fraction(64, 2)),
    "dgx-v100-32": (16, [("nvlink", Fraction(300, 2), 16, 1), ("infiniband", Fraction(8 * 100, 8 * 16), None, 1)], Fraction(32, 2)),
    "tpu-v5e": (8, [("ici", Fraction(45), 16 * 16, 2 * 2), ("dcn", Fraction("3.125"), None, 1)], Fraction(16)),
    "tpu-v5p": (4, [("ici", Fraction(90), 16 * 20 * 28, 2 * 3), ("dcn", Fraction("6.25"), None, 1)], Fraction(16)),
    "cpu-xeon-8380": (1, [("ethernet", Fraction(100, 8), None, 1)], None),
}
#: Microseconds of what is assumed of latencies, by what their reasons say: steps of a ring by NCCL 2.20.3, protocol Simple (nvidia2024nccl:
#: src/graph/tuning.cc, hwLat), and orders of magnitude; austin2025scale, part 3, gives that of a hop between TPUs.
LATENCIES = {
    "over NVLink by which NCCL 2.20.3 chooses": Fraction("3.4"),
    "over a network by which NCCL 2.20.3 chooses": Fraction(14),
    "about 1 us a hop": Fraction(1),
    "that of the v5e": Fraction(1),
    "the order of a copy that a driver starts": Fraction(10),
    "the order of a message through two hosts": Fraction(10),
    "the order of a message of TCP through two kernels": Fraction(25),
}


@pytest.mark.parametrize("name", names())
def test_figures_are_those_of_the_sources(name: str) -> None:
    one, giga, tera = cluster(name), 10**9, 10**12
    memory, rate, peak = DEVICES[name]
    assert (one.device.memory / giga, one.device.memory_bandwidth / giga) == (Fraction(memory), Fraction(rate))
    assert {key: value / tera for key, value in one.device.peak.items()} == {key: Fraction(value) for key, value in peak.items()}
    node, levels, host = LINKS[name]
    assert (one.node, [(a.name, a.bandwidth / giga, a.joins, a.ports) for a in one.levels]) == (node, levels)
    assert (one.host.bandwidth / giga if one.host else None) == host
    for link in (*one.levels, *([one.host] if one.host else [])):
        assert [link.latency * 10**6] == [value for words, value in LATENCIES.items() if words in link.origin("latency")], link


#: What was measured of devices: TFLOP/s of products of matrices by number format, GB/s of memory, microseconds of a kernel. Of A100
#: bekman2024engineering and nvidia2025forum print 267.9 TFLOP/s and 1.80 TB/s, of B200 simumax2026 the shares 0.48781 and 0.666.
#: The others are of aiconfigurator2026: operations over seconds of so many products, bytes over seconds of one kernel.
REACHED: dict[str, tuple[dict[str, str], str, int]] = {
    "dgx-a100-80": ({"bf16": "267.9"}, "1800", 40),
    "vtrain-a100": ({"bf16": "267.9"}, "1800", 40),
    "dgx-b200": ({"bf16": str(round(0.48781 * 2250, 1)), "fp8": "2526"}, str(0.666 * 8000), 30),
    "dgx-b300": ({"bf16": "1474", "fp8": "2698"}, "6761", 3),
    "dgx-h100": ({"bf16": "727", "fp8": "1285"}, "2976", 3),
    "gb200-nvl72": ({"bf16": "1499", "fp8": "2722"}, "6874", 3),
    "gb300-nvl72": ({"bf16": "1804", "fp8": "3198"}, "6888", 3),
}

#: Shares of NVLink that exchanges reach: of simumax2026, and of aiconfigurator2026, all-gathers of 512 MiB: size over milliseconds, without
#: the part that is there.
NVLINK = {
    "dgx-b200": Fraction("0.673"),
    **{
        name: round(Fraction(2**29 * (n - 1), n * 10**6) / Fraction(milliseconds) / rate, 3)
        for name, n, milliseconds, rate in (
            ("dgx-h100", 8, "1.39864", 450),
            ("dgx-b300", 8, "0.75721", 900),
            ("gb200-nvl72", 4, "0.71439", 900),
            ("gb300-nvl72", 4, "0.70468", 900),
        )
    },
}


@pytest.mark.parametrize("name", names())
def test_what_is_reached_is_what_was_measured(name: str) -> None:
    reached = cluster(name).device.reached
    assert (reached is not None) == (name in REACHED)
    if reached is not None:
        products, memory, kernel = REACHED[name]
        assert {key: rate / 10**12 for key, rate in reached.products.items()} == {key: Fraction(rate) for key, rate in products.items()}
        assert (reached.memory_bandwidth / 10**9, reached.kernel * 10**6) == (Fraction(memory), kernel)
        assert all(reached.origin(figure) for figure in ("products", "memory_bandwidth", "kernel"))
    shares = {level.name: level.reached / level.bandwidth for level in cluster(name).levels if level.reached is not None}
    assert {link: round(share, 3) for link, share in shares.items()} == ({"nvlink": NVLINK[name]} if name in NVLINK else {})
    measured = [level.reached or level.bandwidth for level in cluster(name).levels]
    assert [level.bandwidth for level in cluster(name).as_measured.levels] == measured


REACHES = """\
bf16 = 300e12 }
[device.reached]
memory_bandwidth = 1e12
kernel = 5e-6
products = { bf16 = 200e12 }
source = "measured"
"""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("bf16 = 200e12", "bf16 = 301e12", "products of matrices in bf16 reach more than the device has, or it has none"),
        ("bf16 = 200e12", "fp8 = 200e12", "products of matrices in fp8 reach more than the device has, or it has none"),
        ("bf16 = 200e12", "bf17 = 200e12", "`bf17` is no number format"),
        ("memory_bandwidth = 1e12", "memory_bandwidth = 9e12", "memory reaches more than the device has"),
        ("kernel = 5e-6", "kernel = 0", "`kernel` is positive, and not 0"),
        ("kernel = 5e-6\n", "", "`kernel` is missing in `[device.reached]`"),
        ("kernel = 5e-6", "kernels = 5e-6", "`kernels` is no key of `[device.reached]`"),
        ("reached = 1e9", "reached = 1e12", "exchanges reach more than the links have"),
    ],
)
def test_what_a_device_reaches_is_read(old: str, new: str, told: str) -> None:
    good = measured_file().replace("joins = 16", "joins = 16\nreached = 1e9")
    assert [level.reached for level in read_text(good, source="mine.toml").levels] == [None, 10**9, None]
    reached = read_text(good, source="mine.toml").device.reached
    assert reached is not None
    assert (reached.products, reached.memory_bandwidth, reached.kernel) == ({"bf16": 200 * 10**12}, 10**12, Fraction(5, 10**6))
    assert told in [one.message for one in problems(good.replace(old, new))]


def measured_file() -> str:
    """GOOD, whose device says what it reaches."""
    (line,) = (line for line in GOOD.splitlines() if line.startswith("peak = "))
    last = max(GOOD.index(text) + len(text) for text in ('its data sheet"\n', line + "\n"))
    return GOOD[:last] + REACHES.partition("\n")[2] + GOOD[last:]


def test_half_the_bits_are_no_slower() -> None:
    for name in names():
        peak = cluster(name).device.peak
        for wide, narrow in (("fp64", "fp32"), ("fp32", "tf32"), ("tf32", "bf16"), ("bf16", "fp8"), ("bf16", "int8")):
            assert wide not in peak or narrow not in peak or peak[wide] <= peak[narrow], (name, wide, narrow)


def test_the_ratio_of_the_report_is_that_of_its_links() -> None:
    """deepseek2024technical, section 3.2.2: NVLink is roughly 3.2 times as fast as InfiniBand."""
    nvlink, infiniband = cluster("h800").levels
    assert nvlink.bandwidth / infiniband.bandwidth == Fraction("3.2")


def test_an_unknown_cluster_is_told_with_what_there_is() -> None:
    with pytest.raises(InputError) as error:
        find("dgx-a100")
    (found,) = error.value.diagnostics
    assert found.code == "PP101"
    assert "`dgx-a100-80`" in str(found.help)
    assert all(name in str(found.help) for name in names())


# A file of one's own.


def test_a_file_is_read_exactly(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD, encoding="utf-8")
    one = load(path)
    assert one == find(str(path)) == read_text(GOOD, source="mine.toml")
    assert (one.name, one.title, one.node) == ("mine", "My machines", 4)
    assert one.device.peak == {"bf16": 300 * 10**12}
    assert [(level.name, level.joins, level.ports, level.ring) for level in one.levels] == [
        ("bus", 4, 1, False),
        ("rack", 16, 2, True),
        ("ethernet", None, 1, False),
    ]
    assert [level.latency for level in one.levels] == [Fraction(1, 10**6), Fraction(5, 10**6), Fraction(2, 10**5)]
    assert one.levels[0].origin("latency") == "assumed: a guess"
    assert one.device.origin("memory") == "its data sheet"
    assert one.host is not None
    assert one.host.latency == 0


@pytest.mark.parametrize(
    ("old", "new", "code", "line", "told"),
    [
        ('name = "mine"\n', "", "PP113", None, "`name` is missing"),
        ("title", "titel", "PP111", 2, "`titel` is no key of a cluster's file"),
        ("memory = 80e9\n", "", "PP113", 4, "`memory` is missing in `[device]`"),
        ("memory = 80e9", "memory = -1", "PP112", 6, "`memory` is positive, and not -1"),
        ("memory = 80e9", 'memory = "80 GB"', "PP112", 6, "`memory` is a number, not '80 GB'"),
        ("memory = 80e9", "memory = inf", "PP112", 6, "`memory` is a number, not Infinity"),
        ("memory = 80e9", "memory = true", "PP112", 6, "`memory` is a number, not True"),
        ("bf16 = 300e12", "bf17 = 300e12", "PP111", 9, "`bf17` is no number format"),
        ("bf16 = 300e12", "bf16 = 0", "PP112", 9, "`bf16` is positive, and not 0"),
        ("peak = { bf16 = 300e12 }", "peak = 3", "PP112", 9, "`peak` is a table, not 3"),
        ("[node]\ndevices = 4\n", "", "PP113", None, "`[node]` is missing"),
        ("devices = 4", "devices = 4.0", "PP112", 12, "`devices` is a whole number of at least 1 and at most 1e9, not 4.0"),
        ("devices = 4", "devices = 8\nracks = 2", "PP111", 13, "`racks` is no key of `[node]`"),
        ("devices = 4", "devices = 3", "PP112", 15, "level `bus` joins 4 devices, which 3 devices a node do not multiply up to"),
        ("joins = 16", "joins = 6", "PP112", 21, "level `rack` joins 6 devices, which are not several blocks of 4"),
        ("joins = 16", "joins = 4", "PP112", 21, "level `rack` joins 4 devices, which are not several blocks of 4"),
        ("joins = 16\n", "", "PP113", 20, "level `rack` does not say how many devices it joins"),
        ("joins = 16", "joins = 0", "PP112", 21, "`joins` is a whole number of at least 1 and at most 1e9, not 0"),
        ("ring = true", "ring = 1", "PP112", 25, "`ring` is true or false, not 1"),
        ("latency = 20e-6", "latency = -1", "PP112", 28, "`latency` is not negative, and not -1"),
        ("bandwidth = 12.5e9\n", "", "PP113", 27, "`bandwidth` is missing in `[levels.ethernet]`"),
        ('{ latency = "a guess" }', '{ delay = "a guess" }', "PP111", 18, "`delay` is no figure of this table"),
        ('{ latency = "a guess" }', '{ latency = "" }', "PP113", 18, "`latency` is missing in `[levels.bus.assumed]`"),
        ("bandwidth = 32e9", "bandwith = 32e9", "PP111", 32, "`bandwith` is no key of `[host]`"),
        ("title = ", "title = = ", "PP110", 2, "this is not TOML: Invalid value"),
    ],
)
def test_mistakes_are_told_with_their_place(old: str, new: str, code: str, line: int | None, told: str) -> None:
    assert GOOD.count(old) == 1
    found = problems(GOOD.replace(old, new))
    matching = [one for one in found if one.message == told]
    assert [(one.code, one.place.line if one.place else None) for one in matching] == [(code, line)], found
    assert all(one.help for one in matching)


#: Every table and every key that a cluster needs; `joins`, of a level that others lie around.
NEEDED = [
    *((key,) for key in ("name", "device", "node", "levels")),
    *(("device", key) for key in ("name", "memory", "memory_bandwidth", "peak")),
    ("node", "devices"),
    *(("levels", "bus", key) for key in ("joins", "latency", "bandwidth")),
    *(("host", key) for key in ("latency", "bandwidth")),
]


def without(path: tuple[str, ...]) -> str:
    """GOOD as a text of inline tables, but for what lies there."""
    data = tomllib.loads(GOOD, parse_float=str)
    table = data
    for key in path[:-1]:
        table = table[key]
    del table[path[-1]]

    def written(value: Any) -> str:
        if isinstance(value, dict):
            return "{ " + ", ".join(f"{key} = {written(inner)}" for key, inner in value.items()) + " }"
        number = isinstance(value, str) and re.fullmatch(r"[\d.]+e-?\d+", value)
        return value if number else json.dumps(value)

    return "".join(f"{key} = {written(value)}\n" for key, value in data.items())


@pytest.mark.parametrize("path", NEEDED, ids=".".join)
def test_whatever_is_needed_is_said_to_be_missing(path: tuple[str, ...]) -> None:
    """Of a table, before what is in it."""
    table = path in (("device",), ("node",), ("levels",), ("device", "peak"))
    where = f" in `[{'.'.join(path[:-1])}]`" if len(path) > 1 else ""
    expected = f"`[{'.'.join(path)}]` is missing" if table else f"`{path[-1]}` is missing{where}"
    if path[-1] == "joins":
        expected = "level `bus` does not say how many devices it joins"
    told = problems(without(path))
    assert [one.code for one in told] == ["PP113"] * len(told)
    assert told[0].message == expected


def test_all_mistakes_are_told_at_once() -> None:
    text = GOOD.replace("joins = 16", "joins = 6").replace("title", "titel").replace("memory = 80e9", "memory = 0")
    assert [one.code for one in problems(text)] == ["PP111", "PP112", "PP112", "PP112"]


def test_a_cluster_has_levels_of_links() -> None:
    head = GOOD[: GOOD.index("[levels.bus]")]
    assert [one.message for one in problems(head)] == ["`[levels]` is missing", "there is no level of links"]


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        load(tmp_path / "nowhere.toml")
    assert [one.code for one in error.value.diagnostics] == ["PP110"]


@given(st.sampled_from(GOOD.splitlines()), st.sampled_from(["x = 1", "", "devices = []", "[levels.bus]", "joins = {}", "levels = 3"]))
def test_no_text_has_a_traceback(old: str, new: str) -> None:
    try:
        one = read_text(GOOD.replace(old, new, 1), source="mine.toml")
    except InputError as error:
        assert error.diagnostics
    else:
        assert one.levels


# Groups of devices.


def machine(*joins: int) -> Cluster:
    """A cluster with levels that join as many devices, and one around them."""
    levels = [f"[levels.l{i}]\njoins = {n}\nlatency = {i + 1}\nbandwidth = 1\n" for i, n in enumerate(joins)]
    text = "\n".join(['name = "m"', GOOD[GOOD.index("[device]") : GOOD.index("[node]")], f"[node]\ndevices = {joins[0]}", *levels])
    return read_text(text + f"[levels.l{len(joins)}]\nlatency = 9\nbandwidth = 1\n", source="m.toml")


def laid_out(mesh: dict[str, int], along: tuple[str, ...], joins: tuple[int, ...]) -> list[list[tuple[int, ...]]]:
    """Each group as the blocks of each of its ranks, by counting through the coordinates of all of them."""
    found: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for rank in range(prod(mesh.values())):
        rest, at = rank, {}
        for axis, degree in mesh.items():
            rest, at[axis] = divmod(rest, degree)
        key = tuple(c for axis, c in at.items() if axis not in along)
        found.setdefault(key, []).append((*(rank // n for n in joins), 0))
    return list(found.values())


def agrees(group: Group, blocks: list[tuple[int, ...]]) -> bool:
    n, levels = len(blocks), range(len(blocks[0]))
    pairs = [(i, j) for i in range(n) for j in range(n)]
    return (
        group.degree == n
        and all(group.between(i, j) == min(level for level in levels if blocks[i][level] == blocks[j][level]) for i, j in pairs)
        and all(sorted(group.shared(level)) == sorted(Counter(row[level] for row in blocks).values()) for level in levels)
        and set(group.used) == {group.between(i, j) for i, j in pairs if i != j}
    )


MESHES = st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(1, 4)).map(lambda degrees: dict(zip("abc", degrees, strict=True)))


@given(MESHES, st.sets(st.sampled_from("abc"), min_size=1), st.sampled_from([(2,), (4,), (8,), (2, 4), (4, 8), (4, 12), (3, 6, 24)]))
def test_groups_are_those_of_the_ranks_laid_out(mesh: dict[str, int], along: set[str], joins: tuple[int, ...]) -> None:
    """Every group of the mesh is one of those told, and every one told is one of the mesh."""
    told = machine(*joins).groups(mesh, tuple(along))
    oracle = laid_out(mesh, tuple(along), joins)
    assert all(sum(agrees(group, blocks) for group in told) == 1 for blocks in oracle)
    assert all(any(agrees(group, blocks) for blocks in oracle) for group in told)
    for group in told:
        if group.sizes is not None:
            assert prod(group.sizes) == group.degree
            reached = [prod(group.sizes[: level + 1]) for level in range(len(joins))]
            assert all(set(group.shared(level)) == {n} for level, n in enumerate(reached))
        else:
            assert any(len(set(group.shared(level))) > 1 for level in range(len(joins)))


@pytest.mark.parametrize(
    ("mesh", "axis", "levels", "shared"),
    [
        ({"tp": 8, "dp": 4}, "tp", ("nvlink",), {(8,)}),
        ({"tp": 8, "dp": 4}, "dp", ("infiniband",), {(1, 1, 1, 1)}),
        ({"tp": 2, "dp": 8}, "dp", ("nvlink", "infiniband"), {(4, 4)}),
        ({"tp": 16, "dp": 2}, "tp", ("nvlink", "infiniband"), {(8, 8)}),
        ({"tp": 6, "dp": 4}, "tp", ("nvlink", "infiniband"), {(6,), (2, 4), (4, 2)}),
        ({"tp": 3, "dp": 8}, "dp", ("nvlink", "infiniband"), {(3, 3, 2), (3, 2, 3), (2, 3, 3)}),
        ({"tp": 4, "cp": 1, "dp": 2}, "cp", (), {(1,)}),
    ],
)
def test_how_many_members_share_a_node(mesh: dict[str, int], axis: str, levels: tuple[str, ...], shared: set[tuple[int, ...]]) -> None:
    one = cluster("dgx-a100-80")
    assert one.level(mesh, axis) == levels
    assert {group.shared(0) for group in one.groups(mesh, axis)} == shared


@pytest.mark.parametrize(
    ("mesh", "along", "code", "told"),
    [
        ({"tp": 8}, "dp", "PP305", "the mesh has no axis `dp`"),
        ({"tp": 0}, "tp", "PP103", "the degree of axis `tp` is a whole number of at least 1, not 0"),
    ],
)
def test_a_mesh_that_cannot_be_laid_out_is_told(mesh: dict[str, int], along: str, code: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        cluster("dgx-a100-80").groups(mesh, along)
    assert [(one.code, one.message) for one in error.value.diagnostics] == [(code, told)]


def test_a_mesh_that_is_larger_than_the_outermost_level_is_told() -> None:
    text = GOOD[: GOOD.index("[levels.ethernet]")]
    one = read_text(text, source="mine.toml")
    assert one.groups({"dp": 16}, "dp")
    with pytest.raises(InputError, match="the mesh has 17 devices, and `rack`, the outermost level of mine, joins 16"):
        one.groups({"dp": 17}, "dp")
