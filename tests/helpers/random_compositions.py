"""Random compositions of strategies on axes of their own, and changes of their programs, right and wrong ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from random import Random

from placeproof import define
from placeproof.core.diagnostics import InputError
from placeproof.core.strategy import Strategy, compose
from placeproof.programs import Assign, Binary, Call, Do, Expr, For, If, Number, Program, Ref, Stmt, calls, statements
from placeproof.programs.ir import expressions
from placeproof.programs.ops import OPS
from placeproof.semantics.lower import lower
from placeproof.strategies import parse_strategy

_ON_BATCH = (
    *("ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp", "zero_offload", "zero_infinity", "zeropp"),
    *("zero1(reduce=all_reduce)", "zero1(back=broadcast)", "zero2(bucket=unit)", "zero3(unit=model)", "zero3(prefetch=true)"),
    *("fsdp(reshard_after_forward=false)", "fsdp(reshard_after_forward=2)", "fsdp(prefetch=true)"),
)
_BESIDE = (
    *(
        "tp",
        "tp * sp",
        "tp * sp * ep(tp)",
        "cp * ep(cp)",
        "tp * sp(norms=each)",
        "tp * zero_r * checkpoint",
        "cp",
        "cp(attention=ulysses)",
        "ep",
        "ep(experts=whole)",
    ),
    *("pp", "pp(schedule=zb-h1)", "accumulate", "checkpoint", "checkpoint(checkpoints=host)"),
)


def random_strategy(random: Random, most: int) -> Strategy | None:
    """A product on at most so many axes; None where the rules refuse it."""
    parts: list[Strategy] = []
    try:
        for number in range(random.randint(1, most)):
            parts.append(_on_batch(random, f"d{number}"))
        for text in random.sample(_BESIDE, random.randint(0, 4)):
            parts.append(parse_strategy(text))
        random.shuffle(parts)
        made = compose(parts[random.randint(0, len(parts) - 1) :])
    except InputError:
        return None
    return made if 1 <= len(made.axes) <= most else None


def _on_batch(random: Random, axis: str) -> Strategy:
    if random.random() < 0.3:  # any placement of the three states
        choices = {"parameters": ("R", "S*", "O"), "optimizer": "RSO", "gradients": "RSMO"}
        placement = {state: random.choice(modes) for state, modes in choices.items()}
        return define("placed", axes={axis: {"splits": "batch"}}, placement={axis: placement})()
    text = random.choice(_ON_BATCH)
    name, _, options = text.partition("(")
    axes = f"rep={axis}r, shard={axis}s" if name == "hsdp" else f"dp={axis}"
    return parse_strategy(f"{name}({axes}{', ' if options else ')'}{options}")


def random_programs(seed: int, count: int, most: int = 4, changed: float = 0.5) -> Iterator[tuple[str, Program]]:
    """Programs of random compositions of at most so many axes; a share of them changed in one place."""
    random, made = Random(seed), 0
    while made < count:
        strategy = random_strategy(random, most)
        if strategy is None:
            continue
        try:
            program = lower(strategy)
        except InputError:
            continue
        if random.random() < changed:
            program = _changed(random, program)
        made += 1
        yield strategy.name, program


def _changed(random: Random, program: Program) -> Program:
    """The program with one call changed: taken away, done twice, over other axes, another operation; or another scale; or a line less; or
    with something done to a value where it is read."""
    if random.random() < 0.4:
        return _wrapped(random, program)
    every = [c for s in statements(program.body) for c in calls(s) if _touchable(c)]
    lines = [s for s in statements(program.body) if isinstance(s, Assign)]
    if not every or random.random() < 0.15:
        victim = random.choice(lines)
        return replace(program, body=_without(program.body, victim))
    call = random.choice(every)
    return replace(program, body=_with(program.body, call, _other(random, program, call)))


def _wrapped(random: Random, program: Program) -> Program:
    """The program with a collective of, or a scale on, some value that a line reads."""
    states = [s for s in statements(program.body) if isinstance(s, Assign)]
    read = [e for s in states for e in expressions(s.value) if isinstance(e, Ref) and program.axis(e.name) is None]
    value = random.choice([e for e in read if e.name not in ("i", "microbatches") and not e.name.startswith("b_")])
    axis = random.choice(program.axes).name
    if random.random() < 0.2:
        other: Expr = Call(op="scale", args=(value, Binary(op="/", left=Number(value=Fraction(1)), right=Ref(name=axis))))
    else:
        op = random.choice(("all_reduce", "reduce_scatter", "all_gather", "part", "broadcast"))
        options = (("root", "owner"),) if op == "broadcast" else (("op", "mean"),) if "reduce" in op and random.random() < 0.3 else ()
        other = Call(op=op, args=(value,), axes=(axis,), options=options)
    return replace(program, body=_with(program.body, value, other))


def _touchable(call: Call) -> bool:
    return (OPS[call.op].collective and call.op not in ("send", "recv")) or call.op in ("scale", "part", "to_host", "to_device")


def _other(random: Random, program: Program, call: Call) -> Expr:
    names = [a.name for a in program.axes]
    kind = random.choice(("gone", "twice", "axes", "op", "option"))
    match kind:
        case "twice":
            return replace(call, args=(call, *call.args[1:]))
        case "axes" if call.axes:
            axes = random.sample(names, random.randint(1, len(names)))
            return replace(call, axes=tuple(axes))
        case "op" if call.axes:
            return replace(call, op=random.choice(("all_reduce", "reduce_scatter", "all_gather", "part")), options=())
        case "option" if call.op in ("all_reduce", "reduce_scatter"):
            return replace(call, options=(("op", "mean"),))
        case "axes" | "op" | "option" if call.op == "scale":
            axis = random.choice(names)
            factor = Binary(op=random.choice("*/"), left=call.args[1], right=random.choice((Number(value=Fraction(2)), Ref(name=axis))))
            return replace(call, args=(call.args[0], factor))
    return call.args[0]


def _with(body: tuple[Stmt, ...], victim: Expr, other: Expr) -> tuple[Stmt, ...]:
    def expr(e: Expr) -> Expr:
        if e is victim:
            return other
        if isinstance(e, Call):
            return replace(e, args=tuple(map(expr, e.args)))
        return replace(e, left=expr(e.left), right=expr(e.right)) if isinstance(e, Binary) else e

    return tuple(_mapped(s, expr) for s in body)


def _mapped(stmt: Stmt, expr: Callable[[Expr], Expr]) -> Stmt:
    match stmt:
        case Assign():
            return replace(stmt, value=expr(stmt.value))
        case For():
            return replace(stmt, body=tuple(_mapped(s, expr) for s in stmt.body))
        case If():
            return replace(stmt, then=tuple(_mapped(s, expr) for s in stmt.then), orelse=tuple(_mapped(s, expr) for s in stmt.orelse))
        case Do(call=call):
            changed = expr(call)
            return replace(stmt, call=changed) if isinstance(changed, Call) else stmt
    return stmt


def _without(body: tuple[Stmt, ...], victim: Stmt) -> tuple[Stmt, ...]:
    kept: list[Stmt] = []
    for stmt in body:
        if stmt is victim:
            continue
        match stmt:
            case For():
                kept.append(replace(stmt, body=_without(stmt.body, victim)))
            case If():
                kept.append(replace(stmt, then=_without(stmt.then, victim), orelse=_without(stmt.orelse, victim)))
            case _:
                kept.append(stmt)
    return tuple(kept)
