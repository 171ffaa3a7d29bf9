"""Training: the loop, and what a person sees of it."""
