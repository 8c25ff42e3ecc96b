"""A page for every theorem, and an index by topic; written before the pages are read, from the declarations and the lock file."""

from __future__ import annotations

from pathlib import Path

import sympy
from pipe_tables import block, code, plain, table
from sphinx.application import Sphinx

from placeproof.report.renderers import expression_latex
from placeproof.report.theorems import Described, described
from placeproof.theory.suite.load import load

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
    """Write a page for each theorem and the index; what is unchanged is left alone, and pages of theorems that are gone go too."""
    loaded = load()
    _FOLDER.mkdir(exist_ok=True)
    pages = {f"{t.id}.md": _page(described(t)) for t in loaded.theorems}
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


def _page(found: Described) -> str:
    theorem = found.theorem
    # Hundreds of pages in the navigation would stand on each of them; the index links to them.
    parts = ["---\norphan: true\n---\n", f"# {theorem.id}\n", f"{plain(theorem.says)}\n"]
    if theorem.remarks:
        parts.append(f"{plain(theorem.remarks)}\n")
    parts += [f"$$ {formula} $$\n" for formula in found.formulas]
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
    rows += [("source", ", ".join(f"[{key}](../sources.md#{key})" for key in theorem.cite))]
    parts += [table(["", ""], rows)]
    if found.controls:
        parts += ["Controls:\n", "\n".join(f"- {plain(text)}" for text in found.controls) + "\n"]
    if found.program:
        parts += ["The program:\n", block(found.program, "python")]
    return "\n".join([*parts, f"`placeproof check {theorem.id}` checks it again.\n"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before any is read."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
