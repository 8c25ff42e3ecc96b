"""verl's configurations."""
