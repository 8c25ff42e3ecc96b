"""What the scripts of this folder train, and what one process makes of it."""
