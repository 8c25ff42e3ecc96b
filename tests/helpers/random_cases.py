"""Random cases to measure: small models of random shapes under random implementations. The same seed gives the same case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from placeproof.core.shapes import Shapes, Unit, Weight, transformer
from placeproof.cost.exact.options import Value
from placeproof.measure.training.subjects import SUBJECTS, Subject

#: The most devices of a case.
MOST = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What to hand to :func:`placeproof.measure.training.run.measure`."""

    subject: str
    shapes: Shapes
    mesh: Mapping[str, int]
    rank: int
    options: Mapping[str, Value]


def random_case(seed: int) -> Case:
    """A case on 2 to 64 devices. Every subject is as likely as any other; every weight has 1 to 3 dimensions of at least 1."""
    draw = Random(seed)
    subject = SUBJECTS[draw.choice(sorted(SUBJECTS))]
    mesh = _mesh(draw, subject)
    options = _options(draw, subject, mesh)
    decoder = subject.decoder or draw.random() < 0.3
    units = draw.randint(1, 3)
    if subject.schedule:
        units = subject.stages(mesh, {"virtual": 1} | options) + draw.randint(0, 2)
    shapes = _decoder(draw, units, mesh.get("tp", 1)) if decoder else random_stack(draw, units)
    devices = 1
    for size in mesh.values():
        devices *= size
    return Case(subject=subject.name, shapes=shapes, mesh=mesh, rank=draw.randrange(devices), options=options)


def _mesh(draw: Random, subject: Subject) -> dict[str, int]:
    if subject.schedule:
        return {"pp": draw.randint(2, 4 if subject.virtual == 1 else 3)}
    mesh: dict[str, int] = {}
    room = MOST
    for axis in reversed(subject.axes):
        others = len(subject.axes) - len(mesh) - 1
        sizes = [2, 4] if axis == "tp" else range(2, room // 2**others + 1)
        mesh[axis] = draw.choice(sizes)
        room //= mesh[axis]
    return {axis: mesh[axis] for axis in subject.axes}


def _options(draw: Random, subject: Subject, mesh: Mapping[str, int]) -> dict[str, Value]:
    """Some of the options that the subject takes; those that it needs to fit its mesh always."""
    options: dict[str, Value] = {"optimizer": draw.choice(["adamw", "sgd"])}
    if draw.random() < 0.3:
        options["dtype"] = draw.choice(["float64", "bfloat16"])
    elif "param_dtype" in subject.options and draw.random() < 0.4:
        options["param_dtype"] = draw.choice(["bfloat16", "float16"])
        options["reduce_dtype"] = draw.choice(["float32", options["param_dtype"]])
    if "bucket_cap_mb" in subject.options:
        options["bucket_cap_mb"] = draw.choice([None, draw.randint(1, 4_000) / 2**20])
        options["find_unused"] = draw.random() < 0.2
        options["step"] = draw.randint(1, 3)
    if "bucket_view" in subject.options:
        options["bucket_view"] = draw.random() < 0.5
    if "k" in subject.options:
        options["k"] = draw.choice([k for k in range(1, mesh["dp"] + 1) if not mesh["dp"] % k])
    if "virtual" in subject.options:
        options["virtual"] = draw.randint(1, 2)
    if subject.schedule:
        stages = subject.stages(mesh, {"virtual": 1} | options)
        options["microbatches"] = draw.choice([stages, stages + mesh["pp"], 2 * stages])
    return options


def random_stack(draw: Random, units: int) -> Shapes:
    """Weights of random shapes, most of which no degree divides; now and then a unit without any."""

    def unit(name: str, prefix: str) -> Unit:
        count = draw.choice([0, 1, 1, 2, 2, 3, 4]) if prefix else draw.randint(1, 3)
        shapes = [tuple(draw.choice([1, 2, 3, 4, 5, 7, 8, 12, 16, 31]) for _ in range(draw.randint(1, 3))) for _ in range(count)]
        return Unit(name=name, weights=tuple(Weight(name=f"{prefix}w{i}", shape=shape) for i, shape in enumerate(shapes)))

    dims = (("batch", draw.randint(1, 3)), ("tokens", draw.randint(1, 4)), ("hidden", draw.randint(1, 5)))
    parts = (unit(f"units.{i}", f"units.{i}.") for i in range(units))
    return Shapes(name="random stack", units=(unit("root", ""), *parts), dims=dims)


def _decoder(draw: Random, layers: int, degree: int) -> Shapes:
    """A decoder that tensor parallelism of this degree divides evenly."""
    groups = draw.randint(1, 2)
    kv_heads = degree * draw.randint(1, 2)
    heads = kv_heads * groups
    return transformer(
        layers=layers,
        hidden=heads * draw.choice([2, 4, 6]),
        heads=heads,
        kv_heads=kv_heads,
        ffn=degree * draw.randint(1, 9),
        vocab=degree * draw.randint(2, 9),
        batch=draw.randint(1, 3),
        tokens=degree * draw.randint(1, 3),
    )
