"""Lifetimes of buffers in a walk, statement by statement, as docs/reference/step-programs.md says.

A buffer is alive from its write to its last read, to the next write, or to `free`. One that is written part by part lives by its parts,
each to the end of the iteration that reads it last. A handle's buffer is alive from the start, under the name that waits for it then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

#: A buffer, and of one that is written part by part the part.
Key = tuple[str, int | None]


@dataclass
class Life:
    """One life of a buffer: from statement ``start`` to statement ``end``."""

    kind: str
    name: str
    part: int | None
    bytes: Fraction
    start: int
    end: int
    freed: bool = False


class Memory:
    """What is written, read and freed, at which statement."""

    def __init__(self) -> None:
        self.now = 0
        self.lives: list[Life] = []
        self.alive: dict[Key, list[Life]] = {}
        self.iterations: list[list[Life]] = []  # for each loop that is walked, what its iteration has read

    def write(self, kind: str, key: Key, size: Fraction) -> None:
        """A write ends the life before."""
        life = Life(kind, *key, size, self.now, self.now)
        self.lives.append(life)
        self.alive[key] = [life]

    def beside(self, kind: str, key: Key, size: Fraction) -> None:
        """Another thing that lives as long as what was written last under this name."""
        life = Life(kind, *key, size, self.now, self.now)
        self.lives.append(life)
        self.alive.setdefault(key, []).append(life)

    def read(self, key: Key) -> None:
        """A read prolongs a life; of a part, to the end of the iteration."""
        for life in self.alive.get(key, ()):
            life.end = self.now
            if life.part is not None and self.iterations:
                self.iterations[-1].append(life)

    def free(self, key: Key) -> None:
        """What is freed lives until then."""
        for life in self.alive.pop(key, ()):
            life.end, life.freed = self.now, True

    def renamed(self, old: Key) -> None:
        """What was waited for is alive under another name from here on."""
        for life in self.alive.pop(old, ()):
            life.end = self.now - 1

    def begin(self) -> None:
        """An iteration begins."""
        self.iterations.append([])

    def finish(self) -> None:
        """An iteration ends: parts that it read last end here."""
        for life in self.iterations.pop():
            if not life.freed:
                life.end = max(life.end, self.now)

    def most(self, kinds: set[str], size: Callable[[Life], Fraction] = lambda life: life.bytes) -> Fraction:
        """The most bytes of some kinds that are alive at a statement."""
        change: dict[int, Fraction] = defaultdict(Fraction)
        for life in self.lives:
            if life.kind in kinds and life.end >= life.start:
                change[life.start] += size(life)
                change[life.end + 1] -= size(life)
        now = most = Fraction(0)
        for at in sorted(change):
            now += change[at]
            most = max(most, now)
        return most

    def rounded(self, kinds: set[str]) -> Fraction:
        """The same, with units as large as the largest that the buffer ever holds: those that are alive at once count as equal."""
        largest: dict[str, Fraction] = defaultdict(Fraction)
        for life in self.lives:
            if life.part is None:
                largest[life.name] = max(largest[life.name], life.bytes)
        return self.most(kinds, lambda life: largest[life.name] if life.part is None else life.bytes)
