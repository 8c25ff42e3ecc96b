"""Verdicts: the obligations of a strategy, a search for its counterexample, what confirms and explains it, and a certificate."""
