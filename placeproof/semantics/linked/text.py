"""Linked programs as text: printed, and read back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from placeproof.core.bounds import MOST_COUNT
from placeproof.core.diagnostics import Place, Problems, suggestion
from placeproof.core.formula import repeated
from placeproof.core.places import characters
from placeproof.core.symbols import SYMBOLS
from placeproof.models import Block, Segment, turns
from placeproof.models.expressions import Expression, expression
from placeproof.models.family import GROUPS
from placeproof.models.programs import WIRES, output, rows_reached, weights
from placeproof.programs import Program, parse, read, render, render_expression
from placeproof.programs.wellformed import check_into
from placeproof.schedules import is_own, names
from placeproof.semantics.linked.claims import own_sums, partial, with_sums, without_sums
from placeproof.semantics.linked.contract import require_experts
from placeproof.semantics.linked.data import Linked, dimensions, splitting

if TYPE_CHECKING:
    from placeproof.core.mesh import Axis

#: Lines of a linked program that others do not have, in the order in which they are printed.
LINES = ("model", "values", "size", "shared", "recompute", "ring", "pipeline", "stages", "stack")
#: What these lines say by name; others say nothing by name, but for `values`.
_NAMED = {"model": ("title", "source", "note"), "pipeline": ("schedule", "chunks")}


# Printing.


def render_linked(linked: Linked) -> str:
    """The text of a linked program; :func:`read_linked` reads it back."""
    lines = render(linked.step).splitlines()
    head = [n for n, line in enumerate(lines) if line.startswith(("program(", "mesh(", "splits(", "inner("))]
    after = head[-1] + 1
    rest = [_with_members(line, linked) for line in lines[after:]]
    definitions = [*map(_block_text, linked.blocks.values()), *map(_segment_text, linked.stack)]
    return "\n".join([*lines[:after], *_header(linked), "", "\n\n".join(definitions), "", *rest]) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _header(linked: Linked) -> Iterator[str]:
    named = {"title": linked.title, "source": linked.source, "note": linked.note}
    yield f"model({', '.join([_quoted(linked.model), *(f'{k}={_quoted(v)}' for k, v in named.items() if v)])})"
    if linked.values:
        yield f"values({', '.join(f'{name}={n}' for name, n in linked.values.items())})"
    yield from (f"size({dim}, {size})" for dim, size in linked.sizes.items())
    if linked.shared:
        yield f"shared({', '.join(linked.shared)})"
    if linked.recompute != ("none",):
        yield f"recompute({', '.join(word if word.isidentifier() else _quoted(word) for word in linked.recompute)})"
    if linked.ring:
        yield f"ring({', '.join(linked.ring)})"
    if linked.stages is not None:
        yield f"pipeline({linked.stages.name}, schedule={_quoted(linked.schedule)}, chunks={linked.chunks})"
    if linked.layers is not None:
        yield f"stages({', '.join(map(str, linked.layers))})"
    yield f"stack({', '.join(map(_times_over, turns(linked.stack)))})"


def _times_over(turn: Sequence[Segment]) -> str:
    """Segments that come in turn, or one."""
    times, names = str(turn[0].times), [segment.name for segment in turn]
    named = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
    return named if times == "1" else f"{named} * {times if times.isalnum() else f'({times})'}"


def _with_members(line: str, linked: Linked) -> str:
    """A line of the step; the size of a group is that of its weights, and of the first one that of all others."""
    for number, group in enumerate(linked.step.groups):
        before = f"group({group.name}, {render_expression(group.size)}"
        if linked.members and line.startswith(before):
            listed = " + ".join(".".join(w) for w in linked.members.get(group.name, ())) or "0"
            size = listed if number else " - ".join(["P", *(f"P_{name}" for name in linked.members)])
            return f"group({group.name}, {size}{line[len(before) :]}"
    return line


def _block_text(block: Block) -> str:
    body = [line for line in render(without_sums(block.program)).splitlines() if not line.startswith(("program(", "mesh(", "splits("))]
    first = next(i for i, line in enumerate(body) if not line.startswith("tensor("))
    kinds = [f"weights({kind}, {', '.join(own)})" for kind in GROUPS if (own := [w for w, k in block.groups.items() if k == kind])]
    return "\n    ".join([f"def {block.name}():", *body[:first], *kinds, *body[first:]])


def _segment_text(segment: Segment) -> str:
    calls = []
    for block in segment.blocks:
        read_as = [wire for wire in WIRES.values() if any(t.name == wire for t in block.program.tensors)]
        calls.append(f"{WIRES[output(block.program) or 'y']} = {block.name}({', '.join(read_as)})")
    return "\n    ".join([f"def {segment.name}():", *calls])


# Reading.


def read_linked(text: str, *, source: str = "<program>") -> Linked:
    """Read a linked program. Raises InputError with every problem of the first of its parts that has some."""
    linked = _Reader(text, source).linked()
    require_experts(linked)
    return linked


class _Reader:
    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self.lines = text.splitlines()
        self.problems = Problems()
        try:
            self.tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            read(text, source=source)  # says what is wrong
            raise
        self.calls: dict[str, list[ast.Call]] = {}
        self.definitions: dict[str, ast.FunctionDef] = {}
        self.groups: list[ast.Call] = []
        self.step_lines = list(self.lines)
        for node in self.tree.body:
            self._sorted(node)
        self._of_groups()
        self.problems.raise_if_any()

    def _sorted(self, node: ast.stmt) -> None:
        """What is not the step's is taken out of its text, so that every line keeps its number."""
        match node:
            case ast.FunctionDef(name=name):
                if name in self.definitions:
                    self._refuse(node, f"`{name}` is defined twice", "give each block, and each segment, a name of its own")
                if ast.unparse(node.args) or node.decorator_list or node.returns is not None:
                    self._refuse(node, f"`{name}` is defined with more than its name", f"`def {name}():`")
                self.definitions[name] = node
            case ast.Expr(value=ast.Call(func=ast.Name(id=name)) as call) if name in LINES:
                if name in self.calls and name != "size":
                    self._refuse(node, f"`{name}(...)` is said twice", "say it once")
                for keyword in repeated(call):
                    self._refuse(keyword.value, f"`{keyword.arg}` is said twice", "say it once")
                for keyword in call.keywords if name != "values" else ():
                    if keyword.arg not in _NAMED.get(name, ()):
                        self._refuse(keyword.value, f"`{name}` says no `{keyword.arg}`", "leave it out")
                for arg in call.args if name == "values" else ():
                    self._refuse(arg, "a symbol of a model has a whole number", "for example `values(h=4096)`")
                self.calls.setdefault(name, []).append(call)
            case ast.Expr(value=ast.Call(func=ast.Name(id="group"), args=[ast.Name(id=name), size, *_]) as call) if _is_members(size):
                self.groups.append(call)
                line = self.lines[size.lineno - 1]
                begin, end = (characters(line, at) for at in (size.col_offset, size.end_col_offset or len(line)))
                self.step_lines[size.lineno - 1] = f"{line[:begin]}P_{name}{line[end:]}"
                return
            case _:
                return
        for number in range(node.lineno - 1, node.end_lineno or node.lineno):
            self.step_lines[number] = ""

    def _of_groups(self) -> None:
        """What is in a group, its line says; the first has all other weights. Names are free: the step is read without sizes that no symbol
        is for."""
        every = [node.value for node in self.tree.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
        calls = [call for call in every if isinstance(call.func, ast.Name) and call.func.id == "group" and len(call.args) > 1]
        own = [name for call in self.groups if (name := f"P_{_group(call)}") not in SYMBOLS]
        for number, call in enumerate(calls):
            name, line = _group(call), self.step_lines[call.lineno - 1]
            if number and call not in self.groups:
                self._refuse(call, f"nothing says which weights `{name}` has", f"`group({name}, block.weight + ...)`")
            if not number and call in self.groups:
                help = f"a group before it: `group(others, P - P_{name})`"
                self._refuse(call, f"the first group has all weights that are in no other, and `{name}` lists some", help)
            for symbol in own:
                line = re.sub(rf"\b{symbol}\b", "1".ljust(len(symbol)), line)
            self.step_lines[call.lineno - 1] = line

    def _refuse(self, node: ast.AST, message: str, help: str) -> None:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        end = characters(text, getattr(node, "end_col_offset", 0)) if getattr(node, "end_lineno", 0) == line else len(text)
        column = characters(text, column)
        place = Place(source=self.source, line=line, column=column + 1, length=max(1, end - column), text=text)
        self.problems.add("PP311", message, place=place, help=help)

    def linked(self) -> Linked:
        step = read("\n".join(self.step_lines) + "\n", source=self.source, linked=True)
        stack = self._only("stack")
        blocks: dict[str, Block] = {}
        with self.problems.collecting():
            axes = splitting(step)
            blocks = {name: self._block(node, axes) for name, node in self.definitions.items() if _is_block(node)}
        self.problems.raise_if_any()
        segments = tuple(self._segments(stack, blocks))
        model = self._only("model")
        title, source, note = (self._text(model, name) for name in ("title", "source", "note"))
        schedule, chunks = self._pipeline(step)
        program = Linked(
            model=self._first(model) or step.name,
            title=title,
            source=source,
            note=note,
            step=step,
            stack=segments,
            sizes=dict(self._sizes()),
            values=self._values(),
            members={_group(call): tuple(_members(call.args[1])) for call in self.groups},
            shared=self._names("shared"),
            recompute=self._names("recompute", texts=True) or ("none",),
            schedule=schedule,
            chunks=chunks,
            layers=self._numbers("stages"),
            ring=self._names("ring", [a.name for a in step.axes]),
        )
        self._check(program)
        self.problems.raise_if_any()
        return program

    def _first(self, call: ast.Call | None) -> str:
        """The text that a line begins with."""
        if call is None or (len(call.args) == 1 and isinstance(_constant(call.args[0]), str)):
            return "" if call is None else str(_constant(call.args[0]))
        self._refuse(call, "this takes one text", 'for example `model("mine")`')
        return ""

    def _text(self, call: ast.Call | None, name: str) -> str:
        text = next((k.value for k in call.keywords if k.arg == name), None) if call else None
        if text is not None and not isinstance(_constant(text), str):
            self._refuse(text, f"`{name}` is a text", f'for example `{name}="..."`')
        return "" if text is None else str(_constant(text))

    def _pipeline(self, step: Program) -> tuple[str, int]:
        """The schedule along the axis of stages, and how many runs of layers each device has."""
        call, axis = self._only("pipeline"), next((a.name for a in step.axes if a.splits.stages), None)
        if call is None:
            if axis is not None:
                message = f"nothing says in which order the stages of `{axis}` take micro-batches"
                self.problems.add("PP311", message, help=f'`pipeline({axis}, schedule="1f1b", chunks=1)`')
            return "1f1b", 1
        schedule, chunks = (next((_constant(k.value) for k in call.keywords if k.arg == name), None) for name in ("schedule", "chunks"))
        if [ast.unparse(a) for a in call.args] != [axis]:
            self._refuse(call, "a pipeline is along the axis of stages", f"`pipeline({axis}, ...)`" if axis else "leave it out")
        if schedule not in names() and not is_own(str(schedule)):
            help = suggestion(str(schedule), names()) or f"one of {', '.join(names())}; a file's name ends in .toml"
            self._refuse(call, f"there is no schedule `{schedule}`", help)
        if not isinstance(chunks, int) or not 1 <= chunks <= MOST_COUNT:
            self._refuse(call, "`chunks` is a whole number, 1 or more", "`chunks=1`")
        return str(schedule), chunks if isinstance(chunks, int) else 1

    def _only(self, name: str) -> ast.Call | None:
        return next(iter(self.calls.get(name, ())), None)

    def _names(self, line: str, known: Sequence[str] | None = None, *, texts: bool = False) -> tuple[str, ...]:
        """The names that a line lists; ``texts``: in quotes, what is no name."""
        call, names = self._only(line), list[str]()
        for arg in call.args if call else ():
            if isinstance(arg, ast.Name) and (known is None or arg.id in known):
                names.append(arg.id)
            elif texts and isinstance(quoted := _constant(arg), str):
                names.append(quoted)
            else:
                self._refuse(arg, f"`{ast.unparse(arg)}` is none of what `{line}` lists", ", ".join(known or ()) or "it lists names")
        return tuple(names)

    def _numbers(self, line: str) -> tuple[int, ...] | None:
        """The numbers that a line lists."""
        call, numbers = self._only(line), list[int]()
        for arg in call.args if call else ():
            value = _constant(arg)
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_COUNT:
                numbers.append(value)
            else:
                self._refuse(arg, f"`{line}` lists whole numbers", f"for example `{line}(7, 8, 7)`")
        return None if call is None else tuple(numbers)

    def _values(self) -> dict[str, int]:
        call, values = self._only("values"), dict[str, int]()
        for keyword in call.keywords if call else ():
            value = _constant(keyword.value)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_COUNT or keyword.arg not in SYMBOLS:
                self._refuse(keyword.value, "a symbol of a model has a whole number", "for example `values(h=4096)`")
            else:
                values[keyword.arg] = value
        return values

    def _expression(self, node: ast.expr) -> Expression:
        try:
            size = expression(ast.unparse(node))
        except ValueError as error:
            self._refuse(node, str(error), "a size is made of symbols, whole numbers and + - * /")
            return expression("1")
        for name in size.names:
            if name not in SYMBOLS:
                self._refuse(node, f"there is no symbol `{name}`", suggestion(name, SYMBOLS) or "`placeproof list symbols` shows all")
        return size

    def _sizes(self) -> Iterator[tuple[str, Expression]]:
        for call in self.calls.get("size", ()):
            match call.args:
                case [ast.Name(id=dim), size] if not call.keywords:
                    yield dim, self._expression(size)
                case _:
                    self._refuse(call, "a size is that of one dimension", "for example `size(width, h / a)`")

    def _block(self, node: ast.FunctionDef, axes: Sequence[Axis]) -> Block:
        """A block, with its lines where they stand."""
        kinds: dict[str, str] = {}
        body = [""] * (node.end_lineno or node.lineno)
        split = f"; splits({', '.join(f'{a.name}={_quoted(a.splits.name)}' for a in axes)})" if axes else ""
        body[0] = f"program({_quoted(node.name)}); mesh({', '.join(a.name for a in axes)}){split}"
        for stmt in node.body:
            if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call) and getattr(stmt.value.func, "id", "") == "weights":
                kinds |= self._kinds(stmt.value)
                continue
            for number in range(stmt.lineno - 1, stmt.end_lineno or stmt.lineno):
                body[number] = self.lines[number][node.body[0].col_offset :]
        written = parse("\n".join(body) + "\n", source=self.source)
        for claim in own_sums(written):
            by = claim.option("by") or ""
            axes_of = " ".join(partial(written)[by])
            message = f"`{node.name}` sums the gradient by `{by}` over `{axes_of}`, and sums of gradients of weights are the step's"
            self.problems.add(
                "PP311", message, place=claim.place, help=f'leave the sum out, and say what is left of it: `partial="{axes_of}"`'
            )
        program = replace(with_sums(written), axes=tuple(axes))
        check_into(program, self.problems)
        own = weights(program)
        if output(program) is None:
            self._refuse(node, f"`{node.name}` gives neither the stream nor what the next block reads", "`returns(y)` or `returns(n)`")
        for name in kinds.keys() - {w.name for w in own}:
            self._refuse(
                node, f"`{node.name}` has no weight `{name}`", "weights are tensors without positions that no gradient comes in by"
            )
        for weight in own:
            if weight.name not in kinds:
                message = f"`{node.name}` does not say what its weight `{weight.name}` is"
                self._refuse(node, message, f"`weights({GROUPS[0]}, {weight.name})`")
        groups = {w.name: kinds[w.name] for w in own if w.name in kinds}
        return Block(name=node.name, program=program, weights=own, groups=groups, reached=rows_reached(program))

    def _kinds(self, call: ast.Call) -> dict[str, str]:
        listed = [ast.unparse(a) for a in call.args]
        if not listed or listed[0] not in GROUPS or call.keywords:
            help = suggestion(listed[0], GROUPS) if listed else None
            self._refuse(call, f"weights are of one of {', '.join(GROUPS)}", help or "`weights(matrix, w)`")
            return {}
        return dict.fromkeys(listed[1:], listed[0])

    def _segments(self, stack: ast.Call | None, blocks: Mapping[str, Block]) -> Iterator[Segment]:
        if stack is None:
            self.problems.add("PP311", "nothing says which segments the model has", help="`stack(before, layers * L, after)`")
            return
        for node in stack.args:
            match node:
                case ast.BinOp(left=ast.List(elts=[_, _, *_] as named), op=ast.Mult(), right=number):
                    times = self._expression(number)
                case ast.BinOp(left=ast.Name() as name, op=ast.Mult(), right=number):
                    named, times = [name], self._expression(number)
                case _:
                    named, times = [node], expression("1")
            for place, one in enumerate(named):
                yield from self._segment(one, times, blocks, in_turn=place > 0)

    def _segment(self, node: ast.expr, times: Expression, blocks: Mapping[str, Block], *, in_turn: bool) -> Iterator[Segment]:
        """The segment that a stack names."""
        if not isinstance(node, ast.Name):
            help = "for example `stack(before, layers * L, after)`, or `[first, second] * (L / 2)` of layers in turn"
            self._refuse(node, "a stack has segments, each so many times over", help)
            return
        definition = self.definitions.get(node.id)
        if definition is None:
            self._refuse(node, f"the segment `{node.id}` is not defined", suggestion(node.id, self.definitions) or f"`def {node.id}():`")
            return
        called = [self._called(stmt, blocks) for stmt in definition.body]
        yield Segment(name=node.id, times=times, blocks=tuple(b for b in called if b is not None), in_turn=in_turn)

    def _called(self, stmt: ast.stmt, blocks: Mapping[str, Block]) -> Block | None:
        """The block that a line of a segment calls, with what it reads and gives as it is meant."""
        match stmt:
            case ast.Assign(targets=[ast.Name(id=target)], value=ast.Call(func=ast.Name(id=name), args=args, keywords=[])):
                block = blocks.get(name)
                if block is None:
                    self._refuse(stmt, f"there is no block `{name}`", suggestion(name, blocks) or f"define it: `def {name}():`")
                    return None
                (line,) = _segment_text(Segment(name="one", times=expression("1"), blocks=(block,))).splitlines()[1:]
                if f"{target} = {name}({', '.join(ast.unparse(a) for a in args)})" != line.strip():
                    self._refuse(stmt, f"`{name}` reads and gives something else", f"`{line.strip()}`")
                return block
        self._refuse(stmt, "a segment calls blocks, one a line", "for example `n = rms_norm(x)`")
        return None

    def _check(self, linked: Linked) -> None:
        """What lines say of one another."""
        known = set(linked.weights())
        for call in self.groups:
            for block, weight in _members(call.args[1]):
                if (block, weight) not in known:
                    listed = [f"{b}.{w}" for b, w in known]
                    self._refuse(call, f"there is no weight `{block}.{weight}`", suggestion(f"{block}.{weight}", listed) or "name a weight")
        used = {*linked.blocks, *(s.name for s in linked.stack)}
        for name, node in () if self.problems.found else self.definitions.items():
            if name not in used:
                self._refuse(node, f"nothing calls `{name}`", "a segment calls blocks, and `stack(...)` lists segments")
        for one in linked.blocks.values():
            for dim in dict.fromkeys(d for d in dimensions(one.program) if d not in linked.sizes):
                self._refuse(self.definitions[one.name], f"nothing says the size of `{dim}`", f"for example `size({dim}, h)`")


def _is_block(node: ast.FunctionDef) -> bool:
    """Whether a definition has tensors of its own; a segment calls blocks."""
    return any(isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and getattr(s.value.func, "id", "") == "tensor" for s in node.body)


def _group(call: ast.Call) -> str:
    """The name of a group."""
    return ast.unparse(call.args[0])


def _is_members(size: ast.expr) -> bool:
    """Whether a group's size is a sum of weights."""
    return all(isinstance(n, ast.Attribute) for n in _terms(size)) or (isinstance(size, ast.Constant) and size.value == 0)


def _terms(size: ast.expr) -> Iterator[ast.expr]:
    if isinstance(size, ast.BinOp) and isinstance(size.op, ast.Add):
        yield from _terms(size.left)
        size = size.right
    yield size


def _members(size: ast.expr) -> Iterator[tuple[str, str]]:
    for term in _terms(size):
        if isinstance(term, ast.Attribute) and isinstance(term.value, ast.Name):
            yield term.value.id, term.attr


def _constant(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None
