"""How the tensors of a block lie on the mesh, what each operation makes of that, and a block line by line."""
