"""Writing results as text, JSON, LaTeX, Markdown or Python. No decisions are made here."""
