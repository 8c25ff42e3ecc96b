"""Real processes: what PyTorch exchanges and holds, and counterexamples run on it. The only part that may import torch."""
