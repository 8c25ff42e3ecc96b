"""What a model costs, as text and as data."""
