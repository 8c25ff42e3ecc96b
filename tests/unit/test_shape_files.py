"""Files of shapes that say what is frozen, idle, of another type: read, refused, and written again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.core.shapes import Shapes
from placeproof.importers.shapes import parse_shapes, render_shapes

TEXT = """
name = "adapted"
dtype = "bfloat16"
used = ["a", "units.0.low"]

[buffers]
float32 = 4

[[unit]]
name = "root"
frozen = ["b"]
[unit.parameters]
"a" = [5, 3]
"b" = [7]

[[unit]]
name = "units.0"
idle = ["units.0.spare"]
backward = false
[unit.parameters]
"units.0.low" = [2, 2]
"units.0.spare" = [2]
[unit.dtypes]
"units.0.low" = "float32"
"""


def read(text: str) -> Shapes:
    return parse_shapes(text, kind="toml", source="m.toml").shapes


def test_what_a_step_does_with_parameters_is_read() -> None:
    shapes = read(TEXT)
    a, b, low, spare = shapes.weights
    assert [w.dtype for w in (a, b, low, spare)] == ["bfloat16", "bfloat16", "float32", "bfloat16"]
    assert [(w.trained, w.idle, w.learns) for w in (a, b, low, spare)] == [
        (True, False, True),
        (False, False, False),
        (True, False, True),
        (True, True, False),
    ]
    assert [u.backward for u in shapes.units] == [True, False]
    assert [w.name for w in shapes.by_use] == ["a", "units.0.low", "b", "units.0.spare"]
    assert not shapes.plain


def test_an_order_of_registration_is_that_of_the_file_or_another_or_unknown() -> None:
    names = ["a", "b", "units.0.low", "units.0.spare"]
    assert [w.name for w in read(TEXT).by_registration] == names
    said = read(TEXT.replace("used =", 'registered = ["b", "units.0", "a"]\nused ='))
    assert [w.name for w in said.by_registration] == [names[1], names[2], names[3], names[0]]
    assert read(render_shapes(said)) == said
    unknown = read(TEXT.replace("used =", 'registered = "unknown"\nused ='))
    assert read(render_shapes(unknown)) == unknown
    with pytest.raises(InputError, match="in which order adapted registers its parameters is not known"):
        _ = unknown.by_registration
    with pytest.raises(InputError, match=r"wrong are units\.0\.low, units\.0\.spare"):
        read(TEXT.replace("used =", 'registered = ["b", "a"]\nused ='))


def test_it_is_written_as_it_is_read() -> None:
    shapes = read(TEXT)
    assert read(render_shapes(shapes)) == shapes
    mixed = replace(shapes, units=(replace(shapes.units[0], weights=(replace(shapes.units[0].weights[0], dtype=""),)), *shapes.units[1:]))
    assert read(render_shapes(replace(mixed, used=("a", "units.0.low")))) == replace(mixed, used=("a", "units.0.low"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('frozen = ["b"]', 'frozen = ["c"]', "`c` is no parameter of unit"),
        ('idle = ["units.0.spare"]', 'idle = ["spare"]', "`spare` is no parameter of unit"),
        ('"units.0.low" = "float32"', '"low" = "float32"', "`low` is no parameter of unit"),
        ('"units.0.low" = "float32"', '"units.0.low" = "float31"', "`float31` is no"),
        ('dtype = "bfloat16"', 'dtype = "int8"', "`int8` is no dtype"),
        ('idle = ["units.0.spare"]', 'idle = ["units.0.spare"]\nfrozen = ["units.0.spare"]', "is frozen and idle"),
        ("backward = false", 'backward = "no"', "true or false"),
        ('used = ["a", "units.0.low"]', 'used = ["a"]', "wrong are units.0.low"),
        ('used = ["a", "units.0.low"]', 'used = ["a", "a", "units.0.low"]', "wrong are a"),
    ],
)
def test_what_is_wrong_is_refused(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(InputError, match=message):
        read(TEXT.replace(old, new, 1))
