"""Data that is made once from the user's files and kept; checksums of data."""

from hashlib import sha256

import numpy as np


def digest(*parts: str | bytes | np.ndarray) -> str:
    """Return one SHA-256 of several texts, bytes and arrays in this order, in hexadecimal."""
    total = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(sha256(np.ascontiguousarray(data).data if isinstance(data, np.ndarray) else data).digest())
    return total.hexdigest()
