"""The text form of step programs: printing and reading are inverse; mistakes are named with their place."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import placeproof
from placeproof.blocks import BLOCKS
from placeproof.blocks import text as block_text
from placeproof.core.diagnostics import InputError
from placeproof.core.mesh import SPLITS, USUAL_SPLITS, Axis, axis_order
from placeproof.core.modes import MODES
from placeproof.programs import (
    Assign,
    Binary,
    Call,
    Do,
    Expr,
    For,
    Group,
    If,
    Index,
    Number,
    Placed,
    Program,
    Ref,
    Stmt,
    check,
    parse,
    read,
    render,
)
from placeproof.programs.assumptions import ASSUMPTIONS
from placeproof.programs.header import REFERENCE
from placeproof.programs.ir import Tensor
from placeproof.programs.ops import DOMAINS, OPS, Axes
from placeproof.programs.parse import MAX_LINES
from placeproof.semantics.judge.verdict import judge
from placeproof.semantics.lower import lower
from placeproof.strategies import names, parse_strategy

DESIGN_EXAMPLE = """\
mesh(dp, tp)
for m in microbatches:
    w = all_gather(parameters, dp)
    g = backward(w, m)
    G += reduce_scatter(g, dp)
G = scale(G, 1 / (dp * microbatches))
parameters, optimizer = update(parameters, optimizer, G)
"""

NAMES = st.sampled_from(["x", "w", "g", "parameters", "optimizer", "gradients", "activations", "y1", "long_name"])
AXES = st.sampled_from(["dp", "tp", "pp", "rep", "shard", "cp"])
VARS = st.sampled_from(["u", "l", "k"])
NUMBERS = st.builds(
    lambda n, d: Number(value=Fraction(n, 10**d)), st.integers(min_value=-(10**6), max_value=10**6), st.integers(min_value=0, max_value=4)
)
INDEX = st.none() | st.builds(Index, var=VARS, offset=st.integers(-2, 2)) | st.builds(Index, var=st.none(), offset=st.integers(-1, 1))
REFS = st.builds(Ref, name=NAMES, group=st.none() | st.sampled_from(["matrix", "norm"]), index=INDEX)


@st.composite
def a_call(draw: st.DrawFn, inner: st.SearchStrategy[Expr]) -> Call:
    op = OPS[draw(st.sampled_from(sorted(OPS)))]
    count = draw(st.integers(len(op.operands) - op.optional, len(op.operands)))
    if op.axes is not Axes.NONE:
        count = len(op.operands)
    least, most = {Axes.NONE: (0, 0), Axes.ONE: (1, 1), Axes.SOME: (1, 3), Axes.ANY: (0, 2)}[op.axes]
    axes = draw(st.lists(AXES, min_size=least, max_size=most, unique=True))
    options = {}
    for name, values in op.options:
        if draw(st.booleans()):
            options[name] = draw(st.sampled_from(values)) if values else str(draw(st.integers(-2, 2)))
    return Call(op=op.name, args=tuple(draw(inner) for _ in range(count)), axes=tuple(axes), options=tuple(sorted(options.items())))


EXPRS: st.SearchStrategy[Expr] = st.recursive(
    NUMBERS | REFS,
    lambda inner: st.builds(Binary, op=st.sampled_from(["+", "-", "*", "/", "**"]), left=inner, right=inner) | a_call(inner),
    max_leaves=8,
)
ASSIGN = st.builds(Assign, targets=st.lists(REFS, min_size=1, max_size=2).map(tuple), value=EXPRS, accumulate=st.just(False)) | st.builds(
    Assign, targets=st.tuples(REFS), value=EXPRS, accumulate=st.just(True)
)
SIMPLE: st.SearchStrategy[Stmt] = ASSIGN | st.builds(Do, call=a_call(EXPRS))


def compound(inner: st.SearchStrategy[Stmt]) -> st.SearchStrategy[Stmt]:
    body = st.lists(inner, max_size=3).map(tuple)
    loops = st.builds(For, var=VARS, domain=st.sampled_from(sorted(DOMAINS)), body=body, within=st.none() | VARS, reverse=st.booleans())
    batches = st.builds(For, var=st.just("i"), domain=st.just("microbatches"), body=body, in_flight=st.none() | EXPRS)
    branches = st.builds(If, axis=AXES, op=st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), bound=EXPRS, then=body, orelse=body)
    return loops | batches | branches


BODIES = st.lists(st.recursive(SIMPLE, compound, max_leaves=6), max_size=5).map(tuple)


@st.composite
def a_tensor(draw: st.DrawFn) -> Tensor:
    dims = draw(st.lists(st.sampled_from(["tokens", "hidden", "ffn"]), max_size=3, unique=True))
    split = draw(st.lists(st.tuples(AXES, st.sampled_from(dims)), max_size=2, unique_by=lambda i: i[0])) if dims else []
    picks = draw(st.none() | st.just("vocabulary"))
    return Tensor(name=draw(st.sampled_from(["w", "x", "ids"])), dims=tuple(dims), split=tuple(split), picks=picks)


TENSORS = a_tensor()


@st.composite
def programs(draw: st.DrawFn) -> Program:
    axes = [
        Axis(
            name=name,
            splits=SPLITS[draw(st.sampled_from([USUAL_SPLITS[name], *SPLITS]))],
            degree=draw(st.none() | st.integers(1, 10**6)),
            inner=draw(st.none() | st.integers(1, 8) | st.just("N_node")),
        )
        for name in draw(st.lists(AXES, max_size=3, unique=True))
    ]
    modes = st.lists(st.tuples(AXES, st.sampled_from(list(MODES.values()))), max_size=2, unique_by=lambda i: i[0])
    states = draw(st.lists(st.sampled_from(["parameters", "optimizer", "gradients", "activations"]), max_size=3, unique=True))
    groups = draw(
        st.lists(st.builds(Group, name=st.sampled_from(["matrix", "norm", "expert"]), size=EXPRS), max_size=2, unique_by=lambda g: g.name)
    )
    return Program(
        name=draw(st.text(st.characters(codec="ascii", min_codepoint=32, max_codepoint=126), min_size=1, max_size=12)),
        axes=tuple(sorted(axes, key=axis_order)),
        groups=tuple(groups) or (Group(name="all", size=Ref(name="P")),),
        placed=tuple(Placed(state=s, group=None, modes=tuple(sorted(draw(modes), key=lambda i: i[0]))) for s in states),
        body=draw(BODIES),
        counts=tuple(sorted(draw(st.dictionaries(st.sampled_from(sorted(DOMAINS)), st.integers(1, 99), max_size=2)).items())),
        unit=draw(st.none() | st.integers(1, 10**9)),
        reference=tuple(sorted(draw(st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in REFERENCE.items()})).items())),
        without=tuple(
            draw(st.lists(st.sampled_from(sorted(a.name for a in ASSUMPTIONS.values() if a.without is not None)), max_size=2, unique=True))
        ),
        tensors=tuple(draw(st.lists(TENSORS, max_size=2, unique_by=lambda t: t.name))),
        approximates=tuple(draw(st.lists(st.sampled_from(["quantised", 'a "quoted" text', "back\\slash"]), max_size=1))),
    )


@given(programs())
def test_reading_what_was_printed_gives_the_same_program(program: Program) -> None:
    assert parse(render(program)) == program


@given(programs())
def test_checking_any_program_ends_in_a_program_or_in_problems(program: Program) -> None:
    """No rule of well-formedness raises anything but an InputError with a code."""
    try:
        check(program)
    except InputError as error:
        assert all(d.code.startswith("PP3") for d in error.diagnostics)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read(text)
    except InputError as error:
        assert error.diagnostics


@pytest.mark.parametrize("name", names())
def test_lowered_programs_are_their_own_text(name: str) -> None:
    program = lower(parse_strategy(f"tp * {name}" if name in ("sp", "zero_r") else name))
    assert parse(render(program)) == program
    assert all(s.place is not None for s in program.body)


def test_the_example_of_the_design_is_read_and_costed() -> None:
    program = read(DESIGN_EXAMPLE, source="example.step")
    assert render(program) == 'program("example")\n' + DESIGN_EXAMPLE
    d = placeproof.derive(program)
    assert str(d.memory["parameters"]) == "P*b_theta/N_dp"
    assert str(d.memory["gradients"]) == "P*b_g/N_dp"
    assert str(d.memory["optimizer"]) == "P*b_omega/N_dp"
    assert str(d.by_axis["dp"]) == "P*m*(N_dp - 1)*(b_g + b_theta)/N_dp"


def held(text: str) -> dict[str, str]:
    return {key: str(expr) for key, expr in placeproof.derive(read(text)).memory.items() if key in ("parameters", "optimizer", "gradients")}


def test_states_that_are_not_placed_lie_as_they_are_used() -> None:
    """Gathering gradients, or gathering parameters after the update, does not make parameters sharded."""
    ddp = "mesh(dp)\ngradients = all_reduce(backward(parameters), dp)\nparameters, optimizer = update(parameters, optimizer, gradients)\n"
    assert held(ddp) == {"parameters": "P*b_theta", "optimizer": "P*b_omega", "gradients": "P*b_g"}
    zero1 = (
        "mesh(dp)\ng = reduce_scatter(backward(parameters), dp)\nparameters, optimizer = update(parameters, optimizer, g)\n"
        "parameters = all_gather(parameters, dp)\n"
    )
    assert held(zero1) == {"parameters": "P*b_theta", "optimizer": "P*b_omega/N", "gradients": "P*b_g/N"}
    whole = (
        "mesh(dp)\ng = all_gather(reduce_scatter(backward(parameters), dp), dp)\nparameters, optimizer = update(parameters, optimizer, g)\n"
    )
    assert held(whole) == {"parameters": "P*b_theta", "optimizer": "P*b_omega", "gradients": "P*b_g"}
    hybrid = (
        'mesh(dp, tp)\nsplits(tp="batch")\nw = all_gather(parameters, dp)\ng = all_reduce(reduce_scatter(backward(w), dp), tp)\n'
        "parameters, optimizer = update(parameters, optimizer, g)\n"
    )
    assert held(hybrid) == {"parameters": "P*b_theta/N_dp", "optimizer": "P*b_omega/N_dp", "gradients": "P*b_g/N_dp"}


MISTAKES = [
    ("mesh(dp)\nw = all_gather(parameters, tpp)\n", "PP305", 2, 5),
    ("mesh(dp)\nw = al_gather(parameters, dp)\n", "PP304", 2, 5),
    ("mesh(dp)\ng = all_reduce(grads, dp)\n", "PP306", 2, 16),
    ("mesh(dp)\nw = all_gather(parameters[u], dp)\n", "PP307", 2, 16),
    ("mesh(dp)\nif rank(dp) == 0:\n    gradients = all_reduce(gradients, dp)\n", "PP308", 3, 17),
    ("mesh(dp)\nw = all_gather(parameters, dp)\nfree(w)\ng = backward(w)\n", "PP306", 4, 14),
    ("mesh(dp)\nw = start(all_gather(parameters, dp))\ng = backward(w)\n", "PP308", 3, 14),
    ("mesh(dp)\nw = start(all_gather(parameters, dp))\n", "PP308", 2, 1),
    ("mesh(dp)\nx = data()\nx, y, z = forward(parameters, x)\n", "PP304", 3, 1),
    ("mesh(dp)\nall_reduce(gradients, dp)\n", "PP304", 2, 1),
    ("mesh(dp)\ndp = data()\n", "PP306", 2, 1),
    ("mesh(dp)\nfor k in blocks:\n    for u in units[k]:\n        w = all_gather(parameters[u], dp)\n", "PP307", 3, 5),
    ("mesh(dp)\nfor u in units:\n    for k in blocks:\n        x = data()\n", "PP307", 3, 5),
    ("mesh(dp)\nx = data()\nsend(x, dp, to=1)\n", "PP308", 3, 1),
    ("mesh(dp)\ngradients = all_reduce(gradients, dp, dp)\n", "PP305", 2, 13),
    ("mesh(dp)\ngradients = all_reduce(gradients, dp, op=average)\n", "PP304", 2, 13),
    *(
        (f"mesh(dp)\ng = {op}(gradients, dp, root={root})\n", "PP304", 2, 5)
        for op in ("broadcast", "reduce")
        for root in ("first", "-1", "dp", "owners")
    ),
    ("x = data()\nmesh(dp)\n", "PP302", 2, 1),
    ("mesh(dp=0)\nx = data()\n", "PP103", 1, 9),
    ('mesh(dp)\nplace(parameters, dp="Z")\nx = data()\n', "PP305", 2, 22),
    ("mesh(world)\nx = data()\n", "PP305", None, None),
    ("mesh(dp)\nimport os\n", "PP303", 2, 1),
    ("mesh(dp)\nx = lambda: 1\n", "PP303", 2, 5),
    ("mesh(dp)\nx = 'text'\n", "PP303", 2, 5),
    ("mesh(dp)\nx = data(\n", "PP301", 2, 9),
    ("", "PP302", None, None),
    ("mesh(dp)\n" + "x = data()\n" * 10_000, "PP301", None, None),
    ("x = " + "(" * 500 + "1" + ")" * 500, "PP301", None, None),
    ("mesh(dp)\nü = all_gather(parameters, tpp)\n", "PP305", 2, 5),
    ("mesh(dp)\nfree(parameters)\n", "PP306", 2, 1),
    ("mesh(dp)\nx = 1if 2else 3\n", "PP303", 2, 5),
    ("mesh(dp)\nfor i in microbatches(in_flight=min(microbatches, stages)):\n    x = data(i)\n", "PP306", 2, 51),
]


def test_only_what_a_loop_walks_over_is_counted() -> None:
    with pytest.raises(InputError) as caught:
        read("mesh(dp)\ncount(microbatch=4)\nx = data()\n")
    (found,) = caught.value.diagnostics
    assert (found.code, found.place and found.place.line) == ("PP303", 2)
    assert "did you mean `microbatches`?" in (found.help or "")


@pytest.mark.parametrize(
    ("axis", "option", "told"),
    [
        ("dp", "partial=dp", "samples of their own"),
        ("cp", "partial=cp", ""),
        ("tp", "partial=tp", ""),
        ("dp", "tied=dp", "no first and no last stage"),
        ("tp", "tied=tp", "no first and no last stage"),
        ("pp", "tied=pp", ""),
        ("tp", "whole=tp", "slices of matrices"),
        ("dp", "whole=dp", ""),
        ("cp", "whole=cp", ""),
        ("dp", "experts=dp", ""),
        ("cp", "experts=cp", ""),
        ("pp", "experts=pp", "no device has the tokens of another layer"),
        ("tp", "experts=tp, partial=tp", "finds the whole gradient"),
        ("cp", "experts=cp, partial=cp", "finds the whole gradient"),
    ],
)
def test_an_option_of_a_group_goes_with_what_its_axis_splits(axis: str, option: str, told: str) -> None:
    split = {"dp": "batch", "cp": "sequence", "tp": "hidden", "pp": "layers"}[axis]
    text = f'mesh({axis})\nsplits({axis}="{split}")\ngroup(body, P - P_norm)\ngroup(some, P_norm, {option})\ng = backward(parameters)\n'
    text += "parameters, optimizer = update(parameters, optimizer, g)\n"
    if not told:
        read(text)
        return
    with pytest.raises(InputError) as refused:
        read(text)
    (problem,) = refused.value.diagnostics
    assert told in problem.message
    assert problem.place is not None
    assert (problem.code, problem.place.line, bool(problem.help)) == ("PP303", 4, True)


@pytest.mark.parametrize("option", ["partial", "experts", "whole"])
def test_an_option_of_a_group_names_an_axis_once(option: str) -> None:
    with pytest.raises(InputError, match=f"names `cp` twice in `{option}=`"):
        read(f'mesh(cp)\nsplits(cp="sequence")\ngroup(some, P, {option}="cp cp")\nx = data()\n')


def test_of_experts_that_nothing_places_no_step_is_spoken_of() -> None:
    """A run would have all of them on every device, and the proof those of their owners."""
    text = 'mesh(ep)\nsplits(ep="batch")\ngroup(dense, P - P_norm)\ngroup(expert, P_norm, experts=ep)\n{}G = backward(parameters)\n'
    text += "G.dense = all_reduce(G.dense, ep)\nG = scale(G, 1 / ep)\nparameters, optimizer = update(parameters, optimizer, G)\n"
    why, place = read(text.format("")).not_spoken_of or ("", None)
    assert '`place(parameters.expert, ep="S")`' in why
    assert place is not None
    assert place.line == 4
    states = "".join(f'place({state}.expert, ep="S")\n' for state in ("parameters", "optimizer", "gradients"))
    assert read(text.format(states)).not_spoken_of is None
    assert judge(read(text.format(""))).word == "unknown"
    assert judge(read(text.format(states))).word == "proved"


@pytest.mark.parametrize(("text", "code", "line", "column"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_are_named_with_their_place(text: str, code: str, line: int | None, column: int | None) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    found = [d for d in caught.value.diagnostics if d.code == code]
    assert found, caught.value
    if line is not None:
        places = [(d.place.line, d.place.column) for d in found if d.place]
        assert (line, column) in places, places


def test_all_problems_are_reported_together() -> None:
    text = "mesh(dp)\nw = all_gather(parameters, tp)\nx = nothing(w)\nwhile x:\n    pass\nh = all_reduce(w)\n"
    with pytest.raises(InputError) as caught:
        read(text)
    assert [d.code for d in caught.value.diagnostics] == ["PP305", "PP304", "PP303", "PP304"]


def test_everything_that_goes_wrong_in_practice_can_be_said() -> None:
    """One program with every feature of the language is read, checked and costed."""
    text = """\
program("everything")
mesh(dp, tp, pp)
inner(dp=2)
group(matrix, P - P_norm)
group(norm, P_norm, tied=pp)
place(parameters.matrix, dp="S*", tp="S", pp="S")
place(parameters.norm, dp="S*", tp="R", pp="S")
place(optimizer, dp="S", tp="S", pp="S")
place(gradients, dp="S", tp="S", pp="S")
count(microbatches=4)
approximate("weights are gathered in 8 bits")
not_compared(buffers="ranks end with other values of norm.running_mean")
zero(gradients)
ntok = all_reduce(tokens(0), dp)
key = random(dp)
scaler = 1
for i in microbatches(in_flight=min(microbatches, pp)):
    if rank(pp) == 0:
        x = dropout(data(i), key)
    else:
        x = recv(pp, source=-1)
    for u in units:
        h = start(all_gather(quantize(parameters[u], b_qw), dp))
        w = dequantize(wait(h))
        y, activations[u] = forward(w, x)
        x = x + all_reduce(elementwise(gelu, y), tp)
        free(w)
    if rank(pp) < pp - 1:
        send(x, pp, to=1)
    dx = loss(x)
    for u in reversed(units):
        old = stale(parameters[u], 1)
        w = all_gather(old, dp_inner, dp_outer)
        g = scale(backward_weight(w, activations[u], dx), 1 / ntok)
        gradients[u] += reduce_scatter(cast(g, b_qg), dp, op=sum)
        dx = all_reduce(backward_input(w, activations[u], dx), tp)
embedding = tied_reduce(gradients.norm, pp)
if rank(tp) == 0:
    gradients.norm = scale(gradients.norm, 2)
norm = sqrt(all_reduce(square_norm(gradients), dp, tp, pp))
gradients = scale(gradients, clip_factor(norm))
flag = all_reduce(found_inf(gradients), dp, tp, pp, op=max)
scaler = rescale(scaler, flag)
mirror = to_device(to_host(copy(gradients)))
parameters, optimizer = update(parameters, optimizer, mirror, flag)
parameters = broadcast(parameters, dp, root=owner)
"""
    program = read(text)
    assert parse(render(program)) == program
    d = placeproof.derive(program, groups=True)
    assert {m.collective for m in d.messages.messages} >= {"all_reduce", "all_gather", "reduce_scatter", "send", "broadcast", "tied_reduce"}
    assert str(d.memory["model_states"]) != "0"


def test_signatures_say_what_may_be_left_out() -> None:
    written = {name: OPS[name].signature() for name in ("backward_weight", "all_reduce", "update", "send")}
    assert written == {
        "backward_weight": "backward_weight(w, saved, dx, [x])",
        "all_reduce": "all_reduce(x, axis, ..., op=sum|mean|max)",
        "update": "update(parameters, optimizer, gradients, [skip])",
        "send": "send(x, axis, to=...)",
    }


def test_a_place_is_a_column_and_a_length_in_characters() -> None:
    with pytest.raises(InputError) as caught:
        read("mesh(dp)\nö = all_reduce(y, dp)  # ö takes two bytes\nx = part(undefined, dp)\n", source="s")
    places = [(d.place.line, d.place.column, d.place.length) for d in caught.value.diagnostics if d.place is not None and d.code == "PP306"]
    assert places == [(2, 16, 1), (3, 10, 9)]


def test_the_longest_program_is_read_and_a_longer_one_refused() -> None:
    text = "mesh(dp)\n" + "x = data()\n" * (MAX_LINES - 1)
    assert len(read(text).body) == MAX_LINES - 1
    with pytest.raises(InputError, match=f"{MAX_LINES + 1} lines; at most {MAX_LINES}"):
        read(text + "x = data()\n")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("0.12345678901234567890123", Fraction(12345678901234567890123, 10**23)),
        ("1_000.5", Fraction(2001, 2)),
        ("1e-3", Fraction(1, 1000)),
        ("2.50", Fraction(5, 2)),
    ],
)
def test_decimals_are_exact(written: str, value: Fraction) -> None:
    (found,) = [s for s in read(f"mesh(dp)\ng = scale(gradients, {written})\n").body if isinstance(s, Assign)]
    assert isinstance(found.value, Call)
    assert found.value.args[1] == Number(value=value)


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_are_printed_as_they_are_written(name: str) -> None:
    written = [line for line in block_text(name).splitlines() if not line.startswith("#")]
    printed = render(read(block_text(name), source=name)).splitlines()
    assert [sorted(line) for line in printed if not line.startswith("program(")] == [
        sorted(line) for line in written
    ]  # options in any order


@pytest.mark.parametrize(
    ("axes", "twice"),
    [("dp, dp", "dp_outer"), ("dp, dp_inner", "dp_inner"), ("dp_outer, dp", "dp_outer")],
)
def test_an_axis_and_one_of_its_factors_are_named_twice(axes: str, twice: str) -> None:
    with pytest.raises(InputError) as caught:
        read(f"mesh(dp=4)\ninner(dp=2)\ngradients = all_reduce(backward(parameters), {axes})\n")
    assert f"names `{twice}` twice" in str(caught.value)


def test_both_factors_of_an_axis_may_be_named() -> None:
    assert read("mesh(dp=4)\ninner(dp=2)\ngradients = all_reduce(backward(parameters), dp_inner, dp_outer)\n")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("update(parameters)", "takes 3 to 4 operands, not 1"),
        ("scale(gradients)", "takes 2 operands, not 1"),
        ("square_norm()", "takes 1 operand, not 0"),
    ],
)
def test_how_many_operands_are_taken_is_said(call: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(f"mesh(dp)\nx = {call}\n")


def test_what_is_not_readable_is_shown_as_it_is_written() -> None:
    with pytest.raises(InputError) as caught:
        read("mesh(dp)\ng = backward(parameters\nh = g\nk = h\n")
    place = caught.value.diagnostics[0].place
    assert place is not None
    assert (place.line, place.text) == (2, "g = backward(parameters")


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("count(microbatches=2)\ncount(microbatches=4)", "said twice"),
        ("inner(dp=2)\ninner(dp=3)", "said twice"),
        ('splits(dp="batch")\nsplits(dp="hidden")', "said twice"),
        ("unit(2)\nunit(3)", "said twice"),
        ("gradients = all_reduce(backward(parameters), dp, op=mean, op=sum)", "`op` is said twice"),
        ('place(parameters, dp="R", dp="S")', "`dp` is said twice"),
        ("reference(clip=global_norm)\nreference(clip=none)", "said twice"),
        ('place(parameters, dp="S", dp="R")', "twice"),
        ('without("real-arithmetic")', "cannot be dropped"),
        ("group(a, P + 5)\ngroup(b, 0 - 5)", "has -5 parameters"),
        ("reference(clip=global_norm)\nn = clip_factor(1, dp)", "no positive number"),
        ("reference(clip=global_norm)\nn = clip_factor(1, 2)\nk = clip_factor(1, 3)", "two limits"),
        ("n = 1 / 0", "divides by zero"),
        ("n = 1 / (2 - 2)", "divides by zero"),
    ],
)
def test_what_contradicts_itself_or_cannot_be_is_refused(header: str, why: str) -> None:
    from placeproof.core.diagnostics import InputError
    from placeproof.semantics.resolve import resolve

    text = "mesh(dp)\n{}\ng = backward(parameters)\nparameters, optimizer = update(parameters, optimizer, g)\n"
    assert resolve(read(text.format("reference(clip=global_norm)\nn = clip_factor(1, 1 / 2)")))
    with pytest.raises(InputError, match=why):
        resolve(read(text.format(header)))
