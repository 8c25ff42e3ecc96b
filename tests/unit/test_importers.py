"""Files of settings: places of keys, tables of settings, and which system a file belongs to."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from samples import NIGHTLY

from placeproof.core.diagnostics import MOST, InputError, Problems
from placeproof.core.places import toml_place
from placeproof.core.tables import FileKind, Table
from placeproof.importers import SYSTEMS, Role, read_config, recognised
from placeproof.importers.document import Document, read_document
from placeproof.importers.fields import Field, Reader
from placeproof.importers.imported import expression
from placeproof.importers.settings import read_settings, settings
from placeproof.importers.shapes import parse_shapes

LEAVES = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5) | st.just('{"[,:]}"')
TREES = st.dictionaries(
    st.text(max_size=6),
    st.recursive(LEAVES, lambda t: st.lists(t, max_size=3) | st.dictionaries(st.text(max_size=6), t, max_size=3)),
    max_size=4,
)


def document(text: str, kind: str) -> Document:
    return read_document(text, "mine", kind, Problems())


def keys(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every key of a tree, with what leads to it."""
    if isinstance(value, dict):
        return [found for key, inner in value.items() for found in ((*path, key), *keys(inner, (*path, key)))]
    return [found for at, inner in enumerate(value) for found in keys(inner, (*path, at))] if isinstance(value, list) else []


@given(TREES, st.sampled_from([None, 0, 2, "\t"]), st.booleans())
def test_every_key_of_a_json_text_has_its_place(tree: dict[str, Any], indent: Any, ascii_: bool) -> None:
    text = json.dumps(tree, indent=indent, ensure_ascii=ascii_)
    read = document(text, "json")
    assert read.data == tree
    assert set(read.spans) == set(keys(tree))
    lines = text.split("\n")
    for path, (line, column, length) in read.spans.items():
        assert json.loads(lines[line - 1][column - 1 : column - 1 + length]) == path[-1]


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,6}", fullmatch=True),
        st.integers() | st.dictionaries(st.from_regex(r"[a-z]{1,4}", fullmatch=True), st.booleans(), min_size=1, max_size=3),
        min_size=1,
        max_size=4,
    )
)
def test_every_key_of_a_yaml_text_has_its_place(tree: dict[str, Any]) -> None:
    text = yaml.safe_dump(tree)
    read = document(text, "yaml")
    assert {path[0] for path in read.spans} == {str(k) for k in yaml.safe_load(text)}
    for path, (line, column, length) in read.spans.items():
        assert text.splitlines()[line - 1][column - 1 : column - 1 + length].strip("'\"") == str(path[-1])


BAD = [
    ("", "json", "PP501", 1), ('{"a": 1', "json", "PP501", 1), ("[1]", "json", "PP501", 1), ('{"a": 1,\n "a": 2}', "json", "PP502", 2),
    ('{"a": {"b": 1,\n "b": 2}}', "json", "PP502", 2), ("[" * 3_000, "json", "PP501", 1),
    ("", "yaml", "PP501", 1), ("a: [1", "yaml", "PP501", 1), ("- 1", "yaml", "PP501", 1),
    ("a: b: c", "yaml", "PP501", 1), ("\0a: 1", "yaml", "PP501", 1), ("a: 1\nb: \x07", "yaml", "PP501", 2),
    ("a = ", "toml", "PP501", 1), ("a = 1\na = 2\n", "toml", "PP502", 2), ("[a]\nb = [1\n", "toml", "PP501", 2),
    ("", "arguments", "PP501", 1), ("pretrain.py --a 1", "arguments", "PP501", 1),
    ("a: &a [1, *a]", "yaml", "PP501", 1), ("a: 1\nb: &b\n  c: {d: *b}", "yaml", "PP501", 2), ("a: 1\n? &k [*k]\n: 2", "yaml", "PP501", 2),
    ("a:\n  b: 1\n  c: 2026-13-45", "yaml", "PP501", 3), ("a:\n  - {b: [1, !!int c]}", "yaml", "PP501", 2),
    ("\ufeff{}", "json", "PP501", 1), ("\ufeffa = 1", "toml", "PP501", 1),
]  # fmt: skip


MERGED = """shared: &shared
  version: 1
  units: 2
first:
  <<: *shared
  units: 3
second:
  <<: [*shared, {depth: 4}]
<<: {third: {width: 5}}
"""


@pytest.mark.parametrize(
    ("path", "line", "word"),
    [
        (("first", "version"), 2, "version"),
        (("first", "units"), 6, "units"),
        (("second", "units"), 3, "units"),
        (("second", "depth"), 8, "depth"),
        (("third", "width"), 9, "width"),
        ((), 1, "shared"),
    ],
)
def test_what_is_merged_in_stands_where_it_is_said(path: tuple[str, ...], line: int, word: str) -> None:
    read = document(MERGED, "yaml")
    assert read.data["first"] == {"version": 1, "units": 3}
    place = read.place(*path)
    assert place is not None
    assert (place.line, place.text[place.column - 1 : place.column - 1 + place.length]) == (line, word)
    assert not read.again


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (b'{"a": 1,\n "b": "\xe9"}', 2, "byte 0xe9"),
        (b"\xff\xfe{\x00}\x00", 1, "UTF-16"),
        (b"a: \xc3\xa9\nb: \x80", 2, "byte 0x80"),
    ],
)
def test_a_file_that_is_not_in_utf_8_is_told_where(tmp_path: Path, data: bytes, line: int, words: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_config(str(path), system="deepspeed")
    (problem,) = caught.value.diagnostics
    assert problem.code == "PP501"
    assert words in problem.message
    assert problem.place is not None
    assert problem.place.line == line


@pytest.mark.parametrize(("text", "kind", "code", "line"), BAD, ids=range(len(BAD)))
def test_what_cannot_be_read_is_named_with_its_place(text: str, kind: str, code: str, line: int) -> None:
    with pytest.raises(InputError) as caught:
        document(text, kind)
    assert [(d.code, d.place.line if d.place else None) for d in caught.value.diagnostics] == [(code, line)]
    assert all(d.help for d in caught.value.diagnostics)


def test_arguments_are_read_as_a_shell_would_pass_them() -> None:
    text = "ARGS=(\n  --a-b 1 \\\n  --flag  # not this\n  --name 'two words' --list 1 2 3\n  --eq=5 --none ''\n)\nMORE+=(\n--last\n)\n"
    read = document(text, "arguments")
    assert read.data == {"a_b": "1", "flag": True, "name": "two words", "list": ["1", "2", "3"], "eq": "5", "none": "", "last": True}
    place = read.place("list")
    assert place is not None
    assert (place.line, text.splitlines()[place.line - 1][place.column - 1 : place.column - 1 + place.length]) == (4, "--list")


COMMENTED = """// a file of DeepSpeed
{ # its reader takes Hjson
  "a": [1, "// # /* no comment, ]", 2, ], /* over
  two lines, } */ "b": {"c": "x\\" # no comment", "d": 3,},
}
/* the end */
"""


def test_of_arguments_that_are_given_twice_the_last_counts() -> None:
    read = document("--a 1 \\\n--b \\\n--a 2 3", "arguments")
    assert (read.data, read.again) == ({"a": ["2", "3"], "b": True}, {"a"})
    place = read.place("a")
    assert place is not None
    assert place.line == 3
    found = read_config("--seed 1 --micro-batch-size 2 --bf16 --micro-batch-size 4", system="megatron")
    assert found.numbers["b"] == 4
    assert [(r.name, r.value) for r in found.readings if r.told] == [("micro_batch_size", 4)]
    assert "the last counts" in next(r.note for r in found.readings if r.told)


@pytest.mark.parametrize(("more", "code"), [("tensor_parallel_degree = 4\n", "PP502"), ("x = [1\n", "PP501"), ("= 3\n", "PP501")])
def test_a_toml_file_that_cannot_be_read_is_a_configuration_by_its_tables(more: str, code: str, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(f"[parallelism]\ntensor_parallel_degree = 2\n{more}", encoding="utf-8")
    assert recognised(str(path))
    with pytest.raises(InputError) as caught:
        read_config(str(path), world=8)
    assert [d.code for d in caught.value.diagnostics] == [code]


@pytest.mark.parametrize(
    ("text", "expression", "told"),
    [
        ("distributed_type: FSDP\nnum_processes: 4\ndistributed_type: DEEPSPEED\n", "zero2(dp=4) * clip", {"distributed_type"}),
        ("distributed_type: NO\ndebug: true\ndebug: false\n", "ddp(dp=1)", {"debug"}),
        (
            "distributed_type: FSDP\nnum_processes: 4\nfsdp_config:\n  fsdp_version: 1\nfsdp_config:\n  fsdp_version: 2\n"
            "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n",
            "fsdp(dp=4, prefetch=true)",
            {"fsdp_config.fsdp_version", "fsdp_config.fsdp_auto_wrap_policy"},
        ),
    ],
)
def test_of_a_yaml_key_that_comes_twice_the_last_counts(text: str, expression: str, told: set[str]) -> None:
    found = read_config(text, system="accelerate")
    assert found.expression == expression
    assert {r.name for r in found.readings if "the last counts" in r.note and r.told} == told


def doubling(merges: bool) -> str:
    """Aliases of aliases: 10 to the power of 10 values, or as many merges, in a text of ten lines."""
    lines = ["a0: &a0 {x: 1}"]
    for n in range(1, 11):
        many = ", ".join([f"*a{n - 1}"] * 10)
        lines.append(f"a{n}: &a{n} {{<<: [{many}]}}" if merges else f"a{n}: &a{n} [{many}]")
    return "\n".join(lines)


@pytest.mark.parametrize("merges", [False, True])
def test_aliases_count_as_what_they_stand_for(merges: bool) -> None:
    with pytest.raises(InputError, match="this has more than 100000 values"):
        document(doubling(merges), "yaml")


def test_aliases_within_measure_are_read() -> None:
    read = document("a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}\nd: [*a, *a]\n", "yaml")
    assert read.data == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}, "d": [{"x": 1}, {"x": 1}]}


def calls(work: Callable[[], object]) -> int:
    """Functions that are called until the work ends in an :class:`InputError`."""
    counted = itertools.count()
    sys.setprofile(lambda *_: next(counted) and None)
    try:
        with pytest.raises(InputError):
            work()
    finally:
        sys.setprofile(None)
    return next(counted)


def test_places_in_a_list_of_tables_are_found_in_one_pass() -> None:
    """Each table of one name has a mistake: their places must not be looked for from the first line each time."""

    def tables(number: int) -> str:
        return "".join(f"[[unit]]\nname = 'u{i}'\nx{i} = 1\nparameters = {{ w{i} = [2] }}\n" for i in range(number))

    few, many = (calls(lambda number=number: parse_shapes(tables(number), kind="toml")) for number in (500, 4_000))
    assert many < 10 * few
    with pytest.raises(InputError) as caught:
        parse_shapes(tables(4_000), kind="toml")
    assert [d.place.line for d in caught.value.diagnostics if d.place] == [4 * i + 3 for i in range(MOST)]
    assert "3980 more" in caught.value.diagnostics[-1].message


#: Texts with many unknown settings, for each kind of file, of which one system is a reader.
LONG: dict[str, Callable[[int], str]] = {
    "deepspeed": lambda n: '{"zero_optimization": {' + ",\n".join(f'"k{i}": 1' for i in range(n)) + "}}",
    "megatron": lambda n: "--bf16 " + " ".join(f"--k{i} 1" for i in range(n)),
    "torchtitan": lambda n: "[training]\n" + "".join(f"k{i} = 1\n" for i in range(n)),
    "accelerate": lambda n: "distributed_type: FSDP\n" + "".join(f"k{i}: 1\n" for i in range(n)),
}


@pytest.mark.parametrize("system", LONG)
def test_twenty_problems_of_a_kind_are_shown_and_the_rest_counted(system: str) -> None:
    for number in (MOST, MOST + 1, MOST + 50):
        with pytest.raises(InputError) as caught:
            read_config(LONG[system](number), system=system)
        shown = [d for d in caught.value.diagnostics if d.place is not None]
        rest = [d.message for d in caught.value.diagnostics if d.place is None]
        assert len(shown) == MOST
        assert rest == [f"and {n} more problem{'s' if n > 1 else ''} of this kind" for n in [number - MOST] if n]


@pytest.mark.parametrize("system", LONG)
def test_the_work_of_reading_grows_with_the_length(system: str) -> None:
    """Eight times the text takes some eight times as many calls: a search that is quadratic takes sixty-four times as many."""

    few, many = (calls(lambda number=number: read_config(LONG[system](number), system=system)) for number in (500, 4_000))
    assert many < 10 * few


def test_comments_and_trailing_commas_are_passed_over() -> None:
    read = document(COMMENTED, "hjson")
    assert read.data == {"a": [1, "// # /* no comment, ]", 2], "b": {"c": 'x" # no comment', "d": 3}}
    for path, line in ((("a",), 3), (("b",), 4), (("b", "c"), 4), (("b", "d"), 4)):
        place = read.place(*path)
        assert place is not None
        assert (place.line, place.text[place.column - 1 :][: place.length]) == (line, f'"{path[-1]}"')
        assert place.text == COMMENTED.splitlines()[line - 1], "what is shown has its comments"


FILLER = st.sampled_from(["", "", " ", "\n", "\r\n", "# c, ]\n", '// "c" }\n', "/* a,\n} */", "/**/"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='ab"\\\\/*#,]}:{[ \n', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='ab"#/', max_size=3), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def commented(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """A table, and a text of it with comments and trailing commas anywhere."""

    def written(value: Any) -> str:
        if isinstance(value, dict):
            parts = [f"{draw(FILLER)}{json.dumps(k)}{draw(FILLER)}:{draw(FILLER)}{written(v)}{draw(FILLER)}" for k, v in value.items()]
        elif isinstance(value, list):
            parts = [f"{draw(FILLER)}{written(v)}{draw(FILLER)}" for v in value]
        else:
            return json.dumps(value)
        inside = ",".join(parts) + ("," if parts and draw(st.booleans()) else "") + draw(FILLER)
        return f"{{{inside}}}" if isinstance(value, dict) else f"[{inside}]"

    table = draw(st.dictionaries(st.text(max_size=3), VALUES, max_size=4))
    return table, draw(FILLER) + written(table) + draw(FILLER)


@given(commented())
def test_comments_change_nothing(case: tuple[dict[str, Any], str]) -> None:
    table, text = case
    assert document(text, "hjson").data == table


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"a": 1}\n/* open', 2),
        ("{,}", 1),
        ('{"a": [,]}', 1),
        ('{"a": [1,,]}', 1),
        ('{"a": 1,\n,}', 2),
        ('{"a":\n,}', 2),
        ('{"a": b # c\n}', 1),
        ("/* nothing */", 1),
    ],
)
def test_what_is_not_json_without_its_comments_is_refused(text: str, line: int) -> None:
    with pytest.raises(InputError) as caught:
        document(text, "hjson")
    (problem,) = caught.value.diagnostics
    assert problem.code == "PP501"
    assert problem.place is not None
    assert (problem.place.line, problem.place.text) == (line, text.splitlines()[line - 1])


@pytest.mark.parametrize(
    ("text", "kind"), [(f'{{"a": {"9" * 5000}}}', "json"), (f"a = {'9' * 5000}", "toml"), ('{"a": ' + "[" * 100_000, "hjson")]
)
def test_numbers_and_nesting_beyond_all_measure(text: str, kind: str) -> None:
    with pytest.raises(InputError) as caught:
        document(text, kind)
    assert [d.code for d in caught.value.diagnostics] == ["PP501"]


def test_only_deepspeed_takes_comments() -> None:
    text = '{ // stage\n"zero_optimization": {"stage": 3, /* all */ }, # end\n}'
    assert read_config(text, system="deepspeed").expression == "zero3"
    with pytest.raises(InputError, match="this is not JSON"):
        document(text, "json")
    with pytest.raises(InputError) as caught:
        read_config(text.replace("stage", "stag", 2).replace("// stag", "// stage"), system="deepspeed")
    assert [(d.code, d.place.line) for d in caught.value.diagnostics if d.place] == [("PP502", 2)]


#: Each kind of number, with values that it has and nearest ones that it has not.
NUMBERS: dict[str, tuple[tuple[object, ...], tuple[object, ...]]] = {
    "int": ((-1, 0, "-1"), (0.5, "1.5")),
    "size": ((0, "0", 5e8), (-1, 0.5)),
    "count": ((1, "1"), (0, -1, "0")),
    "number": ((-0.5, "1e-8"), ("x",)),
    "amount": ((0, 0.5), (-1e-9, "-1")),
    "positive": ((1e-9, 2), (0, -1)),
    "fraction": ((0, 1, 0.5), (-1e-9, 1.0000001, "1.1")),
}
ENDLESS: tuple[object, ...] = (float("nan"), float("inf"), float("-inf"), "nan", "inf", "1e999", "1e999999999", "NaN")


@pytest.mark.parametrize("kind", NUMBERS)
def test_each_kind_of_number_has_its_domain(kind: str) -> None:
    taken, refused = NUMBERS[kind]
    for values, wrong in ((taken, False), ((*refused, *ENDLESS), True)):
        for value in values:
            problems = Problems()
            Reader(
                Document(data={"n": value}, source="mine", text=""),
                [Field(name="n", kinds=(kind,), role=Role.READ, note="a number")],
                problems,
            )
            assert [d.code for d in problems.found] == ["PP503"] * wrong, value


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_setting_of_a_system_is_there_once(system: str) -> None:
    names = [name for known in settings(system) for name in known.names]
    assert sorted(names) == sorted(set(names))
    assert all(known.note and "—" not in known.note for known in settings(system))


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_setting_of_a_system_is_a_number_without_end(system: str) -> None:
    """Unless it has a kind for that. `nan` is no value of a switch, a list or a text that may also be a number either. By day of a system
    with many some at equal distances."""
    asked, every = 0, settings(system)
    for known in every[:: 1 if NIGHTLY else max(1, len(every) // 100)]:
        for value in (float("nan"), float("inf")):
            problems = Problems()
            data: dict[str, Any] = {}
            *tables, last = known.name.replace("*", "x").split(".")
            inner = data
            for table in tables:
                inner = inner.setdefault(table, {})
            inner[last] = value
            Reader(Document(data=data, source="mine", text=""), settings(system), problems)
            assert problems.found or (value > 0 and "infinity" in known.kinds), known.name
            asked += 1
    assert asked >= 80


DEEPSPEED_BY_ACCELERATE = "distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n  zero_stage: 1\n"
MEGATRON_BY_ACCELERATE = "distributed_type: MEGATRON_LM\nnum_processes: 4\nmegatron_lm_config:\n  megatron_lm_tp_degree: 2\n"
TRAINER = "output_dir: out\nper_device_train_batch_size: 1\nbf16: true\n"
FACTORY = f"stage: sft\nmodel_name_or_path: m\ndo_train: true\nfinetuning_type: full\n{TRAINER}"
AXOLOTL = "base_model: m\nmicro_batch_size: 1\nddp: true\n"
#: A system, a file of it with a place for the limit of the norm, its word for infinity, by which limits gradients are clipped, and which it
#: refuses. Most ask whether it is above 0: deepspeedai/DeepSpeed@edaa7221:deepspeed/runtime/engine.py line 3327,
#: NVIDIA/Megatron-LM@d98e8a64:megatron/core/optimizer/optimizer.py line 830, and transformers' Trainer, which stops at null. Accelerate
#: takes what is null as not said, and fills 1.0 in: huggingface/accelerate@16cb6eb8:src/accelerate/accelerator.py line 2217; of Megatron-LM
#: it hands the text `None` on, which is no number: src/accelerate/utils/launch.py line 356.
LIMITS: dict[str, tuple[str, str, str, set[str], set[str]]] = {
    "deepspeed": ("deepspeed", '{{"train_batch_size": 4, "gradient_clipping": {}}}', "Infinity", {"inf", "0.5"}, {"null"}),
    "accelerate with deepspeed": (
        "accelerate", DEEPSPEED_BY_ACCELERATE + "  gradient_clipping: {}\n", ".inf", {"inf", "0.5", "null"}, {"none"},
    ),
    "accelerate with megatron": (
        "accelerate", MEGATRON_BY_ACCELERATE + "  megatron_lm_gradient_clipping: {}\n", ".inf", {"inf", "0.5"}, {"none", "null"},
    ),
    "megatron": ("megatron", "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --clip-grad {}", "inf", {"inf", "0.5"}, {"null"}),
    "transformers": ("transformers", TRAINER + "max_grad_norm: {}\n", ".inf", {"inf", "0.5"}, {"none", "null"}),
    "llamafactory": ("llamafactory", FACTORY + "max_grad_norm: {}\n", ".inf", {"inf", "0.5"}, {"none", "null"}),
    "axolotl": ("axolotl", AXOLOTL + "max_grad_norm: {}\n", ".inf", {"inf", "0.5", "null"}, {"none"}),
    "torchtitan": ("torchtitan", "[training]\nmax_norm = {}\n", "inf", {"inf", "0.5", "0"}, {"-1"}),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_gradients_are_clipped_by_a_limit_where_the_system_does(name: str) -> None:
    system, text, infinity, clipping, refused = LIMITS[name]
    for value in sorted({"inf", "0.5", "0", "-1"} | refused | clipping):
        written = text.format(infinity if value == "inf" else value)
        if value in refused:
            with pytest.raises(InputError) as caught:
                read_config(written, system=system, world=4)
            assert {d.code for d in caught.value.diagnostics} <= {"PP503", "PP504"}
            continue
        found = read_config(written, system=system, world=4)
        assert ("clip" in found.expression) == (value in clipping), (value, found.expression)


FIELDS = read_settings(
    Table.read(
        """
[[table]]
read = [
    { names = "n", kinds = "count", default = 1, also = ["older.n"], note = "a number" },
    { names = "mode", choices = ["fast", "slow"], default = "fast", note = "one of two" },
    { names = "case", choices = ["Fast", 1], any_case = true, note = "one of two" },
    { names = "three", choices = [0, 1, 2], default = 0, note = "few" },
]
no_matter = [
    { names = "either", kinds = "int text", note = "a number or a text" },
    { names = "group.*", kinds = "number", note = "any name" },
    { names = "what ever", note = "anything at all" },
]
[[table]]
before = ["t."]
also = ["short."]
note = "of a table"
not_modelled = [{ names = "enabled", kinds = "bool", default = false, note = "a switch" }]
no_matter = [{ names = "any", kinds = "table" }]
[[table]]
before = ["first.", "second."]
no_matter = [{ names = "twin", kinds = "bool", note = "in each" }]
""",
        kind=FileKind(noun="a file", manual="see the others"),
        source="mine",
    )
)


def reader(data: dict[str, Any], *, auto: bool = False) -> tuple[Reader, Problems]:
    problems = Problems()
    return Reader(document(json.dumps(data, indent=1), "json"), FIELDS, problems, auto=auto), problems


def test_settings_are_read_with_their_roles() -> None:
    read, problems = reader({"n": 5e3, "t": {"enabled": True, "any": {"x": 1}}, "mode": "slow", "either": "3", "group": {"z": 1.5}})
    assert not problems.found
    assert [read.found[name] for name in ("n", "t.enabled", "mode", "either", "group.z")] == [5000, True, "slow", 3, 1.5]
    assert [(r.name, r.role) for r in read.readings] == [
        ("n", Role.READ), ("t.enabled", Role.NOT_MODELLED), ("t.any", Role.NO_MATTER), ("mode", Role.READ), ("either", Role.NO_MATTER),
        ("group.z", Role.NO_MATTER),
    ]  # fmt: skip
    assert [r.place.line for r in read.readings if r.place] == [2, 4, 5, 9, 10, 12]


def test_a_setting_may_have_several_names() -> None:
    read, problems = reader({"older": {"n": 3}, "short": {"enabled": True}, "what": [None], "ever": None, "case": "FAST"})
    assert not problems.found
    assert (read.name("n"), read.get("n"), read.get("t.enabled"), read.get("what"), read.get("case")) == (
        "older.n",
        3,
        True,
        [None],
        "FAST",
    )
    _, problems = reader({"n": 1, "older": {"n": 1}})
    assert [(d.code, d.message, d.place and d.place.line) for d in problems.found] == [
        ("PP502", "`older.n` and `n` are one setting, said twice", 4)
    ]
    assert reader({"case": "fAST"})[1].found


def test_a_row_without_a_note_is_a_mistake() -> None:
    with pytest.raises(InputError, match="`note` is missing"):
        read_settings(Table.read('[[table]]\nread = [{ names = "n" }]\n', kind=FileKind(noun="a file", manual="-"), source="mine"))


def test_what_is_not_said_is_the_default_and_what_says_the_default_is_of_no_matter() -> None:
    read, _ = reader({"t": {"enabled": False}})
    assert (read.get("n"), read.said("n"), read.get("mode")) == (1, False, "fast")
    assert [(r.role, r.note) for r in read.readings] == [(Role.NO_MATTER, "the default")]
    assert read.get("group.z") is None
    open_, _ = reader({"n": "auto"}, auto=True)
    assert (open_.get("n"), open_.said("n")) == (None, False)


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        ({"mod": 1}, "PP502", "did you mean `mode`"),
        ({"moed": 1}, "PP502", "did you mean `mode`?"),
        ({"enabled": True}, "PP502", "there is `t.enabled`"),
        ({"zzzzzz": True}, "PP502", "check its spelling"),
        ({"t": {"enable": True}}, "PP502", "did you mean `enabled`?"),
        ({"t": True}, "PP503", "with `any`, `enabled` in it"),
        ({"n": 0}, "PP503", "a number"),
        ({"n": 1.5}, "PP503", "a number"),
        ({"n": True}, "PP503", "a number"),
        ({"n": "auto"}, "PP503", "a number"),
        ({"n": None}, "PP503", "a number"),
        ({"mode": "medium"}, "PP503", "one of two"),
        ({"t": {"enabled": "maybe"}}, "PP503", "a switch"),
        ({"group": {"z": "x"}}, "PP503", "any name"),
        ({"three": True}, "PP503", "few"),
        ({"group": 3}, "PP503", "with `*` in it"),
    ],
)
def test_settings_that_do_not_fit(data: dict[str, Any], code: str, words: str) -> None:
    _, problems = reader(data)
    (problem,) = problems.found
    assert problem.code == code
    assert words in str(problem.help)
    assert problem.place is not None


def test_expressions_leave_open_what_is_not_known() -> None:
    assert expression({"zero1": {"dp": None}, "tp": {"tp": 2}, "fsdp": {"prefetch": True}}) == "zero1 * tp(tp=2) * fsdp(prefetch=true)"


def test_strategy_files_are_no_configurations(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('name = "mine"\n[axes.dp]\n[placement.dp]\nparameters = "R"\n')
    (tmp_path / "job.toml").write_text("[training]\nlocal_batch_size = 8\n")
    (tmp_path / "broken.toml").write_text("name = ")
    assert not recognised(str(tmp_path / "mine.toml"))
    assert recognised(str(tmp_path / "job.toml"))
    assert not recognised(str(tmp_path / "broken.toml"))
    (tmp_path / "broken.toml").write_text('a = "' + "\n" * 200_000 + "[mine]\n")  # the square of that would take minutes
    assert not recognised(str(tmp_path / "broken.toml"))
    assert not recognised(str(tmp_path / "missing.toml"))
    assert recognised("ds_config.json")
    assert not any(recognised(text) for text in ("zero3", "zero3 * mine.json", "mine.step", "tp(2)"))


@pytest.mark.parametrize(
    ("text", "system", "words"),
    [
        ("nothing.json", None, "cannot read `nothing.json`"),
        ("nothing.json", "deepspead", "configurations of `deepspead` are not read"),
        (" ", "megatron", "the text is empty"),
        ("nothing", "deepspeed", "cannot read `nothing`"),
    ],
)
def test_files_that_are_not_there_and_systems_that_are_not_known(text: str, system: str | None, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_config(text, system=system)


@pytest.mark.parametrize("name", ["~nobody-has-this-name/x", "a\0b"])
@pytest.mark.parametrize("ending", [".json", ".toml"])
def test_names_that_no_file_has(name: str, ending: str) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_config(name + ending)
    assert recognised(name + ending) == (ending == ".json")


def test_a_file_of_no_known_system(tmp_path: Path) -> None:
    path = tmp_path / "package.json"
    path.write_text('{"name": "x"}')
    with pytest.raises(InputError, match="no system is recognised"):
        read_config(str(path))


def test_a_list_is_no_table() -> None:
    text = "[a]\nb = [\n  [1, 2],\n  [3],\n]\nc = 1\n[[d]]\ne = 1\n"
    found = {path: toml_place(text, "mine", path) for path in (("a", "b"), ("a", "c"), ("d", "e"))}
    assert {path: place.line if place else None for path, place in found.items()} == {("a", "b"): 2, ("a", "c"): 6, ("d", "e"): 8}
