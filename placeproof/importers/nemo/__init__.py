"""Recipes of Megatron-Bridge and of NeMo 2."""
