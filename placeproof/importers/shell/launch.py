"""The training program that a launch script starts: its arguments as a document, and the number of devices.

What the script does not say is open. An open value of a setting that decides something is a problem; another one is listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from placeproof.core.diagnostics import InputError, Place, Problems, suggestion
from placeproof.core.files import is_file, read_bytes, read_text
from placeproof.importers.document import Document
from placeproof.importers.imported import Reading, Role
from placeproof.importers.shell.arguments import Arguments, Overrides, in_source
from placeproof.importers.shell.devices import allocated, variables, world
from placeproof.importers.shell.programs import Program, programs
from placeproof.importers.shell.source import FIRST_OPEN, LAST_OPEN, Source
from placeproof.importers.shell.values import Open, Span, Text, UnreadError, plain, shown
from placeproof.importers.shell.walk.frames import Command
from placeproof.importers.shell.walk.simple import Shell

_ALONE = "give the arguments alone, `--name value`, with the values of variables written in, as the script hands them to the program"
_OWN = r"""dirname\s+(--\s+)?["']?(\$0|\$\{0\}|\$BASH_SOURCE|\$\{BASH_SOURCE(\[0\])?\})["']?"""
_QUIETLY = r"(\s*(&>|1?>|2>)\s*(/dev/null|&1))*"
#: How a script says the folder that it lies in. What goes on from there is another folder.
_HERE = re.compile(rf"""\$\({_OWN}\)|`{_OWN}`|\$\(\s*cd\s+(--\s+)?"?\$\({_OWN}\)"?{_QUIETLY}\s*(&&|;)\s*pwd(\s+-[PL])?{_QUIETLY}\s*\)""")
#: So many commands are named.
_MOST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a script starts. ``world``: the number of devices, None where it does not say; ``open``: what else is to be known of it."""

    system: str
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


def launch(text: str, source: str, problems: Problems, env: Sequence[str] = ()) -> Launch | None:
    """The one program whose arguments are read that a script starts. None where there is none, or not one: then that is a problem.

    ``env``: variables that are set when it is started, ``NAME=VALUE``, and its arguments by their numbers, ``1=VALUE``.
    """
    environment = _environment(env, problems)
    if _strange(text, source, problems) or problems.found:
        return None
    files = _Files(source, {source: text})
    directives = allocated(text)
    shell = Shell({**variables(directives), **environment}, files.read, jobs=directives is not None)
    shell.reading.append(source)
    options = re.match(r"#!\S*(?:\s+(?!-)\S+)?((?:\s+-\w+)*)", text)
    shell.state.flags |= {"e", "u", "f", "a"} & set(options[1] if options else "")
    try:
        script = Source(text, source)
        shell.run(script, script.root.children)
    except UnreadError as error:
        place = in_source(error.source, files.texts.get(error.source, text), error.span)
        problems.add("PP501", f"a construct of a shell is not read: {error.message}", place=place, help=_ALONE)
        return None
    program = _chosen(shell, files, source, problems)
    if program is None or not _read(shell, environment, problems):
        return None
    kind = Overrides if program.system == "verl" else Arguments
    found = kind(program.system, program.command.source, files.texts.get(program.command.source, text), problems)
    found.read(program.arguments)
    return Launch(
        system=program.system,
        document=found.document(),
        world=world(program.before, directives or {}),
        open=(*found.open, *_circumstances(shell, program, files, environment)),
        place=in_source(program.command.source, found.text, program.command.span),
    )


def _strange(text: str, source: str, problems: Problems) -> bool:
    """Whether a script has characters that make it another one to a shell than it looks."""
    raw = text.encode()
    if is_file(source):
        raw = read_bytes(source, code="PP501", help="give a readable file")
    if b"\r" in raw:
        at, what = (1, 1, 1), "its lines end as those of Windows do, and a shell takes that as part of words"
    elif (strange := next((char for char in text if FIRST_OPEN <= ord(char) <= LAST_OPEN), None)) is not None:
        at, what = _at(text, strange), "it has a character for private use"
    else:
        return False
    problems.add("PP501", what, place=in_source(source, text, at), help="write it without")
    return True


class _Files:
    """Files beside a script that it reads or runs. They are read as text, and from the folders around the script alone."""

    def __init__(self, source: str, texts: dict[str, str]) -> None:
        self.folder = Path(source).parent if is_file(source) else None
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
        there = [path for path in paths if is_file(path)]
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
        at = in_source(first.command.source, files.texts.get(first.command.source, text), first.command.span)
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


def _environment(texts: Sequence[str], problems: Problems) -> dict[str, str]:
    """Variables by their names, then arguments by their numbers, in order."""
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not re.fullmatch(r"[A-Za-z_]\w*|[1-9]\d?", name, re.ASCII):
            help = "for example `--env TP_SIZE=4`, and `--env 1=4` for the script's first argument"
            problems.add("PP505", f"`--env {text}` names no variable with a value", help=help)
        else:
            found[name] = value
    numbers = sorted(int(name) for name in found if name.isdigit())
    if numbers != list(range(1, len(numbers) + 1)):
        missing = next(number for number in range(1, len(numbers) + 1) if number not in numbers)
        problems.add("PP505", f"`--env {numbers[-1]}=...` without an argument before it", help=f"say `--env {missing}=...`, too")
    return {**{name: value for name, value in found.items() if not name.isdigit()}, **{str(n): found[str(n)] for n in numbers}}


def _read(shell: Shell, environment: Mapping[str, str], problems: Problems) -> bool:
    """Whether the script reads all that is said of its environment. What it does not read is a problem."""
    asked = sorted(shell.state.asked | {name.removeprefix("$") for name in shell.state.taken})
    for name in environment:
        used = "@" if name.isdigit() else name
        if used not in shell.state.used:
            help = suggestion(name, asked) or ("it asks for " + ", ".join(asked[:_MOST]) if asked else "it asks for nothing from outside")
            problems.add("PP505", f"the script never reads `${name}` as it is set outside of it", help=help)
    return not problems.found


def _circumstances(shell: Shell, program: Program, files: _Files, environment: Mapping[str, str]) -> Iterator[Reading]:
    """What else decides what is run: conditions, files that are not read, variables that are taken as not set."""
    source = program.command.source
    place = in_source(source, files.texts.get(source, ""), program.command.span)
    for condition in dict.fromkeys(program.command.under):
        yield Reading(name=condition, value="?", role=Role.NO_MATTER, note="whether it is run depends on that", place=place)
    for name, span, where in shell.unread:
        at = in_source(where, files.texts.get(where, ""), span)
        yield Reading(
            name=f"source {name}",
            value="?",
            role=Role.NO_MATTER,
            note="not read: it sets up the environment, or what it may set is open",
            place=at,
        )
    if environment:
        said = ", ".join(f"${name} = {value}" for name, value in environment.items())
        yield Reading(name="environment", value=said, role=Role.READ, note="as `--env` says", place=place, told=True)
    taken = [name for name in shell.state.taken if name != "$@"]
    if taken:
        note = "not set outside of the script, as it is taken: its defaults hold"
        yield Reading(name="variables from outside", value=", ".join(sorted(taken)), role=Role.READ, note=note, place=place, told=True)


def _at(text: str, char: str) -> Span:
    before = text[: text.index(char)]
    return before.count("\n") + 1, len(before) - before.rfind("\n"), 1
