"""What a model is trained for: the loss, the batches and the scores of each task."""
