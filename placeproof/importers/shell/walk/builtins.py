"""What a shell does itself: files that it sources, options, arguments, what ends it."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import NoReturn

from placeproof.importers.shell.conditions import NO, UNCLEAR, YES, Status, test
from placeproof.importers.shell.source import Source, commands
from placeproof.importers.shell.values import Array, Open, Span, UnreadError, Word, anything, joined, plain, shown, together
from placeproof.importers.shell.walk.declarations import Declarations, Parts
from placeproof.importers.shell.walk.frames import DEEPEST, Frame
from placeproof.importers.shell.words.cursor import NAME
from placeproof.importers.shell.words.expander import Expander

_SHOPT = frozenset(
    ["nullglob", "extglob", "dotglob", "globstar", "inherit_errexit", "failglob", "huponexit", "checkwinsize", "histappend", "nocaseglob"]
)
#: Files that set up the environment: what they set is outside of the script.
_ENVIRONMENT = re.compile(
    r"(.*/)?(bin/activate|etc/(profile|bash\.?\w*)(\..*)?|\.?(bashrc|bash_profile|profile|zshrc)|conda\.sh|setvars\.sh|set_env\.sh|activate"
    r"|init/\w*sh)|/etc/.*"
)
_OPTIONS = {"errexit": "e", "nounset": "u", "noglob": "f", "allexport": "a", "pipefail": "p"}
_NO_MATTER = {"x", "v", "b", "h", "m", "B", "C", "E", "T", "P", "H"}
_NO_MATTER_NAMES = {"xtrace", "verbose", "monitor", "noclobber", "errtrace", "functrace", "braceexpand", "history", "histexpand", "notify"}


class Builtins(Declarations):
    """Walks commands of the shell."""

    @abstractmethod
    def _run_words(self, parts: Parts, source: Source, span: Span) -> Status:
        """Run a command by its words."""

    @abstractmethod
    def _program_run(self, words: Sequence[Word], parts: Parts, source: Source, span: Span) -> Status:
        """Run a program, or the commands that a shell is given."""

    @abstractmethod
    def _changed_by(self, cause: Open, span: Span) -> None:
        """Something was run that may have set any variable."""

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
        if file[0] in self.reading or len(self.reading) > DEEPEST:
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
        self._program_run(words, Parts(list(words), {}), source, span)
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
        given = self.state.positional()
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
        return self._run_words(Parts(list(words), {}), source, span)

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


_Builtin = Callable[[Builtins, Sequence[Word], Source, Span], Status]


def _leaving(kind: str) -> _Builtin:
    return lambda shell, words, source, span: shell._left(words, source, span, kind)


BUILTINS: dict[str, _Builtin] = {
    "source": Builtins._sourced, ".": Builtins._sourced, "eval": Builtins._evaluated, "exec": Builtins._executed, "exit": Builtins._exited,
    "return": _leaving("return"), "break": _leaving("break"), "continue": _leaving("continue"), "shift": Builtins._shifted,
    "set": Builtins._options, "shopt": Builtins._shopt, "trap": Builtins._trapped, "read": Builtins._read, "mapfile": Builtins._mapped,
    "readarray": Builtins._mapped,
    "getopts": Builtins._getopts, "printf": Builtins._printed, "let": Builtins._let, "test": Builtins._tested, "[": Builtins._bracketed,
    "command": Builtins._bypassed, "builtin": Builtins._bypassed, "unset": Builtins._unset, "true": lambda *_: YES, ":": lambda *_: YES,
    "false": lambda *_: NO, "enable": Builtins._enabled,
}  # fmt: skip
