"""``placeproof completion``: what a shell completes a command line with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from placeproof.cli.terminal import COLORS, say
from placeproof.core.diagnostics import refuse

#: What each shell is told; it asks `placeproof completion words`, which is given the words up to the one that is completed.
_SCRIPTS = {
    "bash": r"""_placeproof() {
    local cur words word
    if declare -F _get_comp_words_by_ref >/dev/null; then
        _get_comp_words_by_ref -n =: cur
    else
        cur="${COMP_LINE:0:COMP_POINT}"
        cur="${cur##*[[:space:]]}"
    fi
    local line="${COMP_LINE:0:COMP_POINT}"
    COMPREPLY=()
    while IFS= read -r word; do
        [[ $cur == *=* ]] && word="${word#"${cur%"${cur##*=}"}"}"
        COMPREPLY+=("$word")
    done < <("${COMP_WORDS[0]}" completion words -- "$line" 2>/dev/null)
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    return 0
}
complete -o default -F _placeproof placeproof
""",
    "zsh": r"""#compdef placeproof
_placeproof() {
    local -a found
    found=("${(@f)$("${words[1]}" completion words -- "${BUFFER[1,CURSOR]}" 2>/dev/null)}")
    if (( ${#found[@]} )) && [[ -n ${found[1]} ]]; then
        compadd -Q -S '' -- "${found[@]}"
    else
        _files
    fi
}
compdef _placeproof placeproof
""",
    "fish": r"""complete -c placeproof -f -a '(placeproof completion words -- (commandline -cp) 2>/dev/null)'
complete -c placeproof -F -n 'test -z "(placeproof completion words -- (commandline -cp) 2>/dev/null)"'
""",
}


def command(
    context: typer.Context,
    shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="The shell that is to complete command lines.")],
    line: Annotated[str | None, typer.Argument(hidden=True)] = None,
) -> None:
    """Print what a shell reads to complete command lines: of bash, `source <(placeproof completion bash)`.

    Of zsh the same; of fish, `placeproof completion fish | source`. Commands, options, strategies, models, clusters and symbols are
    completed.
    """
    if shell == "words":
        say("".join(f"{word}\n" for word in completed(line or "", context.find_root().command)))
    elif shell not in _SCRIPTS:
        refuse("PP104", f"nothing is known of the shell `{shell}`", help=f"one of {', '.join(_SCRIPTS)}")
    else:
        say(_SCRIPTS[shell])


def completed(line: str, program: Any) -> list[str]:
    """What the last word of a command line can become; without its quote, as shells have it. Nothing where it may be a file.

    ``program``: the group of all commands.
    """
    *before, word = _words(line)
    return [one for one in _candidates(before[1:], word, program.commands) if one.startswith(word) and one != word]


def _words(line: str) -> list[str]:
    """The words of a line, of which the last may be empty, or open."""
    found = [part[0] or part[1] or part[2] for part in re.findall(r'"([^"]*)(?:"|$)|\'([^\']*)(?:\'|$)|([^\s"\']+)', line)]
    ended = not line or (line[-1].isspace() and line.count('"') % 2 == 0 and line.count("'") % 2 == 0)
    return [*found, ""] if ended or line.endswith(('"', "'")) else found


def _candidates(before: Sequence[str], word: str, commands: Mapping[str, Any]) -> Iterable[str]:
    name = next((one for one in before if not one.startswith("-")), None)
    if name is None:
        return [*commands, "--help", "--version"]
    if name not in commands:
        return []
    options = {text: param for param in commands[name].params for text in param.opts if text.startswith("-")}
    last = before[-1]
    if last in options and not getattr(options[last], "is_flag", False):
        return _OF_OPTIONS.get(last, list)()
    if word.startswith("-"):
        return sorted(text for text in (*options, "--help") if text.startswith("--"))
    return _OF_COMMANDS.get(name, _nothing)(word)


def _nothing(word: str) -> Iterable[str]:
    return []


def _strategies(word: str) -> list[str]:
    """Expressions that go on with a strategy of the catalogue."""
    from placeproof.strategies import names

    head = word[: word.rfind("*") + 1]
    rest = word[len(head) :]
    return [f"{word[: len(word) - len(rest.lstrip())]}{name}" for name in names()]


def _models() -> list[str]:
    from placeproof.models import families, presets

    return [*presets(), *families()]


def _clusters() -> list[str]:
    from placeproof.clusters import names

    return [*names()]


def _symbols() -> list[str]:
    from placeproof.core.symbols import SYMBOLS

    return [f"{name}=" for name in SYMBOLS]


def _listed(kind: str) -> Callable[[], list[str]]:
    def names() -> list[str]:
        from placeproof.cli.listing import KINDS

        return [str(row[0]) for row in KINDS[kind].rows()]

    return names


def _kinds(word: str) -> list[str]:
    from placeproof.cli.listing import KINDS

    return [*KINDS]


def _explained(word: str) -> list[str]:
    from placeproof.report.glossary import terms

    more = ("schedules", "collectives", "assumptions", "errors", "profiles")
    return [
        *_strategies(""), *_models(), *_clusters(), *(name.rstrip("=") for name in _symbols()), *(term.name for term in terms()),
        *(name for kind in more for name in _listed(kind)()),
    ]  # fmt: skip


_OF_OPTIONS: dict[str, Callable[[], Iterable[str]]] = {
    "--model": _models,
    "--cluster": _clusters,
    "--set": _symbols,
    "--profile": lambda: dict.fromkeys(_listed("profiles")()),
    "--precision": _listed("precisions"),
    "--without": _listed("assumptions"),
    "--implementation": _listed("implementations"),
    "--color": lambda: COLORS,
}
_OF_COMMANDS: dict[str, Callable[[str], Iterable[str]]] = {
    **dict.fromkeys(("derive", "compare", "prove", "fit", "explore", "measure"), _strategies),
    "list": _kinds,
    "explain": _explained,
    "accuracy": lambda _: _listed("runs")(),
    "calibrate": lambda _: _clusters(),
    "completion": lambda _: _SCRIPTS,
    "trace": lambda _: ["record"],
}
