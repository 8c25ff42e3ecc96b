"""What pins leave of the grid of `placeproof plan`, held against trying each value of each choice by itself."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import prod
from random import Random

from placeproof.core.diagnostics import InputError
from placeproof.models import load
from placeproof.planning.choices import Pins, space_of

DEGREES = ("tp", "cp", "ep", "dp", "pp")
TRIED = {
    "data": ("ddp", "zero1", "zero2", "zero3"),
    "sp": ("yes", "no"),
    "attention": ("ring", "gather", "ulysses"),
    "recompute": ("none", "selective", "full"),
    "schedule": ("1f1b", *(f"interleaved:{n}" for n in (2, 3, 4, 5, 6, 8, 10)), "zb-h1"),
    "order": ("dp-pp",),
}
#: What can be pinned though it is not tried of itself.
BEYOND = {"recompute": ("norms", "selective+mlp"), "schedule": ("gpipe", "interleaved:7"), "order": ("pp-dp",)}


def drawn(draw: Random) -> tuple[int, int, Pins]:
    """Devices, a batch, and some pins."""
    devices, batch = draw.choice((1, 2, 6, 8, 12, 16, 30)), draw.choice((1, 4, 6, 9, 16, 40))

    def some(name: str, most: int = 3) -> str:
        every = [*map(str, (1, 2, 3, 4, 6, 8))] if name in (*DEGREES, "b") else [*TRIED[name], *BEYOND.get(name, ())]
        return f"{name}={', '.join(draw.choices(every, k=draw.randint(1, most)))}"

    only = [some(name) for name in draw.choices([*DEGREES, "b", *TRIED], k=draw.randint(0, 3))]
    forbid = [draw.choice([*DEGREES, "sp"]) if draw.random() < 0.5 else some(draw.choice([*TRIED])) for _ in range(draw.randint(0, 2))]
    most = [some(name, 1) for name in draw.sample([*DEGREES, "b"], draw.randint(0, 2))]
    return devices, batch, Pins(only=only, forbid=forbid, most=most)


def keeps(pins: Pins, name: str, value: str) -> bool:
    """Whether each pin leaves a value of a choice."""

    def values(text: str) -> tuple[str, list[str]]:
        of, _, listed = text.partition("=")
        return of, [word.strip() for word in listed.split(",")] if listed else []

    only = all(of != name or value in said for of, said in map(values, pins.only))
    default = {"sp": "no"}.get(name, "1")  # what is there without the choice
    out = any(of == name and (value in said if said else value != default) for of, said in map(values, pins.forbid))
    most = all(of != name or int(value) <= int(said[0]) for of, said in map(values, pins.most))
    return only and not out and most


def left(pins: Pins, name: str, tried: Iterable[object]) -> set[str]:
    """What pins leave of a choice, where only what is tried and what is pinned can be."""
    named = [*map(str, tried)]
    for text in pins.only:
        of, _, listed = text.partition("=")
        named += [word.strip() for word in listed.split(",")] if of == name else []
    return {value for value in named if keeps(pins, name, value)}


def test_pins_leave_what_they_say() -> None:
    refused = 0
    for seed in range(200):
        draw = Random(seed)
        devices, batch, pins = drawn(draw)
        model = load(draw.choice(("gpt", "mixtral")))
        sizes = [n for n in range(1, devices + 1) if devices % n == 0]
        degrees = [left(pins, axis, sizes if axis != "ep" or model.name == "mixtral" else [1]) for axis in DEGREES]
        meshes = {own for own in product(*([int(n) for n in each] for each in degrees)) if prod(own) == devices}
        b = {int(n) for n in left(pins, "b", (n for n in range(1, batch + 1) if batch % n == 0))}
        options = {name: left(pins, name, tried) for name, tried in TRIED.items()}
        if not (all(options.values()) and any(batch % (ep * dp * n) == 0 for _, _, ep, dp, _ in meshes for n in b)):
            refused += 1
            try:
                space_of(model, [devices], batch, pins)
            except InputError:
                continue
            raise AssertionError(f"nothing is left, and a grid was made: {devices}, {batch}, {pins}")
        space = space_of(model, [devices], batch, pins)
        listed = {
            "data": space.data,
            "sp": [{True: "yes", False: "no"}[sp] for sp in space.sp],
            "attention": space.attention,
            "recompute": space.recompute,
            "schedule": [flow.text for flow in space.flows],
            "order": list(space.orders),
        }
        assert sorted((mesh.tp, mesh.cp, mesh.ep, mesh.dp, mesh.pp) for mesh in space.meshes) == sorted(meshes)
        assert sorted(space.b) == sorted(b)
        assert {name: sorted(values) for name, values in listed.items()} == {name: sorted(values) for name, values in options.items()}
    assert 40 < refused < 160


def test_pins_are_left_out_by_what_they_are_given_as() -> None:
    pins = Pins(only=["tp=8", "b=1"], most=["tp=8"], forbid=["cp"])
    assert pins.left(["--only tp=8", "--forbid cp"]) == Pins(only=["tp=8"], most=[], forbid=["cp"])
    assert pins.left(["--max tp=8"]) == Pins(only=[], most=["tp=8"], forbid=[])
