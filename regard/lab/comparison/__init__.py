"""Several architectures compared with an equal budget: `regard compare` and `regard.compare`."""
