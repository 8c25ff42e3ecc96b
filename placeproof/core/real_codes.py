"""Error codes about real systems: what runs on processes, is measured, replayed or recorded."""

from __future__ import annotations

from placeproof.core.code import Code

ROWS = (
    Code(
        code="PP601",
        title="this cannot be run on real processes here",
        meaning="PyTorch is not installed, the system cannot fork, there are too many processes, or no such backend.",
        kind="command",
        example="replay counterexample.json --backend nccl",
        remedy='`pip install "placeproof[torch]"`; give a backend and a number of processes that the message names.',
    ),
    Code(
        code="PP602",
        title="no counterexample to replay",
        meaning="A replay needs the JSON of a program that was refuted, as `placeproof prove SUBJECT --json` prints it.",
        kind="command",
        example="replay nowhere.json --backend simulator",
        remedy="Save what `placeproof prove SUBJECT --json` prints, whole, and give the path of that file.",
    ),
    Code(
        code="PP603",
        title="a step that cannot be recorded",
        meaning="What a script does has no words in a step program, its ranks do not agree, or PyTorch is not there to run it.",
        kind="command",
        example="trace record train.py --backend nccl",
        remedy="Do as the message says, or write the step as a program by hand and prove that.",
    ),
)
