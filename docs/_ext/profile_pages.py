"""The page of profiles: what each system's implementations make otherwise than the ideal."""

from __future__ import annotations

from collections.abc import Mapping

from pipe_tables import code, plain, table, value

from placeproof import implementations
from placeproof.cost.exact.options import OPTIONS
from placeproof.implementations import BlockImplementation, find
from placeproof.implementations.modules import Module, Operation
from placeproof.profiles.profile import Implementation, Profile, names, profile


def listed() -> str:
    """Every profile with its implementations."""
    return "\n".join(_profile(name) for name in names())


def of_blocks() -> str:
    """Every implementation of blocks, with its differences and their sources."""
    return "\n".join(map(_of_blocks, map(find, implementations.names())))


def _of_blocks(one: BlockImplementation) -> str:
    rows = [(code(d.name), plain(d.text), plain(d.source)) for d in one.differences]
    granted = "".join(f"- {plain(text)}\n" for text in one.assumes)
    described = ", ".join(map(code, one.describes))
    table_ = table(["difference", "is", "source"], rows)
    ran = f"\n{_ran('module', one.modules)}\n{_ran('operation', one.operations)}" if one.modules else ""
    return (
        f"### {one.title}: `{one.name}`\n\nOf {described}. Source: {plain(one.source)}.\n\n{table_}\nTaken for granted:\n\n{granted}{ran}"
    )


def _ran(noun: str, every: Mapping[str, Module] | Mapping[str, Operation]) -> str:
    """Modules, or operations, with their sources."""
    return table([noun, "source"], [(code(name), plain(one.source)) for name, one in every.items()])


def _profile(name: str) -> str:
    one = profile(name)
    rows = [(code(i.name), plain(i.title), ", ".join(code(s) for s in i.of), _sets(i), _differences(i)) for i in one.implementations]
    head = ["implementation", "is", "of", "sets", "is otherwise in"]
    granted = "".join(f"- {plain(text)} ({_who(one, 'assumes', text)})\n" for text in _assumed(one))
    return f"### {one.title}: `{one.name}`\n\n{table(head, rows)}\nExact bytes take for granted:\n\n{granted}"


def _assumed(one: Profile) -> list[str]:
    return list(dict.fromkeys(text for i in one.implementations for text in i.assumes))


def _who(one: Profile, field: str, entry: str) -> str:
    """The implementations that have an entry in a field, or that all do."""
    found = [i for i in one.implementations if entry in getattr(i, field)]
    return "all" if len(found) == len(one.implementations) else ", ".join(code(i.name) for i in found)


def options() -> str:
    """The options of exact bytes, with who takes them."""
    rows = []
    for name, option in OPTIONS.items():
        who = [f"{code(p)}: {found}" for p in names() if (found := _who(profile(p), "options", name))]
        default = "" if option.default is None else value(option.default)
        rows.append((code(name), plain(option.expects()), option.unit, default, plain(option.doc), "; ".join(who) or "`measure`"))
    return table(["option", "values", "unit", "default", "is", "taken by"], rows)


def _sets(one: Implementation) -> str:
    return ", ".join(code(f"{key}={value}") for key, value in one.sets.items())


def _differences(one: Implementation) -> str:
    return "; ".join(f"{code(key)}: {plain(text)}" for key, text in one.differences.items())
