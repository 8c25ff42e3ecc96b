"""MaxText's configurations."""
