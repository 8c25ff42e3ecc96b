"""Step programs without a plan: `wild(seed)` is statements drawn one by one, right or wrong as it happens.

`manual_programs.drawn` begins with what is right. Here nothing does: buffers and their parts, groups and other iterations' parts are
mixed in loops over units and micro-batches, in branches and between a start and its wait, where readings of a program come apart.
"""

import random

NUMBERS = ("2", "1 / 2", "1 / dp", "dp", "(dp - 1) / dp", "0")
WALKS = ("units", "units", "units[1:]", "reversed(units)", "reversed(units[1:])", "microbatches", "microbatches")
COLLECTIVES = (
    "all_reduce({x}, {axis}, op=mean)",
    "all_reduce({x}, {axis}, op=mean)",
    "all_reduce({x}, {axis})",
    "all_reduce({x}, {axis}, op=max)",
    "reduce_scatter({x}, {axis}, op=mean)",
    "all_gather({x}, {axis})",
    "broadcast({x}, {axis}, root=0)",
    "broadcast({x}, {axis}, root=owner)",
    "reduce({x}, {axis}, root=0, op=mean)",
    "part({x}, {axis})",
)
PASSES = (
    ("g = backward(parameters)",),
    ("g = scale(backward(parameters), 1 / dp)", "g = all_reduce(g, dp)"),
    ("g = all_reduce(backward(parameters), dp, op=mean)",),
    ("g = backward(all_gather(parameters, dp))",),
    ("for i in microbatches:", "    g += backward(parameters, i)"),
    ("for i in microbatches:", "    g += scale(backward(parameters, i), 1 / microbatches)"),
    ("for i in microbatches:", "    t = scale(backward(parameters, i), 1 / microbatches)", "    g += all_reduce(t, dp, op=mean)"),
    ("for i in microbatches:", "    k[i] = scale(backward(parameters, i), 1 / microbatches)", "    g += k[i]"),
    ("for i in microbatches:", "    k[i] = scale(backward(parameters, i), 1 / microbatches)", "    g += k[i - 1]", "g += k[-1]"),
)
PLACEMENTS = ('place(parameters, dp="S*")', 'place(optimizer, dp="S")', 'place(parameters, dp="S")', 'place(parameters, dp="R")')


class _Wild:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.axes = self.any((["dp"], ["dp"], ["dp", "tp"]))
        self.factors = ["dp_inner", "dp_outer"] if self.axes == ["dp"] and self.often(0.15) else []
        self.groups = self.often(0.35)
        self.names = ["g"]

    def any(self, choices):
        return self.random.choice(choices)

    def often(self, share: float) -> bool:
        return self.random.random() < share

    def part(self, walk: str) -> str:
        """A group, and an index, as both sides of a statement have them."""
        group = self.any(("", "", ".a", ".b")) if self.groups else ""
        unit = ("", "", "[u]", "[u]", "[u + 1]", "[u - 1]")
        return group + self.any(unit if "units" in walk else ("", "", "", "", "", "[0]", "[-1]", "[1]"))

    def statement(self, walk: str = "") -> list[str]:
        """A statement, or three: a start, something, and its wait."""
        target, source, part = self.any([*self.names, "h"]), self.any(self.names), self.part(walk)
        other = part if self.often(0.8) else self.part(walk)
        collective = self.any(COLLECTIVES).format(x=f"{source}{other}", axis=self.any([*self.axes, "dp", *self.factors]))
        if self.often(0.08):
            between = [self.any(("g = scale(g, 2)", "h = copy(g)", "zero(g)"))] if self.often(0.4) else []
            lines = [f"s = start({collective})", *between, f"{target} = wait(s)"]
        else:
            value = self.any((collective, collective, f"scale({source}{other}, {self.any(NUMBERS)})", f"{source}{other}", "g - g"))
            minus = f"{source}{part} - {self.any(self.names)}{part}"
            lines = [self.any((f"{target}{part} = {value}", f"{target}{part} = {value}", f"{target}{part} += {source}{other}"))]
            lines = self.any((lines, lines, lines, [f"{target}{part} = {minus}"], [f"zero({source}{part})"]))
        if "h" not in self.names and any(line.startswith("h") for line in lines):
            self.names.append("h")
        return lines

    def block(self) -> list[str]:
        """A statement, a loop or a branch."""
        kind = self.random.random()
        if kind < 0.4:
            return self.statement()
        if kind < 0.75:
            walk = self.any(WALKS)
            body = [line for _ in range(self.any((1, 1, 2, 3))) for line in self.statement(walk)]
            return [f"for {'u' if 'units' in walk else 'i'} in {walk}:", *("    " + line for line in body)]
        test = f"if rank({self.any(self.axes)}) {self.any(('== 0', '> 0', '< 2', '!= 1', '== dp - 1', '>= 1'))}:"
        otherwise = ["else:", *("    " + line for line in self.statement())] if self.often(0.5) else []
        return [test, *("    " + line for line in self.statement()), *otherwise]

    def text(self) -> str:
        lines = [f"mesh({', '.join(self.axes)})", *(["inner(dp=N_node)"] if self.factors else [])]
        lines += ["group(a, P - P_norm)", "group(b, P_norm)"] if self.groups else []
        lines += [self.any(PLACEMENTS)] if self.often(0.15) else []
        lines += self.any(PASSES)
        for _ in range(self.any((1, 1, 2, 2, 3, 4))):
            lines += self.block()
        ends = ("g = all_reduce(g, dp, op=mean)", "g = scale(all_reduce(g, dp), 1 / dp)", "g = reduce_scatter(g, dp, op=mean)")
        lines += [self.any(ends)] if self.often(0.5) else []
        lines += ["g = all_reduce(g, tp, op=mean)"] if "tp" in self.axes and self.often(0.7) else []
        lines.append(f"parameters, optimizer = update(parameters, optimizer, {self.any(['g', 'g', 'g', *self.names])})")
        after = ("all_gather(parameters, dp)", "broadcast(parameters, dp, root=owner)", "broadcast(parameters, dp, root=0)")
        lines += [f"parameters = {self.any(after)}"] if self.often(0.2) else []
        return "\n".join(lines) + "\n"


def wild(seed: int) -> str:
    """A random program of up to some twelve statements on one or two axes, with groups, branches, loops and handles."""
    return _Wild(seed).text()
