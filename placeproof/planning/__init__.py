"""The best placements of a model on a cluster: a declared grid, bounds on all of its points, and exact answers for those that decide."""
