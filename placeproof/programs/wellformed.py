"""Whether a program makes sense, before any interpretation: a table of rules.

The rules know nothing of costs or of correctness. They refuse what no device could run: a name that nothing wrote, a
collective that part of its group never enters, a part of something that no loop walks over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from placeproof.core.diagnostics import Problems, suggestion
from placeproof.core.mesh import Axis
from placeproof.core.modes import Share
from placeproof.core.states import STATES
from placeproof.core.strategy import NORM
from placeproof.programs.flow import check_flow
from placeproof.programs.ir import (
    FIRST_UNIT,
    Assign,
    Call,
    Do,
    Expr,
    For,
    If,
    Program,
    Ref,
    Stmt,
    calls,
    constant,
    expressions,
    own_expressions,
    reads,
    statements,
)
from placeproof.programs.losses import check_losses
from placeproof.programs.numbers import check_divisors, check_in_flight, check_limit, check_powers
from placeproof.programs.ops import DOMAINS, OPS, RESERVED, ROUNDS, Axes
from placeproof.programs.ranks import check_ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule of well-formedness: what it demands, and the check that records its violations.

    ``whole``: it judges the program as a whole, so that a line that could not be read would mislead it. ``layers``: it is about layers that
    the step itself computes, and not about one whose layers are calls of blocks.
    """

    code: str
    demands: str
    check: Callable[[Program, Problems], None]
    whole: bool = False
    layers: bool = False


def check(program: Program) -> Program:
    """Return the program unchanged, or raise :class:`InputError` with every rule it breaks."""
    problems = Problems()
    check_into(program, problems)
    problems.raise_if_any()
    return program


def check_into(program: Program, problems: Problems, *, partial: bool = False, linked: bool = False) -> None:
    """Record every broken rule. Of a partly read program only the rules that judge one place at a time are asked; ``linked``: of the step
    of a linked program, whose layers are calls of blocks."""
    for rule in RULES:
        if not (partial and rule.whole) and not (linked and rule.layers):
            rule.check(program, problems)


def axis_names(program: Program) -> dict[str, str]:
    """Every axis that an operation may name, factors of split axes included -> the axis of the mesh."""
    names: dict[str, str] = {}
    for axis in program.axes:
        names[axis.name] = axis.name
        if axis.inner is not None:
            names[axis.outer_name] = names[axis.inner_name] = axis.name
    return names


def _every_ref(program: Program) -> Iterator[Ref]:
    for stmt in statements(program.body):
        if isinstance(stmt, Assign):
            yield from stmt.targets
        yield from reads(stmt)


def _not_empty(program: Program, problems: Problems) -> None:
    if not program.body:
        problems.add("PP302", "the program has no statement", help="see docs/reference/step-programs.md for examples")


def _known_axes(program: Program, problems: Problems) -> None:
    names = axis_names(program)
    shown = "the mesh has " + (", ".join(f"`{n}`" for n in names) or "no axis; begin with `mesh(dp)`")

    def known(axis: str, place: object) -> None:
        if axis not in names:
            hint = suggestion(axis, names) or shown
            problems.add("PP305", f"`{axis}` is no axis of the mesh", place=place, help=hint)  # type: ignore[arg-type]

    for call in program.calls:
        for axis in call.axes:
            known(axis, call.place)
    for stmt in statements(program.body):
        if isinstance(stmt, If):
            known(stmt.axis, stmt.place)
    for placed in program.placed:
        for axis, _ in placed.modes:
            known(axis, placed.place)
    for group in program.groups:
        for option in (*group.partial, group.tied, *group.experts, *group.whole):
            if option is not None:
                known(option, group.place)
    for tensor in program.tensors:
        for axis, _ in tensor.split:
            known(axis, tensor.place)


def _axes_once(program: Program, problems: Problems) -> None:
    for call in program.calls:
        twice = [f for f, n in Counter(program.factors(*call.axes)).items() if n > 1]
        if twice:
            problems.add("PP305", f"`{call.op}` names `{twice[0]}` twice", place=call.place, help="name each axis once")
    for group in program.groups:
        for option in ("partial", "experts", "whole"):
            twice = [a for a, n in Counter(getattr(group, option)).items() if n > 1]
            if twice:
                problems.add(
                    "PP305", f"`{group.name}` names `{twice[0]}` twice in `{option}=`", place=group.place, help="name each axis once"
                )


def _as_in_table(program: Program, problems: Problems) -> None:
    for call in program.calls:
        op = OPS[call.op]
        required, most = len(op.operands) - op.optional, len(op.operands)
        if not required <= len(call.args) <= most:
            problems.add(
                "PP304", f"`{op.name}` takes {_amount(required, most)}, not {len(call.args)}", place=call.place, help=op.signature()
            )
        bad_axes = {
            Axes.NONE: bool(call.axes),
            Axes.ONE: len(call.axes) != 1,
            Axes.SOME: not call.axes,
            Axes.ANY: False,
        }[op.axes]
        if bad_axes:
            problems.add("PP304", f"`{op.name}` names axes: {op.axes.value}", place=call.place, help=op.signature())
        _options_as_in_table(call, problems)


def _amount(least: int, most: int) -> str:
    if least == most:
        return f"{least} operand{'' if least == 1 else 's'}"
    return f"{least} to {most} operands"


def _options_as_in_table(call: Call, problems: Problems) -> None:
    allowed = dict(OPS[call.op].options)
    for name, value in call.options:
        if name not in allowed:
            hint = suggestion(name, allowed) or OPS[call.op].signature()
            problems.add("PP304", f"`{call.op}` has no option `{name}`", place=call.place, help=hint)
        elif allowed[name] and value not in allowed[name]:
            hint = "one of " + ", ".join(allowed[name])
            problems.add("PP304", f"`{name}={value}` is not an option of `{call.op}`", place=call.place, help=hint)
    if call.op in ("send", "recv") and not _is_steps(call):
        name, example = ("to", "`to=1`, the next device") if call.op == "send" else ("source", "`source=-1`, the device before")
        what = f"`{call.op}` says by `{name}` how many steps along the axis"
        problems.add("PP304", what, place=call.place, help=f"for example {example}")
    root = call.option("root")
    if root is not None and root != "owner" and not root.isdigit():
        problems.add("PP304", "`root` is the number of a device along the axes, or `owner`", place=call.place, help="for example root=0")
    draw = call.option("draw")
    if draw is not None and not draw.isdecimal():
        problems.add("PP304", "`draw` is the number of a `random` in the text", place=call.place, help="the first one: draw=0")


def _is_steps(call: Call) -> bool:
    """Whether a message says how far it goes: to another device."""
    text = call.option("to" if call.op == "send" else "source") or ""
    return text.removeprefix("-").isdecimal() and int(text) != 0


def _target_count(program: Program, problems: Problems) -> None:
    for stmt in statements(program.body):
        if isinstance(stmt, Do) and OPS[stmt.call.op].results[0] > 0:
            problems.add(
                "PP304",
                f"the result of `{stmt.call.op}` is lost",
                place=stmt.place,
                help=f"give it a name: `y = {stmt.call.op}(...)`",
            )
        elif isinstance(stmt, Assign):
            _targets_fit(stmt, problems)


def _targets_fit(stmt: Assign, problems: Problems) -> None:
    least, most = OPS[stmt.value.op].results if isinstance(stmt.value, Call) else (1, 1)
    whole_pass = isinstance(stmt.value, Call) and stmt.value.op == "backward" and len(stmt.value.args) < 3
    most = 1 if whole_pass else most  # it begins with the samples, which have no gradient
    given = len(stmt.targets)
    if not least <= given <= most:
        what = f"`{stmt.value.op}` has" if isinstance(stmt.value, Call) else "the right side has"
        results = str(least) if least == most else f"{least} to {most}"
        hint = "a whole pass gives the gradient of the parameters alone" if whole_pass else None
        problems.add("PP304", f"{what} {results} result(s), and {given} target(s) are given", place=stmt.place, help=hint)
    if stmt.accumulate and given > 1:
        problems.add("PP304", "`+=` takes one target", place=stmt.place, help="accumulate in a line of its own")


def _single_results_inside(program: Program, problems: Problems) -> None:
    for stmt in statements(program.body):
        for own in own_expressions(stmt):
            for call in (e for e in expressions(own) if isinstance(e, Call)):
                outermost = call is own
                if not outermost and OPS[call.op].results[0] != 1:
                    problems.add("PP304", f"`{call.op}` cannot stand inside an expression", place=call.place)


def _free_names(program: Program, problems: Problems) -> None:
    axes = axis_names(program)
    for stmt in statements(program.body):
        named = [(stmt.var, stmt.place)] if isinstance(stmt, For) else []
        if isinstance(stmt, Assign):
            named += [(t.name, t.place) for t in stmt.targets]
        for name, place in named:
            if name in RESERVED or name in axes:
                what = "an axis of the mesh" if name in axes else "a word of the language"
                problems.add("PP306", f"`{name}` is {what} and cannot be assigned", place=place, help="choose another name")
        if isinstance(stmt, For) and stmt.var in STATES:
            problems.add("PP306", f"`{stmt.var}` is a state and cannot be a loop variable", place=stmt.place)


def _known_groups(program: Program, problems: Problems) -> None:
    names = [g.name for g in program.groups] + ["inner", "outer"]
    refs: list[tuple[str | None, object]] = [(r.group, r.place) for r in _every_ref(program)]
    refs += [(p.group, p.place) for p in program.placed]
    for declared in program.groups:
        if (size := constant(declared.size)) is not None and size <= 0:
            problems.add("PP305", f"group `{declared.name}` has {size} parameters", place=declared.place, help="write how many it has")
    for group, place in refs:
        if group is not None and group not in names:
            hint = suggestion(group, names) or "declare it: `group(name, size)`"
            problems.add("PP305", f"there is no group `{group}`", place=place, help=hint)  # type: ignore[arg-type]


def _frozen_groups(program: Program, problems: Problems) -> None:
    """What is not trained has parameters alone; and a step trains something."""
    frozen = {g.name for g in program.groups if g.frozen}
    if frozen and not program.trained:
        place = program.groups[-1].place
        problems.add("PP305", "every group is frozen: the step trains nothing", place=place, help="leave `frozen=true` out of one")
    for group in (g for g in program.groups if g.frozen and g.partial):
        message = f"`{group.name}` is frozen, and says how its gradient is shared out: it has none"
        problems.add("PP305", message, place=group.place, help="leave `partial` out")
    named = [(p.state, p.group, p.place) for p in program.placed] + [(r.name, r.group, r.place) for r in _every_ref(program)]
    for state, name, place in named:
        if name in frozen and state in ("gradients", "optimizer"):
            message = f"`{name}` is frozen: it has no {'gradient' if state == 'gradients' else 'optimizer state'}"
            problems.add("PP305", message, place=place, help=f"leave it out, or train it: `group({name}, ...)` without `frozen=true`")


def _options_of_groups(program: Program, problems: Problems) -> None:
    """What a group says of an axis goes with what that axis splits."""
    splits = {axis.name: axis.splits for axis in program.axes}
    for group in program.groups:
        complaints = [
            (f"`partial={axis}`: devices of `{axis}` have samples of their own, and whole gradients of them", "leave it out")
            for axis in group.partial
            if axis in splits and splits[axis].batch
        ]
        if group.tied in splits and not splits[group.tied].stages:
            message = f"`tied={group.tied}`: `{group.tied}` has no first and no last stage, as it splits the {splits[group.tied].name}"
            complaints.append((message, "name the axis of a pipeline, or leave it out"))
        for axis in group.whole:
            if axis in splits and splits[axis].matrices:
                message = f"`whole={axis}`: `{axis}` splits the hidden dimension, and so its parts are slices of matrices"
                complaints.append((message, "leave it out, or name axes that cut states alone"))
        for axis in dict.fromkeys(group.experts):
            if axis in splits and splits[axis].stages:
                message = f"`experts={axis}`: `{axis}` splits the layers, and no device has the tokens of another layer"
                complaints.append((message, "name axes that split the batch, tokens or the hidden dimension"))
            if axis in group.partial or axis == group.tied:
                other = "partial" if axis in group.partial else "tied"
                message = f"`experts={axis}` and `{other}={axis}`: of its own experts a device finds the whole gradient"
                complaints.append((message, f"leave `{other}={axis}` out"))
        for message, help in complaints:
            problems.add("PP303", f"`{group.name}` says {message}", place=group.place, help=help)


def _blocks_begin_with_norms(program: Program, problems: Problems) -> None:
    """What a block that is computed group by group begins with has a name."""
    declared = {g.name for g in program.groups}
    for call in program.calls:
        w = call.args[0] if call.op == "forward" and call.args else None
        if len(declared) > 1 and NORM not in declared and isinstance(w, Ref) and w.group in declared:
            problems.add(
                "PP305",
                f"`{w.group}` is computed as a part of a block, and no group is the `{NORM}` that the block begins with",
                place=call.place,
                help=f"declare `group({NORM}, P_norm)` and begin with it; or compute the block whole: `forward({w.name}, x)`",
            )
            return


def _no_collective_apart(program: Program, problems: Problems) -> None:
    """A collective under a condition on the rank of its own axis: some devices of the group never enter it."""

    def walk(body: tuple[Stmt, ...], apart: frozenset[str]) -> None:
        for stmt in body:
            for call in calls(stmt):
                if OPS[call.op].collective and call.op not in ("send", "recv"):
                    _apart(call, apart, problems)
            if isinstance(stmt, For):
                walk(stmt.body, apart)
            elif isinstance(stmt, If):
                inside = apart | {stmt.axis}
                walk(stmt.then, inside)
                walk(stmt.orelse, inside)

    def _apart(call: Call, apart: frozenset[str], problems: Problems) -> None:
        parted = [a for a in call.axes if apart & {a, *program.factors(a)}]
        if parted:
            problems.add(
                "PP308",
                f"not every device along `{parted[0]}` enters this `{call.op}`: it would hang",
                place=call.place,
                help=f"move it out of the condition on `rank({parted[0]})`",
            )

    walk(program.body, frozenset())


def _sub_groups_divide(program: Program, problems: Problems) -> None:
    for axis in program.axes:
        if isinstance(axis.inner, int) and axis.degree is not None and axis.degree % axis.inner:
            problems.add(
                "PP303",
                f"sub-groups of {axis.inner} do not divide axis `{axis.name}` of {axis.degree} devices",
                help="choose a divisor of the degree",
            )


#: Operations of programs over tensors alone.
TENSOR_OPS = ("shift", "contract", "total", "largest", "hot", "slope", "returns")


def _of_this_kind(program: Program, problems: Problems) -> None:
    """Tensors have operations that a step has not."""
    for call in program.calls:
        if call.op in TENSOR_OPS and not program.tensors:
            problems.add(
                "PP304",
                f"`{call.op}` is an operation of programs over tensors, and this one declares none",
                place=call.place,
                help="what a step has to leave is what its states are placed to hold; see docs/reference/step-programs.md",
            )


def _gradients_of_something(program: Program, problems: Problems) -> None:
    """What a gradient is said to be of, by, and at, has that name somewhere."""
    names = {t.name for t in program.tensors} | {t.name for s in statements(program.body) if isinstance(s, Assign) for t in s.targets}
    for call in (c for c in program.calls if c.op == "returns" and program.tensors):
        for option in ("gradient_of", "by", "at"):
            if (name := call.option(option)) is not None and name not in names:
                message = f"`{option}={name}`: nothing is called `{name}`"
                problems.add("PP306", message, place=call.place, help=suggestion(name, names) or "name a tensor of the header, or a buffer")


#: Operations on samples, and how many operands stand before the micro-batch.
_OF_SAMPLES = {"data": 0, "tokens": 0, "count": 0, "backward": 1, "statistics": 1}


def _batches_are_named(program: Program, problems: Problems) -> None:
    """Where a loop walks over micro-batches, an operation on samples says which; elsewhere there are none."""
    walks = any(isinstance(s, For) and s.domain == "microbatches" for s in statements(program.body))
    if not walks:
        for ref in _every_ref(program):
            if ref.name == "microbatches":
                help_ = "begin with `for i in microbatches:`, or leave it out"
                problems.add("PP307", "no loop walks over micro-batches: there is one", place=ref.place, help=help_)
        if (program.count("microbatches") or 1) > 1:
            help_ = "begin the step with `for i in microbatches:`, or leave the count out"
            problems.add("PP307", "no loop walks over the micro-batches that `count` speaks of", help=help_)
        return
    for call in program.calls:
        if call.op in _OF_SAMPLES and len(call.args) == _OF_SAMPLES[call.op]:
            problems.add(
                "PP307",
                f"the step has micro-batches, and this `{call.op}` does not say which",
                place=call.place,
                help=f"name it: `{call.op}({'parameters, ' if _OF_SAMPLES[call.op] else ''}i)` in a loop `for i in microbatches:`",
            )


def _keys_of_micro_batches(program: Program, problems: Problems) -> None:
    """A draw is told by its place in the text and its micro-batch, so that no other loop may repeat it."""
    for loop in (s for s in statements(program.body) if isinstance(s, For) and s.domain != "microbatches"):
        for call in (c for s in statements(loop.body) for c in calls(s) if c.op == "random"):
            help_ = "draw the key before this loop"
            problems.add("PP307", f"a key is drawn again and again in a loop over `{loop.domain}`", place=call.place, help=help_)


def _paired_messages(program: Program, problems: Problems) -> None:
    sends: Counter[tuple[str, int]] = Counter()
    receives: Counter[tuple[str, int]] = Counter()
    first: dict[tuple[str, int], Call] = {}
    for call in program.calls:
        if call.op not in ("send", "recv") or not call.axes or not _is_steps(call):
            continue
        key = (call.axes[0], call.steps if call.op == "send" else -call.steps)
        (sends if call.op == "send" else receives)[key] += 1
        first.setdefault(key, call)
    for key in sorted(set(sends) | set(receives)):
        if sends[key] != receives[key]:
            problems.add(
                "PP308",
                f"{sends[key]} `send(to={key[1]})` meet {receives[key]} `recv(source={-key[1]})` along `{key[0]}`",
                place=first[key].place,
                help="each message needs its sender and its receiver",
            )


def _nested_domains(program: Program, problems: Problems) -> None:
    order = list(DOMAINS)

    def walk(body: tuple[Stmt, ...], outer: tuple[For, ...]) -> None:
        for stmt in body:
            if isinstance(stmt, For):
                (_rings(stmt, outer, program, problems) if stmt.domain == ROUNDS else _nests(stmt, outer, order, problems))
                walk(stmt.body, (*outer, stmt))
            elif isinstance(stmt, If):
                walk(stmt.then, outer)
                walk(stmt.orelse, outer)

    walk(program.body, ())


def _rings(loop: For, outer: tuple[For, ...], program: Program, problems: Problems) -> None:
    """The rounds of a ring: outside other loops, in a program over tensors, over an axis of its mesh."""
    hint = "write `for r in rounds[cp]:` over an axis of the mesh, outside other loops, in a program that declares tensors"
    if loop.within not in {a.name for a in program.axes} or not program.tensors or outer or loop.reverse or loop.start:
        problems.add("PP307", "these are no rounds of a ring", place=loop.place, help=hint)


def _nests(loop: For, outer: tuple[For, ...], order: list[str], problems: Problems) -> None:
    rank = order.index(loop.domain)
    around = {o.var: o for o in outer}
    if any(o.domain == ROUNDS or order.index(o.domain) >= rank for o in outer):
        problems.add("PP307", f"`{loop.domain}` cannot be walked here", place=loop.place, help="nest " + " > ".join(order))
    if loop.var in around:
        problems.add("PP306", f"loop variable `{loop.var}` is in use", place=loop.place, help="choose another name")
    if loop.start and loop.domain != "units":
        hint = "only the first unit can be computed apart: `for u in units[1:]:`"
        problems.add("PP307", f"`{loop.domain}[{loop.start}:]` cannot be walked", place=loop.place, help=hint)
    parts = [o.var for o in outer if o.domain != "microbatches"]
    if loop.within is None and parts:
        hint = f"walk one part's own: `for {loop.var} in {loop.domain}[{parts[-1]}]:`"
        problems.add("PP307", f"`{loop.domain}` is walked whole for each `{parts[-1]}`", place=loop.place, help=hint)
    elif loop.within == FIRST_UNIT:
        if parts or loop.domain == "units":
            hint = "the first unit is computed apart, outside any loop over parts of the model: `for k in blocks[0]:`"
            problems.add("PP307", f"`{loop.domain}[0]` cannot be walked here", place=loop.place, help=hint)
    elif loop.within is not None and loop.within not in parts:
        hint = "name the variable of the loop around this one"
        problems.add("PP307", f"`{loop.within}` is no part that is walked here", place=loop.place, help=hint)


def _one_pipeline(program: Program, problems: Problems) -> None:
    """Layers lie in stages of one pipeline: two would need two kinds of parts."""
    _one_axis([a for a in program.axes if a.splits.stages], program, problems)


def _one_hidden_axis(program: Program, problems: Problems) -> None:
    """Slices of the hidden dimension lie on one axis: two would need two kinds of parts. Blocks say which of theirs lie on which."""
    _one_axis([a for a in program.axes if a.splits.matrices], program, problems)


def _one_axis(axes: list[Axis], program: Program, problems: Problems) -> None:
    if len(axes) > 1 and not program.tensors:
        listed, whole = " and ".join(f"`{a.name}`" for a in axes), f"the {axes[0].splits}"
        problems.add("PP303", f"{listed} both split {whole}", help=f"one axis splits {whole}; let the others split something else")


def _stages_have_their_layers(program: Program, problems: Problems) -> None:
    """A device of a pipeline updates its own stage's layers: copies of others' would be those of an earlier step."""
    stages = {a.name for a in program.axes if a.splits.stages} - {g.tied for g in program.groups}
    for placed in program.placed:
        for axis, mode in placed.modes:
            if axis in stages and placed.state != "activations" and mode.device is Share.WHOLE:
                message = f"copies of {placed.state} along `{axis}`, whose devices compute and update the layers of their own stage alone"
                problems.add("PP303", message, place=placed.place, help=f'`place({placed.state}, {axis}="S")`, or leave `{axis}` out there')


def _symbols_known(program: Program, problems: Problems) -> None:
    from placeproof.core.symbols import info

    def walk(expr: Expr) -> None:
        for ref in (e for e in expressions(expr) if isinstance(e, Ref)):
            if ref.name in axis_names(program) or ref.name in DOMAINS:
                continue
            try:
                info(ref.name)
            except KeyError:
                problems.add("PP306", f"`{ref.name}` is no defined symbol", place=ref.place, help="`placeproof list symbols`")

    for group in program.groups:
        walk(group.size)


#: The language's rules, in the order in which they are checked.
RULES: tuple[Rule, ...] = (
    Rule(code="PP302", demands="a program has at least one statement", check=_not_empty, whole=True),
    Rule(code="PP305", demands="axes are axes of the mesh", check=_known_axes),
    Rule(code="PP303", demands="one axis splits the layers", check=_one_pipeline),
    Rule(code="PP303", demands="one axis splits the hidden dimension of the step's own layers", check=_one_hidden_axis, layers=True),
    Rule(code="PP303", demands="a stage has the layers that it computes", check=_stages_have_their_layers),
    Rule(code="PP305", demands="an operation names an axis once, its factors included", check=_axes_once),
    Rule(code="PP304", demands="operations are called as the table says", check=_as_in_table),
    Rule(code="PP303", demands="exponents are numbers, and small", check=check_powers),
    Rule(code="PP303", demands="nothing is divided by zero", check=check_divisors),
    Rule(code="PP303", demands="at least one micro-batch is in flight", check=check_in_flight),
    Rule(code="PP304", demands="the limit to which the reference clips is one number", check=check_limit),
    Rule(code="PP304", demands="losses that passes name, and counts, are those of the reference's loss", check=check_losses),
    Rule(code="PP304", demands="an operation has as many targets as results", check=_target_count),
    Rule(code="PP304", demands="only operations with one result stand inside an expression", check=_single_results_inside),
    Rule(code="PP306", demands="assigned names are free", check=_free_names),
    Rule(code="PP305", demands="groups are declared", check=_known_groups),
    Rule(code="PP305", demands="what is frozen has parameters alone", check=_frozen_groups),
    Rule(code="PP303", demands="what groups say of axes goes with what these split", check=_options_of_groups),
    Rule(code="PP305", demands="a block that is computed group by group begins with its norms", check=_blocks_begin_with_norms, whole=True),
    Rule(code="PP306", demands="sizes use defined symbols", check=_symbols_known),
    Rule(code="PP305", demands="devices that are named exist", check=check_ranks),
    Rule(code="PP303", demands="sub-groups divide their axis", check=_sub_groups_divide),
    Rule(code="PP304", demands="a step has no operations of programs over tensors", check=_of_this_kind),
    Rule(code="PP306", demands="what gradients are of, by and at is there", check=_gradients_of_something, whole=True),
    Rule(code="PP307", demands="operations on samples say which micro-batch, if there are some", check=_batches_are_named, whole=True),
    Rule(code="PP307", demands="loops nest from coarse to fine, each within its part", check=_nested_domains),
    Rule(code="PP307", demands="random keys are drawn in no loop, or in one over micro-batches", check=_keys_of_micro_batches),
    Rule(code="PP308", demands="every device of a group enters its collectives", check=_no_collective_apart),
    Rule(code="PP308", demands="every message has a sender and a receiver", check=_paired_messages, whole=True),
    Rule(code="PP306", demands="what is read was written, waited for, and not freed", check=check_flow, whole=True),
)
