"""Strategies beside which an update reads whole matrices, and lines of their programs without an exchange."""

from __future__ import annotations

import re
from collections.abc import Iterator

#: Strategies with the axes along which devices have parts of matrices when they update.
STEPS = {
    "ddp": "", "ddp * ep": "", "zero1": "dp", "zero3": "dp", "hsdp": "shard", "zeropp": "dp", "zero_offload": "dp", "zero_infinity": "dp",
    "tp": "tp", "zero1(reduce=all_reduce)": "dp", "zero1 * accumulate": "dp", "fsdp(root=keep)": "dp", "zero1 * cp * pp": "dp",
    "fsdp * tp * sp * pp": "dp tp", "zero2 * ep": "dp", "ep(experts=whole) * tp * sp": "tp", "zero1 * zero1(dp=ep) * ep": "dp ep",
    "zero1 * lora": "dp", "(R, S, R, R, dp)": "dp", "(S*, R, S, R, dp)": "", "zero1 * tp * clip": "dp tp",
}  # fmt: skip


def without(line: str, op: str) -> Iterator[tuple[str, str]]:
    """A line without each of the axes of an operation in it; of the last axis, without the operation."""
    found = re.search(rf"{op}\((?P<x>\w+\(.*\)|\w+)(?P<axes>(?:, \w+)+)\)", line)
    named = found["axes"].split(", ")[1:] if found else []
    for axis in named:
        others = ", ".join(a for a in named if a != axis)
        assert found is not None
        yield f"no {op} over {axis}", line.replace(found[0], f"{op}({found['x']}, {others})" if others else found["x"])


#: A step that updates matrices and gains apart, to be filled in.
WRITTEN = """
mesh(dp)
group(matrix, P - P_norm{options})
group(norm, P_norm{norm})
place(parameters, dp="R")
place(optimizer, dp="S")
reference(optimizer={optimizer})
g = reduce_scatter(backward(parameters), dp, op=mean)
{step}
parameters = all_gather(parameters, dp)
"""
