"""Simple commands: functions, what a shell does itself, and programs that are run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from placeproof.importers.shell.conditions import UNCLEAR, YES, Status
from placeproof.importers.shell.source import Function, Source, commands
from placeproof.importers.shell.values import Array, Open, Span, State, Table, Text, UnreadError, Word, anything, joined, plain, together
from placeproof.importers.shell.walk.builtins import BUILTINS, Builtins
from placeproof.importers.shell.walk.declarations import DECLARING, Parts
from placeproof.importers.shell.walk.frames import DEEPEST, Command, Frame
from placeproof.importers.shell.words.cursor import NAME
from placeproof.importers.shell.words.expander import Expander

if TYPE_CHECKING:
    from tree_sitter import Node

_Part = TypeVar("_Part")

#: Commands of a shell that change nothing of what is known.
_HARMLESS = frozenset((
    "echo", "cd", "pushd", "popd", "pwd", "dirs", "ulimit", "umask", "wait", "kill", "jobs", "bg", "fg", "disown",
    "hash", "type", "times", "caller", "bind", "complete", "compgen", "alias", "unalias", "history", "suspend",
    "logout", "help",
))  # fmt: skip
_SHELLS = ("bash", "sh", "zsh", "dash")
#: What starts a program somewhere else, or with other variables.
_ELSEWHERE = ("ssh", "pdsh", "docker", "podman", "sudo", "kubectl", "clush", "parallel", "xargs", "env", "ray", "su")
#: Programs by whose names no sourced file calls a function.
_PROGRAMS = frozenset((
    "python", "python3", "torchrun", "srun", "mpirun", "mpiexec", "deepspeed", "accelerate", "mkdir", "cp", "mv",
    "rm", "cat", "tee", "date", "sleep", "ls", "ln", "grep", "sed", "awk", "find", "head", "tail", "wc", "tr", "cut",
    "sort", "nvidia-smi", "git", "pip", "pip3", "hostname", "scontrol", "numactl", "nohup", "time", "touch", "chmod",
    "realpath", "dirname", "basename", "which", "lscpu", "uname", "clear", "module", "ml", "conda", "micromamba",
    "spack", "curl", "wget", "unzip", "tar", "ps", "pkill", "killall", "ifconfig", "ip", "df", "du", "free", "lspci",
    "make", "cmake", "seq", "shuf", "tac", "xargs", "rsync", "scp", "ssh", "docker", "podman", "singularity",
    "apptainer", "enroot", "sbatch", "squeue", "scancel", "sinfo", "sacct", "jq", "yq", "id", "whoami", "printenv",
    "stdbuf", "tmux", "nsys", "rocm-smi", "npu-smi", "hl-smi", "redis-cli", "wandb", "hf", "huggingface-cli", "aws",
    "gsutil", "gcloud", "azcopy", "install", "expr", "bc",
))  # fmt: skip
_REDIRECT = re.compile(r"(\d+)?(<<<|<<-?|<>|>>|>\||>&|<&|&>>|&>|>|<)")
_HEREDOC = (
    "<<", "<<-", "heredoc_start", "heredoc_body", "heredoc_end", "file_redirect", "file_descriptor", "herestring_redirect", "pipeline",
    "word", "string", "concatenation", "number", "simple_expansion", "expansion", "raw_string",
)  # fmt: skip


class Shell(Builtins):
    """A script that is walked, with its simple commands."""

    def function(self, source: Source, node: Node) -> Status:
        """Define a function."""
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None or not re.fullmatch(r"[\w.:-]+", source.of(name)):
            raise UnreadError("this is not understood", source.place(node), source.name)
        if source.of(name) in (*DECLARING, "unset", "[", "test", "time"):
            raise UnreadError("a command of the shell is defined anew", source.place(node), source.name)
        self.state.functions[source.of(name)] = Function(source, body)
        return YES

    def redirected(self, source: Source, node: Node) -> Status:
        """A statement whose input or output are redirected."""
        body = node.child_by_field_name("body")
        if body is None or body.type in ("command", "declaration_command", "unset_command"):
            return self.command(source, node)
        status = self.statement(source, body)
        if not self.state.dead:
            parts = self._read_parts(source, source.range(body)[1], source.range(node)[1], node, declaring=False)
            if parts.words:
                raise UnreadError("words stand behind a redirection", source.place(node), source.name)
        return status

    def command(self, source: Source, node: Node) -> Status:
        """A simple command."""
        start, end = source.range(node)
        inner = next((child for child in node.children if child.type in ("declaration_command", "unset_command")), node)
        parts = self._read_parts(source, start, end, node, declaring=inner.type == "declaration_command")
        for child in node.children:
            if child.type == "heredoc_redirect":
                self._behind(source, child)
        if parts.declared is not None or not parts.words:
            return YES
        return self._run_words(parts, source, source.span(start, end))

    def _behind(self, source: Source, redirect: Node) -> None:
        """What stands behind the mark of a text that follows: a pipe."""
        for child in redirect.children:
            if child.type == "pipeline":
                for part in (part for part in child.children if part.type not in ("|", "|&")):
                    self.apart(source, part)
            elif child.type in ("&&", "||") or child.type not in _HEREDOC:
                raise UnreadError("this is not understood", source.place(child), source.name)

    # Reading.

    def _read_parts(self, source: Source, start: int, end: int, node: Node, *, declaring: bool) -> Parts:
        """Read the words of a command. Assignments without a command are done."""
        parts = Parts([], {})
        bodies = [child for redirect in node.children if redirect.type == "heredoc_redirect" for child in redirect.children]
        expander = Expander(source, self.state, start, end, self.nested)
        kept, has_name = self.state, any(child.type == "command_name" for child in _simple(node).children)
        if has_name and NAME.match(source.text, start):
            self.state = expander.state = kept.copy()
        while expander.blank():
            if self._redirect(expander, parts, bodies):
                continue
            if expander.text[expander.at] in "|;&\n" and bodies:
                break
            if declaring and parts.words:
                self._declare(expander, parts)
                continue
            if not parts.words and not declaring and self.assign(expander):
                continue
            if self.state is not kept:
                self._own(parts, source, start, expander.at)
                self.state = expander.state = kept
            parts.words += expander.word()
        self._settle(parts, source)
        return parts

    def _own(self, parts: Parts, source: Source, start: int, end: int) -> None:
        """The variables that are set for a command alone."""
        if ":=" in source.text[start:end] or "$((" in source.text[start:end]:
            raise UnreadError("an assignment in an assignment", source.span(start, end), source.name)
        names = re.findall(r"(?:^|(?<=\s))([A-Za-z_]\w*)\+?=", source.text[start:end])
        parts.own = {name: self.state.values[name] for name in names if name in self.state.values}

    def _redirect(self, expander: Expander, parts: Parts, bodies: Sequence[Node]) -> bool:
        match = _REDIRECT.match(expander.text, expander.at, expander.end)
        if match is None or (expander.at in expander.source.nested and not match[1]):
            return False
        expander.at = match.end()
        if match[2] in ("<<", "<<-"):
            line = expander.text.find("\n", expander.at)
            expander.end = min(expander.end, line) if line >= 0 else expander.end
            expander.blank()
            raw = re.compile(r"[^\s;&|<>()]+").match(expander.text, expander.at, expander.end)
            if raw is None:
                expander.refuse("this is not understood", match.start())
            expander.at = raw.end()
            parts.text = self._document(expander.source, bodies, match.start(), quoted=re.search(r"[\\'\"]", raw[0]) is not None)
            return True
        if not expander.blank():
            expander.refuse("a redirection has no file", match.start())
        text = joined([part for word in self._beside(expander, expander.word) for part in word.text])
        if match[2] == "<<<":
            parts.text = text
        return True

    def _document(self, source: Source, bodies: Sequence[Node], line: int, *, quoted: bool) -> Text | None:
        """The text that follows a command, if there is one alone."""
        texts = [child for child in bodies if child.type == "heredoc_body"]
        ends = [child for child in bodies if child.type == "heredoc_end" and source.of(child).strip()]
        if len(ends) != 1 or len(texts) > 1:
            raise UnreadError("the text that follows is not understood", source.span(line, line + 1), source.name)
        if not texts:
            return ()
        start, end = source.range(texts[0])
        if quoted:
            return joined([source.text[start:end]])
        expander = Expander(source, self.state, start, end, self.nested)
        return expander.flat(self._beside(expander, expander.document))

    def _beside(self, expander: Expander, part: Callable[[], list[_Part]]) -> list[_Part]:
        """Expand what is no word of a command. Whether what that assigns stays depends on the command."""
        before, begin = dict(expander.state.values), expander.at
        parts = part()
        if expander.state.values != before:
            expander.refuse("an assignment within a redirection", begin)
        return parts

    # Running.

    def _run_words(self, parts: Parts, source: Source, span: Span) -> Status:
        """Run a command by its words."""
        words, state = parts.words, self.state
        if any(word.loose for word in words[:1]):
            name = plain(words[1].text) if len(words) > 1 else None
            if name is not None and (name in BUILTINS or name in state.functions or name in DECLARING):
                raise UnreadError(f"whether `{name}` is run by something else is not known", span, source.name)
            return self._program_run(words, parts, source, span)
        name = plain(words[0].text)
        if name is None:
            return self._program_run(words, parts, source, span)
        if name == "coproc":
            raise UnreadError("this is not understood", span, source.name)
        if name == "time" and len(words) > 1:
            return self._run_words(replace(parts, words=words[2:] if plain(words[1].text) == "-p" else words[1:]), source, span)
        if name in state.functions:
            function = state.functions[name]
            if function is None:
                self.commands.append(Command(tuple(words), span, source.name, tuple(self.under)))
                self._changed_by(Open(name, span, f"`{name}` is a function that may be another one here"), span)
                return UNCLEAR
            return self._with_own(parts, lambda: self._call(function, tuple(words[1:]), source, span))
        if name in DECLARING:
            return self._declared_by_words(name, words, source, span)
        if name in _HARMLESS:
            return UNCLEAR if name != "echo" else YES
        if name in BUILTINS:
            run = BUILTINS[name]
            return self._with_own(parts, lambda: run(self, words[1:], source, span))
        return self._program_run(words, parts, source, span)

    def _with_own(self, parts: Parts, run: Callable[[], Status]) -> Status:
        """Run something with variables of its own, which are as before afterwards."""
        before = {name: (name in self.state.values, self.state.values.get(name)) for name in parts.own}
        exported = set(parts.own) - self.state.exported
        self.state.values |= parts.own
        self.state.exported |= set(parts.own)
        status = run()
        for name, (known, value) in before.items():
            if known:
                self.state.values[name] = value
            else:
                self.state.values.pop(name, None)
        self.state.exported -= exported
        return status

    def _call(self, function: Function, arguments: tuple[Word, ...], source: Source, span: Span) -> Status:
        """Call a function."""
        if sum(frame.kind == "function" for frame in self.frames) > DEEPEST:
            raise UnreadError("functions call one another too often", span, source.name)
        frame, outer = Frame("function"), self.state.arguments
        self.frames.append(frame)
        self.state.frames.append({})
        self.state.arguments = arguments
        status = self.statement(function.source, function.body)
        self.frames.pop()
        ends = [(self._returned(state, outer), status) for state, status in (*frame.left, (self.state, status))]
        self.state = together([state for state, _ in ends], "return", span)
        values = {(status.value, status.assumed) for state, status in ends if not state.dead}
        return next(status for state, status in ends if not state.dead) if len(values) == 1 else UNCLEAR

    def _returned(self, state: State, arguments: tuple[Word, ...] | None) -> State:
        """What is known once a function has ended."""
        for name, (known, value) in state.frames.pop().items():
            if known:
                state.values[name] = value
            else:
                state.values.pop(name, None)
            if not isinstance(value, Table):
                state.tables.discard(name)
        state.arguments = arguments
        return state

    # Programs.

    def _program_run(self, words: Sequence[Word], parts: Parts, source: Source, span: Span) -> Status:
        """Run a program, or the commands that a shell is given."""
        names = [(plain(word.text) or "").rpartition("/")[2] for word in words]
        at = next((at for at, name in enumerate(names) if name in _SHELLS or (name == "sbatch" and not at)), None)
        if not at and re.fullmatch(r"[\w./-]+\.(sh|slurm|sbatch|bash)", plain(words[0].text) or ""):
            return self._file(words, 0, [], parts, source, span)
        if at is not None and not any(name.endswith(".py") for name in names[:at]):
            return self._shell(words, at, parts, source, span)
        self.commands.append(Command(tuple(words), span, source.name, tuple(self.under)))
        first = plain(words[0].text)
        if self.state.foreign is not None and first is not None and "/" not in first and first not in _PROGRAMS:
            self._changed_by(Open(first, span, f"`{first}` may be a function that a file sets which is not read"), span)
        return UNCLEAR

    def _shell(self, words: Sequence[Word], at: int, parts: Parts, source: Source, span: Span) -> Status:
        """Run a shell: on a text, on a file, or on its input."""
        rest, options = list(words[at + 1 :]), ""
        while rest and (plain(rest[0].text) or "").startswith("-"):
            option = plain(rest.pop(0).text) or ""
            if option in ("-o", "+o", "--rcfile", "--init-file") or (plain(words[at].text) == "sbatch" and "=" not in option):
                rest = rest[1:]
            options += "" if option.startswith("--") else option[1:]
        before = words[:at]
        parts = replace(parts, flags={"e", "u", "f", "a"} & set(options))
        if plain(words[at].text) != "sbatch" and "c" in options:
            if not rest or any(word.loose for word in rest[:1]):
                raise UnreadError("which commands a shell is given is not known", span, source.name)
            several = (Word((Open("$@", span, "how many words a shell is given is open"),), loose=True),)
            given = several if any(word.loose for word in rest[1:2]) else tuple(rest[2:])
            return self._inside(rest[0].text, given, before, parts, source, span)
        if rest:
            return self._file(rest, 0, before, parts, source, span)
        if parts.text is not None:
            return self._inside(parts.text, (), before, parts, source, span)
        self.commands.append(Command(tuple(words), span, source.name, tuple(self.under)))
        return UNCLEAR

    def _file(self, words: Sequence[Word], at: int, before: Sequence[Word], parts: Parts, source: Source, span: Span) -> Status:
        """Run a script of its own."""
        file = self.files(words[at].text)
        if file is None:
            self.commands.append(Command((*before, *words), span, source.name, tuple(self.under)))
            return UNCLEAR
        if file[0] in self.reading or len(self.reading) > DEEPEST:
            raise UnreadError(f"`{file[0]}` runs itself", span, source.name)
        return self._child(Source(file[1], file[0]), tuple(words[at + 1 :]), before, parts, span)

    def _inside(self, text: Text, arguments: tuple[Word, ...], before: Sequence[Word], parts: Parts, source: Source, span: Span) -> Status:
        return self._child(commands(text, source.name, span), arguments, before, parts, span)

    def _child(self, source: Source, arguments: tuple[Word, ...], before: Sequence[Word], parts: Parts, span: Span) -> Status:
        """Walk what another shell runs. It knows what is exported."""
        elsewhere = any((plain(word.text) or "").rpartition("/")[2] in _ELSEWHERE or word.loose for word in before)
        child = Shell({}, self.files, jobs=self.state.jobs)
        child.commands, child.under, child.reading = [], list(self.under), [*self.reading, source.name]
        child.steps, child.depth = self.steps, self.depth
        values = self.state.values | parts.own
        exported = (self.state.exported | set(parts.own)) if not elsewhere else set()
        for name, value in values.items():
            if name in exported and isinstance(value, tuple | None):
                child.state.values[name] = value
            elif value is not None:
                why = "it is not known whether it is handed on" if elsewhere else "it is not exported"
                child.state.values[name] = (Open(f"${name}", span, why),)
        child.state.exported = {name for name in exported if name in values}
        child.state.functions = {n: f for n, f in self.state.functions.items() if f"{n}()" in self.state.exported}
        child.state.arguments = arguments
        child.state.foreign, child.state.flags = self.state.foreign, set(parts.flags)
        child.state.given, child.state.asked, child.state.used = self.state.given, self.state.asked, self.state.used
        child.run(source, source.root.children)
        self.steps = child.steps
        self.state.taken = {**child.state.taken, **self.state.taken}
        self.commands += [replace(command, words=(*before, *command.words)) for command in child.commands]
        return UNCLEAR

    def _changed_by(self, cause: Open, span: Span) -> None:
        """Something was run that may have set any variable."""
        for name, value in self.state.values.items():
            if name not in self.state.readonly:
                self.state.values[name] = anything(Open(f"${name}", span, cause.why), listed=isinstance(value, Array | Table))
        self.state.functions = dict.fromkeys(self.state.functions)
        self.state.foreign = cause


def _simple(node: Node) -> Node:
    """The command that is redirected."""
    return (node.child_by_field_name("body") or node) if node.type == "redirected_statement" else node
