"""Changes of good inputs of which it is known how they have to end, whatever the answer is: nothing may be taken in silence that is not
understood, and nothing may matter that says nothing."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from fuzz_corpus import KINDS, Kind
from fuzz_mutate import Case


def good(rng: random.Random, names: tuple[str, ...] = tuple(KINDS), *, most: int = 20_000) -> tuple[Kind, Case]:
    """A good file of one of some kinds, and a command that reads it."""
    while True:
        name = rng.choice(names)
        kind, text = KINDS[name], rng.choice(KINDS[name].texts())
        if len(text) <= most:
            files = {name: other.encode() for name, other in kind.others.items()} | {kind.file: text.encode()}
            return kind, Case(name, list(rng.choice(kind.commands)), files)


#: A key at the beginning of a line, and in JSON anywhere. ``args``: an option of a command line.
_KEYS = {
    "toml": re.compile(r"^(?P<key>[A-Za-z_]\w*)(?= *=)", re.M),
    "json": re.compile(r'(?<=")(?P<key>[A-Za-z_]\w*)(?="\s*:)'),
    "yaml": re.compile(r"^ *(?:- )?(?P<key>[A-Za-z_]\w*)(?=:(?:\s|$))", re.M),
    "args": re.compile(r"(?<=--)(?P<key>[a-z][\w-]+)(?=[ =\n])"),
}
_FORMAT = {"yml": "yaml", "sh": "args", "txt": "args"}
#: A number by itself after its key.
_NUMBER = {
    "toml": re.compile(r"^(?P<key>[A-Za-z_]\w*) *= *(?P<value>\d[\d.eE+-]*)(?= *(?:#|$))", re.M),
    "json": re.compile(r'(?<=")(?P<key>[A-Za-z_]\w*)"\s*:\s*(?P<value>\d[\d.eE+-]*)(?=\s*[,}])'),
    "yaml": re.compile(r"^ *(?:- )?(?P<key>[A-Za-z_]\w*): *(?P<value>\d[\d.eE+-]*)(?= *(?:#|$))", re.M),
}
#: Files with settings that somebody writes.
_SETTINGS = tuple(
    name
    for name, kind in KINDS.items()
    if kind.file.rpartition(".")[2] in ("toml", "json", "yaml", "yml", "args")
    and not name.startswith(("counterexample", "certificate", "lock"))
)
_PROGRAMS = ("program", "block", "linked")


def _form(kind: Kind) -> str:
    ending = kind.file.rpartition(".")[2]
    return _FORMAT.get(ending, ending)


def _settings(kind: Kind, text: str, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    """Keys whose names the reader decides: none in tables whose keys their author chooses, and none in texts of several lines."""
    if _form(kind) == "yaml" and re.search(r": *[|>][-+]?\s*\n", text):
        return []
    return [found for found in pattern.finditer(text) if not _chosen(kind, text, found)]


def _chosen(kind: Kind, text: str, found: re.Match[str]) -> bool:
    """Whether a key stands in a table whose keys their author chooses."""
    if _form(kind) == "toml":
        header = re.findall(r"^\[+([^\]]*)\]+", text[: found.start()], re.M)
        return bool(header) and any(name in kind.chosen for name in header[-1].replace('"', "").split("."))
    if _form(kind) == "json":
        return any(name in kind.chosen for name in _above(text, found.start()))
    return False


def _above(text: str, at: int) -> list[str]:
    """The keys of the tables that a place of JSON stands in."""
    keys, last = [], ""
    for token in re.finditer(r'"((?:[^"\\]|\\.)*)"\s*(:)?|[{}\[\]]', text[:at]):
        match token[0][0]:
            case "{" | "[":
                keys.append(last)
                last = ""
            case "}" | "]":
                keys.pop()
            case _ if token[2]:
                last = token[1]
    return keys


def _wanted(kind: Kind, word: str) -> str:
    """transformers takes a setting of any name: of its files only what changes the answer has to be said."""
    return "refused" if kind.ours else f"{'told' if kind.file == 'config.json' else 'named'} {word}"


def _with(case: Case, kind: Kind, text: str, want: str) -> Case:
    if want.startswith("named"):  # text lists the first settings of many
        case = replace(case, argv=[*case.argv, *(["--json"] if "--json" not in case.argv else [])])
    return replace(case, files=case.files | {kind.file: text.encode()}, want=want, base=case)


def _misspelt(rng: random.Random) -> Iterator[Case]:
    """A key without one of its letters: refused or named, with what was meant where the name is long enough."""
    kind, case = good(rng, _SETTINGS)
    text = case.files[kind.file].decode()
    known = {found["key"] for found in _KEYS[_form(kind)].finditer(text)}
    for found in rng.sample(keys := _settings(kind, text, _KEYS[_form(kind)]), min(len(keys), 1)):
        key = found["key"]
        at = rng.randrange(1, len(key)) if len(key) > 1 else 0
        wrong = key[:at] + key[at + 1 :] if len(key) > 3 else key + "q"
        if wrong not in known and wrong != key:
            yield _with(case, kind, text[: found.start("key")] + wrong + text[found.end("key") :], _wanted(kind, wrong))


def _unknown(rng: random.Random) -> Iterator[Case]:
    """A key that nobody reads."""
    kind, case = good(rng, _SETTINGS)
    text, form = case.files[kind.file].decode(), _form(kind)
    word = rng.choice(("qqzz", "zero_stagee", "x_unknown_x"))
    for found in rng.sample(keys := _settings(kind, text, _KEYS[form]), min(len(keys), 1)):
        start = text.rfind("\n", 0, found.start()) + 1
        indent = re.match(r" *(?:- )?", text[start:])
        assert indent is not None
        new = {
            "toml": f"{word} = 3\n",
            "yaml": f"{indent[0]}{word}: 3\n{' ' * len(indent[0])}",
            "json": f'"{word}": 3, ',
            "args": f"--{word} 3 ",
        }[form]
        at = found.start() - {"json": 1, "args": 2}.get(form, 0)
        changed = text[:start] + new + text[start + len(indent[0]) :] if form == "yaml" else text[:at] + new + text[at:]
        yield _with(case, kind, changed, _wanted(kind, word))


def _twice(rng: random.Random) -> Iterator[Case]:
    """A key with a number that is said once more, with another one."""
    kind, case = good(rng, tuple(name for name in _SETTINGS if _form(KINDS[name]) in _NUMBER))
    text, form = case.files[kind.file].decode(), _form(kind)
    for found in rng.sample(keys := _settings(kind, text, _NUMBER[form]), min(len(keys), 1)):
        start = found.start("key")
        other = "7" if found["value"] != "7" else "5"
        new = {"toml": f"{found['key']} = {other}\n", "json": f'{found["key"]}": {other}, "'}.get(form)
        if new is None:
            line = text[text.rfind("\n", 0, start) + 1 : found.end("value")].replace("- ", "  ", 1)
            changed = text[: found.end("value")] + "\n" + line[: -len(found["value"])] + other + text[found.end("value") :]
        else:
            changed = text[:start] + new + text[start:]
        yield _with(case, kind, changed, "refused" if kind.ours or form == "json" else f"named {found['key']}")


def _textual(rng: random.Random) -> Iterator[Case]:
    """A number in whose place stands a text."""
    kind, case = good(rng, tuple(name for name in _SETTINGS if _form(KINDS[name]) in _NUMBER))
    text, form = case.files[kind.file].decode(), _form(kind)
    for found in rng.sample(keys := _settings(kind, text, _NUMBER[form]), min(len(keys), 1)):
        word = rng.choice(('"many"', "[]", "{}") if form != "toml" else ('"many"', "{ a = 1 }"))
        yield _with(
            case, kind, text[: found.start("value")] + word + text[found.end("value") :], "refused" if kind.ours else f"told {found['key']}"
        )


def _comment(rng: random.Random) -> Iterator[Case]:
    """Comments, empty lines, a byte order mark and the line ends of another system say nothing."""
    kind, case = good(rng, tuple(name for name, kind in KINDS.items() if _form(kind) in ("toml", "yaml", "step")))
    text = case.files[kind.file].decode()
    if _form(kind) == "yaml" and re.search(r": *[|>][-+]?\s*\n", text):
        return
    yield _with(case, kind, rng.choice((text + "\n# nothing\n", text.replace("\n", "\r\n"), text + "\n\n", text.rstrip("\n"))), "same")


def _call(rng: random.Random) -> Iterator[Case]:
    """A call of a program with an option, an operand or a name that it does not have."""
    kind, case = good(rng, _PROGRAMS)
    text = case.files[kind.file].decode()
    calls = [
        found
        for found in re.finditer(r"\b([a-z]\w+)\((?=[^()\n]*\)$)([^()\n]+)\)", text, re.M)
        if not text[: found.start()].endswith("def ")
    ]
    for found in rng.sample(calls, min(len(calls), 1)):
        inside, start, end = found[2], *found.span(2)
        options = list(re.finditer(r"\b([a-z_]\w*)=(?!=)", inside))
        changed = [text[:end] + ", qqzz=1" + text[end:], text[: found.start(1)] + found[1][:-1] + "qz" + text[found.end(1) :]]
        for option in options:
            changed.append(text[: start + option.end(1)] + "q" + text[start + option.end(1) :])
            changed.append(text[:end] + ", " + inside[option.start() :].split(",")[0] + text[end:])
        yield _with(case, kind, rng.choice(changed), "refused")


def _tampered(rng: random.Random) -> Iterator[Case]:
    """A number that a counterexample predicts, and that is another one now: what runs tells otherwise."""
    kind, case = good(rng, ("counterexample", "counterexample-model"), most=10**7)
    text = case.files[kind.file].decode()
    found = list(re.finditer(r'"(?:expected|actual)": "(-?\d+(?:/\d+)?)"', text))
    for one in rng.sample(found, min(len(found), 1)):
        yield _with(case, kind, text[: one.start(1)] + str(rng.choice((97, 1001))) + text[one.end(1) :], "not 0")


def _forged(rng: random.Random) -> Iterator[Case]:
    """A certificate of which a key is misspelt, or a number of its claims and steps is another one, shows nothing."""
    kind, case = good(rng, ("certificate", "certificate-model"), most=10**7)
    text = case.files[kind.file].decode()
    keys = [one for one in re.finditer(r'"(\w+)": ', text) if "sorts" not in _above(text, one.start())]
    one = rng.choice(keys)
    yield _with(case, kind, text[: one.start(1)] + one[1] + "q" + text[one.end(1) :], "not 0")


def _column(rng: random.Random) -> Iterator[Case]:
    """A table of measured steps with a column or a cell that is none."""
    kind, case = good(rng, ("steps",))
    lines = case.files[kind.file].decode().splitlines()
    at = rng.randrange(1, len(lines))
    other = {
        "misspelt": [lines[0].replace("overlap", "overlp"), *lines[1:]],
        "twice": [lines[0] + ",b", *(line + ",1" for line in lines[1:])],
        "unknown": [lines[0] + ",qqzz", *(line + ",1" for line in lines[1:])],
        "short": [*lines[:at], lines[at].rpartition(",")[0], *lines[at + 1 :]],
        "long": [*lines[:at], lines[at] + ",3", *lines[at + 1 :]],
        "no number": [*lines[:at], lines[at].rpartition(",")[0] + ",fast", *lines[at + 1 :]],
        "negative": [*lines[:at], lines[at].rpartition(",")[0] + ",-3", *lines[at + 1 :]],
    }
    yield _with(case, kind, "\n".join(rng.choice(tuple(other.values()))) + "\n", "refused")


_ASKED = (
    ["derive", "zero3(8)"],
    ["derive", "fsdp(8) * tp(2)", "--model", "llama3-8b", "--set", "b=1", "--cluster", "dgx-h100"],
    [
        "derive",
        "fsdp(4)",
        "--profile",
        "torch-2.13",
        "--shapes",
        "transformer(layers=2, hidden=32, heads=4, ffn=64, vocab=64, batch=4, tokens=16)",
    ],
    ["compare", "ddp(8)", "zero3(8)"],
    ["compare", "fsdp(8)", "tp(8)", "--model", "llama3-8b", "--set", "b=1"],
    ["prove", "zero1"],
    ["list", "modes"],
    ["explain", "zero3"],
    ["accuracy", "a100-large"],
)
#: Options whose value is any text: a path that is written, a path that is looked for, or a text that is named.
_ANY = ("--smtlib", "--replay-script", "--certificate", "--env", "--shapes-to", "--plot", "--mend", "--out", "--output", "--html")


def _optional(rng: random.Random) -> Iterator[Case]:
    """An option that there is not, or one with a value that it cannot have."""
    from fuzz_inputs import commands

    base = Case("option", list(rng.choice(_ASKED)))
    valued, flags = commands()[base.argv[0]]
    flag = rng.choice(flags) if flags else "--help"
    longer = [option for option in valued if option.startswith("--")]
    checked = [option for option in longer if option not in _ANY]
    more = [[flag + "q"], ["--qqzz"], ["--qqzz", "3"], ["surplus operand"]]
    more += [[rng.choice(longer) + "q", "1"], [rng.choice(longer)]] if longer else []
    more += [[rng.choice(checked), "qqzz"]] * 8 if checked else []
    yield replace(base, argv=base.argv + rng.choice(more), want="refused", base=base)


def _bracket(rng: random.Random) -> Iterator[Case]:
    """An option of a strategy that it does not have, said twice, or with a value that it cannot have."""
    from fuzz_inputs import strategies

    name = rng.choice(strategies())
    inside = rng.choice(
        ("qqzz=1", "8, qqzz=1", "8, 8, 8, 8, 8", "0", "-1", "1.5", "qqzz", "dp=dp, dp=dp", "8, size=8", "8,", ",", "8 8", "8; 8")
    )
    base = Case("strategy", ["derive", name])
    want = "" if inside in ("8,", "qqzz") else "refused"
    yield replace(base, argv=["derive", f"{name}({inside})"], want=want, base=base)


RULES: dict[str, Callable[[random.Random], Iterator[Case]]] = {
    "a misspelt key": _misspelt,
    "a misspelt key again": _misspelt,
    "an unknown key": _unknown,
    "a key that is said twice": _twice,
    "a text for a number": _textual,
    "what says nothing": _comment,
    "a call": _call,
    "a prediction": _tampered,
    "a certificate": _forged,
    "a column": _column,
    "an option": _optional,
    "an option again": _optional,
    "an option of a strategy": _bracket,
}


def ruled(name: str, rng: random.Random) -> Case:
    """A case of a rule."""
    for _ in range(100):
        for case in RULES[name](rng):
            return replace(case, category=f"rule: {name}")
    raise AssertionError(f"no file has what the rule of {name} changes")
