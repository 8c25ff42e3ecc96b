"""The checks of a theorem: what a solver, exact arithmetic and runs say of it, each on its own."""
