"""Step programs that compute something twice, perhaps a little otherwise, and add the difference to a gradient that is right.

`twins(seed)`: where both ways agree, the step is right; where a proof only thinks so, it is false. Loops over units or micro-batches fill
buffers part by part, with numbers that they carry from one iteration to the next.
"""

from __future__ import annotations

import random
import re

#: Lines of a loop over units, about a buffer `a` and a number `s`, in the gradient's terms.
UNITS = (
    "a[u] = scale(G[u], s)", "a[u + 1] = scale(G[u + 1], s)", "a[u - 1] = scale(G[u - 1], s)", "a[u] = copy(G[u])", "a[u] += G[u]",
    "a[u] = a[u] + G[u]", "a[u] = scale(a[u], s)", "a[u] = scale(a[u], 2)", "s = s + 1", "s = s * 2", "s += square_norm(G[u])",
    "s = square_norm(G[u])", "s = square_norm(a[u])", "a = scale(a, 2)", "e[u] = scale(G[u], s)", "e[u + 1] = scale(G[u + 1], s)",
    "e[u - 1] = scale(G[u - 1], s)", "a[u] = e[u]", "a[u + 1] = e[u + 1]", "a[u - 1] = e[u - 1]", "e = scale(G, s)", "a[u] += e[u]",
    "a[0] = copy(G[0])", "zero(a[u])", "a[u] = G[u] - a[u]",
)  # fmt: skip

#: Lines of a loop over micro-batches: `k` is kept for each of them.
BATCHES = (
    "k[i] = backward(parameters, i)", "a += k[i]", "a = a + k[i]", "a += k[i - 1]", "a = k[i] - a", "a = k[i]",
    "a += scale(k[i], s)", "s = s + 1", "s = s * 2", "q[i] = s", "s += q[i]", "a = scale(a, s)", "a += backward(parameters, i)",
    "k[i] = scale(a, 1)", "q[i] = square_norm(k[i])",
)  # fmt: skip

#: What stands behind such a loop.
AFTER_BATCHES = (
    "a = a + k[0]", "a = a - k[-1]", "a = k[-1]", "a = scale(k[0], s)", "s = q[0]", "s = q[-1]", "s = s + q[0]", "a = scale(a, 2)",
)  # fmt: skip
AFTER_UNITS = ("a[0] = G[0]", "a[-1] = G[-1]", "a[1] = G[1]", "s = square_norm(a)", "a = scale(a, s)")
WALKS = ("units", "units", "reversed(units)", "units[1:]")


class _Twins:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.units = self.random.random() < 0.55

    def way(self) -> tuple[str, list[str], list[str]]:
        """A loop's head, its body, and what stands behind it."""
        r = self.random
        body = r.choices(UNITS if self.units else BATCHES, k=r.choice((1, 2, 2, 3, 4)))
        walk = r.choice(WALKS if self.units else ("microbatches", "microbatches", "reversed(microbatches)"))
        head = f"for {'u' if self.units else 'i'} in {walk}:"
        if not self.units and any(re.search(r"k\[i", line) for line in body) and not any(line.startswith("k[i]") for line in body):
            body.insert(r.randrange(2), BATCHES[0])
        if not self.units and any("q[" in line for line in body) and not any(line.startswith("q[i]") for line in body):
            body.insert(r.randrange(2), "q[i] = s")
        if "reversed(micro" in head:  # what an iteration has not written yet is nothing
            body = [line.replace("k[i - 1]", "k[i + 1]") for line in body]
        after = r.choices(AFTER_UNITS if self.units else AFTER_BATCHES, k=r.choice((0, 0, 1, 1, 2)))
        made = " ".join(body)
        return head, body, [line for line in after if all(f"{n}[" not in line or f"{n}[i] =" in made for n in "kq")]

    def otherwise(self, head: str, body: list[str], after: list[str]) -> tuple[str, list[str], list[str]]:
        """The same, or an edit of it."""
        r, body, after = self.random, list(body), list(after)
        for _ in range(r.choice((0, 1, 1, 1, 2))):
            kind, at = r.randrange(9), r.randrange(len(body))
            if kind == 0 and len(body) > 1:
                body.insert(r.randrange(len(body)), body.pop(at))
            elif kind == 1:
                body[at] = r.choice(UNITS if self.units else BATCHES)
            elif kind == 2:
                head = head.replace("units:", "reversed(units):") if "units:" in head else head.replace("reversed(", "").replace("):", ":")
                body = [line.replace("k[i + 1]", "k[i - 1]") for line in body]
            elif kind == 3 and len(body) > 1:
                after.insert(0, body.pop(at)) if not re.search(r"\[[ui]", body[at]) else body.pop(at)
            elif kind == 4:
                body[at] = body[at].replace("+ 1", "+ 2") if r.random() < 0.5 else body[at].replace("s)", "s * s)")
            elif kind == 5:
                body.insert(at, body[at])
            elif kind < 8 and "[u]" in body[at]:
                body[at] = body[at].replace("[u]", r.choice(("[u + 1]", "[u - 1]")))
            elif after:
                after[r.randrange(len(after))] = r.choice(AFTER_UNITS if self.units else AFTER_BATCHES)
        if "reversed(micro" in head:
            body = [line.replace("k[i - 1]", "k[i + 1]") for line in body]
        return head, body, after

    def text(self) -> str:
        r = self.random
        one = self.way()
        other = self.otherwise(*one)
        names = {"a": "b", "s": "t", "k": "l", "q": "p", "e": "f"}

        def called(line: str) -> str:
            return re.sub(r"\b[askqe]\b", lambda m: names[m.group()], line)

        lines = ["mesh(dp)"]
        start = ["a = scale(G, {})", "s = 1"] if self.units else ["a = scale(backward(parameters, i), {})", "s = 1"]
        if self.units:
            lines.append("G = all_reduce(backward(parameters), dp, op=mean)")
            first = r.choice((0, 1, 2))
            lines += [start[0].format(first), start[1]]
            lines += [
                called(start[0].format(first)),
                called(start[1]),
                *(("e = scale(G, 3)", "f = scale(G, 3)") if r.random() < 0.7 else ()),
            ]
        else:
            lines += ["for i in microbatches:", "    G += backward(parameters, i)", "G = scale(all_reduce(G, dp), 1 / (dp * microbatches))"]
            lines += ["a = scale(G, 0)", "s = 1", "b = scale(G, 0)", "t = 1"]
        bodies = [one[1], [called(line) for line in other[1]]]
        afters = [one[2], [called(line) for line in other[2]]]
        if one[0] == other[0] and r.random() < 0.6:
            lines += [one[0], *("    " + line for line in (*bodies[0], *bodies[1])), *afters[0], *afters[1]]
        else:
            for head, body, after in zip((one[0], other[0]), bodies, afters, strict=True):
                lines += [head, *("    " + line for line in body), *after]
        if r.random() < 0.6:
            lines.append("H = G + a - b")
        else:
            lines.append("H = scale(G, 1 + s - t)")
        if self.units and r.random() < 0.4:
            lines.append(r.choice(("H[0] = G[0]", "H[-1] = G[-1]")))
        lines.append("parameters, optimizer = update(parameters, optimizer, H)")
        return "\n".join(lines) + "\n"


def twins(seed: int) -> str:
    """A random program of two loops, or of one, whose results are taken to be equal."""
    return _Twins(seed).text()
