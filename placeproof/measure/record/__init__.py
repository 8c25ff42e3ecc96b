"""A training script's step recorded as a program, from what each rank computes and exchanges."""
