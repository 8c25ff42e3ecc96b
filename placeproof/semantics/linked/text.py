"""Linked programs as text: printed, and read back."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from placeproof.core.diagnostics import Place, Problems, suggestion
from placeproof.models import Block, Segment
from placeproof.models.expressions import Expression, expression
from placeproof.models.family import GROUPS
from placeproof.models.programs import output, rows_reached, weights
from placeproof.programs import parse, read, render
from placeproof.programs.wellformed import check_into
from placeproof.semantics.linked.claims import with_sums, without_sums
from placeproof.semantics.linked.data import Linked, splitting

if TYPE_CHECKING:
    from placeproof.core.mesh import Axis

#: Lines of a linked program that others do not have, in the order in which they are printed.
LINES = ("model", "values", "size", "shared", "recompute", "ring", "pipeline", "stages", "stack")
#: What a block gives -> what the next one reads it as.
_WIRES = {"y": "x", "n": "n"}


def is_linked(text: str) -> bool:
    """Whether a text defines blocks: a step program does not."""
    return any(line.startswith(("def ", "stack(")) for line in text.splitlines())


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
        yield f"recompute({', '.join(linked.recompute)})"
    if linked.ring:
        yield f"ring({', '.join(linked.ring)})"
    if linked.stages is not None:
        yield f"pipeline({linked.stages.name}, schedule={_quoted(linked.schedule)}, chunks={linked.chunks})"
    if linked.layers is not None:
        yield f"stages({', '.join(map(str, linked.layers))})"
    yield f"stack({', '.join(map(_times_over, linked.stack))})"


def _times_over(segment: Segment) -> str:
    times = str(segment.times)
    return segment.name if times == "1" else f"{segment.name} * {times if times.isalnum() else f'({times})'}"


def _with_members(line: str, linked: Linked) -> str:
    """A line of the step; the size of a group is that of its weights."""
    for name, members in linked.members.items():
        before, size = f"group({name}, ", f"P_{name}"
        if line.startswith(before + size):
            return before + (" + ".join(f"{block}.{weight}" for block, weight in members) or "0") + line[len(before + size) :]
    return line


def _block_text(block: Block) -> str:
    body = [line for line in render(without_sums(block.program)).splitlines() if not line.startswith(("program(", "mesh(", "splits("))]
    first = next(i for i, line in enumerate(body) if not line.startswith("tensor("))
    kinds = [f"weights({kind}, {', '.join(own)})" for kind in GROUPS if (own := [w for w, k in block.groups.items() if k == kind])]
    return "\n    ".join([f"def {block.name}():", *body[:first], *kinds, *body[first:]])


def _segment_text(segment: Segment) -> str:
    calls = []
    for block in segment.blocks:
        read_as = [wire for wire in _WIRES.values() if any(t.name == wire for t in block.program.tensors)]
        calls.append(f"{_WIRES[output(block.program) or 'y']} = {block.name}({', '.join(read_as)})")
    return "\n    ".join([f"def {segment.name}():", *calls])


# Reading.


def read_linked(text: str, *, source: str = "<program>") -> Linked:
    """Read a linked program. Raises InputError with every problem of the first of its parts that has some."""
    return _Reader(text, source).linked()


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
        self.problems.raise_if_any()

    def _sorted(self, node: ast.stmt) -> None:
        """What is not the step's is taken out of its text, so that every line keeps its number."""
        match node:
            case ast.FunctionDef(name=name):
                if name in self.definitions:
                    self._refuse(node, f"`{name}` is defined twice", "give each block, and each segment, a name of its own")
                self.definitions[name] = node
            case ast.Expr(value=ast.Call(func=ast.Name(id=name)) as call) if name in LINES:
                if name in self.calls and name != "size":
                    self._refuse(node, f"`{name}(...)` is said twice", "say it once")
                self.calls.setdefault(name, []).append(call)
            case ast.Expr(value=ast.Call(func=ast.Name(id="group"), args=[ast.Name(id=name), size, *_]) as call) if _is_members(size):
                self.groups.append(call)
                line = self.lines[size.lineno - 1]
                self.step_lines[size.lineno - 1] = line[: size.col_offset] + f"P_{name}" + line[size.end_col_offset :]
                return
            case _:
                return
        for number in range(node.lineno - 1, node.end_lineno or node.lineno):
            self.step_lines[number] = ""

    def _refuse(self, node: ast.AST, message: str, help: str) -> None:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        end = getattr(node, "end_col_offset", len(text)) if getattr(node, "end_lineno", line) == line else len(text)
        place = Place(source=self.source, line=line, column=column + 1, length=max(1, end - column), text=text)
        self.problems.add("PP311", message, place=place, help=help)

    def linked(self) -> Linked:
        step = read("\n".join(self.step_lines) + "\n", source=self.source)
        stack = self._only("stack")
        blocks: dict[str, Block] = {}
        with self.problems.collecting():
            axes = splitting(step)
            blocks = {name: self._block(node, axes) for name, node in self.definitions.items() if _is_block(node)}
        self.problems.raise_if_any()
        segments = tuple(self._segments(stack, blocks))
        model, pipeline = self._only("model"), self._only("pipeline")
        said = {k.arg: _constant(k.value) for call in (model, pipeline) if call for k in call.keywords}
        found = Linked(
            model=str(_constant(model.args[0])) if model and model.args else step.name,
            title=str(said.get("title", "")),
            source=str(said.get("source", "")),
            note=str(said.get("note", "")),
            step=step,
            stack=segments,
            sizes=dict(self._sizes()),
            values=self._values(),
            members={call.args[0].id: tuple(_members(call.args[1])) for call in self.groups if isinstance(call.args[0], ast.Name)},
            shared=self._names("shared"),
            recompute=self._names("recompute") or ("none",),
            schedule=str(said.get("schedule", "1f1b")),
            chunks=int(str(said.get("chunks", 1))),
            layers=self._numbers("stages"),
            ring=self._names("ring"),
        )
        self._check(found)
        self.problems.raise_if_any()
        return found

    def _only(self, name: str) -> ast.Call | None:
        return next(iter(self.calls.get(name, ())), None)

    def _names(self, name: str) -> tuple[str, ...]:
        call = self._only(name)
        return tuple(a.id for a in call.args if isinstance(a, ast.Name)) if call else ()

    def _numbers(self, name: str) -> tuple[int, ...] | None:
        call = self._only(name)
        return None if call is None else tuple(int(str(_constant(a))) for a in call.args)

    def _values(self) -> dict[str, int]:
        call, found = self._only("values"), dict[str, int]()
        for keyword in call.keywords if call else ():
            value = _constant(keyword.value)
            if not isinstance(value, int) or keyword.arg is None:
                self._refuse(keyword.value, "a symbol has a whole number", "for example `values(h=4096)`")
            else:
                found[keyword.arg] = value
        return found

    def _expression(self, node: ast.expr) -> Expression:
        try:
            return expression(ast.unparse(node))
        except ValueError as error:
            self._refuse(node, str(error), "a size is made of symbols, whole numbers and + - * /")
            return expression("1")

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
        body[0] = f"program({_quoted(node.name)}); mesh({', '.join(a.name for a in axes)})"
        for stmt in node.body:
            if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call) and getattr(stmt.value.func, "id", "") == "weights":
                kinds |= self._kinds(stmt.value)
                continue
            for number in range(stmt.lineno - 1, stmt.end_lineno or stmt.lineno):
                body[number] = self.lines[number][node.body[0].col_offset :]
        program = replace(with_sums(parse("\n".join(body) + "\n", source=self.source)), axes=tuple(axes))
        check_into(program, self.problems)
        own = weights(program)
        for weight in own:
            if weight.name not in kinds:
                message = f"`{node.name}` does not say what its weight `{weight.name}` is"
                self._refuse(node, message, f"`weights({GROUPS[0]}, {weight.name})`")
        groups = {w.name: kinds[w.name] for w in own if w.name in kinds}
        return Block(name=node.name, program=program, weights=own, groups=groups, reached=rows_reached(program))

    def _kinds(self, call: ast.Call) -> dict[str, str]:
        names = [a.id for a in call.args if isinstance(a, ast.Name)]
        if not names or names[0] not in GROUPS:
            help = suggestion(names[0], GROUPS) if names else None
            self._refuse(call, f"weights are of one of {', '.join(GROUPS)}", help or "`weights(matrix, w)`")
            return {}
        return dict.fromkeys(names[1:], names[0])

    def _segments(self, stack: ast.Call | None, blocks: Mapping[str, Block]) -> Iterator[Segment]:
        if stack is None:
            self.problems.add("PP311", "nothing says which segments the model has", help="`stack(before, layers * L, after)`")
            return
        for node in stack.args:
            match node:
                case ast.Name(id=name):
                    times = expression("1")
                case ast.BinOp(left=ast.Name(id=name), op=ast.Mult(), right=number):
                    times = self._expression(number)
                case _:
                    self._refuse(node, "a stack has segments, each so many times over", "for example `stack(before, layers * L, after)`")
                    continue
            definition = self.definitions.get(name)
            if definition is None:
                self._refuse(node, f"the segment `{name}` is not defined", suggestion(name, self.definitions) or f"`def {name}():`")
                continue
            called = [self._called(stmt, blocks) for stmt in definition.body]
            yield Segment(name=name, times=times, blocks=tuple(b for b in called if b is not None))

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
        known = set(linked.weights())
        for call in self.groups:
            for block, weight in _members(call.args[1]):
                if (block, weight) not in known:
                    names = [f"{b}.{w}" for b, w in known]
                    self._refuse(
                        call, f"there is no weight `{block}.{weight}`", suggestion(f"{block}.{weight}", names) or "name a block's weight"
                    )


def _is_block(node: ast.FunctionDef) -> bool:
    """Whether a definition has tensors of its own; a segment calls blocks."""
    return any(isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and getattr(s.value.func, "id", "") == "tensor" for s in node.body)


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
