"""What the blocks of a model keep, send and compute, derived from their programs over tensors."""
