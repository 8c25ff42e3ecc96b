"""A walk over the statements of a script."""
