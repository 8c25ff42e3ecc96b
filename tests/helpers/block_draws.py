"""Programs over tensors on a mesh, drawn at random: collectives, rings and arithmetic on a few small tensors.

What lies where is kept track of, so that operands mostly fit, and sums over parts are mostly reduced: about half of the programs are right.
"""

from __future__ import annotations

import random

HEADS = (
    "mesh(tp)\ntensor(x, tokens, hidden)\ntensor(v, tokens, hidden, tp=tokens)\ntensor(w, hidden, ffn, tp=ffn)\ntensor(c, ffn)\n",
    "mesh(tp, cp)\ntensor(x, tokens, hidden)\ntensor(v, tokens, hidden, tp=tokens, cp=hidden)\ntensor(w, hidden, ffn, tp=ffn)\n",
    "mesh(tp, cp)\ntensor(x, tokens, tp=tokens, cp=tokens)\ntensor(v, tokens, hidden, cp=tokens)\ntensor(w, hidden, tokens, cp=tokens)\n",
    "mesh(tp)\ntensor(x, hidden)\ntensor(v, hidden, tp=hidden)\ntensor(w, hidden, tp=hidden)\n",
    "mesh(tp=2)\ntensor(x, tokens, hidden)\ntensor(v, tokens, hidden, tp=tokens)\ntensor(w, tokens, tp=tokens)\n",
    "mesh(tp)\ntensor(ids, tokens, tp=tokens, picks=hidden)\ntensor(w, tokens, hidden, tp=tokens)\ntensor(v, hidden, tp=hidden)\n",
    "mesh(tp)\ntensor(x, tokens, hidden, tp=tokens)\ntensor(v, keys, hidden, tp=keys)\ntensor(w, keys, ffn, tp=keys)\n",
)
#: Of each dimension the axes that cut it, the outermost first.
Dims = dict[str, tuple[str, ...]]


class Drawing:
    """One program, and what is known of its buffers."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.head = self.rng.choice(HEADS)
        self.axes = ["tp", "cp"] if "cp" in self.head else ["tp"]
        self.dims: dict[str, Dims] = {}
        for line in self.head.splitlines()[1:]:
            name, *rest = line[7:-1].split(", ")
            cut = [d.split("=") for d in rest if "=" in d]
            self.dims[name] = {d: tuple(a for a, b in cut if b == d) for d in rest if "=" not in d}
        self.dims.pop("ids", None)
        self.fresh = 0

    def text(self) -> str:
        rng = self.rng
        lines = [self.assign() for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.5:
            lines += self.ring()
        if rng.random() < 0.2:
            lines += self.branch()
        lines += [self.assign() for _ in range(rng.randint(0, 2))]
        if rng.random() < 0.5:
            lines.append(f"returns({self.value(2)[0]})")
        lines += [f"returns({name})" for name in list(self.dims)[-rng.randint(1, 2) :]]
        return self.head + "\n".join(lines) + "\n"

    def name(self) -> str:
        return self.rng.choice([*list(self.dims)[-3:], *self.dims])

    def assign(self, known: list[str] | None = None) -> str:
        """A new buffer; in a ring, also more of one that is known, or another value of it."""
        for _ in range(5):
            value, dims = self.value(self.rng.randint(1, 2))
            target = self.rng.choice(known or [""])
            if known and self.rng.random() < 0.7 and dims.items() <= self.dims[target].items():
                if self.rng.random() < 0.6:
                    return f"{target} += {value}"
                factor = self.rng.choice(["", "", " * 2", f" * {self.name()}"]) if dims == self.dims[target] else ""
                return f"{target} = {target}{factor} + {value}" if self.rng.random() < 0.7 else f"{target} = max({target}, {value})"
            if not known:
                break
        self.fresh += 1
        self.dims[f"a{self.fresh}"] = dims
        return f"a{self.fresh} = {value}"

    def branch(self) -> list[str]:
        """The first device, or all but it, do something else."""
        rng, axis = self.rng, self.rng.choice(self.axes)
        lines, name = [self.assign()], f"a{self.fresh}"
        zero = f"{name} * 0" if rng.random() < 0.5 else f"{name} / {axis}"
        one, other = rng.choice([(name, zero), (zero, name), (name, name), (f"{name} * 2", f"{name} + {name}")])
        test = rng.choice(["== 0", "!= 0", "> 0", "< 1", f"== {axis} - 1"])
        self.dims["b"] = self.dims[name]
        lines += [f"if rank({axis}) {test}:", f"    b = {one}", "else:", f"    b = {other}"]
        return [*lines, f"b = all_reduce(b, {axis})"] if rng.random() < 0.6 else lines

    def ring(self) -> list[str]:
        axis, rng = self.rng.choice(self.axes), self.rng
        lines, known = [], []
        moving = rng.randint(1, 2)
        for n in range(moving + 2):
            name = self.name()
            self.fresh += 1
            lines.append(f"k{self.fresh} = copy({name})")
            self.dims[f"k{self.fresh}"] = self.dims[name]
            known.append(f"k{self.fresh}")
            if n >= moving:
                lines.append(self.assign())
                known.append(lines[-1].split(" ")[0])
        by = rng.choice(["", "", ", by=-1"])
        body = [f"{k} = shift({k}, {axis}{by})" for k in known[:moving]]
        body += [self.assign(known[rng.randint(0, moving) :]) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.25:
            rng.shuffle(body)
        lines += [f"for r in rounds[{axis}]:", *("    " + line for line in body)]
        return lines + [f"{k} = shift({k}, {axis}{by})" for k in known[:moving] if rng.random() < 0.7]

    def value(self, depth: int) -> tuple[str, Dims]:
        rng = self.rng
        if depth == 0:
            if "ids" in self.head and rng.random() < 0.2:
                return "hot(ids)", {"tokens": ("tp",), "hidden": ()}
            name = self.name()
            return name, self.dims[name]
        a, dims = self.value(depth - 1)
        chance = rng.random()
        if chance < 0.3:
            return self.collective(a, dims)
        if chance < 0.48 and dims:
            dim = rng.choice(list(dims))
            return self.reduced(f"{rng.choice(['total', 'total', 'largest'])}({a}, over={dim})", dims, dim)
        if chance < 0.6:
            return f"elementwise({rng.choice(['gelu', 'exp', 'reciprocal', 'log', 'stop'])}, {a})", dims
        if chance < 0.66:
            return f"({a} {rng.choice('*/')} {rng.choice([*self.axes, '2'])})", dims
        for _ in range(6):
            b, more = self.value(depth - 1)
            if all(dims[d] == more[d] for d in dims if d in more) or rng.random() < 0.05:
                return self.two(a, b, dims, more)
        return a, dims

    def two(self, a: str, b: str, dims: Dims, more: Dims) -> tuple[str, Dims]:
        both = [d for d in dims if d in more]
        if both and self.rng.random() < 0.45:
            dim = self.rng.choice(both)
            return self.reduced(f"contract({a}, {b}, over={dim})", dims | more, dim)
        text = f"max({a}, {b})" if self.rng.random() < 0.1 else f"({a} {self.rng.choice('+-**/')} {b})"
        return text, dims | more

    def reduced(self, text: str, dims: Dims, dim: str) -> tuple[str, Dims]:
        """What is left without a dimension: mostly reduced over the axes that cut it."""
        rest = {d: cut for d, cut in dims.items() if d != dim}
        if dims[dim] and self.rng.random() < 0.8:
            op = ", op=max" if text.startswith("largest") else ""
            return f"all_reduce({text}, {', '.join(dims[dim])}{op})", rest
        return text, rest

    def collective(self, a: str, dims: Dims) -> tuple[str, Dims]:
        rng, axis = self.rng, self.rng.choice(self.axes)
        where = [d for d, cut in dims.items() if axis in cut]
        free = [d for d, cut in dims.items() if axis not in cut]
        if where and dims[where[0]][-1] == axis and rng.random() < 0.75:
            (dim,) = where[:1]
            if free and rng.random() < 0.4:
                other = rng.choice(free)
                return f"all_to_all({a}, {axis}, dim={other})", dims | {dim: dims[dim][:-1], other: (*dims[other], axis)}
            return f"all_gather({a}, {axis})", dims | {dim: dims[dim][:-1]}
        if where:
            return f"shift({a}, {axis}{rng.choice(['', ', by=-1'])})", dims
        op = rng.choice(["part", "part", "reduce_scatter", "all_reduce", "shift", "broadcast"])
        if op in ("part", "reduce_scatter"):
            if not free:
                return a, dims
            dim = rng.choice(free)
            mean = ", op=mean" if op == "reduce_scatter" and rng.random() < 0.7 else ""
            return f"{op}({a}, {axis}, dim={dim}{mean})", dims | {dim: (*dims[dim], axis)}
        how = rng.choice([", op=mean", ", op=mean", ", op=max", ""]) if op == "all_reduce" else ""
        return f"{op}({a}, {axis}{how})", dims


def drawn(seed: int) -> str:
    """A program by its number."""
    return Drawing(seed).text()
