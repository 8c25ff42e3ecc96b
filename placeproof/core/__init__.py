"""Data, and nothing but data: states, modes, meshes, strategies, step programs, diagnostics.

Nothing in this layer imports a solver, and SymPy is imported only when a symbol is asked for.
"""
