"""The training program that a launch script starts: its arguments as a document, and the number of devices.

What the script does not say is open. An open value of a setting that decides something is a problem; another one is listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from placeproof.core.diagnostics import InputError, Place, Problems
from placeproof.core.files import read_bytes, read_text
from placeproof.core.places import KeyPath
from placeproof.importers.document import Document
from placeproof.importers.fields import Field
from placeproof.importers.imported import Reading, Role
from placeproof.importers.settings import settings
from placeproof.importers.shell.devices import allocated, variables, world
from placeproof.importers.shell.programs import Program, option_names, programs
from placeproof.importers.shell.script import Command
from placeproof.importers.shell.simple import Shell
from placeproof.importers.shell.source import FIRST_OPEN, LAST_OPEN, Source
from placeproof.importers.shell.values import Open, Span, Text, UnreadError, Word, opens, plain, shown

_ALONE = "give the arguments alone, `--name value`, with the values of variables written in, as the script hands them to the program"
_OWN = r"""dirname\s+(--\s+)?["']?(\$0|\$\{0\}|\$BASH_SOURCE|\$\{BASH_SOURCE(\[0\])?\})["']?"""
_QUIETLY = r"(\s*(&>|1?>|2>)\s*(/dev/null|&1))*"
#: How a script says the folder that it lies in. What goes on from there is another folder.
_HERE = re.compile(rf"""\$\({_OWN}\)|`{_OWN}`|\$\(\s*cd\s+(--\s+)?"?\$\({_OWN}\)"?{_QUIETLY}\s*(&&|;)\s*pwd(\s+-[PL])?{_QUIETLY}\s*\)""")
#: What the notes of settings begin with that say a model's shape, and so numbers.
_SHAPE = "the model's shape"
#: So many commands are named.
_MOST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a script starts. ``world``: the number of devices, None where it does not say; ``open``: what else is to be known of it."""

    document: Document
    world: int | None
    open: tuple[Reading, ...] = ()
    place: Place | None = None

    def told(self, world: int | None) -> tuple[Reading, ...]:
        """What else is to be known of it. ``world``: the number of devices that is taken instead."""
        if self.world is None:
            return self.open
        note = "as the script starts it" if world in (None, self.world) else f"as the script starts it; {world} is taken, as `--world` says"
        reading = Reading(
            name="devices", value=self.world, role=Role.READ, note=note, place=self.place, told=world not in (None, self.world)
        )
        return (reading, *self.open)


def launch(text: str, source: str, problems: Problems) -> Launch | None:
    """The one program with Megatron's arguments that a script starts. None where there is none, or not one: then that is a problem."""
    if _strange(text, source, problems):
        return None
    files = _Files(source, {source: text})
    directives = allocated(text)
    shell = Shell(variables(directives), files.read, jobs=directives is not None)
    shell.reading.append(source)
    options = re.match(r"#!\S*(?:\s+(?!-)\S+)?((?:\s+-\w+)*)", text)
    shell.state.flags |= {"e", "u", "f", "a"} & set(options[1] if options else "")
    try:
        script = Source(text, source)
        shell.run(script, script.root.children)
    except UnreadError as error:
        place = _place(error.source, files.texts.get(error.source, text), error.span)
        problems.add("PP501", f"a construct of a shell is not read: {error.message}", place=place, help=_ALONE)
        return None
    program = _chosen(shell, files, source, problems)
    if program is None:
        return None
    found = _Arguments(program.command.source, files.texts.get(program.command.source, text), problems)
    found.read(program.arguments)
    return Launch(
        document=found.document(),
        world=world(program.before, directives or {}),
        open=(*found.open, *_circumstances(shell, program, files)),
        place=_place(program.command.source, found.text, program.command.span),
    )


def _strange(text: str, source: str, problems: Problems) -> bool:
    """Whether a script has characters that make it another one to a shell than it looks."""
    raw = text.encode()
    if Path(source).is_file():
        raw = read_bytes(source, code="PP501", help="give a readable file")
    if b"\r" in raw:
        at, what = (1, 1, 1), "its lines end as those of Windows do, and a shell takes that as part of words"
    elif (strange := next((char for char in text if FIRST_OPEN <= ord(char) <= LAST_OPEN), None)) is not None:
        at, what = _at(text, strange), "it has a character for private use"
    else:
        return False
    problems.add("PP501", what, place=_place(source, text, at), help="write it without")
    return True


class _Files:
    """Files beside a script that it reads or runs. They are read as text, and from the folders around the script alone."""

    def __init__(self, source: str, texts: dict[str, str]) -> None:
        self.folder = Path(source).parent if Path(source).is_file() else None
        self.texts = texts

    def read(self, name: Text) -> tuple[str, str] | None:
        """The path and the text of a file, by its name in the script. None where it is not known, or not there."""
        if self.folder is None:
            return None
        parts = list(name)
        if len(parts) == 2 and isinstance(parts[0], Open) and _HERE.fullmatch(parts[0].name) and isinstance(parts[1], str):
            paths = [self.folder / parts[1].lstrip("/")]
        elif (text := plain(name)) is not None and text and not text.startswith(("/", "~")):
            paths = [folder / text for folder in (self.folder, *self.folder.resolve().parents)][:6]
        else:
            return None
        there = [path for path in paths if path.is_file()]
        if len({path.resolve() for path in there}) != 1:
            return None
        try:
            text = read_text(str(there[0]), code="PP501", help="give a readable file")
        except InputError:
            return None
        self.texts[str(there[0])] = text
        return str(there[0]), text


# The program.


def _chosen(shell: Shell, files: _Files, source: str, problems: Problems) -> Program | None:
    """The one program that a script trains with. None where that is a problem."""
    started = programs(shell.commands)
    text = files.texts[source]
    place = Place(source=source, line=1, column=1, text=(text.splitlines() or [""])[0])
    if not started:
        others = [_named(command) for command in shell.commands if _of_interest(command)]
        ran = f"; it runs {', '.join(others[:_MOST])}" if others else ""
        unread = f"; it reads {', '.join(f'`{name}`' for name, _, _ in shell.unread)}, which is not read here" if shell.unread else ""
        if shell.state.dead and shell.ended is not None:
            asked = ", ".join(f"`{name}`" for name in list(shell.state.taken)[:_MOST])
            unread += f"; it ends in line {shell.ended[0]}" + (f" where these are not set: {asked}" if asked else "")
        message = f"no program is found that is given Megatron-LM's arguments{ran}{unread}"
        problems.add("PP501", message, place=place, help=_ALONE)
        return None
    forks = [program for program in started if program.fork]
    if forks:
        first = forks[0]
        at = _place(first.command.source, files.texts.get(first.command.source, text), first.command.span)
        message = f"this starts {first.fork}: {first.why}, and the other arguments are not read as Megatron-LM reads them"
        problems.add("PP501", message, place=at, help="what it trains is not known here; write the strategy down")
        return None
    if len(started) > 1:
        lines = ", ".join(_told_apart(program, started) for program in started[:_MOST])
        more = f", and {len(started) - _MOST} others" if len(started) > _MOST else ""
        message = f"it starts {len(started)} programs with different arguments, or one of these: {lines}{more}"
        problems.add("PP501", message, place=place, help="give the arguments of the one that is meant, or a script that starts it alone")
        return None
    return started[0]


def _told_apart(program: Program, others: Sequence[Program]) -> str:
    """A program by its name and its line, and by what it alone is given where others have the same name."""
    name, line = _named(program.command), f"in line {program.command.span[0]}"
    alike = [other for other in others if other is not program and _named(other.command) == name]
    shared = [part for other in alike for part in _chunks(other)]
    own = [part for part in _chunks(program) if shared.count(part) < len(alike)]
    if not alike or not own:
        return f"{name} {line}"
    return f"{name} {line} with `{' '.join(own[:2])}`"


def _chunks(program: Program) -> tuple[str, ...]:
    """Each option of a command with its values."""
    words = [shown(word.text) for word in program.command.words]
    starts = [at for at, word in enumerate(words) if word.startswith("-")]
    return tuple(dict.fromkeys(" ".join(words[at:to]) for at, to in zip((0, *starts), (*starts, len(words)), strict=True)))


def _named(command: Command) -> str:
    name = " ".join(shown(word.text) for word in command.words[:3])
    return f"`{name if len(name) < 60 else name[:57] + '...'}`"


def _of_interest(command: Command) -> bool:
    """Whether a command may start a training."""
    text = " ".join(shown(word.text) for word in command.words)
    return re.search(r"\.(py|sh|slurm|sbatch)\b|torchrun|srun|deepspeed|accelerate|\bray\b|mpirun", text) is not None


def _circumstances(shell: Shell, program: Program, files: _Files) -> Iterator[Reading]:
    """What else decides what is run: conditions, files that are not read, variables that are taken as not set."""
    source = program.command.source
    place = _place(source, files.texts.get(source, ""), program.command.span)
    for condition in dict.fromkeys(program.command.under):
        yield Reading(name=condition, value="?", role=Role.NO_MATTER, note="whether it is run depends on that", place=place)
    for name, span, where in shell.unread:
        at = _place(where, files.texts.get(where, ""), span)
        yield Reading(
            name=f"source {name}",
            value="?",
            role=Role.NO_MATTER,
            note="not read: it sets up the environment, or what it may set is open",
            place=at,
        )
    taken = [name for name in shell.state.taken if name != "$@"]
    if taken:
        note = "not set outside of the script, as it is taken: its defaults hold"
        yield Reading(name="variables from outside", value=", ".join(sorted(taken)), role=Role.READ, note=note, place=place, told=True)


# Arguments.


@dataclass(slots=True)
class _Option:
    """One argument with its values, and what is open of them."""

    name: str
    word: Word
    values: list[Text] = field(default_factory=list)


class _Arguments:
    """Arguments, as they are read one after the other."""

    def __init__(self, source: str, text: str, problems: Problems) -> None:
        self.source, self.text, self.problems = source, text, problems
        self.fields: dict[str, Field] = {name: row for row in settings("megatron") for name in row.names}
        self.data: dict[str, Any] = {}
        self.spans: dict[KeyPath, Span] = {}
        self.again: set[str] = set()
        self.unknown: dict[str, str] = {}
        self.open: list[Reading] = []
        self.line: Span = (1, 1, 1)

    def document(self) -> Document:
        """What is known of them."""
        return Document(
            data=self.data, source=self.source, text=self.text, spans=self.spans, again=frozenset(self.again), bare=True, open=self.unknown
        )

    def read(self, arguments: tuple[tuple[Word, ...], Span]) -> None:
        """Read all."""
        words, self.line = arguments
        option: _Option | None = None
        for word in words:
            first = word.text[0] if word.text and isinstance(word.text[0], str) else ""
            name = re.match(r"--([^=]+)(=)?", first)
            if name is not None and (name[2] or len(word.text) == 1):
                self._put(option)
                option = _Option(name[1].replace("-", "_"), word)
                if name[2]:
                    rest = first[name.end() :]
                    option.values.append((*((rest,) if rest else ()), *word.text[1:]))
                    self._put(option)
                    option = None
            elif opens(word.text) and not self._takes(option, word):
                self._put(option)
                option = None
                self._further(word)
            elif option is not None:
                option.values.append(word.text)
            else:
                self._stray(word)
        self._put(option)

    def _takes(self, option: _Option | None, word: Word) -> bool:
        """Whether a word of which something is open is a value of the option before it."""
        if option is None or any(next(option_names(part), None) for part in opens(word.text)):
            return False
        row = self.fields.get(option.name)
        if row is not None and row.kinds == ("bool",):
            return False
        return not option.values or row is None or "list" in row.kinds

    def _stray(self, word: Word) -> None:
        message = f"`{shown(word.text)}` belongs to no `--name`"
        self.problems.add("PP501", message, place=self._place(), help="is a backslash or a quote missing?")

    def _put(self, option: _Option | None) -> None:
        if option is None:
            return
        name, row = option.name, self.fields.get(option.name)
        texts = [shown(value) for value in option.values]
        value: Any = texts if len(texts) > 1 else texts[0] if texts else True
        unknown = [part for text in option.values for part in opens(text)]
        if (name,) in self.spans:
            self.again.add(name)
        self.spans[(name,)] = self.line
        self.data[name] = value
        self.unknown.pop(name, None)
        if not unknown or row is None:
            return
        if row.role is Role.NO_MATTER:
            self.unknown[name] = f"the script does not say it: {unknown[0].why}"
            return
        self._unsaid(name, unknown[0])
        self.unknown[name] = "the script does not say it"

    def _unsaid(self, name: str, part: Open) -> None:
        flag = name.replace("_", "-")
        message = f"`--{flag}` is `{part.name}`, and the script does not say what that is: {part.why}"
        variable = re.fullmatch(r"\$\{?(\w+)\}?", part.name)
        example = f", or set it in the script, `{variable[1]}=8`" if variable and not variable[1].isdigit() else ""
        remedy = "put it in quotes" if part.why.startswith("it stands for names of files") else f"write the value in its place{example}"
        self.problems.add("PP501", message, place=self._place(part.span), help=remedy)

    def _further(self, word: Word) -> None:
        """What may be any arguments, or none."""
        for part in opens(word.text):
            if part.sides:
                for name in dict.fromkeys(option_names(part)):
                    self._perhaps(name, part)
            elif part.unset and len(word.text) == 1:
                note = "may be further arguments: taken as none, as it is not set in the script"
                reading = Reading(name=part.name, value="?", role=Role.ANOTHER_STEP, note=note, place=self._place(part.span))
                self.open += [reading] if part.name not in {known.name for known in self.open} else []
            else:
                message = f"`{part.name}` may be any arguments, and the script does not say which: {part.why}"
                self.problems.add("PP501", message, place=self._place(part.span), help="write them in its place")

    def _perhaps(self, name: str, part: Open) -> None:
        """An argument that may be handed over, or not."""
        row, flag = self.fields.get(name), name.replace("_", "-")
        if row is not None and row.role is Role.NO_MATTER and not row.note.startswith(_SHAPE):
            note = f"whether it is handed over, or with which value, is open: {part.why}"
            self.open.append(Reading(name=name, value="?", role=Role.NO_MATTER, note=note, place=self._place(part.span)))
            return
        message = f"whether `--{flag}` is handed over, or with which value, is open: {part.why}"
        self.problems.add("PP501", message, place=self._place(part.span), help="write the branch that is meant, without the condition")

    def _place(self, span: Span | None = None) -> Place:
        return _place(self.source, self.text, span or self.line)


def _place(source: str, text: str, span: Span) -> Place:
    line, column, length = span
    lines = text.splitlines()
    return Place(source=source, line=line, column=column, length=length, text=lines[line - 1] if line <= len(lines) else "")


def _at(text: str, char: str) -> Span:
    before = text[: text.index(char)]
    return before.count("\n") + 1, len(before) - before.rfind("\n"), 1
