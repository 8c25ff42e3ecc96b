"""The text of a block's program: the names in it, and where its statements stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from placeproof.core.diagnostics import Place
from placeproof.core.program import Assign, Do, Program, Stmt, assigned, reads, render
from placeproof.core.program.ir import rewritten, with_names

#: Options that name buffers.
_NAMING = ("gradient_of", "by", "at")


def names(program: Program) -> set[str]:
    """Every name that the program uses for a buffer or for a function."""
    found = {r.name for stmt in program.body for r in reads(stmt)}
    return found | {t.name for t in program.tensors} | {t.name for t in assigned(program.body)}


def renamed(program: Program, new: Mapping[str, str]) -> Program:
    """Buffers by other names."""
    body: list[Stmt] = []
    for stmt in program.body:
        match stmt:
            case Assign(targets=targets, value=value):
                written = tuple(replace(t, name=new.get(t.name, t.name)) for t in targets)
                body.append(replace(stmt, targets=written, value=with_names(value, new)))
            case Do(call=call):
                options = tuple((o, new.get(v, v) if o in _NAMING else v) for o, v in call.options)
                body.append(replace(stmt, call=replace(call, args=tuple(with_names(a, new) for a in call.args), options=options)))
            case _:
                body.append(stmt)
    return replace(program, body=tuple(body))


def placed(program: Program) -> Program:
    """The same program with the lines of its own text as places. It has no loops and no branches."""
    source, text = f"{program.name}.step", render(program).splitlines()
    body: list[Stmt] = []
    for number, stmt in enumerate(program.body, len(text) - len(program.body)):
        place = Place(source=source, line=number + 1, column=1, length=len(text[number]), text=text[number])
        at = partial(replace, place=place)
        match stmt:
            case Assign(value=value):
                body.append(replace(stmt, value=rewritten(value, at), place=place))
            case Do(call=call):
                body.append(replace(stmt, call=replace(call, args=tuple(rewritten(a, at) for a in call.args), place=place), place=place))
    return replace(program, body=tuple(body))
