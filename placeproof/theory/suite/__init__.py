"""The suite: files of theorems found and read, each theorem checked, outcomes kept and locked, and what of the product they are about."""
