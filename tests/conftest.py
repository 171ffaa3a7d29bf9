"""Every test runs with shapes checked against the signatures, unless REGARD_CHECK_SHAPES=0."""

import os

# Some virtual machines announce matrix instructions (AMX) that they do not let a program use.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

import torch

if os.environ.get("REGARD_CHECK_SHAPES", "1") != "0":
    from jaxtyping import install_import_hook

    install_import_hook("regard", "beartype.beartype")

torch.set_num_threads(1)  # two worker processes share two cores
