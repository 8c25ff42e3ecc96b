"""What a model costs under a strategy as a document: the schema ``placeproof.derive-model/1``, and its text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from placeproof.core.symbols import info, symbol
from placeproof.cost.blocks.tensors import Amount
from placeproof.cost.closed import tidy
from placeproof.cost.model import ModelDerivation, StageCost
from placeproof.cost.model.chunks import MANY
from placeproof.cost.model.comparison import Member
from placeproof.cost.model.derivation import WIDTHS
from placeproof.cost.model.passes import work_timeline
from placeproof.cost.model.recomputation import meaning
from placeproof.cost.model.stages import Stage
from placeproof.cost.model.time import StepTime, timeline
from placeproof.cost.model.vocabulary import PADDED
from placeproof.cost.step.host import TOLD
from placeproof.cost.values import Numbers
from placeproof.report.document import Cell, Document, Figure, Form, Lines, Notes, Section, Table, section
from placeproof.report.models.answer import answer
from placeproof.report.units import giga, percent, unused
from placeproof.runs import like
from placeproof.schedules import Search

if TYPE_CHECKING:
    import sympy

    from placeproof.implementations import BlockImplementation

#: The most moments of a schedule that are listed.
MOMENTS = 4
_ROWS = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "activations": "activations",
    "working": "computed again",
    "beside": "beside",
    "transient": "gathered",
    "updating": "in the update",
    "peak": "peak",
    "host": "on the host",
    "host_asked": "host, asked for",
}
#: Rows that are there only where there is something.
_SOMETIMES = ("beside", "working", "transient", "updating", "host", "host_asked")
_FLOPS = {
    "forward": "forward",
    "again": "computed again",
    "inputs": "backward, inputs",
    "weights": "backward, weights",
    "update": "update, once a step",
}
#: Symbols of a device that only times speak of.
_OF_TIME = ("eta", "F_peak", "F_fp8", "B_mem")

_Figures = Callable[[Amount], Figure]


def document(d: ModelDerivation, numbers: Numbers, step: StepTime | None = None, less: Member | None = None) -> Document:
    """Everything that was derived; the answer is also of the ``step`` on a cluster, if there is one. ``less``: ``accumulated`` of a member.

    Values are null where none were asked for, and while a symbol is not set.
    """
    return Document(
        name=f"{d.linked.model} under {d.linked.name}",
        sections=lambda: _sections(d, numbers, step, less),
        data=lambda: _data(d, numbers),
        forms=lambda: [_form(key, expr) for key, expr in d.forms.items()],
        measure="bytes per device; parameters in elements, flops in operations of one micro-batch",
        timeline=lambda: work_timeline(d, numbers.values) if step is None else timeline(step),
    )


def _form(key: str, formula: Amount) -> Form:
    import sympy

    return Form(key=key, name=key, label=key, formula=tidy(sympy.sympify(formula)))


def _figures(d: ModelDerivation, numbers: Numbers) -> _Figures:
    """What makes figures of amounts, with their values where numbers were asked for."""
    import sympy

    def figure(amount: Amount) -> Figure:
        return Figure(tidy(sympy.sympify(amount)), d.value(amount, numbers.values) if numbers.asked else None)

    return figure


def _data(d: ModelDerivation, numbers: Numbers) -> dict[str, Any]:
    figure = _figures(d, numbers)
    return {
        "schema": "placeproof.derive-model/1",
        "model": d.linked.model,
        "source": d.linked.source,
        "strategy": d.linked.name,
        "axes": [{"name": a.name, "splits": a.splits.name, "degree": str(d.at.degrees[a.name])} for a in d.linked.axes],
        "recompute": d.recompute,
        "widths": d.at.widths,
        "fp8": d.at.fp8,
        "schedule": d.schedule if d.linked.pipeline is not None else None,
        "sizes": {n: int(v) for n, v in d.linked.values.items()},
        **({} if d.run_by is None else {"implementation": _run_by(d, numbers)}),
        "stages": [_stage(c, figure) for c in d.costs],
        "symbols": {n: info(n).meaning for n in sorted(_used(d))},
        "conventions": conventions(d),
        "precision": numbers.precision,
        "assumed": {name: numbers.values[name] for name in numbers.assumed},
    }


def _stage(cost: StageCost, figure: _Figures) -> dict[str, Any]:
    return {
        "name": cost.stage.name,
        "index": cost.stage.index,
        "parameters": {group: figure(n) for group, n in cost.parameters.items()},
        "memory": {key: figure(amount) for key in _ROWS if (amount := memory(cost, key)) != 0 or key not in ("beside", "updating")},
        "in_flight": figure(cost.in_flight),
        "kept": _kept(cost, figure),
        "sent": _sent(cost, figure),
        "traffic": _traffic(cost, figure),
        "flops": _flops(cost, figure),
    }


def memory(cost: StageCost, key: str) -> sympy.Expr:
    """An amount of memory of a device of a stage by its key."""
    return cost.states[key] if key in cost.states else getattr(cost, key)


def _kept(cost: StageCost, figure: _Figures) -> list[dict[str, Any]]:
    return [
        {
            "part": held.part,
            "block": stored.block,
            "value": stored.name,
            "dims": stored.dims,
            "split": dict(stored.split),
            "bytes": figure(held.bytes),
            "host": held.host,
        }
        for held, stored in ((held, held.row.stored) for held in cost.held)
    ]


def _sent(cost: StageCost, figure: _Figures) -> list[dict[str, Any]]:
    return [
        {
            "collective": one.kind,
            "about": one.about,
            "axes": one.axes,
            "phase": one.phase,
            "bytes": figure(one.bytes),
            "times": figure(one.times),
        }
        for one in cost.sent
    ]


def _traffic(cost: StageCost, figure: _Figures) -> dict[str, Figure]:
    return {axes: figure(n) for axes, n in cost.traffic().items()}


def _flops(cost: StageCost, figure: _Figures) -> dict[str, Figure]:
    once = {} if cost.iterated == 0 else {"update": figure(cost.iterated)}
    return {key: figure(getattr(cost.flops, key)) for key in _FLOPS if key != "update"} | once


def _used(d: ModelDerivation) -> set[str]:
    """Every symbol of the data."""
    exprs: list[Amount] = [*d.forms.values(), *d.at.degrees.values()]
    for cost in d.costs:
        exprs += [cost.kept, cost.in_flight, *(amount for one in cost.sent for amount in (one.bytes, one.times))]
    return {str(s) for e in exprs for s in getattr(e, "free_symbols", ())}


def _sections(d: ModelDerivation, numbers: Numbers, step: StepTime | None, less: Member | None) -> Iterator[Section]:
    first, figure = d.costs[0], _figures(d, numbers)
    answered = list(answer(d, numbers, step, less))
    yield from answered
    yield section("" if answered else f"{d.linked.model} under {d.linked.name}", Lines([d.linked.title, *sizes_of(d)]))
    if step is None:
        mesh = [(a.name, f"degree {d.at.degrees[a.name]}, splits the {a.splits}") for a in d.linked.axes]
        yield section("mesh", Table(mesh or [("one device",)]))
    yield from [_by_stage(d, numbers)] if numbers.asked else []
    yield from [_as_run(d, d.run_by, numbers)] if d.run_by is not None else []
    work = [(_FLOPS[key], amount.formula) for key, amount in _flops(first, figure).items()]
    flops = section(f"floating-point operations of a device with {first.stage.name}, one micro-batch", Table(work))
    used = {str(s) for e in d.forms.values() for s in e.free_symbols}
    used |= {"P"} | {str(s) for costs in d.step.at(d.costs[0].stage) for e in costs.memory.values() for s in e.free_symbols}
    where = section("where", Table([(n, info(n).meaning) for n in sorted(used)]))
    for formulas in (_counted(d), _states(d), _activations(d, first, figure), _messages(first, figure), flops, where):
        yield replace(formulas, detail="formulas") if answered else formulas
    lines = [f"source: {d.linked.source}", *conventions(d)]
    yield section("conventions", Notes(lines, items=True), detail="full")


def sizes_of(d: ModelDerivation) -> list[str]:
    """The model's sizes, and what those were that are set otherwise."""
    before = {name: f" ({how}; {n} in the model)" for name, (how, n) in (d.model.replaced if d.model else {}).items()}
    rows = [f"{name} = {n}{before.get(name, '')}" for name, n in d.linked.values.items()]
    return [f"sizes: {', '.join(rows)}"] if rows else []


def stages(alike: Sequence[Stage]) -> str:
    """Neighbouring stages by their names: ``stage 1 to 3``."""
    return alike[0].name if len(alike) == 1 else f"{alike[0].name} to {alike[-1].index}"


def _counted(d: ModelDerivation) -> Section:
    """Parameters of one device by group, and P, which the formulas of model states speak of; neighbours that have as many share rows."""
    rows: list[tuple[Cell, ...]] = []
    for counted, run in groupby(d.costs, key=lambda cost: cost.parameters):
        stage = [stages([cost.stage for cost in run])] if len(d.costs) > 1 else []
        rows += [(*stage, group, tidy(n)) for group, n in counted.items()]
    return section("parameters of one device, by group (P: all of them)", Table(rows))


def _states(d: ModelDerivation) -> Section:
    rows: list[tuple[Cell, ...]] = []
    for costs in d.step.at(d.costs[0].stage):
        whose = " of experts" if costs.experts else ""
        rows += [(f"{state}{whose}", costs.memory[state]) for state in ("parameters", "gradients", "optimizer")]
        rows.append((f"gathered{whose}", costs.memory["transient"]))
        rows += [(f"in the update{whose}", costs.memory["update"])] if costs.memory["update"] != 0 else []
        rows += [(f"on the host{whose}", host)] if (host := costs.memory["host"]) != 0 else []
    title = "model states of one device, bytes, in its P parameters and the U of its largest unit"
    return section(title, Table(rows), Notes([AVERAGE] if _by_average(d) else []))


#: What formulas take for granted of a unit, where groups of parameters are held or updated in different ways.
AVERAGE = "formulas in U give a unit the average share of each group; in numbers it is the most of any unit, with what it has of each"


def _by_average(d: ModelDerivation) -> bool:
    """Whether a formula speaks of a unit and of groups of which units have different shares."""
    if not any(g.frozen or g.update for g in d.linked.step.groups):
        return False
    formulas = [costs.memory[when] for costs in d.step.at(d.costs[0].stage) for when in ("transient", "update")]
    return any(any(s.name.startswith("P_") for s in f.free_symbols) for f in formulas if symbol("U") in f.free_symbols)


def _activations(d: ModelDerivation, cost: StageCost, figure: _Figures) -> Section:
    rows: list[tuple[Cell, ...]] = []
    for kept in _kept(cost, figure):
        split = ", ".join(f"{dim} by {' and '.join(axes)}" for dim, axes in kept["split"].items())
        what = f"{kept['block']}.{kept['value']}" if kept["block"] != "input" else f"input {kept['value']}"
        rows.append((kept["part"], what + (", on the host" if kept["host"] else ""), split, kept["bytes"]))
    whole = "on the device" if any(held.host for held in cost.held) else "in all"
    notes = [f"micro-batches in flight: {_in_flight(cost)} ({d.schedule})"] if d.schedule and cost.in_flight != 1 else []
    whose = "at once, beyond what backward is through with" if cost.stage.replays else "of one layer"
    notes += [f"computed again {whose}: {tidy(cost.working)}"] if cost.working != 0 and d.run_by is None else []
    title = f"activations that a device with {cost.stage.name} keeps of one micro-batch, bytes (recomputation: {d.recompute})"
    return section(title, Table(rows), Table([(whole, figure(cost.kept))]), Notes(notes))


def _run_by(d: ModelDerivation, numbers: Numbers) -> dict[str, Any]:
    """The implementation, and where each stage's passes have most, as data."""
    assert d.run_by is not None
    moments = {cost.stage.name: d.peak_moment(cost, numbers.values) if numbers.asked else None for cost in d.costs}
    return {
        "name": d.run_by.name,
        "source": d.run_by.source,
        "differences": {one.name: one.text for one in d.run_by.differences},
        "as_their_programs_say": d.undescribed,
        "moments": {
            name: None if m is None else {"part": m.part, "pass": "backward" if m.backward else "forward", "at": m.at or None}
            for name, m in moments.items()
        },
    }


def _as_run(d: ModelDerivation, run_by: BlockImplementation, numbers: Numbers) -> Section:
    """What an implementation keeps otherwise than the blocks' programs say, and at which moment a stage has most."""
    notes = [f"{one.name}: {one.text}" for one in run_by.differences]
    notes += [f"taken for granted: {text}" for text in run_by.assumes]
    notes += [f"operations are those of activations of {run_by.known['b_a']} bytes an element"] if run_by.modules else []
    if d.undescribed:
        notes.append(f"nothing is known of {', '.join(f'`{name}`' for name in d.undescribed)}: run as their programs say")
    notes += [
        f"{one.name}: tensors within {percent(one.within)} on {len(one.runs)} measured runs, {one.title}" for one in like(run_by.name)
    ]
    rows: list[tuple[Cell, ...]] = []
    for (beside, moment), run in groupby(d.costs, key=lambda cost: (cost.beside, d.peak_moment(cost, numbers.values))):
        name = stages([cost.stage for cost in run])
        rows += [(name, "beside all the time", _figures(d, numbers)(beside))]
        rows += [] if moment is None else [(name, f"in a pass, {moment.words}", _figures(d, numbers)(moment.bytes))]
    return section(f"beyond activations, as {run_by.name} runs the blocks: {run_by.title}", Table(rows), Notes(notes, items=True))


def _in_flight(cost: StageCost) -> str:
    """Of which micro-batches a device keeps activations at the moments at which it can keep most."""
    moments = []
    for moment in cost.at_once:
        words = []
        for (kept, late), run, number in zip(moment, cost.runs, cost.stage.runs or [None], strict=True):
            of, size = (f" of stage {number}", "") if number is not None else ("", f", each {tidy(run.late)}")
            words += [f"{kept}{of}"] if kept != 0 else []
            words += [f"what gradients by weights need of {late}{of or ' more'}{size}"] if late != 0 else []
        moments.append(" and ".join(words))
    more = [f"{len(moments) - MOMENTS} other moments"] if len(moments) > MOMENTS else []
    return "; or ".join([*moments[:MOMENTS], *more])


def _messages(cost: StageCost, figure: _Figures) -> Section:
    """What is sent; equal messages share a row."""
    merged: dict[tuple[str, str, str, str, sympy.Expr], sympy.Expr] = {}
    for one in cost.sent:
        key = (one.kind, one.about, "*".join(one.axes), one.phase, tidy(one.bytes))
        merged[key] = merged.get(key, 0) + one.times
    rows = [(*key, f"x {tidy(times)}") for key, times in merged.items()]
    totals = [(f"over {axes}", amount) for axes, amount in _traffic(cost, figure).items()]
    return section(f"traffic of a device with {cost.stage.name} in a step, bytes sent", Table(rows), Table(totals))


def _by_stage(d: ModelDerivation, numbers: Numbers) -> Section:
    """Every stage in numbers, as far as they are known."""
    names = _ROWS | ({} if d.run_by is None else {"working": "in a pass"})
    every = [(cost.stage.name, *(giga(d.value(memory(cost, key), numbers.values)) for key in _ROWS)) for cost in d.costs]
    used = [i for i, key in enumerate(_ROWS, start=1) if key not in _SOMETIMES or any(r[i] != "0" for r in every)]
    head, *rows = (tuple(r[i] for i in (0, *used)) for r in (("", *names.values()), *every))
    missing = sorted({str(s) for c in d.costs for s in c.peak.free_symbols if str(s) not in {**d.values, **numbers.values}})
    notes = [f"not set: {n} ({info(n).meaning})" for n in missing]
    notes += unused(numbers.given, {*_used(d), *d.linked.values, *_OF_TIME})
    return section("memory of a device by stage, GB", Table(rows, head, range(1, len(head))), Notes(notes))


#: What holds where blocks are run as their programs say.
_OF_PROGRAMS = (
    "positions take 8 bytes, masks 1, a statistic of attention 4, whatever activations take",
    "statistics of norms are computed again in backward",
)


def conventions(d: ModelDerivation) -> list[str]:
    """What the formulas and numbers take for granted, a sentence each."""
    lines = [
        "GB = 1e9 bytes, GiB = 2**30 bytes",
        "ring algorithms; bytes are those that one device sends",
        "FLOPs are those of products of matrices, and no position is masked: a causal mask would halve what grows with s**2",
        *(_OF_PROGRAMS if d.run_by is None or not d.run_by.modules else ("positions take 8 bytes",)),
        f"recomputation, {d.recompute}: {meaning(d.recompute)}",
    ]
    if other := {n: w for n, w in d.at.widths.items() if WIDTHS.get(n) != w}:
        lines.append("bytes of an element that were set: " + ", ".join(f"{n} {w}" for n, w in other.items()))
    if d.at.fp8:
        lines.append(
            "fp8: products with layers' matrices, and for their gradients; what layers keep for gradients by weights alone takes 1 byte,"
            " without scales; what something else reads, too, what is computed again, the head, routers, attention and exchanges are not in"
            " fp8"
        )
    lines += _of_frozen(d)
    lines += _of_update(d)
    if any(cost.host != 0 for cost in d.costs):
        lines.append("what lies on the host is no part of the peak, and neither is what passes there in an update")
    if any(cost.host_asked != cost.host for cost in d.costs):
        lines.append(TOLD)
    if len(d.costs) > 1:
        lines.append("the loss is computed on the last stage, the embedding on the first; a table that both use lies on both")
    if d.model is not None and d.model.replaced.get("V", ("",))[0] == PADDED:
        lines.append("the vocabulary is padded so that its parts are equal, as Megatron-LM does: `--vocab-padding none` leaves it")
    if any(cost.beyond != cost.working for cost in d.costs):
        lines.append("what is behind the layers is free before a layer is computed again: the peak is before or after that")
    if d.linked.pipeline is not None and d.chunks > 1:
        lines.append(_of_runs(d))
    if d.order.search is not None and d.linked.pipeline is not None:
        lines.append(_of_search(d, d.order.search))
    if d.linked.note:
        lines.append(d.linked.note)
    return lines


def _of_frozen(d: ModelDerivation) -> Iterator[str]:
    """What holds of parameters that are not trained."""
    if any(g.frozen for g in d.linked.step.groups):
        yield (
            "what is frozen has no gradient and no optimizer state, and takes b_frozen bytes on average; what a layer unpacks of weights"
            " of few bits to compute is not counted, nor is dropout before adapters; the gradient of what the first layer reads is computed"
        )
    if any(p.repeats and not p.layer.trained for p in d.parts):
        yield (
            "layers before which nothing is trained have no backward; their weights are gathered for it all the same, and stages hand on"
            " gradients, as the step says"
        )


def _of_search(d: ModelDerivation, search: Search) -> str:
    """What the order of a pipeline was searched for."""
    told = search.profile
    times = " : ".join(f"{float(n / told.forward):.3g}" if told.forward else str(n) for n in (told.forward, told.backward, told.weight))
    sizes = f"M_W = {float(told.late / told.kept):.3g} M_B" if told.kept else f"M_B = 0, M_W = {float(told.late):.6g}"
    whose = "operations and activations of one sample on the stage that keeps most"
    if not d.profiled:
        whose = "as its file says" if search.said else "as sizes are open"
    return f"the order of `{d.order.name}` is searched for with T_F : T_B : T_W = {times} and {sizes}, {whose}, under {search.most.text}"


def _of_update(d: ModelDerivation) -> list[str]:
    """What is taken for granted of an update that reads whole matrices."""
    said = {"orthogonal": directions, "factored": factors, "preconditioned": preconditioners}
    optimizer = dict(d.linked.step.reference).get("optimizer")
    return said[optimizer](d) if optimizer in said else []


def directions(d: ModelDerivation) -> list[str]:
    """What is taken for granted of an update of whole matrices."""
    lines = [
        "Muon updates factors of products, an expert as a matrix by itself; tables, heads, gains and biases are updated element by element,"
        " and their state is taken to be as wide: `--precision mixed-muon`",
        "a matrix is a weight of a block; a system that keeps several in one, as queries, keys and values, makes one direction of them",
        "directions take n_ns iterations of products; their buffers, but for a unit's matrices and directions, are not counted",
    ]
    if any(g.whole for g in d.linked.step.groups) or any(c.op == "all_to_all" and c.option("order") for c in d.linked.step.calls):
        lines.append("owners of whole matrices are taken to have equal parts of them")
    return lines


def preconditioners(d: ModelDerivation) -> list[str]:
    """What is taken for granted of an update that preconditions."""
    lines = [
        "Shampoo keeps b_omega bytes of each element, with the moments of the update that it is grafted onto, and b_pre bytes of each"
        " element of preconditioners: of matrices, tables, heads and each expert among them, there are two, of gains and biases one",
        "each is cut into blocks of at most d_pre rows and columns, which are taken to divide it",
        "an inverse root takes n_root products of matrices, once in T_root steps",
    ]
    if any(g.whole for g in d.linked.step.groups):
        lines.append("owners of whole tensors are taken to have equal parts of them, and of what they compute")
    return lines


def factors(d: ModelDerivation) -> list[str]:
    """What is taken for granted of an update by sums along rows and columns."""
    lines = [
        "Adafactor keeps b_master bytes of each element, and of matrices b_nu bytes of each row and column; tables, heads and each expert"
        " are matrices, gains and biases are none and have a second moment of each element. A first moment would add to b_master",
        "a matrix is a weight of a block; a system that keeps several in one, as queries, keys and values, has other rows and columns",
    ]
    if any(g.whole for g in d.linked.step.groups):
        lines.append("owners of whole matrices are taken to have equal parts of them")
    return lines


def _of_runs(d: ModelDerivation) -> str:
    """How activations of several runs of layers on a device are counted."""
    if not all(cost.stage.runs for cost in d.costs):
        return f"each of a device's {d.chunks} runs of layers counts as keeping as much as the others; those of `pp(4)` are told apart"
    if d.linked.step.count("microbatches") is not None:
        return "what a device keeps follows from the order of its passes, run by run"
    return f"what a device keeps follows from the order of its passes, of {MANY} micro-batches for each device; of fewer it keeps no more"
