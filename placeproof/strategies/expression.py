"""The language of strategy expressions: ``zero1(64) * tp(8) * pp(16)``, ``fsdp(prefetch=True) * mine.toml``, ``(S*, S, S, R) * tp``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from placeproof.core.bounds import A_COUNT, is_count
from placeproof.core.diagnostics import Diagnostic, InputError, Place, Problems, suggestion
from placeproof.core.modes import MODES, Mode
from placeproof.core.spelling import respelled
from placeproof.core.strategy import Strategy, compose
from placeproof.strategies import catalogue
from placeproof.strategies.files import read_file
from placeproof.strategies.template import Template, Value, names_an_axis
from placeproof.strategies.tuples import ORDER, USUAL_AXIS, placement

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<path>[A-Za-z0-9_./\\~-]*\.toml\b)
      | (?P<quoted>"[^"]*"|'[^']*')
      | (?P<word>(?!\d+[eE]\d+\b)\d+[A-Za-z]\w*)
      | (?P<number>[-+]?(?:\d[\d_]*)(?:\.\d*)?(?:[eE][-+]?\d+)?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*(?:\+\+)?)
      | (?P<punct>[*(),=])
    )""",
    re.VERBOSE,
)
_LONGEST = 10_000
_TUPLE = "modes are R, S, S*, M, O, of parameters, optimizer, gradients, activations: `(S*, S, S, R)`, `(S*, S, S, R, dp=8)`"


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


def parse_strategy(text: str) -> Strategy:
    """The strategy of an expression. Raises :class:`InputError` with every problem and its place."""
    strategy, *_ = parse_strategies([text])
    return strategy


def parse_strategies(texts: list[str]) -> list[Strategy]:
    """The strategies of several expressions; the problems of all of them are raised together."""
    problems = Problems()
    strategies = []
    for text in texts:
        with problems.collecting():
            strategies.append(_Parser(text).strategy())
    problems.raise_if_any()
    return strategies


class _Parser:
    """A recursive descent over a dozen tokens; stops at the first syntax error, goes on after any other."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.problems = Problems()
        self.tokens = self._tokens()
        self.at = 0

    def strategy(self) -> Strategy:
        members = [self._term()]
        while self._take("*"):
            members.append(self._term())
        if self.at < len(self.tokens):
            self._fail(self.tokens[self.at], "expected `*` between strategies")
        self.problems.raise_if_any()
        known = [m for m in members if m is not None]
        try:
            return known[0] if len(known) == 1 else compose(known)
        except InputError as error:
            raise InputError(self._located(error)) from error

    def _located(self, error: InputError) -> list[Diagnostic]:
        whole = Place(source="<strategy>", line=1, column=1, length=len(self.text), text=self.text)
        return [replace(d, place=d.place or whole) for d in error.diagnostics]

    def _tokens(self) -> list[_Token]:
        text, at, tokens = self.text, 0, []
        if len(text) > _LONGEST or "\n" in text.strip():
            self.problems.add("PP102", "a strategy expression is one short line", help="for example `zero3(8) * tp(2)`")
            self.problems.raise_if_any()
        while at < len(text) and text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                spaces = len(text[at:]) - len(text[at:].lstrip())
                self._fail(_Token("bad", text[at + spaces], at + spaces), f"unexpected character {text[at + spaces]!r}")
                break
            kind = match.lastgroup
            tokens.append(_Token(kind, match[kind], match.start(kind)))
            at = match.end()
        return tokens

    def _place(self, token: _Token) -> Place:
        return Place(source="<strategy>", line=1, column=token.start + 1, length=len(token.text) or 1, text=self.text)

    def _fail(self, token: _Token | None, message: str, help: str = "for example `zero3`, `zero1(64) * tp(8)`, `mine.toml * pp`") -> None:
        end = _Token("end", "", len(self.text))
        self.problems.add("PP102", message, place=self._place(token or end), help=help)
        self.problems.raise_if_any()

    def _peek(self) -> _Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def _take(self, text: str) -> bool:
        token = self._peek()
        if token is not None and token.kind == "punct" and token.text == text:
            self.at += 1
            return True
        return False

    def _term(self) -> Strategy | None:
        token = self._peek()
        if self._take("("):
            return self._placement()
        if token is None or token.kind not in ("name", "path", "quoted"):
            self._fail(token, "expected the name of a strategy or the path of a strategy file")
            return None
        self.at += 1
        template = self._template(token)
        args: list[Value] = []
        options: dict[str, Value] = {}
        places: dict[str | int, Place] = {}
        if self._take("("):
            self._arguments(args, options, places)
        if template is None:
            return None
        return template.instantiate(tuple(args), options, self.problems, places)

    def _placement(self) -> Strategy:
        """A placement as a tuple, after its first parenthesis: four modes, then the axis, whose degree may be given."""
        modes = [self._mode()]
        while self._take(",") and len(modes) < len(ORDER):
            modes.append(self._mode())
        if len(modes) < len(ORDER):
            self._fail(self._peek(), f"a placement has {len(ORDER)} modes, and here are {len(modes)}", _TUPLE)
        axis, degree = USUAL_AXIS, None
        if self.tokens[self.at - 1].text == ",":
            axis, degree = self._placed_on()
        if not self._take(")"):
            self._fail(self._peek(), "expected `)` after a placement's modes and its axis", _TUPLE)
        return placement(tuple(modes), axis, degree)

    def _mode(self) -> Mode:
        token = self._peek()
        self.at += 1
        symbol = (token.text if token else "") + ("*" if self._take("*") else "")
        if symbol not in MODES:
            self._fail(token, f"`{symbol}` is no mode" if symbol else "expected a mode", _TUPLE)
        return MODES[symbol]

    def _placed_on(self) -> tuple[str, int | None]:
        """The axis of a placement: `dp`, or `dp=8`."""
        token = self._peek()
        if token is None or token.kind != "name" or not names_an_axis(token.text):
            self._fail(token, f"`{token.text}` cannot name an axis" if token else "expected the name of an axis", _TUPLE)
        assert token is not None
        self.at += 1
        if not self._take("="):
            return token.text, None
        given = self._peek()
        degree = self._value(given) if given is not None else None
        if given is None or not is_count(degree):
            self._fail(given, f"the degree of axis `{token.text}` is {A_COUNT}", _TUPLE)
        assert isinstance(degree, int)
        self.at += 1
        return token.text, degree

    def _template(self, token: _Token) -> Template | None:
        if token.kind in ("path", "quoted"):
            path = Path(token.text.strip("\"'"))
            with self.problems.collecting():
                return read_file(path)
            return None
        template = catalogue.template(token.text)
        if template is None and (name := respelled(token.text, (*catalogue.names(), *catalogue.aliases()))) is not None:
            template = catalogue.template(name)
        if template is None:
            known = set(catalogue.names()) | set(catalogue.aliases())
            hint = suggestion(token.text, known) or "`placeproof list strategies` shows all; a file's name ends in .toml"
            self.problems.add("PP101", f"there is no strategy `{token.text}`", place=self._place(token), help=hint)
        return template

    def _arguments(self, args: list[Value], options: dict[str, Value], places: dict[str | int, Place]) -> None:
        while not self._take(")"):
            token = self._peek()
            if token is None:
                self._fail(None, "the parenthesis is not closed")
                return
            self.at += 1
            if token.kind == "name" and self._take("="):
                value = self._peek()
                if value is None:
                    self._fail(None, f"`{token.text}=` needs a value")
                    return
                self.at += 1
                if token.text in options:
                    self._fail(token, f"`{token.text}` is given twice")
                options[token.text], places[token.text] = self._value(value), self._place(value)
            elif options:
                self._fail(token, "a positional argument comes before the named ones")
            else:
                places[len(args)] = self._place(token)
                args.append(self._value(token))
            if not self._take(",") and not (self._peek() and self._peek().text == ")"):  # type: ignore[union-attr]
                self._fail(self._peek(), "expected `,` or `)`")

    def _value(self, token: _Token) -> Value:
        lowered = token.text.lower()
        if token.kind == "name":
            return {"true": True, "false": False}.get(lowered, token.text)
        if token.kind == "quoted":
            return token.text[1:-1]
        if token.kind in ("word", "path"):  # `1f1b`, `mine.toml`
            return token.text
        if token.kind == "number":
            return _number(token.text)
        self._fail(token, "expected a number, a name, true or false")
        return token.text


def _number(text: str) -> Value:
    """A whole number as int (1e9 and 64.0 too); anything else stays a text, which no degree accepts."""
    from fractions import Fraction

    exact = Fraction(text.replace("_", "")) if len(text) < 40 and not re.search(r"[eE][-+]?\d{4,}", text) else None
    return exact.numerator if exact is not None and exact.denominator == 1 else text
