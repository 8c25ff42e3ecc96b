"""What a collective does to a layout, and what its algorithms cost. Data only."""

from placeproof.collectives.table import COLLECTIVES, CONVERSIONS, Collective, Conversion, Layout

__all__ = ["COLLECTIVES", "CONVERSIONS", "Collective", "Conversion", "Layout"]
