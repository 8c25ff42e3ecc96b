"""The page of profiles: what each system's implementations make otherwise than the ideal."""

from __future__ import annotations

from pipe_tables import code, plain, table

from placeproof.profiles.profile import Implementation, names, profile


def listed() -> str:
    """Every profile with its implementations."""
    return "\n".join(_profile(name) for name in names())


def _profile(name: str) -> str:
    one = profile(name)
    rows = [(code(i.name), plain(i.title), ", ".join(code(s) for s in i.of), _sets(i), _differences(i)) for i in one.implementations]
    head = ["implementation", "is", "of", "sets", "is otherwise in"]
    return f"### {one.title}: `{one.name}`\n\n{table(head, rows)}"


def _sets(one: Implementation) -> str:
    return ", ".join(code(f"{key}={value}") for key, value in one.sets.items())


def _differences(one: Implementation) -> str:
    return "; ".join(f"{code(key)}: {plain(text)}" for key, text in one.differences.items())
