"""Training steps of DeepSpeed and Megatron-LM, run by real processes."""
