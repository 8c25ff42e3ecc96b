"""Words of a shell, read character by character, and what they come to."""
