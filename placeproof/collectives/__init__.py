"""What a collective does to a layout, and what its algorithms cost. Data only."""

from placeproof.collectives.table import COLLECTIVES, CONVERSIONS, AxisLayout, Collective, Conversion

__all__ = ["COLLECTIVES", "CONVERSIONS", "AxisLayout", "Collective", "Conversion"]
