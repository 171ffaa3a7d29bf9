"""Tasks: the data, the loss, the batches, the metrics and the defaults of each."""
