"""Methods, and functions of one object, whose results are kept with that object."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


def remembered(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """A method that computes once for the same arguments, as long as its object is there."""
    name = f"{method.__module__}.{method.__qualname__} of"

    @wraps(method)
    def once(self: S, /, *args: P.args, **options: P.kwargs) -> R:
        known: dict[Any, R] = vars(self).setdefault(name, {})
        key = args, tuple(options.items())
        if key not in known:
            known[key] = method(self, *args, **options)
        return known[key]

    return once
