"""NeMo Automodel's configurations."""
