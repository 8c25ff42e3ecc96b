"""A page for every theorem, and an index by topic; written before the pages are read, from the declarations and the lock file."""

from __future__ import annotations

from html import escape
from pathlib import Path

import sympy
from model_pages import proofs
from pipe_tables import block, code, plain, table
from sphinx.application import Sphinx

from placeproof.report.renderers import expression_latex
from placeproof.report.theorems import Described, described
from placeproof.theory.statements import ByInduction, Holds
from placeproof.theory.suite.checks.arithmetic import asked
from placeproof.theory.suite.load import load
from placeproof.theory.theorem import Theorem

_FOLDER = Path(__file__).parent.parent / "reference" / "theorems"
#: Hundreds of pages in the navigation would stand on each of them; the index links to them.
_ORPHAN = "---\norphan: true\n---\n"
_OTHERS = "others.md"
#: Characters of SMT-LIB that stand on a page.
_LONGEST = 20_000
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

    With ``-D theorem_statements=16`` every 16th page alone says what its theorem states: the product is asked for all its forms there. Of
    the other theorems, those that no page links to share a page, as each takes long to lay out.
    """
    loaded, apart = load(), int(app.config.theorem_statements)
    _FOLDER.mkdir(exist_ok=True)
    stated, linked = loaded.theorems[::apart], {theorem for _, _, theorem, *_ in proofs()}
    pages = {f"{t.id}.md": _page(t, _body(described(t)) if t in stated else []) for t in loaded.theorems if t in stated or t.id in linked}
    others = [t for t in loaded.theorems if f"{t.id}.md" not in pages]
    if others:
        pages[_OTHERS] = "\n".join([_ORPHAN, "# Others\n", *(_begin(t, "##") for t in others)])
    pages["index.md"] = _index(loaded.topics, [(t, f"{t.id}.md" if f"{t.id}.md" in pages else _OTHERS) for t in loaded.theorems])
    for old in _FOLDER.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        path = _FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _index(topics: dict[str, str], pages: list[tuple[Theorem, str]]) -> str:
    parts = ["# Theorems\n", "What placeproof checks of itself and of the field, by topic. `placeproof check` checks it all.\n"]
    for topic, title in topics.items():
        own = [
            (f"[{plain(t.says)}]({page})", _WORDS[t.expect.word], code(t.id.rpartition(".")[2])) for t, page in pages if t.topic == topic
        ]
        parts += [f"## {title}\n", table(["says", "", "name"], own)]
    return "\n".join(parts)


def _page(theorem: Theorem, body: list[str]) -> str:
    return "\n".join([_ORPHAN, _begin(theorem, "#"), *body, f"`placeproof check {theorem.id}` checks it again.\n"])


def _begin(theorem: Theorem, level: str) -> str:
    """What it says as a heading, its verdict, its name and where it stands."""
    remarks = [f"{plain(theorem.remarks)}\n"] if theorem.remarks else []
    place = f"{Path(theorem.path).parent.name}/{Path(theorem.path).name}, line {theorem.line}"
    badge = f"**{_WORDS[theorem.expect.word]}** · `{theorem.id}` · {code(place)}"
    return "\n".join([f"{level} {plain(theorem.says).rstrip('.')}\n", f"{badge}\n", *remarks])


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
    parts += ["The program:\n", block(found.program, "python")] if found.program else []
    return [*parts, *_queries(found.theorem)]


def _queries(theorem: Theorem) -> list[str]:
    """What a solver is asked, folded away; of long ones how long they are."""
    statement = theorem.statement()
    if not isinstance(statement, Holds | ByInduction):
        return []
    each = [*asked(theorem, statement)]
    text = "\n\n".join(f"; {query.name}: {query.expected} is expected\n{query.script.rstrip()}" for query in each)
    if len(text) > _LONGEST:
        return [f"In SMT-LIB it is {len(each)} queries of {len(text):,} characters together, too long to stand here.\n"]
    return [f"```{{raw}} html\n<details><summary>in SMT-LIB, as a solver is asked</summary><pre>{escape(text)}</pre></details>\n```\n"]


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages before any is read."""
    app.add_config_value("theorem_statements", "1", "env", str)
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
