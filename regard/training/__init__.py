"""Training: planning a run, the loop, optimizers, checkpoints, progress and reports."""
