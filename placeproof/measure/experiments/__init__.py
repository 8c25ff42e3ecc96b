"""Experiments that check the theory of parameter placement on real PyTorch."""
