"""axolotl's configurations."""
