"""LLaMA-Factory's configurations."""
