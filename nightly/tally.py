"""How the verdicts on many programs are counted, and those that are shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor


def tally(
    texts: list[str],
    one: Callable[[str], tuple[str, str, str]],
    *,
    jobs: int | None = None,
    chunk: int = 50,
    shown: frozenset[str] = frozenset(),
) -> int:
    """Print the false verdicts with their programs, and how many there were of each kind; 1 if one was false.

    ``one`` says of a program what its truth is, its verdict, and what is wrong with that. ``shown``: verdicts that are printed anyway.
    """
    counted: Counter[tuple[str, str]] = Counter()
    wrong = 0
    with ProcessPoolExecutor(jobs) as pool:
        for text, (truth, word, what) in zip(texts, pool.map(one, texts, chunksize=chunk), strict=True):
            counted[truth or "-", word] += 1
            wrong += bool(what)
            if what or word in shown:
                print(f"{what or word}\n{text}", flush=True)
    for (truth, word), n in sorted(counted.items()):
        print(f"{truth}: {word} {n}")
    print(f"{len(texts)} programs, {wrong} false verdicts")
    return 1 if wrong else 0
