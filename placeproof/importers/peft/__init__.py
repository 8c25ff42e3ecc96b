"""The configurations of adapters that peft writes beside their weights."""
