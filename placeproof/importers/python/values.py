"""What Python's expressions come to where that is followed: plain values, objects with what is said of them, and what is open."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

_RELATIONS: dict[type[ast.cmpop], Any] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
#: What the names of classes end with whose objects say a configuration: a function that is handed one may change it.
_CONFIGURATIONS = ("Config", "Container", "Partial", "Provider", "Strategy", "Trainer", ".get_model_config", ".to_megatron_provider")


@dataclass(slots=True)
class Made:
    """What a call of a class or of a function makes that is not followed. ``name``: as it is written; ``said``: its arguments by name."""

    name: str
    node: ast.AST
    said: dict[str, Any] = field(default_factory=dict)
    places: dict[str, ast.AST] = field(default_factory=dict)
    given: list[Any] = field(default_factory=list)
    starred: bool = False
    """Whether it has arguments of `*` or `**`, which are not followed."""
    changed: bool = False
    """Whether it is part of a configuration: attributes of it were set, or it is made to have them."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that is not followed, as it is written."""

    text: str


#: What a function of another file returns that is known: it is given the call as it would be taken otherwise.
Known: TypeAlias = Callable[[Made], Any]


def may_change(name: str) -> bool:
    """Whether what is called may be a function, which changes what it is given, and no class."""
    return name.rpartition(".")[2][:1].islower()


def configurations(value: Any) -> bool:
    """Whether there is an object in a value that says a configuration."""
    if isinstance(value, list | dict):
        return any(map(configurations, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Made) and (value.changed or value.name.endswith(_CONFIGURATIONS))


def plain(value: Any) -> bool:
    """Whether all of a value is known."""
    if isinstance(value, list):
        return all(map(plain, value))
    if isinstance(value, dict):
        return all(map(plain, value.values()))
    return not isinstance(value, Made | Unknown)


def hashable(value: Any) -> Any:
    """A value as a key: lists become tuples."""
    return tuple(map(hashable, value)) if isinstance(value, list) else value


def truth(value: Any) -> bool | None:
    """Whether a value counts as true, None where that is open. An object of a class does."""
    if isinstance(value, Unknown):
        return None
    if isinstance(value, Made):
        return True if value.name.rpartition(".")[2][:1].isupper() else None
    return bool(value)


def compared(sign: ast.cmpop, left: Any, right: Any) -> bool | None:
    """What a comparison comes to, None where that is open."""
    if isinstance(sign, ast.Is | ast.IsNot):
        if right is not None or (not plain(left) and truth(left) is None and not isinstance(left, list | dict)):
            return None
        return (left is None) is isinstance(sign, ast.Is)
    within = isinstance(sign, ast.In | ast.NotIn)
    if within and isinstance(right, dict):
        right = [*right]
    if not (plain(left) and plain(right)):
        return None
    try:
        many = [hashable(one) for one in right] if within and isinstance(right, list) else right
        return bool(_RELATIONS[type(sign)](hashable(left) if within else left, many))
    except TypeError:
        return None
