"""Step programs by machine: `small()` is every program of a stated finite set, `drawn(seed)` a random one.

`small()`. A program is: `mesh(dp)`; one pass of PASSES, which writes `g`; up to two further statements, each any of the
templates of STEPS that reads what is written (three statements in all); then the update with `g` (or with `h`, where `h` is written) and
one of ENDS. STEPS are over the buffers g and h and the handle k. A handle that is started is waited for in a program that is
yielded (others are bad input by PP308), and nothing is read before it is written (PP306). `count_small()` counts.

`drawn(seed)`. A random right program of one of FAMILIES (each with random parameters), with 0 to 3 random edits, of
which some keep the meaning (BENIGN) and most do not.
"""

import random
import re
from collections.abc import Iterator

# ------------------------------------------------------------------ small
PASSES = (
    "g = backward(parameters)",
    "g = scale(backward(parameters), 1 / dp)",
    "g = backward(all_gather(parameters, dp))",
    "for i in microbatches:\n    g += backward(parameters, i)",
    "for i in microbatches:\n    g = backward(parameters, i)",
    "for i in microbatches:\n    g += scale(backward(parameters, i), 1 / microbatches)",
    "for i in microbatches:\n    g += all_reduce(backward(parameters, i), dp, op=mean)",
    "for i in microbatches:\n    g += reduce_scatter(backward(parameters, i), dp)",
)


def _steps() -> list[tuple[str, frozenset[str], frozenset[str]]]:
    """Each template: text, names read, names written."""
    out: list[tuple[str, frozenset[str], frozenset[str]]] = []

    def put(text: str, reads: str, writes: str) -> None:
        out.append((text, frozenset(reads), frozenset(writes)))

    collectives = [f"all_reduce(X, dp, op={op})" for op in ("sum", "mean", "max")]
    collectives += [f"reduce_scatter(X, dp, op={op})" for op in ("sum", "mean", "max")]
    collectives += ["reduce_scatter(X, dp, via=all_to_all)", "all_gather(X, dp)"]
    collectives += ["broadcast(X, dp)", "broadcast(X, dp, root=0)", "broadcast(X, dp, root=owner)"]
    collectives += [
        "reduce(X, dp)",
        "reduce(X, dp, root=0)",
        "reduce(X, dp, root=0, op=mean)",
        "reduce(X, dp, root=owner)",
        "reduce(X, dp, root=owner, op=mean)",
        "reduce(X, dp, root=owner, op=max)",
    ]
    collectives += ["part(X, dp)", "part(X, dp, order=interleaved)"]
    for c in collectives:
        put("g = " + c.replace("X", "g"), "g", "g")
    for c in ("all_reduce(X, dp)", "all_reduce(X, dp, op=mean)", "reduce_scatter(X, dp, op=mean)"):
        put("h = " + c.replace("X", "g"), "g", "h")
    for f in ("1 / dp", "1 / microbatches", "1 / (dp * microbatches)", "(dp - 1) / dp", "dp", "2", "1 / 2"):
        put(f"g = scale(g, {f})", "g", "g")
    put("zero(g)", "g", "g")
    put("h = g", "g", "h")
    put("h = copy(g)", "g", "h")
    put("g = h", "h", "g")
    put("g += g", "g", "g")
    put("g += h", "gh", "g")
    put("h += g", "gh", "h")
    put("g = g - h", "gh", "g")
    for i in ("0", "-1"):
        put(f"g[{i}] = all_reduce(g[{i}], dp, op=mean)", "g", "g")
        put(f"zero(g[{i}])", "g", "g")
    for walk in ("units", "units[1:]", "reversed(units)", "reversed(units[1:])"):
        put(f"for u in {walk}:\n    g[u] = all_reduce(g[u], dp, op=mean)", "g", "g")
    for i in ("u + 1", "u - 1"):
        put(f"for u in units:\n    g[{i}] = all_reduce(g[{i}], dp, op=mean)", "g", "g")
    for walk in ("units", "units[1:]"):
        put(f"for u in {walk}:\n    g[u] = scale(g[u], 1 / dp)", "g", "g")
        put(f"for u in {walk}:\n    g = scale(g, 1 / dp)", "g", "g")
        put(f"for u in {walk}:\n    h[u] = g[u]", "g", "h")
    put("for u in units:\n    g[u] = reduce_scatter(g[u], dp, op=mean)", "g", "g")
    put("for u in units:\n    h[u + 1] = g[u]", "g", "h")
    put("for i in microbatches:\n    g = scale(g, 1 / 2)", "g", "g")
    put("for i in microbatches:\n    h += g", "g", "h")
    put("for i in microbatches:\n    g = all_reduce(g, dp, op=mean)", "g", "g")
    for c in ("== 0", "!= 0", "< 1", ">= 0", "> 0", "== dp", "== dp - 1", "<= 1", "== 3"):
        put(f"if rank(dp) {c}:\n    g = scale(g, 2)", "g", "g")
    put("if rank(dp) == 0:\n    zero(g)", "g", "g")
    put("if rank(dp) == 0:\n    g = scale(g, 1 / dp)\nelse:\n    g = scale(g, 1 / dp)", "g", "g")
    put("if rank(dp) == 0:\n    g += g\nelse:\n    g = scale(g, 2)", "g", "g")
    put("if rank(dp) == 0:\n    g = copy(h)", "gh", "g")
    put("if rank(dp) < 2:\n    h = copy(g)\nelse:\n    h = scale(g, 1)", "g", "h")
    for op in ("sum", "mean"):
        put(f"k = start(all_reduce(g, dp, op={op}))", "g", "k")
    put("k = start(reduce_scatter(g, dp, op=mean))", "g", "k")
    put("g = wait(k)", "k", "g")
    put("h = wait(k)", "k", "h")
    put("parameters = all_reduce(parameters, dp, op=mean)", "g", "")
    put("parameters = broadcast(parameters, dp, root=0)", "g", "")
    put("gradients += g\ng = copy(gradients)", "g", "g")
    put("zero(gradients)\ngradients += g\ng = copy(gradients)", "g", "g")
    return out


STEPS = _steps()
ENDS = ("", "parameters = all_gather(parameters, dp)", "parameters = broadcast(parameters, dp, root=owner)")


def small(statements: int = 3) -> Iterator[str]:
    def bodies(names: frozenset[str], pending: bool, left: int) -> Iterator[tuple[tuple[str, ...], frozenset[str]]]:
        if not pending:
            yield (), names
        if left == 0:
            return
        for text, reads, writes in STEPS:
            if not reads <= names:
                continue
            if "k" in writes and pending:
                continue
            if text.endswith("wait(k)"):
                if not pending:
                    continue
                rest = bodies((names - {"k"}) | writes, False, left - 1)
            else:
                rest = bodies(names | writes, pending or "k" in writes, left - 1)
            for more, after in rest:
                yield (text, *more), after

    for first in PASSES:
        for body, names in bodies(frozenset("g"), False, statements - 1):
            for read in ("g", "h") if "h" in names else ("g",):
                for end in ENDS:
                    lines = ["mesh(dp)", first, *body, f"parameters, optimizer = update(parameters, optimizer, {read})"]
                    yield "\n".join(lines + ([end] if end else [])) + "\n"


def count_small(statements: int = 3) -> int:
    return sum(1 for _ in small(statements))


# ------------------------------------------------------------------ drawn: right programs of a dozen families
UP = "parameters, optimizer = update(parameters, optimizer, G)"


def _mean(r: random.Random, x: str, axes: list[str], out: str = "G") -> list[str]:
    """Some right way to take the mean of `x` over axes."""
    if len(axes) > 1 and r.random() < 0.4:
        joined = ", ".join(r.sample(axes, len(axes)))
        if r.random() < 0.5:
            return [f"{out} = all_reduce({x}, {joined}, op=mean)"]
        return [f"{out} = all_reduce({x}, {joined})", f"{out} = scale({out}, 1 / ({' * '.join(axes)}))"]
    lines = []
    for axis in r.sample(axes, len(axes)):
        kind = r.randrange(6)
        if kind == 0:
            lines.append(f"{out} = all_reduce({x}, {axis}, op=mean)")
        elif kind == 1:
            lines += [f"{out} = all_reduce({x}, {axis})", f"{out} = scale({out}, 1 / {axis})"]
        elif kind == 2:
            lines += [f"{out} = scale({x}, 1 / {axis})", f"{out} = all_reduce({out}, {axis})"]
        elif kind == 3:
            lines += [
                f"{out} = reduce({x}, {axis}, root=0)",
                f"{out} = broadcast({out}, {axis}, root=0)",
                f"{out} = scale({out}, 1 / {axis})",
            ]
        elif kind == 4:
            lines += [f"{out} = reduce_scatter({x}, {axis}, op=mean)", f"{out} = all_gather({out}, {axis})"]
        else:
            lines += [f"h = start(all_reduce({x}, {axis}, op=mean))", f"{out} = wait(h)"]
        x = out
    return lines


def accumulation(r: random.Random) -> list[str]:
    n = r.choice([None, None, 1, 2, 3, 4])
    lines = ["mesh(dp)"] + ([f"count(microbatches={n})"] if n else [])
    each = r.random() < 0.4
    g = "all_reduce(backward(parameters, i), dp, op=mean)" if each else "backward(parameters, i)"
    inside = r.random() < 0.4
    if inside:
        g = f"scale({g}, 1 / microbatches)"
    if r.random() < 0.4:
        lines += ["zero(gradients)", "for i in microbatches:", f"    gradients += {g}", "G = copy(gradients)"]
    elif r.random() < 0.5:
        lines += ["for i in microbatches:", f"    g = {g}", "    G += g"]
    else:
        lines += ["for i in microbatches:", f"    G += {g}"]
    if not each:
        lines += _mean(r, "G", ["dp"])
    if not inside:
        lines.append(f"G = scale(G, 1 / {n if n and r.random() < 0.3 else 'microbatches'})")
    return [*lines, UP]


def zero1(r: random.Random) -> list[str]:
    lines = ["mesh(dp)", 'place(parameters, dp="R")', 'place(optimizer, dp="S")', "G = backward(parameters)"]
    lines += r.choice(
        [
            ["G = reduce_scatter(G, dp)", "G = scale(G, 1 / dp)"],
            ["G = reduce_scatter(G, dp, op=mean)"],
            ["G = reduce(G, dp, root=owner)", "G = scale(G, 1 / dp)"],
            ["G = all_reduce(G, dp, op=mean)"],
            ["G = scale(G, 1 / dp)", "G = part(all_reduce(G, dp), dp)"],
            ["h = start(reduce_scatter(G, dp, op=mean))", "G = wait(h)"],
            ["for u in units:", "    G[u] = all_reduce(G[u], dp, op=mean)"],
        ]
    )
    lines.append(UP)
    lines += r.choice(
        [
            ["parameters = all_gather(parameters, dp)"],
            ["parameters = broadcast(parameters, dp, root=owner)"],
            ["k = start(all_gather(parameters, dp))", "parameters = wait(k)"],
        ]
    )
    return lines


def zero3(r: random.Random) -> list[str]:
    lines = ["mesh(dp)", 'place(parameters, dp="S*")', 'place(optimizer, dp="S")']
    if r.random() < 0.5:
        lines += [
            "for i in microbatches:",
            "    w = all_gather(parameters, dp)",
            "    G += reduce_scatter(backward(w, i), dp)",
            "G = scale(G, 1 / (dp * microbatches))",
        ]
    else:
        lines += ["w = all_gather(parameters, dp)", "G = reduce_scatter(backward(w), dp, op=mean)"]
    return [*lines, UP]


def fsdp(r: random.Random, axes: "list[str] | None" = None) -> list[str]:
    shard = axes[-1] if axes else "dp"
    mesh = f"mesh({', '.join(axes or ['dp'])})"
    lines = [mesh]
    if axes:
        lines.append("splits(" + ", ".join(f'{a}="batch"' for a in axes) + ")")
        rest = ", ".join(f'{a}="R"' for a in axes[:-1]) + ", "
    else:
        rest = ""
    lines += [f'place(parameters, {rest}{shard}="S*")', f'place(optimizer, {rest}{shard}="S")']
    kept = r.random() < 0.3
    w = "w[u]" if kept else "w"
    lines += ["x = data()", "for u in units:", f"    {w} = all_gather(parameters[u], {shard})", f"    x, a[u] = forward({w}, x)"]
    lines += ["dx = loss(x)", "for u in reversed(units):"]
    if not kept:
        lines.append(f"    w = all_gather(parameters[u], {shard})")
    mean = r.random() < 0.5
    op = ", op=mean" if mean else ""
    lines += [f"    gradients[u] = reduce_scatter(backward_weight({w}, a[u], dx), {shard}{op})", f"    dx = backward_input({w}, a[u], dx)"]
    for other in (axes or [])[:-1]:
        lines.append(f"gradients = all_reduce(gradients, {other}, op=mean)")
    if not mean:
        lines.append(f"gradients = scale(gradients, 1 / {shard})")
    return [*lines, UP.replace("G)", "gradients)")]


def hsdp(r: random.Random) -> list[str]:
    if r.random() < 0.4:
        return fsdp(r, ["rep", "shard"])
    lines = [
        "mesh(rep, shard)",
        'splits(rep="batch", shard="batch")',
        'place(parameters, rep="R", shard="S*")',
        'place(optimizer, rep="R", shard="S")',
        "w = all_gather(parameters, shard)",
    ]
    a, b = "G = reduce_scatter(G, shard)", "G = all_reduce(G, rep)"
    lines += ["G = backward(w)", *(r.choice([[a, b], [b, a]])), "G = scale(G, 1 / (rep * shard))"]
    return [*lines, UP]


def two_axes(r: random.Random) -> list[str]:
    other = r.choice(["cp", "tp"])
    return [f"mesh(dp, {other})", "G = backward(parameters)", *_mean(r, "G", ["dp"] + (["cp"] if other == "cp" else [])), UP]


def factors(r: random.Random) -> list[str]:
    n = r.choice([2, 4, "N_node"])
    body = r.choice(
        [
            ["G = reduce_scatter(G, dp_inner)", "G = all_reduce(G, dp_outer)", "G = all_gather(G, dp_inner)"],
            ["G = all_reduce(G, dp_inner)", "G = all_reduce(G, dp_outer)"],
            ["G = all_reduce(G, dp_outer)", "G = all_reduce(G, dp_inner)"],
        ]
    )
    return [
        "mesh(dp)",
        f"inner(dp={n})",
        "G = backward(parameters)",
        *body,
        f"G = scale(G, 1 / {r.choice(['dp', '(dp_inner * dp_outer)'])})",
        UP,
    ]


def norms(r: random.Random) -> list[str]:
    if r.random() < 0.5:
        lines = [
            "mesh(dp)",
            'place(parameters, dp="S*")',
            'place(optimizer, dp="S")',
            "reference(clip=global_norm)",
            "w = all_gather(parameters, dp)",
            "G = reduce_scatter(backward(w), dp, op=mean)",
            "n = square_norm(G)",
            "n = all_reduce(n, dp)",
        ]
    else:
        lines = ["mesh(dp)", "reference(clip=global_norm)", "G = all_reduce(backward(parameters), dp, op=mean)"]
        lines += r.choice(
            [
                ["n = square_norm(G)"],
                ["n = all_reduce(square_norm(G), dp, op=mean)"],
                ["n = square_norm(part(G, dp))", "n = all_reduce(n, dp)"],
                ["n = 0", "for u in units:", "    n += square_norm(G[u])"],
            ]
        )
    return [*lines, "G = scale(G, clip_factor(sqrt(n)))", UP]


def handles(r: random.Random) -> list[str]:
    lines = [
        "mesh(dp)",
        'place(parameters, dp="S*")',
        'place(optimizer, dp="S")',
        "x = data()",
        "next = start(all_gather(parameters[0], dp))",
        "for u in units:",
        "    w = wait(next)",
        "    next = start(all_gather(parameters[u + 1], dp))",
        "    x, a[u] = forward(w, x)",
        "dx = loss(x)",
        "for u in reversed(units):",
        "    w = all_gather(parameters[u], dp)",
        *(
            ["    h = start(reduce_scatter(backward_weight(w, a[u], dx), dp, op=mean))"]
            if r.random() < 0.3
            else ["    g = backward_weight(w, a[u], dx)", "    h = start(reduce_scatter(g, dp, op=mean))"]
        ),
        "    dx = backward_input(w, a[u], dx)",
        "    gradients[u] = wait(h)",
    ]
    return [*lines, UP.replace("G)", "gradients)")]


def branches(r: random.Random) -> list[str]:
    n = r.choice([None, None, 2, 4])
    lines = [f"mesh(dp={n})" if n else "mesh(dp)", "G = backward(parameters)", *_mean(r, "G", ["dp"])]
    lines += r.choice(
        [
            ["if rank(dp) == 0:", "    G = copy(G)", "else:", "    G = scale(G, 1)"],
            ["if rank(dp) == 0:", "    G = scale(G, 2)", "if rank(dp) < 1:", "    G = scale(G, 1 / 2)"],
            ["if rank(dp) < 2:", "    G = scale(G, 2)", "else:", "    G = G + G", "G = scale(G, 1 / 2)"],
            ["if rank(dp) != 0:", "    H = copy(G)", "else:", "    H = G", "G = copy(H)"],
            ["if rank(dp) > 0:", "    if rank(dp) < 1:", "        zero(G)"],
        ]
    )
    return [*lines, UP]


def groups(r: random.Random) -> list[str]:
    lines = ["mesh(dp, tp)", "group(rest, P - P_norm)", "group(router, P_norm, partial=tp)", "G = backward(parameters)"]
    a = ["G.router = all_reduce(G.router, tp)"]
    b = r.choice([_mean(r, "G", ["dp"]), _mean(r, "G.rest", ["dp"], "G.rest") + _mean(r, "G.router", ["dp"], "G.router")])
    return lines + (a + b if r.random() < 0.5 else b + a) + [UP]


def messages(r: random.Random) -> list[str]:
    dp = r.random() < 0.4
    lines = [
        "mesh(dp, pp)" if dp else "mesh(pp)",
        'place(parameters, pp="S")',
        'place(optimizer, pp="S")',
        "for i in microbatches:",
        "    if rank(pp) == 0:",
        "        x = data(i)",
        "    else:",
        "        x = recv(pp, source=-1)",
        "    x, a = forward(parameters, x)",
        "    if rank(pp) < pp - 1:",
        "        send(x, pp, to=1)",
        "    if rank(pp) == pp - 1:",
        "        dx = loss(x)",
        "    else:",
        "        dx = recv(pp, source=1)",
        "    G += backward_weight(parameters, a, dx)",
        "    dx = backward_input(parameters, a, dx)",
        "    if rank(pp) > 0:",
        "        send(dx, pp, to=-1)",
    ]
    if dp:
        lines.append("G = all_reduce(G, dp, op=mean)")
    return [*lines, "G = scale(G, 1 / microbatches)", UP]


FAMILIES = (accumulation, zero1, zero3, fsdp, hsdp, two_axes, factors, norms, handles, branches, groups, messages)

# ------------------------------------------------------------------ edits, on lines with their indents
HEADER = re.compile(r"(mesh|splits|inner|group|place|count|unit|reference|without|program)\(")


def _depth(line: str) -> int:
    return (len(line) - len(line.lstrip())) // 4


def _block(lines: list[str], at: int) -> int:
    """Where the statement that begins at `at` ends, with its else."""
    end = at + 1
    while end < len(lines) and (
        _depth(lines[end]) > _depth(lines[at])
        or (lines[end].strip() == "else:" and _depth(lines[end]) == _depth(lines[at]) and lines[at].strip().startswith("if"))
    ):
        end += 1
    return end


def _body(lines: list[str]) -> list[int]:
    return [i for i, line in enumerate(lines) if not HEADER.match(line) and line.strip() != "else:"]


def _axes(lines: list[str]) -> list[str]:
    names = re.findall(r"(\w+)(?:=\w+)?(?=[,)])", lines[0][5:])
    return names + (["dp_inner", "dp_outer"] if any(line.startswith("inner(") for line in lines) else [])


def drop(r, lines):
    i = r.choice([i for i in _body(lines) if "update(" not in lines[i]] or [0])
    return lines[:i] + lines[_block(lines, i) :] if i else lines


def duplicate(r, lines):
    i = r.choice(_body(lines))
    j = _block(lines, i)
    return lines[:j] + lines[i:j] + lines[j:]


def swap(r, lines):
    i = r.choice(_body(lines))
    j = _block(lines, i)
    if j >= len(lines) or _depth(lines[j]) != _depth(lines[i]) or lines[j].strip() == "else:":
        return lines
    k = _block(lines, j)
    return lines[:i] + lines[j:k] + lines[i:j] + lines[k:]


def option(r, lines):
    i = r.choice([i for i in _body(lines) if re.search(r"all_reduce|reduce_scatter|reduce\(|broadcast", lines[i])] or [-1])
    if i < 0:
        return lines
    line = lines[i]
    if "op=" in line:
        line = re.sub(r"op=\w+", "op=" + r.choice(["sum", "max", "mean"]), line, count=1)
    elif "root=" in line:
        line = re.sub(r"root=\w+", "root=" + r.choice(["0", "owner"]), line, count=1)
    else:
        m = re.search(r"(?:all_reduce|reduce_scatter|reduce)\(", line)
        if m:
            at, deep = m.end(), 1
            while deep:
                deep += {"(": 1, ")": -1}.get(line[at], 0)
                at += 1
            line = line[: at - 1] + ", op=" + r.choice(["mean", "max"]) + line[at - 1 :]
    return [*lines[:i], line, *lines[i + 1 :]]


def index(r, lines):
    hits = [(i, m) for i in _body(lines) for m in re.finditer(r"\[(u|u [+-] 1|0|-1)\]", lines[i])]
    if not hits:
        return lines
    i, m = r.choice(hits)
    inside = any(re.match(r" *for u in", lines[j]) and j < i < _block(lines, j) for j in range(len(lines)))
    new = r.choice(["u", "u + 1", "u - 1", "0", "-1"] if inside else ["0", "-1"])
    return [*lines[:i], lines[i][: m.start()] + f"[{new}]" + lines[i][m.end() :], *lines[i + 1 :]]


def axis(r, lines):
    names = _axes(lines)
    hits = [(i, m) for i in _body(lines) for m in re.finditer(r"(?<=, )(" + "|".join(names) + r")(?=[,)])", lines[i])]
    if not hits or len(names) < 2:
        return degree(r, lines)
    i, m = r.choice(hits)
    return [*lines[:i], lines[i][: m.start()] + r.choice(names) + lines[i][m.end() :], *lines[i + 1 :]]


def condition(r, lines):
    hits = [i for i, line in enumerate(lines) if "if rank(" in line]
    if not hits or (any("recv" in line for line in lines) and r.random() < 0.7):
        i = r.choice(_body(lines))
        if (
            re.match(r" *(for|if|else)|.*(backward|loss|data|forward|all_|reduce|broadcast|start|wait|part|update)", lines[i])
            or ", " in lines[i].split("=")[0]
        ):
            return lines
        a = _axes(lines)[0]
        pad = "    " * _depth(lines[i])
        return [
            *lines[:i],
            f"{pad}if rank({a}) {r.choice(['== 0', '< 2', '>= 0', '!= 1', '< ' + a, '== ' + a])}:",
            "    " + lines[i],
            *lines[i + 1 :],
        ]
    i = r.choice(hits)
    a = re.search(r"rank\((\w+)\)", lines[i]).group(1)
    new = r.choice(["== 0", "!= 0", "< 1", ">= 0", "> 0", "<= 1", f"== {a}", f"< {a} - 1", f"== {a} - 1", "< 0", "== 1"])
    return [*lines[:i], re.sub(r"(rank\(\w+\)).*:", lambda m: f"{m.group(1)} {new}:", lines[i]), *lines[i + 1 :]]


def move(r, lines):
    """The last statement of a loop moves out of it, or the statement after a loop into it."""
    hits = [i for i, line in enumerate(lines) if re.match(r" *for ", line)]
    if not hits:
        return swap(r, lines)
    i = r.choice(hits)
    j = _block(lines, i)
    if r.random() < 0.5 and j - i > 2 and _depth(lines[j - 1]) == _depth(lines[i]) + 1 and not re.search(r"\[[iu]\b|, i\)", lines[j - 1]):
        return [*lines[: j - 1], lines[j - 1][4:], *lines[j:]]
    if j < len(lines) and "update(" not in lines[j] and _block(lines, j) == j + 1:
        return [*lines[:j], "    " + lines[j], *lines[j + 1 :]]
    return lines


def split(r, lines):
    """A loop becomes two over the same parts."""
    hits = [i for i, line in enumerate(lines) if re.match(r" *for ", line) and _block(lines, i) - i > 2]
    if not hits:
        return swap(r, lines)
    i = r.choice(hits)
    starts = [j for j in range(i + 2, _block(lines, i)) if _depth(lines[j]) == _depth(lines[i]) + 1 and lines[j].strip() != "else:"]
    if not starts:
        return lines
    j = r.choice(starts)
    return [*lines[:j], lines[i], *lines[j:]]


def overwrite(r, lines):
    hits = [i for i, line in enumerate(lines) if "+=" in line]
    if not hits:
        return option(r, lines)
    i = r.choice(hits)
    return [*lines[:i], lines[i].replace("+=", "="), *lines[i + 1 :]]


def degree(r, lines):
    hits = [i for i in _body(lines) if "scale(" in lines[i] and " / " in lines[i] and "clip" not in lines[i]]
    a = _axes(lines)[0]
    new = r.choice(
        [
            f"1 / {a}",
            f"1 / ({a} * microbatches)",
            "1 / microbatches",
            f"({a} - 1) / {a}",
            "1 / 2",
            f"1 - ({a} - 1) / {a}",
            f"1 / {a} ** 2",
            "1",
        ]
    )
    if not hits:
        j = next(i for i, line in enumerate(lines) if "update(" in line)
        name = re.search(r"(\w+)\)", lines[j]).group(1)
        pad = "    " * _depth(lines[j])
        return [*lines[:j], f"{pad}{name} = scale({name}, {new})", *lines[j:]]
    i = r.choice(hits)
    return [*lines[:i], re.sub(r", 1 / (\w+|\([^)]*\))\)", f", {new})", lines[i], count=1), *lines[i + 1 :]]


def walk(r, lines):
    hits = [i for i, line in enumerate(lines) if re.match(r" *for u in", line)]
    if not hits:
        return degree(r, lines)
    i = r.choice(hits)
    new = r.choice(["units", "units[1:]", "reversed(units)", "reversed(units[1:])"])
    return [*lines[:i], re.sub(r" in .*:", f" in {new}:", lines[i]), *lines[i + 1 :]]


def benign(r, lines):
    """Something that keeps the meaning."""
    j = next((i for i, line in enumerate(lines) if "update(" in line), None)
    if j is None or _depth(lines[j]):
        return lines
    name = re.search(r"optimizer, (\w+)\)", lines[j]).group(1)
    a = _axes(lines)[0]
    more = r.choice(
        [
            [f"{name} = copy({name})"],
            [f"T = scale({name}, 3)"],
            [f"{name} = scale({name}, 2)", f"{name} = scale({name}, 1 / 2)"],
            [f"if rank({a}) == {a}:", f"    zero({name})"],
            [f"if rank({a}) >= 0:", f"    {name} = copy({name})"],
            [f"{name} = scale({name}, {a} / {a})"],
            ["for u in units:", f"    {name}[u] = copy({name}[u])"],
            [f"T = copy({name})", f"zero({name})", f"{name} += T"],
        ]
    )
    return lines[:j] + more + lines[j:]


EDITS = (drop, duplicate, swap, option, index, axis, condition, move, split, overwrite, degree, walk)


def _count(lines: list[str]) -> int:
    return sum(1 for line in lines if not HEADER.match(line) and not re.match(r" *(for |if |else:)", line))


def drawn(seed: int) -> str:
    r = random.Random(seed)
    while True:
        lines = r.choice(FAMILIES)(r)
        if _count(lines) > 12:
            continue
        for _ in range(r.choice([0, 0, 1, 1, 1, 2, 2, 3])):
            edited = (benign if r.random() < 0.4 else r.choice(EDITS))(r, lines)
            if _count(edited) <= 12 and "\n".join(edited).strip():
                lines = edited
        return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(
        "templates:",
        len(PASSES),
        "passes,",
        len(STEPS),
        "steps,",
        len(ENDS),
        "ends; programs:",
        count_small(),
        "(two statements:",
        count_small(2),
        ")",
    )
    for s in range(3):
        print(drawn(s))
