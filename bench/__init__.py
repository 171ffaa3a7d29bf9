"""Speed and memory, as ratios within one run, since machines are noisy: `python -m bench [--device cuda]`."""
