"""A page for every theorem, and an index by topic; written before the pages are read, from the declarations and the lock file."""

from __future__ import annotations

from pathlib import Path

import sympy
from pipe_tables import block, code, plain, table
from sphinx.application import Sphinx

from placeproof.report.renderers import expression_latex
from placeproof.report.theorems import Described, described
from placeproof.theory.suite.load import load
from placeproof.theory.theorem import Theorem

_FOLDER = Path(__file__).parent.parent / "reference" / "theorems"
_WORDS = {"proved": "proved", "refuted": "refuted, as expected", "open": "open"}
_EVIDENCE = {
    "certificate": "a certificate that needs no solver",
    "z3": "a solver",
    "induction": "induction; base and step by a solver",
    "equations": "equations between terms, each by a solver",
    "obligations": "the program's obligations, each by a solver",
    "witness": "the witness, computed in exact arithmetic",
    "run": "a run of the program in exact arithmetic",
}


def write_pages(app: Sphinx) -> None:
    """Write a page for each theorem and the index; what is unchanged is left alone, and pages of theorems that are gone go too.

    With ``-D theorem_statements=16`` every 16th page alone says what its theorem states: the product is asked for all its forms there.
    """
    loaded, apart = load(), int(app.config.theorem_statements)
    _FOLDER.mkdir(exist_ok=True)
    pages = {f"{t.id}.md": _page(t, [] if n % apart else _body(described(t))) for n, t in enumerate(loaded.theorems)}
    pages["index.md"] = _index(loaded.topics, [(t.topic, t.id, t.expect.word, t.says) for t in loaded.theorems])
    for old in _FOLDER.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        path = _FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _index(topics: dict[str, str], rows: list[tuple[str, str, str, str]]) -> str:
    parts = ["# Theorems\n", "What placeproof checks of itself and of the field, by topic. `placeproof check` checks it all.\n"]
    for topic, title in topics.items():
        own = [r for r in rows if r[0] == topic]
        parts += [f"## {title}\n", table(["theorem", "", "says"], [(f"[{r[1]}]({r[1]}.md)", _WORDS[r[2]], plain(r[3])) for r in own])]
    return "\n".join(parts)


def _page(theorem: Theorem, body: list[str]) -> str:
    # Hundreds of pages in the navigation would stand on each of them; the index links to them.
    parts = ["---\norphan: true\n---\n", f"# {theorem.id}\n", f"{plain(theorem.says)}\n"]
    if theorem.remarks:
        parts.append(f"{plain(theorem.remarks)}\n")
    return "\n".join([*parts, *body, f"`placeproof check {theorem.id}` checks it again.\n"])


def _body(found: Described) -> list[str]:
    """What a theorem states, and what was found of it."""
    parts = [f"$$ {formula} $$\n" for formula in found.formulas]
    if not found.formulas:
        parts += [f"{plain(text)}.\n" for text in found.states]
    parts += (
        ["where\n", *(f"$$ {expression_latex(sympy.Symbol(label))} = {expression_latex(expr)} $$\n" for label, expr in found.where.items())]
        if found.where
        else []
    )
    rows = [("given", ", ".join(code(g) for g in found.given) or "nothing")]
    rows += [("shown", plain(found.how))] if found.how else []
    rows += [("expected", plain(found.expected))]
    if found.found is not None:
        rows += [("found", f"{found.found['verdict']}, by {_EVIDENCE[found.found['evidence']]}")]
        rows += [("needed", ", ".join(code(h) for h in found.found["hypotheses"]))] if found.found["hypotheses"] else []
    rows += [("source", ", ".join(f"[{key}](../sources.md#{key})" for key in found.theorem.cite))]
    parts += [table(["", ""], rows)]
    if found.controls:
        parts += ["Controls:\n", "\n".join(f"- {plain(text)}" for text in found.controls) + "\n"]
    return parts + (["The program:\n", block(found.program, "python")] if found.program else [])


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before any is read."""
    app.add_config_value("theorem_statements", "1", "env", str)
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
