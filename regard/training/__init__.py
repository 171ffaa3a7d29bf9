"""Training: planning a run, the loop, optimizers, checkpoints, and what the user sees of them."""
