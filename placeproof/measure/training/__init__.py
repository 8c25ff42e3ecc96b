"""One training step of PyTorch's own code: how the module is built and wrapped, run by real processes, and what is predicted of it."""
