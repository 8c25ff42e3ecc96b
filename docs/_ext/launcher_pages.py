"""The page of public launch scripts: what is read of them, and whether bash launches the same."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pipe_tables import code, plain, table

_RECORD = Path(__file__).parent.parent.parent / "tests" / "data" / "launch_scripts.json"
_KINDS = {"megatron": "Megatron-LM", "megatron-deepspeed": "Megatron-DeepSpeed", "ms-swift": "ms-swift", "slime": "slime"}


def counts() -> str:
    """How many scripts of each kind are read, and how many refused."""
    scripts = rows()
    numbers = Counter((row["kind"], row["outcome"]) for row in scripts)
    outcomes = ("read", "unknown arguments", "refused")
    lines = [(_KINDS[kind], *(str(numbers[kind, word] or "") for word in outcomes)) for kind in _KINDS]
    total = ("all", *(str(sum(row["outcome"] == word for row in scripts)) for word in outcomes))
    return table(["starts", *outcomes], [*lines, total])


def agreement() -> str:
    """How many scripts are read as bash runs them."""
    numbers = Counter(row["bash"] for row in rows())
    says = {
        "equal": "every word of every program is that which bash hands over",
        "equal but for what is open": "so are all words that are known, and what is open may come to the others",
        "not read": "a construct is not understood",
        "nothing": "bash starts no program, with nothing set and with what the script asks for",
        "different": "bash hands over another word",
    }
    return table(["words", "scripts", ""], [(word, str(numbers[word]), text) for word, text in says.items()])


def listed() -> str:
    """Each script, with the strategy or the first problem."""
    lines = [
        (
            f"{code(row['repo'])} {code(row['path'])}",
            row["commit"][:10],
            row["outcome"],
            code(row["says"]) if row["outcome"] == "read" else plain(row["says"]),
        )
        for row in rows()
    ]
    return table(["script", "commit", "outcome", "strategy, or the first problem"], lines)


def rows() -> list[dict[str, Any]]:
    """The record, a script a row."""
    scripts: list[dict[str, Any]] = json.loads(_RECORD.read_text(encoding="utf-8"))
    return scripts
