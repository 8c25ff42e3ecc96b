"""The certificate of a proof: what has to hold, and how sums were brought to a normal form, for :mod:`placeproof.verify`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from placeproof.programs import Resolved, read, render
from placeproof.prove.claims import Equal, Given, Order
from placeproof.prove.terms import Index, Sym, Var, substitute
from placeproof.prove.terms.recording import Record, recording
from placeproof.semantics.encode import NoMeaningError, Obligation, Options, encode
from placeproof.semantics.judge.ranges import Range, read_ranges
from placeproof.semantics.resolve import resolve
from placeproof.semantics.tensors import encode_block
from placeproof.verify import RejectedError
from placeproof.verify.check import SCHEMA, check_claim, check_step, inverses
from placeproof.verify.read import Reader
from placeproof.verify.terms import Terms

#: The terms that are looked at for the certificate of a block: a minute's worth.
MOST = 10_000


def certificate(program: Resolved, options: Options, reference: Resolved | None = None) -> dict[str, Any]:
    """The certificate of a block or a step as JSON data. ``reference``: what one device runs of a block, if it is another text.

    Claims that the steps do not show are in ``unshown``, with the reason. Raises NoMeaningError where the encoding cannot speak of it, or
    where too much would have to be written.
    """
    text = render(program)
    program = _read(text)  # the lines that claims name are those of this text
    if program.tensors:
        options = Options(without=frozenset(program.without))
    one_device = None if reference is None else _read(render(reference))
    with recording() as record:
        obligations = (encode_block(program, one_device) if program.tensors else encode(program, options)).obligations
        claims = [_claim(record, o) for o in obligations]
        point = _point([*record.sorts.values()], [g for o in obligations for g in o.claim.given])
    if program.tensors and len(record.lines) > MOST:
        raise NoMeaningError(f"its proof has {len(record.lines)} terms, and the certificate of a block at most {MOST}", None)
    document = {
        "schema": SCHEMA,
        "program": text,
        "without": sorted(options.without),
        "ranges": [str(r) for r in options.ranges],
        "sorts": record.sorts,
        "point": point,
        "terms": record.lines,
        "steps": record.steps,
        "claims": claims,
    }
    return _checked(json.loads(json.dumps(document)))


def again(document: dict[str, Any]) -> bool:
    """Whether a certificate is the one that this version of placeproof writes for the program that it names.

    Raises InputError if the program cannot be read.
    """
    program = _read(document["program"])
    ranges: tuple[Range, ...] = read_ranges(document["ranges"], program)
    return certificate(program, Options(without=frozenset(document["without"]), ranges=ranges)) == document


def _read(text: str) -> Resolved:
    return resolve(read(text, source="the certificate's program"))


def _claim(record: Record, obligation: Obligation) -> dict[str, Any]:
    """An obligation as data. What its hypotheses give indices is put in, so that the steps of that are recorded, too."""
    claim = obligation.claim
    meant: dict[str, Index] = {g.left.name: g.right for g in claim.given if isinstance(g, Equal) and isinstance(g.left, Var)}
    for side in (claim.left, claim.right, *claim.divisors):
        substitute(side, meant)
    return {
        "name": claim.name,
        "condition": obligation.condition,
        "line": obligation.place.line if obligation.place else None,
        "given": [_given(record, g) for g in claim.given],
        "left": record.said(claim.left),
        "right": record.said(claim.right),
        "divisors": [record.said(d) for d in claim.divisors],
    }


def _given(record: Record, given: Given) -> tuple[Any, ...]:
    if isinstance(given, Equal):
        return ("equal", given.name, record.index(given.left), record.index(given.right))
    return ("order", given.name, record.said(given.left), given.relation, record.said(given.right))


def _point(sizes: Iterable[str | int], given: Iterable[Given]) -> dict[str, str]:
    """Values of symbols at which the hypotheses hold, as far as they bound symbols by numbers."""
    point = {n: 1 for n in sizes if isinstance(n, str)}
    for order in (g for g in given if isinstance(g, Order)):
        alone, bound = order.left.alone, order.right.number
        if alone is None or bound is None or len(alone[0].factors) != 1 or not isinstance(symbol := alone[0].factors[0][0], Sym):
            continue
        least = math.floor(bound) + 1 if order.relation == ">" else math.ceil(bound)
        point[symbol.name] = max(point.get(symbol.name, 1), least if order.relation in (">", ">=", "=") else 1)
    return {name: str(value) for name, value in sorted(point.items())}


def _checked(document: dict[str, Any]) -> dict[str, Any]:
    """The certificate without what is not needed, and without the claims that it does not show."""
    terms = Terms(document["sorts"])
    reader = Reader(document["terms"], terms)
    needs: list[set[int] | None] = []
    for number, step in enumerate(document["steps"]):
        terms.used = set()
        try:
            check_step(terms, reader, number, step)
            needs.append(terms.used)
        except RejectedError:  # it is left out, and what needs it is not shown
            needs.append(None)
    divided = inverses(reader, [s for s, needed in zip(document["steps"], needs, strict=True) if needed is not None])
    shown: list[Any] = []
    unshown: list[Any] = []
    used: set[int] = set()
    reader.done.clear()  # so that claims know every step
    for claim in document["claims"]:
        terms.used = set()
        try:
            check_claim(terms, reader, claim, document["point"], divided)
        except RejectedError as rejected:
            unshown.append({"name": claim["name"], "condition": claim["condition"], "line": claim["line"], "why": str(rejected)})
            continue
        shown.append(claim)
        used |= terms.used
    for number in reversed(range(len(needs))):
        if number in used:
            used |= needs[number] or set()
    steps = [s for number, s in enumerate(document["steps"]) if number in used]
    return _renumbered({**document, "steps": steps, "claims": shown, "unshown": unshown})


def _renumbered(document: dict[str, Any]) -> dict[str, Any]:
    """Only the terms that steps and claims speak of."""
    lines, kept = document["terms"], dict[int, int]()
    written: list[Any] = []
    texts: set[str] = set()

    def at(x: Any) -> Any:
        """Data with each term's number as it is now; its texts are noted."""
        if isinstance(x, list):
            return [at(y) for y in x]
        if isinstance(x, str):
            texts.add(x)
        if type(x) is not int:
            return x
        if x not in kept:
            kind, *parts = lines[x]
            line = [kind, at(parts[0]), *parts[1:]] if kind == "power" else [kind, *(at(p) for p in parts)]
            kept[x] = len(written)
            written.append(line)
        return kept[x]

    steps = [{**s, **{part: at(s[part]) for part in ("over", "of", "at", "is")}} for s in document["steps"]]
    claims = [{**c, **{part: at(c[part]) for part in ("given", "left", "right", "divisors")}} for c in document["claims"]]
    sorts = {name: size for name, size in document["sorts"].items() if name in texts}
    return {**document, "sorts": sorts, "terms": written, "steps": steps, "claims": claims}
