"""NeMo RL's configurations."""
