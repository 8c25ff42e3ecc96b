"""Configurations of training frameworks, read as strategies, and of models, read as shapes.

What a configuration says that is not modelled is listed, never dropped.
"""

from placeproof.importers.imported import Imported, ImportedShapes, Reading, Role
from placeproof.importers.shapes import import_shapes, read_shapes, render_shapes
from placeproof.importers.systems import SYSTEMS, read_config, recognised

__all__ = [
    "SYSTEMS",
    "Imported",
    "ImportedShapes",
    "Reading",
    "Role",
    "import_shapes",
    "read_config",
    "read_shapes",
    "recognised",
    "render_shapes",
]
