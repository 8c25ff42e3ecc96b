"""Lemmas of blocks: what is proved with them is proved without, what is wrong is refuted, and what they hide is proved without them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import pytest

from placeproof.models import load
from placeproof.programs import Resolved, read
from placeproof.semantics.encode import NoMeaningError
from placeproof.semantics.judge.verdict import Judged, judge_tensors
from placeproof.semantics.linked import Linked, link
from placeproof.semantics.resolve import resolve
from placeproof.semantics.tensors import EncodedBlock, encode_block
from placeproof.semantics.tensors.lemmas import projections
from placeproof.strategies import parse_strategy

MODELS = ("deepseek-v3", "mixtral-8x7b", "llama3-8b", "gpt3-125m", "korthikanti-22b", "bloom-176b")
#: Two projections, whose product comes home from the axis that splits it, and a function that is known.
SMALL = """program("small")
mesh(tp)
tensor(x, tokens, hidden)
tensor(w, hidden, ffn, tp=ffn)
tensor(v, hidden, ffn, tp=ffn)
tensor(dy, tokens)
a = contract(x, w, over=hidden)
b = contract(x, v, over=hidden)
y = all_reduce(total(a * elementwise(exp, b), over=ffn), tp)
returns(y)
da = dy * elementwise(exp, b)
db = da * a
returns(contract(x, da, over=tokens), gradient_of=y, by=w, at=dy)
returns(contract(x, db, over=tokens), gradient_of=y, by=v, at=dy)
returns(all_reduce(contract(da, w, over=ffn) + contract(db, v, over=ffn), tp), gradient_of=y, by=x, at=dy)
"""


def blocks() -> Iterator[tuple[str, str]]:
    """Blocks of models, each once."""
    seen = set()
    for model in MODELS:
        for block in (b for s in load(model).segments for b in s.blocks):
            if block.program not in seen and not seen.add(block.program):
                yield model, block.name


@lru_cache(maxsize=8)
def linked(model: str) -> Linked:
    """A model on a mesh."""
    return link(load(model), parse_strategy("tp * sp * cp"))


def pair(model: str, name: str) -> tuple[Resolved, Resolved]:
    """A block on the mesh, and the model's own."""
    own = {b.name: b for s in load(model).segments for b in s.blocks}
    return resolve(linked(model).blocks[name].program), resolve(own[name].program)


@lru_cache(maxsize=64)
def encoded(model: str, name: str) -> EncodedBlock:
    """With lemmas. Raises NoMeaningError where nothing follows from them."""
    return encode_block(*pair(model, name), projections(*pair(model, name)))


@pytest.mark.parametrize(("model", "name"), list(blocks()))
def test_lemmas_hide_nothing_that_a_block_of_a_model_needs(model: str, name: str) -> None:
    """Otherwise each of its proofs would be looked for twice, and its terms grow with its depth again."""
    assert all(len(o.claim.left.key) < 25_000 for o in encoded(model, name).obligations)


def test_a_lemma_is_an_obligation_of_its_own() -> None:
    found = encoded("deepseek-v3", "attention_latent").obligations
    names = ["cq", "ckv", "q", "qr", "k", "v", "kr"]
    assert [o.name for o in found[:7]] == [f"`{name}` on every device is what one device computes" for name in names]
    assert all(o.place is not None and f"value.{n}(" not in o.claim.left.key for n, o in zip(names, found, strict=False))
    assert any("value.kr(" in o.claim.left.key for o in found[7:])


def test_what_is_read_behind_a_lemma_is_read() -> None:
    plain, short = encode_block(*pair("llama3-8b", "attention_flash")), encoded("llama3-8b", "attention_flash")
    assert [r.reads for r in short.results] == [r.reads for r in plain.results]
    assert {"n", "wq", "same"} <= short.results[0].reads


def judged(program: str, own: str) -> Judged:
    """A block against what one device runs."""
    return judge_tensors(resolve(read(program)), None, resolve(read(own)), lemmas=True)


def lemmas(found: Judged) -> list[str]:
    """The names of lemmas among the obligations."""
    return [s.obligation.name[1] for s in found.settled if s.obligation.name[:3] in ("`a`", "`b`")]


def test_a_block_is_proved_with_its_lemmas() -> None:
    found = judged(SMALL, SMALL)
    assert found.word == "proved"
    assert lemmas(found) == ["a", "b"]


WRONG = {
    "twice a projection": ("a = contract(x, w, over=hidden)", "a = 2 * contract(x, w, over=hidden)"),
    "another weight": ("b = contract(x, v, over=hidden)", "b = contract(x, w, over=hidden)"),
    "projections that change places": ("a * elementwise(exp, b)", "b * elementwise(exp, a)"),
    "no sum over devices": ("y = all_reduce(total(a * elementwise(exp, b), over=ffn), tp)", "y = total(a * elementwise(exp, b), over=ffn)"),
    "a gradient through one of two": ("contract(da, w, over=ffn) + contract(db, v, over=ffn)", "contract(da, w, over=ffn)"),
    "a gradient by another weight": ("contract(da, w, over=ffn)", "contract(da, v, over=ffn)"),
    "a gradient of another projection": ("db = da * a", "db = da * b"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_refuted(what: str) -> None:
    old, new = WRONG[what]
    assert SMALL.count(old) == 1
    wrong = SMALL.replace(old, new)
    assert judged(wrong, wrong).word == "refuted"
    assert judged(wrong, SMALL).word != "proved"
    assert (judged(SMALL, wrong).word == "proved") is (what == "no sum over devices")  # one device has none to sum over


#: Where every device has a part of the sum that one device has under the same name.
PARTIAL = """program("partial")
mesh(tp)
tensor(x, tokens, hidden, tp=hidden)
tensor(w, hidden, ffn, tp=hidden)
tensor(dy, tokens, ffn)
a = contract(x, w, over=hidden)
y = all_reduce(a, tp)
returns(y)
returns(contract(x, dy, over=tokens), gradient_of=y, by=w, at=dy)
returns(contract(dy, w, over=ffn), gradient_of=y, by=x, at=dy)
"""
HIDDEN = {
    "backward computes again what a lemma hides": (SMALL.replace("db = da * a", "db = da * contract(x, w, over=hidden)"), SMALL),
    "a partial sum": (PARTIAL, PARTIAL.replace("y = all_reduce(a, tp)", "y = copy(a)")),
    "one device calls each projection as another is called": (SMALL, re.sub(r"\b[ab]\b", lambda m: "ab"[m[0] == "a"], SMALL)),
}


@pytest.mark.parametrize("what", HIDDEN)
def test_what_lemmas_hide_is_proved_without_them(what: str) -> None:
    program, own = HIDDEN[what]
    both = resolve(read(program)), resolve(read(own))
    assert projections(*both)
    with pytest.raises(NoMeaningError, match="nothing follows"):
        encode_block(*both, projections(*both))
    found = judged(program, own)
    assert found.word == "proved"
    assert not lemmas(found)
