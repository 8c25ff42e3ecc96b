"""What a strategy's training step holds and sends, derived from its program over states."""
