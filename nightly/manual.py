"""Programs in masses against the manual: `python nightly/manual.py --drawn 100000 --wild 100000 --twins 10000 --small`.

Each is judged, and run by `tests/helpers/manual_interpreter.py`, which was written from the manual alone. A proof of a program that a run
of the interpreter denies is a false accept; a refutation of one that ends, on the mesh of the counterexample, as one device does is a false
refusal. Prints both with their texts, and how many verdicts of each kind there were; ends with 1 if there was a false one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "tests" / "helpers")]

import manual_programs  # noqa: E402
from manual_truth import at_the_witness, right  # noqa: E402
from manual_twins import twins  # noqa: E402
from manual_wild import wild  # noqa: E402
from tally import tally  # noqa: E402

from placeproof.core.diagnostics import InputError  # noqa: E402
from placeproof.programs import read  # noqa: E402
from placeproof.semantics.judge.verdict import Judged, judge  # noqa: E402
from placeproof.semantics.meaning.setup import Fault  # noqa: E402


def one(text: str) -> tuple[str, str, str]:
    """What is said of a program: the manual's truth, the verdict, and what is wrong with the verdict."""
    try:
        program = read(text)
        judged = judge(program)
    except InputError:
        return "", "refused", ""
    except Exception as error:
        return "", "crashed", f"{type(error).__name__}: {error}"
    truth = right(program)
    said = {True: "right", False: "wrong", None: "not spoken of"}[truth]
    if judged.word == "proved" and truth is False:
        return said, judged.word, "false accept"
    lenient = "start(" in text or _unwritten(judged)
    if judged.word == "refuted" and truth is True and not lenient and not at_the_witness(judged):
        return said, judged.word, "false refusal"
    return said, judged.word, ""


def _unwritten(judged: Judged) -> bool:
    """Whether something is read that nothing has written: like an operand that is overwritten in flight, nothing to the interpreter unless
    it is made use of."""
    return isinstance(judged.found.what, Fault) and "nothing has written it" in judged.found.what.why


def main() -> int:
    """Compare, and say what differs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--drawn", type=int, default=0, metavar="N", help="so many random programs of up to twelve statements")
    parser.add_argument("--wild", type=int, default=0, metavar="N", help="so many whose statements are drawn one by one")
    parser.add_argument("--twins", type=int, default=0, metavar="N", help="so many that compute something in two ways")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the seed of the first of each")
    parser.add_argument("--small", action="store_true", help="every program of up to three statements over the vocabulary")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="of these, every N-th")
    chosen = parser.parse_args()

    def texts() -> Iterator[str]:
        yield from (manual_programs.drawn(seed) for seed in range(chosen.first, chosen.first + chosen.drawn))
        for draw, count in ((wild, chosen.wild), (twins, chosen.twins)):
            yield from (draw(seed) for seed in range(chosen.first, chosen.first + count))
        if chosen.small:
            yield from (text for n, text in enumerate(manual_programs.small()) if n % chosen.every == 0)

    return tally(list(texts()), one)


if __name__ == "__main__":
    sys.exit(main())
