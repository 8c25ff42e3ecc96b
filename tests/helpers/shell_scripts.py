"""Random scripts of a shell in the ways that people write them, and in wrong ways; what is read of a script, and whether bash agrees."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from placeproof.importers.shell.source import Source
from placeproof.importers.shell.values import Open, Word
from placeproof.importers.shell.walk.simple import Shell

_LITERALS = [
    "a",
    "8",
    "--x",
    "x=1",
    "foo_bar",
    "1.5",
    "/p/q",
    "a,b",
    "--k=v",
    "007",
    "-n",
    "=",
    "!",
    "x.y",
    "q:r",
    "a-b",
    "ab*",
    "[x]",
    "?",
    "10",
]
_SIGNS = ["+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^", "&&", "||", "==", "!=", "<", "<=", ">", ">=", "**", ","]
_ODD = [
    "a\\ b", "\\$S", "\\*", "a\\\\b", '\\"', "\\'", "$'t\\tu'", "$", "a$", "\\\n  z", '$"hi"', "~", "~/x", "{a,b}", "a{1..3}", "{}", "{a}",
    "{1..8..3}", "{01..10..4}", "x{b,c}{1..2}", "{c..a}", "{a..e..2}", "{a..Z}", "{-2..2}", "{a,{b,c}d}", "{,x}", "{a}{b,c}", "{{a,b}",
    "{a,b}}", "{$N,2}", '"{a,b}"', "{1..$N}", "{'a b',c}", "--k={a,b}", "{a,b}$S", "{1..3..0}", "{a,\\,b}", "{a..}", "{+1..2}",
    "a~b", "x=~/y", "#c", "a#b", "*", "zz?",
]  # fmt: skip
_QUOTED = ["'a b'", "'$S'", "''", "'--x 1'", "'\"'", '""', "'\\'", "'*'"]
_DEFAULTS = [
    "8",
    "",
    "d e",
    '"d e"',
    "$N",
    "${T}",
    "'q r'",
    "a$S",
    '"$S"',
    "${U:-3}",
    "x\\ y",
    '"a"b',
    "--f 1",
    "$((N+1))",
    "$((N*(M+1)))",
    "$(( (N+1)*2 ))",
]
_PATTERNS = ["a", "*", "?", "x*", "*x", "[a-f]*", "*o", '"*"', "$N", "*=", "[!a]", "/*", "*/", "*[0-9]", "'a'", " *", "* "]
_SETTINGS = [
    "declare -i N; N=M*2", "declare -i X1=N+1; X1+=2", "declare -i M=T",
       "set -e", "set -u", "set -f", "set +f", "set +e", "shift", "set -euo pipefail", "set -o noglob", "set -x", "shopt -s nullglob",
    "set -a",     "IFS=,", "IFS=' '", "IFS=$' \\t\\n'", "unset IFS", "set a b", "set -- a 'b c'", "cd /", "wait",
]  # fmt: skip
_SINGLE = [
    "exit", "trap 'torchrun end' EXIT", "torchrun a \\\n  # c \\\n  --z", "torchrun a \\\n  b", "torchrun $( : ) a", "X1=$(torchrun in)",
    'declare -A D=([a]=1 [b c]="$S"); torchrun ${D[a]} "${D[$T]}"', "S=lost &", "getopts ab: o", "while getopts a o; do N=9; done",
    'while read L; do S=$L; done <<< "$T"', 'mapfile -t A <<< "$S"', "torchrun; torchrun b", "true | S=5", "echo torchrun > f",
    "while [ $# -gt 0 ]; do case $1 in a) N=5; shift ;; *) shift ;; esac; done", 'for P in "$@"; do torchrun $P; done',
]  # fmt: skip
_WRONG = "'\"$(){}[]\\ \n;&|#*=`<!~,:@-+ab1"


class Scripts:
    """Random scripts. What they launch is `torchrun`."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.functions: list[str] = []
        self.depth = self.inside = 0

    def made(self, *, wrong: float = 0.15) -> str:
        """One script; with that probability one with a mistake."""
        lines = ["S='x y'", "T=a", "U=", "N=4", "M=3", "P=T", "A=(--a 1 'p q')", "B=()"]
        for _ in range(self.rng.randint(2, 9)):
            lines += self.statement()
        text = "\n".join([*lines, f"torchrun {self.words(6)}"]) + "\n"
        return self.mistaken(text) if self.rng.random() < wrong else text

    def mistaken(self, text: str) -> str:
        """With a character too many or too few."""
        for _ in range(self.rng.randint(1, 2)):
            at = self.rng.randrange(55, len(text))
            added = self.rng.choice(("", self.rng.choice(_WRONG), text[at : at + 5]))
            text = text[:at] + added + text[at + (not added) :]
        return text

    def one(self, *options: str) -> str:
        """One of several."""
        return self.rng.choice(options)

    def name(self) -> str:
        """A variable."""
        return self.one("S", "T", "U", "X1", "N", "M")

    def arithmetic(self, depth: int = 0) -> str:
        """An expression."""
        chance = self.rng.random()
        if depth > 2 or chance < 0.3:
            return self.one("N", "M", "$N", "${M}", "1", "2", "3", "07", "0x1F", "N1", "5", "08" if chance < 0.01 else "4")
        inner = [self.arithmetic(depth + 1) for _ in range(3)]
        if chance < 0.75:
            return f"{inner[0]} {self.one(*_SIGNS)} {inner[1]}"
        if chance < 0.9:
            return self.one(f"({inner[0]})", f"{self.one(*'-!~+')}{inner[0]}", f"{inner[0]} ? {inner[1]} : {inner[2]}")
        return self.one("N++", "++M", f"N {self.one('=', '+=', '-=', '*=')} {inner[0]}")

    def expansion(self) -> str:
        """A variable, as it is or changed."""
        name, chance = self.one(self.name(), self.name(), "OUT1", "1", "2", "Z9"), self.rng.random()
        if chance < 0.3:
            return self.one(f"${name}", f"${{{name}}}")
        if chance < 0.5:
            signs = (":-", "-", ":+", "+") if name.isdigit() else (":-", "-", ":+", "+", ":=", "=")
            return f"${{{name}{self.one(*signs)}{self.one(*_DEFAULTS)}}}"
        if chance < 0.75:
            return self.one(
                f"${{#{name}}}", f"${{{name}{self.one('#', '##', '%', '%%')}{self.one(*_PATTERNS)}}}",
                f"${{{name}{self.one('/', '//', '/#', '/%')}{self.one(*'ax*?o ')}/{self.one('', 'z', 'y y')}}}",
                f"${{{name}:{self.one('0', '1', 'N', ' -1')}{self.one('', ':1', ':2', ':0', ':-1')}}}",
                f"${{{self.name()}{self.one('^^', ',,', '^', ',')}}}", "${!P}",
            )  # fmt: skip
        if chance < 0.95:
            array = self.one("A", "B")
            return self.one(
                f"${{{array}[{self.one('0', '1', '2', '$N', '-1', 'N-3')}]}}", f"${{{array}[{self.one('@', '*')}]}}", f"${{#{array}[@]}}",
                f"${{{array}[@]{self.one(':1', ':1:1', ':0:2', '#a', '%x', '/a/b', ':-d', ':+d')}}}",
                self.one("$#", "$@", "$*", "${@:2}", "${@:1:1}", "${*}", "${#@}"),
            )  # fmt: skip
        return f"$(( {self.arithmetic()} ))"

    def quoted(self) -> str:
        """What stands within quotes."""
        parts = [self.one(*_LITERALS), " ", "  ", "\\$", '\\"', "\\\\", "\\a", "'", "\\\n", "#", "*", "$", "\n", "}", "{"]
        return "".join(self.one(*parts, *(self.expansion() for _ in range(8))) for _ in range(self.rng.randint(0, 4)))

    def word(self) -> str:
        """An argument, which may come to none or to several."""
        chance = self.rng.random()
        if chance < 0.75:
            return self.one(self.one(*_LITERALS), f'"{self.quoted()}"', self.one(*_QUOTED), self.expansion())
        if chance < 0.82:
            return self.one(*_ODD)
        pieces = [self.one(self.one(*_LITERALS), f'"{self.quoted()}"', self.expansion(), "'q'") for _ in range(self.rng.randint(2, 3))]
        return "".join(pieces)

    def words(self, most: int = 4) -> str:
        """Some arguments."""
        return " ".join(self.word() for _ in range(self.rng.randint(0, most)))

    def value(self) -> str:
        """What is assigned."""
        return self.one(self.word(), self.word(), f'"{self.quoted()}"', self.expansion(), "", "a:~/b")

    def condition(self) -> str:
        """A test."""
        left, right = self.expansion(), self.word()
        return self.one(
            f'[ "{left}" {self.one("=", "!=", "==")} {right} ]', f"[ {left} {self.one('-eq', '-lt', '-gt')} {self.one('4', '$M')} ]",
            f'[ {self.one("-n", "-z", "!")} "{left}" ]', f"[ {left} ]", f"[ -{self.one('z', 'n')} {left} ]", '[ -n "$S" -a $N -gt 1 ]',
            f'[ "$S" = a -o {left} = x ]', f"[ $# -lt {self.rng.randint(0, 3)} ]", "[ ]", f"test {left} = {right}",
            f"[[ {left} {self.one('==', '!=', '=')} {self.one(self.one(*_PATTERNS), right)} ]]", f"[[ {left} ]]", f"[[ -v {self.name()} ]]",
            f"[[ -{self.one('z', 'n')} {left} && {self.expansion()} {self.one('-eq', '-gt')} {self.one('3', 'N', 'M+1')} ]]",
            f"[[ {left} =~ {self.one('^a', '[0-9]+$', '^[0-9]+$', 'x|a', '^(a|b).*$', 'o.b')} ]]",
            f"[[ ! {left} == a* || ( -n $T && $N -ge 2 ) ]]", f"(( {self.arithmetic()} ))", "true", "false", "! true", ":",
            *self.functions, f"{self.name()}={self.value()}",
        )  # fmt: skip

    def launch(self) -> str:
        """A program that is run."""
        before = self.one("", "", "", "", "command ", "E=1 ", f"{self.name()}={self.value()} ", "exec " if self.rng.random() < 0.1 else "")
        after = self.one("", "", "", " > log", " 2>&1", " >> log 2>&1", " &> log", " < /dev/null", " # remark", ' <<< "$S"')
        return f"{before}torchrun {self.words()}{after}"

    def assignment(self) -> str:
        """A variable or a list that is assigned."""
        chance = self.rng.random()
        if chance < 0.6:
            name = self.name()
            number = self.one("1", "4", "16", "$((N+1))", f"$(({self.arithmetic()}))")
            return self.one(
                f"{name}={self.value()}", f"{name}+={self.value()}", f"N={number}", f"{name}={self.value()} {self.name()}={self.value()}"
            )
        if chance < 0.8:
            words, between = [self.word() for _ in range(self.rng.randint(0, 4))], self.one(" ", "\n  ", "  # c\n ")
            last = "\n" if "#" in between or self.rng.random() < 0.3 else ""
            return f"{self.one('A', 'B')}{self.one('=', '+=')}({between.join(words)}{last})"
        return self.one(
            f"A[{self.one('0', '1')}]{self.one('=', '+=')}{self.value()}", f"(( {self.arithmetic()} ))", "let N=N+1", "let 'N = 3'",
            f"printf -v {self.name()} %s a", f"read {self.name()} <<< x", f"unset {self.name()}", "unset A",
        )  # fmt: skip

    def declaration(self) -> str:
        """A variable that is declared."""
        name = self.name()
        kind = self.one(
            "export", "declare", "typeset", "local" if self.inside else "export", "readonly" if self.rng.random() < 0.2 else "export"
        )
        return f"{kind} {self.one(name, f'{name}={self.value()}', f'{name}={self.value()} {self.name()}={self.value()}')}"

    def block(self, most: int = 2) -> list[str]:
        """Some statements within another one."""
        self.depth += 1
        lines = [line for _ in range(self.rng.randint(1, most)) for line in self.statement()]
        self.depth -= 1
        return lines

    def statement(self) -> list[str]:
        """A few lines."""
        chance = self.rng.random()
        if self.depth > 2 or chance < 0.3:
            return [self.assignment()]
        if chance < 0.5:
            return [self.one(self.launch(), self.launch(), self.declaration(), self.one(*_SETTINGS), self.one(*_SINGLE))]
        if chance < 0.6:
            return self.branch()
        if chance < 0.7:
            return self.loop()
        if chance < 0.78 and not self.depth:
            return self.function()
        if chance < 0.82:
            return [f"{self.condition()} {self.one('&&', '||')} {self.one(self.assignment(), self.launch())}"]
        if chance < 0.86:
            return self.one_of_lines([f"( {self.assignment()}; {self.launch()}", ")"], ["{", *self.block(), self.one("}", "} > log")])
        if chance < 0.95:
            return self.text_of_commands()
        return [f"{self.one(*self.functions)} {self.words(3)}"] if self.functions else [self.launch()]

    def one_of_lines(self, *options: Sequence[str]) -> list[str]:
        """One of several lists of lines."""
        return list(self.rng.choice(options))

    def branch(self) -> list[str]:
        """`if` or `case`."""
        if self.rng.random() < 0.65:
            joined = self.one(self.condition(), self.condition(), f"{self.condition()} {self.one('&&', '||')} {self.condition()}")
            more = [f"elif {self.condition()}", self.one("then", "then # c"), *self.block()] if self.rng.random() < 0.3 else []
            other = ["else", *self.block()] if self.rng.random() < 0.6 else []
            return [f"if {joined}; then", *self.block(), *more, *other, self.one("fi", "fi", "fi > log")]
        subject = self.expansion()
        lines = [f"case {self.one(subject, chr(34) + subject + chr(34), '$S')} in"]
        for _ in range(self.rng.randint(1, 3)):
            lines += [f"  {self.one('', '(')}{self.one(*_PATTERNS, 'a|b', 'x*|*y')})", *self.block(1), "  ;;"]
        return [*lines, *(["  *)", *self.block(1), self.one("  ;;", "")] if self.rng.random() < 0.5 else []), "esac"]

    def loop(self) -> list[str]:
        """A loop."""
        begin = self.one_of_lines(
            [f"for {self.one('I', self.name())} in {self.word()} {self.words(2)}; do"],
            [f"for ((i={self.one('0', 'N')}; i<{self.one('3', '2')}; i++)); do"],
            ["N=0", "while [ $N -lt 3 ]; do", "  N=$((N+1))"],
            ["M=0", "until (( M >= 2 )); do", "  (( M++ ))"],
        )
        left = [self.one("break", "continue", f"{self.condition()} && break", f"if {self.condition()}; then continue; fi")]
        return [*begin, *self.block(), *(left if self.rng.random() < 0.3 else []), self.one("done", "done", "done > log")]

    def function(self) -> list[str]:
        """A function that is defined and called."""
        name = self.one("f1", "f2")
        self.inside += 1
        body = self.block(3)
        last = [
            self.one(
                "return", "return 0", "return 1", f"{self.condition()} && return 1", "shift", 'torchrun "$@"', f"local {self.name()}=8"
            )
        ]
        self.inside -= 1
        self.functions.append(name)
        call = [f"{self.one('', '', f'{self.name()}=7 ')}{name} {self.words(3)}"] if self.rng.random() < 0.8 else []
        return [
            self.one(f"{name}() {{", f"function {name} {{", f"{name} ()\n{{"),
            *body,
            *(last if self.rng.random() < 0.5 else []),
            "}",
            *call,
        ]

    def text_of_commands(self) -> list[str]:
        """Commands that stand in a text."""
        text = self.quoted().replace("\n", " ")
        return self.one_of_lines(
            [f'C="torchrun {text}"', self.one("eval $C", 'eval "$C"', "$C", '"$C"', 'bash -c "$C"', 'eval "$C" x')],
            [f"bash -c 'torchrun $S $0 $1 \"$@\"' {self.words(3)}"], [f'bash -c "torchrun {text}"'], ["S=9 bash -c 'torchrun $S'"],
            ["export S; bash -c 'torchrun \"$S\" $N'"], [f"eval torchrun {self.words(3)}"], [f"eval '{self.name()}=5'"],
            [f"cat_stub <<{self.one('EOF', chr(39) + 'EOF' + chr(39))}", self.one("torchrun $S", "x ${U:=5} y", '"$N"'), "EOF"],
            ["bash <<EOF", "torchrun $S \\$N a", "EOF"],
        )  # fmt: skip


def walked(script: str, given: Mapping[str, str] | None = None, arguments: Sequence[str] | None = None) -> Shell:
    """A script, walked. ``given``: variables from outside; ``arguments``: those that it is started with."""
    shell = Shell(dict(given or {}), lambda _: None)
    if arguments:
        shell.state.arguments = tuple(Word((text,) if text else ()) for text in arguments)
    source = Source(script, "<script>")
    shell.run(source, source.root.children)
    return shell


def agrees(words: tuple[Word, ...], theirs: list[str]) -> bool:
    """Whether words may come to those: what is open of them to any text, and a loose one to any number of words."""
    pattern = ""
    for word in words:
        text = ""
        for part, after in pairwise((*word.text, "")):
            if isinstance(part, Open):
                text += r"[^\x00]*" if not word.loose else r"[\s\S]*"
            else:  # between words of a list, of which the last may be none
                text += f"{re.escape(part[:-1])} ?" if isinstance(after, Open) and part.endswith(" ") else re.escape(part)
        pattern += rf"(?:{text}\x00|(?:[^\x00]+\x00)*?)" if word.loose else rf"{text}\x00"
    return re.fullmatch(pattern, "".join(f"{word}\0" for word in theirs)) is not None
