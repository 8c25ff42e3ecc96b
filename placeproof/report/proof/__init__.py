"""Judgements as text and as data."""
