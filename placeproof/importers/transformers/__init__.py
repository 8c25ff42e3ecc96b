"""Arguments of transformers' Trainer, and what other launchers that end in it have in common with them."""
