"""Every refusal of the readers, word for word: `tests/data/refusals.txt` holds what is printed for each bad input.

A message, its place and its help are what a user meets first. After a change of a text, `python tests/text/test_refusals.py` writes the
file anew; read the difference.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from placeproof.core.diagnostics import InputError
from placeproof.programs import read
from placeproof.report.diagnostics import render
from placeproof.semantics.judge.ranges import read_ranges
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.lower import lower
from placeproof.strategies import parse_strategy
from placeproof.strategies.files import read_file

GOLDEN = Path(__file__).parents[1] / "data" / "refusals.txt"
MARK = "=== "

#: Step programs that are refused when they are read; all start with a mesh unless they say one.
HEADERS = (
    "splits(tq=batch)",
    "inner(tq=2)",
    "mesh(**axes)",
    "splits(dp)",
    "program(name)",
    "program()",
    "program('a', 'b')",
    "mesh(2)",
    "mesh(tp, tp)",
    "mesh(tp=2, tp=3)",
    "mesh(tp=0)",
    "mesh(tp=True)",
    "splits(dp=words)",
    "inner(2)",
    "inner(dp=0)",
    "group(norm, P_norm)\ngroup(norm, P)",
    "group(norm)",
    "group('norm', P)",
    "group(norm, P, expert=tp)",
    "group(norm, P, zzz=tp)",
    "group(norm, P, experts=1)",
    "place(parameter, dp=R)",
    "place(2, dp=R)",
    "place(a.b.c, dp=R)",
    "place(parameters, dp=R)\nplace(parameters, dp=S)",
    "place(parameters, dp=Q)",
    "place(parameters.nothing, dp=R)",
    "count(3)",
    "count(micro=3)",
    "count(microbatches=0)",
    "unit()",
    "unit(0)",
    "unit(1, 2)",
    "approximate(quantised)",
    "not_compared(buffers)",
    "not_compared(buffers=1)",
    "reference(loss)",
    "reference(los=mean)",
    "reference(qqqqqq=mean)",
    "reference(clip=globl_norm)",
    "reference(clip=3)",
    "splits(dp=3)",
    "place(parameters, dp=3)",
    "tensor(w, a, tp=1)",
    "mesh(dp, world)",
    "without('real-arithmetics')",
    "without('xyz')",
    "without(equal)",
    "without('equal-initial-states', more=1)",
    "tensor()",
    "tensor('w', a)",
    "tensor(w, a, tp=b)",
    "tensor(w, a, a)",
    "tensor(w, a)\ntensor(w, b)",
    "tensor(w, a, picks=1)",
)
BODIES = (
    "for u, v in units:\n    x = data()",
    "for u in unit:\n    x = data()",
    "for u in [1]:\n    x = data()",
    "for u in units:\n    x = data()\nelse:\n    y = data()",
    "for m in microbatches(flight=2):\n    x = data()",
    "if x == 1:\n    x = data()",
    "if 1 < rank(dp) < 3:\n    x = data()",
    "if rank(dp) == [1]:\n    x = data()",
    "if rank(dq) == 0:\n    x = data()",
    "x = data()[0].y.z",
    "x = parameters[u * 2]",
    "x = parameters[True]",
    "x[1:2] = data()",
    "x.a.b = data()",
    "x = True",
    "x = -parameters",
    "x = -'a'",
    "x = +1",
    "x = 1 % 2",
    "x = [data()] + 1",
    "x = all_reduce(gradients, 'dp')",
    "x = all_reduce(lambda: 1, dp)",
    "x = all_reduce(gradients, dp, op=1.5)",
    "x = all_reduce(gradients, dp, op=[1])",
    "x = all_reduce(gradients, dp, po=sum)",
    "x = all_reduce(gradients, dp, zzzzz=sum)",
    "x = all_reduce(gradients, dp, op=total)",
    "x = all_reduce(gradients)",
    "x = all_reduce()",
    "x = scale(gradients)",
    "x = scale(gradients, 1, 2)",
    "x = update(parameters)",
    "x = sqrt(1, dp)",
    "x = backward(parameters, 1, 2, 3, 4)",
    "x = random(dp, draw=first)",
    "x = random(dp, draw=-1)",
    "for u in units:\n    x = random(dp)",
    "x = send(1, dp, to=next)",
    "x = data()\nsend(x, dp, to=next)",
    "x = data()\nsend(x, dp, tp, to=1)",
    "x = recv(dp, source=first)",
    "x, y = data()",
    "x, y += forward(parameters, data())",
    "x, y = 1",
    "x = 1 + free(gradients)",
    "for parameters in units:\n    x = data()",
    "for dp in units:\n    x = data()",
    "units = data()",
    "x = gradients.norm",
    "x = nothing.norm",
    "x = data(",
    "x == 1",
    "def f():\n    pass",
    "x = data(\n\n",
    "\tx = data()",
    "x = 1e",
    "x = '\x00'",
    "del x",
    "x: int = 1",
    "x = y = data()",
    "x -= data()",
    "gradients *= 2",
    "x = data() if rank(dp) == 0 else data()",
    "print(x)",
    "free(x)",
    "zero(x)",
    "x = copy(parameters)\nfree(x)\nfree(x)",
    "for u in units:\n    x = data()\ny = x[u]",
    "if rank(dp) == 0:\n    x = data()\ny = copy(x)",
    "if rank(dp) == 0:\n    y = data()\nelse:\n    x = data()\ny = copy(x)",
    "x = start(data())",
    "x = data()\ny = wait(x)",
    "for k in layers:\n    for k in blocks[k]:\n        x = data()",
    "for k in layers:\n    for j in blocks[i]:\n        x = data()",
    "for k in layers:\n    for j in blocks:\n        x = data()",
    "x = quantize(parameters, 2)",
    "x = quantize(parameters, m)",
    "x = start(all_reduce(gradients, dp))\nfree(x)",
    "parameters, optimizer = update(parameters, optimizer, gradients)\nmesh(tp)",
)

STRATEGIES = (
    "",
    "zero3 zero1",
    "zero3 *",
    "* zero3",
    "zero9",
    "qqqqqqqq",
    "zero3(",
    "zero3(8",
    "zero3(8,",
    "zero3(dp=",
    "zero3(dp=8, 4)",
    "zero3(dp=8, dp=4)",
    "zero3(*)",
    "zero3(dp=*)",
    "zero3(8; 4)",
    "zero3 ? zero1",
    "zero3(8 4)",
    "zero3(0)",
    "zero3(-1)",
    "zero3(1.5)",
    "zero3(8, 8, 8, 8)",
    "zero3(pd=8)",
    "zero3(degree=8)",
    "zero3(prefetch=3)",
    "fsdp(reshard_after_forward=maybe)",
    "zero3(dp=tp) * tp",
    "zero3(dp=2a)",
    "hsdp(4, 4, 4)",
    "pp(schedule=2f2b)",
    "1f1b",
    "ddp(prefetch=true)",
    "missing.toml",
    "'missing file.toml'",
    "zero3\nzero1",
    "x" * 2_000,
    "zero1(8) * zero3(4)",
    "zero1 * zero3",
    "tp(2) * tp(4)",
    "tp * tp(tp=tp2)",
    "pp * pp(pp=pp2)",
    "sp",
    "zero_r",
    "fsdp(8, reshard_after_forward=3)",
    "fsdp(reshard_after_forward=2, prefetch=true)",
)

#: Strategy files; each is the whole text.
GOOD = 'name = "mine"\n[axes.dp]\n[placement.dp]\nparameters = "R"\noptimizer = "R"\ngradients = "R"\n'
FILES = (
    "",
    "name = ",
    "name = 3\n",
    'name = "a b"\n',
    GOOD.replace("[axes.dp]", "aliases = 3\n[axes.dp]"),
    GOOD.replace("[axes.dp]", "aliases = [3]\n[axes.dp]"),
    GOOD.replace("[axes.dp]", "axes = 3"),
    GOOD.replace("[axes.dp]", "colour = 3\n[axes.dp]"),
    GOOD.replace("[axes.dp]", "[axes]\ndp = 3"),
    GOOD.replace("[axes.dp]", "[axes.dp]\nsplit = 'batch'"),
    GOOD.replace("[axes.dp]", "[axes.dp]\nsplits = 'words'"),
    GOOD.replace("[axes.dp]", "[axes.dp]\nsplits = 3"),
    GOOD.replace("[axes.dp]", "[axes.dp]\ndegree = 0"),
    GOOD.replace("[axes.dp]", "[axes.dp]\ninner = true"),
    GOOD.replace("[axes.dp]", "[axes.'d p']\nsplits = 'batch'\n[axes.dp]"),
    GOOD.replace("[axes.dp]", "[axes.units]\nsplits = 'batch'\n[axes.dp]"),
    GOOD.replace("[axes.dp]", "[axes.world]\n[axes.dp]"),
    GOOD.replace("[placement.dp]", "[placement.tp]"),
    GOOD.replace("parameters =", "parameter ="),
    GOOD.replace('parameters = "R"', 'parameters = "Q"'),
    GOOD.replace('parameters = "R"', "parameters = 3"),
    GOOD.replace('parameters = "R"', 'parameters = { norms = "R" }'),
    GOOD.replace('parameters = "R"', 'parameters = { norm = "Q" }'),
    GOOD.replace('parameters = "R"', 'parameters = { norm = "R", matrix = "S" }'),
    GOOD + "[schedule]\nspeed = 3\n",
    GOOD + "[schedule]\nprefetch = 1.5\n",
    GOOD + "[options.x]\nsets = 'speed'\n",
    GOOD + "[options.x]\nsets = 3\n",
    GOOD + "[options.x]\nsets = 'reshard'\nkinds = ['bool']\ninner_of = 'tp'\n",
    GOOD + "[options.x]\nsets = 'prefetch'\nkinds = ['bool']\ndefault = 3\n",
    GOOD + "[options.x]\nsets = 'prefetch'\nkind = ['bool']\n",
    GOOD + "[options]\nx = 3\n",
    "positional = ['dq']\n" + GOOD,
    GOOD + "[needs]\ndp = 'activation'\n",
    GOOD + "[needs]\ntp = 'parameters'\n",
    GOOD + "[needs]\ndp = 3\n",
)

RANGES = (
    ("zero3 * tp", ["N"]),
    ("zero3 * tp", ["N_dp > 1.5"]),
    ("zero3 * tp", ["N_d >= 2"]),
    ("zero3 * tp", ["qqqqqqq >= 2"]),
    ("zero3(8) * tp(2)", ["N_dp >= 2"]),
    ("zero3 * tp", ["N_dp >= 4", "N_dp <= 3"]),
    ("zero3 * tp", ["N_dp < 1", "N_tp"]),
)

_UPDATE = "parameters, optimizer = update(parameters, optimizer, gradients)\n"
#: Programs that are read, and that no proof speaks of: each is unknown, never proved.
MEANINGLESS = (
    "gradients = all_reduce(backward(parameters), dp) / 0\n" + _UPDATE,
    "gradients = all_reduce(backward(parameters), dp) ** (1 / 2)\n" + _UPDATE,
    "gradients = all_reduce(backward(parameters), dp) + tokens()\n" + _UPDATE,
    "gradients = all_to_all(backward(parameters), dp)\n" + _UPDATE,
    "gradients = scale(tokens(), 2)\n" + _UPDATE,
    "gradients = all_reduce(tokens(), dp)\n" + _UPDATE,
    "gradients = tied_reduce(parameters, dp)\n" + _UPDATE,
    "parameters, optimizer = update(gradients, optimizer, parameters)\n",
    "parameters, optimizer = update(parameters, parameters, gradients)\n",
    "parameters, optimizer = update(1, 2, 3)\n",
    "x = elementwise(gelu, gradients)\ngradients = x\n" + _UPDATE,
    "x = square_norm(tokens())\n" + _UPDATE,
    "x = found_inf(tokens())\n" + _UPDATE,
    "x = master(parameters)\n" + _UPDATE,
    "x = stale(gradients, 1)\n" + _UPDATE,
    "x = stale(parameters, tokens())\n" + _UPDATE,
    "x = loss(parameters)\n" + _UPDATE,
    "x = dropout(parameters, random())\n" + _UPDATE,
    "x = dropout(data(), parameters)\n" + _UPDATE,
    "x = forward(data(), parameters)\n" + _UPDATE,
    "x = forward(1, 2)\n" + _UPDATE,
    "x = backward(parameters, 1, 2)\n" + _UPDATE,
    "x = tensor_norms(1, 2, 3)\n" + _UPDATE,
    "x = quantize(tokens(), b_qw)\n" + _UPDATE,
    "x = broadcast(gradients, dp, root=1)\n" + _UPDATE,
    "x = sqrt(gradients)\n" + _UPDATE,
    "x = clip_factor(gradients)\n" + _UPDATE,
    "x = statistics(data())\n" + _UPDATE,
    "x = output(parameters)\n" + _UPDATE,
    "for u in units:\n    x = data(1)\n    k = square_norm(parameters[u])\ngradients = scale(backward(parameters), x)\n" + _UPDATE,
    "x = all_gather(data(), dp)\n" + _UPDATE.replace("gradients)", "backward(parameters))"),
)


def _refusal(kind: str, text: str, folder: Path) -> str:
    try:
        match kind:
            case "program":
                read(text, source="mine.step")
            case "strategy":
                lower(parse_strategy(text))
            case "file":
                path = folder / "mine.toml"
                path.write_text(text, encoding="utf-8")
                lower(read_file(path)())
            case "range":
                subject, *ranges = text.split(" for ")
                read_ranges(ranges, lower(parse_strategy(subject)))
            case "meaning":
                judged = judge(read("mesh(dp)\n" + text, source="mine.step"))
                return f"{judged.word}: {judged.why}"
    except InputError as error:
        return render(error.diagnostics).replace(f"{folder}/", "")
    return "accepted"


def cases() -> list[tuple[str, str]]:
    found = [("program", text if text.startswith("mesh") else f"mesh(dp)\n{text}") for text in HEADERS]
    found = [(kind, text if text.count("mesh(") > 1 or "data()" in text else f"{text}\nx = data()\n") for kind, text in found]
    found += [("program", f"mesh(dp)\n{text}\n") for text in BODIES]
    found += [("strategy", text) for text in STRATEGIES]
    found += [("file", text) for text in FILES]
    found += [("range", " for ".join((subject, *ranges))) for subject, ranges in RANGES]
    found += [("meaning", text) for text in MEANINGLESS]
    return found


def _written() -> str:
    parts = []
    with TemporaryDirectory() as folder:
        for number, (kind, text) in enumerate(cases()):
            shown = text.replace("\0", "\\0") if len(text) < 1_000 else text[:20] + "..."
            parts.append(f"{MARK}{number} {kind}\n{shown.rstrip()}\n---\n{_refusal(kind, text, Path(folder)).rstrip()}\n")
    return "\n".join(parts)


def _golden() -> list[str]:
    return [part.partition("\n---\n")[2].rstrip() for part in GOLDEN.read_text(encoding="utf-8").split(MARK)[1:]]


@pytest.mark.parametrize("number", range(len(cases())))
def test_a_bad_input_is_refused_in_these_words(number: int, tmp_path: Path) -> None:
    kind, text = cases()[number]
    said = _refusal(kind, text, tmp_path)
    assert said.rstrip() == _golden()[number]
    assert said != "accepted"


if __name__ == "__main__":
    GOLDEN.write_text(_written(), encoding="utf-8")
