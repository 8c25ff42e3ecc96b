"""Strategies written as configurations: settings by the tables ``writing.toml``, the text of a file, and whether it reads back the same."""

from placeproof.importers.writing.table import WRITTEN
from placeproof.importers.writing.written import Asked, Written, write

__all__ = ["WRITTEN", "Asked", "Written", "write"]
