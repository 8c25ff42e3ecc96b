"""The arithmetic of a shell, on whole numbers of 64 bits."""

from __future__ import annotations

import re
from collections.abc import Callable

_TOKEN = re.compile(r"\s*(\d[\w#@]*|[A-Za-z_]\w*|\*\*|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|[-+*/%<>=!~&|^?:,()\[\]])")
_LEVELS = (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<=", ">=", "<", ">"), ("<<", ">>"), ("+", "-"), ("*", "/", "%"))
_LARGEST = 2**63 - 1


class FaultError(Exception):
    """An expression that is not understood, or that a shell refuses."""


class Arithmetic:
    """One expression. ``read`` and ``write``: numbers of variables; what ``read`` raises goes through."""

    def __init__(self, text: str, read: Callable[[str], int], write: Callable[[str, int], None]) -> None:
        self.tokens, self.at = _split(text), 0
        self.read, self.write = read, write
        self.idle = 0

    def value(self) -> int:
        """The number that it comes to. Raises FaultError."""
        if not self.tokens:
            return 0
        value = self._comma()
        if self.at < len(self.tokens):
            raise FaultError(f"`{self.tokens[self.at]}` is not understood here")
        return value

    def _next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _take(self, *tokens: str) -> str:
        token = self._next()
        if token and token in tokens:
            self.at += 1
            return token
        return ""

    def _comma(self) -> int:
        value = self._assigned()
        while self._take(","):
            value = self._assigned()
        return value

    def _assigned(self) -> int:
        name = self._next()
        after = self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else ""
        if re.fullmatch(r"[A-Za-z_]\w*", name) and after in ("=", "+=", "-=", "*=", "/=", "%="):
            self.at += 2
            before = self._variable(name) if after != "=" else 0
            value = self._assigned()
            return self._put(name, value if after == "=" else self._applied(after[0], before, value))
        return self._chosen()

    def _chosen(self) -> int:
        value = self._binary(0)
        if not self._take("?"):
            return value
        yes = self._skipping(not value, self._comma)
        if not self._take(":"):
            raise FaultError("`?` has no `:`")
        no = self._skipping(bool(value), self._chosen)
        return yes if value else no

    def _skipping(self, skip: bool, part: Callable[[], int]) -> int:
        self.idle += skip
        value = part()
        self.idle -= skip
        return value

    def _binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._power()
        value = self._binary(level + 1)
        while sign := self._take(*_LEVELS[level]):
            skip = (sign == "&&" and not value) or (sign == "||" and bool(value))
            value = self._applied(sign, value, self._skipping(skip, lambda: self._binary(level + 1)))
        return value

    def _power(self) -> int:
        value = self._unary()
        if not self._take("**"):
            return value
        exponent = self._power()
        if exponent < 0 or exponent > 64:
            raise FaultError(f"a power of {exponent}")
        return self._whole(value**exponent)

    def _unary(self) -> int:
        if sign := self._take("+", "-", "!", "~", "++", "--"):
            if sign in ("++", "--"):
                name = self._next()
                if not re.fullmatch(r"[A-Za-z_]\w*", name):
                    raise FaultError(f"`{sign}` stands before no variable")
                self.at += 1
                return self._put(name, self._variable(name) + (1 if sign == "++" else -1))
            value = self._unary()
            return self._whole({"+": value, "-": -value, "!": int(not value), "~": ~value}[sign])
        return self._atom()

    def _atom(self) -> int:
        token = self._next()
        self.at += 1
        if token == "(":
            value = self._comma()
            if not self._take(")"):
                raise FaultError("`(` is not closed")
            return value
        if re.fullmatch(r"[A-Za-z_]\w*", token):
            if self._next() == "[":
                raise FaultError("fields of arrays are not read in arithmetic")
            value = self._variable(token)
            if sign := self._take("++", "--"):
                self._put(token, value + (1 if sign == "++" else -1))
            return value
        return self._whole(literal(token))

    def _variable(self, name: str) -> int:
        return 0 if self.idle else self.read(name)

    def _put(self, name: str, value: int) -> int:
        if not self.idle:
            self.write(name, self._whole(value))
        return value

    def _whole(self, value: int) -> int:
        if not -_LARGEST - 1 <= value <= _LARGEST:
            raise FaultError("a number of more than 64 bits")
        return value

    def _applied(self, sign: str, a: int, b: int) -> int:
        if sign in ("/", "%") and b == 0:
            if self.idle:
                return 0
            raise FaultError("a division by 0")
        if sign in ("<<", ">>") and not 0 <= b < 64:
            raise FaultError(f"a shift by {b}")
        match sign:
            case "/":
                value = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            case "%":
                value = abs(a) % abs(b) * (1 if a >= 0 else -1)
            case _:
                value = _SIGNS[sign](a, b)
        return self._whole(value)


_SIGNS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "<<": lambda a, b: a << b, ">>": lambda a, b: a >> b,
    "<": lambda a, b: int(a < b), "<=": lambda a, b: int(a <= b), ">": lambda a, b: int(a > b), ">=": lambda a, b: int(a >= b),
    "==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b), "&": lambda a, b: a & b, "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&&": lambda a, b: int(bool(a and b)), "||": lambda a, b: int(bool(a or b)),
}  # fmt: skip


def literal(token: str) -> int:
    """A number as a shell writes it. Raises FaultError."""
    if re.fullmatch(r"0|[1-9]\d{0,18}", token):
        return int(token)
    if re.fullmatch(r"0[0-7]{1,20}", token):
        return int(token, 8)
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,15}", token):
        return int(token, 16)
    if based := re.fullmatch(r"([2-9]|[12]\d|3[0-6])#(\w{1,12})", token):
        try:
            return int(based[2], int(based[1]))
        except ValueError:
            raise FaultError(f"`{token}` is no number") from None
    raise FaultError(f"`{token}` is no number" if token else "a number is missing")


def _split(text: str) -> list[str]:
    tokens, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise FaultError(f"`{text[at:].strip()}` is not understood")
        tokens.append(match[1])
        at = match.end()
    return tokens
