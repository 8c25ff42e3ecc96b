"""How the tensors of a block lie on the mesh, what each operation makes of that, and a block line by line."""

from placeproof.semantics.layouts.layout import PARTIAL, AxisState, Layout, Sharding, Source, declared
from placeproof.semantics.layouts.operations import LAYOUTS, NO_LAYOUT, MisfitError, arithmetic, renames, result

__all__ = [
    "LAYOUTS",
    "NO_LAYOUT",
    "PARTIAL",
    "AxisState",
    "Layout",
    "MisfitError",
    "Sharding",
    "Source",
    "arithmetic",
    "declared",
    "renames",
    "result",
]
