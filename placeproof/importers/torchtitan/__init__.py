"""torchtitan's configurations."""
