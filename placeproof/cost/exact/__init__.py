"""Exact bytes of a concrete model on a concrete mesh: a step program walked for one device, with the rounding of an implementation."""
