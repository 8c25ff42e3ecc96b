"""Configurations of models, as transformers writes them."""
