"""Run the benchmarks of attention, recurrence, training and tokenising, and print tables; the others run by name."""

import argparse

import torch

from bench import attention, recurrent, tokenise, train
from bench.timing import show

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Speed and memory, as ratios within one run.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    print(f"torch {torch.__version__} on {torch.cuda.get_device_name() if device == 'cuda' else 'the CPU, one thread'}")
    show([*attention.rows(device), *recurrent.rows(device)])
    show([*train.rows(device), *tokenise.rows()])
    if device == "cuda":
        attention.show_memory()
