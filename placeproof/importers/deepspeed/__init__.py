"""DeepSpeed's configurations."""
