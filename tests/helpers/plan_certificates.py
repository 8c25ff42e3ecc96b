"""The certificate of a plan of a small grid, held against what single derivations say of its points."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from random import Random
from typing import Any

from placeproof.core.diagnostics import InputError
from placeproof.planning.certificate import written
from placeproof.planning.search import Outcome, Search
from placeproof.planning.space import Mesh, Option, Space
from placeproof.verify.plan import Box, Plan, RejectedPlanError

#: Points of a grid whose bounds are looked at.
LOOKED_AT = 30


def certificate_of(search: Search, outcome: Outcome, count: int) -> dict[str, Any] | None:
    """As it is read from a file; None where an exchange has no closed form, which is refused."""
    try:
        return json.loads(json.dumps(written(search, outcome, count, {})))  # type: ignore[no-any-return]
    except InputError as error:
        assert "has no closed form" in error.diagnostics[0].message, error
        return None


def box_of(space: Space, mesh: Mesh, b: int, option: Option) -> Box:
    """A point, by the coordinates of a certificate."""
    words = {True: "yes", False: "no"}
    options = {"sp": words[option.sp], "fp8": words[option.fp8], "attention": option.attention, "recompute": option.recompute}
    point = {"mesh": space.meshes.index(mesh), "b": b, "flow": option.flow.text, "data": option.data, "order": option.order} | options
    return {name: (value,) for name, value in point.items()}


def wrong(document: Mapping[str, Any], space: Space, truth: Mapping[tuple[Mesh, int, Option], Any], seed: int = 0) -> Iterator[str]:
    """What is wrong with a certificate: what it says of points that were derived by themselves. ``truth``: seconds, and bytes beyond what
    there is, of each point that keeps all rules and is not refused; None of others."""
    plan = Plan(document)
    try:
        counts = plan.check()
    except RejectedPlanError as error:
        yield f"the certificate is rejected: {error}"
        return
    if counts.total() != space.size:
        yield f"the certificate has {counts.total()} points of {space.size}"
    every = list(truth)
    for point in Random(seed).sample(every, min(len(every), LOOKED_AT)):
        box, said = box_of(space, *point), truth[point]
        bounds = plan.bounds(box, True)
        if said is None:
            continue
        if not bounds:
            yield f"the certificate says that {point} breaks a rule"
        for one in bounds:
            if not (isinstance(one["time"], Fraction | int) and one["time"] <= said[0] and one["memory"] <= said[1]):
                yield f"the certificate has bounds {one} of {point}, which are {said}"
