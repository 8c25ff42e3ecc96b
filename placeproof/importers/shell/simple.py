"""Simple commands: functions, what a shell does itself, and programs that are run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn, TypeVar

from placeproof.importers.shell.conditions import NO, UNCLEAR, YES, Status, test
from placeproof.importers.shell.script import Command, Frame, Script
from placeproof.importers.shell.source import Function, Source, commands
from placeproof.importers.shell.values import (
    Array,
    Open,
    Span,
    State,
    Table,
    Text,
    UnreadError,
    Value,
    Word,
    anything,
    joined,
    plain,
    shown,
    together,
)
from placeproof.importers.shell.words import NAME, Expander

if TYPE_CHECKING:
    from tree_sitter import Node

_Part = TypeVar("_Part")

_DEEPEST = 30
#: Commands of a shell that change nothing of what is known.
_HARMLESS = frozenset((
    "echo", "cd", "pushd", "popd", "pwd", "dirs", "ulimit", "umask", "wait", "kill", "jobs", "bg", "fg", "disown",
    "hash", "type", "times", "caller", "bind", "complete", "compgen", "alias", "unalias", "history", "suspend",
    "logout", "help",
))  # fmt: skip
_DECLARING = ("export", "declare", "typeset", "local", "readonly")
_SHOPT = frozenset(
    ["nullglob", "extglob", "dotglob", "globstar", "inherit_errexit", "failglob", "huponexit", "checkwinsize", "histappend", "nocaseglob"]
)
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
#: Files that set up the environment: what they set is outside of the script.
_ENVIRONMENT = re.compile(
    r"(.*/)?(bin/activate|etc/(profile|bash\.?\w*)(\..*)?|\.?(bashrc|bash_profile|profile|zshrc)|conda\.sh|setvars\.sh|set_env\.sh|activate"
    r"|init/\w*sh)|/etc/.*"
)
_REDIRECT = re.compile(r"(\d+)?(<<<|<<-?|<>|>>|>\||>&|<&|&>>|&>|>|<)")
_OPTIONS = {"errexit": "e", "nounset": "u", "noglob": "f", "allexport": "a", "pipefail": "p"}
_NO_MATTER = {"x", "v", "b", "h", "m", "B", "C", "E", "T", "P", "H"}
_NO_MATTER_NAMES = {"xtrace", "verbose", "monitor", "noclobber", "errtrace", "functrace", "braceexpand", "history", "histexpand", "notify"}


@dataclass(slots=True)
class _Parts:
    """A simple command as it is read: variables of its own, words, and the text that it is given as input."""

    words: list[Word]
    own: dict[str, Value]
    text: Text | None = None
    declared: list[tuple[str, bool]] | None = None
    pending: list[tuple[str, object, Span]] = field(default_factory=list)
    #: Options of a shell that is run.
    flags: set[str] = field(default_factory=set)


class Shell(Script):
    """A script that is walked, with its simple commands."""

    def function(self, source: Source, node: Node) -> Status:
        """Define a function."""
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None or not re.fullmatch(r"[\w.:-]+", source.of(name)):
            raise UnreadError("this is not understood", source.place(node), source.name)
        if source.of(name) in (*_DECLARING, "unset", "[", "test", "time"):
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

    def _read_parts(self, source: Source, start: int, end: int, node: Node, *, declaring: bool) -> _Parts:
        """Read the words of a command. Assignments without a command are done."""
        parts = _Parts([], {})
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

    def _settle(self, parts: _Parts, source: Source) -> None:
        """Declare variables, once everything is expanded."""
        names = [name for name, _, _ in parts.pending]
        lists = any(isinstance(value, Array | Table) for _, value, _ in parts.pending)
        if len(set(names)) < len(names) or (lists and len(names) > 1):
            raise UnreadError("what is declared together is not understood", parts.pending[0][2], source.name)
        options = {option for option, _ in parts.declared or ()}
        for name, value, span in parts.pending:
            self._declared(plain(parts.words[0].text) or "", options, name, value, source, span)

    def _own(self, parts: _Parts, source: Source, start: int, end: int) -> None:
        """The variables that are set for a command alone."""
        if ":=" in source.text[start:end] or "$((" in source.text[start:end]:
            raise UnreadError("an assignment in an assignment", source.span(start, end), source.name)
        names = re.findall(r"(?:^|(?<=\s))([A-Za-z_]\w*)\+?=", source.text[start:end])
        parts.own = {name: self.state.values[name] for name in names if name in self.state.values}

    def _redirect(self, expander: Expander, parts: _Parts, bodies: Sequence[Node]) -> bool:
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

    def _declare(self, expander: Expander, parts: _Parts) -> None:
        """One argument of `export`, `declare`, `local` or `readonly`."""
        source, keyword = expander.source, plain(parts.words[0].text) or ""
        if parts.declared is None:
            parts.declared = []
        options = {option for option, _ in parts.declared}
        begin = expander.at
        name = NAME.match(source.text, begin)
        if "A" in options and name is not None:
            self.state.tables.add(name[0])
        if self.assign(expander, lambda name, value, span: parts.pending.append((name, value, span))):
            return
        for word in expander.word():
            text = plain(word.text)
            if text is None or word.loose:
                raise UnreadError("what is declared is not known", source.span(begin, expander.at), source.name)
            self._declare_word(keyword, text, parts, options, source, source.span(begin, expander.at))

    def _declare_word(self, keyword: str, text: str, parts: _Parts, options: set[str], source: Source, span: Span) -> None:
        if re.fullmatch(r"[-+][a-zA-Z]+|--", text):
            if not set(text[1:]) <= set("aAixrgpfFn-") or (text[0] == "+" and text != "+x") or ("n" in text and keyword != "export"):
                raise UnreadError("this option is not understood", span, source.name)
            assert parts.declared is not None
            parts.declared += [(letter, True) for letter in text[1:]]
            return
        name, sign, value = text.partition("=")
        if not NAME.fullmatch(name):
            if options & set("fFp"):
                self.state.exported |= {f"{name}()"} if keyword == "export" else set()
                return
            raise UnreadError("what is declared is not known", span, source.name)
        if sign:
            if "A" in options or "a" in options or isinstance(self.state.values.get(name), Array | Table):
                raise UnreadError("a list is declared by a text", span, source.name)
            parts.pending.append((name, (value,) if value else (), span))
        elif not options & set("fFp"):
            parts.pending.append((name, ..., span))
        elif keyword == "export":
            self.state.exported.add(f"{name}()")

    def _declared(self, keyword: str, options: set[str], name: str, value: object, source: Source, span: Span) -> None:
        """Declare a variable, with a value or without (``...``)."""
        state = self.state
        local = keyword == "local" or (keyword in ("declare", "typeset") and "g" not in options and bool(state.frames))
        if keyword == "local" and not state.frames:
            raise UnreadError("`local` stands outside of a function", span, source.name)
        if local and name not in state.frames[-1]:
            if name in state.readonly | state.integers:
                raise UnreadError(f"`{name}` cannot be assigned", span, source.name)
            state.frames[-1][name] = (name in state.values, state.values.get(name))
            if value is ...:
                state.values[name] = None
        if "i" in options:
            if state.frames or name in state.tables:
                raise UnreadError("a variable of numbers is declared in a function", span, source.name)
            state.integers.add(name)
        if "A" in options:
            state.tables.add(name)
            value = Table({}) if value is ... and not isinstance(state.values.get(name), Table) else value
        elif "a" in options and value is ... and not isinstance(state.values.get(name), Array):
            value = Array(()) if state.values.get(name) is None and (local or name in state.values) else ...
        if value is not ...:
            self.put(name, value, source, span)  # type: ignore[arg-type]
        if keyword == "export" or "x" in options:
            (state.exported.discard if "n" in options else state.exported.add)(name)
        if keyword == "readonly" or "r" in options:
            state.readonly.add(name)

    # Running.

    def _run_words(self, parts: _Parts, source: Source, span: Span) -> Status:
        """Run a command by its words."""
        words, state = parts.words, self.state
        if any(word.loose for word in words[:1]):
            name = plain(words[1].text) if len(words) > 1 else None
            if name is not None and (name in _BUILTINS or name in state.functions or name in _DECLARING):
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
        if name in _DECLARING:
            return self._declared_by_words(name, words, source, span)
        if name in _HARMLESS:
            return UNCLEAR if name != "echo" else YES
        if name in _BUILTINS:
            run = _BUILTINS[name]
            return self._with_own(parts, lambda: run(self, words[1:], source, span))
        return self._program_run(words, parts, source, span)

    def _declared_by_words(self, name: str, words: Sequence[Word], source: Source, span: Span) -> Status:
        parts = _Parts([*words[:1]], {}, declared=[])
        for word in words[1:]:
            text = plain(word.text)
            if text is None or word.loose:
                raise UnreadError("what is declared is not known", span, source.name)
            self._declare_word(name, text, parts, {option for option, _ in parts.declared or ()}, source, span)
        self._settle(parts, source)
        return YES

    def _with_own(self, parts: _Parts, run: Callable[[], Status]) -> Status:
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
        if sum(frame.kind == "function" for frame in self.frames) > _DEEPEST:
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

    def _program_run(self, words: Sequence[Word], parts: _Parts, source: Source, span: Span) -> Status:
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

    def _shell(self, words: Sequence[Word], at: int, parts: _Parts, source: Source, span: Span) -> Status:
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

    def _file(self, words: Sequence[Word], at: int, before: Sequence[Word], parts: _Parts, source: Source, span: Span) -> Status:
        """Run a script of its own."""
        file = self.files(words[at].text)
        if file is None:
            self.commands.append(Command((*before, *words), span, source.name, tuple(self.under)))
            return UNCLEAR
        if file[0] in self.reading or len(self.reading) > _DEEPEST:
            raise UnreadError(f"`{file[0]}` runs itself", span, source.name)
        return self._child(Source(file[1], file[0]), tuple(words[at + 1 :]), before, parts, span)

    def _inside(self, text: Text, arguments: tuple[Word, ...], before: Sequence[Word], parts: _Parts, source: Source, span: Span) -> Status:
        return self._child(commands(text, source.name, span), arguments, before, parts, span)

    def _child(self, source: Source, arguments: tuple[Word, ...], before: Sequence[Word], parts: _Parts, span: Span) -> Status:
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

    # What a shell does itself.

    def _refuse(self, message: str, source: Source, span: Span) -> NoReturn:
        raise UnreadError(message, span, source.name)

    def _texts(self, words: Sequence[Word], source: Source, span: Span) -> list[str]:
        """Words that are known."""
        texts = [plain(word.text) for word in words if not word.loose]
        if len(texts) < len(words) or None in texts:
            self._refuse("what a command of the shell is given is not known", source, span)
        return [text for text in texts if text is not None]

    def _sourced(self, words: Sequence[Word], source: Source, span: Span) -> Status:
        if not words:
            return NO
        file = self.files(words[0].text)
        if file is None:
            name = shown(words[0].text)
            if not _ENVIRONMENT.fullmatch(name):
                self._changed_by(Open(name, span, f"`{name}` may set it, which is not read"), span)
            self.unread.append((name, span, source.name))
            return UNCLEAR
        if file[0] in self.reading or len(self.reading) > _DEEPEST:
            self._refuse(f"`{file[0]}` reads itself", source, span)
        inner, frame, outer = Source(file[1], file[0]), Frame("source"), self.state.arguments
        self.reading.append(file[0])
        self.frames.append(frame)
        if len(words) > 1:
            self.state.arguments = tuple(words[1:])
        status = self.run(inner, inner.root.children)
        self.frames.pop()
        self.reading.pop()
        self.state = together([*(state for state, _ in frame.left), self.state], "return", span)
        if len(words) > 1:
            self.state.arguments = outer
        return status if not frame.left else UNCLEAR

    def _evaluated(self, words: Sequence[Word], source: Source, span: Span) -> Status:
        text = joined(part for number, word in enumerate(words) for part in ([" "] if number else []) + list(word.text))
        inner = commands(text, source.name, span)
        status = self.run(inner, inner.root.children)
        if plain(text) is None:  # what is open of it may set anything, besides what it runs
            name = f"eval {shown(text)}"
            self._changed_by(Open(name, span, f"`{name}` may set it, which is not known"), span)
            self.unread.append((name, span, source.name))
            return UNCLEAR
        return status

    def _executed(self, words: Sequence[Word], source: Source, span: Span) -> Status:
        if not words:
            return YES
        if (plain(words[0].text) or "").startswith("-"):
            self._refuse("this is not understood", source, span)
        self._program_run(words, _Parts(list(words), {}), source, span)
        self.state.dead = self.state.replaced = True
        return UNCLEAR

    def _exited(self, _words: Sequence[Word], _source: Source, span: Span) -> Status:
        self.state.dead = True
        self.ended = span
        return UNCLEAR

    def _left(self, words: Sequence[Word], source: Source, span: Span, kind: str) -> Status:
        """`return`, `break` and `continue`."""
        texts = self._texts(words, source, span) if kind != "return" else []
        kinds = ("function", "source") if kind == "return" else ("loop",)
        count = int(texts[0]) if texts and texts[0].isdecimal() else 1
        for frame in reversed(self.frames):
            if frame.kind == "shell" or (frame.kind in ("function", "source") and kind != "return"):
                break
            if frame.kind in kinds:
                count -= 1
                if count <= 0:
                    self._leave(frame, words, kind)
                    return UNCLEAR
        if not any(frame.kind == "shell" for frame in self.frames):
            self._refuse(f"`{kind}` stands where nothing can be left", source, span)
        self.state.dead = True
        return UNCLEAR

    def _leave(self, frame: Frame, words: Sequence[Word], kind: str) -> None:
        code = plain(words[0].text) if words and kind == "return" else None
        status = UNCLEAR if code is None or not code.isdecimal() else YES if int(code) % 256 == 0 else NO
        if kind == "continue":
            frame.again.append(self.state.copy())
        else:
            frame.left.append((self.state.copy(), status))
        self.state.dead = True

    def _shifted(self, words: Sequence[Word], source: Source, span: Span) -> Status:
        texts = self._texts(words, source, span)
        count = int(texts[0]) if texts and texts[0].isdecimal() else 1
        given = self.state.arguments
        if given is None:
            return UNCLEAR
        if any(word.loose for word in given[:count]) or (count > len(given) and any(word.loose for word in given)):
            self._refuse("what is shifted is not known", source, span)
        if count > len(given):
            return NO
        self.state.arguments = given[count:]
        return YES

    def _options(self, words: Sequence[Word], source: Source, span: Span) -> Status:
        """`set`."""
        at = 0
        while at < len(words):
            text = plain(words[at].text)
            if text is None or words[at].loose:
                self._refuse("what `set` is given is not known", source, span)
            if text == "--":
                self.state.arguments = tuple(words[at + 1 :])
                return YES
            if not re.fullmatch(r"[-+][A-Za-z]+", text):
                break
            for letter in text[1:]:
                if letter == "o":
                    at += 1
                    self._option((plain(words[at].text) or "?") if at < len(words) else "xtrace", text[0] == "-", source, span)
                else:
                    self._flag(letter, text[0] == "-", source, span)
            at += 1
        if at < len(words):
            if plain(words[at].text) in ("-", "+"):
                self._refuse("this is not understood", source, span)
            self.state.arguments = tuple(words[at:])
        return YES

    def _option(self, name: str, on: bool, source: Source, span: Span) -> None:
        if name in _OPTIONS:
            self._flag(_OPTIONS[name], on, source, span)
        elif name not in _NO_MATTER_NAMES:
            self._refuse(f"the option `{name}` is not understood", source, span)

    def _flag(self, letter: str, on: bool, source: Source, span: Span) -> None:
        if letter in _OPTIONS.values():
            (self.state.flags.add if on else self.state.flags.discard)(letter)
        elif letter not in _NO_MATTER:
            self._refuse(f"the option `{letter}` is not understood", source, span)

    def _shopt(self, words: Sequence[Word], source: Source, span: Span) -> Status:
        texts = self._texts(words, source, span)
        names = [text for text in texts if not text.startswith("-")]
        if not set(names) <= _SHOPT or not {text for text in texts if text.startswith("-")} <= {"-s", "-u", "-q", "-p"}:
            self._refuse("this option of the shell is not understood", source, span)
        return UNCLEAR if "-q" in texts else YES

    def _trapped(self, words: Sequence[Word], source: Source, span: Span) -> Status:
        if not words or (plain(words[0].text) or "").startswith("-"):
            return YES
        signals = {text.upper().removeprefix("SIG") for text in self._texts(words[1:], source, span)}
        if signals & {"DEBUG", "RETURN"}:
            self._refuse("what is run between commands is not understood", source, span)
        if words[0].loose:
            self._refuse("which commands are run is not known", source, span)
        inner = commands(words[0].text, source.name, span)
        self.under.append(f"trap ... {' '.join(sorted(signals))}")
        before, kept = self.state, self.state.copy()
        self.state = kept
        if not signals & {"ERR"}:
            self.apart(source, inner.root, nodes=inner.root.children, inner=inner)
        else:
            self.run(inner, inner.root.children)
            if not self.state.dead and self.state.values != before.values:
                self._refuse("what is run after a failure changes variables", source, span)
        self.state = before
        self.under.pop()
        return YES

    def _read(self, words: Sequence[Word], source: Source, span: Span) -> Status:
        """Variables of which what they hold is read."""
        texts = [plain(word.text) for word in words]
        if None in texts:
            texts = [text for text, word in zip(texts, words, strict=True) if text is not None or word.loose]
            if None in texts:
                self._refuse("which variables are read is not known", source, span)
        names = [text for text in texts if text is not None and NAME.fullmatch(text)]
        listed = any(re.fullmatch(r"-\w*a\w*", text) for text in texts if text is not None)
        for name in (*names, "REPLY"):
            self.put(name, anything(Open(f"${name}", span, "it is read when the script runs"), listed=listed), source, span)
        return UNCLEAR

    def _mapped(self, words: Sequence[Word], source: Source, span: Span) -> Status:
        names = [text for text in self._texts(words, source, span) if NAME.fullmatch(text)] or ["MAPFILE"]
        for name in names:
            value = Word((Open(f"${{{name}[@]}}", span, "it is read when the script runs"),), loose=True)
            self.put(name, Array((value,)), source, span)
        return UNCLEAR

    def _getopts(self, words: Sequence[Word], source: Source, span: Span) -> Status:
        texts = self._texts(words[:2], source, span)
        if len(texts) < 2:
            return NO
        outside = self.state.arguments is None and self.state.foreign is None
        for name in (texts[1], "OPTARG"):
            self.put(name, (Open(f"${name}", span, "it is handed to the script when it is started"),), source, span)
        return Status(False, True, (Open("$@", span, "it is handed to the script", unset=True),)) if outside else UNCLEAR

    def _printed(self, words: Sequence[Word], source: Source, span: Span) -> Status:
        if words and plain(words[0].text) == "-v":
            return self._read(words[1:2], source, span)
        if words and not any(isinstance(part, str) for part in words[0].text) and words[0].text:
            self._refuse("what is printed, and where, is not known", source, span)
        return YES

    def _let(self, words: Sequence[Word], source: Source, span: Span) -> Status:
        status = NO
        for text in self._texts(words, source, span):
            inner = Source(text, source.name, span, parse=False)
            number = Expander(inner, self.state, 0, len(text)).number_of((text,), 0)
            status = UNCLEAR if isinstance(number, Open) else Status(number != 0)
        return status

    def _tested(self, words: Sequence[Word], source: Source, span: Span) -> Status:
        inner = Source("", source.name, span, parse=False)
        return test(words, Expander(inner, self.state, 0, 0))

    def _bracketed(self, words: Sequence[Word], source: Source, span: Span) -> Status:
        if not words or plain(words[-1].text) != "]":
            self._refuse("this test is not understood", source, span)
        return self._tested(words[:-1], source, span)

    def _bypassed(self, words: Sequence[Word], source: Source, span: Span) -> Status:
        """`command` and `builtin`."""
        if not words:
            return YES
        name = plain(words[0].text)
        if name is None or words[0].loose or (name.startswith("-") and name not in ("-v", "-V")):
            self._refuse("this is not understood", source, span)
        if name in ("-v", "-V"):
            return UNCLEAR
        if name in self.state.functions:
            self._refuse("a function is passed over", source, span)
        return self._run_words(_Parts(list(words), {}), source, span)

    def _unset(self, words: Sequence[Word], source: Source, span: Span) -> Status:
        texts = self._texts(words, source, span)
        for text in texts:
            if text == "-f":
                for name in texts:
                    self.state.functions.pop(name, None)
                return YES
            if text == "-v":
                continue
            if not NAME.fullmatch(text) or self.state.frames:
                self._refuse("this is not understood", source, span)
            if text in self.state.functions and text not in self.state.values:
                self._refuse("whether a function or a variable is unset is not known", source, span)
            self.state.integers.discard(text)
            self.put(text, None, source, span)
            self.state.tables.discard(text)
        return YES

    def _enabled(self, _words: Sequence[Word], source: Source, span: Span) -> Status:
        self._refuse("this is not understood", source, span)


def _simple(node: Node) -> Node:
    """The command that is redirected."""
    return (node.child_by_field_name("body") or node) if node.type == "redirected_statement" else node


_HEREDOC = (
    "<<", "<<-", "heredoc_start", "heredoc_body", "heredoc_end", "file_redirect", "file_descriptor", "herestring_redirect", "pipeline",
    "word", "string", "concatenation", "number", "simple_expansion", "expansion", "raw_string",
)  # fmt: skip
_Builtin = Callable[[Shell, Sequence[Word], Source, Span], Status]


def _leaving(kind: str) -> _Builtin:
    return lambda shell, words, source, span: shell._left(words, source, span, kind)


_BUILTINS: dict[str, _Builtin] = {
    "source": Shell._sourced, ".": Shell._sourced, "eval": Shell._evaluated, "exec": Shell._executed, "exit": Shell._exited,
    "return": _leaving("return"), "break": _leaving("break"), "continue": _leaving("continue"), "shift": Shell._shifted,
    "set": Shell._options, "shopt": Shell._shopt, "trap": Shell._trapped, "read": Shell._read, "mapfile": Shell._mapped,
    "readarray": Shell._mapped,
    "getopts": Shell._getopts, "printf": Shell._printed, "let": Shell._let, "test": Shell._tested, "[": Shell._bracketed,
    "command": Shell._bypassed, "builtin": Shell._bypassed, "unset": Shell._unset, "true": lambda *_: YES, ":": lambda *_: YES,
    "false": lambda *_: NO, "enable": Shell._enabled,
}  # fmt: skip
