"""What eager PyTorch keeps of whole models, and the most that lies there in backward, against what is derived: to the byte.

The oracle (``helpers/eager_models.py``) is PyTorch itself, which runs modules as they are usually written; every storage is counted after
every operation. It watches as a mode of dispatch, under which PyTorch adds gradients anew and not in place: so that difference is left out
here, and has a test of its own.
"""

from __future__ import annotations

import importlib.resources
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from random import Random

import pytest

from placeproof.cost.model.derivation import derive_model
from placeproof.implementations import BlockImplementation, find
from placeproof.models import load
from placeproof.strategies import parse_strategy
from tests.helpers.samples import sample

torch = pytest.importorskip("torch")

from eager_models import Sizes, Step, step  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


def drawn(seed: int) -> Sizes:
    """A random model; the same seed gives the same."""
    draw = Random(seed)
    gpt, fused = draw.random() < 0.5, draw.random() < 0.5
    return Sizes(
        gpt=gpt,
        fused=fused,
        tied=draw.random() < 0.3,
        dropout=0.1 if gpt and not fused and draw.random() < 0.5 else 0.0,
        wide=draw.random() < 0.5,
        layers=draw.randint(1, 3),
        batch=draw.choice([1, 1, 2, 3]),
        tokens=draw.choice([2, 8, 24, 48, 64]),
        kv_heads=draw.randint(1, 4),
        group=1 if gpt else draw.randint(1, 3),
        width=2 * draw.randint(1, 8),
        ffn=draw.choice([3, 16, 80, 200, 400]),
        vocab=draw.choice([2, 8, 50, 300]),
    )


CASES = [(seed, micro) for micro in (1, 2) for seed in range(40)]


def kinds(case: tuple[int, int]) -> list[tuple[str, object]]:
    """What a case has that may break by itself."""
    n = drawn(case[0])
    kind = "gpt" if n.gpt else "llama"
    return [
        ("micro", case[1]),
        (kind, n.fused),
        (kind, n.wide),
        ("tied", n.tied),
        ("dropout", n.dropout > 0),
        ("alone", n.batch == 1),
        ("shared", n.group > 1),
    ]


@cache
def measured(n: Sizes, micro: int = 1) -> Step:
    return step(n, micro=micro)


def as_watched(run_by: BlockImplementation) -> BlockImplementation:
    """As it runs under the oracle's watch."""
    return replace(run_by, differences=tuple(one for one in run_by.differences if one.name != "in_place"))


def derived(n: Sizes, run_by: BlockImplementation, micro: int = 1) -> tuple[int, int]:
    """Bytes that are kept, and the most that lies there; without ids, targets and positions."""
    sizes = {"h": n.hidden, "f": n.ffn, "V": n.vocab, "a": n.kv_heads * n.group, "d": n.width, "s": n.tokens, "L": n.layers}
    sizes |= {"n_pos": n.tokens} if n.gpt else {"a_kv": n.kv_heads}
    options = {"attention": "flash" if n.fused else "core", "tied": "yes" if n.tied else "no"}
    options |= {"dropout": "yes" if n.dropout else "no"} if n.gpt else {}
    width = 4 if n.wide else 2
    values = {k: Fraction(v) for k, v in {**sizes, "b": n.batch, "m": micro, "b_a": width}.items()}
    model = load("gpt" if n.gpt else "llama", **options).resized(sizes)
    d = derive_model(model, parse_strategy("ddp(1)" + " * accumulate" * (micro > 1)), run_by=run_by.knowing(values))
    (cost,) = d.costs
    integers = 16 * n.batch * n.tokens + (8 * n.tokens if n.gpt else 0)
    kept, most = (int(d.value(cost.activations + more, values) or 0) - integers for more in (0, cost.working))
    return kept, most


@pytest.mark.parametrize(("seed", "micro"), sample(CASES, kinds))
def test_what_is_kept_and_the_most_of_backward(seed: int, micro: int) -> None:
    n = drawn(seed)
    found = measured(n, micro)
    assert derived(n, as_watched(find("pytorch-2.13")), micro) == (found.kept, found.most)
    assert found.forward <= found.most


LLAMA = Sizes(layers=1, fused=False, wide=False, ffn=64)
SOFTMAX = 'by = { x = { needs = ["result"], makes = ["dx = x"] } }\n\n[operation.mask'
LONG = Sizes(layers=1, fused=False, tokens=48, ffn=3, vocab=2)
NORM = Sizes(layers=1, tokens=8, ffn=3, vocab=2, width=16)


@pytest.mark.parametrize(
    ("n", "old", "new"),
    [
        (LLAMA, 'by = { x = { needs = ["x"], makes = ["dx = x"] } }\n\n[operation.gelu]', "by = { x = {} }\n\n[operation.gelu]"),
        (LLAMA, 'gives = "x: 4"', 'gives = "x: 2"'),
        (LLAMA, 'p = to(softmax(float(p)), q)', "p = softmax(p)"),
        (LONG, SOFTMAX, SOFTMAX.replace(', makes = ["dx = x"]', "")),
        (NORM, '"power = x", "scaled = x", "dx = x"', '"power = x", "scaled = x", "free power", "dx = x"'),
    ],
)  # fmt: skip
def test_a_file_that_says_otherwise_is_noticed(n: Sizes, old: str, new: str, tmp_path: Path) -> None:
    """What operations save, how wide results are, how modules are written, and what is made on the way in backward."""
    found = measured(n)
    assert derived(n, as_watched(find("pytorch-2.13"))) == (found.kept, found.most)
    text = (importlib.resources.files("placeproof.implementations") / "pytorch-2.13.toml").read_text(encoding="utf-8")
    assert text.count(old) == 1
    file = tmp_path / "other.toml"
    file.write_text(text.replace(old, new).replace('"pytorch-2.13"', '"other"'), encoding="utf-8")
    assert derived(n, as_watched(find(str(file)))) != (found.kept, found.most)


def test_gradients_are_added_in_place() -> None:
    """Without a mode of dispatch the sum of two gradients lies where the one did that came first."""
    x, a, b = (torch.randn(8, 8, requires_grad=True) for _ in range(3))
    where: dict[str, int] = {}
    stream = x * 1.0
    one, other = stream @ a, stream @ b
    stream.grad_fn.register_prehook(lambda gradients: where.update(sum=gradients[0].data_ptr()))
    one.grad_fn.register_hook(lambda made, _: where.update(one=made[0].data_ptr()))
    other.grad_fn.register_hook(lambda made, _: where.update(other=made[0].data_ptr()))
    (one * other).sum().backward()
    assert where["sum"] == where["other"] != where["one"]


def test_a_gradient_that_is_added_in_place_takes_no_room() -> None:
    """A narrow layer has most where the gradients of queries, keys and values are added up."""
    n = replace(NORM, width=2, kv_heads=4, group=1, gpt=True)
    run_by = find("pytorch-2.13")
    (kept, most), (also, more) = derived(n, run_by), derived(n, as_watched(run_by))
    assert kept == also
    assert most <= more
