"""Seeds of the random numbers of training: each follows from the seed of the run, the step and the process alone."""

import torch


def seed_generators(device: torch.device, seed: int, step: int, part: int) -> None:
    """Seed the generators for one part of one step: its dropout, or (-1) the randomness of its batch."""
    torch.default_generator.manual_seed(step_seed(seed, step, part))  # `torch.manual_seed` is slow without CUDA
    if device.type == "cuda":
        torch.cuda.manual_seed(step_seed(seed, step, part))


def step_seed(seed: int, step: int, part: int) -> int:
    """Return a seed that is the same whether a run was resumed or not."""
    return ((seed * 1_000_003 + step) * 1_000_003 + part) % 2**63
