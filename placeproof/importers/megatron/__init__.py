"""Megatron-LM's arguments."""
