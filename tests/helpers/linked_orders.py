"""Pipeline schedules for the walk of a linked program: where stages lie, and what a device keeps while it follows its order of passes.

The orders are the files of the catalogue, read as docs/reference/schedules.md says: phases that repeat a pattern of passes.
"""

from __future__ import annotations

import re
import tomllib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

PASS = re.compile(r"([A-Z]+)(\d*)")


@dataclass(frozen=True)
class Order:
    """A schedule of p devices with v chunks on each."""

    layout: str
    order: Mapping[str, Any]
    p: int
    v: int

    @classmethod
    def read(cls, folder: Path, name: str, p: int, v: int) -> Order:
        """Of the catalogue's file."""
        file = tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
        return cls(file["layout"], file["order"], p, v)

    @property
    def copies(self) -> int:
        """How often the model is there: in both directions, twice."""
        return 2 if self.layout == "both" else 1

    @property
    def stages(self) -> int:
        return self.p * self.v // self.copies

    def on(self, d: int) -> list[int]:
        """The stages of device d, by chunk."""
        match self.layout:
            case "loop":
                return [c * self.p + d for c in range(self.v)]
            case "vee":
                return [d, 2 * self.p - 1 - d]
        return [d, self.p - 1 - d] if d < self.p / 2 else [self.p - 1 - d, d]

    def messages(self, d: int) -> tuple[int, int]:
        """How often device d hands a micro-batch on to another device, and a gradient back."""
        here = set() if self.layout == "both" else set(self.on(d))  # of two copies the next stage lies elsewhere
        forward = sum(s + 1 < self.stages and s + 1 not in here for s in self.on(d))
        return forward, sum(s > 0 and s - 1 not in here for s in self.on(d))

    def passes(self, d: int, m: int) -> Iterator[tuple[str, int, int]]:
        """The passes of device d in order: kind (`F`, `B`, `W`, or `BW`: both in one), micro-batch, chunk."""
        names: dict[str, Any] = {"p": self.p, "m": m, "v": self.v, "d": d, "min": min, "max": max}
        names["m"] = eval(self.order.get("made_for", "m"), {}, names)
        for name, value in self.order.get("let", {}).items():
            names[name] = eval(value, {}, names)
        if "block" in self.order:
            yield from self._repeated(names, m)
            return
        turn = eval(str(self.order.get("turn", 1)), {}, names)
        number = {(kind, c): 0 for kind in "FB" for c in range(self.v)}
        turns = {"F": 0, "B": 0}
        waiting: deque[tuple[int, int]] = deque()  # weight gradients that are still to come
        every = (
            run for phase in self.order["phases"] for _ in range(eval(phase["times"], {}, names)) for run in PASS.findall(phase["run"])
        )
        for kind, chunk in every:
            if kind == "W":
                i, c = next(own for own in waiting if chunk in ("", str(own[1])))
                waiting.remove((i, c))
            else:
                c = int(chunk) if chunk else self._chunk(kind[0], turns, turn)
                i = number[kind[0], c]
                number[kind[0], c] += 1
                waiting.extend([(i, c)] * (kind == "B"))
            if i < m // self.copies:  # of an order that is made for more micro-batches the others are left out
                yield kind, i, c

    def _repeated(self, names: dict[str, Any], m: int) -> Iterator[tuple[str, int, int]]:
        """A block that is repeated: its passes by their units of time, with weight gradients in units that are free, where it has none."""
        every = eval(self.order["every"], {}, names)
        begins: dict[int, tuple[str, int, int]] = {}
        for said, unit in self.order["block"].items():
            ((kind, chunk),) = PASS.findall(said)
            begins |= {eval(unit, {}, names) + i * every: (kind, i, int(chunk or 0)) for i in range(m)}
        waiting: deque[tuple[int, int]] = deque()
        fills = not any(kind == "W" for kind, _, _ in begins.values())
        for unit in range(max(begins) + 1):
            if unit in begins:
                kind, i, c = begins[unit]
                yield kind, i, c
                waiting.extend([(i, c)] * (fills and kind == "B"))
            elif waiting:
                yield ("W", *waiting.popleft())
        for i, c in waiting:
            yield "W", i, c

    def _chunk(self, kind: str, turns: dict[str, int], turn: int) -> int:
        """Turns of so many micro-batches of a chunk in a row; backwards go from the last chunk to the first."""
        c = turns[kind] // turn % self.v
        turns[kind] += 1
        return c if kind == "F" else self.v - 1 - c

    def most(self, d: int, m: int, until_b: list[Fraction], until_w: list[Fraction]) -> Fraction:
        """The most that device d keeps: of each micro-batch of a chunk ``until_b`` from F to B, and ``until_w`` from B to W."""
        now = most = Fraction(0)
        for kind, _, c in self.passes(d, m):
            now += {"F": until_b[c], "B": until_w[c] - until_b[c], "W": -until_w[c], "BW": -until_b[c]}[kind]
            most = max(most, now)
        return most
