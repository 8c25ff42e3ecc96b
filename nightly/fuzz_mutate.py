"""What inputs of `fuzz.py` are made of: a case, numbers and words that are odd, and texts with a few things wrong."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

#: Numbers that a careless or a spiteful author writes.
NUMBERS = (
    *("0", "-1", "1", "2", "3", "7", "8", "64", "1000", "2.7", "0.5", "1/3", "1/0", "1e3", "1e9", "1e10", "1e30", "1e101", "1e400"),
    *("-1e400", "1e-400", "1e99999999999", "nan", "inf", "-inf", "10**9", "2**999999999", "9" * 30, "9" * 5000, "0x10", "1_000", "1__0"),
    *("True", "None", "''", "٣", "1e", "--1", "+5", "5k", "70B", "1.5T", ".5", "5.", "1" + "0" * 400, "10**400", "80GB", "50Gb/s", "3 us"),
)
#: Texts that stand where a name or a path is expected.
WORDS = (
    *("", " ", "a", "zero3", "dp", "tp", "N", "P", "é", "💥", "a" * 300, "../../etc/passwd", "/dev/null", "/dev/zero", ".", "/", "~", "-"),
    *("~nobody/x.toml", "x\x00y", "a\nb", "%s%n", "{0}", "$HOME", "__import__('os')", "true", "null", "[]", "{}", "'", '"', "\\", "#", "="),
    *("\udcff", "a" * 100_000, "zero3(" * 500, "\x1b[2J", "zero3\u200b", "ｚｅｒｏ３", "NUL", "a.step", "-h", "--", "@a", "*", "**"),
)


@dataclass(slots=True)
class Case:
    """One command line, the files that lie in its folder, and the kind of input that it is about.

    ``special``: names of what is no file: `folder`, `pipe` (its content is in ``files``), or a link to what is said. ``env``: variables
    of the environment; None takes one away. ``stdin``: what is piped in.
    ``want``: how it has to end if ``base`` is taken: ``refused``; ``named WORD``, refused, or the word is in the answer; ``told WORD``, the
    same if the answer is another one than that of ``base``; ``same``, it is not; ``not 0``. ``spoil``: the command was run before, and
    this is what lies in each file of its cache now.
    """

    category: str
    argv: list[str]
    files: dict[str, bytes] = field(default_factory=dict)
    special: dict[str, str] = field(default_factory=dict)
    env: dict[str, str | None] = field(default_factory=dict)
    stdin: bytes | None = None
    want: str = ""
    base: Case | None = None
    spoil: bytes | None = None


def mutated(text: str, rng: random.Random) -> str:
    """A text with a few things wrong."""
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 6))):
        text = rng.choice(_MUTATIONS)(text, rng)
    return text


def _spot(text: str, rng: random.Random) -> int:
    return rng.randrange(len(text) + 1)


def _replaced(pattern: str, choices: Callable[[str], tuple[str, ...]]) -> Callable[[str, random.Random], str]:
    """A mutation that puts something else in the place of one match."""

    def mutate(text: str, rng: random.Random) -> str:
        found = list(re.finditer(pattern, text))
        if not found:
            return text
        one = rng.choice(found)
        return text[: one.start()] + rng.choice(choices(text)) + text[one.end() :]

    return mutate


def _lines(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True) or [""]
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, lines[other])
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case _:
            lines = lines[: at + 1]
    return "".join(lines)


def _nested(text: str, rng: random.Random) -> str:
    opened, closed = rng.choice(("()", "[]", "{}", "''"))
    depth, at = rng.choice((1, 5, 200, 2000)), _spot(text, rng)
    return text[:at] + opened * depth + closed * depth + text[at:]


def _inserted(text: str, rng: random.Random) -> str:
    at = _spot(text, rng)
    return text[:at] + rng.choice((*WORDS, *"()[]{}=,.:*#\"'\\\t\n\r\0\ufeff", "**", "dp**" * 100 + "dp")) + text[at:]


def _long(text: str, rng: random.Random) -> str:
    at, unit = _spot(text, rng), rng.choice(("a", "9", " ", "\t", "\n", "- ", "a:\n ", "(", "# ", "a, ", "é"))
    return text[:at] + unit * rng.choice((1_000, 100_000)) + text[at:]


def _cut(text: str, rng: random.Random) -> str:
    start = _spot(text, rng)
    return text[:start] + text[start + rng.choice((1, 1, 3, 20, 200)) :]


_MUTATIONS: tuple[Callable[[str, random.Random], str], ...] = (
    _replaced(r"\d[\d.eE]*", lambda _: NUMBERS),
    _replaced(r"\b\d+\b", lambda _: ("2", "3", "4", "16", "128")),
    _replaced(r"[A-Za-z_]\w*", lambda text: tuple(re.findall(r"[A-Za-z_]\w*", text)) or ("x",)),
    _replaced(r"[A-Za-z_]\w*", lambda _: WORDS),
    _replaced(r"(?<=[=:])[^\n,}\])]+", lambda _: (*NUMBERS[:16], "true", "[]", "{}", '"x"', "[1, 2]", "{ a = 1 }", "null")),
    _lines,
    _lines,
    _nested,
    _inserted,
    _cut,
    _cut,
    _long,
)


def as_bytes(text: str, rng: random.Random) -> bytes:
    """A text as a file, now and then not as UTF-8 with line feeds."""
    match rng.randrange(16):
        case 0:
            return b"\xef\xbb\xbf" + text.encode(errors="surrogateescape")
        case 1:
            return text.replace("\n", rng.choice(("\r\n", "\r", "\u2028", "\x0b", "\0"))).encode(errors="surrogateescape")
        case 2:
            return text.encode(rng.choice(("utf-16", "utf-32", "latin-1", "cp1252", "utf-7", "cp037")), errors="replace")
        case _:
            return text.encode(errors="surrogateescape")
