"""The certificate of a model's program: one of each of its blocks and of its step, in an envelope that says which program each is of."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from .check import left_open, verify
from .terms import RejectedError

SCHEMA_OF_MODEL = "placeproof.certificate-model/1"
#: The part that is no block.
STEP = "the step"
_KEYS = {"schema", "program", "sha256", "model", "without", "ranges", "parts"}
_PART_KEYS = {"part", "sha256", "one_device", "certificate", "why"}


def digest(text: str) -> str:
    """What names a program's text."""
    return hashlib.sha256(text.encode()).hexdigest()


def parts_of(program: str) -> list[str]:
    """The parts that a certificate of a program has: the blocks that it defines, in their order, and its step."""
    defined = [node for node in ast.parse(program).body if isinstance(node, ast.FunctionDef)]
    return [f"block `{node.name}`" for node in defined if any("tensor" in _called(stmt) for stmt in node.body)] + [STEP]


def _called(stmt: ast.stmt) -> Iterator[str]:
    match stmt:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            yield name


def verify_model(document: dict[str, Any]) -> dict[str, Counter[str]]:
    """How often each rule is used, by part; of one that is left to a solver nothing. Raises RejectedError if anything does not hold."""
    where = "the envelope"
    found: dict[str, Counter[str]] = {}
    try:
        if document["schema"] != SCHEMA_OF_MODEL or set(document) != _KEYS:
            raise RejectedError(f"it is not of the schema {SCHEMA_OF_MODEL}")
        if digest(document["program"]) != document["sha256"]:
            raise RejectedError("its program is another one")
        if [part["part"] for part in document["parts"]] != parts_of(document["program"]):
            raise RejectedError("its parts are not the blocks of its program and its step")
        for part in document["parts"]:
            where = part["part"]
            _check_part(document, part)
            found[where] = Counter() if part["certificate"] is None else verify(part["certificate"])
    except RejectedError as rejected:
        raise RejectedError(f"{where}: {rejected}") from None
    except (LookupError, TypeError, ValueError, AttributeError, SyntaxError, RecursionError, MemoryError) as error:
        raise RejectedError(f"{where}: it cannot be read ({type(error).__name__}: {error})") from error
    return found


def _check_part(document: dict[str, Any], part: dict[str, Any]) -> None:
    """That a part is of its program, and under what the envelope assumes."""
    if set(part) != _PART_KEYS or (part["certificate"] is None) is not bool(part["why"]):
        raise RejectedError("it has neither a certificate nor a reason")
    if part["certificate"] is None:
        return
    if digest(part["certificate"]["program"]) != part["sha256"]:
        raise RejectedError("its certificate is of another program")
    if part["part"] == STEP and [part["certificate"][key] for key in ("without", "ranges")] != [document["without"], document["ranges"]]:
        raise RejectedError("its certificate is under other assumptions")


def left_open_of_model(document: dict[str, Any]) -> bool:
    """Whether something is not shown that matters."""
    return any(part["certificate"] is None or left_open(part["certificate"]) for part in document["parts"])
