"""Files of Python that make configurations: parsed, and never run."""

from placeproof.importers.python.module import Module, UnreadPythonError
from placeproof.importers.python.said import Settings, shown
from placeproof.importers.python.values import Known, Made, Unknown, plain

__all__ = ["Known", "Made", "Module", "Settings", "Unknown", "UnreadPythonError", "plain", "shown"]
