"""Random programs over tensors on one device: products, sums, look-ups and functions, before and after a gradient comes in."""

from __future__ import annotations

import random

TENSORS = {
    "x": ("batch", "tokens", "hidden"),
    "n": ("batch", "tokens", "hidden"),
    "mask": ("batch", "heads", "tokens", "keys"),
    "w1": ("hidden", "ffn"),
    "w2": ("ffn", "hidden"),
    "wh": ("hidden", "heads", "width"),
    "wo": ("heads", "width", "hidden"),
    "gain": ("hidden",),
    "b1": ("ffn",),
    "we": ("experts", "hidden", "ffn"),
    "table": ("vocab", "hidden"),
    "dy": ("batch", "tokens", "hidden"),
}
PICKS = {"same": (("keys",), "tokens"), "ids": (("batch", "tokens"), "vocab"), "route": (("batch", "tokens"), "experts")}
#: The most dimensions of a value, and the longest expression.
DIMENSIONS, LONGEST = 4, 260

_Made = tuple[str, frozenset[str]]


def random_block(rng: random.Random) -> str:
    """Half of the statements come before the first that may read the gradient `dy`."""
    env = {name: frozenset(dims) for name, dims in TENSORS.items() if name != "dy"}
    lines: list[str] = []
    number = rng.randint(3, 7)
    for count in range(number):
        if count == number // 2:
            lines += ["y = copy(x)", "returns(y)", "returns(dy, gradient_of=y, by=x, at=dy)"]
            env["dy"] = frozenset(TENSORS["dy"])
        while True:
            text, dims = _expression(rng, env, rng.randint(1, 2))
            if len(dims) <= DIMENSIONS and len(text) <= LONGEST:
                break
        env[f"v{count}"] = dims
        lines.append(f"v{count} = {text}")
    returned = [f"v{n}" for n in range(number) if n == number - 1 or rng.random() < 0.6]
    sums = [f"v0 + v{number - 1}"] if rng.random() < 0.5 else []
    header = [f"tensor({', '.join((name, *dims))})" for name, dims in TENSORS.items()]
    header += [f"tensor({', '.join((name, *dims))}, picks={picks})" for name, (dims, picks) in PICKS.items()]
    return "\n".join([*header, *lines, *(f"returns({value})" for value in (*returned, *sums))]) + "\n"


def _expression(rng: random.Random, env: dict[str, frozenset[str]], depth: int) -> _Made:
    chance = rng.random()
    if depth == 0:
        return _leaf(rng, env)
    if chance < 0.45:
        return _contraction(rng, env, depth)
    text, dims = _expression(rng, env, depth - 1)
    if chance < 0.66 and dims:
        dim = rng.choice(sorted(dims))
        return f"{'total' if chance < 0.6 else 'largest'}({text}, over={dim})", dims - {dim}
    if chance < 0.74:
        return f"elementwise({rng.choice(['gelu', 'square', 'stop'])}, {text})", dims
    if chance < 0.78:
        return f"({text}) ** 2", dims
    other, more = _expression(rng, env, depth - 1)
    if chance < 0.82:
        return f"max({text}, {other})", dims | more
    return f"({text} {rng.choice('+-*')} {other})", dims | more


def _contraction(rng: random.Random, env: dict[str, frozenset[str]], depth: int) -> _Made:
    for _ in range(12):
        (a, left), (b, right) = _expression(rng, env, depth - 1), _expression(rng, env, depth - 1)
        if both := sorted(left & right):
            dim = rng.choice(both)
            return f"contract({a}, {b}, over={dim})", (left | right) - {dim}
    return _leaf(rng, env)


def _leaf(rng: random.Random, env: dict[str, frozenset[str]]) -> _Made:
    """What was written last is read most."""
    if rng.random() < 0.15:
        name = rng.choice(sorted(PICKS))
        dims, picks = PICKS[name]
        return f"hot({name})", frozenset((*dims, picks))
    name = rng.choice(list(env)[-5:] if rng.random() < 0.6 else list(env))
    return name, env[name]
