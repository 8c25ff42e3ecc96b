"""Profiles: what implementations of a strategy do beyond, and otherwise than, its ideal. Data, and how it is read."""
