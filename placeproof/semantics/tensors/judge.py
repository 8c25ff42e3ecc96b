"""Whether a tensor program computes what one device computes: proved, refuted by a run, or unknown."""

from __future__ import annotations

from dataclasses import replace

from placeproof.core.program import Resolved
from placeproof.prove import Budget, Unknown
from placeproof.semantics.confirm import Confirmed, DisagreementError
from placeproof.semantics.encode.context import NoMeaningError
from placeproof.semantics.encode.world import Options
from placeproof.semantics.search import Searched
from placeproof.semantics.tensors.encode import encode_tensors
from placeproof.semantics.tensors.setup import Found
from placeproof.semantics.tensors.simulate import ran, search, setups, simulate, smaller
from placeproof.semantics.tensors.values import Space
from placeproof.semantics.verdict import Judged, settle_obligation, with_run


def judge_tensors(program: Resolved, budget: Budget | None = None) -> Judged:
    """Prove a tensor program, or look for a run that refutes it.

    ``found`` is a :class:`placeproof.semantics.tensors.Found`: it has a ``setup`` with ``degrees``, and ``what`` differs.
    """
    options = Options(without=frozenset(program.without))
    try:
        obligations = encode_tensors(program)
    except NoMeaningError as missing:
        where = f", line {missing.place.line}" if missing.place else ""
        why = f"the proof cannot speak of this step: {missing}{where}"
        return _by_search(Judged(program=program, options=options, word="unknown", why=why))
    settled = tuple(settle_obligation(o, budget) for o in obligations)
    for_all = tuple(g.name for g in Space.of(program).given())
    judged = Judged(program=program, options=options, word="proved", settled=settled, for_all=for_all)
    open_ = [s for s in settled if s.word != "proved"]
    if not open_:
        return _confirmed(judged)
    first = next((s for s in open_ if isinstance(s.verdict, Unknown) and s.verdict.suspected), open_[0])
    assert isinstance(first.verdict, Unknown)
    return _by_search(replace(judged, word="unknown", about=first.obligation, why=first.verdict.why))


def _confirmed(judged: Judged) -> Judged:
    """What the obligations say, if small runs say so too: of one device, of two along each axis, and of three along one."""
    every = list(setups(judged.program))
    of = [s for s in every if sorted(s.degrees.values()) in ([1] * len(s.degrees), [2] * len(s.degrees))]
    of += [s for s in every if max(s.degrees.values(), default=1) == 3 and sum(s.degrees.values()) == len(s.degrees) + 2][-1:]
    done: list[str] = []
    why = "no mesh is small enough"
    for setup in of or every[-1:]:
        found = ran(judged.program, setup, slopes=not done)
        if isinstance(found, str):
            found = ran(judged.program, smaller(judged.program, setup), slopes=not done)
        if isinstance(found, Found):
            raise DisagreementError(judged.program.name, setup.mesh, found.words)
        if isinstance(found, str):
            why = found
        else:
            done.append(setup.mesh)
    if not done:
        return replace(judged, word="unknown", why=f"every obligation is proved, and no run could confirm it: {why}")
    return replace(judged, confirmed=Confirmed(runs=tuple(done)))


def _by_search(judged: Judged) -> Judged:
    """A suspicion is confirmed by a run, or it stays one."""
    found = search(judged.program)
    if isinstance(found, Searched):
        return replace(judged, why=f"{judged.why}; {found.words}")
    return with_run(judged, found, lambda: simulate(judged.program, found.setup) == found.what)
