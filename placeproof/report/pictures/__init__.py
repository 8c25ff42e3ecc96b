"""Pictures as SVG, without a library."""
